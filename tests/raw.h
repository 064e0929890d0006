/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* WQEs by hand, for mlx5dv_wr_raw_wqe(): segments are appended, the count in the control segment follows. */
#ifndef RAW_H
#define RAW_H

#include "t.h"

struct raw { uint8_t b[1024]; int ds; };

static inline struct raw raw_ctrl(uint32_t qpn, uint8_t opcode, uint8_t opmod, uint8_t fm_ce_se, uint32_t imm)
{
	struct raw r = { .ds = 1 };
	struct mlx5_wqe_ctrl_seg ctrl;

	memset(&ctrl, 0, sizeof(ctrl));
	mlx5dv_set_ctrl_seg(&ctrl, 0xbad, opcode, opmod, qpn, fm_ce_se, 1, 0, htobe32(imm));
	memcpy(r.b, &ctrl, 16);
	return r;
}

static inline void raw_add(struct raw *r, const void *seg, int bytes)
{
	memcpy(r->b + r->ds * 16, seg, bytes);
	r->ds += bytes / 16;
	r->b[7] = r->ds;
}

static inline void raw_data(struct raw *r, uint32_t len, uint32_t lkey, uint64_t addr)
{
	struct mlx5_wqe_data_seg seg;

	mlx5dv_set_data_seg(&seg, len, lkey, addr);
	raw_add(r, &seg, 16);
}

static inline void raw_raddr(struct raw *r, uint64_t va, uint32_t rkey)
{
	struct mlx5_wqe_raddr_seg seg = { .raddr = htobe64(va), .rkey = htobe32(rkey) };

	raw_add(r, &seg, 16);
}

static inline void raw_u64s(struct raw *r, uint64_t a, uint64_t b)
{
	uint64_t seg[2] = { htobe64(a), htobe64(b) };

	raw_add(r, seg, 16);
}

/* One raw WQE in a batch of its own. RETURN ibv_wr_complete()'s. */
static inline int raw_post(struct t_qp *q, uint64_t wr_id, const struct raw *r)
{
	ibv_wr_start(q->ex);
	q->ex->wr_id = wr_id;
	q->ex->wr_flags = 0;
	mlx5dv_wr_raw_wqe(q->dv, r->b);
	return ibv_wr_complete(q->ex);
}

#endif
