/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The device's lock, the rings left for its holder, and its thread.
 *
 * The lock is a word: HELD while a thread is inside; RINGS when rings were left for it; WAITERS
 * when commands sleep on it. Whoever rings takes the free lock and does the work itself. Finding it
 * held, it puts its ring on a list and sets RINGS; the holder cannot leave without seeing that (its
 * release is a compare-and-swap of exactly HELD): a ring is never lost and nobody waits to post. */
#include "verbs/engine.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/share.h"
#include "verbs/event_queue.h"
#include "verbs/gid_table.h"
#include "verbs/objects.h"
#include "verbs/refusal_sink.h"

enum { HELD = 1, RINGS = 2, WAITERS = 4 };

enum {
	/* Looks at a held lock before sleeping. */
	SPINS = 100,
	/* Rounds of other threads' rings before the rest is left to the device's thread. */
	SERVES = 8,
	/* Looks for doorbells that a program rings itself: after work was found one after the
	 * other, then with naps that double from MIN to LAST between them, then asleep until the
	 * next store; where that cannot be had, with naps of up to MAX. */
	WATCH_SPIN_NS = 50000,
	WATCH_NAP_MIN_NS = 8000,
	WATCH_NAP_LAST_NS = 64000,
	WATCH_NAP_MAX_NS = 1000000,
	/* While pollers take what other processes send: between looks whether they still do. */
	HOST_NAP_MIN_NS = 50000,
	HOST_NAP_MAX_NS = 1000000,
	/* Polls that found nothing before the processor is offered to others, the peer perhaps; and between
	 * offers. */
	FRUITLESS_POLLS = 512,
	FRUITLESS_AGAIN = 32,
	/* Some kernels lose a page's protection when they move or swap it: even asleep the thread
	 * looks at the records. */
	WATCH_SLEEP_MAX_NS = 250000000,
	/* The same where another process may speak for the first time. */
	WATCH_SLEEP_REACHABLE_NS = 20000000,
	/* A store that was stopped gets this long to happen before pages are protected again. */
	STORE_PATIENCE_NS = 20000000,
	/* The holder of the lock may be stopped by a page: the thread looks this often. */
	STOPPED_LOOK_NS = 100000,
	/* How long the thread goes on looking after something came: longer where processors are plenty. */
	LOOK_NS = 2000,
	LOOK_LONG_NS = 50000,
	MANY_CPUS = 4,
};

static struct {
	/* What threads that find their queue empty read all the time, and seldom changes: apart
	 * from what everyone who enters writes. */
	uint64_t due_ns __attribute__((aligned(64))); /* when the device wants its next turn */
	uint32_t watched; /* queues that a program rings by its own stores */
	struct smx_dev *dev;

	uint32_t word __attribute__((aligned(64)));
	struct smx_ring *rings; /* left for whoever is inside, newest first */

	/* Only touched inside: */
	bool watch_found; /* a watched queue had work since the thread looked last */
	uint64_t found_ns; /* when the thread saw that last */
	bool pages_shut; /* UAR pages are protected, or the thread is about to: hands off */
	bool on_pages; /* the thread sleeps in smx_uar_pages_wait() */
	uint64_t store_until_ns; /* a stopped store may not have happened yet; 0: none */
	bool has_thread, stop;
	/* When the thread wakes by itself: 0 while it is awake, UINT64_MAX without one. */
	uint64_t thread_until_ns;
	/* Futex the thread sleeps on: wake_seq, or the bell that other processes ring too. */
	uint32_t *wake;
	uint32_t wake_seq;
	const uint32_t *host_changes; /* see smx_dev_host_changes() */
	uint32_t host_seen;
	int cpus; /* that this process may use */
	bool linked; /* other processes have made contact; written inside, read anywhere */
	pthread_t thread;

	pthread_mutex_t life; /* creation and end of the device */
	uint32_t users;
} engine = {
	.due_ns = UINT64_MAX,
	.thread_until_ns = UINT64_MAX,
	.wake = &engine.wake_seq,
	.life = PTHREAD_MUTEX_INITIALIZER,
};

static struct smx_refusal_log refusals = { .sink = smx_refusal_sink };

struct smx_refusal_log *smx_refusals(void)
{
	return &refusals;
}

struct smx_dev *smx_engine_dev(void)
{
	return engine.dev;
}

uint64_t smx_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Sleeps until *word is no longer seen, or, unless it is UINT64_MAX, until_ns. The word may be shared with
 * other processes. */
static void futex_wait(uint32_t *word, uint32_t seen, uint64_t until_ns)
{
	struct timespec until = { (time_t)(until_ns / 1000000000u),
				  (long)(until_ns % 1000000000u) };
	int saved_errno = errno;

	/* The bitset form takes an absolute time of CLOCK_MONOTONIC. */
	syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen,
		until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
	errno = saved_errno;
}

static void futex_wake(uint32_t *word)
{
	int saved_errno = errno;

	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
	errno = saved_errno;
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

static bool swap_word(uint32_t from, uint32_t to, int order)
{
	return __atomic_compare_exchange_n(&engine.word, &from, to, false, order, __ATOMIC_RELAXED);
}

/* A process of one thread needs no locked instructions; glibc knows when it has one. */
static inline bool try_enter(void)
{
	if (__libc_single_threaded) {
		if (engine.word)
			return false;
		engine.word = HELD;
		return true;
	}
	return swap_word(0, HELD, __ATOMIC_ACQUIRE);
}

static void start_thread(void);

/* Inside, or with the thread gone. */
static void wake_thread(void)
{
	engine.thread_until_ns = 0;
	__atomic_fetch_add(engine.wake, 1, __ATOMIC_RELEASE);
	if (engine.on_pages)
		smx_uar_pages_wake();
	else
		futex_wake(engine.wake);
}

/* The device wants its next turn at due_ns: sees to it that the thread is awake then. Inside. */
static void set_due(uint64_t due_ns)
{
	if (engine.due_ns != due_ns)
		__atomic_store_n(&engine.due_ns, due_ns, __ATOMIC_RELAXED);
	if (due_ns >= engine.thread_until_ns)
		return;
	if (!engine.has_thread) {
		start_thread();
		return;
	}
	wake_thread();
}

/* Inside, on the device's thread. */
static void open_pages(void)
{
	smx_uar_pages_unprotect();
	engine.pages_shut = false;
}

static void ring_device(struct smx_ring *ring)
{
	switch (ring->kind) {
	case SMX_RING_SQ:
		smx_dev_ring_sq(engine.dev, ring->obj);
		break;
	case SMX_RING_RQ:
		smx_dev_ring_rq(engine.dev, ring->obj);
		break;
	case SMX_RING_SRQ:
		smx_dev_ring_srq(engine.dev, ring->obj);
		break;
	case SMX_RING_CQ:
		smx_dev_arm_cq(engine.dev, ring->obj,
			       __atomic_load_n(&ring->arm_word, __ATOMIC_RELAXED));
		break;
	}
}

/* Rings what others left, in the order they left it. Inside. */
static void take_rings(void)
{
	struct smx_ring *list, *next, *oldest = NULL;

	if (!__atomic_load_n(&engine.rings, __ATOMIC_RELAXED))
		return;
	list = __atomic_exchange_n(&engine.rings, NULL, __ATOMIC_ACQUIRE);
	for (; list; list = next) {
		next = list->next;
		list->next = oldest;
		oldest = list;
	}
	for (; oldest; oldest = next) {
		next = oldest->next;
		/* From here on it may be left again; what was stored before that is seen by us. */
		__atomic_exchange_n(&oldest->queued, 0, __ATOMIC_ACQ_REL);
		ring_device(oldest);
	}
}

/* The device may have found other processes, or they it. */
static __attribute__((noinline)) void follow_host(void)
{
	uint32_t *bell = smx_dev_bell(engine.dev);

	engine.host_seen = *engine.host_changes;
	if (bell && engine.wake != bell) {
		uint32_t *old = engine.wake;

		__atomic_store_n(&engine.wake, bell, __ATOMIC_RELAXED);
		__atomic_fetch_add(old, 1, __ATOMIC_RELEASE);
		futex_wake(old);
	}
	if (bell && !engine.has_thread && engine.thread_until_ns && smx_dev_is_reachable(engine.dev))
		start_thread();
	if (smx_dev_is_linked(engine.dev) && !engine.linked)
		__atomic_store_n(&engine.linked, true, __ATOMIC_RELAXED);
}

/* Looks for what programs rang themselves: at the records if a UAR page was stored to, or anyway. */
static __attribute__((noinline)) void look(bool anyway)
{
	if (engine.pages_shut) {
		/* A store stops the program's thread and wakes ours. */
		if (!engine.has_thread || !pthread_equal(pthread_self(), engine.thread))
			return;
		/* Work of the device's may write a page, and nobody would let the thread go on. */
		open_pages();
		anyway = true;
	}
	if (!engine.has_thread)
		set_due(0);	/* after a fork */
	if (smx_uar_pages_rung()) {
		engine.store_until_ns = 0;
		anyway = true;
	}
	if (anyway && smx_dev_poll_watched(engine.dev))
		engine.watch_found = true;
}

static void turn(void)
{
	take_rings();
	if (__atomic_load_n(&engine.watched, __ATOMIC_RELAXED))
		look(false);
	set_due(smx_dev_turn(engine.dev));
	if (*engine.host_changes != engine.host_seen)
		follow_host();
}

static void leave_contended(void)
{
	unsigned int served = 0;

	for (;;) {
		uint32_t word = __atomic_load_n(&engine.word, __ATOMIC_RELAXED);

		if (word & RINGS) {
			__atomic_fetch_and(&engine.word, ~(uint32_t)RINGS, __ATOMIC_ACQUIRE);
			if (served++ < SERVES)
				turn();
			else
				set_due(0);	/* whoever enters next takes the rings */
			continue;
		}
		if (swap_word(word, 0, __ATOMIC_RELEASE)) {
			if (word & WAITERS)
				futex_wake(&engine.word);
			return;
		}
	}
}

static inline void leave(void)
{
	if (__libc_single_threaded && engine.word == HELD)
		engine.word = 0;
	else if (!swap_word(HELD, 0, __ATOMIC_RELEASE))
		leave_contended();
}

/* Puts a ring on the list. RETURN false when the lock was free by now and is taken instead. */
static bool leave_ring(struct smx_ring *ring)
{
	uint32_t word;

	/* Already on the list: its taker will see what we stored before this. */
	if (!__atomic_exchange_n(&ring->queued, 1, __ATOMIC_ACQ_REL)) {
		struct smx_ring *head = __atomic_load_n(&engine.rings, __ATOMIC_RELAXED);

		do
			ring->next = head;
		while (!__atomic_compare_exchange_n(&engine.rings, &head, ring, true,
						    __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	}
	word = __atomic_load_n(&engine.word, __ATOMIC_RELAXED);
	for (;;) {
		if (!(word & HELD)) {
			if (__atomic_compare_exchange_n(&engine.word, &word, word | HELD, false,
							__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				return false;
		} else if (__atomic_compare_exchange_n(&engine.word, &word, word | RINGS, false,
						       __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
			return true;
		}
	}
}

void smx_engine_ring(struct smx_ring *ring)
{
	if (try_enter())
		ring_device(ring);
	else if (leave_ring(ring))
		return;
	turn();
	leave();
}

/* Inside without a turn: for those who take one themselves. */
static void enter(void)
{
	uint32_t word;

	for (unsigned int i = 0; i < SPINS; i++) {
		if (try_enter())
			return;
		cpu_relax();
	}
	for (;;) {
		word = __atomic_load_n(&engine.word, __ATOMIC_RELAXED);
		/* WAITERS stays set: others may sleep too, and one needless wake is cheap. */
		if (!(word & HELD)) {
			if (swap_word(word, word | HELD | WAITERS, __ATOMIC_ACQUIRE))
				return;
		} else if ((word & WAITERS) || swap_word(word, word | WAITERS, __ATOMIC_RELAXED)) {
			futex_wait(&engine.word, word | WAITERS, UINT64_MAX);
		}
	}
}

void smx_engine_lock(void)
{
	smx_guard_install();
	enter();
}

void smx_engine_unlock(void)
{
	if (engine.dev)
		turn();
	leave();
}

unsigned int smx_engine_threads(void)
{
	return engine.has_thread;
}

void smx_engine_ring_drain(struct smx_ring *ring)
{
	if (!__atomic_load_n(&ring->queued, __ATOMIC_ACQUIRE))
		return;
	enter();
	take_rings();
	smx_engine_unlock();
}

static bool offer_processor(bool fruitless)
{
	static __thread uint32_t polls;

	if (!fruitless) {
		polls = 0;
		return false;
	}
	if (++polls < FRUITLESS_POLLS + FRUITLESS_AGAIN)
		return false;
	polls = FRUITLESS_POLLS;
	return true;
}

bool smx_engine_poll(void)
{
	struct smx_dev_arrivals before, after;
	bool fruitless;
	uint64_t due_ns = __atomic_load_n(&engine.due_ns, __ATOMIC_RELAXED);

	if (!__atomic_load_n(&engine.watched, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&engine.linked, __ATOMIC_RELAXED)) {
		if (due_ns == UINT64_MAX || (due_ns && smx_clock_ns() < due_ns))
			return false;
	}
	if (!try_enter())
		return false;	/* whoever is inside turns it */
	before = smx_dev_arrivals(engine.dev);
	turn();
	after = smx_dev_arrivals(engine.dev);
	fruitless = before.requests == after.requests && before.answers == after.answers;
	leave();
	if (engine.linked && offer_processor(fruitless))
		sched_yield();
	return true;
}

static void watch_one_more(void)
{
	__atomic_store_n(&engine.watched, engine.watched + 1, __ATOMIC_RELAXED);
	smx_dev_poll_watched(engine.dev);
	engine.watch_found = true;
	set_due(0);	/* the thread looks from now on */
}

void smx_engine_watch_qp(struct smx_qp *qp)
{
	enter();
	smx_dev_watch_qp(engine.dev, qp, true);
	watch_one_more();
	smx_engine_unlock();
}

void smx_engine_watch_cq(struct smx_cq *cq)
{
	enter();
	smx_dev_watch_cq(engine.dev, cq, true);
	watch_one_more();
	smx_engine_unlock();
}

void smx_engine_watch_end(void)
{
	enter();
	__atomic_store_n(&engine.watched, engine.watched - 1, __ATOMIC_RELAXED);
	if (!engine.watched)
		set_due(0);	/* the thread sleeps otherwise from now on */
	smx_engine_unlock();
}

void smx_engine_uar_given(struct smx_uar_page *page)
{
	if (__atomic_load_n(&page->listed, __ATOMIC_RELAXED))
		return;
	enter();
	smx_uar_page_add(page);
	if (engine.watched)
		set_due(0);	/* pages that are protected now are those of before */
	smx_engine_unlock();
}

void smx_engine_uar_gone(struct smx_uar_page *page)
{
	enter();
	smx_uar_page_remove(page);
	smx_engine_unlock();
}

/* ---- the thread; inside, except where said otherwise ---- */

/* How the thread learns of what other processes send. It listens for requests and answers, and is woken for
 * the first of either that arrives while it sleeps. Where pollers have taken all of a kind before it came,
 * waking it for that kind is a waste: it is deaf to it, and naps, as long as they do. */
struct listener {
	bool deaf_requests, deaf_answers;
	uint64_t nap_ns;	/* 0 unless deaf */
	struct smx_dev_arrivals before;	/* when it went to sleep */
};

/* RETURN whether the turn found anything. */
static bool after_sleep(struct listener *l)
{
	struct smx_dev_arrivals by_others = smx_dev_arrivals(engine.dev), all;
	bool found;

	turn();
	all = smx_dev_arrivals(engine.dev);
	found = all.requests != by_others.requests || all.answers != by_others.answers;
	l->deaf_requests = all.requests == by_others.requests && all.requests != l->before.requests;
	l->deaf_answers = all.answers == by_others.answers && all.answers != l->before.answers;
	if (!l->deaf_requests && !l->deaf_answers)
		l->nap_ns = 0;
	else
		l->nap_ns = !l->nap_ns ? HOST_NAP_MIN_NS :
			    l->nap_ns * 2 > HOST_NAP_MAX_NS ? HOST_NAP_MAX_NS : l->nap_ns * 2;
	l->before = all;
	return found;
}

/* Something came; more may come soon, and going to sleep and being woken takes longer than a look. */
static void look_again(struct listener *l)
{
	uint64_t end_ns = smx_clock_ns() + (engine.cpus < MANY_CPUS ? LOOK_NS : LOOK_LONG_NS);

	do {
		leave();
		for (unsigned int i = 0; i < SPINS / 4; i++)
			cpu_relax();
		enter();
		if (engine.stop)
			return;
		if (after_sleep(l))
			end_ns = smx_clock_ns() + (engine.cpus < MANY_CPUS ? LOOK_NS : LOOK_LONG_NS);
	} while (engine.due_ns && smx_clock_ns() < end_ns);
}

/* Inside; outside while it sleeps. */
static void sleep_until(uint64_t due_ns, struct listener *l)
{
	uint32_t *word = engine.wake, seq = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	if (l->nap_ns) {
		uint64_t nap_end_ns = smx_clock_ns() + l->nap_ns;

		due_ns = nap_end_ns < due_ns ? nap_end_ns : due_ns;
	}
	l->before = smx_dev_arrivals(engine.dev);
	if (!smx_dev_doze(engine.dev, !l->deaf_requests, !l->deaf_answers))
		return;
	engine.thread_until_ns = due_ns;
	leave();
	futex_wait(word, seq, due_ns);
	enter();
	engine.thread_until_ns = 0;
	smx_dev_doze(engine.dev, false, false);
}

/* From outside: a page stopped a thread. */
static void enter_for_store(void)
{
	smx_uar_pages_unprotect();
	enter();
	engine.pages_shut = false;
	engine.store_until_ns = smx_clock_ns() + STORE_PATIENCE_NS;
}

/* From outside, while pages are protected: who is inside may have been stopped by one. */
static void enter_past_stopped(void)
{
	for (unsigned int i = 0; !try_enter(); i++) {
		if (i < SPINS) {
			cpu_relax();
		} else if (smx_uar_pages_wait(STOPPED_LOOK_NS) == SMX_UAR_STORED) {
			enter_for_store();
			return;
		}
	}
}

/* Sleeps with pages protected, from outside to inside. The pages are still shut when the sleep was
 * without event. */
static void sleep_protected(uint64_t ns)
{
	enum smx_uar_wait why = smx_uar_pages_wait(ns);

	if (why == SMX_UAR_STORED)
		enter_for_store();
	else
		enter_past_stopped();
	engine.on_pages = false;
	engine.thread_until_ns = 0;
	if (why == SMX_UAR_WOKEN && engine.pages_shut)
		open_pages();
}

/* Until the program's next store to a UAR page, or until the device has something to do. Leaving the
 * device may take a turn for others, which opens the pages. Another process's first message is noticed
 * when a wait ends; from then on the thread naps instead. */
static void sleep_on_pages(void)
{
	uint32_t heard;

	if (!smx_dev_doze(engine.dev, true, true))
		return;
	heard = __atomic_load_n(engine.wake, __ATOMIC_ACQUIRE);
	engine.pages_shut = true;
	leave();
	if (engine.pages_shut && !smx_uar_pages_protect()) {
		enter();
		engine.pages_shut = false;
		smx_dev_doze(engine.dev, false, false);
		return;
	}
	enter_past_stopped();
	while (engine.pages_shut) {
		uint64_t now_ns = smx_clock_ns(), until_ns = now_ns +
			(smx_dev_is_reachable(engine.dev) ? WATCH_SLEEP_REACHABLE_NS : WATCH_SLEEP_MAX_NS);

		/* What was rung before the pages were protected is in the records. */
		engine.watch_found = smx_dev_poll_watched(engine.dev);
		if (engine.watch_found || engine.stop || !engine.watched ||
		    engine.due_ns <= now_ns ||
		    __atomic_load_n(engine.wake, __ATOMIC_ACQUIRE) != heard) {
			open_pages();
			break;
		}
		if (until_ns > engine.due_ns)
			until_ns = engine.due_ns;
		engine.thread_until_ns = until_ns;
		engine.on_pages = true;
		leave();
		sleep_protected(engine.pages_shut ? until_ns - now_ns : 0);
	}
	smx_dev_doze(engine.dev, false, false);
}

static void let_others(void)
{
	leave();
	sched_yield();	/* those who wait for the lock, or for a processor */
	enter();
}

/* There is nothing to do, but a program may ring by itself. RETURN how long the next nap is. */
static uint64_t watch(uint64_t nap_ns, struct listener *l)
{
	uint64_t now_ns = smx_clock_ns(), until_ns;

	if (engine.watch_found)
		engine.found_ns = now_ns;
	engine.watch_found = false;
	if (now_ns - engine.found_ns < WATCH_SPIN_NS) {
		let_others();
		return WATCH_NAP_MIN_NS;
	}
	if (engine.store_until_ns && now_ns > engine.store_until_ns)
		engine.store_until_ns = 0;
	/* What other processes send ends a nap at once, a sleep on pages not. */
	if (nap_ns > WATCH_NAP_LAST_NS && !engine.store_until_ns &&
	    !smx_dev_is_linked(engine.dev) && smx_uar_pages_open()) {
		sleep_on_pages();
		look(true);
		return nap_ns;
	}
	until_ns = now_ns + nap_ns;
	sleep_until(until_ns < engine.due_ns ? until_ns : engine.due_ns, l);
	if (nap_ns > WATCH_NAP_LAST_NS)
		look(true);
	return nap_ns * 2 < WATCH_NAP_MAX_NS ? nap_ns * 2 : WATCH_NAP_MAX_NS;
}

static void *device_thread(void *arg)
{
	uint64_t nap_ns = WATCH_NAP_MIN_NS;
	struct listener listener = { .nap_ns = 0 };

	(void)arg;
	prctl(PR_SET_NAME, "softmlx5");
	prctl(PR_SET_TIMERSLACK, 1000);
	enter();
	listener.before = smx_dev_arrivals(engine.dev);
	while (!engine.stop) {
		if (after_sleep(&listener) && engine.due_ns)
			look_again(&listener);
		if (engine.stop)	/* it may have been said while we looked */
			break;
		if (engine.due_ns == 0) {
			let_others();
		} else if (engine.watched) {
			nap_ns = watch(nap_ns, &listener);
		} else {
			sleep_until(engine.due_ns, &listener);
		}
	}
	leave();
	smx_uar_pages_close();
	return NULL;
}

/* Inside. Signals are the program's threads' business, but for those that our own copies may cause. */
static void start_thread(void)
{
	sigset_t all, old;
	cpu_set_t cpus;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&engine.thread, NULL, device_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		smx_log(SMX_LOG_WARN,
			"no device thread (%s): timers run only while completions are polled",
			strerror(err));
		engine.thread_until_ns = 0; /* once; pollers and posters still turn the device */
		return;
	}
	engine.has_thread = true;
	engine.thread_until_ns = 0;
	engine.cpus = sched_getaffinity(0, sizeof(cpus), &cpus) ? 1 : CPU_COUNT(&cpus);
}

static void end_thread(void)
{
	if (!engine.has_thread)
		return;
	enter();
	engine.stop = true;
	wake_thread();
	leave();
	pthread_join(engine.thread, NULL);
	engine.stop = false;
	engine.has_thread = false;
}

/* ---- creation, end, fork ---- */

static uint64_t env_now(void *arg)
{
	(void)arg;
	return smx_clock_ns();
}

static void env_cq_event(void *cookie, void *arg)
{
	(void)arg;
	smx_event_cq(cookie);
}

static void env_async_event(enum ibv_event_type type, void *cookie, void *arg)
{
	(void)arg;
	smx_event_async(type, cookie);
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&engine.life);
	enter();
	smx_uar_pages_fork_prepare();
	smx_share_fork_prepare();
}

static void fork_parent(void)
{
	smx_share_fork_parent();
	smx_uar_pages_fork_parent();
	leave();
	pthread_mutex_unlock(&engine.life);
}

/* The child has a copy of the device and of all that its queues hold, and one thread: this one. */
static void fork_child(void)
{
	smx_share_fork_child();
	__atomic_store_n(&engine.word, 0, __ATOMIC_RELAXED);
	engine.has_thread = false;
	engine.stop = false;
	engine.pages_shut = false;
	engine.on_pages = false;
	engine.thread_until_ns = UINT64_MAX;
	smx_uar_pages_fork_child();
	refusals.lock = 0;
	engine.wake = &engine.wake_seq;
	engine.linked = false;
	if (engine.dev)
		smx_dev_forked(engine.dev);
	smx_event_queues_fork_child();
	pthread_mutex_init(&engine.life, NULL);
	/* Work that the parent's thread was to do is now ours. */
	if (engine.dev && engine.due_ns != UINT64_MAX)
		engine.due_ns = 0;
}

static void register_fork(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static int create(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct smx_dev_attr attr = {
		.env = {
			.now = env_now,
			.cq_event = env_cq_event,
			.async_event = env_async_event,
			.copy = smx_guard_copy,
			.call = smx_guard_call,
			.refusals = &refusals,
		},
		.memcpy_max_bytes = smx_setting_number(SMX_SET_MEMCPY_MAX),
		.turn_budget_bytes = smx_setting_number(SMX_SET_INLINE_BUDGET),
		.mtu_bytes = (uint32_t)smx_setting_number(SMX_SET_MTU),
		.key_seed = (uint32_t)(smx_clock_ns() ^ (uint64_t)getpid()),
	};
	const char *host = smx_setting_text(SMX_SET_HOST);
	int err;

	pthread_once(&once, register_fork);
	smx_guard_install();
	err = smx_dev_create(&attr, &engine.dev);
	if (err)
		return err;
	for (uint32_t i = 0; i < smx_gid_count(); i++)
		smx_dev_set_gid(engine.dev, (uint8_t)i, smx_gid_at(i)->gid.raw);
	if (strcmp(host, "off"))
		err = smx_dev_open_host(engine.dev, !strcmp(host, "copy"));
	if (err) {
		smx_dev_destroy(engine.dev);
		engine.dev = NULL;
		return err;
	}
	engine.host_changes = smx_dev_host_changes(engine.dev);
	engine.host_seen = *engine.host_changes;
	return 0;
}

int smx_engine_get(void)
{
	int err = 0;

	pthread_mutex_lock(&engine.life);
	if (!engine.users)
		err = create();
	if (!err)
		engine.users++;
	pthread_mutex_unlock(&engine.life);
	return err;
}

void smx_engine_put(void)
{
	pthread_mutex_lock(&engine.life);
	if (!--engine.users) {
		end_thread();
		enter();
		smx_dev_destroy(engine.dev);
		smx_share_end(0);
		engine.dev = NULL;
		engine.due_ns = UINT64_MAX;
		engine.thread_until_ns = UINT64_MAX;
		engine.watched = 0;
		engine.wake = &engine.wake_seq;
		engine.linked = false;
		leave();
	}
	pthread_mutex_unlock(&engine.life);
}
