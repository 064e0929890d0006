/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Remote memory and rights: what the responder refuses, with which code, in which order of checks, and how many
 * bytes were written before. */
#include "t_why.h"

enum { PAGE = 4096, MTU = 1024 };

static struct t_env *env;
static struct t_buf src, dst;		/* dst has exactly PAGE bytes registered of four pages */
static struct ibv_pd *other_pd;
static struct ibv_mr *foreign, *only[4];	/* only: local write and one remote right each */

enum what {
	KEY, KEY_VARIANT, OTHER_PD, RIGHT, BEFORE, BEYOND, WRAP, GONE, UNMAPPED, PROTECTED,
	QP_ACCESS, QP_ACCESS_AND_KEY, ALIGN, READS, MTUS
};

static const struct row {
	const char *name, *check;
	enum ibv_wr_opcode op;
	enum what what;
	struct t_codes codes;
} rows[] = {
	{ "WRITE, unknown rkey",		"REMOTE_KEY", IBV_WR_RDMA_WRITE, KEY, C_REM_ACCESS },
	{ "WRITE, wrong low byte of the rkey",	"REMOTE_KEY", IBV_WR_RDMA_WRITE, KEY_VARIANT, C_REM_ACCESS },
	{ "READ, unknown rkey",			"REMOTE_KEY", IBV_WR_RDMA_READ, KEY, C_REM_ACCESS },
	{ "fetch-add, unknown rkey",		"REMOTE_KEY", IBV_WR_ATOMIC_FETCH_AND_ADD, KEY, C_REM_ACCESS },
	{ "WRITE, deregistered region",		"REMOTE_KEY", IBV_WR_RDMA_WRITE, GONE, C_REM_ACCESS },
	{ "READ, deregistered region",		"REMOTE_KEY", IBV_WR_RDMA_READ, GONE, C_REM_ACCESS },
	{ "WRITE, rkey of another PD",		"REMOTE_PD", IBV_WR_RDMA_WRITE, OTHER_PD, C_REM_ACCESS },
	{ "WRITE without remote write",		"REMOTE_RIGHT", IBV_WR_RDMA_WRITE, RIGHT, C_REM_ACCESS },
	{ "READ without remote read",		"REMOTE_RIGHT", IBV_WR_RDMA_READ, RIGHT, C_REM_ACCESS },
	{ "fetch-add without remote atomic",	"REMOTE_RIGHT", IBV_WR_ATOMIC_FETCH_AND_ADD, RIGHT, C_REM_ACCESS },
	{ "WRITE, one byte before",		"REMOTE_RANGE", IBV_WR_RDMA_WRITE, BEFORE, C_REM_ACCESS },
	{ "WRITE, one byte beyond",		"REMOTE_RANGE", IBV_WR_RDMA_WRITE, BEYOND, C_REM_ACCESS },
	{ "READ, one byte beyond",		"REMOTE_RANGE", IBV_WR_RDMA_READ, BEYOND, C_REM_ACCESS },
	{ "WRITE, va + length wraps",		"REMOTE_RANGE", IBV_WR_RDMA_WRITE, WRAP, C_REM_ACCESS },
	{ "READ, va + length wraps",		"REMOTE_RANGE", IBV_WR_RDMA_READ, WRAP, C_REM_ACCESS },
	{ "WRITE, memory unmapped",		"REMOTE_FAULT", IBV_WR_RDMA_WRITE, UNMAPPED, C_REM_OP },
	{ "READ, memory unmapped",		"REMOTE_FAULT", IBV_WR_RDMA_READ, UNMAPPED, C_REM_OP },
	{ "WRITE, memory write-protected",	"REMOTE_FAULT", IBV_WR_RDMA_WRITE, PROTECTED, C_REM_OP },
	{ "fetch-add, memory unmapped",		"REMOTE_FAULT", IBV_WR_ATOMIC_FETCH_AND_ADD, UNMAPPED, C_REM_OP },
	{ "WRITE, qp_access_flags",		"REMOTE_QP_ACCESS", IBV_WR_RDMA_WRITE, QP_ACCESS, C_REM_INV },
	{ "READ, qp_access_flags",		"REMOTE_QP_ACCESS", IBV_WR_RDMA_READ, QP_ACCESS, C_REM_INV },
	{ "fetch-add, qp_access_flags",		"REMOTE_QP_ACCESS", IBV_WR_ATOMIC_FETCH_AND_ADD, QP_ACCESS, C_REM_INV },
	{ "qp_access_flags come before the rkey", "REMOTE_QP_ACCESS", IBV_WR_RDMA_WRITE, QP_ACCESS_AND_KEY, C_REM_INV },
	{ "compare-swap, misaligned",		"REMOTE_ALIGN", IBV_WR_ATOMIC_CMP_AND_SWP, ALIGN, C_REM_INV },
	{ "READ, max_dest_rd_atomic 0",		"REMOTE_READS", IBV_WR_RDMA_READ, READS, C_REM_INV },
	{ "WRITE, different path MTUs",		"REMOTE_MTU", IBV_WR_RDMA_WRITE, MTUS, C_REM_INV },
};

static void set_up(const void *arg)
{
	static const int right[4] = { IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC, 0 };

	(void)arg;
	src = t_buf(env, 4 * PAGE, T_ALL);
	dst = t_buf(env, 4 * PAGE, T_ALL);
	EXPECT_EQ(ibv_dereg_mr(dst.mr), 0, "ibv_dereg_mr");
	dst.mr = ibv_reg_mr(env->pd, dst.p + PAGE, PAGE, T_ALL);	/* a page before, two behind */
	other_pd = ibv_alloc_pd(env->ctx);
	foreign = ibv_reg_mr(other_pd, dst.p + PAGE, PAGE, T_ALL);
	MUST(dst.mr && foreign, "ibv_reg_mr");
	dst.key = dst.mr->lkey;
	for (int i = 0; i < 4; i++) {
		only[i] = ibv_reg_mr(env->pd, dst.p + PAGE, PAGE, IBV_ACCESS_LOCAL_WRITE | right[i]);
		MUST(only[i], "ibv_reg_mr");
	}
}

/* A connected pair whose responder differs from the requester as the row asks. */
static struct t_pair special_pair(enum what what)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = { .a = t_qp(env, &s), .b = t_qp(env, &s) };
	struct ibv_qp_attr attr = t_attr(env, p.b.qp->qp_num);

	t_to_rts(p.a.qp, &attr);
	attr = t_attr(env, p.a.qp->qp_num);
	if (what == QP_ACCESS || what == QP_ACCESS_AND_KEY)
		attr.qp_access_flags = 0;
	if (what == READS)
		attr.max_dest_rd_atomic = 0;
	if (what == MTUS)
		attr.path_mtu = env->mtu - 1;
	t_to_rts(p.b.qp, &attr);
	return p;
}

static void one(const void *arg)
{
	const struct row *r = arg;
	struct t_pair p = special_pair(r->what);
	bool atomic = r->op == IBV_WR_ATOMIC_FETCH_AND_ADD || r->op == IBV_WR_ATOMIC_CMP_AND_SWP;
	uint32_t len = atomic ? 8 : r->what == MTUS ? PAGE : 256;
	struct t_buf own = t_buf(env, PAGE, T_ALL);
	struct t_op o[2] = { t_rdma(r->op, 1, t_sge(&src, 0, len), dst.key, dst.va + PAGE),
			     t_rdma(IBV_WR_RDMA_WRITE, 2, t_sge(&src, 0, 64), dst.key, dst.va + PAGE + 512) };

	memset(src.p, 0xa5, src.len);
	memset(dst.p, 0x5a, dst.len);
	switch (r->what) {
	case KEY: case QP_ACCESS_AND_KEY: o[0].rkey ^= 0x3fff00; break;
	case KEY_VARIANT: o[0].rkey ^= 1; break;
	case OTHER_PD: o[0].rkey = foreign->rkey; break;
	case RIGHT: o[0].rkey = only[r->op == IBV_WR_RDMA_READ ? 1 : 0]->rkey; break;
	case BEFORE: o[0].raddr -= 1; break;
	case BEYOND: o[0].raddr += PAGE - len + 1; break;
	case WRAP: o[0].raddr = UINT64_MAX - 100; break;
	case ALIGN: o[0].raddr += 4; break;
	case GONE:
		o[0].rkey = own.key;
		o[0].raddr = own.va;
		EXPECT_EQ(ibv_dereg_mr(own.mr), 0, "ibv_dereg_mr");
		own.mr = NULL;
		break;
	case UNMAPPED: case PROTECTED:
		o[0].rkey = own.key;
		o[0].raddr = own.va;
		if (r->what == UNMAPPED)
			munmap(own.p, own.len);
		else
			mprotect(own.p, own.len, PROT_READ);
		break;
	default:
		break;
	}
	t_why_begin();
	EXPECT_EQ(t_post_n(&p.a, o, 2), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, r->codes);
	T_WHY(r->check, p.a.qp->qp_num);
	T_FAILED(p.a.scq, 2, t_behind(r->codes, false));
	EXPECT_EQ(t_qp_state(p.a.qp), IBV_QPS_ERR, "state of the requester");
	EXPECT_EQ(t_qp_state(p.b.qp), IBV_QPS_ERR, "state of the responder");
	EXPECT(t_all(src.p, src.len, 0xa5), "local memory was written");
	EXPECT(t_all(dst.p, dst.len, 0x5a), "remote memory was written");
	t_pair_free(&p);
	if (own.mr)
		EXPECT_EQ(ibv_dereg_mr(own.mr), 0, "ibv_dereg_mr");
	if (r->what != UNMAPPED)
		munmap(own.p, own.len);
}

/* Bounds are checked per packet: a WRITE of four packets that leaves the region after two has written exactly two. */
static void packets(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = { .a = t_qp(env, &s), .b = t_qp(env, &s) };
	struct ibv_qp_attr attr = t_attr(env, p.b.qp->qp_num);
	uint8_t *end = dst.p + 2 * PAGE;
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 4 * MTU), dst.key, (uintptr_t)end - 2 * MTU);

	(void)arg;
	attr.path_mtu = IBV_MTU_1024;
	t_to_rts(p.a.qp, &attr);
	attr.dest_qp_num = p.a.qp->qp_num;
	t_to_rts(p.b.qp, &attr);
	t_fill(src.p, 4 * MTU, 3);
	memset(dst.p, 0x5a, dst.len);
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, T_REM_ACCESS);
	EXPECT(!memcmp(end - 2 * MTU, src.p, 2 * MTU), "the first two packets were not written");
	EXPECT(t_all(end, dst.p + dst.len - end, 0x5a), "bytes past the region were written");
	EXPECT(t_all(dst.p, 2 * PAGE - 2 * MTU, 0x5a), "bytes before were written");

	/* The third packet crosses the end in its middle: it writes nothing. */
	t_reset(p.a.qp);
	t_reset(p.b.qp);
	attr.dest_qp_num = p.b.qp->qp_num;
	t_to_rts(p.a.qp, &attr);
	attr.dest_qp_num = p.a.qp->qp_num;
	t_to_rts(p.b.qp, &attr);
	memset(dst.p, 0x5a, dst.len);
	o.raddr = (uintptr_t)end - 2 * MTU - 100;
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 1, T_REM_ACCESS);
	EXPECT(!memcmp(end - 2 * MTU - 100, src.p, 2 * MTU), "the first two packets were not written");
	EXPECT(t_all(end - 100, 100, 0x5a), "part of the third packet was written");
	t_pair_free(&p);
}

/* A zero-length request checks neither key nor range (IBA C9-88). */
static void zero_length(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);

	(void)arg;
	for (int read = 0; read < 2; read++) {
		struct t_op o = t_rdma(read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 0), 0xbad00, 0x1);

		EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
		T_DONE(p.a.scq, 1, -1);
	}
	EXPECT_EQ(t_qp_state(p.b.qp), IBV_QPS_RTS, "state of the responder");
	t_pair_free(&p);
}

/* The edges that are allowed. */
static void edges(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	const struct { uint64_t at; uint32_t len; } row[] = { { 0, PAGE }, { PAGE - 1, 1 }, { 0, 1 }, { 1, PAGE - 1 } };

	(void)arg;
	for (int i = 0; i < 4; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&src, 0, row[i].len), dst.key,
				       dst.va + PAGE + row[i].at);

		t_fill(src.p, PAGE, i);
		memset(dst.p, 0, dst.len);
		EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
		T_DONE(p.a.scq, i, IBV_WC_RDMA_WRITE);
		EXPECT(t_is(dst.p + PAGE + row[i].at, row[i].len, i), "data of edge %d", i);
		EXPECT(t_all(dst.p, PAGE + row[i].at, 0) &&
			       t_all(dst.p + PAGE + row[i].at + row[i].len, 100, 0),
		       "bytes beside edge %d", i);
	}
	t_pair_free(&p);
}

static void tear_down(const void *arg)
{
	(void)arg;
	EXPECT_EQ(ibv_dereg_mr(foreign), 0, "ibv_dereg_mr");
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(ibv_dereg_mr(only[i]), 0, "ibv_dereg_mr");
	EXPECT_EQ(ibv_dealloc_pd(other_pd), 0, "ibv_dealloc_pd");
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, one, &rows[i]);
	t_case("four packets, two fit", packets, NULL);
	t_case("zero length with a bad rkey", zero_length, NULL);
	t_case("to the last byte", edges, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
