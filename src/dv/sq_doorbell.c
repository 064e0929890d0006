/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Telling the device about new send work: doorbell record first, then the UAR.
 *
 * The UAR (BlueFlame) takes either the first 8 bytes of the last WQE, or a whole WQE when the batch is that
 * one WQE and it fits. Its two halves are used in turn. */
#include "dv/wqe_build.h"

static void uar_write(const struct smx_dv_qp *qp, const struct smx_dv_bf *bf)
{
	const struct smx_dv_sq *sq = &qp->sq;
	uint32_t at = sq->wr.last_at, ds = sq->wr.last_ds;
	uint64_t first8;

	if (!qp->ctx.shut_up_bf && sq->wr.nreq == 1 && bf->uuarn && (sq->wr.inline_seen || qp->ctx.prefer_bf) &&
	    ds > 1 && ds <= bf->buf_bytes / SMX_WQE_DS) {
		smx_sq_read(sq, at, 0, bf->reg + bf->offset, align_up(ds, SMX_DS_PER_BB) * SMX_WQE_DS);
		return;
	}
	memcpy(&first8, smx_sq_seg(sq, at, 0), sizeof(first8));
	__atomic_store_n((uint64_t *)(void *)(bf->reg + bf->offset), first8, __ATOMIC_RELEASE);
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
