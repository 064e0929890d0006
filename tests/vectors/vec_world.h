/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A queue pair as one line describes it, with all memory that the driver may touch around it. */
#ifndef VEC_WORLD_H
#define VEC_WORLD_H

#include "vec_json.h"

#include "dv/dv_cq.h"
#include "dv/wqe_build.h"

enum { VEC_UAR_BYTES = 1024, VEC_UAR_FILL = 0xa5, VEC_DB_RCV = 0x13579bdf };

struct vec_world {
	struct smx_dv_qp qp;
	struct smx_dv_cq cq;
	struct smx_dv_table qps, srqs;
	struct smx_refusal_log log;
	uint8_t fill;		/* what the ring held before */
	uint32_t wqe_bb;	/* blocks a request was sized for */
	uint8_t *ring, *shadow;	/* shadow: what the ring must hold */
	uint32_t ring_bytes;
	uint32_t dbrec[2];
	uint8_t uar[VEC_UAR_BYTES];
	struct smx_cqe64 cqe[2];
	uint32_t cq_dbrec[2];
	uint32_t rung;
};

struct vec_world *vec_world_new(const json_t *line, uint8_t fill);
void vec_world_free(struct vec_world *w);
/* Puts the queue into the state that the record says, after a request was answered otherwise on purpose. */
void vec_world_set_state(struct vec_world *w, uint32_t cur_post, uint32_t head, uint32_t tail, uint8_t fm_cache,
			 uint32_t db, uint32_t uar_offset);
/* Hands the driver a good CQE for the WQE at block counter pi. RETURN what ibv_poll_cq did; *wc is filled in. */
int vec_world_poll(struct vec_world *w, uint32_t pi, uint8_t opcode, struct ibv_wc *wc);
/* The configuration's sizes, from the capacities it was created with. RETURN false where they differ from
 * the line's. */
bool vec_world_check_sizes(const json_t *qp);

#endif
