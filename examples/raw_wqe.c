/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* (e) A work queue entry built by hand, posted with mlx5dv_wr_raw_wqe().
 *
 * The program fills every field but the WQE index and the signature. Here: a SEND that gathers two
 * pieces. Its completion is IBV_WC_DRIVER2 whatever the opcode is. */
#include "common.h"

int main(void)
{
	struct {
		struct mlx5_wqe_ctrl_seg ctrl;
		struct mlx5_wqe_data_seg data[2];
	} wqe = { 0 };
	char out[] = "built  by hand", in[32] = "";
	struct device dev;
	struct ibv_mr *from, *to;
	struct ibv_qp *sender, *receiver;
	struct ibv_qp_ex *qpx;
	struct ibv_sge sge;
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc;
	int right;

	open_device(&dev);
	from = register_memory(&dev, out, sizeof(out));
	to = register_memory(&dev, in, sizeof(in));
	sender = create_rc(&dev, IBV_QP_EX_WITH_SEND, MLX5DV_QP_EX_WITH_RAW_WQE, 0);
	receiver = create_rc(&dev, IBV_QP_EX_WITH_SEND, 0, 0);
	connect_rc(&dev, sender, receiver->qp_num);
	connect_rc(&dev, receiver, sender->qp_num);
	sge = (struct ibv_sge) { .addr = (uintptr_t)in, .length = sizeof(in), .lkey = to->lkey };
	need_0(ibv_post_recv(receiver, &recv, &bad), "ibv_post_recv");

	printf("A SEND whose WQE the program wrote itself: three segments, two pieces of data.\n\n");
	mlx5dv_set_ctrl_seg(&wqe.ctrl, 0 /* ours: the driver sets the index */, MLX5_OPCODE_SEND, 0, sender->qp_num,
			    MLX5_WQE_CTRL_CQ_UPDATE, sizeof(wqe) / 16, 0, 0);
	mlx5dv_set_data_seg(&wqe.data[0], 6, from->lkey, (uintptr_t)out);
	mlx5dv_set_data_seg(&wqe.data[1], 8, from->lkey, (uintptr_t)out + 7);

	/* An ordinary request first, so that the index differs: 0 is taken. */
	qpx = ibv_qp_to_qp_ex(sender);
	need_0(ibv_post_recv(receiver, &recv, &bad), "ibv_post_recv");
	ibv_wr_start(qpx);
	qpx->wr_flags = 0;
	ibv_wr_send(qpx);
	ibv_wr_set_sge(qpx, from->lkey, (uintptr_t)out, 0);
	qpx->wr_id = 1;
	qpx->wr_flags = 0;	/* ignored for a raw WQE: its own bits count */
	mlx5dv_wr_raw_wqe(mlx5dv_qp_ex_from_ibv_qp_ex(qpx), &wqe);
	need_0(ibv_wr_complete(qpx), "ibv_wr_complete");

	printf("  as handed over, block 0: %08x ...\n", get32((uint8_t *)&wqe));
	show_wqe(sender, 1, 0);
	printf("\n");
	wc = wait_any(dev.cq);
	wait_for(dev.recv_cq, 2);
	wait_for(dev.recv_cq, 2);
	printf("  completion: wr_id %" PRIu64 "  %s  %s\n", wc.wr_id, ibv_wc_status_str(wc.status), wc_name(wc.opcode));
	printf("  received:   \"%s\"\n\n", in);
	right = wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_DRIVER2 && !strcmp(in, "built by hand");

	need_0(ibv_destroy_qp(sender), "ibv_destroy_qp");
	need_0(ibv_destroy_qp(receiver), "ibv_destroy_qp");
	need_0(ibv_dereg_mr(from), "ibv_dereg_mr");
	need_0(ibv_dereg_mr(to), "ibv_dereg_mr");
	close_device(&dev);
	return verdict(right, "the device executed it, index corrected, as IBV_WC_DRIVER2.");
}
