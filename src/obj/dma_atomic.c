/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* 8-byte atomics on memory that keys name. */
#include "obj/dma.h"

#include "base/guard.h"
#include "obj/dma_walk.h"

struct atomic_job {
	const struct smx_atomic *a;
	uint64_t *at;
	uint64_t old;
};

SMX_UNJUDGED static uint64_t outcome_of(const struct smx_atomic *a, uint64_t old)
{
	uint64_t top = a->compare_mask; /* masked fetch-add: the highest bit of each field */

	switch (a->op) {
	case SMX_ATOMIC_CS:
		return old == a->compare ? a->swap_add : old;
	case SMX_ATOMIC_FA:
		return old + a->swap_add;
	case SMX_ATOMIC_MASKED_CS:
		if ((old ^ a->compare) & a->compare_mask)
			return old;
		return (old & ~a->swap_mask) | (a->swap_add & a->swap_mask);
	case SMX_ATOMIC_MASKED_FA:
		/* Added without the top bits, no carry leaves its field; those bits are put in
		 * without carry. */
		return ((old & ~top) + (a->swap_add & ~top)) ^ ((old ^ a->swap_add) & top);
	}
	return old;
}

SMX_UNJUDGED static void atomic_job(void *arg)
{
	struct atomic_job *j = arg;
	uint64_t old = __atomic_load_n(j->at, __ATOMIC_RELAXED);

	/* Writing back an unchanged value also finds out whether the memory is writable. */
	while (!__atomic_compare_exchange_n(j->at, &old, outcome_of(j->a, old), false,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	j->old = old;
}

bool smx_dma_atomic_at(const struct smx_dev *dev, uint64_t *at, const struct smx_atomic *a, uint64_t *old)
{
	struct atomic_job j = { .a = a, .at = at };
	const void *bad;

	if (!dev->attr.env.call(atomic_job, &j, &bad))
		return false;
	*old = j.old;
	return true;
}

smx_outcome smx_dma_atomic(struct smx_walk *target, const struct smx_atomic *a, uint64_t *old,
			   struct smx_dma_fault *fault)
{
	struct atomic_job j = { .a = a };
	const struct smx_sge *sge;
	struct smx_run run;
	const void *bad;
	smx_outcome check;

	if (smx_walk_check(target, 8, fault) < 8 && fault->check)
		return fault->check;
	check = smx_walk_next(target, 8, &run, fault);
	if (check)
		return check;
	sge = &smx_walk_sges(target)[target->sge_at];
	if (run.length < 8 || ((sge->va + target->sge_off - 8) | (uintptr_t)run.ptr) & 7) {
		struct smx_access a8 = { sge->key, sge->key, false, sge->va, sge->length };

		smx_dma_wrong(target, &a8, SMX_WRONG_RANGE, fault);
		fault->check = SMX_CHECK_REMOTE_ALIGN;
		fault->host = run.ptr;
		return fault->check;
	}
	*old = 0;
	if (!run.ptr)
		return SMX_CHECK_NONE;
	j.at = (uint64_t *)(void *)run.ptr;
	if (!target->dev->attr.env.call(atomic_job, &j, &bad))
		return smx_dma_blame(target, run.ptr, bad, 8, fault);
	*old = j.old;
	return SMX_CHECK_NONE;
}
