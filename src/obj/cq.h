/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Completion queues: placing CQEs, overflow, arming. */
#ifndef SMX_OBJ_CQ_H
#define SMX_OBJ_CQ_H

#include "hw/cqe.h"
#include "obj/device.h"

struct smx_cq {
	struct smx_cq_attr attr;
	uint32_t cqn;
	uint32_t locked;	/* by a visitor that is not alone: whoever else visits keeps off */
	uint32_t pi;		/* CQEs ever written */
	uint32_t users;		/* queue pairs and SRQs that complete here */
	bool armed, armed_solicited_only;
	uint32_t arm_seen;	/* pi when the last event was raised */
	bool overrun;		/* a CQE was lost: the queue is in error */
	bool fired;		/* an event was raised; fired_sn is its arm's sequence number */
	uint8_t arm_sn, fired_sn;
	uint32_t solicited_pi;	/* pi after the last solicited or error CQE */
	uint32_t ci_seen;	/* consumer index when the doorbell record was last read, as wide as pi */
	struct smx_list_link watched;	/* the device itself looks for new arm words in its doorbell record */
	uint32_t arm_word;	/* watched: the one taken last */
};

int smx_cq_create(struct smx_dev *dev, const struct smx_cq_attr *attr, struct smx_cq **out);
int smx_cq_resize(struct smx_dev *dev, struct smx_cq *cq, void *buf, uint32_t cqe_count);
int smx_cq_destroy(struct smx_dev *dev, struct smx_cq *cq);
void smx_cq_arm(struct smx_dev *dev, struct smx_cq *cq, uint32_t arm_word);

/* Writes *cqe (op_own without the owner bit; timestamp is filled in here) and, when inline_data is not
 * NULL, its 32 or 64 bytes as op_own says. The owner byte goes last, with release order. Raises the event if armed.
 * A full queue raises IBV_EVENT_CQ_ERR. RETURN whether it was written. */
bool smx_cq_put(struct smx_dev *dev, struct smx_cq *cq, const struct smx_cqe64 *cqe, const void *inline_data);

/* The same in two steps, for who writes the fields where the CQE lies: a copy of what was just put together waits for
 * each of its stores. begin() returns it, NULL when the queue is full; all but the last byte is the caller's until
 * end(). */
struct smx_cqe64 *smx_cq_begin(struct smx_dev *dev, struct smx_cq *cq);
void smx_cq_end(struct smx_dev *dev, struct smx_cq *cq, struct smx_cqe64 *cqe, uint8_t op_own, const void *inline_data,
		uint64_t now_ns);

/* Would a CQE of a success find room and wake nobody? */
bool smx_cq_is_quiet(struct smx_cq *cq);

/* Between visitors. RETURN false when another has it for long. */
bool smx_cq_lock(struct smx_cq *cq);
static inline void smx_cq_unlock(struct smx_cq *cq)
{
	__atomic_store_n(&cq->locked, 0, __ATOMIC_RELEASE);
}

/* An error CQE, filled from the check's row. opcode 0xD or 0xE by where->is_recv. */
bool smx_cq_put_error(struct smx_dev *dev, struct smx_cq *cq, smx_outcome check, const struct smx_where *where,
		      uint32_t srqn);

/* The same for a WQE that is flushed: check is FLUSH_CURRENT or FLUSH_BEHIND, root what failed before it (or
 * SMX_CHECK_NONE): its hardware syndrome is copied. */
bool smx_cq_put_flush(struct smx_dev *dev, struct smx_cq *cq, smx_outcome check, smx_outcome root,
		      const struct smx_where *where, uint32_t srqn);

#endif
