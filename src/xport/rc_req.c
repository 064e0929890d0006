/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The requester: from WQEs to frames, for every type of queue pair.
 *
 * A WQE is fetched when its turn comes, and again when part of it has to be sent again or a
 * turn's budget ended in its middle: between turns nothing of it is kept but its slot. It leaves
 * as one frame where the medium can carry that much, else in parts that are whole multiples of
 * the path MTU. Sending stops at a fence, the limit of outstanding READs, an RNR wait, the end of
 * the window or of the budget. */
#include "xport/direct.h"

#include <assert.h>
#include <inttypes.h>

enum step { STEP_ON, STEP_STALL, STEP_FULL, STEP_SEND };

static bool is_local(uint8_t opcode)
{
	const uint64_t local = 1ull << SMX_OP_NOP | 1ull << SMX_OP_UMR | 1ull << SMX_OP_LOCAL_INVAL |
			       1ull << SMX_OP_MMO | 1ull << SMX_OP_TAG_MATCHING;

	return opcode < 64 && local >> opcode & 1;
}

/* How many READs and atomics may be outstanding; a device rounds 0 up. */
static uint32_t read_limit(const struct smx_qp *qp)
{
	return qp->cur.max_rd_atomic ? qp->cur.max_rd_atomic : 1;
}

/* mtu is a power of two. */
static uint32_t packets(uint64_t bytes, uint32_t mtu)
{
	return bytes <= mtu ? 1 : (uint32_t)((bytes + mtu - 1) >> __builtin_ctz(mtu));
}

/* The bytes of one frame, whole packets. */
static uint64_t part_bytes(const struct smx_dev *dev, uint32_t mtu, bool read)
{
	uint64_t part = dev->port->max_payload_bytes;

	if (!part)
		return read ? SMX_MESSAGE_MAX_BYTES : mtu;
	return part <= mtu ? mtu : part & ~(uint64_t)(mtu - 1);
}

/* Will the payload lie in few runs that nothing moves? */
static bool is_plain(const struct smx_dev *dev, const struct smx_send_req *req)
{
	enum { RUNS_MAX = 16, WORTH_BYTES = 4096 };

	if (req->length <= WORTH_BYTES || req->sge_count > RUNS_MAX)
		return false;
	for (uint32_t i = 0; i < req->sge_count; i++) {
		const struct smx_mkey *mkey = smx_mkey_find(dev, req->sge[i].key);

		if (req->sge[i].is_host || !mkey || mkey->attr.kind != SMX_MKEY_DIRECT)
			return false;
	}
	return true;
}

/* RETURN whether the port takes f now; *part is cut down to what it takes at once. */
static bool admit(struct smx_dev *dev, struct smx_requester *st, uint8_t op, uint64_t length,
		  uint64_t *part)
{
	struct smx_frame *f = &dev->req_work->frame;
	uint64_t most;

	st->port_full = false;
	if (smx_port_is_own(dev->port, f->dst_qpn) || !dev->port->ops->admit)
		return true;
	f->op = op;
	f->length = length;
	f->plain = op != SMX_FRAME_READ_REQUEST && is_plain(dev, &dev->req_work->tx);
	st->port_full = !dev->port->ops->admit(dev->port, f, &most);
	most &= ~(uint64_t)(f->mtu_bytes - 1);
	if (most < *part)
		*part = most;
	return !st->port_full;
}

/* What is left of the part that off lies in. Most messages have but one, and need no division. */
static uint64_t part_left(uint64_t part, uint64_t off)
{
	return off < part ? part - off : part - off % part;
}

/* ------------------------------------------------------------------ failing before anything can
 * be sent */

void smx_req_fail_later(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			uint32_t at,
			smx_outcome check)
{
	assert(check != SMX_CHECK_NONE);
	assert(st->has_oldest);
	/* What is sent again after a later WQE has failed may fail itself; the first of them counts. */
	if (st->failing && (int32_t)(at - st->failing_at) >= 0)
		return;
	st->failing = check;
	st->failing_at = at;
	if (st->oldest == at)
		smx_req_fail(dev, qp, st, check);
}

static smx_outcome refuse_length(struct smx_dev *dev, const struct smx_qp *qp, uint32_t at,
				 smx_outcome check,
				 uint64_t length, uint64_t limit)
{
	struct smx_where where = smx_req_where(qp, at);

	smx_refuse(dev->attr.env.refusals, check, &where, "length %" PRIu64 ", limit %" PRIu64,
		   length, limit);
	return check;
}

/* What the decoder does not look at: how much was rung when it got its slot, what the path carries. */
static smx_outcome check_request(struct smx_dev *dev, const struct smx_qp *qp, uint32_t at,
				 const struct smx_send_req *req)
{
	uint64_t limit = qp->attr.type == SMX_QP_UD ? smx_req_mtu(dev, qp) : SMX_MESSAGE_MAX_BYTES;

	if (req->opcode == SMX_OP_RDMA_WRITE && at == qp->sq.fetched && req->length <= limit)
		return SMX_CHECK_NONE;	/* the commonest case, in few words */
	if (at != qp->sq.fetched && req->bb_count > smx_sq_slot(qp, at)->bb_count)
		return refuse_length(dev, qp, at, SMX_CHECK_WQE_LENGTH,
				     (uint64_t)req->bb_count * SMX_WQE_BB,
				     (uint64_t)smx_sq_slot(qp, at)->bb_count * SMX_WQE_BB);
	if (!is_local(req->opcode) && req->length > limit)
		return refuse_length(dev, qp, at, SMX_CHECK_WQE_MESSAGE_LENGTH, req->length, limit);
	if (smx_op_is_read(req->opcode) && req->opcode != SMX_OP_RDMA_READ && req->length != 8)
		return refuse_length(dev, qp, at, SMX_CHECK_WQE_ATOMIC_LENGTH, req->length, 8);
	return SMX_CHECK_NONE;
}

bool smx_req_refetch(struct smx_dev *dev, struct smx_qp *qp, uint32_t at, struct smx_send_req *out)
{
	const struct smx_sq_slot *slot = smx_sq_slot(qp, at);

	if (smx_exec.fetch(dev, qp, at, out) != SMX_CHECK_NONE)
		return false;
	return out->opcode == slot->opcode && out->length == slot->bytes;
}

/* ------------------------------------------------------------------ starting a WQE */

static smx_outcome address(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			   const struct smx_send_req *req)
{
	struct smx_req_work *w = dev->req_work;
	struct smx_frame *f = &w->frame;

	if (w->frame_of == st && smx_qp_is_reliable(qp) && qp->attr.type != SMX_QP_DCI)
		return SMX_CHECK_NONE;
	w->frame_of = st;
	f->src_qpn = qp->qpn;
	f->mtu_bytes = smx_req_mtu(dev, qp);
	f->dc_stream = (uint16_t)(st - qp->req);
	f->dc_connect = false;
	f->dc_nonce = qp->dc_nonce;
	switch (qp->attr.type) {
	case SMX_QP_UD:
		f->transport = SMX_TP_UD;
		return smx_ud_address(dev, qp, req, f);
	case SMX_QP_DCI:
		f->transport = SMX_TP_DC;
		return smx_dc_address(dev, qp, req, f);
	case SMX_QP_UC:
		f->transport = SMX_TP_UC;
		break;
	case SMX_QP_XRC_INI:
		f->transport = SMX_TP_XRC;
		break;
	default:
		f->transport = SMX_TP_RC;
		break;
	}
	f->dst_qpn = qp->cur.dest_qp_num;
	memcpy(f->sgid, qp->path.sgid, sizeof(f->sgid));
	memcpy(f->dgid, qp->path.dgid, sizeof(f->dgid));
	f->sgid_index = qp->path.sgid_index;
	f->hop_limit = qp->path.hop_limit;
	f->traffic_class = qp->path.traffic_class;
	f->sl = qp->path.sl;
	f->flow_label = qp->path.flow_label;
	f->udp_sport = qp->path.udp_sport;
	return SMX_CHECK_NONE;
}

/* ------------------------------------------------------------------ what needs no frame
 *
 * A WQE that everything before it is completed of is looked at before it has a slot, and needs none if it is done at
 * once. */

void smx_req_done(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, const void *inline_data)
{
	const struct smx_send_req *req = &dev->req_work->tx;
	uint32_t inline_bytes = inline_data ? (uint32_t)req->length : 0;
	struct smx_sq *sq = &qp->sq;
	struct smx_sq_slot *slot;

	if (st->has_oldest) {
		slot = smx_sq_slot(qp, st->oldest);
		slot->opcode = req->opcode;	/* the program may have changed it since it rang */
		slot->bytes = (uint32_t)req->length;
		smx_comp_done(dev, qp, st, inline_data, inline_bytes);
		return;
	}
	sq->fetched += req->bb_count;
	sq->ci = sq->fetched;
	if (req->fm_ce_se & SMX_CTRL_CQ_UPDATE || qp->rndv)
		smx_comp_put(dev, qp, &(struct smx_comp){
			.at = sq->ci - req->bb_count,
			.bytes = (uint32_t)req->length,
			.opcode = req->opcode,
			.fm_ce_se = req->fm_ce_se,
			.inline_bytes = inline_bytes,
			.inline_data = inline_data,
		});
}

void smx_req_fail_front(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, smx_outcome check)
{
	if (!st->has_oldest)
		smx_sq_assign(dev, qp);
	smx_req_fail(dev, qp, st, check);
}

/* UMR, bind, invalidate, memcpy, NOP. All before it are completed, so that its completion is in order and no key
 * changes under a request that may have to be sent again. */
static void run_local(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	smx_outcome check = smx_exec.local(dev, qp, &dev->req_work->tx);

	dev->budget_bytes -= SMX_WQE_COST_BYTES;
	if (check != SMX_CHECK_NONE)
		smx_req_fail_front(dev, qp, st, check);
	else
		smx_req_done(dev, qp, st, NULL);
}

/* Decodes the WQE at block counter at, the stream's next, and does it if nobody has to answer. RETURN STEP_SEND when it
 * is to be sent: w->tx holds it then. */
static enum step do_here(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, uint32_t at)
{
	bool front = !st->has_oldest || st->oldest == at;
	struct smx_req_work *w = dev->req_work;
	smx_outcome check = SMX_CHECK_NONE;

	if (w->tx_of != st || w->tx_at != at) {
		w->tx_of = st;
		w->tx_at = at;
		w->tx_tried = false;
		w->walk_off = UINT64_MAX;
		check = smx_exec.fetch(dev, qp, at, &w->tx);
		if (check == SMX_CHECK_NONE)
			check = check_request(dev, qp, at, &w->tx);
	}
	if (check != SMX_CHECK_NONE) {
		w->tx_of = NULL;
		if (!st->has_oldest)
			smx_sq_assign(dev, qp);
		smx_req_fail_later(dev, qp, st, at, check);
		return STEP_ON;
	}
	if (is_local(w->tx.opcode)) {
		if (!front)
			return STEP_STALL;
		run_local(dev, qp, st);
		return STEP_ON;
	}
	if (front && !w->tx_tried && st->una_psn == st->next_psn) {
		w->tx_tried = true;
		if (smx_direct_run(dev, qp, st, at))
			return STEP_ON;
	}
	return STEP_SEND;
}

/* May the current WQE start, as far as its slot tells? */
static bool may_start(const struct smx_qp *qp, const struct smx_requester *st,
		      const struct smx_sq_slot *slot)
{
	if (qp->state == IBV_QPS_SQD && !st->direct_off)
		return false;
	if (st->reads) {
		if ((slot->fm_ce_se & SMX_CTRL_FENCE_MASK) > SMX_CTRL_SMALL_FENCE)
			return false;
		if (smx_op_is_read(slot->opcode) && st->reads >= read_limit(qp))
			return false;
	}
	return true;
}

/* Does the current WQE, or gives it its PSNs. RETURN STEP_STALL when it has to wait for answers to earlier ones. */
static enum step start(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		       struct smx_sq_slot *slot)
{
	struct smx_send_req *req = &dev->req_work->tx;
	uint32_t at = st->current, count;
	smx_outcome check;
	enum step step;

	assert(st->next_psn == st->sent_psn);
	if (!may_start(qp, st, slot))
		return STEP_STALL;
	step = do_here(dev, qp, st, at);
	if (step != STEP_SEND)
		return step;
	if (qp->attr.type == SMX_QP_DCI && smx_dc_must_wait(st, req->av))
		return STEP_STALL;
	check = address(dev, qp, st, req);
	if (check != SMX_CHECK_NONE) {
		smx_req_fail_later(dev, qp, st, at, check);
		return STEP_ON;
	}
	count = qp->attr.type == SMX_QP_UD ? 1 : packets(req->length, smx_req_mtu(dev, qp));
	if (st->next_psn != st->una_psn &&
	    smx_psn_diff(st->next_psn, st->una_psn) + (int64_t)count > SMX_PSN_WINDOW)
		return STEP_STALL;
	if (qp->attr.type == SMX_QP_DCI)
		smx_dc_connect(st, req->av);
	slot->opcode = req->opcode;	/* the program may have changed it since it rang */
	slot->psn = st->next_psn;
	slot->psn_count = count;
	slot->bytes = (uint32_t)req->length;
	slot->state = SMX_SLOT_SENT;
	if (smx_op_is_read(req->opcode))
		st->reads++;
	return STEP_ON;
}

/* Has w->tx hold the current WQE again, after another was sent or in a later turn. */
static smx_outcome reload(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st)
{
	struct smx_req_work *w = dev->req_work;
	struct smx_where where;

	if (w->tx_of == st && w->tx_at == st->current)
		return SMX_CHECK_NONE;
	w->walk_off = UINT64_MAX;
	w->tx_of = NULL;
	if (!smx_req_refetch(dev, qp, st->current, &w->tx)) {
		where = smx_req_where(qp, st->current);
		smx_refuse(dev->attr.env.refusals, SMX_CHECK_WQE_LENGTH, &where,
			   "the WQE was changed while it was being executed");
		return SMX_CHECK_WQE_LENGTH;
	}
	w->tx_of = st;
	w->tx_at = st->current;
	w->frame_of = NULL;
	return address(dev, qp, st, &w->tx);
}

/* ------------------------------------------------------------------ one frame */

/* Fills in what depends on the operation and on the position in the message. */
static void fill_frame(struct smx_frame *f, const struct smx_send_req *req, uint64_t off,
		       uint64_t n)
{
	bool imm = req->opcode == SMX_OP_SEND_IMM || req->opcode == SMX_OP_RDMA_WRITE_IMM;

	f->first = off == 0;
	f->last = off + n == req->length;
	f->has_imm = f->last && imm;
	f->has_invalidate = f->last && req->opcode == SMX_OP_SEND_INVAL;
	f->solicited = f->last && (req->fm_ce_se & SMX_CTRL_SOLICITED);
	f->imm = f->has_invalidate ? be32toh(req->imm) : req->imm;
	f->va = req->raddr;
	f->rkey = req->rkey;
	f->dma_length = req->length;
	f->syndrome = 0;
	f->check = SMX_CHECK_NONE;
	f->xrc_srqn = req->xrc_srqn;
	f->length = n;
	f->flat = NULL;
	f->walk = NULL;
	f->pull = NULL;
	f->text = NULL;
	f->gather_check = SMX_CHECK_NONE;
	f->gather_text = NULL;
}

/* Is it the key that is wrong, rather than where in it? Then no packet of the message leaves. */
static bool is_key_fault(smx_outcome check)
{
	return check == SMX_CHECK_GATHER_KEY || check == SMX_CHECK_GATHER_FREE ||
	       check == SMX_CHECK_GATHER_PD || check == SMX_CHECK_GATHER_DEPTH;
}

/* Puts n bytes from off on under the frame. RETURN how many of them may leave, with *check the
 * reason if those are not all: whole packets before the fault. */
static uint64_t gather(struct smx_dev *dev, struct smx_qp *qp, uint64_t off, uint64_t n,
		       smx_outcome *check)
{
	struct smx_req_work *w = dev->req_work;
	struct smx_send_req *req = &w->tx;
	struct smx_frame *f = &w->frame;
	struct smx_dma_fault fault = { .check = SMX_CHECK_NONE };
	struct smx_where where;
	uint64_t ok;

	if (req->sge_count == 1 && req->sge[0].is_host) {
		f->flat = (const uint8_t *)(uintptr_t)req->sge[0].va + off;
		return n;
	}
	if (w->walk_off != off) {
		smx_walk_list(&w->walk, dev, qp->attr.pd, qp->qpn, SMX_DMA_GATHER, req->sge,
			      req->sge_count);
		w->walk_off = off;
		if (off && smx_walk_skip(&w->walk, off, &fault) != SMX_CHECK_NONE) {
			ok = 0;
			goto refused;
		}
	}
	if (f->last) {
		f->walk = &w->walk;
		w->walk_off = UINT64_MAX;
		ok = smx_walk_check(&w->walk, n, &fault);
		if (ok == n)
			return n;
	} else {
		w->frame_walk = w->walk;
		f->walk = &w->frame_walk;
		w->walk_off = off + n;
		if (smx_walk_skip(&w->walk, n, &fault) == SMX_CHECK_NONE)
			return n;
		ok = smx_walk_check(&w->frame_walk, n, &fault);
	}
refused:
	where = smx_req_where(qp, w->tx_at);
	*check = smx_walk_refuse(dev, &fault, &where);
	w->walk_off = UINT64_MAX;
	if (is_key_fault(*check) || qp->attr.type == SMX_QP_UD)
		return 0;
	return ok & ~(uint64_t)(f->mtu_bytes - 1);
}

/* The reader of a frame's walk could not read it, long after its keys were checked. */
static void fail_gather(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			uint32_t at,
			const struct smx_frame *f)
{
	struct smx_where where = smx_req_where(qp, at);

	smx_refuse(dev->attr.env.refusals, f->gather_check, &where, "%s",
		   f->gather_text ? f->gather_text : "while the message was copied");
	smx_req_fail_later(dev, qp, st, at, f->gather_check);
}

/* Sends f, which stands for packets of the current WQE. State is ahead of the frame when it
 * leaves. */
static void transmit(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
		     struct smx_sq_slot *slot,
		     uint32_t count)
{
	struct smx_frame *f = &dev->req_work->frame;
	uint32_t at = st->current;
	uint32_t from = smx_psn_diff(st->next_psn, slot->psn), to = from + count;
	bool last = to == slot->psn_count;

	f->psn = st->next_psn;
	f->psn_count = count;
	f->ack_request = last || from / SMX_ACK_EVERY != to / SMX_ACK_EVERY;
	f->dc_connect = qp->attr.type == SMX_QP_DCI && f->psn == st->connect_psn;
	dev->budget_bytes -= (int64_t)(SMX_WQE_COST_BYTES + f->length);
	st->next_psn = smx_psn_add(st->next_psn, count);
	if (smx_psn_diff(st->next_psn, st->sent_psn) > 0)
		st->sent_psn = st->next_psn;
	if (last) {
		st->has_current = slot->next_known;
		st->current = slot->next;
	}

	smx_xport_send(dev, f);

	if (slot->state != SMX_SLOT_SENT)
		return;
	if (f->gather_check != SMX_CHECK_NONE) {
		fail_gather(dev, qp, st, at, f);
	} else if (last && !smx_qp_is_reliable(qp)) {
		st->una_psn = st->next_psn;
		smx_comp_done(dev, qp, st, NULL, 0);
	}
}

static enum step send_data(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			   struct smx_sq_slot *slot, uint64_t off)
{
	struct smx_req_work *w = dev->req_work;
	struct smx_frame *f = &w->frame;
	uint32_t mtu = f->mtu_bytes, at = st->current;
	uint64_t part = part_bytes(dev, mtu, false), n = w->tx.length - off, ok = n;
	smx_outcome check = SMX_CHECK_NONE;

	if (!admit(dev, st, smx_op_is_send(w->tx.opcode) ? SMX_FRAME_SEND : SMX_FRAME_WRITE, n, &part))
		return STEP_FULL;
	if (n > part_left(part, off) && qp->attr.type != SMX_QP_UD)
		n = part_left(part, off);
	f->op = smx_op_is_send(w->tx.opcode) ? SMX_FRAME_SEND : SMX_FRAME_WRITE;
	fill_frame(f, &w->tx, off, n);
	if (n)
		ok = gather(dev, qp, off, n, &check);
	if (check == SMX_CHECK_NONE) {
		transmit(dev, qp, st, slot, packets(n, mtu));
		return STEP_ON;
	}
	if (ok) {
		/* What could be read has left by the time the device finds the end. */
		void *walk = f->walk;

		fill_frame(f, &w->tx, off, ok);
		f->walk = walk;
		transmit(dev, qp, st, slot, packets(ok, mtu));
	}
	if (slot->state == SMX_SLOT_SENT)
		smx_req_fail_later(dev, qp, st, at, check);
	return STEP_ON;
}

/* A long READ is asked for in parts on media that carry long frames, so that neither side is busy
 * with it for long; one part at a time, as each counts against the responder's limit. */
static enum step send_read(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			   struct smx_sq_slot *slot, uint64_t off)
{
	struct smx_req_work *w = dev->req_work;
	struct smx_frame *f = &w->frame;
	uint64_t part = part_bytes(dev, f->mtu_bytes, true), n = w->tx.length - off;

	if (off && st->una_psn != st->next_psn)
		return STEP_STALL;
	if (!admit(dev, st, SMX_FRAME_READ_REQUEST, 0, &part))
		return STEP_FULL;
	if (n > part_left(part, off))
		n = part_left(part, off);
	f->op = SMX_FRAME_READ_REQUEST;
	fill_frame(f, &w->tx, 0, 0);
	f->first = f->last = true;
	f->va = w->tx.raddr + off;
	f->dma_length = n;
	dev->budget_bytes -= (int64_t)n;
	transmit(dev, qp, st, slot, packets(n, f->mtu_bytes));
	return STEP_ON;
}

static enum step send_atomic(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			     struct smx_sq_slot *slot)
{
	struct smx_req_work *w = dev->req_work;
	struct smx_frame *f = &w->frame;
	const struct smx_atomic *a = &w->tx.atomic;
	uint64_t part = 0;

	if (!admit(dev, st, SMX_FRAME_ATOMIC_REQUEST, 0, &part))
		return STEP_FULL;
	f->op = SMX_FRAME_ATOMIC_REQUEST;
	fill_frame(f, &w->tx, 0, 0);
	f->first = f->last = true;
	f->atomic_op = (uint8_t)a->op;
	f->atomic[0] = a->swap_add;
	f->atomic[1] = a->compare;
	f->atomic[2] = a->swap_mask;
	f->atomic[3] = a->compare_mask;
	transmit(dev, qp, st, slot, 1);
	return STEP_ON;
}

/* Sends the next frame of the current WQE, which has started. */
static enum step send_next(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			   struct smx_sq_slot *slot)
{
	struct smx_req_work *w = dev->req_work;
	smx_outcome check = reload(dev, qp, st);
	uint64_t off;

	if (check != SMX_CHECK_NONE) {
		smx_req_fail_later(dev, qp, st, st->current, check);
		return STEP_ON;
	}
	off = (uint64_t)smx_psn_diff(st->next_psn, slot->psn) * w->frame.mtu_bytes;
	if (w->tx.opcode == SMX_OP_RDMA_READ)
		return send_read(dev, qp, st, slot, off);
	if (smx_op_is_read(w->tx.opcode))
		return send_atomic(dev, qp, st, slot);
	return send_data(dev, qp, st, slot, off);
}

/* ------------------------------------------------------------------ streams and queue pairs */

enum run { RUN_OUT, RUN_YIELD, RUN_LATER };

/* Runs the stream while its next WQE was posted before `until`, where another stream's starts. RETURN
 * RUN_LATER when only the budget, or a full port, stopped it. */
static enum run run_stream(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st,
			   uint32_t until)
{
	enum run run = RUN_OUT;

	st->running = true;
	st->stalled = false;
	while (st->has_current && !smx_req_is_held(st)) {
		struct smx_sq_slot *slot = smx_sq_slot(qp, st->current);
		enum step step;

		if ((int32_t)(st->current - until) > 0) {
			run = RUN_YIELD;
			break;
		}
		if (dev->budget_bytes <= 0) {
			run = RUN_LATER;
			break;
		}
		assert(slot->state == SMX_SLOT_WAITING || slot->state == SMX_SLOT_SENT);
		if (slot->state == SMX_SLOT_WAITING)
			step = start(dev, qp, st, slot);
		else
			step = send_next(dev, qp, st, slot);
		if (step == STEP_STALL) {
			st->stalled = true;
			break;
		}
		if (step == STEP_FULL) {
			run = RUN_LATER;
			smx_req_set_blocked(dev, qp, true);	/* until smx_xport_room() */
			break;
		}
	}
	st->running = false;
	if (st->una_psn != st->sent_psn || st->port_full)
		smx_req_arm(dev, qp, st);
	return run;
}

/* Takes the active stream whose next WQE was posted first, so that streams pass each other only where one
 * cannot go on; *until is where the next one's starts. RETURN NULL when none is active. */
static struct smx_requester *take_oldest(struct smx_qp *qp, uint32_t *until)
{
	struct smx_requester **oldest = &qp->active, **at, *st = qp->active;

	if (!st)
		return NULL;
	*until = st->current + INT32_MAX;
	for (at = &st->active_next; *at; at = &(*at)->active_next) {
		if ((int32_t)((*at)->current - (*oldest)->current) < 0) {
			*until = (*oldest)->current;
			oldest = at;
		} else if ((int32_t)((*at)->current - *until) < 0) {
			*until = (*at)->current;
		}
	}
	st = *oldest;
	*oldest = st->active_next;
	if (!*oldest)
		qp->active_tail = oldest;
	st->active = false;
	return st;
}

/* In SQD nothing starts; back in RTS what was held goes on. */
static void follow_sqd(struct smx_dev *dev, struct smx_qp *qp)
{
	if (qp->state == IBV_QPS_SQD) {
		if (qp->sqd == SMX_SQD_NONE)
			qp->sqd = SMX_SQD_DRAINING;
		return;
	}
	if (qp->sqd == SMX_SQD_NONE)
		return;
	qp->sqd = SMX_SQD_NONE;
	for (uint32_t i = 0; i < smx_req_stream_count(qp); i++)
		smx_req_wake(dev, qp, &qp->req[i]);
}

/* Does WQEs that nothing is before, as far as they need no answer; the rest gets slots, each in its stream. */
static void take_rung(struct smx_dev *dev, struct smx_qp *qp)
{
	struct smx_sq *sq = &qp->sq;

	while (sq->fetched != sq->pi) {
		struct smx_requester *st = smx_sq_stream(qp, sq->fetched);

		if (sq->ci != sq->fetched || qp->state != IBV_QPS_RTS || dev->budget_bytes <= 0 ||
		    smx_req_is_held(st) || do_here(dev, qp, st, sq->fetched) != STEP_ON) {
			smx_sq_assign(dev, qp);
			return;
		}
	}
}

bool smx_req_run(struct smx_dev *dev, struct smx_qp *qp)
{
	struct smx_requester *st;
	uint32_t until;
	enum run run;

	if (qp->completion_lost) {
		qp->completion_lost = false;
		smx_qp_fatal(dev, qp, SMX_CHECK_CQ_OVERRUN);
	}
	if (!qp->req)
		return false;
	if (smx_is_listed(&qp->blocked))
		smx_req_set_blocked(dev, qp, false);
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE) {
		smx_req_flush_all(dev, qp, false);
		return false;
	}
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
		return false;
	follow_sqd(dev, qp);
	if (!smx_sq_read_doorbell(dev, qp))
		return false;
	dev->req_work->tx_of = NULL;
	dev->req_work->frame_of = NULL;
	take_rung(dev, qp);
	while ((st = take_oldest(qp, &until))) {
		run = run_stream(dev, qp, st, until);
		if (run == RUN_OUT)
			continue;
		st->active = true;
		st->active_next = NULL;
		*qp->active_tail = st;
		qp->active_tail = &st->active_next;
		if (run == RUN_LATER)
			break;
	}
	if (qp->sqd != SMX_SQD_NONE)
		smx_req_check_drained(dev, qp);
	return qp->active != NULL && !smx_is_listed(&qp->blocked);
}

void smx_req_seek(struct smx_qp *qp, struct smx_requester *st, uint32_t psn)
{
	uint32_t at = st->oldest;

	st->next_psn = psn;
	st->has_current = false;
	if (!st->has_oldest)
		return;
	for (;;) {
		const struct smx_sq_slot *slot = smx_sq_slot(qp, at);

		if (slot->state != SMX_SLOT_SENT ||
		    smx_psn_diff(psn, smx_psn_add(slot->psn, slot->psn_count)) < 0) {
			st->current = at;
			st->has_current = true;
			return;
		}
		if (!slot->next_known)
			return;
		at = slot->next;
	}
}
