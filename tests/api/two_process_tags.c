/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tag matching between two processes: messages that come in the lane and messages whose payload stays in the
 * sender's memory, eager and rendezvous, matched and not; then the same where no process may read another's memory.
 * This program starts itself again as the sender. */
#include <sys/wait.h>

#include "tag.h"

enum { BIG = 1 << 20, AREA = 2 << 20, STEPS = 7 };

/* What the processes tell each other. */
struct page {
	volatile uint32_t qpn[2], step, done;	/* qpn: of receiver and sender */
};

static const struct step { const char *name; uint8_t opcode; uint64_t tag; uint32_t len; } steps[STEPS] = {
	{ "a short message", IBV_TMH_EAGER, 1, 100 },
	{ "a message that stays in the sender's memory", IBV_TMH_EAGER, 2, 20000 },
	{ "a long message", IBV_TMH_EAGER, 3, BIG },
	{ "a short rendezvous", IBV_TMH_RNDV, 4, 64 },
	{ "a long rendezvous", IBV_TMH_RNDV, 5, BIG },
	{ "an unexpected message", IBV_TMH_EAGER, 99, 3000 },
	{ "a message without a tag", IBV_TMH_NO_TAG, 7, 12000 },
};

static struct t_env *env;
static struct page *page;
static struct t_buf mem;

static void wait_until(volatile uint32_t *word, uint32_t value, const char *what)
{
	uint64_t end = t_now_ms() + 20000;

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value && t_now_ms() < end)
		usleep(100);
	MUST(__atomic_load_n(word, __ATOMIC_ACQUIRE) >= value, what);
}

/* ---- the sender ---- */

static void send_step(struct t_qp *q, const struct step *s, uint32_t n)
{
	struct { struct ibv_tmh t; struct ibv_rvh r; } *head = (void *)mem.p;
	uint32_t len = sizeof(head->t) + s->len;
	struct t_op o;

	t_fill(mem.p + sizeof(head->t), s->len, n);
	if (s->opcode == IBV_TMH_RNDV) {
		t_fill(mem.p + 4096, s->len, n);
		head->r = (struct ibv_rvh){ htobe64(mem.va + 4096), htobe32(mem.key), htobe32(s->len) };
		t_recv(q, 50, t_sge(&mem, AREA - 64, 64));
		len = sizeof(*head);
	}
	head->t = tag_tmh(s->opcode, s->tag);
	o = t_op(IBV_WR_SEND, n, t_sge(&mem, 0, len));
	EXPECT_EQ(t_post_old(q, &o), 0, "SEND");
	T_DONE(q->scq, n, IBV_WC_SEND);
	if (s->opcode != IBV_TMH_RNDV)
		return;
	EXPECT_EQ(T_DONE(q->rcq, 50, IBV_WC_RECV).wc.byte_len, sizeof(*head), "length of FIN");
	EXPECT_EQ(mem.p[AREA - 64], IBV_TMH_FIN, "opcode of FIN");
}

static void send_all(const void *arg)
{
	struct t_spec spec = { 0 };
	struct t_qp q = t_qp(env, &spec);
	struct ibv_qp_attr attr;

	(void)arg;
	mem = t_buf(env, AREA, T_ALL);
	page->qpn[1] = q.qp->qp_num;
	wait_until(&page->qpn[0], 1, "the receiver's queue pair");
	attr = t_attr(env, page->qpn[0]);
	attr.timeout = 14;
	attr.retry_cnt = 7;
	t_to_rts(q.qp, &attr);
	for (uint32_t n = 0; n < STEPS; n++) {
		wait_until(&page->step, n + 1, steps[n].name);
		send_step(&q, &steps[n], n);
	}
	wait_until(&page->done, 1, "the receiver's end");
	t_qp_free(&q);
	t_buf_free(&mem);
}

/* ---- the receiver ---- */

static struct ibv_cq_ex *cq;
static struct ibv_srq *srq;
static struct ibv_qp *qp;
static struct t_buf bounce;

static void start(const void *arg)
{
	struct ibv_srq_init_attr_ex attr;
	struct ibv_qp_attr to;

	(void)arg;
	mem = t_buf(env, AREA, T_ALL);
	bounce = t_buf(env, 4 * 16384, T_ALL);
	cq = tag_cq(env);
	attr = tag_srq_attr(env, cq);
	srq = ibv_create_srq_ex(env->ctx, &attr);
	MUST(srq, "ibv_create_srq_ex");
	qp = tag_qp(env, srq, cq, 0);
	MUST(qp, "ibv_create_qp");
	for (int i = 0; i < 4; i++)
		t_srq_recv(srq, i, t_sge(&bounce, i * 16384, 16384));
	page->qpn[0] = qp->qp_num;
	wait_until(&page->qpn[1], 1, "the sender's queue pair");
	to = t_attr(env, page->qpn[1]);
	to.timeout = 14;
	to.retry_cnt = 7;
	t_to_rts(qp, &to);
}

static void take_step(const void *arg)
{
	enum { MATCH = IBV_WC_TM_MATCH, VALID = IBV_WC_TM_DATA_VALID };
	const struct step *s = arg;
	uint32_t n = (uint32_t)(s - steps);
	struct ibv_sge sge = t_sge(&mem, 0, BIG);
	bool matches = s->opcode != IBV_TMH_NO_TAG && s->tag < 90;
	static uint32_t used;

	memset(mem.p, 0, BIG);
	if (matches) {
		EXPECT_EQ(tag_post(srq, (struct tag_op){ IBV_WR_TAG_ADD, n, IBV_OPS_SIGNALED, 0, s->tag, ~0ull, &sge },
				   NULL), 0, "IBV_WR_TAG_ADD");
		TAG_TAKE(cq, IBV_WC_TM_ADD, n, 0);
	}
	__atomic_store_n(&page->step, n + 1, __ATOMIC_RELEASE);
	if (!matches) {
		TAG_TAKE(cq, s->opcode == IBV_TMH_NO_TAG ? IBV_WC_TM_NO_TAG : IBV_WC_TM_RECV, used, 0);
		EXPECT(t_is(bounce.p + used++ * 16384 + sizeof(struct ibv_tmh), s->len, n), "data");
		return;
	}
	if (s->opcode == IBV_TMH_RNDV || s->len > 4000) {
		EXPECT_EQ(TAG_TAKE(cq, IBV_WC_TM_RECV, n + 1000, MATCH).tag, s->tag, "tag");
		EXPECT_EQ(TAG_TAKE(cq, IBV_WC_TM_RECV, n + 1000, VALID).bytes, s->len, "byte_len");
	} else {
		EXPECT_EQ(TAG_TAKE(cq, IBV_WC_TM_RECV, n + 1000, MATCH | VALID).bytes, s->len, "byte_len");
	}
	EXPECT(t_is(mem.p, s->len, n) && !mem.p[s->len], "data");
}

static void end(const void *arg)
{
	(void)arg;
	__atomic_store_n(&page->done, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(ibv_destroy_qp(qp), 0, "ibv_destroy_qp");
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
	EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0, "ibv_destroy_cq");
	t_buf_free(&mem);
	t_buf_free(&bounce);
}

static int receive(const char *mode)
{
	char text[120];
	int rc, status;
	pid_t pid;

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		env = t_open();
		t_case("the sender", send_all, NULL);
		exit(t_close(env));
	}
	env = t_open();
	snprintf(text, sizeof(text), "%s: start", mode);
	t_case(text, start, NULL);
	for (size_t i = 0; i < STEPS && !t_state.failed; i++) {
		snprintf(text, sizeof(text), "%s: %s", mode, steps[i].name);
		t_case(text, take_step, &steps[i]);
	}
	snprintf(text, sizeof(text), "%s: end", mode);
	t_case(text, end, NULL);
	rc = t_close(env);
	waitpid(pid, &status, 0);
	return rc ? rc : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Each way in a process of its own, before which no device was opened: forking is simple then. */
int main(void)
{
	static const char *const modes[][2] = { { "on", "by reference" }, { "copy", "by value" } };
	int status;

	for (int i = 0; i < 2; i++) {
		fflush(stdout);
		if (!fork()) {
			setenv("SOFTMLX5_HOST", modes[i][0], 1);
			exit(receive(modes[i][1]));
		}
		wait(&status);
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			return 1;
	}
	return 0;
}
