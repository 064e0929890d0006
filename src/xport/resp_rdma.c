/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RDMA WRITE, RDMA READ and atomics at the responder.
 *
 * rkey, range and memory are checked in that order and packet by packet: what a frame may do before
 * the first packet that breaks a rule is done. An operation of length 0 touches no key (IBA C9-88).
 */
#include "xport/responder.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

static uint32_t psn_add(uint32_t psn, uint64_t n)
{
	return (psn + (uint32_t)n) & SMX_RESP_PSN_MASK;
}

/* IBA 9.7.7.2.1: no message is longer than 2 GiB. */
static bool check_message_length(struct smx_resp_work *w)
{
	if (w->f->dma_length <= 1ull << 31)
		return true;
	smx_resp_refuse(w, SMX_CHECK_REMOTE_LENGTH, w->c->epsn,
			"length %" PRIu64 ", at most 0x80000000", w->f->dma_length);
	return false;
}

/* Writes the payload at c->va. RETURN false when the frame is dealt with. */
static bool write_payload(struct smx_resp_work *w)
{
	struct smx_resp_ctx *c = w->c;
	struct smx_dma_fault fault;
	struct smx_walk dst;
	uint64_t done = 0;
	uint32_t psn;

	smx_walk_range(&dst, w->dev, w->pd, w->qp->qpn, SMX_DMA_REMOTE_WRITE, c->rkey, c->va,
		       w->f->length);
	if (smx_resp_store(w, &dst, w->f->length, &done, &fault))
		return true;
	if (!fault.check)
		return false;
	psn = psn_add(c->epsn, done / w->mtu);
	c->epsn = psn;
	smx_resp_refuse_fault(w, &fault, psn);
	return false;
}

void smx_resp_write(struct smx_resp_work *w)
{
	struct smx_resp_ctx *c = w->c;
	struct smx_frame *f = w->f;
	bool with_receive = f->last && f->has_imm;

	if (f->first && !check_message_length(w))
		return;
	if (f->first) {
		c->va = f->va;
		c->rkey = f->rkey;
		c->left = f->dma_length;
		c->received = f->dma_length;
	}
	if (f->length > c->left || (f->last && f->length < c->left)) {
		smx_resp_refuse(w, SMX_CHECK_REMOTE_LENGTH, c->epsn,
				"%" PRIu64 " bytes %s, the message's own "
				"header leaves %" PRIu64,
				f->length, f->last ? "to its end" : "and more to come", c->left);
		return;
	}
	if (with_receive && !smx_resp_take(w))
		return;
	if (f->length && !write_payload(w))
		return;
	smx_resp_advance(w, w->packets);
	c->va += f->length;
	c->left -= f->length;
	c->message = f->last ? SMX_RESP_NO_MESSAGE : SMX_RESP_IN_WRITE;
	if (f->last)
		c->msn = (c->msn + 1) & SMX_RESP_PSN_MASK;
	if (with_receive)
		smx_resp_complete_and_ack(w, c->received, NULL);
	else
		smx_resp_ack(w);
}

/* Answers that may be asked for again */

static void remember(struct smx_resp_work *w, bool is_atomic, uint64_t old)
{
	struct smx_resp_ctx *c = w->c;

	c->replay[c->replay_at] = (struct smx_resp_replay){
		.psn = w->f->psn,
		.psn_count = w->packets,
		.is_atomic = is_atomic,
		.old = old,
	};
	c->replay_at = (c->replay_at + 1) % SMX_RESP_REPLAYS;
}

static const struct smx_resp_replay *recall(const struct smx_resp_work *w)
{
	bool is_atomic = w->f->op == SMX_FRAME_ATOMIC_REQUEST;

	for (uint32_t i = 0; i < SMX_RESP_REPLAYS; i++) {
		const struct smx_resp_replay *p = &w->c->replay[i];
		uint32_t off = (w->f->psn - p->psn) & SMX_RESP_PSN_MASK;

		/* A READ may be asked again from its middle. */
		if (p->is_atomic == is_atomic && off < p->psn_count &&
		    off + w->packets <= p->psn_count)
			return p;
	}
	return NULL;
}

static void answer_atomic(struct smx_resp_work *w, uint64_t old)
{
	struct smx_frame r = w->c->ack;

	r.op = SMX_FRAME_ATOMIC_RESPONSE;
	r.psn = w->f->psn;
	r.msn = w->c->msn;
	r.atomic[0] = old;
	smx_xport_send(w->dev, &r);
}

/* Sends part of a READ's answer: n bytes that walk stands at, of which off were sent before. RETURN
 * false if the memory could not be read, which whoever read it has found. */
static bool answer_part(struct smx_resp_work *w, struct smx_walk *walk, uint64_t off, uint64_t n)
{
	struct smx_frame r = w->c->ack;
	char text[sizeof(w->dev->frame_text)];

	r.op = SMX_FRAME_READ_RESPONSE;
	r.first = off == 0;
	r.last = off + n == w->f->dma_length;
	r.psn = psn_add(w->f->psn, off / w->mtu);
	r.psn_count = n ? (uint32_t)((n - 1) / w->mtu) + 1 : 1;
	r.mtu_bytes = w->mtu;
	r.msn = w->c->msn;
	r.length = n;
	r.walk = n ? walk : NULL;
	smx_xport_send(w->dev, &r);
	if (!r.gather_check)
		return true;
	/* Its text may lie where ours is made. */
	snprintf(text, sizeof(text), "%s",
		 r.gather_text ? r.gather_text : "while the answer was copied");
	smx_resp_refuse(w, r.gather_check, r.psn, "%s", text);
	return false;
}

/* Answers a READ with walks of the memory itself; nothing is copied here. */
static void answer_read(struct smx_resp_work *w)
{
	uint64_t total = w->f->dma_length, whole = total, off = 0;
	uint64_t most = w->dev->port->max_payload_bytes;
	struct smx_dma_fault fault, none;
	struct smx_walk walk;

	most -= most % w->mtu;
	if (!most)
		most = w->mtu;
	if (total) {
		smx_walk_range(&walk, w->dev, w->pd, w->qp->qpn, SMX_DMA_REMOTE_READ, w->f->rkey,
			       w->f->va, total);
		whole = smx_walk_check(&walk, total, &fault);
		if (whole < total)
			whole -= whole % w->mtu;
	}
	while (off < whole || total == 0) {
		uint64_t n = whole - off < most ? whole - off : most;
		struct smx_walk part;

		if (total && off + n < whole) {
			part = walk; /* the reader moves his */
			if (!answer_part(w, &part, off, n))
				return;
			smx_walk_skip(&walk, n, &none);
		} else if (!answer_part(w, &walk, off, n) || total == 0) {
			return;
		}
		off += n;
	}
	if (whole < total)
		smx_resp_refuse_fault(w, &fault, psn_add(w->f->psn, whole / w->mtu));
}

void smx_resp_read(struct smx_resp_work *w)
{
	if (!w->f->first || !w->f->last || w->f->length) {
		smx_resp_refuse(w, SMX_CHECK_REMOTE_OPCODE, w->c->epsn,
				"an RDMA READ request with a payload");
		return;
	}
	if (!check_message_length(w))
		return;
	remember(w, false, 0);
	smx_resp_advance(w, w->packets);
	w->c->msn = (w->c->msn + 1) & SMX_RESP_PSN_MASK;
	answer_read(w);
}

void smx_resp_atomic(struct smx_resp_work *w)
{
	const struct smx_frame *f = w->f;
	struct smx_atomic a = {
		.op = f->atomic_op,
		.swap_add = f->atomic[0],
		.compare = f->atomic[1],
		.swap_mask = f->atomic[2],
		.compare_mask = f->atomic[3],
	};
	struct smx_dma_fault fault;
	struct smx_walk target;
	uint64_t old = 0;

	if (a.op > SMX_ATOMIC_MASKED_FA) {
		smx_resp_refuse(w, SMX_CHECK_REMOTE_OPCODE, w->c->epsn, "atomic operation %u",
				f->atomic_op);
		return;
	}
	smx_walk_range(&target, w->dev, w->pd, w->qp->qpn, SMX_DMA_REMOTE_ATOMIC, f->rkey, f->va,
		       sizeof(old));
	if (smx_walk_check(&target, sizeof(old), &fault) < sizeof(old)) {
		smx_resp_refuse_fault(w, &fault, w->c->epsn);
		return;
	}
	if (smx_dma_atomic(&target, &a, &old, &fault)) {
		smx_resp_refuse_fault(w, &fault, w->c->epsn);
		return;
	}
	remember(w, true, old);
	smx_resp_advance(w, 1);
	w->c->msn = (w->c->msn + 1) & SMX_RESP_PSN_MASK;
	answer_atomic(w, old);
}

void smx_resp_replay(struct smx_resp_work *w)
{
	const struct smx_resp_replay *p = recall(w);

	if (!p) { /* too long ago, or never: IBA 9.7.5.1.5 lets it be dropped */
		w->qp->resp->dropped++;
		return;
	}
	if (p->is_atomic)
		answer_atomic(w, p->old);
	else
		answer_read(w);
}
