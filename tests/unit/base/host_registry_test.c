/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: numbers are unique among processes, what the dead owned is taken back, the last to leave leaves
 * nothing, and a directory or file that is not what it should be is refused in words.
 * Method: a directory of the test's own; other processes are children that join and are killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/host_registry.h"

static char dir[64], path[96], why[256];

static int fresh_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/registry-test-%d", getpid());
	snprintf(path, sizeof(path), "%s/registry", dir);
	unlink(path);
	rmdir(dir);
	return 0;
}

static bool is_there(void)
{
	return !access(dir, F_OK);
}

static struct smx_host join(void)
{
	struct smx_host h;

	assert_int_equal(smx_host_open(&h, dir, true, why, sizeof(why)), 0);
	assert_int_equal(smx_host_join(&h, why, sizeof(why)), 0);
	return h;
}

/* A child that joins, takes a block, says its number, and waits to be killed. */
static pid_t start_other(uint32_t *first)
{
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		struct smx_host h = join();
		uint32_t qpn;

		if (!smx_host_take_block(&h, &qpn) || write(fds[1], &qpn, sizeof(qpn)) != sizeof(qpn))
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(fds[0], first, sizeof(*first)), sizeof(*first));
	close(fds[0]);
	close(fds[1]);
	return pid;
}

static void kill_other(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void numbers_have_one_owner(void **state)
{
	struct smx_host h = join();
	uint32_t mine, theirs, again;
	uint16_t gen;
	pid_t pid;

	(void)state;
	assert_true(smx_host_take_block(&h, &mine));
	pid = start_other(&theirs);
	assert_true(smx_host_take_block(&h, &again));
	assert_true(mine != theirs && mine != again && theirs != again);
	assert_true(mine >= 1 << SMX_HOST_BLOCK_BITS && !(mine & ((1 << SMX_HOST_BLOCK_BITS) - 1)));
	assert_int_equal(smx_host_owner(&h, mine + 1023, &gen), h.slot);
	assert_int_equal(gen, (uint16_t)h.gen);
	assert_int_not_equal(smx_host_owner(&h, theirs, &gen), h.slot);
	assert_int_not_equal(smx_host_owner(&h, theirs, &gen), SMX_HOST_SLOTS);
	assert_int_equal(smx_host_owner(&h, 0xffffff, &gen), SMX_HOST_SLOTS);
	assert_int_equal(smx_host_owner(&h, 0, &gen), SMX_HOST_SLOTS);
	kill_other(pid);
	smx_host_leave(&h);
	assert_false(is_there());
}

static void what_a_killed_process_owned_is_taken_back(void **state)
{
	struct smx_host h = join();
	uint32_t theirs, epoch = h.file->epoch;
	uint16_t gen;
	pid_t pid = start_other(&theirs);
	char lane[96];

	(void)state;
	snprintf(lane, sizeof(lane), "%s/lane-%u.%u-%u.%u", dir, h.slot, h.gen, smx_host_owner(&h, theirs, &gen),
		 h.file->slot[smx_host_owner(&h, theirs, &gen)].gen);
	close(open(lane, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(smx_host_reclaim(&h), 0);
	assert_int_equal(access(lane, F_OK), 0);
	kill_other(pid);
	assert_int_equal(smx_host_reclaim(&h), 1);
	assert_int_equal(smx_host_owner(&h, theirs, &gen), SMX_HOST_SLOTS);
	assert_int_not_equal(access(lane, F_OK), 0);
	assert_int_not_equal(h.file->epoch, epoch);
	smx_host_leave(&h);
	assert_false(is_there());
}

static void whoever_comes_next_takes_back(void **state)
{
	uint32_t theirs;
	pid_t pid = start_other(&theirs);
	struct smx_host h;

	(void)state;
	kill_other(pid);
	assert_true(is_there());
	h = join();
	assert_int_equal(h.slot, 0);
	assert_int_equal(h.gen, 2);
	smx_host_leave(&h);
	assert_false(is_there());
}

static void a_pid_that_means_another_process_is_dead(void **state)
{
	struct smx_host h = join();
	struct smx_host_slot slot = h.file->slot[h.slot];

	(void)state;
	assert_true(smx_host_is_alive(&slot));
	slot.start_ticks++;
	assert_false(smx_host_is_alive(&slot));
	slot.start_ticks--;
	slot.start_stack += 4096;
	assert_false(smx_host_is_alive(&slot));
	slot.pid_ns++;	/* not for us to say */
	assert_true(smx_host_is_alive(&slot));
	smx_host_leave(&h);
}

static void all_slots_taken_is_said(void **state)
{
	struct smx_host h = join(), next;

	(void)state;
	for (uint32_t i = 0; i < SMX_HOST_SLOTS; i++)
		h.file->slot[i] = h.file->slot[h.slot];	/* all of them live */
	assert_int_equal(smx_host_open(&next, dir, true, why, sizeof(why)), 0);
	assert_int_equal(smx_host_join(&next, why, sizeof(why)), ENOSPC);
	assert_non_null(strstr(why, "256 processes"));
	smx_host_close(&next);
	memset(h.file->slot, 0, sizeof(h.file->slot));
	smx_host_leave(&h);
}

enum wrong {
	MODE_OF_DIR, MODE_OF_FILE, SHORT, LONG, MAGIC, VERSION, SIZE, A_LINK, A_DIRECTORY, A_FIFO, DIR_IS_LINK,
};
static const struct row { const char *name; enum wrong wrong; const char *says; } rows[] = {
	{ "directory open to others", MODE_OF_DIR, "others may use it" },
	{ "file open to others", MODE_OF_FILE, "others may use it" },
	{ "file too short", SHORT, "bytes, not" },
	{ "file too long", LONG, "bytes, not" },
	{ "wrong magic", MAGIC, "is no registry" },
	{ "wrong version", VERSION, "has version 99" },
	{ "wrong size in its head", SIZE, "has version" },
	{ "a symbolic link", A_LINK, "cannot be opened" },
	{ "a directory", A_DIRECTORY, "cannot be opened" },
	{ "a fifo", A_FIFO, "not a regular file" },
	{ "the directory is a link", DIR_IS_LINK, "cannot be opened" },
};

static void spoil(enum wrong wrong)
{
	struct smx_host h = join();
	char other[112];

	snprintf(other, sizeof(other), "%s.other", dir);
	switch (wrong) {
	case MODE_OF_DIR: chmod(dir, 0755); break;
	case MODE_OF_FILE: chmod(path, 0666); break;
	case SHORT: assert_int_equal(truncate(path, 100), 0); break;
	case LONG: assert_int_equal(truncate(path, sizeof(struct smx_host_file) + 1), 0); break;
	case MAGIC: h.file->magic++; break;
	case VERSION: h.file->version = 99; break;
	case SIZE: h.file->bytes++; break;
	case A_LINK: unlink(path); assert_int_equal(symlink("/dev/zero", path), 0); break;
	case A_DIRECTORY: unlink(path); mkdir(path, 0700); break;
	case A_FIFO: unlink(path); assert_int_equal(mkfifo(path, 0600), 0); break;
	case DIR_IS_LINK: rename(dir, other); assert_int_equal(symlink(other, dir), 0); break;
	}
	smx_host_close(&h);
}

static void clean(enum wrong wrong)
{
	char other[112];

	snprintf(other, sizeof(other), "%s.other", dir);
	if (wrong == DIR_IS_LINK) {
		unlink(dir);
		rename(other, dir);
	}
	if (wrong == A_DIRECTORY)
		rmdir(path);
	unlink(path);
	rmdir(dir);
}

static void what_is_not_a_registry_is_refused_in_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct smx_host h;

		spoil(rows[i].wrong);
		if (smx_host_open(&h, dir, true, why, sizeof(why)) == 0 || !strstr(why, rows[i].says))
			fail_msg("%s: said \"%s\"", rows[i].name, why);
		clean(rows[i].wrong);
	}
}

static void a_file_that_its_maker_did_not_finish_is_made_anew(void **state)
{
	struct smx_host h;

	(void)state;
	mkdir(dir, 0700);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	h = join();
	smx_host_leave(&h);
	mkdir(dir, 0700);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(truncate(path, sizeof(struct smx_host_file)), 0);
	h = join();
	smx_host_leave(&h);
	assert_false(is_there());
}

static void a_look_makes_nothing(void **state)
{
	struct smx_host h;

	(void)state;
	assert_int_equal(smx_host_open(&h, dir, false, why, sizeof(why)), ENOENT);
	assert_false(is_there());
}

/* What a build with another layout left, alive or dead, is in nobody's way. */
static void builds_that_share_differently_use_different_folders(void **state)
{
	char why[256], end[16];
	struct smx_host h;

	(void)state;
	if (!smx_host_open(&h, NULL, false, why, sizeof(why)))
		smx_host_close(&h);
	snprintf(end, sizeof(end), ".%u", SMX_HOST_VERSION);
	assert_non_null(strstr(h.dir, "/dev/shm/softmlx5-"));
	assert_string_equal(strrchr(h.dir, '.'), end);
}

/* Many come and go at once: each finds a registry, and nothing is left. */
static void coming_and_going_at_once(void **state)
{
	int status, bad = 0;

	(void)state;
	for (int i = 0; i < 6; i++) {
		if (fork())
			continue;
		for (int j = 0; j < 60; j++) {
			struct smx_host h;
			uint32_t qpn;
			uint16_t gen;

			if (smx_host_open(&h, dir, true, why, sizeof(why)) ||
			    smx_host_join(&h, why, sizeof(why)) || !smx_host_take_block(&h, &qpn) ||
			    smx_host_owner(&h, qpn, &gen) != h.slot || h.file->slot[h.slot].pid != getpid())
				_exit(1);
			if (i == 5 && j == 30)
				kill(getpid(), SIGKILL);
			smx_host_leave(&h);
		}
		_exit(0);
	}
	for (int i = 0; i < 6; i++) {
		wait(&status);
		bad += !(WIFEXITED(status) && !WEXITSTATUS(status));
	}
	assert_int_equal(bad, 1);	/* the one that killed itself */
	if (is_there()) {
		struct smx_host h = join();

		smx_host_leave(&h);
	}
	assert_false(is_there());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(numbers_have_one_owner, fresh_dir),
		cmocka_unit_test_setup(what_a_killed_process_owned_is_taken_back, fresh_dir),
		cmocka_unit_test_setup(whoever_comes_next_takes_back, fresh_dir),
		cmocka_unit_test_setup(a_pid_that_means_another_process_is_dead, fresh_dir),
		cmocka_unit_test_setup(all_slots_taken_is_said, fresh_dir),
		cmocka_unit_test_setup(what_is_not_a_registry_is_refused_in_words, fresh_dir),
		cmocka_unit_test_setup(a_file_that_its_maker_did_not_finish_is_made_anew, fresh_dir),
		cmocka_unit_test_setup(a_look_makes_nothing, fresh_dir),
		cmocka_unit_test(builds_that_share_differently_use_different_folders),
		cmocka_unit_test_setup(coming_and_going_at_once, fresh_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
