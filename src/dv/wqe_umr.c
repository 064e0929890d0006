/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Requests that change memory keys: windows (bind, invalidate) and mkey layouts (UMR).
 *
 * All are a control segment, a UMR control segment in the same block, the mkey context as the second block,
 * and translation entries from the third on, a multiple of 4. */
#include "dv/wqe_build.h"

#include <inttypes.h>

enum {
	UMR_CTRL_DS = sizeof(struct smx_wqe_umr_ctrl) / SMX_WQE_DS,
	MKEY_CTX_DS = sizeof(struct smx_wqe_mkey_ctx) / SMX_WQE_DS,
	CTX_AT_DS = 1 + UMR_CTRL_DS,
	XLT_AT_DS = CTX_AT_DS + MKEY_CTX_DS,
	XLT_ALIGN = 4,		/* entries: the device reads them in blocks */
};

#define MASK_ACCESS (SMX_UMR_MASK_LOCAL_WRITE | SMX_UMR_MASK_REMOTE_READ | SMX_UMR_MASK_REMOTE_WRITE | \
		     SMX_UMR_MASK_ATOMIC)
#define MASK_CONFIGURE (SMX_UMR_MASK_FREE | SMX_UMR_MASK_MKEY)
#define MASK_BOTH (MASK_CONFIGURE | MASK_ACCESS | SMX_UMR_MASK_LEN)
#define BIND_LENGTH_MAX (1ull << 31)
#define ANY_QP 0xffffffu	/* may use the key */

/* Of enum ibv_access_flags' lowest four. */
static uint8_t access_bits(uint32_t access)
{
#define REMOTE(f) (((f) & IBV_ACCESS_REMOTE_WRITE ? SMX_MKC_REMOTE_WRITE : 0) | \
		   ((f) & IBV_ACCESS_REMOTE_READ ? SMX_MKC_REMOTE_READ : 0) | \
		   ((f) & IBV_ACCESS_REMOTE_ATOMIC ? SMX_MKC_ATOMIC : 0))
#define BOTH(f) REMOTE(f), REMOTE(f) | SMX_MKC_LOCAL_WRITE
	static const uint8_t bits[16] = { BOTH(0), BOTH(2), BOTH(4), BOTH(6), BOTH(8), BOTH(10), BOTH(12), BOTH(14) };

	_Static_assert(IBV_ACCESS_LOCAL_WRITE == 1 && IBV_ACCESS_REMOTE_WRITE == 2 &&
		       IBV_ACCESS_REMOTE_READ == 4 && IBV_ACCESS_REMOTE_ATOMIC == 8, "bits are indices");
#undef BOTH
#undef REMOTE
	return bits[access & 15];
}

/* The UMR control segment of the open request: translation entries, and which fields of the context it names. */
SMX_INLINE void put_umr_ctrl(struct smx_wqe_ctrl *ctrl, uint8_t check, uint32_t entries, uint64_t mask)
{
	struct smx_wqe_umr_ctrl *umr = (void *)(ctrl + 1);

	/* flags; klm_octowords */
	smx_seg_set(umr, to_be64((uint64_t)(SMX_UMR_INLINE | check) << 56 | (uint64_t)entries << 16), to_be64(mask));
	memset(umr->rsvd1, 0, sizeof(umr->rsvd1));
}

/* A key's context is the block behind the control segment's, its translation what is behind that. */
SMX_INLINE struct smx_wqe_mkey_ctx *mkey_ctx_of(const struct smx_dv_sq *sq, struct smx_wqe_ctrl *ctrl)
{
	return smx_sq_step(sq, ctrl, CTX_AT_DS * SMX_WQE_DS);
}

SMX_INLINE struct smx_cursor xlt_of(const struct smx_dv_sq *sq, struct smx_wqe_mkey_ctx *ctx)
{
	return smx_cursor_at(sq, ctx + 1);
}

/* qpn: of the queue pair that owns the key, or ANY_QP. */
SMX_INLINE void put_mkey_ctx(struct smx_wqe_mkey_ctx *ctx, uint8_t free, uint8_t access, uint32_t qpn, uint32_t key,
			     uint64_t start, uint64_t length)
{
	/* free, access, qpn_mkey */
	smx_seg_set(ctx, to_be64((uint64_t)free << 56 | (uint64_t)access << 40 | qpn << 8 | (key & 0xff)), to_be64(0));
	smx_seg_set(&ctx->start_addr, to_be64(start), to_be64(length));
	memset(&ctx->bsf_octowords, 0, sizeof(*ctx) - offsetof(struct smx_wqe_mkey_ctx, bsf_octowords));
}

/* Memory windows */

int smx_wqe_check_bind(struct smx_dv_qp *qp, const struct ibv_mw_bind_info *info)
{
	if (info->length > BIND_LENGTH_MAX)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_POST_BIND_LENGTH, "length %" PRIu64, info->length);
	if (info->length && !info->mr)
		return SMX_SQ_REFUSE(qp, SMX_CHECK_OBJECT_ARG, "bind_info.mr is NULL, length %" PRIu64,
				     info->length);
	return 0;
}

/* Takes back what the window or key shows. */
SMX_INLINE void put_unbind(struct smx_dv_qp *qp, struct smx_wqe_ctrl *ctrl, bool type2, uint32_t rkey)
{
	put_umr_ctrl(ctrl, SMX_UMR_XLT_OFFSET | (type2 ? SMX_UMR_CHECK_QPN : 0), 0,
		     SMX_UMR_MASK_FREE | SMX_UMR_MASK_MKEY | (type2 ? SMX_UMR_MASK_QPN : 0));
	put_mkey_ctx(mkey_ctx_of(&qp->sq, ctrl), SMX_MKC_FREE, 0, ANY_QP, rkey, 0, 0);
	smx_wqe_finish(&qp->sq, ctrl, XLT_AT_DS, SMX_CTRL_SMALL_FENCE);
}

static void put_bind(struct smx_dv_qp *qp, struct smx_wqe_ctrl *ctrl, bool type2, uint32_t rkey,
		     const struct ibv_mw_bind_info *info)
{
	struct smx_wqe_mkey_ctx *ctx = mkey_ctx_of(&qp->sq, ctrl);
	struct smx_cursor xlt = xlt_of(&qp->sq, ctx);

	put_umr_ctrl(ctrl, SMX_UMR_XLT_OFFSET | (type2 ? SMX_UMR_CHECK_FREE : 0), XLT_ALIGN,
		     MASK_BOTH | SMX_UMR_MASK_START_ADDR | (type2 ? SMX_UMR_MASK_QPN : 0));
	put_mkey_ctx(ctx, 0, access_bits(info->mw_access_flags), type2 ? qp->qpn : ANY_QP, rkey,
		     info->mw_access_flags & IBV_ACCESS_ZERO_BASED ? 0 : info->addr, info->length);
	smx_seg_data(smx_cursor_next(&xlt), info->addr, (uint32_t)info->length, info->mr->lkey);
	for (int i = 1; i < XLT_ALIGN; i++)
		smx_seg_set(smx_cursor_next(&xlt), to_be64(0), to_be64(0));
	smx_wqe_finish(&qp->sq, ctrl, XLT_AT_DS + XLT_ALIGN, SMX_CTRL_SMALL_FENCE);
}

void smx_wqe_bind(struct smx_dv_qp *qp, uint32_t flags, uint64_t wr_id, enum ibv_mw_type type, uint32_t old_rkey,
		  uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct smx_wqe_ctrl *ctrl = smx_wqe_open(qp, SMX_OP_UMR, XLT_AT_DS + (info->length ? XLT_ALIGN : 0),
						 to_be32(old_rkey), flags, IBV_WC_BIND_MW, wr_id);

	if (info->length)
		put_bind(qp, ctrl, type == IBV_MW_TYPE_2, rkey, info);
	else
		put_unbind(qp, ctrl, type == IBV_MW_TYPE_2, rkey);
}

SMX_INLINE void invalidate(struct smx_dv_qp *qp, uint32_t flags, uint64_t wr_id, uint32_t rkey)
{
	put_unbind(qp, smx_wqe_open(qp, SMX_OP_UMR, XLT_AT_DS, to_be32(rkey), flags, IBV_WC_LOCAL_INV, wr_id), true, 0);
}

void smx_wqe_invalidate(struct smx_dv_qp *qp, uint32_t flags, uint64_t wr_id, uint32_t rkey)
{
	invalidate(qp, flags, wr_id, rkey);
}

void smx_wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		    const struct ibv_mw_bind_info *info)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);
	bool allowed = qp->send_ops & IBV_QP_EX_WITH_BIND_MW;

	if ((smx_wr_is_ready(qp, allowed) || smx_wr_make_ready(qp, allowed, "ibv_wr_bind_mw")) &&
	    !smx_wqe_check_bind(qp, info))
		smx_wqe_bind(qp, ex->wr_flags, ex->wr_id, IBV_MW_TYPE_2, mw->rkey, rkey, info);
}

static SMX_SELDOM_CALLED void local_inv_unready(struct smx_dv_qp *qp, uint32_t rkey)
{
	if (smx_wr_make_ready(qp, qp->send_ops & IBV_QP_EX_WITH_LOCAL_INV, "ibv_wr_local_inv"))
		invalidate(qp, qp->ex.wr_flags, qp->ex.wr_id, rkey);
}

void smx_wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	if (smx_wr_is_ready(qp, qp->send_ops & IBV_QP_EX_WITH_LOCAL_INV))
		invalidate(qp, ex->wr_flags, ex->wr_id, rkey);
	else
		local_inv_unready(qp, rkey);
}

/* Memory key configuration */

SMX_INLINE bool configure_ok(const struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey,
			     const struct mlx5dv_mkey_conf_attr *attr)
{
	return qp->ex.wr_flags & IBV_SEND_INLINE &&
	       !(attr->conf_flags & ~(uint32_t)MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR) && !attr->comp_mask &&
	       (!(mkey->lkey & 0xff) || qp->ctx.mkey_update_tag);
}

/* The first that is wrong of configure_ok(). */
static void refuse_configure(struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey,
			     const struct mlx5dv_mkey_conf_attr *attr)
{
	enum smx_check check = SMX_CHECK_POST_UMR_TAG;

	if (!(qp->ex.wr_flags & IBV_SEND_INLINE))
		check = SMX_CHECK_POST_UMR_INLINE;
	else if (attr->conf_flags & ~(uint32_t)MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR || attr->comp_mask)
		check = SMX_CHECK_POST_UMR_CONF;
	qp->sq.wr.err = 0;
	(void)SMX_SQ_REFUSE(qp, check, "wr_flags 0x%x, conf_flags 0x%" PRIx32 ", comp_mask 0x%" PRIx64
			    ", lkey 0x%08" PRIx32, qp->ex.wr_flags, attr->conf_flags, attr->comp_mask,
			    mkey->lkey);
}

static const struct mlx5dv_mkey_conf_attr no_attr;	/* mr_list and mr_interleaved have none */

SMX_INLINE bool configure_ready(const struct smx_dv_qp *qp, uint64_t op, const struct mlx5dv_mkey *mkey,
				const struct mlx5dv_mkey_conf_attr *attr)
{
	return smx_wr_is_ready(qp, qp->dv_ops & op) && configure_ok(qp, mkey, attr);
}

/* As smx_wr_make_ready(). */
static bool configure_make_ready(struct smx_dv_qp *qp, uint64_t op, const struct mlx5dv_mkey *mkey,
				 const struct mlx5dv_mkey_conf_attr *attr, const char *name)
{
	bool allowed = qp->dv_ops & op;

	/* libmlx5 lets what is wrong with the arguments override an earlier failure of the batch. */
	if (!configure_ok(qp, mkey, attr) && qp->sq.wr.open.state != SMX_WR_OUTSIDE && allowed) {
		refuse_configure(qp, mkey, attr);
		return false;
	}
	return smx_wr_make_ready(qp, allowed, name);
}

/* The control segment. ds: as for smx_wqe_open(). */
SMX_INLINE struct smx_wqe_ctrl *configure_open(struct smx_dv_qp *qp, uint32_t ds, const struct mlx5dv_mkey *mkey)
{
	return smx_wqe_open(qp, SMX_OP_UMR, ds, to_be32(mkey->lkey), qp->ex.wr_flags, MLX5DV_WC_UMR, qp->ex.wr_id);
}

static SMX_SELDOM_CALLED void refuse_access(struct smx_dv_qp *qp, uint32_t access)
{
	(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_UMR_ACCESS, "access flags 0x%" PRIx32, access);
}

SMX_INLINE bool access_allowed(uint32_t access)
{
	return !(access & ~(uint32_t)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_ATOMIC));
}

static inline uint32_t padded(uint32_t entries)
{
	return (entries + XLT_ALIGN - 1) & -(uint32_t)XLT_ALIGN;
}

static inline uint32_t entries_of_mkey(const struct mlx5dv_mkey *dv_mkey)
{
	const struct smx_dv_mkey *mkey = container_of(dv_mkey, const struct smx_dv_mkey, dv);

	return padded(mkey->max_entries);
}

/* entries: what the layout takes in the mkey, its header included. */
SMX_INLINE bool layout_fits(const struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey, uint32_t entries)
{
	return entries <= qp->sq.max_xlt && entries <= entries_of_mkey(mkey);
}

static SMX_SELDOM_CALLED void refuse_layout(struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey, uint32_t entries)
{
	(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_UMR_ENTRIES, "entries %" PRIu32 " (a strided layout takes one for "
			    "its header), the mkey has %" PRIu32 ", the queue pair's WQE %" PRIu32
			    " (max_inline_data %" PRIu32 ")", entries, entries_of_mkey(mkey), qp->sq.max_xlt,
			    qp->sq.max_inline);
}

/* What a layout comes to: translation entries, padded, and bytes of the key. */
struct extent { uint32_t entries; uint64_t length; };

SMX_INLINE struct extent end_layout(struct smx_cursor *xlt, uint32_t entries, uint64_t length)
{
	for (; entries % XLT_ALIGN; entries++)
		smx_seg_set(smx_cursor_next(xlt), to_be64(0), to_be64(0));
	return (struct extent){ entries, length };
}

SMX_INLINE struct extent put_list(struct smx_cursor xlt, uint16_t n, const struct ibv_sge *sge)
{
	uint64_t length = 0;

	for (uint32_t left = n; left; left--, sge++) {
		length += sge->length;
		smx_seg_sge(smx_cursor_next(&xlt), sge);	/* struct smx_wqe_klm */
	}
	return end_layout(&xlt, n, length);
}

SMX_INLINE uint64_t stride_of(const struct mlx5dv_mr_interleaved *e)
{
	return (uint64_t)e->bytes_count + e->bytes_skip;
}

/* One of the entries has a stride that is too long. */
static SMX_SELDOM_CALLED void refuse_stride(struct smx_dv_qp *qp, const struct mlx5dv_mr_interleaved *data)
{
	unsigned int i = 0;

	while (stride_of(&data[i]) <= UINT16_MAX)
		i++;
	(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_UMR_FIELD, "entry %u: bytes_count %" PRIu32 " + bytes_skip %" PRIu32, i,
			    data[i].bytes_count, data[i].bytes_skip);
}

/* RETURN no entries if a stride is too long. */
SMX_INLINE struct extent put_interleaved(struct smx_cursor xlt, uint32_t repeat, uint16_t n,
					 const struct mlx5dv_mr_interleaved *data)
{
	void *head = smx_cursor_next(&xlt);
	uint32_t turn = 0;	/* bytes; at most 63 entries of 65535 */
	uint64_t strides = 0;	/* the bits of all */

	for (uint32_t left = n; left; left--, data++) {
		uint64_t stride = stride_of(data);

		strides |= stride;
		/* struct smx_wqe_repeat_ent */
		smx_seg_set(smx_cursor_next(&xlt), be64_of(to_be32((uint32_t)stride << 16 | data->bytes_count),
							   to_be32(data->lkey)), to_be64(data->addr));
		turn += data->bytes_count;
	}
	if (strides > UINT16_MAX)
		return (struct extent){ 0 };
	/* struct smx_wqe_repeat_block */
	smx_seg_set(head, to_be64((uint64_t)turn << 32 | SMX_REPEAT_OP), to_be64((uint64_t)repeat << 32 | n));
	return end_layout(&xlt, 1u + n, (uint64_t)turn * repeat);
}

/* Setters of mlx5dv_wr_mkey_configure */

/* A configuration waits for this setter, which was not called before. */
SMX_INLINE bool may_set_mkey(const struct smx_dv_qp *qp, uint8_t have)
{
	return qp->sq.wr.open.state & SMX_NEED_MKEY && !(qp->sq.wr.open.have & have);
}

static SMX_SELDOM_CALLED void refuse_mkey_setter(struct smx_dv_qp *qp, const char *name)
{
	if (qp->sq.wr.open.state & SMX_NEED_MKEY)
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SETTER, "%s twice for lkey 0x%08" PRIx32, name,
				    qp->sq.wr.mkey->lkey);
	else
		smx_sq_refuse_setter(qp, name);
}

SMX_INLINE void end_configuration(struct smx_dv_qp *qp, struct smx_wqe_ctrl *ctrl, uint32_t ds)
{
	qp->sq.wr.open.state = SMX_WR_READY;
	smx_wqe_close(&qp->sq, ctrl, ds, SMX_CTRL_SMALL_FENCE);
}

/* more: segments behind those that were counted. */
SMX_INLINE void mkey_setter_done(struct smx_dv_qp *qp, struct smx_wqe_ctrl *ctrl, uint8_t have, uint64_t mask,
				 uint32_t more)
{
	struct smx_wqe_umr_ctrl *umr = (void *)(ctrl + 1);
	uint32_t ds = qp->sq.wr.open.ds + more;

	umr->mkey_mask = be64_or(umr->mkey_mask, to_be64(mask));
	qp->sq.wr.open.have |= have;
	if (!--qp->sq.wr.open.mkey_setters_left)
		end_configuration(qp, ctrl, ds);
	else if (more)
		qp->sq.wr.open.ds = (uint8_t)ds;
}

SMX_INLINE void mkey_layout_done(struct smx_dv_qp *qp, struct smx_wqe_mkey_ctx *ctx, struct extent layout)
{
	struct smx_wqe_ctrl *ctrl = qp->sq.wr.last;
	struct smx_wqe_umr_ctrl *umr = (void *)(ctrl + 1);

	umr->klm_octowords = to_be16((uint16_t)layout.entries);
	ctx->len = to_be64(layout.length);
	mkey_setter_done(qp, ctrl, SMX_HAVE_LAYOUT, SMX_UMR_MASK_LEN, layout.entries);
}

SMX_INLINE void put_configuration(struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey, uint8_t num_setters)
{
	struct smx_wqe_ctrl *ctrl = configure_open(qp, 0, mkey);
	struct smx_dv_sq *sq = &qp->sq;
	struct smx_wqe_mkey_ctx *ctx = mkey_ctx_of(sq, ctrl);

	sq->wr.mkey = mkey;
	sq->wr.last = ctrl;
	sq->wr.data = ctx;
	put_umr_ctrl(ctrl, 0, 0, MASK_CONFIGURE);
	put_mkey_ctx(ctx, 0, 0, ANY_QP, mkey->lkey, 0, 0);
	sq->wr.open = (struct smx_wr_open){ SMX_NEED_MKEY, XLT_AT_DS, num_setters, SMX_HAVE_INLINE };
	if (!num_setters)
		end_configuration(qp, ctrl, XLT_AT_DS);
}

static SMX_SELDOM_CALLED void configure_unready(struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey,
						uint8_t num_setters, const struct mlx5dv_mkey_conf_attr *attr)
{
	if (configure_make_ready(qp, MLX5DV_QP_EX_WITH_MKEY_CONFIGURE, mkey, attr, "mlx5dv_wr_mkey_configure"))
		put_configuration(qp, mkey, num_setters);
}

static void wr_mkey_configure(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint8_t num_setters,
			      struct mlx5dv_mkey_conf_attr *attr)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (configure_ready(qp, MLX5DV_QP_EX_WITH_MKEY_CONFIGURE, mkey, attr))
		put_configuration(qp, mkey, num_setters);
	else
		configure_unready(qp, mkey, num_setters, attr);
}

static void wr_set_mkey_access_flags(struct mlx5dv_qp_ex *dv, uint32_t access)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);
	struct smx_wqe_mkey_ctx *ctx;

	if (!may_set_mkey(qp, SMX_HAVE_ACCESS)) {
		refuse_mkey_setter(qp, "mlx5dv_wr_set_mkey_access_flags");
	} else if (!access_allowed(access)) {
		refuse_access(qp, access);
	} else {
		ctx = qp->sq.wr.data;
		ctx->access = access_bits(access);
		mkey_setter_done(qp, qp->sq.wr.last, SMX_HAVE_ACCESS, MASK_ACCESS, 0);
	}
}

static void wr_set_mkey_layout_list(struct mlx5dv_qp_ex *dv, uint16_t n, const struct ibv_sge *sge)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (!may_set_mkey(qp, SMX_HAVE_LAYOUT))
		refuse_mkey_setter(qp, "mlx5dv_wr_set_mkey_layout_list");
	else if (!layout_fits(qp, qp->sq.wr.mkey, n))
		refuse_layout(qp, qp->sq.wr.mkey, n);
	else
		mkey_layout_done(qp, qp->sq.wr.data, put_list(xlt_of(&qp->sq, qp->sq.wr.data), n, sge));
}

static void wr_set_mkey_layout_interleaved(struct mlx5dv_qp_ex *dv, uint32_t repeat, uint16_t n,
					   const struct mlx5dv_mr_interleaved *data)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);
	struct extent layout;

	if (!may_set_mkey(qp, SMX_HAVE_LAYOUT)) {
		refuse_mkey_setter(qp, "mlx5dv_wr_set_mkey_layout_interleaved");
	} else if (!layout_fits(qp, qp->sq.wr.mkey, 1u + n)) {
		refuse_layout(qp, qp->sq.wr.mkey, 1u + n);
	} else {
		layout = put_interleaved(xlt_of(&qp->sq, qp->sq.wr.data), repeat, n, data);
		if (layout.entries)
			mkey_layout_done(qp, qp->sq.wr.data, layout);
		else
			refuse_stride(qp, data);
	}
}

/* The builders that are a configuration with both setters in one call. */

/* All but the translation, which is written. */
SMX_INLINE void put_whole(struct smx_dv_qp *qp, struct smx_wqe_ctrl *ctrl, const struct mlx5dv_mkey *mkey,
			  uint32_t access, struct extent layout)
{
	put_umr_ctrl(ctrl, 0, layout.entries, MASK_BOTH);
	put_mkey_ctx(mkey_ctx_of(&qp->sq, ctrl), 0, access_bits(access), ANY_QP, mkey->lkey, 0, layout.length);
	qp->sq.wr.open.have = SMX_HAVE_INLINE;
	smx_wqe_finish(&qp->sq, ctrl, XLT_AT_DS + layout.entries, SMX_CTRL_SMALL_FENCE);
}

SMX_INLINE void mr_list(struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey, uint32_t access, uint16_t n,
			const struct ibv_sge *sge)
{
	struct smx_wqe_ctrl *ctrl;

	if (!access_allowed(access)) {
		refuse_access(qp, access);
	} else if (!layout_fits(qp, mkey, n)) {
		refuse_layout(qp, mkey, n);
	} else {
		ctrl = configure_open(qp, XLT_AT_DS + padded(n), mkey);
		put_whole(qp, ctrl, mkey, access, put_list(xlt_of(&qp->sq, mkey_ctx_of(&qp->sq, ctrl)), n, sge));
	}
}

static SMX_SELDOM_CALLED void mr_list_unready(struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey, uint32_t access,
					      uint16_t n, const struct ibv_sge *sge)
{
	if (configure_make_ready(qp, MLX5DV_QP_EX_WITH_MR_LIST, mkey, &no_attr, "mlx5dv_wr_mr_list"))
		mr_list(qp, mkey, access, n, sge);
}

static void wr_mr_list(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access, uint16_t n,
		       struct ibv_sge *sge)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (configure_ready(qp, MLX5DV_QP_EX_WITH_MR_LIST, mkey, &no_attr))
		mr_list(qp, mkey, access, n, sge);
	else
		mr_list_unready(qp, mkey, access, n, sge);
}

SMX_INLINE void mr_interleaved(struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey, uint32_t access, uint32_t repeat,
			       uint16_t n, const struct mlx5dv_mr_interleaved *data)
{
	struct smx_wqe_ctrl *ctrl;
	struct extent layout;

	if (!access_allowed(access)) {
		refuse_access(qp, access);
	} else if (!layout_fits(qp, mkey, 1u + n)) {
		refuse_layout(qp, mkey, 1u + n);
	} else {
		ctrl = configure_open(qp, XLT_AT_DS + padded(1u + n), mkey);
		layout = put_interleaved(xlt_of(&qp->sq, mkey_ctx_of(&qp->sq, ctrl)), repeat, n, data);
		if (layout.entries)
			put_whole(qp, ctrl, mkey, access, layout);
		else
			refuse_stride(qp, data);
	}
}

static SMX_SELDOM_CALLED void mr_interleaved_unready(struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey,
						     uint32_t access, uint32_t repeat, uint16_t n,
						     const struct mlx5dv_mr_interleaved *data)
{
	if (configure_make_ready(qp, MLX5DV_QP_EX_WITH_MR_INTERLEAVED, mkey, &no_attr, "mlx5dv_wr_mr_interleaved"))
		mr_interleaved(qp, mkey, access, repeat, n, data);
}

static void wr_mr_interleaved(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access,
			      uint32_t repeat, uint16_t n, struct mlx5dv_mr_interleaved *data)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (configure_ready(qp, MLX5DV_QP_EX_WITH_MR_INTERLEAVED, mkey, &no_attr))
		mr_interleaved(qp, mkey, access, repeat, n, data);
	else
		mr_interleaved_unready(qp, mkey, access, repeat, n, data);
}

static void not_offered(struct mlx5dv_qp_ex *dv, const char *name)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (!qp->sq.wr.err)
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_NOT_OFFERED, "%s", name);
}

static void wr_set_mkey_sig_block(struct mlx5dv_qp_ex *dv, const struct mlx5dv_sig_block_attr *attr)
{
	(void)attr;
	not_offered(dv, "mlx5dv_wr_set_mkey_sig_block");
}

static void wr_set_mkey_crypto(struct mlx5dv_qp_ex *dv, const struct mlx5dv_crypto_attr *attr)
{
	(void)attr;
	not_offered(dv, "mlx5dv_wr_set_mkey_crypto");
}

const struct mlx5dv_qp_ex smx_wr_dv_ops = {
	.wr_set_dc_addr = smx_wr_set_dc_addr,
	.wr_mr_interleaved = wr_mr_interleaved,
	.wr_mr_list = wr_mr_list,
	.wr_mkey_configure = wr_mkey_configure,
	.wr_set_mkey_access_flags = wr_set_mkey_access_flags,
	.wr_set_mkey_layout_list = wr_set_mkey_layout_list,
	.wr_set_mkey_layout_interleaved = wr_set_mkey_layout_interleaved,
	.wr_set_mkey_sig_block = wr_set_mkey_sig_block,
	.wr_raw_wqe = smx_wr_raw_wqe,
	.wr_set_dc_addr_stream = smx_wr_set_dc_addr_stream,
	.wr_memcpy = smx_wr_memcpy,
	.wr_set_mkey_crypto = wr_set_mkey_crypto,
};
