/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: how send requests fail: which codes, what is flushed and in which order, what leaves before, and what goes
 * into error.
 * Method: as rc_req_test.c. */
#include "unit/xport/req_bed.h"

/* A SEND of two SGEs, the first of `good` bytes; the second breaks a rule. */
static uint16_t post_bad_gather(struct bed *b, struct bed_qp *q, uint32_t good, uint64_t va, uint32_t key)
{
	struct bed_wr wr = {
		.opcode = SMX_OP_SEND, .sge_count = 2,
		.sge = { { (uintptr_t)b->mem, good, b->mkey->key }, { va, 2048, key } },
	};

	return bed_post(b, q, &wr);
}

/* What leaves before a gather error is found, and the codes. MTU 1024. */
static void gather_errors(void **state)
{
	static const struct row {
		const char *name;
		uint64_t payload;
		uint32_t good;
		bool unknown_key;
		uint32_t frames, bytes;		/* that left */
		enum smx_check want;
		uint8_t vendor, hw;
	} rows[] = {
		{ "tail out of range, long frames", 1 << 20, 2500, false, 1, 2048, SMX_CHECK_GATHER_RANGE, 0x53, 0x9d },
		{ "tail out of range, packets",	    0,	     2500, false, 2, 2048, SMX_CHECK_GATHER_RANGE, 0x53, 0x9d },
		{ "less than a packet is good",	    1 << 20, 1000, false, 0, 0,	   SMX_CHECK_GATHER_RANGE, 0x53, 0x9d },
		{ "unknown lkey",		    1 << 20, 2500, true,  0, 0,	   SMX_CHECK_GATHER_KEY, 0x52, 0x93 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct bed *b = bed_new(r->payload);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		uint16_t at = post_bad_gather(b, q, r->good, (uintptr_t)b->mem + BED_MEM,
					      b->mkey->key + r->unknown_key);
		uint16_t behind = bed_write(b, q, 8);
		uint32_t bytes = 0;

		bed_turn(b);
		assert_int_equal(b->sent_count, r->frames);
		for (uint32_t k = 0; k < r->frames; k++) {
			assert_memory_equal(b->sent[k].data, b->mem + bytes, b->sent[k].f.length);
			assert_false(b->sent[k].f.last);
			bytes += (uint32_t)b->sent[k].f.length;
		}
		assert_int_equal(bytes, r->bytes);
		assert_int_equal(bed_cqes(b), 2);
		bed_expect_error(b, 0, at, 0x04, r->vendor, r->hw);
		bed_expect_error(b, 1, behind, 0x05, 0xf9, r->hw);
		assert_int_equal(bed_refusal(b).check, r->want);
		assert_int_equal(b->log.count, 1);
		assert_int_equal(q->qp.state, IBV_QPS_ERR);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

static void a_local_error_completes_after_what_is_before_it(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t first = bed_write(b, q, 8), second = bed_write(b, q, 8);
	uint16_t bad = post_bad_gather(b, q, 0, 0, 0xdead00), behind = bed_write(b, q, 8);

	(void)state;
	bed_turn(b);
	assert_int_equal(b->sent_count, 2);	/* nothing behind the bad one */
	assert_int_equal(bed_cqes(b), 0);
	bed_ack(b, q, 100);
	bed_turn(b);
	assert_int_equal(bed_cqes(b), 1);
	bed_ack(b, q, 101);
	assert_int_equal(bed_cqes(b), 4);
	bed_expect_ok(b, 0, first);
	bed_expect_ok(b, 1, second);
	bed_expect_error(b, 2, bad, 0x04, 0x52, 0x93);
	bed_expect_error(b, 3, behind, 0x05, 0xf9, 0x93);
	bed_qp_free(b, q);
	bed_free(b);
}

enum { ACK_TIMEOUT_NS = 2 * (4096 << 14) };

/* The second of two WRITEs is lost while a request behind them waits to fail. */
static void what_is_before_a_local_error_is_sent_again(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t first = bed_write(b, q, 8), second = bed_write(b, q, 8);
	uint16_t bad = post_bad_gather(b, q, 0, 0, 0xdead00), behind = bed_write(b, q, 8);

	(void)state;
	bed_turn(b);
	bed_ack(b, q, 100);
	bed_turn(b);
	b->now += ACK_TIMEOUT_NS;
	bed_clear(b);
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(b->sent[0].f.psn, 101);
	bed_ack(b, q, 101);
	assert_int_equal(bed_cqes(b), 4);
	bed_expect_ok(b, 0, first);
	bed_expect_ok(b, 1, second);
	bed_expect_error(b, 2, bad, 0x04, 0x52, 0x93);
	bed_expect_error(b, 3, behind, 0x05, 0xf9, 0x93);
	bed_qp_free(b, q);
	bed_free(b);
}

/* As before, but nobody ever answers: that is the error then. */
static void what_is_before_a_local_error_may_run_out_of_retries(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t first = bed_write(b, q, 8), bad = post_bad_gather(b, q, 0, 0, 0xdead00);

	(void)state;
	for (int i = 0; i < 4; i++) {
		bed_turn(b);
		assert_int_equal(b->sent_count, i + 1);
		b->now += ACK_TIMEOUT_NS;
	}
	assert_int_equal(bed_turn(b), UINT64_MAX);
	assert_int_equal(bed_cqes(b), 2);
	bed_expect_error(b, 0, first, 0x15, 0x81, 0);
	bed_expect_error(b, 1, bad, 0x05, 0xf9, 0);
	bed_qp_free(b, q);
	bed_free(b);
}

/* A WQE that the program changes after it was sent, and before it has to be sent again, fails; also when a later one
 * has failed already. */
static void the_earlier_of_two_local_errors_counts(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t first = bed_write(b, q, 8), changed = bed_write(b, q, 8);
	uint16_t bad = post_bad_gather(b, q, 0, 0, 0xdead00);
	struct smx_wqe_data *data = (void *)(q->ring + changed * SMX_WQE_BB + 2 * SMX_WQE_DS);

	(void)state;
	bed_turn(b);
	data->byte_count = to_be32(9);
	b->now += ACK_TIMEOUT_NS;
	bed_turn(b);
	assert_int_equal(b->sent_count, 3);	/* both, and then the first again */
	bed_ack(b, q, 100);
	assert_int_equal(bed_cqes(b), 3);
	bed_expect_ok(b, 0, first);
	bed_expect_error(b, 1, changed, 0x02, 0x68, 0);
	bed_expect_error(b, 2, bad, 0x05, 0xf9, 0);
	bed_qp_free(b, q);
	bed_free(b);
}

static void refuse_to_read(struct bed *b, struct smx_frame *f)
{
	(void)b;
	f->gather_check = SMX_CHECK_GATHER_FAULT;
	f->gather_text = "nothing at 0x1234";
}

static void memory_that_cannot_be_read_fails_the_request(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t at = bed_write(b, q, 8), behind = bed_write(b, q, 8);

	(void)state;
	b->on_send = refuse_to_read;
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(bed_cqes(b), 2);
	bed_expect_error(b, 0, at, 0x04, 0x51, 0x02);
	bed_expect_error(b, 1, behind, 0x05, 0xf9, 0x02);
	assert_string_equal(bed_refusal(b).text, "nothing at 0x1234");
	bed_qp_free(b, q);
	bed_free(b);
}

/* WQEs that cannot be executed. Each is written well and then damaged. */
static void broken_wqes(void **state)
{
	static const struct row {
		const char *name;
		uint8_t opcode;
		int damage;
		enum smx_check want;
		uint8_t syndrome, vendor, hw;
	} rows[] = {
		{ "unknown opcode", 0x77, 0, SMX_CHECK_WQE_OPCODE, 0x02, 0x00, 0xb2 },
		{ "index of another slot", SMX_OP_SEND, 1, SMX_CHECK_WQE_INDEX, 0x02, 0x68, 0x01 },
		{ "longer than what was rung", SMX_OP_SEND, 2, SMX_CHECK_WQE_LENGTH, 0x02, 0x68, 0x00 },
		{ "no segments", SMX_OP_SEND, 3, SMX_CHECK_WQE_LENGTH, 0x02, 0x68, 0x00 },
		{ "other queue pair", SMX_OP_SEND, 4, SMX_CHECK_WQE_QPN, 0x02, 0x68, 0x00 },
		{ "atomic of 16 bytes", SMX_OP_ATOMIC_FA, 5, SMX_CHECK_WQE_ATOMIC_LENGTH, 0x01, 0x68, 0x00 },
		{ "message over 1 GiB", SMX_OP_SEND, 6, SMX_CHECK_WQE_MESSAGE_LENGTH, 0x01, 0x68, 0x00 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct bed *b = bed_new(1 << 20);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		struct bed_wr wr = {
			.opcode = r->opcode, .sge_count = 1, .no_ring = true,
			.sge = { { (uintptr_t)b->mem, 8, b->mkey->key } },
		};
		struct smx_wqe_ctrl *ctrl = (void *)q->ring;

		if (r->damage == 5)
			wr.sge[0].length = 16;
		if (r->damage == 6)
			wr.sge[0].length = (1 << 30) + 1;
		bed_post(b, q, &wr);
		if (r->damage == 1)
			ctrl->opmod_idx_opcode = to_be32(5 << 8 | r->opcode);
		if (r->damage == 2)
			ctrl->qpn_ds = to_be32(q->qp.qpn << 8 | 20);
		if (r->damage == 3)
			ctrl->qpn_ds = to_be32(q->qp.qpn << 8);
		if (r->damage == 4)
			ctrl->qpn_ds = to_be32((q->qp.qpn + 1) << 8 | 2);
		bed_ring(b, q);
		bed_turn(b);
		assert_int_equal(b->sent_count, 0);
		assert_int_equal(bed_cqes(b), 1);
		bed_expect_error(b, 0, 0, r->syndrome, r->vendor, r->hw);
		assert_int_equal(bed_cqe(b, 0).opcode, r->opcode);
		assert_int_equal(bed_refusal(b).check, r->want);
		assert_int_equal(q->qp.state, IBV_QPS_ERR);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

static void moving_to_err_flushes_in_order(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	struct bed_wr quiet = { .opcode = SMX_OP_SEND };
	uint16_t at[4];

	(void)state;
	at[0] = bed_write(b, q, 8);
	at[1] = bed_post(b, q, &quiet);		/* unsignaled: completes in error all the same */
	bed_turn(b);
	at[2] = bed_read(b, q, 8);		/* rung, not looked at yet */
	at[3] = bed_write(b, q, 8);
	q->qp.state = IBV_QPS_ERR;
	smx_req_flush(b->dev, &q->qp);
	assert_int_equal(bed_cqes(b), 4);
	bed_expect_error(b, 0, at[0], 0x05, 0xf5, 0);
	for (int i = 1; i < 4; i++)
		bed_expect_error(b, i, at[i], 0x05, 0xf9, 0);
	assert_int_equal(bed_cqe(b, 2).opcode, SMX_OP_RDMA_READ);
	assert_int_equal(b->log.count, 1);	/* what is behind is counted only */
	assert_int_equal(smx_qp_flushed(&q->qp), 3);
	assert_int_equal(bed_turn(b), UINT64_MAX);
	assert_int_equal(bed_cqes(b), 4);

	bed_ack(b, q, 101);			/* too late */
	bed_write(b, q, 8);			/* posted in ERR: flushed */
	bed_turn(b);
	assert_int_equal(bed_cqes(b), 5);
	bed_expect_error(b, 4, (uint16_t)(at[3] + 1), 0x05, 0xf9, 0);
	assert_int_equal(b->sent_count, 2);
	bed_qp_free(b, q);
	bed_free(b);
}

static void moving_to_err_with_nothing_outstanding_is_silent(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	bed_write(b, q, 8);
	bed_turn(b);
	bed_ack(b, q, 100);
	q->qp.state = IBV_QPS_ERR;
	smx_req_flush(b->dev, &q->qp);
	assert_int_equal(bed_cqes(b), 1);
	assert_int_equal(b->log.count, 0);
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_doorbell_beyond_the_ring_ends_the_queue(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t first = bed_write(b, q, 8);

	(void)state;
	bed_turn(b);
	be32_store_release(&q->dbrec[SMX_DBREC_SND], (q->pi + BED_BLOCKS) & 0xffff);
	smx_dev_ring_sq(b->dev, &q->qp);
	bed_turn(b);
	assert_int_equal(bed_cqes(b), 2);
	bed_expect_error(b, 0, first, 0x05, 0xf5, 0);
	bed_expect_error(b, 1, (uint16_t)q->pi, 0x02, 0x68, 0);
	assert_int_equal(q->qp.state, IBV_QPS_ERR);
	assert_int_equal(b->event_count, 1);
	assert_int_equal(b->event[0], IBV_EVENT_QP_FATAL);
	/* The record is not read again. */
	be32_store_release(&q->dbrec[SMX_DBREC_SND], q->pi + 1);
	smx_dev_ring_sq(b->dev, &q->qp);
	bed_turn(b);
	assert_int_equal(bed_cqes(b), 2);
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_full_ring_is_not_an_overrun(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	for (int i = 0; i < BED_BLOCKS; i++)
		bed_write(b, q, 8);
	bed_turn(b);
	assert_int_equal(b->sent_count, BED_BLOCKS);
	bed_ack(b, q, 100 + BED_BLOCKS - 1);
	assert_int_equal(bed_cqes(b), BED_BLOCKS);
	bed_qp_free(b, q);
	bed_free(b);
}

/* The responder's half found something: the events of a real device, and one flush. */
static void errors_of_the_responder_raise_their_event(void **state)
{
	static const struct row { enum smx_check check; int event; } rows[] = {
		{ SMX_CHECK_REMOTE_RANGE, IBV_EVENT_QP_ACCESS_ERR },
		{ SMX_CHECK_REMOTE_QP_ACCESS, IBV_EVENT_QP_REQ_ERR },
		{ SMX_CHECK_REMOTE_FAULT, IBV_EVENT_QP_FATAL },
		{ SMX_CHECK_RECV_LENGTH, -1 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct bed *b = bed_new(1 << 20);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);

		bed_write(b, q, 8);
		bed_write(b, q, 8);
		bed_turn(b);
		smx_qp_fatal(b->dev, &q->qp, rows[i].check);
		assert_int_equal(q->qp.state, IBV_QPS_ERR);
		assert_int_equal(bed_cqes(b), 2);
		bed_expect_error(b, 0, 0, 0x05, 0xf5, smx_check_info(rows[i].check)->hw);
		bed_expect_error(b, 1, 1, 0x05, 0xf9, smx_check_info(rows[i].check)->hw);
		assert_int_equal(b->event_count, rows[i].event >= 0);
		if (rows[i].event >= 0)
			assert_int_equal(b->event[0], rows[i].event);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gather_errors),
		cmocka_unit_test(a_local_error_completes_after_what_is_before_it),
		cmocka_unit_test(what_is_before_a_local_error_is_sent_again),
		cmocka_unit_test(what_is_before_a_local_error_may_run_out_of_retries),
		cmocka_unit_test(the_earlier_of_two_local_errors_counts),
		cmocka_unit_test(memory_that_cannot_be_read_fails_the_request),
		cmocka_unit_test(broken_wqes),
		cmocka_unit_test(moving_to_err_flushes_in_order),
		cmocka_unit_test(moving_to_err_with_nothing_outstanding_is_silent),
		cmocka_unit_test(a_doorbell_beyond_the_ring_ends_the_queue),
		cmocka_unit_test(a_full_ring_is_not_an_overrun),
		cmocka_unit_test(errors_of_the_responder_raise_their_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
