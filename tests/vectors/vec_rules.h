/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a step's calls must answer, from its input alone: as libmlx5 does (which the record must agree with),
 * and as this driver does, where it refuses on purpose what libmlx5 lets through. */
#ifndef VEC_RULES_H
#define VEC_RULES_H

#include "vec_world.h"

/* Why this driver answers otherwise. */
enum vec_why {
	VEC_SAME,
	VEC_RAW_EMPTY,
	VEC_RAW_TOO_LONG,
	VEC_NO_ROOM,
	VEC_FEW_SETTERS,
	VEC_LAYOUT_TWICE,
	VEC_STRIDE,
	VEC_HEADER_ENTRY,
	VEC_SGE_LENGTH,
	VEC_OWN_DOORBELL,
	VEC_OWN_FENCE,
	VEC_WHY_COUNT
};

struct vec_reason { const char *text; enum smx_check check; int err; };
extern const struct vec_reason vec_reasons[VEC_WHY_COUNT];

struct vec_answer {
	int rc;
	int bad;		/* ibv_post_send: index of the refused request, or -1 */
	enum vec_why why;
};

/* With ours false, libmlx5's answer. w is as it was before the step. */
struct vec_answer vec_answer(const struct vec_world *w, const json_t *step, bool ours);

/* The fence cache after the first n requests of an ibv_post_send list. */
uint8_t vec_fence_after(const struct vec_world *w, const json_t *list, size_t n);
/* Whether the one WQE of a batch goes to the UAR as a whole. */
bool vec_blueflame(const struct vec_world *w, const json_t *wr, uint32_t ds);

#endif
