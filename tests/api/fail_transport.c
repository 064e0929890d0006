/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Peers that do not answer or are not ready: retry and RNR, their codes, what the peer is afterwards, and that a
 * late receive ends an RNR wait. */
#include "t_why.h"

static struct t_env *env;
static struct t_buf src, dst;

enum peer { NOBODY, IN_RESET, IN_INIT, IN_ERR, DESTROYED, OTHER_DEST };

static const struct row { const char *name; enum peer peer; enum ibv_wr_opcode op; } rows[] = {
	{ "no such queue pair", NOBODY, IBV_WR_RDMA_WRITE },
	{ "peer in RESET", IN_RESET, IBV_WR_RDMA_WRITE },
	{ "peer in INIT", IN_INIT, IBV_WR_SEND },
	{ "peer in ERR", IN_ERR, IBV_WR_RDMA_WRITE },
	{ "READ, peer in ERR", IN_ERR, IBV_WR_RDMA_READ },
	{ "peer destroyed", DESTROYED, IBV_WR_SEND },
	{ "peer connected to another", OTHER_DEST, IBV_WR_RDMA_WRITE },
};

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 4096, T_ALL);
	dst = t_buf(env, 4096, T_ALL);
}

static void retries(const void *arg)
{
	const struct row *r = arg;
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_qp a = t_qp(env, &s), b = t_qp(env, &s), third = t_qp(env, &s);
	struct ibv_qp_attr attr = t_attr(env, b.qp->qp_num);
	struct t_op o[2] = { t_rdma(r->op, 1, t_sge(&src, 0, 64), dst.key, dst.va),
			     t_rdma(IBV_WR_RDMA_WRITE, 2, t_sge(&src, 0, 64), dst.key, dst.va + 64) };

	if (r->peer == NOBODY)
		attr.dest_qp_num = 0xfffff1;
	t_to_rts(a.qp, &attr);
	attr.dest_qp_num = r->peer == OTHER_DEST ? third.qp->qp_num : a.qp->qp_num;
	if (r->peer == IN_INIT)
		MUST(!t_modify(b.qp, &attr, IBV_QPS_INIT, T_INIT_MASK), "to INIT");
	if (r->peer == IN_ERR || r->peer == OTHER_DEST)
		t_to_rts(b.qp, &attr);
	if (r->peer == IN_ERR)
		MUST(!t_modify(b.qp, &attr, IBV_QPS_ERR, IBV_QP_STATE), "to ERR");
	if (r->peer == DESTROYED)
		t_qp_free(&b);
	memset(dst.p, 0x5a, dst.len);
	memset(src.p, 0xa5, src.len);
	t_why_begin();
	EXPECT_EQ(t_post_n(&a, o, 2), 0, "ibv_wr_complete");
	T_FAILED(a.scq, 1, T_RETRY);
	T_WHY("RETRY_EXCEEDED", a.qp->qp_num);
	T_FAILED(a.scq, 2, T_FLUSH);
	EXPECT_EQ(t_qp_state(a.qp), IBV_QPS_ERR, "state");
	/* RC packets do not name their sender: one whose number fits is taken, but its ACK goes to the other. */
	EXPECT(r->peer == OTHER_DEST || t_all(dst.p, dst.len, 0x5a), "remote memory was written");
	EXPECT(t_all(src.p, src.len, 0xa5), "local memory was written");
	t_qp_free(&a);
	if (r->peer != DESTROYED)
		t_qp_free(&b);
	t_qp_free(&third);
}

/* No receive posted: RNR retries are counted, the responder stays as it is. */
static void rnr(const void *arg)
{
	const int *retry = arg;
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = { .a = t_qp(env, &s), .b = t_qp(env, &s) };
	struct ibv_qp_attr attr = t_attr(env, p.b.qp->qp_num);
	struct t_op o[2] = { t_op(IBV_WR_SEND_WITH_IMM, 1, t_sge(&src, 0, 64)),
			     t_rdma(IBV_WR_RDMA_WRITE, 2, t_sge(&src, 0, 64), dst.key, dst.va) };

	attr.rnr_retry = *retry;
	t_to_rts(p.a.qp, &attr);
	attr.dest_qp_num = p.a.qp->qp_num;
	t_to_rts(p.b.qp, &attr);
	memset(dst.p, 0x5a, dst.len);
	t_why_begin();
	EXPECT_EQ(t_post_n(&p.a, o, 2), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, T_RNR);
	T_WHY("RNR_EXCEEDED", p.a.qp->qp_num);
	T_FAILED(p.a.scq, 2, T_FLUSH);
	EXPECT_EQ(t_qp_state(p.a.qp), IBV_QPS_ERR, "state of the requester");
	EXPECT_EQ(t_qp_state(p.b.qp), IBV_QPS_RTS, "state of the responder");
	EXPECT(t_all(dst.p, dst.len, 0x5a), "memory was written");
	T_QUIET(p.b.rcq);
	t_pair_free(&p);
}

/* With rnr_retry 7 the sender waits for ever; the receive that comes at last is used once. */
static void rnr_ends(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct t_op send = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, 64));
	struct t_op imm = t_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 2, t_sge(&src, 64, 64), dst.key, dst.va + 1000);

	(void)arg;
	t_fill(src.p, src.len, 1);
	memset(dst.p, 0, dst.len);
	imm.imm = 5;
	EXPECT_EQ(t_post(&p.a, &send), 0, "ibv_wr_complete");
	EXPECT_EQ(t_post(&p.a, &imm), 0, "ibv_wr_complete");
	T_QUIET(p.a.scq);
	EXPECT(t_all(dst.p, dst.len, 0), "memory was written before a receive was there");
	t_recv(&p.b, 7, t_sge(&dst, 0, 64));
	T_DONE(p.a.scq, 1, IBV_WC_SEND);
	T_DONE(p.b.rcq, 7, IBV_WC_RECV);
	T_QUIET(p.a.scq);	/* the WRITE with immediate waits in its turn */
	t_recv(&p.b, 8, t_sge(&dst, 0, 0));
	T_DONE(p.a.scq, 2, IBV_WC_RDMA_WRITE);
	T_DONE(p.b.rcq, 8, IBV_WC_RECV_RDMA_WITH_IMM);
	EXPECT(!memcmp(dst.p, src.p, 64) && !memcmp(dst.p + 1000, src.p + 64, 64), "data");
	t_pair_free(&p);
}

/* A long message that meets no receive has written nothing; its retry delivers all of it, once. */
static void rnr_long(const void *arg)
{
	const size_t len = 300000;
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct t_buf big = t_buf(env, len, T_ALL), to = t_buf(env, len, T_ALL);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&big, 0, len));

	(void)arg;
	t_fill(big.p, len, 3);
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_QUIET(p.a.scq);
	t_recv(&p.b, 2, t_sge(&to, 0, len));
	T_DONE(p.a.scq, 1, IBV_WC_SEND);
	EXPECT_EQ(T_DONE(p.b.rcq, 2, IBV_WC_RECV).wc.byte_len, len, "byte_len");
	EXPECT(t_is(to.p, len, 3), "data");
	T_QUIET(p.b.rcq);
	t_pair_free(&p);
	t_buf_free(&big);
	t_buf_free(&to);
}

/* An RC queue pair in RTR receives already: the peer may send before this side goes to RTS. */
static void peer_in_rtr(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = { .a = t_qp(env, &s), .b = t_qp(env, &s) };
	struct ibv_qp_attr attr = t_attr(env, p.b.qp->qp_num);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, 64));

	(void)arg;
	t_to_rts(p.a.qp, &attr);
	attr.dest_qp_num = p.a.qp->qp_num;
	MUST(!t_modify(p.b.qp, &attr, IBV_QPS_INIT, T_INIT_MASK), "to INIT");
	t_recv(&p.b, 2, t_sge(&dst, 0, 64));		/* receives are posted from INIT on */
	MUST(!t_modify(p.b.qp, &attr, IBV_QPS_RTR, T_RTR_MASK), "to RTR");
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 1, IBV_WC_SEND);
	T_DONE(p.b.rcq, 2, IBV_WC_RECV);
	t_pair_free(&p);
}

/* The two sides disagree about the first packet sequence number: the request is not accepted, silently. */
static void psn_mismatch(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = { .a = t_qp(env, &s), .b = t_qp(env, &s) };
	struct ibv_qp_attr attr = t_attr(env, p.b.qp->qp_num);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 64), dst.key, dst.va);

	(void)arg;
	t_to_rts(p.a.qp, &attr);
	attr.dest_qp_num = p.a.qp->qp_num;
	attr.rq_psn = 0x123 - 100;	/* expects an earlier one: ours is from the future */
	t_to_rts(p.b.qp, &attr);
	memset(dst.p, 0x5a, 64);
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, T_RETRY);
	EXPECT(t_all(dst.p, 64, 0x5a), "memory was written");
	t_pair_free(&p);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	static const int none = 0, two = 2;

	env = t_open();
	t_case("set up", set_up, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, retries, &rows[i]);
	t_case("no receive, rnr_retry 0", rnr, &none);
	t_case("no receive, rnr_retry 2", rnr, &two);
	t_case("a late receive ends the wait", rnr_ends, NULL);
	t_case("a long message waits and arrives once", rnr_long, NULL);
	t_case("peer in RTR", peer_in_rtr, NULL);
	t_case("different packet sequence numbers", psn_mismatch, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
