/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: what rdma-core 65's test suite asks beyond that of 44, which Debian 12 cannot run: it works, or is refused
 * clearly. Method: a case for each; masks and structures that the installed headers lack are written out here. */
#include <dlfcn.h>

#include "t_why.h"

enum {
	CONTEXT_MASK_MAX_DC_RD_ATOM = 1 << 14,
	CONTEXT_MASK_OOO_RECV_WRS = 1 << 16,
	CREATE_OOO_DP = 1 << 7,
	EX_WITH_FLUSH = 1 << 11,
	EX_WITH_ATOMIC_WRITE = 1 << 12,
	ODP_FLUSH = 1 << 6,
	ODP_ATOMIC_WRITE = 1 << 7,
};

static struct t_env *env;
static struct t_buf src, dst;

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 65536, T_ALL);
	dst = t_buf(env, 65536, T_ALL);
}

struct newer {
	struct mlx5dv_context old;
	uint64_t max_dc_rd_atom, max_dc_init_rd_atom;
	uint32_t reg_c0[2];
	uint32_t max_rc, max_xrc, max_dct, max_ud, max_uc;
	uint32_t behind;
};

static struct newer query(uint64_t mask)
{
	struct newer n;

	memset(&n, 0x5a, sizeof(n));
	n.old.comp_mask = mask;
	EXPECT_EQ(mlx5dv_query_device(env->ctx, &n.old), 0, "mlx5dv_query_device");
	return n;
}

static struct ibv_qp *ooo_qp(enum ibv_qp_type type, uint32_t max_recv_wr, struct t_qp *cqs)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type, .send_cq = cqs->scq, .recv_cq = cqs->rcq, .pd = env->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .cap = { .max_send_wr = 16, .max_recv_wr = max_recv_wr,
							   .max_send_sge = 1, .max_recv_sge = 1 } };
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
					  .create_flags = CREATE_OOO_DP };

	return mlx5dv_create_qp(env->ctx, &attr, &dv);
}

/* MLX5DV_QP_CREATE_OOO_DP: receives may be used out of order, up to a number that the device names. */
static void out_of_order(const void *arg)
{
	struct newer n = query(CONTEXT_MASK_OOO_RECV_WRS | CONTEXT_MASK_MAX_DC_RD_ATOM);
	struct newer none = query(0), all = query(UINT64_MAX);
	struct t_spec spec = { 0 };
	struct t_pair p = t_pair(env, &spec);
	struct t_qp a = p.a, b = p.b;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, 64));
	struct ibv_qp *big;

	(void)arg;
	EXPECT_EQ(n.old.comp_mask, CONTEXT_MASK_OOO_RECV_WRS | CONTEXT_MASK_MAX_DC_RD_ATOM, "comp_mask");
	EXPECT(n.max_dc_rd_atom && n.max_dc_init_rd_atom && n.max_rc && n.max_xrc && n.max_dct && n.max_ud && n.max_uc,
	       "a capability is 0");
	EXPECT_EQ(n.behind, 0x5a5a5a5a, "what lies behind the structure");
	EXPECT_EQ(none.max_rc, 0x5a5a5a5a, "what was not asked for");
	EXPECT_EQ(all.max_dc_rd_atom, 0x5a5a5a5a5a5a5a5a, "behind an older structure, with every bit of comp_mask");
	big = ooo_qp(IBV_QPT_RC, n.max_rc, &p.a);
	MUST(big, "as many receives as the device names");
	EXPECT_EQ(ibv_query_qp(big, &attr, IBV_QP_CAP, &init), 0, "ibv_query_qp");
	EXPECT_EQ(init.cap.max_recv_wr, n.max_rc, "max_recv_wr");
	EXPECT_EQ(ibv_destroy_qp(big), 0, "ibv_destroy_qp");
	t_why_begin();
	EXPECT(!ooo_qp(IBV_QPT_RC, n.max_rc + 1, &p.a) && errno == EINVAL, "one more: errno %d", errno);
	T_WHY("QP_CAP", 0);
	EXPECT(!ooo_qp(IBV_QPT_RAW_PACKET, 16, &p.a) && errno == EOPNOTSUPP, "raw packet: errno %d", errno);
	a.qp = ooo_qp(IBV_QPT_RC, 16, &p.a);
	b.qp = ooo_qp(IBV_QPT_RC, 16, &p.b);
	MUST(a.qp && b.qp, "two of them");
	t_connect(env, &a, &b);
	t_recv(&b, 2, t_sge(&dst, 0, 64));
	t_fill(src.p, 64, 1);
	EXPECT_EQ(t_post_old(&a, &o), 0, "SEND");
	T_DONE(a.scq, 1, IBV_WC_SEND);
	T_DONE(b.rcq, 2, IBV_WC_RECV);
	EXPECT(t_is(dst.p, 64, 1), "data");
	EXPECT_EQ(ibv_destroy_qp(a.qp) | ibv_destroy_qp(b.qp), 0, "ibv_destroy_qp");
	t_pair_free(&p);
}

/* FLUSH and ATOMIC_WRITE: an mlx5 has neither. Not reported, refused by name of the mask. */
static void flush_and_atomic_write(const void *arg)
{
	static const uint64_t ops[] = { EX_WITH_FLUSH, EX_WITH_ATOMIC_WRITE };
	struct ibv_device_attr_ex ex;
	struct t_spec plain = { 0 };
	struct t_qp cqs = t_qp(env, &plain);

	(void)arg;
	EXPECT_EQ(ibv_query_device_ex(env->ctx, NULL, &ex), 0, "ibv_query_device_ex");
	EXPECT(!(ex.odp_caps.per_transport_caps.rc_odp_caps & (ODP_FLUSH | ODP_ATOMIC_WRITE)), "rc_odp_caps 0x%x",
	       ex.odp_caps.per_transport_caps.rc_odp_caps);
	for (int i = 0; i < 2; i++) {
		struct t_spec s = { .ops = IBV_QP_EX_WITH_SEND | ops[i] };

		t_why_begin();
		EXPECT(!t_create_qp(env, &s, cqs.scq, cqs.rcq) && errno == EOPNOTSUPP,
		       "send_ops_flags 0x%llx: errno %d", (unsigned long long)s.ops, errno);
		T_WHY("SEND_OPS", 0);
	}
	t_qp_free(&cqs);
}

/* A ConnectX does not resize SRQs, and does not say that it could. */
static void srq_resize(const void *arg)
{
	struct ibv_srq *srq = t_srq(env, 16);
	struct ibv_srq_attr attr = { .max_wr = 32 };

	(void)arg;
	EXPECT(!(env->attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE), "device_cap_flags has SRQ_RESIZE");
	EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL, "resizing an SRQ");
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

static void privileged_qkey(const void *arg)
{
	struct t_spec s = { .type = IBV_QPT_UD };
	struct t_qp q = t_qp(env, &s);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x80000000 }, got;
	struct ibv_qp_init_attr init;

	(void)arg;
	EXPECT_EQ(ibv_modify_qp(q.qp, &attr, T_UD_INIT_MASK), 0, "to INIT");
	EXPECT_EQ(ibv_query_qp(q.qp, &got, IBV_QP_QKEY, &init), 0, "ibv_query_qp");
	EXPECT_EQ(got.qkey, 0x80000000, "qkey");
	t_qp_free(&q);
}

static void read_limits_are_kept(const void *arg)
{
	struct t_spec s = { 0 };
	struct t_pair p = t_pair(env, &s);
	struct ibv_qp_attr attr = t_attr(env, p.b.qp->qp_num), got;
	struct ibv_qp_init_attr init;

	(void)arg;
	attr.max_rd_atomic = attr.max_dest_rd_atomic = 12;
	t_reset(p.a.qp);
	t_to_rts(p.a.qp, &attr);
	EXPECT_EQ(ibv_query_qp(p.a.qp, &got, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init), 0, "query");
	EXPECT(got.max_rd_atomic >= 12 && got.max_dest_rd_atomic >= 12, "max_rd_atomic %u, max_dest_rd_atomic %u",
	       got.max_rd_atomic, got.max_dest_rd_atomic);
	t_pair_free(&p);
}

static void fetch_add(struct t_pair *p, const struct t_buf *from, uint32_t rkey, uint64_t raddr,
		      enum ibv_wc_status want)
{
	struct t_op o = t_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, 3, t_sge(from, 0, 8), rkey, raddr);

	EXPECT_EQ(t_post_old(&p->a, &o), 0, "FETCH_AND_ADD");
	EXPECT_EQ(t_poll(p->a.scq).wc.status, want, "status");
}

/* The right to atomics taken away and given back by ibv_rereg_mr. */
static void rereg_atomic(const void *arg)
{
	struct t_buf mem = t_buf(env, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	struct t_spec s = { 0 };
	struct t_pair p = t_pair(env, &s);

	(void)arg;
	fetch_add(&p, &src, mem.key, mem.va, IBV_WC_SUCCESS);
	EXPECT_EQ(ibv_rereg_mr(mem.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), 0, "rereg");
	fetch_add(&p, &src, mem.mr->rkey, mem.va, IBV_WC_REM_ACCESS_ERR);
	t_reconnect(env, &p);
	EXPECT_EQ(ibv_rereg_mr(mem.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC), 0, "rereg back");
	fetch_add(&p, &src, mem.mr->rkey, mem.va, IBV_WC_SUCCESS);
	t_pair_free(&p);
	t_buf_free(&mem);
}

/* Every remote operation on device memory. */
static void device_memory(const void *arg)
{
	struct ibv_alloc_dm_attr dm_attr = { .length = 1024 };
	struct ibv_dm *dm = ibv_alloc_dm(env->ctx, &dm_attr);
	struct t_spec s = { 0 };
	struct t_pair p = t_pair(env, &s);
	struct ibv_mr *mr;
	uint64_t word = 40;
	struct t_op o;

	(void)arg;
	MUST(dm, "ibv_alloc_dm");
	mr = ibv_reg_dm_mr(env->pd, dm, 0, 1024, IBV_ACCESS_ZERO_BASED | T_ALL);
	MUST(mr, "ibv_reg_dm_mr");
	t_fill(src.p, 1024, 5);
	o = t_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 1, t_sge(&src, 0, 1024), mr->rkey, 0);
	t_recv(&p.b, 9, t_sge(&dst, 0, 0));
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "WRITE_WITH_IMM");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	T_DONE(p.b.rcq, 9, IBV_WC_RECV_RDMA_WITH_IMM);
	o = t_rdma(IBV_WR_RDMA_READ, 2, t_sge(&dst, 0, 1024), mr->rkey, 0);
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "READ");
	T_DONE(p.a.scq, 2, IBV_WC_RDMA_READ);
	EXPECT(t_is(dst.p, 1024, 5), "data");
	EXPECT_EQ(ibv_memcpy_to_dm(dm, 8, &word, 8), 0, "ibv_memcpy_to_dm");
	o = t_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, 3, t_sge(&dst, 0, 8), mr->rkey, 8);
	o.compare_add = 2;
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "FETCH_AND_ADD");
	T_DONE(p.a.scq, 3, IBV_WC_FETCH_ADD);
	o = t_rdma(IBV_WR_ATOMIC_CMP_AND_SWP, 4, t_sge(&dst, 8, 8), mr->rkey, 8);
	o.compare_add = 42;
	o.swap = 77;
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "CMP_AND_SWP");
	T_DONE(p.a.scq, 4, IBV_WC_COMP_SWAP);
	EXPECT_EQ(ibv_memcpy_from_dm(&word, dm, 8, 8), 0, "ibv_memcpy_from_dm");
	EXPECT_EQ(word, 77, "the word");
	EXPECT_EQ(ibv_dereg_mr(mr) | ibv_free_dm(dm), 0, "freeing");
	t_pair_free(&p);
}

/* READ responses of less than 64 bytes come in 128-byte CQEs, and land where they belong. */
static void small_reads_in_long_cqes(const void *arg)
{
	static const uint32_t sizes[] = { 16, 40, 60, 64, 65 };
	struct ibv_cq_init_attr_ex attr = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = 128 };
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_cq_ex *cq = mlx5dv_create_cq(env->ctx, &attr, &dv);
	struct t_spec s = { .scq = cq ? ibv_cq_ex_to_cq(cq) : NULL, .sig_all = 1,
			    .create_flags = MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE };
	struct t_spec other = { 0 };
	struct t_pair p;

	(void)arg;
	MUST(cq, "mlx5dv_create_cq");
	p = (struct t_pair){ .a = t_qp(env, &s), .b = t_qp(env, &other) };
	t_connect(env, &p.a, &p.b);
	for (int i = 0; i < 5; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_READ, i, t_sge(&dst, 100, sizes[i]), src.key, src.va);

		t_fill(src.p, sizes[i], i);
		memset(dst.p, 0, 512);
		EXPECT_EQ(t_post_old(&p.a, &o), 0, "READ");
		while (ibv_start_poll(cq, &poll))
			;
		EXPECT(cq->status == IBV_WC_SUCCESS && cq->wr_id == (uint64_t)i, "status %d", cq->status);
		EXPECT_EQ(ibv_wc_read_byte_len(cq), sizes[i], "byte_len");
		ibv_end_poll(cq);
		EXPECT(t_is(dst.p + 100, sizes[i], i) && t_all(dst.p + 100 + sizes[i], 8, 0) && t_all(dst.p, 100, 0),
		       "data of %u bytes", sizes[i]);
	}
	t_qp_free(&p.a);
	t_qp_free(&p.b);
	EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0, "ibv_destroy_cq");
}

static void zero_write(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 0), dst.key, dst.va);

	(void)arg;
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE of nothing");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	t_pair_free(&p);
}

/* Calls of rdma-core 57 to 65: each is there, fails, and says its name. */
static void newer_calls(const void *arg)
{
	static const struct { const char *name; bool gives_fd; } calls[] = {
		{ "ibv_reg_mr_ex", false }, { "ibv_alloc_dmah", false }, { "ibv_dm_export_dmabuf_fd", true },
	};

	(void)arg;
	for (int i = 0; i < 3; i++) {
		void *(*call)(void *, void *);
		void *f = dlsym(RTLD_DEFAULT, calls[i].name);

		MUST(f, calls[i].name);
		memcpy(&call, &f, sizeof(call));
		errno = 0;
		t_why_begin();
		if (calls[i].gives_fd)
			EXPECT_EQ((uint32_t)(uintptr_t)call(env->pd, NULL), UINT32_MAX, calls[i].name);
		else
			EXPECT(!call(env->pd, NULL), "%s gave something", calls[i].name);
		EXPECT_EQ(errno, EOPNOTSUPP, "errno");
		T_WHY("NOT_OFFERED", 0);
	}
}

static void pkey(const void *arg)
{
	__be16 key;

	(void)arg;
	EXPECT_EQ(ibv_query_pkey(env->ctx, 1, 0, &key), 0, "ibv_query_pkey");
	EXPECT_EQ(ibv_get_pkey_index(env->ctx, 1, key), 0, "ibv_get_pkey_index");
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("receives out of order (OOO_DP)", out_of_order, NULL);
	t_case("FLUSH and ATOMIC_WRITE are not offered", flush_and_atomic_write, NULL);
	t_case("an SRQ is not resized", srq_resize, NULL);
	t_case("a privileged Q_Key", privileged_qkey, NULL);
	t_case("limits of READs are kept", read_limits_are_kept, NULL);
	t_case("the right to atomics, taken and given back", rereg_atomic, NULL);
	t_case("device memory: WRITE with immediate, READ, atomics", device_memory, NULL);
	t_case("small READs into 128-byte CQEs", small_reads_in_long_cqes, NULL);
	t_case("a WRITE of nothing", zero_write, NULL);
	t_case("calls of newer libraries", newer_calls, NULL);
	t_case("P_Key and its index", pkey, NULL);
	t_buf_free(&src);
	t_buf_free(&dst);
	return t_close(env);
}
