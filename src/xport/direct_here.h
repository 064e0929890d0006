/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One-sided requests within the process: whom one is for, and where the memory lies that it names. This only looks, at
 * what does not change meanwhile. */
#ifndef SMX_XPORT_DIRECT_HERE_H
#define SMX_XPORT_DIRECT_HERE_H

#include "xport/direct.h"
#include "xport/responder.h"

struct smx_direct {
	const struct smx_dev *dev;
	const struct smx_qp *qp;
	const struct smx_requester *st;
	uint32_t right;			/* the enum smx_port_right that it needs */
	uint32_t rkey;
	uint64_t raddr, length;
	uint32_t dst_qpn;
	uint64_t dc_key;		/* DC */
};

/* The first request to a queue pair in RTR raises an event, and so is a frame. */
static inline bool smx_direct_is_able(const struct smx_qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
	       (qp->state == IBV_QPS_RTR && (qp->attr.type == SMX_QP_DCT || qp->resp->established));
}

static inline bool smx_direct_grants(const struct smx_qp *qp, uint32_t right)
{
	return smx_direct_rights(qp->cur.qp_access_flags) & right && smx_direct_is_able(qp) &&
	       (right == SMX_MAY_WRITE || qp->attr.type == SMX_QP_DCT || qp->cur.max_dest_rd_atomic);
}

/* Fills in whom it is for. RETURN false for requests that always take a frame. */
static inline bool smx_direct_address(struct smx_direct *d, const struct smx_wqe_av *av)
{
	const struct smx_qp *qp = d->qp;

	if (qp->attr.type == SMX_QP_RC) {
		d->dst_qpn = qp->cur.dest_qp_num;
		d->dc_key = 0;
		return true;
	}
	/* With a source that is none it is refused, as a frame. */
	if (qp->attr.type != SMX_QP_DCI || !smx_av_source(d->dev, av))
		return false;
	d->dst_qpn = from_be32(av->dqp_dct) & 0xffffff;
	d->dc_key = from_be64(av->dc_key);
	return true;
}

/* Has the responder answered to a number of this sender's before? A connection whose ends were given different ones is
 * to fail as it does on a wire. */
static inline bool smx_direct_is_agreed(const struct smx_direct *d)
{
	return d->st->una_psn != (d->qp->cur.sq_psn & SMX_PSN_MASK);
}

static inline bool smx_direct_serves(const struct smx_qp *target, const struct smx_direct *d)
{
	if (target->cur.path_mtu != d->qp->cur.path_mtu || !smx_direct_grants(target, d->right))
		return false;
	if (d->qp->attr.type == SMX_QP_DCI)
		return target->attr.type == SMX_QP_DCT && target->attr.dc_key == d->dc_key;
	return target->attr.type == SMX_QP_RC && target->cur.dest_qp_num == d->qp->qpn &&
	       (smx_direct_is_agreed(d) || target->resp->one->epsn == d->st->next_psn);
}

/* As the port's reach(), where the target's objects are at hand. RETURN where the memory is that the request names, all
 * of it together, or NULL. */
static inline uint8_t *smx_direct_there(const struct smx_direct *d, const struct smx_qp *target)
{
	const struct smx_mkey *mkey = smx_mkey_find(d->dev, d->rkey);
	uint64_t at;

	if (!mkey || !smx_direct_serves(target, d) || mkey->attr.kind != SMX_MKEY_DIRECT || mkey->free ||
	    mkey->attr.pd != target->attr.pd || !(smx_direct_rights(mkey->attr.access) & d->right))
		return NULL;
	at = d->raddr - mkey->attr.start;
	if (at > mkey->attr.length || mkey->attr.length - at < d->length)
		return NULL;
	if (d->right == SMX_MAY_ATOMIC && (d->raddr | ((uintptr_t)mkey->attr.host + at)) & 7)
		return NULL;
	return (uint8_t *)mkey->attr.host + at;
}

static inline enum smx_dma_role smx_direct_role(const struct smx_direct *d)
{
	return d->right == SMX_MAY_WRITE ? SMX_DMA_GATHER : SMX_DMA_SCATTER;
}

/* RETURN whether all n bytes were copied, the way that the request goes. */
static inline bool smx_direct_copy(const struct smx_direct *d, uint8_t *there, uint8_t *own, uint64_t n)
{
	const void *bad;

	if ((uintptr_t)there - (uintptr_t)own < n || (uintptr_t)own - (uintptr_t)there < n)
		return false;	/* one process's: a frame is copied with care */
	if (d->right == SMX_MAY_WRITE)
		return d->dev->attr.env.copy(there, own, n, &bad);
	return d->dev->attr.env.copy(own, there, n, &bad);
}

#endif
