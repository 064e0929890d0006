/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fields of a vector's line. A field that must be there and is not, or is of the wrong type, ends the
 * program: a file that is not understood must not count as passed. */
#ifndef VEC_JSON_H
#define VEC_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

json_t *vec_get(const json_t *obj, const char *key);		/* NULL where absent or null */
json_t *vec_need(const json_t *obj, const char *key);
uint64_t vec_int(const json_t *value);				/* a number, or a string "0x…" */
uint64_t vec_num(const json_t *obj, const char *key);
uint64_t vec_num_or(const json_t *obj, const char *key, uint64_t otherwise);
const char *vec_str(const json_t *obj, const char *key);
bool vec_is(const json_t *obj, const char *key, const char *text);
/* Hex digits to bytes. RETURN their number; at most max. */
size_t vec_hex(const char *hex, uint8_t *out, size_t max);
_Noreturn void vec_die(const char *what, const char *key);

#endif
