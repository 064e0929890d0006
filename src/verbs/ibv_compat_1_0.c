/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The interface of libibverbs 1.0, of 2006, whose structures differ from today's. The names exist,
 * so that a program that mentions them loads; calling one is refused. */
#include "verbs/objects.h"

#define KEEP __attribute__((used, visibility("default")))

int compat_refuse(void);
void *compat_null(void);

KEEP int compat_refuse(void)
{
	return smx_not_offered("the interface of libibverbs 1.0 (a symbol of version IBVERBS_1.0)");
}

/* For those that return a pointer, or nothing. */
KEEP void *compat_null(void)
{
	compat_refuse();
	return NULL;
}

#define SMX_COMPAT(target, name) \
	__asm__(".globl compat_" #name "\n" \
		".set compat_" #name ", " #target "\n" \
		".symver compat_" #name ", " #name "@IBVERBS_1.0\n");
#include "verbs/ibv_compat_1_0.def"
