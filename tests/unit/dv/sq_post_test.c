/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: ibv_post_send on the kinds of queue pair that the recorded vectors do not cover (UC, XRC, DCI), what
 * each kind refuses, and type 1 windows. */
#include "dv_world.h"

static int post(struct world *w, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int err = smx_dv_post_send(&w->qp.ex.qp_base, wr, &bad);

	assert_ptr_equal(bad, err ? wr : NULL);
	return err;
}

static struct world *world_of(enum smx_dv_qp_kind kind)
{
	struct ibv_qp_cap cap = { .max_send_wr = 8, .max_send_sge = 2, .max_inline_data = 32 };

	return world_new(kind, 0, 0, &cap);
}

static const struct row {
	enum ibv_wr_opcode opcode;
	uint8_t op;
	uint32_t kinds;		/* that post it */
	uint32_t ds;		/* with one SGE, without an address */
} rows[] = {
#define K(k) (1u << SMX_DV_##k)
	{ IBV_WR_SEND, SMX_OP_SEND, K(RC) | K(UC) | K(UD) | K(XRC_INI), 2 },
	{ IBV_WR_SEND_WITH_IMM, SMX_OP_SEND_IMM, K(RC) | K(UC) | K(UD) | K(XRC_INI), 2 },
	{ IBV_WR_SEND_WITH_INV, SMX_OP_SEND_INVAL, K(RC) | K(UC) | K(XRC_INI), 2 },
	{ IBV_WR_RDMA_WRITE, SMX_OP_RDMA_WRITE, K(RC) | K(UC) | K(XRC_INI), 3 },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, SMX_OP_RDMA_WRITE_IMM, K(RC) | K(UC) | K(XRC_INI), 3 },
	{ IBV_WR_RDMA_READ, SMX_OP_RDMA_READ, K(RC) | K(XRC_INI), 3 },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, SMX_OP_ATOMIC_CS, K(RC) | K(XRC_INI), 4 },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, SMX_OP_ATOMIC_FA, K(RC) | K(XRC_INI), 4 },
	{ IBV_WR_LOCAL_INV, SMX_OP_UMR, K(RC) | K(UC) | K(XRC_INI) | K(DCI), 8 },
	{ IBV_WR_BIND_MW, SMX_OP_UMR, K(RC) | K(UC) | K(XRC_INI) | K(DCI), 12 },
	{ IBV_WR_TSO, 0, 0, 0 },
	{ IBV_WR_DRIVER1, 0, 0, 0 },
	{ (enum ibv_wr_opcode)12, 0, 0, 0 },
	{ (enum ibv_wr_opcode)-1, 0, 0, 0 },
};

static void fill(struct ibv_send_wr *wr, enum ibv_wr_opcode opcode, struct ibv_sge *sge, struct ibv_mw *mw,
		 struct ibv_mr *mr, struct smx_dv_ah *ah, enum smx_dv_qp_kind kind)
{
	*wr = (struct ibv_send_wr){ .wr_id = 5, .opcode = opcode, .sg_list = sge, .num_sge = 1 };
	if (opcode == IBV_WR_BIND_MW) {
		wr->bind_mw.mw = mw;
		wr->bind_mw.rkey = 0x401;
		wr->bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = mr, .addr = 0x1000, .length = 16,
								   .mw_access_flags = IBV_ACCESS_REMOTE_READ };
	} else if (kind == SMX_DV_UD) {
		wr->wr.ud.ah = &ah->ibv;
		wr->wr.ud.remote_qpn = 0x99;
	} else {
		wr->wr.rdma.remote_addr = 0x1122334455667788;
		wr->wr.rdma.rkey = 0xaabb;
		if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			wr->wr.atomic.rkey = 0xaabb;
	}
	if (kind == SMX_DV_XRC_INI)
		wr->qp_type.xrc.remote_srqn = 0x7788;
}

static void check_segments(struct world *w, const struct row *r, uint32_t addr_ds)
{
	bool window = r->op == SMX_OP_UMR;
	const struct smx_wqe_data *data = world_seg(w, 0, addr_ds + r->ds - 1);

	assert_int_equal(from_be32(world_wqe(w, 0)->qpn_ds), WORLD_QPN << 8 | (r->ds + addr_ds));
	assert_int_equal(from_be32(world_wqe(w, 0)->opmod_idx_opcode) & 0xff, r->op);
	if (w->qp.kind == SMX_DV_XRC_INI && !window)
		assert_int_equal(from_be32(((const struct smx_wqe_xrc *)world_seg(w, 0, 1))->srqn), 0x7788);
	if (!window) {
		assert_int_equal(from_be32(data->lkey), 0x321);
		assert_int_equal(from_be32(data->byte_count), 8);
	}
	if (!window && r->ds > 2)
		assert_int_equal(from_be32(((const struct smx_wqe_raddr *)world_seg(w, 0, 1 + addr_ds))->rkey), 0xaabb);
}

static void each_kind_posts_its_operations_and_no_other(void **state)
{
	static const enum smx_dv_qp_kind kinds[] = { SMX_DV_RC, SMX_DV_UC, SMX_DV_UD, SMX_DV_XRC_INI, SMX_DV_DCI };
	(void)state;

	for (size_t k = 0; k < SMX_COUNT(kinds); k++) {
		for (size_t i = 0; i < SMX_COUNT(rows); i++) {
			const struct row *r = &rows[i];
			struct world *w = world_of(kinds[k]);
			struct ibv_sge sge = { .addr = 0x2000, .length = 8, .lkey = 0x321 };
			struct ibv_mw mw = { .rkey = 0x400, .type = IBV_MW_TYPE_2 };
			struct ibv_mr mr = { .lkey = 0x500 };
			struct smx_dv_ah ah = { 0 };
			struct ibv_send_wr wr;
			uint32_t addr_ds = r->op == SMX_OP_UMR ? 0 : kinds[k] == SMX_DV_XRC_INI ? 1 :
					   kinds[k] == SMX_DV_UD ? 3 : 0;

			fill(&wr, r->opcode, &sge, &mw, &mr, &ah, kinds[k]);
			if (r->kinds & 1u << kinds[k]) {
				assert_int_equal(post(w, &wr), 0);
				check_segments(w, r, addr_ds);
				assert_int_equal(w->rung_sq, 1);
			} else {
				assert_int_equal(post(w, &wr), EINVAL);
				assert_refused(w, kinds[k] == SMX_DV_DCI && r->op ? SMX_CHECK_POST_DC_ADDR :
					       SMX_CHECK_POST_OPCODE);
				assert_int_equal(w->qp.sq.cur_post, 0);
			}
			world_free(w);
		}
	}
}

static void wrong_arguments_are_refused(void **state)
{
	struct world *w = world_of(SMX_DV_UD);
	struct ibv_sge sge[3] = { { .length = 1 } };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 1 };
	struct smx_dv_ah ah = { 0 };
	(void)state;

	assert_int_equal(post(w, &wr), EINVAL);
	assert_refused(w, SMX_CHECK_POST_DC_ADDR);
	wr.wr.ud.ah = &ah.ibv;
	wr.num_sge = -1;
	assert_int_equal(post(w, &wr), ENOMEM);
	assert_refused(w, SMX_CHECK_POST_SGE);
	wr.num_sge = 3;
	assert_int_equal(post(w, &wr), ENOMEM);
	assert_refused(w, SMX_CHECK_POST_SGE);
	wr.num_sge = 1;
	sge[0].length = 0x80000001;
	assert_int_equal(post(w, &wr), EINVAL);
	assert_refused(w, SMX_CHECK_POST_SGE_LENGTH);
	wr.send_flags = IBV_SEND_INLINE;
	assert_int_equal(post(w, &wr), ENOMEM);
	assert_refused(w, SMX_CHECK_POST_INLINE);
	sge[0].length = 0;
	assert_int_equal(post(w, &wr), 0);
	world_free(w);

	w = world_of(SMX_DV_RC);
	wr = (struct ibv_send_wr){ .opcode = IBV_WR_BIND_MW };
	assert_int_equal(post(w, &wr), EINVAL);
	assert_refused(w, SMX_CHECK_OBJECT_ARG);
	world_free(w);
}

/* Those before the refused one are posted and rung, those behind are not looked at. */
static void a_list_stops_at_the_refused_one(void **state)
{
	struct world *w = world_rc();
	struct ibv_send_wr wr[3] = { { .opcode = IBV_WR_LOCAL_INV, .next = &wr[1] },
				     { .opcode = (enum ibv_wr_opcode)99, .next = &wr[2] },
				     { .opcode = IBV_WR_SEND } }, *bad = NULL;
	(void)state;

	assert_int_equal(smx_dv_post_send(&w->qp.ex.qp_base, wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	assert_int_equal(w->qp.sq.head, 1);
	assert_int_equal(w->qp.sq.cur_post, 2);
	assert_int_equal(w->qp.sq.fm_cache, SMX_CTRL_SMALL_FENCE);
	assert_int_equal(be32_load_acquire(&w->qp_dbrec[SMX_DBREC_SND]), 2);
	assert_int_equal(w->rung_sq, 1);
	world_free(w);
}

/* It is found out when the WQE is half written, and nothing comes of that. */
static void an_sge_that_is_too_long_takes_neither_a_block_nor_the_fence(void **state)
{
	struct world *w = world_rc();
	struct ibv_sge sge[2] = { { .length = 8 }, { .length = 0x80000000u } };
	struct ibv_send_wr wr[2] = { { .opcode = IBV_WR_LOCAL_INV, .next = &wr[1] },
				     { .opcode = IBV_WR_RDMA_WRITE, .sg_list = sge, .num_sge = 2 } }, *bad = NULL;
	(void)state;

	assert_int_equal(smx_dv_post_send(&w->qp.ex.qp_base, wr, &bad), EINVAL);
	assert_refused(w, SMX_CHECK_POST_SGE_LENGTH);
	assert_ptr_equal(bad, &wr[1]);
	assert_int_equal(w->qp.sq.head, 1);
	assert_int_equal(w->qp.sq.cur_post, 2);
	assert_int_equal(w->qp.sq.fm_cache, SMX_CTRL_SMALL_FENCE);
	assert_ptr_equal(w->qp.sq.wr.last, world_wqe(w, 0));	/* the doorbell's bytes are its */
	world_free(w);
}

/* A queue that was sized for short requests takes a longer one only where blocks are free. */
static void a_longer_operation_than_planned_finds_room_or_is_refused(void **state)
{
	struct ibv_qp_cap cap = { .max_send_wr = 4, .max_send_sge = 1 };
	struct world *w = world_new(SMX_DV_RC, IBV_QP_EX_WITH_SEND, 0, &cap);
	struct ibv_send_wr inv = { .opcode = IBV_WR_LOCAL_INV }, send = { .opcode = IBV_WR_SEND };
	(void)state;

	assert_int_equal(w->qp.sq.bb_count, 4);
	assert_int_equal(post(w, &send), 0);
	assert_int_equal(post(w, &inv), 0);
	assert_int_equal(post(w, &inv), ENOMEM);	/* one block left */
	assert_refused(w, SMX_CHECK_POST_SQ_FULL);
	assert_int_equal(post(w, &send), 0);
	assert_int_equal(post(w, &send), ENOMEM);
	world_free(w);

	cap = (struct ibv_qp_cap){ .max_send_wr = 4, .max_send_sge = 62 };
	w = world_new(SMX_DV_RC, IBV_QP_EX_WITH_SEND, 0, &cap);
	struct ibv_sge sge[62];
	struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = sge, .num_sge = 62 };

	for (int i = 0; i < 62; i++)
		sge[i] = (struct ibv_sge){ .length = 1 };
	assert_int_equal(post(w, &write), ENOMEM);
	assert_refused(w, SMX_CHECK_POST_SGE);
	write.opcode = IBV_WR_SEND;
	assert_int_equal(post(w, &write), 0);
	assert_int_equal(from_be32(world_wqe(w, 0)->qpn_ds) & 0x3f, 63);
	world_free(w);
}

static void a_type_1_window_gets_its_next_key(void **state)
{
	struct world *w = world_rc();
	struct ibv_mw mw = { .rkey = 0x4ff, .type = IBV_MW_TYPE_1 };
	struct ibv_mr mr = { .lkey = 0x500 };
	struct ibv_mw_bind bind = { .wr_id = 8, .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = { .mr = &mr, .addr = 0x1000, .length = 64,
						   .mw_access_flags = IBV_ACCESS_REMOTE_WRITE } };
	const struct smx_wqe_umr_ctrl *umr = world_seg(w, 0, 1);
	const struct smx_wqe_mkey_ctx *ctx = world_seg(w, 0, 4);
	const struct smx_wqe_klm *klm = world_seg(w, 0, 8);
	struct ibv_wc wc;
	(void)state;

	assert_int_equal(smx_dv_bind_mw(&w->qp.ex.qp_base, &mw, &bind), 0);
	assert_int_equal(mw.rkey, 0x400);	/* only the tag moves */
	assert_int_equal(from_be32(world_wqe(w, 0)->imm), 0x4ff);
	assert_int_equal(umr->flags, SMX_UMR_INLINE | SMX_UMR_XLT_OFFSET);
	assert_int_equal(from_be64(umr->mkey_mask) & SMX_UMR_MASK_QPN, 0);
	assert_int_equal(from_be32(ctx->qpn_mkey), 0xffffff00);
	assert_int_equal(ctx->access, SMX_MKC_REMOTE_WRITE);
	assert_int_equal(from_be64(ctx->len), 64);
	assert_int_equal(from_be32(klm->mkey), 0x500);
	world_done(w, 0, SMX_OP_UMR);
	assert_int_equal(world_poll(w, 1, &wc), 1);
	assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
	assert_int_equal(wc.wr_id, 8);

	bind.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	assert_int_equal(smx_dv_bind_mw(&w->qp.ex.qp_base, &mw, &bind), EINVAL);
	assert_refused(w, SMX_CHECK_MR_ACCESS);
	assert_int_equal(mw.rkey, 0x400);
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = &mr, .length = 1ull << 32 };
	assert_int_equal(smx_dv_bind_mw(&w->qp.ex.qp_base, &mw, &bind), EOPNOTSUPP);
	assert_int_equal(mw.rkey, 0x400);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_posts_its_operations_and_no_other),
		cmocka_unit_test(wrong_arguments_are_refused),
		cmocka_unit_test(a_list_stops_at_the_refused_one),
		cmocka_unit_test(an_sge_that_is_too_long_takes_neither_a_block_nor_the_fence),
		cmocka_unit_test(a_longer_operation_than_planned_finds_room_or_is_refused),
		cmocka_unit_test(a_type_1_window_gets_its_next_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
