/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What our own threads have in common. */
#ifndef SMX_BASE_THREAD_H
#define SMX_BASE_THREAD_H

/* Called by a thread at its start: its name, and that it is short of work but wanted at once. */
void smx_thread_begin(const char *name);

/* In a loop that waits for another thread. */
static inline void smx_cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

#endif
