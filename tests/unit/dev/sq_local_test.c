/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: DMA copies move bytes between keys and name what they may not touch; UMRs and NOPs are executed.
 * Method: decoded requests against one device; memory is compared byte for byte. */
#include "unit/xport/resp_rig.h"

#include <sys/mman.h>

#include "dev/sq_local.h"

static struct smx_send_req copy_req(uint32_t src_key, uint64_t src, uint32_t dst_key, uint64_t dst, uint64_t n)
{
	struct smx_send_req req = { .index = 7, .opcode = SMX_OP_MMO, .opmod = 1, .length = n, .sge_count = 2 };

	req.sge[0] = (struct smx_sge){ .va = src, .length = n, .key = src_key };
	req.sge[1] = (struct smx_sge){ .va = dst, .length = n, .key = dst_key };
	return req;
}

static void fill(struct rig *r)
{
	for (int i = 0; i < RIG_MEM; i++)
		r->mem[i] = (uint8_t)(i % 251 + 1);
}

static void copies_and_charges_the_budget(void **state)
{
	static const uint64_t sizes[] = { 1, 7, 8, 63, 64, 65, 1000, 4096, 8000 };
	struct rig *r = rig_open(SMX_QP_RC, 0);

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t n = sizes[i];
		struct smx_send_req req = copy_req(r->key, (uintptr_t)r->mem + 3, r->key,
						   (uintptr_t)r->mem + 8100, n);

		fill(r);
		r->dev->budget_bytes = 100;
		assert_int_equal(smx_sq_local(r->dev, r->qp, &req), SMX_CHECK_NONE);
		assert_memory_equal(r->mem + 8100, r->mem + 3, n);
		assert_int_equal(r->mem[8100 + n], (8100 + n) % 251 + 1);
		assert_int_equal(r->mem[8099], 8099 % 251 + 1);
		assert_int_equal(r->dev->budget_bytes, 100 - (int64_t)n);
	}
	rig_close(r);
}

static const struct refuse_row {
	const char *name;
	bool src_unknown, dst_unknown, dst_read_only, dst_other_pd;
	uint64_t src_room, dst_room;		/* bytes of each key; 0: all of mem */
	smx_outcome want;
} refusals[] = {
	{ "source key", .src_unknown = true, .want = SMX_CHECK_GATHER_KEY },
	{ "destination key", .dst_unknown = true, .want = SMX_CHECK_SCATTER_KEY },
	{ "both keys", .src_unknown = true, .dst_unknown = true, .want = SMX_CHECK_GATHER_KEY },
	{ "destination right", .dst_read_only = true, .want = SMX_CHECK_SCATTER_RIGHT },
	{ "destination domain", .dst_other_pd = true, .want = SMX_CHECK_SCATTER_PD },
	{ "source range", .src_room = 60, .want = SMX_CHECK_GATHER_RANGE },
	{ "destination range", .dst_room = 60, .want = SMX_CHECK_SCATTER_RANGE },
};

static void refuses_bad_copies(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const struct refuse_row *row = &refusals[i];
		struct rig *r = rig_open(SMX_QP_RC, 0);
		uint32_t src = rig_key(r, r->pd, 0, 0, row->src_room ? row->src_room : 4096);
		uint32_t dst = rig_key(r, row->dst_other_pd ? r->other_pd : r->pd,
				       row->dst_read_only ? 0 : IBV_ACCESS_LOCAL_WRITE, 8192,
				       row->dst_room ? row->dst_room : 4096);
		struct smx_send_req req = copy_req(src ^ row->src_unknown, (uintptr_t)r->mem,
						   dst ^ row->dst_unknown, (uintptr_t)r->mem + 8192, 64);
		struct smx_refusal refusal;

		print_message("%s\n", row->name);
		for (int k = 0; k < 64; k++)
			r->mem[k] = (uint8_t)(k + 1);
		assert_int_equal(smx_sq_local(r->dev, r->qp, &req), row->want);
		assert_int_equal(smx_refusal_get(&r->log, 0, &refusal), 1);
		assert_int_equal(refusal.check, row->want);
		assert_int_equal(refusal.where.qpn, r->qpn);
		assert_int_equal(refusal.where.wqe_index, 7);
		assert_int_equal(refusal.where.opcode, SMX_OP_MMO);
		for (uint64_t k = 0; k < 64; k++)
			assert_int_equal(r->mem[8192 + k], 0);
		rig_close(r);
	}
}

static void survives_unmapped_memory(void **state)
{
	(void)state;
	for (int dst = 0; dst < 2; dst++) {
		struct rig *r = rig_open(SMX_QP_RC, 0);
		void *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct smx_mkey_attr attr = { .kind = SMX_MKEY_DIRECT, .pd = r->pd, .access = RIG_ALL,
					      .start = (uintptr_t)gone, .length = 4096, .host = gone };
		struct smx_send_req req;
		struct smx_mkey *mkey;
		uint32_t key;

		assert_int_equal(smx_cmd_create_mkey(r->dev, &attr, &mkey, &key), 0);
		munmap(gone, 4096);
		if (dst)
			req = copy_req(r->key, (uintptr_t)r->mem, key, (uintptr_t)gone, 64);
		else
			req = copy_req(key, (uintptr_t)gone, r->key, (uintptr_t)r->mem, 64);
		assert_int_equal(smx_sq_local(r->dev, r->qp, &req),
				 dst ? SMX_CHECK_SCATTER_FAULT : SMX_CHECK_GATHER_FAULT);
		rig_close(r);
	}
}

/* A list of two pieces is registered, copied through, and invalidated. */
static void registers_and_invalidates(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, 0);
	struct smx_mkey_attr attr = { .kind = SMX_MKEY_INDIRECT, .pd = r->pd, .max_entries = 4 };
	struct smx_send_req umr = { .opcode = SMX_OP_UMR }, nop = { .opcode = SMX_OP_NOP }, copy;
	struct smx_mkey *mkey;
	uint32_t key;

	(void)state;
	fill(r);
	assert_int_equal(smx_cmd_create_mkey(r->dev, &attr, &mkey, &key), 0);
	umr.umr.key = key;
	umr.umr.ctrl.flags = SMX_UMR_INLINE;
	umr.umr.ctrl.klm_octowords = to_be16(4);
	umr.umr.ctrl.mkey_mask = to_be64(SMX_UMR_MASK_FREE | SMX_UMR_MASK_MKEY | SMX_UMR_MASK_LEN |
					 SMX_UMR_MASK_LOCAL_WRITE);
	umr.umr.ctx.qpn_mkey = to_be32(0xffffff00 | (key & 0xff));
	umr.umr.ctx.access = SMX_MKC_LOCAL_WRITE;
	umr.umr.ctx.len = to_be64(30);
	rig_put_sge(&umr.umr_entry[0], r->key, r->mem + 100, 10);
	rig_put_sge(&umr.umr_entry[1], r->key, r->mem + 300, 20);
	umr.umr.entry = umr.umr_entry;
	umr.umr.entry_count = 4;
	assert_int_equal(smx_sq_local(r->dev, r->qp, &umr), SMX_CHECK_NONE);
	assert_int_equal(smx_sq_local(r->dev, r->qp, &nop), SMX_CHECK_NONE);

	copy = copy_req(key, 0, r->key, (uintptr_t)r->mem + 9000, 30);
	assert_int_equal(smx_sq_local(r->dev, r->qp, &copy), SMX_CHECK_NONE);
	assert_memory_equal(r->mem + 9000, r->mem + 100, 10);
	assert_memory_equal(r->mem + 9010, r->mem + 300, 20);

	/* As drivers write IBV_WR_LOCAL_INV. */
	umr.umr = (struct smx_umr){ .key = key };
	umr.umr.ctrl.flags = 0x98;
	umr.umr.ctrl.mkey_mask = to_be64(SMX_UMR_MASK_FREE | SMX_UMR_MASK_MKEY | SMX_UMR_MASK_QPN);
	umr.umr.ctx.free = SMX_MKC_FREE;
	umr.umr.ctx.qpn_mkey = to_be32(0xffffff00 | (key & 0xff));
	assert_int_equal(smx_sq_local(r->dev, r->qp, &umr), SMX_CHECK_NONE);
	assert_int_equal(smx_sq_local(r->dev, r->qp, &copy), SMX_CHECK_GATHER_FREE);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_and_charges_the_budget),
		cmocka_unit_test(refuses_bad_copies),
		cmocka_unit_test(survives_unmapped_memory),
		cmocka_unit_test(registers_and_invalidates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
