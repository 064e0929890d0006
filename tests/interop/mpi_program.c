/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An MPI program that checks what it gets: broadcasts of many sizes, a sum, and atomics on a remote counter. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LEN_MAX = 1 << 20, ADDS = 10, ADDEND = 3 };

static int broadcasts(int rank)
{
	unsigned char *data = malloc(LEN_MAX);
	int wrong = 0;

	for (int len = 1; len <= LEN_MAX; len *= 4) {
		for (int i = 0; i < len; i++)
			data[i] = rank ? 0 : (unsigned char)(i * 7 + (i >> 12) + len);
		MPI_Bcast(data, len, MPI_BYTE, 0, MPI_COMM_WORLD);
		for (int i = 0; i < len; i++)
			wrong += data[i] != (unsigned char)(i * 7 + (i >> 12) + len);
	}
	free(data);
	return wrong;
}

static int counter(int rank, int size)
{
	long *base, old, add = ADDEND, count;
	MPI_Win win;

	MPI_Win_allocate(sizeof(*base), sizeof(*base), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	*base = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < ADDS; i++) {
		MPI_Fetch_and_op(&add, &old, MPI_LONG, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	count = *base;
	MPI_Win_free(&win);
	return !rank && count != (long)size * ADDS * ADDEND;
}

int main(int argc, char **argv)
{
	int rank, size, own, sum = 0, wrong;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	own = rank + 1;
	MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	wrong = broadcasts(rank) + counter(rank, size) + (sum != size * (size + 1) / 2);
	printf("rank %d of %d: %d wrong\n", rank, size, wrong);
	MPI_Finalize();
	return wrong != 0;
}
