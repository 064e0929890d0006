/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The medium of one host: loopback for queue pairs of this process, lanes in shared memory to those of
 * the others (DESIGN D7).
 *
 * The registry is joined when the first queue pair wants a number. Short payloads travel in the lane;
 * long ones of reliable transports stay where they are, and the receiver, once it has found where they go,
 * reads them there. Where the system does not allow that, they travel in the lane in pieces. */
#ifndef SMX_NET_HOST_H
#define SMX_NET_HOST_H

#include "net/port.h"

enum { SMX_HOST_RUNS = 16 };

struct smx_host_run {
	const void *ptr;
	uint64_t length;
	bool shared;		/* as base/share.h has it */
};

struct smx_net_host_attr {
	const char *dir;	/* of the registry; NULL: the user's */
	/* obj's, as net may not include it. Both read n bytes of a frame's walk: into memory, or as runs.
	 * RETURN false on a fault, with *check; runs also when there are more than SMX_HOST_RUNS, with *check 0. */
	bool (*flatten)(void *walk, void *to, uint64_t n, uint16_t *check, const char **text);
	bool (*runs)(void *walk, uint64_t n, struct smx_host_run *runs, uint32_t *count);
	uint16_t source_check;	/* enum smx_check: a sender's memory cannot be read by its receiver */
	bool by_value;		/* never read another process's memory */
};

struct smx_port *smx_net_host_create(const struct smx_net_host_attr *attr);

#endif
