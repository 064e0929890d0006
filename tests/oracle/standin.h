/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STANDIN_H
#define STANDIN_H

#include <linux/types.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* Carries out one command of libibverbs. RETURN 0 or an errno. */
int standin_command(struct ib_uverbs_ioctl_hdr *hdr);

#endif
