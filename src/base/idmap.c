/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "base/idmap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define LEAF_LEN (1u << SMX_IDMAP_LEAF_BITS)

int smx_idmap_init(struct smx_idmap *map, uint32_t base, uint32_t capacity)
{
	uint32_t leaves = (capacity + LEAF_LEN - 1) >> SMX_IDMAP_LEAF_BITS;

	*map = (struct smx_idmap){
		.base = base,
		.capacity = leaves << SMX_IDMAP_LEAF_BITS,
		.max = leaves << SMX_IDMAP_LEAF_BITS,
	};
	map->leaf = calloc(leaves, sizeof(*map->leaf));
	return map->leaf ? 0 : ENOMEM;
}

void smx_idmap_fini(struct smx_idmap *map)
{
	if (!map->leaf)
		return;
	for (uint32_t i = 0; i < map->capacity >> SMX_IDMAP_LEAF_BITS; i++)
		free(map->leaf[i]);
	free(map->leaf);
	map->leaf = NULL;
}

static void **slot_at(struct smx_idmap *map, uint32_t off)
{
	struct smx_idmap_leaf **leaf = &map->leaf[off >> SMX_IDMAP_LEAF_BITS];

	if (!*leaf)
		*leaf = calloc(1, sizeof(**leaf));
	return *leaf ? &(*leaf)->slot[off & (LEAF_LEN - 1)] : NULL;
}

static void drop_if_empty(struct smx_idmap *map, uint32_t at)
{
	if (!map->leaf[at] || map->leaf[at]->used)
		return;
	free(map->leaf[at]);
	map->leaf[at] = NULL;
}

static void fill(struct smx_idmap *map, uint32_t off, void **slot, void *obj)
{
	uint32_t at = off >> SMX_IDMAP_LEAF_BITS, before = map->newest >> SMX_IDMAP_LEAF_BITS;

	*slot = obj;
	map->used++;
	map->leaf[at]->used++;
	map->newest = off;
	if (before != at)
		drop_if_empty(map, before);
}

int smx_idmap_add(struct smx_idmap *map, void *obj, uint32_t *id)
{
	assert(obj);
	if (map->used >= map->max)
		return ENOMEM;

	for (uint32_t tried = 0; tried < map->capacity; tried++) {
		uint32_t off = map->next;
		void **slot = slot_at(map, off);

		if (!slot)
			return ENOMEM;
		map->next = off + 1 == map->capacity ? 0 : off + 1;
		if (*slot)
			continue;
		fill(map, off, slot, obj);
		*id = map->base + off;
		return 0;
	}
	return ENOMEM;
}

int smx_idmap_add_at(struct smx_idmap *map, uint32_t id, void *obj)
{
	uint32_t off = id - map->base;
	void **slot;

	assert(obj);
	if (off >= map->capacity)
		return EINVAL;
	slot = slot_at(map, off);
	if (!slot)
		return ENOMEM;
	if (*slot)
		return EBUSY;
	fill(map, off, slot, obj);
	return 0;
}

void *smx_idmap_remove(struct smx_idmap *map, uint32_t id)
{
	void *obj = smx_idmap_get(map, id);
	uint32_t off = id - map->base, at = off >> SMX_IDMAP_LEAF_BITS;

	if (!obj)
		return NULL;
	map->leaf[at]->slot[off & (LEAF_LEN - 1)] = NULL;
	map->used--;
	map->leaf[at]->used--;
	if (at != map->newest >> SMX_IDMAP_LEAF_BITS)
		drop_if_empty(map, at);
	return obj;
}

void smx_idmap_each(struct smx_idmap *map, void (*fn)(void *obj, void *arg), void *arg)
{
	for (uint32_t i = 0; i < map->capacity >> SMX_IDMAP_LEAF_BITS; i++) {
		for (uint32_t j = 0; map->leaf[i] && j < LEAF_LEN; j++) {
			if (map->leaf[i]->slot[j])
				fn(map->leaf[i]->slot[j], arg);
		}
	}
}
