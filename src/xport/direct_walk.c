/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One-sided requests within the process to memory that does not lie together: indirect keys and windows. All of it is
 * looked at, on both sides, before anything is done; keys do not change during a turn. */
#include "xport/direct_walk.h"

enum {
	LENGTH_MAX = 1 << 20,	/* more goes as a frame, which can stop in the middle when a turn's budget is spent */
	TAIL_BYTES = 64,	/* of a WRITE, stored after the rest */
};

static bool look(struct smx_walk *walk, uint64_t n)
{
	struct smx_dma_fault fault;

	return smx_walk_check(walk, n, &fault) == n;
}

static bool copy(struct smx_walk *dst, struct smx_walk *src, uint64_t n)
{
	struct smx_dma_fault fault;
	uint64_t done;

	return !smx_dma_copy(dst, src, n, &done, &fault) && done == n;
}

static bool write(struct smx_walk *there, struct smx_walk *own, uint64_t n)
{
	uint64_t tail = n < TAIL_BYTES ? n : TAIL_BYTES;

	if (!look(there, n) || !look(own, n) || (n > tail && !copy(there, own, n - tail)))
		return false;
	__atomic_thread_fence(__ATOMIC_RELEASE);	/* programs poll on the last byte */
	return copy(there, own, tail);
}

bool smx_direct_walk(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, const struct smx_direct *d)
{
	const struct smx_qp *target = smx_qp_find(dev, d->dst_qpn);
	const struct smx_send_req *req = &dev->req_work->tx;
	bool is_read = d->right == SMX_MAY_READ;
	struct smx_walk there, *own = &dev->req_work->walk;

	if (!target || !dev->attr.direct || (!is_read && d->right != SMX_MAY_WRITE) || req->length > LENGTH_MAX ||
	    !smx_direct_serves(target, d) || (is_read && smx_comp_fits_cqe(dev, qp, req)))
		return false;
	smx_walk_range(&there, dev, target->attr.pd, target->qpn, is_read ? SMX_DMA_REMOTE_READ : SMX_DMA_REMOTE_WRITE,
		       req->rkey, req->raddr, req->length);
	smx_walk_list(own, dev, qp->attr.pd, qp->qpn, smx_direct_role(d), req->sge, req->sge_count);
	if (is_read ? !smx_dma_copy_all(own, &there, req->length) : !write(&there, own, req->length))
		return false;
	dev->budget_bytes -= (int64_t)(SMX_WQE_COST_BYTES + req->length);
	smx_req_done(dev, qp, st, NULL);
	return true;
}
