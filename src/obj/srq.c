/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Taking receives from a queue pair's ring or a shared receive queue.
 *
 * Everything in the rings and doorbell records is the program's to write, at any time: counts and
 * links are bounded here before they are used. */
#include "obj/srq.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/bits.h"
#include "obj/cq.h"
#include "obj/tag_list.h"

enum {
	SRQ_WQE_MAX = SMX_MAX_SRQ_WR + 1,
	SRQ_STRIDE_MAX = 1 << 12,
};

static struct smx_refusal_log *log_of(const struct smx_dev *dev)
{
	return dev->attr.env.refusals;
}

static int check_attr(struct smx_dev *dev, const struct smx_srq_attr *attr)
{
	const char *missing = NULL;

	if (!attr->buf || (uintptr_t)attr->buf % SMX_WQE_DS || !attr->dbrec ||
	    (uintptr_t)attr->dbrec % 4)
		missing = "its buffer or doorbell record is missing or not aligned";
	else if (!is_pow2(attr->wqe_count) || attr->wqe_count > SRQ_WQE_MAX)
		missing = "its number of entries is out of range";
	else if (!is_pow2(attr->stride_bytes) || attr->stride_bytes < 32 ||
		 attr->stride_bytes > SRQ_STRIDE_MAX)
		missing = "its stride is out of range";
	else if (attr->tag_count && (!is_pow2(attr->tag_count) || attr->tag_count > SMX_MAX_TAGS + 1 || attr->xrcd))
		missing = "its matching list is out of range";
	else if (!attr->pd || ((attr->xrcd || attr->tag_count) && !attr->cq))
		missing = "its protection domain or completion queue is missing";
	if (!missing)
		return 0;
	return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG, NULL,
			  "shared receive queue of %" PRIu32 " entries of %" PRIu32 " bytes: %s",
			  attr->wqe_count, attr->stride_bytes, missing);
}

int smx_srq_create(struct smx_dev *dev, const struct smx_srq_attr *attr, struct smx_srq **out)
{
	int err = check_attr(dev, attr);
	struct smx_srq *srq;

	if (err)
		return err;
	srq = calloc(1, sizeof(*srq));
	if (srq && attr->tag_count)
		srq->tags = smx_tag_list_create(attr->tag_count);
	if (!srq || (attr->tag_count && !srq->tags) || smx_idmap_add(&dev->srqs, srq, &srq->srqn)) {
		if (srq)
			free(srq->tags);
		free(srq);
		return smx_refuse(log_of(dev), SMX_CHECK_NO_RESOURCES, NULL,
				  "shared receive queues in use %" PRIu32 " of %" PRIu32,
				  dev->srqs.used, dev->srqs.max);
	}
	srq->attr = *attr;
	srq->limit_armed = attr->limit > 0;
	srq->attr.pd->users++;
	if (srq->attr.xrcd)
		srq->attr.xrcd->users++;
	if (srq->attr.cq)
		srq->attr.cq->users++;
	*out = srq;
	return 0;
}

int smx_srq_destroy(struct smx_dev *dev, struct smx_srq *srq)
{
	void *was;

	if (srq->users)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_BUSY, NULL,
				  "srqn 0x%" PRIx32 " is used by %" PRIu32 " queue pairs",
				  srq->srqn, srq->users);
	was = smx_idmap_remove(&dev->srqs, srq->srqn);
	assert(was == srq);
	(void)was;
	srq->attr.pd->users--;
	if (srq->attr.xrcd)
		srq->attr.xrcd->users--;
	if (srq->attr.cq)
		srq->attr.cq->users--;
	free(srq->tags);
	free(srq);
	return 0;
}

int smx_srq_arm(struct smx_dev *dev, struct smx_srq *srq, uint32_t limit)
{
	if (limit > srq->attr.wqe_count)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG, NULL,
				  "srqn 0x%" PRIx32 " limit %" PRIu32 ", the queue has %" PRIu32
				  " entries",
				  srq->srqn, limit, srq->attr.wqe_count);
	srq->attr.limit = limit;
	srq->limit_armed = limit > 0;
	return 0;
}

/* Doorbell records count modulo 65536. */
static uint16_t posted(const void *dbrec, uint16_t taken)
{
	return (uint16_t)(be32_load_acquire(dbrec) - taken);
}

/* Data segments up to the end mark or the end of the WQE. */
static inline void decode_list(struct smx_recv *out, const uint8_t *at, const uint8_t *end)
{
	struct smx_sge *sge = out->sge, *most = out->sge + SMX_RECV_SGE_MAX;
	uint64_t total = 0;

	for (; at < end && sge < most; at += SMX_WQE_DS, sge++) {
		const struct smx_wqe_data *seg = (const struct smx_wqe_data *)(const void *)at;
		uint32_t lkey = from_be32(seg->lkey);

		if (lkey == SMX_LKEY_END)
			break;
		sge->va = from_be64(seg->va);
		sge->length = from_be32(seg->byte_count) & ~SMX_INLINE_SEG;
		sge->key = lkey;
		sge->is_host = false;
		total += sge->length;
	}
	out->sge_count = (uint32_t)(sge - out->sge);
	out->total_bytes = total;
}

bool smx_rq_has(const struct smx_rq *rq)
{
	uint16_t n = rq->wqe_count && !rq->error ? posted(rq->dbrec, rq->taken) : 0;

	return n && n <= rq->wqe_count;
}

bool smx_rq_peek(const struct smx_rq *rq, struct smx_recv *out)
{
	const uint8_t *wqe;

	if (!smx_rq_has(rq))
		return false;
	wqe = rq->buf + (size_t)(rq->taken & (rq->wqe_count - 1)) * rq->stride_bytes;
	decode_list(out, wqe + (rq->wq_signature ? SMX_WQE_DS : 0), wqe + rq->stride_bytes);
	out->wqe_index = rq->taken;
	return true;
}

bool smx_rq_take(struct smx_rq *rq, struct smx_recv *out)
{
	if (smx_rq_peek(rq, out)) {
		smx_rq_pass(rq);
		return true;
	}
	rq->error |= rq->wqe_count && posted(rq->dbrec, rq->taken) > rq->wqe_count;
	return false;
}

bool smx_srq_has(const struct smx_srq *srq)
{
	return !srq->error && posted(srq->attr.dbrec, srq->taken);
}

static bool srq_sound(const struct smx_srq *srq, uint16_t available)
{
	return available <= srq->attr.wqe_count && srq->next < srq->attr.wqe_count;
}

static void srq_break(struct smx_dev *dev, struct smx_srq *srq, uint16_t available)
{
	const struct smx_srq_attr *attr = &srq->attr;

	srq->error = true;
	smx_refuse(log_of(dev), SMX_CHECK_SRQ_CORRUPT, NULL,
		   "srqn 0x%" PRIx32 " has %" PRIu32
		   " entries, next entry %u, posted and not taken %u",
		   srq->srqn, attr->wqe_count, srq->next, available);
	dev->attr.env.async_event(IBV_EVENT_SRQ_ERR, attr->cookie, dev->attr.env.arg);
}

static const struct smx_wqe_srq_next *next_entry(const struct smx_srq *srq)
{
	const uint8_t *wqe = (const uint8_t *)srq->attr.buf + (size_t)srq->next * srq->attr.stride_bytes;

	return (const struct smx_wqe_srq_next *)(const void *)wqe;
}

bool smx_srq_peek(const struct smx_srq *srq, struct smx_recv *out)
{
	const struct smx_wqe_srq_next *head;

	if (!smx_srq_has(srq) || !srq_sound(srq, posted(srq->attr.dbrec, srq->taken)))
		return false;
	head = next_entry(srq);
	decode_list(out, (const uint8_t *)(head + 1), (const uint8_t *)head + srq->attr.stride_bytes);
	out->wqe_index = srq->next;
	return true;
}

void smx_srq_pass(struct smx_dev *dev, struct smx_srq *srq)
{
	/* Looked at when the next one is taken: until then it may not have been linked. */
	srq->next = from_be16(next_entry(srq)->next_wqe_index);
	srq->taken++;
	if (srq->limit_armed && posted(srq->attr.dbrec, srq->taken) < srq->attr.limit) {
		srq->limit_armed = false;
		dev->attr.env.async_event(IBV_EVENT_SRQ_LIMIT_REACHED, srq->attr.cookie,
					  dev->attr.env.arg);
	}
}

bool smx_srq_take(struct smx_dev *dev, struct smx_srq *srq, struct smx_recv *out)
{
	uint16_t available;

	if (smx_srq_peek(srq, out)) {
		smx_srq_pass(dev, srq);
		return true;
	}
	available = posted(srq->attr.dbrec, srq->taken);
	if (!srq->error && !srq_sound(srq, available) && available)
		srq_break(dev, srq, available);
	return false;
}
