/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers that the device hands out (QP, SRQ) to the driver's objects, for reading CQEs.
 *
 * Look-up takes no lock: a slot is written before a CQE can name it. Writers serialise themselves. */
#ifndef SMX_DV_TABLE_H
#define SMX_DV_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum { SMX_DV_TABLE_LEAF_BITS = 12, SMX_DV_TABLE_LEAVES = 1 << (24 - 12) };

struct smx_dv_table { void **leaf[SMX_DV_TABLE_LEAVES]; };

/* RETURN 0, or ENOMEM. obj NULL clears. */
int smx_dv_table_set(struct smx_dv_table *t, uint32_t num, void *obj);
void smx_dv_table_fini(struct smx_dv_table *t);

static inline void *smx_dv_table_get(const struct smx_dv_table *t, uint32_t num)
{
	void **leaf = __atomic_load_n(&t->leaf[(num & 0xffffff) >> SMX_DV_TABLE_LEAF_BITS], __ATOMIC_ACQUIRE);

	return leaf ? __atomic_load_n(&leaf[num & ((1u << SMX_DV_TABLE_LEAF_BITS) - 1)], __ATOMIC_ACQUIRE) : NULL;
}

#endif
