#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# perftest between two processes.
# usage: perftest_test.sh BUILD_FOLDER [all | write]
# Goal: every pair of operation and transport that perftest offers, by both posting interfaces, ends well; and the options
# that change what is posted. Without a second word a part of the list is run; `all` runs all of it; `write` does
# that and writes docs/perftest.md anew, whose list is compared with this one in any case.
set -u
. "$(dirname "$0")/two_programs.sh"
need ib_write_bw
what=${2:-part}
page=$(dirname "$0")/../../docs/perftest.md

operations()
{
	case $1 in
	UC) echo write send ;;
	UD) echo send ;;
	*) echo write read send atomic ;;
	esac
}

# Lines of "part" or "all", a tab, and the command without its device.
list()
{
	local transport operation measure old option

	for transport in RC UC UD XRC DC; do
		for operation in $(operations $transport); do
			for measure in bw lat; do
				for old in "" " --use_old_post_send"; do
					[ $transport-"$old" = "DC- --use_old_post_send" ] && continue
					printf 'part\t%s\n' "ib_${operation}_$measure -c $transport -n 200$old"
					[ $operation = atomic ] || [ $transport = UD ] ||
						printf 'all\t%s\n' "ib_${operation}_$measure -c $transport -a -n 20$old"
				done
			done
		done
	done
	for transport in RC UC UD XRC DC; do
		for operation in $(operations $transport); do
			for option in "-b -n 200" "-q 8 -n 100" "-t 1 -n 100" "-t 2048 -n 5000"; do
				[ "$transport${option:0:2}" = DC-q ] && continue
				printf 'all\t%s\n' "ib_${operation}_bw -c $transport $option"
			done
		done
		printf 'all\t%s\n' "ib_send_bw -c $transport -e -n 200" "ib_send_lat -c $transport -e -n 200" \
			"ib_send_bw -c $transport -r 4096 -n 5000"
		# What finds no receive is lost there, and perftest waits for all of it.
		[ $transport = UC ] || [ $transport = UD ] ||
			printf 'all\t%s\n' "ib_send_bw -c $transport -r 1 -n 100"
	done
	printf 'part\t%s\n' "ib_write_bw -a -n 50" "ib_read_bw -a -n 50" "ib_send_bw -a -n 50" "ib_write_lat -a -n 50" \
		"ib_write_bw -b -n 200" "ib_send_bw -b -e -n 200" "ib_read_bw -b -n 200" "ib_send_lat -e -n 200" \
		"ib_write_bw -q 8 -n 200" "ib_write_lat -I 64 -n 200" "ib_write_bw --odp -n 200" "ib_write_bw -t 1 -n 200" \
		"ib_write_bw -t 2048 -n 5000" "ib_send_bw -r 4 -n 200" "ib_read_bw -o 1 -n 200" \
		"ib_write_bw -c DC --log_dci_streams=3 --log_active_dci_streams=3 -n 200"
	printf 'all\t%s\n' "ib_read_lat -a -n 50" "ib_send_lat -a -n 50" "ib_read_bw -e -n 200" \
		"ib_read_lat -e -n 200" "ib_send_bw -I 64 -s 64 -n 200" "ib_send_lat -I 64 -n 200" "ib_write_bw -I 64 -s 64 -n 200" \
		"ib_read_bw --odp -n 200" "ib_send_bw --odp -n 200" "ib_read_bw -o 16 -n 200" "ib_atomic_bw -o 1 -n 200" \
		"ib_atomic_bw -A CMP_AND_SWAP -n 200" "ib_atomic_lat -A CMP_AND_SWAP -n 200" "ib_atomic_bw -b -n 200" \
		"ib_write_bw -m 256 -n 200" "ib_read_bw -m 1024 -n 200" "ib_send_bw -x 0 -n 200" "ib_write_bw -D 2" \
		"ib_send_bw -c DC --log_dci_streams=3 --log_active_dci_streams=3 -n 200" \
		"ib_write_bw -s 1073741824 -n 5"
}

# The page's rows: command and result.
listed()
{
	sed -n 's/^| `\(.*\)` | .* |$/\1/p' "$page"
}

write_page()
{
	{
		echo "# perftest"
		echo
		echo "What perftest 4.5 of Debian 12 was run with between two processes of one host, and how it ended. Written by"
		echo "\`tests/interop/perftest_test.sh BUILD_FOLDER write\`; the tests compare its list with theirs. Each is run with"
		echo "\`-d mlx5_0\` as server and as client. perftest posts by \`ibv_wr_*\` unless it is told"
		echo "\`--use_old_post_send\`; DC it only posts by \`mlx5dv_wr_set_dc_addr\`. Not in the list: what perftest itself refuses."
		echo "With \`-c DC -e\` all messages pass; then its server closes an event channel before the completion queue that"
		echo "uses it, which is refused as rdma-core refuses it."
		echo
		echo "| command | result |"
		echo "|---|---|"
		cat "$folder/rows"
	} >"$page"
}

: >"$folder/rows"
while IFS=$'\t' read -r part command; do
	[ $what = part ] && [ "$part" != part ] && continue
	two "$command" ${command%% *} -d mlx5_0 ${command#* } </dev/null
	grep -q '^ok' "$folder/lines" && result=ok || result="fails"
	echo "| \`$command\` | $result |" >>"$folder/rows"
done < <(list)
[ $what = write ] && write_page
if [ "$(list | cut -f 2)" = "$(listed)" ]; then
	echo "ok - docs/perftest.md lists what is run"
else
	echo "not ok - docs/perftest.md does not list what is run: perftest_test.sh BUILD_FOLDER write"
	bad=1
fi
exit $bad
