/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* UMR, DMA copy and tag lists: what a send queue asks of its own device. */
#include "dev/sq_local.h"

#include <assert.h>

#include "obj/tag_list.h"

/* Keys, rights and ranges of both sides are looked at before the first byte is written; memory that is not
 * mapped shows only while copying. No figure of a real device is public. */
static smx_outcome copy_memory(struct smx_dev *dev, struct smx_qp *qp,
			       const struct smx_send_req *req, const struct smx_where *where)
{
	struct smx_dma_fault fault;
	struct smx_walk src, dst;
	uint64_t done = 0;
	smx_outcome check = SMX_CHECK_NONE;

	assert(req->sge_count == 2);
	assert(req->sge[0].length == req->length && req->sge[1].length == req->length);
	smx_walk_list(&src, dev, qp->attr.pd, qp->qpn, SMX_DMA_GATHER, &req->sge[0], 1);
	smx_walk_list(&dst, dev, qp->attr.pd, qp->qpn, SMX_DMA_SCATTER, &req->sge[1], 1);
	if (smx_walk_check(&src, req->length, &fault) < req->length ||
	    smx_walk_check(&dst, req->length, &fault) < req->length)
		check = fault.check;
	else
		check = smx_dma_copy(&dst, &src, req->length, &done, &fault);
	dev->budget_bytes -= (int64_t)done;
	return check ? smx_walk_refuse(dev, &fault, where) : SMX_CHECK_NONE;
}

smx_outcome smx_sq_local(struct smx_dev *dev, struct smx_qp *qp, const struct smx_send_req *req)
{
	struct smx_where where = {
		.qpn = qp->qpn,
		.wqe_index = req->index,
		.opcode = req->opcode,
		.cookie = qp->attr.cookie,
	};

	switch (req->opcode) {
	case SMX_OP_UMR:
		return smx_mkey_umr(dev, &req->umr, qp->attr.pd, &where);
	case SMX_OP_MMO:
		return copy_memory(dev, qp, req, &where);
	case SMX_OP_TAG_MATCHING:
		return smx_tag_execute(dev, qp, &req->tag_op, &where);
	default:
		assert(req->opcode == SMX_OP_NOP);
		return SMX_CHECK_NONE;
	}
}
