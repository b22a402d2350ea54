#!/usr/bin/env bash
# Sets up everything in this folder (Debian packages, .venv) and then does what is asked for. Safe to run again.
#
#   ./setup.sh demo          classify handwritten digits on an emulated Cortex-M4
#   ./setup.sh test [ARGS]   run the tests (ARGS go to pytest)
#   ./setup.sh docs          build the site from docs/ into build/site
#   ./setup.sh               only set up; then: . .venv/bin/activate
set -eu
cd "$(dirname "$0")"

say() { printf '%s\n' "$*" >&2; }
fail() { say "setup: $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif have sudo; then sudo "$@"
  else fail "not root and no sudo; as root run: $*"
  fi
}

# The Debian packages behind the programs that are missing. Clang is for tests only, which are skipped without it.
missing_packages() {
  [ "${1:-}" != full ] || have clang || ls /usr/bin/clang-[1-9]* >/dev/null 2>&1 || printf '%s\n' clang
  have arm-none-eabi-gcc || printf '%s\n' gcc-arm-none-eabi
  arm_header || printf '%s\n' libnewlib-arm-none-eabi
  have qemu-system-arm || printf '%s\n' qemu-system-arm
  printf '#include <stdio.h>\n' | gcc -E - >/dev/null 2>&1 || printf '%s\n' gcc libc6-dev
  find_python >/dev/null || printf '%s\n' python3 python3-venv
}

arm_header() { have arm-none-eabi-gcc && printf '#include <string.h>\n' | arm-none-eabi-gcc -E - >/dev/null 2>&1; }

find_python() {
  for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
    if have "$name" && "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$name"
      return 0
    fi
  done
  return 1
}

install_packages() {
  packages=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$packages" ] || return 0
  have apt-get || fail "this needs the Debian packages (or what your system calls them): $packages"
  say "setup: installing $packages"
  export DEBIAN_FRONTEND=noninteractive
  as_root apt-get update -qq || fail "apt-get update failed; install by hand: $packages"
  # shellcheck disable=SC2086  # a list of words
  as_root apt-get install -y -qq --no-install-recommends $packages >&2 || fail "apt-get could not install: $packages"
  find_python >/dev/null || fail "Python 3.11 or newer with venv is needed"
}

# install_python EXTRAS: the package and what it needs in .venv; nothing to do when that was done before.
install_python() {
  [ ! -L .venv ] || fail ".venv is a link: what stands behind it is not this folder's to change"
  [ -x .venv/bin/python ] && .venv/bin/python -c '' 2>/dev/null || "$(find_python)" -m venv --clear .venv
  wanted="$1 $(cksum <pyproject.toml)"
  stamp=.venv/aot-installed
  if [ -f "$stamp" ] && grep -qxF "$wanted" "$stamp"; then return 0; fi
  say "setup: installing Python packages into .venv"
  .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --editable ".$1" ||
    fail "pip could not install the packages; is there a network, or a proxy to set?"
  printf '%s\n' "$wanted" >>"$stamp"
}

if [ $# = 0 ]; then install_packages full; else install_packages; fi
case "${1:-}" in
  demo)
    install_python ""
    exec .venv/bin/aot run examples/digits/digits.tflite --board mps2-an386 \
      --inputs examples/digits/test_images.npz --labels examples/digits/labels.txt
    ;;
  test)
    shift
    install_python "[test]"
    # Tests start many processes: each reads byte code instead of compiling the package again.
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX="$PWD/.venv/bytecode"
    exec .venv/bin/python -m pytest -n auto --dist loadfile "$@"
    ;;
  docs)
    install_python "[docs]"
    export NO_MKDOCS_2_WARNING=1
    exec .venv/bin/mkdocs build --quiet --strict
    ;;
  "")
    install_python "[test,tflm,cluster,dev,examples]"
    say "setup: done; . .venv/bin/activate, then aot --help"
    ;;
  *) fail "unknown word '$1'; see the first lines of this file" ;;
esac
