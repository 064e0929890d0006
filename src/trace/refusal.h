/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Why something was refused.
 *
 * Every check that can refuse a call or fail a work request has a row in refusal.def: number, name,
 * the errno or the completion codes it causes, a sentence, and where the rule comes from. A refusal
 * is made by smx_refuse() and nowhere else; it adds the offending values, keeps the last 64, and hands
 * each to a sink (the line on stderr). Thread-safe. */
#ifndef SMX_REFUSAL_H
#define SMX_REFUSAL_H

#include <stdint.h>

enum smx_check {
	SMX_CHECK_NONE,
#define SMX_CHECK_CALL(id, err, text, source) SMX_CHECK_##id,
#define SMX_CHECK_CQE(id, syndrome, vendor, hw, grade, text, source) SMX_CHECK_##id,
#include "trace/refusal.def"
#undef SMX_CHECK_CALL
#undef SMX_CHECK_CQE
	SMX_CHECK_COUNT
};

struct smx_check_info {
	const char *name;	/* "lkey_unknown_gather" */
	const char *text;	/* the rule that was broken, one sentence */
	const char *source;	/* where the rule and its codes come from */
	char grade;		/* codes: M measured, S stated, O observed, I inferred; 0 for a call */
	int err;		/* errno of a refused call, 0 for a failed work request */
	uint8_t syndrome;	/* enum smx_cqe_syndrome */
	uint8_t vendor;
	uint8_t hw;
};

const struct smx_check_info *smx_check_info(enum smx_check check);

/* Where it happened; fields that do not apply are 0. */
struct smx_where {
	uint32_t qpn;
	uint32_t peer_qpn;
	uint16_t wqe_index;	/* send: BB index as in the CQE; receive: index in its queue */
	uint8_t opcode;		/* enum smx_wqe_op of the failing WQE */
	uint8_t is_recv;	/* the failing WQE is a receive */
	void *cookie;		/* the program's queue pair, as given at creation */
};

struct smx_refusal {
	uint64_t seq;		/* 1 for the first of the process */
	enum smx_check check;
	struct smx_where where;
	uint64_t wr_id;		/* filled in by the sink's owner where it is known */
	char text[240];		/* the offending values */
};

enum { SMX_REFUSALS_KEPT = 64 };

struct smx_refusal_log {
	uint64_t count;		/* refusals ever */
	uint8_t lock;
	/* Called outside the lock, once a refusal, on the refusing thread; may fill in wr_id. */
	void (*sink)(struct smx_refusal *r, void *arg);
	void *sink_arg;
	struct smx_refusal kept[SMX_REFUSALS_KEPT];
};

/* RETURN check's errno (0 for a work request's check), so that a call can `return smx_refuse(…)`. where
 * may be NULL; fmt adds the values, such as "length 4097, region has 4096". */
int smx_refuse(struct smx_refusal_log *log, enum smx_check check, const struct smx_where *where,
	       const char *fmt, ...) __attribute__((format(printf, 4, 5), cold));

/* Copies the n-th last refusal (0 is the newest). RETURN 1, or 0 where there is none. */
int smx_refusal_get(struct smx_refusal_log *log, unsigned int n, struct smx_refusal *out);

#endif
