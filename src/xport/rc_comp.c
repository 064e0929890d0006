/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The completer: ACKs, NAKs and responses to completions; timeouts and RNR waits to retries.
 *
 * Called from a port's delivery, which on loopback is inside the requester's own send. Nothing is
 * sent from here: what has to be sent again is sought, and the stream woken. */
#include "xport/requester.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* IBA table 45: RNR NAK timer code to tens of microseconds. */
static const uint32_t rnr_wait_10us[32] = {
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
	49152,
};

/* ------------------------------------------------------------------ waiting */

void smx_req_set_deadline(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			  uint64_t deadline_ns)
{
	uint32_t streams = smx_req_stream_count(qp);

	if (st->deadline_ns == deadline_ns)
		return;
	st->deadline_ns = deadline_ns;
	if (streams == 1)
		smx_timer_set(dev, qp, deadline_ns);
	else if (deadline_ns < qp->deadline_ns)
		smx_timer_set(dev, qp, deadline_ns);
	/* A later deadline of one of many streams is found when the earlier one passes. */
}

void smx_req_arm(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	uint64_t wait;

	if (st->deadline_ns != UINT64_MAX || !smx_qp_is_reliable(qp) || !qp->cur.timeout)
		return;
	wait = 2 * (4096ull << (qp->cur.timeout & 0x1f));
	if (wait < SMX_ACK_TIMEOUT_FLOOR_NS)
		wait = SMX_ACK_TIMEOUT_FLOOR_NS;
	smx_req_set_deadline(dev, qp, st, smx_now(dev) + wait);
}

static void rearm(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	if (st->rnr_wait || st->deadline_ns == UINT64_MAX)
		return;
	smx_req_set_deadline(dev, qp, st, UINT64_MAX);
	if (st->una_psn != st->sent_psn || st->port_full)
		smx_req_arm(dev, qp, st);
}

void smx_req_end_rnr_wait(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	assert(st->rnr_wait);
	smx_req_set_rnr_wait(dev, qp, st, false);
	smx_req_set_deadline(dev, qp, st, UINT64_MAX);
	smx_req_wake(dev, qp, st);
}

/* Does the stream wait for a receive of rq, or of srq? */
static bool waits_for(const struct smx_dev *dev, const struct smx_qp *qp, const struct smx_requester *st,
		      const struct smx_qp *rq, const struct smx_srq *srq)
{
	uint32_t qpn = qp->attr.type == SMX_QP_DCI ?
		from_be32(st->peer.dqp_dct) & 0xffffff : qp->cur.dest_qp_num;
	const struct smx_qp *peer = st->rnr_wait ? smx_qp_find(dev, qpn) : NULL;

	if (!peer)
		return false;
	/* An XRC request names its SRQ; any posted one may be it. */
	return peer == rq || (srq && (peer->attr.srq == srq || peer->attr.type == SMX_QP_XRC_TGT));
}

static void end_waits(struct smx_dev *dev, struct smx_qp *qp, const struct smx_qp *rq, const struct smx_srq *srq)
{
	for (uint32_t i = 0; i < smx_req_stream_count(qp); i++) {
		struct smx_requester *st = &qp->req[i];

		if (!waits_for(dev, qp, st, rq, srq))
			continue;
		/* The program's doing, not a failed retry. */
		if (qp->cur.rnr_retry != SMX_RETRY_FOREVER && st->rnr_retries < qp->cur.rnr_retry)
			st->rnr_retries++;
		smx_req_end_rnr_wait(dev, qp, st);
	}
}

void smx_req_receive_posted(struct smx_dev *dev, const struct smx_qp *rq, const struct smx_srq *srq)
{
	struct smx_list_link *next;

	/* A queue of its own is one that answers to one peer. */
	if (rq) {
		struct smx_qp *qp = smx_qp_find(dev, rq->cur.dest_qp_num);

		if (qp && qp->rnr_streams)
			end_waits(dev, qp, rq, NULL);
		return;
	}
	for (struct smx_list_link *l = dev->rnr; l; l = next) {
		next = l->next;
		end_waits(dev, container_of(l, struct smx_qp, rnr), NULL, srq);
	}
}

/* RETURN whether another attempt is allowed; the stream has failed when it is not. */
static bool take_retry(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		       const char *what)
{
	struct smx_where where;

	if (st->retries) {
		st->retries--;
		return true;
	}
	where = smx_req_where(qp, st->oldest);
	smx_refuse(dev->attr.env.refusals, SMX_CHECK_RETRY_EXCEEDED, &where,
		   "peer QP 0x%" PRIx32 ", PSN %" PRIu32 ", %s after %u retries, timeout %u",
		   where.peer_qpn, st->una_psn, what, qp->cur.retry_cnt, qp->cur.timeout);
	smx_req_fail(dev, qp, st, SMX_CHECK_RETRY_EXCEEDED);
	return false;
}

/* Packets from una_psn on, or their answers, were lost: they are sent again. */
static void send_again(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		       const char *what)
{
	if (!take_retry(dev, qp, st, what))
		return;
	if (!st->rnr_wait)
		smx_req_set_deadline(dev, qp, st, UINT64_MAX);	/* armed anew when it is sent */
	smx_req_seek(qp, st, st->una_psn);
	smx_req_wake(dev, qp, st);
}

static void stream_timer(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	st->deadline_ns = UINT64_MAX;
	if (st->rnr_wait) {
		smx_req_end_rnr_wait(dev, qp, st);
		return;
	}
	if ((st->una_psn == st->sent_psn && !st->port_full) || !st->has_oldest)
		return;
	st->asked = false;
	send_again(dev, qp, st, "no answer");
}

void smx_req_timer(struct smx_dev *dev, struct smx_qp *qp)
{
	uint64_t now = smx_now(dev), next = UINT64_MAX;
	uint32_t streams = smx_req_stream_count(qp);

	for (uint32_t i = 0; i < streams; i++) {
		if (qp->req[i].deadline_ns <= now)
			stream_timer(dev, qp, &qp->req[i]);
	}
	for (uint32_t i = 0; i < streams; i++) {
		if (qp->req[i].deadline_ns < next)
			next = qp->req[i].deadline_ns;
	}
	smx_timer_set(dev, qp, next);
}

/* ------------------------------------------------------------------ completing */

void smx_comp_write(struct smx_qp *qp, const struct smx_comp *c, uint64_t now_ns)
{
	struct smx_cqe64 *cqe = smx_cq_begin(qp->dev, qp->attr.send_cq, now_ns);
	uint8_t op_own = SMX_CQE_REQ << 4;

	if (!cqe) {
		smx_qp_lost_completion(qp->dev, qp);
		return;
	}
	cqe->srqn_uidx = to_be32(qp->attr.user_index);
	if (smx_op_is_read(c->opcode))
		cqe->byte_cnt = to_be32(c->bytes);
	if (__builtin_expect(c->inline_bytes, 0)) {
		op_own |= c->inline_bytes <= 32 ? SMX_CQE_INLINE_32 : SMX_CQE_INLINE_64;
		smx_cq_put_data(qp->attr.send_cq, cqe, op_own, c->inline_data);
	}
	smx_cq_end(qp->dev, qp->attr.send_cq, cqe, (uint32_t)c->opcode << 24 | qp->qpn, (uint16_t)c->at, op_own);
}

static __attribute__((noinline)) void put_rndv(struct smx_dev *dev, struct smx_qp *qp, const struct smx_comp *c)
{
	smx_rndv_completed(dev, qp, c->at, c->bytes, false);
	if (c->fm_ce_se & SMX_CTRL_CQ_UPDATE)
		smx_comp_write(qp, c, smx_now(dev));
}

void smx_comp_put(struct smx_dev *dev, struct smx_qp *qp, const struct smx_comp *c)
{
	if (__builtin_expect(qp->rndv != NULL, 0))
		put_rndv(dev, qp, c);
	else if (c->fm_ce_se & SMX_CTRL_CQ_UPDATE)
		smx_comp_write(qp, c, smx_now(dev));
}

void smx_comp_done(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		   const void *inline_data,
		   uint32_t inline_bytes)
{
	const struct smx_sq_slot *slot = smx_sq_slot(qp, st->oldest);
	const struct smx_comp c = {
		.at = st->oldest,
		.bytes = slot->bytes,
		.opcode = slot->opcode,
		.fm_ce_se = slot->fm_ce_se,
		.inline_bytes = inline_bytes,
		.inline_data = inline_data,
	};

	/* Before the CQE is written: the program may post into the room as soon as it sees it. */
	smx_sq_retire(qp, st);
	smx_comp_put(dev, qp, &c);
}

void smx_req_check_drained(struct smx_dev *dev, struct smx_qp *qp)
{
	if (qp->state != IBV_QPS_SQD || qp->sqd != SMX_SQD_DRAINING)
		return;
	for (uint32_t i = 0; i < smx_req_stream_count(qp); i++) {
		const struct smx_requester *st = &qp->req[i];

		if (st->has_oldest && (smx_sq_slot(qp, st->oldest)->state == SMX_SLOT_SENT || st->direct_off))
			return;
	}
	qp->sqd = SMX_SQD_DRAINED;
	qp->cur.sq_draining = 0;
	if (qp->cur.en_sqd_async_notify && dev->attr.env.async_event)
		dev->attr.env.async_event(IBV_EVENT_SQ_DRAINED, qp->attr.cookie, dev->attr.env.arg);
}

/* Answers have moved the stream on: the packet una_psn is the oldest without one. */
static void progress(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	st->retries = qp->cur.retry_cnt;
	st->asked = false;
	if (!st->rnr_wait)
		st->rnr_retries = qp->cur.rnr_retry;
	/* An answer to what was being sent again. */
	if (smx_psn_diff(st->next_psn, st->una_psn) < 0)
		smx_req_seek(qp, st, st->una_psn);
	rearm(dev, qp, st);
	if (st->failing && st->has_oldest && st->oldest == st->failing_at) {
		smx_req_fail(dev, qp, st, st->failing);
		return;
	}
	if (st->stalled)
		smx_req_wake(dev, qp, st);
	if (qp->sqd != SMX_SQD_NONE)
		smx_req_check_drained(dev, qp);
}

/* Everything before packet psn has arrived at the responder. A READ or atomic among it is not
 * complete by that: it needs its response. RETURN whether una_psn has reached psn. */
static bool ack_before(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		       uint32_t psn)
{
	while (st->una_psn != psn && st->has_oldest) {
		const struct smx_sq_slot *slot = smx_sq_slot(qp, st->oldest);
		uint32_t end = smx_psn_add(slot->psn, slot->psn_count);

		if (slot->state != SMX_SLOT_SENT || smx_op_is_read(slot->opcode))
			break;
		if (st->failing && st->oldest == st->failing_at)
			break;	/* changed after it was sent, and found out before this answer */
		if (smx_psn_diff(psn, end) < 0) {
			st->una_psn = psn;
			break;
		}
		st->una_psn = end;
		smx_comp_done(dev, qp, st, NULL, 0);
	}
	return st->una_psn == psn;
}

/* Something has arrived that is behind a response which has not. All that was in flight behind it will
 * say the same; once is enough. */
static void response_lost(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	if (st->asked)
		return;
	st->asked = true;
	send_again(dev, qp, st, "a response was lost");
}

static void receive_ack(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			uint32_t psn)
{
	uint32_t before = st->una_psn;
	bool all = ack_before(dev, qp, st, smx_psn_add(psn, 1));

	if (st->una_psn != before)
		progress(dev, qp, st);
	if (!all && st->has_oldest && !st->errored)
		response_lost(dev, qp, st);
}

/* ------------------------------------------------------------------ NAKs */

static smx_outcome nak_check(const struct smx_frame *f)
{
	smx_outcome generic = f->syndrome == SMX_AETH_NAK_INVALID ? SMX_CHECK_REMOTE_NAK_INVALID :
			      f->syndrome == SMX_AETH_NAK_ACCESS ? SMX_CHECK_REMOTE_NAK_ACCESS :
			      SMX_CHECK_REMOTE_NAK_OPERATION;
	uint8_t syndrome;

	if (f->check == SMX_CHECK_NONE || f->check >= SMX_CHECK_COUNT)
		return generic;
	/* A rule that is not about a remote request cannot be this request's. */
	syndrome = smx_check_info(f->check)->syndrome;
	if (syndrome < SMX_SYND_REMOTE_INVAL_REQ || syndrome > SMX_SYND_REMOTE_OP)
		return generic;
	return f->check;
}

static void refuse_nak(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		       const struct smx_frame *f)
{
	struct smx_where where = smx_req_where(qp, st->oldest);
	smx_outcome check = nak_check(f);

	if (f->text)
		smx_refuse(dev->attr.env.refusals, check, &where, "%s", f->text);
	else
		smx_refuse(dev->attr.env.refusals, check, &where,
			   "peer QP 0x%" PRIx32 ", PSN %" PRIu32 ", NAK syndrome 0x%02x",
			   where.peer_qpn, f->psn, f->syndrome);
	smx_req_fail(dev, qp, st, check);
}

static void receive_rnr(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			const struct smx_frame *f)
{
	struct smx_where where;
	uint64_t wait = rnr_wait_10us[f->syndrome & 0x1f] * 10000ull;

	if (st->rnr_wait)
		return;
	if (!st->rnr_retries) {
		where = smx_req_where(qp, st->oldest);
		smx_refuse(dev->attr.env.refusals, SMX_CHECK_RNR_EXCEEDED, &where,
			   "peer QP 0x%" PRIx32 ", PSN %" PRIu32
			   ", rnr_retry %u, waits of %" PRIu64 " us",
			   where.peer_qpn, f->psn, qp->cur.rnr_retry, wait / 1000);
		smx_req_fail(dev, qp, st, SMX_CHECK_RNR_EXCEEDED);
		return;
	}
	if (qp->cur.rnr_retry != SMX_RETRY_FOREVER)
		st->rnr_retries--;
	smx_req_seek(qp, st, f->psn);
	smx_req_set_rnr_wait(dev, qp, st, true);
	smx_req_set_deadline(dev, qp, st, smx_now(dev) + wait);
}

/* f->psn is the packet that was refused; all before it arrived. */
static void receive_nak(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			const struct smx_frame *f)
{
	uint32_t before = st->una_psn;
	bool rnr = (f->syndrome & 0x60) == SMX_AETH_RNR;
	bool all = ack_before(dev, qp, st, f->psn);

	if (st->una_psn != before)
		progress(dev, qp, st);
	if (!st->has_oldest || st->errored || qp->state == IBV_QPS_ERR)
		return;
	if (!all) {
		response_lost(dev, qp, st);
		return;
	}
	/* Nothing is outstanding that this packet could be part of. */
	if (smx_sq_slot(qp, st->oldest)->state != SMX_SLOT_SENT)
		return;
	if (rnr)
		receive_rnr(dev, qp, st, f);
	else if (f->syndrome == SMX_AETH_NAK_SEQUENCE)
		send_again(dev, qp, st, "packets were lost");
	else
		refuse_nak(dev, qp, st, f);
}

/* The responder could not read the payload of packet f->psn, which is in our own memory. */
static void receive_source_fault(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
				 const struct smx_frame *f)
{
	uint32_t before = st->una_psn;
	bool all = ack_before(dev, qp, st, f->psn);
	struct smx_where where;

	if (st->una_psn != before)
		progress(dev, qp, st);
	/* A READ before it is not answered: it will be sent again after that. */
	if (!all || !st->has_oldest || st->errored || f->check != SMX_CHECK_GATHER_FAULT ||
	    smx_sq_slot(qp, st->oldest)->state != SMX_SLOT_SENT)
		return;
	where = smx_req_where(qp, st->oldest);
	smx_refuse(dev->attr.env.refusals, SMX_CHECK_GATHER_FAULT, &where, "%s",
		   f->text ? f->text : "while the message was copied");
	smx_req_fail(dev, qp, st, SMX_CHECK_GATHER_FAULT);
}

/* ------------------------------------------------------------------ responses with data */

static void bad_response(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			 const struct smx_frame *f, const char *what)
{
	struct smx_where where = smx_req_where(qp, st->oldest);

	smx_refuse(dev->attr.env.refusals, SMX_CHECK_BAD_RESPONSE, &where,
		   "%s: response PSN %" PRIu32 ", %" PRIu32 " packets, %" PRIu64 " bytes", what,
		   f->psn,
		   f->psn_count, f->length);
	smx_req_fail(dev, qp, st, SMX_CHECK_BAD_RESPONSE);
}

/* The WQE that a response answers. The requester's own copy is good while it is inside that WQE's
 * send. */
static const struct smx_send_req *answered(struct smx_dev *dev, struct smx_qp *qp,
					   struct smx_requester *st)
{
	struct smx_req_work *w = dev->req_work;

	if (st->running && w->tx_of == st && w->tx_at == st->oldest)
		return &w->tx;
	return smx_req_refetch(dev, qp, st->oldest, &w->rx) ? &w->rx : NULL;
}

/* A driver copies data out of a CQE to the addresses in the WQE, so those have to be its own
 * pointers. */
bool smx_comp_fits_cqe(struct smx_dev *dev, const struct smx_qp *qp, const struct smx_send_req *req)
{
	if (!req->length || req->length > qp->attr.req_scatter_bytes ||
	    qp->attr.type != SMX_QP_RC ||
	    !(req->fm_ce_se & SMX_CTRL_CQ_UPDATE) || req->opcode > SMX_OP_ATOMIC_FA)
		return false;
	if (req->length > 32 && qp->attr.send_cq->attr.cqe_bytes < 128)
		return false;
	for (uint32_t i = 0; i < req->sge_count; i++) {
		const struct smx_mkey *mkey = smx_mkey_find(dev, req->sge[i].key);

		if (!mkey || mkey->free || mkey->attr.kind != SMX_MKEY_DIRECT ||
		    (uintptr_t)mkey->attr.host != mkey->attr.start)
			return false;
	}
	return true;
}

/* The reader of a walk names the fault in the frame; its sender sees it when send() returns. */
static void blame_sender(struct smx_dev *dev, struct smx_frame *f,
			 const struct smx_dma_fault *fault)
{
	snprintf(dev->frame_text, sizeof(dev->frame_text),
		 "key 0x%08" PRIx32 " va 0x%" PRIx64 " length %" PRIu64 ", host address %p",
		 fault->key, fault->va,
		 fault->length, fault->host);
	f->gather_check = (uint16_t)fault->check;
	f->gather_text = dev->frame_text;
}

static bool is_scatter(smx_outcome check)
{
	return check >= SMX_CHECK_SCATTER_KEY && check <= SMX_CHECK_SCATTER_DEPTH;
}

/* Writes f's payload, or n bytes of flat, to the request's memory from off on. RETURN whether it
 * is there; the stream has failed, or the frame was given back to its sender, when it is not. */
static bool scatter(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		    struct smx_frame *f,
		    const struct smx_send_req *req, uint64_t off, const void *flat, uint64_t n)
{
	struct smx_walk *dst = &dev->req_work->resp_walk;
	struct smx_dma_fault fault = { .check = SMX_CHECK_NONE };
	struct smx_where where;
	struct smx_dma_fault copy_fault = { .check = SMX_CHECK_NONE };
	uint64_t done = 0, fits;
	smx_outcome check;

	smx_walk_list(dst, dev, qp->rndv ? qp->attr.srq->attr.pd : qp->attr.pd, qp->qpn, SMX_DMA_SCATTER, req->sge,
		      req->sge_count);
	check = off ? smx_walk_skip(dst, off, &fault) : SMX_CHECK_NONE;
	if (check == SMX_CHECK_NONE) {
		/* Packet by packet, as the responder's checks: one that does not fit writes nothing. */
		fits = smx_walk_check(dst, n, &fault);
		if (fits < n)
			fits -= fits % smx_req_mtu(dev, qp);
		check = flat ? smx_dma_write(dst, flat, fits, &done, &copy_fault) :
			f->pull ? smx_dma_pull(dst, f->pull, fits, &done, &copy_fault) :
			       smx_dma_copy(dst, f->walk, fits, &done, &copy_fault);
		if (check == SMX_CHECK_NONE && done == n)
			return true;
		if (check != SMX_CHECK_NONE)
			fault = copy_fault;
		else if (done == fits && fits < n)
			check = fault.check;
	}
	if (check == SMX_CHECK_NONE) {
		bad_response(dev, qp, st, f, "less data than the response says");
		return false;
	}
	/* The next attempt finds nobody who answers. */
	if (!is_scatter(check) && f->pull && f->pull->gone)
		return false;
	where = smx_req_where(qp, st->oldest);
	if (!is_scatter(check) && f->pull) {
		/* The responder had looked at its memory before it answered. */
		smx_refuse(dev->attr.env.refusals, SMX_CHECK_REMOTE_FAULT, &where,
			   "byte %" PRIu64 " of a response of %" PRIu64, off + done, f->length);
		smx_req_fail(dev, qp, st, SMX_CHECK_REMOTE_FAULT);
		return false;
	}
	if (!is_scatter(check)) {
		blame_sender(dev, f, &fault);
		return false;
	}
	smx_walk_refuse(dev, &fault, &where);
	smx_req_fail(dev, qp, st, check);
	return false;
}

/* The whole response, small enough for the CQE. */
static bool scatter_to_cqe(struct smx_dev *dev, struct smx_qp *qp, struct smx_frame *f,
			   const struct smx_send_req *req, uint8_t *to)
{
	struct smx_walk *dst = &dev->req_work->resp_walk;
	struct smx_dma_fault fault;
	struct smx_walk src;
	uint64_t done = 0;

	smx_walk_list(dst, dev, qp->attr.pd, qp->qpn, SMX_DMA_SCATTER, req->sge, req->sge_count);
	if (smx_walk_check(dst, req->length, &fault) != req->length)
		return false;
	if (f->op == SMX_FRAME_ATOMIC_RESPONSE) {
		memcpy(to, &f->atomic[0], 8);
		return true;
	}
	if (f->flat) {
		memcpy(to, f->flat, req->length);
		return true;
	}
	if (f->pull)
		return false;
	/* A copy: should this fail, the ordinary way finds out and says why. */
	src = *(struct smx_walk *)f->walk;
	return smx_dma_read(&src, to, req->length, &done, &fault) == SMX_CHECK_NONE &&
	       done == req->length;
}

/* The WQE's data has arrived up to una_psn. */
static void response_taken(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			   const struct smx_sq_slot *slot)
{
	if (st->una_psn == smx_psn_add(slot->psn, slot->psn_count))
		smx_comp_done(dev, qp, st, NULL, 0);
	progress(dev, qp, st);
}

/* RETURN false if the data has to go to memory after all. */
static bool complete_in_cqe(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			    struct smx_frame *f, const struct smx_send_req *req,
			    const struct smx_sq_slot *slot)
{
	uint8_t inline_data[64] = { 0 };

	if (!scatter_to_cqe(dev, qp, f, req, inline_data))
		return false;
	st->una_psn = smx_psn_add(st->una_psn, slot->psn_count);
	smx_comp_done(dev, qp, st, inline_data, slot->bytes);
	progress(dev, qp, st);
	return true;
}

/* Where a part of a READ that was asked for at once ends, or the READ does. */
static bool read_part_fits(const struct smx_dev *dev, const struct smx_sq_slot *slot, uint64_t off,
			   const struct smx_frame *f, uint32_t mtu)
{
	uint64_t left = slot->bytes - off, packets = left <= mtu ? 1 : (left + mtu - 1) / mtu;
	uint64_t part = dev->port->max_payload_bytes;

	if (!f->psn_count || f->psn_count > packets)
		return false;
	if (f->length != (f->psn_count == packets ? left : (uint64_t)f->psn_count * mtu))
		return false;
	/* On media with long frames, how much was asked for at once is the medium's affair. */
	return part || f->last == (f->psn_count == packets);
}

static void receive_read_response(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
				  struct smx_frame *f, const struct smx_sq_slot *slot)
{
	uint32_t mtu = smx_req_mtu(dev, qp);
	uint64_t off = (uint64_t)smx_psn_diff(f->psn, slot->psn) * mtu;
	const struct smx_send_req *req;

	if (slot->opcode != SMX_OP_RDMA_READ || !read_part_fits(dev, slot, off, f, mtu)) {
		bad_response(dev, qp, st, f, "not what was asked for");
		return;
	}
	req = answered(dev, qp, st);
	if (!req) {
		bad_response(dev, qp, st, f, "the WQE was changed while it was being executed");
		return;
	}
	if (f->length == slot->bytes && smx_comp_fits_cqe(dev, qp, req) &&
	    complete_in_cqe(dev, qp, st, f, req, slot))
		return;
	if (f->length && !scatter(dev, qp, st, f, req, off, f->flat, f->length))
		return;
	st->una_psn = smx_psn_add(st->una_psn, f->psn_count);
	response_taken(dev, qp, st, slot);
}

static void receive_atomic_response(struct smx_dev *dev, struct smx_qp *qp,
				    struct smx_requester *st,
				    struct smx_frame *f, const struct smx_sq_slot *slot)
{
	const struct smx_send_req *req;

	if (slot->opcode == SMX_OP_RDMA_READ) {
		bad_response(dev, qp, st, f, "not what was asked for");
		return;
	}
	req = answered(dev, qp, st);
	if (!req) {
		bad_response(dev, qp, st, f, "the WQE was changed while it was being executed");
		return;
	}
	if (smx_comp_fits_cqe(dev, qp, req) && complete_in_cqe(dev, qp, st, f, req, slot))
		return;
	if (!scatter(dev, qp, st, f, req, 0, &f->atomic[0], sizeof(f->atomic[0])))
		return;
	st->una_psn = smx_psn_add(st->una_psn, 1);
	response_taken(dev, qp, st, slot);
}

/* A response also says that everything before it has arrived. */
static void receive_response(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			     struct smx_frame *f)
{
	uint32_t before = st->una_psn;
	bool all = ack_before(dev, qp, st, f->psn);
	const struct smx_sq_slot *slot;

	if (st->una_psn != before)
		progress(dev, qp, st);
	if (!st->has_oldest || st->errored || qp->state == IBV_QPS_ERR)
		return;
	if (!all) {
		response_lost(dev, qp, st);
		return;
	}
	slot = smx_sq_slot(qp, st->oldest);
	if (slot->state != SMX_SLOT_SENT)
		return;
	if (!smx_op_is_read(slot->opcode))
		bad_response(dev, qp, st, f, "not what was asked for");
	else if (f->op == SMX_FRAME_READ_RESPONSE)
		receive_read_response(dev, qp, st, f, slot);
	else
		receive_atomic_response(dev, qp, st, f, slot);
}

void smx_comp_receive(struct smx_dev *dev, struct smx_qp *qp, struct smx_frame *f)
{
	struct smx_requester *st;

	if (!qp->req || !smx_qp_is_reliable(qp) ||
	    (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD))
		return;
	/* What was asked before a RESET may be answered after it, and the sequence numbers are the same again. */
	if (qp->attr.type == SMX_QP_DCI && f->dc_nonce != qp->dc_nonce)
		return;
	st = smx_req_stream(qp, f->dc_stream);
	/* Answers to what is answered already are duplicates; to what was never sent, somebody
	 * else's. */
	if (st->errored || smx_psn_diff(f->psn, st->una_psn) < 0 ||
	    smx_psn_diff(f->psn, st->sent_psn) >= 0)
		return;
	if (f->op == SMX_FRAME_READ_RESPONSE || f->op == SMX_FRAME_ATOMIC_RESPONSE)
		receive_response(dev, qp, st, f);
	else if (f->op == SMX_FRAME_SOURCE_FAULT)
		receive_source_fault(dev, qp, st, f);
	else if (f->op != SMX_FRAME_ACK)
		return;
	else if ((f->syndrome & 0x60) == SMX_AETH_ACK)
		receive_ack(dev, qp, st, f->psn);
	else
		receive_nak(dev, qp, st, f);
}
