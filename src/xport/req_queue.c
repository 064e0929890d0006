/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The send queue as the requester sees it: a ring of blocks, a slot for each, and the streams'
 * lists of WQEs.
 *
 * Block counters never wrap: ci (all before are completed) <= fetched (all before are in a
 * stream) <= pi (all before were rung). What the program wrote into the ring is read here only to
 * find where each WQE ends and whose it is; nothing in it is believed. */
#include "xport/requester.h"
#include "xport/responder.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int smx_req_work_create(struct smx_dev *dev)
{
	struct smx_req_work *w = calloc(1, sizeof(*w));

	if (!w)
		return ENOMEM;
	w->walk_off = UINT64_MAX;
	w->message = smx_resp_ctx_new(NULL);
	dev->req_work = w;
	return w->message ? 0 : ENOMEM;
}

void smx_req_work_destroy(struct smx_dev *dev)
{
	if (dev->req_work)
		free(dev->req_work->message);
	free(dev->req_work);
	dev->req_work = NULL;
}

static void stream_init(struct smx_requester *st)
{
	*st = (struct smx_requester){ .deadline_ns = UINT64_MAX };
}

static uint8_t plain_ds(const struct smx_qp *qp)
{
	uint32_t before = sizeof(struct smx_wqe_ctrl) + sizeof(struct smx_wqe_raddr);

	if (!qp->attr.sq_bb_count || qp->attr.wq_signature || qp->rndv)
		return 0;
	if (qp->attr.type == SMX_QP_DCI)
		before += sizeof(struct smx_wqe_av);
	return qp->attr.type == SMX_QP_RC || qp->attr.type == SMX_QP_DCI ? (uint8_t)(before / SMX_WQE_DS) : 0;
}

int smx_req_create(struct smx_dev *dev, struct smx_qp *qp)
{
	uint32_t streams = smx_req_stream_count(qp);

	assert(!qp->attr.sq_bb_count || is_pow2(qp->attr.sq_bb_count));
	qp->dev = dev;
	qp->deadline_ns = UINT64_MAX;
	qp->active_tail = &qp->active;
	qp->dc_nonce = ++dev->next_nonce;
	if (qp->attr.type == SMX_QP_XRC_TGT || qp->attr.type == SMX_QP_DCT)
		return 0;
	qp->req = calloc(streams, sizeof(*qp->req));
	if (qp->attr.sq_bb_count)
		qp->sq.slot = calloc(qp->attr.sq_bb_count, sizeof(*qp->sq.slot));
	if (!qp->req || (qp->attr.sq_bb_count && !qp->sq.slot)) {
		free(qp->req);
		free(qp->sq.slot);
		qp->req = NULL;
		qp->sq.slot = NULL;
		return ENOMEM;
	}
	for (uint32_t i = 0; i < streams; i++)
		stream_init(&qp->req[i]);
	qp->sq.buf = qp->attr.sq_buf;
	qp->sq.bb_count = qp->attr.sq_bb_count;
	qp->sq.dbrec = qp->attr.dbrec;
	qp->plain_ds = plain_ds(qp);
	return 0;
}

static void leave_ready_list(struct smx_dev *dev, struct smx_qp *qp)
{
	struct smx_qp **at = &dev->ready_head;

	if (!qp->ready)
		return;
	while (*at != qp)
		at = &(*at)->ready_next;
	*at = qp->ready_next;
	if (!*at)
		dev->ready_tail = at;
	qp->ready = false;
}

void smx_req_set_blocked(struct smx_dev *dev, struct smx_qp *qp, bool blocked)
{
	if (smx_is_listed(&qp->blocked) == blocked)
		return;
	dev->blocked_count += blocked ? 1 : -1u;
	if (blocked)
		smx_list_add(&dev->blocked, &qp->blocked);
	else
		smx_list_remove(&qp->blocked);
}

void smx_req_set_rnr_wait(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, bool waits)
{
	if (st->rnr_wait == waits)
		return;
	assert(waits || (dev->rnr_waiting && qp->rnr_streams));
	st->rnr_wait = waits;
	dev->rnr_waiting += waits ? 1 : -1u;
	if (waits ? !qp->rnr_streams++ : !--qp->rnr_streams) {
		if (waits)
			smx_list_add(&dev->rnr, &qp->rnr);
		else
			smx_list_remove(&qp->rnr);
	}
}

void smx_req_destroy(struct smx_qp *qp)
{
	struct smx_dev *dev = qp->dev;

	if (qp->req)
		smx_req_reset(qp);
	if (dev) {
		leave_ready_list(dev, qp);
		if (smx_is_listed(&qp->watched))
			smx_list_remove(&qp->watched);
		smx_req_set_blocked(dev, qp, false);
		smx_timer_clear(dev, qp);
	}
	free(qp->req);
	free(qp->sq.slot);
	qp->req = NULL;
	qp->sq.slot = NULL;
}

void smx_req_recall(const struct smx_qp *qp, const struct smx_requester *st)
{
	const struct smx_recall what = {
		.qpn = qp->qpn, .stream = (uint16_t)(st ? st - qp->req : 0), .all_streams = !st,
	};

	smx_port_recall(qp->dev->port, &what);
}

void smx_req_stop_stream(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	smx_req_set_rnr_wait(dev, qp, st, false);
	smx_req_set_deadline(dev, qp, st, UINT64_MAX);
	st->failing = SMX_CHECK_NONE;
	st->stalled = false;
	st->asked = false;
	st->port_full = false;
	st->reads = 0;
	st->connected = false;
	/* What was sent and not answered is not waited for any more; a late answer finds
	 * nothing. */
	st->next_psn = st->una_psn = st->sent_psn;
}

void smx_req_reset(struct smx_qp *qp)
{
	if (!qp->req)
		return;
	smx_req_recall(qp, NULL);
	for (uint32_t i = 0; i < smx_req_stream_count(qp); i++) {
		smx_req_stop_stream(qp->dev, qp, &qp->req[i]);
		stream_init(&qp->req[i]);
	}
	smx_timer_clear(qp->dev, qp);
	qp->active = NULL;
	qp->active_tail = &qp->active;
	qp->dc_nonce = ++qp->dev->next_nonce;
	qp->sq.pi = qp->sq.fetched = qp->sq.ci = 0;
	qp->errored = false;
	qp->root = SMX_CHECK_NONE;
	qp->errored_streams = 0;
	qp->sqd = SMX_SQD_NONE;
	qp->sq_halted = false;
}

void smx_req_start(struct smx_qp *qp)
{
	if (!qp->req)
		return;
	for (uint32_t i = 0; i < smx_req_stream_count(qp); i++) {
		struct smx_requester *st = &qp->req[i];

		/* From SQD and SQE back to RTS the counters go on. */
		if (st->started)
			continue;
		st->started = true;
		st->next_psn = st->una_psn = st->sent_psn = qp->cur.sq_psn & SMX_PSN_MASK;
		st->retries = qp->cur.retry_cnt;
		st->rnr_retries = qp->cur.rnr_retry;
	}
	if (qp->sq.bb_count)
		smx_req_kick(qp->dev, qp);
}

void smx_req_kick(struct smx_dev *dev, struct smx_qp *qp)
{
	if (qp->ready)
		return;
	qp->ready = true;
	qp->ready_next = NULL;
	*dev->ready_tail = qp;
	dev->ready_tail = &qp->ready_next;
}

struct smx_where smx_req_where(const struct smx_qp *qp, uint32_t at)
{
	struct smx_where where = {
		.qpn = qp->qpn,
		.wqe_index = (uint16_t)at,
		.cookie = qp->attr.cookie,
	};

	if (at - qp->sq.ci < qp->sq.fetched - qp->sq.ci) {
		const struct smx_requester *st = smx_req_stream(qp, smx_sq_slot(qp, at)->stream);

		where.opcode = smx_sq_slot(qp, at)->opcode;
		if (qp->attr.type != SMX_QP_UD)
			where.peer_qpn = qp->attr.type == SMX_QP_DCI ?
				from_be32(st->peer.dqp_dct) & 0xffffff : qp->cur.dest_qp_num;
	} else {
		where.opcode = from_be32(smx_sq_ctrl(qp, at)->opmod_idx_opcode) & 0xff;
	}
	return where;
}

void smx_sq_overrun(struct smx_dev *dev, struct smx_qp *qp, uint16_t added)
{
	struct smx_where where = smx_req_where(qp, qp->sq.pi);

	qp->sq_halted = true;
	smx_refuse(dev->attr.env.refusals, SMX_CHECK_WQE_OVERRUN, &where,
		   "producer index %u, %u blocks on from %u; %u are not completed, of %u",
		   (uint16_t)(qp->sq.pi + added), added, (uint16_t)qp->sq.pi, qp->sq.pi - qp->sq.ci,
		   qp->sq.bb_count);
	smx_req_flush_all(dev, qp, true);
	smx_cq_put_error(dev, qp->attr.send_cq, SMX_CHECK_WQE_OVERRUN, &where, 0);
	smx_qp_fatal(dev, qp, SMX_CHECK_WQE_OVERRUN);
}

static void append(struct smx_qp *qp, struct smx_requester *st, uint32_t at)
{
	if (st->has_oldest) {
		struct smx_sq_slot *before = smx_sq_slot(qp, st->newest);

		before->next = at;
		before->next_known = true;
	} else {
		st->oldest = at;
		st->has_oldest = true;
	}
	st->newest = at;
	if (!st->has_current) {
		st->current = at;
		st->has_current = true;
	}
}

static void activate(struct smx_qp *qp, struct smx_requester *st)
{
	if (st->active || st->running)
		return;
	st->active = true;
	st->active_next = NULL;
	*qp->active_tail = st;
	qp->active_tail = &st->active_next;
}

void smx_req_wake(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	st->stalled = false;
	if (st->running || !st->has_current || smx_req_is_held(st))
		return;
	activate(qp, st);
	smx_req_kick(dev, qp);
}

void smx_sq_assign(struct smx_dev *dev, struct smx_qp *qp)
{
	struct smx_sq *sq = &qp->sq;

	assert(sq->pi - sq->ci <= sq->bb_count);
	while (sq->fetched != sq->pi) {
		uint32_t at = sq->fetched;
		const struct smx_wqe_ctrl *ctrl = smx_sq_ctrl(qp, at);
		struct smx_sq_slot *slot = smx_sq_slot(qp, at);
		uint32_t ds = from_be32(ctrl->qpn_ds) & 0x3f;
		uint32_t bb = ds ? (ds + 3) / 4 : 1;
		struct smx_requester *st = smx_sq_stream(qp, at);

		/* A WQE that claims more than was rung is refused when it is fetched. */
		if (bb > sq->pi - at)
			bb = sq->pi - at;
		slot->stream = (uint16_t)(st - qp->req);
		slot->bb_count = (uint8_t)bb;
		slot->opcode = from_be32(ctrl->opmod_idx_opcode) & 0xff;
		slot->fm_ce_se = ctrl->fm_ce_se;
		slot->state = SMX_SLOT_WAITING;
		slot->next_known = false;
		sq->fetched = at + bb;
		append(qp, st, at);
		if (st->errored)
			smx_req_flush_stream(dev, qp, st);
		else if (!st->stalled && !smx_req_is_held(st))
			activate(qp, st);
	}
}

void smx_sq_retire(struct smx_qp *qp, struct smx_requester *st)
{
	struct smx_sq *sq = &qp->sq;
	struct smx_sq_slot *slot = smx_sq_slot(qp, st->oldest);

	assert(st->has_oldest);
	assert(slot->state == SMX_SLOT_WAITING || slot->state == SMX_SLOT_SENT);
	if (slot->state == SMX_SLOT_SENT && smx_op_is_read(slot->opcode)) {
		assert(st->reads > 0);
		st->reads--;
	}
	slot->state = SMX_SLOT_DONE;
	st->direct_off = 0;
	if (st->has_current && st->current == st->oldest) {
		st->has_current = slot->next_known;
		st->current = slot->next;
	}
	st->has_oldest = slot->next_known;
	st->oldest = slot->next;
	/* Streams pass each other; the queue's end follows when the oldest of all is done. */
	while (sq->ci != sq->fetched && smx_sq_slot(qp, sq->ci)->state == SMX_SLOT_DONE)
		sq->ci += smx_sq_slot(qp, sq->ci)->bb_count;
}
