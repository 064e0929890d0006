/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: a message between two queue pairs of one device ends as if it had been a frame, in CQEs, memory, queues, states
 * and events; and it takes no frame exactly where nothing speaks against it.
 * Method: each row is done twice, once with frames only, and everything is compared. A frame is known by the sequence
 * number that it takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/guard.h"
#include "dev/dev.h"
#include "obj/mkey.h"
#include "xport/requester.h"
#include "xport/responder.h"

enum {
	MEM = 4 << 20, SRC = 0, DST = 2 << 20, FILLED = 1 << 16, BLOCKS = 64, CQES = 32, RECVS = 8, STRIDE = 64,
	PSN = 100, EVENTS = 8, DC_KEY = 0x5dc, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
};

struct end {
	struct smx_qp *qp;
	uint32_t qpn, dbrec[2], pi, received;
	_Alignas(64) uint8_t sq[BLOCKS * SMX_WQE_BB];
	_Alignas(64) uint8_t rq[RECVS * STRIDE];
};

/* What a row leaves behind. */
struct outcome {
	struct smx_cqe64 cqe[CQES];
	uint32_t cqes, states[2], taken, events[EVENTS], event_count, cq_events, refusals;
	bool key_free;
	uint8_t mem[MEM];
};

struct pair {
	struct smx_dev *dev;
	struct smx_refusal_log log;
	struct smx_pd *pd;
	struct smx_cq *cq;
	struct smx_srq *srq;
	struct smx_mkey *spare;
	uint32_t key, spare_key, cq_dbrec[2], srq_dbrec;
	uint64_t now;
	struct end a, b;
	struct outcome out;
	_Alignas(64) uint8_t cq_buf[CQES * 64];
};

/* What differs from an ordinary connection. */
enum odd {
	NOTHING, RTR, OTHER_MTU, OTHER_PSN, NO_WRITES, SRQ, SRQ_LIMIT, SRQ_BROKEN, FULL_CQ, ARMED, ARMED_SOLICITED,
	BAD_RECV_KEY, BAD_KEY, BAD_INVALIDATE, BAD_RKEY, LEFT_BEHIND, BEHIND_ANOTHER, UNMAPPED, DRAINED, SMALL_IN_CQE,
	SELF, NOT_SIGNALED, BEGUN, OTHER_PEER, OTHER_TYPE, OTHER_DC_KEY, NO_SOURCE, BAD_SECOND,
};

struct row {
	const char *name;
	uint8_t opcode;
	uint32_t length, pieces;	/* of the message, in so many SGEs; 0 pieces: inline */
	uint32_t recv[2];		/* lengths of the receive's SGEs; both 0: none is posted */
	bool frame, dc;
	enum odd odd;
	uint64_t dst;			/* the receive's place in memory, where it is not DST */
};

static uint64_t now_of(void *arg)
{
	return ((struct pair *)arg)->now;
}

static void cq_event(void *cookie, void *arg)
{
	(void)cookie;
	((struct pair *)arg)->out.cq_events++;
}

static void async_event(enum ibv_event_type type, void *cookie, void *arg)
{
	struct outcome *out = &((struct pair *)arg)->out;

	(void)cookie;
	assert_true(out->event_count < EVENTS);
	out->events[out->event_count++] = type;
}

static uint32_t make_key(struct pair *p, struct smx_mkey_attr *attr, struct smx_mkey **mkey)
{
	uint32_t key;

	attr->pd = p->pd;
	assert_int_equal(smx_cmd_create_mkey(p->dev, attr, mkey, &key), 0);
	return key;
}

static void make_qp(struct pair *p, struct end *e, const struct row *r)
{
	struct smx_qp_attr attr = {
		.type = SMX_QP_RC, .pd = p->pd, .send_cq = p->cq, .recv_cq = p->cq, .sq_buf = e->sq,
		.sq_bb_count = BLOCKS, .rq_buf = e->rq, .rq_wqe_count = RECVS, .rq_stride_bytes = STRIDE,
		.dbrec = e->dbrec, .user_index = 0xabc, .resp_scatter_bytes = r->odd == SMALL_IN_CQE ? 32 : 0,
		.dc_key = DC_KEY,
	};

	if (p->srq && e == &p->b) {
		attr.srq = p->srq;
		attr.rq_wqe_count = 0;
	}
	if (r->dc) {
		attr.type = e == &p->b ? SMX_QP_DCT : SMX_QP_DCI;
		attr.rq_wqe_count = 0;
		attr.sq_bb_count = e == &p->b ? 0 : BLOCKS;
	}
	if (r->odd == OTHER_TYPE && e == &p->b)
		attr.type = SMX_QP_UC;
	assert_int_equal(smx_cmd_create_qp(p->dev, &attr, &e->qp, &e->qpn), 0);
}

/* What each type needs to be told on its way. */
static void connect_qp(struct pair *p, const struct end *e, const struct end *to, const struct row *r)
{
	enum { INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, PATH = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU,
	       RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		     IBV_QP_MAX_QP_RD_ATOMIC };
	static const struct { int init, rtr, rts; } masks[] = {
		[SMX_QP_RC] = { INIT | IBV_QP_ACCESS_FLAGS, PATH | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, RTS },
		[SMX_QP_UC] = { INIT | IBV_QP_ACCESS_FLAGS, PATH | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
				IBV_QP_STATE | IBV_QP_SQ_PSN },
		[SMX_QP_DCI] = { INIT, PATH, RTS },
		[SMX_QP_DCT] = { INIT | IBV_QP_ACCESS_FLAGS, PATH | IBV_QP_MIN_RNR_TIMER, 0 },
	};
	bool odd = e == &p->b || to == e;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .dest_qp_num = to->qpn, .rq_psn = PSN, .sq_psn = PSN,
		.path_mtu = odd && r->odd == OTHER_MTU ? IBV_MTU_512 : IBV_MTU_1024,
		.qp_access_flags = odd && r->odd == NO_WRITES ? 0 : IBV_ACCESS_REMOTE_WRITE,
		.max_rd_atomic = 4, .max_dest_rd_atomic = 4, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 2,
		.rnr_retry = 7, .ah_attr = { .is_global = 1, .port_num = 1 },
	};
	struct smx_path path = { .hop_limit = 1 };
	enum smx_qp_type type = e->qp->attr.type;

	if (odd && r->odd == OTHER_PSN)
		attr.rq_psn = PSN - 1;
	assert_int_equal(smx_cmd_modify_qp(p->dev, e->qp, &attr, masks[type].init, NULL), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(smx_cmd_modify_qp(p->dev, e->qp, &attr, masks[type].rtr, &path), 0);
	if (!masks[type].rts || (odd && r->odd == RTR))
		return;
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(smx_cmd_modify_qp(p->dev, e->qp, &attr, masks[type].rts, NULL), 0);
}

static struct end *target_of(struct pair *p, const struct row *r)
{
	return r->odd == SELF ? &p->a : &p->b;
}

static struct pair *open_pair(const struct row *r, bool direct)
{
	struct pair *p = aligned_alloc(64, (sizeof(*p) + 63) & ~(size_t)63);
	struct smx_dev_attr attr = {
		.env = { .now = now_of, .cq_event = cq_event, .async_event = async_event,
			 .copy = smx_guard_copy, .call = smx_guard_call, .arg = p, .refusals = &p->log },
		.memcpy_max_bytes = 1 << 20, .turn_budget_bytes = 1 << 20, .mtu_bytes = 4096, .direct = direct,
	};
	struct smx_cq_attr cq = { .buf = p->cq_buf, .cqe_count = CQES, .cqe_bytes = 64, .dbrec = p->cq_dbrec };
	struct smx_mkey_attr mem = { .kind = SMX_MKEY_DIRECT, .access = ALL, .start = (uintptr_t)p->out.mem,
				     .length = MEM, .host = p->out.mem };
	struct smx_mkey_attr spare = { .kind = SMX_MKEY_INDIRECT, .max_entries = 4,
				       .remote_invalidate = r->odd != BAD_INVALIDATE };
	struct smx_srq_attr srq = { .buf = p->b.rq, .wqe_count = RECVS, .stride_bytes = STRIDE,
				    .dbrec = &p->srq_dbrec };
	struct smx_mkey *mkey;
	uint32_t n;

	smx_guard_install();
	memset(p, 0, sizeof(*p));
	memset(p->cq_buf, 0xff, sizeof(p->cq_buf));
	for (uint32_t i = 0; i < FILLED; i++)
		p->out.mem[i] = (uint8_t)(i * 7 + (i >> 8));
	p->now = 1000;
	assert_int_equal(smx_dev_create(&attr, &p->dev), 0);
	assert_int_equal(smx_cmd_alloc_pd(p->dev, &p->pd, &n), 0);
	assert_int_equal(smx_cmd_create_cq(p->dev, &cq, &p->cq, &n), 0);
	p->key = make_key(p, &mem, &mkey);
	p->spare_key = make_key(p, &spare, &p->spare);
	p->spare->free = false;
	srq.pd = p->pd;
	srq.limit = r->odd == SRQ_LIMIT;
	if (r->dc || (r->odd >= SRQ && r->odd <= SRQ_BROKEN))
		assert_int_equal(smx_cmd_create_srq(p->dev, &srq, &p->srq, &n), 0);
	make_qp(p, &p->a, r);
	make_qp(p, &p->b, r);
	connect_qp(p, &p->a, r->odd == SELF ? &p->a : &p->b, r);
	connect_qp(p, &p->b, r->odd == OTHER_PEER ? &p->b : &p->a, r);
	if (r->odd == NO_SOURCE)
		smx_dev_set_gid(p->dev, 1, (const uint8_t *)"a source GID, not of index 0");
	return p;
}

static void close_pair(struct pair *p)
{
	smx_dev_destroy(p->dev);
	free(p);
}

static void post_receive(struct pair *p, struct end *e, const struct row *r)
{
	uint8_t *wqe = e->rq + e->received % RECVS * STRIDE;
	struct smx_wqe_srq_next next = { .next_wqe_index = to_be16((uint16_t)((e->received + 1) % RECVS)) };
	uint64_t va = (uintptr_t)p->out.mem + (r->dst ? r->dst : DST);
	struct smx_wqe_data seg[3] = { { .lkey = to_be32(SMX_LKEY_END) }, { .lkey = to_be32(SMX_LKEY_END) } };
	uint32_t n = 0;

	if (r->odd == SRQ_BROKEN)
		next.next_wqe_index = to_be16(RECVS);
	for (uint32_t i = 0; i < 2; i++) {
		if (r->recv[i])
			seg[n++] = (struct smx_wqe_data){ .byte_count = to_be32(r->recv[i]), .va = to_be64(va),
							  .lkey = to_be32(p->key ^ (r->odd == BAD_RECV_KEY)) };
		va += r->recv[i];
	}
	if (n < 2)
		seg[n] = (struct smx_wqe_data){ .lkey = to_be32(SMX_LKEY_END) };
	if (p->srq)
		memcpy(wqe, &next, sizeof(next));
	memcpy(wqe + (p->srq ? sizeof(next) : 0), seg, 2 * sizeof(seg[0]));
	e->received++;
	be32_store_release(p->srq ? &p->srq_dbrec : &e->dbrec[SMX_DBREC_RCV], e->received);
	if (p->srq)
		smx_dev_ring_srq(p->dev, p->srq);
	else
		smx_dev_ring_rq(p->dev, e->qp);
}

static uint32_t put_payload(struct pair *p, const struct row *r, uint8_t *at)
{
	uint32_t part = r->pieces ? r->length / r->pieces : 0, off = 0;
	be32 head = to_be32(r->length | SMX_INLINE_SEG);

	if (!r->pieces) {
		memcpy(at, &head, sizeof(head));
		memcpy(at + sizeof(head), p->out.mem, r->length);
		return (r->length + (uint32_t)sizeof(head) + SMX_WQE_DS - 1) / SMX_WQE_DS;
	}
	for (uint32_t i = 0; i < r->pieces; i++) {
		uint32_t n = i + 1 < r->pieces ? part : r->length - off;
		bool bad = r->odd == BAD_KEY || (r->odd == BAD_SECOND && i == 1);
		struct smx_wqe_data seg = { .byte_count = to_be32(n), .lkey = to_be32(p->key ^ bad),
					    .va = to_be64((uintptr_t)p->out.mem + SRC + off) };

		memcpy(at + i * SMX_WQE_DS, &seg, sizeof(seg));
		off += n;
	}
	return r->pieces;
}

static void post_send(struct pair *p, const struct row *r)
{
	struct end *e = &p->a;
	uint8_t *wqe = e->sq + e->pi % BLOCKS * SMX_WQE_BB;
	uint32_t ds = 1;
	struct smx_wqe_ctrl ctrl = { .opmod_idx_opcode = to_be32(e->pi << 8 | r->opcode),
				     .fm_ce_se = (r->odd == NOT_SIGNALED ? 0 : SMX_CTRL_CQ_UPDATE) |
						 (r->odd == ARMED_SOLICITED ? SMX_CTRL_SOLICITED : 0) };
	be32 imm = to_be32(r->opcode == SMX_OP_SEND_INVAL ? p->spare_key : 0x11223344);
	struct smx_wqe_raddr raddr = { .va = to_be64((uintptr_t)p->out.mem + DST + 4096),
				       .rkey = to_be32(p->key ^ (r->odd == BAD_RKEY)) };
	struct smx_wqe_av av = { .dqp_dct = to_be32(p->b.qpn | SMX_AV_EXTENDED), .hop_limit = 1,
				 .dc_key = to_be64(DC_KEY + (r->odd == OTHER_DC_KEY)) };

	if (r->dc) {
		memcpy(wqe + SMX_WQE_DS * ds, &av, sizeof(av));
		ds += sizeof(av) / SMX_WQE_DS;
	}
	if (r->opcode == SMX_OP_RDMA_WRITE_IMM)
		memcpy(wqe + SMX_WQE_DS * ds++, &raddr, sizeof(raddr));
	if (r->length)
		ds += put_payload(p, r, wqe + SMX_WQE_DS * ds);
	memcpy(&ctrl.imm, &imm, sizeof(imm));
	ctrl.qpn_ds = to_be32(e->qpn << 8 | ds);
	memcpy(wqe, &ctrl, sizeof(ctrl));
	e->pi += (ds + 3) / 4;
	be32_store_release(&e->dbrec[SMX_DBREC_SND], e->pi);
	smx_dev_ring_sq(p->dev, e->qp);
}

/* Until only time can change anything. */
static void turn(struct pair *p)
{
	for (int i = 0; i < 1000; i++)
		if (smx_dev_turn(p->dev))
			return;
	fail_msg("the device does not come to rest");
}

/* What the target knows of the sender: a DC target since the first frame, which is sent for that. */
static struct smx_resp_ctx *context(struct pair *p, const struct row *r)
{
	struct smx_responder *resp = target_of(p, r)->qp->resp;
	bool direct = p->dev->attr.direct;

	if (!r->dc)
		return resp->one;
	p->dev->attr.direct = false;
	post_send(p, r);
	turn(p);
	p->dev->attr.direct = direct;
	for (int i = 0; i < SMX_RESP_DC_BUCKETS; i++)
		if (resp->bucket[i])
			return resp->bucket[i];
	fail_msg("the target knows no sender");
	return NULL;
}

static void prepare(struct pair *p, const struct row *r)
{
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD };
	struct smx_resp_ctx *c;

	if (r->odd == FULL_CQ)
		p->cq->pi = CQES;
	if (r->odd == ARMED || r->odd == ARMED_SOLICITED)
		smx_dev_arm_cq(p->dev, p->cq, r->odd == ARMED_SOLICITED ? SMX_CQ_ARM_SOLICITED : 0);
	if (r->odd == UNMAPPED)
		((struct smx_mkey *)smx_mkey_find(p->dev, p->key))->attr.host = (void *)16;
	if (r->odd == DRAINED)
		assert_int_equal(smx_cmd_modify_qp(p->dev, p->b.qp, &sqd, IBV_QP_STATE, NULL), 0);
	if (r->odd == BEGUN)
		context(p, r)->message = SMX_RESP_IN_SEND;
	if (r->odd != LEFT_BEHIND)
		return;
	/* As after a sender whose payload could not be read. */
	c = context(p, r);
	c->has_recv = p->srq ? smx_srq_take(p->dev, p->srq, &c->recv) : smx_rq_take(&p->b.qp->rq, &c->recv);
	assert_true(c->has_recv);
	c->recv_srq = p->srq;
}

/* RETURN whether a sequence number was taken. */
static bool run(const struct row *r, bool direct, struct outcome *out)
{
	struct pair *p = open_pair(r, direct);
	struct end *target = target_of(p, r);
	uint32_t before;
	bool frame;

	if (r->recv[0])
		post_receive(p, target, r);
	if (r->recv[0] && r->odd != SRQ_LIMIT)
		post_receive(p, target, r);
	prepare(p, r);
	before = p->a.qp->req[0].next_psn;
	post_send(p, r);
	if (r->odd == BEHIND_ANOTHER || r->odd == SRQ_BROKEN)
		post_send(p, r);
	turn(p);
	frame = p->a.qp->req[0].next_psn != before || !r->recv[0];
	if (!r->recv[0]) {	/* it waits for a receive, which comes */
		struct row some = *r;

		assert_int_equal(p->cq->pi, 0);
		assert_int_equal(p->dev->rnr_waiting, 1);
		some.recv[0] = r->length;
		post_receive(p, target, &some);
		post_receive(p, target, &some);
		turn(p);
	}
	p->out.cqes = p->cq->pi;
	memcpy(p->out.cqe, p->cq_buf, sizeof(p->out.cqe));
	for (uint32_t i = 0; i < CQES; i++)
		p->out.cqe[i].timestamp = to_be64(0);
	p->out.states[0] = p->a.qp->state;
	p->out.states[1] = p->b.qp->state;
	p->out.taken = p->srq ? p->srq->taken : target->qp->rq.taken;
	p->out.key_free = p->spare->free;
	p->out.refusals = (uint32_t)p->log.count;
	*out = p->out;
	close_pair(p);
	return frame;
}

static const struct row rows[] = {
	{ "a message", SMX_OP_SEND, 64, 1, { 64 }, .odd = NOTHING },
	{ "not signaled", SMX_OP_SEND, 64, 1, { 64 }, .odd = NOT_SIGNALED },
	{ "with immediate", SMX_OP_SEND_IMM, 64, 1, { 100 }, .odd = NOTHING },
	{ "with invalidate", SMX_OP_SEND_INVAL, 64, 1, { 100 }, .odd = NOTHING },
	{ "write with immediate", SMX_OP_RDMA_WRITE_IMM, 64, 1, { 1 }, .odd = NOTHING },
	{ "write with immediate of nothing", SMX_OP_RDMA_WRITE_IMM, 0, 1, { 1 }, .odd = BAD_RKEY },
	{ "of nothing", SMX_OP_SEND, 0, 1, { 64 }, .odd = NOTHING },
	{ "inline", SMX_OP_SEND, 40, 0, { 64 }, .odd = NOTHING },
	{ "longer than the MTU", SMX_OP_SEND, 9000, 1, { 9000 }, .odd = NOTHING },
	{ "of three pieces to two", SMX_OP_SEND, 100, 3, { 33, 70 }, .odd = NOTHING },
	{ "of one piece to two", SMX_OP_SEND_IMM, 100, 1, { 99, 1 }, .odd = NOTHING },
	{ "of two pieces to one", SMX_OP_RDMA_WRITE_IMM, 5000, 2, { 1 }, .odd = NOTHING },
	{ "onto itself", SMX_OP_SEND, 2000, 1, { 2000 }, .dst = SRC + 1000 },
	{ "small", SMX_OP_SEND, 30, 1, { 64 }, .odd = SMALL_IN_CQE },
	{ "small, of two pieces, immediate", SMX_OP_SEND_IMM, 32, 2, { 20, 12 }, .odd = SMALL_IN_CQE },
	{ "small, by a write", SMX_OP_RDMA_WRITE_IMM, 30, 1, { 64 }, .odd = SMALL_IN_CQE },
	{ "too long for the completion", SMX_OP_SEND, 33, 1, { 64 }, .odd = SMALL_IN_CQE },
	{ "to oneself", SMX_OP_SEND, 64, 1, { 64 }, .odd = SELF },
	{ "two", SMX_OP_SEND, 64, 1, { 64 }, .odd = BEHIND_ANOTHER },
	{ "from a shared queue", SMX_OP_SEND, 64, 1, { 20, 50 }, .odd = SRQ },
	{ "from a shared queue, to its limit", SMX_OP_SEND, 64, 1, { 64 }, .odd = SRQ_LIMIT },
	{ "to one whose sending is drained", SMX_OP_SEND, 64, 1, { 64 }, .odd = DRAINED },
	{ "somebody waits for it", SMX_OP_SEND, 64, 1, { 64 }, .odd = ARMED },
	{ "solicited, somebody waits for it", SMX_OP_SEND, 64, 1, { 64 }, .odd = ARMED_SOLICITED },
	{ "no room for completions", SMX_OP_SEND, 64, 1, { 64 }, .odd = FULL_CQ },
	{ "the sender's key is wrong", SMX_OP_SEND, 64, 1, { 64 }, .odd = BAD_KEY },
	{ "the sender's second key is wrong", SMX_OP_SEND, 64, 2, { 64 }, .odd = BAD_SECOND },
	{ "longer than one frame", SMX_OP_SEND, (1 << 20) + 1, 1, { 1 << 20, 1 }, .frame = true },
	{ "the first after the connection", SMX_OP_SEND, 64, 1, { 64 }, .frame = true, .odd = RTR },
	{ "no receive", SMX_OP_SEND, 64, 1, { 0 }, .frame = true },
	{ "no receive, two", SMX_OP_SEND_IMM, 64, 1, { 0 }, .frame = true, .odd = BEHIND_ANOTHER },
	{ "no receive for a write", SMX_OP_RDMA_WRITE_IMM, 64, 1, { 0 }, .frame = true },
	{ "a receive is left of an earlier message", SMX_OP_SEND, 64, 1, { 64 }, .frame = true, .odd = LEFT_BEHIND },
	{ "too long for the receive", SMX_OP_SEND, 3000, 1, { 2000, 999 }, .frame = true },
	{ "too long for a receive of nothing", SMX_OP_SEND, 64, 1, { 1 }, .frame = true },
	{ "the receive's key is wrong", SMX_OP_SEND, 64, 1, { 64 }, .frame = true, .odd = BAD_RECV_KEY },
	{ "nothing may be invalidated", SMX_OP_SEND_INVAL, 64, 1, { 64 }, .frame = true, .odd = BAD_INVALIDATE },
	{ "the remote key is wrong", SMX_OP_RDMA_WRITE_IMM, 64, 1, { 64 }, .frame = true, .odd = BAD_RKEY },
	{ "no remote writes", SMX_OP_RDMA_WRITE_IMM, 64, 1, { 64 }, .frame = true, .odd = NO_WRITES },
	{ "the memory is gone", SMX_OP_SEND, 64, 1, { 64 }, .frame = true, .odd = UNMAPPED },
	{ "the memory ends", SMX_OP_SEND, 30, 1, { 64 }, .frame = true, .odd = SMALL_IN_CQE, .dst = MEM - 10 },
	{ "the ends disagree on the MTU", SMX_OP_SEND, 64, 1, { 64 }, .frame = true, .odd = OTHER_MTU },
	{ "the ends disagree on the number", SMX_OP_SEND, 64, 1, { 64 }, .frame = true, .odd = OTHER_PSN },
	{ "a message was begun", SMX_OP_SEND, 64, 1, { 64 }, .frame = true, .odd = BEGUN },
	{ "the other end is connected elsewhere", SMX_OP_SEND, 64, 1, { 64 }, .frame = true, .odd = OTHER_PEER },
	{ "the other end is of another type", SMX_OP_SEND, 64, 1, { 64 }, .frame = true, .odd = OTHER_TYPE },
	{ "DC", SMX_OP_SEND, 64, 1, { 64 }, .dc = true },
	{ "DC, with immediate, of two pieces", SMX_OP_SEND_IMM, 64, 2, { 60, 4 }, .dc = true },
	{ "DC, small", SMX_OP_SEND, 30, 1, { 64 }, .dc = true, .odd = SMALL_IN_CQE },
	{ "DC, write with immediate", SMX_OP_RDMA_WRITE_IMM, 64, 1, { 64 }, .dc = true },
	{ "DC, no remote writes", SMX_OP_RDMA_WRITE_IMM, 64, 1, { 64 }, .dc = true, .frame = true, .odd = NO_WRITES },
	{ "DC, no receive", SMX_OP_SEND, 64, 1, { 0 }, .dc = true, .frame = true },
	{ "DC, the ends disagree on the MTU", SMX_OP_SEND, 64, 1, { 64 }, .dc = true, .frame = true, .odd = OTHER_MTU },
	{ "DC, another key", SMX_OP_SEND, 64, 1, { 64 }, .dc = true, .frame = true, .odd = OTHER_DC_KEY },
	{ "DC, no such source", SMX_OP_SEND, 64, 1, { 64 }, .dc = true, .odd = NO_SOURCE },
	{ "DC, a receive is left", SMX_OP_SEND, 64, 1, { 64 }, .dc = true, .frame = true, .odd = LEFT_BEHIND },
	{ "DC, a message was begun", SMX_OP_SEND, 64, 1, { 64 }, .dc = true, .frame = true, .odd = BEGUN },
	{ "the shared queue leads nowhere", SMX_OP_SEND, 64, 1, { 64 }, .frame = true, .odd = SRQ_BROKEN },
};

static void as_a_frame(void **state)
{
	struct outcome *here = malloc(sizeof(*here)), *frame = malloc(sizeof(*frame));

	(void)state;
	assert_true(here && frame);
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		bool sent;

		print_message("%s\n", r->name);
		/* What is wrong with the request itself, or its memory, leaves no packet. */
		assert_int_equal(run(r, false, frame),
				 r->odd != BAD_KEY && r->odd != BAD_SECOND && r->odd != NO_SOURCE);
		sent = run(r, true, here);
		assert_int_equal(sent, r->frame);
		assert_int_equal(here->cqes, frame->cqes);
		assert_memory_equal(here->cqe, frame->cqe, sizeof(here->cqe));
		assert_int_equal(here->event_count, frame->event_count);
		assert_memory_equal(here->events, frame->events, sizeof(here->events));
		assert_memory_equal(here->mem, frame->mem, sizeof(here->mem));
		assert_int_equal(here->taken, frame->taken);
		assert_int_equal(here->states[0], frame->states[0]);
		assert_int_equal(here->states[1], frame->states[1]);
		assert_int_equal(here->key_free, frame->key_free);
		assert_int_equal(here->cq_events, frame->cq_events);
		assert_int_equal(here->refusals, frame->refusals);
	}
	free(here);
	free(frame);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(as_a_frame) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
