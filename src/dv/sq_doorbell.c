/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Telling the device about new send work: doorbell record first, then the UAR.
 *
 * The UAR (BlueFlame) takes either the first 8 bytes of the last WQE, or a whole WQE when the batch is that
 * one WQE and it fits. Its two halves are used in turn. */
#include "dv/wqe_build.h"

/* One store a word, so that nobody sees half of one. */
static void copy_block(uint8_t *uar, const uint8_t *block)
{
	for (uint32_t i = 0; i < SMX_WQE_BB; i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, block + i, sizeof(word));
		__atomic_store_n((uint64_t *)(void *)(uar + i), word, __ATOMIC_RELAXED);
	}
}

static void uar_write(const struct smx_dv_qp *qp, const struct smx_dv_bf *bf)
{
	const struct smx_dv_sq *sq = &qp->sq;
	uint32_t at = sq->wr.last_at, ds = sq->wr.last_ds;
	uint8_t *half = bf->reg + bf->offset;

	if (!qp->ctx.shut_up_bf && sq->wr.nreq == 1 && bf->uuarn && (sq->wr.inline_seen || qp->ctx.prefer_bf) &&
	    ds > 1 && ds <= bf->buf_bytes / SMX_WQE_DS) {
		for (uint32_t done = 0; done < ds; done += SMX_DS_PER_BB, half += SMX_WQE_BB)
			copy_block(half, smx_sq_seg(sq, at, done));
		return;
	}
	__atomic_store_n((uint64_t *)(void *)half, sq->wr.last_first8, __ATOMIC_RELEASE);
}

void smx_sq_doorbell(struct smx_dv_qp *qp)
{
	struct smx_dv_sq *sq = &qp->sq;
	struct smx_dv_bf *bf = qp->bf;

	sq->head += sq->wr.nreq;
	be32_store_release(&qp->dbrec[SMX_DBREC_SND], sq->cur_post & 0xffff);
	if (!bf || !bf->reg)
		return;
	smx_dv_lock(&bf->lock);
	uar_write(qp, bf);
	bf->offset ^= bf->buf_bytes;
	smx_dv_unlock(&bf->lock);
}
