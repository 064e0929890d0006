/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_init_obj: hands a program the queues themselves, so that it writes WQEs and reads CQEs by
 * its own code.
 *
 * From then on the device looks at the doorbell records of such a queue pair by itself (DESIGN D5),
 * and the driver no longer takes completions out of such a completion queue. */
#include <errno.h>

#include "verbs/ibv_qp_plan.h"

enum {
	KNOWN_TYPES = MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ | MLX5DV_OBJ_RWQ |
		      MLX5DV_OBJ_DM | MLX5DV_OBJ_AH | MLX5DV_OBJ_PD,
};

/* 1.0 and 1.2 differ in what cq_uar is; see the version script. */
int smx_mlx5dv_init_obj_1_0(struct mlx5dv_obj *obj, uint64_t obj_type);
int smx_mlx5dv_init_obj_1_2(struct mlx5dv_obj *obj, uint64_t obj_type);
__asm__(".symver smx_mlx5dv_init_obj_1_0, mlx5dv_init_obj@MLX5_1.0");
__asm__(".symver smx_mlx5dv_init_obj_1_2, mlx5dv_init_obj@@MLX5_1.2");

enum {
	NEVER_ARMED = UINT32_MAX, /* no arm word: those are of 30 bits */
};

/* The place in the context's UAR page for programs that stands for one of the driver's own. With the device off it is
 * that one: what was rung can be read. */
static uint8_t *give_uar(struct ibv_context *context, const uint8_t *own)
{
	struct smx_ctx *ctx = smx_ctx_of(context);
	size_t off = (size_t)(own - ctx->own_uar.base);

	if (ctx->device_off)
		return ctx->own_uar.base + off;
	smx_engine_uar_given(&ctx->given_uar);
	return ctx->given_uar.base + off % ctx->given_uar.bytes;
}

/* The first arming of a fresh queue stores 0 over 0; only a word that stands there before makes it
 * visible. */
static void watch_cq(struct smx_vcq *vcq)
{
	be32 *arm = &vcq->dv.dbrec[SMX_CQ_DBREC_ARM];

	if (!vcq->dv.ex.channel || vcq->watched || smx_ctx_of(vcq->dv.ex.context)->device_off)
		return;
	vcq->watched = true;
	if (!be32_load_acquire(arm))
		be32_store_release(arm, NEVER_ARMED);
	smx_engine_watch_cq(vcq->dev);
}

static void give_qp(struct ibv_qp *in, struct mlx5dv_qp *out)
{
	struct smx_vqp *vqp = smx_vqp_of(in);
	struct smx_dv_qp *dv = &vqp->dv;
	uint64_t given = 0;

	out->dbrec = (__be32 *)(void *)dv->dbrec;
	out->sq.buf = dv->sq.buf;
	out->sq.wqe_cnt = dv->sq.bb_count;
	out->sq.stride = SMX_WQE_BB;
	out->rq.buf = dv->rq.buf;
	out->rq.wqe_cnt = dv->rq.wqe_count;
	out->rq.stride = dv->rq.stride_bytes;
	out->bf.reg = give_uar(in->context, dv->bf.reg);
	out->bf.size = dv->bf.uuarn ? dv->bf.buf_bytes : 0;
	/* Nothing maps to a device here: offsets and raw handles are not given. */
	out->comp_mask = given;
	if (!smx_ctx_of(in->context)->device_off && !vqp->watched && vqp->dev_type != SMX_QP_DCT &&
	    vqp->dev_type != SMX_QP_XRC_TGT) {
		vqp->watched = true;
		smx_engine_watch_qp(vqp->dev);
	}
}

static void give_cq(struct ibv_cq *in, struct mlx5dv_cq *out)
{
	struct smx_vcq *vcq = (struct smx_vcq *)(void *)in;

	out->buf = vcq->dv.buf;
	out->dbrec = (__be32 *)(void *)vcq->dv.dbrec;
	out->cqe_cnt = vcq->dv.cqe_count;
	out->cqe_size = vcq->dv.cqe_bytes;
	out->cq_uar = give_uar(in->context, smx_ctx_of(in->context)->own_uar.base);
	out->cqn = vcq->dv.cqn;
	out->comp_mask = 0;
	vcq->dv_owned = true;
	watch_cq(vcq);
}

static void give_srq(struct ibv_srq *in, struct mlx5dv_srq *out)
{
	struct smx_dv_srq *dv = smx_dv_srq_of(in);
	uint64_t given = 0;

	out->buf = dv->buf;
	out->dbrec = (__be32 *)(void *)dv->dbrec;
	out->stride = dv->stride_bytes;
	out->head = dv->head;
	out->tail = dv->tail;
	if (out->comp_mask & MLX5DV_SRQ_MASK_SRQN) {
		out->srqn = dv->srqn;
		given |= MLX5DV_SRQ_MASK_SRQN;
	}
	out->comp_mask = given;
}

static void give_dm(struct ibv_dm *in, struct mlx5dv_dm *out)
{
	struct smx_vdm *vdm = (struct smx_vdm *)(void *)in;
	uint64_t given = 0;

	out->buf = vdm->mem;
	out->length = vdm->length;
	if (out->comp_mask & MLX5DV_DM_MASK_REMOTE_VA) {
		out->remote_va = 0; /* regions over device memory are zero-based */
		given |= MLX5DV_DM_MASK_REMOTE_VA;
	}
	out->comp_mask = given;
}

int smx_mlx5dv_init_obj_1_2(struct mlx5dv_obj *obj, uint64_t obj_type)
{
	if (obj_type & ~(uint64_t)KNOWN_TYPES || !obj_type)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
					  "mlx5dv_init_obj obj_type 0x%llx, known is"
					  " 0x%x",
					  (unsigned long long)obj_type, KNOWN_TYPES);
	if (obj_type & MLX5DV_OBJ_RWQ)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_NOT_OFFERED, NULL,
					  "mlx5dv_init_obj of a work queue (ibv_wq)");
	if (obj_type & MLX5DV_OBJ_QP)
		give_qp(obj->qp.in, obj->qp.out);
	if (obj_type & MLX5DV_OBJ_CQ)
		give_cq(obj->cq.in, obj->cq.out);
	if (obj_type & MLX5DV_OBJ_SRQ)
		give_srq(obj->srq.in, obj->srq.out);
	if (obj_type & MLX5DV_OBJ_DM)
		give_dm(obj->dm.in, obj->dm.out);
	if (obj_type & MLX5DV_OBJ_AH) {
		obj->ah.out->av =
			(struct mlx5_wqe_av *)(void *)&((struct smx_dv_ah *)(void *)obj->ah.in)->av;
		obj->ah.out->comp_mask = 0;
	}
	if (obj_type & MLX5DV_OBJ_PD) {
		obj->pd.out->pdn = smx_vpd_of(obj->pd.in)->pdn;
		obj->pd.out->comp_mask = 0;
	}
	return 0;
}

/* Version 1.0 gave the address of the pointer to the register. */
int smx_mlx5dv_init_obj_1_0(struct mlx5dv_obj *obj, uint64_t obj_type)
{
	int rc = smx_mlx5dv_init_obj_1_2(obj, obj_type);

	if (!rc && obj_type & MLX5DV_OBJ_CQ)
		obj->cq.out->cq_uar = &smx_ctx_of(obj->cq.in->context)->given_uar.base;
	return rc;
}
