/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bytes that lie in another process and are fetched when it is known where they go. */
#ifndef SMX_PULL_H
#define SMX_PULL_H

#include <stdbool.h>
#include <stdint.h>

enum smx_pulled {
	SMX_PULLED,		/* all of it */
	SMX_PULL_SOURCE,	/* the other process's memory could not be read */
	SMX_PULL_TARGET,	/* ours could not be written */
};

struct smx_pull {
	/* Fetches n bytes from off on and moves off by *done, which were fetched. */
	enum smx_pulled (*fetch)(struct smx_pull *pull, void *to, uint64_t n, uint64_t *done);
	uint64_t off;
	bool gone;	/* the other process has ended, or has taken its memory back: what it sent is lost on the way */
};

#endif
