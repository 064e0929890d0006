/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory under a region is put where other processes of the host can map it. A program must not notice: whatever it
 * does with malloc, realloc, free, calloc, fork and threads beside its regions gives what it gives without them. */
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "t.h"

enum { MIB = 1 << 20 };

static struct t_env *env;
static struct t_pair pair;
static bool shares;		/* other processes are reached that way, and this program has one thread */

static struct ibv_mr *reg(void *p, size_t n)
{
	struct ibv_mr *mr = ibv_reg_mr(env->pd, p, n, T_ALL);

	MUST(mr, "ibv_reg_mr");
	return mr;
}

static void dereg(struct ibv_mr *mr)
{
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
}

/* Whether the page of p is a file's that the library made. */
static bool is_shared(const void *p)
{
	FILE *f = fopen("/proc/self/maps", "r");
	bool found = false;
	char line[512];

	MUST(f, "/proc/self/maps");
	while (fgets(line, sizeof(line), f)) {
		unsigned long from, to;
		char shared;

		if (sscanf(line, "%lx-%lx %*c%*c%*c%c", &from, &to, &shared) != 3)
			continue;
		if ((uintptr_t)p >= from && (uintptr_t)p < to)
			found = shared == 's' && strstr(line, "memfd:softmlx5");
	}
	fclose(f);
	return found;
}

static void expect_shared(const void *p, bool want, const char *what)
{
	EXPECT(is_shared(p) == (want && shares), "%s: %s", what, want ? "not shared" : "shared");
}

/* n bytes from one region to the other, by this process's own queue pairs. */
static void transfer(struct ibv_mr *from, struct ibv_mr *to, uint32_t n)
{
	struct ibv_sge sge = { .addr = (uintptr_t)from->addr, .length = n, .lkey = from->lkey };
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, sge, to->rkey, (uintptr_t)to->addr);

	EXPECT_EQ(t_post(&pair.a, &o), 0, "posting");
	T_DONE(pair.a.scq, 1, IBV_WC_RDMA_WRITE);
}

static void heap(const void *arg)
{
	static const uint32_t size[] = { 1, 100, 4096, 5000, 100000, 3 * MIB, 9 * MIB + 7 };

	(void)arg;
	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		uint32_t n = size[i];
		uint8_t *a = malloc(n), *b = malloc(n), *between = malloc(64);
		struct ibv_mr *from, *to;

		MUST(a && b && between, "malloc");
		t_fill(a, n, 1);
		t_fill(b, n, 2);
		t_fill(between, 64, 3);
		from = reg(a, n);
		to = reg(b, n);
		expect_shared(a, true, "a region");
		expect_shared(b + n - 1, true, "a region's end");
		EXPECT(t_is(a, n, 1) && t_is(b, n, 2) && t_is(between, 64, 3), "%u bytes: changed by registering", n);
		transfer(from, to, n);
		EXPECT(t_is(b, n, 1), "%u bytes: not written", n);
		t_fill(a, n, 4);
		transfer(from, to, n);
		dereg(from);
		dereg(to);
		expect_shared(a, false, "what was a region");
		expect_shared(b + n - 1, false, "what was a region's end");
		EXPECT(t_is(a, n, 4) && t_is(b, n, 4) && t_is(between, 64, 3), "%u bytes: lost by deregistering", n);
		free(a);
		free(b);
		free(between);
	}
}

static void other_memory(const void *arg)
{
	/* Where it shared a page with initialised ones that page would be the program file's. */
	static uint8_t global[20000] __attribute__((aligned(4096)));
	uint8_t local[20000], *lent = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint8_t *const memory[] = { global, local, lent };

	(void)arg;
	MUST(lent != MAP_FAILED, "mmap");
	for (int i = 0; i < 3; i++) {
		struct ibv_mr *from = reg(memory[i], 10000), *to = reg(memory[i] + 10000, 10000);

		t_fill(memory[i], 10000, 5);
		expect_shared(memory[i], i == 0, i ? "a stack or lent memory" : "a variable");
		transfer(from, to, 10000);
		EXPECT(t_is(memory[i] + 10000, 10000, 5), "memory %d: not written", i);
		dereg(from);
		dereg(to);
		EXPECT(t_is(memory[i], 10000, 5) && t_is(memory[i] + 10000, 10000, 5), "memory %d: lost", i);
	}
	munmap(lent, 20000);
}

static void overlapping(const void *arg)
{
	uint8_t *p = malloc(40 * 4096);
	struct ibv_mr *mr[100];

	(void)arg;
	MUST(p, "malloc");
	t_fill(p, 40 * 4096, 6);
	for (int i = 0; i < 100; i++)
		mr[i] = reg(p + i * 1000, 40 * 4096 - i * 1500);
	for (int i = 0; i < 99; i++) {
		dereg(mr[i * 37 % 100]);
		expect_shared(p + 99 * 1000, true, "the last region");
	}
	dereg(mr[99 * 37 % 100]);
	expect_shared(p + 99 * 1000, false, "after the last region");
	EXPECT(t_is(p, 40 * 4096, 6), "lost");
	free(p);
}

static void registered_anew(const void *arg)
{
	uint8_t *a = malloc(50000), *b = malloc(70000), *c = malloc(50000);
	struct ibv_mr *mr = reg(a, 50000), *from = reg(c, 50000);

	(void)arg;
	t_fill(a, 50000, 1);
	t_fill(b, 70000, 2);
	t_fill(c, 50000, 3);
	EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b, 70000, 0), 0, "ibv_rereg_mr");
	expect_shared(a + 25000, false, "the old memory");
	expect_shared(b + 35000, true, "the new memory");
	transfer(from, mr, 50000);
	EXPECT(t_is(a, 50000, 1) && t_is(b, 50000, 3), "not where it should be");
	/* Refused: the region is what it was. */
	EXPECT(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, a, 50000,
			    IBV_ACCESS_REMOTE_WRITE), "an access that is not allowed");
	expect_shared(b + 35000, true, "the memory after a refusal");
	expect_shared(a + 25000, false, "the memory of the refusal");
	dereg(mr);
	dereg(from);
	expect_shared(b + 35000, false, "after the region");
	EXPECT(t_is(a, 50000, 1) && t_is(b, 50000, 3) && t_is(c, 50000, 3), "lost");
	free(a);
	free(b);
	free(c);
}

static void the_allocator(const void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < 40; i++) {
		uint32_t n = 3000 + i * 7919;
		uint8_t *p = calloc(1, n);
		volatile uintptr_t was;
		struct ibv_mr *mr;

		MUST(p && t_all(p, n, 0), "calloc is zero");
		t_fill(p, n, i);
		mr = reg(p, n);
		/* It grows, moves perhaps, and the region is given up only then. */
		was = (uintptr_t)p;
		p = realloc(p, 2 * n);
		MUST(p, "realloc");
		EXPECT(t_is(p, n, i), "realloc under a region, %u bytes%s", n, was == (uintptr_t)p ? "" : ", moved");
		memset(p + n, 0x5a, n);
		dereg(mr);
		EXPECT(t_is(p, n, i) && t_all(p + n, n, 0x5a), "after the region, %u bytes", n);
		/* Freed under a region, a mistake: what the allocator gives out next is sound. */
		mr = reg(p, 2 * n);
		free(p);
		p = calloc(1, 2 * n);
		MUST(p && t_all(p, 2 * n, 0), "calloc after free under a region is zero");
		t_fill(p, 2 * n, i + 1);
		dereg(mr);
		EXPECT(t_is(p, 2 * n, i + 1), "lost by the region of the memory before, %u bytes", n);
		free(p);
	}
}

/* To a process that is not there: from now on others may be. */
static void connect_elsewhere(void)
{
	struct t_spec rc = { .ops = T_RC_OPS };
	struct ibv_qp_attr attr = t_attr(env, 0xabcdef);
	struct t_qp q = t_qp(env, &rc);

	t_to_rts(q.qp, &attr);
	t_qp_free(&q);
}

/* RETURN what the child finds wrong, 0 if nothing. */
static int in_child(uint8_t *p, uint32_t n, int go)
{
	struct ibv_mr *mr;
	char c;

	if (setjmp(t_state.out)) {
		printf("# child: %s\n", t_state.why);
		fflush(stdout);
		return 9;
	}
	if (is_shared(p) || !t_is(p, n, 7))
		return 1;
	memset(p, 0xcc, n);
	if (read(go, &c, 1) != 1 || !t_all(p, n, 0xcc))
		return 2;
	/* Its own memory, by its own copy of the device. */
	mr = reg(p, n);
	if (is_shared(p))
		return 3;
	connect_elsewhere();
	if (is_shared(p) != shares)
		return 5;
	transfer(mr, mr, n);
	dereg(mr);
	return t_all(p, n, 0xcc) && !t_state.failures ? 0 : 4;
}

static void forked(const void *arg)
{
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
	t_skip("ThreadSanitizer does not follow a fork of several threads");
#endif
#endif
	const uint32_t n = 5 * MIB;
	uint8_t *p = malloc(n), *q = malloc(n);
	struct ibv_mr *from = reg(q, n), *to = reg(p, n);
	int go[2], status;
	pid_t pid;

	(void)arg;
	MUST(p && q && !pipe(go), "pipe");
	t_fill(p, n, 7);
	t_fill(q, n, 8);
	fflush(stdout);
	pid = fork();
	MUST(pid >= 0, "fork");
	if (!pid)
		_exit(in_child(p, n, go[0]));
	expect_shared(p, true, "a region after a fork");
	EXPECT(t_is(p, n, 7), "changed by the child");
	transfer(from, to, n);
	MUST(write(go[1], "x", 1) == 1, "write");
	MUST(waitpid(pid, &status, 0) == pid, "waitpid");
	EXPECT(!status, "the child's finding %d", WIFEXITED(status) ? WEXITSTATUS(status) : -status);
	EXPECT(t_is(p, n, 8), "changed by the child");
	dereg(from);
	dereg(to);
	EXPECT(t_is(p, n, 8) && t_is(q, n, 8), "lost");
	close(go[0]);
	close(go[1]);
	free(p);
	free(q);
}

struct counter { volatile uint64_t *word; bool stop; uint64_t n; };

static void *count(void *arg)
{
	struct counter *c = arg;

	for (; !__atomic_load_n(&c->stop, __ATOMIC_RELAXED); c->n++)
		c->word[c->n % 100 * 512]++;
	return NULL;
}

/* Another thread stores into the pages while regions over them come and go. */
static void beside_a_thread(const void *arg)
{
	struct counter c = { .word = calloc(100, 4096) };
	struct ibv_mr *mr = reg((void *)(uintptr_t)c.word, 100 * 4096);
	pthread_t thread;
	uint64_t sum = 0;

	(void)arg;
	MUST(!pthread_create(&thread, NULL, count, &c), "pthread_create");
	for (int i = 0; i < 20; i++) {
		struct ibv_mr *part = reg((uint8_t *)(uintptr_t)c.word + i * 8192, 200000);

		usleep(100);
		if (i == 10)
			dereg(mr);
		dereg(part);
	}
	__atomic_store_n(&c.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	for (int i = 0; i < 100; i++)
		sum += c.word[i * 512];
	EXPECT_EQ(sum, c.n, "stores that are there");
	free((void *)(uintptr_t)c.word);
}

int main(void)
{
	static const struct { const char *name; void (*fn)(const void *arg); } rows[] = {
		{ "regions on the heap", heap },
		{ "variables, the stack, memory that is shared already", other_memory },
		{ "overlapping regions", overlapping },
		{ "registered anew elsewhere", registered_anew },
		{ "calloc, realloc and free under regions", the_allocator },
		{ "a forked child has copies of its own", forked },
		{ "beside another thread", beside_a_thread },
	};
	struct t_spec rc = { .ops = T_RC_OPS };
	uint8_t *probe = malloc(MIB);
	struct ibv_mr *mr;
	struct stat st;
	bool alone;

	setenv("SOFTMLX5_HOST", "on", 0);
	env = t_open();
	pair = t_pair(env, &rc);
	MUST(probe && !stat("/proc/self/task", &st), "probe");
	mr = reg(probe, MIB);
	alone = is_shared(probe);
	connect_elsewhere();
	shares = is_shared(probe);
	dereg(mr);
	mr = reg(probe, MIB);
	shares = shares && is_shared(probe);
	dereg(mr);
	free(probe);
	printf("%s - nothing is shared before a queue pair is connected to another process\n", alone ? "not ok" : "ok");
	t_state.failures += alone;
	if (!shares)
		printf("skip - memory is shared # it is not on this system, or something runs a thread beside us\n");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, rows[i].fn, NULL);
	t_pair_free(&pair);
	return t_close(env);
}
