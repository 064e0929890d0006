/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a CQE to the request it completes; shared by ibv_poll_cq and the extended poll. */
#ifndef SMX_CQ_PARSE_H
#define SMX_CQ_PARSE_H

#include "dv/dv_cq.h"
#include "dv/wqe_build.h"

/* The entry at position i. */
static inline struct smx_cqe64 *smx_cq_entry(const struct smx_dv_cq *cq, uint32_t i)
{
	uint8_t *entry = cq->buf + (size_t)(i & (cq->cqe_count - 1)) * cq->cqe_bytes;

	return (struct smx_cqe64 *)(entry + cq->cqe_bytes - sizeof(struct smx_cqe64));
}

/* Is the entry at position i, by its end, of the round that i is in? A ring's first entries have the owner bit of the
 * round before, and are invalid, lest they be taken for a CQE where the first round is an odd one, after a move. */
static inline bool smx_cq_is_of_round(const struct smx_dv_cq *cq, uint32_t i, uint64_t end)
{
	return (end & SMX_CQE_OWNER) == !!(i & cq->cqe_count);
}

/* Has the device written it? */
static inline bool smx_cq_has(const struct smx_dv_cq *cq, uint32_t i, uint64_t end)
{
	return smx_cq_is_of_round(cq, i, end) && smx_cqe_end_op(end) != SMX_CQE_INVALID;
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

static inline bool smx_cqe_is_inline(const struct smx_cqe64 *cqe)
{
	return cqe->op_own & (SMX_CQE_INLINE_32 | SMX_CQE_INLINE_64);
}

/* Only the owner of the lock moves the consumer index; arming reads it without. */
static inline void smx_cq_consume(struct smx_dv_cq *cq)
{
	__atomic_store_n(&cq->ci, cq->ci + 1, __ATOMIC_RELAXED);
}

static inline void smx_cq_tell_ci(struct smx_dv_cq *cq, uint32_t ci)
{
	be32_store_release(&cq->dbrec[SMX_CQ_DBREC_CI], ci & 0xffffff);
}

enum smx_cq_result {
	SMX_CQ_DONE,	/* a work completion */
	SMX_CQ_SKIP,	/* a CQE that is not one */
	SMX_CQ_UNKNOWN,	/* it names a queue that is not there */
};

/* What the completion of a request says by the operation that its CQE names. */
struct smx_sent_op {
	uint8_t opcode;		/* enum ibv_wc_opcode; SMX_SENT_BY_SLOT: the slot knows it */
	uint8_t wc_flags;
	uint8_t bytes;		/* of the answer; SMX_SENT_COUNTED: the CQE says how many */
	uint8_t rsvd;
};
enum { SMX_SENT_BY_SLOT = 0xff, SMX_SENT_COUNTED = 0xff };
extern const struct smx_sent_op smx_sent_ops[256] __attribute__((visibility("hidden")));

/* Of the WQE that begins at block at. */
static inline uint32_t smx_cq_blocks(const struct smx_dv_sq *sq, uint32_t at)
{
	return smx_wqe_blocks(smx_wqe_ds(smx_sq_seg(sq, at, 0)));
}

/* The slot of a WQE is free once the WQE and all before it are complete. */
static inline void smx_cq_free_in_order(struct smx_dv_sq *sq, uint16_t wqe_counter, const struct smx_dv_slot *slot)
{
	uint32_t head = slot->head, at = sq->tail_bb + (uint16_t)(wqe_counter - sq->tail_bb);

	/* A CQE of a slot that is not outstanding, as a program that writes WQEs itself may cause. */
	if (SMX_SELDOM(head - sq->tail >= sq->max_post))
		return;
	__atomic_store_n(&sq->tail_bb, at + smx_cq_blocks(sq, at), __ATOMIC_RELEASE);
	__atomic_store_n(&sq->tail, head + 1, __ATOMIC_RELEASE);
}

/* Takes over a CQE whose end has been read, when it is of the commonest kinds: the success of a request, or of a
 * receive of the queue pair's own, with nothing in the CQE that belongs elsewhere. RETURN whether it was; then *wr_id
 * is that of the request, the queue's slot is free again, and cq->cur_tag_flags and cur_wc_opcode are set. The queue
 * pair is looked for each time: it may have been destroyed since the last one, and its number be another's. */
SMX_INLINE bool smx_cq_take_plain(struct smx_dv_cq *cq, const struct smx_cqe64 *cqe, uint64_t end, uint64_t *wr_id)
{
	uint8_t op = smx_cqe_end_op(end);
	uint16_t counter = smx_cqe_end_counter(end);
	struct smx_dv_qp *qp;

	if (SMX_SELDOM(op > SMX_CQE_RESP_SEND_INV || end & (SMX_CQE_INLINE_32 | SMX_CQE_INLINE_64)))
		return false;
	qp = smx_dv_table_get(cq->qps, smx_cqe_end_qpn(end));
	if (SMX_SELDOM(!qp))
		return false;
	if (op == SMX_CQE_REQ) {
		const struct smx_dv_slot *slot;

		if (SMX_SELDOM(!qp->sq.slot || qp->has_streams))
			return false;
		slot = smx_sq_slot(&qp->sq, counter);
		cq->cur_wc_opcode = slot->wr_data;
		*wr_id = slot->wr_id;
		smx_cq_free_in_order(&qp->sq, counter, slot);
	} else {
		if (SMX_SELDOM(cqe->app || !qp->rq.wqe_count))
			return false;
		*wr_id = qp->rq.wr_id[counter & (qp->rq.wqe_count - 1)];
		__atomic_store_n(&qp->rq.tail, qp->rq.tail + 1, __ATOMIC_RELEASE);
	}
	cq->cur_tag_flags = 0;
	return true;
}

/* The same for all others, with their status and memory for inline data. */
enum smx_cq_result smx_cq_take_other(struct smx_dv_cq *cq, const struct smx_cqe64 *cqe, uint64_t *wr_id,
				     enum ibv_wc_status *status);

/* enum ibv_wc_opcode of a request that succeeded. */
static inline uint32_t smx_cq_sent_opcode(const struct smx_dv_cq *cq, struct smx_sent_op op)
{
	uint32_t by_slot = cq->cur_wc_opcode;

	return op.opcode == SMX_SENT_BY_SLOT || by_slot == MLX5DV_WC_RAW_WQE ? by_slot : op.opcode;
}

/* enum ibv_wc_opcode of a successful completion. */
uint32_t smx_cq_wc_opcode(const struct smx_dv_cq *cq, const struct smx_cqe64 *cqe);

/* Inline data from a CQE into the memory that the request names (cq_scatter.c). */
enum ibv_wc_status smx_cq_scatter_recv(const struct smx_cqe64 *cqe, const uint8_t *wqe, uint32_t head_bytes,
				       uint32_t stride_bytes);
enum ibv_wc_status smx_cq_scatter_send(const struct smx_cqe64 *cqe, const struct smx_dv_qp *qp);

#endif
