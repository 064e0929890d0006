/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Messages that need no frame: SEND and WRITE with immediate to a queue pair of this process.
 *
 * The requester does at once what the responder does with a frame that arrives whole. Nothing that was sent before is
 * unanswered, so the message takes no sequence number and no acknowledgement. Whatever speaks against it is found
 * before a receive is taken; then the message goes as a frame, and the responder says what it was. */
#include "xport/direct_here.h"

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
	    !smx_av_source(dev, av) || smx_resp_dc_has_message(target, qp->qpn, (uint16_t)(st - qp->req)))
		return NULL;
	return target;
}

/* RETURN the queue pair that would take the message as a frame without a word; NULL where that is not sure. */
static struct smx_qp *find_target(const struct smx_dev *dev, const struct smx_qp *qp, const struct smx_requester *st,
				  const struct smx_message *m)
{
	struct smx_qp *target = NULL;

	if (!dev->attr.direct)
		return NULL;
	if (qp->attr.type == SMX_QP_RC)
		target = find_rc(dev, qp, st);
	else if (qp->attr.type == SMX_QP_DCI)
		target = find_dct(dev, qp, st, m->av);
	if (!target || !smx_direct_is_able(target) || target->cur.path_mtu != qp->cur.path_mtu)
		return NULL;
	if (m->opcode == SMX_OP_RDMA_WRITE_IMM && !(target->cur.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
		return NULL;
	return target;
}

/* Puts the payload under f. RETURN whether all of it may be read. */
static bool gather(struct smx_dev *dev, const struct smx_qp *qp, const struct smx_message *m, struct smx_frame *f)
{
	struct smx_walk *walk = &dev->req_work->walk;
	struct smx_dma_fault fault;

	f->flat = NULL;
	f->walk = NULL;
	f->pull = NULL;
	if (m->sge_count == 1)
		f->flat = smx_dma_together(dev, qp->attr.pd, qp->qpn, SMX_DMA_GATHER, m->sge);
	if (f->flat || !m->length)
		return true;
	smx_walk_list(walk, dev, qp->attr.pd, qp->qpn, SMX_DMA_GATHER, m->sge, m->sge_count);
	f->walk = walk;
	return smx_walk_check(walk, m->length, &fault) == m->length;
}

/* What the responder looks at of a frame that has been found to be in order. */
static inline void describe(const struct smx_qp *qp, const struct smx_message *m, struct smx_frame *f)
{
	f->op = SMX_FRAME_SEND;
	f->flags = 0;
	f->first = f->last = true;
	f->solicited = m->fm_ce_se & SMX_CTRL_SOLICITED;
	f->length = m->length;
	f->src_qpn = qp->qpn;
	if (qp->attr.type == SMX_QP_DCI)
		memcpy(f->sgid, smx_av_source(qp->dev, m->av), sizeof(f->sgid));
	if (m->opcode == SMX_OP_SEND)
		return;
	f->has_imm = m->opcode != SMX_OP_SEND_INVAL;
	f->has_invalidate = !f->has_imm;
	f->imm = f->has_imm ? m->imm : be32toh(m->imm);
	if (m->opcode != SMX_OP_RDMA_WRITE_IMM)
		return;
	f->op = SMX_FRAME_WRITE;
	f->va = m->raddr;
	f->rkey = m->rkey;
	f->dma_length = m->length;
}

bool smx_direct_send(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, const struct smx_message *m)
{
	struct smx_qp *target = find_target(dev, qp, st, m);
	struct smx_resp_work w;
	struct smx_frame f;
	const void *data;
	uint8_t room[64];

	if (!target || m->length > LONGEST_BYTES || (m->quietly && !smx_cq_is_quiet(target->attr.recv_cq)) ||
	    !gather(dev, qp, m, &f))
		return false;
	describe(qp, m, &f);
	w.dev = dev;
	w.qp = target;
	w.c = dev->req_work->message;
	w.f = &f;
	w.srq = target->attr.srq;
	w.pd = target->attr.pd;
	if (!smx_resp_take_whole(&w, room, &data))
		return false;
	smx_resp_complete(&w, f.length, data);
	return true;
}

bool smx_direct_run_send(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	const struct smx_send_req *req = &dev->req_work->tx;
	const struct smx_message m = {
		.opcode = req->opcode, .fm_ce_se = req->fm_ce_se, .imm = req->imm, .rkey = req->rkey,
		.raddr = req->raddr, .av = req->av, .length = req->length, .sge = req->sge, .sge_count = req->sge_count,
	};

	if (!smx_direct_send(dev, qp, st, &m))
		return false;
	dev->budget_bytes -= (int64_t)(SMX_WQE_COST_BYTES + req->length);
	smx_req_done(dev, qp, st, NULL);
	return true;
}
