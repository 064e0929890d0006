/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A queue pair as its driver sees it: send ring, receive ring, the work request being built.
 *
 * dv knows bytes in queues and nothing of the device: after a batch is written, rung in the doorbell
 * record and in the UAR, it calls ring(), which the verbs layer points at the device. */
#ifndef SMX_DV_QP_H
#define SMX_DV_QP_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "dv/dv_lock.h"
#include "hw/wqe.h"
#include "trace/refusal.h"

struct smx_dv_srq;

enum smx_dv_qp_kind { SMX_DV_RC, SMX_DV_UC, SMX_DV_UD, SMX_DV_XRC_INI, SMX_DV_XRC_TGT, SMX_DV_DCI, SMX_DV_DCT };

enum { SMX_BF_DS_MIN = 2 };	/* a control segment alone is not copied, only its first 8 bytes */

/* BlueFlame register: two halves used in turn. Queue pairs may share one without a lock: our device takes WQEs from
 * the ring, so that two threads' stores to one half do no harm. */
struct smx_dv_bf {
	uint8_t *reg;
	uint32_t uuarn;		/* 0: no block copies */
	uint32_t buf_bytes;	/* of one half; 0 with uuarn 0 */
	uint32_t offset;	/* current half */
};

/* What a WQE slot remembers until its completion is read. Indexed by first block modulo bb_count. Length and stream
 * are in the WQE. */
struct smx_dv_slot {
	uint64_t wr_id;
	uint32_t head;		/* bookkeeping count of work requests when it was posted */
	uint8_t wr_data;	/* completion opcode for UMR, raw, memcpy, bind, invalidate; 0: by the CQE */
	bool done;		/* DCI streams complete out of order */
};
_Static_assert(sizeof(struct smx_dv_slot) == 16 && (int)MLX5DV_WC_MEMCPY <= UINT8_MAX, "a slot is small");

/* What a batch waits for. One word, so that one store sets it. */
struct smx_wr_open {
	uint8_t state;		/* SMX_WR_*, wqe_build.h */
	/* Of the open request, or the last one. */
	uint8_t ds;		/* segments so far */
	uint8_t mkey_setters_left;
	uint8_t have;		/* SMX_HAVE_* */
};

struct smx_dv_sq {
	uint8_t *buf, *end;
	struct smx_dv_slot *slot;	/* bb_count */
	uint32_t bb_count;	/* power of two */
	uint32_t bb_mask;	/* of a block counter */
	uint32_t max_post;	/* work requests that may be outstanding */
	uint32_t max_gs;	/* SGEs a request */
	uint32_t max_inline;	/* bytes a request */
	uint32_t cur_post;	/* producer, in blocks, never wraps */
	uint32_t posted_bb;	/* where it was at the last doorbell; a batch that fails goes back there */
	uint32_t head, tail;	/* work requests posted and completed */
	uint32_t tail_bb;	/* block counter of the oldest outstanding WQE */
	uint32_t wqe_bb;	/* blocks that a request was sized for */
	uint32_t max_xlt;	/* translation entries a request */
	uint32_t max_sge_bytes;	/* 0 if a request takes no SGE */
	/* SMX_CTRL_SMALL_FENCE: the fence that the next request takes. IBV_SEND_SIGNALED: sq_sig_all. */
	uint32_t fm_cache;
	struct smx_dv_lock lock;

	/* The batch between ibv_wr_start and _complete or _abort. */
	struct {
		struct smx_wr_open open;
		int err;		/* first error wins; 0 outside a batch */
		uint32_t head;		/* sq.head, and what the batch has added */
		uint32_t limit;		/* head of the first request for which room is to be looked for again */
		struct smx_wqe_ctrl *last;	/* of the open request, or the last one of the batch */
		void *data;		/* of the open request: where that begins, or the mkey context */
		const struct mlx5dv_mkey *mkey;
		uint32_t fm_cache_rollback;
	} wr;
};

struct smx_dv_rq {
	uint8_t *buf;
	uint32_t wqe_count;	/* power of two; 0: none */
	uint32_t stride_bytes;
	uint32_t max_gs;
	uint32_t head, tail;
	uint64_t *wr_id;
	struct smx_dv_lock lock;
};

struct smx_dv_qp {
	struct ibv_qp_ex ex;		/* first: an ibv_qp pointer is also this */
	struct mlx5dv_qp_ex dv;
	enum smx_dv_qp_kind kind;
	uint32_t qpn;
	bool can_post;			/* state is RTS or beyond (SQD, SQE, ERR); kept by verbs */
	bool wq_sig, atomics;
	bool has_streams;
	bool has_ex;			/* created with send_ops_flags: ibv_qp_to_qp_ex gives it */
	uint64_t send_ops;		/* IBV_QP_EX_WITH_* */
	uint64_t dv_ops;		/* MLX5DV_QP_EX_WITH_* */
	/* Worked out by smx_dv_qp_prepare(). */
	uint32_t addr_bytes;		/* between control segment and the rest: address vector, XRC, or none */
	uint8_t addr_ds;		/* the same in segments */
	struct smx_wr_open opened[3];	/* of a message that was just begun, with so many segments behind its address */
	uint8_t bf_lengths[2];		/* of single WQEs that are copied to the UAR, in segments from SMX_BF_DS_MIN on;
					 * [1] with inline data */
	uint32_t plain_ops;		/* bit n: enum ibv_wr_opcode n of ibv_post_send needs no more checks */
	be64 ctrl_number;		/* qpn as in a control segment's first 8 bytes */
	struct smx_dv_sq sq;
	struct smx_dv_rq rq;
	struct smx_dv_srq *srq;		/* NULL: own rq */
	be32 *dbrec;
	struct smx_dv_bf bf;
	struct {			/* of the context */
		bool prefer_bf, shut_up_bf, mkey_update_tag;
		uint64_t memcpy_max;
		uint32_t opaque_lkey;
		uint64_t opaque_addr;
	} ctx;
	struct smx_refusal_log *refusals;
	void (*ring_sq)(struct smx_dv_qp *qp);	/* after the doorbell; may be NULL */
	void (*ring_rq)(struct smx_dv_qp *qp);
};

static inline struct smx_dv_qp *smx_dv_qp_of(struct ibv_qp *qp)
{
	return (struct smx_dv_qp *)(void *)qp;
}

struct smx_dv_ah {
	struct ibv_ah ibv;
	struct smx_wqe_av av;
};

/* Requested capacities in, sizes of queues out, by the rules of libmlx5. One buffer: the receive queue first, the
 * send queue on a block boundary behind it. */
struct smx_dv_qp_sizes {
	uint32_t sq_bb_count, sq_max_post, sq_max_gs, sq_max_inline;
	uint32_t rq_wqe_count, rq_stride_bytes, rq_max_gs;
	uint64_t rq_offset, sq_offset, total_bytes;
};

/* send_ops, dv_ops: what a WQE must have room for. RETURN 0, or an errno after a refusal; cap is updated to what was
 * granted. */
int smx_dv_qp_size(struct smx_refusal_log *log, enum smx_dv_qp_kind kind, uint64_t send_ops, uint64_t dv_ops,
		   bool has_srq, bool wq_sig, struct ibv_qp_cap *cap, struct smx_dv_qp_sizes *out);

/* Works out what each request would have to otherwise. To be called before the first one, when all other members
 * are set. */
void smx_dv_qp_prepare(struct smx_dv_qp *qp);

/* Sets every function pointer of qp->ex and qp->dv. A builder or setter that kind, send_ops or dv_ops do not
 * allow refuses when it is called, and ibv_wr_complete reports that. RETURN 0, or EOPNOTSUPP after a refusal when
 * kind does not support an operation that was asked for. */
int smx_dv_qp_fill_ops(struct smx_dv_qp *qp);

/* Forgets all work: RESET. Clears indices and doorbell records; slots and ring stay allocated. A small fence that
 * is pending stays, as in libmlx5: it does no harm on an empty queue. */
void smx_dv_qp_reset(struct smx_dv_qp *qp);

int smx_dv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int smx_dv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
/* ibv_bind_mw for type 1 windows: posts a bind, updates mw->rkey. */
int smx_dv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* A memory key object's driver-side struct, as builders need it. */
struct smx_dv_mkey {
	struct mlx5dv_mkey dv;
	uint32_t max_entries;
};

#endif
