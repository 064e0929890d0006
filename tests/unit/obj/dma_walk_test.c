/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: walking, looking ahead and copying agree, byte for byte, with a resolver that knows nothing
 * of runs, whatever the keys are made of. Method: random key trees, good and bad; for random lists
 * the oracle below resolves each byte on its own from a description that the test keeps for itself.
 * Compared: the admitted prefix, the check and the key at its end, each run's address, and after a
 * copy the whole memory. */
#include "obj_world.h"

#include <stdio.h>

#include "base/bits.h"
#include "base/prng.h"
#include "obj/dma.h"

enum { ARENA = 4096, KEYS = 24, ITEMS = 6, SUBS = 4, QPN = 0x42 };

struct item {
	bool block;
	uint32_t repeat, num_ent;	/* block */
	struct { uint32_t key; uint64_t va; uint32_t bytes, stride; } sub[SUBS];	/* list: sub[0] */
};

/* What the test knows of a key. */
struct model {
	uint32_t key;
	enum smx_mkey_kind kind;
	bool foreign, free;
	uint32_t access, qpn;
	bool dst;		/* all that it leads to lies in dst, not in src */
	uint64_t start, length;
	uint8_t *host;
	struct item item[ITEMS];
	uint32_t item_count;
};

struct forest {
	struct world *w;
	struct smx_prng rng;
	bool healthy;		/* every second one: nothing is wrong on purpose */
	struct model model[KEYS];
	uint32_t count;
	uint8_t src[ARENA], dst[ARENA];
	uint8_t want[ARENA];	/* what dst is to hold */
};

/* The check's place in its group of refusal.def. */
enum wrong { OK, KEY, FREE, PD, QP, RIGHT, RANGE, FAULT, DEPTH };

static smx_outcome check_for(enum smx_dma_role role, enum wrong wrong)
{
	static const smx_outcome table[][9] = {
		[SMX_DMA_GATHER] = { 0, SMX_CHECK_GATHER_KEY, SMX_CHECK_GATHER_FREE,
				     SMX_CHECK_GATHER_PD, SMX_CHECK_GATHER_PD,
				     SMX_CHECK_GATHER_RIGHT, SMX_CHECK_GATHER_RANGE,
				     SMX_CHECK_GATHER_FAULT, SMX_CHECK_GATHER_DEPTH },
		[SMX_DMA_SCATTER] = { 0, SMX_CHECK_SCATTER_KEY, SMX_CHECK_SCATTER_FREE,
				      SMX_CHECK_SCATTER_PD, SMX_CHECK_SCATTER_PD,
				      SMX_CHECK_SCATTER_RIGHT, SMX_CHECK_SCATTER_RANGE,
				      SMX_CHECK_SCATTER_FAULT, SMX_CHECK_SCATTER_DEPTH },
		[SMX_DMA_RECV] = { 0, SMX_CHECK_RECV_KEY, SMX_CHECK_RECV_FREE, SMX_CHECK_RECV_PD,
				   SMX_CHECK_RECV_PD, SMX_CHECK_RECV_RIGHT, SMX_CHECK_RECV_RANGE,
				   SMX_CHECK_RECV_FAULT, SMX_CHECK_RECV_DEPTH },
		[SMX_DMA_REMOTE_READ] = { 0, SMX_CHECK_REMOTE_KEY, SMX_CHECK_REMOTE_FREE,
					  SMX_CHECK_REMOTE_PD, SMX_CHECK_REMOTE_QP,
					  SMX_CHECK_REMOTE_RIGHT, SMX_CHECK_REMOTE_RANGE,
					  SMX_CHECK_REMOTE_FAULT, SMX_CHECK_REMOTE_DEPTH },
	};

	if (role >= SMX_DMA_REMOTE_READ)
		role = SMX_DMA_REMOTE_READ;
	return table[role][wrong];
}

static uint32_t right_for(enum smx_dma_role role, bool outer)
{
	switch (role) {
	case SMX_DMA_GATHER: return 0;
	case SMX_DMA_SCATTER: case SMX_DMA_RECV: return IBV_ACCESS_LOCAL_WRITE;
	case SMX_DMA_REMOTE_READ: return outer ? IBV_ACCESS_REMOTE_READ : 0;
	case SMX_DMA_REMOTE_WRITE: return outer ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE;
	default: return outer ? IBV_ACCESS_REMOTE_ATOMIC : IBV_ACCESS_LOCAL_WRITE;
	}
}

struct answer {
	enum wrong wrong;
	uint32_t key;		/* the key that refused */
	uint8_t *host;		/* NULL: a null key */
};

static struct answer oracle(const struct forest *f, enum smx_dma_role role, uint32_t key,
			    uint64_t va, int depth)
{
	const struct model *m = NULL;
	uint64_t off;

	for (uint32_t i = 0; i < f->count; i++)
		m = f->model[i].key == key ? &f->model[i] : m;
	if (!m)
		return (struct answer){ .wrong = KEY, .key = key };
	if (m->free)
		return (struct answer){ .wrong = FREE, .key = key };
	if (m->foreign && m->kind != SMX_MKEY_NULL)
		return (struct answer){ .wrong = PD, .key = key };
	if (m->qpn != 0xffffff && m->qpn != QPN)
		return (struct answer){ .wrong = QP, .key = key };
	if ((m->access & right_for(role, depth == 0)) != right_for(role, depth == 0))
		return (struct answer){ .wrong = RIGHT, .key = key };
	if (va < m->start || va - m->start >= m->length)
		return (struct answer){ .wrong = RANGE, .key = key };
	off = va - m->start;
	if (m->kind == SMX_MKEY_NULL)
		return (struct answer){ .wrong = OK };
	if (m->kind == SMX_MKEY_DIRECT)
		return (struct answer){ .wrong = OK, .host = m->host + off };
	if (depth == 4)
		return (struct answer){ .wrong = DEPTH, .key = key };
	for (uint32_t i = 0; i < m->item_count; i++) {
		const struct item *it = &m->item[i];

		for (uint32_t t = 0; t < (it->block ? it->repeat : 1); t++) {
			for (uint32_t s = 0; s < (it->block ? it->num_ent : 1); s++) {
				if (off < it->sub[s].bytes)
					return oracle(f, role, it->sub[s].key,
						      it->sub[s].va +
							      (uint64_t)t * it->sub[s].stride + off,
						      depth + 1);
				off -= it->sub[s].bytes;
			}
		}
	}
	return (struct answer){ .wrong = RANGE, .key = key };
}

static uint64_t below(struct forest *f, uint64_t n)
{
	return smx_prng_below(&f->rng, n);
}

static bool one_in(struct forest *f, uint64_t n)
{
	return below(f, n) == 0;
}

static bool spoiled(struct forest *f, uint64_t n)
{
	return !f->healthy && one_in(f, n);
}

static void add_direct(struct forest *f)
{
	struct model *m = &f->model[f->count++];
	struct smx_mkey *mkey;

	*m = (struct model){ .kind = SMX_MKEY_DIRECT, .qpn = 0xffffff, .foreign = spoiled(f, 12) };
	m->access = spoiled(f, 6) ? (uint32_t)below(f, 2) * IBV_ACCESS_REMOTE_READ : RIGHTS_ALL;
	m->length = 1 + below(f, spoiled(f, 3) ? 64 : ARENA / 2);
	m->dst = f->count & 1;
	m->host = (m->dst ? f->dst : f->src) + below(f, ARENA - m->length + 1);
	m->start = one_in(f, 3)	  ? 0
		   : one_in(f, 3) ? UINT64_MAX - m->length
				  : 0x10000 + below(f, 1000);
	mkey = world_mkey(f->w,
			  &(struct smx_mkey_attr){ .kind = SMX_MKEY_DIRECT,
						   .pd = m->foreign ? &f->w->other_pd : &f->w->pd,
						   .access = m->access,
						   .start = m->start,
						   .length = m->length,
						   .host = m->host });
	m->key = mkey->key;
}

static void add_null(struct forest *f)
{
	struct model *m = &f->model[f->count++];

	*m = (struct model){ .kind = SMX_MKEY_NULL, .qpn = 0xffffff, .access = RIGHTS_ALL, .length = UINT64_MAX };
	m->foreign = true;
	m->key = world_mkey(f->w, &(struct smx_mkey_attr){
		.kind = SMX_MKEY_NULL, .pd = &f->w->other_pd, .access = m->access })->key;
}

/* An entry that mostly lies well inside some key that is there already. */
static void random_target(struct forest *f, bool dst, uint32_t bytes, uint32_t *key, uint64_t *va)
{
	const struct model *m;
	uint64_t room;

	/* Healthy trees look for one that has room. */
	for (int tries = 0;; tries++) {
		m = &f->model[below(f, f->count)];
		if ((m->dst == dst || m->kind == SMX_MKEY_NULL) &&
		    (!f->healthy || tries > 100 || m->length >= bytes))
			break;
	}
	room = m->length > bytes ? m->length - bytes : 0;

	*key = spoiled(f, 60) ? m->key ^ (1u << below(f, 12)) : m->key;
	*va = m->start + below(f, (room < 4 * ARENA ? room : 4 * ARENA) + 1);
	if (spoiled(f, 25))
		*va = m->start + room + below(f, 40) - 20;
}

static void random_items(struct forest *f, struct model *m)
{
	m->item_count = 1 + (uint32_t)below(f, ITEMS);
	for (uint32_t i = 0; i < m->item_count; i++) {
		struct item *it = &m->item[i];

		it->block = one_in(f, 2);
		it->repeat = (uint32_t)below(f, one_in(f, 4) ? 100 : 6);
		it->num_ent = (uint32_t)below(f, SUBS + 1);
		for (uint32_t s = 0; s < SUBS; s++) {
			static const uint8_t round[] = { 1, 2, 4, 8, 16, 32, 64 };
			uint32_t bytes =
				one_in(f, 2) ? round[below(f, 7)] : (uint32_t)below(f, 150);
			uint32_t extent;

			if (one_in(f, 8))
				bytes = 0;

			it->sub[s].bytes = bytes;
			it->sub[s].stride = one_in(f, 5) ? 0 : (uint32_t)(bytes + below(f, 20));
			if (spoiled(f, 40))
				it->sub[s].stride = 60000;
			extent = bytes;
			if (it->block && it->repeat)
				extent += (it->repeat - 1) * it->sub[s].stride;
			random_target(f, m->dst, extent, &it->sub[s].key, &it->sub[s].va);
		}
		if (!it->block)
			it->sub[0].stride = 0;
	}
}

static uint64_t items_layout(const struct model *m, struct layout *l)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < m->item_count; i++) {
		const struct item *it = &m->item[i];
		uint64_t turn = 0;

		if (!it->block) {
			layout_klm(l, it->sub[0].key, it->sub[0].va, it->sub[0].bytes);
			bytes += it->sub[0].bytes;
			continue;
		}
		layout_block(l, it->repeat, (uint16_t)it->num_ent);
		for (uint32_t s = 0; s < it->num_ent; s++) {
			layout_ent(l, it->sub[s].key, it->sub[s].va, (uint16_t)it->sub[s].bytes,
				   (uint16_t)it->sub[s].stride);
			turn += it->sub[s].bytes;
		}
		bytes += turn * it->repeat;
	}
	return bytes;
}

static void add_indirect(struct forest *f)
{
	struct model *m = &f->model[f->count++];
	struct smx_mkey *mkey = world_indirect(f->w, ITEMS * (SUBS + 1));
	struct layout l = { .n = 0 };
	struct smx_umr umr;
	uint64_t bytes, mask;

	*m = (struct model){ .kind = SMX_MKEY_INDIRECT, .key = mkey->key, .qpn = 0xffffff };
	m->access = spoiled(f, 8) ? (uint32_t)below(f, 16) : RIGHTS_ALL;
	m->free = spoiled(f, 30);
	m->start = one_in(f, 3) ? below(f, 1 << 20) : 0;
	m->length = 1000;	/* for entries that lead to itself */
	m->dst = f->count & 1;
	random_items(f, m);
	bytes = items_layout(m, &l);
	m->length = spoiled(f, 8)   ? bytes + below(f, 100)
		    : spoiled(f, 8) ? below(f, bytes + 1)
				    : bytes;
	if (one_in(f, 10))
		m->qpn = spoiled(f, 2) ? 0x77 : QPN;
	umr = umr_layout(mkey, &l, m->length, m->access);
	mask = from_be64(umr.ctrl.mkey_mask) | SMX_UMR_MASK_QPN | SMX_UMR_MASK_START_ADDR;
	umr.ctrl.mkey_mask = to_be64(mask);
	umr.ctx.free = m->free ? SMX_MKC_FREE : 0;
	umr.ctx.start_addr = to_be64(m->start);
	umr.ctx.qpn_mkey = to_be32(m->qpn << 8 | (mkey->key & 0xff));
	assert_int_equal(world_umr(f->w, &umr, QPN), SMX_CHECK_NONE);
}

static struct forest *grow(uint64_t seed)
{
	struct forest *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->w = world_new();
	f->rng.state = seed;
	f->healthy = seed & 1;
	for (int i = 0; i < 8; i++)
		add_direct(f);
	add_null(f);
	while (f->count < KEYS)
		add_indirect(f);
	return f;
}

static void fell(struct forest *f)
{
	world_free(f->w);
	free(f);
}

/* A list over the forest, resolved by the oracle. */
struct request {
	enum smx_dma_role role;
	struct smx_sge sge[4];
	uint32_t count;
	uint64_t total, good;	/* bytes it names; bytes before the first refusal */
	enum wrong wrong;
	uint32_t key;
	uint8_t *host[1 << 15];
};

static void random_request(struct forest *f, struct request *r, enum smx_dma_role role,
			   bool dst)
{
	uint64_t limit = SMX_COUNT(r->host);

	r->role = role;
	r->count = 1 + (uint32_t)below(f, SMX_COUNT(r->sge));
	r->total = r->good = 0;
	r->wrong = OK;
	for (uint32_t i = 0; i < r->count; i++) {
		struct smx_sge *s = &r->sge[i];
		uint64_t bytes = one_in(f, 8) ? 0 : one_in(f, 2) ? below(f, 200) : below(f, 6000);

		*s = (struct smx_sge){ .length = bytes };
		if (one_in(f, 10)) {
			s->is_host = true;
			s->length = bytes < ARENA ? bytes : ARENA;
			s->va = (uintptr_t)(dst ? f->dst : f->src) +
				below(f, ARENA - s->length + 1);
		} else {
			random_target(f, dst, (uint32_t)bytes, &s->key, &s->va);
		}
		for (uint64_t b = 0; b < s->length && r->wrong == OK; b++) {
			struct answer a = { .host = (uint8_t *)(uintptr_t)(s->va + b) };

			assert_true(r->good < limit);
			if (!s->is_host)
				a = oracle(f, role, s->key, s->va + b, 0);
			r->wrong = a.wrong;
			r->key = a.key;
			if (a.wrong == OK)
				r->host[r->good++] = a.host;
		}
		r->total += s->length;
	}
}

static void start(struct forest *f, struct smx_walk *w, const struct request *r)
{
	if (r->count == 1 && !r->sge[0].is_host && one_in(f, 2))
		smx_walk_range(w, &f->w->dev, &f->w->pd, QPN, r->role, r->sge[0].key, r->sge[0].va,
			       r->sge[0].length);
	else
		smx_walk_list(w, &f->w->dev, &f->w->pd, QPN, r->role, r->sge, r->count);
}

static void expect_wrong(const struct request *r, smx_outcome check,
			 const struct smx_dma_fault *fault)
{
	assert_string_equal(smx_check_info(check)->name,
			    smx_check_info(check_for(r->role, r->wrong))->name);
	assert_int_equal(fault->check, check);
	assert_int_equal(fault->key, r->key);
}

static void compare_check(struct forest *f, const struct request *r)
{
	uint64_t n = one_in(f, 2) ? r->total : below(f, r->total + 1);
	struct smx_dma_fault fault;
	struct smx_walk w;
	uint64_t ok;

	start(f, &w, r);
	ok = smx_walk_check(&w, n, &fault);
	assert_int_equal(ok, n < r->good ? n : r->good);
	if (ok < n)
		expect_wrong(r, fault.check, &fault);
	else
		assert_int_equal(fault.check, SMX_CHECK_NONE);
}

static void compare_walk(struct forest *f, const struct request *r)
{
	uint64_t at = one_in(f, 3) ? below(f, r->good + 1) : 0;
	struct smx_dma_fault fault;
	struct smx_walk first, w;
	struct smx_run run;
	smx_outcome check;

	start(f, &first, r);
	assert_int_equal(smx_walk_skip(&first, at / 2, &fault), SMX_CHECK_NONE);
	assert_int_equal(smx_walk_skip(&first, at - at / 2, &fault), SMX_CHECK_NONE);
	w = first;	/* a walk may be copied */
	memset(&first, 0x5a, sizeof(first));
	for (;;) {
		uint64_t max = one_in(f, 2) ? UINT64_MAX : 1 + below(f, 50);

		check = smx_walk_next(&w, max, &run, &fault);
		if (check || !run.length)
			break;
		assert_true(run.length <= max && run.length <= r->good - at);
		for (uint64_t i = 0; i < run.length; i++)
			assert_ptr_equal(run.ptr ? run.ptr + i : NULL, r->host[at + i]);
		at += run.length;
		if (one_in(f, 10))
			f->w->dev.mkey_changes++;	/* the walk finds its place again */
	}
	assert_int_equal(at, r->good);
	if (r->wrong)
		expect_wrong(r, check, &fault);
	else
		assert_int_equal(check, SMX_CHECK_NONE);
	assert_int_equal(smx_walk_skip(&w, 1, &fault), check);
	assert_int_equal(smx_walk_check(&w, 1, &fault), 0);
	assert_int_equal(fault.check, check);
}

static void compare_copy(struct forest *f, const struct request *src, const struct request *dst)
{
	uint64_t n = src->total < dst->total ? src->total : dst->total;
	uint64_t good = src->good < dst->good ? src->good : dst->good, at = 0;
	struct smx_dma_fault fault;
	struct smx_walk s, d;
	smx_outcome check = SMX_CHECK_NONE;

	good = good < n ? good : n;
	start(f, &s, src);
	start(f, &d, dst);
	for (uint64_t i = 0; i < good; i++) {
		if (dst->host[i])
			f->want[dst->host[i] - f->dst] = src->host[i] ? *src->host[i] : 0;
	}
	while (at < good || one_in(f, 2)) {
		uint64_t step = one_in(f, 2) ? n - at + below(f, 2) : below(f, n - at + 1), done;

		check = smx_dma_copy(&d, &s, step, &done, &fault);
		at += done;
		assert_true(at <= good);
		assert_true(check || done == step || at == n);
		if (check)
			break;
	}
	assert_int_equal(at, good);
	assert_memory_equal(f->dst, f->want, ARENA);
	if (check && src->good == good && src->wrong)
		expect_wrong(src, check, &fault);
	else if (check)
		expect_wrong(dst, check, &fault);
}

/* A spoiled key may lead into the other side's memory; what then overlaps has no one right
 * answer. */
static bool stays_in(const struct request *r, const uint8_t *arena)
{
	for (uint64_t i = 0; i < r->good; i++) {
		if (r->host[i] && (size_t)(r->host[i] - arena) >= ARENA)
			return false;
	}
	return true;
}

static void agrees_with_oracle_on_random_keys(void **state)
{
	static const enum smx_dma_role reads[] = { SMX_DMA_GATHER, SMX_DMA_REMOTE_READ };
	static const enum smx_dma_role writes[] = { SMX_DMA_SCATTER, SMX_DMA_RECV,
						    SMX_DMA_REMOTE_WRITE };
	static struct request src, dst;
	const char *env = getenv("SMX_TEST_SEED"), *env_rounds = getenv("SMX_TEST_ROUNDS");
	uint64_t seed = env ? strtoull(env, NULL, 0) : 1;
	uint64_t rounds = env_rounds ? strtoull(env_rounds, NULL, 0) : 60;
	uint64_t copied = 0, bad = 0;
	(void)state;

	for (uint64_t i = 0; i < rounds; i++, seed++) {
		struct forest *f = grow(seed);

		print_message("SEED=%llu\r", (unsigned long long)seed);
		for (int k = 0; k < 60; k++) {
			random_request(f, &src, reads[below(f, 2)], false);
			random_request(f, &dst, writes[below(f, 3)], true);
			compare_check(f, &src);
			compare_check(f, &dst);
			compare_walk(f, &src);
			compare_walk(f, &dst);
			bad += src.wrong != OK;
			if (!stays_in(&src, f->src) || !stays_in(&dst, f->dst))
				continue;
			for (int b = 0; b < ARENA; b++)
				f->src[b] = (uint8_t)below(f, 256);
			memcpy(f->want, f->dst, ARENA);
			compare_copy(f, &src, &dst);
			copied += src.good < dst.good ? src.good : dst.good;
		}
		assert_int_equal(f->w->faults, 0);
		fell(f);
	}
	/* The generator must not drift into making only bad or only good keys. */
	assert_true(copied > rounds * 60 * 100);
	assert_true(bad > rounds * 3 && bad < rounds * 57);
}

static void totals_add_up(void **state)
{
	const struct smx_sge list[] = {
		{ .length = 5 },
		{ .length = 0 },
		{ .length = 1ull << 31 },
		{ .length = 1ull << 31 },
	};
	(void)state;

	assert_true(smx_sge_total(list, 0) == 0);
	assert_true(smx_sge_total(list, 1) == 5);
	assert_true(smx_sge_total(list, 4) == (1ull << 32) + 5);
}

/* A pattern of 2^32 - 1 turns is opened, looked through and skipped without walking it. */
static void cost_does_not_grow_with_repetitions(void **state)
{
	struct world *w = world_new();
	uint8_t byte[64] = { 1, 2, 3 };
	struct smx_mkey *mr = world_region(w, byte, sizeof(byte), RIGHTS_ALL);
	struct smx_mkey *inner = world_indirect(w, 4), *outer = world_indirect(w, 4);
	struct layout l = { .n = 0 }, o = { .n = 0 };
	uint64_t turn = 3, total = turn * UINT32_MAX;
	struct smx_dma_fault fault;
	struct smx_walk walk;
	struct smx_run run;
	struct smx_umr umr;
	(void)state;

	layout_block(&l, UINT32_MAX, 2);
	layout_ent(&l, mr->key, (uintptr_t)byte, 2, 0);
	layout_ent(&l, mr->key, (uintptr_t)byte + 2, 1, 0);
	umr = umr_layout(inner, &l, total, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, 1), SMX_CHECK_NONE);
	/* A strided pattern over the strided key, one byte of each 3 * 1000. */
	layout_block(&o, UINT32_MAX, 1);
	layout_ent(&o, inner->key, 1, 1, 3000);
	umr = umr_layout(outer, &o, UINT32_MAX, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, 1), SMX_CHECK_NONE);

	smx_walk_range(&walk, &w->dev, &w->pd, 1, SMX_DMA_GATHER, inner->key, 0, total + 5);
	assert_true(smx_walk_check(&walk, total + 5, &fault) == total);
	assert_int_equal(fault.check, SMX_CHECK_GATHER_RANGE);
	assert_int_equal(smx_walk_skip(&walk, total - 1, &fault), SMX_CHECK_NONE);
	assert_int_equal(smx_walk_next(&walk, 9, &run, &fault), SMX_CHECK_NONE);
	assert_int_equal(run.length, 1);
	assert_ptr_equal(run.ptr, byte + 2);
	assert_int_equal(smx_walk_next(&walk, 9, &run, &fault), SMX_CHECK_GATHER_RANGE);

	smx_walk_range(&walk, &w->dev, &w->pd, 1, SMX_DMA_GATHER, outer->key, 0, UINT32_MAX);
	/* 2^32 turns of the inner key's 3 bytes: the outer pattern leaves it after a third of a
	 * thousandth. */
	assert_true(smx_walk_check(&walk, UINT32_MAX, &fault) == (total - 2) / 3000 + 1);
	assert_int_equal(fault.check, SMX_CHECK_GATHER_RANGE);
	assert_int_equal(fault.key, inner->key);
	assert_int_equal(fault.outer_key, outer->key);
	world_free(w);
}

/* Keys under keys are followed four deep; a key that leads to itself ends there. */
static void depth_is_bounded(void **state)
{
	struct world *w = world_new();
	uint8_t mem[32] = { 0 };
	struct smx_mkey *key = world_region(w, mem, sizeof(mem), RIGHTS_ALL);
	uint64_t va = (uintptr_t)mem;
	struct smx_dma_fault fault;
	struct smx_walk walk;
	struct smx_run run;
	struct smx_umr umr;
	(void)state;

	for (int depth = 1; depth <= 5; depth++, va = 0) {
		struct layout l = { .n = 0 };
		struct smx_mkey *next = world_indirect(w, 1);
		smx_outcome want =
			depth <= SMX_WALK_DEPTH ? SMX_CHECK_NONE : SMX_CHECK_REMOTE_DEPTH;

		layout_klm(&l, key->key, va, 32);
		umr = umr_layout(next, &l, 32, RIGHTS_ALL);
		assert_int_equal(world_umr(w, &umr, 1), SMX_CHECK_NONE);
		key = next;
		smx_walk_range(&walk, &w->dev, &w->pd, 1, SMX_DMA_REMOTE_WRITE, key->key, 0, 32);
		assert_int_equal(smx_walk_check(&walk, 32, &fault), want ? 0 : 32);
		assert_int_equal(fault.check, want);
		assert_int_equal(smx_walk_next(&walk, 32, &run, &fault), want);
		assert_int_equal(run.length, want ? 0 : 32);
	}
	smx_walk_refuse(&w->dev, &fault, NULL);
	world_refused(w, SMX_CHECK_REMOTE_DEPTH, "under 4 others");
	{
		struct layout self = { .n = 0 };

		layout_klm(&self, key->key, 0, 32);
		umr = umr_layout(key, &self, 32, RIGHTS_ALL);
		assert_int_equal(world_umr(w, &umr, 1), SMX_CHECK_NONE);
		smx_walk_range(&walk, &w->dev, &w->pd, 1, SMX_DMA_REMOTE_WRITE, key->key, 0, 32);
		assert_int_equal(smx_walk_next(&walk, 32, &run, &fault), SMX_CHECK_REMOTE_DEPTH);
	}
	world_free(w);
}

/* A key that is destroyed or written anew while a walk is kept is noticed where the walk goes
 * on. */
static void walk_survives_changes_of_its_keys(void **state)
{
	struct world *w = world_new();
	uint8_t a[16] = { 0 }, b[16] = { 0 };
	struct smx_mkey *mr_a = world_region(w, a, 16, RIGHTS_ALL),
			*mr_b = world_region(w, b, 16, RIGHTS_ALL);
	struct smx_mkey *list = world_indirect(w, 4);
	struct layout to_a = { .n = 0 }, to_b = { .n = 0 };
	struct smx_dma_fault fault;
	struct smx_walk walk;
	struct smx_run run;
	struct smx_umr umr;
	(void)state;

	layout_klm(&to_a, mr_a->key, (uintptr_t)a, 16);
	layout_klm(&to_b, mr_b->key, (uintptr_t)b, 16);
	umr = umr_layout(list, &to_a, 16, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, 1), SMX_CHECK_NONE);
	smx_walk_range(&walk, &w->dev, &w->pd, 1, SMX_DMA_GATHER, list->key, 0, 16);
	assert_int_equal(smx_walk_next(&walk, 4, &run, &fault), SMX_CHECK_NONE);
	assert_ptr_equal(run.ptr, a);
	umr = umr_layout(list, &to_b, 16, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, 1), SMX_CHECK_NONE);
	assert_int_equal(smx_walk_next(&walk, 4, &run, &fault), SMX_CHECK_NONE);
	assert_ptr_equal(run.ptr, b + 4);
	umr = (struct smx_umr){ .key = list->key, .ctx.free = SMX_MKC_FREE };
	umr.ctrl.mkey_mask = to_be64(SMX_UMR_MASK_FREE);
	assert_int_equal(world_umr(w, &umr, 1), SMX_CHECK_NONE);
	assert_int_equal(smx_walk_next(&walk, 4, &run, &fault), SMX_CHECK_GATHER_FREE);
	assert_int_equal(smx_mkey_destroy(&w->dev, list), 0);
	assert_int_equal(smx_walk_next(&walk, 4, &run, &fault), SMX_CHECK_GATHER_KEY);
	world_free(w);
}

/* Each refusal at its edges, against a 64-byte key at 0x10000. */
static void each_refusal_at_its_edges(void **state)
{
	enum { RW = RIGHTS_ALL, RD = IBV_ACCESS_REMOTE_READ };
	static const struct row {
		const char *name;
		enum smx_dma_role role;
		uint32_t access, key_xor;
		uint64_t va, length;
		bool other_pd;
		smx_outcome want;
		uint64_t good;
		const char *text;
	} rows[] = {
		{ "whole", SMX_DMA_GATHER, 0, 0, 0x10000, 64, false, SMX_CHECK_NONE, 64, NULL },
		{ "one before", SMX_DMA_GATHER, 0, 0, 0xffff, 1, false, SMX_CHECK_GATHER_RANGE, 0,
		  "address 0xffff length 1, key covers 0x10000 length 64" },
		{ "one too long", SMX_DMA_GATHER, 0, 0, 0x10000, 65, false, SMX_CHECK_GATHER_RANGE,
		  64, "length 65, key covers" },
		{ "right behind", SMX_DMA_SCATTER, RW, 0, 0x10040, 1, false,
		  SMX_CHECK_SCATTER_RANGE, 0, NULL },
		{ "last byte", SMX_DMA_SCATTER, RW, 0, 0x1003f, 1, false, SMX_CHECK_NONE, 1, NULL },
		{ "wraps", SMX_DMA_REMOTE_WRITE, RW, 0, UINT64_MAX, 2, false,
		  SMX_CHECK_REMOTE_RANGE, 0, NULL },
		{ "wraps onto the key", SMX_DMA_REMOTE_WRITE, RW, 0, 0xfffffffffffffc00, 0x10800,
		  false, SMX_CHECK_REMOTE_RANGE, 0, NULL },
		{ "tag", SMX_DMA_GATHER, RW, 1, 0x10000, 1, false, SMX_CHECK_GATHER_KEY, 0,
		  "the key there is now 0x" },
		{ "index", SMX_DMA_RECV, RW, 0x100, 0x10000, 1, false, SMX_CHECK_RECV_KEY, 0,
		  "no key is there" },
		{ "zero length, no key", SMX_DMA_REMOTE_READ, RW, 0x100, 0, 0, false,
		  SMX_CHECK_NONE, 0, NULL },
		{ "domain", SMX_DMA_GATHER, RW, 0, 0x10000, 1, true, SMX_CHECK_GATHER_PD, 0,
		  "key has pd 0x7 qpn 0xffffff, asked with pd 0x8 qpn 0x1" },
		{ "gather needs no right", SMX_DMA_GATHER, 0, 0, 0x10000, 1, false, SMX_CHECK_NONE,
		  1, NULL },
		{ "scatter right", SMX_DMA_SCATTER, RD, 0, 0x10000, 1, false,
		  SMX_CHECK_SCATTER_RIGHT, 0, "key has access 0x4, local write is needed" },
		{ "receive right", SMX_DMA_RECV, RD, 0, 0x10000, 1, false, SMX_CHECK_RECV_RIGHT, 0,
		  NULL },
		{ "read right", SMX_DMA_REMOTE_READ, RW & ~RD, 0, 0x10000, 1, false,
		  SMX_CHECK_REMOTE_RIGHT, 0,
		  "rkey 0x1037 address 0x10000 length 1, key has access 0xb, remote read is "
		  "needed" },
		{ "write right", SMX_DMA_REMOTE_WRITE, IBV_ACCESS_LOCAL_WRITE | RD, 0, 0x10000, 1,
		  false, SMX_CHECK_REMOTE_RIGHT, 0, NULL },
		{ "atomic right", SMX_DMA_REMOTE_ATOMIC,
		  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0, 0x10000, 8, false,
		  SMX_CHECK_REMOTE_RIGHT, 0, NULL },
		{ "remote write alone", SMX_DMA_REMOTE_WRITE,
		  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0, 0x10000, 64, false,
		  SMX_CHECK_NONE, 64, NULL },
	};
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct world *w = world_new();
		uint8_t mem[64], copy[0x10900] = { 0 };
		struct smx_mkey *mkey =
			world_mkey(w, &(struct smx_mkey_attr){ .kind = SMX_MKEY_DIRECT,
							       .access = r->access,
							       .start = 0x10000,
							       .length = 64,
							       .host = mem });
		struct smx_dma_fault fault;
		struct smx_walk walk;
		uint64_t done;

		for (int b = 0; b < 64; b++)
			mem[b] = (uint8_t)(b + 1);
		smx_walk_range(&walk, &w->dev, r->other_pd ? &w->other_pd : &w->pd, 1, r->role,
			       mkey->key ^ r->key_xor, r->va, r->length);
		if (smx_walk_check(&walk, r->length, &fault) != r->good || fault.check != r->want)
			fail_msg("%s: look-ahead says %s", r->name,
				 smx_check_info(fault.check)->name);
		assert_int_equal(smx_dma_read(&walk, copy, r->length, &done, &fault), r->want);
		assert_int_equal(done, r->good);
		for (uint64_t b = 0; b < sizeof(copy); b++)
			assert_int_equal(copy[b], b < r->good ? r->va - 0x10000 + b + 1 : 0);
		if (r->want) {
			assert_int_equal(smx_walk_refuse(&w->dev, &fault, NULL), r->want);
			world_refused(w, r->want, r->text);
		}
		world_free(w);
	}
}

/* What a key promises beyond its entries is refused, and the sentence says so. */
static void entries_shorter_than_the_length(void **state)
{
	struct world *w = world_new();
	uint8_t mem[32] = { 0 };
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL),
			*list = world_indirect(w, 4);
	struct layout l = { .n = 0 };
	struct smx_dma_fault fault;
	struct smx_walk walk;
	struct smx_umr umr;
	(void)state;

	layout_klm(&l, mr->key, (uintptr_t)mem, 16);
	layout_klm(&l, mr->key, (uintptr_t)mem + 24, 9);
	umr = umr_layout(list, &l, 100, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, 1), SMX_CHECK_NONE);
	smx_walk_range(&walk, &w->dev, &w->pd, 1, SMX_DMA_GATHER, list->key, 0, 24);
	assert_int_equal(smx_walk_check(&walk, 24, &fault), 24);
	smx_walk_range(&walk, &w->dev, &w->pd, 1, SMX_DMA_GATHER, list->key, 0, 30);
	assert_int_equal(smx_walk_check(&walk, 30, &fault), 24);
	smx_walk_refuse(&w->dev, &fault, NULL);
	world_refused(w, SMX_CHECK_GATHER_RANGE, "(under lkey 0x1100)");
	umr.entry = l.e;
	l.e[1].byte_count = to_be32(8);
	assert_int_equal(world_umr(w, &umr, 1), SMX_CHECK_NONE);
	smx_walk_range(&walk, &w->dev, &w->pd, 1, SMX_DMA_GATHER, list->key, 0, 30);
	assert_int_equal(smx_walk_check(&walk, 30, &fault), 24);
	smx_walk_refuse(&w->dev, &fault, NULL);
	world_refused(w, SMX_CHECK_GATHER_RANGE,
		      "key has length 100 but its entries have 24 bytes");
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_refusal_at_its_edges),
		cmocka_unit_test(entries_shorter_than_the_length),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(walk_survives_changes_of_its_keys),
		cmocka_unit_test(totals_add_up),
		cmocka_unit_test(cost_does_not_grow_with_repetitions),
		cmocka_unit_test(agrees_with_oracle_on_random_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
