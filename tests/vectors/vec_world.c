/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "vec_world.h"

#include "base/bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS_UD (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define OPS_NO_ATOMIC (OPS_UD | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |	\
		       IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |		\
		       IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
#define OPS_ALL (OPS_NO_ATOMIC | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
#define DV_RC (MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST |		\
	       MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY)

static const struct config {
	const char *name;
	enum smx_dv_qp_kind kind;
	uint64_t send_ops, dv_ops;
	uint32_t wr, sge, inline_data;
} configs[] = {
	{ "rc_small", SMX_DV_RC, OPS_ALL, DV_RC, 8, 4, 0 },
	{ "rc_med", SMX_DV_RC, OPS_ALL, DV_RC, 16, 4, 200 },
	{ "rc_big", SMX_DV_RC, OPS_ALL, DV_RC, 8, 16, 512 },
	{ "rc_noatomic", SMX_DV_RC, OPS_NO_ATOMIC, DV_RC, 16, 4, 64 },
	{ "ud_small", SMX_DV_UD, OPS_UD, MLX5DV_QP_EX_WITH_RAW_WQE, 16, 4, 64 },
	{ "ud_big", SMX_DV_UD, OPS_UD, MLX5DV_QP_EX_WITH_RAW_WQE, 16, 8, 400 },
	{ "dci_small", SMX_DV_DCI, OPS_ALL, MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY, 8, 4, 64 },
	{ "dci_big", SMX_DV_DCI, OPS_ALL, MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY, 16, 8, 300 },
};

static const struct config *config_of(const json_t *qp)
{
	const char *name = vec_str(qp, "cfg");

	for (size_t i = 0; i < SMX_COUNT(configs); i++) {
		if (!strcmp(configs[i].name, name))
			return &configs[i];
	}
	vec_die("unknown configuration", name);
}

bool vec_world_check_sizes(const json_t *qp)
{
	static struct smx_refusal_log log;
	const struct config *c = config_of(qp);
	struct ibv_qp_cap cap = { .max_send_wr = c->wr, .max_send_sge = c->sge, .max_inline_data = c->inline_data };
	struct smx_dv_qp_sizes s;

	return !smx_dv_qp_size(&log, c->kind, c->send_ops, c->dv_ops, false, false, &cap, &s) &&
	       s.sq_bb_count == vec_num(qp, "wqe_cnt") && s.sq_max_post == vec_num(qp, "max_post") &&
	       s.sq_max_inline == vec_num(qp, "max_inline") && s.sq_max_gs == vec_num(qp, "max_gs") &&
	       cap.max_inline_data == s.sq_max_inline && cap.max_send_wr == s.sq_max_post;
}

static void count_ring(struct smx_dv_qp *qp)
{
	container_of(qp, struct vec_world, qp)->rung++;
}

static void init_qp(struct vec_world *w, const json_t *qp, const json_t *ctx)
{
	const struct config *c = config_of(qp);
	struct smx_dv_qp *q = &w->qp;

	q->kind = c->kind;
	q->send_ops = c->send_ops;
	q->dv_ops = c->dv_ops;
	q->qpn = (uint32_t)vec_num(qp, "qpn");
	q->can_post = vec_num(qp, "rts");
	q->sq.fm_cache = vec_num(qp, "sq_sig_all") ? IBV_SEND_SIGNALED : 0;
	q->wq_sig = vec_num(qp, "wq_sig");
	q->atomics = vec_num(qp, "atomics");
	q->has_ex = true;
	q->sq.bb_count = (uint32_t)vec_num(qp, "wqe_cnt");
	q->sq.max_post = (uint32_t)vec_num(qp, "max_post");
	q->sq.max_inline = (uint32_t)vec_num(qp, "max_inline");
	q->sq.max_gs = (uint32_t)vec_num(qp, "max_gs");
	q->sq.buf = w->ring;
	q->sq.slot = calloc(q->sq.bb_count, sizeof(*q->sq.slot));
	q->sq.lock.needed = true;
	q->dbrec = (be32 *)w->dbrec;
	q->ctx.prefer_bf = vec_num(ctx, "prefer_bf");
	q->ctx.shut_up_bf = vec_num(ctx, "shut_up_bf");
	q->ctx.mkey_update_tag = vec_num(ctx, "mkey_update_tag");
	q->ctx.memcpy_max = vec_num(ctx, "memcpy_max");
	q->ctx.opaque_lkey = (uint32_t)vec_num(ctx, "opaque_lkey");
	q->ctx.opaque_addr = vec_num(ctx, "opaque_addr");
	q->refusals = &w->log;
	q->ring_sq = count_ring;
}

static void init_cq(struct vec_world *w)
{
	w->cq.buf = (uint8_t *)w->cqe;
	w->cq.cqe_count = 2;
	w->cq.cqe_bytes = sizeof(struct smx_cqe64);
	w->cq.dbrec = (be32 *)w->cq_dbrec;
	w->cq.qps = &w->qps;
	w->cq.srqs = &w->srqs;
	smx_dv_cq_init_buf(w->cqe, 2, sizeof(struct smx_cqe64));
}

struct vec_world *vec_world_new(const json_t *line, uint8_t fill)
{
	const json_t *qp = vec_need(line, "qp"), *uar = vec_need(line, "uar"), *st = vec_need(line, "st");
	struct vec_world *w = calloc(1, sizeof(*w));

	w->fill = fill;
	w->ring_bytes = (uint32_t)vec_num(qp, "wqe_cnt") * SMX_WQE_BB;
	w->ring = malloc(w->ring_bytes);	/* its own block: a sanitizer sees what runs over its ends */
	w->shadow = malloc(w->ring_bytes);
	memset(w->ring, fill, w->ring_bytes);
	memset(w->shadow, fill, w->ring_bytes);
	memset(w->uar, VEC_UAR_FILL, sizeof(w->uar));
	w->qp.bf.reg = w->uar;
	w->qp.bf.uuarn = (uint32_t)vec_num(uar, "uuarn");
	w->qp.bf.buf_bytes = (uint32_t)vec_num(uar, "buf_size");
	w->dbrec[SMX_DBREC_RCV] = VEC_DB_RCV;
	init_qp(w, qp, vec_need(line, "ctx"));
	init_cq(w);
	/* The blocks of one request: whole multiples of it fill the ring as far as max_post goes. */
	w->wqe_bb = w->qp.sq.bb_count / w->qp.sq.max_post;
	vec_world_set_state(w, (uint32_t)vec_num(st, "cur_post"), (uint32_t)vec_num(st, "head"),
			    (uint32_t)vec_num(st, "tail"), (uint8_t)vec_num(st, "fm_cache"),
			    (uint32_t)vec_num(st, "db"), (uint32_t)vec_num(uar, "offset"));
	smx_dv_qp_prepare(&w->qp);
	if (smx_dv_qp_fill_ops(&w->qp) || smx_dv_table_set(&w->qps, w->qp.qpn, &w->qp))
		vec_die("a configuration's operations are refused", vec_str(qp, "cfg"));
	return w;
}

void vec_world_free(struct vec_world *w)
{
	smx_dv_table_fini(&w->qps);
	free(w->qp.sq.slot);
	free(w->ring);
	free(w->shadow);
	free(w);
}

void vec_world_set_state(struct vec_world *w, uint32_t cur_post, uint32_t head, uint32_t tail, uint8_t fm_cache,
			 uint32_t db, uint32_t uar_offset)
{
	struct smx_dv_sq *sq = &w->qp.sq;

	sq->cur_post = sq->posted_bb = cur_post;
	sq->head = sq->wr.head = sq->wr.limit = head;
	sq->tail = tail;
	sq->tail_bb = cur_post - (head - tail) * w->wqe_bb;	/* as if each were of the full size */
	sq->fm_cache = (sq->fm_cache & IBV_SEND_SIGNALED) | fm_cache;
	be32_store_release(&w->dbrec[SMX_DBREC_SND], db);
	w->qp.bf.offset = uar_offset;
}

int vec_world_poll(struct vec_world *w, uint32_t pi, uint8_t opcode, struct ibv_wc *wc)
{
	w->cqe[w->cq.ci & 1] = (struct smx_cqe64){
		.sop_drop_qpn = to_be32((uint32_t)opcode << 24 | w->qp.qpn),
		.wqe_counter = to_be16((uint16_t)pi),
		.op_own = (uint8_t)(SMX_CQE_REQ << 4 | (w->cq.ci & 2 ? SMX_CQE_OWNER : 0)),
	};
	return smx_dv_poll_cq((struct ibv_cq *)(void *)&w->cq, 1, wc);
}
