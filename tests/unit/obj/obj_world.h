/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A device with empty tables, as the tests of obj need it: a clock that the test moves, events that
 * are counted, and refusals that can be read. */
#ifndef SMX_TESTS_OBJ_WORLD_H
#define SMX_TESTS_OBJ_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/guard.h"
#include "obj/mkey.h"

struct world {
	struct smx_dev dev;
	struct smx_pd pd, other_pd;
	struct smx_refusal_log log;
	uint64_t now_ns;
	unsigned int clock_reads, cq_events, async_events;
	unsigned int faults;	/* guarded accesses that failed */
	void *cq_cookie, *async_cookie;
	enum ibv_event_type async_type;
};

static inline uint64_t world_now(void *arg)
{
	struct world *w = arg;

	w->clock_reads++;
	return w->now_ns;
}

static inline void world_cq_event(void *cookie, void *arg)
{
	struct world *w = arg;

	w->cq_events++;
	w->cq_cookie = cookie;
}

static inline void world_async_event(enum ibv_event_type type, void *cookie, void *arg)
{
	struct world *w = arg;

	w->async_events++;
	w->async_type = type;
	w->async_cookie = cookie;
}

/* The guard's callbacks have no argument of their own; a test has one world at a time. */
static struct world *world_of_guard;

static inline bool world_copy(void *dst, const void *src, size_t n, const void **fault)
{
	bool good = smx_guard_copy(dst, src, n, fault);

	world_of_guard->faults += !good;
	return good;
}

static inline bool world_call(void (*fn)(void *), void *arg, const void **fault)
{
	bool good = smx_guard_call(fn, arg, fault);

	world_of_guard->faults += !good;
	return good;
}

static inline struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	smx_guard_install();
	world_of_guard = w;
	w->dev.attr.env = (struct smx_dev_env){
		.now = world_now,
		.cq_event = world_cq_event,
		.async_event = world_async_event,
		.copy = world_copy,
		.call = world_call,
		.refusals = &w->log,
		.arg = w,
	};
	w->dev.attr.key_seed = 0x37;
	w->pd.pdn = 7;
	w->other_pd.pdn = 8;
	assert_int_equal(smx_idmap_init(&w->dev.mkeys, 16, 1 << 20), 0);
	assert_int_equal(smx_idmap_init(&w->dev.cqs, 1, 1 << 10), 0);
	assert_int_equal(smx_idmap_init(&w->dev.srqs, 1, 1 << 10), 0);
	return w;
}

static inline void world_drop_mkey(void *obj, void *arg)
{
	assert_int_equal(smx_mkey_destroy(arg, obj), 0);
}

static inline void world_free(struct world *w)
{
	smx_idmap_each(&w->dev.mkeys, world_drop_mkey, &w->dev);
	assert_int_equal(w->pd.users, 0);
	assert_int_equal(w->other_pd.users, 0);
	smx_idmap_fini(&w->dev.mkeys);
	smx_idmap_fini(&w->dev.cqs);
	smx_idmap_fini(&w->dev.srqs);
	free(w);
}

/* The newest refusal must be check and its sentence must hold each of the texts. */
static inline void world_refused(struct world *w, enum smx_check check, const char *part)
{
	struct smx_refusal r;

	assert_int_equal(smx_refusal_get(&w->log, 0, &r), 1);
	assert_string_equal(smx_check_info(r.check)->name, smx_check_info(check)->name);
	if (part && !strstr(r.text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, r.text);
}

static inline struct smx_mkey *world_mkey(struct world *w, const struct smx_mkey_attr *attr)
{
	struct smx_mkey_attr full = *attr;
	struct smx_mkey *mkey;

	if (!full.pd)
		full.pd = &w->pd;
	assert_int_equal(smx_mkey_create(&w->dev, &full, &mkey), 0);
	return mkey;
}

static inline struct smx_mkey *world_region(struct world *w, void *host, uint64_t length,
					    uint32_t access)
{
	return world_mkey(w, &(struct smx_mkey_attr){
				     .kind = SMX_MKEY_DIRECT,
				     .access = access,
				     .start = (uintptr_t)host,
				     .length = length,
				     .host = host,
			     });
}

static inline struct smx_mkey *world_indirect(struct world *w, uint32_t max_entries)
{
	return world_mkey(w, &(struct smx_mkey_attr){ .kind = SMX_MKEY_INDIRECT,
						      .max_entries = max_entries });
}

/* A layout being put together, and the UMR that writes it. */
struct layout {
	struct smx_wqe_klm e[256];
	uint32_t n;
	uint64_t bytes;
};

static inline void layout_klm(struct layout *l, uint32_t key, uint64_t va, uint32_t bytes)
{
	l->e[l->n++] = (struct smx_wqe_klm){ to_be32(bytes), to_be32(key), to_be64(va) };
	l->bytes += bytes;
}

static inline void layout_block(struct layout *l, uint32_t repeat, uint16_t num_ent)
{
	struct smx_wqe_repeat_block b = {
		.op = to_be32(SMX_REPEAT_OP),
		.repeat_count = to_be32(repeat),
		.num_ent = to_be16(num_ent),
	};

	memcpy(&l->e[l->n++], &b, sizeof(b));
}

/* bytes of the block are not added up: the caller knows repeat. */
static inline void layout_ent(struct layout *l, uint32_t key, uint64_t va, uint16_t bytes,
			      uint16_t stride)
{
	struct smx_wqe_repeat_ent r = { to_be16(stride), to_be16(bytes), to_be32(key),
					to_be64(va) };

	memcpy(&l->e[l->n++], &r, sizeof(r));
}

enum {
	RIGHTS_ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_ATOMIC
};

static inline uint8_t mkc_access(uint32_t access)
{
	return (access & IBV_ACCESS_LOCAL_WRITE ? SMX_MKC_LOCAL_WRITE : 0) |
	       (access & IBV_ACCESS_REMOTE_READ ? SMX_MKC_REMOTE_READ : 0) |
	       (access & IBV_ACCESS_REMOTE_WRITE ? SMX_MKC_REMOTE_WRITE : 0) |
	       (access & IBV_ACCESS_REMOTE_ATOMIC ? SMX_MKC_ATOMIC : 0);
}

#define UMR_MASK_RIGHTS                                                                            \
	(SMX_UMR_MASK_LOCAL_WRITE | SMX_UMR_MASK_REMOTE_READ | SMX_UMR_MASK_REMOTE_WRITE |         \
	 SMX_UMR_MASK_ATOMIC)

/* As mlx5dv_wr_mr_list and _interleaved write it. */
static inline struct smx_umr umr_layout(const struct smx_mkey *mkey, const struct layout *l,
					uint64_t length, uint32_t access)
{
	uint32_t octowords = (l->n + 3) & ~3u;

	return (struct smx_umr){
		.key = mkey->key,
		.ctrl = {
			.flags = SMX_UMR_INLINE,
			.klm_octowords = to_be16((uint16_t)octowords),
			.mkey_mask = to_be64(SMX_UMR_MASK_FREE | SMX_UMR_MASK_MKEY | SMX_UMR_MASK_LEN |
					     UMR_MASK_RIGHTS),
		},
		.ctx = {
			.access = mkc_access(access),
			.qpn_mkey = to_be32(0xffffff00 | (mkey->key & 0xff)),
			.len = to_be64(length),
		},
		.entry = l->e,
		.entry_count = octowords,
	};
}

static inline smx_outcome world_umr(struct world *w, const struct smx_umr *umr, uint32_t qpn)
{
	struct smx_where where = { .qpn = qpn, .opcode = SMX_OP_UMR };

	return smx_mkey_umr(&w->dev, umr, &w->pd, &where);
}

#endif
