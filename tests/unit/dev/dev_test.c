/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: the device's turn, over its own loopback: what completes inside one turn, when it wants the next, what
 * it costs, what it does for those who write doorbells themselves.
 * Method: the device's commands only, as a driver uses them; the clock is the test's. */
#include "dev_world.h"

static void every_operation_is_done_in_one_turn(void **state)
{
	struct host *h = host_new(0);
	struct end *a = end_new(h), *b = end_new(h);
	uint64_t counter = 41, old;

	(void)state;
	connect_ends(h, a, b);
	post_recv(h, b, 0x9000, 64);
	memcpy(h->mem + 0xa000, &counter, 8);
	put(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 100);
	put(h, a, SMX_OP_RDMA_READ, 0xb000, 0x100, 5000);
	put(h, a, SMX_OP_ATOMIC_FA, 0xf000, 0xa000, 8);
	put(h, a, SMX_OP_SEND, 0x40, 0, 64);
	ring(h, a);
	assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
	assert_memory_equal(h->mem + 0x8000, h->mem, 100);
	assert_memory_equal(h->mem + 0xb000, h->mem + 0x100, 5000);
	assert_memory_equal(h->mem + 0x9000, h->mem + 0x40, 64);
	memcpy(&counter, h->mem + 0xa000, 8);
	memcpy(&old, h->mem + 0xf000, 8);
	assert_int_equal(counter, 42);
	assert_int_equal(old, 41);
	for (int i = 0; i < 3; i++)
		expect_cqe(h, SMX_CQE_REQ, 0);
	expect_cqe(h, SMX_CQE_RESP_SEND, 0);
	expect_cqe(h, SMX_CQE_REQ, 0);
	expect_cqe(h, SMX_CQE_INVALID, 0);
	end_free(a);
	end_free(b);
	host_free(h);
}

static void a_queue_pair_can_be_connected_to_itself(void **state)
{
	struct host *h = host_new(0);
	struct end *a = end_new(h);

	(void)state;
	to_rts(h, a, a->qpn);
	put(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	put(h, a, SMX_OP_RDMA_READ, 0x9000, 0, 8);
	put(h, a, SMX_OP_RDMA_WRITE, 0, MEM, 8);	/* beyond the region */
	put(h, a, SMX_OP_RDMA_WRITE, 0, 0xa000, 8);
	memset(h->mem + 0xa000, 0xee, 8);
	ring(h, a);
	assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
	expect_cqe(h, SMX_CQE_REQ, 0);
	expect_cqe(h, SMX_CQE_REQ, 0);
	expect_cqe(h, SMX_CQE_REQ_ERR, 0x13);
	expect_cqe(h, SMX_CQE_REQ_ERR, 0x05);
	expect_cqe(h, SMX_CQE_INVALID, 0);
	assert_int_equal(h->mem[0xa000], 0xee);
	assert_int_equal(smx_qp_state(a->qp), IBV_QPS_ERR);
	end_free(a);
	host_free(h);
}

static void a_remote_error_is_told_once_and_to_the_requester(void **state)
{
	struct host *h = host_new(0);
	struct end *a = end_new(h), *b = end_new(h);
	struct smx_refusal r;

	(void)state;
	connect_ends(h, a, b);
	post(h, b, SMX_OP_SEND, 0, 0, 8);	/* b's own requests are flushed with it: no receive at a */
	smx_dev_turn(h->dev);
	post(h, a, SMX_OP_RDMA_WRITE, 0, MEM - 4, 8);
	smx_dev_turn(h->dev);
	assert_int_equal(smx_qp_state(a->qp), IBV_QPS_ERR);
	assert_int_equal(smx_qp_state(b->qp), IBV_QPS_ERR);
	expect_cqe(h, SMX_CQE_REQ_ERR, 0x13);
	expect_cqe(h, SMX_CQE_REQ_ERR, 0x05);
	assert_int_equal(h->event_count, 1);
	assert_int_equal(h->event[0], IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(h->log.count, 2);
	assert_true(smx_refusal_get(&h->log, 1, &r));
	assert_int_equal(r.check, SMX_CHECK_REMOTE_RANGE);
	assert_int_equal(r.where.qpn, a->qpn);
	assert_ptr_equal(r.where.cookie, a);
	assert_true(smx_refusal_get(&h->log, 0, &r));
	assert_int_equal(r.check, SMX_CHECK_FLUSH_CURRENT);
	assert_int_equal(r.where.qpn, b->qpn);
	end_free(a);
	end_free(b);
	host_free(h);
}

static void an_rnr_wait_ends_with_time_or_with_a_receive(void **state)
{
	(void)state;
	for (int by_ring = 0; by_ring < 2; by_ring++) {
		struct host *h = host_new(0);
		struct end *a = end_new(h), *b = end_new(h);

		connect_ends(h, a, b);
		post(h, a, SMX_OP_SEND, 0, 0, 8);
		assert_int_equal(smx_dev_turn(h->dev), h->now + 640000);	/* code 12 */
		expect_cqe(h, SMX_CQE_INVALID, 0);
		if (by_ring) {
			post_recv(h, b, 0x8000, 8);
		} else {
			memcpy(b->rq, &(struct smx_wqe_data){
				.byte_count = to_be32(8), .lkey = to_be32(h->key),
				.va = to_be64((uintptr_t)h->mem + 0x8000) }, 16);
			be32_store_release(&b->dbrec[SMX_DBREC_RCV], 1);
			h->now += 640000;
		}
		assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
		expect_cqe(h, SMX_CQE_RESP_SEND, 0);
		expect_cqe(h, SMX_CQE_REQ, 0);
		end_free(a);
		end_free(b);
		host_free(h);
	}
}

static void a_peer_that_is_not_there_is_given_up(void **state)
{
	static const struct row { const char *name; int kind; } rows[] = {
		{ "no such queue pair", 0 }, { "peer in ERR", 1 }, { "peer destroyed", 2 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct host *h = host_new(0);
		struct end *a = end_new(h), *b = end_new(h);
		uint64_t next;
		int turns = 0;

		if (rows[i].kind == 0)
			to_rts(h, a, 0xabcdef);
		else
			connect_ends(h, a, b);
		if (rows[i].kind == 1)
			to_state(h, b, IBV_QPS_ERR);
		if (rows[i].kind == 2)
			assert_int_equal(smx_cmd_destroy_qp(h->dev, b->qp), 0);
		post(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
		while ((next = smx_dev_turn(h->dev)) != UINT64_MAX) {
			h->now = next;
			assert_true(++turns < 10);
		}
		assert_int_equal(turns, 2);	/* retry_cnt 1 */
		expect_cqe(h, SMX_CQE_REQ_ERR, 0x15);
		end_free(a);
		end_free(b);
		host_free(h);
	}
}

/* A gigabyte does not hold the caller: each turn moves its budget. */
static void long_messages_are_moved_in_turns(void **state)
{
	enum { BYTES = 64 << 20, BUDGET = 4 << 20 };
	struct host *h = host_new(BUDGET);
	struct end *a = end_new(h), *b = end_new(h);
	uint8_t *big = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct smx_mkey_attr mr = {
		.kind = SMX_MKEY_DIRECT, .pd = h->pd, .length = 2 * BYTES, .access = RIGHTS,
		.start = (uintptr_t)big, .host = big,
	};
	struct smx_mkey *mkey;
	uint32_t key;
	uint8_t *mem = h->mem;

	(void)state;
	assert_true(big != MAP_FAILED);
	assert_int_equal(smx_cmd_create_mkey(h->dev, &mr, &mkey, &key), 0);
	for (size_t i = 0; i < BYTES; i += 4096)
		big[i] = (uint8_t)(i >> 12);
	connect_ends(h, a, b);
	h->key = key;
	h->mem = big;
	for (int read = 0; read < 2; read++) {
		int turns = 1;

		if (read)
			post(h, a, SMX_OP_RDMA_READ, BYTES, 0, BYTES);
		else
			post(h, a, SMX_OP_RDMA_WRITE, 0, BYTES, BYTES);
		while (smx_dev_turn(h->dev) == 0)
			turns++;
		assert_in_range(turns, BYTES / BUDGET, BYTES / BUDGET + 2);
		expect_cqe(h, SMX_CQE_REQ, 0);
		assert_memory_equal(big, big + BYTES, BYTES);
		memset(big + BYTES, 0, BYTES);
	}
	h->mem = mem;
	munmap(big, 2 * BYTES);
	end_free(a);
	end_free(b);
	host_free(h);
}

/* Memory that was unmapped under its region: the side it belongs to is told, nothing dies. */
static void unmapped_memory_fails_the_request(void **state)
{
	static const struct row { uint8_t opcode; bool local; uint8_t syndrome; enum smx_check check; } rows[] = {
		{ SMX_OP_RDMA_WRITE, true,  0x04, SMX_CHECK_GATHER_FAULT },
		{ SMX_OP_RDMA_READ,  true,  0x04, SMX_CHECK_SCATTER_FAULT },
		{ SMX_OP_RDMA_WRITE, false, 0x14, SMX_CHECK_REMOTE_FAULT },
		{ SMX_OP_RDMA_READ,  false, 0x14, SMX_CHECK_REMOTE_FAULT },
		{ SMX_OP_ATOMIC_FA,  false, 0x14, SMX_CHECK_REMOTE_FAULT },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct host *h = host_new(0);
		struct end *a = end_new(h), *b = end_new(h);
		uint8_t *gone = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct smx_mkey_attr mr = {
			.kind = SMX_MKEY_DIRECT, .pd = h->pd, .length = MEM, .access = RIGHTS,
			.start = (uintptr_t)gone, .host = gone,
		};
		struct smx_mkey *mkey;
		struct smx_refusal r;
		uint32_t key;
		uint8_t *wqe = a->ring;
		struct smx_wqe_raddr *raddr = (void *)(wqe + 16);
		struct smx_wqe_data *data = (void *)(wqe + (rows[i].opcode == SMX_OP_ATOMIC_FA ? 48 : 32));

		assert_true(gone != MAP_FAILED);
		assert_int_equal(smx_cmd_create_mkey(h->dev, &mr, &mkey, &key), 0);
		munmap(gone, MEM);
		connect_ends(h, a, b);
		put(h, a, rows[i].opcode, 0, 0x8000, 8);
		if (rows[i].local) {
			data->lkey = to_be32(key);
			data->va = to_be64((uintptr_t)gone);
		} else {
			raddr->rkey = to_be32(key);
			raddr->va = to_be64((uintptr_t)gone);
		}
		ring(h, a);
		assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
		expect_cqe(h, SMX_CQE_REQ_ERR, rows[i].syndrome);
		assert_true(smx_refusal_get(&h->log, 0, &r));
		assert_int_equal(r.check, rows[i].check);
		assert_int_equal(r.where.qpn, a->qpn);
		assert_int_equal(h->log.count, 1);
		assert_int_equal(smx_qp_state(b->qp), rows[i].local ? IBV_QPS_RTS : IBV_QPS_ERR);
		end_free(a);
		end_free(b);
		host_free(h);
	}
}

static void arm_words_that_nobody_rings_are_seen_when_watched(void **state)
{
	struct host *h = host_new(0);
	struct end *a = end_new(h), *b = end_new(h);

	(void)state;
	connect_ends(h, a, b);
	smx_dev_watch_cq(h->dev, h->cq, true);
	assert_false(smx_dev_poll_watched(h->dev));	/* what stood there before is not an arm */
	for (uint32_t sn = 1; sn < 4; sn++) {
		be32_store_release(&h->ci[SMX_CQ_DBREC_ARM], sn << 28 | h->seen);
		assert_int_equal(h->cq_events, sn - 1);
		assert_true(smx_dev_poll_watched(h->dev));
		assert_false(smx_dev_poll_watched(h->dev));
		post(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
		smx_dev_turn(h->dev);
		expect_cqe(h, SMX_CQE_REQ, 0);
		assert_int_equal(h->cq_events, sn);
		post(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);	/* not armed for this one */
		smx_dev_turn(h->dev);
		expect_cqe(h, SMX_CQE_REQ, 0);
		assert_int_equal(h->cq_events, sn);
	}
	/* An arm that was rung as well counts once. */
	be32_store_release(&h->ci[SMX_CQ_DBREC_ARM], h->seen);
	smx_dev_arm_cq(h->dev, h->cq, h->seen);
	assert_false(smx_dev_poll_watched(h->dev));
	smx_dev_watch_cq(h->dev, h->cq, false);
	be32_store_release(&h->ci[SMX_CQ_DBREC_ARM], 1u << 28 | h->seen);
	assert_false(smx_dev_poll_watched(h->dev));
	smx_dev_watch_cq(h->dev, h->cq, true);		/* left on: destroying takes it off */
	end_free(a);
	end_free(b);
	host_free(h);
}

static void receives_posted_in_err_are_flushed_when_watched(void **state)
{
	struct host *h = host_new(0);
	struct end *a = end_new(h), *b = end_new(h);

	(void)state;
	connect_ends(h, a, b);
	smx_dev_watch_qp(h->dev, a->qp, true);
	assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
	assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
	to_state(h, a, IBV_QPS_ERR);
	for (int i = 0; i < 3; i++) {
		uint64_t due = smx_dev_turn(h->dev);

		assert_true(due > h->now && due < h->now + 1000000000);
		expect_cqe(h, SMX_CQE_INVALID, 0);
		a->rq_pi++;
		be32_store_release(&a->dbrec[SMX_DBREC_RCV], a->rq_pi);
		h->now = due;
		smx_dev_turn(h->dev);
		expect_cqe(h, SMX_CQE_RESP_ERR, SMX_SYND_WR_FLUSH);
	}
	to_state(h, a, IBV_QPS_RESET);
	smx_dev_turn(h->dev);
	assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
	end_free(a);
	end_free(b);
	host_free(h);
}

static void doorbells_that_nobody_rings_are_seen_when_watched(void **state)
{
	struct host *h = host_new(0);
	struct end *a = end_new(h), *b = end_new(h);

	(void)state;
	smx_dev_watch_qp(h->dev, b->qp, true);
	smx_dev_watch_qp(h->dev, a->qp, true);
	put(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	be32_store_release(&a->dbrec[SMX_DBREC_SND], a->pi);
	assert_false(smx_dev_poll_watched(h->dev));	/* it is not sending yet */
	connect_ends(h, a, b);
	assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
	expect_cqe(h, SMX_CQE_REQ, 0);
	assert_false(smx_dev_poll_watched(h->dev));

	put(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	be32_store_release(&a->dbrec[SMX_DBREC_SND], a->pi);
	assert_true(smx_dev_poll_watched(h->dev));
	smx_dev_turn(h->dev);
	expect_cqe(h, SMX_CQE_REQ, 0);

	smx_dev_watch_qp(h->dev, a->qp, false);
	put(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	be32_store_release(&a->dbrec[SMX_DBREC_SND], a->pi);
	assert_false(smx_dev_poll_watched(h->dev));
	smx_dev_watch_qp(h->dev, a->qp, true);		/* left on: destroying takes it off */
	assert_int_equal(smx_cmd_destroy_qp(h->dev, a->qp), 0);
	assert_false(smx_dev_poll_watched(h->dev));
	end_free(a);
	end_free(b);
	host_free(h);
}

static void idle_queue_pairs_cost_nothing(void **state)
{
	enum { MANY = 10000 };
	struct host *h = host_new(0);
	struct end *a = end_new(h), *b = end_new(h);
	struct end **idle = calloc(MANY, sizeof(struct end *));
	uint64_t before;

	(void)state;
	assert_non_null(idle);
	for (int i = 0; i < MANY; i++) {
		idle[i] = end_new(h);
		to_rts(h, idle[i], idle[i]->qpn);
	}
	connect_ends(h, a, b);
	assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
	/* Nothing to do, nothing to wait for: not even the clock is read. */
	before = h->clock_reads;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
	assert_int_equal(h->clock_reads, before);
	post(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
	assert_true(h->clock_reads <= before + 1);	/* the completion's time stamp */
	end_free(a);
	end_free(b);
	for (int i = 0; i < MANY; i++)
		end_free(idle[i]);
	free(idle);
	host_free(h);
}

static void destroying_a_queue_pair_with_work_leaves_nothing_behind(void **state)
{
	struct host *h = host_new(1);
	struct end *a = end_new(h), *b = end_new(h), *c = end_new(h);

	(void)state;
	to_rts(h, c, 0xabcdef);
	connect_ends(h, a, b);
	post(h, c, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	while (smx_dev_turn(h->dev) == 0)
		;			/* c waits for an answer */
	put(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	put(h, a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	ring(h, a);
	post(h, b, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	assert_int_equal(smx_dev_turn(h->dev), 0);
	assert_int_equal(smx_cmd_destroy_qp(h->dev, c->qp), 0);
	assert_int_equal(smx_cmd_destroy_qp(h->dev, a->qp), 0);
	while (smx_dev_turn(h->dev) == 0)
		;
	assert_int_equal(smx_cmd_destroy_qp(h->dev, b->qp), 0);
	assert_int_equal(smx_dev_turn(h->dev), UINT64_MAX);
	end_free(a);
	end_free(b);
	end_free(c);
	host_free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_operation_is_done_in_one_turn),
		cmocka_unit_test(a_queue_pair_can_be_connected_to_itself),
		cmocka_unit_test(a_remote_error_is_told_once_and_to_the_requester),
		cmocka_unit_test(an_rnr_wait_ends_with_time_or_with_a_receive),
		cmocka_unit_test(a_peer_that_is_not_there_is_given_up),
		cmocka_unit_test(long_messages_are_moved_in_turns),
		cmocka_unit_test(unmapped_memory_fails_the_request),
		cmocka_unit_test(doorbells_that_nobody_rings_are_seen_when_watched),
		cmocka_unit_test(arm_words_that_nobody_rings_are_seen_when_watched),
		cmocka_unit_test(receives_posted_in_err_are_flushed_when_watched),
		cmocka_unit_test(idle_queue_pairs_cost_nothing),
		cmocka_unit_test(destroying_a_queue_pair_with_work_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
