/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: the table of rules is whole; a refusal gives the rule's errno, is kept with its values, reaches the
 * sink once, and the last 64 can be read newest first, from any thread.
 * Method: the table row by row; then logs filled beyond their size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <ctype.h>
#include <errno.h>
#include <pthread.h>

#include "base/bits.h"
#include "trace/refusal.h"

static void every_rule_has_a_name_a_sentence_a_source_and_an_outcome(void **state)
{
	(void)state;
	for (int i = 1; i < SMX_CHECK_COUNT; i++) {
		const struct smx_check_info *info = smx_check_info((enum smx_check)i);
		size_t len = strlen(info->text);

		assert_true(info->name[0] && info->source[0] && len);
		assert_true(info->text[len - 1] == '.');
		for (const char *p = info->name; *p; p++)
			assert_true(islower((unsigned char)*p) || isdigit((unsigned char)*p) || *p == '_');
		/* A call's errno or a request's codes, never both. */
		if (info->err)
			assert_true(!info->grade && !info->syndrome && !info->vendor && !info->hw);
		else
			assert_true(info->syndrome && strchr("MSOI", info->grade) && info->grade);
		for (int k = 1; k < i; k++)
			assert_string_not_equal(info->name, smx_check_info((enum smx_check)k)->name);
	}
	assert_string_equal(smx_check_info(SMX_CHECK_GATHER_KEY)->name, "gather_key");
	assert_ptr_equal(smx_check_info(SMX_CHECK_COUNT), smx_check_info(SMX_CHECK_NONE));
}

static void a_refusal_returns_the_errno_and_keeps_the_values(void **state)
{
	struct smx_where where = { .qpn = 0x123, .wqe_index = 9, .opcode = 8 };
	static struct smx_refusal_log log;
	struct smx_refusal r;

	(void)state;
	assert_int_equal(smx_refusal_get(&log, 0, &r), 0);
	assert_int_equal(smx_refuse(&log, SMX_CHECK_OBJECT_BUSY, NULL, "%d left", 3), EBUSY);
	assert_int_equal(smx_refuse(&log, SMX_CHECK_GATHER_RANGE, &where, "length %d", 4097), 0);
	assert_int_equal(smx_refuse(NULL, SMX_CHECK_OBJECT_BUSY, NULL, "no log"), EBUSY);
	assert_int_equal(log.count, 2);
	assert_int_equal(smx_refusal_get(&log, 0, &r), 1);
	assert_int_equal(r.check, SMX_CHECK_GATHER_RANGE);
	assert_int_equal(r.where.qpn, 0x123);
	assert_string_equal(r.text, "length 4097");
	assert_int_equal(smx_refusal_get(&log, 1, &r), 1);
	assert_int_equal(r.check, SMX_CHECK_OBJECT_BUSY);
	assert_int_equal(r.where.qpn, 0);
	assert_int_equal(smx_refusal_get(&log, 2, &r), 0);
}

static void the_last_sixty_four_are_kept(void **state)
{
	static struct smx_refusal_log log;
	struct smx_refusal r;
	char longest[400], text[16];

	(void)state;
	for (int i = 0; i < 150; i++)
		smx_refuse(&log, SMX_CHECK_OBJECT_ARG, NULL, "%d", i);
	for (unsigned int n = 0; n < SMX_REFUSALS_KEPT; n++) {
		assert_int_equal(smx_refusal_get(&log, n, &r), 1);
		snprintf(text, sizeof(text), "%u", 149 - n);
		assert_string_equal(r.text, text);
	}
	assert_int_equal(smx_refusal_get(&log, SMX_REFUSALS_KEPT, &r), 0);
	assert_int_equal(smx_refusal_get(&log, UINT32_MAX, &r), 0);
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	smx_refuse(&log, SMX_CHECK_OBJECT_ARG, NULL, "%s", longest);
	smx_refusal_get(&log, 0, &r);
	assert_int_equal(strlen(r.text), sizeof(r.text) - 1);
}

static void fill_wr_id(struct smx_refusal *r, void *arg)
{
	++*(int *)arg;
	r->wr_id = 0xabc;
}

static void the_sink_sees_each_and_may_add_the_wr_id(void **state)
{
	static struct smx_refusal_log log;
	struct smx_refusal r;
	int calls = 0;

	(void)state;
	log.sink = fill_wr_id;
	log.sink_arg = &calls;
	smx_refuse(&log, SMX_CHECK_OBJECT_ARG, NULL, "one");
	smx_refuse(&log, SMX_CHECK_OBJECT_ARG, NULL, "two");
	assert_int_equal(calls, 2);
	for (unsigned int n = 0; n < 2; n++) {
		smx_refusal_get(&log, n, &r);
		assert_int_equal(r.wr_id, 0xabc);
	}
}

enum { EACH = 2000 };

static void *refuse_many(void *arg)
{
	for (int i = 0; i < EACH; i++)
		smx_refuse(arg, SMX_CHECK_OBJECT_ARG, NULL, "%d %d", i, i);
	return NULL;
}

static void threads_do_not_mix_their_refusals(void **state)
{
	static struct smx_refusal_log log;
	pthread_t threads[4];
	uint64_t before = UINT64_MAX;
	struct smx_refusal r;

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, refuse_many, &log), 0);
	for (int i = 0; i < 100; i++)
		if (smx_refusal_get(&log, 0, &r)) {
			int a = -1, b = -2;

			assert_int_equal(sscanf(r.text, "%d %d", &a, &b), 2);
			assert_int_equal(a, b);
		}
	for (size_t i = 0; i < SMX_COUNT(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(log.count, SMX_COUNT(threads) * EACH);
	for (unsigned int n = 0; n < SMX_REFUSALS_KEPT; n++) {
		assert_int_equal(smx_refusal_get(&log, n, &r), 1);
		assert_true(r.seq < before);
		before = r.seq;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_has_a_name_a_sentence_a_source_and_an_outcome),
		cmocka_unit_test(a_refusal_returns_the_errno_and_keeps_the_values),
		cmocka_unit_test(the_last_sixty_four_are_kept),
		cmocka_unit_test(the_sink_sees_each_and_may_add_the_wr_id),
		cmocka_unit_test(threads_do_not_mix_their_refusals),
	};

	return cmocka_run_group_tests_name("trace/refusal", tests, NULL, NULL);
}
