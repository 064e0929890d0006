/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* (b) DCI streams: one initiator, several flows that do not wait for each other.
 *
 * A message to a target that has no receive posted waits (receiver not ready). On a plain DCI all
 * that was posted behind it would wait too. Here it stands in a stream of its own. */
#include "common.h"

enum { KEY = 0x5eed, STREAMS_LOG = 2 };

static struct ibv_qp *dci;
static struct ibv_ah *ah;

static void send_text(struct ibv_mr *mr, char *text, uint64_t wr_id, uint32_t dctn, uint16_t stream)
{
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(dci);

	ibv_wr_start(qpx);
	qpx->wr_id = wr_id;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qpx);
	ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)text, 16);
	mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(qpx), ah, dctn, KEY, stream);
	need_0(ibv_wr_complete(qpx), "ibv_wr_complete");
	printf("  posted:     wr_id %" PRIu64 "  stream %u  \"%s\" to DCT 0x%x\n", wr_id, stream, text, dctn);
}

static void post_receive(struct ibv_srq *srq, struct ibv_mr *mr, char *where)
{
	struct ibv_sge sge = { .addr = (uintptr_t)where, .length = 16, .lkey = mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad;

	need_0(ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
}

int main(void)
{
	static char out[4][16] = { "one", "two", "three", "four" }, in[4][16];
	struct device dev;
	struct ibv_mr *from, *to;
	struct ibv_srq *slow_srq, *quick_srq;
	struct ibv_qp *slow, *quick;
	int right;

	open_device(&dev);
	from = register_memory(&dev, out, sizeof(out));
	to = register_memory(&dev, in, sizeof(in));
	slow_srq = create_srq(&dev);
	quick_srq = create_srq(&dev);
	slow = create_dct(&dev, slow_srq, KEY);
	quick = create_dct(&dev, quick_srq, KEY);
	dci = create_dci(&dev, IBV_QP_EX_WITH_SEND, STREAMS_LOG);
	ah = create_ah(&dev);

	printf("DCI 0x%x has %d streams. DCT 0x%x is slow: it has no receive posted yet.\n\n", dci->qp_num,
	       1 << STREAMS_LOG, slow->qp_num);
	post_receive(quick_srq, to, in[1]);
	post_receive(quick_srq, to, in[2]);
	send_text(from, out[0], 1, slow->qp_num, 1);	/* waits: the target is not ready */
	send_text(from, out[1], 2, quick->qp_num, 2);	/* another stream: overtakes */
	send_text(from, out[2], 3, quick->qp_num, 2);	/* same stream as 2: stays behind it */
	send_text(from, out[3], 4, slow->qp_num, 1);	/* same stream as 1: stays behind it */
	printf("\n");
	wait_for(dev.cq, 2);
	wait_for(dev.cq, 3);
	printf("\n  Stream 2 is done while stream 1 waits. Now the slow target posts its receives:\n\n");
	post_receive(slow_srq, to, in[0]);
	post_receive(slow_srq, to, in[3]);
	wait_for(dev.cq, 1);
	wait_for(dev.cq, 4);
	printf("\n  received:");
	for (int i = 0; i < 4; i++) {
		wait_any(dev.recv_cq);
		printf("  \"%s\"", in[i]);
	}
	printf("\n\n");
	right = !memcmp(in, out, sizeof(in));

	need_0(ibv_destroy_ah(ah), "ibv_destroy_ah");
	need_0(ibv_destroy_qp(dci), "ibv_destroy_qp");
	need_0(ibv_destroy_qp(slow), "ibv_destroy_qp");
	need_0(ibv_destroy_qp(quick), "ibv_destroy_qp");
	need_0(ibv_destroy_srq(slow_srq), "ibv_destroy_srq");
	need_0(ibv_destroy_srq(quick_srq), "ibv_destroy_srq");
	need_0(ibv_dereg_mr(from), "ibv_dereg_mr");
	need_0(ibv_dereg_mr(to), "ibv_dereg_mr");
	close_device(&dev);
	return verdict(right, "in order within a stream, independent between streams.");
}
