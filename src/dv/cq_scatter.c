/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Inline scatter: short received messages and READ and atomic responses come inside the CQE, and the driver
 * puts them where the request wanted them. */
#include "dv/cq_parse.h"

#include "base/guard.h"
#include "dv/wqe_build.h"

struct source { const uint8_t *data; uint32_t left; };

/* RETURN false where the CQE claims more than it can hold. */
static bool source_of(const struct smx_cqe64 *cqe, uint32_t length, struct source *src)
{
	bool inline_32 = cqe->op_own & SMX_CQE_INLINE_32;

	src->data = (const uint8_t *)(inline_32 ? cqe : cqe - 1);
	src->left = length;
	return length <= (inline_32 ? 32u : 64u);
}

static enum ibv_wc_status put(struct source *src, const struct smx_wqe_data *seg)
{
	uint32_t room = from_be32(seg->byte_count) & (SMX_INLINE_SEG - 1);
	uint32_t n = src->left < room ? src->left : room;
	const void *fault;

	if (n && !smx_guard_copy((void *)(uintptr_t)from_be64(seg->va), src->data, n, &fault))
		return IBV_WC_LOC_PROT_ERR;
	src->data += n;
	src->left -= n;
	return IBV_WC_SUCCESS;
}

enum ibv_wc_status smx_cq_scatter_recv(const struct smx_cqe64 *cqe, const uint8_t *wqe, uint32_t head_bytes,
				       uint32_t stride_bytes)
{
	struct source src;
	enum ibv_wc_status status;

	if (!source_of(cqe, from_be32(cqe->byte_cnt), &src))
		return IBV_WC_LOC_LEN_ERR;
	for (uint32_t at = head_bytes; src.left && at < stride_bytes; at += SMX_WQE_DS) {
		const struct smx_wqe_data *seg = (const struct smx_wqe_data *)(wqe + at);

		if (from_be32(seg->lkey) == SMX_LKEY_END && !from_be32(seg->byte_count))
			break;
		status = put(&src, seg);
		if (status)
			return status;
	}
	return src.left ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

enum ibv_wc_status smx_cq_scatter_send(const struct smx_cqe64 *cqe, const struct smx_dv_qp *qp)
{
	uint32_t bb = from_be16(cqe->wqe_counter), at = 1 + qp->addr_ds, length, ds;
	const struct smx_wqe_ctrl *ctrl = smx_sq_seg(&qp->sq, bb, 0);
	struct source src;
	enum ibv_wc_status status;

	switch (from_be32(ctrl->opmod_idx_opcode) & 0xff) {
	case SMX_OP_RDMA_READ:
		length = from_be32(cqe->byte_cnt);
		at += 1;
		break;
	case SMX_OP_ATOMIC_CS:
	case SMX_OP_ATOMIC_FA:
		length = 8;
		at += 2;
		break;
	default:
		return IBV_WC_REM_INV_REQ_ERR;	/* as libmlx5: no other request has a response with data */
	}
	if (!source_of(cqe, length, &src))
		return IBV_WC_LOC_LEN_ERR;
	ds = bits_get(from_be32(ctrl->qpn_ds), 5, 0);
	for (; src.left && at < ds; at++) {
		status = put(&src, smx_sq_seg(&qp->sq, bb, at));
		if (status)
			return status;
	}
	return src.left ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}
