/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Queue pairs moved to ERR and RESET with work outstanding: which completions come, with which codes, in which
 * order, and which do not. */
#include "t_why.h"

static struct t_env *env;
static struct t_buf src, dst;

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 4096, T_ALL);
	dst = t_buf(env, 4096, T_ALL);
}

static void to_err(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { 0 };

	MUST(!t_modify(qp, &attr, IBV_QPS_ERR, IBV_QP_STATE), "to ERR");
}

static struct t_pair new_pair(void)
{
	struct t_spec s = { .ops = T_RC_OPS };

	return t_pair(env, &s);
}

/* A SEND that waits for a receive is executing; what is behind it is queued. First 0xf5, then 0xf9, in order. */
static void work_outstanding(const void *arg)
{
	struct t_pair p = new_pair();
	struct t_op o[4];

	(void)arg;
	for (int i = 0; i < 4; i++) {
		o[i] = t_op(IBV_WR_SEND, 10 + i, t_sge(&src, 0, 8));
		o[i].flags = i & 1 ? IBV_SEND_SIGNALED : 0;	/* unsignaled ones complete, too */
	}
	EXPECT_EQ(t_post_n(&p.a, o, 4), 0, "ibv_wr_complete");
	T_QUIET(p.a.scq);
	to_err(p.a.qp);
	T_FAILED(p.a.scq, 10, T_FLUSH_NOW);
	for (int i = 1; i < 4; i++)
		T_FAILED(p.a.scq, 10 + i, T_FLUSH);
	T_QUIET(p.a.scq);
	EXPECT_EQ(t_qp_state(p.a.qp), IBV_QPS_ERR, "state");
	EXPECT_EQ(t_qp_state(p.b.qp), IBV_QPS_RTS, "state of the peer");
	t_pair_free(&p);
}

static void nothing_outstanding(const void *arg)
{
	struct t_pair p = new_pair();
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key, dst.va);

	(void)arg;
	o.flags = 0;
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");	/* done, unsignaled: it must not complete now */
	T_QUIET(p.a.scq);
	to_err(p.a.qp);
	T_QUIET(p.a.scq);
	T_QUIET(p.a.rcq);
	t_pair_free(&p);
}

static void receives(const void *arg)
{
	struct t_pair p = new_pair();

	(void)arg;
	for (int i = 0; i < 5; i++)
		t_recv(&p.a, i, t_sge(&dst, 0, 8));
	to_err(p.a.qp);
	for (int i = 0; i < 5; i++)
		T_FAILED(p.a.rcq, i, T_FLUSH);
	T_QUIET(p.a.rcq);
	t_pair_free(&p);
}

/* In ERR both kinds of requests are accepted and flushed at once. */
static void posted_in_err(const void *arg)
{
	struct t_pair p = new_pair();
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key, dst.va);

	(void)arg;
	memset(dst.p, 0, 64);
	memset(src.p, 1, 64);
	to_err(p.a.qp);
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	EXPECT_EQ(t_poll(p.a.scq).wc.status, IBV_WC_WR_FLUSH_ERR, "status");
	t_recv(&p.a, 2, t_sge(&dst, 0, 8));
	EXPECT_EQ(t_poll(p.a.rcq).wc.status, IBV_WC_WR_FLUSH_ERR, "status of the receive");
	EXPECT(t_all(dst.p, 8, 0), "memory was written");
	t_pair_free(&p);
}

/* ERR to RESET discards completions that were not delivered yet; the queue pair is as new. */
static void reset_discards(const void *arg)
{
	struct t_pair p = new_pair();
	struct t_op o[3];

	(void)arg;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 3; i++)
			o[i] = t_op(IBV_WR_SEND, i, t_sge(&src, 0, 8));
		EXPECT_EQ(t_post_n(&p.a, o, 3), 0, "ibv_wr_complete");
		for (int i = 0; i < 3; i++)
			t_recv(&p.a, i, t_sge(&dst, 0, 8));
		if (round != 1)
			to_err(p.a.qp);		/* and once to RESET directly */
		t_reconnect(env, &p);
		T_QUIET(p.a.scq);
		T_QUIET(p.a.rcq);
		t_recv(&p.b, 50, t_sge(&dst, 0, 8));
		o[0].wr_id = 60;
		EXPECT_EQ(t_post_n(&p.a, o, 1), 0, "ibv_wr_complete");
		T_DONE(p.a.scq, 60, IBV_WC_SEND);
		T_DONE(p.b.rcq, 50, IBV_WC_RECV);
	}
	t_pair_free(&p);
}

/* Completions of other queue pairs on the same CQ survive the RESET of one, in order. */
static void reset_on_a_shared_cq(const void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 64, NULL, NULL, 0);
	struct t_spec s = { .ops = T_RC_OPS, .scq = cq };
	struct t_pair p = t_pair(env, &s), q = t_pair(env, &s);

	(void)arg;
	for (int i = 0; i < 10; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&src, 0, 8), dst.key, dst.va);

		EXPECT_EQ(t_post(i & 1 ? &q.a : &p.a, &o), 0, "ibv_wr_complete");
	}
	usleep(5000);
	t_reset(p.a.qp);
	for (int i = 1; i < 10; i += 2)
		EXPECT_EQ(T_DONE(cq, i, IBV_WC_RDMA_WRITE).wc.qp_num, q.a.qp->qp_num, "qp_num");
	T_QUIET(cq);
	t_pair_free(&p);
	t_pair_free(&q);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

/* Destroying does the same: what is not polled yet is gone with the queue pair. */
static void destroy_with_completions(const void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 64, NULL, NULL, 0);
	struct t_spec s = { .ops = T_RC_OPS, .scq = cq };
	struct t_pair p = t_pair(env, &s), q = t_pair(env, &s);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key, dst.va);

	(void)arg;
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	o.wr_id = 2;
	EXPECT_EQ(t_post(&q.a, &o), 0, "ibv_wr_complete");
	usleep(5000);
	t_pair_free(&p);
	T_DONE(cq, 2, IBV_WC_RDMA_WRITE);
	T_QUIET(cq);
	t_pair_free(&q);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

/* Behind an error: the hardware code of the cause is repeated in what it flushed. */
static void cause_is_repeated(const void *arg)
{
	struct t_pair p = new_pair();
	struct t_op o[3] = { t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key, dst.va) };

	(void)arg;
	o[1] = o[2] = o[0];
	o[0].sge[0].lkey ^= 0x123400;
	o[1].wr_id = 2;
	o[2].wr_id = 3;
	t_recv(&p.a, 4, t_sge(&dst, 0, 8));
	EXPECT_EQ(t_post_n(&p.a, o, 3), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, T_GATHER_KEY);
	T_FAILED(p.a.scq, 2, t_behind(T_GATHER_KEY, false));
	T_FAILED(p.a.scq, 3, t_behind(T_GATHER_KEY, false));
	T_FAILED(p.a.rcq, 4, t_behind(T_GATHER_KEY, false));
	t_pair_free(&p);
}

/* The error CQE names the failing WQE: opcode, queue pair, block index. */
static void cqe_names_the_wqe(const void *arg)
{
	struct t_pair p = new_pair();
	struct mlx5dv_qp out = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = p.a.qp, .out = &out } };
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key, dst.va);
	struct t_wc wc;
	uint16_t pi;

	(void)arg;
	for (int i = 0; i < 5; i++) {
		EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
		T_DONE(p.a.scq, 1, -1);
	}
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
	pi = be32toh(out.dbrec[MLX5_SND_DBR]);
	o.sge[0].lkey ^= 0x123400;
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	wc = T_FAILED(p.a.scq, 1, T_GATHER_KEY);
	EXPECT_EQ(wc.raw[63] >> 4, MLX5_CQE_REQ_ERR, "CQE opcode");
	EXPECT_EQ(wc.raw[56], MLX5_OPCODE_RDMA_WRITE, "opcode of the WQE");
	EXPECT_EQ(wc.raw[57] << 16 | wc.raw[58] << 8 | wc.raw[59], p.a.qp->qp_num, "queue pair");
	EXPECT_EQ(wc.raw[60] << 8 | wc.raw[61], pi, "WQE counter");
	t_pair_free(&p);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("to ERR with work outstanding", work_outstanding, NULL);
	t_case("to ERR with nothing outstanding", nothing_outstanding, NULL);
	t_case("receives", receives, NULL);
	t_case("posted in ERR", posted_in_err, NULL);
	t_case("RESET discards completions", reset_discards, NULL);
	t_case("RESET on a shared CQ", reset_on_a_shared_cq, NULL);
	t_case("destroyed with completions outstanding", destroy_with_completions, NULL);
	t_case("the cause is repeated", cause_is_repeated, NULL);
	t_case("the CQE names the WQE", cqe_names_the_wqe, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
