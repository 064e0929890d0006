/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: hex is found in every shape in which programs print it, prose is not taken for hex, and bytes are
 * told apart: send WQE, error CQE, both in one paste, neither.
 * Method: the same 64 bytes printed in each shape must come back; blocks put together from known parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/bits.h"
#include "hw/hw_dump.h"

/* A failed SEND on queue pair 0x1b07, index 17. */
static const uint8_t err[64] = { [35] = 0x2a, [52] = 0x93, [54] = 0x52, [55] = 0x04, [56] = 0x0a, [58] = 0x1b,
				 [59] = 0x07, [61] = 0x11, [62] = 0x9c, [63] = 0xd3 };
/* That SEND: two segments. */
static const uint8_t wqe[64] = { 0, 0, 0x11, 0x0a, 0, 0x1b, 0x07, 2, [11] = 8, [19] = 64, [22] = 0x33, [23] = 0x44,
				 [26] = 0x7f, [30] = 0xcc };

static struct smx_dump dump;
static char out[1 << 18];

static void parse(const char *text)
{
	smx_dump_parse(&dump, text, strlen(text));
}

static void must_be_err(const char *shape)
{
	if (dump.count != 1 || dump.block[0].len != 64 || memcmp(dump.block[0].bytes, err, 64))
		fail_msg("%s: %zu blocks, the first of %zu bytes", shape, dump.count, dump.block[0].len);
}

static void every_shape_gives_the_same_bytes(void **state)
{
	static const struct { const char *name, *text; enum smx_dump_shape shape; } rows[] = {
		{ "kernel, offsets, in dmesg",
		  "[15601.662156] infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe\n"
		  "[15601.662158] 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n"
		  "[15601.662160] 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n"
		  "[15601.662162] 00000020: 00 00 00 2a 00 00 00 00 00 00 00 00 00 00 00 00\n"
		  "[15601.662164] 00000030: 00 00 00 00 93 00 52 04 0a 00 1b 07 00 11 9c d3\n", SMX_DUMP_OFFSETS },
		{ "kernel, other messages in between, in a journal",
		  "Mar 30 21:04:53 n kernel: cqe_dump: 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\r\n"
		  "Mar 30 21:04:53 n kernel: cqe_dump: 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\r\n"
		  "Mar 30 21:04:53 node kernel: ens1: Link up\r\n"
		  "Mar 30 21:04:53 n kernel: cqe_dump: 00000020: 00 00 00 2a 00 00 00 00 00 00 00 00 00 00 00 00\r\n"
		  "Mar 30 21:04:53 n kernel: cqe_dump: 00000030: 00 00 00 00 93 00 52 04 0a 00 1b 07 00 11 9c d3\r\n",
		  SMX_DUMP_OFFSETS },
		{ "older kernel, words, in dmesg",
		  "[  881.120000] mlx5_ib: dump error cqe\n"
		  "[  881.120001] 00000000 00000000 00000000 00000000\n"
		  "[  881.120002] 00000000 00000000 00000000 00000000\n"
		  "[  881.120003] 0000002a 00000000 00000000 00000000\n"
		  "[  881.120004] 00000000 93005204 0a001b07 00119cd3\n",
		  SMX_DUMP_WORDS },
		{ "libmlx5",
		  "mlx5: node7: got completion with error:\n"
		  "00000000 00000000 00000000 00000000\n00000000 00000000 00000000 00000000\n"
		  "0000002a 00000000 00000000 00000000\n00000000 93005204 0a001b07 00119cd3\n", SMX_DUMP_WORDS },
		{ "libmlx5, the next message behind the last word",
		  "00000000 00000000 00000000 00000000\n00000000 00000000 00000000 00000000\n"
		  "0000002a 00000000 00000000 00000000\n"
		  "00000000 93005204 0a001b07 00119cd3[1496344648.549828] [node7:14872:0]  dc_verbs.c:614\n",
		  SMX_DUMP_WORDS },
		{ "DPDK",
		  "MLX5 Error CQ: at [0x7f6a7d20c000], len=64\n"
		  "00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | ................\n"
		  "00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 | ................\n"
		  "00000020: 00 00 00 2A 00 00 00 00 00 00 00 00 00 00 00 00 | ...*............\n"
		  "00000030: 00 00 00 00 93 00 52 04 0A 00 1B 07 00 11 9C D3 | ......R.........\n", SMX_DUMP_COLUMNS },
		{ "xxd",
		  "00000000: 0000 0000 0000 0000 0000 0000 0000 0000  be............be\n"
		  "00000010: 0000 0000 0000 0000 0000 0000 0000 0000  dead dead dead 1\n"
		  "00000020: 0000 002a 0000 0000 0000 0000 0000 0000  ...*............\n"
		  "00000030: 0000 0000 9300 5204 0a00 1b07 0011 9cd3  ......R.........\n", SMX_DUMP_OFFSETS },
		{ "hexdump -C",
		  "00000000  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|\n"
		  "00000010  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|\n"
		  "00000020  00 00 00 2a 00 00 00 00  00 00 00 00 00 00 00 00  |...*............|\n"
		  "00000030  00 00 00 00 93 00 52 04  0a 00 1b 07 00 11 9c d3  |......R.........|\n00000040\n",
		  SMX_DUMP_COLUMNS },
		{ "gdb x/64xb",
		  "0x7ffff7fa1000:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\n"
		  "0x7ffff7fa1008:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\n"
		  "0x7ffff7fa1010:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\n"
		  "0x7ffff7fa1018:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\n"
		  "0x7ffff7fa1020:\t0x00\t0x00\t0x00\t0x2a\t0x00\t0x00\t0x00\t0x00\n"
		  "0x7ffff7fa1028:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\n"
		  "0x7ffff7fa1030:\t0x00\t0x00\t0x00\t0x00\t0x93\t0x00\t0x52\t0x04\n"
		  "0x7ffff7fa1038:\t0x0a\t0x00\t0x1b\t0x07\t0x00\t0x11\t0x9c\t0xd3\n", SMX_DUMP_OFFSETS },
		{ "C array",
		  "{ 0x0,0x0,0x0,0x0, 0x0,0x0,0x0,0x0, 0x0,0x0,0x0,0x0, 0x0,0x0,0x0,0x0,\n"
		  "  0x0,0x0,0x0,0x0, 0x0,0x0,0x0,0x0, 0x0,0x0,0x0,0x0, 0x0,0x0,0x0,0x0,\n"
		  "  0x0,0x0,0x0,0x2a, 0x0,0x0,0x0,0x0, 0x0,0x0,0x0,0x0, 0x0,0x0,0x0,0x0,\n"
		  "  0x0,0x0,0x0,0x0, 0x93,0x0,0x52,0x4, 0xa,0x0,0x1b,0x7, 0x0,0x11,0x9c,0xd3 };\n", SMX_DUMP_PLAIN },
		{ "digits without a break",
		  "0000000000000000000000000000000000000000000000000000000000000000"
		  "0000002a00000000000000000000000000000000930052040a001b0700119cd3", SMX_DUMP_PLAIN },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct smx_dump_item items[SMX_DUMP_ITEMS_MAX];

		parse(rows[i].text);
		must_be_err(rows[i].name);
		assert_int_equal(dump.block[0].shape, rows[i].shape);
		assert_int_equal(smx_dump_decide(dump.block[0].bytes, 64, items), 1);
		assert_int_equal(items[0].kind, SMX_DUMP_CQE);
	}
}

static void prose_is_no_hex(void **state)
{
	static const char *const rows[] = {
		"", "\n\n", "dump error cqe\n", "be a dead face, add 00 more\n",
		"MLX5 Error CQ: at [0x7f6a7d20c000], len=64\n", "mlx5_core 0000:08:00.0 ens1: Link up\n",
		"wr_id 0 syndrom 0x51\n", "cafe: got completion with error:\n",
		"x 00000000 00000000 00000000\n",
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		parse(rows[i]);
		if (dump.count)
			fail_msg("`%s' gave %zu bytes", rows[i], dump.block[0].len);
	}
}

static void two_dumps_are_two_blocks(void **state)
{
	char text[4096];
	size_t n = 0;

	(void)state;
	for (int k = 0; k < 2; k++) {
		n += (size_t)snprintf(text + n, sizeof(text) - n, "dump %d\n", k);
		for (size_t i = 0; i < 64; i++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x%s", (k ? err : wqe)[i],
					      i % 16 == 15 ? "\n" : " ");
	}
	parse(text);
	assert_int_equal(dump.count, 2);
	assert_memory_equal(dump.block[0].bytes, wqe, 64);
	assert_memory_equal(dump.block[1].bytes, err, 64);
	assert_int_equal(dump.block[0].line, 2);
	assert_int_equal(dump.block[1].line, 7);
}

static void more_than_fits_is_said(void **state)
{
	static char text[4 * SMX_DUMP_BYTES_MAX];
	size_t n = 0;

	(void)state;
	memset(text, '0', 2 * SMX_DUMP_BYTES_MAX + 2);
	parse(text);
	assert_int_equal(dump.count, 1);
	assert_int_equal(dump.block[0].len, SMX_DUMP_BYTES_MAX);
	assert_true(dump.block[0].too_long);
	text[2 * SMX_DUMP_BYTES_MAX] = '\0';
	parse(text);
	assert_false(dump.block[0].too_long);
	for (int i = 0; i <= SMX_DUMP_BLOCKS_MAX; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "00 11 22 33\n--\n");
	parse(text);
	assert_int_equal(dump.count, SMX_DUMP_BLOCKS_MAX);
	assert_true(dump.too_many);
}

static void bytes_are_told_apart(void **state)
{
	enum { MAX = 4 };
	uint8_t full[64] = { 0, 0, 5, 0x08, 0, 0, 9, 4, [11] = 8, [31] = 1, [35] = 64, [63] = 0xd5 };
	uint8_t seen[64], bad_synd[64], noise[64], good[64] = { [47] = 8, [56] = 8, [59] = 9, [63] = 0x01 };
	const struct {
		const char *name;
		struct { const uint8_t *p; size_t n; } part[3];
		struct { enum smx_dump_kind kind; size_t len; } want[MAX];
	} rows[] = {
		{ "WQE", { { wqe, 64 } }, { { SMX_DUMP_SEND_WQE, 64 } } },
		{ "WQE without its padding", { { wqe, 32 } }, { { SMX_DUMP_SEND_WQE, 32 } } },
		{ "WQE cut short", { { wqe, 16 } }, { { SMX_DUMP_SEND_WQE, 16 } } },
		{ "WQE whose last byte looks like a CQE's", { { full, 64 } }, { { SMX_DUMP_SEND_WQE, 64 } } },
		{ "error CQE", { { err, 64 } }, { { SMX_DUMP_CQE, 64 } } },
		{ "error CQE that DPDK marked", { { seen, 64 } }, { { SMX_DUMP_CQE, 64 } } },
		{ "error CQE of unknown syndrome", { { bad_synd, 64 } }, { { SMX_DUMP_CQE, 64 } } },
		{ "good CQE", { { good, 64 } }, { { SMX_DUMP_CQE, 64 } } },
		{ "WQE and CQE", { { wqe, 64 }, { err, 64 } }, { { SMX_DUMP_SEND_WQE, 64 }, { SMX_DUMP_CQE, 64 } } },
		{ "CQE and WQE", { { err, 64 }, { wqe, 64 } }, { { SMX_DUMP_CQE, 64 }, { SMX_DUMP_SEND_WQE, 64 } } },
		{ "short WQE and CQE", { { wqe, 32 }, { err, 64 } },
		  { { SMX_DUMP_SEND_WQE, 32 }, { SMX_DUMP_CQE, 64 } } },
		{ "128-byte CQE", { { noise, 64 }, { err, 64 } }, { { SMX_DUMP_CQE128, 128 } } },
		{ "neither", { { noise, 64 } }, { { SMX_DUMP_UNKNOWN, 64 } } },
		{ "zeros", { { noise + 32, 16 } }, { { SMX_DUMP_UNKNOWN, 16 } } },
		{ "noise, then a CQE", { { noise, 16 }, { err, 64 } },
		  { { SMX_DUMP_UNKNOWN, 16 }, { SMX_DUMP_CQE, 64 } } },
	};

	(void)state;
	memcpy(seen, err, 64);
	memcpy(seen + 1, "seen", 4);
	memcpy(bad_synd, err, 64);
	bad_synd[55] = 0x77;
	memset(noise, 0xff, 32);
	memset(noise + 32, 0, 32);
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		struct smx_dump_item items[SMX_DUMP_ITEMS_MAX];
		uint8_t bytes[256];
		size_t len = 0, count, want = 0;

		for (size_t k = 0; k < SMX_COUNT(rows[i].part) && rows[i].part[k].n; k++) {
			memcpy(bytes + len, rows[i].part[k].p, rows[i].part[k].n);
			len += rows[i].part[k].n;
		}
		while (want < MAX && rows[i].want[want].len)
			want++;
		count = smx_dump_decide(bytes, len, items);
		if (count != want)
			fail_msg("%s: %zu items, the first: %s", rows[i].name, count, items[0].why);
		for (size_t k = 0; k < want; k++)
			if (items[k].kind != rows[i].want[k].kind || items[k].len != rows[i].want[k].len)
				fail_msg("%s: item %zu of %zu bytes: %s", rows[i].name, k, items[k].len, items[k].why);
	}
}

static size_t print(const char *text, enum smx_dump_kind as)
{
	struct smx_dump_options opt = { as, SMX_WQE_AUTO };
	struct smx_text t = smx_text_in(out, sizeof(out));
	size_t n;

	parse(text);
	n = smx_dump_print(&t, &dump, &opt);
	assert_false(t.cut);
	return n;
}

static void hex_of(char *text, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static void a_cqe_is_tied_to_the_wqe_before_it(void **state)
{
	uint8_t both[128];
	char text[257];

	(void)state;
	memcpy(both, wqe, 64);
	memcpy(both + 64, err, 64);
	hex_of(text, both, sizeof(both));
	assert_int_equal(print(text, SMX_DUMP_UNKNOWN), 2);
	assert_non_null(strstr(out, "The CQE is about the WQE above"));
	both[2]++;
	hex_of(text, both, sizeof(both));
	print(text, SMX_DUMP_UNKNOWN);
	assert_non_null(strstr(out, "The CQE is not about the WQE above: it has another index."));
	both[6]++;
	hex_of(text, both, sizeof(both));
	print(text, SMX_DUMP_UNKNOWN);
	assert_non_null(strstr(out, "it has another queue pair."));
}

static void little_endian_words_are_swapped_back(void **state)
{
	char text[400];
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < 64; i += 4)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "0x%02x%02x%02x%02x%s", err[i + 3], err[i + 2],
				      err[i + 1], err[i], i % 16 == 12 ? "\n" : " ");
	assert_int_equal(print(text, SMX_DUMP_UNKNOWN), 1);
	assert_non_null(strstr(out, "swapped back"));
	assert_non_null(strstr(out, "local protection error"));
}

static void what_is_asked_for_is_not_decided(void **state)
{
	char text[129];

	(void)state;
	hex_of(text, err, 64);
	assert_int_equal(print(text, SMX_DUMP_RECV_WQE), 1);
	assert_non_null(strstr(out, "Receive WQE"));
	assert_int_equal(print(text, SMX_DUMP_SEND_WQE), 1);
	assert_non_null(strstr(out, "Send WQE: NOP"));
	assert_int_equal(print(text, SMX_DUMP_CQE128), 0);
	assert_non_null(strstr(out, "not enough bytes"));
	assert_int_equal(print("00 11 22", SMX_DUMP_UNKNOWN), 0);
	assert_non_null(strstr(out, "Too short"));
}

static void lines_that_name_codes_are_understood(void **state)
{
	static const struct { const char *text; int syndrome, vendor, hw, side; } rows[] = {
		{ "[1.3] infiniband x: mlx5_poll_one:530:(pid 0): syndrome 0x5, vendor syndrome 0xf9\n", 5, 0xf9, -1,
		  SMX_SIDE_ANY },
		{ "mlx5_poll_one:527:(pid 0): Responder error cqe on cqn 0x406:\n"
		  "syndrome 0x4, vendor syndrome 0x32\n", 4,
		  0x32, -1, SMX_SIDE_RESP },
		{ "mlx5_poll_one:527:(pid 0): Requestor error cqe on cqn 0x406:\n"
		  "syndrome 0x4, vendor syndrome 0x53\n", 4,
		  0x53, -1, SMX_SIDE_REQ },
		{ "Local protection error on mlx5_0:1/IB (synd 0x4 vend 0x32 hw_synd 0/146)\n", 4, 0x32, 146,
		  SMX_SIDE_ANY },
		{ "net_ib.cc:818 Got completion with error 12, opcode 1, len 0, vendor err 129\n", 0x15, 129, -1,
		  SMX_SIDE_ANY },
		{ "  Failed status 4: wr_id 0 syndrom 0x51\n", 4, 0x51, -1, SMX_SIDE_ANY },
		{ "WC error: 10, Message: remote access error\n", 0x13, -1, -1, SMX_SIDE_ANY },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		assert_int_equal(print(rows[i].text, SMX_DUMP_UNKNOWN), 1);
		assert_int_equal(dump.codes_count, 1);
		assert_int_equal(dump.codes[0].syndrome, rows[i].syndrome);
		assert_int_equal(dump.codes[0].vendor, rows[i].vendor);
		assert_int_equal(dump.codes[0].hw, rows[i].hw);
		assert_int_equal(dump.codes[0].side, rows[i].side);
		assert_non_null(strstr(out, "Likely causes"));
	}
	parse("Failed status 0: wr_id 0 syndrom 0x0\nFailed status 4: wr_id 0 syndrom 0x51\n"
	      "Failed status 4: wr_id 1 syndrom 0x51\n");
	assert_int_equal(dump.codes_count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_shape_gives_the_same_bytes),
		cmocka_unit_test(prose_is_no_hex),
		cmocka_unit_test(two_dumps_are_two_blocks),
		cmocka_unit_test(more_than_fits_is_said),
		cmocka_unit_test(bytes_are_told_apart),
		cmocka_unit_test(a_cqe_is_tied_to_the_wqe_before_it),
		cmocka_unit_test(little_endian_words_are_swapped_back),
		cmocka_unit_test(what_is_asked_for_is_not_decided),
		cmocka_unit_test(lines_that_name_codes_are_understood),
	};

	return cmocka_run_group_tests_name("hw/hw_dump", tests, NULL, NULL);
}
