/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_wr_set_dc_addr(): every RC builder and data setter on a DCI, a new target with each request,
 * targets in two contexts; what the receiver sees; targets that do not answer. */
#include "t_why.h"

#define WRITE_IMM IBV_WR_RDMA_WRITE_WITH_IMM
#define RECV_IMM IBV_WC_RECV_RDMA_WITH_IMM

enum { KEY_A = 0xa, KEY_B = 0xbeef00000b, LEN = 48 };

struct target {
	struct t_env *env;
	struct ibv_srq *srq;
	struct t_qp dct;
	struct t_buf mem;
};

static struct t_env *env;
static struct target target[2];
static struct t_qp dci;
static struct t_buf src;
static struct ibv_ah *ah;

static void set_up(const void *arg)
{
	const uint64_t key[2] = { KEY_A, KEY_B };

	(void)arg;
	src = t_buf(env, 4096, T_ALL);
	dci = t_dci(env, (struct t_spec) { .inl = 64, .sge = 4 });
	ah = t_ah(env);
	for (int i = 0; i < 2; i++) {
		target[i].env = i ? t_open() : env;	/* the second lives in a context of its own */
		target[i].srq = t_srq(target[i].env, 16);
		target[i].dct = t_dct(target[i].env, target[i].srq, key[i]);
		target[i].mem = t_buf(target[i].env, 4096, T_ALL);
	}
}

static void address(struct t_op *o, int i)
{
	o->ah = ah;
	o->dest = target[i].dct.qp->qp_num;
	o->dc_key = target[i].dct.dc_key;
}

static const struct row {
	const char *name;
	enum ibv_wr_opcode op;
	enum t_setter set;
	int wc, recv_wc;	/* opcodes of the completions; -1: no receive */
} rows[] = {
	{ "send, sge",			IBV_WR_SEND,		T_SGE,		IBV_WC_SEND, IBV_WC_RECV },
	{ "send, sge list",		IBV_WR_SEND,		T_SGE_LIST,	IBV_WC_SEND, IBV_WC_RECV },
	{ "send, inline",		IBV_WR_SEND,		T_INLINE,	IBV_WC_SEND, IBV_WC_RECV },
	{ "send, inline list",		IBV_WR_SEND,		T_INLINE_LIST,	IBV_WC_SEND, IBV_WC_RECV },
	{ "send imm, sge",		IBV_WR_SEND_WITH_IMM,	T_SGE,		IBV_WC_SEND, IBV_WC_RECV },
	{ "send imm, sge list",		IBV_WR_SEND_WITH_IMM,	T_SGE_LIST,	IBV_WC_SEND, IBV_WC_RECV },
	{ "send imm, inline",		IBV_WR_SEND_WITH_IMM,	T_INLINE,	IBV_WC_SEND, IBV_WC_RECV },
	{ "send imm, inline list",	IBV_WR_SEND_WITH_IMM,	T_INLINE_LIST,	IBV_WC_SEND, IBV_WC_RECV },
	{ "write, sge",			IBV_WR_RDMA_WRITE,	T_SGE,		IBV_WC_RDMA_WRITE, -1 },
	{ "write, sge list",		IBV_WR_RDMA_WRITE,	T_SGE_LIST,	IBV_WC_RDMA_WRITE, -1 },
	{ "write, inline",		IBV_WR_RDMA_WRITE,	T_INLINE,	IBV_WC_RDMA_WRITE, -1 },
	{ "write, inline list",		IBV_WR_RDMA_WRITE,	T_INLINE_LIST,	IBV_WC_RDMA_WRITE, -1 },
	{ "write imm, sge",		WRITE_IMM, T_SGE,	IBV_WC_RDMA_WRITE, RECV_IMM },
	{ "write imm, sge list",	WRITE_IMM, T_SGE_LIST,	IBV_WC_RDMA_WRITE, RECV_IMM },
	{ "write imm, inline",		WRITE_IMM, T_INLINE,	IBV_WC_RDMA_WRITE, RECV_IMM },
	{ "write imm, inline list",	WRITE_IMM, T_INLINE_LIST, IBV_WC_RDMA_WRITE, RECV_IMM },
	{ "read, sge",			IBV_WR_RDMA_READ,	T_SGE,		IBV_WC_RDMA_READ, -1 },
	{ "read, sge list",		IBV_WR_RDMA_READ,	T_SGE_LIST,	IBV_WC_RDMA_READ, -1 },
};

static void one_row(const void *arg)
{
	const struct row *r = arg;
	bool is_read = r->op == IBV_WR_RDMA_READ,
	     imm = r->op == IBV_WR_SEND_WITH_IMM || r->op == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool list = r->set == T_SGE_LIST || r->set == T_INLINE_LIST;

	for (int i = 0; i < 4; i++) {	/* A, B, A, B */
		struct target *t = &target[i & 1];
		struct t_op o = t_rdma(r->op, 100 + i, t_sge(&src, 0, LEN), t->mem.key, t->mem.va);
		struct t_wc wc;

		o.set = r->set;
		o.imm = 0x01020300 + i;
		if (list) {	/* 10 + 0 + 38 bytes, lying apart */
			o.nsge = 3;
			o.sge[0] = t_sge(&src, 0, 10);
			o.sge[1] = t_sge(&src, 500, 0);
			o.sge[2] = t_sge(&src, 1000, LEN - 10);
		}
		address(&o, i & 1);
		memset(src.p, 0, src.len);
		memset(t->mem.p, 0, t->mem.len);
		if (is_read) {
			t_fill(t->mem.p, LEN, i);
		} else {
			uint8_t whole[LEN];

			t_fill(whole, LEN, i);
			memcpy(src.p, whole, list ? 10 : LEN);
			memcpy(src.p + 1000, whole + 10, LEN - 10);
		}
		if (r->recv_wc >= 0)
			t_srq_recv(t->srq, 700 + i, t_sge(&t->mem, 0, 64));
		EXPECT_EQ(t_post(&dci, &o), 0, "ibv_wr_complete");
		T_DONE(dci.scq, 100 + i, r->wc);
		if (r->recv_wc >= 0) {
			wc = T_DONE(t->dct.rcq, 700 + i, r->recv_wc);
			EXPECT_EQ(wc.wc.byte_len, LEN, "byte_len of the receive");
			EXPECT_EQ(wc.wc.qp_num, t->dct.qp->qp_num, "qp_num of the receive");
			EXPECT_EQ(wc.wc.src_qp, dci.qp->qp_num, "src_qp of the receive");
			EXPECT_EQ(!!(wc.wc.wc_flags & IBV_WC_WITH_IMM), imm, "IBV_WC_WITH_IMM");
			if (imm)
				EXPECT_EQ(be32toh(wc.wc.imm_data), o.imm, "immediate data");
		}
		if (is_read && list) {
			EXPECT(!memcmp(src.p, t->mem.p, 10) && !memcmp(src.p + 1000, t->mem.p + 10, LEN - 10),
			       "data of the READ");
			EXPECT(t_all(src.p + 10, 990, 0), "bytes between the entries were written");
		} else {
			EXPECT(t_is(is_read ? src.p : t->mem.p, LEN, i), "data, request %d", i);
			EXPECT(t_all((is_read ? src.p : t->mem.p) + LEN, 100, 0),
			       "bytes behind the message were written");
		}
		T_QUIET(dci.scq);
	}
}

static void atomics(const void *arg)
{
	(void)arg;
	for (int i = 0; i < 4; i++) {
		struct target *t = &target[i & 1];
		struct t_op o = t_rdma(i < 2 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP, 5,
				       t_sge(&src, 0, 8), t->mem.key, t->mem.va + 8);
		uint64_t old = 1000 + i, now;

		o.compare_add = i < 2 ? 7 : old;
		o.swap = 0x1122334455667788;
		address(&o, i & 1);
		memcpy(t->mem.p + 8, &old, 8);
		memset(src.p, 0xff, 16);
		EXPECT_EQ(t_post(&dci, &o), 0, "ibv_wr_complete");
		T_DONE(dci.scq, 5, i < 2 ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP);
		EXPECT(!memcmp(src.p, &old, 8) && t_all(src.p + 8, 8, 0xff), "the old value was not returned, or more");
		memcpy(&now, t->mem.p + 8, 8);
		EXPECT_EQ(now, i < 2 ? old + 7 : o.swap, "memory at the target");
	}
}

/* SEND with invalidate frees the target's indirect key: it must have been created for that. */
static void send_inv(const void *arg)
{
	struct target *t = &target[0];
	struct mlx5dv_mkey_init_attr init = { .pd = env->pd, .max_entries = 4, .create_flags =
		MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE };
	struct mlx5dv_mkey *mkey = mlx5dv_create_mkey(&init);
	struct t_spec spec = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct t_pair p;
	struct ibv_sge piece = t_sge(&t->mem, 128, 64);
	struct t_op o = t_op(IBV_WR_SEND_WITH_INV, 8, t_sge(&src, 0, 4));
	struct t_wc wc;

	(void)arg;
	MUST(mkey, "mlx5dv_create_mkey");
	p = t_pair(env, &spec);
	ibv_wr_start(p.a.ex);
	p.a.ex->wr_id = 1;
	p.a.ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mr_list(p.a.dv, mkey, T_ALL, 1, &piece);
	EXPECT_EQ(ibv_wr_complete(p.a.ex), 0, "UMR");
	T_DONE(p.a.scq, 1, MLX5DV_WC_UMR);

	o.inv = mkey->rkey;
	address(&o, 0);
	t_srq_recv(t->srq, 9, t_sge(&t->mem, 0, 64));
	EXPECT_EQ(t_post(&dci, &o), 0, "ibv_wr_complete");
	T_DONE(dci.scq, 8, IBV_WC_SEND);
	wc = T_DONE(t->dct.rcq, 9, IBV_WC_RECV);
	EXPECT(wc.wc.wc_flags & IBV_WC_WITH_INV, "IBV_WC_WITH_INV is not set");
	EXPECT_EQ(wc.wc.invalidated_rkey, mkey->rkey, "invalidated_rkey");

	o = t_rdma(IBV_WR_RDMA_WRITE, 10, t_sge(&src, 0, 4), mkey->rkey, 0);
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	t_why_begin();
	T_FAILED(p.a.scq, 10, T_REM_ACCESS);
	t_pair_free(&p);
	EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0, "mlx5dv_destroy_mkey");
}

/* The two setters may come in either order; a batch may go to many targets. */
static void batch(const void *arg)
{
	(void)arg;
	memset(target[0].mem.p, 0, 4096);
	memset(target[1].mem.p, 0, 4096);
	t_fill(src.p, 4096, 3);
	ibv_wr_start(dci.ex);
	for (int i = 0; i < 16; i++) {
		struct target *t = &target[i & 1];

		dci.ex->wr_id = i;
		dci.ex->wr_flags = i == 15 ? IBV_SEND_SIGNALED : 0;
		ibv_wr_rdma_write(dci.ex, t->mem.key, t->mem.va + i * 100);
		if (i & 2)
			mlx5dv_wr_set_dc_addr(dci.dv, ah, t->dct.qp->qp_num, t->dct.dc_key);
		ibv_wr_set_sge(dci.ex, src.key, src.va + i * 100, 100);
		if (!(i & 2))
			mlx5dv_wr_set_dc_addr(dci.dv, ah, t->dct.qp->qp_num, t->dct.dc_key);
	}
	EXPECT_EQ(ibv_wr_complete(dci.ex), 0, "ibv_wr_complete");
	T_DONE(dci.scq, 15, IBV_WC_RDMA_WRITE);
	for (int i = 0; i < 16; i++) {
		EXPECT(!memcmp(target[i & 1].mem.p + i * 100, src.p + i * 100, 100), "data of request %d", i);
		EXPECT(t_all(target[!(i & 1)].mem.p + i * 100, 100, 0), "request %d went to both", i);
	}
	T_QUIET(dci.scq);
}

/* mlx5dv_wr_set_dc_addr() is _stream() with 0: byte for byte, but for the WQE index. */
static void equals_stream_0(const void *arg)
{
	struct mlx5dv_qp out = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = dci.qp, .out = &out } };
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), target[0].mem.key, target[0].mem.va);
	uint8_t wqe[2][128];

	(void)arg;
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
	address(&o, 0);
	for (int i = 0; i < 2; i++) {
		uint32_t pi = be32toh(out.dbrec[MLX5_SND_DBR]) & 0xffff;

		o.stream = i - 1;
		EXPECT_EQ(t_post(&dci, &o), 0, "ibv_wr_complete");
		T_DONE(dci.scq, 1, IBV_WC_RDMA_WRITE);
		memcpy(wqe[i], (uint8_t *)out.sq.buf + (pi & (out.sq.wqe_cnt - 1)) * 64, 64);
		memcpy(wqe[i] + 64, (uint8_t *)out.sq.buf + ((pi + 1) & (out.sq.wqe_cnt - 1)) * 64, 32);
		EXPECT_EQ(wqe[i][1] << 8 | wqe[i][2], pi, "WQE index");
		wqe[i][1] = wqe[i][2] = 0;
		memset(wqe[i] + 12, 0, 4);	/* not defined for this opcode */
	}
	EXPECT(!memcmp(wqe[0], wqe[1], 96), "the WQEs differ");
}

static const struct bad {
	const char *name, *check;
	int what;
	struct t_codes codes;
} bads[] = {
	{ "wrong DC key",		"REMOTE_DC_KEY", 0, C_REM_ACCESS },
	{ "no such DCT number",		"RETRY_EXCEEDED", 1, C_RETRY },
	{ "DCT still in INIT",		"RETRY_EXCEEDED", 2, C_RETRY },
	{ "DCT that was destroyed",	"RETRY_EXCEEDED", 3, C_RETRY },
	{ "number of an RC queue pair",	"RETRY_EXCEEDED", 4, C_RETRY },
};

static void bad_target(const void *arg)
{
	const struct bad *b = arg;
	struct t_spec spec = { .dc = T_DCT, .srq = target[0].srq, .dc_key = KEY_A }, rc = { .sq = 4 };
	struct ibv_qp_attr attr = t_attr(env, 0);
	struct t_qp dct = t_qp(env, b->what == 4 ? &rc : &spec), own = t_dci(env, (struct t_spec) { 0 });
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 77, t_sge(&src, 0, 8), target[0].mem.key, target[0].mem.va);
	struct t_op next = t_rdma(IBV_WR_RDMA_WRITE, 78, t_sge(&src, 0, 8), target[0].mem.key, target[0].mem.va);

	address(&o, 0);
	address(&next, 0);
	MUST(!t_modify(dct.qp, &attr, IBV_QPS_INIT, T_INIT_MASK), "to INIT");
	if (b->what == 3) {
		MUST(!t_modify(dct.qp, &attr, IBV_QPS_RTR, T_DCT_RTR_MASK), "to RTR");
		o.dest = dct.qp->qp_num;
		t_qp_free(&dct);
	}
	if (b->what == 0)
		o.dc_key ^= 1ull << 40;
	if (b->what == 1)
		o.dest = 0xfffff0;
	if (b->what == 2 || b->what == 4)
		o.dest = dct.qp->qp_num;
	memset(target[0].mem.p, 0x5a, 64);
	t_why_begin();
	EXPECT_EQ(t_post_n(&own, (struct t_op []) { o, next }, 2), 0, "ibv_wr_complete");
	T_FAILED(own.scq, 77, b->codes);
	T_WHY(b->check, own.qp->qp_num);
	T_FAILED(own.scq, 78, T_FLUSH);
	EXPECT_EQ(t_qp_state(own.qp), IBV_QPS_ERR, "state of the DCI");
	EXPECT(t_all(target[0].mem.p, 64, 0x5a), "memory was written");
	t_qp_free(&own);
	if (b->what != 3)
		t_qp_free(&dct);

	/* The target is as it was. */
	o = next;
	o.wr_id = 79;
	EXPECT_EQ(t_post(&dci, &o), 0, "ibv_wr_complete");
	T_DONE(dci.scq, 79, IBV_WC_RDMA_WRITE);
}

static void tear_down(const void *arg)
{
	(void)arg;
	EXPECT_EQ(ibv_destroy_ah(ah), 0, "ibv_destroy_ah");
	t_qp_free(&dci);
	for (int i = 0; i < 2; i++) {
		t_qp_free(&target[i].dct);
		EXPECT_EQ(ibv_destroy_srq(target[i].srq), 0, "ibv_destroy_srq");
		t_buf_free(&target[i].mem);
	}
	t_buf_free(&src);
	EXPECT_EQ(ibv_dealloc_pd(target[1].env->pd), 0, "ibv_dealloc_pd");
	EXPECT_EQ(ibv_close_device(target[1].env->ctx), 0, "ibv_close_device");
}

int main(void)
{
	env = t_open();
	t_case("two targets in two contexts", set_up, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, one_row, &rows[i]);
	t_case("atomics", atomics, NULL);
	t_case("send with invalidate", send_inv, NULL);
	t_case("batch to two targets, setters in either order", batch, NULL);
	t_case("equals the stream setter with 0", equals_stream_0, NULL);
	for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++)
		t_case(bads[i].name, bad_target, &bads[i]);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
