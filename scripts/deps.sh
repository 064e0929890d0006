#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Installs the Debian packages that building and testing need; does nothing when all are there.
set -euo pipefail

packages=(
	gcc g++ clang cmake ninja-build pkg-config xz-utils pandoc
	libibverbs-dev ibverbs-providers libcmocka-dev libclang-rt-dev libjansson-dev liblzma-dev
	ibverbs-utils perftest python3-pyverbs ucx-utils libfabric-bin dapl2-utils libgloo-dev valgrind iproute2
)

missing=()
for package in "${packages[@]}"; do
	dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing: ${missing[*]}"
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
