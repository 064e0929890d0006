/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory for queues and doorbell records: from a parent domain's callbacks, from the allocator of
 * mlx5dv_set_context_attr, or our own. It goes back where it came from, whatever the program has set since. */
#ifndef SMX_VERBS_QUEUE_MEM_H
#define SMX_VERBS_QUEUE_MEM_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

struct smx_vpd;

struct smx_queue_mem {
	void *at;		/* NULL: none; all else means nothing then */
	size_t bytes;
	enum smx_queue_mem_from { SMX_MEM_HEAP, SMX_MEM_PAGES, SMX_MEM_DOMAIN, SMX_MEM_ALLOCATOR } from;
	uint64_t kind;		/* MLX5DV_RES_TYPE_* */
	union {
		struct smx_vpd *pd;			/* SMX_MEM_DOMAIN */
		struct mlx5dv_ctx_allocators allocator;
	};
};

/* Zeroed memory of at least bytes for a queue, or (MLX5DV_RES_TYPE_DBR) a doorbell record, of an object in pd, which
 * may be NULL; MLX_QP_ALLOC_TYPE and friends are read as libmlx5 does. RETURN false when there is none. */
bool smx_queue_mem_get(struct smx_queue_mem *m, struct ibv_context *context, struct smx_vpd *pd, size_t bytes,
		       uint64_t kind);
void smx_queue_mem_put(struct smx_queue_mem *m);

#endif
