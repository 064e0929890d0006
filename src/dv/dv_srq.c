/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ibv_post_srq_recv. Free entries form a list through next_wqe_index from head to tail; the device walks the
 * same links behind head. tail itself is never posted, so that there is always a link to follow. */
#include "dv/dv_srq.h"

#include "dv/recv_wqe.h"

#include <inttypes.h>

#define REFUSE_SRQ(srq, check, ...) \
	smx_refuse((srq)->refusals, (check), &(struct smx_where){ .is_recv = 1, .wqe_index = (uint16_t)(srq)->head }, \
		   __VA_ARGS__)

static struct smx_wqe_srq_next *entry(const struct smx_dv_srq *srq, uint32_t index)
{
	return (struct smx_wqe_srq_next *)(srq->buf + (size_t)index * srq->stride_bytes);
}

void smx_dv_srq_init(struct smx_dv_srq *srq)
{
	for (uint32_t i = 0; i < srq->wqe_count; i++)
		*entry(srq, i) = (struct smx_wqe_srq_next){ .next_wqe_index = to_be16((uint16_t)(i + 1)) };
	srq->head = 0;
	srq->tail = srq->wqe_count - 1;
	srq->counter = 0;
}

static int check(struct smx_dv_srq *srq, const struct ibv_recv_wr *wr)
{
	int bad;

	if ((uint32_t)wr->num_sge > srq->max_gs)	/* a negative one too */
		return REFUSE_SRQ(srq, SMX_CHECK_POST_RECV_SGE,
				  "SRQ 0x%" PRIx32 " wr_id 0x%" PRIx64 " %d SGEs, max_sge %" PRIu32, srq->srqn,
				  wr->wr_id, wr->num_sge, srq->max_gs);
	bad = smx_recv_bad_sge(wr);
	if (bad >= 0)
		return REFUSE_SRQ(srq, SMX_CHECK_POST_SGE_LENGTH,
				  "SRQ 0x%" PRIx32 " wr_id 0x%" PRIx64 " sge[%d].length %" PRIu32, srq->srqn,
				  wr->wr_id, bad, wr->sg_list[bad].length);
	if (srq->head == srq->tail)
		return REFUSE_SRQ(srq, SMX_CHECK_POST_RQ_FULL,
				  "SRQ 0x%" PRIx32 " wr_id 0x%" PRIx64 ", capacity %" PRIu32, srq->srqn, wr->wr_id,
				  srq->wqe_count - 1);
	return 0;
}

static void write_wqe(struct smx_dv_srq *srq, const struct ibv_recv_wr *wr)
{
	struct smx_wqe_srq_next *next = entry(srq, srq->head);
	struct smx_wqe_data *seg = (struct smx_wqe_data *)(next + 1);

	for (int i = 0; i < wr->num_sge; i++)
		smx_recv_put(&seg[i], &wr->sg_list[i]);
	if ((uint32_t)wr->num_sge < srq->max_gs)
		smx_recv_end(&seg[wr->num_sge]);
	srq->wr_id[srq->head] = wr->wr_id;
	srq->head = from_be16(next->next_wqe_index);
}

int smx_dv_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct smx_dv_srq *srq = smx_dv_srq_of(ibsrq);
	uint32_t nreq = 0;
	int err = 0;

	smx_dv_lock(&srq->lock);
	for (; wr; wr = wr->next, nreq++) {
		err = check(srq, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
		write_wqe(srq, wr);
	}
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
