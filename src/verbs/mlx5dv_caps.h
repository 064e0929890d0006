/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What mlx5dv_query_device reports and creation calls hold to. */
#ifndef SMX_VERBS_MLX5DV_CAPS_H
#define SMX_VERBS_MLX5DV_CAPS_H

#include <infiniband/mlx5dv.h>

/* Of newer headers than the one this is built with: what follows struct mlx5dv_context, and its mask. */
enum {
	SMX_CONTEXT_MASK_MAX_DC_RD_ATOM = 1 << 14,
	SMX_CONTEXT_MASK_OOO_RECV_WRS = 1 << 16,
	SMX_CONTEXT_MASK_ALL = (1 << 17) - 1,
	SMX_QP_CREATE_OOO_DP = 1 << 7,
};

struct smx_newer_context {
	struct mlx5dv_context old;
	uint64_t max_dc_rd_atom, max_dc_init_rd_atom;
	struct { uint32_t value, mask; } reg_c0;
	struct { uint32_t max_rc, max_xrc, max_dct, max_ud, max_uc; } ooo_recv_wrs;
};

enum {
	SMX_DCI_LOG_STREAMS_MAX = 8,
	SMX_DCI_LOG_ERRORED_MAX = 5,

	/* With OOO_DP a ring of receives may be half as long: an mlx5 needs the other half to place data out of
	 * order. This device always places in order, which the flag allows too. */
	SMX_OOO_MAX_RECV_WR = 16384,

	/* When completions are compressed is a device's choice. This one writes each in full, so a
	 * queue with any of the formats reads like one without. */
	SMX_CQE_COMP_FORMATS = MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM |
			       MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX,
	SMX_CQE_COMP_MAX = 64, /* completions that one compressed block may stand for */
};

#endif
