/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* WQEs that the device cannot execute: codes, the state afterwards, nothing moved. Raw WQEs, and one ring that is
 * written by hand for the index that the driver would have set right. */
#include "raw.h"
#include "t_why.h"

static struct t_env *env;
static struct t_buf src, dst;

enum what {
	OPCODE, QPN, SHORT_WRITE, SHORT_ATOMIC, SHORT_UMR, ATOMIC_LEN, READ_INLINE, LONG,
	MMO_SHORT, MMO_OPMOD, MMO_ON_UC, TAG_NO_LIST, WRITE_ON_UD, READ_ON_UC, INLINE_OVER_END
};

static const struct row { const char *name, *check; enum what what; struct t_codes codes; } rows[] = {
	{ "unknown opcode",		"WQE_OPCODE", OPCODE, C_WQE_OPCODE },
	{ "another queue pair's number", "WQE_QPN", QPN, C_QP_OP },
	{ "WRITE without its address",	"WQE_LENGTH", SHORT_WRITE, C_QP_OP },
	{ "atomic without its operands", "WQE_LENGTH", SHORT_ATOMIC, C_QP_OP },
	{ "UMR without its context",	"WQE_LENGTH", SHORT_UMR, C_QP_OP },
	{ "inline data past the WQE's end", "WQE_LENGTH", INLINE_OVER_END, C_QP_OP },
	{ "atomic with 16 local bytes",	"WQE_ATOMIC_LENGTH", ATOMIC_LEN, C_LOC_LEN },
	{ "message over 2 GiB",		"WQE_MESSAGE_LENGTH", LONG, C_LOC_LEN },
	{ "memory copy without destination", "WQE_LENGTH", MMO_SHORT, C_QP_OP },
	{ "MMO of unknown kind",	"WQE_MMO", MMO_OPMOD, C_QP_OP },
	{ "tag list operation without a list", "WQE_TAG_QUEUE", TAG_NO_LIST, C_QP_OP },
	{ "RDMA WRITE on UD",		"WQE_QP_OPCODE", WRITE_ON_UD, C_QP_OP },
	{ "RDMA READ on UC",		"WQE_QP_OPCODE", READ_ON_UC, C_QP_OP },
};

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 4096, T_ALL);
	dst = t_buf(env, 4096, T_ALL);
}

static struct t_qp queue_for(enum what what)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct ibv_qp_attr attr = t_attr(env, 0);
	struct t_qp q;

	if (what == WRITE_ON_UD || what == READ_ON_UC) {
		s.type = what == WRITE_ON_UD ? IBV_QPT_UD : IBV_QPT_UC;
		s.ops = what == WRITE_ON_UD ? T_UD_OPS : T_UC_OPS;
		s.dv_ops = MLX5DV_QP_EX_WITH_RAW_WQE;
	}
	q = t_qp(env, &s);
	if (what == WRITE_ON_UD)
		t_ud_rts(env, q.qp);
	else
		t_to_rts(q.qp, &attr);
	return q;
}

static void one(const void *arg)
{
	const struct row *r = arg;
	struct t_qp q = queue_for(r->what), peer = queue_for(OPCODE);
	struct raw w = raw_ctrl(q.qp->qp_num, MLX5_OPCODE_RDMA_WRITE, 0, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	uint8_t zero[64] = { 0 };

	memset(dst.p, 0x5a, dst.len);
	if (r->what != WRITE_ON_UD && r->what != READ_ON_UC) {
		t_reset(q.qp);
		t_reset(peer.qp);
		t_connect(env, &q, &peer);
	}
	switch (r->what) {
	case OPCODE: w.b[3] = 0x3f; raw_raddr(&w, dst.va, dst.key); raw_data(&w, 8, src.key, src.va); break;
	case QPN: w.b[6] ^= 1; raw_raddr(&w, dst.va, dst.key); raw_data(&w, 8, src.key, src.va); break;
	case SHORT_WRITE: break;
	case SHORT_ATOMIC: w.b[3] = MLX5_OPCODE_ATOMIC_CS; raw_raddr(&w, dst.va, dst.key); break;
	case SHORT_UMR: w.b[3] = MLX5_OPCODE_UMR; raw_add(&w, zero, 48); break;
	case INLINE_OVER_END:
		raw_raddr(&w, dst.va, dst.key);
		zero[0] = 0x80;
		zero[3] = 200;
		raw_add(&w, zero, 16);
		break;
	case ATOMIC_LEN:
		w.b[3] = MLX5_OPCODE_ATOMIC_FA;
		raw_raddr(&w, dst.va, dst.key);
		raw_u64s(&w, 1, 0);
		raw_data(&w, 16, src.key, src.va);
		break;
	case LONG:
		raw_raddr(&w, dst.va, dst.key);
		for (int i = 0; i < 3; i++)
			raw_data(&w, 0x7fffffff, src.key, src.va);
		break;
	case MMO_SHORT:
		w.b[3] = MLX5_OPCODE_MMO;
		w.b[0] = 1;
		raw_add(&w, zero, 16);
		raw_data(&w, 8, src.key, src.va);
		break;
	case MMO_OPMOD:
		w.b[3] = MLX5_OPCODE_MMO;
		w.b[0] = 0x7e;
		raw_add(&w, zero, 16);
		raw_data(&w, 8, src.key, src.va);
		raw_data(&w, 8, dst.key, dst.va);
		break;
	case TAG_NO_LIST: w.b[3] = MLX5_OPCODE_TAG_MATCHING; raw_add(&w, zero, 32); break;
	case WRITE_ON_UD:
		raw_add(&w, zero, 48);
		raw_raddr(&w, dst.va, dst.key);
		raw_data(&w, 8, src.key, src.va);
		break;
	default: w.b[3] = MLX5_OPCODE_RDMA_READ; raw_raddr(&w, dst.va, dst.key); raw_data(&w, 8, src.key, src.va);
	}
	t_why_begin();
	EXPECT_EQ(raw_post(&q, 1, &w), 0, "ibv_wr_complete");
	T_FAILED(q.scq, 1, r->codes);
	T_WHY(r->check, q.qp->qp_num);
	T_QUIET(q.scq);
	EXPECT(t_qp_state(q.qp) == IBV_QPS_ERR ||
		       ((r->what == WRITE_ON_UD || r->what == READ_ON_UC) && t_qp_state(q.qp) == IBV_QPS_SQE),
	       "state is %d", t_qp_state(q.qp));
	EXPECT(t_all(dst.p, dst.len, 0x5a), "memory was written");
	t_qp_free(&q);
	t_qp_free(&peer);
}

/* A UD message longer than the MTU. */
static void ud_too_long(const void *arg)
{
	struct t_spec s = { .type = IBV_QPT_UD, .ops = T_UD_OPS };
	struct t_qp a = t_qp(env, &s), b = t_qp(env, &s);
	struct t_buf big = t_buf(env, 16384, T_ALL);
	uint32_t mtu = 128u << env->mtu;
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&big, 0, mtu + 1));

	(void)arg;
	t_ud_rts(env, a.qp);
	t_ud_rts(env, b.qp);
	o.ah = t_ah(env);
	o.dest = b.qp->qp_num;
	o.qkey = T_QKEY;
	t_recv(&b, 2, t_sge(&big, 0, 16384));
	t_why_begin();
	EXPECT_EQ(t_post(&a, &o), 0, "ibv_wr_complete");
	T_FAILED(a.scq, 1, T_LOC_LEN);
	T_WHY("WQE_MESSAGE_LENGTH", a.qp->qp_num);
	T_QUIET(b.rcq);
	EXPECT_EQ(ibv_destroy_ah(o.ah), 0, "ibv_destroy_ah");
	t_qp_free(&a);
	t_qp_free(&b);
	t_buf_free(&big);
}

/* A program that rings its own doorbell, with an index that is not the producer's. Its completion is read
 * raw: the driver does not know the request. */
static void wrong_index(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct mlx5dv_qp qp = { 0 };
	struct mlx5dv_cq cq = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = p.a.qp, .out = &qp }, .cq = { .in = p.a.scq, .out = &cq } };
	uint64_t end = t_now_ms() + 10000;
	struct mlx5_wqe_ctrl_seg ctrl;
	uint8_t *cqe;

	(void)arg;
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	memset(&ctrl, 0, sizeof(ctrl));
	mlx5dv_set_ctrl_seg(&ctrl, 7, MLX5_OPCODE_NOP, 0, p.a.qp->qp_num, MLX5_WQE_CTRL_CQ_UPDATE, 1, 0, 0);
	memcpy(qp.sq.buf, &ctrl, 16);
	t_why_begin();
	__atomic_store_n(&qp.dbrec[MLX5_SND_DBR], htobe32(1), __ATOMIC_RELEASE);
	__atomic_store_n((uint64_t *)qp.bf.reg, *(uint64_t *)&ctrl, __ATOMIC_RELEASE);
	cqe = (uint8_t *)cq.buf + cq.cqe_size - 64;
	while (__atomic_load_n(&cqe[63], __ATOMIC_ACQUIRE) >> 4 == MLX5_CQE_INVALID && t_now_ms() < end)
		usleep(100);
	EXPECT_EQ(cqe[63] >> 4, MLX5_CQE_REQ_ERR, "CQE opcode");
	EXPECT_EQ(cqe[55], 0x02, "syndrome");
	EXPECT_EQ(cqe[54], 0x68, "vendor syndrome");
	EXPECT_EQ(cqe[52], 0x01, "hw syndrome");
	T_WHY("WQE_INDEX", p.a.qp->qp_num);
	EXPECT_EQ(t_qp_state(p.a.qp), IBV_QPS_ERR, "state");
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
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, one, &rows[i]);
	t_case("UD message over the MTU", ud_too_long, NULL);
	t_case("wrong index, own doorbell", wrong_index, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
