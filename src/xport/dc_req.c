/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Dynamically connected: a DCI's stream has one target at a time, named by each request.
 *
 * A request with another target waits until all before it are answered; its first frame then
 * carries the connect. Sequence numbers go on from target to target, and past what failed, so
 * that a target can tell a new connection from a late copy. */
#include "xport/requester.h"

#include <string.h>

static bool is_target(const struct smx_requester *st, const struct smx_wqe_av *av)
{
	return st->connected && !memcmp(&st->peer, av, sizeof(*av));
}

bool smx_dc_must_wait(const struct smx_requester *st, const struct smx_wqe_av *av)
{
	return st->una_psn != st->next_psn && !is_target(st, av);
}

void smx_dc_connect(struct smx_requester *st, const struct smx_wqe_av *av)
{
	if (is_target(st, av))
		return;
	st->peer = *av;
	st->connected = true;
	st->connect_psn = st->next_psn;
}

smx_outcome smx_dc_address(struct smx_dev *dev, struct smx_qp *qp, const struct smx_send_req *req,
			   struct smx_frame *f)
{
	f->dc_key = from_be64(req->av->dc_key);
	return smx_av_to_path(dev, qp, req, f);
}
