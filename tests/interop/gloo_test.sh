#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Gloo, PyTorch's library for collectives, over its ibverbs transport. usage: gloo_test.sh BUILD_FOLDER
# Goal: three ranks sum, broadcast and meet, with every element right, over RoCE v1 and v2.
set -u
. "$(dirname "$0")/two_programs.sh"
need g++
[ -e /usr/include/gloo/transport/ibverbs/device.h ] || { echo "skip - gloo # libgloo-dev is not installed"; exit 77; }

g++ -O1 -std=c++17 "$(dirname "$0")/gloo_program.cc" -o "$folder/program" -lgloo || exit 1
for gid in 0 1; do
	mkdir "$folder/store$gid"
	processes=()
	for rank in 0 1 2; do
		timeout 100 "$tool" run "$folder/program" $rank 3 "$folder/store$gid" $gid >"$folder/out$rank" 2>&1 </dev/null &
		processes+=($!)
	done
	status=0
	for process in "${processes[@]}"; do
		wait "$process" || status=$?
	done
	if [ $status -eq 0 ] && [ "$(cat "$folder"/out? | grep -c '^rank [012] of 3: 0 wrong$')" -eq 3 ]; then
		echo "ok - Gloo, three ranks, GID index $gid"
	else
		echo "not ok - Gloo, three ranks, GID index $gid: exit status $status"
		sed 's/^/#   /' "$folder"/out?
		bad=1
	fi
done
exit $bad
