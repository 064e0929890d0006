/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Four logs of one program, from each side on each fill, record by record.
 *
 * What libmlx5 wrote is what it left the same on both fills. There we must have written the same. What it left
 * unwritten we may leave too, or clear. */
#include "oracle.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static const struct { enum { RUN, SAME, OWN, SKIP } run; int err; const char *name; } rows[ROW_COUNT] = {
#define ROW(id, err, how, why) [ROW_##id] = { how, err, #id },
#include "rows.def"
#undef ROW
};

uint64_t row_used[ROW_COUNT];

struct place {
	const struct record *r[SIDES][FILLS];
	enum row row;
	uint32_t row_at;
	bool is_signed, posts;
	struct difference *diff;
};

static __attribute__((format(printf, 2, 3))) bool differs(struct place *p, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(p->diff->text, sizeof(p->diff->text), format, ap);
	va_end(ap);
	return false;
}

static uint8_t byte(const struct place *p, enum side side, int fill, uint32_t i)
{
	return record_bytes(p->r[side][fill])[i];
}

static bool is_fill(uint8_t a, uint8_t b)
{
	return a == FILL_A && b == FILL_B;
}

static uint8_t xor_of(const uint8_t *bytes, uint32_t n)
{
	uint8_t x = 0;

	while (n--)
		x ^= *bytes++;
	return x;
}

/* The signature of a WQE with unwritten bytes depends on those; ours must be right for its own. */
static bool signature_right(const struct place *p, uint32_t at, int fill)
{
	const struct record *r = p->r[OURS][fill];

	if (!p->is_signed || at % 64 != 8)
		return false;
	return r->tag == TAG_UAR || (r->tag == TAG_WQE && at == 8 && xor_of(record_bytes(r), r->b * 16) == 0xff);
}

static bool bytes_equal(struct place *p, const char *what, bool undefined_is_free)
{
	for (uint32_t i = 0; i < p->r[THEIRS][0]->n; i++) {
		uint8_t a = byte(p, THEIRS, 0, i), b = byte(p, THEIRS, 1, i);
		uint8_t u = byte(p, OURS, 0, i), v = byte(p, OURS, 1, i);

		if (u == a && v == b)
			continue;
		if (is_fill(a, b) && (undefined_is_free || (!u && !v)))
			continue;
		if (signature_right(p, i, 0) && signature_right(p, i, 1))
			continue;
		return differs(p, "%s byte %u: libmlx5 %02x, on the other fill %02x%s, softmlx5 %02x, %02x", what, i,
			       a, b, is_fill(a, b) ? " (not written)" : "", u, v);
	}
	return true;
}

static bool exact(struct place *p, const char *what)
{
	const struct record *x = p->r[THEIRS][0];

	for (int fill = 0; fill < FILLS; fill++) {
		const struct record *a = p->r[THEIRS][fill], *u = p->r[OURS][fill];

		if (a->a != u->a || a->b != u->b)
			return differs(p, "%s: libmlx5 %d (0x%x), %d, softmlx5 %d (0x%x), %d", what, (int)a->a, a->a,
				       (int)a->b, (int)u->a, u->a, (int)u->b);
	}
	for (uint32_t i = 0; i < x->n; i++) {
		if (byte(p, THEIRS, 0, i) != byte(p, OURS, 0, i) || byte(p, THEIRS, 1, i) != byte(p, OURS, 1, i))
			return differs(p, "%s byte %u: libmlx5 %02x, softmlx5 %02x", what, i, byte(p, THEIRS, 0, i),
				       byte(p, OURS, 0, i));
	}
	return true;
}

/* A step that we answer otherwise on purpose. */
static bool row_record(struct place *p)
{
	const struct record *t = p->r[THEIRS][0], *u = p->r[OURS][0];

	if (t->tag == TAG_RC) {
		if ((int)u->a != rows[p->row].err || (p->posts && rows[p->row].err && u->b != p->row_at))
			return differs(p, "softmlx5 returned %d (request %d), the row %s of the table says %d (%u)",
				       (int)u->a, (int)u->b, rows[p->row].name, rows[p->row].err, p->row_at);
		if (rows[p->row].run == RUN && t->a == u->a && t->b == u->b)
			return differs(p, "libmlx5 returned %d too: the row %s of the table is not needed", (int)t->a,
				       rows[p->row].name);
		return true;
	}
	/* The doorbell record, and where the queue stood: refused means not rung. */
	if (t->tag == TAG_DB && rows[p->row].err && !(p->posts && p->row_at) && (u->a & 0xffff) != u->b)
		return differs(p, "softmlx5 refused the step and moved the doorbell record from %u to %u", u->b, u->a);
	return true;
}

static bool record_equal(struct place *p)
{
	const struct record *t = p->r[THEIRS][0], *u = p->r[OURS][0];
	bool deviates = p->row != ROW_NONE && rows[p->row].run != SAME;

	switch ((enum tag)t->tag) {
	case TAG_STEP:
		p->row = ROW_NONE;
		p->posts = !strncmp((const char *)record_bytes(t), "ibv_post_send", 13);
		return true;
	case TAG_CONFIG:
		p->is_signed = t->b;
		return true;
	case TAG_ROW:
		p->row = (enum row)t->a;
		p->row_at = t->b;
		row_used[p->row]++;
		return exact(p, "row");
	case TAG_RC:
		return deviates ? row_record(p) : exact(p, "return code, refused request");
	case TAG_DB:
		return deviates ? row_record(p) : exact(p, "doorbell records of sends and receives");
	case TAG_WQE:
		if (t->a != u->a || t->b != u->b)
			return differs(p, "WQE at block %u of %u segments, softmlx5 %u of %u", t->a, t->b, u->a, u->b);
		return bytes_equal(p, "WQE", false);
	case TAG_UAR:
		return p->row != ROW_NONE || bytes_equal(p, "UAR", false);
	case TAG_RECV:
		return t->a != u->a ? exact(p, "entry of the receive ring") : bytes_equal(p, "receive WQE", false);
	case TAG_WC:
		return bytes_equal(p, "struct ibv_wc", true);
	case TAG_KEPT:
		if (p->row != ROW_NONE)
			return true;
		if (t->a || t->b)
			return differs(p, "libmlx5 wrote over %u outstanding blocks and %u others", t->a, t->b);
		return exact(p, "blocks that changed: outstanding, others");
	case TAG_VALUE:
		return exact(p, "value");
	case TAG_BYTES:
		return exact(p, t->a == 0 ? "address vector" : t->a == 1 ? "fields of a completion" : "scattered data");
	default:
		return exact(p, "record");
	}
}

static bool same_shape(struct place *p)
{
	const struct record *x = p->r[THEIRS][0];

	for (int side = 0; side < SIDES; side++) {
		for (int fill = 0; fill < FILLS; fill++) {
			const struct record *r = p->r[side][fill];

			if (!r)
				return differs(p, "%s ended here", side_name((enum side)side));
			if (!x || r->tag != x->tag || r->n != x->n)
				return differs(p, "%s went another way: record %u of %u bytes, libmlx5 %d of %d",
					       side_name((enum side)side), r->tag, r->n, x ? (int)x->tag : -1,
					       x ? (int)x->n : 0);
		}
	}
	return true;
}

bool logs_equal(const struct logs *logs, struct difference *diff)
{
	struct place p = { .diff = diff };

	diff->step = 0;
	for (uint32_t i = 0;; i++) {
		bool last = true;

		for (int side = 0; side < SIDES; side++) {
			for (int fill = 0; fill < FILLS; fill++) {
				p.r[side][fill] = log_record(&logs->of[side][fill], i);
				last = last && (!p.r[side][fill] || p.r[side][fill]->tag == TAG_END);
			}
		}
		diff->record = i;
		if (!same_shape(&p))
			return false;
		if (last)
			return true;
		if (p.r[THEIRS][0]->tag == TAG_STEP)
			diff->step = p.r[THEIRS][0]->a;
		if (!record_equal(&p))
			return false;
	}
}
