/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copying between two walks, under the guard that survives bad pointers.
 *
 * Flat runs are copied one by one. Small pieces are copied many at a time under one guard, as
 * patterns (dma_walk.h); two patterns with one segment each are a plain strided loop. After a fault
 * the batch is done again piece by piece, which finds the place and the side. */
#include "obj/dma.h"

#include "base/guard.h"
#include "obj/dma_walk.h"

/* One side of a copy: a pattern that the walk has handed out, and how far it has been copied. */
struct side {
	struct smx_walk *walk;
	uint64_t left;		/* bytes of the pattern still to be copied */
	uint8_t *ptr;		/* the piece at hand */
	uint64_t piece;		/* bytes it still has */
	uint32_t seg;		/* its segment */
	uint64_t turn_bytes;
	struct smx_pattern pat;
};

struct job {
	struct side *dst, *src;
	uint64_t n;
};

enum { SHORT_BYTES = 64 };	/* the most that is copied without a call */

struct words { uint64_t w[2]; };

/* All loads before any store, so that overlapping pieces come out right. */
SMX_UNJUDGED static inline __attribute__((always_inline)) void copy_two(uint8_t *dst, const uint8_t *src,
									 size_t second, size_t bytes)
{
	uint64_t a, b;

	memcpy(&a, src, bytes);
	memcpy(&b, src + second, bytes);
	memcpy(dst, &a, bytes);
	memcpy(dst + second, &b, bytes);
}

SMX_UNJUDGED static inline void copy_words(uint8_t *dst, const uint8_t *src, size_t n)
{
	struct words a, b, c, d;
	size_t mid = n > 32 ? 16 : 0;	/* two in the middle, or the first and the last again */

	memcpy(&a, src, 16);
	memcpy(&b, src + mid, 16);
	memcpy(&c, src + n - 16 - mid, 16);
	memcpy(&d, src + n - 16, 16);
	memcpy(dst, &a, 16);
	memcpy(dst + mid, &b, 16);
	memcpy(dst + n - 16 - mid, &c, 16);
	memcpy(dst + n - 16, &d, 16);
}

/* A null pointer is a null key: reads give zeros, writes vanish. */
SMX_UNJUDGED static inline void copy_piece(uint8_t *dst, const uint8_t *src, size_t n)
{
	if (!dst)
		return;
	if (!src)
		smx_libc.set(dst, 0, n);
	else if (n > SHORT_BYTES)
		smx_libc.move(dst, src, n);
	else if (n > 16)
		copy_words(dst, src, n);
	else if (n >= 8)
		copy_two(dst, src, n - 8, 8);
	else if (n >= 4)
		copy_two(dst, src, n - 4, 4);
	else if (n >= 2)
		copy_two(dst, src, n - 2, 2);
	else if (n)
		*dst = *src;
}

static inline void step_side(struct side *s, uint64_t n)
{
	s->left -= n;
	s->piece -= n;
	if (s->ptr)
		s->ptr += n;
	if (s->piece)
		return;
	if (s->pat.seg[s->seg].stride)
		s->pat.seg[s->seg].ptr += s->pat.seg[s->seg].stride;
	if (++s->seg == s->pat.seg_count)
		s->seg = 0;
	s->ptr = s->pat.seg[s->seg].ptr;
	s->piece = s->pat.seg[s->seg].length;
}

SMX_UNJUDGED static void pieces_job(void *arg)
{
	const struct job *j = arg;
	struct side *d = j->dst, *s = j->src;
	uint64_t n = j->n;

	while (n) {
		uint64_t m = d->piece < s->piece ? d->piece : s->piece;

		if (m > n)
			m = n;
		copy_piece(d->ptr, s->ptr, m);
		step_side(d, m);
		step_side(s, m);
		n -= m;
	}
}

/* Whole turns of a pattern against memory that lies together. */
struct turns {
	struct smx_pattern *pat;
	uint8_t *flat;
	uint64_t count;
	bool gather;
};

SMX_UNJUDGED static void turns_job(void *arg)
{
	const struct turns *j = arg;
	struct smx_segment *end = j->pat->seg + j->pat->seg_count;
	uint8_t *flat = j->flat;
	bool gather = j->gather;

	for (uint64_t i = 0; i < j->count; i++) {
		for (struct smx_segment *seg = j->pat->seg; seg < end; seg++) {
			if (gather)
				copy_piece(flat, seg->ptr, seg->length);
			else
				copy_piece(seg->ptr, flat, seg->length);
			flat += seg->length;
			if (seg->stride)
				seg->ptr += seg->stride;
		}
	}
}

/* Blocks of the same length, each side at its own stride: the loop that a program would write. */
struct strides {
	uint8_t *dst;
	const uint8_t *src;
	uint64_t dst_stride, src_stride, length, count;
};

SMX_UNJUDGED static inline __attribute__((always_inline)) void strides_loop(const struct strides *s,
									    size_t length)
{
	const uint8_t *src = s->src;
	uint8_t *dst = s->dst;

	for (uint64_t i = 0; i < s->count; i++) {
		copy_piece(dst, src, length);
		dst += s->dst_stride;
		src += s->src_stride;
	}
}

SMX_UNJUDGED static void strides_job(void *arg)
{
	const struct strides *s = arg;

	switch (s->length) {
	case 4: strides_loop(s, 4); break;
	case 8: strides_loop(s, 8); break;
	case 16: strides_loop(s, 16); break;
	case 32: strides_loop(s, 32); break;
	case 64: strides_loop(s, 64); break;
	default: strides_loop(s, s->length); break;
	}
}

/* Longer blocks are worth a copy each, where none overlaps another's other side. */
static inline bool are_apart(const struct strides *s)
{
	uint64_t dst_span = (s->count - 1) * s->dst_stride + s->length;
	uint64_t src_span = (s->count - 1) * s->src_stride + s->length;

	return (uintptr_t)s->dst - (uintptr_t)s->src >= src_span && (uintptr_t)s->src - (uintptr_t)s->dst >= dst_span;
}

static bool copy_strides(const struct smx_dev_env *env, const struct strides *s, const void **bad)
{
	const uint8_t *src = s->src;
	uint8_t *dst = s->dst;

	if (s->length <= SHORT_BYTES || !are_apart(s))
		return env->call(strides_job, (void *)(uintptr_t)s, bad);
	for (uint64_t left = s->count; left; left--, dst += s->dst_stride, src += s->src_stride) {
		if (!env->copy(dst, src, s->length, bad))
			return false;
	}
	return true;
}

static bool one_run(const struct side *s)
{
	return s->pat.turns == 1 && s->pat.seg_count == 1;
}

/* RETURN whether both sides are one rhythm over the next n bytes; then *out is it. */
static bool find_strides(const struct side *d, const struct side *s, uint64_t n,
			 struct strides *out)
{
	uint64_t length = one_run(d) ? s->pat.seg[0].length : d->pat.seg[0].length;

	if (d->pat.seg_count != 1 || s->pat.seg_count != 1 || !d->ptr || !s->ptr || n / length < 2)
		return false;
	if (!one_run(d) && d->piece != length)
		return false;
	if (!one_run(s) && (s->piece != length || s->pat.seg[0].length != length))
		return false;
	*out = (struct strides){
		.dst = d->ptr,
		.src = s->ptr,
		.dst_stride = one_run(d) ? length : d->pat.seg[0].stride,
		.src_stride = one_run(s) ? length : s->pat.seg[0].stride,
		.length = length,
		.count = n / length,
	};
	return true;
}

static void step_strides(struct side *s, const struct strides *r, uint64_t stride)
{
	uint64_t bytes = r->count * r->length;

	s->left -= bytes;
	s->ptr += r->count * stride;
	if (one_run(s))
		s->piece -= bytes;
	else
		s->pat.seg[0].ptr = s->ptr;
}

/* RETURN whether one side lies together and the other is at the start of a turn; then *out is the
 * job, of whole turns within n bytes. */
static bool find_turns(struct side *d, struct side *s, uint64_t n, struct turns *out)
{
	struct side *flat = one_run(d) ? d : s, *other = one_run(d) ? s : d;

	if (!one_run(flat) || !flat->ptr || other->seg || other->piece != other->pat.seg[0].length)
		return false;
	*out = (struct turns){ &other->pat, flat->ptr, n / other->turn_bytes, flat == d };
	return out->count > 0;
}

static uint64_t step_turns(struct side *d, struct side *s, const struct turns *j)
{
	struct side *flat = j->gather ? d : s, *other = j->gather ? s : d;
	uint64_t bytes = j->count * other->turn_bytes;

	step_side(flat, bytes);
	other->left -= bytes;
	other->ptr = other->pat.seg[0].ptr;
	return bytes;
}

struct move { uint8_t *dst; const uint8_t *src; uint64_t n; };

SMX_UNJUDGED static void move_job(void *arg)
{
	const struct move *m = arg;

	smx_libc.move(m->dst, m->src, m->n);
}

SMX_UNJUDGED static void zero_job(void *arg)
{
	const struct move *m = arg;

	smx_libc.set(m->dst, 0, m->n);
}

static inline bool copy_run(const struct smx_dev_env *env, uint8_t *dst, uint8_t *src, uint64_t n,
			    const void **bad)
{
	struct move m = { dst, src, n };

	if (__builtin_expect(!dst, 0))
		return true;
	if (__builtin_expect(!src, 0))
		return env->call(zero_job, &m, bad);
	if (__builtin_expect(
		    (uintptr_t)dst - (uintptr_t)src < n || (uintptr_t)src - (uintptr_t)dst < n, 0))
		return env->call(move_job, &m, bad);
	return env->copy(dst, src, n, bad);
}

/* Copies up to n bytes, which both sides have. RETURN how many, 0 after a fault: then the sides are
 * undefined. */
static uint64_t copy_batch(const struct smx_dev_env *env, struct side *d, struct side *s,
			   uint64_t n, const void **bad)
{
	struct job j = { d, s, n };
	struct strides r;
	struct turns t;

	if (one_run(d) && one_run(s)) {
		if (!copy_run(env, d->ptr, s->ptr, n, bad))
			return 0;
		step_side(d, n);
		step_side(s, n);
	} else if (find_strides(d, s, n, &r)) {
		if (!copy_strides(env, &r, bad))
			return 0;
		step_strides(d, &r, r.dst_stride);
		step_strides(s, &r, r.src_stride);
		return r.count * r.length;
	} else if (find_turns(d, s, n, &t)) {
		return env->call(turns_job, &t, bad) ? step_turns(d, s, &t) : 0;
	} else if (!env->call(pieces_job, &j, bad)) {
		return 0;
	}
	return n;
}

static smx_outcome fill_side(struct side *s, uint64_t max, struct smx_dma_fault *fault)
{
	smx_outcome check = smx_walk_pattern(s->walk, max, &s->pat, fault);

	if (check || !s->pat.seg_count)
		return check;
	s->left = s->pat.bytes;
	s->turn_bytes = s->pat.turns == 1 ? s->pat.bytes : s->pat.bytes / s->pat.turns;
	s->seg = 0;
	s->ptr = s->pat.seg[0].ptr;
	s->piece = s->pat.seg[0].length;
	return SMX_CHECK_NONE;
}

/* Run by run. Of a run that faults, what lies before the fault is copied. */
static __attribute__((noinline)) smx_outcome copy_slowly(struct smx_walk *dst, struct smx_walk *src,
							 uint64_t n, uint64_t *done,
							 struct smx_dma_fault *fault)
{
	const struct smx_dev_env *env = &dst->dev->attr.env;
	uint64_t end = *done + n, max = n;
	unsigned int tries = 0;

	while (*done < end) {
		struct smx_run s, d;
		const void *bad = NULL;
		uintptr_t in_src, in_dst;
		smx_outcome check = smx_walk_next(src, max, &s, fault);

		if (check || !s.length)
			return check;
		check = smx_walk_next(dst, s.length, &d, fault);
		smx_walk_rewind(src, s.length - d.length);
		if (check || !d.length)
			return check;
		if (copy_run(env, d.ptr, s.ptr, d.length, &bad)) {
			*done += d.length;
			max = end - *done;
			tries = 0;
			continue;
		}
		smx_walk_rewind(src, d.length);
		smx_walk_rewind(dst, d.length);
		in_src = (uintptr_t)bad - (uintptr_t)s.ptr;
		in_dst = (uintptr_t)bad - (uintptr_t)d.ptr;
		max = s.ptr && in_src < d.length ? in_src : in_dst;
		if (max && max < d.length && tries++ < 8)
			continue;
		return s.ptr && in_src < d.length ? smx_dma_blame(src, s.ptr, bad, d.length, fault)
						  : smx_dma_blame(dst, d.ptr, bad, d.length, fault);
	}
	return SMX_CHECK_NONE;
}

static __attribute__((noinline)) smx_outcome copy_patterns(struct smx_walk *dst,
							   struct smx_walk *src, uint64_t n,
							   uint64_t *done,
							   struct smx_dma_fault *fault)
{
	const struct smx_dev_env *env = &dst->dev->attr.env;
	struct side d, s;
	smx_outcome check = SMX_CHECK_NONE;

	d.walk = dst;
	s.walk = src;
	d.left = s.left = 0;
	while (*done < n) {
		uint64_t d_left, s_left, m, got;
		const void *bad;

		if (!s.left)
			check = fill_side(&s, n - *done, fault);
		if (!check && !d.left)
			check = fill_side(&d, n - *done, fault);
		if (check || !s.left || !d.left)
			break;
		d_left = d.left;
		s_left = s.left;
		m = d_left < s_left ? d_left : s_left;
		m = m < n - *done ? m : n - *done;
		got = copy_batch(env, &d, &s, m, &bad);
		*done += got;
		if (got)
			continue;
		smx_walk_rewind(dst, d_left);
		smx_walk_rewind(src, s_left);
		d.left = s.left = 0;
		check = copy_slowly(dst, src, m, done, fault);
		if (check)
			return check;
	}
	smx_walk_rewind(dst, d.left);
	smx_walk_rewind(src, s.left);
	return check;
}

bool smx_dma_copy_all(struct smx_walk *dst, struct smx_walk *src, uint64_t n)
{
	const struct smx_dev_env *env = &dst->dev->attr.env;
	struct smx_dma_fault fault;
	struct side d, s;
	const void *bad;
	uint64_t done;

	d.walk = dst;
	s.walk = src;
	d.left = s.left = 0;
	if (fill_side(&s, n, &fault) || fill_side(&d, n, &fault))
		return false;
	/* A pattern is admitted as a whole. */
	if (s.left == n && d.left == n) {
		while (n) {
			uint64_t got = copy_batch(env, &d, &s, n, &bad);

			if (!got)
				return false;
			n -= got;
		}
		return true;
	}
	smx_walk_rewind(dst, d.left);
	smx_walk_rewind(src, s.left);
	return smx_walk_check(src, n, &fault) == n && smx_walk_check(dst, n, &fault) == n &&
	       !smx_dma_copy(dst, src, n, &done, &fault) && done == n;
}

/* The common case: host memory or a key that is not nested. RETURN how many of n bytes lie together
 * at *ptr, 0 where that is not so or not admitted, or at the end. */
static inline __attribute__((always_inline)) uint64_t flat_run(const struct smx_walk *w,
							       const struct smx_sge *sge,
							       uint64_t n, uint8_t **ptr)
{
	uint64_t room = sge->length - w->sge_off, off;
	const struct smx_mkey *mkey;

	n = n < room ? n : room;
	if (sge->is_host) {
		*ptr = (uint8_t *)(uintptr_t)(sge->va + w->sge_off);
		return n;
	}
	if (!n ||
	    !smx_dma_admitted(w, sge->key, sge->va + w->sge_off, smx_outer_right(w->role), &mkey,
			      &off) ||
	    !smx_mkey_is_leaf(mkey))
		return 0;
	*ptr = smx_leaf_host(mkey, off);
	room = mkey->attr.length - off;
	return !*ptr ? 0 : n < room ? n : room;
}

static inline void flat_step(struct smx_walk *w, const struct smx_sge *sge, uint64_t n)
{
	w->sge_off += n;
	if (w->sge_off == sge->length) {
		w->sge_at++;
		w->sge_off = 0;
	}
}

smx_outcome smx_dma_copy(struct smx_walk *dst, struct smx_walk *src, uint64_t n, uint64_t *done,
			 struct smx_dma_fault *fault)
{
	const struct smx_dev_env *env = &dst->dev->attr.env;
	const struct smx_sge *from_sge = smx_walk_sges(src), *to_sge = smx_walk_sges(dst);
	uint64_t at = 0;

	*done = 0;
	while (at < n && !src->depth && !dst->depth && src->sge_at < src->sge_count &&
	       dst->sge_at < dst->sge_count) {
		const struct smx_sge *s = &from_sge[src->sge_at], *d = &to_sge[dst->sge_at];
		uint8_t *from, *to;
		uint64_t m = flat_run(src, s, n - at, &from);
		const void *bad;

		if (m)
			m = flat_run(dst, d, m, &to);
		if (!m)
			break;
		if (!copy_run(env, to, from, m, &bad))
			return copy_slowly(dst, src, n - at, done, fault);
		flat_step(src, s, m);
		flat_step(dst, d, m);
		at += m;
		*done = at;
	}
	return at < n ? copy_patterns(dst, src, n, done, fault) : SMX_CHECK_NONE;
}

smx_outcome smx_dma_read(struct smx_walk *src, void *to, uint64_t n, uint64_t *done,
			 struct smx_dma_fault *fault)
{
	struct smx_sge flat = { .va = (uintptr_t)to, .length = n, .is_host = true };
	struct smx_walk dst;

	smx_walk_list(&dst, src->dev, src->pd, src->qpn, SMX_DMA_SCATTER, &flat, 1);
	return smx_dma_copy(&dst, src, n, done, fault);
}

smx_outcome smx_dma_write(struct smx_walk *dst, const void *from, uint64_t n, uint64_t *done,
			  struct smx_dma_fault *fault)
{
	struct smx_sge flat = { .va = (uintptr_t)from, .length = n, .is_host = true };
	struct smx_walk src;

	smx_walk_list(&src, dst->dev, dst->pd, dst->qpn, SMX_DMA_GATHER, &flat, 1);
	return smx_dma_copy(dst, &src, n, done, fault);
}
