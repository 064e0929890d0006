/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Device memory: pages of our own, reached by 4-byte copies, by plain stores (mlx5dv_init_obj) and
 * by regions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "verbs/handles.h"
#include "verbs/ibv_device.h"
#include "verbs/objects.h"

enum { PAGE_BYTES = 4096, LOG_ALIGN_MAX = 12 };

static struct smx_vdm *vdm_of(struct ibv_dm *dm)
{
	return (struct smx_vdm *)(void *)dm;
}

static int check_access(const struct smx_vdm *vdm, uint64_t offset, size_t length)
{
	if (offset > vdm->length || length > vdm->length - offset) {
		smx_refuse(smx_refusals(), SMX_CHECK_DM_RANGE, NULL,
			   "offset %llu length %zu, there are %llu bytes",
			   (unsigned long long)offset, length, (unsigned long long)vdm->length);
		return EFAULT;	/* what libmlx5 says */
	}
	if ((offset & 3) || (length & 3))
		return smx_refuse(smx_refusals(), SMX_CHECK_DM_RANGE, NULL,
				  "offset %llu length %zu", (unsigned long long)offset, length);
	return 0;
}

static int memcpy_to_dm(struct ibv_dm *dm, uint64_t offset, const void *host, size_t length)
{
	struct smx_vdm *vdm = vdm_of(dm);
	int err = check_access(vdm, offset, length);

	for (size_t i = 0; !err && i < length; i += 4) {
		uint32_t word;

		memcpy(&word, (const char *)host + i, 4);
		__atomic_store_n((uint32_t *)(void *)(vdm->mem + offset + i), word,
				 __ATOMIC_RELAXED);
	}
	return err;
}

static int memcpy_from_dm(void *host, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	struct smx_vdm *vdm = vdm_of(dm);
	int err = check_access(vdm, offset, length);

	for (size_t i = 0; !err && i < length; i += 4) {
		uint32_t word = __atomic_load_n((uint32_t *)(void *)(vdm->mem + offset + i),
						__ATOMIC_RELAXED);

		memcpy((char *)host + i, &word, 4);
	}
	return err;
}

static void fill_public(struct smx_vdm *vdm, struct ibv_context *context)
{
	vdm->ibv.context = context;
	vdm->ibv.memcpy_to_dm = memcpy_to_dm;
	vdm->ibv.memcpy_from_dm = memcpy_from_dm;
	vdm->ibv.comp_mask = IBV_DM_MASK_HANDLE;
}

struct ibv_dm *smx_vdm_create(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct smx_vdm *vdm;
	int err = 0;

	if (attr->comp_mask || attr->log_align_req > LOG_ALIGN_MAX)
		err = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				 "device memory with comp_mask 0x%x log_align_req %u",
				 attr->comp_mask, attr->log_align_req);
	else if (!attr->length || attr->length > SMX_MAX_DM_BYTES)
		err = smx_refuse(smx_refusals(), SMX_CHECK_DM_RANGE, NULL,
				 "length %zu, the device has %d bytes", attr->length,
				 SMX_MAX_DM_BYTES);
	if (err) {
		errno = err;
		return NULL;
	}
	vdm = calloc(1, sizeof(*vdm));
	if (!vdm) {
		errno = ENOMEM;
		return NULL;
	}
	fill_public(vdm, context);
	vdm->length = attr->length;
	vdm->mem = mmap(NULL, align_up(vdm->length, PAGE_BYTES), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	err = vdm->mem == MAP_FAILED ? errno : smx_handle_add(SMX_HANDLE_DM, vdm, &vdm->ibv.handle);
	if (err) {
		if (vdm->mem != MAP_FAILED)
			munmap(vdm->mem, align_up(vdm->length, PAGE_BYTES));
		free(vdm);
		errno = err;
		return NULL;
	}
	smx_ctx_hold(context);
	return &vdm->ibv;
}

static int free_dm(struct ibv_dm *dm)
{
	struct smx_vdm *vdm = vdm_of(dm);
	uint32_t users = __atomic_load_n(&vdm->users, __ATOMIC_ACQUIRE);
	struct ibv_context *context = dm->context;

	if (users)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_BUSY, NULL,
				  "device memory %u has %u regions", dm->handle, users);
	if (!vdm->imported) {
		smx_handle_remove(SMX_HANDLE_DM, dm->handle);
		munmap(vdm->mem, align_up(vdm->length, PAGE_BYTES));
	}
	free(vdm);
	smx_ctx_drop(context);
	return 0;
}

static int copy_dm(void *obj, void *arg)
{
	const struct smx_vdm *from = obj;
	struct smx_vdm *to = arg;

	if (memcmp(smx_ctx_of(from->ibv.context)->id, smx_ctx_of(to->ibv.context)->id,
		   sizeof(uint64_t[2])) != 0)
		return ENOENT;
	to->mem = from->mem;
	to->length = from->length;
	return 0;
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	struct smx_vdm *vdm = calloc(1, sizeof(*vdm));

	if (!vdm) {
		errno = ENOMEM;
		return NULL;
	}
	fill_public(vdm, context);
	vdm->ibv.handle = dm_handle;
	vdm->imported = true;
	if (smx_handle_use(SMX_HANDLE_DM, dm_handle, copy_dm, vdm)) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_HANDLE, NULL, "device memory %u",
				   dm_handle);
		free(vdm);
		return NULL;
	}
	smx_ctx_hold(context);
	return &vdm->ibv;
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	struct ibv_context *context = dm->context;

	free(dm);
	smx_ctx_drop(context);
}

void smx_ops_dm(struct verbs_context *v)
{
	v->alloc_dm = smx_vdm_create;
	v->free_dm = free_dm;
}
