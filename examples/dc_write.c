/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* (a) RDMA WRITE over DC: the example of mlx5dv_wr_post(3), completed.
 *
 * One DC initiator (DCI) writes to two DC targets (DCT). Nothing is connected: each request names its
 * target by address handle, DCT number and DC key. */
#include "common.h"

enum { KEY_A = 0x0a11ce, KEY_B = 0xb0b };

int main(void)
{
	char source[2][32] = { "first to A", "then to B" }, target[2][32] = { "", "" };
	struct device dev;
	struct ibv_mr *from, *to;
	struct ibv_srq *srq;
	struct ibv_qp *dct[2], *dci;
	struct ibv_qp_ex *qpx;
	struct mlx5dv_qp_ex *mqpx;
	struct ibv_ah *ah;
	const uint64_t key[2] = { KEY_A, KEY_B };
	int right;

	open_device(&dev);
	from = register_memory(&dev, source, sizeof(source));
	to = register_memory(&dev, target, sizeof(target));

	/* The passive side: two targets, both fed by one shared receive queue. */
	srq = create_srq(&dev);
	for (int i = 0; i < 2; i++)
		dct[i] = create_dct(&dev, srq, key[i]);

	/* The active side: one DCI, allowed to do RDMA WRITE. */
	dci = create_dci(&dev, IBV_QP_EX_WITH_RDMA_WRITE, 0);
	qpx = ibv_qp_to_qp_ex(dci);
	mqpx = mlx5dv_qp_ex_from_ibv_qp_ex(qpx);
	ah = create_ah(&dev);

	printf("One DC initiator writes to two targets; each request names its own.\n\n");
	printf("                  .-- wr_id 1 -->  DCT 0x%x  key 0x%" PRIx64 "\n", dct[0]->qp_num, key[0]);
	printf("  DCI 0x%x ----<\n", dci->qp_num);
	printf("                  '-- wr_id 2 -->  DCT 0x%x  key 0x%" PRIx64 "\n\n", dct[1]->qp_num, key[1]);

	/* Two requests in one batch: one doorbell. */
	ibv_wr_start(qpx);
	for (int i = 0; i < 2; i++) {
		qpx->wr_id = i + 1;
		qpx->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(qpx, to->rkey, (uintptr_t)target[i]);
		ibv_wr_set_sge(qpx, from->lkey, (uintptr_t)source[i], sizeof(source[i]));
		mlx5dv_wr_set_dc_addr(mqpx, ah, dct[i]->qp_num, key[i]);
	}
	need_0(ibv_wr_complete(qpx), "ibv_wr_complete");

	show_wqe(dci, 0, 1);
	printf("\n");
	wait_for(dev.cq, 1);
	wait_for(dev.cq, 2);
	printf("\n  memory of target A: \"%s\"\n  memory of target B: \"%s\"\n\n", target[0], target[1]);
	right = !memcmp(source, target, sizeof(source));

	need_0(ibv_destroy_ah(ah), "ibv_destroy_ah");
	need_0(ibv_destroy_qp(dci), "ibv_destroy_qp");
	for (int i = 0; i < 2; i++)
		need_0(ibv_destroy_qp(dct[i]), "ibv_destroy_qp");
	need_0(ibv_destroy_srq(srq), "ibv_destroy_srq");
	need_0(ibv_dereg_mr(from), "ibv_dereg_mr");
	need_0(ibv_dereg_mr(to), "ibv_dereg_mr");
	close_device(&dev);
	return verdict(right, "both targets hold what was sent to them.");
}
