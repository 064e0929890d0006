/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Completion queues: channels and events (all, solicited only, errors), resizing with completions inside, timestamps,
 * many wraps, overflow. */
#include <fcntl.h>
#include <poll.h>

#include "t_why.h"

static struct t_env *env;
static struct t_buf src, dst;

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 8192, T_ALL);
	dst = t_buf(env, 8192, T_ALL);
}

static void post_write(struct t_qp *q, uint64_t wr_id)
{
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, wr_id, t_sge(&src, 0, 8), dst.key, dst.va);

	EXPECT_EQ(t_post(q, &o), 0, "WRITE");
}

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* One event for each arming, whose CQ and context are told; none without arming. */
static void events(const void *arg)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(env->ctx);
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 32, &src, ch, 0), *got;
	struct t_spec s = { .ops = T_RC_OPS, .scq = cq };
	struct t_pair p;
	void *ctx;

	(void)arg;
	MUST(ch && cq, "channel and CQ");
	p = t_pair(env, &s);
	post_write(&p.a, 1);
	EXPECT(!readable(ch->fd, 20), "an event though the CQ was never armed");
	T_DONE(cq, 1, -1);
	for (int i = 0; i < 100; i++) {
		EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0, "ibv_req_notify_cq");
		post_write(&p.a, 2);
		post_write(&p.a, 3);
		if (!EXPECT(readable(ch->fd, 10000), "no event"))
			break;
		MUST(!ibv_get_cq_event(ch, &got, &ctx), "ibv_get_cq_event");
		EXPECT(got == cq && ctx == &src, "the CQ or its context of the event");
		EXPECT(!readable(ch->fd, 0), "two events for one arming");
		ibv_ack_cq_events(cq, 1);
		T_DONE(cq, 2, -1);
		T_DONE(cq, 3, -1);
	}

	/* Completions that are there already do not count: only new ones. */
	post_write(&p.a, 4);
	usleep(2000);
	EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0, "ibv_req_notify_cq");
	T_DONE(cq, 4, -1);
	while (readable(ch->fd, 20)) {		/* a device may report it, and it may be early: never lost, though */
		MUST(!ibv_get_cq_event(ch, &got, &ctx), "ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
		EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0, "ibv_req_notify_cq");
	}
	post_write(&p.a, 5);
	EXPECT(readable(ch->fd, 10000), "no event of the next completion");
	MUST(!ibv_get_cq_event(ch, &got, &ctx), "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	T_DONE(cq, 5, -1);
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_destroy_comp_channel(ch), 0, "ibv_destroy_comp_channel");
}

/* Armed for solicited completions: a plain receive does not wake, a solicited one and an error do. */
static void solicited(const void *arg)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(env->ctx);
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 32, NULL, ch, 0), *got;
	struct t_spec s = { .ops = T_RC_OPS, .rcq = cq };
	struct t_pair p;
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, 8));
	void *ctx;

	(void)arg;
	MUST(ch && cq, "channel and CQ");
	p = t_pair(env, &s);
	for (int i = 0; i < 3; i++)
		t_recv(&p.b, i, t_sge(&dst, 0, i < 2 ? 8 : 4));
	EXPECT_EQ(ibv_req_notify_cq(cq, 1), 0, "ibv_req_notify_cq");
	EXPECT_EQ(t_post(&p.a, &o), 0, "SEND");
	EXPECT(!readable(ch->fd, 30), "a plain SEND woke");
	o.flags |= IBV_SEND_SOLICITED;
	EXPECT_EQ(t_post(&p.a, &o), 0, "solicited SEND");
	EXPECT(readable(ch->fd, 10000), "a solicited SEND did not wake");
	MUST(!ibv_get_cq_event(ch, &got, &ctx), "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	EXPECT_EQ(ibv_req_notify_cq(cq, 1), 0, "ibv_req_notify_cq");
	o.flags = IBV_SEND_SIGNALED;
	EXPECT_EQ(t_post(&p.a, &o), 0, "SEND that is too long");
	EXPECT(readable(ch->fd, 10000), "an error did not wake");
	MUST(!ibv_get_cq_event(ch, &got, &ctx), "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_destroy_comp_channel(ch), 0, "ibv_destroy_comp_channel");
}

static void nonblocking_channel(const void *arg)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(env->ctx);
	struct ibv_cq *got;
	void *ctx;

	(void)arg;
	MUST(ch, "ibv_create_comp_channel");
	EXPECT_EQ(fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK), 0, "fcntl");
	errno = 0;
	EXPECT(ibv_get_cq_event(ch, &got, &ctx) && errno == EAGAIN, "errno %d", errno);
	EXPECT_EQ(ibv_destroy_comp_channel(ch), 0, "ibv_destroy_comp_channel");
}

/* Grown and shrunk with completions inside: none lost, none doubled, in order. */
static void resize(const void *arg)
{
	static const int sizes[] = { 100, 33, 500, 40, 1000, 34 };
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 63, NULL, NULL, 0);
	struct t_spec s = { .ops = T_RC_OPS, .scq = cq, .sq = 64 };
	struct t_pair p = t_pair(env, &s);
	uint64_t posted = 0, polled = 0;

	(void)arg;
	for (int round = 0; round < 60; round++) {
		int want = sizes[round % 6];

		while (posted - polled < (uint64_t)(round % 30))
			post_write(&p.a, posted++);
		usleep(200);
		EXPECT_EQ(ibv_resize_cq(cq, want), 0, "ibv_resize_cq");
		EXPECT(cq->cqe >= want, "cqe is %d", cq->cqe);
		for (int i = 0; i < 3; i++)
			post_write(&p.a, posted++);
		while (polled < posted - round % 3)
			T_DONE(cq, polled++, IBV_WC_RDMA_WRITE);
	}
	while (polled < posted)
		T_DONE(cq, polled++, IBV_WC_RDMA_WRITE);
	T_QUIET(cq);

	for (int i = 0; i < 40; i++)
		post_write(&p.a, i);
	usleep(5000);
	EXPECT(ibv_resize_cq(cq, 20) != 0, "smaller than what is inside");
	for (int i = 0; i < 40; i++)
		T_DONE(cq, i, -1);
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

/* A queue of n entries holds n completions, and wraps for ever. */
static void wraps(const void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 7, NULL, NULL, 0);
	struct t_spec s = { .ops = T_RC_OPS, .scq = cq };
	struct t_pair p = t_pair(env, &s);

	(void)arg;
	EXPECT(cq->cqe >= 7, "cqe is %d", cq->cqe);
	for (int i = 0; i < 20000 && !t_state.failures; i += 7) {
		for (int k = 0; k < 7; k++)
			post_write(&p.a, i + k);
		for (int k = 0; k < 7; k++)
			T_DONE(cq, i + k, -1);
	}
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

/* More completions than entries: the CQ is in error, its event comes, the queue pairs go to ERR, nothing is written
 * outside. */
static void overflow(const void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 4, NULL, NULL, 0);
	struct t_spec s = { .ops = T_RC_OPS, .scq = cq, .sq = 64 };
	struct t_pair p = t_pair(env, &s);
	struct pollfd fd = { .fd = env->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;
	bool cq_err = false;
	int n = cq->cqe + 1;

	(void)arg;
	for (int i = 0; i < n + 8 && i < 64; i++)
		post_write(&p.a, i);
	while (poll(&fd, 1, cq_err ? 50 : 10000) == 1) {
		MUST(!ibv_get_async_event(env->ctx, &ev), "ibv_get_async_event");
		if (ev.event_type == IBV_EVENT_CQ_ERR) {
			EXPECT(ev.element.cq == cq, "the CQ of the event");
			cq_err = true;
		}
		ibv_ack_async_event(&ev);
	}
	EXPECT(cq_err, "IBV_EVENT_CQ_ERR did not come");
	EXPECT_EQ(t_qp_state(p.a.qp), IBV_QPS_ERR, "state of the queue pair");
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

static void timestamps(const void *arg)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 32, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(env->ctx, &attr);
	struct t_spec s = { .ops = T_RC_OPS, .scq = ibv_cq_ex_to_cq(cq) };
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct mlx5dv_clock_info info;
	struct ibv_poll_cq_attr none = { 0 };
	struct t_pair p;
	uint64_t before, after, ns[2];

	(void)arg;
	MUST(cq, "ibv_create_cq_ex");
	p = t_pair(env, &s);
	MUST(!ibv_query_rt_values_ex(env->ctx, &values), "ibv_query_rt_values_ex");
	before = (uint64_t)values.raw_clock.tv_sec * 1000000000 + values.raw_clock.tv_nsec;
	for (int i = 0; i < 2; i++) {
		uint64_t end = t_now_ms() + 10000;
		int rc;

		usleep(2000);
		post_write(&p.a, i);
		while ((rc = ibv_start_poll(cq, &none)) == ENOENT && t_now_ms() < end)
			;
		MUST(rc == 0, "ibv_start_poll");
		MUST(!mlx5dv_get_clock_info(env->ctx, &info), "mlx5dv_get_clock_info");
		ns[i] = mlx5dv_ts_to_ns(&info, ibv_wc_read_completion_ts(cq));
		after = ibv_wc_read_completion_ts(cq);
		EXPECT(after >= before, "the timestamp is before the clock that was read first");
		before = after;
		ibv_end_poll(cq);
	}
	EXPECT(ns[1] > ns[0] && ns[1] - ns[0] < 60000000000ull, "nanoseconds %" PRIu64 " then %" PRIu64, ns[0], ns[1]);
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0, "ibv_destroy_cq");
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
	t_case("events", events, NULL);
	t_case("solicited events", solicited, NULL);
	t_case("a channel that does not block", nonblocking_channel, NULL);
	t_case("resized with completions inside", resize, NULL);
	t_case("20,000 completions through eight entries", wraps, NULL);
	t_case("overflow", overflow, NULL);
	t_case("timestamps", timestamps, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
