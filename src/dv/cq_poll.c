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

static inline void fill_sent(const struct smx_dv_cq *cq, const struct smx_cqe64 *cqe, uint64_t end, struct ibv_wc *wc)
{
	struct smx_sent_op op = smx_sent_ops[smx_cqe_end_wqe_op(end)];

	wc->wc_flags = op.wc_flags;
	wc->byte_len = op.bytes == SMX_SENT_COUNTED ? from_be32(cqe->byte_cnt) : op.bytes;
	wc->vendor_err = 0;
	wc->opcode = (enum ibv_wc_opcode)smx_cq_sent_opcode(cq, op);
}

static inline void fill_recv(const struct smx_dv_cq *cq, const struct smx_cqe64 *cqe, uint64_t end, struct ibv_wc *wc)
{
	bool overlaid = end & SMX_CQE_INLINE_32;	/* received data lies there */
	uint32_t rqpn = overlaid ? 0 : from_be32(cqe->flags_rqpn), flags = cq->cur_tag_flags;

	switch (smx_cqe_end_op(end)) {
	case SMX_CQE_RESP_WR_IMM:
	case SMX_CQE_RESP_SEND_IMM:
		flags |= IBV_WC_WITH_IMM;
		wc->imm_data = host_be32(cqe->imm_inval_pkey);
		break;
	case SMX_CQE_RESP_SEND_INV:
		flags |= IBV_WC_WITH_INV;
		wc->invalidated_rkey = from_be32(cqe->imm_inval_pkey);
		break;
	}
	wc->wc_flags = flags | ((rqpn >> 28) & 3 ? IBV_WC_GRH : 0);
	wc->byte_len = from_be32(cqe->byte_cnt);
	wc->slid = overlaid ? 0 : from_be16(cqe->slid);
	wc->sl = (rqpn >> 24) & 0xf;
	wc->src_qp = rqpn & 0xffffff;
	wc->dlid_path_bits = overlaid ? 0 : cqe->ml_path & 0x7f;
	wc->pkey_index = from_be32(cqe->imm_inval_pkey) & 0xffff;
	wc->vendor_err = 0;
}

SMX_INLINE void fill_plain(const struct smx_dv_cq *cq, const struct smx_cqe64 *cqe, uint64_t end, struct ibv_wc *wc)
{
	uint8_t op = smx_cqe_end_op(end);

	wc->status = IBV_WC_SUCCESS;
	wc->qp_num = smx_cqe_end_qpn(end);
	if (op == SMX_CQE_REQ) {
		fill_sent(cq, cqe, end, wc);
	} else {
		fill_recv(cq, cqe, end, wc);
		wc->opcode = op == SMX_CQE_RESP_WR_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	}
}

static void fill_other(const struct smx_dv_cq *cq, const struct smx_cqe64 *cqe, uint64_t end, struct ibv_wc *wc)
{
	wc->qp_num = smx_cqe_end_qpn(end);
	if (smx_cqe_is_error(cqe->op_own)) {
		wc->wc_flags = cq->cur_tag_flags;
		wc->vendor_err = ((const struct smx_err_cqe *)cqe)->vendor_err_synd;
	} else if (smx_cqe_end_op(end) == SMX_CQE_REQ) {
		fill_sent(cq, cqe, end, wc);
	} else {
		fill_recv(cq, cqe, end, wc);
		wc->opcode = (enum ibv_wc_opcode)smx_cq_wc_opcode(cq, cqe);
	}
}

/* The consumer index is ci from now on. RETURN n. */
static inline int leave(struct smx_dv_cq *cq, uint32_t ci, int n)
{
	__atomic_store_n(&cq->ci, ci, __ATOMIC_RELAXED);
	smx_cq_tell_ci(cq, ci);
	smx_dv_unlock(&cq->lock);
	return n;
}

/* CQEs of any kind, from position ci on, when n completions have been read. */
static __attribute__((noinline)) int poll_any(struct smx_dv_cq *cq, int num_entries, struct ibv_wc *wc, int n,
					      uint32_t ci)
{
	for (; n < num_entries; ci++) {
		struct smx_cqe64 *cqe = smx_cq_entry(cq, ci);
		uint64_t end = smx_cqe_load_end(cqe);
		enum smx_cq_result r;

		if (!smx_cq_has(cq, ci, end))
			break;
		if (smx_cq_take_plain(cq, cqe, end, &wc[n].wr_id)) {
			fill_plain(cq, cqe, end, &wc[n++]);
			continue;
		}
		r = smx_cq_take_other(cq, cqe, &wc[n].wr_id, &wc[n].status);
		if (r == SMX_CQ_UNKNOWN)	/* what was read first is reported first */
			return n ? leave(cq, ci, n) : leave(cq, ci + 1, POLL_FAILED);
		if (r == SMX_CQ_DONE)
			fill_other(cq, cqe, end, &wc[n++]);
	}
	return leave(cq, ci, n);
}

static __attribute__((noinline)) int poll_again(struct smx_dv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	smx_dv_lock(&cq->lock);
	return poll_any(cq, num_entries, wc, 0, cq->ci);
}

/* Nothing was there. */
static __attribute__((noinline)) int poll_empty(struct smx_dv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	if (num_entries <= 0 || !cq->idle || !cq->idle(cq))
		return 0;
	return poll_again(cq, num_entries, wc);
}

/* From the start. The caller holds the lock. */
static __attribute__((noinline)) int poll_locked(struct smx_dv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	int n = poll_any(cq, num_entries, wc, 0, cq->ci);

	return n ? n : poll_empty(cq, num_entries, wc);
}

static __attribute__((noinline)) int poll_waiting(struct smx_dv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	smx_dv_lock(&cq->lock);
	return poll_locked(cq, num_entries, wc);
}

/* One plain completion takes no more than this: it saves no registers, as the functions of wqe_build.h, for all else is
 * done by functions that it calls last. */
int smx_dv_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct smx_dv_cq *cq = smx_dv_cq_of(ibcq);
	uint32_t ci;
	struct smx_cqe64 *cqe;
	uint64_t end;

	if (SMX_SELDOM(!smx_dv_lock_free(&cq->lock)))
		return poll_waiting(cq, num_entries, wc);
	ci = cq->ci;
	cqe = smx_cq_entry(cq, ci);
	end = smx_cqe_load_end(cqe);
	if (num_entries <= 0 || !smx_cq_is_of_round(cq, ci, end)) {
		smx_dv_unlock(&cq->lock);
		return poll_empty(cq, num_entries, wc);
	}
	if (!smx_cq_take_plain(cq, cqe, end, &wc->wr_id))
		return poll_locked(cq, num_entries, wc);
	fill_plain(cq, cqe, end, wc);
	ci++;
	if (num_entries > 1 && smx_cq_has(cq, ci, smx_cqe_load_end(smx_cq_entry(cq, ci))))
		return poll_any(cq, num_entries, wc, 1, ci);
	return leave(cq, ci, 1);
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
	end = cq->ci;
	/* One round further on, the owner bits differ. */
	while (smx_cq_has(cq, end, smx_cqe_load_end(smx_cq_entry(cq, end))))
		end++;
	/* From the youngest down, so that what stays keeps its order. */
	while (end-- != cq->ci) {
		const struct smx_cqe64 *cqe = smx_cq_entry(cq, end);

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
		smx_cq_tell_ci(cq, cq->ci);
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
