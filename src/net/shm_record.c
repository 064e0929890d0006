/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "net/shm_record.h"

#include <string.h>

enum { MTU_MIN_LOG = 7, MTU_MAX_LOG = 12 };

static uint32_t text_bytes(const struct smx_frame *f)
{
	size_t n = f->text ? strlen(f->text) : 0;

	return n < SMX_REC_TEXT_MAX ? (uint32_t)n : SMX_REC_TEXT_MAX;
}

uint32_t smx_rec_head_bytes(const struct smx_frame *f)
{
	uint32_t n = sizeof(struct smx_rec);

	if (smx_rec_has_more(f->transport))
		n += sizeof(struct smx_rec_more);
	if (f->op == SMX_FRAME_ATOMIC_REQUEST)
		n += sizeof(struct smx_rec_atomic);
	return n + ((text_bytes(f) + 7) & ~7u);
}

static uint8_t flags(const struct smx_frame *f)
{
	return (uint8_t)((f->first ? SMX_REC_FIRST : 0) | (f->last ? SMX_REC_LAST : 0) |
			 (f->has_imm ? SMX_REC_IMM : 0) | (f->has_invalidate ? SMX_REC_INVALIDATE : 0) |
			 (f->solicited ? SMX_REC_SOLICITED : 0) |
			 (f->ack_request ? SMX_REC_ACK_REQUEST : 0) |
			 (f->dc_connect ? SMX_REC_DC_CONNECT : 0));
}

static void write_more(struct smx_rec_more *m, const struct smx_frame *f)
{
	m->xrc_srqn = f->xrc_srqn;
	m->qkey = f->qkey;
	m->dc_key = f->dc_key;
	memcpy(m->sgid, f->sgid, sizeof(m->sgid));
	memcpy(m->dgid, f->dgid, sizeof(m->dgid));
	m->flow_label = f->flow_label;
	m->dc_nonce = f->dc_nonce;
	m->udp_sport = f->udp_sport;
	m->sgid_index = f->sgid_index;
	m->hop_limit = f->hop_limit;
	m->traffic_class = f->traffic_class;
	m->sl = f->sl;
}

uint8_t *smx_rec_write(struct smx_rec *rec, const struct smx_frame *f)
{
	uint32_t text = text_bytes(f);
	uint8_t *at = (uint8_t *)(rec + 1);

	rec->transport = f->transport;
	rec->op = f->op;
	rec->flags = flags(f);
	rec->syndrome = f->syndrome;
	rec->src_qpn = f->src_qpn;
	rec->dst_qpn = f->dst_qpn;
	rec->psn = f->psn;
	rec->psn_count = f->psn_count;
	rec->msn = f->msn;
	rec->check = f->check;
	rec->dc_stream = f->dc_stream;
	rec->imm = f->imm;
	rec->rkey = f->rkey;
	rec->va = f->op == SMX_FRAME_ATOMIC_RESPONSE ? f->atomic[0] : f->va;
	rec->dma_length = f->dma_length;
	rec->length = (uint32_t)f->length;
	rec->log_mtu = f->mtu_bytes ? (uint8_t)__builtin_ctz(f->mtu_bytes) : 0;
	rec->runs = 0;
	rec->text_bytes = (uint8_t)text;
	rec->atomic_op = f->atomic_op;
	if (smx_rec_has_more(f->transport)) {
		write_more((struct smx_rec_more *)(void *)at, f);
		at += sizeof(struct smx_rec_more);
	}
	if (f->op == SMX_FRAME_ATOMIC_REQUEST) {
		memcpy(at, f->atomic, sizeof(struct smx_rec_atomic));
		at += sizeof(struct smx_rec_atomic);
	}
	if (text) {
		memcpy(at, f->text, text);
		at += (text + 7) & ~7u;
	}
	return at;
}

static void read_more(struct smx_frame *f, const struct smx_rec_more *m)
{
	f->xrc_srqn = m->xrc_srqn;
	f->qkey = m->qkey;
	f->dc_key = m->dc_key;
	memcpy(f->sgid, m->sgid, sizeof(f->sgid));
	memcpy(f->dgid, m->dgid, sizeof(f->dgid));
	f->flow_label = m->flow_label & 0xfffff;
	f->dc_nonce = m->dc_nonce;
	f->udp_sport = m->udp_sport;
	f->sgid_index = m->sgid_index;
	f->hop_limit = m->hop_limit;
	f->traffic_class = m->traffic_class;
	f->sl = m->sl & 0xf;
}

/* f need not be cleared: whatever the kind does not carry is set too. */
static void read_head(struct smx_frame *f, const struct smx_rec *r)
{
	f->transport = r->transport;
	f->op = r->op;
	f->first = r->flags & SMX_REC_FIRST;
	f->last = r->flags & SMX_REC_LAST;
	f->has_imm = r->flags & SMX_REC_IMM;
	f->has_invalidate = r->flags & SMX_REC_INVALIDATE;
	f->solicited = r->flags & SMX_REC_SOLICITED;
	f->ack_request = r->flags & SMX_REC_ACK_REQUEST;
	f->dc_connect = r->flags & SMX_REC_DC_CONNECT;
	f->src_qpn = r->src_qpn & 0xffffff;
	f->dst_qpn = r->dst_qpn & 0xffffff;
	f->psn = r->psn & 0xffffff;
	f->psn_count = r->psn_count;
	f->imm = r->imm;
	f->va = r->va;
	f->rkey = r->rkey;
	f->dma_length = r->dma_length;
	f->atomic[0] = r->va;
	f->atomic_op = r->atomic_op;
	f->syndrome = r->syndrome;
	f->msn = r->msn & 0xffffff;
	f->check = r->check;
	f->dc_stream = r->dc_stream;
	f->mtu_bytes = r->log_mtu ? 1u << r->log_mtu : 0;
	f->length = r->length;
	f->flat = NULL;
	f->walk = NULL;
	f->pull = NULL;
	f->plain = false;
	f->text = NULL;
	f->gather_check = 0;
	f->gather_text = NULL;
}

/* The lengths that follow from the head, in order. RETURN false when they exceed the record. */
static bool read_rest(struct smx_arrived *a, const struct smx_rec *r, const uint8_t *at,
		      const uint8_t *end)
{
	struct smx_frame *f = &a->frame;
	size_t padded = (r->text_bytes + 7u) & ~7u;

	if (smx_rec_has_more(f->transport)) {
		if ((size_t)(end - at) < sizeof(struct smx_rec_more))
			return false;
		read_more(f, (const struct smx_rec_more *)(const void *)at);
		at += sizeof(struct smx_rec_more);
	}
	if (f->op == SMX_FRAME_ATOMIC_REQUEST) {
		if ((size_t)(end - at) < sizeof(struct smx_rec_atomic))
			return false;
		memcpy(f->atomic, at, sizeof(f->atomic));
		at += sizeof(struct smx_rec_atomic);
	}
	if (r->text_bytes > SMX_REC_TEXT_MAX || (size_t)(end - at) < padded)
		return false;
	if (r->text_bytes) {
		memcpy(a->text, at, r->text_bytes);
		a->text[r->text_bytes] = '\0';
		f->text = a->text;
		at += padded;
	}
	a->run_count = r->runs & ~SMX_REC_SHARED;
	a->shared = r->runs & SMX_REC_SHARED;
	if (a->run_count) {
		uint64_t sum = 0;

		if (a->run_count > SMX_HOST_RUNS || (size_t)(end - at) < a->run_count * sizeof(a->run[0]))
			return false;
		memcpy(a->run, at, a->run_count * sizeof(a->run[0]));
		for (uint32_t i = 0; i < a->run_count; i++) {
			if (a->run[i].length > f->length)
				return false;
			sum += a->run[i].length;
		}
		return sum == f->length;
	}
	if ((size_t)(end - at) < f->length)
		return false;
	f->flat = f->length ? at : NULL;
	return true;
}

bool smx_rec_read(const void *rec, uint32_t size, struct smx_arrived *a)
{
	struct smx_rec r;

	/* A copy: its sender could change it while we look. */
	memcpy(&r, rec, sizeof(r));
	if (r.transport > SMX_TP_DC || r.op > SMX_FRAME_SOURCE_FAULT ||
	    (r.log_mtu && (r.log_mtu < MTU_MIN_LOG || r.log_mtu > MTU_MAX_LOG)))
		return false;
	if (r.length && r.op != SMX_FRAME_SEND && r.op != SMX_FRAME_WRITE && r.op != SMX_FRAME_READ_RESPONSE)
		return false;
	read_head(&a->frame, &r);
	return read_rest(a, &r, (const uint8_t *)rec + sizeof(r), (const uint8_t *)rec + size);
}
