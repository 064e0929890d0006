/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: what another process shares is read and written at its own addresses, and a file that is not such a one is
 * refused in words.
 * Method: a child as the peer; files of every wrong kind under numbers of this process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/peer_memory.h"
#include "base/share.h"

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE, GIB = 1 << 30 };

static char why[256];

static struct smx_peer_memory *open_own(int fd)
{
	return smx_peer_memory_open(getpid(), fd, why, sizeof(why));
}

static int memory_file(uint64_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int disk_file(void)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "/tmp/peer-memory-test-%d", getpid());
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	unlink(name);
	return fd;
}

static int pipe_end(void)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	close(fds[1]);
	return fds[0];
}

static void anything_else_is_refused(void **state)
{
	const struct { int fd; const char *text; } rows[] = {
		{ 999, "cannot be opened" },
		{ -1, "cannot be opened" },
		{ memory_file(1 << 20, F_SEAL_SHRINK), "has 1048576 bytes" },
		{ memory_file(SMX_SHARE_BYTES * 2, F_SEAL_SHRINK), "bytes, not" },
		{ memory_file(SMX_SHARE_BYTES, 0), "may shrink" },
		{ memory_file(SMX_SHARE_BYTES, F_SEAL_GROW), "may shrink" },
		{ memory_file(SMX_SHARE_BYTES, F_SEAL_SHRINK | F_SEAL_WRITE), "not be written" },
		{ disk_file(), "not a file in memory" },
		{ pipe_end(), "not a file in memory" },		/* which nobody writes to */
		{ open("/dev/zero", O_RDWR), "not a file in memory" },
		{ socket(AF_UNIX, SOCK_STREAM, 0), "not a file in memory" },
		{ open("/proc/self/maps", O_RDONLY), "not a file in memory" },
		{ open("/tmp", O_RDONLY | O_DIRECTORY), "not a file in memory" },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		memset(why, 0, sizeof(why));
		assert_null(open_own(rows[i].fd));
		if (!strstr(why, rows[i].text))
			fail_msg("row %zu: \"%s\" does not say \"%s\"", i, why, rows[i].text);
		if (rows[i].fd >= 0)
			close(rows[i].fd);
	}
	assert_null(smx_peer_memory_open(-5, 3, why, sizeof(why)));
	assert_non_null(strstr(why, "cannot be opened"));
}

static void another_users_file_is_refused(void **state)
{
	int fd = memory_file(SMX_SHARE_BYTES, F_SEAL_SHRINK);

	(void)state;
	if (fchown(fd, 12345, (gid_t)-1)) {
		close(fd);
		skip();		/* only the superuser may give a file away */
	}
	assert_null(open_own(fd));
	assert_non_null(strstr(why, "belongs to user 12345"));
	close(fd);
}

static void what_lies_together(void **state)
{
	int fd = memory_file(SMX_SHARE_BYTES, F_SEAL_SHRINK);
	struct smx_peer_memory *pm = open_own(fd);
	const uint64_t edge = UINT64_C(5) * GIB;
	uint64_t n = 100;
	uint8_t *p;

	(void)state;
	assert_non_null(pm);
	assert_non_null(smx_peer_memory_at(pm, edge - 10, &n));
	assert_int_equal(n, 10);
	n = 100;
	assert_non_null(smx_peer_memory_at(pm, edge, &n));
	assert_int_equal(n, 100);
	n = UINT64_MAX;
	assert_non_null(smx_peer_memory_at(pm, SMX_SHARE_BYTES - 1, &n));
	assert_int_equal(n, 1);
	assert_null(smx_peer_memory_at(pm, SMX_SHARE_BYTES, &n));
	assert_null(smx_peer_memory_at(pm, UINT64_MAX, &n));
	n = 8;
	p = smx_peer_memory_at(pm, edge + 77, &n);
	memcpy(p, "together", 8);
	assert_int_equal(pread(fd, why, 8, (off_t)edge + 77), 8);
	assert_memory_equal(why, "together", 8);
	smx_peer_memory_close(pm);
	close(fd);
}

static void more_windows_than_are_kept(void **state)
{
	int fd = memory_file(SMX_SHARE_BYTES, F_SEAL_SHRINK);
	struct smx_peer_memory *pm = open_own(fd);
	const uint64_t stride = UINT64_C(131) * GIB;

	(void)state;
	for (uint64_t round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < 300; i++) {
			uint64_t n = 8, addr = i * stride;
			uint64_t *p = smx_peer_memory_at(pm, addr + 8, &n);

			assert_non_null(p);
			assert_int_equal(*p, round ? addr + round : 0);
			*p = addr + round + 1;
		}
	}
	smx_peer_memory_close(pm);
	close(fd);
}


/* The child's memory, by its own addresses. */
static void another_process(void **state)
{
	struct { void *p; int fd; } his;
	int to_us[2], to_him[2];
	char c;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(to_us), 0);
	assert_int_equal(pipe(to_him), 0);
	pid = fork();
	if (!pid) {
		uint8_t *p = mmap(NULL, 3 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		int good;

		memset(p, 1, 3 * PAGE);
		his.p = p;
		if (!smx_share(p + PAGE, PAGE, 0))
			_exit(77);
		his.fd = smx_share_fd();
		good = write(to_us[1], &his, sizeof(his)) == sizeof(his) && read(to_him[0], &c, 1) == 1;
		_exit(!(good && p[PAGE] == 0x42 && p[0] == 1 && p[2 * PAGE] == 1));
	}
	close(to_us[1]);
	if (read(to_us[0], &his, sizeof(his)) == sizeof(his)) {
		struct smx_peer_memory *pm = smx_peer_memory_open(pid, his.fd, why, sizeof(why));
		uint64_t n = 3 * PAGE;
		uint8_t *p;

		assert_non_null(pm);
		p = smx_peer_memory_at(pm, (uintptr_t)his.p, &n);
		assert_int_equal(p[0], 0);		/* it did not share that */
		assert_int_equal(p[PAGE], 1);
		p[PAGE] = 0x42;
		assert_int_equal(write(to_him[1], "x", 1), 1);
		waitpid(pid, &his.fd, 0);
		assert_int_equal(his.fd, 0);
		assert_int_equal(p[PAGE], 0x42);	/* there while we have it, whatever became of him */
		smx_peer_memory_close(pm);
	} else {
		waitpid(pid, &his.fd, 0);
		assert_int_equal(his.fd, 77 << 8);	/* a sanitizer has a thread of its own */
	}
	assert_null(smx_peer_memory_open(pid, his.fd, why, sizeof(why)));
	close(to_us[0]);
	close(to_him[0]);
	close(to_him[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(anything_else_is_refused),
		cmocka_unit_test(another_users_file_is_refused),
		cmocka_unit_test(what_lies_together),
		cmocka_unit_test(more_windows_than_are_kept),
		cmocka_unit_test(another_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
