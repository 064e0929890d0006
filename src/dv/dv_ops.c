/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which operations a kind of queue pair offers, and its table of functions.
 *
 * Every pointer is set on every kind: what was not asked for at creation refuses when it is called, which
 * says more than a NULL pointer would. */
#include "dv/wqe_build.h"

#include <errno.h>
#include <inttypes.h>

#define OPS_MESSAGE (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define OPS_WINDOW (IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
#define OPS_UC (OPS_MESSAGE | OPS_WINDOW | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE | \
		IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
#define OPS_ATOMIC (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
#define OPS_RC (OPS_UC | OPS_ATOMIC | IBV_QP_EX_WITH_RDMA_READ)
#define DV_OPS_UMR (MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST | \
		    MLX5DV_QP_EX_WITH_MKEY_CONFIGURE)

static const struct kind_ops {
	const char *name;
	uint64_t send_ops, dv_ops;
} kinds[] = {
	[SMX_DV_RC] = { "RC", OPS_RC, DV_OPS_UMR | MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY },
	[SMX_DV_UC] = { "UC", OPS_UC, MLX5DV_QP_EX_WITH_RAW_WQE },
	[SMX_DV_UD] = { "UD", OPS_MESSAGE, MLX5DV_QP_EX_WITH_RAW_WQE },
	[SMX_DV_XRC_INI] = { "XRC initiator", OPS_RC, MLX5DV_QP_EX_WITH_RAW_WQE },
	[SMX_DV_XRC_TGT] = { "XRC target", 0, 0 },
	[SMX_DV_DCI] = { "DCI", OPS_RC, MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY },
	[SMX_DV_DCT] = { "DCT", 0, 0 },
};

int smx_dv_qp_fill_ops(struct smx_dv_qp *qp)
{
	const struct kind_ops *kind = &kinds[qp->kind];
	const size_t first = offsetof(struct ibv_qp_ex, wr_atomic_cmp_swp);
	const size_t first_dv = offsetof(struct mlx5dv_qp_ex, wr_set_dc_addr);
	uint64_t send_ops = kind->send_ops & ~(qp->atomics ? 0 : (uint64_t)OPS_ATOMIC);

	if (qp->send_ops & ~send_ops || qp->dv_ops & ~kind->dv_ops)
		return smx_refuse(qp->refusals, SMX_CHECK_SEND_OPS, &(struct smx_where){ .cookie = qp },
				  "%s: send_ops_flags 0x%" PRIx64 ", of these not supported 0x%" PRIx64
				  "; of mlx5dv 0x%" PRIx64 ", not supported 0x%" PRIx64, kind->name, qp->send_ops,
				  qp->send_ops & ~send_ops, qp->dv_ops, qp->dv_ops & ~kind->dv_ops);
	memcpy((char *)&qp->ex + first, (const char *)&smx_wr_send_ops + first, sizeof(qp->ex) - first);
	memcpy((char *)&qp->dv + first_dv, (const char *)&smx_wr_dv_ops + first_dv, sizeof(qp->dv) - first_dv);
	return 0;
}

void smx_dv_qp_prepare(struct smx_dv_qp *qp)
{
	static const struct address { uint8_t ds, needs; } address[] = {
		[SMX_DV_UD] = { sizeof(struct smx_wqe_av) / SMX_WQE_DS, SMX_NEED_UD_ADDR },
		[SMX_DV_DCI] = { sizeof(struct smx_wqe_av) / SMX_WQE_DS, SMX_NEED_DC_ADDR },
		[SMX_DV_XRC_INI] = { sizeof(struct smx_wqe_xrc) / SMX_WQE_DS, SMX_NEED_XRC_SRQN },
		[SMX_DV_DCT] = { 0 },
	};
	struct smx_dv_sq *sq = &qp->sq;
	const struct smx_dv_bf *bf = &qp->bf;

	sq->end = sq->buf ? sq->buf + (size_t)sq->bb_count * SMX_WQE_BB : NULL;
	sq->bb_mask = sq->bb_count - 1;
	sq->wqe_bb = sq->max_post ? sq->bb_count / sq->max_post : 0;
	sq->max_xlt = (sq->max_inline + (uint32_t)sizeof(struct smx_wqe_inline)) / SMX_WQE_DS;
	sq->max_sge_bytes = sq->max_gs ? SMX_INLINE_SEG - 1 : 0;
	sq->wr.open.state = SMX_WR_OUTSIDE;
	qp->addr_ds = address[qp->kind].ds;
	qp->addr_bytes = qp->addr_ds * (uint32_t)SMX_WQE_DS;
	for (uint32_t i = 0; i < SMX_COUNT(qp->opened); i++)
		qp->opened[i] = (struct smx_wr_open){ .state = SMX_NEED_DATA | address[qp->kind].needs,
						      .ds = (uint8_t)(1 + qp->addr_ds + i) };
	if (qp->ctx.memcpy_max > SMX_INLINE_SEG)
		qp->ctx.memcpy_max = SMX_INLINE_SEG;
	qp->plain_ops = smx_plain_ops(qp);
	qp->ctrl_number = be64_of(to_be32(0), to_be32(qp->qpn << 8));
	if (bf->uuarn && !qp->ctx.shut_up_bf) {
		qp->bf_lengths[1] = (uint8_t)(bf->buf_bytes / SMX_WQE_DS + 1 - SMX_BF_DS_MIN);
		qp->bf_lengths[0] = qp->ctx.prefer_bf ? qp->bf_lengths[1] : 0;
	}
}

void smx_dv_qp_reset(struct smx_dv_qp *qp)
{
	struct smx_dv_sq *sq = &qp->sq;

	smx_dv_lock(&sq->lock);
	sq->cur_post = sq->posted_bb = sq->head = sq->wr.head = 0;
	sq->wr.limit = 0;	/* of the room there was before */
	__atomic_store_n(&sq->tail, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&sq->tail_bb, 0, __ATOMIC_RELEASE);
	if (sq->slot)
		memset(sq->slot, 0, sizeof(*sq->slot) * sq->bb_count);
	if (qp->dbrec)
		be32_store_release(&qp->dbrec[SMX_DBREC_SND], 0);
	smx_dv_unlock(&sq->lock);
	smx_dv_lock(&qp->rq.lock);
	qp->rq.head = 0;
	__atomic_store_n(&qp->rq.tail, 0, __ATOMIC_RELEASE);
	if (qp->dbrec)
		be32_store_release(&qp->dbrec[SMX_DBREC_RCV], 0);
	smx_dv_unlock(&qp->rq.lock);
}
