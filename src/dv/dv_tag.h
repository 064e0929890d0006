/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A tag matching SRQ as its driver sees it: the entries of the list, the queue pair that operations on the list
 * are posted to, and which of those have not completed. The SRQ's lock guards all of it. */
#ifndef SMX_DV_TAG_H
#define SMX_DV_TAG_H

#include "dv/cq_parse.h"

struct smx_dv_tag {
	uint64_t wr_id;		/* of its receive */
	uint32_t next;		/* free: the next free one */
	uint16_t told;		/* unexpected messages that the device had been told of when it was posted */
	uint8_t expect;		/* completions that will name it; 0: free */
};

/* A list operation that asked for a completion. */
struct smx_dv_tag_op {
	uint64_t wr_id;
	uint32_t entry;		/* SMX_DV_TAG_NO_ENTRY: a sync */
	uint32_t head, tail_bb;	/* of the command queue behind it */
};
#define SMX_DV_TAG_NO_ENTRY UINT32_MAX

struct smx_dv_tags {
	struct smx_dv_qp *cmd;
	uint32_t max_tags;
	uint32_t free_head, free_tail;	/* entries; the last one stays free, so that there is always a next */
	uint32_t op_head, op_tail;
	uint16_t unexpected;	/* as completions said */
	uint16_t told;
	struct smx_dv_tag_op *op;	/* cmd's sq.bb_count of them */
	struct smx_dv_tag entry[];	/* max_tags + 1 */
};

/* RETURN NULL without memory. Freed by smx_dv_tags_free(). */
struct smx_dv_tags *smx_dv_tags_create(struct smx_dv_qp *cmd, uint32_t max_tags);
void smx_dv_tags_free(struct smx_dv_tags *tags);

int smx_dv_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad_wr);

/* Is it about a matching list, rather than an ordinary receive? */
static inline bool smx_cqe_is_tag(const struct smx_cqe64 *cqe)
{
	uint8_t op = smx_cqe_op(cqe);

	return cqe->app == SMX_CQE_APP_TAG && (op == SMX_CQE_NO_PACKET || (op >= SMX_CQE_RESP_SEND &&
									    op <= SMX_CQE_RESP_SEND_INV));
}

/* Takes over such a CQE, as smx_cq_take() does; sets cq->cur_tag_flags. */
enum smx_cq_result smx_cq_take_tag(struct smx_dv_cq *cq, struct smx_dv_srq *srq, const struct smx_cqe64 *cqe,
				   uint64_t *wr_id, enum ibv_wc_status *status);
uint32_t smx_cq_tag_opcode(const struct smx_cqe64 *cqe);

#endif
