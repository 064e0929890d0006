/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: big-endian words, bit fields, rounding, random numbers and text do what their headers say, at the
 * edges of their ranges.
 * Method: values written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/be.h"
#include "base/bits.h"
#include "base/prng.h"
#include "base/text.h"

static void big_endian_words_lie_most_significant_byte_first(void **state)
{
	be16 a = to_be16(0x1234);
	be32 b = to_be32(0x12345678);
	be64 c = to_be64(0x123456789abcdef0);
	_Alignas(4) uint8_t word[4];

	(void)state;
	assert_memory_equal(&a, "\x12\x34", 2);
	assert_memory_equal(&b, "\x12\x34\x56\x78", 4);
	assert_memory_equal(&c, "\x12\x34\x56\x78\x9a\xbc\xde\xf0", 8);
	c = be64_of(b, to_be32(0x9abcdef0));
	assert_memory_equal(&c, "\x12\x34\x56\x78\x9a\xbc\xde\xf0", 8);
	c = be64_or(to_be64(0x1230567800bc0000), to_be64(0x000400009a00def0));
	assert_memory_equal(&c, "\x12\x34\x56\x78\x9a\xbc\xde\xf0", 8);
	b = be32_or(to_be32(0x10305000), to_be32(0x02040678));
	assert_memory_equal(&b, "\x12\x34\x56\x78", 4);
	assert_int_equal(from_be16(a), 0x1234);
	assert_int_equal(from_be32(b), 0x12345678);
	assert_true(from_be64(c) == 0x123456789abcdef0);
	be32_store_release(word, 0x01020304);
	assert_memory_equal(word, "\x01\x02\x03\x04", 4);
	assert_int_equal(be32_load_acquire(word), 0x01020304);
}

static void bit_fields_keep_to_their_bits(void **state)
{
	static const struct { uint32_t v; unsigned int hi, lo; uint32_t want; } rows[] = {
		{ 0x1ff, 7, 0, 0xff }, { 1, 31, 31, 0x80000000 }, { 3, 31, 31, 0x80000000 },
		{ 0xffffffff, 31, 0, 0xffffffff }, { 0xabcdef, 31, 8, 0xabcdef00 }, { 0, 5, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		assert_int_equal(bits_put(rows[i].v, rows[i].hi, rows[i].lo), rows[i].want);
		assert_int_equal(bits_get(rows[i].want, rows[i].hi, rows[i].lo), rows[i].want >> rows[i].lo);
	}
	assert_int_equal(bits_get(0xdeadbeef, 15, 8), 0xbe);
}

static void powers_of_two_at_their_edges(void **state)
{
	static const struct { uint64_t v, ceil; unsigned int log; } rows[] = {
		{ 0, 1, 0 }, { 1, 1, 0 }, { 2, 2, 1 }, { 3, 4, 2 }, { 4, 4, 2 }, { 5, 8, 3 },
		{ 1ull << 62, 1ull << 62, 62 }, { (1ull << 62) + 1, 1ull << 63, 63 },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		assert_true(pow2_ceil(rows[i].v) == rows[i].ceil);
		assert_int_equal(log2_ceil(rows[i].v), rows[i].log);
		assert_int_equal(is_pow2(rows[i].v), rows[i].v && rows[i].v == rows[i].ceil);
	}
	assert_true(align_up(0, 64) == 0 && align_up(1, 64) == 64 && align_up(64, 64) == 64);
}

static void random_numbers_repeat_and_stay_below(void **state)
{
	struct smx_prng a = { 1 }, b = { 1 }, c = { 2 };
	uint32_t seen = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		uint64_t v = smx_prng_below(&a, 5);

		assert_in_range(v, 0, 4);
		seen |= 1u << v;
		assert_true(smx_prng_below(&b, 5) == v);
	}
	assert_int_equal(seen, 31);
	assert_true(smx_prng_next(&a) == smx_prng_next(&b));
	assert_true(smx_prng_next(&a) != smx_prng_next(&c));
}

static void text_is_cut_at_the_buffers_end(void **state)
{
	char buf[8];
	struct smx_text t = smx_text_in(buf, sizeof(buf));

	(void)state;
	smx_text_add(&t, "%s", "abc");
	assert_string_equal(buf, "abc");
	assert_false(t.cut);
	smx_text_add(&t, "%s", "defg");
	assert_string_equal(buf, "abcdefg");
	assert_false(t.cut);
	smx_text_add(&t, "h");
	assert_string_equal(buf, "abcdefg");
	assert_true(t.cut);
	assert_int_equal(t.len, 7);
}

static void hex_has_sixteen_bytes_a_line(void **state)
{
	char buf[256];
	struct smx_text t = smx_text_in(buf, sizeof(buf));
	uint8_t bytes[18];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(0xf0 + i);
	smx_text_hex(&t, 2, bytes, sizeof(bytes));
	assert_string_equal(buf, "  00: f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 fa fb fc fd fe ff\n  10: 00 01\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(big_endian_words_lie_most_significant_byte_first),
		cmocka_unit_test(bit_fields_keep_to_their_bits),
		cmocka_unit_test(powers_of_two_at_their_edges),
		cmocka_unit_test(random_numbers_repeat_and_stay_below),
		cmocka_unit_test(text_is_cut_at_the_buffers_end),
		cmocka_unit_test(hex_has_sixteen_bytes_a_line),
	};

	return cmocka_run_group_tests_name("base/bits", tests, NULL, NULL);
}
