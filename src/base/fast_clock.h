/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* CLOCK_MONOTONIC, read from the processor's own counter between looks at the kernel's clock.
 *
 * The kernel's costs more than a short message does. The counter is used where it runs at one rate in every state
 * (invariant TSC), for at most a millisecond after the kernel was asked; its rate is measured against the kernel's
 * clock all the time. Elsewhere every reading is the kernel's. */
#ifndef SMX_FAST_CLOCK_H
#define SMX_FAST_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC as the kernel tells it, which is the clock of CQE timestamps too. */
uint64_t smx_clock_ns(void);

/* Zeroes to begin with. One reader at a time. */
struct smx_fast_clock {
	uint64_t base_ns, base_ticks;	/* read together */
	uint64_t first_ns, first_ticks;	/* the rate is measured from there */
	uint64_t mult;			/* ns in a tick << 32; 0: not known yet */
	uint64_t span_ticks;		/* how long base is good for */
	uint64_t last_ns;		/* never goes back */
	enum { SMX_COUNTER_UNKNOWN, SMX_COUNTER_GOOD, SMX_COUNTER_NONE } counter;
};

uint64_t smx_fast_clock_ns(struct smx_fast_clock *c);

#endif
