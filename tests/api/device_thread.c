/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: work that no posting call finishes is finished by the device's own thread, which sleeps otherwise; events wake
 * who sleeps; a forked child has a device of its own.
 * Method: programs that never poll wait for an event. How often the process runs while nothing happens is counted. A
 * child works past the budget of a posting call, so that it needs a thread of its own, and the parent looks at its
 * memory. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>

#include "t_idle.h"

enum { MIB = 1 << 20, EVENTS = 50 };

static struct t_env *env;
static struct t_buf src, dst;

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, MIB, T_ALL);
	dst = t_buf(env, MIB, T_ALL);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&src);
	t_buf_free(&dst);
}

/* A pair whose sender's completions are announced on a channel. */
struct announced {
	struct ibv_comp_channel *ch;
	struct t_pair p;
};

static struct announced announced(void *cq_context)
{
	struct announced a = { .ch = ibv_create_comp_channel(env->ctx) };
	struct t_spec s = { 0 };

	MUST(a.ch, "ibv_create_comp_channel");
	s.scq = ibv_create_cq(env->ctx, 64, cq_context, a.ch, 0);
	MUST(s.scq, "ibv_create_cq");
	a.p = t_pair(env, &s);
	return a;
}

static void announced_free(struct announced *a)
{
	struct ibv_cq *cq = a->p.a.scq;

	EXPECT_EQ(ibv_destroy_comp_channel(a->ch), EBUSY, "destroying a channel in use");
	t_pair_free(&a->p);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_destroy_comp_channel(a->ch), 0, "ibv_destroy_comp_channel");
}

static struct t_op write_op(uint32_t len, uint64_t wr_id)
{
	return t_rdma(IBV_WR_RDMA_WRITE, wr_id, t_sge(&src, 0, len), dst.mr->rkey, dst.va);
}

/* Waits for an event, without ever polling, and acknowledges it. */
static bool wait_event(struct ibv_comp_channel *ch, int ms)
{
	struct pollfd fd = { .fd = ch->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, ms) != 1 || ibv_get_cq_event(ch, &cq, &context))
		return false;
	ibv_ack_cq_events(cq, 1);
	return true;
}

/* ---- the thread ---- */

/* More bytes than a posting call moves; nobody polls until the last request is done. */
static void beyond_budget(const void *arg)
{
	enum { COUNT = 24 };
	struct announced a = announced(NULL);
	struct ibv_wc wc = { 0 };

	(void)arg;
	t_fill(src.p, MIB, 5);
	MUST(!ibv_req_notify_cq(a.p.a.scq, 0), "ibv_req_notify_cq");
	for (int i = 0; i < COUNT; i++) {
		struct t_op o = write_op(MIB, i);

		if (i != COUNT - 1)
			o.flags = 0;
		EXPECT_EQ(t_post_old(&a.p.a, &o), 0, "post");
	}
	EXPECT(wait_event(a.ch, 10000), "no event in ten seconds");
	EXPECT(ibv_poll_cq(a.p.a.scq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS,
	       "no good completion behind the event");
	EXPECT_EQ(wc.wr_id, COUNT - 1, "wr_id");
	EXPECT(t_is(dst.p, MIB, 5), "data");
	announced_free(&a);
}

/* A receive comes late: the request waits on a timer. */
static void timer(const void *arg)
{
	struct announced a = announced(NULL);
	struct t_op o = t_op(IBV_WR_SEND, 3, t_sge(&src, 0, 64));

	(void)arg;
	MUST(!ibv_req_notify_cq(a.p.a.scq, 0), "ibv_req_notify_cq");
	EXPECT_EQ(t_post_old(&a.p.a, &o), 0, "post");
	EXPECT(!wait_event(a.ch, 30), "the send completed without a receive");
	t_recv(&a.p.b, 4, t_sge(&dst, 0, 64));
	EXPECT(wait_event(a.ch, 10000), "no event in ten seconds");
	announced_free(&a);
}

/* Others may send to a DCT at any time: somebody has to listen, asleep. */
static void idle(const void *arg)
{
	struct ibv_srq *srq = t_srq(env, 16);
	struct t_qp dct = t_dct(env, srq, 77);
	struct t_spec s = { 0 };
	struct t_pair p = t_pair(env, &s);
	struct t_work before;

	(void)arg;
	usleep(20000);
	before = t_work(getpid());
	usleep(1000000);
	t_expect_idle(before, getpid(), "the process");
	t_pair_free(&p);
	t_qp_free(&dct);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

/* ---- events ---- */

struct sleeper {
	pthread_t thread;
	struct ibv_comp_channel *ch;
	unsigned int events;
};

static void *sleep_for_events(void *arg)
{
	struct sleeper *z = arg;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	while (__atomic_load_n(&z->events, __ATOMIC_RELAXED) < EVENTS && !ibv_get_cq_event(z->ch, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		ibv_req_notify_cq(cq, 0);
		while (ibv_poll_cq(cq, 1, &wc) == 1)
			__atomic_fetch_add(&z->events, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* ibv_get_cq_event() blocks; each completion wakes it. */
static void wakes_sleeper(const void *arg)
{
	struct announced a = announced(NULL);
	struct sleeper z = { .ch = a.ch };

	(void)arg;
	MUST(!ibv_req_notify_cq(a.p.a.scq, 0), "ibv_req_notify_cq");
	MUST(!pthread_create(&z.thread, NULL, sleep_for_events, &z), "pthread_create");
	for (unsigned int i = 0; i < EVENTS; i++) {
		struct t_op o = write_op(8, i);
		uint64_t end = t_now_ms() + 5000;

		EXPECT_EQ(t_post_old(&a.p.a, &o), 0, "post");
		while (__atomic_load_n(&z.events, __ATOMIC_ACQUIRE) <= i && t_now_ms() < end)
			usleep(50);
		MUST(__atomic_load_n(&z.events, __ATOMIC_ACQUIRE) > i, "the sleeper was not woken");
	}
	pthread_join(z.thread, NULL);
	announced_free(&a);
}

/* A descriptor in O_NONBLOCK mode says EAGAIN, and is readable exactly while an event waits. */
static void nonblocking(const void *arg)
{
	struct pollfd fd = { .events = POLLIN };
	struct announced a = announced(&fd);
	struct t_op o = write_op(8, 1);
	struct ibv_cq *cq = NULL;
	void *context = NULL;

	(void)arg;
	fd.fd = a.ch->fd;
	MUST(!fcntl(fd.fd, F_SETFL, fcntl(fd.fd, F_GETFL) | O_NONBLOCK), "fcntl");
	EXPECT(ibv_get_cq_event(a.ch, &cq, &context) == -1 && errno == EAGAIN, "errno %d without an event", errno);
	EXPECT_EQ(poll(&fd, 1, 0), 0, "poll without an event");
	EXPECT_EQ(ibv_req_notify_cq(a.p.a.scq, 0), 0, "ibv_req_notify_cq");
	EXPECT_EQ(t_post_old(&a.p.a, &o), 0, "post");
	EXPECT_EQ(poll(&fd, 1, 5000), 1, "poll with an event");
	EXPECT(!ibv_get_cq_event(a.ch, &cq, &context), "ibv_get_cq_event");
	EXPECT(cq == a.p.a.scq && context == &fd, "the event's queue and context");
	EXPECT_EQ(poll(&fd, 1, 0), 0, "poll after the event");
	ibv_ack_cq_events(a.p.a.scq, 1);
	announced_free(&a);
}

/* An event that nobody read goes with its queue: the channel is quiet afterwards. */
static void event_of_destroyed_cq(const void *arg)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(env->ctx);
	struct pollfd fd = { .events = POLLIN };
	struct t_op o = write_op(8, 1);
	struct t_spec s = { 0 };
	struct t_pair p;

	(void)arg;
	MUST(ch, "ibv_create_comp_channel");
	fd.fd = ch->fd;
	s.scq = ibv_create_cq(env->ctx, 64, NULL, ch, 0);
	MUST(s.scq, "ibv_create_cq");
	p = t_pair(env, &s);
	EXPECT_EQ(ibv_req_notify_cq(s.scq, 0), 0, "ibv_req_notify_cq");
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "post");
	EXPECT_EQ(poll(&fd, 1, 5000), 1, "poll with an event");
	EXPECT_EQ(ibv_destroy_cq(s.scq), EBUSY, "destroying a queue in use");
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_cq(s.scq), 0, "ibv_destroy_cq");
	EXPECT_EQ(poll(&fd, 1, 0), 0, "poll after the queue went");
	EXPECT_EQ(ibv_destroy_comp_channel(ch), 0, "ibv_destroy_comp_channel");
}

/* ---- fork ---- */

static bool poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t end = t_now_ms() + 10000;

	while (t_now_ms() < end) {
		if (ibv_poll_cq(cq, 1, wc) == 1)
			return wc->status == IBV_WC_SUCCESS;
	}
	return false;
}

/* RETURN 0 when all was well. */
static int work_in_child(struct announced *a)
{
	struct ibv_wc wc;

	t_fill(src.p, MIB, 77);
	ibv_req_notify_cq(a->p.a.scq, 0);
	for (unsigned int i = 0; i < 16; i++) {
		struct t_op o = write_op(MIB, i);

		if (t_post_old(&a->p.a, &o))
			return 1;
	}
	if (!wait_event(a->ch, 10000))
		return 2;
	for (unsigned int i = 0; i < 16; i++) {
		if (!poll_one(a->p.a.scq, &wc) || wc.wr_id != i)
			return 3;
	}
	return t_is(dst.p, MIB, 77) ? 0 : 4;
}

static void child(const void *arg)
{
	struct announced a = announced(NULL);
	struct pollfd fd = { .fd = a.ch->fd, .events = POLLIN };
	struct t_op o = write_op(64, 9);
	struct ibv_wc wc = { 0 };
	int status = -1;
	pid_t pid;

	(void)arg;
	memset(dst.p, 0, MIB);
	pid = fork();
	MUST(pid >= 0, "fork");
	if (!pid)
		_exit(work_in_child(&a));
	MUST(waitpid(pid, &status, 0) == pid, "waitpid");
	EXPECT(WIFEXITED(status) && !WEXITSTATUS(status), "the child ended with 0x%x", (unsigned int)status);
	EXPECT(t_all(dst.p, MIB, 0), "the child wrote into the parent's memory");
	EXPECT_EQ(ibv_poll_cq(a.p.a.scq, 1, &wc), 0, "completions of the child in the parent");
	EXPECT_EQ(poll(&fd, 1, 0), 0, "events of the child in the parent");
	t_fill(src.p, 64, 78);
	EXPECT_EQ(t_post_old(&a.p.a, &o), 0, "post in the parent");
	EXPECT(poll_one(a.p.a.scq, &wc) && wc.wr_id == 9 && t_is(dst.p, 64, 78), "the parent's request");
	announced_free(&a);
}

/* A context that is closed while something is left in it does no harm to what is left. */
static void closed_with_objects(const void *arg)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;
	static char mem[4096];
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	(void)arg;
	MUST(list && list[0], "ibv_get_device_list");
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	MUST(ctx, "ibv_open_device");
	pd = ibv_alloc_pd(ctx);
	MUST(pd, "ibv_alloc_pd");
	mr = ibv_reg_mr(pd, mem, sizeof(mem), IBV_ACCESS_LOCAL_WRITE);
	MUST(mr, "ibv_reg_mr");
	EXPECT_EQ(ibv_close_device(ctx), 0, "ibv_close_device");
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr afterwards");
	EXPECT_EQ(ibv_dealloc_pd(pd), 0, "ibv_dealloc_pd afterwards");
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("an idle process sleeps", idle, NULL);
	t_case("what exceeds a posting call's budget is done without polling", beyond_budget, NULL);
	t_case("timers run without polling", timer, NULL);
	t_case("an idle process sleeps after the thread was needed", idle, NULL);
	t_case("a completion event wakes a thread that sleeps", wakes_sleeper, NULL);
	t_case("a channel in O_NONBLOCK mode", nonblocking, NULL);
	t_case("an event goes with its queue", event_of_destroyed_cq, NULL);
	t_case("a forked child works with its own copy", child, NULL);
	t_case("a context closed with objects in it", closed_with_objects, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
