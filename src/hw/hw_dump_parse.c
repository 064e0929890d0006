/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finding hex in text. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "hw/hw_dump.h"

/* The hex that one line of text contributes. */
struct line {
	uint8_t bytes[SMX_DUMP_BYTES_MAX];
	size_t n;
	bool too_long;
	bool has_offset;
	uint64_t offset;
	size_t groups;
	size_t digits;		/* of every group; 0 where they differ */
	size_t first_digits;	/* of the first group */
	bool other;		/* there are words that are not hex */
	bool bar;		/* a column of characters follows */
};

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == ',' || c == ';' || c == '{' || c == '}' ||
	       c == '"' || c == '\'';
}

static void forget(struct line *l)
{
	l->n = 0;
	l->groups = 0;
	l->digits = 0;
	l->has_offset = false;
	l->too_long = false;
}

static void add_byte(struct line *l, uint8_t v)
{
	if (l->n < sizeof(l->bytes))
		l->bytes[l->n++] = v;
	else
		l->too_long = true;
}

/* Digits [p, p + n); an odd number is a number written without its leading zero. */
static void add_group(struct line *l, const char *p, size_t n)
{
	size_t i = 0;

	if (n & 1)
		add_byte(l, (uint8_t)hex_value(p[i++]));
	for (; i < n; i += 2)
		add_byte(l, (uint8_t)(hex_value(p[i]) << 4 | hex_value(p[i + 1])));
	if (!l->groups)
		l->first_digits = n;
	l->digits = !l->groups || l->digits == n ? n : 0;
	l->groups++;
}

enum token { TOKEN_HEX, TOKEN_OFFSET, TOKEN_OTHER };

static enum token classify(const char *p, size_t n, const char **digits, size_t *count)
{
	bool prefixed = n > 2 && (p[0] == '0' || p[0] == '\\') && (p[1] == 'x' || p[1] == 'X');
	size_t i = prefixed ? 2 : 0, start = i;

	while (i < n && hex_value(p[i]) >= 0)
		i++;
	*digits = p + start;
	*count = i - start;
	if (!*count)
		return TOKEN_OTHER;
	if (i == n - 1 && p[i] == ':' && *count <= 16)
		return TOKEN_OFFSET;
	/* The next message of a log may follow the last word without a newline. */
	if (i < n && !(p[i] == '[' && *count >= 8))
		return TOKEN_OTHER;
	return *count & 1 && !(prefixed && *count == 1) ? TOKEN_OTHER : TOKEN_HEX;
}

static uint64_t number_of(const char *digits, size_t count)
{
	uint64_t v = 0;

	for (size_t i = 0; i < count; i++)
		v = v << 4 | (uint64_t)hex_value(digits[i]);
	return v;
}

/* hexdump -C puts no colon behind its offset: eight digits, then groups of two. */
static void find_bare_offset(struct line *l)
{
	if (l->has_offset || l->digits || l->groups < 2 || l->first_digits < 7 || l->n < 5 ||
	    l->n != l->groups - 1 + l->first_digits / 2 || l->first_digits != 8)
		return;
	l->has_offset = true;
	l->offset = (uint64_t)l->bytes[0] << 24 | (uint64_t)l->bytes[1] << 16 | (uint64_t)l->bytes[2] << 8 |
		    l->bytes[3];
	l->n -= 4;
	memmove(l->bytes, l->bytes + 4, l->n);
	l->groups--;
	l->digits = 2;
}

/* Characters printed beside the bytes are behind a bar, or two blanks behind the 16th byte. */
static void scan_line(struct line *l, const char *p, const char *end)
{
	const char *digits;
	size_t count, blanks = 0;

	forget(l);
	l->other = l->bar = false;
	while (p < end) {
		const char *from = p;

		if (*p == '|' && l->n) {
			l->bar = true;
			break;
		}
		if (is_blank(*p)) {
			blanks++;
			p++;
			continue;
		}
		if (blanks >= 2 && l->has_offset && l->n >= 16)
			break;
		while (p < end && !is_blank(*p) && *p != '|')
			p++;
		if (p == from)
			p++;
		blanks = 0;
		switch (classify(from, (size_t)(p - from), &digits, &count)) {
		case TOKEN_HEX:
			add_group(l, digits, count);
			break;
		case TOKEN_OFFSET:
			if (l->n)
				l->other = true;
			forget(l);
			l->has_offset = true;
			l->offset = number_of(digits, count);
			break;
		case TOKEN_OTHER:
			if (l->n >= 16)
				goto out;
			l->other = true;
			forget(l);
			break;
		}
	}
out:
	find_bare_offset(l);
	/* Words that happen to be hex are no dump. */
	if (!l->has_offset && l->other && l->n < 16)
		l->n = 0;
}

static enum smx_dump_shape shape_of(const struct line *l)
{
	if (l->bar)
		return SMX_DUMP_COLUMNS;
	if (l->has_offset)
		return SMX_DUMP_OFFSETS;
	return l->digits == 8 && l->groups == 4 ? SMX_DUMP_WORDS : SMX_DUMP_PLAIN;
}

static bool continues(const struct smx_dump_block *b, const struct line *l, bool adjacent)
{
	if (l->has_offset)
		return b->shape >= SMX_DUMP_OFFSETS && l->offset == b->base + b->len;
	return b->shape < SMX_DUMP_OFFSETS && adjacent;
}

/* hexdump -C ends with the length, where the next offset would be. */
static bool is_total(const struct smx_dump_block *cur, const struct line *l)
{
	return cur && cur->shape == SMX_DUMP_COLUMNS && !l->has_offset && l->groups == 1 && l->n == 4 &&
	       ((uint64_t)l->bytes[0] << 24 | (uint64_t)l->bytes[1] << 16 | (uint64_t)l->bytes[2] << 8 |
		l->bytes[3]) == cur->base + cur->len;
}

/* RETURN the block that the line went into, or NULL. */
static struct smx_dump_block *add_line(struct smx_dump *d, struct smx_dump_block *cur, const struct line *l,
				       unsigned int number, bool adjacent)
{
	size_t room, n;

	if (!cur || !continues(cur, l, adjacent)) {
		if (d->count == SMX_DUMP_BLOCKS_MAX) {
			d->too_many = true;
			return NULL;
		}
		cur = &d->block[d->count++];
		cur->len = 0;
		cur->base = l->has_offset ? l->offset : 0;
		cur->shape = shape_of(l);
		cur->line = number;
		cur->words = l->digits == 8;
		cur->too_long = false;
	}
	room = sizeof(cur->bytes) - cur->len;
	n = l->n < room ? l->n : room;
	memcpy(cur->bytes + cur->len, l->bytes, n);
	cur->len += n;
	cur->too_long |= n < l->n || l->too_long;
	cur->words &= l->digits == 8;
	return cur;
}

static void add_codes(struct smx_dump *d, unsigned int syndrome, int vendor, int hw, enum smx_side side)
{
	struct smx_codes c = { (uint8_t)syndrome, (int16_t)vendor, (int16_t)hw, (uint8_t)side };

	if (syndrome > 0xff || vendor > 0xff || hw > 0xff || vendor < -1 || hw < -1)
		return;
	for (size_t i = 0; i < d->codes_count; i++)
		if (d->codes[i].syndrome == c.syndrome && d->codes[i].vendor == c.vendor &&
		    d->codes[i].hw == c.hw && d->codes[i].side == c.side)
			return;
	if (d->codes_count < SMX_DUMP_CODES_MAX)
		d->codes[d->codes_count++] = c;
}

static void add_status(struct smx_dump *d, unsigned int status, int vendor)
{
	const struct smx_status *s = smx_status_by_number(status);

	if (s)
		add_codes(d, s->syndrome, vendor, SMX_CODE_UNKNOWN, SMX_SIDE_ANY);
}

/* Lines that print codes without bytes; side: what a line before said about it. */
static void scan_codes(struct smx_dump *d, const char *from, size_t len, enum smx_side *side)
{
	char line[512];
	unsigned int a, b, c, e;
	const char *p;

	if (len >= sizeof(line))
		len = sizeof(line) - 1;
	memcpy(line, from, len);
	line[len] = '\0';
	if (strstr(line, "Responder error cqe"))
		*side = SMX_SIDE_RESP;
	else if (strstr(line, "Requestor error cqe"))
		*side = SMX_SIDE_REQ;
	p = strstr(line, "syndrome 0x");
	if (p && sscanf(p, "syndrome 0x%3x, vendor syndrome 0x%3x", &a, &b) == 2)
		add_codes(d, a, (int)b, SMX_CODE_UNKNOWN, *side);
	p = strstr(line, "(synd 0x");
	if (p && sscanf(p, "(synd 0x%3x vend 0x%3x hw_synd %5u/%5u", &a, &b, &c, &e) == 4)
		add_codes(d, a, (int)b, (int)e, SMX_SIDE_ANY);
	p = strstr(line, "completion with error ");
	if (p && sscanf(p, "completion with error %5u", &a) == 1) {
		p = strstr(p, "vendor err ");
		if (p && sscanf(p, "vendor err %5u", &b) == 1)
			add_status(d, a, (int)b);
	}
	p = strstr(line, "Failed status ");
	if (p && sscanf(p, "Failed status %5u: wr_id %*u syndrom 0x%3x", &a, &b) == 2)
		add_status(d, a, (int)b);
	p = strstr(line, "WC error: ");
	if (p && sscanf(p, "WC error: %5u", &a) == 1)
		add_status(d, a, SMX_CODE_UNKNOWN);
}

void smx_dump_parse(struct smx_dump *out, const char *text, size_t len)
{
	const char *end = text + len;
	struct smx_dump_block *cur = NULL;
	enum smx_side side = SMX_SIDE_ANY;
	unsigned int number = 1;
	bool adjacent = false;
	struct line l;

	out->count = out->codes_count = 0;
	out->too_many = false;
	for (; text < end; number++) {
		const char *eol = memchr(text, '\n', (size_t)(end - text));

		if (!eol)
			eol = end;
		scan_line(&l, text, eol);
		if (is_total(cur, &l))
			l.n = 0;
		else if (l.n)
			cur = add_line(out, cur, &l, number, adjacent);
		else if (eol > text)
			scan_codes(out, text, (size_t)(eol - text), &side);
		adjacent = l.n > 0;
		text = eol + 1;
	}
}
