/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What it costs to post: builders and doorbell, with no device behind them.
 *
 * usage: posting_bench [ROUNDS]                 a row for each builder, with 1 and with 32 requests a doorbell
 *        posting_bench --once BUILDER BATCH N   N requests of one builder, to count instructions of
 * Doorbells go to ordinary memory. Row format: see local_bench.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dv/dv_qp.h"

enum { RING_WR = 256, REQUESTS = 400000 };

static struct smx_refusal_log refusals;
static uint8_t uar[4096] __attribute__((aligned(4096)));
static struct smx_dv_bf bf = { .reg = uar, .uuarn = 1, .buf_bytes = 256 };
static uint8_t inline_data[64];
static struct smx_dv_mkey mkey = { .dv = { .lkey = 0x4200, .rkey = 0x4200 }, .max_entries = 16 };
static struct smx_dv_ah ah;

static struct smx_dv_qp *make(enum smx_dv_qp_kind kind)
{
	struct smx_dv_qp *qp = calloc(1, sizeof(*qp));
	struct ibv_qp_cap cap = { .max_send_wr = RING_WR, .max_send_sge = 4, .max_inline_data = 300 };
	struct smx_dv_qp_sizes sizes;

	qp->kind = kind;
	qp->qpn = 0x1234;
	qp->can_post = true;
	qp->atomics = true;
	qp->has_streams = kind == SMX_DV_DCI;
	qp->has_ex = true;
	qp->send_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ |
		       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
	qp->dv_ops = MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY;
	if (kind == SMX_DV_RC)
		qp->dv_ops |= MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST |
			      MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
	if (smx_dv_qp_size(&refusals, kind, qp->send_ops, qp->dv_ops, false, false, &cap, &sizes))
		abort();
	qp->umr_ops = kind == SMX_DV_RC;
	qp->sq.bb_count = sizes.sq_bb_count;
	qp->sq.max_post = sizes.sq_max_post;
	qp->sq.max_gs = sizes.sq_max_gs;
	qp->sq.max_inline = sizes.sq_max_inline;
	qp->sq.buf = aligned_alloc(4096, (size_t)sizes.sq_bb_count * 64);
	qp->sq.slot = calloc(sizes.sq_bb_count, sizeof(*qp->sq.slot));
	qp->sq.lock.needed = true;
	qp->dbrec = aligned_alloc(64, 64);
	qp->bf = &bf;
	qp->ctx.memcpy_max = 1 << 24;
	qp->refusals = &refusals;
	if (smx_dv_qp_fill_ops(qp))
		abort();
	return qp;
}

static void rc_write(struct smx_dv_qp *qp)
{
	ibv_wr_rdma_write(&qp->ex, 0x1100, 0x7000000);
	ibv_wr_set_sge(&qp->ex, 0x2200, 0x8000000, 64);
}

static void dc_write(struct smx_dv_qp *qp)
{
	rc_write(qp);
	mlx5dv_wr_set_dc_addr_stream(&qp->dv, &ah.ibv, 0x99, 0x1234, 3);
}

static void write_inline(struct smx_dv_qp *qp)
{
	ibv_wr_rdma_write(&qp->ex, 0x1100, 0x7000000);
	ibv_wr_set_inline_data(&qp->ex, inline_data, sizeof(inline_data));
}

static void list4(struct smx_dv_qp *qp)
{
	static struct ibv_sge sge[4] = { { 0x1000, 64, 1 }, { 0x2000, 64, 1 }, { 0x3000, 64, 1 }, { 0x4000, 64, 1 } };

	qp->ex.wr_flags = IBV_SEND_INLINE;
	mlx5dv_wr_mr_list(&qp->dv, &mkey.dv, IBV_ACCESS_LOCAL_WRITE, 4, sge);
}

static void interleaved3(struct smx_dv_qp *qp)
{
	static struct mlx5dv_mr_interleaved il[3] = { { 0x1000, 64, 64, 1 },
						      { 0x2000, 64, 64, 1 },
						      { 0x3000, 64, 64, 1 } };

	qp->ex.wr_flags = IBV_SEND_INLINE;
	mlx5dv_wr_mr_interleaved(&qp->dv, &mkey.dv, IBV_ACCESS_LOCAL_WRITE, 8, 3, il);
}

static void raw64(struct smx_dv_qp *qp)
{
	static const uint8_t wqe[64] = { [3] = 0x08, [7] = 4 };

	mlx5dv_wr_raw_wqe(&qp->dv, wqe);
}

static void dma_memcpy(struct smx_dv_qp *qp)
{
	mlx5dv_wr_memcpy(&qp->dv, 0x1100, 0x1000, 0x2200, 0x2000, 4096);
}

static const struct row {
	const char *name;
	enum smx_dv_qp_kind kind;
	void (*build)(struct smx_dv_qp *qp);	/* NULL: ibv_post_send of an RDMA WRITE */
} rows[] = {
	{ "RC write + sge", SMX_DV_RC, rc_write },
	{ "DCI write + stream + sge", SMX_DV_DCI, dc_write },
	{ "RC write inline 64 B", SMX_DV_RC, write_inline },
	{ "mr_list(4)", SMX_DV_RC, list4 },
	{ "mr_interleaved(3)", SMX_DV_RC, interleaved3 },
	{ "raw 64 B", SMX_DV_RC, raw64 },
	{ "memcpy", SMX_DV_RC, dma_memcpy },
	{ "ibv_post_send WRITE", SMX_DV_RC, NULL },
};

static void post(struct smx_dv_qp *qp, const struct row *row, int batch)
{
	static struct ibv_sge sge = { 0x8000000, 64, 0x2200 };
	struct ibv_send_wr wr[32], *bad;
	int err;

	qp->sq.tail = qp->sq.head;	/* as if all were completed */
	qp->sq.tail_bb = qp->sq.cur_post;
	if (row->build) {
		ibv_wr_start(&qp->ex);
		for (int i = 0; i < batch; i++) {
			qp->ex.wr_id = (uint64_t)i;
			qp->ex.wr_flags = 0;
			row->build(qp);
		}
		err = ibv_wr_complete(&qp->ex);
	} else {
		for (int i = 0; i < batch; i++)
			wr[i] = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
						      .wr = { .rdma = { 0x7000000, 0x1100 } },
						      .next = i + 1 < batch ? &wr[i + 1] : NULL };
		err = smx_dv_post_send(&qp->ex.qp_base, wr, &bad);
	}
	if (err) {
		fprintf(stderr, "%s: %s\n", row->name, strerror(err));
		exit(1);
	}
}

static double once(const struct row *row, int batch, int requests)
{
	struct smx_dv_qp *qp = make(row->kind);
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int done = 0; done < requests; done += batch)
		post(qp, row, batch);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / requests;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 9;

	if (argc == 5 && !strcmp(argv[1], "--once")) {
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			if (!strcmp(rows[i].name, argv[2])) {
				once(&rows[i], (int)strtol(argv[3], NULL, 10), (int)strtol(argv[4], NULL, 10));
				return 0;
			}
		}
		return 2;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int batch = 1; batch <= 32; batch += 31) {
			printf("%s %d\tns\t", rows[i].name, batch);
			for (int r = 0; r < rounds; r++)
				printf("%s%.3g", r ? " " : "", once(&rows[i], batch, REQUESTS));
			printf("\t-\n");
		}
	}
	return 0;
}
