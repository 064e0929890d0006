/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Deadlines of queue pairs: ACK timeouts and RNR waits.
 *
 * Only queue pairs that wait for something are looked after, so idle ones cost nothing. They lie in a
 * ring of slots, each for a short time (and for those one round of the ring later, and so on), so that
 * setting a deadline and taking it off costs the same whatever the number of others.
 * dev->timers_due_ns is a lower bound of all deadlines, and nothing is looked at before that has
 * passed. */
#ifndef SMX_XPORT_TIMER_H
#define SMX_XPORT_TIMER_H

#include "obj/qp.h"

/* Makes deadline_ns the queue pair's deadline, whatever it was; UINT64_MAX takes it off. */
void smx_timer_set(struct smx_dev *dev, struct smx_qp *qp, uint64_t deadline_ns);

static inline void smx_timer_clear(struct smx_dev *dev, struct smx_qp *qp)
{
	if (smx_is_listed(&qp->timer))
		smx_timer_set(dev, qp, UINT64_MAX);
}

/* Calls fire for each queue pair whose deadline is not later than now_ns. It has none by
 * then; fire may set a new deadline, of this queue pair or of any other. */
void smx_timer_run(struct smx_dev *dev, uint64_t now_ns,
		   void (*fire)(struct smx_dev *dev, struct smx_qp *qp));

/* RETURN when smx_timer_run() is to be called again; it may turn out to be too early. */
static inline uint64_t smx_timer_next(const struct smx_dev *dev)
{
	return dev->timers ? dev->timers_due_ns : UINT64_MAX;
}

#endif
