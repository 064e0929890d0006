/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a player writes to its pipe, and the table of deliberate differences. */
#ifndef TRACE_H
#define TRACE_H

#include <stdint.h>

enum row {
	ROW_NONE,
#define ROW(id, err, run, why) ROW_##id,
#include "rows.def"
#undef ROW
	ROW_COUNT
};

/* Ring memory before a step holds the one or the other: what differs between the two runs was not written. */
enum { FILL_A = 0x5a, FILL_B = 0xa5, UAR_FILL_XOR = 0x99, FILLS = 2 };

enum tag {
	TAG_PROGRAM,	/* a seed, b fill */
	TAG_CONFIG,	/* a transport, b signed WQEs; text */
	TAG_VALUE,	/* a which, b value: equal everywhere */
	TAG_STEP,	/* a index, b requests; text */
	TAG_ROW,	/* a row, b the request it is about */
	TAG_RC,		/* a return code, b index of the refused request, or -1 */
	TAG_DB,		/* a doorbell record of sends, b of receives */
	TAG_WQE,	/* a block counter; bytes in whole blocks */
	TAG_UAR,	/* a bytes; what was stored */
	TAG_KEPT,	/* a bytes of outstanding WQEs that changed, b others that should not have */
	TAG_RECV,	/* a entry of the ring; its bytes */
	TAG_WC,		/* struct ibv_wc */
	TAG_BYTES,	/* equal everywhere */
	TAG_END,
	TAG_COUNT
};

struct record { uint32_t tag, a, b, n; };	/* then n bytes */

#endif
