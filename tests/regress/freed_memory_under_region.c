/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What broke: the device moved bytes of a region by libc's memmove and by code that a sanitizer had instrumented, so
 * that AddressSanitizer ended a program whose region lay over memory that it had freed. A device reads and writes
 * such memory without anybody noticing.
 * Method: every kind of copy goes to or from freed memory. Without AddressSanitizer, which keeps it from being used
 * again, it is only read. */
#include "t.h"
#include "umr.h"

#if defined(__SANITIZE_ADDRESS__)
#define FREED_MEMORY_IS_KEPT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FREED_MEMORY_IS_KEPT 1
#endif
#endif

enum { LEN = 32768 };

static struct t_env *env;
static struct t_pair p;
static struct t_buf flat, gone;
static void *neighbour;		/* keeps what was freed from going back to the system */

static void set_up(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS };

	(void)arg;
	p = t_pair(env, &s);
	flat = t_buf(env, LEN, T_ALL);
	gone.p = malloc(LEN);
	neighbour = malloc(64);
	MUST(gone.p && neighbour, "malloc");
	gone.len = LEN;
	gone.va = (uintptr_t)gone.p;
	gone.mr = ibv_reg_mr(env->pd, gone.p, LEN, T_ALL);
	MUST(gone.mr, "ibv_reg_mr");
	gone.key = gone.mr->lkey;
	free(gone.p);
}

static void plain_copies(const void *arg)
{
	static const uint32_t lengths[] = { 1, 8, 64, 100, 512, 513, 4096, 16000 };

	(void)arg;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		umr_transfer(&p, UMR_REMOTE_READ, gone.key, gone.va + 16, &flat, lengths[i]);
		umr_transfer(&p, UMR_GATHER_WRITE, gone.key, gone.va + 16, &flat, lengths[i]);
#ifdef FREED_MEMORY_IS_KEPT
		umr_transfer(&p, UMR_REMOTE_WRITE, gone.key, gone.va + 16, &flat, lengths[i]);
		umr_transfer(&p, UMR_RECV, gone.key, gone.va + 16, &flat, lengths[i]);
#endif
	}
}

/* Blocks of each size that is copied in a way of its own, alone and beside another. */
static void patterns(const void *arg)
{
	static const uint16_t blocks[] = { 1, 3, 4, 8, 13, 16, 30, 64, 100, 600 };

	(void)arg;
	for (size_t i = 0; i < 2 * sizeof(blocks) / sizeof(blocks[0]); i++) {
		struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
		uint16_t n = blocks[i / 2];
		struct umr_layout l = { .interleaved = true, .repeat = 10, .n = 1 + i % 2, .il = {
			{ gone.va + 64, n, 40, gone.key }, { gone.va + 16384, 5, 40, gone.key } } };
		uint32_t len = 10 * (n + (i % 2 ? 5 : 0));

		umr_register(&p.a, mkey, T_ALL, &l);
		umr_transfer(&p, UMR_REMOTE_READ, mkey->rkey, 0, &flat, len);
		umr_transfer(&p, UMR_GATHER_SEND, mkey->rkey, 2, &flat, len - 3);
#ifdef FREED_MEMORY_IS_KEPT
		umr_transfer(&p, UMR_REMOTE_WRITE, mkey->rkey, 0, &flat, len);
		umr_transfer(&p, UMR_SCATTER_READ, mkey->rkey, 2, &flat, len - 3);
#endif
		umr_free(mkey);
	}
}

/* A compare that fails stores what it found. */
static void atomics(const void *arg)
{
	struct t_op o = t_rdma(IBV_WR_ATOMIC_CMP_AND_SWP, 1, t_sge(&flat, 0, 8), gone.key, gone.va + 1024);

	(void)arg;
	o.compare_add = 0x1122334455667788;
	EXPECT_EQ(t_post(&p.a, &o), 0, "posting");
	T_DONE(p.a.scq, 1, IBV_WC_COMP_SWAP);
}

static void tear_down(const void *arg)
{
	(void)arg;
	EXPECT_EQ(ibv_dereg_mr(gone.mr), 0, "ibv_dereg_mr");
	free(neighbour);
	t_buf_free(&flat);
	t_pair_free(&p);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("plain copies", plain_copies, NULL);
	t_case("patterns", patterns, NULL);
	t_case("atomics", atomics, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
