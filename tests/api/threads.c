/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Any verb from any thread: many threads posting on one queue pair, each on its own, polling one CQ
 * together, and making and destroying objects meanwhile. Sums are checked, never times. */
#include <pthread.h>

#include "t_why.h"
#include "umr.h"

enum { THREADS = 4, EACH = 3000 };

static struct t_env *env;
static struct t_buf mem;

static void set_up(const void *arg)
{
	(void)arg;
	mem = t_buf(env, 1 << 16, T_ALL);
}

struct job {
	pthread_t thread;
	int id;
	struct t_qp *qp;
	pthread_barrier_t *start;
	uint64_t *counter;		/* remote */
	uint64_t sum;
	int errors, polled;
	bool *stop;
};

static void run_all(struct job *job, int n, void *(*fn)(void *))
{
	pthread_barrier_t start;

	pthread_barrier_init(&start, NULL, n);
	for (int i = 0; i < n; i++) {
		job[i].id = i;
		job[i].start = &start;
		MUST(!pthread_create(&job[i].thread, NULL, fn, &job[i]), "pthread_create");
	}
	for (int i = 0; i < n; i++)
		pthread_join(job[i].thread, NULL);
	pthread_barrier_destroy(&start);
}

static struct ibv_sge scratch(int id)
{
	return t_sge(&mem, 32768 + id * 64, 8);
}

/* Posts EACH fetch-adds by one of the APIs; when the queue is full, polls for itself and others. */
static void *add(void *arg)
{
	struct job *j = arg;
	struct ibv_wc wc;

	pthread_barrier_wait(j->start);
	for (int i = 0; i < EACH; i++) {
		struct t_op o = t_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, j->id, scratch(j->id), mem.key,
				       (uintptr_t)j->counter);
		uint64_t end = t_now_ms() + 30000;
		int rc;

		o.compare_add = i + 1;
		while ((rc = j->id & 1 ? t_post_old(j->qp, &o) : t_post(j->qp, &o)) == ENOMEM && t_now_ms() < end) {
			while (ibv_poll_cq(j->qp->scq, 1, &wc) == 1) {
				j->polled++;
				j->errors += wc.status != IBV_WC_SUCCESS;
			}
		}
		if (rc) {
			j->errors++;
			break;
		}
		j->sum += i + 1;
	}
	return NULL;
}

/* The rest of the completions; together they must be all. */
static void drain(struct ibv_cq *cq, struct job *job, int jobs, int want)
{
	int got = 0, errors = 0;

	for (int i = 0; i < jobs; i++) {
		got += job[i].polled;
		errors += job[i].errors;
	}
	for (; got < want; got++)
		errors += t_poll(cq).wc.status != IBV_WC_SUCCESS;
	EXPECT_EQ(errors, 0, "errors");
	T_QUIET(cq);
}

static void one_queue_pair(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .sq = 64 };
	struct t_pair p = t_pair(env, &s);
	struct job job[THREADS] = { 0 };
	uint64_t sum = 0;

	(void)arg;
	memset(mem.p, 0, mem.len);
	for (int i = 0; i < THREADS; i++) {
		job[i].qp = &p.a;
		job[i].counter = (uint64_t *)(void *)mem.p;
	}
	run_all(job, THREADS, add);
	drain(p.a.scq, job, THREADS, THREADS * EACH);
	for (int i = 0; i < THREADS; i++)
		sum += job[i].sum;
	EXPECT_EQ(*job[0].counter, sum, "the counter");
	t_pair_free(&p);
}

/* Each its own queue pair, all on one CQ, all adding to one counter: adds are atomic between queue pairs, too. */
static void own_queue_pairs(const void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 1024, NULL, NULL, 0);
	struct t_spec s = { .ops = T_RC_OPS, .sq = 64, .scq = cq };
	struct t_pair p[THREADS];
	struct job job[THREADS] = { 0 };
	uint64_t sum = 0;

	(void)arg;
	memset(mem.p, 0, mem.len);
	for (int i = 0; i < THREADS; i++) {
		p[i] = t_pair(env, &s);
		job[i].qp = &p[i].a;
		job[i].counter = (uint64_t *)(void *)mem.p;
	}
	run_all(job, THREADS, add);
	drain(cq, job, THREADS, THREADS * EACH);
	for (int i = 0; i < THREADS; i++)
		sum += job[i].sum;
	EXPECT_EQ(*job[0].counter, sum, "the counter");
	for (int i = 0; i < THREADS; i++)
		t_pair_free(&p[i]);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

/* Ping-pong: each side is a thread of its own and waits for the other's message. */
static void *pong(void *arg)
{
	struct job *j = arg;
	struct t_qp *q = j->qp;

	pthread_barrier_wait(j->start);
	for (int i = 0; i < EACH && !j->errors; i++) {
		struct t_op o = t_op(IBV_WR_SEND, i, scratch(j->id));
		uint64_t end = t_now_ms() + 30000;
		struct ibv_wc wc;
		int need = 2, n = 0;

		if (j->id == 0)
			j->errors += t_post(q, &o) != 0;
		if (j->id == 1)
			need = 1;
		while (need && !j->errors) {
			struct ibv_cq *cq = need == 2 || j->id == 1 ? q->rcq : q->scq;

			n = ibv_poll_cq(cq, 1, &wc);
			if (n == 1) {
				j->errors += wc.status != IBV_WC_SUCCESS;
				need--;
			} else if (t_now_ms() > end) {
				j->errors++;
			}
		}
		if (j->errors)
			break;
		struct ibv_sge to = t_sge(&mem, 40000 + j->id * 64, 8);
		struct ibv_recv_wr *bad, wr = { .wr_id = i, .sg_list = &to, .num_sge = 1 };

		j->errors += ibv_post_recv(q->qp, &wr, &bad) != 0;
		if (j->id == 1) {
			j->errors += t_post(q, &o) != 0;
			while ((n = ibv_poll_cq(q->scq, 1, &wc)) == 0 && t_now_ms() < end)
				;
			j->errors += n != 1 || wc.status != IBV_WC_SUCCESS;
		}
	}
	return NULL;
}

static void ping_pong(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct job job[2] = { { .qp = &p.a }, { .qp = &p.b } };

	(void)arg;
	for (int i = 0; i < 8; i++) {
		t_recv(&p.a, i, t_sge(&mem, 40000, 8));
		t_recv(&p.b, i, t_sge(&mem, 40064, 8));
	}
	run_all(job, 2, pong);
	EXPECT_EQ(job[0].errors + job[1].errors, 0, "errors");
	t_pair_free(&p);
}

/* Objects come and go in one thread while another drives traffic; keys and numbers must not be mixed up. */
static void *churn(void *arg)
{
	struct job *j = arg;
	uint8_t *m = aligned_alloc(4096, 4096);

	pthread_barrier_wait(j->start);
	do {
		struct ibv_mr *mr = ibv_reg_mr(env->pd, m, 4096, T_ALL);
		struct ibv_cq *cq = ibv_create_cq(env->ctx, 16, NULL, NULL, 0);
		struct t_spec s = { .ops = T_RC_OPS };
		struct ibv_qp *qp = cq ? t_create_qp(env, &s, cq, cq) : NULL;

		j->errors += !mr || !cq || !qp;
		j->errors += qp && ibv_destroy_qp(qp);
		j->errors += cq && ibv_destroy_cq(cq);
		j->errors += mr && ibv_dereg_mr(mr);
		j->polled++;
	} while (!__atomic_load_n(j->stop, __ATOMIC_RELAXED));
	free(m);
	return NULL;
}

struct traffic { struct job *job; pthread_barrier_t *start; bool stop; };

static void *traffic(void *arg)
{
	struct traffic *t = arg;
	struct job *j = t->job;

	pthread_barrier_wait(t->start);
	for (int i = 0; i < EACH * 2; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&mem, 0, 64), mem.key, mem.va + 8192);
		uint64_t end = t_now_ms() + 30000;
		struct ibv_wc wc;
		int n;

		j->errors += t_post(j->qp, &o) != 0;
		while ((n = ibv_poll_cq(j->qp->scq, 1, &wc)) == 0 && t_now_ms() < end)
			;
		j->errors += n != 1 || wc.status != IBV_WC_SUCCESS || wc.wr_id != (uint64_t)i;
		if (j->errors)
			break;
	}
	__atomic_store_n(&t->stop, true, __ATOMIC_RELAXED);
	return NULL;
}

static void objects_come_and_go(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct job user = { .qp = &p.a }, job[3] = { 0 };
	pthread_barrier_t start;
	struct traffic t = { .job = &user, .start = &start };
	pthread_t thread;

	(void)arg;
	pthread_barrier_init(&start, NULL, 3);
	MUST(!pthread_create(&thread, NULL, traffic, &t), "pthread_create");
	for (int i = 1; i < 3; i++) {
		job[i] = (struct job) { .id = i, .stop = &t.stop, .start = &start };
		MUST(!pthread_create(&job[i].thread, NULL, churn, &job[i]), "pthread_create");
	}
	pthread_join(thread, NULL);
	for (int i = 1; i < 3; i++) {
		pthread_join(job[i].thread, NULL);
		EXPECT_EQ(job[i].errors, 0, "errors of creating and destroying");
		EXPECT(job[i].polled > 0, "thread %d did nothing", i);
	}
	EXPECT_EQ(user.errors, 0, "errors of the traffic");
	pthread_barrier_destroy(&start);
	t_pair_free(&p);
}

/* Several threads poll one CQ: each completion is seen once. */
struct pollers { struct ibv_cq *cq; uint8_t seen[THREADS * EACH]; int left; };

static void *poller(void *arg)
{
	struct pollers *s = arg;
	struct ibv_wc wc[7];
	uint64_t end = t_now_ms() + 30000;

	while (__atomic_load_n(&s->left, __ATOMIC_ACQUIRE) > 0 && t_now_ms() < end) {
		int n = ibv_poll_cq(s->cq, 7, wc);

		for (int i = 0; i < n; i++)
			if (wc[i].wr_id < THREADS * EACH)
				__atomic_fetch_add(&s->seen[wc[i].wr_id], 1, __ATOMIC_RELAXED);
		if (n > 0)
			__atomic_fetch_sub(&s->left, n, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void many_pollers(const void *arg)
{
	static struct pollers shared;
	struct t_spec s = { .ops = T_RC_OPS, .cqe = 1024, .sq = 64 };
	struct t_pair p = t_pair(env, &s);
	pthread_t thread[3];
	int twice = 0, never = 0;

	(void)arg;
	shared.cq = p.a.scq;
	shared.left = THREADS * EACH;
	for (int i = 0; i < 3; i++)
		MUST(!pthread_create(&thread[i], NULL, poller, &shared), "pthread_create");
	for (int i = 0; i < THREADS * EACH; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&mem, 0, 8), mem.key, mem.va + 8192);
		uint64_t end = t_now_ms() + 30000;
		int rc;

		while ((rc = t_post(&p.a, &o)) == ENOMEM && t_now_ms() < end)
			;
		if (!EXPECT_EQ(rc, 0, "posting"))
			break;
	}
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < THREADS * EACH; i++) {
		twice += shared.seen[i] > 1;
		never += !shared.seen[i];
	}
	EXPECT(!twice && !never, "%d completions seen twice, %d never", twice, never);
	t_pair_free(&p);
}

/* UMR, use and invalidate in each thread, on keys of its own. */
static void *umr_job(void *arg)
{
	struct job *j = arg;
	struct t_qp *q = j->qp;
	struct mlx5dv_mkey_init_attr init = { .pd = env->pd,
					      .max_entries = 4,
					      .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT };
	struct mlx5dv_mkey *mkey = mlx5dv_create_mkey(&init);
	struct ibv_sge piece[2] = { t_sge(&mem, 1024 + j->id * 64, 8), t_sge(&mem, 1024 + j->id * 64 + 32, 8) };

	pthread_barrier_wait(j->start);
	for (int i = 0; i < 500 && !j->errors; i++) {
		uint64_t end = t_now_ms() + 30000, value[2] = { i, ~(uint64_t)i };
		struct ibv_wc wc;
		int n;

		memcpy(mem.p + 2048 + j->id * 64, value, 16);
		ibv_wr_start(q->ex);
		q->ex->wr_id = i;
		q->ex->wr_flags = IBV_SEND_INLINE;
		mlx5dv_wr_mr_list(q->dv, mkey, T_ALL, 2, piece);
		q->ex->wr_flags = 0;
		ibv_wr_rdma_write(q->ex, mkey->rkey, 0);
		ibv_wr_set_sge(q->ex, mem.key, mem.va + 2048 + j->id * 64, 16);
		q->ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_local_inv(q->ex, mkey->lkey);
		j->errors += ibv_wr_complete(q->ex) != 0;
		while ((n = ibv_poll_cq(q->scq, 1, &wc)) == 0 && t_now_ms() < end)
			;
		j->errors += n != 1 || wc.status != IBV_WC_SUCCESS;
		j->errors += memcmp(mem.p + 1024 + j->id * 64, &value[0], 8) ||
			     memcmp(mem.p + 1024 + j->id * 64 + 32, &value[1], 8);
	}
	j->errors += mlx5dv_destroy_mkey(mkey) != 0;
	return NULL;
}

static void umr_in_threads(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };
	struct t_pair p[THREADS];
	struct job job[THREADS] = { 0 };

	(void)arg;
	for (int i = 0; i < THREADS; i++) {
		p[i] = t_pair(env, &s);
		job[i].qp = &p[i].a;
	}
	run_all(job, THREADS, umr_job);
	for (int i = 0; i < THREADS; i++) {
		EXPECT_EQ(job[i].errors, 0, "errors");
		t_pair_free(&p[i]);
	}
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&mem);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("four threads on one queue pair", one_queue_pair, NULL);
	t_case("four threads on queue pairs of their own, one CQ", own_queue_pairs, NULL);
	t_case("two threads in conversation", ping_pong, NULL);
	t_case("objects come and go beside traffic", objects_come_and_go, NULL);
	t_case("three threads poll one CQ", many_pollers, NULL);
	t_case("register, use, invalidate in four threads", umr_in_threads, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
