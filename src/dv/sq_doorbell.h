/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Telling the device about new send work: doorbell record first, then the UAR.
 *
 * The UAR (BlueFlame) takes either the first 8 bytes of the last WQE, or a whole WQE when the batch is that
 * one WQE and it fits. Its two halves are used in turn. */
#ifndef SMX_SQ_DOORBELL_H
#define SMX_SQ_DOORBELL_H

#include "dv/wqe_build.h"

/* One store a word, so that nobody sees half of one. */
static inline void smx_bf_copy_block(uint8_t *uar, const uint8_t *block)
{
#pragma GCC unroll 8
	for (uint32_t i = 0; i < SMX_WQE_BB; i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, block + i, sizeof(word));
		__atomic_store_n((uint64_t *)(void *)(uar + i), word, __ATOMIC_RELAXED);
	}
}

/* A WQE of ds segments. */
SMX_INLINE void smx_bf_copy(uint8_t *uar, const struct smx_dv_sq *sq, struct smx_wqe_ctrl *ctrl, uint32_t ds)
{
	uint8_t *block = (uint8_t *)ctrl;

	for (;;) {
		smx_bf_copy_block(uar, block);
		if (ds <= SMX_DS_PER_BB)
			break;
		ds -= SMX_DS_PER_BB;
		uar += SMX_WQE_BB;
		block = smx_sq_step(sq, block, SMX_WQE_BB);
	}
}

/* Signs what was built since the last doorbell; before the next. */
void smx_sq_sign(struct smx_dv_qp *qp);

/* Makes the finished requests visible. */
SMX_INLINE void smx_sq_doorbell(struct smx_dv_qp *qp)
{
	struct smx_dv_sq *sq = &qp->sq;
	struct smx_wqe_ctrl *ctrl = sq->wr.last;
	uint32_t head = sq->wr.head, at = sq->cur_post, ds = smx_wqe_ds(ctrl);
	bool only_one = head - sq->head == 1;
	struct smx_dv_bf *bf = &qp->bf;
	uint8_t *half = bf->reg + bf->offset;
	uint64_t first8;

	sq->head = head;
	sq->posted_bb = at;
	be32_store_release(&qp->dbrec[SMX_DBREC_SND], at & 0xffff);
	if (only_one && ds - SMX_BF_DS_MIN < qp->bf_lengths[sq->wr.open.have & SMX_HAVE_INLINE]) {
		smx_bf_copy(half, sq, ctrl, ds);
	} else {
		memcpy(&first8, ctrl, sizeof(first8));
		__atomic_store_n((uint64_t *)(void *)half, first8, __ATOMIC_RELEASE);
	}
	bf->offset ^= bf->buf_bytes;
}

/* Behind the doorbell, and with no lock held. */
SMX_INLINE void smx_sq_ring(struct smx_dv_qp *qp)
{
	if (qp->ring_sq)
		qp->ring_sq(qp);
}

#endif
