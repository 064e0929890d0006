#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Open MPI over UCX, where it is installed (openmpi-bin, libopenmpi-dev). usage: openmpi_test.sh BUILD_FOLDER
# Goal: two ranks exchange checked data by UCX's transports and no other way.
set -u
. "$(dirname "$0")/two_programs.sh"
need mpicc
need mpirun

mpicc -O1 "$(dirname "$0")/mpi_program.c" -o "$folder/program" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for transports in rc_verbs,ud_verbs rc_mlx5,ud_mlx5 dc_mlx5,ud_mlx5; do
	UCX_TLS=$transports,self timeout 60 "$tool" run mpirun -n 2 --oversubscribe --mca pml ucx --mca osc ucx \
		--mca btl ^openib,vader,tcp "$folder/program" >"$folder/out" 2>&1 </dev/null
	status=$?
	if [ $status -eq 0 ] && [ "$(grep -c '^rank [01] of 2: 0 wrong$' "$folder/out")" -eq 2 ]; then
		echo "ok - Open MPI with UCX_TLS=$transports"
	else
		echo "not ok - Open MPI with UCX_TLS=$transports: exit status $status"
		sed 's/^/#   /' "$folder/out"
		bad=1
	fi
done
exit $bad
