/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "net/shm_ack.h"

void smx_shm_ack_publish(struct smx_shm_ack *a, struct smx_lane *answers)
{
	if (!a->rec)
		return;
	smx_lane_publish(answers, a->rec, a->size);
	a->rec = NULL;
}

bool smx_shm_ack_put(struct smx_shm_ack *a, struct smx_lane *answers, const struct smx_frame *f)
{
	a->psn = f->psn;
	if (a->rec && a->src_qpn == f->src_qpn && a->dst_qpn == f->dst_qpn && a->stream == f->dc_stream) {
		a->rec->psn = f->psn & 0xffffff;
		a->rec->imm = f->msn;
		return true;
	}
	smx_shm_ack_publish(a, answers);
	a->size = smx_rec_lane_bytes(smx_rec_head_bytes(f));
	a->rec = smx_lane_reserve(answers, a->size);
	if (!a->rec)
		return false;
	smx_rec_write(a->rec, f);
	a->src_qpn = f->src_qpn;
	a->dst_qpn = f->dst_qpn;
	a->stream = f->dc_stream;
	a->transport = f->transport;
	return true;
}

void smx_shm_ack_carry(struct smx_shm_ack *a, struct smx_lane *answers, struct smx_rec *rec, const struct smx_frame *f)
{
	if (!a->rec || a->src_qpn != f->src_qpn || a->dst_qpn != f->dst_qpn || a->transport != f->transport ||
	    !smx_rec_can_carry_ack(f->transport, f->op))
		return;
	smx_rec_carry_ack(rec, a->psn);
	smx_lane_abandon(answers);
	a->rec = NULL;
}

void smx_shm_ack_carried(const struct smx_arrived *a, struct smx_frame *out)
{
	out->transport = SMX_TP_RC;
	out->op = SMX_FRAME_ACK;
	out->first = out->last = true;
	out->syndrome = SMX_AETH_ACK | 0x1f;
	out->src_qpn = a->frame.src_qpn;
	out->dst_qpn = a->frame.dst_qpn;
	out->psn = a->ack_psn;
	out->psn_count = 1;
}
