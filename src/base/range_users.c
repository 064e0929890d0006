/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The steps are the nodes of libc's balanced tree. They lie beside each other without a gap, so that the one that
 * holds an address is the one that "equals" it, where all that overlap are equal. */
#include "base/range_users.h"

#include <search.h>
#include <stdlib.h>

struct step {
	uint64_t start, end;
	uint32_t users;
};

static int compare(const void *a, const void *b)
{
	const struct step *x = a, *y = b;

	return x->end <= y->start ? -1 : x->start >= y->end ? 1 : 0;
}

static struct step *find(const struct smx_range_users *u, uint64_t addr)
{
	const struct step key = { .start = addr, .end = addr + 1 };
	void *node = tfind(&key, &u->tree, compare);

	return node ? *(struct step **)node : NULL;
}

static bool insert(struct smx_range_users *u, uint64_t start, uint64_t end, uint32_t users)
{
	struct step *s = malloc(sizeof(*s));

	if (!s)
		return false;
	*s = (struct step){ start, end, users };
	if (tsearch(s, &u->tree, compare))
		return true;
	free(s);
	return false;
}

/* A step starts at addr from now on. */
static bool split(struct smx_range_users *u, uint64_t addr)
{
	struct step *s;
	uint64_t end;

	if (addr == UINT64_MAX)
		return true;
	s = find(u, addr);
	if (s->start == addr)
		return true;
	end = s->end;
	s->end = addr;
	if (insert(u, addr, end, s->users))
		return true;
	s->end = end;
	return false;
}

/* Where two steps of the same height meet there is one. */
static void merge(struct smx_range_users *u, uint64_t addr)
{
	struct step *s, *before;
	uint64_t end;

	if (!addr || addr == UINT64_MAX)
		return;
	s = find(u, addr);
	before = find(u, addr - 1);
	if (s == before || s->users != before->users)
		return;
	end = s->end;
	tdelete(s, &u->tree, compare);
	free(s);
	before->end = end;
}

static bool has_users(const struct smx_range_users *u, uint64_t addr)
{
	return addr != UINT64_MAX && find(u, addr)->users;
}

/* A step has users from now on, or none. */
static void count(struct smx_range_users *u, const struct step *s)
{
	int beside = (s->start && has_users(u, s->start - 1)) + has_users(u, s->end);

	u->runs += (uint32_t)(s->users ? 1 - beside : beside - 1);
	u->covered += s->users ? s->end - s->start : s->start - s->end;
}

static bool change(struct smx_range_users *u, uint64_t start, uint64_t end, bool more)
{
	bool done;

	if (start >= end)
		return true;
	if (!u->tree && !insert(u, 0, UINT64_MAX, 0))
		return false;
	done = split(u, start) && split(u, end);
	for (uint64_t at = start; done && at < end;) {
		struct step *s = find(u, at);

		if (more ? !s->users++ : s->users && !--s->users)
			count(u, s);
		at = s->end;
	}
	/* Inside too: a part that had no user to drop is now like its neighbours. */
	for (uint64_t at = start; at < end;) {
		merge(u, at);
		at = find(u, at)->end;
	}
	merge(u, end);
	return done;
}

bool smx_range_users_add(struct smx_range_users *u, uint64_t start, uint64_t end)
{
	return change(u, start, end, true);
}

bool smx_range_users_drop(struct smx_range_users *u, uint64_t start, uint64_t end)
{
	return change(u, start, end, false);
}

uint32_t smx_range_users_at(const struct smx_range_users *u, uint64_t addr, uint64_t *until)
{
	const struct step *s = u->tree ? find(u, addr) : NULL;

	*until = s ? s->end : UINT64_MAX;
	return s ? s->users : 0;
}

void smx_range_users_free(struct smx_range_users *u)
{
	tdestroy(u->tree, free);
	*u = (struct smx_range_users){ .tree = NULL };
}
