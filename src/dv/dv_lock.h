/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The driver's lock of one queue. A queue of a thread domain, or under MLX5_SINGLE_THREADED=1, is not
 * locked at all. Spins briefly, then yields: the holder may be preempted on a small machine. */
#ifndef SMX_DV_LOCK_H
#define SMX_DV_LOCK_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

struct smx_dv_lock { uint32_t word; bool needed; };

static inline void smx_dv_lock(struct smx_dv_lock *l)
{
	unsigned int spins = 0;

	if (!l->needed)
		return;
	while (__atomic_exchange_n(&l->word, 1, __ATOMIC_ACQUIRE)) {
		if (++spins > 100)
			sched_yield();
	}
}

static inline void smx_dv_unlock(struct smx_dv_lock *l)
{
	if (l->needed)
		__atomic_store_n(&l->word, 0, __ATOMIC_RELEASE);
}

#endif
