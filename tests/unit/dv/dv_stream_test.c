/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: streams of a DCI complete in any order against each other; a slot is free only when its request and
 * all before it are complete, and each completion finds its own wr_id.
 * Method: a model that knows which requests are complete plays against the driver with a fixed seed. */
#include "dv_world.h"

enum { STREAMS = 4, ROUNDS = 20000 };

static struct world *world_dci(uint32_t max_wr)
{
	struct ibv_qp_cap cap = { .max_send_wr = max_wr, .max_send_sge = 1 };
	struct world *w = world_new(SMX_DV_DCI, IBV_QP_EX_WITH_SEND,
				    MLX5DV_QP_EX_WITH_MEMCPY | MLX5DV_QP_EX_WITH_RAW_WQE, &cap);

	w->qp.has_streams = true;
	return w;
}

static int post(struct world *w, uint16_t stream, uint64_t wr_id)
{
	static struct smx_dv_ah ah;

	ibv_wr_start(&w->qp.ex);
	w->qp.ex.wr_id = wr_id;
	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
	mlx5dv_wr_set_dc_addr_stream(&w->qp.dv, &ah.ibv, 1, 2, stream);
	return ibv_wr_complete(&w->qp.ex);
}

static uint64_t complete(struct world *w, uint32_t bb)
{
	struct ibv_wc wc = { .wr_id = UINT64_MAX };

	world_done(w, bb & 0xffff, SMX_OP_SEND);
	assert_int_equal(world_poll(w, 1, &wc), 1);
	return wc.wr_id;
}

static void a_stuck_stream_holds_only_the_slots_from_it_on(void **state)
{
	struct world *w = world_dci(4);		/* two blocks a request: address and data */
	(void)state;

	assert_int_equal(w->qp.sq.max_post, 4);
	for (uint16_t i = 0; i < 4; i++)
		assert_int_equal(post(w, i, i), 0);
	assert_int_equal(complete(w, 4), 2);	/* stream 2 */
	assert_int_equal(w->qp.sq.tail, 0);
	assert_int_equal(post(w, 2, 99), ENOMEM);
	assert_int_equal(complete(w, 6), 3);
	assert_int_equal(complete(w, 0), 0);	/* stream 0: one slot is free */
	assert_int_equal(w->qp.sq.tail, 1);
	assert_int_equal(w->qp.sq.tail_bb, 2);
	assert_int_equal(post(w, 2, 4), 0);
	assert_int_equal(post(w, 2, 99), ENOMEM);
	assert_int_equal(complete(w, 2), 1);	/* the stuck one: all behind it are free */
	assert_int_equal(w->qp.sq.tail, 4);
	assert_int_equal(w->qp.sq.tail_bb, 8);
	assert_int_equal(complete(w, 8), 4);
	assert_int_equal(w->qp.sq.tail, 5);
	world_free(w);
}

static void a_completion_covers_the_earlier_of_its_stream_only(void **state)
{
	static const uint16_t streams[] = { 1, 2, 1, 2, 1, 2 };
	struct world *w = world_dci(8);
	(void)state;

	for (uint16_t i = 0; i < 6; i++)
		assert_int_equal(post(w, streams[i], i), 0);
	assert_int_equal(complete(w, 2 * 3), 3);	/* requests 1 and 3 */
	assert_int_equal(w->qp.sq.tail, 0);
	assert_int_equal(complete(w, 2 * 2), 2);	/* 0 and 2, so 0..3 */
	assert_int_equal(w->qp.sq.tail, 4);
	assert_int_equal(complete(w, 2 * 5), 5);
	assert_int_equal(w->qp.sq.tail, 4);
	assert_int_equal(complete(w, 2 * 4), 4);
	assert_int_equal(w->qp.sq.tail, 6);
	world_free(w);
}

/* Requests without an address are stream 0's. */
static void memcpy_is_of_stream_0(void **state)
{
	struct world *w = world_dci(8);
	(void)state;

	assert_int_equal(post(w, 1, 1), 0);
	ibv_wr_start(&w->qp.ex);
	w->qp.ex.wr_id = 2;
	mlx5dv_wr_memcpy(&w->qp.dv, 1, 2, 3, 4, 5);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	assert_int_equal(complete(w, 2), 2);
	assert_int_equal(w->qp.sq.tail, 0);
	assert_int_equal(complete(w, 0), 1);
	assert_int_equal(w->qp.sq.tail, 2);
	world_free(w);
}

static void a_raw_request_is_of_the_stream_that_it_names(void **state)
{
	struct world *w = world_dci(8);
	struct smx_wqe_ctrl raw[4] = { { .qpn_ds = to_be32(4), .dci_stream = to_be16(2) } };
	(void)state;

	assert_int_equal(post(w, 1, 10), 0);
	ibv_wr_start(&w->qp.ex);
	w->qp.ex.wr_id = 11;
	mlx5dv_wr_raw_wqe(&w->qp.dv, raw);		/* one block */
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	assert_int_equal(post(w, 2, 12), 0);
	assert_int_equal(complete(w, 3), 12);		/* stream 2, the raw one with it */
	assert_int_equal(w->qp.sq.tail, 0);
	assert_int_equal(complete(w, 0), 10);
	assert_int_equal(w->qp.sq.tail, 3);
	assert_int_equal(w->qp.sq.tail_bb, 5);
	world_free(w);
}

/* A CQE that no outstanding request explains does not move anything. */
static void a_stray_completion_frees_nothing(void **state)
{
	struct world *w = world_dci(8);
	(void)state;

	assert_int_equal(post(w, 1, 1), 0);
	assert_int_equal(complete(w, 0), 1);
	complete(w, 0);
	complete(w, 10);
	assert_int_equal(w->qp.sq.tail, 1);
	assert_int_equal(w->qp.sq.tail_bb, 2);
	world_free(w);
}

static void random_orders_agree_with_the_model(void **state)
{
	struct { uint32_t bb; uint16_t stream; bool done; } model[64];
	struct world *w = world_dci(13);
	uint32_t oldest = 0, newest = 0, random = 7, cap = w->qp.sq.max_post;
	(void)state;

	assert_true(cap < SMX_COUNT(model));
	world_sq_at(w, 0xffffffc0, 0);	/* soon past both ends of the counters */
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t pick, at;

		random = random * 1103515245 + 12345;
		pick = random >> 16;
		if (newest - oldest < cap && (pick & 1 || newest == oldest)) {
			at = newest % SMX_COUNT(model);
			model[at].bb = w->qp.sq.cur_post;
			model[at].stream = (uint16_t)(pick >> 1) % STREAMS;
			model[at].done = false;
			assert_int_equal(post(w, model[at].stream, newest), 0);
			newest++;
			continue;
		}
		if (newest - oldest == cap)
			assert_int_equal(post(w, 0, 12345), ENOMEM);
		/* complete one that is not, and with it the earlier of its stream */
		for (at = oldest + (pick >> 1) % (newest - oldest); model[at % SMX_COUNT(model)].done;)
			at = at + 1 == newest ? oldest : at + 1;
		assert_int_equal(complete(w, model[at % SMX_COUNT(model)].bb), at);
		for (uint32_t i = oldest; i != at + 1; i++) {
			if (model[i % SMX_COUNT(model)].stream == model[at % SMX_COUNT(model)].stream)
				model[i % SMX_COUNT(model)].done = true;
		}
		while (oldest != newest && model[oldest % SMX_COUNT(model)].done)
			oldest++;
		assert_int_equal(w->qp.sq.tail, oldest);
		assert_int_equal(w->qp.sq.tail_bb, oldest == newest ? w->qp.sq.cur_post :
				 model[oldest % SMX_COUNT(model)].bb);
	}
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stuck_stream_holds_only_the_slots_from_it_on),
		cmocka_unit_test(a_completion_covers_the_earlier_of_its_stream_only),
		cmocka_unit_test(memcpy_is_of_stream_0),
		cmocka_unit_test(a_stray_completion_frees_nothing),
		cmocka_unit_test(a_raw_request_is_of_the_stream_that_it_names),
		cmocka_unit_test(random_orders_agree_with_the_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
