/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "xport/direct.h"

#include <assert.h>
#include <inttypes.h>

#include "xport/responder.h"

enum {
	PART_BYTES = 1 << 20,	/* copied between two looks at the budget */
	TAIL_BYTES = 64,	/* of a WRITE, stored after the rest */
};

/* ------------------------------------------------------------------ what others may do */

/* The first request to a queue pair in RTR raises an event, and so is a frame. */
static uint32_t rights_of(const struct smx_qp *qp)
{
	uint32_t access = qp->cur.qp_access_flags, rights = 0;
	bool able = qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
		    (qp->state == IBV_QPS_RTR && (qp->attr.type == SMX_QP_DCT || qp->resp->established));
	bool reads = qp->attr.type == SMX_QP_DCT || qp->cur.max_dest_rd_atomic;

	if (!able)
		return 0;
	if (access & IBV_ACCESS_REMOTE_WRITE)
		rights |= SMX_MAY_WRITE;
	if (reads && access & IBV_ACCESS_REMOTE_READ)
		rights |= SMX_MAY_READ;
	if (reads && access & IBV_ACCESS_REMOTE_ATOMIC)
		rights |= SMX_MAY_ATOMIC;
	return rights;
}

/* Whose memory an XRC request is about only its receive queue tells, so XRC is not among them. */
static bool is_target(const struct smx_dev *dev, const struct smx_qp *qp)
{
	return dev->port->ops->publish_qp && (qp->attr.type == SMX_QP_RC || qp->attr.type == SMX_QP_DCT);
}

void smx_direct_publish(struct smx_dev *dev, const struct smx_qp *qp)
{
	struct smx_port_qp public;

	if (!is_target(dev, qp))
		return;
	public = (struct smx_port_qp){
		.qpn = qp->qpn,
		.pdn = qp->attr.pd->pdn,
		.rights = rights_of(qp),
		.peer = qp->attr.type == SMX_QP_DCT ? 0 : qp->cur.dest_qp_num,
		.dc_key = qp->attr.dc_key,
		.mtu_bytes = (uint16_t)(128u << qp->cur.path_mtu),
		.transport = qp->attr.type == SMX_QP_DCT ? SMX_TP_DC : SMX_TP_RC,
	};
	dev->port->ops->publish_qp(dev->port, &public);
}

void smx_direct_withdraw(struct smx_dev *dev, const struct smx_qp *qp)
{
	if (is_target(dev, qp))
		dev->port->ops->publish_qp(dev->port, &(struct smx_port_qp){ .qpn = qp->qpn });
}

/* ------------------------------------------------------------------ carrying out */

static bool fill_frame(struct smx_frame *f, const struct smx_send_req *req)
{
	switch (req->opcode) {
	case SMX_OP_RDMA_WRITE:
		f->op = SMX_FRAME_WRITE;
		break;
	case SMX_OP_RDMA_READ:
		f->op = SMX_FRAME_READ_REQUEST;
		break;
	case SMX_OP_ATOMIC_CS:
	case SMX_OP_ATOMIC_FA:
	case SMX_OP_ATOMIC_MASKED_CS:
	case SMX_OP_ATOMIC_MASKED_FA:
		f->op = SMX_FRAME_ATOMIC_REQUEST;
		break;
	default:
		return false;
	}
	f->va = req->raddr;
	f->rkey = req->rkey;
	f->dma_length = req->length;
	return true;
}

/* Does it lie together here? Then the copy itself stores the end last. */
static bool is_flat(const struct smx_dev *dev, const struct smx_send_req *req)
{
	const struct smx_mkey *mkey;

	if (req->sge_count != 1)
		return false;
	if (req->sge[0].is_host)
		return true;
	mkey = smx_mkey_find(dev, req->sge[0].key);
	return mkey && mkey->attr.kind == SMX_MKEY_DIRECT;
}

static bool write_part(struct smx_walk *src, uint8_t *to, uint64_t n, bool flat)
{
	struct smx_dma_fault fault;
	uint64_t done, tail = flat ? 0 : n < TAIL_BYTES ? n : TAIL_BYTES;

	/* Programs poll on the last byte. */
	if (n > tail && (smx_dma_read(src, to, n - tail, &done, &fault) || done != n - tail))
		return false;
	if (!tail)
		return true;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	return !smx_dma_read(src, to + (n - tail), tail, &done, &fault) && done == tail;
}

static bool read_part(struct smx_walk *dst, const uint8_t *from, uint64_t n)
{
	struct smx_dma_fault fault;
	uint64_t done;

	return !smx_dma_write(dst, from, n, &done, &fault) && done == n;
}

/* The local side, looked at as a whole before anything is done, standing at off. RETURN whether all is well. */
static bool local_side(struct smx_dev *dev, struct smx_qp *qp, const struct smx_send_req *req, uint64_t off,
		       struct smx_walk *walk)
{
	struct smx_dma_fault fault;

	smx_walk_list(walk, dev, qp->attr.pd, qp->qpn,
		      req->opcode == SMX_OP_RDMA_WRITE ? SMX_DMA_GATHER : SMX_DMA_SCATTER, req->sge, req->sge_count);
	if (off)
		return !smx_walk_skip(walk, off, &fault);
	return smx_walk_check(walk, req->length, &fault) == req->length;
}

static void done(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, const void *inline_data)
{
	const struct smx_send_req *req = &dev->req_work->tx;
	struct smx_sq_slot *slot = smx_sq_slot(qp, st->oldest);

	slot->opcode = req->opcode;	/* the program may have changed it since it rang */
	slot->bytes = (uint32_t)req->length;
	dev->port->direct++;
	smx_comp_done(dev, qp, st, inline_data, inline_data ? slot->bytes : 0);
}

static bool run_atomic(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, struct smx_walk *dst)
{
	struct smx_req_work *w = dev->req_work;
	struct smx_where where = smx_req_where(qp, st->oldest);
	uint64_t old[8] = { 0 }, length, copied;
	struct smx_dma_fault fault;
	void *at = dev->port->ops->reach(dev->port, &w->frame, 0, &length);
	bool did, held;

	if (!at)
		return false;
	did = length >= 8 && smx_dma_atomic_at(dev, at, &w->tx.atomic, &old[0]);
	held = dev->port->ops->reached(dev->port);
	dev->budget_bytes -= SMX_WQE_COST_BYTES;
	if (!did)
		return false;
	if (!held) {	/* Once more could be once too often. */
		smx_refuse(dev->attr.env.refusals, SMX_CHECK_RETRY_EXCEEDED, &where,
			   "peer QP 0x%" PRIx32 ", which took back its memory during an atomic", w->frame.dst_qpn);
		smx_req_fail(dev, qp, st, SMX_CHECK_RETRY_EXCEEDED);
		return true;
	}
	if (smx_comp_fits_cqe(dev, qp, &w->tx)) {
		done(dev, qp, st, old);
		return true;
	}
	if (smx_dma_write(dst, old, 8, &copied, &fault)) {
		smx_walk_refuse(dev, &fault, &where);
		smx_req_fail(dev, qp, st, fault.check);
		return true;
	}
	done(dev, qp, st, NULL);
	return true;
}

/* RETURN how many bytes from off on were copied; 0 when that cannot be. */
static uint64_t run_part(struct smx_dev *dev, uint64_t off, struct smx_walk *walk, void *to_cqe)
{
	struct smx_req_work *w = dev->req_work;
	const struct smx_send_req *req = &w->tx;
	uint64_t n;
	uint8_t *at = dev->port->ops->reach(dev->port, &w->frame, off, &n);
	const void *bad;
	bool copied;

	if (!at)
		return 0;
	if (n > PART_BYTES)
		n = PART_BYTES;
	if (req->opcode == SMX_OP_RDMA_WRITE)
		copied = write_part(walk, at, n, is_flat(dev, req));
	else if (to_cqe)
		copied = n == req->length && dev->attr.env.copy(to_cqe, at, n, &bad);
	else
		copied = read_part(walk, at, n);
	return dev->port->ops->reached(dev->port) && copied ? n : 0;
}

bool smx_direct_run(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	struct smx_req_work *w = dev->req_work;
	const struct smx_send_req *req = &w->tx;
	uint64_t off = st->direct_off < req->length ? st->direct_off : 0, n;
	uint64_t cqe_bytes[8] = { 0 };
	void *to_cqe = NULL;

	st->direct_off = 0;
	if (!dev->port->ops->reach || st->una_psn != st->next_psn || st->oldest != st->current || !req->length ||
	    !smx_qp_is_reliable(qp) || !fill_frame(&w->frame, req) || !local_side(dev, qp, req, off, &w->walk))
		return false;
	if (w->frame.op == SMX_FRAME_ATOMIC_REQUEST)
		return run_atomic(dev, qp, st, &w->walk);
	if (req->opcode == SMX_OP_RDMA_READ && smx_comp_fits_cqe(dev, qp, req))
		to_cqe = cqe_bytes;
	for (; off < req->length; off += n) {
		if (dev->budget_bytes <= 0) {
			st->direct_off = off;
			return true;
		}
		n = run_part(dev, off, &w->walk, to_cqe);
		if (!n)
			return false;
		dev->budget_bytes -= (int64_t)(SMX_WQE_COST_BYTES + n);
	}
	done(dev, qp, st, to_cqe);
	return true;
}
