#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# softmlx5 ps and clean. usage: ps_test.sh BUILD_FOLDER
# Goal: a process with a device is listed while it lives, as dead once it was killed, and clean takes it away.
set -u
. "$(dirname "$0")/two_programs.sh"
need ibv_rc_pingpong

check()
{
	if eval "$2"; then
		echo "ok - $1"
	else
		echo "not ok - $1"
		"$tool" ps | sed 's/^/#   /'
		bad=1
	fi
}

"$tool" run ibv_rc_pingpong -d mlx5_0 -g 0 -p $port >/dev/null 2>&1 </dev/null &
pid=$!
for _ in $(seq 50); do
	"$tool" ps | grep -q "^ *$pid " && break
	sleep 0.1
done
check "listed while it lives" '"$tool" ps | grep -q "^ *$pid alive .*ibv_rc_pingpong"'
check "clean leaves the living alone" '"$tool" clean >/dev/null; "$tool" ps | grep -q "^ *$pid alive"'
kill -9 $pid
wait $pid 2>/dev/null
check "listed as dead, or taken back by another, once it was killed" '! "$tool" ps | grep -q "^ *$pid alive"'
check "clean takes it away" '"$tool" clean | grep -q "dead processes"; ! "$tool" ps | grep -q "^ *$pid "'
check "a wrong command line" '"$tool" ps extra 2>/dev/null; [ $? -eq 2 ]'
exit $bad
