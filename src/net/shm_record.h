/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A frame as it lies in a lane: 32 bytes, what its kind needs besides, then text or payload. A SEND of up to 32
 * bytes and a WRITE of up to 8 are one cache line. */
#ifndef SMX_SHM_RECORD_H
#define SMX_SHM_RECORD_H

#include "net/frame.h"
#include "net/net_host.h"

enum {
	SMX_REC_FIRST = 1 << 0, SMX_REC_LAST = 1 << 1, SMX_REC_IMM = 1 << 2, SMX_REC_INVALIDATE = 1 << 3,
	SMX_REC_SOLICITED = 1 << 4, SMX_REC_ACK_REQUEST = 1 << 5, SMX_REC_DC_CONNECT = 1 << 6,
	SMX_REC_CARRIES_ACK = 1 << 7,

	SMX_REC_SHARED = 0x80,		/* the runs are memory that the sender shares (base/share.h) */

	SMX_REC_TEXT_MAX = 240,
	SMX_REC_VALUE_MAX = 16 << 10,	/* payload bytes in one record */
};

struct smx_rec {
	uint32_t size;		/* the lane's */
	uint8_t transport, op, flags, log_mtu;
	uint32_t src_qpn : 24, runs : 8;	/* runs: the payload is where these say; 0: it is here */
	uint32_t dst_qpn : 24, code : 8;	/* an answer's syndrome, an atomic's operation */
	uint32_t psn : 24, text_bytes : 8;
	uint16_t psn_count, check;	/* SMX_REC_CARRIES_ACK: code << 16 | check is a PSN of the other direction */
	uint32_t length;	/* of the payload */
	uint32_t imm;		/* an answer's MSN */
};
_Static_assert(sizeof(struct smx_rec) == 32, "half a cache line");

/* WRITE, READ, atomics. Atomic response: va is the old value. */
struct smx_rec_remote {
	uint64_t va, dma_length;
	uint32_t rkey, pad;
};

struct smx_rec_atomic { uint64_t operand[4]; };

/* UD, XRC, DC */
struct smx_rec_more {
	uint32_t xrc_srqn, qkey;
	uint64_t dc_key;
	uint8_t sgid[16], dgid[16];
	uint32_t flow_label, dc_nonce;
	uint16_t udp_sport;
	uint8_t sgid_index, hop_limit, traffic_class, sl;
	uint16_t dc_stream;
};
_Static_assert(sizeof(struct smx_rec_more) == 64, "one cache line");

struct smx_rec_run { uint64_t addr, length; };

/* Bytes of the frame's record without payload. */
uint32_t smx_rec_head_bytes(const struct smx_frame *f);
/* Writes all but the size word. RETURN where the payload goes. */
uint8_t *smx_rec_write(struct smx_rec *rec, const struct smx_frame *f);

static inline bool smx_rec_can_carry_ack(uint8_t transport, uint8_t op)
{
	return transport == SMX_TP_RC && (op == SMX_FRAME_SEND || op == SMX_FRAME_WRITE);
}

/* A SEND or WRITE of RC that also says that all up to psn, which the other end sent, arrived. */
void smx_rec_carry_ack(struct smx_rec *rec, uint32_t psn);

/* What was read. text lies in the arrived frame's own buffer. */
struct smx_arrived {
	struct smx_frame frame;
	bool carries_ack;
	uint32_t ack_psn;
	char text[SMX_REC_TEXT_MAX + 1];
	uint32_t run_count;
	bool shared;		/* the runs are */
	struct smx_rec_run run[SMX_HOST_RUNS];
};
/* Takes a record of size bytes apart. RETURN false if it is not a frame that could have been sent. */
bool smx_rec_read(const void *rec, uint32_t size, struct smx_arrived *a);

static inline bool smx_rec_has_more(uint8_t transport)
{
	return transport == SMX_TP_UD || transport == SMX_TP_XRC || transport == SMX_TP_DC;
}

static inline bool smx_rec_has_remote(uint8_t op)
{
	return op == SMX_FRAME_WRITE || op == SMX_FRAME_READ_REQUEST || op == SMX_FRAME_ATOMIC_REQUEST ||
	       op == SMX_FRAME_ATOMIC_RESPONSE;
}

static inline bool smx_frame_is_answer(uint8_t op)
{
	return op == SMX_FRAME_ACK || op == SMX_FRAME_READ_RESPONSE || op == SMX_FRAME_ATOMIC_RESPONSE ||
	       op == SMX_FRAME_SOURCE_FAULT;
}

#endif
