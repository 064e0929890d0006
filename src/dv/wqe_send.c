/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ibv_wr_*: builders of messages, RDMA and atomics, and their setters. See wqe_build.h for the way a
 * request goes. */
#include "dv/wqe_build.h"

#include <inttypes.h>

#define IMM_NONE ((be32){ { 0, 0, 0, 0 } })

/* Control segment and room for the address, which its setter fills in whenever it is called; then count more
 * segments. RETURN the first of these. */
SMX_INLINE void *begin(struct smx_dv_qp *qp, enum smx_wqe_op op, be32 imm, uint32_t count)
{
	struct smx_dv_sq *sq = &qp->sq;
	uint32_t addr_ds = smx_addr_ds(qp->kind);
	struct smx_wqe_ctrl *ctrl;

	ctrl = smx_wqe_open(qp, op, imm, qp->ex.wr_flags, 0, qp->ex.wr_id, SMX_ADDR_AT_DS + addr_ds + count);
	if (!addr_ds) {
		sq->wr.state = SMX_WR_OPEN | SMX_NEED_DATA;
		return ctrl + 1;
	}
	sq->wr.state = SMX_WR_OPEN | SMX_NEED_DATA | SMX_NEED_ADDR;
	return smx_wqe_seg(sq, SMX_ADDR_AT_DS + addr_ds);
}

/* The first lines of a builder: where it may not go on yet, it is called again once it may. */
#define READY_OR(qp, flag, name, again)								\
	do {											\
		bool allowed = (qp)->send_ops & (flag);						\
												\
		if (!smx_wr_is_ready((qp), allowed)) {						\
			if (smx_wr_make_ready((qp), allowed, (name)))				\
				again;								\
			return;									\
		}										\
	} while (0)

static void wr_send(struct ibv_qp_ex *ex)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	READY_OR(qp, IBV_QP_EX_WITH_SEND, "ibv_wr_send", wr_send(ex));
	begin(qp, SMX_OP_SEND, IMM_NONE, 0);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	READY_OR(qp, IBV_QP_EX_WITH_SEND_WITH_IMM, "ibv_wr_send_imm", wr_send_imm(ex, imm));
	begin(qp, SMX_OP_SEND_IMM, smx_raw_be32(imm), 0);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	uint64_t ops = IBV_QP_EX_WITH_SEND_WITH_INV;

	/* Asking for SEND is enough where the type has both: rdma-core's test_mkey_remote_invalidate does so. */
	if (qp->kind != SMX_DV_UD)
		ops |= IBV_QP_EX_WITH_SEND;
	READY_OR(qp, ops, "ibv_wr_send_inv", wr_send_inv(ex, rkey));
	begin(qp, SMX_OP_SEND_INVAL, to_be32(rkey), 0);
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_bytes, uint16_t mss)
{
	(void)hdr;
	(void)hdr_bytes;
	(void)mss;
	(void)smx_wr_may_build(smx_dv_qp_of_ex(ex), false, "ibv_wr_send_tso");
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va, const void *value)
{
	(void)rkey;
	(void)va;
	(void)value;
	(void)smx_wr_may_build(smx_dv_qp_of_ex(ex), false, "ibv_wr_atomic_write");
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	READY_OR(qp, IBV_QP_EX_WITH_RDMA_WRITE, "ibv_wr_rdma_write", wr_rdma_write(ex, rkey, va));
	smx_seg_raddr(begin(qp, SMX_OP_RDMA_WRITE, IMM_NONE, 1), va, rkey);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va, __be32 imm)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	READY_OR(qp, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, "ibv_wr_rdma_write_imm",
		 wr_rdma_write_imm(ex, rkey, va, imm));
	smx_seg_raddr(begin(qp, SMX_OP_RDMA_WRITE_IMM, smx_raw_be32(imm), 1), va, rkey);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	READY_OR(qp, IBV_QP_EX_WITH_RDMA_READ, "ibv_wr_rdma_read", wr_rdma_read(ex, rkey, va));
	smx_seg_raddr(begin(qp, SMX_OP_RDMA_READ, IMM_NONE, 1), va, rkey);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va, uint64_t compare,
			      uint64_t swap)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	READY_OR(qp, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, "ibv_wr_atomic_cmp_swp",
		 wr_atomic_cmp_swp(ex, rkey, va, compare, swap));
	smx_seg_raddr(begin(qp, SMX_OP_ATOMIC_CS, IMM_NONE, 1), va, rkey);
	smx_wqe_put_atomic(&qp->sq, swap, compare);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t va, uint64_t add)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	READY_OR(qp, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, "ibv_wr_atomic_fetch_add",
		 wr_atomic_fetch_add(ex, rkey, va, add));
	smx_seg_raddr(begin(qp, SMX_OP_ATOMIC_FA, IMM_NONE, 1), va, rkey);
	smx_wqe_put_atomic(&qp->sq, add, 0);
}

/* Data setters. An empty SGE gets no segment. */
static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	uint32_t ds = qp->sq.wr.ds;

	if (!smx_wr_may_set(qp, SMX_NEED_DATA, "ibv_wr_set_sge"))
		return;
	if (length & SMX_INLINE_SEG) {
		(void)smx_sq_refuse_sge_length(qp, 0, length);
		return;
	}
	if (length && !qp->sq.max_gs) {
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SGE, "1 SGE, max_send_sge 0");
		return;
	}
	if (length)
		smx_seg_data(smx_wqe_seg(&qp->sq, ds++), addr, length, lkey);
	smx_wr_setter_done(qp, SMX_NEED_DATA, ds);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sge)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	uint32_t ds = qp->sq.wr.ds;

	if (!smx_wr_may_set(qp, SMX_NEED_DATA, "ibv_wr_set_sge_list"))
		return;
	if (num_sge > qp->sq.max_gs) {
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SGE, "%zu SGEs, max_send_sge %" PRIu32, num_sge,
				    qp->sq.max_gs);
		return;
	}
	for (size_t i = 0; i < num_sge; i++) {
		if (sge[i].length & SMX_INLINE_SEG) {
			(void)smx_sq_refuse_sge_length(qp, i, sge[i].length);
			return;
		}
		if (sge[i].length)
			smx_seg_data(smx_wqe_seg(&qp->sq, ds++), sge[i].addr, sge[i].length, sge[i].lkey);
	}
	smx_wr_setter_done(qp, SMX_NEED_DATA, ds);
}

static int refuse_inline(struct smx_dv_qp *qp, size_t length)
{
	return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_INLINE, "inline data %zu, max_inline_data %" PRIu32, length,
			     qp->sq.max_inline);
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	if (!smx_wr_may_set(qp, SMX_NEED_DATA, "ibv_wr_set_inline_data"))
		return;
	if (length > qp->sq.max_inline) {
		(void)refuse_inline(qp, length);
		return;
	}
	qp->sq.wr.inline_seen = true;
	if (length)
		smx_wqe_put_inline_one(&qp->sq, addr, length);
	smx_wr_setter_done(qp, SMX_NEED_DATA, qp->sq.wr.ds);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf, const struct ibv_data_buf *buf)
{
	_Static_assert(sizeof(struct ibv_data_buf) == sizeof(struct smx_inline_src) &&
		       offsetof(struct ibv_data_buf, length) == offsetof(struct smx_inline_src, length),
		       "a list of buffers is passed on as it is");
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	size_t total = 0;

	if (!smx_wr_may_set(qp, SMX_NEED_DATA, "ibv_wr_set_inline_data_list"))
		return;
	for (size_t i = 0; i < num_buf; i++) {
		/* Each is compared too: a sum of huge lengths could wrap. */
		if (buf[i].length > qp->sq.max_inline || (total += buf[i].length) > qp->sq.max_inline) {
			(void)refuse_inline(qp, buf[i].length > total ? buf[i].length : total);
			return;
		}
	}
	qp->sq.wr.inline_seen = true;
	if (total)
		smx_wqe_put_inline(&qp->sq, (const struct smx_inline_src *)(const void *)buf, num_buf, total);
	smx_wr_setter_done(qp, SMX_NEED_DATA, qp->sq.wr.ds);
}

/* Address setters, before or after the data's. */
static struct smx_wqe_av *take_av(struct smx_dv_qp *qp, enum smx_dv_qp_kind kind, struct ibv_ah *ah,
				  const char *name)
{
	struct smx_wqe_av *av;

	if (!smx_wr_may_set(qp, qp->kind == kind ? SMX_NEED_ADDR : 0, name))
		return NULL;
	if (!ah) {
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_DC_ADDR, "%s: no address handle", name);
		return NULL;
	}
	av = smx_wqe_seg(&qp->sq, SMX_ADDR_AT_DS);
	*av = container_of(ah, struct smx_dv_ah, ibv)->av;
	return av;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	struct smx_wqe_av *av = take_av(qp, SMX_DV_UD, ah, "ibv_wr_set_ud_addr");

	if (!av)
		return;
	av->qkey = to_be32(qkey);
	av->dqp_dct = to_be32(qpn | SMX_AV_EXTENDED);
	smx_wr_setter_done(qp, SMX_NEED_ADDR, qp->sq.wr.ds);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	if (!smx_wr_may_set(qp, qp->kind == SMX_DV_XRC_INI ? SMX_NEED_ADDR : 0, "ibv_wr_set_xrc_srqn"))
		return;
	*(struct smx_wqe_xrc *)smx_wqe_seg(&qp->sq, SMX_ADDR_AT_DS) =
		(struct smx_wqe_xrc){ .srqn = to_be32(srqn) };
	smx_wr_setter_done(qp, SMX_NEED_ADDR, qp->sq.wr.ds);
}

void smx_wr_set_dc_addr_stream(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key,
			       uint16_t stream_id)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);
	struct smx_dv_sq *sq = &qp->sq;
	struct smx_wqe_av *av = take_av(qp, SMX_DV_DCI, ah, "mlx5dv_wr_set_dc_addr");

	if (!av)
		return;
	av->dc_key = to_be64(dc_key);
	av->dqp_dct = to_be32(from_be32(av->dqp_dct) | dctn | SMX_AV_EXTENDED);
	sq->wr.ctrl->dci_stream = to_be16(stream_id);
	sq->wr.slot->stream = stream_id;
	smx_wr_setter_done(qp, SMX_NEED_ADDR, qp->sq.wr.ds);
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
