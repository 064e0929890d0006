/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Protection domains, parent and thread domains, and the queue memory that a parent domain's
 * callbacks give. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "verbs/handles.h"
#include "verbs/objects.h"

enum { PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 << 20, DBREC_BYTES = 64 };

/* Memory of ours that a domain's allocator declined to give. */
struct smx_default_mem {
	void *mem;
	struct smx_default_mem *next;
};

/* Guards the lists of declined memory and the counts of users. */
static pthread_mutex_t domain_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- plain domains ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct smx_vpd *vpd = calloc(1, sizeof(*vpd));
	int err;

	if (!vpd) {
		errno = ENOMEM;
		return NULL;
	}
	vpd->ibv.context = context;
	smx_engine_lock();
	err = smx_cmd_alloc_pd(smx_engine_dev(), &vpd->dev, &vpd->pdn);
	smx_engine_unlock();
	if (!err) {
		err = smx_handle_add(SMX_HANDLE_PD, vpd, &vpd->ibv.handle);
		if (err) {
			smx_engine_lock();
			smx_cmd_dealloc_pd(smx_engine_dev(), vpd->dev);
			smx_engine_unlock();
		}
	}
	if (err) {
		free(vpd);
		errno = err;
		return NULL;
	}
	smx_ctx_hold(context);
	return &vpd->ibv;
}

void smx_vpd_hold(struct smx_vpd *pd)
{
	if (pd)
		__atomic_fetch_add(&pd->users, 1, __ATOMIC_RELAXED);
}

void smx_vpd_drop(struct smx_vpd *pd)
{
	if (pd)
		__atomic_fetch_sub(&pd->users, 1, __ATOMIC_RELEASE);
}

static int busy(const struct smx_vpd *vpd, const char *what)
{
	uint32_t users = __atomic_load_n(&vpd->users, __ATOMIC_ACQUIRE);

	if (!users)
		return 0;
	return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_BUSY, NULL,
			  "%s, handle %u, has %u users", what, vpd->ibv.handle, users);
}

static void parent_end(struct smx_vpd *vpd)
{
	struct smx_vtd *td = (struct smx_vtd *)(void *)vpd->td;

	smx_vpd_drop(vpd->base);
	if (td)
		__atomic_fetch_sub(&td->users, 1, __ATOMIC_RELEASE);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct smx_vpd *vpd = smx_vpd_of(pd);
	struct ibv_context *context = pd->context;
	int err = busy(vpd, vpd->base ? "parent domain" : "protection domain");

	if (err)
		return err;
	if (vpd->base) {
		parent_end(vpd);
	} else if (!vpd->imported) {
		smx_engine_lock();
		err = smx_cmd_dealloc_pd(smx_engine_dev(), vpd->dev);
		smx_engine_unlock();
		if (err)
			return err;
		smx_handle_remove(SMX_HANDLE_PD, pd->handle);
	}
	free(vpd);
	smx_ctx_drop(context);
	return 0;
}

/* ---- import ---- */

/* Both contexts must stem from one ibv_open_device(). */
static bool same_device_file(struct ibv_context *a, struct ibv_context *b)
{
	return !memcmp(smx_ctx_of(a)->id, smx_ctx_of(b)->id, sizeof(smx_ctx_of(a)->id));
}

static int copy_pd(void *obj, void *arg)
{
	const struct smx_vpd *from = obj;
	struct smx_vpd *to = arg;

	if (!same_device_file(from->ibv.context, to->ibv.context))
		return ENOENT;
	to->dev = from->dev;
	to->pdn = from->pdn;
	return 0;
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	struct smx_vpd *vpd = calloc(1, sizeof(*vpd));

	if (!vpd) {
		errno = ENOMEM;
		return NULL;
	}
	vpd->ibv.context = context;
	vpd->ibv.handle = pd_handle;
	vpd->imported = true;
	if (smx_handle_use(SMX_HANDLE_PD, pd_handle, copy_pd, vpd)) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_HANDLE, NULL, "protection domain %u",
				   pd_handle);
		free(vpd);
		return NULL;
	}
	smx_ctx_hold(context);
	return &vpd->ibv;
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	struct ibv_context *context = pd->context;

	free(smx_vpd_of(pd));
	smx_ctx_drop(context);
}

/* ---- thread and parent domains ---- */

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct smx_vtd *vtd;

	if (attr->comp_mask) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				   "comp_mask 0x%x of a thread domain", attr->comp_mask);
		return NULL;
	}
	vtd = calloc(1, sizeof(*vtd));
	if (!vtd) {
		errno = ENOMEM;
		return NULL;
	}
	vtd->ibv.context = context;
	smx_ctx_hold(context);
	return &vtd->ibv;
}

static int dealloc_td(struct ibv_td *td)
{
	struct smx_vtd *vtd = (struct smx_vtd *)(void *)td;
	uint32_t users = __atomic_load_n(&vtd->users, __ATOMIC_ACQUIRE);
	struct ibv_context *context = td->context;

	if (users)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_BUSY, NULL,
				  "thread domain has %u parent domains", users);
	free(vtd);
	smx_ctx_drop(context);
	return 0;
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *context,
					  struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known =
		IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct smx_vpd *base = smx_vpd_of(attr->pd);
	struct smx_vpd *vpd;

	if (!base || base->base || (attr->comp_mask & ~known)) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				   "parent domain with comp_mask 0x%x over %s", attr->comp_mask,
				   !base ? "no protection domain" : base->base ? "a parent domain" :
				   "a protection domain");
		return NULL;
	}
	vpd = calloc(1, sizeof(*vpd));
	if (!vpd) {
		errno = ENOMEM;
		return NULL;
	}
	vpd->ibv = (struct ibv_pd){ .context = context, .handle = base->ibv.handle };
	vpd->dev = base->dev;
	vpd->pdn = base->pdn;
	vpd->base = base;
	vpd->td = attr->td;
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		vpd->alloc = attr->alloc;
		vpd->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		vpd->pd_context = attr->pd_context;
	smx_vpd_hold(base);
	if (attr->td)
		__atomic_fetch_add(&((struct smx_vtd *)(void *)attr->td)->users, 1,
				   __ATOMIC_RELAXED);
	smx_ctx_hold(context);
	return &vpd->ibv;
}

bool smx_lock_needed(struct ibv_context *context, struct smx_vpd *pd)
{
	return !(pd && pd->td) && !smx_ctx_of(context)->single_threaded;
}

/* ---- queue memory ---- */

static const char *alloc_type_env(uint64_t kind)
{
	const char *name = kind == MLX5DV_RES_TYPE_CQ ? "MLX_CQ_ALLOC_TYPE" :
			   kind == MLX5DV_RES_TYPE_SRQ ? "MLX_SRQ_ALLOC_TYPE" :
			   kind == MLX5DV_RES_TYPE_RWQ ? "MLX_RWQ_ALLOC_TYPE" : "MLX_QP_ALLOC_TYPE";
	const char *value = getenv(name);

	return value ? value : "";
}

static void *map_pages(size_t bytes, int flags)
{
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags,
			 -1, 0);

	return mem == MAP_FAILED ? NULL : mem;
}

static void *default_alloc(size_t bytes, uint64_t kind)
{
	const char *type = alloc_type_env(kind);
	bool only_huge = !strcasecmp(type, "HUGE");
	void *mem = NULL;

	if (kind == MLX5DV_RES_TYPE_DBR) {
		if (posix_memalign(&mem, DBREC_BYTES, align_up(bytes, DBREC_BYTES)))
			return NULL;
		return memset(mem, 0, align_up(bytes, DBREC_BYTES));
	}
	if (only_huge || !strcasecmp(type, "PREFER_HUGE") || !strcasecmp(type, "ALL"))
		mem = map_pages(align_up(bytes, HUGE_PAGE_BYTES), MAP_HUGETLB);
	return mem || only_huge ? mem : map_pages(align_up(bytes, PAGE_BYTES), 0);
}

static void default_free(void *mem, size_t bytes, uint64_t kind)
{
	if (kind == MLX5DV_RES_TYPE_DBR)
		free(mem);
	else if (munmap(mem, align_up(bytes, PAGE_BYTES)))
		munmap(mem, align_up(bytes,
				     HUGE_PAGE_BYTES)); /* huge pages do not let a part of one go */
}

static bool remember_default(struct smx_vpd *pd, void *mem)
{
	struct smx_default_mem *d = malloc(sizeof(*d));

	if (!d)
		return false;
	d->mem = mem;
	pthread_mutex_lock(&domain_lock);
	d->next = pd->defaults;
	pd->defaults = d;
	pthread_mutex_unlock(&domain_lock);
	return true;
}

/* RETURN whether mem was ours; then it is forgotten. */
static bool forget_default(struct smx_vpd *pd, void *mem)
{
	struct smx_default_mem *found = NULL;

	pthread_mutex_lock(&domain_lock);
	for (struct smx_default_mem **link = &pd->defaults; *link; link = &(*link)->next) {
		if ((*link)->mem == mem) {
			found = *link;
			*link = found->next;
			break;
		}
	}
	pthread_mutex_unlock(&domain_lock);
	free(found);
	return found;
}

/* Memory from the allocator of mlx5dv_set_context_attr, with the way to give it back: the program
 * may set another one, or none, before it destroys the object. */
struct external_mem {
	void *mem;
	struct mlx5dv_ctx_allocators from;
	struct external_mem *next;
};

static struct external_mem *externals;	/* under domain_lock */

static void *external_alloc(const struct mlx5dv_ctx_allocators *from, size_t bytes)
{
	struct external_mem *e = malloc(sizeof(*e));

	if (!e)
		return NULL;
	e->from = *from;
	e->mem = from->alloc(align_up(bytes, PAGE_BYTES), from->data);
	if (!e->mem) {
		free(e);
		return NULL;
	}
	pthread_mutex_lock(&domain_lock);
	e->next = externals;
	externals = e;
	pthread_mutex_unlock(&domain_lock);
	return memset(e->mem, 0, bytes);
}

static bool external_free(void *mem)
{
	struct external_mem *found = NULL;

	if (!__atomic_load_n(&externals, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&domain_lock);
	for (struct external_mem **link = &externals; *link; link = &(*link)->next) {
		if ((*link)->mem == mem) {
			found = *link;
			*link = found->next;
			break;
		}
	}
	pthread_mutex_unlock(&domain_lock);
	if (!found)
		return false;
	found->from.free(mem, found->from.data);
	free(found);
	return true;
}

void *smx_queue_alloc_in(struct ibv_context *context, struct smx_vpd *pd, size_t bytes,
			 uint64_t kind)
{
	const struct mlx5dv_ctx_allocators *from = &smx_ctx_of(context)->allocators;

	return from->alloc && !(pd && pd->alloc) ? external_alloc(from, bytes)
						 : smx_queue_alloc(pd, bytes, kind);
}

void *smx_queue_alloc(struct smx_vpd *pd, size_t bytes, uint64_t kind)
{
	size_t alignment = kind == MLX5DV_RES_TYPE_DBR ? 8 : PAGE_BYTES;
	void *mem;

	if (!pd || !pd->alloc)
		return default_alloc(bytes, kind);
	mem = pd->alloc(&pd->ibv, pd->pd_context, bytes, alignment, kind);
	if (mem != IBV_ALLOCATOR_USE_DEFAULT)
		return mem ? memset(mem, 0, bytes) : NULL;
	mem = default_alloc(bytes, kind);
	if (mem && !remember_default(pd, mem)) {
		default_free(mem, bytes, kind);
		mem = NULL;
	}
	return mem;
}

void smx_queue_free(struct smx_vpd *pd, void *mem, size_t bytes, uint64_t kind)
{
	if (!mem || external_free(mem))
		return;
	if (!pd || !pd->alloc || forget_default(pd, mem))
		default_free(mem, bytes, kind);
	else if (pd->free)
		pd->free(&pd->ibv, pd->pd_context, mem, kind);
}

void smx_ops_pd(struct verbs_context *v)
{
	v->alloc_td = alloc_td;
	v->dealloc_td = dealloc_td;
	v->alloc_parent_domain = alloc_parent_domain;
}
