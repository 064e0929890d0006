/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Receives that cannot take the message they meet: codes at both sides, states, bytes. */
#include "t_why.h"

enum { PAGE = 4096 };

static struct t_env *env;
static struct t_buf src, dst;
static struct ibv_pd *other_pd;
static struct ibv_mr *foreign, *read_only;

enum what { KEY, OTHER_PD, NO_WRITE, BEYOND, UNMAPPED, PROTECTED, TOO_SHORT, NO_ENTRY };

static const struct row {
	const char *name, *recv_check, *send_check;
	enum what what;
	struct t_codes recv, send;
} rows[] = {
	{ "unknown lkey",	"RECV_KEY", "REMOTE_RECV_FAILED", KEY, C_RECV_KEY, C_REM_OP },
	{ "lkey of another PD",	"RECV_PD", "REMOTE_RECV_FAILED", OTHER_PD, C_RECV_PD, C_REM_OP },
	{ "not writable",	"RECV_RIGHT", "REMOTE_RECV_FAILED", NO_WRITE, C_RECV_RANGE, C_REM_OP },
	{ "past the region",	"RECV_RANGE", "REMOTE_RECV_FAILED", BEYOND, C_RECV_RANGE, C_REM_OP },
	{ "memory unmapped",	"RECV_FAULT", "REMOTE_RECV_FAILED", UNMAPPED, C_RECV_FAULT, C_REM_OP },
	{ "memory write-protected", "RECV_FAULT", "REMOTE_RECV_FAILED", PROTECTED, C_RECV_FAULT, C_REM_OP },
	{ "message longer than the receive", "RECV_LENGTH", "REMOTE_LENGTH", TOO_SHORT, C_LOC_LEN, C_REM_INV },
	{ "receive without entries", "RECV_LENGTH", "REMOTE_LENGTH", NO_ENTRY, C_LOC_LEN, C_REM_INV },
};

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 2 * PAGE, T_ALL);
	dst = t_buf(env, 2 * PAGE, T_ALL);
	EXPECT_EQ(ibv_dereg_mr(dst.mr), 0, "ibv_dereg_mr");
	dst.mr = ibv_reg_mr(env->pd, dst.p, PAGE, T_ALL);
	dst.key = dst.mr->lkey;
	other_pd = ibv_alloc_pd(env->ctx);
	foreign = ibv_reg_mr(other_pd, dst.p, PAGE, T_ALL);
	read_only = ibv_reg_mr(env->pd, dst.p, PAGE, IBV_ACCESS_REMOTE_READ);
	MUST(dst.mr && foreign && read_only, "ibv_reg_mr");
}

static void one(const void *arg)
{
	const struct row *r = arg;
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct ibv_sge sge = t_sge(&dst, 0, 256);
	struct t_buf own = t_buf(env, PAGE, T_ALL);
	struct t_op o[2] = { t_op(IBV_WR_SEND, 1, t_sge(&src, 0, 256)), t_op(IBV_WR_SEND, 2, t_sge(&src, 0, 256)) };
	struct ibv_recv_wr *bad, wr = { .wr_id = 10, .sg_list = &sge, .num_sge = r->what == NO_ENTRY ? 0 : 1 };

	memset(dst.p, 0x5a, 2 * PAGE);
	switch (r->what) {
	case KEY: sge.lkey ^= 0x3fff00; break;
	case OTHER_PD: sge.lkey = foreign->lkey; break;
	case NO_WRITE: sge.lkey = read_only->lkey; break;
	case BEYOND: sge.addr += PAGE - 255; break;
	case TOO_SHORT: sge.length = 255; break;
	case NO_ENTRY: break;
	default:
		sge.addr = own.va;
		sge.lkey = own.key;
		if (r->what == UNMAPPED)
			munmap(own.p, own.len);
		else
			mprotect(own.p, own.len, PROT_READ);
	}
	EXPECT_EQ(ibv_post_recv(p.b.qp, &wr, &bad), 0, "ibv_post_recv");
	t_recv(&p.b, 11, t_sge(&dst, 512, 256));
	t_why_begin();
	EXPECT_EQ(t_post_n(&p.a, o, 2), 0, "ibv_wr_complete");
	T_FAILED(p.b.rcq, 10, r->recv);
	T_WHY(r->recv_check, p.b.qp->qp_num);
	T_FAILED(p.b.rcq, 11, t_behind(r->recv, false));
	T_FAILED(p.a.scq, 1, r->send);
	T_WHY(r->send_check, p.a.qp->qp_num);
	T_FAILED(p.a.scq, 2, t_behind(r->send, false));
	EXPECT_EQ(t_qp_state(p.a.qp), IBV_QPS_ERR, "state of the requester");
	EXPECT_EQ(t_qp_state(p.b.qp), IBV_QPS_ERR, "state of the responder");
	EXPECT(t_all(dst.p, 2 * PAGE, 0x5a), "memory was written");
	t_pair_free(&p);
	EXPECT_EQ(ibv_dereg_mr(own.mr), 0, "ibv_dereg_mr");
	if (r->what != UNMAPPED)
		munmap(own.p, own.len);
}

/* The same through a shared receive queue: the SRQ lives on, its other receives are not touched. */
static void on_an_srq(const void *arg)
{
	struct ibv_srq *srq = t_srq(env, 8);
	struct t_spec s = { .ops = T_RC_OPS, .srq = srq };
	struct t_pair p = t_pair(env, &s), q = t_pair(env, &s);
	struct ibv_sge sge = t_sge(&dst, 0, 256);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, 256));

	(void)arg;
	sge.lkey ^= 0x3fff00;
	t_srq_recv(srq, 10, sge);
	t_srq_recv(srq, 11, t_sge(&dst, 0, 256));
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.b.rcq, 10, T_RECV_KEY);
	T_FAILED(p.a.scq, 1, T_REM_OP);
	T_QUIET(p.b.rcq);
	EXPECT_EQ(t_post(&q.a, &o), 0, "ibv_wr_complete on another queue pair");
	T_DONE(q.a.scq, 1, IBV_WC_SEND);
	T_DONE(q.b.rcq, 11, IBV_WC_RECV);
	t_pair_free(&p);
	t_pair_free(&q);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

/* Exactly as long as the receive is not too long; 0 bytes need no key. */
static void edges(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, 256)), empty = t_op(IBV_WR_SEND, 2, t_sge(&src, 0, 0));

	(void)arg;
	t_recv(&p.b, 10, t_sge(&dst, PAGE - 256, 256));
	t_recv(&p.b, 11, (struct ibv_sge) { 0x10, 99, 0xdead00 });
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 1, IBV_WC_SEND);
	EXPECT_EQ(T_DONE(p.b.rcq, 10, IBV_WC_RECV).wc.byte_len, 256, "byte_len");
	EXPECT_EQ(t_post(&p.a, &empty), 0, "ibv_wr_complete");
	T_DONE(p.a.scq, 2, IBV_WC_SEND);
	EXPECT_EQ(T_DONE(p.b.rcq, 11, IBV_WC_RECV).wc.byte_len, 0, "byte_len");
	t_pair_free(&p);
}

static void tear_down(const void *arg)
{
	(void)arg;
	EXPECT_EQ(ibv_dereg_mr(foreign), 0, "ibv_dereg_mr");
	EXPECT_EQ(ibv_dereg_mr(read_only), 0, "ibv_dereg_mr");
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
	t_case("on a shared receive queue", on_an_srq, NULL);
	t_case("exactly as long; nothing at all", edges, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
