/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Creating, changing and destroying memory keys, and the remote invalidate. */
#include "obj/mkey.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_ENTRIES = 1 << 20 };

static struct smx_refusal_log *log_of(const struct smx_dev *dev)
{
	return dev->attr.env.refusals;
}

/* Remote write and remote atomic make no sense where the owner itself may not write. */
static int check_access(struct smx_dev *dev, enum smx_mkey_kind kind, uint32_t access)
{
	bool region = kind == SMX_MKEY_DIRECT || kind == SMX_MKEY_IMPLICIT;

	if (region && access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return smx_refuse(log_of(dev), SMX_CHECK_MR_ACCESS, NULL,
				  "access 0x%" PRIx32
				  " has remote write or atomic without local write",
				  access);
	return 0;
}

static int check_range(struct smx_dev *dev, const struct smx_mkey_attr *attr)
{
	uint64_t host = (uintptr_t)attr->host;

	if (attr->kind != SMX_MKEY_DIRECT)
		return 0;
	if (attr->start + attr->length < attr->start || host + attr->length < host)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG, NULL,
				  "address 0x%" PRIx64 " host %p length %" PRIu64
				  " runs past the last address",
				  attr->start, attr->host, attr->length);
	return 0;
}

static int check_attr(struct smx_dev *dev, const struct smx_mkey_attr *attr)
{
	int err;

	if (!attr->pd || (attr->kind == SMX_MKEY_WINDOW && attr->mw_type != IBV_MW_TYPE_1 &&
			  attr->mw_type != IBV_MW_TYPE_2))
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG, NULL, "%s",
				  attr->pd ? "memory window type is neither 1 nor 2"
					   : "no protection domain");
	if (attr->kind == SMX_MKEY_INDIRECT && attr->max_entries > MAX_ENTRIES)
		return smx_refuse(log_of(dev), SMX_CHECK_NO_RESOURCES, NULL,
				  "max_entries %" PRIu32 ", the device has %d", attr->max_entries,
				  MAX_ENTRIES);
	err = check_access(dev, attr->kind, attr->access);
	return err ? err : check_range(dev, attr);
}

/* Tags differ from key to key, so that a stale key rarely names a new object. An indirect key
 * starts with 0: that is what drivers expect of one whose tag a UMR may not change. */
static uint32_t new_tag(struct smx_dev *dev, enum smx_mkey_kind kind)
{
	if (kind == SMX_MKEY_INDIRECT)
		return 0;
	return (dev->attr.key_seed + dev->next_tag++) & 0xff;
}

static int alloc_entries(struct smx_mkey *mkey)
{
	/* A UMR writes entries in groups of four, of which the last may be padding. */
	uint32_t room = (mkey->attr.max_entries + 3) & ~3u;

	if (mkey->attr.kind == SMX_MKEY_WINDOW) {
		mkey->attr.max_entries = 1;
		mkey->entry = &mkey->window_entry;
	} else if (mkey->attr.kind == SMX_MKEY_INDIRECT) {
		mkey->attr.max_entries = room;
		mkey->entry = calloc(room ? room : 1, sizeof(*mkey->entry));
		return mkey->entry ? 0 : ENOMEM;
	}
	return 0;
}

static void free_mkey(struct smx_mkey *mkey)
{
	if (mkey->attr.kind == SMX_MKEY_INDIRECT)
		free(mkey->entry);
	free(mkey);
}

/* What the kind itself decides, whatever the caller filled in. */
static void set_kind(struct smx_mkey *mkey)
{
	struct smx_mkey_attr *attr = &mkey->attr;

	if (attr->kind == SMX_MKEY_IMPLICIT || attr->kind == SMX_MKEY_NULL) {
		attr->start = 0;
		attr->length = UINT64_MAX;
		attr->host = NULL;	/* IMPLICIT: host address and key address are the same */
	}
	mkey->free = attr->kind == SMX_MKEY_INDIRECT || attr->kind == SMX_MKEY_WINDOW;
	mkey->qpn = SMX_MKEY_ANY_QP;
}

int smx_mkey_create(struct smx_dev *dev, const struct smx_mkey_attr *attr, struct smx_mkey **out)
{
	int err = check_attr(dev, attr);
	struct smx_mkey *mkey;
	uint32_t index;

	if (err)
		return err;
	mkey = calloc(1, sizeof(*mkey));
	if (!mkey)
		return smx_refuse(log_of(dev), SMX_CHECK_NO_RESOURCES, NULL,
				  "no memory for a memory key");
	mkey->attr = *attr;
	set_kind(mkey);
	if (alloc_entries(mkey) || smx_idmap_add(&dev->mkeys, mkey, &index)) {
		free_mkey(mkey);
		return smx_refuse(log_of(dev), SMX_CHECK_NO_RESOURCES, NULL,
				  "memory keys in use %" PRIu32 " of %" PRIu32, dev->mkeys.used,
				  dev->mkeys.max);
	}
	mkey->key = index << 8 | new_tag(dev, attr->kind);
	mkey->attr.pd->users++;
	*out = mkey;
	return 0;
}

int smx_mkey_modify(struct smx_dev *dev, struct smx_mkey *mkey, int which,
		    const struct smx_mkey_attr *attr)
{
	struct smx_mkey_attr next = mkey->attr;
	int err;

	if (mkey->attr.kind != SMX_MKEY_DIRECT && mkey->attr.kind != SMX_MKEY_IMPLICIT)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG, NULL,
				  "key 0x%" PRIx32
				  " is not a region, so it cannot be registered anew",
				  mkey->key);
	if (which & IBV_REREG_MR_CHANGE_TRANSLATION) {
		next.kind = attr->kind;
		next.start = attr->start;
		next.length = attr->length;
		next.host = attr->host;
		next.shared = attr->shared;
		next.cookie = attr->cookie;
	}
	if (which & IBV_REREG_MR_CHANGE_PD)
		next.pd = attr->pd;
	if (which & IBV_REREG_MR_CHANGE_ACCESS)
		next.access = attr->access;
	if (next.kind != SMX_MKEY_DIRECT && next.kind != SMX_MKEY_IMPLICIT)
		return smx_refuse(log_of(dev), SMX_CHECK_OBJECT_ARG, NULL,
				  "key 0x%" PRIx32 " can only become another region", mkey->key);
	err = check_attr(dev, &next);
	if (err)
		return err;

	next.pd->users++;
	mkey->attr.pd->users--;
	mkey->attr = next;
	set_kind(mkey);
	dev->mkey_changes++;
	return 0;
}

int smx_mkey_destroy(struct smx_dev *dev, struct smx_mkey *mkey)
{
	void *was = smx_idmap_remove(&dev->mkeys, mkey->key >> 8);

	assert(was == mkey);
	assert(mkey->attr.pd->users > 0);
	(void)was;
	mkey->attr.pd->users--;
	dev->mkey_changes++;
	free_mkey(mkey);
	return 0;
}

/* RETURN what forbids the invalidate, in the order in which a responder looks. */
static smx_outcome invalidate_check(const struct smx_mkey *mkey, uint32_t key,
				    const struct smx_pd *pd, uint32_t qpn)
{
	bool type2 =
		mkey && mkey->attr.kind == SMX_MKEY_WINDOW && mkey->attr.mw_type == IBV_MW_TYPE_2;
	bool indirect =
		mkey && mkey->attr.kind == SMX_MKEY_INDIRECT && mkey->attr.remote_invalidate;

	if (!mkey || mkey->key != key)
		return SMX_CHECK_REMOTE_KEY;
	if (mkey->attr.pd != pd)
		return SMX_CHECK_REMOTE_PD;
	if (!type2 && !indirect)
		return SMX_CHECK_REMOTE_INVALIDATE;
	if (mkey->free)
		return SMX_CHECK_REMOTE_FREE;
	if (mkey->qpn != SMX_MKEY_ANY_QP && mkey->qpn != qpn)
		return SMX_CHECK_REMOTE_QP;
	return SMX_CHECK_NONE;
}

smx_outcome smx_mkey_remote_invalidate(struct smx_dev *dev, uint32_t key, const struct smx_pd *pd,
				       uint32_t qpn, char *text, size_t len)
{
	struct smx_mkey *mkey = smx_idmap_get(&dev->mkeys, key >> 8);
	smx_outcome check = invalidate_check(mkey, key, pd, qpn);

	if (check) {
		snprintf(text, len,
			 "rkey 0x%" PRIx32 " to invalidate; key there 0x%" PRIx32 " pd 0x%" PRIx32
			 " qpn 0x%" PRIx32 ", asked with pd 0x%" PRIx32 " qpn 0x%" PRIx32,
			 key, mkey ? mkey->key : 0, mkey ? mkey->attr.pd->pdn : 0,
			 mkey ? mkey->qpn : 0, pd->pdn, qpn);
		return check;
	}
	mkey->free = true;
	mkey->bound = false;
	mkey->qpn = SMX_MKEY_ANY_QP;
	dev->mkey_changes++;
	return SMX_CHECK_NONE;
}
