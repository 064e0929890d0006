/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: shared pages keep address and contents, what may not be moved is left alone, and giving pages back loses no
 * store and leaves nothing behind. */
#include "unit/base/share_world.h"

/* ------------------------------------------------------------------ sharing */

static void contents_stay_and_are_seen(void **state)
{
	static const size_t size[] = { 1, 100, PAGE, PAGE + 1, 10 * PAGE, 3 * MIB, 4 * MIB + 5, 9 * MIB };

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(size); i++) {
		uint8_t *p = malloc(size[i]);

		fill(p, size[i], (unsigned int)i);
		assert_true(share(p, size[i]));
		assert_true(is_filled(p, size[i], (unsigned int)i));
		for (size_t k = 0; k < size[i]; k += 1021)
			assert_int_equal(peek(p + k), p[k]);
		assert_true(is_shared(p));
		assert_true(is_shared(p + size[i] - 1));
		fill(p, size[i], 99);
		drop(p, size[i]);
		assert_true(is_filled(p, size[i], 99));
		free(p);
		assert_int_equal(file_bytes(), 0);
	}
}

static void holes_stay_holes(void **state)
{
	const size_t size = 64 * MIB;
	uint8_t *p = pages(size);
	unsigned char resident[64 * MIB / PAGE];
	size_t there = 0;

	(void)state;
	p[5 * PAGE] = 1;
	p[20 * MIB + 3] = 2;
	p[size - 1] = 3;
	assert_true(share(p, size));
	assert_int_equal(file_bytes(), 3 * PAGE);
	assert_int_equal(p[5 * PAGE] + p[20 * MIB + 3] + p[size - 1], 6);
	assert_int_equal(file_bytes(), 3 * PAGE);
	drop(p, size);
	assert_int_equal(p[5 * PAGE] + p[20 * MIB + 3] + p[size - 1], 6);
	assert_int_equal(file_bytes(), 0);
	if (threads() == 1) {
		assert_int_equal(mincore(p, size, resident), 0);
		for (size_t i = 0; i < SMX_COUNT(resident); i++)
			there += resident[i] & 1;
		assert_int_equal(there, 3);
	}
	munmap(p, size);
}

static const uint8_t overlap[][2] = { { 0, 8 }, { 4, 12 }, { 2, 6 }, { 7, 8 }, { 0, 16 } };

/* Which pages are shared must be what the ranges in force say. */
static void check_overlap(uint8_t *p, unsigned int in_force)
{
	for (int page = 0; page < 16; page++) {
		bool want = false;

		for (size_t i = 0; i < SMX_COUNT(overlap); i++)
			want |= (in_force >> i & 1) && page >= overlap[i][0] && page < overlap[i][1];
		assert_int_equal(is_shared(p + page * PAGE), want);
	}
}

static void ranges_overlap_in_any_order(void **state)
{
	uint8_t *p = pages(16 * PAGE);
	unsigned int in_force = 0;

	(void)state;
	fill(p, 16 * PAGE, 4);
	for (unsigned int step = 0; step < 200; step++) {
		unsigned int i = step * 7 % 5 ^ (step / 5 & 1);
		uint8_t *from;
		uint64_t n;

		i %= SMX_COUNT(overlap);
		from = p + overlap[i][0] * PAGE + 10;
		n = (uint64_t)(overlap[i][1] - overlap[i][0]) * PAGE - 20;
		if (in_force >> i & 1)
			drop(from, n);
		else
			assert_true(share(from, n));
		in_force ^= 1u << i;
		check_overlap(p, in_force);
		assert_true(is_filled(p, 16 * PAGE, 4));
	}
	for (size_t i = 0; i < SMX_COUNT(overlap); i++) {
		if (in_force >> i & 1)
			drop(p + overlap[i][0] * PAGE, (uint64_t)(overlap[i][1] - overlap[i][0]) * PAGE);
	}
	munmap(p, 16 * PAGE);
}

static void the_same_range_many_times(void **state)
{
	const int times = smx_maps_text_only ? 1000 : 100000;
	uint8_t *p = pages(4 * PAGE);

	(void)state;
	fill(p, 4 * PAGE, 1);
	for (int i = 0; i < times; i++)
		assert_true(share(p, 4 * PAGE));
	for (int i = 0; i < times; i++) {
		assert_true(i % 1000 || is_shared(p));
		drop(p, 4 * PAGE);
	}
	assert_false(is_shared(p));
	assert_true(is_filled(p, 4 * PAGE, 1));
	munmap(p, 4 * PAGE);
}

/* ------------------------------------------------------------------ what is left alone */

static char file_name[64];

static uint8_t *map_file(int flags)
{
	int fd;
	void *p;

	snprintf(file_name, sizeof(file_name), "/tmp/share-test-%d", getpid());
	fd = open(file_name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4 * PAGE), 0);
	p = mmap(NULL, 4 * PAGE, RW, flags, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	close(fd);
	unlink(file_name);
	return p;
}

static uint8_t *map_protected(int prot, size_t from, size_t n)
{
	uint8_t *p = pages(4 * PAGE);

	fill(p, 4 * PAGE, 3);
	assert_int_equal(mprotect(p + from * PAGE, n * PAGE, prot), 0);
	return p;
}

static uint8_t *map_gap(void)
{
	uint8_t *p = pages(4 * PAGE);

	munmap(p + 2 * PAGE, PAGE);
	return p;
}

static void what_is_not_plain_memory_is_left_alone(void **state)
{
	uint8_t *local = __builtin_alloca(2 * PAGE);
	const struct { const char *what; uint8_t *p; } rows[] = {
		{ "a private file", map_file(MAP_PRIVATE) },
		{ "a shared file", map_file(MAP_SHARED) },
		{ "shared memory", mmap(NULL, 4 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0) },
		{ "read only", map_protected(PROT_READ, 0, 4) },
		{ "a guard page inside", map_protected(PROT_NONE, 2, 1) },
		{ "code", map_protected(RW | PROT_EXEC, 3, 1) },
		{ "a gap", map_gap() },
		{ "a growing stack", mmap(NULL, 4 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0) },
		{ "device numbers", mmap(NULL, 4 * PAGE, RW, MAP_PRIVATE, open("/dev/zero", O_RDWR), 0) },
	};

	(void)state;
	memset(local, 1, 2 * PAGE);
	refuse(local, 2 * PAGE, "the stack");
	refuse((uint8_t *)(uintptr_t)pthread_self(), 8, "the thread's own block");
	refuse(NULL, 8, "nothing");
	refuse((uint8_t *)(uintptr_t)UINT64_MAX - 5, 8, "the end");
	refuse((uint8_t *)(uintptr_t)(SMX_SHARE_BYTES - 1), 8, "the kernel's half");
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		refuse(rows[i].p, 4 * PAGE, rows[i].what);
		munmap(rows[i].p, 4 * PAGE);
	}
}

static void what_was_moved_before_a_failure_is_undone(void **state)
{
	struct rlimit old, small;
	uint8_t *p = pages(4 * PAGE), *q = pages(16 * MIB);

	(void)state;
	fill(q, 16 * MIB, 6);
	/* The kernel cannot read a page that it may not: the third chunk fails. Linux 6.13. */
	if (madvise(q + 12 * MIB, PAGE, 102) == 0) {
		assert_false(share(q, 12 * MIB + PAGE));
		assert_false(is_shared(q));
		assert_true(is_filled(q, 12 * MIB, 6));
	}
	munmap(q, 16 * MIB);
	/* A limit of file sizes would end the program by a signal. */
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = (struct rlimit){ MIB, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	refuse(p, 4 * PAGE, "memory under a limit of file sizes");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	munmap(p, 4 * PAGE);
}

static void nothing_is_moved_beside_other_threads(void **state)
{
	uint8_t *p = pages(CROWD_PAGES * PAGE), *q = pages(PAGE);
	struct crowd c;

	(void)state;
	q[0] = 1;
	assert_true(share(q, PAGE));
	start_crowd(&c, p);
	refuse(p, CROWD_PAGES * PAGE, "memory of threads");
	assert_true(share(q, PAGE));	/* it is shared already */
	drop(q, PAGE);
	assert_true(is_shared(q));
	end_crowd(&c);
	assert_true(share(p, PAGE));
	drop(p, PAGE);
	drop(q, PAGE);
	munmap(p, CROWD_PAGES * PAGE);
	munmap(q, PAGE);
}

static void no_store_is_lost_when_threads_go_on(void **state)
{
	uint8_t *p = pages(CROWD_PAGES * PAGE);
	struct crowd c;

	(void)state;
	for (int round = 0; round < 20; round++) {
		memset(p, 0, CROWD_PAGES * PAGE);
		assert_true(share(p, CROWD_PAGES * PAGE));
		start_crowd(&c, p);
		usleep(500);
		/* In parts, the last of which everything is. */
		for (int i = 0; i < 10; i++)
			assert_true(share(p + i * 20 * PAGE, 30 * PAGE));
		drop(p, CROWD_PAGES * PAGE);
		for (int i = 9; i >= 0; i--)
			drop(p + i * 20 * PAGE, 30 * PAGE);
		assert_int_equal(file_bytes(), 0);
		usleep(500);
		end_crowd(&c);
		for (int i = 0; i < CROWD; i++)
			assert_int_equal(crowd_sum(&c, i), c.count[i]);
	}
	/* And it can be moved again. */
	assert_true(share(p, CROWD_PAGES * PAGE));
	assert_true(is_shared(p));
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(crowd_sum(&c, i), c.count[i]);
	drop(p, CROWD_PAGES * PAGE);
	munmap(p, CROWD_PAGES * PAGE);
}

static void rights_stay_what_the_program_made_them(void **state)
{
	uint8_t *p = pages(4 * PAGE);
	struct crowd c;
	uint8_t *q = pages(CROWD_PAGES * PAGE);

	(void)state;
	for (int crowded = 0; crowded < 2; crowded++) {
		struct smx_mapping m;
		struct smx_maps walk;

		assert_int_equal(mprotect(p, 4 * PAGE, RW), 0);
		fill(p, 4 * PAGE, 8);
		assert_true(share(p, 4 * PAGE));
		assert_int_equal(mprotect(p + PAGE, PAGE, PROT_READ), 0);
		assert_int_equal(mprotect(p + 2 * PAGE, PAGE, PROT_NONE), 0);
		if (crowded)
			start_crowd(&c, q);
		drop(p, 4 * PAGE);
		if (crowded)
			end_crowd(&c);
		for (int i = 0; i < 4; i++) {
			assert_true(smx_maps_begin(&walk, (uintptr_t)p + (unsigned int)i * PAGE));
			assert_true(smx_maps_next(&walk, &m));
			smx_maps_end(&walk);
			assert_false(m.shared);
			assert_int_equal(m.prot, i == 1 ? PROT_READ : i == 2 ? PROT_NONE : RW);
		}
		assert_int_equal(mprotect(p, 4 * PAGE, RW), 0);
		assert_true(is_filled(p, 4 * PAGE, 8));
		assert_int_equal(file_bytes(), 0);
	}
	munmap(p, 4 * PAGE);
	munmap(q, CROWD_PAGES * PAGE);
}

static void ends_at_once(void **state)
{
	uint8_t *p = pages(4 * PAGE), *q = pages(CROWD_PAGES * PAGE);
	struct crowd c;

	(void)state;
	for (int crowded = 0; crowded < 2; crowded++) {
		int old;

		fill(p, 4 * PAGE, 5);
		assert_true(share(p, 4 * PAGE));	/* the second time by another file */
		old = dup(smx_share_fd());
		if (crowded)
			start_crowd(&c, q);
		assert_true(smx_share_end(other_threads));
		assert_false(smx_share_end(other_threads));
		if (crowded)
			end_crowd(&c);
		/* A peer that still has the old one. */
		assert_int_equal(pwrite(old, "stopped", 7, (off_t)(uintptr_t)p), 7);
		assert_true(is_filled(p, 4 * PAGE, 5));
		assert_true(smx_share_fd() >= 0);
		drop(p, 4 * PAGE);
		assert_true(is_filled(p, 4 * PAGE, 5));
		close(old);
	}
	munmap(p, 4 * PAGE);
	munmap(q, CROWD_PAGES * PAGE);
}

static void stops_until_it_ends(void **state)
{
	uint8_t *p = pages(4 * PAGE);

	(void)state;
	fill(p, 4 * PAGE, 5);
	assert_true(share(p, 4 * PAGE));
	smx_share_stop(other_threads);
	assert_true(is_filled(p, 4 * PAGE, 5));
	drop(p, 4 * PAGE);
	assert_false(share(p, 4 * PAGE));
	smx_share_end(other_threads);
	assert_true(share(p, 4 * PAGE));
	drop(p, 4 * PAGE);
	munmap(p, 4 * PAGE);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(contents_stay_and_are_seen),
		TEST(holes_stay_holes),
		TEST(ranges_overlap_in_any_order),
		TEST(the_same_range_many_times),
		TEST(what_is_not_plain_memory_is_left_alone),
		TEST(what_was_moved_before_a_failure_is_undone),
		TEST(nothing_is_moved_beside_other_threads),
		TEST(no_store_is_lost_when_threads_go_on),
		TEST(rights_stay_what_the_program_made_them),
		TEST(ends_at_once), TEST(stops_until_it_ends),
	};

	return run_both_ways(tests, SMX_COUNT(tests), argc > 1 ? argv[1] : NULL);
}
