/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* libibverbs' private nodes, through which rdma-core's own drivers call it.
 *
 * Programs pull such drivers in (libefa.so.1 is one of perftest's libraries) and some import
 * ibv_query_gid_type; both bind to the node of the rdma-core they were built with. Registering a
 * driver is accepted and forgotten: it would serve devices that are not here. What a driver would
 * call for its device is refused. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "verbs/ibv_device.h"
#include "verbs/ibv_strings.h"
#include "verbs/objects.h"

/* Kept for the .symver lines below, which the compiler does not see into. */
#define KEEP __attribute__((used, visibility("default")))

int private_refuse(void);
void *private_null(void);
void private_ignore(void);
int private_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
		     uint32_t *type);
const char *private_wr_opcode_str(enum ibv_wr_opcode opcode);
int private_sysfs_file(char *buf, size_t size, void *device, const char *fmt, ...);

KEEP bool private_allow_destroy;

KEEP int private_refuse(void)
{
	return smx_not_offered("a driver's call into libibverbs (IBVERBS_PRIVATE)");
}

KEEP void *private_null(void)
{
	private_refuse();
	return NULL;
}

KEEP void private_ignore(void)
{
}

/* type: as sysfs has it, 0 for RoCE v1 and InfiniBand, 1 for RoCE v2. An empty entry is 0. */
KEEP int private_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
			  uint32_t *type)
{
	union ibv_gid gid;
	uint32_t gid_type;

	if (port_num != 1 || index >= SMX_GID_TABLE_LEN) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				   "GID index %u of port %u", index, port_num);
		return -1;
	}
	*type = !smx_gid_get(context, index, &gid, &gid_type, NULL) &&
		gid_type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}

KEEP int private_sysfs_file(char *buf, size_t size, void *device, const char *fmt, ...)
{
	char file[256];
	va_list args;

	(void)device;
	va_start(args, fmt);
	vsnprintf(file, sizeof(file), fmt, args);
	va_end(args);
	return ibv_read_sysfs_file(smx_device()->ibdev_path, file, buf, size);
}

KEEP const char *private_wr_opcode_str(enum ibv_wr_opcode opcode)
{
	return smx_wr_opcode_str(opcode);
}

/* One line for each name and node: an alias, and its versioned name. */
#define AT_NODE(target, name, node) \
	".globl node" #node "_" #name "\n" \
	".set node" #node "_" #name ", " #target "\n" \
	".symver node" #node "_" #name ", " #name "@IBVERBS_PRIVATE_" #node "\n"
#define SMX_PRIVATE(target, name) \
	__asm__(AT_NODE(target, name, 34) AT_NODE(target, name, 57) AT_NODE(target, name, 59) \
		AT_NODE(target, name, 64) AT_NODE(target, name, 65));
#include "verbs/ibv_private.def"

__asm__(AT_NODE(private_ignore, verbs_register_driver_34, 34)
	AT_NODE(private_ignore, verbs_register_driver_57, 57)
	AT_NODE(private_ignore, verbs_register_driver_59, 59)
	AT_NODE(private_ignore, verbs_register_driver_64, 64)
	AT_NODE(private_ignore, verbs_register_driver_65, 65));
