/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Two processes, pinned to a processor each: what a pair costs that perftest cannot show.
 *
 * usage: pair_bench write|send SECONDS    8-byte messages, inline, lists of 64 a doorbell, the last signaled: M/s
 *        pair_bench idle SECONDS          connected, nothing to do: processor time of both, us a second
 *
 * perftest reads the time for each message and builds each list anew; here the list is built once. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "bench.h"

enum { LIST = 64, LISTS = 8, DEPTH = LIST * LISTS, RECEIVES = 4096, BYTES = 8, POLL = 64 };

struct side_page {
	uint32_t qpn, rkey;
	uint64_t va;
	double cpu_us;
	volatile uint32_t stage;
};

struct page {
	struct side_page side[2];
	volatile uint32_t stop;
};

struct side {
	struct page *page;
	struct side_page *own, *peer;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
};

static double cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void pin(int last)
{
	cpu_set_t all, one;
	int cpu = -1;

	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof(all), &all))
		die("sched_getaffinity");
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && (cpu < 0 || last))
			cpu = i;
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		die("sched_setaffinity");
}

/* Both get there before either goes on. */
static void meet(struct side *s, uint32_t stage)
{
	s->own->stage = stage;
	while (s->peer->stage < stage)
		usleep(100);
}

static void open_side(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = BYTES },
	};

	if (!list || !list[0] || !(s->ctx = ibv_open_device(list[0])) || !(s->pd = ibv_alloc_pd(s->ctx)) ||
	    !(s->cq = ibv_create_cq(s->ctx, 2 * RECEIVES, NULL, NULL, 0)))
		die("open");
	s->buf = aligned_alloc(4096, 1 << 16);
	memset(s->buf, 1, 1 << 16);
	s->mr = ibv_reg_mr(s->pd, s->buf, 1 << 16, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	attr.send_cq = attr.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &attr);
	if (!s->mr || !s->qp)
		die("objects");
	s->own->qpn = s->qp->qp_num;
	s->own->rkey = s->mr->rkey;
	s->own->va = (uintptr_t)s->buf;
}

static void connect_side(struct side *s)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	if (ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_4096;
	a.dest_qp_num = s->peer->qpn;
	a.min_rnr_timer = 1;
	a.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh.hop_limit = 64 };
	if (ibv_query_gid(s->ctx, 1, 0, &a.ah_attr.grh.dgid) ||
	    ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	if (ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

static int poll_some(struct side *s, struct ibv_wc wc[POLL])
{
	int n = ibv_poll_cq(s->cq, POLL, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].status) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc[i].status));
			exit(1);
		}
	}
	if (n < 0)
		die("ibv_poll_cq");
	return n;
}

/* RETURN millions of messages a second. */
static double request(struct side *s, int send, double seconds)
{
	struct ibv_sge sge = { .addr = (uintptr_t)s->buf, .length = BYTES, .lkey = s->mr->lkey };
	struct ibv_send_wr wr[LIST] = { 0 }, *bad;
	struct ibv_wc wc[POLL];
	uint64_t posted = 0, done = 0;
	double began = now(), took = 0;

	for (int i = 0; i < LIST; i++) {
		wr[i].next = i + 1 < LIST ? &wr[i + 1] : NULL;
		wr[i].sg_list = &sge;
		wr[i].num_sge = 1;
		wr[i].opcode = send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
		wr[i].send_flags = IBV_SEND_INLINE | (i + 1 < LIST ? 0 : IBV_SEND_SIGNALED);
		wr[i].wr.rdma.remote_addr = s->peer->va;
		wr[i].wr.rdma.rkey = s->peer->rkey;
	}
	while (took < seconds || done < posted) {
		for (; took < seconds && posted - done < LISTS; posted++)
			if (ibv_post_send(s->qp, wr, &bad))
				die("ibv_post_send");
		done += (uint64_t)poll_some(s, wc);
		if (done % 16 == 0 || took >= seconds)
			took = now() - began;
	}
	return (double)done * LIST / took / 1e6;
}

static void post_receives(struct side *s, int n)
{
	static struct ibv_recv_wr wr[POLL];
	struct ibv_sge sge = { .addr = (uintptr_t)s->buf, .length = 64, .lkey = s->mr->lkey };
	struct ibv_recv_wr *bad;

	for (int i = 0; i < n; i++)
		wr[i] = (struct ibv_recv_wr){ .next = i + 1 < n ? &wr[i + 1] : NULL, .sg_list = &sge, .num_sge = 1 };
	if (n && ibv_post_recv(s->qp, wr, &bad))
		die("ibv_post_recv");
}

/* Takes messages until told to stop. */
static void take(struct side *s)
{
	struct ibv_wc wc[POLL];

	while (!s->page->stop)
		post_receives(s, poll_some(s, wc));
}

static void run_target(struct side *s)
{
	for (int i = 0; i < RECEIVES; i += POLL)
		post_receives(s, POLL);
	meet(s, 2);
	take(s);
}

static void rest(struct side *s, double seconds)
{
	double before;

	meet(s, 2);
	usleep(200000);	/* what connecting left to do */
	before = cpu_us();
	usleep((useconds_t)(seconds * 1e6));
	s->own->cpu_us = (cpu_us() - before) / seconds;
	meet(s, 3);
}

int main(int argc, char **argv)
{
	int idle = argc == 3 && !strcmp(argv[1], "idle"), send = argc == 3 && !strcmp(argv[1], "send");
	double seconds = argc == 3 ? strtod(argv[2], NULL) : 0, rate;
	struct side s = { 0 };
	int status;
	pid_t pid;

	if (!(idle || send || (argc == 3 && !strcmp(argv[1], "write"))) || seconds <= 0 || seconds > 600) {
		fprintf(stderr, "usage: pair_bench write|send|idle SECONDS\n");
		return 2;
	}
	s.page = mmap(NULL, sizeof(*s.page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s.page == MAP_FAILED)
		die("mmap");
	pid = fork();
	if (pid < 0)
		die("fork");
	alarm((unsigned int)seconds + 30);	/* should the other side be gone */
	s.own = &s.page->side[!pid];
	s.peer = &s.page->side[!!pid];
	pin(pid != 0);
	open_side(&s);
	meet(&s, 1);
	connect_side(&s);
	if (idle) {
		rest(&s, seconds);
	} else if (!pid) {
		run_target(&s);
	} else {
		meet(&s, 2);
		request(&s, send, 0.02);
		rate = request(&s, send, seconds);
		s.page->stop = 1;
		printf("%.4g\n", rate);
	}
	if (!pid)
		_exit(0);
	if (waitpid(pid, &status, 0) != pid || status) {
		fprintf(stderr, "the target failed\n");
		return 1;
	}
	if (idle)
		printf("%.4g\n", s.own->cpu_us + s.peer->cpu_us);
	return 0;
}
