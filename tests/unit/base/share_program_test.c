/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: whatever a program does to shared memory (unmaps it, moves it, runs on it, forks, closes our file), its
 * contents are what they would be without sharing, and nothing is left behind. */
#include "unit/base/share_world.h"

/* ------------------------------------------------------------------ what programs do to mappings */

static void memory_unmapped_under_a_share(void **state)
{
	uint8_t *p = pages(8 * PAGE);

	(void)state;
	fill(p, 8 * PAGE, 2);
	assert_true(share(p, 8 * PAGE));
	munmap(p + 2 * PAGE, 4 * PAGE);
	assert_int_equal(peek(p + 3 * PAGE), (uint8_t)(3 * PAGE * 7 + 3 * 13 + 2));	/* still the region's */
	/* Something else is there now, and is not touched. */
	assert_ptr_equal(mmap(p + 3 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p + 3 * PAGE);
	memset(p + 3 * PAGE, 0x77, PAGE);
	drop(p, 8 * PAGE);
	assert_int_equal(p[3 * PAGE], 0x77);
	assert_int_equal(p[4 * PAGE - 1], 0x77);
	assert_true(is_filled(p, 2 * PAGE, 2));
	assert_false(is_shared(p));
	assert_int_equal(mprotect(p + 2 * PAGE, PAGE, RW), -1);	/* nothing was mapped there again */
	munmap(p, 8 * PAGE);
}

static void memory_mapped_anew_under_a_share(void **state)
{
	uint8_t *p = pages(4 * PAGE);

	(void)state;
	fill(p, 4 * PAGE, 2);
	assert_true(share(p, 4 * PAGE));
	assert_ptr_equal(mmap(p, 4 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
	p[PAGE] = 5;
	/* A second region there has the new memory, and the untouched pages of it are zero. */
	assert_true(share(p, 4 * PAGE));
	assert_true(is_shared(p + PAGE));
	assert_int_equal(p[PAGE], 5);
	assert_int_equal(p[0] | p[2 * PAGE] | p[3 * PAGE], 0);
	drop(p, 4 * PAGE);
	assert_true(is_shared(p + PAGE));
	drop(p, 4 * PAGE);
	assert_int_equal(p[PAGE], 5);
	munmap(p, 4 * PAGE);
}

static void memory_moved_under_a_share(void **state)
{
	uint8_t *p = pages(8 * PAGE), *to = pages(64 * PAGE), *other = pages(PAGE), *q;

	(void)state;
	fill(p, 8 * PAGE, 9);
	other[0] = 1;
	assert_true(share(other, PAGE));
	assert_true(share(p, 4 * PAGE));
	q = mremap(p, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	if (q == MAP_FAILED)	/* older kernels move one mapping at a time */
		q = mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	assert_ptr_equal(q, to);
	assert_true(is_filled(q, 4 * PAGE, 9));
	poke(p + 5, 0x55);		/* the region went with it */
	assert_int_equal(q[5], 0x55);
	q[5] = (uint8_t)(5 * 7 + 9);
	drop(p, 4 * PAGE);
	assert_true(is_filled(q, 4 * PAGE, 9));
	assert_int_equal(file_bytes(), PAGE);	/* the other region's */
	drop(other, PAGE);
	assert_int_equal(file_bytes(), 0);
	/* What a peer goes on storing is not seen, and does not stay. */
	poke(p + 5, 0x55);
	assert_true(is_filled(q, 4 * PAGE, 9));
	assert_true(share(q, 1));
	drop(q, 1);
	munmap(p, 8 * PAGE);
	munmap(other, PAGE);
	munmap(to, 64 * PAGE);
}

static void realloc_of_what_is_shared(void **state)
{
	uint8_t *p = malloc(MIB);

	(void)state;
	for (int round = 0; round < 20; round++) {
		size_t old = MIB + (size_t)round * 300000, more = old + 300000;
		volatile uintptr_t was = (uintptr_t)p;

		fill(p, old, 3);
		assert_true(share(p, old));
		p = realloc(p, more);
		assert_true(is_filled(p, old, 3));
		memset(p + old, 0xab, more - old);
		drop((void *)was, old);
		assert_true(is_filled(p, old, 3));
		for (size_t i = old; i < more; i += 511)
			assert_int_equal(p[i], 0xab);
	}
	free(p);
	p = malloc(PAGE);
	assert_true(share(p, PAGE));
	drop(p, PAGE);
	free(p);
	assert_int_equal(file_bytes(), 0);
}

static void calloc_after_free_is_zero(void **state)
{
	(void)state;
	for (int round = 0; round < 50; round++) {
		size_t size = 1000 + (size_t)round * 9001;
		uint8_t *p = calloc(1, size);

		for (size_t i = 0; i < size; i++)
			assert_int_equal(p[i], 0);
		memset(p, 0xff, size);
		assert_true(share(p, size));
		memset(p, 0xee, size);
		drop(p, size);
		free(p);
		if (round % 10 == 0)
			malloc_trim(0);
	}
}

static void pinned_pages_are_not_exchanged(void **state)
{
	uint8_t *p = pages(3 * PAGE), *locked = pages(PAGE);

	(void)state;
	fill(p, 3 * PAGE, 1);
	/* Not by libc's name, which a sanitizer makes do nothing. */
	if (syscall(SYS_mlock, locked, PAGE)) {
		munmap(p, 3 * PAGE);
		skip();
	}
	refuse(p, PAGE, "memory while some is locked");
	syscall(SYS_munlock, locked, PAGE);
	assert_true(share(p, PAGE));
	assert_true(share(p + 2 * PAGE, PAGE));
	syscall(SYS_mlock, locked, PAGE);
	drop(p, PAGE);
	assert_true(is_shared(p));
	syscall(SYS_munlock, locked, PAGE);
	/* Whoever comes next sees to it. */
	assert_true(share(p + PAGE, PAGE));
	drop(p + PAGE, PAGE);
	assert_false(is_shared(p));
	drop(p + 2 * PAGE, PAGE);
	assert_true(is_filled(p, 3 * PAGE, 1));
	munmap(p, 3 * PAGE);
	munmap(locked, PAGE);
}

static uint64_t resident_kib(void)
{
	unsigned long size, resident;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_int_equal(fscanf(f, "%lu %lu", &size, &resident), 2);
	fclose(f);
	return resident * 4;
}

static void a_loop_leaves_nothing_behind(void **state)
{
	unsigned int lines = 0;
	uint64_t kib = 0;

	(void)state;
	for (int round = 0; round < 30; round++) {
		uint8_t *big = malloc(8 * MIB), *small[20];
		volatile uintptr_t was = (uintptr_t)big;

		fill(big, 8 * MIB, (unsigned int)round);
		assert_true(share(big, 8 * MIB));
		for (int i = 0; i < 20; i++) {
			small[i] = malloc(3000 + (size_t)i * 2000);
			memset(small[i], i, 3000 + (size_t)i * 2000);
			assert_true(share(small[i], 3000 + (size_t)i * 2000));
		}
		for (int i = 0; i < 20; i++) {
			drop(small[i], 3000 + (size_t)i * 2000);
			free(small[i]);
		}
		/* Freed first, then given back: a program's mistake, but no leak. */
		if (round & 1) {
			free(big);
			drop((void *)was, 8 * MIB);
		} else {
			drop(big, 8 * MIB);
			free(big);
		}
		assert_int_equal(file_bytes(), 0);
		if (round == 4) {
			lines = maps_lines();
			kib = resident_kib();
		}
	}
	if (!SANITIZED) {	/* which keeps what is freed */
		assert_in_range(maps_lines(), 1, lines + 4);
		assert_in_range(resident_kib(), 1, kib + 3000);
	}
}

/* ------------------------------------------------------------------ coroutines */

static ucontext_t main_context, coroutine;
static uint8_t *coroutine_memory;
static bool coroutine_good;

static void in_coroutine(void)
{
	/* Its own stack lies in the range. */
	drop(coroutine_memory, 64 * PAGE);
	coroutine_good = !is_shared(coroutine_memory) && !share(coroutine_memory, 64 * PAGE);
	swapcontext(&coroutine, &main_context);
}

static void a_coroutines_stack_in_the_range(void **state)
{
	(void)state;
	if (SANITIZED)		/* it must be told of stacks */
		skip();
	coroutine_memory = pages(64 * PAGE);
	fill(coroutine_memory, 64 * PAGE, 1);
	assert_true(share(coroutine_memory, 64 * PAGE));
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = coroutine_memory + 16 * PAGE;
	coroutine.uc_stack.ss_size = 48 * PAGE;
	coroutine.uc_link = &main_context;
	makecontext(&coroutine, in_coroutine, 0);
	swapcontext(&main_context, &coroutine);
	assert_true(coroutine_good);
	assert_true(is_filled(coroutine_memory, 16 * PAGE, 1));
	munmap(coroutine_memory, 64 * PAGE);
}

/* ------------------------------------------------------------------ fork */

static pid_t fork_around(void)
{
	pid_t pid;

	smx_share_fork_prepare();
	pid = fork();
	if (pid)
		smx_share_fork_parent();
	else
		smx_share_fork_child();
	if (!pid)
		other_threads = threads() - 1;
	return pid;
}

static void wait_good(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static unsigned int open_files(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 1000; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void a_child_has_copies_of_its_own(void **state)
{
	unsigned int files;
	uint8_t *p = pages(9 * MIB), *heap = malloc(5000);
	int go[2];
	pid_t pid;

	(void)state;
	fill(p, 6 * MIB, 1);
	fill(heap, 5000, 2);
	assert_true(share(p, 9 * MIB));
	assert_true(share(heap, 5000));
	assert_int_equal(mprotect(p + 8 * MIB, PAGE, PROT_READ), 0);
	assert_int_equal(pipe(go), 0);
	files = open_files();
	pid = fork_around();
	if (!pid) {
		char c;
		bool good = is_filled(p, 6 * MIB, 1) && is_filled(heap, 5000, 2);

		/* The parent's memfd is closed, and nothing is open that was not. */
		good = good && open_files() < files;
		fill(p, 9 * MIB - MIB, 70);
		fill(heap, 5000, 71);
		good = good && read(go[0], &c, 1) == 1 && is_filled(p, 8 * MIB, 70) && is_filled(heap, 5000, 71);
		/* It may share by a file of its own, and drop what it inherited. */
		good = good && share(p, MIB) && p[7] == (uint8_t)(7 * 7 + 70);
		smx_unshare(heap, 5000, 0);
		smx_unshare(p, MIB, 0);
		smx_unshare(p, 9 * MIB, 0);
		_exit(good && is_filled(p, 8 * MIB, 70) ? 0 : 1);
	}
	fill(p, 6 * MIB, 3);
	assert_true(is_shared(p));
	assert_int_equal(open_files(), files);
	assert_int_equal(write(go[1], "x", 1), 1);
	wait_good(pid);
	assert_true(is_filled(p, 6 * MIB, 3));
	assert_true(is_filled(heap, 5000, 2));
	drop(heap, 5000);
	drop(p, 9 * MIB);
	assert_true(is_filled(p, 6 * MIB, 3));
	free(heap);
	munmap(p, 9 * MIB);
	close(go[0]);
	close(go[1]);
}

static void the_parent_waits_for_copies_and_for_nobody_dead(void **state)
{
	uint8_t *p = pages(4 * MIB);
	pid_t pid;

	(void)state;
	fill(p, 4 * MIB, 1);
	assert_true(share(p, 4 * MIB));
	for (int round = 0; round < 5; round++) {
		pid = fork_around();
		if (!pid)
			_exit(!is_filled(p, 4 * MIB, (unsigned int)round + 1));
		fill(p, 4 * MIB, (unsigned int)round + 2);	/* not seen by the child */
		wait_good(pid);
	}
	/* One that dies before it has copies. */
	smx_share_fork_prepare();
	pid = fork();
	if (!pid)
		_exit(0);
	smx_share_fork_parent();
	wait_good(pid);
	/* None at all. */
	smx_share_fork_prepare();
	smx_share_fork_parent();
	drop(p, 4 * MIB);
	munmap(p, 4 * MIB);
}

/* ------------------------------------------------------------------ a program that closes all files */

static int close_all_case(void)
{
	uint8_t *p = pages(2 * PAGE);
	int fd = smx_share_fd(), file;
	char text[8] = "";

	fill(p, PAGE, 1);
	if (!share(p, PAGE))
		return 1;
	for (int i = 3; i < 100; i++)
		close(i);
	file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	if (file < 0 || dup2(file, fd) != fd || write(file, "theirs", 6) != 6)
		return 2;
	if (share(p + PAGE, PAGE) || share(p, PAGE) || smx_share_fd() >= 0)
		return 3;
	drop(p, PAGE);
	if (!is_filled(p, PAGE, 1) || pread(fd, text, 6, 0) != 6 || strcmp(text, "theirs"))
		return 4;
	return smx_share_end(other_threads) ? 5 : 0;
}

static void another_file_in_its_place_is_not_touched(void **state)
{
	pid_t pid;

	(void)state;
	pid = fork_around();
	if (!pid) {
		dup2(open("/dev/null", O_WRONLY), 2);
		_exit(close_all_case());
	}
	wait_good(pid);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(memory_unmapped_under_a_share),
		TEST(memory_mapped_anew_under_a_share),
		TEST(memory_moved_under_a_share),
		TEST(realloc_of_what_is_shared),
		TEST(calloc_after_free_is_zero),
		TEST(pinned_pages_are_not_exchanged),
		TEST(a_loop_leaves_nothing_behind),
		TEST(a_coroutines_stack_in_the_range),
		TEST(a_child_has_copies_of_its_own),
		TEST(the_parent_waits_for_copies_and_for_nobody_dead),
		TEST(another_file_in_its_place_is_not_touched),
	};

	return run_both_ways(tests, SMX_COUNT(tests), argc > 1 ? argv[1] : NULL);
}
