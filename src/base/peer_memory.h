/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What another process shares (base/share.h), mapped here window by window. One user at a time. */
#ifndef SMX_PEER_MEMORY_H
#define SMX_PEER_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct smx_peer_memory;

/* pid has the memfd open as fd. RETURN NULL, with a sentence in why, when it may not be opened or is not such a file
 * (owner, type, size, seals). A file that passes never shrinks: it may lack pages, but not end. */
struct smx_peer_memory *smx_peer_memory_open(pid_t pid, int fd, char *why, size_t why_len);
void smx_peer_memory_close(struct smx_peer_memory *pm);

/* Where the peer's address is here. *length is cut to what lies together. RETURN NULL when it cannot be mapped.
 * Cheap when the window was used before. The answer is good until the next call for this peer. Whoever reads or
 * writes there does it under the guard: a page that the peer never touched is made then, and there may be no memory. */
void *smx_peer_memory_at(struct smx_peer_memory *pm, uint64_t addr, uint64_t *length);

#endif
