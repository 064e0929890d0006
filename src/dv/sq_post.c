/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ibv_post_send and ibv_bind_mw: lists of requests, built as ibv_wr_* does. A request that is refused leaves
 * no trace; those before it are posted. */
#include "dv/wqe_build.h"

#include <errno.h>
#include <inttypes.h>

#include "trace/state_name.h"

enum shape { SHAPE_NONE, SHAPE_SEND, SHAPE_RDMA, SHAPE_ATOMIC, SHAPE_BIND, SHAPE_INVALIDATE };

#define KIND(k) (1u << SMX_DV_##k)
#define KINDS_RELIABLE (KIND(RC) | KIND(XRC_INI))
#define KINDS_CONNECTED (KINDS_RELIABLE | KIND(UC))

enum imm { IMM_ZERO, IMM_DATA, IMM_RKEY, IMM_WINDOW };	/* the control segment's last word */

static const struct post_op {
	uint8_t shape;		/* enum shape */
	uint8_t op;		/* enum smx_wqe_op */
	uint8_t kinds;		/* that take it here; a DCI has no way to name its target */
	uint8_t ds;		/* without address and data */
	uint8_t imm;		/* enum imm */
	uint8_t wr_data;
} post_ops[] = {
	[IBV_WR_RDMA_WRITE] = { SHAPE_RDMA, SMX_OP_RDMA_WRITE, KINDS_CONNECTED, 2, 0, 0 },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { SHAPE_RDMA, SMX_OP_RDMA_WRITE_IMM, KINDS_CONNECTED, 2, IMM_DATA, 0 },
	[IBV_WR_SEND] = { SHAPE_SEND, SMX_OP_SEND, KINDS_CONNECTED | KIND(UD), 1, 0, 0 },
	[IBV_WR_SEND_WITH_IMM] = { SHAPE_SEND, SMX_OP_SEND_IMM, KINDS_CONNECTED | KIND(UD), 1, IMM_DATA, 0 },
	[IBV_WR_RDMA_READ] = { SHAPE_RDMA, SMX_OP_RDMA_READ, KINDS_RELIABLE, 2, 0, 0 },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = { SHAPE_ATOMIC, SMX_OP_ATOMIC_CS, KINDS_RELIABLE, 3, 0, 0 },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { SHAPE_ATOMIC, SMX_OP_ATOMIC_FA, KINDS_RELIABLE, 3, 0, 0 },
	[IBV_WR_LOCAL_INV] = { SHAPE_INVALIDATE, SMX_OP_UMR, KINDS_CONNECTED | KIND(DCI), 8, IMM_RKEY,
			       IBV_WC_LOCAL_INV },
	[IBV_WR_BIND_MW] = { SHAPE_BIND, SMX_OP_UMR, KINDS_CONNECTED | KIND(DCI), 12, IMM_WINDOW, IBV_WC_BIND_MW },
	[IBV_WR_SEND_WITH_INV] = { SHAPE_SEND, SMX_OP_SEND_INVAL, KINDS_CONNECTED, 1, IMM_RKEY, 0 },
};

static bool takes_op(const struct smx_dv_qp *qp, const struct ibv_send_wr *wr)
{
	return (unsigned int)wr->opcode < SMX_COUNT(post_ops) && post_ops[wr->opcode].kinds >> qp->kind & 1;
}

static __attribute__((noinline)) int refuse_op(struct smx_dv_qp *qp, const struct ibv_send_wr *wr)
{
	if ((unsigned int)wr->opcode >= SMX_COUNT(post_ops) ||
	    post_ops[wr->opcode].shape == SHAPE_NONE)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_OPCODE, "wr_id 0x%" PRIx64 " opcode %d", wr->wr_id,
				     (int)wr->opcode);
	if (qp->kind == SMX_DV_DCI)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_DC_ADDR, "wr_id 0x%" PRIx64 " opcode %d: ibv_post_send "
				     "cannot name a DCT, mlx5dv_wr_set_dc_addr can", wr->wr_id, (int)wr->opcode);
	return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_OPCODE, "wr_id 0x%" PRIx64 " opcode %d on a queue pair of kind %d",
			     wr->wr_id, (int)wr->opcode, (int)qp->kind);
}

/* Segments that the request's data takes, or -errno after a refusal. *inline_bytes is their sum with
 * IBV_SEND_INLINE. */
SMX_INLINE int data_ds(struct smx_dv_qp *qp, const struct ibv_send_wr *wr, size_t *inline_bytes)
{
	size_t total = 0;

	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		for (int i = 0; i < wr->num_sge; i++) {
			if (wr->sg_list[i].length & SMX_INLINE_SEG)
				return -smx_sq_refuse_sge_length(qp, (size_t)i, wr->sg_list[i].length);
		}
		return wr->num_sge;
	}
	for (int i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	if (total > qp->sq.max_inline)
		return -SMX_SQ_REFUSE(qp, SMX_CHECK_POST_INLINE, "wr_id 0x%" PRIx64 " inline data %zu, "
				      "max_inline_data %" PRIu32, wr->wr_id, total, qp->sq.max_inline);
	*inline_bytes = total;
	return total ? (int)((total + sizeof(struct smx_wqe_inline) + SMX_WQE_DS - 1) / SMX_WQE_DS) : 0;
}

SMX_INLINE int check_room(struct smx_dv_qp *qp, const struct ibv_send_wr *wr, uint32_t ds)
{
	struct smx_dv_sq *sq = &qp->sq;
	uint32_t bb = (ds + SMX_DS_PER_BB - 1) / SMX_DS_PER_BB, sized = smx_sq_wqe_bb(sq);

	/* Only an operation that was left out of send_ops_flags can need more than the size planned. */
	if (ds > SMX_WQE_DS_MAX)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SGE, "wr_id 0x%" PRIx64 " needs a WQE of %" PRIu32
				     " segments, the longest is %d", wr->wr_id, ds, SMX_WQE_DS_MAX);
	if (bb <= sized)
		return smx_sq_may_add(sq) ? 0 : smx_sq_refuse_full(qp, sized);
	if (!smx_sq_has_room(sq, bb))
		return smx_sq_refuse_full(qp, bb);
	smx_sq_oversized(sq);
	return 0;
}

/* All that can be refused, in libmlx5's order. */
SMX_INLINE int check(struct smx_dv_qp *qp, const struct ibv_send_wr *wr, const struct post_op *op,
		     size_t *inline_bytes)
{
	int err, ds = 0;

	if (!__atomic_load_n(&qp->can_post, __ATOMIC_RELAXED)) {
		/* libmlx5 answers as if no SGE fitted, so the code is not the rule's own. */
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_STATE, "state %s, wr_id 0x%" PRIx64,
				    smx_state_name(__atomic_load_n(&qp->ex.qp_base.state, __ATOMIC_RELAXED)),
				    wr->wr_id);
		return ENOMEM;
	}
	if (!smx_sq_may_add(&qp->sq) && !smx_sq_has_room(&qp->sq, 1))
		return smx_sq_refuse_full(qp, 1);
	if ((uint32_t)wr->num_sge > qp->sq.max_gs)	/* a negative one too */
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SGE, "wr_id 0x%" PRIx64 " %d SGEs, max_send_sge %" PRIu32,
				     wr->wr_id, wr->num_sge, qp->sq.max_gs);
	if (op->shape == SHAPE_ATOMIC && !qp->atomics)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_ATOMIC, "wr_id 0x%" PRIx64 " opcode %d", wr->wr_id,
				     (int)wr->opcode);
	if (qp->kind == SMX_DV_UD && !wr->wr.ud.ah)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_DC_ADDR, "wr_id 0x%" PRIx64 ": wr.ud.ah is NULL",
				     wr->wr_id);
	if (op->shape == SHAPE_BIND) {
		if (!wr->bind_mw.mw)
			return SMX_SQ_REFUSE(qp, SMX_CHECK_OBJECT_ARG, "wr_id 0x%" PRIx64 ": bind_mw.mw is NULL",
					     wr->wr_id);
		err = smx_wqe_check_bind(qp, &wr->bind_mw.bind_info);
		if (err)
			return err;
	} else if (op->shape != SHAPE_INVALIDATE) {
		ds = data_ds(qp, wr, inline_bytes);
		if (ds < 0)
			return -ds;
	}
	return check_room(qp, wr, op->ds + smx_addr_ds(qp->kind) + (uint32_t)ds);
}

SMX_INLINE void put_addr(struct smx_dv_qp *qp, const struct ibv_send_wr *wr)
{
	struct smx_wqe_av *av;

	if (qp->kind == SMX_DV_UD) {
		av = smx_wqe_put(&qp->sq, sizeof(*av) / SMX_WQE_DS);
		*av = container_of(wr->wr.ud.ah, struct smx_dv_ah, ibv)->av;
		av->qkey = to_be32(wr->wr.ud.remote_qkey);
		av->dqp_dct = to_be32(wr->wr.ud.remote_qpn | SMX_AV_EXTENDED);
	} else if (qp->kind == SMX_DV_XRC_INI) {
		*(struct smx_wqe_xrc *)smx_wqe_put(&qp->sq, 1) =
			(struct smx_wqe_xrc){ .srqn = to_be32(wr->qp_type.xrc.remote_srqn) };
	}
}

static __attribute__((noinline)) void put_inline(struct smx_dv_sq *sq, const struct ibv_send_wr *wr, size_t bytes)
{
	struct smx_inline_src src[SMX_WQE_DS_MAX];	/* max_gs is smaller */

	if (wr->num_sge)
		sq->wr.inline_seen = true;
	if (!bytes)
		return;
	for (int i = 0; i < wr->num_sge; i++)
		src[i] = (struct smx_inline_src){ (void *)(uintptr_t)wr->sg_list[i].addr,
						  wr->sg_list[i].length };
	smx_wqe_put_inline(sq, src, (size_t)wr->num_sge, bytes);
}

SMX_INLINE void put_data(struct smx_dv_sq *sq, const struct ibv_send_wr *wr, bool atomic)
{
	struct smx_cursor at = smx_cursor_at(sq, sq->cur_post, sq->wr.ds);
	uint32_t ds = sq->wr.ds;

	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (!sge->length)
			continue;
		smx_seg_data(smx_cursor_next(&at), sge->addr, atomic ? 8 : sge->length, sge->lkey);
		ds++;
	}
	sq->wr.ds = ds;
}

static void put_window(struct smx_dv_qp *qp, const struct ibv_send_wr *wr, bool bind)
{
	if (bind)
		smx_wqe_put_bind(qp, wr->bind_mw.mw->type, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
	else
		smx_wqe_put_bind(qp, IBV_MW_TYPE_2, 0, &(struct ibv_mw_bind_info){ 0 });
}

SMX_INLINE be32 control_imm(const struct ibv_send_wr *wr, const struct post_op *op)
{
	switch ((enum imm)op->imm) {
	case IMM_DATA:
		return smx_raw_be32(wr->imm_data);
	case IMM_RKEY:
		return to_be32(wr->invalidate_rkey);
	case IMM_WINDOW:
		return to_be32(wr->bind_mw.mw->rkey);
	default:
		return to_be32(0);
	}
}

SMX_INLINE int post_one(struct smx_dv_qp *qp, const struct ibv_send_wr *wr)
{
	const struct post_op *op;
	size_t inline_bytes = 0;
	int err;

	if (!takes_op(qp, wr))
		return refuse_op(qp, wr);
	op = &post_ops[wr->opcode];
	err = check(qp, wr, op, &inline_bytes);
	if (err)
		return err;
	smx_wqe_open(qp, op->op, control_imm(wr, op), wr->send_flags, op->wr_data, wr->wr_id, 1);
	switch ((enum shape)op->shape) {
	case SHAPE_BIND:
	case SHAPE_INVALIDATE:
		put_window(qp, wr, op->shape == SHAPE_BIND);
		smx_wqe_close(qp, qp->sq.wr.ds);
		qp->sq.fm_cache = SMX_CTRL_SMALL_FENCE;
		return 0;
	case SHAPE_RDMA:
		put_addr(qp, wr);
		smx_wqe_put_raddr(&qp->sq, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
		break;
	case SHAPE_ATOMIC:
		put_addr(qp, wr);
		smx_wqe_put_raddr(&qp->sq, wr->wr.atomic.remote_addr, wr->wr.atomic.rkey);
		if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
			smx_wqe_put_atomic(&qp->sq, wr->wr.atomic.swap, wr->wr.atomic.compare_add);
		else
			smx_wqe_put_atomic(&qp->sq, wr->wr.atomic.compare_add, 0);
		break;
	default:
		put_addr(qp, wr);
		break;
	}
	if (wr->send_flags & IBV_SEND_INLINE)
		put_inline(&qp->sq, wr, inline_bytes);
	else
		put_data(&qp->sq, wr, op->shape == SHAPE_ATOMIC);
	smx_wqe_close(qp, qp->sq.wr.ds);
	return 0;
}

int smx_dv_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct smx_dv_qp *qp = smx_dv_qp_of(ibqp);
	struct smx_dv_sq *sq = &qp->sq;
	bool any;
	int err = 0;

	if (smx_wr_inside(qp)) {
		*bad_wr = wr;
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_BATCH_OPEN, "ibv_post_send inside ibv_wr_start");
	}
	smx_dv_lock(&sq->lock);
	sq->wr.head = sq->head;
	sq->wr.err = 0;
	sq->wr.inline_seen = false;
	for (; wr; wr = wr->next) {
		err = post_one(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	any = sq->wr.head != sq->head;
	if (any)
		smx_sq_doorbell(qp);
	smx_dv_unlock(&sq->lock);
	if (any && qp->ring_sq)
		qp->ring_sq(qp);
	return err;
}

int smx_dv_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct smx_dv_qp *qp = smx_dv_qp_of(ibqp);
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = bind->bind_info },
	}, *bad;
	int err;

	if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)
		return smx_refuse(qp->refusals, SMX_CHECK_MR_ACCESS,
				  &(struct smx_where){ .qpn = qp->qpn, .cookie = qp },
				  "a type 1 window cannot be zero-based, mw_access_flags 0x%x",
				  bind->bind_info.mw_access_flags);
	err = smx_dv_post_send(ibqp, &wr, &bad);
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
	return err;
}
