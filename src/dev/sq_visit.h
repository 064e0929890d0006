/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a visit and a turn share. */
#ifndef SMX_DEV_SQ_VISIT_H
#define SMX_DEV_SQ_VISIT_H

#include "net/port.h"
#include "obj/qp.h"

/* Is a turn free of anything but what is rung and what is due? */
static inline bool smx_dev_is_quiet(const struct smx_dev *dev)
{
	return dev->attr.direct && !dev->watched_err && smx_port_is_still(dev->port);
}

/* The queue pair sends from now on. Visitors keep off if its peer is another process's: there is nothing for them. */
static inline void smx_sq_open_to_visits(const struct smx_dev *dev, struct smx_qp *qp)
{
	bool far = qp->attr.type == SMX_QP_RC && smx_port_delivers_later(dev->port, qp->cur.dest_qp_num);

	__atomic_store_n(&qp->sq.visited, far, __ATOMIC_RELAXED);
}

/* A visit by who is alone. RETURN false when some of what was rung, or all, is left. */
bool smx_sq_visit_alone(struct smx_dev *dev, struct smx_qp *qp);

/* The part of a turn that is about one queue pair. RETURN false when more than that is to be done now. */
bool smx_dev_run_alone(struct smx_dev *dev, struct smx_qp *qp);

#endif
