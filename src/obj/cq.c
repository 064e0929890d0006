/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Completion queues: placing CQEs, overflow, arming, moving to another buffer. */
#include "obj/cq.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/thread.h"

enum {
	CQE_MAX = SMX_MAX_CQE + 1,
	INDEX_MASK = 0xffffff,	/* consumer indices in doorbells are 24 bits */
	LOCK_LOOKS = 200,
	LINE_BYTES = 64,
};

static struct smx_refusal_log *log_of(const struct smx_dev *dev)
{
	return dev->attr.env.refusals;
}

/* CQEs that the program has not consumed, by its doorbell record. A record that cannot be true
 * shows as a huge number. */
static uint32_t unconsumed_of(const struct smx_cq *cq)
{
	return (cq->pi - be32_load_acquire(cq->attr.dbrec)) & INDEX_MASK;
}

static int check_attr(struct smx_dev *dev, const void *buf, uint32_t count, uint32_t cqe_bytes,
		      const void *dbrec)
{
	if (!buf || (uintptr_t)buf % 64 || !is_pow2(count) || count > CQE_MAX ||
	    (cqe_bytes != 64 && cqe_bytes != 128) || !dbrec || (uintptr_t)dbrec % 4)
		return smx_refuse(log_of(dev), SMX_CHECK_CQ_ATTR, NULL,
				  "entries %" PRIu32 " (a power of two up to %d) of %" PRIu32
				  " bytes (64 or 128), buffer %p, doorbell record %p",
				  count, CQE_MAX, cqe_bytes, buf, dbrec);
	return 0;
}

int smx_cq_create(struct smx_dev *dev, const struct smx_cq_attr *attr, struct smx_cq **out)
{
	int err = check_attr(dev, attr->buf, attr->cqe_count, attr->cqe_bytes, attr->dbrec);
	struct smx_cq *cq;

	if (err)
		return err;
	/* On lines of its own: threads that complete to queues of their own do not meet. */
	cq = aligned_alloc(LINE_BYTES, align_up(sizeof(*cq), LINE_BYTES));
	if (cq)
		memset(cq, 0, sizeof(*cq));
	if (!cq || smx_idmap_add(&dev->cqs, cq, &cq->cqn)) {
		free(cq);
		return smx_refuse(log_of(dev), SMX_CHECK_NO_RESOURCES, NULL,
				  "completion queues in use %" PRIu32 " of %" PRIu32, dev->cqs.used,
				  dev->cqs.max);
	}
	cq->attr = *attr;
	*out = cq;
	return 0;
}

int smx_cq_destroy(struct smx_dev *dev, struct smx_cq *cq)
{
	void *was;

	if (cq->users)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_BUSY, NULL,
				  "cqn 0x%" PRIx32 " is used by %" PRIu32 " queues", cq->cqn,
				  cq->users);
	was = smx_idmap_remove(&dev->cqs, cq->cqn);
	assert(was == cq);
	(void)was;
	free(cq);
	return 0;
}

int smx_cq_resize(struct smx_dev *dev, struct smx_cq *cq, void *buf, uint32_t cqe_count)
{
	uint32_t cqe_bytes = cq->attr.cqe_bytes, unconsumed;
	int err = check_attr(dev, buf, cqe_count, cqe_bytes, cq->attr.dbrec);

	if (err)
		return err;
	unconsumed = unconsumed_of(cq);
	/* Without a consumer index to trust, what the old ring still holds is all that can be
	 * told. */
	if (unconsumed > cq->attr.cqe_count)
		unconsumed = cq->pi < cq->attr.cqe_count ? cq->pi : cq->attr.cqe_count;
	if (unconsumed > cqe_count || cq->overrun)
		return smx_refuse(
			log_of(dev), SMX_CHECK_CQ_ATTR, NULL,
			"cqn 0x%" PRIx32 " holds %" PRIu32 " completions%s, the new ring %" PRIu32,
			cq->cqn, unconsumed, cq->overrun ? " and lost others" : "", cqe_count);
	for (uint32_t i = cq->pi - unconsumed; i != cq->pi; i++) {
		struct smx_cqe64 *from = smx_cqe_at(cq->attr.buf, cq->attr.cqe_count, cqe_bytes, i);
		struct smx_cqe64 *to = smx_cqe_at(buf, cqe_count, cqe_bytes, i);
		size_t before = cqe_bytes - sizeof(*from);

		memcpy((uint8_t *)to - before, (uint8_t *)from - before, cqe_bytes);
		to->op_own = (uint8_t)((to->op_own & ~SMX_CQE_OWNER) | smx_cqe_owner(i, cqe_count));
	}
	cq->attr.buf = buf;
	cq->attr.cqe_count = cqe_count;
	cq->room = 0;
	return 0;
}

static void fire(struct smx_dev *dev, struct smx_cq *cq, uint32_t reported)
{
	cq->armed = false;
	cq->fired = true;
	cq->fired_sn = cq->arm_sn;
	cq->arm_seen = reported;
	dev->attr.env.cq_event(cq->attr.cookie, dev->attr.env.arg);
}

/* The sequence number moves on when the program takes the event: an arm with that of the last event
 * is a repetition of a request that has been answered.
 *
 * Completions beyond the program's index may have come before the arm and will raise no event of
 * their own, so they do at once. The one that raised the last event does not count again, or a
 * program that arms before it polls would get two events for each completion. */
void smx_cq_arm(struct smx_dev *dev, struct smx_cq *cq, uint32_t arm_word)
{
	uint8_t sn = (uint8_t)bits_get(arm_word, 29, 28);
	bool solicited_only = arm_word & SMX_CQ_ARM_SOLICITED;
	uint32_t ci = cq->pi - ((cq->pi - arm_word) & INDEX_MASK);
	uint32_t last, reported;

	if (cq->fired && sn == cq->fired_sn)
		return;
	/* A request for the next completion stands until it is met, whatever else is asked for. */
	cq->armed_solicited_only = solicited_only && (!cq->armed || cq->armed_solicited_only);
	cq->armed = true;
	cq->arm_sn = sn;
	last = cq->armed_solicited_only ? cq->solicited_pi : cq->pi;
	reported = cq->fired && (int32_t)(cq->arm_seen - ci) > 0 ? cq->arm_seen : ci;
	if ((int32_t)(last - reported) > 0)
		fire(dev, cq, ci + 1);
}

static void overrun(struct smx_dev *dev, struct smx_cq *cq)
{
	cq->overrun = true;
	smx_refuse(log_of(dev), SMX_CHECK_CQ_OVERRUN, NULL,
		   "cqn 0x%" PRIx32 " has %" PRIu32 " entries, consumer index %" PRIu32 ", %" PRIu32
		   " completions written", cq->cqn, cq->attr.cqe_count,
		   be32_load_acquire(cq->attr.dbrec) & INDEX_MASK, cq->pi);
	dev->attr.env.async_event(IBV_EVENT_CQ_ERR, cq->attr.cookie, dev->attr.env.arg);
}

/* RETURN how many CQEs fit; 0 also when one was lost before. */
static uint32_t room_of(struct smx_cq *cq)
{
	uint32_t unconsumed;

	if (cq->attr.ignore_overrun)
		return cq->attr.cqe_count;
	unconsumed = unconsumed_of(cq);
	return cq->overrun || unconsumed > cq->attr.cqe_count ? 0 : cq->attr.cqe_count - unconsumed;
}

bool smx_cq_is_quiet(struct smx_cq *cq)
{
	return !cq->armed && (cq->room || room_of(cq));
}

uint32_t smx_cq_find_room(struct smx_dev *dev, struct smx_cq *cq)
{
	uint32_t room = room_of(cq);

	if (!room && !cq->overrun)
		overrun(dev, cq);
	return room;
}

bool smx_cq_lock(struct smx_cq *cq)
{
	for (unsigned int i = 0; i < LOCK_LOOKS; i++) {
		if (!__atomic_load_n(&cq->locked, __ATOMIC_RELAXED) &&
		    !__atomic_exchange_n(&cq->locked, 1, __ATOMIC_ACQUIRE))
			return true;
		smx_cpu_relax();
	}
	return false;
}

void smx_cq_put_data(const struct smx_cq *cq, struct smx_cqe64 *cqe, uint8_t op_own, const void *data)
{
	if (op_own & SMX_CQE_INLINE_32) {
		memcpy(cqe, data, 32);
		return;
	}
	assert(cq->attr.cqe_bytes == 128 && op_own & SMX_CQE_INLINE_64);
	memcpy(cqe - 1, data, 64);
}

void smx_cq_announce(struct smx_dev *dev, struct smx_cq *cq)
{
	if (cq->solicited_pi == cq->pi || !cq->armed_solicited_only)
		fire(dev, cq, cq->pi);
}

bool smx_cq_put(struct smx_dev *dev, struct smx_cq *cq, const struct smx_cqe64 *cqe,
		const void *inline_data)
{
	uint8_t op_own = (uint8_t)(cqe->op_own & ~SMX_CQE_OWNER);
	struct smx_cqe64 *to = smx_cq_next(dev, cq);

	if (!to)
		return false;
	memcpy(to, cqe, offsetof(struct smx_cqe64, sop_drop_qpn));
	if (!smx_cqe_is_error(op_own))	/* which has its syndromes there */
		to->timestamp = to_be64(smx_now(dev));
	if (inline_data)
		smx_cq_put_data(cq, to, op_own, inline_data);
	smx_cq_end(dev, cq, to, from_be32(cqe->sop_drop_qpn), from_be16(cqe->wqe_counter), op_own);
	return true;
}

static bool put_error(struct smx_dev *dev, struct smx_cq *cq, smx_outcome check, uint8_t hw,
		      const struct smx_where *where, uint32_t srqn)
{
	const struct smx_check_info *info = smx_check_info(check);
	struct smx_err_cqe err = {
		.srqn = to_be32(srqn),
		.hw_err_synd = hw,
		.vendor_err_synd = info->vendor,
		.syndrome = info->syndrome,
		.s_wqe_opcode_qpn = to_be32((uint32_t)where->opcode << 24 | where->qpn),
		.wqe_counter = to_be16(where->wqe_index),
		.op_own = (where->is_recv ? SMX_CQE_RESP_ERR : SMX_CQE_REQ_ERR) << 4,
	};
	struct smx_cqe64 cqe;

	assert(info->syndrome);
	memcpy(&cqe, &err, sizeof(cqe));
	return smx_cq_put(dev, cq, &cqe, NULL);
}

bool smx_cq_put_error(struct smx_dev *dev, struct smx_cq *cq, smx_outcome check,
		      const struct smx_where *where, uint32_t srqn)
{
	return put_error(dev, cq, check, smx_check_info(check)->hw, where, srqn);
}

bool smx_cq_put_flush(struct smx_dev *dev, struct smx_cq *cq, smx_outcome check, smx_outcome root,
		      const struct smx_where *where, uint32_t srqn)
{
	return put_error(dev, cq, check, smx_check_info(root)->hw, where, srqn);
}
