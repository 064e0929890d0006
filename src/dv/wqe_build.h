/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The one way to build a send work request, used by ibv_wr_*, mlx5dv_wr_* and ibv_post_send.
 *
 * smx_wqe_open() claims the blocks and writes the control segment, smx_wqe_put_*() append segments,
 * smx_wqe_close() fills in the length and moves the producer. Whatever can refuse comes before open. What a
 * request lacks is in sq->wr.state; the setter that supplies the last of it closes the request. The batch is
 * visible to the device only when smx_sq_doorbell() runs. */
#ifndef SMX_WQE_BUILD_H
#define SMX_WQE_BUILD_H

#include "base/bits.h"
#include "dv/wqe_cursor.h"

/* sq->wr.state: 0 between batches. A builder may go on when it is exactly SMX_WR_OPEN. */
enum {
	SMX_NEED_DATA = 1, SMX_NEED_ADDR = 2, SMX_NEED_MKEY = 4,	/* setters that the open request lacks */
	SMX_NEED_ALL = SMX_NEED_DATA | SMX_NEED_ADDR | SMX_NEED_MKEY,
	SMX_WR_OPEN = 0x10, SMX_WR_FAILED = 0x20,
};
/* sq->wr.mkey_have */
enum { SMX_HAVE_ACCESS = 1, SMX_HAVE_LAYOUT = 2 };
enum { SMX_ADDR_AT_DS = 1 };	/* the address segment of every kind that has one */

#define SMX_INLINE static inline __attribute__((always_inline))
#define SMX_SELDOM(condition) __builtin_expect(!!(condition), 0)

/* The first failure of a batch is its result; the open request is dropped. RETURN err. */
__attribute__((cold)) int smx_sq_failed(struct smx_dv_qp *qp, int err);

/* Refuses something on a send queue and fails the batch. Its value is the errno. */
#define SMX_SQ_REFUSE(qp, check, ...)								\
	smx_sq_failed((qp), smx_refuse((qp)->refusals, (check),					\
				       &(struct smx_where){ .qpn = (qp)->qpn, .cookie = (qp),	\
					       .wqe_index = (uint16_t)(qp)->sq.cur_post },	\
				       __VA_ARGS__))

/* Cold: the open request lacks setters; there is no room; a setter was called that nothing waits for. */
__attribute__((cold)) int smx_sq_refuse_missing(struct smx_dv_qp *qp);
__attribute__((cold)) int smx_sq_refuse_full(struct smx_dv_qp *qp, uint32_t bb);
__attribute__((cold)) void smx_sq_refuse_setter(struct smx_dv_qp *qp, const char *name);

/* Segments between control and the rest: address vector, XRC, or none. */
static inline uint32_t smx_addr_ds(enum smx_dv_qp_kind kind)
{
	static const uint8_t ds[] = {
		[SMX_DV_UD] = sizeof(struct smx_wqe_av) / SMX_WQE_DS,
		[SMX_DV_DCI] = sizeof(struct smx_wqe_av) / SMX_WQE_DS,
		[SMX_DV_XRC_INI] = sizeof(struct smx_wqe_xrc) / SMX_WQE_DS,
		[SMX_DV_DCT] = 0,
	};

	return ds[kind];
}

static inline struct smx_dv_slot *smx_sq_slot(const struct smx_dv_sq *sq, uint32_t bb)
{
	return &sq->slot[bb & (sq->bb_count - 1)];
}

/* Blocks that every request may use; a raw WQE may be longer where there is room. */
static inline uint32_t smx_sq_wqe_bb(struct smx_dv_sq *sq)
{
	if (!sq->wqe_bb && sq->max_post)
		sq->wqe_bb = sq->bb_count / sq->max_post;
	return sq->wqe_bb;
}

static inline uint32_t smx_sq_free_bb(const struct smx_dv_sq *sq)
{
	return sq->bb_count - (sq->cur_post - __atomic_load_n(&sq->tail_bb, __ATOMIC_ACQUIRE));
}

/* Room for one more request of bb blocks. Counting requests is enough until a WQE is longer than what
 * the queue was sized for; hence the blocks too. */
static inline bool smx_sq_has_room(const struct smx_dv_sq *sq, uint32_t bb)
{
	uint32_t tail = __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE);

	return sq->wr.head - tail < sq->max_post && bb <= smx_sq_free_bb(sq);
}

/* Works out how many requests of the planned size there is room for, so that it need not be asked for each.
 * RETURN whether there is any. */
bool smx_sq_look_for_room(struct smx_dv_sq *sq);

static inline bool smx_sq_may_add(struct smx_dv_sq *sq)
{
	return (int32_t)(sq->wr.limit - sq->wr.head) > 0 || smx_sq_look_for_room(sq);
}

/* A request took more than the planned size: what was worked out holds no longer. */
static inline void smx_sq_oversized(struct smx_dv_sq *sq)
{
	sq->wr.limit = sq->wr.head;
}

/* A segment as two big-endian words. Whole words, because the UAR copy and the device read them back at once,
 * and a load that spans several smaller stores has to wait for all of them. */
static inline void smx_seg_set(void *seg, uint64_t first, uint64_t second)
{
	be64 *word = seg;

	word[0] = to_be64(first);
	word[1] = to_be64(second);
}

/* fm_ce_se of enum ibv_send_flags' lowest three: fence, signaled, solicited. */
SMX_INLINE uint8_t smx_wqe_fm(struct smx_dv_qp *qp, uint32_t flags)
{
	static const uint8_t of_flags[] = {
		[IBV_SEND_FENCE] = SMX_CTRL_FENCE,
		[IBV_SEND_SIGNALED] = SMX_CTRL_CQ_UPDATE,
		[IBV_SEND_FENCE | IBV_SEND_SIGNALED] = SMX_CTRL_FENCE | SMX_CTRL_CQ_UPDATE,
		[IBV_SEND_SOLICITED] = SMX_CTRL_SOLICITED,
		[IBV_SEND_SOLICITED | IBV_SEND_FENCE] = SMX_CTRL_SOLICITED | SMX_CTRL_FENCE,
		[IBV_SEND_SOLICITED | IBV_SEND_SIGNALED] = SMX_CTRL_SOLICITED | SMX_CTRL_CQ_UPDATE,
		[IBV_SEND_SOLICITED | IBV_SEND_SIGNALED | IBV_SEND_FENCE] =
			SMX_CTRL_SOLICITED | SMX_CTRL_CQ_UPDATE | SMX_CTRL_FENCE,
	};
	uint8_t fm = of_flags[(flags | qp->always_flags) & 7];

	if (qp->sq.fm_cache) {
		if (!(flags & IBV_SEND_FENCE))
			fm |= qp->sq.fm_cache;
		qp->sq.fm_cache = 0;
	}
	return fm;
}

/* Begins a request for which there is room. opmod_op: [31:24] opmod, [7:0] enum smx_wqe_op; wr_data as in struct
 * smx_dv_slot; ds: segments that are written or left out by the time the next is put. RETURN its control
 * segment, which lacks only the length; the rest of its block lies behind it. */
SMX_INLINE struct smx_wqe_ctrl *smx_wqe_open(struct smx_dv_qp *qp, uint32_t opmod_op, be32 imm, uint32_t flags,
					     uint32_t wr_data, uint64_t wr_id, uint32_t ds)
{
	struct smx_dv_sq *sq = &qp->sq;
	uint32_t at = sq->cur_post, index = at & (sq->bb_count - 1), head = sq->wr.head;
	struct smx_dv_slot *slot = &sq->slot[index];
	struct smx_wqe_ctrl *ctrl = (void *)(sq->buf + (size_t)index * SMX_WQE_BB);

	slot->wr_id = wr_id;
	slot->head = head;
	slot->wr_data = wr_data;
	slot->stream = 0;
	sq->wr.head = head + 1;
	sq->wr.slot = slot;
	sq->wr.ctrl = ctrl;
	sq->wr.ds = ds;
	ctrl->opmod_idx_opcode = to_be32(opmod_op | (at & 0xffff) << 8);
	/* signature 0, stream 0, fm_ce_se, imm */
	((be64 *)(void *)ctrl)[1] = to_be64((uint64_t)smx_wqe_fm(qp, flags) << 32 | from_be32(imm));
	return ctrl;
}

/* Segment ds of the open request. */
static inline void *smx_wqe_seg(const struct smx_dv_sq *sq, uint32_t ds)
{
	return smx_sq_seg(sq, sq->cur_post, ds);
}

static inline void *smx_wqe_put(struct smx_dv_sq *sq, uint32_t count)
{
	uint32_t ds = sq->wr.ds;

	sq->wr.ds = ds + count;
	return smx_wqe_seg(sq, ds);
}

static inline void smx_seg_raddr(void *seg, uint64_t va, uint32_t rkey)
{
	smx_seg_set(seg, va, (uint64_t)rkey << 32);	/* struct smx_wqe_raddr */
}

static inline void smx_seg_data(void *seg, uint64_t va, uint32_t length, uint32_t lkey)
{
	smx_seg_set(seg, (uint64_t)length << 32 | lkey, va);	/* struct smx_wqe_data */
}

static inline void smx_wqe_put_raddr(struct smx_dv_sq *sq, uint64_t va, uint32_t rkey)
{
	smx_seg_raddr(smx_wqe_put(sq, 1), va, rkey);
}

static inline void smx_wqe_put_atomic(struct smx_dv_sq *sq, uint64_t swap_add, uint64_t compare)
{
	smx_seg_set(smx_wqe_put(sq, 1), swap_add, compare);	/* struct smx_wqe_atomic */
}

static inline void smx_wqe_put_data(struct smx_dv_sq *sq, uint64_t va, uint32_t length, uint32_t lkey)
{
	smx_seg_data(smx_wqe_put(sq, 1), va, length, lkey);
}

/* Inline data: header, then the buffers end to end, zeros up to a whole segment. total is their sum and not
 * 0; element stride lets it walk ibv_data_buf and ibv_sge alike. */
struct smx_inline_src { const void *addr; size_t length; };
void smx_wqe_put_inline(struct smx_dv_sq *sq, const struct smx_inline_src *src, size_t n, size_t total);

static inline void smx_wqe_put_inline_one(struct smx_dv_sq *sq, const void *addr, size_t length)
{
	smx_wqe_put_inline(sq, &(struct smx_inline_src){ addr, length }, 1, length);
}

/* ~XOR of the WQE's bytes, so that all of them together XOR to 0xff. */
uint8_t smx_wqe_signature(const struct smx_dv_sq *sq, uint32_t bb, uint32_t ds);

/* Moves the producer behind the open request of ds segments, which is complete but for its signature. */
SMX_INLINE void smx_wqe_commit(struct smx_dv_qp *qp, struct smx_wqe_ctrl *ctrl, uint32_t ds)
{
	struct smx_dv_sq *sq = &qp->sq;
	uint32_t next = sq->cur_post + (ds + SMX_DS_PER_BB - 1) / SMX_DS_PER_BB;

	if (qp->wq_sig)
		ctrl->signature = smx_wqe_signature(sq, sq->cur_post, ds);
	sq->wr.slot->bb_next = next;
	sq->cur_post = next;
	sq->wr.ds = ds;
}

/* Ends the open request. */
SMX_INLINE void smx_wqe_close(struct smx_dv_qp *qp, uint32_t ds)
{
	struct smx_wqe_ctrl *ctrl = qp->sq.wr.ctrl;

	ctrl->qpn_ds = to_be32(qp->qpn << 8 | ds);
	smx_wqe_commit(qp, ctrl, ds);
}

/* A builder may go on: a batch is open and has not failed, the request before it is complete, the queue pair
 * offers the operation, and there is room. */
SMX_INLINE bool smx_wr_is_ready(const struct smx_dv_qp *qp, bool allowed)
{
	return qp->sq.wr.state == SMX_WR_OPEN && allowed && (int32_t)(qp->sq.wr.limit - qp->sq.wr.head) > 0;
}

/* Where it is not: RETURN whether it is after all, now that room was looked for; otherwise the batch has failed. */
bool smx_wr_make_ready(struct smx_dv_qp *qp, bool allowed, const char *name);

SMX_INLINE bool smx_wr_may_build(struct smx_dv_qp *qp, bool allowed, const char *name)
{
	return !SMX_SELDOM(!smx_wr_is_ready(qp, allowed) && !smx_wr_make_ready(qp, allowed, name));
}

SMX_INLINE bool smx_wr_may_set(struct smx_dv_qp *qp, uint8_t need, const char *name)
{
	if (!(qp->sq.wr.state & need)) {
		smx_sq_refuse_setter(qp, name);
		return false;
	}
	return true;
}

/* A setter has supplied what need names; the request has ds segments by now. */
SMX_INLINE void smx_wr_setter_done(struct smx_dv_qp *qp, uint8_t need, uint32_t ds)
{
	uint8_t state = qp->sq.wr.state & (uint8_t)~need;

	qp->sq.wr.state = state;
	if (state == SMX_WR_OPEN)
		smx_wqe_close(qp, ds);
	else
		qp->sq.wr.ds = ds;
}

static inline be32 smx_raw_be32(__be32 v)
{
	be32 x;

	memcpy(&x, &v, sizeof(x));
	return x;
}

/* SGE lengths: bit 31 would turn a data segment into an inline header. */
__attribute__((cold)) int smx_sq_refuse_sge_length(struct smx_dv_qp *qp, size_t i, uint32_t length);

/* Memory window operations (wqe_umr.c). RETURN 0, or an errno after a refusal. */
int smx_wqe_check_bind(struct smx_dv_qp *qp, const struct ibv_mw_bind_info *info);
/* Appends what a bind, or with length 0 an invalidate, needs after the control segment. */
void smx_wqe_put_bind(struct smx_dv_qp *qp, enum ibv_mw_type type, uint32_t rkey,
		      const struct ibv_mw_bind_info *info);

/* Batches (wqe_build.c) */
void smx_wr_start(struct ibv_qp_ex *ex);
int smx_wr_complete(struct ibv_qp_ex *ex);
void smx_wr_abort(struct ibv_qp_ex *ex);
/* Whether this thread stands inside a batch of the queue, where taking its lock would wait for ever. */
bool smx_wr_inside(const struct smx_dv_qp *qp);

/* Makes the finished requests visible: doorbell record, then UAR (sq_doorbell.c). */
void smx_sq_doorbell(struct smx_dv_qp *qp);

/* Builders and setters, for dv_ops.c */
extern const struct ibv_qp_ex smx_wr_send_ops;		/* wqe_send.c: function pointers only */
extern const struct mlx5dv_qp_ex smx_wr_dv_ops;		/* wqe_umr.c: likewise */
void smx_wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		    const struct ibv_mw_bind_info *info);
void smx_wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey);
void smx_wr_set_dc_addr(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key);
void smx_wr_set_dc_addr_stream(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t dctn,
			       uint64_t dc_key, uint16_t stream_id);
void smx_wr_raw_wqe(struct mlx5dv_qp_ex *dv, const void *wqe);
void smx_wr_memcpy(struct mlx5dv_qp_ex *dv, uint32_t dest_lkey, uint64_t dest_addr, uint32_t src_lkey,
		   uint64_t src_addr, size_t length);

static inline struct smx_dv_qp *smx_dv_qp_of_ex(struct ibv_qp_ex *ex)
{
	return (struct smx_dv_qp *)(void *)ex;
}

static inline struct smx_dv_qp *smx_dv_qp_of_dv(struct mlx5dv_qp_ex *dv)
{
	return container_of(dv, struct smx_dv_qp, dv);
}

#endif
