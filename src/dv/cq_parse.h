/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a CQE to the request it completes; shared by ibv_poll_cq and the extended poll. */
#ifndef SMX_CQ_PARSE_H
#define SMX_CQ_PARSE_H

#include "dv/dv_cq.h"

/* The CQE at position i if the device has written it, else NULL. */
static inline struct smx_cqe64 *smx_cq_cqe(const struct smx_dv_cq *cq, uint32_t i)
{
	uint8_t *entry = cq->buf + (size_t)(i & (cq->cqe_count - 1)) * cq->cqe_bytes;
	struct smx_cqe64 *cqe = (struct smx_cqe64 *)(entry + cq->cqe_bytes - sizeof(*cqe));
	uint8_t op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

	if (op_own >> 4 == SMX_CQE_INVALID || (op_own & SMX_CQE_OWNER) != !!(i & cq->cqe_count))
		return NULL;
	return cqe;
}

static inline uint8_t smx_cqe_op(const struct smx_cqe64 *cqe)
{
	return cqe->op_own >> 4;
}

static inline uint32_t smx_cqe_qpn(const struct smx_cqe64 *cqe)
{
	return from_be32(cqe->sop_drop_qpn) & 0xffffff;
}

/* The word with source QP, SL and GRH; received data lies over it in a CQE with 32 bytes inline. */
static inline uint32_t smx_cqe_flags_rqpn(const struct smx_cqe64 *cqe)
{
	return cqe->op_own & SMX_CQE_INLINE_32 ? 0 : from_be32(cqe->flags_rqpn);
}

/* Only the owner of the lock moves the consumer index; arming reads it without. */
static inline void smx_cq_consume(struct smx_dv_cq *cq)
{
	__atomic_store_n(&cq->ci, cq->ci + 1, __ATOMIC_RELAXED);
}

static inline void smx_cq_tell_ci(struct smx_dv_cq *cq)
{
	be32_store_release(&cq->dbrec[SMX_CQ_DBREC_CI], cq->ci & 0xffffff);
}

enum smx_cq_result {
	SMX_CQ_DONE,	/* a work completion */
	SMX_CQ_SKIP,	/* a CQE that is not one */
	SMX_CQ_UNKNOWN,	/* it names a queue that is not there */
};

/* Takes over a CQE: wr_id and status of the request, memory for inline data, and the queue's slot is free
 * again. Sets cq->cur_qp, cur_srq, cur_wc_opcode. */
enum smx_cq_result smx_cq_take(struct smx_dv_cq *cq, struct smx_cqe64 *cqe, uint64_t *wr_id,
			       enum ibv_wc_status *status);

/* enum ibv_wc_opcode of a successful completion. */
uint32_t smx_cq_wc_opcode(const struct smx_dv_cq *cq, const struct smx_cqe64 *cqe);

/* Inline data from a CQE into the memory that the request names (cq_scatter.c). */
enum ibv_wc_status smx_cq_scatter_recv(const struct smx_cqe64 *cqe, const uint8_t *wqe, uint32_t head_bytes,
				       uint32_t stride_bytes);
enum ibv_wc_status smx_cq_scatter_send(const struct smx_cqe64 *cqe, const struct smx_dv_qp *qp);

#endif
