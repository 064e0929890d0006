/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: several threads may post to one queue pair, and poll while others post; a thread sanitizer finds
 * nothing in either. */
#include "dv_world.h"

#include <pthread.h>

enum { THREADS = 4, POSTS = 2000 };

static void *post_many(void *arg)
{
	struct world *w = arg;

	for (int i = 0; i < POSTS; i++)
		assert_int_equal(world_write(w, (uint64_t)i), 0);
	return NULL;
}

/* Batches of several threads do not mix: each request is whole and in its own block. */
static void threads_take_turns(void **state)
{
	struct ibv_qp_cap cap = { .max_send_wr = THREADS * POSTS, .max_send_sge = 1 };
	struct world *w = world_new(SMX_DV_RC, IBV_QP_EX_WITH_RDMA_WRITE, 0, &cap);
	pthread_t t[THREADS];
	(void)state;

	w->qp.ring_sq = NULL;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, post_many, w), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(w->qp.sq.head, THREADS * POSTS);
	assert_int_equal(w->qp.sq.cur_post, THREADS * POSTS);
	for (uint32_t i = 0; i < THREADS * POSTS; i++) {
		assert_int_equal(bits_get(from_be32(world_wqe(w, i)->opmod_idx_opcode), 23, 8), i);
		assert_int_equal(from_be32(world_wqe(w, i)->qpn_ds), WORLD_QPN << 8 | 3);
	}
	world_free(w);
}

enum { PINGS = 20000 };

/* Plays the device and polls, while another thread posts. */
static void *complete_and_poll(void *arg)
{
	struct world *w = arg;
	struct ibv_wc wc;
	uint32_t done = 0;

	while (done < PINGS) {
		uint32_t pi = be32_load_acquire(&w->qp_dbrec[SMX_DBREC_SND]);

		for (; (uint16_t)done != (uint16_t)pi; done++) {
			world_done(w, done & 0xffff, SMX_OP_RDMA_WRITE);
			assert_int_equal(world_poll(w, 1, &wc), 1);
			assert_int_equal(wc.wr_id, done);
		}
		sched_yield();
	}
	return NULL;
}

static void one_thread_posts_and_another_polls(void **state)
{
	struct world *w = world_rc();
	uint32_t posted = 0;
	pthread_t t;
	(void)state;

	assert_int_equal(pthread_create(&t, NULL, complete_and_poll, w), 0);
	while (posted < PINGS) {
		if (world_write(w, posted) == 0)
			posted++;
		else
			sched_yield();
	}
	pthread_join(t, NULL);
	assert_int_equal(w->qp.sq.tail, PINGS);
	assert_int_equal(w->qp.sq.tail_bb, w->qp.sq.cur_post);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_take_turns),
		cmocka_unit_test(one_thread_posts_and_another_polls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
