/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Text put together piece by piece in the caller's buffer: always a C string, cut at the buffer's end. */
#ifndef SMX_TEXT_H
#define SMX_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct smx_text {
	char *buf;
	size_t cap;	/* at least 1 */
	size_t len;	/* without the final 0 */
	bool cut;	/* something did not fit */
};

static inline struct smx_text smx_text_in(char *buf, size_t cap)
{
	buf[0] = '\0';
	return (struct smx_text){ .buf = buf, .cap = cap };
}

void smx_text_add(struct smx_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Bytes as "00: 08 00 0a …", 16 a line, each line after indent blanks. */
void smx_text_hex(struct smx_text *t, unsigned int indent, const void *bytes, size_t n);

#endif
