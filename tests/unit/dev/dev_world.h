/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A device on its own loopback, driven by its commands, doorbells and turns only, as a driver does; the clock is the
 * test's. */
#ifndef SMX_TESTS_DEV_WORLD_H
#define SMX_TESTS_DEV_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/guard.h"
#include "dev/dev.h"
#include "hw/cqe.h"
#include "hw/wqe.h"
#include "trace/refusal.h"

enum { BLOCKS = 16, CQES = 64, RECVS = 4, MEM = 1 << 16, RIGHTS = 15 };

struct end {		/* a queue pair with its queues */
	struct smx_qp *qp;
	uint32_t qpn, dbrec[2], pi, rq_pi;
	uint8_t *ring, *rq;
};

struct host {
	struct smx_dev *dev;
	struct smx_refusal_log log;
	uint64_t now, clock_reads;
	struct smx_pd *pd;
	struct smx_cq *cq;
	uint8_t *cq_buf, *mem;
	uint32_t ci[2], seen, key;
	enum ibv_event_type event[8];
	unsigned int event_count, cq_events;
};

static inline uint64_t now_of(void *arg)
{
	struct host *h = arg;

	h->clock_reads++;
	return h->now;
}

static inline void count_cq_event(void *cookie, void *arg)
{
	struct host *h = arg;

	(void)cookie;
	h->cq_events++;
}

static inline void take_event(enum ibv_event_type type, void *cookie, void *arg)
{
	struct host *h = arg;

	(void)cookie;
	if (type != IBV_EVENT_COMM_EST && h->event_count < SMX_COUNT(h->event))
		h->event[h->event_count++] = type;
}

static inline struct host *host_new(uint64_t budget_bytes)
{
	struct host *h = calloc(1, sizeof(*h));
	struct smx_dev_attr attr = {
		.env = {
			.now = now_of, .cq_event = count_cq_event, .async_event = take_event,
			.copy = smx_guard_copy, .call = smx_guard_call, .arg = h,
		},
		.memcpy_max_bytes = 1 << 24, .turn_budget_bytes = budget_bytes, .mtu_bytes = 4096,
	};
	struct smx_cq_attr cq = { .cqe_count = CQES, .cqe_bytes = 64 };
	struct smx_mkey_attr mr = {
		.kind = SMX_MKEY_DIRECT, .length = MEM, .access = RIGHTS,
	};
	struct smx_mkey *mkey;
	uint32_t n;

	assert_non_null(h);
	smx_guard_install();
	h->now = 5000;
	attr.env.refusals = &h->log;
	assert_int_equal(smx_dev_create(&attr, &h->dev), 0);
	assert_int_equal(smx_cmd_alloc_pd(h->dev, &h->pd, &n), 0);
	h->cq_buf = aligned_alloc(64, CQES * 64);
	h->mem = aligned_alloc(4096, MEM);
	assert_true(h->cq_buf && h->mem);
	memset(h->cq_buf, 0xff, CQES * 64);
	for (uint32_t i = 0; i < MEM; i++)
		h->mem[i] = (uint8_t)(i % 251);
	cq.buf = h->cq_buf;
	cq.dbrec = h->ci;
	assert_int_equal(smx_cmd_create_cq(h->dev, &cq, &h->cq, &n), 0);
	mr.pd = h->pd;
	mr.start = (uintptr_t)h->mem;
	mr.host = h->mem;
	assert_int_equal(smx_cmd_create_mkey(h->dev, &mr, &mkey, &h->key), 0);
	return h;
}

/* Also proves that a device frees what still exists. */
static inline void host_free(struct host *h)
{
	smx_dev_destroy(h->dev);
	free(h->cq_buf);
	free(h->mem);
	free(h);
}

static inline struct end *end_new(struct host *h)
{
	struct end *e = calloc(1, sizeof(*e));
	struct smx_qp_attr attr = {
		.type = SMX_QP_RC, .pd = h->pd, .send_cq = h->cq, .recv_cq = h->cq, .sq_bb_count = BLOCKS,
		.rq_wqe_count = RECVS, .rq_stride_bytes = 16, .dbrec = e->dbrec, .cookie = e,
	};

	assert_non_null(e);
	e->ring = aligned_alloc(64, BLOCKS * 64);
	e->rq = aligned_alloc(64, RECVS * 16);
	assert_true(e->ring && e->rq);
	memset(e->ring, 0, BLOCKS * 64);
	attr.sq_buf = e->ring;
	attr.rq_buf = e->rq;
	assert_int_equal(smx_cmd_create_qp(h->dev, &attr, &e->qp, &e->qpn), 0);
	return e;
}

static inline void end_free(struct end *e)
{
	free(e->ring);
	free(e->rq);
	free(e);
}

static inline void to_rts(struct host *h, struct end *e, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer,
		.qp_access_flags = RIGHTS, .max_rd_atomic = 16, .max_dest_rd_atomic = 16,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 1, .rnr_retry = 1,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	struct smx_path path = { .hop_limit = 1 };

	assert_int_equal(smx_cmd_modify_qp(h->dev, e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS, NULL), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(smx_cmd_modify_qp(h->dev, e->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER, &path), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(smx_cmd_modify_qp(h->dev, e->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, NULL), 0);
}

static inline void to_state(struct host *h, struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	assert_int_equal(smx_cmd_modify_qp(h->dev, e->qp, &attr, IBV_QP_STATE, NULL), 0);
}

static inline void connect_ends(struct host *h, struct end *a, struct end *b)
{
	to_rts(h, a, b->qpn);
	to_rts(h, b, a->qpn);
}

/* Writes a signaled WQE from mem + from; remote operations go to mem + to. */
static inline void put(struct host *h, struct end *e, uint8_t opcode, uint64_t from, uint64_t to, uint32_t length)
{
	uint8_t *wqe = e->ring + e->pi % BLOCKS * 64;
	uint32_t ds = 1;
	struct smx_wqe_raddr raddr = { .va = to_be64((uintptr_t)h->mem + to), .rkey = to_be32(h->key) };
	struct smx_wqe_data data = {
		.byte_count = to_be32(length), .lkey = to_be32(h->key), .va = to_be64((uintptr_t)h->mem + from),
	};
	struct smx_wqe_atomic one = { .swap_add = to_be64(1) };

	if (opcode != SMX_OP_SEND)
		memcpy(wqe + 16 * ds++, &raddr, 16);
	if (opcode == SMX_OP_ATOMIC_FA)
		memcpy(wqe + 16 * ds++, &one, 16);
	memcpy(wqe + 16 * ds++, &data, 16);
	*(struct smx_wqe_ctrl *)(void *)wqe = (struct smx_wqe_ctrl){
		.opmod_idx_opcode = to_be32((e->pi & 0xffff) << 8 | opcode),
		.qpn_ds = to_be32(e->qpn << 8 | ds), .fm_ce_se = SMX_CTRL_CQ_UPDATE,
	};
	e->pi++;
}

static inline void ring(struct host *h, struct end *e)
{
	be32_store_release(&e->dbrec[SMX_DBREC_SND], e->pi & 0xffff);
	smx_dev_ring_sq(h->dev, e->qp);
}

static inline void post(struct host *h, struct end *e, uint8_t opcode, uint64_t from, uint64_t to, uint32_t length)
{
	put(h, e, opcode, from, to, length);
	ring(h, e);
}

static inline void post_recv(struct host *h, struct end *e, uint64_t to, uint32_t length)
{
	struct smx_wqe_data seg = {
		.byte_count = to_be32(length), .lkey = to_be32(h->key), .va = to_be64((uintptr_t)h->mem + to),
	};

	memcpy(e->rq + e->rq_pi++ % RECVS * 16, &seg, 16);
	be32_store_release(&e->dbrec[SMX_DBREC_RCV], e->rq_pi & 0xffff);
	smx_dev_ring_rq(h->dev, e->qp);
}

/* The next completion. RETURN its opcode, SMX_CQE_INVALID for none; *syndrome 0 for a good one. */
static inline uint8_t poll_cq(struct host *h, uint8_t *syndrome)
{
	const struct smx_cqe64 *cqe = (const void *)(h->cq_buf + h->seen % CQES * 64);
	uint8_t op = cqe->op_own >> 4;

	*syndrome = 0;
	if (op == SMX_CQE_INVALID || (cqe->op_own & 1) != !!(h->seen & CQES))
		return SMX_CQE_INVALID;
	if (op == SMX_CQE_REQ_ERR || op == SMX_CQE_RESP_ERR)
		*syndrome = ((const struct smx_err_cqe *)(const void *)cqe)->syndrome;
	h->seen++;
	be32_store_release(&h->ci[SMX_CQ_DBREC_CI], h->seen);
	return op;
}

#define expect_cqe(h, want, synd) do { \
	uint8_t synd_; \
	assert_int_equal(poll_cq(h, &synd_), want); \
	assert_int_equal(synd_, synd); \
} while (0)

#endif
