/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What goes wrong between two processes: refusals with the codes that one process gives, a target that is
 * killed, stopped for a while, stopped for long, or followed by another; memory that is gone; and fork. */
#include "t_why.h"
#include "t_idle.h"
#include "two.h"

static struct t_env *env;
static struct t_buf mem;

enum what { KEY, RIGHT, BEYOND, UNMAPPED_TO, UNMAPPED_FROM };

struct row {
	const char *name, *check;
	enum two_kind kind;
	enum ibv_wr_opcode op;
	uint32_t len;
	enum what what;
	struct t_codes codes;
};

static const struct row rows[] = {
	{ "RC WRITE, unknown key", "REMOTE_KEY", TWO_RC, IBV_WR_RDMA_WRITE, 64, KEY, C_REM_ACCESS },
	{ "RC long WRITE, unknown key", "REMOTE_KEY", TWO_RC, IBV_WR_RDMA_WRITE, 1 << 20, KEY, C_REM_ACCESS },
	{ "RC READ, unknown key", "REMOTE_KEY", TWO_RC, IBV_WR_RDMA_READ, 64, KEY, C_REM_ACCESS },
	{ "RC atomic, unknown key", "REMOTE_KEY", TWO_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, KEY, C_REM_ACCESS },
	{ "RC WRITE, read-only key", "REMOTE_RIGHT", TWO_RC, IBV_WR_RDMA_WRITE, 64, RIGHT, C_REM_ACCESS },
	{ "RC atomic, read-only key", "REMOTE_RIGHT", TWO_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, RIGHT, C_REM_ACCESS },
	{ "RC WRITE, beyond the end", "REMOTE_RANGE", TWO_RC, IBV_WR_RDMA_WRITE, 64, BEYOND, C_REM_ACCESS },
	{ "RC long READ, beyond the end", "REMOTE_RANGE", TWO_RC, IBV_WR_RDMA_READ, 1 << 20, BEYOND, C_REM_ACCESS },
	{ "XRC WRITE, unknown key", "REMOTE_KEY", TWO_XRC, IBV_WR_RDMA_WRITE, 64, KEY, C_REM_ACCESS },
	{ "XRC READ, beyond the end", "REMOTE_RANGE", TWO_XRC, IBV_WR_RDMA_READ, 64, BEYOND, C_REM_ACCESS },
	{ "DC WRITE, unknown key", "REMOTE_KEY", TWO_DC, IBV_WR_RDMA_WRITE, 64, KEY, C_REM_ACCESS },
	{ "DC READ, beyond the end", "REMOTE_RANGE", TWO_DC, IBV_WR_RDMA_READ, 64, BEYOND, C_REM_ACCESS },
	{ "RC WRITE from unmapped memory", "GATHER_FAULT", TWO_RC, IBV_WR_RDMA_WRITE, 64, UNMAPPED_FROM,
	  C_GATHER_FAULT },
	{ "RC long WRITE from unmapped memory", "GATHER_FAULT", TWO_RC, IBV_WR_RDMA_WRITE, 1 << 20, UNMAPPED_FROM,
	  C_GATHER_FAULT },
	{ "DC long WRITE from unmapped memory", "GATHER_FAULT", TWO_DC, IBV_WR_RDMA_WRITE, 1 << 20, UNMAPPED_FROM,
	  C_GATHER_FAULT },
	{ "RC SEND from unmapped memory", "GATHER_FAULT", TWO_RC, IBV_WR_SEND, 64, UNMAPPED_FROM, C_GATHER_FAULT },
	{ "RC SEND of some lines from unmapped memory", "GATHER_FAULT", TWO_RC, IBV_WR_SEND, 3000, UNMAPPED_FROM,
	  C_GATHER_FAULT },
	{ "RC READ into unmapped memory", "SCATTER_FAULT", TWO_RC, IBV_WR_RDMA_READ, 64, UNMAPPED_TO,
	  C_SCATTER_FAULT },
	{ "RC long READ into unmapped memory", "SCATTER_FAULT", TWO_RC, IBV_WR_RDMA_READ, 1 << 20, UNMAPPED_TO,
	  C_SCATTER_FAULT },
};

static void refused(const void *arg)
{
	const struct row *r = arg;
	struct two two = two_start(env);
	struct t_buf own = t_buf(env, 2 << 20, T_ALL);
	struct t_op o = t_rdma(r->op, 1, t_sge(&own, 0, r->len), two.page->rkey, two.page->va + TWO_TARGET);
	struct t_op after = t_rdma(IBV_WR_RDMA_WRITE, 2, t_sge(&mem, 0, 64), two.page->rkey,
				   two.page->va + TWO_TARGET);

	two_connect(env, &two, 12, 5);
	/* Something that works first, so that the link knows what it can do. */
	MUST(!two_post(&two, r->kind, &after), "post");
	T_DONE(two.q[r->kind].scq, 2, IBV_WC_RDMA_WRITE);
	memset(two.mem + TWO_TARGET, 0x5a, 2 << 20);
	switch (r->what) {
	case KEY: o.rkey ^= 0x3fff00; break;
	case RIGHT: o.rkey = two.page->readonly_rkey; break;
	case BEYOND: o.raddr = two.page->va + TWO_MEM - (r->len > 4096 ? 0 : r->len) + 1; break;
	case UNMAPPED_TO: case UNMAPPED_FROM: munmap(own.p, own.len); break;
	}
	t_why_begin();
	two_address(&two, r->kind, &o);
	two_address(&two, r->kind, &after);
	MUST(!two_post(&two, r->kind, &o), "post");
	MUST(!two_post(&two, r->kind, &after), "post");
	T_FAILED(two.q[r->kind].scq, 1, r->codes);
	T_WHY(r->check, two.q[r->kind].qp->qp_num);
	T_FAILED(two.q[r->kind].scq, 2, t_behind(r->codes, false));
	T_QUIET(two.q[r->kind].scq);
	/* A WRITE behind a READ may have left before the READ's answer found no memory. */
	if (r->what != UNMAPPED_TO)
		EXPECT(t_all(two.mem + TWO_TARGET, 2 << 20, 0x5a), "the target was written");
	ibv_dereg_mr(own.mr);
	if (r->what < UNMAPPED_TO)
		munmap(own.p, own.len);
	two_end(&two);
}

static void post_writes(struct two *two, enum two_kind k, int n, uint32_t len)
{
	for (int i = 0; i < n; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&mem, (uint64_t)i * len, len), two->page->rkey,
				       two->page->va + TWO_TARGET + (uint64_t)i * len);

		MUST(!two_post(two, k, &o), "post");
	}
}

struct way { const char *name; enum two_kind kind; uint32_t len; bool killed, stopped; };

/* Whatever was outstanding fails with the transport's code, in time, and nothing hangs. */
static void lost(const void *arg)
{
	const struct way *w = arg;
	struct two two = two_start(env);
	uint64_t began;

	two_connect(env, &two, 10, 3);
	post_writes(&two, w->kind, 1, w->len);
	T_DONE(two.q[w->kind].scq, 0, IBV_WC_RDMA_WRITE);
	kill(two.pid, w->stopped ? SIGSTOP : SIGKILL);
	if (!w->stopped)
		waitpid(two.pid, NULL, 0);
	else
		usleep(20000);
	began = t_now_ms();
	post_writes(&two, w->kind, 30, w->len);
	if (w->killed && w->stopped) {
		usleep(2000);
		kill(two.pid, SIGKILL);
	}
	T_FAILED(two.q[w->kind].scq, 0, T_RETRY);
	EXPECT(t_now_ms() - began < 3000, "only after %" PRIu64 " ms", t_now_ms() - began);
	for (int i = 1; i < 30; i++)
		T_FAILED(two.q[w->kind].scq, i, t_behind(T_RETRY, false));
	two_end(&two);
}

/* It comes back within the retry time: nothing is lost. */
static void paused(const void *arg)
{
	const struct way *w = arg;
	struct two two = two_start(env);

	two_connect(env, &two, 16, 7);
	two.page->quiet = 1;
	t_fill(mem.p, 30 * w->len, 5);
	usleep(5000);
	kill(two.pid, SIGSTOP);
	usleep(10000);
	post_writes(&two, w->kind, 30, w->len);
	usleep(300000);
	kill(two.pid, SIGCONT);
	for (int i = 0; i < 30; i++)
		T_DONE(two.q[w->kind].scq, i, IBV_WC_RDMA_WRITE);
	EXPECT(t_is(two.mem + TWO_TARGET, 30 * w->len, 5), "the target has other bytes");
	two_end(&two);
}

static void post_send(struct two *two, enum two_kind k, uint64_t id, uint32_t len)
{
	struct t_op o = t_op(IBV_WR_SEND, id, t_sge(&mem, 0, len));

	two->page->receives[k]++;
	two_wait(&two->page->posted[k], two->page->receives[k], "the target posts a receive");
	two_address(two, k, &o);
	if (id) {
		kill(two->pid, SIGSTOP);
		usleep(10000);	/* it stops a little later */
	}
	MUST(!two_post(two, k, &o), "post");
}

/* A requester that has given up may store something else in its buffer: who comes back later and still finds the
 * message has lost it. */
static void given_up(const void *arg)
{
	const struct way *w = arg;
	struct two two = two_start(env);

	two_connect(env, &two, 10, 2);
	t_fill(mem.p, w->len, 5);
	post_send(&two, w->kind, 0, w->len);
	T_DONE(two.q[w->kind].scq, 0, IBV_WC_SEND);
	two_wait(&two.page->got_count, 1, "the first message arrives");
	post_send(&two, w->kind, 1, w->len);
	T_FAILED(two.q[w->kind].scq, 1, T_RETRY);
	t_fill(mem.p, w->len, 6);
	kill(two.pid, SIGCONT);
	usleep(300000);
	EXPECT(two.page->got_count == 1, "a message that was given up is delivered, status %u",
	       two.page->got[1].status);
	two_end(&two);
}

/* Targets that are killed, one after the other; each next one is served as the first was. */
static void successors(const void *arg)
{
	(void)arg;
	for (int i = 0; i < 5; i++) {
		struct two two = two_start(env);

		two_connect(env, &two, 10, 3);
		for (int k = 0; k < TWO_KINDS; k++) {
			if (k == TWO_UD || k == TWO_UC)
				continue;
			post_writes(&two, k, 4, 10000);
			for (int j = 0; j < 4; j++)
				T_DONE(two.q[k].scq, j, IBV_WC_RDMA_WRITE);
		}
		kill(two.pid, SIGKILL);
		two_end(&two);
	}
}

static void nobody(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_qp q = t_qp(env, &s);
	struct ibv_qp_attr attr = t_attr(env, 0xabcdef);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&mem, 0, 64));

	(void)arg;
	t_to_rts(q.qp, &attr);
	MUST(!t_post(&q, &o), "post");
	T_FAILED(q.scq, 1, T_RETRY);
	t_qp_free(&q);
}

static void no_receive(const void *arg)
{
	struct two two = two_start(env);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&mem, 0, 64));
	struct ibv_qp_attr attr;

	(void)arg;
	two_connect(env, &two, 10, 3);
	t_reset(two.q[TWO_RC].qp);
	attr = t_attr(env, two.page->qpn[TWO_RC]);
	attr.rnr_retry = 2;
	t_to_rts(two.q[TWO_RC].qp, &attr);
	MUST(!two_post(&two, TWO_RC, &o), "post");
	T_FAILED(two.q[TWO_RC].scq, 1, T_RNR);
	two_end(&two);
}

/* Refused for want of a receive, and taken when there is one, once. */
static void late_receive(const void *arg)
{
	const struct way *w = arg;
	struct two two = two_start(env);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&mem, 0, w->len));
	struct two_got got;

	two_connect(env, &two, 14, 7);
	t_fill(mem.p, w->len, 5);
	two_address(&two, w->kind, &o);
	MUST(!two_post(&two, w->kind, &o), "post");
	usleep(50000);
	EXPECT(!two.page->got_count, "something was received");
	two_want_receives(&two, w->kind, 1);
	T_DONE(two.q[w->kind].scq, 1, IBV_WC_SEND);
	got = two_take(&two);
	EXPECT_EQ(got.status, IBV_WC_SUCCESS, "status of the receive");
	EXPECT_EQ(got.bytes, w->len, "bytes received");
	EXPECT(t_is(two.mem + TWO_RECV, w->len, 5), "the receive has other bytes");
	usleep(20000);
	EXPECT_EQ(two.page->got_count, 1, "messages received");
	two_end(&two);
}

/* The child uses what it inherited as its own copy, and reaches others under numbers of its own. */
static void forked(const void *arg)
{
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
	t_skip("ThreadSanitizer does not follow a fork of several threads");
#endif
#endif
	struct two two = two_start(env);
	int status;
	pid_t pid;

	(void)arg;
	two_connect(env, &two, 12, 5);
	post_writes(&two, TWO_RC, 2, 9000);
	for (int i = 0; i < 2; i++)
		T_DONE(two.q[TWO_RC].scq, i, IBV_WC_RDMA_WRITE);
	two_want_receives(&two, TWO_UD, 1);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		struct t_spec s = { .type = IBV_QPT_UD, .ops = T_UD_OPS };
		struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&mem, 0, 64));
		struct t_qp q = t_qp(env, &s);

		t_ud_rts(env, q.qp);
		t_fill(mem.p, 64, 77);
		two.q[TWO_UD] = q;
		if (q.qp->qp_num >> 10 == two.page->tester_qpn[TWO_UD] >> 10)
			_exit(2);	/* the parent's block */
		if (two_post(&two, TWO_UD, &o))
			_exit(3);
		T_DONE(q.scq, 1, IBV_WC_SEND);
		_exit(t_state.failures ? 4 : 0);
	}
	waitpid(pid, &status, 0);
	EXPECT_EQ(status, 0, "status of the child");
	EXPECT_EQ(two_take(&two).bytes, 64 + 40, "bytes that the child sent");
	EXPECT(t_is(two.mem + TWO_RECV + 40, 64, 77), "the child sent something else");
	post_writes(&two, TWO_RC, 2, 9000);
	for (int i = 0; i < 2; i++)
		T_DONE(two.q[TWO_RC].scq, i, IBV_WC_RDMA_WRITE);
	two_end(&two);
}

/* A connected pair that does nothing uses nothing, and is there when it is needed. */
static void idle(const void *arg)
{
	struct two two = two_start(env);
	struct t_work here, there;

	(void)arg;
	two_connect(env, &two, 14, 7);
	two.page->quiet = TWO_ASLEEP;
	post_writes(&two, TWO_RC, 2, 9000);
	for (int i = 0; i < 2; i++)
		T_DONE(two.q[TWO_RC].scq, i, IBV_WC_RDMA_WRITE);
	usleep(200000);
	here = t_work(getpid());
	there = t_work(two.pid);
	sleep(3);
	t_expect_idle(here, getpid(), "this process");
	t_expect_idle(there, two.pid, "the target");
	t_fill(mem.p, 18000, 9);
	post_writes(&two, TWO_RC, 2, 9000);
	for (int i = 0; i < 2; i++)
		T_DONE(two.q[TWO_RC].scq, i, IBV_WC_RDMA_WRITE);
	EXPECT(t_is(two.mem + TWO_TARGET, 18000, 9), "the target has other bytes");
	kill(two.pid, SIGKILL);
	two_end(&two);
}

static const struct way lost_ways[] = {
	{ "RC, killed", TWO_RC, 64, true, false },
	{ "RC, killed, long messages", TWO_RC, 100000, true, false },
	{ "XRC, killed", TWO_XRC, 8000, true, false },
	{ "DC, killed", TWO_DC, 8000, true, false },
	{ "RC, stopped", TWO_RC, 64, false, true },
	{ "RC, stopped, more than fits", TWO_RC, 8192, false, true },
	{ "DC, stopped, more than fits", TWO_DC, 8192, false, true },
	{ "RC, stopped, then killed", TWO_RC, 8192, true, true },
};
static const struct way given_up_ways[] = {
	{ "RC, a SEND of some lines that was given up", TWO_RC, 2000, false, true },
	{ "RC, a long SEND that was given up", TWO_RC, 500000, false, true },
	{ "XRC, a long SEND that was given up", TWO_XRC, 500000, false, true },
	{ "DC, a long SEND that was given up", TWO_DC, 500000, false, true },
};

static const struct way paused_ways[] = {
	{ "RC, stopped for 300 ms", TWO_RC, 64, false, false },
	{ "RC, stopped for 300 ms, more than fits", TWO_RC, 8192, false, false },
	{ "RC, stopped for 300 ms, long messages", TWO_RC, 100000, false, false },
	{ "XRC, stopped for 300 ms, more than fits", TWO_XRC, 8192, false, false },
	{ "DC, stopped for 300 ms, more than fits", TWO_DC, 8192, false, false },
};

static const struct way late_ways[] = {
	{ "RC, a short SEND before its receive", TWO_RC, 40, false, false },
	{ "RC, a SEND of some lines before its receive", TWO_RC, 3000, false, false },
	{ "RC, a long SEND before its receive", TWO_RC, 70000, false, false },
	{ "XRC, a SEND of some lines before its receive", TWO_XRC, 3000, false, false },
	{ "DC, a SEND of some lines before its receive", TWO_DC, 3000, false, false },
};

int main(int argc, char **argv)
{
	two_main(argc, argv);
	env = t_open();
	mem = t_buf(env, 4 << 20, T_ALL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, refused, &rows[i]);
	for (size_t i = 0; i < sizeof(lost_ways) / sizeof(lost_ways[0]); i++)
		t_case(lost_ways[i].name, lost, &lost_ways[i]);
	for (size_t i = 0; i < sizeof(paused_ways) / sizeof(paused_ways[0]); i++)
		t_case(paused_ways[i].name, paused, &paused_ways[i]);
	for (size_t i = 0; i < sizeof(given_up_ways) / sizeof(given_up_ways[0]); i++)
		t_case(given_up_ways[i].name, given_up, &given_up_ways[i]);
	for (size_t i = 0; i < sizeof(late_ways) / sizeof(late_ways[0]); i++)
		t_case(late_ways[i].name, late_receive, &late_ways[i]);
	t_case("targets that follow killed ones", successors, NULL);
	t_case("a number that nobody has", nobody, NULL);
	t_case("RC SEND without a receive", no_receive, NULL);
	t_case("fork", forked, NULL);
	t_case("idle", idle, NULL);
	t_buf_free(&mem);
	return t_close(env);
}
