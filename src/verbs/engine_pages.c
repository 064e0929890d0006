/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* UAR pages: their list, their registers, and userfaultfd.
 *
 * The list changes inside the device and under the lock here. The thread that opens pages takes only that
 * lock, which nobody holds who may be stopped by a page. */
#include "verbs/engine_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "base/thread.h"

/* Programs store to registers as they like, which ThreadSanitizer is not to judge. */
#ifdef __has_attribute
#if __has_attribute(disable_sanitizer_instrumentation)
#define UNSANITIZED __attribute__((noinline, disable_sanitizer_instrumentation))
#endif
#endif
#ifndef UNSANITIZED
#define UNSANITIZED __attribute__((noinline, no_sanitize("thread")))
#endif

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

enum {
	/* Registers of a page: arming of completion queues, and BlueFlame from 0x800 on. */
	REG_CQ = 0x20,
	REG_BF = 0x800,
	REG_END = 0x1000,
	REG_BF_BYTES = 0x100,
};

static struct {
	pthread_mutex_t lock;
	struct smx_uar_page *list;
	int uffd, stop_fd;
	bool refused; /* by the system or the setting: nothing is ever protected */
	bool protected, stored; /* written under the lock, read by anyone */
	void (*on_store)(void);
	pthread_t opener;
} pages = { .lock = PTHREAD_MUTEX_INITIALIZER, .uffd = -1, .stop_fd = -1 };

int smx_uar_page_map(struct smx_uar_page *page, size_t count, bool present)
{
	void *base;

	*page = (struct smx_uar_page){ .bytes = count * (size_t)sysconf(_SC_PAGESIZE) };
	base = mmap(NULL, page->bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | (present ? MAP_POPULATE : 0), -1, 0);
	if (base == MAP_FAILED)
		return errno;
	page->base = base;
	return 0;
}

void smx_uar_page_unmap(struct smx_uar_page *page)
{
	if (page->base)
		munmap(page->base, page->bytes);
	page->base = NULL;
}

static struct uffdio_range range_of(const struct smx_uar_page *page)
{
	return (struct uffdio_range){ .start = (uintptr_t)page->base, .len = page->bytes };
}

static int write_protect(struct smx_uar_page *page, bool on)
{
	struct uffdio_writeprotect wp = {
		.range = range_of(page),
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};
	int rc;

	do
		rc = ioctl(pages.uffd, UFFDIO_WRITEPROTECT, &wp);
	while (rc && (errno == EAGAIN || errno == EINTR));
	return rc;
}

/* Messages about stopped threads are never read: unprotecting wakes their threads and takes the messages
 * back. Under the lock. */
static void unprotect_all(void)
{
	for (struct smx_uar_page *page = pages.list; page; page = page->next) {
		if (page->registered)
			write_protect(page, false);
	}
	__atomic_store_n(&pages.protected, false, __ATOMIC_RELAXED);
}

void smx_uar_page_add(struct smx_uar_page *page)
{
	if (page->listed)
		return;
	pthread_mutex_lock(&pages.lock);
	__atomic_store_n(&page->listed, true, __ATOMIC_RELAXED);
	page->next = pages.list;
	pages.list = page;
	if (pages.protected)	/* it is not: all or none */
		unprotect_all();
	pthread_mutex_unlock(&pages.lock);
}

static void unregister(struct smx_uar_page *page)
{
	struct uffdio_range range = range_of(page);

	if (page->registered)
		ioctl(pages.uffd, UFFDIO_UNREGISTER, &range);
	page->registered = false;
}

void smx_uar_page_remove(struct smx_uar_page *page)
{
	struct smx_uar_page **at = &pages.list;

	if (!page->listed)
		return;
	pthread_mutex_lock(&pages.lock);
	while (*at != page)
		at = &(*at)->next;
	*at = page->next;
	__atomic_store_n(&page->listed, false, __ATOMIC_RELAXED);
	unregister(page);
	pthread_mutex_unlock(&pages.lock);
}

bool smx_uar_pages_touch(const void *addr, size_t length)
{
	uintptr_t from = (uintptr_t)addr;
	bool touch = false;

	pthread_mutex_lock(&pages.lock);
	for (const struct smx_uar_page *page = pages.list; page && !touch; page = page->next) {
		uintptr_t base = (uintptr_t)page->base;

		touch = from < base + page->bytes && (base <= from || base - from < length);
	}
	pthread_mutex_unlock(&pages.lock);
	return touch;
}

/* ---- registers ---- */

/* What a program stores is never 0: it names a queue. */
UNSANITIZED static bool take(uint8_t *reg)
{
	uint64_t *word = (uint64_t *)(void *)reg;

	if (!__atomic_load_n(word, __ATOMIC_RELAXED))
		return false;
	__atomic_exchange_n(word, 0, __ATOMIC_ACQ_REL);
	return true;
}

bool smx_uar_pages_rung(void)
{
	bool rung = false;

	for (const struct smx_uar_page *page = pages.list; page; page = page->next) {
		rung |= take(page->base + REG_CQ);
		for (unsigned int at = REG_BF; at < REG_END; at += REG_BF_BYTES)
			rung |= take(page->base + at);
	}
	return rung;
}

/* ---- userfaultfd ---- */

static int open_uffd(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	int err;

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		err = errno;
		close(fd);
		errno = err;
		fd = -1;
	}
	return fd;
}

static void refuse(const char *what)
{
	smx_log(SMX_LOG_INFO,
		"doorbells that the program rings itself are looked for every millisecond:"
		" %s: %s",
		what, strerror(errno));
	pages.refused = true;
}

/* The opener: what it does must not need the device. */
static void *open_for_stores(void *arg)
{
	struct pollfd fds[2] = {
		{ .fd = pages.uffd, .events = POLLIN },
		{ .fd = pages.stop_fd, .events = POLLIN },
	};

	(void)arg;
	smx_thread_begin("softmlx5-uar");
	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		pthread_mutex_lock(&pages.lock);
		unprotect_all();
		__atomic_store_n(&pages.stored, true, __ATOMIC_SEQ_CST);
		pthread_mutex_unlock(&pages.lock);
		pages.on_store();
		if (fds[0].revents != POLLIN || fds[1].revents)	/* the end; or the program closed them */
			return NULL;
	}
}

static void close_fds(void)
{
	if (pages.uffd >= 0)
		close(pages.uffd);
	if (pages.stop_fd >= 0)
		close(pages.stop_fd);
	pages.uffd = -1;
	pages.stop_fd = -1;
}

/* RETURN what could not be had, with errno, or NULL. */
static const char *start_opener(void)
{
	int err;

	pages.uffd = open_uffd();
	if (pages.uffd < 0)
		return "userfaultfd";
	pages.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pages.stop_fd < 0)
		return "eventfd";
	err = pthread_create(&pages.opener, NULL, open_for_stores, NULL);
	errno = err;
	return err ? "a thread" : NULL;
}

bool smx_uar_pages_open(void (*on_store)(void))
{
	const char *missing;

	if (pages.uffd >= 0)
		return true;
	if (pages.refused || !strcmp(smx_setting_text(SMX_SET_DOORBELLS), "poll"))
		return false;
	pages.on_store = on_store;
	missing = start_opener();
	if (!missing)
		return true;
	refuse(missing);
	close_fds();
	return false;
}

bool smx_uar_pages_are_open(void)
{
	return pages.uffd >= 0;
}

void smx_uar_pages_close(void)
{
	const uint64_t one = 1;

	if (pages.uffd < 0)
		return;
	pthread_mutex_lock(&pages.lock);
	unprotect_all();
	for (struct smx_uar_page *page = pages.list; page; page = page->next)
		unregister(page);
	pthread_mutex_unlock(&pages.lock);
	if (write(pages.stop_fd, &one, sizeof(one)) == sizeof(one))
		pthread_join(pages.opener, NULL);
	else	/* the program closed it */
		pthread_detach(pages.opener);
	pthread_mutex_lock(&pages.lock);
	close_fds();
	pthread_mutex_unlock(&pages.lock);
}

static int protect(struct smx_uar_page *page)
{
	struct uffdio_register reg = { .range = range_of(page), .mode = UFFDIO_REGISTER_MODE_WP };

	if (!page->registered) {
		if (ioctl(pages.uffd, UFFDIO_REGISTER, &reg))
			return -1;
		page->registered = true;
		if (!(reg.ioctls & (uint64_t)1 << _UFFDIO_WRITEPROTECT)) {
			errno = EOPNOTSUPP;
			return -1;
		}
	}
	return write_protect(page, true);
}

bool smx_uar_pages_protect(bool *fresh)
{
	bool ok = true;

	*fresh = !smx_uar_pages_are_protected();
	if (!*fresh)
		return true;
	pthread_mutex_lock(&pages.lock);
	__atomic_store_n(&pages.protected, true, __ATOMIC_RELAXED);
	for (struct smx_uar_page *page = pages.list; page && ok; page = page->next)
		ok = !protect(page);
	if (!ok) {
		refuse("write-protecting");
		unprotect_all();
	}
	pthread_mutex_unlock(&pages.lock);
	if (!ok)
		smx_uar_pages_close();
	return ok;
}

void smx_uar_pages_unprotect(void)
{
	if (!smx_uar_pages_are_protected())
		return;
	pthread_mutex_lock(&pages.lock);
	unprotect_all();
	pthread_mutex_unlock(&pages.lock);
}

bool smx_uar_pages_are_protected(void)
{
	return __atomic_load_n(&pages.protected, __ATOMIC_RELAXED);
}

bool smx_uar_pages_take_stored(void)
{
	return __atomic_load_n(&pages.stored, __ATOMIC_SEQ_CST) &&
	       __atomic_exchange_n(&pages.stored, false, __ATOMIC_SEQ_CST);
}

/* ---- fork ---- */

void smx_uar_pages_fork_prepare(void)
{
	pthread_mutex_lock(&pages.lock);
}

void smx_uar_pages_fork_parent(void)
{
	pthread_mutex_unlock(&pages.lock);
}

void smx_uar_pages_fork_child(void)
{
	pthread_mutex_init(&pages.lock, NULL);
	for (struct smx_uar_page *page = pages.list; page; page = page->next)
		page->registered = false;
	pages.protected = false;
	pages.stored = false;
	close_fds();
}
