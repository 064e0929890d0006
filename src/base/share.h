/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory of this process that other processes may map.
 *
 * Private pages under a region are moved, in place, into one memfd of the process whose offsets are the
 * addresses themselves: what is shared at address A is at offset A. A peer opens it as /proc/PID/fd/FD.
 * Pages keep their address and contents; nothing is shared that smx_share() did not say is.
 *
 * Moving a page is a copy, and a store of another thread in between would be lost: it is done only while the
 * program has no second thread. Giving pages back loses nothing, whoever stores meanwhile. What is mapped where is
 * asked from the kernel each time: a program unmaps, moves and maps anew as it likes.
 *
 * Where a child is made without the handlers of fork() (_Fork(), clone()) it shares these pages with its parent.
 *
 * Calls come one at a time; device_threads is the number of threads of this process that are not the program's, and
 * that are held off meanwhile. */
#ifndef SMX_SHARE_H
#define SMX_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* Addresses of a program are below. */
#ifdef __x86_64__
#define SMX_SHARE_BYTES (UINT64_C(1) << 47)
#else
#define SMX_SHARE_BYTES (UINT64_C(1) << 48)
#endif

/* The memfd, made when first asked for; -1: this system has none. Another one after smx_share_end() and in a child. */
int smx_share_fd(void);

/* One more user of the pages under [addr, addr + length). RETURN whether all of them are shared from now on; if not,
 * there is no user more, and what was private is. */
bool smx_share(const void *addr, uint64_t length, unsigned int device_threads);
/* One user less, of a range that smx_share() shared. Pages without a user become private again. Pages that the
 * program unmapped before are gone only now. */
void smx_unshare(const void *addr, uint64_t length, unsigned int device_threads);
/* All pages become private at once, whoever uses them, and the memfd is dropped. What peers store into it from now
 * on is not seen. RETURN false when there was none. */
bool smx_share_end(unsigned int device_threads);
/* The same, and nothing is shared again before the next smx_share_end(). */
void smx_share_stop(unsigned int device_threads);

/* Around fork(): the child gets copies of its own, and the parent goes on once it has them. Stores of the parent's
 * other threads in between may be seen by the child. */
void smx_share_fork_prepare(void);
void smx_share_fork_parent(void);
void smx_share_fork_child(void);

#endif
