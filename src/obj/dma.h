/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Walking and copying memory that is named by keys.
 *
 * A walk (struct smx_walk) yields runs of host memory for a list of (key, address, length) entries, for
 * inline data, or for one remote range, whatever the keys are made of: plain regions, lists, strided
 * patterns, lists of those. Bounds and rights are checked as the walk gets there, as hardware does;
 * smx_walk_check() looks ahead without touching memory. Copying walks two walks at once. */
#ifndef SMX_OBJ_DMA_H
#define SMX_OBJ_DMA_H

#include "base/pull.h"
#include "obj/mkey.h"

/* On whose behalf memory is touched. It selects the right that is needed and the checks that are named
 * on failure: GATHER_*, SCATTER_*, RECV_*, REMOTE_* of trace/refusal.def. */
enum smx_dma_role {
	SMX_DMA_GATHER,		/* requester reads local memory */
	SMX_DMA_SCATTER,	/* requester's responses written to local memory, needs local write */
	SMX_DMA_RECV,		/* receive buffers, needs local write */
	SMX_DMA_REMOTE_READ,
	SMX_DMA_REMOTE_WRITE,
	SMX_DMA_REMOTE_ATOMIC,
};

struct smx_sge {
	uint64_t va;		/* address in the key's space, or a host pointer where is_host */
	uint64_t length;
	uint32_t key;
	bool is_host;		/* inline data in a ring, device-owned memory: no key, not checked */
};

/* One position inside nested keys. */
struct smx_walk_level {
	const struct smx_mkey *mkey;
	uint32_t entry;		/* entry being walked; of a strided block: its header */
	uint32_t sub;		/* strided: entry of the block being walked, 0..num_ent-1 */
	uint32_t turn;		/* strided: which repetition */
	uint32_t num_ent;	/* strided: entries of the block; 0: a plain entry */
	uint32_t repeat;	/* strided: repetitions */
	uint64_t block_bytes;	/* strided: bytes of one repetition */
	uint64_t off;		/* bytes into that entry */
	uint64_t left;		/* bytes the level above still wants from here */
};

enum { SMX_WALK_DEPTH = 4 };	/* keys under keys; deeper is refused (*_DEPTH) */

struct smx_run {
	uint8_t *ptr;		/* NULL: a null key; reads give zeros, writes vanish */
	uint64_t length;
};

/* Where the walk stands is sge_at and sge_off alone; the levels are only a short cut to it, dropped whenever
 * a key of the device changes (dev->mkey_changes), so a walk may be kept across calls, and copied. */
struct smx_walk {
	struct smx_dev *dev;
	const struct smx_pd *pd;
	const struct smx_sge *sge;	/* NULL: the entry is one */
	uint32_t sge_count, sge_at;
	uint64_t sge_off;		/* bytes of sge[sge_at] handed out */
	enum smx_dma_role role;
	uint32_t qpn;			/* queue pair whose memory this is: type 2 windows, refusals */
	uint32_t depth;			/* levels in use; 0: the next entry is to be opened */
	uint32_t changes;		/* dev->mkey_changes when the levels were filled */
	const struct smx_mkey *leaf;	/* key that the last run lay in; NULL: host memory */
	struct smx_walk_level level[SMX_WALK_DEPTH];
	struct smx_sge one;		/* smx_walk_range() keeps its entry here */
};

/* sge stays the caller's and must outlive the walk. */
void smx_walk_list(struct smx_walk *w, struct smx_dev *dev, const struct smx_pd *pd, uint32_t qpn,
		   enum smx_dma_role role, const struct smx_sge *sge, uint32_t sge_count);
void smx_walk_range(struct smx_walk *w, struct smx_dev *dev, const struct smx_pd *pd, uint32_t qpn,
		    enum smx_dma_role role, uint32_t key, uint64_t va, uint64_t length);

/* Bytes that all entries name together. */
uint64_t smx_sge_total(const struct smx_sge *sge, uint32_t sge_count);

/* The next run of at most max bytes. RETURN SMX_CHECK_NONE with run->length 0 at the end; on a refusal
 * nothing is recorded yet: fault says what was wrong, and smx_walk_refuse() records it. */
struct smx_dma_fault {
	smx_outcome check;
	uint32_t key;
	uint64_t va, length;	/* the access that was refused, in the key's space */
	const void *host;	/* *_FAULT: the host address */
	const struct smx_mkey *mkey;	/* NULL where the key is unknown */
	uint32_t outer_key;	/* the key that led here; key itself where nothing is nested */
	uint32_t pdn, qpn;	/* on whose behalf: protection domain and queue pair */
	uint8_t role;		/* enum smx_dma_role */
};
smx_outcome smx_walk_next(struct smx_walk *w, uint64_t max, struct smx_run *run, struct smx_dma_fault *fault);

/* Moves on by n bytes without touching them (retransmission from the middle), with all checks. */
smx_outcome smx_walk_skip(struct smx_walk *w, uint64_t n, struct smx_dma_fault *fault);

/* How many of the next n bytes could be walked: n when all is well, else the bytes before the first
 * refusal, with fault filled in. The walk itself does not move. */
uint64_t smx_walk_check(const struct smx_walk *w, uint64_t n, struct smx_dma_fault *fault);

/* The right that a role needs of the key that the program names. */
static inline uint32_t smx_outer_right(enum smx_dma_role role)
{
	static const uint8_t right[] = {
		0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE,
		IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC,
	};

	return right[role];
}

/* Where an entry's bytes lie, when they lie together and the role may touch all of them. RETURN NULL, without a reason,
 * otherwise. */
static inline uint8_t *smx_dma_together(const struct smx_dev *dev, const struct smx_pd *pd, uint32_t qpn,
					enum smx_dma_role role, const struct smx_sge *sge)
{
	const struct smx_mkey *mkey;
	uint64_t off;

	if (sge->is_host)
		return (uint8_t *)(uintptr_t)sge->va;
	mkey = smx_mkey_find(dev, sge->key);
	if (!mkey)
		return NULL;
	off = sge->va - mkey->attr.start;
	if (!smx_mkey_admits(mkey, pd, qpn, smx_outer_right(role), off) || sge->length > mkey->attr.length - off ||
	    !smx_mkey_is_leaf(mkey))
		return NULL;
	return smx_leaf_host(mkey, off);
}

/* The same for the next n bytes of a walk, of which one entry, of a plain key, has all. RETURN the key with *ptr; the
 * walk does not move. */
const struct smx_mkey *smx_walk_together(const struct smx_walk *w, uint64_t n, uint8_t **ptr);
/* Moves the walk behind those. */
static inline void smx_walk_pass(struct smx_walk *w, uint64_t n)
{
	const struct smx_sge *sge = w->sge ? &w->sge[w->sge_at] : &w->one;

	w->depth = 0;
	w->sge_off += n;
	if (w->sge_off == sge->length) {
		w->sge_at++;
		w->sge_off = 0;
	}
}

/* Copies up to n bytes from src to dst; stops where either ends. *done is what was copied. The refusal, if any, is
 * in fault; its check tells which side by its role. */
smx_outcome smx_dma_copy(struct smx_walk *dst, struct smx_walk *src, uint64_t n, uint64_t *done,
			 struct smx_dma_fault *fault);
/* Copies n bytes, when all of them are admitted on both sides. RETURN false, without a reason, when they are not and
 * nothing was written, or when memory under a key is gone. */
bool smx_dma_copy_all(struct smx_walk *dst, struct smx_walk *src, uint64_t n);
/* smx_dma_copy() with flat memory of the device's own on one side. */
smx_outcome smx_dma_read(struct smx_walk *src, void *to, uint64_t n, uint64_t *done, struct smx_dma_fault *fault);
smx_outcome smx_dma_write(struct smx_walk *dst, const void *from, uint64_t n, uint64_t *done,
			  struct smx_dma_fault *fault);

/* The same with bytes that are fetched. Where those cannot be read, the refusal is GATHER_FAULT. */
smx_outcome smx_dma_pull(struct smx_walk *dst, struct smx_pull *pull, uint64_t n, uint64_t *done,
			 struct smx_dma_fault *fault);

/* 8-byte atomics on one aligned run, with respect to other threads too. old is in host byte order. */
enum smx_atomic_op { SMX_ATOMIC_CS, SMX_ATOMIC_FA, SMX_ATOMIC_MASKED_CS, SMX_ATOMIC_MASKED_FA };
struct smx_atomic {
	enum smx_atomic_op op;
	uint64_t swap_add, compare, swap_mask, compare_mask;	/* field boundary in compare_mask for masked FA */
};
smx_outcome smx_dma_atomic(struct smx_walk *target, const struct smx_atomic *a, uint64_t *old,
			   struct smx_dma_fault *fault);

/* The same at memory that no key of this device names. RETURN false when it could not be touched. */
bool smx_dma_atomic_at(const struct smx_dev *dev, uint64_t *at, const struct smx_atomic *a, uint64_t *old);

/* Writes the values of fault, as a refusal's sentence has them, into buf. RETURN buf. */
const char *smx_walk_fault_text(const struct smx_dev *dev, const struct smx_dma_fault *fault, char *buf, size_t len);

/* Records a refusal with the values of fault in its sentence. RETURN fault->check. */
smx_outcome smx_walk_refuse(struct smx_dev *dev, const struct smx_dma_fault *fault, const struct smx_where *where);

#endif
