/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Receive WQEs: from a queue pair's own ring, or from a shared receive queue's linked list. */
#ifndef SMX_OBJ_SRQ_H
#define SMX_OBJ_SRQ_H

#include "obj/dma.h"

enum { SMX_RECV_SGE_MAX = 64 };

struct smx_tag_list;		/* obj/tag_list.h */

struct smx_srq {
	struct smx_srq_attr attr;
	uint32_t srqn;
	uint32_t users;
	struct smx_tag_list *tags;	/* tag matching SRQ, else NULL */
	uint16_t taken;		/* WQEs taken, modulo 65536 like the doorbell record */
	uint16_t next;		/* index of the next WQE to take, from the list */
	bool limit_armed;
	bool error;
};

struct smx_rq {
	uint8_t *buf;
	uint32_t wqe_count, stride_bytes;
	void *dbrec;		/* SMX_DBREC_RCV */
	uint16_t taken;
	bool wq_signature;	/* each WQE starts with 16 bytes that are not a data segment */
	bool error;		/* the doorbell record claimed more receives than the ring holds */
};

/* A receive that was taken from its queue: its scatter list, decoded. */
struct smx_recv {
	uint16_t wqe_index;
	uint32_t sge_count;
	uint64_t total_bytes;
	struct smx_sge sge[];		/* as many as an entry of the queue has room for, smx_recv_room() */
};

/* Data segments that a receive of stride_bytes can hold. */
static inline uint32_t smx_recv_room(uint32_t stride_bytes)
{
	uint32_t segments = stride_bytes / SMX_WQE_DS;

	return segments < SMX_RECV_SGE_MAX ? segments : SMX_RECV_SGE_MAX;
}

int smx_srq_create(struct smx_dev *dev, const struct smx_srq_attr *attr, struct smx_srq **out);
int smx_srq_destroy(struct smx_dev *dev, struct smx_srq *srq);
int smx_srq_arm(struct smx_dev *dev, struct smx_srq *srq, uint32_t limit);

/* Takes the oldest posted receive. RETURN false when none is posted (RNR). Raises
 * IBV_EVENT_SRQ_LIMIT_REACHED when an armed limit is crossed. A list that leads outside the ring
 * puts the SRQ in error: IBV_EVENT_SRQ_ERR. */
bool smx_srq_take(struct smx_dev *dev, struct smx_srq *srq, struct smx_recv *out);
bool smx_rq_take(struct smx_rq *rq, struct smx_recv *out);
/* The same in two steps: peek() decodes the receive and changes nothing, and fails without a word where the queue is
 * broken; pass() takes the one that peek() has shown. */
bool smx_srq_peek(const struct smx_srq *srq, struct smx_recv *out);
bool smx_rq_peek(const struct smx_rq *rq, struct smx_recv *out);
void smx_srq_pass(struct smx_dev *dev, struct smx_srq *srq);
static inline void smx_rq_pass(struct smx_rq *rq)
{
	rq->taken++;
}
bool smx_rq_has(const struct smx_rq *rq);
bool smx_srq_has(const struct smx_srq *srq);

#endif
