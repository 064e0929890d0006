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

/* Of enum ibv_access_flags' lowest four. */
static uint8_t access_bits(uint32_t access)
{
	static const uint8_t local[2] = { 0, SMX_MKC_LOCAL_WRITE }, atomic[2] = { 0, SMX_MKC_ATOMIC };
	static const uint8_t remote[4] = { 0, SMX_MKC_REMOTE_WRITE, SMX_MKC_REMOTE_READ,
					   SMX_MKC_REMOTE_WRITE | SMX_MKC_REMOTE_READ };

	_Static_assert(IBV_ACCESS_LOCAL_WRITE == 1 && IBV_ACCESS_REMOTE_WRITE == 2 &&
		       IBV_ACCESS_REMOTE_READ == 4 && IBV_ACCESS_REMOTE_ATOMIC == 8, "bits are indices");
	return local[access & 1] | remote[access >> 1 & 3] | atomic[access >> 3 & 1];
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

void smx_wqe_put_bind(struct smx_dv_qp *qp, enum ibv_mw_type type, uint32_t rkey,
		      const struct ibv_mw_bind_info *info)
{
	struct smx_dv_sq *sq = &qp->sq;
	bool bind = info->length, type2 = type == IBV_MW_TYPE_2;
	uint32_t owner = type2 && bind ? qp->qpn : 0xffffff;
	uint8_t check = !type2 ? 0 : bind ? SMX_UMR_CHECK_FREE : SMX_UMR_CHECK_QPN;
	struct smx_wqe_mkey_ctx ctx = {
		.qpn_mkey = to_be32(bits_put(owner, 31, 8) | bits_put(rkey, 7, 0)),
	};

	*(struct smx_wqe_umr_ctrl *)smx_wqe_put(sq, UMR_CTRL_DS) = (struct smx_wqe_umr_ctrl){
		.flags = SMX_UMR_INLINE | SMX_UMR_XLT_OFFSET | check,
		.klm_octowords = to_be16(bind ? XLT_ALIGN : 0),
		.mkey_mask = to_be64(SMX_UMR_MASK_FREE | SMX_UMR_MASK_MKEY | (type2 ? SMX_UMR_MASK_QPN : 0) |
				     (bind ? SMX_UMR_MASK_LEN | SMX_UMR_MASK_START_ADDR | MASK_ACCESS : 0)),
	};
	if (bind) {
		ctx.access = access_bits(info->mw_access_flags);
		ctx.start_addr = to_be64(info->mw_access_flags & IBV_ACCESS_ZERO_BASED ? 0 : info->addr);
		ctx.len = to_be64(info->length);
	} else {
		ctx.free = SMX_MKC_FREE;
	}
	*(struct smx_wqe_mkey_ctx *)smx_wqe_put(sq, MKEY_CTX_DS) = ctx;
	if (!bind)
		return;
	*(struct smx_wqe_klm *)smx_wqe_put(sq, 1) = (struct smx_wqe_klm){
		.byte_count = to_be32((uint32_t)info->length),
		.mkey = to_be32(info->mr->lkey),
		.va = to_be64(info->addr),
	};
	for (int i = 1; i < XLT_ALIGN; i++)
		*(struct smx_wqe_klm *)smx_wqe_put(sq, 1) = (struct smx_wqe_klm){ 0 };
}

static void window(struct smx_dv_qp *qp, uint32_t old_rkey, uint32_t rkey,
		   const struct ibv_mw_bind_info *info, uint32_t wc_opcode)
{
	smx_wqe_open(qp, SMX_OP_UMR, to_be32(old_rkey), qp->ex.wr_flags, wc_opcode, qp->ex.wr_id, 1);
	smx_wqe_put_bind(qp, IBV_MW_TYPE_2, rkey, info);
	smx_wqe_close(qp, qp->sq.wr.ds);
	qp->sq.fm_cache = SMX_CTRL_SMALL_FENCE;
}

void smx_wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		    const struct ibv_mw_bind_info *info)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	if (smx_wr_may_build(qp, qp->send_ops & IBV_QP_EX_WITH_BIND_MW, "ibv_wr_bind_mw") &&
	    !smx_wqe_check_bind(qp, info))
		window(qp, mw->rkey, rkey, info, IBV_WC_BIND_MW);
}

void smx_wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_ex(ex);

	if (smx_wr_may_build(qp, qp->send_ops & IBV_QP_EX_WITH_LOCAL_INV, "ibv_wr_local_inv"))
		window(qp, rkey, 0, &(struct ibv_mw_bind_info){ 0 }, IBV_WC_LOCAL_INV);
}

/* Memory key configuration */

static struct smx_wqe_umr_ctrl *umr_ctrl(const struct smx_dv_sq *sq)
{
	return (struct smx_wqe_umr_ctrl *)(void *)(sq->wr.ctrl + 1);
}

static struct smx_wqe_mkey_ctx *mkey_ctx(const struct smx_dv_sq *sq)
{
	return smx_wqe_seg(sq, CTX_AT_DS);
}

SMX_INLINE bool configure_ok(const struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey,
			     const struct mlx5dv_mkey_conf_attr *attr)
{
	return qp->ex.wr_flags & IBV_SEND_INLINE &&
	       !(attr->conf_flags & ~(uint32_t)MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR) && !attr->comp_mask &&
	       (!(mkey->lkey & 0xff) || qp->ctx.mkey_update_tag);
}

/* The first that is wrong of configure_ok(). Always false. */
static __attribute__((cold, noinline)) bool refuse_configure(struct smx_dv_qp *qp, const struct mlx5dv_mkey *mkey,
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
	return false;
}

/* Opens the request. mask: which fields of the context it names by the time it is closed or a setter comes. */
SMX_INLINE bool configure(struct smx_dv_qp *qp, uint64_t ops_flag, const struct mlx5dv_mkey *mkey,
			  const struct mlx5dv_mkey_conf_attr *attr, uint64_t mask, const char *name)
{
	struct smx_dv_sq *sq = &qp->sq;
	bool allowed = qp->dv_ops & ops_flag;

	/* libmlx5 lets what is wrong with the arguments override an earlier failure of the batch. */
	if (SMX_SELDOM(!configure_ok(qp, mkey, attr)) && sq->wr.state && allowed)
		return refuse_configure(qp, mkey, attr);
	if (!smx_wr_may_build(qp, allowed, name))
		return false;
	smx_wqe_open(qp, SMX_OP_UMR, to_be32(mkey->lkey), qp->ex.wr_flags, MLX5DV_WC_UMR, qp->ex.wr_id,
		     XLT_AT_DS);
	*umr_ctrl(sq) = (struct smx_wqe_umr_ctrl){
		.flags = SMX_UMR_INLINE,
		.mkey_mask = to_be64(mask),
	};
	*mkey_ctx(sq) = (struct smx_wqe_mkey_ctx){
		.qpn_mkey = to_be32(0xffffff00 | bits_put(mkey->lkey, 7, 0)),
	};
	sq->fm_cache = SMX_CTRL_SMALL_FENCE;
	sq->wr.inline_seen = true;
	return true;
}

static bool access_allowed(struct smx_dv_qp *qp, uint32_t access)
{
	if (!(access & ~(uint32_t)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC)))
		return true;
	(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_UMR_ACCESS, "access flags 0x%" PRIx32, access);
	return false;
}

/* entries: what the layout takes in the mkey, its header included. */
static bool layout_fits(struct smx_dv_qp *qp, const struct mlx5dv_mkey *dv_mkey, uint32_t entries)
{
	const struct smx_dv_mkey *mkey = container_of(dv_mkey, const struct smx_dv_mkey, dv);
	uint32_t room = (qp->sq.max_inline + (uint32_t)sizeof(struct smx_wqe_inline)) / SMX_WQE_DS;
	uint32_t of_mkey = (uint32_t)align_up(mkey->max_entries, XLT_ALIGN);

	if (entries <= room && entries <= of_mkey)
		return true;
	(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_UMR_ENTRIES, "entries %" PRIu32 " (a strided layout takes one for "
			    "its header), the mkey has %" PRIu32 ", the queue pair's WQE %" PRIu32
			    " (max_inline_data %" PRIu32 ")", entries, of_mkey, room, qp->sq.max_inline);
	return false;
}

/* Pads the translation of the open request and enters its size and the key's length. RETURN how many segments the
 * request has. */
SMX_INLINE uint32_t end_layout(struct smx_dv_sq *sq, struct smx_cursor *xlt, uint32_t entries, uint64_t length)
{
	uint32_t padded = (uint32_t)align_up(entries, XLT_ALIGN);

	for (uint32_t i = entries; i < padded; i++)
		*(struct smx_wqe_klm *)smx_cursor_next(xlt) = (struct smx_wqe_klm){ 0 };
	umr_ctrl(sq)->klm_octowords = to_be16((uint16_t)padded);
	mkey_ctx(sq)->len = to_be64(length);
	return XLT_AT_DS + padded;
}

/* RETURN as end_layout(). */
SMX_INLINE uint32_t put_list(struct smx_dv_sq *sq, uint16_t n, const struct ibv_sge *sge)
{
	struct smx_cursor xlt = smx_cursor_at(sq, sq->cur_post, XLT_AT_DS);
	uint64_t length = 0;

	for (uint16_t i = 0; i < n; i++) {
		/* struct smx_wqe_klm */
		smx_seg_data(smx_cursor_next(&xlt), sge[i].addr, sge[i].length, sge[i].lkey);
		length += sge[i].length;
	}
	return end_layout(sq, &xlt, n, length);
}

static bool strides_fit(struct smx_dv_qp *qp, uint16_t n, const struct mlx5dv_mr_interleaved *data)
{
	for (uint16_t i = 0; i < n; i++) {
		if ((uint64_t)data[i].bytes_count + data[i].bytes_skip > UINT16_MAX) {
			(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_UMR_FIELD, "entry %u: bytes_count %" PRIu32
					    " + bytes_skip %" PRIu32, i, data[i].bytes_count,
					    data[i].bytes_skip);
			return false;
		}
	}
	return true;
}

/* RETURN as end_layout(). */
SMX_INLINE uint32_t put_interleaved(struct smx_dv_sq *sq, uint32_t repeat, uint16_t n,
				    const struct mlx5dv_mr_interleaved *data)
{
	struct smx_cursor xlt = smx_cursor_at(sq, sq->cur_post, XLT_AT_DS);
	void *head = smx_cursor_next(&xlt);
	uint32_t turn = 0;	/* bytes; at most 63 entries of 65535 */

	for (uint16_t i = 0; i < n; i++) {
		uint32_t stride = data[i].bytes_count + data[i].bytes_skip;

		/* struct smx_wqe_repeat_ent */
		smx_seg_set(smx_cursor_next(&xlt),
			    (uint64_t)(stride << 16 | data[i].bytes_count) << 32 | data[i].lkey, data[i].addr);
		turn += data[i].bytes_count;
	}
	/* struct smx_wqe_repeat_block */
	smx_seg_set(head, (uint64_t)turn << 32 | SMX_REPEAT_OP, (uint64_t)repeat << 32 | n);
	return end_layout(sq, &xlt, 1u + n, (uint64_t)turn * repeat);
}

/* Setters of mlx5dv_wr_mkey_configure */

/* A configuration waits for this setter, which was not called before. */
static bool may_set_mkey(struct smx_dv_qp *qp, uint8_t have, const char *name)
{
	if (!smx_wr_may_set(qp, SMX_NEED_MKEY, name))
		return false;
	if (qp->sq.wr.mkey_have & have) {
		(void)SMX_SQ_REFUSE(qp, SMX_CHECK_POST_SETTER, "%s twice for lkey 0x%08" PRIx32, name,
				    qp->sq.wr.mkey->lkey);
		return false;
	}
	return true;
}

static void mkey_setter_done(struct smx_dv_qp *qp, uint8_t have, uint64_t mask, uint32_t ds)
{
	struct smx_wqe_umr_ctrl *umr = umr_ctrl(&qp->sq);

	umr->mkey_mask = to_be64(from_be64(umr->mkey_mask) | mask);
	qp->sq.wr.mkey_have |= have;
	qp->sq.wr.ds = ds;
	if (!--qp->sq.wr.mkey_setters_left)
		smx_wr_setter_done(qp, SMX_NEED_MKEY, ds);
}

static void wr_mkey_configure(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint8_t num_setters,
			      struct mlx5dv_mkey_conf_attr *attr)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (!configure(qp, MLX5DV_QP_EX_WITH_MKEY_CONFIGURE, mkey, attr, MASK_CONFIGURE,
		       "mlx5dv_wr_mkey_configure"))
		return;
	qp->sq.wr.mkey = mkey;
	qp->sq.wr.mkey_have = 0;
	qp->sq.wr.mkey_setters_left = num_setters;
	if (num_setters)
		qp->sq.wr.state = SMX_WR_OPEN | SMX_NEED_MKEY;
	else
		smx_wqe_close(qp, qp->sq.wr.ds);
}

static void wr_set_mkey_access_flags(struct mlx5dv_qp_ex *dv, uint32_t access)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (!may_set_mkey(qp, SMX_HAVE_ACCESS, "mlx5dv_wr_set_mkey_access_flags") || !access_allowed(qp, access))
		return;
	mkey_ctx(&qp->sq)->access = access_bits(access);
	mkey_setter_done(qp, SMX_HAVE_ACCESS, MASK_ACCESS, qp->sq.wr.ds);
}

static void wr_set_mkey_layout_list(struct mlx5dv_qp_ex *dv, uint16_t n, const struct ibv_sge *sge)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (may_set_mkey(qp, SMX_HAVE_LAYOUT, "mlx5dv_wr_set_mkey_layout_list") &&
	    layout_fits(qp, qp->sq.wr.mkey, n))
		mkey_setter_done(qp, SMX_HAVE_LAYOUT, SMX_UMR_MASK_LEN, put_list(&qp->sq, n, sge));
}

static void wr_set_mkey_layout_interleaved(struct mlx5dv_qp_ex *dv, uint32_t repeat, uint16_t n,
					   const struct mlx5dv_mr_interleaved *data)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (may_set_mkey(qp, SMX_HAVE_LAYOUT, "mlx5dv_wr_set_mkey_layout_interleaved") &&
	    layout_fits(qp, qp->sq.wr.mkey, 1u + n) && strides_fit(qp, n, data))
		mkey_setter_done(qp, SMX_HAVE_LAYOUT, SMX_UMR_MASK_LEN,
				 put_interleaved(&qp->sq, repeat, n, data));
}

/* The builders that are a configuration with both setters in one call. */

static void wr_mr_list(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access, uint16_t n,
		       struct ibv_sge *sge)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (!configure(qp, MLX5DV_QP_EX_WITH_MR_LIST, mkey, &(struct mlx5dv_mkey_conf_attr){ 0 }, MASK_BOTH,
		       "mlx5dv_wr_mr_list") ||
	    !access_allowed(qp, access) || !layout_fits(qp, mkey, n))
		return;
	mkey_ctx(&qp->sq)->access = access_bits(access);
	smx_wqe_close(qp, put_list(&qp->sq, n, sge));
}

static void wr_mr_interleaved(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access,
			      uint32_t repeat, uint16_t n, struct mlx5dv_mr_interleaved *data)
{
	struct smx_dv_qp *qp = smx_dv_qp_of_dv(dv);

	if (!configure(qp, MLX5DV_QP_EX_WITH_MR_INTERLEAVED, mkey, &(struct mlx5dv_mkey_conf_attr){ 0 }, MASK_BOTH,
		       "mlx5dv_wr_mr_interleaved") ||
	    !access_allowed(qp, access) || !layout_fits(qp, mkey, 1u + n) || !strides_fit(qp, n, data))
		return;
	mkey_ctx(&qp->sq)->access = access_bits(access);
	smx_wqe_close(qp, put_interleaved(&qp->sq, repeat, n, data));
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
