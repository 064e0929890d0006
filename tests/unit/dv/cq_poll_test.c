/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: each CQE that the device can write becomes the right work completion, finds its request, frees its
 * place, and leaves the consumer index where the device looks for it. */
#include "dv_world.h"

#include <sys/mman.h>

#include "base/guard.h"

/* Requester: what the WQE's opcode says, or the slot where that is the driver's to know. */
static const struct req_row {
	uint8_t op;
	uint32_t wr_data;
	uint32_t opcode, byte_len;
} req_rows[] = {
	{ SMX_OP_SEND, 0, IBV_WC_SEND, 0 },
	{ SMX_OP_SEND_IMM, 0, IBV_WC_SEND, 0 },
	{ SMX_OP_SEND_INVAL, 0, IBV_WC_SEND, 0 },
	{ SMX_OP_RDMA_WRITE, 0, IBV_WC_RDMA_WRITE, 0 },
	{ SMX_OP_RDMA_WRITE_IMM, 0, IBV_WC_RDMA_WRITE, 0 },
	{ SMX_OP_RDMA_READ, 0, IBV_WC_RDMA_READ, 4096 },
	{ SMX_OP_ATOMIC_CS, 0, IBV_WC_COMP_SWAP, 8 },
	{ SMX_OP_ATOMIC_FA, 0, IBV_WC_FETCH_ADD, 8 },
	{ SMX_OP_TSO, 0, IBV_WC_TSO, 0 },
	{ SMX_OP_UMR, MLX5DV_WC_UMR, MLX5DV_WC_UMR, 0 },
	{ SMX_OP_UMR, IBV_WC_BIND_MW, IBV_WC_BIND_MW, 0 },
	{ SMX_OP_UMR, IBV_WC_LOCAL_INV, IBV_WC_LOCAL_INV, 0 },
	{ SMX_OP_MMO, MLX5DV_WC_MEMCPY, MLX5DV_WC_MEMCPY, 0 },
	{ SMX_OP_RDMA_WRITE, MLX5DV_WC_RAW_WQE, MLX5DV_WC_RAW_WQE, 0 },
	{ SMX_OP_NOP, MLX5DV_WC_RAW_WQE, MLX5DV_WC_RAW_WQE, 0 },
	{ SMX_OP_ATOMIC_MASKED_CS, MLX5DV_WC_RAW_WQE, MLX5DV_WC_RAW_WQE, 0 },
};

static void requests_complete_by_their_opcode(void **state)
{
	struct world *w = world_rc();
	struct ibv_wc wc;
	(void)state;

	for (size_t i = 0; i < SMX_COUNT(req_rows); i++) {
		const struct req_row *r = &req_rows[i];
		uint32_t bb = w->qp.sq.cur_post;

		assert_int_equal(world_write(w, 100 + i), 0);
		w->qp.sq.slot[bb & (w->qp.sq.bb_count - 1)].wr_data = r->wr_data;
		world_cqe(w, SMX_CQE_REQ, &(struct smx_cqe64){ .byte_cnt = to_be32(4096),
			  .sop_drop_qpn = to_be32((uint32_t)r->op << 24 | WORLD_QPN),
			  .wqe_counter = to_be16((uint16_t)bb) });
		memset(&wc, 0xee, sizeof(wc));
		assert_int_equal(world_poll(w, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, r->opcode);
		assert_int_equal(wc.byte_len, r->byte_len);
		assert_int_equal(wc.wr_id, 100 + i);
		assert_int_equal(wc.qp_num, WORLD_QPN);
		assert_int_equal(wc.vendor_err, 0);
		assert_int_equal(w->qp.sq.tail, i + 1);
	}
	world_free(w);
}

/* Responder: immediate data, invalidated key, address fields. */
static const struct resp_row {
	uint8_t op;
	uint32_t opcode;
	unsigned int flags;
} resp_rows[] = {
	{ SMX_CQE_RESP_SEND, IBV_WC_RECV, 0 },
	{ SMX_CQE_RESP_SEND_IMM, IBV_WC_RECV, IBV_WC_WITH_IMM },
	{ SMX_CQE_RESP_SEND_INV, IBV_WC_RECV, IBV_WC_WITH_INV },
	{ SMX_CQE_RESP_WR_IMM, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM },
};

static void post_recv(struct world *w, uint64_t wr_id, struct ibv_sge *sge, int n)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = sge, .num_sge = n }, *bad;

	assert_int_equal(smx_dv_post_recv(&w->qp.ex.qp_base, &wr, &bad), 0);
}

static void receives_complete_with_what_came_along(void **state)
{
	static const uint8_t imm[4] = { 1, 2, 3, 4 };
	struct world *w = world_rc();
	struct ibv_wc wc;
	(void)state;

	for (uint32_t i = 0; i < 8; i++) {
		const struct resp_row *r = &resp_rows[i % 4];
		bool grh = i >= 4;

		post_recv(w, 200 + i, NULL, 0);
		world_cqe(w, r->op, &(struct smx_cqe64){ .byte_cnt = to_be32(77), .slid = to_be16(0x1234),
			  .flags_rqpn = to_be32((grh ? 1u << 28 : 0) | 5u << 24 | 0xabcdef), .ml_path = 0x83,
			  .imm_inval_pkey = to_be32(0x01020304), .sop_drop_qpn = to_be32(WORLD_QPN),
			  .wqe_counter = to_be16((uint16_t)i) });
		memset(&wc, 0xee, sizeof(wc));
		assert_int_equal(world_poll(w, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, r->opcode);
		assert_int_equal(wc.wc_flags, r->flags | (grh ? IBV_WC_GRH : 0));
		assert_int_equal(wc.wr_id, 200 + i);
		assert_int_equal(wc.byte_len, 77);
		assert_int_equal(wc.src_qp, 0xabcdef);
		assert_int_equal(wc.sl, 5);
		assert_int_equal(wc.slid, 0x1234);
		assert_int_equal(wc.dlid_path_bits, 3);
		if (r->flags & IBV_WC_WITH_IMM)
			assert_memory_equal(&wc.imm_data, imm, 4);
		if (r->flags & IBV_WC_WITH_INV)
			assert_int_equal(wc.invalidated_rkey, 0x01020304);
		assert_int_equal(w->qp.rq.tail, i + 1);
	}
	world_free(w);
}

static const struct { uint8_t syndrome; enum ibv_wc_status status; } syndromes[] = {
	{ 0x01, IBV_WC_LOC_LEN_ERR }, { 0x02, IBV_WC_LOC_QP_OP_ERR }, { 0x04, IBV_WC_LOC_PROT_ERR },
	{ 0x05, IBV_WC_WR_FLUSH_ERR }, { 0x06, IBV_WC_MW_BIND_ERR }, { 0x10, IBV_WC_BAD_RESP_ERR },
	{ 0x11, IBV_WC_LOC_ACCESS_ERR }, { 0x12, IBV_WC_REM_INV_REQ_ERR }, { 0x13, IBV_WC_REM_ACCESS_ERR },
	{ 0x14, IBV_WC_REM_OP_ERR }, { 0x15, IBV_WC_RETRY_EXC_ERR }, { 0x16, IBV_WC_RNR_RETRY_EXC_ERR },
	{ 0x22, IBV_WC_REM_ABORT_ERR }, { 0x00, IBV_WC_GENERAL_ERR }, { 0x03, IBV_WC_GENERAL_ERR },
	{ 0x23, IBV_WC_GENERAL_ERR }, { 0xff, IBV_WC_GENERAL_ERR },
};

static void errors_carry_status_vendor_code_and_request(void **state)
{
	struct world *w = world_rc();
	struct ibv_wc wc;
	(void)state;

	for (uint32_t i = 0; i < SMX_COUNT(syndromes); i++) {
		uint32_t bb = w->qp.sq.cur_post;

		assert_int_equal(world_write(w, 300 + i), 0);
		post_recv(w, 400 + i, NULL, 0);
		world_failed(w, SMX_CQE_REQ_ERR, bb, syndromes[i].syndrome, 0x88);
		world_failed(w, SMX_CQE_RESP_ERR, i, syndromes[i].syndrome, 0x32);
		assert_int_equal(world_poll(w, 1, &wc), 1);
		assert_int_equal(wc.status, syndromes[i].status);
		assert_int_equal(wc.vendor_err, 0x88);
		assert_int_equal(wc.wr_id, 300 + i);
		assert_int_equal(wc.qp_num, WORLD_QPN);
		assert_int_equal(wc.wc_flags, 0);
		assert_int_equal(world_poll(w, 1, &wc), 1);
		assert_int_equal(wc.status, syndromes[i].status);
		assert_int_equal(wc.vendor_err, 0x32);
		assert_int_equal(wc.wr_id, 400 + i);
		assert_int_equal(w->qp.sq.tail, i + 1);
		assert_int_equal(w->qp.rq.tail, i + 1);
	}
	world_free(w);
}

/* A signaled request completes the unsignaled ones before it. */
static void a_completion_frees_all_before_it(void **state)
{
	struct world *w = world_rc();
	struct ibv_wc wc;
	(void)state;

	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(world_write(w, i), 0);
	world_done(w, 3, SMX_OP_RDMA_WRITE);
	assert_int_equal(world_poll(w, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 3);
	assert_int_equal(w->qp.sq.tail, 4);
	assert_int_equal(w->qp.sq.tail_bb, 4);
	world_free(w);
}

/* Entries change owner each round; what is not written is not seen. */
static void rounds_of_the_ring_are_told_apart(void **state)
{
	(void)state;

	for (uint32_t cqe_bytes = 64; cqe_bytes <= 128; cqe_bytes += 64) {
		struct world *w = world_rc();
		struct ibv_wc wc[WORLD_CQES];
		uint64_t posted = 0, polled = 0;

		world_cq(w, cqe_bytes);
		for (uint32_t n = 1; n <= 100; n++) {
			uint32_t burst = n % 6 + 1;

			for (uint32_t i = 0; i < burst; i++) {
				uint32_t bb = w->qp.sq.cur_post;

				assert_int_equal(world_write(w, posted++), 0);
				world_done(w, bb & 0xffff, SMX_OP_RDMA_WRITE);
			}
			assert_int_equal(world_poll(w, WORLD_CQES, wc), burst);
			for (uint32_t i = 0; i < burst; i++)
				assert_int_equal(wc[i].wr_id, polled++);
			assert_int_equal(world_poll(w, WORLD_CQES, wc), 0);
			assert_int_equal(be32_load_acquire(&w->cq_dbrec[SMX_CQ_DBREC_CI]), polled);
		}
		world_free(w);
	}
}

static void no_more_than_asked_for(void **state)
{
	struct world *w = world_rc();
	struct ibv_wc wc[4];
	(void)state;

	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(world_write(w, i), 0);
		world_done(w, i, SMX_OP_RDMA_WRITE);
	}
	assert_int_equal(world_poll(w, 0, wc), 0);
	assert_int_equal(world_poll(w, 3, wc), 3);
	assert_int_equal(w->idle_calls, 0);
	assert_int_equal(be32_load_acquire(&w->cq_dbrec[SMX_CQ_DBREC_CI]), 3);
	assert_int_equal(world_poll(w, 3, wc), 1);
	assert_int_equal(wc[0].wr_id, 3);
	world_free(w);
}

static bool device_completes(struct world *w)
{
	world_done(w, 0, SMX_OP_RDMA_WRITE);
	return true;
}

static bool device_was_busy_in_vain(struct world *w)
{
	(void)w;
	return true;
}

static void an_empty_queue_turns_the_device_once(void **state)
{
	struct world *w = world_rc();
	struct ibv_wc wc;
	(void)state;

	assert_int_equal(world_write(w, 5), 0);
	assert_int_equal(world_poll(w, 1, &wc), 0);
	assert_int_equal(w->idle_calls, 1);
	w->on_idle = device_was_busy_in_vain;
	assert_int_equal(world_poll(w, 1, &wc), 0);
	assert_int_equal(w->idle_calls, 2);
	w->on_idle = device_completes;
	assert_int_equal(world_poll(w, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(w->idle_calls, 3);
	world_free(w);
}

/* Where receives come from: the queue pair's SRQ, or the SRQ that the CQE names when the queue pair is not ours
 * or a target of many. */
static void shared_receives_are_found_by_queue_pair_or_by_number(void **state)
{
	static const struct { uint32_t qpn; bool of_qp, no_rq, unlisted; } cases[] = {
		{ WORLD_QPN, true, true, false }, { WORLD_QPN, true, true, true }, { 0x9999, false, false, false },
		{ WORLD_QPN, false, true, false },
	};
	(void)state;

	for (size_t i = 0; i < SMX_COUNT(cases); i++) {
		for (int error = 0; error < 2; error++) {
			struct world *w = world_rc();
			struct ibv_recv_wr wr = { .wr_id = 42 }, *bad;
			struct smx_err_cqe e = { .srqn = to_be32(WORLD_SRQN), .syndrome = SMX_SYND_WR_FLUSH,
						 .vendor_err_synd = 0xf9, .s_wqe_opcode_qpn = to_be32(cases[i].qpn) };
			struct ibv_wc wc;

			world_srq(w, 3, 1);
			assert_int_equal(smx_dv_post_srq_recv(&w->srq.ibv, &wr, &bad), 0);
			if (cases[i].of_qp)
				w->qp.srq = &w->srq;
			if (cases[i].unlisted)	/* an SRQ of another context */
				assert_int_equal(smx_dv_table_set(&w->srqs, WORLD_SRQN, NULL), 0);
			if (cases[i].no_rq)
				w->qp.rq.wqe_count = 0;
			world_cqe(w, error ? SMX_CQE_RESP_ERR : SMX_CQE_RESP_SEND,
				  error ? (const struct smx_cqe64 *)(const void *)&e :
				  &(struct smx_cqe64){ .srqn_uidx = to_be32(WORLD_SRQN),
						       .sop_drop_qpn = to_be32(cases[i].qpn) });
			assert_int_equal(world_poll(w, 1, &wc), 1);
			assert_int_equal(wc.status, error ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, 42);
			assert_int_equal(wc.qp_num, cases[i].qpn);
			assert_int_equal(w->srq.tail, 0);	/* the entry is the last of the free list */
			world_free(w);
		}
	}
}

static void a_cqe_of_nothing_is_an_error_not_a_crash(void **state)
{
	struct world *w = world_rc();
	struct ibv_wc wc[3];
	(void)state;

	assert_int_equal(world_write(w, 1), 0);
	world_done(w, 0, SMX_OP_RDMA_WRITE);
	world_cqe(w, SMX_CQE_REQ, &(struct smx_cqe64){ .sop_drop_qpn = to_be32(0x777) });
	world_cqe(w, SMX_CQE_RESP_SEND, &(struct smx_cqe64){ .sop_drop_qpn = to_be32(0x777),
		  .srqn_uidx = to_be32(0x888) });
	assert_int_equal(world_poll(w, 3, wc), 1);	/* the good one is not lost */
	assert_int_equal(wc[0].wr_id, 1);
	assert_true(world_poll(w, 3, wc) < 0);
	assert_true(world_poll(w, 3, wc) < 0);
	assert_int_equal(world_poll(w, 3, wc), 0);
	world_srq(w, 3, 1);
	world_cqe(w, SMX_CQE_RESP_SEND, &(struct smx_cqe64){ .sop_drop_qpn = to_be32(0x777),
		  .srqn_uidx = to_be32(WORLD_SRQN), .wqe_counter = to_be16(4) });
	assert_true(world_poll(w, 3, wc) < 0);
	world_cqe(w, SMX_CQE_RESIZE_CQ, &(struct smx_cqe64){ 0 });
	assert_int_equal(world_poll(w, 3, wc), 0);
	assert_int_equal(be32_load_acquire(&w->cq_dbrec[SMX_CQ_DBREC_CI]), 5);
	world_free(w);
}

/* Inline scatter */

static void fill_inline(struct world *w, struct smx_cqe64 *cqe, bool half)
{
	uint8_t *data = (uint8_t *)(half ? cqe : cqe - 1);
	(void)w;

	for (int i = 0; i < (half ? 32 : 64); i++)
		data[i] = (uint8_t)(0x40 + i);
}

static const struct scatter_row {
	const char *name;
	uint32_t cqe_bytes;
	uint8_t inline_bits;
	uint32_t length, first, second;	/* of the message, and of the two SGEs */
	enum ibv_wc_status status;
} scatter_rows[] = {
	{ "32 bytes over two SGEs", 64, SMX_CQE_INLINE_32, 32, 5, 100, IBV_WC_SUCCESS },
	{ "less than 32", 64, SMX_CQE_INLINE_32, 3, 5, 100, IBV_WC_SUCCESS },
	{ "nothing", 64, SMX_CQE_INLINE_32, 0, 5, 100, IBV_WC_SUCCESS },
	{ "32 in a long CQE", 128, SMX_CQE_INLINE_32, 32, 30, 2, IBV_WC_SUCCESS },
	{ "64 in a long CQE", 128, SMX_CQE_INLINE_64, 64, 1, 63, IBV_WC_SUCCESS },
	{ "longer than the receive", 128, SMX_CQE_INLINE_64, 64, 1, 62, IBV_WC_LOC_LEN_ERR },
	{ "more than 32 can hold", 64, SMX_CQE_INLINE_32, 33, 100, 100, IBV_WC_LOC_LEN_ERR },
	{ "more than 64 can hold", 128, SMX_CQE_INLINE_64, 65, 100, 100, IBV_WC_LOC_LEN_ERR },
};

static void received_data_in_the_cqe_goes_to_its_buffers(void **state)
{
	(void)state;

	for (size_t i = 0; i < SMX_COUNT(scatter_rows) * 2; i++) {
		const struct scatter_row *r = &scatter_rows[i / 2];
		bool shared = i & 1;
		struct world *w = world_rc();
		uint8_t a[128] = { 0 }, b[128] = { 0 };
		struct ibv_sge sge[2] = { { (uintptr_t)a, r->first, 1 }, { (uintptr_t)b, r->second, 1 } };
		struct ibv_recv_wr wr = { .wr_id = 9, .sg_list = sge, .num_sge = 2 }, *bad;
		struct smx_cqe64 *cqe;
		struct ibv_wc wc;
		uint32_t in_a = r->length < r->first ? r->length : r->first;

		print_message("%s%s\n", r->name, shared ? ", SRQ" : "");
		world_cq(w, r->cqe_bytes);
		world_srq(w, 3, 2);
		if (shared)
			assert_int_equal(smx_dv_post_srq_recv(&w->srq.ibv, &wr, &bad), 0);
		else
			post_recv(w, 9, sge, 2);
		cqe = world_cqe(w, SMX_CQE_RESP_SEND, &(struct smx_cqe64){ .op_own = r->inline_bits,
				.byte_cnt = to_be32(r->length), .sop_drop_qpn = to_be32(shared ? 0x999 : WORLD_QPN),
				.srqn_uidx = to_be32(WORLD_SRQN) });
		fill_inline(w, cqe, r->inline_bits == SMX_CQE_INLINE_32);
		assert_int_equal(world_poll(w, 1, &wc), 1);
		assert_int_equal(wc.status, r->status);
		assert_int_equal(wc.wr_id, 9);
		if (r->status == IBV_WC_SUCCESS) {
			assert_int_equal(wc.byte_len, r->length);
			for (uint32_t k = 0; k < 128; k++) {
				assert_int_equal(a[k], k < in_a ? 0x40 + k : 0);
				assert_int_equal(b[k], k < r->length - in_a ? 0x40 + in_a + k : 0);
			}
			if (r->inline_bits == SMX_CQE_INLINE_32)
				assert_int_equal(wc.src_qp | wc.wc_flags | wc.slid, 0);	/* data lies there */
		}
		world_free(w);
	}
}

/* A READ or atomic response, with the request's segments round the ring's end. */
static void response_data_in_the_cqe_goes_to_the_request(void **state)
{
	(void)state;

	for (uint32_t start = 0; start < 64; start++) {
		struct world *w = world_rc();
		uint8_t a[32] = { 0 }, b[32] = { 0 };
		uint64_t old = 0;
		struct ibv_sge sge[3] = { { (uintptr_t)a, 5, 1 }, { 0, 0, 0 }, { (uintptr_t)b, 27, 1 } };
		struct ibv_wc wc[2];

		world_sq_at(w, start, 0);
		ibv_wr_start(&w->qp.ex);
		ibv_wr_rdma_read(&w->qp.ex, 1, 2);
		ibv_wr_set_sge_list(&w->qp.ex, 3, sge);
		ibv_wr_atomic_fetch_add(&w->qp.ex, 1, 2, 0x0000002000000000);
		ibv_wr_set_sge(&w->qp.ex, 1, (uintptr_t)&old, 8);
		assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
		fill_inline(w, world_cqe(w, SMX_CQE_REQ, &(struct smx_cqe64){ .op_own = SMX_CQE_INLINE_32,
			    .byte_cnt = to_be32(32), .wqe_counter = to_be16((uint16_t)start),
			    .sop_drop_qpn = to_be32(SMX_OP_RDMA_READ << 24 | WORLD_QPN) }), true);
		fill_inline(w, world_cqe(w, SMX_CQE_REQ, &(struct smx_cqe64){ .op_own = SMX_CQE_INLINE_32,
			    .byte_cnt = to_be32(8), .wqe_counter = to_be16((uint16_t)(start + 1)),
			    .sop_drop_qpn = to_be32((uint32_t)SMX_OP_ATOMIC_FA << 24 | WORLD_QPN) }), true);
		assert_int_equal(world_poll(w, 2, wc), 2);
		assert_int_equal(wc[0].status, IBV_WC_SUCCESS);
		assert_int_equal(wc[1].status, IBV_WC_SUCCESS);
		for (int k = 0; k < 32; k++)
			assert_int_equal(k < 5 ? a[k] : b[k - 5], 0x40 + k);
		assert_memory_equal(&old, "\x40\x41\x42\x43\x44\x45\x46\x47", 8);
		world_free(w);
	}
}

/* A response on a DCI: the address stands before the data. */
static void response_data_on_a_dci_goes_to_the_request(void **state)
{
	struct ibv_qp_cap cap = { .max_send_wr = 4, .max_send_sge = 1 };
	struct world *w = world_new(SMX_DV_DCI, OPS_RC, 0, &cap);
	struct smx_dv_ah ah = { 0 };
	uint8_t a[32] = { 0 };
	struct ibv_wc wc;
	(void)state;

	ibv_wr_start(&w->qp.ex);
	ibv_wr_rdma_read(&w->qp.ex, 1, 0x0000002000000000);
	ibv_wr_set_sge(&w->qp.ex, 1, (uintptr_t)a, 32);
	mlx5dv_wr_set_dc_addr(&w->qp.dv, &ah.ibv, 1, 0x0000002000000000);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	fill_inline(w, world_cqe(w, SMX_CQE_REQ, &(struct smx_cqe64){ .op_own = SMX_CQE_INLINE_32,
		    .byte_cnt = to_be32(32), .sop_drop_qpn = to_be32(SMX_OP_RDMA_READ << 24 | WORLD_QPN) }), true);
	assert_int_equal(world_poll(w, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	for (int k = 0; k < 32; k++)
		assert_int_equal(a[k], 0x40 + k);
	world_free(w);
}

/* What an earlier receive left behind the end of the list is not written to. */
static void the_end_of_a_list_ends_it(void **state)
{
	struct world *w = world_rc();
	uint8_t old[64] = { 0 }, now[4] = { 0 }, none[64] = { 0 };
	struct ibv_sge three[3] = { { (uintptr_t)old, 8, 1 }, { (uintptr_t)old, 8, 1 }, { (uintptr_t)old, 64, 1 } };
	struct ibv_sge one = { (uintptr_t)now, 4, 1 };
	struct ibv_wc wc;
	(void)state;

	w->qp.rq.wqe_count = 1;
	post_recv(w, 1, three, 3);
	world_cqe(w, SMX_CQE_RESP_SEND, &(struct smx_cqe64){ .sop_drop_qpn = to_be32(WORLD_QPN) });
	assert_int_equal(world_poll(w, 1, &wc), 1);
	post_recv(w, 2, &one, 1);
	fill_inline(w, world_cqe(w, SMX_CQE_RESP_SEND, &(struct smx_cqe64){ .op_own = SMX_CQE_INLINE_32,
		    .byte_cnt = to_be32(32), .sop_drop_qpn = to_be32(WORLD_QPN) }), true);
	assert_int_equal(world_poll(w, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	assert_memory_equal(old, none, sizeof(old));
	world_free(w);
}

static void a_signed_receive_scatters_behind_its_signature(void **state)
{
	struct world *w = world_rc();
	uint8_t a[8] = { 0 };
	struct ibv_sge sge = { (uintptr_t)a, 8, 1 };
	struct ibv_wc wc;
	(void)state;

	w->qp.wq_sig = true;
	post_recv(w, 1, &sge, 1);
	memset(w->qp.rq.buf, 0, 8);
	w->qp.rq.buf[6] = 0x01;	/* key 0x100, no bytes: looks like the end of a list */
	fill_inline(w, world_cqe(w, SMX_CQE_RESP_SEND, &(struct smx_cqe64){ .op_own = SMX_CQE_INLINE_32,
		    .byte_cnt = to_be32(8), .sop_drop_qpn = to_be32(WORLD_QPN) }), true);
	assert_int_equal(world_poll(w, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(a[7], 0x47);
	world_free(w);
}

static void buffers_that_are_gone_fail_the_completion_only(void **state)
{
	struct world *w = world_rc();
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_sge sge = { (uintptr_t)page, 64, 1 };
	struct ibv_wc wc;
	(void)state;

	smx_guard_install();
	assert_int_equal(munmap(page, 4096), 0);
	post_recv(w, 9, &sge, 1);
	world_cqe(w, SMX_CQE_RESP_SEND, &(struct smx_cqe64){ .op_own = SMX_CQE_INLINE_32, .byte_cnt = to_be32(8),
		  .sop_drop_qpn = to_be32(WORLD_QPN) });
	assert_int_equal(world_poll(w, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(wc.wr_id, 9);
	world_free(w);
}

static void inline_data_for_a_write_is_an_error(void **state)
{
	struct world *w = world_rc();
	struct ibv_wc wc;
	(void)state;

	assert_int_equal(world_write(w, 1), 0);
	world_cqe(w, SMX_CQE_REQ, &(struct smx_cqe64){ .op_own = SMX_CQE_INLINE_32, .byte_cnt = to_be32(8),
		  .sop_drop_qpn = to_be32(SMX_OP_RDMA_WRITE << 24 | WORLD_QPN) });
	assert_int_equal(world_poll(w, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_REM_INV_REQ_ERR);
	world_free(w);
}

static void arming_names_sequence_kind_and_consumer(void **state)
{
	struct world *w = world_rc();
	struct ibv_cq *cq = (struct ibv_cq *)(void *)&w->cq;
	uint64_t doorbell;
	(void)state;

	w->cq.ci = 0x1000005;
	assert_int_equal(smx_dv_req_notify_cq(cq, 0), 0);
	assert_int_equal(be32_load_acquire(&w->cq_dbrec[SMX_CQ_DBREC_ARM]), 5);
	w->cq.arm_sn = 6;
	assert_int_equal(smx_dv_req_notify_cq(cq, 1), 0);
	assert_int_equal(be32_load_acquire(&w->cq_dbrec[SMX_CQ_DBREC_ARM]), 2u << 28 | SMX_CQ_ARM_SOLICITED | 5);
	assert_int_equal(w->armed, 2u << 28 | SMX_CQ_ARM_SOLICITED | 5);
	memcpy(&doorbell, w->cq_uar + SMX_CQ_UAR_DOORBELL, sizeof(doorbell));
	assert_int_equal(be64toh(doorbell), (uint64_t)w->armed << 32 | w->cq.cqn);
	world_free(w);
}

/* Completions of one queue pair go, the others stay in order, wherever the ring stands. */
static void cleaning_takes_out_one_queue_pair(void **state)
{
	(void)state;

	for (uint32_t cqe_bytes = 64; cqe_bytes <= 128; cqe_bytes += 64) {
		for (uint32_t start = 0; start < 2 * WORLD_CQES; start++) {
			for (uint32_t pattern = 0; pattern < 256; pattern++) {
				struct world *w = calloc(1, sizeof(*w));
				uint32_t n = 0;

				world_cq(w, cqe_bytes);
				w->cq.lock.needed = false;
				w->cq.ci = w->pi = start;
				for (uint32_t i = 0; i < WORLD_CQES; i++)	/* what the round before left */
					world_cqe(w, SMX_CQE_REQ, &(struct smx_cqe64){ 0 });
				w->cq.ci = w->pi;
				for (uint32_t i = 0; i < 8; i++)
					world_cqe(w, SMX_CQE_REQ,
						  &(struct smx_cqe64){
							  .wqe_counter = to_be16((uint16_t)i),
							  .sop_drop_qpn = to_be32(
								  pattern >> i & 1 ? 0x111
										   : 0x222) });
				smx_dv_cq_clean(&w->cq, 0x111, NULL);
				for (uint32_t i = 0; i < 8; i++) {
					uint32_t at = (w->cq.ci + n) & (WORLD_CQES - 1);
					const struct smx_cqe64 *cqe = (const struct smx_cqe64 *)
						(w->cq_buf + at * cqe_bytes + cqe_bytes - 64);

					if (pattern >> i & 1)
						continue;
					assert_int_equal(from_be16(cqe->wqe_counter), i);
					assert_int_equal(from_be32(cqe->sop_drop_qpn), 0x222);
					assert_int_equal(cqe->op_own & 1, !!((w->cq.ci + n) & WORLD_CQES));
					n++;
				}
				assert_int_equal(w->cq.ci + n, w->pi);
				assert_int_equal(be32_load_acquire(&w->cq_dbrec[0]), n == 8 ? 0 : w->cq.ci);
				free(w);
			}
		}
	}
}

static void cleaning_gives_back_shared_receives(void **state)
{
	struct world *w = world_rc();
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_wc wc;
	(void)state;

	world_srq(w, 3, 1);
	for (uint16_t i = 0; i < 3; i++) {
		assert_int_equal(smx_dv_post_srq_recv(&w->srq.ibv, &wr, &bad), 0);
		world_cqe(w, SMX_CQE_RESP_SEND, &(struct smx_cqe64){ .srqn_uidx = to_be32(WORLD_SRQN),
			  .sop_drop_qpn = to_be32(i == 1 ? 0x222 : 0x111), .wqe_counter = to_be16(i) });
	}
	assert_int_equal(smx_dv_post_srq_recv(&w->srq.ibv, &wr, &bad), ENOMEM);
	smx_dv_cq_clean(&w->cq, 0x111, &w->srq);
	assert_int_equal(smx_dv_post_srq_recv(&w->srq.ibv, &wr, &bad), 0);
	assert_int_equal(smx_dv_post_srq_recv(&w->srq.ibv, &wr, &bad), 0);
	assert_int_equal(smx_dv_post_srq_recv(&w->srq.ibv, &wr, &bad), ENOMEM);
	smx_dv_cq_clean(&w->cq, 0, &w->srq);	/* the SRQ itself goes */
	assert_int_equal(world_poll(w, 1, &wc), 0);
	assert_int_equal(w->cq.ci, 3);
	world_free(w);
}

static void a_moved_queue_is_read_where_it_is_now(void **state)
{
	struct world *w = world_rc();
	static uint8_t fresh[32 * 64];
	struct ibv_wc wc;
	(void)state;

	for (uint32_t i = 0; i < 12; i++) {
		assert_int_equal(world_write(w, i), 0);
		world_done(w, i, SMX_OP_RDMA_WRITE);
		assert_int_equal(world_poll(w, 1, &wc), 1);
	}
	smx_dv_cq_init_buf(fresh, 32, 64);
	smx_dv_cq_moved(&w->cq, fresh, 32);
	assert_int_equal(w->cq.ex.cqe, 31);
	assert_int_equal(world_poll(w, 1, &wc), 0);
	for (uint32_t i = 12; i < 80; i++) {
		assert_int_equal(world_write(w, i), 0);
		world_done(w, i, SMX_OP_RDMA_WRITE);
		assert_int_equal(world_poll(w, 1, &wc), 1);
		assert_int_equal(wc.wr_id, i);
	}
	/* Again, where the first round of the new ring is an odd one: its entries are not taken for completions. */
	while (!(w->cq.ci & 16) || w->cq.ci & 3) {
		assert_int_equal(world_write(w, 0), 0);
		world_done(w, w->qp.sq.cur_post - 1, SMX_OP_RDMA_WRITE);
		assert_int_equal(world_poll(w, 1, &wc), 1);
	}
	smx_dv_cq_init_buf(fresh, 16, 64);
	smx_dv_cq_moved(&w->cq, fresh, 16);
	assert_int_equal(world_poll(w, 1, &wc), 0);
	assert_int_equal(w->cq.ci, w->pi);
	world_free(w);
}

static void numbers_lead_to_objects(void **state)
{
	struct smx_dv_table *t = calloc(1, sizeof(*t));
	int a, b;
	(void)state;

	assert_null(smx_dv_table_get(t, 5));
	assert_int_equal(smx_dv_table_set(t, 5, NULL), 0);
	assert_int_equal(smx_dv_table_set(t, 0xffffff, &a), 0);
	assert_int_equal(smx_dv_table_set(t, 0xfff, &b), 0);
	assert_ptr_equal(smx_dv_table_get(t, 0xffffff), &a);
	assert_ptr_equal(smx_dv_table_get(t, 0xfff), &b);
	assert_null(smx_dv_table_get(t, 0x1fff));
	assert_int_equal(smx_dv_table_set(t, 0xfff, NULL), 0);
	assert_null(smx_dv_table_get(t, 0xfff));
	smx_dv_table_fini(t);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_complete_by_their_opcode),
		cmocka_unit_test(receives_complete_with_what_came_along),
		cmocka_unit_test(errors_carry_status_vendor_code_and_request),
		cmocka_unit_test(a_completion_frees_all_before_it),
		cmocka_unit_test(rounds_of_the_ring_are_told_apart),
		cmocka_unit_test(no_more_than_asked_for),
		cmocka_unit_test(an_empty_queue_turns_the_device_once),
		cmocka_unit_test(shared_receives_are_found_by_queue_pair_or_by_number),
		cmocka_unit_test(a_cqe_of_nothing_is_an_error_not_a_crash),
		cmocka_unit_test(received_data_in_the_cqe_goes_to_its_buffers),
		cmocka_unit_test(response_data_in_the_cqe_goes_to_the_request),
		cmocka_unit_test(response_data_on_a_dci_goes_to_the_request),
		cmocka_unit_test(the_end_of_a_list_ends_it),
		cmocka_unit_test(a_signed_receive_scatters_behind_its_signature),
		cmocka_unit_test(buffers_that_are_gone_fail_the_completion_only),
		cmocka_unit_test(inline_data_for_a_write_is_an_error),
		cmocka_unit_test(arming_names_sequence_kind_and_consumer),
		cmocka_unit_test(cleaning_takes_out_one_queue_pair),
		cmocka_unit_test(cleaning_gives_back_shared_receives),
		cmocka_unit_test(a_moved_queue_is_read_where_it_is_now),
		cmocka_unit_test(numbers_lead_to_objects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
