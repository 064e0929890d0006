#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# A program that opens the libraries by name and looks up versioned symbols. usage: ..._test.sh BUILD_FOLDER
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
here=$(dirname "$0")
cc -O1 -D_GNU_SOURCE -Wall -Wextra "$here/looked_up_symbols.c" -o "$folder/program" -ldl || exit 1
if readelf -d "$folder/program" | grep -q 'ibverbs\|mlx5'; then
	echo "not ok - the program is linked to the libraries that it is to open"
	exit 1
fi
timeout 60 "$1/bin/softmlx5" run "$folder/program"
