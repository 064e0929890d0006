/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: receives lie in their rings as the device reads them, full queues and wrong lists are refused without
 * a trace, and shared entries come back to the list. */
#include "dv_world.h"

static int post_recv(struct world *w, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return smx_dv_post_recv(&w->qp.ex.qp_base, wr, bad);
}

static const struct smx_wqe_data *recv_seg(const struct world *w, uint32_t index, uint32_t seg)
{
	return (const struct smx_wqe_data *)(w->qp.rq.buf + index * w->qp.rq.stride_bytes) + seg;
}

static void assert_seg(const struct smx_wqe_data *seg, uint32_t length, uint32_t lkey, uint64_t va)
{
	assert_int_equal(from_be32(seg->byte_count), length);
	assert_int_equal(from_be32(seg->lkey), lkey);
	assert_int_equal(from_be64(seg->va), va);
}

static void a_scatter_list_skips_empty_entries_and_ends_with_key_0x100(void **state)
{
	struct world *w = world_rc();	/* 4 entries a receive */
	struct ibv_sge sge[4] = { { 0x1000, 10, 1 }, { 0x2000, 0, 2 }, { 0x3000, 30, 3 }, { 0x4000, 40, 4 } };
	struct ibv_recv_wr wr[3] = { { .wr_id = 1, .sg_list = sge, .num_sge = 3, .next = &wr[1] },
				     { .wr_id = 2, .sg_list = sge, .num_sge = 4, .next = &wr[2] },
				     { .wr_id = 3 } }, *bad = NULL;
	(void)state;

	memset(w->qp.rq.buf, 0xee, 4 * 64);
	assert_int_equal(post_recv(w, wr, &bad), 0);
	assert_seg(recv_seg(w, 0, 0), 10, 1, 0x1000);
	assert_seg(recv_seg(w, 0, 1), 30, 3, 0x3000);
	assert_seg(recv_seg(w, 0, 2), 0, SMX_LKEY_END, 0);
	assert_seg(recv_seg(w, 1, 2), 40, 4, 0x4000);
	assert_seg(recv_seg(w, 1, 3), 0, SMX_LKEY_END, 0);
	assert_seg(recv_seg(w, 2, 0), 0, SMX_LKEY_END, 0);
	assert_int_equal(be32_load_acquire(&w->qp_dbrec[SMX_DBREC_RCV]), 3);
	assert_int_equal(w->rung_rq, 1);
	assert_int_equal(w->qp.rq.wr_id[1], 2);
	world_free(w);
}

static void a_full_list_has_no_end_mark(void **state)
{
	struct world *w = world_rc();
	struct ibv_sge sge[4] = { { 1, 1, 1 }, { 2, 2, 2 }, { 3, 3, 3 }, { 4, 4, 4 } };
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 4 }, *bad;
	(void)state;

	memset(w->qp.rq.buf, 0xee, 4 * 64);
	assert_int_equal(post_recv(w, &wr, &bad), 0);
	assert_seg(recv_seg(w, 0, 3), 4, 4, 4);
	assert_int_equal(((const uint8_t *)recv_seg(w, 1, 0))[0], 0xee);
	world_free(w);
}

static void wrong_receives_are_refused(void **state)
{
	struct world *w = world_rc();
	struct ibv_sge sge[5] = { { 1, 0x80000000, 1 } };
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 5 }, *bad = NULL;
	(void)state;

	assert_int_equal(post_recv(w, &wr, &bad), EINVAL);
	assert_refused(w, SMX_CHECK_POST_RECV_SGE);
	assert_ptr_equal(bad, &wr);
	wr.num_sge = -1;
	assert_int_equal(post_recv(w, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	assert_int_equal(post_recv(w, &wr, &bad), EINVAL);
	assert_refused(w, SMX_CHECK_POST_SGE_LENGTH);
	sge[0].length = 1;
	w->qp.ex.qp_base.state = IBV_QPS_RESET;
	assert_int_equal(post_recv(w, &wr, &bad), EINVAL);
	assert_refused(w, SMX_CHECK_POST_RECV_STATE);
	w->qp.ex.qp_base.state = IBV_QPS_INIT;
	assert_int_equal(w->qp.rq.head, 0);
	assert_int_equal(w->rung_rq, 0);
	assert_int_equal(post_recv(w, &wr, &bad), 0);
	world_free(w);
}

static void a_full_receive_queue_refuses_until_a_completion(void **state)
{
	struct world *w = world_rc();
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_wc wc;
	(void)state;

	for (uint64_t i = 0; i < 0x20000; i++) {	/* past the 16 bits of the doorbell record */
		wr.wr_id = i;
		assert_int_equal(post_recv(w, &wr, &bad), 0);
		if (i < 3)
			continue;
		if (i < 20) {
			wr.wr_id = 999;
			assert_int_equal(post_recv(w, &wr, &bad), ENOMEM);
			assert_refused(w, SMX_CHECK_POST_RQ_FULL);
		}
		world_cqe(w, SMX_CQE_RESP_SEND, &(struct smx_cqe64){ .sop_drop_qpn = to_be32(WORLD_QPN),
			  .wqe_counter = to_be16((uint16_t)(i - 3)) });
		assert_int_equal(world_poll(w, 1, &wc), 1);
		assert_int_equal(wc.wr_id, i - 3);
	}
	assert_int_equal(be32_load_acquire(&w->qp_dbrec[SMX_DBREC_RCV]), 0);
	world_free(w);
}

static void a_signed_receive_starts_behind_its_signature(void **state)
{
	struct world *w = world_rc();
	struct ibv_sge sge = { 0x1000, 10, 1 };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	uint8_t x = 0, want;
	(void)state;

	w->qp.wq_sig = true;
	w->qp.rq.max_gs = 3;
	assert_int_equal(post_recv(w, &wr, &bad), 0);
	assert_seg(recv_seg(w, 0, 1), 10, 1, 0x1000);
	assert_seg(recv_seg(w, 0, 2), 0, SMX_LKEY_END, 0);
	for (int i = 0; i < 32; i++)
		x ^= w->qp.rq.buf[i];
	want = (uint8_t)(0xff ^ 0x12 ^ 0x34);	/* over the entries, the QP number and index 0 */
	assert_int_equal(x, want);
	world_free(w);
}

static void receives_of_a_list_are_signed_with_the_index_of_the_first(void **state)
{
	struct world *w = world_rc();
	struct ibv_sge sge = { 0x1000, 10, 1 };
	struct ibv_recv_wr wr[2] = { { .sg_list = &sge, .num_sge = 1, .next = &wr[1] },
				     { .sg_list = &sge, .num_sge = 1 } }, *bad;
	(void)state;

	w->qp.wq_sig = true;
	w->qp.rq.max_gs = 3;
	assert_int_equal(post_recv(w, wr, &bad), 0);
	assert_memory_equal(recv_seg(w, 0, 0), recv_seg(w, 1, 0), SMX_WQE_DS);
	world_free(w);
}

/* Shared receive queue */

static int post_srq(struct world *w, uint64_t wr_id, struct ibv_sge *sge, int n)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = sge, .num_sge = n }, *bad = NULL;
	int err = smx_dv_post_srq_recv(&w->srq.ibv, &wr, &bad);

	assert_ptr_equal(bad, err ? &wr : NULL);
	return err;
}

static struct smx_wqe_srq_next *srq_entry(struct world *w, uint32_t i)
{
	return (struct smx_wqe_srq_next *)(w->srq_buf + i * w->srq.stride_bytes);
}

static void srq_entries_are_linked_and_keep_empty_entries(void **state)
{
	struct world *w = world_rc();
	struct ibv_sge sge[3] = { { 0x1000, 10, 1 }, { 0x2000, 0, 2 }, { 0x3000, 30, 3 } };
	const struct smx_wqe_data *seg;
	(void)state;

	world_srq(w, 3, 2);
	assert_int_equal(w->srq.wqe_count, 4);
	assert_int_equal(w->srq.max_gs, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(from_be16(srq_entry(w, i)->next_wqe_index), i + 1);
	assert_int_equal(post_srq(w, 7, sge, 2), 0);
	seg = (const struct smx_wqe_data *)(srq_entry(w, 0) + 1);
	assert_seg(&seg[0], 10, 1, 0x1000);
	assert_seg(&seg[1], 0, 2, 0x2000);
	assert_seg(&seg[2], 0, SMX_LKEY_END, 0);
	assert_int_equal(post_srq(w, 8, sge, 3), 0);
	assert_int_equal(be32_load_acquire(w->srq_dbrec), 2);
	assert_int_equal(w->rung_srq, 2);
	assert_int_equal(post_srq(w, 9, sge, -1), EINVAL);
	assert_refused(w, SMX_CHECK_POST_RECV_SGE);
	assert_int_equal(post_srq(w, 9, sge, 4), EINVAL);
	assert_refused(w, SMX_CHECK_POST_RECV_SGE);
	sge[0].length = 0x80000000;
	assert_int_equal(post_srq(w, 9, sge, 1), EINVAL);
	assert_refused(w, SMX_CHECK_POST_SGE_LENGTH);
	assert_int_equal(post_srq(w, 9, NULL, 0), 0);
	assert_int_equal(post_srq(w, 10, NULL, 0), ENOMEM);
	assert_refused(w, SMX_CHECK_POST_RQ_FULL);
	world_free(w);
}

static void srq_counts_each_receive_of_a_list(void **state)
{
	struct world *w = world_rc();
	struct ibv_recv_wr wr[4] = { { .next = &wr[1] }, { .next = &wr[2] }, { .next = &wr[3] } }, *bad = NULL;
	(void)state;

	world_srq(w, 3, 1);
	assert_int_equal(smx_dv_post_srq_recv(&w->srq.ibv, wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[3]);
	assert_int_equal(be32_load_acquire(w->srq_dbrec), 3);
	assert_int_equal(w->rung_srq, 1);
	world_free(w);
}

/* The device takes entries along the links; the driver gets them back in the order of completion. Both ends
 * are played here for a long time, with completions out of order. */
static void srq_entries_come_back_in_any_order(void **state)
{
	enum { SLOTS = 7 };
	struct world *w = world_rc();
	uint16_t taken[SLOTS];
	uint64_t posted = 0, done = 0, seen[SLOTS];
	uint32_t walker = 0, held = 0, random = 1;
	struct ibv_wc wc;
	(void)state;

	world_srq(w, SLOTS, 1);
	assert_int_equal(w->srq.wqe_count, SLOTS + 1);
	while (done < 5000) {
		while (!post_srq(w, posted, NULL, 0))
			posted++;
		assert_int_equal(posted - done, SLOTS);
		while (held < SLOTS) {
			taken[held] = (uint16_t)walker;
			seen[held++] = w->srq.wr_id[walker];
			walker = from_be16(srq_entry(w, walker)->next_wqe_index);
		}
		for (uint32_t n = 0; n < 3; n++) {
			uint32_t pick;

			random = random * 1103515245 + 12345;
			pick = random >> 16 & 0x7fff;
			pick %= held;
			world_cqe(w, SMX_CQE_RESP_SEND, &(struct smx_cqe64){ .srqn_uidx = to_be32(WORLD_SRQN),
				  .wqe_counter = to_be16(taken[pick]), .sop_drop_qpn = to_be32(0x999) });
			assert_int_equal(world_poll(w, 1, &wc), 1);
			assert_int_equal(wc.wr_id, seen[pick]);
			taken[pick] = taken[--held];
			seen[pick] = seen[held];
			done++;
		}
	}
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_scatter_list_skips_empty_entries_and_ends_with_key_0x100),
		cmocka_unit_test(a_full_list_has_no_end_mark),
		cmocka_unit_test(wrong_receives_are_refused),
		cmocka_unit_test(a_full_receive_queue_refuses_until_a_completion),
		cmocka_unit_test(a_signed_receive_starts_behind_its_signature),
		cmocka_unit_test(receives_of_a_list_are_signed_with_the_index_of_the_first),
		cmocka_unit_test(srq_entries_are_linked_and_keep_empty_entries),
		cmocka_unit_test(srq_counts_each_receive_of_a_list),
		cmocka_unit_test(srq_entries_come_back_in_any_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
