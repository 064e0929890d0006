#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# rdma-core's example programs between two processes. usage: pingpong_test.sh BUILD_FOLDER [all]
# `all`: more sizes, and 100,000 messages of each program.
# Goal: each runs unmodified, with polling and with events; -c has the program check its data.
set -u
. "$(dirname "$0")/two_programs.sh"
need ibv_rc_pingpong

device="-d mlx5_0 -g 0"
for events in "" "-e"; do
	for size in 1 4096 100000 1048576; do
		two "ibv_rc_pingpong $events -s $size" ibv_rc_pingpong $device $events -s $size -n 300 -c
		two "ibv_srq_pingpong $events -s $size" ibv_srq_pingpong $device $events -s $size -n 300 -c
		two "ibv_uc_pingpong $events -s $size" ibv_uc_pingpong $device $events -s $size -n 300 -c
	done
	two "ibv_ud_pingpong $events" ibv_ud_pingpong $device $events -s 2048 -n 300 -c
	two "ibv_xsrq_pingpong $events" ibv_xsrq_pingpong $device $events -n 300
done

if [ "${2:-}" = all ]; then
	for events in "" "-e"; do
		for size in 2 64 1024 8192 65536 524288; do
			for program in rc srq uc; do
				two "ibv_${program}_pingpong $events -s $size" ibv_${program}_pingpong $device $events \
					-s $size -n 1000 -c
			done
		done
		for size in 1 64 1024; do
			two "ibv_ud_pingpong $events -s $size" ibv_ud_pingpong $device $events -s $size -n 1000 -c
		done
		for program in rc srq uc ud; do
			two "ibv_${program}_pingpong $events -n 100000" ibv_${program}_pingpong $device $events -s 64 \
				-n 100000
		done
		# Its send queue is as deep as it has messages, and a ConnectX-7's at most 32768.
		two "ibv_xsrq_pingpong $events -n 30000" ibv_xsrq_pingpong $device $events -n 30000
	done
fi

# It waits for asynchronous events of a context that has no objects, of which there are none: what can be shown
# is that it starts, waits and can be interrupted.
timeout -s INT --preserve-status 1 "$tool" run ibv_asyncwatch >"$folder/client" 2>&1 </dev/null
status=$?
if [ $status -eq 130 ] && grep -q '^mlx5_0: async event FD [0-9]' "$folder/client"; then
	echo "ok - ibv_asyncwatch waits until it is interrupted"
else
	echo "not ok - ibv_asyncwatch waits until it is interrupted: exit status $status"
	sed 's/^/#   /' "$folder/client"
	bad=1
fi
exit $bad
