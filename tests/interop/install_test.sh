#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# What `make install` puts down is whole: a program built by its pkg-config file runs on it, the command finds
# its libraries, and every command has a man page.
set -u
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

check() {	# name, then the command that must succeed
	local name=$1
	shift
	if "$@" >"$tmp/out" 2>&1; then
		echo "ok - $name"
	else
		echo "not ok - $name: $(tail -n 3 "$tmp/out" | tr '\n' ' ')"
		failed=1
	fi
}

check "install" cmake --install "$build" --prefix "$tmp/usr"
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$tmp/usr" -name softmlx5.pc)")
cat >"$tmp/p.c" <<'C'
#include <softmlx5.h>
int main(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	return !(list && n == 1 && softmlx5_refusal_count(NULL) == 0 && softmlx5_check_name(1));
}
C
flags=$(pkg-config --define-variable=prefix="$tmp/usr" --cflags --libs softmlx5)
# shellcheck disable=SC2086
check "a program compiles with pkg-config softmlx5" cc "$tmp/p.c" $flags -o "$tmp/p"
check "and runs" "$tmp/p"
check "softmlx5 info finds its libraries" "$tmp/usr/bin/softmlx5" info
check "softmlx5 run starts a program on them" "$tmp/usr/bin/softmlx5" run "$tmp/p"
check "softmlx5 run shows the device's files" "$tmp/usr/bin/softmlx5" run sh -c \
	'test -c /dev/infiniband/uverbs0 && grep -q 0x1021 /sys/class/infiniband/mlx5_0/device/device'
for page in softmlx5.1 softmlx5-run.1 softmlx5-info.1 softmlx5-config.1 softmlx5-decode.1 softmlx5-ps.1 softmlx5_last_refusal.3; do
	check "man page $page" test -s "$tmp/usr/share/man/man${page##*.}/$page"
done
exit $failed
