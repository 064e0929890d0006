/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The one way to build a send work request, used by ibv_wr_*, mlx5dv_wr_* and ibv_post_send.
 *
 * smx_wqe_open() fills in slot and control segment, smx_seg_*() write the other segments, smx_wqe_close() fills in
 * the length and moves the producer: until then nothing has happened. What a request lacks is in sq->wr.open.state;
 * the setter that supplies the last of it closes the request. The batch is visible to the device only when
 * smx_sq_doorbell() runs.
 *
 * A function that is called for each request saves no registers: whatever is seldom, refusals among it, is a function
 * that it calls last. It reads what it needs of the queue before it writes the WQE, for the compiler must expect
 * that a WQE overlies the queue's fields. */
#ifndef SMX_WQE_BUILD_H
#define SMX_WQE_BUILD_H

#include "base/bits.h"
#include "dv/wqe_cursor.h"

/* sq->wr.open.state. A builder may go on when it is exactly SMX_WR_READY. */
enum {
	SMX_WR_READY = 0,
	/* setters that the open request lacks */
	SMX_NEED_DATA = 1, SMX_NEED_UD_ADDR = 2, SMX_NEED_DC_ADDR = 4, SMX_NEED_XRC_SRQN = 8, SMX_NEED_MKEY = 0x10,
	SMX_NEED_ADDR = SMX_NEED_UD_ADDR | SMX_NEED_DC_ADDR | SMX_NEED_XRC_SRQN,
	SMX_NEED_ALL = SMX_NEED_DATA | SMX_NEED_ADDR | SMX_NEED_MKEY,
	SMX_WR_FAILED = 0x40,
	SMX_WR_OUTSIDE = 0x80,		/* of any batch */
};
/* sq->wr.open.have: inline data, which selects the BlueFlame path; mkey setters that were called */
enum { SMX_HAVE_INLINE = 1, SMX_HAVE_ACCESS = 2, SMX_HAVE_LAYOUT = 4 };

#define SMX_INLINE static inline __attribute__((always_inline))
/* A function that is seldom called, and last by its caller, which needs no stack frame for it then. */
#define SMX_SELDOM_CALLED __attribute__((cold, noinline))
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

static inline struct smx_dv_slot *smx_sq_slot(const struct smx_dv_sq *sq, uint32_t bb)
{
	return &sq->slot[bb & sq->bb_mask];
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

/* The limit is never behind the head. */
static inline bool smx_sq_may_add(struct smx_dv_sq *sq)
{
	return sq->wr.limit != sq->wr.head || smx_sq_look_for_room(sq);
}

/* The last request took more than the planned size: what was worked out holds no longer. */
static inline void smx_sq_oversized(struct smx_dv_sq *sq)
{
	sq->wr.limit = sq->wr.head;
}

/* What the slot of the next request keeps of it. The flag done stays clear: only who polls changes it. */
SMX_INLINE void smx_sq_keep(const struct smx_dv_sq *sq, uint32_t index, uint64_t wr_id, uint8_t wr_data)
{
	struct smx_dv_slot *slot = &sq->slot[index];
	uint32_t head = sq->wr.head;

	slot->wr_id = wr_id;
	slot->head = head;
	slot->wr_data = wr_data;
}

/* A segment as two words. Whole words, because the UAR copy and the device read them back at once, and a load that
 * spans several smaller stores has to wait for all of them. */
static inline void smx_seg_set(void *seg, be64 first, be64 second)
{
	be64 *word = seg;

	word[0] = first;
	word[1] = second;
}

/* Third word of a control segment, without signature and stream: fm_ce_se of enum ibv_send_flags' lowest three
 * (fence, signaled, solicited); a request that does not ask for its own fence takes the pending one. */
SMX_INLINE be32 smx_wqe_fm(const struct smx_dv_sq *sq, uint32_t flags)
{
#define FM(f, small) [(f) | (small)] = { { 0, 0, 0, ((f) & IBV_SEND_FENCE ? SMX_CTRL_FENCE : (small)) |	\
	((f) & IBV_SEND_SIGNALED ? SMX_CTRL_CQ_UPDATE : 0) | ((f) & IBV_SEND_SOLICITED ? SMX_CTRL_SOLICITED : 0) } }
#define FM_ALL(small) FM(0, small), FM(1, small), FM(2, small), FM(3, small), FM(4, small), FM(5, small),	\
	FM(6, small), FM(7, small)
	static const be32 of_flags[] = { FM_ALL(0), FM_ALL(SMX_CTRL_SMALL_FENCE) };
#undef FM_ALL
#undef FM

	return of_flags[(flags & 7) | sq->fm_cache];
}

/* Begins a request for which there is room. opmod_op: [31:24] opmod, [7:0] enum smx_wqe_op; ds: its segments, or 0
 * where smx_wqe_close() will tell them; wr_data as in struct smx_dv_slot. RETURN the control segment; the rest of its
 * block lies behind. */
SMX_INLINE struct smx_wqe_ctrl *smx_wqe_open(struct smx_dv_qp *qp, uint32_t opmod_op, uint32_t ds, be32 imm,
					     uint32_t flags, uint8_t wr_data, uint64_t wr_id)
{
	struct smx_dv_sq *sq = &qp->sq;
	uint32_t at = sq->cur_post, index = at & sq->bb_mask;
	struct smx_wqe_ctrl *ctrl = (void *)(sq->buf + (size_t)index * SMX_WQE_BB);
	be32 fm = smx_wqe_fm(sq, flags);
	/* by parts, of which all but the index is known when this is compiled or when the queue pair is made */
	be64 op = be64_or(to_be64((uint64_t)(uint16_t)at << 40), be64_of(to_be32(opmod_op), to_be32(ds)));

	smx_sq_keep(sq, index, wr_id, wr_data);
	smx_seg_set(ctrl, be64_or(op, qp->ctrl_number), be64_of(fm, imm));
	return ctrl;
}

/* Segment ds of the open request. */
static inline void *smx_wqe_seg(const struct smx_dv_sq *sq, uint32_t ds)
{
	return smx_sq_seg(sq, sq->cur_post, ds);
}

static inline void smx_seg_raddr(void *seg, uint64_t va, uint32_t rkey)
{
	smx_seg_set(seg, to_be64(va), to_be64((uint64_t)rkey << 32));	/* struct smx_wqe_raddr */
}

static inline void smx_seg_atomic(void *seg, uint64_t swap_add, uint64_t compare)
{
	smx_seg_set(seg, to_be64(swap_add), to_be64(compare));	/* struct smx_wqe_atomic */
}

static inline void smx_seg_data(void *seg, uint64_t va, uint32_t length, uint32_t lkey)
{
	smx_seg_set(seg, to_be64((uint64_t)length << 32 | lkey), to_be64(va));	/* struct smx_wqe_data */
}

SMX_INLINE void smx_seg_sge(void *seg, const struct ibv_sge *sge)
{
	_Static_assert(offsetof(struct ibv_sge, lkey) == offsetof(struct ibv_sge, length) + sizeof(uint32_t),
		       "length and lkey are one word");
	be64 length_lkey = be64_of_pair(&sge->length);

	smx_seg_set(seg, length_lkey, to_be64(sge->addr));	/* struct smx_wqe_data */
}

/* The address vector of a handle, with what the request names. */
SMX_INLINE void smx_seg_av_ud(struct smx_wqe_av *av, struct ibv_ah *ah, uint32_t qkey, uint32_t qpn)
{
	*av = container_of(ah, struct smx_dv_ah, ibv)->av;
	av->qkey = to_be32(qkey);
	av->dqp_dct = to_be32(qpn | SMX_AV_EXTENDED);
}

SMX_INLINE void smx_seg_av_dc(struct smx_wqe_av *av, struct ibv_ah *ah, uint64_t dc_key, uint32_t dctn)
{
	const struct smx_wqe_av *known = &container_of(ah, struct smx_dv_ah, ibv)->av;
	be64 number;

	/* The first 16 bytes as whole words, of which less remains to be copied. */
	memcpy(&number, &known->dqp_dct, sizeof(number));
	smx_seg_set(av, to_be64(dc_key), be64_or(number, to_be64((uint64_t)(dctn | SMX_AV_EXTENDED) << 32)));
	memcpy(av->rsvd0, known->rsvd0, sizeof(*av) - offsetof(struct smx_wqe_av, rsvd0));
}

static inline void smx_seg_xrc(void *seg, uint32_t srqn)
{
	smx_seg_set(seg, be64_of(to_be32(srqn), to_be32(0)), to_be64(0));	/* struct smx_wqe_xrc */
}

/* Inline data: header, then the buffers end to end, zeros up to a whole segment. total is their sum and not
 * 0; element stride lets it walk ibv_data_buf and ibv_sge alike. RETURN the segments that were written from ds on. */
struct smx_inline_src { const void *addr; size_t length; };
uint32_t smx_wqe_put_inline(const struct smx_dv_sq *sq, uint32_t ds, const struct smx_inline_src *src, size_t n,
			    size_t total);

/* Segments that inline data takes, its header included. */
static inline uint32_t smx_inline_ds(size_t bytes)
{
	return (uint32_t)((bytes + sizeof(struct smx_wqe_inline) + SMX_WQE_DS - 1) / SMX_WQE_DS);
}

/* Segments of a complete WQE. */
static inline uint32_t smx_wqe_ds(const struct smx_wqe_ctrl *ctrl)
{
	return ctrl->qpn_ds.b[3] & SMX_WQE_DS_MAX;
}

static inline uint32_t smx_wqe_blocks(uint32_t ds)
{
	return (ds + SMX_DS_PER_BB - 1) / SMX_DS_PER_BB;
}

/* Ends a request whose control segment is complete: moves the producer. fence: SMX_CTRL_SMALL_FENCE, which the next
 * one takes, or 0. */
SMX_INLINE void smx_wqe_commit(struct smx_dv_sq *sq, uint32_t ds, uint8_t fence)
{
	sq->cur_post += smx_wqe_blocks(ds);
	sq->wr.head++;
	if (fence)
		sq->fm_cache |= fence;
	else
		sq->fm_cache &= ~(uint32_t)SMX_CTRL_SMALL_FENCE;
}

/* Ends one that waits for no setter. */
SMX_INLINE void smx_wqe_finish(struct smx_dv_sq *sq, struct smx_wqe_ctrl *ctrl, uint32_t ds, uint8_t fence)
{
	sq->wr.last = ctrl;
	smx_wqe_commit(sq, ds, fence);
}

/* Ends one whose length was not known when it was opened. One byte is stored: the word's reader, the UAR copy, waits
 * less for it than would be taken by changing the whole word. */
SMX_INLINE void smx_wqe_close(struct smx_dv_sq *sq, struct smx_wqe_ctrl *ctrl, uint32_t ds, uint8_t fence)
{
	ctrl->qpn_ds.b[3] = (uint8_t)ds;
	smx_wqe_commit(sq, ds, fence);
}

/* A builder may go on: a batch is open and has not failed, the request before it is complete, the queue pair
 * offers the operation, and there is room. */
SMX_INLINE bool smx_wr_is_ready(const struct smx_dv_qp *qp, bool allowed)
{
	return qp->sq.wr.open.state == SMX_WR_READY && allowed && qp->sq.wr.limit != qp->sq.wr.head;
}

/* Where it is not: RETURN whether it is after all, now that room was looked for; otherwise the batch has failed. */
bool smx_wr_make_ready(struct smx_dv_qp *qp, bool allowed, const char *name);

/* A setter has supplied what need names. RETURN whether the request is complete. */
SMX_INLINE bool smx_wr_supplied(struct smx_dv_sq *sq, uint8_t need)
{
	return (sq->wr.open.state &= (uint8_t)~need) == SMX_WR_READY;
}

/* The data setter has, in so many segments. */
SMX_INLINE void smx_wr_data_supplied(struct smx_dv_sq *sq, uint32_t count)
{
	if (smx_wr_supplied(sq, SMX_NEED_DATA))
		smx_wqe_close(sq, sq->wr.last, sq->wr.open.ds + count, 0);
	else
		sq->wr.open.ds += (uint8_t)count;
}

/* The address setter has. */
SMX_INLINE void smx_wr_addr_supplied(struct smx_dv_sq *sq, struct smx_wqe_ctrl *ctrl, uint8_t need)
{
	if (smx_wr_supplied(sq, need))
		smx_wqe_close(sq, ctrl, sq->wr.open.ds, 0);
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
/* The whole request, for which there is room. */
void smx_wqe_bind(struct smx_dv_qp *qp, uint32_t flags, uint64_t wr_id, enum ibv_mw_type type, uint32_t old_rkey,
		  uint32_t rkey, const struct ibv_mw_bind_info *info);
void smx_wqe_invalidate(struct smx_dv_qp *qp, uint32_t flags, uint64_t wr_id, uint32_t rkey);

/* Batches (wqe_build.c) */
void smx_wr_start(struct ibv_qp_ex *ex);
int smx_wr_complete(struct ibv_qp_ex *ex);
void smx_wr_abort(struct ibv_qp_ex *ex);

/* Its address tells threads apart. */
extern __thread __attribute__((tls_model("initial-exec"))) char smx_this_thread;

/* Takes the send queue for this thread, unless somebody has it. */
SMX_INLINE bool smx_sq_try_enter(struct smx_dv_sq *sq)
{
	if (sq->lock.needed)
		return smx_dv_try_lock(&sq->lock, (uintptr_t)&smx_this_thread);
	return sq->wr.open.state == SMX_WR_OUTSIDE;
}

/* Where somebody has: RETURN true when it is free at last; false where it is this thread, inside a batch, so that it
 * would wait for ever. */
SMX_SELDOM_CALLED bool smx_sq_wait(struct smx_dv_sq *sq);

/* Bit n: enum ibv_wr_opcode n of ibv_post_send is one that hardly needs checks (sq_post.c). */
uint32_t smx_plain_ops(const struct smx_dv_qp *qp);

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
