/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The objects of one program: a context of its own, so that a program's answers do not hang on those before it. */
#include "play.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_AT 0x230000000000ull	/* nothing is mapped here by itself */

enum value {
	VALUE_CREATE_ERRNO = 1, VALUE_QPN, VALUE_SEND_WR, VALUE_SEND_SGE, VALUE_INLINE, VALUE_RECV_WR, VALUE_RECV_SGE,
	VALUE_SQ_COUNT, VALUE_RQ_COUNT, VALUE_RQ_STRIDE, VALUE_BF, VALUE_CQE_COUNT, VALUE_CQE_BYTES, VALUE_SRQ_WR,
	VALUE_SRQ_SGE, VALUE_SRQ_STRIDE, VALUE_SRQ_HEAD, VALUE_SRQ_TAIL, VALUE_MKEY_ENTRIES, VALUE_MEMCPY_MAX,
	VALUE_HAS_EX,
};

static void value(enum value what, uint64_t v)
{
	emit(TAG_VALUE, what, (uint32_t)v, NULL, 0);
}

_Noreturn void die(const char *what)
{
	fprintf(stderr, "oracle_play: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void make_arena(struct world *w)
{
	static uint8_t *arena;
	struct prng p = prng_at(w->seed, 2);

	if (!arena) {
		arena = mmap((void *)(uintptr_t)ARENA_AT, ARENA_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (arena == MAP_FAILED)
			die("memory at a fixed address");
	}
	for (size_t i = 0; i < ARENA_BYTES / 2 + 4096; i += 8) {
		uint64_t bytes = rnd64(&p);

		memcpy(arena + i, &bytes, 8);
	}
	w->arena = arena;
}

static void open_context(struct world *w)
{
	static struct ibv_device **list;
	struct mlx5dv_context dv = { .comp_mask = MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH };

	if (!list) {
		list = ibv_get_device_list(NULL);
		/* One more stays open, so that numbers of queue pairs go on from program to program. */
		if (!list || !list[0] || !ibv_open_device(list[0]))
			die("no device");
	}
	setenv("MLX5_POST_SEND_PREFER_BF", w->cfg.prefer_bf ? "1" : "0", 1);
	setenv("MLX5_SHUT_UP_BF", w->cfg.shut_up_bf ? "1" : "0", 1);
	unsetenv("MLX5_QP_SIGNATURE");	/* any value switches it on */
	if (w->cfg.wq_sig)
		setenv("MLX5_QP_SIGNATURE", "1", 1);
	w->ctx = ibv_open_device(list[0]);
	w->pd = w->ctx ? ibv_alloc_pd(w->ctx) : NULL;
	w->mr = w->pd ? ibv_reg_mr(w->pd, w->arena, ARENA_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND) : NULL;
	if (!w->mr || mlx5dv_query_device(w->ctx, &dv))
		die("context, domain, region");
	value(VALUE_MEMCPY_MAX, dv.max_wr_memcpy_length);
}

static void make_cq(struct world *w)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = CQE_COUNT - 1,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_CVLAN |
			    IBV_WC_EX_WITH_FLOW_TAG,
	};
	struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
					  .cqe_size = (uint16_t)w->cfg.cqe_bytes };
	struct mlx5dv_obj obj = { 0 };

	w->cq = mlx5dv_create_cq(w->ctx, &attr, &dv);
	if (!w->cq)
		die("completion queue");
	obj.cq.in = ibv_cq_ex_to_cq(w->cq);
	obj.cq.out = &w->dvcq;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ))
		die("mlx5dv_init_obj of a completion queue");
	value(VALUE_CQE_COUNT, w->dvcq.cqe_cnt);
	value(VALUE_CQE_BYTES, w->dvcq.cqe_size);
	w->cq_ci = 0;
}

static void make_srq(struct world *w)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = w->cfg.srq_wr, .max_sge = w->cfg.srq_sge } };
	struct mlx5dv_obj obj = { 0 };

	if (!w->cfg.srq)
		return;
	w->srq = ibv_create_srq(w->pd, &attr);
	if (!w->srq)
		die("shared receive queue");
	obj.srq.in = w->srq;
	obj.srq.out = &w->dvsrq;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ))
		die("mlx5dv_init_obj of a shared receive queue");
	w->srq_count = attr.attr.max_wr + 1;
	value(VALUE_SRQ_WR, attr.attr.max_wr);
	value(VALUE_SRQ_SGE, attr.attr.max_sge);
	value(VALUE_SRQ_STRIDE, w->dvsrq.stride);
	value(VALUE_SRQ_HEAD, w->dvsrq.head);
	value(VALUE_SRQ_TAIL, w->dvsrq.tail);
}

/* A link-local address with an interface's address in it, so that both sides can tell the MAC. */
static void link_local(struct prng *p, uint8_t gid[16])
{
	uint64_t low = rnd64(p);

	memset(gid, 0, 16);
	gid[0] = 0xfe;
	gid[1] = 0x80;
	memcpy(gid + 8, &low, 8);
	gid[11] = 0xff;
	gid[12] = 0xfe;
}

static void make_ah(struct world *w)
{
	struct prng p = prng_at(w->seed, 3);

	for (unsigned int i = 0; i < AH_COUNT; i++) {
		struct ibv_ah_attr attr = {
			.is_global = 1, .port_num = 1, .sl = (uint8_t)rnd(&p, 16), .static_rate = (uint8_t)rnd(&p, 25),
			.grh = { .flow_label = 1 + rnd(&p, 0xfffff), .hop_limit = (uint8_t)rnd64(&p),
				 .traffic_class = (uint8_t)rnd64(&p) },
		};
		struct mlx5dv_ah out;
		struct mlx5dv_obj obj = { .ah = { .out = &out } };

		link_local(&p, attr.grh.dgid.raw);
		w->ah[i] = ibv_create_ah(w->pd, &attr);
		obj.ah.in = w->ah[i];
		if (!w->ah[i] || mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH))
			die("address handle");
		emit(TAG_BYTES, 0, i, out.av, 48);
		for (unsigned int b = 0; b < 48; b++)	/* any bytes must come through */
			((uint8_t *)out.av)[b] = (uint8_t)rnd64(&p);
	}
}

static void make_mkeys(struct world *w)
{
	for (unsigned int i = 0; i < MKEY_COUNT; i++) {
		struct mlx5dv_mkey_init_attr attr = {
			.pd = w->pd,
			.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
			.max_entries = (uint16_t)w->cfg.mkey_entries[i],
		};

		w->mkey[i] = mlx5dv_create_mkey(&attr);
		if (!w->mkey[i])
			die("mkey");
		w->mkey_lkey[i] = w->mkey[i]->lkey;
		value(VALUE_MKEY_ENTRIES, attr.max_entries);
	}
}

void world_open(struct world *w, uint64_t seed, uint8_t fill)
{
	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->fill = fill;
	gen_config(&w->cfg, seed);
	make_arena(w);
	open_context(w);
	make_cq(w);
	make_srq(w);
	make_ah(w);
	make_mkeys(w);
	world_new_qp(w);
}

static struct ibv_qp *create_qp(struct world *w, struct ibv_qp_cap *cap)
{
	static const enum ibv_qp_type types[T_KINDS] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
							 IBV_QPT_DRIVER };
	const struct config *c = &w->cfg;
	struct ibv_cq *cq = ibv_cq_ex_to_cq(w->cq);
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = types[c->kind], .sq_sig_all = c->sig_all, .send_cq = cq, .recv_cq = cq, .srq = w->srq,
		.cap = c->cap, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = w->pd,
	};
	struct mlx5dv_qp_init_attr dv = { 0 };
	struct ibv_qp *qp;

	if (c->ex) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = c->send_ops;
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
		dv.send_ops_flags = c->dv_ops;
	}
	if (c->kind == T_DCI) {
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		if (c->streams) {
			dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
			dv.dc_init_attr.dci_streams.log_num_concurent = 3;
			dv.dc_init_attr.dci_streams.log_num_errored = 1;
		}
	}
	errno = 0;
	qp = dv.comp_mask ? mlx5dv_create_qp(w->ctx, &attr, &dv) : ibv_create_qp_ex(w->ctx, &attr);
	*cap = attr.cap;
	return qp;
}

static void note_sizes(const struct world *w, uint32_t sq_count)
{
	value(VALUE_QPN, w->qp->qp_num);
	value(VALUE_SEND_WR, w->cap.max_send_wr);
	value(VALUE_SEND_SGE, w->cap.max_send_sge);
	value(VALUE_INLINE, w->cap.max_inline_data);
	value(VALUE_RECV_WR, w->cap.max_recv_wr);
	value(VALUE_RECV_SGE, w->cap.max_recv_sge);
	value(VALUE_SQ_COUNT, sq_count);
	value(VALUE_RQ_COUNT, w->dvqp.rq.wqe_cnt);
	if (w->dvqp.rq.wqe_cnt)
		value(VALUE_RQ_STRIDE, w->dvqp.rq.stride);
	value(VALUE_BF, w->dvqp.bf.size);
	value(VALUE_HAS_EX, w->qpx != NULL);
}

void world_new_qp(struct world *w)
{
	struct mlx5dv_obj obj = { 0 };
	uint32_t sq_count;

	w->qp = create_qp(w, &w->cap);
	value(VALUE_CREATE_ERRNO, w->qp ? 0 : (uint64_t)errno);
	if (!w->qp)
		return;
	obj.qp.in = w->qp;
	obj.qp.out = &w->dvqp;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP))
		die("mlx5dv_init_obj of a queue pair");
	w->qpx = ibv_qp_to_qp_ex(w->qp);
	w->dvx = w->qpx ? mlx5dv_qp_ex_from_ibv_qp_ex(w->qpx) : NULL;
	/* Each queue pair of ours has a register of its own, and begins with its first half. */
	if (ours && w->uar_second) {
		w->uar_flip = !w->uar_flip;
		w->uar_second = false;
	}
	/* We give a DCI with streams room for twice as much. */
	sq_count = ours && w->cfg.streams ? w->dvqp.sq.wqe_cnt / 2 : w->dvqp.sq.wqe_cnt;
	note_sizes(w, sq_count);
	w->max_post = w->cap.max_send_wr;
	w->wqe_bb = w->max_post ? sq_count / w->max_post : 0;
	w->pi = w->tail_pi = 0;
	w->out_head = w->out_tail = 0;
	if (!w->srq)
		w->recv_head = w->recv_tail = 0;
	w->fence = false;
	to_rts(w);
}

void to_rts(struct world *w)
{
	enum transport k = w->cfg.kind;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11, .path_mtu = IBV_MTU_1024, .dest_qp_num = 1,
		.max_dest_rd_atomic = 1, .max_rd_atomic = 1, .min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
	};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	link_local(&(struct prng){ 1 }, a.ah_attr.grh.dgid.raw);
	init |= k == T_UD ? IBV_QP_QKEY : k == T_DCI ? 0 : IBV_QP_ACCESS_FLAGS;
	if (k != T_UD)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU;
	if (k == T_RC || k == T_UC || k == T_XRC)
		rtr |= IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (k == T_RC)
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (k != T_UD && k != T_UC)
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	errno = ibv_modify_qp(w->qp, &a, init);
	if (errno)
		die("to INIT");
	a.qp_state = IBV_QPS_RTR;
	errno = ibv_modify_qp(w->qp, &a, rtr);
	if (errno)
		die("to RTR");
	a.qp_state = IBV_QPS_RTS;
	errno = ibv_modify_qp(w->qp, &a, rts);
	if (errno)
		die("to RTS");
}

void world_renew(struct world *w)
{
	if (w->qp && ibv_destroy_qp(w->qp))
		die("destroy");
	world_new_qp(w);
}

void world_close(struct world *w)
{
	if (w->qp && ibv_destroy_qp(w->qp))
		die("destroy");
	for (unsigned int i = 0; i < MKEY_COUNT; i++) {
		w->mkey[i]->lkey = w->mkey_lkey[i];
		mlx5dv_destroy_mkey(w->mkey[i]);
	}
	for (unsigned int i = 0; i < AH_COUNT; i++)
		ibv_destroy_ah(w->ah[i]);
	if (w->srq)
		ibv_destroy_srq(w->srq);
	ibv_destroy_cq(ibv_cq_ex_to_cq(w->cq));
	ibv_dereg_mr(w->mr);
	ibv_dealloc_pd(w->pd);
	ibv_close_device(w->ctx);
}
