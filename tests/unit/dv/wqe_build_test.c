/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: whatever a program does between ibv_wr_start and ibv_wr_complete, outstanding requests stay as they
 * are, a batch is posted whole or not at all, and a refusal says which call was wrong.
 * The bytes of well-formed requests are proven by tests/vectors. */
#include "dv_world.h"

#include "dv/wqe_build.h"

static void flags(struct world *w, unsigned int f)
{
	w->qp.ex.wr_flags = f;
}

/* A batch of one case of misuse: nothing may come of it. */
static void a_full_queue_refuses_and_overwrites_nothing(void **state)
{
	struct world *w = world_rc();
	uint32_t bytes = w->qp.sq.bb_count * SMX_WQE_BB, max_post = w->qp.sq.max_post;
	uint8_t *before = malloc(bytes);
	struct ibv_wc wc;
	(void)state;

	/* Twice round the ring, so that the full state is met at every offset. */
	for (uint32_t round = 0; round < 40; round++) {
		while (w->qp.sq.head - w->qp.sq.tail < max_post)
			assert_int_equal(world_write(w, w->qp.sq.head), 0);
		memcpy(before, w->qp.sq.buf, bytes);
		assert_int_equal(world_write(w, 99), ENOMEM);
		assert_refused(w, SMX_CHECK_POST_SQ_FULL);
		assert_memory_equal(w->qp.sq.buf, before, bytes);
		world_done(w, w->qp.sq.tail_bb, SMX_OP_RDMA_WRITE);
		assert_int_equal(world_poll(w, 1, &wc), 1);
		assert_int_equal(wc.wr_id, w->qp.sq.head - max_post);
	}
	free(before);
	world_free(w);
}

/* A program may poll between two requests of a batch. */
static void room_that_comes_back_inside_a_batch_is_seen(void **state)
{
	struct world *w = world_rc();
	struct ibv_qp_ex *ex = &w->qp.ex;
	uint32_t max_post = w->qp.sq.max_post;
	struct ibv_wc wc;
	(void)state;

	while (w->qp.sq.head < max_post - 1)
		assert_int_equal(world_write(w, w->qp.sq.head), 0);
	ibv_wr_start(ex);
	ex->wr_flags = 0;
	for (int i = 0; i < 2; i++) {	/* the first takes the last of the room */
		ibv_wr_rdma_write(ex, 0x200, 0x1000);
		ibv_wr_set_sge(ex, 0x100, 0x2000, 8);
		world_done(w, w->qp.sq.tail_bb, SMX_OP_RDMA_WRITE);
		assert_int_equal(world_poll(w, 1, &wc), 1);
	}
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(w->qp.sq.head, max_post + 1);
	world_free(w);
}

static uint8_t xor_of(const struct world *w, uint32_t bb)
{
	uint32_t ds = from_be32(world_wqe(w, bb)->qpn_ds) & SMX_WQE_DS_MAX;
	uint8_t x = 0;

	for (uint32_t i = 0; i < ds * SMX_WQE_DS; i++)
		x ^= ((const uint8_t *)world_seg(w, bb, i / SMX_WQE_DS))[i % SMX_WQE_DS];
	return x;
}

static void every_wqe_of_a_signed_queue_is_signed_when_it_is_rung(void **state)
{
	struct world *w = world_rc();
	struct ibv_qp_ex *ex = &w->qp.ex;
	struct ibv_send_wr wr[2] = { { .opcode = IBV_WR_SEND, .next = &wr[1] }, { .opcode = IBV_WR_LOCAL_INV } }, *bad;
	uint8_t data[60] = { 1, 2, 3 };
	(void)state;

	w->qp.wq_sig = true;
	ibv_wr_start(ex);
	ex->wr_flags = 0;
	ibv_wr_rdma_write(ex, 0x200, 0x1000);
	ibv_wr_set_inline_data(ex, data, sizeof(data));
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, 0x100, 0x2000, 8);
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(smx_dv_post_send(&ex->qp_base, wr, &bad), 0);
	assert_int_equal(w->qp.sq.cur_post, 2 + 1 + 1 + 2);
	for (uint32_t at = 0; at != w->qp.sq.cur_post; at += smx_wqe_blocks(smx_wqe_ds(world_wqe(w, at))))
		assert_int_equal(xor_of(w, at), 0xff);
	world_free(w);
}

/* Index in the control segment counts blocks modulo 65536, whatever the ring. */
static void the_index_wraps_at_16_bits(void **state)
{
	struct world *w = world_rc();
	struct ibv_wc wc;
	(void)state;

	world_sq_at(w, 0xfffe, 0);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t at = 0xfffe + i;

		assert_int_equal(world_write(w, i), 0);
		assert_int_equal(bits_get(from_be32(world_wqe(w, at)->opmod_idx_opcode), 23, 8), at & 0xffff);
		assert_int_equal(be32_load_acquire(&w->qp_dbrec[SMX_DBREC_SND]), (at + 1) & 0xffff);
	}
	for (uint32_t i = 0; i < 4; i++) {
		world_done(w, (0xfffe + i) & 0xffff, SMX_OP_RDMA_WRITE);
		assert_int_equal(world_poll(w, 1, &wc), 1);
		assert_int_equal(wc.wr_id, i);
	}
	assert_int_equal(w->qp.sq.tail_bb, 0x10002);
	assert_int_equal(w->qp.sq.tail, 4);
	world_free(w);
}

/* A strided layout and inline data that straddle the ring's end. */
static void long_requests_wrap(void **state)
{
	struct mlx5dv_mr_interleaved ent[2] = { { 0x1000, 16, 48, 7 }, { 0x2000, 8, 8, 9 } };
	struct smx_dv_mkey mkey = { .dv.lkey = 0x300, .max_entries = 4 };
	uint8_t data[60];
	struct world *w = world_rc();
	uint32_t bb = w->qp.sq.bb_count;
	(void)state;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i + 1);
	for (uint32_t start = bb - 4; start < bb; start++) {
		const struct smx_wqe_repeat_block *head;
		const struct smx_wqe_repeat_ent *e;

		world_sq_at(w, start, 0);
		ibv_wr_start(&w->qp.ex);
		flags(w, IBV_SEND_INLINE);
		mlx5dv_wr_mr_interleaved(&w->qp.dv, &mkey.dv, IBV_ACCESS_LOCAL_WRITE, 3, 2, ent);
		ibv_wr_rdma_write(&w->qp.ex, 1, 2);
		ibv_wr_set_inline_data(&w->qp.ex, data, sizeof(data));
		assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
		head = world_seg(w, start, 8);
		assert_int_equal(from_be32(head->byte_count), 24);
		assert_int_equal(from_be16(head->num_ent), 2);
		e = world_seg(w, start, 10);
		assert_int_equal(from_be16(e->stride), 16);
		assert_int_equal(from_be32(e->mkey), 9);
		for (uint32_t i = 0; i < sizeof(data); i++) {
			const uint8_t *seg = world_seg(w, start + 3, 2 + (i + 4) / 16);

			assert_int_equal(seg[(i + 4) % 16], data[i]);
		}
		assert_int_equal(w->qp.sq.cur_post, start + 5);
	}
	world_free(w);
}

/* Each misuse is one batch that begins with a good request. */
static const struct ibv_sge good_sge = { .addr = 0x2000, .length = 8, .lkey = 0x100 };
static struct smx_dv_mkey mkey = { .dv.lkey = 0x300, .max_entries = 4 };
static struct smx_dv_mkey tagged = { .dv.lkey = 0x301, .max_entries = 4 };

static void no_data(struct world *w) { ibv_wr_send(&w->qp.ex); }
static void no_data_then_next(struct world *w)
{
	ibv_wr_send(&w->qp.ex);
	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
}
static void data_twice(struct world *w)
{
	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
}
static void data_of_nothing(struct world *w) { ibv_wr_set_sge_list(&w->qp.ex, 1, &good_sge); }
static void inline_of_nothing(struct world *w) { ibv_wr_set_inline_data(&w->qp.ex, NULL, 0); }
static void inline_list_of_nothing(struct world *w) { ibv_wr_set_inline_data_list(&w->qp.ex, 0, NULL); }
static void address_on_rc(struct world *w)
{
	struct smx_dv_ah ah = { 0 };

	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_ud_addr(&w->qp.ex, &ah.ibv, 1, 1);
}
static void too_many_sges(struct world *w)
{
	struct ibv_sge five[5] = { good_sge, good_sge, good_sge, good_sge, good_sge };

	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_sge_list(&w->qp.ex, 5, five);
}
static void sge_bit31(struct world *w)
{
	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 0x80000000);
}
static void sge_list_bit31(struct world *w)
{
	struct ibv_sge two[2] = { good_sge, { .length = 0xffffffff } };

	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_sge_list(&w->qp.ex, 2, two);
}
static void too_much_inline(struct world *w)
{
	static uint8_t data[4096];

	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_inline_data(&w->qp.ex, data, w->qp.sq.max_inline + 1);
}
static void inline_list_that_wraps(struct world *w)
{
	static uint8_t data[4096];
	struct ibv_data_buf two[2] = { { data, 8 }, { data, SIZE_MAX } };

	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_inline_data_list(&w->qp.ex, 2, two);
}
static void umr_without_inline(struct world *w)
{
	flags(w, 0);
	mlx5dv_wr_mr_list(&w->qp.dv, &mkey.dv, 0, 0, NULL);
}
static void umr_overrides(struct world *w)
{
	sge_bit31(w);
	umr_without_inline(w);
}
static void configure(struct world *w, struct smx_dv_mkey *k, uint8_t setters, uint32_t conf, uint64_t comp)
{
	struct mlx5dv_mkey_conf_attr attr = { .conf_flags = conf, .comp_mask = comp };

	flags(w, IBV_SEND_INLINE);
	mlx5dv_wr_mkey_configure(&w->qp.dv, &k->dv, setters, &attr);
}
static void conf_flags(struct world *w) { configure(w, &mkey, 0, 2, 0); }
static void conf_mask(struct world *w) { configure(w, &mkey, 0, 0, 1); }
static void tag(struct world *w) { configure(w, &tagged, 0, 0, 0); }
static void few_setters(struct world *w)
{
	configure(w, &mkey, 2, 0, 0);
	mlx5dv_wr_set_mkey_access_flags(&w->qp.dv, 1);
}
static void few_setters_then_next(struct world *w)
{
	few_setters(w);
	ibv_wr_local_inv(&w->qp.ex, 3);
}
static void setter_without_configure(struct world *w) { mlx5dv_wr_set_mkey_access_flags(&w->qp.dv, 1); }
static void layout_without_configure(struct world *w) { mlx5dv_wr_set_mkey_layout_list(&w->qp.dv, 1, &good_sge); }
static void access_twice(struct world *w)
{
	few_setters(w);
	mlx5dv_wr_set_mkey_access_flags(&w->qp.dv, 1);
}
static void layout_twice(struct world *w)
{
	configure(w, &mkey, 2, 0, 0);
	mlx5dv_wr_set_mkey_layout_list(&w->qp.dv, 0, NULL);
	mlx5dv_wr_set_mkey_layout_list(&w->qp.dv, 1, &good_sge);
}
static void setter_too_many(struct world *w)
{
	configure(w, &mkey, 1, 0, 0);
	mlx5dv_wr_set_mkey_access_flags(&w->qp.dv, 1);
	mlx5dv_wr_set_mkey_layout_list(&w->qp.dv, 1, &good_sge);
}
static void access_unknown(struct world *w)
{
	configure(w, &mkey, 1, 0, 0);
	mlx5dv_wr_set_mkey_access_flags(&w->qp.dv, IBV_ACCESS_MW_BIND);
}
static void list_too_long(struct world *w)
{
	struct ibv_sge five[5] = { { 0 } };

	flags(w, IBV_SEND_INLINE);
	mlx5dv_wr_mr_list(&w->qp.dv, &mkey.dv, 0, 5, five);
}
static void no_entry_for_the_header(struct world *w)
{
	struct mlx5dv_mr_interleaved four[4] = { { 0 } };

	flags(w, IBV_SEND_INLINE);
	mlx5dv_wr_mr_interleaved(&w->qp.dv, &mkey.dv, 0, 1, 4, four);
}
static void stride_over_16_bits(struct world *w)
{
	struct mlx5dv_mr_interleaved one = { 0, 1, 0xffff, 1 };

	flags(w, IBV_SEND_INLINE);
	mlx5dv_wr_mr_interleaved(&w->qp.dv, &mkey.dv, 0, 1, 1, &one);
}
static void stride_that_wraps(struct world *w)
{
	struct mlx5dv_mr_interleaved one = { 0, 0xffffffff, 2, 1 };

	flags(w, IBV_SEND_INLINE);
	mlx5dv_wr_mr_interleaved(&w->qp.dv, &mkey.dv, 0, 1, 1, &one);
}
static void signature_setter(struct world *w)
{
	configure(w, &mkey, 1, 0, 0);
	mlx5dv_wr_set_mkey_sig_block(&w->qp.dv, NULL);
}
static void crypto_setter(struct world *w)
{
	configure(w, &mkey, 1, 0, 0);
	mlx5dv_wr_set_mkey_crypto(&w->qp.dv, NULL);
}
static void bind_too_long(struct world *w)
{
	struct ibv_mr mr = { .lkey = 1 };
	struct ibv_mw mw = { .rkey = 2 };
	struct ibv_mw_bind_info info = { .mr = &mr, .length = (1ull << 31) + 1 };

	ibv_wr_bind_mw(&w->qp.ex, &mw, 3, &info);
}
static void bind_to_nothing(struct world *w)
{
	struct ibv_mw mw = { .rkey = 2 };
	struct ibv_mw_bind_info info = { .length = 1 };

	ibv_wr_bind_mw(&w->qp.ex, &mw, 3, &info);
}
static void memcpy_of_nothing(struct world *w) { mlx5dv_wr_memcpy(&w->qp.dv, 1, 2, 3, 4, 0); }
static void memcpy_too_long(struct world *w) { mlx5dv_wr_memcpy(&w->qp.dv, 1, 2, 3, 4, (1 << 24) + 1); }
static void raw(struct world *w, uint32_t ds)
{
	uint8_t wqe[1024] = { 0 };

	wqe[7] = (uint8_t)ds;
	mlx5dv_wr_raw_wqe(&w->qp.dv, wqe);
}
static void raw_empty(struct world *w) { raw(w, 0); }
static void raw_without_room(struct world *w)
{
	for (int i = 0; i < 4; i++)
		raw(w, 63);
}
static void tso(struct world *w) { ibv_wr_send_tso(&w->qp.ex, NULL, 0, 0); }
static void dc_address_on_rc(struct world *w)
{
	struct smx_dv_ah ah = { 0 };

	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
	mlx5dv_wr_set_dc_addr(&w->qp.dv, &ah.ibv, 1, 1);
}
static void xrc_on_rc(struct world *w)
{
	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_xrc_srqn(&w->qp.ex, 1);
}
static void start_again(struct world *w) { ibv_wr_start(&w->qp.ex); }

static const struct misuse {
	const char *name;
	void (*batch)(struct world *w);
	int err;
	enum smx_check check;
} misuses[] = {
	{ "no data setter", no_data, EINVAL, SMX_CHECK_POST_SETTER },
	{ "no data setter before the next", no_data_then_next, EINVAL, SMX_CHECK_POST_SETTER },
	{ "data setter twice", data_twice, EINVAL, SMX_CHECK_POST_SETTER },
	{ "data setter of no request", data_of_nothing, EINVAL, SMX_CHECK_POST_SETTER },
	{ "inline setter of no request", inline_of_nothing, EINVAL, SMX_CHECK_POST_SETTER },
	{ "inline list of no request", inline_list_of_nothing, EINVAL, SMX_CHECK_POST_SETTER },
	{ "UD address on RC", address_on_rc, EINVAL, SMX_CHECK_POST_SETTER },
	{ "DC address on RC", dc_address_on_rc, EINVAL, SMX_CHECK_POST_SETTER },
	{ "XRC SRQ on RC", xrc_on_rc, EINVAL, SMX_CHECK_POST_SETTER },
	{ "too many SGEs", too_many_sges, ENOMEM, SMX_CHECK_POST_SGE },
	{ "SGE length bit 31", sge_bit31, EINVAL, SMX_CHECK_POST_SGE_LENGTH },
	{ "bit 31 in a list", sge_list_bit31, EINVAL, SMX_CHECK_POST_SGE_LENGTH },
	{ "too much inline data", too_much_inline, ENOMEM, SMX_CHECK_POST_INLINE },
	{ "inline lengths that wrap", inline_list_that_wraps, ENOMEM, SMX_CHECK_POST_INLINE },
	{ "UMR without IBV_SEND_INLINE", umr_without_inline, EOPNOTSUPP, SMX_CHECK_POST_UMR_INLINE },
	{ "UMR error overrides", umr_overrides, EOPNOTSUPP, SMX_CHECK_POST_UMR_INLINE },
	{ "unknown conf_flags", conf_flags, EOPNOTSUPP, SMX_CHECK_POST_UMR_CONF },
	{ "unknown comp_mask", conf_mask, EOPNOTSUPP, SMX_CHECK_POST_UMR_CONF },
	{ "tag without permission", tag, EOPNOTSUPP, SMX_CHECK_POST_UMR_TAG },
	{ "fewer setters than declared", few_setters, EINVAL, SMX_CHECK_POST_SETTER },
	{ "fewer setters before the next", few_setters_then_next, EINVAL, SMX_CHECK_POST_SETTER },
	{ "access setter alone", setter_without_configure, EINVAL, SMX_CHECK_POST_SETTER },
	{ "layout setter alone", layout_without_configure, EINVAL, SMX_CHECK_POST_SETTER },
	{ "access setter twice", access_twice, EINVAL, SMX_CHECK_POST_SETTER },
	{ "layout setter twice", layout_twice, EINVAL, SMX_CHECK_POST_SETTER },
	{ "more setters than declared", setter_too_many, EINVAL, SMX_CHECK_POST_SETTER },
	{ "access flag that no mkey has", access_unknown, EINVAL, SMX_CHECK_POST_UMR_ACCESS },
	{ "list longer than the mkey", list_too_long, ENOMEM, SMX_CHECK_POST_UMR_ENTRIES },
	{ "no entry for the header", no_entry_for_the_header, ENOMEM, SMX_CHECK_POST_UMR_ENTRIES },
	{ "stride over 16 bits", stride_over_16_bits, EINVAL, SMX_CHECK_POST_UMR_FIELD },
	{ "stride that wraps 32 bits", stride_that_wraps, EINVAL, SMX_CHECK_POST_UMR_FIELD },
	{ "signature setter", signature_setter, EOPNOTSUPP, SMX_CHECK_NOT_OFFERED },
	{ "crypto setter", crypto_setter, EOPNOTSUPP, SMX_CHECK_NOT_OFFERED },
	{ "bind over 2 GiB", bind_too_long, EOPNOTSUPP, SMX_CHECK_POST_BIND_LENGTH },
	{ "bind without region", bind_to_nothing, EINVAL, SMX_CHECK_OBJECT_ARG },
	{ "memcpy of 0 bytes", memcpy_of_nothing, EINVAL, SMX_CHECK_POST_MEMCPY_LENGTH },
	{ "memcpy too long", memcpy_too_long, EINVAL, SMX_CHECK_POST_MEMCPY_LENGTH },
	{ "raw WQE of no segments", raw_empty, EINVAL, SMX_CHECK_POST_RAW_LENGTH },
	{ "raw WQEs beyond the free blocks", raw_without_room, ENOMEM, SMX_CHECK_POST_SQ_FULL },
	{ "TSO", tso, EINVAL, SMX_CHECK_POST_OPS_FLAGS },
	{ "start within a batch", start_again, EINVAL, SMX_CHECK_POST_BATCH_OPEN },
};

static void a_wrong_batch_leaves_no_trace_and_says_why(void **state)
{
	(void)state;

	for (size_t i = 0; i < SMX_COUNT(misuses); i++) {
		const struct misuse *m = &misuses[i];
		struct world *w = world_rc();

		print_message("%s\n", m->name);
		assert_int_equal(world_write(w, 1), 0);
		w->qp.sq.fm_cache = SMX_CTRL_SMALL_FENCE;
		ibv_wr_start(&w->qp.ex);
		flags(w, 0);
		ibv_wr_rdma_write(&w->qp.ex, 0x200, 0x1000);
		ibv_wr_set_sge(&w->qp.ex, 0x100, 0x2000, 8);
		m->batch(w);
		assert_int_equal(ibv_wr_complete(&w->qp.ex), m->err);
		assert_refused(w, m->check);
		assert_int_equal(w->qp.sq.cur_post, 1);
		assert_int_equal(w->qp.sq.head, 1);
		assert_int_equal(w->qp.sq.fm_cache, SMX_CTRL_SMALL_FENCE);
		assert_int_equal(be32_load_acquire(&w->qp_dbrec[SMX_DBREC_SND]), 1);
		assert_int_equal(w->rung_sq, 1);
		assert_int_equal(w->qp.sq.lock.word, 0);
		/* and the queue goes on as if nothing had been */
		assert_int_equal(world_write(w, 2), 0);
		assert_int_equal(world_wqe(w, 1)->fm_ce_se, SMX_CTRL_CQ_UPDATE | SMX_CTRL_SMALL_FENCE);
		assert_int_equal(w->qp.sq.cur_post, 2);
		world_free(w);
	}
}

static void only_the_first_failure_is_told(void **state)
{
	struct world *w = world_rc();
	uint64_t before = w->log.count;
	(void)state;

	ibv_wr_start(&w->qp.ex);
	sge_bit31(w);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
	memcpy_of_nothing(w);
	signature_setter(w);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), EINVAL);
	assert_int_equal(w->log.count, before + 1);
	assert_refused(w, SMX_CHECK_POST_SGE_LENGTH);
	world_free(w);
}

static void calls_outside_a_batch_are_refused(void **state)
{
	struct world *w = world_rc();
	(void)state;

	ibv_wr_send(&w->qp.ex);
	assert_refused(w, SMX_CHECK_POST_NOT_STARTED);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
	assert_refused(w, SMX_CHECK_POST_NOT_STARTED);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), EINVAL);
	assert_refused(w, SMX_CHECK_POST_NOT_STARTED);
	ibv_wr_abort(&w->qp.ex);
	assert_refused(w, SMX_CHECK_POST_NOT_STARTED);
	assert_int_equal(w->qp.sq.cur_post, 0);
	assert_int_equal(world_write(w, 1), 0);
	world_free(w);
}

static void an_aborted_batch_never_was(void **state)
{
	struct world *w = world_rc();
	(void)state;

	assert_int_equal(world_write(w, 1), 0);
	ibv_wr_start(&w->qp.ex);
	ibv_wr_local_inv(&w->qp.ex, 1);
	ibv_wr_send(&w->qp.ex);
	ibv_wr_abort(&w->qp.ex);
	assert_int_equal(w->qp.sq.cur_post, 1);
	assert_int_equal(w->qp.sq.fm_cache, 0);
	assert_int_equal(w->rung_sq, 1);
	assert_int_equal(world_write(w, 2), 0);
	assert_int_equal(w->qp.sq.cur_post, 2);
	world_free(w);
}

static void a_failure_ends_with_its_batch(void **state)
{
	struct world *w = world_rc();
	(void)state;

	ibv_wr_start(&w->qp.ex);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
	ibv_wr_abort(&w->qp.ex);
	assert_int_equal(world_write(w, 1), 0);
	ibv_wr_start(&w->qp.ex);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), EINVAL);
	assert_int_equal(world_write(w, 2), 0);
	ibv_wr_start(&w->qp.ex);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
	ibv_wr_start(&w->qp.ex);	/* refused, and the batch before is gone */
	assert_int_equal(ibv_wr_complete(&w->qp.ex), EINVAL);
	assert_int_equal(world_write(w, 3), 0);
	assert_int_equal(w->qp.sq.cur_post, 3);
	world_free(w);
}

static void an_empty_batch_rings_nothing(void **state)
{
	struct world *w = world_rc();
	(void)state;

	ibv_wr_start(&w->qp.ex);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	assert_int_equal(w->rung_sq, 0);
	world_free(w);
}

static void before_rts_nothing_is_posted(void **state)
{
	struct world *w = world_rc();
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	(void)state;

	w->qp.can_post = false;
	assert_int_equal(world_write(w, 1), EINVAL);
	assert_refused(w, SMX_CHECK_POST_STATE);
	assert_int_equal(smx_dv_post_send(&w->qp.ex.qp_base, &wr, &bad), ENOMEM);
	assert_refused(w, SMX_CHECK_POST_STATE);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(w->qp.sq.cur_post, 0);
	world_free(w);
}

static void post_send_inside_a_batch_is_refused_not_a_deadlock(void **state)
{
	struct world *w = world_rc();
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	(void)state;

	ibv_wr_start(&w->qp.ex);
	assert_int_equal(smx_dv_post_send(&w->qp.ex.qp_base, &wr, &bad), EINVAL);
	assert_refused(w, SMX_CHECK_POST_BATCH_OPEN);
	assert_ptr_equal(bad, &wr);
	ibv_wr_abort(&w->qp.ex);
	assert_int_equal(smx_dv_post_send(&w->qp.ex.qp_base, &wr, &bad), 0);
	world_free(w);
}

/* What was not asked for at creation is refused by name, on each kind. */
static void operations_not_asked_for_are_refused(void **state)
{
	struct ibv_qp_cap cap = { .max_send_wr = 4, .max_send_sge = 1 };
	struct world *w = world_new(SMX_DV_RC, IBV_QP_EX_WITH_SEND, 0, &cap);
	struct ibv_mw mw = { 0 };
	struct ibv_mw_bind_info info = { 0 };
	uint8_t wqe[16] = { [7] = 1 };
	(void)state;

#define REFUSED(call) do {					\
		ibv_wr_start(&w->qp.ex);			\
		flags(w, IBV_SEND_INLINE);			\
		call;						\
		assert_int_equal(ibv_wr_complete(&w->qp.ex), EINVAL);	\
		assert_refused(w, SMX_CHECK_POST_OPS_FLAGS);	\
	} while (0)
	REFUSED(ibv_wr_send_imm(&w->qp.ex, 0));
	REFUSED(ibv_wr_rdma_write(&w->qp.ex, 0, 0));
	REFUSED(ibv_wr_rdma_write_imm(&w->qp.ex, 0, 0, 0));
	REFUSED(ibv_wr_rdma_read(&w->qp.ex, 0, 0));
	REFUSED(ibv_wr_atomic_cmp_swp(&w->qp.ex, 0, 0, 0, 0));
	REFUSED(ibv_wr_atomic_fetch_add(&w->qp.ex, 0, 0, 0));
	REFUSED(ibv_wr_bind_mw(&w->qp.ex, &mw, 0, &info));
	REFUSED(ibv_wr_local_inv(&w->qp.ex, 0));
	REFUSED(mlx5dv_wr_mr_list(&w->qp.dv, &mkey.dv, 0, 0, NULL));
	REFUSED(mlx5dv_wr_mr_interleaved(&w->qp.dv, &mkey.dv, 0, 0, 0, NULL));
	REFUSED(configure(w, &mkey, 0, 0, 0));
	REFUSED(mlx5dv_wr_raw_wqe(&w->qp.dv, wqe));
	REFUSED(mlx5dv_wr_memcpy(&w->qp.dv, 1, 2, 3, 4, 5));
	w->qp.send_ops = IBV_QP_EX_WITH_RDMA_WRITE;
	REFUSED(ibv_wr_send(&w->qp.ex));
	REFUSED(ibv_wr_send_inv(&w->qp.ex, 0));
#undef REFUSED
	/* SEND brings SEND_WITH_INV along */
	w->qp.send_ops = IBV_QP_EX_WITH_SEND;
	ibv_wr_start(&w->qp.ex);
	ibv_wr_send_inv(&w->qp.ex, 0x123);
	ibv_wr_set_sge_list(&w->qp.ex, 0, NULL);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	assert_int_equal(from_be32(world_wqe(w, 0)->imm), 0x123);
	world_free(w);
}

static const struct { enum smx_dv_qp_kind kind; uint64_t send_ops, dv_ops; int err; } kinds[] = {
	{ SMX_DV_RC, OPS_RC, DV_OPS_RC, 0 },
	{ SMX_DV_RC, IBV_QP_EX_WITH_TSO, 0, EOPNOTSUPP },
	{ SMX_DV_RC, 1ull << 40, 0, EOPNOTSUPP },
	{ SMX_DV_RC, IBV_QP_EX_WITH_SEND, 1ull << 40, EOPNOTSUPP },
	{ SMX_DV_UC, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW, MLX5DV_QP_EX_WITH_RAW_WQE, 0 },
	{ SMX_DV_UC, IBV_QP_EX_WITH_RDMA_READ, 0, EOPNOTSUPP },
	{ SMX_DV_UC, IBV_QP_EX_WITH_SEND, MLX5DV_QP_EX_WITH_MEMCPY, EOPNOTSUPP },
	{ SMX_DV_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM, MLX5DV_QP_EX_WITH_RAW_WQE, 0 },
	{ SMX_DV_UD, IBV_QP_EX_WITH_RDMA_WRITE, 0, EOPNOTSUPP },
	{ SMX_DV_UD, IBV_QP_EX_WITH_LOCAL_INV, 0, EOPNOTSUPP },
	{ SMX_DV_XRC_INI, OPS_RC, MLX5DV_QP_EX_WITH_RAW_WQE, 0 },
	{ SMX_DV_XRC_INI, OPS_RC, MLX5DV_QP_EX_WITH_MR_LIST, EOPNOTSUPP },
	{ SMX_DV_DCI, OPS_RC, MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY, 0 },
	{ SMX_DV_DCI, OPS_RC, MLX5DV_QP_EX_WITH_MR_INTERLEAVED, EOPNOTSUPP },
	{ SMX_DV_DCT, 0, 0, 0 },
	{ SMX_DV_DCT, IBV_QP_EX_WITH_SEND, 0, EOPNOTSUPP },
	{ SMX_DV_XRC_TGT, IBV_QP_EX_WITH_SEND, 0, EOPNOTSUPP },
};

static void creation_refuses_what_a_kind_cannot_do(void **state)
{
	struct world *w = world_rc();
	(void)state;

	for (size_t i = 0; i < SMX_COUNT(kinds); i++) {
		struct smx_dv_qp qp = { .kind = kinds[i].kind, .send_ops = kinds[i].send_ops,
					.dv_ops = kinds[i].dv_ops, .atomics = true, .refusals = &w->log };

		assert_int_equal(smx_dv_qp_fill_ops(&qp), kinds[i].err);
		if (kinds[i].err)
			assert_refused(w, SMX_CHECK_SEND_OPS);
		else
			assert_non_null(qp.ex.wr_start);
	}
	w->qp.atomics = false;
	assert_int_equal(smx_dv_qp_fill_ops(&w->qp), EOPNOTSUPP);
	world_free(w);
}

/* Address and data in either order give the same bytes. */
static void the_address_may_come_first_or_last(void **state)
{
	static const enum smx_dv_qp_kind kind[] = { SMX_DV_UD, SMX_DV_DCI, SMX_DV_XRC_INI };
	(void)state;

	for (size_t k = 0; k < SMX_COUNT(kind); k++) {
		uint8_t wqe[2][128];

		for (int first = 0; first < 2; first++) {
			struct ibv_qp_cap cap = { .max_send_wr = 4, .max_send_sge = 2, .max_inline_data = 16 };
			struct world *w = world_new(kind[k], IBV_QP_EX_WITH_SEND, 0, &cap);
			struct smx_dv_ah ah = { .av.rlid = to_be16(0x4242), .av.hop_limit = 9 };

			memset(w->qp.sq.buf, 0xee, w->qp.sq.bb_count * SMX_WQE_BB);
			ibv_wr_start(&w->qp.ex);
			ibv_wr_send(&w->qp.ex);
			for (int step = 0; step < 2; step++) {
				if (step == first)
					ibv_wr_set_inline_data(&w->qp.ex, "0123456789", 10);
				else if (kind[k] == SMX_DV_UD)
					ibv_wr_set_ud_addr(&w->qp.ex, &ah.ibv, 0x111, 0x222);
				else if (kind[k] == SMX_DV_DCI)
					mlx5dv_wr_set_dc_addr_stream(&w->qp.dv, &ah.ibv, 0x111, 0x222333444, 3);
				else
					ibv_wr_set_xrc_srqn(&w->qp.ex, 0x77);
			}
			assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
			memcpy(wqe[first], w->qp.sq.buf, sizeof(wqe[first]));
			world_free(w);
		}
		assert_memory_equal(wqe[0], wqe[1], sizeof(wqe[0]));
		if (kind[k] == SMX_DV_XRC_INI)
			assert_int_equal(from_be32(((struct smx_wqe_xrc *)(wqe[0] + 16))->srqn), 0x77);
		else
			assert_int_equal(from_be32(((struct smx_wqe_av *)(wqe[0] + 16))->dqp_dct), 0x80000111);
		assert_int_equal(wqe[0][10], kind[k] == SMX_DV_DCI ? 3 : 0);
	}
}

static void an_address_is_needed_and_must_be_one(void **state)
{
	struct ibv_qp_cap cap = { .max_send_wr = 4, .max_send_sge = 2 };
	struct world *w = world_new(SMX_DV_DCI, OPS_RC, MLX5DV_QP_EX_WITH_MEMCPY, &cap);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct smx_dv_ah ah = { 0 };
	(void)state;

	assert_int_equal(world_write(w, 1), EINVAL);
	assert_refused(w, SMX_CHECK_POST_DC_ADDR);
	ibv_wr_start(&w->qp.ex);
	ibv_wr_send(&w->qp.ex);
	mlx5dv_wr_set_dc_addr(&w->qp.dv, NULL, 1, 2);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), EINVAL);
	assert_refused(w, SMX_CHECK_POST_DC_ADDR);
	ibv_wr_start(&w->qp.ex);
	ibv_wr_send(&w->qp.ex);
	mlx5dv_wr_set_dc_addr(&w->qp.dv, &ah.ibv, 1, 2);
	mlx5dv_wr_set_dc_addr(&w->qp.dv, &ah.ibv, 1, 2);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), EINVAL);
	assert_refused(w, SMX_CHECK_POST_SETTER);
	ibv_wr_start(&w->qp.ex);
	ibv_wr_send(&w->qp.ex);
	ibv_wr_set_sge(&w->qp.ex, 1, 2, 3);
	ibv_wr_set_ud_addr(&w->qp.ex, &ah.ibv, 1, 2);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), EINVAL);
	assert_refused(w, SMX_CHECK_POST_SETTER);
	assert_int_equal(smx_dv_post_send(&w->qp.ex.qp_base, &wr, &bad), EINVAL);
	assert_refused(w, SMX_CHECK_POST_DC_ADDR);
	/* these have none */
	ibv_wr_start(&w->qp.ex);
	ibv_wr_local_inv(&w->qp.ex, 5);
	mlx5dv_wr_memcpy(&w->qp.dv, 1, 2, 3, 4, 5);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	world_free(w);
}

/* A raw WQE may be longer than the size planned as long as there is room; what comes behind it finds only
 * what is left. */
static void a_long_raw_wqe_takes_its_blocks(void **state)
{
	struct ibv_qp_cap cap = { .max_send_wr = 16, .max_send_sge = 1 };
	struct world *w = world_new(SMX_DV_RC, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
				    MLX5DV_QP_EX_WITH_RAW_WQE, &cap);
	struct ibv_wc wc;
	int posted = 0;
	(void)state;

	assert_int_equal(w->qp.sq.bb_count, 16);
	ibv_wr_start(&w->qp.ex);
	w->qp.ex.wr_id = 77;
	raw(w, 40);	/* ten blocks */
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	while (!world_write(w, 1))
		posted++;
	assert_int_equal(posted, 6);
	assert_refused(w, SMX_CHECK_POST_SQ_FULL);
	world_done(w, 0, SMX_OP_NOP);
	assert_int_equal(world_poll(w, 1, &wc), 1);
	assert_int_equal(wc.opcode, MLX5DV_WC_RAW_WQE);
	assert_int_equal(wc.wr_id, 77);
	posted = 0;
	while (!world_write(w, 1))
		posted++;
	assert_int_equal(posted, 10);
	world_free(w);
}

static void a_raw_wqe_longer_than_the_ring_is_refused(void **state)
{
	struct ibv_qp_cap cap = { .max_send_wr = 2, .max_send_sge = 1 };
	struct world *w = world_new(SMX_DV_RC, IBV_QP_EX_WITH_SEND, MLX5DV_QP_EX_WITH_RAW_WQE, &cap);
	(void)state;

	assert_int_equal(w->qp.sq.bb_count, 2);
	ibv_wr_start(&w->qp.ex);
	raw(w, 9);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), EINVAL);
	assert_refused(w, SMX_CHECK_POST_RAW_LENGTH);
	ibv_wr_start(&w->qp.ex);
	raw(w, 8);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	ibv_wr_start(&w->qp.ex);
	raw(w, 1);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), ENOMEM);
	assert_refused(w, SMX_CHECK_POST_SQ_FULL);
	world_free(w);
}

static void a_queue_pair_without_send_queue_is_full(void **state)
{
	struct ibv_qp_cap cap = { .max_recv_wr = 1, .max_recv_sge = 1 };
	struct world *w = world_new(SMX_DV_RC, OPS_RC, 0, &cap);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	(void)state;

	assert_int_equal(world_write(w, 1), ENOMEM);
	assert_int_equal(smx_dv_post_send(&w->qp.ex.qp_base, &wr, &bad), ENOMEM);
	assert_refused(w, SMX_CHECK_POST_SQ_FULL);
	world_free(w);
}

static void reset_forgets_all(void **state)
{
	struct world *w = world_rc();
	(void)state;

	ibv_wr_start(&w->qp.ex);
	ibv_wr_local_inv(&w->qp.ex, 1);
	assert_int_equal(ibv_wr_complete(&w->qp.ex), 0);
	w->qp.rq.head = 3;
	w->qp.sq.slot[2].done = true;	/* a stream that had gone ahead */
	smx_dv_qp_reset(&w->qp);
	assert_false(w->qp.sq.slot[2].done);
	assert_int_equal(w->qp.sq.cur_post | w->qp.sq.head | w->qp.sq.tail | w->qp.sq.tail_bb, 0);
	assert_int_equal(w->qp.rq.head | w->qp.rq.tail, 0);
	assert_int_equal(w->qp.sq.fm_cache, SMX_CTRL_SMALL_FENCE);	/* stays, as in libmlx5 */
	assert_int_equal(w->qp_dbrec[0] | w->qp_dbrec[1], 0);
	assert_int_equal(world_write(w, 1), 0);
	assert_int_equal(w->qp.sq.cur_post, 1);
	world_free(w);
}

/* Room that was worked out before a RESET is none afterwards. */
static void a_queue_that_was_reset_takes_no_more_than_it_has(void **state)
{
	struct world *w = world_rc();
	uint32_t posted = 0;
	(void)state;

	world_sq_at(w, 0, 1000);
	assert_int_equal(world_write(w, 1), 0);
	smx_dv_qp_reset(&w->qp);
	while (posted <= w->qp.sq.max_post && !world_write(w, 1))
		posted++;
	assert_int_equal(posted, w->qp.sq.max_post);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_queue_refuses_and_overwrites_nothing),
		cmocka_unit_test(the_index_wraps_at_16_bits),
		cmocka_unit_test(long_requests_wrap),
		cmocka_unit_test(a_wrong_batch_leaves_no_trace_and_says_why),
		cmocka_unit_test(only_the_first_failure_is_told),
		cmocka_unit_test(calls_outside_a_batch_are_refused),
		cmocka_unit_test(an_aborted_batch_never_was),
		cmocka_unit_test(a_failure_ends_with_its_batch),
		cmocka_unit_test(room_that_comes_back_inside_a_batch_is_seen),
		cmocka_unit_test(every_wqe_of_a_signed_queue_is_signed_when_it_is_rung),
		cmocka_unit_test(an_empty_batch_rings_nothing),
		cmocka_unit_test(before_rts_nothing_is_posted),
		cmocka_unit_test(post_send_inside_a_batch_is_refused_not_a_deadlock),
		cmocka_unit_test(operations_not_asked_for_are_refused),
		cmocka_unit_test(creation_refuses_what_a_kind_cannot_do),
		cmocka_unit_test(the_address_may_come_first_or_last),
		cmocka_unit_test(an_address_is_needed_and_must_be_one),
		cmocka_unit_test(a_long_raw_wqe_takes_its_blocks),
		cmocka_unit_test(a_raw_wqe_longer_than_the_ring_is_refused),
		cmocka_unit_test(a_queue_pair_without_send_queue_is_full),
		cmocka_unit_test(reset_forgets_all),
		cmocka_unit_test(a_queue_that_was_reset_takes_no_more_than_it_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
