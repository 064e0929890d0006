/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Work queue entries as they lie in send, receive and shared receive queues.
 *
 * Source of every layout: <infiniband/mlx5dv.h> (struct mlx5_wqe_*); tests/abi compares. Segments are
 * 16 bytes (DS) or multiples; a send WQE starts on a 64-byte basic block (BB) and may wrap round the
 * ring's end at any segment. */
#ifndef SMX_HW_WQE_H
#define SMX_HW_WQE_H

#include "base/be.h"

enum {
	SMX_WQE_DS = 16,	/* bytes a segment */
	SMX_WQE_BB = 64,	/* bytes a block */
	SMX_WQE_DS_MAX = 63,	/* ds is a six-bit field */
	SMX_WQE_BB_MAX = 16,
};

enum smx_wqe_op {
	SMX_OP_NOP = 0x00,
	SMX_OP_SEND_INVAL = 0x01,
	SMX_OP_RDMA_WRITE = 0x08,
	SMX_OP_RDMA_WRITE_IMM = 0x09,
	SMX_OP_SEND = 0x0a,
	SMX_OP_SEND_IMM = 0x0b,
	SMX_OP_TSO = 0x0e,
	SMX_OP_RDMA_READ = 0x10,
	SMX_OP_ATOMIC_CS = 0x11,
	SMX_OP_ATOMIC_FA = 0x12,
	SMX_OP_ATOMIC_MASKED_CS = 0x14,
	SMX_OP_ATOMIC_MASKED_FA = 0x15,
	SMX_OP_FMR = 0x19,
	SMX_OP_LOCAL_INVAL = 0x1b,
	SMX_OP_SET_PSV = 0x20,
	SMX_OP_UMR = 0x25,
	SMX_OP_TAG_MATCHING = 0x28,
	SMX_OP_MMO = 0x2f,
};

struct smx_wqe_ctrl {
	be32 opmod_idx_opcode;	/* [31:24] opmod, [23:8] producer index in BBs, [7:0] enum smx_wqe_op */
	be32 qpn_ds;		/* [31:8] queue pair number, [5:0] WQE length in DS */
	uint8_t signature;
	be16 dci_stream;
	uint8_t fm_ce_se;	/* SMX_CTRL_* */
	be32 imm;		/* immediate data, rkey to invalidate, or mkey of a UMR, by opcode */
};
SMX_SIZE(struct smx_wqe_ctrl, 16);
SMX_AT(struct smx_wqe_ctrl, dci_stream, 0x9);
SMX_AT(struct smx_wqe_ctrl, fm_ce_se, 0xb);
SMX_AT(struct smx_wqe_ctrl, imm, 0xc);

/* fm_ce_se: fence mode [7:5], completion mode [3:2], solicited [1]. */
enum {
	SMX_CTRL_FENCE_MASK = 0xe0,
	SMX_CTRL_FENCE = 4 << 5,		/* wait for all RDMA reads and atomics before */
	SMX_CTRL_SMALL_FENCE = 1 << 5,		/* wait for the UMR or invalidate before */
	SMX_CTRL_CE_MASK = 0x0c,
	SMX_CTRL_CQ_UPDATE = 2 << 2,		/* CQE on success too */
	SMX_CTRL_SOLICITED = 1 << 1,
};

/* Address vector: UD and DC, right after the control segment. */
struct smx_wqe_av {
	union {
		struct { be32 qkey, rsvd; };	/* UD */
		be64 dc_key;			/* DC */
	};
	be32 dqp_dct;		/* [31] extended AV, [23:0] QP or DCT number */
	uint8_t stat_rate_sl;	/* [7:4] rate, [3:0] SL */
	uint8_t fl_mlid;
	be16 rlid;		/* RoCE: UDP source port */
	uint8_t rsvd0[4];
	uint8_t rmac[6];
	uint8_t tclass;
	uint8_t hop_limit;
	be32 grh_gid_fl;	/* [30] GRH present, [27:20] source GID index, [19:0] flow label */
	uint8_t rgid[16];
};
SMX_SIZE(struct smx_wqe_av, 48);
SMX_AT(struct smx_wqe_av, rmac, 0x14);
SMX_AT(struct smx_wqe_av, grh_gid_fl, 0x1c);
SMX_AT(struct smx_wqe_av, rgid, 0x20);
#define SMX_AV_EXTENDED 0x80000000u

/* XRC initiator: right after the control segment. */
struct smx_wqe_xrc {
	be32 srqn;
	uint8_t rsvd[12];
};
SMX_SIZE(struct smx_wqe_xrc, 16);

struct smx_wqe_raddr {
	be64 va;
	be32 rkey;
	be32 rsvd;
};
SMX_SIZE(struct smx_wqe_raddr, 16);

struct smx_wqe_atomic {
	be64 swap_add;
	be64 compare;
};
SMX_SIZE(struct smx_wqe_atomic, 16);

/* Masked atomics, 8-byte operands: compare-swap has two of these, fetch-add one. */
struct smx_wqe_atomic_masked_cs {
	be64 swap, compare, swap_mask, compare_mask;
};
SMX_SIZE(struct smx_wqe_atomic_masked_cs, 32);

struct smx_wqe_atomic_masked_fa {
	be64 add, field_boundary;
};
SMX_SIZE(struct smx_wqe_atomic_masked_fa, 16);

/* Points at memory (gather or scatter). In a receive queue, lkey SMX_LKEY_END ends the list. */
struct smx_wqe_data {
	be32 byte_count;	/* [31] set: this is an inline header instead; [30:0] bytes, 0 means 2^31 where one
				 * pointer is the whole operand (MMO) */
	be32 lkey;
	be64 va;
};
SMX_SIZE(struct smx_wqe_data, 16);
#define SMX_INLINE_SEG 0x80000000u
#define SMX_LKEY_END	 0x100u

/* Four bytes, then the data itself, padded to a whole DS. */
struct smx_wqe_inline { be32 byte_count; };
SMX_SIZE(struct smx_wqe_inline, 4);

/* UMR: control | this | mkey context | translation entries (KLM or strided). */
struct smx_wqe_umr_ctrl {
	uint8_t flags;		/* SMX_UMR_* */
	uint8_t rsvd0[3];
	be16 klm_octowords;	/* translation entries that follow, in DS, a multiple of 4 */
	be16 xlt_offset;	/* translation offset, or BSF octowords without SMX_UMR_XLT_OFFSET */
	be64 mkey_mask;		/* SMX_UMR_MASK_*: which context fields are taken over */
	uint8_t rsvd1[32];
};
SMX_SIZE(struct smx_wqe_umr_ctrl, 48);
SMX_AT(struct smx_wqe_umr_ctrl, klm_octowords, 4);
SMX_AT(struct smx_wqe_umr_ctrl, mkey_mask, 8);

enum {
	SMX_UMR_INLINE = 1 << 7,
	SMX_UMR_CHECK_FREE = 1 << 5,	/* refuse unless the mkey is free */
	SMX_UMR_XLT_OFFSET = 1 << 4,
	SMX_UMR_CHECK_QPN = 1 << 3,	/* refuse unless the mkey belongs to this QP */
};

#define SMX_UMR_MASK_LEN		 (1ull << 0)
#define SMX_UMR_MASK_START_ADDR		 (1ull << 6)
#define SMX_UMR_MASK_SIG_ERR		 (1ull << 9)
#define SMX_UMR_MASK_BSF_ENABLE		 (1ull << 12)
#define SMX_UMR_MASK_MKEY		 (1ull << 13)
#define SMX_UMR_MASK_QPN		 (1ull << 14)
#define SMX_UMR_MASK_LOCAL_WRITE	 (1ull << 18)
#define SMX_UMR_MASK_REMOTE_READ	 (1ull << 19)
#define SMX_UMR_MASK_REMOTE_WRITE	 (1ull << 20)
#define SMX_UMR_MASK_ATOMIC		 (1ull << 21)
#define SMX_UMR_MASK_FREE		 (1ull << 29)

struct smx_wqe_mkey_ctx {
	uint8_t free;		/* SMX_MKC_FREE or 0 */
	uint8_t rsvd1;
	uint8_t access;		/* SMX_MKC_* */
	uint8_t sf;
	be32 qpn_mkey;		/* [31:8] QP number or 0xffffff, [7:0] tag of the key */
	be32 rsvd2;
	be32 flags_pd;
	be64 start_addr;
	be64 len;
	be32 bsf_octowords;
	be32 rsvd3[4];
	be32 xlt_octowords;
	uint8_t rsvd4[3];
	uint8_t log_page_size;
	be32 rsvd5;
};
SMX_SIZE(struct smx_wqe_mkey_ctx, 64);
SMX_AT(struct smx_wqe_mkey_ctx, start_addr, 16);
SMX_AT(struct smx_wqe_mkey_ctx, len, 24);

enum {
	SMX_MKC_FREE = 1 << 6,
	SMX_MKC_LOCAL_READ = 1 << 2,
	SMX_MKC_LOCAL_WRITE = 1 << 3,
	SMX_MKC_REMOTE_READ = 1 << 4,
	SMX_MKC_REMOTE_WRITE = 1 << 5,
	SMX_MKC_ATOMIC = 1 << 6,
};

/* Translation entry of a list. */
struct smx_wqe_klm {
	be32 byte_count;	/* up to 2 GiB; 0 is an empty entry */
	be32 mkey;
	be64 va;
};
SMX_SIZE(struct smx_wqe_klm, 16);

/* Strided layout: one header in a list entry's place, then num_ent entries; together they are walked
 * repeat_count times. op is where an mkey would be; no key has that number. */
struct smx_wqe_repeat_block {
	be32 byte_count;	/* bytes of one turn: the sum of the entries' byte_count */
	be32 op;		/* SMX_REPEAT_OP */
	be32 repeat_count;
	be16 rsvd;
	be16 num_ent;
};
SMX_SIZE(struct smx_wqe_repeat_block, 16);
#define SMX_REPEAT_OP 0x400u

struct smx_wqe_repeat_ent {
	be16 stride;		/* bytes from one turn's block to the next */
	be16 byte_count;	/* bytes of one block */
	be32 mkey;
	be64 va;
};
SMX_SIZE(struct smx_wqe_repeat_ent, 16);

/* DMA copy: control (opmod SMX_MMO_OPMOD_DMA) | this | source data | destination data. */
struct smx_wqe_mmo_meta {
	be32 mmo_control;
	be32 local_key;		/* of 64 bytes that belong to the device */
	be64 local_va;
};
SMX_SIZE(struct smx_wqe_mmo_meta, 16);
#define SMX_MMO_OPMOD_DMA 1

/* Shared receive queue: each WQE starts with this, then data segments. */
struct smx_wqe_srq_next {
	uint8_t rsvd0[2];
	be16 next_wqe_index;
	uint8_t signature;
	uint8_t rsvd1[11];
};
SMX_SIZE(struct smx_wqe_srq_next, 16);

/* Doorbell record, two words; values are big-endian. */
enum { SMX_DBREC_RCV = 0, SMX_DBREC_SND = 1 };

#endif
