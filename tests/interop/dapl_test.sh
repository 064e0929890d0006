#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# DAPL's own tests, as Debian ships them, over its provider that connects by sockets. usage: dapl_test.sh BUILD_FOLDER
# Goal: what they send, write and read is right by their own look at it, and nothing of it fails. Both programs have
# threads of their own and end connections by a message over TCP as soon as the last completion was seen.
set -u
. "$(dirname "$0")/two_programs.sh"
need dapltest
need dtest
address=$(hostname -I | cut -d ' ' -f 1)
export DAT_OVERRIDE=$folder/dat.conf
provider=softmlx5
echo "$provider u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 \"mlx5_0 1\" \"\"" >"$DAT_OVERRIDE"

# both NAME LINE CLIENT...: starts server_command, and the client when the server has printed LINE.
both()
{
	local name=$1 listening=$2 server client
	shift 2
	timeout 60 "$tool" run "${server_command[@]}" >"$folder/server" 2>&1 </dev/null &
	server=$!
	for _ in $(seq 100); do
		grep -qs "$listening" "$folder/server" && break
		sleep 0.1
	done
	timeout 60 "$tool" run "$@" >"$folder/client" 2>&1 </dev/null
	client=$?
	[ "$1" = dapltest ] && timeout 10 "$tool" run dapltest -T Q -s "$address" -D $provider >/dev/null 2>&1
	# They end with 0 also when data was wrong.
	grep -qE 'Error|FAIL|bad conn|softmlx5: ' "$folder/server" "$folder/client" && client=1
	judge "$name" $server $client || bad=1
}

server_command=(dtest -P $provider -b 65536)
both 'dtest: SEND, RDMA WRITE and READ' 'waiting for client' dtest -P $provider -b 65536 -h "$address"

server_command=(dapltest -T S -D $provider)
transactions()
{
	both "dapltest -T T $*" 'Service Point Ready' dapltest -T T -s "$address" -D $provider -V "$@"
}
transactions -i 200 -t 1 -w 1 client SR 256 server SR 256
transactions -i 100 -t 4 -w 8 client SR 4096 server SR 4096
transactions -i 100 -t 2 -w 2 client RR 65536 2 client RW 65536 2 client SR 1024 3 server SR 1536 2
for mode in b p; do
	both "dapltest -T P -m $mode RW 4096 2" 'Service Point Ready' \
		dapltest -T P -s "$address" -D $provider -i 1024 -p 16 -m $mode RW 4096 2
done
exit $bad
