/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Plays the device's part towards completion queues: writes CQEs, then polls them by verbs. */
#include "play.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum { OPCODE_READ = 0x10, OPCODE_CAS = 0x11, OPCODE_FAA = 0x12, ARM_REG = 0x20, PAGE_FAULT = 0x93 };

void random_cqe(struct prng *p, struct mlx5_cqe64 *cqe)
{
	uint8_t *bytes = (uint8_t *)cqe;

	for (unsigned int i = 0; i < sizeof(*cqe); i++)
		bytes[i] = (uint8_t)rnd64(p);
	cqe->op_own = 0;
	cqe->app = 0;		/* no tag matching */
}

void make_error(struct prng *p, struct mlx5_cqe64 *cqe, uint8_t opcode)
{
	static const uint8_t syndromes[] = { 1, 2, 4, 5, 5, 5, 6, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x22,
					     0x77 };
	struct mlx5_err_cqe *err = (struct mlx5_err_cqe *)cqe;

	err->syndrome = syndromes[rnd(p, COUNT(syndromes))];
	if (err->vendor_err_synd == PAGE_FAULT)	/* of on-demand paging: posts the receive again */
		err->vendor_err_synd++;
	cqe->op_own = (uint8_t)(opcode << 4);
}

void write_cqe(struct world *w, const struct mlx5_cqe64 *cqe, const uint8_t data[64])
{
	uint8_t *at = (uint8_t *)w->dvcq.buf + (size_t)(w->cq_ci & (w->dvcq.cqe_cnt - 1)) * w->dvcq.cqe_size;
	struct mlx5_cqe64 *to = (struct mlx5_cqe64 *)(at + w->dvcq.cqe_size - sizeof(*to));
	uint8_t owner = w->cq_ci & w->dvcq.cqe_cnt ? 1 : 0;

	if (w->dvcq.cqe_size == 128)
		memcpy(at, data, 64);
	memcpy(to, cqe, sizeof(*cqe) - 1);
	if (cqe->op_own & MLX5_INLINE_SCATTER_32)
		memcpy(at, data, 32);
	__atomic_store_n(&to->op_own, (uint8_t)(cqe->op_own | owner), __ATOMIC_RELEASE);
	w->cq_ci++;
}

static uint8_t op_own_of(const struct world *w, uint32_t ci)
{
	const uint8_t *at = (uint8_t *)w->dvcq.buf + (size_t)(ci & (w->dvcq.cqe_cnt - 1)) * w->dvcq.cqe_size;

	return at[w->dvcq.cqe_size - 1];
}

/* Where a 64-byte CQE holds data, it lies over the sender's address: libmlx5 reports data, we report zeros. */
static bool has_address(const struct world *w, uint32_t ci)
{
	return !(op_own_of(w, ci) & MLX5_INLINE_SCATTER_32);
}

static bool of_sends(const struct world *w, uint32_t ci)
{
	uint8_t op = op_own_of(w, ci) >> 4;

	return op == MLX5_CQE_REQ || op == MLX5_CQE_REQ_ERR;
}

/* Fields that are valid for the completion at hand, in a fixed order. */
static void note_ex(struct ibv_cq_ex *cq, bool sends, bool address, bool error)
{
	uint64_t v[16] = { cq->wr_id, cq->status, ibv_wc_read_qp_num(cq) };
	unsigned int n = 3;

	if (cq->status == IBV_WC_SUCCESS) {
		unsigned int flags = sends ? 0 : ibv_wc_read_wc_flags(cq);	/* of a send it may be its data */
		enum ibv_wc_opcode op = ibv_wc_read_opcode(cq);

		v[n++] = op;
		v[n++] = address ? flags : flags & ~(unsigned int)IBV_WC_GRH;
		v[n++] = ibv_wc_read_completion_ts(cq);
		if (!sends || op == IBV_WC_RDMA_READ || op == IBV_WC_COMP_SWAP || op == IBV_WC_FETCH_ADD)
			v[n++] = ibv_wc_read_byte_len(cq);
		if (!sends && address) {
			v[n++] = ibv_wc_read_src_qp(cq);
			v[n++] = ibv_wc_read_slid(cq);
			v[n++] = ibv_wc_read_sl(cq);
			v[n++] = ibv_wc_read_dlid_path_bits(cq);
			v[n++] = ibv_wc_read_cvlan(cq);
		}
		if (!sends) {
			v[n++] = ibv_wc_read_flow_tag(cq);
			if (flags & IBV_WC_WITH_IMM)
				v[n++] = ibv_wc_read_imm_data(cq);
			if (flags & IBV_WC_WITH_INV)
				v[n++] = ibv_wc_read_invalidated_rkey(cq);
		}
	}
	if (error)
		v[n++] = ibv_wc_read_vendor_err(cq);
	emit(TAG_BYTES, 1, n, v, n * sizeof(v[0]));
}

static void poll_ex(struct world *w, int n)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint32_t ci = w->cq_ci - (uint32_t)n;
	int rc = ibv_start_poll(w->cq, &attr);

	emit(TAG_RC, (uint32_t)rc, 0, NULL, 0);
	if (rc)
		return;
	do {
		uint8_t op = op_own_of(w, ci) >> 4;

		note_ex(w->cq, of_sends(w, ci), has_address(w, ci), op == MLX5_CQE_REQ_ERR || op == MLX5_CQE_RESP_ERR);
		ci++;
		rc = ibv_next_poll(w->cq);
	} while (!rc);
	emit(TAG_RC, (uint32_t)rc, 0, NULL, 0);
	ibv_end_poll(w->cq);
}

void poll_cq(struct world *w, struct prng *p, int n)
{
	struct ibv_wc wc[8];
	int rc;

	if (rnd(p, 2)) {
		poll_ex(w, n);
	} else {
		memset(wc, w->fill, sizeof(wc));
		rc = ibv_poll_cq(ibv_cq_ex_to_cq(w->cq), 8, wc);
		emit(TAG_RC, (uint32_t)rc, 0, NULL, 0);
		for (int i = 0; i < rc; i++) {
			uint32_t ci = w->cq_ci - (uint32_t)rc + (uint32_t)i;

			if (!has_address(w, ci) && !of_sends(w, ci)) {
				wc[i].src_qp = wc[i].slid = wc[i].sl = wc[i].dlid_path_bits = 0;
				wc[i].wc_flags &= ~(unsigned int)IBV_WC_GRH;
			}
			emit(TAG_WC, (uint32_t)i, 0, &wc[i], sizeof(wc[i]));
		}
	}
	emit(TAG_VALUE, 0, be32toh(w->dvcq.dbrec[0]), NULL, 0);
}

void note_scattered(const struct world *w, const struct mlx5_wqe_data_seg *seg, uint32_t max)
{
	uint64_t low = (uintptr_t)w->arena;

	for (uint32_t i = 0; i < max; i++) {
		uint64_t at = be64toh(seg[i].addr);

		if (at >= low && at < low + ARENA_BYTES / 2)
			emit(TAG_BYTES, 2, i, (const void *)(uintptr_t)at, 64);
	}
}

/* Where a READ's or an atomic's data segments begin. */
static uint32_t data_at(uint8_t op)
{
	return op == OPCODE_READ ? 2 : 3;
}

static void note_send_scatter(const struct world *w, const struct posted *e)
{
	const struct mlx5_wqe_ctrl_seg *ctrl = sq_seg(w, e->pi, 0);
	uint32_t ds = be32toh(ctrl->qpn_ds) & 0x3f;

	for (uint32_t i = data_at(e->op); i < ds; i++)
		note_scattered(w, sq_seg(w, e->pi, i), 1);
}

/* RETURN whether the CQE holds data. */
static bool send_cqe(struct world *w, struct prng *p, const struct posted *e, struct mlx5_cqe64 *cqe)
{
	uint32_t most = e->op != OPCODE_READ ? 8 : 32;

	random_cqe(p, cqe);
	cqe->wqe_counter = htobe16((uint16_t)e->pi);
	cqe->sop_drop_qpn = htobe32((uint32_t)e->op << 24 | w->qp->qp_num);
	cqe->flags_rqpn = 0;
	if (one_in(p, 8)) {
		make_error(p, cqe, MLX5_CQE_REQ_ERR);
		return false;
	}
	cqe->op_own = MLX5_CQE_REQ << 4;
	/* Of a 128-byte CQE libmlx5 44 copies from one byte before the data: it counts in bytes and means CQEs. */
	if (!w->cfg.scatter || !e->scatters || w->dvcq.cqe_size == 128 || !rnd(p, 2))
		return false;
	cqe->byte_cnt = htobe32(rnd(p, most + 1));
	cqe->op_own |= MLX5_INLINE_SCATTER_32;
	return true;
}

/* The CQE of the request at index of those outstanding: with it those before are complete. */
static void write_send_cqe(struct world *w, struct prng *p, uint32_t index, bool *scattered)
{
	const struct posted *e = &w->out[index % RING_WR_MAX];
	struct mlx5_cqe64 cqe;
	uint8_t data[64];

	for (unsigned int i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rnd64(p);
	*scattered = send_cqe(w, p, e, &cqe);
	write_cqe(w, &cqe, data);
	w->out_tail = index + 1;
	w->tail_pi = e->pi + e->bb;
}

/* Requests of one stream complete in order, those of several need not: here each in its turn. */
static uint32_t pick(struct world *w, struct prng *p)
{
	return w->cfg.streams ? w->out_tail : w->out_tail + rnd(p, w->out_head - w->out_tail);
}

/* Completes some requests, up to most at once. */
static void complete(struct world *w, struct prng *p, uint32_t most)
{
	uint32_t index[8], n = 0, take = 1 + rnd(p, most);
	bool scattered[8];

	for (; n < take && w->out_tail != w->out_head; n++) {
		index[n] = pick(w, p);
		write_send_cqe(w, p, index[n], &scattered[n]);
	}
	poll_cq(w, p, (int)n);
	for (uint32_t i = 0; i < n; i++) {
		if (scattered[i])
			note_send_scatter(w, &w->out[index[i] % RING_WR_MAX]);
	}
}

void complete_some(struct world *w, struct prng *p)
{
	complete(w, p, 4);
}

bool complete_until_room(struct world *w, struct prng *p, uint32_t requests, uint32_t blocks)
{
	for (;;) {
		if (w->out_head - w->out_tail + requests <= w->max_post &&
		    w->pi - w->tail_pi + blocks <= w->wqe_bb * w->max_post)
			return true;
		if (w->out_tail == w->out_head)
			return false;
		complete(w, p, 2);
	}
}

void go_far(struct world *w)
{
	struct ibv_send_wr list[RING_WR_MAX / 16], *bad;
	struct mlx5_cqe64 cqe = { .op_own = MLX5_CQE_REQ << 4 };
	const uint8_t none[64] = { 0 };
	struct ibv_wc wc;

	for (uint32_t i = 0; i < COUNT(list); i++) {
		list[i] = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .next = &list[i + 1] };
		if (w->cfg.kind == T_UD)
			list[i].wr.ud.ah = w->ah[0];
	}
	while (w->pi < 0x10000 - 2 * w->max_post) {
		uint32_t n = w->max_post < COUNT(list) ? w->max_post : (uint32_t)COUNT(list);

		list[n - 1].next = NULL;
		if (ibv_post_send(w->qp, list, &bad))
			die("requests of one block");
		w->uar_second = !w->uar_second;
		w->pi += n;
		cqe.wqe_counter = htobe16((uint16_t)(w->pi - 1));
		cqe.sop_drop_qpn = htobe32(0x0au << 24 | w->qp->qp_num);
		write_cqe(w, &cqe, none);
		if (ibv_poll_cq(ibv_cq_ex_to_cq(w->cq), 1, &wc) != 1)
			die("their completions");
	}
	w->tail_pi = w->pi;
}

void arm_cq(struct world *w, struct prng *p)
{
	uint8_t *reg = (uint8_t *)w->dvcq.cq_uar + ARM_REG;
	uint64_t stored;

	memset(reg, w->fill, 8);
	emit(TAG_RC, (uint32_t)ibv_req_notify_cq(ibv_cq_ex_to_cq(w->cq), (int)rnd(p, 2)), 0, NULL, 0);
	memcpy(&stored, reg, 8);
	stored = be64toh(stored);
	emit(TAG_VALUE, 1, be32toh(w->dvcq.dbrec[1]), NULL, 0);
	emit(TAG_VALUE, 2, (uint32_t)(stored >> 32), NULL, 0);
	emit(TAG_VALUE, 3, (uint32_t)stored == w->dvcq.cqn, NULL, 0);
}
