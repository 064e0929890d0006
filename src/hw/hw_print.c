/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Send and receive WQEs in words. CQEs: hw_print_cqe.c. */
#include "hw/hw_print.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "hw/hw_field.h"
#include "hw/hw_opcode.h"
#include "hw/tag.h"

/* A WQE being read. end: of what the WQE claims and the caller has. */
struct reader {
	struct smx_text *t;
	const uint8_t *bytes;
	size_t end, off;
	enum smx_wqe_kind kind;
	const struct smx_op_info *op;
	struct smx_wqe_umr_ctrl umr;
};

static size_t left(const struct reader *r)
{
	return r->end - r->off;
}

/* RETURN the next n bytes, or NULL after saying that they are missing. */
static const void *take(struct reader *r, size_t n, const char *what)
{
	const void *p = r->bytes + r->off;

	if (left(r) < n) {
		smx_text_add(r->t, "  %03zx  %s: needs %zu bytes, %zu are left\n", r->off, what, n, left(r));
		if (left(r))
			smx_text_hex(r->t, 7, p, left(r));
		r->off = r->end;
		return NULL;
	}
	smx_text_add(r->t, "  %03zx  %s\n", r->off, what);
	r->off += n;
	return p;
}

static void print_raw(struct reader *r, const char *what)
{
	if (!left(r))
		return;
	smx_text_add(r->t, "  %03zx  %s, %zu bytes\n", r->off, what, left(r));
	smx_text_hex(r->t, 7, r->bytes + r->off, left(r));
	r->off = r->end;
}

static void add_fm_ce_se(struct smx_text *t, uint8_t v)
{
	static const char *const fence[8] = { NULL, "small fence: waits for the UMR or invalidate before",
		"fence mode 2", "strong ordering", "fence: waits for RDMA reads and atomics before",
		"fence mode 5", "fence mode 6", "fence mode 7" };
	static const char *const ce[4] = { "CQE on error only", "CQE on first error", "CQE always",
		"CQE and event always" };

	smx_text_add(t, "0x%02x  %s", v, ce[bits_get(v, 3, 2)]);
	if (v >> 5)
		smx_text_add(t, ", %s", fence[v >> 5]);
	if (v & SMX_CTRL_SOLICITED)
		smx_text_add(t, ", solicited");
	if (v & 0x11)
		smx_text_add(t, ", unknown bits 0x%02x", v & 0x11);
	smx_text_add(t, "\n");
}

static void print_imm(struct smx_text *t, const struct smx_op_info *op, const be32 *imm)
{
	uint8_t flags = op ? op->flags : 0;

	if (flags & SMX_OPF_IMM)
		smx_field(t, 0x0c, "imm", "0x%08" PRIx32 "  immediate data", from_be32(*imm));
	else if (flags & SMX_OPF_INVAL)
		smx_field(t, 0x0c, "imm", "0x%08" PRIx32 "  key to invalidate", from_be32(*imm));
	else if (flags & SMX_OPF_MKEY)
		smx_field(t, 0x0c, "imm", "0x%08" PRIx32 "  mkey to change", from_be32(*imm));
	else
		smx_field(t, 0x0c, "imm", "0x%08" PRIx32 "%s", from_be32(*imm),
			  op ? "  not used by this operation" : "");
}

static void print_ctrl(struct smx_text *t, const struct smx_wqe_ctrl *c, const struct smx_op_info *op)
{
	uint32_t w = from_be32(c->opmod_idx_opcode), qpn_ds = from_be32(c->qpn_ds);

	smx_text_add(t, "  000  control\n");
	smx_field(t, 0, "opmod", "0x%02" PRIx32, bits_get(w, 31, 24));
	smx_field(t, 1, "wqe_index", "%" PRIu32, bits_get(w, 23, 8));
	smx_field(t, 3, "opcode", "0x%02" PRIx32 "  %s", w & 0xff, op ? op->name : "of no public meaning");
	smx_field(t, 4, "qpn", "0x%06" PRIx32, qpn_ds >> 8);
	smx_field(t, 7, "ds", "%" PRIu32 "  segments of 16 bytes", bits_get(qpn_ds, 5, 0));
	if (bits_get(qpn_ds, 7, 6))
		smx_field(t, 7, "reserved", "bits 7:6 of ds are %" PRIu32, bits_get(qpn_ds, 7, 6));
	smx_field(t, 8, "signature", "0x%02x", c->signature);
	smx_field(t, 9, "dci_stream", "%u", from_be16(c->dci_stream));
	smx_text_add(t, "    00b  %-18s ", "fm_ce_se");
	add_fm_ce_se(t, c->fm_ce_se);
	print_imm(t, op, &c->imm);
}

static void print_av(struct reader *r, bool dc)
{
	size_t at = r->off;
	const struct smx_wqe_av *av = take(r, sizeof(*av), dc ? "address vector, DC" : "address vector, UD");
	uint32_t dqp, grh;

	if (!av)
		return;
	dqp = from_be32(av->dqp_dct);
	grh = from_be32(av->grh_gid_fl);
	if (dc) {
		smx_field(r->t, at, "dc_key", "0x%016" PRIx64, from_be64(av->dc_key));
	} else {
		smx_field(r->t, at, "qkey", "0x%08" PRIx32, from_be32(av->qkey));
		smx_field(r->t, at + 4, "reserved", "0x%08" PRIx32, from_be32(av->rsvd));
	}
	smx_field(r->t, at + 8, dc ? "dctn" : "remote_qpn", "0x%06" PRIx32 "%s", dqp & 0xffffff,
		  dqp & SMX_AV_EXTENDED ? "  extended" : "");
	if (dqp & 0x7f000000)
		smx_field(r->t, at + 8, "reserved", "bits 30:24 are 0x%02" PRIx32, bits_get(dqp, 30, 24));
	smx_field(r->t, at + 0xc, "static_rate", "%u", av->stat_rate_sl >> 4);
	smx_field(r->t, at + 0xc, "sl", "%u", av->stat_rate_sl & 15);
	smx_field(r->t, at + 0xd, "fl_mlid", "0x%02x", av->fl_mlid);
	smx_field(r->t, at + 0xe, "rlid_udp_sport", "%u", from_be16(av->rlid));
	smx_field_bytes(r->t, at + 0x10, "reserved", av->rsvd0, sizeof(av->rsvd0));
	smx_field(r->t, at + 0x14, "rmac", "%02x:%02x:%02x:%02x:%02x:%02x", av->rmac[0], av->rmac[1],
		  av->rmac[2], av->rmac[3], av->rmac[4], av->rmac[5]);
	smx_field(r->t, at + 0x1a, "traffic_class", "%u", av->tclass);
	smx_field(r->t, at + 0x1b, "hop_limit", "%u", av->hop_limit);
	smx_field(r->t, at + 0x1c, "grh", "%" PRIu32, bits_get(grh, 30, 30));
	smx_field(r->t, at + 0x1c, "sgid_index", "%" PRIu32, bits_get(grh, 27, 20));
	smx_field(r->t, at + 0x1d, "flow_label", "0x%05" PRIx32, bits_get(grh, 19, 0));
	smx_field_bytes(r->t, at + 0x20, "rgid", av->rgid, sizeof(av->rgid));
}

/* An address vector sets bit 31 of its third word and leaves its fifth word 0. Where the operation's own
 * segment would stand there, the fifth word is a byte count. */
static enum smx_wqe_kind guess_kind(const struct reader *r)
{
	const struct smx_wqe_av *av = (const void *)(r->bytes + r->off);

	if (left(r) < sizeof(*av) || !(av->dqp_dct.b[0] & 0x80) || from_be32(*(const be32 *)av->rsvd0) != 0)
		return SMX_WQE_RC;
	if (r->op->flags & SMX_OPF_RECV && r->op->opcode != SMX_OP_RDMA_WRITE_IMM && !from_be32(av->rsvd))
		return SMX_WQE_UD;
	return SMX_WQE_DC;
}

static void print_addr(struct reader *r)
{
	const struct smx_wqe_xrc *xrc;
	enum smx_wqe_kind kind = r->kind;
	size_t at = r->off;

	if (kind == SMX_WQE_AUTO) {
		kind = guess_kind(r);
		if (kind != SMX_WQE_RC)
			smx_text_add(r->t, "  (taken for %s: word at 0x018 has the bit of an address vector, "
				     "word at 0x020 is 0)\n", kind == SMX_WQE_UD ? "UD" : "DC");
	}
	if (kind == SMX_WQE_UD || kind == SMX_WQE_DC) {
		print_av(r, kind == SMX_WQE_DC);
	} else if (kind == SMX_WQE_XRC) {
		xrc = take(r, sizeof(*xrc), "XRC");
		if (!xrc)
			return;
		smx_field(r->t, at, "srqn", "0x%06" PRIx32, from_be32(xrc->srqn));
		smx_field_bytes(r->t, at + 4, "reserved", xrc->rsvd, sizeof(xrc->rsvd));
	}
}

static void print_eth(struct reader *r)
{
	size_t at = r->off, header;
	const uint8_t *p = take(r, 16, "Ethernet");

	if (!p)
		return;
	header = (size_t)p[12] << 8 | p[13];
	smx_field_bytes(r->t, at, "reserved", p, 4);
	smx_field(r->t, at + 4, "cs_flags", "0x%02x%s%s", p[4], p[4] & 0x40 ? "  L3 checksum" : "",
		  p[4] & 0x80 ? "  L4 checksum" : "");
	smx_field_bytes(r->t, at + 5, "reserved", p + 5, 1);
	smx_field(r->t, at + 6, "mss", "%u", p[6] << 8 | p[7]);
	smx_field_bytes(r->t, at + 8, "reserved", p + 8, 4);
	smx_field(r->t, at + 0xc, "inline_hdr_sz", "%zu", header);
	if (header > 2 && align_up(header - 2, 16) > left(r)) {
		smx_text_add(r->t, "    %03zx  inline header: %zu bytes, %zu are left\n", at + 14, header,
			     left(r) + 2);
		header = left(r) + 2;
	}
	smx_field_bytes(r->t, at + 0xe, "inline_hdr", p + 14, header);
	if (header > 2)
		r->off += align_up(header - 2, 16) <= left(r) ? align_up(header - 2, 16) : left(r);
}

static void print_atomic(struct reader *r, enum smx_seg seg)
{
	static const char *const cs[] = { "swap", "compare", "swap_mask", "compare_mask" };
	static const char *const fa[] = { "add", "field_boundary" };
	static const char *const plain_fa[] = { "add", "compare" };
	uint32_t bytes = smx_seg_bytes(seg);
	size_t at = r->off;
	const be64 *word = take(r, bytes, seg == SMX_SEG_ATOMIC ? "atomic" : "masked atomic");
	bool plain_add = r->op->opcode == SMX_OP_ATOMIC_FA;

	for (uint32_t i = 0; word && i < bytes / 8; i++)
		smx_field(r->t, at + i * 8, (plain_add ? plain_fa : seg == SMX_SEG_MASKED_FA ? fa : cs)[i],
			  "0x%016" PRIx64 "%s", from_be64(word[i]),
			  plain_add && i ? "  not used by this operation" : "");
}

static void print_raddr(struct reader *r)
{
	size_t at = r->off;
	const struct smx_wqe_raddr *seg = take(r, sizeof(*seg), "remote address");

	if (!seg)
		return;
	smx_field(r->t, at, "remote_va", "0x%016" PRIx64, from_be64(seg->va));
	smx_field(r->t, at + 8, "rkey", "0x%08" PRIx32, from_be32(seg->rkey));
	smx_field(r->t, at + 12, "reserved", "0x%08" PRIx32, from_be32(seg->rsvd));
}

static void print_inline(struct reader *r)
{
	size_t at = r->off;
	const uint8_t *p = r->bytes + at;
	size_t n = (size_t)(p[0] & 0x7f) << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
	size_t fits = n < left(r) - 4 ? n : left(r) - 4;
	size_t whole = align_up(4 + fits, 16);

	smx_text_add(r->t, "  %03zx  inline data\n", at);
	smx_field(r->t, at, "byte_count", "%zu  bit 31 set: the bytes follow here", n);
	if (fits < n)
		smx_field(r->t, at + 4, "too long", "only %zu bytes are left", fits);
	smx_text_hex(r->t, 9, p + 4, fits);
	r->off += whole < left(r) ? whole : left(r);
}

static void print_pointer(struct reader *r, const char *what, bool whole_operand)
{
	size_t at = r->off;
	const struct smx_wqe_data *d = take(r, sizeof(*d), what);
	uint32_t n;

	if (!d)
		return;
	n = from_be32(d->byte_count);
	smx_field(r->t, at, "byte_count", "%" PRIu32 "%s", n, !n && whole_operand ? "  means 2147483648" : "");
	smx_field(r->t, at + 4, "lkey", "0x%08" PRIx32 "%s", from_be32(d->lkey),
		  from_be32(d->lkey) == SMX_LKEY_END ? "  ends the list" : "");
	smx_field(r->t, at + 8, "va", "0x%016" PRIx64, from_be64(d->va));
}

static void print_data(struct reader *r)
{
	bool mmo = r->op && r->op->opcode == SMX_OP_MMO;
	const char *what = mmo ? "source" : "data";

	while (left(r)) {
		if (r->bytes[r->off] & 0x80 && left(r) >= 4 && !mmo)
			print_inline(r);
		else
			print_pointer(r, what, mmo);
		if (mmo)
			what = "destination";
	}
}

static void print_umr_ctrl(struct reader *r)
{
	static const struct smx_bit_name flags[] = { { 7, "INLINE" }, { 5, "CHECK_FREE" },
		{ 4, "TRANSLATION_OFFSET" }, { 3, "CHECK_QPN" }, { 0, NULL } };
	static const struct smx_bit_name mask[] = { { 0, "LEN" }, { 6, "START_ADDR" }, { 9, "SIG_ERR" },
		{ 12, "BSF_ENABLE" }, { 13, "MKEY" }, { 14, "QPN" }, { 18, "LOCAL_WRITE" },
		{ 19, "REMOTE_READ" }, { 20, "REMOTE_WRITE" }, { 21, "ATOMIC" }, { 29, "FREE" }, { 0, NULL } };
	size_t at = r->off;
	const struct smx_wqe_umr_ctrl *u = take(r, sizeof(*u), "UMR control");

	if (!u)
		return;
	r->umr = *u;
	smx_field_bits(r->t, at, "flags", u->flags, 2, flags);
	smx_field_bytes(r->t, at + 1, "reserved", u->rsvd0, sizeof(u->rsvd0));
	smx_field(r->t, at + 4, "klm_octowords", "%u", from_be16(u->klm_octowords));
	smx_field(r->t, at + 6, u->flags & SMX_UMR_XLT_OFFSET ? "xlt_offset" : "bsf_octowords", "%u",
		  from_be16(u->xlt_offset));
	smx_field_bits(r->t, at + 8, "mkey_mask", from_be64(u->mkey_mask), 16, mask);
	smx_field_bytes(r->t, at + 16, "reserved", u->rsvd1, sizeof(u->rsvd1));
}

static void print_mkey_ctx(struct reader *r)
{
	static const struct smx_bit_name access[] = { { 2, "LOCAL_READ" }, { 3, "LOCAL_WRITE" },
		{ 4, "REMOTE_READ" }, { 5, "REMOTE_WRITE" }, { 6, "ATOMIC" }, { 0, NULL } };
	static const struct smx_bit_name free_bits[] = { { 6, "FREE" }, { 0, NULL } };
	size_t at = r->off;
	const struct smx_wqe_mkey_ctx *m = take(r, sizeof(*m), "mkey context");

	if (!m)
		return;
	smx_field_bits(r->t, at, "free", m->free, 2, free_bits);
	smx_field_bytes(r->t, at + 1, "reserved", &m->rsvd1, 1);
	smx_field_bits(r->t, at + 2, "access", m->access, 2, access);
	smx_field(r->t, at + 3, "sf", "0x%02x", m->sf);
	smx_field(r->t, at + 4, "qpn", "0x%06" PRIx32 "%s", from_be32(m->qpn_mkey) >> 8,
		  from_be32(m->qpn_mkey) >> 8 == 0xffffff ? "  any queue pair" : "");
	smx_field(r->t, at + 7, "mkey_tag", "0x%02" PRIx32, from_be32(m->qpn_mkey) & 0xff);
	smx_field_bytes(r->t, at + 8, "reserved", &m->rsvd2, 4);
	smx_field(r->t, at + 12, "flags_pd", "0x%08" PRIx32, from_be32(m->flags_pd));
	smx_field(r->t, at + 16, "start_addr", "0x%016" PRIx64, from_be64(m->start_addr));
	smx_field(r->t, at + 24, "len", "%" PRIu64, from_be64(m->len));
	smx_field(r->t, at + 32, "bsf_octowords", "%" PRIu32, from_be32(m->bsf_octowords));
	smx_field_bytes(r->t, at + 36, "reserved", m->rsvd3, sizeof(m->rsvd3));
	smx_field(r->t, at + 52, "xlt_octowords", "%" PRIu32, from_be32(m->xlt_octowords));
	smx_field_bytes(r->t, at + 56, "reserved", m->rsvd4, sizeof(m->rsvd4));
	smx_field(r->t, at + 59, "log_page_size", "%u", m->log_page_size);
	smx_field_bytes(r->t, at + 60, "reserved", &m->rsvd5, 4);
}

static void print_klm(struct reader *r, const char *what)
{
	size_t at = r->off;
	const struct smx_wqe_klm *k = take(r, sizeof(*k), what);

	if (!k)
		return;
	smx_field(r->t, at, "byte_count", "%" PRIu32, from_be32(k->byte_count));
	smx_field(r->t, at + 4, "mkey", "0x%08" PRIx32, from_be32(k->mkey));
	smx_field(r->t, at + 8, "va", "0x%016" PRIx64, from_be64(k->va));
}

static void print_repeat_ent(struct reader *r)
{
	size_t at = r->off;
	const struct smx_wqe_repeat_ent *e = take(r, sizeof(*e), "strided entry");

	if (!e)
		return;
	smx_field(r->t, at, "stride", "%u", from_be16(e->stride));
	smx_field(r->t, at + 2, "byte_count", "%u", from_be16(e->byte_count));
	smx_field(r->t, at + 4, "mkey", "0x%08" PRIx32, from_be32(e->mkey));
	smx_field(r->t, at + 8, "va", "0x%016" PRIx64, from_be64(e->va));
}

/* RETURN how many strided entries the header announces. */
static uint32_t print_repeat_block(struct reader *r)
{
	size_t at = r->off;
	const struct smx_wqe_repeat_block *b = take(r, sizeof(*b), "strided layout");

	if (!b)
		return 0;
	smx_field(r->t, at, "byte_count", "%" PRIu32 "  bytes of one turn", from_be32(b->byte_count));
	smx_field(r->t, at + 4, "op", "0x%08" PRIx32, from_be32(b->op));
	smx_field(r->t, at + 8, "repeat_count", "%" PRIu32, from_be32(b->repeat_count));
	smx_field_bytes(r->t, at + 12, "reserved", &b->rsvd, 2);
	smx_field(r->t, at + 14, "num_ent", "%u", from_be16(b->num_ent));
	return from_be16(b->num_ent);
}

static bool is_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static void print_xlt(struct reader *r)
{
	uint32_t entries = from_be16(r->umr.klm_octowords), strided = 0;

	if (!(r->umr.flags & SMX_UMR_INLINE)) {
		if (left(r))
			print_pointer(r, "pointer to translation entries", false);
		return;
	}
	for (; entries && left(r); entries--) {
		size_t room = left(r) < entries * 16 ? left(r) : entries * 16;

		if (is_zero(r->bytes + r->off, room)) {
			smx_text_add(r->t, "  %03zx  %zu bytes of padding, all zero\n", r->off, room);
			r->off += room;
			return;
		}
		if (strided) {
			print_repeat_ent(r);
			strided--;
		} else if (left(r) >= 8 && from_be32(*(const be32 *)(r->bytes + r->off + 4)) == SMX_REPEAT_OP) {
			strided = print_repeat_block(r);
		} else {
			print_klm(r, "list entry");
		}
	}
	if (entries)
		smx_text_add(r->t, "  %03zx  %" PRIu32 " more translation entries are announced, the WQE ends\n",
			     r->off, entries);
	else if (strided)
		smx_text_add(r->t, "  %03zx  %" PRIu32 " more strided entries are announced than follow\n",
			     r->off, strided);
}

static void print_mmo_meta(struct reader *r)
{
	size_t at = r->off;
	const struct smx_wqe_mmo_meta *m = take(r, sizeof(*m), "MMO metadata");

	if (!m)
		return;
	smx_field(r->t, at, "mmo_control", "0x%08" PRIx32, from_be32(m->mmo_control));
	smx_field(r->t, at + 4, "local_key", "0x%08" PRIx32, from_be32(m->local_key));
	smx_field(r->t, at + 8, "local_va", "0x%016" PRIx64, from_be64(m->local_va));
}

static void print_tag(struct reader *r)
{
	static const char *const ops[] = { "NOP", "APPEND", "REMOVE" };
	static const struct smx_bit_name flags[] = { { 7, "CQE_REQ" }, { 6, "SW_COUNT" }, { 0, NULL } };
	size_t at = r->off;
	const struct smx_wqe_tag *s = take(r, sizeof(*s), "tag list operation");

	if (!s)
		return;
	smx_field(r->t, at, "opcode", "0x%02x  %s", s->op,
		  s->op >> 4 < (int)SMX_COUNT(ops) ? ops[s->op >> 4] : "of no public meaning");
	smx_field_bits(r->t, at + 1, "flags", s->flags, 2, flags);
	smx_field(r->t, at + 2, "index", "%u%s", from_be16(s->index),
		  s->op >> 4 == SMX_TAG_OP_APPEND ? "  of the next append" : "");
	smx_field_bytes(r->t, at + 4, "reserved", s->rsvd0, sizeof(s->rsvd0));
	smx_field(r->t, at + 6, "sw_cnt", "%u", from_be16(s->sw_count));
	smx_field_bytes(r->t, at + 8, "reserved", s->rsvd1, sizeof(s->rsvd1));
	smx_field(r->t, at + 16, "append_tag", "0x%016" PRIx64, from_be64(s->tag));
	smx_field(r->t, at + 24, "append_mask", "0x%016" PRIx64, from_be64(s->mask));
}

static void print_seg(struct reader *r, enum smx_seg seg)
{
	switch (seg) {
	case SMX_SEG_ADDR:
		if (r->kind == SMX_WQE_ETH)
			print_eth(r);
		else
			print_addr(r);
		break;
	case SMX_SEG_RADDR:
		print_raddr(r);
		break;
	case SMX_SEG_ATOMIC:
	case SMX_SEG_MASKED_CS:
	case SMX_SEG_MASKED_FA:
		print_atomic(r, seg);
		break;
	case SMX_SEG_ETH:
		print_eth(r);
		break;
	case SMX_SEG_UMR_CTRL:
		print_umr_ctrl(r);
		break;
	case SMX_SEG_MKEY_CTX:
		print_mkey_ctx(r);
		break;
	case SMX_SEG_XLT:
		print_xlt(r);
		break;
	case SMX_SEG_MMO_META:
		print_mmo_meta(r);
		break;
	case SMX_SEG_TAG:
		print_tag(r);
		break;
	case SMX_SEG_DATA:
		print_data(r);
		break;
	case SMX_SEG_RAW:
		print_raw(r, "bytes of no public layout");
		break;
	case SMX_SEG_END:
		break;
	}
}

void smx_print_send_line(struct smx_text *t, const void *wqe)
{
	const struct smx_wqe_ctrl *c = wqe;
	uint32_t w = from_be32(c->opmod_idx_opcode), qpn_ds = from_be32(c->qpn_ds);
	char name[16];

	smx_text_add(t, "%s qp 0x%06" PRIx32 " wqe_index %" PRIu32 " ds %" PRIu32,
		     smx_op_name((uint8_t)w, name), qpn_ds >> 8, bits_get(w, 23, 8), bits_get(qpn_ds, 5, 0));
}

void smx_print_send_wqe(struct smx_text *t, const void *wqe, size_t len, enum smx_wqe_kind kind)
{
	const struct smx_wqe_ctrl *c = wqe;
	struct reader r = { .t = t, .bytes = wqe, .kind = kind };
	size_t claimed;

	if (len < sizeof(*c)) {
		smx_text_add(t, "  a send WQE has at least 16 bytes, there are %zu\n", len);
		return;
	}
	r.op = smx_op_info((uint8_t)from_be32(c->opmod_idx_opcode));
	claimed = bits_get(from_be32(c->qpn_ds), 5, 0) * (size_t)SMX_WQE_DS;
	print_ctrl(t, c, r.op);
	if (claimed < sizeof(*c))
		smx_text_add(t, "  ds is 0: the WQE claims no segment, not even this one\n");
	if (claimed > len)
		smx_text_add(t, "  ds claims %zu bytes, only %zu are here\n", claimed, len);
	r.off = sizeof(*c);
	r.end = claimed < len ? claimed : len;
	if (r.end < r.off)
		r.end = r.off;
	for (size_t i = 0; r.op && r.op->segs[i]; i++)
		print_seg(&r, r.op->segs[i]);
	print_raw(&r, "bytes that are not decoded");
}

void smx_print_recv_wqe(struct smx_text *t, const void *wqe, size_t len, int srq)
{
	struct reader r = { .t = t, .bytes = wqe, .end = len };
	const struct smx_wqe_srq_next *next;

	if (srq) {
		next = take(&r, sizeof(*next), "link");
		if (!next)
			return;
		smx_field_bytes(t, 0, "reserved", next->rsvd0, sizeof(next->rsvd0));
		smx_field(t, 2, "next_wqe_index", "%u", from_be16(next->next_wqe_index));
		smx_field(t, 4, "signature", "0x%02x", next->signature);
		smx_field_bytes(t, 5, "reserved", next->rsvd1, sizeof(next->rsvd1));
	}
	while (left(&r)) {
		bool last = left(&r) >= 16 &&
			    from_be32(*(const be32 *)(r.bytes + r.off + 4)) == SMX_LKEY_END;

		print_pointer(&r, "data", false);
		if (last)
			break;
	}
	print_raw(&r, "bytes behind the end of the list");
}
