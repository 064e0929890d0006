/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The one device and what it tells about itself. */
#ifndef SMX_VERBS_IBV_DEVICE_H
#define SMX_VERBS_IBV_DEVICE_H

#include <stdint.h>

#include <infiniband/verbs.h>

#include "dev/dev.h"

enum {
	SMX_VENDOR_ID = 0x02c9,
	SMX_PART_ID = 4129,			/* ConnectX-7 */
	SMX_COMP_VECTORS = 16,
	SMX_GID_TABLE_LEN = 256,
	SMX_MAX_DM_BYTES = 256 * 1024,
	SMX_MAX_SRQ_SGE = 31,
};

struct ibv_device *smx_device(void);
/* Exported, but not in the installed header. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
uint64_t smx_device_guid(void);		/* host order */

/* device_attr.c: query operations of a context. */
void smx_ops_query(struct verbs_context *v);
/* ibv_not_offered.c: operations that say so. */
void smx_ops_not_offered(struct verbs_context *v);

#endif
