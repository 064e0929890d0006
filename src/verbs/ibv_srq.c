/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared receive queues: basic, XRC and tag matching. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "verbs/handles.h"
#include "verbs/ibv_device.h"
#include "verbs/objects.h"

static struct smx_vsrq *vsrq_of(struct ibv_srq *srq)
{
	return (struct smx_vsrq *)(void *)srq;
}

static void ring(struct smx_dv_srq *dv)
{
	smx_engine_ring(&container_of(dv, struct smx_vsrq, dv)->ring);
}

static int make_memory(struct smx_vsrq *vsrq)
{
	struct smx_dv_srq *dv = &vsrq->dv;

	struct ibv_context *context = vsrq->pd->ibv.context;

	if (!smx_queue_mem_get(&vsrq->ring_mem, context, vsrq->pd, (size_t)dv->wqe_count * dv->stride_bytes,
			       MLX5DV_RES_TYPE_SRQ) ||
	    !smx_queue_mem_get(&vsrq->dbrec_mem, context, vsrq->pd, 8, MLX5DV_RES_TYPE_DBR))
		return ENOMEM;
	dv->wr_id = calloc(dv->wqe_count, sizeof(*dv->wr_id));
	if (!dv->wr_id)
		return ENOMEM;
	dv->buf = vsrq->ring_mem.at;
	dv->dbrec = vsrq->dbrec_mem.at;
	return 0;
}

static void release(struct smx_vsrq *vsrq)
{
	smx_queue_mem_put(&vsrq->ring_mem);
	smx_queue_mem_put(&vsrq->dbrec_mem);
	free(vsrq->dv.wr_id);
	smx_dv_tags_free(vsrq->dv.tags);
	free(vsrq);
}

static int make_device_srq(struct smx_vsrq *vsrq)
{
	const struct smx_srq_attr attr = {
		.buf = vsrq->ring_mem.at,
		.wqe_count = vsrq->dv.wqe_count,
		.stride_bytes = vsrq->dv.stride_bytes,
		.dbrec = vsrq->dbrec_mem.at,
		.pd = vsrq->pd->dev,
		.xrcd = vsrq->xrcd ? ((struct smx_vxrcd *)(void *)vsrq->xrcd)->dev : NULL,
		.tag_count = vsrq->tag_count,
		.cq = vsrq->cq ? ((struct smx_vcq *)(void *)vsrq->cq)->dev : NULL,
		.cookie = vsrq,
	};
	int err;

	smx_engine_lock();
	err = smx_cmd_create_srq(smx_engine_dev(), &attr, &vsrq->dev, &vsrq->dv.srqn);
	smx_engine_unlock();
	vsrq->ring = (struct smx_ring){ .kind = SMX_RING_SRQ, .obj = vsrq->dev };
	return err;
}

/* The driver's and the device's part, for a type, domain and CQ that are already set. */
static int make(struct smx_vsrq *vsrq, struct ibv_context *context, struct ibv_srq_attr *attr)
{
	struct smx_dv_srq *dv = &vsrq->dv;
	int err;

	dv->refusals = smx_refusals();
	dv->lock.needed = smx_lock_needed(context, vsrq->pd);
	dv->ring = smx_ctx_of(context)->device_off ? NULL : ring;
	err = smx_dv_srq_size(dv->refusals, attr, &dv->wqe_count, &dv->stride_bytes);
	if (err)
		return err;
	dv->max_gs = attr->max_sge;
	err = make_memory(vsrq);
	if (err)
		return err;
	smx_dv_srq_init(dv);
	err = make_device_srq(vsrq);
	if (err)
		return err;
	err = smx_number_set(&smx_srq_table, dv->srqn, dv);
	if (err) {
		smx_engine_lock();
		smx_cmd_destroy_srq(smx_engine_dev(), vsrq->dev);
		smx_engine_unlock();
	}
	return err;
}

static struct ibv_srq *create(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr,
			      enum ibv_srq_type type, struct ibv_srq_attr *sizes)
{
	struct smx_vsrq *vsrq;
	struct ibv_srq *ibv;
	int err = 0;

	if (sizes->max_wr > SMX_MAX_SRQ_WR || sizes->max_sge > SMX_MAX_SRQ_SGE)
		err = smx_refuse(
			smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
			"shared receive queue of max_wr %u max_sge %u; the device has %d and %d",
			sizes->max_wr, sizes->max_sge, SMX_MAX_SRQ_WR, SMX_MAX_SRQ_SGE);
	vsrq = err ? NULL : calloc(1, sizeof(*vsrq));
	if (!vsrq) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	vsrq->pd = smx_vpd_of(attr->pd);
	vsrq->type = type;
	if (type == IBV_SRQT_XRC)
		vsrq->xrcd = attr->xrcd;
	if (type == IBV_SRQT_TM)
		vsrq->tag_count = (uint32_t)pow2_ceil((uint64_t)attr->tm_cap.max_num_tags + 1);
	if (type != IBV_SRQT_BASIC)
		vsrq->cq = attr->cq;
	err = make(vsrq, context, sizes);
	if (err) {
		release(vsrq);
		errno = err;
		return NULL;
	}
	vsrq->attr = *sizes;
	ibv = &vsrq->dv.ibv;
	ibv->context = context;
	ibv->srq_context = attr->srq_context;
	ibv->pd = attr->pd;
	ibv->handle = vsrq->dv.srqn;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	smx_vpd_hold(vsrq->pd);
	smx_ctx_hold(context);
	return ibv;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = { .srq_context = attr->srq_context, .pd = pd };

	return create(pd->context, &ex, IBV_SRQT_BASIC, &attr->attr);
}

/* ---- tag matching ---- */

/* The queue pair that list operations are posted to is connected to itself; nothing is ever sent over it. */
static int connect_to_itself(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.port_num = 1,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = qp->qp_num,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	int err = ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid);

	attr.qp_state = IBV_QPS_INIT;
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_RTR;
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return err;
}

static int make_tags(struct smx_vsrq *vsrq, const struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_qp_init_attr init = {
		.send_cq = attr->cq,
		.recv_cq = attr->cq,
		.srq = &vsrq->dv.ibv,
		.cap = { .max_send_wr = attr->tm_cap.max_ops, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	int err;

	vsrq->cmd = ibv_create_qp(attr->pd, &init);
	if (!vsrq->cmd)
		return errno;
	err = connect_to_itself(vsrq->cmd);
	if (err)
		return err;
	vsrq->dv.tags = smx_dv_tags_create(smx_dv_qp_of(vsrq->cmd), attr->tm_cap.max_num_tags);
	return vsrq->dv.tags ? 0 : ENOMEM;
}

static struct ibv_srq *create_tm(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq *srq = create(context, attr, IBV_SRQT_TM, &attr->attr);
	int err = srq ? make_tags(vsrq_of(srq), attr) : 0;

	if (!err)
		return srq;
	ibv_destroy_srq(srq);
	errno = err;
	return NULL;
}

static const char *bad_tm(const struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t needed = IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
	struct ibv_device_attr limit;

	ibv_query_device(attr->pd->context, &limit);
	if ((attr->comp_mask & needed) != needed || !attr->cq)
		return "a tag matching queue needs a completion queue and tm_cap";
	if (((const struct smx_vcq *)(const void *)attr->cq)->basic)
		return "a tag matching queue needs a completion queue of ibv_create_cq_ex";
	if (!attr->tm_cap.max_num_tags || attr->tm_cap.max_num_tags > SMX_MAX_TAGS)
		return "tm_cap.max_num_tags is 0 or beyond the device's";
	if (!attr->tm_cap.max_ops || attr->tm_cap.max_ops > (uint32_t)limit.max_qp_wr)
		return "tm_cap.max_ops is 0 or beyond the device's";
	return NULL;
}

static struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	enum ibv_srq_type type =
		attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;
	const uint32_t xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	const char *why = NULL;

	if (attr->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_RESERVED - 1))
		why = "comp_mask has bits that are not known";
	else if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd)
		why = "a protection domain is needed";
	else if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC && type != IBV_SRQT_TM)
		why = "the type is not known";
	else if (type == IBV_SRQT_XRC &&
		 ((attr->comp_mask & xrc) != xrc || !attr->xrcd || !attr->cq))
		why = "an XRC queue needs an XRC domain and a completion queue";
	else if (type == IBV_SRQT_TM)
		why = bad_tm(attr);
	if (why) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				   "shared receive queue of type %d comp_mask 0x%x: %s", (int)type,
				   attr->comp_mask, why);
		return NULL;
	}
	return type == IBV_SRQT_TM ? create_tm(context, attr) : create(context, attr, type, &attr->attr);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct smx_vsrq *vsrq = vsrq_of(srq);
	int err;

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "mask 0x%x of modify_srq", (unsigned int)mask);
	if (mask & IBV_SRQ_MAX_WR)
		return smx_refuse(
			smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
			"modify_srq to max_wr %u: a ConnectX does not resize shared receive queues",
			attr->max_wr);
	if (!(mask & IBV_SRQ_LIMIT))
		return 0;
	if (attr->srq_limit >= vsrq->dv.wqe_count)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "srq_limit %u, the queue has max_wr %u", attr->srq_limit,
				  vsrq->attr.max_wr);
	smx_engine_lock();
	err = smx_cmd_arm_srq(smx_engine_dev(), vsrq->dev, attr->srq_limit);
	smx_engine_unlock();
	return err;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct smx_vsrq *vsrq = vsrq_of(srq);
	int err;

	*attr = vsrq->attr;
	smx_engine_lock();
	err = smx_cmd_query_srq(smx_engine_dev(), vsrq->dev, &attr->srq_limit);
	smx_engine_unlock();
	return err;
}

static int get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	*srq_num = vsrq_of(srq)->dv.srqn;
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct smx_vsrq *vsrq = vsrq_of(srq);
	struct ibv_context *context = srq->context;
	uint32_t users;
	int err;

	if (vsrq->cmd) {
		smx_engine_lock();
		users = smx_srq_users(vsrq->dev);
		smx_engine_unlock();
		if (users > 1)
			return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_BUSY, NULL,
					  "SRQ 0x%x is used by %u queue pairs", vsrq->dv.srqn, users - 1);
		ibv_destroy_qp(vsrq->cmd);
		vsrq->cmd = NULL;
	}
	smx_engine_ring_drain(&vsrq->ring);
	smx_engine_lock();
	err = smx_cmd_destroy_srq(smx_engine_dev(), vsrq->dev);
	smx_engine_unlock();
	if (err)
		return err;
	if (vsrq->cq)
		smx_dv_cq_clean(smx_dv_cq_of(vsrq->cq), 0, &vsrq->dv);
	smx_number_clear(&smx_srq_table, vsrq->dv.srqn, &vsrq->dv);
	smx_event_async_end(context, &vsrq->async_events, &srq->mutex, &srq->cond,
			    &srq->events_completed);
	smx_vpd_drop(vsrq->pd);
	pthread_mutex_destroy(&srq->mutex);
	pthread_cond_destroy(&srq->cond);
	release(vsrq);
	smx_ctx_drop(context);
	return 0;
}

void smx_ops_srq(struct verbs_context *v)
{
	v->create_srq_ex = create_srq_ex;
	v->get_srq_num = get_srq_num;
	v->post_srq_ops = smx_dv_post_srq_ops;
	v->context.ops.post_srq_recv = smx_dv_post_srq_recv;
	smx_ops_xrcd(v);
}
