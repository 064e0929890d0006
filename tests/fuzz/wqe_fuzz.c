/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Any bytes in a send ring, and whatever peers and the program do meanwhile: the device must neither crash nor touch
 * memory outside what it was given, and must come to rest with nothing left undone.
 *
 * Input: byte 0 picks the queue pairs' type (bit 7: tag matching on RC), byte 1 options (fuzz_world.h), byte 2 seeds
 * the medium. The rest is a program, one byte an operation with its operands behind it: WQEs that are right but for
 * what the operands choose, blocks that are copied as they are, bytes that are changed in the ring, doorbells, time,
 * frames that somebody else sends, and what a program does besides (states, keys, queues). Operands that are missing
 * are 0. */
#include "fuzz_world.h"

#include "net/shm_record.h"
#include "obj/tag_list.h"

enum { TURNS_MAX = 5000, MOVED_MAX = 8 << 20, OPS_MAX = 200 };

/* ---- the input ---- */

static const uint8_t *in, *in_end;

static uint8_t byte(void)
{
	return in < in_end ? *in++ : 0;
}

static uint16_t word(void)
{
	uint8_t low = byte();

	return (uint16_t)(low | byte() << 8);
}

/* ---- one WQE ---- */

static struct {
	int qp;			/* whose ring */
	uint32_t bb[2];		/* producers: blocks written */
	uint32_t seg;		/* segments of the WQE being built */
	uint64_t moved;		/* bytes */
	bool stopped;		/* it would take too long */
} p;

static void *segs(uint32_t n)
{
	static uint8_t spill[256];
	uint32_t at = (p.bb[p.qp] * 4 + p.seg) % (RING_BB * 4);

	if (at + n > RING_BB * 4)
		return spill;		/* a structure that would wrap is lost */
	p.seg += n;
	return sq_buf[p.qp] + at * SMX_WQE_DS;
}

static uint32_t key_of(uint8_t which)
{
	int i = which % KEYS;

	if (i == KEY_NULL && w.options & WITH_LOSS)
		i = KEY_REGION;	/* a gigabyte of nothing in small frames takes too long */
	return w.key[i] ? smx_mkey_key(w.key[i]) : w.key_num[i];
}

static uint32_t length_of(uint8_t which)
{
	static const uint32_t lengths[] = { 0,   1,   4,   8,   16,   33,   64,  100,
					    255, 256, 257, 513, 1024, 4096, MEM, 0x7fffffff };

	return lengths[which & 15];
}

/* Address in the space of the key that which picks. */
static uint64_t va_of(uint8_t which)
{
	uint16_t at = word();
	int i = which % KEYS;

	if (at & 0x8000)
		return at & 0x4000 ? UINT64_MAX - (at & 0xff) : mem_va() + MEM - (at & 0xff);
	return i == KEY_LIST || i == KEY_TAGGED || i == KEY_INNER ? at % 2048 & ~7u : mem_va() + at % MEM;
}

static void put_data(void)
{
	uint8_t which = byte();
	uint32_t length = length_of(which >> 4);
	struct smx_wqe_data d = { to_be32(length), to_be32(key_of(which)), to_be64(va_of(which)) };

	memcpy(segs(1), &d, sizeof(d));
}

static void put_inline(uint8_t length)
{
	be32 head = to_be32(length | SMX_INLINE_SEG);

	memcpy(segs(1), &head, sizeof(head));
	for (uint32_t n = 12; n < length; n += SMX_WQE_DS)
		memset(segs(1), length, SMX_WQE_DS);
}

static void put_raddr(void)
{
	uint8_t which = byte();
	struct smx_wqe_raddr r = { .va = to_be64(va_of(which) & ~7ull), .rkey = to_be32(key_of(which)) };

	memcpy(segs(1), &r, sizeof(r));
}

static void put_payload(void)
{
	uint8_t how = byte();

	if (how & 8)
		put_inline(how >> 4 | (how & 7) << 4);
	else
		for (int i = 0; i <= (how & 7); i++)
			put_data();
}

static void put_address(void)
{
	struct smx_wqe_av av = { .dqp_dct = to_be32(SMX_AV_EXTENDED | w.qpn[1]), .hop_limit = 64,
				 .grh_gid_fl = to_be32(1u << 30) };
	struct smx_wqe_xrc xrc = { .srqn = to_be32(w.srqn) };

	if (is_multicast()) {
		av.dqp_dct = to_be32(SMX_AV_EXTENDED | 0xffffff);
		memcpy(av.rgid, group_gid, sizeof(av.rgid));
	}
	if (w.type == SMX_QP_DCI)
		av.dc_key = to_be64(DC_KEY);
	else
		av.qkey = to_be32(QKEY);
	if (w.type == SMX_QP_DCI || w.type == SMX_QP_UD)
		memcpy(segs(3), &av, sizeof(av));
	else if (w.type == SMX_QP_XRC_INI)
		memcpy(segs(1), &xrc, sizeof(xrc));
}

static void put_atomic(uint8_t op)
{
	struct smx_wqe_atomic a = { to_be64(byte()), to_be64(byte()) };

	put_raddr();
	memcpy(segs(1), &a, sizeof(a));
	if (op == SMX_OP_ATOMIC_MASKED_CS)
		memcpy(segs(1), &a, sizeof(a));
	else
		a.compare = to_be64(0);
	put_data();
}

static void put_entry(void)
{
	uint8_t which = byte();
	struct smx_wqe_klm klm = { to_be32(length_of(which >> 4)), to_be32(key_of(which)), to_be64(va_of(which)) };

	memcpy(segs(1), &klm, sizeof(klm));
}

/* One strided block of n entries. */
static void put_block(uint8_t n)
{
	struct smx_wqe_repeat_block *head = segs(1), block = { .op = to_be32(SMX_REPEAT_OP) };
	uint32_t turn = 0;

	block.repeat_count = to_be32(byte());
	block.num_ent = to_be16(n);
	for (uint8_t i = 0; i < n; i++) {
		uint8_t which = byte(), bytes = byte();
		struct smx_wqe_repeat_ent ent = { to_be16(byte()), to_be16(bytes), to_be32(key_of(which)),
						  to_be64(va_of(which)) };

		turn += bytes;
		memcpy(segs(1), &ent, sizeof(ent));
	}
	block.byte_count = to_be32(turn);
	memcpy(head, &block, sizeof(block));
}

/* A registration, a bind or an invalidate. RETURN the key that it changes. */
static uint32_t put_umr(void)
{
	uint8_t how = byte(), n = byte() % 12, start;
	uint32_t key = key_of(how);
	uint64_t mask = SMX_UMR_MASK_LEN | SMX_UMR_MASK_START_ADDR | SMX_UMR_MASK_FREE | SMX_UMR_MASK_LOCAL_WRITE |
			SMX_UMR_MASK_REMOTE_READ | SMX_UMR_MASK_REMOTE_WRITE | SMX_UMR_MASK_ATOMIC;
	struct smx_wqe_umr_ctrl ctrl = { .flags = SMX_UMR_INLINE };
	struct smx_wqe_mkey_ctx ctx = { .access = 0xfc, .qpn_mkey = to_be32(0xffffff00 | (key & 0xff)),
					.len = to_be64(how & 0x80 ? 1ull << 40 : 4096) };

	if (how & 8)
		mask |= SMX_UMR_MASK_MKEY | SMX_UMR_MASK_QPN;
	if (how & 16)
		ctrl.flags |= byte() & (SMX_UMR_CHECK_FREE | SMX_UMR_XLT_OFFSET | SMX_UMR_CHECK_QPN);
	if (ctrl.flags & SMX_UMR_XLT_OFFSET)
		ctrl.xlt_offset = to_be16(byte() % 16);
	if (how & 32) {
		ctx.free = SMX_MKC_FREE;
		n = 0;
	}
	if (how % KEYS == KEY_WINDOW)
		ctx.start_addr = to_be64(mem_va());
	ctrl.klm_octowords = to_be16((n + 3) / 4 * 4);
	ctrl.mkey_mask = to_be64(mask);
	memcpy(segs(3), &ctrl, sizeof(ctrl));
	memcpy(segs(4), &ctx, sizeof(ctx));
	start = (uint8_t)p.seg;
	if (how & 64 && n)
		put_block(n - 1);
	else
		for (uint8_t i = 0; i < n; i++)
			put_entry();
	while ((p.seg - start) % 4 && p.seg < SMX_WQE_DS_MAX)
		memset(segs(1), 0, SMX_WQE_DS);
	return key;
}

static void put_mmo(void)
{
	static const struct smx_wqe_mmo_meta meta;
	uint8_t length = byte();

	memcpy(segs(1), &meta, sizeof(meta));
	for (int i = 0; i < 2; i++) {
		uint8_t which = byte();
		struct smx_wqe_data d = { to_be32(length_of(length)), to_be32(key_of(which)), to_be64(va_of(which)) };

		memcpy(segs(1), &d, sizeof(d));
	}
}

/* A message with the headers of tag matching; few tags, so that they meet. */
static void put_tagged(void)
{
	uint8_t how = byte(), which = byte();
	struct { be32 head; struct smx_tmh tmh; struct smx_rvh rvh; } m = {
		.head = to_be32(SMX_INLINE_SEG | (how & 0x40 ? how % 36 : 32)),
		.tmh = { .op = how % 5, .tag = to_be64(how >> 4 & 3) },
		.rvh = { to_be64(va_of(which)), to_be32(key_of(which)), to_be32(length_of(which >> 4)) },
	};

	memcpy(segs(3), &m, sizeof(m));
}

static void put_tag_op(void)
{
	uint8_t how = byte(), which = byte();
	struct smx_wqe_tag t = {
		.op = (uint8_t)((how % 4 ? how & 3 : SMX_TAG_OP_APPEND) << 4), .flags = how & 0xc0,
		.index = to_be16(which % 18), .sw_count = to_be16(w.srq->tags->unexpected + (how >> 2 & 1)),
		.tag = to_be64(which >> 5 & 3), .mask = to_be64(how & 8 ? 3 : which & 3),
	};

	memcpy(segs(2), &t, sizeof(t));
	if (how & 0x30 || t.op == SMX_TAG_OP_APPEND << 4)
		put_data();
}

static void sign(uint8_t *ring, uint32_t at, uint32_t ds)
{
	uint8_t sum = 0;

	for (uint32_t i = 0; i < ds * SMX_WQE_DS; i++)
		sum ^= ring[(at * SMX_WQE_BB + i) % (RING_BB * SMX_WQE_BB)];
	((struct smx_wqe_ctrl *)(ring + at * SMX_WQE_BB))->signature = (uint8_t)~sum;
}

static void put_wqe(uint8_t which)
{
	static const uint8_t ops[16] = {
		SMX_OP_RDMA_WRITE, SMX_OP_RDMA_READ, SMX_OP_SEND, SMX_OP_UMR, SMX_OP_MMO, SMX_OP_ATOMIC_FA,
		SMX_OP_RDMA_WRITE_IMM, SMX_OP_SEND_IMM, SMX_OP_SEND_INVAL, SMX_OP_ATOMIC_CS, SMX_OP_ATOMIC_MASKED_CS,
		SMX_OP_ATOMIC_MASKED_FA, SMX_OP_NOP, SMX_OP_UMR, SMX_OP_TSO, SMX_OP_LOCAL_INVAL,
	};
	bool tagged = w.tags && which >= 13;
	uint8_t op = tagged ? which == 13 ? SMX_OP_TAG_MATCHING : SMX_OP_SEND : ops[which], how = byte();
	uint32_t at = p.bb[p.qp] % RING_BB, imm = key_of(how >> 4);
	struct smx_wqe_ctrl *ctrl, c = { .dci_stream = to_be16(how & 3),
		.fm_ce_se = (how & 4 ? SMX_CTRL_CQ_UPDATE : 0) | (how & 8 ? SMX_CTRL_FENCE : 0) | (how & 2) };

	p.seg = 0;
	ctrl = segs(1);
	if (op != SMX_OP_UMR && op != SMX_OP_MMO && op != SMX_OP_NOP)
		put_address();
	switch (op) {
	case SMX_OP_UMR: imm = put_umr(); break;
	case SMX_OP_MMO: put_mmo(); break;
	case SMX_OP_NOP: break;
	case SMX_OP_RDMA_WRITE: case SMX_OP_RDMA_WRITE_IMM: put_raddr(); put_payload(); break;
	case SMX_OP_RDMA_READ: put_raddr(); put_data(); break;
	case SMX_OP_TAG_MATCHING: put_tag_op(); break;
	case SMX_OP_SEND: case SMX_OP_SEND_IMM: case SMX_OP_SEND_INVAL:
		if (tagged)
			put_tagged();
		else
			put_payload();
		break;
	default: put_atomic(op); break;
	}
	c.opmod_idx_opcode = to_be32((op == SMX_OP_MMO ? SMX_MMO_OPMOD_DMA << 24 : 0) |
				     (p.bb[p.qp] & 0xffff) << 8 | op);
	c.qpn_ds = to_be32(w.qpn[p.qp] << 8 | (p.seg & 0x3f));
	c.imm = to_be32(imm);
	memcpy(ctrl, &c, sizeof(c));
	if (w.options & WITH_SIGNATURES)
		sign(sq_buf[p.qp], at, p.seg);
	p.bb[p.qp] += (p.seg + 3) / 4;
}

/* ---- what happens besides ---- */

static void copy_block(void)
{
	uint8_t *to = sq_buf[p.qp] + p.bb[p.qp]++ % RING_BB * SMX_WQE_BB;

	for (int i = 0; i < SMX_WQE_BB; i++)
		to[i] = byte();
}

static void poke(void)
{
	uint16_t at = word();

	sq_buf[p.qp][at % sizeof(sq_buf[0])] ^= byte();
}

static void ring(uint8_t extra)
{
	dbrec[p.qp][SMX_DBREC_SND] = htobe32(p.bb[p.qp] + (extra == 15 ? 200 : 0));
	if (w.qp[p.qp])
		smx_dev_ring_sq(w.dev, w.qp[p.qp]);
}

/* RETURN whether there is more to do. Time goes on to when that is. */
static bool turn(void)
{
	static uint8_t before[sizeof(sq_buf)];
	uint64_t next;

	memcpy(before, sq_buf, sizeof(before));
	next = smx_dev_turn(w.dev);
	assert(!memcmp(before, sq_buf, sizeof(before)));	/* it is the program's */
	assert(!w.bad_fault);
	p.moved += w.dev->attr.turn_budget_bytes - (uint64_t)w.dev->budget_bytes;
	p.stopped = p.moved > MOVED_MAX;
	if (w.no_room) {
		w.no_room = false;
		w.dev->port->room(w.dev->port->deliver_arg);
		return !p.stopped;
	}
	if (next == UINT64_MAX || p.stopped)
		return false;
	w.now_ns = next > w.now_ns ? next : w.now_ns + 1;
	return true;
}

static void set_state(int i, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	if (!w.qp[i] || (state == IBV_QPS_RESET && type_of(i) == SMX_QP_DCT))
		return;
	smx_cmd_modify_qp(w.dev, w.qp[i], &a, IBV_QP_STATE, NULL);
	if (state == IBV_QPS_RESET) {
		dbrec[i][0] = dbrec[i][1] = 0;
		p.bb[i] = 0;
		connect_one(i);
	}
}

static void consume(void)
{
	cq_dbrec[SMX_CQ_DBREC_CI] = htobe32(w.cq->pi & 0xffffff);
}

static void act(uint8_t which)
{
	uint8_t arg = byte();
	int i = arg & 1, k = arg % KEYS;

	switch (which) {
	case 0: set_state(i, IBV_QPS_ERR); break;
	case 1: set_state(i, IBV_QPS_RESET); break;
	case 2: set_state(i, IBV_QPS_SQD); break;
	case 3: set_state(i, IBV_QPS_RTS); break;
	case 4:
		if (w.qp[i])
			smx_cmd_reset_stream(w.dev, w.qp[i], arg >> 1);
		break;
	case 5:
		dbrec[i][SMX_DBREC_RCV] = htobe32(be32toh(dbrec[i][SMX_DBREC_RCV]) + (arg >> 1) % 8);
		if (w.qp[i])
			smx_dev_ring_rq(w.dev, w.qp[i]);
		break;
	case 6:
		srq_dbrec[0] = htobe32(be32toh(srq_dbrec[0]) + arg % 8);
		smx_dev_ring_srq(w.dev, w.srq);
		break;
	case 7: consume(); break;
	case 8: smx_dev_arm_cq(w.dev, w.cq, (uint32_t)arg << 28 | (w.cq->pi & 0xffffff)); break;
	case 9:
		if (w.key[k])
			must(smx_cmd_destroy_mkey(w.dev, w.key[k]));
		w.key[k] = NULL;
		break;
	case 10: end_qp(i); break;
	case 11:
		if (w.qp[i])
			smx_dev_watch_qp(w.dev, w.qp[i], arg & 2);
		smx_dev_poll_watched(w.dev);
		break;
	case 12:
		if (w.cq->attr.buf == cq_buf)
			smx_cmd_resize_cq(w.dev, w.cq, cq_buf_moved, arg & 1 ? CQES : 32);
		break;
	case 13: rq_buf[i][word() % sizeof(rq_buf[0])] ^= arg; break;
	case 14: srq_buf[word() % sizeof(srq_buf)] ^= arg; break;
	default: w.now_ns += (uint64_t)arg << 16; break;
	}
}

/* ---- what peers say: records as another process writes them ---- */

static enum smx_pulled fetch(struct smx_pull *pull, void *to, uint64_t n, uint64_t *done)
{
	uint8_t how = byte();

	*done = how & 1 ? n / 2 : n;
	memset(to, how, *done);
	pull->off += *done;
	return how & 1 ? SMX_PULL_SOURCE : SMX_PULLED;
}

static uint32_t near_psn(void)
{
	uint8_t which = byte();
	const struct smx_qp *qp = w.qp[which & 1];
	uint32_t psn = 0xfffffe;

	if (qp && which & 2 && qp->req)
		psn = which & 4 ? qp->req->una_psn : qp->req->sent_psn;
	else if (qp && qp->resp && qp->resp->one)
		psn = qp->resp->one->epsn;
	return (psn + (which >> 4) - 8) & 0xffffff;
}

static struct smx_frame any_frame(uint8_t op)
{
	static const uint8_t transport[] = {
		[SMX_QP_RC] = SMX_TP_RC, [SMX_QP_UC] = SMX_TP_UC, [SMX_QP_UD] = SMX_TP_UD,
		[SMX_QP_XRC_INI] = SMX_TP_XRC, [SMX_QP_DCI] = SMX_TP_DC,
	};
	static const char text[] = "values 1 2 3";
	uint8_t flags = byte(), which = byte();
	struct smx_frame f = {
		.transport = transport[w.type], .op = op % (SMX_FRAME_SOURCE_FAULT + 1),
		.first = !(flags & 1), .last = !(flags & 2), .has_imm = flags & 4, .has_invalidate = flags & 8,
		.ack_request = flags & 16, .dc_connect = flags & 32, .psn = near_psn(), .psn_count = byte(),
		.mtu_bytes = MTU, .xrc_srqn = w.srqn, .qkey = QKEY, .dc_key = DC_KEY, .dc_stream = flags & 3,
		.text = flags & 64 ? text : NULL,
	};

	f.dst_qpn = w.qpn[which & 1];
	f.src_qpn = w.qpn[!(which & 1)];
	f.rkey = key_of(which >> 1);
	f.va = va_of(which >> 1);
	f.imm = f.rkey;
	f.dma_length = length_of(which >> 4);
	if (f.op == SMX_FRAME_SEND || f.op == SMX_FRAME_WRITE || f.op == SMX_FRAME_READ_RESPONSE)
		f.length = byte() * 8u;
	f.atomic_op = f.syndrome = byte();
	f.check = byte();
	f.atomic[0] = f.atomic[1] = which;
	return f;
}

static void inject(uint8_t op)
{
	_Alignas(64) static uint8_t rec[8192];
	static struct smx_arrived a;
	struct smx_frame f = any_frame(op);
	struct smx_pull pull = { .fetch = fetch };
	bool stays = f.length >= 256 && op & 8;	/* with the sender */
	uint8_t *payload;
	uint32_t size = (smx_rec_head_bytes(&f) + (uint32_t)f.length + 63) & ~63u;

	payload = smx_rec_write((struct smx_rec *)(void *)rec, &f, stays ? 2 : 0);
	memset(payload, 0x77, f.length);
	if (stays) {
		struct smx_rec_run run[2] = { { 0x1000, f.length / 2 }, { 0x9000, f.length - f.length / 2 } };

		memcpy(payload, run, sizeof(run));
	}
	for (int n = op >> 3; n; n--) {
		uint16_t at = word();

		rec[at % size] ^= byte();
	}
	if (!smx_rec_read(rec, size, &a))
		return;
	if (a.run_count)
		a.frame.pull = &pull;
	if (is_fault(a.frame.check))
		a.frame.check = SMX_CHECK_NONE;		/* he may say so, but then it is no news */
	w.dev->now_known = false;
	smx_xport_deliver(w.dev, &a.frame);
	assert(!w.bad_fault);
}

static void step(uint8_t op)
{
	uint8_t which = op >> 4;

	switch (op & 15) {
	case 8: ring(which); break;
	case 9: ring(which); turn(); break;
	case 10: turn(); break;
	case 11: poke(); break;
	case 12: copy_block(); break;
	case 13: act(which); break;
	case 14: p.qp = which & 1; break;
	case 15: inject(which); break;
	default: put_wqe(which); break;
	}
}

/* ---- what must hold ---- */

/* Changes whenever something was answered or completed. */
static uint64_t progress(void)
{
	uint64_t sum = w.cq->pi;

	for (int i = 0; i < 2; i++) {
		const struct smx_qp *qp = w.qp[i];

		for (uint32_t s = 0; qp && qp->req && s < smx_req_stream_count(qp); s++)
			sum = sum * 31 + qp->req[s].una_psn + qp->req[s].oldest;
	}
	return sum;
}

/* Turns until there is nothing to do; each so many of them must have come to something. */
static void run_to_rest(void)
{
	uint64_t before = progress();
	int turns = 0;

	while (turn()) {
		uint64_t now = progress();

		turns = now == before ? turns + 1 : 0;
		before = now;
		assert(turns < TURNS_MAX);
	}
}

/* All that was rung is completed where the queue pair can. */
static void check_rest(void)
{
	for (int i = 0; i < 2; i++) {
		const struct smx_qp *qp = w.qp[i];

		if (!qp || !qp->req || qp->sq_halted || (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR) ||
		    qp->sq.ci == qp->sq.pi)
			continue;
		fprintf(stderr, "queue pair %d rests in state %d with blocks %u to %u undone\n", i, (int)qp->state,
			qp->sq.ci, qp->sq.pi);
		for (uint32_t s = 0; s < smx_req_stream_count(qp); s++)
			fprintf(stderr,
				"stream %u: oldest %u current %d/%u stalled %d held %d una %x next "
				"%x sent %x\n",
				s, qp->req[s].oldest, qp->req[s].has_current, qp->req[s].current,
				qp->req[s].stalled, smx_req_is_held(&qp->req[s]),
				qp->req[s].una_psn, qp->req[s].next_psn, qp->req[s].sent_psn);
		abort();
	}
}

static void check_cqes(void)
{
	const struct smx_cq *cq = w.cq;
	uint32_t n = cq->pi < cq->attr.cqe_count ? cq->pi : cq->attr.cqe_count;

	if (cq->attr.buf == cq_buf_moved)
		return;		/* what was consumed did not move */
	for (uint32_t i = cq->pi - n; i != cq->pi; i++) {
		const struct smx_cqe64 *cqe = (const void *)((const uint8_t *)cq->attr.buf + 64 +
							     (size_t)(i % cq->attr.cqe_count) * 128);
		uint8_t op = cqe->op_own >> 4;

		assert((cqe->op_own & SMX_CQE_OWNER) == !!(i & cq->attr.cqe_count));
		assert(op <= SMX_CQE_RESP_SEND_INV || op == SMX_CQE_REQ_ERR || op == SMX_CQE_RESP_ERR ||
		       (w.tags && op == SMX_CQE_NO_PACKET));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum smx_qp_type types[] = { SMX_QP_RC, SMX_QP_DCI, SMX_QP_UD, SMX_QP_UC, SMX_QP_XRC_INI };

	if (size < 4)
		return 0;
	in = data + 3;
	in_end = data + size;
	memset(&p, 0, sizeof(p));
	w.tags = data[0] & 0x80 && types[data[0] % 5] == SMX_QP_RC;
	make_world(types[data[0] % 5], data[1], data[2]);
	for (int i = 0; i < OPS_MAX && in < in_end && !p.stopped; i++)
		step(byte());
	for (p.qp = 0; p.qp < 2; p.qp++) {
		if (w.qp[p.qp])
			smx_dev_watch_qp(w.dev, w.qp[p.qp], false);	/* that never rests */
		ring(0);
	}
	run_to_rest();
	if (!p.stopped)
		check_rest();
	check_cqes();
	end_world();
	return 0;
}
