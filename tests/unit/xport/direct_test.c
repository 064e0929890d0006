/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: a request goes without a frame exactly when the port reaches its target and nothing before it is unanswered;
 * and where that ends, in its middle too, it goes as a frame as if nothing had been.
 * Method: the requester alone, over a port that reaches into memory of the test's own, as it is told. */
#include "req_bed.h"

#include "base/bits.h"

enum { FAR = 4 << 20 };

static struct {
	uint8_t *mem;
	unsigned int calls, allowed;	/* calls that are answered */
	uint64_t together;		/* bytes that lie together */
	bool lost;			/* what was done was for nothing */
	bool inside;
	struct smx_port_request last;
	uint64_t off[64];
} far;

static void *far_reach(struct smx_port *port, const struct smx_port_request *r, uint64_t off, uint64_t *length)
{
	(void)port;
	assert_false(far.inside);
	far.last = *r;
	if (far.calls++ >= far.allowed)
		return NULL;
	far.off[(far.calls - 1) % 64] = off;
	far.inside = true;
	*length = r->length - off;
	if (*length > far.together)
		*length = far.together;
	return far.mem + off;
}

static bool far_reached(struct smx_port *port)
{
	(void)port;
	assert_true(far.inside);
	far.inside = false;
	return !far.lost;
}

static struct smx_port_ops far_ops;

static struct bed *far_bed(unsigned int allowed)
{
	struct bed *b = bed_new(1 << 20);

	far_ops = bed_port_ops;
	far_ops.reach = far_reach;
	far_ops.reached = far_reached;
	b->port.ops = &far_ops;
	memset(&far, 0, sizeof(far));
	far.mem = calloc(1, FAR);
	assert_non_null(far.mem);
	far.allowed = allowed;
	far.together = UINT64_MAX;
	return b;
}

static void far_free(struct bed *b, struct bed_qp *q)
{
	bed_qp_free(b, q);
	bed_free(b);
	free(far.mem);
}

static void write_without_frame(void **state)
{
	struct bed *b = far_bed(100);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	bed_write(b, q, 8);
	bed_write(b, q, 5000);
	bed_turn(b);
	assert_int_equal(b->sent_count, 0);
	assert_int_equal(bed_cqes(b), 2);
	assert_int_equal(b->port.direct, 2);
	assert_memory_equal(far.mem, b->mem, 5000);
	assert_int_equal(far.last.right, SMX_MAY_WRITE);
	assert_int_equal(far.last.dst_qpn, BED_PEER);
	assert_int_equal(far.last.src_qpn, q->qp.qpn);
	assert_int_equal(far.last.rkey, 0x900);
	assert_int_equal(far.last.va, 0x10000);
	assert_int_equal(far.last.length, 5000);
	far_free(b, q);
}

/* It takes no sequence number. */
static void numbers(void **state)
{
	struct bed *b = far_bed(1);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	bed_write(b, q, 4000);
	bed_turn(b);
	bed_send(b, q, 10);
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(b->sent[0].f.psn, 100);
	bed_ack(b, q, 100);
	assert_int_equal(bed_cqes(b), 2);
	far_free(b, q);
}

/* Nothing passes what is not answered. */
static void behind(void **state)
{
	struct bed *b = far_bed(100);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	bed_send(b, q, 10);
	bed_write(b, q, 8);
	bed_read(b, q, 8);
	bed_turn(b);
	assert_int_equal(b->sent_count, 3);
	assert_int_equal(far.calls, 0);
	bed_ack(b, q, 101);
	bed_read_response(b, q, 102, 1, 8, 0, true);
	bed_write(b, q, 8);
	bed_turn(b);
	assert_int_equal(b->sent_count, 3);
	assert_int_equal(far.calls, 1);
	assert_int_equal(bed_cqes(b), 4);
	far_free(b, q);
}

static void read_and_atomic(void **state)
{
	struct bed *b = far_bed(100);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint8_t *to = b->mem + BED_MEM / 2;
	uint64_t six = 6;

	(void)state;
	for (uint32_t i = 0; i < 3000; i++)
		far.mem[i] = (uint8_t)(i * 3);
	bed_read(b, q, 3000);
	bed_turn(b);
	assert_memory_equal(to, far.mem, 3000);
	assert_int_equal(far.last.right, SMX_MAY_READ);
	memcpy(far.mem, &six, 8);
	bed_atomic(b, q);
	bed_atomic(b, q);
	bed_turn(b);
	assert_int_equal(far.last.right, SMX_MAY_ATOMIC);
	assert_int_equal(*(uint64_t *)(void *)far.mem, 5);
	assert_int_equal(*(uint64_t *)(void *)to, 5);	/* the second one found 5 */
	assert_int_equal(bed_cqes(b), 3);
	assert_int_equal(b->sent_count, 0);
	far_free(b, q);
}

/* What lies apart is done in parts; and where the third is refused, the whole goes as a frame. */
static void parts(void **state)
{
	struct bed *b = far_bed(100);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	far.together = 1000;
	bed_write(b, q, 3500);
	bed_turn(b);
	assert_int_equal(far.calls, 4);
	assert_int_equal(far.off[3], 3000);
	assert_memory_equal(far.mem, b->mem, 3500);
	assert_int_equal(b->sent_count, 0);
	far.calls = 0;
	far.allowed = 2;
	bed_write(b, q, 3500);
	bed_turn(b);
	assert_int_equal(far.calls, 3);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(b->sent[0].f.length, 3500);
	assert_memory_equal(b->sent[0].data, b->mem, 3500);
	bed_ack(b, q, 103);
	assert_int_equal(bed_cqes(b), 2);
	assert_int_equal(b->port.direct, 1);
	far_free(b, q);
}

/* Whatever opcodes come in whatever order, each completes once, in the order of the queue; the ring goes round. */
static void mixed(void **state)
{
	struct bed *b = far_bed(UINT32_MAX);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	unsigned int posted = 0;

	(void)state;
	b->on_send = bed_ack_all;
	for (uint32_t i = 0; i < 200; i++) {
		uint16_t index[4], n = 0;

		for (; n < 1 + i % 4; n++) {
			index[n] = (uint16_t)q->pi;
			if (i * 7 % 5 == 0 && n == i % 2)
				bed_send(b, q, 10);
			else
				bed_write(b, q, 8 + n);
		}
		bed_turn(b);
		for (uint16_t k = 0; k < n; k++)
			bed_expect_ok(b, posted + k, index[k]);
		posted += n;
		assert_int_equal(bed_cqes(b), posted);
		assert_int_equal(q->qp.sq.ci, q->qp.sq.pi);
	}
	far_free(b, q);
}

/* The first of a batch is refused when it is decoded, the second when its memory is looked at: the one completes in
 * error, those behind it are flushed, and none is completed twice. */
static void first_refused(void **state)
{
	static const struct { uint8_t opcode; uint32_t key; uint8_t syndrome; } row[] = {
		{ SMX_OP_TSO, 0, SMX_SYND_LOCAL_QP_OP }, { SMX_OP_RDMA_WRITE, 0x77777777, SMX_SYND_LOCAL_PROT },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(row); i++) {
		struct bed *b = far_bed(100);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		struct bed_wr wr = { .opcode = row[i].opcode, .fm_ce_se = SMX_CTRL_CQ_UPDATE, .raddr = 0x10000,
				     .rkey = 0x900, .sge_count = 1,
				     .sge = { { (uintptr_t)b->mem, 8, row[i].key ? row[i].key : b->mkey->key } } };

		bed_write(b, q, 8);
		bed_post(b, q, &wr);
		bed_write(b, q, 8);
		bed_write(b, q, 8);
		bed_turn(b);
		assert_int_equal(bed_cqes(b), 4);
		bed_expect_ok(b, 0, 0);
		assert_int_equal(bed_cqe(b, 1).syndrome, row[i].syndrome);
		assert_int_equal(bed_cqe(b, 2).syndrome, SMX_SYND_WR_FLUSH);
		assert_int_equal(bed_cqe(b, 3).syndrome, SMX_SYND_WR_FLUSH);
		assert_int_equal(q->qp.state, IBV_QPS_ERR);
		assert_int_equal(b->sent_count, 0);
		far_free(b, q);
	}
}

/* What the port refuses is asked of it once, and goes as a frame; what is behind it waits for the answer. */
static void asked_once(void **state)
{
	struct bed *b = far_bed(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	bed_write(b, q, 8);
	bed_turn(b);
	assert_int_equal(far.calls, 1);
	assert_int_equal(b->sent_count, 1);
	bed_ack(b, q, 100);
	assert_int_equal(bed_cqes(b), 1);
	far_free(b, q);
}

/* A turn's budget ends a long one, the next goes on with it. */
static void budget(void **state)
{
	struct bed *b = far_bed(100);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	b->dev->attr.turn_budget_bytes = 1500;
	far.together = 1000;
	bed_write(b, q, 5000);
	assert_int_equal(smx_dev_turn(b->dev), 0);
	assert_int_equal(far.calls, 2);
	assert_int_equal(bed_cqes(b), 0);
	bed_turn(b);
	assert_int_equal(far.calls, 5);
	assert_int_equal(far.off[4], 4000);
	assert_int_equal(bed_cqes(b), 1);
	assert_memory_equal(far.mem, b->mem, 5000);
	far_free(b, q);
}

/* It may have been for nothing: a WRITE is done again as a frame, an atomic cannot be. */
static void for_nothing(void **state)
{
	struct bed *b = far_bed(100);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	far.lost = true;
	bed_write(b, q, 8);
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	bed_ack(b, q, 100);
	assert_int_equal(bed_cqes(b), 1);
	bed_atomic(b, q);
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(bed_cqe(b, 1).syndrome, SMX_SYND_TRANSPORT_RETRY);
	assert_int_equal(q->qp.state, IBV_QPS_ERR);
	far_free(b, q);
}

/* The requester's own memory is looked at before the target's. */
static void own_side(void **state)
{
	struct bed *b = far_bed(100);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	const struct bed_wr wr = {
		.opcode = SMX_OP_RDMA_WRITE, .fm_ce_se = SMX_CTRL_CQ_UPDATE, .raddr = 0x10000, .rkey = 0x900,
		.sge_count = 1, .sge = { { (uintptr_t)b->mem, 8, 0x77777777 } },
	};

	(void)state;
	bed_post(b, q, &wr);
	bed_turn(b);
	assert_int_equal(far.calls, 0);
	assert_int_equal(b->sent_count, 0);
	assert_int_equal(bed_cqe(b, 0).syndrome, SMX_SYND_LOCAL_PROT);
	far_free(b, q);
}

static void not_for_all(void **state)
{
	struct bed *b = far_bed(100);
	struct bed_qp *q = bed_qp(b, SMX_QP_UC), *rc = bed_qp(b, SMX_QP_RC);
	const struct bed_wr imm = { .opcode = SMX_OP_RDMA_WRITE_IMM, .raddr = 0x10000, .rkey = 0x900, .sge_count = 1,
				    .sge = { { (uintptr_t)b->mem, 8, b->mkey->key } } };

	(void)state;
	bed_write(b, q, 8);
	bed_post(b, rc, &imm);
	bed_turn(b);
	assert_int_equal(far.calls, 0);
	assert_int_equal(b->sent_count, 2);
	bed_ack(b, rc, 100);
	bed_write(b, rc, 0);
	bed_turn(b);
	assert_int_equal(far.calls, 0);
	bed_qp_free(b, rc);
	far_free(b, q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_without_frame), cmocka_unit_test(numbers), cmocka_unit_test(behind),
		cmocka_unit_test(read_and_atomic), cmocka_unit_test(parts), cmocka_unit_test(budget),
		cmocka_unit_test(mixed), cmocka_unit_test(first_refused), cmocka_unit_test(asked_once),
		cmocka_unit_test(for_nothing), cmocka_unit_test(own_side), cmocka_unit_test(not_for_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
