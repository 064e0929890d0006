/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ibv_wr_*: builders of messages, RDMA and atomics, and their setters. See wqe_build.h for the way a
 * request goes. */
#include "dv/wqe_build.h"

#include <inttypes.h>

#define IMM_NONE ((be32){ { 0, 0, 0, 0 } })

/* What tells the builders of one shape apart. */
struct builder {
	enum smx_wqe_op op;
	uint64_t ops;		/* enum ibv_qp_create_send_ops_flags, of which one is needed */
	const char *name;
};

/* Control segment and room for the address, which its setter fills in whenever it is called; then count more
 * segments, which lie in one piece, and the data. RETURN the first of these. */
SMX_INLINE void *begin(struct smx_dv_qp *qp, enum smx_wqe_op op, be32 imm, uint32_t count)
{
	struct smx_dv_sq *sq = &qp->sq;
	struct smx_wqe_ctrl *ctrl = smx_wqe_open(qp, op, 0, imm, qp->ex.wr_flags, 0, qp->ex.wr_id);
	struct smx_wqe_raddr *first = smx_sq_step(sq, ctrl + 1, qp->addr_bytes);

	sq->wr.last = ctrl;
	sq->wr.open = qp->opened[count];
	sq->wr.data = count < 2 ? first + count : smx_sq_step(sq, first, count * SMX_WQE_DS);
	return first;
}

/* The builders, by shape. Each may go on at once nearly always; where it may not, its last act is to call another
 * function that finds out more. So the way that is gone mostly needs no registers saved. */

static SMX_SELDOM_CALLED void message_unready(struct smx_dv_qp *qp, be32 imm, const struct builder *b)
{
	if (smx_wr_make_ready(qp, qp->send_ops & b->ops, b->name))
		begin(qp, b->op, imm, 0);
}

SMX_INLINE void message(struct smx_dv_qp *qp, const struct builder *b, be32 imm)
{
	if (smx_wr_is_ready(qp, qp->send_ops & b->ops))
		begin(qp, b->op, imm, 0);
	else
		message_unready(qp, imm, b);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	static const struct builder b = { SMX_OP_SEND, IBV_QP_EX_WITH_SEND, "ibv_wr_send" };

	message(smx_dv_qp_of_ex(ex), &b, IMM_NONE);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	static const struct builder b = { SMX_OP_SEND_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM, "ibv_wr_send_imm" };

	message(smx_dv_qp_of_ex(ex), &b, smx_raw_be32(imm));
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	/* Asking for SEND is enough where the type has both: rdma-core's test_mkey_remote_invalidate does so. */
	static const struct builder either = { SMX_OP_SEND_INVAL, IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_SEND,
					       "ibv_wr_send_inv" };
	static const struct builder of_ud = { SMX_OP_SEND_INVAL, IBV_QP_EX_WITH_SEND_WITH_INV, "ibv_wr_send_inv" };
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	message(qp, qp->kind == SMX_DV_UD ? &of_ud : &either, to_be32(rkey));
}

SMX_INLINE void put_one_sided(struct smx_dv_qp *qp, const struct builder *b, be32 imm, uint32_t rkey, uint64_t va)
{
	smx_seg_raddr(begin(qp, b->op, imm, 1), va, rkey);
}

static SMX_SELDOM_CALLED void one_sided_unready(struct smx_dv_qp *qp, uint32_t rkey, uint64_t va, be32 imm,
						const struct builder *b)
{
	if (smx_wr_make_ready(qp, qp->send_ops & b->ops, b->name))
		put_one_sided(qp, b, imm, rkey, va);
}

SMX_INLINE void one_sided(struct smx_dv_qp *qp, const struct builder *b, be32 imm, uint32_t rkey, uint64_t va)
{
	if (smx_wr_is_ready(qp, qp->send_ops & b->ops))
		put_one_sided(qp, b, imm, rkey, va);
	else
		one_sided_unready(qp, rkey, va, imm, b);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va)
{
	static const struct builder b = { SMX_OP_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, "ibv_wr_rdma_write" };

	one_sided(smx_dv_qp_of_ex(ex), &b, IMM_NONE, rkey, va);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va, __be32 imm)
{
	static const struct builder b = { SMX_OP_RDMA_WRITE_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
					  "ibv_wr_rdma_write_imm" };

	one_sided(smx_dv_qp_of_ex(ex), &b, smx_raw_be32(imm), rkey, va);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va)
{
	static const struct builder b = { SMX_OP_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, "ibv_wr_rdma_read" };

	one_sided(smx_dv_qp_of_ex(ex), &b, IMM_NONE, rkey, va);
}

SMX_INLINE void put_atomic(struct smx_dv_qp *qp, const struct builder *b, uint32_t rkey, uint64_t va, uint64_t swap_add,
			   uint64_t compare)
{
	struct smx_wqe_raddr *raddr = begin(qp, b->op, IMM_NONE, 2);

	smx_seg_raddr(raddr, va, rkey);
	smx_seg_atomic(raddr + 1, swap_add, compare);
}

static SMX_SELDOM_CALLED void atomic_unready(struct smx_dv_qp *qp, uint32_t rkey, uint64_t va, uint64_t swap_add,
					     uint64_t compare, const struct builder *b)
{
	if (smx_wr_make_ready(qp, qp->send_ops & b->ops, b->name))
		put_atomic(qp, b, rkey, va, swap_add, compare);
}

SMX_INLINE void atomic(struct smx_dv_qp *qp, const struct builder *b, uint32_t rkey, uint64_t va, uint64_t swap_add,
		       uint64_t compare)
{
	if (smx_wr_is_ready(qp, qp->send_ops & b->ops))
		put_atomic(qp, b, rkey, va, swap_add, compare);
	else
		atomic_unready(qp, rkey, va, swap_add, compare, b);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va, uint64_t compare,
			      uint64_t swap)
{
	static const struct builder b = { SMX_OP_ATOMIC_CS, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
					  "ibv_wr_atomic_cmp_swp" };

	atomic(smx_dv_qp_of_ex(ex), &b, rkey, va, swap, compare);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va, uint64_t add)
{
	static const struct builder b = { SMX_OP_ATOMIC_FA, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
					  "ibv_wr_atomic_fetch_add" };

	atomic(smx_dv_qp_of_ex(ex), &b, rkey, va, add, 0);
}

/* Not offered. */
static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_bytes, uint16_t mss)
{
	(void)hdr;
	(void)hdr_bytes;
	(void)mss;
	(void)smx_wr_make_ready(smx_dv_qp_of_ex(ex), false, "ibv_wr_send_tso");
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va, const void *value)
{
	(void)rkey;
	(void)va;
	(void)value;
	(void)smx_wr_make_ready(smx_dv_qp_of_ex(ex), false, "ibv_wr_atomic_write");
}

/* Data setters. An empty SGE gets no segment. */

/* An SGE that is empty, too long, or one too many. */
static SMX_SELDOM_CALLED void set_odd_sge(struct smx_dv_qp *qp, uint32_t length)
{
	if (length & SMX_INLINE_SEG)
		(void)smx_sq_refuse_sge_length(qp, 0, length);
	else if (length)
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SGE, "1 SGE, max_send_sge 0");
	else
		smx_wr_data_supplied(&qp->sq, 0);
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	if (!(qp->sq.wr.open.state & SMX_NEED_DATA)) {
		smx_sq_refuse_setter(qp, "ibv_wr_set_sge");
	} else if (length - 1 >= qp->sq.max_sge_bytes) {
		set_odd_sge(qp, length);
	} else {
		smx_seg_data(qp->sq.wr.data, addr, length, lkey);
		smx_wr_data_supplied(&qp->sq, 1);
	}
}

static SMX_SELDOM_CALLED void refuse_sges(struct smx_dv_qp *qp, size_t n)
{
	(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SGE, "%zu SGEs, max_send_sge %" PRIu32, n, qp->sq.max_gs);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sge)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	struct smx_cursor at = smx_cursor_at(&qp->sq, qp->sq.wr.data);
	uint32_t ds = 0;

	if (!(qp->sq.wr.open.state & SMX_NEED_DATA)) {
		smx_sq_refuse_setter(qp, "ibv_wr_set_sge_list");
		return;
	}
	if (num_sge > qp->sq.max_gs) {
		refuse_sges(qp, num_sge);
		return;
	}
	for (size_t i = 0; i < num_sge; i++) {
		if (sge[i].length & SMX_INLINE_SEG) {
			(void)smx_sq_refuse_sge_length(qp, i, sge[i].length);
			return;
		}
		if (!sge[i].length)
			continue;
		smx_seg_sge(smx_cursor_next(&at), &sge[i]);
		ds++;
	}
	smx_wr_data_supplied(&qp->sq, ds);
}

static SMX_SELDOM_CALLED void refuse_inline(struct smx_dv_qp *qp, size_t length)
{
	(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_INLINE, "inline data %zu, max_inline_data %" PRIu32, length,
			    qp->sq.max_inline);
}

/* Buffers of total bytes together, which is allowed. */
static void set_inline(struct smx_dv_qp *qp, const struct smx_inline_src *src, size_t n, size_t total)
{
	uint32_t ds = 0;

	qp->sq.wr.open.have = SMX_HAVE_INLINE;
	if (total)
		ds = smx_wqe_put_inline(&qp->sq, qp->sq.wr.open.ds, src, n, total);
	smx_wr_data_supplied(&qp->sq, ds);
}

/* A buffer that is empty, too long, or goes round the ring's end. */
static SMX_SELDOM_CALLED void set_odd_inline(struct smx_dv_qp *qp, const void *addr, size_t length)
{
	if (length > qp->sq.max_inline)
		refuse_inline(qp, length);
	else
		set_inline(qp, &(struct smx_inline_src){ addr, length }, 1, length);
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	uint8_t *seg, *end;
	be32 head;

	if (!(qp->sq.wr.open.state & SMX_NEED_DATA)) {
		smx_sq_refuse_setter(qp, "ibv_wr_set_inline_data");
		return;
	}
	seg = qp->sq.wr.data;
	end = seg + sizeof(head) + length;
	if (length - 1 >= qp->sq.max_inline || end > qp->sq.end) {
		set_odd_inline(qp, addr, length);
		return;
	}
	/* The pad, and what is overwritten of its segment; the header; the bytes. */
	memset(seg + ((sizeof(head) + length - 1) & -(size_t)SMX_WQE_DS), 0, SMX_WQE_DS);
	head = to_be32((uint32_t)length | SMX_INLINE_SEG);
	memcpy(seg, &head, sizeof(head));
	qp->sq.wr.open.have = SMX_HAVE_INLINE;
	smx_wr_data_supplied(&qp->sq, smx_inline_ds(length));
	memcpy(seg + sizeof(head), addr, length);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf, const struct ibv_data_buf *buf)
{
	_Static_assert(sizeof(struct ibv_data_buf) == sizeof(struct smx_inline_src) &&
		       offsetof(struct ibv_data_buf, length) == offsetof(struct smx_inline_src, length),
		       "a list of buffers is passed on as it is");
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	size_t total = 0;

	if (!(qp->sq.wr.open.state & SMX_NEED_DATA)) {
		smx_sq_refuse_setter(qp, "ibv_wr_set_inline_data_list");
		return;
	}
	for (size_t i = 0; i < num_buf; i++) {
		/* Each is compared too: a sum of huge lengths could wrap. */
		if (buf[i].length > qp->sq.max_inline || (total += buf[i].length) > qp->sq.max_inline) {
			refuse_inline(qp, buf[i].length > total ? buf[i].length : total);
			return;
		}
	}
	set_inline(qp, (const struct smx_inline_src *)(const void *)buf, num_buf, total);
}

/* Address setters, before or after the data's. */

/* Nothing waits for the address, or it is none. */
static SMX_SELDOM_CALLED void refuse_addr(struct smx_dv_qp *qp, uint8_t need, const char *name)
{
	if (qp->sq.wr.open.state & need)
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_DC_ADDR, "%s: no address handle", name);
	else
		smx_sq_refuse_setter(qp, name);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	struct smx_wqe_ctrl *ctrl;

	if (!(qp->sq.wr.open.state & SMX_NEED_UD_ADDR) || !ah) {
		refuse_addr(qp, SMX_NEED_UD_ADDR, "ibv_wr_set_ud_addr");
		return;
	}
	ctrl = qp->sq.wr.last;
	smx_seg_av_ud((void *)(ctrl + 1), ah, qkey, qpn);
	smx_wr_addr_supplied(&qp->sq, ctrl, SMX_NEED_UD_ADDR);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	struct smx_wqe_ctrl *ctrl;

	if (!(qp->sq.wr.open.state & SMX_NEED_XRC_SRQN)) {
		refuse_addr(qp, SMX_NEED_XRC_SRQN, "ibv_wr_set_xrc_srqn");
		return;
	}
	ctrl = qp->sq.wr.last;
	smx_seg_xrc(ctrl + 1, srqn);
	smx_wr_addr_supplied(&qp->sq, ctrl, SMX_NEED_XRC_SRQN);
}

static SMX_SELDOM_CALLED void refuse_dc_addr(struct mlx5dv_qp_ex *dv)
{
	refuse_addr(smx_dv_qp_of_dv(dv), SMX_NEED_DC_ADDR, "mlx5dv_wr_set_dc_addr");
}

void smx_wr_set_dc_addr_stream(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key,
			       uint16_t stream_id)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);
	struct smx_wqe_ctrl *ctrl;

	if (!(qp->sq.wr.open.state & SMX_NEED_DC_ADDR) || !ah) {
		refuse_dc_addr(dv);
		return;
	}
	ctrl = qp->sq.wr.last;
	ctrl->dci_stream = to_be16(stream_id);
	smx_seg_av_dc((void *)(ctrl + 1), ah, dc_key, dctn);
	smx_wr_addr_supplied(&qp->sq, ctrl, SMX_NEED_DC_ADDR);
}

void smx_wr_set_dc_addr(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key)
{
	smx_wr_set_dc_addr_stream(dv, ah, dctn, dc_key, 0);
}

const struct ibv_qp_ex smx_wr_send_ops = {
	.wr_atomic_cmp_swp = wr_atomic_cmp_swp,
	.wr_atomic_fetch_add = wr_atomic_fetch_add,
	.wr_bind_mw = smx_wr_bind_mw,
	.wr_local_inv = smx_wr_local_inv,
	.wr_rdma_read = wr_rdma_read,
	.wr_rdma_write = wr_rdma_write,
	.wr_rdma_write_imm = wr_rdma_write_imm,
	.wr_send = wr_send,
	.wr_send_imm = wr_send_imm,
	.wr_send_inv = wr_send_inv,
	.wr_send_tso = wr_send_tso,
	.wr_set_ud_addr = wr_set_ud_addr,
	.wr_set_xrc_srqn = wr_set_xrc_srqn,
	.wr_set_inline_data = wr_set_inline_data,
	.wr_set_inline_data_list = wr_set_inline_data_list,
	.wr_set_sge = wr_set_sge,
	.wr_set_sge_list = wr_set_sge_list,
	.wr_start = smx_wr_start,
	.wr_complete = smx_wr_complete,
	.wr_abort = smx_wr_abort,
	.wr_atomic_write = wr_atomic_write,
};
