/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copying from another process into a walk: straight to where the bytes go if those are long runs, else by
 * way of memory of our own. */
#include "obj/dma.h"

#include "obj/dma_walk.h"

enum { BOUNCE_BYTES = 16 << 10, LONG_RUN_BYTES = 4096 };

static smx_outcome source_gone(const struct smx_walk *dst, const struct smx_pull *pull, uint64_t n,
			       struct smx_dma_fault *fault)
{
	*fault = (struct smx_dma_fault){
		.check = SMX_CHECK_GATHER_FAULT,
		.va = pull->off,
		.length = n,
		.qpn = dst->qpn,
		.role = SMX_DMA_GATHER,
	};
	return fault->check;
}

static smx_outcome by_bounce(struct smx_walk *dst, struct smx_pull *pull, uint64_t n, uint64_t *done,
			     struct smx_dma_fault *fault)
{
	uint8_t bounce[BOUNCE_BYTES];
	uint64_t got, stored = 0;
	smx_outcome check;

	n = n < sizeof(bounce) ? n : sizeof(bounce);
	if (pull->fetch(pull, bounce, n, &got) != SMX_PULLED)
		return source_gone(dst, pull, n, fault);
	check = smx_dma_write(dst, bounce, n, &stored, fault);
	*done += stored;
	pull->off -= n - stored;
	return check;
}

smx_outcome smx_dma_pull(struct smx_walk *dst, struct smx_pull *pull, uint64_t n, uint64_t *done,
			 struct smx_dma_fault *fault)
{
	*done = 0;
	while (*done < n) {
		uint64_t left = n - *done, got;
		enum smx_pulled pulled;
		struct smx_run run;
		smx_outcome check = smx_walk_next(dst, left, &run, fault);

		if (check || !run.length)
			return check;
		if (run.length < left && run.length < LONG_RUN_BYTES) {
			uint64_t before = *done;

			smx_walk_rewind(dst, run.length);
			check = by_bounce(dst, pull, left, done, fault);
			if (check || *done == before)
				return check;
			continue;
		}
		if (!run.ptr) {	/* a null key */
			pull->off += run.length;
			*done += run.length;
			continue;
		}
		pulled = pull->fetch(pull, run.ptr, run.length, &got);
		*done += got;
		if (pulled == SMX_PULL_SOURCE)
			return source_gone(dst, pull, left, fault);
		if (pulled == SMX_PULL_TARGET)
			return smx_dma_blame(dst, run.ptr, run.ptr + got, run.length, fault);
	}
	return SMX_CHECK_NONE;
}
