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
	void ***leaf = &map->leaf[off >> SMX_IDMAP_LEAF_BITS];

	if (!*leaf)
		*leaf = calloc(LEAF_LEN, sizeof(**leaf));
	return *leaf ? &(*leaf)[off & (LEAF_LEN - 1)] : NULL;
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
		*slot = obj;
		map->used++;
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
	*slot = obj;
	map->used++;
	return 0;
}

void *smx_idmap_remove(struct smx_idmap *map, uint32_t id)
{
	void *obj = smx_idmap_get(map, id);
	uint32_t off = id - map->base;

	if (!obj)
		return NULL;
	map->leaf[off >> SMX_IDMAP_LEAF_BITS][off & (LEAF_LEN - 1)] = NULL;
	map->used--;
	return obj;
}

void smx_idmap_each(struct smx_idmap *map, void (*fn)(void *obj, void *arg), void *arg)
{
	for (uint32_t i = 0; i < map->capacity >> SMX_IDMAP_LEAF_BITS; i++) {
		for (uint32_t j = 0; map->leaf[i] && j < LEAF_LEN; j++) {
			if (map->leaf[i][j])
				fn(map->leaf[i][j], arg);
		}
	}
}
