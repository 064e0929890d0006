/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The responder: what a queue pair knows of those who send to it.
 *
 * rc_resp.c      order of the checks, sequence numbers, answers
 * resp_rdma.c    WRITE, READ, atomics
 * resp_recv.c    messages that meet a receive
 * resp_tag.c     messages to a tag matching SRQ
 * resp_dc.c      who is connected to a DC target
 *
 * A frame passes the checks in the order that real devices have them: sequence, the queue pair's
 * access flags, the number of outstanding reads, then rkey, range and memory. A frame may stand for
 * many packets; every rule that hardware applies to a packet is applied to each of its packets, so
 * that what was written when a rule breaks is what hardware would have written. */
#ifndef SMX_XPORT_RESPONDER_H
#define SMX_XPORT_RESPONDER_H

#include "xport/xport.h"

enum {
	SMX_RESP_PSN_MASK = 0xffffff,
	SMX_RESP_REPLAYS = 16,		/* the most that max_dest_rd_atomic can ask for */
	SMX_RESP_DC_BUCKETS = 64,
	SMX_RESP_DC_SOURCES = 1024,	/* a DC target's; the one unused longest makes room for another */
};

/* A READ or atomic that was answered, in case that it is asked again. */
struct smx_resp_replay {
	uint32_t psn, psn_count;	/* psn_count 0: unused */
	bool is_atomic;
	uint64_t old;			/* atomic: the value that was answered */
};

enum smx_resp_message { SMX_RESP_NO_MESSAGE, SMX_RESP_IN_SEND, SMX_RESP_IN_WRITE };

/* What a message has to do with the list of a tag matching SRQ; the receive is the list entry's buffer from
 * SMX_RESP_TAG_WHOLE on. */
enum smx_resp_tag {
	SMX_RESP_TAG_NO_LIST,
	SMX_RESP_TAG_FREE,		/* it has no tag */
	SMX_RESP_TAG_UNEXPECTED,
	SMX_RESP_TAG_WHOLE,		/* matched, in one packet: one completion */
	SMX_RESP_TAG_MATCHED,		/* and that has been completed: one more, for the data */
	SMX_RESP_TAG_SW_RNDV,		/* rendezvous: the program has to fetch the payload */
	SMX_RESP_TAG_RNDV,		/* the device does */
};

/* One source: the peer of a connected queue pair, or a stream of a DCI at a DC target. */
struct smx_resp_ctx {
	uint32_t epsn, msn;		/* expected PSN; messages completed */
	bool nak_sent;			/* for what is missing from epsn on: say it once */
	bool failed;			/* refused or cut; ignored until the next connect, or message on UC */
	uint32_t failed_psn;	/* the packet that was refused; what came before it may have moved epsn past it */
	uint8_t message;		/* enum smx_resp_message: begun, more is to come */
	uint8_t replay_at;
	uint32_t rkey;			/* WRITE in progress: its next packet goes to va of rkey */
	uint64_t va, left;
	uint64_t received;		/* SEND in progress: bytes stored */
	bool has_recv;			/* recv was taken (from recv_srq or the own queue), not completed */
	struct smx_srq *recv_srq;
	struct smx_walk walk;		/* of recv, behind what is stored */
	struct smx_frame ack;		/* a positive acknowledgement, but for psn and msn */
	struct smx_resp_replay replay[SMX_RESP_REPLAYS];
	struct {
		uint8_t state;		/* enum smx_resp_tag */
		uint16_t index;
		struct smx_tmh tmh;
		struct smx_rvh rvh;
	} tag;
	/* DC */
	struct smx_resp_ctx *next;	/* of its bucket */
	struct smx_list_link of_dci;	/* the source's contexts, at all targets, where it is of this device */
	struct smx_qp *dct;
	uint32_t src_qpn, nonce;
	uint16_t stream;
	uint8_t src_gid[16];
	uint64_t used;			/* stamp of the last frame */
	struct smx_recv recv;		/* last: its list is as long as the queue pair's receives can be */
};

struct smx_responder {
	struct smx_resp_ctx *one;	/* all but DC */
	struct smx_resp_ctx **bucket;	/* DC: SMX_RESP_DC_BUCKETS of them, made when the first source comes */
	uint32_t sources;		/* DC: in the buckets */
	uint64_t stamp;
	uint64_t dropped;		/* frames that ended here without an answer */
	bool established;		/* IBV_EVENT_COMM_EST was raised */
	bool flushed;			/* IBV_EVENT_QP_LAST_WQE_REACHED was raised */
};

/* A frame being served. */
struct smx_resp_work {
	struct smx_dev *dev;
	struct smx_qp *qp;
	struct smx_resp_ctx *c;
	struct smx_frame *f;
	uint32_t mtu;			/* bytes of a full packet of this frame */
	uint32_t packets;		/* sequence numbers that the frame takes */
	struct smx_srq *srq;		/* where its receive comes from; NULL: the queue pair's own queue */
	const struct smx_pd *pd;	/* of the memory that its rkey names */
};

/* Requests are acknowledged. */
static inline bool smx_resp_reliable(const struct smx_resp_work *w)
{
	return w->qp->attr.type != SMX_QP_UC && w->qp->attr.type != SMX_QP_UD;
}

/* rc_resp.c */
/* For what qp receives; NULL: for any. RETURN NULL where there is no memory. */
struct smx_resp_ctx *smx_resp_ctx_new(const struct smx_qp *qp);
void smx_resp_ctx_init(const struct smx_qp *qp, struct smx_resp_ctx *c, uint32_t epsn);
void smx_resp_path(struct smx_qp *qp);	/* the queue pair's path changed: answers take the new one */
/* The first n packets are done: sequence numbers move on. */
void smx_resp_advance(struct smx_resp_work *w, uint32_t packets);
void smx_resp_ack(struct smx_resp_work *w);	/* if it was asked for */
/* Refuses the frame: NAK with psn and the sentence, then ERR (a DC target lives on). UC: the rest of
 * the message is dropped. */
void smx_resp_refuse(struct smx_resp_work *w, enum smx_check check, uint32_t psn, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), cold));
void smx_resp_refuse_fault(struct smx_resp_work *w, const struct smx_dma_fault *fault, uint32_t psn)
	__attribute__((cold));
void smx_resp_rnr(struct smx_resp_work *w);	/* no receive is posted; unreliable: silence */
/* The payload cannot be read: that is the sender's fault, who is told by way of the frame. */
void smx_resp_source_fault(struct smx_resp_work *w, const struct smx_dma_fault *fault)
	__attribute__((cold));
/* Copies up to n bytes of the frame's payload to dst, whole packets only where dst ends early.
 * RETURN whether all n were. If not, *done says how many; fault->check is what dst broke, or
 * SMX_CHECK_NONE when the frame was given up for its source's sake (and *done is of no interest). */
bool smx_resp_store(struct smx_resp_work *w, struct smx_walk *dst, uint64_t n, uint64_t *done,
		    struct smx_dma_fault *fault);
/* The payload's next n bytes, where they lie together, to memory that does and was looked at. RETURN false, with
 * nothing moved, where they do not, or cannot be copied so simply. */
bool smx_resp_fetch(struct smx_pull *pull, uint8_t *to, uint64_t n);
static inline bool smx_resp_put(const struct smx_resp_work *w, uint8_t *to, uint64_t n)
{
	const uint8_t *from = w->f->flat;
	const void *bad;

	if (!from)
		return smx_resp_fetch(w->f->pull, to, n);
	return (uintptr_t)to - (uintptr_t)from >= n && (uintptr_t)from - (uintptr_t)to >= n &&
	       w->dev->attr.env.copy(to, from, n, &bad);
}
/* smx_resp_store(), all of the payload or nothing, without a reason. Where the walks stand after a failure is not
 * said. */
bool smx_resp_store_whole(struct smx_resp_work *w, struct smx_walk *dst);

/* resp_rdma.c */
void smx_resp_write(struct smx_resp_work *w);
void smx_resp_read(struct smx_resp_work *w);
void smx_resp_atomic(struct smx_resp_work *w);
void smx_resp_replay(struct smx_resp_work *w);	/* a READ or atomic that was executed before */

/* resp_recv.c */
/* Takes a receive. RETURN false when there is none; the frame is dealt with then: RNR, or silence,
 * or an error where the queue itself is broken. */
bool smx_resp_take(struct smx_resp_work *w);
/* A message that is here whole, a SEND or a WRITE with immediate that may be carried out: stores it and takes a
 * receive, which is to be completed with *data; that lies in room, if anything. RETURN false, with no receive taken and
 * nobody told, where anything speaks against it: what it is, the slower way finds out. */
bool smx_resp_take_whole(struct smx_resp_work *w, uint8_t room[64], const void **data);
void smx_resp_send(struct smx_resp_work *w);
void smx_resp_datagram(struct smx_dev *dev, struct smx_qp *qp, struct smx_frame *f);
/* Completes the receive at hand well. bytes: of the message. inline_data: NULL, or what goes into
 * the CQE. */
void smx_resp_complete(struct smx_resp_work *w, uint64_t bytes, const void *inline_data);
/* The same, and acknowledges the message: first, where the answer leaves for somewhere else. Who sees the completion
 * may end the connection at once, by another way, and the answer must not come too late. Within the process it is last,
 * for it sets the requester going. */
void smx_resp_complete_and_ack(struct smx_resp_work *w, uint64_t bytes, const void *inline_data);
/* Completes the receive at hand, if there is one, in error. */
void smx_resp_abort(struct smx_dev *dev, struct smx_qp *qp, struct smx_resp_ctx *c, enum smx_check check);

static inline bool smx_resp_tag_matched(const struct smx_resp_ctx *c)
{
	return c->tag.state >= SMX_RESP_TAG_WHOLE;
}

/* resp_tag.c */
/* The first frame of a message to a tag matching SRQ: finds its entry, or takes a receive. RETURN false when the
 * frame is dealt with. */
bool smx_resp_tag_begin(struct smx_resp_work *w);
void smx_resp_tag_mark(const struct smx_resp_ctx *c, struct smx_cqe64 *cqe);	/* what the list adds to a completion */
void smx_resp_tag_rndv(struct smx_resp_work *w);	/* completes the match, and starts to fetch the payload */
/* The message in progress ends before it is complete. RETURN whether it had matched: then the entry has been
 * completed, as canceled. */
bool smx_resp_tag_forget(struct smx_qp *qp, struct smx_resp_ctx *c);

/* resp_dc.c */
/* RETURN the context of f's source; NULL if f belongs to no connection, or one that failed, and is
 * to be dropped. */
struct smx_resp_ctx *smx_resp_dc_find(struct smx_dev *dev, struct smx_qp *dct, const struct smx_frame *f);
/* Is something of a message of this source left that has not ended, or was given up? */
bool smx_resp_dc_has_message(const struct smx_qp *dct, uint32_t src_qpn, uint16_t stream);
void smx_resp_dc_forget(struct smx_responder *r);
/* A DCI of this device was reset, or goes: its sequence numbers start again, at every target. */
void smx_resp_dc_forget_source(struct smx_dev *dev, struct smx_qp *dci);

#endif
