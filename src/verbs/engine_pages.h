/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* UAR pages that programs store to themselves (DESIGN D5).
 *
 * Such a page is ordinary memory. While the device is awake it looks whether a register was written.
 * When it goes to sleep the pages are write-protected by userfaultfd: the next store stops its thread
 * until a small thread of ours has taken the protection off and woken the device. Whoever stores may
 * therefore hold any lock. The driver's own queues ring by a page of their own, which nothing watches. */
#ifndef SMX_ENGINE_PAGES_H
#define SMX_ENGINE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct smx_uar_page {
	uint8_t *base;
	size_t bytes;
	struct smx_uar_page *next;
	bool listed; /* programs have it, the device looks at it */
	bool registered; /* with userfaultfd */
};

/* Memory of whole pages, zeroed; those on the list have to be present. RETURN 0 or an errno. */
int smx_uar_page_map(struct smx_uar_page *page, size_t count, bool present);
void smx_uar_page_unmap(struct smx_uar_page *page);

/* Inside the device. Each does nothing when the page is, or is not, on the list already. */
void smx_uar_page_add(struct smx_uar_page *page);
void smx_uar_page_remove(struct smx_uar_page *page);
/* Does the memory hold part of a page on the list? A program may have registered one, for requests that ring. */
bool smx_uar_pages_touch(const void *addr, size_t length);

/* Inside: was a register of any page stored to since the last call? */
bool smx_uar_pages_rung(void);

/* For the device's thread alone. RETURN whether pages can be protected; asks the system once. From then on
 * until smx_uar_pages_close() another thread waits for stores, and calls on_store, without any lock. */
bool smx_uar_pages_open(void (*on_store)(void));
/* RETURN whether it has: there is one more thread then. */
bool smx_uar_pages_are_open(void);
void smx_uar_pages_close(void);

/* Inside, on the device's thread. RETURN false when the system refuses; nothing is protected then, nor
 * will be. *fresh: they were not protected already. */
bool smx_uar_pages_protect(bool *fresh);
void smx_uar_pages_unprotect(void);
bool smx_uar_pages_are_protected(void);	/* a store ends it at any time */
/* RETURN whether a store was stopped, and let go on, since the last call. It may not have happened yet. */
bool smx_uar_pages_take_stored(void);

/* Around fork(), inside. The child has copies of the pages; its parent's descriptors must not be
 * used there: they act on the parent's memory. */
void smx_uar_pages_fork_prepare(void);
void smx_uar_pages_fork_parent(void);
void smx_uar_pages_fork_child(void);

#endif
