/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ibv_post_recv: the receive queue of a queue pair that has its own. */
#include "dv/dv_qp.h"

#include "dv/recv_wqe.h"

#include <inttypes.h>

/* With MLX5_QP_SIGNATURE each receive begins with a segment of which one byte is used. */
enum { SIG_DS = 1, SIG_BYTE = 4 };

#define REFUSE_RECV(qp, check, ...)								\
	smx_refuse((qp)->refusals, (check),							\
		   &(struct smx_where){ .qpn = (qp)->qpn, .cookie = (qp), .is_recv = 1,		\
					.wqe_index = (uint16_t)(qp)->rq.head }, __VA_ARGS__)

/* How many more receives fit behind head. */
static inline uint32_t room_of(const struct smx_dv_rq *rq)
{
	return rq->wqe_count - (rq->head - __atomic_load_n(&rq->tail, __ATOMIC_ACQUIRE));
}

static inline bool is_reset(const struct smx_dv_qp *qp)
{
	return __atomic_load_n(&qp->ex.qp_base.state, __ATOMIC_RELAXED) == IBV_QPS_RESET;
}

/* used: receives outstanding before this one. RETURN an errno. */
static __attribute__((cold, noinline)) int refuse(struct smx_dv_qp *qp, const struct ibv_recv_wr *wr,
						  enum smx_check why, uint32_t used)
{
	const struct smx_dv_rq *rq = &qp->rq;
	int bad;

	if (why == SMX_CHECK_POST_RQ_FULL)
		return REFUSE_RECV(qp, why, "wr_id 0x%" PRIx64 ": outstanding %" PRIu32 ", capacity %" PRIu32 "%s",
				   wr->wr_id, used, rq->wqe_count,
				   qp->srq ? "; the queue pair receives from an SRQ" : "");
	if (why == SMX_CHECK_POST_RECV_STATE)
		return REFUSE_RECV(qp, why, "wr_id 0x%" PRIx64 ", state RESET", wr->wr_id);
	if (why == SMX_CHECK_POST_RECV_SGE)
		return REFUSE_RECV(qp, why, "wr_id 0x%" PRIx64 " %d SGEs, max_recv_sge %" PRIu32, wr->wr_id,
				   wr->num_sge, rq->max_gs);
	bad = smx_recv_bad_sge(wr);
	return REFUSE_RECV(qp, why, "wr_id 0x%" PRIx64 " sge[%d].length %" PRIu32, wr->wr_id, bad,
			   wr->sg_list[bad].length);
}

static uint8_t xor_bytes(const void *bytes, size_t n)
{
	const uint8_t *b = bytes;
	uint8_t x = 0;

	while (n--)
		x ^= *b++;
	return x;
}

/* The index is that of the list's first receive, as libmlx5 has it. */
static void sign(const struct smx_dv_qp *qp, uint8_t *wqe, int num_sge)
{
	uint16_t index16 = (uint16_t)qp->rq.head;

	wqe[SIG_BYTE] = (uint8_t)~(xor_bytes(wqe, (size_t)(num_sge + SIG_DS) * SMX_WQE_DS) ^
				   xor_bytes(&qp->qpn, sizeof(qp->qpn)) ^ xor_bytes(&index16, sizeof(index16)));
}

/* RETURN false where a length cannot be written; the WQE has not been posted. */
static inline bool write_wqe(struct smx_dv_qp *qp, const struct ibv_recv_wr *wr, uint32_t index)
{
	struct smx_dv_rq *rq = &qp->rq;
	uint32_t slot = index & (rq->wqe_count - 1), lengths = 0;
	uint8_t *wqe = rq->buf + (size_t)slot * rq->stride_bytes;
	struct smx_wqe_data *seg = (struct smx_wqe_data *)wqe, *seg_end;
	const struct ibv_sge *sge = wr->sg_list;
	/* As a number: an empty list may be NULL, to which nothing may be added. */
	uintptr_t sge_end = (uintptr_t)sge + (size_t)wr->num_sge * sizeof(*sge);

	if (qp->wq_sig) {
		memset(wqe, 0, rq->stride_bytes);
		seg += SIG_DS;
	}
	seg_end = seg + rq->max_gs;
	for (; (uintptr_t)sge < sge_end; sge++) {
		lengths |= sge->length;
		if (sge->length)
			smx_recv_put(seg++, sge);
	}
	if (lengths & SMX_INLINE_SEG)
		return false;
	if (seg < seg_end)
		smx_recv_end(seg);
	if (qp->wq_sig)
		sign(qp, wqe, wr->num_sge);
	rq->wr_id[slot] = wr->wr_id;
	return true;
}

int smx_dv_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct smx_dv_qp *qp = smx_dv_qp_of(ibqp);
	struct smx_dv_rq *rq = &qp->rq;
	enum smx_check why = SMX_CHECK_NONE;
	uint32_t nreq = 0, room;
	bool reset;
	int err = 0;

	smx_dv_lock(&rq->lock);
	reset = is_reset(qp);
	room = room_of(rq);
	for (; wr; wr = wr->next, nreq++) {
		if (nreq >= room)
			room = room_of(rq);	/* somebody may have polled */
		if (nreq >= room)
			why = SMX_CHECK_POST_RQ_FULL;
		else if (reset)
			why = SMX_CHECK_POST_RECV_STATE;
		else if ((uint32_t)wr->num_sge > rq->max_gs)	/* a negative one too */
			why = SMX_CHECK_POST_RECV_SGE;
		else if (!write_wqe(qp, wr, rq->head + nreq))
			why = SMX_CHECK_POST_SGE_LENGTH;
		if (why) {
			*bad_wr = wr;
			err = refuse(qp, wr, why, rq->wqe_count - room + nreq);
			break;
		}
	}
	if (nreq) {
		rq->head += nreq;
		be32_store_release(&qp->dbrec[SMX_DBREC_RCV], rq->head & 0xffff);
	}
	smx_dv_unlock(&rq->lock);
	if (nreq && qp->ring_rq)
		qp->ring_rq(qp);
	return err;
}
