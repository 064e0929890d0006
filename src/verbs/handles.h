/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers by which objects are found again: by ibv_import_pd, ibv_import_mr and ibv_import_dm, and, when a completion
 * is read, queue pairs and shared receive queues. */
#ifndef SMX_VERBS_HANDLES_H
#define SMX_VERBS_HANDLES_H

#include <stdint.h>

#include <infiniband/verbs.h>

#include "dv/dv_table.h"

/* Queue pairs and SRQs of the process, by the device's numbers. */
extern struct smx_dv_table smx_qp_table, smx_srq_table;
int smx_number_set(struct smx_dv_table *table, uint32_t number, void *obj);	/* RETURN 0, or ENOMEM */
void smx_number_clear(struct smx_dv_table *table, uint32_t number, const void *obj);	/* if it is obj's */

enum smx_handle_kind { SMX_HANDLE_PD, SMX_HANDLE_MR, SMX_HANDLE_DM, SMX_HANDLE_KINDS };

/* RETURN 0, or ENOMEM. */
int smx_handle_add(enum smx_handle_kind kind, void *obj, uint32_t *handle);
/* The same with a number that the device gave the object. */
int smx_handle_add_at(enum smx_handle_kind kind, void *obj, uint32_t handle);
void smx_handle_remove(enum smx_handle_kind kind, uint32_t handle);

/* Calls fn(obj, arg) with the object kept from going away meanwhile. RETURN what fn returns, ENOENT
 * where the number names nothing. */
int smx_handle_use(enum smx_handle_kind kind, uint32_t handle, int (*fn)(void *obj, void *arg),
		   void *arg);

#endif
