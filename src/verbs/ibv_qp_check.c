/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Checks what a program asks for when it creates a queue pair.
 *
 * Every mask, flag and combination is honoured or refused with a sentence; nothing is ignored.
 * Orders and errnos follow libmlx5 and the kernel's driver where they have one. */
#include "verbs/ibv_qp_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum {
	KNOWN_MASK = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
		     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	RAW_MASK = IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE |
		   IBV_QP_INIT_ATTR_RX_HASH,
	KNOWN_DV_MASK = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC |
			MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS |
			MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS,
	RC_OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_SEND_WITH_IMM |
		 IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
		 IBV_QP_EX_WITH_BIND_MW,
	UD_OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
};

/* Creation flags that are about offloads of raw packets, signatures or flow control. */
static const struct {
	uint32_t flag;
	const char *why;
} refused_flags[] = {
	{ MLX5DV_QP_CREATE_TUNNEL_OFFLOADS,
	  "TUNNEL_OFFLOADS is for raw packet queue pairs, which are not offered" },
	{ MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC,
	  "TIR_ALLOW_SELF_LOOPBACK_UC is for raw packet queue pairs, which are not offered" },
	{ MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC,
	  "TIR_ALLOW_SELF_LOOPBACK_MC is for raw packet queue pairs, which are not offered" },
	{ MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE,
	  "PACKET_BASED_CREDIT_MODE: the device's acknowledgements carry no end-to-end credits" },
	{ MLX5DV_QP_CREATE_SIG_PIPELINING, "SIG_PIPELINING: signature offload is not offered" },
};

static bool env_is(const char *name, const char *value)
{
	const char *env = getenv(name);

	return env && !strcmp(env, value);
}

static int check_masks(const struct ibv_qp_init_attr_ex *attr, const struct mlx5dv_qp_init_attr *dv)
{
	struct smx_refusal_log *log = smx_refusals();

	if (attr->comp_mask & RAW_MASK)
		return smx_refuse(log, SMX_CHECK_QP_TYPE, NULL,
				  "comp_mask 0x%x has MAX_TSO_HEADER, IND_TABLE or RX_HASH,"
				  " which belong to raw packet queue pairs",
				  attr->comp_mask);
	if (attr->comp_mask & ~(uint32_t)KNOWN_MASK)
		return smx_refuse(log, SMX_CHECK_ATTR_MASK, NULL, "comp_mask 0x%x, known is 0x%x",
				  attr->comp_mask, KNOWN_MASK);
	if (dv && dv->comp_mask & ~(uint64_t)KNOWN_DV_MASK)
		return smx_refuse(log, SMX_CHECK_ATTR_MASK, NULL,
				  "mlx5dv comp_mask 0x%" PRIx64 ", known is 0x%x", dv->comp_mask,
				  KNOWN_DV_MASK);
	return 0;
}

static int plan_create_flags(struct smx_qp_plan *p, const struct mlx5dv_qp_init_attr *dv)
{
	enum {
		SCATTER = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
			  MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE
	};
	struct smx_refusal_log *log = smx_refusals();
	uint32_t flags = dv && dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS
				 ? dv->create_flags
				 : 0;
	uint32_t left = flags & ~(uint32_t)(SCATTER | SMX_QP_CREATE_OOO_DP);
	unsigned int i;

	for (i = 0; i < SMX_COUNT(refused_flags); i++) {
		if (left & refused_flags[i].flag)
			return smx_refuse(log, SMX_CHECK_QP_CREATE_FLAG, NULL, "%s",
					  refused_flags[i].why);
	}
	if (left)
		return smx_refuse(log, SMX_CHECK_ATTR_MASK, NULL,
				  "mlx5dv create_flags 0x%x has unknown bits 0x%x", flags, left);
	if ((flags & SCATTER) == SCATTER)
		return smx_refuse(log, SMX_CHECK_QP_SCATTER_FLAGS, NULL,
				  "create_flags 0x%x has both", flags);
	if (p->type == SMX_QP_DCT && flags & MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE)
		return smx_refuse(log, SMX_CHECK_QP_SCATTER_FLAGS, NULL,
				  "ALLOW_SCATTER_TO_CQE is about a requester,"
				  " a DCT is none");

	if (flags & SMX_QP_CREATE_OOO_DP && !p->attr->srq && p->attr->cap.max_recv_wr > SMX_OOO_MAX_RECV_WR)
		return smx_refuse(log, SMX_CHECK_QP_CAP, NULL,
				  "max_recv_wr %u with MLX5DV_QP_CREATE_OOO_DP, ooo_recv_wrs_caps allow %d",
				  p->attr->cap.max_recv_wr, SMX_OOO_MAX_RECV_WR);
	p->scatter = !env_is("MLX5_SCATTER_TO_CQE", "0");
	if (flags & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE)
		p->scatter = false;
	if (flags & MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE)
		p->scatter = p->scatter_unsignaled = true;

	if (!(p->attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) || !p->attr->create_flags)
		return 0;
	if (p->attr->create_flags != IBV_QP_CREATE_BLOCK_SELF_MCAST_LB || p->type != SMX_QP_UD)
		return smx_refuse(log, SMX_CHECK_QP_CREATE_FLAG, NULL,
				  "create_flags 0x%x; only BLOCK_SELF_MCAST_LB (0x2)"
				  " of a UD queue pair is offered",
				  p->attr->create_flags);
	p->block_self_mcast = true;
	return 0;
}

static int plan_streams(struct smx_qp_plan *p, const struct mlx5dv_qp_init_attr *dv)
{
	struct mlx5dv_dci_streams streams;

	/* A union: without the mask it may hold what the program uses for DCTs. */
	if (!(dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS))
		return 0;
	streams = dv->dc_init_attr.dci_streams;
	if (streams.log_num_concurent > SMX_DCI_LOG_STREAMS_MAX ||
	    streams.log_num_errored > SMX_DCI_LOG_ERRORED_MAX)
		return smx_refuse(smx_refusals(), SMX_CHECK_QP_STREAMS, NULL,
				  "log_num_concurent %u (at most %d),"
				  " log_num_errored %u (at most %d)",
				  streams.log_num_concurent, SMX_DCI_LOG_STREAMS_MAX,
				  streams.log_num_errored, SMX_DCI_LOG_ERRORED_MAX);
	p->has_streams = true;
	p->log_streams = streams.log_num_concurent;
	p->log_errored = streams.log_num_errored;
	return 0;
}

static int plan_dc(struct smx_qp_plan *p, const struct mlx5dv_qp_init_attr *dv)
{
	struct smx_refusal_log *log = smx_refusals();

	if (!dv || !(dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC))
		return smx_refuse(log, SMX_CHECK_QP_DC_ATTR, NULL,
				  "qp_type is IBV_QPT_DRIVER: use mlx5dv_create_qp"
				  " with MLX5DV_QP_INIT_ATTR_MASK_DC");
	if (dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCI) {
		p->type = SMX_QP_DCI;
		p->kind = SMX_DV_DCI;
		if (p->attr->cap.max_recv_wr)
			return smx_refuse(log, SMX_CHECK_QP_DC_ATTR, NULL,
					  "max_recv_wr %u: a DCI does not receive",
					  p->attr->cap.max_recv_wr);
		return plan_streams(p, dv);
	}
	if (dv->dc_init_attr.dc_type != MLX5DV_DCTYPE_DCT)
		return smx_refuse(log, SMX_CHECK_QP_DC_ATTR, NULL, "dc_type %d",
				  (int)dv->dc_init_attr.dc_type);
	p->type = SMX_QP_DCT;
	p->kind = SMX_DV_DCT;
	p->dc_key = dv->dc_init_attr.dct_access_key;
	if (p->attr->comp_mask != IBV_QP_INIT_ATTR_PD)
		return smx_refuse(log, SMX_CHECK_QP_DC_ATTR, NULL,
				  "comp_mask 0x%x, a DCT takes IBV_QP_INIT_ATTR_PD only",
				  p->attr->comp_mask);
	if (dv->comp_mask &
	    ~(uint64_t)(MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS))
		return smx_refuse(log, SMX_CHECK_QP_DC_ATTR, NULL,
				  "mlx5dv comp_mask 0x%" PRIx64 ", a DCT takes neither"
				  " send operations nor streams",
				  dv->comp_mask);
	if (!p->attr->srq)
		return smx_refuse(log, SMX_CHECK_QP_DC_ATTR, NULL,
				  "no srq: a DCT receives through a shared receive queue");
	return 0;
}

static int plan_type(struct smx_qp_plan *p, const struct mlx5dv_qp_init_attr *dv)
{
	static const struct {
		enum ibv_qp_type ibv;
		enum smx_qp_type type;
		enum smx_dv_qp_kind kind;
	} types[] = {
		{ IBV_QPT_RC, SMX_QP_RC, SMX_DV_RC },
		{ IBV_QPT_UC, SMX_QP_UC, SMX_DV_UC },
		{ IBV_QPT_UD, SMX_QP_UD, SMX_DV_UD },
		{ IBV_QPT_XRC_SEND, SMX_QP_XRC_INI, SMX_DV_XRC_INI },
		{ IBV_QPT_XRC_RECV, SMX_QP_XRC_TGT, SMX_DV_XRC_TGT },
	};
	unsigned int i;

	if (p->attr->qp_type == IBV_QPT_DRIVER)
		return plan_dc(p, dv);
	if (dv &&
	    dv->comp_mask & (MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS))
		return smx_refuse(smx_refusals(), SMX_CHECK_QP_DC_ATTR, NULL,
				  "qp_type %d with DC attributes:"
				  " a DC queue pair is of type IBV_QPT_DRIVER",
				  (int)p->attr->qp_type);
	for (i = 0; i < SMX_COUNT(types); i++) {
		if (types[i].ibv == p->attr->qp_type) {
			p->type = types[i].type;
			p->kind = types[i].kind;
			return 0;
		}
	}
	return smx_refuse(smx_refusals(), SMX_CHECK_QP_TYPE, NULL, "qp_type %d%s",
			  (int)p->attr->qp_type,
			  p->attr->qp_type == IBV_QPT_RAW_PACKET ? " (raw packet)" : "");
}

static int plan_domain(struct smx_qp_plan *p)
{
	const struct ibv_qp_init_attr_ex *attr = p->attr;
	struct smx_refusal_log *log = smx_refusals();

	if (p->type == SMX_QP_XRC_TGT) {
		if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd)
			return smx_refuse(log, SMX_CHECK_OBJECT_ARG, NULL,
					  "XRC_RECV needs an XRC domain,"
					  " comp_mask is 0x%x",
					  attr->comp_mask);
		p->xrcd = (struct smx_vxrcd *)(void *)attr->xrcd;
		return 0;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd)
		return smx_refuse(log, SMX_CHECK_OBJECT_ARG, NULL,
				  "no protection domain, comp_mask is 0x%x", attr->comp_mask);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)
		return smx_refuse(log, SMX_CHECK_OBJECT_ARG, NULL,
				  "an XRC domain belongs to XRC_RECV, qp_type is %d",
				  (int)attr->qp_type);
	if (attr->pd->context != p->context)
		return smx_refuse(log, SMX_CHECK_OBJECT_ARG, NULL,
				  "the protection domain is of another context");
	p->pd = smx_vpd_of(attr->pd);
	return 0;
}

static int plan_cqs(struct smx_qp_plan *p)
{
	struct ibv_cq *send = p->attr->send_cq, *recv = p->attr->recv_cq;
	struct smx_refusal_log *log = smx_refusals();

	if (p->type == SMX_QP_XRC_TGT)
		return 0; /* completes in the queue of the SRQ that a message names */
	if (p->type == SMX_QP_DCT)
		send = recv;
	if (p->type == SMX_QP_DCI || p->type == SMX_QP_XRC_INI)
		recv = recv ? recv : send;
	if (!send || !recv)
		return smx_refuse(log, SMX_CHECK_OBJECT_ARG, NULL, "%s is missing",
				  send ? "recv_cq" : "send_cq");
	if (send->context != p->context || recv->context != p->context)
		return smx_refuse(log, SMX_CHECK_OBJECT_ARG, NULL,
				  "a completion queue is of another context");
	p->send_cq = (struct smx_vcq *)(void *)send;
	p->recv_cq = (struct smx_vcq *)(void *)recv;
	return 0;
}

static int plan_srq(struct smx_qp_plan *p)
{
	struct smx_vsrq *srq = (struct smx_vsrq *)(void *)p->attr->srq;

	if (!srq || p->type == SMX_QP_DCI || p->type == SMX_QP_XRC_INI || p->type == SMX_QP_XRC_TGT)
		return 0;
	if (p->attr->srq->context != p->context)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "the SRQ is of another context");
	if (srq->type == IBV_SRQT_TM && p->type != SMX_QP_RC)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "SRQ 0x%x matches tags, which is offered on RC (tm_caps.flags);"
				  " qp_type is %d",
				  srq->dv.srqn, (int)p->attr->qp_type);
	if (srq->type == IBV_SRQT_XRC)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "SRQ 0x%x is of type %d; the XRC type is"
				  " named by messages, not by queue pairs",
				  srq->dv.srqn, (int)srq->type);
	p->srq = srq;
	return 0;
}

static int plan_ops(struct smx_qp_plan *p, const struct mlx5dv_qp_init_attr *dv)
{
	p->has_ex = p->attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	p->has_dv_ops = dv && dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
	p->send_ops = p->has_ex ? p->attr->send_ops_flags : 0;
	p->dv_ops = p->has_dv_ops ? dv->send_ops_flags : 0;
	if (p->type == SMX_QP_XRC_TGT && (p->has_ex || p->has_dv_ops))
		return smx_refuse(smx_refusals(), SMX_CHECK_SEND_OPS, NULL,
				  "an XRC_RECV queue pair does not send");

	/* What ibv_post_send may carry where nothing was said. */
	p->size_ops = p->has_ex		     ? p->send_ops
		      : p->type == SMX_QP_UD ? (uint64_t)UD_OPS
					     : (uint64_t)RC_OPS;
	/* The builders for DC do not bring scattered data to where it belongs, as in libmlx5. */
	if ((p->has_ex || p->has_dv_ops) && p->type == SMX_QP_DCI)
		p->scatter = p->scatter_unsignaled = false;
	p->wq_signature = getenv("MLX5_QP_SIGNATURE") != NULL;
	return 0;
}

static int plan_caps(struct smx_qp_plan *p)
{
	const struct ibv_qp_cap *cap = &p->attr->cap;
	struct ibv_device_attr limit;
	int rc;

	p->cap = *cap;
	if (p->type == SMX_QP_XRC_TGT || p->type == SMX_QP_DCT) {
		p->cap = (struct ibv_qp_cap){ 0 };
		return 0;
	}
	rc = ibv_query_device(p->context, &limit);
	if (rc)
		return rc;
	if (cap->max_send_wr > (uint32_t)limit.max_qp_wr ||
	    cap->max_recv_wr > (uint32_t)limit.max_qp_wr)
		return smx_refuse(smx_refusals(), SMX_CHECK_QP_CAP, NULL,
				  "max_send_wr %u, max_recv_wr %u, max_qp_wr is %d",
				  cap->max_send_wr, cap->max_recv_wr, limit.max_qp_wr);
	if (cap->max_send_sge > (uint32_t)limit.max_sge ||
	    cap->max_recv_sge > (uint32_t)limit.max_sge)
		return smx_refuse(smx_refusals(), SMX_CHECK_QP_CAP, NULL,
				  "max_send_sge %u, max_recv_sge %u, max_sge is %d",
				  cap->max_send_sge, cap->max_recv_sge, limit.max_sge);
	if (p->srq || p->type == SMX_QP_DCI || p->type == SMX_QP_XRC_INI) {
		p->cap.max_recv_wr = 0;
		p->cap.max_recv_sge = 0;
	}
	return 0;
}

int smx_qp_plan(struct smx_qp_plan *p, struct ibv_context *context,
		const struct ibv_qp_init_attr_ex *attr, const struct mlx5dv_qp_init_attr *mlx5_attr)
{
	int rc;

	*p = (struct smx_qp_plan){ .context = context, .attr = attr };
	rc = check_masks(attr, mlx5_attr);
	if (!rc)
		rc = plan_type(p, mlx5_attr);
	if (!rc)
		rc = plan_create_flags(p, mlx5_attr);
	if (!rc)
		rc = plan_domain(p);
	if (!rc)
		rc = plan_cqs(p);
	if (!rc)
		rc = plan_srq(p);
	if (!rc)
		rc = plan_ops(p, mlx5_attr);
	if (!rc)
		rc = plan_caps(p);
	return rc;
}
