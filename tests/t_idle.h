/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Is a process idle? How often its threads ran tells that on a busy machine too; how long they ran shows a loop. */
#ifndef T_IDLE_H
#define T_IDLE_H

#include <dirent.h>

#include "t.h"

struct t_work { uint64_t runs, ticks, at_ms; };

static inline uint64_t t_runs_of(const char *status)
{
	uint64_t runs = 0;
	unsigned long n;
	char line[256];
	FILE *f = fopen(status, "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1 ||
		    sscanf(line, "nonvoluntary_ctxt_switches: %lu", &n) == 1)
			runs += n;
	}
	if (f)
		fclose(f);
	return runs;
}

/* What the threads of a process, which are to stay the same ones, have done so far. */
static inline struct t_work t_work(pid_t pid)
{
	struct t_work w = { .at_ms = t_now_ms() };
	unsigned long user = 0, system = 0;
	char path[320], text[1024] = "", *at;
	struct dirent *e;
	DIR *dir;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	MUST(f && fgets(text, sizeof(text), f), "read /proc/PID/stat");
	fclose(f);
	at = strrchr(text, ')');
	MUST(at && sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) == 2,
	     "parse /proc/PID/stat");
	w.ticks = user + system;
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	MUST(dir, "open /proc/PID/task");
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", pid, e->d_name);
		if (e->d_name[0] != '.')
			w.runs += t_runs_of(path);
	}
	closedir(dir);
	return w;
}

/* A look every millisecond would be a thousand runs a second. */
static inline bool t_expect_idle(struct t_work before, pid_t pid, const char *who)
{
	struct t_work after = t_work(pid);
	uint64_t ms = after.at_ms - before.at_ms, runs = after.runs - before.runs;
	uint64_t ticks = after.ticks - before.ticks, half = ms * (uint64_t)sysconf(_SC_CLK_TCK) / 2000;

	return EXPECT(runs <= 20 + ms / 10, "%s ran %" PRIu64 " times in %" PRIu64 " ms of nothing", who, runs, ms) &&
	       EXPECT(ticks <= half, "%s used %" PRIu64 " ticks in %" PRIu64 " ms of nothing", who, ticks, ms);
}

#endif
