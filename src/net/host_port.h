/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of the host's port, which net_host.c and host_direct.c share. */
#ifndef SMX_HOST_PORT_H
#define SMX_HOST_PORT_H

#include <stdlib.h>

#include "base/host_registry.h"
#include "net/host_reach.h"
#include "net/host_tables.h"
#include "net/net_host.h"
#include "net/net_shm.h"
#include "net/shm_ack.h"
#include "net/shm_record.h"

struct peer {
	struct smx_link out, in;
	uint32_t out_gen, in_gen;
	int32_t pid;			/* whose memory in's runs are in */
	bool listed;			/* in host.inbound */
	uint32_t dirty;			/* a bit for each lane with news since its bell was looked at */
	bool blocked;			/* a requester waits for room in out's lane of requests */
	bool failed;			/* no link can be made to out_gen */
	bool held;			/* in's next request waits for room for its answer */
	struct smx_shm_ack ack;		/* in out's lane of answers */
	uint64_t full_since_ns;		/* blocked: since when */
	bool given_up;			/* blocked: those who do not wait longer were told */
	struct smx_far far;		/* what it publishes; file NULL: nothing, or it cannot be had */
	uint32_t far_gen;		/* of far, or of what cannot be had */
};

struct host {
	struct smx_port port;
	struct smx_net_host_attr attr;
	struct smx_host reg;
	bool tried;
	char why[256];			/* others cannot be reached; empty: they can, or that was said */
	uint32_t epoch_seen, lanes_seen;
	uint64_t probe;
	uint32_t inbound[SMX_HOST_SLOTS], inbound_count;
	uint32_t dirty[SMX_HOST_SLOTS], dirty_count;
	uint32_t blocked[SMX_HOST_SLOTS], blocked_count;
	uint8_t own[SMX_PORT_OWN_BYTES];	/* all, while nobody was joined */
	uint8_t inherited[SMX_PORT_OWN_BYTES];	/* by fork: queue pairs of these numbers reach each other here */
	struct peer *peer[SMX_HOST_SLOTS];
	struct smx_arrived arrived;
	struct smx_frame carried;	/* an ACK that came with a request */
	struct smx_tables tables;	/* what we publish */
	struct smx_host_watch watch;
	struct smx_far *reached;	/* where we are */
};

static inline struct smx_host_slot *own_slot(const struct host *h)
{
	return &h->reg.file->slot[h->reg.slot];
}

static inline struct peer *peer_at(struct host *h, uint32_t slot)
{
	if (!h->peer[slot])
		h->peer[slot] = calloc(1, sizeof(*h->peer[slot]));
	return h->peer[slot];
}

#endif
