/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "net/shm_ack.h"

#include <string.h>

void smx_shm_ack_publish(struct smx_shm_ack *a, struct smx_lane *answers)
{
	struct smx_rec *rec;

	if (!a->waits)
		return;
	a->waits = false;
	rec = smx_lane_reserve(answers, a->size);
	if (!rec)
		return;	/* there was room: the consumer took back what it had freed, and loses by it */
	/* All but the first word, which publishes it. */
	memcpy((uint8_t *)rec + sizeof(rec->size), (const uint8_t *)&a->rec + sizeof(rec->size),
	       smx_rec_has_more(a->transport) ? sizeof(a->rec) - sizeof(rec->size) :
						sizeof(*rec) - sizeof(rec->size));
	smx_lane_publish(answers, rec, a->size);
}

/* May f have the record of the one before? Where that has a path, only while it waits: the path may have changed. */
static bool fits(const struct smx_shm_ack *a, const struct smx_frame *f)
{
	return a->size && a->src_qpn == f->src_qpn && a->dst_qpn == f->dst_qpn && a->stream == f->dc_stream &&
	       a->dc_nonce == f->dc_nonce && a->mtu_bytes == f->mtu_bytes && a->transport == f->transport &&
	       (a->waits || !smx_rec_has_more(f->transport));
}

bool smx_shm_ack_put(struct smx_shm_ack *a, struct smx_lane *answers, const struct smx_frame *f)
{
	a->psn = f->psn;
	if (fits(a, f)) {
		a->rec.head.dst_code = smx_rec_word(f->dst_qpn, f->syndrome);
		a->rec.head.psn_text = smx_rec_word(f->psn, 0);
		a->rec.head.imm = f->msn;
	} else {
		smx_shm_ack_publish(a, answers);
		smx_rec_write(&a->rec.head, f, 0);
		a->size = smx_rec_lane_bytes(smx_rec_head_bytes(f));
		a->src_qpn = f->src_qpn;
		a->dst_qpn = f->dst_qpn;
		a->transport = f->transport;
		a->mtu_bytes = f->mtu_bytes;
		a->stream = f->dc_stream;
		a->dc_nonce = f->dc_nonce;
	}
	if (!a->waits)
		a->waits = smx_lane_has_room(answers, a->size);
	return a->waits;
}

void smx_shm_ack_carry(struct smx_shm_ack *a, struct smx_rec *rec, const struct smx_frame *f)
{
	if (!a->waits || a->src_qpn != f->src_qpn || a->dst_qpn != f->dst_qpn || a->transport != f->transport ||
	    !smx_rec_can_carry_ack(f->transport, f->op))
		return;
	smx_rec_carry_ack(rec, a->psn);
	a->waits = false;
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
