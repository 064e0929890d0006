/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_wr_memcpy(): lengths and alignments, RC and DCI, through indirect keys, limits, fences, errors. */
#include "t_why.h"
#include "umr.h"

static struct t_env *env;
static struct t_qp rc, dci;
static struct t_buf src, dst;

/* "No connection needed": RTS is enough, the destination is nobody. */
static struct t_qp unconnected(void)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct t_qp q = t_qp(env, &s);
	struct ibv_qp_attr attr = t_attr(env, 0);

	t_to_rts(q.qp, &attr);
	return q;
}

static void set_up(const void *arg)
{
	(void)arg;
	MUST(env->dv.max_wr_memcpy_length >= 16 << 20, "max_wr_memcpy_length is at least 16 MiB");
	rc = unconnected();
	dci = t_dci(env, (struct t_spec) { .dv_ops = T_DCI_DV_OPS });
	src = t_buf(env, env->dv.max_wr_memcpy_length + 8192, T_ALL);
	dst = t_buf(env, env->dv.max_wr_memcpy_length + 8192, T_ALL);
}

static int copy(struct t_qp *q, uint64_t wr_id, struct ibv_sge to, struct ibv_sge from, size_t len)
{
	ibv_wr_start(q->ex);
	q->ex->wr_id = wr_id;
	q->ex->wr_flags = IBV_SEND_SIGNALED;
	mlx5dv_wr_memcpy(q->dv, to.lkey, to.addr, from.lkey, from.addr, len);
	return ibv_wr_complete(q->ex);
}

static const struct row { const char *name; size_t len, from, to; } rows[] = {
	{ "1 byte",		1, 0, 0 },
	{ "1 byte, odd places",	1, 4095, 17 },
	{ "7 bytes over a page's end", 7, 4093, 8190 },
	{ "64 bytes",		64, 0, 0 },
	{ "4096 bytes",		4096, 0, 0 },
	{ "4097 bytes, unaligned", 4097, 1, 3 },
	{ "65535 bytes",	65535, 5, 0 },
	{ "1 MiB and 3",	(1 << 20) + 3, 11, 22 },
	{ "the maximum",	0, 13, 4097 },
};

static void lengths(const void *arg)
{
	const struct row *r = arg;
	size_t len = r->len ? r->len : env->dv.max_wr_memcpy_length;
	struct t_qp *qp[2] = { &rc, &dci };

	for (int i = 0; i < 2; i++) {
		for (size_t at = 0; at < len; at += 4096)
			t_fill(src.p + r->from + at, len - at < 4096 ? len - at : 4096, at >> 12);
		memset(dst.p, 0xcc, r->to + len + 100);
		EXPECT_EQ(copy(qp[i], 7, t_sge(&dst, r->to, 0), t_sge(&src, r->from, 0), len), 0, "ibv_wr_complete");
		T_DONE(qp[i]->scq, 7, MLX5DV_WC_MEMCPY);
		EXPECT(!memcmp(dst.p + r->to, src.p + r->from, len), "data, %s", i ? "DCI" : "RC");
		EXPECT(t_all(dst.p, r->to, 0xcc) && t_all(dst.p + r->to + len, 100, 0xcc),
		       "bytes outside were written");
	}
}

static void refused_lengths(const void *arg)
{
	struct t_qp *qp[2] = { &rc, &dci };

	(void)arg;
	for (int i = 0; i < 2; i++) {
		t_why_begin();
		EXPECT_EQ(copy(qp[i], 1, t_sge(&dst, 0, 0), t_sge(&src, 0, 0), 0), EINVAL, "length 0");
		T_WHY("POST_MEMCPY_LENGTH", 0);
		EXPECT_EQ(copy(qp[i], 1, t_sge(&dst, 0, 0), t_sge(&src, 0, 0),
			       env->dv.max_wr_memcpy_length + 1),
			  EINVAL, "max + 1");
		T_QUIET(qp[i]->scq);
	}
}

static void through_keys(const void *arg)
{
	struct umr_layout from = {
		.interleaved = true, .repeat = 100, .n = 1, .il = { { src.va + 3, 33, 67, src.key } }
	};
	struct umr_layout to = {
		.n = 3, .list = { t_sge(&dst, 5000, 1000), t_sge(&dst, 100, 1300), t_sge(&dst, 2000, 1000) }
	};
	struct umr_map f = umr_map(&from), t = umr_map(&to);
	struct mlx5dv_mkey *key[2] = { umr_mkey(env->pd, 4, 0), umr_mkey(env->pd, 4, 0) };
	size_t wrong = 0;

	(void)arg;
	umr_register(&rc, key[0], 0, &from);
	umr_register(&rc, key[1], IBV_ACCESS_LOCAL_WRITE, &to);
	t_fill(src.p, 16384, 8);
	memset(dst.p, 0, 16384);
	EXPECT_EQ(copy(&rc, 2, (struct ibv_sge){ 11, 0, key[1]->lkey },
		       (struct ibv_sge){ 20, 0, key[0]->lkey }, 3000),
		  0, "ibv_wr_complete");
	T_DONE(rc.scq, 2, MLX5DV_WC_MEMCPY);
	for (int i = 0; i < 3000; i++)
		wrong += *f.byte[20 + i] != *t.byte[11 + i];
	EXPECT(!wrong, "%zu bytes wrong", wrong);
	umr_free(key[0]);
	umr_free(key[1]);
	free(f.byte);
	free(t.byte);
}

/* A send that depends on the copy carries IBV_SEND_FENCE; the two are in one batch. */
static void fence(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct t_pair p = t_pair(env, &s);

	(void)arg;
	for (int i = 0; i < 10; i++) {
		size_t len = 300000 + i;

		t_fill(src.p, len, i);
		memset(dst.p, 0, len);
		memset(dst.p + (1 << 20), 0, len);
		t_recv(&p.b, i, t_sge(&dst, 1 << 20, len));
		ibv_wr_start(p.a.ex);
		p.a.ex->wr_id = 1;
		p.a.ex->wr_flags = 0;
		mlx5dv_wr_memcpy(p.a.dv, dst.key, dst.va, src.key, src.va, len);
		p.a.ex->wr_id = 2;
		p.a.ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
		ibv_wr_send(p.a.ex);
		ibv_wr_set_sge(p.a.ex, dst.key, dst.va, len);
		EXPECT_EQ(ibv_wr_complete(p.a.ex), 0, "ibv_wr_complete");
		T_DONE(p.a.scq, 2, IBV_WC_SEND);
		T_DONE(p.b.rcq, i, IBV_WC_RECV);
		EXPECT(t_is(dst.p + (1 << 20), len, i), "the send did not carry the copy, round %d", i);
	}
	t_pair_free(&p);
}

static const struct bad { const char *name, *check; int what; struct t_codes codes; } bads[] = {
	{ "unknown source key",		"GATHER_KEY",   0, C_GATHER_KEY },
	{ "source past its region",	"GATHER_RANGE", 1, C_GATHER_RANGE },
	{ "unknown destination key",	"SCATTER_KEY",  2, C_SCATTER_KEY },
	{ "destination past its region", "SCATTER_RANGE", 3, C_SCATTER_RANGE },
	{ "destination not writable",	"SCATTER_RIGHT", 4, C_SCATTER_RANGE },
	{ "destination of another PD",	"SCATTER_PD",   5, C_SCATTER_KEY },
};

static void bad(const void *arg)
{
	const struct bad *b = arg;
	struct t_qp q = unconnected();
	struct ibv_pd *other = ibv_alloc_pd(env->ctx);
	struct ibv_mr *read_only = ibv_reg_mr(env->pd, dst.p, 4096, 0),
		      *foreign = ibv_reg_mr(other, dst.p, 4096, T_ALL);
	struct ibv_sge from = t_sge(&src, 0, 0), to = t_sge(&dst, 0, 0);

	MUST(read_only && foreign, "ibv_reg_mr");
	if (b->what == 0)
		from.lkey ^= 0xffff00;
	if (b->what == 1)
		from.addr += src.len - 50;
	if (b->what == 2)
		to.lkey ^= 0xffff00;
	if (b->what == 3)
		to.addr += dst.len - 50;
	if (b->what == 4)
		to.lkey = read_only->lkey;
	if (b->what == 5)
		to.lkey = foreign->lkey;
	memset(dst.p, 0x77, 4096);
	t_why_begin();
	EXPECT_EQ(copy(&q, 5, to, from, 100), 0, "ibv_wr_complete");
	T_FAILED(q.scq, 5, b->codes);
	T_WHY(b->check, q.qp->qp_num);
	EXPECT(t_all(dst.p, 4096, 0x77), "memory was written");
	EXPECT_EQ(t_qp_state(q.qp), IBV_QPS_ERR, "state");
	t_qp_free(&q);
	EXPECT_EQ(ibv_dereg_mr(read_only), 0, "ibv_dereg_mr");
	EXPECT_EQ(ibv_dereg_mr(foreign), 0, "ibv_dereg_mr");
	EXPECT_EQ(ibv_dealloc_pd(other), 0, "ibv_dealloc_pd");
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_qp_free(&rc);
	t_qp_free(&dci);
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, lengths, &rows[i]);
	t_case("0 and max + 1 are refused", refused_lengths, NULL);
	t_case("through indirect keys", through_keys, NULL);
	t_case("fence before a dependent send", fence, NULL);
	for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++)
		t_case(bads[i].name, bad, &bads[i]);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
