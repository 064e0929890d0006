/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: a guarded copy copies every byte or names the address that could not be touched, at every length
 * and at each edge of what is mapped; faults that are not the guard's reach the program's handler, or kill
 * the process as if there were no guard.
 * Method: pages with an unmapped one on each side; children for what ends a process. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/guard.h"

enum { PAGE = 4096, MIDDLE = 4 * PAGE };

/* RETURN the first byte of MIDDLE bytes with an unmapped page before and behind. */
static uint8_t *island(int prot)
{
	uint8_t *p = mmap(NULL, MIDDLE + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(mprotect(p + PAGE, MIDDLE, prot), 0);
	return p + PAGE;
}

/* cmocka puts its own handlers on top before each test. */
static void start(void **state)
{
	(void)state;
	smx_guard_install();
	smx_guard_install();
}

static void drop(uint8_t *p)
{
	munmap(p - PAGE, MIDDLE + 2 * PAGE);
}

static const size_t lengths[] = { 0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 79, 80, 95,
				  127, 128, 129, 255, 256, 257, 320, 511, 512, 513, 577, 1000, 4096, 4097, 9999 };

static void copies_exactly_the_bytes_of_every_length(void **state)
{
	uint8_t *src = island(PROT_READ | PROT_WRITE), *dst = island(PROT_READ | PROT_WRITE);
	const void *fault = NULL;

	start(state);
	for (int i = 0; i < MIDDLE; i++)
		src[i] = (uint8_t)(i * 7 + i / 256 + 1);
	for (size_t k = 0; k < SMX_COUNT(lengths); k++) {
		for (size_t at = 0; at < 19; at += 3) {
			size_t n = lengths[k];

			memset(dst, 0xee, MIDDLE);
			assert_true(smx_guard_copy(dst + 32 + at, src + 5, n, &fault));
			assert_memory_equal(dst + 32 + at, src + 5, n);
			assert_int_equal(dst[31 + at], 0xee);
			assert_int_equal(dst[32 + at + n], 0xee);
			/* Up to the last mapped byte on both sides. */
			assert_true(smx_guard_copy(dst + MIDDLE - n, src + MIDDLE - n, n, &fault));
			assert_memory_equal(dst + MIDDLE - n, src + MIDDLE - n, n);
		}
	}
	assert_null(fault);
	drop(src);
	drop(dst);
}

/* Longer than any copy that is not libc's. */
static void long_copies_are_whole_and_fail_whole(void **state)
{
	enum { LONG = 1 << 20 };
	uint8_t *src = mmap(NULL, LONG + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *dst = malloc(LONG);
	const void *fault = NULL;

	start(state);
	assert_ptr_not_equal(src, MAP_FAILED);
	assert_non_null(dst);
	for (size_t i = 0; i < LONG; i++)
		src[i] = (uint8_t)(i * 7 + (i >> 8));
	assert_int_equal(munmap(src + LONG, PAGE), 0);
	for (size_t n = 200000; n <= LONG; n += 70001) {
		memset(dst, 0xee, LONG);
		assert_true(smx_guard_copy(dst + 3, src + 8, n - 8, &fault));
		assert_memory_equal(dst + 3, src + 8, n - 8);
		assert_int_equal(dst[2], 0xee);
		assert_false(smx_guard_copy(dst, src + LONG - n + 1, n, &fault));
		assert_ptr_equal(fault, src + LONG);
	}
	munmap(src, LONG);
	free(dst);
}

static void names_the_address_at_each_edge(void **state)
{
	uint8_t *good = island(PROT_READ | PROT_WRITE), *edge = island(PROT_READ | PROT_WRITE);
	uint8_t *read_only = island(PROT_READ);
	const void *fault;

	start(state);
	for (size_t k = 1; k < SMX_COUNT(lengths); k++) {
		size_t n = lengths[k];

		fault = NULL;
		assert_false(smx_guard_copy(good, edge + MIDDLE - n + 1, n, &fault));
		assert_in_range((uintptr_t)fault, (uintptr_t)edge + MIDDLE, (uintptr_t)edge + MIDDLE + n);
		fault = NULL;
		assert_false(smx_guard_copy(edge + MIDDLE - n + 1, good, n, &fault));
		assert_in_range((uintptr_t)fault, (uintptr_t)edge + MIDDLE, (uintptr_t)edge + MIDDLE + n);
		fault = NULL;
		assert_false(smx_guard_copy(good, edge - 1, n, &fault));
		assert_in_range((uintptr_t)fault, (uintptr_t)edge - 1, (uintptr_t)edge - 1 + n);
		fault = NULL;
		assert_false(smx_guard_copy(read_only, good, n, &fault));
		assert_in_range((uintptr_t)fault, (uintptr_t)read_only, (uintptr_t)read_only + n);
	}
	drop(good);
	drop(edge);
	drop(read_only);
}

/* The vectors of the processor at hand; what one without them does is run too. */
extern bool smx_guard_wide __attribute__((weak));

static void narrow_vectors_copy_the_same(void **state)
{
	bool was;

	if (!&smx_guard_wide || !smx_guard_wide) {
		skip();
		return;
	}
	was = smx_guard_wide;
	smx_guard_wide = false;
	copies_exactly_the_bytes_of_every_length(state);
	names_the_address_at_each_edge(state);
	smx_guard_wide = was;
}

static void a_non_canonical_address_is_named_too(void **state)
{
#ifdef __x86_64__
	uint8_t buf[512] = { 0 };
	void *wild = (void *)0xdead000000000000ull;
	const void *fault = NULL;

	start(state);
	assert_false(smx_guard_copy(wild, buf, 8, &fault));
	assert_ptr_equal(fault, wild);
	assert_false(smx_guard_copy(buf, wild, sizeof(buf), &fault));
	assert_ptr_equal(fault, wild);
#else
	start(state);
	skip();
#endif
}

/* A file cut short under its mapping is SIGBUS, not SIGSEGV. */
static void a_truncated_mapping_is_a_failed_copy(void **state)
{
	FILE *f = tmpfile();
	uint8_t buf[8];
	const void *fault = NULL;
	uint8_t *p;

	start(state);
	assert_non_null(f);
	assert_int_equal(ftruncate(fileno(f), PAGE), 0);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(ftruncate(fileno(f), 0), 0);
	assert_false(smx_guard_copy(buf, p + 16, sizeof(buf), &fault));
	assert_ptr_equal(fault, p + 16);
	munmap(p, PAGE);
	fclose(f);
}

static void add_one(void *arg)
{
	++*(volatile uint64_t *)arg;
}

static void a_guarded_call_runs_or_reports(void **state)
{
	uint64_t word = 41;
	uint8_t *edge = island(PROT_READ);
	const void *fault = NULL;

	start(state);
	assert_true(smx_guard_call(add_one, &word, &fault));
	assert_int_equal(word, 42);
	assert_false(smx_guard_call(add_one, edge + 64, &fault));
	assert_ptr_equal(fault, edge + 64);
	drop(edge);
}

struct nested { uint8_t *edge; bool inner; };

static void fault_inside_and_then_outside(void *arg)
{
	struct nested *n = arg;
	const void *fault = NULL;
	uint8_t buf[8];

	n->inner = !smx_guard_copy(buf, n->edge + MIDDLE, 1000, &fault) && fault == n->edge + MIDDLE;
	n->inner &= !smx_guard_call(add_one, n->edge + MIDDLE + 8, &fault) && fault == n->edge + MIDDLE + 8;
	add_one(n->edge + MIDDLE + 16);
}

static void guards_nest(void **state)
{
	struct nested n = { .edge = island(PROT_READ) };
	const void *fault = NULL;

	start(state);
	assert_false(smx_guard_call(fault_inside_and_then_outside, &n, &fault));
	assert_true(n.inner);
	assert_ptr_equal(fault, n.edge + MIDDLE + 16);
	drop(n.edge);
}

static void *hammer(void *arg)
{
	uint8_t *edge = arg;
	uint8_t buf[512];
	const void *fault;
	uintptr_t bad = 0;

	for (int i = 0; i < 500; i++) {
		size_t n = (size_t)(i % 500) + 2;

		bad += smx_guard_copy(buf, edge + MIDDLE - 1, n, &fault) || fault != edge + MIDDLE;
		bad += !smx_guard_copy(buf, edge, n, &fault);
	}
	return (void *)bad;
}

static void threads_fault_at_the_same_time(void **state)
{
	uint8_t *edge = island(PROT_READ | PROT_WRITE);
	pthread_t threads[4];
	void *bad;

	start(state);
	for (size_t i = 0; i < SMX_COUNT(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hammer, edge), 0);
	for (size_t i = 0; i < SMX_COUNT(threads); i++) {
		assert_int_equal(pthread_join(threads[i], &bad), 0);
		assert_null(bad);
	}
	drop(edge);
}

/* What follows ends its process, so each runs in a child. */

static volatile int *volatile nowhere = (volatile int *)16;
static sigjmp_buf back;
static volatile int theirs_called, older_called;
static struct sigaction saved_ours;

static void leave_by_longjmp(int sig)
{
	(void)sig;
	theirs_called++;
	siglongjmp(back, 1);
}

static void older_exits(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	older_called++;
	_exit(info->si_addr == (void *)nowhere && theirs_called == 1 ? 17 : 18);
}

static void pass_to_saved(int sig, siginfo_t *info, void *context)
{
	theirs_called++;
	saved_ours.sa_sigaction(sig, info, context);
	_exit(19);
}

static void handle(int sig, void (*plain)(int), void (*full)(int, siginfo_t *, void *), int flags)
{
	struct sigaction sa = { .sa_flags = flags };

	if (full)
		sa.sa_sigaction = full;
	else
		sa.sa_handler = plain;
	sigaction(sig, &sa, &saved_ours);
}

static bool guard_still_works(void)
{
	uint8_t buf[8];
	const void *fault = NULL;

	return !smx_guard_copy(buf, (const void *)nowhere, 8, &fault) && fault == (const void *)nowhere;
}

static void die_of_fault(void)
{
	handle(SIGSEGV, SIG_DFL, NULL, 0);
	smx_guard_install();
	*nowhere = 1;
}

static void die_of_sent_signal(void)
{
	handle(SIGSEGV, SIG_DFL, NULL, 0);
	smx_guard_install();
	kill(getpid(), SIGSEGV);
	usleep(100000);
}

static void die_of_ignored_fault(void)
{
	handle(SIGBUS, SIG_IGN, NULL, 0);
	handle(SIGSEGV, SIG_IGN, NULL, 0);
	smx_guard_install();
	kill(getpid(), SIGSEGV);	/* ignored, as the program asked */
	*nowhere = 1;			/* not ignorable */
}

static void handler_before_ours(void)
{
	handle(SIGSEGV, leave_by_longjmp, NULL, 0);
	smx_guard_install();
	for (volatile int i = 0; i < 3; i++)
		if (!sigsetjmp(back, 1))
			*nowhere = 1;
	_exit(theirs_called == 3 && guard_still_works() ? 17 : 18);
}

static void handler_once(void)
{
	handle(SIGSEGV, leave_by_longjmp, NULL, SA_RESETHAND);
	smx_guard_install();
	if (!sigsetjmp(back, 1))
		*nowhere = 1;
	if (theirs_called != 1 || !guard_still_works())
		_exit(18);
	*nowhere = 1;
}

static void handler_over_ours(void)
{
	handle(SIGSEGV, leave_by_longjmp, NULL, 0);
	if (!sigsetjmp(back, 1))
		guard_still_works();
	if (theirs_called != 1)
		_exit(18);
	smx_guard_install();
	_exit(guard_still_works() && theirs_called == 1 ? 17 : 19);
}

/* The program's handler saved ours as "the one before" and calls it, while ours is over it again. */
static void handlers_that_chain_to_each_other(void)
{
	handle(SIGSEGV, NULL, older_exits, SA_SIGINFO);
	smx_guard_install();
	handle(SIGSEGV, NULL, pass_to_saved, SA_SIGINFO);
	smx_guard_install();
	*nowhere = 1;
}

static void the_same_handler_put_on_top_again(void)
{
	handle(SIGSEGV, NULL, older_exits, SA_SIGINFO);
	smx_guard_install();
	for (int i = 0; i < 3; i++) {
		handle(SIGSEGV, NULL, pass_to_saved, SA_SIGINFO);
		smx_guard_install();
	}
	*nowhere = 1;
}

static void exit_17(int sig)
{
	_exit(sig == SIGSEGV ? 17 : 18);
}

static void exit_19(int sig)
{
	(void)sig;
	_exit(19);
}

static void each_signal_has_its_own_handler(void)
{
	handle(SIGSEGV, exit_17, NULL, 0);
	handle(SIGBUS, exit_19, NULL, 0);
	smx_guard_install();
	*nowhere = 1;
}

static void use_the_guard(int sig)
{
	(void)sig;
	_exit(guard_still_works() ? 17 : 18);
}

static void a_handler_that_faults_under_the_guard_itself(void)
{
	handle(SIGSEGV, use_the_guard, NULL, SA_NODEFER);
	smx_guard_install();
	*nowhere = 1;
}

static void mask_during_handler(int sig)
{
	sigset_t now;

	sigprocmask(SIG_BLOCK, NULL, &now);
	_exit(sigismember(&now, sig) && sigismember(&now, SIGUSR1) ? 17 : 18);
}

static void handler_gets_its_mask(void)
{
	struct sigaction sa = { .sa_handler = mask_during_handler };

	sigaddset(&sa.sa_mask, SIGUSR1);
	sigaction(SIGSEGV, &sa, NULL);
	smx_guard_install();
	*nowhere = 1;
}

static void on_an_alternate_stack(void)
{
	static char stack[65536];
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };

	sigaltstack(&ss, NULL);
	for (int i = 0; i < 100; i++)
		if (!guard_still_works())
			_exit(18);
	_exit(17);
}

static void signal_sent_during_a_call(void *arg)
{
	(void)arg;
	kill(getpid(), SIGSEGV);
}

static void a_sent_signal_is_not_the_guards(void)
{
	const void *fault;

	handle(SIGSEGV, SIG_DFL, NULL, 0);
	smx_guard_install();
	smx_guard_call(signal_sent_during_a_call, NULL, &fault);
}

static const struct row {
	const char *name;
	void (*child)(void);
	int exit_code;	/* or 0 */
	int signal;
} rows[] = {
	{ "a fault without a handler kills by SIGSEGV", die_of_fault, 0, SIGSEGV },
	{ "a sent SIGSEGV without a handler kills", die_of_sent_signal, 0, SIGSEGV },
	{ "a sent SIGSEGV inside a guarded call kills", a_sent_signal_is_not_the_guards, 0, SIGSEGV },
	{ "an ignored SIGSEGV ignores only sent ones", die_of_ignored_fault, 0, SIGSEGV },
	{ "an earlier handler gets its faults, and may siglongjmp", handler_before_ours, 17, 0 },
	{ "SA_RESETHAND of an earlier handler is honoured", handler_once, 0, SIGSEGV },
	{ "install goes back on top of a later handler", handler_over_ours, 17, 0 },
	{ "two handlers that chain to each other reach the older one", handlers_that_chain_to_each_other, 17, 0 },
	{ "a handler that is put on top again counts once", the_same_handler_put_on_top_again, 17, 0 },
	{ "SIGSEGV and SIGBUS go to their own handlers", each_signal_has_its_own_handler, 17, 0 },
	{ "a handler may use the guard", a_handler_that_faults_under_the_guard_itself, 17, 0 },
	{ "an earlier handler runs with its own mask", handler_gets_its_mask, 17, 0 },
	{ "the guard works on an alternate signal stack", on_an_alternate_stack, 17, 0 },
};

static void ends_as_without_the_guard(void **state)
{
	start(state);
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			struct rlimit none = { 0, 0 };

			setrlimit(RLIMIT_CORE, &none);
			rows[i].child();
			_exit(99);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (rows[i].signal ? !WIFSIGNALED(status) || WTERMSIG(status) != rows[i].signal :
				     !WIFEXITED(status) || WEXITSTATUS(status) != rows[i].exit_code)
			fail_msg("%s: wait status 0x%x", rows[i].name, status);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_exactly_the_bytes_of_every_length),
		cmocka_unit_test(long_copies_are_whole_and_fail_whole),
		cmocka_unit_test(names_the_address_at_each_edge),
		cmocka_unit_test(narrow_vectors_copy_the_same),
		cmocka_unit_test(a_non_canonical_address_is_named_too),
		cmocka_unit_test(a_truncated_mapping_is_a_failed_copy),
		cmocka_unit_test(a_guarded_call_runs_or_reports),
		cmocka_unit_test(guards_nest),
		cmocka_unit_test(threads_fault_at_the_same_time),
		cmocka_unit_test(ends_as_without_the_guard),
	};

	return cmocka_run_group_tests_name("base/guard", tests, NULL, NULL);
}
