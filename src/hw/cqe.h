/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Completion queue entries and doorbells of completion queues.
 *
 * Source: <infiniband/mlx5dv.h> struct mlx5_cqe64, mlx5_err_cqe; tests/abi compares. In a queue of
 * 128-byte entries the CQE is the last 64 bytes; the first 64 hold inline scattered data. */
#ifndef SMX_HW_CQE_H
#define SMX_HW_CQE_H

#include <stdbool.h>

#include "base/be.h"

struct smx_cqe64 {
	uint8_t rsvd0[2];
	be16 wqe_id;
	uint8_t rsvd4[13];
	uint8_t ml_path;
	uint8_t rsvd18[4];
	be16 slid;		/* RoCE: unused */
	be32 flags_rqpn;	/* [29:28] GRH: 1 in data, 2 in CQE; [27:24] SL or enum smx_cqe_roce, [23:0] peer QP */
	uint8_t hds_ip_ext;
	uint8_t l4_hdr_type_etc;
	be16 vlan_info;
	be32 srqn_uidx;		/* responder with SRQ: SRQ number; otherwise the user index */
	be32 imm_inval_pkey;	/* immediate data, or invalidated rkey, by opcode */
	uint8_t app;
	uint8_t app_op;
	be16 app_info;
	be32 byte_cnt;
	be64 timestamp;
	be32 sop_drop_qpn;	/* requester: [31:24] opcode of the WQE; [23:0] QP number */
	be16 wqe_counter;
	uint8_t signature;
	uint8_t op_own;		/* [7:4] enum smx_cqe_op, [3:2] inline scatter, [1] solicited, [0] owner */
};
SMX_SIZE(struct smx_cqe64, 64);
SMX_AT(struct smx_cqe64, ml_path, 17);
SMX_AT(struct smx_cqe64, slid, 22);
SMX_AT(struct smx_cqe64, flags_rqpn, 24);
SMX_AT(struct smx_cqe64, srqn_uidx, 32);
SMX_AT(struct smx_cqe64, imm_inval_pkey, 36);
SMX_AT(struct smx_cqe64, byte_cnt, 44);
SMX_AT(struct smx_cqe64, timestamp, 48);
SMX_AT(struct smx_cqe64, sop_drop_qpn, 56);
SMX_AT(struct smx_cqe64, wqe_counter, 60);
SMX_AT(struct smx_cqe64, op_own, 63);

struct smx_err_cqe {
	uint8_t rsvd0[32];
	be32 srqn;
	uint8_t rsvd1[16];
	uint8_t hw_err_synd;	/* says more where vendor_err_synd is 0x68 or 0x78 */
	uint8_t hw_synd_type;
	uint8_t vendor_err_synd;
	uint8_t syndrome;	/* enum smx_cqe_syndrome */
	be32 s_wqe_opcode_qpn;	/* [31:24] opcode of the WQE, [23:0] QP number */
	be16 wqe_counter;
	uint8_t signature;
	uint8_t op_own;
};
SMX_SIZE(struct smx_err_cqe, 64);
SMX_AT(struct smx_err_cqe, hw_err_synd, 52);
SMX_AT(struct smx_err_cqe, vendor_err_synd, 54);
SMX_AT(struct smx_err_cqe, syndrome, 55);
SMX_AT(struct smx_err_cqe, s_wqe_opcode_qpn, 56);

/* What the packet of a datagram or of a DC message looked like, on Ethernet. */
enum smx_cqe_roce {
	SMX_CQE_ROCE_GRH = 0,
	SMX_CQE_ROCE_IPV6 = 1,
	SMX_CQE_ROCE_IPV4 = 2,
	SMX_CQE_ROCE_UDP = 8,	/* with one of the two before: RoCE v2 */
};

enum smx_cqe_op {
	SMX_CQE_REQ = 0,
	SMX_CQE_RESP_WR_IMM = 1,
	SMX_CQE_RESP_SEND = 2,
	SMX_CQE_RESP_SEND_IMM = 3,
	SMX_CQE_RESP_SEND_INV = 4,
	SMX_CQE_RESIZE_CQ = 5,
	SMX_CQE_NO_PACKET = 6,
	SMX_CQE_SIG_ERR = 12,
	SMX_CQE_REQ_ERR = 13,
	SMX_CQE_RESP_ERR = 14,
	SMX_CQE_INVALID = 15,
};

enum {
	SMX_CQE_OWNER = 1,
	SMX_CQE_SOLICITED = 1 << 1,
	SMX_CQE_INLINE_32 = 1 << 2,	/* received data is in the CQE's own first 32 bytes */
	SMX_CQE_INLINE_64 = 2 << 2,	/* received data is in the 64 bytes before it */
};

/* Is a CQE with this last byte a struct smx_err_cqe? */
static inline bool smx_cqe_is_error(uint8_t op_own)
{
	return op_own >> 4 == SMX_CQE_REQ_ERR || op_own >> 4 == SMX_CQE_RESP_ERR;
}

/* The last eight bytes, which every kind of CQE has, are written and read as one word: sop_drop_qpn, wqe_counter,
 * signature (0), op_own from its top down. */
static inline uint64_t smx_cqe_end(uint32_t sop_drop_qpn, uint16_t wqe_counter, uint8_t op_own)
{
	return (uint64_t)sop_drop_qpn << 32 | (uint32_t)wqe_counter << 16 | op_own;
}

#ifndef SMX_TSAN
static inline void smx_cqe_store_end(struct smx_cqe64 *cqe, uint64_t end)
{
	be64_store_release(&cqe->sop_drop_qpn, end);
}

static inline uint64_t smx_cqe_load_end(const struct smx_cqe64 *cqe)
{
	return be64_load_acquire(&cqe->sop_drop_qpn);
}
#else
/* A program with a driver of its own waits for the last byte alone. For ThreadSanitizer a byte and the word around it
 * have nothing to do with each other, so the word goes byte by byte. */
static inline void smx_cqe_store_end(struct smx_cqe64 *cqe, uint64_t end)
{
	uint8_t *byte = (uint8_t *)&cqe->sop_drop_qpn;

	for (int i = 0; i < 7; i++)
		__atomic_store_n(&byte[i], (uint8_t)(end >> (56 - 8 * i)), __ATOMIC_RELAXED);
	__atomic_store_n(&cqe->op_own, (uint8_t)end, __ATOMIC_RELEASE);
}

static inline uint64_t smx_cqe_load_end(const struct smx_cqe64 *cqe)
{
	const uint8_t *byte = (const uint8_t *)&cqe->sop_drop_qpn;
	uint64_t end = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);

	for (int i = 0; i < 7; i++)
		end |= (uint64_t)__atomic_load_n(&byte[i], __ATOMIC_RELAXED) << (56 - 8 * i);
	return end;
}
#endif

static inline uint8_t smx_cqe_end_op(uint64_t end)	/* enum smx_cqe_op */
{
	return end >> 4 & 0xf;
}

static inline uint8_t smx_cqe_end_wqe_op(uint64_t end)
{
	return (uint8_t)(end >> 56);
}

static inline uint32_t smx_cqe_end_qpn(uint64_t end)
{
	return end >> 32 & 0xffffff;
}

static inline uint16_t smx_cqe_end_counter(uint64_t end)
{
	return (uint16_t)(end >> 16);
}

enum smx_cqe_syndrome {
	SMX_SYND_NONE = 0,
	SMX_SYND_LOCAL_LENGTH = 0x01,
	SMX_SYND_LOCAL_QP_OP = 0x02,
	SMX_SYND_LOCAL_PROT = 0x04,
	SMX_SYND_WR_FLUSH = 0x05,
	SMX_SYND_MW_BIND = 0x06,
	SMX_SYND_BAD_RESP = 0x10,
	SMX_SYND_LOCAL_ACCESS = 0x11,
	SMX_SYND_REMOTE_INVAL_REQ = 0x12,
	SMX_SYND_REMOTE_ACCESS = 0x13,
	SMX_SYND_REMOTE_OP = 0x14,
	SMX_SYND_TRANSPORT_RETRY = 0x15,
	SMX_SYND_RNR_RETRY = 0x16,
	SMX_SYND_REMOTE_ABORTED = 0x22,
};

/* CQ doorbell record: word 0 consumer index [23:0]; word 1 arm: [29:28] sequence number, [24] solicited
 * only, [23:0] consumer index. The arm word is also stored, with the CQ number, at UAR + 0x20. */
enum {
	SMX_CQ_DBREC_CI = 0,
	SMX_CQ_DBREC_ARM = 1,
	SMX_CQ_UAR_DOORBELL = 0x20,
};
#define SMX_CQ_ARM_SOLICITED (1u << 24)

#endif
