/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: messages meet receives: what is stored, what completes on which side, and what happens when they do
 * not fit.
 * Method: scripted SENDs and datagrams; CQEs, answers and memory are compared. */
#include "unit/xport/resp_rig.h"

static uint32_t bytes_of(const struct smx_cqe64 *cqe)
{
	return from_be32(cqe->byte_cnt);
}

static const struct kind_row {
	const char *name;
	enum smx_frame_op op;
	bool imm, inv, solicited;
	uint8_t cqe_op;
} kinds[] = {
	{ "send", SMX_FRAME_SEND, false, false, false, SMX_CQE_RESP_SEND },
	{ "send solicited", SMX_FRAME_SEND, false, false, true, SMX_CQE_RESP_SEND },
	{ "send with immediate", SMX_FRAME_SEND, true, false, false, SMX_CQE_RESP_SEND_IMM },
	{ "send with invalidate", SMX_FRAME_SEND, false, true, false, SMX_CQE_RESP_SEND_INV },
	{ "write with immediate", SMX_FRAME_WRITE, true, false, true, SMX_CQE_RESP_WR_IMM },
};

static uint32_t invalidatable_key(struct rig *r)
{
	struct smx_mkey_attr attr = { .kind = SMX_MKEY_INDIRECT, .pd = r->pd, .max_entries = 4,
				      .remote_invalidate = true };
	struct smx_mkey *mkey;
	uint32_t key;

	assert_int_equal(smx_cmd_create_mkey(r->dev, &attr, &mkey, &key), 0);
	mkey->free = false;
	return key;
}

static void completes_each_kind(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_frame f = rig_frame(r, kinds[i].op, 100);
		const struct smx_cqe64 *cqe;

		print_message("%s\n", kinds[i].name);
		f.has_imm = kinds[i].imm;
		f.has_invalidate = kinds[i].inv;
		f.solicited = kinds[i].solicited;
		if (f.has_imm)
			memcpy(&f.imm, "\x11\x22\x33\x44", 4);
		if (f.has_invalidate)
			f.imm = invalidatable_key(r);
		f.va = (uintptr_t)r->mem + 512;
		rig_post_recv(r, r->key, 512, 128);
		rig_deliver(r, f);
		rig_expect_ack(r, RIG_PSN);
		cqe = rig_cqe(r);
		assert_non_null(cqe);
		assert_int_equal(cqe->op_own >> 4, kinds[i].cqe_op);
		assert_int_equal(!!(cqe->op_own & SMX_CQE_SOLICITED), kinds[i].solicited);
		assert_int_equal(bytes_of(cqe), 100);
		assert_int_equal(from_be16(cqe->wqe_counter), 0);
		assert_int_equal(from_be32(cqe->sop_drop_qpn), r->qpn);
		assert_int_equal(from_be32(cqe->srqn_uidx), 0xabc);
		if (f.has_imm)
			assert_memory_equal(&cqe->imm_inval_pkey, "\x11\x22\x33\x44", 4);
		if (f.has_invalidate) {
			assert_int_equal(from_be32(cqe->imm_inval_pkey), f.imm);
			assert_true(smx_mkey_find(r->dev, f.imm)->free);
		}
		rig_expect_written(r, 512, 100);
		assert_null(rig_cqe(r));
		rig_close(r);
	}
}

/* Who sees the completion may end the connection by another way, which the answer is not to be later than. Within the
 * process the answer runs the requester, and is last. */
static void answers_other_processes_before_it_completes(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3 * sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_frame f = rig_frame(r, kinds[i / 3].op, 100);
		bool later = i % 3;

		print_message("%s, %s\n", kinds[i / 3].name, later ? "to another process" : "within the process");
		r->port.immediate = !later;
		f.has_imm = kinds[i / 3].imm;
		f.has_invalidate = kinds[i / 3].inv;
		if (f.has_invalidate)
			f.imm = invalidatable_key(r);
		f.first = i % 3 != 2;	/* the rest of a message that began before */
		if (!f.first) {
			struct smx_frame start = rig_frame(r, f.op, RIG_MTU);

			start.last = start.ack_request = false;
			start.dma_length = RIG_MTU + 100;
			rig_post_recv(r, r->key, 512, 4096);
			rig_deliver(r, start);
			f.psn++;
		} else {
			rig_post_recv(r, r->key, 512, 4096);
		}
		rig_deliver(r, f);
		assert_int_equal(r->answers, 1);
		assert_int_equal(r->answer[0].cqes, later ? 0 : 1);
		assert_int_equal(r->cq->pi, 1);
		rig_close(r);
	}
}

/* A SEND against a receive: where it ends, what was stored. 4 packets are 4 KiB. */
static const struct length_row {
	const char *name;
	uint32_t recv1, recv2;		/* lengths of the receive's SGEs */
	uint64_t length;
	uint64_t key_bytes;		/* of the key that the receive names */
	uint64_t stored;
	uint32_t nak_packet;
	uint8_t nak;			/* 0: ACK */
	enum smx_check nak_check, recv_check;
} lengths[] = {
	{ "exact", 1024, 3072, 4096, RIG_MEM, 4096, 0, 0, 0, 0 },
	{ "shorter", 4096, 4096, 1000, RIG_MEM, 1000, 0, 0, 0, 0 },
	{ "one byte too long", 1024, 3071, 4096, RIG_MEM, 3072, 3, SMX_AETH_NAK_INVALID,
	  SMX_CHECK_REMOTE_LENGTH, SMX_CHECK_RECV_LENGTH },
	{ "one packet too long", 100, 0, 101, RIG_MEM, 0, 0, SMX_AETH_NAK_INVALID,
	  SMX_CHECK_REMOTE_LENGTH, SMX_CHECK_RECV_LENGTH },
	{ "receive leaves its key", 4096, 0, 4096, 2500, 2048, 2, SMX_AETH_NAK_OPERATION,
	  SMX_CHECK_REMOTE_RECV_FAILED, SMX_CHECK_RECV_RANGE },
	{ "key ends before the receive does", 4096, 0, 6000, 2500, 2048, 2, SMX_AETH_NAK_OPERATION,
	  SMX_CHECK_REMOTE_RECV_FAILED, SMX_CHECK_RECV_RANGE },
	{ "nothing in an empty receive", 0, 0, 0, RIG_MEM, 0, 0, 0, 0, 0 },
};

static void stores_what_fits(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		const struct length_row *row = &lengths[i];
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		uint32_t key = rig_key(r, r->pd, IBV_ACCESS_LOCAL_WRITE, 0, row->key_bytes);
		const struct smx_cqe64 *cqe;

		print_message("%s\n", row->name);
		rig_post_recv2(r, key, 0, row->recv1, row->recv2);
		rig_post_recv(r, key, 0, 8);
		rig_deliver(r, rig_frame(r, SMX_FRAME_SEND, row->length));
		rig_expect_written(r, 0, row->stored);
		assert_int_equal(r->answers, 1);
		if (!row->nak) {
			rig_expect_ack(r, RIG_PSN + (row->length ? (row->length - 1) / RIG_MTU : 0));
			cqe = rig_cqe(r);
			assert_non_null(cqe);
			assert_int_equal(bytes_of(cqe), row->length);
			assert_int_equal(smx_qp_state(r->qp), IBV_QPS_RTS);
		} else {
			rig_expect_nak(r, row->nak, RIG_PSN + row->nak_packet, row->nak_check);
			rig_expect_error_cqe(r, row->recv_check);
			rig_expect_error_cqe(r, SMX_CHECK_FLUSH_BEHIND);
			assert_int_equal(smx_qp_state(r->qp), IBV_QPS_ERR);
		}
		assert_null(rig_cqe(r));
		rig_close(r);
	}
}

static const struct bad_key_row {
	const char *name;
	uint32_t access;
	bool other_pd, unknown;
	enum smx_check want;
} bad_keys[] = {
	{ "unknown key", IBV_ACCESS_LOCAL_WRITE, false, true, SMX_CHECK_RECV_KEY },
	{ "another domain", IBV_ACCESS_LOCAL_WRITE, true, false, SMX_CHECK_RECV_PD },
	{ "not writable", 0, false, false, SMX_CHECK_RECV_RIGHT },
};

static void fails_receives_with_bad_keys(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad_keys) / sizeof(bad_keys[0]); i++) {
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_pd *pd = bad_keys[i].other_pd ? r->other_pd : r->pd;
		uint32_t key = rig_key(r, pd, bad_keys[i].access, 0, 64);
		struct smx_refusal refusal;

		print_message("%s\n", bad_keys[i].name);
		rig_post_recv(r, key ^ bad_keys[i].unknown, 0, 64);
		rig_deliver(r, rig_frame(r, SMX_FRAME_SEND, 8));
		rig_expect_nak(r, SMX_AETH_NAK_OPERATION, RIG_PSN, SMX_CHECK_REMOTE_RECV_FAILED);
		rig_expect_error_cqe(r, bad_keys[i].want);
		rig_expect_written(r, 0, 0);
		assert_int_equal(smx_qp_state(r->qp), IBV_QPS_ERR);
		assert_int_equal(smx_refusal_get(&r->log, 0, &refusal), 1);
		assert_int_equal(refusal.check, bad_keys[i].want);
		assert_int_equal(refusal.where.is_recv, 1);
		rig_close(r);
	}
}

/* A payload in another process; what lies behind it cannot be read. */
struct far { struct smx_pull pull; uint8_t bytes[100]; };

static enum smx_pulled far_fetch(struct smx_pull *pull, void *to, uint64_t n, uint64_t *done)
{
	struct far *far = container_of(pull, struct far, pull);

	*done = n;
	if (n > sizeof(far->bytes) - pull->off)
		return SMX_PULL_SOURCE;
	memcpy(to, far->bytes + pull->off, n);
	pull->off += n;
	return SMX_PULLED;
}

/* The payload is fetched before the key is looked at, and once more when it is found to be none. */
static void fetches_again_what_it_refuses(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_SEND, 100);
	struct far far = { .pull = { .fetch = far_fetch }, .bytes = "far away" };

	(void)state;
	f.flat = NULL;
	f.pull = &far.pull;
	f.has_invalidate = true;
	f.imm = r->key;		/* of a region, which nobody else may invalidate */
	rig_post_recv(r, r->key, 512, 128);
	rig_deliver(r, f);
	rig_expect_nak(r, SMX_AETH_NAK_ACCESS, RIG_PSN, SMX_CHECK_REMOTE_INVALIDATE);
	rig_expect_error_cqe(r, SMX_CHECK_FLUSH_CURRENT);
	assert_string_equal((char *)r->mem + 512, "far away");
	rig_close(r);
}

static void refuses_a_write_that_is_not_as_long_as_it_says(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 100);

	(void)state;
	f.has_imm = true;
	f.dma_length = 200;
	rig_post_recv(r, r->key, 512, 128);
	rig_deliver(r, f);
	rig_expect_nak(r, SMX_AETH_NAK_INVALID, RIG_PSN, SMX_CHECK_REMOTE_LENGTH);
	rig_expect_error_cqe(r, SMX_CHECK_FLUSH_BEHIND);
	rig_expect_written(r, 0, 0);
	rig_close(r);
}

static void asks_to_wait_where_no_receive_is(void **state)
{
	static const struct { enum smx_frame_op op; bool imm; } ops[] = {
		{ SMX_FRAME_SEND, false }, { SMX_FRAME_SEND, true }, { SMX_FRAME_WRITE, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_frame f = rig_frame(r, ops[i].op, 8), next;

		f.has_imm = ops[i].imm;
		rig_deliver(r, f);
		rig_expect_nak(r, SMX_AETH_RNR | 12, RIG_PSN, SMX_CHECK_NONE);
		rig_expect_written(r, 0, 0);
		/* What was sent behind it is dropped without a word. */
		next = f;
		next.psn++;
		rig_deliver(r, next);
		assert_int_equal(r->answers, 1);
		assert_int_equal(smx_qp_state(r->qp), IBV_QPS_RTS);
		rig_post_recv(r, r->key, 0, 64);
		rig_deliver(r, f);
		rig_expect_ack(r, RIG_PSN);
		assert_non_null(rig_cqe(r));
		rig_close(r);
	}
}

static void takes_a_message_in_parts(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_SEND, 3000);
	const uint8_t *payload = f.flat;

	(void)state;
	rig_post_recv2(r, r->key, 0, 1500, 1500);
	f.length = 2048;
	f.last = false;
	rig_deliver(r, f);
	assert_null(rig_cqe(r));
	f.first = false;
	f.last = true;
	f.psn += 2;
	f.flat = payload + 2048;
	f.length = 3000 - 2048;
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN + 2);
	assert_int_equal(bytes_of(rig_cqe(r)), 3000);
	rig_expect_written(r, 0, 3000);
	rig_close(r);
}

/* The queue pair goes to ERR inside a message: its receive is the first to be flushed. */
static void flushes_the_receive_in_progress_first(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_SEND, 3000);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	const struct smx_err_cqe *cqe;

	(void)state;
	rig_post_recv(r, r->key, 0, 4096);
	rig_post_recv(r, r->key, 0, 4096);
	f.length = 2048;
	f.last = false;
	rig_deliver(r, f);
	rig_modify(r, r->qp, &attr, IBV_QP_STATE);
	cqe = (const void *)rig_cqe(r);
	assert_non_null(cqe);
	assert_int_equal(cqe->vendor_err_synd, 0xf5);
	assert_int_equal(from_be16(cqe->wqe_counter), 0);
	cqe = (const void *)rig_cqe(r);
	assert_non_null(cqe);
	assert_int_equal(cqe->vendor_err_synd, 0xf9);
	assert_int_equal(from_be16(cqe->wqe_counter), 1);
	assert_null(rig_cqe(r));
	rig_close(r);
}

static void refuses_to_invalidate_what_may_not_be(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_SEND, 8);

	(void)state;
	rig_post_recv(r, r->key, 0, 64);
	f.has_invalidate = true;
	f.imm = r->key;
	rig_deliver(r, f);
	rig_expect_nak(r, SMX_AETH_NAK_ACCESS, RIG_PSN, SMX_CHECK_REMOTE_INVALIDATE);
	rig_expect_error_cqe(r, SMX_CHECK_FLUSH_CURRENT);
	assert_false(smx_mkey_find(r->dev, r->key)->free);
	assert_int_equal(smx_qp_state(r->qp), IBV_QPS_ERR);
	rig_close(r);
}

/* Scatter to CQE: only where the driver's plain copy finds the memory. */
static void puts_small_messages_into_the_cqe(void **state)
{
	struct rig *r = rig_new();
	struct smx_mkey_attr moved = { .kind = SMX_MKEY_DIRECT, .pd = r->pd, .access = RIG_ALL,
				       .start = (uintptr_t)r->mem + 1, .length = 4096, .host = r->mem };
	const struct smx_cqe64 *cqe;
	struct smx_mkey *mkey;
	struct smx_frame f;
	uint32_t key;

	(void)state;
	r->qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_RC, .resp_scatter_bytes = 32 });
	rig_bring_up(r, r->qp, RIG_ALL, true);
	rig_post_recv(r, r->key, 0, 64);
	f = rig_frame(r, SMX_FRAME_SEND, 32);
	rig_deliver(r, f);
	cqe = rig_cqe(r);
	assert_int_equal(cqe->op_own & 0xc, SMX_CQE_INLINE_32);
	assert_int_equal(bytes_of(cqe), 32);
	assert_memory_equal(cqe, f.flat, 32);
	rig_expect_written(r, 0, 0);
	/* One byte more. */
	rig_post_recv(r, r->key, 0, 64);
	f = rig_frame(r, SMX_FRAME_SEND, 33);
	f.psn = RIG_PSN + 1;
	rig_deliver(r, f);
	cqe = rig_cqe(r);
	assert_int_equal(cqe->op_own & 0xc, 0);
	rig_expect_written(r, 0, 33);
	/* A key whose addresses are not the program's. */
	memset(r->mem, 0, 64);
	assert_int_equal(smx_cmd_create_mkey(r->dev, &moved, &mkey, &key), 0);
	rig_post_recv(r, key, 1, 64);
	f = rig_frame(r, SMX_FRAME_SEND, 16);
	f.psn = RIG_PSN + 2;
	rig_deliver(r, f);
	cqe = rig_cqe(r);
	assert_int_equal(cqe->op_own & 0xc, 0);
	rig_expect_written(r, 0, 16);
	/* Rights are those of a receive all the same. */
	key = rig_key(r, r->pd, 0, 0, 64);
	rig_post_recv(r, key, 0, 64);
	f = rig_frame(r, SMX_FRAME_SEND, 8);
	f.psn = RIG_PSN + 3;
	rig_deliver(r, f);
	rig_expect_error_cqe(r, SMX_CHECK_RECV_RIGHT);
	rig_close(r);
}

static void receives_from_a_shared_queue(void **state)
{
	struct rig *r = rig_new();
	const struct smx_cqe64 *cqe;
	struct smx_frame f;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)state;
	rig_add_srq(r, NULL);
	r->qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_RC, .srq = r->srq });
	rig_bring_up(r, r->qp, RIG_ALL, true);
	f = rig_frame(r, SMX_FRAME_SEND, 8);
	rig_deliver(r, f);
	rig_expect_nak(r, SMX_AETH_RNR | 12, RIG_PSN, SMX_CHECK_NONE);
	rig_post_recv(r, r->key, 0, 64);
	rig_post_recv(r, r->key, 0, 64);
	rig_deliver(r, f);
	cqe = rig_cqe(r);
	assert_int_equal(from_be32(cqe->srqn_uidx), r->srq->srqn);
	rig_expect_written(r, 0, 8);
	/* Receives of a shared queue are not flushed; the program is told that no more will come. */
	rig_modify(r, r->qp, &attr, IBV_QP_STATE);
	assert_null(rig_cqe(r));
	assert_int_equal(r->event_count, 1);
	assert_int_equal(r->events[0], IBV_EVENT_QP_LAST_WQE_REACHED);
	smx_dev_ring_rq(r->dev, r->qp);
	assert_int_equal(r->event_count, 1);
	rig_close(r);
}

/* A queue that claims what it cannot hold gives nothing, and ends its queue pair. */
static void fails_on_a_broken_queue(void **state)
{
	(void)state;
	for (int shared = 0; shared < 2; shared++) {
		struct rig *r = rig_new();

		if (shared)
			rig_add_srq(r, NULL);
		r->qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_RC, .srq = r->srq });
		rig_bring_up(r, r->qp, RIG_ALL, true);
		be32_store_release(shared ? r->srq_dbrec : r->dbrec, RIG_RQ_WQES + 1);
		rig_deliver(r, rig_frame(r, SMX_FRAME_SEND, 8));
		rig_expect_nak(r, SMX_AETH_NAK_OPERATION, RIG_PSN, SMX_CHECK_REMOTE_RECV_FAILED);
		rig_expect_written(r, 0, 0);
		assert_int_equal(smx_qp_state(r->qp), IBV_QPS_ERR);
		assert_null(rig_cqe(r));
		rig_close(r);
	}
}

static void flushes_what_is_posted_in_err(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)state;
	rig_modify(r, r->qp, &attr, IBV_QP_STATE);
	assert_null(rig_cqe(r));
	rig_post_recv(r, r->key, 0, 64);
	smx_dev_ring_rq(r->dev, r->qp);
	rig_expect_error_cqe(r, SMX_CHECK_FLUSH_BEHIND);
	assert_null(rig_cqe(r));
	rig_close(r);
}

/* XRC */

static void xrc_frames_choose_their_queue(void **state)
{
	static const struct { const char *name; bool wrong_srqn, wrong_domain; } rows[] = {
		{ "right", false, false }, { "no such queue", true, false }, { "another domain", false, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rig *r = rig_new();
		struct smx_xrcd *xrcd, *other;
		struct smx_frame f;

		print_message("%s\n", rows[i].name);
		assert_int_equal(smx_cmd_alloc_xrcd(r->dev, &xrcd), 0);
		assert_int_equal(smx_cmd_alloc_xrcd(r->dev, &other), 0);
		rig_add_srq(r, rows[i].wrong_domain ? other : xrcd);
		r->qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_XRC_TGT, .xrcd = xrcd });
		rig_bring_up(r, r->qp, RIG_ALL, false);
		rig_post_recv(r, r->key, 0, 64);
		f = rig_frame(r, SMX_FRAME_SEND, 8);
		f.xrc_srqn = r->srq->srqn + rows[i].wrong_srqn;
		rig_deliver(r, f);
		if (i) {
			rig_expect_nak(r, SMX_AETH_NAK_INVALID, RIG_PSN, SMX_CHECK_REMOTE_SRQN);
			rig_expect_written(r, 0, 0);
			assert_null(rig_cqe(r));
		} else {
			rig_expect_ack(r, RIG_PSN);
			rig_expect_written(r, 0, 8);
			assert_int_equal(from_be32(rig_cqe(r)->srqn_uidx), r->srq->srqn);
			/* A WRITE goes to the memory of the queue's protection domain. */
			f = rig_frame(r, SMX_FRAME_WRITE, 100);
			f.psn = RIG_PSN + 1;
			f.xrc_srqn = r->srq->srqn;
			rig_deliver(r, f);
			rig_expect_ack(r, RIG_PSN + 1);
			rig_expect_written(r, 0, 100);
		}
		rig_close(r);
	}
}

/* A receive that was taken for a message that never came is not used for one to another queue. */
static void xrc_keeps_queues_apart(void **state)
{
	struct rig *r = rig_new();
	struct smx_walk walk;
	struct smx_xrcd *xrcd;
	struct smx_srq *first;
	struct smx_frame f;

	(void)state;
	assert_int_equal(smx_cmd_alloc_xrcd(r->dev, &xrcd), 0);
	rig_add_srq(r, xrcd);
	first = r->srq;
	r->qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_XRC_TGT, .xrcd = xrcd });
	rig_bring_up(r, r->qp, RIG_ALL, false);
	rig_post_recv(r, r->key, 0, 64);
	f = rig_frame(r, SMX_FRAME_SEND, 8);
	f.xrc_srqn = first->srqn;
	smx_walk_range(&walk, r->dev, r->pd, 1, SMX_DMA_GATHER, 0xdead00, 0, 8);
	f.flat = NULL;
	f.walk = &walk;
	rig_deliver(r, f);
	assert_null(rig_cqe(r));
	/* Another queue over the same ring, which holds one receive. */
	rig_add_srq(r, xrcd);
	f = rig_frame(r, SMX_FRAME_SEND, 8);
	f.xrc_srqn = r->srq->srqn;
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN);
	assert_int_equal(from_be32(((const struct smx_err_cqe *)(const void *)r->cq_buf)->srqn), first->srqn);
	rig_expect_error_cqe(r, SMX_CHECK_RECV_ABORTED);
	assert_int_equal(from_be32(rig_cqe(r)->srqn_uidx), r->srq->srqn);
	rig_close(r);
}

/* UD */

static void stores_datagrams_behind_their_header(void **state)
{
	static const uint8_t v6[16] = { 0xfe, 0x80, [15] = 9 };

	(void)state;
	for (int ipv6 = 0; ipv6 < 2; ipv6++) {
		struct rig *r = rig_open(SMX_QP_UD, 0);
		struct smx_frame f = rig_frame(r, SMX_FRAME_SEND, 101);
		const struct smx_cqe64 *cqe;
		uint32_t sum = 0, rqpn;

		if (ipv6)
			memcpy(f.sgid, v6, 16);
		f.traffic_class = 0x28;
		f.flow_label = 0xabcde;
		rig_post_recv(r, r->key, 0, 141);
		rig_deliver(r, f);
		assert_int_equal(r->answers, 0);
		cqe = rig_cqe(r);
		assert_non_null(cqe);
		assert_int_equal(bytes_of(cqe), 141);
		rqpn = from_be32(cqe->flags_rqpn);
		assert_int_equal(rqpn & 0xffffff, RIG_PEER);
		assert_int_equal(rqpn >> 28 & 3, 1);
		assert_int_equal(rqpn >> 24 & 15, SMX_CQE_ROCE_UDP | (ipv6 ? SMX_CQE_ROCE_IPV6 : SMX_CQE_ROCE_IPV4));
		for (int i = 0; i < 101; i++)
			assert_int_equal(r->mem[40 + i], i + 1);
		if (ipv6) {
			assert_memory_equal(r->mem, "\x62\x8a\xbc\xde\0\x88\x11\x40", 8);
			assert_memory_equal(r->mem + 8, v6, 16);
			assert_memory_equal(r->mem + 24, f.dgid, 16);
		} else {
			for (int i = 0; i < 20; i++)
				assert_int_equal(r->mem[i], 0);
			for (int i = 20; i < 40; i += 2)
				sum += (uint32_t)r->mem[i] << 8 | r->mem[i + 1];
			assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
			assert_memory_equal(r->mem + 20, "\x45\x28\0\x9c", 4);
			assert_memory_equal(r->mem + 32, f.sgid + 12, 4);
			assert_memory_equal(r->mem + 36, f.dgid + 12, 4);
		}
		rig_close(r);
	}
}

static const struct drop_row {
	const char *name;
	bool posted, bad_qkey;
	enum smx_frame_op op;
	uint64_t length;
	uint8_t transport;
} drops[] = {
	{ "wrong qkey", true, true, SMX_FRAME_SEND, 8, SMX_TP_UD },
	{ "no receive", false, false, SMX_FRAME_SEND, 8, SMX_TP_UD },
	{ "a write", true, false, SMX_FRAME_WRITE, 8, SMX_TP_UD },
	{ "longer than the port's MTU", true, false, SMX_FRAME_SEND, 4097, SMX_TP_UD },
	{ "an RC packet", true, false, SMX_FRAME_SEND, 8, SMX_TP_RC },
};

static void drops_datagrams_silently(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(drops) / sizeof(drops[0]); i++) {
		struct rig *r = rig_open(SMX_QP_UD, RIG_ALL);
		struct smx_frame f = rig_frame(r, drops[i].op, drops[i].length);

		print_message("%s\n", drops[i].name);
		f.transport = drops[i].transport;
		f.qkey += drops[i].bad_qkey;
		if (drops[i].posted)
			rig_post_recv(r, r->key, 0, 8192);
		rig_deliver(r, f);
		assert_int_equal(r->answers, 0);
		assert_null(rig_cqe(r));
		rig_expect_written(r, 0, 0);
		assert_int_equal(r->qp->resp->dropped, 1);
		assert_int_equal(smx_qp_state(r->qp), IBV_QPS_RTS);
		rig_close(r);
	}
}

static void fails_datagrams_that_do_not_fit(void **state)
{
	(void)state;
	for (int room = 39; room < 48; room++) {
		struct rig *r = rig_open(SMX_QP_UD, 0);

		rig_post_recv(r, r->key, 0, (uint32_t)room);
		rig_deliver(r, rig_frame(r, SMX_FRAME_SEND, 8));
		rig_expect_error_cqe(r, SMX_CHECK_RECV_LENGTH);
		rig_expect_written(r, 0, 0);
		assert_int_equal(smx_qp_state(r->qp), IBV_QPS_ERR);
		rig_close(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(completes_each_kind),
		cmocka_unit_test(answers_other_processes_before_it_completes),
		cmocka_unit_test(stores_what_fits),
		cmocka_unit_test(fails_receives_with_bad_keys),
		cmocka_unit_test(refuses_a_write_that_is_not_as_long_as_it_says),
		cmocka_unit_test(fetches_again_what_it_refuses),
		cmocka_unit_test(asks_to_wait_where_no_receive_is),
		cmocka_unit_test(takes_a_message_in_parts),
		cmocka_unit_test(flushes_the_receive_in_progress_first),
		cmocka_unit_test(refuses_to_invalidate_what_may_not_be),
		cmocka_unit_test(puts_small_messages_into_the_cqe),
		cmocka_unit_test(receives_from_a_shared_queue),
		cmocka_unit_test(fails_on_a_broken_queue),
		cmocka_unit_test(flushes_what_is_posted_in_err),
		cmocka_unit_test(xrc_frames_choose_their_queue),
		cmocka_unit_test(xrc_keeps_queues_apart),
		cmocka_unit_test(stores_datagrams_behind_their_header),
		cmocka_unit_test(drops_datagrams_silently),
		cmocka_unit_test(fails_datagrams_that_do_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
