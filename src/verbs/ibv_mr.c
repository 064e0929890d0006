/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory regions and memory windows. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "verbs/engine_share.h"
#include "verbs/handles.h"
#include "verbs/objects.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

enum {
	PAGE_BYTES = 4096,
	PROBE_PAGES = 4096, /* pages that one mincore(2) looks at */
	ACCESS_RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	ACCESS_KNOWN =
		ACCESS_RIGHTS | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB,
};

/* Flags of the optional range (relaxed ordering) are hints: ignoring one that is not known is their
 * point. */
static int check_access(unsigned int access)
{
	if (access & ~(unsigned int)(ACCESS_KNOWN | IBV_ACCESS_OPTIONAL_RANGE))
		return smx_refuse(smx_refusals(), SMX_CHECK_MR_ACCESS, NULL,
				  "access 0x%x has bits that are not known", access);
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return smx_refuse(smx_refusals(), SMX_CHECK_MR_ACCESS, NULL,
				  "access 0x%x: remote write and remote atomic need local write",
				  access);
	return 0;
}

/* Real hardware pins the pages; here it is enough that they are mapped. */
static int check_mapped(const void *addr, size_t length)
{
	uintptr_t at = (uintptr_t)addr & ~(uintptr_t)(PAGE_BYTES - 1);
	uintptr_t end = (uintptr_t)addr + length;
	unsigned char resident[PROBE_PAGES];

	while (at < end) {
		size_t bytes = end - at;

		if (bytes > (size_t)PROBE_PAGES * PAGE_BYTES)
			bytes = (size_t)PROBE_PAGES * PAGE_BYTES;
		if (mincore((void *)at, bytes, resident) && errno == ENOMEM)
			return smx_refuse(smx_refusals(), SMX_CHECK_MR_UNMAPPED, NULL,
					  "address %p length %zu; a page from %p on is not mapped",
					  addr, length, (void *)at);
		at += bytes;
	}
	return 0;
}

static int check_range(const void *addr, size_t length, uint64_t iova, unsigned int access)
{
	uintptr_t end;

	if (!length || __builtin_add_overflow((uintptr_t)addr, length, &end) ||
	    end > UINTPTR_MAX - PAGE_BYTES)
		return smx_refuse(smx_refusals(), SMX_CHECK_MR_RANGE, NULL, "address %p length %zu",
				  addr, length);
	if (!(access & IBV_ACCESS_ZERO_BASED) && ((uintptr_t)addr ^ iova) & (PAGE_BYTES - 1))
		return smx_refuse(smx_refusals(), SMX_CHECK_MR_RANGE, NULL,
				  "address %p iova 0x%llx", addr, (unsigned long long)iova);
	return access & IBV_ACCESS_ON_DEMAND ? 0 : check_mapped(addr, length);
}

/* The whole address space, on demand. */
static bool is_implicit(const void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return (access & IBV_ACCESS_ON_DEMAND) && !addr && length == SIZE_MAX && !iova;
}

/* Moving memory to where others see it takes time: it is done once there may be others, and then for all regions.
 * All of this under the engine's lock. */
static struct smx_vmr *shareable;
static bool are_shared;

/* The program's memory under a region, for which nobody asks page by page. */
static void share_region(struct smx_vmr *vmr, struct smx_mkey_attr *attr)
{
	if (attr->kind != SMX_MKEY_DIRECT || vmr->dm || vmr->access & IBV_ACCESS_ON_DEMAND)
		return;
	vmr->host = attr->host;
	vmr->host_length = attr->length;
	attr->shared = vmr->shared = are_shared && smx_engine_share(attr->host, attr->length);
}

static void unshare_region(struct smx_vmr *vmr)
{
	if (vmr->shared)
		smx_engine_unshare(vmr->host, vmr->host_length);
	vmr->shared = false;
}

static void list_region(struct smx_vmr *vmr)
{
	if (!vmr->host)
		return;
	vmr->next = shareable;
	vmr->prev = &shareable;
	if (shareable)
		shareable->prev = &vmr->next;
	shareable = vmr;
}

static void unlist_region(struct smx_vmr *vmr)
{
	if (!vmr->prev)
		return;
	*vmr->prev = vmr->next;
	if (vmr->next)
		vmr->next->prev = vmr->prev;
}

void smx_regions_share(void)
{
	if (are_shared)
		return;
	are_shared = true;
	for (struct smx_vmr *vmr = shareable; vmr; vmr = vmr->next) {
		vmr->shared = smx_engine_share(vmr->host, vmr->host_length);
		if (vmr->shared)
			smx_cmd_share_mkey(smx_engine_dev(), vmr->dev);
	}
}

void smx_regions_forked(void)
{
	are_shared = false;
	for (struct smx_vmr *vmr = shareable; vmr; vmr = vmr->next)
		vmr->shared = false;
}

/* Creates the key and the region object; dm: the device memory it lies in, or NULL. RETURN NULL with errno set. */
static struct ibv_mr *region_create(struct ibv_pd *pd, struct smx_mkey_attr *attr, unsigned int access,
				    struct smx_vdm *dm)
{
	struct smx_vmr *vmr = calloc(1, sizeof(*vmr));
	uint32_t key;
	int err;

	if (!vmr) {
		errno = ENOMEM;
		return NULL;
	}
	vmr->pdn = smx_vpd_of(pd)->pdn;
	vmr->access = access;
	vmr->start = attr->start;
	vmr->dm = dm;
	smx_engine_lock();
	share_region(vmr, attr);
	err = smx_cmd_create_mkey(smx_engine_dev(), attr, &vmr->dev, &key);
	if (!err) {
		vmr->ibv.lkey = vmr->ibv.rkey = key;
		vmr->ibv.handle = key >> 8;
		err = smx_handle_add_at(SMX_HANDLE_MR, vmr, vmr->ibv.handle);
		if (err)
			smx_cmd_destroy_mkey(smx_engine_dev(), vmr->dev);
	}
	if (err)
		unshare_region(vmr);
	else
		list_region(vmr);
	smx_engine_unlock();
	if (err) {
		free(vmr);
		errno = err;
		return NULL;
	}
	vmr->ibv.context = pd->context;
	vmr->ibv.pd = pd;
	smx_ctx_hold(pd->context);
	return &vmr->ibv;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	struct smx_mkey_attr attr = {
		.kind = SMX_MKEY_DIRECT,
		.pd = smx_vpd_of(pd)->dev,
		.access = access & ACCESS_RIGHTS,
		.start = access & IBV_ACCESS_ZERO_BASED ? 0 : iova,
		.length = length,
		.host = addr,
	};
	bool implicit = is_implicit(addr, length, iova, access);
	struct ibv_mr *mr;
	int err = check_access(access);

	if (!err && !implicit)
		err = check_range(addr, length, iova, access);
	if (err) {
		errno = err;
		return NULL;
	}
	if (implicit)
		attr.kind = SMX_MKEY_IMPLICIT;
	mr = region_create(pd, &attr, access, NULL);
	if (mr) {
		mr->addr = addr;
		mr->length = length;
	}
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	(void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
	smx_not_offered("ibv_reg_dmabuf_mr");
	return NULL;
}

static struct ibv_mr *alloc_null_mr(struct ibv_pd *pd)
{
	struct smx_mkey_attr attr = {
		.kind = SMX_MKEY_NULL,
		.pd = smx_vpd_of(pd)->dev,
		.access = ACCESS_RIGHTS,
		.length = UINT64_MAX,
	};

	return region_create(pd, &attr, IBV_ACCESS_LOCAL_WRITE, NULL);
}

static struct smx_vdm *vdm_of(struct ibv_dm *dm)
{
	return (struct smx_vdm *)(void *)dm;
}

static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
				size_t length, unsigned int access)
{
	const unsigned int allowed =
		ACCESS_RIGHTS | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;
	struct smx_vdm *vdm = vdm_of(dm);
	struct smx_mkey_attr attr = {
		.kind = SMX_MKEY_DIRECT,
		.pd = smx_vpd_of(pd)->dev,
		.access = access & ACCESS_RIGHTS,
		.length = length,
	};
	struct ibv_mr *mr;
	int err = check_access(access);

	if (!err && ((access & ~allowed) || !(access & IBV_ACCESS_ZERO_BASED)))
		err = smx_refuse(smx_refusals(), SMX_CHECK_MR_ACCESS, NULL,
				 "access 0x%x of device memory, which must be zero-based", access);
	if (!err && (offset > vdm->length || length > vdm->length - offset))
		err = smx_refuse(smx_refusals(), SMX_CHECK_DM_RANGE, NULL,
				 "region at offset %llu length %zu, device memory has %llu bytes",
				 (unsigned long long)offset, length,
				 (unsigned long long)vdm->length);
	if (err) {
		errno = err;
		return NULL;
	}
	attr.host = vdm->mem + offset;
	mr = region_create(pd, &attr, access, vdm);
	if (mr) {
		mr->length = length;
		__atomic_fetch_add(&vdm->users, 1, __ATOMIC_RELAXED);
	}
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct smx_vmr *vmr = (struct smx_vmr *)(void *)mr;
	struct ibv_context *context = mr->context;
	int err = 0;

	if (!vmr->imported) {
		smx_engine_lock();
		err = smx_cmd_destroy_mkey(smx_engine_dev(), vmr->dev);
		if (!err) {
			smx_handle_remove(SMX_HANDLE_MR, mr->handle);	/* before another key has it */
			unshare_region(vmr);	/* nobody reaches it any more */
			unlist_region(vmr);
		}
		smx_engine_unlock();
		if (err)
			return err;
		if (vmr->dm)
			__atomic_fetch_sub(&vmr->dm->users, 1, __ATOMIC_RELEASE);
	}
	free(vmr);
	smx_ctx_drop(context);
	return 0;
}

/* ---- changing a region ---- */

/* What rdma-core's library refuses itself: the old region stays valid. */
static int rereg_input(const struct smx_vmr *vmr, int flags, const struct ibv_pd *pd,
		       const void *addr, size_t length, int access)
{
	const char *why = NULL;

	if (vmr->dm || vmr->imported || !vmr->ibv.length)
		why = "only a region of host memory can be changed";
	else if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		why = "flags are not known";
	else if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!length || !addr))
		why = "a new translation needs address and length";
	else if (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		why = "access without IBV_REREG_MR_CHANGE_ACCESS";
	else if ((flags & IBV_REREG_MR_CHANGE_PD) && !pd)
		why = "a new protection domain is missing";
	if (!why)
		return 0;
	errno = smx_refuse(
		smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
		"rereg_mr of key 0x%x: %s (flags 0x%x address %p length %zu access 0x%x)",
		vmr->ibv.lkey, why, (unsigned int)flags, addr, length, (unsigned int)access);
	return IBV_REREG_MR_ERR_INPUT;
}

/* The new memory is shared before the key speaks of it, the old one is given back after. */
static int modify_key(struct smx_vmr *vmr, int flags, struct smx_mkey_attr *attr)
{
	struct smx_vmr next = *vmr;
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	int err;

	smx_engine_lock();
	if (moves)
		share_region(&next, attr);
	err = smx_cmd_modify_mkey(smx_engine_dev(), vmr->dev, flags, attr);
	if (moves)
		unshare_region(err ? &next : vmr);
	if (!err) {
		vmr->shared = next.shared;
		vmr->host = next.host;
		vmr->host_length = next.host_length;
	}
	smx_engine_unlock();
	return err;
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access)
{
	struct smx_vmr *vmr = (struct smx_vmr *)(void *)mr;
	bool zero_based =
		(flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned int)access : vmr->access) &
		IBV_ACCESS_ZERO_BASED;
	struct smx_mkey_attr attr = {
		.kind = SMX_MKEY_DIRECT,
		.pd = pd ? smx_vpd_of(pd)->dev : NULL,
		.access = (unsigned int)access & ACCESS_RIGHTS,
		.start = zero_based ? 0 : (uintptr_t)addr,
		.length = length,
		.host = addr,
	};
	int err = rereg_input(vmr, flags, pd, addr, length, access);

	if (err)
		return err;
	if (!flags)
		err = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				 "rereg_mr of key 0x%x without a flag", mr->lkey);
	if (!err && (flags & IBV_REREG_MR_CHANGE_ACCESS))
		err = check_access((unsigned int)access);
	if (!err && (flags & IBV_REREG_MR_CHANGE_TRANSLATION))
		err = check_range(addr, length, (uintptr_t)addr, vmr->access);
	if (!err)
		err = modify_key(vmr, flags, &attr);
	if (err) {
		errno = err;
		return IBV_REREG_MR_ERR_CMD;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		mr->pd = pd;
		vmr->pdn = smx_vpd_of(pd)->pdn;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		vmr->start = attr.start;
		mr->length = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		vmr->access = (unsigned int)access;
	return 0;
}

/* ---- import ---- */

static int copy_mr(void *obj, void *arg)
{
	const struct smx_vmr *from = obj;
	struct smx_vmr *to = arg;

	if (from->pdn != to->pdn)
		return ENOENT;
	to->ibv.length = from->ibv.length;
	to->ibv.lkey = from->ibv.lkey;
	to->ibv.rkey = from->ibv.rkey;
	to->dev = from->dev;
	to->access = from->access;
	to->start = from->start;
	return 0;
}

/* addr stays NULL, as rdma-core's does: it need not mean anything to the importer. */
struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	struct smx_vmr *vmr = calloc(1, sizeof(*vmr));

	if (!vmr) {
		errno = ENOMEM;
		return NULL;
	}
	vmr->ibv = (struct ibv_mr){ .context = pd->context, .pd = pd, .handle = mr_handle };
	vmr->pdn = smx_vpd_of(pd)->pdn;
	vmr->imported = true;
	if (smx_handle_use(SMX_HANDLE_MR, mr_handle, copy_mr, vmr)) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_HANDLE, NULL,
				   "memory region %u in protection domain %u", mr_handle,
				   pd->handle);
		free(vmr);
		return NULL;
	}
	smx_ctx_hold(pd->context);
	return &vmr->ibv;
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	struct ibv_context *context = mr->context;

	free(mr);
	smx_ctx_drop(context);
}

/* ---- advice ---- */

struct advice {
	uint32_t pdn;
	const struct ibv_sge *sge;
	bool write;
	void *host;
};

/* RETURN 0 when the entry is fine, else an errno. */
static int advise_one(void *obj, void *arg)
{
	const struct smx_vmr *vmr = obj;
	struct advice *a = arg;

	if (vmr->ibv.lkey != a->sge->lkey)
		return ENOENT;
	if (vmr->pdn != a->pdn)
		return EPERM;
	if (!(vmr->access & IBV_ACCESS_ON_DEMAND))
		return EINVAL;
	if (a->write && !(vmr->access & IBV_ACCESS_LOCAL_WRITE))
		return EPERM;
	if (a->sge->addr < vmr->start || a->sge->addr - vmr->start > vmr->ibv.length ||
	    a->sge->length > vmr->ibv.length - (a->sge->addr - vmr->start))
		return EFAULT;
	a->host = (char *)vmr->ibv.addr + (a->sge->addr - vmr->start);
	return 0;
}

static int prefetch(const struct advice *a, bool must)
{
	uintptr_t at = (uintptr_t)a->host & ~(uintptr_t)(PAGE_BYTES - 1);
	size_t bytes = align_up((uintptr_t)a->host + a->sge->length, PAGE_BYTES) - at;

	if (madvise((void *)at, bytes, a->write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) &&
	    must && errno != EINVAL)
		return EFAULT;
	return 0;
}

static int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		     struct ibv_sge *sg_list, uint32_t num_sge)
{
	bool flush = flags & IBV_ADVISE_MR_FLAG_FLUSH;
	struct advice a = {
		.pdn = smx_vpd_of(pd)->pdn,
		.write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
	};

	if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH &&
	    advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
	    advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return smx_refuse(smx_refusals(), SMX_CHECK_NOT_OFFERED, NULL,
				  "ibv_advise_mr with advice %d", (int)advice);
	if ((flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH) || !num_sge)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "ibv_advise_mr with flags 0x%x, %u entries", flags, num_sge);
	for (uint32_t i = 0; i < num_sge; i++) {
		int err;

		a.sge = &sg_list[i];
		err = smx_handle_use(SMX_HANDLE_MR, a.sge->lkey >> 8, advise_one, &a);
		if (!err && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
			err = prefetch(&a, flush);
		if (err) {
			smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				   "ibv_advise_mr of lkey 0x%x address 0x%llx length %u: %s",
				   a.sge->lkey, (unsigned long long)a.sge->addr, a.sge->length,
				   strerror(err));
			return err;
		}
	}
	return 0;
}

/* ---- windows ---- */

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	const struct smx_mkey_attr attr = {
		.kind = SMX_MKEY_WINDOW,
		.pd = smx_vpd_of(pd)->dev,
		.mw_type = type,
	};
	struct smx_vmw *vmw;
	int err;

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				   "memory window of type %d", (int)type);
		return NULL;
	}
	vmw = calloc(1, sizeof(*vmw));
	if (!vmw) {
		errno = ENOMEM;
		return NULL;
	}
	vmw->ibv = (struct ibv_mw){ .context = pd->context, .pd = pd, .type = type };
	smx_engine_lock();
	err = smx_cmd_create_mkey(smx_engine_dev(), &attr, &vmw->dev, &vmw->ibv.rkey);
	smx_engine_unlock();
	if (err) {
		free(vmw);
		errno = err;
		return NULL;
	}
	vmw->ibv.handle = vmw->ibv.rkey >> 8;
	smx_ctx_hold(pd->context);
	return &vmw->ibv;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	struct smx_vmw *vmw = (struct smx_vmw *)(void *)mw;
	struct ibv_context *context = mw->context;
	int err;

	smx_engine_lock();
	err = smx_cmd_destroy_mkey(smx_engine_dev(), vmw->dev);
	smx_engine_unlock();
	if (err)
		return err;
	free(vmw);
	smx_ctx_drop(context);
	return 0;
}

void smx_ops_mr(struct verbs_context *v)
{
	v->alloc_null_mr = alloc_null_mr;
	v->reg_dm_mr = reg_dm_mr;
	v->advise_mr = advise_mr;
	v->context.ops.alloc_mw = alloc_mw;
	v->context.ops.dealloc_mw = dealloc_mw;
	v->context.ops.bind_mw = smx_dv_bind_mw;
	smx_ops_dm(v);
}
