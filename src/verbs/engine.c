/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The device's lock, the rings left for its holder; its beginning and end, and fork.
 *
 * The lock is a word: HELD while a thread is inside; RINGS when rings were left for it; WAITERS
 * when commands sleep on it. Whoever rings takes the free lock and does the work itself. Finding it
 * held, it puts its ring on a list and sets RINGS; the holder cannot leave without seeing that (its
 * release is a compare-and-swap of exactly HELD): a ring is never lost and nobody waits to post.
 *
 * Most rings of send queues do not come that far. They are visits (dev/sq_visit.c), which change nothing that two
 * queue pairs have in common but a completion queue, and so need only that nobody else changes it: a process of one
 * thread has the lock meanwhile, in others visitors are inside side by side (engine_visit.h). */
#include "verbs/engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fast_clock.h"
#include "base/guard.h"
#include "base/settings.h"
#include "base/share.h"
#include "verbs/engine_share.h"
#include "verbs/engine_state.h"
#include "verbs/engine_visit.h"
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
	/* Polls that found nothing before the processor is offered to others, the peer perhaps; and between
	 * offers. */
	FRUITLESS_POLLS = 4096,
	FRUITLESS_AGAIN = 512,
	/* Polls that found nothing between looks at whoever is inside. */
	HOLDER_POLLS = 256,
	/* Between looks at the clock by those who poll empty queues. */
	LATE_POLLS = 256,
	/* At the end of the process: looks at a held lock, a millisecond apart. */
	EXIT_TRIES = 500,
};

struct smx_engine_state smx_engine = {
	.due_ns = UINT64_MAX,
	.thread_until_ns = UINT64_MAX,
	.wake = &smx_engine.wake_seq,
	.life = PTHREAD_MUTEX_INITIALIZER,
};

static struct smx_refusal_log refusals = { .sink = smx_refusal_sink };

struct smx_refusal_log *smx_refusals(void)
{
	return &refusals;
}

struct smx_dev *smx_engine_dev(void)
{
	return smx_engine.dev;
}

void smx_futex_wait(uint32_t *word, uint32_t seen, uint64_t until_ns)
{
	struct timespec until = { (time_t)(until_ns / 1000000000u),
				  (long)(until_ns % 1000000000u) };
	int saved_errno = errno;

	/* The bitset form takes an absolute time of CLOCK_MONOTONIC. */
	syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen,
		until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
	errno = saved_errno;
}

void smx_futex_wake(uint32_t *word)
{
	int saved_errno = errno;

	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
	errno = saved_errno;
}

static bool swap_word(uint32_t from, uint32_t to, int order)
{
	return __atomic_compare_exchange_n(&smx_engine.word, &from, to, false, order, __ATOMIC_RELAXED);
}

/* The device wants its next turn at due_ns: sees to it that the thread is awake then. Inside. */
static void set_due(uint64_t due_ns)
{
	if (smx_engine.due_ns != due_ns)
		__atomic_store_n(&smx_engine.due_ns, due_ns, __ATOMIC_RELAXED);
	if (due_ns >= smx_engine.thread_until_ns)
		return;
	if (!smx_engine.has_thread) {
		smx_engine_thread_start();
		return;
	}
	smx_engine_thread_wake();
}

/* Completion events are told when the turn is over: whoever waits for one is woken, on this processor perhaps, and must
 * not find that the answer to the message he hears of has not left. Inside. */
static struct smx_vcq *raised, **raised_last = &raised;

static void env_cq_event(void *cookie, void *arg)
{
	struct smx_vcq *vcq = cookie;

	(void)arg;
	if (vcq->raised++)
		return;
	*raised_last = vcq;
	raised_last = &vcq->raised_next;
}

static __attribute__((noinline)) void tell_raised(void)
{
	struct smx_vcq *vcq;

	while ((vcq = raised)) {
		raised = vcq->raised_next;
		vcq->raised_next = NULL;
		for (; vcq->raised; vcq->raised--)
			smx_event_cq(vcq);
	}
	raised_last = &raised;
}

/* Takes the lock back from nobody's hands: it is let go without having been inside. Rings that were left meanwhile are
 * the device thread's, which has the time to wait for visitors. */
static void give_back(void)
{
	uint32_t word = __atomic_load_n(&smx_engine.word, __ATOMIC_RELAXED);

	do {
		if (word & RINGS || __atomic_load_n(&smx_engine.rings, __ATOMIC_RELAXED))
			set_due(0);
	} while (!__atomic_compare_exchange_n(&smx_engine.word, &word, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	if (word & WAITERS)
		smx_futex_wake(&smx_engine.word);
}

/* The lock was just taken. RETURN false when it was let go again because a visitor stays inside for long: it may copy
 * from memory of which a page has to be fetched, by us perhaps. */
static inline bool is_alone(void)
{
	if (smx_visitors_gone())
		return true;
	give_back();
	return false;
}

/* A process of one thread needs no locked instructions; glibc knows when it has one. */
static inline bool try_enter(void)
{
	if (__libc_single_threaded) {
		if (smx_engine.word)
			return false;
		smx_engine.word = HELD;
		return true;
	}
	return swap_word(0, HELD, __ATOMIC_SEQ_CST) && is_alone();
}

static void ring_device(struct smx_ring *ring)
{
	switch (ring->kind) {
	case SMX_RING_SQ:
		smx_dev_ring_sq(smx_engine.dev, ring->obj);
		break;
	case SMX_RING_RQ:
		smx_dev_ring_rq(smx_engine.dev, ring->obj);
		break;
	case SMX_RING_SRQ:
		smx_dev_ring_srq(smx_engine.dev, ring->obj);
		break;
	case SMX_RING_CQ:
		smx_dev_arm_cq(smx_engine.dev, ring->obj,
			       __atomic_load_n(&ring->arm_word, __ATOMIC_RELAXED));
		break;
	}
}

/* Rings what others left, in the order they left it. Inside. */
static void take_rings(void)
{
	struct smx_ring *list, *next, *oldest = NULL;

	if (!__atomic_load_n(&smx_engine.rings, __ATOMIC_RELAXED))
		return;
	list = __atomic_exchange_n(&smx_engine.rings, NULL, __ATOMIC_ACQUIRE);
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
	uint32_t *bell = smx_dev_bell(smx_engine.dev), *old = smx_engine.wake;
	uint32_t *word = bell ? bell : &smx_engine.wake_seq;

	smx_engine.host_seen = *smx_engine.host_changes;
	if (word != old) {
		__atomic_store_n(&smx_engine.wake, word, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(old, 1, __ATOMIC_RELEASE);
		smx_futex_wake(old);
	}
	if (bell && !smx_engine.has_thread && smx_engine.thread_until_ns && smx_dev_is_reachable(smx_engine.dev))
		smx_engine_thread_start();
	__atomic_store_n(&smx_engine.linked, smx_dev_is_linked(smx_engine.dev), __ATOMIC_RELAXED);
}

__attribute__((noinline)) void smx_engine_look(bool anyway)
{
	if (!smx_engine.has_thread)
		set_due(0);	/* after a fork */
	/* Protected pages are not looked at: a store wakes the thread. */
	if (!smx_uar_pages_are_protected() && smx_uar_pages_rung()) {
		smx_engine.store_until_ns = 0;
		anyway = true;
	}
	if (anyway && smx_dev_poll_watched(smx_engine.dev))
		smx_engine.watch_found = true;
}

void smx_engine_turn(void)
{
	take_rings();
	if (__atomic_load_n(&smx_engine.watched, __ATOMIC_RELAXED))
		smx_engine_look(false);
	set_due(smx_dev_turn(smx_engine.dev));
	if (raised)
		tell_raised();
	if (*smx_engine.host_changes != smx_engine.host_seen)
		follow_host();
}

static void leave_contended(void)
{
	unsigned int served = 0;

	for (;;) {
		uint32_t word = __atomic_load_n(&smx_engine.word, __ATOMIC_RELAXED);

		if (word & RINGS) {
			__atomic_fetch_and(&smx_engine.word, ~(uint32_t)RINGS, __ATOMIC_ACQUIRE);
			if (served++ < SERVES)
				smx_engine_turn();
			else
				set_due(0);	/* whoever enters next takes the rings */
			continue;
		}
		if (swap_word(word, 0, __ATOMIC_RELEASE)) {
			if (word & WAITERS)
				smx_futex_wake(&smx_engine.word);
			return;
		}
	}
}

static inline void leave(void)
{
	if (__libc_single_threaded && smx_engine.word == HELD)
		smx_engine.word = 0;
	else if (!swap_word(HELD, 0, __ATOMIC_RELEASE))
		leave_contended();
}

/* Puts a ring on the list. RETURN false when the lock was free by now and is taken: the ring is the caller's then. */
static bool leave_ring(struct smx_ring *ring)
{
	uint32_t word;

	/* Already on the list: its taker will see what we stored before this. */
	if (!__atomic_exchange_n(&ring->queued, 1, __ATOMIC_ACQ_REL)) {
		struct smx_ring *head = __atomic_load_n(&smx_engine.rings, __ATOMIC_RELAXED);

		do
			ring->next = head;
		while (!__atomic_compare_exchange_n(&smx_engine.rings, &head, ring, true,
						    __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	}
	word = __atomic_load_n(&smx_engine.word, __ATOMIC_RELAXED);
	for (;;) {
		if (!(word & HELD)) {
			if (__atomic_compare_exchange_n(&smx_engine.word, &word, word | HELD, false,
							__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
				return !is_alone();
		} else if (__atomic_compare_exchange_n(&smx_engine.word, &word, word | RINGS, false,
						       __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
			return true;
		}
	}
}

static inline void count_visit(void)
{
	__atomic_store_n(&smx_engine.visits, smx_engine.visits + 1, __ATOMIC_RELAXED);
}

/* Somebody is about to wait for an event: the thread is to be woken again for what comes. Inside. */
static void listen_again(void)
{
	smx_engine.deaf = false;
	smx_dev_polled(smx_engine.dev, false);
	if (!smx_dev_doze(smx_engine.dev, true, true))
		smx_engine_turn();
}

/* Is a turn wanted that whoever rings should take? What is due later, the thread sees to. */
static inline bool is_turn_due(void)
{
	uint64_t due_ns = __atomic_load_n(&smx_engine.due_ns, __ATOMIC_RELAXED);

	return smx_engine.watched ||
	       (due_ns != UINT64_MAX && !(due_ns && __atomic_load_n(&smx_engine.has_thread, __ATOMIC_RELAXED)));
}

/* RETURN false when some of what was rung, or all, is left. */
static inline bool visit(struct smx_qp *qp)
{
	struct smx_visitor *v;
	bool all;

	if (__libc_single_threaded) {
		if (!try_enter())
			return false;
		all = !is_turn_due() && smx_dev_serve_sq(smx_engine.dev, qp) && !raised;
		leave();
		return all;
	}
	v = smx_dev_may_visit_sq(qp) ? smx_visitor_enter() : NULL;
	if (!v)
		return false;
	all = !is_turn_due() && smx_dev_visit_sq(smx_engine.dev, qp);
	smx_visitor_leave(v);
	return all;
}

/* RETURN whether receives were posted that nobody waits for. One thread alone finds out as fast by the lock. */
static __attribute__((noinline)) bool is_unawaited(const struct smx_ring *ring)
{
	const struct smx_qp *qp = ring->kind == SMX_RING_RQ ? ring->obj : NULL;
	struct smx_visitor *v = ring->kind == SMX_RING_CQ ? NULL : smx_visitor_enter();
	bool unawaited;

	if (!v)
		return false;
	unawaited = !smx_engine.watched && !raised && !smx_dev_awaits_receive(smx_engine.dev, qp);
	smx_visitor_leave(v);
	return unawaited;
}

static __attribute__((noinline)) void ring_inside(struct smx_ring *ring)
{
	bool left = false;

	if (try_enter())
		ring_device(ring);
	else if (leave_ring(ring))
		return;
	else
		left = true;
	count_visit();
	/* Mostly nobody waits for a receive. */
	if (ring->kind == SMX_RING_SQ || ring->kind == SMX_RING_CQ || left || smx_engine.watched ||
	    smx_dev_is_ready(smx_engine.dev) || raised)
		smx_engine_turn();
	if (ring->kind == SMX_RING_CQ && smx_engine.deaf)
		listen_again();
	leave();
}

void smx_engine_ring(struct smx_ring *ring)
{
	if (ring->kind == SMX_RING_SQ ? visit(ring->obj) : !__libc_single_threaded && is_unawaited(ring))
		return;
	ring_inside(ring);
}

void smx_engine_enter(void)
{
	uint32_t word;

	for (unsigned int i = 0; i < SPINS; i++) {
		if (try_enter())
			return;
		smx_cpu_relax();
	}
	for (;;) {
		word = __atomic_load_n(&smx_engine.word, __ATOMIC_RELAXED);
		/* WAITERS stays set: others may sleep too, and one needless wake is cheap. */
		if (!(word & HELD)) {
			if (swap_word(word, word | HELD | WAITERS, __ATOMIC_SEQ_CST)) {
				while (!smx_visitors_gone())
					;
				return;
			}
		} else if ((word & WAITERS) || swap_word(word, word | WAITERS, __ATOMIC_RELAXED)) {
			smx_futex_wait(&smx_engine.word, word | WAITERS, UINT64_MAX);
		}
	}
}

void smx_engine_leave(void)
{
	leave();
}

void smx_engine_lock(void)
{
	smx_guard_install();
	smx_engine_enter();
}

void smx_engine_unlock(void)
{
	if (smx_engine.dev)
		smx_engine_turn();
	leave();
}

unsigned int smx_engine_threads(void)
{
	return smx_engine.has_thread + smx_uar_pages_are_open();
}

void smx_engine_ring_drain(struct smx_ring *ring)
{
	if (!__atomic_load_n(&ring->queued, __ATOMIC_ACQUIRE))
		return;
	smx_engine_enter();
	take_rings();
	smx_engine_unlock();
}

/* The thread wakes for what is due, where there is one; from a nap it may come late. */
static bool is_due(uint64_t due_ns)
{
	if (!due_ns || due_ns == UINT64_MAX)
		return !due_ns;
	return (!smx_engine.has_thread || !smx_engine.linked || smx_engine.fruitless % LATE_POLLS == 0) &&
	       smx_clock_ns() >= due_ns;
}

/* Where there are more threads than processors, whoever is inside may have been put off in the middle; to poll on until
 * our own time is over helps nobody then. He is seen by this: nothing has moved since we looked last. */
static void let_holder_on(void)
{
	static __thread __attribute__((tls_model("initial-exec"))) uint32_t polls, visits;

	if (++polls % HOLDER_POLLS)
		return;
	if (visits == __atomic_load_n(&smx_engine.visits, __ATOMIC_RELAXED) &&
	    (__atomic_load_n(&smx_engine.word, __ATOMIC_RELAXED) & HELD))
		sched_yield();
	visits = __atomic_load_n(&smx_engine.visits, __ATOMIC_RELAXED);
}

bool smx_engine_poll(void)
{
	struct smx_dev_arrivals before, after;
	uint32_t fruitless;
	bool turned;
	uint64_t due_ns = __atomic_load_n(&smx_engine.due_ns, __ATOMIC_RELAXED);

	let_holder_on();
	if (!__atomic_load_n(&smx_engine.watched, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&smx_engine.linked, __ATOMIC_RELAXED)) {
		if (due_ns == UINT64_MAX || (due_ns && smx_clock_ns() < due_ns))
			return false;
	}
	if (!try_enter())
		return false;	/* whoever is inside turns it */
	count_visit();
	fruitless = ++smx_engine.fruitless;
	turned = smx_engine.watched || __atomic_load_n(&smx_engine.rings, __ATOMIC_RELAXED) ||
		 smx_dev_has_news(smx_engine.dev) || is_due(due_ns);
	if (turned) {
		before = smx_dev_arrivals(smx_engine.dev);
		smx_engine_turn();
		after = smx_dev_arrivals(smx_engine.dev);
		if (before.requests != after.requests || before.answers != after.answers)
			smx_engine.fruitless = 0;
	}
	leave();
	if (fruitless > FRUITLESS_POLLS && fruitless % FRUITLESS_AGAIN == 0 && smx_engine.linked)
		sched_yield();
	return turned;
}

static void watch_one_more(void)
{
	__atomic_store_n(&smx_engine.watched, smx_engine.watched + 1, __ATOMIC_RELAXED);
	smx_dev_poll_watched(smx_engine.dev);
	smx_engine.watch_found = true;
	set_due(0);	/* the thread looks from now on */
}

void smx_engine_watch_qp(struct smx_qp *qp)
{
	smx_engine_enter();
	smx_dev_watch_qp(smx_engine.dev, qp, true);
	watch_one_more();
	smx_engine_unlock();
}

void smx_engine_watch_cq(struct smx_cq *cq)
{
	smx_engine_enter();
	smx_dev_watch_cq(smx_engine.dev, cq, true);
	watch_one_more();
	smx_engine_unlock();
}

void smx_engine_watch_end(void)
{
	smx_engine_enter();
	__atomic_store_n(&smx_engine.watched, smx_engine.watched - 1, __ATOMIC_RELAXED);
	if (!smx_engine.watched)
		set_due(0);	/* the thread sleeps otherwise from now on */
	smx_engine_unlock();
}

void smx_engine_uar_given(struct smx_uar_page *page)
{
	if (__atomic_load_n(&page->listed, __ATOMIC_RELAXED))
		return;
	smx_engine_enter();
	smx_uar_page_add(page);
	if (smx_engine.watched)
		set_due(0);	/* pages that are protected now are those of before */
	smx_engine_unlock();
}

void smx_engine_uar_gone(struct smx_uar_page *page)
{
	smx_engine_enter();
	smx_uar_page_remove(page);
	smx_engine_unlock();
}

/* ---- creation, end, fork ---- */

static uint64_t env_now(void *arg)
{
	struct smx_visitor *v = smx_visitor_mine;

	(void)arg;
	return smx_fast_clock_ns(v && v->inside ? &v->clock : &smx_engine.clock);
}

static void env_async_event(enum ibv_event_type type, void *cookie, void *arg)
{
	(void)arg;
	smx_event_async(type, cookie);
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&smx_engine.life);
	smx_engine_enter();
	smx_uar_pages_fork_prepare();
	smx_share_fork_prepare();
}

static void fork_parent(void)
{
	smx_share_fork_parent();
	smx_uar_pages_fork_parent();
	leave();
	pthread_mutex_unlock(&smx_engine.life);
}

/* The child has a copy of the device and of all that its queues hold, and one thread: this one. */
static void fork_child(void)
{
	smx_share_fork_child();
	__atomic_store_n(&smx_engine.word, 0, __ATOMIC_RELAXED);
	smx_visitors_fork_child();
	smx_engine.has_thread = false;
	smx_engine.stop = false;
	smx_engine.deaf = false;
	smx_engine.thread_until_ns = UINT64_MAX;
	smx_uar_pages_fork_child();
	refusals.lock = 0;
	smx_engine.wake = &smx_engine.wake_seq;
	smx_engine.linked = false;
	if (smx_engine.dev)
		smx_dev_forked(smx_engine.dev);
	smx_regions_forked();
	smx_event_queues_fork_child();
	pthread_mutex_init(&smx_engine.life, NULL);
	/* Work that the parent's thread was to do is now ours. */
	if (smx_engine.dev && smx_engine.due_ns != UINT64_MAX)
		smx_engine.due_ns = 0;
}

static void register_fork(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static int create(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const char *host = smx_setting_text(SMX_SET_HOST);
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
		.direct = strcmp(host, "copy"),
		.key_seed = (uint32_t)(smx_clock_ns() ^ (uint64_t)getpid()),
	};
	int err;

	pthread_once(&once, register_fork);
	smx_guard_install();
	err = smx_dev_create(&attr, &smx_engine.dev);
	if (err)
		return err;
	for (uint32_t i = 0; i < smx_gid_count(); i++)
		smx_dev_set_gid(smx_engine.dev, (uint8_t)i, smx_gid_at(i)->gid.raw);
	if (strcmp(host, "off"))
		err = smx_dev_open_host(smx_engine.dev, !strcmp(host, "copy"));
	if (err) {
		smx_dev_destroy(smx_engine.dev);
		smx_engine.dev = NULL;
		return err;
	}
	smx_engine.host_changes = smx_dev_host_changes(smx_engine.dev);
	smx_engine.host_seen = *smx_engine.host_changes;
	return 0;
}

int smx_engine_get(void)
{
	int err = 0;

	pthread_mutex_lock(&smx_engine.life);
	if (!smx_engine.users)
		err = create();
	if (!err)
		smx_engine.users++;
	pthread_mutex_unlock(&smx_engine.life);
	return err;
}

void smx_engine_put(void)
{
	pthread_mutex_lock(&smx_engine.life);
	if (!--smx_engine.users) {
		smx_engine_thread_end();
		smx_engine_enter();
		smx_dev_destroy(smx_engine.dev);
		smx_share_end(0);
		smx_regions_forked();	/* nor is anything shared that outlives it */
		smx_engine.dev = NULL;
		smx_engine.due_ns = UINT64_MAX;
		smx_engine.thread_until_ns = UINT64_MAX;
		smx_engine.watched = 0;
		smx_engine.wake = &smx_engine.wake_seq;
		smx_engine.linked = false;
		leave();
	}
	pthread_mutex_unlock(&smx_engine.life);
}

/* A program that ends without closing its device leaves the host's registry all the same. Its other threads may
 * still run, and what is finished after this library may still call: for them the device works on, alone. */
static __attribute__((destructor)) void leave_host(void)
{
	for (int tries = 0; !try_enter(); tries++) {
		/* Whoever is inside may be the thread that ends the process, or be stopped. */
		if (tries == EXIT_TRIES)
			return;
		usleep(1000);
	}
	if (smx_engine.dev) {
		smx_dev_leave_host(smx_engine.dev);
		follow_host();
	}
	leave();
}
