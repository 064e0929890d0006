/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Loopback. Nothing is copied, queued or lost: send() is the delivery.
 *
 * A responder answers inside it, so a requester that sends finds its answer taken when send()
 * returns. */
#include "net/net_loop.h"

#include <assert.h>
#include <stdlib.h>

/* One frame may carry this much, so that a long message leaves room for others between its frames.
 */
enum { LOOP_PAYLOAD_BYTES = 1 << 20 };

static void loop_send(struct smx_port *port, struct smx_frame *f)
{
	assert(port->deliver);
	port->deliver(port->deliver_arg, f);
}

static uint64_t loop_poll(struct smx_port *port, uint64_t now_ns)
{
	(void)port;
	(void)now_ns;
	return UINT64_MAX;
}

static void loop_destroy(struct smx_port *port)
{
	free(port);
}

static const struct smx_port_ops loop_ops = {
	.send = loop_send,
	.poll = loop_poll,
	.destroy = loop_destroy,
};

struct smx_port *smx_net_loop_create(void)
{
	static const uint8_t all[SMX_PORT_OWN_BYTES] = { [0 ... SMX_PORT_OWN_BYTES - 1] = 0xff };
	struct smx_port *port = calloc(1, sizeof(*port));

	if (!port)
		return NULL;
	port->ops = &loop_ops;
	port->own = all;
	port->max_payload_bytes = LOOP_PAYLOAD_BYTES;
	port->immediate = true;
	return port;
}
