/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Walks: from lists of (key, address, length) to runs of host memory.
 *
 * The outermost key is checked for the right that the role needs. A key that it names in its
 * entries is checked as hardware does: same protection domain, not free, and local write where
 * memory is written; remote rights come from the outermost key alone. */
#include "obj/dma_walk.h"

#include <assert.h>

static inline uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void smx_walk_list(struct smx_walk *w, struct smx_dev *dev, const struct smx_pd *pd, uint32_t qpn,
		   enum smx_dma_role role, const struct smx_sge *sge, uint32_t sge_count)
{
	/* Field by field: the levels need no clearing, and this runs for every request. */
	w->dev = dev;
	w->pd = pd;
	w->sge = sge;
	w->sge_count = sge_count;
	w->sge_at = 0;
	w->sge_off = 0;
	w->role = role;
	w->qpn = qpn;
	w->depth = 0;
	w->changes = dev->mkey_changes;
	w->leaf = NULL;
}

void smx_walk_range(struct smx_walk *w, struct smx_dev *dev, const struct smx_pd *pd, uint32_t qpn,
		    enum smx_dma_role role, uint32_t key, uint64_t va, uint64_t length)
{
	smx_walk_list(w, dev, pd, qpn, role, NULL, 1);
	w->one = (struct smx_sge){ .va = va, .length = length, .key = key };
}

uint64_t smx_sge_total(const struct smx_sge *sge, uint32_t sge_count)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < sge_count; i++)
		total += sge[i].length;
	return total;
}

static __attribute__((cold, noinline)) smx_outcome not_admitted(const struct smx_walk *w,
								const struct smx_access *a,
								uint32_t right,
								struct smx_dma_fault *fault)
{
	const struct smx_mkey *mk = smx_mkey_find(w->dev, a->key);
	enum smx_dma_wrong what = SMX_WRONG_RANGE;

	if (!mk)
		what = SMX_WRONG_KEY;
	else if (mk->free)
		what = SMX_WRONG_FREE;
	else if (mk->attr.pd != w->pd && mk->attr.kind != SMX_MKEY_NULL)
		what = SMX_WRONG_PD;
	else if (mk->qpn != SMX_MKEY_ANY_QP && mk->qpn != w->qpn)
		what = SMX_WRONG_QP;
	else if (right & ~mk->attr.access)
		what = SMX_WRONG_RIGHT;
	return smx_dma_wrong(w, a, what, fault);
}

smx_outcome smx_dma_admit(const struct smx_walk *w, const struct smx_access *a, uint64_t at,
			  const struct smx_mkey **mkey, uint64_t *off, struct smx_dma_fault *fault)
{
	uint32_t right = a->nested ? smx_inner_right(w->role) : smx_outer_right(w->role);

	if (__builtin_expect(smx_dma_admitted(w, a->key, a->va + at, right, mkey, off), 1))
		return SMX_CHECK_NONE;
	return not_admitted(w, a, right, fault);
}

void smx_level_seek(struct smx_walk_level *l, uint32_t entry, uint64_t off)
{
	const struct smx_mkey *mkey = l->mkey;

	l->num_ent = 0;
	while (entry < mkey->entry_count) {
		const struct smx_wqe_klm *e = &mkey->entry[entry];
		uint64_t bytes = from_be32(e->byte_count);
		uint32_t num_ent = 0;

		if (smx_entry_is_block(e)) {
			num_ent = from_be16(smx_entry_block(e)->num_ent);
			l->repeat = from_be32(smx_entry_block(e)->repeat_count);
			l->block_bytes = smx_block_bytes(e);
			bytes = l->block_bytes * l->repeat;	/* below 2^64: 16 + 16 + 32 bits */
		}
		if (off < bytes) {
			l->num_ent = num_ent;
			break;
		}
		off -= bytes;
		entry += 1 + num_ent;
	}
	l->entry = entry;
	l->off = off;
	l->sub = 0;
	if (l->num_ent) {
		const struct smx_wqe_klm *e = &mkey->entry[entry];

		l->turn = (uint32_t)(off / l->block_bytes);
		l->off = off % l->block_bytes;
		for (; l->off >= from_be16(smx_block_entry(e, l->sub)->byte_count); l->sub++)
			l->off -= from_be16(smx_block_entry(e, l->sub)->byte_count);
	}
}

static uint64_t piece_bytes(const struct smx_walk_level *l)
{
	const struct smx_wqe_klm *e = &l->mkey->entry[l->entry];

	return l->num_ent ? from_be16(smx_block_entry(e, l->sub)->byte_count)
			  : from_be32(e->byte_count);
}

/* Behind the last entry of a block: the next turn, or what follows the block. */
void smx_level_next_turn(struct smx_walk_level *l, uint64_t turns)
{
	if (l->repeat - l->turn > turns) {
		l->turn += (uint32_t)turns;
		l->sub = 0;
		while (!piece_bytes(l))
			l->sub++;
	} else {
		smx_level_seek(l, l->entry + 1 + l->num_ent, 0);
	}
}

void smx_level_advance(struct smx_walk_level *l, uint64_t n)
{
	l->off += n;
	if (l->off < piece_bytes(l))
		return;
	l->off = 0;
	if (!l->num_ent) {
		smx_level_seek(l, l->entry + 1, 0);
		return;
	}
	do {
		l->sub++;
	} while (l->sub < l->num_ent && !piece_bytes(l));
	if (l->sub == l->num_ent)
		smx_level_next_turn(l, 1);
}

bool smx_level_at_turn(const struct smx_walk_level *l)
{
	if (!l->num_ent || l->off)
		return false;
	for (uint32_t i = 0; i < l->sub; i++) {
		if (from_be16(smx_block_entry(&l->mkey->entry[l->entry], i)->byte_count))
			return false;
	}
	return true;
}

/* The entry that the walk stands in, or NULL at its end. */
static inline const struct smx_sge *cur_sge(struct smx_walk *w)
{
	const struct smx_sge *sge = smx_walk_sges(w);

	for (; w->sge_at < w->sge_count; w->sge_at++, w->sge_off = 0) {
		if (w->sge_off < sge[w->sge_at].length)
			return &sge[w->sge_at];
	}
	return NULL;
}

/* What the innermost open position wants to touch next: its access, and which byte of it. */
static smx_outcome cur_access(const struct smx_walk *w, const struct smx_sge *sge,
			      struct smx_access *a, uint64_t *at, uint64_t *want,
			      struct smx_dma_fault *fault)
{
	const struct smx_walk_level *l;

	*a = (struct smx_access){ sge->key, sge->key, false, sge->va, sge->length };
	*at = w->sge_off;
	*want = sge->length - w->sge_off;
	if (!w->depth)
		return SMX_CHECK_NONE;
	l = &w->level[w->depth - 1];
	if (smx_level_at_end(l)) {
		/* The key promises more bytes than its entries have. */
		if (w->depth > 1)
			smx_level_piece(l - 1, sge->key, a);
		return smx_dma_wrong(w, a, SMX_WRONG_RANGE, fault);
	}
	smx_level_piece(l, sge->key, a);
	*at = l->off;
	*want = least(a->length - l->off, l->left);
	return SMX_CHECK_NONE;
}

/* Where the next run is: in leaf from off on, n bytes; leaf NULL: host memory at off; n 0: the
 * end. */
struct place {
	const struct smx_mkey *leaf;
	uint64_t off, n;
};

/* The next piece of the layout at hand, where its key is not nested. RETURN false for all that
 * needs thought. */
static inline bool locate_leaf(const struct smx_walk *w, struct place *p)
{
	const struct smx_walk_level *l;
	struct smx_access a;

	if (!w->depth || w->changes != w->dev->mkey_changes)
		return false;
	l = &w->level[w->depth - 1];
	if (!l->left || smx_level_at_end(l))
		return false;
	smx_level_piece(l, 0, &a);
	if (!smx_dma_admitted(w, a.key, a.va + l->off, smx_inner_right(w->role), &p->leaf,
			      &p->off) ||
	    !smx_mkey_is_leaf(p->leaf) || !smx_leaf_host(p->leaf, p->off))
		return false;
	p->n = least(least(a.length - l->off, l->left), p->leaf->attr.length - p->off);
	return true;
}

/* Opens keys until a run is found. Moves nothing but the short cut. */
static __attribute__((noinline)) smx_outcome locate_any(struct smx_walk *w, struct place *p,
							struct smx_dma_fault *fault)
{
	const struct smx_sge *sge;
	struct smx_access a;
	uint64_t at, want;
	smx_outcome check;

	if (w->changes != w->dev->mkey_changes) {
		w->depth = 0;
		w->changes = w->dev->mkey_changes;
	}
	while (w->depth && !w->level[w->depth - 1].left)
		w->depth--;
	sge = cur_sge(w);
	p->leaf = NULL;
	p->n = 0;
	if (!sge)
		return SMX_CHECK_NONE;
	if (sge->is_host) {
		p->off = sge->va + w->sge_off;
		p->n = sge->length - w->sge_off;
		return SMX_CHECK_NONE;
	}
	for (;;) {
		const struct smx_mkey *mkey;
		struct smx_walk_level *l;

		check = cur_access(w, sge, &a, &at, &want, fault);
		if (!check)
			check = smx_dma_admit(w, &a, at, &mkey, &p->off, fault);
		if (check)
			return check;
		p->n = least(want, mkey->attr.length - p->off);
		if (smx_mkey_is_leaf(mkey)) {
			p->leaf = mkey;
			if (smx_leaf_host(mkey, p->off) || mkey->attr.kind == SMX_MKEY_NULL)
				return SMX_CHECK_NONE;
			return smx_dma_wrong(w, &a, SMX_WRONG_FAULT, fault);
		}
		if (w->depth == SMX_WALK_DEPTH)
			return smx_dma_wrong(w, &a, SMX_WRONG_DEPTH, fault);
		l = &w->level[w->depth++];
		l->mkey = mkey;
		l->left = p->n;
		smx_level_seek(l, 0, p->off);
	}
}

static inline smx_outcome locate(struct smx_walk *w, struct place *p, struct smx_dma_fault *fault)
{
	return locate_leaf(w, p) ? SMX_CHECK_NONE : locate_any(w, p, fault);
}

static inline uint8_t *place_host(const struct place *p)
{
	return p->leaf ? smx_leaf_host(p->leaf, p->off) : (uint8_t *)(uintptr_t)p->off;
}

static inline void advance(struct smx_walk *w, uint64_t n)
{
	w->sge_off += n;
	for (uint32_t i = 0; i < w->depth; i++) {
		w->level[i].left -= n;
		smx_level_advance(&w->level[i], n);
	}
}

smx_outcome smx_walk_next(struct smx_walk *w, uint64_t max, struct smx_run *run,
			  struct smx_dma_fault *fault)
{
	struct place p;
	smx_outcome check;

	run->length = 0;
	if (!max)
		return SMX_CHECK_NONE;
	check = locate(w, &p, fault);
	if (check || !p.n)
		return check;
	run->ptr = place_host(&p);
	run->length = least(p.n, max);
	w->leaf = p.leaf;
	advance(w, run->length);
	return SMX_CHECK_NONE;
}

smx_outcome smx_walk_skip(struct smx_walk *w, uint64_t n, struct smx_dma_fault *fault)
{
	uint64_t ok = smx_walk_check(w, n, fault);
	smx_outcome check = ok < n ? fault->check : SMX_CHECK_NONE;

	w->depth = 0;
	while (ok) {
		const struct smx_sge *sge = cur_sge(w);
		uint64_t step;

		assert(sge);
		step = least(sge->length - w->sge_off, ok);
		w->sge_off += step;
		ok -= step;
	}
	return check;
}

void smx_walk_rewind(struct smx_walk *w, uint64_t n)
{
	if (!n)
		return;
	w->depth = 0;
	while (n > w->sge_off) {
		assert(w->sge_at > 0);
		n -= w->sge_off;
		w->sge_off = smx_walk_sges(w)[--w->sge_at].length;
	}
	w->sge_off -= n;
}

uint64_t smx_level_leaf_turns(const struct smx_walk *w, const struct smx_walk_level *l, uint64_t k,
			      struct smx_segment *seg, uint32_t *seg_count)
{
	const struct smx_wqe_klm *e = &l->mkey->entry[l->entry];
	uint32_t outer_key = smx_walk_sges(w)[w->sge_at].key;
	struct smx_walk_level at = *l;
	struct smx_dma_fault fault;
	uint32_t count = 0;

	for (at.sub = 0; at.sub < l->num_ent && k; at.sub++) {
		uint64_t stride = from_be16(smx_block_entry(e, at.sub)->stride), off, room, fit;
		const struct smx_mkey *mkey;
		struct smx_access a;

		smx_level_piece(&at, outer_key, &a);
		if (!a.length)
			continue;
		if (smx_dma_admit(w, &a, 0, &mkey, &off, &fault) || !smx_mkey_is_leaf(mkey))
			return 0;
		room = mkey->attr.length - off;
		if (room < a.length ||
		    (!smx_leaf_host(mkey, off) && mkey->attr.kind != SMX_MKEY_NULL))
			return 0;
		fit = stride ? (room - a.length) / stride + 1 : k;
		k = least(fit, k);
		if (seg) {
			seg[count].ptr = smx_leaf_host(mkey, off);
			seg[count].length = a.length;
			seg[count++].stride = mkey->attr.kind == SMX_MKEY_NULL ? 0 : stride;
		}
	}
	if (seg)
		*seg_count = count;
	return k;
}

/* Whole turns of a strided block, if the walk stands at the start of one. RETURN whether pat was
 * filled. */
static bool strided_pattern(struct smx_walk *w, uint64_t max, struct smx_pattern *pat)
{
	struct smx_walk_level *l;
	uint64_t turns;

	if (!w->depth)
		return false;
	l = &w->level[w->depth - 1];
	if (!smx_level_at_turn(l) || l->num_ent > SMX_PATTERN_SEGS)
		return false;
	turns = least(least(max, l->left) / l->block_bytes, l->repeat - l->turn);
	if (turns < 2)
		return false;
	turns = smx_level_leaf_turns(w, l, turns, pat->seg, &pat->seg_count);
	if (turns < 2)
		return false;
	pat->turns = turns;
	pat->bytes = turns * l->block_bytes;
	l->left -= pat->bytes;
	smx_level_next_turn(l, turns);
	w->sge_off += pat->bytes;
	for (uint32_t i = 0; i + 1 < w->depth; i++) {
		w->level[i].left -= pat->bytes;
		smx_level_advance(&w->level[i], pat->bytes);
	}
	return true;
}

smx_outcome smx_walk_pattern(struct smx_walk *w, uint64_t max, struct smx_pattern *pat,
			     struct smx_dma_fault *fault)
{
	enum { LONG_RUN = 4096 };	/* worth a copy of its own */
	bool by_runs = false;	/* the block at hand makes no pattern */
	uint32_t count = 0;

	pat->turns = 1;
	pat->bytes = 0;
	while (count < SMX_PATTERN_SEGS && pat->bytes < max) {
		struct smx_segment *seg = &pat->seg[count];
		struct place p;
		smx_outcome check = locate(w, &p, fault);

		if (check && !count)
			return check;
		if (check || !p.n)
			break;
		if (!count && strided_pattern(w, max, pat))
			return SMX_CHECK_NONE;
		if (w->depth && smx_level_at_turn(&w->level[w->depth - 1])) {
			if (count && !by_runs)
				break;	/* the next pattern may start here */
			by_runs = true;
		}
		seg->ptr = place_host(&p);
		seg->length = least(p.n, max - pat->bytes);
		seg->stride = 0;
		pat->bytes += seg->length;
		count++;
		advance(w, seg->length);
		if (seg->length >= LONG_RUN)
			break;
	}
	pat->seg_count = count;
	return SMX_CHECK_NONE;
}
