/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* WQEs and CQEs in words: every field by name, one a line, with the offset of its first byte. Bytes
 * without a public meaning are shown as they are. Pure functions over bytes that may be anything. */
#ifndef SMX_HW_PRINT_H
#define SMX_HW_PRINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* What stands between control segment and operation; the WQE itself does not say. */
enum smx_wqe_kind {
	SMX_WQE_AUTO,	/* from the bytes; the output says what was taken and why */
	SMX_WQE_RC,	/* nothing (RC and UC) */
	SMX_WQE_UD,
	SMX_WQE_DC,
	SMX_WQE_XRC,
	SMX_WQE_ETH,	/* Ethernet send */
};

/* A send WQE of ds segments; where len is less, what is missing is said. */
void smx_print_send_wqe(struct smx_text *t, const void *wqe, size_t len, enum smx_wqe_kind kind);

/* A receive WQE: data segments to the one that ends the list. srq: after the segment that links entries. */
void smx_print_recv_wqe(struct smx_text *t, const void *wqe, size_t len, int srq);

/* The 64 bytes of a CQE, good or in error. What error codes mean: hw_cause.h. */
void smx_print_cqe(struct smx_text *t, const void *cqe);

/* One line: "RDMA_WRITE qp 0x000123 wqe_index 7 ds 3". */
void smx_print_send_line(struct smx_text *t, const void *wqe);

const char *smx_cqe_op_name(uint8_t op);	/* enum smx_cqe_op; NULL where unknown */

#endif
