# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# For scripts that run a program twice, as server and as client. Sourced with the build folder as $1.
tool=$1/bin/softmlx5
folder=$(mktemp -d)
port=$((20000 + ($$ % 20000)))
bad=0
trap 'rm -rf "$folder"' EXIT

# two NAME PROGRAM [ARG...]: both must end with 0. perftest gives up where a busy machine disturbs its own
# measurement of the clock: then it is run again.
two()
{
	for _ in 1 2 3; do
		two_once "$@" >"$folder/lines"
		grep -qs 'Correlation coefficient' "$folder/server" "$folder/client" || break
	done
	cat "$folder/lines"
	grep -q '^ok' "$folder/lines" || bad=1
}

two_once()
{
	local name=$1 server client
	shift
	port=$((port + 1))
	timeout 60 "$tool" run "$@" -p $port >"$folder/server" 2>&1 </dev/null &
	server=$!
	# It listens when it does; a client that comes too early is tried again.
	for _ in $(seq 50); do
		timeout 60 "$tool" run "$@" -p $port 127.0.0.1 >"$folder/client" 2>&1 </dev/null
		client=$?
		[ $client -eq 0 ] || [ $client -eq 124 ] && break
		kill -0 $server 2>/dev/null || break
		grep -qiE "couldn't connect|connection refused|failed to connect" "$folder/client" || break
		sleep 0.1
	done
	judge "$name" $server $client
}

# judge NAME SERVER CLIENT: the server's process, still running perhaps, and how the client ended. Fails unless both
# ended with 0.
judge()
{
	local server
	[ $3 -eq 0 ] || kill $2 2>/dev/null
	wait $2
	server=$?
	if [ $server -eq 0 ] && [ $3 -eq 0 ]; then
		echo "ok - $1"
		return 0
	fi
	echo "not ok - $1: server $server, client $3"
	sed 's/^/#   server: /' "$folder/server"
	sed 's/^/#   client: /' "$folder/client"
	return 1
}

need()
{
	command -v "$1" >/dev/null && return
	echo "skip - $1 # not installed"
	exit 77
}
