/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: deadlines fire when due, once, whatever else happens meanwhile; queue pairs without one are not looked at.
 * Method: bare queue pairs on a bare device; then random deadlines against a linear search. */
#include "xport/timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/prng.h"

enum { QPS = 40 };

static struct smx_dev dev;
static struct smx_qp qps[QPS];
static unsigned int fired[QPS], fired_count;
static void (*on_fire)(unsigned int i);

static void fire(struct smx_dev *d, struct smx_qp *qp)
{
	unsigned int i = (unsigned int)(qp - qps);

	assert_ptr_equal(d, &dev);
	assert_false(smx_is_listed(&qp->timer));
	assert_true(qp->deadline_ns == UINT64_MAX);
	fired[i]++;
	fired_count++;
	if (on_fire)
		on_fire(i);
}

static int setup(void **state)
{
	(void)state;
	memset(&dev, 0, sizeof(dev));
	memset(qps, 0, sizeof(qps));
	memset(fired, 0, sizeof(fired));
	fired_count = 0;
	on_fire = NULL;
	for (int i = 0; i < QPS; i++)
		qps[i].deadline_ns = UINT64_MAX;
	return 0;
}

static void one_fires_when_it_is_due_and_only_once(void **state)
{
	(void)state;
	smx_timer_set(&dev, &qps[0], 100);
	assert_int_equal(smx_timer_next(&dev), 100);
	smx_timer_run(&dev, 99, fire);
	assert_int_equal(fired_count, 0);
	smx_timer_run(&dev, 100, fire);
	assert_int_equal(fired_count, 1);
	smx_timer_run(&dev, 200, fire);
	assert_int_equal(fired_count, 1);
	assert_int_equal(smx_timer_next(&dev), UINT64_MAX);
}

static void one_that_is_taken_off_does_not_fire(void **state)
{
	(void)state;
	smx_timer_set(&dev, &qps[0], 100);
	smx_timer_set(&dev, &qps[1], 50);
	smx_timer_clear(&dev, &qps[1]);
	smx_timer_clear(&dev, &qps[1]);
	smx_timer_run(&dev, 60, fire);
	assert_int_equal(fired_count, 0);
	assert_int_equal(smx_timer_next(&dev), 100);
	smx_timer_set(&dev, &qps[0], 300);	/* later than it was */
	smx_timer_run(&dev, 200, fire);
	assert_int_equal(fired_count, 0);
	assert_int_equal(smx_timer_next(&dev), 300);
}

static void again(unsigned int i)
{
	smx_timer_set(&dev, &qps[i], 100);
}

static void firing_may_set_a_deadline_that_has_passed_already(void **state)
{
	(void)state;
	on_fire = again;
	smx_timer_set(&dev, &qps[0], 50);
	smx_timer_set(&dev, &qps[1], 60);
	smx_timer_run(&dev, 100, fire);
	assert_int_equal(fired_count, 2);	/* the new ones are for the next run */
	assert_int_equal(smx_timer_next(&dev), 100);
	smx_timer_run(&dev, 100, fire);
	assert_int_equal(fired_count, 4);
}

static void drop_others(unsigned int i)
{
	for (unsigned int k = 0; k < QPS; k++)
		if (k != i)
			smx_timer_clear(&dev, &qps[k]);
}

static void firing_may_take_others_off(void **state)
{
	(void)state;
	on_fire = drop_others;
	for (unsigned int i = 0; i < QPS; i++)
		smx_timer_set(&dev, &qps[i], 100 + i % 2 * 1000);
	smx_timer_run(&dev, 100, fire);
	assert_int_equal(fired_count, 1);
	assert_int_equal(smx_timer_next(&dev), UINT64_MAX);
}

/* Deadlines up to range_ns ahead, of which some are many rounds of the ring of slots away. */
static void random_deadlines_within(uint64_t range_ns)
{
	struct smx_prng prng = { 1 };
	uint64_t want[QPS], now = 0;

	memset(want, 0xff, sizeof(want));
	for (int step = 0; step < 20000; step++) {
		unsigned int i = (unsigned int)smx_prng_below(&prng, QPS), expect = 0;
		uint64_t earliest = UINT64_MAX;

		if (smx_prng_below(&prng, 4)) {
			want[i] = now + 1 + smx_prng_below(&prng, range_ns);
			smx_timer_set(&dev, &qps[i], want[i]);
		} else {
			want[i] = UINT64_MAX;
			smx_timer_clear(&dev, &qps[i]);
		}
		now += smx_prng_below(&prng, range_ns / 10);
		fired_count = 0;
		smx_timer_run(&dev, now, fire);
		for (i = 0; i < QPS; i++) {
			if (want[i] <= now) {
				expect++;
				assert_int_equal(fired[i], 1);
				fired[i] = 0;
				want[i] = UINT64_MAX;
			}
			assert_int_equal(fired[i], 0);
			if (want[i] < earliest)
				earliest = want[i];
		}
		assert_int_equal(fired_count, expect);
		assert_true(smx_timer_next(&dev) <= earliest);
		assert_int_equal(!dev.timers, earliest == UINT64_MAX);
	}
}

static void random_deadlines(void **state)
{
	(void)state;
	random_deadlines_within(1000);
}

static void random_deadlines_of_many_slots(void **state)
{
	(void)state;
	random_deadlines_within(UINT64_C(20) << SMX_TIMER_TICK_BITS);
}

static void random_deadlines_of_many_rounds(void **state)
{
	(void)state;
	random_deadlines_within((uint64_t)5 * SMX_TIMER_SLOTS << SMX_TIMER_TICK_BITS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(one_fires_when_it_is_due_and_only_once, setup),
		cmocka_unit_test_setup(one_that_is_taken_off_does_not_fire, setup),
		cmocka_unit_test_setup(firing_may_set_a_deadline_that_has_passed_already, setup),
		cmocka_unit_test_setup(firing_may_take_others_off, setup),
		cmocka_unit_test_setup(random_deadlines, setup),
		cmocka_unit_test_setup(random_deadlines_of_many_slots, setup),
		cmocka_unit_test_setup(random_deadlines_of_many_rounds, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
