#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# usage: with_libmlx5.sh BUILDDIR PROGRAM [ARGUMENT...]
# Runs a program on the installed libibverbs and libmlx5, unmodified, on a machine without a device: queues are
# written and nothing executes them. The same on ours: SOFTMLX5_DEVICE=off BUILDDIR/bin/softmlx5 run PROGRAM ...
parts=$(realpath "$1")/tests/oracle/parts
if [ $# -lt 2 ] || [ ! -e "$parts/standin.so" ]; then
	echo "usage: with_libmlx5.sh BUILDDIR PROGRAM [ARGUMENT...]; $parts/standin.so must have been built" >&2
	exit 2
fi
shift
unset LD_LIBRARY_PATH
SYSFS_PATH=$parts/sys LD_PRELOAD=$parts/standin.so exec "$@"
