/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One request by either posting API, one receive, completions with their raw bytes. The second half of t.h, which
 * includes it. */
#ifndef T_OPS_H
#define T_OPS_H

#include "t.h"

/* ---- one request ---- */

enum t_setter { T_SGE, T_SGE_LIST, T_INLINE, T_INLINE_LIST, T_NO_DATA };

struct t_op {
	enum ibv_wr_opcode op;
	uint64_t wr_id;
	unsigned int flags;		/* IBV_SEND_* */
	enum t_setter set;
	struct ibv_sge sge[8];		/* inline setters take addresses and lengths from here, too */
	int nsge;
	uint32_t rkey, imm, inv;	/* imm in host order */
	uint64_t raddr, compare_add, swap;
	struct ibv_mw *mw;		/* BIND_MW; rkey is the new key */
	struct ibv_mw_bind_info bind;
	struct ibv_ah *ah;		/* UD, DC */
	uint32_t dest, qkey;		/* QP or DCT number */
	uint64_t dc_key;
	int stream;			/* -1: mlx5dv_wr_set_dc_addr; >= 0: _stream */
};

static inline struct ibv_sge t_sge(const struct t_buf *b, size_t at, uint32_t len)
{
	return (struct ibv_sge) { .addr = b->va + at, .length = len, .lkey = b->key };
}

static inline struct t_op t_op(enum ibv_wr_opcode op, uint64_t wr_id, struct ibv_sge sge)
{
	return (struct t_op){
		.op = op, .wr_id = wr_id, .flags = IBV_SEND_SIGNALED, .sge = { sge }, .nsge = 1, .stream = -1
	};
}

/* An RDMA or atomic request: local entry, remote key and address. */
static inline struct t_op t_rdma(enum ibv_wr_opcode op, uint64_t wr_id, struct ibv_sge sge, uint32_t rkey,
				 uint64_t raddr)
{
	struct t_op o = t_op(op, wr_id, sge);

	o.rkey = rkey;
	o.raddr = raddr;
	return o;
}

static inline void t_set_data(struct ibv_qp_ex *ex, const struct t_op *o)
{
	struct ibv_data_buf buf[8];

	for (int i = 0; i < o->nsge; i++)
		buf[i] = (struct ibv_data_buf) { (void *)(uintptr_t)o->sge[i].addr, o->sge[i].length };
	switch (o->set) {
	case T_SGE:
		if (o->nsge)
			ibv_wr_set_sge(ex, o->sge[0].lkey, o->sge[0].addr, o->sge[0].length);
		else
			ibv_wr_set_sge_list(ex, 0, o->sge);
		break;
	case T_SGE_LIST:
		ibv_wr_set_sge_list(ex, o->nsge, o->sge);
		break;
	case T_INLINE:
		ibv_wr_set_inline_data(ex, buf[0].addr, buf[0].length);
		break;
	case T_INLINE_LIST:
		ibv_wr_set_inline_data_list(ex, o->nsge, buf);
		break;
	case T_NO_DATA:
		break;
	}
}

/* Builds o inside an open batch. */
static inline void t_build(struct t_qp *q, const struct t_op *o)
{
	struct ibv_qp_ex *ex = q->ex;

	ex->wr_id = o->wr_id;
	ex->wr_flags = o->flags;
	switch (o->op) {
	case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(ex, o->rkey, o->raddr); break;
	case IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write_imm(ex, o->rkey, o->raddr, htobe32(o->imm)); break;
	case IBV_WR_SEND: ibv_wr_send(ex); break;
	case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(ex, htobe32(o->imm)); break;
	case IBV_WR_SEND_WITH_INV: ibv_wr_send_inv(ex, o->inv); break;
	case IBV_WR_RDMA_READ: ibv_wr_rdma_read(ex, o->rkey, o->raddr); break;
	case IBV_WR_ATOMIC_CMP_AND_SWP: ibv_wr_atomic_cmp_swp(ex, o->rkey, o->raddr, o->compare_add, o->swap); break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD: ibv_wr_atomic_fetch_add(ex, o->rkey, o->raddr, o->compare_add); break;
	case IBV_WR_LOCAL_INV: ibv_wr_local_inv(ex, o->inv); return;
	case IBV_WR_BIND_MW: ibv_wr_bind_mw(ex, o->mw, o->rkey, &o->bind); return;
	default: t_fail(__FILE__, __LINE__, "no builder for opcode %d", o->op); t_leave();
	}
	t_set_data(ex, o);
	if (o->ah && q->qp->qp_type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(ex, o->ah, o->dest, o->qkey);
	else if (o->ah && o->stream >= 0)
		mlx5dv_wr_set_dc_addr_stream(q->dv, o->ah, o->dest, o->dc_key, o->stream);
	else if (o->ah)
		mlx5dv_wr_set_dc_addr(q->dv, o->ah, o->dest, o->dc_key);
}

/* One batch of n requests by ibv_wr_*. RETURN ibv_wr_complete()'s. */
static inline int t_post_n(struct t_qp *q, const struct t_op *o, int n)
{
	ibv_wr_start(q->ex);
	for (int i = 0; i < n; i++)
		t_build(q, &o[i]);
	return ibv_wr_complete(q->ex);
}

/* One request by ibv_post_send. */
static inline int t_post_old(struct t_qp *q, const struct t_op *o)
{
	struct ibv_send_wr *bad, wr = { .wr_id = o->wr_id, .opcode = o->op, .sg_list = (struct ibv_sge *)o->sge,
		.num_sge = o->nsge, .send_flags = o->flags };
	int rc;

	if (o->set == T_INLINE || o->set == T_INLINE_LIST)
		wr.send_flags |= IBV_SEND_INLINE;
	if (o->op == IBV_WR_SEND_WITH_IMM || o->op == IBV_WR_RDMA_WRITE_WITH_IMM)
		wr.imm_data = htobe32(o->imm);
	if (o->op == IBV_WR_LOCAL_INV || o->op == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = o->inv;
	if (o->op == IBV_WR_ATOMIC_CMP_AND_SWP || o->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = o->raddr;
		wr.wr.atomic.rkey = o->rkey;
		wr.wr.atomic.compare_add = o->compare_add;
		wr.wr.atomic.swap = o->swap;
	} else if (q->qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = o->ah;
		wr.wr.ud.remote_qpn = o->dest;
		wr.wr.ud.remote_qkey = o->qkey;
	} else {
		wr.wr.rdma.remote_addr = o->raddr;
		wr.wr.rdma.rkey = o->rkey;
	}
	if (o->op == IBV_WR_BIND_MW) {
		wr.bind_mw.mw = o->mw;
		wr.bind_mw.rkey = o->rkey;
		wr.bind_mw.bind_info = o->bind;
	}
	rc = ibv_post_send(q->qp, &wr, &bad);
	if (rc)
		EXPECT(bad == &wr, "bad_wr does not name the request");
	return rc;
}

/* One request, by the newer API where the queue pair has it. */
static inline int t_post(struct t_qp *q, const struct t_op *o)
{
	return q->ex ? t_post_n(q, o, 1) : t_post_old(q, o);
}

static inline void t_recv(struct t_qp *q, uint64_t wr_id, struct ibv_sge sge)
{
	struct ibv_recv_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };

	errno = ibv_post_recv(q->qp, &wr, &bad);
	MUST(!errno, "ibv_post_recv");
}

static inline void t_srq_recv(struct ibv_srq *srq, uint64_t wr_id, struct ibv_sge sge)
{
	struct ibv_recv_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };

	errno = ibv_post_srq_recv(srq, &wr, &bad);
	MUST(!errno, "ibv_post_srq_recv");
}

/* ---- completions ---- */

struct t_wc {
	struct ibv_wc wc;
	uint8_t raw[64];	/* the CQE it came from */
};

/* The bytes of the CQE that was polled last: the one before the consumer index in the doorbell record. */
static inline void t_raw_cqe(struct ibv_cq *cq, uint8_t raw[64])
{
	struct mlx5dv_cq out = { 0 };
	struct mlx5dv_obj obj = { .cq = { .in = cq, .out = &out } };
	uint32_t ci;

	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	ci = be32toh(*(volatile __be32 *)out.dbrec) & 0xffffff;
	memcpy(raw, (uint8_t *)out.buf + (size_t)((ci - 1) & (out.cqe_cnt - 1)) * out.cqe_size + out.cqe_size - 64, 64);
}

static inline uint64_t t_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The next completion; the case ends if none comes in ten seconds. */
static inline struct t_wc t_poll(struct ibv_cq *cq)
{
	uint64_t end = t_now_ms() + 10000;
	struct t_wc out;
	int n;

	memset(&out, 0, sizeof(out));
	while ((n = ibv_poll_cq(cq, 1, &out.wc)) == 0)
		if (t_now_ms() > end) {
			t_fail(__FILE__, __LINE__, "no completion in ten seconds");
			t_leave();
		}
	MUST(n == 1, "ibv_poll_cq");
	t_raw_cqe(cq, out.raw);
	return out;
}

/* Nothing more is to come. Waits long enough for the device's thread to have done something wrong. */
#define T_QUIET(cq) t_quiet((cq), __FILE__, __LINE__)
static inline bool t_quiet(struct ibv_cq *cq, const char *file, int line)
{
	struct ibv_wc wc;

	for (int i = 0; i < 20; i++) {
		if (ibv_poll_cq(cq, 1, &wc) > 0) {
			t_fail(file, line, "unexpected completion: wr_id %" PRIu64 " %s", wc.wr_id,
			       ibv_wc_status_str(wc.status));
			return false;
		}
		usleep(500);
	}
	return true;
}

/* The next completion is a success of wr_id. */
#define T_DONE(cq, wr_id, opcode) t_want_done((cq), (wr_id), (int)(opcode), __FILE__, __LINE__)
static inline struct t_wc t_want_done(struct ibv_cq *cq, uint64_t wr_id, int opcode, const char *file, int line)
{
	struct t_wc got = t_poll(cq);

	if (got.wc.status != IBV_WC_SUCCESS || got.wc.wr_id != wr_id) {
		t_fail(file, line,
		       "completion of wr_id %" PRIu64
		       ": %s, vendor 0x%02x, hw 0x%02x; want success of %" PRIu64,
		       got.wc.wr_id, ibv_wc_status_str(got.wc.status), got.wc.vendor_err, got.raw[52], wr_id);
		t_leave();
	}
	if (opcode >= 0)
		t_expect_eq(got.wc.opcode, opcode, "completion opcode", file, line);
	return got;
}

/* Codes of a failed completion: enum ibv_wc_status, and bytes 55, 54, 52 of the CQE. */
struct t_codes { uint8_t status, syndrome, vendor, hw; };

#define T_FAILED(cq, wr_id, codes) t_want_failed((cq), (wr_id), (codes), __FILE__, __LINE__)
static inline struct t_wc t_want_failed(struct ibv_cq *cq, uint64_t wr_id, struct t_codes want,
					const char *file, int line)
{
	struct t_wc got = t_poll(cq);
	uint8_t op = got.raw[63] >> 4;

	if (got.wc.wr_id != wr_id || got.wc.status != want.status) {
		t_fail(file, line, "completion of wr_id %" PRIu64 ": %s; want wr_id %" PRIu64 ": %s", got.wc.wr_id,
		       ibv_wc_status_str(got.wc.status), wr_id, ibv_wc_status_str(want.status));
		return got;
	}
	t_expect_eq(got.raw[55], want.syndrome, "syndrome", file, line);
	t_expect_eq(got.raw[54], want.vendor, "vendor syndrome", file, line);
	t_expect_eq(got.raw[52], want.hw, "hw syndrome", file, line);
	t_expect_eq(got.wc.vendor_err, want.vendor, "vendor_err", file, line);
	if (op != MLX5_CQE_REQ_ERR && op != MLX5_CQE_RESP_ERR)
		t_fail(file, line, "CQE opcode is %u", op);
	if (got.wc.qp_num != ((uint32_t)got.raw[57] << 16 | got.raw[58] << 8 | got.raw[59]))
		t_fail(file, line, "qp_num of the completion is not that of the CQE");
	return got;
}

#endif
