/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Requests that need no network. */
#ifndef SMX_DEV_SQ_LOCAL_H
#define SMX_DEV_SQ_LOCAL_H

#include "obj/qp.h"

/* Executes a UMR (bind and local invalidate are UMRs too), a DMA copy or a NOP. Bytes that a copy
 * moved are taken from dev->budget_bytes. RETURN SMX_CHECK_NONE or the check that refused it,
 * already recorded. */
smx_outcome smx_sq_local(struct smx_dev *dev, struct smx_qp *qp, const struct smx_send_req *req);

#endif
