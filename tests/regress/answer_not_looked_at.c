/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What broke: a program learnt by another way, a socket, that its message had come, and moved its queue pair to ERR.
 * The acknowledgement lay there, but nobody had looked at it yet, and the message completed as flushed (DAPL's tests
 * end every connection like that).
 * Method: the target says in common memory what it has received, and the tester, which has not polled, ends the
 * connection at once. Its device's thread hardly gets a processor meanwhile. */
#include <dirent.h>
#include <sched.h>

#include "two.h"

enum { ROUNDS = 25 };

static struct t_env *env;

/* Other threads of this process share a processor with this one, and get it when this one does not want it. */
static void run_before_others(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct sched_param none = { 0 };
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(sched_getcpu(), &first);
	MUST(tasks, "/proc/self/task");
	for (struct dirent *d; (d = readdir(tasks));) {
		pid_t tid = (pid_t)strtol(d->d_name, NULL, 10);

		if (!tid)
			continue;
		MUST(!sched_setaffinity(tid, sizeof(first), &first), "sched_setaffinity");
		if (tid != (pid_t)syscall(SYS_gettid))
			MUST(!sched_setscheduler(tid, SCHED_IDLE, &none), "sched_setscheduler");
	}
	closedir(tasks);
}

static void end_at_once(const void *arg)
{
	struct two two = two_start(env);
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	cpu_set_t every;
	struct t_buf buf = t_buf(env, 4096, T_ALL);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&buf, 0, 64));

	(void)arg;
	MUST(!sched_getaffinity(0, sizeof(every), &every), "sched_getaffinity");
	two_connect(env, &two, 14, 7);
	two_want_receives(&two, TWO_RC, 1);
	run_before_others();
	EXPECT_EQ(two_post(&two, TWO_RC, &o), 0, "posting");
	while (two.page->got_count == two.got_seen)
		;
	EXPECT_EQ(ibv_modify_qp(two.q[TWO_RC].qp, &err, IBV_QP_STATE), 0, "to ERR");
	T_DONE(two.q[TWO_RC].scq, 1, IBV_WC_SEND);
	sched_setaffinity(0, sizeof(every), &every);
	two_end(&two);
	t_buf_free(&buf);
}

int main(int argc, char **argv)
{
	two_main(argc, argv);
	env = t_open();
	for (int i = 0; i < ROUNDS; i++)
		t_case("a message that came, and the end of its connection", end_at_once, NULL);
	return t_close(env);
}
