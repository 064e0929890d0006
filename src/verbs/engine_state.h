/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What engine.c (lock, rings, entry), engine_visit.c (visitors) and engine_thread.c (the device thread) share. Nobody
 * else includes this.
 *
 * "Inside" means: holding the device's lock, without visitors. */
#ifndef SMX_ENGINE_STATE_H
#define SMX_ENGINE_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fast_clock.h"
#include "base/thread.h"

struct smx_engine_state {
	/* What threads that find their queue empty read all the time, and seldom changes: apart
	 * from what everyone who enters writes. */
	uint64_t due_ns __attribute__((aligned(64))); /* when the device wants its next turn */
	uint32_t watched; /* queues that a program rings by its own stores */
	struct smx_dev *dev;

	uint32_t word __attribute__((aligned(64)));
	struct smx_ring *rings; /* left for whoever is inside, newest first */

	/* Only touched inside: */
	bool watch_found; /* a watched queue had work since the thread looked last */
	uint64_t store_until_ns; /* a stopped store may not have happened yet; 0: none */
	bool has_thread, stop;
	bool deaf; /* the thread naps, and nobody wakes it for what comes: pollers take that */
	uint32_t fruitless; /* polls since something came */
	uint32_t visits; /* of the program's threads that post or poll, ever; written inside, read anywhere */
	struct smx_fast_clock clock;
	/* When the thread wakes by itself: 0 while it is awake, UINT64_MAX without one. */
	uint64_t thread_until_ns;
	/* Futex the thread sleeps on: wake_seq, or the bell that other processes ring too. */
	uint32_t *wake;
	uint32_t wake_seq;
	const uint32_t *host_changes; /* see smx_dev_host_changes() */
	uint32_t host_seen;
	bool linked; /* other processes have made contact; written inside, read anywhere */
	pthread_t thread;

	pthread_mutex_t life; /* creation and end of the device */
	uint32_t users;
};
extern struct smx_engine_state smx_engine __attribute__((visibility("hidden")));

/* Sleeps until *word is no longer seen, or, unless it is UINT64_MAX, until_ns. The word may be shared with
 * other processes. */
void smx_futex_wait(uint32_t *word, uint32_t seen, uint64_t until_ns);
void smx_futex_wake(uint32_t *word);

/* In, and out again, without a turn. smx_engine_leave() may take one, for others. */
void smx_engine_enter(void);
void smx_engine_leave(void);

/* Inside. */
void smx_engine_turn(void);
/* Looks for what programs rang themselves: at the records if a UAR page was stored to, or anyway. */
void smx_engine_look(bool anyway);

/* ---- the thread ---- */

/* Inside. Where none can be had, that is said, and pollers and posters still turn the device. */
void smx_engine_thread_start(void);
/* Inside. It looks at due_ns, and at everything else. */
void smx_engine_thread_wake(void);
/* From outside; nothing when there is none. */
void smx_engine_thread_end(void);

#endif
