/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Visits: what a send queue's doorbell asks for is carried out at once, without a turn.
 *
 * A visit does plain requests (sq_plain.h) within this process, on a queue pair that nothing is outstanding of. It
 * sends nothing, wakes nobody and fails nothing: what would is recognised before anything is done, and left where it
 * is, to the turn. */
#include "dev/dev.h"
#include "dev/sq_plain.h"
#include "xport/direct_here.h"

enum {
	/* After this many bytes, each request counted as SMX_WQE_COST_BYTES more, the rest is a turn's. */
	VISIT_BYTES = 128 << 10,
};

/* Is a turn free of anything but the ring itself? */
static inline bool is_quiet(const struct smx_dev *dev)
{
	return dev->attr.direct && !dev->watched_err && smx_port_is_still(dev->port);
}

/* Nothing is outstanding, and the next request can be done. */
static inline bool is_idle(const struct smx_qp *qp)
{
	return qp->state == IBV_QPS_RTS && qp->sq.bb_count && qp->sq.ci == qp->sq.pi && !qp->ready &&
	       qp->sqd == SMX_SQD_NONE && !qp->rndv &&
	       (qp->attr.type == SMX_QP_RC || qp->attr.type == SMX_QP_DCI);
}

/* May the request complete here? One whose response goes into the CQE may not. */
static inline bool can_complete(const struct smx_qp *qp, const struct smx_plain_req *req)
{
	if (!(req->fm_ce_se & SMX_CTRL_CQ_UPDATE))
		return true;
	if (req->opcode == SMX_OP_RDMA_READ && req->sge.length <= qp->attr.req_scatter_bytes)
		return false;
	return smx_cq_is_quiet(qp->attr.send_cq);
}

static inline void complete(struct smx_dev *dev, struct smx_qp *qp, uint32_t at, const struct smx_plain_req *req)
{
	struct smx_sq *sq = &qp->sq;

	/* Before the CQE is written: the program may post into the room as soon as it sees it. */
	sq->pi = sq->fetched = sq->ci = at + req->bb_count;
	if (req->fm_ce_se & SMX_CTRL_CQ_UPDATE)
		smx_comp_put(dev, qp, &(struct smx_comp){
			.at = at, .bytes = (uint32_t)req->sge.length, .opcode = req->opcode, .fm_ce_se = req->fm_ce_se,
		});
}

/* RETURN false when it has to be done otherwise; nothing of it has been done then. */
static inline bool carry_out(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			     const struct smx_plain_req *req)
{
	struct smx_direct d = {
		.dev = dev, .qp = qp, .st = st,
		.right = req->opcode == SMX_OP_RDMA_WRITE ? SMX_MAY_WRITE : SMX_MAY_READ,
		.rkey = req->rkey, .raddr = req->raddr, .length = req->sge.length,
	};
	const struct smx_qp *target;
	uint8_t *there, *own;

	if (!smx_direct_address(&d, req->av))
		return false;
	target = smx_qp_find(dev, d.dst_qpn);
	there = target ? smx_direct_there(&d, target) : NULL;
	if (!there)
		return false;
	own = smx_dma_together(dev, qp->attr.pd, qp->qpn, smx_direct_role(&d), &req->sge);
	return own && smx_direct_copy(&d, there, own, d.length);
}

static inline bool visit_one(struct smx_dev *dev, struct smx_qp *qp, uint32_t end, int64_t *left)
{
	uint32_t at = qp->sq.pi;
	struct smx_requester *st = smx_sq_stream(qp, at);
	struct smx_plain_req req;

	if (smx_req_is_held(st) || st->una_psn != st->next_psn ||
	    !smx_sq_plain(qp, at, end, smx_wqe_words(qp, at), &req) || (int64_t)req.sge.length > *left ||
	    !can_complete(qp, &req) || !carry_out(dev, qp, st, &req))
		return false;
	*left -= (int64_t)req.sge.length + SMX_WQE_COST_BYTES;
	complete(dev, qp, at, &req);
	return true;
}

bool smx_dev_visit_sq(struct smx_dev *dev, struct smx_qp *qp)
{
	int64_t left = VISIT_BYTES;
	uint32_t end;
	bool all;

	if (!is_quiet(dev) || !is_idle(qp))
		return false;
	end = qp->sq.pi + smx_sq_rung(qp);
	if (end - qp->sq.pi > qp->sq.bb_count)
		return false;
	while (qp->sq.pi != end && visit_one(dev, qp, end, &left))
		;
	all = qp->sq.pi == end;
	dev->now_known = false;
	return all;
}
