/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XRC target queue pairs have no owner: whoever knows the number may open one within its XRC
 * domain, and it lives until the last handle is closed.
 *
 * Events name the creator's handle (the device's cookie), so that structure stays until then too.
 */
#include "verbs/ibv_qp_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

struct smx_xrc_tgt {
	struct smx_qp *dev;
	struct smx_xrcd *xrcd;
	struct smx_vqp *creator;
	uint32_t qpn;
	uint32_t handles; /* open */
	uint32_t unfreed; /* open, or being closed */
};

static struct smx_dv_table targets;	/* by number; under the lock */
static pthread_mutex_t targets_lock = PTHREAD_MUTEX_INITIALIZER;

int smx_xrc_tgt_add(struct smx_vqp *vqp, struct smx_xrcd *xrcd)
{
	struct smx_xrc_tgt *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return ENOMEM;
	t->dev = vqp->dev;
	t->xrcd = xrcd;
	t->creator = vqp;
	t->qpn = vqp->dv.qpn;
	t->handles = t->unfreed = 1;
	pthread_mutex_lock(&targets_lock);
	err = smx_dv_table_set(&targets, t->qpn, t);
	pthread_mutex_unlock(&targets_lock);
	if (err)
		free(t);
	else
		vqp->tgt = t;
	return err;
}

/* Finds a target and counts one more handle of it. */
static struct smx_xrc_tgt *take(uint32_t qpn, const struct smx_xrcd *xrcd)
{
	struct smx_xrc_tgt *t;

	pthread_mutex_lock(&targets_lock);
	t = smx_dv_table_get(&targets, qpn);
	if (t && (t->qpn != qpn || t->xrcd != xrcd))
		t = NULL;
	if (t) {
		t->handles++;
		t->unfreed++;
	}
	pthread_mutex_unlock(&targets_lock);
	return t;
}

static struct smx_vqp *make_handle(struct ibv_context *context, const struct ibv_qp_open_attr *attr)
{
	struct smx_vqp *vqp = aligned_alloc(64, align_up(sizeof(*vqp), 64));
	struct ibv_qp *ibv;

	if (!vqp)
		return NULL;
	memset(vqp, 0, sizeof(*vqp));
	ibv = &vqp->dv.ex.qp_base;
	ibv->context = context;
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		ibv->qp_context = attr->qp_context;
	ibv->qp_num = attr->qp_num;
	ibv->handle = attr->qp_num;
	ibv->qp_type = IBV_QPT_XRC_RECV;
	ibv->state = IBV_QPS_UNKNOWN;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	vqp->dv.kind = SMX_DV_XRC_TGT;
	vqp->dv.qpn = attr->qp_num;
	vqp->dv.refusals = smx_refusals();
	vqp->dev_type = SMX_QP_XRC_TGT;
	vqp->init.qp_type = IBV_QPT_XRC_RECV;
	vqp->init.qp_context = ibv->qp_context;
	return vqp;
}

struct ibv_qp *smx_xrc_tgt_open(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	enum { NEEDED = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE };
	struct smx_refusal_log *log = smx_refusals();
	struct smx_vxrcd *xrcd = (struct smx_vxrcd *)(void *)attr->xrcd;
	struct smx_vqp *vqp;

	if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) {
		errno = smx_refuse(log, SMX_CHECK_ATTR_MASK, NULL, "ibv_open_qp comp_mask 0x%x",
				   attr->comp_mask);
		return NULL;
	}
	if ((attr->comp_mask & NEEDED) != NEEDED || !xrcd || attr->qp_type != IBV_QPT_XRC_RECV) {
		errno = smx_refuse(log, SMX_CHECK_OBJECT_ARG, NULL,
				   "ibv_open_qp comp_mask 0x%x, needed 0x%x; qp_type %d, only"
				   " XRC_RECV (%d) can be opened",
				   attr->comp_mask, NEEDED, (int)attr->qp_type, IBV_QPT_XRC_RECV);
		return NULL;
	}
	vqp = make_handle(context, attr);
	if (!vqp) {
		errno = ENOMEM;
		return NULL;
	}
	vqp->tgt = take(attr->qp_num, xrcd->dev);
	if (!vqp->tgt) {
		errno = smx_refuse(log, SMX_CHECK_OBJECT_ARG, NULL,
				   "ibv_open_qp: no XRC target 0x%x in this XRC domain",
				   attr->qp_num);
		smx_vqp_free(vqp);
		return NULL;
	}
	vqp->dev = vqp->tgt->dev;
	smx_ctx_hold(context);
	return &vqp->dv.ex.qp_base;
}

bool smx_xrc_tgt_leave(struct smx_vqp *vqp)
{
	struct smx_xrc_tgt *t = vqp->tgt;
	bool last;

	pthread_mutex_lock(&targets_lock);
	last = --t->handles == 0;
	if (last)
		smx_dv_table_set(&targets, t->qpn, NULL);
	pthread_mutex_unlock(&targets_lock);
	return last;
}

void smx_xrc_tgt_rejoin(struct smx_vqp *vqp)
{
	pthread_mutex_lock(&targets_lock);
	vqp->tgt->handles = 1;
	smx_dv_table_set(&targets, vqp->tgt->qpn, vqp->tgt);	/* where it was: needs no memory */
	pthread_mutex_unlock(&targets_lock);
}

static void free_handle(struct smx_vqp *vqp)
{
	struct ibv_context *context = vqp->dv.ex.qp_base.context;

	smx_vqp_free(vqp);
	smx_ctx_drop(context);
}

void smx_xrc_tgt_free(struct smx_vqp *vqp)
{
	struct smx_xrc_tgt *t = vqp->tgt;
	bool last;

	pthread_mutex_lock(&targets_lock);
	last = --t->unfreed == 0;
	pthread_mutex_unlock(&targets_lock);
	if (vqp != t->creator)
		free_handle(vqp);
	if (last) {
		free_handle(t->creator);
		free(t);
	}
}
