/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* (c) Columns of a matrix in one RDMA READ, by mlx5dv_wr_mr_interleaved().
 *
 * The side that owns the matrix describes the wanted columns as a pattern and registers it with a UMR
 * work request. The other side reads from the resulting key as if the columns lay side by side. */
#include "common.h"

enum { ROWS = 6, COLS = 8, CELL = 2, TURN = 3 * CELL };

static char matrix[ROWS][COLS][CELL];	/* "a0" "a1" ... "f7" */
static char columns[ROWS][3][CELL];	/* what the READ brings */

static int wanted(int col)
{
	return col == 1 || col == 2 || col == 5;
}

static void draw(void)
{
	printf("  the matrix in the owner's memory           through the key\n");
	for (int r = 0; r < ROWS; r++) {
		printf("   ");
		for (int c = 0; c < COLS; c++)
			printf(wanted(c) ? "[%.2s]" : " %.2s ", matrix[r][c]);
		printf("   %s   %2d  %.2s %.2s %.2s\n", r == ROWS / 2 ? "==>" : "   ", r * TURN, matrix[r][1],
		       matrix[r][2], matrix[r][5]);
	}
	printf("        '--------'      '--'\n");
	printf("         block 1       block 2     %d turns: take 4, skip 12 | take 2, skip 14\n\n", ROWS);
}

int main(void)
{
	struct device dev;
	struct mlx5dv_mkey_init_attr init = { .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
					      .max_entries = 3 };	/* two blocks and their header */
	struct mlx5dv_mkey *mkey;
	struct ibv_mr *mr, *sink;
	struct ibv_qp *owner, *reader;
	struct ibv_qp_ex *qpx;
	int right = 1;

	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < COLS; c++) {
			matrix[r][c][0] = 'a' + r;
			matrix[r][c][1] = '0' + c;
		}
	open_device(&dev);
	mr = register_memory(&dev, matrix, sizeof(matrix));
	sink = register_memory(&dev, columns, sizeof(columns));
	init.pd = dev.pd;
	mkey = need(mlx5dv_create_mkey(&init), "mlx5dv_create_mkey");
	owner = create_rc(&dev, IBV_QP_EX_WITH_SEND, MLX5DV_QP_EX_WITH_MR_INTERLEAVED, 0);
	reader = create_rc(&dev, IBV_QP_EX_WITH_RDMA_READ, 0, 0);
	connect_rc(&dev, owner, reader->qp_num);
	connect_rc(&dev, reader, owner->qp_num);

	printf("One RDMA READ gathers columns 1, 2 and 5.\n\n");
	draw();

	/* Register the pattern: once for any number of reads. */
	struct mlx5dv_mr_interleaved block[2] = {
		{ .addr = (uintptr_t)matrix[0][1],
		  .bytes_count = 2 * CELL,
		  .bytes_skip = (COLS - 2) * CELL,
		  .lkey = mr->lkey },
		{ .addr = (uintptr_t)matrix[0][5],
		  .bytes_count = CELL,
		  .bytes_skip = (COLS - 1) * CELL,
		  .lkey = mr->lkey },
	};
	qpx = ibv_qp_to_qp_ex(owner);
	ibv_wr_start(qpx);
	qpx->wr_id = 1;
	qpx->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;	/* a UMR must be inline */
	mlx5dv_wr_mr_interleaved(mlx5dv_qp_ex_from_ibv_qp_ex(qpx), mkey, IBV_ACCESS_REMOTE_READ, ROWS, 2, block);
	need_0(ibv_wr_complete(qpx), "ibv_wr_complete (UMR)");
	show_wqe(owner, 0, 0);
	printf("\n");
	wait_for(dev.cq, 1);

	/* The other side: addresses in the key count from 0. */
	qpx = ibv_qp_to_qp_ex(reader);
	ibv_wr_start(qpx);
	qpx->wr_id = 2;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(qpx, mkey->rkey, 0);
	ibv_wr_set_sge(qpx, sink->lkey, (uintptr_t)columns, sizeof(columns));
	need_0(ibv_wr_complete(qpx), "ibv_wr_complete (READ)");
	wait_for(dev.cq, 2);

	printf("\n  the reader's memory: %.*s\n\n", (int)sizeof(columns), columns[0][0]);
	for (int r = 0; r < ROWS; r++)
		right &= !memcmp(columns[r][0], matrix[r][1], 2 * CELL) && !memcmp(columns[r][2], matrix[r][5], CELL);

	need_0(ibv_destroy_qp(owner), "ibv_destroy_qp");
	need_0(ibv_destroy_qp(reader), "ibv_destroy_qp");
	need_0(mlx5dv_destroy_mkey(mkey), "mlx5dv_destroy_mkey");
	need_0(ibv_dereg_mr(mr), "ibv_dereg_mr");
	need_0(ibv_dereg_mr(sink), "ibv_dereg_mr");
	close_device(&dev);
	return verdict(right, "the columns arrived side by side.");
}
