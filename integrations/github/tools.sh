#!/usr/bin/env bash
# Installs the cross compiler and QEMU; keeps their packages in the folder $1 and reuses them.
set -eu
packages=(gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm)
kept=$1
mkdir -p "$kept/partial"
root=()
[ "$(id -u)" = 0 ] || root=(sudo)
${root[@]+"${root[@]}"} apt-get update -qq
${root[@]+"${root[@]}"} apt-get install -y -qq --no-install-recommends -o Dir::Cache::archives="$kept" \
  -o Binary::apt-get::APT::Keep-Downloaded-Packages=true "${packages[@]}"
# Root wrote these files, but the user saves the cache.
${root[@]+"${root[@]}"} chown -R "$(id -u):$(id -g)" "$kept"
