/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What this process has mapped, asked from the kernel. */
#ifndef SMX_MAPS_H
#define SMX_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct smx_mapping {
	uint64_t start, end;
	uint64_t offset;		/* in the file */
	uint64_t inode;			/* 0: no file */
	uint32_t dev_major, dev_minor;
	int prot;			/* PROT_READ, PROT_WRITE, PROT_EXEC */
	bool shared;
};

/* A walk from an address up; what is mapped may be changed meanwhile, below the mapping that was seen last. */
struct smx_maps {
	uint64_t next;
	int fd;			/* of the text, where the kernel cannot be asked for one address */
	size_t at, have;
	char text[4096];
};

/* RETURN false when the kernel does not tell (no /proc). */
bool smx_maps_begin(struct smx_maps *m, uint64_t from);
/* The mapping at or next above where the walk is; a mapping that the walk began inside of is seen whole. */
bool smx_maps_next(struct smx_maps *m, struct smx_mapping *out);
void smx_maps_end(struct smx_maps *m);

/* In a child of fork(): what is open speaks of the parent. */
void smx_maps_fork_child(void);

/* For tests: read the text even where the kernel can be asked for one address. */
extern bool smx_maps_text_only;

#endif
