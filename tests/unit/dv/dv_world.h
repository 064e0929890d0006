/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A queue pair, completion queue and SRQ of the driver without a device: tests read the rings and write the
 * completions themselves. */
#ifndef DV_WORLD_H
#define DV_WORLD_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bits.h"
#include "dv/dv_cq.h"
#include "dv/dv_qp.h"
#include "dv/dv_srq.h"

enum { WORLD_CQES = 8, WORLD_SRQN = 0x77, WORLD_QPN = 0x1234 };

#define OPS_RC (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV |		\
		IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |	\
		IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |			\
		IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
#define DV_OPS_RC (MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST |				\
		   MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY)

struct world {
	struct smx_refusal_log log;
	struct smx_dv_table qps, srqs;
	struct smx_dv_qp qp;
	struct smx_dv_cq cq;
	struct smx_dv_srq srq;
	uint32_t qp_dbrec[2], cq_dbrec[2], srq_dbrec[1];
	uint8_t *buf, *srq_buf;
	uint8_t cq_buf[WORLD_CQES * 128];
	uint8_t cq_uar[64];
	uint8_t bf_reg[2 * 256];
	uint32_t pi;			/* CQEs written */
	uint32_t rung_sq, rung_rq, rung_srq, idle_calls, armed;
	bool (*on_idle)(struct world *w);
};

static inline void world_ring_sq(struct smx_dv_qp *qp)
{
	container_of(qp, struct world, qp)->rung_sq++;
}

static inline void world_ring_rq(struct smx_dv_qp *qp)
{
	container_of(qp, struct world, qp)->rung_rq++;
}

static inline void world_ring_srq(struct smx_dv_srq *srq)
{
	container_of(srq, struct world, srq)->rung_srq++;
}

static inline bool world_idle(struct smx_dv_cq *cq)
{
	struct world *w = container_of(cq, struct world, cq);

	assert_int_equal(cq->lock.word, 0);	/* the device may take any lock */
	w->idle_calls++;
	return w->on_idle && w->on_idle(w);
}

static inline void world_arm(struct smx_dv_cq *cq, uint32_t word)
{
	container_of(cq, struct world, cq)->armed = word;
}

static inline void world_cq(struct world *w, uint32_t cqe_bytes)
{
	w->cq = (struct smx_dv_cq){
		.cqn = 0x55, .buf = w->cq_buf, .cqe_count = WORLD_CQES, .cqe_bytes = cqe_bytes,
		.dbrec = (be32 *)w->cq_dbrec, .uar = w->cq_uar, .qps = &w->qps, .srqs = &w->srqs,
		.lock.needed = true, .idle = world_idle, .arm = world_arm,
	};
	memset(w->cq_buf, 0, sizeof(w->cq_buf));
	smx_dv_cq_init_buf(w->cq_buf, WORLD_CQES, cqe_bytes);
	w->pi = 0;
}

/* A queue pair in RTS. cap is updated to what was granted. */
static inline struct world *world_new(enum smx_dv_qp_kind kind, uint64_t send_ops, uint64_t dv_ops,
				      struct ibv_qp_cap *cap)
{
	struct world *w = calloc(1, sizeof(*w));
	struct smx_dv_qp *qp = &w->qp;
	struct smx_dv_qp_sizes s;

	assert_non_null(w);
	assert_int_equal(smx_dv_qp_size(&w->log, kind, send_ops, dv_ops, false, false, cap, &s), 0);
	w->buf = calloc(1, s.total_bytes + 1);
	qp->kind = kind;
	qp->qpn = WORLD_QPN;
	qp->ex.qp_base.qp_num = WORLD_QPN;
	qp->ex.qp_base.state = IBV_QPS_RTS;
	qp->can_post = qp->atomics = qp->has_ex = true;
	qp->send_ops = send_ops;
	qp->dv_ops = dv_ops;
	qp->sq.buf = w->buf + s.sq_offset;
	qp->sq.bb_count = s.sq_bb_count;
	qp->sq.max_post = s.sq_max_post;
	qp->sq.max_gs = s.sq_max_gs;
	qp->sq.max_inline = s.sq_max_inline;
	qp->sq.slot = calloc(s.sq_bb_count + 1, sizeof(*qp->sq.slot));
	qp->sq.lock.needed = qp->rq.lock.needed = true;
	qp->rq.buf = w->buf + s.rq_offset;
	qp->rq.wqe_count = s.rq_wqe_count;
	qp->rq.stride_bytes = s.rq_stride_bytes;
	qp->rq.max_gs = s.rq_max_gs;
	qp->rq.wr_id = calloc(s.rq_wqe_count + 1, sizeof(*qp->rq.wr_id));
	qp->dbrec = (be32 *)w->qp_dbrec;
	qp->bf = (struct smx_dv_bf){ .reg = w->bf_reg, .uuarn = 1, .buf_bytes = 256 };
	qp->refusals = &w->log;
	qp->ring_sq = world_ring_sq;
	qp->ring_rq = world_ring_rq;
	qp->ctx.memcpy_max = 1 << 24;
	assert_int_equal(smx_dv_qp_fill_ops(qp), 0);
	smx_dv_qp_prepare(qp);
	assert_int_equal(smx_dv_table_set(&w->qps, WORLD_QPN, qp), 0);
	world_cq(w, 64);
	return w;
}

/* The queue as it is when so many requests were posted, which ended before block at, and all are complete. */
static inline void world_sq_at(struct world *w, uint32_t at, uint32_t head)
{
	struct smx_dv_sq *sq = &w->qp.sq;

	sq->cur_post = sq->posted_bb = sq->tail_bb = at;
	sq->head = sq->wr.head = sq->wr.limit = sq->tail = head;
}

static inline struct world *world_rc(void)
{
	struct ibv_qp_cap cap = { .max_send_wr = 8, .max_recv_wr = 4, .max_send_sge = 4, .max_recv_sge = 3,
				  .max_inline_data = 64 };

	return world_new(SMX_DV_RC, OPS_RC, DV_OPS_RC, &cap);
}

static inline void world_srq(struct world *w, uint32_t max_wr, uint32_t max_sge)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr, .max_sge = max_sge };
	struct smx_dv_srq *srq = &w->srq;

	assert_int_equal(smx_dv_srq_size(&w->log, &attr, &srq->wqe_count, &srq->stride_bytes), 0);
	srq->srqn = WORLD_SRQN;
	srq->max_gs = attr.max_sge;
	srq->buf = w->srq_buf = calloc(srq->wqe_count, srq->stride_bytes);
	srq->wr_id = calloc(srq->wqe_count, sizeof(*srq->wr_id));
	srq->dbrec = (be32 *)w->srq_dbrec;
	srq->lock.needed = true;
	srq->refusals = &w->log;
	srq->ring = world_ring_srq;
	smx_dv_srq_init(srq);
	assert_int_equal(smx_dv_table_set(&w->srqs, WORLD_SRQN, srq), 0);
}

static inline void world_free(struct world *w)
{
	smx_dv_table_fini(&w->qps);
	smx_dv_table_fini(&w->srqs);
	free(w->qp.sq.slot);
	free(w->qp.rq.wr_id);
	free(w->srq.wr_id);
	free(w->srq_buf);
	free(w->buf);
	free(w);
}

/* The last refusal is of this rule. */
static inline void assert_refused(struct world *w, enum smx_check check)
{
	struct smx_refusal r;

	assert_int_equal(smx_refusal_get(&w->log, 0, &r), 1);
	assert_string_equal(smx_check_info(r.check)->name, smx_check_info(check)->name);
}

/* Writes the next CQE as the device does: the owner byte last. */
static inline struct smx_cqe64 *world_cqe(struct world *w, uint8_t op, const struct smx_cqe64 *cqe)
{
	uint8_t *entry = w->cq.buf + (size_t)(w->pi & (w->cq.cqe_count - 1)) * w->cq.cqe_bytes;
	struct smx_cqe64 *at = (struct smx_cqe64 *)(entry + w->cq.cqe_bytes - sizeof(*at));

	memcpy(at, cqe, offsetof(struct smx_cqe64, op_own));
	at->op_own = (uint8_t)(op << 4 | (cqe->op_own & 0xe) | (w->pi & w->cq.cqe_count ? SMX_CQE_OWNER : 0));
	w->pi++;
	return at;
}

/* The completion of a send WQE. */
static inline void world_done(struct world *w, uint32_t bb, uint8_t opcode)
{
	world_cqe(w, SMX_CQE_REQ, &(struct smx_cqe64){
		.sop_drop_qpn = to_be32((uint32_t)opcode << 24 | WORLD_QPN), .wqe_counter = to_be16((uint16_t)bb) });
}

static inline void world_failed(struct world *w, uint8_t op, uint32_t counter, uint8_t syndrome, uint8_t vendor)
{
	struct smx_err_cqe e = { .vendor_err_synd = vendor, .syndrome = syndrome,
				 .s_wqe_opcode_qpn = to_be32(WORLD_QPN), .wqe_counter = to_be16((uint16_t)counter) };

	world_cqe(w, op, (const struct smx_cqe64 *)(const void *)&e);
}

static inline int world_poll(struct world *w, int n, struct ibv_wc *wc)
{
	return smx_dv_poll_cq((struct ibv_cq *)(void *)&w->cq, n, wc);
}

/* One signaled 8-byte RDMA WRITE. RETURN what ibv_wr_complete does. */
static inline int world_write(struct world *w, uint64_t wr_id)
{
	struct ibv_qp_ex *ex = &w->qp.ex;

	ibv_wr_start(ex);
	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, 0x200, 0x1000);
	ibv_wr_set_sge(ex, 0x100, 0x2000, 8);
	return ibv_wr_complete(ex);
}

static inline const struct smx_wqe_ctrl *world_wqe(const struct world *w, uint32_t bb)
{
	return (const struct smx_wqe_ctrl *)(w->qp.sq.buf + (size_t)(bb & (w->qp.sq.bb_count - 1)) * SMX_WQE_BB);
}

static inline const void *world_seg(const struct world *w, uint32_t bb, uint32_t ds)
{
	uint32_t mask = w->qp.sq.bb_count * 4 - 1;

	return w->qp.sq.buf + (size_t)((bb * 4 + ds) & mask) * SMX_WQE_DS;
}

#endif
