/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory that is gone under a region: a completion error on the side that it belongs to, never a signal,
 * never silence. Beyond the plain cases (fail_local, fail_recv, fail_remote): under keys, in copies, in
 * part, for datagrams, and for every way that data goes. */
#include "t_why.h"
#include "umr.h"

enum { PAGE = 4096, MTU = 1024 };

static struct t_env *env;
static struct t_buf flat;
static struct t_buf gone;	/* four pages, the second half of which is unmapped in each case */

static void set_up(const void *arg)
{
	(void)arg;
	flat = t_buf(env, 4 * PAGE, T_ALL);
}

static void make_gone(void)
{
	gone = t_buf(env, 4 * PAGE, T_ALL);
	t_fill(gone.p, 4 * PAGE, 1);
	munmap(gone.p + 2 * PAGE, 2 * PAGE);
}

static void free_gone(void)
{
	EXPECT_EQ(ibv_dereg_mr(gone.mr), 0, "ibv_dereg_mr of memory that is half gone");
	munmap(gone.p, 2 * PAGE);
}

static struct t_pair pair_1k(void)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct t_pair p = { .a = t_qp(env, &s), .b = t_qp(env, &s) };
	struct ibv_qp_attr attr = t_attr(env, p.b.qp->qp_num);

	attr.path_mtu = IBV_MTU_1024;
	t_to_rts(p.a.qp, &attr);
	attr.dest_qp_num = p.a.qp->qp_num;
	t_to_rts(p.b.qp, &attr);
	return p;
}

/* The region itself, or an indirect key over it whose entry order is turned round: its last 8 KiB are there. */
static const struct row {
	const char *name, *check;
	enum umr_way way;
	bool key;
	struct t_codes codes;
} rows[] = {
	{ "READ from it", "REMOTE_FAULT", UMR_REMOTE_READ, false, C_REM_OP },
	{ "WRITE to it", "REMOTE_FAULT", UMR_REMOTE_WRITE, false, C_REM_OP },
	{ "gather of a WRITE", "GATHER_FAULT", UMR_GATHER_WRITE, false, C_GATHER_FAULT },
	{ "gather of a SEND", "GATHER_FAULT", UMR_GATHER_SEND, false, C_GATHER_FAULT },
	{ "scatter of a READ", "SCATTER_FAULT", UMR_SCATTER_READ, false, C_SCATTER_FAULT },
	{ "scatter of a receive", "RECV_FAULT", UMR_RECV, false, C_REM_OP },
	{ "READ through a key", "REMOTE_FAULT", UMR_REMOTE_READ, true, C_REM_OP },
	{ "WRITE through a key", "REMOTE_FAULT", UMR_REMOTE_WRITE, true, C_REM_OP },
	{ "gather through a key", "GATHER_FAULT", UMR_GATHER_WRITE, true, C_GATHER_FAULT },
	{ "scatter through a key", "SCATTER_FAULT", UMR_SCATTER_READ, true, C_SCATTER_FAULT },
	{ "receive through a key", "RECV_FAULT", UMR_RECV, true, C_REM_OP },
};

static struct t_op request(struct t_pair *p, enum umr_way way, uint32_t key, uint64_t off, uint32_t len)
{
	struct ibv_sge through = { .addr = off, .length = len, .lkey = key }, plain = t_sge(&flat, 0, len);

	switch (way) {
	case UMR_REMOTE_READ: return t_rdma(IBV_WR_RDMA_READ, 1, plain, key, off);
	case UMR_REMOTE_WRITE: return t_rdma(IBV_WR_RDMA_WRITE, 1, plain, key, off);
	case UMR_GATHER_WRITE: return t_rdma(IBV_WR_RDMA_WRITE, 1, through, flat.key, flat.va);
	case UMR_SCATTER_READ: return t_rdma(IBV_WR_RDMA_READ, 1, through, flat.key, flat.va);
	case UMR_GATHER_SEND: t_recv(&p->b, 2, plain); return t_op(IBV_WR_SEND, 1, through);
	default: t_recv(&p->b, 2, through); return t_op(IBV_WR_SEND, 1, plain);
	}
}

static void one(const void *arg)
{
	const struct row *r = arg;
	struct t_pair p = pair_1k();
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct umr_layout l;
	struct t_op o;

	make_gone();
	l = (struct umr_layout) { .n = 2, .list = { t_sge(&gone, 2 * PAGE, 2 * PAGE), t_sge(&gone, 0, 2 * PAGE) } };
	if (r->key)
		umr_register(&p.a, mkey, T_ALL, &l);
	t_fill(flat.p, 4 * PAGE, 2);
	/* Two packets of memory that is there, then two of memory that is not. Through the key: the other way round. */
	o = r->key ? request(&p, r->way, mkey->lkey, 2 * PAGE - 2 * MTU, 4 * MTU) :
		     request(&p, r->way, gone.key, gone.va + 2 * PAGE - 2 * MTU, 4 * MTU);
	t_why_begin();
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, r->codes);
	T_WHY(r->check, p.a.qp->qp_num);
	if (r->way == UMR_RECV)
		T_FAILED(p.b.rcq, 2, T_RECV_FAULT);
	EXPECT_EQ(t_qp_state(p.a.qp), IBV_QPS_ERR, "state");
	EXPECT(t_is(gone.p, 2 * PAGE - 2 * MTU, 1), "bytes before the message were written");

	/* The device goes on. */
	t_reconnect(env, &p);
	o = t_rdma(IBV_WR_RDMA_READ, 3, t_sge(&flat, 0, 512), gone.key, gone.va);
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 3, IBV_WC_RDMA_READ);
	EXPECT(t_is(flat.p, 512, 1), "data of what is there");
	t_pair_free(&p);
	umr_free(mkey);
	free_gone();
}

static void copies(const void *arg)
{
	const bool *to_gone = arg;
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct t_pair p = t_pair(env, &s);

	make_gone();
	t_why_begin();
	ibv_wr_start(p.a.ex);
	p.a.ex->wr_id = 1;
	p.a.ex->wr_flags = IBV_SEND_SIGNALED;
	if (*to_gone)
		mlx5dv_wr_memcpy(p.a.dv, gone.key, gone.va + PAGE, flat.key, flat.va, 2 * PAGE);
	else
		mlx5dv_wr_memcpy(p.a.dv, flat.key, flat.va, gone.key, gone.va + PAGE, 2 * PAGE);
	EXPECT_EQ(ibv_wr_complete(p.a.ex), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, *to_gone ? T_SCATTER_FAULT : T_GATHER_FAULT);
	T_WHY(*to_gone ? "SCATTER_FAULT" : "GATHER_FAULT", p.a.qp->qp_num);
	t_pair_free(&p);
	free_gone();
}

/* The result of an atomic cannot be stored; the target cannot be reached. */
static void atomics(const void *arg)
{
	const bool *remote = arg;
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct t_op o = t_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, t_sge(&flat, 0, 8), flat.key, flat.va + 64);

	make_gone();
	if (*remote) {
		o.rkey = gone.key;
		o.raddr = gone.va + 3 * PAGE;
	} else {
		o.sge[0] = t_sge(&gone, 3 * PAGE, 8);
	}
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, *remote ? T_REM_OP : T_SCATTER_FAULT);
	t_pair_free(&p);
	free_gone();
}

static void datagram(const void *arg)
{
	struct t_spec s = { .type = IBV_QPT_UD, .ops = T_UD_OPS };
	struct t_qp a = t_qp(env, &s), b = t_qp(env, &s), c = t_qp(env, &s);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&flat, 0, 100));
	struct t_wc wc;

	(void)arg;
	t_ud_rts(env, a.qp);
	t_ud_rts(env, b.qp);
	t_ud_rts(env, c.qp);
	o.ah = t_ah(env);
	/* Last: what is made later may come to lie where it was. */
	make_gone();
	o.dest = b.qp->qp_num;
	o.qkey = T_QKEY;
	t_recv(&b, 2, t_sge(&gone, 3 * PAGE, 1024));
	EXPECT_EQ(t_post(&a, &o), 0, "SEND");
	T_DONE(a.scq, 1, IBV_WC_SEND);
	wc = t_poll(b.rcq);
	EXPECT_EQ(wc.wc.status, IBV_WC_LOC_PROT_ERR, "status of the receive");
	o.sge[0] = t_sge(&gone, 3 * PAGE, 100);
	o.dest = c.qp->qp_num;
	t_recv(&c, 3, t_sge(&flat, 0, 1024));
	EXPECT_EQ(t_post(&a, &o), 0, "SEND from memory that is gone");
	T_FAILED(a.scq, 1, T_GATHER_FAULT);
	T_QUIET(c.rcq);
	EXPECT_EQ(ibv_destroy_ah(o.ah), 0, "ibv_destroy_ah");
	t_qp_free(&a);
	t_qp_free(&b);
	t_qp_free(&c);
	free_gone();
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&flat);
}

int main(void)
{
	static const bool no = false, yes = true;

	env = t_open();
	t_case("set up", set_up, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, one, &rows[i]);
	t_case("copy from it", copies, &no);
	t_case("copy to it", copies, &yes);
	t_case("result of an atomic", atomics, &no);
	t_case("target of an atomic", atomics, &yes);
	t_case("datagrams", datagram, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
