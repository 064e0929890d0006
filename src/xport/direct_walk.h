/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SMX_XPORT_DIRECT_WALK_H
#define SMX_XPORT_DIRECT_WALK_H

#include "xport/direct_here.h"

/* As smx_direct_run(), for what smx_direct_there() does not find. */
bool smx_direct_walk(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, const struct smx_direct *d);

#endif
