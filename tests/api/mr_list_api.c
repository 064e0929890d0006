/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_wr_mr_list(): lists of memory against an oracle that walks them byte by byte, through the key as
 * lkey and as rkey, in whole and in part; limits, refusals, access rights. */
#include "t_why.h"
#include "umr.h"

enum { ARENA = 16384, INL_BIG = 512, INL = IBV_SEND_INLINE, BAD_ACCESS = T_ALL | IBV_ACCESS_MW_BIND };
enum { LW = IBV_ACCESS_LOCAL_WRITE, RW = IBV_ACCESS_REMOTE_WRITE, RR = IBV_ACCESS_REMOTE_READ };

static struct t_env *env;
static struct t_pair small, big;	/* max_inline_data 0 and INL_BIG */
static struct t_buf arena, flat;

static void set_up(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };

	(void)arg;
	small = t_pair(env, &s);
	s.inl = INL_BIG;
	big = t_pair(env, &s);
	arena = t_buf(env, ARENA, T_ALL);
	flat = t_buf(env, ARENA, T_ALL);
}

static const struct row {
	const char *name;
	int n;
	struct { uint32_t at, len; } e[6];
	int step;		/* n > 6: entry i at e[0].at + i * step, e[0].len + i long */
} rows[] = {
	{ "one entry",			1,  { { 100, 500 } }, 0 },
	{ "one byte",			1,  { { 4095, 1 } }, 0 },
	{ "two, apart",			2,  { { 0, 8 }, { 64, 8 } }, 0 },
	{ "two, touching",		2,  { { 0, 100 }, { 100, 100 } }, 0 },
	{ "out of address order",	4,  { { 9000, 77 }, { 10, 3 }, { 5000, 4100 }, { 200, 1 } }, 0 },
	{ "empty first",		3,  { { 50, 0 }, { 60, 20 }, { 600, 20 } }, 0 },
	{ "empty between",		4,  { { 60, 20 }, { 0, 0 }, { 0, 0 }, { 600, 20 } }, 0 },
	{ "empty last",			3,  { { 60, 20 }, { 600, 20 }, { 50, 0 } }, 0 },
	{ "six entries",		6,  { { 0, 9 }, { 20, 9 }, { 40, 9 }, { 60, 9 }, { 80, 9 }, { 100, 9 } }, 0 },
	{ "thirty-two entries",		32, { { 13, 1 } }, 400 },
};

static void list(const void *arg)
{
	const struct row *r = arg;
	struct umr_layout l = { .n = r->n };
	struct umr_map m;
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, r->n, 0);
	struct t_pair *p = r->n > 4 ? &big : &small;

	for (int i = 0; i < r->n; i++)
		l.list[i] = r->n > 6 ? t_sge(&arena, r->e[0].at + i * r->step, r->e[0].len + i)
				     : t_sge(&arena, r->e[i].at, r->e[i].len);
	m = umr_map(&l);
	umr_register(&p->a, mkey, T_ALL, &l);
	umr_check_all(p, mkey->lkey, &m, &arena, &flat);
	umr_free(mkey);
	free(m.byte);
}

static void several_regions(const void *arg)
{
	struct ibv_mr *mr[3];
	struct umr_layout l = { .n = 3 };
	struct umr_map m;
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 3, 0);

	(void)arg;
	for (int i = 0; i < 3; i++) {
		mr[i] = ibv_reg_mr(env->pd, arena.p + i * 5000, 1000, T_ALL);
		MUST(mr[i], "ibv_reg_mr");
		l.list[i] = (struct ibv_sge) { .addr = arena.va + i * 5000 + 100, .length = 900, .lkey = mr[i]->lkey };
	}
	m = umr_map(&l);
	umr_register(&small.a, mkey, T_ALL, &l);
	umr_check_all(&small, mkey->lkey, &m, &arena, &flat);
	umr_free(mkey);
	for (int i = 0; i < 3; i++)
		EXPECT_EQ(ibv_dereg_mr(mr[i]), 0, "ibv_dereg_mr");
	free(m.byte);
}

/* Zero-based regions and a list of lists. */
static void zero_based_and_nested(const void *arg)
{
	struct ibv_mr *zero = ibv_reg_mr(env->pd, arena.p + 4096, 4096, T_ALL | IBV_ACCESS_ZERO_BASED);
	struct umr_layout inner = { .n = 2 }, outer = { .n = 3 };
	struct umr_map im, om, zm = { .byte = calloc(4096, sizeof(uint8_t *)), .len = 4096 };
	struct mlx5dv_mkey *key[2] = { umr_mkey(env->pd, 4, 0), umr_mkey(env->pd, 4, 0) };

	(void)arg;
	MUST(zero, "ibv_reg_mr with IBV_ACCESS_ZERO_BASED");
	for (int i = 0; i < 4096; i++)
		zm.byte[i] = arena.p + 4096 + i;
	inner.under[0] = &zm;
	inner.list[0] = (struct ibv_sge) { .addr = 10, .length = 200, .lkey = zero->lkey };
	inner.list[1] = t_sge(&arena, 1, 50);
	im = umr_map(&inner);
	outer.under[0] = outer.under[2] = &im;
	outer.list[0] = (struct ibv_sge) { .addr = 190, .length = 50, .lkey = key[0]->lkey };
	outer.list[1] = t_sge(&arena, 12000, 9);
	outer.list[2] = (struct ibv_sge) { .addr = 0, .length = 60, .lkey = key[0]->lkey };
	om = umr_map(&outer);
	umr_register(&small.a, key[0], T_ALL, &inner);
	umr_register(&small.a, key[1], T_ALL, &outer);
	umr_check_all(&small, key[1]->lkey, &om, &arena, &flat);
	umr_free(key[0]);
	umr_free(key[1]);
	EXPECT_EQ(ibv_dereg_mr(zero), 0, "ibv_dereg_mr");
	free(im.byte);
	free(om.byte);
	free(zm.byte);
}

static void atomics(const void *arg)
{
	struct umr_layout l = { .n = 2, .list = { t_sge(&arena, 64, 16), t_sge(&arena, 1024, 16) } };
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 2, 0);

	(void)arg;
	umr_register(&small.a, mkey, T_ALL, &l);
	memset(arena.p, 0, 2048);
	for (int i = 0; i < 4; i++) {
		struct t_op o = t_rdma(IBV_WR_ATOMIC_CMP_AND_SWP, 1, t_sge(&flat, 0, 8), mkey->rkey, i * 8);
		uint64_t now;

		o.swap = 77 + i;
		EXPECT_EQ(t_post(&small.a, &o), 0, "ibv_wr_complete");
		T_DONE(small.a.scq, 1, IBV_WC_COMP_SWAP);
		memcpy(&now, arena.p + (i < 2 ? 64 : 1024) + i % 2 * 8, 8);
		EXPECT_EQ(now, 77 + i, "memory");
	}
	/* The returned value may go into a key, too. */
	struct t_op o = t_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, (struct ibv_sge){ 12, 8, mkey->lkey },
			       arena.key, arena.va + 4096);
	uint64_t was = 0x0102030405060708;

	memcpy(arena.p + 4096, &was, 8);
	EXPECT_EQ(t_post(&small.a, &o), 0, "ibv_wr_complete");
	T_DONE(small.a.scq, 2, IBV_WC_FETCH_ADD);
	EXPECT(!memcmp(arena.p + 64 + 12, &was, 4) && !memcmp(arena.p + 1024, (char *)&was + 4, 4),
	       "old value, scattered");
	umr_free(mkey);
}

/* Entries of nearly 2 GiB: their sum passes 4 GiB. */
static void beyond_4_gib(const void *arg)
{
	const uint64_t len = 0x7fffffff;
	struct t_buf huge = t_buf(env, len + 4096, T_ALL);
	struct umr_layout l = {
		.n = 3, .list = { t_sge(&huge, 0, len), t_sge(&huge, 1000, len), t_sge(&huge, 3000, len) }
	};
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 3, 0);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&flat, 0, 64), mkey->rkey, 2 * len - 24);

	(void)arg;
	umr_register(&small.a, mkey, T_ALL, &l);
	t_fill(flat.p, 64, 9);
	EXPECT_EQ(t_post(&small.a, &o), 0, "ibv_wr_complete");
	T_DONE(small.a.scq, 1, IBV_WC_RDMA_WRITE);
	EXPECT(!memcmp(huge.p + 1000 + len - 24, flat.p, 24), "bytes below the entry's end");
	EXPECT(!memcmp(huge.p + 3000, flat.p + 24, 40), "bytes in the next entry");
	o.raddr = 3 * len - 64;
	o.wr_id = 2;
	EXPECT_EQ(t_post(&small.a, &o), 0, "ibv_wr_complete");
	T_DONE(small.a.scq, 2, IBV_WC_RDMA_WRITE);
	EXPECT(!memcmp(huge.p + 3000 + len - 64, flat.p, 64), "the last bytes");
	umr_free(mkey);
	t_buf_free(&huge);
}

/* One transfer of more than the packets of one burst through a list of many pages. */
static void large(const void *arg)
{
	const size_t piece = 700001, n = 30;
	struct t_buf far = t_buf(env, piece * n * 2, T_ALL), plain = t_buf(env, piece * n, T_ALL);
	struct umr_layout l = { .n = n };
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, n, 0);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&plain, 0, piece * n), mkey->rkey, 0);

	(void)arg;
	for (size_t i = 0; i < n; i++)
		l.list[i] = t_sge(&far, (n - 1 - i) * 2 * piece, piece);
	umr_register(&big.a, mkey, T_ALL, &l);
	t_fill(plain.p, plain.len, 2);
	EXPECT_EQ(t_post(&big.a, &o), 0, "ibv_wr_complete");
	T_DONE(big.a.scq, 1, IBV_WC_RDMA_WRITE);
	for (size_t i = 0; i < n; i++) {
		EXPECT(!memcmp(far.p + (n - 1 - i) * 2 * piece, plain.p + i * piece, piece), "piece %zu", i);
		EXPECT(t_all(far.p + (n - 1 - i) * 2 * piece + piece, piece, 0), "the gap behind piece %zu", i);
	}
	umr_free(mkey);
	t_buf_free(&far);
	t_buf_free(&plain);
}

static const struct refused {
	const char *name, *check;
	int n, entries;
	uint32_t access;
	unsigned int flags;
	int err;
	bool on_big;
} refuses[] = {
	{ "without IBV_SEND_INLINE",		"POST_UMR_INLINE",  1, 4, T_ALL, 0, EOPNOTSUPP, false },
	{ "more entries than the key has",	"POST_UMR_ENTRIES", 9, 8, T_ALL, INL, ENOMEM, true },
	{ "more entries than the WQE holds",	"POST_UMR_ENTRIES", 8, 40, T_ALL, INL, ENOMEM, false },
	{ "unknown access flag",		"POST_UMR_ACCESS",  1, 4, BAD_ACCESS, INL, EINVAL, false },
};

static void refused(const void *arg)
{
	const struct refused *r = arg;
	struct t_pair *p = r->on_big ? &big : &small;
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, r->entries, 0);
	struct ibv_sge e[UMR_ENTRIES_MAX];
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 2, t_sge(&flat, 0, 8), arena.key, arena.va);

	for (int i = 0; i < r->n; i++)
		e[i] = t_sge(&arena, i * 64, 32);
	t_why_begin();
	ibv_wr_start(p->a.ex);
	p->a.ex->wr_id = 1;
	p->a.ex->wr_flags = IBV_SEND_SIGNALED | r->flags;
	mlx5dv_wr_mr_list(p->a.dv, mkey, r->access, r->n, e);
	EXPECT_EQ(ibv_wr_complete(p->a.ex), r->err, "ibv_wr_complete");
	T_WHY(r->check, 0);
	T_QUIET(p->a.scq);
	EXPECT_EQ(t_post(&p->a, &o), 0, "the next batch");
	T_DONE(p->a.scq, 2, IBV_WC_RDMA_WRITE);
	umr_free(mkey);
}

/* The registration's access flags are the key's: what is not given is refused, by the code of its side. */
static const struct right {
	const char *name, *check;
	uint32_t access;
	enum ibv_wr_opcode op;
	bool local;		/* the key is the local side */
	struct t_codes codes;	/* all 0: allowed */
} rights[] = {
	{ "READ with remote read",	NULL, RR, IBV_WR_RDMA_READ, false, { 0 } },
	{ "READ without remote read",	"REMOTE_RIGHT", LW | RW, IBV_WR_RDMA_READ, false, C_REM_ACCESS },
	{ "WRITE with remote write",	NULL, LW | RW, IBV_WR_RDMA_WRITE, false, { 0 } },
	{ "WRITE without remote write",	"REMOTE_RIGHT", LW | RR, IBV_WR_RDMA_WRITE, false, C_REM_ACCESS },
	{ "atomic without remote atomic", "REMOTE_RIGHT", LW | RW, IBV_WR_ATOMIC_FETCH_AND_ADD, false, C_REM_ACCESS },
	{ "gather with no flag at all",	NULL, 0, IBV_WR_RDMA_WRITE, true, { 0 } },
	{ "scatter with local write",	NULL, LW, IBV_WR_RDMA_READ, true, { 0 } },
	{ "scatter without local write", "SCATTER_RIGHT", RR, IBV_WR_RDMA_READ, true, C_SCATTER_RANGE },
};

static void right(const void *arg)
{
	const struct right *r = arg;
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct t_pair p = t_pair(env, &s);
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 2, 0);
	struct umr_layout l = { .n = 1, .list = { t_sge(&arena, 0, 64) } };
	struct ibv_sge through = { .addr = 0, .length = 8, .lkey = mkey->lkey };
	struct t_op o = r->local ? t_rdma(r->op, 1, through, flat.key, flat.va) :
				   t_rdma(r->op, 1, t_sge(&flat, 0, 8), mkey->rkey, 0);

	umr_register(&p.a, mkey, r->access, &l);
	memset(arena.p, 0x11, 64);
	memset(flat.p, 0x22, 64);
	t_why_begin();
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	if (!r->check) {
		T_DONE(p.a.scq, 1, -1);
	} else {
		T_FAILED(p.a.scq, 1, r->codes);
		T_WHY(r->check, p.a.qp->qp_num);
		EXPECT(t_all(arena.p, 64, 0x11) && t_all(flat.p, 64, 0x22), "memory was written");
	}
	t_pair_free(&p);
	umr_free(mkey);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_pair_free(&small);
	t_pair_free(&big);
	t_buf_free(&arena);
	t_buf_free(&flat);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, list, &rows[i]);
	t_case("several regions", several_regions, NULL);
	t_case("zero-based regions, lists of lists", zero_based_and_nested, NULL);
	t_case("atomics", atomics, NULL);
	t_case("beyond 4 GiB", beyond_4_gib, NULL);
	t_case("21 MB through thirty entries", large, NULL);
	for (size_t i = 0; i < sizeof(refuses) / sizeof(refuses[0]); i++)
		t_case(refuses[i].name, refused, &refuses[i]);
	for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
		t_case(rights[i].name, right, &rights[i]);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
