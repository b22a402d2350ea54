#!/usr/bin/env bash
# Installs the cross compiler and QEMU; their packages are kept in the folder $1, and come from there where they are in it.
set -eu
packages=(gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm)
kept=$1
mkdir -p "$kept/partial"
root=()
[ "$(id -u)" = 0 ] || root=(sudo)
${root[@]+"${root[@]}"} apt-get update -qq
${root[@]+"${root[@]}"} apt-get install -y -qq --no-install-recommends -o Dir::Cache::archives="$kept" \
  -o Binary::apt-get::APT::Keep-Downloaded-Packages=true "${packages[@]}"
# written by root; the cache is saved by the user, and old versions need no room
${root[@]+"${root[@]}"} chown -R "$(id -u):$(id -g)" "$kept"
