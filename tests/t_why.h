/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which check refused? For tests of wrong input: the newest refusals by name. Uses softmlx5.h. */
#ifndef T_WHY_H
#define T_WHY_H

#include <strings.h>

#include "softmlx5.h"
#include "t.h"

static uint64_t t_why_mark;

/* Only refusals after this count. */
static inline void t_why_begin(void)
{
	t_why_mark = softmlx5_refusal_count(NULL);
}

/* Was there a refusal of this name since t_why_begin(), of queue pair qpn (0: any) or its peer? */
#define T_WHY(name, qpn) t_why((name), (qpn), __FILE__, __LINE__)
static inline bool t_why(const char *name, uint32_t qpn, const char *file, int line)
{
	struct softmlx5_refusal r;
	char seen[160] = "none";
	size_t at = 0;

	for (unsigned int n = 0; softmlx5_last_refusal(NULL, n, &r) == 0 && r.seq > t_why_mark; n++) {
		if (!strcasecmp(r.name, name) && (!qpn || r.qp_num == qpn || r.peer_qp_num == qpn)) {
			if (!r.rule || !r.rule[0] || !r.values[0])
				t_fail(file, line, "refusal %s has no sentence or no values", name);
			return true;
		}
		if (at < sizeof(seen))
			at += snprintf(seen + at, sizeof(seen) - at, "%s%s(0x%x)", at ? ", " : "", r.name, r.qp_num);
	}
	t_fail(file, line, "no refusal %s of 0x%x; there were: %s", name, qpn, seen);
	return false;
}

/* How many of this name since t_why_begin()? */
__attribute__((unused)) static unsigned int t_why_count(const char *name)
{
	struct softmlx5_refusal r;
	unsigned int count = 0;

	for (unsigned int n = 0; softmlx5_last_refusal(NULL, n, &r) == 0 && r.seq > t_why_mark; n++)
		count += !strcasecmp(r.name, name);
	return count;
}

/* The codes of every check that fails a work request, as src/trace/refusal.def lists them: status, syndrome,
 * vendor, hw. C_ for tables, T_ for arguments. */
#define C_LOC_LEN		{ IBV_WC_LOC_LEN_ERR, 0x01, 0x68, 0x00 }
#define C_QP_OP		{ IBV_WC_LOC_QP_OP_ERR, 0x02, 0x68, 0x00 }
#define C_WQE_INDEX		{ IBV_WC_LOC_QP_OP_ERR, 0x02, 0x68, 0x01 }
#define C_WQE_OPCODE	{ IBV_WC_LOC_QP_OP_ERR, 0x02, 0x00, 0xb2 }
#define C_OCTOWORDS		{ IBV_WC_LOC_QP_OP_ERR, 0x02, 0x68, 0x86 }
#define C_GATHER_KEY	{ IBV_WC_LOC_PROT_ERR, 0x04, 0x52, 0x93 }
#define C_GATHER_RANGE	{ IBV_WC_LOC_PROT_ERR, 0x04, 0x53, 0x9d }
#define C_GATHER_FAULT	{ IBV_WC_LOC_PROT_ERR, 0x04, 0x51, 0x02 }
#define C_SCATTER_KEY	{ IBV_WC_LOC_PROT_ERR, 0x04, 0x32, 0x93 }
#define C_SCATTER_RANGE	{ IBV_WC_LOC_PROT_ERR, 0x04, 0x33, 0x9d }
#define C_SCATTER_FAULT	{ IBV_WC_LOC_PROT_ERR, 0x04, 0x36, 0xa9 }
#define C_RECV_KEY		{ IBV_WC_LOC_PROT_ERR, 0x04, 0x32, 0x92 }
#define C_RECV_PD		{ IBV_WC_LOC_PROT_ERR, 0x04, 0x32, 0x93 }
#define C_RECV_RANGE	{ IBV_WC_LOC_PROT_ERR, 0x04, 0x33, 0x9d }
#define C_RECV_FAULT	{ IBV_WC_LOC_PROT_ERR, 0x04, 0x56, 0xa9 }
#define C_FLUSH_NOW		{ IBV_WC_WR_FLUSH_ERR, 0x05, 0xf5, 0x00 }
#define C_FLUSH		{ IBV_WC_WR_FLUSH_ERR, 0x05, 0xf9, 0x00 }
#define C_UMR_KEY		{ IBV_WC_MW_BIND_ERR, 0x06, 0x78, 0x08 }
#define C_UMR_SIZE		{ IBV_WC_MW_BIND_ERR, 0x06, 0x78, 0x0f }
#define C_UMR_OTHER		{ IBV_WC_MW_BIND_ERR, 0x06, 0x78, 0x00 }
#define C_REM_INV		{ IBV_WC_REM_INV_REQ_ERR, 0x12, 0x8a, 0x00 }
#define C_REM_ACCESS	{ IBV_WC_REM_ACCESS_ERR, 0x13, 0x88, 0x00 }
#define C_REM_OP		{ IBV_WC_REM_OP_ERR, 0x14, 0x89, 0x00 }
#define C_RETRY		{ IBV_WC_RETRY_EXC_ERR, 0x15, 0x81, 0x00 }
#define C_RNR		{ IBV_WC_RNR_RETRY_EXC_ERR, 0x16, 0x87, 0x00 }

#define T_LOC_LEN		((struct t_codes) C_LOC_LEN)
#define T_QP_OP		((struct t_codes) C_QP_OP)
#define T_WQE_INDEX		((struct t_codes) C_WQE_INDEX)
#define T_WQE_OPCODE	((struct t_codes) C_WQE_OPCODE)
#define T_OCTOWORDS		((struct t_codes) C_OCTOWORDS)
#define T_GATHER_KEY	((struct t_codes) C_GATHER_KEY)
#define T_GATHER_RANGE	((struct t_codes) C_GATHER_RANGE)
#define T_GATHER_FAULT	((struct t_codes) C_GATHER_FAULT)
#define T_SCATTER_KEY	((struct t_codes) C_SCATTER_KEY)
#define T_SCATTER_RANGE	((struct t_codes) C_SCATTER_RANGE)
#define T_SCATTER_FAULT	((struct t_codes) C_SCATTER_FAULT)
#define T_RECV_KEY		((struct t_codes) C_RECV_KEY)
#define T_RECV_PD		((struct t_codes) C_RECV_PD)
#define T_RECV_RANGE	((struct t_codes) C_RECV_RANGE)
#define T_RECV_FAULT	((struct t_codes) C_RECV_FAULT)
#define T_FLUSH_NOW		((struct t_codes) C_FLUSH_NOW)
#define T_FLUSH		((struct t_codes) C_FLUSH)
#define T_UMR_KEY		((struct t_codes) C_UMR_KEY)
#define T_UMR_SIZE		((struct t_codes) C_UMR_SIZE)
#define T_UMR_OTHER		((struct t_codes) C_UMR_OTHER)
#define T_REM_INV		((struct t_codes) C_REM_INV)
#define T_REM_ACCESS	((struct t_codes) C_REM_ACCESS)
#define T_REM_OP		((struct t_codes) C_REM_OP)
#define T_RETRY		((struct t_codes) C_RETRY)
#define T_RNR		((struct t_codes) C_RNR)

/* A completion that was flushed behind root: its hw byte is a copy of root's ("copy of root"). */
static inline struct t_codes t_behind(struct t_codes root, bool current)
{
	return (struct t_codes) { IBV_WC_WR_FLUSH_ERR, 0x05, current ? 0xf5 : 0xf9, root.hw };
}

#endif
