/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A frame as it lies in a lane: 32 bytes, what its kind needs besides, then text or payload. A SEND of up to 32
 * bytes and a WRITE of up to 8 are one cache line. */
#ifndef SMX_SHM_RECORD_H
#define SMX_SHM_RECORD_H

#include "net/frame.h"
#include "net/net_host.h"

enum {
	SMX_REC_CARRIES_ACK = 1 << 7,	/* beside the frame's own flags */

	/* Above the number of runs */
	SMX_REC_SHARED = 0x80,		/* they are memory that the sender shares (base/share.h) */
	SMX_REC_RECALLED = 0x40,	/* they are not to be read any more; the sender sets it at any time */
	SMX_REC_RUNS = 0x3f,

	SMX_REC_TEXT_MAX = 240,
	SMX_REC_VALUE_MAX = 16 << 10,	/* payload bytes in one record */
};

/* Three of the words hold a number of 24 bits and, above it, a byte. They are written whole: the record's line is not
 * here yet when it is written, and part of a word could not be changed without it. */
struct smx_rec {
	uint32_t size;		/* the lane's */
	uint8_t transport, op, flags, log_mtu;
	uint32_t src_runs;	/* source; runs: the payload is where these say; 0: it is here */
	uint32_t dst_code;	/* destination; an answer's syndrome, an atomic's operation */
	uint32_t psn_text;	/* PSN; bytes of text */
	uint16_t psn_count, check;	/* SMX_REC_CARRIES_ACK: code << 16 | check is a PSN of the other direction */
	uint32_t length;	/* of the payload */
	uint32_t imm;		/* an answer's MSN */
};
_Static_assert(sizeof(struct smx_rec) == 32, "half a cache line");

static inline uint32_t smx_rec_word(uint32_t number, uint32_t above)
{
	return (number & 0xffffff) | above << 24;
}

static inline uint32_t smx_rec_number(uint32_t word)
{
	return word & 0xffffff;
}

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
/* Writes all but the size word. runs: what the record's payload is, if it is that. RETURN where the payload, or the
 * list of runs, goes. */
uint8_t *smx_rec_write(struct smx_rec *rec, const struct smx_frame *f, uint8_t runs);

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
/* The producer, of a record with runs that was published; the consumer, when it has read what they name. */
void smx_rec_recall(struct smx_rec *rec);
bool smx_rec_is_recalled(const struct smx_rec *rec);

/* Takes a record of size bytes apart. RETURN false if it is not a frame that could have been sent. */
bool smx_rec_read(const void *rec, uint32_t size, struct smx_arrived *a);

static inline bool smx_rec_has_more(uint8_t transport)
{
	return transport >= SMX_TP_UD;
}

static inline bool smx_rec_has_remote(uint8_t op)
{
	return (1u << SMX_FRAME_WRITE | 1u << SMX_FRAME_READ_REQUEST | 1u << SMX_FRAME_ATOMIC_REQUEST |
		1u << SMX_FRAME_ATOMIC_RESPONSE) >> op & 1;
}

#endif
