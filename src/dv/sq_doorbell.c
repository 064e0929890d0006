/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Telling the device about new send work: doorbell record first, then the UAR.
 *
 * The UAR (BlueFlame) takes either the first 8 bytes of the last WQE, or a whole WQE when the batch is that
 * one WQE and it fits. Its two halves are used in turn. */
#include "dv/wqe_build.h"

/* One store a word, so that nobody sees half of one. */
static void copy_block(uint8_t *uar, const uint8_t *block)
{
#pragma GCC unroll 8
	for (uint32_t i = 0; i < SMX_WQE_BB; i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, block + i, sizeof(word));
		__atomic_store_n((uint64_t *)(void *)(uar + i), word, __ATOMIC_RELAXED);
	}
}

/* The first 8 bytes of a WQE, which were stored as two words. */
static uint64_t first8(const struct smx_wqe_ctrl *ctrl)
{
	return htobe64((uint64_t)from_be32(ctrl->opmod_idx_opcode) << 32 | from_be32(ctrl->qpn_ds));
}

static void uar_write(const struct smx_dv_qp *qp, const struct smx_dv_bf *bf, uint8_t *half, bool only_one)
{
	const struct smx_dv_sq *sq = &qp->sq;
	const struct smx_wqe_ctrl *ctrl = sq->wr.ctrl;
	uint32_t ds = sq->wr.ds;

	if (only_one && !qp->ctx.shut_up_bf && bf->uuarn && (sq->wr.inline_seen || qp->ctx.prefer_bf) &&
	    ds > 1 && ds <= bf->buf_bytes / SMX_WQE_DS) {
		uint32_t at = sq->cur_post - (ds + SMX_DS_PER_BB - 1) / SMX_DS_PER_BB;

		for (uint32_t done = 0; done < ds; done += SMX_DS_PER_BB, half += SMX_WQE_BB)
			copy_block(half, smx_sq_seg(sq, at, done));
		return;
	}
	__atomic_store_n((uint64_t *)(void *)half, first8(ctrl), __ATOMIC_RELEASE);
}

void smx_sq_doorbell(struct smx_dv_qp *qp)
{
	struct smx_dv_sq *sq = &qp->sq;
	struct smx_dv_bf *bf = qp->bf;
	bool only_one = sq->wr.head - sq->head == 1;
	uint32_t offset;

	sq->head = sq->wr.head;
	be32_store_release(&qp->dbrec[SMX_DBREC_SND], sq->cur_post & 0xffff);
	if (!bf || !bf->reg)
		return;
	offset = __atomic_load_n(&bf->offset, __ATOMIC_RELAXED);
	uar_write(qp, bf, bf->reg + offset, only_one);
	__atomic_store_n(&bf->offset, offset ^ bf->buf_bytes, __ATOMIC_RELAXED);
}
