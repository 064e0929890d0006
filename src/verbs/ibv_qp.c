/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Queue pairs as libibverbs exports them: create, modify, query, destroy, multicast, and the
 * operations of a context that concern them. What a program asks for is checked in ibv_qp_check.c.
 */
#include "verbs/ibv_qp_plan.h"

#include <errno.h>
#include <string.h>

#include "verbs/engine_share.h"
#include "verbs/handles.h"

enum { ECE_VENDOR = 0x15b3 };

static struct smx_where where(const struct smx_vqp *vqp)
{
	return (struct smx_where){ .qpn = vqp->dv.qpn };
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = init->qp_context,
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.sq_sig_all = init->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = smx_vqp_create(pd->context, &ex, NULL);

	if (qp)
		init->cap = ex.cap;
	return qp;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	return smx_vqp_create(context, attr, NULL);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct smx_vqp *vqp = smx_vqp_of(qp);

	return vqp->dv.has_ex ? &vqp->dv.ex : NULL;
}

/* Whether completions of this queue are taken out by the driver: not where the program got the
 * queue by mlx5dv_init_obj and reads it by its own code. A program that only looks at it polls by
 * verbs: then the driver's index has moved and is the one in the doorbell record. */
static bool driver_reads(const struct smx_vcq *vcq)
{
	const struct smx_dv_cq *dv = &vcq->dv;
	uint32_t ci = from_be32(dv->dbrec[SMX_CQ_DBREC_CI]) & 0xffffff;

	return !vcq->dv_owned || (dv->ci && ci == (dv->ci & 0xffffff));
}

static void clean_cqs(struct smx_vqp *vqp)
{
	struct smx_vcq *send = (struct smx_vcq *)(void *)vqp->dv.ex.qp_base.send_cq;
	struct smx_vcq *recv = (struct smx_vcq *)(void *)vqp->dv.ex.qp_base.recv_cq;

	if (recv && driver_reads(recv))
		smx_dv_cq_clean(&recv->dv, vqp->dv.qpn, vqp->dv.srq);
	if (send && send != recv && driver_reads(send))
		smx_dv_cq_clean(&send->dv, vqp->dv.qpn, NULL);
}

static bool state_posts(enum ibv_qp_state state)
{
	return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE ||
	       state == IBV_QPS_ERR;
}

/* Requests posted to a queue pair in ERR are flushed, so posting is allowed there; if the device
 * moves it to ERR by itself nothing changes here. */
static void state_changed(struct smx_vqp *vqp, enum ibv_qp_state state)
{
	/* Others may be posting meanwhile. */
	__atomic_store_n(&vqp->dv.ex.qp_base.state, state, __ATOMIC_RELAXED);
	__atomic_store_n(&vqp->dv.can_post, state_posts(state) && vqp->dv.sq.bb_count, __ATOMIC_RELAXED);
	if (state == IBV_QPS_RESET && vqp->dev_type != SMX_QP_DCT &&
	    vqp->dev_type != SMX_QP_XRC_TGT) {
		clean_cqs(vqp);
		smx_dv_qp_reset(&vqp->dv);
	}
}

/* XRC's halves have only half of a connection's attributes. The kernel lets programs name the others, and
 * ignores those. */
static int own_half(enum ibv_qp_type type, int mask)
{
	switch (type) {
	case IBV_QPT_XRC_SEND:
		return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	case IBV_QPT_XRC_RECV:
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	default:
		return mask;
	}
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct smx_vqp *vqp = smx_vqp_of(qp);
	struct smx_where at = where(vqp);
	struct smx_path path;
	uint8_t dmac[6];
	int rc;

	if (mask & IBV_QP_RATE_LIMIT)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_NOT_OFFERED, &at,
					  "IBV_QP_RATE_LIMIT, %u kbit/s:"
					  " packet pacing",
					  attr->rate_limit);
	if (mask & ~(IBV_QP_DEST_QPN * 2 - 1))
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_ATTR_MASK, &at,
					  "ibv_modify_qp attr_mask 0x%x", (unsigned int)mask);
	mask = own_half(qp->qp_type, mask);
	if (mask & IBV_QP_AV) {
		rc = smx_path_resolve(qp->context, &attr->ah_attr, &path, dmac);
		if (rc)
			return errno = rc;
	}
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET) {
		smx_engine_ring_drain(&vqp->ring_sq);
		smx_engine_ring_drain(&vqp->ring_rq);
	}
	smx_engine_lock();
	rc = smx_cmd_modify_qp(smx_engine_dev(), vqp->dev, attr, mask,
			       mask & IBV_QP_AV ? &path : NULL);
	if (!rc && smx_dev_is_reachable(smx_engine_dev()))
		smx_regions_share();
	smx_engine_unlock();
	if (rc)
		return errno = rc;
	if (mask & IBV_QP_STATE)
		state_changed(vqp, attr->qp_state);
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct smx_vqp *vqp = smx_vqp_of(qp);
	struct smx_where at = where(vqp);
	int rc;

	/* Bits 21 to 24 were attributes once; programs that ask for everything set them. */
	if (mask & ~(IBV_QP_RATE_LIMIT - 1))
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_ATTR_MASK, &at,
					  "ibv_query_qp attr_mask 0x%x", (unsigned int)mask);
	smx_engine_lock();
	rc = smx_cmd_query_qp(smx_engine_dev(), vqp->dev, attr);
	smx_engine_unlock();
	if (rc)
		return errno = rc;
	attr->cap = vqp->init.cap;
	if (init)
		*init = vqp->init;
	if (mask & IBV_QP_STATE)
		__atomic_store_n(&qp->state, attr->qp_state, __ATOMIC_RELAXED);
	return 0;
}

static int destroy_in_device(struct smx_vqp *vqp)
{
	int rc;

	smx_engine_ring_drain(&vqp->ring_sq);
	smx_engine_ring_drain(&vqp->ring_rq);
	smx_engine_lock();
	rc = smx_cmd_destroy_qp(smx_engine_dev(), vqp->dev);
	smx_engine_unlock();
	if (!rc && vqp->watched)
		smx_engine_watch_end();
	return rc;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct smx_vqp *vqp = smx_vqp_of(qp);
	struct ibv_context *context = qp->context;
	struct smx_vpd *pd = vqp->pd;
	bool last = !vqp->tgt || smx_xrc_tgt_leave(vqp);
	int rc = last ? destroy_in_device(vqp) : 0;

	if (rc) {
		if (vqp->tgt)
			smx_xrc_tgt_rejoin(vqp);
		return errno = rc;
	}
	clean_cqs(vqp);
	smx_event_async_end(context, &vqp->async_events, &qp->mutex, &qp->cond,
			    &qp->events_completed);

	smx_number_clear(&smx_qp_table, vqp->dv.qpn, vqp);
	if (vqp->tgt) {
		smx_xrc_tgt_free(vqp);
		return 0;
	}
	smx_vqp_free(vqp);
	smx_vpd_drop(pd);
	smx_ctx_drop(context);
	return 0;
}

static int mcast(struct ibv_qp *qp, const union ibv_gid *gid, bool attach)
{
	struct smx_vqp *vqp = smx_vqp_of(qp);
	struct smx_where at = where(vqp);
	int rc;

	if (qp->qp_type != IBV_QPT_UD || gid->raw[0] != 0xff)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, &at,
					  "multicast needs a UD queue pair and a GID"
					  " of ff00::/8; qp_type %d, GID byte 0 is 0x%02x",
					  (int)qp->qp_type, gid->raw[0]);
	smx_engine_lock();
	rc = attach ? smx_cmd_attach_mcast(smx_engine_dev(), vqp->dev, gid->raw)
		    : smx_cmd_detach_mcast(smx_engine_dev(), vqp->dev, gid->raw);
	smx_engine_unlock();
	return rc ? errno = rc : 0;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)lid; /* RoCE has none */
	return mcast(qp, gid, true);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)lid;
	return mcast(qp, gid, false);
}

/* Messages are copied by memcpy(), which does not promise an order. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp;
	(void)op;
	(void)flags;
	return 0;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	ece->vendor_id = ECE_VENDOR;
	ece->options = 0;
	ece->comp_mask = 0;
	return 0;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	struct smx_where at = where(smx_vqp_of(qp));

	if (ece->vendor_id && (ece->comp_mask || ece->vendor_id != ECE_VENDOR))
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, &at,
					  "ECE vendor_id 0x%x (0x%x here), comp_mask"
					  " 0x%x",
					  ece->vendor_id, ECE_VENDOR, ece->comp_mask);
	if (!ece->vendor_id || ece->options)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_ECE, &at,
					  "vendor_id 0x%x, options 0x%x", ece->vendor_id,
					  ece->options);
	return 0;
}

static int modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
	struct smx_where at = where(smx_vqp_of(qp));

	return errno = smx_refuse(smx_refusals(), SMX_CHECK_NOT_OFFERED, &at,
				  "rate limit %u kbit/s: packet pacing", attr->rate_limit);
}

void smx_ops_qp(struct verbs_context *v)
{
	v->context.ops.post_send = smx_dv_post_send;
	v->context.ops.post_recv = smx_dv_post_recv;
	v->context.ops.bind_mw = smx_dv_bind_mw;
	v->create_qp_ex = create_qp_ex;
	v->open_qp = smx_xrc_tgt_open;
	v->modify_qp_rate_limit = modify_qp_rate_limit;
}
