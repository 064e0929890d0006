/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Decoding of the commonest WQEs, WRITE, READ and SEND with one data segment: what has no fault is recognised by few
 * comparisons. What is not recognised is for sq_fetch.c, which knows every WQE and says what is wrong with one. */
#ifndef SMX_DEV_SQ_PLAIN_H
#define SMX_DEV_SQ_PLAIN_H

#include "base/bits.h"
#include "xport/requester.h"

/* A WRITE, READ or SEND with one data segment. */
struct smx_plain_req {
	uint8_t opcode, fm_ce_se, bb_count;
	uint32_t rkey;
	uint64_t raddr;
	const struct smx_wqe_av *av;	/* DCI; NULL elsewhere */
	struct smx_sge sge;
};

/* A field is read as wide as builders store it, for the processor hands over what has just been stored only whole; and
 * once, for the program may change it while we look. */
static inline uint32_t smx_wqe_word(const uint8_t *wqe, uint32_t off)
{
	return be32toh(__atomic_load_n((const uint32_t *)(const void *)(wqe + off), __ATOMIC_RELAXED));
}

static inline uint64_t smx_wqe_long(const uint8_t *wqe, uint32_t off)
{
	return be64toh(__atomic_load_n((const uint64_t *)(const void *)(wqe + off), __ATOMIC_RELAXED));
}

/* The first two words of a WQE. */
struct smx_wqe_words {
	const struct smx_wqe_ctrl *ctrl;
	uint32_t opcode;		/* opmod, index and opcode */
	uint32_t qpn_ds;
};

static inline struct smx_wqe_words smx_wqe_words(const struct smx_qp *qp, uint32_t at)
{
	const struct smx_wqe_ctrl *ctrl = smx_sq_ctrl(qp, at);

	return (struct smx_wqe_words){ ctrl, smx_wqe_word((const void *)ctrl, 0), smx_wqe_word((const void *)ctrl, 4) };
}

/* The only data segment, in ds segments: a pointer, or inline data that lies together. */
static inline bool smx_sq_plain_data(const struct smx_sq *sq, const uint8_t *seg, uint32_t ds,
				     struct smx_plain_req *out)
{
	uint32_t count = smx_wqe_word(seg, 0), bytes = count & ~SMX_INLINE_SEG;
	const uint8_t *data = seg + sizeof(struct smx_wqe_inline);

	if (count & SMX_INLINE_SEG) {
		if (out->opcode == SMX_OP_RDMA_READ || bytes > ds * SMX_WQE_DS ||
		    (sizeof(struct smx_wqe_inline) + bytes + SMX_WQE_DS - 1) / SMX_WQE_DS != ds ||
		    bytes > (uint64_t)(sq->buf + (size_t)sq->bb_count * SMX_WQE_BB - data))
			return false;
		out->sge.va = (uintptr_t)data;
		out->sge.key = 0;
	} else if (ds == 1) {
		out->sge.va = smx_wqe_long(seg, 8);
		out->sge.key = smx_wqe_word(seg, 4);
	} else {
		return false;
	}
	out->sge.is_host = count & SMX_INLINE_SEG;
	out->sge.length = bytes;
	return bytes != 0;
}

static inline bool smx_op_has_raddr(uint8_t op)
{
	return op == SMX_OP_RDMA_WRITE || op == SMX_OP_RDMA_WRITE_IMM || op == SMX_OP_RDMA_READ;
}

static inline __attribute__((always_inline)) bool smx_sq_plain_of(const struct smx_qp *qp, uint32_t at, uint32_t end,
								  struct smx_wqe_words w, bool has_raddr,
								  struct smx_plain_req *out)
{
	uint32_t data_at = qp->plain_ds - !has_raddr, ds = w.qpn_ds & 0xff, mask = qp->sq.bb_count * SMX_WQE_BB - 1;
	const uint8_t *seg = qp->sq.buf + ((at * SMX_WQE_BB + (data_at - has_raddr) * SMX_WQE_DS) & mask);

	if (!qp->plain_ds || w.qpn_ds >> 8 != qp->qpn || ((w.opcode >> 8) ^ at) & 0xffff || ds <= data_at ||
	    ds > SMX_WQE_DS_MAX || (end - at) * (SMX_WQE_BB / SMX_WQE_DS) < ds)
		return false;
	out->av = qp->attr.type == SMX_QP_DCI ? (const void *)(w.ctrl + 1) : NULL;
	if (out->av && !(from_be32(out->av->dqp_dct) & SMX_AV_EXTENDED))
		return false;
	out->fm_ce_se = w.ctrl->fm_ce_se;
	out->bb_count = (uint8_t)((ds + 3) / 4);
	out->raddr = has_raddr ? smx_wqe_long(seg, 0) : 0;
	out->rkey = has_raddr ? smx_wqe_word(seg, 8) : 0;
	seg += has_raddr ? SMX_WQE_DS : 0;
	return smx_sq_plain_data(&qp->sq, seg, ds - data_at, out);
}

/* Decodes the WQE at block counter at; what was rung ends before the block counter end. RETURN false for what is not
 * such a request, or has a fault. */
static inline bool smx_sq_plain(const struct smx_qp *qp, uint32_t at, uint32_t end, struct smx_wqe_words w,
				struct smx_plain_req *out)
{
	uint8_t op = out->opcode = (uint8_t)w.opcode;

	if (smx_op_has_raddr(op))
		return smx_sq_plain_of(qp, at, end, w, true, out);
	if (smx_op_is_send(op))
		return smx_sq_plain_of(qp, at, end, w, false, out);
	return false;
}

#endif
