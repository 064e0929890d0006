/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The transport engines, as the device's turn and commands see them.
 *
 * requester (rc_req.c): WQEs to frames. completer (rc_comp.c): responses to completions, retries.
 * responder (rc_resp.c): requests to memory and receives. ud.c and dc.c: what differs there. */
#ifndef SMX_XPORT_H
#define SMX_XPORT_H

#include "net/port.h"
#include "obj/qp.h"

/* Requester side; called by dev. */
int smx_req_create(struct smx_dev *dev, struct smx_qp *qp);	/* allocates qp->req and qp->sq.slot */
void smx_req_destroy(struct smx_qp *qp);
void smx_req_reset(struct smx_qp *qp);				/* to RESET: forget everything */
void smx_req_start(struct smx_qp *qp);				/* to RTS: take sq_psn, retry counts */
/* Puts qp on dev->ready, once. */
void smx_req_kick(struct smx_dev *dev, struct smx_qp *qp);
/* Sends what can be sent: reads the doorbell record, assigns new WQEs to streams, sends until the
 * budget, a fence, the read limit or an RNR wait stops it. RETURN whether more is to be done at
 * once. */
bool smx_req_run(struct smx_dev *dev, struct smx_qp *qp);
void smx_req_timer(struct smx_dev *dev, struct smx_qp *qp);	/* qp's deadline passed */
/* To ERR: completes the executing request with FLUSH_CURRENT and the rest with FLUSH_BEHIND, in order. */
void smx_req_flush(struct smx_dev *dev, struct smx_qp *qp);
int smx_req_reset_stream(struct smx_dev *dev, struct smx_qp *dci, uint16_t stream);
/* Completes one WQE of the local kinds (UMR, invalidate, memcpy, NOP) or any other, in error when check says so. */
void smx_comp_receive(struct smx_dev *dev, struct smx_qp *qp, struct smx_frame *f);	/* ACK, NAK, responses */

/* Moves qp to ERR because of check, at the requester or the responder: flushes both sides, raises the event a real
 * device raises (IBV_EVENT_QP_FATAL, _QP_REQ_ERR, _QP_ACCESS_ERR, as the side demands). */
void smx_qp_fatal(struct smx_dev *dev, struct smx_qp *qp, smx_outcome check);

/* A completion found its queue full. The queue pair goes to ERR when its turn comes: its engines are in the middle of
 * something now. */
void smx_qp_lost_completion(struct smx_dev *dev, struct smx_qp *qp);

/* Responder side. */
int smx_resp_create(struct smx_dev *dev, struct smx_qp *qp);
void smx_resp_destroy(struct smx_qp *qp);
void smx_resp_reset(struct smx_qp *qp);
void smx_resp_start(struct smx_qp *qp);				/* to RTR: take rq_psn */
void smx_resp_receive(struct smx_dev *dev, struct smx_qp *qp, struct smx_frame *f);	/* requests */
void smx_resp_flush(struct smx_dev *dev, struct smx_qp *qp);	/* receives posted complete as flushed */

/* A queue pair that fetches the payload of rendezvous has a send queue of the device's own: before smx_req_create(). */
int smx_rndv_create(struct smx_qp *qp);
void smx_rndv_reset(struct smx_qp *qp);
void smx_rndv_destroy(struct smx_qp *qp);

/* The port's deliver callback: finds the queue pair and hands the frame to responder or completer. */
void smx_xport_deliver(void *dev, struct smx_frame *f);
/* To whoever has f->dst_qpn. What stays in this device does not pass the port. */
static inline void smx_xport_send(struct smx_dev *dev, struct smx_frame *f)
{
	if (smx_port_is_own(dev->port, f->dst_qpn))
		smx_xport_deliver(dev, f);
	else
		dev->port->ops->send(dev->port, f);
}
void smx_xport_room(void *dev);	/* the port's room callback */

/* Decodes the WQE at block counter at. RETURN what is wrong with it. Given by dev as xport may not include it:
 * set once at creation. */
struct smx_exec {
	smx_outcome (*fetch)(struct smx_dev *dev, struct smx_qp *qp, uint32_t at, struct smx_send_req *out);
	/* UMR, bind, invalidate, memcpy, NOP: no packets. *done_bytes counts against the budget. */
	smx_outcome (*local)(struct smx_dev *dev, struct smx_qp *qp, const struct smx_send_req *req);
};
extern const struct smx_exec smx_exec;	/* dev/sq_fetch.c */

#endif
