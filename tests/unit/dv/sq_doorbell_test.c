/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: what a doorbell writes into the UAR. tests/oracle compares the bytes for random programs. */
#include "dv_world.h"

/* Is the request that was rung last, at block bb, whole in the UAR, or only its first 8 bytes? */
static bool is_whole_in_uar(struct world *w, uint32_t bb)
{
	const uint8_t *half = w->bf_reg + (w->qp.bf.offset ^ w->qp.bf.buf_bytes);
	bool whole = !memcmp(half, world_wqe(w, bb), 48);

	assert_memory_equal(half, world_wqe(w, bb), 8);
	if (!whole)
		assert_int_equal(half[8] | half[16] | half[40], 0);
	memset(w->bf_reg, 0, sizeof(w->bf_reg));
	return whole;
}

/* Where the program asks for it (MLX5_POST_SEND_PREFER_BF=0). */
static void only_inline_data_goes_to_the_uar_whole(void **state)
{
	uint8_t data[16] = "inline data";
	struct ibv_sge sge = { .addr = (uintptr_t)data, .length = sizeof(data), .lkey = 0x100 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct smx_dv_mkey key = { .dv.lkey = 0x300, .max_entries = 4 };
	struct world *w = world_rc();
	struct ibv_qp_ex *ex = &w->qp.ex;
	(void)state;

	for (int aborted = 1; aborted >= 0; aborted--) {
		ibv_wr_start(ex);
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(ex, 0x200, 0x1000);
		ibv_wr_set_inline_data(ex, data, sizeof(data));
		if (aborted)
			ibv_wr_abort(ex);
		else
			assert_int_equal(ibv_wr_complete(ex), 0);
		if (!aborted)
			assert_true(is_whole_in_uar(w, w->qp.sq.cur_post - 1));
		assert_int_equal(world_write(w, 1), 0);
		assert_false(is_whole_in_uar(w, w->qp.sq.cur_post - 1));
	}
	for (unsigned int inl = 0; inl < 4; inl++) {
		wr.send_flags = IBV_SEND_SIGNALED | (inl & 1 ? IBV_SEND_INLINE : 0);
		assert_int_equal(smx_dv_post_send(&ex->qp_base, &wr, &bad), 0);
		assert_int_equal(is_whole_in_uar(w, w->qp.sq.cur_post - 1), inl & 1);
	}
	world_free(w);
	w = world_rc();
	ibv_wr_start(&w->qp.ex);
	w->qp.ex.wr_flags = IBV_SEND_INLINE;
	mlx5dv_wr_mr_list(&w->qp.dv, &key.dv, IBV_ACCESS_LOCAL_WRITE, 1, &sge);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	assert_true(is_whole_in_uar(w, 0));
	ibv_wr_start(&w->qp.ex);
	ibv_wr_local_inv(&w->qp.ex, 1);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	assert_false(is_whole_in_uar(w, 3));
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_inline_data_goes_to_the_uar_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
