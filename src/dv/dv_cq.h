/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading completion queues: ibv_poll_cq and the extended poll.
 *
 * A CQE names a queue pair or SRQ by number; the context's tables lead to the driver's objects. */
#ifndef SMX_DV_CQ_H
#define SMX_DV_CQ_H

#include <infiniband/verbs.h>

#include "dv/dv_lock.h"
#include "dv/dv_qp.h"
#include "dv/dv_srq.h"
#include "dv/dv_table.h"
#include "hw/cqe.h"
#include "hw/tag.h"

struct smx_dv_cq {
	struct ibv_cq_ex ex;		/* first: an ibv_cq pointer is also this */
	uint32_t cqn;
	uint8_t *buf;
	uint32_t cqe_count;		/* power of two */
	uint32_t cqe_bytes;		/* 64 or 128 */
	uint32_t ci;			/* CQEs ever consumed */
	uint32_t arm_sn;
	be32 *dbrec;			/* SMX_CQ_DBREC_* */
	uint8_t *uar;			/* arm doorbell at uar + SMX_CQ_UAR_DOORBELL; may be NULL */
	uint64_t wc_flags;		/* as created: which read_* are offered */
	struct smx_dv_table *qps, *srqs;	/* of the context */
	struct smx_dv_lock lock;
	/* the completion that the extended poll stands on */
	struct smx_cqe64 *cur;
	uint32_t cur_tag_flags;		/* IBV_WC_TM_* of cur */
	uint32_t cur_wc_opcode;		/* enum ibv_wc_opcode of cur where the slot decides it */
	uint64_t (*wallclock_ns)(struct smx_dv_cq *cq, uint64_t device_ts);
	/* Called without the lock when the queue was found empty; turns the device. RETURN whether to look again. */
	bool (*idle)(struct smx_dv_cq *cq);
	void (*arm)(struct smx_dv_cq *cq, uint32_t arm_word);	/* after the doorbell */
};

static inline struct smx_dv_cq *smx_dv_cq_of(struct ibv_cq *cq)
{
	return (struct smx_dv_cq *)(void *)cq;
}

/* Sets ibv_cq_ex's start_poll, next_poll, end_poll and the read_* that wc_flags asks for.
 * RETURN 0, or EOPNOTSUPP for a flag that is not known. */
int smx_dv_cq_fill_ops(struct smx_dv_cq *cq);
/* All entries invalid, hardware-owned. */
void smx_dv_cq_init_buf(void *buf, uint32_t cqe_count, uint32_t cqe_bytes);
int smx_dv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int smx_dv_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* A queue pair goes away or is reset: its unread completions are taken out of the queue, and what they used
 * of srq (may be NULL) is free again. With qpn 0, an SRQ goes away: unread completions of its receives are.
 * Takes the CQ's lock. */
void smx_dv_cq_clean(struct smx_dv_cq *cq, uint32_t qpn, struct smx_dv_srq *srq);
/* After the device moved the queue to a new buffer. The caller holds cq->lock from before the command
 * until after this, so that nobody reads the old buffer meanwhile. */
void smx_dv_cq_moved(struct smx_dv_cq *cq, void *buf, uint32_t cqe_count);

#endif
