/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Deciding what dumped bytes are, and printing them. Finding them in text: hw_dump_parse.c. */
#include "hw/hw_dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "hw/cqe.h"
#include "hw/hw_opcode.h"
#include "hw/wqe.h"

enum { CQE_BYTES = 64 };

static bool all_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

/* 0: no error CQE. A real one has 6 or more. Bytes 0..31 alone do not decide: DPDK marks CQEs there. */
static int err_cqe_score(const uint8_t *p, size_t n)
{
	uint8_t op = n >= CQE_BYTES ? p[63] >> 4 : 0;

	if (op != SMX_CQE_REQ_ERR && op != SMX_CQE_RESP_ERR)
		return 0;
	return 1 + 3 * smx_status_of(p[55])->known + 2 * all_zero(p + 36, 16) + 2 * all_zero(p, 32) +
	       (op == SMX_CQE_RESP_ERR || smx_op_info(p[56]));
}

static bool is_err_cqe(const uint8_t *p, size_t n)
{
	return err_cqe_score(p, n) >= 6;
}

/* Bytes that the operation's fixed segments need, on a queue pair without address segment. */
static size_t least_bytes(const struct smx_op_info *op)
{
	size_t n = SMX_WQE_DS;

	for (size_t i = 0; op->segs[i]; i++)
		n += smx_seg_bytes(op->segs[i]);
	return n;
}

static size_t wqe_bytes(const uint8_t *p)
{
	return (p[7] & 0x3fu) * SMX_WQE_DS;
}

static bool is_send_wqe(const uint8_t *p, size_t n)
{
	const struct smx_op_info *op = n >= SMX_WQE_DS ? smx_op_info(p[3]) : NULL;

	return op && wqe_bytes(p) >= least_bytes(op) && !(p[7] & 0xc0) && !(p[11] & 0x11) &&
	       !all_zero(p + 4, 3);
}

static bool is_good_cqe(const uint8_t *p, size_t n)
{
	if (n < CQE_BYTES || p[63] >> 4 > SMX_CQE_RESP_SEND_INV || (p[63] & 0x0c))
		return false;
	return all_zero(p, 2) && all_zero(p + 4, 13) && all_zero(p + 18, 4) && !all_zero(p + 57, 3) &&
	       (p[63] >> 4 || smx_op_info(p[56]));
}

static bool is_something(const uint8_t *p, size_t n)
{
	return is_err_cqe(p, n) || is_send_wqe(p, n) || is_good_cqe(p, n);
}

static void take_err_cqe(const uint8_t *p, size_t before, struct smx_dump_item *it)
{
	it->kind = before ? SMX_DUMP_CQE128 : SMX_DUMP_CQE;
	it->len = before + CQE_BYTES;
	snprintf(it->why, sizeof(it->why), "error CQE%s: byte %zu, 0x%02x, marks a failed %s and byte %zu, "
		 "0x%02x, is %s", before ? " of 128 bytes" : "", before + 63, p[63],
		 p[63] >> 4 == SMX_CQE_REQ_ERR ? "send" : "receive", before + 55, p[55],
		 smx_status_of(p[55])->known ? "a syndrome" : "no known syndrome");
}

/* A WQE takes whole blocks, unless the paste stops at its last segment and a CQE comes right behind. */
static void take_send_wqe(const uint8_t *p, size_t n, struct smx_dump_item *it)
{
	size_t bytes = wqe_bytes(p), blocks = align_up(bytes, SMX_WQE_BB);
	char name[16];

	it->kind = SMX_DUMP_SEND_WQE;
	if (bytes < n && is_err_cqe(p + bytes, n - bytes) &&
	    (blocks >= n || !is_err_cqe(p + blocks, n - blocks)))
		it->len = bytes;
	else
		it->len = blocks < n ? blocks : n;
	snprintf(it->why, sizeof(it->why), "send WQE: byte 3, 0x%02x, is opcode %s and byte 7 gives %zu bytes%s",
		 p[3], smx_op_name(p[3], name), bytes, bytes > n ? ", more than there are" : "");
}

static void take_unknown(const uint8_t *p, size_t n, struct smx_dump_item *it)
{
	size_t len = SMX_WQE_DS;

	it->kind = SMX_DUMP_UNKNOWN;
	while (len < n && !is_something(p + len, n - len))
		len += SMX_WQE_DS;
	it->len = len < n ? len : n;
	if (all_zero(p, it->len))
		snprintf(it->why, sizeof(it->why), "%zu bytes, all zero", it->len);
	else
		snprintf(it->why, sizeof(it->why), "neither: no WQE opcode with a fitting length in bytes 3 and 7, "
			 "no CQE opcode in byte 63");
}

size_t smx_dump_decide(const uint8_t *bytes, size_t len, struct smx_dump_item *items)
{
	size_t count = 0;

	for (size_t off = 0; off < len && count < SMX_DUMP_ITEMS_MAX; off += items[count++].len) {
		struct smx_dump_item *it = &items[count];
		const uint8_t *p = bytes + off;
		size_t n = len - off;

		it->off = off;
		if (is_err_cqe(p, n)) {
			take_err_cqe(p, 0, it);
		} else if (is_send_wqe(p, n)) {
			take_send_wqe(p, n, it);
		} else if (n >= 2 * CQE_BYTES && is_err_cqe(p + CQE_BYTES, n - CQE_BYTES)) {
			take_err_cqe(p + CQE_BYTES, CQE_BYTES, it);
		} else if (is_good_cqe(p, n)) {
			it->kind = SMX_DUMP_CQE;
			it->len = CQE_BYTES;
			snprintf(it->why, sizeof(it->why), "CQE: byte 63, 0x%02x, marks a good completion and "
				 "reserved bytes are 0", p[63]);
		} else {
			take_unknown(p, n, it);
		}
	}
	return count;
}

static size_t cut_as(enum smx_dump_kind as, size_t len, struct smx_dump_item *items)
{
	size_t step = as == SMX_DUMP_CQE ? CQE_BYTES : as == SMX_DUMP_CQE128 ? 2 * CQE_BYTES : len;
	size_t count = 0;

	for (size_t off = 0; off < len && count < SMX_DUMP_ITEMS_MAX; off += step, count++) {
		bool whole = len - off >= step;

		items[count].off = off;
		items[count].len = whole ? step : len - off;
		items[count].kind = whole ? as : SMX_DUMP_UNKNOWN;
		snprintf(items[count].why, sizeof(items[count].why), whole ? "as asked for" : "not enough bytes");
	}
	return count;
}

/* The last send WQE of the paste. */
struct seen {
	bool wqe;
	uint32_t qpn;
	uint16_t index;
};

static void print_relation(struct smx_text *t, const struct smx_err_cqe *c, const struct seen *seen)
{
	bool same_qp = (from_be32(c->s_wqe_opcode_qpn) & 0xffffff) == seen->qpn;

	if (same_qp && from_be16(c->wqe_counter) == seen->index)
		smx_text_add(t, "The CQE is about the WQE above: same queue pair, same index.\n");
	else
		smx_text_add(t, "The CQE is not about the WQE above: it has another %s.\n",
			     same_qp ? "index" : "queue pair");
}

static void print_cqe(struct smx_text *t, const uint8_t *p, const struct seen *seen)
{
	struct smx_codes codes;
	uint8_t op = p[63] >> 4;

	smx_text_add(t, "CQE\n");
	smx_print_cqe(t, p);
	if (op != SMX_CQE_REQ_ERR && op != SMX_CQE_RESP_ERR)
		return;
	if (seen->wqe && op == SMX_CQE_REQ_ERR)
		print_relation(t, (const void *)p, seen);
	codes = smx_codes_of_cqe(p);
	smx_print_codes(t, &codes);
}

static void print_send_wqe(struct smx_text *t, const uint8_t *p, size_t len, enum smx_wqe_kind kind,
			   struct seen *seen)
{
	size_t used;

	smx_text_add(t, "Send WQE: ");
	if (len < SMX_WQE_DS) {
		smx_text_add(t, "%zu bytes, fewer than its control segment\n", len);
		smx_text_hex(t, 7, p, len);
		return;
	}
	*seen = (struct seen){ true, (uint32_t)p[4] << 16 | (uint32_t)p[5] << 8 | p[6],
			       (uint16_t)(p[1] << 8 | p[2]) };
	smx_print_send_line(t, p);
	smx_text_add(t, "\n");
	smx_print_send_wqe(t, p, len, kind);
	used = wqe_bytes(p) < SMX_WQE_DS ? SMX_WQE_DS : wqe_bytes(p);
	if (used >= len)
		return;
	smx_text_add(t, "  %03zx  behind the WQE's end, %zu bytes%s\n", used, len - used,
		     all_zero(p + used, len - used) ? ", all zero" : "");
	if (!all_zero(p + used, len - used))
		smx_text_hex(t, 7, p + used, len - used);
}

static bool print_item(struct smx_text *t, const uint8_t *bytes, const struct smx_dump_item *it,
		       const struct smx_dump_options *opt, struct seen *seen)
{
	const uint8_t *p = bytes + it->off;

	smx_text_add(t, "Bytes %zu..%zu: %s\n", it->off, it->off + it->len - 1, it->why);
	switch (it->kind) {
	case SMX_DUMP_SEND_WQE:
		print_send_wqe(t, p, it->len, opt->kind, seen);
		return true;
	case SMX_DUMP_RECV_WQE:
	case SMX_DUMP_SRQ_WQE:
		smx_text_add(t, "Receive WQE\n");
		smx_print_recv_wqe(t, p, it->len, it->kind == SMX_DUMP_SRQ_WQE);
		return true;
	case SMX_DUMP_CQE128:
		smx_text_add(t, "  first 64 bytes, where short messages are scattered\n");
		smx_text_hex(t, 7, p, CQE_BYTES);
		print_cqe(t, p + CQE_BYTES, seen);
		return true;
	case SMX_DUMP_CQE:
		print_cqe(t, p, seen);
		return true;
	case SMX_DUMP_UNKNOWN:
		if (!all_zero(p, it->len))
			smx_text_hex(t, 7, p, it->len);
		return false;
	}
	return false;
}

static void swap_words(uint8_t *out, const uint8_t *in, size_t len)
{
	for (size_t i = 0; i < len; i++)
		out[i] = in[i ^ 3];
}

static size_t print_block(struct smx_text *t, const struct smx_dump_block *b,
			  const struct smx_dump_options *opt, struct seen *seen)
{
	static const char *const shape[] = { "plain hex", "words, as libmlx5 prints them",
		"lines with offsets, as the kernel prints them",
		"lines with offsets and characters, as DPDK prints them" };
	struct smx_dump_item items[SMX_DUMP_ITEMS_MAX];
	uint8_t swapped[SMX_DUMP_BYTES_MAX];
	const uint8_t *bytes = b->bytes;
	size_t count, understood = 0;

	smx_text_add(t, "%zu bytes from line %u: %s\n", b->len, b->line, shape[b->shape]);
	if (b->too_long)
		smx_text_add(t, "More than %d bytes stand together; the rest is left out.\n", SMX_DUMP_BYTES_MAX);
	if (b->len < SMX_DUMP_BYTES_MIN) {
		smx_text_add(t, "Too short: a WQE has at least %d bytes, a CQE 64.\n", SMX_DUMP_BYTES_MIN);
		return 0;
	}
	if (opt->as == SMX_DUMP_UNKNOWN && b->words && b->len % 4 == 0) {
		smx_dump_decide(bytes, b->len, items);
		swap_words(swapped, bytes, b->len);
		if (items[0].kind == SMX_DUMP_UNKNOWN && is_something(swapped, b->len)) {
			smx_text_add(t, "The words were printed as little-endian numbers; "
				     "their bytes are swapped back.\n");
			bytes = swapped;
		}
	}
	count = opt->as == SMX_DUMP_UNKNOWN ? smx_dump_decide(bytes, b->len, items) : cut_as(opt->as, b->len, items);
	for (size_t i = 0; i < count; i++)
		understood += print_item(t, bytes, &items[i], opt, seen);
	return understood;
}

size_t smx_dump_print(struct smx_text *t, const struct smx_dump *dump, const struct smx_dump_options *opt)
{
	struct seen seen = { .wqe = false };
	size_t understood = 0;

	for (size_t i = 0; i < dump->count; i++) {
		if (i)
			smx_text_add(t, "\n");
		understood += print_block(t, &dump->block[i], opt, &seen);
	}
	if (dump->too_many)
		smx_text_add(t, "\nMore than %d dumps; the rest is left out.\n", SMX_DUMP_BLOCKS_MAX);
	/* Beside bytes the text repeats them. */
	for (size_t i = 0; !understood && i < dump->codes_count; i++) {
		smx_text_add(t, "%sCodes that a line of the text names\n", dump->count || i ? "\n" : "");
		smx_print_codes(t, &dump->codes[i]);
	}
	return understood ? understood : dump->codes_count;
}
