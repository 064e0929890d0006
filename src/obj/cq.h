/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Completion queues: placing CQEs, overflow, arming. */
#ifndef SMX_OBJ_CQ_H
#define SMX_OBJ_CQ_H

#include <assert.h>

#include "hw/cqe.h"
#include "obj/device.h"

struct smx_cq {
	struct smx_cq_attr attr;
	uint32_t cqn;
	uint32_t locked;	/* by a visitor that is not alone: whoever else visits keeps off */
	uint32_t pi;		/* CQEs ever written */
	uint32_t users;		/* queue pairs and SRQs that complete here */
	bool armed, armed_solicited_only;
	uint32_t room;		/* CQEs that fit before the doorbell record is to be read again; 0: not known */
	uint32_t arm_seen;	/* pi when the last event was raised */
	bool overrun;		/* a CQE was lost: the queue is in error */
	bool fired;		/* an event was raised; fired_sn is its arm's sequence number */
	uint8_t arm_sn, fired_sn;
	uint32_t solicited_pi;	/* pi after the last solicited or error CQE */
	struct smx_list_link watched;	/* the device itself looks for new arm words in its doorbell record */
	uint32_t arm_word;	/* watched: the one taken last */
};

int smx_cq_create(struct smx_dev *dev, const struct smx_cq_attr *attr, struct smx_cq **out);
int smx_cq_resize(struct smx_dev *dev, struct smx_cq *cq, void *buf, uint32_t cqe_count);
int smx_cq_destroy(struct smx_dev *dev, struct smx_cq *cq);
void smx_cq_arm(struct smx_dev *dev, struct smx_cq *cq, uint32_t arm_word);

/* RETURN how many CQEs fit. Raises IBV_EVENT_CQ_ERR, once, when it is none. */
uint32_t smx_cq_find_room(struct smx_dev *dev, struct smx_cq *cq);
/* An armed queue has one more CQE. */
void smx_cq_announce(struct smx_dev *dev, struct smx_cq *cq);

/* The CQE of position i in a ring of count entries; of a 128-byte entry the last half. */
static inline struct smx_cqe64 *smx_cqe_at(void *buf, uint32_t count, uint32_t cqe_bytes, uint32_t i)
{
	uint8_t *end = (uint8_t *)buf + (size_t)((i & (count - 1)) + 1) * cqe_bytes;

	return (struct smx_cqe64 *)(void *)(end - sizeof(struct smx_cqe64));
}

/* Which round round the ring it belongs to. */
static inline uint8_t smx_cqe_owner(uint32_t i, uint32_t count)
{
	return i & count ? SMX_CQE_OWNER : 0;
}

/* RETURN where the next CQE lies; NULL when the queue is full. */
static inline struct smx_cqe64 *smx_cq_next(struct smx_dev *dev, struct smx_cq *cq)
{
	if (__builtin_expect(!cq->room, 0) && !(cq->room = smx_cq_find_room(dev, cq)))
		return NULL;
	return smx_cqe_at(cq->attr.buf, cq->attr.cqe_count, cq->attr.cqe_bytes, cq->pi);
}

/* A CQE is written in two steps, where it lies: a copy of what was just put together would wait for each of its stores.
 * begin() returns it with a time stamp and zeros, of which all but the last eight bytes are the caller's until end();
 * NULL when the queue is full. */
static inline struct smx_cqe64 *smx_cq_begin(struct smx_dev *dev, struct smx_cq *cq, uint64_t now_ns)
{
	struct smx_cqe64 *cqe = smx_cq_next(dev, cq);

	if (!cqe)
		return NULL;
	memset(cqe, 0, offsetof(struct smx_cqe64, timestamp));
	cqe->timestamp = to_be64(now_ns);
	return cqe;
}

/* Received data into the CQE: 32 or 64 bytes, as op_own says. */
void smx_cq_put_data(const struct smx_cq *cq, struct smx_cqe64 *cqe, uint8_t op_own, const void *data);

/* Stores the last eight bytes at once and with release order; raises the event if the queue is armed. op_own is without
 * the owner bit. */
static inline void smx_cq_end(struct smx_dev *dev, struct smx_cq *cq, struct smx_cqe64 *cqe, uint32_t sop_drop_qpn,
			      uint16_t wqe_counter, uint8_t op_own)
{
	assert(!(op_own & SMX_CQE_OWNER));
	op_own |= smx_cqe_owner(cq->pi, cq->attr.cqe_count);
	smx_cqe_store_end(cqe, smx_cqe_end(sop_drop_qpn, wqe_counter, op_own));
	cq->pi++;
	cq->room--;
	if (op_own & SMX_CQE_SOLICITED || smx_cqe_is_error(op_own))
		cq->solicited_pi = cq->pi;
	if (__builtin_expect(cq->armed, 0))
		smx_cq_announce(dev, cq);
}

/* The same with a CQE that is at hand; inline_data may be NULL. RETURN whether it was written. */
bool smx_cq_put(struct smx_dev *dev, struct smx_cq *cq, const struct smx_cqe64 *cqe, const void *inline_data);

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
