/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Refusals: the table of rules, and the log of the last that were broken. */
#include "trace/refusal.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 32 };

static char names[SMX_CHECK_COUNT][NAME_MAX_BYTES];

static const struct smx_check_info infos[SMX_CHECK_COUNT] = {
	[SMX_CHECK_NONE] = { .name = names[SMX_CHECK_NONE], .text = "Nothing was refused.", .source = "" },
#define SMX_CHECK_CALL(id, err_, text_, source_) [SMX_CHECK_##id] = { \
	.name = names[SMX_CHECK_##id], .text = text_, .source = source_, .err = err_ },
#define SMX_CHECK_CQE(id, syndrome_, vendor_, hw_, grade_, text_, source_) [SMX_CHECK_##id] = { \
	.name = names[SMX_CHECK_##id], .text = text_, .source = source_, .grade = grade_, \
	.syndrome = syndrome_, .vendor = vendor_, .hw = hw_ },
#include "trace/refusal.def"
#undef SMX_CHECK_CALL
#undef SMX_CHECK_CQE
};

/* A call's row with errno 0 would turn a refusal into success; a request's row with syndrome 0 into a good
 * completion. A name must fit. */
#define SMX_CHECK_CALL(id, err_, text_, source_) _Static_assert((err_) > 0 && sizeof(#id) <= NAME_MAX_BYTES, #id);
#define SMX_CHECK_CQE(id, syndrome_, vendor_, hw_, grade_, text_, source_) \
	_Static_assert((syndrome_) > 0 && sizeof(#id) <= NAME_MAX_BYTES, #id);
#include "trace/refusal.def"
#undef SMX_CHECK_CALL
#undef SMX_CHECK_CQE

/* The names that refusal.def gives, in lower case. */
static void make_names(void)
{
	static const char *const upper[SMX_CHECK_COUNT] = {
		[SMX_CHECK_NONE] = "NONE",
#define SMX_CHECK_CALL(id, err_, text_, source_) [SMX_CHECK_##id] = #id,
#define SMX_CHECK_CQE(id, syndrome_, vendor_, hw_, grade_, text_, source_) [SMX_CHECK_##id] = #id,
#include "trace/refusal.def"
#undef SMX_CHECK_CALL
#undef SMX_CHECK_CQE
	};

	for (int i = 0; i < SMX_CHECK_COUNT; i++)
		for (int k = 0; upper[i][k]; k++)
			names[i][k] = (char)tolower((unsigned char)upper[i][k]);
}

const struct smx_check_info *smx_check_info(enum smx_check check)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_names);
	return &infos[(unsigned int)check < SMX_CHECK_COUNT ? check : SMX_CHECK_NONE];
}

static void lock(struct smx_refusal_log *log)
{
	while (__atomic_test_and_set(&log->lock, __ATOMIC_ACQUIRE))
		;
}

static void unlock(struct smx_refusal_log *log)
{
	__atomic_clear(&log->lock, __ATOMIC_RELEASE);
}

/* Of a call; 0 for a work request. Programs look at errno even where a call returns the error. */
static int error_of(enum smx_check check)
{
	int err = smx_check_info(check)->err;

	if (err)
		errno = err;
	return err;
}

int smx_refuse(struct smx_refusal_log *log, enum smx_check check, const struct smx_where *where,
	       const char *fmt, ...)
{
	static uint64_t seq;
	struct smx_refusal r = { .check = check };
	struct smx_refusal *kept;
	uint64_t wr_id;
	va_list args;

	if (!log)
		return error_of(check);
	if (where)
		r.where = *where;
	va_start(args, fmt);
	vsnprintf(r.text, sizeof(r.text), fmt, args);
	va_end(args);

	lock(log);
	r.seq = __atomic_add_fetch(&seq, 1, __ATOMIC_RELAXED);
	kept = &log->kept[log->count++ % SMX_REFUSALS_KEPT];
	*kept = r;
	unlock(log);

	wr_id = r.wr_id;
	if (log->sink)
		log->sink(&r, log->sink_arg);
	if (r.wr_id != wr_id) {
		lock(log);
		if (kept->seq == r.seq)
			kept->wr_id = r.wr_id;
		unlock(log);
	}
	return error_of(check);
}

int smx_refusal_get(struct smx_refusal_log *log, unsigned int n, struct smx_refusal *out)
{
	int found;

	lock(log);
	found = n < SMX_REFUSALS_KEPT && n < log->count;
	if (found)
		*out = log->kept[(log->count - 1 - n) % SMX_REFUSALS_KEPT];
	unlock(log);
	return found;
}
