/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Repeatable random numbers (splitmix64), for tests, the simulated medium and first key tags. */
#ifndef SMX_PRNG_H
#define SMX_PRNG_H

#include <stdint.h>

struct smx_prng { uint64_t state; };

static inline uint64_t smx_prng_next(struct smx_prng *p)
{
	uint64_t z = (p->state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Uniform in 0..n-1; n is not 0. */
static inline uint64_t smx_prng_below(struct smx_prng *p, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)smx_prng_next(p) * n) >> 64);
}

#endif
