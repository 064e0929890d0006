/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One-sided requests that need no frame: the target lets the requester into its memory.
 *
 * They take no sequence numbers. Nothing that was sent before is unanswered when one is carried out, so it is in
 * order by being done at once, and the responder need not know. Whatever speaks against it, the request
 * goes as a frame, and the owner's own tables decide. */
#ifndef SMX_XPORT_DIRECT_H
#define SMX_XPORT_DIRECT_H

#include "xport/requester.h"

/* Carries out dev->req_work->tx, the WQE at block counter at, or goes on with it after the last turn's budget was
 * spent. Nothing of its stream is before it or unanswered. RETURN false when it is to be sent; it is as if nothing
 * of it had been done then. */
bool smx_direct_run(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, uint32_t at);

/* The same for a request that takes a receive. */
bool smx_direct_run_send(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st);

/* direct_send.c: SEND, with immediate or invalidate too, and WRITE with immediate. */
struct smx_message {
	uint8_t opcode, fm_ce_se;
	uint32_t imm;			/* as it lies in the control segment */
	uint32_t rkey;
	uint64_t raddr;
	const struct smx_wqe_av *av;	/* DCI */
	uint64_t length;
	const struct smx_sge *sge;
	uint32_t sge_count;
	bool quietly;			/* only if its completion wakes nobody */
};
/* Carries it out and completes its receive. RETURN false when it is to be sent, as above. */
bool smx_direct_send(struct smx_dev *dev, struct smx_qp *qp, struct smx_requester *st, const struct smx_message *m);

/* enum ibv_access_flags as enum smx_port_right. */
static inline uint32_t smx_direct_rights(uint32_t access)
{
	_Static_assert(IBV_ACCESS_REMOTE_WRITE == SMX_MAY_WRITE << 1 && IBV_ACCESS_REMOTE_READ == SMX_MAY_READ << 1 &&
		       IBV_ACCESS_REMOTE_ATOMIC == SMX_MAY_ATOMIC << 1, "the same flags, one bit lower");

	return access >> 1 & (SMX_MAY_WRITE | SMX_MAY_READ | SMX_MAY_ATOMIC);
}

/* Lets others know what they may do to qp now. When it returns, nobody does more. */
void smx_direct_publish(struct smx_dev *dev, const struct smx_qp *qp);
void smx_direct_withdraw(struct smx_dev *dev, const struct smx_qp *qp);

#endif
