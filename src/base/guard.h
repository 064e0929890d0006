/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies that survive bad pointers.
 *
 * A program can unmap memory that lies under a registered region. Real hardware would report a bus
 * fault in the completion; a plain memcpy() would kill the process. These copies run under a guard:
 * a SIGSEGV or SIGBUS that strikes inside one makes it return the faulting address instead. Signals
 * that strike anywhere else go to whatever handler the program had. */
#ifndef SMX_GUARD_H
#define SMX_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For functions that touch a program's memory on the device's behalf. A sanitizer judges what a program
 * does; a device that reads freed memory under a region is no act of the program's. */
#if defined(__clang__) && __has_attribute(disable_sanitizer_instrumentation)
/* The second is for atomics, which no_sanitize leaves to ThreadSanitizer. */
#define SMX_UNJUDGED __attribute__((no_sanitize("address", "thread"), disable_sanitizer_instrumentation))
#else
#define SMX_UNJUDGED __attribute__((no_sanitize("address", "thread")))
#endif

/* libc's own, for such functions: a program built with a sanitizer puts its own before them. */
struct smx_libc {
	void *(*move)(void *dst, const void *src, size_t n);
	void *(*set)(void *dst, int byte, size_t n);
};
extern struct smx_libc smx_libc __attribute__((visibility("hidden")));

/* Puts our handler on top of the program's for SIGSEGV and SIGBUS, remembering theirs for faults that
 * are not ours. Cheap to call again: it does nothing while ours is still on top, and goes back on
 * top where the program has since installed its own. Any thread. */
void smx_guard_install(void);

/* Copies n bytes; the runs may not overlap unless equal. RETURN true when all n bytes were copied.
 * On false, *fault is the address that could not be touched and any prefix of dst may be written. The
 * last bytes are stored last, and 1, 2, 4 or 8 bytes in one store, so programs may poll on them. */
bool smx_guard_copy(void *dst, const void *src, size_t n, const void **fault);

/* Runs fn(arg) under the guard, for accesses that are not a plain copy (atomics, strided loops). fn
 * must hold no lock and allocate nothing: on a fault it is left in the middle. (Under ThreadSanitizer an
 * atomic read-modify-write holds a lock of the sanitizer's, unless the function is SMX_UNJUDGED.) */
bool smx_guard_call(void (*fn)(void *arg), void *arg, const void **fault);

#endif
