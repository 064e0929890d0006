/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: every WQE shape is decoded, wherever in the ring it lies, and no bytes make the decoder read outside it.
 * Method: WQEs made by hand, segment by segment, at every block of a ring that stands between guard pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/mman.h>

#include "base/prng.h"
#include "dev/sq_fetch.h"

enum { BBS = 64, QPN = 0x456 };	/* one page */

static struct smx_refusal_log log_;
static struct smx_dev dev = { .attr = { .memcpy_max_bytes = 1 << 20, .env.refusals = &log_ } };
static struct smx_qp qp;
static uint8_t *ring;
static struct smx_send_req req;

/* A WQE being made at block counter at. */
static uint32_t at, ds;

static int set_up(void **state)
{
	uint8_t *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	mprotect(pages, 4096, PROT_NONE);
	mprotect(pages + 2 * 4096, 4096, PROT_NONE);
	ring = pages + 4096;
	return 0;
}

static void new_ring(enum smx_qp_type type)
{
	memset(ring, 0, BBS * 64);
	memset(&qp, 0, sizeof(qp));
	memset(&req, 0xa5, sizeof(req));
	qp.attr.type = type;
	qp.qpn = QPN;
	qp.sq.buf = ring;
	qp.sq.bb_count = BBS;
}

static void *seg(uint32_t index)
{
	return ring + (at * 64 + index * 16) % (BBS * 64);
}

static void begin(uint32_t where, uint8_t opcode, uint8_t opmod)
{
	struct smx_wqe_ctrl *ctrl;

	at = where;
	ds = 1;
	ctrl = seg(0);
	*ctrl = (struct smx_wqe_ctrl){
		.opmod_idx_opcode = to_be32((uint32_t)opmod << 24 | (at & 0xffff) << 8 | opcode),
		.fm_ce_se = 0x88,
		.dci_stream = to_be16(5),
		.imm = to_be32(0x01020304),
	};
}

static void add(const void *bytes)
{
	memcpy(seg(ds++), bytes, 16);
}

static void add_sge(uint32_t count, uint32_t key, uint64_t va)
{
	struct smx_wqe_data d = { to_be32(count), to_be32(key), to_be64(va) };

	add(&d);
}

static void add_raddr(void)
{
	struct smx_wqe_raddr r = { .va = to_be64(0x1122334455667788), .rkey = to_be32(0xabc01) };

	add(&r);
}

static void add_av(uint32_t dqp)
{
	struct smx_wqe_av av = { .dqp_dct = to_be32(dqp), .rgid = { 1, 2, 3 } };

	for (int i = 0; i < 3; i++)
		add((uint8_t *)&av + 16 * i);
}

static void end_as(uint32_t qpn, uint32_t length)
{
	((struct smx_wqe_ctrl *)seg(0))->qpn_ds = to_be32(qpn << 8 | length);
}

/* Rings exactly what was made. */
static smx_outcome fetch(void)
{
	end_as(QPN, ds);
	qp.sq.pi = at + (ds + 3) / 4;
	return smx_sq_fetch(&dev, &qp, at, &req);
}

static smx_outcome last_check(void)
{
	struct smx_refusal r;

	return smx_refusal_get(&log_, 0, &r) ? r.check : SMX_CHECK_NONE;
}

static void expect_sge(uint32_t i, uint32_t length, uint32_t key, uint64_t va)
{
	assert_true(i < req.sge_count);
	assert_int_equal(req.sge[i].length, length);
	assert_int_equal(req.sge[i].key, key);
	assert_int_equal(req.sge[i].va, va);
	assert_false(req.sge[i].is_host);
}

static void decodes_a_write_at_every_block(void **state)
{
	(void)state;
	for (uint32_t where = 0; where < 3 * BBS; where++) {
		new_ring(SMX_QP_RC);
		begin(where + 0xffc0, SMX_OP_RDMA_WRITE, 0);
		add_raddr();
		add_sge(100, 0x77700, 0xdeadbeef);
		assert_int_equal(fetch(), SMX_CHECK_NONE);
		assert_int_equal(req.index, (where + 0xffc0) & 0xffff);
		assert_int_equal(req.bb_count, 1);
		assert_int_equal(req.opcode, SMX_OP_RDMA_WRITE);
		assert_int_equal(req.fm_ce_se, 0x88);
		assert_int_equal(req.stream, 5);
		assert_memory_equal(&req.imm, "\1\2\3\4", 4);
		assert_int_equal(req.raddr, 0x1122334455667788);
		assert_int_equal(req.rkey, 0xabc01);
		assert_int_equal(req.length, 100);
		assert_int_equal(req.sge_count, 1);
		expect_sge(0, 100, 0x77700, 0xdeadbeef);
		assert_null(req.av);
	}
}

/* 20 SGEs are 5 blocks and a half: they cross the ring's end at every place. Empty ones are passed over. */
static void decodes_sge_lists_across_the_end(void **state)
{
	(void)state;
	for (uint32_t where = BBS - 7; where < BBS + 1; where++) {
		uint32_t k = 0;

		new_ring(SMX_QP_RC);
		begin(where, SMX_OP_SEND, 0);
		for (uint32_t i = 0; i < 20; i++)
			add_sge(i % 5 ? i : 0, i << 8, i * 1000);
		assert_int_equal(fetch(), SMX_CHECK_NONE);
		assert_int_equal(req.bb_count, 6);
		assert_int_equal(req.sge_count, 16);
		for (uint32_t i = 0; i < 20; i++) {
			if (i % 5)
				expect_sge(k++, i, i << 8, i * 1000);
		}
	}
}

static void decodes_inline_data_across_the_end(void **state)
{
	(void)state;
	for (uint32_t where = BBS - 5; where < BBS + 1; where++) {
		for (uint32_t length = 0; length < 260; length++) {
			uint32_t header = 0x80000000u | length, got = 0;

			new_ring(SMX_QP_RC);
			begin(where, SMX_OP_SEND, 0);
			add_sge(3, 0x100, 5);
			/* The header stands in segment 2; the bytes follow it at once. */
			ds += (length + 4 + 15) / 16;
			for (uint32_t i = 0; i < length; i++)
				((uint8_t *)ring)[(at * 64 + 36 + i) % (BBS * 64)] = (uint8_t)(i + 1);
			((struct smx_wqe_inline *)seg(2))->byte_count = to_be32(header);
			add_sge(4, 0x200, 6);
			assert_int_equal(fetch(), SMX_CHECK_NONE);
			assert_int_equal(req.length, length + 7);
			expect_sge(0, 3, 0x100, 5);
			for (uint32_t i = 1; i + 1 < req.sge_count; i++) {
				const uint8_t *p = (const uint8_t *)(uintptr_t)req.sge[i].va;

				assert_true(req.sge[i].is_host);
				assert_true(p >= ring && p + req.sge[i].length <= ring + BBS * 64);
				for (uint32_t b = 0; b < req.sge[i].length; b++, got++)
					assert_int_equal(p[b], (uint8_t)(got + 1));
			}
			assert_int_equal(got, length);
			expect_sge(req.sge_count - 1, 4, 0x200, 6);
		}
	}
}

static const struct address_row {
	const char *name;
	enum smx_qp_type type;
	bool av, xrc;
} addresses[] = {
	{ "UD", SMX_QP_UD, true, false },
	{ "DCI", SMX_QP_DCI, true, false },
	{ "XRC", SMX_QP_XRC_INI, false, true },
	{ "RC", SMX_QP_RC, false, false },
	{ "UC", SMX_QP_UC, false, false },
};

static void finds_the_address(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		struct smx_wqe_xrc xrc = { .srqn = to_be32(0xff000321) };

		print_message("%s\n", addresses[i].name);
		new_ring(addresses[i].type);
		begin(BBS - 1, SMX_OP_SEND_IMM, 0);
		if (addresses[i].av)
			add_av(SMX_AV_EXTENDED | 0x99);
		if (addresses[i].xrc)
			add(&xrc);
		add_sge(8, 0x500, 9);
		assert_int_equal(fetch(), SMX_CHECK_NONE);
		assert_int_equal(!!req.av, addresses[i].av);
		if (addresses[i].av)
			assert_memory_equal(req.av->rgid, "\1\2\3", 3);
		if (addresses[i].xrc)
			assert_int_equal(req.xrc_srqn, 0x321);
		expect_sge(0, 8, 0x500, 9);
	}
}

static const struct atomic_row {
	uint8_t opcode;
	enum smx_atomic_op op;
	uint64_t swap_add, compare, swap_mask, compare_mask;
} atomics[] = {
	{ SMX_OP_ATOMIC_CS, SMX_ATOMIC_CS, 11, 22, 0, 0 },
	{ SMX_OP_ATOMIC_FA, SMX_ATOMIC_FA, 11, 22, 0, 0 },
	{ SMX_OP_ATOMIC_MASKED_CS, SMX_ATOMIC_MASKED_CS, 11, 22, 33, 44 },
	{ SMX_OP_ATOMIC_MASKED_FA, SMX_ATOMIC_MASKED_FA, 11, 0, 0, 22 },
};

static void decodes_atomics(void **state)
{
	struct smx_wqe_atomic one = { to_be64(11), to_be64(22) }, two = { to_be64(33), to_be64(44) };

	(void)state;
	for (size_t i = 0; i < sizeof(atomics) / sizeof(atomics[0]); i++) {
		for (uint32_t length = 7; length < 10; length++) {
			new_ring(SMX_QP_RC);
			begin(BBS - 1, atomics[i].opcode, 0);
			add_raddr();
			add(&one);
			if (atomics[i].opcode == SMX_OP_ATOMIC_MASKED_CS)
				add(&two);
			add_sge(length, 0x600, 1);
			assert_int_equal(fetch(), length == 8 ? SMX_CHECK_NONE : SMX_CHECK_WQE_ATOMIC_LENGTH);
			assert_int_equal(req.atomic.op, atomics[i].op);
			assert_int_equal(req.atomic.swap_add, atomics[i].swap_add);
			assert_int_equal(req.atomic.compare, atomics[i].compare);
			assert_int_equal(req.atomic.swap_mask, atomics[i].swap_mask);
			assert_int_equal(req.atomic.compare_mask, atomics[i].compare_mask);
		}
	}
}

static void make_umr(uint32_t where, uint8_t flags, uint16_t octowords, uint16_t offset, uint32_t entries)
{
	struct smx_wqe_umr_ctrl ctrl = { .flags = flags, .klm_octowords = to_be16(octowords),
					 .xlt_offset = to_be16(offset), .mkey_mask = to_be64(0x77) };
	struct smx_wqe_mkey_ctx ctx = { .free = 1, .len = to_be64(4096) };

	begin(where, SMX_OP_UMR, 0);
	for (int i = 0; i < 3; i++)
		add((uint8_t *)&ctrl + 16 * i);
	for (int i = 0; i < 4; i++)
		add((uint8_t *)&ctx + 16 * i);
	for (uint32_t i = 0; i < entries; i++)
		add_sge(i + 1, i << 8, i);
}

static void decodes_umrs_across_the_end(void **state)
{
	(void)state;
	for (uint32_t where = BBS - 8; where < BBS + 1; where++) {
		for (uint32_t entries = 0; entries <= 52; entries += 4) {
			new_ring(SMX_QP_RC);
			make_umr(where, SMX_UMR_INLINE, (uint16_t)entries, 0, entries);
			assert_int_equal(fetch(), SMX_CHECK_NONE);
			assert_int_equal(req.umr.key, 0x01020304);
			assert_int_equal(from_be64(req.umr.ctrl.mkey_mask), 0x77);
			assert_int_equal(from_be64(req.umr.ctx.len), 4096);
			assert_int_equal(req.umr.entry_count, entries);
			assert_int_equal(req.umr.entry != NULL, entries > 0);
			for (uint32_t i = 0; i < entries; i++)
				assert_int_equal(from_be32(req.umr.entry[i].byte_count), i + 1);
		}
	}
}

static const struct umr_row {
	const char *name;
	uint8_t flags;
	uint16_t octowords, offset;
	uint32_t entries;
	smx_outcome want;
} umrs[] = {
	{ "local invalidate", 0x98, 0, 0, 0, SMX_CHECK_NONE },
	{ "octowords", SMX_UMR_INLINE, 3, 0, 4, SMX_CHECK_UMR_OCTOWORDS },
	{ "not inline", 0, 4, 0, 4, SMX_CHECK_WQE_LENGTH },
	{ "fewer entries than it says", SMX_UMR_INLINE, 8, 0, 4, SMX_CHECK_WQE_LENGTH },
	{ "signature", SMX_UMR_INLINE, 4, 4, 4, SMX_CHECK_WQE_LENGTH },
	{ "offset", SMX_UMR_INLINE | SMX_UMR_XLT_OFFSET, 4, 4, 4, SMX_CHECK_NONE },
};

static void refuses_malformed_umrs(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(umrs) / sizeof(umrs[0]); i++) {
		print_message("%s\n", umrs[i].name);
		new_ring(SMX_QP_RC);
		make_umr(3, umrs[i].flags, umrs[i].octowords, umrs[i].offset, umrs[i].entries);
		assert_int_equal(fetch(), umrs[i].want);
	}
}

static const struct mmo_row {
	const char *name;
	uint8_t opmod;
	uint32_t src, dst;
	uint64_t max, length;
	smx_outcome want;
} mmos[] = {
	{ "plain", 1, 4096, 4096, 1 << 20, 4096, SMX_CHECK_NONE },
	{ "longest", 1, 1 << 20, 1 << 20, 1 << 20, 1 << 20, SMX_CHECK_NONE },
	{ "too long", 1, (1 << 20) + 1, (1 << 20) + 1, 1 << 20, 0, SMX_CHECK_WQE_MMO },
	{ "0 is 2 GiB", 1, 0, 0, 1ull << 31, 1ull << 31, SMX_CHECK_NONE },
	{ "0 is too long", 1, 0, 0, (1ull << 31) - 1, 0, SMX_CHECK_WQE_MMO },
	{ "lengths differ", 1, 8, 9, 1 << 20, 0, SMX_CHECK_WQE_MMO },
	{ "another engine", 2, 8, 8, 1 << 20, 0, SMX_CHECK_WQE_MMO },
	{ "source inline", 1, 0x80000008, 8, 1 << 20, 0, SMX_CHECK_WQE_MMO },
	{ "destination inline", 1, 8, 0x80000008, 1 << 20, 0, SMX_CHECK_WQE_MMO },
};

static void decodes_dma_copies(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(mmos) / sizeof(mmos[0]); i++) {
		print_message("%s\n", mmos[i].name);
		new_ring(i % 2 ? SMX_QP_RC : SMX_QP_DCI);
		dev.attr.memcpy_max_bytes = mmos[i].max;
		begin(9, SMX_OP_MMO, mmos[i].opmod);
		add_sge(0, 0x1, 2);
		add_sge(mmos[i].src, 0x100, 10);
		add_sge(mmos[i].dst, 0x200, 20);
		assert_int_equal(fetch(), mmos[i].want);
		if (mmos[i].want)
			continue;
		assert_int_equal(req.length, mmos[i].length);
		assert_int_equal(req.sge_count, 2);
		assert_int_equal(req.sge[0].length, mmos[i].length);
		assert_int_equal(req.sge[0].key, 0x100);
		assert_int_equal(req.sge[1].key, 0x200);
		assert_int_equal(req.sge[1].va, 20);
	}
	dev.attr.memcpy_max_bytes = 1 << 20;
}

static const struct tag_row {
	const char *name;
	bool has_list;
	uint8_t op;
	uint32_t ds;	/* of the WQE */
	smx_outcome want;
} tags[] = {
	{ "append", true, SMX_TAG_OP_APPEND, 4, SMX_CHECK_NONE },
	{ "remove", true, SMX_TAG_OP_REMOVE, 3, SMX_CHECK_NONE },
	{ "append without a buffer", true, SMX_TAG_OP_APPEND, 3, SMX_CHECK_WQE_LENGTH },
	{ "cut off", true, SMX_TAG_OP_NOP, 2, SMX_CHECK_WQE_LENGTH },
	{ "unknown operation", true, 3, 3, SMX_CHECK_WQE_OPCODE },
	{ "no list", false, SMX_TAG_OP_NOP, 3, SMX_CHECK_WQE_TAG_QUEUE },
};

static void decodes_tag_list_operations(void **state)
{
	struct smx_srq plain = { 0 }, srq = { .tags = (void *)&plain };

	(void)state;
	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		struct smx_wqe_tag t = { .op = (uint8_t)(tags[i].op << 4), .flags = SMX_TAG_CQE, .index = to_be16(7),
					 .sw_count = to_be16(9), .tag = to_be64(0x1234), .mask = to_be64(0xffff) };

		print_message("%s\n", tags[i].name);
		new_ring(SMX_QP_RC);
		qp.attr.srq = tags[i].has_list ? &srq : &plain;
		begin(3, SMX_OP_TAG_MATCHING, 0);
		add(&t);
		add((uint8_t *)&t + 16);
		add_sge(64, 0x500, 40);
		ds = tags[i].ds;
		assert_int_equal(fetch(), tags[i].want);
		if (tags[i].want)
			continue;
		assert_int_equal(req.tag_op.op, tags[i].op);
		assert_int_equal(req.tag_op.flags, SMX_TAG_CQE);
		assert_int_equal(req.tag_op.index, 7);
		assert_int_equal(req.tag_op.sw_count, 9);
		assert_int_equal(req.tag_op.tag, 0x1234);
		assert_int_equal(req.tag_op.mask, 0xffff);
		assert_int_equal(req.tag_op.sge.length, tags[i].op == SMX_TAG_OP_APPEND ? 64 : 0);
		assert_int_equal(req.tag_op.sge.va, tags[i].op == SMX_TAG_OP_APPEND ? 40 : 0);
	}
	qp.attr.srq = NULL;
}

/* One thing wrong at a time with a WRITE of one SGE at block 5. */
static const struct bad_row {
	const char *name;
	enum smx_qp_type type;
	uint8_t opcode;
	uint32_t index, qpn, ds, rung_bb;
	smx_outcome want;
} bads[] = {
	{ "good", SMX_QP_RC, SMX_OP_RDMA_WRITE, 5, QPN, 3, 1, SMX_CHECK_NONE },
	{ "index of the next slot", SMX_QP_RC, SMX_OP_RDMA_WRITE, 6, QPN, 3, 1, SMX_CHECK_WQE_INDEX },
	{ "index 0", SMX_QP_RC, SMX_OP_RDMA_WRITE, 0, QPN, 3, 1, SMX_CHECK_WQE_INDEX },
	{ "another queue", SMX_QP_RC, SMX_OP_RDMA_WRITE, 5, QPN + 1, 3, 1, SMX_CHECK_WQE_QPN },
	{ "ds 0", SMX_QP_RC, SMX_OP_RDMA_WRITE, 5, QPN, 0, 1, SMX_CHECK_WQE_LENGTH },
	{ "longer than rung", SMX_QP_RC, SMX_OP_RDMA_WRITE, 5, QPN, 5, 1, SMX_CHECK_WQE_LENGTH },
	{ "no remote address", SMX_QP_RC, SMX_OP_RDMA_WRITE, 5, QPN, 1, 1, SMX_CHECK_WQE_LENGTH },
	{ "no data", SMX_QP_RC, SMX_OP_RDMA_WRITE, 5, QPN, 2, 1, SMX_CHECK_NONE },
	{ "unknown opcode", SMX_QP_RC, 0x3f, 5, QPN, 3, 1, SMX_CHECK_WQE_OPCODE },
	{ "opcode of another engine", SMX_QP_RC, SMX_OP_SET_PSV, 5, QPN, 3, 1, SMX_CHECK_WQE_OPCODE },
	{ "TSO", SMX_QP_RC, SMX_OP_TSO, 5, QPN, 3, 1, SMX_CHECK_WQE_QP_OPCODE },
	{ "write on UD", SMX_QP_UD, SMX_OP_RDMA_WRITE, 5, QPN, 3, 1, SMX_CHECK_WQE_QP_OPCODE },
	{ "read on UC", SMX_QP_UC, SMX_OP_RDMA_READ, 5, QPN, 3, 1, SMX_CHECK_WQE_QP_OPCODE },
	{ "address cut off", SMX_QP_DCI, SMX_OP_RDMA_WRITE, 5, QPN, 3, 1, SMX_CHECK_WQE_LENGTH },
	{ "atomic without operands", SMX_QP_RC, SMX_OP_ATOMIC_CS, 5, QPN, 2, 1, SMX_CHECK_WQE_LENGTH },
	{ "copy cut off", SMX_QP_RC, SMX_OP_MMO, 5, QPN, 3, 1, SMX_CHECK_WQE_LENGTH },
	{ "UMR cut off", SMX_QP_RC, SMX_OP_UMR, 5, QPN, 7, 2, SMX_CHECK_WQE_LENGTH },
	{ "nothing to do", SMX_QP_RC, SMX_OP_NOP, 5, QPN, 1, 1, SMX_CHECK_NONE },
};

static void refuses_malformed_wqes(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
		const struct bad_row *row = &bads[i];
		uint64_t before = log_.count;
		smx_outcome got;

		print_message("%s\n", row->name);
		new_ring(row->type);
		begin(5, row->opcode, row->opcode == SMX_OP_MMO);
		add_raddr();
		add_sge(8, 0x100, 0);
		((struct smx_wqe_ctrl *)seg(0))->opmod_idx_opcode =
			to_be32((row->opcode == SMX_OP_MMO) << 24 | row->index << 8 | row->opcode);
		end_as(row->qpn, row->ds);
		qp.sq.pi = 5 + row->rung_bb;
		got = smx_sq_fetch(&dev, &qp, 5, &req);
		assert_int_equal(got, row->want);
		assert_int_equal(log_.count - before, row->want != SMX_CHECK_NONE);
		if (row->want)
			assert_int_equal(last_check(), row->want);
		/* What a completion needs is there in any case. */
		assert_int_equal(req.index, 5);
		assert_int_equal(req.bb_count, row->ds ? (row->ds + 3) / 4 : 1);
		assert_int_equal(req.opcode, row->opcode);
	}
}

static void refuses_inline_data_where_the_device_writes(void **state)
{
	(void)state;
	new_ring(SMX_QP_RC);
	begin(5, SMX_OP_RDMA_READ, 0);
	add_raddr();
	add_sge(0x80000004, 0, 0);
	assert_int_equal(fetch(), SMX_CHECK_WQE_LENGTH);
	new_ring(SMX_QP_RC);
	begin(5, SMX_OP_SEND, 0);
	add_sge(0x8000000d, 0, 0);	/* 13 bytes: one more than the segment has */
	assert_int_equal(fetch(), SMX_CHECK_WQE_LENGTH);
	new_ring(SMX_QP_RC);
	begin(5, SMX_OP_SEND, 0);
	add_sge(0xffffffff, 0, 0);
	assert_int_equal(fetch(), SMX_CHECK_WQE_LENGTH);
}

static void refuses_more_than_a_message_can_be(void **state)
{
	(void)state;
	new_ring(SMX_QP_RC);
	begin(5, SMX_OP_SEND, 0);
	add_sge(0x7fffffff, 0x100, 0);
	add_sge(1, 0x100, 0);
	assert_int_equal(fetch(), SMX_CHECK_NONE);
	assert_int_equal(req.length, 1u << 31);
	add_sge(1, 0x100, 0);
	assert_int_equal(fetch(), SMX_CHECK_WQE_MESSAGE_LENGTH);
}

static void a_wqe_is_not_longer_than_its_ring(void **state)
{
	(void)state;
	new_ring(SMX_QP_RC);
	qp.sq.bb_count = 4;
	begin(0, SMX_OP_SEND, 0);
	end_as(QPN, 17);
	qp.sq.pi = 70;
	assert_int_equal(smx_sq_fetch(&dev, &qp, 0, &req), SMX_CHECK_WQE_LENGTH);
	end_as(QPN, 16);
	assert_int_equal(smx_sq_fetch(&dev, &qp, 0, &req), SMX_CHECK_NONE);
}

static void decodes_a_small_inline_write(void **state)
{
	(void)state;
	new_ring(SMX_QP_RC);
	begin(5, SMX_OP_RDMA_WRITE, 0);
	add_raddr();
	add_sge(0x8000000c, 0x41424344, 0);
	assert_int_equal(fetch(), SMX_CHECK_NONE);
	assert_int_equal(req.sge_count, 1);
	assert_int_equal(req.length, 12);
	assert_true(req.sge[0].is_host);
	assert_memory_equal((const void *)(uintptr_t)req.sge[0].va, "ABCD", 4);
}

static void wants_the_extended_address(void **state)
{
	(void)state;
	new_ring(SMX_QP_UD);
	begin(5, SMX_OP_SEND, 0);
	add_av(0x99);
	add_sge(8, 0x100, 0);
	assert_int_equal(fetch(), SMX_CHECK_WQE_AH);
}

static void checks_signatures(void **state)
{
	uint8_t sum = 0;

	(void)state;
	new_ring(SMX_QP_RC);
	qp.attr.wq_signature = true;
	begin(BBS - 1, SMX_OP_RDMA_WRITE, 0);
	add_raddr();
	for (uint32_t i = 0; i < 8; i++)
		add_sge(8, 0x100, i);
	assert_int_equal(fetch(), SMX_CHECK_WQE_SIGNATURE);
	for (uint32_t i = 0; i < ds * 16; i++)
		sum ^= ring[(at * 64 + i) % (BBS * 64)];
	((struct smx_wqe_ctrl *)seg(0))->signature = (uint8_t)~sum;
	assert_int_equal(fetch(), SMX_CHECK_NONE);
	ring[17] ^= 1;
	assert_int_equal(fetch(), SMX_CHECK_WQE_SIGNATURE);
}

/* Random rings: whatever comes of it stays inside the ring and the structure. */
static void survives_any_bytes(void **state)
{
	static const uint8_t opcodes[] = { 0, 1, 8, 9, 10, 11, 16, 17, 18, 20, 21, 0x25, 0x2f, 0x0e, 0x33 };
	struct smx_prng prng = { .state = 20 };

	(void)state;
	for (int run = 0; run < 20000; run++) {
		new_ring((enum smx_qp_type)smx_prng_below(&prng, SMX_QP_DCT + 1));
		for (size_t i = 0; i < BBS * 8; i++)
			((uint64_t *)(void *)ring)[i] = smx_prng_next(&prng);
		begin((uint32_t)smx_prng_below(&prng, 2 * BBS), opcodes[smx_prng_below(&prng, sizeof(opcodes))],
		      (uint8_t)smx_prng_below(&prng, 2));
		end_as(QPN, (uint32_t)smx_prng_below(&prng, 64));
		qp.sq.pi = at + 1 + (uint32_t)smx_prng_below(&prng, BBS + 5);
		if (smx_sq_fetch(&dev, &qp, at, &req))
			continue;
		assert_true(req.sge_count <= SMX_WQE_DS_MAX + 1);
		for (uint32_t i = 0; i < req.sge_count; i++) {
			if (req.sge[i].is_host) {
				assert_true(req.sge[i].va >= (uintptr_t)ring);
				assert_true(req.sge[i].va + req.sge[i].length <= (uintptr_t)ring + BBS * 64);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decodes_a_write_at_every_block),
		cmocka_unit_test(decodes_sge_lists_across_the_end),
		cmocka_unit_test(decodes_inline_data_across_the_end),
		cmocka_unit_test(finds_the_address),
		cmocka_unit_test(decodes_atomics),
		cmocka_unit_test(decodes_umrs_across_the_end),
		cmocka_unit_test(refuses_malformed_umrs),
		cmocka_unit_test(decodes_dma_copies),
		cmocka_unit_test(decodes_tag_list_operations),
		cmocka_unit_test(refuses_malformed_wqes),
		cmocka_unit_test(refuses_inline_data_where_the_device_writes),
		cmocka_unit_test(refuses_more_than_a_message_can_be),
		cmocka_unit_test(a_wqe_is_not_longer_than_its_ring),
		cmocka_unit_test(decodes_a_small_inline_write),
		cmocka_unit_test(wants_the_extended_address),
		cmocka_unit_test(checks_signatures),
		cmocka_unit_test(survives_any_bytes),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
