/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The driver's lock of one queue. A queue of a thread domain, or under MLX5_SINGLE_THREADED=1, is not
 * locked at all. Spins briefly, then yields: the holder may be preempted on a small machine. */
#ifndef SMX_DV_LOCK_H
#define SMX_DV_LOCK_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

struct smx_dv_lock {
	uintptr_t word;		/* 0, or who holds it */
	bool needed;
};

static inline bool smx_dv_try_lock(struct smx_dv_lock *l, uintptr_t who)
{
	uintptr_t nobody = 0;

	return __atomic_compare_exchange_n(&l->word, &nobody, who, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void smx_dv_wait_lock(struct smx_dv_lock *l, uintptr_t who)
{
	unsigned int spins = 0;

	while (!smx_dv_try_lock(l, who)) {
		if (++spins > 100)
			sched_yield();
	}
}

static inline void smx_dv_lock(struct smx_dv_lock *l)
{
	if (l->needed)
		smx_dv_wait_lock(l, 1);
}

static inline void smx_dv_unlock(struct smx_dv_lock *l)
{
	if (l->needed)
		__atomic_store_n(&l->word, 0, __ATOMIC_RELEASE);
}

#endif
