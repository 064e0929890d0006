/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_wr_mkey_configure() and its setters: access flags and layouts as with mr_list and mr_interleaved, in either
 * order, alone where the rest is to stay; what is misused; what comes later and is refused by name. */
#include "t_why.h"
#include "umr.h"

static struct t_env *env;
static struct t_pair p;
static struct t_buf arena, flat;

static void set_up(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .inl = 512 };

	(void)arg;
	p = t_pair(env, &s);
	arena = t_buf(env, 8192, T_ALL);
	flat = t_buf(env, 8192, T_ALL);
}

static struct umr_layout list_layout(void)
{
	return (struct umr_layout){
		.n = 3, .list = { t_sge(&arena, 4000, 100), t_sge(&arena, 10, 30), t_sge(&arena, 5000, 7) }
	};
}

static struct umr_layout pattern_layout(void)
{
	return (struct umr_layout) { .interleaved = true, .repeat = 12, .n = 2, .il = {
		{ arena.va, 10, 90, arena.key }, { arena.va + 2000, 3, 50, arena.key } } };
}

enum step { START, ACCESS, LIST, PATTERN };

/* One configure with these setters. RETURN ibv_wr_complete()'s. */
static int configure(struct mlx5dv_mkey *mkey, int declared, const enum step *steps, uint32_t access,
		     unsigned int flags)
{
	struct mlx5dv_mkey_conf_attr attr = { 0 };
	struct umr_layout l = list_layout(), il = pattern_layout();

	ibv_wr_start(p.a.ex);
	p.a.ex->wr_id = 1;
	p.a.ex->wr_flags = IBV_SEND_SIGNALED | flags;
	mlx5dv_wr_mkey_configure(p.a.dv, mkey, declared, &attr);
	for (; *steps; steps++) {
		if (*steps == ACCESS)
			mlx5dv_wr_set_mkey_access_flags(p.a.dv, access);
		else if (*steps == LIST)
			mlx5dv_wr_set_mkey_layout_list(p.a.dv, l.n, l.list);
		else
			mlx5dv_wr_set_mkey_layout_interleaved(p.a.dv, il.repeat, il.n, il.il);
	}
	return ibv_wr_complete(p.a.ex);
}

static const struct good { const char *name; enum step steps[4]; bool pattern; } goods[] = {
	{ "access, then list",		{ ACCESS, LIST }, false },
	{ "list, then access",		{ LIST, ACCESS }, false },
	{ "access, then interleaved",	{ ACCESS, PATTERN }, true },
	{ "interleaved, then access",	{ PATTERN, ACCESS }, true },
};

static void good(const void *arg)
{
	const struct good *g = arg;
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct umr_layout l = g->pattern ? pattern_layout() : list_layout();
	struct umr_map m = umr_map(&l);

	EXPECT_EQ(configure(mkey, 2, g->steps, T_ALL, IBV_SEND_INLINE), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 1, MLX5DV_WC_UMR);
	umr_check_all(&p, mkey->lkey, &m, &arena, &flat);
	free(m.byte);
	umr_free(mkey);
}

/* A configure with one setter changes that and leaves the rest. */
static void one_setter(const void *arg)
{
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct umr_layout l = pattern_layout();
	struct umr_map m = umr_map(&l);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 2, t_sge(&flat, 0, 8), mkey->rkey, 0);

	(void)arg;
	EXPECT_EQ(configure(mkey, 2, (enum step []) { ACCESS, LIST, 0 }, T_ALL, IBV_SEND_INLINE), 0, "both");
	T_DONE(p.a.scq, 1, MLX5DV_WC_UMR);
	EXPECT_EQ(configure(mkey, 1, (enum step []) { PATTERN, 0 }, 0, IBV_SEND_INLINE), 0, "layout alone");
	T_DONE(p.a.scq, 1, MLX5DV_WC_UMR);
	umr_check_all(&p, mkey->lkey, &m, &arena, &flat);

	EXPECT_EQ(configure(mkey, 1, (enum step[]){ ACCESS, 0 }, IBV_ACCESS_REMOTE_READ, IBV_SEND_INLINE), 0,
		  "access alone");
	T_DONE(p.a.scq, 1, MLX5DV_WC_UMR);
	umr_check(&p, UMR_REMOTE_READ, mkey->rkey, &m, 3, 50, &arena, &flat);
	memset(arena.p, 0x31, arena.len);
	t_why_begin();
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 2, T_REM_ACCESS);
	T_WHY("REMOTE_RIGHT", p.a.qp->qp_num);
	EXPECT(t_all(arena.p, arena.len, 0x31), "written without the right");
	t_reconnect(env, &p);
	free(m.byte);
	umr_free(mkey);
}

static const struct bad {
	const char *name, *check;
	int declared;
	enum step steps[4];
	uint32_t access;
	unsigned int flags;
	int err;
} bads[] = {
	{ "without IBV_SEND_INLINE",	"POST_UMR_INLINE", 2, { ACCESS, LIST }, T_ALL, 0, EOPNOTSUPP },
	{ "access set twice",		"POST_SETTER", 3, { ACCESS, ACCESS, LIST }, T_ALL, IBV_SEND_INLINE, EINVAL },
	{ "layout set twice",		"POST_SETTER", 3, { LIST, LIST, ACCESS }, T_ALL, IBV_SEND_INLINE, EINVAL },
	{ "two layouts",		"POST_SETTER", 3, { LIST, PATTERN, ACCESS }, T_ALL, IBV_SEND_INLINE, EINVAL },
	{ "more setters than declared",	"POST_SETTER", 1, { ACCESS, LIST }, T_ALL, IBV_SEND_INLINE, EINVAL },
	{ "fewer setters than declared", "POST_SETTER", 3, { ACCESS, LIST }, T_ALL, IBV_SEND_INLINE, EINVAL },
	{ "access outside the four",	"POST_UMR_ACCESS", 2, { ACCESS, LIST }, 0x10, IBV_SEND_INLINE, EINVAL },
};

static void bad(const void *arg)
{
	const struct bad *b = arg;
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);

	t_why_begin();
	EXPECT_EQ(configure(mkey, b->declared, b->steps, b->access, b->flags), b->err, "ibv_wr_complete");
	T_WHY(b->check, 0);
	T_QUIET(p.a.scq);

	/* Nothing of it lingers: a setter alone in the next batch has no configure to belong to. */
	t_why_begin();
	ibv_wr_start(p.a.ex);
	mlx5dv_wr_set_mkey_access_flags(p.a.dv, T_ALL);
	EXPECT_EQ(ibv_wr_complete(p.a.ex), EINVAL, "a bare setter");
	T_WHY("POST_SETTER", 0);
	EXPECT_EQ(configure(mkey, 2, (enum step[]){ ACCESS, LIST, 0 }, T_ALL, IBV_SEND_INLINE), 0,
		  "the next good one");
	T_DONE(p.a.scq, 1, MLX5DV_WC_UMR);
	umr_free(mkey);
}

static void unknown_flags(const void *arg)
{
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct mlx5dv_mkey_conf_attr attr[2] = { { .conf_flags = 2 }, { .comp_mask = 1 } };

	(void)arg;
	for (int i = 0; i < 2; i++) {
		t_why_begin();
		ibv_wr_start(p.a.ex);
		p.a.ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		mlx5dv_wr_mkey_configure(p.a.dv, mkey, 0, &attr[i]);
		EXPECT_EQ(ibv_wr_complete(p.a.ex), EOPNOTSUPP, i ? "comp_mask" : "conf_flags");
		T_WHY("POST_UMR_CONF", 0);
	}
	umr_free(mkey);
}

/* Signature and crypto come later: refused, not ignored. */
static void not_offered(const void *arg)
{
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct mlx5dv_mkey_conf_attr attr = { 0 };
	struct mlx5dv_sig_block_attr sig = { 0 };
	struct mlx5dv_crypto_attr crypto = { 0 };
	struct mlx5dv_mkey_init_attr init = { .pd = env->pd, .max_entries = 4,
		.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO };

	(void)arg;
	for (int i = 0; i < 2; i++) {
		ibv_wr_start(p.a.ex);
		p.a.ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		mlx5dv_wr_mkey_configure(p.a.dv, mkey, 1, &attr);
		if (i)
			mlx5dv_wr_set_mkey_crypto(p.a.dv, &crypto);
		else
			mlx5dv_wr_set_mkey_sig_block(p.a.dv, &sig);
		EXPECT_EQ(ibv_wr_complete(p.a.ex), EOPNOTSUPP, i ? "crypto" : "signature");
		T_QUIET(p.a.scq);
	}
	errno = 0;
	EXPECT(!mlx5dv_create_mkey(&init) && errno == EOPNOTSUPP, "a crypto mkey: errno %d", errno);
	umr_free(mkey);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_pair_free(&p);
	t_buf_free(&arena);
	t_buf_free(&flat);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	for (size_t i = 0; i < sizeof(goods) / sizeof(goods[0]); i++)
		t_case(goods[i].name, good, &goods[i]);
	t_case("one setter leaves the rest", one_setter, NULL);
	for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++)
		t_case(bads[i].name, bad, &bads[i]);
	t_case("unknown flags and masks", unknown_flags, NULL);
	t_case("signature and crypto", not_offered, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
