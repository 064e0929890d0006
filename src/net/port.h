/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A port: moves frames. One file a medium; requester and responder never know which carries a frame. */
#ifndef SMX_NET_PORT_H
#define SMX_NET_PORT_H

#include "net/frame.h"

struct smx_port;

enum smx_listen { SMX_LISTEN_REQUESTS = 1, SMX_LISTEN_ANSWERS = 2 };

struct smx_port_public {
	uint32_t qps;		/* queue pairs */
	uint32_t waiting;	/* of those: for an answer */
	uint32_t rnr_waiting;	/* streams: for a receive at the peer */
	uint32_t blocked;	/* queue pairs: for room in a lane */
	uint64_t direct;	/* requests of its own that were carried out in another process's memory, ever */
};

/* What others may do without asking. */
enum smx_port_right { SMX_MAY_WRITE = 1, SMX_MAY_READ = 2, SMX_MAY_ATOMIC = 4 };

/* A one-sided request, as far as its target decides about it. */
struct smx_port_request {
	uint32_t src_qpn, dst_qpn;
	uint32_t rkey;
	uint32_t right;		/* the enum smx_port_right that it needs */
	uint64_t va, length;
	uint64_t dc_key;	/* DC */
	uint32_t psn;		/* RC: of the packet that the sender would send next */
	bool agreed;		/* RC: the responder has answered to a number of this sender's before */
	uint8_t transport;	/* enum smx_transport */
	uint16_t mtu_bytes;	/* the sender's */
};

/* One plain region: its addresses from start on lie from host on, in memory that is shared (base/share.h). Whatever the
 * rights, peers may read there what this process sends them. */
struct smx_port_key { uint32_t key, pdn, rights; uint64_t start, length, host; };

/* A queue pair that takes requests. */
struct smx_port_qp {
	uint32_t qpn, pdn, rights;	/* rights 0: it is not published */
	uint32_t peer;			/* connected types */
	uint32_t psn;			/* that it expected when this was published */
	uint64_t dc_key;		/* DCT */
	uint16_t mtu_bytes;
	uint8_t transport;
};

/* The requests of one stream of a queue pair, or whatever has its payload in a range of memory. */
struct smx_recall {
	uint32_t qpn;
	uint16_t stream;
	bool all_streams;
	uintptr_t start;
	uint64_t length;	/* 0: qpn and streams say which */
};

/* Takes a frame that arrived; f and its payload are valid during the call only. */
typedef void (*smx_port_deliver)(void *arg, struct smx_frame *f);

struct smx_port_ops {
	/* Sends f; payload is consumed or copied before it returns. Delivery may happen inside (loopback). */
	void (*send)(struct smx_port *port, struct smx_frame *f);
	/* Delivers what has arrived. RETURN when to call again: 0 at once, UINT64_MAX when something arrives. */
	uint64_t (*poll)(struct smx_port *port, uint64_t now_ns);
	void (*destroy)(struct smx_port *port);
	/* The rest may be NULL. */
	/* May f, of which all but the payload is known, be sent now? *most is how long its payload (or
	 * the part that a READ asks for) may be. After a false, room() is called when it is worth
	 * trying again. */
	bool (*admit)(struct smx_port *port, const struct smx_frame *f, uint64_t *most);
	/* Might poll() find something? Costs little; NULL: ask poll(). What waits for a time is not news. */
	bool (*has_news)(const struct smx_port *port);
	/* The medium gives out queue-pair numbers: the next 1024 start at *first. */
	bool (*numbers)(struct smx_port *port, uint32_t *first);
	/* Nobody need poll from now on: whoever sends what listen names (enum smx_listen) rings the bell.
	 * RETURN false if some of that has arrived. */
	bool (*doze)(struct smx_port *port, uint32_t listen);
	/* In the child of a fork: what the parent shares with others is the parent's. */
	void (*forked)(struct smx_port *port);
	/* The process ends: others are to see that it is gone, and it goes on alone. */
	void (*leave)(struct smx_port *port);
	/* A queue pair is connected to a number that is not here, though nobody else can be: says why, once. */
	void (*sought)(struct smx_port *port, uint32_t qpn);
	/* One-sided requests, carried out by who makes them. The owner publishes what they may do. When withdraw_key()
	 * or publish_qp() returns, nobody does what the entry before allowed. */
	void (*publish_key)(struct smx_port *port, const struct smx_port_key *key);
	void (*withdraw_key)(struct smx_port *port, uint32_t key);
	void (*publish_qp)(struct smx_port *port, const struct smx_port_qp *qp);
	/* Where byte off of the memory lies that the request names, of which *length bytes lie together. RETURN NULL
	 * when it is to be sent as a frame. Otherwise the whole request is allowed, what is to be done there is done at
	 * once, and reached() says that it was; there is no call in between. */
	void *(*reach)(struct smx_port *port, const struct smx_port_request *r, uint64_t off, uint64_t *length);
	/* RETURN false when what was done may have been for nothing. */
	bool (*reached)(struct smx_port *port);
	/* Frames whose payload was left in this process's memory, and was not read by now, are lost on the way: the
	 * memory may become something else's. */
	void (*recall)(struct smx_port *port, const struct smx_recall *what);
};

enum { SMX_PORT_NUMBERS = 1024 };

struct smx_port {
	const struct smx_port_ops *ops;
	uint64_t max_payload_bytes;	/* of one frame; 0: one path MTU */
	smx_port_deliver deliver;
	void *deliver_arg;
	void (*room)(void *arg);	/* with deliver_arg */
	bool immediate;			/* send() delivers, and poll() has nothing to do unless the bell changed */
	bool untimed;			/* poll() does not look at now_ns */
	bool prompt;			/* an acknowledgement leaves when it is sent: it waits for no other */
	bool polled;			/* poll() is called all the time: what can wait may wait for the next call */
	uint32_t turns;			/* of the device, counted by it: what is looked at once a turn */
	uint32_t changes;		/* of bell and linked, and of who is reachable: counted */
	bool lent;			/* payloads of frames have been left in this process's memory */
	bool linked;			/* other processes have made contact: polling may find something */
	uint32_t *bell;			/* futex word that others change and wake; NULL: there are no others */
	uint32_t bell_seen;		/* by poll() */
	uint64_t requests, answers;	/* frames from outside, ever */
	uint64_t direct;		/* requests that needed no frame, ever */
	struct smx_port_public *public;	/* what others may read of this device; NULL: nobody */
	/* A bit for each block of SMX_PORT_NUMBERS numbers: what goes there is delivered here, at once and
	 * without asking the port. NULL: the port is asked for all. */
	const uint8_t *own;
};

static inline void smx_port_recall(struct smx_port *port, const struct smx_recall *what)
{
	if (port->lent)
		port->ops->recall(port, what);
}

/* There is nobody that could have sent something. */
static inline bool smx_port_is_still(const struct smx_port *port)
{
	return port->immediate && (!port->bell || __atomic_load_n(port->bell, __ATOMIC_ACQUIRE) == port->bell_seen);
}

enum { SMX_PORT_OWN_BYTES = (1 << 24) / SMX_PORT_NUMBERS / 8 };

static inline bool smx_port_is_own(const struct smx_port *port, uint32_t qpn)
{
	uint32_t block = (qpn & 0xffffff) / SMX_PORT_NUMBERS;

	return port->own && port->own[block / 8] >> block % 8 & 1;
}

/* Is what is sent to qpn delivered after send() has returned, not within it? */
static inline bool smx_port_delivers_later(const struct smx_port *port, uint32_t qpn)
{
	return port->own ? !smx_port_is_own(port, qpn) : !port->immediate;
}

#endif
