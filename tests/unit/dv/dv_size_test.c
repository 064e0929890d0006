/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: rings are sized by the rules of libmlx5, what is granted is what fits, and capacities beyond the
 * format or the device are refused before anything is made. */
#include "dv_world.h"

#define OPS_SEND IBV_QP_EX_WITH_SEND
#define OPS_WRITE (OPS_SEND | IBV_QP_EX_WITH_RDMA_WRITE)
#define OPS_ATOMIC (OPS_WRITE | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static const struct row {
	const char *name;
	enum smx_dv_qp_kind kind;
	uint64_t send_ops, dv_ops;
	uint32_t wr, sge, inline_data;
	uint32_t bb, max_post, max_inline;
} rows[] = {
	{ "send only: one block",        SMX_DV_RC, OPS_SEND, 0, 10, 1, 0, 16, 16, 44 },
	{ "write: one segment more",     SMX_DV_RC, OPS_WRITE, 0, 10, 1, 0, 16, 16, 28 },
	{ "atomics: two more",           SMX_DV_RC, OPS_ATOMIC, 0, 10, 1, 0, 16, 16, 12 },
	{ "all: three blocks before",    SMX_DV_RC, OPS_RC, 0, 8, 4, 0, 32, 8, 60 },
	{ "umr alone sizes likewise",    SMX_DV_RC, OPS_SEND, MLX5DV_QP_EX_WITH_MR_LIST, 8, 4, 0, 32, 8, 60 },
	{ "raw and memcpy do not",       SMX_DV_RC, OPS_SEND, MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY,
	  8, 1, 0, 8, 8, 44 },
	{ "nothing asked for: no room", SMX_DV_RC, 0, 0, 8, 4, 0, 16, 8, 108 },
	{ "ud adds an address",          SMX_DV_UD, OPS_SEND, 0, 16, 4, 64, 64, 21, 124 },
	{ "dci adds an address",         SMX_DV_DCI, OPS_RC, 0, 8, 4, 64, 64, 12, 76 },
	{ "xrc adds a segment",          SMX_DV_XRC_INI, OPS_RC, 0, 8, 3, 0, 32, 8, 44 },
	{ "slack becomes requests",      SMX_DV_RC, OPS_RC, DV_OPS_RC, 16, 4, 200, 128, 18, 252 },
	{ "no data at all is not -4",    SMX_DV_RC, OPS_RC, 0, 8, 0, 0, 32, 10, 0 },
	{ "ud without data likewise",    SMX_DV_UD, OPS_SEND, 0, 8, 0, 0, 8, 8, 0 },
	{ "63 segments of SGEs",         SMX_DV_RC, OPS_SEND, 0, 2, 62, 0, 32, 2, 988 },
	{ "63 segments inline",          SMX_DV_RC, OPS_SEND, 0, 2, 1, 988, 32, 2, 988 },
	{ "the longest ring",            SMX_DV_RC, OPS_SEND, 0, 32768, 1, 0, 32768, 32768, 44 },
	{ "no send queue",               SMX_DV_RC, OPS_RC, 0, 0, 4, 100, 0, 0, 0 },
	{ "a DCT has none",              SMX_DV_DCT, 0, 0, 8, 4, 100, 0, 0, 0 },
};

static void send_rings_follow_the_rules(void **state)
{
	static struct smx_refusal_log log;
	(void)state;

	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct ibv_qp_cap cap = { .max_send_wr = r->wr,
					  .max_send_sge = r->sge,
					  .max_inline_data = r->inline_data };
		struct smx_dv_qp_sizes s;

		print_message("%s\n", r->name);
		assert_int_equal(smx_dv_qp_size(&log, r->kind, r->send_ops, r->dv_ops, false, false, &cap, &s), 0);
		assert_int_equal(s.sq_bb_count, r->bb);
		assert_int_equal(s.sq_max_post, r->max_post);
		assert_int_equal(s.sq_max_inline, r->max_inline);
		assert_int_equal(cap.max_send_wr, r->max_post);
		assert_int_equal(cap.max_inline_data, r->max_inline);
		assert_int_equal(s.total_bytes, (uint64_t)r->bb * 64);
	}
}

static const struct bad_row {
	const char *name;
	struct ibv_qp_cap cap;
	int err;
	enum smx_check check;
} bad_rows[] = {
	{ "63 SGEs need 64 segments", { .max_send_wr = 1, .max_send_sge = 63 }, ENOMEM, SMX_CHECK_SQ_DS },
	{ "inline data of 64 segments", { .max_send_wr = 1, .max_inline_data = 989 }, ENOMEM, SMX_CHECK_SQ_DS },
	{ "64 SGEs are beyond the device", { .max_send_wr = 1, .max_send_sge = 64 }, EINVAL, SMX_CHECK_QP_CAP },
	{ "inline data beyond the device", { .max_send_wr = 1, .max_inline_data = 1005 }, EINVAL, SMX_CHECK_QP_CAP },
	{ "inline data that wraps", { .max_send_wr = 1, .max_inline_data = 0xffffffff }, EINVAL, SMX_CHECK_QP_CAP },
	{ "SGEs that wrap", { .max_send_wr = 1, .max_send_sge = 0xffffffff }, EINVAL, SMX_CHECK_QP_CAP },
	{ "a ring too long", { .max_send_wr = 32769, .max_send_sge = 1 }, EINVAL, SMX_CHECK_QP_CAP },
	{ "requests that wrap", { .max_send_wr = 0xffffffff, .max_send_sge = 1 }, EINVAL, SMX_CHECK_QP_CAP },
	{ "receives too many", { .max_recv_wr = 32769, .max_recv_sge = 1 }, EINVAL, SMX_CHECK_QP_CAP },
	{ "receive SGEs too many", { .max_recv_wr = 1, .max_recv_sge = 33 }, EINVAL, SMX_CHECK_QP_CAP },
};

static void capacities_beyond_the_format_are_refused(void **state)
{
	struct world *w = world_rc();
	(void)state;

	for (size_t i = 0; i < SMX_COUNT(bad_rows); i++) {
		struct ibv_qp_cap cap = bad_rows[i].cap;
		struct smx_dv_qp_sizes s;

		print_message("%s\n", bad_rows[i].name);
		assert_int_equal(smx_dv_qp_size(&w->log, SMX_DV_RC, OPS_SEND, 0, false, false, &cap, &s),
				 bad_rows[i].err);
		assert_refused(w, bad_rows[i].check);
		assert_memory_equal(&cap, &bad_rows[i].cap, sizeof(cap));
	}
	world_free(w);
}

static const struct rq_row {
	uint32_t wr, sge;
	bool srq, sig;
	uint32_t count, stride, max_gs;
} rq_rows[] = {
	{ 5, 3, false, false, 8, 64, 4 },
	{ 1, 1, false, false, 4, 16, 1 },	/* at least a block: the send queue is behind */
	{ 1, 0, false, false, 4, 16, 1 },
	{ 4, 4, false, true, 4, 128, 7 },	/* a segment is the signature's */
	{ 16, 32, false, false, 16, 512, 32 },
	{ 0, 4, false, false, 0, 0, 0 },
	{ 16, 4, true, false, 0, 0, 0 },
};

static void receive_rings_follow_the_rules(void **state)
{
	static struct smx_refusal_log log;
	(void)state;

	for (size_t i = 0; i < SMX_COUNT(rq_rows); i++) {
		const struct rq_row *r = &rq_rows[i];
		struct ibv_qp_cap cap = { .max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = r->wr,
					  .max_recv_sge = r->sge };
		struct smx_dv_qp_sizes s;

		assert_int_equal(smx_dv_qp_size(&log, SMX_DV_RC, OPS_SEND, 0, r->srq, r->sig, &cap, &s), 0);
		assert_int_equal(s.rq_wqe_count, r->count);
		assert_int_equal(s.rq_stride_bytes, r->stride);
		assert_int_equal(s.rq_max_gs, r->max_gs);
		assert_int_equal(cap.max_recv_wr, r->count);
		assert_int_equal(cap.max_recv_sge, r->max_gs);
		assert_int_equal(s.sq_offset, (uint64_t)r->count * r->stride);
		assert_int_equal(s.sq_offset % SMX_WQE_BB, 0);
	}
}

static void srq_keeps_one_entry_for_itself(void **state)
{
	static const struct { uint32_t wr, sge, count, stride, wr_granted, sge_granted; } srqs[] = {
		{ 1, 1, 2, 32, 1, 1 }, { 3, 1, 4, 32, 3, 1 }, { 4, 1, 8, 32, 7, 1 }, { 100, 2, 128, 64, 127, 3 },
		{ 0, 0, 2, 32, 1, 1 }, { 32767, 31, 32768, 512, 32767, 31 },
	};
	struct world *w = world_rc();
	uint32_t count, stride;
	(void)state;

	for (size_t i = 0; i < SMX_COUNT(srqs); i++) {
		struct ibv_srq_attr attr = { .max_wr = srqs[i].wr, .max_sge = srqs[i].sge };

		assert_int_equal(smx_dv_srq_size(&w->log, &attr, &count, &stride), 0);
		assert_int_equal(count, srqs[i].count);
		assert_int_equal(stride, srqs[i].stride);
		assert_int_equal(attr.max_wr, srqs[i].wr_granted);
		assert_int_equal(attr.max_sge, srqs[i].sge_granted);
	}
	assert_int_equal(smx_dv_srq_size(&w->log, &(struct ibv_srq_attr){ .max_wr = 32768 }, &count, &stride), EINVAL);
	assert_refused(w, SMX_CHECK_QP_CAP);
	assert_int_equal(smx_dv_srq_size(&w->log,
					 &(struct ibv_srq_attr){ .max_wr = 1, .max_sge = 32 },
					 &count, &stride),
			 EINVAL);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_rings_follow_the_rules),
		cmocka_unit_test(capacities_beyond_the_format_are_refused),
		cmocka_unit_test(receive_rings_follow_the_rules),
		cmocka_unit_test(srq_keeps_one_entry_for_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
