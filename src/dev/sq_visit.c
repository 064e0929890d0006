/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Visits: what a send queue's doorbell asks for is carried out at once, without a turn.
 *
 * A visit does plain requests (sq_plain.h) within this process, on a queue pair that nothing is outstanding of. It
 * sends nothing, wakes nobody and fails nothing: what would is recognised before anything is done, and left where it
 * is, to the turn.
 *
 * Visits may be side by side. What they read, keys, queue pairs and tables, does not change meanwhile; what they write
 * is the send queue that was rung, the memory that its requests name, and a completion queue: of the first and the last
 * one visitor has each at a time. Messages, which take a receive of another queue pair, are for who is alone. */
#include "dev/sq_visit.h"

#include "dev/dev.h"
#include "dev/sq_plain.h"
#include "xport/direct_here.h"

enum {
	/* After this many bytes, or a turn's budget, each request counted as SMX_WQE_COST_BYTES more, the rest is a
	 * turn's. */
	VISIT_BYTES = 128 << 10,
};

/* Nothing is outstanding, and the next request can be done. */
static inline bool is_idle(const struct smx_qp *qp)
{
	return qp->plain_ds && qp->state == IBV_QPS_RTS && qp->sq.ci == qp->sq.pi && !qp->ready &&
	       qp->sqd == SMX_SQD_NONE;
}

/* Of plain requests, those that change nothing but their own queue pair; the others take a receive. */
static inline bool is_one_sided(uint8_t opcode)
{
	return opcode == SMX_OP_RDMA_WRITE || opcode == SMX_OP_RDMA_READ;
}

static inline bool may_do(uint8_t opcode, bool alone)
{
	return is_one_sided(opcode) || (alone && (smx_op_has_raddr(opcode) || smx_op_is_send(opcode)));
}

/* A request that takes a receive. */
static __attribute__((noinline)) bool send_out(struct smx_qp *qp, struct smx_requester *st, uint32_t at,
					       const struct smx_plain_req *req)
{
	struct smx_message m = {
		.opcode = req->opcode, .fm_ce_se = req->fm_ce_se, .rkey = req->rkey, .raddr = req->raddr, .av = req->av,
		.length = req->sge.length, .sge = &req->sge, .sge_count = 1, .quietly = true,
	};

	memcpy(&m.imm, &smx_sq_ctrl(qp, at)->imm, sizeof(m.imm));
	return smx_direct_send(qp->dev, qp, st, &m);
}

/* RETURN false when it has to be done otherwise; nothing of it has been done then. */
static inline bool carry_out(const struct smx_dev *dev, const struct smx_qp *qp, const struct smx_requester *st,
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

/* For a completion that does no more than be written. RETURN false when there is none. */
static __attribute__((noinline)) bool open_queue(struct smx_cq *cq, bool alone)
{
	if (!alone && !smx_cq_lock(cq))
		return false;
	if (smx_cq_is_quiet(cq))
		return true;
	if (!alone)
		smx_cq_unlock(cq);
	return false;
}

static __attribute__((noinline)) void complete(struct smx_qp *qp, uint32_t at, uint8_t opcode, uint32_t length)
{
	const struct smx_comp comp = { .at = at, .bytes = length, .opcode = opcode };

	smx_comp_write(qp, &comp, qp->dev->attr.env.now(qp->dev->attr.env.arg));
}

/* May the request complete here? One whose response goes into the CQE may not. */
static inline bool may_complete(const struct smx_qp *qp, const struct smx_plain_req *req, bool alone)
{
	if (req->opcode == SMX_OP_RDMA_READ && req->sge.length <= qp->attr.req_scatter_bytes)
		return false;
	return open_queue(qp->attr.send_cq, alone);
}

/* Does the next request, of those before the block counter end, if it is not longer than most bytes. RETURN its length,
 * or 0 when it is left. */
static inline uint32_t visit_next(const struct smx_dev *dev, struct smx_qp *qp, uint32_t end, int64_t most, bool alone)
{
	struct smx_sq *sq = &qp->sq;
	uint32_t at = sq->pi;
	struct smx_requester *st = smx_sq_stream(qp, at);
	struct smx_plain_req req;
	bool signaled, done;

	if (smx_req_is_held(st) || st->una_psn != st->next_psn ||
	    !smx_sq_plain(qp, at, end, smx_wqe_words(qp, at), &req) || !may_do(req.opcode, alone) ||
	    (int64_t)req.sge.length > most)
		return 0;
	signaled = req.fm_ce_se & SMX_CTRL_CQ_UPDATE;
	if (signaled && !may_complete(qp, &req, alone))
		return 0;
	done = is_one_sided(req.opcode) ? carry_out(dev, qp, st, &req) : send_out(qp, st, at, &req);
	if (done)	/* before the CQE is written: the program may post into the room as soon as it sees it */
		sq->pi = sq->fetched = sq->ci = at + req.bb_count;
	if (signaled && done)
		complete(qp, at, req.opcode, (uint32_t)req.sge.length);
	if (signaled && !alone)
		smx_cq_unlock(qp->attr.send_cq);
	return done ? (uint32_t)req.sge.length : 0;
}

static __attribute__((noinline)) bool visit_all(const struct smx_dev *dev, struct smx_qp *qp, uint32_t end, bool alone)
{
	int64_t budget = (int64_t)dev->attr.turn_budget_bytes, left = budget < VISIT_BYTES ? budget : VISIT_BYTES;
	uint32_t did;

	while (qp->sq.pi != end) {
		did = visit_next(dev, qp, end, left, alone);
		if (!did)
			return false;
		left -= (int64_t)did + SMX_WQE_COST_BYTES;
	}
	return true;
}

/* Most of what cannot be done is found out before the first request is looked at closely. */
static inline bool visit_rung(const struct smx_dev *dev, struct smx_qp *qp, bool alone)
{
	uint16_t rung;

	if (!is_idle(qp))
		return false;
	rung = smx_sq_rung(qp);
	if (!rung || rung > qp->sq.bb_count || !may_do((uint8_t)smx_wqe_words(qp, qp->sq.pi).opcode, alone))
		return !rung;
	return visit_all(dev, qp, qp->sq.pi + rung, alone);
}

bool smx_dev_may_visit_sq(const struct smx_qp *qp)
{
	return !__atomic_load_n(&qp->sq.visited, __ATOMIC_RELAXED);
}

bool smx_dev_visit_sq(const struct smx_dev *dev, struct smx_qp *qp)
{
	bool all;

	if (!smx_dev_is_quiet(dev) || __atomic_exchange_n(&qp->sq.visited, 1, __ATOMIC_ACQUIRE))
		return false;
	all = visit_rung(dev, qp, false);
	__atomic_store_n(&qp->sq.visited, 0, __ATOMIC_RELEASE);
	return all;
}

bool smx_sq_visit_alone(struct smx_dev *dev, struct smx_qp *qp)
{
	bool all = visit_rung(dev, qp, true);

	dev->now_known = false;	/* messages of one visit have one time */
	/* A completion queue that had room for one may have been to take two. */
	return all && !dev->ready_head;
}

bool smx_dev_serve_sq(struct smx_dev *dev, struct smx_qp *qp)
{
	return smx_dev_is_quiet(dev) && (smx_sq_visit_alone(dev, qp) || smx_dev_run_alone(dev, qp));
}
