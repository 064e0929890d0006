/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A port: moves frames. One file a medium; requester and responder never know which carries a frame. */
#ifndef SMX_NET_PORT_H
#define SMX_NET_PORT_H

#include "net/frame.h"

struct smx_port;

/* Takes a frame that arrived; f and its payload are valid during the call only. */
typedef void (*smx_port_deliver)(void *arg, struct smx_frame *f);

struct smx_port_ops {
	/* Sends f; payload is consumed or copied before it returns. Delivery may happen inside (loopback). */
	void (*send)(struct smx_port *port, struct smx_frame *f);
	/* Delivers what has arrived. RETURN when to call again: 0 at once, UINT64_MAX when something arrives. */
	uint64_t (*poll)(struct smx_port *port, uint64_t now_ns);
	void (*destroy)(struct smx_port *port);
};

struct smx_port {
	const struct smx_port_ops *ops;
	uint64_t max_payload_bytes;	/* of one frame; 0: one path MTU */
	smx_port_deliver deliver;
	void *deliver_arg;
	bool immediate;			/* send() delivers, and poll() never has anything to do */
};

#endif
