/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One line a field: offset, name, value. Shared by the printers of this folder. */
#ifndef SMX_HW_FIELD_H
#define SMX_HW_FIELD_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

struct smx_bit_name {
	unsigned int bit;
	const char *name;	/* NULL ends the list */
};

void smx_field(struct smx_text *t, size_t off, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* v with digits hexadecimal digits, then the names of its bits; bits without a name as a number. */
void smx_field_bits(struct smx_text *t, size_t off, const char *name, uint64_t v, unsigned int digits,
		    const struct smx_bit_name *bits);

/* Bytes in their order; "all zero" where they are and there are more than 4. */
void smx_field_bytes(struct smx_text *t, size_t off, const char *name, const void *bytes, size_t n);

#endif
