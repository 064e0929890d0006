/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many users each address has: a step function over all addresses. What overlaps costs nothing extra; a million
 * users of one range are one step. */
#ifndef SMX_RANGE_USERS_H
#define SMX_RANGE_USERS_H

#include <stdbool.h>
#include <stdint.h>

struct smx_range_users {
	void *tree;
	uint32_t runs;	/* stretches that have users, with none between them */
	uint64_t covered;	/* addresses that have */
};

/* One user more, or less, of [start, end); a part that has none stays so. RETURN false when there is no memory for
 * it: nothing is changed. */
bool smx_range_users_add(struct smx_range_users *u, uint64_t start, uint64_t end);
bool smx_range_users_drop(struct smx_range_users *u, uint64_t start, uint64_t end);

/* RETURN the users of an address; all addresses up to *until have as many. */
uint32_t smx_range_users_at(const struct smx_range_users *u, uint64_t addr, uint64_t *until);

void smx_range_users_free(struct smx_range_users *u);

#endif
