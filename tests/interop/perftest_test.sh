#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# perftest between two processes. usage: perftest_test.sh BUILD_FOLDER
# Goal: every pair of operation and transport that perftest offers, by both posting interfaces, ends well.
set -u
. "$(dirname "$0")/two_programs.sh"
need ib_write_bw

for transport in RC UC UD XRC DC; do
	for operation in write read send atomic; do
		case $transport-$operation in
		UC-read | UC-atomic | UD-write | UD-read | UD-atomic) continue ;;
		esac
		for measure in bw lat; do
			program=ib_${operation}_$measure
			two "$program -c $transport" $program -d mlx5_0 -c $transport -n 200
			[ $transport = DC ] ||
				two "$program -c $transport, ibv_post_send" $program -d mlx5_0 -c $transport \
					-n 200 --use_old_post_send
		done
	done
done
two "ib_write_bw -a" ib_write_bw -d mlx5_0 -a -n 50
two "ib_read_bw -a" ib_read_bw -d mlx5_0 -a -n 50
two "ib_send_bw -a" ib_send_bw -d mlx5_0 -a -n 50
two "ib_write_bw -b" ib_write_bw -d mlx5_0 -b -n 200
two "ib_send_bw -b -e" ib_send_bw -d mlx5_0 -b -e -n 200
two "ib_read_bw -b" ib_read_bw -d mlx5_0 -b -n 200
two "ib_send_lat -e" ib_send_lat -d mlx5_0 -e -n 200
two "ib_write_bw -q 8" ib_write_bw -d mlx5_0 -q 8 -n 200
two "ib_write_lat -I 64" ib_write_lat -d mlx5_0 -I 64 -n 200
two "ib_write_bw --odp" ib_write_bw -d mlx5_0 --odp -n 200
two "ib_write_bw -t 1" ib_write_bw -d mlx5_0 -t 1 -n 200
two "ib_write_bw -t 2048" ib_write_bw -d mlx5_0 -t 2048 -n 5000
two "ib_send_bw -r 4" ib_send_bw -d mlx5_0 -r 4 -n 200
two "ib_read_bw -o 1" ib_read_bw -d mlx5_0 -o 1 -n 200
two "ib_write_bw -c DC --log_dci_streams 3" ib_write_bw -d mlx5_0 -c DC --log_dci_streams=3 \
	--log_active_dci_streams=3 -n 200
exit $bad
