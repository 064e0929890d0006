/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bells of the processes in the registry: futexes that others count up and wake. */
#ifndef SMX_HOST_BELL_H
#define SMX_HOST_BELL_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/host_registry.h"

static inline void smx_ring(struct smx_host_slot *slot)
{
	int saved_errno = errno;

	__atomic_fetch_add(&slot->bell, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &slot->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	errno = saved_errno;
}

static inline void smx_ring_if_asleep(struct smx_host_slot *slot, uint32_t lanes)
{
	if ((__atomic_load_n(&slot->sleeping, __ATOMIC_RELAXED) & lanes) &&
	    __atomic_exchange_n(&slot->sleeping, 0, __ATOMIC_ACQ_REL))
		smx_ring(slot);
}

/* There is room again: the waiting process looks at its bell, or sleeps on it. */
static inline void smx_ring_for_room(struct smx_host_slot *slot)
{
	__atomic_fetch_add(&slot->bell, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&slot->sleeping, __ATOMIC_SEQ_CST))
		smx_ring(slot);
}

#endif
