/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: every transition of every type is open or closed as the kernel and mlx5 have it, attribute by attribute.
 * Method: an independent list of what is open, one row a transition and type, each with its masks in numbers; for
 * each pair of states and type, every attribute is added and removed in turn. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "obj/qp.h"

#define R IBV_QPS_RESET
#define I IBV_QPS_INIT
#define T IBV_QPS_RTR
#define S IBV_QPS_RTS
#define D IBV_QPS_SQD
#define Q IBV_QPS_SQE
#define E IBV_QPS_ERR

/* Bits of enum ibv_qp_attr_mask: STATE 1, CUR 2, SQD_EVENT 4, ACCESS 8, PKEY 10, PORT 20, QKEY 40, AV 80, MTU 100,
 * TIMEOUT 200, RETRY 400, RNR_RETRY 800, RQ_PSN 1000, RD 2000, ALT 4000, RNR_TIMER 8000, SQ_PSN 10000,
 * DEST_RD 20000, MIG 40000, DEST 100000. required leaves STATE out but for DC, where it is needed. */
static const struct row {
	enum ibv_qp_state from, to;
	enum smx_qp_type type;
	int required, optional;
} rows[] = {
	{ R, I, SMX_QP_RC, 0x38, 0 }, { R, I, SMX_QP_UC, 0x38, 0 }, { R, I, SMX_QP_UD, 0x70, 0 },
	{ R, I, SMX_QP_XRC_INI, 0x38, 0 }, { R, I, SMX_QP_XRC_TGT, 0x38, 0 },
	{ R, I, SMX_QP_DCI, 0x31, 0 }, { R, I, SMX_QP_DCT, 0x39, 0 },

	{ I, I, SMX_QP_RC, 0, 0x38 }, { I, I, SMX_QP_UC, 0, 0x38 }, { I, I, SMX_QP_UD, 0, 0x70 },
	{ I, I, SMX_QP_XRC_INI, 0, 0x38 }, { I, I, SMX_QP_XRC_TGT, 0, 0x38 }, { I, I, SMX_QP_DCI, 1, 0x30 },

	{ I, T, SMX_QP_RC, 0x129180, 0x4018 }, { I, T, SMX_QP_UC, 0x101180, 0x4018 },
	{ I, T, SMX_QP_UD, 0, 0x50 }, { I, T, SMX_QP_XRC_INI, 0x101180, 0x4018 },
	{ I, T, SMX_QP_XRC_TGT, 0x129180, 0x4018 }, { I, T, SMX_QP_DCI, 0x101, 0x90 },
	{ I, T, SMX_QP_DCT, 0x8181, 0 },

	{ T, S, SMX_QP_RC, 0x12e00, 0x4c00a }, { T, S, SMX_QP_UC, 0x10000, 0x4400a },
	{ T, S, SMX_QP_UD, 0x10000, 0x42 }, { T, S, SMX_QP_XRC_INI, 0x12e00, 0x4400a },
	{ T, S, SMX_QP_XRC_TGT, 0x10200, 0x4c00a }, { T, S, SMX_QP_DCI, 0x12e01, 0x8000 },

	{ S, S, SMX_QP_RC, 0, 0x4c00a }, { S, S, SMX_QP_UC, 0, 0x4400a }, { S, S, SMX_QP_UD, 0, 0x42 },
	{ S, S, SMX_QP_XRC_INI, 0, 0x4400a }, { S, S, SMX_QP_XRC_TGT, 0, 0x4c00a },
	{ S, S, SMX_QP_DCI, 1, 0x8000 },

	{ S, D, SMX_QP_RC, 0, 4 }, { S, D, SMX_QP_UC, 0, 4 }, { S, D, SMX_QP_UD, 0, 4 },
	{ S, D, SMX_QP_XRC_INI, 0, 4 }, { S, D, SMX_QP_XRC_TGT, 0, 4 },

	{ D, S, SMX_QP_RC, 0, 0x4c00a }, { D, S, SMX_QP_UC, 0, 0x4400a }, { D, S, SMX_QP_UD, 0, 0x42 },
	{ D, S, SMX_QP_XRC_INI, 0, 0x4400a }, { D, S, SMX_QP_XRC_TGT, 0, 0x4c00a },

	{ D, D, SMX_QP_RC, 0, 0x6eeb8 }, { D, D, SMX_QP_UC, 0, 0x44098 }, { D, D, SMX_QP_UD, 0, 0x50 },
	{ D, D, SMX_QP_XRC_INI, 0, 0x46eb8 }, { D, D, SMX_QP_XRC_TGT, 0, 0x6c2b8 },

	{ Q, S, SMX_QP_RC, 0, 0 }, { Q, S, SMX_QP_UC, 0, 0xa }, { Q, S, SMX_QP_UD, 0, 0x42 },
	{ Q, S, SMX_QP_XRC_INI, 0, 0 }, { Q, S, SMX_QP_XRC_TGT, 0, 0 },
};

static const enum ibv_qp_state states[] = { R, I, T, S, D, Q, E };

static bool find(enum ibv_qp_state from, enum ibv_qp_state to, enum smx_qp_type type, int *required,
		 int *optional)
{
	*required = *optional = 0;
	if (type != SMX_QP_DCT && (to == R || (to == E && from != R))) {
		*required = type == SMX_QP_DCI;
		return true;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].from != from || rows[i].to != to || rows[i].type != type)
			continue;
		*required = rows[i].required;
		*optional = rows[i].optional;
		return true;
	}
	return false;
}

/* Values that are in range for every attribute. */
static struct ibv_qp_attr good(enum ibv_qp_state from)
{
	struct ibv_qp_attr attr = { .cur_qp_state = from, .path_mtu = IBV_MTU_1024, .port_num = 1,
				    .path_mig_state = IBV_MIG_MIGRATED };

	attr.ah_attr.is_global = 1;
	return attr;
}

static struct smx_refusal_log log_;
static struct smx_dev dev = { .attr = { .mtu_bytes = 2048, .env.refusals = &log_ } };

static enum smx_check last_check(void)
{
	struct smx_refusal r;

	return smx_refusal_get(&log_, 0, &r) ? r.check : SMX_CHECK_NONE;
}

static int modify(enum smx_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	struct smx_qp qp = { .attr = { .type = type }, .state = from };
	struct ibv_qp_attr attr = good(from);

	return smx_qp_check_modify(&dev, &qp, to, &attr, mask);
}

static void check_attributes(enum smx_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int required,
			     int optional)
{
	const int alt = IBV_QP_ALT_PATH;	/* allowed by the table; not offered */

	assert_int_equal(modify(type, from, to, required | 1), 0);
	assert_int_equal(modify(type, from, to, required | (optional & ~alt) | 1), 0);
	for (int bit = 1; bit <= 1 << 20; bit <<= 1) {
		if (required & bit) {
			assert_int_equal(modify(type, from, to, (required | 1) & ~bit), EINVAL);
			assert_int_equal(last_check(), SMX_CHECK_QP_ATTR_MISSING);
		} else if (bit == alt && (optional & alt)) {
			assert_int_equal(modify(type, from, to, required | alt | 1), EOPNOTSUPP);
		} else if (optional & bit) {
			assert_int_equal(modify(type, from, to, required | bit | 1), 0);
		} else if (bit != 1) {
			assert_int_equal(modify(type, from, to, required | bit | 1), EINVAL);
			assert_int_equal(last_check(), SMX_CHECK_QP_ATTR_EXTRA);
		}
	}
}

static void follows_the_table(void **state)
{
	int open = 0;

	(void)state;
	for (int type = SMX_QP_RC; type <= SMX_QP_DCT; type++) {
		for (size_t f = 0; f < 7; f++) {
			for (size_t t = 0; t < 7; t++) {
				int required, optional;

				if (find(states[f], states[t], type, &required, &optional)) {
					check_attributes(type, states[f], states[t], required, optional);
					open++;
					continue;
				}
				assert_int_equal(modify(type, states[f], states[t], 0x1fffff), EINVAL);
				assert_int_equal(last_check(), SMX_CHECK_QP_STATE);
			}
		}
	}
	assert_int_equal(open, 130);
}

static void refuses_unknown_bits_and_states(void **state)
{
	(void)state;
	assert_int_equal(modify(SMX_QP_RC, R, I, 0x39 | 1 << 21), EOPNOTSUPP);
	assert_int_equal(last_check(), SMX_CHECK_ATTR_MASK);
	assert_int_equal(modify(SMX_QP_RC, R, (enum ibv_qp_state)99, 1), EINVAL);
	assert_int_equal(last_check(), SMX_CHECK_QP_STATE);
}

struct value_row {
	const char *name;
	void (*set)(struct ibv_qp_attr *a, uint32_t v);
	enum ibv_qp_state from, to;
	int mask;
	uint32_t good, bad;
	enum smx_check want;
};

static void set_port(struct ibv_qp_attr *a, uint32_t v) { a->port_num = (uint8_t)v; }
static void set_pkey(struct ibv_qp_attr *a, uint32_t v) { a->pkey_index = (uint16_t)v; }
static void set_mtu(struct ibv_qp_attr *a, uint32_t v) { a->path_mtu = v; }
static void set_retry(struct ibv_qp_attr *a, uint32_t v) { a->retry_cnt = (uint8_t)v; }
static void set_rnr_retry(struct ibv_qp_attr *a, uint32_t v) { a->rnr_retry = (uint8_t)v; }
static void set_timeout(struct ibv_qp_attr *a, uint32_t v) { a->timeout = (uint8_t)v; }
static void set_rnr_timer(struct ibv_qp_attr *a, uint32_t v) { a->min_rnr_timer = (uint8_t)v; }
static void set_rq_psn(struct ibv_qp_attr *a, uint32_t v) { a->rq_psn = v; }
static void set_sq_psn(struct ibv_qp_attr *a, uint32_t v) { a->sq_psn = v; }
static void set_dest(struct ibv_qp_attr *a, uint32_t v) { a->dest_qp_num = v; }
static void set_rd(struct ibv_qp_attr *a, uint32_t v) { a->max_rd_atomic = (uint8_t)v; }
static void set_dest_rd(struct ibv_qp_attr *a, uint32_t v) { a->max_dest_rd_atomic = (uint8_t)v; }
static void set_global(struct ibv_qp_attr *a, uint32_t v) { a->ah_attr.is_global = (uint8_t)v; }
static void set_rate(struct ibv_qp_attr *a, uint32_t v) { a->ah_attr.static_rate = (uint8_t)v; }
static void set_cur(struct ibv_qp_attr *a, uint32_t v) { a->cur_qp_state = v; }
static void set_mig(struct ibv_qp_attr *a, uint32_t v) { a->path_mig_state = v; }

enum { TO_INIT = 0x39, TO_RTR = 0x129181, TO_RTS = 0x12e01 };

static const struct value_row values[] = {
	{ "port 0", set_port, R, I, TO_INIT, 1, 0, SMX_CHECK_QP_ATTR_VALUE },
	{ "port 2", set_port, R, I, TO_INIT, 1, 2, SMX_CHECK_QP_ATTR_VALUE },
	{ "pkey index", set_pkey, R, I, TO_INIT, 0, 1, SMX_CHECK_QP_ATTR_VALUE },
	{ "mtu 0", set_mtu, I, T, TO_RTR, IBV_MTU_256, 0, SMX_CHECK_QP_ATTR_VALUE },
	{ "mtu above active", set_mtu, I, T, TO_RTR, IBV_MTU_2048, IBV_MTU_4096, SMX_CHECK_QP_ATTR_VALUE },
	{ "mtu unknown", set_mtu, I, T, TO_RTR, IBV_MTU_2048, 6, SMX_CHECK_QP_ATTR_VALUE },
	{ "min_rnr_timer", set_rnr_timer, I, T, TO_RTR, 31, 32, SMX_CHECK_QP_ATTR_VALUE },
	{ "rq_psn", set_rq_psn, I, T, TO_RTR, 0xffffff, 0x1000000, SMX_CHECK_QP_ATTR_VALUE },
	{ "dest_qp_num", set_dest, I, T, TO_RTR, 0xffffff, 0x1000000, SMX_CHECK_QP_ATTR_VALUE },
	{ "max_dest_rd_atomic", set_dest_rd, I, T, TO_RTR, 16, 17, SMX_CHECK_QP_ATTR_VALUE },
	{ "no GRH", set_global, I, T, TO_RTR, 1, 0, SMX_CHECK_AH_NO_GRH },
	{ "static rate 1", set_rate, I, T, TO_RTR, IBV_RATE_100_GBPS, 1, SMX_CHECK_QP_ATTR_VALUE },
	{ "static rate garbage", set_rate, I, T, TO_RTR, 0, 0xa5, SMX_CHECK_QP_ATTR_VALUE },
	{ "timeout", set_timeout, T, S, TO_RTS, 31, 32, SMX_CHECK_QP_ATTR_VALUE },
	{ "retry_cnt", set_retry, T, S, TO_RTS, 7, 8, SMX_CHECK_QP_ATTR_VALUE },
	{ "rnr_retry", set_rnr_retry, T, S, TO_RTS, 7, 8, SMX_CHECK_QP_ATTR_VALUE },
	{ "sq_psn", set_sq_psn, T, S, TO_RTS, 0xffffff, 0x1000000, SMX_CHECK_QP_ATTR_VALUE },
	{ "max_rd_atomic", set_rd, T, S, TO_RTS, 16, 17, SMX_CHECK_QP_ATTR_VALUE },
	{ "cur state", set_cur, T, S, TO_RTS | IBV_QP_CUR_STATE, T, S, SMX_CHECK_QP_ATTR_VALUE },
	{ "migration", set_mig, T, S, TO_RTS | IBV_QP_PATH_MIG_STATE, IBV_MIG_MIGRATED, IBV_MIG_REARM,
	  SMX_CHECK_NOT_OFFERED },
};

static void refuses_values_out_of_range(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		const struct value_row *row = &values[i];
		struct smx_qp qp = { .attr = { .type = SMX_QP_RC }, .state = row->from };
		struct ibv_qp_attr attr = good(row->from);

		print_message("%s\n", row->name);
		row->set(&attr, row->good);
		assert_int_equal(smx_qp_check_modify(&dev, &qp, row->to, &attr, row->mask), 0);
		row->set(&attr, row->bad);
		assert_int_not_equal(smx_qp_check_modify(&dev, &qp, row->to, &attr, row->mask), 0);
		assert_int_equal(last_check(), row->want);
	}
}

/* A bit for each opcode 0..63 that a type executes. */
static void types_execute_their_opcodes(void **state)
{
	const uint64_t send = 1ull << SMX_OP_NOP | 1ull << SMX_OP_SEND | 1ull << SMX_OP_SEND_IMM;
	const uint64_t write = send | 1ull << SMX_OP_SEND_INVAL | 1ull << SMX_OP_RDMA_WRITE |
			       1ull << SMX_OP_RDMA_WRITE_IMM | 1ull << SMX_OP_UMR;
	const uint64_t read = write | 1ull << SMX_OP_RDMA_READ | 0x36ull << 16;
	const uint64_t mmo = 1ull << SMX_OP_MMO, tag = 1ull << SMX_OP_TAG_MATCHING;
	const uint64_t want[] = {
		[SMX_QP_RC] = read | mmo | tag, [SMX_QP_UC] = write, [SMX_QP_UD] = send, [SMX_QP_XRC_INI] = read,
		[SMX_QP_XRC_TGT] = 0, [SMX_QP_DCI] = read | mmo, [SMX_QP_DCT] = 0,
	};

	(void)state;
	for (int type = SMX_QP_RC; type <= SMX_QP_DCT; type++) {
		for (int op = 0; op < 256; op++)
			assert_int_equal(smx_qp_type_executes(type, (uint8_t)op),
					 op < 64 && (want[type] >> op & 1));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(follows_the_table),
		cmocka_unit_test(refuses_unknown_bits_and_states),
		cmocka_unit_test(refuses_values_out_of_range),
		cmocka_unit_test(types_execute_their_opcodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
