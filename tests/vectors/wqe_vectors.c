/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: given the same request, this driver writes the bytes and returns the codes that libmlx5 does, and
 * where it refuses on purpose what libmlx5 lets through, it refuses and leaves no trace.
 * Method: replay recorded lines (one case a line, JSON) on a queue pair in the recorded state, with the ring
 * filled with 0x00 and again with 0xff. Compared are the WQEs, the ring around them, doorbell record, UAR,
 * return codes, bad_wr, all bookkeeping, and the work completions. Bytes that libmlx5 leaves undefined must
 * be zero here.
 *
 * usage: wqe_vectors [FILE.jsonl|FILE.jsonl.xz] */
#include "vec_file.h"
#include "vec_post.h"
#include "vec_rules.h"

#include "base/bits.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WQE_MAX = 1024 };

/* Where we are, for messages. */
static struct { uint64_t id; size_t step; int wr; uint8_t fill; } at;
static unsigned int deviations[VEC_WHY_COUNT];

__attribute__((format(printf, 1, 2)))
static bool differs(const char *fmt, ...)
{
	va_list ap;

	printf("case %llu step %zu", (unsigned long long)at.id, at.step);
	if (at.wr >= 0)
		printf(" wr %d", at.wr);
	printf(" (ring filled with 0x%02x): ", at.fill);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	return false;
}

static bool same(const char *what, uint64_t got, uint64_t want)
{
	return got == want || differs("%s 0x%llx, recorded 0x%llx", what, (unsigned long long)got,
				      (unsigned long long)want);
}

struct bytes { uint8_t data[WQE_MAX]; bool stale[WQE_MAX]; uint32_t n; };

static void read_bytes(const json_t *obj, const char *key, struct bytes *b)
{
	size_t i;
	json_t *range;

	memset(b->stale, 0, sizeof(b->stale));
	b->n = (uint32_t)vec_hex(vec_str(obj, key), b->data, sizeof(b->data));
	json_array_foreach(vec_need(obj, "stale"), i, range) {
		uint64_t from = vec_int(json_array_get(range, 0)), n = vec_int(json_array_get(range, 1));

		if (from + n > WQE_MAX)
			vec_die("outside the WQE", "stale");
		memset(b->stale + from, 1, n);
	}
}

/* The WQE's bytes as the ring holds them. */
static void ring_read(const struct vec_world *w, uint32_t pi, uint8_t *out, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = w->ring[(pi * SMX_WQE_BB + i) & (w->ring_bytes - 1)];
}

static void shadow_write(struct vec_world *w, uint32_t pi, const uint8_t *data, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		w->shadow[(pi * SMX_WQE_BB + i) & (w->ring_bytes - 1)] = data[i];
}

static bool check_wqe(struct vec_world *w, const json_t *out, uint32_t pi)
{
	struct bytes want;
	uint8_t got[WQE_MAX], x = 0;

	read_bytes(out, "wqe", &want);
	if (want.n != vec_num(out, "ds") * SMX_WQE_DS)
		return differs("the record's WQE has %u bytes", want.n);
	ring_read(w, pi, got, want.n);
	for (uint32_t i = 0; i < want.n; i++) {
		x ^= got[i];
		if (want.stale[i] && i == offsetof(struct smx_wqe_ctrl, signature) && w->qp.wq_sig)
			continue;	/* covers the others: checked below */
		if (got[i] != (want.stale[i] ? 0 : want.data[i]))
			return differs("WQE byte %u is %02x, recorded %02x%s", i, got[i], want.data[i],
				       want.stale[i] ? " (undefined there, zero here)" : "");
	}
	if (w->qp.wq_sig && w->qp.sq.slot[pi & (w->qp.sq.bb_count - 1)].wr_data != MLX5DV_WC_RAW_WQE && x != 0xff)
		return differs("WQE byte 8: the signature leaves XOR %02x", x);
	shadow_write(w, pi, got, want.n);
	return true;
}

static bool check_ring(const struct vec_world *w)
{
	for (uint32_t i = 0; i < w->ring_bytes; i++) {
		if (w->ring[i] != w->shadow[i])
			return differs("ring byte %u, outside the requests, became %02x", i, w->ring[i]);
	}
	return true;
}

/* After a failed batch: only free blocks may have been written. */
static bool check_outstanding(struct vec_world *w)
{
	const struct smx_dv_sq *sq = &w->qp.sq;

	for (uint32_t i = sq->tail_bb * SMX_WQE_BB; i != sq->cur_post * SMX_WQE_BB; i++) {
		uint32_t byte = i & (w->ring_bytes - 1);

		if (w->ring[byte] != w->shadow[byte])
			return differs("ring byte %u of an outstanding request was overwritten", byte);
	}
	memcpy(w->ring, w->shadow, w->ring_bytes);
	return true;
}

static bool check_request(struct vec_world *w, const json_t *wr, const json_t *out, uint32_t pi)
{
	const struct smx_dv_slot *slot = &w->qp.sq.slot[pi & (w->qp.sq.bb_count - 1)];
	struct smx_wqe_ctrl ctrl;

	ring_read(w, pi, (uint8_t *)&ctrl, sizeof(ctrl));
	return same("pi", pi, vec_num(out, "pi")) &&
	       same("slot", pi & (w->qp.sq.bb_count - 1), vec_num(out, "slot")) &&
	       same("blocks", smx_wqe_blocks(smx_wqe_ds(&ctrl)), vec_num(out, "nbb")) &&
	       same("wr_id", slot->wr_id, vec_num(wr, "wr_id")) &&
	       same("head of its slot", slot->head, vec_num(out, "wqe_head")) &&
	       same("wr_data", slot->wr_data, vec_num(out, "wr_data")) && check_wqe(w, out, pi);
}

/* Requests that were posted; the record has null for the others. */
static bool check_requests(struct vec_world *w, const json_t *step, uint32_t pi, size_t posted)
{
	const json_t *list = vec_need(step, "wr"), *outs = vec_need(step, "out");

	for (size_t i = 0; i < posted; i++) {
		const json_t *out = json_array_get(outs, i);

		at.wr = (int)i;
		if (!json_is_object(out))
			return differs("posted here, not in the record");
		if (!check_request(w, json_array_get(list, i), out, pi))
			return false;
		pi += (uint32_t)vec_num(out, "nbb");
	}
	at.wr = -1;
	return check_ring(w);
}

static bool check_completions(struct vec_world *w, const json_t *step, size_t posted)
{
	const json_t *list = vec_need(step, "wr"), *outs = vec_need(step, "out");

	for (size_t i = 0; i < posted; i++) {
		const json_t *out = json_array_get(outs, i), *want = vec_need(out, "wc");
		uint32_t pi = (uint32_t)vec_num(out, "pi");
		uint8_t ctrl[4];
		struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

		at.wr = (int)i;
		ring_read(w, pi, ctrl, sizeof(ctrl));
		if (!same("completions polled", (uint64_t)vec_world_poll(w, pi, ctrl[3], &wc), 1) ||
		    !same("wc.status", wc.status, vec_num(want, "status")) ||
		    !same("wc.opcode", wc.opcode, vec_num(want, "opcode")) ||
		    !same("wc.wr_id", wc.wr_id, vec_num(json_array_get(list, i), "wr_id")) ||
		    !same("wc.qp_num", wc.qp_num, w->qp.qpn) ||
		    !same("tail", w->qp.sq.tail, vec_num(want, "tail")))
			return false;
	}
	at.wr = -1;
	return true;
}

struct doorbell { struct bytes b; uint32_t at; };

/* What the UAR must have got: as recorded, or NULL's equivalent with n 0. */
static void recorded_doorbell(const json_t *step, struct doorbell *d)
{
	const json_t *uar = vec_get(step, "uar");

	d->b.n = 0;
	if (!uar)
		return;
	read_bytes(uar, "data", &d->b);
	d->at = (uint32_t)vec_num(uar, "at");
}

/* A list that was refused midway rings with the last good request's own bytes. */
static void own_doorbell(const struct vec_world *w, const json_t *step, size_t posted, uint32_t offset,
			 struct doorbell *d)
{
	const json_t *out = posted ? json_array_get(vec_need(step, "out"), posted - 1) : NULL;
	uint32_t ds;

	memset(d, 0, sizeof(*d));
	if (!out)
		return;
	ds = (uint32_t)vec_num(out, "ds");
	d->at = offset;
	d->b.n = 8;
	if (posted == 1 && vec_blueflame(w, json_array_get(vec_need(step, "wr"), 0), ds))
		d->b.n = (uint32_t)align_up(ds * SMX_WQE_DS, SMX_WQE_BB);
	ring_read(w, (uint32_t)vec_num(out, "pi"), d->b.data, d->b.n);
}

static bool check_uar(const struct vec_world *w, const struct doorbell *d)
{
	for (uint32_t i = 0; i < VEC_UAR_BYTES; i++) {
		bool inside = i - d->at < d->b.n;
		uint8_t want = inside ? d->b.data[i - d->at] : VEC_UAR_FILL;

		if (w->uar[i] != want && !(inside && d->b.stale[i - d->at]))
			return differs("UAR byte %u is %02x, expected %02x", i, w->uar[i], want);
	}
	return same("doorbells", w->rung, d->b.n > 0);
}

struct state { uint32_t cur_post, head, fm_cache, db, uar_offset; };

static struct state state_of(const struct vec_world *w)
{
	return (struct state){ w->qp.sq.cur_post, w->qp.sq.head, w->qp.sq.fm_cache & SMX_CTRL_SMALL_FENCE,
			       be32_load_acquire(&w->dbrec[SMX_DBREC_SND]), w->qp.bf.offset };
}

static struct state state_recorded(const json_t *step)
{
	const json_t *after = vec_need(step, "after");

	return (struct state){ (uint32_t)vec_num(after, "cur_post"), (uint32_t)vec_num(after, "head"),
			       (uint32_t)vec_num(after, "fm_cache"), (uint32_t)vec_num(after, "db"),
			       (uint32_t)vec_num(after, "uar_offset") };
}

static bool check_state(const struct vec_world *w, const struct state *want)
{
	struct state got = state_of(w);

	return same("cur_post", got.cur_post, want->cur_post) && same("head", got.head, want->head) &&
	       same("fence cache", got.fm_cache, want->fm_cache) && same("doorbell record", got.db, want->db) &&
	       same("UAR offset", got.uar_offset, want->uar_offset) &&
	       same("doorbell record of receives", w->dbrec[SMX_DBREC_RCV], VEC_DB_RCV);
}

/* Goes on from where the record stands after libmlx5 accepted what was refused here. */
static void follow_record(struct vec_world *w, const json_t *step)
{
	struct state s = state_recorded(step);
	uint32_t tail = w->qp.sq.tail;
	size_t i;
	json_t *out;

	json_array_foreach(vec_need(step, "out"), i, out) {
		struct bytes b;

		if (!json_is_object(out))
			continue;
		read_bytes(out, "wqe", &b);
		shadow_write(w, (uint32_t)vec_num(out, "pi"), b.data, b.n);
		if (vec_get(out, "wc"))
			tail = (uint32_t)vec_num(vec_get(out, "wc"), "tail");
	}
	memcpy(w->ring, w->shadow, w->ring_bytes);
	vec_world_set_state(w, s.cur_post, s.head, tail, (uint8_t)s.fm_cache, s.db, s.uar_offset);
}

static bool check_refusal(const struct vec_world *w, uint64_t before, const struct vec_answer *ours)
{
	struct smx_refusal_log *log = (struct smx_refusal_log *)&w->log;
	struct smx_refusal r;

	if (log->count == before || !smx_refusal_get(log, 0, &r))
		return differs("refused without a reason");
	if (ours->why != VEC_SAME && r.check != vec_reasons[ours->why].check)
		return differs("refused by %s: %s", smx_check_info(r.check)->name, r.text);
	return r.where.qpn == w->qp.qpn || differs("the refusal names another queue pair");
}

/* A batch of ibv_wr_* that was refused or aborted: nothing has happened. */
static bool step_dropped(struct vec_world *w, const json_t *step, const struct state *before,
			 const struct vec_answer *ours, uint64_t refusals)
{
	static const struct doorbell none;

	if (!check_state(w, before) || !check_uar(w, &none) || !check_outstanding(w))
		return false;
	if (ours->rc && !check_refusal(w, refusals, ours))
		return false;
	if (ours->why != VEC_SAME) {
		follow_record(w, step);
		return true;
	}
	*(struct state *)before = state_recorded(step);
	return check_state(w, before);
}

static bool step_posted(struct vec_world *w, const json_t *step, const struct state *before,
			const struct vec_answer *ours, uint64_t refusals)
{
	struct state want = state_recorded(step);
	struct doorbell bell;
	size_t posted = ours->bad >= 0 ? (size_t)ours->bad : json_array_size(vec_need(step, "wr"));
	uint8_t fence = vec_fence_after(w, vec_need(step, "wr"), posted);

	recorded_doorbell(step, &bell);
	if (ours->rc) {
		/* fm_cache before is what counts when nothing was posted */
		want.fm_cache = posted ? fence : before->fm_cache;
		own_doorbell(w, step, posted, before->uar_offset, &bell);
		if (!check_refusal(w, refusals, ours))
			return false;
	}
	if (ours->why != VEC_SAME && !posted)
		want = *before;
	if (!check_state(w, &want) || !check_requests(w, step, before->cur_post, posted) || !check_uar(w, &bell) ||
	    !check_completions(w, step, posted))
		return false;
	if (want.fm_cache != state_recorded(step).fm_cache || ours->why != VEC_SAME)
		follow_record(w, step);
	return true;
}

static bool count_deviation(enum vec_why why)
{
	if (why != VEC_SAME && at.fill == 0)
		deviations[why]++;
	return true;
}

static void count_quiet_deviations(const json_t *step, const struct vec_world *w, const struct state *before,
				   const struct vec_answer *ours)
{
	struct doorbell recorded, own;
	size_t posted = ours->bad >= 0 ? (size_t)ours->bad : 0;

	if (!vec_is(step, "api", "post_send") || !ours->rc)
		return;
	recorded_doorbell(step, &recorded);
	own_doorbell(w, step, posted, before->uar_offset, &own);
	if (recorded.b.n != own.b.n || memcmp(recorded.b.data, own.b.data, recorded.b.n))
		count_deviation(VEC_OWN_DOORBELL);
	if (!posted && before->fm_cache != state_recorded(step).fm_cache)
		count_deviation(VEC_OWN_FENCE);
}

static bool run_step(struct vec_world *w, const json_t *step)
{
	struct vec_answer theirs = vec_answer(w, step, false), ours = vec_answer(w, step, true);
	struct state before = state_of(w);
	uint64_t refusals = w->log.count;
	int rc, bad;
	bool ok;

	if (theirs.rc != (int)vec_num(step, "rc") || theirs.bad != (int)(int64_t)vec_num_or(step, "bad_wr", UINT64_MAX))
		return differs("the rules say %d (bad_wr %d), the record %d", theirs.rc, theirs.bad,
			       (int)vec_num(step, "rc"));
	w->rung = 0;
	memset(w->uar, VEC_UAR_FILL, sizeof(w->uar));
	rc = vec_post_step(w, step, &bad);
	if (rc != ours.rc || bad != ours.bad)
		return differs("returned %d, bad_wr %d; expected %d, %d%s%s", rc, bad, ours.rc, ours.bad,
			       ours.why ? ": " : "", ours.why ? vec_reasons[ours.why].text : "");
	count_deviation(ours.why);
	count_quiet_deviations(step, w, &before, &ours);
	if (vec_is(step, "api", "post_send") || (!rc && vec_is(step, "api", "wr")))
		ok = step_posted(w, step, &before, &ours, refusals);
	else
		ok = step_dropped(w, step, &before, &ours, refusals);
	return ok;
}

static bool run_case(const json_t *line, uint8_t fill)
{
	struct vec_world *w = vec_world_new(line, fill);
	bool ok = true;
	json_t *step;

	at.id = vec_num(line, "id");
	at.fill = fill;
	at.wr = -1;
	at.step = 0;
	if (!vec_world_check_sizes(vec_need(line, "qp")))
		ok = differs("the configuration %s gives other sizes", vec_str(vec_need(line, "qp"), "cfg"));
	json_array_foreach(vec_need(line, "steps"), at.step, step) {
		at.wr = -1;
		ok = ok && run_step(w, step);
	}
	vec_world_free(w);
	return ok;
}

static bool run_line(const char *text, size_t number)
{
	json_error_t error;
	json_t *line = json_loads(text, 0, &error);
	bool ok;

	if (!line) {
		printf("line %zu: %s\n", number, error.text);
		return false;
	}
	ok = run_case(line, 0x00) && run_case(line, 0xff);
	json_decref(line);
	return ok;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : VEC_SAMPLE;
	unsigned int passed = 0, failed = 0;
	size_t bytes, number = 0;
	char *text, *next, *line;

	if (argc > 2) {
		fprintf(stderr, "usage: wqe_vectors [FILE.jsonl|FILE.jsonl.xz]\n");
		return 2;
	}
	text = vec_file_read(path, &bytes);
	if (!text)
		return 1;
	for (line = strtok_r(text, "\n", &next); line; line = strtok_r(NULL, "\n", &next)) {
		if (run_line(line, ++number))
			passed++;
		else
			failed++;
	}
	free(text);
	for (int i = 1; i < VEC_WHY_COUNT; i++) {
		if (deviations[i])
			printf("answered otherwise on purpose: %4u  %s\n", deviations[i], vec_reasons[i].text);
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed || !passed;
}
