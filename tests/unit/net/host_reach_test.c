/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: an owner waits for exactly those who are in its memory, not for the dead, and for the stopped not long.
 * Method: children that enter, and leave late, die, or stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "net/host_reach.h"

static char dir[64], path[96], why[256];

static int fresh_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/reach-test-%d", getpid());
	snprintf(path, sizeof(path), "%s/registry", dir);
	unlink(path);
	rmdir(dir);
	return 0;
}

static struct smx_host join(void)
{
	struct smx_host h;

	assert_int_equal(smx_host_open(&h, dir, true, why, sizeof(why)), 0);
	assert_int_equal(smx_host_join(&h, why, sizeof(why)), 0);
	return h;
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* A child that is in slot's memory for so long. */
static pid_t reacher(uint32_t slot, unsigned int ms)
{
	int fds[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		struct smx_host h = join();

		smx_host_enter(&h, slot);
		if (write(fds[1], "x", 1) != 1)
			_exit(1);
		usleep(ms * 1000);
		smx_host_exit(&h);
		pause();
	}
	assert_int_equal(read(fds[0], &byte, 1), 1);
	close(fds[0]);
	close(fds[1]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void nobody(void **state)
{
	struct smx_host h = join();
	struct smx_host_watch watch = { .known = false };
	pid_t pid = reacher(h.slot + 5, 100000);

	(void)state;
	assert_int_equal(smx_host_await_idle(&h, &watch), SMX_HOST_SLOTS);
	end(pid);
	smx_host_leave(&h);
}

/* One that came after the slots were looked at is seen too. */
static void late_leaver(void **state)
{
	struct smx_host h = join();
	struct smx_host_watch watch = { .known = false };
	uint64_t began;
	pid_t pid;

	(void)state;
	assert_int_equal(smx_host_await_idle(&h, &watch), SMX_HOST_SLOTS);
	pid = reacher(h.slot, 60);
	began = now_ms();
	assert_int_equal(smx_host_await_idle(&h, &watch), SMX_HOST_SLOTS);
	assert_true(now_ms() - began >= 20);
	end(pid);
	smx_host_leave(&h);
}

static void killed(void **state)
{
	struct smx_host h = join();
	struct smx_host_watch watch = { .known = false };
	pid_t pid = reacher(h.slot, 100000);

	(void)state;
	end(pid);
	assert_int_equal(smx_host_await_idle(&h, &watch), SMX_HOST_SLOTS);
	smx_host_leave(&h);
}

static void stuck(int sig)
{
	struct smx_host h = join();
	struct smx_host_watch watch = { .known = false };
	pid_t pid = reacher(h.slot, 100000);
	uint32_t slot = SMX_HOST_SLOTS;

	if (sig) {
		kill(pid, sig);
		waitpid(pid, NULL, WUNTRACED);
	}
	for (uint32_t i = 0; i < SMX_HOST_SLOTS; i++)
		if (h.file->slot[i].state == SMX_HOST_USED && h.file->slot[i].pid == pid)
			slot = i;
	assert_int_equal(smx_host_await_idle(&h, &watch), slot);
	end(pid);
	smx_host_leave(&h);
}

static void stopped(void **state)
{
	(void)state;
	stuck(SIGSTOP);
}

/* It runs, and stays. */
static void endless(void **state)
{
	(void)state;
	stuck(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nobody, fresh_dir), cmocka_unit_test_setup(late_leaver, fresh_dir),
		cmocka_unit_test_setup(killed, fresh_dir), cmocka_unit_test_setup(stopped, fresh_dir),
		cmocka_unit_test_setup(endless, fresh_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
