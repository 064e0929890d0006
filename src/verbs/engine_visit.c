/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "verbs/engine_visit.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* Looks at a mark before the processor is offered to whoever set it; and such offers. */
	LOOKS = 100,
	OFFERS = 50,
};

__thread struct smx_visitor *smx_visitor_mine __attribute__((tls_model("initial-exec")));

static struct smx_visitor *visitors;	/* newest first; none is ever freed */
static pthread_key_t at_end;
static bool has_key;

/* The thread ends. It may visit once more yet, and gets a record again. */
static void thread_ends(void *record)
{
	struct smx_visitor *v = record;

	smx_visitor_mine = NULL;
	__atomic_store_n(&v->taken, 0, __ATOMIC_RELEASE);
}

static __attribute__((constructor)) void make_key(void)
{
	has_key = !pthread_key_create(&at_end, thread_ends);
}

static __attribute__((destructor)) void drop_key(void)
{
	if (has_key)
		pthread_key_delete(at_end);
	has_key = false;
}

static struct smx_visitor *find_free(void)
{
	for (struct smx_visitor *v = __atomic_load_n(&visitors, __ATOMIC_ACQUIRE); v; v = v->next) {
		uint32_t nobody = 0;

		if (!__atomic_load_n(&v->taken, __ATOMIC_RELAXED) &&
		    __atomic_compare_exchange_n(&v->taken, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return v;
	}
	return NULL;
}

static struct smx_visitor *make(void)
{
	struct smx_visitor *v = aligned_alloc(_Alignof(struct smx_visitor), sizeof(*v));

	if (!v)
		return NULL;
	memset(v, 0, sizeof(*v));
	v->taken = 1;
	v->next = __atomic_load_n(&visitors, __ATOMIC_RELAXED);
	/* Before its mark is set for the first time, whoever takes the lock then sees it. */
	while (!__atomic_compare_exchange_n(&visitors, &v->next, v, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	return v;
}

struct smx_visitor *smx_visitor_register(void)
{
	struct smx_visitor *v;

	if (!has_key)
		return NULL;
	v = find_free();
	if (!v)
		v = make();
	if (!v)
		return NULL;
	if (pthread_setspecific(at_end, v)) {
		__atomic_store_n(&v->taken, 0, __ATOMIC_RELEASE);
		return NULL;
	}
	smx_visitor_mine = v;
	return v;
}

static bool is_gone(const struct smx_visitor *v)
{
	for (unsigned int i = 0; i < LOOKS * OFFERS; i++) {
		if (!__atomic_load_n(&v->inside, __ATOMIC_SEQ_CST))
			return true;
		if (i % LOOKS == LOOKS - 1)
			sched_yield();
		else
			smx_cpu_relax();
	}
	return false;
}

bool smx_visitors_gone(void)
{
	for (const struct smx_visitor *v = __atomic_load_n(&visitors, __ATOMIC_SEQ_CST); v; v = v->next)
		if (!is_gone(v))
			return false;
	return true;
}

void smx_visitors_fork_child(void)
{
	for (struct smx_visitor *v = visitors; v; v = v->next)
		if (v != smx_visitor_mine)
			v->taken = v->inside = 0;
}
