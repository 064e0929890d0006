/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Misuse of the posting calls: the errno, the check's name, nothing posted, nothing overwritten, and the next
 * batch is fine. */
#include "t_why.h"

static struct t_env *env;
static struct t_buf src, dst;
static struct t_pair rc;
static struct t_qp ud, dci;
static struct ibv_ah *ah;

static void set_up(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .inl = 60, .sge = 2, .rsge = 2, .rq = 4 };
	struct t_spec u = { .type = IBV_QPT_UD, .ops = T_UD_OPS };

	(void)arg;
	rc = t_pair(env, &s);
	ud = t_qp(env, &u);
	t_ud_rts(env, ud.qp);
	dci = t_dci(env, (struct t_spec) { 0 });
	src = t_buf(env, 4096, T_ALL);
	dst = t_buf(env, 4096, T_ALL);
	ah = t_ah(env);
}

static void write_good(struct t_qp *q)
{
	ibv_wr_rdma_write(q->ex, dst.key, dst.va);
	ibv_wr_set_sge(q->ex, src.key, src.va, 8);
}

enum misuse { TOO_MANY_SGES, INLINE_LONG, INLINE_LIST_LONG, SGE_BIT_31, NO_DC_ADDR, NO_UD_ADDR, BARE_DATA_SETTER };

static const struct row { const char *name, *check; enum misuse what; int err; } rows[] = {
	{ "more SGEs than max_send_sge",	"POST_SGE", TOO_MANY_SGES, ENOMEM },
	{ "more inline data than max_inline_data", "POST_INLINE", INLINE_LONG, ENOMEM },
	{ "inline list too long together",	"POST_INLINE", INLINE_LIST_LONG, ENOMEM },
	{ "SGE length with bit 31",		"POST_SGE_LENGTH", SGE_BIT_31, EINVAL },
	{ "DCI without the address setter",	"POST_DC_ADDR", NO_DC_ADDR, EINVAL },
	{ "UD without the address setter",	"POST_DC_ADDR", NO_UD_ADDR, EINVAL },
};

static void misuse(const void *arg)
{
	const struct row *r = arg;
	struct t_qp *q = r->what == NO_DC_ADDR ? &dci : r->what == NO_UD_ADDR ? &ud : &rc.a;
	struct mlx5dv_qp out = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = q->qp, .out = &out } };
	struct ibv_sge sge[40];
	struct ibv_data_buf buf[2] = { { src.p, 600 }, { src.p, 600 } };
	uint32_t db;

	for (int i = 0; i < 40; i++)
		sge[i] = t_sge(&src, i * 8, 8);
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
	db = out.dbrec[MLX5_SND_DBR];
	memset(dst.p, 0, 64);
	t_why_begin();
	ibv_wr_start(q->ex);
	q->ex->wr_id = 1;
	q->ex->wr_flags = IBV_SEND_SIGNALED;
	if (q == &rc.a)
		write_good(q);		/* it is dropped with the bad one */
	switch (r->what) {
	case TOO_MANY_SGES:
		ibv_wr_rdma_write(q->ex, dst.key, dst.va);
		ibv_wr_set_sge_list(q->ex, 40, sge);
		break;
	case INLINE_LONG:
		ibv_wr_rdma_write(q->ex, dst.key, dst.va);
		ibv_wr_set_inline_data(q->ex, src.p, 1000);
		break;
	case INLINE_LIST_LONG:
		ibv_wr_rdma_write(q->ex, dst.key, dst.va);
		ibv_wr_set_inline_data_list(q->ex, 2, buf);
		break;
	case SGE_BIT_31:
		ibv_wr_rdma_write(q->ex, dst.key, dst.va);
		ibv_wr_set_sge(q->ex, src.key, src.va, 0x80000008);
		break;
	default:
		ibv_wr_send(q->ex);
		ibv_wr_set_sge(q->ex, src.key, src.va, 8);
	}
	EXPECT_EQ(ibv_wr_complete(q->ex), r->err, "ibv_wr_complete");
	T_WHY(r->check, 0);
	EXPECT_EQ(out.dbrec[MLX5_SND_DBR], db, "doorbell record");
	T_QUIET(q->scq);
	EXPECT(t_all(dst.p, 64, 0), "the good request of the batch was executed");
	if (q != &rc.a)
		return;
	t_fill(src.p, 8, 4);
	ibv_wr_start(q->ex);
	q->ex->wr_flags = IBV_SEND_SIGNALED;
	q->ex->wr_id = 2;
	write_good(q);
	EXPECT_EQ(ibv_wr_complete(q->ex), 0, "the next batch");
	T_DONE(q->scq, 2, IBV_WC_RDMA_WRITE);
	EXPECT(t_is(dst.p, 8, 4), "data");
}

/* Before RTS both APIs refuse: EINVAL by ibv_wr_complete(), ENOMEM by ibv_post_send() as libmlx5 does, or EINVAL. */
static void before_rts(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_qp q = t_qp(env, &s);
	struct ibv_qp_attr attr = t_attr(env, 0x55);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key, dst.va);
	static const enum ibv_qp_state way[] = { IBV_QPS_INIT, IBV_QPS_RTR };
	static const int mask[] = { T_INIT_MASK, T_RTR_MASK };

	(void)arg;
	for (int i = 0; i < 3; i++) {
		int rc;

		t_why_begin();
		EXPECT_EQ(t_post(&q, &o), EINVAL, "ibv_wr_complete");
		T_WHY("POST_STATE", 0);
		rc = t_post_old(&q, &o);
		EXPECT(rc == ENOMEM || rc == EINVAL, "ibv_post_send is %d", rc);
		if (i < 2)
			MUST(!t_modify(q.qp, &attr, way[i], mask[i]), "ibv_modify_qp");
	}
	MUST(!t_modify(q.qp, &attr, IBV_QPS_RTS, T_RTS_MASK), "to RTS");
	T_QUIET(q.scq);
	t_qp_free(&q);
}

static const struct old { const char *name, *check; int what, err; } olds[] = {
	{ "ibv_post_send, too many SGEs",	"POST_SGE", 0, ENOMEM },
	{ "ibv_post_send, inline too long",	"POST_INLINE", 1, ENOMEM },
	{ "ibv_post_send, unknown opcode",	"POST_OPCODE", 2, EINVAL },
	{ "ibv_post_send, SGE length with bit 31", "POST_SGE_LENGTH", 3, EINVAL },
};

static void old_api(const void *arg)
{
	const struct old *r = arg;
	struct ibv_sge sge[40];
	struct ibv_send_wr *bad = NULL, wr = { .wr_id = 1, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { dst.va, dst.key } };
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 2, t_sge(&src, 0, 8), dst.key, dst.va);

	for (int i = 0; i < 40; i++)
		sge[i] = t_sge(&src, 0, 8);
	if (r->what == 0)
		wr.num_sge = 40;
	if (r->what == 1) {
		wr.send_flags |= IBV_SEND_INLINE;
		sge[0].length = 1000;
	}
	if (r->what == 2)
		wr.opcode = (enum ibv_wr_opcode)14;
	if (r->what == 3)
		sge[0].length = 0x80000008;
	t_why_begin();
	EXPECT_EQ(ibv_post_send(rc.a.qp, &wr, &bad), r->err, "ibv_post_send");
	EXPECT(bad == &wr, "bad_wr");
	T_WHY(r->check, 0);
	T_QUIET(rc.a.scq);
	EXPECT_EQ(t_post_old(&rc.a, &o), 0, "the next one");
	T_DONE(rc.a.scq, 2, IBV_WC_RDMA_WRITE);
}

static void receives(const void *arg)
{
	struct ibv_sge sge[40];
	struct ibv_recv_wr *bad = NULL, wr = { .wr_id = 1, .sg_list = sge, .num_sge = 40 };
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	uint32_t n = 0;
	int rcode;

	(void)arg;
	for (int i = 0; i < 40; i++)
		sge[i] = t_sge(&dst, 0, 8);
	MUST(!ibv_query_qp(rc.b.qp, &attr, IBV_QP_CAP, &init), "ibv_query_qp");
	MUST(init.cap.max_recv_sge < 40, "max_recv_sge");
	t_why_begin();
	EXPECT_EQ(ibv_post_recv(rc.b.qp, &wr, &bad), EINVAL, "a receive with 40 SGEs");
	EXPECT(bad == &wr, "bad_wr");
	T_WHY("POST_RECV_SGE", 0);
	wr.num_sge = 1;
	while (!(rcode = ibv_post_recv(rc.b.qp, &wr, &bad)) && n < 10000)
		n++;
	EXPECT_EQ(rcode, ENOMEM, "a full receive queue");
	EXPECT(n >= init.cap.max_recv_wr, "%u of %u receives fit", n, init.cap.max_recv_wr);
	T_WHY("POST_RQ_FULL", 0);
	t_reconnect(env, &rc);
}

/* Complete without start, abort without start, a setter without a builder: no crash, and the queue pair goes on. */
static void out_of_turn(const void *arg)
{
	(void)arg;
	memset(dst.p, 0, 64);
	ibv_wr_start(rc.a.ex);
	EXPECT_EQ(ibv_wr_complete(rc.a.ex), 0, "an empty batch");
	T_QUIET(rc.a.scq);
	ibv_wr_start(rc.a.ex);
	ibv_wr_abort(rc.a.ex);
	ibv_wr_start(rc.a.ex);
	ibv_wr_set_sge(rc.a.ex, src.key, src.va, 8);
	EXPECT_EQ(ibv_wr_complete(rc.a.ex), EINVAL, "a data setter without a builder");
	T_QUIET(rc.a.scq);
	ibv_wr_start(rc.a.ex);
	rc.a.ex->wr_id = 3;
	rc.a.ex->wr_flags = IBV_SEND_SIGNALED;
	write_good(&rc.a);
	EXPECT_EQ(ibv_wr_complete(rc.a.ex), 0, "the next batch");
	T_DONE(rc.a.scq, 3, IBV_WC_RDMA_WRITE);
}

static void tear_down(const void *arg)
{
	(void)arg;
	EXPECT_EQ(ibv_destroy_ah(ah), 0, "ibv_destroy_ah");
	t_pair_free(&rc);
	t_qp_free(&ud);
	t_qp_free(&dci);
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, misuse, &rows[i]);
	for (size_t i = 0; i < sizeof(olds) / sizeof(olds[0]); i++)
		t_case(olds[i].name, old_api, &olds[i]);
	t_case("before RTS", before_rts, NULL);
	t_case("receives", receives, NULL);
	t_case("out of turn", out_of_turn, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
