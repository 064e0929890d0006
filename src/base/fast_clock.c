/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "base/fast_clock.h"

#include <stdbool.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

enum {
	SPAN_NS = 1000000,
	RATE_MIN_NS = 1000000,		/* a rate measured over less is too coarse */
	RATE_MAX_NS = 1000000000,	/* the kernel's clock may be slewed: measure anew */
	TOGETHER_TICKS = 2000,		/* more, and we were interrupted between both readings */
	TRIES = 3,
	SAME_RATE = 500,		/* to one part in so many */
};

uint64_t smx_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#if defined(__x86_64__)
static inline uint64_t ticks(void)
{
	return __rdtsc();
}

static bool counter_is_good(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && d & (1u << 8);
}
#else
static inline uint64_t ticks(void)
{
	return 0;
}

static bool counter_is_good(void)
{
	return false;
}
#endif

static void measure(struct smx_fast_clock *c, uint64_t ns, uint64_t t)
{
	uint64_t took_ns = ns - c->first_ns, took = t - c->first_ticks, mult = 0;

	c->base_ns = ns;
	c->base_ticks = t;
	if (c->first_ns && took_ns < RATE_MIN_NS && took < INT64_MAX)
		return;
	if (c->first_ns && took_ns < INT64_MAX && took && took < INT64_MAX)
		mult = (uint64_t)(((unsigned __int128)took_ns << 32) / took);
	/* A rate that is another than before says that one of both clocks jumped. */
	if (c->mult && (mult > c->mult + c->mult / SAME_RATE || mult + c->mult / SAME_RATE < c->mult))
		mult = 0;
	c->mult = mult;
	c->span_ticks = mult ? ((uint64_t)SPAN_NS << 32) / mult : 0;
	if (!mult || took_ns > RATE_MAX_NS) {
		c->first_ns = ns;
		c->first_ticks = t;
	}
}

static __attribute__((noinline)) uint64_t ask_kernel(struct smx_fast_clock *c)
{
	uint64_t before, ns, after;

	if (c->counter == SMX_COUNTER_UNKNOWN)
		c->counter = counter_is_good() ? SMX_COUNTER_GOOD : SMX_COUNTER_NONE;
	if (c->counter == SMX_COUNTER_NONE)
		return smx_clock_ns();
	for (int i = 0; i < TRIES; i++) {
		before = ticks();
		ns = smx_clock_ns();
		after = ticks();
		if (after - before < TOGETHER_TICKS) {
			measure(c, ns, after);
			break;
		}
	}
	return ns;
}

uint64_t smx_fast_clock_ns(struct smx_fast_clock *c)
{
	uint64_t since = ticks() - c->base_ticks, ns;

	if (c->mult && since < c->span_ticks)
		ns = c->base_ns + (since * c->mult >> 32);
	else
		ns = ask_kernel(c);
	if (ns < c->last_ns)
		ns = c->last_ns;
	c->last_ns = ns;
	return ns;
}
