#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# softmlx5 decode on pastes as people make them. usage: decode_test.sh BUILD_FOLDER
# Goal: each paste is taken for what it is, and the lines that answer its author's question are there.
set -u
tool=$1/bin/softmlx5
out=$(mktemp)
trap 'rm -f "$out"' EXIT
bad=0

result()	# result NAME FAILURE; FAILURE empty: passed
{
	if [ -z "$2" ]; then
		echo "ok - decode: $1"
	else
		echo "not ok - decode: $1"
		echo "    $2"
		sed 's/^/    /' "$out"
		bad=1
	fi
}

# expect NAME EXIT_STATUS LINE... : the paste is standard input, ARGS what decode gets
expect()
{
	local name=$1 want=$2 got failure=
	shift 2
	"$tool" decode "${args[@]}" >"$out" 2>&1
	got=$?
	[ $got -eq "$want" ] || failure="exit status $got, $want wanted"
	for line in "$@"; do
		grep -qF -- "$line" "$out" || failure="no line with: $line"
	done
	result "$name" "$failure"
}

args=()
expect 'kernel, error CQE in dmesg' 0 'error CQE' 'qpn                0x001b07' \
	'syndrome 0x04  local protection error; the program sees IBV_WC_LOC_PROT_ERR (4)' \
	"[M measured] A data segment's lkey names no memory key" <<'PASTE'
[15601.662150] infiniband mlx5_2: mlx5_handle_error_cqe:332:(pid 0): WC error: 4, Message: local protection error
[15601.662156] infiniband mlx5_2: dump_cqe:272:(pid 0): dump error cqe
[15601.662158] 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[15601.662160] 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[15601.662162] 00000020: 00 00 00 2a 00 00 00 00 00 00 00 00 00 00 00 00
[15601.662164] 00000030: 00 00 00 00 93 00 52 04 0a 00 1b 07 00 11 9c d3
PASTE

expect 'libmlx5, remote access error on a write' 0 'words, as libmlx5 prints them' 'wqe_opcode         0x08  RDMA_WRITE' \
	'IBV_WC_REM_ACCESS_ERR (10)' '[M measured] The rkey is unknown at the responder' \
	'[I inferred] The remote region does not have the right' <<'PASTE'
[1496344648.548334] [node06:14879:0]           uct_iface.c:330  UCX  ERROR Error Endpoint timeout was not handled
mlx5: node06: got completion with error:
00000000 00000000 00000000 00000000
00000000 00000000 00000000 00000000
00000000 00000000 00000000 00000000
00000000 00008813 08006377 0000a4d2[1496344648.549828] [node06:14872:0]       dc_verbs.c:614  UCX  ERROR
PASTE

expect 'DPDK, marked as seen' 0 'as DPDK prints them' '00 73 65 65 6e' 'IBV_WC_LOC_PROT_ERR' \
	'[M measured] A data segment reaches past the end' <<'PASTE'
app> MLX5 Error CQE: at [0x7f6a7d20c000], len=64
00000000: 00 73 65 65 6E 00 00 00 00 00 00 00 00 00 00 00 | .seen...........
00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | ................
00000020: 00 00 00 17 00 00 00 00 00 00 00 00 00 00 00 00 | ................
00000030: 00 00 00 00 9D 00 53 04 0A 00 21 42 00 07 B1 D2 | ......S....B....
PASTE

expect 'DPDK, two CQEs in one log' 0 'qpn                0x002142' 'qpn                0x002143' \
	'[M measured] This request was queued behind' <<'PASTE'
MLX5 Error CQ: at [0x7f6a7d20c000], len=64
00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | ................
00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | ................
00000020: 00 00 00 17 00 00 00 00 00 00 00 00 00 00 00 00 | ................
00000030: 00 00 00 00 9D 00 53 04 0A 00 21 42 00 07 B1 D2 | ......S....B....
MLX5 Error CQ: at [0x7f6a7d20c040], len=64
00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | ................
00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | ................
00000020: 00 00 00 17 00 00 00 00 00 00 00 00 00 00 00 00 | ................
00000030: 00 00 00 00 9D 00 F9 05 0A 00 21 43 00 08 B1 D2 | ..........!C....
PASTE

expect 'WQE and its CQE in one paste' 0 'Send WQE: RDMA_WRITE qp 0x000123 wqe_index 7 ds 3' \
	'remote_va          0x00007f0012345678' 'rkey               0x00001122' 'lkey               0x00003344' \
	'The CQE is about the WQE above' '[M measured] No answer after all retries' 'RoCE without a GRH' <<'PASTE'
sq[7]:
0000: 00 00 07 08 00 01 23 03 00 00 00 08 00 00 00 00
0010: 00 00 7f 00 12 34 56 78 00 00 11 22 00 00 00 00
0020: 00 00 00 40 00 00 33 44 00 00 7f 00 aa bb cc 00
0030: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
cqe:
0000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
0010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
0020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
0030: 00 00 00 00 00 00 81 15 08 00 01 23 00 07 aa d0
PASTE

expect 'codes in a line of UCX' 0 'hw       0x92' "[O observed] A receive's lkey names no memory key" <<'PASTE'
[node1:4184378:0:4184378] ib_mlx5_log.c:184  Local protection error on mlx5_0:1/IB (synd 0x4 vend 0x32 hw_synd 0/146)
PASTE

expect 'codes in a line of NCCL' 0 'IBV_WC_RETRY_EXC_ERR (12)' '[M measured] No answer after all retries' <<'PASTE'
node2:88:101 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion with error 12, opcode 0, len 0, vendor err 129
PASTE

expect 'nothing to decode' 1 'no hex found' <<'PASTE'
It does not work.
PASTE

args=(000007080001230300000008000000000000)
expect 'an argument, too short for its WQE' 0 'ds claims 48 bytes, only 18 are here' </dev/null
args=(00000708 00012303 00000008 00000000 00007f00 12345678 00001122 00000000 00000040 00003344 00007f00 aabbcc00)
expect 'words as arguments' 0 'Send WQE: RDMA_WRITE' 'byte_count         64' </dev/null
args=(--syndrome 0x02 --vendor 0x68 --hw 0x01)
expect 'codes as options' 0 '[O observed] The WQE index in the control segment' </dev/null
args=(--status 4 --vendor 81)
expect 'a status as in a work completion' 0 'syndrome 0x04' '[O observed] Reading local data failed at the bus.' </dev/null
args=(--status 0)
expect 'a status that no syndrome gives' 2 'no syndrome gives status 0' </dev/null
args=(--vendor 0x51)
expect 'a vendor code alone' 2 '--vendor and --hw need --syndrome or --status' </dev/null
args=(--as nonsense 00)
expect 'an unknown kind' 2 "--as cannot be \`nonsense'" </dev/null
args=(-f /nonexistent/dump)
expect 'a file that is not there' 1 '/nonexistent/dump: No such file or directory' </dev/null
args=(--help)
expect 'help' 0 'Exit status' 'M measured' </dev/null
exit $bad
