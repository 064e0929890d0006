/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ibv_poll_cq, arming, and what happens to a completion queue when a queue pair goes or the ring moves. */
#include "dv/dv_tag.h"

enum { POLL_FAILED = -2 };	/* as libmlx5 returns it */

static __be32 host_be32(be32 v)
{
	__be32 x;

	memcpy(&x, &v, sizeof(x));
	return x;
}

static void fill_send(const struct smx_cqe64 *cqe, struct ibv_wc *wc)
{
	wc->byte_len = 0;
	switch (from_be32(cqe->sop_drop_qpn) >> 24) {
	case SMX_OP_RDMA_WRITE_IMM:
	case SMX_OP_SEND_IMM:
		wc->wc_flags |= IBV_WC_WITH_IMM;
		break;
	case SMX_OP_RDMA_READ:
		wc->byte_len = from_be32(cqe->byte_cnt);
		break;
	case SMX_OP_ATOMIC_CS:
	case SMX_OP_ATOMIC_FA:
		wc->byte_len = 8;
		break;
	}
}

static void fill_recv(const struct smx_cqe64 *cqe, struct ibv_wc *wc)
{
	uint32_t flags = smx_cqe_flags_rqpn(cqe);

	wc->byte_len = from_be32(cqe->byte_cnt);
	switch (smx_cqe_op(cqe)) {
	case SMX_CQE_RESP_WR_IMM:
	case SMX_CQE_RESP_SEND_IMM:
		wc->wc_flags |= IBV_WC_WITH_IMM;
		wc->imm_data = host_be32(cqe->imm_inval_pkey);
		break;
	case SMX_CQE_RESP_SEND_INV:
		wc->wc_flags |= IBV_WC_WITH_INV;
		wc->invalidated_rkey = from_be32(cqe->imm_inval_pkey);
		break;
	}
	wc->slid = cqe->op_own & SMX_CQE_INLINE_32 ? 0 : from_be16(cqe->slid);
	wc->sl = (flags >> 24) & 0xf;
	wc->src_qp = flags & 0xffffff;
	wc->dlid_path_bits = cqe->op_own & SMX_CQE_INLINE_32 ? 0 : cqe->ml_path & 0x7f;
	if ((flags >> 28) & 3)
		wc->wc_flags |= IBV_WC_GRH;
	wc->pkey_index = from_be32(cqe->imm_inval_pkey) & 0xffff;
}

static void fill(struct smx_dv_cq *cq, const struct smx_cqe64 *cqe, struct ibv_wc *wc)
{
	wc->qp_num = smx_cqe_qpn(cqe);
	wc->wc_flags = cq->cur_tag_flags;
	switch (smx_cqe_op(cqe)) {
	case SMX_CQE_REQ_ERR:
	case SMX_CQE_RESP_ERR:
		wc->vendor_err = ((const struct smx_err_cqe *)cqe)->vendor_err_synd;
		return;
	case SMX_CQE_REQ:
		fill_send(cqe, wc);
		break;
	default:
		fill_recv(cqe, wc);
		break;
	}
	wc->vendor_err = 0;
	wc->opcode = (enum ibv_wc_opcode)smx_cq_wc_opcode(cq, cqe);
}

/* The caller holds the lock. */
static int poll_some(struct smx_dv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	uint32_t ci = cq->ci;
	struct smx_cqe64 *cqe;
	uint64_t wr_id;
	int n = 0;

	cq->cur_qp = NULL;
	cq->cur_srq = NULL;
	while (n < num_entries && (cqe = smx_cq_cqe(cq, cq->ci))) {
		enum smx_cq_result r = smx_cq_take(cq, cqe, &wr_id, &wc[n].status);

		if (r == SMX_CQ_UNKNOWN && n)
			break;	/* what was read first is reported first */
		if (r == SMX_CQ_DONE) {
			wc[n].wr_id = wr_id;
			fill(cq, cqe, &wc[n]);
			n++;
		}
		smx_cq_consume(cq);
		if (r == SMX_CQ_UNKNOWN) {
			n = POLL_FAILED;
			break;
		}
	}
	if (cq->ci != ci)
		smx_cq_tell_ci(cq);
	return n;
}

int smx_dv_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct smx_dv_cq *cq = smx_dv_cq_of(ibcq);
	int n;

	smx_dv_lock(&cq->lock);
	n = poll_some(cq, num_entries, wc);
	smx_dv_unlock(&cq->lock);
	if (n || num_entries <= 0 || !cq->idle || !cq->idle(cq))
		return n;
	smx_dv_lock(&cq->lock);
	n = poll_some(cq, num_entries, wc);
	smx_dv_unlock(&cq->lock);
	return n;
}

int smx_dv_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct smx_dv_cq *cq = smx_dv_cq_of(ibcq);
	uint32_t sn = __atomic_load_n(&cq->arm_sn, __ATOMIC_RELAXED) & 3;
	uint32_t word = sn << 28 | (solicited_only ? SMX_CQ_ARM_SOLICITED : 0) |
			(__atomic_load_n(&cq->ci, __ATOMIC_RELAXED) & 0xffffff);

	be32_store_release(&cq->dbrec[SMX_CQ_DBREC_ARM], word);
	if (cq->uar)
		__atomic_store_n((uint64_t *)(void *)(cq->uar + SMX_CQ_UAR_DOORBELL),
				 htobe64((uint64_t)word << 32 | cq->cqn), __ATOMIC_RELEASE);
	if (cq->arm)
		cq->arm(cq, word);
	return 0;
}

void smx_dv_cq_init_buf(void *buf, uint32_t cqe_count, uint32_t cqe_bytes)
{
	uint8_t *entry = buf;

	for (uint32_t i = 0; i < cqe_count; i++, entry += cqe_bytes) {
		struct smx_cqe64 *cqe = (struct smx_cqe64 *)(entry + cqe_bytes - sizeof(*cqe));

		cqe->op_own = SMX_CQE_INVALID << 4 | SMX_CQE_OWNER;
	}
}

static bool is_responder(const struct smx_cqe64 *cqe)
{
	uint8_t op = smx_cqe_op(cqe);

	return smx_cqe_is_tag(cqe) || (op >= SMX_CQE_RESP_WR_IMM && op <= SMX_CQE_RESP_SEND_INV) ||
	       op == SMX_CQE_RESP_ERR;
}

static bool belongs(const struct smx_cqe64 *cqe, uint32_t qpn, const struct smx_dv_srq *srq)
{
	if (qpn)	/* a matching list's are the SRQ's, whoever received the message */
		return smx_cqe_qpn(cqe) == qpn && !smx_cqe_is_tag(cqe);
	return srq && is_responder(cqe) && (from_be32(cqe->srqn_uidx) & 0xffffff) == srq->srqn;
}

static void *entry_of(const struct smx_dv_cq *cq, uint32_t i)
{
	return cq->buf + (size_t)(i & (cq->cqe_count - 1)) * cq->cqe_bytes;
}

/* Copies an older entry over a younger one that goes; the place keeps its owner bit. */
static void move_entry(const struct smx_dv_cq *cq, uint32_t to, uint32_t from)
{
	size_t op_own = cq->cqe_bytes - sizeof(struct smx_cqe64) + offsetof(struct smx_cqe64, op_own);
	uint8_t *dst = entry_of(cq, to), owner = dst[op_own] & SMX_CQE_OWNER;

	memcpy(dst, entry_of(cq, from), cq->cqe_bytes);
	dst[op_own] = (uint8_t)((dst[op_own] & ~SMX_CQE_OWNER) | owner);
}

void smx_dv_cq_clean(struct smx_dv_cq *cq, uint32_t qpn, struct smx_dv_srq *srq)
{
	uint32_t end, gone = 0;

	smx_dv_lock(&cq->lock);
	cq->cur_qp = NULL;
	cq->cur_srq = NULL;
	end = cq->ci;
	while (smx_cq_cqe(cq, end))	/* one round further on, the owner bits differ */
		end++;
	/* From the youngest down, so that what stays keeps its order. */
	while (end-- != cq->ci) {
		struct smx_cqe64 *cqe = smx_cq_cqe(cq, end);

		if (belongs(cqe, qpn, srq)) {
			if (srq && is_responder(cqe) && from_be16(cqe->wqe_counter) < srq->wqe_count)
				smx_dv_srq_free_wqe(srq, from_be16(cqe->wqe_counter));
			gone++;
		} else if (gone) {
			move_entry(cq, end + gone, end);
		}
	}
	if (gone) {
		__atomic_store_n(&cq->ci, cq->ci + gone, __ATOMIC_RELAXED);
		smx_cq_tell_ci(cq);
	}
	smx_dv_unlock(&cq->lock);
}

void smx_dv_cq_moved(struct smx_dv_cq *cq, void *buf, uint32_t cqe_count)
{
	cq->buf = buf;
	cq->cqe_count = cqe_count;
	cq->ex.cqe = (int)cqe_count - 1;
	cq->cur = NULL;
}
