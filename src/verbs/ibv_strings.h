/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names that have no public declaration in the installed header. */
#ifndef SMX_VERBS_IBV_STRINGS_H
#define SMX_VERBS_IBV_STRINGS_H

#include <infiniband/verbs.h>

const char *smx_wr_opcode_str(enum ibv_wr_opcode opcode); /* ibv_wr_opcode_str of newer rdma-core */

#endif
