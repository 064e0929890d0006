/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "vec_rules.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

const struct vec_reason vec_reasons[VEC_WHY_COUNT] = {
	[VEC_RAW_EMPTY] = { "a raw WQE of no segments counts as a request and takes no block",
			    SMX_CHECK_POST_RAW_LENGTH, EINVAL },
	[VEC_RAW_TOO_LONG] = { "a raw WQE is longer than the queue was sized for", SMX_CHECK_POST_RAW_LENGTH, EINVAL },
	[VEC_NO_ROOM] = { "raw WQEs would overwrite requests that are outstanding", SMX_CHECK_POST_SQ_FULL, ENOMEM },
	[VEC_FEW_SETTERS] = { "an mkey configuration lacks setters and would be dropped silently",
			      SMX_CHECK_POST_SETTER, EINVAL },
	[VEC_LAYOUT_TWICE] = { "a second layout after an empty one", SMX_CHECK_POST_SETTER, EINVAL },
	[VEC_STRIDE] = { "a stride or byte count would be cut to 16 bits", SMX_CHECK_POST_UMR_FIELD, EINVAL },
	[VEC_HEADER_ENTRY] = { "a strided layout leaves no entry of the mkey for its header",
			       SMX_CHECK_POST_UMR_ENTRIES, ENOMEM },
	[VEC_SGE_LENGTH] = { "an SGE length with bit 31 would become an inline header",
			     SMX_CHECK_POST_SGE_LENGTH, EINVAL },
	[VEC_OWN_DOORBELL] = { "a refused request of ibv_post_send would lend the doorbell its bytes", 0, 0 },
	[VEC_OWN_FENCE] = { "a refused request of ibv_post_send would lose the pending fence", 0, 0 },
};

struct run {
	const struct vec_world *w;
	bool ours;
	int err;
	enum vec_why why;
	uint32_t nreq, free_bb;
};

/* The first failure counts, */
static void fail(struct run *r, int err)
{
	if (!r->err)
		r->err = err;
}

static void deviate(struct run *r, enum vec_why why)
{
	if (r->ours && !r->err) {
		r->err = vec_reasons[why].err;
		r->why = why;
	}
}

/* but the arguments of a configuration override it. */
static void override(struct run *r, int err)
{
	r->err = err;
	r->why = VEC_SAME;
}

static bool full(const struct run *r)
{
	const struct smx_dv_sq *sq = &r->w->qp.sq;

	return sq->head - sq->tail + r->nreq >= sq->max_post;
}

static void check_room(struct run *r)
{
	if (full(r))
		fail(r, ENOMEM);
	else if (r->w->wqe_bb > r->free_bb)
		deviate(r, VEC_NO_ROOM);
}

static size_t count(const json_t *obj, const char *key)
{
	return json_array_size(vec_get(obj, key));
}

static size_t inline_bytes(const json_t *wr)
{
	size_t i, n = 0;
	json_t *e;

	json_array_foreach(vec_get(wr, "inl"), i, e)
		n += strlen(json_string_value(e)) / 2;
	return n;
}

static uint32_t raw_ds(const json_t *wr)
{
	uint8_t raw[2048];

	vec_hex(vec_str(wr, "raw"), raw, sizeof(raw));
	return raw[7] & 0x3f;
}

static bool is_atomic(const json_t *wr)
{
	return vec_is(wr, "op", "atomic_cmp_swp") || vec_is(wr, "op", "atomic_fetch_add");
}

static uint32_t transfer_ds(const struct vec_world *w, const json_t *wr)
{
	uint32_t ds = w->qp.kind == SMX_DV_RC ? 1 : 4;
	size_t i, bytes = inline_bytes(wr);
	json_t *e;

	if (vec_get(wr, "raddr"))
		ds += is_atomic(wr) ? 2 : 1;
	json_array_foreach(vec_get(wr, "sge"), i, e)
		ds += vec_int(json_array_get(e, 1)) != 0;
	return ds + (uint32_t)(bytes ? (bytes + 4 + 15) / 16 : 0);
}

static uint32_t layout_entries(const json_t *setter)
{
	return (uint32_t)(vec_get(setter, "ent") ? count(setter, "ent") + 1 : count(setter, "sge"));
}

static bool is_mkey(const json_t *wr)
{
	return vec_get(wr, "mkey_lkey");
}

/* Segments of a well-formed request. */
static uint32_t request_ds(const struct vec_world *w, const json_t *wr)
{
	uint32_t entries = 0;
	size_t i;
	json_t *s;

	if (vec_is(wr, "op", "raw_wqe"))
		return raw_ds(wr);
	if (vec_is(wr, "op", "memcpy"))
		return 4;
	if (vec_is(wr, "op", "local_inv"))
		return 8;
	if (vec_is(wr, "op", "bind_mw"))
		return vec_num(wr, "length") ? 12 : 8;
	if (!is_mkey(wr))
		return transfer_ds(w, wr);
	if (!vec_get(wr, "setters"))
		return 8 + (uint32_t)align_up(layout_entries(wr), 4);
	json_array_foreach(vec_get(wr, "setters"), i, s)
		entries += layout_entries(s);
	return 8 + (uint32_t)align_up(entries, 4);
}

/* Setters of one configuration, in the order they are called. */
struct config { uint32_t declared, done; bool open, access, layout, layout_empty; };

static void setter_done(struct config *c)
{
	if (++c->done == c->declared)
		c->open = false;
}

static void set_access(struct run *r, struct config *c, uint64_t access)
{
	if (r->err)
		return;
	if (!c->open || access & ~0xfull || c->access) {
		fail(r, EINVAL);
		return;
	}
	c->access = true;
	setter_done(c);
}

static bool strides_fit(const json_t *ent)
{
	size_t i;
	json_t *e;

	json_array_foreach(ent, i, e) {
		if (vec_int(json_array_get(e, 1)) + vec_int(json_array_get(e, 2)) > 0xffff)
			return false;
	}
	return true;
}

static void set_layout(struct run *r, struct config *c, const json_t *s, uint64_t max_entries)
{
	const json_t *ent = vec_get(s, "ent");
	uint32_t room = (r->w->qp.sq.max_inline + 4) / 16, n = layout_entries(s);
	uint64_t of_mkey = align_up(max_entries, 4);

	if (r->err)
		return;
	if (!c->open) {
		fail(r, EINVAL);
		return;
	}
	if (r->ours && c->layout && c->layout_empty) {
		deviate(r, VEC_LAYOUT_TWICE);
		return;
	}
	if (r->ours && c->layout) {
		fail(r, EINVAL);
		return;
	}
	if (n > room || (ent ? n - 1 : n) > of_mkey) {
		fail(r, ENOMEM);
		return;
	}
	if (c->layout && !c->layout_empty) {
		fail(r, EINVAL);
		return;
	}
	if (r->ours && n > of_mkey) {
		deviate(r, VEC_HEADER_ENTRY);
		return;
	}
	if (r->ours && !strides_fit(ent)) {
		deviate(r, VEC_STRIDE);
		return;
	}
	c->layout = true;
	c->layout_empty = n == 0;
	setter_done(c);
}

static void run_mkey(struct run *r, const json_t *wr)
{
	bool conf = vec_get(wr, "setters");
	uint64_t max_entries = vec_num(wr, "mkey_max_entries");
	struct config c = { .declared = conf ? (uint32_t)vec_num(wr, "num_setters") : 2 };
	size_t i;
	json_t *s;

	if (!(vec_num(wr, "flags") & IBV_SEND_INLINE) ||
	    (conf && (vec_num(wr, "conf_flags") & ~1ull || vec_num(wr, "comp_mask")))) {
		override(r, EOPNOTSUPP);
		return;
	}
	check_room(r);
	if (vec_num(wr, "mkey_lkey") & 0xff && !r->w->qp.ctx.mkey_update_tag)
		override(r, EOPNOTSUPP);
	c.open = c.declared > 0;
	if (!conf) {
		set_access(r, &c, vec_num(wr, "access"));
		set_layout(r, &c, wr, max_entries);
		return;
	}
	json_array_foreach(vec_get(wr, "setters"), i, s) {
		if (vec_is(s, "k", "access"))
			set_access(r, &c, vec_num(s, "access"));
		else
			set_layout(r, &c, s, max_entries);
	}
	if (c.open)
		deviate(r, VEC_FEW_SETTERS);
}

static bool has_bit31(const json_t *wr)
{
	size_t i;
	json_t *e;

	json_array_foreach(vec_get(wr, "sge"), i, e) {
		if (vec_int(json_array_get(e, 1)) & SMX_INLINE_SEG)
			return true;
	}
	return false;
}

static void run_transfer(struct run *r, const json_t *wr)
{
	const struct smx_dv_sq *sq = &r->w->qp.sq;

	check_room(r);
	if (vec_is(wr, "set", "sge_list") && count(wr, "sge") > sq->max_gs)
		fail(r, ENOMEM);
	if (has_bit31(wr))
		deviate(r, VEC_SGE_LENGTH);
	if (inline_bytes(wr) > sq->max_inline)
		fail(r, ENOMEM);
}

static void run_raw(struct run *r, const json_t *wr)
{
	const struct smx_dv_sq *sq = &r->w->qp.sq;
	uint32_t ds = raw_ds(wr), bb = (ds + 3) / 4;

	check_room(r);
	if (!ds)
		deviate(r, VEC_RAW_EMPTY);
	else if (bb > sq->bb_count || bb > r->w->wqe_bb * sq->max_post)
		deviate(r, VEC_RAW_TOO_LONG);
	else if (bb > r->free_bb)
		deviate(r, VEC_NO_ROOM);
}

static void run_one(struct run *r, const json_t *wr)
{
	if (is_mkey(wr)) {
		run_mkey(r, wr);
	} else if (vec_is(wr, "op", "raw_wqe")) {
		run_raw(r, wr);
	} else if (vec_is(wr, "op", "memcpy")) {
		if (!vec_num(wr, "length") || vec_num(wr, "length") > r->w->qp.ctx.memcpy_max)
			fail(r, EINVAL);
		check_room(r);
	} else if (vec_is(wr, "op", "bind_mw")) {
		check_room(r);
		if (vec_num(wr, "length") > 1ull << 31)
			fail(r, EOPNOTSUPP);
	} else if (vec_is(wr, "op", "local_inv")) {
		check_room(r);
	} else {
		run_transfer(r, wr);
	}
	r->nreq++;
	r->free_bb -= (request_ds(r->w, wr) + 3) / 4;
}

static struct run run_start(const struct vec_world *w, bool ours)
{
	const struct smx_dv_sq *sq = &w->qp.sq;

	return (struct run){ .w = w, .ours = ours,
			     .free_bb = sq->bb_count - (sq->cur_post - sq->tail_bb) };
}

static void run_send_wr(struct run *r, const json_t *wr)
{
	const struct smx_dv_qp *qp = &r->w->qp;
	size_t num_sge = vec_get(wr, "inl") ? count(wr, "inl") : count(wr, "sge");

	if (vec_is(wr, "op", "bad_opcode"))
		fail(r, EINVAL);
	if (full(r) || num_sge > qp->sq.max_gs || !qp->can_post)
		fail(r, ENOMEM);
	if (is_atomic(wr) && !qp->atomics)
		fail(r, EOPNOTSUPP);
	if (vec_is(wr, "op", "bind_mw") && vec_num(wr, "length") > 1ull << 31)
		fail(r, EOPNOTSUPP);
	if (has_bit31(wr))
		deviate(r, VEC_SGE_LENGTH);
	if (inline_bytes(wr) > qp->sq.max_inline)
		fail(r, ENOMEM);
	r->nreq++;
}

struct vec_answer vec_answer(const struct vec_world *w, const json_t *step, bool ours)
{
	struct run r = run_start(w, ours);
	const json_t *list = vec_need(step, "wr");
	size_t i;
	json_t *wr;

	if (vec_is(step, "api", "wr_abort"))
		return (struct vec_answer){ .bad = -1 };
	json_array_foreach(list, i, wr) {
		if (vec_is(step, "api", "wr")) {
			run_one(&r, wr);
			continue;
		}
		run_send_wr(&r, wr);
		if (r.err)
			return (struct vec_answer){ .rc = r.err, .bad = (int)i, .why = r.why };
	}
	if (vec_is(step, "api", "wr") && !w->qp.can_post)
		override(&r, EINVAL);
	return (struct vec_answer){ .rc = r.err, .bad = -1, .why = r.why };
}

uint8_t vec_fence_after(const struct vec_world *w, const json_t *list, size_t n)
{
	const json_t *last = n ? json_array_get(list, n - 1) : NULL;

	if (!last)
		return w->qp.sq.fm_cache & SMX_CTRL_SMALL_FENCE;
	return vec_is(last, "op", "bind_mw") || vec_is(last, "op", "local_inv") ? SMX_CTRL_SMALL_FENCE : 0;
}

bool vec_blueflame(const struct vec_world *w, const json_t *wr, uint32_t ds)
{
	return !w->qp.ctx.shut_up_bf && w->qp.bf.uuarn && (w->qp.ctx.prefer_bf || vec_get(wr, "inl")) && ds > 1 &&
	       ds <= w->qp.bf.buf_bytes / SMX_WQE_DS;
}
