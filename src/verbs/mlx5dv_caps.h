/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What mlx5dv_query_device reports and creation calls hold to. */
#ifndef SMX_VERBS_MLX5DV_CAPS_H
#define SMX_VERBS_MLX5DV_CAPS_H

#include <infiniband/mlx5dv.h>

enum {
	SMX_DCI_LOG_STREAMS_MAX = 8,
	SMX_DCI_LOG_ERRORED_MAX = 5,

	/* When completions are compressed is a device's choice. This one writes each in full, so a
	 * queue with any of the formats reads like one without. */
	SMX_CQE_COMP_FORMATS = MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM |
			       MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX,
	SMX_CQE_COMP_MAX = 64, /* completions that one compressed block may stand for */
};

#endif
