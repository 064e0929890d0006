/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* (d) Pieces of memory as one, by mlx5dv_wr_mr_list().
 *
 * Three pieces, lying in no order in two regions, become one key. A peer writes to it with one RDMA
 * WRITE, not knowing that there are pieces. */
#include "common.h"

static char text[] = "scattered by the device";
static char left[48], right_half[48];

static void draw(const char *name, const char *mem, size_t bytes)
{
	printf("  %-6s |", name);
	for (size_t i = 0; i < bytes; i++)
		putchar(mem[i] ? mem[i] : '.');
	printf("|\n");
}

int main(void)
{
	struct device dev;
	struct mlx5dv_mkey_init_attr init = { .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 4 };
	struct mlx5dv_mkey *mkey;
	struct ibv_mr *mr[2], *from;
	struct ibv_qp *owner, *writer;
	struct ibv_qp_ex *qpx;
	int right;

	open_device(&dev);
	mr[0] = register_memory(&dev, left, sizeof(left));
	mr[1] = register_memory(&dev, right_half, sizeof(right_half));
	from = register_memory(&dev, text, sizeof(text));
	init.pd = dev.pd;
	mkey = need(mlx5dv_create_mkey(&init), "mlx5dv_create_mkey");
	owner = create_rc(&dev, IBV_QP_EX_WITH_SEND, MLX5DV_QP_EX_WITH_MR_LIST, 0);
	writer = create_rc(&dev, IBV_QP_EX_WITH_RDMA_WRITE, 0, 0);
	connect_rc(&dev, owner, writer->qp_num);
	connect_rc(&dev, writer, owner->qp_num);

	struct ibv_sge piece[3] = {
		{ .addr = (uintptr_t)right_half + 8, .length = 10, .lkey = mr[1]->lkey },	/* "scattered " */
		{ .addr = (uintptr_t)left + 30, .length = 7, .lkey = mr[0]->lkey },		/* "by the " */
		{ .addr = (uintptr_t)left + 4, .length = 6, .lkey = mr[0]->lkey },		/* "device" */
	};

	printf("One RDMA WRITE into three pieces of two regions.\n\n");
	printf("  key 0x%06x, addresses from 0 |0        |10    |17   |23\n", mkey->rkey);
	printf("                               '-piece 0-'-piece1'-piece 2\n\n");
	qpx = ibv_qp_to_qp_ex(owner);
	ibv_wr_start(qpx);
	qpx->wr_id = 1;
	qpx->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;	/* a UMR must be inline */
	mlx5dv_wr_mr_list(mlx5dv_qp_ex_from_ibv_qp_ex(qpx), mkey,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 3, piece);
	need_0(ibv_wr_complete(qpx), "ibv_wr_complete (UMR)");
	show_wqe(owner, 0, 0);
	printf("\n");
	wait_for(dev.cq, 1);

	qpx = ibv_qp_to_qp_ex(writer);
	ibv_wr_start(qpx);
	qpx->wr_id = 2;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qpx, mkey->rkey, 0);
	ibv_wr_set_sge(qpx, from->lkey, (uintptr_t)text, sizeof(text) - 1);
	need_0(ibv_wr_complete(qpx), "ibv_wr_complete (WRITE)");
	wait_for(dev.cq, 2);

	printf("\n");
	draw("sent", text, sizeof(text) - 1);
	draw("left", left, sizeof(left));
	printf("              '-p2-'                    '-p1--'\n");
	draw("right", right_half, sizeof(right_half));
	printf("                  '-piece 0'\n\n");
	right = !memcmp(right_half + 8, text, 10) && !memcmp(left + 30, text + 10, 7) &&
		!memcmp(left + 4, text + 17, 6);

	need_0(ibv_destroy_qp(owner), "ibv_destroy_qp");
	need_0(ibv_destroy_qp(writer), "ibv_destroy_qp");
	need_0(mlx5dv_destroy_mkey(mkey), "mlx5dv_destroy_mkey");
	need_0(ibv_dereg_mr(mr[0]), "ibv_dereg_mr");
	need_0(ibv_dereg_mr(mr[1]), "ibv_dereg_mr");
	need_0(ibv_dereg_mr(from), "ibv_dereg_mr");
	close_device(&dev);
	return verdict(right, "each piece holds its part of the message.");
}
