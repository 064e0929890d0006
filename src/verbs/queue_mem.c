/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "verbs/objects.h"

enum {
	PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 << 20, LINE_BYTES = 64,
	/* Short rings lie close together: a page for each would be most of what a small queue pair costs, and the
	 * kernel allows a process only so many mappings. */
	HEAP_BYTES = 64 << 10,
};

static const char *alloc_type_env(uint64_t kind)
{
	const char *name = kind == MLX5DV_RES_TYPE_CQ ? "MLX_CQ_ALLOC_TYPE" :
			   kind == MLX5DV_RES_TYPE_SRQ ? "MLX_SRQ_ALLOC_TYPE" :
			   kind == MLX5DV_RES_TYPE_RWQ ? "MLX_RWQ_ALLOC_TYPE" : "MLX_QP_ALLOC_TYPE";
	const char *value = getenv(name);

	return value ? value : "";
}

static bool get_pages(struct smx_queue_mem *m, size_t page_bytes, int flags)
{
	size_t bytes = align_up(m->bytes, page_bytes);
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	if (mem == MAP_FAILED)
		return false;
	m->at = mem;
	m->bytes = bytes;
	m->from = SMX_MEM_PAGES;
	return true;
}

static bool get_heap(struct smx_queue_mem *m)
{
	size_t bytes = align_up(m->bytes, LINE_BYTES);

	if (posix_memalign(&m->at, LINE_BYTES, bytes)) {
		m->at = NULL;
		return false;
	}
	memset(m->at, 0, bytes);
	m->from = SMX_MEM_HEAP;
	return true;
}

static bool get_own(struct smx_queue_mem *m)
{
	const char *type = m->kind == MLX5DV_RES_TYPE_DBR ? "" : alloc_type_env(m->kind);
	bool only_huge = !strcasecmp(type, "HUGE");

	if ((only_huge || !strcasecmp(type, "PREFER_HUGE") || !strcasecmp(type, "ALL")) &&
	    get_pages(m, HUGE_PAGE_BYTES, MAP_HUGETLB))
		return true;
	if (only_huge)
		return false;
	return m->bytes < HEAP_BYTES ? get_heap(m) : get_pages(m, PAGE_BYTES, 0);
}

static bool get_from_domain(struct smx_queue_mem *m, struct smx_vpd *pd)
{
	size_t alignment = m->kind == MLX5DV_RES_TYPE_DBR ? 8 : PAGE_BYTES;
	void *mem = pd->alloc(&pd->ibv, pd->pd_context, m->bytes, alignment, m->kind);

	if (mem == IBV_ALLOCATOR_USE_DEFAULT)
		return get_own(m);
	if (!mem)
		return false;
	m->at = memset(mem, 0, m->bytes);
	m->from = SMX_MEM_DOMAIN;
	m->pd = pd;
	return true;
}

static bool get_from_allocator(struct smx_queue_mem *m, const struct mlx5dv_ctx_allocators *from)
{
	void *mem = from->alloc(align_up(m->bytes, PAGE_BYTES), from->data);

	if (!mem)
		return false;
	m->at = memset(mem, 0, m->bytes);
	m->from = SMX_MEM_ALLOCATOR;
	m->allocator = *from;
	return true;
}

bool smx_queue_mem_get(struct smx_queue_mem *m, struct ibv_context *context, struct smx_vpd *pd, size_t bytes,
		       uint64_t kind)
{
	const struct mlx5dv_ctx_allocators *from = &smx_ctx_of(context)->allocators;

	*m = (struct smx_queue_mem){ .bytes = bytes, .kind = kind };
	if (pd && pd->alloc)
		return get_from_domain(m, pd);
	if (from->alloc && kind != MLX5DV_RES_TYPE_DBR)
		return get_from_allocator(m, from);
	return get_own(m);
}

void smx_queue_mem_put(struct smx_queue_mem *m)
{
	if (!m->at)
		return;
	switch (m->from) {
	case SMX_MEM_HEAP:
		free(m->at);
		break;
	case SMX_MEM_PAGES:
		/* Where that would make a mapping too many, at least the pages are given back. */
		if (munmap(m->at, m->bytes))
			madvise(m->at, m->bytes, MADV_DONTNEED);
		break;
	case SMX_MEM_DOMAIN:
		if (m->pd->free)
			m->pd->free(&m->pd->ibv, m->pd->pd_context, m->at, m->kind);
		break;
	case SMX_MEM_ALLOCATOR:
		m->allocator.free(m->at, m->allocator.data);
		break;
	}
	m->at = NULL;
}
