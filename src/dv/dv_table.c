/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers to objects; see dv_table.h. */
#include "dv/dv_table.h"

#include <errno.h>
#include <stdlib.h>

int smx_dv_table_set(struct smx_dv_table *t, uint32_t num, void *obj)
{
	void ***leaf = &t->leaf[(num & 0xffffff) >> SMX_DV_TABLE_LEAF_BITS];
	uint32_t at = num & ((1u << SMX_DV_TABLE_LEAF_BITS) - 1);

	if (!*leaf) {
		void **fresh;

		if (!obj)
			return 0;
		fresh = calloc((size_t)1 << SMX_DV_TABLE_LEAF_BITS, sizeof(*fresh));
		if (!fresh)
			return ENOMEM;
		__atomic_store_n(leaf, fresh, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&(*leaf)[at], obj, __ATOMIC_RELEASE);
	return 0;
}

void smx_dv_table_fini(struct smx_dv_table *t)
{
	for (int i = 0; i < SMX_DV_TABLE_LEAVES; i++) {
		free(t->leaf[i]);
		t->leaf[i] = NULL;
	}
}
