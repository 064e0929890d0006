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
	bool able = qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
		    (qp->state == IBV_QPS_RTR && (qp->attr.type == SMX_QP_DCT || qp->resp->established));
	bool reads = qp->attr.type == SMX_QP_DCT || qp->cur.max_dest_rd_atomic;
	uint32_t rights = able ? smx_direct_rights(qp->cur.qp_access_flags) : 0;

	return reads ? rights : rights & SMX_MAY_WRITE;
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
		.psn = qp->attr.type == SMX_QP_DCT ? 0 : qp->resp->one->epsn,
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

/* ------------------------------------------------------------------ within the process */

static bool serves(const struct smx_qp *qp, const struct smx_frame *f)
{
	if ((128u << qp->cur.path_mtu) != f->mtu_bytes || !(rights_of(qp) & smx_port_right_of(f->op)))
		return false;
	if (qp->attr.type == SMX_QP_DCT)
		return f->transport == SMX_TP_DC && qp->attr.dc_key == f->dc_key;
	return f->transport == SMX_TP_RC && qp->cur.dest_qp_num == f->src_qpn &&
	       (f->agreed || qp->resp->one->epsn == f->psn);
}

/* As the port's reach(), where the target's objects are at hand. */
static void *reach_here(struct smx_dev *dev, const struct smx_frame *f, uint64_t off, uint64_t *length)
{
	const struct smx_qp *qp = smx_qp_find(dev, f->dst_qpn);
	const struct smx_mkey *mkey = smx_mkey_find(dev, f->rkey);
	uint64_t at;

	if (!dev->attr.direct || !qp || !mkey || (qp->attr.type != SMX_QP_RC && qp->attr.type != SMX_QP_DCT) ||
	    !serves(qp, f))
		return NULL;
	if (mkey->attr.kind != SMX_MKEY_DIRECT || mkey->free || mkey->attr.pd != qp->attr.pd ||
	    !(smx_direct_rights(mkey->attr.access) & smx_port_right_of(f->op)))
		return NULL;
	at = f->va - mkey->attr.start;
	if (at > mkey->attr.length || mkey->attr.length - at < f->dma_length)
		return NULL;
	if (f->op == SMX_FRAME_ATOMIC_REQUEST && (f->va | ((uintptr_t)mkey->attr.host + at)) & 7)
		return NULL;
	*length = f->dma_length - off;
	return (uint8_t *)mkey->attr.host + at + off;
}

static void *reach(struct smx_dev *dev, uint64_t off, uint64_t *length)
{
	const struct smx_frame *f = &dev->req_work->frame;

	if (smx_port_is_own(dev->port, f->dst_qpn))
		return reach_here(dev, f, off, length);
	return dev->port->ops->reach ? dev->port->ops->reach(dev->port, f, off, length) : NULL;
}

/* RETURN false when what was done may have been for nothing. */
static bool reached(struct smx_dev *dev)
{
	if (smx_port_is_own(dev->port, dev->req_work->frame.dst_qpn))
		return true;
	return dev->port->ops->reached(dev->port);
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

/* The requester's own memory. */
struct own {
	uint8_t *flat;		/* all of it lies together here; NULL: walk says where it is */
	struct smx_walk *walk;
};

/* Looks at all of it before anything is done; the walk stands at off. RETURN whether all is well. */
static bool look_at_own(struct smx_dev *dev, struct smx_qp *qp, uint64_t off, struct own *own)
{
	struct smx_req_work *w = dev->req_work;
	const struct smx_send_req *req = &w->tx;
	enum smx_dma_role role = req->opcode == SMX_OP_RDMA_WRITE ? SMX_DMA_GATHER : SMX_DMA_SCATTER;
	struct smx_dma_fault fault;

	own->walk = &w->walk;
	if (req->sge_count == 1) {
		own->flat = smx_dma_together(dev, qp->attr.pd, qp->qpn, role, &req->sge[0]);
		if (own->flat)
			return true;
	}
	own->flat = NULL;
	smx_walk_list(own->walk, dev, qp->attr.pd, qp->qpn, role, req->sge, req->sge_count);
	if (off)
		return !smx_walk_skip(own->walk, off, &fault);
	return smx_walk_check(own->walk, req->length, &fault) == req->length;
}

static bool walk_out(struct smx_walk *src, uint8_t *to, uint64_t n)
{
	uint64_t done, tail = n < TAIL_BYTES ? n : TAIL_BYTES;
	struct smx_dma_fault fault;

	/* Programs poll on the last byte. */
	if (n > tail && (smx_dma_read(src, to, n - tail, &done, &fault) || done != n - tail))
		return false;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	return !smx_dma_read(src, to + (n - tail), tail, &done, &fault) && done == tail;
}

static bool walk_in(struct smx_walk *dst, const uint8_t *from, uint64_t n)
{
	struct smx_dma_fault fault;
	uint64_t done;

	return !smx_dma_write(dst, from, n, &done, &fault) && done == n;
}

static bool copy_part(struct smx_dev *dev, const struct own *own, uint8_t *there, uint64_t off, uint64_t n)
{
	bool write = dev->req_work->tx.opcode == SMX_OP_RDMA_WRITE;
	const void *bad;

	if (!own->flat)
		return write ? walk_out(own->walk, there, n) : walk_in(own->walk, there, n);
	return write ? dev->attr.env.copy(there, own->flat + off, n, &bad) :
		       dev->attr.env.copy(own->flat + off, there, n, &bad);
}

static void done(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, const void *inline_data)
{
	const struct smx_send_req *req = &dev->req_work->tx;
	struct smx_sq_slot *slot = smx_sq_slot(qp, st->oldest);

	slot->opcode = req->opcode;	/* the program may have changed it since it rang */
	slot->bytes = (uint32_t)req->length;
	if (!smx_port_is_own(dev->port, dev->req_work->frame.dst_qpn))
		dev->port->direct++;
	smx_comp_done(dev, qp, st, inline_data, inline_data ? slot->bytes : 0);
}

/* The atomic has happened; what was there before goes to the requester's memory. */
static smx_outcome store_old(struct smx_dev *dev, struct smx_qp *qp, uint32_t at, const uint64_t *old)
{
	const struct smx_send_req *req = &dev->req_work->tx;
	struct smx_where where = smx_req_where(qp, at);
	struct smx_dma_fault fault;
	struct smx_walk dst;
	uint64_t done;

	smx_walk_list(&dst, dev, qp->attr.pd, qp->qpn, SMX_DMA_SCATTER, req->sge, req->sge_count);
	if (!smx_dma_write(&dst, old, sizeof(*old), &done, &fault))
		return SMX_CHECK_NONE;
	return smx_walk_refuse(dev, &fault, &where);
}

static bool run_atomic(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	struct smx_req_work *w = dev->req_work;
	struct smx_where where = smx_req_where(qp, st->oldest);
	uint64_t old[8] = { 0 }, length;
	void *at = reach(dev, 0, &length);
	bool did, held;
	smx_outcome check;

	if (!at)
		return false;
	did = length >= 8 && smx_dma_atomic_at(dev, at, &w->tx.atomic, &old[0]);
	held = reached(dev);
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
	check = store_old(dev, qp, st->oldest, &old[0]);
	if (check)
		smx_req_fail(dev, qp, st, check);
	else
		done(dev, qp, st, NULL);
	return true;
}

/* RETURN how many bytes from off on were copied; 0 when that cannot be. */
static uint64_t run_part(struct smx_dev *dev, const struct own *own, uint64_t off)
{
	uint64_t n;
	uint8_t *there = reach(dev, off, &n);
	bool copied;

	if (!there)
		return 0;
	if (n > PART_BYTES)
		n = PART_BYTES;
	copied = copy_part(dev, own, there, off, n);
	return reached(dev) && copied ? n : 0;
}

bool smx_direct_run(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	struct smx_req_work *w = dev->req_work;
	const struct smx_send_req *req = &w->tx;
	uint64_t off = st->direct_off < req->length ? st->direct_off : 0, n;
	uint8_t cqe_bytes[64] = { 0 };
	struct own own;
	bool to_cqe;

	st->direct_off = 0;
	if (st->una_psn != st->next_psn || st->oldest != st->current || !req->length ||
	    !smx_qp_is_reliable(qp) || !fill_frame(&w->frame, req) || !look_at_own(dev, qp, off, &own))
		return false;
	/* A connection whose ends were given different numbers is to fail as it does on a wire. */
	w->frame.psn = st->next_psn;
	w->frame.agreed = st->una_psn != (qp->cur.sq_psn & SMX_PSN_MASK);
	if (w->frame.op == SMX_FRAME_ATOMIC_REQUEST)
		return run_atomic(dev, qp, st);
	to_cqe = req->opcode == SMX_OP_RDMA_READ && smx_comp_fits_cqe(dev, qp, req);
	if (to_cqe)
		own.flat = cqe_bytes;
	for (; off < req->length; off += n) {
		if (dev->budget_bytes <= 0 && !to_cqe) {
			st->direct_off = off;
			return true;
		}
		n = run_part(dev, &own, off);
		if (!n)
			return false;
		dev->budget_bytes -= (int64_t)(SMX_WQE_COST_BYTES + n);
	}
	done(dev, qp, st, to_cqe ? cqe_bytes : NULL);
	return true;
}
