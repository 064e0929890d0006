/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One table a kind for the whole process. */
#include "verbs/handles.h"

#include <errno.h>
#include <pthread.h>

#include "base/idmap.h"

enum { HANDLES_MAX = 1 << 24 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct smx_idmap maps[SMX_HANDLE_KINDS];
struct smx_dv_table smx_qp_table, smx_srq_table;

int smx_number_set(struct smx_dv_table *table, uint32_t number, void *obj)
{
	int err;

	pthread_mutex_lock(&lock);
	err = smx_dv_table_set(table, number, obj);
	pthread_mutex_unlock(&lock);
	return err;
}

void smx_number_clear(struct smx_dv_table *table, uint32_t number, const void *obj)
{
	pthread_mutex_lock(&lock);
	if (smx_dv_table_get(table, number) == obj)
		smx_dv_table_set(table, number, NULL);
	pthread_mutex_unlock(&lock);
}

/* Under the lock. */
static int make_map(struct smx_idmap *map)
{
	return map->leaf ? 0 : smx_idmap_init(map, 1, HANDLES_MAX);
}

int smx_handle_add(enum smx_handle_kind kind, void *obj, uint32_t *handle)
{
	int err;

	pthread_mutex_lock(&lock);
	err = make_map(&maps[kind]);
	if (!err)
		err = smx_idmap_add(&maps[kind], obj, handle);
	pthread_mutex_unlock(&lock);
	return err;
}

int smx_handle_add_at(enum smx_handle_kind kind, void *obj, uint32_t handle)
{
	int err;

	pthread_mutex_lock(&lock);
	err = make_map(&maps[kind]);
	if (!err)
		err = smx_idmap_add_at(&maps[kind], handle, obj);
	pthread_mutex_unlock(&lock);
	return err;
}

void smx_handle_remove(enum smx_handle_kind kind, uint32_t handle)
{
	pthread_mutex_lock(&lock);
	smx_idmap_remove(&maps[kind], handle);
	pthread_mutex_unlock(&lock);
}

int smx_handle_use(enum smx_handle_kind kind, uint32_t handle, int (*fn)(void *obj, void *arg),
		   void *arg)
{
	int ret = ENOENT;
	void *obj;

	pthread_mutex_lock(&lock);
	obj = maps[kind].leaf ? smx_idmap_get(&maps[kind], handle) : NULL;
	if (obj)
		ret = fn(obj, arg);
	pthread_mutex_unlock(&lock);
	return ret;
}
