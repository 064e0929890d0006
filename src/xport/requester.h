/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The sending half of a queue pair: what rc_req.c (sending), rc_comp.c (answers), req_error.c
 * (failing and flushing), ud_req.c and dc_req.c share.
 *
 * A queue pair has one requester for each stream of a DCI and one otherwise. A stream is a list
 * of WQEs, linked through their slots: oldest (not completed) ... current (next to be sent,
 * perhaps in part) ... newest.
 *
 * Every send may deliver within the call, and the answer may complete, rewind or fail what is
 * being sent. So state is brought up to date before a frame leaves, and read again after. */
#ifndef SMX_XPORT_REQUESTER_H
#define SMX_XPORT_REQUESTER_H

#include "base/bits.h"
#include "net/frame.h"
#include "net/port.h"
#include "obj/qp.h"
#include "xport/timer.h"
#include "xport/xport.h"

enum {
	SMX_PSN_MASK = 0xffffff,
	/* packets without answer; 24 bits can tell twice as many apart */
	SMX_PSN_WINDOW = 1 << 22,
	/* packets of a long message after which an ACK is asked for */
	SMX_ACK_EVERY = 64,
	/* what a frame costs of a turn's budget besides its payload */
	SMX_WQE_COST_BYTES = 64,
	SMX_RETRY_FOREVER = 7,		/* of rnr_retry */
};
#define SMX_MESSAGE_MAX_BYTES (1ull << 30)	/* max_msg_sz of the port */

/* Real devices do not fire sooner, however small the timeout (FACTS section 2). */
#define SMX_ACK_TIMEOUT_FLOOR_NS 8388608ull	/* 2 x 4.096 us x 2^10 */

struct smx_requester {
	uint32_t oldest, current, newest;	/* block counters in the send queue */
	bool has_oldest, has_current;		/* without oldest there is no newest either */
	bool active;			/* on qp->active */
	bool running;			/* inside run_stream() */
	bool stalled;			/* waits for an answer to something before current */
	bool rnr_wait;			/* the peer had no receive; until deadline_ns */
	bool errored;			/* DCI: the stream is in error until it is reset */
	bool started;			/* has its first PSN; until RESET */
	bool port_full;			/* the port had no room for what comes next */
	bool asked;			/* a lost response was asked for again; until una_psn moves */
	/* DCI: peer is the target of what is outstanding or was sent last */
	bool connected;
	uint8_t retries, rnr_retries;	/* left */
	uint32_t next_psn;		/* of the next packet to be sent */
	uint32_t una_psn;		/* of the oldest packet that was not answered */
	uint32_t sent_psn;		/* one after the last packet ever sent */
	uint64_t direct_off;		/* of current, which needs no frame: bytes done in earlier turns */
	uint32_t reads;			/* READs and atomics that were sent and are not completed */
	/* a WQE failed here, and completes when all before it have */
	smx_outcome failing;
	uint32_t failing_at;
	smx_outcome root;		/* errored: why */
	uint64_t deadline_ns;		/* ACK timeout or RNR wait; UINT64_MAX: none */
	struct smx_requester *active_next;
	uint32_t connect_psn;
	struct smx_wqe_av peer;
};

/* What the requester that runs, and the completer that was called last, decode into; one each for
 * a device. */
struct smx_req_work {
	struct smx_send_req tx;
	struct smx_send_req rx;
	const struct smx_requester *tx_of;	/* whose WQE tx is; NULL: none */
	bool tx_tried;			/* tx was tried without a frame, in vain */
	const struct smx_requester *frame_of;	/* whose path frame holds; NULL: none */
	uint32_t tx_at;
	/* where in its message walk stands; UINT64_MAX: nowhere */
	uint64_t walk_off;
	struct smx_walk walk;
	/* handed out with a frame that more frames follow */
	struct smx_walk frame_walk;
	struct smx_walk resp_walk;
	struct smx_frame frame;
	struct smx_resp_ctx *message;	/* xport/direct_send.c: of the one that is being carried out */
};

int smx_req_work_create(struct smx_dev *dev);
void smx_req_work_destroy(struct smx_dev *dev);

static inline uint32_t smx_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & SMX_PSN_MASK;
}

/* How far a is ahead of b; negative when it is behind. */
static inline int32_t smx_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline struct smx_sq_slot *smx_sq_slot(const struct smx_qp *qp, uint32_t at)
{
	return &qp->sq.slot[at & (qp->sq.bb_count - 1)];
}

static inline bool smx_op_is_read(uint8_t opcode)
{
	return opcode == SMX_OP_RDMA_READ || (opcode >= SMX_OP_ATOMIC_CS &&
					      opcode <= SMX_OP_ATOMIC_MASKED_FA);
}

static inline bool smx_op_is_send(uint8_t opcode)
{
	return opcode == SMX_OP_SEND || opcode == SMX_OP_SEND_IMM || opcode == SMX_OP_SEND_INVAL;
}

static inline bool smx_qp_is_reliable(const struct smx_qp *qp)
{
	return qp->attr.type != SMX_QP_UD && qp->attr.type != SMX_QP_UC;
}

static inline uint32_t smx_req_stream_count(const struct smx_qp *qp)
{
	return qp->attr.type == SMX_QP_DCI ? 1u << qp->attr.log_streams : 1;
}

static inline struct smx_requester *smx_req_stream(const struct smx_qp *qp, uint16_t stream)
{
	return &qp->req[stream & (smx_req_stream_count(qp) - 1)];
}

static inline const struct smx_wqe_ctrl *smx_sq_ctrl(const struct smx_qp *qp, uint32_t at)
{
	size_t block = at & (qp->sq.bb_count - 1);

	return (const struct smx_wqe_ctrl *)(qp->sq.buf + block * SMX_WQE_BB);
}

/* The stream of the WQE that lies there now. */
static inline struct smx_requester *smx_sq_stream(const struct smx_qp *qp, uint32_t at)
{
	return qp->attr.type == SMX_QP_DCI ? smx_req_stream(qp, from_be16(smx_sq_ctrl(qp, at)->dci_stream)) : qp->req;
}

static inline uint32_t smx_req_mtu(const struct smx_dev *dev, const struct smx_qp *qp)
{
	return qp->attr.type == SMX_QP_UD ? dev->attr.mtu_bytes : 128u << qp->cur.path_mtu;
}

/* Nothing of the stream can be sent for now, whatever is posted. Behind a WQE that failed nothing is, but what
 * is before it may have to be sent again. */
static inline bool smx_req_is_held(const struct smx_requester *st)
{
	if (__builtin_expect(st->failing != SMX_CHECK_NONE, 0) &&
	    (!st->has_current || (int32_t)(st->current - st->failing_at) >= 0))
		return true;
	return st->rnr_wait || st->errored;
}

struct smx_where smx_req_where(const struct smx_qp *qp, uint32_t at);

/* rc_req.c */
/* The stream can go on: puts it on qp->active and qp on dev->ready, unless it is running. */
void smx_req_wake(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st);
/* Sending goes on, or starts again, with packet psn. */
void smx_req_seek(struct smx_qp *qp, struct smx_requester *st, uint32_t psn);
/* The WQE at the block counter at cannot be carried out: it completes in error as soon as all
 * before it have. */
void smx_req_fail_later(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			uint32_t at,
			smx_outcome check);
/* dev->req_work->tx, which nothing of its stream is before, has been carried out without a frame: completes it with
 * success. inline_data: NULL, or the message, which goes into the CQE. */
void smx_req_done(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, const void *inline_data);
/* The same in error. */
void smx_req_fail_front(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, smx_outcome check);
/* Fetches the WQE of a request that was sent. RETURN false if the program has changed it since. */
bool smx_req_refetch(struct smx_dev *dev, struct smx_qp *qp, uint32_t at, struct smx_send_req *out);

/* req_queue.c: the send queue as blocks, slots and lists. */
/* The doorbell record cannot be believed, so nothing rung after it can: the queue pair goes into error. */
void smx_sq_overrun(struct smx_dev *dev, struct smx_qp *qp, uint16_t added) __attribute__((cold));
/* How many blocks were rung that are not taken over yet, by the doorbell record. */
static inline uint16_t smx_sq_rung(const struct smx_qp *qp)
{
	const struct smx_sq *sq = &qp->sq;

	return (uint16_t)(be32_load_acquire((const uint32_t *)sq->dbrec + SMX_DBREC_SND) - sq->pi);
}
/* Takes over the producer index from the doorbell record. RETURN false if it claims more than the
 * ring holds: the queue pair is in error then. */
static inline bool smx_sq_read_doorbell(struct smx_dev *dev, struct smx_qp *qp)
{
	struct smx_sq *sq = &qp->sq;
	uint16_t added;

	if (!sq->bb_count || qp->sq_halted)
		return !qp->sq_halted;
	added = smx_sq_rung(qp);
	if (added > sq->bb_count - (sq->pi - sq->ci)) {
		smx_sq_overrun(dev, qp, added);
		return false;
	}
	sq->pi += added;
	return true;
}
/* Cuts what was rung into WQEs and gives each to its stream. */
void smx_sq_assign(struct smx_dev *dev, struct smx_qp *qp);
/* The queue pair waits for room at the port from now on, or no longer. */
void smx_req_set_blocked(struct smx_dev *dev, struct smx_qp *qp, bool blocked);
/* The stream waits for the peer's receive from now on, or no longer. */
void smx_req_set_rnr_wait(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, bool waits);
/* Takes the oldest WQE out of the stream's list, completed. */
void smx_sq_retire(struct smx_qp *qp, struct smx_requester *st);

/* rc_comp.c */
/* What the CQE of a WQE that succeeded tells. */
struct smx_comp {
	uint32_t at;			/* block counter */
	uint32_t bytes;			/* of the message */
	uint8_t opcode, fm_ce_se;
	uint32_t inline_bytes;		/* of inline_data go into the CQE (scatter to CQE); 0: none */
	const void *inline_data;
};
/* The WQE, which is out of its stream by now, is completed: a CQE, if it asked for one. */
void smx_comp_put(struct smx_dev *dev, struct smx_qp *qp, const struct smx_comp *c);
/* Its CQE alone. */
void smx_comp_write(struct smx_qp *qp, const struct smx_comp *c, uint64_t now_ns);
/* Completes the stream's oldest WQE with success. inline_bytes and inline_data as above. */
void smx_comp_done(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		   const void *inline_data,
		   uint32_t inline_bytes);
/* May the request's response go into its CQE instead of memory? */
bool smx_comp_fits_cqe(struct smx_dev *dev, const struct smx_qp *qp, const struct smx_send_req *req);
/* Sets or takes off the queue pair's deadline after a stream's changed. */
void smx_req_set_deadline(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			  uint64_t deadline_ns);
/* Starts the wait for an answer, if there is something to wait for. */
void smx_req_arm(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st);
/* The wait for a receive is over; counted against rnr_retry or not. */
void smx_req_end_rnr_wait(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st);
/* A receive was posted to rq, or to srq: peers on this device that wait for one need not wait
 * longer. */
void smx_req_receive_posted(struct smx_dev *dev, const struct smx_qp *rq,
			    const struct smx_srq *srq);
/* SQD: tells the program, once, when nothing is outstanding. */
void smx_req_check_drained(struct smx_dev *dev, struct smx_qp *qp);

/* req_error.c */
/* The stream's oldest WQE completes in error because of check; then its stream, its send queue or
 * its queue pair goes into error, as the type demands. The refusal has been recorded. */
void smx_req_fail(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		  smx_outcome check);
/* Completes, as flushed, all that is outstanding in a stream. */
void smx_req_flush_stream(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st);
/* Completes everything that was rung; the first as FLUSH_CURRENT if current says so. */
void smx_req_flush_all(struct smx_dev *dev, struct smx_qp *qp, bool current);
/* What the stream, or with NULL the queue pair, has sent and no receiver has read is not read any more: the program may
 * use its buffers. Before anything completes that was not answered. */
void smx_req_recall(const struct smx_qp *qp, const struct smx_requester *st);
/* Takes everything off: waits, lists, counters of retries. */
void smx_req_stop_stream(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st);

/* resp_tag.c: a WQE at the block counter at of the device's own queue is done. */
void smx_rndv_completed(struct smx_dev *dev, struct smx_qp *qp, uint32_t at, uint32_t bytes, bool failed);

/* ud_req.c, dc_req.c: the address of a request, from its address vector. */
smx_outcome smx_ud_address(struct smx_dev *dev, struct smx_qp *qp, const struct smx_send_req *req,
			   struct smx_frame *f);
smx_outcome smx_dc_address(struct smx_dev *dev, struct smx_qp *qp, const struct smx_send_req *req,
			   struct smx_frame *f);
smx_outcome smx_av_to_path(struct smx_dev *dev, struct smx_qp *qp, const struct smx_send_req *req,
			   struct smx_frame *f);
/* The source GID; NULL where the port has none of that index. */
const uint8_t *smx_av_source(const struct smx_dev *dev, const struct smx_wqe_av *av);
/* RETURN whether a request with this address has to wait until the stream's earlier ones are
 * answered. */
bool smx_dc_must_wait(const struct smx_requester *st, const struct smx_wqe_av *av);
/* The stream's target is that of av from now on. */
void smx_dc_connect(struct smx_requester *st, const struct smx_wqe_av *av);

#endif
