/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The device as a whole: creation, doorbells, and its turn, in which everything happens.
 *
 * A turn fires the timers that are due, lets each queue pair that has work run, oldest ring
 * first, and takes what has arrived at the port; it ends when nothing is left to do at once, or
 * its budget of payload bytes is used up. */
#include "dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dev/sq_visit.h"
#include "net/net_loop.h"
#include "xport/requester.h"

/* Numbers start high enough that none is special: keys 0x100 and 0x400 mean something in WQEs,
 * queue pairs 0 and 1 are management's. */
enum {
	FIRST_QPN = 0x400, QPNS = (1 << 24) - 2 * 0x400,
	FIRST_MKEY = 0x400, MKEYS = SMX_MAX_MKEY,
	FIRST_CQN = 0x400, CQS = SMX_MAX_CQ,
	FIRST_SRQN = 0x400, SRQS = SMX_MAX_SRQ,
	FIRST_PDN = 1, PDS = 2 * SMX_MAX_PD,		/* with the driver's own */
	FIRST_XRCDN = 1, XRCDS = 1 << 16,
	BUDGET_BYTES = 16 << 20, MTU_BYTES = 4096,	/* where the driver names none */
	FLUSH_LOOK_NS = 20000000,	/* between looks for receives to be flushed */
};

static int create_tables(struct smx_dev *dev)
{
	bool none = smx_idmap_init(&dev->qps, FIRST_QPN, QPNS) ||
		    smx_idmap_init(&dev->mkeys, FIRST_MKEY, MKEYS) ||
		    smx_idmap_init(&dev->cqs, FIRST_CQN, CQS) ||
		    smx_idmap_init(&dev->srqs, FIRST_SRQN, SRQS) ||
		    smx_idmap_init(&dev->pds, FIRST_PDN, PDS) ||
		    smx_idmap_init(&dev->xrcds, FIRST_XRCDN, XRCDS);

	dev->qps.max = SMX_MAX_QP;
	return none ? ENOMEM : 0;
}

static void free_device(struct smx_dev *dev)
{
	if (dev->port)
		dev->port->ops->destroy(dev->port);
	smx_req_work_destroy(dev);
	free(dev->qpn_block);
	smx_idmap_fini(&dev->qps);
	smx_idmap_fini(&dev->mkeys);
	smx_idmap_fini(&dev->cqs);
	smx_idmap_fini(&dev->srqs);
	smx_idmap_fini(&dev->pds);
	smx_idmap_fini(&dev->xrcds);
	free(dev);
}

void smx_dev_set_port(struct smx_dev *dev, struct smx_port *port)
{
	if (dev->port)
		dev->port->ops->destroy(dev->port);
	dev->port = port;
	port->deliver = smx_xport_deliver;
	port->deliver_arg = dev;
	port->room = smx_xport_room;
}

int smx_dev_create(const struct smx_dev_attr *attr, struct smx_dev **out)
{
	struct smx_dev *dev = calloc(1, sizeof(*dev));
	struct smx_port *port;

	if (!dev)
		return ENOMEM;
	dev->attr = *attr;
	if (!dev->attr.turn_budget_bytes)
		dev->attr.turn_budget_bytes = BUDGET_BYTES;
	if (dev->attr.turn_budget_bytes > INT64_MAX)
		dev->attr.turn_budget_bytes = INT64_MAX;
	if (!dev->attr.mtu_bytes)
		dev->attr.mtu_bytes = MTU_BYTES;
	assert(is_pow2(dev->attr.mtu_bytes));
	dev->ready_tail = &dev->ready_head;
	dev->next_tag = (uint8_t)attr->key_seed;
	dev->next_nonce = attr->key_seed;
	dev->timers_due_ns = UINT64_MAX;
	port = smx_net_loop_create();
	if (!port || create_tables(dev) || smx_req_work_create(dev)) {
		if (port)
			port->ops->destroy(port);
		free_device(dev);
		return ENOMEM;
	}
	smx_dev_set_port(dev, port);
	*out = dev;
	return 0;
}

/* ------------------------------------------------------------------ freeing what still exists */

static void free_qp(void *obj, void *arg)
{
	struct smx_dev *dev = arg;
	struct smx_qp *qp = obj;

	if (obj == &dev->reserved_qp)
		return;
	smx_cmd_destroy_qp(dev, qp);
}

static void free_srq(void *obj, void *arg)
{
	((struct smx_srq *)obj)->users = 0;
	smx_cmd_destroy_srq(arg, obj);
}

static void free_cq(void *obj, void *arg)
{
	((struct smx_cq *)obj)->users = 0;
	smx_cmd_destroy_cq(arg, obj);
}

static void free_mkey(void *obj, void *arg)
{
	smx_cmd_destroy_mkey(arg, obj);
}

static void free_xrcd(void *obj, void *arg)
{
	((struct smx_xrcd *)obj)->users = 0;
	smx_cmd_dealloc_xrcd(arg, obj);
}

static void free_pd(void *obj, void *arg)
{
	((struct smx_pd *)obj)->users = 0;
	smx_cmd_dealloc_pd(arg, obj);
}

void smx_dev_destroy(struct smx_dev *dev)
{
	if (!dev)
		return;
	/* Users before what they use. */
	while (dev->mcasts)
		smx_cmd_detach_mcast(dev, dev->mcasts->qp, dev->mcasts->gid);
	smx_idmap_each(&dev->qps, free_qp, dev);
	smx_idmap_each(&dev->srqs, free_srq, dev);
	smx_idmap_each(&dev->cqs, free_cq, dev);
	smx_idmap_each(&dev->mkeys, free_mkey, dev);
	smx_idmap_each(&dev->xrcds, free_xrcd, dev);
	smx_idmap_each(&dev->pds, free_pd, dev);
	assert(!dev->ready_head && !dev->timers && !dev->watched && !dev->watched_cqs);
	free_device(dev);
}

void smx_dev_set_gid(struct smx_dev *dev, uint8_t index, const uint8_t gid[16])
{
	memcpy(dev->gid[index], gid, sizeof(dev->gid[index]));
	if (index >= dev->gid_count)
		dev->gid_count = index + 1u;
}

/* ------------------------------------------------------------------ doorbells */

void smx_dev_ring_sq(struct smx_dev *dev, struct smx_qp *qp)
{
	smx_req_kick(dev, qp);
}

void smx_dev_ring_rq(struct smx_dev *dev, struct smx_qp *qp)
{
	if (qp->state == IBV_QPS_ERR)
		smx_resp_flush(dev, qp);
	if (dev->rnr_waiting)
		smx_req_receive_posted(dev, qp, NULL);
}

void smx_dev_ring_srq(struct smx_dev *dev, struct smx_srq *srq)
{
	if (dev->rnr_waiting)
		smx_req_receive_posted(dev, NULL, srq);
}

void smx_dev_arm_cq(struct smx_dev *dev, struct smx_cq *cq, uint32_t arm_word)
{
	cq->arm_word = arm_word;
	smx_cq_arm(dev, cq, arm_word);
}

static const uint32_t *arm_record(const struct smx_cq *cq)
{
	return (const uint32_t *)cq->attr.dbrec + SMX_CQ_DBREC_ARM;
}

void smx_dev_watch_qp(struct smx_dev *dev, struct smx_qp *qp, bool on)
{
	if (smx_is_listed(&qp->watched) == on)
		return;
	if (on) {
		smx_list_add(&dev->watched, &qp->watched);
		dev->watched_err = true;	/* it may be; the next turn sees */
	} else {
		smx_list_remove(&qp->watched);
	}
}

void smx_dev_watch_cq(struct smx_dev *dev, struct smx_cq *cq, bool on)
{
	if (smx_is_listed(&cq->watched) == on)
		return;
	if (on) {
		cq->arm_word = be32_load_acquire(arm_record(cq));
		smx_list_add(&dev->watched_cqs, &cq->watched);
	} else {
		smx_list_remove(&cq->watched);
	}
}

/* A queue that is not sending yet looks at its record when it begins to. */
static bool look_at_qp(struct smx_dev *dev, struct smx_qp *qp)
{
	const struct smx_sq *sq = &qp->sq;

	if (!qp->req || !sq->bb_count || qp->sq_halted || qp->state < IBV_QPS_RTS)
		return false;
	if ((uint16_t)be32_load_acquire((const uint32_t *)sq->dbrec + SMX_DBREC_SND) ==
	    (uint16_t)sq->pi)
		return false;
	smx_req_kick(dev, qp);
	return true;
}

static bool look_at_cq(struct smx_dev *dev, struct smx_cq *cq)
{
	uint32_t word = be32_load_acquire(arm_record(cq));

	if (word == cq->arm_word)
		return false;
	smx_dev_arm_cq(dev, cq, word);
	return true;
}

bool smx_dev_poll_watched(struct smx_dev *dev)
{
	bool found = false;

	for (struct smx_list_link *l = dev->watched; l; l = l->next)
		found |= look_at_qp(dev, container_of(l, struct smx_qp, watched));
	for (struct smx_list_link *l = dev->watched_cqs; l; l = l->next)
		found |= look_at_cq(dev, container_of(l, struct smx_cq, watched));
	return found;
}

/* Receives are read when they are needed, and a program that posts them rings nothing. In ERR
 * nothing needs them, but they are to be flushed.
 * RETURN when to look again. */
static uint64_t flush_watched(struct smx_dev *dev)
{
	dev->watched_err = false;
	for (struct smx_list_link *l = dev->watched; l; l = l->next) {
		struct smx_qp *qp = container_of(l, struct smx_qp, watched);

		if (qp->state != IBV_QPS_ERR || !qp->rq.wqe_count)
			continue;
		if (smx_rq_has(&qp->rq))
			smx_resp_flush(dev, qp);
		dev->watched_err = true;
	}
	return dev->watched_err ? smx_now(dev) + FLUSH_LOOK_NS : UINT64_MAX;
}

uint64_t smx_qp_flushed(const struct smx_qp *qp)
{
	return qp->flushed;
}

/* ------------------------------------------------------------------ the turn */

static void run_ready(struct smx_dev *dev)
{
	while (dev->ready_head && dev->budget_bytes > 0) {
		struct smx_qp *qp = dev->ready_head;

		dev->ready_head = qp->ready_next;
		if (!dev->ready_head)
			dev->ready_tail = &dev->ready_head;
		qp->ready = false;
		if (smx_req_run(dev, qp))
			smx_req_kick(dev, qp);
	}
}

bool smx_dev_is_ready(const struct smx_dev *dev)
{
	return dev->ready_head;
}

void smx_dev_polled(struct smx_dev *dev, bool polled)
{
	dev->port->polled = polled;
}

void smx_dev_prompt(struct smx_dev *dev, bool prompt)
{
	dev->port->prompt = prompt;
}

bool smx_dev_has_news(const struct smx_dev *dev)
{
	const struct smx_port *port = dev->port;

	if (dev->ready_head)
		return true;
	return port->ops->has_news ? port->ops->has_news(port) : !smx_port_is_still(port);
}

static inline void begin_turn(struct smx_dev *dev)
{
	dev->now_known = false;
	dev->port->turns++;
	dev->budget_bytes = (int64_t)dev->attr.turn_budget_bytes;
}

bool smx_dev_run_alone(struct smx_dev *dev, struct smx_qp *qp)
{
	begin_turn(dev);
	if (smx_req_run(dev, qp))
		smx_req_kick(dev, qp);
	dev->now_known = false;
	return !dev->ready_head && !dev->timers && smx_dev_is_quiet(dev);
}

uint64_t smx_dev_turn(struct smx_dev *dev)
{
	uint64_t arrival = UINT64_MAX, timer;
	struct smx_port *port = dev->port;

	begin_turn(dev);
	/* What is sent may arrive at once; what arrives may let more be sent. Answers that have come go before the
	 * timers that say that they have not: a process may have been stopped for a while. */
	for (;;) {
		run_ready(dev);
		if (!smx_port_is_still(port))
			arrival = port->ops->poll(port, port->untimed ? 0 : smx_now(dev));
		if (dev->timers)
			smx_timer_run(dev, smx_now(dev), smx_req_timer);
		if (!dev->ready_head || dev->budget_bytes <= 0)
			break;
	}
	if (dev->watched_err) {
		uint64_t look = flush_watched(dev);

		arrival = look < arrival ? look : arrival;
	}
	dev->now_known = false;
	if (dev->ready_head)
		return 0;
	timer = smx_timer_next(dev);
	return timer < arrival ? timer : arrival;
}
