/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_wr_raw_wqe and mlx5dv_wr_memcpy. */
#include "dv/wqe_build.h"

#include <inttypes.h>

/* In blocks, the longest WQE that an empty queue takes, as the queue was sized. */
static uint32_t raw_bb_max(const struct smx_dv_sq *sq)
{
	uint32_t sized = sq->wqe_bb * sq->max_post;

	return sized < sq->bb_count ? sized : sq->bb_count;
}

static SMX_SELDOM_CALLED void refuse_raw(struct smx_dv_qp *qp, uint32_t ds, uint32_t bb)
{
	(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_RAW_LENGTH, "ds %" PRIu32 ", blocks %" PRIu32
			    ", the queue takes at most %" PRIu32, ds, bb, raw_bb_max(&qp->sq));
}

/* Ends the request, whose bytes are in the ring. */
SMX_INLINE void put_raw(struct smx_dv_qp *qp, struct smx_wqe_ctrl user, uint32_t ds)
{
	struct smx_dv_sq *sq = &qp->sq;
	uint32_t at = sq->cur_post;
	struct smx_wqe_ctrl *ctrl = smx_sq_seg(sq, at, 0);

	smx_sq_keep(sq, at & sq->bb_mask, qp->ex.wr_id, MLX5DV_WC_RAW_WQE);
	ctrl->opmod_idx_opcode = to_be32((from_be32(user.opmod_idx_opcode) & 0xff0000ff) |
					 bits_put(at & 0xffff, 23, 8));
	smx_wqe_finish(sq, ctrl, ds, 0);
}

/* A WQE that is longer than the queue was sized for, or goes round the ring's end, or is none. */
static SMX_SELDOM_CALLED void put_odd_raw(struct smx_dv_qp *qp, const void *wqe, struct smx_wqe_ctrl user, uint32_t ds)
{
	struct smx_dv_sq *sq = &qp->sq;
	uint32_t bb = smx_wqe_blocks(ds);

	if (!ds || (bb > 1 && bb > raw_bb_max(sq))) {
		refuse_raw(qp, ds, bb);
		return;
	}
	if (bb > sq->wqe_bb && bb > smx_sq_free_bb(sq)) {
		(void)smx_sq_refuse_full(qp, bb);
		return;
	}
	smx_sq_write(sq, sq->cur_post, 0, wqe, (size_t)ds * SMX_WQE_DS);
	put_raw(qp, user, ds);
	if (bb > sq->wqe_bb)
		smx_sq_oversized(sq);
}

SMX_INLINE void raw(struct smx_dv_qp *qp, const void *wqe)
{
	struct smx_dv_sq *sq = &qp->sq;
	struct smx_wqe_ctrl user;
	uint32_t ds;

	memcpy(&user, wqe, sizeof(user));
	ds = smx_wqe_ds(&user);
	if (ds == SMX_DS_PER_BB) {
		memcpy(smx_sq_seg(sq, sq->cur_post, 0), wqe, SMX_WQE_BB);
		put_raw(qp, user, ds);
	} else {
		put_odd_raw(qp, wqe, user, ds);
	}
}

static SMX_SELDOM_CALLED void raw_unready(struct smx_dv_qp *qp, const void *wqe)
{
	if (smx_wr_make_ready(qp, qp->dv_ops & MLX5DV_QP_EX_WITH_RAW_WQE, "mlx5dv_wr_raw_wqe"))
		raw(qp, wqe);
}

void smx_wr_raw_wqe(struct mlx5dv_qp_ex *dv, const void *wqe)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (smx_wr_is_ready(qp, qp->dv_ops & MLX5DV_QP_EX_WITH_RAW_WQE))
		raw(qp, wqe);
	else
		raw_unready(qp, wqe);
}

static SMX_SELDOM_CALLED void refuse_memcpy(struct smx_dv_qp *qp, size_t length)
{
	(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_MEMCPY_LENGTH, "length %zu, max_wr_memcpy_length %" PRIu64,
			    length, qp->ctx.memcpy_max);
}

SMX_INLINE void dma_memcpy(struct smx_dv_qp *qp, uint32_t dest_lkey, uint64_t dest_addr, uint32_t src_lkey,
			   uint64_t src_addr, size_t length)
{
	uint32_t count = length & (SMX_INLINE_SEG - 1);	/* 2^31 is written as 0 */
	struct smx_wqe_ctrl *ctrl;

	if (length - 1 >= qp->ctx.memcpy_max) {		/* 0 too */
		refuse_memcpy(qp, length);
		return;
	}
	ctrl = smx_wqe_open(qp, bits_put(SMX_MMO_OPMOD_DMA, 31, 24) | SMX_OP_MMO, SMX_DS_PER_BB, to_be32(0),
			    qp->ex.wr_flags, MLX5DV_WC_MEMCPY, qp->ex.wr_id);
	/* The whole request is one block. */
	smx_seg_data(ctrl + 2, src_addr, count, src_lkey);
	smx_seg_data(ctrl + 3, dest_addr, count, dest_lkey);
	/* struct smx_wqe_mmo_meta */
	smx_seg_set(ctrl + 1, to_be64(qp->ctx.opaque_lkey), to_be64(qp->ctx.opaque_addr));
	smx_wqe_finish(&qp->sq, ctrl, SMX_DS_PER_BB, 0);
}

static SMX_SELDOM_CALLED void memcpy_unready(struct smx_dv_qp *qp, uint32_t dest_lkey, uint64_t dest_addr,
					     uint32_t src_lkey, uint64_t src_addr, size_t length)
{
	if (smx_wr_make_ready(qp, qp->dv_ops & MLX5DV_QP_EX_WITH_MEMCPY, "mlx5dv_wr_memcpy"))
		dma_memcpy(qp, dest_lkey, dest_addr, src_lkey, src_addr, length);
}

void smx_wr_memcpy(struct mlx5dv_qp_ex *dv, uint32_t dest_lkey, uint64_t dest_addr, uint32_t src_lkey,
		   uint64_t src_addr, size_t length)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (smx_wr_is_ready(qp, qp->dv_ops & MLX5DV_QP_EX_WITH_MEMCPY))
		dma_memcpy(qp, dest_lkey, dest_addr, src_lkey, src_addr, length);
	else
		memcpy_unready(qp, dest_lkey, dest_addr, src_lkey, src_addr, length);
}
