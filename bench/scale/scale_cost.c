/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What an object takes: memory, and time to make it and to end it. */
#include "scale.h"

#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

enum { SMALL = 100, SMALL_TIMES = 50, LARGE = 100000, FEW_CONTEXTS = 1000 };

/* Memory that is in use for this process, what it shares with others included. */
static double resident_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	double sum = 0, kib;
	char line[256];

	if (!f)
		die("/proc/self/status");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %lf", &kib) == 1 || sscanf(line, "RssShmem: %lf", &kib) == 1)
			sum += kib * 1024;
	fclose(f);
	return sum;
}

static uint32_t many(enum kind kind)
{
	return kind == CONTEXT ? FEW_CONTEXTS : LARGE;
}

static double bytes_each(struct scale *s, enum kind kind, uint32_t depth, uint32_t count)
{
	struct crowd c;
	double before;

	crowd_make(s, &c, kind, 2, depth);	/* what comes with the first is not each one's */
	before = resident_bytes();
	crowd_make(s, &c, kind, count, depth);
	return (resident_bytes() - before) / count - sizeof(c.obj[0]);
}

/* Objects stay, so that none takes over the memory of another. */
void memory(struct scale *s, enum kind kind, uint32_t depth)
{
	double process = resident_bytes();

	printf("%.0f\t%.0f\n", process, bytes_each(s, kind, depth, many(kind)));
}

static void lifetime_row(struct scale *s, enum kind kind, uint32_t count, int times)
{
	uint32_t *order = shuffled(count);
	double made = 0, ended = 0;

	for (int i = -1; i < times; i++) {	/* the first time warms up */
		double began = now(), middle;
		struct crowd c;

		crowd_make(s, &c, kind, count, kind == COMPLETION_QUEUE ? 2 : DEPTH);
		middle = now();
		crowd_end(&c, order);
		if (i < 0 && times > 1)
			continue;
		made += middle - began;
		ended += now() - middle;
		if (times == 1)
			break;
	}
	printf("%s\t%u\t%.0f\t%.0f\n", kind_name(kind), count, made * 1e9 / times / count, ended * 1e9 / times / count);
	fflush(stdout);
	free(order);
}

void lifetime(struct scale *s)
{
	for (enum kind kind = 0; kind < KINDS; kind++) {
		lifetime_row(s, kind, SMALL, SMALL_TIMES);
		lifetime_row(s, kind, many(kind), 1);
	}
}

void count_lifetime(struct scale *s, enum kind kind, uint32_t count)
{
	uint32_t *order = shuffled(count);
	struct crowd c;

	CALLGRIND_TOGGLE_COLLECT;
	crowd_make(s, &c, kind, count, kind == COMPLETION_QUEUE ? 2 : DEPTH);
	crowd_end(&c, order);
	CALLGRIND_TOGGLE_COLLECT;
}
