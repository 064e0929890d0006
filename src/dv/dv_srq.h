/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A shared receive queue as its driver sees it: a linked list of free WQEs in a ring. */
#ifndef SMX_DV_SRQ_H
#define SMX_DV_SRQ_H

#include <infiniband/verbs.h>

#include "base/be.h"
#include "dv/dv_lock.h"
#include "trace/refusal.h"

struct smx_dv_tags;

struct smx_dv_srq {
	struct ibv_srq ibv;
	uint32_t srqn;
	uint8_t *buf;
	uint32_t wqe_count, stride_bytes, max_gs;
	uint32_t stride_shift;	/* the link to the next entry is waited for: a shift takes less time than a product */
	uint32_t head;		/* last entry handed to nobody yet: next to post */
	uint32_t tail;		/* last of the free list */
	uint32_t counter;	/* entries ever posted */
	uint64_t *wr_id;
	struct smx_dv_tags *tags;	/* dv_tag.h; NULL: it does not match tags */
	be32 *dbrec;
	struct smx_dv_lock lock;
	struct smx_refusal_log *refusals;
	void (*ring)(struct smx_dv_srq *srq);
};

static inline struct smx_dv_srq *smx_dv_srq_of(struct ibv_srq *srq)
{
	return (struct smx_dv_srq *)(void *)srq;
}

/* RETURN 0, or EINVAL after a refusal. Sizes for max_wr and max_sge, updated to what is granted. */
int smx_dv_srq_size(struct smx_refusal_log *log, struct ibv_srq_attr *attr, uint32_t *wqe_count,
		    uint32_t *stride_bytes);
void smx_dv_srq_init(struct smx_dv_srq *srq);	/* links all entries of buf; allocates nothing */
int smx_dv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
void smx_dv_srq_free_wqe(struct smx_dv_srq *srq, uint16_t index);	/* its completion was read */

#endif
