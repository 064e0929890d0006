/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Big-endian integers as they lie in WQEs, CQEs and packets.
 *
 * Each is a struct of bytes: plain arithmetic on one does not compile, no padding can appear around
 * it, and a cast into any buffer is aligned. Words that program and device race on (doorbell
 * records, the owner byte of a CQE) are not of these types; see be32_load_acquire(). */
#ifndef SMX_BE_H
#define SMX_BE_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct { uint8_t b[2]; } be16;
typedef struct { uint8_t b[4]; } be32;
typedef struct { uint8_t b[8]; } be64;

static inline be16 to_be16(uint16_t v)
{
	be16 x;

	v = htobe16(v);
	memcpy(&x, &v, sizeof(x));
	return x;
}

static inline be32 to_be32(uint32_t v)
{
	be32 x;

	v = htobe32(v);
	memcpy(&x, &v, sizeof(x));
	return x;
}

static inline be64 to_be64(uint64_t v)
{
	be64 x;

	v = htobe64(v);
	memcpy(&x, &v, sizeof(x));
	return x;
}

static inline uint16_t from_be16(be16 x)
{
	uint16_t v;

	memcpy(&v, &x, sizeof(v));
	return be16toh(v);
}

static inline uint32_t from_be32(be32 x)
{
	uint32_t v;

	memcpy(&v, &x, sizeof(v));
	return be32toh(v);
}

static inline uint64_t from_be64(be64 x)
{
	uint64_t v;

	memcpy(&v, &x, sizeof(v));
	return be64toh(v);
}

/* Two words, the one behind the other. */
static inline be64 be64_of(be32 first, be32 second)
{
	uint32_t word[2];
	uint64_t v;
	be64 x;

	memcpy(&word[0], &first, sizeof(first));
	memcpy(&word[1], &second, sizeof(second));
	if (htobe16(1) == 1)
		v = (uint64_t)word[0] << 32 | word[1];
	else
		v = (uint64_t)word[1] << 32 | word[0];
	memcpy(&x, &v, sizeof(x));
	return x;
}

/* Two integers that lie one behind the other in memory, each as big-endian there. */
static inline be64 be64_of_pair(const uint32_t *pair)
{
	uint64_t v;
	be64 x;

	memcpy(&v, pair, sizeof(v));
	if (htobe16(1) != 1)
		v = htobe64(v << 32 | v >> 32);
	memcpy(&x, &v, sizeof(x));
	return x;
}

/* The bits of both. */
static inline be32 be32_or(be32 x, be32 y)
{
	uint32_t a, b;

	memcpy(&a, &x, sizeof(a));
	memcpy(&b, &y, sizeof(b));
	a |= b;
	memcpy(&x, &a, sizeof(x));
	return x;
}

static inline be64 be64_or(be64 x, be64 y)
{
	uint64_t a, b;

	memcpy(&a, &x, sizeof(a));
	memcpy(&b, &y, sizeof(b));
	a |= b;
	memcpy(&x, &a, sizeof(x));
	return x;
}

/* A 32-bit word shared between program and device, 4-byte aligned (doorbell records). */
static inline uint32_t be32_load_acquire(const void *word)
{
	return be32toh(__atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE));
}

static inline void be32_store_release(void *word, uint32_t v)
{
	__atomic_store_n((uint32_t *)word, htobe32(v), __ATOMIC_RELEASE);
}

/* The same for 64-bit words, 8-byte aligned (the end of a CQE). */
static inline uint64_t be64_load_acquire(const void *word)
{
	return be64toh(__atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE));
}

static inline void be64_store_release(void *word, uint64_t v)
{
	__atomic_store_n((uint64_t *)word, htobe64(v), __ATOMIC_RELEASE);
}

/* The type is named once, so a check cannot be about some other struct. */
#define SMX_SIZE(type, bytes)	 _Static_assert(sizeof(type) == (bytes), #type ": size")
#define SMX_AT(type, field, off) _Static_assert(offsetof(type, field) == (off), #type "." #field)

#endif
