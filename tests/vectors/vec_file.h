/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lines of a text file, plain or xz-compressed (by its name). */
#ifndef VEC_FILE_H
#define VEC_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The whole text, NUL-terminated; *bytes without the NUL. RETURN NULL after a message on stderr. */
char *vec_file_read(const char *path, size_t *bytes);

#endif
