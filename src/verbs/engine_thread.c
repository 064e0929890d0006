/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The device thread: timers, other processes, what exceeds a turn's budget, and doorbells that programs ring
 * by their own stores. It sleeps when there is nothing to do.
 *
 * All of this is inside the device, except where said otherwise. */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/thread.h"
#include "verbs/engine.h"
#include "verbs/engine_state.h"
#include "verbs/objects.h"

enum {
	/* Looks for doorbells that a program rings itself: after work was found one after the
	 * other, then with naps that double from MIN to LAST between them, then asleep until the
	 * next store; where that cannot be had, with naps of up to MAX. */
	WATCH_SPIN_NS = 50000,
	/* Between those looks where processors are few: whoever yields one to a program that spins gets it back
	 * at the end of that one's slice, whoever wakes gets it at once. */
	WATCH_BLINK_NS = 3000,
	WATCH_NAP_MIN_NS = 8000,
	WATCH_NAP_LAST_NS = 64000,
	WATCH_NAP_MAX_NS = 1000000,
	/* While pollers take what other processes send: between looks whether they still do. */
	HOST_NAP_MIN_NS = 50000,
	HOST_NAP_MAX_NS = 1000000,
	/* Visits in such a nap that say that they do. */
	BUSY_VISITS = 4,
	/* Some kernels lose a page's protection when they move or swap it: even asleep the thread
	 * looks at the records. */
	WATCH_SLEEP_MAX_NS = 250000000,
	/* A store that was stopped gets this long to happen before pages are protected again. */
	STORE_PATIENCE_NS = 20000000,
	/* How long the thread goes on looking after something came: longer where processors are plenty. */
	LOOK_NS = 2000,
	LOOK_LONG_NS = 50000,
	LOOK_SPINS = 25,
	MANY_CPUS = 4,
};

static uint64_t found_ns; /* when the thread last saw that a watched queue had work */
static int cpus; /* that this process may use */

void smx_engine_thread_wake(void)
{
	smx_engine.thread_until_ns = 0;
	__atomic_fetch_add(smx_engine.wake, 1, __ATOMIC_RELEASE);
	smx_futex_wake(smx_engine.wake);
}

/* From outside, on the thread that opens UAR pages. The word that the device's thread sleeps on may become
 * another meanwhile; that thread looks for stores after it has read which one it is. */
static void on_store(void)
{
	uint32_t *word = __atomic_load_n(&smx_engine.wake, __ATOMIC_SEQ_CST);

	__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
	smx_futex_wake(word);
}

/* RETURN whether a store was stopped, and let go on: it happens at any moment. */
static bool note_store(void)
{
	if (!smx_engine.watched || !smx_uar_pages_take_stored())
		return false;
	smx_engine.store_until_ns = smx_clock_ns() + STORE_PATIENCE_NS;
	smx_engine.watch_found = true;
	return true;
}

/* How the thread learns of what other processes send. It is woken for the first that arrives while it sleeps.
 * While the program's threads turn the device all the time, that is a waste, and so is looking itself: it naps, and
 * looks whether they still do. */
struct listener {
	uint32_t visits;	/* when last looked at */
	uint64_t nap_ns;	/* 0: it listens */
};

/* RETURN whether the program's threads were there since it was asked last. */
static bool visitors(struct listener *l)
{
	uint32_t visits = __atomic_load_n(&smx_engine.visits, __ATOMIC_RELAXED), before = l->visits;

	l->visits = visits;
	return visits - before >= BUSY_VISITS;
}

/* Sleeps as long as there are visitors, nothing is due, and *word is seq. From outside: whoever is inside may wait
 * for this processor. What becomes due meanwhile is seen in time by pollers, or when a nap ends. */
static void nap(uint32_t *word, uint32_t seq, uint64_t end_ns, struct listener *l)
{
	for (;;) {
		uint64_t now_ns = smx_clock_ns(), until_ns = now_ns + l->nap_ns;
		uint64_t due_ns = __atomic_load_n(&smx_engine.due_ns, __ATOMIC_RELAXED);

		due_ns = end_ns < due_ns ? end_ns : due_ns;
		if (now_ns >= due_ns || __atomic_load_n(word, __ATOMIC_ACQUIRE) != seq)
			return;
		smx_futex_wait(word, seq, until_ns < due_ns ? until_ns : due_ns);
		if (!visitors(l)) {
			l->nap_ns = 0;
			return;
		}
		l->nap_ns = l->nap_ns * 2 > HOST_NAP_MAX_NS ? HOST_NAP_MAX_NS : l->nap_ns * 2;
	}
}

/* RETURN whether something was found. */
static bool after_sleep(struct listener *l)
{
	struct smx_dev_arrivals before = smx_dev_arrivals(smx_engine.dev), after;

	if (!l->nap_ns && visitors(l))
		l->nap_ns = HOST_NAP_MIN_NS;
	if (l->nap_ns && !smx_engine.watched && smx_clock_ns() < smx_engine.due_ns)
		return false;
	smx_dev_prompt(smx_engine.dev, true);
	smx_engine_turn();
	smx_dev_prompt(smx_engine.dev, false);
	after = smx_dev_arrivals(smx_engine.dev);
	return before.requests != after.requests || before.answers != after.answers;
}

/* Something came; more may come soon, and going to sleep and being woken takes longer than a look. */
static void look_again(struct listener *l)
{
	uint64_t end_ns = smx_clock_ns() + (cpus < MANY_CPUS ? LOOK_NS : LOOK_LONG_NS);

	do {
		smx_engine_leave();
		for (unsigned int i = 0; i < LOOK_SPINS; i++)
			smx_cpu_relax();
		smx_engine_enter();
		if (smx_engine.stop)
			return;
		if (after_sleep(l))
			end_ns = smx_clock_ns() + (cpus < MANY_CPUS ? LOOK_NS : LOOK_LONG_NS);
	} while (smx_engine.due_ns && smx_clock_ns() < end_ns);
}

/* Inside; outside while it sleeps. */
static void sleep_until(uint64_t due_ns, struct listener *l)
{
	uint32_t *word = smx_engine.wake, seq = __atomic_load_n(word, __ATOMIC_SEQ_CST);

	if (note_store())
		return;
	smx_engine.deaf = l->nap_ns;
	smx_dev_polled(smx_engine.dev, smx_engine.deaf);
	if (!smx_dev_doze(smx_engine.dev, !smx_engine.deaf, !smx_engine.deaf)) {
		smx_engine.deaf = false;
		return;
	}
	smx_engine.thread_until_ns = smx_engine.deaf ? 0 : due_ns;
	smx_engine_leave();
	if (l->nap_ns)
		nap(word, seq, due_ns, l);
	else
		smx_futex_wait(word, seq, due_ns);
	smx_engine_enter();
	smx_engine.deaf = false;
	smx_dev_polled(smx_engine.dev, false);
	smx_engine.thread_until_ns = 0;
	smx_dev_doze(smx_engine.dev, false, false);
	note_store();
}

/* RETURN whether the program's next store wakes us. What was rung before is found. */
static bool shut_pages(void)
{
	bool fresh;

	if (!smx_uar_pages_open(on_store) || !smx_uar_pages_protect(&fresh))
		return false;
	if (fresh && smx_dev_poll_watched(smx_engine.dev))
		smx_engine.watch_found = true;
	return true;
}

static void let_others(void)
{
	smx_engine_leave();
	sched_yield();	/* those who wait for the lock, or for a processor */
	smx_engine_enter();
}

static void blink(void)
{
	const struct timespec ts = { 0, WATCH_BLINK_NS };

	smx_engine_leave();
	nanosleep(&ts, NULL);
	smx_engine_enter();
}

/* There is nothing to do, but a program may ring by itself. RETURN how long the next nap is. */
static uint64_t watch(uint64_t nap_ns, struct listener *l)
{
	uint64_t now_ns = smx_clock_ns(), sleep_ns = nap_ns;

	if (smx_engine.watch_found)
		found_ns = now_ns;
	smx_engine.watch_found = false;
	if (now_ns - found_ns < WATCH_SPIN_NS) {
		smx_uar_pages_unprotect();
		if (cpus < MANY_CPUS)
			blink();
		else
			let_others();
		return WATCH_NAP_MIN_NS;
	}
	if (smx_engine.store_until_ns && now_ns > smx_engine.store_until_ns)
		smx_engine.store_until_ns = 0;
	if (nap_ns > WATCH_NAP_LAST_NS && !smx_engine.store_until_ns && shut_pages()) {
		if (smx_engine.watch_found)
			return nap_ns;
		sleep_ns = WATCH_SLEEP_MAX_NS;
	}
	sleep_ns += now_ns;
	sleep_until(sleep_ns < smx_engine.due_ns ? sleep_ns : smx_engine.due_ns, l);
	if (nap_ns > WATCH_NAP_LAST_NS)
		smx_engine_look(true);
	return nap_ns * 2 < WATCH_NAP_MAX_NS ? nap_ns * 2 : WATCH_NAP_MAX_NS;
}

static void *device_thread(void *arg)
{
	uint64_t nap_ns = WATCH_NAP_MIN_NS;
	struct listener listener = { .nap_ns = 0 };

	(void)arg;
	smx_thread_begin("softmlx5");
	smx_engine_enter();
	listener.visits = smx_engine.visits;
	while (!smx_engine.stop) {
		if (after_sleep(&listener) && smx_engine.due_ns)
			look_again(&listener);
		if (smx_engine.stop)	/* it may have been said while we looked */
			break;
		if (smx_engine.due_ns == 0) {
			let_others();
		} else if (smx_engine.watched) {
			nap_ns = watch(nap_ns, &listener);
		} else {
			smx_uar_pages_unprotect();
			sleep_until(smx_engine.due_ns, &listener);
		}
	}
	smx_engine_leave();
	smx_uar_pages_close();
	return NULL;
}

/* Signals are the program's threads' business, but for those that our own copies may cause. */
void smx_engine_thread_start(void)
{
	sigset_t all, old;
	cpu_set_t set;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&smx_engine.thread, NULL, device_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		smx_log(SMX_LOG_WARN,
			"no device thread (%s): timers run only while completions are polled",
			strerror(err));
		smx_engine.thread_until_ns = 0; /* once; pollers and posters still turn the device */
		return;
	}
	__atomic_store_n(&smx_engine.has_thread, true, __ATOMIC_RELAXED);
	smx_engine.thread_until_ns = 0;
	cpus = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

void smx_engine_thread_end(void)
{
	if (!smx_engine.has_thread)
		return;
	smx_engine_enter();
	smx_engine.stop = true;
	smx_engine_thread_wake();
	smx_engine_leave();
	pthread_join(smx_engine.thread, NULL);
	smx_engine.stop = false;
	smx_engine.has_thread = false;
}
