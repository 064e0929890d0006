/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "base/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char path[] = "/proc/self/maps";

/* Linux 6.11's ioctl of that file, which older headers lack. */
struct query {
	uint64_t size, flags, addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, name_bytes, build_id_bytes;
	uint64_t name_addr, build_id_addr;
};
_Static_assert(sizeof(struct query) == 104, "the kernel's layout");

#define QUERY _IOWR('f', 17, struct query)

enum { QUERY_OR_NEXT = 0x10, VMA_SHARED = 0x08 };	/* the low three are PROT_READ, WRITE, EXEC */
_Static_assert(PROT_READ == 1 && PROT_WRITE == 2 && PROT_EXEC == 4, "as the ioctl's");

bool smx_maps_text_only;

/* Kept open, for it is asked at each registration. A program that closes everything may have put another file in its
 * place. */
static int kept = -1;
static struct stat kept_stat;

static bool is_kept(void)
{
	struct stat st;

	return kept >= 0 && !fstat(kept, &st) && st.st_ino == kept_stat.st_ino && st.st_dev == kept_stat.st_dev;
}

static bool ask(uint64_t addr, struct smx_mapping *out)
{
	struct query q = { .size = sizeof(q), .flags = QUERY_OR_NEXT, .addr = addr };

	if (ioctl(kept, QUERY, &q))
		return false;
	*out = (struct smx_mapping){
		.start = q.vma_start, .end = q.vma_end, .offset = q.vma_offset, .inode = q.inode,
		.dev_major = q.dev_major, .dev_minor = q.dev_minor,
		.prot = (int)(q.vma_flags & 7), .shared = q.vma_flags & VMA_SHARED,
	};
	return true;
}

bool smx_maps_begin(struct smx_maps *m, uint64_t from)
{
	struct smx_mapping probe;

	m->next = from;
	m->fd = -1;
	m->at = m->have = 0;
	if (!smx_maps_text_only && is_kept())
		return true;
	m->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (m->fd < 0 || smx_maps_text_only)
		return m->fd >= 0;
	kept = m->fd;
	if (ask(0, &probe) && !fstat(kept, &kept_stat))
		m->fd = -1;
	else
		kept = -1;
	return true;
}

/* One line of the text. RETURN its length, 0 at the end. */
static size_t line(struct smx_maps *m)
{
	for (;;) {
		char *from = m->text + m->at, *end = memchr(from, '\n', m->have - m->at);
		ssize_t n;

		if (end) {
			*end = '\0';
			return (size_t)(end - from) + 1;
		}
		memmove(m->text, from, m->have - m->at);
		m->have -= m->at;
		m->at = 0;
		/* A path may be longer than the room; what stands before it is all that is wanted. */
		if (m->have == sizeof(m->text))
			m->have = sizeof(m->text) / 2;
		do
			n = read(m->fd, m->text + m->have, sizeof(m->text) - m->have);
		while (n < 0 && errno == EINTR);
		if (n <= 0)
			return 0;
		m->have += (size_t)n;
	}
}

/* 7f00-7f10 rw-p 00000000 00:00 0   [heap] */
static void parse(char *text, struct smx_mapping *out)
{
	char *at, *rights;

	*out = (struct smx_mapping){ .start = strtoull(text, &at, 16) };
	out->end = strtoull(at + 1, &at, 16);
	rights = at + 1;
	out->prot = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) |
		    (rights[2] == 'x' ? PROT_EXEC : 0);
	out->shared = rights[3] == 's';
	out->offset = strtoull(rights + 4, &at, 16);
	out->dev_major = (uint32_t)strtoul(at, &at, 16);
	out->dev_minor = (uint32_t)strtoul(at + 1, &at, 16);
	out->inode = strtoull(at, NULL, 10);
}

static bool next_line(struct smx_maps *m, struct smx_mapping *out)
{
	size_t n;

	while ((n = line(m))) {
		parse(m->text + m->at, out);
		m->at += n;
		if (out->end > m->next)
			return true;
	}
	return false;
}

bool smx_maps_next(struct smx_maps *m, struct smx_mapping *out)
{
	if (!(m->fd < 0 ? ask(m->next, out) : next_line(m, out)))
		return false;
	m->next = out->end;
	return true;
}

void smx_maps_end(struct smx_maps *m)
{
	if (m->fd >= 0)
		close(m->fd);
}

void smx_maps_fork_child(void)
{
	if (is_kept())
		close(kept);
	kept = -1;
}
