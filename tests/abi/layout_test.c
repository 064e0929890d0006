/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: what we believe about memory layouts is what the installed headers say.
 * Method: one row for each field and constant of src/hw against <infiniband/mlx5dv.h>; then the places
 * that every program relies on without a header: what an object begins with, and where the operations of
 * a context stand. The latter are numbers of the binary interface, the same from rdma-core 44 to 65. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "base/bits.h"
#include "hw/cqe.h"
#include "hw/wqe.h"
#include "verbs/objects.h"

struct row {
	const char *name;
	uint64_t ours, theirs;
};

#define SIZE(a, b) { "size of struct " #b, sizeof(struct a), sizeof(struct b) }
#define FIELD(a, f, b, g) { "struct " #b "." #g, offsetof(struct a, f), offsetof(struct b, g) }
#define WIDTH(a, f, b, g) { "width of struct " #b "." #g, sizeof(((struct a *)0)->f), sizeof(((struct b *)0)->g) }
#define VALUE(a, b) { #b, (uint64_t)(a), (uint32_t)(b) }
#define ABI(what, number) { #what, (uint64_t)(what), (number) }
/* Operations are found by their distance from the end of verbs_context, which grows at the front. */
#define FROM_END(op) (sizeof(struct verbs_context) - offsetof(struct verbs_context, op))

static const struct row rows[] = {
	SIZE(smx_wqe_ctrl, mlx5_wqe_ctrl_seg),
	FIELD(smx_wqe_ctrl, opmod_idx_opcode, mlx5_wqe_ctrl_seg, opmod_idx_opcode),
	FIELD(smx_wqe_ctrl, qpn_ds, mlx5_wqe_ctrl_seg, qpn_ds),
	FIELD(smx_wqe_ctrl, signature, mlx5_wqe_ctrl_seg, signature),
	FIELD(smx_wqe_ctrl, dci_stream, mlx5_wqe_ctrl_seg, dci_stream_channel_id),
	WIDTH(smx_wqe_ctrl, dci_stream, mlx5_wqe_ctrl_seg, dci_stream_channel_id),
	FIELD(smx_wqe_ctrl, fm_ce_se, mlx5_wqe_ctrl_seg, fm_ce_se),
	FIELD(smx_wqe_ctrl, imm, mlx5_wqe_ctrl_seg, imm),
	SIZE(smx_wqe_av, mlx5_wqe_av),
	SIZE(smx_wqe_av, mlx5_wqe_datagram_seg),
	FIELD(smx_wqe_av, qkey, mlx5_wqe_av, key.qkey.qkey),
	FIELD(smx_wqe_av, dc_key, mlx5_wqe_av, key.dc_key),
	WIDTH(smx_wqe_av, dc_key, mlx5_wqe_av, key.dc_key),
	FIELD(smx_wqe_av, dqp_dct, mlx5_wqe_av, dqp_dct),
	FIELD(smx_wqe_av, stat_rate_sl, mlx5_wqe_av, stat_rate_sl),
	FIELD(smx_wqe_av, fl_mlid, mlx5_wqe_av, fl_mlid),
	FIELD(smx_wqe_av, rlid, mlx5_wqe_av, rlid),
	FIELD(smx_wqe_av, rmac, mlx5_wqe_av, rmac),
	FIELD(smx_wqe_av, tclass, mlx5_wqe_av, tclass),
	FIELD(smx_wqe_av, hop_limit, mlx5_wqe_av, hop_limit),
	FIELD(smx_wqe_av, grh_gid_fl, mlx5_wqe_av, grh_gid_fl),
	FIELD(smx_wqe_av, rgid, mlx5_wqe_av, rgid),
	WIDTH(smx_wqe_av, rgid, mlx5_wqe_av, rgid),
	SIZE(smx_wqe_raddr, mlx5_wqe_raddr_seg),
	FIELD(smx_wqe_raddr, va, mlx5_wqe_raddr_seg, raddr),
	FIELD(smx_wqe_raddr, rkey, mlx5_wqe_raddr_seg, rkey),
	SIZE(smx_wqe_atomic, mlx5_wqe_atomic_seg),
	FIELD(smx_wqe_atomic, swap_add, mlx5_wqe_atomic_seg, swap_add),
	FIELD(smx_wqe_atomic, compare, mlx5_wqe_atomic_seg, compare),
	SIZE(smx_wqe_data, mlx5_wqe_data_seg),
	FIELD(smx_wqe_data, byte_count, mlx5_wqe_data_seg, byte_count),
	FIELD(smx_wqe_data, lkey, mlx5_wqe_data_seg, lkey),
	FIELD(smx_wqe_data, va, mlx5_wqe_data_seg, addr),
	SIZE(smx_wqe_inline, mlx5_wqe_inl_data_seg),
	SIZE(smx_wqe_umr_ctrl, mlx5_wqe_umr_ctrl_seg),
	FIELD(smx_wqe_umr_ctrl, flags, mlx5_wqe_umr_ctrl_seg, flags),
	FIELD(smx_wqe_umr_ctrl, klm_octowords, mlx5_wqe_umr_ctrl_seg, klm_octowords),
	FIELD(smx_wqe_umr_ctrl, xlt_offset, mlx5_wqe_umr_ctrl_seg, translation_offset),
	FIELD(smx_wqe_umr_ctrl, mkey_mask, mlx5_wqe_umr_ctrl_seg, mkey_mask),
	SIZE(smx_wqe_mkey_ctx, mlx5_wqe_mkey_context_seg),
	FIELD(smx_wqe_mkey_ctx, free, mlx5_wqe_mkey_context_seg, free),
	FIELD(smx_wqe_mkey_ctx, access, mlx5_wqe_mkey_context_seg, access_flags),
	FIELD(smx_wqe_mkey_ctx, sf, mlx5_wqe_mkey_context_seg, sf),
	FIELD(smx_wqe_mkey_ctx, qpn_mkey, mlx5_wqe_mkey_context_seg, qpn_mkey),
	FIELD(smx_wqe_mkey_ctx, flags_pd, mlx5_wqe_mkey_context_seg, flags_pd),
	FIELD(smx_wqe_mkey_ctx, start_addr, mlx5_wqe_mkey_context_seg, start_addr),
	FIELD(smx_wqe_mkey_ctx, len, mlx5_wqe_mkey_context_seg, len),
	FIELD(smx_wqe_mkey_ctx, bsf_octowords, mlx5_wqe_mkey_context_seg, bsf_octword_size),
	FIELD(smx_wqe_mkey_ctx, xlt_octowords, mlx5_wqe_mkey_context_seg, translations_octword_size),
	FIELD(smx_wqe_mkey_ctx, log_page_size, mlx5_wqe_mkey_context_seg, log_page_size),
	SIZE(smx_wqe_klm, mlx5_wqe_umr_klm_seg),
	FIELD(smx_wqe_klm, byte_count, mlx5_wqe_umr_klm_seg, byte_count),
	FIELD(smx_wqe_klm, mkey, mlx5_wqe_umr_klm_seg, mkey),
	FIELD(smx_wqe_klm, va, mlx5_wqe_umr_klm_seg, address),
	SIZE(smx_wqe_repeat_block, mlx5_wqe_umr_repeat_block_seg),
	FIELD(smx_wqe_repeat_block, byte_count, mlx5_wqe_umr_repeat_block_seg, byte_count),
	FIELD(smx_wqe_repeat_block, op, mlx5_wqe_umr_repeat_block_seg, op),
	FIELD(smx_wqe_repeat_block, repeat_count, mlx5_wqe_umr_repeat_block_seg, repeat_count),
	FIELD(smx_wqe_repeat_block, num_ent, mlx5_wqe_umr_repeat_block_seg, num_ent),
	SIZE(smx_wqe_repeat_ent, mlx5_wqe_umr_repeat_ent_seg),
	FIELD(smx_wqe_repeat_ent, stride, mlx5_wqe_umr_repeat_ent_seg, stride),
	FIELD(smx_wqe_repeat_ent, byte_count, mlx5_wqe_umr_repeat_ent_seg, byte_count),
	FIELD(smx_wqe_repeat_ent, mkey, mlx5_wqe_umr_repeat_ent_seg, memkey),
	FIELD(smx_wqe_repeat_ent, va, mlx5_wqe_umr_repeat_ent_seg, va),
	SIZE(smx_wqe_srq_next, mlx5_wqe_srq_next_seg),
	FIELD(smx_wqe_srq_next, next_wqe_index, mlx5_wqe_srq_next_seg, next_wqe_index),
	FIELD(smx_wqe_srq_next, signature, mlx5_wqe_srq_next_seg, signature),

	SIZE(smx_cqe64, mlx5_cqe64),
	FIELD(smx_cqe64, wqe_id, mlx5_cqe64, wqe_id),
	FIELD(smx_cqe64, ml_path, mlx5_cqe64, ml_path),
	FIELD(smx_cqe64, slid, mlx5_cqe64, slid),
	FIELD(smx_cqe64, flags_rqpn, mlx5_cqe64, flags_rqpn),
	FIELD(smx_cqe64, hds_ip_ext, mlx5_cqe64, hds_ip_ext),
	FIELD(smx_cqe64, l4_hdr_type_etc, mlx5_cqe64, l4_hdr_type_etc),
	FIELD(smx_cqe64, vlan_info, mlx5_cqe64, vlan_info),
	FIELD(smx_cqe64, srqn_uidx, mlx5_cqe64, srqn_uidx),
	FIELD(smx_cqe64, imm_inval_pkey, mlx5_cqe64, imm_inval_pkey),
	FIELD(smx_cqe64, app, mlx5_cqe64, app),
	FIELD(smx_cqe64, app_op, mlx5_cqe64, app_op),
	FIELD(smx_cqe64, app_info, mlx5_cqe64, app_info),
	FIELD(smx_cqe64, byte_cnt, mlx5_cqe64, byte_cnt),
	FIELD(smx_cqe64, timestamp, mlx5_cqe64, timestamp),
	FIELD(smx_cqe64, sop_drop_qpn, mlx5_cqe64, sop_drop_qpn),
	FIELD(smx_cqe64, wqe_counter, mlx5_cqe64, wqe_counter),
	FIELD(smx_cqe64, signature, mlx5_cqe64, signature),
	FIELD(smx_cqe64, op_own, mlx5_cqe64, op_own),
	SIZE(smx_err_cqe, mlx5_err_cqe),
	FIELD(smx_err_cqe, srqn, mlx5_err_cqe, srqn),
	FIELD(smx_err_cqe, vendor_err_synd, mlx5_err_cqe, vendor_err_synd),
	FIELD(smx_err_cqe, syndrome, mlx5_err_cqe, syndrome),
	FIELD(smx_err_cqe, s_wqe_opcode_qpn, mlx5_err_cqe, s_wqe_opcode_qpn),
	FIELD(smx_err_cqe, wqe_counter, mlx5_err_cqe, wqe_counter),
	FIELD(smx_err_cqe, op_own, mlx5_err_cqe, op_own),

	VALUE(SMX_OP_NOP, MLX5_OPCODE_NOP),
	VALUE(SMX_OP_SEND_INVAL, MLX5_OPCODE_SEND_INVAL),
	VALUE(SMX_OP_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE),
	VALUE(SMX_OP_RDMA_WRITE_IMM, MLX5_OPCODE_RDMA_WRITE_IMM),
	VALUE(SMX_OP_SEND, MLX5_OPCODE_SEND),
	VALUE(SMX_OP_SEND_IMM, MLX5_OPCODE_SEND_IMM),
	VALUE(SMX_OP_TSO, MLX5_OPCODE_TSO),
	VALUE(SMX_OP_RDMA_READ, MLX5_OPCODE_RDMA_READ),
	VALUE(SMX_OP_ATOMIC_CS, MLX5_OPCODE_ATOMIC_CS),
	VALUE(SMX_OP_ATOMIC_FA, MLX5_OPCODE_ATOMIC_FA),
	VALUE(SMX_OP_ATOMIC_MASKED_CS, MLX5_OPCODE_ATOMIC_MASKED_CS),
	VALUE(SMX_OP_ATOMIC_MASKED_FA, MLX5_OPCODE_ATOMIC_MASKED_FA),
	VALUE(SMX_OP_FMR, MLX5_OPCODE_FMR),
	VALUE(SMX_OP_LOCAL_INVAL, MLX5_OPCODE_LOCAL_INVAL),
	VALUE(SMX_OP_SET_PSV, MLX5_OPCODE_SET_PSV),
	VALUE(SMX_OP_UMR, MLX5_OPCODE_UMR),
	VALUE(SMX_OP_TAG_MATCHING, MLX5_OPCODE_TAG_MATCHING),
	VALUE(SMX_OP_MMO, MLX5_OPCODE_MMO),
	VALUE(SMX_CTRL_FENCE, MLX5_WQE_CTRL_FENCE),
	VALUE(SMX_CTRL_SMALL_FENCE, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE),
	VALUE(SMX_CTRL_CQ_UPDATE, MLX5_WQE_CTRL_CQ_UPDATE),
	VALUE(SMX_CTRL_SOLICITED, MLX5_WQE_CTRL_SOLICITED),
	VALUE(SMX_WQE_BB, MLX5_SEND_WQE_BB),
	VALUE(SMX_AV_EXTENDED, MLX5_EXTENDED_UD_AV),
	VALUE(SMX_INLINE_SEG, MLX5_INLINE_SEG),
	VALUE(SMX_LKEY_END, MLX5_INVALID_LKEY),
	VALUE(SMX_UMR_INLINE, MLX5_WQE_UMR_CTRL_FLAG_INLINE),
	VALUE(SMX_UMR_CHECK_FREE, MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE),
	VALUE(SMX_UMR_XLT_OFFSET, MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET),
	VALUE(SMX_UMR_CHECK_QPN, MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN),
	VALUE(SMX_UMR_MASK_LEN, MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN),
	VALUE(SMX_UMR_MASK_START_ADDR, MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR),
	VALUE(SMX_UMR_MASK_SIG_ERR, MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR),
	VALUE(SMX_UMR_MASK_BSF_ENABLE, MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE),
	VALUE(SMX_UMR_MASK_MKEY, MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY),
	VALUE(SMX_UMR_MASK_QPN, MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN),
	VALUE(SMX_UMR_MASK_LOCAL_WRITE, MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE),
	VALUE(SMX_UMR_MASK_REMOTE_READ, MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ),
	VALUE(SMX_UMR_MASK_REMOTE_WRITE, MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE),
	VALUE(SMX_UMR_MASK_ATOMIC, MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC),
	VALUE(SMX_UMR_MASK_FREE, MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE),
	VALUE(SMX_MKC_FREE, MLX5_WQE_MKEY_CONTEXT_FREE),
	VALUE(SMX_MKC_LOCAL_READ, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ),
	VALUE(SMX_MKC_LOCAL_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE),
	VALUE(SMX_MKC_REMOTE_READ, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ),
	VALUE(SMX_MKC_REMOTE_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE),
	VALUE(SMX_MKC_ATOMIC, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC),
	VALUE(SMX_DBREC_RCV, MLX5_RCV_DBR),
	VALUE(SMX_DBREC_SND, MLX5_SND_DBR),
	VALUE(SMX_CQE_REQ, MLX5_CQE_REQ),
	VALUE(SMX_CQE_RESP_WR_IMM, MLX5_CQE_RESP_WR_IMM),
	VALUE(SMX_CQE_RESP_SEND, MLX5_CQE_RESP_SEND),
	VALUE(SMX_CQE_RESP_SEND_IMM, MLX5_CQE_RESP_SEND_IMM),
	VALUE(SMX_CQE_RESP_SEND_INV, MLX5_CQE_RESP_SEND_INV),
	VALUE(SMX_CQE_RESIZE_CQ, MLX5_CQE_RESIZE_CQ),
	VALUE(SMX_CQE_NO_PACKET, MLX5_CQE_NO_PACKET),
	VALUE(SMX_CQE_SIG_ERR, MLX5_CQE_SIG_ERR),
	VALUE(SMX_CQE_REQ_ERR, MLX5_CQE_REQ_ERR),
	VALUE(SMX_CQE_RESP_ERR, MLX5_CQE_RESP_ERR),
	VALUE(SMX_CQE_INVALID, MLX5_CQE_INVALID),
	VALUE(SMX_CQE_OWNER, MLX5_CQE_OWNER_MASK),
	VALUE(SMX_CQE_INLINE_32, MLX5_INLINE_SCATTER_32),
	VALUE(SMX_CQE_INLINE_64, MLX5_INLINE_SCATTER_64),
	VALUE(SMX_CQ_UAR_DOORBELL, MLX5_CQ_DOORBELL),
	VALUE(SMX_CQ_ARM_SOLICITED, MLX5_CQ_DB_REQ_NOT_SOL),
	VALUE(SMX_SYND_LOCAL_LENGTH, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR),
	VALUE(SMX_SYND_LOCAL_QP_OP, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR),
	VALUE(SMX_SYND_LOCAL_PROT, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR),
	VALUE(SMX_SYND_WR_FLUSH, MLX5_CQE_SYNDROME_WR_FLUSH_ERR),
	VALUE(SMX_SYND_MW_BIND, MLX5_CQE_SYNDROME_MW_BIND_ERR),
	VALUE(SMX_SYND_BAD_RESP, MLX5_CQE_SYNDROME_BAD_RESP_ERR),
	VALUE(SMX_SYND_LOCAL_ACCESS, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR),
	VALUE(SMX_SYND_REMOTE_INVAL_REQ, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR),
	VALUE(SMX_SYND_REMOTE_ACCESS, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR),
	VALUE(SMX_SYND_REMOTE_OP, MLX5_CQE_SYNDROME_REMOTE_OP_ERR),
	VALUE(SMX_SYND_TRANSPORT_RETRY, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR),
	VALUE(SMX_SYND_RNR_RETRY, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR),
	VALUE(SMX_SYND_REMOTE_ABORTED, MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR),

	ABI(offsetof(struct smx_vpd, ibv), 0),
	ABI(offsetof(struct smx_vtd, ibv), 0),
	ABI(offsetof(struct smx_vmr, ibv), 0),
	ABI(offsetof(struct smx_vmw, ibv), 0),
	ABI(offsetof(struct smx_vdm, ibv), 0),
	ABI(offsetof(struct smx_vcq, dv.ex), 0),
	ABI(offsetof(struct smx_vsrq, dv.ibv), 0),
	ABI(offsetof(struct smx_vqp, dv.ex.qp_base), 0),
	ABI(offsetof(struct smx_vxrcd, ibv), 0),
	ABI(offsetof(struct smx_vmkey, dv.dv), 0),
	ABI(offsetof(struct smx_dv_ah, ibv), 0),
	/* verbs_context follows directly: sz before ibv_context, which is last. */
	ABI(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, sz), 8),
	ABI(sizeof(struct ibv_context), 328),
	ABI(offsetof(struct ibv_context, cmd_fd), 264),
	ABI(offsetof(struct ibv_context, abi_compat), 320),
	ABI(offsetof(struct ibv_context_ops, poll_cq), 88),
	ABI(offsetof(struct ibv_context_ops, post_srq_recv), 160),
	ABI(offsetof(struct ibv_context_ops, post_send), 200),
	ABI(offsetof(struct ibv_context_ops, post_recv), 208),
	ABI(FROM_END(close_xrcd), 352),
	ABI(FROM_END(create_srq_ex), 368),
	ABI(FROM_END(create_qp_ex), 384),
	ABI(FROM_END(query_device_ex), 432),
	ABI(FROM_END(create_cq_ex), 448),
	ABI(FROM_END(alloc_dm), 584),
	ABI(FROM_END(advise_mr), 640),
	ABI(FROM_END(query_port), 648),
	ABI(sizeof(struct ibv_device), 664),
	ABI(offsetof(struct ibv_device, name), 24),
	ABI(offsetof(struct ibv_device, ibdev_path), 408),
	ABI(sizeof(struct ibv_qp), 160),
	ABI(offsetof(struct ibv_qp_ex, wr_start), 320),
	ABI(sizeof(struct ibv_device_attr_ex), 400),
};

int main(void)
{
	unsigned int failed = 0;

	for (unsigned int i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];

		if (r->ours == r->theirs) {
			printf("ok - %s\n", r->name);
			continue;
		}
		printf("not ok - %s: 0x%" PRIx64 ", should be 0x%" PRIx64 "\n", r->name, r->ours, r->theirs);
		failed++;
	}
	return failed != 0;
}
