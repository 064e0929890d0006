/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Protection domains, parent and thread domains. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/handles.h"
#include "verbs/objects.h"

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

void smx_ops_pd(struct verbs_context *v)
{
	v->alloc_td = alloc_td;
	v->dealloc_td = dealloc_td;
	v->alloc_parent_domain = alloc_parent_domain;
}
