/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of send WQE opcodes. */
#include "hw/hw_opcode.h"

#include <stdio.h>

#include "base/bits.h"
#include "hw/tag.h"

static const struct smx_op_info ops[] = {
	{ "NOP", "no operation", SMX_OP_NOP, 0, { SMX_SEG_RAW } },
	{ "SEND_INVAL", "send with remote invalidate", SMX_OP_SEND_INVAL,
	  SMX_OPF_INVAL | SMX_OPF_PEER | SMX_OPF_RECV, { SMX_SEG_ADDR, SMX_SEG_DATA } },
	{ "RDMA_WRITE", "RDMA write", SMX_OP_RDMA_WRITE, SMX_OPF_PEER,
	  { SMX_SEG_ADDR, SMX_SEG_RADDR, SMX_SEG_DATA } },
	{ "RDMA_WRITE_IMM", "RDMA write with immediate", SMX_OP_RDMA_WRITE_IMM,
	  SMX_OPF_IMM | SMX_OPF_PEER | SMX_OPF_RECV, { SMX_SEG_ADDR, SMX_SEG_RADDR, SMX_SEG_DATA } },
	{ "SEND", "send", SMX_OP_SEND, SMX_OPF_PEER | SMX_OPF_RECV, { SMX_SEG_ADDR, SMX_SEG_DATA } },
	{ "SEND_IMM", "send with immediate", SMX_OP_SEND_IMM, SMX_OPF_IMM | SMX_OPF_PEER | SMX_OPF_RECV,
	  { SMX_SEG_ADDR, SMX_SEG_DATA } },
	{ "TSO", "segmented Ethernet send", SMX_OP_TSO, SMX_OPF_PEER, { SMX_SEG_ETH, SMX_SEG_DATA } },
	{ "RDMA_READ", "RDMA read", SMX_OP_RDMA_READ, SMX_OPF_PEER | SMX_OPF_RESPONSE,
	  { SMX_SEG_ADDR, SMX_SEG_RADDR, SMX_SEG_DATA } },
	{ "ATOMIC_CS", "atomic compare and swap", SMX_OP_ATOMIC_CS, SMX_OPF_PEER | SMX_OPF_RESPONSE,
	  { SMX_SEG_ADDR, SMX_SEG_RADDR, SMX_SEG_ATOMIC, SMX_SEG_DATA } },
	{ "ATOMIC_FA", "atomic fetch and add", SMX_OP_ATOMIC_FA, SMX_OPF_PEER | SMX_OPF_RESPONSE,
	  { SMX_SEG_ADDR, SMX_SEG_RADDR, SMX_SEG_ATOMIC, SMX_SEG_DATA } },
	{ "ATOMIC_MASKED_CS", "masked atomic compare and swap", SMX_OP_ATOMIC_MASKED_CS,
	  SMX_OPF_PEER | SMX_OPF_RESPONSE | SMX_OPF_OPMOD,
	  { SMX_SEG_ADDR, SMX_SEG_RADDR, SMX_SEG_MASKED_CS, SMX_SEG_DATA } },
	{ "ATOMIC_MASKED_FA", "masked atomic fetch and add", SMX_OP_ATOMIC_MASKED_FA,
	  SMX_OPF_PEER | SMX_OPF_RESPONSE | SMX_OPF_OPMOD,
	  { SMX_SEG_ADDR, SMX_SEG_RADDR, SMX_SEG_MASKED_FA, SMX_SEG_DATA } },
	{ "FMR", "fast memory registration", SMX_OP_FMR, 0, { SMX_SEG_RAW } },
	{ "LOCAL_INVAL", "local invalidate", SMX_OP_LOCAL_INVAL, SMX_OPF_INVAL, { SMX_SEG_RAW } },
	{ "CONFIG_CMD", "configuration command", 0x1f, SMX_OPF_OPMOD, { SMX_SEG_RAW } },
	{ "SET_PSV", "set signature state", SMX_OP_SET_PSV, 0, { SMX_SEG_RAW } },
	{ "UMR", "user-mode memory registration", SMX_OP_UMR, SMX_OPF_MKEY,
	  { SMX_SEG_UMR_CTRL, SMX_SEG_MKEY_CTX, SMX_SEG_XLT, SMX_SEG_RAW } },
	{ "TAG_MATCHING", "tag matching", SMX_OP_TAG_MATCHING, SMX_OPF_OPMOD, { SMX_SEG_TAG, SMX_SEG_DATA } },
	{ "FLOW_TBL_ACCESS", "flow table access", 0x2c, SMX_OPF_OPMOD, { SMX_SEG_RAW } },
	{ "MMO", "memory to memory operation", SMX_OP_MMO, SMX_OPF_OPMOD, { SMX_SEG_MMO_META, SMX_SEG_DATA } },
};

const struct smx_op_info *smx_op_info(uint8_t opcode)
{
	for (size_t i = 0; i < SMX_COUNT(ops); i++)
		if (ops[i].opcode == opcode)
			return &ops[i];
	return NULL;
}

const char *smx_op_name(uint8_t opcode, char buf[16])
{
	const struct smx_op_info *op = smx_op_info(opcode);

	if (op)
		return op->name;
	snprintf(buf, 16, "opcode 0x%02x", opcode);
	return buf;
}

uint32_t smx_seg_bytes(enum smx_seg seg)
{
	switch (seg) {
	case SMX_SEG_RADDR:
		return sizeof(struct smx_wqe_raddr);
	case SMX_SEG_ATOMIC:
		return sizeof(struct smx_wqe_atomic);
	case SMX_SEG_MASKED_CS:
		return sizeof(struct smx_wqe_atomic_masked_cs);
	case SMX_SEG_MASKED_FA:
		return sizeof(struct smx_wqe_atomic_masked_fa);
	case SMX_SEG_UMR_CTRL:
		return sizeof(struct smx_wqe_umr_ctrl);
	case SMX_SEG_MKEY_CTX:
		return sizeof(struct smx_wqe_mkey_ctx);
	case SMX_SEG_MMO_META:
		return sizeof(struct smx_wqe_mmo_meta);
	case SMX_SEG_TAG:
		return sizeof(struct smx_wqe_tag);
	case SMX_SEG_END:
	case SMX_SEG_ADDR:
	case SMX_SEG_ETH:
	case SMX_SEG_XLT:
	case SMX_SEG_DATA:
	case SMX_SEG_RAW:
		break;
	}
	return 0;
}
