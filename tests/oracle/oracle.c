/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* usage: oracle [REQUESTS [SEED]]            random programs on both sides until so many requests were posted
 *        oracle --replay SEED [KEEP]         one program, or the part of it that KEEP names
 *
 * What we write into queues is what rdma-core's libmlx5 writes: the installed one, unmodified, and ours get the same
 * calls. Compared after each step: bytes of WQEs and of the doorbell, doorbell records, return codes, and what was
 * not to be touched. rows.def has the inputs that are answered otherwise on purpose. */
#include "oracle.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REQUESTS = 200000 };

static const char *const row_reason[ROW_COUNT] = {
#define ROW(id, err, how, why) [ROW_##id] = why,
#include "rows.def"
#undef ROW
};

static struct logs logs;

static uint64_t requests_in(const struct log *log)
{
	const struct record *r;
	uint64_t n = 0;

	for (uint32_t i = 0; (r = log_record(log, i)); i++)
		n += r->tag == TAG_STEP ? r->b : 0;
	return n;
}

/* RETURN requests posted, or 0 after a difference. */
static uint64_t run(uint64_t seed, uint64_t programs, const char *keep, uint64_t wanted)
{
	struct player player[SIDES];
	struct difference diff;
	uint64_t done = 0;

	for (int side = 0; side < SIDES; side++)
		player[side] = player_start((enum side)side, seed, programs, keep);
	for (; programs && done < wanted; seed++, programs--) {
		if (!logs_read(&logs, player) || !logs_equal(&logs, &diff)) {
			printf("not ok - libmlx5 and softmlx5 write the same\n");
			show_failure(seed, &logs, &diff);
			done = 0;
			break;
		}
		done += requests_in(&logs.of[OURS][0]);
	}
	for (int side = 0; side < SIDES; side++)
		player_stop(&player[side]);
	return done;
}

/* RETURN 1 when a row of the table was never tried, and all should have been. */
static int rows_used(bool all)
{
	int rc = 0;

	for (int i = 1; i < ROW_COUNT; i++) {
		if (row_used[i])
			printf("    otherwise on purpose, %llu times: %s\n", (unsigned long long)row_used[i],
			       row_reason[i]);
		else if (all)
			rc = printf("not ok - never tried: %s\n", row_reason[i]) > 0;
	}
	return rc;
}

static const char *library(void)
{
	static char path[PATH_MAX];
	const char *name = realpath(ORACLE_THEIR_LIBRARY, path) ? strrchr(path, '/') : NULL;

	return name ? name + 1 : NULL;
}

int main(int argc, char **argv)
{
	uint64_t wanted = REQUESTS, seed = 1, done;

	if (!library()) {
		printf("skip - libmlx5 and softmlx5 write the same # " ORACLE_THEIR_LIBRARY " is not there\n");
		return 77;
	}
	if (argc >= 3 && !strcmp(argv[1], "--replay")) {
		done = run(strtoull(argv[2], NULL, 10), 1, argc > 3 ? argv[3] : NULL, UINT64_MAX);
		printf("%llu requests\n", (unsigned long long)done);
		return !done;
	}
	if (argc > 1)
		wanted = strtoull(argv[1], NULL, 10);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	done = run(seed, UINT64_MAX, NULL, wanted);
	if (!done)
		return 1;
	printf("ok - %llu requests from seed %llu: %s and softmlx5 write the same\n", (unsigned long long)done,
	       (unsigned long long)seed, library());
	return rows_used(wanted >= REQUESTS);
}
