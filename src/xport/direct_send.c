/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Messages that need no frame: SEND and WRITE with immediate to a queue pair of this process.
 *
 * The requester does at once what the responder does with a frame that arrives whole. Nothing that was sent before is
 * unanswered, so the message takes no sequence number and no acknowledgement. Whatever speaks against it is found
 * before a receive is taken; then the message goes as a frame, and the responder says what it was. */
#include "xport/direct.h"
#include "xport/responder.h"

enum { LONGEST_BYTES = 1 << 20 };	/* longer ones leave room for others in between, as frames */

/* The connection's other end, where it expects what comes next. */
static struct smx_qp *find_rc(const struct smx_dev *dev, const struct smx_qp *qp, const struct smx_requester *st)
{
	struct smx_qp *target = smx_qp_find(dev, qp->cur.dest_qp_num);
	const struct smx_resp_ctx *c;

	if (!target || target->attr.type != SMX_QP_RC || target->cur.dest_qp_num != qp->qpn)
		return NULL;
	c = target->resp->one;
	return c->epsn == st->next_psn && !c->has_recv && !c->message ? target : NULL;
}

static struct smx_qp *find_dct(const struct smx_dev *dev, const struct smx_qp *qp, const struct smx_requester *st,
			       const struct smx_wqe_av *av)
{
	struct smx_qp *target = smx_qp_find(dev, from_be32(av->dqp_dct) & 0xffffff);

	if (!target || target->attr.type != SMX_QP_DCT || target->attr.dc_key != from_be64(av->dc_key) ||
	    !smx_av_has_source(dev, av) || smx_resp_dc_has_message(target, qp->qpn, (uint16_t)(st - qp->req)))
		return NULL;
	return target;
}

/* RETURN the queue pair that would take the message as a frame without a word; NULL where that is not sure. */
static struct smx_qp *find_target(const struct smx_dev *dev, const struct smx_qp *qp, const struct smx_requester *st,
				  const struct smx_send_req *req)
{
	struct smx_qp *target = NULL;

	if (!dev->attr.direct)
		return NULL;
	if (qp->attr.type == SMX_QP_RC)
		target = find_rc(dev, qp, st);
	else if (qp->attr.type == SMX_QP_DCI)
		target = find_dct(dev, qp, st, req->av);
	if (!target || !smx_resp_is_open(target) || target->cur.path_mtu != qp->cur.path_mtu)
		return NULL;
	if (req->opcode == SMX_OP_RDMA_WRITE_IMM && !(target->cur.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
		return NULL;
	return target;
}

/* Puts the payload under f. RETURN whether all of it may be read. */
static bool gather(struct smx_dev *dev, const struct smx_qp *qp, const struct smx_send_req *req, struct smx_frame *f)
{
	struct smx_walk *walk = &dev->req_work->walk;
	struct smx_dma_fault fault;

	f->flat = NULL;
	f->walk = NULL;
	f->pull = NULL;
	if (req->sge_count == 1)
		f->flat = smx_dma_together(dev, qp->attr.pd, qp->qpn, SMX_DMA_GATHER, &req->sge[0]);
	if (f->flat || !req->length)
		return true;
	smx_walk_list(walk, dev, qp->attr.pd, qp->qpn, SMX_DMA_GATHER, req->sge, req->sge_count);
	f->walk = walk;
	return smx_walk_check(walk, req->length, &fault) == req->length;
}

/* What the responder looks at of a frame that has been found to be in order. */
static void describe(const struct smx_qp *qp, const struct smx_send_req *req, struct smx_frame *f)
{
	f->op = req->opcode == SMX_OP_RDMA_WRITE_IMM ? SMX_FRAME_WRITE : SMX_FRAME_SEND;
	f->flags = 0;
	f->first = f->last = true;
	f->has_imm = req->opcode == SMX_OP_SEND_IMM || req->opcode == SMX_OP_RDMA_WRITE_IMM;
	f->has_invalidate = req->opcode == SMX_OP_SEND_INVAL;
	f->solicited = req->fm_ce_se & SMX_CTRL_SOLICITED;
	f->imm = f->has_invalidate ? be32toh(req->imm) : req->imm;
	f->src_qpn = qp->qpn;
	f->va = req->raddr;
	f->rkey = req->rkey;
	f->dma_length = f->length = req->length;
}

bool smx_direct_send(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	const struct smx_send_req *req = &dev->req_work->tx;
	struct smx_resp_work w;
	struct smx_frame f;

	w.qp = find_target(dev, qp, st, req);
	if (!w.qp || req->length > LONGEST_BYTES || !gather(dev, qp, req, &f))
		return false;
	describe(qp, req, &f);
	if (qp->attr.type == SMX_QP_DCI && smx_dc_address(dev, qp, req, &f))
		return false;
	w.dev = dev;
	w.c = dev->req_work->message;
	w.f = &f;
	w.srq = w.qp->attr.srq;
	w.pd = w.qp->attr.pd;
	if (!smx_resp_whole(&w))
		return false;
	dev->budget_bytes -= (int64_t)(SMX_WQE_COST_BYTES + req->length);
	smx_req_done(dev, qp, st, NULL);
	return true;
}
