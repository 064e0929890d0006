/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Each kind of queue between threads: who posts, who polls and who waits for events are different threads, and one
 * changes the queue under them. Counted is that nothing is lost or comes twice; ThreadSanitizer sees the rest. */
#include <poll.h>
#include <pthread.h>

#include "t_why.h"

enum { MESSAGES = 4000, LIMIT_MS = 60000 };

static struct t_env *env;
static struct t_buf mem;

/* What the threads of one case share. */
static struct shared {
	struct t_pair p[2];
	struct ibv_srq *srq;
	struct ibv_cq *rcq;
	struct ibv_cq_ex *cq_ex;
	struct ibv_comp_channel *channel;
	struct ibv_ah *ah;
	uint32_t dctn;
	uint64_t end_ms;
	int posted, sent, received, flushed, errors;
	bool stop;
} s;

static int count(int *n)
{
	return __atomic_load_n(n, __ATOMIC_RELAXED);
}

static void add(int *n, int by)
{
	__atomic_fetch_add(n, by, __ATOMIC_RELAXED);
}

static bool in_time(void)
{
	return t_now_ms() < s.end_ms && !count(&s.errors);
}

static void begin(void)
{
	memset(&s, 0, sizeof(s));
	s.end_ms = t_now_ms() + LIMIT_MS;
}

static void run_threads(void *(*const *fn)(void *), int n)
{
	pthread_t thread[8];

	for (int i = 0; i < n; i++)
		MUST(!pthread_create(&thread[i], NULL, fn[i], (void *)(uintptr_t)i), "pthread_create");
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
}

/* Takes send completions. */
static void take_sent(struct ibv_cq *cq)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(cq, 4, wc);

	for (int i = 0; i < n; i++)
		add(wc[i].status == IBV_WC_SUCCESS ? &s.sent : &s.errors, 1);
	add(&s.errors, n < 0);
}

/* Half of all messages, over a pair of its own. */
static void *send_half(void *arg)
{
	struct t_qp *q = &s.p[(uintptr_t)arg & 1].a;
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&mem, 0, 64));

	for (int i = 0; i < MESSAGES / 2 && in_time();) {
		int rc = i & 1 ? t_post(q, &o) : t_post_old(q, &o);

		if (!rc)
			i++;
		else
			add(&s.errors, rc != ENOMEM);
		take_sent(q->scq);
	}
	while (count(&s.sent) < MESSAGES && in_time())
		take_sent(q->scq);
	return NULL;
}

/* ---- a shared receive queue: any thread gives back what it took ---- */

static void *receive_and_repost(void *arg)
{
	struct ibv_sge to = t_sge(&mem, 4096 + (uintptr_t)arg * 64, 64);

	while (count(&s.received) < MESSAGES && in_time()) {
		struct ibv_recv_wr *bad, wr = { .sg_list = &to, .num_sge = 1 };
		struct ibv_wc wc[3];
		int n = ibv_poll_cq(s.rcq, 3, wc);

		for (int i = 0; i < n; i++) {
			add(wc[i].status == IBV_WC_SUCCESS ? &s.received : &s.errors, 1);
			wr.wr_id = wc[i].wr_id;
			add(&s.errors, ibv_post_srq_recv(s.srq, &wr, &bad) != 0);
		}
		add(&s.errors, n < 0);
	}
	return NULL;
}

static void shared_receives(const void *arg)
{
	void *(*const fn[])(void *) = { send_half, send_half, receive_and_repost, receive_and_repost };
	struct t_spec spec = { .ops = T_RC_OPS, .sq = 64, .cqe = 1024 };

	(void)arg;
	begin();
	s.srq = t_srq(env, 64);
	s.rcq = ibv_create_cq(env->ctx, 1024, NULL, NULL, 0);
	MUST(s.rcq, "ibv_create_cq");
	spec.srq = s.srq;
	spec.rcq = s.rcq;
	for (int i = 0; i < 2; i++)
		s.p[i] = t_pair(env, &spec);
	for (int i = 0; i < 48; i++)
		t_srq_recv(s.srq, i, t_sge(&mem, 4096, 64));
	run_threads(fn, 4);
	EXPECT_EQ(s.errors, 0, "errors");
	EXPECT_EQ(s.sent, MESSAGES, "sent");
	EXPECT_EQ(s.received, MESSAGES, "received");
	for (int i = 0; i < 2; i++)
		t_pair_free(&s.p[i]);
	EXPECT_EQ(ibv_destroy_srq(s.srq), 0, "ibv_destroy_srq");
	EXPECT_EQ(ibv_destroy_cq(s.rcq), 0, "ibv_destroy_cq");
}

/* ---- a receive queue of its own: one thread posts, another polls ---- */

static void *post_receives(void *arg)
{
	struct ibv_sge to = t_sge(&mem, 4096, 64);

	(void)arg;
	while (count(&s.posted) < MESSAGES && in_time()) {
		struct ibv_recv_wr *bad, wr = { .sg_list = &to, .num_sge = 1 };
		int rc = ibv_post_recv(s.p[0].b.qp, &wr, &bad);

		add(&s.posted, !rc);
		add(&s.errors, rc && rc != ENOMEM);
	}
	return NULL;
}

static void *poll_receives(void *arg)
{
	struct ibv_wc wc[3];

	(void)arg;
	while (count(&s.received) < MESSAGES && in_time()) {
		int n = ibv_poll_cq(s.p[0].b.rcq, 3, wc);

		for (int i = 0; i < n; i++)
			add(wc[i].status == IBV_WC_SUCCESS ? &s.received : &s.errors, 1);
		add(&s.errors, n < 0);
	}
	return NULL;
}

static void own_receives(const void *arg)
{
	void *(*const fn[])(void *) = { send_half, post_receives, send_half, poll_receives };
	struct t_spec spec = { .ops = T_RC_OPS, .sq = 64, .rq = 64, .cqe = 1024 };

	(void)arg;
	begin();
	s.p[0] = t_pair(env, &spec);
	run_threads(fn, 4);	/* both senders on the one pair */
	EXPECT_EQ(s.errors, 0, "errors");
	EXPECT_EQ(s.sent, MESSAGES, "sent");
	EXPECT_EQ(s.received, MESSAGES, "received");
	t_pair_free(&s.p[0]);
}

/* ---- streams of one DCI, a thread each ---- */

static void *stream_of_its_own(void *arg)
{
	struct t_qp *q = &s.p[0].a;
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&mem, 0, 64), mem.key, mem.va + 8192 + (uintptr_t)arg * 64);

	o.ah = s.ah;
	o.dest = s.dctn;
	o.dc_key = 0x77;
	o.stream = (int)(uintptr_t)arg;
	for (int i = 0; i < MESSAGES / 4 && in_time();) {
		int rc;

		o.flags = i % 3 ? IBV_SEND_SIGNALED : IBV_SEND_SIGNALED | IBV_SEND_FENCE;
		rc = t_post(q, &o);
		i += !rc;
		add(&s.errors, rc && rc != ENOMEM);
		take_sent(q->scq);
	}
	while (count(&s.sent) < MESSAGES && in_time())
		take_sent(q->scq);
	return NULL;
}

static void streams(const void *arg)
{
	void *(*const fn[])(void *) = { stream_of_its_own, stream_of_its_own, stream_of_its_own, stream_of_its_own };
	struct t_spec spec = { .ops = T_RC_OPS, .sq = 64, .cqe = 1024, .streams = true, .log_streams = 2,
			       .log_errored = 2 };
	struct ibv_srq *srq = t_srq(env, 16);
	struct t_qp dct = t_dct(env, srq, 0x77);

	(void)arg;
	begin();
	s.p[0].a = t_dci(env, spec);
	s.ah = t_ah(env);
	s.dctn = dct.qp->qp_num;
	run_threads(fn, 4);
	EXPECT_EQ(s.errors, 0, "errors");
	EXPECT_EQ(s.sent, MESSAGES, "completions");
	t_qp_free(&s.p[0].a);
	t_qp_free(&dct);
	EXPECT_EQ(ibv_destroy_ah(s.ah), 0, "ibv_destroy_ah");
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

/* ---- one CQ: two threads poll it by ibv_cq_ex, one sleeps for its events, one resizes it ---- */

static void *post_writes(void *arg)
{
	struct t_qp *q = &s.p[0].a;

	(void)arg;
	for (int i = 0; i < MESSAGES && in_time();) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&mem, 0, 8), mem.key, mem.va + 8192);
		int rc = t_post(q, &o);

		i += !rc;
		add(&s.errors, rc && rc != ENOMEM);
	}
	return NULL;
}

static void poll_extended(void)
{
	struct ibv_poll_cq_attr attr = { 0 };

	if (ibv_start_poll(s.cq_ex, &attr))
		return;
	do {
		if (s.cq_ex->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(s.cq_ex) == IBV_WC_RDMA_WRITE &&
		    s.cq_ex->wr_id < MESSAGES)
			add(&s.sent, 1);
		else
			add(&s.errors, 1);
	} while (!ibv_next_poll(s.cq_ex));
	ibv_end_poll(s.cq_ex);
}

static void *poll_and_finish(void *arg)
{
	(void)arg;
	while (count(&s.sent) < MESSAGES && in_time())
		poll_extended();
	__atomic_store_n(&s.stop, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Sleeps for events, with a look at the end now and then. */
static void *sleep_and_poll(void *arg)
{
	struct ibv_cq *cq = ibv_cq_ex_to_cq(s.cq_ex), *got;
	struct pollfd fd = { .fd = s.channel->fd, .events = POLLIN };
	void *context;

	(void)arg;
	while (!__atomic_load_n(&s.stop, __ATOMIC_ACQUIRE)) {
		add(&s.errors, ibv_req_notify_cq(cq, 0) != 0);
		poll_extended();
		if (poll(&fd, 1, 1) != 1)
			continue;
		if (ibv_get_cq_event(s.channel, &got, &context) || got != cq) {
			add(&s.errors, 1);
			break;
		}
		ibv_ack_cq_events(cq, 1);
	}
	return NULL;
}

static void *resize(void *arg)
{
	struct ibv_cq *cq = ibv_cq_ex_to_cq(s.cq_ex);

	(void)arg;
	for (int i = 0; !__atomic_load_n(&s.stop, __ATOMIC_ACQUIRE); i++) {
		add(&s.errors, ibv_resize_cq(cq, i & 1 ? 500 : 1500) != 0);
		usleep(200);
	}
	return NULL;
}

static void one_completion_queue(const void *arg)
{
	void *(*const fn[])(void *) = { post_writes, poll_and_finish, sleep_and_poll, resize };
	struct ibv_cq_init_attr_ex attr = { .cqe = 1000 };
	struct t_spec spec = { .ops = T_RC_OPS, .sq = 64 };

	(void)arg;
	begin();
	s.channel = ibv_create_comp_channel(env->ctx);
	MUST(s.channel, "ibv_create_comp_channel");
	attr.channel = s.channel;
	s.cq_ex = ibv_create_cq_ex(env->ctx, &attr);
	MUST(s.cq_ex, "ibv_create_cq_ex");
	spec.scq = ibv_cq_ex_to_cq(s.cq_ex);
	s.p[0] = t_pair(env, &spec);
	run_threads(fn, 4);
	EXPECT_EQ(s.errors, 0, "errors");
	EXPECT_EQ(s.sent, MESSAGES, "completions");
	t_pair_free(&s.p[0]);
	EXPECT_EQ(ibv_destroy_cq(spec.scq), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_destroy_comp_channel(s.channel), 0, "ibv_destroy_comp_channel");
}

/* ---- the queue pair goes to ERR under the poster; others ask about it ---- */

static void *post_until_err(void *arg)
{
	struct t_qp *q = &s.p[0].a;
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&mem, 0, 8), mem.key, mem.va + 8192);
	struct ibv_wc wc;
	int flushed = 0;

	while (flushed < 100 && in_time()) {
		int rc = (uintptr_t)arg ? t_post(q, &o) : t_post_old(q, &o);

		add(&s.posted, !rc);
		add(&s.errors, rc && rc != ENOMEM);
		while (ibv_poll_cq(q->scq, 1, &wc) == 1) {
			add(wc.status == IBV_WC_SUCCESS ? &s.sent : &s.flushed, 1);
			flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
		}
	}
	return NULL;
}

static void *ask(void *arg)
{
	struct softmlx5_refusal r;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	(void)arg;
	do {
		add(&s.errors, ibv_query_qp(s.p[0].a.qp, &attr, IBV_QP_STATE, &init) != 0);
		softmlx5_last_refusal(env->ctx, 0, &r);
	} while (attr.qp_state != IBV_QPS_ERR && in_time());
	return NULL;
}

static void *to_err(void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)arg;
	while (count(&s.posted) < 500 && in_time())
		;
	add(&s.errors, ibv_modify_qp(s.p[0].a.qp, &attr, IBV_QP_STATE) != 0);
	return NULL;
}

static void error_meanwhile(const void *arg)
{
	void *(*const fn[])(void *) = { post_until_err, post_until_err, ask, to_err };
	struct t_spec spec = { .ops = T_RC_OPS, .sq = 64, .cqe = 1024 };
	struct ibv_wc wc;

	(void)arg;
	for (int round = 0; round < 5; round++) {
		begin();
		s.p[0] = t_pair(env, &spec);
		run_threads(fn, 4);
		while (ibv_poll_cq(s.p[0].a.scq, 1, &wc) == 1)
			add(wc.status == IBV_WC_SUCCESS ? &s.sent : &s.flushed, 1);
		EXPECT_EQ(s.errors, 0, "errors");
		EXPECT_EQ(s.sent + s.flushed, s.posted, "completions");
		t_pair_free(&s.p[0]);
	}
}

static void *post_one_receive(void *q)
{
	t_recv(q, 7, t_sge(&mem, 0, 64));
	return NULL;
}

static void post_from_a_thread(struct t_qp *q)
{
	pthread_t thread;

	MUST(!pthread_create(&thread, NULL, post_one_receive, q), "pthread_create");
	pthread_join(thread, NULL);
}

/* A sender waits for one, and in ERR one is flushed. */
static void awaited_receives(const void *arg)
{
	struct t_spec spec = { 0 };
	struct t_pair p = t_pair(env, &spec);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&mem, 0, 64));
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };

	(void)arg;
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	post_from_a_thread(&p.b);
	T_DONE(p.b.rcq, 7, IBV_WC_RECV);
	T_DONE(p.a.scq, 1, IBV_WC_SEND);
	MUST(!ibv_modify_qp(p.b.qp, &err, IBV_QP_STATE), "ibv_modify_qp");
	post_from_a_thread(&p.b);
	T_FAILED(p.b.rcq, 7, T_FLUSH);
	t_pair_free(&p);
}

int main(void)
{
	env = t_open();
	mem = t_buf(env, 1 << 16, T_ALL);
	t_case("a shared receive queue", shared_receives, NULL);
	t_case("a receive queue of its own", own_receives, NULL);
	t_case("receives that are awaited", awaited_receives, NULL);
	t_case("four streams of one DCI", streams, NULL);
	t_case("one CQ polled, waited for and resized", one_completion_queue, NULL);
	t_case("to ERR while posting", error_meanwhile, NULL);
	t_buf_free(&mem);
	return t_close(env);
}
