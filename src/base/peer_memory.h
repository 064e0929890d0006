/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What another process shares (base/share.h), mapped here window by window. */
#ifndef SMX_PEER_MEMORY_H
#define SMX_PEER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct smx_peer_memory;

/* pid has the memfd open as fd. RETURN NULL, with a sentence in why, when it may not be opened or is not such a file
 * (owner, type, seals). */
struct smx_peer_memory *smx_peer_memory_open(pid_t pid, int fd, char *why, size_t why_len);
void smx_peer_memory_close(struct smx_peer_memory *pm);

/* Where the peer's address is here. *length is cut to what lies together. RETURN NULL when it cannot be mapped.
 * Cheap when the window was used before. Whoever reads or writes there does it under the guard. */
void *smx_peer_memory_at(struct smx_peer_memory *pm, uint64_t addr, uint64_t *length);

#endif
