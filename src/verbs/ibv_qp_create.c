/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Makes a queue pair: sizes its queues, gets their memory, fills in the driver's part, creates it
 * in the device. Undoing is smx_vqp_free(), whatever had been done. */
#include "verbs/ibv_qp_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/settings.h"
#include "verbs/handles.h"

static void ring_sq(struct smx_dv_qp *dv)
{
	smx_engine_ring(&((struct smx_vqp *)(void *)dv)->ring_sq);
}

static void ring_rq(struct smx_dv_qp *dv)
{
	smx_engine_ring(&((struct smx_vqp *)(void *)dv)->ring_rq);
}

static bool env_on(const char *name, bool def)
{
	const char *env = getenv(name);

	return env ? strcmp(env, "0") != 0 : def;
}

enum { SQ_BB_MAX = 32768 };	/* half of what the 16-bit producer index can tell apart */

static int no_memory(const struct smx_dv_qp_sizes *sz, const char *what)
{
	return smx_refuse(smx_refusals(), SMX_CHECK_QUEUE_MEMORY, NULL,
			  "%s, %llu bytes of queues, MLX_QP_ALLOC_TYPE is %s", what,
			  (unsigned long long)sz->total_bytes,
			  getenv("MLX_QP_ALLOC_TYPE") ? getenv("MLX_QP_ALLOC_TYPE") : "not set");
}

static int make_memory(struct smx_vqp *vqp, struct smx_ctx *ctx, const struct smx_dv_qp_sizes *sz)
{
	struct smx_dv_sq *sq = &vqp->dv.sq;
	struct smx_dv_rq *rq = &vqp->dv.rq;

	if (sz->total_bytes) {
		if (!smx_queue_mem_get(&vqp->ring_mem, &ctx->v.context, vqp->pd, sz->total_bytes,
				       MLX5DV_RES_TYPE_QP))
			return no_memory(sz, "no memory for the queues");
		if (vqp->pd && vqp->pd->alloc &&
		    !smx_queue_mem_get(&vqp->dbrec_mem, &ctx->v.context, vqp->pd, sizeof(vqp->own_dbrec),
				       MLX5DV_RES_TYPE_DBR))
			return no_memory(sz, "no memory for the doorbell record");
	}
	vqp->dv.dbrec = vqp->dbrec_mem.at ? vqp->dbrec_mem.at : vqp->own_dbrec;
	memset(vqp->dv.dbrec, 0, 2 * sizeof(be32));

	sq->bb_count = sz->sq_bb_count;
	sq->max_post = sz->sq_max_post;
	sq->max_gs = sz->sq_max_gs;
	sq->max_inline = sz->sq_max_inline;
	rq->wqe_count = sz->rq_wqe_count;
	rq->stride_bytes = sz->rq_stride_bytes;
	rq->max_gs = sz->rq_max_gs;
	if (sq->bb_count) {
		sq->buf = (uint8_t *)vqp->ring_mem.at + sz->sq_offset;
		sq->slot = calloc(sq->bb_count, sizeof(*sq->slot));
		if (!sq->slot)
			return no_memory(sz, "no memory for the send queue's bookkeeping");
	}
	if (rq->wqe_count) {
		rq->buf = (uint8_t *)vqp->ring_mem.at + sz->rq_offset;
		rq->wr_id = calloc(rq->wqe_count, sizeof(*rq->wr_id));
		if (!rq->wr_id)
			return no_memory(sz, "no memory for the receive queue's bookkeeping");
	}
	return 0;
}

static void fill_driver(struct smx_vqp *vqp, struct smx_ctx *ctx, const struct smx_qp_plan *p)
{
	struct smx_dv_qp *dv = &vqp->dv;

	dv->kind = p->kind;
	dv->sq.fm_cache = p->attr->sq_sig_all ? IBV_SEND_SIGNALED : 0;
	dv->wq_sig = p->wq_signature;
	dv->atomics = true;
	dv->has_streams = p->has_streams;
	dv->has_ex = p->has_ex;
	dv->send_ops = p->send_ops;
	dv->dv_ops = p->dv_ops;
	dv->srq = p->srq ? &p->srq->dv : NULL;
	dv->bf = smx_ctx_next_bf(ctx);
	dv->sq.lock.needed = dv->rq.lock.needed = smx_lock_needed(p->context, p->pd);
	dv->ctx.prefer_bf = env_on("MLX5_POST_SEND_PREFER_BF", true);
	dv->ctx.shut_up_bf = env_on("MLX5_SHUT_UP_BF", false);
	dv->ctx.mkey_update_tag = true;
	dv->ctx.memcpy_max = smx_setting_number(SMX_SET_MEMCPY_MAX);
	dv->ctx.opaque_lkey = ctx->opaque_lkey;
	dv->ctx.opaque_addr = (uint64_t)(uintptr_t)ctx->opaque;
	dv->refusals = smx_refusals();
	dv->ring_sq = ctx->device_off ? NULL : ring_sq;
	dv->ring_rq = ctx->device_off ? NULL : ring_rq;
}

static void fill_ibv(struct smx_vqp *vqp, const struct smx_qp_plan *p)
{
	struct ibv_qp *ibv = &vqp->dv.ex.qp_base;

	ibv->context = p->context;
	ibv->qp_context = p->attr->qp_context;
	ibv->pd = p->pd ? &p->pd->ibv : NULL;
	ibv->send_cq = p->attr->send_cq;
	ibv->recv_cq = p->attr->recv_cq;
	ibv->srq = p->attr->srq;
	ibv->qp_type = p->attr->qp_type;
	ibv->state = IBV_QPS_RESET;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	vqp->pd = p->pd;
	vqp->dev_type = p->type;
}

/* What mlx5's kernel driver configures: 32 bytes with CQEs of 64, 64 with those of 128. A requester
 * scatters only if all its requests are signaled or the program allowed it: an unsignaled READ's
 * data would otherwise be lost in a CQE that is not there. */
static void plan_scatter(const struct smx_qp_plan *p, struct smx_qp_attr *attr)
{
	if (!p->scatter)
		return;
	if ((p->type == SMX_QP_RC || p->type == SMX_QP_DCI) &&
	    (p->attr->sq_sig_all || p->scatter_unsignaled))
		attr->req_scatter_bytes = p->send_cq->dv.cqe_bytes == 128 ? 64 : 32;
	if (p->type == SMX_QP_RC || p->type == SMX_QP_UC)
		attr->resp_scatter_bytes = p->recv_cq->dv.cqe_bytes == 128 ? 64 : 32;
	if (p->type == SMX_QP_DCT && p->recv_cq->dv.cqe_bytes == 128)
		attr->resp_scatter_bytes = 64;
}

static int make_device_qp(struct smx_vqp *vqp, const struct smx_qp_plan *p)
{
	struct smx_dv_qp *dv = &vqp->dv;
	struct smx_qp_attr attr = {
		.type = p->type,
		.pd = p->pd ? p->pd->dev : NULL,
		.send_cq = p->send_cq ? p->send_cq->dev : NULL,
		.recv_cq = p->recv_cq ? p->recv_cq->dev : NULL,
		.srq = p->srq ? p->srq->dev : NULL,
		.xrcd = p->xrcd ? p->xrcd->dev : NULL,
		.sq_buf = dv->sq.buf,
		.sq_bb_count = dv->sq.bb_count,
		.rq_buf = dv->rq.buf,
		.rq_wqe_count = dv->rq.wqe_count,
		.rq_stride_bytes = dv->rq.stride_bytes,
		.dbrec = dv->dbrec,
		.dc_key = p->dc_key,
		.log_streams = p->log_streams,
		.log_errored = p->log_errored,
		.wq_signature = p->wq_signature,
		.block_self_mcast = p->block_self_mcast,
		.cookie = vqp,
	};
	int rc;

	plan_scatter(p, &attr);
	smx_engine_lock();
	rc = smx_cmd_create_qp(smx_engine_dev(), &attr, &vqp->dev, &dv->qpn);
	smx_engine_unlock();
	if (rc)
		return rc;
	vqp->ring_sq = (struct smx_ring){ .kind = SMX_RING_SQ, .obj = vqp->dev };
	vqp->ring_rq = (struct smx_ring){ .kind = SMX_RING_RQ, .obj = vqp->dev };
	dv->ex.qp_base.qp_num = dv->qpn;
	dv->ex.qp_base.handle = dv->qpn;
	smx_dv_qp_prepare(dv);
	return 0;
}

/* The device has the queue pair: makes it known to CQ polling, counts what it holds. */
static int publish(struct smx_vqp *vqp, const struct smx_qp_plan *p)
{
	int rc = smx_number_set(&smx_qp_table, vqp->dv.qpn, vqp);

	if (!rc && p->xrcd)
		rc = smx_xrc_tgt_add(vqp, p->xrcd->dev);
	if (rc) {
		smx_refuse(smx_refusals(), SMX_CHECK_NO_RESOURCES, NULL,
			   "no memory for queue pair 0x%x", vqp->dv.qpn);
		smx_number_clear(&smx_qp_table, vqp->dv.qpn, vqp);
		smx_engine_lock();
		smx_cmd_destroy_qp(smx_engine_dev(), vqp->dev);
		smx_engine_unlock();
		return rc;
	}
	smx_ctx_hold(p->context);
	smx_vpd_hold(vqp->pd);
	return 0;
}

void smx_vqp_free(struct smx_vqp *vqp)
{
	smx_queue_mem_put(&vqp->dbrec_mem);
	smx_queue_mem_put(&vqp->ring_mem);
	free(vqp->dv.sq.slot);
	free(vqp->dv.rq.wr_id);
	pthread_cond_destroy(&vqp->dv.ex.qp_base.cond);
	pthread_mutex_destroy(&vqp->dv.ex.qp_base.mutex);
	free(vqp);
}

/* Streams complete past each other, while room in the ring comes back in the order of posting. Programs that
 * count completions expect room for each: the ring of a DCI with streams has twice what was asked for. */
static void add_room_for_streams(struct smx_dv_qp_sizes *sz)
{
	if (sz->sq_bb_count > SQ_BB_MAX / 2)
		return;
	sz->total_bytes += (uint64_t)sz->sq_bb_count * SMX_WQE_BB;
	sz->sq_bb_count *= 2;
	sz->sq_max_post *= 2;
}

static int build(struct smx_vqp *vqp, struct smx_qp_plan *p)
{
	struct smx_ctx *ctx = smx_ctx_of(p->context);
	struct smx_dv_qp_sizes sz = { 0 };
	int rc = 0;

	fill_ibv(vqp, p);
	fill_driver(vqp, ctx, p);
	if (p->has_ex || p->has_dv_ops)
		rc = smx_dv_qp_fill_ops(&vqp->dv);
	if (!rc && p->type != SMX_QP_XRC_TGT && p->type != SMX_QP_DCT)
		rc = smx_dv_qp_size(smx_refusals(), p->kind, p->size_ops, p->dv_ops,
				    p->srq || p->kind == SMX_DV_DCI || p->kind == SMX_DV_XRC_INI,
				    p->wq_signature, &p->cap, &sz);
	if (!rc && p->has_streams)
		add_room_for_streams(&sz);
	if (!rc)
		rc = make_memory(vqp, ctx, &sz);
	if (!rc)
		rc = make_device_qp(vqp, p);
	if (!rc)
		rc = publish(vqp, p);
	return rc;
}

struct ibv_qp *smx_vqp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
			      struct mlx5dv_qp_init_attr *mlx5_attr)
{
	struct smx_qp_plan plan;
	struct smx_vqp *vqp;
	int rc;

	rc = smx_qp_plan(&plan, context, attr, mlx5_attr);
	if (rc) {
		errno = rc;
		return NULL;
	}
	vqp = aligned_alloc(64, align_up(sizeof(*vqp), 64));
	if (!vqp) {
		errno = ENOMEM;
		return NULL;
	}
	memset(vqp, 0, sizeof(*vqp));
	rc = build(vqp, &plan);
	if (rc) {
		smx_vqp_free(vqp);
		errno = rc;
		return NULL;
	}
	attr->cap = plan.cap;
	vqp->init = (struct ibv_qp_init_attr){
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = plan.cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
	};
	return &vqp->dv.ex.qp_base;
}
