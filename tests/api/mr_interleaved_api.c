/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_wr_mr_interleaved(): patterns against an oracle that walks them byte by byte, through the key as
 * lkey and as rkey, in whole and in part; limits and refusals. */
#include "t_why.h"
#include "umr.h"

enum { ARENA = 16384, INL_BIG = 512, INL = IBV_SEND_INLINE, BAD_ACCESS = T_ALL | IBV_ACCESS_MW_BIND };

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
	uint32_t repeat;
	int n;
	struct { uint32_t at, count, skip; } e[4];
	int same;		/* n > 4: entries made from e[0], this many bytes apart */
} rows[] = {
	{ "one block, one turn",		1,	1, { { 100, 50, 0 } }, 0 },
	{ "one byte, one turn",			1,	1, { { 7, 1, 0 } }, 0 },
	{ "one block, many turns",		100,	1, { { 3, 16, 48 } }, 0 },
	{ "single bytes",			500,	1, { { 0, 1, 6 } }, 0 },
	{ "no gap: plain memory",		64,	1, { { 0, 64, 0 } }, 0 },
	{ "two columns",			32,	2, { { 8, 8, 120 }, { 64, 24, 104 } }, 0 },
	{ "two regions of different stride",	10,	2, { { 0, 100, 28 }, { 8000, 7, 1 } }, 0 },
	{ "out of address order",		16,	2, { { 8192, 32, 32 }, { 0, 16, 16 } }, 0 },
	{ "three blocks, odd sizes",		9,	3, { { 1, 3, 10 }, { 1000, 13, 1 }, { 5001, 17, 100 } }, 0 },
	{ "blocks over page borders",		3,	2, { { 4000, 300, 3900 }, { 4400, 8, 4088 } }, 0 },
	{ "six entries",			5,	6, { { 0, 11, 100 } }, 2000 },
	{ "twenty entries",			3,	20, { { 0, 8, 56 } }, 512 },
};

static struct umr_layout layout(const struct row *r)
{
	struct umr_layout l = { .interleaved = true, .repeat = r->repeat, .n = r->n };

	for (int i = 0; i < r->n; i++) {
		int from = r->n > 4 ? 0 : i;

		l.il[i] = (struct mlx5dv_mr_interleaved){ .addr = arena.va + r->e[from].at +
								  (r->n > 4 ? i * r->same : 0),
							  .bytes_count = r->e[from].count,
							  .bytes_skip = r->e[from].skip,
							  .lkey = arena.key };
	}
	return l;
}

static void pattern(const void *arg)
{
	const struct row *r = arg;
	struct umr_layout l = layout(r);
	struct umr_map m = umr_map(&l);
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, r->n + 1, 0);
	struct t_pair *p = r->n > 3 ? &big : &small;

	umr_register(&p->a, mkey, T_ALL, &l);
	umr_check_all(p, mkey->lkey, &m, &arena, &flat);
	EXPECT_EQ(mkey->lkey, mkey->rkey, "rkey against lkey");
	umr_free(mkey);
	free(m.byte);
}

/* Atomics where the eight bytes lie in one run: here each block is one aligned counter. */
static void atomics(const void *arg)
{
	struct umr_layout l = { .interleaved = true, .repeat = 16, .n = 1,
		.il = { { .addr = arena.va + 64, .bytes_count = 8, .bytes_skip = 24, .lkey = arena.key } } };
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 2, 0);

	(void)arg;
	umr_register(&small.a, mkey, T_ALL, &l);
	memset(arena.p, 0, 1024);
	for (int i = 0; i < 16; i++) {
		struct t_op o = t_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, t_sge(&flat, 0, 8), mkey->rkey, i * 8);
		uint64_t now;

		o.compare_add = 1000 + i;
		EXPECT_EQ(t_post(&small.a, &o), 0, "ibv_wr_complete");
		T_DONE(small.a.scq, 1, IBV_WC_FETCH_ADD);
		memcpy(&now, arena.p + 64 + i * 32, 8);
		EXPECT_EQ(now, 1000 + i, "the counter in memory");
		EXPECT(t_all(arena.p + 72 + i * 32, 24, 0), "bytes of the gap were written");
	}
	umr_free(mkey);
}

/* Keys under keys: a pattern over a list over a pattern. */
static void nested(const void *arg)
{
	struct umr_layout inner = { .interleaved = true, .repeat = 64, .n = 1,
		.il = { { .addr = arena.va + 5, .bytes_count = 10, .bytes_skip = 90, .lkey = arena.key } } };
	struct umr_map inner_map = umr_map(&inner), middle_map, outer_map;
	struct mlx5dv_mkey *key[3] = { umr_mkey(env->pd, 4, 0), umr_mkey(env->pd, 4, 0), umr_mkey(env->pd, 4, 0) };
	struct umr_layout middle, outer;

	(void)arg;
	middle = (struct umr_layout){ .n = 3,
				      .under = { &inner_map, NULL, &inner_map },
				      .list = { { .addr = 15, .length = 100, .lkey = key[0]->lkey },
						{ .addr = arena.va + 9000, .length = 33, .lkey = arena.key },
						{ .addr = 300, .length = 340, .lkey = key[0]->lkey } } };
	middle_map = umr_map(&middle);
	outer = (struct umr_layout) { .interleaved = true, .repeat = 10, .n = 2, .under = { &middle_map, NULL }, .il = {
		{ .addr = 3, .bytes_count = 20, .bytes_skip = 25, .lkey = key[1]->lkey },
		{ .addr = arena.va + 12000, .bytes_count = 5, .bytes_skip = 3, .lkey = arena.key } } };
	outer_map = umr_map(&outer);
	umr_register(&small.a, key[0], T_ALL, &inner);
	umr_register(&small.a, key[1], T_ALL, &middle);
	umr_register(&small.a, key[2], T_ALL, &outer);
	umr_check_all(&small, key[2]->lkey, &outer_map, &arena, &flat);
	for (int i = 0; i < 3; i++)
		umr_free(key[i]);
	free(inner_map.byte);
	free(middle_map.byte);
	free(outer_map.byte);
}

/* Both sides of one transfer are patterns. */
static void both_sides(const void *arg)
{
	struct umr_layout from = { .interleaved = true, .repeat = 20, .n = 1,
		.il = { { .addr = arena.va, .bytes_count = 30, .bytes_skip = 70, .lkey = arena.key } } };
	struct umr_layout to = { .interleaved = true, .repeat = 50, .n = 1,
		.il = { { .addr = arena.va + 8192, .bytes_count = 12, .bytes_skip = 9, .lkey = arena.key } } };
	struct umr_map f = umr_map(&from), t = umr_map(&to);
	struct mlx5dv_mkey *key[2] = { umr_mkey(env->pd, 2, 0), umr_mkey(env->pd, 2, 0) };

	(void)arg;
	umr_register(&small.a, key[0], T_ALL, &from);
	umr_register(&small.a, key[1], T_ALL, &to);
	for (int read = 0; read < 2; read++) {
		struct ibv_sge sge = { .addr = 7, .length = 590, .lkey = key[read]->lkey };
		struct t_op o = t_rdma(read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 1, sge, key[!read]->rkey,
				       read ? 3 : 10);
		int wrong = 0;

		t_fill(arena.p, arena.len, 4 + read);
		EXPECT_EQ(t_post(&small.a, &o), 0, "ibv_wr_complete");
		T_DONE(small.a.scq, 1, -1);
		for (int i = 0; i < 590; i++)
			wrong += *f.byte[(read ? 3 : 7) + i] != *t.byte[(read ? 7 : 10) + i];
		EXPECT(!wrong, "%s: %d bytes wrong", read ? "READ" : "WRITE", wrong);
	}
	umr_free(key[0]);
	umr_free(key[1]);
	free(f.byte);
	free(t.byte);
}

/* bytes_count x repeat passes 4 GiB; the last block is where it should be. */
static void beyond_4_gib(const void *arg)
{
	const uint64_t turns = 160000, stride = 32768;
	struct t_buf huge = t_buf(env, turns * stride, T_ALL);
	struct umr_layout l = { .interleaved = true, .repeat = turns, .n = 1,
		.il = { { .addr = huge.va, .bytes_count = stride, .lkey = huge.key } } };
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 2, 0);
	const uint64_t at[] = { (1ull << 32) - 5, (1ull << 32) + 12345, turns * stride - 10 };

	(void)arg;
	umr_register(&small.a, mkey, T_ALL, &l);
	for (int i = 0; i < 3; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&flat, 0, 10), mkey->rkey, at[i]);

		t_fill(flat.p, 10, i);
		EXPECT_EQ(t_post(&small.a, &o), 0, "ibv_wr_complete");
		T_DONE(small.a.scq, 1, IBV_WC_RDMA_WRITE);
		EXPECT(t_is(huge.p + at[i], 10, i), "data at %" PRIu64, at[i]);
	}
	umr_free(mkey);
	t_buf_free(&huge);
}

static const struct refused {
	const char *name, *check;
	int n, entries;		/* of the layout, of the key */
	uint32_t count, skip, access;
	unsigned int flags;
	int err;
	bool on_big;
} refuses[] = {
	{ "without IBV_SEND_INLINE",		"POST_UMR_INLINE",  1, 4, 8, 8, T_ALL, 0, EOPNOTSUPP, false },
	{ "more entries than the key has",	"POST_UMR_ENTRIES", 8, 4, 8, 8, T_ALL, INL, ENOMEM, true },
	{ "the header needs one, too",		"POST_UMR_ENTRIES", 4, 4, 8, 8, T_ALL, INL, ENOMEM, true },
	{ "more entries than the WQE holds",	"POST_UMR_ENTRIES", 20, 40, 8, 8, T_ALL, INL, ENOMEM, false },
	{ "byte count over 16 bits",		"POST_UMR_FIELD",   1, 4, 65536, 0, T_ALL, INL, EINVAL, false },
	{ "stride over 16 bits",		"POST_UMR_FIELD",   1, 4, 8, 65528, T_ALL, INL, EINVAL, false },
	{ "unknown access flag",		"POST_UMR_ACCESS",  1, 4, 8, 8, BAD_ACCESS, INL, EINVAL, false },
};

static void refused(const void *arg)
{
	const struct refused *r = arg;
	struct t_pair *p = r->on_big ? &big : &small;
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, r->entries, 0);
	struct mlx5dv_mr_interleaved e[UMR_ENTRIES_MAX];
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 2, t_sge(&flat, 0, 8), arena.key, arena.va);

	for (int i = 0; i < r->n; i++)
		e[i] = (struct mlx5dv_mr_interleaved) { arena.va + i * 64, r->count, r->skip, arena.key };
	t_why_begin();
	ibv_wr_start(p->a.ex);
	p->a.ex->wr_id = 1;
	p->a.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(p->a.ex, arena.key, arena.va);	/* the whole batch is dropped */
	ibv_wr_set_sge(p->a.ex, flat.key, flat.va, 8);
	p->a.ex->wr_flags = IBV_SEND_SIGNALED | r->flags;
	mlx5dv_wr_mr_interleaved(p->a.dv, mkey, r->access, 2, r->n, e);
	EXPECT_EQ(ibv_wr_complete(p->a.ex), r->err, "ibv_wr_complete");
	T_WHY(r->check, 0);
	T_QUIET(p->a.scq);
	EXPECT_EQ(t_post(&p->a, &o), 0, "the next batch");
	T_DONE(p->a.scq, 2, IBV_WC_RDMA_WRITE);
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
		t_case(rows[i].name, pattern, &rows[i]);
	t_case("atomics on blocks", atomics, NULL);
	t_case("keys under keys", nested, NULL);
	t_case("patterns on both sides", both_sides, NULL);
	t_case("beyond 4 GiB", beyond_4_gib, NULL);
	for (size_t i = 0; i < sizeof(refuses) / sizeof(refuses[0]); i++)
		t_case(refuses[i].name, refused, &refuses[i]);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
