/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* (f) The device copies memory, then sends the copy: mlx5dv_wr_memcpy() and IBV_SEND_FENCE.
 *
 * The send depends on the copy's result, so it carries a fence: it starts when the copy is done. Both
 * are posted at once. */
#include "common.h"

enum { BYTES = 1 << 20 };

int main(void)
{
	char *source = malloc(BYTES), *copy = calloc(1, BYTES), *peer = calloc(1, BYTES);
	struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH };
	struct device dev;
	struct ibv_mr *mr_source, *mr_copy, *mr_peer;
	struct ibv_qp *sender, *receiver;
	struct ibv_qp_ex *qpx;
	struct mlx5dv_qp_ex *mqpx;
	struct ibv_sge sge;
	struct ibv_recv_wr recv = { .wr_id = 3, .sg_list = &sge, .num_sge = 1 }, *bad;
	int right;

	open_device(&dev);
	need_0(mlx5dv_query_device(dev.ctx, &caps), "mlx5dv_query_device");
	for (int i = 0; i < BYTES; i++)
		source[i] = "0123456789abcdef"[i * 7 >> 4 & 15];
	mr_source = register_memory(&dev, source, BYTES);
	mr_copy = register_memory(&dev, copy, BYTES);
	mr_peer = register_memory(&dev, peer, BYTES);
	sender = create_rc(&dev, IBV_QP_EX_WITH_SEND, MLX5DV_QP_EX_WITH_MEMCPY, 0);
	receiver = create_rc(&dev, IBV_QP_EX_WITH_SEND, 0, 0);
	connect_rc(&dev, sender, receiver->qp_num);
	connect_rc(&dev, receiver, sender->qp_num);
	sge = (struct ibv_sge) { .addr = (uintptr_t)peer, .length = BYTES, .lkey = mr_peer->lkey };
	need_0(ibv_post_recv(receiver, &recv, &bad), "ibv_post_recv");

	printf("The device copies %d bytes (it can do %zu at once), then sends the copy.\n\n", BYTES,
	       caps.max_wr_memcpy_length);
	printf("  source  == memcpy, wr_id 1 ==>  copy  == send with fence, wr_id 2 ==>  peer\n\n");
	qpx = ibv_qp_to_qp_ex(sender);
	mqpx = mlx5dv_qp_ex_from_ibv_qp_ex(qpx);
	ibv_wr_start(qpx);
	qpx->wr_id = 1;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	mlx5dv_wr_memcpy(mqpx, mr_copy->lkey, (uintptr_t)copy, mr_source->lkey, (uintptr_t)source, BYTES);
	qpx->wr_id = 2;
	qpx->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
	ibv_wr_send(qpx);
	ibv_wr_set_sge(qpx, mr_copy->lkey, (uintptr_t)copy, BYTES);
	need_0(ibv_wr_complete(qpx), "ibv_wr_complete");

	show_wqe(sender, 0, 0);
	show_wqe(sender, 1, 0);
	printf("\n");
	wait_for(dev.cq, 1);
	wait_for(dev.cq, 2);
	wait_for(dev.recv_cq, 3);
	printf("\n  source  %.32s...\n  copy    %.32s...\n  peer    %.32s...\n\n", source, copy, peer);
	right = !memcmp(source, copy, BYTES) && !memcmp(source, peer, BYTES);

	need_0(ibv_destroy_qp(sender), "ibv_destroy_qp");
	need_0(ibv_destroy_qp(receiver), "ibv_destroy_qp");
	need_0(ibv_dereg_mr(mr_source), "ibv_dereg_mr");
	need_0(ibv_dereg_mr(mr_copy), "ibv_dereg_mr");
	need_0(ibv_dereg_mr(mr_peer), "ibv_dereg_mr");
	close_device(&dev);
	free(source);
	free(copy);
	free(peer);
	return verdict(right, "copy and peer equal the source, to the last byte.");
}
