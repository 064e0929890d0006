/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One device with one queue pair whose peer is the test: frames are put in, answers are caught. */
#ifndef RESP_RIG_H
#define RESP_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/guard.h"
#include "dev/dev.h"
#include "obj/mkey.h"
#include "xport/responder.h"

enum {
	RIG_MTU = 1024,
	RIG_MEM = 16384,
	RIG_CQES = 64,
	RIG_RQ_WQES = 8,
	RIG_RQ_STRIDE = 64,
	RIG_ANSWERS = 2048,
	RIG_PEER = 0x123,
	RIG_PSN = 100,
};

/* An answer as the peer got it. */
struct rig_answer {
	struct smx_frame f;
	uint32_t cqes;		/* that had been written when it left */
	uint8_t bytes[8192];
	char text[240];
};

struct rig {
	struct smx_refusal_log log;
	struct smx_port port;
	struct smx_dev *dev;
	struct smx_pd *pd, *other_pd;
	struct smx_cq *cq;
	struct smx_qp *qp;
	uint32_t qpn;
	struct smx_srq *srq;
	struct smx_mkey *mr;
	uint32_t key;		/* mem, all of it, with every right */
	_Alignas(64) uint8_t mem[RIG_MEM];
	_Alignas(64) uint8_t rq[RIG_RQ_WQES * RIG_RQ_STRIDE];
	uint32_t rq_posted, cq_taken;
	uint32_t dbrec[2], cq_dbrec[2], srq_dbrec[2];
	uint32_t answers;
	struct rig_answer *answer;
	uint32_t events[16], event_count;
	_Alignas(64) uint8_t cq_buf[RIG_CQES * 64];
	_Alignas(64) uint8_t sq[64 * 16];
	_Alignas(64) uint8_t srq_buf[RIG_RQ_WQES * RIG_RQ_STRIDE];
};

static uint64_t rig_now(void *arg)
{
	(void)arg;
	return 1000000;
}

static void rig_event(enum ibv_event_type type, void *obj, void *arg)
{
	struct rig *r = arg;

	(void)obj;
	if (r->event_count < 16)
		r->events[r->event_count++] = type;
}

static void rig_cq_event(void *cookie, void *arg)
{
	(void)cookie;
	(void)arg;
}

/* Reads the payload as a peer would: the walk is used up. */
static void rig_send(struct smx_port *port, struct smx_frame *f)
{
	struct rig *r = container_of(port, struct rig, port);
	struct rig_answer *a = &r->answer[r->answers++];
	struct smx_dma_fault fault;
	uint64_t done;

	assert_true(r->answers <= RIG_ANSWERS);
	assert_true(f->length <= sizeof(a->bytes));
	a->f = *f;
	a->cqes = r->cq->pi;
	a->text[0] = '\0';
	if (f->text)
		snprintf(a->text, sizeof(a->text), "%s", f->text);
	if (f->flat)
		memcpy(a->bytes, f->flat, f->length);
	else if (f->walk && smx_dma_read(f->walk, a->bytes, f->length, &done, &fault))
		f->gather_check = (uint16_t)fault.check;
}

static uint64_t rig_poll(struct smx_port *port, uint64_t now_ns)
{
	(void)port;
	(void)now_ns;
	return UINT64_MAX;
}

static void rig_port_destroy(struct smx_port *port)
{
	(void)port;
}

static const struct smx_port_ops rig_ops = { .send = rig_send, .poll = rig_poll, .destroy = rig_port_destroy };

static inline struct smx_path rig_path(void)
{
	struct smx_path path = { .hop_limit = 64 };

	memcpy(path.sgid, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\1", 16);
	memcpy(path.dgid, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\2", 16);
	return path;
}

static inline void rig_modify(struct rig *r, struct smx_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct smx_path path = rig_path();

	attr->ah_attr.is_global = 1;
	assert_int_equal(smx_cmd_modify_qp(r->dev, qp, attr, mask, &path), 0);
}

/* What each type needs from RESET to the state in which it receives and, if it can, sends. */
static inline void rig_bring_up(struct rig *r, struct smx_qp *qp, uint32_t access, bool to_rts)
{
	static const struct { int init, rtr, rts; } masks[] = {
		[SMX_QP_RC] = { 0x39, 0x129181, 0x12e01 },
		[SMX_QP_UC] = { 0x39, 0x101181, 0x10001 },
		[SMX_QP_UD] = { 0x71, 0x1, 0x10001 },
		[SMX_QP_XRC_TGT] = { 0x39, 0x129181, 0x10201 },
		[SMX_QP_DCT] = { 0x39, 0x8181, 0 },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access, .qkey = 0x1ee,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = RIG_PEER, .rq_psn = RIG_PSN,
		.max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 12, .timeout = 14,
		.retry_cnt = 7, .rnr_retry = 7,
	};
	int rtr = masks[qp->attr.type].rtr;

	if (rtr & IBV_QP_RQ_PSN)
		rtr |= IBV_QP_DEST_QPN;
	rig_modify(r, qp, &attr, masks[qp->attr.type].init);
	attr.qp_state = IBV_QPS_RTR;
	rig_modify(r, qp, &attr, rtr);
	attr.qp_state = IBV_QPS_RTS;
	if (to_rts && masks[qp->attr.type].rts)
		rig_modify(r, qp, &attr, masks[qp->attr.type].rts);
}

static inline uint32_t rig_key(struct rig *r, struct smx_pd *pd, uint32_t access, uint64_t off, uint64_t length)
{
	struct smx_mkey_attr attr = {
		.kind = SMX_MKEY_DIRECT, .pd = pd, .access = access,
		.start = (uintptr_t)r->mem + off, .length = length, .host = r->mem + off,
	};
	struct smx_mkey *mkey;
	uint32_t key;

	assert_int_equal(smx_cmd_create_mkey(r->dev, &attr, &mkey, &key), 0);
	return key;
}

enum { RIG_ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		 IBV_ACCESS_REMOTE_ATOMIC };

static inline struct rig *rig_new(void)
{
	struct rig *r = aligned_alloc(64, (sizeof(*r) + 63) & ~(size_t)63);
	struct smx_dev_attr attr = {
		.env = { .now = rig_now, .cq_event = rig_cq_event, .async_event = rig_event,
			 .copy = smx_guard_copy, .call = smx_guard_call },
		.memcpy_max_bytes = 1 << 20, .turn_budget_bytes = 1 << 20, .mtu_bytes = 4096,
	};
	struct smx_cq_attr cq_attr = { .cqe_count = RIG_CQES, .cqe_bytes = 64 };
	uint32_t n;

	memset(r, 0, sizeof(*r));
	r->answer = calloc(RIG_ANSWERS, sizeof(*r->answer));
	smx_guard_install();
	attr.env.refusals = &r->log;
	attr.env.arg = r;
	assert_int_equal(smx_dev_create(&attr, &r->dev), 0);
	r->port = (struct smx_port){ .ops = &rig_ops, .max_payload_bytes = 4096, .immediate = true };
	smx_dev_set_port(r->dev, &r->port);
	assert_int_equal(smx_cmd_alloc_pd(r->dev, &r->pd, &n), 0);
	assert_int_equal(smx_cmd_alloc_pd(r->dev, &r->other_pd, &n), 0);
	memset(r->cq_buf, 0xf1, sizeof(r->cq_buf));
	cq_attr.buf = r->cq_buf;
	cq_attr.dbrec = r->cq_dbrec;
	assert_int_equal(smx_cmd_create_cq(r->dev, &cq_attr, &r->cq, &n), 0);
	r->key = rig_key(r, r->pd, RIG_ALL, 0, RIG_MEM);
	return r;
}

static inline void rig_add_srq(struct rig *r, struct smx_xrcd *xrcd)
{
	struct smx_srq_attr attr = {
		.buf = r->srq_buf, .wqe_count = RIG_RQ_WQES, .stride_bytes = RIG_RQ_STRIDE,
		.dbrec = r->srq_dbrec, .pd = r->pd, .xrcd = xrcd, .cq = xrcd ? r->cq : NULL,
	};
	uint32_t n;

	for (uint32_t i = 0; i < RIG_RQ_WQES; i++)
		((struct smx_wqe_srq_next *)(void *)(r->srq_buf + i * RIG_RQ_STRIDE))->next_wqe_index =
			to_be16((uint16_t)((i + 1) % RIG_RQ_WQES));
	assert_int_equal(smx_cmd_create_srq(r->dev, &attr, &r->srq, &n), 0);
}

static inline struct smx_qp *rig_add_qp(struct rig *r, const struct smx_qp_attr *more)
{
	struct smx_qp_attr attr = *more;
	struct smx_qp *qp;
	uint32_t n;

	if (attr.type != SMX_QP_XRC_TGT) {
		attr.pd = r->pd;
		attr.send_cq = attr.type == SMX_QP_DCT ? NULL : r->cq;
		attr.recv_cq = r->cq;
	}
	if (attr.type != SMX_QP_XRC_TGT && attr.type != SMX_QP_DCT) {
		attr.sq_buf = r->sq;
		attr.sq_bb_count = 16;
		attr.dbrec = r->dbrec;
	}
	if (attr.type < SMX_QP_XRC_INI && !attr.srq) {
		attr.rq_buf = r->rq;
		attr.rq_wqe_count = RIG_RQ_WQES;
		attr.rq_stride_bytes = RIG_RQ_STRIDE;
	}
	attr.user_index = 0xabc;
	assert_int_equal(smx_cmd_create_qp(r->dev, &attr, &qp, &n), 0);
	return qp;
}

/* A device with a queue pair of one of the simple types, receiving. */
static inline struct rig *rig_open(enum smx_qp_type type, uint32_t access)
{
	struct rig *r = rig_new();

	r->qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = type });
	r->qpn = r->qp->qpn;
	rig_bring_up(r, r->qp, access, true);
	return r;
}

static inline void rig_close(struct rig *r)
{
	smx_dev_destroy(r->dev);
	free(r->answer);
	free(r);
}

static inline void rig_put_sge(void *at, uint32_t key, const uint8_t *ptr, uint32_t length)
{
	*(struct smx_wqe_data *)at = (struct smx_wqe_data){
		.byte_count = to_be32(length), .lkey = to_be32(key), .va = to_be64((uintptr_t)ptr),
	};
}

static inline void rig_post_recv2(struct rig *r, uint32_t key, uint64_t off, uint32_t length, uint32_t length2)
{
	uint8_t *wqe = r->rq + (r->rq_posted % RIG_RQ_WQES) * RIG_RQ_STRIDE;

	if (r->srq)
		wqe = r->srq_buf + (r->rq_posted % RIG_RQ_WQES) * RIG_RQ_STRIDE + 16;
	rig_put_sge(wqe, key, r->mem + off, length);
	rig_put_sge(wqe + 16, length2 ? key : SMX_LKEY_END, r->mem + off + length, length2);
	if (length2)
		rig_put_sge(wqe + 32, SMX_LKEY_END, NULL, 0);
	r->rq_posted++;
	be32_store_release(r->srq ? r->srq_dbrec : r->dbrec, r->rq_posted & 0xffff);
}

static inline void rig_post_recv(struct rig *r, uint32_t key, uint64_t off, uint32_t length)
{
	rig_post_recv2(r, key, off, length, 0);
}

/* The next CQE, or NULL. */
static inline const struct smx_cqe64 *rig_cqe(struct rig *r)
{
	const struct smx_cqe64 *cqe =
		(const struct smx_cqe64 *)(const void *)(r->cq_buf + (r->cq_taken % RIG_CQES) * 64);

	if (r->cq->pi == r->cq_taken)
		return NULL;
	r->cq_taken++;
	return cqe;
}

/* Asserts that the next CQE is an error one with the codes of check. */
static inline void rig_expect_error_cqe(struct rig *r, enum smx_check check)
{
	const struct smx_err_cqe *cqe = (const void *)rig_cqe(r);
	const struct smx_check_info *info = smx_check_info(check);

	assert_non_null(cqe);
	assert_int_equal(cqe->op_own >> 4, SMX_CQE_RESP_ERR);
	assert_int_equal(cqe->syndrome, info->syndrome);
	assert_int_equal(cqe->vendor_err_synd, info->vendor);
}

/* A request frame that is a whole message of length bytes, with a payload of bytes 1, 2, 3 ... */
static inline struct smx_frame rig_frame(struct rig *r, enum smx_frame_op op, uint64_t length)
{
	static uint8_t payload[RIG_MEM];
	static const uint8_t transport[] = {
		[SMX_QP_RC] = SMX_TP_RC, [SMX_QP_UC] = SMX_TP_UC, [SMX_QP_UD] = SMX_TP_UD,
		[SMX_QP_XRC_TGT] = SMX_TP_XRC, [SMX_QP_DCT] = SMX_TP_DC,
	};
	struct smx_frame f = {
		.transport = transport[r->qp->attr.type], .op = (uint8_t)op, .first = true, .last = true,
		.ack_request = true, .src_qpn = RIG_PEER, .dst_qpn = r->qp->qpn, .psn = RIG_PSN,
		.va = (uintptr_t)r->mem, .rkey = r->key, .dma_length = length, .mtu_bytes = RIG_MTU,
		.length = length, .flat = length ? payload : NULL, .qkey = 0x1ee,
		.sl = 3, .hop_limit = 64,
	};
	struct smx_path path = rig_path();

	memcpy(f.sgid, path.dgid, 16);
	memcpy(f.dgid, path.sgid, 16);
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i % 251 + 1);
	if (op == SMX_FRAME_READ_REQUEST || op == SMX_FRAME_ATOMIC_REQUEST) {
		f.length = 0;
		f.flat = NULL;
	}
	return f;
}

static inline void rig_deliver(struct rig *r, struct smx_frame f)
{
	smx_xport_deliver(r->dev, &f);
}

/* How many bytes from off on hold the pattern of rig_frame(), and that all behind are as they were. */
static inline void rig_expect_written(const struct rig *r, uint64_t off, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(r->mem[off + i], i % 251 + 1);
	for (uint64_t i = off + n; i < RIG_MEM; i++)
		assert_int_equal(r->mem[i], 0);
}

static inline const struct rig_answer *rig_last(const struct rig *r)
{
	assert_true(r->answers > 0);
	return &r->answer[r->answers - 1];
}

static inline void rig_expect_nak(const struct rig *r, uint8_t syndrome, uint32_t psn, enum smx_check check)
{
	const struct rig_answer *a = rig_last(r);

	assert_int_equal(a->f.op, SMX_FRAME_ACK);
	assert_int_equal(a->f.syndrome, syndrome);
	assert_int_equal(a->f.psn, psn);
	assert_int_equal(a->f.check, check);
	assert_int_equal(a->text[0] != '\0', check != SMX_CHECK_NONE);
}

static inline void rig_expect_ack(const struct rig *r, uint32_t psn)
{
	const struct rig_answer *a = rig_last(r);

	assert_int_equal(a->f.op, SMX_FRAME_ACK);
	assert_int_equal(a->f.syndrome & 0x60, SMX_AETH_ACK);
	assert_int_equal(a->f.psn, psn);
	assert_int_equal(a->f.dst_qpn, RIG_PEER);
}

#endif
