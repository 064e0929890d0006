/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* softmlx5.h, and the line on stderr: every field of a refusal, how many are kept, whose they are; what a program that
 * never asks still sees, and what SOFTMLX5_LOG makes of it.
 *
 * The stderr cases run this program again with an argument, and read what it says. */
#include "t_why.h"

static struct t_env *env;
static struct t_buf src, dst;

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 4096, T_ALL);
	dst = t_buf(env, 4096, T_ALL);
}

static struct t_pair new_pair(void)
{
	struct t_spec s = { .ops = T_RC_OPS };

	return t_pair(env, &s);
}

static void failed_send(const void *arg)
{
	struct t_pair p = new_pair();
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 0x1122334455667788, t_sge(&src, 0, 4097 - 96), dst.key, dst.va + 96);
	struct softmlx5_refusal r;
	uint64_t before = softmlx5_refusal_count(NULL);

	(void)arg;
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.a.scq, 0x1122334455667788, T_REM_ACCESS);
	MUST(!softmlx5_last_refusal(env->ctx, 0, &r), "softmlx5_last_refusal");
	EXPECT_EQ(r.seq, before + 1, "seq");
	EXPECT_EQ(softmlx5_refusal_count(NULL), before + 1, "count");
	EXPECT(!strcmp(r.name, "remote_range"), "name is %s", r.name);
	EXPECT(softmlx5_check_name(r.check) && !strcmp(softmlx5_check_name(r.check), r.name), "softmlx5_check_name");
	EXPECT_EQ(r.err, 0, "err");
	EXPECT_EQ(r.status, IBV_WC_REM_ACCESS_ERR, "status");
	EXPECT(r.syndrome == 0x13 && r.vendor_err == 0x88 && r.hw_err == 0, "codes 0x%02x 0x%02x 0x%02x", r.syndrome,
	       r.vendor_err, r.hw_err);
	EXPECT_EQ(r.qp_num, p.a.qp->qp_num, "qp_num");
	EXPECT_EQ(r.peer_qp_num, p.b.qp->qp_num, "peer_qp_num");
	EXPECT_EQ(r.wqe_index, 0, "wqe_index");
	EXPECT_EQ(r.is_recv, 0, "is_recv");
	EXPECT_EQ(r.wr_id, 0x1122334455667788, "wr_id");
	EXPECT_EQ(r.opcode, MLX5_OPCODE_RDMA_WRITE, "opcode");
	EXPECT(strchr(r.rule, '.') && strlen(r.rule) > 20, "rule is \"%s\"", r.rule);
	EXPECT(strstr(r.values, "4001") && strstr(r.values, "4096"), "values are \"%s\"", r.values);
	t_pair_free(&p);
}

static void failed_receive(const void *arg)
{
	struct t_pair p = new_pair();
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, 100));
	struct softmlx5_refusal r;
	bool found = false;

	(void)arg;
	t_why_begin();
	t_recv(&p.b, 0xabcdef, t_sge(&dst, 0, 99));
	EXPECT_EQ(t_post(&p.a, &o), 0, "ibv_wr_complete");
	T_FAILED(p.b.rcq, 0xabcdef, T_LOC_LEN);
	for (unsigned int n = 0; !softmlx5_last_refusal(NULL, n, &r) && r.seq > t_why_mark; n++) {
		if (!r.is_recv)
			continue;
		found = true;
		EXPECT(!strcmp(r.name, "recv_length"), "name is %s", r.name);
		EXPECT_EQ(r.qp_num, p.b.qp->qp_num, "qp_num");
		EXPECT_EQ(r.wr_id, 0xabcdef, "wr_id");
		EXPECT_EQ(r.status, IBV_WC_LOC_LEN_ERR, "status");
		EXPECT(strstr(r.values, "100") && strstr(r.values, "99"), "values are \"%s\"", r.values);
	}
	EXPECT(found, "no refusal of a receive");
	t_pair_free(&p);
}

static void refused_call(const void *arg)
{
	struct softmlx5_refusal r;

	(void)arg;
	errno = 0;
	EXPECT(!ibv_reg_mr(env->pd, src.p, 4096, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL, "errno %d", errno);
	MUST(!softmlx5_last_refusal(env->ctx, 0, &r), "softmlx5_last_refusal");
	EXPECT(!strcmp(r.name, "mr_access"), "name is %s", r.name);
	EXPECT_EQ(r.err, EINVAL, "err");
	EXPECT_EQ(r.status, 0, "status");
	EXPECT_EQ(r.qp_num, 0, "qp_num");
}

/* Of a context: only what came after it was opened. Sixty-four are kept, the newest first. */
static void whose_and_how_many(const void *arg)
{
	struct t_env *later = t_open();
	struct softmlx5_refusal r;
	uint64_t last = 0;
	unsigned int n;

	(void)arg;
	EXPECT_EQ(softmlx5_last_refusal(later->ctx, 0, &r), ENOENT, "a context that saw none");
	EXPECT_EQ(softmlx5_refusal_count(later->ctx), 0, "count of it");
	for (int i = 0; i < 100; i++)
		EXPECT(!ibv_reg_mr(env->pd, src.p, 4096, IBV_ACCESS_REMOTE_WRITE), "refused");
	EXPECT_EQ(softmlx5_refusal_count(later->ctx), 100, "count");
	for (n = 0; !softmlx5_last_refusal(later->ctx, n, &r); n++) {
		EXPECT(n == 0 || r.seq == last - 1, "seq %" PRIu64 " after %" PRIu64, r.seq, last);
		last = r.seq;
	}
	EXPECT_EQ(n, 64, "how many are kept");
	EXPECT(softmlx5_check_name(1) && !softmlx5_check_name(100000), "softmlx5_check_name past the last");
	EXPECT_EQ(ibv_dealloc_pd(later->pd), 0, "ibv_dealloc_pd");
	EXPECT_EQ(ibv_close_device(later->ctx), 0, "ibv_close_device");
	free(later);
}

/* ---- stderr ---- */

/* Two queue pairs fail, the first twice, each with two requests behind. */
static int fail_twice(void)
{
	env = t_open();
	set_up(NULL);
	for (int i = 0; i < 2; i++) {
		struct t_pair p = new_pair();
		struct t_op o[3] = { t_rdma(IBV_WR_RDMA_WRITE, 0x77, t_sge(&src, 0, 8), dst.key ^ 0x5500, dst.va) };

		o[1] = o[2] = t_rdma(IBV_WR_RDMA_WRITE, 0x78, t_sge(&src, 0, 8), dst.key, dst.va);
		for (int again = 0; again < 2 - i; again++) {
			if (t_post_n(&p.a, o, 3))
				return 3;
			for (int k = 0; k < 3; k++)
				t_poll(p.a.scq);
			t_reconnect(env, &p);
		}
		t_pair_free(&p);
	}
	return 0;
}

static const struct said { const char *name, *log; int lines; const char *has[6]; } saids[] = {
	{ "by default one line a queue pair", NULL, 2,
	  { "0x77", "RDMA_WRITE", "remote access error", "0x13", "0x88", "names no memory key" } },
	{ "SOFTMLX5_LOG=off", "off", 0, { NULL } },
	{ "SOFTMLX5_LOG=info: every refusal", "info", 3, { "0x77" } },
};

static void stderr_lines(const void *arg)
{
	const struct said *s = arg;
	char command[4200], self[4096], line[1024];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	bool has[6] = { false };
	int lines = 0;
	FILE *f;

	MUST(n > 0, "readlink");
	self[n] = '\0';
	snprintf(command, sizeof(command), "%s%s '%s' child 2>&1 >/dev/null",
		 s->log ? "SOFTMLX5_LOG=" : "env -u SOFTMLX5_LOG", s->log ? s->log : "", self);
	f = popen(command, "r");
	MUST(f, "popen");
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "softmlx5:", 9))
			continue;
		lines += strstr(line, "failed") != NULL;
		EXPECT(!strstr(line, "0x78"), "a flushed request is named: %s", line);
		for (int i = 0; i < 6 && s->has[i]; i++)
			has[i] |= strstr(line, s->has[i]) != NULL;
	}
	EXPECT_EQ(pclose(f), 0, "exit code of the program");
	EXPECT(s->log && !strcmp(s->log, "info") ? lines >= s->lines : lines == s->lines, "%d lines, want %d", lines,
	       s->lines);
	for (int i = 0; i < 6 && s->has[i]; i++)
		EXPECT(has[i], "no line says \"%s\"", s->has[i]);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "child")) {
		t_quiet_log = false;
		return fail_twice();
	}
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("a failed send", failed_send, NULL);
	t_case("a failed receive", failed_receive, NULL);
	t_case("a refused call", refused_call, NULL);
	t_case("whose, and how many", whose_and_how_many, NULL);
	for (size_t i = 0; i < sizeof(saids) / sizeof(saids[0]); i++)
		t_case(saids[i].name, stderr_lines, &saids[i]);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
