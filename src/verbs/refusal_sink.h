/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The line on stderr: the first failure of each queue pair, each broken setup rule once. */
#ifndef SMX_REFUSAL_SINK_H
#define SMX_REFUSAL_SINK_H

#include <infiniband/verbs.h>

#include "trace/refusal.h"

/* struct smx_refusal_log's sink; fills in wr_id. */
void smx_refusal_sink(struct smx_refusal *r, void *arg);

/* The completion status that a CQE's syndrome byte stands for. */
enum ibv_wc_status smx_wc_status(uint8_t syndrome);

#endif
