/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the codes of an error CQE mean, and what is known to cause them. */
#ifndef SMX_HW_CAUSE_H
#define SMX_HW_CAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* Syndrome of the CQE and status of the work completion that libibverbs makes of it. */
struct smx_status {
	bool known;		/* false: a syndrome of no public meaning, reported as general error */
	uint8_t syndrome;	/* enum smx_cqe_syndrome */
	uint8_t status;		/* number of enum ibv_wc_status */
	const char *name;	/* "IBV_WC_LOC_PROT_ERR" */
	const char *text;	/* "local protection error" */
};

const struct smx_status *smx_status_of(uint8_t syndrome);

/* By number of enum ibv_wc_status; NULL where no syndrome gives that status. */
const struct smx_status *smx_status_by_number(uint32_t status);

enum smx_side {
	SMX_SIDE_REQ = 1 << 0,	/* a send work request failed */
	SMX_SIDE_RESP = 1 << 1,	/* a receive failed */
	SMX_SIDE_ANY = 3,
};

enum { SMX_CODE_UNKNOWN = -1 };

/* What there is to go by; SMX_CODE_UNKNOWN where a code is not. */
struct smx_codes {
	uint8_t syndrome;
	int16_t vendor;
	int16_t hw;
	uint8_t side;		/* enum smx_side */
};

struct smx_cause {
	uint8_t syndrome;
	int16_t vendor, hw;	/* SMX_CODE_UNKNOWN: with any */
	uint8_t side;		/* enum smx_side: on which it is reported */
	char grade;		/* M measured, S stated, O observed in public reports, I inferred */
	const char *text;	/* what went wrong */
	const char *look_at;	/* what to check, or NULL */
};

struct smx_codes smx_codes_of_cqe(const void *err_cqe);

/* Fills in what fits, best first: all codes, then syndrome and vendor, then the syndrome alone.
 * *exact: how many of them name the very vendor code. RETURN the number of entries, at most max. */
size_t smx_cause_find(const struct smx_codes *codes, const struct smx_cause **out, size_t max, size_t *exact);

/* The meaning of a vendor code as far as there is one. NULL: none that is public. */
const char *smx_vendor_meaning(uint8_t vendor);

/* Codes and causes as lines of text. */
void smx_print_codes(struct smx_text *t, const struct smx_codes *codes);

#endif
