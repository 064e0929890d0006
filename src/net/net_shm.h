/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lanes in shared memory: how records go from one process to another, in order.
 *
 * A link is a file with two lanes, made by its sender: one for requests and one for answers, so that
 * answers never wait behind requests. A record is published by its first word, its size, so that a short one
 * travels in one cache line. The word after the last record is always 0, whatever payload lay there before: the
 * producer clears a stretch of what was consumed at a time, for the consumer waits in the line behind the last
 * record, and each store to it costs both a transfer. Neither end believes the other: sizes and positions are
 * checked, and a link that breaks a rule is not looked at again. */
#ifndef SMX_NET_SHM_H
#define SMX_NET_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum smx_lane_kind { SMX_LANE_REQUESTS, SMX_LANE_ANSWERS, SMX_LANES };

enum {
	SMX_LANE_BYTES = 256 << 10,
	SMX_LANE_ALIGN = 64,
	SMX_LANE_RECORD_MAX = 32 << 10,
	SMX_LANE_CLEAR_BYTES = 1 << 10,
	SMX_LANE_RELEASE_BYTES = SMX_LANE_BYTES / 16,	/* consumed, before the producer is told in any case */
	SMX_LANE_WANT_BYTES = SMX_LANE_BYTES / 16,	/* the same, before want_room is looked at */
};

enum smx_link_can { SMX_CAN_UNKNOWN, SMX_CAN_PULL, SMX_CANNOT_PULL };

/* Written by the consumer, read by the producer; and what the producer waits for. */
struct smx_lane_ctl {
	uint64_t head;			/* bytes consumed, ever */
	uint32_t pad0[14];
	uint32_t want_room;		/* set by the producer, taken by the consumer */
	uint32_t pad1[15];
} __attribute__((aligned(64)));

struct smx_link_file {
	uint64_t magic;
	uint32_t version, bytes;
	uint32_t from, from_gen, to, to_gen;
	uint32_t can;			/* enum smx_link_can: the receiver reads the sender's memory */
	uint32_t pad[23];
	struct smx_lane_ctl ctl[SMX_LANES];
	uint8_t data[SMX_LANES][SMX_LANE_BYTES] __attribute__((aligned(4096)));
};

/* One end of a lane. */
struct smx_lane {
	struct smx_lane_ctl *ctl;
	uint8_t *data;
	uint64_t pos;			/* where the next record goes, or is; bytes, ever */
	uint64_t head_seen;		/* producer: head when last looked at. Consumer: head as told */
	uint64_t cleared;		/* producer: from pos up to here every unit begins with 0 */
	uint64_t want_seen;		/* consumer: pos when want_room was last looked at */
	uint64_t lent;			/* producer: behind the last record with runs */
};

struct smx_link {
	struct smx_link_file *file;	/* NULL: none */
	struct smx_lane lane[SMX_LANES];
};

/* The sender's end. dir_fd: of the registry. RETURN 0 or an errno. */
int smx_link_make(struct smx_link *link, int dir_fd, uint32_t from, uint32_t from_gen, uint32_t to,
		  uint32_t to_gen);
/* The receiver's end; the file's name is gone afterwards. RETURN 0, or an errno with a sentence in why. */
int smx_link_open(struct smx_link *link, int dir_fd, uint32_t from, uint32_t from_gen, uint32_t to,
		  uint32_t to_gen, char *why, size_t why_len);
void smx_link_close(struct smx_link *link);

static inline uint32_t *smx_lane_word(const struct smx_lane *lane, uint64_t pos)
{
	return (uint32_t *)(void *)(lane->data + (pos & (SMX_LANE_BYTES - 1)));
}

/* What a record takes, with what is skipped before it. */
static inline uint32_t smx_lane_needs(const struct smx_lane *lane, uint32_t size)
{
	uint32_t off = lane->pos & (SMX_LANE_BYTES - 1);

	return off + size > SMX_LANE_BYTES ? SMX_LANE_BYTES - off + size : size;
}

/* Looks at the consumer's word. RETURN whether bytes are free. */
bool smx_lane_look_for_room(struct smx_lane *lane, uint64_t bytes);

/* Producer. Room for a record of size bytes, a multiple of SMX_LANE_ALIGN up to half of the lane. */
static inline bool smx_lane_has_room(struct smx_lane *lane, uint32_t size)
{
	/* One more unit, for the 0 behind it. */
	uint64_t want = (uint64_t)smx_lane_needs(lane, size) + SMX_LANE_ALIGN;

	return lane->pos - lane->head_seen + want <= SMX_LANE_BYTES || smx_lane_look_for_room(lane, want);
}

/* RETURN NULL when there is none. */
void *smx_lane_reserve(struct smx_lane *lane, uint32_t size);
void smx_lane_publish(struct smx_lane *lane, void *record, uint32_t size);
/* What was reserved will not be published, but its bytes were written, all but the first word. */
void smx_lane_abandon(struct smx_lane *lane);
/* Asks to be told of room, so much that the lane need not be nearly empty for it. RETURN false if there is room now
 * after all. */
bool smx_lane_want_room(struct smx_lane *lane, uint32_t size);
/* The records that were not consumed, one after the other: *pos is 0 at first. RETURN NULL at the end. */
void *smx_lane_unread(const struct smx_lane *lane, uint64_t *pos, uint32_t *size);

/* Consumer. The next record, or NULL; *size is -1 when the lane is broken. The size word is not to be read
 * again from the record. */
const void *smx_lane_peek(struct smx_lane *lane, int32_t *size);
/* Is there something to peek at? */
static inline bool smx_lane_has_news(const struct smx_lane *lane)
{
	const uint8_t *at = lane->data + (lane->pos & (SMX_LANE_BYTES - 1));

	return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_RELAXED) != 0;
}
void smx_lane_consume(struct smx_lane *lane, uint32_t size);
/* Tells the producer of all that was consumed; sooner or later consume() does. */
void smx_lane_release(struct smx_lane *lane);
/* RETURN whether the producer is to be told of room. A look is not free, so there is one each SMX_LANE_WANT_BYTES: who
 * waits for room has more than that before the consumer, who comes by here again. */
bool smx_lane_take_want(struct smx_lane *lane);

#endif
