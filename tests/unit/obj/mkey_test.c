/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: keys name what they should and nothing else, through UMR, bind and invalidate. Method: each
 * refusal has a row and leaves the key as it was; what succeeds is looked at through a walk. */
#include "obj_world.h"

#include <errno.h>

#include "base/bits.h"
#include "obj/dma.h"

enum { QPN = 0x1234 };

static struct smx_where where_of(uint32_t qpn)
{
	return (struct smx_where){ .qpn = qpn, .opcode = SMX_OP_UMR };
}

/* Bytes of [va, va + length) that a role may touch, and why not more. */
static uint64_t reach(struct world *w, enum smx_dma_role role, uint32_t qpn, uint32_t key,
		      uint64_t va, uint64_t length, smx_outcome *check)
{
	struct smx_dma_fault fault;
	struct smx_walk walk;
	uint64_t ok;

	smx_walk_range(&walk, &w->dev, &w->pd, qpn, role, key, va, length);
	ok = smx_walk_check(&walk, length, &fault);
	*check = ok < length ? fault.check : SMX_CHECK_NONE;
	return ok;
}

static void may(struct world *w, enum smx_dma_role role, uint32_t key, uint64_t va, uint64_t length,
		smx_outcome want)
{
	smx_outcome check;

	reach(w, role, QPN, key, va, length, &check);
	assert_string_equal(smx_check_info(check)->name, smx_check_info(want)->name);
}

static void many_keys_are_cheap_and_distinct(void **state)
{
	enum { N = 100000 };
	struct world *w = world_new();
	struct smx_mkey **keys = calloc(N, sizeof(*keys));
	unsigned int tags[256] = { 0 };
	static char mem[64];
	(void)state;

	for (int i = 0; i < N; i++) {
		keys[i] = world_region(w, mem, sizeof(mem), 0);
		tags[keys[i]->key & 0xff]++;
		assert_true(keys[i]->key >> 8 >= 16);	/* 0x100 and 0x400 mean other things */
		assert_ptr_equal(smx_mkey_find(&w->dev, keys[i]->key), keys[i]);
		assert_null(smx_mkey_find(&w->dev, keys[i]->key ^ 1));
	}
	assert_int_equal(w->pd.users, N);
	for (int t = 0; t < 256; t++)
		assert_true(tags[t] > 0);
	for (int i = 0; i < N; i++) {
		uint32_t key = keys[i]->key;

		assert_int_equal(smx_mkey_destroy(&w->dev, keys[i]), 0);
		assert_null(smx_mkey_find(&w->dev, key));
	}
	assert_int_equal(w->pd.users, 0);
	free(keys);
	world_free(w);
}

static void creation_is_checked(void **state)
{
	static char mem[64];
	struct world *w = world_new();
	const struct row {
		struct smx_mkey_attr attr;
		int err;
		enum smx_check check;
	} rows[] = {
		{ { .kind = SMX_MKEY_DIRECT,
		    .access = IBV_ACCESS_REMOTE_WRITE,
		    .length = 64,
		    .host = mem },
		  EINVAL,
		  SMX_CHECK_MR_ACCESS },
		{ { .kind = SMX_MKEY_DIRECT,
		    .access = IBV_ACCESS_REMOTE_ATOMIC,
		    .length = 64,
		    .host = mem },
		  EINVAL,
		  SMX_CHECK_MR_ACCESS },
		{ { .kind = SMX_MKEY_IMPLICIT, .access = IBV_ACCESS_REMOTE_WRITE },
		  EINVAL,
		  SMX_CHECK_MR_ACCESS },
		{ { .kind = SMX_MKEY_DIRECT, .start = UINT64_MAX, .length = 2, .host = mem },
		  EINVAL,
		  SMX_CHECK_OBJECT_ARG },
		{ { .kind = SMX_MKEY_DIRECT, .length = UINT64_MAX, .host = mem },
		  EINVAL,
		  SMX_CHECK_OBJECT_ARG },
		{ { .kind = SMX_MKEY_WINDOW, .mw_type = (enum ibv_mw_type)3 },
		  EINVAL,
		  SMX_CHECK_OBJECT_ARG },
		{ { .kind = SMX_MKEY_INDIRECT, .max_entries = (1 << 20) + 1 },
		  ENOMEM,
		  SMX_CHECK_NO_RESOURCES },
		{ { .kind = SMX_MKEY_INDIRECT, .max_entries = UINT32_MAX },
		  ENOMEM,
		  SMX_CHECK_NO_RESOURCES },
	};
	static const struct smx_mkey_attr good[] = {
		{ .kind = SMX_MKEY_INDIRECT, .max_entries = 1 << 20 },
		{ .kind = SMX_MKEY_INDIRECT, .access = IBV_ACCESS_REMOTE_WRITE },
		{ .kind = SMX_MKEY_DIRECT, .host = mem },
		{ .kind = SMX_MKEY_DIRECT, .start = UINT64_MAX - 64, .length = 64, .host = mem },
	};
	struct smx_mkey *mkey = NULL;
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(rows); i++) {
		struct smx_mkey_attr attr = rows[i].attr;

		attr.pd = &w->pd;
		assert_int_equal(smx_mkey_create(&w->dev, &attr, &mkey), rows[i].err);
		world_refused(w, rows[i].check, NULL);
		assert_null(mkey);
		assert_int_equal(w->pd.users, 0);
	}
	for (unsigned int i = 0; i < SMX_COUNT(good); i++)
		world_mkey(w, &good[i]);
	world_free(w);
}

static void reregistration_keeps_the_key(void **state)
{
	struct world *w = world_new();
	uint8_t a[64], b[32];
	struct smx_mkey *mr = world_region(w, a, sizeof(a), RIGHTS_ALL);
	struct smx_mkey_attr next = {
		.kind = SMX_MKEY_DIRECT, .pd = &w->other_pd, .start = 0, .length = 32, .host = b
	};
	uint32_t key = mr->key;
	(void)state;

	assert_int_equal(smx_mkey_modify(&w->dev, mr, IBV_REREG_MR_CHANGE_TRANSLATION, &next), 0);
	assert_int_equal(mr->key, key);
	assert_int_equal(mr->attr.access, RIGHTS_ALL);
	may(w, SMX_DMA_REMOTE_WRITE, key, 0, 32, SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_WRITE, key, 0, 33, SMX_CHECK_REMOTE_RANGE);
	assert_int_equal(smx_mkey_modify(&w->dev, mr, IBV_REREG_MR_CHANGE_ACCESS, &next), 0);
	may(w, SMX_DMA_REMOTE_WRITE, key, 0, 32, SMX_CHECK_REMOTE_RIGHT);
	assert_int_equal(smx_mkey_modify(&w->dev, mr, IBV_REREG_MR_CHANGE_PD, &next), 0);
	may(w, SMX_DMA_GATHER, key, 0, 32, SMX_CHECK_GATHER_PD);
	assert_int_equal(w->pd.users, 0);
	assert_int_equal(w->other_pd.users, 1);
	next.access = IBV_ACCESS_REMOTE_WRITE;
	assert_int_equal(smx_mkey_modify(&w->dev, mr, IBV_REREG_MR_CHANGE_ACCESS, &next), EINVAL);
	assert_int_equal(mr->attr.access, 0);
	assert_int_equal(smx_mkey_modify(&w->dev, world_indirect(w, 4), 0, &next), EINVAL);
	next = (struct smx_mkey_attr){ .kind = SMX_MKEY_NULL };
	assert_int_equal(smx_mkey_modify(&w->dev, mr, IBV_REREG_MR_CHANGE_TRANSLATION, &next),
			 EINVAL);
	assert_int_equal(mr->attr.length, 32);
	next.kind = SMX_MKEY_IMPLICIT;
	assert_int_equal(smx_mkey_modify(&w->dev, mr, IBV_REREG_MR_CHANGE_TRANSLATION, &next), 0);
	assert_true(mr->attr.length == UINT64_MAX);
	assert_int_equal(smx_mkey_modify(&w->dev, mr, IBV_REREG_MR_CHANGE_ACCESS, &next), 0);
	world_free(w);
}

/* Every refusal of a UMR; the key and its layout stay as they were. */
static void refused_umr_changes_nothing(void **state)
{
	enum change {
		BAD_INDEX,
		BAD_TAG,
		ODD_OCTOWORDS,
		TOO_MANY,
		OFFSET_TOO_FAR,
		OTHER_PD,
		A_REGION,
		NOT_FREE,
		OTHER_QP,
		NEW_TAG,
		BLOCK_TOO_LONG,
		BLOCK_TOO_LONG_BY_ONE,
		NOT_INLINE,
		UNKNOWN_MASK,
		BSF,
		SHORT_WQE,
	};
	static const struct row {
		enum change change;
		smx_outcome want;
		const char *text;
	} rows[] = {
		{ BAD_INDEX, SMX_CHECK_UMR_KEY, "no key is there" },
		{ BAD_TAG, SMX_CHECK_UMR_KEY, "the key there is now 0x" },
		{ ODD_OCTOWORDS, SMX_CHECK_UMR_OCTOWORDS, "octowords 6" },
		{ TOO_MANY, SMX_CHECK_UMR_TRANSLATION,
		  "octowords 12 at offset 0, the key was created for 8" },
		{ OFFSET_TOO_FAR, SMX_CHECK_UMR_TRANSLATION, "octowords 4 at offset 5" },
		{ OTHER_PD, SMX_CHECK_UMR_PD, "pd 0x7" },
		{ A_REGION, SMX_CHECK_UMR_KIND, NULL },
		{ NOT_FREE, SMX_CHECK_UMR_NOT_FREE, "in use" },
		{ OTHER_QP, SMX_CHECK_UMR_QPN, "qpn 0x9" },
		{ NEW_TAG, SMX_CHECK_UMR_TAG, "to tag 0x55" },
		{ BLOCK_TOO_LONG, SMX_CHECK_UMR_ENTRY, "names 65535 entries, 3 follow" },
		{ BLOCK_TOO_LONG_BY_ONE, SMX_CHECK_UMR_ENTRY, "names 4 entries, 3 follow" },
		{ NOT_INLINE, SMX_CHECK_UMR_FIELD, "flags 0x0" },
		{ UNKNOWN_MASK, SMX_CHECK_UMR_FIELD, "mask 0x203c3001, of which" },
		{ BSF, SMX_CHECK_UMR_FIELD, "BSF octowords 4" },
		{ SHORT_WQE, SMX_CHECK_WQE_LENGTH, "of which the WQE holds 3" },
	};
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(rows); i++) {
		struct world *w = world_new();
		static uint8_t mem[256];
		struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL),
				*mkey = world_indirect(w, 5);
		struct smx_where where = where_of(QPN);
		struct layout l = { .n = 0 };
		struct smx_umr good, umr;
		struct smx_wqe_klm before[8];
		struct smx_mkey was;
		uint64_t mask;

		for (int k = 0; k < 4; k++)
			layout_klm(&l, mr->key, (uintptr_t)mem + (unsigned int)k * 16, 16);
		good = umr_layout(mkey, &l, 64, RIGHTS_ALL);
		good.ctx.qpn_mkey = to_be32(0x900);
		good.ctrl.mkey_mask = to_be64(from_be64(good.ctrl.mkey_mask) | SMX_UMR_MASK_QPN);
		assert_int_equal(world_umr(w, &good, 0x9), SMX_CHECK_NONE);
		mkey->qpn = rows[i].change == OTHER_QP ? 0x9 : QPN;
		umr = umr_layout(mkey, &l, 32, 0);
		mask = from_be64(umr.ctrl.mkey_mask);
		was = *mkey;
		memcpy(before, mkey->entry, sizeof(before));
		layout_klm(&l, mr->key, (uintptr_t)mem, 1);
		l.e[0].va = to_be64((uintptr_t)mem + 200);
		switch (rows[i].change) {
		case BAD_INDEX: umr.key += 0x10000; break;
		case BAD_TAG: umr.key ^= 1; break;
		case ODD_OCTOWORDS: umr.ctrl.klm_octowords = to_be16(6); umr.entry_count = 8; break;
		case TOO_MANY: umr.ctrl.klm_octowords = to_be16(12); umr.entry_count = 12; break;
		case OFFSET_TOO_FAR:
			umr.ctrl.flags |= SMX_UMR_XLT_OFFSET;
			umr.ctrl.xlt_offset = to_be16(5);
			break;
		case OTHER_PD: break;
		case A_REGION: umr.key = mr->key; break;
		case NOT_FREE: umr.ctrl.flags |= SMX_UMR_CHECK_FREE; break;
		case OTHER_QP: umr.ctrl.flags |= SMX_UMR_CHECK_QPN; break;
		case NEW_TAG: umr.ctx.qpn_mkey = to_be32(0xffffff55); break;
		case BLOCK_TOO_LONG:
		case BLOCK_TOO_LONG_BY_ONE:
			l.n = 0;
			layout_block(&l, 1, rows[i].change == BLOCK_TOO_LONG ? 65535 : 4);
			break;
		case NOT_INLINE: umr.ctrl.flags = 0; break;
		case UNKNOWN_MASK:
			umr.ctrl.mkey_mask = to_be64(mask | SMX_UMR_MASK_BSF_ENABLE);
			break;
		case BSF: umr.ctrl.xlt_offset = to_be16(4); break;
		case SHORT_WQE: umr.entry_count = 3; break;
		}
		assert_string_equal(
			smx_check_info(
				smx_mkey_umr(&w->dev, &umr,
					     rows[i].change == OTHER_PD ? &w->other_pd : &w->pd,
					     &where))
				->name,
			smx_check_info(rows[i].want)->name);
		world_refused(w, rows[i].want, rows[i].text);
		assert_memory_equal(&was, mkey, sizeof(was));
		assert_memory_equal(before, mkey->entry, sizeof(before));
		world_free(w);
	}
}

/* What a block's header may say at the edge: as many entries as follow, or none. */
static void layouts_at_their_edges(void **state)
{
	struct world *w = world_new();
	static uint8_t mem[256];
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL),
			*mkey = world_indirect(w, 8);
	struct layout l = { .n = 0 };
	struct smx_umr umr;
	(void)state;

	layout_block(&l, 7, 0);	/* nothing, seven times */
	layout_klm(&l, 0, 0, 0);
	layout_block(&l, 0, 1);	/* something, never */
	layout_ent(&l, 0xbad00, 0, 100, 100);
	layout_block(&l, 2, 3);
	layout_ent(&l, mr->key, (uintptr_t)mem, 8, 16);
	layout_ent(&l, 0xbad00, 0, 0, 0);
	layout_ent(&l, mr->key, (uintptr_t)mem + 100, 4, 4);
	umr = umr_layout(mkey, &l, 24, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	assert_int_equal(mkey->entry_count, 8);
	may(w, SMX_DMA_GATHER, mkey->key, 0, 24, SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, mkey->key, 0, 25, SMX_CHECK_GATHER_RANGE);
	world_free(w);
}

/* Exactly the fields that the mask names change; a new layout replaces the old one whole. */
static void umr_takes_over_what_the_mask_names(void **state)
{
	static const struct row { uint64_t mask; uint32_t flag; uint8_t bit; } rights[] = {
		{ SMX_UMR_MASK_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE, SMX_MKC_LOCAL_WRITE },
		{ SMX_UMR_MASK_REMOTE_READ, IBV_ACCESS_REMOTE_READ, SMX_MKC_REMOTE_READ },
		{ SMX_UMR_MASK_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE, SMX_MKC_REMOTE_WRITE },
		{ SMX_UMR_MASK_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC, SMX_MKC_ATOMIC },
	};
	struct world *w = world_new();
	static uint8_t mem[256];
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL),
			*mkey = world_indirect(w, 8);
	struct layout l = { .n = 0 };
	struct smx_umr umr, only;
	(void)state;

	may(w, SMX_DMA_GATHER, mkey->key, 0, 1, SMX_CHECK_GATHER_FREE);
	for (int k = 0; k < 8; k++)
		layout_klm(&l, mr->key, (uintptr_t)mem + (unsigned int)k * 16, 16);
	umr = umr_layout(mkey, &l, 128, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, mkey->key, 0, 128, SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_READ, mkey->key, 0, 128, SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_WRITE, mkey->key, 0, 128, SMX_CHECK_REMOTE_RIGHT);

	only = umr;
	only.ctrl.klm_octowords = to_be16(0);
	only.entry = NULL;
	only.entry_count = 0;
	only.ctx.len = to_be64(1);
	only.ctx.start_addr = to_be64(0x5000);
	for (unsigned int i = 0; i < 32; i++) {
		uint32_t was = mkey->attr.access, flag = rights[i % 4].flag;

		only.ctrl.mkey_mask = to_be64(rights[i % 4].mask);
		only.ctx.access = i & 4 ? 0xff : (uint8_t)(i & 8 ? ~rights[i % 4].bit : 0);
		assert_int_equal(world_umr(w, &only, QPN), SMX_CHECK_NONE);
		assert_int_equal(mkey->attr.access, i & 4 ? was | flag : was & ~flag);
		assert_int_equal(mkey->attr.length, 128);
		assert_int_equal(mkey->attr.start, 0);
		assert_int_equal(mkey->entry_count, 8);
	}
	only.ctrl.mkey_mask = to_be64(SMX_UMR_MASK_START_ADDR);
	assert_int_equal(world_umr(w, &only, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, mkey->key, 0, 1, SMX_CHECK_GATHER_RANGE);
	may(w, SMX_DMA_GATHER, mkey->key, 0x5000, 128, SMX_CHECK_NONE);
	only.ctrl.mkey_mask = to_be64(SMX_UMR_MASK_LEN);
	assert_int_equal(world_umr(w, &only, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, mkey->key, 0x5000, 1, SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, mkey->key, 0x5000, 2, SMX_CHECK_GATHER_RANGE);

	/* A shorter layout leaves nothing of the longer one; with an offset, entries are replaced
	 * in place. */
	l.n = 0;
	for (int k = 0; k < 4; k++)
		layout_klm(&l, mr->key, (uintptr_t)mem + 128, 10);
	umr = umr_layout(mkey, &l, 1000, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, mkey->key, 0x5000, 40, SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, mkey->key, 0x5000, 41, SMX_CHECK_GATHER_RANGE);
	umr.ctrl.flags |= SMX_UMR_XLT_OFFSET;
	umr.ctrl.xlt_offset = to_be16(4);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, mkey->key, 0x5000, 80, SMX_CHECK_NONE);
	umr.ctrl.xlt_offset = to_be16(0);
	layout_block(&l, 1, 65535);	/* behind the request's own entries: not looked at */
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	assert_int_equal(mkey->entry_count, 8);
	may(w, SMX_DMA_GATHER, mkey->key, 0x5000, 80, SMX_CHECK_NONE);
	world_free(w);
}

/* IBV_WR_LOCAL_INV as drivers write it. */
static struct smx_umr umr_invalidate(uint32_t key)
{
	return (struct smx_umr){
		.key = key,
		.ctrl = {
			.flags = SMX_UMR_INLINE | SMX_UMR_XLT_OFFSET | SMX_UMR_CHECK_QPN,
			.mkey_mask = to_be64(SMX_UMR_MASK_FREE | SMX_UMR_MASK_MKEY | SMX_UMR_MASK_QPN),
		},
		.ctx = { .free = SMX_MKC_FREE, .qpn_mkey = to_be32(0xffffff00) },
	};
}

static void invalidate_then_another_layout(void **state)
{
	struct world *w = world_new();
	static uint8_t mem[256];
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL),
			*mkey = world_indirect(w, 4);
	struct layout l = { .n = 0 };
	struct smx_umr umr, inv = umr_invalidate(mkey->key);
	(void)state;

	layout_klm(&l, mr->key, (uintptr_t)mem, 64);
	umr = umr_layout(mkey, &l, 64, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	assert_int_equal(world_umr(w, &inv, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, mkey->key, 0, 1, SMX_CHECK_GATHER_FREE);
	may(w, SMX_DMA_REMOTE_READ, mkey->key, 0, 1, SMX_CHECK_REMOTE_FREE);
	umr.ctrl.flags |= SMX_UMR_CHECK_FREE;
	l.e[0].byte_count = to_be32(100);
	umr.ctx.len = to_be64(100);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, mkey->key, 0, 100, SMX_CHECK_NONE);
	inv.key = mr->key;
	assert_int_equal(world_umr(w, &inv, QPN), SMX_CHECK_UMR_KIND);
	world_free(w);
}

static void tag_changes_where_the_key_was_created_so(void **state)
{
	struct world *w = world_new();
	struct smx_mkey *mkey = world_mkey(w, &(struct smx_mkey_attr){
		.kind = SMX_MKEY_INDIRECT, .max_entries = 4, .update_tag = true });
	struct smx_umr umr = { .key = mkey->key };
	uint32_t old = mkey->key;
	(void)state;

	umr.ctrl.mkey_mask = to_be64(SMX_UMR_MASK_MKEY | SMX_UMR_MASK_FREE);
	umr.ctx.qpn_mkey = to_be32(0xffffff5a);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	assert_int_equal(mkey->key, (old & ~0xffu) | 0x5a);
	assert_ptr_equal(smx_mkey_find(&w->dev, mkey->key), mkey);
	assert_null(smx_mkey_find(&w->dev, old));
	/* In use, it must be named as it is; free, any tag will do. */
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_UMR_KEY);
	mkey->free = true;
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	umr.key = world_indirect(w, 4)->key ^ 1;	/* of a key that keeps its tag, the tag is always compared */
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_UMR_KEY);
	world_free(w);
}

/* A bind as ibv_wr_bind_mw and ibv_bind_mw write it. */
struct bind {
	uint32_t key, new_key, lkey, access;
	uint64_t addr;
	uint32_t length;
	bool type2, zero_based;
};

static smx_outcome do_bind(struct world *w, const struct bind *b, uint32_t qpn)
{
	struct smx_wqe_klm klm[4] = { { to_be32(b->length), to_be32(b->lkey), to_be64(b->addr) } };
	uint32_t owner = b->type2 && b->length ? qpn : 0xffffff;
	uint64_t mask = SMX_UMR_MASK_FREE | SMX_UMR_MASK_MKEY | (b->type2 ? SMX_UMR_MASK_QPN : 0);
	struct smx_umr umr = { .key = b->key };

	umr.ctrl.flags = SMX_UMR_INLINE | SMX_UMR_XLT_OFFSET;
	umr.ctx.qpn_mkey = to_be32(owner << 8 | (b->new_key & 0xff));
	if (b->length) {
		umr.ctrl.flags |= b->type2 ? SMX_UMR_CHECK_FREE : 0;
		umr.ctrl.klm_octowords = to_be16(4);
		umr.ctx.access = mkc_access(b->access);
		umr.ctx.start_addr = to_be64(b->zero_based ? 0 : b->addr);
		umr.ctx.len = to_be64(b->length);
		umr.entry = klm;
		umr.entry_count = 4;
		mask |= SMX_UMR_MASK_LEN | SMX_UMR_MASK_START_ADDR | UMR_MASK_RIGHTS;
	} else {
		umr.ctrl.flags |= b->type2 ? SMX_UMR_CHECK_QPN : 0;
		umr.ctx.free = SMX_MKC_FREE;
	}
	umr.ctrl.mkey_mask = to_be64(mask);
	return world_umr(w, &umr, qpn);
}

static struct smx_mkey *window(struct world *w, enum ibv_mw_type type)
{
	return world_mkey(w, &(struct smx_mkey_attr){ .kind = SMX_MKEY_WINDOW, .mw_type = type });
}

enum { MW_REGION = RIGHTS_ALL | IBV_ACCESS_MW_BIND };

static void type_1_window(void **state)
{
	struct world *w = world_new();
	uint8_t mem[256];
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), MW_REGION),
			*mw = window(w, IBV_MW_TYPE_1);
	uint64_t at = (uintptr_t)mem + 16;
	struct bind b = { mw->key, mw->key + 1, mr->key, IBV_ACCESS_REMOTE_WRITE,
			  at,	   32,		false,	 false };
	uint32_t first = mw->key;
	struct smx_umr rights;
	(void)state;

	may(w, SMX_DMA_REMOTE_WRITE, mw->key, at, 1, SMX_CHECK_REMOTE_FREE);
	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_NONE);
	assert_int_equal(mw->key, first + 1);
	may(w, SMX_DMA_REMOTE_WRITE, first, at, 1, SMX_CHECK_REMOTE_KEY);
	may(w, SMX_DMA_REMOTE_WRITE, mw->key, at, 32, SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_WRITE, mw->key, at - 1, 1, SMX_CHECK_REMOTE_RANGE);
	may(w, SMX_DMA_REMOTE_WRITE, mw->key, at, 33, SMX_CHECK_REMOTE_RANGE);
	may(w, SMX_DMA_REMOTE_READ, mw->key, at, 1, SMX_CHECK_REMOTE_RIGHT);
	/* A change of rights alone leaves it bound where it was. */
	rights = (struct smx_umr){ .key = mw->key, .ctx.access = SMX_MKC_REMOTE_READ | SMX_MKC_REMOTE_WRITE };
	rights.ctrl.mkey_mask = to_be64(UMR_MASK_RIGHTS);
	assert_int_equal(world_umr(w, &rights, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_READ, mw->key, at, 32, SMX_CHECK_NONE);
	/* Bound again at once: type 1 need not be free. The old key must be named. */
	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_UMR_KEY);
	b = (struct bind){ mw->key, mw->key + 1, mr->key, IBV_ACCESS_REMOTE_READ,
			   at,	    8,		 false,	  false };
	assert_int_equal(do_bind(w, &b, QPN + 1), SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_READ, mw->key, at, 8, SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_READ, mw->key, at, 9, SMX_CHECK_REMOTE_RANGE);
	/* Length 0 unbinds. */
	b = (struct bind){ mw->key, mw->key + 1, 0, 0, 0, 0, false, false };
	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_READ, mw->key, at, 1, SMX_CHECK_REMOTE_FREE);
	assert_int_equal(mw->key, first + 3);
	world_free(w);
}

static void type_2_window_belongs_to_its_queue_pair(void **state)
{
	struct world *w = world_new();
	uint8_t mem[256];
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), MW_REGION),
			*mw = window(w, IBV_MW_TYPE_2);
	uint64_t at = (uintptr_t)mem;
	uint32_t first = mw->key;
	struct bind b = { first, first + 1, mr->key, RIGHTS_ALL, at + 8, 32, true, true };
	struct smx_umr inv;
	smx_outcome check;
	(void)state;

	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_WRITE, mw->key, 0, 32, SMX_CHECK_NONE);
	reach(w, SMX_DMA_REMOTE_WRITE, QPN + 1, mw->key, 0, 1, &check);
	assert_int_equal(check, SMX_CHECK_REMOTE_QP);
	reach(w, SMX_DMA_GATHER, QPN + 1, mw->key, 0, 1, &check);
	assert_int_equal(check, SMX_CHECK_GATHER_PD);
	b.key = mw->key;
	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_UMR_NOT_FREE);
	inv = umr_invalidate(mw->key);
	assert_int_equal(world_umr(w, &inv, QPN + 1), SMX_CHECK_UMR_QPN);
	inv.key = first;
	assert_int_equal(world_umr(w, &inv, QPN), SMX_CHECK_UMR_KEY);
	inv.key = mw->key;
	assert_int_equal(world_umr(w, &inv, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_WRITE, first + 1, 0, 1, SMX_CHECK_REMOTE_KEY);
	may(w, SMX_DMA_REMOTE_WRITE, mw->key, 0, 1, SMX_CHECK_REMOTE_FREE);
	inv = (struct smx_umr){ .key = mw->key, .ctrl.mkey_mask = to_be64(SMX_UMR_MASK_FREE) };
	assert_int_equal(world_umr(w, &inv, QPN), SMX_CHECK_NONE);	/* does not bring it back */
	may(w, SMX_DMA_REMOTE_WRITE, mw->key, 0, 1, SMX_CHECK_REMOTE_FREE);
	/* Drivers go on naming it by the key it was allocated with, and another queue pair may have
	 * it now. */
	b.key = first;
	b.new_key = first + 2;
	assert_int_equal(do_bind(w, &b, QPN + 1), SMX_CHECK_NONE);
	reach(w, SMX_DMA_REMOTE_WRITE, QPN + 1, first + 2, 0, 32, &check);
	assert_int_equal(check, SMX_CHECK_NONE);
	may(w, SMX_DMA_REMOTE_WRITE, first + 1, 0, 1, SMX_CHECK_REMOTE_KEY);
	/* The region goes: the window's key is still there, what lies under it is not. */
	assert_int_equal(smx_mkey_destroy(&w->dev, mr), 0);
	reach(w, SMX_DMA_REMOTE_WRITE, QPN + 1, first + 2, 0, 32, &check);
	assert_int_equal(check, SMX_CHECK_REMOTE_KEY);
	world_free(w);
}

static void bind_needs_a_region_that_allows_it(void **state)
{
	enum {
		LW = IBV_ACCESS_LOCAL_WRITE,
		RW = IBV_ACCESS_REMOTE_WRITE,
		RA = IBV_ACCESS_REMOTE_ATOMIC,
		RD = IBV_ACCESS_REMOTE_READ,
		MWB = IBV_ACCESS_MW_BIND
	};
	static const struct row {
		uint32_t region, window;
		int64_t off;
		uint32_t length, key_xor;
		bool other_pd, zero_based;
		const char *text;	/* NULL: allowed */
	} rows[] = {
		{ MWB | LW, RW, 0, 256, 0, false, false, NULL },
		{ MWB | LW, RW, 0, 257, 0, false, false, "does not cover the window" },
		{ MWB | LW, RW, -1, 2, 0, false, false, "does not cover the window" },
		{ MWB | LW, RW, 255, 1, 0, false, false, NULL },
		{ MWB | LW, RW, 256, 1, 0, false, false, "does not cover the window" },
		{ MWB | LW, RW, 0, 1u << 31, 0, false, false, "does not cover the window" },
		{ LW, RW, 0, 1, 0, false, false, "lacks IBV_ACCESS_MW_BIND" },
		{ MWB, RW, 0, 1, 0, false, false, "lacks IBV_ACCESS_LOCAL_WRITE" },
		{ MWB, RA, 0, 1, 0, false, false, "lacks IBV_ACCESS_LOCAL_WRITE" },
		{ MWB, RD, 0, 1, 0, false, false, NULL },
		{ MWB | LW, RA, 0, 8, 0, false, false, NULL },
		{ MWB | LW, RW, 0, 1, 1, false, false, "is not there" },
		{ MWB | LW, RW, 0, 1, 0x7f00, false, false, "is not there" },
		{ MWB | LW, RW, 0, 1, 0, true, false, "is of another protection domain" },
		{ MWB | LW, RW, 8, 100, 0, false, true, NULL },	/* a zero-based region */
	};
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct world *w = world_new();
		static uint8_t mem[256];
		uint64_t start = r->zero_based ? 0 : (uintptr_t)mem;
		struct smx_mkey *mr = world_mkey(
			w, &(struct smx_mkey_attr){ .kind = SMX_MKEY_DIRECT,
						    .pd = r->other_pd ? &w->other_pd : &w->pd,
						    .access = r->region,
						    .start = start,
						    .length = sizeof(mem),
						    .host = mem });
		struct smx_mkey *mw = window(w, IBV_MW_TYPE_2), was = *mw;
		struct bind b = { mw->key, mw->key ^ 0x10, mr->key ^ r->key_xor, r->window,
				  start + (uint64_t)r->off, r->length, true, false };
		smx_outcome want = r->text ? SMX_CHECK_BIND_MR : SMX_CHECK_NONE;

		assert_int_equal(do_bind(w, &b, QPN), want);
		if (r->text) {
			world_refused(w, want, r->text);
			assert_memory_equal(&was, mw, sizeof(was));
		} else {
			enum smx_dma_role role = r->window == RD   ? SMX_DMA_REMOTE_READ
						 : r->window == RW ? SMX_DMA_REMOTE_WRITE
								   : SMX_DMA_REMOTE_ATOMIC;

			may(w, role, mw->key, b.addr, b.length, SMX_CHECK_NONE);
			may(w, role, mw->key, b.addr, b.length + 1, SMX_CHECK_REMOTE_RANGE);
		}
		world_free(w);
	}
}

/* A window over an indirect key or another window has no region under it. */
static void windows_lie_over_regions_only(void **state)
{
	struct world *w = world_new();
	static uint8_t mem[64];
	struct smx_mkey *mr = world_region(w, mem, 64, MW_REGION), *list = world_indirect(w, 4);
	struct smx_mkey *mw = window(w, IBV_MW_TYPE_2), *mw1 = window(w, IBV_MW_TYPE_1);
	struct layout l = { .n = 0 };
	struct smx_umr umr;
	struct bind b = { mw->key, mw->key, list->key, 0, 0, 8, true, false };
	(void)state;

	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_BIND_MR);
	world_refused(w, SMX_CHECK_BIND_MR, "is not there");	/* it is free */
	layout_klm(&l, mr->key, (uintptr_t)mem, 64);
	umr = umr_layout(list, &l, 64, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_BIND_MR);
	world_refused(w, SMX_CHECK_BIND_MR, "is no region");
	b = (struct bind){ mw1->key, mw1->key, mr->key, 0, (uintptr_t)mem, 8, false, false };
	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_NONE);
	b = (struct bind){ mw->key, mw->key, mw1->key, 0, (uintptr_t)mem, 8, true, false };
	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_BIND_MR);
	/* More than one entry does not fit a window. */
	layout_klm(&l, mr->key, (uintptr_t)mem, 64);
	umr = umr_layout(mw, &l, 64, 0);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_UMR_TRANSLATION);
	world_free(w);
}

static void remote_invalidate(void **state)
{
	struct world *w = world_new();
	static uint8_t mem[64];
	struct smx_mkey *mr = world_region(w, mem, 64, MW_REGION);
	struct smx_mkey *plain = world_indirect(w, 4);
	struct smx_mkey *inv = world_mkey(w, &(struct smx_mkey_attr){
		.kind = SMX_MKEY_INDIRECT, .max_entries = 4, .remote_invalidate = true });
	struct smx_mkey *mw = window(w, IBV_MW_TYPE_2), *mw1 = window(w, IBV_MW_TYPE_1);
	char text[200];
	struct layout l = { .n = 0 };
	struct smx_umr umr;
	struct bind b = { mw->key, mw->key + 1, mr->key, 0, (uintptr_t)mem, 8, true, false };
	(void)state;

	layout_klm(&l, mr->key, (uintptr_t)mem, 64);
	umr = umr_layout(plain, &l, 64, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	umr = umr_layout(inv, &l, 64, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_NONE);
	b = (struct bind){ mw1->key, mw1->key, mr->key, 0, (uintptr_t)mem, 8, false, false };
	assert_int_equal(do_bind(w, &b, QPN), SMX_CHECK_NONE);
	struct row { uint32_t key, qpn; struct smx_pd *pd; smx_outcome want; } rows[] = {
		{ inv->key ^ 1, QPN, &w->pd, SMX_CHECK_REMOTE_KEY },
		{ 0xabcd00, QPN, &w->pd, SMX_CHECK_REMOTE_KEY },
		{ inv->key, QPN, &w->other_pd, SMX_CHECK_REMOTE_PD },
		{ plain->key, QPN, &w->pd, SMX_CHECK_REMOTE_INVALIDATE },
		{ mr->key, QPN, &w->pd, SMX_CHECK_REMOTE_INVALIDATE },
		{ mw1->key, QPN, &w->pd, SMX_CHECK_REMOTE_INVALIDATE },
		{ mw->key, QPN + 1, &w->pd, SMX_CHECK_REMOTE_QP },
		{ mw->key, QPN, &w->pd, SMX_CHECK_NONE },
		{ mw->key, QPN, &w->pd, SMX_CHECK_REMOTE_FREE },
		{ inv->key, QPN + 1, &w->pd, SMX_CHECK_NONE },
		{ inv->key, QPN, &w->pd, SMX_CHECK_REMOTE_FREE },
	};
	for (unsigned int i = 0; i < SMX_COUNT(rows); i++) {
		assert_string_equal(
			smx_check_info(smx_mkey_remote_invalidate(&w->dev, rows[i].key, rows[i].pd,
								  rows[i].qpn, text, sizeof(text)))
				->name,
			smx_check_info(rows[i].want)->name);
		if (rows[i].want)
			assert_non_null(strstr(text, "to invalidate"));
	}
	/* What was unbound does not come back by taking the free bit away. */
	umr = (struct smx_umr){ .key = mw->key, .ctrl.mkey_mask = to_be64(SMX_UMR_MASK_FREE) };
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, plain->key, 0, 64, SMX_CHECK_NONE);
	may(w, SMX_DMA_GATHER, inv->key, 0, 64, SMX_CHECK_GATHER_FREE);
	may(w, SMX_DMA_REMOTE_READ, mw->key, (uintptr_t)mem, 1, SMX_CHECK_REMOTE_FREE);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_keys_are_cheap_and_distinct),
		cmocka_unit_test(creation_is_checked),
		cmocka_unit_test(reregistration_keeps_the_key),
		cmocka_unit_test(refused_umr_changes_nothing),
		cmocka_unit_test(layouts_at_their_edges),
		cmocka_unit_test(umr_takes_over_what_the_mask_names),
		cmocka_unit_test(invalidate_then_another_layout),
		cmocka_unit_test(tag_changes_where_the_key_was_created_so),
		cmocka_unit_test(type_1_window),
		cmocka_unit_test(type_2_window_belongs_to_its_queue_pair),
		cmocka_unit_test(bind_needs_a_region_that_allows_it),
		cmocka_unit_test(windows_lie_over_regions_only),
		cmocka_unit_test(remote_invalidate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
