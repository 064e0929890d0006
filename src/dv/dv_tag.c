/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ibv_post_srq_ops, and the completions of tag matching.
 *
 * The driver says which entry of the device's list an append takes only one append ahead: each names the next
 * free entry, and the first takes entry 0. An entry is free again when every completion that names it was read:
 * that of the append, if it asked for one; that of the message; that of a removal. */
#include "dv/dv_tag.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "dv/recv_wqe.h"
#include "dv/sq_doorbell.h"

enum { SYNC_DIFF_MAX = 0x3fff };	/* unexpected messages that the device may be behind */

#define REFUSE_OP(srq, check, ...) \
	smx_refuse((srq)->refusals, (check), &(struct smx_where){ .qpn = (srq)->tags ? (srq)->tags->cmd->qpn : 0 }, \
		   __VA_ARGS__)

struct smx_dv_tags *smx_dv_tags_create(struct smx_dv_qp *cmd, uint32_t max_tags)
{
	struct smx_dv_tags *tags = calloc(1, sizeof(*tags) + (max_tags + 1) * sizeof(tags->entry[0]));

	if (!tags)
		return NULL;
	tags->cmd = cmd;
	tags->max_tags = max_tags;
	tags->op = calloc(cmd->sq.bb_count, sizeof(*tags->op));
	if (!tags->op) {
		free(tags);
		return NULL;
	}
	for (uint32_t i = 0; i < max_tags; i++)
		tags->entry[i].next = i + 1;
	tags->free_tail = max_tags;
	return tags;
}

void smx_dv_tags_free(struct smx_dv_tags *tags)
{
	if (!tags)
		return;
	free(tags->op);
	free(tags);
}

static void release(struct smx_dv_tags *tags, uint32_t index)
{
	struct smx_dv_tag *t = &tags->entry[index];

	if (!t->expect || --t->expect)
		return;
	tags->entry[tags->free_tail].next = index;
	tags->free_tail = index;
}

/* ------------------------------------------------------------------ posting */

static int check_add(struct smx_dv_srq *srq, const struct ibv_ops_wr *wr)
{
	const struct smx_dv_tags *tags = srq->tags;

	if (wr->tm.add.num_sge < 0 || wr->tm.add.num_sge > 1)
		return REFUSE_OP(srq, SMX_CHECK_POST_RECV_SGE, "wr_id 0x%" PRIx64 " IBV_WR_TAG_ADD with %d SGEs, "
				 "tm_caps.max_sge 1", wr->wr_id, wr->tm.add.num_sge);
	if (wr->tm.add.num_sge && wr->tm.add.sg_list[0].length & SMX_INLINE_SEG)
		return REFUSE_OP(srq, SMX_CHECK_POST_SGE_LENGTH, "wr_id 0x%" PRIx64 " length %" PRIu32, wr->wr_id,
				 wr->tm.add.sg_list[0].length);
	if (tags->free_head == tags->free_tail)
		return REFUSE_OP(srq, SMX_CHECK_POST_TAGS_FULL, "wr_id 0x%" PRIx64 " IBV_WR_TAG_ADD, max_num_tags %"
				 PRIu32, wr->wr_id, tags->max_tags);
	return 0;
}

static int check(struct smx_dv_srq *srq, const struct ibv_ops_wr *wr)
{
	const struct smx_dv_tags *tags = srq->tags;

	if (!smx_sq_has_room(&tags->cmd->sq, 1))
		return REFUSE_OP(srq, SMX_CHECK_POST_SQ_FULL, "wr_id 0x%" PRIx64 ": operations of SRQ 0x%" PRIx32
				 " outstanding %" PRIu32 ", max_ops %" PRIu32, wr->wr_id, srq->srqn,
				 tags->cmd->sq.head - tags->cmd->sq.tail, tags->cmd->sq.max_post);
	if (wr->flags & ~(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC))
		return REFUSE_OP(srq, SMX_CHECK_OBJECT_ARG, "wr_id 0x%" PRIx64 " flags 0x%x", wr->wr_id,
				 (unsigned int)wr->flags);
	switch (wr->opcode) {
	case IBV_WR_TAG_ADD:
		return check_add(srq, wr);
	case IBV_WR_TAG_DEL:
		if (wr->tm.handle < tags->max_tags + 1 && tags->entry[wr->tm.handle].expect)
			return 0;
		return REFUSE_OP(srq, SMX_CHECK_OBJECT_ARG, "wr_id 0x%" PRIx64 " IBV_WR_TAG_DEL of handle %" PRIu32
				 ", which is no tag that was added", wr->wr_id, wr->tm.handle);
	case IBV_WR_TAG_SYNC:
		return 0;
	default:
		return REFUSE_OP(srq, SMX_CHECK_POST_OPCODE, "wr_id 0x%" PRIx64 " opcode %d of ibv_post_srq_ops",
				 wr->wr_id, (int)wr->opcode);
	}
}

/* Takes the first free entry for an add. The device learns which one is next. */
static uint32_t take_entry(struct smx_dv_tags *tags, struct ibv_ops_wr *wr)
{
	uint32_t index = tags->free_head;
	struct smx_dv_tag *t = &tags->entry[index];

	tags->free_head = t->next;
	*t = (struct smx_dv_tag){ .wr_id = wr->tm.add.recv_wr_id, .told = tags->told, .expect = 1 };
	wr->tm.handle = index;
	return index;
}

static void write_add(struct smx_dv_tags *tags, struct smx_wqe_tag *seg, struct smx_wqe_data *data,
		      const struct ibv_ops_wr *wr)
{
	seg->index = to_be16((uint16_t)tags->free_head);
	seg->tag = to_be64(wr->tm.add.tag);
	seg->mask = to_be64(wr->tm.add.mask);
	if (wr->tm.add.num_sge && wr->tm.add.sg_list[0].length)
		smx_recv_put(data, &wr->tm.add.sg_list[0]);
	else
		smx_recv_end(data);
}

static void await(struct smx_dv_tags *tags, const struct ibv_ops_wr *wr, uint32_t entry)
{
	struct smx_dv_sq *sq = &tags->cmd->sq;

	tags->op[tags->op_tail++ & (sq->bb_count - 1)] = (struct smx_dv_tag_op){
		.wr_id = wr->wr_id,
		.entry = entry,
		.head = sq->wr.head,
		.tail_bb = sq->cur_post,
	};
	if (entry != SMX_DV_TAG_NO_ENTRY)
		tags->entry[entry].expect++;
}

static void post_one(struct smx_dv_tags *tags, struct ibv_ops_wr *wr)
{
	struct smx_dv_sq *sq = &tags->cmd->sq;
	uint32_t entry = SMX_DV_TAG_NO_ENTRY;
	struct smx_wqe_ctrl *ctrl;
	struct smx_wqe_tag *seg;
	uint32_t ds = 1 + sizeof(*seg) / SMX_WQE_DS;
	uint8_t op = SMX_TAG_OP_NOP;

	ctrl = smx_wqe_open(tags->cmd, SMX_OP_TAG_MATCHING, 0, to_be32(0), 0, 0, wr->wr_id);
	seg = smx_wqe_seg(sq, 1);
	*seg = (struct smx_wqe_tag){ .flags = wr->flags & IBV_OPS_SIGNALED ? SMX_TAG_CQE : 0 };
	if (wr->flags & IBV_OPS_TM_SYNC) {
		seg->flags |= SMX_TAG_SW_COUNT;
		seg->sw_count = to_be16((uint16_t)wr->tm.unexpected_cnt);
		tags->told = (uint16_t)wr->tm.unexpected_cnt;
	}
	if (wr->opcode == IBV_WR_TAG_ADD) {
		op = SMX_TAG_OP_APPEND;
		entry = take_entry(tags, wr);
		write_add(tags, seg, smx_wqe_seg(sq, ds++), wr);
	} else if (wr->opcode == IBV_WR_TAG_DEL) {
		op = SMX_TAG_OP_REMOVE;
		entry = wr->tm.handle;
		seg->index = to_be16((uint16_t)entry);
	}
	seg->op = (uint8_t)(op << 4);
	sq->wr.last = ctrl;
	smx_wqe_close(sq, ctrl, ds, 0);
	if (wr->flags & IBV_OPS_SIGNALED)
		await(tags, wr, entry);
	else if (wr->opcode == IBV_WR_TAG_DEL)	/* nobody will say whether a message was faster */
		release(tags, entry);
}

int smx_dv_post_srq_ops(struct ibv_srq *ibsrq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad_wr)
{
	struct smx_dv_srq *srq = smx_dv_srq_of(ibsrq);
	struct smx_dv_tags *tags = srq->tags;
	struct smx_dv_sq *sq;
	bool any;
	int err = 0;

	if (!tags) {
		*bad_wr = wr;
		return REFUSE_OP(srq, SMX_CHECK_OBJECT_ARG, "ibv_post_srq_ops on SRQ 0x%" PRIx32
				 ", which does not match tags", srq->srqn);
	}
	sq = &tags->cmd->sq;
	smx_dv_lock(&srq->lock);
	for (; wr; wr = wr->next) {
		err = check(srq, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
		post_one(tags, wr);
	}
	any = sq->wr.head != sq->head;
	if (any)
		smx_sq_doorbell(tags->cmd);
	smx_dv_unlock(&srq->lock);
	if (any)
		smx_sq_ring(tags->cmd);
	return err;
}

/* ------------------------------------------------------------------ completions */

/* A message met an entry. */
static enum smx_cq_result take_match(struct smx_dv_srq *srq, const struct smx_cqe64 *cqe, uint64_t *wr_id)
{
	struct smx_dv_tags *tags = srq->tags;
	uint16_t index = from_be16(cqe->app_info);

	if (index > tags->max_tags || !tags->entry[index].expect)
		return SMX_CQ_UNKNOWN;
	*wr_id = tags->entry[index].wr_id;
	if (cqe->app_op != SMX_CQE_TAG_CONSUMED && cqe->app_op != SMX_CQE_TAG_CONSUMED_SW_RNDV)
		release(tags, index);
	return SMX_CQ_DONE;
}

/* An operation on the list. They complete in the order of posting. */
static enum smx_cq_result take_op(struct smx_dv_cq *cq, struct smx_dv_srq *srq, const struct smx_cqe64 *cqe,
				  uint64_t *wr_id, enum ibv_wc_status *status)
{
	const struct smx_tag_cqe *head = (const struct smx_tag_cqe *)(const void *)cqe;
	struct smx_dv_tags *tags = srq->tags;
	struct smx_dv_sq *sq = &tags->cmd->sq;
	const struct smx_dv_tag_op *op;
	bool removed = false;

	if (tags->op_head == tags->op_tail)
		return SMX_CQ_UNKNOWN;
	op = &tags->op[tags->op_head++ & (sq->bb_count - 1)];
	if (cqe->app_op == SMX_CQE_TAG_REMOVE) {
		removed = from_be32(head->success) & SMX_TAG_SUCCESS;
		*status = removed ? IBV_WC_SUCCESS : IBV_WC_TM_ERR;
	}
	if (op->entry != SMX_DV_TAG_NO_ENTRY) {
		if (from_be16(head->hw_count) != tags->entry[op->entry].told)
			cq->cur_tag_flags |= IBV_WC_TM_SYNC_REQ;
		release(tags, op->entry);
		if (removed)	/* no message will meet it */
			release(tags, op->entry);
	}
	*wr_id = op->wr_id;
	__atomic_store_n(&sq->tail_bb, op->tail_bb, __ATOMIC_RELEASE);
	__atomic_store_n(&sq->tail, op->head, __ATOMIC_RELEASE);
	return SMX_CQ_DONE;
}

enum smx_cq_result smx_cq_take_tag(struct smx_dv_cq *cq, struct smx_dv_srq *srq, const struct smx_cqe64 *cqe,
				   uint64_t *wr_id, enum ibv_wc_status *status)
{
	enum smx_cq_result r = SMX_CQ_DONE;
	uint16_t index = from_be16(cqe->wqe_counter);

	if (!srq || !srq->tags)
		return SMX_CQ_UNKNOWN;
	*status = IBV_WC_SUCCESS;
	if (cqe->app_op == SMX_CQE_TAG_NO_TAG || cqe->app_op == SMX_CQE_TAG_UNEXPECTED) {
		if (index >= srq->wqe_count)
			return SMX_CQ_UNKNOWN;
		*wr_id = srq->wr_id[index];
		smx_dv_srq_free_wqe(srq, index);
	}
	smx_dv_lock(&srq->lock);
	switch (cqe->app_op) {
	case SMX_CQE_TAG_CONSUMED_SW_RNDV:
	case SMX_CQE_TAG_CONSUMED_MSG_SW_RNDV:
	case SMX_CQE_TAG_CANCELED:
		*status = IBV_WC_TM_RNDV_INCOMPLETE;
		/* fallthrough */
	case SMX_CQE_TAG_CONSUMED:
	case SMX_CQE_TAG_CONSUMED_MSG:
	case SMX_CQE_TAG_EXPECTED:
		if (cqe->app_op != SMX_CQE_TAG_EXPECTED)
			cq->cur_tag_flags |= IBV_WC_TM_MATCH;
		if (cqe->app_op != SMX_CQE_TAG_CONSUMED && cqe->app_op != SMX_CQE_TAG_CONSUMED_SW_RNDV)
			cq->cur_tag_flags |= IBV_WC_TM_DATA_VALID;
		r = take_match(srq, cqe, wr_id);
		break;
	case SMX_CQE_TAG_APPEND:
	case SMX_CQE_TAG_REMOVE:
	case SMX_CQE_TAG_NOP:
		r = take_op(cq, srq, cqe, wr_id, status);
		break;
	case SMX_CQE_TAG_UNEXPECTED:
		srq->tags->unexpected++;
		if ((uint16_t)(srq->tags->unexpected - srq->tags->told) > SYNC_DIFF_MAX)
			cq->cur_tag_flags |= IBV_WC_TM_SYNC_REQ;
		break;
	case SMX_CQE_TAG_NO_TAG:
		break;
	default:
		r = SMX_CQ_SKIP;
		break;
	}
	smx_dv_unlock(&srq->lock);
	return r;
}

uint32_t smx_cq_tag_opcode(const struct smx_cqe64 *cqe)
{
	switch (cqe->app_op) {
	case SMX_CQE_TAG_APPEND:
		return IBV_WC_TM_ADD;
	case SMX_CQE_TAG_REMOVE:
		return IBV_WC_TM_DEL;
	case SMX_CQE_TAG_NOP:
		return IBV_WC_TM_SYNC;
	case SMX_CQE_TAG_NO_TAG:
		return IBV_WC_TM_NO_TAG;
	default:
		return IBV_WC_TM_RECV;
	}
}
