/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What completions say: the opcode of each kind of request through ibv_poll_cq() and through the extended poll, with
 * 64- and 128-byte entries; unsignaled requests; sq_sig_all. */
#include "umr.h"

static struct t_env *env;
static struct t_buf src, dst;
static struct mlx5dv_mkey *mkey;
static struct ibv_mw *mw;

enum what { RDMA = 100, UMR_LIST, UMR_PATTERN, UMR_CONFIGURE, MEMCPY, RAW };

static const struct row {
	const char *name;
	int op;			/* enum ibv_wr_opcode, or enum what */
	int wc;
	int byte_len;		/* -1: not meaningful */
} rows[] = {
	{ "RDMA WRITE",			IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, -1 },
	{ "RDMA WRITE with immediate",	IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, -1 },
	{ "SEND",			IBV_WR_SEND, IBV_WC_SEND, -1 },
	{ "SEND with immediate",	IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, -1 },
	{ "RDMA READ",			IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, 8 },
	{ "compare-swap",		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, 8 },
	{ "fetch-add",			IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, 8 },
	{ "bind of a memory window",	IBV_WR_BIND_MW, IBV_WC_BIND_MW, -1 },
	{ "local invalidate",		IBV_WR_LOCAL_INV, IBV_WC_LOCAL_INV, -1 },
	{ "mr_list",			UMR_LIST, MLX5DV_WC_UMR, -1 },
	{ "mr_interleaved",		UMR_PATTERN, MLX5DV_WC_UMR, -1 },
	{ "mkey_configure",		UMR_CONFIGURE, MLX5DV_WC_UMR, -1 },
	{ "memcpy",			MEMCPY, MLX5DV_WC_MEMCPY, -1 },
	{ "raw WQE",			RAW, MLX5DV_WC_RAW_WQE, -1 },
};

/* Builds the request of a row, in an open batch. */
static void build(struct t_qp *q, int op, uint64_t wr_id, unsigned int flags)
{
	struct ibv_sge piece = t_sge(&dst, 64, 64);
	struct mlx5dv_mr_interleaved block = { dst.va, 8, 8, dst.key };
	struct mlx5dv_mkey_conf_attr conf = { 0 };
	struct mlx5_wqe_ctrl_seg raw;
	struct t_op o = t_rdma(op, wr_id, t_sge(&src, 0, 8), dst.key, dst.va);

	q->ex->wr_id = wr_id;
	q->ex->wr_flags = flags | (op >= UMR_LIST && op <= UMR_CONFIGURE ? IBV_SEND_INLINE : 0);
	o.flags = flags;
	switch (op) {
	case UMR_LIST: mlx5dv_wr_mr_list(q->dv, mkey, T_ALL, 1, &piece); return;
	case UMR_PATTERN: mlx5dv_wr_mr_interleaved(q->dv, mkey, T_ALL, 2, 1, &block); return;
	case UMR_CONFIGURE:
		mlx5dv_wr_mkey_configure(q->dv, mkey, 2, &conf);
		mlx5dv_wr_set_mkey_access_flags(q->dv, T_ALL);
		mlx5dv_wr_set_mkey_layout_list(q->dv, 1, &piece);
		return;
	case MEMCPY: mlx5dv_wr_memcpy(q->dv, dst.key, dst.va, src.key, src.va, 64); return;
	case RAW:
		memset(&raw, 0, sizeof(raw));
		mlx5dv_set_ctrl_seg(&raw, 0, MLX5_OPCODE_NOP, 0, q->qp->qp_num,
				    flags & IBV_SEND_SIGNALED ? MLX5_WQE_CTRL_CQ_UPDATE : 0, 1, 0, 0);
		mlx5dv_wr_raw_wqe(q->dv, &raw);
		return;
	}
	if (op == IBV_WR_BIND_MW) {
		o.mw = mw;
		o.rkey = ibv_inc_rkey(mw->rkey);
		o.bind = (struct ibv_mw_bind_info){
			.mr = dst.mr, .addr = dst.va, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE
		};
	}
	if (op == IBV_WR_LOCAL_INV)
		o.inv = mkey->lkey;
	t_build(q, &o);
	if (op == IBV_WR_BIND_MW)
		mw->rkey = o.rkey;	/* the builder needs the old one */
}

static bool needs_recv(int op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* A window that is bound must be freed before it is bound again. */
static void free_window(struct t_qp *q)
{
	struct t_op inv = { .op = IBV_WR_LOCAL_INV, .wr_id = 3, .flags = IBV_SEND_SIGNALED, .inv = mw->rkey };

	EXPECT_EQ(t_post(q, &inv), 0, "invalidating the window");
	T_DONE(q->scq, 3, IBV_WC_LOCAL_INV);
}

static void poll_cq(const void *arg)
{
	const uint32_t *cqe_size = arg;
	struct ibv_cq_init_attr_ex ex = { .cqe = 64 };
	struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = *cqe_size };
	struct ibv_cq_ex *cq = mlx5dv_create_cq(env->ctx, &ex, &dv);
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .scq = ibv_cq_ex_to_cq(cq) };
	struct t_pair p;

	MUST(cq, "mlx5dv_create_cq");
	p.b = t_qp(env, &(struct t_spec) { .ops = T_RC_OPS });
	p.a = t_qp(env, &s);
	t_connect(env, &p.a, &p.b);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct t_wc wc;

		if (needs_recv(rows[i].op))
			t_recv(&p.b, 1, t_sge(&dst, 0, 64));
		ibv_wr_start(p.a.ex);
		build(&p.a, rows[i].op, 0xabc0000000 + i, IBV_SEND_SIGNALED);
		EXPECT(!ibv_wr_complete(p.a.ex), "%s: ibv_wr_complete", rows[i].name);
		wc = T_DONE(p.a.scq, 0xabc0000000 + i, -1);
		EXPECT((int)wc.wc.opcode == rows[i].wc, "%s: opcode %d, want %d", rows[i].name, wc.wc.opcode,
		       rows[i].wc);
		EXPECT(rows[i].byte_len < 0 || wc.wc.byte_len == (uint32_t)rows[i].byte_len,
		       "%s: byte_len %u", rows[i].name, wc.wc.byte_len);
		EXPECT_EQ(wc.wc.qp_num, p.a.qp->qp_num, "qp_num");
		if (rows[i].op == IBV_WR_BIND_MW)
			free_window(&p.a);
	}
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_cq(s.scq), 0, "ibv_destroy_cq");
}

static int start_poll(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t end = t_now_ms() + 10000;
	int rc;

	while ((rc = ibv_start_poll(cq, &attr)) == ENOENT && t_now_ms() < end)
		;
	return rc;
}

static void extended_poll(const void *arg)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(env->ctx, &attr);
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .scq = ibv_cq_ex_to_cq(cq) };
	struct t_pair p;
	uint64_t last_ts = 0;

	(void)arg;
	MUST(cq, "ibv_create_cq_ex");
	p.b = t_qp(env, &(struct t_spec) { .ops = T_RC_OPS });
	p.a = t_qp(env, &s);
	t_connect(env, &p.a, &p.b);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].op == IBV_WR_BIND_MW)
			continue;	/* the window's own turn is in poll_cq */
		if (needs_recv(rows[i].op))
			t_recv(&p.b, 1, t_sge(&dst, 0, 64));
		ibv_wr_start(p.a.ex);
		build(&p.a, rows[i].op, 5000 + i, IBV_SEND_SIGNALED);
		EXPECT(!ibv_wr_complete(p.a.ex), "%s: ibv_wr_complete", rows[i].name);
		MUST(start_poll(cq) == 0, "ibv_start_poll");
		EXPECT_EQ(cq->wr_id, 5000 + i, "wr_id");
		EXPECT_EQ(cq->status, IBV_WC_SUCCESS, "status");
		EXPECT((int)ibv_wc_read_opcode(cq) == rows[i].wc, "%s: opcode %d", rows[i].name,
		       ibv_wc_read_opcode(cq));
		EXPECT_EQ(ibv_wc_read_qp_num(cq), p.a.qp->qp_num, "qp_num");
		EXPECT(ibv_wc_read_completion_ts(cq) >= last_ts, "the timestamp goes back");
		last_ts = ibv_wc_read_completion_ts(cq);
		EXPECT_EQ(ibv_next_poll(cq), ENOENT, "ibv_next_poll");
		ibv_end_poll(cq);
	}
	EXPECT(last_ts != 0, "timestamps are 0");

	/* Several in one turn of start, next, next, end. */
	ibv_wr_start(p.a.ex);
	for (int i = 0; i < 10; i++)
		build(&p.a, i & 1 ? IBV_WR_RDMA_WRITE : MEMCPY, i, IBV_SEND_SIGNALED);
	EXPECT_EQ(ibv_wr_complete(p.a.ex), 0, "ibv_wr_complete");
	usleep(2000);
	MUST(start_poll(cq) == 0, "ibv_start_poll");
	for (int i = 0; i < 10; i++) {
		EXPECT_EQ(cq->wr_id, i, "wr_id");
		EXPECT((int)ibv_wc_read_opcode(cq) ==
			       (i & 1 ? (int)IBV_WC_RDMA_WRITE : (int)MLX5DV_WC_MEMCPY),
		       "opcode of request %d", i);
		EXPECT_EQ(ibv_next_poll(cq), i == 9 ? ENOENT : 0, "ibv_next_poll");
	}
	ibv_end_poll(cq);
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_cq(s.scq), 0, "ibv_destroy_cq");
}

/* Only the signaled request completes, and it frees the room of those before it. */
static void unsignaled(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct t_pair p = t_pair(env, &s);
	static const int kinds[] = { IBV_WR_RDMA_WRITE,          IBV_WR_RDMA_READ, UMR_LIST, MEMCPY, RAW,
				     IBV_WR_ATOMIC_FETCH_AND_ADD };

	(void)arg;
	for (int round = 0; round < 100; round++) {
		ibv_wr_start(p.a.ex);
		for (int i = 0; i < 15; i++)
			build(&p.a, kinds[(round + i) % 6], i, 0);
		EXPECT_EQ(ibv_wr_complete(p.a.ex), 0, "ibv_wr_complete");
		if (round == 0)
			T_QUIET(p.a.scq);
		ibv_wr_start(p.a.ex);
		build(&p.a, kinds[round % 6], 999, IBV_SEND_SIGNALED);
		EXPECT_EQ(ibv_wr_complete(p.a.ex), 0, "ibv_wr_complete");
		T_DONE(p.a.scq, 999, -1);
	}
	T_QUIET(p.a.scq);
	t_pair_free(&p);
}

static void all_signaled(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .sig_all = 1 };
	struct t_pair p = t_pair(env, &s);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 77, t_sge(&src, 0, 8), dst.key, dst.va);

	(void)arg;
	ibv_wr_start(p.a.ex);
	build(&p.a, IBV_WR_RDMA_WRITE, 1, 0);
	build(&p.a, UMR_LIST, 2, 0);
	build(&p.a, MEMCPY, 3, 0);
	build(&p.a, IBV_WR_LOCAL_INV, 4, 0);
	EXPECT_EQ(ibv_wr_complete(p.a.ex), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	T_DONE(p.a.scq, 2, MLX5DV_WC_UMR);
	T_DONE(p.a.scq, 3, MLX5DV_WC_MEMCPY);
	T_DONE(p.a.scq, 4, IBV_WC_LOCAL_INV);
	o.flags = 0;
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "ibv_post_send");
	T_DONE(p.a.scq, 77, IBV_WC_RDMA_WRITE);
	t_pair_free(&p);
}

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 4096, T_ALL);
	dst = t_buf(env, 4096, T_ALL | IBV_ACCESS_MW_BIND);
	mkey = umr_mkey(env->pd, 4, 0);
	mw = ibv_alloc_mw(env->pd, IBV_MW_TYPE_2);
	MUST(mw, "ibv_alloc_mw");
}

static void tear_down(const void *arg)
{
	(void)arg;
	EXPECT_EQ(ibv_dealloc_mw(mw), 0, "ibv_dealloc_mw");
	umr_free(mkey);
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	static const uint32_t size[2] = { 64, 128 };

	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("ibv_poll_cq, 64-byte entries", poll_cq, &size[0]);
	t_case("ibv_poll_cq, 128-byte entries", poll_cq, &size[1]);
	t_case("start, next and end poll", extended_poll, NULL);
	t_case("unsignaled requests", unsignaled, NULL);
	t_case("sq_sig_all", all_signaled, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
