/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5 direct verbs of a device and a context: opening, capabilities, clock, port, doorbell pages,
 * device memory, reserved queue pair numbers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/settings.h"
#include "verbs/ibv_qp_plan.h"

/* Of newer headers than the one this is built with. */
#define CONTEXT_FLAGS_BLUEFLAME	    (1u << 8)
#define UAR_ALLOC_TYPE_NC_DEDICATED (1u << 31)

enum {
	DC_ODP_CAPS = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
		      IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV,
	DYNAMIC_BFREGS = 1024,
	UAR_BF_OFFSET = 0x800, /* of the BlueFlame register in its page */
};

bool mlx5dv_is_supported(struct ibv_device *device)
{
	return device != NULL; /* every device of this library is an mlx5 */
}

struct ibv_context *mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr)
{
	if (attr && (attr->comp_mask || attr->flags & ~(uint32_t)MLX5DV_CONTEXT_FLAGS_DEVX)) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_ATTR_MASK, NULL,
				   "mlx5dv_open_device flags 0x%x, comp_mask 0x%llx", attr->flags,
				   (unsigned long long)attr->comp_mask);
		return NULL;
	}
	if (attr && attr->flags & MLX5DV_CONTEXT_FLAGS_DEVX) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_DEVX, NULL,
				   "mlx5dv_open_device flags 0x%x", attr->flags);
		return NULL;
	}
	return smx_ctx_open(device);
}

/* A program asks only for what its header's structure has; one that asks for everything there could be cannot mean
 * that. RETURN what of it is given. */
static uint64_t fill_newer(struct smx_newer_context *out, uint64_t asked)
{
	if (asked > SMX_CONTEXT_MASK_ALL)
		return 0;
	if (asked & SMX_CONTEXT_MASK_MAX_DC_RD_ATOM)
		out->max_dc_rd_atom = out->max_dc_init_rd_atom = SMX_MAX_RD_ATOMIC;
	if (asked & SMX_CONTEXT_MASK_OOO_RECV_WRS) {
		out->ooo_recv_wrs.max_rc = out->ooo_recv_wrs.max_uc = SMX_OOO_MAX_RECV_WR;
		out->ooo_recv_wrs.max_ud = SMX_OOO_MAX_RECV_WR;
		out->ooo_recv_wrs.max_xrc = out->ooo_recv_wrs.max_dct = SMX_MAX_SRQ_WR;
	}
	return SMX_CONTEXT_MASK_MAX_DC_RD_ATOM | SMX_CONTEXT_MASK_OOO_RECV_WRS;
}

/* Fills in what the program's comp_mask asks for and leaves the rest alone: the structure of an
 * older header ends earlier. Signature, crypto, software parsing and striding are reported as
 * absent. */
int mlx5dv_query_device(struct ibv_context *context, struct mlx5dv_context *out)
{
	uint64_t asked = out->comp_mask, given = 0;

	(void)context;
	out->version = 0;
	out->flags = MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP | MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD | CONTEXT_FLAGS_BLUEFLAME;
	if (asked & MLX5DV_CONTEXT_MASK_CQE_COMPRESION)
		out->cqe_comp_caps = (struct mlx5dv_cqe_comp_caps){
			.max_num = SMX_CQE_COMP_MAX,
			.supported_format = SMX_CQE_COMP_FORMATS,
		};
	if (asked & MLX5DV_CONTEXT_MASK_SWP)
		out->sw_parsing_caps = (struct mlx5dv_sw_parsing_caps){ 0 };
	if (asked & MLX5DV_CONTEXT_MASK_STRIDING_RQ)
		out->striding_rq_caps = (struct mlx5dv_striding_rq_caps){ 0 };
	if (asked & MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS)
		out->tunnel_offloads_caps = 0;
	if (asked & MLX5DV_CONTEXT_MASK_DYN_BFREGS)
		out->max_dynamic_bfregs = DYNAMIC_BFREGS;
	if (asked & MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE)
		out->max_clock_info_update_nsec = UINT64_MAX / 2;
	if (asked & MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS)
		out->flow_action_flags = 0;
	if (asked & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS)
		out->dc_odp_caps = DC_ODP_CAPS;
	if (asked & MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD)
		out->sig_caps = (struct mlx5dv_sig_caps){ 0 };
	if (asked & MLX5DV_CONTEXT_MASK_DCI_STREAMS)
		out->dci_streams_caps = (struct mlx5dv_dci_streams_caps){
			.max_log_num_concurent = SMX_DCI_LOG_STREAMS_MAX,
			.max_log_num_errored = SMX_DCI_LOG_ERRORED_MAX,
		};
	if (asked & MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH)
		out->max_wr_memcpy_length = smx_setting_number(SMX_SET_MEMCPY_MAX);
	if (asked & MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD)
		out->crypto_caps = (struct mlx5dv_crypto_caps){ 0 };

	given = fill_newer((struct smx_newer_context *)(void *)out, asked) |
		MLX5DV_CONTEXT_MASK_CQE_COMPRESION | MLX5DV_CONTEXT_MASK_SWP |
		MLX5DV_CONTEXT_MASK_STRIDING_RQ | MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS |
		MLX5DV_CONTEXT_MASK_DYN_BFREGS | MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE |
		MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS | MLX5DV_CONTEXT_MASK_DC_ODP_CAPS |
		MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD | MLX5DV_CONTEXT_MASK_DCI_STREAMS |
		MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH | MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD;
	out->comp_mask = asked & given;
	return 0;
}

/* There is no switch behind the port, so no field is valid: flags says so. */
int _mlx5dv_query_port(struct ibv_context *context, uint32_t port_num, struct mlx5dv_port *info,
		       size_t info_len)
{
	(void)context;
	if (port_num != 1)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
					  "port %u, the device has port 1", port_num);
	memset(info, 0, info_len);
	return 0;
}

/* The device counts nanoseconds of the monotonic clock; one pair of readings relates it to the time
 * of day. */
int mlx5dv_get_clock_info(struct ibv_context *context, struct mlx5dv_clock_info *info)
{
	struct timespec real;

	(void)context;
	clock_gettime(CLOCK_REALTIME, &real);
	*info = (struct mlx5dv_clock_info){
		.nsec = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec,
		.last_cycles = smx_clock_ns(),
		.mult = 1,
		.mask = UINT64_MAX,
	};
	return 0;
}

int mlx5dv_set_context_attr(struct ibv_context *context, enum mlx5dv_set_ctx_attr_type type,
			    void *attr)
{
	const struct mlx5dv_ctx_allocators *a = attr;

	if (type != MLX5DV_CTX_ATTR_BUF_ALLOCATORS)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_NOT_OFFERED, NULL,
					  "mlx5dv_set_context_attr type %d", (int)type);
	if (!a || !a->alloc != !a->free)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
					  "an allocator needs both alloc and free");
	smx_ctx_of(context)->allocators = *a;
	return 0;
}

struct uar {
	struct mlx5dv_devx_uar dv;
	struct ibv_context *context;
	struct smx_uar_page page;
};

/* A page of doorbell registers. A store to it makes the device look at the doorbell records of every
 * queue that a program was given. */
struct mlx5dv_devx_uar *mlx5dv_devx_alloc_uar(struct ibv_context *context, uint32_t flags)
{
	static uint32_t last_page;
	struct uar *uar;
	int err;

	if (flags & ~(MLX5DV_UAR_ALLOC_TYPE_NC | UAR_ALLOC_TYPE_NC_DEDICATED)) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_ATTR_MASK, NULL,
				   "mlx5dv_devx_alloc_uar flags 0x%x", flags);
		return NULL;
	}
	uar = calloc(1, sizeof(*uar));
	if (!uar)
		return NULL;
	err = smx_uar_page_map(&uar->page, 1, true);
	if (err) {
		free(uar);
		errno = err;
		return NULL;
	}
	smx_engine_uar_given(&uar->page);
	uar->dv.base_addr = uar->page.base;
	uar->dv.reg_addr = uar->page.base + UAR_BF_OFFSET;
	uar->dv.page_id = __atomic_add_fetch(&last_page, 1, __ATOMIC_RELAXED);
	uar->context = context;
	smx_ctx_hold(context);
	return &uar->dv;
}

void mlx5dv_devx_free_uar(struct mlx5dv_devx_uar *dv)
{
	struct uar *uar = container_of(dv, struct uar, dv);
	struct ibv_context *context = uar->context;

	smx_engine_uar_gone(&uar->page);
	smx_uar_page_unmap(&uar->page);
	free(uar);
	smx_ctx_drop(context);
}

struct ibv_dm *mlx5dv_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr,
			       struct mlx5dv_alloc_dm_attr *mlx5_attr)
{
	if (mlx5_attr->type != MLX5DV_DM_TYPE_MEMIC) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_NOT_OFFERED, NULL,
				   "mlx5dv_alloc_dm type %d: steering memory",
				   (int)mlx5_attr->type);
		return NULL;
	}
	if (mlx5_attr->comp_mask) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_ATTR_MASK, NULL,
				   "mlx5dv_alloc_dm comp_mask 0x%llx",
				   (unsigned long long)mlx5_attr->comp_mask);
		return NULL;
	}
	return smx_vdm_create(context, attr);
}

int mlx5dv_reserved_qpn_alloc(struct ibv_context *context, uint32_t *qpn)
{
	int rc;

	(void)context;
	smx_engine_lock();
	rc = smx_cmd_reserve_qpn(smx_engine_dev(), qpn);
	smx_engine_unlock();
	return rc ? errno = rc : 0;
}

int mlx5dv_reserved_qpn_dealloc(struct ibv_context *context, uint32_t qpn)
{
	int rc;

	(void)context;
	smx_engine_lock();
	rc = smx_cmd_unreserve_qpn(smx_engine_dev(), qpn);
	smx_engine_unlock();
	return rc ? errno = rc : 0;
}
