#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# softmlx5 run, config and info, and the command itself. usage: tool_test.sh BUILD_FOLDER
# Goal: a program starts on our libraries and its exit status comes through; settings are shown as they are in
# force; the device describes itself; a wrong command line is status 2.
set -u
tool=$1/bin/softmlx5
lib=$(realpath "$1/lib")
out=$(mktemp)
folder=$(mktemp -d)
trap 'rm -rf "$out" "$folder"' EXIT
bad=0

# expect NAME EXIT_STATUS COMMAND [ARG...] '=>' LINE...
expect()
{
	local name=$1 want=$2 got failure= command=()
	shift 2
	while [ "$1" != '=>' ]; do
		command+=("$1")
		shift
	done
	shift
	"${command[@]}" >"$out" 2>&1 </dev/null
	got=$?
	[ $got -eq "$want" ] || failure="exit status $got, $want wanted"
	for line in "$@"; do
		grep -qF -- "$line" "$out" || failure="no line with: $line"
	done
	if [ -z "$failure" ]; then
		echo "ok - tool: $name"
	else
		echo "not ok - tool: $name"
		echo "    $failure"
		sed 's/^/    /' "$out"
		bad=1
	fi
}

expect 'version' 0 "$tool" --version '=>' 'softmlx5 '
expect 'help' 0 "$tool" --help '=>' 'run' 'info' 'config' 'decode'
expect 'no command' 2 "$tool" '=>' 'Usage:'
expect 'unknown command' 2 "$tool" fly '=>' "no command \`fly'"

expect 'run: status comes through' 7 "$tool" run sh -c 'exit 7' '=>'
expect 'run: library path in front' 0 env LD_LIBRARY_PATH=/old "$tool" run -- sh -c 'echo $LD_LIBRARY_PATH' '=>' "$lib:/old"
expect 'run: no empty entry behind it' 0 env -u LD_LIBRARY_PATH "$tool" run sh -c 'echo "[$LD_LIBRARY_PATH]"' '=>' "[$lib]"
expect 'run: options of the program are its own' 0 "$tool" run echo --help -l '=>' '--help -l'
expect 'run: --log' 0 "$tool" run --log debug sh -c 'echo $SOFTMLX5_LOG' '=>' 'debug'
expect 'run: --env' 0 env -u LD_LIBRARY_PATH "$tool" run --env '=>' "LD_LIBRARY_PATH=$lib"
expect 'run: the files come last among the preloaded' 0 env LD_PRELOAD=/old.so ASAN_OPTIONS=a=1 "$tool" run --env '=>' \
	"LD_PRELOAD=/old.so:$lib/libsoftmlx5-files.so" 'ASAN_OPTIONS=a=1:verify_asan_link_order=0'
expect 'run: --no-files' 2 env -u LD_PRELOAD "$tool" run --no-files sh -c 'echo "[$LD_PRELOAD]"; ls /dev/infiniband' \
	'=>' '[]' 'No such file'
expect 'run: the character device is there' 0 "$tool" run sh -c 'test -c /dev/infiniband/uverbs0 && echo "<" $(ls /dev/infiniband) ">"' \
	'=>' '< uverbs0 >'
expect 'run: sysfs is there' 0 "$tool" run sh -c \
	'cd /; cat /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0 $(readlink -f /sys/class/infiniband/mlx5_0/device)/vendor' \
	'=>' 'RoCE v2' '0x15b3'
expect 'run: other folders are as they were' 2 "$tool" run sh -c \
	'ls /sys/class >/dev/null && test -c /dev/null && ls -d /sys/class/infiniband_none' '=>' 'infiniband_none'
echo 'int main(void) { return 3; }' >"$folder/asan.c"
if gcc -fsanitize=address "$folder/asan.c" -o "$folder/asan" 2>/dev/null; then
	expect 'run: a program with AddressSanitizer' 3 "$tool" run "$folder/asan" '=>'
else
	echo "skip - tool: run: a program with AddressSanitizer # gcc cannot build one here"
fi
expect 'run: not found' 127 "$tool" run /nonexistent/program '=>' 'No such file or directory'
expect 'run: cannot be started' 126 "$tool" run /etc/passwd '=>' 'Permission denied'
expect 'run: nothing named' 2 "$tool" run '=>' 'no program is named'
expect 'run: killed by a signal' 143 bash -c "'$tool' run sh -c 'kill -TERM \$\$'" '=>'
expect 'run: the program loads our library' 0 "$tool" run sh -c 'LD_TRACE_LOADED_OBJECTS=1 ibv_devinfo' '=>' \
	"libibverbs.so.1 => $lib/libibverbs.so.1"

# An executable alone must not take rdma-core's library beside it for ours.
mkdir -p "$folder/bin" "$folder/lib"
cp "$tool" "$folder/bin/softmlx5"
expect 'run: no libraries' 1 "$folder/bin/softmlx5" run true '=>' 'no libibverbs.so.1 of softmlx5'
cp -L /usr/lib/*/libibverbs.so.1 "$folder/lib/" 2>/dev/null
expect "run: rdma-core's library is not ours" 1 "$folder/bin/softmlx5" run true '=>' 'no libibverbs.so.1 of softmlx5'
mkdir -p "$folder/lib/any/softmlx5"
cp -L "$lib"/libibverbs.so.1 "$lib"/libmlx5.so.1 "$folder/lib/any/softmlx5/"
expect 'run: the library with the files is missing' 1 "$folder/bin/softmlx5" run true '=>' \
	'libsoftmlx5-files.so: No such file'
cp -L "$lib"/libsoftmlx5-files.so "$folder/lib/any/softmlx5/"
expect 'run: as installed' 0 env -u LD_LIBRARY_PATH "$folder/bin/softmlx5" run sh -c 'echo $LD_LIBRARY_PATH' '=>' \
	"$folder/lib/any/softmlx5"

expect 'config: defaults' 0 env -u SOFTMLX5_MTU "$tool" config '=>' 'SOFTMLX5_LOG' 'SOFTMLX5_MTU' \
	'value    4K (4096)  the default'
expect 'config: from the environment' 0 env SOFTMLX5_MEMCPY_MAX=3M "$tool" config '=>' \
	'value    3M (3145728)  from the environment'
expect 'config: refused' 1 env SOFTMLX5_MTU=1500 "$tool" config '=>' \
	"value    4K (4096)  the default, because \`1500' is refused" 'SOFTMLX5_MTU=1500 is not a power of two'

expect 'info: the device' 0 "$tool" info '=>' 'Device mlx5_0: vendor 0x02c9, part 4129' 'active' 'Ethernet' 'RoCE v2' \
	'RC ' 'mr_interleaved' 'memcpy' 'DCI streams' 'tag matching'
expect 'info: one argument too many' 2 "$tool" info now '=>' 'one argument too many'
exit $bad
