/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: DCIs: a target per request, streams that do not hold each other up, streams in error.
 * Method: as rc_req_test.c. */
#include "unit/xport/req_bed.h"

static struct smx_wqe_av make_av(uint32_t dctn, uint64_t key)
{
	return (struct smx_wqe_av){
		.dc_key = to_be64(key), .dqp_dct = to_be32(SMX_AV_EXTENDED | dctn),
		.grh_gid_fl = to_be32(1u << 30), .rgid = { 0xfe, 0x80 },
	};
}

static uint16_t post_to(struct bed *b, struct bed_qp *q, uint16_t stream, uint32_t dctn, uint32_t key_off)
{
	struct smx_wqe_av av = make_av(dctn, 0x1122334455667788ull);
	struct bed_wr wr = {
		.opcode = SMX_OP_SEND, .fm_ce_se = SMX_CTRL_CQ_UPDATE, .stream = stream, .av = &av, .sge_count = 1,
		.sge = { { (uintptr_t)b->mem, 8, b->mkey->key + key_off } },
	};

	return bed_post(b, q, &wr);
}

static void answer_stream(struct bed *b, struct bed_qp *q, uint16_t stream, uint32_t psn, uint8_t syndrome)
{
	struct smx_frame f = {
		.op = SMX_FRAME_ACK, .psn = psn, .psn_count = 1, .syndrome = syndrome, .dc_stream = stream,
	};

	bed_answer(b, q, &f);
}

static void each_request_names_its_target(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_DCI);
	const struct smx_frame *f = &b->sent[0].f;

	(void)state;
	post_to(b, q, 0, 0x501, 0);
	post_to(b, q, 0, 0x501, 0);
	bed_turn(b);
	assert_int_equal(b->sent_count, 2);
	assert_int_equal(f->transport, SMX_TP_DC);
	assert_int_equal(f->dst_qpn, 0x501);
	assert_int_equal(f->dc_key, 0x1122334455667788ull);
	assert_true(f->dc_connect);
	assert_false(b->sent[1].f.dc_connect);	/* the same target goes on */
	bed_qp_free(b, q);
	bed_free(b);
}

/* The sequence numbers begin again with a RESET; what was asked before it may be answered late. */
static void answers_from_before_a_reset_are_not_heard(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_DCI);
	struct smx_frame late = { .op = SMX_FRAME_ACK, .psn = 100, .psn_count = 1, .syndrome = 0x1f,
				  .dc_nonce = (uint32_t)-1 };

	(void)state;
	post_to(b, q, 0, 0x501, 0);
	bed_turn(b);
	bed_answer(b, q, &late);
	bed_turn(b);
	assert_int_equal(bed_cqes(b), 0);
	answer_stream(b, q, 0, 100, 0x1f);
	bed_turn(b);
	assert_int_equal(bed_cqes(b), 1);
	bed_qp_free(b, q);
	bed_free(b);
}

static void another_target_waits_for_the_answers_of_the_last(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_DCI);

	(void)state;
	post_to(b, q, 0, 0x501, 0);
	post_to(b, q, 0, 0x502, 0);
	post_to(b, q, 0, 0x501, 0);
	bed_turn(b);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(b->sent_count, i + 1);
		assert_int_equal(b->sent[i].f.dst_qpn, 0x501 + i % 2);
		assert_int_equal(b->sent[i].f.psn, 100 + i);
		assert_true(b->sent[i].f.dc_connect);
		answer_stream(b, q, 0, 100 + i, 0x1f);
		bed_turn(b);
	}
	assert_int_equal(bed_cqes(b), 3);
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_connect_that_is_sent_again_connects_again(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_DCI);

	(void)state;
	post_to(b, q, 0, 0x501, 0);
	bed_turn(b);
	b->now += 1ull << 32;
	bed_turn(b);
	assert_int_equal(b->sent_count, 2);
	assert_int_equal(b->sent[1].f.psn, 100);
	assert_true(b->sent[1].f.dc_connect);
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_stuck_stream_does_not_hold_the_others(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp_streams(b, SMX_QP_DCI, 2, 2);
	uint16_t stuck = post_to(b, q, 1, 0x501, 0), other = post_to(b, q, 2, 0x501, 0), third;

	(void)state;
	bed_turn(b);
	assert_int_equal(b->sent_count, 2);
	assert_int_equal(b->sent[0].f.dc_stream, 1);
	assert_int_equal(b->sent[1].f.dc_stream, 2);
	assert_int_equal(b->sent[1].f.psn, 100);	/* each stream counts for itself */
	answer_stream(b, q, 1, 100, SMX_AETH_RNR | 31);
	answer_stream(b, q, 2, 100, 0x1f);
	assert_int_equal(bed_cqes(b), 1);
	bed_expect_ok(b, 0, other);
	third = post_to(b, q, 2, 0x501, 0);
	post_to(b, q, 1, 0x501, 0);
	bed_turn(b);
	assert_int_equal(b->sent_count, 3);
	answer_stream(b, q, 2, 101, 0x1f);
	bed_expect_ok(b, 1, third);
	assert_int_equal(q->qp.sq.ci, stuck);		/* the queue's end waits, the stream did not */

	b->now += 500000000;
	bed_turn(b);
	assert_int_equal(b->sent_count, 5);
	answer_stream(b, q, 1, 101, 0x1f);
	assert_int_equal(bed_cqes(b), 4);
	bed_expect_ok(b, 2, stuck);
	assert_int_equal(q->qp.sq.ci, q->qp.sq.pi);
	bed_qp_free(b, q);
	bed_free(b);
}

static void stream_ids_are_taken_modulo_the_streams(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp_streams(b, SMX_QP_DCI, 2, 2);

	(void)state;
	post_to(b, q, 6, 0x501, 0);
	post_to(b, q, 2, 0x501, 0);
	bed_turn(b);
	assert_int_equal(b->sent[0].f.dc_stream, 2);
	assert_int_equal(b->sent[1].f.dc_stream, 2);
	assert_int_equal(b->sent[1].f.psn, 101);
	bed_qp_free(b, q);
	bed_free(b);
}

static void an_error_stops_its_stream_until_it_is_reset(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp_streams(b, SMX_QP_DCI, 2, 1);
	uint16_t bad = post_to(b, q, 1, 0x501, 1), behind = post_to(b, q, 1, 0x501, 0);
	uint16_t good = post_to(b, q, 2, 0x501, 0), late;

	(void)state;
	bed_turn(b);
	assert_int_equal(q->qp.state, IBV_QPS_RTS);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(b->sent[0].f.dc_stream, 2);
	bed_expect_error(b, 0, bad, 0x04, 0x52, 0x93);
	bed_expect_error(b, 1, behind, 0x05, 0xf9, 0x93);
	late = post_to(b, q, 1, 0x501, 0);
	bed_turn(b);
	bed_expect_error(b, 2, late, 0x05, 0xf9, 0x93);
	answer_stream(b, q, 2, 100, 0x1f);
	bed_expect_ok(b, 3, good);

	assert_int_equal(smx_req_reset_stream(b->dev, &q->qp, 2), EINVAL);	/* that one is well */
	assert_int_equal(bed_refusal(b).check, SMX_CHECK_STREAM_NOT_ERRORED);
	assert_int_equal(smx_req_reset_stream(b->dev, &q->qp, 1), 0);
	assert_int_equal(smx_req_reset_stream(b->dev, &q->qp, 1), EINVAL);
	good = post_to(b, q, 1, 0x501, 0);
	bed_turn(b);
	assert_int_equal(b->sent[1].f.dc_stream, 1);
	assert_true(b->sent[1].f.dc_connect);
	answer_stream(b, q, 1, b->sent[1].f.psn, 0x1f);
	bed_expect_ok(b, 4, good);
	bed_qp_free(b, q);
	bed_free(b);
}

static void remote_errors_stop_a_stream_too_and_its_psns_go_on(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp_streams(b, SMX_QP_DCI, 2, 1);

	(void)state;
	post_to(b, q, 1, 0x501, 0);
	post_to(b, q, 1, 0x501, 0);
	bed_turn(b);
	answer_stream(b, q, 1, 100, SMX_AETH_NAK_ACCESS);
	bed_expect_error(b, 0, 0, 0x13, 0x88, 0);
	bed_expect_error(b, 1, 2, 0x05, 0xf9, 0);
	assert_int_equal(q->qp.state, IBV_QPS_RTS);
	answer_stream(b, q, 1, 101, 0x1f);	/* late */
	assert_int_equal(bed_cqes(b), 2);
	assert_int_equal(smx_req_reset_stream(b->dev, &q->qp, 1), 0);
	post_to(b, q, 1, 0x501, 0);
	bed_turn(b);
	assert_int_equal(b->sent[2].f.psn, 102);
	bed_qp_free(b, q);
	bed_free(b);
}

/* How many streams have to fail before the DCI does; log_streams 2. */
static void too_many_streams_in_error_end_the_dci(void **state)
{
	static const struct row { uint8_t log_streams, log_errored; uint16_t ends_at; } rows[] = {
		{ 0, 0, 1 }, { 2, 0, 1 }, { 2, 1, 2 }, { 2, 2, 4 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct bed *b = bed_new(1 << 20);
		struct bed_qp *q = bed_qp_streams(b, SMX_QP_DCI, rows[i].log_streams, rows[i].log_errored);
		uint16_t open = rows[i].ends_at, at = 0;

		if (open < 4 && rows[i].log_streams) {	/* one that is well, and executing */
			at = post_to(b, q, open, 0x501, 0);
			bed_turn(b);
		}
		for (uint16_t s = 0; s < rows[i].ends_at; s++) {
			assert_int_equal(q->qp.state, IBV_QPS_RTS);
			post_to(b, q, s, 0x501, 1);
			bed_turn(b);
			assert_int_equal(bed_cqe(b, s).syndrome, 0x04);
		}
		assert_int_equal(q->qp.state, IBV_QPS_ERR);
		if (open < 4 && rows[i].log_streams)
			bed_expect_error(b, open, at, 0x05, 0xf9, 0x93);

		/* RESET makes all streams well. */
		q->qp.state = IBV_QPS_RESET;
		smx_req_reset(&q->qp);
		q->pi = 0;
		memset(q->dbrec, 0, sizeof(q->dbrec));
		q->qp.state = IBV_QPS_RTS;
		smx_req_start(&q->qp);
		bed_clear(b);
		post_to(b, q, 0, 0x501, 0);
		bed_turn(b);
		assert_int_equal(b->sent_count, 1);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

static void a_wqe_whose_stream_cannot_be_known_ends_the_dci(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp_streams(b, SMX_QP_DCI, 2, 2);
	uint16_t at = post_to(b, q, 1, 0x501, 0);

	(void)state;
	((struct smx_wqe_ctrl *)(void *)q->ring)->opmod_idx_opcode = to_be32(9 << 8 | SMX_OP_SEND);
	bed_turn(b);
	bed_expect_error(b, 0, at, 0x02, 0x68, 0x01);
	assert_int_equal(q->qp.state, IBV_QPS_ERR);
	bed_qp_free(b, q);
	bed_free(b);
}

static void streams_wait_for_different_times(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp_streams(b, SMX_QP_DCI, 2, 2);

	(void)state;
	q->qp.cur.timeout = 0;
	for (uint16_t s = 0; s < 3; s++)
		post_to(b, q, s, 0x501, 0);
	bed_turn(b);
	answer_stream(b, q, 0, 100, SMX_AETH_RNR | 20);	/* 10.24 ms */
	answer_stream(b, q, 1, 100, SMX_AETH_RNR | 12);	/* 0.64 ms */
	answer_stream(b, q, 2, 100, SMX_AETH_RNR | 16);	/* 2.56 ms */
	assert_int_equal(b->dev->rnr_waiting, 3);
	bed_clear(b);
	assert_int_equal(bed_turn(b), 1000 + 640000);
	b->now = 1000 + 640000;
	assert_int_equal(bed_turn(b), 1000 + 2560000);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(b->sent[0].f.dc_stream, 1);
	b->now = 1000 + 2560000;
	assert_int_equal(bed_turn(b), 1000 + 10240000);
	assert_int_equal(b->sent[1].f.dc_stream, 2);
	b->now = 1000 + 10240000;
	assert_int_equal(bed_turn(b), UINT64_MAX);
	assert_int_equal(b->sent[2].f.dc_stream, 0);
	assert_int_equal(b->dev->rnr_waiting, 0);
	bed_qp_free(b, q);
	bed_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_request_names_its_target),
		cmocka_unit_test(answers_from_before_a_reset_are_not_heard),
		cmocka_unit_test(another_target_waits_for_the_answers_of_the_last),
		cmocka_unit_test(a_connect_that_is_sent_again_connects_again),
		cmocka_unit_test(a_stuck_stream_does_not_hold_the_others),
		cmocka_unit_test(stream_ids_are_taken_modulo_the_streams),
		cmocka_unit_test(an_error_stops_its_stream_until_it_is_reset),
		cmocka_unit_test(remote_errors_stop_a_stream_too_and_its_psns_go_on),
		cmocka_unit_test(too_many_streams_in_error_end_the_dci),
		cmocka_unit_test(a_wqe_whose_stream_cannot_be_known_ends_the_dci),
		cmocka_unit_test(streams_wait_for_different_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
