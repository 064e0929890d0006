/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Asynchronous events: which failure raises which, on which queue pair, once; acknowledging and destroying. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#include "t_why.h"

static struct t_env *env;
static struct t_buf src, dst;

static bool next_event(int ms, struct ibv_async_event *ev)
{
	struct pollfd fd = { .fd = env->ctx->async_fd, .events = POLLIN };

	return poll(&fd, 1, ms) == 1 && !ibv_get_async_event(env->ctx, ev);
}

static void drain(void)
{
	struct ibv_async_event ev;

	while (next_event(5, &ev))
		ibv_ack_async_event(&ev);
}

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 4096, T_ALL);
	dst = t_buf(env, 4096, T_ALL);
}

static const struct row {
	const char *name;
	bool bad_rkey, no_qp_access;
	enum ibv_event_type event;	/* at the responder */
} rows[] = {
	{ "bad rkey: access error at the responder", true, false, IBV_EVENT_QP_ACCESS_ERR },
	{ "right missing: invalid request at the responder", false, true, IBV_EVENT_QP_REQ_ERR },
};

static void responder(const void *arg)
{
	const struct row *r = arg;
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = { .a = t_qp(env, &s), .b = t_qp(env, &s) };
	struct ibv_qp_attr attr = t_attr(env, p.b.qp->qp_num);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key ^ (r->bad_rkey ? 0x12300 : 0), dst.va);
	struct ibv_async_event ev;

	t_to_rts(p.a.qp, &attr);
	attr.dest_qp_num = p.a.qp->qp_num;
	if (r->no_qp_access)
		attr.qp_access_flags = 0;
	t_to_rts(p.b.qp, &attr);
	drain();
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	EXPECT(t_poll(p.a.scq).wc.status != IBV_WC_SUCCESS, "the WRITE did not fail");
	if (EXPECT(next_event(10000, &ev), "no event")) {
		EXPECT_EQ(ev.event_type, r->event, "event");
		EXPECT(ev.element.qp == p.b.qp, "the queue pair of the event");
		ibv_ack_async_event(&ev);
	}
	EXPECT(!next_event(20, &ev), "a second event: %s", ibv_event_type_str(ev.event_type));
	t_pair_free(&p);
}

/* A requester's own error is told by its completion: no event. */
static void requester(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key, dst.va);
	struct ibv_async_event ev;

	(void)arg;
	drain();
	o.sge[0].lkey ^= 0x55500;
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_FAILED(p.a.scq, 1, T_GATHER_KEY);
	EXPECT(!next_event(20, &ev), "an event: %s", ibv_event_type_str(ev.event_type));
	t_pair_free(&p);
}

/* A queue pair on an SRQ that goes to ERR says when it takes no more receives. */
static void last_wqe(const void *arg)
{
	struct ibv_srq *srq = t_srq(env, 4);
	struct t_spec s = { .ops = T_RC_OPS, .srq = srq };
	struct t_pair p = t_pair(env, &s);
	struct ibv_qp_attr attr = { 0 };
	struct ibv_async_event ev;

	(void)arg;
	drain();
	MUST(!t_modify(p.b.qp, &attr, IBV_QPS_ERR, IBV_QP_STATE), "to ERR");
	if (EXPECT(next_event(10000, &ev), "no event")) {
		EXPECT_EQ(ev.event_type, IBV_EVENT_QP_LAST_WQE_REACHED, "event");
		EXPECT(ev.element.qp == p.b.qp, "the queue pair of the event");
		ibv_ack_async_event(&ev);
	}
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

/* Events that nobody took go with their queue pair. */
static void destroyed_before_read(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key ^ 0x12300, dst.va);
	struct ibv_async_event ev;

	(void)arg;
	drain();
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_FAILED(p.a.scq, 1, T_REM_ACCESS);
	t_pair_free(&p);
	EXPECT(!next_event(20, &ev), "an event of a queue pair that is gone");
}

static void *destroy(void *qp)
{
	return (void *)(intptr_t)ibv_destroy_qp(qp);
}

/* Destroying waits until events that were taken are acknowledged. */
static void ack_before_destroy(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key ^ 0x12300, dst.va);
	struct ibv_async_event ev;
	struct timespec soon;
	pthread_t thread;
	void *rc;

	(void)arg;
	drain();
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_FAILED(p.a.scq, 1, T_REM_ACCESS);
	MUST(next_event(10000, &ev) && ev.element.qp == p.b.qp, "the event comes");
	MUST(!pthread_create(&thread, NULL, destroy, p.b.qp), "pthread_create");
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 50000000;
	if (soon.tv_nsec >= 1000000000) {
		soon.tv_nsec -= 1000000000;
		soon.tv_sec++;
	}
	EXPECT(pthread_timedjoin_np(thread, NULL, &soon) == ETIMEDOUT, "destroyed before the event was acknowledged");
	ibv_ack_async_event(&ev);
	MUST(!pthread_join(thread, &rc), "pthread_join");
	EXPECT(rc == NULL, "ibv_destroy_qp is %ld", (long)(intptr_t)rc);
	p.b.qp = NULL;
	t_pair_free(&p);
}

static void nonblocking(const void *arg)
{
	struct ibv_async_event ev;

	(void)arg;
	drain();
	EXPECT_EQ(fcntl(env->ctx->async_fd, F_SETFL, fcntl(env->ctx->async_fd, F_GETFL) | O_NONBLOCK), 0, "fcntl");
	errno = 0;
	EXPECT(ibv_get_async_event(env->ctx, &ev) && errno == EAGAIN, "errno %d", errno);
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
		t_case(rows[i].name, responder, &rows[i]);
	t_case("requester's errors raise none", requester, NULL);
	t_case("last WQE reached", last_wqe, NULL);
	t_case("destroyed before its event was read", destroyed_before_read, NULL);
	t_case("destroy waits for acknowledgement", ack_before_destroy, NULL);
	t_case("a descriptor that does not block", nonblocking, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
