"""The programs that we start: compilers, binutils, the emulator.  Found on PATH, or where AOT_<NAME> points."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aot.errors import Problem, ToolchainError

_HOW = {
    "arm-none-eabi-gcc": "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "arm-none-eabi-objdump": "apt-get install binutils-arm-none-eabi",
    "gcc": "apt-get install gcc",
    "clang": "apt-get install clang",
    "qemu-system-arm": "apt-get install qemu-system-arm",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A program with its absolute path and the first line of its --version."""

    name: str
    path: str
    version: str


def known_tools() -> list[str]:
    """The names that find_tool knows, in the order in which `aot doctor` shows them."""
    return list(_HOW)


def how_to_get(name: str) -> str:
    """The command that installs the program on Debian."""
    return _HOW[name]


def find_tool(name: str) -> Tool:
    """The program `name`; the variable AOT_ARM_NONE_EABI_GCC (and so on) overrides PATH.

    Raises ToolchainError E3001 with the way to get it.
    """
    override = os.environ.get("AOT_" + re.sub(r"\W", "_", name).upper())
    path = shutil.which(override or name)
    if path is None:
        place = f"at {override}" if override else "on PATH"
        raise ToolchainError(Problem("E3001", f"{name} is not {place}; on Debian: {_HOW.get(name, 'install it')}"))
    return Tool(name, path, _version(path))


@cache
def _version(path: str) -> str:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.splitlines()[0] if done.stdout else "unknown version"


def have_tool(name: str) -> bool:
    """Whether find_tool would succeed."""
    try:
        find_tool(name)
    except ToolchainError:
        return False
    return True


def run_tool(command: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a compiler or a binutil in `cwd` with a neutral locale; the caller looks at the result."""
    environment = dict(os.environ, LC_ALL="C", SOURCE_DATE_EPOCH="0")
    return subprocess.run(list(command), cwd=cwd, capture_output=True, text=True, check=False, env=environment, timeout=600)
