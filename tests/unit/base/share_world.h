/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For tests of base/share: this process reads and writes the memfd as a peer would. Each program runs its tests twice,
 * the second time with the kernel's text of what is mapped instead of its query. */
#ifndef SHARE_WORLD_H
#define SHARE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/guard.h"
#include "base/maps.h"
#include "base/share.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED false
#endif

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE, MIB = 1 << 20 };

/* A sanitizer's, if it has one. */
static unsigned int other_threads;

static inline unsigned int threads(void)
{
	struct stat st;

	assert_int_equal(stat("/proc/self/task", &st), 0);
	return (unsigned int)st.st_nlink - 2;
}

static inline bool share(void *p, uint64_t n)
{
	return smx_share(p, n, other_threads);
}

static inline void drop(void *p, uint64_t n)
{
	smx_unshare(p, n, other_threads);
}

static inline uint8_t *pages(size_t bytes)
{
	void *p = mmap(NULL, bytes, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static inline SMX_UNJUDGED void fill(uint8_t *p, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i * 7 + i / PAGE * 13 + seed);
}

static inline SMX_UNJUDGED bool is_filled(const uint8_t *p, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != (uint8_t)(i * 7 + i / PAGE * 13 + seed))
			return false;
	}
	return true;
}

static inline uint64_t file_bytes(void)
{
	struct stat st;

	assert_int_equal(fstat(smx_share_fd(), &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Nothing is left of what a test shared. */
static inline int end(void **state)
{
	(void)state;
	return file_bytes() != 0;
}

static inline uint8_t peek(const void *p)
{
	uint8_t byte = 0;

	assert_int_equal(pread(smx_share_fd(), &byte, 1, (off_t)(uintptr_t)p), 1);
	return byte;
}

static inline void poke(const void *p, uint8_t byte)
{
	assert_int_equal(pwrite(smx_share_fd(), &byte, 1, (off_t)(uintptr_t)p), 1);
}

/* Whether a store there is seen in the file, and one of a peer's is seen there. */
static inline bool is_shared(void *p)
{
	volatile uint8_t *here = p;
	uint8_t old = *here;
	bool both;

	*here = (uint8_t)(old + 1);
	both = peek(p) == (uint8_t)(old + 1);
	if (both) {
		poke(p, (uint8_t)(old + 2));
		both = *here == (uint8_t)(old + 2);
	}
	*here = old;
	return both;
}

static inline unsigned int maps_lines(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	int c;

	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

static inline void refuse(uint8_t *p, size_t n, const char *what)
{
	unsigned int lines = maps_lines();
	uint64_t before = file_bytes();

	if (share(p, n))
		fail_msg("%s was moved", what);
	assert_int_equal(maps_lines(), lines);
	assert_int_equal(file_bytes(), before);
}

struct crowd {
	pthread_t thread[3];
	uint64_t *word;		/* of each thread and page: [page][thread] */
	uint64_t count[3];
	bool stop;
	int started;
};

enum { CROWD = 3, CROWD_PAGES = 600, WORDS = PAGE / 8 };

struct member { struct crowd *crowd; int number; };

static inline void *count_up(void *arg)
{
	struct member *m = arg;
	struct crowd *c = m->crowd;
	uint64_t n = 0;

	__atomic_fetch_add(&c->started, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		volatile uint64_t *w = c->word + n++ % CROWD_PAGES * WORDS + m->number;

		(*w)++;
	}
	c->count[m->number] = n;
	return NULL;
}

static struct member members[CROWD];

static inline void start_crowd(struct crowd *c, uint8_t *p)
{
	*c = (struct crowd){ .word = (void *)p };
	for (int i = 0; i < CROWD; i++) {
		members[i] = (struct member){ c, i };
		assert_int_equal(pthread_create(&c->thread[i], NULL, count_up, &members[i]), 0);
	}
	while (__atomic_load_n(&c->started, __ATOMIC_SEQ_CST) < CROWD)
		usleep(100);
}

static inline void end_crowd(struct crowd *c)
{
	__atomic_store_n(&c->stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < CROWD; i++)
		pthread_join(c->thread[i], NULL);
	/* A joined thread is still listed for a moment. */
	while (threads() > 1 + other_threads)
		usleep(100);
}

static inline uint64_t crowd_sum(const struct crowd *c, int member)
{
	uint64_t sum = 0;

	for (int i = 0; i < CROWD_PAGES; i++)
		sum += c->word[i * WORDS + member];
	return sum;
}

#define TEST(f) cmocka_unit_test_teardown(f, end)

static inline void *no_work(void *arg)
{
	return arg;
}

/* A sanitizer's thread comes with the first other one; one that was joined is still listed for a moment. */
static inline void count_others(void)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, no_work, NULL), 0);
	pthread_join(thread, NULL);
	other_threads = threads() - 1;
	for (int i = 0; i < 100; i++, usleep(200))
		other_threads = threads() - 1 < other_threads ? threads() - 1 : other_threads;
}

static inline int run_both_ways(const struct CMUnitTest *tests, size_t count, const char *filter)
{
	int failed;

	count_others();
	if (filter)
		cmocka_set_test_filter(filter);
	if (smx_share_fd() < 0) {
		printf("skip - shared memory # this system has no memfd, /proc or MADV_POPULATE_WRITE\n");
		return 77;
	}
	failed = _cmocka_run_group_tests("by query", tests, count, NULL, NULL);
	smx_maps_text_only = true;
	return failed + _cmocka_run_group_tests("by text", tests, count, NULL, NULL);
}

#endif
