/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* UD and UC: the 40 bytes of GRH before the data, who sent it, Q_Key, no receive means loss, multicast;
 * UC writes and sends, and a message that cannot be delivered vanishes. */
#include "t_why.h"

enum { GRH = 40 };

static struct t_env *env;
static struct t_buf src, dst;
static struct t_qp a, b;
static struct ibv_ah *ah;

static void set_up(const void *arg)
{
	struct t_spec s = { .type = IBV_QPT_UD, .ops = T_UD_OPS, .inl = 64 };

	(void)arg;
	src = t_buf(env, 65536, T_ALL);
	dst = t_buf(env, 65536, T_ALL);
	a = t_qp(env, &s);
	b = t_qp(env, &s);
	t_ud_rts(env, a.qp);
	t_ud_rts(env, b.qp);
	ah = t_ah(env);
}

static struct t_op to_b(enum ibv_wr_opcode op, uint64_t wr_id, uint32_t len)
{
	struct t_op o = t_op(op, wr_id, t_sge(&src, 0, len));

	o.ah = ah;
	o.dest = b.qp->qp_num;
	o.qkey = T_QKEY;
	return o;
}

static const struct row {
	const char *name;
	enum ibv_wr_opcode op;
	enum t_setter set;
	bool old;
	uint32_t len;
} rows[] = {
	{ "send, ibv_wr_*",		IBV_WR_SEND, T_SGE, false, 100 },
	{ "send, ibv_post_send",	IBV_WR_SEND, T_SGE, true, 100 },
	{ "send inline, ibv_wr_*",	IBV_WR_SEND, T_INLINE, false, 64 },
	{ "send inline, ibv_post_send",	IBV_WR_SEND, T_INLINE, true, 64 },
	{ "send imm, ibv_wr_*",		IBV_WR_SEND_WITH_IMM, T_SGE, false, 100 },
	{ "send imm, ibv_post_send",	IBV_WR_SEND_WITH_IMM, T_SGE, true, 100 },
	{ "send of 0 bytes",		IBV_WR_SEND, T_SGE, false, 0 },
	{ "send of one MTU",		IBV_WR_SEND, T_SGE, false, 4096 },
};

static void send_row(const void *arg)
{
	const struct row *r = arg;
	uint32_t len = r->len == 4096 ? 128u << env->mtu : r->len;
	struct t_op o = to_b(r->op, 1, len);
	struct t_wc wc;
	uint8_t *ip;

	o.set = r->set;
	o.imm = 0xfeed;
	t_fill(src.p, len, 1);
	memset(dst.p, 0, 8192);
	t_recv(&b, 2, t_sge(&dst, 0, 8192));
	EXPECT_EQ(r->old ? t_post_old(&a, &o) : t_post(&a, &o), 0, "posting");
	T_DONE(a.scq, 1, IBV_WC_SEND);
	wc = T_DONE(b.rcq, 2, IBV_WC_RECV);
	EXPECT_EQ(wc.wc.byte_len, len + GRH, "byte_len counts the GRH");
	EXPECT(wc.wc.wc_flags & IBV_WC_GRH, "IBV_WC_GRH is not set");
	EXPECT_EQ(wc.wc.src_qp, a.qp->qp_num, "src_qp");
	EXPECT_EQ(!!(wc.wc.wc_flags & IBV_WC_WITH_IMM), r->op == IBV_WR_SEND_WITH_IMM, "IBV_WC_WITH_IMM");
	if (r->op == IBV_WR_SEND_WITH_IMM)
		EXPECT_EQ(be32toh(wc.wc.imm_data), 0xfeed, "immediate data");
	EXPECT(t_is(dst.p + GRH, len, 1) && t_all(dst.p + GRH + len, 64, 0), "data");

	/* RoCE v2: an IPv6 header, or an IPv4 header in the last 20 bytes; the destination is our GID. */
	ip = dst.p + 20;
	if (env->gid.raw[10] == 0xff && env->gid.raw[11] == 0xff && !env->gid.raw[0])
		EXPECT(ip[0] == 0x45 && !memcmp(ip + 16, env->gid.raw + 12, 4), "IPv4 header in the GRH");
	else
		EXPECT(dst.p[0] >> 4 == 6 && !memcmp(dst.p + 24, env->gid.raw, 16), "IPv6 header in the GRH");
}

/* The GRH may be split over entries like any data. */
static void grh_in_its_own_entry(const void *arg)
{
	struct ibv_sge sge[2] = { t_sge(&dst, 1000, GRH), t_sge(&dst, 0, 200) };
	struct ibv_recv_wr *bad, wr = { .wr_id = 2, .sg_list = sge, .num_sge = 2 };
	struct t_op o = to_b(IBV_WR_SEND, 1, 200);

	(void)arg;
	t_fill(src.p, 200, 2);
	EXPECT_EQ(ibv_post_recv(b.qp, &wr, &bad), 0, "ibv_post_recv");
	EXPECT_EQ(t_post(&a, &o), 0, "SEND");
	T_DONE(a.scq, 1, IBV_WC_SEND);
	T_DONE(b.rcq, 2, IBV_WC_RECV);
	EXPECT(t_is(dst.p, 200, 2), "data");
}

/* An answer: an address handle from the completion. */
static void answer(const void *arg)
{
	struct t_op o = to_b(IBV_WR_SEND, 1, 50);
	struct ibv_ah *back;
	struct t_wc wc;

	(void)arg;
	t_recv(&b, 2, t_sge(&dst, 0, 1024));
	EXPECT_EQ(t_post(&a, &o), 0, "SEND");
	T_DONE(a.scq, 1, IBV_WC_SEND);
	wc = T_DONE(b.rcq, 2, IBV_WC_RECV);
	/* On Ethernet mlx5 says here what the header is: 8 for UDP, and 2 for IPv4 or 1 for IPv6. */
	EXPECT_EQ(wc.wc.sl, env->gid.raw[10] == 0xff && env->gid.raw[11] == 0xff ? 10 : 9, "the kind of header");
	back = ibv_create_ah_from_wc(env->pd, &wc.wc, (struct ibv_grh *)dst.p, 1);
	MUST(back, "ibv_create_ah_from_wc");
	t_recv(&a, 3, t_sge(&dst, 2048, 1024));
	t_fill(src.p, 50, 6);
	o.ah = back;
	o.dest = wc.wc.src_qp;
	EXPECT_EQ(t_post(&b, &o), 0, "the answer");
	T_DONE(b.scq, 1, IBV_WC_SEND);
	T_DONE(a.rcq, 3, IBV_WC_RECV);
	EXPECT(t_is(dst.p + 2048 + GRH, 50, 6), "data");
	EXPECT_EQ(ibv_destroy_ah(back), 0, "ibv_destroy_ah");
}

enum loss { NO_RECV, WRONG_QKEY, NO_QP };

/* A datagram that cannot be delivered is lost: the sender's completion is good, the receiver sees nothing. */
static const struct lost { const char *name; enum loss what; } losses[] = {
	{ "no receive posted", NO_RECV }, { "wrong Q_Key", WRONG_QKEY }, { "no such queue pair", NO_QP },
};

static void lost(const void *arg)
{
	const struct lost *l = arg;
	struct t_op o = to_b(IBV_WR_SEND, 1, 50);

	memset(dst.p, 0, 1024);
	if (l->what != NO_RECV)
		t_recv(&b, 2, t_sge(&dst, 0, 1024));
	if (l->what == WRONG_QKEY)
		o.qkey++;
	if (l->what == NO_QP)
		o.dest = 0xfffff3;
	EXPECT_EQ(t_post(&a, &o), 0, "SEND");
	T_DONE(a.scq, 1, IBV_WC_SEND);
	T_QUIET(b.rcq);
	EXPECT(t_all(dst.p, 1024, 0), "memory was written");
	EXPECT_EQ(t_qp_state(b.qp), IBV_QPS_RTS, "state of the receiver");
	o = to_b(IBV_WR_SEND, 3, 50);
	if (l->what == NO_RECV)
		t_recv(&b, 2, t_sge(&dst, 0, 1024));
	EXPECT_EQ(t_post(&a, &o), 0, "the next SEND");
	T_DONE(a.scq, 3, IBV_WC_SEND);
	T_DONE(b.rcq, 2, IBV_WC_RECV);
}

static bool is_v4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid, prefix, sizeof(prefix));
}

/* Is the GRH in dst from one GID to another? */
static bool grh_is(const union ibv_gid *from, const union ibv_gid *to)
{
	const uint8_t *grh = dst.p;

	if (is_v4(from))
		return grh[20] == 0x45 && !memcmp(grh + 32, from->raw + 12, 4) && !memcmp(grh + 36, to->raw + 12, 4);
	return grh[0] >> 4 == 6 && !memcmp(grh + 8, from, 16) && !memcmp(grh + 24, to, 16);
}

/* The source in the GRH is the GID that the address names by its index: every one of the port. */
static void source_gid(const void *arg)
{
	/* One for sources of IPv6, one for those of IPv4. */
	union ibv_gid group[2] = { { .raw = { 0xff, 0x0e, [15] = 9 } },
				   { .raw = { 0xff, 0x0e, [10] = 0xff, [11] = 0xff, 239, 4, 5, 6 } } };
	struct ibv_qp_attr attr = t_attr(env, 0);
	struct ibv_gid_entry gids[256];
	ssize_t n = ibv_query_gid_table(env->ctx, gids, 256, 0);

	(void)arg;
	MUST(n > 0, "ibv_query_gid_table");
	for (int g = 0; g < 2; g++)
		EXPECT_EQ(ibv_attach_mcast(b.qp, &group[g], 0), 0, "ibv_attach_mcast");
	for (ssize_t i = 0; i < n; i++) {
		struct t_op o = to_b(IBV_WR_SEND, 1, 50);

		attr.ah_attr.grh.sgid_index = gids[i].gid_index;
		attr.ah_attr.grh.dgid = group[is_v4(&gids[i].gid)];
		o.ah = ibv_create_ah(env->pd, &attr.ah_attr);
		MUST(o.ah, "ibv_create_ah");
		o.dest = 0xffffff;
		t_recv(&b, 2, t_sge(&dst, 0, 1024));
		EXPECT_EQ(t_post(&a, &o), 0, "SEND");
		T_DONE(a.scq, 1, IBV_WC_SEND);
		T_DONE(b.rcq, 2, IBV_WC_RECV);
		EXPECT(grh_is(&gids[i].gid, &attr.ah_attr.grh.dgid), "source of GID index %u", gids[i].gid_index);
		EXPECT_EQ(ibv_destroy_ah(o.ah), 0, "ibv_destroy_ah");
	}
	for (int g = 0; g < 2; g++)
		EXPECT_EQ(ibv_detach_mcast(b.qp, &group[g], 0), 0, "ibv_detach_mcast");
}

/* An address that the program made itself, with an index that has no GID: the request fails. */
static void unknown_gid(const void *arg)
{
	struct ibv_ah *bad = t_ah(env);
	struct mlx5dv_ah dv = { 0 };
	struct mlx5dv_obj obj = { .ah = { bad, &dv } };
	struct t_op o = to_b(IBV_WR_SEND, 1, 50);

	(void)arg;
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH), "mlx5dv_init_obj");
	dv.av->grh_gid_fl |= htobe32(255u << 20);
	o.ah = bad;
	t_why_begin();
	EXPECT_EQ(t_post(&a, &o), 0, "SEND");
	T_FAILED(a.scq, 1, T_QP_OP);
	T_WHY("wqe_ah", a.qp->qp_num);
	EXPECT_EQ(t_qp_state(a.qp), IBV_QPS_SQE, "state");
	t_reset(a.qp);
	t_ud_rts(env, a.qp);
	EXPECT_EQ(ibv_destroy_ah(bad), 0, "ibv_destroy_ah");
}

static void multicast(const void *arg)
{
	union ibv_gid group = { .raw = { 0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3 } };
	struct ibv_qp_attr attr = t_attr(env, 0);
	struct t_op o = to_b(IBV_WR_SEND, 1, 50);

	(void)arg;
	attr.ah_attr.grh.dgid = group;
	o.ah = ibv_create_ah(env->pd, &attr.ah_attr);
	MUST(o.ah, "ibv_create_ah");
	o.dest = 0xffffff;
	EXPECT_EQ(ibv_attach_mcast(b.qp, &group, 0), 0, "ibv_attach_mcast");
	t_recv(&b, 2, t_sge(&dst, 0, 1024));
	t_fill(src.p, 50, 9);
	EXPECT_EQ(t_post(&a, &o), 0, "SEND to the group");
	T_DONE(a.scq, 1, IBV_WC_SEND);
	T_DONE(b.rcq, 2, IBV_WC_RECV);
	EXPECT(t_is(dst.p + GRH, 50, 9), "data");
	EXPECT_EQ(ibv_detach_mcast(b.qp, &group, 0), 0, "ibv_detach_mcast");
	t_recv(&b, 3, t_sge(&dst, 0, 1024));
	EXPECT_EQ(t_post(&a, &o), 0, "SEND to the empty group");
	T_DONE(a.scq, 1, IBV_WC_SEND);
	T_QUIET(b.rcq);
	EXPECT(ibv_detach_mcast(b.qp, &group, 0) != 0, "detached twice");
	EXPECT_EQ(ibv_destroy_ah(o.ah), 0, "ibv_destroy_ah");
	o = to_b(IBV_WR_SEND, 4, 50);		/* uses up the receive */
	EXPECT_EQ(t_post(&a, &o), 0, "SEND");
	T_DONE(a.scq, 4, IBV_WC_SEND);
	T_DONE(b.rcq, 3, IBV_WC_RECV);
}

/* ---- UC ---- */

static void uc(const void *arg)
{
	struct t_spec s = { .type = IBV_QPT_UC, .ops = T_UC_OPS, .inl = 64 };
	struct t_pair p = t_pair(env, &s);
	const uint32_t len = 20000;		/* several packets */
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, len), dst.key, dst.va);

	(void)arg;
	t_fill(src.p, len, 1);
	memset(dst.p, 0, dst.len);
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	EXPECT(t_is(dst.p, len, 1), "data of the WRITE");
	t_recv(&p.b, 5, t_sge(&dst, 30000, len));
	o = t_op(IBV_WR_SEND_WITH_IMM, 2, t_sge(&src, 0, len));
	o.imm = 77;
	EXPECT_EQ(t_post(&p.a, &o), 0, "SEND");
	T_DONE(p.a.scq, 2, IBV_WC_SEND);
	EXPECT_EQ(be32toh(T_DONE(p.b.rcq, 5, IBV_WC_RECV).wc.imm_data), 77, "immediate data");
	EXPECT(t_is(dst.p + 30000, len, 1), "data of the SEND");

	/* No receive: lost. A bad rkey: lost, too; the responder goes on. */
	EXPECT_EQ(t_post(&p.a, &o), 0, "SEND");
	T_DONE(p.a.scq, 2, IBV_WC_SEND);
	T_QUIET(p.b.rcq);
	o = t_rdma(IBV_WR_RDMA_WRITE, 3, t_sge(&src, 0, len), dst.key ^ 0x55500, dst.va);
	memset(dst.p, 0, dst.len);
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_DONE(p.a.scq, 3, IBV_WC_RDMA_WRITE);
	EXPECT(t_all(dst.p, dst.len, 0), "memory was written");
	t_pair_free(&p);
}

static void tear_down(const void *arg)
{
	(void)arg;
	EXPECT_EQ(ibv_destroy_ah(ah), 0, "ibv_destroy_ah");
	t_qp_free(&a);
	t_qp_free(&b);
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, send_row, &rows[i]);
	t_case("GRH in an entry of its own", grh_in_its_own_entry, NULL);
	t_case("an answer by ibv_create_ah_from_wc", answer, NULL);
	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++)
		t_case(losses[i].name, lost, &losses[i]);
	t_case("multicast", multicast, NULL);
	t_case("the source GID is the one of the address's index", source_gid, NULL);
	t_case("a source GID index that has no GID", unknown_gid, NULL);
	t_case("UC", uc, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
