/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Freeing an indirect key and using it again: IBV_WR_LOCAL_INV by both posting APIs, SEND with invalidate,
 * and what happens to a request that uses the key in between. */
#include "t_why.h"
#include "umr.h"

static struct t_env *env;
static struct t_buf arena, flat;

static struct t_pair new_pair(void)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };

	return t_pair(env, &s);
}

static void set_up(const void *arg)
{
	(void)arg;
	arena = t_buf(env, 8192, T_ALL);
	flat = t_buf(env, 8192, T_ALL);
}

/* List, invalidate, pattern, invalidate, list again; by the API that arg names. */
static void register_again(const void *arg)
{
	const bool *old = arg;
	struct t_pair p = new_pair();
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	uint32_t key = mkey->lkey;
	struct umr_layout l[3] = {
		{ .n = 2, .list = { t_sge(&arena, 0, 100), t_sge(&arena, 3000, 50) } },
		{ .interleaved = true, .repeat = 10, .n = 2, .il = {
			{ arena.va + 40, 5, 60, arena.key }, { arena.va + 4096, 3, 7, arena.key } } },
		{ .n = 1, .list = { t_sge(&arena, 7000, 300) } },
	};

	for (int i = 0; i < 3; i++) {
		struct umr_map m = umr_map(&l[i]);

		umr_register(&p.a, mkey, T_ALL, &l[i]);
		umr_check_all(&p, mkey->lkey, &m, &arena, &flat);
		umr_invalidate(&p.a, mkey->lkey, *old);
		free(m.byte);
	}
	EXPECT_EQ(mkey->lkey, key, "the key's number");
	umr_free(mkey);
	t_pair_free(&p);
}

/* A second registration without an invalidate between replaces the first: the builder does not ask that the key be
 * free. */
static void register_over(const void *arg)
{
	struct t_pair p = new_pair();
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct umr_layout a = { .n = 1, .list = { t_sge(&arena, 0, 100) } },
			  b = { .n = 1, .list = { t_sge(&arena, 500, 40) } };
	struct umr_map m = umr_map(&b);

	(void)arg;
	umr_register(&p.a, mkey, T_ALL, &a);
	umr_register(&p.a, mkey, T_ALL, &b);
	umr_check_all(&p, mkey->lkey, &m, &arena, &flat);
	free(m.byte);
	umr_free(mkey);
	t_pair_free(&p);
}

/* Registered and used in one batch, invalidated and registered anew in the next: no completion is awaited between. */
static void in_one_batch(const void *arg)
{
	struct t_pair p = new_pair();
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct ibv_sge piece[2] = { t_sge(&arena, 128, 32), t_sge(&arena, 1024, 32) };

	(void)arg;
	memset(arena.p, 0, arena.len);
	t_fill(flat.p, 64, 5);
	ibv_wr_start(p.a.ex);
	for (int i = 0; i < 2; i++) {
		p.a.ex->wr_id = 10 * i + 1;
		p.a.ex->wr_flags = IBV_SEND_INLINE;
		mlx5dv_wr_mr_list(p.a.dv, mkey, T_ALL, 1, &piece[i]);
		p.a.ex->wr_id = 10 * i + 2;
		p.a.ex->wr_flags = 0;
		ibv_wr_rdma_write(p.a.ex, mkey->rkey, 0);
		ibv_wr_set_sge(p.a.ex, flat.key, flat.va + 32 * i, 32);
		p.a.ex->wr_id = 10 * i + 3;
		p.a.ex->wr_flags = i ? IBV_SEND_SIGNALED : 0;
		ibv_wr_local_inv(p.a.ex, mkey->lkey);
	}
	EXPECT_EQ(ibv_wr_complete(p.a.ex), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 13, IBV_WC_LOCAL_INV);
	EXPECT(!memcmp(arena.p + 128, flat.p, 32) && !memcmp(arena.p + 1024, flat.p + 32, 32), "data");
	umr_free(mkey);
	t_pair_free(&p);
}

static const struct dead {
	const char *name, *check;
	bool never;		/* the key was never registered */
	bool local;
	enum ibv_wr_opcode op;
	struct t_codes codes;
} deads[] = {
	{ "READ from a freed key",	"REMOTE_FREE", false, false, IBV_WR_RDMA_READ, C_REM_ACCESS },
	{ "WRITE to a freed key",	"REMOTE_FREE", false, false, IBV_WR_RDMA_WRITE, C_REM_ACCESS },
	{ "gather from a freed key",	"GATHER_FREE", false, true, IBV_WR_RDMA_WRITE, C_GATHER_KEY },
	{ "scatter to a freed key",	"SCATTER_FREE", false, true, IBV_WR_RDMA_READ, C_SCATTER_KEY },
	{ "WRITE to a new key",		"REMOTE_FREE", true, false, IBV_WR_RDMA_WRITE, C_REM_ACCESS },
	{ "gather from a new key",	"GATHER_FREE", true, true, IBV_WR_SEND, C_GATHER_KEY },
};

static void use_freed(const void *arg)
{
	const struct dead *d = arg;
	struct t_pair p = new_pair();
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct umr_layout l = { .n = 1, .list = { t_sge(&arena, 0, 100) } };
	struct ibv_sge through = { .addr = 0, .length = 16, .lkey = mkey->lkey };
	struct t_op o = d->local ? t_rdma(d->op, 1, through, flat.key, flat.va) :
				   t_rdma(d->op, 1, t_sge(&flat, 0, 16), mkey->rkey, 0);

	if (!d->never) {
		umr_register(&p.a, mkey, T_ALL, &l);
		umr_invalidate(&p.a, mkey->lkey, false);
	}
	memset(arena.p, 0x33, 200);
	memset(flat.p, 0x44, 200);
	t_recv(&p.b, 9, t_sge(&flat, 100, 16));
	t_why_begin();
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, d->codes);
	T_WHY(d->check, p.a.qp->qp_num);
	EXPECT_EQ(t_qp_state(p.a.qp), IBV_QPS_ERR, "state of the requester");
	EXPECT(t_all(arena.p, 200, 0x33) && t_all(flat.p, 200, 0x44), "memory was written");
	t_pair_free(&p);

	/* The key lives: it can be registered again, on another queue pair. */
	p = new_pair();
	umr_register(&p.b, mkey, T_ALL, &l);
	o = t_rdma(IBV_WR_RDMA_WRITE, 2, t_sge(&flat, 0, 16), mkey->rkey, 0);
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 2, IBV_WC_RDMA_WRITE);
	EXPECT(t_all(arena.p, 16, 0x44), "data");
	t_pair_free(&p);
	umr_free(mkey);
}

static void remote_invalidate(const void *arg)
{
	struct t_pair p = new_pair();
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE);
	struct umr_layout l = { .n = 1, .list = { t_sge(&arena, 0, 100) } };
	struct t_op o = t_op(IBV_WR_SEND_WITH_INV, 1, t_sge(&flat, 0, 16));
	struct t_wc wc;

	(void)arg;
	for (int round = 0; round < 2; round++) {	/* a key may be used and invalidated again and again */
		umr_register(&p.b, mkey, T_ALL, &l);
		o = t_op(IBV_WR_SEND_WITH_INV, 1, t_sge(&flat, 0, 16));
		o.inv = mkey->rkey;
		t_recv(&p.b, 2, t_sge(&flat, 1000, 16));
		EXPECT_EQ(round ? t_post_old(&p.a, &o) : t_post(&p.a, &o), 0, "posting SEND_WITH_INV");
		T_DONE(p.a.scq, 1, IBV_WC_SEND);
		wc = T_DONE(p.b.rcq, 2, IBV_WC_RECV);
		EXPECT(wc.wc.wc_flags & IBV_WC_WITH_INV, "IBV_WC_WITH_INV is not set");
		EXPECT_EQ(wc.wc.invalidated_rkey, mkey->rkey, "invalidated_rkey");
	}
	o = t_rdma(IBV_WR_RDMA_READ, 3, t_sge(&flat, 0, 16), mkey->rkey, 0);
	t_why_begin();
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 3, T_REM_ACCESS);
	T_WHY("REMOTE_FREE", p.a.qp->qp_num);
	umr_free(mkey);
	t_pair_free(&p);
}

/* A key that was not created for it stays valid. */
static void remote_invalidate_refused(const void *arg)
{
	struct t_pair p = new_pair();
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct umr_layout l = { .n = 1, .list = { t_sge(&arena, 0, 100) } };
	struct t_op o = t_op(IBV_WR_SEND_WITH_INV, 1, t_sge(&flat, 0, 16));

	(void)arg;
	umr_register(&p.b, mkey, T_ALL, &l);
	o.inv = mkey->rkey;
	t_recv(&p.b, 2, t_sge(&flat, 1000, 16));
	t_why_begin();
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	EXPECT_EQ(t_poll(p.a.scq).wc.status, IBV_WC_REM_ACCESS_ERR, "status");
	T_WHY("REMOTE_INVALIDATE", p.a.qp->qp_num);
	EXPECT_EQ(t_why_count("REMOTE_INVALIDATE"), 1, "refusals of one request");
	t_reconnect(env, &p);
	o = t_rdma(IBV_WR_RDMA_READ, 3, t_sge(&flat, 0, 16), mkey->rkey, 0);
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 3, IBV_WC_RDMA_READ);
	umr_free(mkey);
	t_pair_free(&p);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&arena);
	t_buf_free(&flat);
}

int main(void)
{
	static const bool by_builder = false, by_post_send = true;

	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("other layouts on one key, invalidated by ibv_wr_local_inv", register_again, &by_builder);
	t_case("other layouts on one key, invalidated by ibv_post_send", register_again, &by_post_send);
	t_case("a registration replaces the one before", register_over, NULL);
	t_case("register, use, invalidate, twice, in one batch", in_one_batch, NULL);
	for (size_t i = 0; i < sizeof(deads) / sizeof(deads[0]); i++)
		t_case(deads[i].name, use_freed, &deads[i]);
	t_case("invalidated by the peer", remote_invalidate, NULL);
	t_case("not to be invalidated by the peer", remote_invalidate_refused, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
