/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The driver's lock of one queue. A queue of a thread domain, or under MLX5_SINGLE_THREADED=1, is not
 * locked at all. Spins briefly, then yields: the holder may be preempted on a small machine. */
#ifndef SMX_DV_LOCK_H
#define SMX_DV_LOCK_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

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

/* RETURN false when somebody holds it. A process of one thread needs no locked instruction; glibc knows when it has
 * one. */
static inline bool smx_dv_lock_free(struct smx_dv_lock *l)
{
	if (!l->needed)
		return true;
	if (!__libc_single_threaded)
		return smx_dv_try_lock(l, 1);
	if (l->word)
		return false;
	l->word = 1;
	return true;
}

static inline void smx_dv_lock(struct smx_dv_lock *l)
{
	if (!smx_dv_lock_free(l))
		smx_dv_wait_lock(l, 1);
}

static inline void smx_dv_unlock(struct smx_dv_lock *l)
{
	if (l->needed)
		__atomic_store_n(&l->word, 0, __ATOMIC_RELEASE);
}

#endif
