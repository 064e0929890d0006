/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: what leaves the requester, and when it stops.
 * Method: a port that keeps every frame; answers are given by hand. */
#include "unit/xport/req_bed.h"

static void a_write_is_one_frame_and_completes_with_its_ack(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t at = bed_write(b, q, 3000);
	const struct smx_frame *f = &b->sent[0].f;

	(void)state;
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(f->op, SMX_FRAME_WRITE);
	assert_true(f->first && f->last && f->ack_request);
	assert_false(f->has_imm || f->has_invalidate || f->solicited);
	assert_int_equal(f->psn, 100);
	assert_int_equal(f->psn_count, 3);
	assert_int_equal(f->va, 0x10000);
	assert_int_equal(f->rkey, 0x900);
	assert_int_equal(f->dma_length, 3000);
	assert_int_equal(f->mtu_bytes, 1024);
	assert_int_equal(f->src_qpn, q->qp.qpn);
	assert_int_equal(f->dst_qpn, BED_PEER);
	assert_memory_equal(b->sent[0].data, b->mem, 3000);
	assert_int_equal(bed_cqes(b), 0);

	bed_ack(b, q, 102);
	assert_int_equal(bed_cqes(b), 1);
	bed_expect_ok(b, 0, at);
	assert_int_equal(bed_cqe(b, 0).opcode, SMX_OP_RDMA_WRITE);
	assert_int_equal(bed_cqe(b, 0).qpn, q->qp.qpn);
	assert_int_equal(bed_cqe(b, 0).user_index, 0x77);
	assert_int_equal(q->qp.sq.ci, q->qp.sq.pi);
	bed_qp_free(b, q);
	bed_free(b);
}

/* How a message is cut, by what the port carries. PSNs count packets of the MTU, 1024. */
static void messages_are_cut_at_whole_packets(void **state)
{
	static const struct row {
		uint64_t payload;
		uint32_t length, frames, first_bytes, first_psns, next_psn;
	} rows[] = {
		{ 0,       0,    1, 0,    1, 101 },
		{ 0,       1,    1, 1,    1, 101 },
		{ 0,       1024, 1, 1024, 1, 101 },
		{ 0,       1025, 2, 1024, 1, 102 },
		{ 0,       5000, 5, 1024, 1, 105 },
		{ 100,     5000, 5, 1024, 1, 105 },
		{ 2048,    5000, 3, 2048, 2, 105 },
		{ 3000,    5000, 3, 2048, 2, 105 },
		{ 4096,    8192, 2, 4096, 4, 108 },
		{ 1 << 20, 5000, 1, 5000, 5, 105 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct bed *b = bed_new(r->payload);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		uint64_t off = 0;
		uint32_t psn = 100;

		bed_send(b, q, r->length);
		bed_turn(b);
		assert_int_equal(b->sent_count, r->frames);
		assert_int_equal(b->sent[0].f.length, r->first_bytes);
		assert_int_equal(b->sent[0].f.psn_count, r->first_psns);
		for (uint32_t k = 0; k < r->frames; k++) {
			const struct smx_frame *f = &b->sent[k].f;

			assert_int_equal(f->op, SMX_FRAME_SEND);
			assert_int_equal(f->first, k == 0);
			assert_int_equal(f->last, k == r->frames - 1);
			assert_int_equal(f->ack_request, k == r->frames - 1);
			assert_int_equal(f->psn, psn);
			if (f->length)
				assert_memory_equal(b->sent[k].data, b->mem + off, f->length);
			psn += f->psn_count;
			off += f->length;
		}
		assert_int_equal(off, r->length);
		assert_int_equal(psn, r->next_psn);
		bed_write(b, q, 1);
		bed_turn(b);
		assert_int_equal(b->sent[r->frames].f.psn, r->next_psn);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

static void a_long_message_asks_for_an_ack_now_and_then(void **state)
{
	struct bed *b = bed_new(0);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	unsigned int asked = 0;

	(void)state;
	q->qp.cur.path_mtu = IBV_MTU_256;
	bed_write(b, q, 256 * 200);
	bed_turn(b);
	assert_int_equal(b->sent_count, 200);
	for (unsigned int i = 0; i < 200; i++)
		asked += b->sent[i].f.ack_request;
	assert_int_equal(asked, 4);
	assert_true(b->sent[63].f.ack_request);
	assert_true(b->sent[199].f.ack_request);
	bed_qp_free(b, q);
	bed_free(b);
}

static void immediate_invalidate_and_solicited_are_on_the_last_frame(void **state)
{
	static const struct row { uint8_t opcode; bool imm, inv; uint8_t op; } rows[] = {
		{ SMX_OP_SEND,		 false, false, SMX_FRAME_SEND },
		{ SMX_OP_SEND_IMM,	 true,  false, SMX_FRAME_SEND },
		{ SMX_OP_SEND_INVAL,	 false, true,  SMX_FRAME_SEND },
		{ SMX_OP_RDMA_WRITE,	 false, false, SMX_FRAME_WRITE },
		{ SMX_OP_RDMA_WRITE_IMM, true,  false, SMX_FRAME_WRITE },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct bed *b = bed_new(0);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		struct bed_wr wr = {
			.opcode = rows[i].opcode, .fm_ce_se = SMX_CTRL_SOLICITED, .imm = htobe32(0x12345678),
			.sge_count = 1, .sge = { { (uintptr_t)b->mem, 1500, b->mkey->key } },
		};
		const struct smx_frame *last = &b->sent[1].f;

		bed_post(b, q, &wr);
		bed_turn(b);
		assert_int_equal(b->sent_count, 2);
		assert_false(b->sent[0].f.has_imm || b->sent[0].f.has_invalidate || b->sent[0].f.solicited);
		assert_int_equal(last->op, rows[i].op);
		assert_int_equal(last->has_imm, rows[i].imm);
		assert_int_equal(last->has_invalidate, rows[i].inv);
		assert_true(last->solicited);
		if (rows[i].imm)
			assert_int_equal(last->imm, htobe32(0x12345678));
		if (rows[i].inv)
			assert_int_equal(last->imm, 0x12345678);
		bed_ack(b, q, 101);
		assert_int_equal(bed_cqes(b), 0);	/* not signaled */
		assert_int_equal(q->qp.sq.ci, q->qp.sq.pi);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

static void inline_data_lies_together_also_round_the_rings_end(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	struct bed_wr wr = {
		.opcode = SMX_OP_SEND, .fm_ce_se = SMX_CTRL_CQ_UPDATE, .inline_data = b->mem, .inline_bytes = 200,
	};

	(void)state;
	b->on_send = bed_ack_all;
	for (int i = 0; i < 40; i++) {	/* four blocks each: wraps the ring of 64 at every alignment */
		wr.inline_bytes = 140 + (uint32_t)i;
		bed_post(b, q, &wr);
		bed_turn(b);
		assert_int_equal(b->sent[i].f.length, wr.inline_bytes);
		assert_memory_equal(b->sent[i].data, b->mem, wr.inline_bytes);
	}
	assert_int_equal(bed_cqes(b), 40);
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_read_takes_a_psn_for_each_packet_of_its_answer(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	bed_read(b, q, 5000);
	bed_atomic(b, q);
	bed_write(b, q, 8);
	bed_turn(b);
	assert_int_equal(b->sent_count, 3);
	assert_int_equal(b->sent[0].f.op, SMX_FRAME_READ_REQUEST);
	assert_int_equal(b->sent[0].f.psn_count, 5);
	assert_int_equal(b->sent[0].f.dma_length, 5000);
	assert_int_equal(b->sent[0].f.va, 0x20000);
	assert_int_equal(b->sent[0].f.length, 0);
	assert_int_equal(b->sent[1].f.op, SMX_FRAME_ATOMIC_REQUEST);
	assert_int_equal(b->sent[1].f.psn, 105);
	assert_int_equal(b->sent[1].f.atomic_op, SMX_ATOMIC_CS);
	assert_int_equal(b->sent[1].f.atomic[0], 5);
	assert_int_equal(b->sent[1].f.atomic[1], 6);
	assert_int_equal(b->sent[2].f.psn, 106);
	bed_qp_free(b, q);
	bed_free(b);
}

/* On media with long frames a long READ is asked for in parts, each when the one before has come. */
static void a_long_read_is_asked_for_in_parts(void **state)
{
	struct bed *b = bed_new(4096);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	uint16_t at = bed_read(b, q, 10000);

	(void)state;
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(b->sent[0].f.dma_length, 4096);
	assert_int_equal(b->sent[0].f.psn_count, 4);
	bed_read_response(b, q, 100, 4, 4096, 0, true);
	bed_turn(b);
	assert_int_equal(b->sent_count, 2);
	assert_int_equal(b->sent[1].f.psn, 104);
	assert_int_equal(b->sent[1].f.va, 0x20000 + 4096);
	bed_read_response(b, q, 104, 4, 4096, 4096, true);
	bed_turn(b);
	assert_int_equal(b->sent_count, 3);
	assert_int_equal(b->sent[2].f.dma_length, 10000 - 8192);
	assert_int_equal(bed_cqes(b), 0);
	bed_read_response(b, q, 108, 2, 10000 - 8192, 8192, true);
	bed_expect_ok(b, 0, at);
	for (uint32_t i = 0; i < 10000; i++)
		assert_int_equal(b->mem[BED_MEM / 2 + i], bed_byte(i));
	bed_qp_free(b, q);
	bed_free(b);
}

static void outstanding_reads_are_limited(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	q->qp.cur.max_rd_atomic = 2;
	bed_read(b, q, 8);
	bed_atomic(b, q);
	bed_atomic(b, q);
	bed_write(b, q, 8);
	bed_turn(b);
	assert_int_equal(b->sent_count, 2);
	bed_read_response(b, q, 100, 1, 8, 0, true);
	bed_turn(b);
	assert_int_equal(b->sent_count, 4);	/* the third of them, and the WRITE that was behind it */
	assert_int_equal(b->sent[3].f.op, SMX_FRAME_WRITE);
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_limit_of_no_reads_still_lets_one_out(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	q->qp.cur.max_rd_atomic = 0;
	bed_read(b, q, 8);
	bed_read(b, q, 8);
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_fence_waits_for_reads_and_a_small_one_does_not(void **state)
{
	static const struct row { uint8_t fence; bool waits; } rows[] = {
		{ 0, false }, { SMX_CTRL_SMALL_FENCE, false }, { 2 << 5, true }, { 3 << 5, true },
		{ SMX_CTRL_FENCE, true },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct bed *b = bed_new(1 << 20);
		struct bed_qp *q = bed_qp(b, SMX_QP_RC);
		struct bed_wr wr = { .opcode = SMX_OP_SEND, .fm_ce_se = rows[i].fence };

		bed_write(b, q, 8);
		bed_read(b, q, 8);
		bed_post(b, q, &wr);
		bed_turn(b);
		assert_int_equal(b->sent_count, rows[i].waits ? 2 : 3);
		bed_ack(b, q, 100);	/* of the WRITE: no reason to go on */
		bed_turn(b);
		assert_int_equal(b->sent_count, rows[i].waits ? 2 : 3);
		bed_read_response(b, q, 101, 1, 8, 0, true);
		bed_turn(b);
		assert_int_equal(b->sent_count, 3);
		bed_qp_free(b, q);
		bed_free(b);
	}
}

/* A NOP stands for UMR, invalidate and memcpy: what the device does by itself. */
static void local_work_waits_for_what_is_before_it(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);
	struct bed_wr nop = { .opcode = SMX_OP_NOP, .fm_ce_se = SMX_CTRL_CQ_UPDATE };
	uint16_t first = bed_write(b, q, 8), second = bed_post(b, q, &nop);
	uint16_t third = bed_write(b, q, 8);

	(void)state;
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(bed_cqes(b), 0);
	bed_ack(b, q, 100);
	bed_turn(b);
	bed_ack(b, q, 101);
	assert_int_equal(bed_cqes(b), 3);
	bed_expect_ok(b, 0, first);
	bed_expect_ok(b, 1, second);
	bed_expect_ok(b, 2, third);
	bed_qp_free(b, q);
	bed_free(b);
}

static void a_turn_stops_in_the_middle_of_a_message(void **state)
{
	struct bed *b = bed_new(4096);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC), *r = bed_qp(b, SMX_QP_RC);
	unsigned int turns = 1;

	(void)state;
	b->on_send = bed_ack_all;
	b->dev->attr.turn_budget_bytes = 8192;
	bed_write(b, q, 30000);
	bed_write(b, r, 8);
	assert_int_equal(smx_dev_turn(b->dev), 0);
	assert_int_equal(b->sent_count, 2);
	/* The short one does not wait for the long one's end. */
	assert_int_equal(smx_dev_turn(b->dev), 0);
	assert_int_equal(b->sent[2].f.src_qpn, r->qp.qpn);
	while (!smx_dev_turn(b->dev))
		turns++;
	assert_true(turns >= 2);
	assert_int_equal(bed_cqes(b), 2);
	for (unsigned int i = 0, k = 0; i < b->sent_count; i++) {
		if (b->sent[i].f.src_qpn != q->qp.qpn)
			continue;
		assert_memory_equal(b->sent[i].data, b->mem + k * 4096, b->sent[i].f.length);
		k++;
	}
	bed_qp_free(b, q);
	bed_qp_free(b, r);
	bed_free(b);
}

static void nothing_starts_in_sqd_and_what_started_is_finished(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	q->qp.cur.en_sqd_async_notify = 1;
	bed_write(b, q, 8);
	bed_turn(b);
	q->qp.state = IBV_QPS_SQD;
	q->qp.cur.sq_draining = 1;
	bed_write(b, q, 8);
	bed_turn(b);
	assert_int_equal(b->sent_count, 1);
	assert_int_equal(b->event_count, 0);
	bed_ack(b, q, 100);
	assert_int_equal(b->event_count, 1);
	assert_int_equal(b->event[0], IBV_EVENT_SQ_DRAINED);
	assert_int_equal(q->qp.cur.sq_draining, 0);
	assert_int_equal(bed_cqes(b), 1);
	bed_turn(b);
	assert_int_equal(b->event_count, 1);

	q->qp.state = IBV_QPS_RTS;
	smx_req_start(&q->qp);
	bed_turn(b);
	assert_int_equal(b->sent_count, 2);
	assert_int_equal(b->sent[1].f.psn, 101);	/* counters go on */
	bed_qp_free(b, q);
	bed_free(b);
}

static void an_idle_queue_is_drained_at_once_and_quietly_if_not_asked(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	for (int asked = 0; asked < 2; asked++) {
		q->qp.state = IBV_QPS_SQD;
		q->qp.cur.en_sqd_async_notify = (uint8_t)asked;
		smx_req_kick(b->dev, &q->qp);
		bed_turn(b);
		assert_int_equal(b->event_count, asked);
		q->qp.state = IBV_QPS_RTS;
		smx_req_kick(b->dev, &q->qp);
		bed_turn(b);
	}
	bed_qp_free(b, q);
	bed_free(b);
}

/* The ring, its 16-bit doorbell and the 24-bit PSN all wrap. */
static void counters_wrap(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	b->on_send = bed_ack_all;
	smx_req_reset(&q->qp);
	q->qp.cur.sq_psn = 0xffff00;
	smx_req_start(&q->qp);
	for (uint32_t i = 0; i < 70000; i++) {
		uint16_t at = bed_write(b, q, 8);

		assert_int_equal(at, (uint16_t)i);
		bed_turn(b);
		assert_int_equal(bed_cqes(b), i + 1);
		bed_expect_ok(b, i, at);
		assert_int_equal(b->sent[0].f.psn, (0xffff00 + i) & 0xffffff);
		bed_clear(b);
	}
	bed_qp_free(b, q);
	bed_free(b);
}

static void reset_forgets_everything(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC);

	(void)state;
	bed_write(b, q, 8);
	bed_read(b, q, 8);
	bed_turn(b);
	assert_true(b->dev->timers);
	q->qp.state = IBV_QPS_RESET;
	smx_req_reset(&q->qp);
	assert_int_equal(b->dev->timers, 0);
	q->pi = 0;
	memset(q->dbrec, 0, sizeof(q->dbrec));
	bed_ack(b, q, 101);
	assert_int_equal(bed_turn(b), UINT64_MAX);
	assert_int_equal(bed_cqes(b), 0);

	q->qp.state = IBV_QPS_RTS;
	q->qp.cur.sq_psn = 7;
	smx_req_start(&q->qp);
	bed_clear(b);
	bed_write(b, q, 8);
	bed_turn(b);
	assert_int_equal(b->sent[0].f.psn, 7);
	bed_ack(b, q, 7);
	assert_int_equal(bed_cqes(b), 1);
	bed_qp_free(b, q);
	bed_free(b);
}

static void frames_follow_the_path_of_the_queue_pair(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_RC), *r = bed_qp(b, SMX_QP_RC);

	(void)state;
	q->qp.path = (struct smx_path){ .dgid = { 1 }, .sgid = { 2 }, .udp_sport = 0xc000, .hop_limit = 9 };
	bed_write(b, q, 8);
	bed_turn(b);
	assert_int_equal(b->sent[0].f.dgid[0], 1);
	assert_int_equal(b->sent[0].f.sgid[0], 2);
	assert_int_equal(b->sent[0].f.hop_limit, 9);
	assert_int_equal(b->sent[0].f.udp_sport, 0xc000);
	q->qp.path.udp_sport = 55555;
	bed_write(b, q, 8);
	bed_write(b, r, 8);
	bed_turn(b);
	assert_int_equal(b->sent[1].f.udp_sport, 55555);
	assert_int_equal(b->sent[2].f.src_qpn, r->qp.qpn);
	assert_int_equal(b->sent[2].f.udp_sport, 0);
	bed_qp_free(b, q);
	bed_qp_free(b, r);
	bed_free(b);
}

static void xrc_frames_name_the_receive_queue(void **state)
{
	struct bed *b = bed_new(1 << 20);
	struct bed_qp *q = bed_qp(b, SMX_QP_XRC_INI);
	struct bed_wr wr = { .opcode = SMX_OP_SEND, .xrc_srqn = 0x345, .fm_ce_se = SMX_CTRL_CQ_UPDATE };

	(void)state;
	bed_post(b, q, &wr);
	bed_turn(b);
	assert_int_equal(b->sent[0].f.transport, SMX_TP_XRC);
	assert_int_equal(b->sent[0].f.xrc_srqn, 0x345);
	bed_ack(b, q, 100);
	assert_int_equal(bed_cqes(b), 1);
	bed_qp_free(b, q);
	bed_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_is_one_frame_and_completes_with_its_ack),
		cmocka_unit_test(messages_are_cut_at_whole_packets),
		cmocka_unit_test(a_long_message_asks_for_an_ack_now_and_then),
		cmocka_unit_test(immediate_invalidate_and_solicited_are_on_the_last_frame),
		cmocka_unit_test(inline_data_lies_together_also_round_the_rings_end),
		cmocka_unit_test(a_read_takes_a_psn_for_each_packet_of_its_answer),
		cmocka_unit_test(a_long_read_is_asked_for_in_parts),
		cmocka_unit_test(outstanding_reads_are_limited),
		cmocka_unit_test(a_limit_of_no_reads_still_lets_one_out),
		cmocka_unit_test(a_fence_waits_for_reads_and_a_small_one_does_not),
		cmocka_unit_test(local_work_waits_for_what_is_before_it),
		cmocka_unit_test(a_turn_stops_in_the_middle_of_a_message),
		cmocka_unit_test(nothing_starts_in_sqd_and_what_started_is_finished),
		cmocka_unit_test(an_idle_queue_is_drained_at_once_and_quietly_if_not_asked),
		cmocka_unit_test(counters_wrap),
		cmocka_unit_test(reset_forgets_everything),
		cmocka_unit_test(frames_follow_the_path_of_the_queue_pair),
		cmocka_unit_test(xrc_frames_name_the_receive_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
