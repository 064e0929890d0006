/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The extended poll: start, next, end, and what may be read between. The CQ's lock is held from a successful
 * start to end. */
#include "dv/dv_tag.h"

#include <errno.h>

static struct smx_dv_cq *cq_of(struct ibv_cq_ex *ex)
{
	return (struct smx_dv_cq *)(void *)ex;
}

/* RETURN 0, ENOENT where the queue is empty, or EINVAL for a CQE of a queue that is not there. */
static __attribute__((noinline)) int advance_slowly(struct smx_dv_cq *cq)
{
	for (;;) {
		struct smx_cqe64 *cqe = smx_cq_entry(cq, cq->ci);
		uint64_t end = smx_cqe_load_end(cqe);
		enum smx_cq_result r = SMX_CQ_DONE;

		if (!smx_cq_has(cq, cq->ci, end))
			return ENOENT;
		if (smx_cq_take_plain(cq, cqe, end, &cq->ex.wr_id))
			cq->ex.status = IBV_WC_SUCCESS;
		else
			r = smx_cq_take_other(cq, cqe, &cq->ex.wr_id, &cq->ex.status);
		smx_cq_consume(cq);
		if (r == SMX_CQ_DONE) {
			cq->cur = cqe;
			return 0;
		}
		if (r == SMX_CQ_UNKNOWN)
			return EINVAL;
	}
}

/* The same when the next CQE is of the commonest kinds. RETURN whether it was. */
static inline bool advance_plainly(struct smx_dv_cq *cq)
{
	struct smx_cqe64 *cqe = smx_cq_entry(cq, cq->ci);
	uint64_t end = smx_cqe_load_end(cqe);

	if (!smx_cq_has(cq, cq->ci, end) || !smx_cq_take_plain(cq, cqe, end, &cq->ex.wr_id))
		return false;
	cq->ex.status = IBV_WC_SUCCESS;
	cq->cur = cqe;
	smx_cq_consume(cq);
	return true;
}

static int start_locked(struct smx_dv_cq *cq)
{
	uint32_t ci = cq->ci;
	int err = advance_slowly(cq);

	if (err) {
		if (cq->ci != ci)
			smx_cq_tell_ci(cq, cq->ci);
		smx_dv_unlock(&cq->lock);
	}
	return err;
}

static __attribute__((noinline)) int start_slowly(struct smx_dv_cq *cq)
{
	int err = start_locked(cq);

	if (err == ENOENT && cq->idle && cq->idle(cq)) {
		smx_dv_lock(&cq->lock);
		err = start_locked(cq);
	}
	return err;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct smx_dv_cq *cq = cq_of(ex);

	if (attr->comp_mask)
		return EINVAL;
	smx_dv_lock(&cq->lock);
	return advance_plainly(cq) ? 0 : start_slowly(cq);
}

static int next_poll(struct ibv_cq_ex *ex)
{
	return advance_plainly(cq_of(ex)) ? 0 : advance_slowly(cq_of(ex));
}

static void end_poll(struct ibv_cq_ex *ex)
{
	struct smx_dv_cq *cq = cq_of(ex);

	/* cur stays: programs read the completion's fields after the poll too, as libmlx5 lets them. */
	smx_cq_tell_ci(cq, cq->ci);
	smx_dv_unlock(&cq->lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return (enum ibv_wc_opcode)smx_cq_wc_opcode(cq_of(ex), cq_of(ex)->cur);
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	const struct smx_cqe64 *cqe = cq_of(ex)->cur;

	return smx_cqe_is_error(cqe->op_own) ? ((const struct smx_err_cqe *)cqe)->vendor_err_synd : 0;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	const struct smx_cqe64 *cqe = cq_of(ex)->cur;
	unsigned int flags = cq_of(ex)->cur_tag_flags;

	flags |= (smx_cqe_flags_rqpn(cqe) >> 28) & 3 ? IBV_WC_GRH : 0;

	switch (smx_cqe_op(cqe)) {
	case SMX_CQE_RESP_WR_IMM:
	case SMX_CQE_RESP_SEND_IMM:
		return flags | IBV_WC_WITH_IMM;
	case SMX_CQE_RESP_SEND_INV:
		return flags | IBV_WC_WITH_INV;
	case SMX_CQE_RESP_SEND:
	case SMX_CQE_NO_PACKET:
		return flags;
	default:
		return 0;
	}
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return from_be32(cq_of(ex)->cur->byte_cnt);
}

/* Immediate data as it lies; an invalidated rkey in host order, as ibv_wc_read_invalidated_rkey expects. */
static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	const struct smx_cqe64 *cqe = cq_of(ex)->cur;
	__be32 x;

	if (smx_cqe_op(cqe) == SMX_CQE_RESP_SEND_INV)
		return (__be32)from_be32(cqe->imm_inval_pkey);
	memcpy(&x, &cqe->imm_inval_pkey, sizeof(x));
	return x;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return smx_cqe_qpn(cq_of(ex)->cur);
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return smx_cqe_flags_rqpn(cq_of(ex)->cur) & 0xffffff;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	const struct smx_cqe64 *cqe = cq_of(ex)->cur;

	return cqe->op_own & SMX_CQE_INLINE_32 ? 0 : from_be16(cqe->slid);
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return (smx_cqe_flags_rqpn(cq_of(ex)->cur) >> 24) & 0xf;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	const struct smx_cqe64 *cqe = cq_of(ex)->cur;

	return cqe->op_own & SMX_CQE_INLINE_32 ? 0 : cqe->ml_path & 0x7f;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
	return from_be64(cq_of(ex)->cur->timestamp);
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ex)
{
	struct smx_dv_cq *cq = cq_of(ex);

	return cq->wallclock_ns(cq, from_be64(cq->cur->timestamp));
}

static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
	return from_be16(cq_of(ex)->cur->vlan_info);
}

/* No flow has a tag; the field is the queue pair's number then, as libmlx5 reports it. */
static uint32_t read_flow_tag(struct ibv_cq_ex *ex)
{
	return smx_cqe_qpn(cq_of(ex)->cur);
}

static void read_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	const struct smx_cqe64 *cqe = cq_of(ex)->cur;
	const struct smx_tmh *tmh = (const struct smx_tmh *)(const void *)cqe;
	bool has = smx_cqe_is_tag(cqe) && !(cqe->op_own & SMX_CQE_INLINE_32);

	/* Of a message that matched; a CQE of another kind has zeros there. */
	*info = (struct ibv_wc_tm_info){ .tag = has ? from_be64(tmh->tag) : 0,
					 .priv = has ? from_be32(tmh->app_ctx) : 0 };
}

int smx_dv_cq_fill_ops(struct smx_dv_cq *cq)
{
	struct ibv_cq_ex *ex = &cq->ex;
	uint64_t want = cq->wc_flags;

	if (want & ~(uint64_t)IBV_CREATE_CQ_SUP_WC_FLAGS)
		return EOPNOTSUPP;
	if (want & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK && !cq->wallclock_ns)
		return EOPNOTSUPP;
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	ex->read_byte_len = want & IBV_WC_EX_WITH_BYTE_LEN ? read_byte_len : NULL;
	ex->read_imm_data = want & IBV_WC_EX_WITH_IMM ? read_imm_data : NULL;
	ex->read_qp_num = want & IBV_WC_EX_WITH_QP_NUM ? read_qp_num : NULL;
	ex->read_src_qp = want & IBV_WC_EX_WITH_SRC_QP ? read_src_qp : NULL;
	ex->read_slid = want & IBV_WC_EX_WITH_SLID ? read_slid : NULL;
	ex->read_sl = want & IBV_WC_EX_WITH_SL ? read_sl : NULL;
	ex->read_dlid_path_bits = want & IBV_WC_EX_WITH_DLID_PATH_BITS ? read_dlid_path_bits : NULL;
	ex->read_completion_ts = want & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP ? read_completion_ts : NULL;
	ex->read_completion_wallclock_ns = want & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK ?
					   read_completion_wallclock_ns : NULL;
	ex->read_cvlan = want & IBV_WC_EX_WITH_CVLAN ? read_cvlan : NULL;
	ex->read_flow_tag = want & IBV_WC_EX_WITH_FLOW_TAG ? read_flow_tag : NULL;
	ex->read_tm_info = want & IBV_WC_EX_WITH_TM_INFO ? read_tm_info : NULL;
	return 0;
}
