/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SOFTMLX5_DEVICE=off: requests, doorbells and receives stay as they were written, and nothing follows them. */
#include "t.h"

#include <endian.h>

static struct t_env *env;
static struct t_pair pair;
static struct t_buf src, dst;
static struct mlx5dv_qp q;

static void set_up(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct mlx5dv_obj obj = { 0 };

	(void)arg;
	pair = t_pair(env, &s);
	src = t_buf(env, 4096, T_ALL);
	dst = t_buf(env, 4096, T_ALL);
	t_fill(src.p, 4096, 1);
	memset(dst.p, 0, 4096);
	obj.qp.in = pair.a.qp;
	obj.qp.out = &q;
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
}

static void not_executed(const void *arg)
{
	struct ibv_wc wc;

	(void)arg;
	ibv_wr_start(pair.a.ex);
	pair.a.ex->wr_id = 1;
	pair.a.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(pair.a.ex, dst.mr->rkey, (uintptr_t)dst.p);
	ibv_wr_set_sge(pair.a.ex, src.mr->lkey, (uintptr_t)src.p, 4096);
	EXPECT_EQ(ibv_wr_complete(pair.a.ex), 0, "ibv_wr_complete");
	for (int i = 0; i < 1000; i++) {
		if (!EXPECT_EQ(ibv_poll_cq(pair.a.scq, 1, &wc), 0, "completions"))
			break;
	}
	EXPECT(t_all(dst.p, 4096, 0), "the WRITE was executed");
}

static void rung(const void *arg)
{
	const uint8_t *reg = q.bf.reg;

	(void)arg;
	EXPECT_EQ(be32toh(q.dbrec[MLX5_SND_DBR]), 1, "doorbell record");
	EXPECT(!memcmp(reg, q.sq.buf, 8) || !memcmp(reg + q.bf.size, q.sq.buf, 8),
	       "the WQE's first 8 bytes are not in the register");
}

static void full(const void *arg)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	int posted = 1, rc = 0;

	(void)arg;
	while (!rc && posted < 100000) {
		rc = ibv_post_send(pair.a.qp, &wr, &bad);
		posted += !rc;
	}
	EXPECT_EQ(rc, ENOMEM, "ibv_post_send to a full queue");
}

int main(void)
{
	setenv("SOFTMLX5_DEVICE", "off", 1);
	env = t_open();
	t_case("queue pairs are made and connected", set_up, NULL);
	t_case("a WRITE is posted and not executed", not_executed, NULL);
	t_case("the doorbell can be read", rung, NULL);
	t_case("nothing is taken out of the queue", full, NULL);
	return t_done();
}
