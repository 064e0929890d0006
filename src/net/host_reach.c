/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "net/host_reach.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#include "base/fast_clock.h"

enum {
	SPINS = 200, YIELDS = 20,
	NAP_NS = 50000,
	STOPPED_NS = 10000000,	/* for one that is stopped, or dead */
	STUCK_NS = 300000000,	/* for one that only waits for a processor */
};

static bool is_busy(const struct smx_host *h, uint32_t slot)
{
	return __atomic_load_n(&h->file->slot[slot].busy, __ATOMIC_ACQUIRE) == h->slot + 1;
}

/* RETURN whether it went away, or is dead. */
static bool await(const struct smx_host *h, uint32_t slot)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	uint64_t began = 0, waited;
	int saved_errno = errno;
	bool gone = false;

	for (unsigned int i = 0; is_busy(h, slot); i++) {
		if (i < SPINS)
			continue;
		if (i < SPINS + YIELDS) {
			sched_yield();
			continue;
		}
		nanosleep(&nap, NULL);
		if (!began)
			began = smx_clock_ns();
		waited = smx_clock_ns() - began;
		if (waited < STOPPED_NS)
			continue;
		gone = !smx_host_is_alive(&h->file->slot[slot]);
		if (gone || waited > STUCK_NS || smx_host_is_stopped(&h->file->slot[slot]))
			break;
	}
	errno = saved_errno;
	return gone || !is_busy(h, slot);
}

static void look_for_slots(struct smx_host *h, struct smx_host_watch *watch)
{
	uint32_t epoch = __atomic_load_n(&h->file->epoch, __ATOMIC_ACQUIRE);

	if (watch->known && watch->epoch == epoch)
		return;
	*watch = (struct smx_host_watch){ .epoch = epoch, .known = true };
	for (uint32_t i = 0; i < SMX_HOST_SLOTS; i++)
		if (__atomic_load_n(&h->file->slot[i].state, __ATOMIC_RELAXED) == SMX_HOST_USED)
			watch->end = i + 1;
}

uint32_t smx_host_await_idle(struct smx_host *h, struct smx_host_watch *watch)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	look_for_slots(h, watch);
	for (uint32_t i = 0; i < watch->end; i++)
		if (i != h->slot && is_busy(h, i) && !await(h, i))
			return i;
	return SMX_HOST_SLOTS;
}
