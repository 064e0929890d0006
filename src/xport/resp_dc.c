/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sources that are connected to a DC target.
 *
 * Each stream of each DCI that sends here has a context of its own: sequence numbers, the message
 * in progress, answers that may be asked for again. A context begins with a frame that connects and
 * is kept until another source needs its place: a late copy of a frame must still be known as one
 * that was executed. The sequence numbers of a stream only rise, whoever it talks to in between, so
 * a frame that connects ahead of what is expected begins anew, and one behind is a copy. Only a DCI
 * that is reset may fall back; it is forgotten then. */
#include "xport/responder.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint32_t bucket_at(uint32_t src_qpn, uint16_t stream)
{
	return ((src_qpn ^ (uint32_t)stream << 12) * 0x9e3779b1u) >> 26;
}

/* RETURN NULL where there is no source at all. */
static struct smx_resp_ctx **bucket_of(const struct smx_responder *r, const struct smx_frame *f)
{
	return r->bucket ? &r->bucket[bucket_at(f->src_qpn, f->dc_stream)] : NULL;
}

static bool is_source(const struct smx_resp_ctx *c, const struct smx_frame *f)
{
	return c->src_qpn == f->src_qpn && c->stream == f->dc_stream &&
	       !memcmp(c->src_gid, f->sgid, sizeof(c->src_gid));
}

/* at: what points to it. */
static void take_out(struct smx_responder *r, struct smx_resp_ctx **at)
{
	struct smx_resp_ctx *c = *at;

	*at = c->next;
	r->sources--;
	if (smx_is_listed(&c->of_dci))
		smx_list_remove(&c->of_dci);
}

/* Takes the least recently used context out of its bucket. */
static struct smx_resp_ctx *evict(struct smx_dev *dev, struct smx_qp *dct)
{
	struct smx_responder *r = dct->resp;
	struct smx_resp_ctx **oldest = NULL;
	struct smx_resp_ctx *c;

	for (size_t i = 0; i < SMX_RESP_DC_BUCKETS; i++) {
		for (struct smx_resp_ctx **at = &r->bucket[i]; *at; at = &(*at)->next) {
			if (!oldest || (*at)->used < (*oldest)->used)
				oldest = at;
		}
	}
	if (!oldest)
		return NULL;
	c = *oldest;
	take_out(r, oldest);
	smx_resp_abort(dev, dct, c, SMX_CHECK_RECV_ABORTED);
	return c;
}

/* A place for one more source; NULL if there is no memory for even one. */
static struct smx_resp_ctx *new_source(struct smx_dev *dev, struct smx_qp *dct,
				       const struct smx_frame *f)
{
	struct smx_responder *r = dct->resp;
	struct smx_resp_ctx **bucket, *c = NULL;
	struct smx_qp *dci;

	if (!r->bucket)
		r->bucket = calloc(SMX_RESP_DC_BUCKETS, sizeof(struct smx_resp_ctx *));
	if (!r->bucket)
		return NULL;
	bucket = bucket_of(r, f);
	if (r->sources < SMX_RESP_DC_SOURCES)
		c = smx_resp_ctx_new(dct);
	if (!c)
		c = evict(dev, dct);
	if (!c)
		return NULL;
	dci = smx_qp_find(dev, f->src_qpn);
	if (dci)
		smx_list_add(&dci->dc_contexts, &c->of_dci);
	c->dct = dct;
	c->src_qpn = f->src_qpn;
	c->stream = f->dc_stream;
	memcpy(c->src_gid, f->sgid, sizeof(c->src_gid));
	c->next = *bucket;
	*bucket = c;
	r->sources++;
	return c;
}

/* The frame begins a connection: the context starts afresh. */
static void connect_source(const struct smx_qp *dct, struct smx_resp_ctx *c,
			   const struct smx_frame *f)
{
	struct smx_frame *ack = &c->ack;

	smx_resp_ctx_init(dct, c, f->psn);
	c->nonce = f->dc_nonce;
	ack->dst_qpn = f->src_qpn;
	ack->dc_stream = f->dc_stream;
	ack->dc_nonce = f->dc_nonce;
	memcpy(ack->sgid, f->dgid, sizeof(ack->sgid));
	memcpy(ack->dgid, f->sgid, sizeof(ack->dgid));
	ack->hop_limit = f->hop_limit;
	ack->traffic_class = f->traffic_class;
	ack->sl = f->sl;
	ack->flow_label = f->flow_label;
	ack->udp_sport = f->udp_sport;
}

/* Does the frame begin a connection, or repeat one that is known? */
static bool is_connect(const struct smx_resp_ctx *c, const struct smx_frame *f)
{
	int32_t ahead;

	if (!f->dc_connect)
		return false;
	if (!c || c->nonce != f->dc_nonce)
		return true;
	ahead = (int32_t)((f->psn - c->epsn) << 8) >> 8;
	/* A copy of what was refused begins nothing; what follows it does. */
	return ahead > 0 || (ahead == 0 && !(c->failed && c->failed_psn == c->epsn));
}

struct smx_resp_ctx *smx_resp_dc_find(struct smx_dev *dev, struct smx_qp *dct,
				      const struct smx_frame *f)
{
	struct smx_responder *r = dct->resp;
	struct smx_resp_ctx **bucket = bucket_of(r, f), *c = bucket ? *bucket : NULL;

	assert(dct->attr.type == SMX_QP_DCT);
	while (c && !is_source(c, f))
		c = c->next;
	if (is_connect(c, f)) {
		if (c)
			smx_resp_abort(dev, dct, c, SMX_CHECK_RECV_ABORTED);
		else
			c = new_source(dev, dct, f);
		if (c)
			connect_source(dct, c, f);
	}
	if (!c || c->failed || c->nonce != f->dc_nonce)
		return NULL;
	c->used = ++r->stamp;
	return c;
}

bool smx_resp_dc_has_message(const struct smx_qp *dct, uint32_t src_qpn, uint16_t stream)
{
	const struct smx_resp_ctx *c = dct->resp->bucket ? dct->resp->bucket[bucket_at(src_qpn, stream)] : NULL;

	while (c && !(c->src_qpn == src_qpn && c->stream == stream && (c->has_recv || c->message)))
		c = c->next;
	return c;
}

void smx_resp_dc_forget_source(struct smx_dev *dev, struct smx_qp *dci)
{
	while (dci->dc_contexts) {
		struct smx_resp_ctx *c = container_of(dci->dc_contexts, struct smx_resp_ctx, of_dci);
		struct smx_resp_ctx **at = &c->dct->resp->bucket[bucket_at(c->src_qpn, c->stream)];

		while (*at != c)
			at = &(*at)->next;
		take_out(c->dct->resp, at);
		smx_resp_abort(dev, c->dct, c, SMX_CHECK_RECV_ABORTED);
		free(c);
	}
}

void smx_resp_dc_forget(struct smx_responder *r)
{
	for (size_t i = 0; r->bucket && i < SMX_RESP_DC_BUCKETS; i++) {
		while (r->bucket[i]) {
			struct smx_resp_ctx *c = r->bucket[i];

			take_out(r, &r->bucket[i]);
			free(c);
		}
	}
	free(r->bucket);
	r->bucket = NULL;
}
