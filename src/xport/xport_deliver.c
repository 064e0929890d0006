/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames that arrive find their queue pair here.
 *
 * One that is not there, or not in a state to receive, gives no answer at all: that is how a
 * requester on a real network finds out, by timeout. */
#include "xport/requester.h"
#include "xport/responder.h"

#include <assert.h>
#include <string.h>

enum { MULTICAST_QPN = 0xffffff };

enum {
	RECEIVES = 1 << IBV_QPS_RTR | 1 << IBV_QPS_RTS | 1 << IBV_QPS_SQD | 1 << IBV_QPS_SQE,
	TAKES_ANSWERS = 1 << IBV_QPS_RTS | 1 << IBV_QPS_SQD | 1 << IBV_QPS_SQE,
};

static bool can_receive(const struct smx_qp *qp)
{
	return qp->resp && RECEIVES >> qp->state & 1;
}

static bool can_take_answer(const struct smx_qp *qp)
{
	return qp->req && TAKES_ANSWERS >> qp->state & 1;
}

/* To every member of the group, a sender that is one included unless it was created otherwise. Each
 * reads the payload from its start. */
static void deliver_multicast(struct smx_dev *dev, struct smx_frame *f)
{
	const struct smx_walk *payload = f->walk;

	for (struct smx_mcast *m = dev->mcasts; m; m = m->next) {
		struct smx_frame copy = *f;
		struct smx_walk walk;

		if (memcmp(m->gid, f->dgid, sizeof(m->gid)) || !can_receive(m->qp))
			continue;
		if (m->qp->attr.block_self_mcast && m->qp->qpn == f->src_qpn)
			continue;
		if (payload) {
			walk = *payload;
			copy.walk = &walk;
		}
		smx_resp_receive(dev, m->qp, &copy);
		f->gather_check = copy.gather_check;
		f->gather_text = copy.gather_text;
		if (f->gather_check)
			return;
	}
}

void smx_xport_deliver(void *arg, struct smx_frame *f)
{
	struct smx_dev *dev = arg;
	struct smx_qp *qp;

	if (f->op > SMX_FRAME_SOURCE_FAULT)
		return;
	if (f->dst_qpn == MULTICAST_QPN) {
		if (f->transport == SMX_TP_UD && !smx_frame_is_answer(f->op))
			deliver_multicast(dev, f);
		return;
	}
	qp = smx_qp_find(dev, f->dst_qpn);
	if (!qp)
		return;
	if (smx_frame_is_answer(f->op)) {
		if (can_take_answer(qp))
			smx_comp_receive(dev, qp, f);
	} else if (can_receive(qp)) {
		smx_resp_receive(dev, qp, f);
	}
}

void smx_xport_room(void *arg)
{
	struct smx_dev *dev = arg;

	while (dev->blocked) {
		struct smx_qp *qp = container_of(dev->blocked, struct smx_qp, blocked);

		smx_req_set_blocked(dev, qp, false);
		smx_req_kick(dev, qp);
	}
}
