/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: a process that ends without closing its device is gone from the host's registry, whatever its other threads do
 * at that moment; a child that ends takes nothing from its parent; another program in its place inherits nothing;
 * and where there can be no registry, everything works in one process.
 * Method: this program starts itself in a role, and asks `softmlx5 ps` who is there. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "t.h"

/* Processes end here with everything open. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

/* ---- roles ---- */

static void *poll_on(void *cq)
{
	struct ibv_wc wc;

	for (;;)
		ibv_poll_cq(cq, 1, &wc);
	return NULL;
}

static void *end_process(void *arg)
{
	(void)arg;
	exit(0);
}

static void ready_to_leave(void)
{
	char c = 'r';

	if (write(1, &c, 1) != 1 || read(0, &c, 1) != 1)
		_exit(9);
}

static void role_case(const void *arg)
{
	const char *role = arg;
	struct t_env *env = t_open();
	struct t_qp dct = t_dct(env, t_srq(env, 16), 77);
	struct t_spec s = { 0 };
	struct t_pair p = t_pair(env, &s);
	pthread_t thread;

	(void)dct;
	if (!strcmp(role, "rings by itself")) {
		struct mlx5dv_qp qp = { 0 };
		struct mlx5dv_obj obj = { .qp = { p.a.qp, &qp } };

		MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
		usleep(50000);
	}
	if (!strcmp(role, "polls"))
		MUST(!pthread_create(&thread, NULL, poll_on, p.a.scq), "pthread_create");
	if (!strcmp(role, "forks")) {
		int status;
		pid_t pid = fork();

		if (!pid)
			exit(0);
		MUST(pid > 0 && waitpid(pid, &status, 0) == pid && !status, "a child that ends");
	}
	ready_to_leave();
	if (!strcmp(role, "another thread")) {
		MUST(!pthread_create(&thread, NULL, end_process, NULL), "pthread_create");
		pthread_join(thread, NULL);
	}
	if (!strcmp(role, "another program")) {
		execl("/proc/self/exe", "leaving", "descriptors", (char *)NULL);
		_exit(9);
	}
	exit(0);
}

/* After exec: RETURN 0 when nothing but the standard descriptors is open. */
static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	char name[256];
	int more = 0;

	while (dir && (e = readdir(dir))) {
		long fd = strtol(e->d_name, NULL, 10);
		ssize_t n = readlinkat(dirfd(dir), e->d_name, name, sizeof(name) - 1);

		if (n < 0 || fd < 3 || fd == dirfd(dir))
			continue;
		name[n] = '\0';
		fprintf(stderr, "# descriptor %ld is open: %s\n", fd, name);
		more++;
	}
	return !dir || more;
}

/* ---- who is there ---- */

static bool tool(char *path, size_t len)
{
	ssize_t n = readlink("/proc/self/exe", path, len - 1);

	if (n < 0)
		return false;
	path[n] = '\0';
	for (int i = 0; i < 3 && strrchr(path, '/'); i++)
		*strrchr(path, '/') = '\0';
	snprintf(path + strlen(path), len - strlen(path), "/bin/softmlx5");
	return !access(path, X_OK);
}

static unsigned int qps;	/* of the process last asked for */

/* RETURN what ps says of a process: 'a'live, 'd'ead, or 0: nothing. */
static char state_of(pid_t pid)
{
	char path[400], line[256], word[32], state = 0;
	unsigned int count;
	int there;
	FILE *f;

	if (!tool(path, sizeof(path)))
		t_skip("no softmlx5 command beside the tests");
	snprintf(path + strlen(path), sizeof(path) - strlen(path), " ps");
	f = popen(path, "r");
	MUST(f, "softmlx5 ps");
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%d %31s %*u %u", &there, word, &count) != 3 || there != pid)
			continue;
		state = word[0];
		qps = count;
	}
	EXPECT_EQ(pclose(f), 0, "exit of softmlx5 ps");
	return state;
}

struct other { pid_t pid; int to, from; };

static struct other start(const char *role)
{
	int in[2], out[2];
	struct other o;
	char c;

	MUST(!pipe(in) && !pipe(out), "pipe");
	fflush(stdout);
	o.pid = fork();
	if (!o.pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		for (int fd = 3; fd < 1024; fd++)
			close(fd);
		execl("/proc/self/exe", "leaving", "role", role, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	o.to = in[1];
	o.from = out[0];
	MUST(read(o.from, &c, 1) == 1 && c == 'r', "the other process gets ready");
	return o;
}

static int end(struct other *o)
{
	int status = -1;

	MUST(write(o->to, "x", 1) == 1 && waitpid(o->pid, &status, 0) == o->pid, "the other process ends");
	close(o->to);
	close(o->from);
	return status;
}

static const char *const roles[] = {
	"ends", "polls", "another thread", "rings by itself", "forks", "another program",
};

static void leaves(const void *arg)
{
	struct other o = start(arg);

	EXPECT_EQ(state_of(o.pid), 'a', "state before");
	EXPECT_EQ(qps, 3, "queue pairs that it is said to have");
	EXPECT_EQ(end(&o), 0, "status of the other process");
	/* Who becomes another program is found dead by whoever comes next. */
	if (strcmp(arg, "another program"))
		EXPECT_EQ(state_of(o.pid), 0, "state after");
	else
		EXPECT(state_of(o.pid) != 'a', "it is there still");
}

/* ---- without a registry ---- */

/* mkdir(2) fails from now on, as where /dev/shm cannot be written. */
static bool refuse_mkdir(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_mkdir
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 1, 0),
#else
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#endif
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdirat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EROFS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* RETURN how many lines this process has written to fd, a file, and empties it. */
static int lines_of(int fd, char *text, size_t len)
{
	ssize_t n = pread(fd, text, len - 1, 0);
	int lines = 0;

	text[n > 0 ? n : 0] = '\0';
	for (const char *p = text; *p; p++)
		lines += *p == '\n';
	MUST(!ftruncate(fd, 0), "ftruncate");
	return lines;
}

static void alone(const void *arg)
{
	struct t_env *env = t_open();
	struct t_buf src = t_buf(env, 4096, T_ALL), dst = t_buf(env, 4096, T_ALL);
	struct t_spec s = { 0 };
	struct t_qp lost[2] = { t_qp(env, &s), t_qp(env, &s) };
	struct t_pair p = t_pair(env, &s);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 4096), dst.key, dst.va);
	struct ibv_qp_attr attr = t_attr(env, 0xabcdef);
	int fd = (int)syscall(SYS_memfd_create, "stderr", 0), old = dup(2);
	char text[1024];

	(void)arg;
	MUST(fd >= 0 && dup2(fd, 2) == 2, "stderr to a file");
	t_fill(src.p, 4096, 3);
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "post");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	EXPECT(t_is(dst.p, 4096, 3), "data");
	EXPECT_EQ(lines_of(fd, text, sizeof(text)), 0, "lines said about a registry that nobody needs");
	t_to_rts(lost[0].qp, &attr);
	t_to_rts(lost[1].qp, &attr);
	EXPECT_EQ(lines_of(fd, text, sizeof(text)), 1, "lines said about a peer that is not there");
	EXPECT(strstr(text, "0xabcdef") && strstr(text, "/dev/shm"), "said: %s", text);
	dup2(old, 2);
	close(old);
	close(fd);
	t_pair_free(&p);
	t_qp_free(&lost[0]);
	t_qp_free(&lost[1]);
	t_buf_free(&src);
	t_buf_free(&dst);
	t_close(env);
}

static void no_registry(const void *arg)
{
	int status = -1;
	pid_t pid;

	(void)arg;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		unsetenv("SOFTMLX5_LOG");
		execl("/proc/self/exe", "leaving", "alone", (char *)NULL);
		_exit(127);
	}
	MUST(pid > 0 && waitpid(pid, &status, 0) == pid, "waitpid");
	EXPECT_EQ(status, 0, "status of a process without a registry");
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "role")) {
		t_case(argv[2], role_case, argv[2]);
		return 1;
	}
	if (argc > 1 && !strcmp(argv[1], "descriptors"))
		return descriptors();
	if (argc > 1 && !strcmp(argv[1], "alone")) {
		if (!refuse_mkdir()) {
			printf("skip - alone # no seccomp filters\n");
			return 0;
		}
		t_quiet_log = false;
		t_case("all works, and one line says why a peer is not reached", alone, NULL);
		return t_done();
	}
	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		t_case(roles[i], leaves, roles[i]);
	t_case("no registry can be had", no_registry, NULL);
	return t_done();
}
