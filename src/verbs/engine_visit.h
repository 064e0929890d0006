/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Visitors: threads that look at the device side by side, with the lock held by none of them.
 *
 * Each thread has a record with a mark, on cache lines of its own. A visitor sets its mark, then looks whether the lock
 * is held, and is inside only if it is not; whoever takes the lock then waits until no mark is set. So a visitor and
 * the lock's holder are never inside together, and visitors that have nothing in common write to no common cache line.
 * Nobody waits for the lock while its mark is set. Only the engine's files include this. */
#ifndef SMX_ENGINE_VISIT_H
#define SMX_ENGINE_VISIT_H

#include "verbs/engine_state.h"

/* Two lines: processors fetch them in pairs. */
struct smx_visitor {
	uint32_t inside __attribute__((aligned(128)));	/* the mark */
	uint32_t taken;		/* a thread has this record */
	struct smx_fast_clock clock;
	struct smx_visitor *next;	/* of all that were ever made */
};

extern __thread struct smx_visitor *smx_visitor_mine
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* A record for this thread, until it ends. RETURN NULL when none can be had. */
struct smx_visitor *smx_visitor_register(void);

/* With the lock just taken, and no other way into the device. RETURN false when somebody stayed inside for long. */
bool smx_visitors_gone(void);

/* In the child, which has one thread. */
void smx_visitors_fork_child(void);

static inline void smx_visitor_leave(struct smx_visitor *v)
{
	__atomic_store_n(&v->inside, 0, __ATOMIC_RELEASE);
}

/* RETURN NULL when the lock is held, or this thread is inside already (it is in a signal handler now). */
static inline struct smx_visitor *smx_visitor_enter(void)
{
	struct smx_visitor *v = smx_visitor_mine;

	if (__builtin_expect(!v, 0) && !(v = smx_visitor_register()))
		return NULL;
	if (__builtin_expect(v->inside, 0))
		return NULL;
	__atomic_store_n(&v->inside, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&smx_engine.word, __ATOMIC_SEQ_CST))
		return v;
	smx_visitor_leave(v);
	return NULL;
}

#endif
