#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# libfabric, as Debian ships it. usage: libfabric_test.sh BUILD_FOLDER
# Goal: its verbs provider finds the device, and reliable datagrams over UD queue pairs carry checked data of every
# size. Its endpoints of type msg, and fi_pingpong's dgram, connect by librdmacm, which needs the kernel's rdma_cm.
set -u
. "$(dirname "$0")/two_programs.sh"
need fi_info

"$tool" run fi_info -p verbs >"$folder/info" 2>&1
for endpoint in 'mlx5_0-dgram FI_EP_DGRAM FI_PROTO_IB_UD' 'mlx5_0-dgram FI_EP_RDM FI_PROTO_RXD'; do
	read -r domain type protocol <<<"$endpoint"
	if grep -A 3 "domain: $domain\$" "$folder/info" | grep -A 1 "type: $type\$" | grep -q "protocol: $protocol\$"; then
		echo "ok - fi_info -p verbs: $endpoint"
	else
		echo "not ok - fi_info -p verbs: $endpoint"
		sed 's/^/#   /' "$folder/info"
		bad=1
	fi
done

# Its control connection listens on another port than the client's, so `two` does not fit.
pingpong()
{
	local name=$1 server client
	shift
	port=$((port + 1))
	timeout 60 "$tool" run fi_pingpong "$@" -B $port >"$folder/server" 2>&1 </dev/null &
	server=$!
	for _ in $(seq 50); do
		timeout 60 "$tool" run fi_pingpong "$@" -P $port 127.0.0.1 >"$folder/client" 2>&1 </dev/null
		client=$?
		[ $client -eq 0 ] || [ $client -eq 124 ] && break
		kill -0 $server 2>/dev/null || break
		sleep 0.1
	done
	judge "$name" $server $client || bad=1
}

for mode in msg tagged; do
	pingpong "fi_pingpong -p verbs -e rdm -m $mode -c" -p verbs -e rdm -m $mode -c -I 5 -S all
done
for type in msg dgram; do
	echo "skip - fi_pingpong -p verbs -e $type # needs rdma_cm, which is part of the kernel and knows real devices only"
done
exit $bad
