/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Makes the calls that a step of a line describes. */
#ifndef VEC_POST_H
#define VEC_POST_H

#include "vec_world.h"

/* RETURN what the last call returned (0 for an abort); *bad_wr is the index of the refused request of ibv_post_send,
 * or -1. */
int vec_post_step(struct vec_world *w, const json_t *step, int *bad_wr);

#endif
