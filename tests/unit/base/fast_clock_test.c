/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: the fast clock is the kernel's, to a few microseconds, and never goes back, whatever the counter did.
 * Method: readings between two of the kernel's; then its state spoilt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/fast_clock.h"

enum { SLACK_NS = 20000, ROUNDS = 200000 };

static uint64_t kernel_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void agree(struct smx_fast_clock *c, int rounds)
{
	uint64_t last = 0;

	for (int i = 0; i < rounds; i++) {
		uint64_t before = kernel_ns(), ns = smx_fast_clock_ns(c), after = kernel_ns();

		assert_true(ns + SLACK_NS >= before);
		assert_true(ns <= after + SLACK_NS);
		assert_true(ns >= last);
		last = ns;
	}
}

static void it_is_the_kernels_time_and_never_goes_back(void **state)
{
	struct smx_fast_clock c = { 0 };

	(void)state;
	agree(&c, ROUNDS);
	assert_true(c.counter == SMX_COUNTER_NONE || c.mult);
}

static void a_counter_that_jumped_is_not_believed_for_long(void **state)
{
	struct smx_fast_clock good = { 0 };

	(void)state;
	agree(&good, ROUNDS);
	for (int i = 0; i < 4; i++) {
		struct smx_fast_clock c = good;

		switch (i) {
		case 0: c.base_ticks += 1ull << 40; break;	/* it went back */
		case 1: c.base_ticks -= 1ull << 40; break;	/* or far on */
		case 2: c.first_ticks += 1ull << 50; c.span_ticks = 0; break;
		case 3: c.mult = 0; break;
		}
		agree(&c, ROUNDS / 10);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_the_kernels_time_and_never_goes_back),
		cmocka_unit_test(a_counter_that_jumped_is_not_believed_for_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
