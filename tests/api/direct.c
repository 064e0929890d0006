/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One-sided requests between two processes that are carried out without the target: also while it is stopped. That
 * they keep their order, end where the target's rights end, and hurt nobody when either side stops or dies in the
 * middle.
 *
 * The program starts itself again as the other side, which does what it is told, word by word, in a page of common
 * memory. Its own memory is private, as a program's is. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "t_why.h"

enum { PAGE_BYTES = 4096, MEM = 8 << 20, WORD = 0, DATA = 4096, DC_KEY = 0x91, RECEIVES = 16, MARKS = 4 };

enum command {
	NOTHING, CONNECT, FILL, COMPARE, CLEAR, TAKE_BACK, TO_ERR, NO_WRITES, ADD, AWAIT, COUNT, RECEIVE, HAMMER, LEAVE
};

/* The first page of the common memory. */
struct page {
	volatile uint32_t command, done, ready;
	volatile uint64_t a, b, c, result;
	volatile uint32_t hammering;
	uint32_t rc, dct, other_rc;
	uint32_t rkey, readonly_rkey;
	uint64_t va;
	/* HAMMER */
	uint64_t hammer_va, hammer_len;
	uint32_t hammer_rkey;
	volatile uint32_t step;		/* AWAIT */
};

struct two {
	struct page *page;
	pid_t pid;
	struct t_qp rc, dci;
	struct ibv_ah *ah;
};

static struct t_env *env;

/* ---- the other side ---- */

struct other {
	struct page *page;
	struct t_env *env;
	struct t_buf mem;
	struct ibv_mr *readonly;
	struct t_qp rc, dct, self_a, self_b;
	struct ibv_srq *srq;
};

/* Where long copies end a part: what is stored last, and so is looked at first. */
static uint32_t mark(uint32_t i)
{
	return ((i + 1) << 20) - 1;
}

static bool stays(const struct other *o)
{
	volatile const uint8_t *data = o->mem.p + DATA;
	uint8_t first[MARKS];
	uint8_t *copy;
	bool same;

	for (uint32_t i = 0; i < MARKS; i++)
		first[i] = data[mark(i)];
	copy = malloc(MEM);
	memcpy(copy, o->mem.p, MEM);
	for (uint32_t i = 0; i < MARKS; i++)
		copy[DATA + mark(i)] = first[i];
	usleep(30000);
	same = !memcmp(copy, o->mem.p, MEM);
	free(copy);
	return same;
}

/* As a processor, and as a device. */
static void add_many(struct other *o, uint32_t n)
{
	uint64_t *word = (uint64_t *)(void *)(o->mem.p + WORD);
	struct t_op op = t_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, t_sge(&o->mem, MEM - 64, 8), o->mem.key,
				o->mem.va + WORD);

	op.compare_add = 1;
	for (uint32_t i = 0; i < n; i++) {
		__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
		MUST(!t_post(&o->self_a, &op), "post");
		T_DONE(o->self_a.scq, 0, IBV_WC_FETCH_ADD);
	}
}

/* Polls the last byte of messages, and looks at the whole as soon as it is there. RETURN how many were not. */
static uint32_t await_last(struct other *o, uint32_t n, uint64_t max)
{
	volatile uint8_t *mem = o->mem.p + DATA;
	uint32_t bad = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t len = 1 + (i * 7919ull + i) % max;

		while (mem[len - 1] != (uint8_t)(i + 1))
			;
		for (uint64_t j = 0; j < len; j++)
			if (mem[j] != (uint8_t)(i + 1)) {
				bad++;
				break;
			}
		__atomic_store_n(&o->page->step, i + 1, __ATOMIC_RELEASE);
	}
	return bad;
}

static void post_receives(struct other *o, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		t_recv(&o->rc, 0, t_sge(&o->mem, MEM - 4096, 64));
}

/* The word counts up behind each message: it never runs ahead of them. RETURN how often it did, or half of a
 * pair was not there. */
static uint32_t count_messages(struct other *o, uint32_t n)
{
	volatile uint64_t *word = (volatile uint64_t *)(void *)(o->mem.p + WORD);
	uint32_t got = 0, bad = 0;

	while (got < n) {
		uint64_t before = word[0], count;
		struct ibv_wc wc[RECEIVES];
		int k;

		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		while ((k = ibv_poll_cq(o->rc.rcq, RECEIVES, wc)) > 0) {
			got += (uint32_t)k;
			post_receives(o, (uint32_t)k);
		}
		bad += before > got;
		count = word[8];	/* written before each message */
		bad += count < got;
	}
	return bad;
}

static void hammer(struct other *o)
{
	struct page *page = o->page;
	uint32_t len = (uint32_t)page->hammer_len, posted = 0, taken = 0;
	struct t_op op = t_rdma(IBV_WR_RDMA_WRITE, 0, t_sge(&o->mem, DATA, len), page->hammer_rkey, page->hammer_va);
	struct ibv_wc wc;

	for (;;) {
		*(uint64_t *)(void *)(o->mem.p + DATA) = posted;
		if (!t_post(&o->rc, &op))
			posted++;
		while (ibv_poll_cq(o->rc.scq, 1, &wc) > 0) {
			taken++;
			if (wc.status)
				return;
		}
		page->hammering = taken;
	}
}

static uint64_t obey(struct other *o, enum command command)
{
	struct page *page = o->page;
	struct ibv_qp_attr attr = t_attr(o->env, page->other_rc);

	switch (command) {
	case CONNECT:
		attr.timeout = 14;
		attr.retry_cnt = 7;
		t_to_rts(o->rc.qp, &attr);
		return 0;
	case FILL: t_fill(o->mem.p + page->a, page->b, (uint32_t)page->c); return 0;
	case COMPARE: return t_is(o->mem.p + page->a, page->b, (uint32_t)page->c);
	case CLEAR: memset(o->mem.p, 0, MEM); return 0;
	case TAKE_BACK:
		MUST(!ibv_dereg_mr(o->mem.mr), "ibv_dereg_mr");
		return stays(o);
	case NO_WRITES:
		MUST(!ibv_rereg_mr(o->mem.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ), "ibv_rereg_mr");
		return stays(o);
	case TO_ERR:
		MUST(!t_modify(o->rc.qp, &attr, IBV_QPS_ERR, IBV_QP_STATE), "to ERR");
		return stays(o);
	case ADD: add_many(o, (uint32_t)page->a); return 0;
	case AWAIT: return await_last(o, (uint32_t)page->a, page->b);
	case RECEIVE: post_receives(o, (uint32_t)page->a); return 0;
	case COUNT: return count_messages(o, (uint32_t)page->a);
	case HAMMER: hammer(o); return 0;
	default: _exit(0);
	}
}

static void other_case(const void *arg)
{
	struct other *o = (void *)(uintptr_t)arg;
	struct page *page = o->page;

	alarm(0);
	o->env = t_open();
	o->mem = t_buf(o->env, MEM, T_ALL);
	o->readonly = ibv_reg_mr(o->env->pd, o->mem.p, MEM, IBV_ACCESS_REMOTE_READ);
	MUST(o->readonly, "ibv_reg_mr");
	o->rc = t_qp(o->env, &(struct t_spec) { .ops = T_RC_OPS });
	o->self_a = t_qp(o->env, &(struct t_spec) { .ops = T_RC_OPS });
	o->self_b = t_qp(o->env, &(struct t_spec) { .ops = T_RC_OPS });
	t_connect(o->env, &o->self_a, &o->self_b);
	o->srq = t_srq(o->env, 16);
	o->dct = t_dct(o->env, o->srq, DC_KEY);
	page->rc = o->rc.qp->qp_num;
	page->dct = o->dct.qp->qp_num;
	page->va = o->mem.va;
	page->rkey = o->mem.mr->rkey;
	page->readonly_rkey = o->readonly->rkey;
	page->ready = 1;
	while (getppid() != 1) {
		struct ibv_wc wc;

		if (page->command != NOTHING) {
			page->result = obey(o, page->command);
			page->command = NOTHING;
			__atomic_fetch_add(&page->done, 1, __ATOMIC_SEQ_CST);
		}
		while (ibv_poll_cq(o->rc.rcq, 1, &wc) > 0)
			__atomic_fetch_add(&page->step, 1, __ATOMIC_SEQ_CST);
		usleep(20);
	}
	_exit(0);
}

/* ---- this side ---- */

static void tell(struct two *two, enum command command, uint64_t a, uint64_t b, uint64_t c)
{
	two->page->a = a;
	two->page->b = b;
	two->page->c = c;
	__atomic_store_n(&two->page->command, command, __ATOMIC_SEQ_CST);
}

static uint64_t hear(struct two *two)
{
	for (int i = 0; i < 400000 && two->page->command != NOTHING; i++)
		usleep(50);
	MUST(two->page->command == NOTHING, "the other side answers");
	return two->page->result;
}

static uint64_t ask(struct two *two, enum command command, uint64_t a, uint64_t b, uint64_t c)
{
	tell(two, command, a, b, c);
	return hear(two);
}

static struct two start(void)
{
	struct two two = { 0 };
	struct ibv_qp_attr attr;
	int fd = (int)syscall(SYS_memfd_create, "two", 0);
	char text[16];

	MUST(fd >= 0 && !ftruncate(fd, PAGE_BYTES), "memfd_create");
	two.page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(two.page != MAP_FAILED, "mmap");
	snprintf(text, sizeof(text), "%d", fd);
	fflush(stdout);
	two.pid = fork();
	if (!two.pid) {
		execl("/proc/self/exe", "target", "target", text, (char *)NULL);
		_exit(127);
	}
	close(fd);
	for (int i = 0; i < 200000 && !two.page->ready; i++)
		usleep(50);
	MUST(two.page->ready, "the other side starts");
	two.rc = t_qp(env, &(struct t_spec) { .ops = T_RC_OPS });
	two.dci = t_qp(env, &(struct t_spec) { .dc = T_DCI, .ops = T_RC_OPS });
	two.ah = t_ah(env);
	two.page->other_rc = two.rc.qp->qp_num;
	attr = t_attr(env, two.page->rc);
	attr.timeout = 14;
	attr.retry_cnt = 7;
	t_to_rts(two.rc.qp, &attr);
	t_dci_rts(two.dci.qp, &attr);
	ask(&two, CONNECT, 0, 0, 0);
	return two;
}

static void end(struct two *two)
{
	kill(two->pid, SIGKILL);
	waitpid(two->pid, NULL, 0);
	t_qp_free(&two->rc);
	t_qp_free(&two->dci);
	ibv_destroy_ah(two->ah);
	munmap(two->page, PAGE_BYTES);
}

static void post(struct two *two, bool dc, struct t_op o)
{
	o.ah = dc ? two->ah : NULL;
	o.dest = two->page->dct;
	o.dc_key = DC_KEY;
	MUST(!t_post(dc ? &two->dci : &two->rc, &o), "post");
}

static struct ibv_cq *cq_of(struct two *two, bool dc)
{
	return dc ? two->dci.scq : two->rc.scq;
}

static void stop(struct two *two)
{
	kill(two->pid, SIGSTOP);
	waitpid(two->pid, NULL, WUNTRACED);
}

/* ---- cases ---- */

static const uint32_t lengths[] = { 1, 2, 7, 8, 9, 16, 63, 64, 65, 512, 513, 4096, 4097, 65536, 1 << 20, 3333333 };

struct row { const char *name; bool dc, scattered; enum ibv_wr_opcode op; };

static struct t_op request(struct two *two, const struct row *r, struct t_buf *mem, uint32_t len)
{
	struct t_op o = t_rdma(r->op, len, t_sge(mem, 0, len), two->page->rkey, two->page->va + DATA + 3);

	if (r->scattered && len > 2) {
		o.set = T_SGE_LIST;
		o.sge[0] = t_sge(mem, 0, len / 3);
		o.sge[1] = t_sge(mem, len / 3, len / 2 - len / 3);
		o.sge[2] = t_sge(mem, len / 2, len - len / 2);
		o.nsge = 3;
	}
	return o;
}

/* Nobody else can have done it. */
static void while_stopped(const void *arg)
{
	const struct row *r = arg;
	struct t_buf mem = t_buf(env, MEM, T_ALL);
	struct two two = start();
	bool write = r->op == IBV_WR_RDMA_WRITE;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint32_t len = lengths[i];

		memset(mem.p, 0, MEM);
		if (write)
			t_fill(mem.p, len, len);
		else
			ask(&two, FILL, DATA + 3, len, len);
		stop(&two);
		post(&two, r->dc, request(&two, r, &mem, len));
		T_DONE(cq_of(&two, r->dc), len, write ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ);
		kill(two.pid, SIGCONT);
		if (write)
			EXPECT(ask(&two, COMPARE, DATA + 3, len, len), "%u bytes: others are there", len);
		else
			EXPECT(t_is(mem.p, len, len) && t_all(mem.p + len, 64, 0), "%u bytes: others came", len);
	}
	end(&two);
	t_buf_free(&mem);
}

static void atomics_while_stopped(const void *arg)
{
	const struct row *r = arg;
	struct t_buf mem = t_buf(env, MEM, T_ALL);
	struct two two = start();
	uint64_t *old = (uint64_t *)(void *)mem.p, want = 0;

	stop(&two);
	for (uint64_t i = 0; i < 20; i++) {
		struct t_op o = t_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, i, t_sge(&mem, 0, 8), two.page->rkey, two.page->va);

		o.compare_add = i;
		post(&two, r->dc, o);
		T_DONE(cq_of(&two, r->dc), i, IBV_WC_FETCH_ADD);
		EXPECT_EQ(*old, want, "old value");
		want += i;
		o.op = IBV_WR_ATOMIC_CMP_AND_SWP;
		o.compare_add = i % 2 ? want : want + 1;
		o.swap = 1000 + i;
		post(&two, r->dc, o);
		T_DONE(cq_of(&two, r->dc), i, IBV_WC_COMP_SWAP);
		EXPECT_EQ(*old, want, "old value");
		want = i % 2 ? 1000 + i : want;
	}
	kill(two.pid, SIGCONT);
	end(&two);
	t_buf_free(&mem);
}

/* What is not allowed is refused as ever. */
struct refusal {
	const char *name;
	bool dc;
	enum ibv_wr_opcode op;
	uint32_t key_xor, off;
	bool readonly;
	struct t_codes codes;
};

static const struct refusal refusals[] = {
	{ "RC WRITE, unknown key", false, IBV_WR_RDMA_WRITE, 0x3fff00, 0, false, C_REM_ACCESS },
	{ "RC WRITE, other tag", false, IBV_WR_RDMA_WRITE, 1, 0, false, C_REM_ACCESS },
	{ "RC READ, one byte beyond", false, IBV_WR_RDMA_READ, 0, MEM - 63, false, C_REM_ACCESS },
	{ "RC WRITE, one byte before", false, IBV_WR_RDMA_WRITE, 0, UINT32_MAX, false, C_REM_ACCESS },
	{ "RC WRITE, read-only key", false, IBV_WR_RDMA_WRITE, 0, 0, true, C_REM_ACCESS },
	{ "DC WRITE, read-only key", true, IBV_WR_RDMA_WRITE, 0, 0, true, C_REM_ACCESS },
	{ "DC READ, one byte beyond", true, IBV_WR_RDMA_READ, 0, MEM - 63, false, C_REM_ACCESS },
};

static void refused(const void *arg)
{
	const struct refusal *r = arg;
	struct t_buf mem = t_buf(env, 4096, T_ALL);
	struct two two = start();
	uint32_t key = r->readonly ? two.page->readonly_rkey : two.page->rkey;
	uint64_t va = two.page->va + (r->off == UINT32_MAX ? UINT64_MAX : r->off);

	memset(mem.p, 7, 64);
	post(&two, r->dc, t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&mem, 0, 64), two.page->rkey, two.page->va + DATA));
	T_DONE(cq_of(&two, r->dc), 1, IBV_WC_RDMA_WRITE);
	post(&two, r->dc, t_rdma(r->op, 2, t_sge(&mem, 0, 64), key ^ r->key_xor, va));
	T_FAILED(cq_of(&two, r->dc), 2, r->codes);
	end(&two);
	t_buf_free(&mem);
}

/* A message that waits for its receive holds up what is behind it. */
static void behind_a_wait(const void *arg)
{
	struct t_buf mem = t_buf(env, 4096, T_ALL);
	struct two two = start();
	uint64_t *word = (uint64_t *)(void *)mem.p;

	(void)arg;
	for (uint64_t i = 1; i < 10; i++) {
		for (int j = 0; two.page->step != i - 1 && j < 100000; j++)
			usleep(50);
		*word = i;
		post(&two, false, t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&mem, 0, 8), two.page->rkey, two.page->va + 8));
		post(&two, false, t_op(IBV_WR_SEND, 2, t_sge(&mem, 0, 8)));
		post(&two, false, t_rdma(IBV_WR_RDMA_WRITE, 3, t_sge(&mem, 0, 8), two.page->rkey, two.page->va + 16));
		T_DONE(two.rc.scq, 1, IBV_WC_RDMA_WRITE);
		usleep(3000);
		post(&two, false, t_rdma(IBV_WR_RDMA_READ, 4, t_sge(&mem, 64, 24), two.page->rkey, two.page->va));
		T_QUIET(two.rc.scq);
		EXPECT_EQ(two.page->step, i - 1, "messages received");
		ask(&two, RECEIVE, 1, 0, 0);
		T_DONE(two.rc.scq, 2, IBV_WC_SEND);
		T_DONE(two.rc.scq, 3, IBV_WC_RDMA_WRITE);
		T_DONE(two.rc.scq, 4, IBV_WC_RDMA_READ);
		EXPECT_EQ(word[9], i, "the word before");
		EXPECT_EQ(word[10], i, "the word behind");
	}
	end(&two);
	t_buf_free(&mem);
}

static void order(const void *arg)
{
	enum { N = 3000, DEPTH = 8 };
	struct t_buf mem = t_buf(env, 4096, T_ALL);
	struct two two = start();
	uint64_t *word = (uint64_t *)(void *)mem.p;

	(void)arg;
	ask(&two, RECEIVE, RECEIVES, 0, 0);
	tell(&two, COUNT, N, 0, 0);
	for (uint64_t i = 1; i <= N; i++) {
		uint32_t at = (uint32_t)(i % DEPTH) * 8;
		struct t_op behind = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&mem, at, 8), two.page->rkey, two.page->va);
		struct t_op before = behind;

		before.raddr += 64;
		before.flags = behind.flags = 0;
		word[i % DEPTH] = i;
		post(&two, false, before);
		post(&two, false, t_op(IBV_WR_SEND, i, t_sge(&mem, at, 8)));
		post(&two, false, behind);
		if (i >= DEPTH - 1)
			T_DONE(two.rc.scq, i - (DEPTH - 2), IBV_WC_SEND);
	}
	EXPECT_EQ(hear(&two), 0, "times that the order was another");
	end(&two);
	t_buf_free(&mem);
}

static void last_byte(const void *arg)
{
	enum { N = 4000 };
	const uint64_t max = *(const uint64_t *)arg;
	struct t_buf mem = t_buf(env, 1 << 20, T_ALL);
	struct two two = start();

	tell(&two, AWAIT, N, max, 0);
	for (uint32_t i = 0; i < N; i++) {
		uint32_t len = (uint32_t)(1 + (i * 7919ull + i) % max);
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&mem, 0, len), two.page->rkey, two.page->va + DATA);

		memset(mem.p, (uint8_t)(i + 1), len);
		if (i % 3 == 0 && len > 4) {
			o.set = T_SGE_LIST;
			o.nsge = 2;
			o.sge[0].length = len / 2;
			o.sge[1] = t_sge(&mem, len / 2, len - len / 2);
		}
		post(&two, false, o);
		T_DONE(two.rc.scq, i, IBV_WC_RDMA_WRITE);
		for (int j = 0; two.page->step != i + 1 && j < 2000000; j++)
			if (j > 1000)
				usleep(1);
		MUST(two.page->step == i + 1, "the other side sees the last byte");
	}
	EXPECT_EQ(hear(&two), 0, "messages whose end came before the rest");
	end(&two);
	t_buf_free(&mem);
}

static void sums(const void *arg)
{
	enum { N = 20000 };
	struct t_buf mem = t_buf(env, 4096, T_ALL);
	struct two two = start();
	struct t_op o = t_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, t_sge(&mem, 0, 8), two.page->rkey, two.page->va + WORD);

	(void)arg;
	ask(&two, CLEAR, 0, 0, 0);
	tell(&two, ADD, N, 0, 0);
	o.compare_add = 1;
	for (uint64_t i = 0; i < N; i++) {
		o.wr_id = i;
		post(&two, i % 2, o);
		T_DONE(cq_of(&two, i % 2), i, IBV_WC_FETCH_ADD);
	}
	hear(&two);
	o.compare_add = 0;
	post(&two, false, o);
	T_DONE(two.rc.scq, o.wr_id, IBV_WC_FETCH_ADD);
	EXPECT_EQ(*(uint64_t *)(void *)mem.p, 3 * N, "the sum");
	end(&two);
	t_buf_free(&mem);
}

/* Nothing is stored after the target has taken it back, and whoever comes late is refused. */
struct take { const char *name; enum command command; uint32_t len; };

static void taken_back(const void *arg)
{
	const struct take *k = arg;
	struct t_buf mem = t_buf(env, MEM, T_ALL);

	for (int round = 0; round < 4; round++) {
		struct two two = start();
		struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 0, t_sge(&mem, 0, k->len), two.page->rkey,
				       two.page->va + DATA);
		struct t_wc got;
		uint64_t n = 0;

		usleep((useconds_t)round * 700);
		for (got.wc.status = IBV_WC_SUCCESS; got.wc.status == IBV_WC_SUCCESS; n++) {
			if (n == 300)
				tell(&two, k->command, 0, 0, 0);
			memset(mem.p, (uint8_t)n, k->len < 64 ? k->len : 64);
			mem.p[k->len - 1] = (uint8_t)n;
			for (uint32_t i = 0; i < MARKS && mark(i) < k->len; i++)
				mem.p[mark(i)] = (uint8_t)n;
			post(&two, false, o);
			got = t_poll(two.rc.scq);
		}
		EXPECT(n > 300, "only %" PRIu64 " requests were done", n);
		EXPECT_EQ(got.wc.status, k->command == TO_ERR ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_ACCESS_ERR, "status");
		EXPECT(hear(&two), "the memory changed afterwards");
		end(&two);
	}
	t_buf_free(&mem);
}

/* The other side is stopped or killed while it writes here, perhaps in the middle. */
static void struck(const void *arg)
{
	const bool killed = *(const bool *)arg;
	uint8_t *copy = malloc(MEM);
	int at = 0;

	for (int round = 0; round < 12; round++) {
		struct t_buf mem = t_buf(env, MEM, T_ALL);
		struct two two = start();
		uint64_t began;

		two.page->hammer_va = mem.va + DATA;
		two.page->hammer_len = round % 3 == 2 ? 64 : 1 << 20;
		two.page->hammer_rkey = mem.mr->rkey;
		tell(&two, HAMMER, 0, 0, 0);
		while (two.page->hammering < 20)
			usleep(20);
		usleep((useconds_t)(round * 137));
		kill(two.pid, killed ? SIGKILL : SIGSTOP);
		if (round % 2)
			waitpid(two.pid, NULL, killed ? 0 : WUNTRACED);
		began = t_now_ms();
		MUST(!ibv_dereg_mr(mem.mr), "ibv_dereg_mr");
		mem.mr = NULL;
		EXPECT(t_now_ms() - began < 5000, "ibv_dereg_mr took %" PRIu64 " ms", t_now_ms() - began);
		memcpy(copy, mem.p, MEM);
		if (!killed)
			kill(two.pid, SIGCONT);
		usleep(20000);
		at += memcmp(copy, mem.p, MEM) != 0;
		end(&two);
		t_buf_free(&mem);
	}
	EXPECT_EQ(at, 0, "rounds in which memory changed after it was taken back");
	free(copy);
}

/* After its death nothing succeeds any more. */
static void dead(const void *arg)
{
	struct t_buf mem = t_buf(env, 4096, T_ALL);
	struct two two = start();
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&mem, 0, 8), two.page->rkey, two.page->va);

	(void)arg;
	post(&two, false, o);
	T_DONE(two.rc.scq, 1, IBV_WC_RDMA_WRITE);
	kill(two.pid, SIGKILL);
	waitpid(two.pid, NULL, 0);
	usleep(5000);
	post(&two, false, o);
	T_FAILED(two.rc.scq, 1, T_RETRY);
	end(&two);
	t_buf_free(&mem);
}

static const struct row rows[] = {
	{ "RC WRITE to a stopped process", false, false, IBV_WR_RDMA_WRITE },
	{ "RC WRITE of three pieces to a stopped process", false, true, IBV_WR_RDMA_WRITE },
	{ "RC READ from a stopped process", false, false, IBV_WR_RDMA_READ },
	{ "RC READ into three pieces from a stopped process", false, true, IBV_WR_RDMA_READ },
	{ "DC WRITE to a stopped process", true, false, IBV_WR_RDMA_WRITE },
	{ "DC READ from a stopped process", true, false, IBV_WR_RDMA_READ },
};

static const struct take takes[] = {
	{ "ibv_dereg_mr under WRITEs of 8", TAKE_BACK, 8 },
	{ "ibv_dereg_mr under WRITEs of 65536", TAKE_BACK, 65536 },
	{ "ibv_dereg_mr under WRITEs of 4194304", TAKE_BACK, 4 << 20 },
	{ "ibv_rereg_mr without remote write under WRITEs of 4096", NO_WRITES, 4096 },
	{ "the target's queue pair to ERR under WRITEs of 8", TO_ERR, 8 },
	{ "the target's queue pair to ERR under WRITEs of 65536", TO_ERR, 65536 },
	{ "the target's queue pair to ERR under WRITEs of 4194304", TO_ERR, 4 << 20 },
};

int main(int argc, char **argv)
{
	static const uint64_t sizes[] = { 64, 2000, 300000 };
	static const bool no = false, yes = true;
	struct other other = { 0 };
	struct stat tasks;

	setenv("SOFTMLX5_HOST", "on", 0);
	if (stat("/proc/self/task", &tasks) || tasks.st_nlink != 3) {	/* two links, and one for each thread */
		printf("skip - requests without frames # something runs a thread here, so memory is not shared\n");
		return 77;
	}
	if (argc > 2 && !strcmp(argv[1], "target")) {
		other.page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
				  (int)strtol(argv[2], NULL, 10), 0);
		if (other.page == MAP_FAILED)
			return 1;
		t_case("target", other_case, &other);
		return 1;
	}
	env = t_open();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, while_stopped, &rows[i]);
	t_case("RC atomics on a stopped process's memory", atomics_while_stopped, &rows[0]);
	t_case("DC atomics on a stopped process's memory", atomics_while_stopped, &rows[4]);
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		t_case(refusals[i].name, refused, &refusals[i]);
	t_case("nothing passes a SEND that waits for a receive", behind_a_wait, NULL);
	t_case("WRITE, SEND, WRITE in order", order, NULL);
	for (size_t i = 0; i < 3; i++) {
		char name[80];

		snprintf(name, sizeof(name), "the last byte comes last, up to %d bytes", (int)sizes[i]);
		t_case(name, last_byte, &sizes[i]);
	}
	t_case("atomics from both sides and the processor", sums, NULL);
	for (size_t i = 0; i < sizeof(takes) / sizeof(takes[0]); i++)
		t_case(takes[i].name, taken_back, &takes[i]);
	t_case("killed while it writes", struck, &yes);
	t_case("stopped while it writes", struck, &no);
	t_case("a target that died", dead, NULL);
	return t_close(env);
}
