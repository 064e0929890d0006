/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: numbers come from the window, each names what was stored under it and nothing after removal, and
 * one that was freed is not handed out again before the window was walked round.
 * Method: a seeded random walk of adds and removals against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>

#include "base/bits.h"
#include "base/idmap.h"
#include "base/prng.h"

enum { BASE = 0x40, WINDOW = 3 << SMX_IDMAP_LEAF_BITS };

static void fills_up_and_says_so(void **state)
{
	struct smx_idmap map;
	static int things[WINDOW];
	uint32_t id;

	(void)state;
	assert_int_equal(smx_idmap_init(&map, BASE, WINDOW), 0);
	for (uint32_t i = 0; i < WINDOW; i++) {
		assert_int_equal(smx_idmap_add(&map, &things[i], &id), 0);
		assert_int_equal(id, BASE + i);
	}
	assert_int_equal(smx_idmap_add(&map, &things[0], &id), ENOMEM);
	assert_ptr_equal(smx_idmap_remove(&map, BASE + 5), &things[5]);
	assert_null(smx_idmap_remove(&map, BASE + 5));
	assert_int_equal(smx_idmap_add(&map, &things[5], &id), 0);
	assert_int_equal(id, BASE + 5);
	smx_idmap_fini(&map);
}

static void holds_no_more_than_its_owner_allows(void **state)
{
	struct smx_idmap map;
	static int things[WINDOW];
	uint32_t id;

	(void)state;
	assert_int_equal(smx_idmap_init(&map, BASE, WINDOW), 0);
	map.max = 10;
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(smx_idmap_add(&map, &things[i], &id), 0);
	assert_int_equal(smx_idmap_add(&map, &things[10], &id), ENOMEM);
	assert_ptr_equal(smx_idmap_remove(&map, BASE + 3), &things[3]);
	assert_int_equal(smx_idmap_add(&map, &things[3], &id), 0);
	assert_int_equal(id, BASE + 10);	/* the window is larger */
	smx_idmap_fini(&map);
}

/* However often the window is walked round. */
static void walk_with(uint32_t count)
{
	struct smx_idmap map;
	static int things[10];
	uint32_t id[10], leaves;

	assert_int_equal(smx_idmap_init(&map, BASE, WINDOW), 0);
	for (uint32_t i = 0; i < 3 * WINDOW; i++) {
		uint32_t k = i % count;

		if (i >= count)
			assert_ptr_equal(smx_idmap_remove(&map, id[k]), &things[k]);
		assert_int_equal(smx_idmap_add(&map, &things[k], &id[k]), 0);
		leaves = 0;
		for (uint32_t l = 0; l < WINDOW >> SMX_IDMAP_LEAF_BITS; l++)
			leaves += map.leaf[l] != NULL;
		assert_true(leaves <= 2);	/* numbers that follow each other */
	}
	smx_idmap_fini(&map);
}

static void memory_is_that_of_the_numbers_in_use(void **state)
{
	(void)state;
	walk_with(1);
	walk_with(10);
}

static void numbers_outside_the_window_name_nothing(void **state)
{
	static const uint32_t outside[] = { 0, BASE - 1, BASE + WINDOW, UINT32_MAX, BASE + 1 };
	struct smx_idmap map;
	int thing;
	uint32_t id;

	(void)state;
	assert_int_equal(smx_idmap_init(&map, BASE, WINDOW), 0);
	assert_int_equal(smx_idmap_add(&map, &thing, &id), 0);
	assert_ptr_equal(smx_idmap_get(&map, id), &thing);
	for (size_t i = 0; i < SMX_COUNT(outside); i++) {
		assert_null(smx_idmap_get(&map, outside[i]));
		assert_null(smx_idmap_remove(&map, outside[i]));
	}
	smx_idmap_fini(&map);
}

static void a_freed_number_rests_until_the_window_was_walked(void **state)
{
	struct smx_idmap map;
	int thing;
	uint32_t first, id;

	(void)state;
	assert_int_equal(smx_idmap_init(&map, BASE, WINDOW), 0);
	assert_int_equal(smx_idmap_add(&map, &thing, &first), 0);
	smx_idmap_remove(&map, first);
	for (uint32_t i = 1; i < WINDOW; i++) {
		assert_int_equal(smx_idmap_add(&map, &thing, &id), 0);
		assert_int_not_equal(id, first);
		smx_idmap_remove(&map, id);
	}
	smx_idmap_fini(&map);
}

struct each { uint32_t count; int64_t last; const char *things; struct smx_idmap *map; uint32_t base; };

static void count_and_remove(void *obj, void *arg)
{
	struct each *e = arg;
	static uint32_t at;

	if (!e->count)
		at = 0;
	assert_true((const char *)obj - e->things > e->last);	/* stored in rising order below */
	e->last = (const char *)obj - e->things;
	e->count++;
	smx_idmap_remove(e->map, e->base + at++);
}

static void each_visits_in_order_and_allows_removal(void **state)
{
	struct smx_idmap map;
	static char things[100];
	struct each e = { .map = &map, .base = BASE, .last = -1, .things = things };
	uint32_t id;

	(void)state;
	assert_int_equal(smx_idmap_init(&map, BASE, WINDOW), 0);
	for (size_t i = 0; i < sizeof(things); i++)
		assert_int_equal(smx_idmap_add(&map, &things[i], &id), 0);
	smx_idmap_each(&map, count_and_remove, &e);
	assert_int_equal(e.count, sizeof(things));
	e.count = 0;
	e.last = -1;
	smx_idmap_each(&map, count_and_remove, &e);
	assert_int_equal(e.count, 0);
	smx_idmap_fini(&map);
}

static void a_random_walk_agrees_with_an_array(void **state)
{
	static char *model[WINDOW];
	static char things[WINDOW];
	struct smx_prng rng = { 7 };
	struct smx_idmap map;
	uint32_t id;

	(void)state;
	assert_int_equal(smx_idmap_init(&map, BASE, WINDOW), 0);
	for (int step = 0; step < 50000; step++) {
		uint32_t off = (uint32_t)smx_prng_below(&rng, WINDOW);

		if (smx_prng_below(&rng, 2)) {
			assert_ptr_equal(smx_idmap_remove(&map, BASE + off), model[off]);
			model[off] = NULL;
		} else if (smx_idmap_add(&map, &things[off], &id) == 0) {
			assert_in_range(id, BASE, BASE + WINDOW - 1);
			assert_null(model[id - BASE]);
			model[id - BASE] = &things[off];
		}
		assert_ptr_equal(smx_idmap_get(&map, BASE + off), model[off]);
	}
	smx_idmap_fini(&map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fills_up_and_says_so),
		cmocka_unit_test(holds_no_more_than_its_owner_allows),
		cmocka_unit_test(memory_is_that_of_the_numbers_in_use),
		cmocka_unit_test(numbers_outside_the_window_name_nothing),
		cmocka_unit_test(a_freed_number_rests_until_the_window_was_walked),
		cmocka_unit_test(each_visits_in_order_and_allows_removal),
		cmocka_unit_test(a_random_walk_agrees_with_an_array),
	};

	return cmocka_run_group_tests_name("base/idmap", tests, NULL, NULL);
}
