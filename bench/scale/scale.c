/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What one request, and one object, costs among many.
 *
 * usage: scale speed|threads|lifetime [ROUNDS]
 *        scale memory KIND DEPTH           of the process, and of each of many objects
 *        scale requests KIND COUNT REQUESTS, scale objects KIND COUNT      for callgrind with --collect-atstart=no
 * Prints lines of fields with tabs between; bench/run.py makes the tables. */
#include "scale.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

uint32_t *shuffled(uint32_t count)
{
	uint32_t *order = malloc(count * sizeof(*order));
	uint64_t x = 88172645463325252u;

	if (!order)
		die("malloc");
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at;

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		at = (uint32_t)(x % (i + 1));
		order[i] = order[at];
		order[at] = i;
	}
	return order;
}

const char *kind_name(enum kind kind)
{
	static const char *const name[KINDS] = {
		[QUEUE_PAIR] = "queue pair", [MEMORY_KEY] = "memory key", [DC_TARGET] = "DC target",
		[COMPLETION_QUEUE] = "completion queue", [ADDRESS] = "address handle", [CONTEXT] = "context",
	};

	return name[kind];
}

/* ------------------------------------------------------------------ objects */

struct ibv_qp *make_qp(struct scale *s, struct ibv_cq *cq, uint32_t depth, int dc, int dct)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = dc ? IBV_QPT_DRIVER : IBV_QPT_RC, .pd = s->pd, .send_cq = cq, .recv_cq = cq,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct mlx5dv_qp_init_attr dv = { 0 };
	struct ibv_qp *qp;

	if (dc) {
		dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv.dc_init_attr.dc_type = dct ? MLX5DV_DCTYPE_DCT : MLX5DV_DCTYPE_DCI;
		dv.dc_init_attr.dct_access_key = DC_KEY;
	}
	attr.srq = s->srq;
	if (!dct) {
		attr.cap = (struct ibv_qp_cap){ .max_send_wr = depth, .max_send_sge = 1 };
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	}
	qp = mlx5dv_create_qp(s->ctx, &attr, &dv);
	if (!qp)
		die("mlx5dv_create_qp");
	return qp;
}

void connect_pair(struct scale *s, struct ibv_qp *a, struct ibv_qp *b)
{
	to_rts(a, b->qp_num, s->gid, 0, 0);
	to_rts(b, a->qp_num, s->gid, 0, 0);
}

void scale_open(struct scale *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };

	if (!list || !list[0])
		die("no device");
	s->ctx = ibv_open_device(list[0]);
	if (!s->ctx || !(s->pd = ibv_alloc_pd(s->ctx)) || !(s->cq = ibv_create_cq(s->ctx, CQ_DEPTH, NULL, NULL, 0)) ||
	    !(s->srq = ibv_create_srq(s->pd, &srq)) || ibv_query_gid(s->ctx, 1, 0, &s->gid))
		die("open");
	ibv_free_device_list(list);
	ah.grh.dgid = s->gid;
	s->buf = aligned_alloc(4096, 4096);
	s->ah = ibv_create_ah(s->pd, &ah);
	if (!s->buf || !s->ah)
		die("memory, address handle");
	memset(s->buf, 1, 4096);
	s->mr = ibv_reg_mr(s->pd, s->buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!s->mr)
		die("ibv_reg_mr");
	s->rc = make_qp(s, s->cq, DEPTH, 0, 0);
	s->rc_peer = make_qp(s, s->cq, DEPTH, 0, 0);
	connect_pair(s, s->rc, s->rc_peer);
	s->dci = make_qp(s, s->cq, DEPTH, 1, 0);
	to_rts(s->dci, 0, s->gid, 1, 0);
}

static void *make_context(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	ibv_free_device_list(list);
	return ctx;
}

static void *make_one(struct scale *s, enum kind kind, uint32_t depth)
{
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .grh = { .dgid = s->gid, .hop_limit = 64 } };
	struct ibv_qp *dct;

	switch (kind) {
	case QUEUE_PAIR:
		return make_qp(s, s->cq, depth, 0, 0);
	case MEMORY_KEY:
		return ibv_reg_mr(s->pd, s->buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	case DC_TARGET:
		dct = make_qp(s, s->cq, 0, 1, 1);
		to_rts(dct, 0, s->gid, 0, 1);
		return dct;
	case COMPLETION_QUEUE:
		return ibv_create_cq(s->ctx, (int)depth - 1, NULL, NULL, 0);
	case ADDRESS:
		return ibv_create_ah(s->pd, &ah);
	default:
		return make_context();
	}
}

static int end_one(enum kind kind, void *obj)
{
	switch (kind) {
	case QUEUE_PAIR:
	case DC_TARGET:
		return ibv_destroy_qp(obj);
	case MEMORY_KEY:
		return ibv_dereg_mr(obj);
	case COMPLETION_QUEUE:
		return ibv_destroy_cq(obj);
	case ADDRESS:
		return ibv_destroy_ah(obj);
	default:
		return ibv_close_device(obj);
	}
}

void crowd_make(struct scale *s, struct crowd *c, enum kind kind, uint32_t count, uint32_t depth)
{
	*c = (struct crowd){ kind, count, calloc(count, sizeof(*c->obj)) };
	if (!c->obj)
		die("calloc");
	for (uint32_t i = 0; i < count; i++) {
		c->obj[i] = make_one(s, kind, depth);
		if (!c->obj[i])
			die(kind_name(kind));
		if (kind == QUEUE_PAIR && i % 2)
			connect_pair(s, c->obj[i - 1], c->obj[i]);
	}
}

void crowd_end(struct crowd *c, const uint32_t *order)
{
	for (uint32_t i = 0; i < c->count; i++)
		if (end_one(c->kind, c->obj[order ? order[i] : i]))
			die(kind_name(c->kind));
	free(c->obj);
}

/* ------------------------------------------------------------------ the command line */

static enum kind find_kind(const char *name)
{
	for (enum kind k = 0; k < KINDS; k++)
		if (!strcmp(name, kind_name(k)))
			return k;
	fprintf(stderr, "no kind of object is called %s\n", name);
	exit(2);
}

static uint32_t number(const char *text)
{
	return (uint32_t)strtoul(text, NULL, 10);
}

static int carry_out(struct scale *s, int argc, char **argv)
{
	int rounds = argc > 2 ? (int)number(argv[2]) : 9;

	if (argc == 5 && !strcmp(argv[1], "requests"))
		count_speed(s, find_kind(argv[2]), number(argv[3]), number(argv[4]));
	else if (argc == 4 && !strcmp(argv[1], "objects"))
		count_lifetime(s, find_kind(argv[2]), number(argv[3]));
	else if (argc == 4 && !strcmp(argv[1], "memory"))
		memory(s, find_kind(argv[2]), number(argv[3]));
	else if (argc < 2 || argc > 3 || rounds < 1 || rounds > MAX_ROUNDS)
		return 2;
	else if (!strcmp(argv[1], "speed"))
		speed(s, rounds);
	else if (!strcmp(argv[1], "threads"))
		threads(s, rounds);
	else if (!strcmp(argv[1], "lifetime"))
		lifetime(s);
	else
		return 2;
	return 0;
}

int main(int argc, char **argv)
{
	struct rlimit files;
	struct scale s;

	/* A context has files of its own. */
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	scale_open(&s);
	return carry_out(&s, argc, argv);
}
