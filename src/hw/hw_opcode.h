/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What each send WQE opcode is called and which segments follow its control segment. */
#ifndef SMX_HW_OPCODE_H
#define SMX_HW_OPCODE_H

#include <stdint.h>

#include "hw/wqe.h"

/* Segments in the order in which they stand after the control segment. */
enum smx_seg {
	SMX_SEG_END,
	SMX_SEG_ADDR,		/* address vector on UD and DC, SRQ number on XRC; nothing on RC and UC */
	SMX_SEG_RADDR,
	SMX_SEG_ATOMIC,
	SMX_SEG_MASKED_CS,
	SMX_SEG_MASKED_FA,
	SMX_SEG_ETH,
	SMX_SEG_UMR_CTRL,
	SMX_SEG_MKEY_CTX,
	SMX_SEG_XLT,		/* translation entries, as many as the UMR control says */
	SMX_SEG_MMO_META,
	SMX_SEG_TAG,
	SMX_SEG_DATA,		/* to the end: pointers, or one inline segment */
	SMX_SEG_RAW,		/* to the end: bytes of no public layout */
};

enum smx_op_flag {
	SMX_OPF_IMM = 1 << 0,		/* control.imm is immediate data */
	SMX_OPF_INVAL = 1 << 1,		/* control.imm is an rkey to invalidate, at the peer or here */
	SMX_OPF_MKEY = 1 << 2,		/* control.imm is the mkey that a UMR changes */
	SMX_OPF_PEER = 1 << 3,		/* packets leave: needs a connection or an address */
	SMX_OPF_RECV = 1 << 4,		/* takes a receive at the peer */
	SMX_OPF_RESPONSE = 1 << 5,	/* the peer's answer is written to local memory */
	SMX_OPF_OPMOD = 1 << 6,		/* opmod picks among several operations */
};

struct smx_op_info {
	const char *name;	/* "RDMA_WRITE" */
	const char *title;	/* "RDMA write" */
	uint8_t opcode;		/* enum smx_wqe_op, or one that softmlx5 names but does not execute */
	uint8_t flags;		/* enum smx_op_flag */
	uint8_t segs[6];	/* enum smx_seg, ends with SMX_SEG_END */
};

/* RETURN NULL where the opcode has no public meaning. */
const struct smx_op_info *smx_op_info(uint8_t opcode);

/* The name, or "opcode 0x3f" in buf where there is none. */
const char *smx_op_name(uint8_t opcode, char buf[16]);

/* Bytes of a segment that has a fixed size; 0 for the others. */
uint32_t smx_seg_bytes(enum smx_seg seg);

#endif
