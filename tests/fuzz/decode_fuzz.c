/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Any text given to `softmlx5 decode`, and any bytes given to the printers: no read outside what is there,
 * every byte accounted for.
 *
 * Input: byte 0 picks what follows: text of a paste (bits 1:0 are 0), or bytes of one block. The other bits
 * pick --as and --type. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "hw/hw_dump.h"

static struct smx_dump dump;
static char out[1 << 20];

static void check_items(const uint8_t *bytes, size_t len)
{
	struct smx_dump_item items[SMX_DUMP_ITEMS_MAX];
	size_t count = smx_dump_decide(bytes, len, items), off = 0;

	for (size_t i = 0; i < count; i++) {
		assert(items[i].off == off && items[i].len > 0);
		assert(items[i].why[0]);
		off += items[i].len;
	}
	assert(off == len);
}

/* An exact allocation, so that a read behind the block is seen. */
static void fuzz_bytes(const uint8_t *data, size_t size, const struct smx_dump_options *opt)
{
	struct smx_text t = smx_text_in(out, sizeof(out));
	size_t len = size < SMX_DUMP_BYTES_MAX ? size : SMX_DUMP_BYTES_MAX;
	uint8_t *exact = malloc(len ? len : 1);

	assert(exact);
	memcpy(exact, data, len);
	check_items(exact, len);
	smx_print_send_wqe(&t, exact, len, opt->kind);
	smx_print_recv_wqe(&t, exact, len, (int)(size & 1));
	if (len >= 64)
		smx_print_cqe(&t, exact + len - 64);
	free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct smx_dump_options opt;
	struct smx_text t = smx_text_in(out, sizeof(out));
	struct smx_text tiny;
	char few[7];

	if (!size)
		return 0;
	opt.as = (enum smx_dump_kind)((data[0] >> 2 & 7) % (SMX_DUMP_CQE128 + 1));
	opt.kind = (enum smx_wqe_kind)((data[0] >> 5 & 7) % (SMX_WQE_ETH + 1));
	if (data[0] & 3) {
		fuzz_bytes(data + 1, size - 1, &opt);
		return 0;
	}
	smx_dump_parse(&dump, (const char *)data + 1, size - 1);
	assert(dump.count <= SMX_DUMP_BLOCKS_MAX && dump.codes_count <= SMX_DUMP_CODES_MAX);
	for (size_t i = 0; i < dump.count; i++) {
		assert(dump.block[i].len > 0 && dump.block[i].len <= SMX_DUMP_BYTES_MAX);
		check_items(dump.block[i].bytes, dump.block[i].len);
	}
	smx_dump_print(&t, &dump, &opt);
	assert(!t.cut && strlen(out) == t.len);
	tiny = smx_text_in(few, sizeof(few));
	smx_dump_print(&tiny, &dump, &opt);
	assert(strlen(few) < sizeof(few));
	return 0;
}
