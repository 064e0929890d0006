/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the request that a CQE completes, and frees its place in the queue. */
#include "dv/dv_tag.h"

const struct smx_sent_op smx_sent_ops[256] = {
	[SMX_OP_NOP] = { .opcode = SMX_SENT_BY_SLOT },
	[SMX_OP_UMR] = { .opcode = SMX_SENT_BY_SLOT },
	[SMX_OP_SET_PSV] = { .opcode = SMX_SENT_BY_SLOT },
	[SMX_OP_MMO] = { .opcode = SMX_SENT_BY_SLOT },
	[SMX_OP_RDMA_WRITE] = { .opcode = IBV_WC_RDMA_WRITE },
	[SMX_OP_RDMA_WRITE_IMM] = { .opcode = IBV_WC_RDMA_WRITE, .wc_flags = IBV_WC_WITH_IMM },
	[SMX_OP_SEND_IMM] = { .opcode = IBV_WC_SEND, .wc_flags = IBV_WC_WITH_IMM },
	[SMX_OP_RDMA_READ] = { .opcode = IBV_WC_RDMA_READ, .bytes = SMX_SENT_COUNTED },
	[SMX_OP_ATOMIC_CS] = { .opcode = IBV_WC_COMP_SWAP, .bytes = 8 },
	[SMX_OP_ATOMIC_FA] = { .opcode = IBV_WC_FETCH_ADD, .bytes = 8 },
	[SMX_OP_TSO] = { .opcode = IBV_WC_TSO },
	/* all others: IBV_WC_SEND, which is 0 */
};

static enum ibv_wc_status status_of(const struct smx_err_cqe *cqe)
{
	static const uint8_t status[] = {
		[SMX_SYND_LOCAL_LENGTH] = IBV_WC_LOC_LEN_ERR,
		[SMX_SYND_LOCAL_QP_OP] = IBV_WC_LOC_QP_OP_ERR,
		[SMX_SYND_LOCAL_PROT] = IBV_WC_LOC_PROT_ERR,
		[SMX_SYND_WR_FLUSH] = IBV_WC_WR_FLUSH_ERR,
		[SMX_SYND_MW_BIND] = IBV_WC_MW_BIND_ERR,
		[SMX_SYND_BAD_RESP] = IBV_WC_BAD_RESP_ERR,
		[SMX_SYND_LOCAL_ACCESS] = IBV_WC_LOC_ACCESS_ERR,
		[SMX_SYND_REMOTE_INVAL_REQ] = IBV_WC_REM_INV_REQ_ERR,
		[SMX_SYND_REMOTE_ACCESS] = IBV_WC_REM_ACCESS_ERR,
		[SMX_SYND_REMOTE_OP] = IBV_WC_REM_OP_ERR,
		[SMX_SYND_TRANSPORT_RETRY] = IBV_WC_RETRY_EXC_ERR,
		[SMX_SYND_RNR_RETRY] = IBV_WC_RNR_RETRY_EXC_ERR,
		[SMX_SYND_REMOTE_ABORTED] = IBV_WC_REM_ABORT_ERR,
	};

	if (cqe->syndrome >= sizeof(status) || !status[cqe->syndrome])
		return IBV_WC_GENERAL_ERR;
	return status[cqe->syndrome];
}

/* A stream's requests complete in order, streams pass each other: this WQE and its stream's before it are
 * done; what can be freed is the run of done ones from the oldest on. */
static void free_of_stream(struct smx_dv_sq *sq, uint16_t wqe_counter)
{
	const struct smx_wqe_ctrl *completed = smx_sq_seg(sq, wqe_counter, 0), *ctrl;
	uint16_t stream = from_be16(completed->dci_stream);
	uint32_t at = sq->tail_bb, tail = sq->tail;
	struct smx_dv_slot *slot;

	for (uint32_t n = 0; n < sq->max_post; n++, at += smx_cq_blocks(sq, at)) {
		ctrl = smx_sq_seg(sq, at, 0);
		if (from_be16(ctrl->dci_stream) == stream)
			__atomic_store_n(&smx_sq_slot(sq, at)->done, true, __ATOMIC_RELAXED);
		if ((uint16_t)at == wqe_counter)
			break;
	}
	at = sq->tail_bb;
	for (;;) {
		slot = smx_sq_slot(sq, at);
		if (!__atomic_load_n(&slot->done, __ATOMIC_RELAXED))
			break;	/* also the slot behind the newest: done is cleared when it is freed */
		__atomic_store_n(&slot->done, false, __ATOMIC_RELAXED);
		at += smx_cq_blocks(sq, at);
		tail++;
	}
	__atomic_store_n(&sq->tail_bb, at, __ATOMIC_RELEASE);
	__atomic_store_n(&sq->tail, tail, __ATOMIC_RELEASE);
}

static struct smx_dv_qp *find_qp(const struct smx_dv_cq *cq, const struct smx_cqe64 *cqe)
{
	return smx_dv_table_get(cq->qps, smx_cqe_qpn(cqe));
}

static enum smx_cq_result take_send(struct smx_dv_cq *cq, const struct smx_cqe64 *cqe, bool error,
				    uint64_t *wr_id, enum ibv_wc_status *status)
{
	struct smx_dv_qp *qp = find_qp(cq, cqe);
	uint16_t counter = from_be16(cqe->wqe_counter);
	struct smx_dv_slot *slot;

	if (!qp || !qp->sq.slot)
		return SMX_CQ_UNKNOWN;
	slot = smx_sq_slot(&qp->sq, counter);
	*wr_id = slot->wr_id;
	cq->cur_wc_opcode = slot->wr_data;
	if (!error)
		*status = smx_cqe_is_inline(cqe) ? smx_cq_scatter_send(cqe, qp) : IBV_WC_SUCCESS;
	if (!qp->has_streams)
		smx_cq_free_in_order(&qp->sq, counter, slot);
	else if (slot->head - qp->sq.tail < qp->sq.max_post)
		free_of_stream(&qp->sq, counter);
	return SMX_CQ_DONE;
}

static struct smx_dv_srq *find_srq(const struct smx_dv_cq *cq, const struct smx_cqe64 *cqe)
{
	return smx_dv_table_get(cq->srqs, from_be32(cqe->srqn_uidx) & 0xffffff);
}

static enum smx_cq_result take_srq(struct smx_dv_srq *srq, const struct smx_cqe64 *cqe, bool error,
				   uint64_t *wr_id, enum ibv_wc_status *status)
{
	uint16_t index = from_be16(cqe->wqe_counter);

	if (!srq || index >= srq->wqe_count)
		return SMX_CQ_UNKNOWN;
	*wr_id = srq->wr_id[index];
	if (!error)
		*status = smx_cqe_is_inline(cqe) ?
			  smx_cq_scatter_recv(cqe, srq->buf + (size_t)index * srq->stride_bytes,
					      sizeof(struct smx_wqe_srq_next), srq->stride_bytes) :
			  IBV_WC_SUCCESS;
	smx_dv_srq_free_wqe(srq, index);
	return SMX_CQ_DONE;
}

/* A queue pair with its own receive queue, or else the SRQ that the CQE names: the queue pair may have been
 * made in another context (XRC targets), or be one of many that feed from the SRQ. */
static enum smx_cq_result take_recv(struct smx_dv_cq *cq, const struct smx_cqe64 *cqe, bool error,
				    uint64_t *wr_id, enum ibv_wc_status *status)
{
	struct smx_dv_qp *qp = find_qp(cq, cqe);
	struct smx_dv_rq *rq;
	uint32_t index;

	if (!qp || !qp->rq.wqe_count)
		return take_srq(qp && qp->srq ? qp->srq : find_srq(cq, cqe), cqe, error, wr_id, status);
	rq = &qp->rq;
	index = from_be16(cqe->wqe_counter) & (rq->wqe_count - 1);
	*wr_id = rq->wr_id[index];
	if (!error)
		*status = smx_cqe_is_inline(cqe) ?
			  smx_cq_scatter_recv(cqe, rq->buf + (size_t)index * rq->stride_bytes,
					      qp->wq_sig ? SMX_WQE_DS : 0, rq->stride_bytes) :
			  IBV_WC_SUCCESS;
	__atomic_store_n(&rq->tail, rq->tail + 1, __ATOMIC_RELEASE);
	return SMX_CQ_DONE;
}

enum smx_cq_result smx_cq_take_other(struct smx_dv_cq *cq, const struct smx_cqe64 *cqe, uint64_t *wr_id,
				     enum ibv_wc_status *status)
{
	cq->cur_tag_flags = 0;
	if (smx_cqe_is_tag(cqe))
		return smx_cq_take_tag(cq, find_srq(cq, cqe), cqe, wr_id, status);
	switch (smx_cqe_op(cqe)) {
	case SMX_CQE_REQ:
		return take_send(cq, cqe, false, wr_id, status);
	case SMX_CQE_RESP_WR_IMM:
	case SMX_CQE_RESP_SEND:
	case SMX_CQE_RESP_SEND_IMM:
	case SMX_CQE_RESP_SEND_INV:
		return take_recv(cq, cqe, false, wr_id, status);
	case SMX_CQE_REQ_ERR:
		*status = status_of((const struct smx_err_cqe *)cqe);
		return take_send(cq, cqe, true, wr_id, status);
	case SMX_CQE_RESP_ERR:
		*status = status_of((const struct smx_err_cqe *)cqe);
		return take_recv(cq, cqe, true, wr_id, status);
	default:
		return SMX_CQ_SKIP;
	}
}

uint32_t smx_cq_wc_opcode(const struct smx_dv_cq *cq, const struct smx_cqe64 *cqe)
{
	if (SMX_SELDOM(cqe->app == SMX_CQE_APP_TAG) && smx_cqe_is_tag(cqe))
		return smx_cq_tag_opcode(cqe);
	switch (smx_cqe_op(cqe)) {
	case SMX_CQE_REQ:
		return smx_cq_sent_opcode(cq, smx_sent_ops[from_be32(cqe->sop_drop_qpn) >> 24]);
	case SMX_CQE_RESP_WR_IMM:
		return IBV_WC_RECV_RDMA_WITH_IMM;
	case SMX_CQE_RESP_SEND:
	case SMX_CQE_RESP_SEND_IMM:
	case SMX_CQE_RESP_SEND_INV:
		return IBV_WC_RECV;
	default:
		return 0;	/* an error: the opcode means nothing */
	}
}
