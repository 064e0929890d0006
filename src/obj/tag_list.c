/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "obj/tag_list.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

struct smx_tag_list *smx_tag_list_create(uint32_t count)
{
	struct smx_tag_list *list;

	assert(is_pow2(count) && count < SMX_TAG_NONE);
	list = calloc(1, sizeof(*list) + count * sizeof(list->entry[0]));
	if (!list)
		return NULL;
	list->count = count;
	list->head = list->tail = SMX_TAG_NONE;
	return list;
}

static void append(struct smx_tag_list *list, uint16_t index, const struct smx_tag_op *op)
{
	struct smx_tag *t = &list->entry[index];

	*t = (struct smx_tag){
		.tag = op->tag,
		.mask = op->mask,
		.sge = op->sge,
		.used = true,
		.ready = list->told == list->unexpected,
		.next = SMX_TAG_NONE,
		.prev = list->tail,
	};
	if (list->tail == SMX_TAG_NONE)
		list->head = index;
	else
		list->entry[list->tail].next = index;
	list->tail = index;
}

static void take_out(struct smx_tag_list *list, uint16_t index)
{
	struct smx_tag *t = &list->entry[index];

	assert(t->used);
	if (t->prev == SMX_TAG_NONE)
		list->head = t->next;
	else
		list->entry[t->prev].next = t->next;
	if (t->next == SMX_TAG_NONE)
		list->tail = t->prev;
	else
		list->entry[t->next].prev = t->prev;
	t->used = false;
}

uint16_t smx_tag_match(struct smx_tag_list *list, uint64_t tag)
{
	for (uint16_t at = list->head; at != SMX_TAG_NONE; at = list->entry[at].next) {
		const struct smx_tag *t = &list->entry[at];

		if (!t->ready)	/* nor is any behind it */
			return SMX_TAG_NONE;
		if ((tag & t->mask) == t->tag) {
			take_out(list, at);
			return at;
		}
	}
	return SMX_TAG_NONE;
}

static void take_count(struct smx_tag_list *list, uint16_t told)
{
	list->told = told;
	if (told != list->unexpected)
		return;
	for (uint16_t at = list->tail; at != SMX_TAG_NONE && !list->entry[at].ready; at = list->entry[at].prev)
		list->entry[at].ready = true;
}

static void complete(struct smx_dev *dev, struct smx_qp *qp, uint8_t app_op, uint16_t index, bool success)
{
	struct smx_srq *srq = qp->attr.srq;
	const struct smx_tag_cqe head = {
		.success = to_be32(success ? SMX_TAG_SUCCESS : 0),
		.hw_count = to_be16(srq->tags->unexpected),
	};
	struct smx_cqe64 cqe = {
		.srqn_uidx = to_be32(srq->srqn),
		.app = SMX_CQE_APP_TAG,
		.app_op = app_op,
		.app_info = to_be16(index),
		.sop_drop_qpn = to_be32(qp->qpn),
		.op_own = SMX_CQE_NO_PACKET << 4,
	};

	memcpy(&cqe, &head, sizeof(head));
	smx_cq_put(dev, srq->attr.cq, &cqe, NULL);
}

static smx_outcome execute_append(struct smx_dev *dev, struct smx_tag_list *list, const struct smx_tag_op *op,
				  const struct smx_where *where)
{
	if (op->index < list->count && !list->entry[list->append_at].used) {
		append(list, list->append_at, op);
		list->append_at = op->index;
		return SMX_CHECK_NONE;
	}
	smx_refuse(dev->attr.env.refusals, SMX_CHECK_WQE_TAG_INDEX, where,
		   "an append to entry %u%s, the next to entry %u; the list has %" PRIu32, list->append_at,
		   list->entry[list->append_at].used ? ", which is in use" : "", op->index, list->count);
	return SMX_CHECK_WQE_TAG_INDEX;
}

smx_outcome smx_tag_execute(struct smx_dev *dev, struct smx_qp *qp, const struct smx_tag_op *op,
			    const struct smx_where *where)
{
	struct smx_tag_list *list = qp->attr.srq->tags;
	uint8_t app_op = SMX_CQE_TAG_NOP;
	uint16_t index = 0;
	bool success = true;
	smx_outcome check;

	if (op->flags & SMX_TAG_SW_COUNT)
		take_count(list, op->sw_count);
	switch (op->op) {
	case SMX_TAG_OP_APPEND:
		app_op = SMX_CQE_TAG_APPEND;
		index = list->append_at;
		check = execute_append(dev, list, op, where);
		if (check)
			return check;
		break;
	case SMX_TAG_OP_REMOVE:
		app_op = SMX_CQE_TAG_REMOVE;
		index = op->index;
		/* A message may have taken it since the program asked. */
		success = index < list->count && list->entry[index].used;
		if (success)
			take_out(list, index);
		break;
	default:
		assert(op->op == SMX_TAG_OP_NOP);
		break;
	}
	if (op->flags & SMX_TAG_CQE)
		complete(dev, qp, app_op, index, success);
	return SMX_CHECK_NONE;
}
