/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Receive queues, own and shared: scatter lists, order, sharing between queue pairs, limit event, resizing rules,
 * receives into the completion entry (scatter to CQE), XRC. */
#include <fcntl.h>
#include <poll.h>

#include "t_why.h"

static struct t_env *env;
static struct t_buf src, dst;

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 65536, T_ALL);
	dst = t_buf(env, 65536, T_ALL);
}

/* A receive of several entries, some empty, larger than the message: filled in order, the rest untouched. */
static void scatter_list(const void *arg)
{
	const bool *srq_too = arg;
	struct ibv_srq *srq = *srq_too ? t_srq(env, 8) : NULL;
	struct t_spec s = { .ops = T_RC_OPS, .srq = srq };
	struct t_pair p = t_pair(env, &s);
	struct ibv_sge sge[4] = { t_sge(&dst, 100, 10), t_sge(&dst, 0, 0), t_sge(&dst, 1000, 50), t_sge(&dst, 50, 20) };
	struct ibv_recv_wr *bad, wr = { .wr_id = 5, .sg_list = sge, .num_sge = 4 };
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, 67));

	t_fill(src.p, 67, 3);
	memset(dst.p, 0, 2048);
	EXPECT_EQ(srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(p.b.qp, &wr, &bad), 0, "posting the receive");
	EXPECT_EQ(t_post(&p.a, &o), 0, "SEND");
	T_DONE(p.a.scq, 1, IBV_WC_SEND);
	EXPECT_EQ(T_DONE(p.b.rcq, 5, IBV_WC_RECV).wc.byte_len, 67, "byte_len");
	EXPECT(!memcmp(dst.p + 100, src.p, 10) && !memcmp(dst.p + 1000, src.p + 10, 50) &&
		       !memcmp(dst.p + 50, src.p + 60, 7),
	       "data");
	EXPECT(t_all(dst.p + 57, 43, 0), "bytes behind the message were written");
	t_pair_free(&p);
	if (srq)
		EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

/* Receives are taken in order, over many wraps of the queue. */
static void order(const void *arg)
{
	const bool *srq_too = arg;
	struct ibv_srq *srq = *srq_too ? t_srq(env, 8) : NULL;
	struct t_spec s = { .ops = T_RC_OPS, .srq = srq, .rq = 8 };
	struct t_pair p = t_pair(env, &s);
	uint64_t posted = 0, taken = 0;

	for (int round = 0; round < 3000 && !t_state.failures; round++) {
		struct t_op o = t_op(IBV_WR_SEND, round, t_sge(&src, 0, 16));

		while (posted < taken + 1 + round % 8) {
			struct ibv_sge at = t_sge(&dst, posted % 64 * 16, 16);

			if (srq)
				t_srq_recv(srq, posted++, at);
			else
				t_recv(&p.b, posted++, at);
		}
		t_fill(src.p, 16, round);
		EXPECT_EQ(t_post(&p.a, &o), 0, "SEND");
		T_DONE(p.a.scq, round, IBV_WC_SEND);
		T_DONE(p.b.rcq, taken, IBV_WC_RECV);
		EXPECT(t_is(dst.p + taken % 64 * 16, 16, round), "data of message %d", round);
		taken++;
	}
	t_pair_free(&p);
	if (srq)
		EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

static void shared_by_four(const void *arg)
{
	struct ibv_srq *srq = t_srq(env, 32);
	struct t_spec s = { .ops = T_RC_OPS, .srq = srq };
	struct t_pair p[4];
	bool seen[16] = { false };

	(void)arg;
	for (int i = 0; i < 4; i++)
		p[i] = t_pair(env, &s);
	for (int i = 0; i < 16; i++)
		t_srq_recv(srq, i, t_sge(&dst, i * 64, 64));
	for (int i = 0; i < 16; i++) {
		struct t_op o = t_op(IBV_WR_SEND_WITH_IMM, i, t_sge(&src, 0, 32));
		struct t_wc wc;

		o.imm = i;
		t_fill(src.p, 32, i);
		EXPECT_EQ(t_post(&p[i % 4].a, &o), 0, "SEND");
		T_DONE(p[i % 4].a.scq, i, IBV_WC_SEND);
		wc = t_poll(p[i % 4].b.rcq);
		EXPECT_EQ(wc.wc.qp_num, p[i % 4].b.qp->qp_num, "qp_num");
		EXPECT_EQ(be32toh(wc.wc.imm_data), i, "immediate data");
		MUST(wc.wc.wr_id < 16 && !seen[wc.wc.wr_id], "a receive is used once");
		seen[wc.wc.wr_id] = true;
		EXPECT(t_is(dst.p + wc.wc.wr_id * 64, 32, i), "data of message %d", i);
	}
	for (int i = 0; i < 4; i++)
		t_pair_free(&p[i]);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

static bool event_within(int ms, struct ibv_async_event *ev)
{
	struct pollfd fd = { .fd = env->ctx->async_fd, .events = POLLIN };

	return poll(&fd, 1, ms) == 1 && !ibv_get_async_event(env->ctx, ev);
}

/* An armed limit raises one event when fewer receives are left, and is then disarmed. */
static void limit_event(const void *arg)
{
	struct ibv_srq *srq = t_srq(env, 16);
	struct t_spec s = { .ops = T_RC_OPS, .srq = srq };
	struct t_pair p = t_pair(env, &s);
	struct ibv_srq_attr attr = { .srq_limit = 3 }, got;
	struct ibv_async_event ev;

	(void)arg;
	for (int i = 0; i < 6; i++)
		t_srq_recv(srq, i, t_sge(&dst, 0, 64));
	EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0, "ibv_modify_srq");
	EXPECT_EQ(ibv_query_srq(srq, &got), 0, "ibv_query_srq");
	EXPECT_EQ(got.srq_limit, 3, "srq_limit");
	EXPECT(got.max_wr >= 16 && got.max_sge >= 4, "granted %u receives of %u entries", got.max_wr, got.max_sge);
	for (int i = 0; i < 6; i++) {
		struct t_op o = t_op(IBV_WR_SEND, i, t_sge(&src, 0, 8));

		EXPECT_EQ(t_post(&p.a, &o), 0, "SEND");
		T_DONE(p.a.scq, i, IBV_WC_SEND);
		T_DONE(p.b.rcq, i, IBV_WC_RECV);
		if (i < 3)
			EXPECT(!event_within(20, &ev), "an event with %d receives left", 5 - i);
		if (i == 3) {
			MUST(event_within(10000, &ev), "the limit event comes");
			EXPECT_EQ(ev.event_type, IBV_EVENT_SRQ_LIMIT_REACHED, "event");
			EXPECT(ev.element.srq == srq, "the SRQ of the event");
			ibv_ack_async_event(&ev);
		}
		if (i > 3)
			EXPECT(!event_within(20, &ev), "a second event");
	}
	EXPECT_EQ(ibv_query_srq(srq, &got), 0, "ibv_query_srq");
	EXPECT_EQ(got.srq_limit, 0, "srq_limit after the event");
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

static void full_srq(const void *arg)
{
	struct ibv_srq *srq = t_srq(env, 8);
	struct ibv_srq_attr attr;
	struct ibv_sge sge = t_sge(&dst, 0, 8);
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	int n = 0, rc;

	(void)arg;
	MUST(!ibv_query_srq(srq, &attr), "ibv_query_srq");
	while ((rc = ibv_post_srq_recv(srq, &wr, &bad)) == 0 && n < 10000)
		n++;
	EXPECT_EQ(rc, ENOMEM, "one too many");
	EXPECT((uint32_t)n == attr.max_wr, "%d receives fit, granted %u", n, attr.max_wr);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

/* Small messages and READs inside the completion entry: the program sees them where it asked for them. */
static void scatter_to_cqe(const void *arg)
{
	const uint16_t *cqe_size = arg;
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 64 };
	struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = *cqe_size };
	struct ibv_cq *cq = ibv_cq_ex_to_cq(mlx5dv_create_cq(env->ctx, &cq_attr, &dv));
	struct t_spec s = { .create_flags = MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE, .scq = cq, .rcq = cq };
	struct t_pair p;

	MUST(cq, "mlx5dv_create_cq");
	p = t_pair(env, &s);
	for (uint32_t len = 0; len <= 130; len++) {
		struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, len));
		struct ibv_sge sge[2] = { t_sge(&dst, 0, 20), t_sge(&dst, 200, 200) };
		struct ibv_recv_wr *bad, wr = { .wr_id = 2, .sg_list = sge, .num_sge = 2 };
		bool sent = false;

		t_fill(src.p, 256, len);
		memset(dst.p, 0, 512);
		EXPECT_EQ(ibv_post_recv(p.b.qp, &wr, &bad), 0, "ibv_post_recv");
		EXPECT_EQ(t_post(&p.a, &o), 0, "SEND");
		for (int i = 0; i < 2; i++) {
			struct t_wc wc = t_poll(cq);

			MUST(wc.wc.status == IBV_WC_SUCCESS, "status");
			sent |= wc.wc.wr_id == 1;
			if (wc.wc.wr_id == 2)
				EXPECT_EQ(wc.wc.byte_len, len, "byte_len");
		}
		EXPECT(sent, "no completion of the SEND");
		EXPECT(!memcmp(dst.p, src.p, len < 20 ? len : 20) &&
			       (len <= 20 || !memcmp(dst.p + 200, src.p + 20, len - 20)),
		       "SEND of %u bytes", len);
		EXPECT(t_all(dst.p + 20, 180, 0) && t_all(dst.p + 200 + (len > 20 ? len - 20 : 0), 100, 0),
		       "SEND of %u bytes wrote more", len);

		o = t_rdma(IBV_WR_RDMA_READ, 3, t_sge(&dst, 1000, len), src.key, src.va);
		memset(dst.p + 1000, 0, 256);
		EXPECT_EQ(t_post(&p.a, &o), 0, "READ");
		T_DONE(cq, 3, IBV_WC_RDMA_READ);
		EXPECT(!memcmp(dst.p + 1000, src.p, len) && t_all(dst.p + 1000 + len, 64, 0), "READ of %u bytes", len);
	}
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

/* ---- XRC ---- */

static void xrc(const void *arg)
{
	struct ibv_xrcd_init_attr xa = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					 .fd = -1,
					 .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(env->ctx, &xa);
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 64, NULL, NULL, 0);
	struct ibv_srq_init_attr_ex sa = { .attr = { .max_wr = 16, .max_sge = 1 },
					   .srq_type = IBV_SRQT_XRC,
					   .pd = env->pd,
					   .cq = cq,
					   .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
							IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD };
	struct t_spec ini = { .type = IBV_QPT_XRC_SEND, .ops = T_RC_OPS },
		      tgt = { .type = IBV_QPT_XRC_RECV, .xrcd = xrcd };
	struct ibv_srq *srq[2];
	uint32_t srqn[2];
	struct t_qp a, b;
	struct ibv_qp_attr attr;

	(void)arg;
	MUST(xrcd, "ibv_open_xrcd");
	sa.xrcd = xrcd;
	for (int i = 0; i < 2; i++) {
		srq[i] = ibv_create_srq_ex(env->ctx, &sa);
		MUST(srq[i], "ibv_create_srq_ex");
		MUST(!ibv_get_srq_num(srq[i], &srqn[i]), "ibv_get_srq_num");
	}
	EXPECT(srqn[0] != srqn[1], "two SRQs have one number");
	a = t_qp(env, &ini);
	b = t_qp(env, &tgt);
	attr = t_attr(env, b.qp->qp_num);
	t_to_rts(a.qp, &attr);
	attr = t_attr(env, a.qp->qp_num);
	t_to_rts(b.qp, &attr);
	for (int i = 0; i < 8; i++) {	/* the receiver is named with each request */
		struct t_wc wc;

		t_fill(src.p, 64, i);
		t_srq_recv(srq[i & 1], 50 + i, t_sge(&dst, i * 64, 64));
		ibv_wr_start(a.ex);
		a.ex->wr_id = i;
		a.ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send_imm(a.ex, htobe32(i));
		ibv_wr_set_xrc_srqn(a.ex, srqn[i & 1]);
		ibv_wr_set_sge(a.ex, src.key, src.va, 64);
		EXPECT_EQ(ibv_wr_complete(a.ex), 0, "ibv_wr_complete");
		T_DONE(a.scq, i, IBV_WC_SEND);
		wc = T_DONE(cq, 50 + i, IBV_WC_RECV);
		EXPECT_EQ(be32toh(wc.wc.imm_data), i, "immediate data");
		EXPECT(t_is(dst.p + i * 64, 64, i), "data");
	}

	/* No such SRQ: the responder refuses. */
	t_why_begin();
	ibv_wr_start(a.ex);
	a.ex->wr_id = 99;
	a.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(a.ex);
	ibv_wr_set_xrc_srqn(a.ex, 0xfffff0);
	ibv_wr_set_sge(a.ex, src.key, src.va, 64);
	EXPECT_EQ(ibv_wr_complete(a.ex), 0, "ibv_wr_complete");
	T_FAILED(a.scq, 99, T_REM_INV);
	T_WHY("REMOTE_SRQN", a.qp->qp_num);

	EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY, "an XRC domain in use");
	t_qp_free(&a);
	t_qp_free(&b);
	EXPECT_EQ(ibv_destroy_srq(srq[0]), 0, "ibv_destroy_srq");
	EXPECT_EQ(ibv_destroy_srq(srq[1]), 0, "ibv_destroy_srq");
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_close_xrcd(xrcd), 0, "ibv_close_xrcd");
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	static const bool own = false, shared = true;
	static const uint16_t size[2] = { 64, 128 };

	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("scatter list, own queue", scatter_list, &own);
	t_case("scatter list, shared queue", scatter_list, &shared);
	t_case("3000 messages in order, own queue", order, &own);
	t_case("3000 messages in order, shared queue", order, &shared);
	t_case("one queue shared by four", shared_by_four, NULL);
	t_case("limit event", limit_event, NULL);
	t_case("a full shared queue", full_srq, NULL);
	t_case("scatter to 64-byte CQEs", scatter_to_cqe, &size[0]);
	t_case("scatter to 128-byte CQEs", scatter_to_cqe, &size[1]);
	t_case("XRC", xrc, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
