/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory regions of every kind, as local and as remote side: plain, with an address of their own, zero-based, on
 * demand, implicit, null; what re-registration changes and what it keeps. */
#include "t_why.h"

enum { PAGE = 4096, LEN = 3 * PAGE };

static struct t_env *env;
static struct t_pair p;
static uint8_t *mem;
static struct t_buf flat;

static void set_up(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };

	(void)arg;
	p = t_pair(env, &s);
	mem = aligned_alloc(PAGE, LEN);
	flat = t_buf(env, LEN, T_ALL);
}

/* WRITE to and READ from the region remotely, SEND from it and receive into it; base is where mem begins in the key. */
static void exercise(uint32_t lkey, uint32_t rkey, uint64_t base)
{
	struct t_op o;

	t_fill(flat.p, LEN, 1);
	memset(mem, 0, LEN);
	o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&flat, 0, LEN - 100), rkey, base + 50);
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	EXPECT(!memcmp(mem + 50, flat.p, LEN - 100) && t_all(mem, 50, 0) && t_all(mem + LEN - 50, 50, 0),
	       "data of the WRITE");

	t_fill(mem, LEN, 2);
	o = t_rdma(IBV_WR_RDMA_READ, 2, t_sge(&flat, 0, LEN), rkey, base);
	EXPECT_EQ(t_post(&p.a, &o), 0, "READ");
	T_DONE(p.a.scq, 2, IBV_WC_RDMA_READ);
	EXPECT(t_is(flat.p, LEN, 2), "data of the READ");

	memset(flat.p, 0, LEN);
	t_recv(&p.b, 3, t_sge(&flat, 0, LEN));
	o = t_op(IBV_WR_SEND, 3, (struct ibv_sge) { base + 7, 1000, lkey });
	EXPECT_EQ(t_post(&p.a, &o), 0, "SEND");
	T_DONE(p.a.scq, 3, IBV_WC_SEND);
	T_DONE(p.b.rcq, 3, IBV_WC_RECV);
	EXPECT(!memcmp(flat.p, mem + 7, 1000), "data of the SEND");

	t_fill(flat.p, LEN, 4);
	t_recv(&p.b, 4, (struct ibv_sge) { base + PAGE - 3, 500, lkey });
	o = t_op(IBV_WR_SEND, 4, t_sge(&flat, 0, 500));
	EXPECT_EQ(t_post(&p.a, &o), 0, "SEND");
	T_DONE(p.a.scq, 4, IBV_WC_SEND);
	T_DONE(p.b.rcq, 4, IBV_WC_RECV);
	EXPECT(!memcmp(mem + PAGE - 3, flat.p, 500), "data of the receive");
}

static const struct row {
	const char *name;
	int how;		/* 0 reg_mr, 1 iova, 2 iova2 */
	uint64_t iova;
	unsigned int access;
} rows[] = {
	{ "plain",			0, 0, T_ALL },
	{ "zero-based",			0, 0, T_ALL | IBV_ACCESS_ZERO_BASED },
	{ "iova 0",			1, 0, T_ALL },
	{ "iova far away",		1, 0xfedcba9800000000, T_ALL },
	{ "iova at the top",		1, 0xffffffffffff0000, T_ALL },
	{ "iova2, relaxed ordering",	2, 0x10000, T_ALL | IBV_ACCESS_RELAXED_ORDERING },
	{ "on demand",			0, 0, T_ALL | IBV_ACCESS_ON_DEMAND },
	{ "on demand, with iova",	2, 0x7000000, T_ALL | IBV_ACCESS_ON_DEMAND },
	{ "relaxed ordering",		0, 0, T_ALL | IBV_ACCESS_RELAXED_ORDERING },
};

static void kind(const void *arg)
{
	const struct row *r = arg;
	struct ibv_mr *mr;
	uint64_t base = r->iova;

	if (r->how == 0) {
		mr = ibv_reg_mr(env->pd, mem, LEN, r->access);
		base = r->access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)mem;
	} else if (r->how == 1) {
		mr = ibv_reg_mr_iova(env->pd, mem, LEN, r->iova, r->access);
	} else {
		mr = ibv_reg_mr_iova2(env->pd, mem, LEN, r->iova, r->access);
	}
	MUST(mr, "registering");
	EXPECT(mr->addr == mem && mr->length == LEN && mr->pd == env->pd, "fields of the region");
	exercise(mr->lkey, mr->rkey, base);
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
}

static void implicit(const void *arg)
{
	struct ibv_mr *mr = ibv_reg_mr(env->pd, NULL, SIZE_MAX, T_ALL | IBV_ACCESS_ON_DEMAND);

	(void)arg;
	MUST(mr, "ibv_reg_mr of all memory");
	exercise(mr->lkey, mr->rkey, (uintptr_t)mem);
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
}

/* Memory that goes away and comes back under an on-demand region. */
static void on_demand_remap(const void *arg)
{
	uint8_t *m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(env->pd, m, PAGE, T_ALL | IBV_ACCESS_ON_DEMAND);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&flat, 0, PAGE), mr ? mr->rkey : 0, (uintptr_t)m);

	(void)arg;
	MUST(mr, "ibv_reg_mr");
	munmap(m, PAGE);
	MUST(mmap(m, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m, "mmap again");
	t_fill(flat.p, PAGE, 5);
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	EXPECT(t_is(m, PAGE, 5), "data");
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
	munmap(m, PAGE);
}

/* The null region: reads give zeros, writes vanish. Local use only. */
static void null_mr(const void *arg)
{
	struct ibv_mr *mr = ibv_alloc_null_mr(env->pd);
	struct t_op o;

	(void)arg;
	MUST(mr, "ibv_alloc_null_mr");
	memset(flat.p, 0x99, LEN);
	o = t_rdma(IBV_WR_RDMA_WRITE, 1, (struct ibv_sge) { 12345, 600, mr->lkey }, flat.key, flat.va);
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	EXPECT(t_all(flat.p, 600, 0) && t_all(flat.p + 600, 100, 0x99), "zeros");

	/* A message whose middle is thrown away. */
	t_fill(flat.p, 300, 6);
	memset(mem, 0, LEN);
	struct ibv_mr *real = ibv_reg_mr(env->pd, mem, LEN, T_ALL);
	struct ibv_sge parts[3] = { { (uintptr_t)mem, 100, real->lkey },
				    { 0, 100, mr->lkey },
				    { (uintptr_t)mem + 100, 100, real->lkey } };
	struct ibv_recv_wr *bad, wr = { .wr_id = 2, .sg_list = parts, .num_sge = 3 };

	EXPECT_EQ(ibv_post_recv(p.b.qp, &wr, &bad), 0, "ibv_post_recv");
	o = t_op(IBV_WR_SEND, 2, t_sge(&flat, 0, 300));
	EXPECT_EQ(t_post(&p.a, &o), 0, "SEND");
	T_DONE(p.a.scq, 2, IBV_WC_SEND);
	T_DONE(p.b.rcq, 2, IBV_WC_RECV);
	EXPECT(!memcmp(mem, flat.p, 100) && !memcmp(mem + 100, flat.p + 200, 100) && t_all(mem + 200, 100, 0),
	       "the parts that stay");
	EXPECT_EQ(ibv_dereg_mr(real), 0, "ibv_dereg_mr");
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr of the null region");
}

/* A region in two ranges at once, and keys that differ; a key is not reused at once. */
static void overlapping(const void *arg)
{
	struct ibv_mr *a = ibv_reg_mr(env->pd, mem, LEN, T_ALL), *b = ibv_reg_mr(env->pd, mem + 100, 100, T_ALL);
	uint32_t old;

	(void)arg;
	MUST(a && b, "ibv_reg_mr");
	EXPECT(a->lkey != b->lkey && a->rkey != b->rkey, "two regions share a key");
	exercise(a->lkey, a->rkey, (uintptr_t)mem);
	old = b->lkey;
	EXPECT_EQ(ibv_dereg_mr(b), 0, "ibv_dereg_mr");
	b = ibv_reg_mr(env->pd, mem + 100, 100, T_ALL);
	EXPECT(b && b->lkey != old, "a freed key was given out again at once");
	EXPECT_EQ(ibv_dereg_mr(a), 0, "ibv_dereg_mr");
	EXPECT_EQ(ibv_dereg_mr(b), 0, "ibv_dereg_mr");
}

static void rereg_access(const void *arg)
{
	struct ibv_mr *mr = ibv_reg_mr(env->pd, mem, LEN, IBV_ACCESS_LOCAL_WRITE);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&flat, 0, 64), 0, (uintptr_t)mem);


	(void)arg;
	MUST(mr, "ibv_reg_mr");
	EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, T_ALL), 0, "more rights");
	exercise(mr->lkey, mr->rkey, (uintptr_t)mem);
	EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), 0,
		  "fewer rights");
	o.rkey = mr->rkey;
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_FAILED(p.a.scq, 1, T_REM_ACCESS);
	t_reconnect(env, &p);
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
}

static void rereg_pd(const void *arg)
{
	struct ibv_pd *pd = ibv_alloc_pd(env->ctx);
	struct ibv_mr *mr = ibv_reg_mr(env->pd, mem, LEN, T_ALL);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&flat, 0, 64), 0, (uintptr_t)mem);

	(void)arg;
	MUST(mr && pd, "region and PD");
	EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0, "to another PD");
	EXPECT(mr->pd == pd, "ibv_mr.pd");
	o.rkey = mr->rkey;
	t_why_begin();
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_FAILED(p.a.scq, 1, T_REM_ACCESS);
	T_WHY("REMOTE_PD", p.a.qp->qp_num);
	t_reconnect(env, &p);
	EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, env->pd, NULL, 0, 0), 0, "and back");
	EXPECT_EQ(ibv_dealloc_pd(pd), 0, "the PD is free again");
	exercise(mr->lkey, mr->rkey, (uintptr_t)mem);
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
}

static void rereg_translation(const void *arg)
{
	uint8_t *first = aligned_alloc(PAGE, LEN);
	struct ibv_mr *mr = ibv_reg_mr(env->pd, first, LEN, T_ALL);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&flat, 0, 64), 0, (uintptr_t)first);

	(void)arg;
	MUST(mr, "ibv_reg_mr");
	EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, mem, LEN, 0), 0, "to other memory");
	EXPECT(mr->addr == mem && mr->length == LEN, "fields of the region");
	exercise(mr->lkey, mr->rkey, (uintptr_t)mem);
	o.rkey = mr->rkey;
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE to the old place");
	T_FAILED(p.a.scq, 1, T_REM_ACCESS);
	t_reconnect(env, &p);
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
	free(first);
}

static void rereg_bad(const void *arg)
{
	struct ibv_mr *mr = ibv_reg_mr(env->pd, mem, LEN, T_ALL);

	(void)arg;
	MUST(mr, "ibv_reg_mr");
	errno = 0;
	EXPECT(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) != 0, "no flag");
	EXPECT(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT, "unknown flag");
	EXPECT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT,
	       "no memory");
	exercise(mr->lkey, mr->rkey, (uintptr_t)mem);
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_pair_free(&p);
	t_buf_free(&flat);
	free(mem);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, kind, &rows[i]);
	t_case("implicit: the whole address space", implicit, NULL);
	t_case("on demand, memory mapped anew", on_demand_remap, NULL);
	t_case("null region", null_mr, NULL);
	t_case("overlapping regions", overlapping, NULL);
	t_case("re-registered: access", rereg_access, NULL);
	t_case("re-registered: PD", rereg_pd, NULL);
	t_case("re-registered: memory", rereg_translation, NULL);
	t_case("re-registered wrongly", rereg_bad, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
