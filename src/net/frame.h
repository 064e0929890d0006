/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A frame: decoded headers and a description of the payload.
 *
 * A frame stands for one packet or, on local media, for a whole run of packets of one message: psn is
 * the first one's, psn_count how many there are. Media that leave the process serialise it. */
#ifndef SMX_NET_FRAME_H
#define SMX_NET_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pull.h"

enum smx_frame_op {
	SMX_FRAME_SEND,
	SMX_FRAME_WRITE,
	SMX_FRAME_READ_REQUEST,
	SMX_FRAME_READ_RESPONSE,
	SMX_FRAME_ATOMIC_REQUEST,
	SMX_FRAME_ATOMIC_RESPONSE,
	SMX_FRAME_ACK,		/* positive or negative: syndrome says */
	/* Local media, to a requester: the payload of packet psn could not be read; check and text say
	 * why */
	SMX_FRAME_SOURCE_FAULT,
};

static inline bool smx_frame_is_answer(uint8_t op)
{
	return (1u << SMX_FRAME_ACK | 1u << SMX_FRAME_READ_RESPONSE | 1u << SMX_FRAME_ATOMIC_RESPONSE |
		1u << SMX_FRAME_SOURCE_FAULT) >> op & 1;
}

enum smx_transport { SMX_TP_RC, SMX_TP_UC, SMX_TP_UD, SMX_TP_XRC, SMX_TP_DC };

/* AETH syndrome, IBA 9.7.5.2. */
enum {
	SMX_AETH_ACK = 0x00,		/* [4:0] credits; 0x1f: none given */
	SMX_AETH_RNR = 0x20,		/* [4:0] timer code */
	SMX_AETH_NAK_SEQUENCE = 0x60,
	SMX_AETH_NAK_INVALID = 0x61,
	SMX_AETH_NAK_ACCESS = 0x62,
	SMX_AETH_NAK_OPERATION = 0x63,
};

struct smx_frame {
	/* BTH and what follows it */
	uint8_t transport;	/* enum smx_transport */
	uint8_t op;		/* enum smx_frame_op */
	union {
		uint8_t flags;	/* all of these, as they travel between processes of a host */
		struct {
			bool first : 1, last : 1;	/* of its message; both: ONLY */
			bool has_imm : 1, has_invalidate : 1, solicited : 1, ack_request : 1;
			/* DC: the first frame to this target; psn starts here. Set again when that frame is sent
			 * again */
			bool dc_connect : 1;
			bool carries_ack : 1;	/* of a record in a lane only: net/shm_record.h */
		};
	};
	uint32_t src_qpn, dst_qpn;
	uint32_t psn, psn_count;
	uint32_t imm;		/* immediate data as its four bytes lie in memory, or the rkey to invalidate */
	uint64_t va;		/* RETH, AtomicETH */
	uint32_t rkey;
	uint64_t dma_length;	/* RETH: bytes of the whole message */
	uint64_t atomic[4];	/* swap_add, compare, swap_mask, compare_mask; response: [0] the old value */
	uint8_t atomic_op;	/* enum smx_atomic_op */
	uint8_t syndrome;	/* AETH */
	uint32_t msn;		/* AETH */
	uint16_t check;		/* a NAK on a local medium: enum smx_check that the responder named; 0: unknown */
	uint32_t xrc_srqn;
	uint32_t qkey;		/* DETH */
	uint64_t dc_key;	/* DC: access key, with the DCI's connection */
	uint16_t dc_stream;	/* DCI's stream, below its number of streams; answers carry it back */
	uint32_t dc_nonce;	/* DC: of the DCI since its last RESET, which tells it from one before with its
				   number; answers carry it back */
	uint32_t mtu_bytes;	/* sender's path MTU */
	/* path */
	uint8_t sgid[16], dgid[16];
	uint8_t sgid_index, hop_limit, traffic_class, sl;
	uint32_t flow_label;
	uint16_t udp_sport;
	/* payload: exactly one of flat, walk and pull when length is not 0 */
	uint64_t length;
	const void *flat;	/* bytes that lie together */
	void *walk;		/* struct smx_walk of the sender's memory, positioned; valid during the call */
	struct smx_pull *pull;	/* of a frame that arrived: still in the sender's memory */
	bool plain;		/* a long payload is a few runs of memory, which stay as they are until answered */
	/* Local media only. text: a NAK's sentence with the values, of the rule that check names.
	 * The other two are set by whoever reads a frame's walk and finds that the memory under it
	 * cannot be read (the sender's fault: GATHER_* in a request, REMOTE_* in a response): he
	 * drops the frame, and the sender looks after send() returned. Texts may be NULL; they may
	 * lie in smx_dev.frame_text and live until the next frame is made. */
	const char *text;
	uint16_t gather_check;
	const char *gather_text;
};
_Static_assert(offsetof(struct smx_frame, src_qpn) == 4, "the flags are one byte");

#endif
