/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Positions in a send ring. That the ring has an end is known here and nowhere else.
 *
 * A position counts segments (DS, 16 bytes) from block counter 0 and is masked when memory is touched.
 * No segment straddles the ring's end; runs of bytes (inline data, whole WQEs) may and are split. */
#ifndef SMX_WQE_CURSOR_H
#define SMX_WQE_CURSOR_H

#include "dv/dv_qp.h"

enum { SMX_DS_PER_BB = SMX_WQE_BB / SMX_WQE_DS };

/* Segment number ds of the WQE that starts at block counter bb. Structures up to 64 bytes that start on a
 * block, and 48 bytes behind a control segment, are contiguous. */
static inline void *smx_sq_seg(const struct smx_dv_sq *sq, uint32_t bb, uint32_t ds)
{
	return sq->buf + (size_t)((bb * SMX_DS_PER_BB + ds) & (sq->bb_count * SMX_DS_PER_BB - 1)) *
	       SMX_WQE_DS;
}

/* Hands out one segment after the other. */
struct smx_cursor {
	uint8_t *buf;
	uint32_t mask;		/* of a segment number */
	uint32_t at;
};

static inline struct smx_cursor smx_cursor_at(const struct smx_dv_sq *sq, uint32_t bb, uint32_t ds)
{
	return (struct smx_cursor){
		.buf = sq->buf,
		.mask = sq->bb_count * SMX_DS_PER_BB - 1,
		.at = bb * SMX_DS_PER_BB + ds,
	};
}

static inline void *smx_cursor_next(struct smx_cursor *c)
{
	return c->buf + (size_t)(c->at++ & c->mask) * SMX_WQE_DS;
}

/* Copies n bytes to byte offset off of the WQE at bb; src NULL writes zeros. n may be 0. */
void smx_sq_write(const struct smx_dv_sq *sq, uint32_t bb, uint32_t off, const void *src, size_t n);

#endif
