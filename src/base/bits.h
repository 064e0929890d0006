/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bit fields by the numbers the hardware manual uses, and small integer arithmetic. */
#ifndef SMX_BITS_H
#define SMX_BITS_H

#include <stdbool.h>
#include <stdint.h>

/* Places v into bits hi:lo of a 32-bit word; bits of v above the field are dropped. */
static inline uint32_t bits_put(uint32_t v, unsigned int hi, unsigned int lo)
{
	return (v & (0xffffffffu >> (31 - (hi - lo)))) << lo;
}

static inline uint32_t bits_get(uint32_t word, unsigned int hi, unsigned int lo)
{
	return (word >> lo) & (0xffffffffu >> (31 - (hi - lo)));
}

static inline bool is_pow2(uint64_t v)
{
	return v && !(v & (v - 1));
}

/* The smallest power of two that is at least v; 1 for 0. */
static inline uint64_t pow2_ceil(uint64_t v)
{
	return v <= 1 ? 1 : 1ull << (64 - __builtin_clzll(v - 1));
}

static inline uint64_t align_up(uint64_t v, uint64_t pow2)
{
	return (v + pow2 - 1) & ~(pow2 - 1);
}

static inline unsigned int log2_ceil(uint64_t v)
{
	return v <= 1 ? 0 : 64u - (unsigned int)__builtin_clzll(v - 1);
}

#define SMX_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

#endif
