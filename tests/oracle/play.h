/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A player: makes the calls of random programs and writes down what came of them. The same binary is run on
 * rdma-core's libraries and on ours, with public headers only; what it does depends on the seed alone. */
#ifndef PLAY_H
#define PLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "trace.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- random numbers ---- */

struct prng { uint64_t s; };

static inline uint64_t rnd64(struct prng *p)
{
	uint64_t z = p->s += 0x9e3779b97f4a7c15u;	/* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static inline uint32_t rnd(struct prng *p, uint32_t n)	/* 0..n-1 */
{
	return (uint32_t)(rnd64(p) >> 32) % n;
}

static inline bool one_in(struct prng *p, uint32_t n)
{
	return !rnd(p, n);
}

static inline struct prng prng_at(uint64_t seed, uint64_t where)
{
	struct prng p = { seed * 0x2545f4914f6cdd1du ^ where << 40 };

	rnd64(&p);
	return p;
}

/* ---- one work request ---- */

enum { SGE_MAX = 64, BATCH_MAX = 16, STEPS_MAX = 64, RAW_MAX = 1024, AH_COUNT = 3, MKEY_COUNT = 3 };

enum op {
	OP_SEND, OP_SEND_IMM, OP_SEND_INV, OP_WRITE, OP_WRITE_IMM, OP_READ, OP_CAS, OP_FAA, OP_BIND, OP_LINV,
	OP_LIST, OP_INTERLEAVED, OP_CONFIGURE, OP_RAW, OP_MEMCPY, OP_BAD, OP_COUNT
};

enum data_setter { BY_SGE, BY_SGE_LIST, BY_INLINE, BY_INLINE_LIST };
enum mkey_setter { SET_ACCESS, SET_LIST, SET_INTERLEAVED };

struct wr {
	enum op op;
	enum row row;			/* ROW_NONE: both must answer the same */
	bool faulty;			/* which may be a refusal */
	uint64_t wr_id;
	unsigned int flags;
	uint32_t imm, rkey;
	uint64_t raddr, compare, swap;
	int bad_opcode;
	enum data_setter setter;
	bool no_data, no_addr, addr_first;
	uint32_t n;
	struct ibv_sge sge[SGE_MAX];	/* of inline data too */
	uint32_t ah, dctn, qkey;	/* dctn: or queue pair, or SRQ */
	uint64_t dckey;
	bool stream_given;
	uint16_t stream;
	enum ibv_mw_type mw_type;
	uint32_t mw_rkey, mr_lkey, access;
	uint64_t bind_addr, bind_length;
	uint32_t mkey, mkey_lkey;
	uint32_t repeat, n_setters, declared;
	uint32_t conf_flags;
	bool bare;			/* setters without mlx5dv_wr_mkey_configure */
	uint64_t conf_mask;
	enum mkey_setter setters[4];
	uint32_t set_n[4];
	struct mlx5dv_mr_interleaved il[SGE_MAX];
	uint8_t raw[RAW_MAX];
	uint32_t dst_lkey, src_lkey;
	uint64_t dst, src;
	size_t length;
};

enum step_kind { STEP_WR, STEP_ABORT, STEP_POST_SEND, STEP_COMPLETE, STEP_RESET, STEP_ARM, STEP_RECV, STEP_RECV_DONE };

struct step {
	enum step_kind kind;
	uint32_t index, n;
	struct wr wr[BATCH_MAX];
};

/* ---- the world of one program ---- */

enum transport { T_RC, T_UC, T_UD, T_XRC, T_DCI, T_KINDS };

struct config {
	enum transport kind;
	bool streams, ex, dv, sig_all, wq_sig, prefer_bf, shut_up_bf, scatter, srq;
	bool far;			/* begins where 16 bits of block counter are nearly used up */
	uint64_t send_ops, dv_ops;
	struct ibv_qp_cap cap;		/* asked for */
	uint32_t srq_wr, srq_sge;
	uint32_t cqe_bytes;
	uint32_t steps;
	uint32_t mkey_entries[MKEY_COUNT];
};

struct posted { uint64_t wr_id; uint32_t pi, bb; uint8_t op; bool scatters; };	/* scatters: a CQE may hold its data */

enum { RING_WR_MAX = 1 << 12, CQE_COUNT = 256, ARENA_BYTES = 1 << 20, UAR_SEEN = 512 };

struct world {
	struct config cfg;
	uint64_t seed;
	uint8_t fill;			/* of rings */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq_ex *cq;
	struct mlx5dv_cq dvcq;
	uint32_t cq_ci;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct mlx5dv_srq dvsrq;
	uint32_t srq_count;		/* entries */
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx;
	struct mlx5dv_qp_ex *dvx;
	struct mlx5dv_qp dvqp;
	struct ibv_qp_cap cap;		/* granted */
	struct ibv_ah *ah[AH_COUNT];
	struct mlx5dv_mkey *mkey[MKEY_COUNT];
	uint32_t mkey_lkey[MKEY_COUNT];
	uint32_t wqe_bb;		/* blocks a request was sized for */
	uint32_t pi, tail_pi;		/* block counters */
	uint32_t max_post;
	struct posted out[RING_WR_MAX];	/* outstanding, modulo */
	uint32_t out_head, out_tail;
	bool uar_flip;			/* the halves of the register are in use the other way round */
	bool uar_second;		/* the next doorbell goes to the register's second half */
	bool fence;			/* the next request takes a small fence */
	uint32_t recv_head, recv_tail;	/* receives posted and completed */
	uint32_t recv_slot[RING_WR_MAX];
	uint8_t opaque[12];		/* key and address that memcpy WQEs name; known after the first */
	bool opaque_known;
	uint8_t *arena;			/* at the same address everywhere */
};

/* play_gen.c */
void gen_config(struct config *cfg, uint64_t seed);
void gen_step(struct world *w, struct step *s, uint32_t index);
const char *op_name(enum op op);

/* play_world.c */
void world_open(struct world *w, uint64_t seed, uint8_t fill);
void world_close(struct world *w);
void world_new_qp(struct world *w);
void world_renew(struct world *w);	/* the queue pair, as new */
void to_rts(struct world *w);
_Noreturn void die(const char *what);

/* play_post.c */
struct outcome { int rc, bad; };
struct outcome post_step(struct world *w, const struct step *s);

/* play_cq.c */
void complete_some(struct world *w, struct prng *p);
/* RETURN whether there is room now. */
bool complete_until_room(struct world *w, struct prng *p, uint32_t requests, uint32_t blocks);
void arm_cq(struct world *w, struct prng *p);
void go_far(struct world *w);		/* posts and completes up to shortly before block 65536 */
void random_cqe(struct prng *p, struct mlx5_cqe64 *cqe);
void make_error(struct prng *p, struct mlx5_cqe64 *cqe, uint8_t opcode);
void write_cqe(struct world *w, const struct mlx5_cqe64 *cqe, const uint8_t data[64]);
void poll_cq(struct world *w, struct prng *p, int n);
/* Bytes that a scatter list of up to max segments names, as far as they are in the arena. */
void note_scattered(const struct world *w, const struct mlx5_wqe_data_seg *seg, uint32_t max);

/* play.c: a segment of the send ring, counted in 16 bytes from a block on */
void *sq_seg(const struct world *w, uint32_t pi, uint32_t ds);

/* play_recv.c */
void recv_step(struct world *w, struct prng *p);
void recv_done_step(struct world *w, struct prng *p);

/* play.c */
extern bool ours;
void emit(enum tag tag, uint32_t a, uint32_t b, const void *blob, size_t n);

#endif
