/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The responder's order of things: sequence, rights, then the operation, then the answer.
 *
 * Each step either lets the frame pass or has dealt with it. Answers leave last, since on loopback
 * the requester acts on them before send() returns. */
#include "xport/responder.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xport/direct.h"

static uint32_t psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & SMX_RESP_PSN_MASK;
}

/* How far a is ahead of b; negative when it is behind. */
static int32_t psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static uint32_t own_mtu(const struct smx_qp *qp)
{
	return 128u << qp->cur.path_mtu;
}

/* Creation and states */

/* Which queue an XRC target receives from, each request says. */
static uint32_t recv_room(const struct smx_qp *qp)
{
	uint32_t room = smx_recv_room(qp->attr.srq ? qp->attr.srq->attr.stride_bytes : qp->rq.stride_bytes);

	if (qp->attr.type == SMX_QP_XRC_TGT)
		return SMX_RECV_SGE_MAX;
	return room ? room : 1;
}

struct smx_resp_ctx *smx_resp_ctx_new(const struct smx_qp *qp)
{
	uint32_t room = qp ? recv_room(qp) : SMX_RECV_SGE_MAX;

	return calloc(1, sizeof(struct smx_resp_ctx) + room * sizeof(struct smx_sge));
}

int smx_resp_create(struct smx_dev *dev, struct smx_qp *qp)
{
	(void)dev;
	if (qp->attr.type == SMX_QP_XRC_INI || qp->attr.type == SMX_QP_DCI)
		return 0;
	qp->resp = calloc(1, sizeof(*qp->resp));
	if (!qp->resp)
		return ENOMEM;
	if (qp->attr.type == SMX_QP_DCT)
		return 0;
	qp->resp->one = smx_resp_ctx_new(qp);
	if (!qp->resp->one) {
		smx_resp_destroy(qp);
		return ENOMEM;
	}
	return 0;
}

void smx_resp_destroy(struct smx_qp *qp)
{
	if (!qp->resp)
		return;
	smx_resp_dc_forget(qp->resp);
	free(qp->resp->one);
	free(qp->resp);
	qp->resp = NULL;
}

void smx_resp_reset(struct smx_qp *qp)
{
	struct smx_responder *r = qp->resp;

	if (!r)
		return;
	smx_resp_dc_forget(r);
	if (r->one)
		smx_resp_tag_forget(qp, r->one);
	if (r->one)
		smx_resp_ctx_init(qp, r->one, 0);
	r->established = false;
	r->flushed = false;
}

static uint8_t transport_of(enum smx_qp_type type)
{
	static const uint8_t transport[] = {
		[SMX_QP_RC] = SMX_TP_RC, [SMX_QP_UC] = SMX_TP_UC, [SMX_QP_UD] = SMX_TP_UD,
		[SMX_QP_XRC_INI] = SMX_TP_XRC, [SMX_QP_XRC_TGT] = SMX_TP_XRC,
		[SMX_QP_DCI] = SMX_TP_DC, [SMX_QP_DCT] = SMX_TP_DC,
	};

	return transport[type];
}

/* The scatter list of a context is large and is not touched. */
void smx_resp_ctx_init(const struct smx_qp *qp, struct smx_resp_ctx *c, uint32_t epsn)
{
	c->epsn = epsn;
	c->msn = 0;
	c->nak_sent = false;
	c->failed = false;
	c->message = SMX_RESP_NO_MESSAGE;
	c->replay_at = 0;
	c->has_recv = false;
	c->tag.state = SMX_RESP_TAG_NO_LIST;
	memset(c->replay, 0, sizeof(c->replay));
	c->ack = (struct smx_frame){
		.transport = transport_of(qp->attr.type),
		.op = SMX_FRAME_ACK,
		.first = true,
		.last = true,
		.src_qpn = qp->qpn,
		.dst_qpn = qp->cur.dest_qp_num,
		.psn_count = 1,
		.syndrome = SMX_AETH_ACK | 0x1f,
		.mtu_bytes = own_mtu(qp),
	};
}

void smx_resp_path(struct smx_qp *qp)
{
	struct smx_frame *ack;

	if (!qp->resp || !qp->resp->one)
		return;
	ack = &qp->resp->one->ack;
	memcpy(ack->sgid, qp->path.sgid, sizeof(ack->sgid));
	memcpy(ack->dgid, qp->path.dgid, sizeof(ack->dgid));
	ack->sgid_index = qp->path.sgid_index;
	ack->hop_limit = qp->path.hop_limit;
	ack->traffic_class = qp->path.traffic_class;
	ack->sl = qp->path.sl;
	ack->flow_label = qp->path.flow_label;
	ack->udp_sport = qp->path.udp_sport;
}

void smx_resp_start(struct smx_qp *qp)
{
	if (!qp->resp || !qp->resp->one)
		return;
	smx_resp_ctx_init(qp, qp->resp->one, qp->cur.rq_psn);
	smx_resp_path(qp);
}

/* Answers */

void smx_resp_advance(struct smx_resp_work *w, uint32_t packets)
{
	w->c->epsn = psn_add(w->c->epsn, packets);
	w->c->nak_sent = false;
}

static void send_ack(struct smx_resp_work *w)
{
	struct smx_frame *ack = &w->c->ack;

	ack->psn = psn_add(w->c->epsn, SMX_RESP_PSN_MASK);
	ack->msn = w->c->msn;
	smx_xport_send(w->dev, ack);
}

void smx_resp_ack(struct smx_resp_work *w)
{
	if (w->f->ack_request && smx_resp_reliable(w))
		send_ack(w);
}

static void send_nak(struct smx_resp_work *w, uint8_t syndrome, uint32_t psn, enum smx_check check,
		     const char *text)
{
	struct smx_frame nak = w->c->ack;

	nak.psn = psn;
	nak.msn = w->c->msn;
	nak.syndrome = syndrome;
	nak.check = (uint16_t)check;
	nak.text = text;
	w->c->nak_sent = true;
	smx_xport_send(w->dev, &nak);
}

void smx_resp_rnr(struct smx_resp_work *w)
{
	if (!smx_resp_reliable(w)) {
		w->qp->resp->dropped++;
		w->c->failed = true;
		return;
	}
	send_nak(w, SMX_AETH_RNR | (w->qp->cur.min_rnr_timer & 0x1f), w->c->epsn, SMX_CHECK_NONE,
		 NULL);
}

static uint8_t nak_code(enum smx_check check)
{
	switch (smx_check_info(check)->syndrome) {
	case 0x13: /* remote access error */
		return SMX_AETH_NAK_ACCESS;
	case 0x14: /* remote operation error */
		return SMX_AETH_NAK_OPERATION;
	default:
		return SMX_AETH_NAK_INVALID;
	}
}

static void refuse_text(struct smx_resp_work *w, enum smx_check check, uint32_t psn,
			const char *text)
{
	struct smx_resp_ctx *c = w->c;

	c->failed = true;
	c->failed_psn = psn;
	if (!smx_resp_reliable(w)) {
		w->qp->resp->dropped++;
		c->message = SMX_RESP_NO_MESSAGE;
		return;
	}
	send_nak(w, nak_code(check), psn, check, text);
	if (w->qp->attr.type == SMX_QP_DCT)
		smx_resp_abort(w->dev, w->qp, c, SMX_CHECK_RECV_ABORTED);
	else
		smx_qp_fatal(w->dev, w->qp, check);
}

void smx_resp_refuse(struct smx_resp_work *w, enum smx_check check, uint32_t psn, const char *fmt,
		     ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(w->dev->frame_text, sizeof(w->dev->frame_text), fmt, args);
	va_end(args);
	refuse_text(w, check, psn, w->dev->frame_text);
}

void smx_resp_refuse_fault(struct smx_resp_work *w, const struct smx_dma_fault *fault, uint32_t psn)
{
	refuse_text(
		w, fault->check, psn,
		smx_walk_fault_text(w->dev, fault, w->dev->frame_text, sizeof(w->dev->frame_text)));
}

void smx_resp_source_fault(struct smx_resp_work *w, const struct smx_dma_fault *fault)
{
	w->f->gather_check = (uint16_t)fault->check;
	w->f->gather_text =
		smx_walk_fault_text(w->dev, fault, w->dev->frame_text, sizeof(w->dev->frame_text));
	w->qp->resp->dropped++;
}

/* Copying a payload */

static bool is_source_check(enum smx_check check)
{
	return check >= SMX_CHECK_GATHER_KEY && check <= SMX_CHECK_GATHER_DEPTH;
}

bool smx_resp_fetch(struct smx_pull *pull, uint8_t *to, uint64_t n)
{
	uint64_t off, got;

	if (!pull)
		return false;
	off = pull->off;
	if (pull->fetch(pull, to, n, &got) == SMX_PULLED)
		return true;
	pull->off = off;
	return false;
}

/* Most receives lie together, and so does what arrives. RETURN whether all n bytes are there; if not, the walks have
 * not moved, and store_any() finds out why. */
static bool store_together(struct smx_resp_work *w, struct smx_walk *dst, uint64_t n)
{
	uint8_t *ptr;

	if (!smx_walk_together(dst, n, &ptr) || !smx_resp_put(w, ptr, n))
		return false;
	smx_walk_pass(dst, n);
	return true;
}

/* Where each side ends early, so does this. */
static smx_outcome copy_payload(struct smx_resp_work *w, struct smx_walk *dst, uint64_t n, uint64_t *done,
				struct smx_dma_fault *fault)
{
	struct smx_frame *f = w->f;

	if (f->flat)
		return smx_dma_write(dst, f->flat, n, done, fault);
	return f->pull ? smx_dma_pull(dst, f->pull, n, done, fault) : smx_dma_copy(dst, f->walk, n, done, fault);
}

static bool store_any(struct smx_resp_work *w, struct smx_walk *dst, uint64_t n, uint64_t *done,
		      struct smx_dma_fault *fault)
{
	struct smx_frame *f = w->f;
	uint64_t fits = smx_walk_check(dst, n, fault);
	uint64_t began_off = dst->sge_off;
	uint32_t began_at = dst->sge_at;
	struct smx_dma_fault copy_fault;
	smx_outcome check;

	assert(n <= f->length);
	if (fits < n)
		fits -= fits % w->mtu;
	check = copy_payload(w, dst, fits, done, &copy_fault);
	if (check && f->pull && f->pull->gone) {	/* it may be sent again */
		dst->sge_at = began_at;
		dst->sge_off = began_off;
		dst->depth = 0;
	}
	if (!check && *done == n)
		return true;
	if (check && is_source_check(check)) {
		smx_resp_source_fault(w, &copy_fault);
		fault->check = SMX_CHECK_NONE;
		return false;
	}
	if (check) { /* the memory went away between looking and writing, or was never there */
		*done -= *done % w->mtu;
		*fault = copy_fault;
	}
	return false;
}

bool smx_resp_store(struct smx_resp_work *w, struct smx_walk *dst, uint64_t n, uint64_t *done,
		    struct smx_dma_fault *fault)
{
	if (!store_together(w, dst, n))
		return store_any(w, dst, n, done, fault);
	*done = n;
	return true;
}

bool smx_resp_store_whole(struct smx_resp_work *w, struct smx_walk *dst)
{
	uint64_t n = w->f->length, done;
	struct smx_dma_fault fault;

	if (store_together(w, dst, n))
		return true;
	return smx_walk_check(dst, n, &fault) == n && !copy_payload(w, dst, n, &done, &fault) && done == n;
}

/* Sequence */

/* Cuts off the first packets of a frame, which were executed before. */
static bool trim(struct smx_resp_work *w, uint32_t packets)
{
	struct smx_frame *f = w->f;
	uint64_t bytes = (uint64_t)packets * w->mtu;
	struct smx_dma_fault fault;

	assert(bytes < f->length);
	if (f->flat) {
		f->flat = (const uint8_t *)f->flat + bytes;
	} else if (f->pull) {
		f->pull->off += bytes;
	} else if (smx_walk_skip(f->walk, bytes, &fault)) {
		smx_resp_source_fault(w, &fault);
		return false;
	}
	f->psn = psn_add(f->psn, packets);
	f->length -= bytes;
	f->first = false;
	w->packets -= packets;
	return true;
}

static bool has_replay(const struct smx_frame *f)
{
	return f->op == SMX_FRAME_READ_REQUEST || f->op == SMX_FRAME_ATOMIC_REQUEST;
}

/* XRC: the frame says which receive queue it is for; it also says whose memory is meant where the
 * target itself belongs to no protection domain. RETURN false where it says neither. */
static bool find_xrc(struct smx_resp_work *w)
{
	struct smx_srq *srq;

	if (w->qp->attr.type != SMX_QP_XRC_TGT)
		return true;
	srq = smx_idmap_get(&w->dev->srqs, w->f->xrc_srqn);
	if (srq && srq->attr.xrcd && srq->attr.xrcd == w->qp->attr.xrcd) {
		w->srq = srq;
		if (!w->pd)
			w->pd = srq->attr.pd;
		return true;
	}
	/* Its own protection domain will do where no receive is needed. */
	return w->pd && w->f->op != SMX_FRAME_SEND && !w->f->has_imm;
}

static bool has_dc_key(const struct smx_resp_work *w)
{
	return w->qp->attr.type != SMX_QP_DCT || w->f->dc_key == w->qp->attr.dc_key;
}

/* IBA 9.7.5: what is expected passes; what is missing is said once; what was executed is answered
 * again, to whoever could have asked for it the first time. */
static bool check_psn(struct smx_resp_work *w)
{
	int32_t ahead = psn_diff(w->f->psn, w->c->epsn);

	if (ahead == 0)
		return true;
	if (ahead > 0) {
		w->qp->resp->dropped++;
		if (!w->c->nak_sent)
			send_nak(w, SMX_AETH_NAK_SEQUENCE, w->c->epsn, SMX_CHECK_NONE, NULL);
		return false;
	}
	if (has_replay(w->f)) {
		if (find_xrc(w) && has_dc_key(w))
			smx_resp_replay(w);
		else
			w->qp->resp->dropped++;
		return false;
	}
	if ((uint32_t)-ahead < w->packets)
		return trim(w, (uint32_t)-ahead);
	send_ack(w);
	return false;
}

/* UC: a message that lost a packet ends there; the next one begins afresh (IBA 9.8.3). Its receive,
 * if it has one, is used again. */
static bool check_psn_unreliable(struct smx_resp_work *w)
{
	struct smx_resp_ctx *c = w->c;

	if (w->f->first) {
		c->failed = false;
		c->message = SMX_RESP_NO_MESSAGE;
		c->epsn = w->f->psn;
		return true;
	}
	if (!c->failed && c->message != SMX_RESP_NO_MESSAGE && w->f->psn == c->epsn)
		return true;
	c->failed = true;
	c->message = SMX_RESP_NO_MESSAGE;
	w->qp->resp->dropped++;
	return false;
}

/* Does the frame continue what is in progress, and is each packet but the last full? */
static bool check_op_sequence(struct smx_resp_work *w)
{
	static const uint8_t message_of[] = {
		[SMX_FRAME_SEND] = SMX_RESP_IN_SEND,
		[SMX_FRAME_WRITE] = SMX_RESP_IN_WRITE,
		[SMX_FRAME_READ_REQUEST] = SMX_RESP_NO_MESSAGE,
		[SMX_FRAME_ATOMIC_REQUEST] = SMX_RESP_NO_MESSAGE,
	};
	struct smx_frame *f = w->f;
	uint8_t want = SMX_RESP_NO_MESSAGE;

	if (f->first && f->last && w->c->message == SMX_RESP_NO_MESSAGE)
		return true;
	if (!f->first)
		want = message_of[f->op];
	if (w->c->message != want || (!f->first && want == SMX_RESP_NO_MESSAGE)) {
		smx_resp_refuse(w, SMX_CHECK_REMOTE_SEQUENCE, w->c->epsn,
				"psn %" PRIu32 " %s a message, the one before is %s", f->psn,
				f->first ? "begins" : "continues",
				w->c->message == SMX_RESP_NO_MESSAGE ? "complete" : "not complete");
		return false;
	}
	if (!f->last && (f->length == 0 || f->length % w->mtu)) {
		smx_resp_refuse(
			w, SMX_CHECK_REMOTE_LENGTH, w->c->epsn,
			"psn %" PRIu32 " length %" PRIu64
			" is not the message's end and not a multiple of the path MTU %" PRIu32,
			f->psn, f->length, w->mtu);
		return false;
	}
	return true;
}

/* Rights that need no look at memory */

static bool check_mtu(struct smx_resp_work *w)
{
	const struct smx_frame *f = w->f;
	uint32_t own = own_mtu(w->qp), least = own < w->mtu ? own : w->mtu;
	uint64_t bytes;

	if (w->mtu == own)
		return true;
	bytes = f->op == SMX_FRAME_READ_REQUEST ? f->dma_length : f->length;
	if (f->first && f->last && bytes <= least)
		return true;
	smx_resp_refuse(w, SMX_CHECK_REMOTE_MTU, w->c->epsn,
			"requester's path_mtu %" PRIu32 " bytes, responder's %" PRIu32, w->mtu,
			own);
	return false;
}

static bool check_access(struct smx_resp_work *w)
{
	static const struct {
		int flag;
		const char *name;
	} needs[] = {
		[SMX_FRAME_SEND] = { 0, "SEND" },
		[SMX_FRAME_WRITE] = { IBV_ACCESS_REMOTE_WRITE, "RDMA WRITE" },
		[SMX_FRAME_READ_REQUEST] = { IBV_ACCESS_REMOTE_READ, "RDMA READ" },
		[SMX_FRAME_ATOMIC_REQUEST] = { IBV_ACCESS_REMOTE_ATOMIC, "an atomic" },
	};
	const int need = needs[w->f->op].flag;

	if (w->f->op == SMX_FRAME_SEND)
		return true;
	if (!smx_resp_reliable(w) && has_replay(w->f)) {
		smx_resp_refuse(w, SMX_CHECK_REMOTE_OPCODE, w->c->epsn, "%s on UC",
				needs[w->f->op].name);
		return false;
	}
	if ((w->qp->cur.qp_access_flags & need) == (unsigned int)need)
		return true;
	smx_resp_refuse(w, SMX_CHECK_REMOTE_QP_ACCESS, w->c->epsn,
			"qp_access_flags 0x%x of queue pair 0x%06" PRIx32 ", %s needs 0x%x",
			w->qp->cur.qp_access_flags, w->qp->qpn, needs[w->f->op].name, need);
	return false;
}

/* Reads are answered as they arrive, so none is outstanding when the next one comes; only a limit
 * of 0 can be broken. A DC target's limit is the device's. */
static bool check_reads(struct smx_resp_work *w)
{
	if (!has_replay(w->f) || w->qp->attr.type == SMX_QP_DCT || w->qp->cur.max_dest_rd_atomic)
		return true;
	smx_resp_refuse(w, SMX_CHECK_REMOTE_READS, w->c->epsn, "max_dest_rd_atomic 0");
	return false;
}

static bool check_xrc(struct smx_resp_work *w)
{
	if (find_xrc(w))
		return true;
	smx_resp_refuse(w, SMX_CHECK_REMOTE_SRQN, w->c->epsn, "srqn 0x%06" PRIx32 " %s",
			w->f->xrc_srqn, smx_idmap_get(&w->dev->srqs, w->f->xrc_srqn) ?
			"belongs to another XRC domain" : "is not there");
	return false;
}

static bool check_dc_key(struct smx_resp_work *w)
{
	if (has_dc_key(w))
		return true;
	smx_resp_refuse(w, SMX_CHECK_REMOTE_DC_KEY, w->c->epsn,
			"dc key 0x%" PRIx64 " sent to DCT 0x%06" PRIx32, w->f->dc_key, w->qp->qpn);
	return false;
}

static uint32_t count_packets(const struct smx_frame *f, uint32_t mtu)
{
	uint64_t bytes = f->op == SMX_FRAME_READ_REQUEST     ? f->dma_length
			 : f->op == SMX_FRAME_ATOMIC_REQUEST ? 0
							     : f->length;

	return bytes <= mtu ? 1 : (uint32_t)((bytes - 1) / mtu) + 1;
}

static void note_established(struct smx_dev *dev, struct smx_qp *qp)
{
	struct smx_responder *r = qp->resp;

	if (r->established || (qp->attr.type != SMX_QP_RC && qp->attr.type != SMX_QP_UC))
		return;
	r->established = true;
	smx_direct_publish(dev, qp);
	if (dev->attr.env.async_event)
		dev->attr.env.async_event(IBV_EVENT_COMM_EST, qp->attr.cookie, dev->attr.env.arg);
}

/* The commonest messages, of which nothing can fail any more. RETURN false for all others. */
static bool execute_whole(struct smx_resp_work *w)
{
	const struct smx_frame *f = w->f;
	const void *data;
	uint8_t room[64];

	if (!f->first || !f->last || (f->op != SMX_FRAME_SEND && !(f->op == SMX_FRAME_WRITE && f->has_imm)) ||
	    !smx_resp_take_whole(w, room, &data))
		return false;
	smx_resp_advance(w, w->packets);
	w->c->msn = (w->c->msn + 1) & SMX_RESP_PSN_MASK;
	smx_resp_complete_and_ack(w, f->length, data);
	return true;
}

static void execute(struct smx_resp_work *w)
{
	if (execute_whole(w))
		return;
	switch (w->f->op) {
	case SMX_FRAME_SEND:
		smx_resp_send(w);
		break;
	case SMX_FRAME_WRITE:
		smx_resp_write(w);
		break;
	case SMX_FRAME_READ_REQUEST:
		smx_resp_read(w);
		break;
	default:
		assert(w->f->op == SMX_FRAME_ATOMIC_REQUEST);
		smx_resp_atomic(w);
		break;
	}
}

void smx_resp_receive(struct smx_dev *dev, struct smx_qp *qp, struct smx_frame *f)
{
	struct smx_resp_work w = {
		.dev = dev,
		.qp = qp,
		.f = f,
		.c = qp->resp->one,
		.mtu = f->mtu_bytes ? f->mtu_bytes : own_mtu(qp),
		.srq = qp->attr.srq,
		.pd = qp->attr.pd,
	};

	if (f->transport != transport_of(qp->attr.type)) {
		qp->resp->dropped++;
		return;
	}
	if (qp->attr.type == SMX_QP_UD) {
		smx_resp_datagram(dev, qp, f);
		return;
	}
	if (qp->attr.type == SMX_QP_DCT) {
		w.c = smx_resp_dc_find(dev, qp, f);
		if (!w.c) {
			qp->resp->dropped++;
			return;
		}
	}
	w.packets = count_packets(f, w.mtu);
	if (qp->state == IBV_QPS_RTR)
		note_established(dev, qp);
	if (smx_resp_reliable(&w) ? !check_psn(&w) : !check_psn_unreliable(&w))
		return;
	if (check_dc_key(&w) && check_op_sequence(&w) && check_mtu(&w) && check_access(&w) &&
	    check_reads(&w) && check_xrc(&w))
		execute(&w);
}
