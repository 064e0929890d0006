/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Small integers to objects: QP numbers, key indices, CQ numbers.
 *
 * Numbers are handed out from a window [base, base + capacity) in rising order and reused only after
 * the window was walked round once, so a stale number rarely names a new object. Look-up is two
 * dependent loads, whatever the number of entries, and memory is that of the numbers in use: the window is cut into
 * leaves, which go with the last number of theirs. Callers serialise. */
#ifndef SMX_IDMAP_H
#define SMX_IDMAP_H

#include <stddef.h>
#include <stdint.h>

#define SMX_IDMAP_LEAF_BITS 10

struct smx_idmap {
	uint32_t base;		/* first number handed out */
	uint32_t capacity;	/* how many numbers there are */
	uint32_t next;		/* offset at which the search for a free one starts */
	uint32_t used;
	uint32_t max;		/* how many may be in use; capacity, until the owner sets less */
	uint32_t newest;	/* offset that was given last: its leaf stays, empty or not */
	struct smx_idmap_leaf **leaf;	/* capacity >> SMX_IDMAP_LEAF_BITS, NULL where nothing is stored */
};

struct smx_idmap_leaf { uint32_t used; void *slot[1 << SMX_IDMAP_LEAF_BITS]; };

/* RETURN 0, or ENOMEM. capacity is rounded up to a whole leaf. */
int smx_idmap_init(struct smx_idmap *map, uint32_t base, uint32_t capacity);
void smx_idmap_fini(struct smx_idmap *map);

/* Stores obj (not NULL) under a free number. RETURN 0 with *id set, or ENOMEM when max are in use. */
int smx_idmap_add(struct smx_idmap *map, void *obj, uint32_t *id);

/* Stores obj under a number of the caller's choice. RETURN 0, EBUSY when it is in use, EINVAL when it
 * is none, or ENOMEM. */
int smx_idmap_add_at(struct smx_idmap *map, uint32_t id, void *obj);

/* RETURN what was stored, or NULL if the number names nothing. */
void *smx_idmap_remove(struct smx_idmap *map, uint32_t id);

static inline void *smx_idmap_get(const struct smx_idmap *map, uint32_t id)
{
	uint32_t off = id - map->base;
	const struct smx_idmap_leaf *leaf;

	if (off >= map->capacity)
		return NULL;
	leaf = map->leaf[off >> SMX_IDMAP_LEAF_BITS];
	return leaf ? leaf->slot[off & ((1u << SMX_IDMAP_LEAF_BITS) - 1)] : NULL;
}

/* Puts another object under a number that is in use. */
static inline void smx_idmap_replace(struct smx_idmap *map, uint32_t id, void *obj)
{
	uint32_t off = id - map->base;

	map->leaf[off >> SMX_IDMAP_LEAF_BITS]->slot[off & ((1u << SMX_IDMAP_LEAF_BITS) - 1)] = obj;
}

/* Calls fn for each entry in rising order; fn may remove the entry it is given. */
void smx_idmap_each(struct smx_idmap *map, void (*fn)(void *obj, void *arg), void *arg);

#endif
