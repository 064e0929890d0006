/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From what is wrong with an access to the check that is named, and to the sentence with its
 * values. */
#include "obj/dma.h"

#include <inttypes.h>
#include <stdio.h>

#include "obj/dma_walk.h"

#define ROWS(side, qp) { \
	[SMX_WRONG_KEY] = SMX_CHECK_##side##_KEY, \
	[SMX_WRONG_FREE] = SMX_CHECK_##side##_FREE, \
	[SMX_WRONG_PD] = SMX_CHECK_##side##_PD, \
	[SMX_WRONG_QP] = SMX_CHECK_##qp, \
	[SMX_WRONG_RIGHT] = SMX_CHECK_##side##_RIGHT, \
	[SMX_WRONG_RANGE] = SMX_CHECK_##side##_RANGE, \
	[SMX_WRONG_FAULT] = SMX_CHECK_##side##_FAULT, \
	[SMX_WRONG_DEPTH] = SMX_CHECK_##side##_DEPTH, \
}

/* A window of another queue pair is, for local access, as foreign as a key of another domain. */
static const smx_outcome check_of[][SMX_WRONG_COUNT] = {
	[SMX_DMA_GATHER] = ROWS(GATHER, GATHER_PD),
	[SMX_DMA_SCATTER] = ROWS(SCATTER, SCATTER_PD),
	[SMX_DMA_RECV] = ROWS(RECV, RECV_PD),
	[SMX_DMA_REMOTE_READ] = ROWS(REMOTE, REMOTE_QP),
	[SMX_DMA_REMOTE_WRITE] = ROWS(REMOTE, REMOTE_QP),
	[SMX_DMA_REMOTE_ATOMIC] = ROWS(REMOTE, REMOTE_QP),
};

static enum smx_dma_wrong wrong_of(const struct smx_dma_fault *fault)
{
	for (int i = 0; i < SMX_WRONG_COUNT; i++) {
		if (check_of[fault->role][i] == fault->check)
			return i;
	}
	return SMX_WRONG_COUNT;
}

smx_outcome smx_dma_wrong(const struct smx_walk *w, const struct smx_access *a,
			  enum smx_dma_wrong what, struct smx_dma_fault *fault)
{
	*fault = (struct smx_dma_fault){
		.check = check_of[w->role][what],
		.key = a->key,
		.va = a->va,
		.length = a->length,
		.mkey = smx_mkey_find(w->dev, a->key),
		.outer_key = a->outer_key,
		.pdn = w->pd->pdn,
		.qpn = w->qpn,
		.role = w->role,
	};
	return fault->check;
}

smx_outcome smx_dma_blame(const struct smx_walk *w, const uint8_t *ptr, const void *bad, uint64_t n,
			  struct smx_dma_fault *fault)
{
	const struct smx_mkey *leaf = w->leaf;
	uint32_t outer_key = leaf ? smx_walk_sges(w)[w->sge_at].key : 0;
	struct smx_access a = {
		.key = leaf ? leaf->key : 0,
		.outer_key = outer_key,
		.nested = leaf && leaf->key != outer_key,
		.va = leaf ? leaf->attr.start + ((uintptr_t)ptr - (uintptr_t)leaf->attr.host)
			   : (uintptr_t)ptr,
		.length = n,
	};

	smx_dma_wrong(w, &a, SMX_WRONG_FAULT, fault);
	fault->host = bad;
	return fault->check;
}

uint64_t smx_layout_total(const struct smx_mkey *mkey)
{
	uint64_t total = 0, bytes;
	uint32_t num_ent;

	for (uint32_t i = 0; i < mkey->entry_count; i += 1 + num_ent) {
		const struct smx_wqe_klm *e = &mkey->entry[i];

		num_ent = 0;
		bytes = from_be32(e->byte_count);
		if (smx_entry_is_block(e)) {
			num_ent = from_be16(smx_entry_block(e)->num_ent);
			bytes = smx_block_bytes(e) * from_be32(smx_entry_block(e)->repeat_count);
		}
		if (__builtin_add_overflow(total, bytes, &total))
			return UINT64_MAX;
	}
	return total;
}

struct text { char s[160]; };

/* What is known about the key, after its number. */
static struct text about(const struct smx_mkey *mkey, const struct smx_dma_fault *f)
{
	static const char *const right[] = {
		"", "local write", "local write", "remote read", "remote write", "remote atomic",
	};
	uint64_t total;
	struct text t = { "" };

	switch (mkey ? wrong_of(f) : SMX_WRONG_KEY) {
	case SMX_WRONG_KEY:
		if (mkey)
			snprintf(t.s, sizeof(t.s), "; the key there is now 0x%" PRIx32, mkey->key);
		else
			snprintf(t.s, sizeof(t.s), "; no key is there");
		break;
	case SMX_WRONG_PD:
	case SMX_WRONG_QP:
		snprintf(t.s, sizeof(t.s),
			 ", key has pd 0x%" PRIx32 " qpn 0x%" PRIx32 ", asked with pd 0x%" PRIx32
			 " qpn 0x%" PRIx32,
			 mkey->attr.pd->pdn, mkey->qpn, f->pdn, f->qpn);
		break;
	case SMX_WRONG_RIGHT:
		snprintf(t.s, sizeof(t.s), ", key has access 0x%" PRIx32 ", %s is needed",
			 mkey->attr.access,
			 f->key == f->outer_key ? right[f->role] : "local write");
		break;
	case SMX_WRONG_RANGE:
		snprintf(t.s, sizeof(t.s), ", key covers 0x%" PRIx64 " length %" PRIu64,
			 mkey->attr.start, mkey->attr.length);
		total = smx_mkey_is_leaf(mkey) ? UINT64_MAX : smx_layout_total(mkey);
		if (total < mkey->attr.length)
			snprintf(t.s, sizeof(t.s),
				 ", key has length %" PRIu64 " but its entries have %" PRIu64
				 " bytes",
				 mkey->attr.length, total);
		break;
	case SMX_WRONG_FAULT:
		snprintf(t.s, sizeof(t.s),
			 ", host address %p of region 0x%" PRIx64 " length %" PRIu64, f->host,
			 mkey->attr.start, mkey->attr.length);
		break;
	case SMX_WRONG_DEPTH:
		snprintf(t.s, sizeof(t.s), ", which lies under %d others", SMX_WALK_DEPTH);
		break;
	default:
		if (f->host)
			snprintf(t.s, sizeof(t.s), ", host address %p", f->host);
		break;
	}
	return t;
}

const char *smx_walk_fault_text(const struct smx_dev *dev, const struct smx_dma_fault *fault,
				char *buf, size_t len)
{
	const struct smx_mkey *mkey = smx_idmap_get(&dev->mkeys, fault->key >> 8);
	const char *kind = fault->role >= SMX_DMA_REMOTE_READ ? "rkey" : "lkey";
	struct text tail = about(mkey, fault);

	if (!fault->key && fault->host)	/* the device's own or a ring's memory */
		snprintf(buf, len, "host address %p", fault->host);
	else if (!fault->key && fault->check == SMX_CHECK_GATHER_FAULT)	/* pulled by another process */
		snprintf(buf, len, "length %" PRIu64 " from byte %" PRIu64 " of what was sent",
			 fault->length, fault->va);
	else if (fault->key == fault->outer_key)
		snprintf(buf, len, "%s 0x%" PRIx32 " address 0x%" PRIx64 " length %" PRIu64 "%s",
			 kind, fault->key, fault->va, fault->length, tail.s);
	else
		snprintf(buf, len,
			 "key 0x%" PRIx32 " (under %s 0x%" PRIx32 ") address 0x%" PRIx64
			 " length %" PRIu64 "%s",
			 fault->key, kind, fault->outer_key, fault->va, fault->length, tail.s);
	return buf;
}

smx_outcome smx_walk_refuse(struct smx_dev *dev, const struct smx_dma_fault *fault,
			    const struct smx_where *where)
{
	char text[sizeof(((struct smx_refusal *)0)->text)];

	smx_refuse(dev->attr.env.refusals, fault->check, where, "%s",
		   smx_walk_fault_text(dev, fault, text, sizeof(text)));
	return fault->check;
}
