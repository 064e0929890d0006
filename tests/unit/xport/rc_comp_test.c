/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: what answers do to requests: ACKs, NAKs, responses, and answers that do not come.
 * Method: a port that keeps every frame; answers are scripted, time is the test's. */
#include "unit/xport/req_bed.h"

/* Twice 4.096 us x 2^14. */
#define TIMEOUT_NS (2ull * (4096ull << 14))

static void one_ack_completes_all_before_it_in_order(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t at[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		at[i] = bed_send(b, q, 1500);	/* two packets each */
	bed_turn(b);
	bed_ack(b, q, 105);
	assert_int_equal(bed_cqes(b), 3);
	for (int i = 0; i < 3; i++)
		bed_expect_ok(b, i, at[i]);
	bed_ack(b, q, 106);		/* the first half of the fourth */
	assert_int_equal(bed_cqes(b), 3);
	bed_ack(b, q, 107);
	bed_expect_ok(b, 3, at[3]);
	bed_qp_free(b, q);
	bed_free(b);
}

static void answers_to_nothing_outstanding_change_nothing(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint32_t psns[] = { 99, 100, 102, 103, 0x7fffff, 0xffffff };

	(void)state;
	bed_write(b, q, 8);
	bed_turn(b);
	bed_ack(b, q, 100);
	bed_write(b, q, 8);		/* PSN 101 is outstanding */
	bed_turn(b);
	for (size_t i = 0; i < SMX_COUNT(psns); i++) {
		bed_ack(b, q, psns[i]);
		bed_nak(b, q, psns[i], SMX_AETH_NAK_ACCESS, 0);
		bed_nak(b, q, psns[i], SMX_AETH_NAK_SEQUENCE, 0);
		bed_nak(b, q, psns[i], SMX_AETH_RNR | 1, 0);
		bed_read_response(b, q, psns[i], 1, 8, 0, true);
		bed_atomic_response(b, q, psns[i], 1);
	}
	bed_turn(b);
	assert_int_equal(b->sent_count, 2);
	assert_int_equal(bed_cqes(b), 1);
	assert_int_equal(q->qp.state, IBV_QPS_RTS);
	bed_ack(b, q, 101);
	assert_int_equal(bed_cqes(b), 2);
	bed_qp_free(b, q);
	bed_free(b);
}

/* Every NAK and what it says at the requester. 103 is refused: the second of three. */
static void naks_name_the_check(void **state)
{
	static const struct row {
		uint8_t syndrome;
		enum smx_check told, want;
		uint8_t codes[3];
	} rows[] = {
		{ SMX_AETH_NAK_INVALID,	  SMX_CHECK_NONE, SMX_CHECK_REMOTE_NAK_INVALID,	  { 0x12, 0x8a, 0 } },
		{ SMX_AETH_NAK_ACCESS,	  SMX_CHECK_NONE, SMX_CHECK_REMOTE_NAK_ACCESS,	  { 0x13, 0x88, 0 } },
		{ SMX_AETH_NAK_OPERATION, SMX_CHECK_NONE, SMX_CHECK_REMOTE_NAK_OPERATION, { 0x14, 0x89, 0 } },
		{ SMX_AETH_NAK_INVALID,	  SMX_CHECK_REMOTE_QP_ACCESS, SMX_CHECK_REMOTE_QP_ACCESS,
		  { 0x12, 0x8a, 0 } },
		{ SMX_AETH_NAK_ACCESS,	  SMX_CHECK_REMOTE_RANGE, SMX_CHECK_REMOTE_RANGE, { 0x13, 0x88, 0 } },
		{ SMX_AETH_NAK_OPERATION, SMX_CHECK_REMOTE_FAULT, SMX_CHECK_REMOTE_FAULT, { 0x14, 0x89, 0 } },
		/* A check that cannot be about a remote request is not believed. */
		{ SMX_AETH_NAK_ACCESS,	  SMX_CHECK_GATHER_KEY, SMX_CHECK_REMOTE_NAK_ACCESS,
		  { 0x13, 0x88, 0 } },
		{ SMX_AETH_NAK_ACCESS,	  60000, SMX_CHECK_REMOTE_NAK_ACCESS, { 0x13, 0x88, 0 } },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct bed *b = bed_new(1 << 20);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		uint16_t first = bed_write(b, q, 3000), second = bed_write(b, q, 8);
		uint16_t third = bed_write(b, q, 8);

		bed_turn(b);
		bed_nak(b, q, 103, r->syndrome, (uint16_t)r->told);
		assert_int_equal(bed_cqes(b), 3);
		bed_expect_ok(b, 0, first);
		bed_expect_error(b, 1, second, r->codes[0], r->codes[1], r->codes[2]);
		bed_expect_error(b, 2, third, 0x05, 0xf9, r->codes[2]);
		assert_int_equal(q->qp.state, IBV_QPS_ERR);
		assert_int_equal(bed_refusal(b).check, r->want);
		assert_int_equal(bed_refusal(b).where.qpn, q->qp.qpn);
		assert_int_equal(bed_refusal(b).where.peer_qpn, BED_PEER);
		assert_int_equal(bed_refusal(b).where.wqe_index, second);
		assert_ptr_equal(bed_refusal(b).where.cookie, q);
		if (r->told)
			assert_string_equal(bed_refusal(b).text, "values 1 2 3");
		assert_int_equal(b->log.count, 1);
		assert_int_equal(b->event_count, 0);	/* the completion tells it */
		assert_int_equal(bed_turn(b), UINT64_MAX);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

static void a_sequence_nak_sends_again_from_there(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t first, second;

	(void)state;
	first = bed_write(b, q, 5000);	/* 100..104 */
	second = bed_send(b, q, 2000);	/* 105, 106 */
	bed_turn(b);
	assert_int_equal(b->sent_count, 7);
	bed_clear(b);
	bed_nak(b, q, 103, SMX_AETH_NAK_SEQUENCE, 0);
	bed_turn(b);
	assert_int_equal(b->sent_count, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(b->sent[i].f.psn, 103 + i);
	assert_int_equal(b->sent[0].f.op, SMX_FRAME_WRITE);
	assert_false(b->sent[0].f.first);
	assert_memory_equal(b->sent[0].data, b->mem + 3 * 1024, 1024);
	assert_true(b->sent[1].f.last);
	assert_int_equal(b->sent[1].f.length, 5000 - 4096);
	assert_true(b->sent[2].f.first);
	assert_memory_equal(b->sent[3].data, b->mem + 1024, 2000 - 1024);
	assert_int_equal(bed_cqes(b), 0);
	bed_ack(b, q, 106);
	bed_expect_ok(b, 0, first);
	bed_expect_ok(b, 1, second);
	bed_qp_free(b, q);
	bed_free(b);
}

/* An ACK for what is being sent again arrives after all: what it covers is not sent a third time. */
static void a_late_ack_moves_sending_on(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	bed_write(b, q, 5000);
	bed_write(b, q, 8);
	bed_turn(b);
	bed_clear(b);
	bed_nak(b, q, 101, SMX_AETH_NAK_SEQUENCE, 0);
	bed_ack(b, q, 104);
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(b->sent[0].f.psn, 105);
	bed_ack(b, q, 105);
	assert_int_equal(bed_cqes(b), 2);
	bed_qp_free(b, q);
	bed_free(b);
}

static void sequence_naks_without_progress_use_up_the_retries(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t at = bed_write(b, q, 8);

	(void)state;
	for (int i = 0; i < 4; i++) {	/* retry_cnt 3 */
		bed_turn(b);
		assert_int_equal(b->sent_count, i + 1);
		assert_int_equal(bed_cqes(b), 0);
		bed_nak(b, q, 100, SMX_AETH_NAK_SEQUENCE, 0);
	}
	bed_expect_error(b, 0, at, 0x15, 0x81, 0);
	bed_qp_free(b, q);
	bed_free(b);
}

static void no_answer_is_tried_again_and_then_given_up(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t first = bed_write(b, q, 8), second = bed_write(b, q, 8);

	(void)state;
	assert_int_equal(bed_turn(b), 1000 + TIMEOUT_NS);
	for (unsigned int i = 1; i <= 3; i++) {
		b->now += TIMEOUT_NS - 1;
		bed_turn(b);
		assert_int_equal(b->sent_count, 2 * i);	/* not yet */
		b->now += 1;
		assert_int_equal(bed_turn(b), b->now + TIMEOUT_NS);
		assert_int_equal(b->sent_count, 2 * (i + 1));
		assert_int_equal(b->sent[2 * i].f.psn, 100);
		assert_int_equal(bed_cqes(b), 0);
	}
	b->now += TIMEOUT_NS;
	assert_int_equal(bed_turn(b), UINT64_MAX);
	assert_int_equal(bed_cqes(b), 2);
	bed_expect_error(b, 0, first, 0x15, 0x81, 0);
	bed_expect_error(b, 1, second, 0x05, 0xf9, 0);
	assert_int_equal(bed_refusal(b).check, SMX_CHECK_RETRY_EXCEEDED);
	assert_int_equal(q->qp.state, IBV_QPS_ERR);
	bed_qp_free(b, q);
	bed_free(b);
}

static void progress_gives_the_retries_back_and_starts_the_wait_anew(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	for (int i = 0; i < 10; i++)
		bed_write(b, q, 8);
	bed_turn(b);
	for (uint32_t i = 0; i < 9; i++) {
		b->now += TIMEOUT_NS;
		bed_turn(b);		/* a retry */
		b->now += TIMEOUT_NS / 2;
		bed_ack(b, q, 100 + i);
		assert_int_equal(bed_turn(b), b->now + TIMEOUT_NS);
	}
	assert_int_equal(bed_cqes(b), 9);
	bed_ack(b, q, 109);
	assert_int_equal(bed_cqes(b), 10);
	assert_int_equal(bed_turn(b), UINT64_MAX);	/* nothing outstanding: nothing to wait for */
	assert_int_equal(b->dev->timers, 0);
	bed_qp_free(b, q);
	bed_free(b);
}

static void timeouts_follow_the_attribute(void **state)
{
	static const struct row { uint8_t timeout; uint64_t wait; } rows[] = {
		{ 0, 0 },			/* never */
		{ 1, SMX_ACK_TIMEOUT_FLOOR_NS },
		{ 10, SMX_ACK_TIMEOUT_FLOOR_NS },
		{ 11, 2 * (4096ull << 11) },
		{ 31, 2 * (4096ull << 31) },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct bed *b = bed_new(1 << 20);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);

		q->qp.cur.timeout = rows[i].timeout;
		bed_write(b, q, 8);
		assert_int_equal(bed_turn(b), rows[i].wait ? b->now + rows[i].wait : UINT64_MAX);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

/* IBA table 45, a few of its codes. */
static void an_rnr_nak_waits_as_long_as_it_says(void **state)
{
	static const struct row { uint8_t code; uint64_t us; } rows[] = {
		{ 0, 655360 }, { 1, 10 }, { 5, 60 }, { 12, 640 }, { 21, 15360 }, { 31, 491520 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct bed *b = bed_new(1 << 20);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		uint16_t first = bed_send(b, q, 8), second = bed_send(b, q, 8);

		q->qp.cur.timeout = 0;
		bed_turn(b);
		bed_nak(b, q, 101, SMX_AETH_RNR | rows[i].code, 0);
		assert_int_equal(bed_cqes(b), 1);
		bed_expect_ok(b, 0, first);
		bed_send(b, q, 8);	/* held too */
		assert_int_equal(bed_turn(b), b->now + rows[i].us * 1000);
		assert_int_equal(b->sent_count, 2);
		b->now += rows[i].us * 1000;
		bed_turn(b);
		assert_int_equal(b->sent_count, 4);
		assert_int_equal(b->sent[2].f.psn, 101);
		assert_int_equal(b->sent[3].f.psn, 102);
		bed_ack(b, q, 102);
		bed_expect_ok(b, 1, second);
		assert_int_equal(bed_cqes(b), 3);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

static void rnr_retries_run_out_unless_they_are_seven(void **state)
{
	(void)state;
	for (uint8_t retries = 0; retries <= 7; retries++) {
		struct bed *b = bed_new(1 << 20);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		unsigned int attempts = 0;
		uint16_t at;

		q->qp.cur.rnr_retry = retries;
		q->qp.req->rnr_retries = retries;
		at = bed_send(b, q, 8);
		bed_turn(b);
		while (!bed_cqes(b) && attempts < 50) {
			attempts++;
			bed_nak(b, q, 100, SMX_AETH_RNR | 1, 0);
			b->now += 10000;
			bed_turn(b);
		}
		if (retries == 7) {
			assert_int_equal(attempts, 50);
			assert_int_equal(bed_cqes(b), 0);
		} else {
			assert_int_equal(attempts, retries + 1);
			bed_expect_error(b, 0, at, 0x16, 0x87, 0);
			assert_int_equal(bed_refusal(b).check, SMX_CHECK_RNR_EXCEEDED);
		}
		bed_qp_free(b, q);
		bed_free(b);
	}
}

static void progress_gives_the_rnr_retries_back(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		bed_send(b, q, 8);
		bed_turn(b);
		for (int k = 0; k < 2; k++) {	/* both of them, each time */
			bed_nak(b, q, 100 + i, SMX_AETH_RNR | 1, 0);
			b->now += 10000;
			bed_turn(b);
		}
		bed_ack(b, q, 100 + i);
		assert_int_equal(bed_cqes(b), i + 1);
		bed_expect_ok(b, i, i);
	}
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_posted_receive_ends_the_wait_of_its_peer_only(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC), *peer = bed_qp(b, SMX_QP_RC);
	struct bed_qp *other = bed_qp(b, SMX_QP_RC);

	(void)state;
	q->qp.cur.dest_qp_num = peer->qp.qpn;
	peer->qp.cur.dest_qp_num = q->qp.qpn;
	bed_send(b, q, 8);
	bed_turn(b);
	for (int i = 0; i < 10; i++) {	/* more often than there are retries: rings do not count */
		bed_nak(b, q, 100, SMX_AETH_RNR | 0, 0);
		bed_clear(b);
		smx_dev_ring_rq(b->dev, &other->qp);
		bed_turn(b);
		assert_int_equal(b->sent_count, 0);
		smx_dev_ring_rq(b->dev, &peer->qp);
		bed_turn(b);
		assert_int_equal(b->sent_count, 1);
	}
	bed_ack(b, q, 100);
	assert_int_equal(bed_cqes(b), 1);
	bed_qp_free(b, q);
	bed_qp_free(b, peer);
	bed_qp_free(b, other);
	bed_free(b);
}

static void a_reads_response_is_scattered_and_reported(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint8_t *to = b->mem + BED_MEM / 2;
	struct bed_wr wr = {
		.opcode = SMX_OP_RDMA_READ, .fm_ce_se = SMX_CTRL_CQ_UPDATE, .sge_count = 2,
		.sge = { { (uintptr_t)to, 1500, b->mkey->key }, { (uintptr_t)to + 4000, 1000, b->mkey->key } },
	};
	uint16_t at = bed_post(b, q, &wr);

	(void)state;
	bed_turn(b);
	assert_int_equal(b->sent[0].f.psn_count, 3);
	bed_read_response(b, q, 100, 1, 1024, 0, false);
	bed_read_response(b, q, 101, 1, 1024, 1024, false);
	assert_int_equal(bed_cqes(b), 0);
	bed_read_response(b, q, 102, 1, 2500 - 2048, 2048, true);
	bed_expect_ok(b, 0, at);
	assert_int_equal(bed_cqe(b, 0).bytes, 2500);
	for (uint32_t i = 0; i < 2500; i++)
		assert_int_equal(to[i < 1500 ? i : i - 1500 + 4000], bed_byte(i));
	assert_int_equal(to[1500], bed_byte(BED_MEM / 2 + 1500));
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_lost_response_is_asked_for_again_from_the_middle(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t at = bed_read(b, q, 5000), behind = bed_send(b, q, 8);

	(void)state;
	bed_turn(b);
	bed_read_response(b, q, 100, 1, 1024, 0, false);
	bed_read_response(b, q, 102, 1, 1024, 2048, false);	/* 101 is missing */
	bed_clear(b);
	bed_turn(b);
	assert_int_equal(b->sent_count, 2);
	assert_int_equal(b->sent[0].f.psn, 101);
	assert_int_equal(b->sent[0].f.psn_count, 4);
	assert_int_equal(b->sent[0].f.va, 0x20000 + 1024);
	assert_int_equal(b->sent[0].f.dma_length, 5000 - 1024);
	assert_int_equal(b->sent[1].f.psn, 105);
	bed_read_response(b, q, 100, 1, 1024, 50000, false);	/* a duplicate, with other bytes */
	bed_read_response(b, q, 101, 1, 1024, 1024, false);
	bed_read_response(b, q, 102, 1, 1024, 2048, false);
	bed_read_response(b, q, 103, 1, 1024, 3072, false);
	bed_read_response(b, q, 104, 1, 5000 - 4096, 4096, true);
	bed_ack(b, q, 105);
	bed_expect_ok(b, 0, at);
	bed_expect_ok(b, 1, behind);
	for (uint32_t i = 0; i < 5000; i++)
		assert_int_equal(b->mem[BED_MEM / 2 + i], bed_byte(i));
	bed_qp_free(b, q);
	bed_free(b);
}

static void an_ack_behind_a_read_is_not_its_response(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t first = bed_send(b, q, 8), read = bed_read(b, q, 8), third = bed_send(b, q, 8);

	(void)state;
	bed_turn(b);
	bed_clear(b);
	bed_ack(b, q, 102);
	assert_int_equal(bed_cqes(b), 1);
	bed_expect_ok(b, 0, first);
	bed_turn(b);
	assert_int_equal(b->sent[0].f.op, SMX_FRAME_READ_REQUEST);
	assert_int_equal(b->sent[0].f.psn, 101);
	bed_read_response(b, q, 101, 1, 8, 0, true);
	bed_expect_ok(b, 1, read);
	bed_ack(b, q, 102);
	bed_expect_ok(b, 2, third);
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_response_acknowledges_what_is_before_it(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t first = bed_send(b, q, 8), read = bed_read(b, q, 8);

	(void)state;
	bed_turn(b);
	bed_read_response(b, q, 101, 1, 8, 0, true);
	bed_expect_ok(b, 0, first);
	bed_expect_ok(b, 1, read);
	bed_qp_free(b, q);
	bed_free(b);
}

/* What a response can get wrong. The READ is of 2500 bytes at PSNs 100..102. */
static void responses_that_do_not_fit_are_bad(void **state)
{
	static const struct row { const char *name; uint8_t op; uint32_t psn_count; uint64_t length; bool last; }
	rows[] = {
		{ "short middle packet", SMX_FRAME_READ_RESPONSE, 1, 1000, false },
		{ "long packet", SMX_FRAME_READ_RESPONSE, 1, 1025, false },
		{ "ends too early", SMX_FRAME_READ_RESPONSE, 1, 1024, true },
		{ "more than was asked for", SMX_FRAME_READ_RESPONSE, 4, 4096, true },
		{ "no end", SMX_FRAME_READ_RESPONSE, 3, 2500, false },
		{ "wrong tail", SMX_FRAME_READ_RESPONSE, 3, 2501, true },
		{ "no packets", SMX_FRAME_READ_RESPONSE, 0, 0, false },
		{ "atomic response", SMX_FRAME_ATOMIC_RESPONSE, 1, 0, true },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct bed *b = bed_new(0);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		uint16_t at = bed_read(b, q, 2500);
		uint8_t data[4096] = { 0 };
		struct smx_frame f = {
			.op = rows[i].op, .psn = 100, .psn_count = rows[i].psn_count, .last = rows[i].last,
			.length = rows[i].length, .flat = rows[i].length ? data : NULL,
		};

		bed_turn(b);
		bed_answer(b, q, &f);
		assert_int_equal(bed_cqes(b), 1);
		bed_expect_error(b, 0, at, 0x10, 0, 0);
		assert_int_equal(bed_refusal(b).check, SMX_CHECK_BAD_RESPONSE);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

/* A READ is asked for in parts, whose length is the port's affair; each answer's last response says that it is. */
static void a_part_of_a_read_may_end_before_the_read_does(void **state)
{
	static const struct row { uint32_t psn_count, bytes; bool last, good; } rows[] = {
		{ 1, 1024, false, true }, { 4, 4096, true, true }, { 4, 4096, false, true },
		{ 1, 1024, true, true }, { 3, 3000, true, false }, { 3, 3073, true, false },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct bed *b = bed_new(4096);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);

		bed_read(b, q, 10000);
		bed_turn(b);
		bed_read_response(b, q, 100, rows[i].psn_count, rows[i].bytes, 0, rows[i].last);
		assert_int_equal(bed_cqes(b), !rows[i].good);
		if (!rows[i].good)
			bed_expect_error(b, 0, 0, 0x10, 0, 0);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

static void data_for_a_send_or_an_atomic_is_bad(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC), *r = bed_qp(b, SMX_QP_RC);

	(void)state;
	bed_send(b, q, 8);
	bed_atomic(b, r);
	bed_turn(b);
	bed_read_response(b, q, 100, 1, 8, 0, true);
	bed_expect_error(b, 0, 0, 0x10, 0, 0);
	bed_read_response(b, r, 100, 1, 8, 0, true);
	bed_expect_error(b, 1, 0, 0x10, 0, 0);
	bed_qp_free(b, q);
	bed_qp_free(b, r);
	bed_free(b);
}

static void an_atomics_old_value_arrives_in_host_order(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint64_t old = 0x0102030405060708ull;
	uint16_t at = bed_atomic(b, q);

	(void)state;
	bed_turn(b);
	b->now += TIMEOUT_NS;		/* the response was lost */
	bed_turn(b);
	assert_int_equal(b->sent_count, 2);
	assert_int_equal(b->sent[1].f.psn, 100);
	bed_atomic_response(b, q, 100, old);
	bed_atomic_response(b, q, 100, 0);	/* a duplicate */
	bed_expect_ok(b, 0, at);
	assert_int_equal(bed_cqe(b, 0).bytes, 8);
	assert_memory_equal(b->mem + BED_MEM / 2, &old, 8);
	assert_int_equal(bed_cqes(b), 1);
	bed_qp_free(b, q);
	bed_free(b);
}

/* The response comes, and the program's memory may not be written. */
static void a_response_without_a_place_fails_locally(void **state)
{
	static const struct row {
		const char *name;
		int access;
		int64_t va_off;
		uint32_t length, key_off;
		enum smx_check want;
		uint8_t vendor, hw;
	} rows[] = {
		{ "no local write", 0, 0, 16, 0, SMX_CHECK_SCATTER_RIGHT, 0x33, 0x9d },
		{ "past the end", IBV_ACCESS_LOCAL_WRITE, BED_MEM - 8, 16, 0, SMX_CHECK_SCATTER_RANGE, 0x33, 0x9d },
		{ "before the start", IBV_ACCESS_LOCAL_WRITE, -1, 16, 0, SMX_CHECK_SCATTER_RANGE, 0x33, 0x9d },
		{ "unknown key", IBV_ACCESS_LOCAL_WRITE, 0, 16, 1, SMX_CHECK_SCATTER_KEY, 0x32, 0x93 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct bed *b = bed_new(0);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		struct bed_wr wr = {
			.opcode = SMX_OP_RDMA_READ, .sge_count = 1,
			.sge = { { (uintptr_t)b->mem + (uint64_t)r->va_off, r->length, b->mkey->key + r->key_off } },
		};
		uint16_t at;

		b->mkey->attr.access = (uint32_t)r->access;
		at = bed_post(b, q, &wr);
		bed_turn(b);
		bed_read_response(b, q, 100, 1, r->length, 0, true);
		assert_int_equal(bed_cqes(b), 1);
		bed_expect_error(b, 0, at, 0x04, r->vendor, r->hw);
		assert_int_equal(bed_refusal(b).check, r->want);
		assert_int_equal(bed_refusal(b).where.wqe_index, at);
		assert_int_equal(q->qp.state, IBV_QPS_ERR);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

/* A READ response whose walk cannot be read is given back to its sender; the request stays as it was. */
static void an_unreadable_response_is_the_senders_fault(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	struct smx_walk walk;
	struct smx_frame f = {
		.op = SMX_FRAME_READ_RESPONSE, .psn = 100, .psn_count = 1, .last = true, .length = 16, .walk = &walk,
	};

	(void)state;
	bed_read(b, q, 16);
	bed_turn(b);
	smx_walk_range(&walk, b->dev, &b->pd, 0, SMX_DMA_REMOTE_READ, b->mkey->key, (uintptr_t)b->mem - 16, 16);
	bed_answer(b, q, &f);
	assert_in_range(f.gather_check, SMX_CHECK_REMOTE_KEY, SMX_CHECK_REMOTE_QP);
	assert_non_null(f.gather_text);
	assert_int_equal(bed_cqes(b), 0);
	assert_int_equal(q->qp.state, IBV_QPS_RTS);
	bed_qp_free(b, q);
	bed_free(b);
}

static void small_responses_go_into_the_cqe_where_the_driver_can_copy(void **state)
{
	static const struct row {
		const char *name;
		uint8_t scatter;
		uint32_t length;
		bool signaled, moved, atomic, in_cqe;
	} rows[] = {
		{ "fits",		 32, 20, true,	false, false, true },
		{ "atomic",		 32, 8,	 true,	false, true,  true },
		{ "exactly",		 32, 32, true,	false, false, true },
		{ "too long",		 32, 33, true,	false, false, false },
		{ "not asked for",	 0,  8,	 true,	false, false, false },
		{ "no CQE to go into",	 32, 8,	 false, false, false, false },
		{ "address is no pointer", 32, 8, true,	true,  false, false },
		{ "64 needs a wide CQE", 64, 40, true,	false, false, false },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct bed *b = bed_new(0);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		uint8_t *to = b->mem + BED_MEM / 2;
		struct bed_wr wr = {
			.opcode = r->atomic ? SMX_OP_ATOMIC_FA : SMX_OP_RDMA_READ,
			.fm_ce_se = r->signaled ? SMX_CTRL_CQ_UPDATE : 0, .sge_count = 1,
			.sge = { { (uintptr_t)to, r->length, b->mkey->key } },
		};
		uint64_t first = bed_byte(0) | (uint64_t)bed_byte(1) << 8;
		const struct smx_cqe64 *cqe = (const void *)b->cq_buf;

		if (r->moved) {		/* a key that counts from 0 */
			b->mkey->attr.start = 0;
			wr.sge[0].va = BED_MEM / 2;
		}
		q->qp.attr.req_scatter_bytes = r->scatter;
		memset(to, 0xee, 64);
		bed_post(b, q, &wr);
		bed_turn(b);
		if (r->atomic)
			bed_atomic_response(b, q, 100, first);
		else
			bed_read_response(b, q, 100, 1, r->length, 0, true);
		assert_int_equal(bed_cqes(b), r->signaled);
		assert_int_equal(to[1], r->in_cqe ? 0xee : bed_byte(1));
		if (r->signaled) {
			assert_int_equal(!!(cqe->op_own & SMX_CQE_INLINE_32), r->in_cqe);
			assert_int_equal(bed_cqe(b, 0).bytes, r->length);
		}
		if (r->in_cqe)
			assert_int_equal(((const uint8_t *)cqe)[1], bed_byte(1));
		bed_qp_free(b, q);
		bed_free(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_ack_completes_all_before_it_in_order),
		cmocka_unit_test(answers_to_nothing_outstanding_change_nothing),
		cmocka_unit_test(naks_name_the_check),
		cmocka_unit_test(a_sequence_nak_sends_again_from_there),
		cmocka_unit_test(a_late_ack_moves_sending_on),
		cmocka_unit_test(sequence_naks_without_progress_use_up_the_retries),
		cmocka_unit_test(no_answer_is_tried_again_and_then_given_up),
		cmocka_unit_test(progress_gives_the_retries_back_and_starts_the_wait_anew),
		cmocka_unit_test(timeouts_follow_the_attribute),
		cmocka_unit_test(an_rnr_nak_waits_as_long_as_it_says),
		cmocka_unit_test(rnr_retries_run_out_unless_they_are_seven),
		cmocka_unit_test(progress_gives_the_rnr_retries_back),
		cmocka_unit_test(a_posted_receive_ends_the_wait_of_its_peer_only),
		cmocka_unit_test(a_reads_response_is_scattered_and_reported),
		cmocka_unit_test(a_lost_response_is_asked_for_again_from_the_middle),
		cmocka_unit_test(an_ack_behind_a_read_is_not_its_response),
		cmocka_unit_test(a_response_acknowledges_what_is_before_it),
		cmocka_unit_test(responses_that_do_not_fit_are_bad),
		cmocka_unit_test(a_part_of_a_read_may_end_before_the_read_does),
		cmocka_unit_test(data_for_a_send_or_an_atomic_is_bad),
		cmocka_unit_test(an_atomics_old_value_arrives_in_host_order),
		cmocka_unit_test(a_response_without_a_place_fails_locally),
		cmocka_unit_test(an_unreadable_response_is_the_senders_fault),
		cmocka_unit_test(small_responses_go_into_the_cqe_where_the_driver_can_copy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
