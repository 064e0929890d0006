/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Layouts of indirect memory keys and an oracle for them: a map from each byte of a key's zero-based
 * space to the byte of host memory that it names, made by walking the layout as its man page says. */
#ifndef UMR_H
#define UMR_H

#include "t.h"

enum { UMR_ENTRIES_MAX = 40 };

/* Byte i of the key's space is *byte[i]. */
struct umr_map { uint8_t **byte; size_t len; };

struct umr_layout {
	bool interleaved;
	uint32_t repeat;
	uint16_t n;
	struct mlx5dv_mr_interleaved il[UMR_ENTRIES_MAX];
	struct ibv_sge list[UMR_ENTRIES_MAX];
	const struct umr_map *under[UMR_ENTRIES_MAX];	/* entry i lies in another indirect key */
};

static inline uint8_t *umr_byte(const struct umr_layout *l, int ent, uint64_t addr)
{
	return l->under[ent] ? l->under[ent]->byte[addr] : (uint8_t *)(uintptr_t)addr;
}

static inline struct umr_map umr_map(const struct umr_layout *l)
{
	struct umr_map m = { 0 };
	size_t at = 0;

	for (int i = 0; i < l->n; i++)
		m.len += l->interleaved ? (size_t)l->il[i].bytes_count * l->repeat : l->list[i].length;
	m.byte = calloc(m.len + 1, sizeof(*m.byte));
	for (uint32_t turn = 0; turn < (l->interleaved ? l->repeat : 1); turn++)
		for (int i = 0; i < l->n; i++) {
			const struct mlx5dv_mr_interleaved *e = &l->il[i];
			uint64_t addr = l->interleaved
						? e->addr + (uint64_t)turn * (e->bytes_count + e->bytes_skip)
						: l->list[i].addr;
			size_t len = l->interleaved ? e->bytes_count : l->list[i].length;

			for (size_t b = 0; b < len; b++)
				m.byte[at++] = umr_byte(l, i, addr + b);
		}
	return m;
}

static inline struct mlx5dv_mkey *umr_mkey(struct ibv_pd *pd, uint16_t entries, uint32_t more_flags)
{
	struct mlx5dv_mkey_init_attr init = { .pd = pd, .max_entries = entries,
		.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | more_flags };
	struct mlx5dv_mkey *mkey = mlx5dv_create_mkey(&init);

	MUST(mkey, "mlx5dv_create_mkey");
	return mkey;
}

/* Posts the registration. RETURN ibv_wr_complete()'s. */
static inline int umr_post(struct t_qp *q, uint64_t wr_id, struct mlx5dv_mkey *mkey, uint32_t access,
			   struct umr_layout *l)
{
	ibv_wr_start(q->ex);
	q->ex->wr_id = wr_id;
	q->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	if (l->interleaved)
		mlx5dv_wr_mr_interleaved(q->dv, mkey, access, l->repeat, l->n, l->il);
	else
		mlx5dv_wr_mr_list(q->dv, mkey, access, l->n, l->list);
	return ibv_wr_complete(q->ex);
}

static inline void umr_register(struct t_qp *q, struct mlx5dv_mkey *mkey, uint32_t access, struct umr_layout *l)
{
	EXPECT_EQ(umr_post(q, 0x1234, mkey, access, l), 0, "ibv_wr_complete of the UMR");
	T_DONE(q->scq, 0x1234, MLX5DV_WC_UMR);
}

static inline void umr_free(struct mlx5dv_mkey *mkey)
{
	EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0, "mlx5dv_destroy_mkey");
}

/* By ibv_post_send (old) or the builder; the key is free afterwards. */
static inline void umr_invalidate(struct t_qp *q, uint32_t key, bool old)
{
	struct t_op o = { .op = IBV_WR_LOCAL_INV, .wr_id = 0x4321, .flags = IBV_SEND_SIGNALED, .inv = key };

	EXPECT_EQ(old ? t_post_old(q, &o) : t_post(q, &o), 0, "posting LOCAL_INV");
	T_DONE(q->scq, 0x4321, IBV_WC_LOCAL_INV);
}

/* Which way data goes through the key: it is the local or the remote side of an operation of queue pair a. */
enum umr_way {
	UMR_REMOTE_READ, UMR_REMOTE_WRITE, UMR_GATHER_WRITE, UMR_GATHER_SEND, UMR_SCATTER_READ,
	UMR_RECV, UMR_WAYS
};

static inline const char *umr_way_name(enum umr_way way)
{
	static const char *const names[] = { "remote READ", "remote WRITE", "gather of a WRITE", "gather of a SEND",
					     "scatter of a READ", "scatter of a receive" };

	return names[way];
}

static inline bool umr_reads(enum umr_way way)
{
	return way == UMR_REMOTE_READ || way == UMR_GATHER_WRITE || way == UMR_GATHER_SEND;
}

/* One transfer of len bytes at off of the key, which belongs to p->b's side for remote ways and to p->a's
 * for local ones; flat is plain memory. */
static inline void umr_transfer(struct t_pair *p, enum umr_way way, uint32_t key, uint64_t off,
				struct t_buf *flat, uint32_t len)
{
	struct ibv_sge through = { .addr = off, .length = len, .lkey = key }, plain = t_sge(flat, 0, len);
	struct t_op o;

	switch (way) {
	case UMR_REMOTE_READ: o = t_rdma(IBV_WR_RDMA_READ, 1, plain, key, off); break;
	case UMR_REMOTE_WRITE: o = t_rdma(IBV_WR_RDMA_WRITE, 1, plain, key, off); break;
	case UMR_GATHER_WRITE: o = t_rdma(IBV_WR_RDMA_WRITE, 1, through, flat->key, flat->va); break;
	case UMR_SCATTER_READ: o = t_rdma(IBV_WR_RDMA_READ, 1, through, flat->key, flat->va); break;
	case UMR_GATHER_SEND:
		t_recv(&p->b, 2, plain);
		o = t_op(IBV_WR_SEND, 1, through);
		break;
	default:
		t_recv(&p->b, 2, through);
		o = t_op(IBV_WR_SEND, 1, plain);
	}
	EXPECT_EQ(t_post(&p->a, &o), 0, "ibv_wr_complete");
	T_DONE(p->a.scq, 1, -1);
	if (way == UMR_GATHER_SEND || way == UMR_RECV)
		EXPECT_EQ(T_DONE(p->b.rcq, 2, IBV_WC_RECV).wc.byte_len, len, "byte_len");
}

/* Does one transfer move exactly the bytes that the map names? arena is the memory under the layout. */
static inline void umr_check(struct t_pair *p, enum umr_way way, uint32_t key, const struct umr_map *m,
			     uint64_t off, uint32_t len, struct t_buf *arena, struct t_buf *flat)
{
	uint8_t *shadow = malloc(arena->len);
	size_t wrong = 0;

	t_fill(arena->p, arena->len, (uint32_t)off + way);
	memset(flat->p, 0xee, flat->len);
	if (!umr_reads(way))
		t_fill(flat->p, len, 99 + way);
	memcpy(shadow, arena->p, arena->len);
	umr_transfer(p, way, key, off, flat, len);
	if (umr_reads(way)) {
		for (uint32_t i = 0; i < len; i++)
			wrong += flat->p[i] != *m->byte[off + i];
		EXPECT(!wrong, "%s of %u bytes at %" PRIu64 ": %zu bytes wrong", umr_way_name(way), len, off, wrong);
		EXPECT(t_all(flat->p + len, flat->len - len, 0xee), "%s wrote behind the message", umr_way_name(way));
	} else {
		for (uint32_t i = 0; i < len; i++)
			shadow[m->byte[off + i] - arena->p] = flat->p[i];
	}
	for (size_t i = 0; i < arena->len; i++)
		wrong += shadow[i] != arena->p[i];
	EXPECT(!wrong, "%s of %u bytes at %" PRIu64 ": %zu bytes of memory wrong", umr_way_name(way), len, off, wrong);
	free(shadow);
}

/* Every way, whole and in parts that begin and end inside blocks. */
static inline void umr_check_all(struct t_pair *p, uint32_t key, const struct umr_map *m, struct t_buf *arena,
				 struct t_buf *flat)
{
	const uint64_t n = m->len;
	const struct { uint64_t off, len; } part[] = {
		{ 0, n }, { 0, 1 }, { n - 1, 1 }, { n > 2, n > 2 ? n - 2 : 1 }, { n / 3, n / 2 ? n / 2 : 1 },
		{ n / 2, n - n / 2 }, { n > 12 ? 3 : 0, n > 12 ? 7 : 1 },
	};

	for (int way = 0; way < UMR_WAYS; way++)
		for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++)
			if (t_state.failures == 0)
				umr_check(p, way, key, m, part[i].off, part[i].len, arena, flat);
}

#endif
