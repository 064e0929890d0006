/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* (g) A request that fails, and why.
 *
 * A WRITE of 4097 bytes meets a region of 4096. A ConnectX says "remote access error, vendor 0x88" and
 * nothing more. softmlx5 gives the same completion, and the reason: on stderr without being asked, and
 * through softmlx5.h to a program that asks. */
#include "common.h"
#include "softmlx5.h"

enum { REGION = 4096 };

int main(void)
{
	static char source[2 * REGION], target[2 * REGION];
	struct softmlx5_refusal why;
	struct device dev;
	struct ibv_mr *from, *to;
	struct ibv_qp *writer, *owner;
	struct ibv_qp_ex *qpx;
	struct ibv_wc wc;
	size_t written = 0;
	int right;

	memset(source, 'x', sizeof(source));
	open_device(&dev);
	from = register_memory(&dev, source, sizeof(source));
	to = register_memory(&dev, target, REGION);
	writer = create_rc(&dev, IBV_QP_EX_WITH_RDMA_WRITE, 0, 0);
	owner = create_rc(&dev, IBV_QP_EX_WITH_RDMA_WRITE, 0, 0);
	connect_rc(&dev, writer, owner->qp_num);
	connect_rc(&dev, owner, writer->qp_num);

	printf("A WRITE of %d bytes into a region of %d.\n\n", REGION + 1, REGION);
	fflush(stdout);
	qpx = ibv_qp_to_qp_ex(writer);
	ibv_wr_start(qpx);
	qpx->wr_id = 42;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qpx, to->rkey, (uintptr_t)target);
	ibv_wr_set_sge(qpx, from->lkey, (uintptr_t)source, REGION + 1);
	need_0(ibv_wr_complete(qpx), "ibv_wr_complete");
	show_wqe(writer, 0, 0);

	wc = wait_any(dev.cq);
	printf("\n  what a ConnectX says:\n");
	printf("    wr_id %" PRIu64 "  %s  vendor_err 0x%02x\n", wc.wr_id, ibv_wc_status_str(wc.status), wc.vendor_err);

	need_0(softmlx5_last_refusal(dev.ctx, 0, &why), "softmlx5_last_refusal");
	printf("\n  what softmlx5 adds (softmlx5_last_refusal):\n");
	printf("    check   %s\n    rule    %s\n    values  %s\n", why.name, why.rule, why.values);
	printf("    where   queue pair 0x%x, WQE %u, wr_id %" PRIu64 ", peer 0x%x\n", why.qp_num,
	       why.wqe_index, why.wr_id, why.peer_qp_num);
	while (written < sizeof(target) && target[written])
		written++;
	printf("\n  bytes written: %zu, none behind the region\n\n", written);
	right = wc.wr_id == 42 && wc.status == IBV_WC_REM_ACCESS_ERR && wc.vendor_err == 0x88 && written <= REGION &&
		why.status == IBV_WC_REM_ACCESS_ERR && strstr(why.values, "4096");

	need_0(ibv_destroy_qp(writer), "ibv_destroy_qp");
	need_0(ibv_destroy_qp(owner), "ibv_destroy_qp");
	need_0(ibv_dereg_mr(from), "ibv_dereg_mr");
	need_0(ibv_dereg_mr(to), "ibv_dereg_mr");
	close_device(&dev);
	return verdict(right, "it failed as a ConnectX would, and said which value was wrong.");
}
