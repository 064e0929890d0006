/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the parts of bench/scale share: a device, and many objects of one kind. */
#ifndef SCALE_H
#define SCALE_H

#include <stdint.h>
#include <stdio.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "bench.h"

enum { DEPTH = 32, SIGNAL_EVERY = 32, DC_KEY = 0x1234, CQ_DEPTH = 256, MAX_ROUNDS = 64 };

enum kind { QUEUE_PAIR, MEMORY_KEY, DC_TARGET, COMPLETION_QUEUE, ADDRESS, CONTEXT, KINDS };

struct scale {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_qp *rc, *rc_peer, *dci;
	struct ibv_mr *mr;
	union ibv_gid gid;
	uint8_t *buf;		/* one page: what is written, and where to */
};

/* count objects of a kind. Queue pairs are connected in pairs, an even count of them. */
struct crowd {
	enum kind kind;
	uint32_t count;
	void **obj;
};

/* 0..count-1 in an order that is the same each time; a new array. */
uint32_t *shuffled(uint32_t count);
const char *kind_name(enum kind kind);

void scale_open(struct scale *s);
/* A queue pair of type RC, DCI (dc) or DCT (dct), in RESET, with send queues of depth requests. */
struct ibv_qp *make_qp(struct scale *s, struct ibv_cq *cq, uint32_t depth, int dc, int dct);
void connect_pair(struct scale *s, struct ibv_qp *a, struct ibv_qp *b);

/* depth: of queue pairs' send queues and of completion queues. */
void crowd_make(struct scale *s, struct crowd *c, enum kind kind, uint32_t count, uint32_t depth);
/* In this order; NULL: from the first to the last. */
void crowd_end(struct crowd *c, const uint32_t *order);

/* scale_speed.c */
void speed(struct scale *s, int rounds);
void threads(struct scale *s, int rounds);
/* Carries out so many requests through count objects of a kind, counted by callgrind. */
void count_speed(struct scale *s, enum kind kind, uint32_t count, uint32_t requests);

/* scale_cost.c */
void lifetime(struct scale *s);
void memory(struct scale *s, enum kind kind, uint32_t depth);
void count_lifetime(struct scale *s, enum kind kind, uint32_t count);

#endif
