/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Two processes that use each other for a long time: what they share, and what each knows of it.
 *
 * Connection i has an end in each process. Each end writes, reads and changes the slice of memory
 * that the other end has for it, and nobody else does: so it knows every byte of it, and looks at
 * it through the kernel (process_vm_readv). Messages are functions of (seed, connection, sender,
 * epoch, number): the receiver makes them again and compares. A connection that failed is brought
 * back by both ends, into its next epoch. */
#ifndef SOAK_H
#define SOAK_H

#include <sys/syscall.h>

#include "t.h"

enum kind { RC, UC, XRC, UD, DC, KINDS };
/* Of a connection that both ends recover; the states of an epoch are in order. */
enum phase { MADE, READY, RUN, BREAK, DRAINED, PHASES };

enum {
	CONNS_MAX = 2048,
	WINDOW = 12,
	RECVS = 8,
	LOG_MAX = 48,
	WORDS_BYTES = 256, /* of a slice, at its start: for atomics alone */
	SRQ_RECVS = 256,
	SHARED_RECV_BYTES = 12 << 10,
	GRH_BYTES = 40,
	CQS = 4,
	VICTIMS = 4,
	VICTIM_BYTES = 256 << 10,
	JUNK_BYTES = 2 << 20,
	GUARD_BYTES = 32,
	STREAMS = 4,
	ARENAS = 2,
	HOLE_BYTES = 64 << 10,
	SHARED_ID = 0x7fff, /* as the connection of a shared queue's receives */
	KEY = 0x50a4,
};
#define STALL_MS 90000

/* ---- shared by both processes; each word is written by one ---- */

struct end {
	uint32_t state; /* epoch * PHASES + phase */
	uint32_t qpn, recv_qpn, psn;
	uint32_t loose; /* the epoch in which something wrong was done on purpose */
	uint32_t key_epoch, key, key_gen; /* of the UMR key on the slice: usable in that epoch */
};

struct victim_face {
	uint32_t gen, rkey;
	uint64_t va;
};

struct side {
	int32_t pid;
	uint32_t ready, quiet;
	uint64_t arena[ARENAS], junk, hole;
	uint32_t rkey[ARENAS], junk_rkey, hole_rkey, readonly_rkey;
	uint32_t srqn, dctn;
	struct victim_face victim[VICTIMS];
	uint64_t completions, failures, recoveries, messages, lost, checked_bytes;
	uint64_t status[32];
};

struct common {
	uint64_t seed;
	uint32_t conns;
	bool calm, no_dc; /* no errors on purpose; RC where DC would be */
	volatile uint32_t stop, failed;
	char why[900];
	struct side side[2];
	struct end end[CONNS_MAX][2];
};

/* ---- one process's own ---- */

enum what {
	W_WRITE,
	W_WRITE_IMM,
	W_READ,
	W_FETCH_ADD,
	W_CMP_SWAP,
	W_SEND,
	W_MEMCPY,
	W_UMR,
	W_SYNC,
	W_JUNK,
	WHATS
};

#define OK(status) (1u << (status))

struct op {
	uint64_t wr_id, seed;
	enum what what;
	const char *name; /* what was done wrong on purpose, or NULL */
	bool signaled, effect, via_key, layout, receives;
	uint32_t
		allow; /* statuses that it may complete with, besides what the connection suffers */
	uint32_t slot, at, len;
	uint64_t compare, swap; /* or the addend */
};

struct group {
	struct t_qp q;
	bool streams, err;
	struct conn *member[STREAMS];
	int members;
};

struct conn {
	uint32_t id;
	enum kind kind;
	struct t_qp q;
	struct ibv_qp *rq;   /* XRC: the receiving one */
	struct group *group; /* DC */
	int stream;
	uint32_t size, recv_bytes;
	int arena;   /* the slices' */
	uint64_t at; /* their place in it */
	uint8_t *local, *recv, *slice, *shadow, *base;
	uint32_t epoch;
	enum phase phase;
	bool broken, quick, syncing;
	bool send_failed;  /* everything behind it fails too */
	uint8_t bad_recvs; /* to be posted: wrong ones */
	uint32_t send_seq, recv_seq, recv_epoch, posted;
	struct op ring[WINDOW];
	uint32_t head, tail;
	struct op failed[LOG_MAX]; /* of UC: all since the slice was last looked at */
	uint32_t failed_count;
	uint64_t since,
		hold_until; /* when it last got on; broken: until when that is kept to itself */
	uint32_t recv_out, recv_head, recv_tail;
	uint32_t recv_wr[RECVS];
	uint8_t recv_bad[RECVS];
	struct mlx5dv_mkey *mkey;
	bool layout;       /* of our key */
	uint32_t used_gen; /* the peer's key was invalidated by us in this generation */
	bool umr_wanted;
};

struct victim {
	uint8_t *p;
	struct ibv_mr *mr;
	uint8_t *grave;
	uint64_t grave_until;
};

struct world {
	struct common *common;
	int me;
	struct side *mine, *theirs;
	uint64_t rng;
	struct t_env *env;
	struct ibv_cq *scq[CQS], *rcq[CQS];
	struct ibv_comp_channel *channel;
	struct t_buf arena[ARENAS], local, recv, shared_recv, junk;
	struct ibv_mr *readonly, *hole;
	struct ibv_srq *xrc_srq, *dc_srq;
	struct ibv_xrcd *xrcd;
	struct t_qp dct;
	struct ibv_ah *ah;
	struct conn conn[CONNS_MAX];
	struct group group[CONNS_MAX / STREAMS + 1];
	int groups;
	bool srq_busy[2][SRQ_RECVS];
	struct victim victim[VICTIMS];
	uint8_t *scratch, *scratch2;
	bool can_look; /* into the other's memory */
};

extern struct world w;

static inline struct end *my_end(const struct conn *c)
{
	return &w.common->end[c->id][w.me];
}

static inline struct end *their_end(const struct conn *c)
{
	return &w.common->end[c->id][!w.me];
}

static inline uint32_t get(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static inline void put(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static inline uint32_t their_state(const struct conn *c)
{
	return get(&their_end(c)->state);
}

static inline uint32_t state_of(uint32_t epoch, enum phase phase)
{
	return epoch * PHASES + phase;
}

static inline uint32_t rnd(uint32_t n)
{
	w.rng ^= w.rng << 13;
	w.rng ^= w.rng >> 7;
	w.rng ^= w.rng << 17;
	return n ? (uint32_t)((w.rng >> 16) % n) : 0;
}

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* n bytes that only this seed makes. */
static inline void pattern(uint8_t *p, uint32_t n, uint64_t seed)
{
	uint32_t i;

	for (i = 0; i + 8 <= n; i += 8) {
		uint64_t word = (seed += 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;

		word ^= word >> 32;
		memcpy(p + i, &word, 8);
	}
	for (; i < n; i++)
		p[i] = (uint8_t)(seed + i * 131);
}

/* The first wrong thing of both processes is kept; this one ends. */
__attribute__((format(printf, 1, 2), noreturn)) void wrong(const char *fmt, ...);
const char *conn_name(const struct conn *c);

/* soak_side.c */
void side_run(struct common *common, int me);

/* soak_conn.c */
void conns_make(void);
void conns_free(void);
void conn_progress(struct conn *c);
bool conn_is_quiet(const struct conn *c);
void conn_break(struct conn *c, bool reset);
void conn_post_recvs(struct conn *c);
void srq_post(int which, uint32_t slot);

/* soak_post.c */
void conn_step(struct conn *c);
void conn_sync(struct conn *c);
void conn_umr(struct conn *c);
void victims_make(void);
void victims_step(void);
void victims_free(void);

/* soak_done.c */
struct message {
	uint32_t len, imm;
	bool has_imm, is_write;
	uint64_t seed;
};
struct message message_of(const struct conn *c, int sender, uint32_t epoch, uint32_t seq);
int poll_all(void);
void op_apply(const struct conn *c, const struct op *o, uint8_t *slice);
uint32_t slice_at(const struct conn *c, const struct op *o, uint32_t i);
void conn_look(struct conn *c); /* nothing is under way: is the peer's slice what it should be? */
bool conn_look_loss(struct conn *c,
		    bool wait); /* UC: RETURN whether all has arrived, or was found lost */

#endif
