/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Positions in a send ring.
 *
 * A position is a block counter, which is masked when memory is touched, and a segment (DS, 16 bytes) of the WQE there.
 * No segment straddles the ring's end; runs of bytes (inline data, whole WQEs) may and are split. */
#ifndef SMX_WQE_CURSOR_H
#define SMX_WQE_CURSOR_H

#include "dv/dv_qp.h"

enum { SMX_DS_PER_BB = SMX_WQE_BB / SMX_WQE_DS };

/* Segment number ds of the WQE that starts at block counter bb. Structures up to 64 bytes that start on a
 * block, and 48 bytes behind a control segment, are contiguous. */
static inline void *smx_sq_seg(const struct smx_dv_sq *sq, uint32_t bb, uint32_t ds)
{
	bb += ds / SMX_DS_PER_BB;
	return sq->buf + (size_t)(bb & sq->bb_mask) * SMX_WQE_BB + ds % SMX_DS_PER_BB * SMX_WQE_DS;
}

/* So many bytes further on; at most to the end of the block. */
static inline void *smx_sq_step(const struct smx_dv_sq *sq, void *seg, size_t bytes)
{
	uint8_t *next = (uint8_t *)seg + bytes;

	return next == sq->end ? sq->buf : next;
}

/* Hands out one segment after the other. */
struct smx_cursor { uint8_t *at, *buf, *end; };

static inline struct smx_cursor smx_cursor_at(const struct smx_dv_sq *sq, void *seg)
{
	return (struct smx_cursor){ .at = seg, .buf = sq->buf, .end = sq->end };
}

/* Count of them, which lie in one block. RETURN the first. */
static inline void *smx_cursor_take(struct smx_cursor *c, uint32_t count)
{
	uint8_t *seg = c->at;

	if (__builtin_expect(seg == c->end, 0))
		seg = c->buf;
	c->at = seg + count * SMX_WQE_DS;
	return seg;
}

static inline void *smx_cursor_next(struct smx_cursor *c)
{
	return smx_cursor_take(c, 1);
}

/* Copies n bytes to byte offset off of the WQE at bb; src NULL writes zeros. n may be 0. */
void smx_sq_write(const struct smx_dv_sq *sq, uint32_t bb, uint32_t off, const void *src, size_t n);

#endif
