/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a program asked for when it creates a queue pair, after every check: the common ground of
 * ibv_create_qp, ibv_create_qp_ex and mlx5dv_create_qp, and of the files that make and unmake one.
 */
#ifndef SMX_VERBS_IBV_QP_PLAN_H
#define SMX_VERBS_IBV_QP_PLAN_H

#include "verbs/mlx5dv_caps.h"
#include "verbs/objects.h"

struct smx_qp_plan {
	struct ibv_context *context;
	const struct ibv_qp_init_attr_ex *attr;
	enum smx_qp_type type;
	enum smx_dv_qp_kind kind;
	struct smx_vpd *pd; /* NULL: XRC_RECV, which has an XRC domain instead */
	struct smx_vxrcd *xrcd;
	struct smx_vcq *send_cq, *recv_cq;
	struct smx_vsrq
		*srq; /* where receives come from; a DCI has none, whatever the program gave */
	struct ibv_qp_cap cap; /* without what the type does not have */
	bool has_ex;	       /* send_ops_flags of ibv_qp_init_attr_ex was given */
	bool has_dv_ops;       /* that of mlx5dv_qp_init_attr was */
	uint64_t send_ops, dv_ops;
	uint64_t size_ops;		  /* operations that a WQE must have room for */
	bool scatter, scatter_unsignaled; /* small messages into CQEs; READ responses also without
					     sq_sig_all */
	bool wq_signature;
	bool block_self_mcast;
	bool has_streams;
	uint8_t log_streams, log_errored;
	uint64_t dc_key;
};

/* RETURN 0, or an errno after a refusal. */
int smx_qp_plan(struct smx_qp_plan *plan, struct ibv_context *context,
		const struct ibv_qp_init_attr_ex *attr,
		const struct mlx5dv_qp_init_attr *mlx5_attr);

static inline struct smx_vqp *smx_vqp_of(struct ibv_qp *qp)
{
	return (struct smx_vqp *)(void *)qp;
}

/* Gives back what smx_vqp_create took beyond the device's queue pair, which is gone. */
void smx_vqp_free(struct smx_vqp *vqp);

/* XRC targets can be opened again by number: ibv_qp_xrc.c counts who has one open. */
int smx_xrc_tgt_add(struct smx_vqp *vqp, struct smx_xrcd *xrcd);
struct ibv_qp *smx_xrc_tgt_open(struct ibv_context *context, struct ibv_qp_open_attr *attr);
/* One handle is to be closed. RETURN whether it was the last, so that the device's queue pair goes
 * too. */
bool smx_xrc_tgt_leave(struct smx_vqp *vqp);
void smx_xrc_tgt_rejoin(struct smx_vqp *vqp); /* that failed: the last handle stays */
/* The handle goes, and its hold on the context; with the last one everything does. */
void smx_xrc_tgt_free(struct smx_vqp *vqp);

#endif
