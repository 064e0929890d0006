/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_wr_raw_wqe and mlx5dv_wr_memcpy. */
#include "dv/wqe_build.h"

#include <inttypes.h>

/* In blocks, the longest WQE that an empty queue takes, as the queue was sized. */
static uint32_t raw_bb_max(struct smx_dv_sq *sq)
{
	uint32_t sized = smx_sq_wqe_bb(sq) * sq->max_post;

	return sized < sq->bb_count ? sized : sq->bb_count;
}

void smx_wr_raw_wqe(struct mlx5dv_qp_ex *dv, const void *wqe)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);
	struct smx_dv_sq *sq = &qp->sq;
	struct smx_wqe_ctrl *ctrl, user;
	struct smx_dv_slot *slot;
	uint32_t ds, bb, at = sq->cur_post;

	if (!smx_wr_may_build(qp, qp->dv_ops & MLX5DV_QP_EX_WITH_RAW_WQE, "mlx5dv_wr_raw_wqe"))
		return;
	memcpy(&user, wqe, sizeof(user));
	ds = bits_get(from_be32(user.qpn_ds), 5, 0);
	bb = (ds + SMX_DS_PER_BB - 1) / SMX_DS_PER_BB;
	if (!ds || (bb > 1 && bb > raw_bb_max(sq))) {
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_RAW_LENGTH, "ds %" PRIu32 ", blocks %" PRIu32
				    ", the queue takes at most %" PRIu32, ds, bb, raw_bb_max(sq));
		return;
	}
	if (bb > sq->wqe_bb && bb > smx_sq_free_bb(sq)) {
		(void)smx_sq_refuse_full(qp, bb);
		return;
	}
	slot = smx_sq_slot(sq, at);
	*slot = (struct smx_dv_slot){
		.wr_id = qp->ex.wr_id,
		.head = sq->wr.head++,
		.wr_data = MLX5DV_WC_RAW_WQE,
		.stream = qp->kind == SMX_DV_DCI ? from_be16(user.dci_stream) : 0,
	};
	ctrl = smx_sq_seg(sq, at, 0);
	sq->fm_cache = 0;
	sq->wr.slot = slot;
	sq->wr.ctrl = ctrl;
	if (ds == SMX_DS_PER_BB)
		memcpy(ctrl, wqe, SMX_WQE_BB);
	else
		smx_sq_write(sq, at, 0, wqe, (size_t)ds * SMX_WQE_DS);
	ctrl->opmod_idx_opcode = to_be32((from_be32(user.opmod_idx_opcode) & 0xff0000ff) |
					 bits_put(at & 0xffff, 23, 8));
	smx_wqe_commit(qp, ctrl, ds);
	if (bb > sq->wqe_bb)
		smx_sq_oversized(sq);
}

void smx_wr_memcpy(struct mlx5dv_qp_ex *dv, uint32_t dest_lkey, uint64_t dest_addr, uint32_t src_lkey,
		   uint64_t src_addr, size_t length)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);
	struct smx_wqe_ctrl *ctrl;
	uint32_t count = length & (SMX_INLINE_SEG - 1);	/* 2^31 is written as 0 */

	if (!smx_wr_may_build(qp, qp->dv_ops & MLX5DV_QP_EX_WITH_MEMCPY, "mlx5dv_wr_memcpy"))
		return;
	if (!length || length > qp->ctx.memcpy_max || length > SMX_INLINE_SEG) {
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_MEMCPY_LENGTH, "length %zu, max_wr_memcpy_length %" PRIu64,
				    length, qp->ctx.memcpy_max);
		return;
	}
	ctrl = smx_wqe_open(qp, bits_put(SMX_MMO_OPMOD_DMA, 31, 24) | SMX_OP_MMO, to_be32(0), qp->ex.wr_flags,
			    MLX5DV_WC_MEMCPY, qp->ex.wr_id, 4);
	/* The whole request is one block. */
	smx_seg_set(ctrl + 1, qp->ctx.opaque_lkey, qp->ctx.opaque_addr);	/* struct smx_wqe_mmo_meta */
	smx_seg_data(ctrl + 2, src_addr, count, src_lkey);
	smx_seg_data(ctrl + 3, dest_addr, count, dest_lkey);
	smx_wqe_close(qp, 4);
}
