/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the device reports can be used, up to the last one; one more is refused, with a sentence. Limits that
 * take gigabytes to reach are only looked at. */
#include "t_why.h"

static struct t_env *env;
static struct t_buf src, dst;
static struct ibv_device_attr_ex ex;
static struct ibv_port_attr port;

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 1 << 20, T_ALL);
	dst = t_buf(env, 1 << 20, T_ALL);
	MUST(!ibv_query_device_ex(env->ctx, NULL, &ex), "ibv_query_device_ex");
	MUST(!ibv_query_port(env->ctx, 1, &port), "ibv_query_port");
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&src);
	t_buf_free(&dst);
}

/* ---- queue pairs ---- */

static int send_n(struct t_qp *q, uint32_t n, bool last_signaled)
{
	ibv_wr_start(q->ex);
	for (uint32_t i = 0; i < n; i++) {
		q->ex->wr_id = i;
		q->ex->wr_flags = last_signaled && i == n - 1 ? IBV_SEND_SIGNALED : 0;
		ibv_wr_send(q->ex);
		ibv_wr_set_sge(q->ex, src.key, src.va + i % src.len, 1);
	}
	return ibv_wr_complete(q->ex);
}

static uint32_t drain(struct ibv_cq *cq, uint32_t want)
{
	uint64_t end = t_now_ms() + 20000;
	struct ibv_wc wc[64];
	uint32_t got = 0;

	while (got < want && t_now_ms() < end) {
		int n = ibv_poll_cq(cq, 64, wc);

		for (int i = 0; i < n; i++)
			EXPECT(wc[i].status == IBV_WC_SUCCESS, "completion %u: %s", got + i,
			       ibv_wc_status_str(wc[i].status));
		got += n > 0 ? n : 0;
	}
	return got;
}

/* max_qp_wr requests and receives in one queue pair; twice, so that the rings wrap. */
static void outstanding(const void *arg)
{
	const uint32_t n = (uint32_t)env->attr.max_qp_wr;
	struct t_spec s = { .ops = IBV_QP_EX_WITH_SEND, .sq = n, .rq = n, .sge = 1, .rsge = 1, .cqe = n };
	struct t_pair p = t_pair(env, &s);
	struct ibv_sge sge = t_sge(&dst, 0, 1);
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	(void)arg;
	t_fill(src.p, n, 1);
	for (int round = 0; round < 2; round++) {
		memset(dst.p, 0, n);
		for (uint32_t i = 0; i < n; i++) {
			sge.addr = dst.va + i;
			if (!EXPECT_EQ(ibv_post_recv(p.b.qp, &wr, &bad), 0, "ibv_post_recv"))
				break;
		}
		t_why_begin();
		EXPECT_EQ(ibv_post_recv(p.b.qp, &wr, &bad), ENOMEM, "one receive more");
		T_WHY("post_rq_full", p.b.qp->qp_num);
		MUST(!send_n(&p.a, n, true), "the requests");
		t_why_begin();
		EXPECT_EQ(send_n(&p.a, 1, true), ENOMEM, "one request more");
		T_WHY("post_sq_full", p.a.qp->qp_num);
		EXPECT_EQ(drain(p.a.scq, 1), 1, "completions of sends");
		EXPECT_EQ(drain(p.b.rcq, n), n, "completions of receives");
		EXPECT(t_is(dst.p, n, 1), "data");
	}
	t_pair_free(&p);
}

/* max_sge entries on both sides, max_sge_rd in a READ. */
static void entries(const void *arg)
{
	const uint32_t n = (uint32_t)env->attr.max_sge, rd = (uint32_t)env->attr.max_sge_rd;
	struct t_spec s = { .sge = n, .rsge = n };
	struct t_pair p = t_pair(env, &s);
	struct ibv_sge from[64], to[64];
	struct ibv_recv_wr *bad_recv, recv = { .wr_id = 2, .sg_list = to, .num_sge = (int)n };
	struct ibv_send_wr *bad, send = { .wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = from, .num_sge = (int)n,
		.send_flags = IBV_SEND_SIGNALED };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .send_cq = p.a.scq, .recv_cq = p.a.rcq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = n + 1, .max_recv_sge = 1 } };
	struct ibv_qp_init_attr now;
	struct ibv_qp_attr cur;

	(void)arg;
	MUST(n < 63 && rd < 63, "few enough entries");
	for (uint32_t i = 0; i < 64; i++) {
		from[i] = t_sge(&src, i * 1000, 100);
		to[i] = t_sge(&dst, i * 500, 100);
	}
	t_fill(src.p, 64000, 5);
	EXPECT_EQ(ibv_post_recv(p.b.qp, &recv, &bad_recv), 0, "ibv_post_recv");
	EXPECT_EQ(ibv_post_send(p.a.qp, &send, &bad), 0, "ibv_post_send");
	T_DONE(p.a.scq, 1, IBV_WC_SEND);
	T_DONE(p.b.rcq, 2, IBV_WC_RECV);
	for (uint32_t i = 0; i < n; i++)
		EXPECT(!memcmp(dst.p + i * 500, src.p + i * 1000, 100), "entry %u", i);
	send.opcode = IBV_WR_RDMA_READ;
	send.sg_list = to;
	send.num_sge = (int)rd;
	send.wr.rdma.remote_addr = src.va + 10000;
	send.wr.rdma.rkey = src.key;
	EXPECT_EQ(ibv_post_send(p.a.qp, &send, &bad), 0, "READ");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_READ);
	for (uint32_t i = 0; i < rd; i++)
		EXPECT(!memcmp(dst.p + i * 500, src.p + 10000 + i * 100, 100), "entry %u of the READ", i);

	EXPECT_EQ(ibv_query_qp(p.a.qp, &cur, IBV_QP_CAP, &now), 0, "ibv_query_qp");
	t_why_begin();
	send.num_sge = (int)now.cap.max_send_sge + 1;
	EXPECT_EQ(ibv_post_send(p.a.qp, &send, &bad), ENOMEM, "an entry more");
	T_WHY("post_sge", p.a.qp->qp_num);
	t_why_begin();
	EXPECT(!ibv_create_qp(env->pd, &attr) && errno == EINVAL, "a queue pair with an entry more: errno %d", errno);
	T_WHY("qp_cap", 0);
	attr.cap.max_send_sge = 1;
	attr.cap.max_recv_sge = n + 1;
	t_why_begin();
	EXPECT(!ibv_create_qp(env->pd, &attr) && errno == EINVAL, "a receive with an entry more: errno %d", errno);
	T_WHY("qp_cap", 0);
	t_pair_free(&p);
}

/* max_qp_rd_atom READs are in flight at a time; attributes beyond are refused. */
static void reads(const void *arg)
{
	struct t_spec s = { .sq = 64 };
	struct t_pair p = { .a = t_qp(env, &s), .b = t_qp(env, &s) };
	struct ibv_qp_attr attr = t_attr(env, p.b.qp->qp_num);

	(void)arg;
	attr.max_rd_atomic = (uint8_t)env->attr.max_qp_init_rd_atom;
	attr.max_dest_rd_atomic = (uint8_t)env->attr.max_qp_rd_atom;
	t_to_rts(p.a.qp, &attr);
	attr.dest_qp_num = p.a.qp->qp_num;
	t_to_rts(p.b.qp, &attr);
	for (uint32_t i = 0; i < 64; i++) {
		struct t_op o = t_rdma(IBV_WR_RDMA_READ, i, t_sge(&dst, i * 64, 64), src.key, src.va + i * 64);

		EXPECT_EQ(t_post_old(&p.a, &o), 0, "READ");
	}
	for (uint32_t i = 0; i < 64; i++)
		T_DONE(p.a.scq, i, IBV_WC_RDMA_READ);
	EXPECT(!memcmp(src.p, dst.p, 4096), "data");
	t_reset(p.a.qp);
	attr.max_dest_rd_atomic++;
	MUST(!t_modify(p.a.qp, &attr, IBV_QPS_INIT, T_INIT_MASK), "to INIT");
	t_why_begin();
	EXPECT_EQ(t_modify(p.a.qp, &attr, IBV_QPS_RTR, T_RTR_MASK), EINVAL, "one more of the peer's");
	T_WHY("qp_attr_value", p.a.qp->qp_num);
	attr.max_dest_rd_atomic--;
	MUST(!t_modify(p.a.qp, &attr, IBV_QPS_RTR, T_RTR_MASK), "to RTR");
	attr.max_rd_atomic++;
	t_why_begin();
	EXPECT_EQ(t_modify(p.a.qp, &attr, IBV_QPS_RTS, T_RTS_MASK), EINVAL, "one more of its own");
	T_WHY("qp_attr_value", p.a.qp->qp_num);
	t_pair_free(&p);
}

/* A message of max_msg_sz, read into a null region so that nothing is copied. */
static void message(const void *arg)
{
	struct t_buf big = t_buf(env, (size_t)port.max_msg_sz + 4096, IBV_ACCESS_REMOTE_READ);
	struct ibv_mr *null = ibv_alloc_null_mr(env->pd);
	struct t_spec s = { 0 };
	struct t_pair p = t_pair(env, &s);
	struct ibv_sge sge = { .addr = 0, .length = port.max_msg_sz };
	struct t_op o;

	(void)arg;
	MUST(null, "ibv_alloc_null_mr");
	sge.lkey = null->lkey;
	o = t_rdma(IBV_WR_RDMA_READ, 1, sge, big.key, big.va);
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "READ");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_READ);
	o.sge[0].length++;
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "READ of a byte more");
	T_FAILED(p.a.scq, 1, T_LOC_LEN);
	t_pair_free(&p);
	EXPECT_EQ(ibv_dereg_mr(null), 0, "ibv_dereg_mr");
	t_buf_free(&big);
}

/* ---- completion queues, shared receive queues ---- */

static void largest_cq(const void *arg)
{
	struct ibv_cq *cq = ibv_create_cq(env->ctx, env->attr.max_cqe, NULL, NULL, env->ctx->num_comp_vectors - 1);
	struct t_spec s = { .scq = cq, .rcq = cq };
	struct t_pair p;
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 64), dst.key, dst.va);

	(void)arg;
	MUST(cq, "ibv_create_cq");
	EXPECT(cq->cqe >= env->attr.max_cqe, "%d entries", cq->cqe);
	p = t_pair(env, &s);
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "WRITE");
	T_DONE(cq, 1, IBV_WC_RDMA_WRITE);
	t_pair_free(&p);
	t_why_begin();
	EXPECT_EQ(ibv_resize_cq(cq, env->attr.max_cqe + 1), EINVAL, "resizing to an entry more");
	T_WHY("cq_attr", 0);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
	t_why_begin();
	EXPECT(!ibv_create_cq(env->ctx, env->attr.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL,
	       "an entry more: errno %d", errno);
	T_WHY("cq_attr", 0);
	t_why_begin();
	EXPECT(!ibv_create_cq(env->ctx, 1, NULL, NULL, env->ctx->num_comp_vectors) && errno == EINVAL,
	       "a completion vector more: errno %d", errno);
	T_WHY("cq_attr", 0);
}

static void largest_srq(const void *arg)
{
	const uint32_t n = (uint32_t)env->attr.max_srq_wr, n_sge = (uint32_t)env->attr.max_srq_sge;
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = n, .max_sge = n_sge } };
	struct ibv_srq *srq = ibv_create_srq(env->pd, &attr);
	struct t_spec s = { .ops = IBV_QP_EX_WITH_SEND, .sq = n, .sge = 1, .cqe = n, .srq = srq };
	struct ibv_sge sge[64];
	struct ibv_recv_wr *bad, wr = { .sg_list = sge, .num_sge = (int)n_sge };
	struct t_pair p;

	(void)arg;
	MUST(srq, "ibv_create_srq");
	MUST(n_sge < 64, "few enough entries");
	EXPECT(attr.attr.max_wr >= n && attr.attr.max_sge >= n_sge, "granted %u, %u", attr.attr.max_wr,
	       attr.attr.max_sge);
	p = t_pair(env, &s);
	/* Each message fits the first entry. */
	for (uint32_t i = 0; i < n_sge; i++)
		sge[i] = t_sge(&dst, 1 << 19, 1);
	t_fill(src.p, n, 3);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < n; i++) {
			sge[0].addr = dst.va + i;
			if (!EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0, "ibv_post_srq_recv"))
				break;
		}
		t_why_begin();
		EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM, "one receive more");
		T_WHY("post_rq_full", 0);
		memset(dst.p, 0, n);
		MUST(!send_n(&p.a, n, true), "the sends");
		EXPECT_EQ(drain(p.a.scq, 1), 1, "completions of sends");
		EXPECT_EQ(drain(p.b.rcq, n), n, "completions of receives");
		EXPECT(t_is(dst.p, n, 3), "data");
	}
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
	for (int i = 0; i < 2; i++) {
		attr.attr = (struct ibv_srq_attr){ .max_wr = n + !i, .max_sge = n_sge + i };
		t_why_begin();
		EXPECT(!ibv_create_srq(env->pd, &attr) && errno == EINVAL, "one more: errno %d", errno);
		T_WHY("object_arg", 0);
	}
}

/* A receive of max_srq_sge entries is filled to the last. */
static void srq_entries(const void *arg)
{
	const uint32_t n = (uint32_t)env->attr.max_srq_sge;
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 1, .max_sge = n } };
	struct ibv_srq *srq = ibv_create_srq(env->pd, &attr);
	struct t_spec s = { .srq = srq };
	struct ibv_sge sge[65];
	struct ibv_recv_wr *bad, wr = { .wr_id = 7, .sg_list = sge, .num_sge = (int)n };
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, n * 10));
	struct t_pair p;

	(void)arg;
	MUST(srq && n < 64, "ibv_create_srq");
	p = t_pair(env, &s);
	for (uint32_t i = 0; i <= n; i++)
		sge[i] = t_sge(&dst, i * 100, 10);
	EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0, "ibv_post_srq_recv");
	EXPECT_EQ(t_post_old(&p.a, &o), 0, "SEND");
	T_DONE(p.b.rcq, 7, IBV_WC_RECV);
	T_DONE(p.a.scq, 1, IBV_WC_SEND);
	for (uint32_t i = 0; i < n; i++)
		EXPECT(!memcmp(dst.p + i * 100, src.p + i * 10, 10), "entry %u", i);
	wr.num_sge = (int)attr.attr.max_sge + 1;
	t_why_begin();
	EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), EINVAL, "an entry more");
	T_WHY("post_recv_sge", 0);
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

/* ---- the rest ---- */

static void device_memory(const void *arg)
{
	struct ibv_alloc_dm_attr attr = { .length = ex.max_dm_size };
	struct ibv_dm *dm = ibv_alloc_dm(env->ctx, &attr);
	uint32_t word = 0x12345678, back = 0;

	(void)arg;
	MUST(dm, "ibv_alloc_dm");
	EXPECT_EQ(ibv_memcpy_to_dm(dm, attr.length - 4, &word, 4), 0, "ibv_memcpy_to_dm");
	EXPECT_EQ(ibv_memcpy_from_dm(&back, dm, attr.length - 4, 4), 0, "ibv_memcpy_from_dm");
	EXPECT_EQ(back, word, "the last word");
	EXPECT_EQ(ibv_free_dm(dm), 0, "ibv_free_dm");
	attr.length++;
	t_why_begin();
	EXPECT(!ibv_alloc_dm(env->ctx, &attr) && errno, "a byte more was given");
	EXPECT(softmlx5_refusal_count(NULL) > t_why_mark, "without a sentence");
}

static void tables(const void *arg)
{
	union ibv_gid gid;
	__be16 pkey;

	(void)arg;
	EXPECT_EQ(ibv_query_gid(env->ctx, 1, port.gid_tbl_len - 1, &gid), 0, "the last GID");
	EXPECT_EQ(ibv_query_pkey(env->ctx, 1, port.pkey_tbl_len - 1, &pkey), 0, "the last P_Key");
	t_why_begin();
	EXPECT(ibv_query_gid(env->ctx, 1, port.gid_tbl_len, &gid) && errno == EINVAL, "a GID more: errno %d", errno);
	T_WHY("object_arg", 0);
	t_why_begin();
	EXPECT(ibv_query_pkey(env->ctx, 1, port.pkey_tbl_len, &pkey) && errno == EINVAL, "a P_Key more: errno %d",
	       errno);
	T_WHY("object_arg", 0);
}

/* max_mcast_qp_attach queue pairs in a group each get a datagram. */
static void group(const void *arg)
{
	enum { MAX = 512 };
	static struct t_qp q[MAX];
	const union ibv_gid gid = { .raw = { 0xff, 0x0e, [15] = 77 } };
	const int n = env->attr.max_mcast_qp_attach;
	struct t_spec s = { .type = IBV_QPT_UD, .sq = 1, .rq = 1, .rsge = 1, .sge = 1 };
	struct ibv_qp_attr attr = t_attr(env, 0);
	struct t_op o = t_op(IBV_WR_SEND, 1, t_sge(&src, 0, 20));
	struct t_qp from = t_qp(env, &s);

	(void)arg;
	MUST(n <= MAX, "few enough queue pairs");
	t_ud_rts(env, from.qp);
	s.rcq = s.scq = ibv_create_cq(env->ctx, n, NULL, NULL, 0);
	MUST(s.rcq, "ibv_create_cq");
	for (int i = 0; i < n; i++) {
		q[i] = t_qp(env, &s);
		t_ud_rts(env, q[i].qp);
		t_recv(&q[i], (uint64_t)i, t_sge(&dst, (size_t)i * 64, 64));
		EXPECT_EQ(ibv_attach_mcast(q[i].qp, &gid, 0), 0, "ibv_attach_mcast");
	}
	attr.ah_attr.grh.dgid = gid;
	o.ah = ibv_create_ah(env->pd, &attr.ah_attr);
	MUST(o.ah, "ibv_create_ah");
	o.dest = 0xffffff;
	o.qkey = T_QKEY;
	EXPECT_EQ(t_post_old(&from, &o), 0, "SEND");
	T_DONE(from.scq, 1, IBV_WC_SEND);
	EXPECT_EQ(drain(s.rcq, (uint32_t)n), n, "datagrams");
	for (int i = 0; i < n; i++) {
		EXPECT(!memcmp(dst.p + (size_t)i * 64 + 40, src.p, 20), "datagram %d", i);
		EXPECT_EQ(ibv_detach_mcast(q[i].qp, &gid, 0), 0, "ibv_detach_mcast");
		t_qp_free(&q[i]);
	}
	EXPECT_EQ(ibv_destroy_ah(o.ah), 0, "ibv_destroy_ah");
	t_qp_free(&from);
	EXPECT_EQ(ibv_destroy_cq(s.rcq), 0, "ibv_destroy_cq");
}

/* Numbers of objects: there are many, and they agree with one another. */
static void numbers(const void *arg)
{
	const struct ibv_device_attr *a = &env->attr;

	(void)arg;
	EXPECT(a->max_qp >= 1 << 17 && a->max_cq >= 1 << 20 && a->max_srq >= 1 << 20 && a->max_pd >= 1 << 20 &&
		       a->max_mr >= 1 << 22 && a->max_mw >= 1 << 22 && a->max_ah > 1 << 20,
	       "few objects");
	EXPECT_EQ(a->max_res_rd_atom, a->max_qp * a->max_qp_rd_atom, "max_res_rd_atom");
	EXPECT_EQ(a->max_total_mcast_qp_attach, a->max_mcast_grp * a->max_mcast_qp_attach,
		  "max_total_mcast_qp_attach");
	EXPECT(!memcmp(a, &ex.orig_attr, sizeof(*a)), "ibv_query_device and _ex differ");
	EXPECT_EQ(a->phys_port_cnt, ex.phys_port_cnt_ex, "ports");
	EXPECT_EQ(a->max_pkeys, port.pkey_tbl_len, "P_Keys");
	EXPECT(a->atomic_cap == IBV_ATOMIC_HCA && a->max_mr_size == UINT64_MAX, "atomics, region size");
	EXPECT(port.max_mtu == IBV_MTU_4096 && port.active_mtu <= port.max_mtu, "MTU");
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("max_qp_wr", outstanding, NULL);
	t_case("max_sge and max_sge_rd", entries, NULL);
	t_case("max_qp_rd_atom and max_qp_init_rd_atom", reads, NULL);
	t_case("max_msg_sz", message, NULL);
	t_case("max_cqe and num_comp_vectors", largest_cq, NULL);
	t_case("max_srq_wr", largest_srq, NULL);
	t_case("max_srq_sge", srq_entries, NULL);
	t_case("max_dm_size", device_memory, NULL);
	t_case("gid_tbl_len and pkey_tbl_len", tables, NULL);
	t_case("max_mcast_qp_attach", group, NULL);
	t_case("numbers of objects", numbers, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
