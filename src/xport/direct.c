/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "xport/direct_walk.h"

#include <inttypes.h>
#include <string.h>

enum {
	PART_BYTES = 1 << 20,	/* copied between two looks at the budget */
	TAIL_BYTES = 64,	/* of a WRITE, stored after the rest */
};

/* ------------------------------------------------------------------ what others may do */

static uint32_t rights_of(const struct smx_qp *qp)
{
	uint32_t rights = 0;

	for (uint32_t right = SMX_MAY_WRITE; right <= SMX_MAY_ATOMIC; right <<= 1)
		if (smx_direct_grants(qp, right))
			rights |= right;
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

/* ------------------------------------------------------------------ whom, and what */

/* A request that is being carried out. */
struct job {
	struct smx_dev *dev;
	struct smx_qp *qp;
	struct smx_requester *st;
	struct smx_direct d;
	const struct smx_send_req *req;
	uint32_t at;			/* block counter of its WQE */
	uint8_t *there;			/* the target's memory, in this process; NULL: the port is asked for it */
	uint8_t *flat;			/* the requester's own lies together here; NULL: walk says where it is */
	struct smx_walk *walk;
};

static uint32_t right_of(uint8_t opcode)
{
	if (opcode == SMX_OP_RDMA_WRITE)
		return SMX_MAY_WRITE;
	if (!smx_op_is_read(opcode))
		return 0;
	return opcode == SMX_OP_RDMA_READ ? SMX_MAY_READ : SMX_MAY_ATOMIC;
}

/* RETURN whether the target is here and lets us, or the port may know it. What would be delivered here is looked for
 * nowhere else. */
static inline bool find_target(struct job *j)
{
	const struct smx_qp *target = smx_qp_find(j->dev, j->d.dst_qpn);

	j->there = NULL;
	if (!target)
		return j->dev->port->ops->reach && !smx_port_is_own(j->dev->port, j->d.dst_qpn);
	if (j->dev->attr.direct)
		j->there = smx_direct_there(&j->d, target);
	return j->there;
}

static __attribute__((noinline)) void *reach_far(const struct job *j, uint64_t off, uint64_t *length)
{
	struct smx_port *port = j->dev->port;
	const struct smx_port_request r = {
		.src_qpn = j->qp->qpn,
		.dst_qpn = j->d.dst_qpn,
		.rkey = j->req->rkey,
		.right = j->d.right,
		.va = j->req->raddr,
		.length = j->req->length,
		.dc_key = j->d.dc_key,
		.psn = j->st->next_psn,
		.agreed = smx_direct_is_agreed(&j->d),
		.transport = j->qp->attr.type == SMX_QP_DCI ? SMX_TP_DC : SMX_TP_RC,
		.mtu_bytes = (uint16_t)(128u << j->qp->cur.path_mtu),
	};

	return port->ops->reach(port, &r, off, length);
}

/* Where byte off of the target's memory is, of which *length lie together; NULL: not to be had. */
static inline uint8_t *reach(const struct job *j, uint64_t off, uint64_t *length)
{
	if (!j->there)
		return reach_far(j, off, length);
	*length = j->req->length - off;
	return j->there + off;
}

/* RETURN false when what was done may have been for nothing. */
static inline bool reached(const struct job *j)
{
	return j->there || j->dev->port->ops->reached(j->dev->port);
}

/* ------------------------------------------------------------------ carrying out */

static __attribute__((noinline)) bool walk_own(struct job *j, enum smx_dma_role role, uint64_t off)
{
	const struct smx_send_req *req = j->req;
	struct smx_dma_fault fault;

	j->walk = &j->dev->req_work->walk;
	smx_walk_list(j->walk, j->dev, j->qp->attr.pd, j->qp->qpn, role, req->sge, req->sge_count);
	if (off)
		return !smx_walk_skip(j->walk, off, &fault);
	return smx_walk_check(j->walk, req->length, &fault) == req->length;
}

/* Looks at all of the requester's own memory before anything is done; the walk stands at off. RETURN whether all is
 * well. */
static inline bool look_at_own(struct job *j, uint64_t off)
{
	enum smx_dma_role role = smx_direct_role(&j->d);

	j->flat = NULL;
	if (j->req->sge_count == 1)
		j->flat = smx_dma_together(j->dev, j->qp->attr.pd, j->qp->qpn, role, &j->req->sge[0]);
	return j->flat || walk_own(j, role, off);
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

static inline bool copy_part(const struct job *j, uint8_t *there, uint64_t off, uint64_t n)
{
	if (j->flat)
		return smx_direct_copy(&j->d, there, j->flat + off, n);
	return j->d.right == SMX_MAY_WRITE ? walk_out(j->walk, there, n) : walk_in(j->walk, there, n);
}

static inline void done(const struct job *j, const void *inline_data)
{
	if (!j->there)
		j->dev->port->direct++;
	smx_req_done(j->dev, j->qp, j->st, inline_data);
}

static struct smx_where where_of(const struct job *j)
{
	return (struct smx_where){
		.qpn = j->qp->qpn,
		.peer_qpn = j->d.dst_qpn,
		.wqe_index = (uint16_t)j->at,
		.opcode = j->req->opcode,
		.cookie = j->qp->attr.cookie,
	};
}

/* The atomic has happened; what was there before goes to the requester's memory. */
static smx_outcome store_old(const struct job *j, const uint64_t *old)
{
	struct smx_where where = where_of(j);
	struct smx_dma_fault fault;
	struct smx_walk dst;
	uint64_t done;

	smx_walk_list(&dst, j->dev, j->qp->attr.pd, j->qp->qpn, SMX_DMA_SCATTER, j->req->sge, j->req->sge_count);
	if (!smx_dma_write(&dst, old, sizeof(*old), &done, &fault))
		return SMX_CHECK_NONE;
	return smx_walk_refuse(j->dev, &fault, &where);
}

static bool run_atomic(const struct job *j)
{
	struct smx_dev *dev = j->dev;
	struct smx_where where = where_of(j);
	uint64_t old[8] = { 0 }, length;
	void *at = reach(j, 0, &length);
	bool did, held;
	smx_outcome check;

	if (!at)
		return false;
	did = length >= 8 && smx_dma_atomic_at(dev, at, &j->req->atomic, &old[0]);
	held = reached(j);
	dev->budget_bytes -= SMX_WQE_COST_BYTES;
	if (!did)
		return false;
	if (!held) {	/* Once more could be once too often. */
		smx_refuse(dev->attr.env.refusals, SMX_CHECK_RETRY_EXCEEDED, &where,
			   "peer QP 0x%" PRIx32 ", which took back its memory during an atomic", where.peer_qpn);
		smx_req_fail_front(dev, j->qp, j->st, SMX_CHECK_RETRY_EXCEEDED);
		return true;
	}
	if (smx_comp_fits_cqe(dev, j->qp, j->req)) {
		done(j, old);
		return true;
	}
	check = store_old(j, &old[0]);
	if (check)
		smx_req_fail_front(dev, j->qp, j->st, check);
	else
		done(j, NULL);
	return true;
}

/* RETURN how many bytes from off on were copied; 0 when that cannot be. */
static inline uint64_t run_part(const struct job *j, uint64_t off)
{
	uint64_t n;
	uint8_t *there = reach(j, off, &n);
	bool copied;

	if (!there)
		return 0;
	if (n > PART_BYTES)
		n = PART_BYTES;
	copied = copy_part(j, there, off, n);
	return reached(j) && copied ? n : 0;
}

bool smx_direct_run(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, uint32_t at)
{
	const struct smx_send_req *req = &dev->req_work->tx;
	uint64_t off = st->direct_off < req->length ? st->direct_off : 0, n;
	uint8_t cqe_bytes[64];
	bool to_cqe;
	struct job j;

	j.d.right = right_of(req->opcode);
	if (!j.d.right)	/* it takes a receive */
		return smx_direct_run_send(dev, qp, st);
	j.dev = dev;
	j.qp = qp;
	j.st = st;
	j.d.dev = dev;
	j.d.qp = qp;
	j.d.st = st;
	j.d.rkey = req->rkey;
	j.d.raddr = req->raddr;
	j.d.length = req->length;
	j.req = req;
	j.at = at;
	st->direct_off = 0;
	if (!req->length || !smx_direct_address(&j.d, req->av))
		return false;
	if (!find_target(&j))
		return smx_direct_walk(dev, qp, st, &j.d);
	if (!look_at_own(&j, off))
		return false;
	if (j.d.right == SMX_MAY_ATOMIC)
		return run_atomic(&j);
	to_cqe = j.d.right == SMX_MAY_READ && smx_comp_fits_cqe(dev, qp, req);
	if (to_cqe) {
		memset(cqe_bytes, 0, sizeof(cqe_bytes));
		j.flat = cqe_bytes;
	}
	for (; off < req->length; off += n) {
		if (dev->budget_bytes <= 0 && !to_cqe) {
			st->direct_off = off;
			return true;
		}
		n = run_part(&j, off);
		if (!n)
			return false;
		dev->budget_bytes -= (int64_t)(SMX_WQE_COST_BYTES + n);
	}
	done(&j, to_cqe ? cqe_bytes : NULL);
	return true;
}
