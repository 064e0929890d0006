/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Several processes in corners that programs seldom visit: a multicast group with members in three
 * of them, a process that becomes another program with its device open, XRC domains that are named
 * by one file. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "t_why.h"

enum { BYTES = 1000, MEMBERS = 2, GRH = 40 };

struct page {
	volatile uint32_t ready[MEMBERS], got[MEMBERS], right[MEMBERS], stop;
	volatile uint32_t qpn, rkey, first_fds, fds, opened, errno_of_open;
	volatile uint64_t va;
};

static struct t_env *env;
static struct page *page;
static int page_fd;
static const union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 0x42 } };

static pid_t start(const char *role, const char *arg)
{
	char fd[16];
	pid_t pid;

	fflush(stdout);
	snprintf(fd, sizeof(fd), "%d", page_fd);
	pid = fork();
	if (!pid) {
		execl("/proc/self/exe", "member", role, fd, arg, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void wait_word(volatile uint32_t *word, uint32_t want, const char *what)
{
	for (int i = 0; i < 200000 && *word != want; i++)
		usleep(50);
	MUST(*word == want, what);
}

static void end_child(pid_t pid)
{
	int status = -1;

	page->stop = 1;
	waitpid(pid, &status, 0);
	EXPECT_EQ(status, 0, "status of the other process");
	page->stop = 0;
}

/* ---- a multicast group ---- */

static struct t_qp member(struct t_buf *mem)
{
	struct t_qp q = t_qp(env, &(struct t_spec){ .type = IBV_QPT_UD, .ops = T_UD_OPS });

	t_ud_rts(env, q.qp);
	MUST(!ibv_attach_mcast(q.qp, &group, 0), "ibv_attach_mcast");
	t_recv(&q, 1, t_sge(mem, 0, BYTES + GRH));
	t_recv(&q, 2, t_sge(mem, 4096, BYTES + GRH));
	return q;
}

static void member_role(int i)
{
	struct t_buf mem = t_buf(env, 1 << 16, T_ALL);
	struct t_qp q = member(&mem);
	struct ibv_wc wc;

	page->ready[i] = 1;
	while (!page->stop && getppid() != 1) {
		if (ibv_poll_cq(q.rcq, 1, &wc) > 0) {
			page->right[i] += wc.status == IBV_WC_SUCCESS &&
					  wc.byte_len == BYTES + GRH &&
					  t_is(mem.p + (wc.wr_id - 1) * 4096 + GRH, BYTES,
					       (uint32_t)wc.wr_id);
			page->got[i]++;
		}
		usleep(100);
	}
	ibv_detach_mcast(q.qp, &group, 0);
	t_qp_free(&q);
	t_buf_free(&mem);
}

static void multicast(const void *arg)
{
	struct t_buf mem = t_buf(env, 1 << 16, T_ALL), out = t_buf(env, 4096, T_ALL);
	struct ibv_qp_attr attr = t_attr(env, 0);
	struct t_qp own = member(&mem);
	pid_t pid[MEMBERS];
	struct ibv_ah *ah;

	(void)arg;
	for (int i = 0; i < MEMBERS; i++) {
		pid[i] = start("member", i ? "1" : "0");
		wait_word(&page->ready[i], 1, "a member joins");
	}
	attr.ah_attr.grh.dgid = group;
	ah = ibv_create_ah(env->pd, &attr.ah_attr);
	MUST(ah, "ibv_create_ah");
	for (uint32_t n = 1; n <= 2; n++) {
		struct t_op o = t_op(IBV_WR_SEND, n, t_sge(&out, 0, BYTES));

		t_fill(out.p, BYTES, n);
		o.ah = ah;
		o.dest = 0xffffff;
		o.qkey = T_QKEY;
		MUST(!t_post(&own, &o), "post");
		T_DONE(own.scq, n, IBV_WC_SEND);
		T_DONE(own.rcq, n, IBV_WC_RECV);
		EXPECT(t_is(mem.p + (n - 1) * 4096 + GRH, BYTES, n),
		       "our own copy has other bytes");
		for (int i = 0; i < MEMBERS; i++) {
			wait_word(&page->got[i], n, "each member has its copy");
			EXPECT_EQ(page->right[i], n, "copies with the right bytes");
		}
	}
	T_QUIET(own.rcq);
	for (int i = 0; i < MEMBERS; i++) {
		EXPECT_EQ(page->got[i], 2, "copies");
		page->stop = 1;
	}
	for (int i = 0; i < MEMBERS; i++)
		end_child(pid[i]);
	ibv_destroy_ah(ah);
	ibv_detach_mcast(own.qp, &group, 0);
	t_qp_free(&own);
	t_buf_free(&mem);
	t_buf_free(&out);
}

/* ---- exec ---- */

static uint32_t count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* A target of WRITEs; before: it becomes the same program again, which is the target then. */
static void target_role(bool before)
{
	struct t_buf mem = t_buf(env, 1 << 16, T_ALL);
	struct t_qp q = t_qp(env, &(struct t_spec){ .ops = T_RC_OPS });
	struct ibv_qp_attr attr;
	char fd[16];

	page->va = mem.va;
	page->rkey = mem.mr->rkey;
	page->qpn = q.qp->qp_num;
	page->ready[0] = before ? 1 : 3;
	wait_word(&page->ready[1], before ? 1 : 3, "the other end's number");
	attr = t_attr(env, page->got[0]);
	t_to_rts(q.qp, &attr);
	page->ready[0] = before ? 2 : 4;
	while (!page->stop && getppid() != 1)
		usleep(100);
	if (before) {
		page->stop = 0;
		snprintf(fd, sizeof(fd), "%d", page_fd);
		execl("/proc/self/exe", "member", "after", fd, "0", (char *)NULL);
		_exit(127);
	}
	EXPECT_EQ(mem.p[0], 0x77, "what was written");
	t_qp_free(&q);
	t_buf_free(&mem);
}

static void write_to(struct t_qp *q, struct t_buf *mem, uint64_t wr_id)
{
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, wr_id, t_sge(mem, 0, 64), page->rkey, page->va);

	memset(mem->p, 0x77, 64);
	MUST(!t_post(q, &o), "post");
}

static struct t_qp connect_to_target(uint32_t stage)
{
	struct t_qp q = t_qp(env, &(struct t_spec){ .ops = T_RC_OPS });
	struct ibv_qp_attr attr;

	wait_word(&page->ready[0], stage, "the target starts");
	attr = t_attr(env, page->qpn);
	attr.timeout = 14;
	attr.retry_cnt = 7;
	t_to_rts(q.qp, &attr);
	page->got[0] = q.qp->qp_num;
	page->ready[1] = stage;
	wait_word(&page->ready[0], stage + 1, "the target connects");
	return q;
}

static void becomes_another(const void *arg)
{
	struct t_buf mem = t_buf(env, 4096, T_ALL);
	uint32_t old_qpn;
	struct t_qp q;
	pid_t pid;

	(void)arg;
	memset(page, 0, sizeof(*page));
	pid = start("before", "0");
	q = connect_to_target(1);
	write_to(&q, &mem, 1);
	T_DONE(q.scq, 1, IBV_WC_RDMA_WRITE);
	old_qpn = page->qpn;
	page->stop = 1;
	wait_word(&page->ready[0], 3, "the other program");
	EXPECT(page->qpn != old_qpn, "the new program has the old one's number 0x%x", old_qpn);
	EXPECT(page->fds == page->first_fds, "the new program has %u open files, the one before it started with %u",
	       page->fds, page->first_fds);
	write_to(&q, &mem, 2);
	T_FAILED(q.scq, 2, T_RETRY);
	t_qp_free(&q);
	q = connect_to_target(3);
	write_to(&q, &mem, 3);
	T_DONE(q.scq, 3, IBV_WC_RDMA_WRITE);
	end_child(pid);
	t_qp_free(&q);
	t_buf_free(&mem);
}

/* ---- XRC domains ---- */

static struct ibv_xrcd *open_xrcd(int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = { .fd = fd,
					   .oflags = oflags,
					   .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS };

	return ibv_open_xrcd(env->ctx, &attr);
}

static void xrcd_role(const char *path)
{
	int fd = open(path, O_RDONLY);
	struct ibv_xrcd *xrcd;

	t_why_begin();
	xrcd = open_xrcd(fd, 0);
	page->opened = xrcd != NULL;
	page->errno_of_open = (uint32_t)errno;
	T_WHY("OBJECT_ARG", 0);
	close(fd);
}

/* One process's domain is not another's: who asks for one that has to exist already is told so. */
static void domain_of_a_file(const void *arg)
{
	char path[] = "/tmp/xrcd-XXXXXX";
	int fd = mkstemp(path);
	struct ibv_xrcd *xrcd;

	(void)arg;
	memset(page, 0, sizeof(*page));
	MUST(fd >= 0, "mkstemp");
	xrcd = open_xrcd(fd, O_CREAT);
	MUST(xrcd, "ibv_open_xrcd");
	end_child(start("xrcd", path));
	EXPECT_EQ(page->opened, 0, "another process opened the domain");
	EXPECT_EQ(page->errno_of_open, EAGAIN, "errno");
	EXPECT_EQ(ibv_close_xrcd(xrcd), 0, "ibv_close_xrcd");
	close(fd);
	unlink(path);
}

static int run_role(char **argv)
{
	uint32_t fds = count_fds();

	page_fd = (int)strtol(argv[2], NULL, 10);
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
	if (page == MAP_FAILED)
		return 1;
	if (!strcmp(argv[1], "before"))
		page->first_fds = fds;	/* as the caller left them */
	page->fds = fds;
	env = t_open();
	if (!setjmp(t_state.out)) {
		if (!strcmp(argv[1], "member"))
			member_role((int)strtol(argv[3], NULL, 10));
		else if (!strcmp(argv[1], "xrcd"))
			xrcd_role(argv[3]);
		else
			target_role(!strcmp(argv[1], "before"));
	}
	if (t_state.failures)
		printf("# %s: %s\n", argv[1], t_state.why);
	return t_state.failures || t_close(env) == 1;
}

int main(int argc, char **argv)
{
	setenv("SOFTMLX5_HOST", "on", 0);
	if (argc == 4)
		return run_role(argv);
	page_fd = (int)syscall(SYS_memfd_create, "corners", 0);
	if (page_fd < 0 || ftruncate(page_fd, sizeof(*page)))
		return 1;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
	if (page == MAP_FAILED)
		return 1;
	env = t_open();
	t_case("a multicast group of three processes", multicast, NULL);
	t_case("a process that becomes another program", becomes_another, NULL);
	t_case("an XRC domain of a file is its process's", domain_of_a_file, NULL);
	return t_close(env);
}
