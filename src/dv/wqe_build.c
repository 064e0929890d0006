/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The parts of building a send work request that are not worth inlining: byte runs, signatures,
 * refusals, and the batch between ibv_wr_start and ibv_wr_complete. */
#include "dv/sq_doorbell.h"

#include <errno.h>
#include <inttypes.h>

#include "trace/state_name.h"

__thread __attribute__((tls_model("initial-exec"))) char smx_this_thread;

void smx_sq_write(const struct smx_dv_sq *sq, uint32_t bb, uint32_t off, const void *src, size_t n)
{
	size_t ring = (size_t)sq->bb_count * SMX_WQE_BB;
	size_t at = ((size_t)bb * SMX_WQE_BB + off) & (ring - 1);
	size_t first = n < ring - at ? n : ring - at;

	if (!src) {
		memset(sq->buf + at, 0, first);
		memset(sq->buf, 0, n - first);
		return;
	}
	if (!n)
		return;		/* an empty buffer may have no address */
	memcpy(sq->buf + at, src, first);
	if (n > first)
		memcpy(sq->buf, (const uint8_t *)src + first, n - first);
}

/* ~XOR of the WQE's bytes, so that all of them together XOR to 0xff. */
static uint8_t signature(const struct smx_dv_sq *sq, uint32_t bb, uint32_t ds)
{
	struct smx_cursor cur = smx_cursor_at(sq, smx_sq_seg(sq, bb, 0));
	uint64_t x = 0, word[2];

	while (ds--) {
		memcpy(word, smx_cursor_next(&cur), sizeof(word));
		x ^= word[0] ^ word[1];
	}
	x ^= x >> 32;
	x ^= x >> 16;
	x ^= x >> 8;
	return (uint8_t)~x;
}

void smx_sq_sign(struct smx_dv_qp *qp)
{
	const struct smx_dv_sq *sq = &qp->sq;
	uint32_t at = sq->posted_bb;

	while (at != sq->cur_post) {
		struct smx_wqe_ctrl *ctrl = smx_sq_seg(sq, at, 0);
		uint32_t ds = smx_wqe_ds(ctrl);

		ctrl->signature = signature(sq, at, ds);
		at += smx_wqe_blocks(ds);
	}
}

/* In one piece. */
static void inline_straight(uint8_t *seg, be32 head, const struct smx_inline_src *src, size_t n, uint32_t padded)
{
	memset(seg + padded - SMX_WQE_DS, 0, SMX_WQE_DS);
	memcpy(seg, &head, sizeof(head));
	seg += sizeof(head);
	for (size_t i = 0; i < n; i++) {
		if (src[i].length)	/* an empty buffer may have no address */
			memcpy(seg, src[i].addr, src[i].length);
		seg += src[i].length;
	}
}

/* Round the ring's end; off: of the WQE, in bytes. */
static void inline_wrapped(const struct smx_dv_sq *sq, uint32_t off, be32 head, const struct smx_inline_src *src,
			   size_t n, uint32_t padded)
{
	smx_sq_write(sq, sq->cur_post, off + padded - SMX_WQE_DS, NULL, SMX_WQE_DS);
	smx_sq_write(sq, sq->cur_post, off, &head, sizeof(head));
	off += sizeof(head);
	for (size_t i = 0; i < n; i++) {
		smx_sq_write(sq, sq->cur_post, off, src[i].addr, src[i].length);
		off += (uint32_t)src[i].length;
	}
}

/* Zeros come first: the pad never reaches beyond the segment that the last byte is in. */
uint32_t smx_wqe_put_inline(const struct smx_dv_sq *sq, uint32_t ds, const struct smx_inline_src *src, size_t n,
			    size_t total)
{
	be32 head = to_be32((uint32_t)total | SMX_INLINE_SEG);
	uint32_t padded = smx_inline_ds(total) * SMX_WQE_DS;
	uint8_t *seg = smx_wqe_seg(sq, ds);

	if (seg + padded <= sq->end)
		inline_straight(seg, head, src, n, padded);
	else
		inline_wrapped(sq, ds * SMX_WQE_DS, head, src, n, padded);
	return padded / SMX_WQE_DS;
}

int smx_sq_failed(struct smx_dv_qp *qp, int err)
{
	if (qp->sq.wr.open.state == SMX_WR_OUTSIDE)
		return err;
	if (!qp->sq.wr.err)
		qp->sq.wr.err = err;
	qp->sq.wr.open.state = SMX_WR_FAILED;
	qp->sq.wr.mkey = NULL;
	return err;
}

int smx_sq_refuse_missing(struct smx_dv_qp *qp)
{
	const struct smx_dv_slot *slot = smx_sq_slot(&qp->sq, qp->sq.cur_post);
	uint8_t need = qp->sq.wr.open.state;

	if (need & SMX_NEED_ADDR)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_DC_ADDR, "wr_id 0x%" PRIx64 " has no %s%s", slot->wr_id,
				     qp->kind == SMX_DV_UD ? "ibv_wr_set_ud_addr" :
				     qp->kind == SMX_DV_DCI ? "mlx5dv_wr_set_dc_addr" : "ibv_wr_set_xrc_srqn",
				     need & SMX_NEED_DATA ? " and no data setter" : "");
	if (need & SMX_NEED_MKEY)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SETTER, "wr_id 0x%" PRIx64
				     ": the mkey configuration lacks %u of its setters", slot->wr_id,
				     qp->sq.wr.open.mkey_setters_left);
	return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SETTER, "wr_id 0x%" PRIx64
			     " has no ibv_wr_set_sge, _sge_list, _inline_data or _inline_data_list", slot->wr_id);
}

int smx_sq_refuse_full(struct smx_dv_qp *qp, uint32_t bb)
{
	const struct smx_dv_sq *sq = &qp->sq;

	return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SQ_FULL, "outstanding %u, in this batch %u, capacity %u; free "
			     "blocks %u, needed %u",
			     sq->head - __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE), sq->wr.head - sq->head,
			     sq->max_post,
			     sq->bb_count ? smx_sq_free_bb(sq) : 0, bb);
}

void smx_sq_refuse_setter(struct smx_dv_qp *qp, const char *name)
{
	if (qp->sq.wr.open.state == SMX_WR_OUTSIDE)
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_NOT_STARTED, "%s outside ibv_wr_start", name);
	else if (!qp->sq.wr.err)
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SETTER, "%s: no open request waits for it", name);
}

bool smx_wr_make_ready(struct smx_dv_qp *qp, bool allowed, const char *name)
{
	if (qp->sq.wr.open.state == SMX_WR_OUTSIDE)
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_NOT_STARTED, "%s outside ibv_wr_start", name);
	else if (qp->sq.wr.err)
		return false;		/* the first failure counts */
	else if (qp->sq.wr.open.state & SMX_NEED_ALL)
		(void)smx_sq_refuse_missing(qp);
	else if (!allowed)
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_OPS_FLAGS, "%s, send_ops_flags 0x%" PRIx64
				    ", of mlx5dv 0x%" PRIx64, name, qp->send_ops, qp->dv_ops);
	else if (smx_sq_may_add(&qp->sq))
		return true;
	else
		(void)smx_sq_refuse_full(qp, qp->sq.wqe_bb);
	return false;
}

int smx_sq_refuse_sge_length(struct smx_dv_qp *qp, size_t i, uint32_t length)
{
	return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SGE_LENGTH, "sge[%zu].length %" PRIu32, i, length);
}

bool smx_sq_look_for_room(struct smx_dv_sq *sq)
{
	uint32_t used = sq->wr.head - __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE), free_bb = smx_sq_free_bb(sq);
	uint32_t room = used < sq->max_post ? sq->max_post - used : 0, wqe_bb = sq->wqe_bb;

	if ((uint64_t)room * wqe_bb > free_bb)
		room = free_bb / wqe_bb;
	sq->wr.limit = sq->wr.head + room;
	return room;
}

bool smx_sq_wait(struct smx_dv_sq *sq)
{
	uintptr_t me = (uintptr_t)&smx_this_thread;

	if (!sq->lock.needed || __atomic_load_n(&sq->lock.word, __ATOMIC_RELAXED) == me)
		return false;
	smx_dv_wait_lock(&sq->lock, me);
	return true;
}

SMX_INLINE void batch_begin(struct smx_dv_sq *sq)
{
	sq->wr.fm_cache_rollback = sq->fm_cache;
	sq->wr.open.state = SMX_WR_READY;
}

static void batch_roll_back(struct smx_dv_sq *sq)
{
	sq->cur_post = sq->posted_bb;
	sq->wr.head = sq->head;
	sq->fm_cache = sq->wr.fm_cache_rollback;
	sq->wr.err = 0;
}

SMX_INLINE void batch_end(struct smx_dv_sq *sq)
{
	sq->wr.open = (struct smx_wr_open){ .state = SMX_WR_OUTSIDE };
	smx_dv_unlock(&sq->lock);
}

static SMX_SELDOM_CALLED void start_later(struct smx_dv_qp *qp)
{
	if (smx_sq_wait(&qp->sq)) {
		batch_begin(&qp->sq);
		return;
	}
	batch_roll_back(&qp->sq);	/* its lock is ours already */
	batch_begin(&qp->sq);
	(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_BATCH_OPEN, "ibv_wr_start was called again");
}

void smx_wr_start(struct ibv_qp_ex *ex)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	if (smx_sq_try_enter(&qp->sq))
		batch_begin(&qp->sq);
	else
		start_later(qp);
}

/* Posts what there is. */
SMX_INLINE int complete(struct smx_dv_qp *qp)
{
	if (qp->sq.wr.head == qp->sq.head) {
		batch_end(&qp->sq);
		return 0;
	}
	smx_sq_doorbell(qp);
	batch_end(&qp->sq);
	smx_sq_ring(qp);
	return 0;
}

/* A batch that cannot be posted, one whose WQEs are signed, or none at all. */
static SMX_SELDOM_CALLED int complete_odd(struct smx_dv_qp *qp)
{
	struct smx_dv_sq *sq = &qp->sq;
	bool can_post = __atomic_load_n(&qp->can_post, __ATOMIC_RELAXED);
	int err;

	if (sq->wr.open.state == SMX_WR_OUTSIDE)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_NOT_STARTED, "ibv_wr_complete without ibv_wr_start");
	if (sq->wr.open.state == SMX_WR_READY && can_post) {
		smx_sq_sign(qp);
		return complete(qp);
	}
	if (sq->wr.open.state & SMX_NEED_ALL)
		(void)smx_sq_refuse_missing(qp);
	err = sq->wr.err;
	if (!can_post)
		err = SMX_SQ_REFUSE(qp, SMX_CHECK_POST_STATE, "state %s, requests in the batch %u",
				    smx_state_name(__atomic_load_n(&qp->ex.qp_base.state, __ATOMIC_RELAXED)),
				    sq->wr.head - sq->head);
	batch_roll_back(sq);
	batch_end(sq);
	return err;
}

int smx_wr_complete(struct ibv_qp_ex *ex)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	if (qp->sq.wr.open.state != SMX_WR_READY || !__atomic_load_n(&qp->can_post, __ATOMIC_RELAXED) || qp->wq_sig)
		return complete_odd(qp);
	return complete(qp);
}

void smx_wr_abort(struct ibv_qp_ex *ex)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	if (qp->sq.wr.open.state == SMX_WR_OUTSIDE) {
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_NOT_STARTED, "ibv_wr_abort without ibv_wr_start");
		return;
	}
	batch_roll_back(&qp->sq);
	batch_end(&qp->sq);
}
