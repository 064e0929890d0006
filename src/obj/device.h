/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of one device: its tables and what it was given from outside. */
#ifndef SMX_OBJ_DEVICE_H
#define SMX_OBJ_DEVICE_H

#include "base/idmap.h"
#include "base/list.h"
#include "obj/attr.h"
#include "trace/refusal.h"

struct smx_port;

struct smx_pd { uint32_t pdn; uint32_t users; };
struct smx_xrcd { uint32_t xrcdn; uint32_t users; };

enum { SMX_TIMER_TICK_BITS = 18, SMX_TIMER_SLOTS = 256 };	/* of 0.26 ms, for 67 ms */

/* A UD queue pair's membership of a multicast group. */
struct smx_mcast {
	uint8_t gid[16];
	struct smx_qp *qp;
	struct smx_mcast *next;
};

struct smx_dev {
	struct smx_dev_attr attr;
	struct smx_idmap mkeys;		/* by key index (key >> 8) */
	struct smx_idmap qps;		/* by QP number; a reserved number maps to &dev->reserved_qp */
	struct smx_idmap cqs, srqs, pds, xrcds;
	struct smx_port *port;		/* the medium of port 1 */
	struct smx_qp *ready_head, **ready_tail;	/* queue pairs whose requester has work */
	uint32_t timers;		/* queue pairs with a deadline; see xport/timer.h */
	uint64_t timers_due_ns;		/* no deadline is earlier */
	uint32_t rnr_waiting;		/* streams that wait for a peer's receive */
	struct smx_list_link *rnr;		/* queue pairs that have some */
	uint64_t now_ns;		/* valid while now_known; see smx_now() */
	bool now_known;
	int64_t budget_bytes;		/* what is left of this turn */
	uint8_t next_tag;
	uint32_t mkey_changes;		/* counts what may move memory under a walk: see obj/dma.h */
	char reserved_qp;
	char frame_text[240];		/* where a frame's text or gather_text may lie */
	struct smx_req_work *req_work;	/* xport/requester.h: what the running requester and completer decode into */
	struct smx_mcast *mcasts;
	uint8_t gid[256][16];		/* source GIDs by index, as far as smx_dev_set_gid() told; all zero: none */
	uint32_t gid_count;		/* 0: nothing was told */
	struct smx_list_link *blocked;	/* queue pairs that wait for room at the port */
	uint32_t blocked_count;
	bool reachable;			/* a queue pair takes requests that may come from other processes */
	uint32_t *qpn_block;		/* first numbers of the blocks that the port gave */
	uint32_t qpn_blocks, qpn_next;	/* qpn_next: offset in all of them, where the search starts */
	uint32_t next_nonce;		/* of DCIs, see smx_frame.dc_nonce */
	struct smx_list_link *watched;	/* queue pairs whose doorbell records the device itself looks at */
	struct smx_list_link *watched_cqs;	/* and completion queues */
	bool watched_err;		/* one of the queue pairs is in ERR and has a receive queue */
	struct smx_list_link *timer_slot[SMX_TIMER_SLOTS];
};

/* The time of this turn; the clock is read at most once a turn, and only if somebody asks. */
static inline uint64_t smx_now(struct smx_dev *dev)
{
	if (!dev->now_known) {
		dev->now_ns = dev->attr.env.now(dev->attr.env.arg);
		dev->now_known = true;
	}
	return dev->now_ns;
}

/* What became of an operation: a check that refused it, or SMX_CHECK_NONE. Returned by value. The
 * refusal has been recorded by smx_refuse() where the check was made. */
typedef enum smx_check smx_outcome;

#endif
