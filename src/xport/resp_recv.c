/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Messages that meet a receive: SEND, the end of a WRITE with immediate, and datagrams.
 *
 * A receive is taken from its queue with the first packet and completed with the last. What is
 * wrong with the receive itself fails it, at the responder; the requester hears of it by NAK. */
#include "xport/responder.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

enum { GRH_BYTES = 40, IPV4_BYTES = 20, PROTO_UDP = 17 };

static struct smx_cq *recv_cq(const struct smx_qp *qp, const struct smx_resp_ctx *c)
{
	return c->recv_srq && c->recv_srq->attr.cq ? c->recv_srq->attr.cq : qp->attr.recv_cq;
}

/* Receives from a shared queue may write to the queue's protection domain, whoever receives. */
static const struct smx_pd *recv_pd(const struct smx_qp *qp, const struct smx_resp_ctx *c)
{
	return c->recv_srq && c->recv_srq->attr.pd ? c->recv_srq->attr.pd : qp->attr.pd;
}

static struct smx_where recv_where(const struct smx_qp *qp, const struct smx_resp_ctx *c,
				   uint32_t peer)
{
	return (struct smx_where){
		.qpn = qp->qpn,
		.peer_qpn = peer,
		.wqe_index = c->recv.wqe_index,
		.is_recv = 1,
		.cookie = qp->attr.cookie,
	};
}

/* Completing */

static uint8_t cqe_op(const struct smx_frame *f)
{
	if (f->op == SMX_FRAME_WRITE)
		return SMX_CQE_RESP_WR_IMM;
	if (f->has_imm)
		return SMX_CQE_RESP_SEND_IMM;
	return f->has_invalidate ? SMX_CQE_RESP_SEND_INV : SMX_CQE_RESP_SEND;
}

static bool is_v4_mapped(const uint8_t gid[16])
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid, prefix, sizeof(prefix));
}

/* A program that reads the header in front of a datagram's data learns its kind here. */
static uint8_t cqe_packet_type(const struct smx_frame *f)
{
	return SMX_CQE_ROCE_UDP | (is_v4_mapped(f->sgid) ? SMX_CQE_ROCE_IPV4 : SMX_CQE_ROCE_IPV6);
}

static uint8_t cqe_inline_flag(const struct smx_qp *qp, const void *inline_data)
{
	if (!inline_data)
		return 0;
	return qp->attr.resp_scatter_bytes == 64 ? SMX_CQE_INLINE_64 : SMX_CQE_INLINE_32;
}

/* Who sent it, where that differs from message to message. */
static uint32_t cqe_source(const struct smx_qp *qp, const struct smx_frame *f)
{
	if (qp->attr.type != SMX_QP_UD && qp->attr.type != SMX_QP_DCT)
		return 0;
	return bits_put(qp->attr.type == SMX_QP_UD, 29, 28) | bits_put(cqe_packet_type(f), 27, 24) |
	       bits_put(f->src_qpn, 23, 0);
}

void smx_resp_complete(struct smx_resp_work *w, uint64_t bytes, const void *inline_data)
{
	struct smx_resp_ctx *c = w->c;
	const struct smx_frame *f = w->f;
	struct smx_qp *qp = w->qp;
	struct smx_cq *cq = recv_cq(qp, c);
	struct smx_cqe64 *cqe = smx_cq_begin(w->dev, cq, smx_now(w->dev));
	/* A list entry is none of the receive queue's. */
	uint16_t index = smx_resp_tag_matched(c) ? 0 : c->recv.wqe_index;
	uint8_t op_own = (uint8_t)(cqe_op(f) << 4 | cqe_inline_flag(qp, inline_data) |
				   (f->solicited ? SMX_CQE_SOLICITED : 0));

	assert(c->has_recv);
	c->has_recv = false;
	if (cqe) {
		cqe->flags_rqpn = to_be32(cqe_source(qp, f));
		cqe->srqn_uidx = to_be32(c->recv_srq ? c->recv_srq->srqn : qp->attr.user_index);
		if (f->has_imm)
			memcpy(&cqe->imm_inval_pkey, &f->imm, sizeof(cqe->imm_inval_pkey));
		else if (f->has_invalidate)
			cqe->imm_inval_pkey = to_be32(f->imm);
		cqe->byte_cnt = to_be32((uint32_t)bytes);
		if (c->tag.state)
			smx_resp_tag_mark(c, cqe);
		if (inline_data)
			smx_cq_put_data(cq, cqe, op_own, inline_data);
		smx_cq_end(w->dev, cq, cqe, qp->qpn, index, op_own);
	} else {
		smx_qp_lost_completion(w->dev, qp);
	}
	c->tag.state = SMX_RESP_TAG_NO_LIST;
}

void smx_resp_complete_and_ack(struct smx_resp_work *w, uint64_t bytes, const void *inline_data)
{
	bool ack_first = smx_port_delivers_later(w->dev->port, w->f->src_qpn);

	if (ack_first)
		smx_resp_ack(w);
	smx_resp_complete(w, bytes, inline_data);
	if (!ack_first)
		smx_resp_ack(w);
}

static void complete_error(struct smx_dev *dev, struct smx_qp *qp, struct smx_resp_ctx *c,
			   enum smx_check check, const struct smx_where *where)
{
	uint32_t uidx = c->recv_srq ? c->recv_srq->srqn : qp->attr.user_index;

	c->has_recv = false;
	if (smx_resp_tag_forget(qp, c)) {
		/* an entry of a matching list has its own way to fail */
	} else if (check == SMX_CHECK_FLUSH_CURRENT || check == SMX_CHECK_FLUSH_BEHIND) {
		smx_cq_put_flush(dev, recv_cq(qp, c), check, qp->root, where, uidx);
	} else {
		smx_cq_put_error(dev, recv_cq(qp, c), check, where, uidx);
	}
	if (check == SMX_CHECK_FLUSH_CURRENT || check == SMX_CHECK_FLUSH_BEHIND)
		return;
	/* What is flushed behind it names it, not what the requester is told. A DCT goes on. */
	if (!qp->errored && qp->attr.type != SMX_QP_DCT) {
		qp->errored = true;
		qp->root = check;
	}
}

void smx_resp_abort(struct smx_dev *dev, struct smx_qp *qp, struct smx_resp_ctx *c,
		    enum smx_check check)
{
	struct smx_where where;

	c->message = SMX_RESP_NO_MESSAGE;
	if (!c->has_recv)
		return;
	where = recv_where(qp, c, c->ack.dst_qpn);
	if (check == SMX_CHECK_RECV_ABORTED)
		smx_refuse(dev->attr.env.refusals, check, &where, "%" PRIu64 " bytes were stored",
			   c->received);
	complete_error(dev, qp, c, check, &where);
}

static void flush_queue(struct smx_dev *dev, struct smx_qp *qp, struct smx_resp_ctx *c)
{
	struct smx_where where;

	c->recv_srq = NULL;
	while (smx_rq_take(&qp->rq, &c->recv)) {
		c->has_recv = true;
		where = recv_where(qp, c, 0);
		complete_error(dev, qp, c, SMX_CHECK_FLUSH_BEHIND, &where);
	}
}

void smx_resp_flush(struct smx_dev *dev, struct smx_qp *qp)
{
	struct smx_responder *r = qp->resp;

	if (!r || !r->one)
		return;
	smx_resp_abort(dev, qp, r->one,
		       r->one->message == SMX_RESP_IN_SEND ? SMX_CHECK_FLUSH_CURRENT
							   : SMX_CHECK_FLUSH_BEHIND);
	if (qp->rq.wqe_count) {
		flush_queue(dev, qp, r->one);
		dev->watched_err |= smx_is_listed(&qp->watched);
	}
	if (qp->attr.srq && !r->flushed && dev->attr.env.async_event)
		dev->attr.env.async_event(IBV_EVENT_QP_LAST_WQE_REACHED, qp->attr.cookie,
					  dev->attr.env.arg);
	r->flushed = true;
}

/* Failing */

/* What the requester is told when the receive that its message met is bad; then the queue pair is
 * done. */
static void refuse_for_receive(struct smx_resp_work *w, enum smx_check recv_check, uint32_t psn)
{
	if (smx_resp_reliable(w) && recv_check == SMX_CHECK_RECV_LENGTH)
		smx_resp_refuse(w, SMX_CHECK_REMOTE_LENGTH, psn,
				"length %" PRIu64 " or more, the receive has %" PRIu64,
				w->c->received + w->f->length, w->c->recv.total_bytes);
	else if (smx_resp_reliable(w))
		smx_resp_refuse(w, SMX_CHECK_REMOTE_RECV_FAILED, psn,
				"receive %u of queue pair 0x%06" PRIx32 ": %s",
				w->c->recv.wqe_index, w->qp->qpn, smx_check_info(recv_check)->text);
	else
		smx_qp_fatal(w->dev, w->qp, recv_check);
}

static void fail_receive(struct smx_resp_work *w, const struct smx_dma_fault *fault, uint32_t psn)
{
	struct smx_where where = recv_where(w->qp, w->c, w->c->ack.dst_qpn);

	smx_walk_refuse(w->dev, fault, &where);
	complete_error(w->dev, w->qp, w->c, fault->check, &where);
	refuse_for_receive(w, fault->check, psn);
}

static void fail_length(struct smx_resp_work *w, uint32_t psn)
{
	struct smx_where where = recv_where(w->qp, w->c, w->c->ack.dst_qpn);

	smx_refuse(w->dev->attr.env.refusals, SMX_CHECK_RECV_LENGTH, &where,
		   "length %" PRIu64 "%s, the receive has %" PRIu64 " in %" PRIu32 " SGEs",
		   w->c->received + w->f->length, w->f->last ? "" : " or more",
		   w->c->recv.total_bytes, w->c->recv.sge_count);
	complete_error(w->dev, w->qp, w->c, SMX_CHECK_RECV_LENGTH, &where);
	refuse_for_receive(w, SMX_CHECK_RECV_LENGTH, psn);
}

/* A queue that can give no receive any more: nothing was posted there that makes sense. */
static bool queue_broken(struct smx_resp_work *w)
{
	struct smx_where where = { .qpn = w->qp->qpn, .is_recv = 1, .cookie = w->qp->attr.cookie };

	if (w->srq ? !w->srq->error : !w->qp->rq.error)
		return false;
	if (!w->srq)
		smx_refuse(w->dev->attr.env.refusals, SMX_CHECK_WQE_OVERRUN, &where,
			   "receive queue of %" PRIu32 " entries", w->qp->rq.wqe_count);
	if (smx_resp_reliable(w))
		smx_resp_refuse(w, SMX_CHECK_REMOTE_RECV_FAILED, w->c->epsn,
				"the %s of queue pair 0x%06" PRIx32 " is in error",
				w->srq ? "shared receive queue" : "receive queue", w->qp->qpn);
	else
		smx_qp_fatal(w->dev, w->qp, SMX_CHECK_WQE_OVERRUN);
	return true;
}

bool smx_resp_take(struct smx_resp_work *w)
{
	struct smx_resp_ctx *c = w->c;

	/* One may be left of a message that was given up before it was stored. */
	if (c->has_recv && c->recv_srq != w->srq)
		smx_resp_abort(w->dev, w->qp, c, SMX_CHECK_RECV_ABORTED);
	if (c->has_recv)
		return true;
	c->recv_srq = w->srq;
	if (w->srq)
		c->has_recv = smx_srq_take(w->dev, w->srq, &c->recv);
	else
		c->has_recv = smx_rq_take(&w->qp->rq, &c->recv);
	if (!c->has_recv && !queue_broken(w))
		smx_resp_rnr(w);
	return c->has_recv;
}

/* SEND */

/* The driver copies what came in a CQE to the first addresses of the receive, as they are. That is
 * right only where each is host memory under its own address. */
static bool driver_can_copy(const struct smx_dev *dev, const struct smx_recv *recv)
{
	for (uint32_t i = 0; i < recv->sge_count; i++) {
		const struct smx_mkey *mk = smx_mkey_find(dev, recv->sge[i].key);

		if (!mk || mk->attr.kind != SMX_MKEY_DIRECT ||
		    (uintptr_t)mk->attr.host - mk->attr.start != 0)
			return false;
	}
	return true;
}

static inline bool fits_cqe(const struct smx_resp_work *w)
{
	const struct smx_frame *f = w->f;
	uint32_t most = w->qp->attr.resp_scatter_bytes;

	if (f->length > most || !f->length || !f->first || !f->last)
		return false;
	/* An XRC receive completes in a queue that the target does not know. In a CQE's own first
	 * 32 bytes would stand the source's number, which a DC target's program needs. A message to a
	 * tag matching SRQ has its header there. */
	if (w->qp->attr.type == SMX_QP_XRC_TGT || w->c->tag.state || (w->qp->attr.type == SMX_QP_DCT && most < 64))
		return false;
	return f->length <= w->c->recv.total_bytes && driver_can_copy(w->dev, &w->c->recv);
}

/* RETURN whether a small message is in data; *fault says why not, where that is known. */
static bool read_small(struct smx_resp_work *w, uint8_t data[64], struct smx_dma_fault *fault)
{
	uint64_t done;

	fault->check = SMX_CHECK_NONE;
	memset(data, 0, 64);
	return w->f->walk ? !smx_dma_read(w->f->walk, data, w->f->length, &done, fault)
			  : smx_resp_put(w, data, w->f->length);
}

/* Reads a small message into data, after the receive was checked as if it were written. RETURN
 * false when the frame is dealt with. */
static bool store_in_cqe(struct smx_resp_work *w, uint8_t data[64])
{
	struct smx_dma_fault fault;

	if (smx_walk_check(&w->c->walk, w->f->length, &fault) < w->f->length) {
		fail_receive(w, &fault, w->c->epsn);
		return false;
	}
	if (read_small(w, data, &fault))
		return true;
	if (fault.check)
		smx_resp_source_fault(w, &fault);
	else
		w->f->gather_check = SMX_CHECK_GATHER_FAULT;
	return false;
}

/* Stores the payload in the receive. RETURN false when the frame is dealt with. */
static bool store_in_receive(struct smx_resp_work *w)
{
	struct smx_resp_ctx *c = w->c;
	uint64_t room = c->recv.total_bytes - c->received, n = w->f->length, done = 0;
	struct smx_dma_fault fault;

	if (n > room)
		n = room - room % w->mtu; /* the packets that fit are stored before one does not */
	if (n && !smx_resp_store(w, &c->walk, n, &done, &fault)) {
		if (!fault.check)
			return false;
		c->epsn = (c->epsn + (uint32_t)(done / w->mtu)) & SMX_RESP_PSN_MASK;
		fail_receive(w, &fault, c->epsn);
		return false;
	}
	if (n == w->f->length)
		return true;
	c->epsn = (c->epsn + (uint32_t)(n / w->mtu)) & SMX_RESP_PSN_MASK;
	fail_length(w, c->epsn);
	return false;
}

static __attribute__((noinline)) bool invalidate(struct smx_resp_work *w)
{
	struct smx_where where = recv_where(w->qp, w->c, w->c->ack.dst_qpn);
	char text[sizeof(w->dev->frame_text)];
	smx_outcome check;

	check = smx_mkey_remote_invalidate(w->dev, w->f->imm, w->pd, w->qp->qpn, text, sizeof(text));
	if (!check)
		return true;
	complete_error(w->dev, w->qp, w->c, SMX_CHECK_FLUSH_CURRENT, &where);
	smx_resp_refuse(w, check, (w->c->epsn + w->packets - 1) & SMX_RESP_PSN_MASK,
			"%s", text);
	return false;
}

static bool begin(struct smx_resp_work *w)
{
	struct smx_resp_ctx *c = w->c;

	if (w->srq && w->srq->tags ? !smx_resp_tag_begin(w) : !smx_resp_take(w))
		return false;
	c->received = 0;
	smx_walk_list(&c->walk, w->dev, recv_pd(w->qp, c), w->qp->qpn, SMX_DMA_RECV, c->recv.sge,
		      c->recv.sge_count);
	return true;
}

static bool store(struct smx_resp_work *w, bool in_cqe, uint8_t data[64])
{
	if (w->c->tag.state == SMX_RESP_TAG_RNDV)
		return true;
	return in_cqe ? store_in_cqe(w, data) : store_in_receive(w);
}

void smx_resp_send(struct smx_resp_work *w)
{
	struct smx_resp_ctx *c = w->c;
	struct smx_frame *f = w->f;
	uint8_t data[64];
	bool in_cqe;

	if (f->first && !begin(w))
		return;
	assert(c->has_recv);
	in_cqe = fits_cqe(w);
	if (!store(w, in_cqe, data))
		return;
	if (f->has_invalidate && f->last && !invalidate(w))
		return;
	smx_resp_advance(w, w->packets);
	c->received += f->length;
	c->message = f->last ? SMX_RESP_NO_MESSAGE : SMX_RESP_IN_SEND;
	if (f->last)
		c->msn = (c->msn + 1) & SMX_RESP_PSN_MASK;
	if (f->last && c->tag.state != SMX_RESP_TAG_RNDV) {
		smx_resp_complete_and_ack(w, c->received, in_cqe ? data : NULL);
		return;
	}
	if (f->last)
		smx_resp_tag_rndv(w);
	smx_resp_ack(w);
}

/* A message that is here whole */

/* Decodes the oldest receive. RETURN false where there is none, or not an ordinary one. */
static bool has_receive(struct smx_resp_work *w)
{
	struct smx_resp_ctx *c = w->c;

	if (c->has_recv) /* left of a message that was given up */
		return false;
	c->recv_srq = w->srq;
	if (!w->srq)
		return smx_rq_peek(&w->qp->rq, &c->recv);
	return !w->srq->tags && smx_srq_peek(w->srq, &c->recv);
}

static void take_receive(struct smx_resp_work *w)
{
	if (w->srq)
		smx_srq_pass(w->dev, w->srq);
	else
		smx_rq_pass(&w->qp->rq);
	w->c->has_recv = true;
}

/* The payload to the memory that the list names, which is mostly one run. */
static inline __attribute__((always_inline)) bool put_whole(struct smx_resp_work *w, const struct smx_pd *pd,
							    enum smx_dma_role role, const struct smx_sge *sge,
							    uint32_t sge_count)
{
	uint64_t n = w->f->length;
	uint8_t *ptr = n <= sge->length ? smx_dma_together(w->dev, pd, w->qp->qpn, role, sge) : NULL;

	if (ptr && smx_resp_put(w, ptr, n))
		return true;
	smx_walk_list(&w->c->walk, w->dev, pd, w->qp->qpn, role, sge, sge_count);
	return smx_resp_store_whole(w, &w->c->walk);
}

static __attribute__((noinline)) bool write_whole(struct smx_resp_work *w)
{
	const struct smx_frame *f = w->f;
	const struct smx_sge to = { .va = f->va, .length = f->length, .key = f->rkey };

	return f->dma_length == f->length && (!f->length || put_whole(w, w->pd, SMX_DMA_REMOTE_WRITE, &to, 1));
}

/* RETURN whether the payload is where it belongs: in *data, which is NULL otherwise, or in memory. */
static inline bool store_whole(struct smx_resp_work *w, uint8_t room[64], const void **data)
{
	const struct smx_recv *recv = &w->c->recv;
	const struct smx_pd *pd = recv_pd(w->qp, w->c);
	uint64_t n = w->f->length;
	struct smx_dma_fault fault;

	*data = NULL;
	if (w->f->op == SMX_FRAME_WRITE)
		return write_whole(w);
	if (n > recv->total_bytes)
		return false;
	if (!fits_cqe(w))
		return !n || put_whole(w, pd, SMX_DMA_RECV, recv->sge, recv->sge_count);
	*data = room;
	smx_walk_list(&w->c->walk, w->dev, pd, w->qp->qpn, SMX_DMA_RECV, recv->sge, recv->sge_count);
	return smx_walk_check(&w->c->walk, n, &fault) == n && read_small(w, room, &fault);
}

static __attribute__((noinline)) bool invalidate_quietly(struct smx_resp_work *w)
{
	char text[sizeof(w->dev->frame_text)];

	return !smx_mkey_remote_invalidate(w->dev, w->f->imm, w->pd, w->qp->qpn, text, sizeof(text));
}

bool smx_resp_take_whole(struct smx_resp_work *w, uint8_t room[64], const void **data)
{
	struct smx_frame *f = w->f;
	struct smx_walk *walk = f->walk;
	uint64_t off = f->pull ? f->pull->off : walk ? walk->sge_off : 0;
	uint32_t at = walk ? walk->sge_at : 0;

	if (!has_receive(w))
		return false;
	if (store_whole(w, room, data) && (!f->has_invalidate || invalidate_quietly(w))) {
		take_receive(w);
		return true;
	}
	/* The payload is read again, from its start. */
	if (f->pull)
		f->pull->off = off;
	if (walk) {
		walk->sge_at = at;
		walk->sge_off = off;
		walk->depth = 0;
	}
	return false;
}

/* UD */

static uint16_t ipv4_checksum(const uint8_t *header)
{
	uint32_t sum = 0;

	for (int i = 0; i < IPV4_BYTES; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void put_be16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* The area before a datagram's data: the IP header of its RoCEv2 packet, an IPv4 one in the last 20
 * bytes. */
static void make_grh(const struct smx_frame *f, uint8_t grh[GRH_BYTES])
{
	/* UDP 8, BTH 12, DETH 8, immediate 4, padding, ICRC 4 */
	uint32_t udp_bytes =
		8 + 12 + 8 + (f->has_imm ? 4 : 0) + (uint32_t)align_up(f->length, 4) + 4;

	memset(grh, 0, GRH_BYTES);
	if (is_v4_mapped(f->sgid)) {
		uint8_t *ip = grh + GRH_BYTES - IPV4_BYTES;

		ip[0] = 0x45;
		ip[1] = f->traffic_class;
		put_be16(ip + 2, IPV4_BYTES + udp_bytes);
		ip[6] = 0x40; /* do not fragment */
		ip[8] = f->hop_limit;
		ip[9] = PROTO_UDP;
		memcpy(ip + 12, f->sgid + 12, 4);
		memcpy(ip + 16, f->dgid + 12, 4);
		put_be16(ip + 10, ipv4_checksum(ip));
		return;
	}
	put_be16(grh, 6u << 12 | (uint32_t)f->traffic_class << 4 | bits_get(f->flow_label, 19, 16));
	put_be16(grh + 2, f->flow_label);
	put_be16(grh + 4, udp_bytes);
	grh[6] = PROTO_UDP;
	grh[7] = f->hop_limit;
	memcpy(grh + 8, f->sgid, 16);
	memcpy(grh + 24, f->dgid, 16);
}

/* Stores header and data. RETURN false when the datagram is dealt with. */
static bool store_datagram(struct smx_resp_work *w)
{
	struct smx_resp_ctx *c = w->c;
	uint64_t bytes = GRH_BYTES + w->f->length, done;
	struct smx_dma_fault fault;
	uint8_t grh[GRH_BYTES];

	if (bytes > c->recv.total_bytes) {
		c->received = GRH_BYTES;
		fail_length(w, 0);
		return false;
	}
	if (smx_walk_check(&c->walk, bytes, &fault) < bytes) {
		fail_receive(w, &fault, 0);
		return false;
	}
	make_grh(w->f, grh);
	if (smx_dma_write(&c->walk, grh, GRH_BYTES, &done, &fault)) {
		fail_receive(w, &fault, 0);
		return false;
	}
	if (!w->f->length || smx_resp_store(w, &c->walk, w->f->length, &done, &fault))
		return true;
	if (fault.check)
		fail_receive(w, &fault, 0);
	return false;
}

void smx_resp_datagram(struct smx_dev *dev, struct smx_qp *qp, struct smx_frame *f)
{
	struct smx_resp_work w = {
		.dev = dev,
		.qp = qp,
		.c = qp->resp->one,
		.f = f,
		.mtu = dev->attr.mtu_bytes,
		.packets = 1,
		.srq = qp->attr.srq,
		.pd = qp->attr.pd,
	};

	/* Nothing answers a datagram: what does not fit is counted and forgotten. */
	if (f->op != SMX_FRAME_SEND || !f->first || !f->last || f->qkey != qp->cur.qkey ||
	    f->length > w.mtu) {
		qp->resp->dropped++;
		return;
	}
	if (!smx_resp_take(&w))
		return;
	smx_walk_list(&w.c->walk, dev, recv_pd(qp, w.c), qp->qpn, SMX_DMA_RECV, w.c->recv.sge,
		      w.c->recv.sge_count);
	w.c->received = 0;
	if (store_datagram(&w))
		smx_resp_complete(&w, GRH_BYTES + f->length, NULL);
}
