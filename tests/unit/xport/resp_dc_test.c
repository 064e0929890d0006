/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: a DC target keeps its sources apart, refuses without going into error, and knows a copy from a connect.
 * Method: scripted frames of several DCIs and streams. */
#include "unit/xport/resp_rig.h"

enum { KEY = 0x1234 };

static struct rig *open_dct(void)
{
	struct rig *r = rig_new();

	rig_add_srq(r, NULL);
	r->qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_DCT, .srq = r->srq, .dc_key = KEY });
	r->qpn = r->qp->qpn;
	rig_bring_up(r, r->qp, RIG_ALL, false);
	return r;
}

static struct smx_frame dc_frame(struct rig *r, enum smx_frame_op op, uint64_t length, uint32_t src,
				 uint16_t stream, uint32_t psn, bool connect)
{
	struct smx_frame f = rig_frame(r, op, length);

	f.src_qpn = src;
	f.dc_stream = stream;
	f.dc_key = KEY;
	f.psn = psn;
	f.dc_connect = connect;
	return f;
}

static void expect(struct rig *r, uint32_t answers, uint32_t dst, uint16_t stream, uint32_t psn)
{
	const struct rig_answer *a = rig_last(r);

	assert_int_equal(r->answers, answers);
	assert_int_equal(a->f.syndrome & 0x60, SMX_AETH_ACK);
	assert_int_equal(a->f.transport, SMX_TP_DC);
	assert_int_equal(a->f.dst_qpn, dst);
	assert_int_equal(a->f.dc_stream, stream);
	assert_int_equal(a->f.psn, psn);
}

static void keeps_sources_apart(void **state)
{
	struct rig *r = open_dct();

	(void)state;
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, 1, 0, 500, true));
	expect(r, 1, 1, 0, 500);
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, 1, 1, 9, true));
	expect(r, 2, 1, 1, 9);
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, 2, 0, 77, true));
	expect(r, 3, 2, 0, 77);
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, 1, 0, 501, false));
	expect(r, 4, 1, 0, 501);
	for (uint16_t stream = 2; stream < 300; stream++) {
		rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, 1, stream, stream, true));
		expect(r, 3u + stream, 1, stream, stream);
	}
	assert_int_equal(r->qp->resp->sources, 301);
	r->answers = 4;
	/* A source that never connected. */
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, 3, 0, 1, false));
	assert_int_equal(r->answers, 4);
	rig_close(r);
}

static void receives_name_their_source(void **state)
{
	struct rig *r = open_dct();
	struct smx_frame f = dc_frame(r, SMX_FRAME_SEND, 8, 0x77, 3, 500, true);
	const struct smx_cqe64 *cqe;

	(void)state;
	rig_deliver(r, f);
	assert_int_equal(rig_last(r)->f.syndrome, SMX_AETH_RNR | 12);
	assert_int_equal(rig_last(r)->f.dc_stream, 3);
	rig_post_recv(r, r->key, 0, 64);
	rig_deliver(r, f);
	expect(r, 2, 0x77, 3, 500);
	cqe = rig_cqe(r);
	assert_int_equal(from_be32(cqe->flags_rqpn) & 0xffffff, 0x77);
	assert_int_equal(from_be32(cqe->flags_rqpn) >> 24 & 15, SMX_CQE_ROCE_UDP | SMX_CQE_ROCE_IPV4);
	assert_int_equal(from_be32(cqe->srqn_uidx), r->srq->srqn);
	rig_expect_written(r, 0, 8);
	rig_close(r);
}

static const struct refuse_row {
	const char *name;
	bool bad_dc_key, bad_rkey;
	enum smx_frame_op op;
	uint32_t access;
	uint8_t nak;
	enum smx_check want;
} refusals[] = {
	{ "dc key", true, false, SMX_FRAME_WRITE, RIG_ALL, SMX_AETH_NAK_ACCESS, SMX_CHECK_REMOTE_DC_KEY },
	{ "dc key before rkey", true, true, SMX_FRAME_WRITE, RIG_ALL, SMX_AETH_NAK_ACCESS,
	  SMX_CHECK_REMOTE_DC_KEY },
	{ "rkey", false, true, SMX_FRAME_WRITE, RIG_ALL, SMX_AETH_NAK_ACCESS, SMX_CHECK_REMOTE_KEY },
	{ "access", false, false, SMX_FRAME_READ_REQUEST, IBV_ACCESS_REMOTE_WRITE, SMX_AETH_NAK_INVALID,
	  SMX_CHECK_REMOTE_QP_ACCESS },
};

static void refuses_and_lives_on(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		struct rig *r = open_dct();
		struct smx_frame f = dc_frame(r, refusals[i].op, 8, 1, 0, 500, true), ok;

		print_message("%s\n", refusals[i].name);
		r->qp->cur.qp_access_flags = refusals[i].access;
		f.dc_key += refusals[i].bad_dc_key;
		f.rkey ^= refusals[i].bad_rkey;
		rig_deliver(r, f);
		rig_expect_nak(r, refusals[i].nak, 500, refusals[i].want);
		rig_expect_written(r, 0, 0);
		assert_int_equal(smx_qp_state(r->qp), IBV_QPS_RTR);
		/* The stream is dead: copies, and what was sent behind, find nobody. */
		rig_deliver(r, f);
		ok = dc_frame(r, SMX_FRAME_WRITE, 8, 1, 0, 501, false);
		rig_deliver(r, ok);
		assert_int_equal(r->answers, 1);
		/* Others are served, and so is the same stream when it connects again. */
		rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, 2, 0, 5, true));
		expect(r, 2, 2, 0, 5);
		ok.psn = 502;
		ok.dc_connect = true;
		rig_deliver(r, ok);
		expect(r, 3, 1, 0, 502);
		rig_close(r);
	}
}

/* A READ counts before it is answered: what is refused of it lies behind the number that is expected next. */
static void connects_right_behind_a_refusal(void **state)
{
	struct rig *r = open_dct();
	struct smx_frame read = dc_frame(r, SMX_FRAME_READ_REQUEST, 0, 1, 0, 500, true);

	(void)state;
	read.dma_length = 8;
	read.rkey ^= 1;
	rig_deliver(r, read);
	rig_expect_nak(r, SMX_AETH_NAK_ACCESS, 500, SMX_CHECK_REMOTE_KEY);
	rig_deliver(r, read);
	assert_int_equal(r->answers, 1);
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, 1, 0, 501, true));
	expect(r, 2, 1, 0, 501);
	rig_expect_written(r, 0, 8);
	rig_close(r);
}

static void knows_a_copy_from_a_connect(void **state)
{
	struct rig *r = open_dct();
	struct smx_qp *dci = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_DCI });

	(void)state;
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, dci->qpn, 0, 500, true));
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, dci->qpn, 0, 501, false));
	memset(r->mem, 0, 8);
	/* A late copy of the first frame: answered, not executed. */
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, dci->qpn, 0, 500, true));
	expect(r, 3, dci->qpn, 0, 501);
	rig_expect_written(r, 0, 0);
	/* Back from another target: the numbers between went there. */
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, dci->qpn, 0, 600, true));
	expect(r, 4, dci->qpn, 0, 600);
	rig_expect_written(r, 0, 8);
	/* The DCI was reset: its numbers may start anywhere. */
	smx_resp_dc_forget_source(r->dev, dci);
	memset(r->mem, 0, 8);
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, dci->qpn, 0, 500, true));
	expect(r, 5, dci->qpn, 0, 500);
	rig_expect_written(r, 0, 8);
	rig_close(r);
}

/* A source that vanishes inside a message leaves its receive behind, in error. */
static void aborts_what_a_new_connect_cuts(void **state)
{
	static const uint32_t psns[] = { 501, 600 };	/* the next number, or one further on */

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct rig *r = open_dct();
		struct smx_frame f = dc_frame(r, SMX_FRAME_SEND, 2048, 1, 0, 500, true);

		rig_post_recv(r, r->key, 0, 4096);
		f.length = 1024;
		f.last = false;
		rig_deliver(r, f);
		assert_null(rig_cqe(r));
		rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 0, 1, 0, psns[i], true));
		rig_expect_error_cqe(r, SMX_CHECK_RECV_ABORTED);
		expect(r, 2, 1, 0, psns[i]);
		rig_close(r);
	}
}

static void forgets_the_one_unused_longest(void **state)
{
	struct rig *r = open_dct();

	(void)state;
	for (uint32_t src = 1; src <= SMX_RESP_DC_SOURCES; src++)
		rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 0, src, 0, 10, true));
	assert_int_equal(r->qp->resp->sources, SMX_RESP_DC_SOURCES);
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 0, 1, 0, 11, false));	/* source 2 is the oldest now */
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 0, 5000, 0, 10, true));
	assert_int_equal(r->qp->resp->sources, SMX_RESP_DC_SOURCES);
	r->answers = 0;
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 0, 2, 0, 11, false));
	assert_int_equal(r->answers, 0);
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 0, 1, 0, 12, false));
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 0, 3, 0, 11, false));
	assert_int_equal(r->answers, 2);
	rig_close(r);
}

static void is_silent_before_rtr(void **state)
{
	struct rig *r = rig_new();

	(void)state;
	rig_add_srq(r, NULL);
	r->qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_DCT, .srq = r->srq, .dc_key = KEY });
	rig_deliver(r, dc_frame(r, SMX_FRAME_WRITE, 8, 1, 0, 500, true));
	assert_int_equal(r->answers, 0);
	rig_expect_written(r, 0, 0);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_sources_apart),
		cmocka_unit_test(receives_name_their_source),
		cmocka_unit_test(refuses_and_lives_on),
		cmocka_unit_test(knows_a_copy_from_a_connect),
		cmocka_unit_test(connects_right_behind_a_refusal),
		cmocka_unit_test(aborts_what_a_new_connect_cuts),
		cmocka_unit_test(forgets_the_one_unused_longest),
		cmocka_unit_test(is_silent_before_rtr),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
