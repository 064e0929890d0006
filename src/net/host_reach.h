/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Being in another process's memory, and waiting until nobody is in ours.
 *
 * Who reaches says so in its slot before it reads the owner's tables, and takes it back when it is done. An owner
 * that has taken an entry back waits for those who said so before. It does not wait for the dead, and for one that
 * was stopped in the middle not long: then all memory stops being shared, so that what it still stores is stored
 * where nobody looks. */
#ifndef SMX_HOST_REACH_H
#define SMX_HOST_REACH_H

#include "base/host_registry.h"

/* Which slots there are to look at. */
struct smx_host_watch {
	uint32_t epoch, end;
	bool known;
};

static inline void smx_host_enter(struct smx_host *h, uint32_t slot)
{
	__atomic_store_n(&h->file->slot[h->slot].busy, slot + 1, __ATOMIC_SEQ_CST);
}

static inline void smx_host_exit(struct smx_host *h)
{
	__atomic_store_n(&h->file->slot[h->slot].busy, 0, __ATOMIC_RELEASE);
}

/* What was taken back before this is used by nobody when it returns. RETURN SMX_HOST_SLOTS, or the slot of one
 * that is stuck in our memory. */
uint32_t smx_host_await_idle(struct smx_host *h, struct smx_host_watch *watch);

#endif
