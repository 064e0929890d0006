/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state machine of queue pairs: which attributes a transition must and may have, and their ranges.
 *
 * The rows say what the kernel's ib_modify_qp_is_ok() accepts for RC, UC, UD and XRC, and what mlx5
 * accepts for DCI and DCT. Where a program gets only EINVAL from a kernel, the refusal here names the
 * attribute. */
#include "obj/qp.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "trace/state_name.h"

enum {
	STATE = IBV_QP_STATE,
	CUR = IBV_QP_CUR_STATE,
	SQD_EVENT = IBV_QP_EN_SQD_ASYNC_NOTIFY,
	ACCESS = IBV_QP_ACCESS_FLAGS,
	PKEY = IBV_QP_PKEY_INDEX,
	PORT = IBV_QP_PORT,
	QKEY = IBV_QP_QKEY,
	AV = IBV_QP_AV,
	MTU = IBV_QP_PATH_MTU,
	TIMEOUT = IBV_QP_TIMEOUT,
	RETRY = IBV_QP_RETRY_CNT,
	RNR_RETRY = IBV_QP_RNR_RETRY,
	RQ_PSN = IBV_QP_RQ_PSN,
	RD = IBV_QP_MAX_QP_RD_ATOMIC,
	ALT = IBV_QP_ALT_PATH,
	RNR_TIMER = IBV_QP_MIN_RNR_TIMER,
	SQ_PSN = IBV_QP_SQ_PSN,
	DEST_RD = IBV_QP_MAX_DEST_RD_ATOMIC,
	MIG = IBV_QP_PATH_MIG_STATE,
	DEST = IBV_QP_DEST_QPN,
};

enum { TYPES = SMX_QP_DCT + 1, STATES = IBV_QPS_ERR + 1 };

#define TYPE(t) (1u << SMX_QP_##t)
#define NOT_DC	(TYPE(RC) | TYPE(UC) | TYPE(UD) | TYPE(XRC_INI) | TYPE(XRC_TGT))
#define NOT_DCT (NOT_DC | TYPE(DCI))

struct transition {
	uint32_t types;			/* to whom the transition is open */
	int required[TYPES], optional[TYPES];
};

/* To RESET from anywhere, and to ERR from all but RESET. */
static const struct transition to_reset = {
	.types = NOT_DCT,
	.required = { [SMX_QP_DCI] = STATE },
};

static const struct transition reset_init = {
	.types = NOT_DCT | TYPE(DCT),
	.required = {
		[SMX_QP_RC] = PKEY | PORT | ACCESS,
		[SMX_QP_UC] = PKEY | PORT | ACCESS,
		[SMX_QP_UD] = PKEY | PORT | QKEY,
		[SMX_QP_XRC_INI] = PKEY | PORT | ACCESS,
		[SMX_QP_XRC_TGT] = PKEY | PORT | ACCESS,
		[SMX_QP_DCI] = STATE | PKEY | PORT,
		[SMX_QP_DCT] = STATE | PKEY | PORT | ACCESS,
	},
};

static const struct transition init_init = {
	.types = NOT_DCT,
	.required = { [SMX_QP_DCI] = STATE },
	.optional = {
		[SMX_QP_RC] = PKEY | PORT | ACCESS,
		[SMX_QP_UC] = PKEY | PORT | ACCESS,
		[SMX_QP_UD] = PKEY | PORT | QKEY,
		[SMX_QP_XRC_INI] = PKEY | PORT | ACCESS,
		[SMX_QP_XRC_TGT] = PKEY | PORT | ACCESS,
		[SMX_QP_DCI] = PKEY | PORT,
	},
};

static const struct transition init_rtr = {
	.types = NOT_DCT | TYPE(DCT),
	.required = {
		[SMX_QP_RC] = AV | MTU | DEST | RQ_PSN | DEST_RD | RNR_TIMER,
		[SMX_QP_UC] = AV | MTU | DEST | RQ_PSN,
		[SMX_QP_XRC_INI] = AV | MTU | DEST | RQ_PSN,
		[SMX_QP_XRC_TGT] = AV | MTU | DEST | RQ_PSN | DEST_RD | RNR_TIMER,
		[SMX_QP_DCI] = STATE | MTU,
		[SMX_QP_DCT] = STATE | RNR_TIMER | AV | MTU,
	},
	.optional = {
		[SMX_QP_RC] = ALT | ACCESS | PKEY,
		[SMX_QP_UC] = ALT | ACCESS | PKEY,
		[SMX_QP_UD] = PKEY | QKEY,
		[SMX_QP_XRC_INI] = ALT | ACCESS | PKEY,
		[SMX_QP_XRC_TGT] = ALT | ACCESS | PKEY,
		[SMX_QP_DCI] = PKEY | AV,
	},
};

static const struct transition rtr_rts = {
	.types = NOT_DCT,
	.required = {
		[SMX_QP_RC] = TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | RD,
		[SMX_QP_UC] = SQ_PSN,
		[SMX_QP_UD] = SQ_PSN,
		[SMX_QP_XRC_INI] = TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | RD,
		[SMX_QP_XRC_TGT] = TIMEOUT | SQ_PSN,
		[SMX_QP_DCI] = STATE | TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | RD,
	},
	.optional = {
		[SMX_QP_RC] = CUR | ALT | ACCESS | RNR_TIMER | MIG,
		[SMX_QP_UC] = CUR | ALT | ACCESS | MIG,
		[SMX_QP_UD] = CUR | QKEY,
		[SMX_QP_XRC_INI] = CUR | ALT | ACCESS | MIG,
		[SMX_QP_XRC_TGT] = CUR | ALT | ACCESS | RNR_TIMER | MIG,
		[SMX_QP_DCI] = RNR_TIMER,
	},
};

static const struct transition rts_rts = {
	.types = NOT_DCT,
	.required = { [SMX_QP_DCI] = STATE },
	.optional = {
		[SMX_QP_RC] = CUR | ACCESS | ALT | MIG | RNR_TIMER,
		[SMX_QP_UC] = CUR | ACCESS | ALT | MIG,
		[SMX_QP_UD] = CUR | QKEY,
		[SMX_QP_XRC_INI] = CUR | ACCESS | ALT | MIG,
		[SMX_QP_XRC_TGT] = CUR | ACCESS | ALT | MIG | RNR_TIMER,
		[SMX_QP_DCI] = RNR_TIMER,
	},
};

static const struct transition rts_sqd = {
	.types = NOT_DC,
	.optional = {
		[SMX_QP_RC] = SQD_EVENT,
		[SMX_QP_UC] = SQD_EVENT,
		[SMX_QP_UD] = SQD_EVENT,
		[SMX_QP_XRC_INI] = SQD_EVENT,
		[SMX_QP_XRC_TGT] = SQD_EVENT,
	},
};

static const struct transition sqd_rts = {
	.types = NOT_DC,
	.optional = {
		[SMX_QP_RC] = CUR | ALT | ACCESS | RNR_TIMER | MIG,
		[SMX_QP_UC] = CUR | ALT | ACCESS | MIG,
		[SMX_QP_UD] = CUR | QKEY,
		[SMX_QP_XRC_INI] = CUR | ALT | ACCESS | MIG,
		[SMX_QP_XRC_TGT] = CUR | ALT | ACCESS | RNR_TIMER | MIG,
	},
};

static const struct transition sqd_sqd = {
	.types = NOT_DC,
	.optional = {
		[SMX_QP_RC] = PORT | AV | TIMEOUT | RETRY | RNR_RETRY | RD | DEST_RD | ALT | ACCESS | PKEY |
			      RNR_TIMER | MIG,
		[SMX_QP_UC] = AV | ALT | ACCESS | PKEY | MIG,
		[SMX_QP_UD] = PKEY | QKEY,
		[SMX_QP_XRC_INI] = PORT | AV | TIMEOUT | RETRY | RNR_RETRY | RD | ALT | ACCESS | PKEY | MIG,
		[SMX_QP_XRC_TGT] = PORT | AV | TIMEOUT | DEST_RD | ALT | ACCESS | PKEY | RNR_TIMER | MIG,
	},
};

static const struct transition sqe_rts = {
	.types = NOT_DC,
	.optional = { [SMX_QP_UC] = CUR | ACCESS, [SMX_QP_UD] = CUR | QKEY },
};

/* [from][to]; NULL: to nobody. */
static const struct transition *const table[STATES][STATES] = {
	[IBV_QPS_RESET] = { [IBV_QPS_RESET] = &to_reset, [IBV_QPS_INIT] = &reset_init },
	[IBV_QPS_INIT] = { [IBV_QPS_RESET] = &to_reset, [IBV_QPS_ERR] = &to_reset,
			   [IBV_QPS_INIT] = &init_init, [IBV_QPS_RTR] = &init_rtr },
	[IBV_QPS_RTR] = { [IBV_QPS_RESET] = &to_reset, [IBV_QPS_ERR] = &to_reset,
			  [IBV_QPS_RTS] = &rtr_rts },
	[IBV_QPS_RTS] = { [IBV_QPS_RESET] = &to_reset, [IBV_QPS_ERR] = &to_reset,
			  [IBV_QPS_RTS] = &rts_rts, [IBV_QPS_SQD] = &rts_sqd },
	[IBV_QPS_SQD] = { [IBV_QPS_RESET] = &to_reset, [IBV_QPS_ERR] = &to_reset,
			  [IBV_QPS_RTS] = &sqd_rts, [IBV_QPS_SQD] = &sqd_sqd },
	[IBV_QPS_SQE] = { [IBV_QPS_RESET] = &to_reset, [IBV_QPS_ERR] = &to_reset,
			  [IBV_QPS_RTS] = &sqe_rts },
	[IBV_QPS_ERR] = { [IBV_QPS_RESET] = &to_reset, [IBV_QPS_ERR] = &to_reset },
};

static const char *const type_names[TYPES] = {
	[SMX_QP_RC] = "RC", [SMX_QP_UC] = "UC", [SMX_QP_UD] = "UD", [SMX_QP_XRC_INI] = "XRC_SEND",
	[SMX_QP_XRC_TGT] = "XRC_RECV", [SMX_QP_DCI] = "DCI", [SMX_QP_DCT] = "DCT",
};

static const struct { int bit; const char *name; } attr_names[] = {
	{ STATE, "STATE" }, { CUR, "CUR_STATE" }, { SQD_EVENT, "EN_SQD_ASYNC_NOTIFY" },
	{ ACCESS, "ACCESS_FLAGS" }, { PKEY, "PKEY_INDEX" }, { PORT, "PORT" }, { QKEY, "QKEY" },
	{ AV, "AV" }, { MTU, "PATH_MTU" }, { TIMEOUT, "TIMEOUT" }, { RETRY, "RETRY_CNT" },
	{ RNR_RETRY, "RNR_RETRY" }, { RQ_PSN, "RQ_PSN" }, { RD, "MAX_QP_RD_ATOMIC" },
	{ ALT, "ALT_PATH" }, { RNR_TIMER, "MIN_RNR_TIMER" }, { SQ_PSN, "SQ_PSN" },
	{ DEST_RD, "MAX_DEST_RD_ATOMIC" }, { MIG, "PATH_MIG_STATE" }, { IBV_QP_CAP, "CAP" },
	{ DEST, "DEST_QPN" }, { IBV_QP_RATE_LIMIT, "RATE_LIMIT" },
};

/* Writes "IBV_QP_AV IBV_QP_PATH_MTU" into buf. */
static const char *mask_text(int mask, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < SMX_COUNT(attr_names) && at < len; i++) {
		if (mask & attr_names[i].bit)
			at += (size_t)snprintf(buf + at, len - at, "%sIBV_QP_%s", at ? " " : "",
					       attr_names[i].name);
	}
	return buf;
}

static int known_mask(void)
{
	int mask = 0;

	for (size_t i = 0; i < SMX_COUNT(attr_names); i++)
		mask |= attr_names[i].bit;
	return mask;
}

static struct smx_where where_of(const struct smx_qp *qp)
{
	return (struct smx_where){ .qpn = qp->qpn, .cookie = qp->attr.cookie };
}

static int check_mask(struct smx_dev *dev, const struct smx_qp *qp, enum ibv_qp_state to, int mask)
{
	struct smx_where where = where_of(qp);
	enum smx_qp_type type = qp->attr.type;
	const struct transition *t;
	int missing, extra;
	char names[200];

	if (mask & ~known_mask())
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_ATTR_MASK, &where,
				  "attr_mask 0x%x, unknown bits 0x%x", mask, mask & ~known_mask());
	t = (unsigned int)to < STATES ? table[qp->state][to] : NULL;
	if (!t || !(t->types & (1u << type)))
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_QP_STATE, &where,
				  "%s queue pair from %s to %s", type_names[type], smx_state_name(qp->state),
				  smx_state_name((unsigned int)to));
	missing = t->required[type] & ~mask;
	if (missing)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_QP_ATTR_MISSING, &where,
				  "%s %s to %s needs also %s", type_names[type], smx_state_name(qp->state),
				  smx_state_name(to), mask_text(missing, names, sizeof(names)));
	extra = mask & ~(t->required[type] | t->optional[type] | STATE);
	if (extra)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_QP_ATTR_EXTRA, &where,
				  "%s %s to %s does not take %s", type_names[type], smx_state_name(qp->state),
				  smx_state_name(to), mask_text(extra, names, sizeof(names)));
	return 0;
}

enum { PORTS = 1, PKEYS = 1, MAX_RD_ATOMIC = SMX_MAX_RD_ATOMIC, PSN_MAX = 0xffffff };

static int check_ranges(struct smx_dev *dev, const struct smx_qp *qp, const struct ibv_qp_attr *attr,
			int mask)
{
	const struct { int bit; const char *name; uint64_t value, min, max; } ranges[] = {
		{ PORT, "port_num", attr->port_num, 1, PORTS },
		{ PKEY, "pkey_index", attr->pkey_index, 0, PKEYS - 1 },
		{ MTU, "path_mtu", attr->path_mtu, IBV_MTU_256, IBV_MTU_4096 },
		{ TIMEOUT, "timeout", attr->timeout, 0, 31 },
		{ RETRY, "retry_cnt", attr->retry_cnt, 0, 7 },
		{ RNR_RETRY, "rnr_retry", attr->rnr_retry, 0, 7 },
		{ RNR_TIMER, "min_rnr_timer", attr->min_rnr_timer, 0, 31 },
		{ RQ_PSN, "rq_psn", attr->rq_psn, 0, PSN_MAX },
		{ SQ_PSN, "sq_psn", attr->sq_psn, 0, PSN_MAX },
		{ RD, "max_rd_atomic", attr->max_rd_atomic, 0, MAX_RD_ATOMIC },
		{ DEST_RD, "max_dest_rd_atomic", attr->max_dest_rd_atomic, 0, MAX_RD_ATOMIC },
		{ DEST, "dest_qp_num", attr->dest_qp_num, 0, 0xffffff },
		{ AV, "ah_attr.static_rate", attr->ah_attr.static_rate, 0, IBV_RATE_1200_GBPS },
	};
	struct smx_where where = where_of(qp);

	for (size_t i = 0; i < SMX_COUNT(ranges); i++) {
		if (!(mask & ranges[i].bit))
			continue;
		if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
			return smx_refuse(dev->attr.env.refusals, SMX_CHECK_QP_ATTR_VALUE, &where,
					  "%s %" PRIu64 ", must be %" PRIu64 " to %" PRIu64, ranges[i].name,
					  ranges[i].value, ranges[i].min, ranges[i].max);
	}
	return 0;
}

/* What depends on the port, the path or the present state. */
static int check_values(struct smx_dev *dev, const struct smx_qp *qp, const struct ibv_qp_attr *attr,
			int mask)
{
	struct smx_where where = where_of(qp);

	if ((mask & CUR) && attr->cur_qp_state != qp->state)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_QP_ATTR_VALUE, &where,
				  "cur_qp_state %s, the queue pair is in %s", smx_state_name(attr->cur_qp_state),
				  smx_state_name(qp->state));
	if ((mask & MTU) && (128u << attr->path_mtu) > dev->attr.mtu_bytes)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_QP_ATTR_VALUE, &where,
				  "path_mtu %u bytes, the port's active_mtu is %" PRIu32,
				  128u << attr->path_mtu, dev->attr.mtu_bytes);
	if ((mask & AV) && !attr->ah_attr.is_global)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_AH_NO_GRH, &where,
				  "ah_attr.is_global %u", attr->ah_attr.is_global);
	if ((mask & AV) && attr->ah_attr.static_rate == 1)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_QP_ATTR_VALUE, &where,
				  "ah_attr.static_rate 1 is no enum ibv_rate");
	if (mask & ALT)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_NOT_OFFERED, &where,
				  "IBV_QP_ALT_PATH: RoCE has no path migration");
	if ((mask & MIG) && attr->path_mig_state != IBV_MIG_MIGRATED)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_NOT_OFFERED, &where,
				  "path_mig_state %d: RoCE has no path migration",
				  (int)attr->path_mig_state);
	return 0;
}

int smx_qp_check_modify(struct smx_dev *dev, const struct smx_qp *qp, enum ibv_qp_state to,
			const struct ibv_qp_attr *attr, int mask)
{
	int err;

	assert((unsigned int)qp->state < STATES);
	assert((unsigned int)qp->attr.type < TYPES);
	err = check_mask(dev, qp, to, mask);
	if (!err)
		err = check_ranges(dev, qp, attr, mask);
	if (!err)
		err = check_values(dev, qp, attr, mask);
	return err;
}

bool smx_qp_type_executes(enum smx_qp_type type, uint8_t opcode)
{
	const uint32_t reliable = TYPE(RC) | TYPE(XRC_INI) | TYPE(DCI);
	uint32_t types = 0;

	switch (opcode) {
	case SMX_OP_NOP:
	case SMX_OP_SEND:
	case SMX_OP_SEND_IMM:
		types = reliable | TYPE(UC) | TYPE(UD);
		break;
	case SMX_OP_SEND_INVAL:
	case SMX_OP_RDMA_WRITE:
	case SMX_OP_RDMA_WRITE_IMM:
	case SMX_OP_UMR:
		types = reliable | TYPE(UC);
		break;
	case SMX_OP_RDMA_READ:
	case SMX_OP_ATOMIC_CS:
	case SMX_OP_ATOMIC_FA:
	case SMX_OP_ATOMIC_MASKED_CS:
	case SMX_OP_ATOMIC_MASKED_FA:
		types = reliable;
		break;
	case SMX_OP_TAG_MATCHING:
		types = TYPE(RC);
		break;
	case SMX_OP_MMO:
		types = TYPE(RC) | TYPE(DCI);
		break;
	default:
		break;
	}
	return types & (1u << type);
}
