/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers of objects that can be imported. One table a kind for the whole process. */
#include "verbs/handles.h"

#include <errno.h>
#include <pthread.h>

#include "base/idmap.h"

enum { HANDLES_MAX = 1 << 24 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct smx_idmap maps[SMX_HANDLE_KINDS];

int smx_handle_add(enum smx_handle_kind kind, void *obj, uint32_t *handle)
{
	struct smx_idmap *map = &maps[kind];
	int err = 0;

	pthread_mutex_lock(&lock);
	if (!map->leaf)
		err = smx_idmap_init(map, 1, HANDLES_MAX);
	if (!err)
		err = smx_idmap_add(map, obj, handle);
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

struct search {
	int (*fn)(void *obj, void *arg);
	void *arg;
	int ret;
};

static void try_one(void *obj, void *arg)
{
	struct search *s = arg;

	if (!s->ret)
		s->ret = s->fn(obj, s->arg);
}

int smx_handle_search(enum smx_handle_kind kind, int (*fn)(void *obj, void *arg), void *arg)
{
	struct search s = { .fn = fn, .arg = arg };

	pthread_mutex_lock(&lock);
	if (maps[kind].leaf)
		smx_idmap_each(&maps[kind], try_one, &s);
	pthread_mutex_unlock(&lock);
	return s.ret ? s.ret : ENOENT;
}
