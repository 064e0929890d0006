/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: receives come out in the order they were posted, with the list that was posted; what a
 * broken program writes into ring or doorbell record never leads outside the ring. */
#include "obj_world.h"

#include <errno.h>

#include "base/bits.h"
#include "base/prng.h"
#include "obj/cq.h"
#include "obj/srq.h"

enum { COUNT = 16, STRIDE = 64, SEGS = STRIDE / SMX_WQE_DS - 1 };

struct queue {
	struct world *w;
	struct smx_srq *srq;
	uint8_t *buf;
	uint32_t dbrec[2];
	uint16_t posted, head, tail;	/* as a driver keeps its free list */
};

static struct smx_wqe_srq_next *entry(struct queue *q, uint16_t i)
{
	return (struct smx_wqe_srq_next *)(void *)(q->buf + (size_t)i * STRIDE);
}

static struct queue *queue_new(uint32_t limit)
{
	struct queue *q = calloc(1, sizeof(*q));

	assert_non_null(q);
	q->w = world_new();
	q->buf = aligned_alloc(4096, COUNT * STRIDE < 4096 ? 4096 : COUNT * STRIDE);
	memset(q->buf, 0, COUNT * STRIDE);
	for (uint16_t i = 0; i < COUNT; i++)
		entry(q, i)->next_wqe_index = to_be16((i + 1) % COUNT);
	q->tail = COUNT - 1;
	assert_int_equal(smx_srq_create(&q->w->dev,
					&(struct smx_srq_attr){ .buf = q->buf,
								.wqe_count = COUNT,
								.stride_bytes = STRIDE,
								.dbrec = q->dbrec,
								.pd = &q->w->pd,
								.limit = limit,
								.cookie = q },
					&q->srq),
			 0);
	assert_int_equal(q->w->pd.users, 1);
	return q;
}

static void queue_free(struct queue *q)
{
	assert_int_equal(smx_srq_destroy(&q->w->dev, q->srq), 0);
	world_free(q->w);
	free(q->buf);
	free(q);
}

static void write_segs(void *at, uint32_t n, uint32_t room, uint32_t seed)
{
	struct smx_wqe_data *seg = at;

	for (uint32_t i = 0; i < n; i++)
		seg[i] = (struct smx_wqe_data){ to_be32(seed + i), to_be32(0x1000 + i),
						to_be64(0x5000 + seed) };
	if (n < room)
		seg[n] = (struct smx_wqe_data){ to_be32(0), to_be32(SMX_LKEY_END), to_be64(0) };
}

static uint16_t post(struct queue *q, uint32_t segs, uint32_t seed)
{
	uint16_t at = q->head;

	q->head = from_be16(entry(q, at)->next_wqe_index);
	write_segs(entry(q, at) + 1, segs, SEGS, seed);
	be32_store_release(q->dbrec, ++q->posted);
	return at;
}

static void give_back(struct queue *q, uint16_t index)
{
	entry(q, q->tail)->next_wqe_index = to_be16(index);
	q->tail = index;
}

static struct smx_recv *recv_new(void)
{
	return malloc(sizeof(struct smx_recv) + SMX_RECV_SGE_MAX * sizeof(struct smx_sge));
}

static void expect_recv(const struct smx_recv *r, uint16_t index, uint32_t segs, uint32_t seed)
{
	uint64_t total = 0;

	assert_int_equal(r->wqe_index, index);
	assert_int_equal(r->sge_count, segs);
	for (uint32_t i = 0; i < segs; i++) {
		assert_int_equal(r->sge[i].length, seed + i);
		assert_int_equal(r->sge[i].key, 0x1000 + i);
		assert_int_equal(r->sge[i].va, 0x5000 + seed);
		assert_false(r->sge[i].is_host);
		total += seed + i;
	}
	assert_int_equal(r->total_bytes, total);
}

/* Freed in any order, past 65536 in all: the list is followed, not the ring. */
static void shared_receives_come_in_posted_order(void **state)
{
	struct queue *q = queue_new(0);
	struct smx_prng rng = { 3 };
	uint16_t at[COUNT], out[COUNT];
	uint32_t seed[COUNT], n = 0, outs = 0, next = 0;
	struct smx_recv *r = recv_new();
	(void)state;

	assert_false(smx_srq_take(&q->w->dev, q->srq, r));
	for (int step = 0; step < 200000; step++) {
		uint64_t what = smx_prng_below(&rng, 3);

		if (what == 0 && n + outs < COUNT - 1) {	/* drivers keep one entry back */
			seed[n] = ++next;
			at[n] = post(q, next % (SEGS + 1), next);
			n++;
		} else if (what == 1 && n) {
			assert_true(smx_srq_has(q->srq));
			assert_true(smx_srq_take(&q->w->dev, q->srq, r));
			expect_recv(r, at[0], seed[0] % (SEGS + 1), seed[0]);
			out[outs++] = at[0];
			n--;
			memmove(at, at + 1, n * sizeof(*at));
			memmove(seed, seed + 1, n * sizeof(*seed));
		} else if (what == 2 && outs) {
			uint32_t i = (uint32_t)smx_prng_below(&rng, outs);

			give_back(q, out[i]);
			out[i] = out[--outs];
		}
		if (!n) {
			assert_false(smx_srq_has(q->srq));
			assert_false(smx_srq_take(&q->w->dev, q->srq, r));
		}
	}
	assert_true(next > 65536 / 2);
	assert_int_equal(q->w->async_events, 0);
	free(r);
	queue_free(q);
}

static void limit_event_comes_once_for_each_arm(void **state)
{
	struct queue *q = queue_new(0);
	struct smx_recv *r = recv_new();
	(void)state;

	for (uint32_t i = 0; i < 10; i++)
		post(q, 1, i + 1);
	assert_int_equal(smx_srq_arm(&q->w->dev, q->srq, 7), 0);
	for (unsigned int taken = 1; taken <= 4; taken++) {
		assert_true(smx_srq_take(&q->w->dev, q->srq, r));
		assert_int_equal(q->w->async_events, taken == 4 ? 1 : 0);	/* 6 left */
	}
	assert_int_equal(q->w->async_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(q->w->async_cookie, q);
	assert_true(smx_srq_take(&q->w->dev, q->srq, r));
	assert_int_equal(q->w->async_events, 1);
	assert_int_equal(smx_srq_arm(&q->w->dev, q->srq, 16), 0);
	assert_true(smx_srq_take(&q->w->dev, q->srq, r));
	assert_int_equal(q->w->async_events, 2);
	assert_int_equal(smx_srq_arm(&q->w->dev, q->srq, 17), EINVAL);
	world_refused(q->w, SMX_CHECK_OBJECT_ARG, "limit 17, the queue has 16 entries");
	free(r);
	queue_free(q);
}

static void broken_lists_are_an_event_not_an_access(void **state)
{
	static const struct row {
		uint16_t next;
		uint32_t dbrec;
		unsigned int good;
		const char *text;
	} rows[] = {
		{ 16, 2, 1, "next entry 16" },
		{ 0xffff, 2, 1, "next entry 65535" },
		{ 15, 2, 2, NULL },
		{ 1, 17, 0, "posted and not taken 17" },
		{ 1, 0xffff, 0, "posted and not taken 65535" },
		{ 1, 16, 16, NULL },
		{ 0xffff, 1, 1,
		  NULL }, /* the last one's link is not used before another is posted */
	};
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(rows); i++) {
		struct queue *q = queue_new(0);
		struct smx_recv *r = recv_new();

		entry(q, 0)->next_wqe_index = to_be16(rows[i].next);
		be32_store_release(q->dbrec, rows[i].dbrec);
		for (unsigned int n = 0; n < rows[i].good; n++)
			assert_true(smx_srq_take(&q->w->dev, q->srq, r));
		for (int again = 0; again < 3; again++)
			assert_false(smx_srq_take(&q->w->dev, q->srq, r));
		assert_int_equal(q->w->async_events, rows[i].text ? 1 : 0);
		if (rows[i].text) {
			assert_int_equal(q->w->async_type, IBV_EVENT_SRQ_ERR);
			world_refused(q->w, SMX_CHECK_SRQ_CORRUPT, rows[i].text);
			assert_false(smx_srq_has(q->srq));
		}
		free(r);
		queue_free(q);
	}
}

static void creation_and_destruction_are_checked(void **state)
{
	struct world *w = world_new();
	_Alignas(64) static uint8_t buf[4096];
	static uint32_t dbrec[2];
	struct smx_xrcd xrcd = { 1, 0 };
	struct smx_cq cq = { .users = 0 };
	const struct smx_srq_attr good = { .buf = buf,
					   .wqe_count = 16,
					   .stride_bytes = 64,
					   .dbrec = dbrec,
					   .pd = &w->pd,
					   .xrcd = &xrcd,
					   .cq = &cq };
	struct smx_srq_attr bad[10];
	struct smx_srq *srq = NULL;
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(bad); i++)
		bad[i] = good;
	bad[0].buf = NULL;
	bad[1].dbrec = (uint8_t *)dbrec + 1;
	bad[2].wqe_count = 15;
	bad[3].wqe_count = 1 << 16;
	bad[4].stride_bytes = 16;
	bad[5].stride_bytes = 48;
	bad[6].pd = NULL;
	bad[7].cq = NULL;
	bad[8].buf = buf + 8;
	bad[9].dbrec = NULL;
	for (unsigned int i = 0; i < SMX_COUNT(bad); i++) {
		assert_int_equal(smx_srq_create(&w->dev, &bad[i], &srq), EINVAL);
		world_refused(w, SMX_CHECK_OBJECT_ARG, "shared receive queue");
		assert_null(srq);
	}
	for (unsigned int i = 0; i < 3; i++) {
		struct smx_srq_attr edge = good;

		edge.wqe_count = i == 0 ? 1 << 15 : 16;
		edge.stride_bytes = i == 1 ? 32 : i == 2 ? 4096 : 64;
		assert_int_equal(smx_srq_create(&w->dev, &edge, &srq), 0);
		assert_int_equal(smx_srq_destroy(&w->dev, srq), 0);
	}
	assert_int_equal(smx_srq_create(&w->dev, &good, &srq), 0);
	assert_int_equal(xrcd.users + cq.users + w->pd.users, 3);
	srq->users = 2;
	assert_int_equal(smx_srq_destroy(&w->dev, srq), EBUSY);
	srq->users = 0;
	assert_int_equal(smx_srq_destroy(&w->dev, srq), 0);
	assert_int_equal(xrcd.users + cq.users + w->pd.users, 0);
	world_free(w);
}

/* A WQE of 128 segments without an end mark gives as many as a receive can hold. */
static void long_lists_are_cut(void **state)
{
	static uint8_t buf[2 * 2048];
	static uint32_t dbrec[2];
	struct smx_rq rq = { .buf = buf, .wqe_count = 2, .stride_bytes = 2048, .dbrec = dbrec };
	struct smx_recv *r = recv_new();	/* no more than that, so that the sanitizer sees one too many */
	(void)state;

	write_segs(buf, 128, 128, 1);
	be32_store_release(dbrec, 1);
	assert_true(smx_rq_take(&rq, r));
	assert_int_equal(r->sge_count, SMX_RECV_SGE_MAX);
	assert_int_equal(r->total_bytes, SMX_RECV_SGE_MAX * (SMX_RECV_SGE_MAX + 1) / 2);
	free(r);
}

/* Looked at as often as one likes, it is the same, and whoever finds a broken queue says nothing. */
static void looking_takes_nothing(void **state)
{
	static uint8_t buf[COUNT * STRIDE];
	static uint32_t dbrec[2];
	struct smx_rq rq = { .buf = buf, .wqe_count = COUNT, .stride_bytes = STRIDE, .dbrec = dbrec };
	struct queue *q = queue_new(1);
	struct smx_recv *r = recv_new();
	(void)state;

	assert_false(smx_srq_peek(q->srq, r));
	assert_false(smx_rq_peek(&rq, r));
	post(q, 2, 7);
	post(q, 1, 8);
	write_segs(buf, 2, SEGS + 1, 7);
	be32_store_release(dbrec, 2);
	for (int again = 0; again < 3; again++) {
		assert_true(smx_srq_peek(q->srq, r));
		expect_recv(r, 0, 2, 7);
		assert_true(smx_rq_peek(&rq, r));
		expect_recv(r, 0, 2, 7);
	}
	assert_int_equal(q->w->async_events, 0);
	smx_srq_pass(&q->w->dev, q->srq);
	assert_int_equal(q->w->async_events, 0);
	assert_true(smx_srq_take(&q->w->dev, q->srq, r));
	expect_recv(r, 1, 1, 8);
	assert_int_equal(q->w->async_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	be32_store_release(q->dbrec, COUNT + 3);
	be32_store_release(dbrec, COUNT + 1);
	assert_false(smx_srq_peek(q->srq, r));
	assert_false(smx_rq_peek(&rq, r));
	assert_int_equal(q->w->async_events, 1);
	assert_false(q->srq->error);
	assert_false(rq.error);
	free(r);
	queue_free(q);
}

static void ring_receives(void **state)
{
	static uint8_t buf[COUNT * STRIDE];
	static uint32_t dbrec[2];
	struct smx_recv *r = recv_new();
	(void)state;

	for (int sig = 0; sig < 2; sig++) {
		uint32_t room = STRIDE / SMX_WQE_DS - (unsigned int)sig, next = 0, taken = 0;
		struct smx_rq rq = { .buf = buf,
				     .wqe_count = COUNT,
				     .stride_bytes = STRIDE,
				     .dbrec = dbrec,
				     .wq_signature = sig };

		be32_store_release(dbrec, 0);
		assert_false(smx_rq_has(&rq));
		assert_false(smx_rq_take(&rq, r));
		for (int round = 0; round < 10000; round++) {
			for (; next < taken + (uint32_t)(round % (COUNT + 1)); next++)
				write_segs(buf + next % COUNT * STRIDE + (sig ? SMX_WQE_DS : 0),
					   next % (room + 1), room, next);
			be32_store_release(dbrec, next & 0xffff);
			for (; taken < next; taken++) {
				assert_true(smx_rq_has(&rq));
				assert_true(smx_rq_take(&rq, r));
				expect_recv(r, (uint16_t)taken, taken % (room + 1), taken);
			}
			assert_false(smx_rq_take(&rq, r));
		}
		assert_true(taken > 65536);
		assert_false(rq.error);
		be32_store_release(dbrec, taken + COUNT + 1);
		assert_false(smx_rq_has(&rq));
		assert_false(smx_rq_take(&rq, r));
		assert_true(rq.error);
		be32_store_release(dbrec, taken + 1);
		assert_false(smx_rq_take(&rq, r));
	}
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_receives_come_in_posted_order),
		cmocka_unit_test(limit_event_comes_once_for_each_arm),
		cmocka_unit_test(broken_lists_are_an_event_not_an_access),
		cmocka_unit_test(creation_and_destruction_are_checked),
		cmocka_unit_test(ring_receives), cmocka_unit_test(looking_takes_nothing),
		cmocka_unit_test(long_lists_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
