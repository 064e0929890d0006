/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: a visit carries out what needs no turn, and nothing else: whatever would send, wait, fail or wake somebody is
 * left, untouched, to the turn, which then does what it would have done without a visit.
 * Method: two queue pairs of one device; each case makes one condition false, visits, and then turns. */
#include "dev_world.h"

#include "dev/sq_visit.h"
#include "net/port.h"
#include "obj/device.h"
#include "obj/qp.h"
#include "xport/requester.h"
#include "xport/responder.h"

struct rig { struct host *h; struct end *a, *b; };

static struct rig rig_new(void)
{
	struct rig r = { .h = host_new(0) };

	r.h->dev->attr.direct = true;
	r.a = end_new(r.h);
	r.b = end_new(r.h);
	connect_ends(r.h, r.a, r.b);
	/* What is left of connecting. */
	assert_int_equal(smx_dev_turn(r.h->dev), UINT64_MAX);
	return r;
}

static void rig_free(struct rig *r)
{
	end_free(r->a);
	end_free(r->b);
	host_free(r->h);
}

static bool visit(struct rig *r, struct end *e)
{
	be32_store_release(&e->dbrec[SMX_DBREC_SND], e->pi & 0xffff);
	return smx_dev_visit_sq(r->h->dev, e->qp);
}

static bool visit_alone(struct rig *r, struct end *e)
{
	be32_store_release(&e->dbrec[SMX_DBREC_SND], e->pi & 0xffff);
	return smx_sq_visit_alone(r->h->dev, e->qp);
}

/* The doorbell of what a visit left. */
static void ring_and_turn(struct rig *r, struct end *e)
{
	ring(r->h, e);
	smx_dev_turn(r->h->dev);
}

/* A visit does nothing of what a posted last, and the turn completes it. */
static void expect_left(struct rig *r, uint8_t op, uint8_t syndrome)
{
	assert_false(visit(r, r->a));
	expect_cqe(r->h, SMX_CQE_INVALID, 0);
	assert_int_equal(r->h->log.count, 0);
	ring_and_turn(r, r->a);
	expect_cqe(r->h, op, syndrome);
}

static struct smx_wqe_ctrl *last_ctrl(struct end *e)
{
	return (void *)(e->ring + (e->pi - 1) % BLOCKS * 64);
}

/* Nothing of the completion queue was consumed for a whole round. */
static void fill_queue(struct rig *r)
{
	r->h->cq->room = 0;
	r->h->ci[SMX_CQ_DBREC_CI] = htobe32(0x1000000 - CQES);
}

static void writes_and_reads_are_done_in_order_and_completed(void **state)
{
	struct rig r = rig_new();

	(void)state;
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 100);
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0x40, 0x8000, 8);
	put(r.h, r.a, SMX_OP_RDMA_READ, 0x9000, 0x8000, 64);
	assert_true(visit(&r, r.a));
	assert_memory_equal(r.h->mem + 0x8000, r.h->mem + 0x40, 8);
	assert_memory_equal(r.h->mem + 0x8008, r.h->mem + 8, 92);
	assert_memory_equal(r.h->mem + 0x9000, r.h->mem + 0x8000, 64);
	for (int i = 0; i < 3; i++)
		expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	assert_int_equal(smx_dev_turn(r.h->dev), UINT64_MAX);
	assert_int_equal(r.a->qp->sq.ci, 3);
	rig_free(&r);
}

static void inline_data_is_written(void **state)
{
	struct rig r = rig_new();
	uint8_t *seg;

	(void)state;
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	seg = (uint8_t *)last_ctrl(r.a) + 32;
	memset(seg, 0x77, 16);
	*(uint32_t *)(void *)seg = htobe32(SMX_INLINE_SEG | 5);
	r.h->mem[0x8005] = 0xee;
	assert_true(visit(&r, r.a));
	assert_memory_equal(r.h->mem + 0x8000, "\x77\x77\x77\x77\x77\xee", 6);
	rig_free(&r);
}

static void messages_meet_their_receives(void **state)
{
	struct rig r = rig_new();
	struct smx_cqe64 *cqe = (void *)r.h->cq_buf;
	be32 imm = to_be32(0x11223344);

	(void)state;
	post_recv(r.h, r.b, 0x9000, 64);
	post_recv(r.h, r.b, 0x9100, 0);
	put(r.h, r.a, SMX_OP_SEND, 0x40, 0, 50);
	put(r.h, r.a, SMX_OP_RDMA_WRITE_IMM, 0x80, 0x8000, 20);
	memcpy(&last_ctrl(r.a)->imm, &imm, sizeof(imm));
	assert_true(visit_alone(&r, r.a));
	expect_cqe(r.h, SMX_CQE_RESP_SEND, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_RESP_WR_IMM, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	assert_int_equal(from_be32(cqe[0].byte_cnt), 50);
	assert_int_equal(from_be32(cqe[2].imm_inval_pkey), 0x11223344);
	assert_memory_equal(r.h->mem + 0x9000, r.h->mem + 0x40, 50);
	assert_memory_equal(r.h->mem + 0x8000, r.h->mem + 0x80, 20);
	assert_int_equal(r.a->qp->req->next_psn, r.b->qp->resp->one->epsn);
	rig_free(&r);
}

/* They change more than their own queue pair. */
static void beside_others_messages_are_left_to_the_turn(void **state)
{
	struct rig r = rig_new();

	(void)state;
	post_recv(r.h, r.b, 0x9000, 64);
	put(r.h, r.a, SMX_OP_SEND, 0, 0, 8);
	last_ctrl(r.a)->fm_ce_se = 0;
	expect_left(&r, SMX_CQE_RESP_SEND, 0);
	rig_free(&r);
}

static void messages_that_wake_somebody_are_left_to_the_turn(void **state)
{
	struct rig r = rig_new();

	(void)state;
	post_recv(r.h, r.b, 0x9000, 64);
	put(r.h, r.a, SMX_OP_SEND, 0, 0, 8);
	last_ctrl(r.a)->fm_ce_se = 0;
	smx_dev_arm_cq(r.h->dev, r.h->cq, 0);
	assert_false(visit_alone(&r, r.a));
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	ring_and_turn(&r, r.a);
	expect_cqe(r.h, SMX_CQE_RESP_SEND, 0);
	assert_int_equal(r.h->cq_events, 1);
	rig_free(&r);
}

/* Of its two completions the first takes the last place: the turn sees to what the other is lost for. */
static void a_message_whose_own_completion_is_lost_takes_a_turn(void **state)
{
	struct rig r = rig_new();

	(void)state;
	post_recv(r.h, r.b, 0x9000, 64);
	put(r.h, r.a, SMX_OP_SEND, 0, 0, 8);
	fill_queue(&r);
	r.h->cq->room = 1;
	assert_false(visit_alone(&r, r.a));
	assert_int_equal(r.h->cq->pi, 1);
	assert_true(smx_dev_is_ready(r.h->dev));
	smx_dev_turn(r.h->dev);
	assert_int_equal(smx_qp_state(r.a->qp), IBV_QPS_ERR);
	assert_int_equal(r.h->event_count, 2);
	rig_free(&r);
}

static void the_queue_goes_on_behind_a_visit(void **state)
{
	struct rig r = rig_new();

	(void)state;
	for (uint32_t i = 0; i < 3 * BLOCKS; i++) {
		if (i % 3 == 0)
			post_recv(r.h, r.b, 0x9000, 64);
		put(r.h, r.a, i % 3 ? SMX_OP_RDMA_WRITE : SMX_OP_SEND, 0, 0x8000, 8);
		if (!visit(&r, r.a))
			ring_and_turn(&r, r.a);
		if (i % 3 == 0)
			expect_cqe(r.h, SMX_CQE_RESP_SEND, 0);
		expect_cqe(r.h, SMX_CQE_REQ, 0);
	}
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	rig_free(&r);
}

static void a_visit_ends_before_the_first_request_that_it_cannot_do(void **state)
{
	struct rig r = rig_new();

	(void)state;
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	put(r.h, r.a, SMX_OP_SEND, 0, 0, 8);	/* there is no receive */
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 8, 0x8008, 8);
	r.h->mem[0x8008] = 0xee;
	assert_false(visit(&r, r.a));
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	assert_int_equal(r.h->mem[0x8008], 0xee);
	post_recv(r.h, r.b, 0x9000, 64);
	ring_and_turn(&r, r.a);
	expect_cqe(r.h, SMX_CQE_RESP_SEND, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	assert_memory_equal(r.h->mem + 0x8008, r.h->mem + 8, 8);
	rig_free(&r);
}

static void errors_are_left_to_the_turn(void **state)
{
	struct { uint64_t from, to; uint8_t opcode, syndrome; } row[] = {
		{ 0, MEM - 4, SMX_OP_RDMA_WRITE, 0x13 },	/* beyond the target's region */
		{ MEM - 4, 0x8000, SMX_OP_RDMA_WRITE, 0x04 },	/* beyond its own */
		{ MEM - 4, 0, SMX_OP_RDMA_READ, 0x04 },
		{ 0, MEM, SMX_OP_RDMA_READ, 0x13 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(row); i++) {
		struct rig r = rig_new();

		put(r.h, r.a, row[i].opcode, row[i].from, row[i].to, 8);
		expect_left(&r, SMX_CQE_REQ_ERR, row[i].syndrome);
		rig_free(&r);
	}
}

static void faulty_work_queue_entries_are_left_to_the_turn(void **state)
{
	(void)state;
	for (int what = 0; what < 4; what++) {
		struct rig r = rig_new();

		put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
		if (what == 0)
			last_ctrl(r.a)->qpn_ds = to_be32((r.a->qpn + 1) << 8 | 3);
		else if (what == 1)
			last_ctrl(r.a)->qpn_ds = to_be32(r.a->qpn << 8 | 5);	/* more than was rung */
		else if (what == 2)
			last_ctrl(r.a)->opmod_idx_opcode = to_be32(7 << 8 | SMX_OP_RDMA_WRITE);
		else
			last_ctrl(r.a)->opmod_idx_opcode = to_be32(0x3f);
		expect_left(&r, SMX_CQE_REQ_ERR, 0x02);
		rig_free(&r);
	}
}

static void a_doorbell_record_that_cannot_be_true_is_left_to_the_turn(void **state)
{
	struct rig r = rig_new();

	(void)state;
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	r.a->pi += BLOCKS;
	expect_left(&r, SMX_CQE_REQ_ERR, 0x02);
	rig_free(&r);
}

/* Its event, its error and its place in the CQE are the turn's. */
static void completions_that_do_more_than_be_written_are_left_to_the_turn(void **state)
{
	(void)state;
	for (int what = 0; what < 3; what++) {
		struct rig r = rig_new();

		put(r.h, r.a, SMX_OP_RDMA_READ, 0x8000, 0, 8);
		if (what == 0)
			smx_dev_arm_cq(r.h->dev, r.h->cq, 0);
		else if (what == 1)
			fill_queue(&r);
		else
			r.a->qp->attr.req_scatter_bytes = 32;
		assert_false(visit(&r, r.a));
		expect_cqe(r.h, SMX_CQE_INVALID, 0);
		ring_and_turn(&r, r.a);
		assert_int_equal(r.h->cq_events, what == 0);
		assert_int_equal(r.h->event_count, what == 1 ? 2 : 0);	/* of the queue and of its user */
		rig_free(&r);
	}
}

/* What asks for no completion needs no room for one. */
static void a_full_queue_takes_what_asks_for_no_completion(void **state)
{
	struct rig r = rig_new();

	(void)state;
	fill_queue(&r);
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	last_ctrl(r.a)->fm_ce_se = 0;
	assert_true(visit(&r, r.a));
	assert_memory_equal(r.h->mem + 0x8000, r.h->mem, 8);
	rig_free(&r);
}

static void queue_pairs_that_are_not_ready_to_send_are_left_alone(void **state)
{
	struct rig r = rig_new();

	(void)state;
	to_state(r.h, r.a, IBV_QPS_SQD);
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	assert_false(visit(&r, r.a));
	ring_and_turn(&r, r.a);
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	to_state(r.h, r.a, IBV_QPS_RTS);
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	assert_false(visit(&r, r.a));	/* SQD held the first */
	ring_and_turn(&r, r.a);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	to_state(r.h, r.a, IBV_QPS_ERR);
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	expect_left(&r, SMX_CQE_REQ_ERR, 0x05);
	rig_free(&r);
}

/* The next one waits for the answer to what is before it. */
static void nothing_passes_a_request_that_is_not_completed(void **state)
{
	struct rig r = rig_new();

	(void)state;
	post(r.h, r.a, SMX_OP_SEND, 0, 0, 8);	/* there is no receive */
	smx_dev_turn(r.h->dev);
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	assert_false(visit(&r, r.a));
	ring_and_turn(&r, r.a);
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	post_recv(r.h, r.b, 0x9000, 64);
	smx_dev_turn(r.h->dev);
	expect_cqe(r.h, SMX_CQE_RESP_SEND, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	assert_true(visit(&r, r.a));
	rig_free(&r);
}

/* A turn that has to come for others is not put off by visits. */
static void a_device_that_is_watched_or_not_still_is_turned(void **state)
{
	struct rig r = rig_new();
	uint32_t bell = 1;

	(void)state;
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	r.h->dev->port->bell = &bell;
	assert_false(visit(&r, r.a));
	r.h->dev->port->bell = NULL;
	r.h->dev->watched_err = true;
	assert_false(visit(&r, r.a));
	r.h->dev->watched_err = false;
	r.h->dev->attr.direct = false;
	assert_false(visit(&r, r.a));
	r.h->dev->attr.direct = true;
	assert_true(visit(&r, r.a));
	rig_free(&r);
}

static void long_requests_and_long_rows_of_them_are_a_turns(void **state)
{
	struct rig r = rig_new();
	uint64_t length = 256 << 10;
	uint8_t *big = malloc(2 * length);
	struct smx_mkey *mkey;
	struct smx_mkey_attr mr = {
		.kind = SMX_MKEY_DIRECT, .pd = r.h->pd, .length = 2 * length, .access = RIGHTS,
		.start = (uintptr_t)big, .host = big,
	};
	uint8_t *mem = r.h->mem;

	(void)state;
	assert_non_null(big);
	memset(big, 1, length);
	assert_int_equal(smx_cmd_create_mkey(r.h->dev, &mr, &mkey, &r.h->key), 0);
	r.h->mem = big;
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, length, (uint32_t)length);
	expect_left(&r, SMX_CQE_REQ, 0);
	for (int i = 0; i < 4; i++)
		put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, length, 60 << 10);
	assert_false(visit(&r, r.a));
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	ring_and_turn(&r, r.a);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	r.h->mem = mem;
	rig_free(&r);
	free(big);
}

static void a_visit_does_no_more_than_a_turn_may(void **state)
{
	struct rig r = rig_new();

	(void)state;
	r.h->dev->attr.turn_budget_bytes = 1000;
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 900);
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x9000, 900);
	assert_false(visit(&r, r.a));
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	ring_and_turn(&r, r.a);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	rig_free(&r);
}

/* Each visit tells the time of its own. */
static void the_time_is_that_of_the_visit(void **state)
{
	struct rig r = rig_new();
	const struct smx_cqe64 *cqe = (const void *)r.h->cq_buf;

	(void)state;
	for (int i = 0; i < 2; i++) {
		r.h->now += 1000;
		put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
		assert_true(visit(&r, r.a));
		assert_int_equal(from_be64(cqe[i].timestamp), r.h->now);
	}
	rig_free(&r);
}

static bool serve(struct rig *r, struct end *e)
{
	be32_store_release(&e->dbrec[SMX_DBREC_SND], e->pi & 0xffff);
	return smx_dev_serve_sq(r->h->dev, e->qp);
}

/* Messages and errors, too. */
static void who_is_alone_does_all_that_is_about_the_queue_pair(void **state)
{
	struct rig r = rig_new();

	(void)state;
	post_recv(r.h, r.b, 0x9000, 64);
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	put(r.h, r.a, SMX_OP_SEND, 0, 0, 8);
	put(r.h, r.a, SMX_OP_ATOMIC_FA, 0xf000, 0xa000, 8);
	assert_true(serve(&r, r.a));
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_RESP_SEND, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, MEM, 8);
	assert_true(serve(&r, r.a));
	expect_cqe(r.h, SMX_CQE_REQ_ERR, 0x13);
	assert_int_equal(smx_dev_turn(r.h->dev), UINT64_MAX);
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	rig_free(&r);
}

static void what_waits_or_is_about_others_is_left_to_the_turn(void **state)
{
	struct rig r = rig_new();
	uint32_t bell = 1;

	(void)state;
	r.h->dev->port->bell = &bell;
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 8);
	assert_false(serve(&r, r.a));
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	r.h->dev->port->bell = NULL;
	put(r.h, r.a, SMX_OP_SEND, 0, 0, 8);	/* there is no receive */
	assert_false(serve(&r, r.a));
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	expect_cqe(r.h, SMX_CQE_INVALID, 0);
	/* Its wait is the turn's to watch. */
	smx_dev_ring_sq(r.h->dev, r.a->qp);
	assert_true(smx_dev_turn(r.h->dev) < UINT64_MAX);
	post_recv(r.h, r.b, 0x9000, 64);
	smx_dev_turn(r.h->dev);
	expect_cqe(r.h, SMX_CQE_RESP_SEND, 0);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	rig_free(&r);
}

/* There would be nothing for them. */
static void visitors_keep_off_where_the_peer_is_elsewhere(void **state)
{
	struct rig r = rig_new();
	static const uint8_t none[SMX_PORT_OWN_BYTES];
	struct smx_dev *dev = r.h->dev;
	const uint8_t *own = dev->port->own;

	(void)state;
	assert_true(smx_dev_may_visit_sq(r.a->qp));
	dev->port->own = none;
	smx_sq_open_to_visits(dev, r.a->qp);
	assert_false(smx_dev_may_visit_sq(r.a->qp));
	dev->port->own = own;
	put(r.h, r.a, SMX_OP_RDMA_WRITE, 0, 0x8000, 100);
	ring(r.h, r.a);
	assert_false(smx_dev_visit_sq(dev, r.a->qp));
	smx_sq_open_to_visits(dev, r.a->qp);
	assert_true(smx_dev_may_visit_sq(r.a->qp));
	smx_dev_turn(dev);
	expect_cqe(r.h, SMX_CQE_REQ, 0);
	rig_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(visitors_keep_off_where_the_peer_is_elsewhere),
		cmocka_unit_test(writes_and_reads_are_done_in_order_and_completed),
		cmocka_unit_test(inline_data_is_written),
		cmocka_unit_test(messages_meet_their_receives),
		cmocka_unit_test(beside_others_messages_are_left_to_the_turn),
		cmocka_unit_test(messages_that_wake_somebody_are_left_to_the_turn),
		cmocka_unit_test(a_message_whose_own_completion_is_lost_takes_a_turn),
		cmocka_unit_test(the_queue_goes_on_behind_a_visit),
		cmocka_unit_test(a_visit_ends_before_the_first_request_that_it_cannot_do),
		cmocka_unit_test(errors_are_left_to_the_turn),
		cmocka_unit_test(faulty_work_queue_entries_are_left_to_the_turn),
		cmocka_unit_test(a_doorbell_record_that_cannot_be_true_is_left_to_the_turn),
		cmocka_unit_test(completions_that_do_more_than_be_written_are_left_to_the_turn),
		cmocka_unit_test(a_full_queue_takes_what_asks_for_no_completion),
		cmocka_unit_test(queue_pairs_that_are_not_ready_to_send_are_left_alone),
		cmocka_unit_test(nothing_passes_a_request_that_is_not_completed),
		cmocka_unit_test(a_device_that_is_watched_or_not_still_is_turned),
		cmocka_unit_test(long_requests_and_long_rows_of_them_are_a_turns),
		cmocka_unit_test(a_visit_does_no_more_than_a_turn_may),
		cmocka_unit_test(the_time_is_that_of_the_visit),
		cmocka_unit_test(who_is_alone_does_all_that_is_about_the_queue_pair),
		cmocka_unit_test(what_waits_or_is_about_others_is_left_to_the_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
