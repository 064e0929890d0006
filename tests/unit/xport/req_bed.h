/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A bed for tests of the requester: a device with a clock and a port of the test's own.
 *
 * The port keeps what is sent, payload included, and calls the test's on_send, which may answer within the
 * call as loopback does. Queue pairs are made by hand, so that nothing but the requester is needed. */
#ifndef REQ_BED_H
#define REQ_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/guard.h"
#include "dev/dev.h"
#include "xport/requester.h"

enum {
	BED_BLOCKS = 64, BED_CQES = 1024, BED_FRAMES = 4096, BED_MEM = 64 << 10, BED_EVENTS = 32,
	BED_PEER = 0x123,
};

struct bed;

struct bed_frame {
	struct smx_frame f;
	uint8_t *data;		/* f.length bytes, or NULL */
};

struct bed_qp {
	struct smx_qp qp;
	uint32_t dbrec[2];
	uint32_t pi;		/* blocks written by the test */
	uint32_t slots;		/* and WQEs */
	uint8_t *ring;
};

struct bed {
	struct smx_port port;	/* first: the port is found by it */
	struct smx_dev *dev;
	struct smx_refusal_log log;
	uint64_t now;
	struct bed_frame sent[BED_FRAMES];
	unsigned int sent_count;
	void (*on_send)(struct bed *b, struct smx_frame *f);
	struct smx_pd pd;
	struct smx_cq *cq;
	uint8_t *cq_buf;
	uint32_t cq_dbrec[2];
	uint8_t *mem;		/* BED_MEM bytes; byte i is i * 7 */
	struct smx_mkey *mkey;
	enum ibv_event_type event[BED_EVENTS];
	unsigned int event_count;
	void *arg;
};

static inline uint64_t bed_now(void *arg)
{
	return ((struct bed *)arg)->now;
}

static inline void bed_cq_event(void *cookie, void *arg)
{
	(void)cookie;
	(void)arg;
}

static inline void bed_async_event(enum ibv_event_type type, void *cookie, void *arg)
{
	struct bed *b = arg;

	(void)cookie;
	assert_true(b->event_count < BED_EVENTS);
	b->event[b->event_count++] = type;
}

static inline void bed_port_send(struct smx_port *port, struct smx_frame *f)
{
	struct bed *b = (struct bed *)port;
	struct bed_frame *keep = &b->sent[b->sent_count];
	struct smx_dma_fault fault;
	uint64_t done = 0;

	assert_true(b->sent_count < BED_FRAMES);
	b->sent_count++;
	keep->f = *f;
	keep->data = NULL;
	if (f->length) {
		keep->data = malloc(f->length);
		assert_non_null(keep->data);
		assert_true(!f->flat != !f->walk);
		if (f->flat) {
			memcpy(keep->data, f->flat, f->length);
		} else {
			assert_int_equal(smx_dma_read(f->walk, keep->data, f->length, &done, &fault),
					 SMX_CHECK_NONE);
			assert_int_equal(done, f->length);
		}
	}
	if (b->on_send)
		b->on_send(b, f);
}

static inline uint64_t bed_port_poll(struct smx_port *port, uint64_t now_ns)
{
	(void)port;
	(void)now_ns;
	return UINT64_MAX;
}

static inline void bed_port_destroy(struct smx_port *port)
{
	(void)port;
}

static const struct smx_port_ops bed_port_ops = {
	.send = bed_port_send, .poll = bed_port_poll, .destroy = bed_port_destroy,
};

static inline uint8_t bed_byte(uint64_t i)
{
	return (uint8_t)(i * 7 + (i >> 8));
}

/* max_payload_bytes: of the port; 0: one MTU a frame. */
static inline struct bed *bed_new(uint64_t max_payload_bytes)
{
	struct bed *b = calloc(1, sizeof(*b));
	struct smx_dev_attr attr = {
		.env = {
			.now = bed_now, .cq_event = bed_cq_event, .async_event = bed_async_event,
			.copy = smx_guard_copy, .call = smx_guard_call, .arg = b,
		},
		.memcpy_max_bytes = 1 << 24, .turn_budget_bytes = 64 << 20, .mtu_bytes = 1024,
	};
	struct smx_cq_attr cq = { .cqe_count = BED_CQES, .cqe_bytes = 64, .ignore_overrun = true };
	struct smx_mkey_attr mr = {
		.kind = SMX_MKEY_DIRECT, .access = IBV_ACCESS_LOCAL_WRITE, .length = BED_MEM,
	};

	assert_non_null(b);
	smx_guard_install();
	attr.env.refusals = &b->log;
	b->now = 1000;
	assert_int_equal(smx_dev_create(&attr, &b->dev), 0);
	b->port.ops = &bed_port_ops;
	b->port.max_payload_bytes = max_payload_bytes;
	smx_dev_set_port(b->dev, &b->port);

	b->cq_buf = aligned_alloc(64, BED_CQES * 64);
	b->mem = aligned_alloc(64, BED_MEM);
	assert_true(b->cq_buf && b->mem);
	memset(b->cq_buf, 0xff, BED_CQES * 64);
	for (uint32_t i = 0; i < BED_MEM; i++)
		b->mem[i] = bed_byte(i);
	cq.buf = b->cq_buf;
	cq.dbrec = b->cq_dbrec;
	assert_int_equal(smx_cq_create(b->dev, &cq, &b->cq), 0);
	mr.pd = &b->pd;
	mr.start = (uintptr_t)b->mem;
	mr.host = b->mem;
	assert_int_equal(smx_mkey_create(b->dev, &mr, &b->mkey), 0);
	return b;
}

static inline void bed_free(struct bed *b)
{
	smx_mkey_destroy(b->dev, b->mkey);
	b->cq->users = 0;
	smx_cq_destroy(b->dev, b->cq);
	smx_dev_destroy(b->dev);
	for (unsigned int i = 0; i < b->sent_count; i++)
		free(b->sent[i].data);
	free(b->cq_buf);
	free(b->mem);
	free(b);
}

/* Forgets the frames seen so far. */
static inline void bed_clear(struct bed *b)
{
	for (unsigned int i = 0; i < b->sent_count; i++)
		free(b->sent[i].data);
	b->sent_count = 0;
}

/* A queue pair in RTS, PSN 100, MTU 1024, timeout 14, 3 retries, 2 RNR retries, 4 outstanding READs. */
static inline struct bed_qp *bed_qp_streams(struct bed *b, enum smx_qp_type type, uint8_t log_streams,
					    uint8_t log_errored)
{
	struct bed_qp *q = calloc(1, sizeof(*q));

	assert_non_null(q);
	q->ring = aligned_alloc(64, BED_BLOCKS * SMX_WQE_BB);
	assert_non_null(q->ring);
	memset(q->ring, 0, BED_BLOCKS * SMX_WQE_BB);
	q->qp.attr = (struct smx_qp_attr){
		.type = type, .pd = &b->pd, .send_cq = b->cq, .recv_cq = b->cq, .sq_buf = q->ring,
		.sq_bb_count = BED_BLOCKS, .dbrec = q->dbrec, .log_streams = log_streams,
		.log_errored = log_errored, .user_index = 0x77, .cookie = q,
	};
	q->qp.cur = (struct ibv_qp_attr){
		.path_mtu = IBV_MTU_1024, .sq_psn = 100, .timeout = 14, .retry_cnt = 3, .rnr_retry = 2,
		.max_rd_atomic = 4, .dest_qp_num = BED_PEER, .qkey = 0x11112222,
	};
	assert_int_equal(smx_idmap_add(&b->dev->qps, &q->qp, &q->qp.qpn), 0);
	assert_int_equal(smx_req_create(b->dev, &q->qp), 0);
	q->qp.state = IBV_QPS_RTS;
	smx_req_start(&q->qp);
	return q;
}

static inline struct bed_qp *bed_qp(struct bed *b, enum smx_qp_type type)
{
	return bed_qp_streams(b, type, 0, 0);
}

static inline void bed_qp_free(struct bed *b, struct bed_qp *q)
{
	smx_req_destroy(&q->qp);
	smx_idmap_remove(&b->dev->qps, q->qp.qpn);
	free(q->ring);
	free(q);
}

/* ------------------------------------------------------------------ posting */

struct bed_wr {
	uint8_t opcode;
	uint8_t fm_ce_se;
	uint16_t stream;
	uint32_t imm;			/* as it lies in memory */
	uint64_t raddr;
	uint32_t rkey;
	uint64_t swap_add, compare;
	const struct smx_wqe_av *av;
	uint32_t xrc_srqn;
	uint32_t sge_count;
	struct { uint64_t va; uint32_t length, lkey; } sge[4];
	const void *inline_data;
	uint32_t inline_bytes;
	bool no_ring;			/* written, but not in the doorbell record yet */
};

static inline uint8_t *bed_seg(struct bed_qp *q, uint32_t ds)
{
	return q->ring + (q->pi * SMX_WQE_BB + ds * SMX_WQE_DS) % (BED_BLOCKS * SMX_WQE_BB);
}

static inline void bed_put(struct bed_qp *q, uint32_t *ds, const void *seg, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i += SMX_WQE_DS)
		memcpy(bed_seg(q, (*ds)++), (const uint8_t *)seg + i, SMX_WQE_DS);
}

static inline void bed_ring(struct bed *b, struct bed_qp *q)
{
	be32_store_release(&q->dbrec[SMX_DBREC_SND], q->pi & 0xffff);
	smx_dev_ring_sq(b->dev, &q->qp);
}

/* Writes a WQE and rings. RETURN its index as a CQE carries it. */
static inline uint16_t bed_post(struct bed *b, struct bed_qp *q, const struct bed_wr *wr)
{
	uint16_t index = (uint16_t)q->pi;
	uint32_t ds = 1;
	struct smx_wqe_ctrl ctrl;
	bool atomic = smx_op_is_read(wr->opcode) && wr->opcode != SMX_OP_RDMA_READ;

	if (wr->av)
		bed_put(q, &ds, wr->av, sizeof(*wr->av));
	if (q->qp.attr.type == SMX_QP_XRC_INI) {
		struct smx_wqe_xrc xrc = { .srqn = to_be32(wr->xrc_srqn) };

		bed_put(q, &ds, &xrc, sizeof(xrc));
	}
	if (smx_op_is_read(wr->opcode) || wr->opcode == SMX_OP_RDMA_WRITE ||
	    wr->opcode == SMX_OP_RDMA_WRITE_IMM) {
		struct smx_wqe_raddr raddr = { .va = to_be64(wr->raddr), .rkey = to_be32(wr->rkey) };

		bed_put(q, &ds, &raddr, sizeof(raddr));
	}
	if (atomic) {
		struct smx_wqe_atomic a = { to_be64(wr->swap_add), to_be64(wr->compare) };

		bed_put(q, &ds, &a, sizeof(a));
	}
	for (uint32_t i = 0; i < wr->sge_count; i++) {
		struct smx_wqe_data seg = {
			.byte_count = to_be32(wr->sge[i].length), .lkey = to_be32(wr->sge[i].lkey),
			.va = to_be64(wr->sge[i].va),
		};

		bed_put(q, &ds, &seg, sizeof(seg));
	}
	if (wr->inline_bytes) {
		uint8_t seg[1024] = { 0 };
		be32 head = to_be32(wr->inline_bytes | SMX_INLINE_SEG);

		memcpy(seg, &head, sizeof(head));
		memcpy(seg + sizeof(head), wr->inline_data, wr->inline_bytes);
		bed_put(q, &ds, seg, wr->inline_bytes + sizeof(head));
	}
	ctrl = (struct smx_wqe_ctrl){
		.opmod_idx_opcode = to_be32((uint32_t)index << 8 | wr->opcode),
		.qpn_ds = to_be32(q->qp.qpn << 8 | ds),
		.dci_stream = to_be16(wr->stream),
		.fm_ce_se = wr->fm_ce_se,
	};
	memcpy(&ctrl.imm, &wr->imm, sizeof(ctrl.imm));
	memcpy(bed_seg(q, 0), &ctrl, sizeof(ctrl));
	q->pi += (ds + 3) / 4;
	if (!wr->no_ring)
		bed_ring(b, q);
	return index;
}

/* A WRITE of length bytes from the start of the bed's memory; signaled. */
static inline uint16_t bed_write(struct bed *b, struct bed_qp *q, uint32_t length)
{
	struct bed_wr wr = {
		.opcode = SMX_OP_RDMA_WRITE, .fm_ce_se = SMX_CTRL_CQ_UPDATE, .raddr = 0x10000, .rkey = 0x900,
		.sge_count = length ? 1 : 0,
		.sge = { { (uintptr_t)b->mem, length, b->mkey->key } },
	};

	return bed_post(b, q, &wr);
}

static inline uint16_t bed_send(struct bed *b, struct bed_qp *q, uint32_t length)
{
	struct bed_wr wr = {
		.opcode = SMX_OP_SEND, .fm_ce_se = SMX_CTRL_CQ_UPDATE, .sge_count = length ? 1 : 0,
		.sge = { { (uintptr_t)b->mem, length, b->mkey->key } },
	};

	return bed_post(b, q, &wr);
}

/* A READ of length bytes into the second half of the bed's memory; signaled. */
static inline uint16_t bed_read(struct bed *b, struct bed_qp *q, uint32_t length)
{
	struct bed_wr wr = {
		.opcode = SMX_OP_RDMA_READ, .fm_ce_se = SMX_CTRL_CQ_UPDATE, .raddr = 0x20000, .rkey = 0x900,
		.sge_count = length ? 1 : 0,
		.sge = { { (uintptr_t)b->mem + BED_MEM / 2, length, b->mkey->key } },
	};

	return bed_post(b, q, &wr);
}

static inline uint16_t bed_atomic(struct bed *b, struct bed_qp *q)
{
	struct bed_wr wr = {
		.opcode = SMX_OP_ATOMIC_CS, .fm_ce_se = SMX_CTRL_CQ_UPDATE, .raddr = 0x20000, .rkey = 0x900,
		.swap_add = 5, .compare = 6, .sge_count = 1,
		.sge = { { (uintptr_t)b->mem + BED_MEM / 2, 8, b->mkey->key } },
	};

	return bed_post(b, q, &wr);
}

/* Turns until there is nothing to do at once. RETURN when to turn again. */
static inline uint64_t bed_turn(struct bed *b)
{
	uint64_t next;

	for (int i = 0; i < 10000; i++) {
		next = smx_dev_turn(b->dev);
		if (next)
			return next;
	}
	fail_msg("the device does not come to rest");
	return 0;
}

/* ------------------------------------------------------------------ answers */

static inline void bed_answer(struct bed *b, struct bed_qp *q, struct smx_frame *f)
{
	f->transport = SMX_TP_RC;
	f->dst_qpn = q->qp.qpn;
	f->src_qpn = BED_PEER;
	f->dc_nonce += q->qp.dc_nonce;	/* as far from the right one as the test says */
	b->dev->now_known = false;	/* as at the beginning of a turn */
	smx_comp_receive(b->dev, &q->qp, f);
}

static inline void bed_ack(struct bed *b, struct bed_qp *q, uint32_t psn)
{
	struct smx_frame f = { .op = SMX_FRAME_ACK, .psn = psn, .psn_count = 1, .syndrome = 0x1f };

	bed_answer(b, q, &f);
}

static inline void bed_nak(struct bed *b, struct bed_qp *q, uint32_t psn, uint8_t syndrome, uint16_t check)
{
	struct smx_frame f = {
		.op = SMX_FRAME_ACK, .psn = psn, .psn_count = 1, .syndrome = syndrome, .check = check,
		.text = check ? "values 1 2 3" : NULL,
	};

	bed_answer(b, q, &f);
}

/* A READ response: n bytes, byte i of the message being bed_byte(from + i). */
static inline void bed_read_response(struct bed *b, struct bed_qp *q, uint32_t psn, uint32_t psn_count,
				     uint64_t n, uint64_t from, bool last)
{
	uint8_t *data = n ? malloc(n) : NULL;
	struct smx_frame f = {
		.op = SMX_FRAME_READ_RESPONSE, .psn = psn, .psn_count = psn_count, .last = last, .length = n,
		.flat = data, .syndrome = 0x1f,
	};

	for (uint64_t i = 0; i < n; i++)
		data[i] = bed_byte(from + i);
	bed_answer(b, q, &f);
	free(data);
}

static inline void bed_atomic_response(struct bed *b, struct bed_qp *q, uint32_t psn, uint64_t old)
{
	struct smx_frame f = {
		.op = SMX_FRAME_ATOMIC_RESPONSE, .psn = psn, .psn_count = 1, .last = true, .syndrome = 0x1f,
		.atomic = { old },
	};

	bed_answer(b, q, &f);
}

/* on_send: acknowledges at once whatever asks for it. */
static inline void bed_ack_all(struct bed *b, struct smx_frame *f)
{
	struct smx_qp *qp = smx_qp_find(b->dev, f->src_qpn);
	struct smx_frame ack = {
		.op = SMX_FRAME_ACK, .psn = smx_psn_add(f->psn, f->psn_count - 1), .psn_count = 1,
		.syndrome = 0x1f, .dst_qpn = f->src_qpn, .src_qpn = f->dst_qpn, .dc_stream = f->dc_stream,
	};

	if (f->ack_request && (f->op == SMX_FRAME_SEND || f->op == SMX_FRAME_WRITE))
		smx_comp_receive(b->dev, qp, &ack);
}

/* ------------------------------------------------------------------ completions */

struct bed_cqe { uint8_t op, syndrome, vendor, hw, opcode; uint32_t qpn, bytes, user_index; uint16_t index; };

static inline unsigned int bed_cqes(const struct bed *b)
{
	return b->cq->pi;
}

static inline struct bed_cqe bed_cqe(const struct bed *b, unsigned int i)
{
	const struct smx_cqe64 *c = (const void *)(b->cq_buf + (i % BED_CQES) * 64);
	const struct smx_err_cqe *e = (const void *)c;
	struct bed_cqe out = {
		.op = c->op_own >> 4,
		.opcode = (uint8_t)(from_be32(c->sop_drop_qpn) >> 24),
		.qpn = from_be32(c->sop_drop_qpn) & 0xffffff,
		.index = from_be16(c->wqe_counter),
		.user_index = from_be32(c->srqn_uidx),
	};

	assert_true(i < b->cq->pi);
	if (out.op == SMX_CQE_REQ_ERR) {
		out.syndrome = e->syndrome;
		out.vendor = e->vendor_err_synd;
		out.hw = e->hw_err_synd;
	} else {
		assert_int_equal(out.op, SMX_CQE_REQ);
		out.bytes = from_be32(c->byte_cnt);
	}
	return out;
}

/* The i-th CQE is a success of the WQE with this index. */
#define bed_expect_ok(b, i, idx) do { \
	struct bed_cqe c_ = bed_cqe(b, i); \
	assert_int_equal(c_.op, SMX_CQE_REQ); \
	assert_int_equal(c_.index, idx); \
} while (0)

/* The i-th CQE is an error of the WQE with this index, with these three codes. */
#define bed_expect_error(b, i, idx, synd, vend, hw_) do { \
	struct bed_cqe c_ = bed_cqe(b, i); \
	assert_int_equal(c_.op, SMX_CQE_REQ_ERR); \
	assert_int_equal(c_.index, idx); \
	assert_int_equal(c_.syndrome, synd); \
	assert_int_equal(c_.vendor, vend); \
	assert_int_equal(c_.hw, hw_); \
} while (0)

/* The newest refusal. */
static inline struct smx_refusal bed_refusal(struct bed *b)
{
	struct smx_refusal r;

	assert_true(smx_refusal_get(&b->log, 0, &r));
	return r;
}

#endif
