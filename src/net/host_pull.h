/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Payloads that are still in the memory of the process that sent them. */
#ifndef SMX_HOST_PULL_H
#define SMX_HOST_PULL_H

#include "net/host_tables.h"
#include "net/port.h"
#include "net/shm_record.h"

struct smx_host_pull {
	struct smx_pull pull;
	const struct smx_arrived *from;
	const struct smx_rec *rec;	/* it came in */
	int32_t pid;
	struct smx_far *far;	/* the sender's, of which the runs are shared; NULL: they are not */
};

/* All but hp->pull is known. */
void smx_host_pull(struct smx_host_pull *hp);

/* The sender's side: smx_port_ops. */
void smx_host_recall(struct smx_port *port, const struct smx_recall *what);

/* Is there value at addr in that process, and may we read it? */
bool smx_host_can_pull(int32_t pid, uint64_t addr, uint64_t value);

#endif
