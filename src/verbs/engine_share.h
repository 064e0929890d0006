/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which memory of the program's regions other processes reach by loads and stores of their own (DESIGN D7). */
#ifndef SMX_ENGINE_SHARE_H
#define SMX_ENGINE_SHARE_H

#include <stdbool.h>
#include <stddef.h>

/* Memory that a region covers, and that it covered. Under the engine's lock. */
bool smx_engine_share(const void *addr, size_t length);
void smx_engine_unshare(const void *addr, size_t length);

/* Other processes can reach this one from now on: shares the memory of all regions (ibv_mr.c). Under the lock. */
void smx_regions_share(void);
/* In the child of a fork, where nothing is. */
void smx_regions_forked(void);

#endif
