/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "xport/timer.h"

#include <assert.h>

static void unlink_qp(struct smx_qp *qp)
{
	assert(qp->timer_link);
	*qp->timer_link = qp->timer_next;
	if (qp->timer_next)
		qp->timer_next->timer_link = qp->timer_link;
	qp->timer_link = NULL;
	qp->timer_next = NULL;
}

static void link_qp(struct smx_qp **head, struct smx_qp *qp)
{
	assert(!qp->timer_link);
	qp->timer_next = *head;
	if (qp->timer_next)
		qp->timer_next->timer_link = &qp->timer_next;
	qp->timer_link = head;
	*head = qp;
}

void smx_timer_set(struct smx_dev *dev, struct smx_qp *qp, uint64_t deadline_ns)
{
	qp->deadline_ns = deadline_ns;
	if (deadline_ns == UINT64_MAX) {
		if (qp->timer_link)
			unlink_qp(qp);
		return;
	}
	if (!dev->timers || deadline_ns < dev->timers_due_ns)
		dev->timers_due_ns = deadline_ns;
	if (!qp->timer_link)
		link_qp(&dev->timers, qp);
}

void smx_timer_run(struct smx_dev *dev, uint64_t now_ns,
		   void (*fire)(struct smx_dev *dev, struct smx_qp *qp))
{
	struct smx_qp *due = NULL, *qp, *next;

	if (!dev->timers || now_ns < dev->timers_due_ns)
		return;

	/* Those that are due move to a list of our own first: firing one may put it, or others,
	 * back. */
	dev->timers_due_ns = UINT64_MAX;
	for (qp = dev->timers; qp; qp = next) {
		next = qp->timer_next;
		if (qp->deadline_ns <= now_ns) {
			unlink_qp(qp);
			link_qp(&due, qp);
		} else if (qp->deadline_ns < dev->timers_due_ns) {
			dev->timers_due_ns = qp->deadline_ns;
		}
	}
	/* Firing one may also set the deadline of another that is due and not fired yet: only
	 * unlink_qp() and the head of the list know which list it is on, and either is right for
	 * it. */
	while ((qp = due)) {
		unlink_qp(qp);
		qp->deadline_ns = UINT64_MAX;
		fire(dev, qp);
	}
}
