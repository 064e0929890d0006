/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory of this process that other processes may map.
 *
 * Private pages under a region are moved, in place, into one memfd of the process whose offsets are the
 * addresses themselves: what is shared at address A is at offset A. A peer opens it as /proc/PID/fd/FD.
 * Pages keep their address and contents; nothing is shared that smx_share() did not say is.
 *
 * Moving a page is a copy, and a store of another thread in between would be lost: it is done only while the
 * program has no second thread. Giving pages back (copy on write, then the file's copy is dropped) loses nothing
 * whoever stores meanwhile. */
#ifndef SMX_SHARE_H
#define SMX_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* The memfd, made when first asked for; -1: this system has none. */
int smx_share_fd(void);

/* One more user of the pages under [addr, addr + length). RETURN whether all of them are shared from now on; if not,
 * nothing was changed. device_threads: threads of this process that are not the program's, and are held. */
bool smx_share(const void *addr, uint64_t length, unsigned int device_threads);
/* One user less, of a range that smx_share() shared. Pages without a user become private again. */
void smx_unshare(const void *addr, uint64_t length);
/* All pages become private at once, whoever uses them. RETURN false when there were none. */
bool smx_share_end(void);

/* Around fork(): the child gets copies of its own, and the parent goes on once it has them. */
void smx_share_fork_prepare(void);
void smx_share_fork_parent(void);
void smx_share_fork_child(void);

#endif
