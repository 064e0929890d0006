/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The one device of this process, its lock and its thread (DESIGN D4).
 *
 * Ringing does what is asked for on the calling thread: as a visitor beside others where that can be, else by a
 * turn of the device when nobody is inside it; otherwise the ring is left on a list for whoever is. What exceeds
 * a turn's budget, and timers, are the device thread's. The thread is started when first needed and sleeps when there
 * is nothing to do. */
#ifndef SMX_ENGINE_H
#define SMX_ENGINE_H

#include <stdbool.h>

#include "dev/dev.h"
#include "trace/refusal.h"
#include "verbs/engine_pages.h"

/* Creates the device on first use. RETURN 0 or an errno. Called by ibv_open_device. */
int smx_engine_get(void);
void smx_engine_put(void);	/* the last context closed: the thread ends, the device is freed */

struct smx_dev *smx_engine_dev(void);
struct smx_refusal_log *smx_refusals(void);	/* the process's; exists without a device too */

/* Around every smx_cmd_*. Unlocking turns the device: a command may have made work, rings may have
 * been left. */
void smx_engine_lock(void);
void smx_engine_unlock(void);

/* How many threads of this process are ours; they do nothing while the lock is held. Under it. */
unsigned int smx_engine_threads(void);

/* Doorbells, from the driver's ring() hooks. Each returns after this thread, or another that was
 * inside, has taken it over. */
struct smx_ring { /* embedded in objects that can be rung; on the hand-over list at most once */
	struct smx_ring *next;
	unsigned int queued;
	enum { SMX_RING_SQ, SMX_RING_RQ, SMX_RING_SRQ, SMX_RING_CQ } kind;
	void *obj;		/* struct smx_qp, smx_srq or smx_cq */
	unsigned int arm_word;	/* SMX_RING_CQ */
};
void smx_engine_ring(struct smx_ring *ring);
/* An object is about to be destroyed: waits until no hand-over list names it. Call without the
 * lock. */
void smx_engine_ring_drain(struct smx_ring *ring);

/* A poller found its queue empty: turns the device if it has work and nobody is inside.
 * RETURN whether anything was done. Cheap when there is nothing to do. */
bool smx_engine_poll(void);

/* Queues whose doorbell records a program writes itself: from now on the device looks at them
 * (DESIGN D5). Call without the lock; each is matched by one smx_engine_watch_end() after the queue
 * was destroyed. */
void smx_engine_watch_qp(struct smx_qp *qp);
void smx_engine_watch_cq(struct smx_cq *cq);
void smx_engine_watch_end(void);

/* A UAR page is given to the program, or is about to be unmapped. Without the lock; either may come
 * more than once. */
void smx_engine_uar_given(struct smx_uar_page *page);
void smx_engine_uar_gone(struct smx_uar_page *page);

#endif
