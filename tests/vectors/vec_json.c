/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "vec_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void vec_die(const char *what, const char *key)
{
	fprintf(stderr, "wqe_vectors: %s: %s\n", what, key);
	exit(1);
}

json_t *vec_get(const json_t *obj, const char *key)
{
	json_t *v = json_object_get(obj, key);

	return json_is_null(v) ? NULL : v;
}

json_t *vec_need(const json_t *obj, const char *key)
{
	json_t *v = vec_get(obj, key);

	if (!v)
		vec_die("a line lacks the field", key);
	return v;
}

uint64_t vec_int(const json_t *value)
{
	if (json_is_integer(value))
		return (uint64_t)json_integer_value(value);
	if (json_is_string(value) && !strncmp(json_string_value(value), "0x", 2))
		return strtoull(json_string_value(value), NULL, 16);
	vec_die("not a number", json_is_string(value) ? json_string_value(value) : "?");
}

uint64_t vec_num(const json_t *obj, const char *key)
{
	return vec_int(vec_need(obj, key));
}

uint64_t vec_num_or(const json_t *obj, const char *key, uint64_t otherwise)
{
	const json_t *v = vec_get(obj, key);

	return v ? vec_int(v) : otherwise;
}

const char *vec_str(const json_t *obj, const char *key)
{
	const json_t *v = vec_need(obj, key);

	if (!json_is_string(v))
		vec_die("not a string", key);
	return json_string_value(v);
}

bool vec_is(const json_t *obj, const char *key, const char *text)
{
	const json_t *v = vec_get(obj, key);

	return json_is_string(v) && !strcmp(json_string_value(v), text);
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t vec_hex(const char *hex, uint8_t *out, size_t max)
{
	size_t n = 0;

	for (; hex[0] && hex[1]; hex += 2) {
		int hi = digit(hex[0]), lo = digit(hex[1]);

		if (hi < 0 || lo < 0 || n == max)
			vec_die("not hex, or too long", hex);
		out[n++] = (uint8_t)(hi << 4 | lo);
	}
	if (hex[0])
		vec_die("an odd digit", hex);
	return n;
}
