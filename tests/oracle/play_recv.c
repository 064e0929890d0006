/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Receives: of the queue pair's own queue, or of a shared one. */
#include "play.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static bool has_rq(const struct world *w)
{
	return w->srq || w->dvqp.rq.wqe_cnt;
}

static uint8_t *entry(const struct world *w, uint32_t i)
{
	if (w->srq)
		return (uint8_t *)w->dvsrq.buf + (size_t)i * w->dvsrq.stride;
	return (uint8_t *)w->dvqp.rq.buf + (size_t)(i & (w->dvqp.rq.wqe_cnt - 1)) * w->dvqp.rq.stride;
}

/* Where the driver stands in a shared queue: what it shows when asked. */
static void look(struct world *w)
{
	struct mlx5dv_obj obj = { .srq = { .in = w->srq, .out = &w->dvsrq } };

	w->dvsrq.comp_mask = MLX5DV_SRQ_MASK_SRQN;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ))
		die("mlx5dv_init_obj of a shared receive queue");
}

/* Fresh bytes in every entry that is nobody's. The links of a shared queue stay. */
static void fill_free(struct world *w)
{
	if (!w->srq) {
		for (uint32_t i = w->recv_head; i != w->recv_tail + w->dvqp.rq.wqe_cnt; i++)
			memset(entry(w, i), w->fill, w->dvqp.rq.stride);
		return;
	}
	for (uint32_t i = w->dvsrq.head; i != w->dvsrq.tail;) {
		uint8_t *e = entry(w, i);

		memset(e + 16, w->fill, w->dvsrq.stride - 16);
		i = (uint32_t)e[2] << 8 | e[3];
	}
}

static uint32_t gen_list(struct world *w, struct prng *p, struct ibv_recv_wr *wr, struct ibv_sge (*sge)[SGE_MAX])
{
	uint32_t n = 1 + rnd(p, 6), max = w->srq ? w->dvsrq.stride / 16 - 1 : w->cap.max_recv_sge;

	if (w->cfg.wq_sig && !w->srq)
		max = w->cap.max_recv_sge;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t num = one_in(p, 3) ? max : rnd(p, max + 1);

		if (one_in(p, 25))
			num = max + 1 + rnd(p, 2);
		for (uint32_t k = 0; k < num; k++)
			sge[i][k] = (struct ibv_sge){ (uintptr_t)w->arena + rnd(p, ARENA_BYTES / 2),
						      one_in(p, 6) ? 0 : 1 + rnd(p, 100), (uint32_t)rnd64(p) };
		wr[i] = (struct ibv_recv_wr){ .wr_id = rnd64(p), .sg_list = sge[i], .num_sge = (int)num,
					      .next = i + 1 < n ? &wr[i + 1] : NULL };
	}
	return n;
}

void recv_step(struct world *w, struct prng *p)
{
	struct ibv_recv_wr wr[8], *bad = NULL;
	static struct ibv_sge sge[8][SGE_MAX];
	uint32_t n, took, at;
	int rc;

	if (!has_rq(w))
		return;
	if (w->srq)
		look(w);
	fill_free(w);
	n = gen_list(w, p, wr, sge);
	at = w->srq ? w->dvsrq.head : w->recv_head;
	rc = w->srq ? ibv_post_srq_recv(w->srq, wr, &bad) : ibv_post_recv(w->qp, wr, &bad);
	took = bad ? (uint32_t)(bad - wr) : n;
	emit(TAG_RC, (uint32_t)rc, bad ? took : UINT32_MAX, NULL, 0);
	for (uint32_t i = 0; i < took; i++) {
		const uint8_t *e = entry(w, at);

		emit(TAG_RECV, w->srq ? at : at & (w->dvqp.rq.wqe_cnt - 1), 0, e,
		     w->srq ? w->dvsrq.stride : w->dvqp.rq.stride);
		w->recv_slot[(w->recv_head + i) % RING_WR_MAX] = at;
		at = w->srq ? (uint32_t)e[2] << 8 | e[3] : at + 1;
	}
	w->recv_head += took;
	if (w->srq)
		look(w);
	emit(TAG_VALUE, 4, be32toh(w->srq ? *w->dvsrq.dbrec : w->dvqp.dbrec[MLX5_RCV_DBR]), NULL, 0);
	emit(TAG_VALUE, 5, w->srq ? w->dvsrq.head : 0, NULL, 0);
}

/* Where an entry's scatter list begins: behind the link, or the signature's segment. */
static uint32_t list_at(const struct world *w)
{
	return w->srq || w->cfg.wq_sig ? 16 : 0;
}

/* Bytes that a receive has room for, up to most. libmlx5 reads on behind a list's end, where fresh bytes are. */
static uint32_t room_of(const struct world *w, uint32_t slot, uint32_t most)
{
	const struct mlx5_wqe_data_seg *seg = (const void *)(entry(w, slot) + list_at(w));
	uint32_t n = ((w->srq ? w->dvsrq.stride : w->dvqp.rq.stride) - list_at(w)) / 16, room = 0;

	for (uint32_t i = 0; i < n && be32toh(seg[i].lkey) != MLX5_INVALID_LKEY && room < most; i++)
		room += be32toh(seg[i].byte_count);
	return room < most ? room : most;
}

/* RETURN whether the CQE holds data. */
static bool recv_cqe(struct world *w, struct prng *p, struct mlx5_cqe64 *cqe, uint32_t slot)
{
	static const uint8_t ops[] = { MLX5_CQE_RESP_WR_IMM, MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM,
				       MLX5_CQE_RESP_SEND_INV };

	random_cqe(p, cqe);
	cqe->wqe_counter = htobe16((uint16_t)slot);
	cqe->sop_drop_qpn = htobe32(w->qp->qp_num);
	cqe->srqn_uidx = htobe32(w->srq ? w->dvsrq.srqn : 0);
	if (one_in(p, 8)) {
		make_error(p, cqe, MLX5_CQE_RESP_ERR);
		return false;
	}
	cqe->op_own = (uint8_t)(ops[rnd(p, COUNT(ops))] << 4);
	if (w->cfg.kind == T_UD || !rnd(p, 2))
		return false;
	if (w->dvcq.cqe_size == 128 && rnd(p, 2)) {
		cqe->byte_cnt = htobe32(rnd(p, 1 + room_of(w, slot, 64)));
		cqe->op_own |= MLX5_INLINE_SCATTER_64;
	} else {
		cqe->byte_cnt = htobe32(rnd(p, 1 + room_of(w, slot, 32)));
		cqe->op_own |= MLX5_INLINE_SCATTER_32;
	}
	return true;
}

void recv_done_step(struct world *w, struct prng *p)
{
	uint32_t slot, head = list_at(w);
	struct mlx5_cqe64 cqe;
	uint8_t data[64];
	bool scattered;

	if (!has_rq(w) || w->recv_tail == w->recv_head)
		return;
	/* A shared queue's entries may complete out of order. */
	if (w->srq && rnd(p, 2)) {
		uint32_t other = w->recv_tail + rnd(p, w->recv_head - w->recv_tail), t;

		t = w->recv_slot[other % RING_WR_MAX];
		w->recv_slot[other % RING_WR_MAX] = w->recv_slot[w->recv_tail % RING_WR_MAX];
		w->recv_slot[w->recv_tail % RING_WR_MAX] = t;
	}
	slot = w->recv_slot[w->recv_tail % RING_WR_MAX];
	for (unsigned int i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rnd64(p);
	scattered = recv_cqe(w, p, &cqe, slot);
	write_cqe(w, &cqe, data);
	poll_cq(w, p, 1);
	if (scattered)
		note_scattered(w, (const void *)(entry(w, slot) + head),
			       ((w->srq ? w->dvsrq.stride : w->dvqp.rq.stride) - head) / 16);
	w->recv_tail++;
	if (w->srq) {
		look(w);
		emit(TAG_VALUE, 6, w->dvsrq.tail, NULL, 0);
	}
}
