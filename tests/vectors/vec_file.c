/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "vec_file.h"

#include <lzma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text { char *data; size_t used, room; };

static bool append(struct text *t, const void *data, size_t n)
{
	if (t->used + n + 1 > t->room) {
		size_t room = (t->used + n + 1) * 2;
		char *more = realloc(t->data, room);

		if (!more)
			return false;
		t->data = more;
		t->room = room;
	}
	memcpy(t->data + t->used, data, n);
	t->used += n;
	t->data[t->used] = 0;
	return true;
}

static bool unpack(FILE *f, struct text *t)
{
	static uint8_t in[1 << 16], out[1 << 16];
	lzma_stream s = LZMA_STREAM_INIT;
	lzma_ret r = lzma_stream_decoder(&s, UINT64_MAX, LZMA_CONCATENATED);
	lzma_action action = LZMA_RUN;

	while (r == LZMA_OK) {
		if (!s.avail_in && action == LZMA_RUN) {
			s.next_in = in;
			s.avail_in = fread(in, 1, sizeof(in), f);
			if (s.avail_in < sizeof(in))
				action = LZMA_FINISH;
		}
		s.next_out = out;
		s.avail_out = sizeof(out);
		r = lzma_code(&s, action);
		if (!append(t, out, sizeof(out) - s.avail_out))
			r = LZMA_MEM_ERROR;
	}
	lzma_end(&s);
	return r == LZMA_STREAM_END;
}

static bool plain(FILE *f, struct text *t)
{
	static char in[1 << 16];
	size_t n;

	while ((n = fread(in, 1, sizeof(in), f)) > 0) {
		if (!append(t, in, n))
			return false;
	}
	return !ferror(f);
}

char *vec_file_read(const char *path, size_t *bytes)
{
	size_t len = strlen(path);
	bool xz = len > 3 && !strcmp(path + len - 3, ".xz"), ok;
	struct text t = { 0 };
	FILE *f = fopen(path, "rb");

	if (!f) {
		perror(path);
		return NULL;
	}
	ok = append(&t, "", 0) && (xz ? unpack(f, &t) : plain(f, &t));
	fclose(f);
	if (!ok) {
		fprintf(stderr, "%s: cannot be read%s\n", path, xz ? " as xz" : "");
		free(t.data);
		return NULL;
	}
	*bytes = t.used;
	return t.data;
}
