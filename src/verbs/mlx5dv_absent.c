/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The functions of libmlx5.so.1 that are not offered, one for each row of mlx5dv_absent.def.
 *
 * Their arguments are not looked at, so none are declared, and mlx5dv.h is not included:
 * callers pass them in registers or on a stack that is their own to clean. */
#include <errno.h>
#include <stddef.h>

int smx_not_offered(const char *function);

#define SMX_ABSENT_ERRNO(name) \
	int name(void); \
	int name(void) { return smx_not_offered(__func__); }
#define SMX_ABSENT_FD(name) \
	long name(void); \
	long name(void) { smx_not_offered(__func__); return -1; }
#define SMX_ABSENT_PTR(name) \
	void *name(void); \
	void *name(void) { smx_not_offered(__func__); return NULL; }
#define SMX_ABSENT_VOID(name) \
	void name(void); \
	void name(void) { smx_not_offered(__func__); }
#define SMX_ABSENT(kind, name) SMX_ABSENT_##kind(name)
#include "verbs/mlx5dv_absent.def"
