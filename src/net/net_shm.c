/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "net/net_shm.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host_registry.h"

#define LINK_MAGIC 0x736d78356c696e6bull

enum {
	LINK_VERSION = 3,
	SKIP = 1 << 30,		/* a record that fills the rest of the lane */
};

/* ------------------------------------------------------------------ files */

static void attach(struct smx_link *link, struct smx_link_file *file)
{
	link->file = file;
	for (unsigned int i = 0; i < SMX_LANES; i++)
		link->lane[i] = (struct smx_lane){
			.ctl = &file->ctl[i], .data = file->data[i], .cleared = SMX_LANE_BYTES,
		};
}

static struct smx_link_file *map(int fd)
{
	void *at = mmap(NULL, sizeof(struct smx_link_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

int smx_link_make(struct smx_link *link, int dir_fd, uint32_t from, uint32_t from_gen, uint32_t to,
		  uint32_t to_gen)
{
	struct smx_link_file *file;
	char name[64];
	int fd, err;

	smx_host_lane_name(name, sizeof(name), from, from_gen, to, to_gen);
	unlinkat(dir_fd, name, 0);
	fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return errno;
	/* All of it now: a page that cannot be had later would be a SIGBUS. */
	err = posix_fallocate(fd, 0, sizeof(*file));
	file = err ? NULL : map(fd);
	if (!file && !err)
		err = errno;
	close(fd);
	if (err) {
		unlinkat(dir_fd, name, 0);
		return err;
	}
	file->version = LINK_VERSION;
	file->bytes = sizeof(*file);
	file->from = from;
	file->from_gen = from_gen;
	file->to = to;
	file->to_gen = to_gen;
	__atomic_store_n(&file->magic, LINK_MAGIC, __ATOMIC_RELEASE);
	attach(link, file);
	return 0;
}

int smx_link_open(struct smx_link *link, int dir_fd, uint32_t from, uint32_t from_gen, uint32_t to,
		  uint32_t to_gen, char *why, size_t why_len)
{
	struct smx_link_file *file;
	struct stat st;
	char name[64];
	int fd;

	smx_host_lane_name(name, sizeof(name), from, from_gen, to, to_gen);
	fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		int err = errno;

		snprintf(why, why_len, "%s cannot be opened: %s", name, strerror(err));
		return err;
	}
	unlinkat(dir_fd, name, 0);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	    st.st_size != sizeof(*file)) {
		snprintf(why, why_len, "%s is not a regular file of user %u with %zu bytes", name, geteuid(),
			 sizeof(*file));
		close(fd);
		return EPROTO;
	}
	file = map(fd);
	close(fd);
	if (!file) {
		snprintf(why, why_len, "%s cannot be mapped: %s", name, strerror(errno));
		return errno;
	}
	if (__atomic_load_n(&file->magic, __ATOMIC_ACQUIRE) != LINK_MAGIC || file->version != LINK_VERSION ||
	    file->bytes != sizeof(*file) || file->from != from || file->from_gen != from_gen ||
	    file->to != to || file->to_gen != to_gen) {
		snprintf(why, why_len, "%s: magic, version or ends do not agree with its name", name);
		munmap(file, sizeof(*file));
		return EPROTO;
	}
	attach(link, file);
	return 0;
}

void smx_link_close(struct smx_link *link)
{
	if (link->file)
		munmap(link->file, sizeof(*link->file));
	link->file = NULL;
}

/* RETURN whether word is that of a record at pos, or skips from there to the lane's end. */
static bool is_size(uint32_t word, uint64_t pos)
{
	uint32_t off = pos & (SMX_LANE_BYTES - 1);

	return word && ((word == (SKIP | (SMX_LANE_BYTES - off)) && off) ||
			(word % SMX_LANE_ALIGN == 0 && word <= SMX_LANE_BYTES - off && word <= SMX_LANE_BYTES / 2));
}

/* ------------------------------------------------------------------ producer */

bool smx_lane_look_for_room(struct smx_lane *lane, uint64_t bytes)
{
	lane->head_seen = __atomic_load_n(&lane->ctl->head, __ATOMIC_ACQUIRE);
	/* A head that was not reached yet is as good as no room. */
	if (lane->pos - lane->head_seen > SMX_LANE_BYTES) {
		lane->head_seen = lane->pos - SMX_LANE_BYTES;
		return false;
	}
	return lane->pos - lane->head_seen + bytes <= SMX_LANE_BYTES;
}

static inline void fetch_to_write(const void *p)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/* Clears a stretch from the unit at pos on. */
static __attribute__((noinline)) void clear_from(struct smx_lane *lane, uint64_t pos)
{
	uint64_t consumed = lane->head_seen + SMX_LANE_BYTES, end = pos + SMX_LANE_ALIGN;

	/* Who takes back a head loses what he has, and not we. */
	if (consumed > end)
		end = consumed < pos + SMX_LANE_CLEAR_BYTES ? consumed : pos + SMX_LANE_CLEAR_BYTES;
	for (; pos < end; pos += SMX_LANE_ALIGN)
		__atomic_store_n(smx_lane_word(lane, pos), 0, __ATOMIC_RELAXED);
	lane->cleared = end;
	/* Those that are next are fetched from the consumer meanwhile, all at once. */
	for (end += SMX_LANE_CLEAR_BYTES; pos < end && pos < consumed; pos += SMX_LANE_ALIGN)
		fetch_to_write(smx_lane_word(lane, pos));
}

/* Sees to it that the unit at pos, which was consumed, begins with 0. */
static inline void clear(struct smx_lane *lane, uint64_t pos)
{
	if (__builtin_expect(pos >= lane->cleared, 0))
		clear_from(lane, pos);
}

void *smx_lane_reserve(struct smx_lane *lane, uint32_t size)
{
	uint32_t skipped;

	assert(size && size % SMX_LANE_ALIGN == 0 && size <= SMX_LANE_BYTES / 2);
	if (!smx_lane_has_room(lane, size))
		return NULL;
	skipped = smx_lane_needs(lane, size) - size;
	if (skipped) {
		clear(lane, lane->pos + skipped);
		__atomic_store_n(smx_lane_word(lane, lane->pos), SKIP | skipped, __ATOMIC_RELEASE);
		lane->pos += skipped;
	}
	return smx_lane_word(lane, lane->pos);
}

void smx_lane_publish(struct smx_lane *lane, void *record, uint32_t size)
{
	assert(record == smx_lane_word(lane, lane->pos));
	clear(lane, lane->pos + size);
	__atomic_store_n((uint32_t *)record, size, __ATOMIC_RELEASE);
	lane->pos += size;
}

void smx_lane_abandon(struct smx_lane *lane)
{
	if (lane->cleared > lane->pos + SMX_LANE_ALIGN)
		lane->cleared = lane->pos + SMX_LANE_ALIGN;
}

bool smx_lane_want_room(struct smx_lane *lane, uint32_t size)
{
	assert(2 * size + SMX_LANE_WANT_BYTES + SMX_LANE_ALIGN <= SMX_LANE_BYTES);
	__atomic_store_n(&lane->ctl->want_room, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return !smx_lane_has_room(lane, size);
}

void *smx_lane_unread(const struct smx_lane *lane, uint64_t *pos, uint32_t *size)
{
	uint64_t head = __atomic_load_n(&lane->ctl->head, __ATOMIC_ACQUIRE);

	/* The other end may have written anything anywhere. */
	if (*pos < head || lane->pos - *pos > SMX_LANE_BYTES)
		*pos = head;
	while (lane->pos - *pos <= SMX_LANE_BYTES && *pos != lane->pos) {
		uint64_t at = *pos;
		uint32_t word = __atomic_load_n(smx_lane_word(lane, at), __ATOMIC_RELAXED);

		if (!is_size(word, at))
			return NULL;
		*size = word & ~(uint32_t)SKIP;
		*pos += *size;
		if (!(word & SKIP))
			return smx_lane_word(lane, at);
	}
	return NULL;
}

/* ------------------------------------------------------------------ consumer */

const void *smx_lane_peek(struct smx_lane *lane, int32_t *size)
{
	for (;;) {
		uint32_t off = lane->pos & (SMX_LANE_BYTES - 1);
		uint32_t word = __atomic_load_n(smx_lane_word(lane, lane->pos), __ATOMIC_ACQUIRE);

		*size = 0;
		if (!word)
			return NULL;
		if (!is_size(word, lane->pos)) {
			*size = -1;
			return NULL;
		}
		if (word & SKIP) {
			smx_lane_consume(lane, SMX_LANE_BYTES - off);
			continue;
		}
		*size = (int32_t)word;
		__builtin_prefetch(smx_lane_word(lane, lane->pos + word));
		return lane->data + off;
	}
}

void smx_lane_consume(struct smx_lane *lane, uint32_t size)
{
	lane->pos += size;
	if (lane->pos - lane->head_seen >= SMX_LANE_RELEASE_BYTES)
		smx_lane_release(lane);
}

void smx_lane_release(struct smx_lane *lane)
{
	if (lane->head_seen == lane->pos)
		return;
	__atomic_store_n(&lane->ctl->head, lane->pos, __ATOMIC_RELEASE);
	lane->head_seen = lane->pos;
}

bool smx_lane_take_want(struct smx_lane *lane)
{
	if (lane->pos - lane->want_seen < SMX_LANE_WANT_BYTES)
		return false;
	lane->want_seen = lane->pos;
	smx_lane_release(lane);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&lane->ctl->want_room, __ATOMIC_RELAXED))
		return false;
	return __atomic_exchange_n(&lane->ctl->want_room, 0, __ATOMIC_ACQ_REL);
}
