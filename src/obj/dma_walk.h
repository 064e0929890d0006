/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What walking, looking ahead and copying share: admission of a key, positions inside a key, and
 * patterns. Only the dma_*.c files include this. */
#ifndef SMX_OBJ_DMA_WALK_H
#define SMX_OBJ_DMA_WALK_H

#include "obj/dma.h"
#include "obj/mkey_layout.h"

enum smx_dma_wrong {
	SMX_WRONG_KEY, SMX_WRONG_FREE, SMX_WRONG_PD, SMX_WRONG_QP, SMX_WRONG_RIGHT, SMX_WRONG_RANGE,
	SMX_WRONG_FAULT, SMX_WRONG_DEPTH, SMX_WRONG_COUNT
};

/* One access to one key: where it starts in the key's space and its whole length, for the
 * sentence. */
struct smx_access {
	uint32_t key, outer_key;
	bool nested;		/* key is named by an entry of another key, not by the program */
	uint64_t va, length;
};

/* Fills fault. RETURN its check, chosen by the walk's role. */
smx_outcome smx_dma_wrong(const struct smx_walk *w, const struct smx_access *a,
			  enum smx_dma_wrong what, struct smx_dma_fault *fault)
	__attribute__((cold));

/* The same for memory that is gone: the walk's last run was n bytes at ptr, and bad could not be
 * touched. */
smx_outcome smx_dma_blame(const struct smx_walk *w, const uint8_t *ptr, const void *bad, uint64_t n,
			  struct smx_dma_fault *fault) __attribute__((cold));

/* May the walk touch byte at of the access? *mkey is the key's object, *off the byte's place in
 * it. */
smx_outcome smx_dma_admit(const struct smx_walk *w, const struct smx_access *a, uint64_t at,
			  const struct smx_mkey **mkey, uint64_t *off, struct smx_dma_fault *fault);

static inline const struct smx_sge *smx_walk_sges(const struct smx_walk *w)
{
	return w->sge ? w->sge : &w->one;
}

/* smx_dma_admit() without a reason. at is the address in the key's space. */
static inline bool smx_dma_admitted(const struct smx_walk *w, uint32_t key, uint64_t at,
				    uint32_t right, const struct smx_mkey **mkey, uint64_t *off)
{
	const struct smx_mkey *mk = smx_mkey_find(w->dev, key);

	if (!mk)
		return false;
	/* An earlier address wraps to a huge offset, so one comparison covers both ends. */
	*off = at - mk->attr.start;
	*mkey = mk;
	return smx_mkey_admits(mk, w->pd, w->qpn, right, *off);
}

/* The right that a walk needs of keys under the one that the program names. */
static inline uint32_t smx_inner_right(enum smx_dma_role role)
{
	return role == SMX_DMA_GATHER || role == SMX_DMA_REMOTE_READ ? 0 : IBV_ACCESS_LOCAL_WRITE;
}

/* Positions inside the layout of l->mkey. At its end, entry is the key's entry_count. */
void smx_level_seek(struct smx_walk_level *l, uint32_t entry, uint64_t off);
/* By n bytes, at most what the piece still has. */
void smx_level_advance(struct smx_walk_level *l, uint64_t n);
/* From the start of a block's turn: turns further, or to what follows the block. */
void smx_level_next_turn(struct smx_walk_level *l, uint64_t turns);
bool smx_level_at_turn(const struct smx_walk_level *l);	/* at the start of a strided block's turn */

static inline bool smx_level_at_end(const struct smx_walk_level *l)
{
	return l->entry >= l->mkey->entry_count;
}

/* The whole piece that l stands in, l->off bytes of which are behind it. */
static inline void smx_level_piece(const struct smx_walk_level *l, uint32_t outer_key,
				   struct smx_access *piece)
{
	const struct smx_wqe_klm *e = &l->mkey->entry[l->entry];

	piece->outer_key = outer_key;
	piece->nested = true;
	if (l->num_ent) {
		const struct smx_wqe_repeat_ent *r = smx_block_entry(e, l->sub);

		piece->key = from_be32(r->mkey);
		piece->va = from_be64(r->va) + (uint64_t)l->turn * from_be16(r->stride);
		piece->length = from_be16(r->byte_count);
	} else {
		piece->key = from_be32(e->mkey);
		piece->va = from_be64(e->va);
		piece->length = from_be32(e->byte_count);
	}
}

/* Runs with a common rhythm: all segments in turn, again and again, each moved on by its stride. */
struct smx_segment {
	uint8_t *ptr;		/* NULL: a null key; its stride is 0 */
	uint64_t length, stride;
};

enum { SMX_PATTERN_SEGS = 16 };

struct smx_pattern {
	uint64_t turns;
	uint64_t bytes;		/* of all turns */
	uint32_t seg_count;	/* 0: the walk is at its end */
	struct smx_segment seg[SMX_PATTERN_SEGS];
};

/* How many of the next k turns of the block that l stands at the start of lie wholly in keys that
 * are not nested: 0 when one is nested or refused in the very first. Fills seg and *seg_count where
 * seg is not NULL, which must have room for the block's entries. */
uint64_t smx_level_leaf_turns(const struct smx_walk *w, const struct smx_walk_level *l, uint64_t k,
			      struct smx_segment *seg, uint32_t *seg_count);

/* The next runs, at most max bytes of them, and moves the walk behind them. A refusal is returned
 * once it stands at the very front. */
smx_outcome smx_walk_pattern(struct smx_walk *w, uint64_t max, struct smx_pattern *pat,
			     struct smx_dma_fault *fault);

/* Moves the walk back by n bytes that it has handed out. */
void smx_walk_rewind(struct smx_walk *w, uint64_t n);

#endif
