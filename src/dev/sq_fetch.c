/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Decoding of send WQEs.
 *
 * A WQE starts on a 64-byte block and is ds segments of 16 bytes long. Blocks are handed out modulo
 * the ring, so a WQE may continue at the ring's start after any segment boundary; next_seg() is
 * where that is decided. Structures of 48 and 64 bytes stand at fixed places inside one block and
 * never wrap. */
#include "dev/sq_fetch.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "dev/sq_local.h"
#include "dev/sq_plain.h"
#include "xport/xport.h"

/* One WQE being read. */
struct fetch {
	struct smx_dev *dev;
	struct smx_qp *qp;
	struct smx_send_req *out;
	uint32_t base, mask; /* bytes: where the WQE starts in the ring, ring length less one */
	uint32_t ds, used; /* segments: of the WQE, read so far */
};

const struct smx_exec smx_exec = { .fetch = smx_sq_fetch, .local = smx_sq_local };

static const uint64_t MESSAGE_BYTES_MAX = 1ull << 31;

static __attribute__((format(printf, 3, 4), cold)) smx_outcome refuse(const struct fetch *f,
								      enum smx_check check,
								      const char *fmt, ...)
{
	struct smx_where where = {
		.qpn = f->qp->qpn,
		.wqe_index = f->out->index,
		.opcode = f->out->opcode,
		.cookie = f->qp->attr.cookie,
	};
	char text[sizeof(((struct smx_refusal *)0)->text)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	smx_refuse(f->dev->attr.env.refusals, check, &where, "%s", text);
	return check;
}

static const void *next_seg(struct fetch *f)
{
	uint32_t off = (f->base + f->used * SMX_WQE_DS) & f->mask;

	assert(f->used < f->ds);
	f->used++;
	return f->qp->sq.buf + off;
}

/* Structures of more than one segment, which the format places so that they do not wrap. */
static const void *next_block(struct fetch *f, uint32_t bytes)
{
	const void *p = next_seg(f);

	assert(((f->base + (f->used - 1) * SMX_WQE_DS) & f->mask) + bytes <= f->mask + 1);
	f->used += bytes / SMX_WQE_DS - 1;
	return p;
}

static smx_outcome need(const struct fetch *f, uint32_t ds, const char *what)
{
	if (f->ds - f->used >= ds)
		return SMX_CHECK_NONE;
	return refuse(f, SMX_CHECK_WQE_LENGTH, "ds %" PRIu32 ", %s needs %" PRIu32, f->ds, what,
		      f->used + ds);
}

static void add_host(struct smx_send_req *out, const uint8_t *ptr, uint32_t length)
{
	if (!length)
		return;
	assert(out->sge_count < SMX_COUNT(out->sge));
	out->sge[out->sge_count++] = (struct smx_sge){
		.va = (uint64_t)(uintptr_t)ptr,
		.length = length,
		.is_host = true,
	};
	out->length += length;
}

/* Inline data: four bytes of header, then the bytes themselves, padded to whole segments. */
static smx_outcome add_inline(struct fetch *f, uint32_t length)
{
	uint32_t start =
		f->base + (f->used - 1) * SMX_WQE_DS + (uint32_t)sizeof(struct smx_wqe_inline);
	uint32_t more =
		((uint64_t)length + sizeof(struct smx_wqe_inline) + SMX_WQE_DS - 1) / SMX_WQE_DS -
		1;
	uint32_t off, to_end;

	if (more > f->ds - f->used)
		return refuse(f, SMX_CHECK_WQE_LENGTH,
			      "inline data of %" PRIu32 " bytes, ds %" PRIu32
			      " leaves room for %" PRIu32,
			      length, f->ds, (f->ds - f->used) * SMX_WQE_DS + 12);
	f->used += more;
	off = start & f->mask;
	to_end = f->mask + 1 - off;
	add_host(f->out, f->qp->sq.buf + off, length < to_end ? length : to_end);
	if (length > to_end)
		add_host(f->out, f->qp->sq.buf, length - to_end);
	return SMX_CHECK_NONE;
}

/* Data segments up to the WQE's end. */
static smx_outcome fetch_data(struct fetch *f, bool inline_ok)
{
	struct smx_send_req *out = f->out;

	while (f->used < f->ds) {
		const struct smx_wqe_data *seg = next_seg(f);
		uint32_t count = from_be32(seg->byte_count);

		if (count & SMX_INLINE_SEG) {
			smx_outcome check;

			if (!inline_ok)
				return refuse(f, SMX_CHECK_WQE_LENGTH,
					      "segment %" PRIu32 " is inline data; opcode 0x%02x "
					      "writes to its data segments",
					      f->used - 1, out->opcode);
			check = add_inline(f, count & ~SMX_INLINE_SEG);
			if (check)
				return check;
			continue;
		}
		if (!count)
			continue;
		assert(out->sge_count < SMX_COUNT(out->sge));
		out->sge[out->sge_count++] = (struct smx_sge){
			.va = from_be64(seg->va),
			.length = count,
			.key = from_be32(seg->lkey),
		};
		out->length += count;
	}
	if (out->length > MESSAGE_BYTES_MAX)
		return refuse(f, SMX_CHECK_WQE_MESSAGE_LENGTH,
			      "length %" PRIu64 ", at most 0x80000000", out->length);
	return SMX_CHECK_NONE;
}

static smx_outcome fetch_raddr(struct fetch *f)
{
	const struct smx_wqe_raddr *seg;
	smx_outcome check = need(f, 1, "the remote address");

	if (check)
		return check;
	seg = next_seg(f);
	f->out->raddr = from_be64(seg->va);
	f->out->rkey = from_be32(seg->rkey);
	return SMX_CHECK_NONE;
}

static smx_outcome fetch_atomic(struct fetch *f)
{
	struct smx_atomic *a = &f->out->atomic;
	bool masked_cs = f->out->opcode == SMX_OP_ATOMIC_MASKED_CS;
	smx_outcome check = need(f, masked_cs ? 2 : 1, "the atomic's operands");
	const struct smx_wqe_atomic *seg;

	if (check)
		return check;
	seg = next_seg(f);
	*a = (struct smx_atomic){ .swap_add = from_be64(seg->swap_add),
				  .compare = from_be64(seg->compare) };
	switch (f->out->opcode) {
	case SMX_OP_ATOMIC_CS:
		a->op = SMX_ATOMIC_CS;
		break;
	case SMX_OP_ATOMIC_FA:
		a->op = SMX_ATOMIC_FA;
		break;
	case SMX_OP_ATOMIC_MASKED_CS:
		a->op = SMX_ATOMIC_MASKED_CS;
		seg = next_seg(f);
		a->swap_mask = from_be64(seg->swap_add);
		a->compare_mask = from_be64(seg->compare);
		break;
	default: /* masked fetch-and-add: the second word is the field boundary */
		a->op = SMX_ATOMIC_MASKED_FA;
		a->compare_mask = a->compare;
		a->compare = 0;
		break;
	}
	check = fetch_data(f, false);
	if (!check && f->out->length != 8)
		return refuse(f, SMX_CHECK_WQE_ATOMIC_LENGTH, "length %" PRIu64, f->out->length);
	return check;
}

static smx_outcome fetch_umr(struct fetch *f)
{
	struct smx_umr *umr = &f->out->umr;
	uint32_t entries;
	smx_outcome check = need(f, 7, "a UMR's control segment and mkey context");

	if (check)
		return check;
	memcpy(&umr->ctrl, next_block(f, sizeof(umr->ctrl)), sizeof(umr->ctrl));
	memcpy(&umr->ctx, next_block(f, sizeof(umr->ctx)), sizeof(umr->ctx));
	umr->key = be32toh(f->out->imm);
	umr->entry = NULL;
	umr->entry_count = 0;
	entries = from_be16(umr->ctrl.klm_octowords);
	if (entries % 4)
		return refuse(f, SMX_CHECK_UMR_OCTOWORDS, "klm_octowords %" PRIu32, entries);
	if (!(umr->ctrl.flags & SMX_UMR_INLINE))
		return refuse(f, SMX_CHECK_WQE_LENGTH,
			      "UMR flags 0x%02x: the entries must be inline (0x80)",
			      umr->ctrl.flags);
	if (!(umr->ctrl.flags & SMX_UMR_XLT_OFFSET) && from_be16(umr->ctrl.xlt_offset))
		return refuse(f, SMX_CHECK_WQE_LENGTH,
			      "bsf_octowords %u: signature and crypto are not offered",
			      from_be16(umr->ctrl.xlt_offset));
	check = need(f, entries, "a UMR with its translation entries");
	if (check)
		return check;
	for (uint32_t i = 0; i < entries; i++)
		memcpy(&f->out->umr_entry[i], next_seg(f), sizeof(f->out->umr_entry[i]));
	if (entries) {
		umr->entry = f->out->umr_entry;
		umr->entry_count = entries;
	}
	return SMX_CHECK_NONE;
}

static uint64_t pointer_length(const struct smx_wqe_data *seg)
{
	uint32_t count = from_be32(seg->byte_count);

	return count ? count : 1ull << 31;
}

static smx_outcome fetch_mmo(struct fetch *f)
{
	struct smx_send_req *out = f->out;
	const struct smx_wqe_data *src, *dst;
	smx_outcome check = need(f, 3, "a DMA copy");

	if (out->opmod != SMX_MMO_OPMOD_DMA)
		return refuse(f, SMX_CHECK_WQE_MMO, "opmod 0x%02x, the DMA copy is 0x01",
			      out->opmod);
	if (check)
		return check;
	next_seg(f); /* the device's own 64 bytes, which this device does not need */
	src = next_seg(f);
	dst = next_seg(f);
	out->length = pointer_length(src);
	if (from_be32(src->byte_count) & SMX_INLINE_SEG ||
	    from_be32(dst->byte_count) & SMX_INLINE_SEG)
		return refuse(f, SMX_CHECK_WQE_MMO,
			      "byte counts 0x%08" PRIx32 " and 0x%08" PRIx32 ": bit 31 must be 0",
			      from_be32(src->byte_count), from_be32(dst->byte_count));
	if (out->length != pointer_length(dst))
		return refuse(f, SMX_CHECK_WQE_MMO,
			      "source length %" PRIu64 ", destination length %" PRIu64, out->length,
			      pointer_length(dst));
	if (out->length > f->dev->attr.memcpy_max_bytes)
		return refuse(f, SMX_CHECK_WQE_MMO,
			      "length %" PRIu64 ", max_wr_memcpy_length %" PRIu64, out->length,
			      f->dev->attr.memcpy_max_bytes);
	out->sge[0] = (struct smx_sge){ .va = from_be64(src->va),
					.length = out->length,
					.key = from_be32(src->lkey) };
	out->sge[1] = (struct smx_sge){ .va = from_be64(dst->va),
					.length = out->length,
					.key = from_be32(dst->lkey) };
	out->sge_count = 2;
	return SMX_CHECK_NONE;
}

static smx_outcome fetch_tag(struct fetch *f)
{
	struct smx_tag_op *op = &f->out->tag_op;
	const struct smx_wqe_tag *seg;
	const struct smx_wqe_data *data;
	smx_outcome check = need(f, sizeof(*seg) / SMX_WQE_DS, "a tag list operation");

	if (check)
		return check;
	if (!f->qp->attr.srq || !f->qp->attr.srq->tags)
		return refuse(f, SMX_CHECK_WQE_TAG_QUEUE, "opcode 0x%02x, the queue pair has %s", f->out->opcode,
			      f->qp->attr.srq ? "an SRQ of another type" : "no SRQ");
	seg = next_block(f, sizeof(*seg));
	*op = (struct smx_tag_op){
		.op = seg->op >> 4,
		.flags = seg->flags,
		.index = from_be16(seg->index),
		.sw_count = from_be16(seg->sw_count),
		.tag = from_be64(seg->tag),
		.mask = from_be64(seg->mask),
	};
	if (op->op > SMX_TAG_OP_REMOVE)
		return refuse(f, SMX_CHECK_WQE_OPCODE, "tag list operation %u", op->op);
	if (op->op != SMX_TAG_OP_APPEND)
		return SMX_CHECK_NONE;
	check = need(f, 1, "an append with its buffer");
	if (check)
		return check;
	data = next_seg(f);
	op->sge = (struct smx_sge){
		.va = from_be64(data->va),
		.length = from_be32(data->byte_count) & ~SMX_INLINE_SEG,
		.key = from_be32(data->lkey),
	};
	return SMX_CHECK_NONE;
}

/* Who is addressed: the segment that follows the control segment on UD, DC and XRC. */
static smx_outcome fetch_address(struct fetch *f)
{
	smx_outcome check;

	switch (f->qp->attr.type) {
	case SMX_QP_UD:
	case SMX_QP_DCI:
		check = need(f, sizeof(struct smx_wqe_av) / SMX_WQE_DS, "the address vector");
		if (check)
			return check;
		f->out->av = next_block(f, sizeof(struct smx_wqe_av));
		if (!(from_be32(f->out->av->dqp_dct) & SMX_AV_EXTENDED))
			return refuse(f, SMX_CHECK_WQE_AH,
				      "dqp_dct 0x%08" PRIx32 ": RoCE needs the extended address "
				      "vector (bit 31)",
				      from_be32(f->out->av->dqp_dct));
		return SMX_CHECK_NONE;
	case SMX_QP_XRC_INI:
		check = need(f, 1, "the XRC segment");
		if (!check)
			f->out->xrc_srqn =
				from_be32(((const struct smx_wqe_xrc *)next_seg(f))->srqn) &
				0xffffff;
		return check;
	default:
		return SMX_CHECK_NONE;
	}
}

/* Requests that go to a peer. */
static smx_outcome fetch_transport(struct fetch *f)
{
	smx_outcome check = fetch_address(f);

	if (check)
		return check;
	switch (f->out->opcode) {
	case SMX_OP_SEND:
	case SMX_OP_SEND_IMM:
	case SMX_OP_SEND_INVAL:
		return fetch_data(f, true);
	case SMX_OP_RDMA_WRITE:
	case SMX_OP_RDMA_WRITE_IMM:
		check = fetch_raddr(f);
		return check ? check : fetch_data(f, true);
	case SMX_OP_RDMA_READ:
		check = fetch_raddr(f);
		return check ? check : fetch_data(f, false);
	default:
		check = fetch_raddr(f);
		return check ? check : fetch_atomic(f);
	}
}

/* The device knows these opcodes, on whatever type of queue pair. */
static bool opcode_known(uint8_t opcode)
{
	return smx_qp_type_executes(SMX_QP_RC, opcode) || opcode == SMX_OP_TSO;
}

static smx_outcome check_signature(const struct fetch *f)
{
	uint8_t sum = 0;

	for (uint32_t i = 0; i < f->ds * SMX_WQE_DS; i++)
		sum ^= f->qp->sq.buf[(f->base + i) & f->mask];
	if (sum == 0xff)
		return SMX_CHECK_NONE;
	return refuse(f, SMX_CHECK_WQE_SIGNATURE, "all bytes together give 0x%02x, not 0xff", sum);
}

/* What holds for every WQE, whatever its opcode. */
static smx_outcome check_control(const struct fetch *f, uint32_t word0, uint32_t word1, uint32_t rung_ds)
{
	uint32_t index = bits_get(word0, 23, 8);
	uint32_t qpn = bits_get(word1, 31, 8);

	if (index != f->out->index)
		return refuse(f, SMX_CHECK_WQE_INDEX, "index %" PRIu32 ", the slot's is %u", index,
			      f->out->index);
	if (!f->ds || f->ds > rung_ds)
		return refuse(f, SMX_CHECK_WQE_LENGTH,
			      "ds %" PRIu32 ", the doorbell covers %" PRIu32, f->ds, rung_ds);
	if (qpn != f->qp->qpn)
		return refuse(f, SMX_CHECK_WQE_QPN,
			      "qpn 0x%06" PRIx32 " in the WQE, the queue is 0x%06" PRIx32, qpn,
			      f->qp->qpn);
	if (f->qp->attr.wq_signature) {
		smx_outcome check = check_signature(f);

		if (check)
			return check;
	}
	if (smx_qp_type_executes(f->qp->attr.type, f->out->opcode))
		return SMX_CHECK_NONE;
	if (opcode_known(f->out->opcode))
		return refuse(f, SMX_CHECK_WQE_QP_OPCODE, "opcode 0x%02x", f->out->opcode);
	return refuse(f, SMX_CHECK_WQE_OPCODE, "opcode 0x%02x", f->out->opcode);
}

static __attribute__((noinline)) smx_outcome fetch_any(struct smx_dev *dev, struct smx_qp *qp, uint32_t at,
						       uint32_t word0, uint32_t word1, struct smx_send_req *out)
{
	uint32_t rung_bb = qp->sq.pi - at;
	struct fetch f = {
		.dev = dev,
		.qp = qp,
		.out = out,
		.base = (at & (qp->sq.bb_count - 1)) * SMX_WQE_BB,
		.mask = qp->sq.bb_count * SMX_WQE_BB - 1,
		.ds = bits_get(word1, 5, 0),
		.used = 1,
	};
	smx_outcome check;

	assert(is_pow2(qp->sq.bb_count));
	assert(rung_bb > 0);
	if (rung_bb > qp->sq.bb_count)
		rung_bb = qp->sq.bb_count;
	out->av = NULL;
	out->length = 0;
	out->sge_count = 0;
	check = check_control(&f, word0, word1, rung_bb * 4);
	if (check)
		return check;
	switch (out->opcode) {
	case SMX_OP_NOP:
		return SMX_CHECK_NONE;
	case SMX_OP_UMR:
		return fetch_umr(&f);
	case SMX_OP_MMO:
		return fetch_mmo(&f);
	case SMX_OP_TAG_MATCHING:
		return fetch_tag(&f);
	default:
		return fetch_transport(&f);
	}
}

smx_outcome smx_sq_fetch(struct smx_dev *dev, struct smx_qp *qp, uint32_t at,
			 struct smx_send_req *out)
{
	struct smx_wqe_words w = smx_wqe_words(qp, at);
	uint32_t ds = bits_get(w.qpn_ds, 5, 0);
	struct smx_plain_req plain;

	out->index = (uint16_t)at;
	out->bb_count = ds ? (uint8_t)((ds + 3) / 4) : 1;
	out->opcode = (uint8_t)w.opcode;
	out->opmod = (uint8_t)(w.opcode >> 24);
	out->fm_ce_se = w.ctrl->fm_ce_se;
	out->stream = from_be16(w.ctrl->dci_stream);
	memcpy(&out->imm, &w.ctrl->imm, sizeof(out->imm));
	if (!smx_sq_plain(qp, at, qp->sq.pi, w, &plain))
		return fetch_any(dev, qp, at, w.opcode, w.qpn_ds, out);
	out->av = plain.av;
	out->raddr = plain.raddr;
	out->rkey = plain.rkey;
	out->length = plain.sge.length;
	out->sge_count = 1;
	out->sge[0] = plain.sge;
	return SMX_CHECK_NONE;
}
