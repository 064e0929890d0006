/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	SLACK_NS = 1000,
	SLICE_NS = 100000,	/* the least that may be asked for */
};

/* struct sched_attr of the kernel, which the C library does not know. */
struct sched_request {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

/* Where programs spin on every processor, a thread that wakes waits until their slices end, unless its own are
 * shorter. Kernels before 6.12 take no notice. */
static void ask_short_slices(void)
{
	struct sched_request r = { .size = sizeof(r) };

	if (syscall(SYS_sched_getattr, 0, &r, sizeof(r), 0) || r.policy != SCHED_OTHER)
		return;
	r.runtime_ns = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &r, 0);
}

void smx_thread_begin(const char *name)
{
	int saved_errno = errno;

	prctl(PR_SET_NAME, name);
	prctl(PR_SET_TIMERSLACK, SLACK_NS);
	ask_short_slices();
	errno = saved_errno;
}
