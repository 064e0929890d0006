/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "net/shm_record.h"

#include <assert.h>
#include <string.h>

enum { MTU_MIN_LOG = 7, MTU_MAX_LOG = 12 };

static uint32_t text_bytes(const struct smx_frame *f)
{
	size_t n = f->text ? strlen(f->text) : 0;

	return n < SMX_REC_TEXT_MAX ? (uint32_t)n : SMX_REC_TEXT_MAX;
}

/* The record has no more than its first 32 bytes before the payload. */
static inline bool is_short(const struct smx_frame *f)
{
	return !smx_rec_has_remote(f->op) && !smx_rec_has_more(f->transport) && !f->text;
}

uint32_t smx_rec_head_bytes(const struct smx_frame *f)
{
	uint32_t n = sizeof(struct smx_rec);

	if (is_short(f))
		return n;
	if (smx_rec_has_remote(f->op))
		n += sizeof(struct smx_rec_remote);
	if (smx_rec_has_more(f->transport))
		n += sizeof(struct smx_rec_more);
	if (f->op == SMX_FRAME_ATOMIC_REQUEST)
		n += sizeof(struct smx_rec_atomic);
	return n + ((text_bytes(f) + 7) & ~7u);
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
	m->dc_stream = f->dc_stream;
}

/* What follows the first 32 bytes. RETURN where it ends. */
static __attribute__((noinline)) uint8_t *write_rest(uint8_t *at, const struct smx_frame *f, uint32_t text)
{
	if (smx_rec_has_remote(f->op)) {
		*(struct smx_rec_remote *)(void *)at = (struct smx_rec_remote){
			.va = f->op == SMX_FRAME_ATOMIC_RESPONSE ? f->atomic[0] : f->va,
			.dma_length = f->dma_length,
			.rkey = f->rkey,
		};
		at += sizeof(struct smx_rec_remote);
	}
	if (smx_rec_has_more(f->transport)) {
		write_more((struct smx_rec_more *)(void *)at, f);
		at += sizeof(struct smx_rec_more);
	}
	if (f->op == SMX_FRAME_ATOMIC_REQUEST) {
		memcpy(at, f->atomic, sizeof(struct smx_rec_atomic));
		at += sizeof(struct smx_rec_atomic);
	}
	if (text)
		memcpy(at, f->text, text);
	return at + ((text + 7) & ~7u);
}

uint8_t *smx_rec_write(struct smx_rec *rec, const struct smx_frame *f, uint8_t runs)
{
	bool is_answer = smx_frame_is_answer(f->op);
	uint32_t text = text_bytes(f), code = f->op == SMX_FRAME_ATOMIC_REQUEST ? f->atomic_op : f->syndrome;

	assert(f->psn_count <= UINT16_MAX && f->length <= UINT32_MAX);
	rec->transport = f->transport;
	rec->op = f->op;
	rec->flags = f->flags;
	rec->log_mtu = f->mtu_bytes ? (uint8_t)__builtin_ctz(f->mtu_bytes) : 0;
	rec->src_runs = smx_rec_word(f->src_qpn, runs);
	rec->dst_code = smx_rec_word(f->dst_qpn, code);
	rec->psn_text = smx_rec_word(f->psn, text);
	rec->psn_count = (uint16_t)f->psn_count;
	rec->check = f->check;
	rec->length = (uint32_t)f->length;
	rec->imm = is_answer ? f->msn : f->imm;
	return is_short(f) ? (uint8_t *)(rec + 1) : write_rest((uint8_t *)(rec + 1), f, text);
}

void smx_rec_carry_ack(struct smx_rec *rec, uint32_t psn)
{
	assert(smx_rec_can_carry_ack(rec->transport, rec->op));
	rec->flags |= SMX_REC_CARRIES_ACK;
	rec->dst_code = smx_rec_word(rec->dst_code, psn >> 16 & 0xff);
	rec->check = psn & 0xffff;
}

void smx_rec_recall(struct smx_rec *rec)
{
	/* What is stored into that memory from now on is not read without this being seen. */
	__atomic_fetch_or(&rec->src_runs, (uint32_t)SMX_REC_RECALLED << 24, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

bool smx_rec_is_recalled(const struct smx_rec *rec)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&rec->src_runs, __ATOMIC_RELAXED) >> 24 & SMX_REC_RECALLED;
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
	f->dc_stream = m->dc_stream;
}

static void read_remote(struct smx_frame *f, const struct smx_rec_remote *m)
{
	f->va = m->va;
	f->rkey = m->rkey;
	f->dma_length = m->dma_length;
	f->atomic[0] = f->va;
}

/* f need not be cleared: whatever the kind does not carry is set too. */
static void read_head(struct smx_frame *f, const struct smx_rec *r)
{
	bool answer = smx_frame_is_answer(r->op);

	f->transport = r->transport;
	f->op = r->op;
	f->flags = r->flags & (uint8_t)~SMX_REC_CARRIES_ACK;
	f->src_qpn = smx_rec_number(r->src_runs);
	f->dst_qpn = smx_rec_number(r->dst_code);
	f->psn = smx_rec_number(r->psn_text);
	f->psn_count = r->psn_count;
	f->imm = answer ? 0 : r->imm;
	f->msn = answer ? smx_rec_number(r->imm) : 0;
	f->va = 0;
	f->rkey = 0;
	f->dma_length = 0;
	f->atomic_op = f->syndrome = (uint8_t)(r->dst_code >> 24);
	f->check = r->check;
	f->dc_stream = 0;
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

/* RETURN whether the runs make up the payload. */
static bool read_runs(struct smx_arrived *a, const uint8_t *at, const uint8_t *end)
{
	uint64_t sum = 0, length = a->frame.length;

	if (a->run_count > SMX_HOST_RUNS || (size_t)(end - at) < a->run_count * sizeof(a->run[0]))
		return false;
	memcpy(a->run, at, a->run_count * sizeof(a->run[0]));
	for (uint32_t i = 0; i < a->run_count; i++) {
		if (a->run[i].length > length)
			return false;
		sum += a->run[i].length;
	}
	return sum == length;
}

/* The lengths that follow from the head, in order. RETURN false when they exceed the record. */
static bool read_rest(struct smx_arrived *a, const struct smx_rec *r, const uint8_t *at,
		      const uint8_t *end)
{
	struct smx_frame *f = &a->frame;
	uint32_t text = r->psn_text >> 24, padded = (text + 7) & ~7u;

	if (smx_rec_has_remote(f->op)) {
		if ((size_t)(end - at) < sizeof(struct smx_rec_remote))
			return false;
		read_remote(f, (const struct smx_rec_remote *)(const void *)at);
		at += sizeof(struct smx_rec_remote);
	}
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
	if (text) {
		if (text > SMX_REC_TEXT_MAX || (size_t)(end - at) < padded)
			return false;
		memcpy(a->text, at, text);
		a->text[text] = '\0';
		f->text = a->text;
		at += padded;
	}
	a->run_count = r->src_runs >> 24 & SMX_REC_RUNS;
	a->shared = r->src_runs >> 24 & SMX_REC_SHARED;
	if (a->run_count)
		return read_runs(a, at, end);
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
	a->carries_ack = r.flags & SMX_REC_CARRIES_ACK;
	if (a->carries_ack) {
		if (!smx_rec_can_carry_ack(r.transport, r.op))
			return false;
		a->ack_psn = r.dst_code >> 24 << 16 | r.check;
		r.dst_code = smx_rec_number(r.dst_code);
		r.check = 0;
	}
	read_head(&a->frame, &r);
	return read_rest(a, &r, (const uint8_t *)rec + sizeof(r), (const uint8_t *)rec + size);
}
