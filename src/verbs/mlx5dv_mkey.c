/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Indirect memory keys: what mlx5dv_wr_mr_list, _mr_interleaved and _mkey_configure fill in. */
#include <errno.h>
#include <stdlib.h>

#include "base/bits.h"
#include "verbs/objects.h"

enum {
	KNOWN_FLAGS = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
		      MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG |
		      MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE,
};

static int check(const struct mlx5dv_mkey_init_attr *attr)
{
	struct smx_refusal_log *log = smx_refusals();

	if (!attr->pd)
		return smx_refuse(log, SMX_CHECK_OBJECT_ARG, NULL,
				  "mlx5dv_create_mkey: pd is missing");
	if (attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE)
		return smx_refuse(log, SMX_CHECK_MKEY_FLAGS, NULL,
				  "create_flags 0x%x has BLOCK_SIGNATURE", attr->create_flags);
	if (attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO)
		return smx_refuse(log, SMX_CHECK_MKEY_FLAGS, NULL, "create_flags 0x%x has CRYPTO",
				  attr->create_flags);
	if (!attr->create_flags || attr->create_flags & ~(uint32_t)KNOWN_FLAGS)
		return smx_refuse(log, SMX_CHECK_MKEY_FLAGS, NULL, "create_flags 0x%x",
				  attr->create_flags);
	return 0;
}

struct mlx5dv_mkey *mlx5dv_create_mkey(struct mlx5dv_mkey_init_attr *attr)
{
	struct smx_vpd *pd = attr->pd ? smx_vpd_of(attr->pd) : NULL;
	struct smx_mkey_attr dev = { .kind = SMX_MKEY_INDIRECT };
	struct smx_vmkey *vmkey;
	uint32_t key;
	int rc;

	rc = check(attr);
	if (rc) {
		errno = rc;
		return NULL;
	}
	vmkey = calloc(1, sizeof(*vmkey));
	if (!vmkey)
		return NULL;
	dev.pd = pd->dev;
	dev.max_entries =
		(uint32_t)align_up(attr->max_entries, 4); /* a UMR writes them four at a time */
	dev.update_tag = attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG;
	dev.remote_invalidate = attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE;
	smx_engine_lock();
	rc = smx_cmd_create_mkey(smx_engine_dev(), &dev, &vmkey->dev, &key);
	smx_engine_unlock();
	if (rc) {
		free(vmkey);
		errno = rc;
		return NULL;
	}
	attr->max_entries = dev.max_entries > UINT16_MAX ? UINT16_MAX : (uint16_t)dev.max_entries;
	vmkey->dv.dv.lkey = vmkey->dv.dv.rkey = key;
	vmkey->dv.max_entries = dev.max_entries;
	vmkey->pd = pd;
	vmkey->context = attr->pd->context;
	smx_ctx_hold(vmkey->context);
	smx_vpd_hold(pd);
	return &vmkey->dv.dv;
}

int mlx5dv_destroy_mkey(struct mlx5dv_mkey *mkey)
{
	struct smx_vmkey *vmkey = container_of(mkey, struct smx_vmkey, dv.dv);
	struct ibv_context *context = vmkey->context;
	struct smx_vpd *pd = vmkey->pd;
	int rc;

	smx_engine_lock();
	rc = smx_cmd_destroy_mkey(smx_engine_dev(), vmkey->dev);
	smx_engine_unlock();
	if (rc)
		return errno = rc;
	free(vmkey);
	smx_vpd_drop(pd);
	smx_ctx_drop(context);
	return 0;
}

int _mlx5dv_mkey_check(struct mlx5dv_mkey *mkey, struct mlx5dv_mkey_err *err_info,
		       size_t err_info_size)
{
	(void)err_info;
	(void)err_info_size;
	return errno = smx_refuse(smx_refusals(), SMX_CHECK_NOT_OFFERED, NULL,
				  "mlx5dv_mkey_check of mkey 0x%x: signature offload", mkey->lkey);
}
