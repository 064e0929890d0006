/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/**
 * softmlx5.h - what only softmlx5 offers: why a call or a work request was refused.
 *
 * A program that uses it links libibverbs and needs softmlx5's libibverbs.so.1 at run time; to run on
 * real hardware too, look the functions up with dlsym() and go on without them.
 */
#ifndef SOFTMLX5_H
#define SOFTMLX5_H

#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct softmlx5_refusal - one refused call or failed work request
 *
 * @seq        1 for the process's first
 * @check      number of the rule that was broken; names in softmlx5_check_name()
 * @err        errno of a refused call; 0 for a failed work request
 * @status     enum ibv_wc_status of the completion; 0 for a refused call
 * @syndrome, @vendor_err, @hw_err  bytes 55, 54 and 52 of the error CQE
 * @qp_num     queue pair, 0 if none
 * @peer_qp_num  the other side's queue pair where known, else 0
 * @wqe_index  16-bit WQE counter as in the CQE
 * @is_recv    the failed work request is a receive
 * @wr_id      of the failed work request, where known
 * @opcode     opcode byte of the failed send WQE
 * @name       the rule's name, static
 * @rule       the rule, one sentence, static
 * @values     the offending values, one sentence
 */
struct softmlx5_refusal {
	uint64_t seq;
	uint32_t check;
	int err;
	uint32_t status;
	uint8_t syndrome, vendor_err, hw_err;
	uint8_t is_recv;
	uint32_t qp_num, peer_qp_num;
	uint16_t wqe_index;
	uint8_t opcode;
	uint64_t wr_id;
	const char *name;
	const char *rule;
	char values[240];
};

/**
 * softmlx5_last_refusal - read one of the last 64 refusals
 *
 * @context  only refusals made after it was opened; NULL: any of this process
 * @nth      0 for the newest
 * @out      filled in
 *
 * RETURN 0, or ENOENT where there is none.
 */
int softmlx5_last_refusal(struct ibv_context *context, unsigned int nth, struct softmlx5_refusal *out);

/** softmlx5_refusal_count - how many refusals there were since context was opened (NULL: ever) */
uint64_t softmlx5_refusal_count(struct ibv_context *context);

/** softmlx5_check_name - name of a rule by number; NULL past the last */
const char *softmlx5_check_name(uint32_t check);

#ifdef __cplusplus
}
#endif

#endif
