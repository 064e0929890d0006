/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* UAR pages that programs store to themselves (DESIGN D5).
 *
 * Such a page is ordinary memory. While the device is awake it looks whether a register was written.
 * When it goes to sleep the pages are write-protected by userfaultfd: the next store stops its
 * thread until the device's thread has taken the protection off, and so wakes the device. The
 * driver's own queues ring by a page of their own, which nothing watches. */
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

/* Memory of whole pages, zeroed and present. RETURN 0 or an errno. */
int smx_uar_page_map(struct smx_uar_page *page);
void smx_uar_page_unmap(struct smx_uar_page *page);

/* Inside the device. Each does nothing when the page is, or is not, on the list already. */
void smx_uar_page_add(struct smx_uar_page *page);
void smx_uar_page_remove(struct smx_uar_page *page);

/* Inside, while nothing is protected: was a register of any page stored to since the last call? */
bool smx_uar_pages_rung(void);

/* What follows is for the device's thread alone; all but open and close without the device's lock:
 * who holds that may be stopped by a protected page until the thread unprotects it. */

/* RETURN whether pages can be protected. Asks the system once. */
bool smx_uar_pages_open(void);
void smx_uar_pages_close(void);
/* RETURN false when the system refuses; nothing is protected then, nor will be. */
bool smx_uar_pages_protect(void);
/* Lets stores go on that were stopped. */
void smx_uar_pages_unprotect(void);

/* Sleeps until a thread was stopped by a page (STORED), smx_uar_pages_wake() or ns nanoseconds. */
enum smx_uar_wait { SMX_UAR_TIMEOUT, SMX_UAR_STORED, SMX_UAR_WOKEN };
enum smx_uar_wait smx_uar_pages_wait(uint64_t ns);
/* From any thread, inside. */
void smx_uar_pages_wake(void);

/* Around fork(), inside. The child has copies of the pages; its parent's descriptors must not be
 * used there: they act on the parent's memory. */
void smx_uar_pages_fork_prepare(void);
void smx_uar_pages_fork_parent(void);
void smx_uar_pages_fork_child(void);

#endif
