/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When a send request fails: its completion, what is flushed behind it, and what goes into error.
 *
 *   RC, XRC   the queue pair goes to ERR
 *   UC, UD    the send queue goes to SQE; receiving goes on
 *   DCI       the stream is in error until it is reset; too many of those, and the DCI goes to ERR
 *
 * Outstanding requests complete as flushed whether they asked for a completion or not. */
#include "xport/direct.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

/* Completes a stream's oldest WQE as flushed. */
static void flush_oldest(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			 smx_outcome check,
			 smx_outcome root)
{
	struct smx_where where = smx_req_where(qp, st->oldest);
	uint32_t at = st->oldest;

	if (check == SMX_CHECK_FLUSH_BEHIND)
		qp->flushed++;
	else
		smx_refuse(dev->attr.env.refusals, check, &where,
			   "%" PRIu32 " blocks of requests were outstanding",
			   qp->sq.pi - qp->sq.ci);
	smx_sq_retire(qp, st);
	if (qp->rndv)
		smx_rndv_completed(dev, qp, at, 0, true);
	else
		smx_cq_put_flush(dev, qp->attr.send_cq, check, root, &where, qp->attr.user_index);
}

void smx_req_flush_stream(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	smx_req_recall(qp, st);
	while (st->has_oldest)
		flush_oldest(dev, qp, st, SMX_CHECK_FLUSH_BEHIND, st->root);
	smx_req_stop_stream(dev, qp, st);
}

void smx_req_flush_all(struct smx_dev *dev, struct smx_qp *qp, bool current)
{
	struct smx_sq *sq = &qp->sq;

	/* One that overran has come here by itself. */
	if (!qp->sq_halted && !smx_sq_read_doorbell(dev, qp))
		return;
	if (sq->fetched != sq->pi)
		smx_sq_assign(dev, qp);
	smx_req_recall(qp, NULL);
	/* In the order of the queue, so each is the oldest of its stream. */
	while (sq->ci != sq->fetched) {
		struct smx_requester *st = smx_req_stream(qp, smx_sq_slot(qp, sq->ci)->stream);

		assert(st->has_oldest && st->oldest == sq->ci);
		flush_oldest(dev, qp, st, current ?
			     SMX_CHECK_FLUSH_CURRENT : SMX_CHECK_FLUSH_BEHIND,
			     qp->root);
		current = false;
	}
	for (uint32_t i = 0; i < smx_req_stream_count(qp); i++)
		smx_req_stop_stream(dev, qp, &qp->req[i]);
}

void smx_req_flush(struct smx_dev *dev, struct smx_qp *qp)
{
	if (!qp->req)
		return;
	/* Behind a request that failed nothing is executing; another stream's may be. */
	smx_req_flush_all(dev, qp, !qp->errored || qp->attr.type == SMX_QP_DCI);
}

static void to_err(struct smx_dev *dev, struct smx_qp *qp, bool current)
{
	qp->state = IBV_QPS_ERR;
	smx_direct_publish(dev, qp);
	if (qp->req)
		smx_req_flush_all(dev, qp, current);
	if (qp->resp)
		smx_resp_flush(dev, qp);
}

/* Says the check that the WQE's stream cannot be known either? */
static bool is_whole_queue(smx_outcome check)
{
	return check == SMX_CHECK_WQE_INDEX || check == SMX_CHECK_WQE_QPN ||
	       check == SMX_CHECK_WQE_OVERRUN;
}

static void stream_to_error(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			    smx_outcome check)
{
	uint32_t limit = qp->attr.log_streams ? 1u << qp->attr.log_errored : 1;

	assert(!st->errored);
	st->errored = true;
	st->root = check;
	qp->errored_streams++;
	smx_req_flush_stream(dev, qp, st);
	if (qp->errored_streams >= limit)
		to_err(dev, qp, false);
}

void smx_req_fail(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		  smx_outcome check)
{
	struct smx_where where = smx_req_where(qp, st->oldest);
	uint32_t at = st->oldest;

	assert(check != SMX_CHECK_NONE);
	assert(st->has_oldest);
	smx_req_recall(qp, st);
	st->failing = SMX_CHECK_NONE;
	qp->root = check;
	qp->errored = true;
	smx_sq_retire(qp, st);
	if (qp->rndv)
		smx_rndv_completed(dev, qp, at, 0, true);
	else
		smx_cq_put_error(dev, qp->attr.send_cq, check, &where, qp->attr.user_index);

	if (qp->attr.type == SMX_QP_DCI && !is_whole_queue(check)) {
		stream_to_error(dev, qp, st, check);
	} else if (!smx_qp_is_reliable(qp)) {
		qp->state = IBV_QPS_SQE;
		smx_req_flush_all(dev, qp, false);
	} else {
		to_err(dev, qp, false);
	}
}

int smx_req_reset_stream(struct smx_dev *dev, struct smx_qp *dci, uint16_t stream)
{
	struct smx_where where = { .qpn = dci->qpn, .cookie = dci->attr.cookie };
	struct smx_requester *st;

	if (!dci->req || dci->attr.type != SMX_QP_DCI)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_OBJECT_ARG, &where,
				  "not a DCI");
	st = smx_req_stream(dci, stream);
	if (!st->errored)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_STREAM_NOT_ERRORED, &where,
				  "stream id %u, %" PRIu32 " of %" PRIu32 " streams in error",
				  stream,
				  dci->errored_streams, smx_req_stream_count(dci));
	assert(!st->has_oldest);
	assert(dci->errored_streams > 0);
	st->errored = false;
	st->root = SMX_CHECK_NONE;
	st->retries = dci->cur.retry_cnt;
	st->rnr_retries = dci->cur.rnr_retry;
	dci->errored_streams--;
	return 0;
}

/* ------------------------------------------------------------------ the whole queue pair */

/* What a device tells of an error that no send completion tells. IBA 11.6.3.2: a request that was
 * refused is an error of the responder's queue pair as well. RETURN -1 for nothing. */
static int event_of(smx_outcome check)
{
	if (check == SMX_CHECK_WQE_OVERRUN || check == SMX_CHECK_CQ_OVERRUN)
		return IBV_EVENT_QP_FATAL;
	switch (smx_check_info(check)->syndrome) {
	case SMX_SYND_REMOTE_INVAL_REQ:
		return IBV_EVENT_QP_REQ_ERR;
	case SMX_SYND_REMOTE_ACCESS:
		return IBV_EVENT_QP_ACCESS_ERR;
	case SMX_SYND_REMOTE_OP:
		return IBV_EVENT_QP_FATAL;
	default:
		return -1;
	}
}

void smx_qp_fatal(struct smx_dev *dev, struct smx_qp *qp, smx_outcome check)
{
	int event = event_of(check);

	assert(check != SMX_CHECK_NONE);
	if (qp->state == IBV_QPS_RESET)
		return;
	if (qp->state != IBV_QPS_ERR) {
		if (!qp->errored)
			qp->root = check;
		qp->errored = true;
		to_err(dev, qp, true);
	}
	if (event >= 0 && dev->attr.env.async_event)
		dev->attr.env.async_event((enum ibv_event_type)event, qp->attr.cookie,
					  dev->attr.env.arg);
}

void smx_qp_lost_completion(struct smx_dev *dev, struct smx_qp *qp)
{
	qp->completion_lost = true;
	smx_req_kick(dev, qp);
}
