/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The host's port, as far as requests go that need no frame: what this process publishes, and what it does in the
 * memory of others. */
#ifndef SMX_HOST_DIRECT_H
#define SMX_HOST_DIRECT_H

#include "net/port.h"

struct host;
struct smx_far;

void smx_host_name_tables(struct host *h);	/* when the registry was joined: others find our tables */
void smx_host_forget_tables(struct host *h);

/* What the process of that slot and generation shares and publishes, or NULL. */
struct smx_far *smx_host_far(struct host *h, uint32_t slot, uint32_t gen);

/* struct smx_port_ops */
void smx_host_publish_key(struct smx_port *port, const struct smx_port_key *key);
void smx_host_withdraw_key(struct smx_port *port, uint32_t key);
void smx_host_publish_qp(struct smx_port *port, const struct smx_port_qp *qp);
void *smx_host_reach(struct smx_port *port, const struct smx_port_request *r, uint64_t off, uint64_t *length);
bool smx_host_reached(struct smx_port *port);

#endif
