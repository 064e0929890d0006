/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Messages to a tag matching SRQ.
 *
 * The first bytes of a message say whether it has a tag. One that matches an entry of the list goes to the
 * entry's buffer; all others meet an ordinary receive, whole. A rendezvous that matches brings only the
 * address of its payload: the queue pair then reads that by itself and sends the requester a message that
 * says so (FIN). For this a queue pair without a send queue of the program's has one of the device's own,
 * into which the device writes its WQEs; their completions come back here. Where the device cannot fetch
 * (the program has the send queue, or the buffer is too short), the headers go to the buffer and the
 * program does it. */
#include "xport/responder.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "obj/tag_list.h"
#include "xport/requester.h"

struct smx_rndv {
	be32 dbrec[2];
	uint32_t posted;	/* blocks ever written */
	uint8_t buf[] __attribute__((aligned(SMX_WQE_BB)));
};

enum { READ_DS = 3, FIN_DS = 4, PAIR_BB = 2 };

struct headers {
	struct smx_tmh tmh;
	struct smx_rvh rvh;
};

/* ------------------------------------------------------------------ the device's own send queue */

int smx_rndv_create(struct smx_qp *qp)
{
	uint32_t bb_count;

	if (!qp->attr.srq || !qp->attr.srq->tags || qp->attr.sq_bb_count)
		return 0;
	bb_count = PAIR_BB * qp->attr.srq->tags->count;
	qp->rndv = aligned_alloc(SMX_WQE_BB, sizeof(*qp->rndv) + bb_count * SMX_WQE_BB);
	if (!qp->rndv)
		return ENOMEM;
	memset(qp->rndv, 0, sizeof(*qp->rndv) + bb_count * SMX_WQE_BB);
	qp->attr.sq_buf = qp->rndv->buf;
	qp->attr.sq_bb_count = bb_count;
	qp->attr.dbrec = qp->rndv->dbrec;
	qp->attr.req_scatter_bytes = 0;
	qp->attr.wq_signature = false;
	return 0;
}

void smx_rndv_reset(struct smx_qp *qp)
{
	if (!qp->rndv)
		return;
	qp->rndv->posted = 0;
	memset(qp->rndv->dbrec, 0, sizeof(qp->rndv->dbrec));
}

void smx_rndv_destroy(struct smx_qp *qp)
{
	free(qp->rndv);
	qp->rndv = NULL;
}

static bool has_room(const struct smx_qp *qp)
{
	return qp->sq.bb_count - (qp->rndv->posted - qp->sq.ci) >= PAIR_BB;
}

static struct smx_wqe_ctrl *next_wqe(struct smx_qp *qp, uint8_t opcode, uint32_t ds, uint8_t fm_ce_se, uint32_t imm)
{
	uint32_t at = qp->rndv->posted++;
	struct smx_wqe_ctrl *ctrl =
		(void *)(qp->rndv->buf + (size_t)(at & (qp->sq.bb_count - 1)) * SMX_WQE_BB);

	*ctrl = (struct smx_wqe_ctrl){
		.opmod_idx_opcode = to_be32((at & 0xffff) << 8 | opcode),
		.qpn_ds = to_be32(qp->qpn << 8 | ds),
		.fm_ce_se = fm_ce_se,
		.imm = to_be32(imm),
	};
	return ctrl;
}

/* The payload into the entry's buffer; then, behind the READ, the requester's own headers back to it as FIN. The
 * READ carries the entry's index where its opcode has no use for the field. */
static void fetch_payload(struct smx_resp_work *w)
{
	struct smx_resp_ctx *c = w->c;
	struct smx_qp *qp = w->qp;
	struct headers fin = { .tmh = c->tag.tmh, .rvh = c->tag.rvh };
	uint32_t length = from_be32(c->tag.rvh.length);
	struct smx_wqe_ctrl *ctrl = next_wqe(qp, SMX_OP_RDMA_READ, length ? READ_DS : READ_DS - 1, 0, c->tag.index);
	struct smx_wqe_raddr *raddr = (void *)(ctrl + 1);

	raddr[0] = (struct smx_wqe_raddr){ .va = c->tag.rvh.va, .rkey = c->tag.rvh.rkey };
	*(struct smx_wqe_data *)(void *)&raddr[1] = (struct smx_wqe_data){
		.byte_count = to_be32(length),
		.lkey = to_be32(c->recv.sge[0].key),
		.va = to_be64(c->recv.sge[0].va),
	};
	ctrl = next_wqe(qp, SMX_OP_SEND, FIN_DS, SMX_CTRL_FENCE, 0);
	fin.tmh.op = SMX_TMH_FIN;
	*(struct smx_wqe_inline *)(void *)(ctrl + 1) =
		(struct smx_wqe_inline){ .byte_count = to_be32(sizeof(fin) | SMX_INLINE_SEG) };
	memcpy((uint8_t *)(ctrl + 1) + sizeof(struct smx_wqe_inline), &fin, sizeof(fin));
	be32_store_release(&qp->rndv->dbrec[SMX_DBREC_SND], qp->rndv->posted & 0xffff);
	smx_req_kick(w->dev, qp);
}

static void put_cqe(struct smx_dev *dev, struct smx_qp *qp, const struct smx_srq *srq, struct smx_cqe64 *cqe,
		    uint8_t op, uint8_t app_op, uint16_t index)
{
	cqe->srqn_uidx = to_be32(srq->srqn);
	cqe->app = SMX_CQE_APP_TAG;
	cqe->app_op = app_op;
	cqe->app_info = to_be16(index);
	cqe->sop_drop_qpn = to_be32(qp->qpn);
	cqe->op_own = (uint8_t)(op << 4);
	if (!smx_cq_put(dev, srq->attr.cq, cqe, NULL))
		smx_qp_lost_completion(dev, qp);
}

void smx_rndv_completed(struct smx_dev *dev, struct smx_qp *qp, uint32_t at, uint32_t bytes, bool failed)
{
	const struct smx_wqe_ctrl *ctrl =
		(const void *)(qp->rndv->buf + (size_t)(at & (qp->sq.bb_count - 1)) * SMX_WQE_BB);
	struct smx_cqe64 cqe = { .byte_cnt = to_be32(failed ? 0 : bytes) };

	if ((from_be32(ctrl->opmod_idx_opcode) & 0xff) != SMX_OP_RDMA_READ)
		return;
	put_cqe(dev, qp, qp->attr.srq, &cqe, SMX_CQE_RESP_SEND,
		failed ? SMX_CQE_TAG_CANCELED : SMX_CQE_TAG_EXPECTED, (uint16_t)from_be32(ctrl->imm));
}

/* ------------------------------------------------------------------ arriving */

/* Reads the first n bytes of the payload, which stays as it is. RETURN false when the frame is dealt with. */
static bool peek(struct smx_resp_work *w, void *to, uint64_t n)
{
	struct smx_frame *f = w->f;
	struct smx_dma_fault fault;
	struct smx_walk walk;
	uint64_t done;

	if (f->flat) {
		memcpy(to, f->flat, n);
	} else if (f->pull) {
		uint64_t off = f->pull->off;
		enum smx_pulled pulled = f->pull->fetch(f->pull, to, n, &done);

		f->pull->off = off;
		if (pulled != SMX_PULLED) {
			f->gather_check = SMX_CHECK_GATHER_FAULT;
			return false;
		}
	} else if (n) {
		walk = *(const struct smx_walk *)f->walk;
		if (smx_dma_read(&walk, to, n, &done, &fault)) {
			smx_resp_source_fault(w, &fault);
			return false;
		}
	}
	return true;
}

static bool drop_header(struct smx_resp_work *w)
{
	struct smx_frame *f = w->f;
	struct smx_dma_fault fault;

	if (f->flat) {
		f->flat = (const uint8_t *)f->flat + sizeof(struct smx_tmh);
	} else if (f->pull) {
		f->pull->off += sizeof(struct smx_tmh);
	} else if (smx_walk_skip(f->walk, sizeof(struct smx_tmh), &fault)) {
		smx_resp_source_fault(w, &fault);
		return false;
	}
	f->length -= sizeof(struct smx_tmh);
	return true;
}

/* The entry's buffer is the message's receive. */
static void take_entry(struct smx_resp_work *w, uint16_t index)
{
	const struct smx_tag *t = &w->srq->tags->entry[index];
	struct smx_resp_ctx *c = w->c;

	c->tag.index = index;
	c->recv.wqe_index = index;
	c->recv.sge_count = t->sge.length ? 1 : 0;
	c->recv.sge[0] = t->sge;
	c->recv.total_bytes = t->sge.length;
	c->recv_srq = w->srq;
	c->has_recv = true;
}

static void announce(struct smx_resp_work *w, uint64_t bytes)
{
	struct smx_cqe64 cqe = { .byte_cnt = to_be32((uint32_t)bytes) };

	memcpy(&cqe, &w->c->tag.tmh, sizeof(w->c->tag.tmh));
	put_cqe(w->dev, w->qp, w->srq, &cqe, SMX_CQE_NO_PACKET, SMX_CQE_TAG_CONSUMED, w->c->tag.index);
}

static bool matched_eager(struct smx_resp_work *w)
{
	w->c->tag.state = SMX_RESP_TAG_WHOLE;
	if (!drop_header(w))
		return false;
	if (w->f->last && w->packets == 1)
		return true;
	w->c->tag.state = SMX_RESP_TAG_MATCHED;
	announce(w, 0);
	return true;
}

static void matched_rndv(struct smx_resp_work *w)
{
	bool fits = from_be32(w->c->tag.rvh.length) <= w->c->recv.total_bytes;

	w->c->tag.state = fits && w->qp->rndv ? SMX_RESP_TAG_RNDV : SMX_RESP_TAG_SW_RNDV;
}

bool smx_resp_tag_begin(struct smx_resp_work *w)
{
	struct smx_tag_list *list = w->srq->tags;
	struct smx_resp_ctx *c = w->c;
	struct headers h;
	uint64_t n = w->f->length < sizeof(h) ? w->f->length : sizeof(h);
	uint16_t index = SMX_TAG_NONE;
	bool tagged, rndv;

	/* A receive may be left of a message that was given up before it was stored; one from the SRQ can be used. */
	if (smx_resp_tag_forget(w->qp, c))
		c->has_recv = false;
	if (!peek(w, &h, n))
		return false;
	rndv = n == sizeof(h) && h.tmh.op == SMX_TMH_RNDV && w->f->last;
	tagged = n >= sizeof(h.tmh) && (h.tmh.op == SMX_TMH_EAGER || h.tmh.op == SMX_TMH_RNDV);
	/* Before the entry is taken: the message will come again. */
	if (rndv && w->qp->rndv && !has_room(w->qp)) {
		smx_resp_rnr(w);
		return false;
	}
	if (rndv || (tagged && h.tmh.op == SMX_TMH_EAGER))
		index = smx_tag_match(list, from_be64(h.tmh.tag));
	if (index == SMX_TAG_NONE) {
		if (!smx_resp_take(w))
			return false;
		c->tag.state = tagged ? SMX_RESP_TAG_UNEXPECTED : SMX_RESP_TAG_FREE;
		list->unexpected += tagged;
		return true;
	}
	if (c->has_recv)
		smx_resp_abort(w->dev, w->qp, c, SMX_CHECK_RECV_ABORTED);
	take_entry(w, index);
	c->tag.tmh = h.tmh;
	if (!rndv)
		return matched_eager(w);
	c->tag.rvh = h.rvh;
	matched_rndv(w);
	return true;
}

void smx_resp_tag_mark(const struct smx_resp_ctx *c, struct smx_cqe64 *cqe)
{
	static const uint8_t app_op[] = {
		[SMX_RESP_TAG_FREE] = SMX_CQE_TAG_NO_TAG,
		[SMX_RESP_TAG_UNEXPECTED] = SMX_CQE_TAG_UNEXPECTED,
		[SMX_RESP_TAG_WHOLE] = SMX_CQE_TAG_CONSUMED_MSG,
		[SMX_RESP_TAG_MATCHED] = SMX_CQE_TAG_EXPECTED,
		[SMX_RESP_TAG_SW_RNDV] = SMX_CQE_TAG_CONSUMED_MSG_SW_RNDV,
	};

	assert(c->tag.state < SMX_COUNT(app_op) && app_op[c->tag.state]);
	cqe->app = SMX_CQE_APP_TAG;
	cqe->app_op = app_op[c->tag.state];
	if (!smx_resp_tag_matched(c))
		return;
	cqe->app_info = to_be16(c->tag.index);
	if (c->tag.state != SMX_RESP_TAG_MATCHED)
		memcpy(cqe, &c->tag.tmh, sizeof(c->tag.tmh));
}

void smx_resp_tag_rndv(struct smx_resp_work *w)
{
	announce(w, from_be32(w->c->tag.rvh.length));
	fetch_payload(w);
	w->c->has_recv = false;
	w->c->tag.state = SMX_RESP_TAG_NO_LIST;
}

bool smx_resp_tag_forget(struct smx_qp *qp, struct smx_resp_ctx *c)
{
	struct smx_cqe64 cqe = { .byte_cnt = to_be32(0) };
	bool matched = smx_resp_tag_matched(c);

	if (matched)
		put_cqe(qp->dev, qp, c->recv_srq, &cqe, SMX_CQE_RESP_SEND, SMX_CQE_TAG_CANCELED, c->tag.index);
	else if (c->tag.state == SMX_RESP_TAG_UNEXPECTED)	/* the program will not hear of it as one */
		c->recv_srq->tags->unexpected--;
	c->tag.state = SMX_RESP_TAG_NO_LIST;
	return matched;
}
