/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A receive's scatter list, as both receive queues write it and as inline scatter reads it back. */
#ifndef SMX_RECV_WQE_H
#define SMX_RECV_WQE_H

#include <infiniband/verbs.h>

#include "hw/wqe.h"

/* RETURN index of the first SGE whose length has bit 31 set, or -1. */
static inline int smx_recv_bad_sge(const struct ibv_recv_wr *wr)
{
	for (int i = 0; i < wr->num_sge; i++) {
		if (wr->sg_list[i].length & SMX_INLINE_SEG)
			return i;
	}
	return -1;
}

static inline void smx_recv_put(struct smx_wqe_data *seg, const struct ibv_sge *sge)
{
	_Static_assert(offsetof(struct ibv_sge, lkey) == offsetof(struct ibv_sge, length) + sizeof(uint32_t) &&
		       offsetof(struct smx_wqe_data, lkey) == offsetof(struct smx_wqe_data, byte_count) + sizeof(be32),
		       "length and lkey are one word");
	be64 length_lkey = be64_of_pair(&sge->length);

	seg->va = to_be64(sge->addr);
	memcpy(seg, &length_lkey, sizeof(length_lkey));
}

static inline void smx_recv_end(struct smx_wqe_data *seg)
{
	*seg = (struct smx_wqe_data){ .lkey = to_be32(SMX_LKEY_END) };
}

#endif
