/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: requests that nobody answers, UD and UC: they complete when they are sent, and fail into SQE.
 * Method: as rc_req_test.c. */
#include "unit/xport/req_bed.h"

static struct smx_wqe_av make_av(uint32_t qpn, uint32_t qkey, uint8_t gid_index)
{
	return (struct smx_wqe_av){
		.qkey = to_be32(qkey), .dqp_dct = to_be32(SMX_AV_EXTENDED | qpn), .stat_rate_sl = 3,
		.rlid = to_be16(0xc123), .tclass = 9, .hop_limit = 64,
		.grh_gid_fl = to_be32(1u << 30 | (uint32_t)gid_index << 20 | 0x12345), .rgid = { 0xfe, 0x80, 7 },
	};
}

static uint16_t post_datagram(struct bed *b, struct bed_qp *q, uint32_t length, const struct smx_wqe_av *av)
{
	struct bed_wr wr = {
		.opcode = SMX_OP_SEND, .fm_ce_se = SMX_CTRL_CQ_UPDATE, .av = av, .sge_count = length ? 1 : 0,
		.sge = { { (uintptr_t)b->mem, length, b->mkey->key } },
	};

	return bed_post(b, q, &wr);
}

static void a_datagram_is_one_frame_and_done(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_UD);
	struct smx_wqe_av av = make_av(0x456, 0x1234, 0);
	const struct smx_frame *f = &b->sent[0].f;
	uint16_t at = post_datagram(b, q, 1024, &av);

	(void)state;
	assert_int_equal(bed_turn(b), UINT64_MAX);	/* and no timer */
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(f->transport, SMX_TP_UD);
	assert_true(f->first && f->last);
	assert_int_equal(f->dst_qpn, 0x456);
	assert_int_equal(f->qkey, 0x1234);
	assert_int_equal(f->length, 1024);
	assert_int_equal(f->psn_count, 1);
	assert_int_equal(f->sl, 3);
	assert_int_equal(f->hop_limit, 64);
	assert_int_equal(f->traffic_class, 9);
	assert_int_equal(f->flow_label, 0x12345);
	assert_int_equal(f->udp_sport, 0xc123);
	assert_memory_equal(f->dgid, av.rgid, 16);
	assert_memory_equal(f->sgid, av.rgid, 16);	/* no GIDs were told */
	bed_expect_ok(b, 0, at);
	post_datagram(b, q, 0, &av);
	bed_turn(b);
	assert_int_equal(b->sent[1].f.psn, (f->psn + 1) & 0xffffff);
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_controlled_qkey_is_the_queue_pairs_own(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_UD);
	struct smx_wqe_av av = make_av(0x456, 0x80000000, 0);

	(void)state;
	post_datagram(b, q, 8, &av);
	bed_turn(b);
	assert_int_equal(b->sent[0].f.qkey, 0x11112222);
	bed_qp_free(b, q);
	bed_free(b);
}

static void source_gids_are_those_of_the_port(void **state)
{
	static const uint8_t gid[16] = { 1, 2, 3 };
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_UD);
	struct smx_wqe_av good = make_av(0x456, 1, 2), bad = make_av(0x456, 1, 1), far = make_av(0x456, 1, 200);

	(void)state;
	smx_dev_set_gid(b->dev, 2, gid);
	post_datagram(b, q, 8, &good);
	bed_turn(b);
	assert_memory_equal(b->sent[0].f.sgid, gid, 16);
	for (int i = 0; i < 2; i++) {
		post_datagram(b, q, 8, i ? &far : &bad);
		bed_turn(b);
		assert_int_equal(b->sent_count, 1);
		assert_int_equal(bed_refusal(b).check, SMX_CHECK_WQE_AH);
		q->qp.state = IBV_QPS_RTS;
	}
	bed_qp_free(b, q);
	bed_free(b);
}

/* An error moves the send queue to SQE: what is behind is flushed until the program brings it back. */
static void a_failed_datagram_leads_to_sqe(void **state)
{
	static const struct row { uint32_t length, key_off; uint8_t syndrome, vendor, hw; } rows[] = {
		{ 1025, 0, 0x01, 0x68, 0x00 },		/* MTU 1024 */
		{ 8, 1, 0x04, 0x52, 0x93 },
		{ 1000, 0, 0x04, 0x53, 0x9d },		/* range: not even whole packets leave */
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct bed *b = bed_new(1 << 20);
		struct bed_qp *q = bed_qp(b, SMX_QP_UD);
		struct smx_wqe_av av = make_av(0x456, 1, 0);
		struct bed_wr wr = {
			.opcode = SMX_OP_SEND, .av = &av, .sge_count = 1,
			.sge = { { (uintptr_t)b->mem, rows[i].length, b->mkey->key + rows[i].key_off } },
		};
		uint16_t at, behind;

		if (i == 2)
			wr.sge[0].va = (uintptr_t)b->mem + BED_MEM - 500;
		at = bed_post(b, q, &wr);
		behind = post_datagram(b, q, 8, &av);
		bed_turn(b);
		assert_int_equal(b->sent_count, 0);
		assert_int_equal(bed_cqes(b), 2);
		bed_expect_error(b, 0, at, rows[i].syndrome, rows[i].vendor, rows[i].hw);
		bed_expect_error(b, 1, behind, 0x05, 0xf9, rows[i].hw);
		assert_int_equal(q->qp.state, IBV_QPS_SQE);
		post_datagram(b, q, 8, &av);
		bed_turn(b);
		assert_int_equal(bed_cqes(b), 3);	/* flushed as well */

		q->qp.state = IBV_QPS_RTS;
		smx_req_start(&q->qp);
		at = post_datagram(b, q, 8, &av);
		bed_turn(b);
		assert_int_equal(b->sent_count, 1);
		bed_expect_ok(b, 3, at);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

static void what_is_behind_a_failure_is_behind_it_in_err_too(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_UD);
	struct smx_wqe_av av = make_av(0x456, 1, 0);
	uint16_t at;

	(void)state;
	post_datagram(b, q, 1025, &av);
	bed_turn(b);
	at = post_datagram(b, q, 8, &av);	/* not looked at before the move */
	q->qp.state = IBV_QPS_ERR;
	smx_req_flush(b->dev, &q->qp);
	bed_expect_error(b, 1, at, 0x05, 0xf9, 0);
	bed_qp_free(b, q);
	bed_free(b);
}

static void uc_messages_are_cut_and_complete_when_sent(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_UC);
	uint16_t at = bed_write(b, q, 3000);

	(void)state;
	b->dev->attr.turn_budget_bytes = 1;	/* a frame a turn */
	assert_int_equal(smx_dev_turn(b->dev), 0);
	assert_int_equal(bed_cqes(b), 0);
	assert_int_equal(b->dev->timers, 0);
	assert_int_equal(bed_turn(b), UINT64_MAX);
	assert_int_equal(b->sent_count, 3);
	assert_int_equal(b->sent[0].f.transport, SMX_TP_UC);
	bed_expect_ok(b, 0, at);
	bed_nak(b, q, 100, SMX_AETH_NAK_ACCESS, 0);	/* nobody may answer */
	assert_int_equal(q->qp.state, IBV_QPS_RTS);
	bed_qp_free(b, q);
	bed_free(b);
}

static void what_a_type_cannot_do_is_refused(void **state)
{
	static const struct row { enum smx_qp_type type; uint8_t opcode; } rows[] = {
		{ SMX_QP_UD, SMX_OP_RDMA_WRITE }, { SMX_QP_UD, SMX_OP_RDMA_READ }, { SMX_QP_UC, SMX_OP_RDMA_READ },
		{ SMX_QP_UC, SMX_OP_ATOMIC_FA },
	};
	struct smx_wqe_av av = make_av(0x456, 1, 0);

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct bed *b = bed_new(0);
		struct bed_qp *q = bed_qp(b, rows[i].type);
		struct bed_wr wr = { .opcode = rows[i].opcode, .av = rows[i].type == SMX_QP_UD ? &av : NULL };

		bed_post(b, q, &wr);
		bed_turn(b);
		assert_int_equal(b->sent_count, 0);
		bed_expect_error(b, 0, 0, 0x02, 0x68, 0);
		assert_int_equal(bed_refusal(b).check, SMX_CHECK_WQE_QP_OPCODE);
		assert_int_equal(q->qp.state, IBV_QPS_SQE);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_datagram_is_one_frame_and_done),
		cmocka_unit_test(a_controlled_qkey_is_the_queue_pairs_own),
		cmocka_unit_test(source_gids_are_those_of_the_port),
		cmocka_unit_test(a_failed_datagram_leads_to_sqe),
		cmocka_unit_test(what_is_behind_a_failure_is_behind_it_in_err_too),
		cmocka_unit_test(uc_messages_are_cut_and_complete_when_sent),
		cmocka_unit_test(what_a_type_cannot_do_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
