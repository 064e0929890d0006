/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* UMR, memory window bind and local invalidate: one operation that takes over selected fields.
 *
 * All checks come first; only then is the key touched. A key that is free gives nobody access, so
 * its tag is not compared for a window or where a UMR may set it: drivers go on naming a window by
 * the key that it had when it was allocated. */
#include "obj/mkey.h"

#include <inttypes.h>

#include "obj/mkey_layout.h"

#define MASK_LOCAL_READ (1ull << 17)	/* of no effect: reading locally needs no right */
#define MASK_RIGHTS \
	(SMX_UMR_MASK_LOCAL_WRITE | SMX_UMR_MASK_REMOTE_READ | SMX_UMR_MASK_REMOTE_WRITE | \
	 SMX_UMR_MASK_ATOMIC)
#define MASK_KNOWN \
	(SMX_UMR_MASK_LEN | SMX_UMR_MASK_START_ADDR | SMX_UMR_MASK_MKEY | SMX_UMR_MASK_QPN | \
	 MASK_LOCAL_READ | MASK_RIGHTS | SMX_UMR_MASK_FREE)

/* One request while it is being checked. */
struct change {
	struct smx_dev *dev;
	const struct smx_umr *umr;
	const struct smx_where *where;
	struct smx_mkey *mkey;
	uint64_t mask;
	uint32_t octowords;	/* entries that the request brings */
	uint32_t offset;	/* where they go */
	uint32_t access;	/* as it will be */
	uint32_t tag, qpn;	/* as they will be */
	bool free;		/* as it will be */
};

static struct smx_refusal_log *log_of(const struct change *c)
{
	return c->dev->attr.env.refusals;
}

static uint32_t next_access(const struct change *c)
{
	static const struct { uint64_t mask; uint8_t bit; uint32_t flag; } right[] = {
		{ SMX_UMR_MASK_LOCAL_WRITE, SMX_MKC_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE },
		{ SMX_UMR_MASK_REMOTE_READ, SMX_MKC_REMOTE_READ, IBV_ACCESS_REMOTE_READ },
		{ SMX_UMR_MASK_REMOTE_WRITE, SMX_MKC_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE },
		{ SMX_UMR_MASK_ATOMIC, SMX_MKC_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC },
	};
	uint32_t access = c->mkey->attr.access;

	for (unsigned int i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
		if (!(c->mask & right[i].mask))
			continue;
		access &= ~right[i].flag;
		if (c->umr->ctx.access & right[i].bit)
			access |= right[i].flag;
	}
	return access;
}

static smx_outcome check_format(const struct change *c)
{
	const struct smx_wqe_umr_ctrl *ctrl = &c->umr->ctrl;
	uint32_t offset_or_bsf = from_be16(ctrl->xlt_offset);

	if (c->octowords % 4) {
		smx_refuse(log_of(c), SMX_CHECK_UMR_OCTOWORDS, c->where, "octowords %" PRIu32,
			   c->octowords);
		return SMX_CHECK_UMR_OCTOWORDS;
	}
	if (c->mask & ~MASK_KNOWN || (offset_or_bsf && !(ctrl->flags & SMX_UMR_XLT_OFFSET)) ||
	    (c->octowords && !(ctrl->flags & SMX_UMR_INLINE))) {
		smx_refuse(log_of(c), SMX_CHECK_UMR_FIELD, c->where,
			   "flags 0x%x octowords %" PRIu32 " offset or BSF octowords %" PRIu32
			   " mask 0x%" PRIx64 ", of which the device knows 0x%" PRIx64, ctrl->flags,
			   c->octowords, offset_or_bsf, c->mask, (uint64_t)MASK_KNOWN);
		return SMX_CHECK_UMR_FIELD;
	}
	if (c->octowords > c->umr->entry_count || (c->octowords && !c->umr->entry)) {
		smx_refuse(log_of(c), SMX_CHECK_WQE_LENGTH, c->where,
			   "octowords %" PRIu32 ", of which the WQE holds %" PRIu32, c->octowords,
			   c->umr->entry_count);
		return SMX_CHECK_WQE_LENGTH;
	}
	return SMX_CHECK_NONE;
}

static bool tag_matters(const struct smx_mkey *mkey)
{
	return !mkey->free || (mkey->attr.kind == SMX_MKEY_INDIRECT && !mkey->attr.update_tag);
}

static smx_outcome check_target(const struct change *c, const struct smx_pd *pd)
{
	const struct smx_mkey *mkey = c->mkey;
	uint32_t key = c->umr->key;
	smx_outcome check = SMX_CHECK_NONE;

	if (!mkey || (mkey->key != key && tag_matters(mkey))) {
		smx_refuse(log_of(c), SMX_CHECK_UMR_KEY, c->where,
			   mkey ? "key 0x%" PRIx32 "; the key there is now 0x%" PRIx32
				: "key 0x%" PRIx32 "; no key is there", key, mkey ? mkey->key : 0);
		return SMX_CHECK_UMR_KEY;
	}
	if (mkey->attr.pd != pd)
		check = SMX_CHECK_UMR_PD;
	else if (mkey->attr.kind != SMX_MKEY_INDIRECT && mkey->attr.kind != SMX_MKEY_WINDOW)
		check = SMX_CHECK_UMR_KIND;
	else if (c->umr->ctrl.flags & SMX_UMR_CHECK_FREE && !mkey->free)
		check = SMX_CHECK_UMR_NOT_FREE;
	else if (c->umr->ctrl.flags & SMX_UMR_CHECK_QPN && mkey->qpn != SMX_MKEY_ANY_QP &&
		 mkey->qpn != c->where->qpn)
		check = SMX_CHECK_UMR_QPN;
	if (check)
		smx_refuse(log_of(c), check, c->where,
			   "key 0x%" PRIx32 " %s pd 0x%" PRIx32 " qpn 0x%" PRIx32
			   ", asked with pd 0x%" PRIx32 " qpn 0x%" PRIx32,
			   key, mkey->free ? "free" : "in use", mkey->attr.pd->pdn, mkey->qpn,
			   pd->pdn, c->where->qpn);
	return check;
}

/* The layout as it will be: the request's entries where they go, the key's own elsewhere. */
static const struct smx_wqe_klm *entry_at(const struct change *c, uint32_t i)
{
	if (i - c->offset < c->octowords)
		return &c->umr->entry[i - c->offset];
	return &c->mkey->entry[i];
}

static uint32_t next_count(const struct change *c)
{
	uint32_t end = c->offset + c->octowords;

	/* Without an offset the request brings the whole layout. */
	if (!c->octowords ||
	    (c->umr->ctrl.flags & SMX_UMR_XLT_OFFSET && end < c->mkey->entry_count))
		return c->mkey->entry_count;
	return end;
}

static smx_outcome check_layout(const struct change *c)
{
	uint32_t count = next_count(c);
	uint32_t num_ent;

	if (c->octowords && c->offset + c->octowords > c->mkey->attr.max_entries) {
		smx_refuse(log_of(c), SMX_CHECK_UMR_TRANSLATION, c->where,
			   "key 0x%" PRIx32 " octowords %" PRIu32 " at offset %" PRIu32
			   ", the key was created for %" PRIu32,
			   c->umr->key, c->octowords, c->offset, c->mkey->attr.max_entries);
		return SMX_CHECK_UMR_TRANSLATION;
	}
	for (uint32_t i = 0; c->octowords && i < count; i += 1 + num_ent) {
		const struct smx_wqe_klm *e = entry_at(c, i);

		num_ent = smx_entry_is_block(e) ? from_be16(smx_entry_block(e)->num_ent) : 0;
		if (num_ent < count - i)
			continue;
		smx_refuse(log_of(c), SMX_CHECK_UMR_ENTRY, c->where,
			   "key 0x%" PRIx32 " strided block at entry %" PRIu32 " names %" PRIu32
			   " entries, %" PRIu32 " follow", c->umr->key, i, num_ent, count - i - 1);
		return SMX_CHECK_UMR_ENTRY;
	}
	return SMX_CHECK_NONE;
}

/* RETURN what is wrong with the region under a window, in words, or NULL. */
static const char *bind_fault(const struct change *c, const struct smx_mkey *mr, uint64_t va,
			      uint64_t length)
{
	uint64_t off = mr ? va - mr->attr.start : 0;

	if (!mr || mr->free)
		return "is not there";
	if (mr->attr.pd != c->mkey->attr.pd)
		return "is of another protection domain";
	if (mr->attr.kind != SMX_MKEY_DIRECT && mr->attr.kind != SMX_MKEY_IMPLICIT)
		return "is no region";
	if (!(mr->attr.access & IBV_ACCESS_MW_BIND))
		return "lacks IBV_ACCESS_MW_BIND";
	if (c->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(mr->attr.access & IBV_ACCESS_LOCAL_WRITE))
		return "lacks IBV_ACCESS_LOCAL_WRITE, which remote write and atomic need";
	if (length > mr->attr.length || off > mr->attr.length - length)
		return "does not cover the window";
	return NULL;
}

/* IBA 10.6.7.2: the region must allow what the window will allow. */
static smx_outcome check_bind(const struct change *c)
{
	const struct smx_wqe_klm *e = c->umr->entry;
	const struct smx_mkey *mr;
	const char *fault;
	uint32_t lkey, length;
	uint64_t va;

	for (uint32_t i = 1; i < c->octowords; i++) {
		if (!from_be32(e[i].byte_count))
			continue;
		smx_refuse(log_of(c), SMX_CHECK_UMR_TRANSLATION, c->where,
			   "window 0x%" PRIx32 " has one entry, entry %" PRIu32 " is not empty",
			   c->umr->key, i);
		return SMX_CHECK_UMR_TRANSLATION;
	}
	lkey = from_be32(e->mkey);
	length = from_be32(e->byte_count);
	va = from_be64(e->va);
	mr = smx_mkey_find(c->dev, lkey);
	fault = bind_fault(c, mr, va, length);
	if (!fault)
		return SMX_CHECK_NONE;
	smx_refuse(log_of(c), SMX_CHECK_BIND_MR, c->where,
		   "window 0x%" PRIx32 " address 0x%" PRIx64 " length %" PRIu32 " access 0x%" PRIx32
		   ": region lkey 0x%" PRIx32 " (0x%" PRIx64 " length %" PRIu64 ") %s",
		   c->umr->key, va, length, c->access, lkey, mr ? mr->attr.start : 0,
		   mr ? mr->attr.length : 0, fault);
	return SMX_CHECK_BIND_MR;
}

static smx_outcome check_tag(const struct change *c)
{
	const struct smx_mkey *mkey = c->mkey;

	if (mkey->attr.kind == SMX_MKEY_WINDOW || mkey->attr.update_tag ||
	    c->tag == (mkey->key & 0xff))
		return SMX_CHECK_NONE;
	smx_refuse(log_of(c), SMX_CHECK_UMR_TAG, c->where, "key 0x%" PRIx32 " to tag 0x%02" PRIx32,
		   mkey->key, c->tag);
	return SMX_CHECK_UMR_TAG;
}

static smx_outcome check_entries(const struct change *c)
{
	if (c->mkey->attr.kind == SMX_MKEY_INDIRECT)
		return check_layout(c);
	if (!c->octowords || c->free)
		return SMX_CHECK_NONE;
	if (c->offset) {
		smx_refuse(log_of(c), SMX_CHECK_UMR_TRANSLATION, c->where,
			   "window 0x%" PRIx32 " has one entry, offset %" PRIu32, c->umr->key,
			   c->offset);
		return SMX_CHECK_UMR_TRANSLATION;
	}
	/* A bind of length 0 unbinds; nothing of the region is looked at. */
	return from_be32(c->umr->entry->byte_count) ? check_bind(c) : SMX_CHECK_NONE;
}

static void take_entries(const struct change *c)
{
	struct smx_mkey *mkey = c->mkey;
	uint32_t count = next_count(c);

	if (mkey->attr.kind == SMX_MKEY_WINDOW) {
		if (c->free)
			mkey->bound = false;
		else if (c->octowords)
			mkey->bound = from_be32(c->umr->entry->byte_count) != 0;
		if (mkey->bound && c->octowords)
			mkey->window_entry = c->umr->entry[0];
		mkey->entry_count = mkey->bound;
		return;
	}
	if (!c->octowords)
		return;
	memcpy(mkey->entry + c->offset, c->umr->entry, c->octowords * sizeof(*mkey->entry));
	mkey->entry_count = count;
}

static void take_fields(const struct change *c)
{
	struct smx_mkey *mkey = c->mkey;

	mkey->attr.access = c->access;
	mkey->free = c->free;
	mkey->qpn = c->qpn;
	mkey->key = (mkey->key & ~0xffu) | c->tag;
	if (c->mask & SMX_UMR_MASK_LEN)
		mkey->attr.length = from_be64(c->umr->ctx.len);
	if (c->mask & SMX_UMR_MASK_START_ADDR)
		mkey->attr.start = from_be64(c->umr->ctx.start_addr);
	take_entries(c);
	if (mkey->attr.kind == SMX_MKEY_WINDOW && !mkey->bound) {
		mkey->free = true;
		mkey->qpn = SMX_MKEY_ANY_QP;
	}
	c->dev->mkey_changes++;
}

smx_outcome smx_mkey_umr(struct smx_dev *dev, const struct smx_umr *umr, const struct smx_pd *pd,
			 const struct smx_where *where)
{
	struct change c = {
		.dev = dev,
		.umr = umr,
		.where = where,
		.mkey = smx_idmap_get(&dev->mkeys, umr->key >> 8),
		.mask = from_be64(umr->ctrl.mkey_mask),
		.octowords = from_be16(umr->ctrl.klm_octowords),
		.offset =
			umr->ctrl.flags & SMX_UMR_XLT_OFFSET ? from_be16(umr->ctrl.xlt_offset) : 0,
	};
	uint32_t qpn_mkey = from_be32(umr->ctx.qpn_mkey);
	smx_outcome check = check_format(&c);

	if (!check)
		check = check_target(&c, pd);
	if (check)
		return check;
	c.free = c.mask & SMX_UMR_MASK_FREE ? umr->ctx.free & SMX_MKC_FREE : c.mkey->free;
	c.tag = c.mask & SMX_UMR_MASK_MKEY ? qpn_mkey & 0xff : c.mkey->key & 0xff;
	c.qpn = c.mask & SMX_UMR_MASK_QPN ? qpn_mkey >> 8 : c.mkey->qpn;
	c.access = next_access(&c);
	check = check_tag(&c);
	if (!check)
		check = check_entries(&c);
	if (!check)
		take_fields(&c);
	return check;
}
