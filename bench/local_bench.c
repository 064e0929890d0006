/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The whole way in one thread of one process: post, execute, complete, poll.
 *
 * usage: local_bench [ROUNDS]
 *        local_bench --count ROW REQUESTS
 * Rows whose unit is requests have one in 32 signaled, unless their name says all; ROW is one of these, from 0.
 * Each row is measured ROUNDS times, alternating with its yardstick where it has one (memcpy, the plain C
 * loop for the same pattern), and printed as one line:
 *   name <tab> unit <tab> ours, one value a round <tab> yardstick, one value a round or "-"
 * bench/run.py makes the table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "bench.h"

enum { BUF_BYTES = 64 << 20, DEPTH = 256, SIGNAL_EVERY = 32, DC_KEY = 0x1234 };

struct bench {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *rc, *rc_peer, *dci, *dct;
	struct ibv_ah *ah;
	uint8_t *src, *dst;
	struct ibv_mr *src_mr, *dst_mr;
	struct mlx5dv_mkey *mkey;
	struct ibv_sge list[4], recv_sge;
};

static struct ibv_qp *make_qp(struct bench *b, int dc, enum mlx5dv_dc_type type)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = dc ? IBV_QPT_DRIVER : IBV_QPT_RC, .pd = b->pd, .send_cq = b->cq, .recv_cq = b->cq,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = dc ? 0 : DEPTH, .max_send_sge = 4,
			 .max_recv_sge = dc ? 0 : 1, .max_inline_data = dc ? 0 : 512 },
	};
	struct mlx5dv_qp_init_attr dv = { 0 };
	struct ibv_qp *qp;

	if (dc) {
		dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv.dc_init_attr.dc_type = type;
		dv.dc_init_attr.dct_access_key = DC_KEY;
	}
	if (dc && type == MLX5DV_DCTYPE_DCT) {
		attr.srq = b->srq;
		attr.cap = (struct ibv_qp_cap){ 0 };
	} else {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND;
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
		dv.send_ops_flags = MLX5DV_QP_EX_WITH_MEMCPY | (dc ? 0 : MLX5DV_QP_EX_WITH_MR_INTERLEAVED |
									  MLX5DV_QP_EX_WITH_MR_LIST);
	}
	qp = mlx5dv_create_qp(b->ctx, &attr, &dv);
	if (!qp)
		die("mlx5dv_create_qp");
	return qp;
}

static void open_all(struct bench *b)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct mlx5dv_mkey_init_attr mk = { .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 4 };
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	union ibv_gid gid;

	if (!list || !list[0])
		die("no device");
	b->ctx = ibv_open_device(list[0]);
	if (!b->ctx || !(b->pd = ibv_alloc_pd(b->ctx)) || !(b->cq = ibv_create_cq(b->ctx, 4 * DEPTH, NULL, NULL, 0)) ||
	    !(b->srq = ibv_create_srq(b->pd, &srq)) || ibv_query_gid(b->ctx, 1, 0, &gid))
		die("open");
	b->src = aligned_alloc(4096, BUF_BYTES);
	b->dst = aligned_alloc(4096, BUF_BYTES);
	memset(b->src, 1, BUF_BYTES);
	memset(b->dst, 2, BUF_BYTES);
	b->src_mr = ibv_reg_mr(b->pd, b->src, BUF_BYTES, access);
	b->dst_mr = ibv_reg_mr(b->pd, b->dst, BUF_BYTES, access);
	b->rc = make_qp(b, 0, 0);
	b->rc_peer = make_qp(b, 0, 0);
	to_rts(b->rc, b->rc_peer->qp_num, gid, 0, 0);
	to_rts(b->rc_peer, b->rc->qp_num, gid, 0, 0);
	mk.pd = b->pd;
	b->mkey = mlx5dv_create_mkey(&mk);
	if (!b->src_mr || !b->dst_mr || !b->mkey)
		die("objects");
	for (uint32_t i = 0; i < 4; i++)
		b->list[i] = (struct ibv_sge){ (uintptr_t)b->src + i * 8192, 4096, b->src_mr->lkey };
	b->recv_sge = (struct ibv_sge){ (uintptr_t)b->dst, 4096, b->dst_mr->lkey };
	ibv_free_device_list(list);
}

/* A DC target may be reached from other processes, so the device gets a thread: not before its rows. */
static void open_dc(struct bench *b)
{
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };

	if (b->dci)
		return;
	if (ibv_query_gid(b->ctx, 1, 0, &ah.grh.dgid))
		die("ibv_query_gid");
	b->dct = make_qp(b, 1, MLX5DV_DCTYPE_DCT);
	b->dci = make_qp(b, 1, MLX5DV_DCTYPE_DCI);
	b->ah = ibv_create_ah(b->pd, &ah);
	if (!b->ah)
		die("ibv_create_ah");
	to_rts(b->dct, 0, ah.grh.dgid, 0, 1);
	to_rts(b->dci, 0, ah.grh.dgid, 1, 0);
}

static void wait_for(struct bench *b, uint32_t count)
{
	struct ibv_wc wc[SIGNAL_EVERY];

	while (count) {
		int n = ibv_poll_cq(b->cq, count < SIGNAL_EVERY ? (int)count : SIGNAL_EVERY, wc);

		if (n < 0)
			die("ibv_poll_cq");
		for (int i = 0; i < n; i++) {
			if (wc[i].status) {
				fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc[i].status));
				exit(1);
			}
		}
		count -= (uint32_t)n;
	}
}

enum what { RC_WRITE, DC_WRITE, RC_READ, MEMCPY, MKEY_READ, SEND, MR_LIST };

/* What a row posts: requests of len bytes, `batch` a doorbell, each `every`-th one signaled. */
struct load { enum what what; uint32_t len, every, batch; };

static void put(struct bench *b, const struct load *l, struct ibv_qp_ex *qp, struct mlx5dv_qp_ex *dv)
{
	switch (l->what) {
	case RC_WRITE:
	case DC_WRITE:
		ibv_wr_rdma_write(qp, b->dst_mr->rkey, (uintptr_t)b->dst);
		ibv_wr_set_sge(qp, b->src_mr->lkey, (uintptr_t)b->src, l->len);
		if (l->what == DC_WRITE)
			mlx5dv_wr_set_dc_addr(dv, b->ah, b->dct->qp_num, DC_KEY);
		break;
	case RC_READ:
	case MKEY_READ:
		if (l->what == RC_READ)
			ibv_wr_rdma_read(qp, b->src_mr->rkey, (uintptr_t)b->src);
		else
			ibv_wr_rdma_read(qp, b->mkey->rkey, 0);
		ibv_wr_set_sge(qp, b->dst_mr->lkey, (uintptr_t)b->dst, l->len);
		break;
	case MEMCPY:
		mlx5dv_wr_memcpy(dv, b->dst_mr->lkey, (uintptr_t)b->dst, b->src_mr->lkey, (uintptr_t)b->src, l->len);
		break;
	case SEND:
		ibv_wr_send(qp);
		ibv_wr_set_sge(qp, b->src_mr->lkey, (uintptr_t)b->src, l->len);
		break;
	case MR_LIST:
		qp->wr_flags |= IBV_SEND_INLINE;
		mlx5dv_wr_mr_list(dv, b->mkey, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 4, b->list);
		break;
	}
}

/* Receives for the next `count` messages. */
static void receive(struct bench *b, uint32_t count)
{
	struct ibv_recv_wr wr[SIGNAL_EVERY], *bad;

	for (uint32_t i = 0; i < count; i++)
		wr[i] = (struct ibv_recv_wr){ .next = i + 1 < count ? &wr[i + 1] : NULL, .sg_list = &b->recv_sge,
					      .num_sge = 1 };
	if (count && ibv_post_recv(b->rc_peer, wr, &bad))
		die("ibv_post_recv");
}

/* Posts count requests, and waits for the completions. Messages are received each `every` at once, at the other end.
 * RETURN seconds. */
static double run(struct bench *b, const struct load *l, uint32_t count)
{
	struct mlx5dv_qp_ex *dv;
	struct ibv_qp_ex *qp;
	double began;

	if (l->what == DC_WRITE)
		open_dc(b);
	qp = ibv_qp_to_qp_ex(l->what == DC_WRITE ? b->dci : b->rc);
	dv = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
	began = now();

	for (uint32_t left = count; left;) {
		uint32_t round = left < l->every ? left : l->every;

		if (l->what == SEND)
			receive(b, round);
		for (uint32_t i = 0; i < round; i++) {
			if (i % l->batch == 0)
				ibv_wr_start(qp);
			qp->wr_id = left - i;
			qp->wr_flags = i + 1 == round ? IBV_SEND_SIGNALED : 0;
			put(b, l, qp, dv);
			if ((i + 1 == round || (i + 1) % l->batch == 0) && ibv_wr_complete(qp))
				die("ibv_wr_complete");
		}
		wait_for(b, l->what == SEND ? round + 1 : 1);
		left -= round;
	}
	return now() - began;
}

/* Gathers blocks of `block` bytes, one every `stride`, through an interleaved mkey. */
static void set_layout(struct bench *b, uint32_t block, uint32_t stride, uint32_t repeat)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(b->rc);
	struct mlx5dv_mr_interleaved il = { (uintptr_t)b->src, block, stride - block, b->src_mr->lkey };
	struct ibv_send_wr inv = { .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
				   .invalidate_rkey = b->mkey->rkey }, *bad;
	static int registered;

	if (registered++) {
		if (ibv_post_send(b->rc, &inv, &bad))
			die("LOCAL_INV");
		wait_for(b, 1);
	}
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	mlx5dv_wr_mr_interleaved(mlx5dv_qp_ex_from_ibv_qp_ex(qp), b->mkey,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, repeat, 1, &il);
	if (ibv_wr_complete(qp))
		die("mr_interleaved");
	wait_for(b, 1);
}

static double plain_strided(struct bench *b, uint32_t block, uint32_t stride, uint32_t repeat, uint32_t times)
{
	double began = now();

	for (uint32_t t = 0; t < times; t++) {
		for (uint32_t i = 0; i < repeat; i++)
			memcpy(b->dst + (size_t)i * block, b->src + (size_t)i * stride, block);
		__asm__ volatile("" : : "r"(b->dst) : "memory");
	}
	return now() - began;
}

static double plain_memcpy(struct bench *b, uint32_t len, uint32_t times)
{
	double began = now();

	for (uint32_t t = 0; t < times; t++) {
		memcpy(b->dst, b->src, len);
		__asm__ volatile("" : : "r"(b->dst) : "memory");
	}
	return now() - began;
}

static void print_row(const char *name, const char *unit, const double *ours, const double *other, int rounds)
{
	printf("%s\t%s\t", name, unit);
	for (int i = 0; i < rounds; i++)
		printf("%s%.4g", i ? " " : "", ours[i]);
	printf("\t");
	for (int i = 0; i < rounds && other; i++)
		printf("%s%.4g", i ? " " : "", other[i]);
	printf("%s\n", other ? "" : "-");
	fflush(stdout);
}

static const struct rate { const char *name; struct load load; } rate_rows[] = {
	{ "RDMA WRITE 8 B, RC", { RC_WRITE, 8, SIGNAL_EVERY, 1 } },
	{ "RDMA WRITE 8 B, RC, 32 a doorbell", { RC_WRITE, 8, SIGNAL_EVERY, 32 } },
	{ "RDMA WRITE 64 B, RC", { RC_WRITE, 64, SIGNAL_EVERY, 1 } },
	{ "RDMA WRITE 64 B, RC, 32 a doorbell", { RC_WRITE, 64, SIGNAL_EVERY, 32 } },
	{ "RDMA WRITE 8 B, RC, all signaled", { RC_WRITE, 8, 1, 1 } },
	{ "SEND to RECV 64 B, RC", { SEND, 64, SIGNAL_EVERY, 1 } },
	{ "SEND to RECV 64 B, RC, 32 a doorbell", { SEND, 64, SIGNAL_EVERY, 32 } },
	{ "mr_list(4)", { MR_LIST, 0, SIGNAL_EVERY, 1 } },
	{ "mr_list(4), 32 a doorbell", { MR_LIST, 0, SIGNAL_EVERY, 32 } },
	{ "memcpy request 64 B", { MEMCPY, 64, SIGNAL_EVERY, 1 } },
	{ "memcpy request 64 B, 32 a doorbell", { MEMCPY, 64, SIGNAL_EVERY, 32 } },
	{ "RDMA WRITE 8 B, DC", { DC_WRITE, 8, SIGNAL_EVERY, 1 } },
	{ "RDMA WRITE 8 B, DC, 32 a doorbell", { DC_WRITE, 8, SIGNAL_EVERY, 32 } },
	{ "RDMA WRITE 64 B, DC", { DC_WRITE, 64, SIGNAL_EVERY, 1 } },
	{ "RDMA WRITE 64 B, DC, 32 a doorbell", { DC_WRITE, 64, SIGNAL_EVERY, 32 } },
};
enum { RATE_ROWS = sizeof(rate_rows) / sizeof(rate_rows[0]) };

static void rates(struct bench *b, int rounds)
{
	double ours[64];

	for (const struct rate *row = rate_rows; row < rate_rows + RATE_ROWS; row++) {
		run(b, &row->load, 20000);
		for (int r = 0; r < rounds; r++)
			ours[r] = 500000 / run(b, &row->load, 500000) / 1e6;
		print_row(row->name, "M requests/s", ours, NULL, rounds);
	}
}

static void copies(struct bench *b, int rounds)
{
	static const struct { const char *name; enum what what; uint32_t len, times; } rows[] = {
		{ "RDMA WRITE 64 KiB, RC", RC_WRITE, 64 << 10, 4000 },
		{ "RDMA WRITE 1 MiB, RC", RC_WRITE, 1 << 20, 300 },
		{ "RDMA READ 1 MiB, RC", RC_READ, 1 << 20, 300 },
		{ "memcpy request 1 MiB", MEMCPY, 1 << 20, 300 },
		{ "RDMA WRITE 64 MiB, RC", RC_WRITE, 64 << 20, 8 },
	};
	double ours[64], other[64];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct load load = { rows[i].what, rows[i].len, 1, 1 };
		double gb = (double)rows[i].len * rows[i].times / 1e9;

		for (int r = 0; r < rounds; r++) {
			ours[r] = gb / run(b, &load, rows[i].times);
			other[r] = gb / plain_memcpy(b, rows[i].len, rows[i].times);
		}
		print_row(rows[i].name, "GB/s, against memcpy", ours, other, rounds);
	}
}

static void strided(struct bench *b, int rounds)
{
	static const uint32_t blocks[] = { 8, 64, 512, 4096 };
	double ours[64], other[64];
	char name[64];

	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		uint32_t block = blocks[i], stride = block * 2, repeat = (1 << 18) / block, times = 200;
		const struct load load = { MKEY_READ, block * repeat, 1, 1 };
		double gb = (double)block * repeat * times / 1e9;

		set_layout(b, block, stride, repeat);
		for (int r = 0; r < rounds; r++) {
			ours[r] = gb / run(b, &load, times);
			other[r] = gb / plain_strided(b, block, stride, repeat, times);
		}
		snprintf(name, sizeof(name), "strided READ, %u of every %u B", block, stride);
		print_row(name, "GB/s, against a C loop", ours, other, rounds);
	}
}

/* For a tool that counts instructions: one row, and nothing is printed. RETURN the exit code. */
static int only_row(struct bench *b, const char *row, const char *count)
{
	unsigned long at = strtoul(row, NULL, 10), n = strtoul(count, NULL, 10);

	if (at >= RATE_ROWS || !n || n > UINT32_MAX)
		return 2;
	run(b, &rate_rows[at].load, (uint32_t)n);
	return 0;
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 9;

	if (argc == 4 && !strcmp(argv[1], "--count")) {
		open_all(&b);
		return only_row(&b, argv[2], argv[3]);
	}
	if (rounds < 1 || rounds > 64)
		return 2;
	open_all(&b);
	rates(&b, rounds);
	copies(&b, rounds);
	strided(&b, rounds);
	return 0;
}
