/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tag matching: the headers of messages, the segment of list operations, what stands in completions.
 *
 * Source: <infiniband/tm_types.h> struct ibv_tmh, ibv_rvh; <infiniband/mlx5dv.h> struct mlx5_wqe_tm_seg,
 * mlx5_tm_cqe; tests/abi compares. The codes in CQEs are those that libmlx5 and UCX read. */
#ifndef SMX_HW_TAG_H
#define SMX_HW_TAG_H

#include "base/be.h"

enum smx_tmh_op { SMX_TMH_NO_TAG, SMX_TMH_RNDV, SMX_TMH_FIN, SMX_TMH_EAGER };

/* The first bytes of a tagged message; a copy of them begins the CQE of a message that matched. */
struct smx_tmh {
	uint8_t op;	/* enum smx_tmh_op */
	uint8_t rsvd[3];
	be32 app_ctx;
	be64 tag;
};
SMX_SIZE(struct smx_tmh, 16);
SMX_AT(struct smx_tmh, tag, 8);

/* Behind it in a rendezvous: where the payload lies. */
struct smx_rvh {
	be64 va;
	be32 rkey;
	be32 length;
};
SMX_SIZE(struct smx_rvh, 16);

/* List operation, after the control segment; an append has a data segment behind it. */
struct smx_wqe_tag {
	uint8_t op;	/* [7:4] enum smx_tag_op_code */
	uint8_t flags;	/* SMX_TAG_* */
	be16 index;	/* remove: which entry; append: the one that the next append takes */
	uint8_t rsvd0[2];
	be16 sw_count;
	uint8_t rsvd1[8];
	be64 tag;
	be64 mask;
};
SMX_SIZE(struct smx_wqe_tag, 32);
SMX_AT(struct smx_wqe_tag, sw_count, 6);
SMX_AT(struct smx_wqe_tag, tag, 16);

enum smx_tag_op_code { SMX_TAG_OP_NOP, SMX_TAG_OP_APPEND, SMX_TAG_OP_REMOVE };
enum {
	SMX_TAG_SW_COUNT = 1 << 6,	/* sw_count is valid */
	SMX_TAG_CQE = 1 << 7,		/* a completion is asked for */
};

/* The first bytes of a list operation's CQE. */
struct smx_tag_cqe {
	be32 success;	/* SMX_TAG_SUCCESS */
	be16 hw_count;
	uint8_t rsvd[10];
};
SMX_SIZE(struct smx_tag_cqe, 16);
#define SMX_TAG_SUCCESS 0x80000000u

/* smx_cqe64.app of all of these, and .app_op. .app_info is the entry's index. */
enum { SMX_CQE_APP_TAG = 1 };
enum smx_cqe_tag_op {
	SMX_CQE_TAG_CONSUMED = 0x1,	/* matched; SMX_CQE_TAG_EXPECTED follows with the data */
	SMX_CQE_TAG_EXPECTED = 0x2,
	SMX_CQE_TAG_UNEXPECTED = 0x3,
	SMX_CQE_TAG_NO_TAG = 0x4,
	SMX_CQE_TAG_APPEND = 0x5,
	SMX_CQE_TAG_REMOVE = 0x6,
	SMX_CQE_TAG_NOP = 0x7,
	SMX_CQE_TAG_CONSUMED_SW_RNDV = 0x9,
	SMX_CQE_TAG_CONSUMED_MSG = 0xa,		/* matched, with all its data */
	SMX_CQE_TAG_CONSUMED_MSG_SW_RNDV = 0xb,	/* matched, and the program has to fetch the payload */
	SMX_CQE_TAG_CANCELED = 0xc,		/* matched, and the data will not come */
};

#endif
