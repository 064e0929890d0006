/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "base/peer_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/share.h"

enum {
	WINDOW_BITS = 30,
	SLOTS = 128,		/* a power of two; at most half of them are used, so that a search ends soon */
	WINDOWS = SLOTS / 2,
};

#define WINDOW_BYTES (UINT64_C(1) << WINDOW_BITS)

struct smx_peer_memory {
	int fd;
	unsigned int used;
	struct {
		uint64_t window;	/* number + 1; 0: empty */
		char *base;
	} slot[SLOTS];
};

static int refuse(char *why, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int refuse(char *why, size_t len, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, len, fmt, args);
	va_end(args);
	return -1;
}

/* Looks without opening: what opens may block, or do something. */
static int check(int path_fd, const char *path, char *why, size_t len)
{
	struct statfs fs;
	struct stat st;

	if (fstat(path_fd, &st) || fstatfs(path_fd, &fs))
		return refuse(why, len, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || fs.f_type != TMPFS_MAGIC)
		return refuse(why, len, "%s is not a file in memory: mode 0%o, file system 0x%lx", path, st.st_mode,
			      (unsigned long)fs.f_type);
	if (st.st_uid != geteuid())
		return refuse(why, len, "%s belongs to user %u, not %u", path, st.st_uid, geteuid());
	if ((uint64_t)st.st_size != SMX_SHARE_BYTES)
		return refuse(why, len, "%s has %lld bytes, not %llu", path, (long long)st.st_size,
			      (unsigned long long)SMX_SHARE_BYTES);
	return 0;
}

/* RETURN the open file, or -1. */
static int open_checked(const char *path, char *why, size_t len)
{
	int path_fd = open(path, O_PATH | O_CLOEXEC), fd = -1, seals;
	char again[48];

	if (path_fd < 0)
		return refuse(why, len, "%s cannot be opened: %s", path, strerror(errno));
	if (!check(path_fd, path, why, len)) {
		snprintf(again, sizeof(again), "/proc/self/fd/%d", path_fd);
		fd = open(again, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			refuse(why, len, "%s cannot be opened: %s", path, strerror(errno));
	}
	close(path_fd);
	if (fd < 0)
		return -1;
	seals = fcntl(fd, F_GET_SEALS);
	if (seals >= 0 && (seals & F_SEAL_SHRINK) && !(seals & F_SEAL_WRITE))
		return fd;
	close(fd);
	return seals < 0 ? refuse(why, len, "%s has no seals: %s", path, strerror(errno)) :
			   refuse(why, len, "%s has seals 0x%x: it may shrink, or not be written", path,
				  (unsigned int)seals);
}

struct smx_peer_memory *smx_peer_memory_open(pid_t pid, int fd, char *why, size_t why_len)
{
	struct smx_peer_memory *pm;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	fd = open_checked(path, why, why_len);
	if (fd < 0)
		return NULL;
	pm = calloc(1, sizeof(*pm));
	if (!pm) {
		refuse(why, why_len, "%s: no memory", path);
		close(fd);
		return NULL;
	}
	pm->fd = fd;
	return pm;
}

static void forget_windows(struct smx_peer_memory *pm)
{
	for (unsigned int i = 0; i < SLOTS; i++) {
		if (pm->slot[i].window)
			munmap(pm->slot[i].base, WINDOW_BYTES);
		pm->slot[i].window = 0;
	}
	pm->used = 0;
}

void smx_peer_memory_close(struct smx_peer_memory *pm)
{
	forget_windows(pm);
	close(pm->fd);
	free(pm);
}

static inline unsigned int first_slot(uint64_t window)
{
	return (unsigned int)(window ^ window >> 7) % SLOTS;
}

static __attribute__((noinline)) char *map_window(struct smx_peer_memory *pm, uint64_t window)
{
	off_t off = (off_t)(window << WINDOW_BITS);
	unsigned int i = first_slot(window);
	void *base;

	/* Which of them is used least is not worth knowing: so many gigabytes are seldom in use. */
	if (pm->used == WINDOWS)
		forget_windows(pm);
	base = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pm->fd, off);
	if (base == MAP_FAILED && pm->used) {
		forget_windows(pm);
		base = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pm->fd, off);
	}
	if (base == MAP_FAILED)
		return NULL;
	/* Neither a child's nor a core file's business. */
	madvise(base, WINDOW_BYTES, MADV_DONTFORK);
	madvise(base, WINDOW_BYTES, MADV_DONTDUMP);
	while (pm->slot[i].window)
		i = (i + 1) % SLOTS;
	pm->slot[i].window = window + 1;
	pm->slot[i].base = base;
	pm->used++;
	return base;
}

void *smx_peer_memory_at(struct smx_peer_memory *pm, uint64_t addr, uint64_t *length)
{
	uint64_t window = addr >> WINDOW_BITS, off = addr & (WINDOW_BYTES - 1), room = WINDOW_BYTES - off;
	char *base;

	if (addr >= SMX_SHARE_BYTES)
		return NULL;
	for (unsigned int i = first_slot(window);; i = (i + 1) % SLOTS) {
		if (pm->slot[i].window == window + 1) {
			base = pm->slot[i].base;
			break;
		}
		if (!pm->slot[i].window) {
			base = map_window(pm, window);
			break;
		}
	}
	if (!base)
		return NULL;
	*length = *length < room ? *length : room;
	return base + off;
}
