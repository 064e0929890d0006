/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: the matching list does what its order, masks and counts say, against a plain model; operations that
 * lead outside the list or into one of its used entries are refused and change nothing. */
#include "obj_world.h"

#include "base/bits.h"
#include "base/prng.h"
#include "obj/tag_list.h"

enum { TAGS = 16 };

static struct smx_srq srq;
static struct smx_qp qp;

static struct world *start(void)
{
	struct world *w = world_new();

	srq.tags = smx_tag_list_create(TAGS);
	assert_non_null(srq.tags);
	qp.attr.srq = &srq;
	return w;
}

static void end(struct world *w)
{
	free(srq.tags);
	world_free(w);
}

static smx_outcome run(struct world *w, uint8_t op, uint16_t index, int told, uint64_t tag, uint64_t mask)
{
	const struct smx_tag_op o = {
		.op = op, .index = index, .tag = tag, .mask = mask,
		.flags = told >= 0 ? SMX_TAG_SW_COUNT : 0, .sw_count = (uint16_t)told,
	};

	return smx_tag_execute(&w->dev, &qp, &o, &(struct smx_where){ .qpn = 5 });
}

static void appends_follow_the_chain(void **state)
{
	struct world *w = start();

	(void)state;
	assert_int_equal(run(w, SMX_TAG_OP_APPEND, 9, -1, 1, ~0ull), SMX_CHECK_NONE);	/* takes 0 */
	assert_int_equal(run(w, SMX_TAG_OP_APPEND, 3, -1, 2, ~0ull), SMX_CHECK_NONE);	/* takes 9 */
	assert_int_equal(smx_tag_match(srq.tags, 2), 9);
	assert_int_equal(smx_tag_match(srq.tags, 1), 0);
	assert_int_equal(smx_tag_match(srq.tags, 1), SMX_TAG_NONE);
	end(w);
}

static void refuses_what_leads_astray(void **state)
{
	struct world *w = start();

	(void)state;
	assert_int_equal(run(w, SMX_TAG_OP_APPEND, TAGS, -1, 1, ~0ull), SMX_CHECK_WQE_TAG_INDEX);
	world_refused(w, SMX_CHECK_WQE_TAG_INDEX, "entry 16");
	assert_int_equal(smx_tag_match(srq.tags, 1), SMX_TAG_NONE);
	assert_int_equal(run(w, SMX_TAG_OP_APPEND, 0, -1, 1, ~0ull), SMX_CHECK_NONE);	/* and the next one too */
	assert_int_equal(run(w, SMX_TAG_OP_APPEND, 1, -1, 2, ~0ull), SMX_CHECK_WQE_TAG_INDEX);
	world_refused(w, SMX_CHECK_WQE_TAG_INDEX, "in use");
	assert_int_equal(run(w, SMX_TAG_OP_REMOVE, 0xffff, -1, 0, 0), SMX_CHECK_NONE);	/* not there: no success */
	assert_int_equal(run(w, SMX_TAG_OP_REMOVE, 7, -1, 0, 0), SMX_CHECK_NONE);
	assert_int_equal(smx_tag_match(srq.tags, 1), 0);
	end(w);
}

/* Counts wrap; an entry appended in between waits. */
static void waits_for_the_count(void **state)
{
	struct world *w = start();

	(void)state;
	srq.tags->unexpected = 0xffff;
	assert_int_equal(run(w, SMX_TAG_OP_APPEND, 1, 0xffff, 1, ~0ull), SMX_CHECK_NONE);
	srq.tags->unexpected++;
	assert_int_equal(run(w, SMX_TAG_OP_APPEND, 2, -1, 2, ~0ull), SMX_CHECK_NONE);
	assert_int_equal(smx_tag_match(srq.tags, 2), SMX_TAG_NONE);
	assert_int_equal(smx_tag_match(srq.tags, 1), 0);
	assert_int_equal(run(w, SMX_TAG_OP_NOP, 0, 1, 0, 0), SMX_CHECK_NONE);
	assert_int_equal(smx_tag_match(srq.tags, 2), SMX_TAG_NONE);
	assert_int_equal(run(w, SMX_TAG_OP_NOP, 0, 0, 0, 0), SMX_CHECK_NONE);
	assert_int_equal(smx_tag_match(srq.tags, 2), 1);
	end(w);
}

/* The model: an array in order of appending. */
static void agrees_with_a_model(void **state)
{
	struct world *w = start();
	struct { uint64_t tag, mask; uint16_t entry; } model[TAGS];
	struct smx_prng rng = { .state = 11 };
	uint16_t free_entry[TAGS];
	uint32_t n = 0, frees = 0, matched = 0;

	(void)state;
	for (uint16_t i = 1; i < TAGS; i++)
		free_entry[frees++] = i;
	for (uint16_t at = 0, round = 0; round < 20000; round++) {
		uint64_t tag = smx_prng_below(&rng, 8), mask = smx_prng_below(&rng, 8);
		uint32_t found = 0;

		switch (smx_prng_below(&rng, 3)) {
		case 0:
			if (!frees)
				break;
			tag &= mask;
			model[n].tag = tag;
			model[n].mask = mask;
			model[n++].entry = at;
			at = free_entry[--frees];
			assert_int_equal(run(w, SMX_TAG_OP_APPEND, at, -1, tag, mask), SMX_CHECK_NONE);
			break;
		case 1:
			if (!n)
				break;
			found = (uint32_t)smx_prng_below(&rng, n);
			assert_int_equal(run(w, SMX_TAG_OP_REMOVE, model[found].entry, -1, 0, 0), SMX_CHECK_NONE);
			goto gone;
		default:
			while (found < n && (tag & model[found].mask) != model[found].tag)
				found++;
			assert_int_equal(smx_tag_match(srq.tags, tag),
					 found < n ? model[found].entry : SMX_TAG_NONE);
			if (found == n)
				break;
			matched++;
gone:
			free_entry[frees++] = model[found].entry;
			memmove(&model[found], &model[found + 1], (--n - found) * sizeof(model[0]));
			break;
		}
	}
	assert_true(matched > 1000);
	end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(appends_follow_the_chain),
		cmocka_unit_test(refuses_what_leads_astray),
		cmocka_unit_test(waits_for_the_count),
		cmocka_unit_test(agrees_with_a_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
