/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_wr_raw_wqe(): every opcode, 1 to 16 blocks, wrapping the ring, mixed with other requests; its index is
 * written by the driver, wr_flags do not count, its completion is IBV_WC_DRIVER2. */
#include "raw.h"
#include "t_why.h"
#include "umr.h"

enum { CE = MLX5_WQE_CTRL_CQ_UPDATE };

static struct t_env *env;
static struct t_pair p;
static struct t_buf src, dst;

static void set_up(const void *arg)
{
	struct t_spec s = { .ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
			    .dv_ops = MLX5DV_QP_EX_WITH_RAW_WQE,
			    .inl = 900,
			    .sq = 8,
			    .rq = 64 };

	(void)arg;
	p = t_pair(env, &s);
	src = t_buf(env, 65536, T_ALL);
	dst = t_buf(env, 65536, T_ALL);
}

static struct raw ctrl(uint8_t opcode, uint8_t opmod, uint32_t imm)
{
	return raw_ctrl(p.a.qp->qp_num, opcode, opmod, CE, imm);
}

/* SENDs of 1 to 62 pieces: 1 to 16 blocks, beginning at every place of the ring sooner or later. */
static void sizes(const void *arg)
{
	(void)arg;
	for (int n = 1; n <= 61; n++) {
		struct raw r = ctrl(MLX5_OPCODE_SEND, 0, 0);
		uint8_t want[61 * 5];

		t_fill(src.p, src.len, n);
		for (int i = 0; i < n; i++) {
			raw_data(&r, 5, src.key, src.va + i * 1000);
			memcpy(want + i * 5, src.p + i * 1000, 5);
		}
		memset(dst.p, 0, 512);
		t_recv(&p.b, n, t_sge(&dst, 0, 512));
		EXPECT_EQ(raw_post(&p.a, 1000 + n, &r), 0, "ibv_wr_complete");
		T_DONE(p.a.scq, 1000 + n, IBV_WC_DRIVER2);
		EXPECT_EQ(T_DONE(p.b.rcq, n, IBV_WC_RECV).wc.byte_len, 5 * n, "byte_len");
		EXPECT(!memcmp(dst.p, want, 5 * n), "data of %d pieces", n);
	}
}

static void check_now(uint64_t want, const char *what)
{
	uint64_t now;

	memcpy(&now, dst.p, 8);
	EXPECT_EQ(now, want, what);
}

static void opcodes_rdma(const void *arg)
{
	struct raw r = ctrl(MLX5_OPCODE_RDMA_WRITE, 0, 0);
	struct t_wc wc;

	(void)arg;
	t_fill(src.p, 64, 1);
	raw_raddr(&r, dst.va, dst.key);
	raw_data(&r, 64, src.key, src.va);
	EXPECT_EQ(raw_post(&p.a, 1, &r), 0, "WRITE");
	T_DONE(p.a.scq, 1, IBV_WC_DRIVER2);
	EXPECT(t_is(dst.p, 64, 1), "data of the WRITE");

	r = ctrl(MLX5_OPCODE_RDMA_WRITE_IMM, 0, 0x600df00d);
	raw_raddr(&r, dst.va + 100, dst.key);
	raw_data(&r, 64, src.key, src.va);
	t_recv(&p.b, 5, t_sge(&dst, 0, 0));
	EXPECT_EQ(raw_post(&p.a, 2, &r), 0, "WRITE_IMM");
	T_DONE(p.a.scq, 2, IBV_WC_DRIVER2);
	wc = T_DONE(p.b.rcq, 5, IBV_WC_RECV_RDMA_WITH_IMM);
	EXPECT_EQ(be32toh(wc.wc.imm_data), 0x600df00d, "immediate data");
	EXPECT(t_is(dst.p + 100, 64, 1), "data of the WRITE_IMM");

	r = ctrl(MLX5_OPCODE_SEND_IMM, 0, 0x11223344);
	raw_data(&r, 20, src.key, src.va);
	t_recv(&p.b, 6, t_sge(&dst, 200, 20));
	EXPECT_EQ(raw_post(&p.a, 3, &r), 0, "SEND_IMM");
	T_DONE(p.a.scq, 3, IBV_WC_DRIVER2);
	EXPECT_EQ(be32toh(T_DONE(p.b.rcq, 6, IBV_WC_RECV).wc.imm_data), 0x11223344, "immediate data");

	t_fill(dst.p + 300, 64, 7);
	r = ctrl(MLX5_OPCODE_RDMA_READ, 0, 0);
	raw_raddr(&r, dst.va + 300, dst.key);
	raw_data(&r, 24, src.key, src.va);
	raw_data(&r, 40, src.key, src.va + 500);
	EXPECT_EQ(raw_post(&p.a, 4, &r), 0, "READ");
	T_DONE(p.a.scq, 4, IBV_WC_DRIVER2);
	EXPECT(!memcmp(src.p, dst.p + 300, 24) && !memcmp(src.p + 500, dst.p + 324, 40), "data of the READ");

	r = ctrl(MLX5_OPCODE_NOP, 0, 0);
	EXPECT_EQ(raw_post(&p.a, 5, &r), 0, "NOP");
	T_DONE(p.a.scq, 5, IBV_WC_DRIVER2);
}

/* An inline header in place of a pointer; two of them, and one mixed with a pointer. */
static void inline_data(const void *arg)
{
	struct raw r = ctrl(MLX5_OPCODE_SEND, 0, 0);
	uint8_t seg[32] = { 0x80, 0, 0, 20 };

	(void)arg;
	memcpy(seg + 4, "twenty bytes inline!", 20);
	raw_add(&r, seg, 32);
	raw_data(&r, 6, src.key, src.va);
	seg[3] = 3;
	raw_add(&r, seg, 16);
	memcpy(src.p, "MIDDLE", 6);
	t_recv(&p.b, 1, t_sge(&dst, 0, 64));
	EXPECT_EQ(raw_post(&p.a, 1, &r), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 1, IBV_WC_DRIVER2);
	EXPECT_EQ(T_DONE(p.b.rcq, 1, IBV_WC_RECV).wc.byte_len, 29, "byte_len");
	EXPECT(!memcmp(dst.p, "twenty bytes inline!MIDDLEtwe", 29), "data: %.29s", (char *)dst.p);
}

static void opcodes_atomic(const void *arg)
{
	struct raw r = ctrl(MLX5_OPCODE_ATOMIC_FA, 0, 0);
	uint64_t start = 0x10;

	(void)arg;
	memcpy(dst.p, &start, 8);
	raw_raddr(&r, dst.va, dst.key);
	raw_u64s(&r, 5, 0);
	raw_data(&r, 8, src.key, src.va);
	EXPECT_EQ(raw_post(&p.a, 1, &r), 0, "FA");
	T_DONE(p.a.scq, 1, IBV_WC_DRIVER2);
	check_now(0x15, "after fetch-add");
	EXPECT(!memcmp(src.p, &start, 8), "the old value");

	r = ctrl(MLX5_OPCODE_ATOMIC_CS, 0, 0);
	raw_raddr(&r, dst.va, dst.key);
	raw_u64s(&r, 0x1111, 0x15);
	raw_data(&r, 8, src.key, src.va);
	EXPECT_EQ(raw_post(&p.a, 2, &r), 0, "CS");
	T_DONE(p.a.scq, 2, IBV_WC_DRIVER2);
	check_now(0x1111, "after compare-swap");
}

static void opcodes_local(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct t_qp q = t_qp(env, &s);
	struct ibv_qp_attr attr = t_attr(env, 0);
	struct mlx5dv_qp out = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = q.qp, .out = &out } };
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct umr_layout l = { .n = 1, .list = { t_sge(&dst, 0, 64) } };
	struct raw r = { 0 };

	(void)arg;
	t_to_rts(q.qp, &attr);
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
	/* The driver's own UMR and memcpy, picked from the ring, posted again as raw WQEs. */
	umr_register(&q, mkey, T_ALL, &l);
	memcpy(r.b, out.sq.buf, 192);
	umr_invalidate(&q, mkey->lkey, false);
	EXPECT_EQ(raw_post(&q, 3, &r), 0, "raw UMR");
	T_DONE(q.scq, 3, IBV_WC_DRIVER2);

	ibv_wr_start(q.ex);
	q.ex->wr_id = 4;
	q.ex->wr_flags = IBV_SEND_SIGNALED;
	mlx5dv_wr_memcpy(q.dv, mkey->lkey, 0, src.key, src.va, 64);	/* proves that the key is registered */
	EXPECT_EQ(ibv_wr_complete(q.ex), 0, "memcpy");
	T_DONE(q.scq, 4, MLX5DV_WC_MEMCPY);
	uint32_t pi = (be32toh(out.dbrec[MLX5_SND_DBR]) & 0xffff) - 1;

	memcpy(r.b, (uint8_t *)out.sq.buf + (pi & (out.sq.wqe_cnt - 1)) * 64, 64);
	t_fill(src.p, 64, 77);
	EXPECT_EQ(raw_post(&q, 5, &r), 0, "raw MMO");
	T_DONE(q.scq, 5, IBV_WC_DRIVER2);
	EXPECT(t_is(dst.p, 64, 77), "data of the raw copy");
	umr_free(mkey);
	t_qp_free(&q);
}

/* Its own completion bit counts; wr_flags and sq_sig_all do not. */
static void flags_ignored(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .sig_all = 1 };
	struct t_pair q = t_pair(env, &s);
	struct raw quiet = raw_ctrl(q.a.qp->qp_num, MLX5_OPCODE_NOP, 0, 0, 0),
		   loud = raw_ctrl(q.a.qp->qp_num, MLX5_OPCODE_NOP, 0, CE, 0);

	(void)arg;
	for (int i = 0; i < 2; i++) {
		struct t_qp *qp = i ? &q.a : &p.a;

		quiet.b[4] = loud.b[4] = qp->qp->qp_num >> 16;
		quiet.b[5] = loud.b[5] = qp->qp->qp_num >> 8;
		quiet.b[6] = loud.b[6] = qp->qp->qp_num;
		ibv_wr_start(qp->ex);
		qp->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_INLINE;
		qp->ex->wr_id = 1;
		mlx5dv_wr_raw_wqe(qp->dv, quiet.b);
		EXPECT_EQ(ibv_wr_complete(qp->ex), 0, "ibv_wr_complete");
		T_QUIET(qp->scq);
		EXPECT_EQ(raw_post(qp, 2, &loud), 0, "ibv_wr_complete");
		T_DONE(qp->scq, 2, IBV_WC_DRIVER2);
	}
	t_pair_free(&q);
}

static void mixed_batch(const void *arg)
{
	(void)arg;
	for (int round = 0; round < 50; round++) {	/* three requests of 1 to 3 blocks: many wraps */
		struct raw r = ctrl(MLX5_OPCODE_SEND, 0, 0);

		for (int i = 0; i < 1 + round % 9; i++)
			raw_data(&r, 1 + i, src.key, src.va + 10 * i);
		t_recv(&p.b, 1, t_sge(&dst, 0, 512));
		t_recv(&p.b, 2, t_sge(&dst, 1024, 512));
		ibv_wr_start(p.a.ex);
		p.a.ex->wr_id = 10;
		p.a.ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(p.a.ex);
		ibv_wr_set_inline_data(p.a.ex, src.p, 12 + round * 2);
		p.a.ex->wr_id = 11;
		mlx5dv_wr_raw_wqe(p.a.dv, r.b);
		p.a.ex->wr_id = 12;
		p.a.ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(p.a.ex, dst.key, dst.va + 2048);
		ibv_wr_set_sge(p.a.ex, src.key, src.va, 4);
		EXPECT_EQ(ibv_wr_complete(p.a.ex), 0, "ibv_wr_complete");
		T_DONE(p.a.scq, 10, IBV_WC_SEND);
		T_DONE(p.a.scq, 11, IBV_WC_DRIVER2);
		T_DONE(p.a.scq, 12, IBV_WC_RDMA_WRITE);
		EXPECT_EQ(T_DONE(p.b.rcq, 1, IBV_WC_RECV).wc.byte_len, 12 + round * 2, "byte_len of the plain one");
		T_DONE(p.b.rcq, 2, IBV_WC_RECV);
	}
}

static void on_a_dci(const void *arg)
{
	struct t_qp dci = t_dci(env, (struct t_spec) { .dv_ops = MLX5DV_QP_EX_WITH_RAW_WQE });
	struct ibv_srq *srq = t_srq(env, 4);
	struct t_qp dct = t_dct(env, srq, 0x1234567890);
	struct ibv_ah *ah = t_ah(env);
	struct mlx5dv_ah out = { 0 };
	struct mlx5dv_obj obj = { .ah = { .in = ah, .out = &out } };
	struct raw r = raw_ctrl(dci.qp->qp_num, MLX5_OPCODE_RDMA_WRITE, 0, CE, 0);
	struct mlx5_wqe_av av;

	(void)arg;
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH), "mlx5dv_init_obj");
	memcpy(&av, out.av, sizeof(av));
	av.key.dc_key = htobe64(0x1234567890);
	av.dqp_dct = htobe32(0x80000000u | dct.qp->qp_num);
	raw_add(&r, &av, 48);
	raw_raddr(&r, dst.va, dst.key);
	raw_data(&r, 64, src.key, src.va);
	t_fill(src.p, 64, 55);
	EXPECT_EQ(raw_post(&dci, 1, &r), 0, "ibv_wr_complete");
	T_DONE(dci.scq, 1, IBV_WC_DRIVER2);
	EXPECT(t_is(dst.p, 64, 55), "data");
	EXPECT_EQ(ibv_destroy_ah(ah), 0, "ibv_destroy_ah");
	t_qp_free(&dci);
	t_qp_free(&dct);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

/* Too long: for the ring, EINVAL; for what is free of it, ENOMEM. No segment at all: EINVAL. Nothing is written. */
static void lengths_refused(const void *arg)
{
	struct t_spec s = { .ops = IBV_QP_EX_WITH_SEND, .dv_ops = MLX5DV_QP_EX_WITH_RAW_WQE, .sq = 4, .sge = 2 };
	struct t_pair q = t_pair(env, &s);
	struct mlx5dv_qp out = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = q.a.qp, .out = &out } };
	struct raw r = raw_ctrl(q.a.qp->qp_num, MLX5_OPCODE_NOP, 0, CE, 0), half = r;
	uint8_t *before;

	(void)arg;
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
	MUST(out.sq.wqe_cnt < 16, "the ring is shorter than a WQE can be");
	before = malloc(out.sq.wqe_cnt * 64);
	memcpy(before, out.sq.buf, out.sq.wqe_cnt * 64);
	t_why_begin();
	r.b[7] = 0;
	EXPECT_EQ(raw_post(&q.a, 1, &r), EINVAL, "no segment");
	T_WHY("POST_RAW_LENGTH", 0);
	r.b[7] = out.sq.wqe_cnt * 4 + 1 > 63 ? 63 : out.sq.wqe_cnt * 4 + 1;
	EXPECT_EQ(raw_post(&q.a, 1, &r), EINVAL, "longer than the ring");
	EXPECT(!memcmp(before, out.sq.buf, out.sq.wqe_cnt * 64), "the ring was written");
	T_QUIET(q.a.scq);

	half.b[7] = out.sq.wqe_cnt * 2;		/* half the ring */
	half.b[11] = 0;				/* and no completion, so no room comes back */
	EXPECT_EQ(raw_post(&q.a, 2, &half), 0, "the first half");
	half.b[7] += 1;
	EXPECT_EQ(raw_post(&q.a, 3, &half), ENOMEM, "more than the other half");
	free(before);
	t_pair_free(&q);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_pair_free(&p);
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("1 to 61 pieces, up to 16 blocks", sizes, NULL);
	t_case("write, send, read, with immediate, nop", opcodes_rdma, NULL);
	t_case("inline segments", inline_data, NULL);
	t_case("atomics", opcodes_atomic, NULL);
	t_case("UMR and memory copy", opcodes_local, NULL);
	t_case("wr_flags and sq_sig_all are ignored", flags_ignored, NULL);
	t_case("mixed with ordinary requests in one batch", mixed_batch, NULL);
	t_case("on a DCI, with address segment", on_a_dci, NULL);
	t_case("lengths that are refused", lengths_refused, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
