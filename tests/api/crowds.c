/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Many objects at a time: each has a number of its own and works, they go in another order than they came, none takes a
 * file or a thread, and the one too many is refused with a sentence. */
#include <dirent.h>

#include "t_ops.h"
#include "t_why.h"

enum { KEYS = 100000, QPS = 4000, TARGETS = 2000, CQS = 20000, EVENTS = 2000, TRIED = 1000, DC_KEY = 77 };

static struct t_env *env;
static struct t_buf src, dst;

static int entries_of(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	MUST(dir, path);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int files, tasks;

static void count_before(void)
{
	files = entries_of("/proc/self/fd");
	tasks = entries_of("/proc/self/task");
}

static void expect_as_before(void)
{
	EXPECT_EQ(entries_of("/proc/self/fd"), files, "open files");
	EXPECT_EQ(entries_of("/proc/self/task"), tasks, "threads");
}

/* i-th of count in an order that leads everywhere; count has no divisor in common with the step. */
static uint32_t mixed(uint32_t i, uint32_t count)
{
	return (uint32_t)((uint64_t)i * 7919 % count);
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void expect_distinct(uint32_t *number, uint32_t count)
{
	qsort(number, count, sizeof(*number), compare);
	for (uint32_t i = 1; i < count; i++)
		if (!EXPECT(number[i - 1] != number[i], "number 0x%x twice", number[i]))
			break;
}

static void write_with(struct t_qp *q, struct t_op o, uint64_t value)
{
	memcpy(src.p, &value, sizeof(value));
	memset(dst.p, 0, sizeof(value));
	MUST(!t_post(q, &o), "post");
	T_DONE(q->scq, o.wr_id, IBV_WC_RDMA_WRITE);
	EXPECT(!memcmp(dst.p, &value, sizeof(value)), "0x%llx is not there", (unsigned long long)value);
}

static void keys(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct ibv_mr **mr = calloc(KEYS, sizeof(struct ibv_mr *));
	uint32_t *key = calloc(KEYS, sizeof(uint32_t));

	(void)arg;
	MUST(mr && key, "calloc");
	count_before();
	for (uint32_t i = 0; i < KEYS; i++) {
		mr[i] = ibv_reg_mr(env->pd, dst.p, 4096, T_ALL);
		MUST(mr[i], "ibv_reg_mr");
		key[i] = mr[i]->rkey;
	}
	for (uint32_t i = 0; i < TRIED; i++)
		write_with(&p.a, t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&src, 0, 8), mr[mixed(i, KEYS)]->rkey, dst.va),
			   i + 1);
	expect_as_before();
	expect_distinct(key, KEYS);
	for (uint32_t i = 0; i < KEYS; i++)
		EXPECT_EQ(ibv_dereg_mr(mr[mixed(i, KEYS)]), 0, "ibv_dereg_mr");
	write_with(&p.a, t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key, dst.va), 5);
	free(mr);
	free(key);
	t_pair_free(&p);
}

static void queue_pairs(const void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 64, NULL, NULL, 0);
	struct t_spec s = { .ops = T_RC_OPS, .scq = cq, .rcq = cq, .sq = 1, .rq = 1, .sge = 1, .rsge = 1 };
	struct t_qp *q = calloc(QPS, sizeof(struct t_qp));
	uint32_t *number = calloc(QPS, sizeof(uint32_t));

	(void)arg;
	MUST(cq && q && number, "objects");
	count_before();
	for (uint32_t i = 0; i < QPS; i++) {
		q[i] = t_qp(env, &s);
		number[i] = q[i].qp->qp_num;
		if (i % 2)
			t_connect(env, &q[i - 1], &q[i]);
	}
	for (uint32_t i = 0; i < QPS; i++)
		write_with(&q[mixed(i, QPS)], t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&src, 0, 8), dst.key, dst.va), i + 1);
	expect_as_before();
	expect_distinct(number, QPS);
	for (uint32_t i = 0; i < QPS; i++)
		t_qp_free(&q[mixed(i, QPS)]);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
	free(q);
	free(number);
}

static void targets(const void *arg)
{
	struct t_qp dci = t_dci(env, (struct t_spec){ .dc = T_DCI }), *dct = calloc(TARGETS, sizeof(struct t_qp));
	struct ibv_srq *srq = t_srq(env, 16);
	struct ibv_ah *ah = t_ah(env);

	(void)arg;
	MUST(dct, "calloc");
	count_before();
	for (uint32_t i = 0; i < TARGETS; i++)
		dct[i] = t_dct(env, srq, DC_KEY + i);
	for (uint32_t i = 0; i < TARGETS; i++) {
		uint32_t at = mixed(i, TARGETS);
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&src, 0, 8), dst.key, dst.va);

		o.ah = ah;
		o.dest = dct[at].qp->qp_num;
		o.dc_key = DC_KEY + at;
		write_with(&dci, o, i + 1);
	}
	expect_as_before();
	for (uint32_t i = 0; i < TARGETS; i++)
		t_qp_free(&dct[mixed(i, TARGETS)]);
	t_qp_free(&dci);
	EXPECT_EQ(ibv_destroy_ah(ah), 0, "ibv_destroy_ah");
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
	free(dct);
}

static void completion_queues(const void *arg)
{
	struct ibv_cq **cq = calloc(CQS, sizeof(struct ibv_cq *));

	(void)arg;
	MUST(cq, "calloc");
	count_before();
	for (uint32_t i = 0; i < CQS; i++) {
		cq[i] = ibv_create_cq(env->ctx, 1, NULL, NULL, 0);
		MUST(cq[i], "ibv_create_cq");
	}
	expect_as_before();
	for (uint32_t i = 0; i < CQS; i++)
		EXPECT_EQ(ibv_destroy_cq(cq[mixed(i, CQS)]), 0, "ibv_destroy_cq");
	free(cq);
}

/* A program that reads no events still ends its objects; what it reads then is of those that are left, in order. */
static void unread_events(const void *arg)
{
	struct ibv_srq *srq = t_srq(env, 16);
	struct t_spec s = { .ops = T_RC_OPS, .srq = srq, .sq = 1, .sge = 1, .cqe = 4 };
	struct t_qp *q = calloc(EVENTS, sizeof(struct t_qp));
	struct ibv_qp_attr err = { 0 };
	struct ibv_async_event e;

	(void)arg;
	MUST(q, "calloc");
	for (uint32_t i = 0; i < EVENTS; i++) {
		struct ibv_qp_attr attr;

		q[i] = t_qp(env, &s);
		attr = t_attr(env, q[i].qp->qp_num);
		t_to_rts(q[i].qp, &attr);
		MUST(!t_modify(q[i].qp, &err, IBV_QPS_ERR, IBV_QP_STATE), "to ERR");
	}
	for (uint32_t i = 0; i < EVENTS; i++)
		if (mixed(i, EVENTS) % 2)
			t_qp_free(&q[mixed(i, EVENTS)]);
	for (uint32_t i = 0; i < EVENTS; i += 2) {
		MUST(!ibv_get_async_event(env->ctx, &e), "ibv_get_async_event");
		EXPECT(e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && e.element.qp == q[i].qp,
		       "event %u is of type %d", i, (int)e.event_type);
		ibv_ack_async_event(&e);
	}
	for (uint32_t i = 0; i < EVENTS; i += 2)
		t_qp_free(&q[i]);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
	free(q);
}

/* Numbers are what queue pairs are short of; they can be had without. */
static void one_too_many(const void *arg)
{
	uint32_t max = (uint32_t)env->attr.max_qp, *number = calloc(max, sizeof(uint32_t)), n = 0, one;
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_qp q;

	(void)arg;
	MUST(number, "calloc");
	while (n < max && !mlx5dv_reserved_qpn_alloc(env->ctx, &number[n]))
		n++;
	EXPECT_EQ(n, max, "numbers, of max_qp");
	expect_distinct(number, n);
	t_why_begin();
	EXPECT(mlx5dv_reserved_qpn_alloc(env->ctx, &one), "one number more");
	T_WHY("no_resources", 0);
	EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(env->ctx, number[--n]), 0, "reserved_qpn_dealloc");
	q = t_qp(env, &s);
	t_qp_free(&q);
	while (n)
		EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(env->ctx, number[--n]), 0, "reserved_qpn_dealloc");
	free(number);
}

int main(void)
{
	env = t_open();
	src = t_buf(env, 4096, T_ALL);
	dst = t_buf(env, 4096, T_ALL);
	t_case("regions over the same memory", keys, NULL);
	t_case("queue pairs", queue_pairs, NULL);
	t_case("DC targets of one initiator", targets, NULL);
	t_case("completion queues", completion_queues, NULL);
	t_case("events that nobody read", unread_events, NULL);
	t_case("one queue pair too many", one_too_many, NULL);
	t_buf_free(&src);
	t_buf_free(&dst);
	return t_close(env);
}
