/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: the extended poll reports the same completions as ibv_poll_cq, offers exactly what was asked for, and
 * keeps its lock and indices through start, next and end. */
#include "dv_world.h"

#define WC_ALL ((uint64_t)IBV_CREATE_CQ_SUP_WC_FLAGS)

static uint64_t wallclock(struct smx_dv_cq *cq, uint64_t ts)
{
	(void)cq;
	return ts * 1000;
}

static struct world *world_ex(uint64_t wc_flags)
{
	struct world *w = world_rc();

	w->cq.wc_flags = wc_flags;
	w->cq.wallclock_ns = wallclock;
	assert_int_equal(smx_dv_cq_fill_ops(&w->cq), 0);
	return w;
}

static int start(struct world *w)
{
	struct ibv_poll_cq_attr attr = { 0 };

	return ibv_start_poll(&w->cq.ex, &attr);
}

static void only_what_was_asked_for_is_offered(void **state)
{
	struct world *w = world_rc();
	struct ibv_cq_ex *ex = &w->cq.ex;
	(void)state;

	assert_int_equal(smx_dv_cq_fill_ops(&w->cq), 0);
	assert_non_null(ex->start_poll);
	assert_non_null(ex->read_opcode);
	assert_non_null(ex->read_vendor_err);
	assert_non_null(ex->read_wc_flags);
	assert_null(ex->read_byte_len);
	assert_null(ex->read_completion_ts);
	assert_null(ex->read_tm_info);
	w->cq.wc_flags = WC_ALL;
	assert_int_equal(smx_dv_cq_fill_ops(&w->cq), EOPNOTSUPP);	/* no wall clock here */
	w->cq.wallclock_ns = wallclock;
	assert_int_equal(smx_dv_cq_fill_ops(&w->cq), 0);
	assert_non_null(ex->read_byte_len);
	assert_non_null(ex->read_imm_data);
	assert_non_null(ex->read_qp_num);
	assert_non_null(ex->read_src_qp);
	assert_non_null(ex->read_slid);
	assert_non_null(ex->read_sl);
	assert_non_null(ex->read_dlid_path_bits);
	assert_non_null(ex->read_completion_ts);
	assert_non_null(ex->read_completion_wallclock_ns);
	assert_non_null(ex->read_cvlan);
	assert_non_null(ex->read_flow_tag);
	assert_non_null(ex->read_tm_info);
	w->cq.wc_flags = 1ull << 40;
	assert_int_equal(smx_dv_cq_fill_ops(&w->cq), EOPNOTSUPP);
	world_free(w);
}

static void a_receive_can_be_read_field_by_field(void **state)
{
	struct world *w = world_ex(WC_ALL);
	struct ibv_cq_ex *ex = &w->cq.ex;
	struct ibv_recv_wr wr = { .wr_id = 12 }, *bad;
	struct ibv_wc_tm_info tm = { .tag = 1, .priv = 1 };
	__be32 imm = htobe32(0xcafe0001);
	(void)state;

	assert_int_equal(smx_dv_post_recv(&w->qp.ex.qp_base, &wr, &bad), 0);
	world_cqe(w, SMX_CQE_RESP_SEND_IMM, &(struct smx_cqe64){ .byte_cnt = to_be32(77), .slid = to_be16(0x1234),
		  .flags_rqpn = to_be32(2u << 28 | 5u << 24 | 0xabcdef), .ml_path = 0x83, .vlan_info = to_be16(9),
		  .imm_inval_pkey = to_be32(0xcafe0001), .sop_drop_qpn = to_be32(WORLD_QPN),
		  .timestamp = to_be64(0x123456789abc) });
	assert_int_equal(start(w), 0);
	assert_int_equal(ex->wr_id, 12);
	assert_int_equal(ex->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_opcode(ex), IBV_WC_RECV);
	assert_int_equal(ibv_wc_read_vendor_err(ex), 0);
	assert_int_equal(ibv_wc_read_byte_len(ex), 77);
	assert_int_equal(ibv_wc_read_imm_data(ex), imm);
	assert_int_equal(ibv_wc_read_qp_num(ex), WORLD_QPN);
	assert_int_equal(ibv_wc_read_src_qp(ex), 0xabcdef);
	assert_int_equal(ibv_wc_read_wc_flags(ex), IBV_WC_WITH_IMM | IBV_WC_GRH);
	assert_int_equal(ibv_wc_read_slid(ex), 0x1234);
	assert_int_equal(ibv_wc_read_sl(ex), 5);
	assert_int_equal(ibv_wc_read_dlid_path_bits(ex), 3);
	assert_int_equal(ibv_wc_read_completion_ts(ex), 0x123456789abc);
	assert_int_equal(ibv_wc_read_completion_wallclock_ns(ex), 0x123456789abcull * 1000);
	assert_int_equal(ibv_wc_read_cvlan(ex), 9);
	assert_int_equal(ibv_wc_read_flow_tag(ex), WORLD_QPN);
	ibv_wc_read_tm_info(ex, &tm);
	assert_int_equal(tm.tag | tm.priv, 0);
	ibv_end_poll(ex);
	world_free(w);
}

static void an_invalidated_key_is_in_host_order(void **state)
{
	struct world *w = world_ex(WC_ALL);
	struct ibv_recv_wr wr = { 0 }, *bad;
	(void)state;

	assert_int_equal(smx_dv_post_recv(&w->qp.ex.qp_base, &wr, &bad), 0);
	world_cqe(w, SMX_CQE_RESP_SEND_INV, &(struct smx_cqe64){ .imm_inval_pkey = to_be32(0x1122),
		  .sop_drop_qpn = to_be32(WORLD_QPN) });
	assert_int_equal(start(w), 0);
	assert_int_equal(ibv_wc_read_wc_flags(&w->cq.ex), IBV_WC_WITH_INV);
	assert_int_equal(ibv_wc_read_invalidated_rkey(&w->cq.ex), 0x1122);
	ibv_end_poll(&w->cq.ex);
	world_free(w);
}

static void requests_and_errors_go_on_with_next(void **state)
{
	struct world *w = world_ex(WC_ALL);
	struct ibv_cq_ex *ex = &w->cq.ex;
	(void)state;

	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(world_write(w, 50 + i), 0);
	w->qp.sq.slot[1].wr_data = MLX5DV_WC_UMR;
	world_done(w, 0, SMX_OP_RDMA_WRITE);
	world_done(w, 1, SMX_OP_UMR);
	world_failed(w, SMX_CQE_REQ_ERR, 2, SMX_SYND_REMOTE_ACCESS, 0x88);
	assert_int_equal(start(w), 0);
	assert_int_equal(w->cq.lock.word, 1);	/* held until end */
	assert_int_equal(ibv_wc_read_opcode(ex), IBV_WC_RDMA_WRITE);
	assert_int_equal(ex->wr_id, 50);
	assert_int_equal(ibv_next_poll(ex), 0);
	assert_int_equal((uint32_t)ibv_wc_read_opcode(ex), MLX5DV_WC_UMR);
	assert_int_equal(ibv_next_poll(ex), 0);
	assert_int_equal(ex->status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_wc_read_vendor_err(ex), 0x88);
	assert_int_equal(ibv_wc_read_wc_flags(ex), 0);
	assert_int_equal(ibv_wc_read_qp_num(ex), WORLD_QPN);
	assert_int_equal(ex->wr_id, 52);
	assert_int_equal(ibv_next_poll(ex), ENOENT);
	assert_int_equal(be32_load_acquire(&w->cq_dbrec[0]), 0);	/* not before end: entries are being read */
	ibv_end_poll(ex);
	assert_int_equal(be32_load_acquire(&w->cq_dbrec[0]), 3);
	assert_int_equal(w->cq.lock.word, 0);
	assert_int_equal(w->qp.sq.tail, 3);
	world_free(w);
}

static bool device_completes(struct world *w)
{
	world_done(w, 0, SMX_OP_RDMA_WRITE);
	return true;
}

static void an_empty_start_turns_the_device_and_holds_no_lock(void **state)
{
	struct world *w = world_ex(0);
	(void)state;

	assert_int_equal(start(w), ENOENT);
	assert_int_equal(w->cq.lock.word, 0);
	assert_int_equal(w->idle_calls, 1);
	assert_int_equal(world_write(w, 3), 0);
	w->on_idle = device_completes;
	assert_int_equal(start(w), 0);
	assert_int_equal(w->cq.ex.wr_id, 3);
	ibv_end_poll(&w->cq.ex);
	world_free(w);
}

static void wrong_starts_fail_and_hold_no_lock(void **state)
{
	struct world *w = world_ex(0);
	struct ibv_poll_cq_attr attr = { .comp_mask = 1 };
	(void)state;

	assert_int_equal(ibv_start_poll(&w->cq.ex, &attr), EINVAL);
	assert_int_equal(w->cq.lock.word, 0);
	world_cqe(w, SMX_CQE_REQ, &(struct smx_cqe64){ .sop_drop_qpn = to_be32(0x777) });
	assert_int_equal(start(w), EINVAL);
	assert_int_equal(w->cq.lock.word, 0);
	assert_int_equal(be32_load_acquire(&w->cq_dbrec[0]), 1);
	assert_int_equal(start(w), ENOENT);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_what_was_asked_for_is_offered),
		cmocka_unit_test(a_receive_can_be_read_field_by_field),
		cmocka_unit_test(an_invalidated_key_is_in_host_order),
		cmocka_unit_test(requests_and_errors_go_on_with_next),
		cmocka_unit_test(an_empty_start_turns_the_device_and_holds_no_lock),
		cmocka_unit_test(wrong_starts_fail_and_hold_no_lock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
