/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Text put together piece by piece. */
#include "base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

void smx_text_add(struct smx_text *t, const char *fmt, ...)
{
	size_t room = t->cap - t->len;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(t->buf + t->len, room, fmt, args);
	va_end(args);
	if (n < 0)
		return;
	if ((size_t)n >= room) {
		t->cut = true;
		t->len = t->cap - 1;
	} else {
		t->len += (size_t)n;
	}
}

void smx_text_hex(struct smx_text *t, unsigned int indent, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++) {
		if (i % 16 == 0)
			smx_text_add(t, "%*s%02zx:", (int)indent, "", i);
		smx_text_add(t, " %02x%s", p[i], i % 16 == 15 || i + 1 == n ? "\n" : "");
	}
}
