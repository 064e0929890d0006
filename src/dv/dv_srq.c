/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ibv_post_srq_recv. Free entries form a list through next_wqe_index from head to tail; the device walks the
 * same links behind head. tail itself is never posted, so that there is always a link to follow. */
#include "dv/dv_srq.h"

#include "base/bits.h"
#include "dv/recv_wqe.h"

#include <inttypes.h>

#define REFUSE_SRQ(srq, check, ...) \
	smx_refuse((srq)->refusals, (check), &(struct smx_where){ .is_recv = 1, .wqe_index = (uint16_t)(srq)->head }, \
		   __VA_ARGS__)

static struct smx_wqe_srq_next *entry(const struct smx_dv_srq *srq, uint32_t index)
{
	return (struct smx_wqe_srq_next *)(srq->buf + ((size_t)index << srq->stride_shift));
}

void smx_dv_srq_init(struct smx_dv_srq *srq)
{
	srq->stride_shift = log2_ceil(srq->stride_bytes);
	for (uint32_t i = 0; i < srq->wqe_count; i++)
		*entry(srq, i) = (struct smx_wqe_srq_next){ .next_wqe_index = to_be16((uint16_t)(i + 1)) };
	srq->head = 0;
	srq->tail = srq->wqe_count - 1;
	srq->counter = 0;
}

/* RETURN an errno. */
static __attribute__((cold, noinline)) int refuse(struct smx_dv_srq *srq, const struct ibv_recv_wr *wr,
						  enum smx_check why)
{
	int bad;

	if (why == SMX_CHECK_POST_RECV_SGE)
		return REFUSE_SRQ(srq, why, "SRQ 0x%" PRIx32 " wr_id 0x%" PRIx64 " %d SGEs, max_sge %" PRIu32,
				  srq->srqn, wr->wr_id, wr->num_sge, srq->max_gs);
	if (why == SMX_CHECK_POST_RQ_FULL)
		return REFUSE_SRQ(srq, why, "SRQ 0x%" PRIx32 " wr_id 0x%" PRIx64 ", capacity %" PRIu32, srq->srqn,
				  wr->wr_id, srq->wqe_count - 1);
	bad = smx_recv_bad_sge(wr);
	return REFUSE_SRQ(srq, why, "SRQ 0x%" PRIx32 " wr_id 0x%" PRIx64 " sge[%d].length %" PRIu32, srq->srqn,
			  wr->wr_id, bad, wr->sg_list[bad].length);
}

/* The scatter list. RETURN false where a length cannot be written; nothing is posted yet. */
static inline bool write_list(const struct smx_dv_srq *srq, struct smx_wqe_data *seg, const struct ibv_recv_wr *wr)
{
	const struct ibv_sge *sge = wr->sg_list;
	uint32_t lengths = 0;

	if ((uint32_t)wr->num_sge < srq->max_gs)
		smx_recv_end(seg + wr->num_sge);
	for (int left = wr->num_sge; left; left--, sge++) {
		lengths |= sge->length;
		smx_recv_put(seg++, sge);
	}
	return !(lengths & SMX_INLINE_SEG);
}

int smx_dv_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct smx_dv_srq *srq = smx_dv_srq_of(ibsrq);
	enum smx_check why = SMX_CHECK_NONE;
	uint32_t nreq = 0, head;
	int err = 0;

	smx_dv_lock(&srq->lock);
	head = srq->head;
	for (; wr; wr = wr->next, nreq++) {
		struct smx_wqe_srq_next *next = entry(srq, head);

		if ((uint32_t)wr->num_sge > srq->max_gs)	/* a negative one too */
			why = SMX_CHECK_POST_RECV_SGE;
		else if (head == srq->tail)
			why = SMX_CHECK_POST_RQ_FULL;
		else if (!write_list(srq, (struct smx_wqe_data *)(next + 1), wr))
			why = SMX_CHECK_POST_SGE_LENGTH;
		if (why) {
			*bad_wr = wr;
			err = refuse(srq, wr, why);
			break;
		}
		srq->wr_id[head] = wr->wr_id;
		head = from_be16(next->next_wqe_index);
	}
	srq->head = head;
	if (nreq) {
		srq->counter += nreq;
		be32_store_release(srq->dbrec, srq->counter);
	}
	smx_dv_unlock(&srq->lock);
	if (nreq && srq->ring)
		srq->ring(srq);
	return err;
}

void smx_dv_srq_free_wqe(struct smx_dv_srq *srq, uint16_t index)
{
	smx_dv_lock(&srq->lock);
	entry(srq, srq->tail)->next_wqe_index = to_be16(index);
	srq->tail = index;
	smx_dv_unlock(&srq->lock);
}
