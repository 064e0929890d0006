/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory keys: what a key covers and what it allows.
 *
 * A key is index << 8 | tag. Regions and windows carry their tag from creation; the tag of an indirect
 * key changes by UMR only if it was created so. An indirect key holds translation entries exactly as a
 * UMR wrote them (16 bytes each, big-endian): struct smx_wqe_klm, or a struct smx_wqe_repeat_block that
 * takes an entry's place and is followed by num_ent struct smx_wqe_repeat_ent. */
#ifndef SMX_OBJ_MKEY_H
#define SMX_OBJ_MKEY_H

#include "hw/wqe.h"
#include "obj/device.h"

/* What each access looks at comes first. */
struct smx_mkey {
	uint32_t key;
	bool free;		/* no access: before the first UMR or bind, and after an invalidate */
	bool bound;		/* WINDOW: the entry below is in force */
	struct smx_mkey_attr attr;	/* access, start, length, host are the values in force */
	uint32_t qpn;		/* WINDOW type 2: the only queue pair that may use it; otherwise 0xffffff */
	struct smx_wqe_klm *entry;	/* INDIRECT: attr.max_entries; WINDOW: one */
	uint32_t entry_count;	/* in force */
	struct smx_wqe_klm window_entry;	/* WINDOW: what entry points at */
};

#define SMX_MKEY_ANY_QP 0xffffffu

int smx_mkey_create(struct smx_dev *dev, const struct smx_mkey_attr *attr, struct smx_mkey **out);
int smx_mkey_modify(struct smx_dev *dev, struct smx_mkey *mkey, int which, const struct smx_mkey_attr *attr);
int smx_mkey_destroy(struct smx_dev *dev, struct smx_mkey *mkey);

/* RETURN the key's object if index and tag name one, else NULL. */
static inline struct smx_mkey *smx_mkey_find(const struct smx_dev *dev, uint32_t key)
{
	struct smx_mkey *mkey = smx_idmap_get(&dev->mkeys, key >> 8);

	return mkey && mkey->key == key ? mkey : NULL;
}

/* May queue pair qpn of pd touch byte off of the key with this right? Range and rights are those of now. */
static inline bool smx_mkey_admits(const struct smx_mkey *mkey, const struct smx_pd *pd, uint32_t qpn, uint32_t right,
				   uint64_t off)
{
	/* The null key belongs to the device. */
	return !mkey->free && (mkey->attr.pd == pd || mkey->attr.kind == SMX_MKEY_NULL) &&
	       (mkey->qpn == SMX_MKEY_ANY_QP || mkey->qpn == qpn) && !(right & ~mkey->attr.access) &&
	       off < mkey->attr.length;
}

/* Its bytes are where it says itself, not other keys' (or nowhere: SMX_MKEY_NULL). */
static inline bool smx_mkey_is_leaf(const struct smx_mkey *mkey)
{
	return mkey->attr.kind < SMX_MKEY_INDIRECT;
}

static inline uint8_t *smx_leaf_host(const struct smx_mkey *leaf, uint64_t off)
{
	/* By integer: an implicit key has no object for the pointer to stay in. */
	return leaf->attr.kind == SMX_MKEY_NULL ? NULL : (uint8_t *)((uintptr_t)leaf->attr.host + off);
}

/* A UMR, bind or local invalidate, already parsed from its WQE. umr->rsvd fields are not looked at. */
struct smx_umr {
	uint32_t key;			/* control segment's imm: the key as it is now */
	struct smx_wqe_umr_ctrl ctrl;
	struct smx_wqe_mkey_ctx ctx;
	const struct smx_wqe_klm *entry;	/* ctrl.klm_octowords entries that follow, or NULL */
	uint32_t entry_count;
};

/* Carries it out for a request of queue pair qpn in pd. Nothing is changed unless all checks pass; then exactly the
 * fields that mkey_mask names are. */
smx_outcome smx_mkey_umr(struct smx_dev *dev, const struct smx_umr *umr, const struct smx_pd *pd,
			 const struct smx_where *where);

/* SEND with invalidate, at the responder. Where it is refused, text has the values: the requester is the one who
 * records them. */
smx_outcome smx_mkey_remote_invalidate(struct smx_dev *dev, uint32_t key, const struct smx_pd *pd,
				       uint32_t qpn, char *text, size_t len);

#endif
