/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Runs a player on each side and compares what they write. */
#ifndef ORACLE_H
#define ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "trace.h"

enum side { THEIRS, OURS, SIDES };

/* ---- players (oracle_run.c) ---- */

struct player { FILE *from; int pid; };

struct log {			/* one program on one fill */
	uint8_t *data;
	size_t used, room;
	size_t *at;		/* of each record */
	uint32_t count, at_room;
	bool ended;		/* by TAG_END; otherwise the player died */
};

struct player player_start(enum side side, uint64_t seed, uint64_t count, const char *keep);
void player_stop(struct player *p);
/* RETURN false at the end of the pipe with nothing read. */
bool log_read(struct log *log, FILE *from);
const struct record *log_record(const struct log *log, uint32_t i);	/* NULL behind the last */

static inline const uint8_t *record_bytes(const struct record *r)
{
	return (const uint8_t *)(r + 1);
}

const char *side_name(enum side side);

/* ---- comparison (oracle_compare.c) ---- */

struct logs { struct log of[SIDES][FILLS]; };

struct difference {
	uint32_t step;		/* index */
	uint32_t record;	/* where in the logs */
	char text[200];
};

/* How often each row was used, and that it was needed. */
extern uint64_t row_used[ROW_COUNT];

/* RETURN true when all is as it should be. */
bool logs_equal(const struct logs *logs, struct difference *diff);

/* ---- a failure made short and shown (oracle_show.c) ---- */

void show_failure(uint64_t seed, const struct logs *logs, const struct difference *diff);
/* Reads the next program from both players. RETURN false when a pipe ended before anything came. */
bool logs_read(struct logs *logs, struct player player[SIDES]);

#endif
