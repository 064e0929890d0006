/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Wrong local memory of a requester: what is read for a WRITE or SEND (gather), what is written for a READ or atomic
 * (scatter). Codes, states of both sides, flush of what is behind, and which bytes moved. */
#include "t_why.h"
#include "umr.h"

enum { PAGE = 4096, MTU = 1024 };

static struct t_env *env;
static struct t_buf src, dst;		/* src has exactly PAGE bytes registered of two pages */
static struct ibv_pd *other_pd;
static struct ibv_mr *foreign, *read_only;

enum what { KEY, KEY_VARIANT, OTHER_PD, NO_WRITE, BEFORE, BEYOND, WRAP, UNMAPPED, GONE, DEEP };

static const struct row {
	const char *name, *check;
	enum ibv_wr_opcode op;
	enum what what;
	struct t_codes codes;
} rows[] = {
	{ "WRITE, unknown lkey",		"GATHER_KEY", IBV_WR_RDMA_WRITE, KEY, C_GATHER_KEY },
	{ "WRITE, wrong low byte of the lkey",	"GATHER_KEY", IBV_WR_RDMA_WRITE, KEY_VARIANT, C_GATHER_KEY },
	{ "SEND, unknown lkey",			"GATHER_KEY", IBV_WR_SEND, KEY, C_GATHER_KEY },
	{ "WRITE, deregistered region",		"GATHER_KEY", IBV_WR_RDMA_WRITE, GONE, C_GATHER_KEY },
	{ "WRITE, lkey of another PD",		"GATHER_PD", IBV_WR_RDMA_WRITE, OTHER_PD, C_GATHER_KEY },
	{ "SEND, lkey of another PD",		"GATHER_PD", IBV_WR_SEND, OTHER_PD, C_GATHER_KEY },
	{ "WRITE, before the region",		"GATHER_RANGE", IBV_WR_RDMA_WRITE, BEFORE, C_GATHER_RANGE },
	{ "WRITE, past the region",		"GATHER_RANGE", IBV_WR_RDMA_WRITE, BEYOND, C_GATHER_RANGE },
	{ "SEND, past the region",		"GATHER_RANGE", IBV_WR_SEND, BEYOND, C_GATHER_RANGE },
	{ "WRITE, address + length wraps",	"GATHER_RANGE", IBV_WR_RDMA_WRITE, WRAP, C_GATHER_RANGE },
	{ "WRITE, memory unmapped",		"GATHER_FAULT", IBV_WR_RDMA_WRITE, UNMAPPED, C_GATHER_FAULT },
	{ "SEND, memory unmapped",		"GATHER_FAULT", IBV_WR_SEND, UNMAPPED, C_GATHER_FAULT },
	{ "WRITE, keys under keys too deep",	"GATHER_DEPTH", IBV_WR_RDMA_WRITE, DEEP, C_GATHER_KEY },
	{ "READ, unknown lkey",			"SCATTER_KEY", IBV_WR_RDMA_READ, KEY, C_SCATTER_KEY },
	{ "READ, lkey of another PD",		"SCATTER_PD", IBV_WR_RDMA_READ, OTHER_PD, C_SCATTER_KEY },
	{ "READ, region not locally writable",	"SCATTER_RIGHT", IBV_WR_RDMA_READ, NO_WRITE, C_SCATTER_RANGE },
	{ "READ, past the region",		"SCATTER_RANGE", IBV_WR_RDMA_READ, BEYOND, C_SCATTER_RANGE },
	{ "READ, memory unmapped",		"SCATTER_FAULT", IBV_WR_RDMA_READ, UNMAPPED, C_SCATTER_FAULT },
	{ "READ, keys under keys too deep",	"SCATTER_DEPTH", IBV_WR_RDMA_READ, DEEP, C_SCATTER_KEY },
	{ "fetch-add, unknown lkey",		"SCATTER_KEY", IBV_WR_ATOMIC_FETCH_AND_ADD, KEY, C_SCATTER_KEY },
	{ "compare-swap, not locally writable",	"SCATTER_RIGHT", IBV_WR_ATOMIC_CMP_AND_SWP, NO_WRITE, C_SCATTER_RANGE },
};

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 2 * PAGE, T_ALL);
	EXPECT_EQ(ibv_dereg_mr(src.mr), 0, "ibv_dereg_mr");
	src.mr = ibv_reg_mr(env->pd, src.p, PAGE, T_ALL);
	src.key = src.mr->lkey;
	dst = t_buf(env, 4 * PAGE, T_ALL);
	other_pd = ibv_alloc_pd(env->ctx);
	foreign = ibv_reg_mr(other_pd, src.p, PAGE, T_ALL);
	read_only = ibv_reg_mr(env->pd, src.p, PAGE, IBV_ACCESS_REMOTE_READ);
	MUST(src.mr && foreign && read_only, "ibv_reg_mr");
}

enum { DEPTH = 8 };

/* A chain of keys, each over the one before. RETURN the outermost's number. */
static uint32_t deep_key(struct t_qp *q, struct mlx5dv_mkey *chain[DEPTH])
{
	struct ibv_sge under = t_sge(&src, 0, 512);

	for (int i = 0; i < DEPTH; i++) {
		struct umr_layout l = { .n = 1, .list = { under } };

		chain[i] = umr_mkey(env->pd, 4, 0);
		umr_register(q, chain[i], T_ALL, &l);
		under = (struct ibv_sge) { .addr = 0, .length = 512, .lkey = chain[i]->lkey };
	}
	return chain[DEPTH - 1]->lkey;
}

static void one(const void *arg)
{
	const struct row *r = arg;
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct t_pair p = t_pair(env, &s);
	bool atomic = r->op == IBV_WR_ATOMIC_FETCH_AND_ADD || r->op == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct ibv_sge sge = t_sge(&src, 0, atomic ? 8 : 256);
	struct mlx5dv_mkey *chain[DEPTH] = { 0 };
	struct t_buf own = t_buf(env, PAGE, T_ALL);
	struct t_op o[3];

	memset(src.p, 0xa5, 2 * PAGE);
	memset(dst.p, 0x5a, dst.len);
	switch (r->what) {
	case KEY: sge.lkey ^= 0x3fff00; break;
	case KEY_VARIANT: sge.lkey ^= 1; break;
	case OTHER_PD: sge.lkey = foreign->lkey; break;
	case NO_WRITE: sge.lkey = read_only->lkey; break;
	case BEFORE: sge.addr -= 1; break;
	case BEYOND: sge.addr += PAGE - sge.length + 1; break;
	case WRAP: sge.addr = UINT64_MAX - 100; break;
	case DEEP: sge.addr = 0; sge.lkey = deep_key(&p.a, chain); break;
	case GONE:
		sge.lkey = own.key;
		sge.addr = own.va;
		EXPECT_EQ(ibv_dereg_mr(own.mr), 0, "ibv_dereg_mr");
		own.mr = NULL;
		break;
	case UNMAPPED:
		sge.lkey = own.key;
		sge.addr = own.va;
		munmap(own.p, own.len);
		break;
	}
	o[0] = t_rdma(r->op, 1, sge, dst.key, dst.va);
	o[1] = t_rdma(IBV_WR_RDMA_WRITE, 2, t_sge(&src, 0, 64), dst.key, dst.va + PAGE);
	o[1].flags = 0;
	o[2] = t_rdma(IBV_WR_RDMA_READ, 3, t_sge(&src, 0, 64), dst.key, dst.va + PAGE);
	t_recv(&p.b, 9, t_sge(&dst, 0, 256));
	t_why_begin();
	EXPECT_EQ(t_post_n(&p.a, o, 3), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, r->codes);
	T_WHY(r->check, p.a.qp->qp_num);
	T_FAILED(p.a.scq, 2, t_behind(r->codes, false));	/* the unsignaled one, too */
	T_FAILED(p.a.scq, 3, t_behind(r->codes, false));
	T_QUIET(p.a.scq);
	EXPECT_EQ(t_qp_state(p.a.qp), IBV_QPS_ERR, "state of the requester");
	EXPECT_EQ(t_qp_state(p.b.qp), IBV_QPS_RTS, "state of the responder");
	T_QUIET(p.b.rcq);
	EXPECT(t_all(src.p, 2 * PAGE, 0xa5), "local memory was written");
	if (!atomic)
		EXPECT(t_all(dst.p, dst.len, 0x5a), "remote memory was written");
	EXPECT(t_all(dst.p + PAGE, 64, 0x5a), "a flushed request was executed");
	t_pair_free(&p);
	for (int i = DEPTH - 1; i >= 0; i--)
		if (chain[i])
			umr_free(chain[i]);
	if (own.mr)
		EXPECT_EQ(ibv_dereg_mr(own.mr), 0, "ibv_dereg_mr of unmapped memory");
	if (r->what != UNMAPPED)
		munmap(own.p, own.len);
}

/* Bounds are checked while reading: packets whose bytes are all in range have left when the tail is refused. */
static void tail_out_of_range(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_qp a = t_qp(env, &s), b = t_qp(env, &s);
	struct ibv_qp_attr attr = t_attr(env, b.qp->qp_num);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, PAGE - 2 * MTU, 4 * MTU), dst.key, dst.va);

	(void)arg;
	attr.path_mtu = IBV_MTU_1024;
	t_to_rts(a.qp, &attr);
	attr.dest_qp_num = a.qp->qp_num;
	t_to_rts(b.qp, &attr);
	t_fill(src.p, 2 * PAGE, 4);
	memset(dst.p, 0, dst.len);
	EXPECT_EQ(t_post(&a, &o), 0, "ibv_wr_complete");
	T_FAILED(a.scq, 1, T_GATHER_RANGE);
	EXPECT(!memcmp(dst.p, src.p + PAGE - 2 * MTU, 2 * MTU), "the first two packets did not arrive");
	EXPECT(t_all(dst.p + 2 * MTU, dst.len - 2 * MTU, 0), "more than two packets arrived");
	t_qp_free(&a);
	t_qp_free(&b);
}

/* A list whose second entry is bad, in one packet: nothing leaves. */
static void second_entry_bad(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 100), dst.key, dst.va);

	(void)arg;
	memset(dst.p, 0, 512);
	o.set = T_SGE_LIST;
	o.nsge = 2;
	o.sge[1] = (struct ibv_sge) { .addr = src.va, .length = 100, .lkey = src.key ^ 0x777700 };
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, T_GATHER_KEY);
	EXPECT(t_all(dst.p, 512, 0), "memory was written");
	t_pair_free(&p);
}

/* An empty entry's key and address are not looked at. */
static void empty_entry_with_bad_key(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, (struct ibv_sge) { 1, 0, 0xdead00 }, dst.key, dst.va);

	(void)arg;
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	t_pair_free(&p);
}

static void tear_down(const void *arg)
{
	(void)arg;
	EXPECT_EQ(ibv_dereg_mr(foreign), 0, "ibv_dereg_mr");
	EXPECT_EQ(ibv_dereg_mr(read_only), 0, "ibv_dereg_mr");
	EXPECT_EQ(ibv_dealloc_pd(other_pd), 0, "ibv_dealloc_pd");
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, one, &rows[i]);
	t_case("four packets, the tail out of range", tail_out_of_range, NULL);
	t_case("second entry of a list bad", second_entry_bad, NULL);
	t_case("empty entry with a bad key", empty_entry_with_bad_key, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
