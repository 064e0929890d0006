/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pages go into the memfd by copy and MAP_SHARED. They come back, while the program has one thread, by a copy into
 * anonymous memory. With more threads they are mapped from the file once more, MAP_PRIVATE: in that instant no thread
 * can store into the file any more, and each page is then copied out of it by the kernel, at the latest when
 * somebody stores.
 *
 * System calls are made directly: what a sanitizer knows about memory stays true when its pages move. */
#include "base/share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/maps.h"
#include "base/range_users.h"

#define PAGE_BYTES UINT64_C(4096)
#define CHUNK_BYTES (UINT64_C(4) << 20)	/* twice that much memory is in use while they move */
#define MOVE_MAX_BYTES (UINT64_C(1) << 30)
/* What the file may hold without a user before somebody looks why. */
#define GARBAGE_BYTES (UINT64_C(16) << 20)

enum {
	RW = PROT_READ | PROT_WRITE,
	CHUNK_PAGES = CHUNK_BYTES / PAGE_BYTES,
	/* A shared range may cut a mapping in three, and the kernel allows a process so many mappings: ours take no
	 * more than half. */
	MAPS_PER_RUN = 4,
	MAPS_DEFAULT = 65530,
	/* How much of the stack we use, below and above the frame that asks. */
	STACK_BELOW = 32768,
	STACK_ABOVE = 16384,
	CHILD_PATIENCE_S = 30,
};

static struct {
	int fd;
	dev_t dev;
	ino_t ino;
	struct smx_range_users users;
	uint32_t runs_max;
	bool lost;		/* the program closed the memfd */
	bool left;		/* pages without a user are still shared */
	bool stopped;
	bool frozen;		/* nothing is moved any more, for we no longer know what is whose */
	int child_done[2];	/* pipe: the child's end closes when it has copies of its own, or is dead */
} share = { .fd = -1, .child_done = { -1, -1 } };

static void *at(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

static bool map(uint64_t addr, uint64_t length, int prot, int flags, uint64_t off)
{
	return syscall(SYS_mmap, addr, length, prot, flags | MAP_FIXED, flags & MAP_ANONYMOUS ? -1 : share.fd,
		       off) != -1;
}

/* ------------------------------------------------------------------ the file */

static unsigned long read_number(const char *path, unsigned long otherwise)
{
	char text[32];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0 ? strtoul(text, NULL, 10) : otherwise;
}

/* Under such a limit a write into the file would raise a signal. */
static bool may_be_so_large(void)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_FSIZE, &limit) && (limit.rlim_cur == RLIM_INFINITY ||
						     limit.rlim_cur >= SMX_SHARE_BYTES);
}

/* Linux 5.14; earlier kernels do not know the advice. */
static bool can_populate(void)
{
	void *page = mmap(NULL, PAGE_BYTES, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool can = page != MAP_FAILED && !madvise(page, PAGE_BYTES, MADV_POPULATE_WRITE);

	if (page != MAP_FAILED)
		munmap(page, PAGE_BYTES);
	return can;
}

static int make_file(void)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct stat st;
	int fd;

	if (!may_be_so_large() || sysconf(_SC_PAGESIZE) != PAGE_BYTES || !can_populate())
		return -1;
	fd = memfd_create("softmlx5", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)SMX_SHARE_BYTES) || fcntl(fd, F_ADD_SEALS, seals) || fstat(fd, &st)) {
		close(fd);
		return -1;
	}
	share.dev = st.st_dev;
	share.ino = st.st_ino;
	share.runs_max = (uint32_t)(read_number("/proc/sys/vm/max_map_count", MAPS_DEFAULT) / MAPS_PER_RUN);
	return fd;
}

/* A program that closes all files it does not know closes ours, and its number may be another file's by now. */
static bool is_there(struct stat *st)
{
	if (share.fd < 0 || share.lost)
		return false;
	if (!fstat(share.fd, st) && st->st_dev == share.dev && st->st_ino == share.ino)
		return true;
	share.lost = true;
	smx_log(SMX_LOG_WARN, "the program closed file %d, by which other processes reach its memory: what is "
		"registered from now on is copied for them, and a fork shares what was registered before", share.fd);
	return false;
}

int smx_share_fd(void)
{
	struct stat st;

	if (share.fd < 0)
		share.fd = make_file();
	return is_there(&st) ? share.fd : -1;
}

static void punch(uint64_t off, uint64_t length)
{
	fallocate(share.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)length);
}

static bool move_bytes(long call, uint64_t addr, uint64_t length, uint64_t off)
{
	while (length) {
		long n = syscall(call, share.fd, addr, length, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		addr += (uint64_t)n;
		off += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return true;
}

/* ------------------------------------------------------------------ who else is there */

static bool is_alone(unsigned int device_threads)
{
	struct stat st;

	return !stat("/proc/self/task", &st) && st.st_nlink <= 2 + 1 + device_threads;
}

/* The kernel may be writing into pages that are pinned (io_uring's buffers, other devices), and into no other: they
 * cannot be exchanged. Which they are is not told. */
static bool is_pinned(void)
{
	char text[4096], *lock, *pin;
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	lock = strstr(text, "\nVmLck:");
	pin = strstr(text, "\nVmPin:");
	return !lock || !pin || strtoul(lock + 7, NULL, 10) || strtoul(pin + 7, NULL, 10);
}

static void block_signals(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
}

static void unblock_signals(const sigset_t *old)
{
	pthread_sigmask(SIG_SETMASK, old, NULL);
}

/* ------------------------------------------------------------------ what is mapped */

static bool is_ours(const struct smx_mapping *m)
{
	return m->inode == share.ino && m->dev_major == major(share.dev) && m->dev_minor == minor(share.dev);
}

static bool is_shared(const struct smx_mapping *m)
{
	return is_ours(m) && m->shared && m->offset == m->start;
}

/* Private memory, and what became private again while there were threads. */
static bool is_movable(const struct smx_mapping *m)
{
	if (m->shared || m->prot != RW)
		return false;
	return !m->inode || (is_ours(m) && m->offset == m->start);
}

/* A mapping refuses the flag unless it is a stack; the rights are what they were. */
static bool grows_down(uint64_t addr)
{
	return !mprotect(at(addr), PAGE_BYTES, RW | PROT_GROWSDOWN);
}

static void clip(struct smx_mapping *m, uint64_t start, uint64_t end)
{
	if (m->start < start) {
		m->offset += start - m->start;
		m->start = start;
	}
	if (m->end > end)
		m->end = end;
}

/* RETURN false unless all of it is shared or can be. */
static bool look(uint64_t start, uint64_t end, uint64_t *movable)
{
	struct smx_mapping m = { .end = start };
	struct smx_maps walk;
	bool good = true;

	*movable = 0;
	if (!smx_maps_begin(&walk, start))
		return false;
	while (good && m.end < end) {
		uint64_t from = m.end;

		good = smx_maps_next(&walk, &m) && m.start <= from;
		if (!good || is_shared(&m))
			continue;
		good = is_movable(&m) && !grows_down(from);
		clip(&m, start, end);
		*movable += m.end - m.start;
	}
	smx_maps_end(&walk);
	return good;
}

static bool is_inside(uint64_t start, uint64_t end, uintptr_t low, uintptr_t high)
{
	return low < end && high > start;
}

/* While they are copied we write onto the stack, and the kernel into the thread's own block. A program's coroutine
 * may have its stack anywhere. */
static __attribute__((noinline)) bool are_own(uint64_t start, uint64_t end)
{
	uintptr_t stack = (uintptr_t)__builtin_frame_address(0), thread = (uintptr_t)pthread_self();

	return is_inside(start, end, thread, thread + PAGE_BYTES) ||
	       is_inside(start, end, stack - STACK_BELOW, stack + STACK_ABOVE);
}

static bool may_move(uint64_t start, uint64_t end, uint64_t bytes, unsigned int device_threads)
{
	return bytes <= MOVE_MAX_BYTES && share.users.runs < share.runs_max && may_be_so_large() &&
	       !are_own(start, end) && is_alone(device_threads) && !is_pinned();
}

/* ------------------------------------------------------------------ private to shared */

/* One bit of a page's word in /proc/self/pagemap. */
#define PAGE_THERE (UINT64_C(1) << 63 | UINT64_C(1) << 62)	/* in memory or swapped out */
#define PAGE_OF_FILE (UINT64_C(1) << 61)

static bool is_copied(uint64_t word)
{
	return (word & PAGE_THERE) && !(word & PAGE_OF_FILE);
}

/* What the next pages have in common. RETURN how many. */
static uint64_t same_pages(const uint64_t *word, uint64_t pages)
{
	uint64_t n = 1;

	while (n < pages && is_copied(word[n]) == is_copied(word[0]))
		n++;
	return n;
}

/* The file's contents as anonymous memory. Only where nobody looks meanwhile. */
static bool copy_back(uint64_t addr, uint64_t length, uint64_t off, int prot)
{
	uint64_t end = off + length;

	if (!map(addr, length, RW, MAP_PRIVATE | MAP_ANONYMOUS, 0))
		return false;
	for (off_t data, hole = (off_t)off; (uint64_t)hole < end;) {
		data = lseek(share.fd, hole, SEEK_DATA);
		if (data < 0 && errno != ENXIO)
			return false;
		if (data < 0 || (uint64_t)data >= end)
			break;
		hole = lseek(share.fd, data, SEEK_HOLE);
		if (hole < 0)
			return false;
		hole = (uint64_t)hole < end ? hole : (off_t)end;
		/* Pages that are made all at once cost a tenth. */
		madvise(at(addr + ((uint64_t)data - off)), (uint64_t)(hole - data), MADV_POPULATE_WRITE);
		if (!move_bytes(SYS_pread64, addr + ((uint64_t)data - off), (uint64_t)(hole - data), (uint64_t)data))
			return false;
	}
	return prot == RW || !mprotect(at(addr), length, prot);
}

static bool is_gone(uint64_t start, uint64_t end)
{
	unsigned char resident[CHUNK_PAGES];

	return mincore(at(start), end - start, resident) && errno == ENOMEM;
}

/* Pages that were never touched stay so. Until the mapping is exchanged nothing has happened. */
static bool move_chunk(int pagemap, uint64_t start, uint64_t end, bool anonymous)
{
	uint64_t word[CHUNK_PAGES], pages = (end - start) / PAGE_BYTES, n;
	ssize_t bytes = (ssize_t)(pages * sizeof(word[0]));

	if (pread(pagemap, word, (size_t)bytes, (off_t)(start / PAGE_BYTES * sizeof(word[0]))) != bytes)
		return false;
	if (anonymous)
		punch(start, end - start);	/* of what was unmapped under a region */
	for (uint64_t i = 0; i < pages; i += n) {
		n = same_pages(word + i, pages - i);
		if (is_copied(word[i]) && !move_bytes(SYS_pwrite64, start + i * PAGE_BYTES, n * PAGE_BYTES,
						      start + i * PAGE_BYTES))
			return false;
	}
	if (!map(start, end - start, RW, MAP_SHARED, start)) {
		/* Before Linux 6.12 the old mapping may be gone. Its contents are in the file. */
		if (is_gone(start, end) && !copy_back(start, end - start, start, RW))
			smx_log(SMX_LOG_WARN, "memory at 0x%llx length %llu is lost: %s", (unsigned long long)start,
				(unsigned long long)(end - start), strerror(errno));
		return false;
	}
	for (uint64_t i = 0; i < pages; i += n) {
		n = same_pages(word + i, pages - i);
		if (is_copied(word[i]))
			madvise(at(start + i * PAGE_BYTES), n * PAGE_BYTES, MADV_POPULATE_WRITE);
	}
	return true;
}

static bool move_mapping(int pagemap, const struct smx_mapping *m)
{
	for (uint64_t from = m->start, to; from < m->end; from = to) {
		to = (from / CHUNK_BYTES + 1) * CHUNK_BYTES;
		to = to < m->end ? to : m->end;
		if (!move_chunk(pagemap, from, to, !m->inode))
			return false;
	}
	return true;
}

static bool move(uint64_t start, uint64_t end)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	struct smx_mapping m = { .end = start };
	struct smx_maps walk;
	sigset_t old;
	bool good = pagemap >= 0 && smx_maps_begin(&walk, start);

	if (good) {
		block_signals(&old);
		while (good && m.end < end && (good = smx_maps_next(&walk, &m))) {
			clip(&m, start, end);
			good = is_shared(&m) || move_mapping(pagemap, &m);
		}
		unblock_signals(&old);
		smx_maps_end(&walk);
	}
	if (pagemap >= 0)
		close(pagemap);
	return good;
}

/* ------------------------------------------------------------------ shared to private */

/* A page that is not there yet is made too: it must not depend on the file. */
static bool copy_on_write(uint64_t addr, uint64_t length, uint64_t off, int prot)
{
	int err;

	if (!map(addr, length, prot | RW, MAP_PRIVATE, off))
		return false;
	do
		err = madvise(at(addr), length, MADV_POPULATE_WRITE);
	while (err && (errno == EINTR || errno == EAGAIN));
	return !err && ((prot & RW) == RW || !mprotect(at(addr), length, prot));
}

/* What cannot be made private keeps a user, so that the file keeps the contents. */
static void keep_for_good(uint64_t start, uint64_t end)
{
	smx_log(SMX_LOG_INFO, "memory at 0x%llx length %llu stays shared: %s", (unsigned long long)start,
		(unsigned long long)(end - start), strerror(errno));
	if (!smx_range_users_add(&share.users, start, end))
		share.frozen = true;
}

static bool make_private_chunk(const struct smx_mapping *m, bool alone)
{
	uint64_t length = m->end - m->start;
	int err;

	alone = alone && !are_own(m->start, m->end);
	if (alone ? copy_back(m->start, length, m->offset, m->prot) :
		    copy_on_write(m->start, length, m->offset, m->prot))
		return true;
	err = errno;
	/* Alone, nobody has stored into the new mapping. Otherwise pages of it may have been stored into already,
	 * unless there is none. */
	map(m->start, length, m->prot, MAP_SHARED | (alone ? 0 : MAP_FIXED_NOREPLACE), m->offset);
	errno = err;
	return false;
}

/* Chunk by chunk, for its pages are there twice meanwhile. */
static bool make_private(const struct smx_mapping *m, bool alone, bool drop)
{
	struct smx_mapping part = *m;
	bool good = true;

	for (; part.start < m->end; part.start = part.end) {
		uint64_t length = m->end - part.start < CHUNK_BYTES ? m->end - part.start : CHUNK_BYTES;

		part.end = part.start + length;
		part.offset = m->offset + (part.start - m->start);
		if (!make_private_chunk(&part, alone)) {
			keep_for_good(part.offset, part.offset + length);
			good = false;
		} else if (drop) {
			punch(part.offset, length);
		}
	}
	return good;
}

/* Parts of a mapping of the file that have no user. */
static void make_private_unused(const struct smx_mapping *m, bool alone)
{
	uint64_t end = m->offset + (m->end - m->start), to;

	for (uint64_t from = m->offset; from < end; from = to) {
		bool used = smx_range_users_at(&share.users, from, &to);
		struct smx_mapping part = *m;

		to = to < end ? to : end;
		if (used)
			continue;
		part.start = m->start + (from - m->offset);
		part.end = part.start + (to - from);
		part.offset = from;
		make_private(&part, alone, true);
	}
}

/* Looks at all that is mapped, for a program may have moved pages elsewhere (mremap) or let a mapping of ours grow,
 * and then at what the file holds for nobody. */
static void tidy(bool alone)
{
	struct smx_mapping m;
	struct smx_maps walk;
	uint64_t to;

	if (!smx_maps_begin(&walk, 0))
		return;
	while (smx_maps_next(&walk, &m)) {
		if (is_ours(&m) && m.shared)
			make_private_unused(&m, alone);
	}
	smx_maps_end(&walk);
	for (uint64_t from = 0; from < SMX_SHARE_BYTES && !share.frozen; from = to) {
		bool used = smx_range_users_at(&share.users, from, &to);

		to = to < SMX_SHARE_BYTES ? to : SMX_SHARE_BYTES;
		if (!used)
			punch(from, to - from);
	}
	share.left = false;
}

/* RETURN whether all of it is where it should be. */
static bool give_back(uint64_t start, uint64_t end, bool alone)
{
	struct smx_mapping m = { .end = start };
	struct smx_maps walk;
	uint64_t from = start;
	bool good = smx_maps_begin(&walk, start);

	if (!good)
		return false;
	while (good && from < end) {
		good = smx_maps_next(&walk, &m) && m.start <= from && is_shared(&m);
		if (!good)
			break;
		clip(&m, from, end);
		from = m.end;
		make_private_unused(&m, alone);
	}
	smx_maps_end(&walk);
	return good;
}

static bool is_garbage(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512 > share.users.covered + (share.users.runs ? GARBAGE_BYTES : 0);
}

/* ------------------------------------------------------------------ the interface */

static uint64_t first_page(const void *addr)
{
	return (uintptr_t)addr & ~(PAGE_BYTES - 1);
}

/* RETURN 0 when it is not below SMX_SHARE_BYTES. */
static uint64_t last_page_end(const void *addr, uint64_t length)
{
	uint64_t end;

	if (!length || __builtin_add_overflow((uintptr_t)addr, length, &end) || end > SMX_SHARE_BYTES - PAGE_BYTES)
		return 0;
	return (end + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

bool smx_share(const void *addr, uint64_t length, unsigned int device_threads)
{
	uint64_t start = first_page(addr), end = last_page_end(addr, length), movable;

	if (!end || share.frozen || share.stopped || smx_share_fd() < 0 || !look(start, end, &movable) ||
	    (movable && !may_move(start, end, movable, device_threads)) ||
	    !smx_range_users_add(&share.users, start, end))
		return false;
	if (!movable || move(start, end))
		return true;
	smx_unshare(addr, length, device_threads);
	return false;
}

void smx_unshare(const void *addr, uint64_t length, unsigned int device_threads)
{
	uint64_t start = first_page(addr), end = last_page_end(addr, length), to;
	struct stat st;
	sigset_t old;
	bool alone, astray = false, unused = false;

	if (!end || !smx_range_users_drop(&share.users, start, end) || share.frozen || !is_there(&st))
		return;
	for (uint64_t from = start; from < end && !unused; from = to)
		unused = !smx_range_users_at(&share.users, from, &to);
	if (!unused && !share.left)
		return;
	if (is_pinned()) {
		share.left = true;
		return;
	}
	alone = is_alone(device_threads);
	block_signals(&old);
	for (uint64_t from = start; from < end; from = to) {
		bool used = smx_range_users_at(&share.users, from, &to);

		to = to < end ? to : end;
		astray |= !used && !give_back(from, to, alone);
	}
	if (astray || share.left || (is_there(&st) && is_garbage(&st)))
		tidy(alone);
	unblock_signals(&old);
}

/* Every mapping of the file. */
static bool end_all(bool alone, bool drop)
{
	struct smx_mapping m;
	struct smx_maps walk;
	sigset_t old;
	bool good = true;

	if (!smx_maps_begin(&walk, 0))
		return false;
	block_signals(&old);
	while (smx_maps_next(&walk, &m)) {
		if (is_ours(&m) && m.shared)
			good &= make_private(&m, alone, drop);
	}
	unblock_signals(&old);
	smx_maps_end(&walk);
	return good;
}

static void drop_file(void)
{
	struct stat st;

	if (is_there(&st))
		close(share.fd);
	share.fd = -1;
	share.lost = share.left = false;
}

bool smx_share_end(unsigned int device_threads)
{
	struct stat st;

	share.stopped = false;
	if (!is_there(&st))
		return false;
	end_all(is_alone(device_threads), true);
	drop_file();
	return true;
}

void smx_share_stop(unsigned int device_threads)
{
	smx_share_end(device_threads);
	share.stopped = true;
}

/* ------------------------------------------------------------------ fork */

void smx_share_fork_prepare(void)
{
	struct stat st;

	if (!is_there(&st) || !pipe2(share.child_done, O_CLOEXEC))
		return;
	share.child_done[0] = share.child_done[1] = -1;
	smx_log(SMX_LOG_WARN, "fork: no pipe (%s), so the child may see what is stored into registered memory from "
		"now on", strerror(errno));
}

/* The end of the pipe closes when the child closes it, when it dies, and when there is no child. */
void smx_share_fork_parent(void)
{
	struct pollfd end = { .fd = share.child_done[0], .events = POLLIN };
	struct timespec now;
	time_t until;

	if (end.fd < 0)
		return;
	close(share.child_done[1]);
	clock_gettime(CLOCK_MONOTONIC, &now);
	until = now.tv_sec + CHILD_PATIENCE_S;
	while (now.tv_sec < until && poll(&end, 1, (int)(until - now.tv_sec) * 1000) < 0 && errno == EINTR)
		clock_gettime(CLOCK_MONOTONIC, &now);
	close(end.fd);
	share.child_done[0] = share.child_done[1] = -1;
}

void smx_share_fork_child(void)
{
	struct stat st;

	smx_maps_fork_child();
	if (is_there(&st) && !end_all(true, false))
		smx_log(SMX_LOG_WARN, "fork: registered memory stays shared with the parent: no memory for a copy");
	drop_file();
	if (share.child_done[0] < 0)
		return;
	close(share.child_done[0]);
	close(share.child_done[1]);
	share.child_done[0] = share.child_done[1] = -1;
}
