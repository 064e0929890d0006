/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers by which ibv_import_pd, ibv_import_mr and ibv_import_dm find an object again. */
#ifndef SMX_VERBS_HANDLES_H
#define SMX_VERBS_HANDLES_H

#include <stdint.h>

#include <infiniband/verbs.h>

enum smx_handle_kind { SMX_HANDLE_PD, SMX_HANDLE_MR, SMX_HANDLE_DM, SMX_HANDLE_KINDS };

/* RETURN 0, or ENOMEM. */
int smx_handle_add(enum smx_handle_kind kind, void *obj, uint32_t *handle);
void smx_handle_remove(enum smx_handle_kind kind, uint32_t handle);

/* Calls fn(obj, arg) with the object kept from going away meanwhile. RETURN what fn returns, ENOENT
 * where the number names nothing. */
int smx_handle_use(enum smx_handle_kind kind, uint32_t handle, int (*fn)(void *obj, void *arg),
		   void *arg);
/* The first object for which fn does not return 0, as smx_handle_use(). */
int smx_handle_search(enum smx_handle_kind kind, int (*fn)(void *obj, void *arg), void *arg);

#endif
