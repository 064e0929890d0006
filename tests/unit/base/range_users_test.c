/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: each address has as many users as ranges were added over it and not dropped; stretches and sizes are counted
 * right; a million users of one range cost no more than one.
 * Method: random ranges beside a plain array of counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/prng.h"
#include "base/range_users.h"

enum { PLACES = 200 };

static uint32_t naive[PLACES];

static void compare_all(const struct smx_range_users *u)
{
	uint32_t runs = 0;
	uint64_t covered = 0, until;

	for (uint64_t i = 0; i < PLACES; i++) {
		assert_int_equal(smx_range_users_at(u, i, &until), naive[i]);
		assert_true(until > i);
		/* As far as the answer reaches, and no farther: equal steps are one. */
		for (uint64_t k = i; k < until && k < PLACES; k++)
			assert_int_equal(naive[k], naive[i]);
		if (until < PLACES)
			assert_int_not_equal(naive[until], naive[i]);
		covered += naive[i] > 0;
		runs += naive[i] && (!i || !naive[i - 1]);
	}
	assert_int_equal(u->runs, runs);
	assert_int_equal(u->covered, covered);
}

static void counts_as_an_array_would(void **state)
{
	struct smx_range_users u = { .tree = NULL };
	struct smx_prng rng = { 7 };

	(void)state;
	for (int round = 0; round < 4000; round++) {
		uint64_t a = smx_prng_below(&rng, PLACES), b = smx_prng_below(&rng, PLACES + 1);
		uint64_t from = a < b ? a : b, to = a < b ? b : a;
		/* More and more at first, then fewer. */
		bool more = smx_prng_below(&rng, 100) < (round % 1000 < 500 ? 60u : 30u);

		if (more)
			assert_true(smx_range_users_add(&u, from, to));
		else
			assert_true(smx_range_users_drop(&u, from, to));
		for (uint64_t i = from; i < to; i++)
			naive[i] = more ? naive[i] + 1 : naive[i] - !!naive[i];
		compare_all(&u);
	}
	smx_range_users_free(&u);
}

static void many_users_of_one_range_are_one_step(void **state)
{
	struct smx_range_users u = { .tree = NULL };
	uint64_t until;

	(void)state;
	for (int i = 0; i < 1000000; i++)
		assert_true(smx_range_users_add(&u, 4096, 8192));
	assert_int_equal(smx_range_users_at(&u, 4096, &until), 1000000);
	assert_int_equal(until, 8192);
	for (int i = 0; i < 1000000; i++)
		assert_true(smx_range_users_drop(&u, 4096, 8192));
	assert_int_equal(smx_range_users_at(&u, 0, &until), 0);
	assert_true(until == UINT64_MAX);
	smx_range_users_free(&u);
}

static void the_last_address_and_nothing(void **state)
{
	struct smx_range_users u = { .tree = NULL };
	uint64_t until;

	(void)state;
	assert_int_equal(smx_range_users_at(&u, 5, &until), 0);
	assert_true(smx_range_users_drop(&u, 5, 6));
	assert_true(smx_range_users_add(&u, 5, 5));
	assert_true(smx_range_users_add(&u, 0, UINT64_MAX));
	assert_int_equal(u.runs, 1);
	assert_int_equal(smx_range_users_at(&u, UINT64_MAX - 1, &until), 1);
	assert_true(smx_range_users_drop(&u, 10, UINT64_MAX));
	assert_int_equal(u.covered, 10);
	smx_range_users_free(&u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_as_an_array_would),
		cmocka_unit_test(many_users_of_one_range_are_one_step),
		cmocka_unit_test(the_last_address_and_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
