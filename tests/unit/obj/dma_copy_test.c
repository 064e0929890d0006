/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: copies do what a plain loop does, at every size and shape; memory that is gone ends them
 * with the right side, region and count, and nothing else is written; atomics follow their
 * definition. */
#include "obj_world.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/prng.h"
#include "obj/dma.h"

enum { QPN = 1 };

static void list_walk(struct world *w, struct smx_walk *walk, enum smx_dma_role role,
		      const struct smx_sge *sge, uint32_t count)
{
	smx_walk_list(walk, &w->dev, &w->pd, QPN, role, sge, count);
}

static struct smx_mkey *strided(struct world *w, const struct smx_mkey *mr, uint32_t repeat,
				uint16_t num_ent, const uint16_t bytes[], const uint16_t stride[],
				const uint64_t va[])
{
	struct smx_mkey *mkey = world_indirect(w, 1 + num_ent);
	struct layout l = { .n = 0 };
	uint64_t turn = 0;
	struct smx_umr umr;

	layout_block(&l, repeat, num_ent);
	for (uint16_t i = 0; i < num_ent; i++) {
		layout_ent(&l, mr->key, va[i], bytes[i], stride[i]);
		turn += bytes[i];
	}
	umr = umr_layout(mkey, &l, turn * repeat, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	return mkey;
}

/* Gather, scatter and strided to strided, for each block size and with one to three entries a
 * turn. */
static void strided_copies_equal_a_plain_loop(void **state)
{
	static const uint16_t sizes[] = { 1,  2,  3,  4,  5,  7,  8,  9,  12, 15,  16,
					  17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 4100 };
	enum { TURNS = 37, ROOM = TURNS * 3 * 4200 };
	uint8_t *a = malloc(ROOM), *b = malloc(ROOM), *flat = malloc(ROOM), *want = malloc(ROOM);
	struct world *w = world_new();
	struct smx_mkey *mr_a = world_region(w, a, ROOM, RIGHTS_ALL),
			*mr_b = world_region(w, b, ROOM, RIGHTS_ALL);
	(void)state;

	for (int i = 0; i < ROOM; i++)
		a[i] = (uint8_t)(i * 7 + (i >> 8));
	for (unsigned int k = 0; k < SMX_COUNT(sizes) * 3; k++) {
		uint16_t size = sizes[k / 3], n = (uint16_t)(k % 3 + 1),
			 block = (uint16_t)(n * (size + 5));
		uint64_t total = (uint64_t)size * n * TURNS, done, at = 0;
		uint16_t bytes[3], stride[3];
		uint64_t va[3], vb[3];
		struct smx_mkey *from, *to;
		struct smx_dma_fault fault;
		struct smx_walk s, d;

		for (uint16_t i = 0; i < n; i++) {
			bytes[i] = size;
			stride[i] = block;
			va[i] = (uintptr_t)a + (uint64_t)i * (size + 5u);
			vb[i] = (uintptr_t)b + (uint64_t)(n - 1 - i) * (size + 5u);
		}
		from = strided(w, mr_a, TURNS, n, bytes, stride, va);
		to = strided(w, mr_b, TURNS, n, bytes, stride, vb);
		memset(want, 0xee, ROOM);
		for (int t = 0; t < TURNS; t++) {
			for (uint16_t i = 0; i < n; i++, at += size)
				memcpy(want + at, (uint8_t *)(uintptr_t)va[i] + t * block, size);
		}
		memset(flat, 0xee, ROOM);
		smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_REMOTE_READ, from->key, 0, total);
		assert_int_equal(smx_dma_read(&s, flat, total, &done, &fault), SMX_CHECK_NONE);
		assert_int_equal(done, total);
		assert_memory_equal(flat, want, ROOM);

		memset(b, 0xee, ROOM);
		smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_GATHER, from->key, 0, total);
		smx_walk_range(&d, &w->dev, &w->pd, QPN, SMX_DMA_REMOTE_WRITE, to->key, 0, total);
		assert_int_equal(smx_dma_copy(&d, &s, total + 1, &done, &fault), SMX_CHECK_NONE);
		assert_int_equal(done, total);
		memset(want, 0xee, ROOM);
		for (int t = 0; t < TURNS; t++) {
			for (uint16_t i = 0; i < n; i++)
				memcpy(want + (vb[i] - (uintptr_t)b) + t * block,
				       (uint8_t *)(uintptr_t)va[i] + t * block, size);
		}
		assert_memory_equal(b, want, ROOM);

		memset(b, 0xee, ROOM);
		smx_walk_range(&d, &w->dev, &w->pd, QPN, SMX_DMA_RECV, to->key, 0, total);
		assert_int_equal(smx_dma_write(&d, flat, total, &done, &fault), SMX_CHECK_NONE);
		assert_memory_equal(b, want, ROOM);
	}
	assert_int_equal(w->faults, 0);
	world_free(w);
	free(a);
	free(b);
	free(flat);
	free(want);
}

/* A region of five pages of which the fourth is not there. */
struct holed {
	uint8_t *mem;
	size_t page;
	struct smx_mkey *mr;
};

static struct holed make_hole(struct world *w, int prot)
{
	struct holed h = { .page = (size_t)sysconf(_SC_PAGESIZE) };

	h.mem = mmap(NULL, 5 * h.page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(h.mem, MAP_FAILED);
	memset(h.mem, 0x11, 5 * h.page);
	h.mr = world_region(w, h.mem, 5 * h.page, RIGHTS_ALL);
	if (prot)
		assert_int_equal(mprotect(h.mem + 3 * h.page, h.page, prot), 0);
	else
		assert_int_equal(munmap(h.mem + 3 * h.page, h.page), 0);
	return h;
}

static void drop_hole(struct holed *h)
{
	munmap(h->mem, 5 * h->page);
}

static void unmapped_memory_is_an_outcome(void **state)
{
	static const struct row {
		const char *name;
		enum smx_dma_role role;
		bool is_src;
		int prot;
		smx_outcome want;
	} rows[] = {
		{ "gather", SMX_DMA_GATHER, true, 0, SMX_CHECK_GATHER_FAULT },
		{ "read", SMX_DMA_REMOTE_READ, true, 0, SMX_CHECK_REMOTE_FAULT },
		{ "scatter", SMX_DMA_SCATTER, false, 0, SMX_CHECK_SCATTER_FAULT },
		{ "receive", SMX_DMA_RECV, false, 0, SMX_CHECK_RECV_FAULT },
		{ "write", SMX_DMA_REMOTE_WRITE, false, 0, SMX_CHECK_REMOTE_FAULT },
		{ "read-only", SMX_DMA_REMOTE_WRITE, false, PROT_READ, SMX_CHECK_REMOTE_FAULT },
	};
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct world *w = world_new();
		struct holed h = make_hole(w, r->prot);
		size_t bytes = 4 * h.page, good = 3 * h.page - 100;
		uint8_t *other = malloc(bytes);
		struct smx_dma_fault fault;
		struct smx_walk walk;
		char text[64];
		uint64_t done;

		memset(other, 0x22, bytes);
		smx_walk_range(&walk, &w->dev, &w->pd, QPN, r->role, h.mr->key,
			       (uintptr_t)h.mem + 100, bytes);
		assert_int_equal(smx_walk_check(&walk, bytes, &fault), bytes);	/* mapped or not is not looked at */
		assert_int_equal(r->is_src ? smx_dma_read(&walk, other, bytes, &done, &fault)
					   : smx_dma_write(&walk, other, bytes, &done, &fault),
				 r->want);
		assert_int_equal(done, good);
		for (size_t b = 0; b < bytes; b++)
			assert_int_equal(other[b], r->is_src && b < good ? 0x11 : 0x22);
		for (size_t b = 0; b < 5 * h.page; b++) {
			if (b / h.page != 3 || r->prot)
				assert_int_equal(h.mem[b], !r->is_src && b >= 100 && b < 3 * h.page
								   ? 0x22
								   : 0x11);
		}
		assert_ptr_equal((uintptr_t)fault.host & ~(h.page - 1), h.mem + 3 * h.page);
		smx_walk_refuse(&w->dev, &fault, NULL);
		snprintf(text, sizeof(text), "of region 0x%llx length %zu",
			 (unsigned long long)(uintptr_t)h.mem, 5 * h.page);
		world_refused(w, r->want, text);
		world_free(w);
		drop_hole(&h);
		free(other);
	}
}

/* The batch that faults in its middle is finished up to the block that is gone, no further. */
static void strided_copy_stops_at_the_missing_block(void **state)
{
	(void)state;

	for (int k = 0; k < 4; k++) {
		uint16_t size = k / 2 ? 256 : 8, n = (uint16_t)(k % 2 + 1);

		for (int as_dst = 0; as_dst < 2; as_dst++) {
			struct world *w = world_new();
			struct holed h = make_hole(w, 0);
			uint16_t every = size * 8, bytes[2] = { size, size }, stride[2] = { every, every };
			uint64_t va[2] = { (uintptr_t)h.mem, (uintptr_t)h.mem + 2u * size }, done;
			uint32_t turns = (uint32_t)(5 * h.page / every),
				 good_turns = (uint32_t)(3 * h.page / every);
			struct smx_mkey *key =
				strided(w, h.mr, turns, n, bytes, stride, va);
			uint64_t total = (uint64_t)size * n * turns,
				 good = (uint64_t)size * n * good_turns;
			uint8_t *flat = malloc(total);
			struct smx_dma_fault fault;
			struct smx_walk walk;

			memset(flat, 0x22, total);
			smx_walk_range(&walk, &w->dev, &w->pd, QPN,
				       as_dst ? SMX_DMA_SCATTER : SMX_DMA_GATHER, key->key, 0,
				       total);
			if (as_dst)
				assert_int_equal(smx_dma_write(&walk, flat, total, &done, &fault),
						 SMX_CHECK_SCATTER_FAULT);
			else
				assert_int_equal(smx_dma_read(&walk, flat, total, &done, &fault),
						 SMX_CHECK_GATHER_FAULT);
			assert_int_equal(done, good);
			assert_int_equal(fault.key, h.mr->key);
			assert_int_equal(fault.outer_key, key->key);
			assert_ptr_equal(fault.host, h.mem + 3 * h.page);
			for (uint64_t b = 0; b < total; b++)
				assert_int_equal(flat[b], !as_dst && b < good ? 0x11 : 0x22);
			for (size_t b = 0; b < 5 * h.page; b++) {
				size_t at = b % every;
				bool block = at < size || (n == 2 && at >= 2u * size && at < 3u * size);

				if (b / h.page != 3)
					assert_int_equal(h.mem[b], as_dst && block && b < 3 * h.page
									   ? 0x22
									   : 0x11);
			}
			world_free(w);
			drop_hole(&h);
			free(flat);
		}
	}
}

static void overlapping_runs_move(void **state)
{
	static const int shift[] = { -4096, -65, -64, -9, -8, -1, 0, 1, 7, 8, 17, 64, 100, 4096 };
	static const uint32_t lengths[] = { 1, 7, 8, 9, 16, 31, 64, 65, 200, 5000 };
	uint8_t mem[16384], want[16384];
	struct world *w = world_new();
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL);
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(shift) * SMX_COUNT(lengths); i++) {
		uint32_t n = lengths[i % SMX_COUNT(lengths)];
		struct smx_sge from = { (uintptr_t)mem + 5000, n, mr->key, false };
		struct smx_sge to = { from.va + (uint64_t)(int64_t)shift[i / SMX_COUNT(lengths)], n,
				      mr->key, false };
		struct smx_dma_fault fault;
		struct smx_walk s, d;
		uint64_t done;

		for (size_t b = 0; b < sizeof(mem); b++)
			want[b] = mem[b] = (uint8_t)(b ^ b >> 8);
		memmove(want + (to.va - (uintptr_t)mem), want + 5000, n);
		list_walk(w, &s, SMX_DMA_GATHER, &from, 1);
		list_walk(w, &d, SMX_DMA_SCATTER, &to, 1);
		assert_int_equal(smx_dma_copy(&d, &s, n, &done, &fault), SMX_CHECK_NONE);
		assert_int_equal(done, n);
		assert_memory_equal(mem, want, sizeof(mem));
	}
	world_free(w);
}

/* Blocks whose target overlaps the next blocks' source: one after the other is moved, as a loop of memmove does. */
static void overlapping_blocks_move_in_turn(void **state)
{
	static const int shift[] = { -300, -100, -8, 0, 8, 100, 300 };
	static const uint16_t sizes[] = { 8, 64, 100, 256 };
	enum { TURNS = 9 };
	uint8_t mem[16384], want[16384];
	struct world *w = world_new();
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL);
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(shift) * SMX_COUNT(sizes); i++) {
		uint16_t size = sizes[i % SMX_COUNT(sizes)], every = (uint16_t)(size + 40);
		uint64_t from = 4000, to = from + (uint64_t)(int64_t)shift[i / SMX_COUNT(sizes)], done;
		uint64_t total = (uint64_t)size * TURNS, va = (uintptr_t)mem + from;
		struct smx_mkey *key = strided(w, mr, TURNS, 1, &size, &every, &va);
		struct smx_sge flat = { (uintptr_t)mem + to, total, mr->key, false };
		struct smx_dma_fault fault;
		struct smx_walk s, d;

		for (size_t b = 0; b < sizeof(mem); b++)
			want[b] = mem[b] = (uint8_t)(b ^ b >> 8);
		for (uint64_t t = 0; t < TURNS; t++)
			memmove(want + to + t * size, want + from + t * every, size);
		smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_REMOTE_READ, key->key, 0, total);
		list_walk(w, &d, SMX_DMA_SCATTER, &flat, 1);
		assert_int_equal(smx_dma_copy(&d, &s, total, &done, &fault), SMX_CHECK_NONE);
		assert_int_equal(done, total);
		assert_memory_equal(mem, want, sizeof(mem));
	}
	world_free(w);
}

/* smx_dma_copy_all(): what is refused anywhere leaves everything as it was. */
static void all_is_copied_or_nothing(void **state)
{
	enum { SIZE = 100, TURNS = 20, EVERY = 200, TOTAL = SIZE * TURNS };
	static const struct { uint64_t n, split; uint32_t turns; bool all; } rows[] = {
		{ TOTAL, 0, TURNS, true },
		{ TOTAL - 1, 0, TURNS, true },		/* not whole turns: looked at apart */
		{ TOTAL, 777, TURNS, true },		/* into two pieces */
		{ 64, 0, TURNS, true },
		{ TOTAL + 1, 0, TURNS, false },		/* more than the pattern has */
		{ TOTAL + SIZE, 0, TURNS + 1, false },	/* the last turn leaves the region */
		{ TOTAL + SIZE, 777, TURNS + 1, false },
	};
	uint16_t size = SIZE, every = EVERY;
	uint8_t src[TURNS * EVERY], dst[2 * TOTAL], want[2 * TOTAL];
	struct world *w = world_new();
	struct smx_mkey *from = world_region(w, src, sizeof(src), RIGHTS_ALL);
	struct smx_mkey *to = world_region(w, dst, sizeof(dst), RIGHTS_ALL);
	(void)state;

	for (size_t b = 0; b < sizeof(src); b++)
		src[b] = (uint8_t)(b * 7 + (b >> 8));
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		uint64_t n = rows[i].n, split = rows[i].split, va = (uintptr_t)src;
		struct smx_mkey *key = strided(w, from, rows[i].turns, 1, &size, &every, &va);
		struct smx_sge sge[2] = { { (uintptr_t)dst, split ? split : n, to->key, false },
					  { (uintptr_t)dst + split, n - split, to->key, false } };
		struct smx_walk s, d;

		memset(dst, 0xee, sizeof(dst));
		memset(want, 0xee, sizeof(want));
		for (uint64_t b = 0; b < n && rows[i].all; b++)
			want[b] = src[b / SIZE * EVERY + b % SIZE];
		smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_REMOTE_READ, key->key, 0, n);
		list_walk(w, &d, SMX_DMA_SCATTER, sge, split ? 2 : 1);
		assert_int_equal(smx_dma_copy_all(&d, &s, n), rows[i].all);
		assert_memory_equal(dst, want, sizeof(dst));
	}
	world_free(w);
}

/* The null key reads as zeros and takes writes; an implicit key is the address space, but for
 * address 0. */
static void null_and_implicit_keys(void **state)
{
	struct world *w = world_new();
	struct smx_mkey *null = world_mkey(
		w, &(struct smx_mkey_attr){ .kind = SMX_MKEY_NULL, .access = RIGHTS_ALL });
	struct smx_mkey *all = world_mkey(
		w, &(struct smx_mkey_attr){ .kind = SMX_MKEY_IMPLICIT, .access = RIGHTS_ALL });
	uint8_t mem[64], flat[64];
	struct smx_sge list[] = { { (uintptr_t)mem, 8, 0, false },
				  { 12345, 16, 0, false },
				  { (uintptr_t)mem + 8, 8, 0, false } };
	struct smx_dma_fault fault;
	struct smx_walk walk;
	uint64_t done;
	(void)state;

	list[0].key = list[2].key = all->key;
	list[1].key = null->key;
	memset(mem, 0x33, sizeof(mem));
	memset(flat, 0x44, sizeof(flat));
	list_walk(w, &walk, SMX_DMA_GATHER, list, 3);
	assert_int_equal(smx_dma_read(&walk, flat, 32, &done, &fault), SMX_CHECK_NONE);
	for (int i = 0; i < 64; i++)
		assert_int_equal(flat[i], i >= 32 ? 0x44 : i >= 8 && i < 24 ? 0 : 0x33);
	for (int i = 0; i < 64; i++)
		flat[i] = (uint8_t)i;
	list_walk(w, &walk, SMX_DMA_SCATTER, list, 3);
	assert_int_equal(smx_dma_write(&walk, flat, 32, &done, &fault), SMX_CHECK_NONE);
	assert_int_equal(done, 32);
	for (int i = 0; i < 64; i++)
		assert_int_equal(mem[i], i < 8 ? i : i < 16 ? i + 16 : 0x33);

	smx_walk_range(&walk, &w->dev, &w->pd, QPN, SMX_DMA_REMOTE_READ, all->key, 0, 8);
	assert_int_equal(smx_walk_check(&walk, 8, &fault), 0);
	assert_int_equal(smx_dma_read(&walk, flat, 8, &done, &fault), SMX_CHECK_REMOTE_FAULT);
	smx_walk_range(&walk, &w->dev, &w->pd, QPN, SMX_DMA_REMOTE_READ, all->key, 8, 8);
	assert_int_equal(smx_dma_read(&walk, flat, 8, &done, &fault), SMX_CHECK_REMOTE_FAULT);
	assert_int_equal(done, 0);
	assert_ptr_equal(fault.host, (void *)8);
	smx_walk_range(&walk, &w->dev, &w->pd, QPN, SMX_DMA_REMOTE_READ, all->key, UINT64_MAX - 3,
		       8);
	assert_int_equal(smx_walk_check(&walk, 8, &fault), 3);
	assert_int_equal(fault.check, SMX_CHECK_REMOTE_RANGE);
	world_free(w);
}

/* Masked atomics, defined bit by bit. */
static uint64_t naive(const struct smx_atomic *a, uint64_t old)
{
	uint64_t sum = 0;
	unsigned int carry = 0;

	switch (a->op) {
	case SMX_ATOMIC_CS:
		return old == a->compare ? a->swap_add : old;
	case SMX_ATOMIC_FA:
		return old + a->swap_add;
	case SMX_ATOMIC_MASKED_CS:
		for (int i = 0; i < 64; i++) {
			if (a->compare_mask >> i & 1 && (old >> i & 1) != (a->compare >> i & 1))
				return old;
		}
		for (int i = 0; i < 64; i++)
			sum |= ((a->swap_mask >> i & 1 ? a->swap_add : old) >> i & 1) << i;
		return sum;
	default:
		for (int i = 0; i < 64; i++) {
			unsigned int bits = (unsigned int)(old >> i & 1) +
					    (unsigned int)(a->swap_add >> i & 1) + carry;

			sum |= (uint64_t)(bits & 1) << i;
			carry = a->compare_mask >> i & 1 ? 0 : bits >> 1;
		}
		return sum;
	}
}

static void atomics_follow_their_definition(void **state)
{
	struct world *w = world_new();
	struct smx_prng rng = { 42 };
	uint64_t mem[4] = { 0 };
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL);
	(void)state;

	for (int i = 0; i < 4000; i++) {
		struct smx_atomic a = {
			.op = (enum smx_atomic_op)(i % 4),
			.swap_add = smx_prng_next(&rng),
			.compare = smx_prng_next(&rng),
			.swap_mask = smx_prng_next(&rng) & smx_prng_next(&rng),
			.compare_mask =
				smx_prng_next(&rng) & smx_prng_next(&rng) & smx_prng_next(&rng),
		};
		uint64_t before, old, around[2];
		struct smx_dma_fault fault;
		struct smx_walk walk;

		mem[1] = before = smx_prng_next(&rng);
		if (i & 4)
			a.compare = a.op == SMX_ATOMIC_MASKED_CS
					    ? before ^ (smx_prng_next(&rng) & ~a.compare_mask)
					    : before;
		around[0] = mem[0];
		around[1] = mem[2];
		smx_walk_range(&walk, &w->dev, &w->pd, QPN, SMX_DMA_REMOTE_ATOMIC, mr->key,
			       (uintptr_t)&mem[1], 8);
		assert_int_equal(smx_dma_atomic(&walk, &a, &old, &fault), SMX_CHECK_NONE);
		assert_true(old == before);
		assert_true(mem[1] == naive(&a, before));
		assert_true(mem[0] == around[0] && mem[2] == around[1]);
	}
	world_free(w);
}

static void atomics_refused(void **state)
{
	struct world *w = world_new();
	uint64_t mem[4] = { 1, 2, 3, 4 }, old = 0;
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL);
	struct smx_mkey *shifted =
		world_mkey(w, &(struct smx_mkey_attr){ .kind = SMX_MKEY_DIRECT,
						       .access = RIGHTS_ALL,
						       .length = 24,
						       .host = (uint8_t *)mem + 4 });
	struct smx_mkey *list = world_indirect(w, 4);
	struct smx_mkey *read_only = world_region(w, mem, sizeof(mem), IBV_ACCESS_REMOTE_READ);
	struct smx_atomic a = { .op = SMX_ATOMIC_FA, .swap_add = 10 };
	struct layout l = { .n = 0 };
	struct smx_dma_fault fault;
	struct smx_walk walk;
	struct smx_umr umr;
	(void)state;

	layout_klm(&l, mr->key, (uintptr_t)mem, 8);
	layout_klm(&l, mr->key, (uintptr_t)mem + 16, 4);
	layout_klm(&l, mr->key, (uintptr_t)mem + 20, 8);
	umr = umr_layout(list, &l, 20, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	struct { uint32_t key; uint64_t va; smx_outcome want; int hit; } rows[] = {
		{ mr->key, (uintptr_t)mem + 24, SMX_CHECK_NONE, 3 },
		{ mr->key, (uintptr_t)mem + 32, SMX_CHECK_REMOTE_RANGE, -1 },
		{ mr->key, (uintptr_t)mem + 28, SMX_CHECK_REMOTE_RANGE, -1 },
		{ mr->key, (uintptr_t)mem + 4, SMX_CHECK_REMOTE_ALIGN, -1 },
		{ mr->key, (uintptr_t)mem + 1, SMX_CHECK_REMOTE_ALIGN, -1 },
		{ shifted->key, 8, SMX_CHECK_REMOTE_ALIGN, -1 },	/* aligned there, not in memory */
		{ shifted->key, 4, SMX_CHECK_REMOTE_ALIGN, -1 },	/* the other way round */
		{ list->key, 0, SMX_CHECK_NONE, 0 },
		{ list->key, 8, SMX_CHECK_REMOTE_ALIGN, -1 },	/* 4 and 4 bytes of two runs */
		{ list->key, 16, SMX_CHECK_REMOTE_RANGE, -1 },
		{ read_only->key, (uintptr_t)mem, SMX_CHECK_REMOTE_RIGHT, -1 },
	};
	for (unsigned int i = 0; i < SMX_COUNT(rows); i++) {
		uint64_t want[4] = { 1, 2, 3, 4 };

		memcpy(mem, want, sizeof(mem));
		if (rows[i].hit >= 0)
			want[rows[i].hit] += 10;
		smx_walk_range(&walk, &w->dev, &w->pd, QPN, SMX_DMA_REMOTE_ATOMIC, rows[i].key,
			       rows[i].va, 8);
		assert_string_equal(smx_check_info(smx_dma_atomic(&walk, &a, &old, &fault))->name,
				    smx_check_info(rows[i].want)->name);
		assert_memory_equal(mem, want, sizeof(mem));
		if (rows[i].hit >= 0)
			assert_int_equal(old, want[rows[i].hit] - 10);
	}
	{
		struct holed h = make_hole(w, PROT_READ);

		smx_walk_range(&walk, &w->dev, &w->pd, QPN, SMX_DMA_REMOTE_ATOMIC, h.mr->key,
			       (uintptr_t)h.mem + 3 * h.page + 8, 8);
		a.op = SMX_ATOMIC_CS;	/* one that would not change the value is refused as well */
		assert_int_equal(smx_dma_atomic(&walk, &a, &old, &fault), SMX_CHECK_REMOTE_FAULT);
		assert_int_equal(fault.key, h.mr->key);
		assert_int_equal(fault.va, (uintptr_t)h.mem + 3 * h.page + 8);
		drop_hole(&h);
	}
	world_free(w);
}

/* A copy that is cut anywhere and goes on later gives what one copy gives. */
static void copies_resume_where_they_stopped(void **state)
{
	struct world *w = world_new();
	uint8_t mem[4096], flat[4096], want[4096];
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL);
	uint16_t bytes[2] = { 8, 5 }, stride[2] = { 40, 24 };
	uint64_t va[2] = { (uintptr_t)mem, (uintptr_t)mem + 2048 }, done, total = 13 * 80;
	struct smx_mkey *key = strided(w, mr, 80, 2, bytes, stride, va);
	struct smx_sge parts[] = { { (uintptr_t)flat, 500, 0, true },
				   { (uintptr_t)flat + 500, 13 * 80 - 500, 0, true } };
	struct smx_dma_fault fault;
	struct smx_walk s, d;
	(void)state;

	for (size_t b = 0; b < sizeof(mem); b++)
		mem[b] = (uint8_t)(b * 31 >> 3);
	smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_GATHER, key->key, 0, total);
	assert_int_equal(smx_dma_read(&s, want, total, &done, &fault), SMX_CHECK_NONE);
	for (uint64_t cut = 0; cut <= total; cut++) {
		memset(flat, 0, sizeof(flat));
		smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_GATHER, key->key, 0, total);
		list_walk(w, &d, SMX_DMA_SCATTER, parts, 2);
		assert_int_equal(smx_dma_copy(&d, &s, cut, &done, &fault), SMX_CHECK_NONE);
		assert_int_equal(done, cut);
		assert_int_equal(smx_dma_copy(&d, &s, total, &done, &fault), SMX_CHECK_NONE);
		assert_int_equal(done, total - cut);
		assert_memory_equal(flat, want, total);
	}
	assert_int_equal(w->faults, 0);
	world_free(w);
}

/* One side's blocks end inside the other's, at every batch. */
static void rhythms_that_do_not_fit(void **state)
{
	enum { TURNS = 2000, ROOM = TURNS * 40 };
	static const uint16_t sizes[][2] = { { 8, 12 }, { 8, 5 }, { 7, 16 }, { 1, 3 }, { 16, 24 } };
	static const uint64_t cuts[] = { 4097, 4099, 5001, UINT64_MAX };
	uint8_t *a = malloc(ROOM), *b = malloc(ROOM), *flat = malloc(ROOM), *want = malloc(ROOM);
	struct world *w = world_new();
	struct smx_mkey *mr_a = world_region(w, a, ROOM, RIGHTS_ALL);
	struct smx_mkey *mr_b = world_region(w, b, ROOM, RIGHTS_ALL);
	(void)state;

	for (int i = 0; i < ROOM; i++)
		a[i] = (uint8_t)(i * 11 + (i >> 8));
	for (unsigned int i = 0; i < SMX_COUNT(sizes); i++) {
		uint16_t from_bytes = sizes[i][0], to_bytes = sizes[i][1], stride[1] = { 40 };
		uint64_t va_a = (uintptr_t)a, va_b = (uintptr_t)b, done, left;
		uint64_t total = (uint64_t)TURNS * (from_bytes < to_bytes ? from_bytes : to_bytes);
		struct smx_mkey *from = strided(w, mr_a, TURNS, 1, &from_bytes, stride, &va_a);
		struct smx_mkey *to = strided(w, mr_b, TURNS, 1, &to_bytes, stride, &va_b);
		struct smx_sge parts[SMX_COUNT(cuts)];
		struct smx_dma_fault fault;
		struct smx_walk s, d;

		memset(want, 0xee, ROOM);
		for (uint64_t k = 0; k < total; k++)
			want[k / to_bytes * 40 + k % to_bytes] =
				a[k / from_bytes * 40 + k % from_bytes];
		memset(b, 0xee, ROOM);
		smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_GATHER, from->key, 0, total);
		smx_walk_range(&d, &w->dev, &w->pd, QPN, SMX_DMA_SCATTER, to->key, 0, total);
		assert_int_equal(smx_dma_copy(&d, &s, total, &done, &fault), SMX_CHECK_NONE);
		assert_int_equal(done, total);
		assert_memory_equal(b, want, ROOM);

		/* The same by way of long flat pieces, there and back. */
		left = total;
		for (unsigned int c = 0; c < SMX_COUNT(cuts); c++) {
			uint64_t n = cuts[c] < left ? cuts[c] : left;

			parts[c] = (struct smx_sge){ (uintptr_t)flat + total - left, n, 0, true };
			left -= n;
		}
		memset(flat, 0, ROOM);
		memset(b, 0xee, ROOM);
		smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_GATHER, from->key, 0, total);
		list_walk(w, &d, SMX_DMA_SCATTER, parts, SMX_COUNT(parts));
		assert_int_equal(smx_dma_copy(&d, &s, total, &done, &fault), SMX_CHECK_NONE);
		list_walk(w, &s, SMX_DMA_GATHER, parts, SMX_COUNT(parts));
		smx_walk_range(&d, &w->dev, &w->pd, QPN, SMX_DMA_SCATTER, to->key, 0, total);
		assert_int_equal(smx_dma_copy(&d, &s, total, &done, &fault), SMX_CHECK_NONE);
		assert_memory_equal(b, want, ROOM);
	}
	assert_int_equal(w->faults, 0);
	world_free(w);
	free(a);
	free(b);
	free(flat);
	free(want);
}

/* A batch of one side ends inside the other's turn, where its rest looks like a whole block. */
static void rests_that_look_whole(void **state)
{
	enum { TURNS = 1200 };
	static uint8_t a[TURNS * 40], b[TURNS * 40], want[TURNS * 40], flat[TURNS * 16];
	struct world *w = world_new();
	struct smx_mkey *mr_a = world_region(w, a, sizeof(a), RIGHTS_ALL);
	struct smx_mkey *mr_b = world_region(w, b, sizeof(b), RIGHTS_ALL),
			*two = world_indirect(w, 8), *from;
	uint16_t b16[] = { 16 }, b8[] = { 8, 8 }, stride[] = { 40, 40 };
	uint64_t va[] = { (uintptr_t)a, (uintptr_t)a + 20 }, done;
	struct smx_sge parts[] = { { (uintptr_t)flat, 4104, 0, true },
				   { (uintptr_t)flat + 4104, sizeof(flat) - 4104, 0, true } };
	struct layout l = { .n = 0 };
	struct smx_dma_fault fault;
	struct smx_walk s, d;
	struct smx_umr umr;
	(void)state;

	for (size_t i = 0; i < sizeof(a); i++)
		a[i] = (uint8_t)(i * 13 + (i >> 8));
	/* Blocks of 16 into two of 4, then blocks of 8. */
	layout_block(&l, 2, 1);
	layout_ent(&l, mr_b->key, (uintptr_t)b, 4, 4);
	layout_block(&l, 100, 1);
	layout_ent(&l, mr_b->key, (uintptr_t)b + 8, 8, 40);
	umr = umr_layout(two, &l, 808, RIGHTS_ALL);
	assert_int_equal(world_umr(w, &umr, QPN), SMX_CHECK_NONE);
	from = strided(w, mr_a, 50, 1, b16, stride, va);
	for (size_t k = 0; k < 800; k++)
		want[k < 8 ? k : 8 + (k - 8) / 8 * 40 + k % 8] = a[k / 16 * 40 + k % 16];
	smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_GATHER, from->key, 0, 800);
	smx_walk_range(&d, &w->dev, &w->pd, QPN, SMX_DMA_SCATTER, two->key, 0, 808);
	assert_int_equal(smx_dma_copy(&d, &s, 808, &done, &fault), SMX_CHECK_NONE);
	assert_int_equal(done, 800);
	assert_memory_equal(b, want, sizeof(b));

	/* Turns of 8 and 8 into flat pieces, the first of which ends after an odd number of
	 * them. */
	from = strided(w, mr_a, TURNS, 2, b8, stride, va);
	smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_GATHER, from->key, 0, sizeof(flat));
	list_walk(w, &d, SMX_DMA_SCATTER, parts, 2);
	assert_int_equal(smx_dma_copy(&d, &s, sizeof(flat), &done, &fault), SMX_CHECK_NONE);
	assert_int_equal(done, sizeof(flat));
	for (size_t k = 0; k < sizeof(flat); k++)
		assert_int_equal(flat[k], a[k / 16 * 40 + (k % 16 < 8 ? k % 16 : 12 + k % 16)]);
	world_free(w);
}

/* Where the shorter side ends, the other stands right behind what was copied. */
static void longer_side_stays_where_the_copy_ended(void **state)
{
	static uint8_t mem[4096], flat[2048], want[4096];
	struct world *w = world_new();
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL), *key;
	uint16_t bytes[] = { 8 }, stride[] = { 32 };
	uint64_t va[] = { (uintptr_t)mem }, done;
	struct smx_dma_fault fault;
	struct smx_walk strides, other;
	struct smx_sge part;
	(void)state;

	key = strided(w, mr, 100, 1, bytes, stride, va);
	for (unsigned int as_dst = 0; as_dst < 2; as_dst++) {
		uint64_t at = 0;

		for (size_t i = 0; i < sizeof(flat); i++)
			flat[i] = as_dst ? (uint8_t)(i * 7 + 1) : 0;
		for (size_t i = 0; i < sizeof(mem); i++)
			mem[i] = want[i] = (uint8_t)(i * 3 + (i >> 8));
		smx_walk_range(&strides, &w->dev, &w->pd, QPN,
			       as_dst ? SMX_DMA_SCATTER : SMX_DMA_GATHER, key->key, 0, 800);
		for (uint64_t n = 1; at + n <= 800; at += n, n += 13) {
			part = (struct smx_sge){ (uintptr_t)flat + at, n, 0, true };
			list_walk(w, &other, as_dst ? SMX_DMA_GATHER : SMX_DMA_SCATTER, &part, 1);
			if (as_dst)
				assert_int_equal(
					smx_dma_copy(&strides, &other, 9999, &done, &fault),
					SMX_CHECK_NONE);
			else
				assert_int_equal(
					smx_dma_copy(&other, &strides, 9999, &done, &fault),
					SMX_CHECK_NONE);
			assert_int_equal(done, n);
		}
		assert_true(at > 600);
		for (uint64_t k = 0; k < at; k++) {
			if (as_dst)
				want[k / 8 * 32 + k % 8] = flat[k];
			else
				assert_int_equal(flat[k], mem[k / 8 * 32 + k % 8]);
		}
		assert_memory_equal(mem, want, sizeof(mem));
	}
	world_free(w);
}

static int faults_to_come;
static const void *fault_at;

static bool failing_copy(void *dst, const void *src, size_t n, const void **fault)
{
	*fault = fault_at;
	return faults_to_come-- > 0 ? false : smx_guard_copy(dst, src, n, fault);
}

static bool failing_call(void (*fn)(void *), void *arg, const void **fault)
{
	*fault = fault_at;
	return faults_to_come-- > 0 ? false : smx_guard_call(fn, arg, fault);
}

/* Memory that is back when the batch is tried again: the copy goes on, to its end and no
 * further. */
static void fault_that_does_not_repeat(void **state)
{
	struct world *w = world_new();
	uint8_t mem[1024], flat[512], want[512];
	struct smx_mkey *mr = world_region(w, mem, sizeof(mem), RIGHTS_ALL);
	uint16_t bytes[2] = { 8, 3 }, stride[2] = { 32, 32 };
	uint64_t va[2] = { (uintptr_t)mem, (uintptr_t)mem + 16 }, done;
	(void)state;

	for (size_t b = 0; b < sizeof(mem); b++)
		mem[b] = (uint8_t)(b * 5 + (b >> 8));
	w->dev.attr.env.copy = failing_copy;
	w->dev.attr.env.call = failing_call;
	for (unsigned int i = 0; i < 4 * 3; i++) {
		uint16_t n = (uint16_t)(i % 3);		/* entries; 0: a plain region */
		uint64_t total = n == 0	  ? 300
				 : n == 1 ? 8 * 30
					  : 11 * 30,
			 limit = i / 3 % 2 ? total - 5 : total + 5;
		uint64_t good = limit < total ? limit : total;
		struct smx_mkey *key = n ? strided(w, mr, 30, n, bytes, stride, va) : mr;
		struct smx_sge to = { (uintptr_t)flat, i / 6 ? sizeof(flat) : total, 0, true };
		struct smx_dma_fault fault;
		struct smx_walk s, d;

		for (uint64_t k = 0, turn = n == 1 ? 8 : 11; k < total; k++) {
			uint64_t in = k % turn;

			want[k] = n == 0 ? mem[k] : mem[k / turn * 32 + (in < 8 ? in : in + 8)];
		}
		memset(flat, 0xee, sizeof(flat));
		memset(want + good, 0xee, sizeof(want) - good);
		smx_walk_range(&s, &w->dev, &w->pd, QPN, SMX_DMA_GATHER, key->key,
			       n ? 0 : (uintptr_t)mem, total);
		list_walk(w, &d, SMX_DMA_SCATTER, &to, 1);
		fault_at = mem;
		faults_to_come = 1;
		assert_int_equal(smx_dma_copy(&d, &s, limit, &done, &fault), SMX_CHECK_NONE);
		assert_int_equal(faults_to_come < 1, 1);
		assert_int_equal(done, good);
		assert_memory_equal(flat, want, sizeof(flat));
	}
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strided_copies_equal_a_plain_loop),
		cmocka_unit_test(copies_resume_where_they_stopped),
		cmocka_unit_test(rhythms_that_do_not_fit),
		cmocka_unit_test(rests_that_look_whole),
		cmocka_unit_test(longer_side_stays_where_the_copy_ended),
		cmocka_unit_test(fault_that_does_not_repeat),
		cmocka_unit_test(overlapping_runs_move),
		cmocka_unit_test(overlapping_blocks_move_in_turn),
		cmocka_unit_test(all_is_copied_or_nothing),
		cmocka_unit_test(null_and_implicit_keys),
		cmocka_unit_test(unmapped_memory_is_an_outcome),
		cmocka_unit_test(strided_copy_stops_at_the_missing_block),
		cmocka_unit_test(atomics_follow_their_definition),
		cmocka_unit_test(atomics_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
