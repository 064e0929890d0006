/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: syndromes become the statuses that libibverbs reports; each documented set of codes finds its cause
 * first, with its grade; codes that nobody knows are said to be unknown.
 * Method: the constants of verbs.h; one row for each documented set of codes; the rules of refusal.def,
 * so that what the device reports can be explained by the decoder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <infiniband/verbs.h>

#include "base/bits.h"
#include "hw/cqe.h"
#include "hw/hw_cause.h"
#include "trace/refusal.h"

static void syndromes_become_the_statuses_of_libibverbs(void **state)
{
	static const struct { uint8_t syndrome; enum ibv_wc_status status; const char *name; } rows[] = {
		{ 0x01, IBV_WC_LOC_LEN_ERR, "IBV_WC_LOC_LEN_ERR" },
		{ 0x02, IBV_WC_LOC_QP_OP_ERR, "IBV_WC_LOC_QP_OP_ERR" },
		{ 0x04, IBV_WC_LOC_PROT_ERR, "IBV_WC_LOC_PROT_ERR" },
		{ 0x05, IBV_WC_WR_FLUSH_ERR, "IBV_WC_WR_FLUSH_ERR" },
		{ 0x06, IBV_WC_MW_BIND_ERR, "IBV_WC_MW_BIND_ERR" },
		{ 0x10, IBV_WC_BAD_RESP_ERR, "IBV_WC_BAD_RESP_ERR" },
		{ 0x11, IBV_WC_LOC_ACCESS_ERR, "IBV_WC_LOC_ACCESS_ERR" },
		{ 0x12, IBV_WC_REM_INV_REQ_ERR, "IBV_WC_REM_INV_REQ_ERR" },
		{ 0x13, IBV_WC_REM_ACCESS_ERR, "IBV_WC_REM_ACCESS_ERR" },
		{ 0x14, IBV_WC_REM_OP_ERR, "IBV_WC_REM_OP_ERR" },
		{ 0x15, IBV_WC_RETRY_EXC_ERR, "IBV_WC_RETRY_EXC_ERR" },
		{ 0x16, IBV_WC_RNR_RETRY_EXC_ERR, "IBV_WC_RNR_RETRY_EXC_ERR" },
		{ 0x22, IBV_WC_REM_ABORT_ERR, "IBV_WC_REM_ABORT_ERR" },
		{ 0x07, IBV_WC_GENERAL_ERR, "IBV_WC_GENERAL_ERR" },
		{ 0xff, IBV_WC_GENERAL_ERR, "IBV_WC_GENERAL_ERR" },
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		const struct smx_status *s = smx_status_of(rows[i].syndrome);

		assert_int_equal(s->status, rows[i].status);
		assert_string_equal(s->name, rows[i].name);
		assert_int_equal(s->known, rows[i].status != IBV_WC_GENERAL_ERR);
		if (s->known)
			assert_ptr_equal(smx_status_by_number(rows[i].status), s);
	}
	assert_null(smx_status_by_number(IBV_WC_SUCCESS));
	assert_null(smx_status_by_number(IBV_WC_GENERAL_ERR));
}

static const struct row {
	uint8_t syndrome, vendor, hw, side;
	char grade;		/* of the first cause */
	const char *has;	/* a part of its sentence */
} rows[] = {
	{ 0x01, 0x68, 0x60, SMX_SIDE_REQ, 'S', "inlined" },
	{ 0x02, 0x68, 0x01, SMX_SIDE_REQ, 'O', "WQE index" },
	{ 0x02, 0x68, 0x86, SMX_SIDE_REQ, 'S', "octowords" },
	{ 0x02, 0x00, 0xb2, SMX_SIDE_REQ, 'O', "opcode" },
	{ 0x04, 0x51, 0x02, SMX_SIDE_REQ, 'O', "bus" },
	{ 0x04, 0x52, 0x93, SMX_SIDE_REQ, 'M', "lkey" },
	{ 0x04, 0x53, 0x9d, SMX_SIDE_REQ, 'M', "past the end" },
	{ 0x04, 0x56, 0xa9, SMX_SIDE_RESP, 'O', "IOMMU" },
	{ 0x04, 0x32, 0x92, SMX_SIDE_RESP, 'O', "no memory key" },
	{ 0x04, 0x32, 0x93, SMX_SIDE_RESP, 'O', "protection domain" },
	{ 0x04, 0x33, 0x9d, SMX_SIDE_REQ, 'M', "response" },
	{ 0x05, 0xf5, 0x93, SMX_SIDE_REQ, 'M', "executing" },
	{ 0x05, 0xf9, 0x93, SMX_SIDE_REQ, 'M', "behind" },
	{ 0x05, 0xf9, 0x00, SMX_SIDE_RESP, 'M', "behind" },
	{ 0x06, 0x78, 0x08, SMX_SIDE_REQ, 'S', "not there" },
	{ 0x06, 0x78, 0x0f, SMX_SIDE_REQ, 'S', "larger" },
	{ 0x12, 0x8a, 0x00, SMX_SIDE_REQ, 'M', "does not allow this operation" },
	{ 0x13, 0x88, 0x00, SMX_SIDE_REQ, 'M', "rkey" },
	{ 0x14, 0x89, 0x00, SMX_SIDE_REQ, 'O', "could not complete" },
	{ 0x15, 0x81, 0x00, SMX_SIDE_REQ, 'M', "No answer" },
	{ 0x16, 0x87, 0x00, SMX_SIDE_REQ, 'M', "no receive" },
	{ 0x22, 0x93, 0x00, SMX_SIDE_RESP, 'S', "page fault" },
};

static void each_documented_set_of_codes_finds_its_cause_first(void **state)
{
	const struct smx_cause *found[16];
	size_t exact;

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct smx_codes codes = { r->syndrome, r->vendor, r->hw, r->side };

		if (!smx_cause_find(&codes, found, SMX_COUNT(found), &exact) || !exact ||
		    found[0]->grade != r->grade || !strstr(found[0]->text, r->has))
			fail_msg("syndrome 0x%02x vendor 0x%02x hw 0x%02x", r->syndrome, r->vendor, r->hw);
		/* Work completions carry no hw byte. */
		codes.hw = SMX_CODE_UNKNOWN;
		assert_true(smx_cause_find(&codes, found, SMX_COUNT(found), &exact) && exact);
	}
}

static void causes_come_best_first_and_fit(void **state)
{
	const struct smx_cause *found[16], *one[1];
	size_t exact, ignored;

	(void)state;
	for (int syndrome = 0; syndrome < 256; syndrome++)
		for (int vendor = 0; vendor < 256; vendor++) {
			struct smx_codes codes = { (uint8_t)syndrome, (int16_t)vendor, 0, SMX_SIDE_REQ };
			size_t n = smx_cause_find(&codes, found, SMX_COUNT(found), &exact);

			assert_true(exact <= n && n < SMX_COUNT(found));
			for (size_t i = 0; i < n; i++) {
				assert_int_equal(found[i]->syndrome, syndrome);
				assert_true(found[i]->side & SMX_SIDE_REQ);
				assert_int_equal(found[i]->vendor == vendor, i < exact);
			}
			if (n) {
				assert_int_equal(smx_cause_find(&codes, one, 1, &ignored), 1);
				assert_ptr_equal(one[0], found[0]);
			}
		}
}

static void what_the_device_reports_can_be_explained(void **state)
{
	const struct smx_cause *found[16];
	size_t exact;

	(void)state;
	for (int i = 1; i < SMX_CHECK_COUNT; i++) {
		const struct smx_check_info *info = smx_check_info((enum smx_check)i);
		struct smx_codes codes = { info->syndrome, info->vendor, info->hw, SMX_SIDE_ANY };

		if (info->err || info->grade == 'I')
			continue;
		smx_cause_find(&codes, found, SMX_COUNT(found), &exact);
		if (!exact)
			fail_msg("%s: no cause names vendor code 0x%02x", info->name, info->vendor);
	}
}

static void print(char *buf, size_t len, uint8_t syndrome, int16_t vendor, int16_t hw)
{
	struct smx_codes codes = { syndrome, vendor, hw, SMX_SIDE_REQ };
	struct smx_text t = smx_text_in(buf, len);

	smx_print_codes(&t, &codes);
	assert_false(t.cut);
}

static void unknown_codes_are_said_to_be_unknown(void **state)
{
	char buf[8192];

	(void)state;
	print(buf, sizeof(buf), 0x77, 0x21, 0x05);
	assert_non_null(strstr(buf, "syndrome 0x77  no public meaning; the program sees IBV_WC_GENERAL_ERR (21)"));
	assert_non_null(strstr(buf, "vendor   0x21  no public meaning"));
	assert_non_null(strstr(buf, "hw       0x05  no public meaning with these codes"));
	assert_non_null(strstr(buf, "Nothing is publicly known"));
	print(buf, sizeof(buf), 0x10, 0, 0);
	assert_non_null(strstr(buf, "Nothing is publicly known"));
	print(buf, sizeof(buf), 0x13, 0x21, 0);
	assert_non_null(strstr(buf, "nothing public names this vendor code"));
	print(buf, sizeof(buf), 0x13, SMX_CODE_UNKNOWN, SMX_CODE_UNKNOWN);
	assert_null(strstr(buf, "vendor   0x"));
	assert_null(strstr(buf, "nothing public names"));
}

static void codes_are_read_from_their_bytes(void **state)
{
	uint8_t cqe[64] = { [52] = 0x93, [53] = 1, [54] = 0x32, [55] = 0x04, [63] = 0xe0 };
	struct smx_codes codes = smx_codes_of_cqe(cqe);

	(void)state;
	assert_int_equal(codes.syndrome, 0x04);
	assert_int_equal(codes.vendor, 0x32);
	assert_int_equal(codes.hw, 0x93);
	assert_int_equal(codes.side, SMX_SIDE_RESP);
	cqe[63] = 0xd1;
	assert_int_equal(smx_codes_of_cqe(cqe).side, SMX_SIDE_REQ);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(syndromes_become_the_statuses_of_libibverbs),
		cmocka_unit_test(each_documented_set_of_codes_finds_its_cause_first),
		cmocka_unit_test(causes_come_best_first_and_fit),
		cmocka_unit_test(what_the_device_reports_can_be_explained),
		cmocka_unit_test(unknown_codes_are_said_to_be_unknown),
		cmocka_unit_test(codes_are_read_from_their_bytes),
	};

	return cmocka_run_group_tests_name("hw/hw_cause", tests, NULL, NULL);
}
