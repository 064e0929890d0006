/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* UMR, bind and invalidate requests that the device refuses. Most are raw WQEs, since the builders would
 * refuse first. The key must be as it was. */
#include "raw.h"
#include "t_why.h"
#include "umr.h"

static struct t_env *env;
static struct t_buf mem, flat;

enum what { GONE, TOO_LARGE, OCTOWORDS, CHECK_FREE, OTHER_PD, KIND, TAG, STRIDED_SHORT, INV_GONE, INV_MR };

static const struct row { const char *name, *check; enum what what; struct t_codes codes; } rows[] = {
	{ "key destroyed",			"UMR_KEY", GONE, C_UMR_KEY },
	{ "more entries than the key has",	"UMR_TRANSLATION", TOO_LARGE, C_UMR_SIZE },
	{ "octowords not a multiple of 4",	"UMR_OCTOWORDS", OCTOWORDS, C_OCTOWORDS },
	{ "check-free on a key in use",		"UMR_NOT_FREE", CHECK_FREE, C_UMR_OTHER },
	{ "key of another PD",			"UMR_PD", OTHER_PD, C_UMR_OTHER },
	{ "an ordinary region's key",		"UMR_KIND", KIND, C_UMR_OTHER },
	{ "another tag, not allowed",		"UMR_TAG", TAG, C_UMR_OTHER },
	{ "strided, entries missing",		"UMR_ENTRY", STRIDED_SHORT, C_UMR_OTHER },
	{ "invalidate of a key destroyed",	"UMR_KEY", INV_GONE, C_UMR_KEY },
	{ "invalidate of a region",		"UMR_KIND", INV_MR, C_UMR_OTHER },
};

static void set_up(const void *arg)
{
	(void)arg;
	mem = t_buf(env, 8192, T_ALL | IBV_ACCESS_MW_BIND);
	flat = t_buf(env, 8192, T_ALL);
}

/* A UMR of n list entries onto key, as the builder would write it. */
static struct raw umr(uint32_t qpn, uint32_t key, int n)
{
	struct raw r = raw_ctrl(qpn, MLX5_OPCODE_UMR, 0, MLX5_WQE_CTRL_CQ_UPDATE, key);
	struct mlx5_wqe_umr_ctrl_seg ctl = { .flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE,
					     .klm_octowords = htobe16((n + 3) & ~3) };
	struct mlx5_wqe_mkey_context_seg ctx = { .access_flags = 0x38, .qpn_mkey = htobe32(0xffffff00 | (key & 0xff)),
		.len = htobe64(n * 100) };

	ctl.mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY |
				MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | 0xfull << 18);
	raw_add(&r, &ctl, 48);
	raw_add(&r, &ctx, 64);
	for (int i = 0; i < ((n + 3) & ~3); i++)
		raw_data(&r, i < n ? 100 : 0, i < n ? mem.key : 0, i < n ? mem.va + i * 100 : 0);
	return r;
}

static void one(const void *arg)
{
	const struct row *r = arg;
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .inl = 512 };
	struct t_pair p = t_pair(env, &s);
	struct ibv_pd *pd = ibv_alloc_pd(env->ctx);
	struct mlx5dv_mkey *mkey = umr_mkey(r->what == OTHER_PD ? pd : env->pd, 4, 0), *gone = umr_mkey(env->pd, 4, 0);
	struct umr_layout l = { .n = 1, .list = { t_sge(&mem, 4096, 64) } };
	uint32_t gone_key = gone->lkey;
	struct raw w = umr(p.a.qp->qp_num, mkey->lkey, 1);
	struct t_op inv = { .op = IBV_WR_LOCAL_INV, .wr_id = 1, .flags = IBV_SEND_SIGNALED };
	struct t_op read = t_rdma(IBV_WR_RDMA_READ, 2, t_sge(&flat, 0, 64), mkey->rkey, 0);
	bool usable = r->what != OTHER_PD;

	umr_free(gone);
	if (usable)
		umr_register(&p.a, mkey, T_ALL, &l);
	switch (r->what) {
	case GONE: w = umr(p.a.qp->qp_num, gone_key, 1); break;
	case TOO_LARGE: w = umr(p.a.qp->qp_num, mkey->lkey, 8); break;
	case OCTOWORDS: w.b[16 + 5] = 3; break;
	case CHECK_FREE: w.b[16] |= MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE; break;
	case KIND: w = umr(p.a.qp->qp_num, mem.key, 1); break;
	case TAG: w.b[64 + 7] ^= 1; break;
	case STRIDED_SHORT:
		memset(w.b + 128, 0, 16);
		w.b[128 + 3] = 100;		/* bytes a turn */
		w.b[128 + 6] = 4;		/* 0x400: a repeat block */
		w.b[128 + 11] = 1;		/* one turn */
		w.b[128 + 15] = 9;		/* of nine blocks; three follow */
		break;
	case INV_GONE: inv.inv = gone_key; break;
	case INV_MR: inv.inv = mem.key; break;
	default: break;
	}
	t_why_begin();
	EXPECT_EQ(inv.inv ? t_post(&p.a, &inv) : raw_post(&p.a, 1, &w), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, r->codes);
	T_WHY(r->check, p.a.qp->qp_num);
	EXPECT_EQ(t_qp_state(p.a.qp), IBV_QPS_ERR, "state");
	if (usable) {	/* the layout that was there still is */
		t_reconnect(env, &p);
		t_fill(mem.p + 4096, 64, 7);
		EXPECT_EQ(t_post(&p.a, &read), 0, "READ");
		T_DONE(p.a.scq, 2, IBV_WC_RDMA_READ);
		EXPECT(t_is(flat.p, 64, 7), "the key's layout changed");
	}
	t_pair_free(&p);
	umr_free(mkey);
	EXPECT_EQ(ibv_dealloc_pd(pd), 0, "ibv_dealloc_pd");
}

/* The raw UMR that the rows spoil is a good one. */
static void control(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .inl = 512 };
	struct t_pair p = t_pair(env, &s);
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct raw w = umr(p.a.qp->qp_num, mkey->lkey, 2);
	struct t_op read = t_rdma(IBV_WR_RDMA_READ, 2, t_sge(&flat, 0, 200), mkey->rkey, 0);

	(void)arg;
	EXPECT_EQ(raw_post(&p.a, 1, &w), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 1, IBV_WC_DRIVER2);
	t_fill(mem.p, 200, 8);
	EXPECT_EQ(t_post(&p.a, &read), 0, "READ");
	T_DONE(p.a.scq, 2, IBV_WC_RDMA_READ);
	EXPECT(t_is(flat.p, 200, 8), "data");
	t_pair_free(&p);
	umr_free(mkey);
}

/* A key whose tag may change: the new number is valid afterwards, the old is not. */
static void tag_update(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .inl = 512 };
	struct t_pair p = t_pair(env, &s);
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG);
	struct raw w = umr(p.a.qp->qp_num, mkey->lkey, 1);
	uint32_t now = mkey->lkey ^ 0x5c;
	struct t_op read = t_rdma(IBV_WR_RDMA_READ, 2, t_sge(&flat, 0, 64), now, 0);

	(void)arg;
	w.b[64 + 7] ^= 0x5c;
	EXPECT_EQ(raw_post(&p.a, 1, &w), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 1, IBV_WC_DRIVER2);
	EXPECT_EQ(t_post(&p.a, &read), 0, "READ by the new number");
	T_DONE(p.a.scq, 2, IBV_WC_RDMA_READ);
	read.rkey = mkey->rkey;
	EXPECT_EQ(t_post(&p.a, &read), 0, "READ by the old number");
	T_FAILED(p.a.scq, 2, T_REM_ACCESS);
	t_pair_free(&p);
	umr_free(mkey);
}

static const struct bind {
	const char *name;
	int access;		/* of the region */
	uint64_t at, len;
	unsigned int ask;
	bool good;
} binds[] = {
	{ "window within its region",		T_ALL | IBV_ACCESS_MW_BIND, 0, 4096, IBV_ACCESS_REMOTE_WRITE, true },
	{ "window past its region",		T_ALL | IBV_ACCESS_MW_BIND, 1, 4096, IBV_ACCESS_REMOTE_WRITE, false },
	{ "region without IBV_ACCESS_MW_BIND",	T_ALL, 0, 4096, IBV_ACCESS_REMOTE_WRITE, false },
	{ "remote write without local write",	IBV_ACCESS_MW_BIND, 0, 4096, IBV_ACCESS_REMOTE_WRITE, false },
};

static void bind(const void *arg)
{
	const struct bind *b = arg;
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct ibv_mr *mr = ibv_reg_mr(env->pd, mem.p, 4096, b->access);
	struct ibv_mw *mw = ibv_alloc_mw(env->pd, IBV_MW_TYPE_2);
	struct t_op o = { .op = IBV_WR_BIND_MW, .wr_id = 1, .flags = IBV_SEND_SIGNALED, .mw = mw,
			  .bind = { .mr = mr, .addr = mem.va + b->at, .length = b->len, .mw_access_flags = b->ask } };

	MUST(mr && mw, "region and window");
	o.rkey = ibv_inc_rkey(mw->rkey);
	t_why_begin();
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "ibv_post_send");
	if (b->good) {
		T_DONE(p.a.scq, 1, IBV_WC_BIND_MW);
	} else {
		T_FAILED(p.a.scq, 1, T_UMR_OTHER);
		T_WHY("BIND_MR", p.a.qp->qp_num);
	}
	t_pair_free(&p);
	EXPECT_EQ(ibv_dealloc_mw(mw), 0, "ibv_dealloc_mw");
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&mem);
	t_buf_free(&flat);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("a good raw UMR", control, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, one, &rows[i]);
	t_case("a key whose tag may change", tag_update, NULL);
	for (size_t i = 0; i < sizeof(binds) / sizeof(binds[0]); i++)
		t_case(binds[i].name, bind, &binds[i]);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
