/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The same request, an RDMA WRITE of 8 bytes with a doorbell of its own, through more and more objects, and from more
 * and more threads.
 *
 * What the processor's caches do to objects that do not fit them is measured beside it, by a plain loop that reads and
 * writes as many cache lines of each object, in the same order. */
#include "scale.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <valgrind/callgrind.h>

enum {
	REQUESTS = 200000,		/* of a measurement, at least twice each object */
	THREAD_REQUESTS = 400000,
	MAX_THREADS = 8, MAX_STEPS = 8,
	LINE = 64,
};

/* What a request touches of one object, and of nothing else: so many structures of so many cache lines, one leading to
 * the next, of which the first lines are written too; and how far apart a structure is from the next object's. Counted
 * from what valgrind's lackey traces (a queue pair's include its peer's and a block of its ring). */
struct touched { uint32_t structures, lines, written, apart_bytes; };
static const struct touched touched_of[KINDS] = {
	[QUEUE_PAIR] = { 7, 4, 2, 1024 }, [MEMORY_KEY] = { 2, 2, 0, 192 }, [DC_TARGET] = { 2, 3, 0, 1024 },
};

static void wait_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	if (n < 0 || wc.status) {
		fprintf(stderr, "completion: %s\n", n < 0 ? "poll failed" : ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void write_8(const struct scale *s, struct ibv_qp *ibv, struct ibv_qp *dct, uint32_t rkey, int signal)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(ibv);

	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = signal ? IBV_SEND_SIGNALED : 0;
	ibv_wr_rdma_write(qp, rkey, (uintptr_t)s->buf + 2048);
	ibv_wr_set_sge(qp, s->mr->lkey, (uintptr_t)s->buf, 8);
	if (dct)
		mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(qp), s->ah, dct->qp_num, DC_KEY);
	if (ibv_wr_complete(qp))
		die("ibv_wr_complete");
	if (signal)
		wait_one(ibv->send_cq);
}

/* How often each queue pair of a crowd was used decides which of its requests are signaled. */
static uint8_t *used;

static void one(const struct scale *s, const struct crowd *c, uint32_t i, uint32_t nth)
{
	switch (c->kind) {
	case QUEUE_PAIR:
		write_8(s, c->obj[i], NULL, s->mr->rkey, (used[i]++ + i) % SIGNAL_EVERY == 0);
		break;
	case MEMORY_KEY:
		write_8(s, s->rc, NULL, ((struct ibv_mr *)c->obj[i])->rkey, nth % SIGNAL_EVERY == 0);
		break;
	default:
		write_8(s, s->dci, c->obj[i], s->mr->rkey, nth % SIGNAL_EVERY == 0);
		break;
	}
}

/* Through the first count objects, in turn or in the order given. RETURN nanoseconds a request. */
static double run(const struct scale *s, const struct crowd *c, uint32_t count, const uint32_t *order,
		  uint32_t requests)
{
	static uint32_t nth;
	double began = now();

	for (uint32_t i = 0, at = 0; i < requests; i++) {
		one(s, c, order ? order[at] : at, nth++);
		at = at + 1 == count ? 0 : at + 1;
	}
	return (now() - began) * 1e9 / requests;
}

/* ------------------------------------------------------------------ the yardstick */

static uint8_t *yard;

static size_t yard_bytes(enum kind kind, uint32_t max)
{
	return (size_t)max * touched_of[kind].structures * touched_of[kind].apart_bytes;
}

/* max: how many objects there are. RETURN nanoseconds an object. */
static double touch(enum kind kind, uint32_t max, uint32_t count, const uint32_t *order, uint32_t requests)
{
	const struct touched *t = &touched_of[kind];
	uint32_t sum = 0;
	double began = now();

	for (uint32_t i = 0, at = 0; i < requests; i++) {
		size_t obj = order ? order[at] : at;

		for (uint32_t s = 0; s < t->structures; s++) {
			uint8_t *where = yard + (s * (size_t)max + obj) * t->apart_bytes + (sum & 1);

			for (uint32_t l = 0; l < t->lines; l++) {
				sum += where[l * LINE];
				if (l < t->written)
					where[l * LINE + 8] = (uint8_t)i;
			}
		}
		at = at + 1 == count ? 0 : at + 1;
		__asm__ volatile("" : "+r"(sum) : : "memory");
	}
	return (now() - began) * 1e9 / requests;
}

/* ------------------------------------------------------------------ rows */

static void print_values(const double *v, int n)
{
	for (int i = 0; i < n; i++)
		printf("%s%.5g", i ? " " : "", v[i]);
}

/* Each round measures all steps, each with its yardstick beside it. */
static void measure(struct scale *s, enum kind kind, const uint32_t *counts, int steps, int rounds)
{
	static double ours[MAX_STEPS][2][MAX_ROUNDS], other[MAX_STEPS][2][MAX_ROUNDS];
	uint32_t max = counts[steps - 1];
	struct crowd c;

	crowd_make(s, &c, kind, max, DEPTH);
	used = calloc(max, 1);
	yard = malloc(yard_bytes(kind, max));
	if (!used || !yard)
		die("malloc");
	memset(yard, 1, yard_bytes(kind, max));	/* with 0 it would be one page that the kernel shows everywhere */
	run(s, &c, max, NULL, max);
	for (int at = 0; at < rounds * steps * 2; at++) {
		int random = at % 2, i = at / 2 % steps, r = at / 2 / steps;
		uint32_t n = counts[i], requests = n > REQUESTS / 2 ? 2 * n : REQUESTS;
		uint32_t *order = random ? shuffled(n) : NULL;

		ours[i][random][r] = run(s, &c, n, order, requests);
		other[i][random][r] = touch(kind, max, n, order, requests);
		free(order);
	}
	for (int at = 0; at < steps * 2; at++) {
		int random = at / steps, i = at % steps;

		printf("%s\t%s\t%u\t", kind_name(kind), random ? "random" : "in turn", counts[i]);
		print_values(ours[i][random], rounds);
		printf("\t");
		print_values(other[i][random], rounds);
		printf("\n");
	}
	fflush(stdout);
	crowd_end(&c, NULL);
	free(used);
	free(yard);
}

void speed(struct scale *s, int rounds)
{
	static const uint32_t qps[] = { 1, 50, 1000, 100000 }, keys[] = { 1, 1000, 100000, 1000000 },
		targets[] = { 1, 1000, 100000 };

	measure(s, QUEUE_PAIR, qps, 4, rounds);
	measure(s, MEMORY_KEY, keys, 4, rounds);
	measure(s, DC_TARGET, targets, 3, rounds);
}

void count_speed(struct scale *s, enum kind kind, uint32_t count, uint32_t requests)
{
	uint32_t *order = shuffled(count);
	struct crowd c;

	crowd_make(s, &c, kind, count + count % 2, DEPTH);
	used = calloc(count, 1);
	if (!used)
		die("calloc");
	run(s, &c, count, order, 4 * count);
	CALLGRIND_TOGGLE_COLLECT;
	run(s, &c, count, order, requests);
	CALLGRIND_TOGGLE_COLLECT;
}

/* ------------------------------------------------------------------ threads */

struct poster {
	struct scale s;
	pthread_t thread;
};

static pthread_barrier_t together;

static void *post(void *arg)
{
	struct poster *p = arg;

	pthread_barrier_wait(&together);
	for (uint32_t i = 0; i < THREAD_REQUESTS; i++)
		write_8(&p->s, p->s.rc, NULL, p->s.mr->rkey, i % SIGNAL_EVERY == 0);
	return NULL;
}

static double processor_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* RETURN a million requests a second; *cores: how many processors they kept busy. */
static double post_together(struct poster *p, int count, double *cores)
{
	double began, busy, took;

	pthread_barrier_init(&together, NULL, (unsigned int)count + 1);
	for (int i = 0; i < count; i++)
		if (pthread_create(&p[i].thread, NULL, post, &p[i]))
			die("pthread_create");
	busy = processor_s();
	began = now();
	pthread_barrier_wait(&together);
	for (int i = 0; i < count; i++)
		pthread_join(p[i].thread, NULL);
	took = now() - began;
	*cores = (processor_s() - busy) / took;
	pthread_barrier_destroy(&together);
	return (double)count * THREAD_REQUESTS / took / 1e6;
}

void threads(struct scale *s, int rounds)
{
	static const int counts[] = { 1, 2, 4, MAX_THREADS };
	double rate[4][MAX_ROUNDS], cores[4][MAX_ROUNDS];
	struct poster p[MAX_THREADS];

	for (int i = 0; i < MAX_THREADS; i++) {
		p[i].s = *s;
		p[i].s.cq = ibv_create_cq(s->ctx, CQ_DEPTH, NULL, NULL, 0);
		p[i].s.buf = aligned_alloc(4096, 4096);
		if (!p[i].s.cq || !p[i].s.buf)
			die("ibv_create_cq");
		p[i].s.mr = ibv_reg_mr(s->pd, p[i].s.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		if (!p[i].s.mr)
			die("ibv_reg_mr");
		p[i].s.rc = make_qp(s, p[i].s.cq, DEPTH, 0, 0);
		p[i].s.rc_peer = make_qp(s, p[i].s.cq, DEPTH, 0, 0);
		connect_pair(s, p[i].s.rc, p[i].s.rc_peer);
	}
	for (int r = 0; r < rounds; r++)
		for (int i = 0; i < 4; i++)
			rate[i][r] = post_together(p, counts[i], &cores[i][r]);
	for (int i = 0; i < 4; i++) {
		printf("%d\t", counts[i]);
		print_values(rate[i], rounds);
		printf("\t");
		print_values(cores[i], rounds);
		printf("\n");
	}
}
