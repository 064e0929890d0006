/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: the opcode table agrees with mlx5dv.h and with itself.
 * Method: mlx5dv.h's own constants; every byte value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <infiniband/mlx5dv.h>

#include "base/bits.h"
#include "hw/hw_opcode.h"

static void opcodes_are_those_of_mlx5dv(void **state)
{
	static const struct { int theirs; const char *name; } rows[] = {
		{ MLX5_OPCODE_NOP, "NOP" }, { MLX5_OPCODE_SEND_INVAL, "SEND_INVAL" },
		{ MLX5_OPCODE_RDMA_WRITE, "RDMA_WRITE" }, { MLX5_OPCODE_RDMA_WRITE_IMM, "RDMA_WRITE_IMM" },
		{ MLX5_OPCODE_SEND, "SEND" }, { MLX5_OPCODE_SEND_IMM, "SEND_IMM" }, { MLX5_OPCODE_TSO, "TSO" },
		{ MLX5_OPCODE_RDMA_READ, "RDMA_READ" }, { MLX5_OPCODE_ATOMIC_CS, "ATOMIC_CS" },
		{ MLX5_OPCODE_ATOMIC_FA, "ATOMIC_FA" }, { MLX5_OPCODE_ATOMIC_MASKED_CS, "ATOMIC_MASKED_CS" },
		{ MLX5_OPCODE_ATOMIC_MASKED_FA, "ATOMIC_MASKED_FA" }, { MLX5_OPCODE_FMR, "FMR" },
		{ MLX5_OPCODE_LOCAL_INVAL, "LOCAL_INVAL" }, { MLX5_OPCODE_CONFIG_CMD, "CONFIG_CMD" },
		{ MLX5_OPCODE_SET_PSV, "SET_PSV" }, { MLX5_OPCODE_UMR, "UMR" },
		{ MLX5_OPCODE_TAG_MATCHING, "TAG_MATCHING" },
		{ MLX5_OPCODE_FLOW_TBL_ACCESS, "FLOW_TBL_ACCESS" }, { MLX5_OPCODE_MMO, "MMO" },
	};
	size_t known = 0;

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		assert_non_null(smx_op_info((uint8_t)rows[i].theirs));
		assert_string_equal(smx_op_info((uint8_t)rows[i].theirs)->name, rows[i].name);
	}
	for (int op = 0; op < 256; op++)
		known += smx_op_info((uint8_t)op) != NULL;
	assert_int_equal(known, SMX_COUNT(rows));
}

static void every_row_ends_and_only_one_flag_claims_the_immediate_word(void **state)
{
	const uint8_t word = SMX_OPF_IMM | SMX_OPF_INVAL | SMX_OPF_MKEY;

	(void)state;
	for (int op = 0; op < 256; op++) {
		const struct smx_op_info *info = smx_op_info((uint8_t)op);

		if (!info)
			continue;
		assert_int_equal(info->opcode, op);
		assert_int_equal(info->segs[sizeof(info->segs) - 1], SMX_SEG_END);
		assert_true(!(info->flags & word) || is_pow2(info->flags & word));
		/* A segment of open length is the last. */
		for (size_t i = 0; info->segs[i]; i++)
			if (info->segs[i] == SMX_SEG_DATA || info->segs[i] == SMX_SEG_RAW)
				assert_int_equal(info->segs[i + 1], SMX_SEG_END);
	}
}

static void segment_sizes_are_those_of_mlx5dv(void **state)
{
	(void)state;
	assert_int_equal(smx_seg_bytes(SMX_SEG_RADDR), sizeof(struct mlx5_wqe_raddr_seg));
	assert_int_equal(smx_seg_bytes(SMX_SEG_ATOMIC), sizeof(struct mlx5_wqe_atomic_seg));
	assert_int_equal(smx_seg_bytes(SMX_SEG_UMR_CTRL), sizeof(struct mlx5_wqe_umr_ctrl_seg));
	assert_int_equal(smx_seg_bytes(SMX_SEG_MKEY_CTX), sizeof(struct mlx5_wqe_mkey_context_seg));
	assert_int_equal(smx_seg_bytes(SMX_SEG_DATA), 0);
}

static void an_unknown_opcode_gets_its_number_as_name(void **state)
{
	char buf[16];

	(void)state;
	assert_string_equal(smx_op_name(0x08, buf), "RDMA_WRITE");
	assert_string_equal(smx_op_name(0x3f, buf), "opcode 0x3f");
	assert_null(smx_op_info(0x3f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opcodes_are_those_of_mlx5dv),
		cmocka_unit_test(every_row_ends_and_only_one_flag_claims_the_immediate_word),
		cmocka_unit_test(segment_sizes_are_those_of_mlx5dv),
		cmocka_unit_test(an_unknown_opcode_gets_its_number_as_name),
	};

	return cmocka_run_group_tests_name("hw/hw_opcode", tests, NULL, NULL);
}
