/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One line a field. */
#include "hw/hw_field.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { NAME_COLUMNS = 18 };

void smx_field(struct smx_text *t, size_t off, const char *name, const char *fmt, ...)
{
	char value[128];
	va_list args;

	va_start(args, fmt);
	vsnprintf(value, sizeof(value), fmt, args);
	va_end(args);
	smx_text_add(t, "    %03zx  %-*s %s\n", off, NAME_COLUMNS, name, value);
}

void smx_field_bits(struct smx_text *t, size_t off, const char *name, uint64_t v, unsigned int digits,
		    const struct smx_bit_name *bits)
{
	uint64_t unknown = v;

	smx_text_add(t, "    %03zx  %-*s 0x%0*" PRIx64, off, NAME_COLUMNS, name, (int)digits, v);
	for (; bits->name; bits++) {
		if (v >> bits->bit & 1)
			smx_text_add(t, "  %s", bits->name);
		unknown &= ~(1ull << bits->bit);
	}
	if (unknown)
		smx_text_add(t, "  unknown bits 0x%" PRIx64, unknown);
	smx_text_add(t, "\n");
}

void smx_field_bytes(struct smx_text *t, size_t off, const char *name, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;
	uint8_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= p[i];
	if (!n)
		return;
	smx_text_add(t, "    %03zx  %-*s", off, NAME_COLUMNS, name);
	if (!any && n > 4) {
		smx_text_add(t, " %zu bytes, all zero\n", n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (i && i % 16 == 0)
			smx_text_add(t, "\n         %*s", NAME_COLUMNS, "");
		smx_text_add(t, " %02x", p[i]);
	}
	smx_text_add(t, "\n");
}
