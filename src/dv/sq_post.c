/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ibv_post_send and ibv_bind_mw: lists of requests, built as ibv_wr_* does. A request that is refused leaves
 * no trace; those before it are posted. */
#include "dv/sq_doorbell.h"

#include <errno.h>
#include <inttypes.h>

#include "trace/state_name.h"

enum shape { SHAPE_NONE, SHAPE_SEND, SHAPE_RDMA, SHAPE_ATOMIC, SHAPE_BIND, SHAPE_INVALIDATE };

#define KIND(k) (1u << SMX_DV_##k)
#define KINDS_RELIABLE (KIND(RC) | KIND(XRC_INI))
#define KINDS_CONNECTED (KINDS_RELIABLE | KIND(UC))

enum imm { IMM_ZERO, IMM_DATA, IMM_RKEY };	/* the control segment's last word */

static const struct __attribute__((aligned(8))) post_op {
	uint8_t shape;		/* enum shape */
	uint8_t op;		/* enum smx_wqe_op */
	uint8_t kinds;		/* that take it here; a DCI has no way to name its target */
	uint8_t ds;		/* without address and data */
	uint8_t imm;		/* enum imm */
} post_ops[] = {
	[IBV_WR_RDMA_WRITE] = { SHAPE_RDMA, SMX_OP_RDMA_WRITE, KINDS_CONNECTED, 2, IMM_ZERO },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { SHAPE_RDMA, SMX_OP_RDMA_WRITE_IMM, KINDS_CONNECTED, 2, IMM_DATA },
	[IBV_WR_SEND] = { SHAPE_SEND, SMX_OP_SEND, KINDS_CONNECTED | KIND(UD), 1, IMM_ZERO },
	[IBV_WR_SEND_WITH_IMM] = { SHAPE_SEND, SMX_OP_SEND_IMM, KINDS_CONNECTED | KIND(UD), 1, IMM_DATA },
	[IBV_WR_RDMA_READ] = { SHAPE_RDMA, SMX_OP_RDMA_READ, KINDS_RELIABLE, 2, IMM_ZERO },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = { SHAPE_ATOMIC, SMX_OP_ATOMIC_CS, KINDS_RELIABLE, 3, IMM_ZERO },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { SHAPE_ATOMIC, SMX_OP_ATOMIC_FA, KINDS_RELIABLE, 3, IMM_ZERO },
	[IBV_WR_LOCAL_INV] = { SHAPE_INVALIDATE, SMX_OP_UMR, KINDS_CONNECTED | KIND(DCI), 8, IMM_RKEY },
	[IBV_WR_BIND_MW] = { SHAPE_BIND, SMX_OP_UMR, KINDS_CONNECTED | KIND(DCI), 12, IMM_ZERO },
	[IBV_WR_SEND_WITH_INV] = { SHAPE_SEND, SMX_OP_SEND_INVAL, KINDS_CONNECTED, 1, IMM_RKEY },
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

/* Messages and RDMA of a connected queue pair, as far as their SGEs are sure to fit. */
uint32_t smx_plain_ops(const struct smx_dv_qp *qp)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < SMX_COUNT(post_ops); i++) {
		const struct post_op *op = &post_ops[i];

		if ((op->shape == SHAPE_SEND || op->shape == SHAPE_RDMA) && op->kinds >> qp->kind & 1 &&
		    !qp->addr_ds && op->ds + qp->sq.max_gs <= qp->sq.wqe_bb * SMX_DS_PER_BB)
			mask |= 1u << i;
	}
	return mask;
}

/* Segments that the request's data takes, or -errno after a refusal. */
static int data_ds(struct smx_dv_qp *qp, const struct ibv_send_wr *wr)
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
	return total ? (int)smx_inline_ds(total) : 0;
}

static int check_room(struct smx_dv_qp *qp, const struct ibv_send_wr *wr, uint32_t ds)
{
	struct smx_dv_sq *sq = &qp->sq;
	uint32_t bb = smx_wqe_blocks(ds);

	/* Only an operation that was left out of send_ops_flags can need more than the size planned. */
	if (ds > SMX_WQE_DS_MAX)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SGE, "wr_id 0x%" PRIx64 " needs a WQE of %" PRIu32
				     " segments, the longest is %d", wr->wr_id, ds, SMX_WQE_DS_MAX);
	if (bb <= sq->wqe_bb)
		return smx_sq_may_add(sq) ? 0 : smx_sq_refuse_full(qp, sq->wqe_bb);
	return smx_sq_has_room(sq, bb) ? 0 : smx_sq_refuse_full(qp, bb);
}

/* All that can be refused, in libmlx5's order. */
static int check(struct smx_dv_qp *qp, const struct ibv_send_wr *wr)
{
	const struct post_op *op;
	int err, ds = 0;

	if (!takes_op(qp, wr))
		return refuse_op(qp, wr);
	op = &post_ops[wr->opcode];
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
		ds = data_ds(qp, wr);
		if (ds < 0)
			return -ds;
	}
	return check_room(qp, wr, op->ds + qp->addr_ds + (uint32_t)ds);
}
static be32 control_imm(const struct ibv_send_wr *wr, const struct post_op *op)
{
	return op->imm == IMM_DATA ? smx_raw_be32(wr->imm_data) : to_be32(wr->invalidate_rkey);
}

/* RETURN the segments from ds on that were written. */
static uint32_t put_inline(struct smx_dv_sq *sq, uint32_t ds, const struct ibv_send_wr *wr)
{
	struct smx_inline_src src[SMX_WQE_DS_MAX];	/* max_gs is smaller */
	size_t total = 0;

	if (wr->num_sge)
		sq->wr.open.have = SMX_HAVE_INLINE;
	for (int i = 0; i < wr->num_sge; i++) {
		src[i] = (struct smx_inline_src){ (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length };
		total += src[i].length;
	}
	return total ? smx_wqe_put_inline(sq, ds, src, (size_t)wr->num_sge, total) : 0;
}

static void put_addr(struct smx_dv_qp *qp, struct smx_cursor *at, const struct ibv_send_wr *wr)
{
	void *seg = smx_cursor_take(at, qp->addr_ds);	/* of the same block */

	if (qp->kind == SMX_DV_UD)
		smx_seg_av_ud(seg, wr->wr.ud.ah, wr->wr.ud.remote_qkey, wr->wr.ud.remote_qpn);
	else
		smx_seg_xrc(seg, wr->qp_type.xrc.remote_srqn);
}

static void put_atomic(struct smx_cursor *at, const struct ibv_send_wr *wr)
{
	bool swap = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	smx_seg_raddr(smx_cursor_next(at), wr->wr.atomic.remote_addr, wr->wr.atomic.rkey);
	smx_seg_atomic(smx_cursor_next(at), swap ? wr->wr.atomic.swap : wr->wr.atomic.compare_add,
		       swap ? wr->wr.atomic.compare_add : 0);
}

/* The whole request, for which there is room. RETURN false if an SGE is too long. */
SMX_INLINE bool put(struct smx_dv_qp *qp, const struct ibv_send_wr *wr, bool plain)
{
	const struct post_op *op = &post_ops[wr->opcode];
	be32 imm = SMX_SELDOM(op->imm) ? control_imm(wr, op) : to_be32(0);
	struct smx_wqe_ctrl *ctrl = smx_wqe_open(qp, op->op, 0, imm, wr->send_flags, 0, wr->wr_id);
	struct smx_cursor at = smx_cursor_at(&qp->sq, ctrl + 1);
	bool atomic = !plain && op->shape == SHAPE_ATOMIC;
	uint32_t ds = op->ds;

	if (!plain && qp->addr_ds) {
		put_addr(qp, &at, wr);
		ds += qp->addr_ds;
	}
	if (op->shape == SHAPE_RDMA)
		smx_seg_raddr(smx_cursor_next(&at), wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
	else if (atomic)
		put_atomic(&at, wr);
	if (!plain && wr->send_flags & IBV_SEND_INLINE) {
		ds += put_inline(&qp->sq, ds, wr);
	} else {
		const struct ibv_sge *sge = wr->sg_list;

		for (int left = wr->num_sge; left > 0; left--, sge++) {
			if (SMX_SELDOM((int32_t)sge->length <= 0)) {
				if (sge->length)
					return false;
				continue;
			}
			if (atomic)
				smx_seg_data(smx_cursor_next(&at), sge->addr, 8, sge->lkey);
			else
				smx_seg_sge(smx_cursor_next(&at), sge);
			ds++;
		}
	}
	qp->sq.wr.last = ctrl;
	smx_wqe_close(&qp->sq, ctrl, ds, 0);
	return true;
}

/* A request that is refused, or is not plain. */
static __attribute__((noinline)) int post_odd(struct smx_dv_qp *qp, const struct ibv_send_wr *wr)
{
	int err = check(qp, wr);

	if (err)
		return err;
	if (wr->opcode == IBV_WR_BIND_MW)
		smx_wqe_bind(qp, wr->send_flags, wr->wr_id, wr->bind_mw.mw->type, wr->bind_mw.mw->rkey,
			     wr->bind_mw.rkey, &wr->bind_mw.bind_info);
	else if (wr->opcode == IBV_WR_LOCAL_INV)
		smx_wqe_invalidate(qp, wr->send_flags, wr->wr_id, wr->invalidate_rkey);
	else
		(void)put(qp, wr, false);
	if (smx_wqe_ds(qp->sq.wr.last) > qp->sq.wqe_bb * SMX_DS_PER_BB)
		smx_sq_oversized(&qp->sq);
	return 0;
}

/* plain_ops: bit n of them says that opcode n is plain. RETURN 0, or an errno after a refusal. */
SMX_INLINE int post_one(struct smx_dv_qp *qp, const struct ibv_send_wr *wr, uint32_t plain_ops)
{
	unsigned int opcode = wr->opcode;

	if (opcode < 32 && plain_ops >> opcode & 1 && !(wr->send_flags & IBV_SEND_INLINE) &&
	    (uint32_t)wr->num_sge <= qp->sq.max_gs && qp->sq.wr.limit != qp->sq.wr.head && put(qp, wr, true))
		return 0;
	return post_odd(qp, wr);
}

static SMX_SELDOM_CALLED int refuse_inside(struct smx_dv_qp *qp)
{
	return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_BATCH_OPEN, "ibv_post_send inside ibv_wr_start");
}

int smx_dv_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct smx_dv_qp *qp = smx_dv_qp_of(ibqp);
	struct smx_dv_sq *sq = &qp->sq;
	uint32_t plain_ops;
	int err = 0;
	bool any;

	if (!smx_sq_try_enter(sq) && !smx_sq_wait(sq)) {
		*bad_wr = wr;
		return refuse_inside(qp);
	}
	plain_ops = __atomic_load_n(&qp->can_post, __ATOMIC_RELAXED) ? qp->plain_ops : 0;
	for (; wr; wr = wr->next) {
		err = post_one(qp, wr, plain_ops);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	any = sq->wr.head != sq->head;
	if (any && qp->wq_sig)
		smx_sq_sign(qp);
	if (any)
		smx_sq_doorbell(qp);
	sq->wr.open.have = 0;
	smx_dv_unlock(&sq->lock);
	if (any)
		smx_sq_ring(qp);
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
