/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From bytes in a send ring to a request that the transport can execute. */
#ifndef SMX_DEV_SQ_FETCH_H
#define SMX_DEV_SQ_FETCH_H

#include "obj/qp.h"

/**
 * smx_sq_fetch - decode the send WQE at a block counter
 *
 * @at   block counter, before qp->sq.pi. The ring's bytes are a program's: nothing in them is trusted,
 *       and nothing outside the ring is read, whatever they say.
 * @out  filled in as its opcode needs; other fields keep whatever they had. index, bb_count, opcode
 *       and fm_ce_se are valid on a refusal too, as a completion in error needs them.
 *
 * RETURN SMX_CHECK_NONE, or the WQE_* or UMR_* check that refused it, already recorded.
 */
smx_outcome smx_sq_fetch(struct smx_dev *dev, struct smx_qp *qp, uint32_t at, struct smx_send_req *out);

#endif
