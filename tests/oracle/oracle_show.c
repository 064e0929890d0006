/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A failing program is made short, request by request, as long as it still fails; then shown. */
#include "oracle.h"

#include "hw/hw_print.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 64, BATCH = 16, KEEP_TEXT = 8192, COLUMN = 58 };

struct program { uint64_t seed; uint32_t keep[STEPS]; };

bool logs_read(struct logs *logs, struct player player[SIDES])
{
	bool any = false;

	for (int side = 0; side < SIDES; side++) {
		for (int fill = 0; fill < FILLS; fill++)
			any |= log_read(&logs->of[side][fill], player[side].from);
	}
	return any;
}

static void keep_text(const struct program *p, char text[KEEP_TEXT])
{
	struct smx_text t = smx_text_in(text, KEEP_TEXT);

	for (int s = 0; s < STEPS; s++) {
		for (int k = 0; k < BATCH; k++) {
			if (p->keep[s] & 1u << k)
				smx_text_add(&t, "%s%d.%d", t.len ? "," : "", s, k);
		}
	}
}

static bool fails(const struct program *p, struct logs *logs, struct difference *diff)
{
	struct player player[SIDES];
	char text[KEEP_TEXT];
	bool equal;

	keep_text(p, text);
	for (int side = 0; side < SIDES; side++)
		player[side] = player_start((enum side)side, p->seed, 1, text);
	logs_read(logs, player);
	equal = logs_equal(logs, diff);
	for (int side = 0; side < SIDES; side++)
		player_stop(&player[side]);
	return !equal;
}

/* All requests up to the failing step; a step without requests counts as one. */
static struct program whole(uint64_t seed, const struct logs *logs)
{
	struct program p = { .seed = seed };
	const struct record *r;

	for (int side = 0; side < SIDES; side++) {
		for (uint32_t i = 0; (r = log_record(&logs->of[side][0], i)); i++) {
			if (r->tag == TAG_STEP && r->a < STEPS)
				p.keep[r->a] |= (2u << (r->b ? r->b - 1 : 0)) - 1;
		}
	}
	return p;
}

/* Tries without some requests. RETURN whether it still fails; then they are gone. */
static bool without(struct program *p, int step, uint32_t requests, struct logs *logs, struct difference *diff)
{
	uint32_t old = p->keep[step];

	p->keep[step] &= ~requests;
	if (p->keep[step] == old)
		return false;
	if (fails(p, logs, diff))
		return true;
	p->keep[step] = old;
	return false;
}

static bool without_run(struct program *p, int from, int n, struct logs *logs, struct difference *diff)
{
	struct program shorter = *p;
	bool any = false;

	for (int s = from; s < from + n && s < STEPS; s++) {
		any |= shorter.keep[s] != 0;
		shorter.keep[s] = 0;
	}
	if (!any || !fails(&shorter, logs, diff))
		return false;
	*p = shorter;
	return true;
}

static void shrink(struct program *p, struct logs *logs, struct difference *diff)
{
	bool again = true;

	for (int n = STEPS / 2; n; n /= 2) {
		for (int from = STEPS - n; from >= 0; from -= n)
			without_run(p, from, n, logs, diff);
	}
	while (again) {
		again = false;
		for (int s = 0; s < STEPS; s++) {
			for (int k = 0; k < BATCH && p->keep[s]; k++)
				again |= without(p, s, 1u << k, logs, diff);
		}
	}
	fails(p, logs, diff);
}

/* ---- printing ---- */

static void columns(const char *left, const char *right)
{
	while (*left || *right) {
		size_t a = strcspn(left, "\n"), b = strcspn(right, "\n");
		bool same = a == b && !memcmp(left, right, a);

		printf("  %c %-*.*s %.*s\n", same ? ' ' : '!', COLUMN, (int)a, left, (int)b, right);
		left += a + (left[a] != 0);
		right += b + (right[b] != 0);
	}
}

/* Blocks of the register that were stored to. */
static void print_uar(struct smx_text *t, const struct record *r)
{
	for (uint32_t at = 0; at < r->n; at += 64) {
		const uint8_t *block = record_bytes(r) + at;
		uint32_t i = 0;

		while (i < 64 && block[i] == (FILL_A ^ UAR_FILL_XOR))
			i++;
		if (i == 64)
			continue;
		smx_text_add(t, "UAR + 0x%03x\n", at);
		smx_text_hex(t, 2, block, 64);
	}
}

static void print(struct smx_text *t, const struct record *r, uint32_t transport)
{
	static const enum smx_wqe_kind kinds[] = { SMX_WQE_RC, SMX_WQE_RC, SMX_WQE_UD, SMX_WQE_XRC, SMX_WQE_DC };

	if (r->tag == TAG_WQE) {
		smx_print_send_wqe(t, record_bytes(r), r->n, kinds[transport]);
		smx_text_hex(t, 0, record_bytes(r), r->b * 16 < r->n ? r->b * 16 : r->n);
	} else if (r->tag == TAG_UAR) {
		print_uar(t, r);
	} else {
		if (r->tag == TAG_RECV)
			smx_print_recv_wqe(t, record_bytes(r), r->n, 0);
		smx_text_hex(t, 0, record_bytes(r), r->n);
	}
}

/* A record of libmlx5 with what it did not write taken from ours, so that only differences are marked. */
static const struct record *written(const struct logs *logs, uint32_t i)
{
	static union { struct record r; uint8_t bytes[sizeof(struct record) + 4096]; } copy;
	const struct record *a = log_record(&logs->of[THEIRS][0], i), *b = log_record(&logs->of[THEIRS][1], i);
	const struct record *ours = log_record(&logs->of[OURS][0], i);

	if (!a || !b || !ours || a->n != b->n || a->n != ours->n || a->n > 4096)
		return a;
	memcpy(copy.bytes, a, sizeof(*a) + a->n);
	for (uint32_t k = 0; k < a->n; k++) {
		if (record_bytes(a)[k] == FILL_A && record_bytes(b)[k] == FILL_B)
			copy.bytes[sizeof(*a) + k] = record_bytes(ours)[k];
	}
	return &copy.r;
}

static void side_by_side(const struct logs *logs, uint32_t i, uint32_t transport)
{
	static char text[SIDES][16384];

	for (int side = 0; side < SIDES; side++) {
		const struct record *r = side == OURS ? log_record(&logs->of[OURS][0], i) : written(logs, i);
		struct smx_text t = smx_text_in(text[side], sizeof(text[side]));

		smx_text_add(&t, "%s\n", side_name((enum side)side));
		if (r)
			print(&t, r, transport);
	}
	columns(text[THEIRS], text[OURS]);
}

static void steps(const struct logs *logs, const struct difference *diff, uint32_t *transport)
{
	const struct log *log = &logs->of[OURS][0];
	const struct record *r;

	for (uint32_t i = 0; i <= diff->record && (r = log_record(log, i)); i++) {
		if (r->tag == TAG_CONFIG) {
			*transport = r->a;
			printf("  queue pair: %.*s\n", (int)r->n, (const char *)record_bytes(r));
		} else if (r->tag == TAG_STEP) {
			printf("  step %u: %.*s\n", r->a, (int)r->n, (const char *)record_bytes(r));
		}
	}
}

void show_failure(uint64_t seed, const struct logs *logs, const struct difference *first)
{
	static struct logs shorter;
	struct program p;
	struct difference diff = *first;
	char text[KEEP_TEXT];
	uint32_t transport = 0;
	bool alone;

	p = whole(seed, logs);
	printf("  seed %llu, step %u: %s\n", (unsigned long long)seed, first->step, first->text);
	alone = fails(&p, &shorter, &diff);
	if (alone) {
		shrink(&p, &shorter, &diff);
		keep_text(&p, text);
		printf("  shortest program that differs: oracle --replay %llu %s\n  %s\n", (unsigned long long)seed,
		       text, diff.text);
		logs = &shorter;
	} else {
		printf("  (not when this program runs alone)\n");
		diff = *first;
	}
	steps(logs, &diff, &transport);
	side_by_side(logs, diff.record, transport);
}
