/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Looking ahead: how much of an access would be admitted, without walking it.
 *
 * The cost is that of the entries, not of the repetitions: of whole turns of a strided block, each
 * entry is checked once for all of them, by where its last turn lies. */
#include "obj/dma_walk.h"

/* How many of want bytes from byte at of access a on are admitted; fault says why not all. */
static uint64_t check_access(const struct smx_walk *w, const struct smx_access *a, uint64_t at,
			     uint64_t want, unsigned int depth, struct smx_dma_fault *fault);

/* How many of k turns of entry l->sub are admitted, whatever kind of key it names. */
static uint64_t entry_turns(const struct smx_walk *w, const struct smx_walk_level *l,
			    uint32_t outer_key, uint64_t k, unsigned int depth)
{
	const struct smx_wqe_klm *e = &l->mkey->entry[l->entry];
	uint64_t stride = from_be16(smx_block_entry(e, l->sub)->stride);
	struct smx_dma_fault fault;
	struct smx_access block;
	uint64_t done = 0;

	smx_level_piece(l, outer_key, &block);
	if (!block.length)
		return k;
	/* What lies between the blocks may be refused and do no harm: then go on behind it. */
	while (done < k) {
		struct smx_access span = block;
		uint64_t ok;

		span.va += done * stride;
		span.length = (k - 1 - done) * stride + block.length;
		ok = check_access(w, &span, 0, span.length, depth, &fault);
		if (ok == span.length)
			return k;
		if (ok < block.length)
			return done;
		done += stride ? (ok - block.length) / stride + 1 : k - done;
	}
	return k;
}

static uint64_t whole_turns(const struct smx_walk *w, const struct smx_walk_level *l,
			    uint32_t outer_key, uint64_t k, unsigned int depth)
{
	struct smx_walk_level at = *l;

	for (at.sub = 0; at.sub < l->num_ent && k; at.sub++)
		k = entry_turns(w, &at, outer_key, k, depth);
	return k;
}

/* As check_access(), from byte off of an indirect key's layout on. */
static uint64_t check_layout(const struct smx_walk *w, const struct smx_access *a,
			     const struct smx_mkey *mkey, uint64_t off, uint64_t want,
			     unsigned int depth, struct smx_dma_fault *fault)
{
	struct smx_walk_level l = { .mkey = mkey };
	uint64_t done = 0;

	smx_level_seek(&l, 0, off);
	while (done < want) {
		struct smx_access piece;
		uint64_t ok, step;

		if (smx_level_at_end(&l)) {
			smx_dma_wrong(w, a, SMX_WRONG_RANGE, fault);
			break;
		}
		if (l.num_ent && smx_level_at_turn(&l) && want - done >= l.block_bytes) {
			uint64_t k = (want - done) / l.block_bytes;

			k = k < l.repeat - l.turn ? k : l.repeat - l.turn;
			k = whole_turns(w, &l, a->outer_key, k, depth);
			if (k) {
				done += k * l.block_bytes;
				smx_level_next_turn(&l, k);
				continue;
			}
		}
		smx_level_piece(&l, a->outer_key, &piece);
		step = piece.length - l.off < want - done ? piece.length - l.off : want - done;
		ok = check_access(w, &piece, l.off, step, depth, fault);
		done += ok;
		if (ok < step)
			break;
		smx_level_advance(&l, step);
	}
	return done;
}

static uint64_t check_access(const struct smx_walk *w, const struct smx_access *a, uint64_t at,
			     uint64_t want, unsigned int depth, struct smx_dma_fault *fault)
{
	const struct smx_mkey *mkey;
	uint64_t off, room, ok;

	if (smx_dma_admit(w, a, at, &mkey, &off, fault))
		return 0;
	room = mkey->attr.length - off;
	ok = want < room ? want : room;
	if (smx_mkey_is_leaf(mkey)) {
		if (!smx_leaf_host(mkey, off) && mkey->attr.kind != SMX_MKEY_NULL) {
			smx_dma_wrong(w, a, SMX_WRONG_FAULT, fault);
			return 0;
		}
	} else {
		uint64_t inner;

		if (depth == SMX_WALK_DEPTH) {
			smx_dma_wrong(w, a, SMX_WRONG_DEPTH, fault);
			return 0;
		}
		inner = check_layout(w, a, mkey, off, ok, depth + 1, fault);
		if (inner < ok)
			return inner;
	}
	if (ok < want)
		smx_dma_wrong(w, a, SMX_WRONG_RANGE, fault);
	return ok;
}

static __attribute__((noinline)) uint64_t check_list(const struct smx_walk *w, uint64_t n,
						     struct smx_dma_fault *fault)
{
	const struct smx_sge *sge = smx_walk_sges(w);
	uint64_t off = w->sge_off, done = 0;

	for (uint32_t i = w->sge_at; i < w->sge_count && done < n; i++, off = 0) {
		struct smx_access a = { sge[i].key, sge[i].key, false, sge[i].va, sge[i].length };
		uint64_t want = a.length - off < n - done ? a.length - off : n - done;
		uint64_t ok = want;

		if (want && !sge[i].is_host)
			ok = check_access(w, &a, off, want, 0, fault);
		done += ok;
		if (ok < want)
			break;
	}
	return done;
}

/* The common case: one entry, of a key that is not nested. */
const struct smx_mkey *smx_walk_together(const struct smx_walk *w, uint64_t n, uint8_t **ptr)
{
	const struct smx_sge *sge = &smx_walk_sges(w)[w->sge_at];
	const struct smx_mkey *mkey;
	uint64_t off;

	if (w->sge_at >= w->sge_count || n > sge->length - w->sge_off || !n || sge->is_host ||
	    !smx_dma_admitted(w, sge->key, sge->va + w->sge_off, smx_outer_right(w->role), &mkey, &off) ||
	    n > mkey->attr.length - off || !smx_mkey_is_leaf(mkey))
		return NULL;
	*ptr = smx_leaf_host(mkey, off);
	return *ptr ? mkey : NULL;
}

uint64_t smx_walk_check(const struct smx_walk *w, uint64_t n, struct smx_dma_fault *fault)
{
	uint8_t *ptr;

	fault->check = SMX_CHECK_NONE;
	return smx_walk_together(w, n, &ptr) ? n : check_list(w, n, fault);
}
