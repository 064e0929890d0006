/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Port 1's GIDs: the machine's addresses, RoCE v2. */
#ifndef SMX_VERBS_GID_TABLE_H
#define SMX_VERBS_GID_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct smx_gid {
	union ibv_gid gid;
	uint32_t ifindex;
};

/* How many entries are in use: 0..count-1. At least one. */
uint32_t smx_gid_count(void);
const struct smx_gid *smx_gid_at(uint32_t index);	/* NULL: not in use */

/* The MAC that a destination GID stands for: the multicast MAC of a group, the MAC inside a
 * link-local address, else one made of the address itself. */
void smx_gid_mac(const union ibv_gid *gid, uint8_t mac[6]);

#endif
