/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every operation of every transport between two processes, at lengths around all that the medium does
 * differently, and every byte of it looked at; then the same where no process may read another's memory. */
#include <fcntl.h>

#include "two.h"

static struct t_env *env;
static struct two two;
static struct t_buf mem;
static const char *const kind_name[] = { "RC", "UC", "UD", "XRC", "DC" };
static const uint32_t lengths[] = {
	0, 1, 7, 8, 32, 33, 64, 65, 511, 512, 513, 4096, 4097, 8192, 8193, 16384, 16385, 65536, 98304, 98305, 262144,
	1 << 20, 3333333,
};

static void start(const void *arg)
{
	(void)arg;
	mem = t_buf(env, TWO_AREA, T_ALL);
	two = two_start(env);
	two_connect(env, &two, 12, 5);
}

static void end(const void *arg)
{
	(void)arg;
	two_end(&two);
	t_buf_free(&mem);
}

struct row { enum two_kind kind; enum ibv_wr_opcode op; const char *name; };

static bool has_receive(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Three entries that lie apart, and the whole in order of t_byte(). */
static void split(struct t_op *o, uint32_t len, uint32_t seed, bool fill)
{
	uint32_t a = len / 3, b = len / 2, at = 0;
	const struct { uint32_t off, len; } part[] = { { 0, a }, { 3 << 20, b - a }, { 5 << 20, len - b } };

	o->set = T_SGE_LIST;
	o->nsge = 0;
	for (int i = 0; i < 3; i++) {
		o->sge[o->nsge++] = t_sge(&mem, part[i].off, part[i].len);
		for (uint32_t j = 0; fill && j < part[i].len; j++)
			mem.p[part[i].off + j] = t_byte(seed, at + j);
		at += part[i].len;
	}
}

static bool is_split(const struct t_op *o, uint32_t len, uint32_t seed)
{
	uint32_t at = 0;

	for (int i = 0; i < o->nsge; i++) {
		const uint8_t *p = (const uint8_t *)(uintptr_t)o->sge[i].addr;

		for (uint32_t j = 0; j < o->sge[i].length; j++)
			if (p[j] != t_byte(seed, at + j))
				return false;
		at += o->sge[i].length;
	}
	return at == len;
}

static void check_receive(const struct row *r, uint32_t len, uint32_t imm)
{
	struct two_got got = two_take(&two);

	EXPECT_EQ(got.status, IBV_WC_SUCCESS, "receive status");
	EXPECT_EQ(got.bytes, len + (r->kind == TWO_UD ? 40 : 0), "received bytes");
	EXPECT_EQ(!!got.has_imm, r->op != IBV_WR_SEND, "immediate data");
	if (r->op != IBV_WR_SEND)
		EXPECT_EQ(got.imm, imm, "immediate data");
}

static void wait_for(const uint8_t *at, uint8_t want)
{
	uint64_t end = t_now_ms() + 10000;

	while (*(const volatile uint8_t *)at != want && t_now_ms() < end)
		usleep(50);
}

static void one_message(const struct row *r, uint32_t len, bool apart)
{
	struct t_op o = t_rdma(r->op, len, t_sge(&mem, 0, len), two.page->rkey, two.page->va + TWO_TARGET + 5);
	bool is_send = r->op == IBV_WR_SEND || r->op == IBV_WR_SEND_WITH_IMM;
	uint8_t *there = two.mem + (is_send ? TWO_RECV + (r->kind == TWO_UD ? 40 : 0) : TWO_TARGET + 5);
	uint32_t seed = len + r->kind;

	o.imm = 0x5000000 + len;
	memset(there, 0xee, len + 64);
	if (r->op == IBV_WR_RDMA_READ) {
		memset(mem.p, 0xee, mem.len);
		t_fill(there, len, seed);
		if (apart)
			split(&o, len, seed, false);
	} else if (apart) {
		split(&o, len, seed, true);
	} else {
		t_fill(mem.p, len, seed);
	}
	if (has_receive(r->op))
		two_want_receives(&two, r->kind, 1);
	MUST(!two_post(&two, r->kind, &o), "post");
	T_DONE(two.q[r->kind].scq, len, -1);
	if (has_receive(r->op))
		check_receive(r, len, o.imm);
	else if (r->kind == TWO_UC && len)
		wait_for(there + len - 1, t_byte(seed, len - 1));
	if (r->op == IBV_WR_RDMA_READ)
		EXPECT(is_split(&o, len, seed), "%u bytes: not what the target has", len);
	else
		EXPECT(t_is(there, len, seed) && t_all(there + len, 60, 0xee),
		       "%u bytes: the target has something else", len);
}

static void messages(const void *arg)
{
	const struct row *r = arg;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		if (r->kind == TWO_UD && lengths[i] > 4096)
			continue;
		one_message(r, lengths[i], false);
		if (lengths[i] > 8)
			one_message(r, lengths[i], true);
	}
}

static void atomics(const void *arg)
{
	const struct row *r = arg;
	uint64_t *word = (uint64_t *)(void *)(two.mem + TWO_TARGET), *old = (uint64_t *)(void *)mem.p;

	*word = 1000;
	for (int i = 0; i < 50; i++) {
		struct t_op o = t_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, i, t_sge(&mem, 0, 8), two.page->rkey,
				       two.page->va + TWO_TARGET);

		o.compare_add = 7;
		MUST(!two_post(&two, r->kind, &o), "post");
		T_DONE(two.q[r->kind].scq, i, IBV_WC_FETCH_ADD);
		EXPECT_EQ(*old, 1000 + 7 * i, "old value");
		o.op = IBV_WR_ATOMIC_CMP_AND_SWP;
		o.compare_add = 1007 + 7 * i + (i & 1);	/* every second one fails */
		o.swap = 1007 + 7 * i;
		MUST(!two_post(&two, r->kind, &o), "post");
		T_DONE(two.q[r->kind].scq, i, IBV_WC_COMP_SWAP);
		EXPECT_EQ(*old, 1007 + 7 * i, "old value");
	}
	EXPECT_EQ(*word, 1350, "the word");
}

/* More than a lane holds, posted at once, of all sizes, to a target that sleeps in between. */
static void crowd(const void *arg)
{
	const struct row *r = arg;
	struct t_qp *q = &two.q[r->kind];

	two.page->quiet = 1;
	t_fill(mem.p, 1 << 20, 3);
	for (uint32_t round = 0; round < 40; round++) {
		memset(two.mem + TWO_TARGET, 0, 1 << 20);
		for (uint32_t i = 0; i < 16; i++) {
			uint32_t off = i * 60000, len = i % 4 ? 60000 : 16000;
			struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&mem, off, len), two.page->rkey,
					       two.page->va + TWO_TARGET + off);

			MUST(!two_post(&two, r->kind, &o), "post");
		}
		for (uint32_t i = 0; i < 16; i++)
			T_DONE(q->scq, i, IBV_WC_RDMA_WRITE);
		for (uint32_t i = 0; i < 16; i++)
			EXPECT(!memcmp(two.mem + TWO_TARGET + i * 60000, mem.p + i * 60000, i % 4 ? 60000 : 16000),
			       "round %u, write %u: other bytes", round, i);
	}
	two.page->quiet = 0;
}

static const struct row message_rows[] = {
	{ TWO_RC, IBV_WR_RDMA_WRITE, "WRITE" },		{ TWO_RC, IBV_WR_RDMA_WRITE_WITH_IMM, "WRITE_IMM" },
	{ TWO_RC, IBV_WR_SEND, "SEND" },		{ TWO_RC, IBV_WR_SEND_WITH_IMM, "SEND_IMM" },
	{ TWO_RC, IBV_WR_RDMA_READ, "READ" },
	{ TWO_UC, IBV_WR_RDMA_WRITE, "WRITE" },		{ TWO_UC, IBV_WR_RDMA_WRITE_WITH_IMM, "WRITE_IMM" },
	{ TWO_UC, IBV_WR_SEND, "SEND" },		{ TWO_UC, IBV_WR_SEND_WITH_IMM, "SEND_IMM" },
	{ TWO_UD, IBV_WR_SEND, "SEND" },		{ TWO_UD, IBV_WR_SEND_WITH_IMM, "SEND_IMM" },
	{ TWO_XRC, IBV_WR_RDMA_WRITE, "WRITE" },	{ TWO_XRC, IBV_WR_RDMA_WRITE_WITH_IMM, "WRITE_IMM" },
	{ TWO_XRC, IBV_WR_SEND, "SEND" },		{ TWO_XRC, IBV_WR_SEND_WITH_IMM, "SEND_IMM" },
	{ TWO_XRC, IBV_WR_RDMA_READ, "READ" },
	{ TWO_DC, IBV_WR_RDMA_WRITE, "WRITE" },		{ TWO_DC, IBV_WR_RDMA_WRITE_WITH_IMM, "WRITE_IMM" },
	{ TWO_DC, IBV_WR_SEND, "SEND" },		{ TWO_DC, IBV_WR_SEND_WITH_IMM, "SEND_IMM" },
	{ TWO_DC, IBV_WR_RDMA_READ, "READ" },
};

static void run(const struct row *r, const char *name, const char *mode, void (*fn)(const void *arg))
{
	char text[100];

	snprintf(text, sizeof(text), "%s: %s %s", mode, kind_name[r->kind], name);
	t_case(text, fn, r);
}

int main(int argc, char **argv)
{
	static const enum two_kind acked[] = { TWO_RC, TWO_XRC, TWO_DC };
	bool copy = argc > 1 && !strcmp(argv[1], "copy");
	const char *mode = copy ? "by value" : "by reference";
	int rc, status;
	pid_t pid;

	two_main(argc, argv);
	env = t_open();
	t_case("start", start, NULL);
	if (t_state.failed)
		return 1;
	for (size_t i = 0; i < sizeof(message_rows) / sizeof(message_rows[0]); i++)
		run(&message_rows[i], message_rows[i].name, mode, messages);
	for (size_t i = 0; i < 3; i++) {
		const struct row r = { .kind = acked[i] };

		run(&r, "atomics", mode, atomics);
		run(&r, "more than fits", mode, crowd);
	}
	t_case("end", end, NULL);
	rc = t_close(env);
	if (copy || rc)
		return rc;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		setenv("SOFTMLX5_HOST", "copy", 1);
		execl("/proc/self/exe", argv[0], "copy", (char *)NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
