/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading the translation entries of a memory key: which are lists, which are strided blocks. */
#ifndef SMX_OBJ_MKEY_LAYOUT_H
#define SMX_OBJ_MKEY_LAYOUT_H

#include "obj/mkey.h"

static inline bool smx_entry_is_block(const struct smx_wqe_klm *e)
{
	return from_be32(e->mkey) == SMX_REPEAT_OP;
}

static inline const struct smx_wqe_repeat_block *smx_entry_block(const struct smx_wqe_klm *e)
{
	return (const struct smx_wqe_repeat_block *)(const void *)e;
}

/* Entry number sub of the block whose header is e. */
static inline const struct smx_wqe_repeat_ent *smx_block_entry(const struct smx_wqe_klm *e,
							       uint32_t sub)
{
	return (const struct smx_wqe_repeat_ent *)(const void *)(e + 1 + sub);
}

/* Bytes of one turn. The entries say; the header's own sum is not trusted. */
static inline uint64_t smx_block_bytes(const struct smx_wqe_klm *e)
{
	uint32_t num_ent = from_be16(smx_entry_block(e)->num_ent);
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < num_ent; i++)
		bytes += from_be16(smx_block_entry(e, i)->byte_count);
	return bytes;
}

/* Bytes that all entries of mkey name together; UINT64_MAX where they are more. */
uint64_t smx_layout_total(const struct smx_mkey *mkey);

#endif
