/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Two processes start, connect and work, and one of them is killed at a moment that nobody chose:
 * while it starts, while it connects, while it works. The other has to get its error in time and to
 * end by itself, and nothing may be left behind.
 *
 * usage: two_process_kill [CYCLES [SEED]] */
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "t.h"
#include "t_registry.h"

enum { MEM = 2 << 20, DEPTH = 8, ENDS = 2, PATIENCE_MS = 20000 };

struct face {
	volatile uint32_t ready, qpn, rkey, going;
	uint64_t va;
};

struct page {
	struct face face[ENDS];
	volatile uint32_t gone; /* the peer was killed */
	uint32_t first[32];     /* how often each status was the first failure */
	uint32_t alone, worked; /* survivors that never met their peer; that did */
	char why[450];
};

struct job {
	struct page *page;
	int me;
	uint64_t seed;
};

static uint64_t rng;

static uint32_t rnd(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)((rng >> 16) % n);
}

/* ---- one of the two ---- */

static bool meet(struct page *page, int me, uint32_t stage)
{
	uint64_t end = t_now_ms() + PATIENCE_MS;

	page->face[me].ready = stage;
	while (page->face[!me].ready < stage) {
		if (page->gone || getppid() == 1)
			return false;
		MUST(t_now_ms() < end, "the peer comes");
		usleep(100);
	}
	return true;
}

static void post_one(struct t_qp *q, struct t_buf *mem, const struct face *peer, uint64_t wr_id)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
						  IBV_WR_ATOMIC_FETCH_AND_ADD,
						  IBV_WR_RDMA_WRITE_WITH_IMM };
	enum ibv_wr_opcode op = ops[rnd(5)];
	uint32_t len = rnd(3) ? rnd(4096) : rnd(MEM / 4);
	struct t_op o;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		len = 8;
	if (op == IBV_WR_SEND)
		len = rnd(MEM / DEPTH);
	o = t_rdma(op, wr_id, t_sge(mem, 0, len), peer->rkey, peer->va + MEM / 2);
	o.compare_add = 1;
	errno = t_post(q, &o);
	MUST(!errno, "post");
}

/* RETURN how many of the outstanding ones completed; 0 after the first failure. */
static bool take(struct page *page, struct t_qp *q, uint64_t *next, uint64_t *done)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(q->scq, 1, &wc) > 0) {
		MUST(wc.wr_id == *done, "completions in order");
		(*done)++;
		if (wc.status == IBV_WC_SUCCESS)
			continue;
		page->first[wc.status & 31]++;
		EXPECT(wc.status == IBV_WC_RETRY_EXC_ERR, "the first failure is %s",
		       ibv_wc_status_str(wc.status));
		for (; *done < *next; (*done)++) {
			struct t_wc got = t_poll(q->scq);

			EXPECT(got.wc.status == IBV_WC_WR_FLUSH_ERR && got.wc.wr_id == *done,
			       "behind it: wr_id %" PRIu64 " %s", got.wc.wr_id,
			       ibv_wc_status_str(got.wc.status));
		}
		return false;
	}
	return true;
}

static void repost(struct t_qp *q, struct t_buf *mem)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(q->rcq, 1, &wc) > 0)
		if (wc.status == IBV_WC_SUCCESS)
			t_recv(q, 0, t_sge(mem, MEM, MEM / DEPTH));
}

static void work(struct page *page, int me, struct t_qp *q, struct t_buf *mem)
{
	uint64_t next = 0, done = 0, late = 0;

	page->face[me].going = 1;
	for (;;) {
		while (next - done < DEPTH)
			post_one(q, mem, &page->face[!me], next++);
		if (!take(page, q, &next, &done))
			return;
		repost(q, mem);
		if (page->gone && !late)
			late = t_now_ms() + PATIENCE_MS;
		MUST(!late || t_now_ms() < late, "the error comes");
		if (getppid() == 1)
			_exit(3);
	}
}

/* On a busy machine the error may come before the other end is dead; who leaves before it cannot tidy up after it. */
static void await_death(const struct page *page)
{
	uint64_t end = t_now_ms() + PATIENCE_MS;

	while (!page->gone && t_now_ms() < end && getppid() != 1)
		usleep(1000);
}

static void end_case(const void *arg)
{
	const struct job *job = arg;
	struct page *page = job->page;
	struct t_env *env = t_open();
	struct t_buf mem = t_buf(env, 2 * MEM, T_ALL);
	struct t_qp q = t_qp(env, &(struct t_spec){ .ops = T_RC_OPS });
	struct ibv_qp_attr attr;

	page->face[job->me].qpn = q.qp->qp_num;
	page->face[job->me].rkey = mem.mr->rkey;
	page->face[job->me].va = mem.va;
	if (meet(page, job->me, 1)) {
		attr = t_attr(env, page->face[!job->me].qpn);
		attr.timeout = 12;
		attr.retry_cnt = 5;
		t_to_rts(q.qp, &attr);
		for (int i = 0; i < DEPTH; i++)
			t_recv(&q, 0, t_sge(&mem, MEM, MEM / DEPTH));
		if (meet(page, job->me, 2)) {
			work(page, job->me, &q, &mem);
			await_death(page);
			page->worked++;
		} else {
			page->alone++;
		}
	} else {
		page->alone++;
	}
	t_qp_free(&q);
	t_buf_free(&mem);
	if (ibv_dealloc_pd(env->pd) || ibv_close_device(env->ctx))
		t_fail(__FILE__, __LINE__, "something is still in use");
	free(env);
	if (t_state.failures)
		snprintf(page->why, sizeof(page->why), "process %c: %s", 'A' + job->me,
			 t_state.why);
	exit(t_state.failures != 0);
}

/* ---- whoever starts and kills them ---- */

static pid_t start_end(const struct job *job, int fd)
{
	char side[4], text[16], seed[32];
	pid_t pid = fork();

	if (pid)
		return pid;
	snprintf(side, sizeof(side), "%d", job->me);
	snprintf(text, sizeof(text), "%d", fd);
	snprintf(seed, sizeof(seed), "%" PRIu64, job->seed);
	execl("/proc/self/exe", "end", "end", side, text, seed, (char *)NULL);
	_exit(127);
}

/* RETURN its status, or -1 if it had to be killed. */
static int wait_end(pid_t pid)
{
	uint64_t end = t_now_ms() + PATIENCE_MS + 10000;
	int status;

	while (waitpid(pid, &status, WNOHANG) != pid) {
		if (t_now_ms() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		usleep(500);
	}
	return status;
}

struct run {
	uint32_t cycles;
	uint64_t seed;
	struct page *page;
	int fd;
};

/* Half of the kills are while it starts, half while it works. */
static void sleep_somewhere(const struct page *page)
{
	uint64_t end = t_now_ms() + PATIENCE_MS;

	if (rnd(2))
		while ((!page->face[0].going || !page->face[1].going) && t_now_ms() < end)
			usleep(200);
	usleep(rnd(30000));
}

static void one_cycle(const struct run *r, uint32_t i)
{
	struct job job = { .page = r->page };
	int victim = (int)rnd(2), status;
	bool both = !rnd(8);
	pid_t pid[ENDS];
	char name[256];

	memset(r->page->face, 0, sizeof(r->page->face));
	r->page->gone = 0;
	for (job.me = 0; job.me < ENDS; job.me++) {
		job.seed = r->seed * 7919 + 2 * i + (unsigned int)job.me + 1;
		pid[job.me] = start_end(&job, r->fd);
	}
	sleep_somewhere(r->page);
	kill(pid[victim], SIGKILL);
	if (both)
		kill(pid[!victim], SIGKILL);
	waitpid(pid[victim], NULL, 0);
	r->page->gone = 1;
	status = wait_end(pid[!victim]);
	if (both)
		return;
	EXPECT(!status, "cycle %u: the survivor %s 0x%x: %s", i,
	       status < 0 ? "hangs" : "ended with", status, r->page->why);
	EXPECT(!t_registry_entries(false, name, sizeof(name)), "cycle %u: %s is left behind", i, name);
}

static void cycles(const void *arg)
{
	const struct run *r = arg;

	alarm(0);
	for (uint32_t i = 0; i < r->cycles && !t_state.failures; i++)
		one_cycle(r, i);
	printf("# seed %" PRIu64
	       ", %u cycles: %u survivors had not met their peer, %u had; first failures:",
	       r->seed, r->cycles, r->page->alone, r->page->worked);
	for (int i = 0; i < 32; i++)
		if (r->page->first[i])
			printf(" %s %u", ibv_wc_status_str((enum ibv_wc_status)i),
			       r->page->first[i]);
	printf("\n");
	t_registry_entries(true, NULL, 0); /* of two that were killed last */
	EXPECT(r->page->worked, "nobody was killed while at work");
}

int main(int argc, char **argv)
{
	struct run r = { .cycles = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 100,
			 .seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL) };
	bool is_end = argc == 5 && !strcmp(argv[1], "end");

	setenv("SOFTMLX5_HOST", "on", 0);
	r.fd = is_end ? (int)strtol(argv[3], NULL, 10) : (int)syscall(SYS_memfd_create, "kill", 0);
	if (r.fd < 0 || (!is_end && ftruncate(r.fd, sizeof(*r.page))))
		return 1;
	r.page = mmap(NULL, sizeof(*r.page), PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
	if (r.page == MAP_FAILED)
		return 1;
	if (is_end) {
		struct job job = { r.page, (int)strtol(argv[2], NULL, 10),
				   strtoull(argv[4], NULL, 10) };

		close(r.fd);
		rng = job.seed * 0x9e3779b97f4a7c15ull | 1;
		if (!setjmp(t_state.out))
			end_case(&job);
		snprintf(r.page->why, sizeof(r.page->why), "process %c: %s", 'A' + job.me,
			 t_state.why);
		_exit(1);
	}
	rng = r.seed * 0x9e3779b97f4a7c15ull | 1;
	t_own_network();
	t_case("one of two processes is killed", cycles, &r);
	return t_done();
}
