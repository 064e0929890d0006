/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: operations of a matching list lie in the command queue as struct mlx5_wqe_tm_seg has them; a completion
 * of each kind gives opcode, flags, wr_id and the entry back; one that names nothing is no completion.
 * Method: the header's own structure as oracle, and CQEs written by hand. */
#include "dv_world.h"

#include "dv/dv_tag.h"

enum { MAX_TAGS = 3 };

static struct world *start(void)
{
	struct ibv_qp_cap cap = { .max_send_wr = 8, .max_send_sge = 1 };
	struct world *w = world_new(SMX_DV_RC, OPS_RC, DV_OPS_RC, &cap);

	world_srq(w, 4, 1);
	w->srq.tags = smx_dv_tags_create(&w->qp, MAX_TAGS);
	assert_non_null(w->srq.tags);
	return w;
}

static void end(struct world *w)
{
	smx_dv_tags_free(w->srq.tags);
	world_free(w);
}

static int post(struct world *w, enum ibv_ops_wr_opcode opcode, uint64_t wr_id, int flags, uint32_t *handle)
{
	struct ibv_sge sge = { 0x7000, 300, 0x1200 };
	struct ibv_ops_wr *bad, wr = { .wr_id = wr_id, .opcode = opcode, .flags = flags };
	int err;

	wr.tm.unexpected_cnt = 0x10005;	/* what the device counts has 16 bits */
	wr.tm.handle = *handle;
	wr.tm.add.recv_wr_id = wr_id + 100;
	wr.tm.add.sg_list = &sge;
	wr.tm.add.num_sge = wr_id != 9;
	wr.tm.add.tag = 0x1122334455667788;
	wr.tm.add.mask = 0xffffffff00000000;
	err = smx_dv_post_srq_ops((struct ibv_srq *)(void *)&w->srq, &wr, &bad);
	*handle = wr.tm.handle;
	return err;
}

static void expect_seg(const struct world *w, uint32_t bb, uint32_t ds, uint8_t opcode, uint8_t flags, uint16_t index,
		       bool has_tag)
{
	const struct mlx5_wqe_tm_seg want = {
		.opcode = (uint8_t)(opcode << 4), .flags = flags, .index = htobe16(index),
		.sw_cnt = htobe16(flags & 0x40 ? 5 : 0), .append_tag = has_tag ? htobe64(0x1122334455667788) : 0,
		.append_mask = has_tag ? htobe64(0xffffffff00000000) : 0,
	};

	assert_int_equal(from_be32(world_wqe(w, bb)->opmod_idx_opcode), bb << 8 | MLX5_OPCODE_TAG_MATCHING);
	assert_int_equal(from_be32(world_wqe(w, bb)->qpn_ds), WORLD_QPN << 8 | ds);
	assert_int_equal(world_wqe(w, bb)->fm_ce_se, 0);
	assert_memory_equal(world_seg(w, bb, 1), &want, sizeof(want));
}

static void bytes_are_the_headers(void **state)
{
	struct world *w = start();
	uint32_t a = 0, b = 0, none = 0;
	const struct mlx5_wqe_data_seg full = { htobe32(300), htobe32(0x1200), htobe64(0x7000) };
	const struct mlx5_wqe_data_seg empty = { 0, htobe32(0x100), 0 };

	(void)state;
	assert_int_equal(post(w, IBV_WR_TAG_ADD, 1, IBV_OPS_SIGNALED, &a), 0);
	assert_int_equal(a, 0);
	expect_seg(w, 0, 4, 1, 0x80, 1, true);
	assert_memory_equal(world_seg(w, 0, 3), &full, sizeof(full));
	assert_int_equal(post(w, IBV_WR_TAG_ADD, 9, IBV_OPS_TM_SYNC, &b), 0);
	assert_int_equal(b, 1);
	expect_seg(w, 1, 4, 1, 0x40, 2, true);
	assert_memory_equal(world_seg(w, 1, 3), &empty, sizeof(empty));
	assert_int_equal(post(w, IBV_WR_TAG_DEL, 3, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, &a), 0);
	expect_seg(w, 2, 3, 2, 0xc0, 0, false);
	assert_int_equal(post(w, IBV_WR_TAG_SYNC, 4, IBV_OPS_TM_SYNC, &none), 0);
	expect_seg(w, 3, 3, 0, 0x40, 0, false);
	assert_int_equal(from_be32(*(be32 *)&w->qp_dbrec[SMX_DBREC_SND]), 4);
	assert_int_equal(w->rung_sq, 4);
	end(w);
}

static struct ibv_wc take(struct world *w, uint8_t op, uint8_t app_op, uint16_t index, bool success, uint16_t seen)
{
	const struct smx_tag_cqe head = { to_be32(success ? SMX_TAG_SUCCESS : 0), to_be16(seen), { 0 } };
	struct smx_cqe64 cqe = { .srqn_uidx = to_be32(WORLD_SRQN), .app = 1, .app_op = app_op,
				 .app_info = to_be16(index), .sop_drop_qpn = to_be32(0x999),
				 .wqe_counter = to_be16(index) };
	struct ibv_wc wc = { .status = IBV_WC_FATAL_ERR };
	int n;

	memcpy(&cqe, &head, sizeof(head));
	world_cqe(w, op, &cqe);
	n = world_poll(w, 1, &wc);
	assert_true(n == 1 || n == -2);
	if (n != 1)
		wc.status = IBV_WC_FATAL_ERR;
	return wc;
}

static void expect_wc(struct ibv_wc wc, enum ibv_wc_status status, int opcode, unsigned int flags, uint64_t wr_id)
{
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.wc_flags, flags);
	assert_int_equal(wc.wr_id, wr_id);
}

static void completions_of_every_kind(void **state)
{
	enum { MATCH = IBV_WC_TM_MATCH, VALID = IBV_WC_TM_DATA_VALID, SYNC = IBV_WC_TM_SYNC_REQ };
	struct world *w = start();
	uint32_t h = 0;
	static const struct { uint8_t op, app_op; enum ibv_wc_status status; unsigned int flags; bool last; } rows[] = {
		{ SMX_CQE_RESP_SEND, 0xa, IBV_WC_SUCCESS, MATCH | VALID, true },
		{ SMX_CQE_NO_PACKET, 0x1, IBV_WC_SUCCESS, MATCH, false },
		{ SMX_CQE_RESP_SEND, 0x2, IBV_WC_SUCCESS, VALID, true },
		{ SMX_CQE_RESP_SEND, 0xb, IBV_WC_TM_RNDV_INCOMPLETE, MATCH | VALID, true },
		{ SMX_CQE_NO_PACKET, 0x9, IBV_WC_TM_RNDV_INCOMPLETE, MATCH, false },
		{ SMX_CQE_RESP_SEND, 0xc, IBV_WC_TM_RNDV_INCOMPLETE, MATCH | VALID, true },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		assert_int_equal(post(w, IBV_WR_TAG_ADD, i, IBV_OPS_SIGNALED, &h), 0);
		/* The first count that differs from what was told asks for a sync. */
		expect_wc(take(w, SMX_CQE_NO_PACKET, 0x5, (uint16_t)h, true, i & 1), IBV_WC_SUCCESS, IBV_WC_TM_ADD,
			  i & 1 ? SYNC : 0, i);
		expect_wc(take(w, rows[i].op, rows[i].app_op, (uint16_t)h, true, 0), rows[i].status, IBV_WC_TM_RECV,
			  rows[i].flags, i + 100);
		/* Its last completion freed the entry: another names nobody. */
		if (!rows[i].last)
			expect_wc(take(w, SMX_CQE_RESP_SEND, 0x2, (uint16_t)h, true, 0), IBV_WC_SUCCESS,
				  IBV_WC_TM_RECV, VALID, i + 100);
		assert_int_equal(take(w, SMX_CQE_RESP_SEND, 0xa, (uint16_t)h, true, 0).status, IBV_WC_FATAL_ERR);
	}
	w->srq.wr_id[2] = 77;
	expect_wc(take(w, SMX_CQE_RESP_SEND, 0x4, 2, true, 0), IBV_WC_SUCCESS, IBV_WC_TM_NO_TAG, 0, 77);
	expect_wc(take(w, SMX_CQE_RESP_SEND, 0x3, 2, true, 0), IBV_WC_SUCCESS, IBV_WC_TM_RECV, 0, 77);
	assert_int_equal(w->srq.tags->unexpected, 1);
	end(w);
}

static void removals(void **state)
{
	struct world *w = start();
	uint32_t h[MAX_TAGS] = { 0 }, more = 0;

	(void)state;
	for (int i = 0; i < MAX_TAGS; i++) {
		assert_int_equal(post(w, IBV_WR_TAG_ADD, i, IBV_OPS_SIGNALED, &h[i]), 0);
		take(w, SMX_CQE_NO_PACKET, 0x5, 0, true, 0);
	}
	assert_int_equal(post(w, IBV_WR_TAG_ADD, 5, 0, &more), ENOMEM);
	assert_refused(w, SMX_CHECK_POST_TAGS_FULL);
	assert_int_equal(post(w, IBV_WR_TAG_DEL, 6, IBV_OPS_SIGNALED, &h[1]), 0);
	assert_int_equal(post(w, IBV_WR_TAG_DEL, 7, IBV_OPS_SIGNALED, &h[2]), 0);
	expect_wc(take(w, SMX_CQE_NO_PACKET, 0x6, 0, true, 0), IBV_WC_SUCCESS, IBV_WC_TM_DEL, 0, 6);
	expect_wc(take(w, SMX_CQE_NO_PACKET, 0x6, 0, false, 0), IBV_WC_TM_ERR, IBV_WC_TM_DEL, 0, 7);
	/* One entry is free; the other one's message is still to come. */
	assert_int_equal(post(w, IBV_WR_TAG_ADD, 8, 0, &more), 0);
	assert_int_equal(post(w, IBV_WR_TAG_ADD, 8, 0, &more), ENOMEM);
	expect_wc(take(w, SMX_CQE_RESP_SEND, 0xa, (uint16_t)h[2], true, 0), IBV_WC_SUCCESS, IBV_WC_TM_RECV,
		  IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID, 102);
	assert_int_equal(post(w, IBV_WR_TAG_ADD, 8, 0, &more), 0);
	end(w);
}

static void names_nothing(void **state)
{
	struct world *w = start();

	(void)state;
	assert_int_equal(take(w, SMX_CQE_NO_PACKET, 0x5, 0, true, 0).status, IBV_WC_FATAL_ERR);	/* none was posted */
	assert_int_equal(take(w, SMX_CQE_RESP_SEND, 0xa, 0xffff, true, 0).status, IBV_WC_FATAL_ERR);
	assert_int_equal(take(w, SMX_CQE_RESP_SEND, 0x3, 0xffff, true, 0).status, IBV_WC_FATAL_ERR);
	smx_dv_table_set(&w->srqs, WORLD_SRQN, NULL);
	assert_int_equal(take(w, SMX_CQE_RESP_SEND, 0x4, 0, true, 0).status, IBV_WC_FATAL_ERR);
	end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_the_headers),
		cmocka_unit_test(completions_of_every_kind),
		cmocka_unit_test(removals),
		cmocka_unit_test(names_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
