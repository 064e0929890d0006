/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From requested capacities to the sizes of rings.
 *
 * A send queue is sized so that any max_send_wr requests of the longest kind fit; the slack of rounding is
 * given to the program as more requests and more inline data. */
#include "dv/dv_qp.h"
#include "dv/dv_srq.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>

enum {
	SQ_WQE_BYTES_MAX = 1024,	/* as the device reports (max_sq_desc_sz) */
	SQ_BB_MAX = 32768,
	RQ_WQE_BYTES_MAX = 512,
	RQ_WQE_MAX = 32768,
	SRQ_WR_MAX = 32767,		/* one entry of the ring stays with the driver */
	SRQ_SGE_MAX = 31,
	SRQ_STRIDE_MIN = 32,
	CTRL_BYTES = SMX_WQE_DS,
	RDMA_BYTES = CTRL_BYTES + SMX_WQE_DS,
	ATOMIC_BYTES = RDMA_BYTES + SMX_WQE_DS,
	UMR_BYTES = 3 * SMX_WQE_BB,
};

#define OPS_RDMA (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ)
#define OPS_ATOMIC (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
#define OPS_WINDOW (IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
#define DV_OPS_UMR (MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST | \
		    MLX5DV_QP_EX_WITH_MKEY_CONFIGURE)

/* Bytes of the longest request before its data. */
static uint32_t overhead(enum smx_dv_qp_kind kind, uint64_t send_ops, uint64_t dv_ops)
{
	uint32_t bytes = CTRL_BYTES;

	if (send_ops & OPS_RDMA)
		bytes = RDMA_BYTES;
	if (send_ops & OPS_ATOMIC)
		bytes = ATOMIC_BYTES;
	if (send_ops & OPS_WINDOW || dv_ops & DV_OPS_UMR)
		bytes = UMR_BYTES;
	if (kind == SMX_DV_UD || kind == SMX_DV_DCI)
		bytes += sizeof(struct smx_wqe_av);
	if (kind == SMX_DV_XRC_INI)
		bytes += sizeof(struct smx_wqe_xrc);
	return bytes;
}

static int refuse_cap(struct smx_refusal_log *log, const char *name, uint64_t value, uint64_t max)
{
	return smx_refuse(log, SMX_CHECK_QP_CAP, NULL, "%s %" PRIu64 ", at most %" PRIu64 " here", name, value, max);
}

static int size_sq(struct smx_refusal_log *log, uint32_t head, struct ibv_qp_cap *cap,
		   struct smx_dv_qp_sizes *out)
{
	uint64_t ds_bytes_max = SMX_WQE_DS_MAX * SMX_WQE_DS;
	uint64_t gather = head + (uint64_t)cap->max_send_sge * SMX_WQE_DS, inl = head, wqe, ring;

	if (cap->max_inline_data)
		inl += align_up(sizeof(struct smx_wqe_inline) + (uint64_t)cap->max_inline_data, SMX_WQE_DS);
	if (gather > SQ_WQE_BYTES_MAX)
		return refuse_cap(log, "max_send_sge", cap->max_send_sge, (ds_bytes_max - head) / SMX_WQE_DS);
	if (inl > SQ_WQE_BYTES_MAX)
		return refuse_cap(log, "max_inline_data", cap->max_inline_data,
				  ds_bytes_max - head - sizeof(struct smx_wqe_inline));
	if (gather > ds_bytes_max || inl > ds_bytes_max)
		return smx_refuse(log, SMX_CHECK_SQ_DS, NULL, "max_send_sge %" PRIu32 ", max_inline_data %" PRIu32
				  ": %" PRIu64 " segments", cap->max_send_sge, cap->max_inline_data,
				  (gather > inl ? gather : inl) / SMX_WQE_DS);
	wqe = align_up(gather > inl ? gather : inl, SMX_WQE_BB);
	ring = pow2_ceil(cap->max_send_wr * wqe);
	if (ring / SMX_WQE_BB > SQ_BB_MAX)
		return refuse_cap(log, "max_send_wr", cap->max_send_wr, SQ_BB_MAX * (uint64_t)SMX_WQE_BB / wqe);
	out->sq_bb_count = (uint32_t)(ring / SMX_WQE_BB);
	out->sq_max_post = (uint32_t)(ring / wqe);
	out->sq_max_gs = cap->max_send_sge;
	if (wqe > ds_bytes_max)
		wqe = ds_bytes_max;
	out->sq_max_inline = wqe < head + sizeof(struct smx_wqe_inline) ? 0 :
			     (uint32_t)(wqe - head - sizeof(struct smx_wqe_inline));
	cap->max_send_wr = out->sq_max_post;
	cap->max_inline_data = out->sq_max_inline;
	return 0;
}

static int size_rq(struct smx_refusal_log *log, bool wq_sig, struct ibv_qp_cap *cap, struct smx_dv_qp_sizes *out)
{
	uint64_t sig = wq_sig ? SMX_WQE_DS : 0, sges = cap->max_recv_sge ? cap->max_recv_sge : 1;
	uint64_t wqe = sig + sges * SMX_WQE_DS, count;

	if (wqe > RQ_WQE_BYTES_MAX)
		return refuse_cap(log, "max_recv_sge", cap->max_recv_sge, (RQ_WQE_BYTES_MAX - sig) / SMX_WQE_DS);
	if (cap->max_recv_wr > RQ_WQE_MAX)
		return refuse_cap(log, "max_recv_wr", cap->max_recv_wr, RQ_WQE_MAX);
	wqe = pow2_ceil(wqe);
	count = pow2_ceil(cap->max_recv_wr);
	if (count * wqe < SMX_WQE_BB)	/* the send queue behind it starts on a block */
		count = SMX_WQE_BB / wqe;
	out->rq_wqe_count = (uint32_t)count;
	out->rq_stride_bytes = (uint32_t)wqe;
	out->rq_max_gs = (uint32_t)((wqe - sig) / SMX_WQE_DS);
	cap->max_recv_wr = out->rq_wqe_count;
	cap->max_recv_sge = out->rq_max_gs;
	return 0;
}

int smx_dv_qp_size(struct smx_refusal_log *log, enum smx_dv_qp_kind kind, uint64_t send_ops, uint64_t dv_ops,
		   bool has_srq, bool wq_sig, struct ibv_qp_cap *cap, struct smx_dv_qp_sizes *out)
{
	bool target = kind == SMX_DV_XRC_TGT || kind == SMX_DV_DCT;
	struct ibv_qp_cap granted = *cap;
	int err;

	*out = (struct smx_dv_qp_sizes){ 0 };
	if (granted.max_send_wr && !target) {
		err = size_sq(log, overhead(kind, send_ops, dv_ops), &granted, out);
		if (err)
			return err;
	} else {
		granted.max_send_wr = granted.max_send_sge = granted.max_inline_data = 0;
	}
	if (granted.max_recv_wr && !has_srq && !target && kind != SMX_DV_XRC_INI && kind != SMX_DV_DCI) {
		err = size_rq(log, wq_sig, &granted, out);
		if (err)
			return err;
	} else {
		granted.max_recv_wr = granted.max_recv_sge = 0;
	}
	out->rq_offset = 0;
	out->sq_offset = (uint64_t)out->rq_wqe_count * out->rq_stride_bytes;
	out->total_bytes = out->sq_offset + (uint64_t)out->sq_bb_count * SMX_WQE_BB;
	*cap = granted;
	return 0;
}

int smx_dv_srq_size(struct smx_refusal_log *log, struct ibv_srq_attr *attr, uint32_t *wqe_count,
		    uint32_t *stride_bytes)
{
	uint64_t stride;

	if (attr->max_wr > SRQ_WR_MAX || attr->max_sge > SRQ_SGE_MAX)
		return smx_refuse(log, SMX_CHECK_QP_CAP, NULL, "SRQ max_wr %" PRIu32 " (up to %d), max_sge %" PRIu32
				  " (up to %d)", attr->max_wr, SRQ_WR_MAX, attr->max_sge, SRQ_SGE_MAX);
	stride = sizeof(struct smx_wqe_srq_next) + (uint64_t)attr->max_sge * SMX_WQE_DS;
	stride = pow2_ceil(stride < SRQ_STRIDE_MIN ? SRQ_STRIDE_MIN : stride);
	*stride_bytes = (uint32_t)stride;
	*wqe_count = (uint32_t)pow2_ceil(attr->max_wr ? attr->max_wr + 1ull : 2);
	attr->max_wr = *wqe_count - 1;
	attr->max_sge = (uint32_t)((stride - sizeof(struct smx_wqe_srq_next)) / SMX_WQE_DS);
	return 0;
}
