/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Threads that post one-sided requests at the same time, each on what is its own or on what they share, and what others
 * change meanwhile: keys, queue pairs, the process. Everything completes once, in order and with its bytes; what is
 * taken back is taken back when the call returns. */
#include <poll.h>
#include <pthread.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "umr.h"

enum { THREADS = 4, AREA = 8192, ROUNDS = 400, BATCH = 8, HANDLED = 60 };

static struct t_env *env;

/* A thread that writes from its own half of an area into the other. */
struct worker {
	pthread_t thread;
	int id, errors;
	struct t_pair pair;
	struct t_buf area;
	struct ibv_cq *cq;		/* where its completions are */
	pthread_barrier_t *start;
	bool *stop;
	/* of another's memory, for those who write there */
	uint32_t key;
	uint64_t va;
	uint64_t done, failed;
};

static void make(struct worker *w, int n, struct ibv_cq *cq)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .sq = 64, .scq = cq };

	memset(w, 0, n * sizeof(*w));
	for (int i = 0; i < n; i++) {
		w[i].id = i;
		w[i].pair = t_pair(env, &s);
		w[i].area = t_buf(env, 2 * AREA, T_ALL);
		w[i].cq = w[i].pair.a.scq;
	}
}

static void unmake(struct worker *w, int n)
{
	for (int i = 0; i < n; i++) {
		EXPECT_EQ(w[i].errors, 0, "errors of a thread");
		t_pair_free(&w[i].pair);
		t_buf_free(&w[i].area);
	}
}

static void run_beside(struct worker *w, int n, void *(*fn)(void *), void (*beside)(struct worker *w, int n))
{
	pthread_barrier_t start;
	bool stop = false;

	pthread_barrier_init(&start, NULL, n + 1);
	for (int i = 0; i < n; i++) {
		w[i].start = &start;
		w[i].stop = &stop;
		MUST(!pthread_create(&w[i].thread, NULL, fn, &w[i]), "pthread_create");
	}
	pthread_barrier_wait(&start);
	if (beside)
		beside(w, n);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < n; i++)
		pthread_join(w[i].thread, NULL);
	pthread_barrier_destroy(&start);
}

static bool stopped(const struct worker *w)
{
	return __atomic_load_n(w->stop, __ATOMIC_RELAXED);
}

/* RETURN the status of the next completion, or -1 when it does not come. */
static int wait_wc(struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t end = t_now_ms() + 30000;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc)) && t_now_ms() < end)
		;
	return n == 1 ? (int)wc->status : -1;
}

/* WRITEs and a READ back, the last of them signaled; then all bytes are there. */
static int write_and_look(struct worker *w, uint32_t seed)
{
	struct t_op o[BATCH + 1];
	uint32_t len = AREA / 2 / BATCH;
	uint8_t *p = w->area.p;
	struct ibv_wc wc;

	t_fill(p, AREA / 2, seed);
	for (int i = 0; i < BATCH; i++) {
		o[i] = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&w->area, i * len, len), w->area.key,
			      w->area.va + AREA + i * len);
		o[i].flags = 0;
	}
	o[BATCH] = t_rdma(IBV_WR_RDMA_READ, seed, t_sge(&w->area, AREA / 2, AREA / 2), w->area.key,
			  w->area.va + AREA);
	/* Some with a doorbell of their own. */
	for (int i = 0; i < BATCH / 2; i++)
		if (t_post(&w->pair.a, &o[i]))
			return 1;
	if (t_post_n(&w->pair.a, o + BATCH / 2, BATCH / 2 + 1))
		return 1;
	return wait_wc(w->cq, &wc) != IBV_WC_SUCCESS || wc.wr_id != seed || !t_is(p + AREA / 2, AREA / 2, seed) ||
	       !t_is(p + AREA, AREA / 2, seed);
}

static void *write_own(void *arg)
{
	struct worker *w = arg;

	pthread_barrier_wait(w->start);
	for (uint32_t i = 0; i < ROUNDS && !w->errors; i++)
		w->errors += write_and_look(w, i);
	return NULL;
}

static void all_apart(const void *arg)
{
	struct worker w[THREADS];

	(void)arg;
	make(w, THREADS, NULL);
	run_beside(w, THREADS, write_own, NULL);
	unmake(w, THREADS);
}

/* ---- what they share ---- */

static void *write_signaled(void *arg)
{
	struct worker *w = arg;
	uint64_t end = t_now_ms() + 30000;

	pthread_barrier_wait(w->start);
	for (int i = 0; i < ROUNDS && !w->errors; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, w->id * ROUNDS + i, t_sge(&w->area, 0, 8), w->area.key,
				       w->area.va + AREA);
		int rc;

		while ((rc = t_post(&w->pair.a, &o)) == ENOMEM && t_now_ms() < end)
			sched_yield();
		w->errors += rc != 0;
	}
	return NULL;
}

/* Each completion is seen once, those of one queue pair in order. */
static void take_all(struct worker *w, int n)
{
	int next[THREADS] = { 0 }, seen = 0;
	struct ibv_wc wc;

	for (; seen < n * ROUNDS; seen++) {
		int who;

		if (!EXPECT_EQ(wait_wc(w->cq, &wc), IBV_WC_SUCCESS, "a completion"))
			return;
		who = wc.wr_id / ROUNDS;
		if (!EXPECT(who < n && wc.wr_id % ROUNDS == (uint64_t)next[who], "completion %" PRIu64 " of thread %d, "
			    "want %d", wc.wr_id % ROUNDS, who, next[who]))
			return;
		next[who]++;
	}
	T_QUIET(w->cq);
}

static void one_completion_queue(const void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 1024, NULL, NULL, 0);
	struct worker w[THREADS];

	(void)arg;
	make(w, THREADS, cq);
	run_beside(w, THREADS, write_signaled, take_all);
	unmake(w, THREADS);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

static void one_queue_pair(const void *arg)
{
	struct worker w[THREADS];
	struct t_pair own[THREADS];

	(void)arg;
	make(w, THREADS, NULL);
	for (int i = 0; i < THREADS; i++) {
		own[i] = w[i].pair;
		w[i].pair = w[0].pair;
	}
	run_beside(w, THREADS, write_signaled, take_all);
	for (int i = 0; i < THREADS; i++)
		w[i].pair = own[i];
	unmake(w, THREADS);
}

/* A full queue loses completions, and says so; it is no place for anything else to break. */
static void *overflow(void *arg)
{
	struct worker *w = arg;

	pthread_barrier_wait(w->start);
	for (int i = 0; i < 64; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&w->area, 0, 8), w->area.key, w->area.va + AREA);

		if (t_post(&w->pair.a, &o))
			break;
	}
	return NULL;
}

static void a_queue_that_overflows(const void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 63, NULL, NULL, 0);
	struct ibv_async_event event;
	struct worker w[THREADS];
	int queue_errors = 0;
	struct pollfd fd = { .fd = env->ctx->async_fd, .events = POLLIN };

	(void)arg;
	make(w, THREADS, cq);
	run_beside(w, THREADS, overflow, NULL);
	while (poll(&fd, 1, 0) == 1 && !ibv_get_async_event(env->ctx, &event)) {
		queue_errors += event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq;
		ibv_ack_async_event(&event);
	}
	EXPECT_EQ(queue_errors, 1, "IBV_EVENT_CQ_ERR");
	unmake(w, THREADS);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

/* ---- what others change ---- */

static int one_end(struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_qp_attr attr = t_attr(env, dest);
	int err = t_modify(qp, &attr, IBV_QPS_RESET, IBV_QP_STATE);

	if (!err)
		err = t_modify(qp, &attr, IBV_QPS_INIT, T_INIT_MASK);
	if (!err)
		err = t_modify(qp, &attr, IBV_QPS_RTR, T_RTR_MASK);
	return err ? err : t_modify(qp, &attr, IBV_QPS_RTS, T_RTS_MASK);
}

/* Somebody may move a queue pair to ERR meanwhile. RETURN 0 when they are connected. */
static int connect_anew(struct t_pair *p)
{
	int err = EINVAL;

	for (int i = 0; i < 100 && err; i++)
		err = one_end(p->a.qp, p->b.qp->qp_num) || one_end(p->b.qp, p->a.qp->qp_num);
	return err;
}

/* WRITEs to another's memory as long as it may, and connects anew when it may not. */
static void *write_away(void *arg)
{
	struct worker *w = arg;

	pthread_barrier_wait(w->start);
	while (!stopped(w) && !w->errors) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&w->area, 0, 64),
				       __atomic_load_n(&w->key, __ATOMIC_ACQUIRE), w->va);
		struct ibv_wc wc;
		int status;

		if (t_post(&w->pair.a, &o)) {
			w->errors++;
			break;
		}
		status = wait_wc(w->cq, &wc);
		w->done += status == IBV_WC_SUCCESS;
		w->errors += status < 0;
		if (status > 0) {
			w->failed++;
			w->errors += connect_anew(&w->pair);
		}
	}
	return NULL;
}

/* Nobody stores to what was taken back. */
static void expect_still(uint8_t *p, size_t len)
{
	for (int round = 0; round < 3; round++) {
		memset(p, 0xa5, len);
		usleep(300);
		EXPECT(t_all(p, len, 0xa5), "bytes were written after it was taken back");
	}
}

static uint8_t *taken_back;

static void take_keys_back(struct worker *w, int n)
{
	uint8_t *p = taken_back;
	uint64_t end = t_now_ms() + 1500;

	for (int i = 0; i < 100 && t_now_ms() < end; i++) {
		struct ibv_mr *mr = ibv_reg_mr(env->pd, p, 4096, T_ALL);

		MUST(mr, "ibv_reg_mr");
		for (int j = 0; j < n; j++)
			__atomic_store_n(&w[j].key, mr->rkey, __ATOMIC_RELEASE);
		usleep(200);
		EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
		expect_still(p, 4096);
	}
}

static void keys_are_deregistered(const void *arg)
{
	struct worker w[THREADS];
	uint64_t done = 0, failed = 0;

	(void)arg;
	make(w, THREADS, NULL);
	taken_back = aligned_alloc(4096, 4096);
	for (int i = 0; i < THREADS; i++)
		w[i].va = (uintptr_t)taken_back;
	run_beside(w, THREADS, write_away, take_keys_back);
	for (int i = 0; i < THREADS; i++) {
		done += w[i].done;
		failed += w[i].failed;
	}
	EXPECT(failed > 0, "no request failed, %" PRIu64 " succeeded", done);
	unmake(w, THREADS);
	free(taken_back);
}

static void take_queue_pairs_back(struct worker *w, int n)
{
	struct ibv_qp_attr attr = { 0 };

	for (int i = 0; i < 100; i++) {
		int rc;

		usleep(100);
		rc = t_modify(w[i % n].pair.b.qp, &attr, IBV_QPS_ERR, IBV_QP_STATE);
		/* Its writer may be connecting it anew: what is in RESET does not go to ERR. */
		EXPECT(!rc || rc == EINVAL, "to ERR: %d", rc);
	}
}

static void queue_pairs_go_to_err(const void *arg)
{
	struct worker w[THREADS];

	(void)arg;
	make(w, THREADS, NULL);
	for (int i = 0; i < THREADS; i++) {
		w[i].key = w[i].area.key;
		w[i].va = w[i].area.va + AREA;
	}
	run_beside(w, THREADS, write_away, take_queue_pairs_back);
	unmake(w, THREADS);
}

static void make_and_end_objects(struct worker *w, int n)
{
	struct t_spec s = { .ops = T_RC_OPS };
	uint8_t *p = aligned_alloc(4096, 4096);

	(void)w;
	(void)n;
	for (int i = 0; i < 60; i++) {
		struct t_pair pair = t_pair(env, &s);
		struct ibv_mr *mr = ibv_reg_mr(env->pd, p, 4096, T_ALL);

		EXPECT(mr != NULL, "ibv_reg_mr");
		t_pair_free(&pair);
		if (mr)
			ibv_dereg_mr(mr);
	}
	free(p);
}

/* An indirect key is made, used and invalidated, each time anew. */
static void change_keys(struct worker *w, int n)
{
	struct worker own;
	struct umr_layout l = { .n = 2 };
	struct mlx5dv_mkey *mkey;

	(void)w;
	(void)n;
	make(&own, 1, NULL);
	mkey = umr_mkey(env->pd, 4, 0);
	l.list[0] = t_sge(&own.area, 0, 8);
	l.list[1] = t_sge(&own.area, 64, 8);
	for (int i = 0; i < 100; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 7, t_sge(&own.area, AREA, 16), mkey->rkey, 0);
		struct t_op inv = { .op = IBV_WR_LOCAL_INV, .wr_id = 8, .flags = IBV_SEND_SIGNALED, .inv = mkey->lkey };

		t_fill(own.area.p + AREA, 16, i);
		umr_register(&own.pair.a, mkey, T_ALL, &l);
		EXPECT_EQ(t_post(&own.pair.a, &o), 0, "WRITE");
		T_DONE(own.cq, 7, IBV_WC_RDMA_WRITE);
		EXPECT(!memcmp(own.area.p, own.area.p + AREA, 8) && !memcmp(own.area.p + 64, own.area.p + AREA + 8, 8),
		       "the bytes through the key");
		EXPECT_EQ(t_post(&own.pair.a, &inv), 0, "LOCAL_INV");
		T_DONE(own.cq, 8, IBV_WC_LOCAL_INV);
	}
	mlx5dv_destroy_mkey(mkey);
	unmake(&own, 1);
}

/* The child goes on with what it inherited; whoever was posting in the parent is not there. */
static void fork_often(struct worker *w, int n)
{
	struct worker own;

	(void)w;
	(void)n;
	make(&own, 1, NULL);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		int status = -1;

		if (!child)
			_exit(write_and_look(&own, 1000 + i) || write_and_look(&own, 2000 + i));
		MUST(child > 0, "fork");
		MUST(waitpid(child, &status, 0) == child, "waitpid");
		EXPECT_EQ(status, 0, "the child's status");
		EXPECT_EQ(write_and_look(&own, i), 0, "errors of the parent");
	}
	unmake(&own, 1);
}

struct beside { const char *name; void (*fn)(struct worker *w, int n); };

static void traffic_beside(const void *arg)
{
	const struct beside *b = arg;
	struct worker w[THREADS - 1];

	make(w, THREADS - 1, NULL);
	run_beside(w, THREADS - 1, write_own, b->fn);
	unmake(w, THREADS - 1);
}

/* ---- threads come and go ---- */

static void threads_come_and_go(const void *arg)
{
	struct worker w[THREADS];

	(void)arg;
	make(w, THREADS, NULL);
	for (int i = 0; i < 40; i++) {
		pthread_barrier_t start;

		pthread_barrier_init(&start, NULL, THREADS);
		for (int j = 0; j < THREADS; j++) {
			w[j].start = &start;
			MUST(!pthread_create(&w[j].thread, NULL, overflow, &w[j]), "pthread_create");
		}
		for (int j = 0; j < THREADS; j++) {
			struct ibv_wc wc;

			pthread_join(w[j].thread, NULL);
			for (int k = 0; k < 64; k++)
				w[j].errors += wait_wc(w[j].cq, &wc) != IBV_WC_SUCCESS;
		}
		pthread_barrier_destroy(&start);
	}
	unmake(w, THREADS);
}

/* ---- events ---- */

/* One signaled WRITE each time that it is told to. */
struct told { struct worker *w; int turn; };

static void *write_when_told(void *arg)
{
	struct told *t = arg;

	for (int i = 1; i <= ROUNDS; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&t->w->area, 0, 8), t->w->area.key,
				       t->w->area.va + AREA);

		while (__atomic_load_n(&t->turn, __ATOMIC_ACQUIRE) < i)
			sched_yield();
		if (t->turn < 0 || t_post(&t->w->pair.a, &o))
			break;
	}
	return NULL;
}

static void completions_that_are_waited_for(const void *arg)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(env->ctx);
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 64, NULL, channel, 0), *got;
	struct worker w;
	struct told t = { .w = &w };
	struct ibv_wc wc;
	pthread_t thread;
	void *context;

	(void)arg;
	make(&w, 1, cq);
	MUST(!pthread_create(&thread, NULL, write_when_told, &t), "pthread_create");
	for (int i = 1; i <= ROUNDS; i++) {
		/* Before the WRITE, or beside it. */
		if (i & 1)
			ibv_req_notify_cq(cq, 0);
		__atomic_store_n(&t.turn, i, __ATOMIC_RELEASE);
		if (!(i & 1))
			ibv_req_notify_cq(cq, 0);
		MUST(!ibv_get_cq_event(channel, &got, &context), "ibv_get_cq_event");
		ibv_ack_cq_events(got, 1);
		EXPECT_EQ(wait_wc(cq, &wc), IBV_WC_SUCCESS, "the completion");
		EXPECT_EQ(wc.wr_id, i, "wr_id");
	}
	pthread_join(thread, NULL);
	unmake(&w, 1);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_destroy_comp_channel(channel), 0, "ibv_destroy_comp_channel");
}

/* ---- a signal handler that posts ---- */

static struct worker *in_handler;
static int handled, handling;

static void post_in_handler(int sig)
{
	struct worker *w = in_handler;
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 0, t_sge(&w->area, 0, 8), w->area.key, w->area.va + AREA);
	int saved_errno = errno;

	(void)sig;
	/* Which thread gets the signal is the kernel's choice. */
	if (__atomic_exchange_n(&handling, 1, __ATOMIC_ACQUIRE))
		return;
	o.wr_id = handled;
	if (handled < HANDLED && !t_post(&w->pair.a, &o))
		__atomic_store_n(&handled, handled + 1, __ATOMIC_RELEASE);
	errno = saved_errno;
	__atomic_store_n(&handling, 0, __ATOMIC_RELEASE);
}

/* It may come while its thread is posting to another queue pair. Nothing is lost, and nobody waits for himself. */
static void a_handler_that_posts(const void *arg)
{
	struct sigaction sa = { .sa_handler = post_in_handler }, old;
	struct worker w[2];
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { { 0, 0 }, { 0, 0 } };
	uint64_t end = t_now_ms() + 5000;
	struct ibv_wc wc;

	(void)arg;
	make(w, 2, NULL);
	in_handler = &w[1];
	handled = 0;
	sigaction(SIGVTALRM, &sa, &old);
	setitimer(ITIMER_VIRTUAL, &often, NULL);
	for (uint32_t i = 0; __atomic_load_n(&handled, __ATOMIC_RELAXED) < HANDLED && t_now_ms() < end; i++)
		w[0].errors += write_and_look(&w[0], i);
	setitimer(ITIMER_VIRTUAL, &never, NULL);
	sigaction(SIGVTALRM, &old, NULL);
	for (int i = 0, n = __atomic_load_n(&handled, __ATOMIC_ACQUIRE); i < n; i++) {
		EXPECT_EQ(wait_wc(w[1].cq, &wc), IBV_WC_SUCCESS, "a completion of the handler's");
		EXPECT_EQ(wc.wr_id, i, "wr_id");
	}
	unmake(w, 2);
}

static void beside_a_handler(struct worker *w, int n)
{
	(void)w;
	(void)n;
	a_handler_that_posts(NULL);
}

int main(void)
{
	static const struct beside beside[] = {
		{ "traffic beside objects that come and go", make_and_end_objects },
		{ "traffic beside keys that change", change_keys },
		{ "traffic beside forks", fork_often },
		{ "traffic beside a signal handler that posts", beside_a_handler },
	};

	env = t_open();
	t_case("a signal handler that posts, in one thread", a_handler_that_posts, NULL);
	t_case("each thread with queues of its own", all_apart, NULL);
	t_case("one completion queue", one_completion_queue, NULL);
	t_case("one queue pair", one_queue_pair, NULL);
	t_case("a completion queue that overflows", a_queue_that_overflows, NULL);
	t_case("keys are deregistered", keys_are_deregistered, NULL);
	t_case("queue pairs go to ERR", queue_pairs_go_to_err, NULL);
	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++)
		t_case(beside[i].name, traffic_beside, &beside[i]);
	t_case("threads come and go", threads_come_and_go, NULL);
	t_case("completions that are waited for", completions_that_are_waited_for, NULL);
	return t_close(env);
}
