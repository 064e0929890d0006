/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_create_cq: completion queues with entries of 64 or 128 bytes. */
#include <errno.h>

#include "base/bits.h"
#include "verbs/mlx5dv_caps.h"
#include "verbs/objects.h"

enum {
	KNOWN_MASK = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE | MLX5DV_CQ_INIT_ATTR_MASK_FLAGS |
		     MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
};

/* Padding makes a device write whole 128-byte entries. The first half then holds nothing that a
 * program may look at, so it is granted where entries have that size and nothing else differs. */
static int check(const struct mlx5dv_cq_init_attr *a)
{
	struct smx_refusal_log *log = smx_refusals();
	uint32_t size = a->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE ? a->cqe_size : 0;
	uint32_t flags = a->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_FLAGS ? a->flags : 0;

	if (a->comp_mask & ~(uint64_t)KNOWN_MASK)
		return smx_refuse(log, SMX_CHECK_ATTR_MASK, NULL,
				  "mlx5dv_create_cq comp_mask 0x%llx, known is 0x%x",
				  (unsigned long long)a->comp_mask, KNOWN_MASK);
	if (a->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE && size != 64 && size != 128)
		return smx_refuse(log, SMX_CHECK_CQ_DV_ATTR, NULL,
				  "cqe_size %u, it can be 64 or 128", size);
	if (a->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE &&
	    (!is_pow2(a->cqe_comp_res_format) || !(a->cqe_comp_res_format & SMX_CQE_COMP_FORMATS)))
		return smx_refuse(log, SMX_CHECK_CQ_DV_ATTR, NULL,
				  "cqe_comp_res_format 0x%x, it can be one of 0x%x",
				  a->cqe_comp_res_format, SMX_CQE_COMP_FORMATS);
	if (flags & ~(uint32_t)MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD)
		return smx_refuse(log, SMX_CHECK_CQ_DV_ATTR, NULL, "flags 0x%x", flags);
	return 0;
}

struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
				   struct mlx5dv_cq_init_attr *mlx5_attr)
{
	bool pad = mlx5_attr->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_FLAGS &&
		   mlx5_attr->flags & MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD;
	uint32_t size =
		mlx5_attr->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE ? mlx5_attr->cqe_size : 0;
	struct ibv_cq_ex *cq;
	int rc;

	rc = check(mlx5_attr);
	if (rc) {
		errno = rc;
		return NULL;
	}
	cq = smx_vcq_create(context, attr, size);
	if (cq && pad && ((struct smx_vcq *)(void *)cq)->dv.cqe_bytes != 128) {
		rc = smx_refuse(smx_refusals(), SMX_CHECK_CQ_DV_ATTR, NULL,
				"CQE_PAD needs entries of 128 bytes, these have %u",
				((struct smx_vcq *)(void *)cq)->dv.cqe_bytes);
		ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
		errno = rc;
		return NULL;
	}
	return cq;
}
