/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: tag matching (IBV_SRQT_TM) as rdma-core's tag_matching.md and ibv_post_srq_ops(3) describe it.
 * Method: a sender with an ordinary queue pair, a receiver that feeds from the SRQ; tags, masks, order, caution
 * after unexpected messages, rendezvous that the device or the program fetches, and what goes wrong. */
#include "t_why.h"
#include "tag.h"

enum { BIG = 1 << 20, MIN_RNDV = 32, MSG = 256 };

static struct t_env *env;
static struct t_buf src, dst, bounce;

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, BIG + 4096, T_ALL);
	dst = t_buf(env, BIG + 4096, T_ALL);
	bounce = t_buf(env, BIG + 4096, T_ALL);
}

/* A matching list, a queue pair that feeds from it, and its peer. */
struct side {
	struct ibv_cq_ex *cq;	/* of the SRQ */
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct t_qp peer;
	struct ibv_qp_attr attr, peer_attr;
};

static struct side open_side(uint32_t max_send_wr)
{
	struct side s = { .cq = tag_cq(env) };
	struct ibv_srq_init_attr_ex attr = tag_srq_attr(env, s.cq);
	struct t_spec spec = { 0 };

	s.srq = ibv_create_srq_ex(env->ctx, &attr);
	MUST(s.srq, "ibv_create_srq_ex");
	s.qp = tag_qp(env, s.srq, s.cq, max_send_wr);
	MUST(s.qp, "ibv_create_qp");
	s.peer = t_qp(env, &spec);
	s.attr = t_attr(env, s.peer.qp->qp_num);
	s.peer_attr = t_attr(env, s.qp->qp_num);
	t_to_rts(s.qp, &s.attr);
	t_to_rts(s.peer.qp, &s.peer_attr);
	return s;
}

static void close_side(struct side *s)
{
	EXPECT_EQ(ibv_destroy_qp(s->qp), 0, "ibv_destroy_qp");
	EXPECT_EQ(ibv_destroy_srq(s->srq), 0, "ibv_destroy_srq");
	EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)), 0, "ibv_destroy_cq");
	t_qp_free(&s->peer);
}

static int op(struct side *s, enum ibv_ops_wr_opcode opcode, uint64_t wr_id, int flags, uint32_t seen,
	      uint32_t *handle, uint64_t tag, uint64_t mask, const struct ibv_sge *sge)
{
	return tag_post(s->srq, (struct tag_op){ opcode, wr_id, flags, seen, tag, mask, sge }, handle);
}

#define TAKE(s, op, id, flags) TAG_TAKE((s)->cq, (op), (id), (flags))

static uint32_t add(struct side *s, uint64_t wr_id, uint64_t tag, uint64_t mask, size_t at, uint32_t len)
{
	struct ibv_sge sge = { dst.va + at, len, dst.key };
	uint32_t handle = 0;

	EXPECT_EQ(op(s, IBV_WR_TAG_ADD, wr_id, IBV_OPS_SIGNALED, 0, &handle, tag, mask, &sge), 0, "IBV_WR_TAG_ADD");
	TAKE(s, IBV_WC_TM_ADD, wr_id, 0);
	return handle;
}

static void receives(struct side *s, int n, uint32_t len)
{
	for (int i = 0; i < n; i++)
		t_srq_recv(s->srq, i, (struct ibv_sge){ bounce.va + i * len, len, bounce.key });
}

static void send(struct side *s, const void *head, size_t head_len, size_t payload, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { src.va, (uint32_t)(head_len + payload), src.key };
	struct ibv_send_wr *bad, wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
					.send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(0xabcd) };

	memcpy(src.p, head, head_len);
	EXPECT_EQ(ibv_post_send(s->peer.qp, &wr, &bad), 0, "ibv_post_send");
}

/* Sends an eager message of payload bytes that follow the header, and waits for its completion. */
static void eager(struct side *s, uint64_t tag, size_t payload)
{
	struct ibv_tmh h = tag_tmh(IBV_TMH_EAGER, tag);

	t_fill(src.p + sizeof(h), payload, (uint32_t)tag);
	send(s, &h, sizeof(h), payload, IBV_WR_SEND);
	T_DONE(s->peer.scq, 7, IBV_WC_SEND);
}

enum { MATCH = IBV_WC_TM_MATCH, VALID = IBV_WC_TM_DATA_VALID };

/* Entries match in the order they were added, under their masks; the buffer has the payload alone. */
static void match(const void *arg)
{
	struct side s = open_side(0);
	struct tag_got g;

	(void)arg;
	receives(&s, 2, MSG);
	add(&s, 1, 0x50, 0xf0, 0, MSG);		/* 0x5? */
	add(&s, 2, 0x57, ~0ull, MSG, MSG);	/* 0x57 alone; the one before takes it first */
	add(&s, 3, 0, 0, 2 * MSG, MSG);		/* any */
	eager(&s, 0x57, 100);
	g = TAKE(&s, IBV_WC_TM_RECV, 1001, MATCH | VALID);
	EXPECT_EQ(g.tag, 0x57, "tag");
	EXPECT_EQ(g.priv, 0x1234, "priv");
	EXPECT_EQ(g.bytes, 100, "byte_len");
	EXPECT(t_is(dst.p, 100, 0x57), "payload");
	eager(&s, 0x57, 40);
	TAKE(&s, IBV_WC_TM_RECV, 1002, MATCH | VALID);
	EXPECT(t_is(dst.p + MSG, 40, 0x57), "payload of the second");
	eager(&s, 0x57, 0);
	g = TAKE(&s, IBV_WC_TM_RECV, 1003, MATCH | VALID);
	EXPECT_EQ(g.bytes, 0, "byte_len of an empty message");
	close_side(&s);
}

/* Beyond one packet the match and the data complete apart. */
static void long_message(const void *arg)
{
	struct side s = open_side(0);
	struct tag_got g;

	(void)arg;
	receives(&s, 1, MSG);
	add(&s, 1, 9, ~0ull, 0, BIG);
	eager(&s, 9, BIG);
	g = TAKE(&s, IBV_WC_TM_RECV, 1001, MATCH);
	EXPECT_EQ(g.tag, 9, "tag");
	g = TAKE(&s, IBV_WC_TM_RECV, 1001, VALID);
	EXPECT_EQ(g.bytes, BIG, "byte_len");
	EXPECT(t_is(dst.p, BIG, 9), "payload");
	close_side(&s);
}

static void immediate(const void *arg)
{
	struct side s = open_side(0);
	struct ibv_tmh h = tag_tmh(IBV_TMH_EAGER, 4);
	struct tag_got g;

	(void)arg;
	receives(&s, 1, MSG);
	add(&s, 1, 4, ~0ull, 0, MSG);
	send(&s, &h, sizeof(h), 8, IBV_WR_SEND_WITH_IMM);
	T_DONE(s.peer.scq, 7, IBV_WC_SEND);
	g = TAKE(&s, IBV_WC_TM_RECV, 1001, MATCH | VALID | IBV_WC_WITH_IMM);
	EXPECT_EQ(g.imm, 0xabcd, "immediate data");
	close_side(&s);
}

/* What has no tag goes to an ordinary receive, whole, and does not make the list cautious. */
static void no_tag(const void *arg)
{
	static const struct { uint8_t opcode; size_t head, payload; } rows[] = {
		{ IBV_TMH_NO_TAG, 16, 50 }, { IBV_TMH_FIN, 16, 16 }, { 9, 16, 4 }, { IBV_TMH_EAGER, 15, 0 },
		{ IBV_TMH_EAGER, 0, 0 },
	};
	struct side s = open_side(0);
	struct tag_got g;

	(void)arg;
	receives(&s, 5, MSG);
	add(&s, 1, 0, 0, 0, MSG);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ibv_tmh h = tag_tmh(rows[i].opcode, 0);

		t_fill(src.p + 16, rows[i].payload, i);
		send(&s, &h, rows[i].head, rows[i].payload, IBV_WR_SEND);
		T_DONE(s.peer.scq, 7, IBV_WC_SEND);
		g = TAKE(&s, IBV_WC_TM_NO_TAG, i, 0);
		EXPECT_EQ(g.bytes, rows[i].head + rows[i].payload, "byte_len");
		EXPECT_EQ(g.tag, 0, "tag");
		EXPECT(!memcmp(bounce.p + i * MSG, src.p, rows[i].head + rows[i].payload), "message %zu", i);
	}
	add(&s, 2, 1, ~0ull, MSG, MSG);
	eager(&s, 1, 10);
	TAKE(&s, IBV_WC_TM_RECV, 1001, MATCH | VALID);
	eager(&s, 1, 10);
	TAKE(&s, IBV_WC_TM_RECV, 1002, MATCH | VALID);
	close_side(&s);
}

/* After an unexpected message new entries do not match until the program says that it has seen it; those from
 * before go on. */
static void caution(const void *arg)
{
	struct side s = open_side(0);
	struct ibv_sge sge = { dst.va, MSG, dst.key };
	uint32_t handle = 0;
	struct tag_got g;

	(void)arg;
	receives(&s, 8, MSG);
	add(&s, 1, 1, ~0ull, 0, MSG);
	eager(&s, 2, 20);
	g = TAKE(&s, IBV_WC_TM_RECV, 0, 0);
	EXPECT_EQ(g.bytes, 36, "byte_len");
	EXPECT(!memcmp(bounce.p, src.p, 36), "an unexpected message is whole");
	EXPECT_EQ(op(&s, IBV_WR_TAG_ADD, 3, IBV_OPS_SIGNALED, 0, &handle, 3, ~0ull, &sge), 0, "IBV_WR_TAG_ADD");
	TAKE(&s, IBV_WC_TM_ADD, 3, IBV_WC_TM_SYNC_REQ);
	eager(&s, 3, 20);
	TAKE(&s, IBV_WC_TM_RECV, 1, 0);
	eager(&s, 1, 20);
	TAKE(&s, IBV_WC_TM_RECV, 1001, MATCH | VALID);
	/* One of two is not enough. */
	EXPECT_EQ(op(&s, IBV_WR_TAG_SYNC, 4, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, 1, NULL, 0, 0, NULL), 0, "sync");
	TAKE(&s, IBV_WC_TM_SYNC, 4, 0);
	eager(&s, 3, 20);
	TAKE(&s, IBV_WC_TM_RECV, 2, 0);
	EXPECT_EQ(op(&s, IBV_WR_TAG_SYNC, 5, IBV_OPS_TM_SYNC, 3, NULL, 0, 0, NULL), 0, "sync");
	eager(&s, 3, 20);
	TAKE(&s, IBV_WC_TM_RECV, 1003, MATCH | VALID);
	/* The count may come with an add. */
	eager(&s, 6, 20);
	TAKE(&s, IBV_WC_TM_RECV, 3, 0);
	EXPECT_EQ(op(&s, IBV_WR_TAG_ADD, 7, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, 4, &handle, 7, ~0ull, &sge), 0, "add");
	TAKE(&s, IBV_WC_TM_ADD, 7, 0);
	eager(&s, 7, 20);
	TAKE(&s, IBV_WC_TM_RECV, 1007, MATCH | VALID);
	close_side(&s);
}

static void removal(const void *arg)
{
	struct side s = open_side(0);
	uint32_t handle, gone;
	struct tag_got g;

	(void)arg;
	receives(&s, 4, MSG);
	gone = add(&s, 1, 1, ~0ull, 0, MSG);
	handle = add(&s, 2, 2, ~0ull, 0, MSG);
	EXPECT_EQ(op(&s, IBV_WR_TAG_DEL, 3, IBV_OPS_SIGNALED, 0, &handle, 0, 0, NULL), 0, "IBV_WR_TAG_DEL");
	TAKE(&s, IBV_WC_TM_DEL, 3, 0);
	/* A message is faster. */
	eager(&s, 1, 4);
	EXPECT_EQ(op(&s, IBV_WR_TAG_DEL, 4, IBV_OPS_SIGNALED, 0, &gone, 0, 0, NULL), 0, "IBV_WR_TAG_DEL, too late");
	TAKE(&s, IBV_WC_TM_RECV, 1001, MATCH | VALID);
	g = tag_take(s.cq);
	EXPECT_EQ(g.status, IBV_WC_TM_ERR, "status of a removal that came too late");
	EXPECT_EQ(g.wr_id, 4, "wr_id of it");
	EXPECT_EQ(g.opcode, IBV_WC_TM_DEL, "opcode of it");
	eager(&s, 2, 4);	/* removed: unexpected */
	TAKE(&s, IBV_WC_TM_RECV, 0, 0);
	EXPECT_EQ(op(&s, IBV_WR_TAG_DEL, 5, IBV_OPS_SIGNALED, 0, &handle, 0, 0, NULL), EINVAL, "removing what is gone");
	handle = 5000;
	EXPECT_EQ(op(&s, IBV_WR_TAG_DEL, 5, IBV_OPS_SIGNALED, 0, &handle, 0, 0, NULL), EINVAL, "handle 5000");
	close_side(&s);
}

/* All entries in use, then used again many times over. */
static void capacity(const void *arg)
{
	struct side s = open_side(0);
	struct ibv_sge sge = { dst.va, MSG, dst.key };
	uint32_t handle;

	(void)arg;
	receives(&s, 1, MSG);
	for (uint64_t i = 0; i < TAG_MAX; i++)
		add(&s, i, i, ~0ull, i * MSG, MSG);
	t_why_begin();
	EXPECT_EQ(op(&s, IBV_WR_TAG_ADD, 0, IBV_OPS_SIGNALED, 0, &handle, 0, 0, &sge), ENOMEM, "one entry too many");
	T_WHY("POST_TAGS_FULL", 0);
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t tag = i * 31 % TAG_MAX;

		eager(&s, tag, 64);
		TAKE(&s, IBV_WC_TM_RECV, tag + 1000, MATCH | VALID);
		EXPECT(t_is(dst.p + tag * MSG, 64, (uint32_t)tag), "payload of tag %d", (int)tag);
		add(&s, tag, tag, ~0ull, tag * MSG, MSG);
	}
	for (uint32_t i = 0; i < TAG_OPS; i++)	/* without a completion there is no room again */
		EXPECT_EQ(op(&s, IBV_WR_TAG_SYNC, i, IBV_OPS_TM_SYNC, 0, NULL, 0, 0, NULL), 0, "sync");
	t_why_begin();
	EXPECT_EQ(op(&s, IBV_WR_TAG_SYNC, 0, 0, 0, NULL, 0, 0, NULL), ENOMEM, "one operation too many");
	T_WHY("POST_SQ_FULL", 0);
	close_side(&s);
}

/* ---- rendezvous ---- */

static struct ibv_rvh rvh(size_t at, uint32_t len, uint32_t rkey)
{
	return (struct ibv_rvh){ .va = htobe64(src.va + at), .rkey = htobe32(rkey), .len = htobe32(len) };
}

static void rndv(struct side *s, uint64_t tag, struct ibv_rvh r, size_t extra)
{
	struct { struct ibv_tmh t; struct ibv_rvh r; } h = { tag_tmh(IBV_TMH_RNDV, tag), r };

	t_recv(&s->peer, 50 + tag, (struct ibv_sge){ bounce.va + BIG, 64, bounce.key });
	send(s, &h, sizeof(h), extra, IBV_WR_SEND);
}

/* The device reads the payload, and says so to the sender with a copy of its own headers. */
static void rendezvous(const void *arg)
{
	static const uint32_t lengths[] = { 0, 1, 100, 4096, BIG };
	struct side s = open_side(0);
	struct tag_got g;

	(void)arg;
	receives(&s, 1, MSG);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct ibv_tmh fin = tag_tmh(IBV_TMH_FIN, i);
		struct ibv_rvh r = rvh(4096, lengths[i], src.key);

		add(&s, i, i, ~0ull, 0, lengths[i]);
		t_fill(src.p + 4096, lengths[i], i);
		memset(dst.p, 0, lengths[i] + 1);
		rndv(&s, i, r, i * 8);
		T_DONE(s.peer.scq, 7, IBV_WC_SEND);
		g = TAKE(&s, IBV_WC_TM_RECV, i + 1000, MATCH);
		EXPECT_EQ(g.tag, i, "tag");
		g = TAKE(&s, IBV_WC_TM_RECV, i + 1000, VALID);
		EXPECT_EQ(g.bytes, lengths[i], "byte_len");
		EXPECT(t_is(dst.p, lengths[i], i) && !dst.p[lengths[i]], "payload of %u bytes", lengths[i]);
		EXPECT_EQ(T_DONE(s.peer.rcq, 50 + i, IBV_WC_RECV).wc.byte_len, MIN_RNDV, "length of FIN");
		EXPECT(!memcmp(bounce.p + BIG, &fin, sizeof(fin)) &&
		       !memcmp(bounce.p + BIG + sizeof(fin), &r, sizeof(r)), "FIN's headers");
	}
	close_side(&s);
}

/* More of them than the device's queue holds, none of them polled before all were sent. */
static void many_rendezvous(const void *arg)
{
	struct side s = open_side(0);

	(void)arg;
	receives(&s, 1, MSG);
	for (int round = 0; round < 20; round++) {
		for (uint64_t i = 0; i < 16; i++)
			add(&s, i, i, ~0ull, i * MSG, MSG);
		t_fill(src.p + 4096, MSG, round);
		for (uint64_t i = 0; i < 16; i++)
			rndv(&s, i, rvh(4096, MSG, src.key), 0);
		for (uint64_t i = 0; i < 16; i++)
			T_DONE(s.peer.scq, 7, IBV_WC_SEND);
		for (uint64_t i = 0; i < 32; i++)
			EXPECT_EQ(tag_take(s.cq).opcode, IBV_WC_TM_RECV, "opcode");
		for (uint64_t i = 0; i < 16; i++) {
			T_DONE(s.peer.rcq, 50 + i, IBV_WC_RECV);
			EXPECT(t_is(dst.p + i * MSG, MSG, round), "payload %d", (int)i);
		}
	}
	close_side(&s);
}

/* Where the device cannot fetch, the headers are in the tagged buffer and the program is to do it. */
static void software_rendezvous(const void *arg)
{
	const uint32_t *max_send_wr = arg;
	struct side s = open_side(*max_send_wr);
	struct ibv_rvh r = rvh(4096, MSG + 1, src.key);
	struct tag_got g;

	receives(&s, 1, MSG);
	add(&s, 1, 1, ~0ull, 0, *max_send_wr ? 2 * MSG : MSG);
	rndv(&s, 1, r, 8);
	T_DONE(s.peer.scq, 7, IBV_WC_SEND);
	g = tag_take(s.cq);
	EXPECT_EQ(g.status, IBV_WC_TM_RNDV_INCOMPLETE, "status");
	EXPECT_EQ(g.wr_id, 1001, "wr_id");
	EXPECT_EQ(g.bytes, MIN_RNDV + 8, "byte_len");
	EXPECT(!memcmp(dst.p, src.p, MIN_RNDV + 8), "headers in the tagged buffer");
	/* The entry is free again. */
	add(&s, 2, 2, ~0ull, 0, MSG);
	close_side(&s);
}

/* A rendezvous that meets no entry is an ordinary unexpected message. */
static void unexpected_rendezvous(const void *arg)
{
	struct side s = open_side(0);
	struct tag_got g;

	(void)arg;
	receives(&s, 1, MSG);
	rndv(&s, 1, rvh(4096, MSG, src.key), 16);
	T_DONE(s.peer.scq, 7, IBV_WC_SEND);
	g = TAKE(&s, IBV_WC_TM_RECV, 0, 0);
	EXPECT_EQ(g.bytes, MIN_RNDV + 16, "byte_len");
	EXPECT(!memcmp(bounce.p, src.p, MIN_RNDV + 16), "the message is whole");
	close_side(&s);
}

/* ---- going wrong ---- */

/* The payload cannot be read: the entry's completion says that it will not come, both sides end. */
static void bad_rvh(const void *arg)
{
	struct side s = open_side(0);
	struct tag_got g;

	(void)arg;
	receives(&s, 1, MSG);
	add(&s, 1, 1, ~0ull, 0, MSG);
	t_why_begin();
	rndv(&s, 1, rvh(4096, MSG, src.key + 0x100), 0);
	T_DONE(s.peer.scq, 7, IBV_WC_SEND);
	TAKE(&s, IBV_WC_TM_RECV, 1001, MATCH);
	g = tag_take(s.cq);
	EXPECT_EQ(g.status, IBV_WC_TM_RNDV_INCOMPLETE, "status");
	EXPECT_EQ(g.wr_id, 1001, "wr_id");
	T_WHY("REMOTE_KEY", s.qp->qp_num);
	EXPECT_EQ(t_qp_state(s.qp), IBV_QPS_ERR, "state of the receiver");
	EXPECT_EQ(t_qp_state(s.peer.qp), IBV_QPS_ERR, "state of the sender");
	close_side(&s);
}

/* A match whose data is in flight when the queue pair is moved to ERR. */
static void error_in_flight(const void *arg)
{
	struct side s = open_side(0);
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	struct tag_got g;

	(void)arg;
	receives(&s, 1, MSG);
	add(&s, 1, 1, ~0ull, 0, MSG);
	/* No receive for FIN at the sender: READ is done, FIN waits. The entry has completed by then. */
	struct { struct ibv_tmh t; struct ibv_rvh r; } h = { tag_tmh(IBV_TMH_RNDV, 1), rvh(4096, MSG, src.key) };

	send(&s, &h, sizeof(h), 0, IBV_WR_SEND);
	T_DONE(s.peer.scq, 7, IBV_WC_SEND);
	TAKE(&s, IBV_WC_TM_RECV, 1001, MATCH);
	TAKE(&s, IBV_WC_TM_RECV, 1001, VALID);
	EXPECT_EQ(ibv_modify_qp(s.qp, &err, IBV_QP_STATE), 0, "to ERR");
	EXPECT(!tag_look(s.cq, &g), "a completion of a message that had none to come");
	/* From RESET all begins anew. */
	t_reset(s.qp);
	t_reset(s.peer.qp);
	t_to_rts(s.qp, &s.attr);
	t_to_rts(s.peer.qp, &s.peer_attr);
	add(&s, 2, 2, ~0ull, 0, MSG);
	rndv(&s, 2, rvh(4096, MSG, src.key), 0);
	T_DONE(s.peer.scq, 7, IBV_WC_SEND);
	TAKE(&s, IBV_WC_TM_RECV, 1002, MATCH);
	TAKE(&s, IBV_WC_TM_RECV, 1002, VALID);
	T_DONE(s.peer.rcq, 52, IBV_WC_RECV);
	close_side(&s);
}

static void too_long(const void *arg)
{
	struct side s = open_side(0);
	struct ibv_tmh h = tag_tmh(IBV_TMH_EAGER, 1);
	struct tag_got g;

	(void)arg;
	receives(&s, 1, MSG);
	add(&s, 1, 1, ~0ull, 0, 100);
	memset(dst.p, 0, MSG);
	t_why_begin();
	send(&s, &h, sizeof(h), 101, IBV_WR_SEND);
	T_FAILED(s.peer.scq, 7, T_REM_INV);
	T_WHY("RECV_LENGTH", s.qp->qp_num);
	g = tag_take(s.cq);
	EXPECT_EQ(g.status, IBV_WC_TM_RNDV_INCOMPLETE, "status");
	EXPECT_EQ(g.wr_id, 1001, "wr_id");
	EXPECT(t_all(dst.p, MSG, 0), "bytes were written");
	EXPECT_EQ(t_qp_state(s.qp), IBV_QPS_ERR, "state of the receiver");
	close_side(&s);
}

/* Without an entry and without a receive the sender waits. */
static void not_ready(const void *arg)
{
	struct side s = open_side(0);
	struct ibv_tmh h = tag_tmh(IBV_TMH_EAGER, 1);

	(void)arg;
	send(&s, &h, sizeof(h), 10, IBV_WR_SEND);
	receives(&s, 1, MSG);
	T_DONE(s.peer.scq, 7, IBV_WC_SEND);
	TAKE(&s, IBV_WC_TM_RECV, 0, 0);
	/* It counted once, however often it came. */
	EXPECT_EQ(op(&s, IBV_WR_TAG_SYNC, 1, IBV_OPS_TM_SYNC, 1, NULL, 0, 0, NULL), 0, "sync");
	add(&s, 2, 0, 0, 0, MSG);
	close_side(&s);
}

static void refused(const void *arg)
{
	struct side s = open_side(0);
	struct ibv_cq *basic = ibv_create_cq(env->ctx, 16, NULL, NULL, 0);
	struct ibv_srq_init_attr_ex good = tag_srq_attr(env, s.cq), a;
	struct ibv_sge two[2] = { { dst.va, 8, dst.key }, { dst.va, 8, dst.key } };
	struct ibv_ops_wr *bad, wr = { .opcode = IBV_WR_TAG_ADD };
	struct ibv_qp_init_attr init = { .send_cq = basic, .recv_cq = basic, .srq = s.srq, .qp_type = IBV_QPT_UC };
	struct ibv_srq *plain = t_srq(env, 8);

	(void)arg;
#define NO_SRQ(change, what) \
	do { \
		a = good; \
		change; \
		t_why_begin(); \
		EXPECT(!ibv_create_srq_ex(env->ctx, &a) && errno == EINVAL, "%s: errno %d", what, errno); \
		T_WHY("OBJECT_ARG", 0); \
	} while (0)
	NO_SRQ(a.cq = basic, "a CQ of ibv_create_cq");
	NO_SRQ(a.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_TM, "no tm_cap");
	NO_SRQ(a.comp_mask &= ~(uint32_t)IBV_SRQ_INIT_ATTR_CQ, "no CQ");
	NO_SRQ(a.tm_cap.max_num_tags = 0, "no tags");
	NO_SRQ(a.tm_cap.max_num_tags = TAG_MAX + 1, "too many tags");
	NO_SRQ(a.tm_cap.max_ops = 0, "no operations");
	NO_SRQ(a.tm_cap.max_ops = 40000, "too many operations");
	EXPECT(!ibv_create_qp(env->pd, &init) && errno == EINVAL, "a UC queue pair: errno %d", errno);
	EXPECT_EQ(ibv_destroy_srq(s.srq), EBUSY, "destroying it under a queue pair");
	wr.tm.add.sg_list = two;
	wr.tm.add.num_sge = 2;
	EXPECT_EQ(ibv_post_srq_ops(s.srq, &wr, &bad), EINVAL, "two SGEs");
	wr.tm.add.num_sge = 1;
	wr.opcode = (enum ibv_ops_wr_opcode)17;
	EXPECT_EQ(ibv_post_srq_ops(s.srq, &wr, &bad), EINVAL, "opcode 17");
	wr.opcode = IBV_WR_TAG_ADD;
	EXPECT_EQ(ibv_post_srq_ops(plain, &wr, &bad), EINVAL, "ibv_post_srq_ops on a plain SRQ");
	add(&s, 1, 1, 1, 0, 8);	/* it still works */
	EXPECT_EQ(ibv_destroy_srq(plain), 0, "ibv_destroy_srq");
	close_side(&s);
	EXPECT_EQ(ibv_destroy_cq(basic), 0, "ibv_destroy_cq");
}

int main(void)
{
	static const uint32_t no_sq = 0, has_sq = 4;

	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("entries match in order, under their masks", match, NULL);
	t_case("a message of many packets completes twice", long_message, NULL);
	t_case("immediate data", immediate, NULL);
	t_case("messages without a tag", no_tag, NULL);
	t_case("unexpected messages make new entries wait", caution, NULL);
	t_case("entries are removed, or a message is faster", removal, NULL);
	t_case("all entries and operations in use", capacity, NULL);
	t_case("rendezvous: the device reads and says so", rendezvous, NULL);
	t_case("many rendezvous at once", many_rendezvous, NULL);
	t_case("rendezvous into too short a buffer", software_rendezvous, &no_sq);
	t_case("rendezvous on a queue pair with a send queue", software_rendezvous, &has_sq);
	t_case("rendezvous without an entry", unexpected_rendezvous, NULL);
	t_case("rendezvous with a wrong rkey", bad_rvh, NULL);
	t_case("an error behind the data; reset", error_in_flight, NULL);
	t_case("a message longer than the tagged buffer", too_long, NULL);
	t_case("neither entry nor receive: RNR", not_ready, NULL);
	t_case("what is refused", refused, NULL);
	t_buf_free(&src);
	t_buf_free(&dst);
	t_buf_free(&bounce);
	return t_close(env);
}
