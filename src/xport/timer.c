/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "xport/timer.h"

#include <assert.h>

static uint64_t tick_of(uint64_t ns)
{
	return ns >> SMX_TIMER_TICK_BITS;
}

static struct smx_qp *qp_of(struct smx_list_link *l)
{
	return container_of(l, struct smx_qp, timer);
}

static struct smx_list_link **slot_of(struct smx_dev *dev, uint64_t tick)
{
	return &dev->timer_slot[tick % SMX_TIMER_SLOTS];
}

static void leave(struct smx_dev *dev, struct smx_qp *qp)
{
	assert(dev->timers > 0);
	smx_list_remove(&qp->timer);
	dev->timers--;
}

void smx_timer_set(struct smx_dev *dev, struct smx_qp *qp, uint64_t deadline_ns)
{
	if (smx_is_listed(&qp->timer))
		leave(dev, qp);
	qp->deadline_ns = deadline_ns;
	if (deadline_ns == UINT64_MAX)
		return;
	if (!dev->timers++ || deadline_ns < dev->timers_due_ns)
		dev->timers_due_ns = deadline_ns;
	smx_list_add(slot_of(dev, tick_of(deadline_ns)), &qp->timer);
}

/* Those of a slot that are due, onto a list of their own. */
static void take_due(struct smx_list_link *slot, uint64_t now_ns, struct smx_list_link **due)
{
	struct smx_list_link *next;

	for (struct smx_list_link *l = slot; l; l = next) {
		next = l->next;
		if (qp_of(l)->deadline_ns > now_ns)
			continue;
		smx_list_remove(l);
		smx_list_add(due, l);
	}
}

/* The earliest of all; nothing is due before tick. Mostly the first slot that is not empty has it, unless what is
 * there is for a later time round. */
static uint64_t earliest(struct smx_dev *dev, uint64_t tick)
{
	uint64_t least = UINT64_MAX;

	for (uint64_t t = tick; t < tick + SMX_TIMER_SLOTS; t++) {
		for (struct smx_list_link *l = *slot_of(dev, t); l; l = l->next)
			if (qp_of(l)->deadline_ns < least)
				least = qp_of(l)->deadline_ns;
		if (tick_of(least) <= t)
			break;
	}
	return least;
}

void smx_timer_run(struct smx_dev *dev, uint64_t now_ns,
		   void (*fire)(struct smx_dev *dev, struct smx_qp *qp))
{
	uint64_t from = tick_of(dev->timers_due_ns), to = tick_of(now_ns);
	struct smx_list_link *due = NULL;

	if (!dev->timers || now_ns < dev->timers_due_ns)
		return;
	if (to - from >= SMX_TIMER_SLOTS)
		from = to - SMX_TIMER_SLOTS + 1;
	/* Those that are due move to a list of our own first: firing one may put it, or others,
	 * back. */
	for (uint64_t t = from; t <= to; t++)
		take_due(*slot_of(dev, t), now_ns, &due);
	dev->timers_due_ns = earliest(dev, to);
	/* Firing one may also set the deadline of another that is due and not fired yet: it leaves our list then. */
	while (due) {
		struct smx_qp *qp = qp_of(due);

		leave(dev, qp);
		qp->deadline_ns = UINT64_MAX;
		fire(dev, qp);
	}
}
