#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# UCX, as Debian ships it. usage: ucx_test.sh BUILD_FOLDER
# Goal: UCX finds all five of its transports, and every operation of each ends well between two processes. With
# *_verbs it calls ibv_*; with *_mlx5 it writes WQEs, doorbell records and doorbells itself and reads CQEs.
set -u
. "$(dirname "$0")/two_programs.sh"
need ucx_perftest
batch=$folder/batch

# Prints what `two_once` left, but for a batch that ended well.
result()	# result NAME BAD
{
	if [ -z "$2" ]; then
		echo "ok - $1"
	else
		echo "not ok - $1: $2"
		tail -n 20 "$folder/server" | sed 's/^/#   server: /'
		tail -n 20 "$folder/client" | sed 's/^/#   client: /'
		bad=1
	fi
}

# perftest NAME [ARG...]: the tests of $batch, a line each, in one run. One that is not supported does not change
# perftest's exit status: each must have its line of results.
perftest()
{
	local name=$1 missing=
	shift
	two_once "$name" ucx_perftest -t am_lat -b "$batch" -f -v -n 20 -w 5 "$@" >"$folder/lines"
	while read -r line; do
		grep -q "^${line%% *},.*,.*," "$folder/client" || missing+=" ${line%% *}"
	done <"$batch"
	grep -q '^ok' "$folder/lines" || missing=" $(tail -n 1 "$folder/client")${missing:+; without a result:$missing}"
	result "$name" "$missing"
}

"$tool" run ucx_info -d >"$folder/client" 2>&1
: >"$folder/server"
for transport in rc_verbs ud_verbs rc_mlx5 dc_mlx5 ud_mlx5; do
	grep -A 1 "Transport: $transport\$" "$folder/client" | grep -q 'Device: mlx5_0:1'
	result "ucx_info -d: $transport" "${PIPESTATUS[1]#0}"
done

for transport in rc_verbs rc_mlx5 dc_mlx5; do
	cat >"$batch" <<-BATCH
	am_short_8 -t am_lat -s 8 -D short
	am_bcopy_4096 -t am_lat -s 4096 -D bcopy
	am_zcopy_8000 -t am_bw -s 8000 -D zcopy
	put_short_8 -t put_lat -s 8 -D short
	put_bcopy_1000 -t put_bw -s 1000 -D bcopy
	put_zcopy_1m -t put_bw -s 1048576 -D zcopy
	get_bcopy_8 -t get -s 8 -D bcopy
	get_zcopy_1m -t get -s 1048576 -D zcopy
	add -t add_lat -s 8
	add_mr -t add_mr -s 8
	fadd -t fadd -s 8
	cswap -t cswap -s 8
	BATCH
	perftest "ucx_perftest -x $transport" -d mlx5_0:1 -x $transport
done
for transport in ud_verbs ud_mlx5; do
	cat >"$batch" <<-BATCH
	am_short_8 -t am_lat -s 8 -D short
	am_bcopy_1000 -t am_bw -s 1000 -D bcopy
	am_zcopy_3000 -t am_bw -s 3000 -D zcopy
	BATCH
	perftest "ucx_perftest -x $transport" -d mlx5_0:1 -x $transport
done

cat >"$batch" <<BATCH
tag_8 -t tag_lat -s 8
tag_1m -t tag_bw -s 1048576
tag_sync_1000 -t tag_sync_lat -s 1000
tag_sync_1m -t tag_sync_bw -s 1048576
put_8 -t ucp_put_lat -s 8
put_1m -t ucp_put_bw -s 1048576
get_100000 -t ucp_get -s 100000
add -t ucp_add -s 8
fadd -t ucp_fadd -s 8
swap -t ucp_swap -s 8
cswap -t ucp_cswap -s 4
stream_8 -t stream_lat -s 8
stream_4096 -t stream_bw -s 4096
am_8 -t ucp_am_lat -s 8
am_1m -t ucp_am_bw -s 1048576
BATCH
for transports in rc_verbs,ud_verbs,self ud_verbs rc_mlx5,ud_mlx5 dc_mlx5,ud_mlx5 ud_mlx5 ib; do
	UCX_TLS=$transports perftest "ucx_perftest with UCX_TLS=$transports"
done

# io_demo checks its data; its server ends when it is told to. tcp is for meeting only: there is no rdma_cm.
for transports in rc_verbs,ud_verbs rc_mlx5,ud_mlx5 dc_mlx5,ud_mlx5; do
	port=$((port + 1))
	export UCX_TLS=$transports,tcp
	timeout 60 "$tool" run io_demo -q -d 8:300000 -p $port >"$folder/server" 2>&1 </dev/null &
	server=$!
	for _ in $(seq 50); do
		grep -q 'started listener' "$folder/server" && break
		sleep 0.1
	done
	failure=
	timeout 60 "$tool" run io_demo -q -o read,write -d 8:300000 -i 20 -p $port -c 3 -y 1 127.0.0.1 \
		>"$folder/client" 2>&1 </dev/null || failure="exit status $?"
	grep -q "Client exit with status 'OK'" "$folder/client" || failure+=' the client did not end well'
	kill $server || failure+=' the server is gone'
	wait $server 2>/dev/null
	result "io_demo -q with UCX_TLS=$transports" "$failure"
done
exit $bad
