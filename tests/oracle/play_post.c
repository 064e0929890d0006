/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Makes a step's calls. */
#include "play.h"

#include <string.h>

static void call_data(struct world *w, const struct wr *wr)
{
	struct ibv_data_buf buf[SGE_MAX];

	for (uint32_t i = 0; i < wr->n; i++)
		buf[i] = (struct ibv_data_buf){ (void *)(uintptr_t)wr->sge[i].addr, wr->sge[i].length };
	switch (wr->setter) {
	case BY_SGE:
		ibv_wr_set_sge(w->qpx, wr->sge[0].lkey, wr->sge[0].addr, wr->sge[0].length);
		break;
	case BY_SGE_LIST:
		ibv_wr_set_sge_list(w->qpx, wr->n, wr->sge);
		break;
	case BY_INLINE:
		ibv_wr_set_inline_data(w->qpx, buf[0].addr, buf[0].length);
		break;
	case BY_INLINE_LIST:
		ibv_wr_set_inline_data_list(w->qpx, wr->n, buf);
		break;
	}
}

static void call_addr(struct world *w, const struct wr *wr)
{
	switch (w->cfg.kind) {
	case T_UD:
		ibv_wr_set_ud_addr(w->qpx, w->ah[wr->ah], wr->dctn, wr->qkey);
		break;
	case T_XRC:
		ibv_wr_set_xrc_srqn(w->qpx, wr->dctn);
		break;
	case T_DCI:
		if (wr->stream_given)
			mlx5dv_wr_set_dc_addr_stream(w->dvx, w->ah[wr->ah], wr->dctn, wr->dckey, wr->stream);
		else
			mlx5dv_wr_set_dc_addr(w->dvx, w->ah[wr->ah], wr->dctn, wr->dckey);
		break;
	default:
		break;
	}
}

static void call_mkey(struct world *w, const struct wr *wr)
{
	struct mlx5dv_mkey_conf_attr attr = { .conf_flags = wr->conf_flags, .comp_mask = wr->conf_mask };
	struct mlx5dv_mkey *mkey = w->mkey[wr->mkey];

	mkey->lkey = wr->mkey_lkey;
	if (wr->op == OP_LIST) {
		mlx5dv_wr_mr_list(w->dvx, mkey, wr->access, (uint16_t)wr->set_n[1], (struct ibv_sge *)wr->sge);
		return;
	}
	if (wr->op == OP_INTERLEAVED) {
		mlx5dv_wr_mr_interleaved(w->dvx, mkey, wr->access, wr->repeat, (uint16_t)wr->set_n[1],
					 (struct mlx5dv_mr_interleaved *)wr->il);
		return;
	}
	if (!wr->bare)
		mlx5dv_wr_mkey_configure(w->dvx, mkey, (uint8_t)wr->declared, &attr);
	else
		mlx5dv_wr_set_mkey_access_flags(w->dvx, wr->access);
	for (uint32_t k = 0; k < wr->n_setters; k++) {
		if (wr->setters[k] == SET_ACCESS)
			mlx5dv_wr_set_mkey_access_flags(w->dvx, wr->access);
		else if (wr->setters[k] == SET_LIST)
			mlx5dv_wr_set_mkey_layout_list(w->dvx, (uint16_t)wr->set_n[k], wr->sge);
		else
			mlx5dv_wr_set_mkey_layout_interleaved(w->dvx, wr->repeat, (uint16_t)wr->set_n[k], wr->il);
	}
}

static void call_op(struct world *w, const struct wr *wr)
{
	struct ibv_qp_ex *x = w->qpx;

	switch (wr->op) {
	case OP_SEND:
		ibv_wr_send(x);
		break;
	case OP_SEND_IMM:
		ibv_wr_send_imm(x, wr->imm);
		break;
	case OP_SEND_INV:
		ibv_wr_send_inv(x, wr->imm);
		break;
	case OP_WRITE:
		ibv_wr_rdma_write(x, wr->rkey, wr->raddr);
		break;
	case OP_WRITE_IMM:
		ibv_wr_rdma_write_imm(x, wr->rkey, wr->raddr, wr->imm);
		break;
	case OP_READ:
		ibv_wr_rdma_read(x, wr->rkey, wr->raddr);
		break;
	case OP_CAS:
		ibv_wr_atomic_cmp_swp(x, wr->rkey, wr->raddr, wr->compare, wr->swap);
		break;
	default:
		ibv_wr_atomic_fetch_add(x, wr->rkey, wr->raddr, wr->compare);
	}
}

static struct ibv_mw_bind_info bind_info(struct world *w, const struct wr *wr)
{
	w->mr->lkey = wr->mr_lkey;
	return (struct ibv_mw_bind_info){ .mr = w->mr, .addr = wr->bind_addr, .length = wr->bind_length,
					  .mw_access_flags = wr->access };
}

static void build(struct world *w, const struct wr *wr)
{
	struct ibv_mw mw = { .rkey = wr->mw_rkey, .type = IBV_MW_TYPE_2 };
	struct ibv_mw_bind_info info;

	w->qpx->wr_id = wr->wr_id;
	w->qpx->wr_flags = wr->flags;
	switch (wr->op) {
	case OP_BIND:
		info = bind_info(w, wr);
		ibv_wr_bind_mw(w->qpx, &mw, wr->rkey, &info);
		return;
	case OP_LINV:
		ibv_wr_local_inv(w->qpx, wr->imm);
		return;
	case OP_LIST:
	case OP_INTERLEAVED:
	case OP_CONFIGURE:
		call_mkey(w, wr);
		return;
	case OP_RAW:
		mlx5dv_wr_raw_wqe(w->dvx, wr->raw);
		return;
	case OP_MEMCPY:
		mlx5dv_wr_memcpy(w->dvx, wr->dst_lkey, wr->dst, wr->src_lkey, wr->src, wr->length);
		return;
	default:
		break;
	}
	call_op(w, wr);
	if (wr->addr_first && !wr->no_addr)
		call_addr(w, wr);
	if (!wr->no_data)
		call_data(w, wr);
	if (!wr->addr_first && !wr->no_addr)
		call_addr(w, wr);
}

static enum ibv_wr_opcode opcode_of(const struct wr *wr)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[OP_SEND] = IBV_WR_SEND, [OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM, [OP_SEND_INV] = IBV_WR_SEND_WITH_INV,
		[OP_WRITE] = IBV_WR_RDMA_WRITE, [OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[OP_READ] = IBV_WR_RDMA_READ, [OP_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[OP_FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD, [OP_BIND] = IBV_WR_BIND_MW, [OP_LINV] = IBV_WR_LOCAL_INV,
	};

	return wr->op == OP_BAD ? (enum ibv_wr_opcode)wr->bad_opcode : opcodes[wr->op];
}

static void fill_send(struct world *w, const struct wr *wr, struct ibv_send_wr *s, struct ibv_mw *mw)
{
	*s = (struct ibv_send_wr){ .wr_id = wr->wr_id, .send_flags = wr->flags, .opcode = opcode_of(wr),
				   .sg_list = (struct ibv_sge *)wr->sge, .num_sge = (int)wr->n };
	switch (wr->op) {
	case OP_SEND_INV:
	case OP_LINV:
		s->invalidate_rkey = wr->imm;
		break;
	case OP_SEND_IMM:
	case OP_WRITE_IMM:
		s->imm_data = wr->imm;
		break;
	default:
		break;
	}
	if (w->cfg.kind == T_UD) {
		s->wr.ud.ah = w->ah[wr->ah];
		s->wr.ud.remote_qpn = wr->dctn;
		s->wr.ud.remote_qkey = wr->qkey;
	} else if (wr->op == OP_CAS || wr->op == OP_FAA) {
		s->wr.atomic.remote_addr = wr->raddr;
		s->wr.atomic.rkey = wr->rkey;
		s->wr.atomic.compare_add = wr->compare;
		s->wr.atomic.swap = wr->swap;
	} else {
		s->wr.rdma.remote_addr = wr->raddr;
		s->wr.rdma.rkey = wr->rkey;
	}
	if (w->cfg.kind == T_XRC)
		s->qp_type.xrc.remote_srqn = wr->dctn;
	if (wr->op == OP_BIND) {
		*mw = (struct ibv_mw){ .rkey = wr->mw_rkey, .type = wr->mw_type };
		s->bind_mw.mw = mw;
		s->bind_mw.rkey = wr->rkey;
		s->bind_mw.bind_info = bind_info(w, wr);
	}
}

static struct outcome post_list(struct world *w, const struct step *s)
{
	struct ibv_send_wr list[BATCH_MAX], *bad = NULL;
	struct ibv_mw mw[BATCH_MAX];
	struct ibv_mr mr[BATCH_MAX];
	struct outcome out = { .bad = -1 };

	for (uint32_t i = 0; i < s->n; i++) {
		fill_send(w, &s->wr[i], &list[i], &mw[i]);
		if (s->wr[i].op == OP_BIND) {	/* each its own key */
			mr[i] = *w->mr;
			list[i].bind_mw.bind_info.mr = &mr[i];
		}
		if (i)
			list[i - 1].next = &list[i];
	}
	out.rc = ibv_post_send(w->qp, list, &bad);
	if (bad)
		out.bad = (int)(bad - list);
	return out;
}

/* The older call for windows of type 1. */
static struct outcome bind_window(struct world *w, const struct wr *wr)
{
	struct ibv_mw mw = { .context = w->ctx, .pd = w->pd, .rkey = wr->mw_rkey, .type = IBV_MW_TYPE_1 };
	struct ibv_mw_bind bind = { .wr_id = wr->wr_id, .send_flags = wr->flags, .bind_info = bind_info(w, wr) };
	struct outcome out = { .rc = ibv_bind_mw(w->qp, &mw, &bind), .bad = -1 };

	emit(TAG_VALUE, 7, mw.rkey, NULL, 0);
	return out;
}

struct outcome post_step(struct world *w, const struct step *s)
{
	if (s->kind == STEP_POST_SEND && s->n == 1 && s->wr[0].op == OP_BIND && s->wr[0].mw_type == IBV_MW_TYPE_1 &&
	    s->wr[0].row == ROW_NONE)
		return bind_window(w, &s->wr[0]);
	if (s->kind == STEP_POST_SEND)
		return post_list(w, s);
	ibv_wr_start(w->qpx);
	for (uint32_t i = 0; i < s->n; i++)
		build(w, &s->wr[i]);
	if (s->kind == STEP_WR)
		return (struct outcome){ .rc = ibv_wr_complete(w->qpx), .bad = -1 };
	ibv_wr_abort(w->qpx);
	return (struct outcome){ .rc = 0, .bad = -1 };
}
