/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From pasted text to decoded WQEs and CQEs: finds the hex in a log, decides what the bytes are, says why.
 *
 * Knows the dumps of the kernel (with or without offsets, behind any log prefix), libmlx5, DPDK, xxd,
 * hexdump -C and gdb, C arrays and plain digits; and the lines in which the kernel, UCX, NCCL and perftest
 * print the codes of a failed completion without its bytes. Pure functions; text may be anything. */
#ifndef SMX_HW_DUMP_H
#define SMX_HW_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "hw/hw_cause.h"
#include "hw/hw_print.h"

enum {
	SMX_DUMP_BYTES_MIN = 16,
	SMX_DUMP_BYTES_MAX = 1024,
	SMX_DUMP_BLOCKS_MAX = 16,
	SMX_DUMP_CODES_MAX = 16,
	SMX_DUMP_ITEMS_MAX = SMX_DUMP_BYTES_MAX / 16,
};

enum smx_dump_shape {
	SMX_DUMP_PLAIN,		/* digits, any grouping */
	SMX_DUMP_WORDS,		/* lines of four words, as libmlx5 and older kernels */
	SMX_DUMP_OFFSETS,	/* an offset, then bytes, as the kernel, xxd and gdb */
	SMX_DUMP_COLUMNS,	/* and a column of characters behind a bar, as DPDK and hexdump -C */
};

/* Bytes that stand together. */
struct smx_dump_block {
	uint8_t bytes[SMX_DUMP_BYTES_MAX];
	size_t len;
	uint64_t base;		/* offset in front of the first line */
	enum smx_dump_shape shape;
	unsigned int line;	/* of the text, from 1 */
	bool words;		/* groups of 8 digits: their bytes may be swapped */
	bool too_long;		/* more than SMX_DUMP_BYTES_MAX; the rest is dropped */
};

struct smx_dump {
	struct smx_dump_block block[SMX_DUMP_BLOCKS_MAX];
	size_t count;
	bool too_many;
	struct smx_codes codes[SMX_DUMP_CODES_MAX];	/* named by lines of text */
	size_t codes_count;
};

void smx_dump_parse(struct smx_dump *out, const char *text, size_t len);

enum smx_dump_kind {
	SMX_DUMP_UNKNOWN,
	SMX_DUMP_SEND_WQE,
	SMX_DUMP_RECV_WQE,	/* never found, only when asked for: it has no mark */
	SMX_DUMP_SRQ_WQE,	/* likewise */
	SMX_DUMP_CQE,
	SMX_DUMP_CQE128,	/* the CQE is the last 64 bytes */
};

struct smx_dump_item {
	enum smx_dump_kind kind;
	size_t off, len;
	char why[160];
};

/* Cuts a block into items. RETURN how many, at most SMX_DUMP_ITEMS_MAX; they cover every byte. */
size_t smx_dump_decide(const uint8_t *bytes, size_t len, struct smx_dump_item *items);

struct smx_dump_options {
	enum smx_dump_kind as;	/* SMX_DUMP_UNKNOWN: decide */
	enum smx_wqe_kind kind;
};

/* Everything in words. RETURN how many WQEs and CQEs, and lines with codes, were understood. */
size_t smx_dump_print(struct smx_text *t, const struct smx_dump *dump, const struct smx_dump_options *opt);

#endif
