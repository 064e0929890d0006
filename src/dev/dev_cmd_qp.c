/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Commands on queue pairs: creation, states, numbers, multicast membership.
 *
 * Whether a transition is allowed is obj/qp_state.c's to say; what it does to requester and
 * responder is decided here. */
#include "dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "dev/dev_host.h"
#include "dev/sq_visit.h"
#include "trace/state_name.h"
#include "xport/direct.h"
#include "xport/responder.h"

enum { LOG_STREAMS_MAX = 10 };

static struct smx_refusal_log *log_of(const struct smx_dev *dev)
{
	return dev->attr.env.refusals;
}

/* Creation */

static const char *what_is_missing(const struct smx_qp_attr *a)
{
	bool sends = a->type != SMX_QP_XRC_TGT && a->type != SMX_QP_DCT;
	bool receives =
		a->type != SMX_QP_XRC_INI && a->type != SMX_QP_XRC_TGT && a->type != SMX_QP_DCI;

	if ((unsigned int)a->type > SMX_QP_DCT)
		return "its type is unknown";
	if (!a->pd && a->type != SMX_QP_XRC_TGT)
		return "it needs a protection domain";
	if (a->type == SMX_QP_XRC_TGT && !a->xrcd)
		return "it needs an XRC domain";
	if (sends && !a->send_cq)
		return "it needs a completion queue for sends";
	if (receives && !a->recv_cq)
		return "it needs a completion queue for receives";
	if (a->type == SMX_QP_DCT && !a->srq)
		return "a DCT receives from a shared receive queue, and has none";
	if (a->srq && a->srq->tags && a->type != SMX_QP_RC)
		return "only RC receives from a tag matching SRQ";
	if (a->sq_bb_count && (!is_pow2(a->sq_bb_count) || !a->sq_buf || !a->dbrec || !sends))
		return "its send queue is malformed";
	if (a->rq_wqe_count && (!is_pow2(a->rq_wqe_count) || !a->rq_buf || !a->dbrec || !receives))
		return "its receive queue is malformed";
	if (a->log_streams > LOG_STREAMS_MAX || a->log_errored > LOG_STREAMS_MAX)
		return "its number of streams is out of range";
	return NULL;
}

static void count_users(const struct smx_qp_attr *a, int by)
{
	if (a->pd)
		a->pd->users += (uint32_t)by;
	if (a->send_cq)
		a->send_cq->users += (uint32_t)by;
	if (a->recv_cq)
		a->recv_cq->users += (uint32_t)by;
	if (a->srq)
		a->srq->users += (uint32_t)by;
	if (a->xrcd)
		a->xrcd->users += (uint32_t)by;
}

/* Gives the queue pair its number: a free one, or one that the program reserved before. */
static int number(struct smx_dev *dev, struct smx_qp *qp)
{
	uint32_t reserved = qp->attr.reserved_qpn;

	if (!reserved)
		return smx_dev_number(dev, qp, &qp->qpn)
			       ? smx_refuse(log_of(dev), SMX_CHECK_NO_RESOURCES, NULL,
					    "queue pairs in use %" PRIu32 " of %" PRIu32,
					    dev->qps.used, dev->qps.max)
			       : 0;
	if (smx_idmap_get(&dev->qps, reserved) != &dev->reserved_qp)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG, NULL,
				  "qpn 0x%06" PRIx32 " is not a reserved one", reserved);
	smx_idmap_replace(&dev->qps, reserved, qp);
	qp->qpn = reserved;
	return 0;
}

static void unnumber(struct smx_dev *dev, struct smx_qp *qp)
{
	assert(smx_idmap_get(&dev->qps, qp->qpn) == qp);
	if (qp->attr.reserved_qpn)
		smx_idmap_replace(&dev->qps, qp->qpn, &dev->reserved_qp);
	else
		smx_dev_number_free(dev, qp->qpn);
}

static void free_qp(struct smx_dev *dev, struct smx_qp *qp)
{
	smx_req_destroy(qp);
	smx_rndv_destroy(qp);
	smx_resp_destroy(qp);
	unnumber(dev, qp);
	free(qp);
}

int smx_cmd_create_qp(struct smx_dev *dev, const struct smx_qp_attr *attr, struct smx_qp **out,
		      uint32_t *qpn)
{
	const char *missing = what_is_missing(attr);
	struct smx_qp *qp;
	int err;

	if (missing)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG, NULL,
				  "queue pair of type %d: %s", (int)attr->type, missing);
	qp = aligned_alloc(SMX_QP_ALIGN, align_up(sizeof(*qp), SMX_QP_ALIGN));
	if (!qp)
		return smx_refuse(log_of(dev), SMX_CHECK_NO_RESOURCES, NULL,
				  "no memory for a queue pair");
	memset(qp, 0, sizeof(*qp));
	qp->attr = *attr;
	qp->dev = dev;
	qp->deadline_ns = UINT64_MAX;
	qp->state = IBV_QPS_RESET;
	qp->cur.path_mig_state = IBV_MIG_MIGRATED;
	err = number(dev, qp);
	if (err) {
		free(qp);
		return err;
	}
	if (!qp->attr.user_index)
		qp->attr.user_index = qp->qpn;
	qp->rq = (struct smx_rq){
		.buf = attr->rq_buf,
		.wqe_count = attr->srq ? 0 : attr->rq_wqe_count,
		.stride_bytes = attr->rq_stride_bytes,
		.dbrec = attr->dbrec, /* SMX_DBREC_RCV is its first word */
		.wq_signature = attr->wq_signature,
	};
	if (smx_rndv_create(qp) || smx_req_create(dev, qp) || smx_resp_create(dev, qp)) {
		free_qp(dev, qp);
		return smx_refuse(log_of(dev), SMX_CHECK_NO_RESOURCES, NULL,
				  "no memory for a queue pair");
	}
	count_users(&qp->attr, 1);
	*out = qp;
	*qpn = qp->qpn;
	return 0;
}

int smx_cmd_destroy_qp(struct smx_dev *dev, struct smx_qp *qp)
{
	struct smx_qp_attr attr = qp->attr;
	uint32_t qpn = qp->qpn;

	if (qp->users)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_BUSY,
				  &(struct smx_where){ .qpn = qpn, .cookie = attr.cookie },
				  "queue pair 0x%06" PRIx32 " is attached to %" PRIu32
				  " multicast groups",
				  qpn, qp->users);
	smx_direct_withdraw(dev, qp);
	smx_resp_dc_forget_source(dev, qp);
	free_qp(dev, qp);
	count_users(&attr, -1);
	return 0;
}

/* States */

enum ibv_qp_state smx_qp_state(const struct smx_qp *qp)
{
	return qp->state;
}

/* Takes over what mask names; it has been checked. */
static void set_attributes(struct smx_qp *qp, const struct ibv_qp_attr *a, int mask,
			   const struct smx_path *path)
{
	struct ibv_qp_attr *cur = &qp->cur;

	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		cur->en_sqd_async_notify = a->en_sqd_async_notify;
	if (mask & IBV_QP_ACCESS_FLAGS)
		cur->qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		cur->pkey_index = a->pkey_index;
	if (mask & IBV_QP_PORT)
		cur->port_num = a->port_num;
	if (mask & IBV_QP_QKEY)
		cur->qkey = a->qkey;
	if (mask & IBV_QP_AV) {
		cur->ah_attr = a->ah_attr;
		qp->path = *path;
		smx_resp_path(qp);
	}
	if (mask & IBV_QP_PATH_MTU)
		cur->path_mtu = a->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		cur->timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		cur->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		cur->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_RQ_PSN)
		cur->rq_psn = a->rq_psn;
	if (mask & IBV_QP_SQ_PSN)
		cur->sq_psn = a->sq_psn;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		cur->max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		cur->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		cur->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_DEST_QPN)
		cur->dest_qp_num = a->dest_qp_num;
	if (mask & IBV_QP_PATH_MIG_STATE)
		cur->path_mig_state = a->path_mig_state;
}

static void to_reset(struct smx_dev *dev, struct smx_qp *qp)
{
	smx_req_reset(qp);
	smx_rndv_reset(qp);
	smx_resp_reset(qp);
	smx_resp_dc_forget_source(dev, qp);
	qp->state = IBV_QPS_RESET;
	qp->rq.taken = 0;
	qp->rq.error = false;
	qp->errored = false;
	qp->root = SMX_CHECK_NONE;
}

static void enter(struct smx_dev *dev, struct smx_qp *qp, enum ibv_qp_state to)
{
	enum ibv_qp_state from = qp->state;

	switch (to) {
	case IBV_QPS_RESET:
		to_reset(dev, qp);
		break;
	case IBV_QPS_RTR:
		smx_resp_start(qp);
		smx_dev_note_reachable(dev, qp);
		qp->state = to;
		break;
	case IBV_QPS_RTS:
		qp->state = to;
		if (qp->req && from != IBV_QPS_RTS) {
			smx_sq_open_to_visits(dev, qp);
			smx_req_start(qp);
			smx_req_kick(dev, qp);
		}
		break;
	case IBV_QPS_SQD:
		qp->state = to;
		if (qp->req && from != IBV_QPS_SQD)
			smx_req_kick(dev, qp); /* it may be drained already, and is to say so */
		break;
	case IBV_QPS_ERR:
		if (from == IBV_QPS_ERR)
			break;
		qp->state = to;
		smx_direct_publish(dev, qp);
		smx_req_flush(dev, qp);
		smx_resp_flush(dev, qp);
		break;
	default:
		qp->state = to;
		break;
	}
}

int smx_cmd_modify_qp(struct smx_dev *dev, struct smx_qp *qp, const struct ibv_qp_attr *attr,
		      int mask, const struct smx_path *path)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
	int err = smx_qp_check_modify(dev, qp, to, attr, mask);

	if (err)
		return err;
	if ((mask & IBV_QP_AV) && !path)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG,
				  &(struct smx_where){ .qpn = qp->qpn, .cookie = qp->attr.cookie },
				  "the path of IBV_QP_AV is missing");
	/* An answer that has come counts, though nobody has looked at it yet: the peer may have told the program of
	 * what it answers by another way. */
	if (to == IBV_QPS_ERR && qp->state != IBV_QPS_ERR)
		smx_dev_turn(dev);
	set_attributes(qp, attr, mask, path);
	enter(dev, qp, to);
	smx_direct_publish(dev, qp);
	return 0;
}

int smx_cmd_query_qp(struct smx_dev *dev, struct smx_qp *qp, struct ibv_qp_attr *attr)
{
	(void)dev;
	*attr = qp->cur;
	attr->qp_state = qp->state;
	attr->cur_qp_state = qp->state;
	attr->sq_draining = qp->state == IBV_QPS_SQD && qp->sqd != SMX_SQD_DRAINED;
	return 0;
}

int smx_cmd_set_udp_sport(struct smx_dev *dev, struct smx_qp *qp, uint16_t udp_sport)
{
	struct smx_where where = { .qpn = qp->qpn, .cookie = qp->attr.cookie };

	/* As mlx5: only where a path is in force that the port belongs to. */
	if (qp->state != IBV_QPS_RTS || (qp->attr.type != SMX_QP_RC && qp->attr.type != SMX_QP_UC))
		return smx_refuse(
			log_of(dev), SMX_CHECK_QP_FEATURE_STATE, &where,
			"the UDP source port can be set on RC and UC in RTS; type %d, state %s",
			(int)qp->attr.type, smx_state_name(qp->state));
	qp->path.udp_sport = udp_sport;
	smx_resp_path(qp);
	return 0;
}

int smx_cmd_reset_stream(struct smx_dev *dev, struct smx_qp *dci, uint16_t stream_id)
{
	return smx_req_reset_stream(dev, dci, stream_id);
}

/* Numbers without a queue pair */

int smx_cmd_reserve_qpn(struct smx_dev *dev, uint32_t *qpn)
{
	if (smx_dev_number(dev, &dev->reserved_qp, qpn))
		return smx_refuse(log_of(dev), SMX_CHECK_NO_RESOURCES, NULL,
				  "queue pairs in use %" PRIu32 " of %" PRIu32, dev->qps.used,
				  dev->qps.max);
	return 0;
}

int smx_cmd_unreserve_qpn(struct smx_dev *dev, uint32_t qpn)
{
	void *obj = smx_idmap_get(&dev->qps, qpn);

	if (!obj)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG, NULL,
				  "qpn 0x%06" PRIx32 " is not a reserved one", qpn);
	if (obj != &dev->reserved_qp)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_BUSY, NULL,
				  "qpn 0x%06" PRIx32 " is a queue pair's", qpn);
	smx_dev_number_free(dev, qpn);
	return 0;
}

/* Multicast */

static struct smx_mcast **find_mcast(struct smx_dev *dev, const struct smx_qp *qp,
				     const uint8_t gid[16])
{
	struct smx_mcast **at = &dev->mcasts;

	while (*at && ((*at)->qp != qp || memcmp((*at)->gid, gid, sizeof((*at)->gid))))
		at = &(*at)->next;
	return at;
}

int smx_cmd_attach_mcast(struct smx_dev *dev, struct smx_qp *qp, const uint8_t gid[16])
{
	struct smx_where where = { .qpn = qp->qpn, .cookie = qp->attr.cookie };
	struct smx_mcast **at = find_mcast(dev, qp, gid), *m;

	if (qp->attr.type != SMX_QP_UD || gid[0] != 0xff)
		return smx_refuse(
			log_of(dev), SMX_CHECK_OBJECT_ARG, &where,
			"type %d, first byte of the GID 0x%02x: UD queue pairs join groups ff...",
			(int)qp->attr.type, gid[0]);
	if (*at) /* already a member: nothing changes */
		return 0;
	m = malloc(sizeof(*m));
	if (!m)
		return smx_refuse(log_of(dev), SMX_CHECK_NO_RESOURCES, &where,
				  "no memory for a membership");
	memcpy(m->gid, gid, sizeof(m->gid));
	m->qp = qp;
	m->next = NULL;
	*at = m;
	qp->users++;
	return 0;
}

int smx_cmd_detach_mcast(struct smx_dev *dev, struct smx_qp *qp, const uint8_t gid[16])
{
	struct smx_where where = { .qpn = qp->qpn, .cookie = qp->attr.cookie };
	struct smx_mcast **at = find_mcast(dev, qp, gid), *m = *at;

	if (!m)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG, &where,
				  "queue pair 0x%06" PRIx32 " is not a member of that group",
				  qp->qpn);
	*at = m->next;
	free(m);
	qp->users--;
	return 0;
}
