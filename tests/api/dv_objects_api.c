/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv beyond the posting calls: queues handed out by mlx5dv_init_obj and driven by hand, capabilities,
 * clock, doorbell pages, device memory, mkey and CQ attributes, what is not offered. */
#include <dlfcn.h>

#include "t_why.h"

static struct t_env *env;

/* ---- a program with its own driver ---- */

struct hand {
	struct t_qp q;
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
	uint32_t pi, ci;
};

static void take(struct hand *h)
{
	struct mlx5dv_obj obj = { .qp = { h->q.qp, &h->qp }, .cq = { h->q.scq, &h->cq } };

	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
}

static void hand_write(struct hand *h, const struct t_buf *src, const struct t_buf *dst, uint32_t len)
{
	uint8_t *wqe = (uint8_t *)h->qp.sq.buf + (h->pi & (h->qp.sq.wqe_cnt - 1)) * 64;
	struct mlx5_wqe_raddr_seg *raddr = (void *)(wqe + 16);

	mlx5dv_set_ctrl_seg((void *)wqe, (uint16_t)h->pi, MLX5_OPCODE_RDMA_WRITE, 0, h->q.qp->qp_num,
			    MLX5_WQE_CTRL_CQ_UPDATE, 3, 0, 0);
	raddr->raddr = htobe64(dst->va);
	raddr->rkey = htobe32(dst->key);
	raddr->reserved = 0;
	mlx5dv_set_data_seg((void *)(wqe + 32), len, src->key, src->va);
	h->pi++;
	__atomic_store_n(&h->qp.dbrec[MLX5_SND_DBR], htobe32(h->pi & 0xffff), __ATOMIC_RELEASE);
	__atomic_store_n((uint64_t *)h->qp.bf.reg, *(uint64_t *)(void *)wqe, __ATOMIC_RELEASE);
}

/* RETURN the opcode of the next CQE, or -1 after ten seconds. */
static int hand_poll(struct hand *h)
{
	uint64_t end = t_now_ms() + 10000;
	uint8_t *cqe =
		(uint8_t *)h->cq.buf + (size_t)(h->ci & (h->cq.cqe_cnt - 1)) * h->cq.cqe_size + h->cq.cqe_size - 64;
	uint8_t own;

	do {
		own = __atomic_load_n(&cqe[63], __ATOMIC_ACQUIRE);
		if (own >> 4 != MLX5_CQE_INVALID && (own & 1) == !!(h->ci & h->cq.cqe_cnt)) {
			h->ci++;
			__atomic_store_n(&h->cq.dbrec[0], htobe32(h->ci & 0xffffff), __ATOMIC_RELEASE);
			return own >> 4;
		}
	} while (t_now_ms() < end);
	return -1;
}

static void by_hand(const void *arg)
{
	struct t_spec s = { .sq = 8 };
	struct t_pair p = t_pair(env, &s);
	struct hand h = { .q = p.a };
	struct t_buf src = t_buf(env, 4096, T_ALL), dst = t_buf(env, 4096, T_ALL);

	(void)arg;
	take(&h);
	EXPECT(h.qp.sq.stride == 64 && h.qp.sq.wqe_cnt >= 8 && !(h.qp.sq.wqe_cnt & (h.qp.sq.wqe_cnt - 1)),
	       "send queue of %u entries, stride %u", h.qp.sq.wqe_cnt, h.qp.sq.stride);
	EXPECT(h.qp.bf.size == 0 || h.qp.bf.size == 256, "BlueFlame size %u", h.qp.bf.size);
	for (uint32_t i = 0; i < 3 * h.qp.sq.wqe_cnt; i++) {
		t_fill(src.p, 64, i);
		hand_write(&h, &src, &dst, 64);
		if (!EXPECT_EQ(hand_poll(&h), MLX5_CQE_REQ, "CQE opcode"))
			break;
		EXPECT(t_is(dst.p, 64, i), "data of write %u", i);
		if (i % 7 == 6)
			usleep(3000); /* the device may fall asleep meanwhile */
	}
	t_buf_free(&src);
	t_buf_free(&dst);
	t_pair_free(&p);
}

static void version_1_0(const void *arg)
{
	int (*old)(struct mlx5dv_obj * obj, uint64_t type);
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 1, NULL, NULL, 0);
	struct mlx5dv_cq now = { 0 }, then = { 0 };
	struct mlx5dv_obj obj = { .cq = { cq, &now } };

	(void)arg;
	*(void **)&old = dlvsym(RTLD_DEFAULT, "mlx5dv_init_obj", "MLX5_1.0");
	MUST(old && cq, "mlx5dv_init_obj@MLX5_1.0");
	EXPECT_EQ(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), 0, "1.2");
	obj.cq.out = &then;
	EXPECT_EQ(old(&obj, MLX5DV_OBJ_CQ), 0, "1.0");
	EXPECT(now.cq_uar && *(void **)then.cq_uar == now.cq_uar, "1.0 gives %p, not where %p is", then.cq_uar,
	       now.cq_uar);
	EXPECT_EQ(now.cqe_cnt, then.cqe_cnt, "cqe_cnt");
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

static void objects(const void *arg)
{
	struct ibv_srq *srq = t_srq(env, 100);
	struct ibv_ah *ah = t_ah(env);
	struct ibv_alloc_dm_attr da = { .length = 256 };
	struct mlx5dv_alloc_dm_attr mda = { .type = MLX5DV_DM_TYPE_MEMIC };
	struct ibv_dm *dm = mlx5dv_alloc_dm(env->ctx, &da, &mda);
	struct mlx5dv_srq s = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_dm d = { .comp_mask = MLX5DV_DM_MASK_REMOTE_VA };
	struct mlx5dv_ah a = { .comp_mask = 7 };
	struct mlx5dv_pd pd = { .comp_mask = 7 };
	struct mlx5dv_obj obj = { .srq = { srq, &s }, .ah = { ah, &a }, .pd = { env->pd, &pd }, .dm = { dm, &d } };
	uint32_t word = 0;

	(void)arg;
	MUST(dm, "mlx5dv_alloc_dm");
	EXPECT_EQ(mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ | MLX5DV_OBJ_AH | MLX5DV_OBJ_PD | MLX5DV_OBJ_DM), 0,
		  "init_obj");
	EXPECT(s.srqn && s.comp_mask == MLX5DV_SRQ_MASK_SRQN && s.head == 0 && !(s.tail & (s.tail + 1)) &&
		       s.tail >= 99 && s.stride >= 32,
	       "SRQ 0x%x head %u tail %u stride %u", s.srqn, s.head, s.tail, s.stride);
	EXPECT(!memcmp(a.av->rgid, env->gid.raw, 16) && !a.comp_mask, "the address vector is not of the address");
	EXPECT(pd.pdn && !pd.comp_mask, "PD 0x%x", pd.pdn);
	EXPECT(d.length == 256 && d.buf, "device memory of %" PRIu64 " bytes", d.length);
	((uint32_t *)d.buf)[2] = 0x5a5a1234;
	EXPECT_EQ(ibv_memcpy_from_dm(&word, dm, 8, 4), 0, "ibv_memcpy_from_dm");
	EXPECT_EQ(word, 0x5a5a1234, "what was stored");
	t_why_begin();
	EXPECT_EQ(mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ), EOPNOTSUPP, "RWQ");
	T_WHY("not_offered", 0);
	EXPECT_EQ(mlx5dv_init_obj(&obj, 1 << 20), EINVAL, "unknown type");
	mda.type = MLX5DV_DM_TYPE_STEERING_SW_ICM;
	EXPECT(!mlx5dv_alloc_dm(env->ctx, &da, &mda) && errno == EOPNOTSUPP, "steering memory was given");
	EXPECT_EQ(ibv_free_dm(dm), 0, "ibv_free_dm");
	EXPECT_EQ(ibv_destroy_ah(ah), 0, "ibv_destroy_ah");
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

static void capabilities(const void *arg)
{
	struct mlx5dv_context c;

	(void)arg;
	memset(&c, 0x55, sizeof(c));
	c.comp_mask = MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH | MLX5DV_CONTEXT_MASK_DCI_STREAMS;
	EXPECT_EQ(mlx5dv_query_device(env->ctx, &c), 0, "mlx5dv_query_device");
	EXPECT_EQ(c.comp_mask, MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH | MLX5DV_CONTEXT_MASK_DCI_STREAMS, "comp_mask");
	EXPECT(c.version == 0 && c.max_wr_memcpy_length >= 16 << 20, "memcpy length %zu", c.max_wr_memcpy_length);
	EXPECT(c.dci_streams_caps.max_log_num_concurent == 8 && c.dci_streams_caps.max_log_num_errored == 5,
	       "streams");
	EXPECT_EQ(c.num_lag_ports, 0x55, "a field that was not asked for");
	memset(&c, 0, sizeof(c));
	c.comp_mask = UINT64_MAX;
	EXPECT_EQ(mlx5dv_query_device(env->ctx, &c), 0, "everything");
	EXPECT(!(c.comp_mask & MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS) && !c.sig_caps.block_size &&
		       !c.crypto_caps.crypto_engines,
	       "what is not there is reported, mask 0x%" PRIx64, c.comp_mask);
}

static void clock_and_port(const void *arg)
{
	struct mlx5dv_clock_info info;
	struct mlx5dv_port port;
	struct timespec now;
	uint64_t ns;

	(void)arg;
	EXPECT_EQ(mlx5dv_get_clock_info(env->ctx, &info), 0, "mlx5dv_get_clock_info");
	clock_gettime(CLOCK_REALTIME, &now);
	ns = mlx5dv_ts_to_ns(&info, info.last_cycles + 5000);
	EXPECT(ns == info.nsec + 5000, "5000 cycles are %" PRIu64 " ns", ns - info.nsec);
	EXPECT((uint64_t)now.tv_sec - info.nsec / 1000000000 <= 1, "the clock is not the time of day");
	memset(&port, 0xff, sizeof(port));
	EXPECT_EQ(mlx5dv_query_port(env->ctx, 1, &port), 0, "mlx5dv_query_port");
	EXPECT_EQ(port.flags, 0, "flags");
	EXPECT_EQ(mlx5dv_query_port(env->ctx, 2, &port), EINVAL, "port 2");
}

static void uars(const void *arg)
{
	struct mlx5dv_devx_uar *a = mlx5dv_devx_alloc_uar(env->ctx, MLX5DV_UAR_ALLOC_TYPE_BF);
	struct mlx5dv_devx_uar *b = mlx5dv_devx_alloc_uar(env->ctx, MLX5DV_UAR_ALLOC_TYPE_NC);

	(void)arg;
	MUST(a && b, "mlx5dv_devx_alloc_uar");
	EXPECT(a->page_id != b->page_id && a->reg_addr != b->reg_addr, "the two pages are one");
	EXPECT((uint8_t *)a->reg_addr - (uint8_t *)a->base_addr == 0x800, "register at %p of page %p", a->reg_addr,
	       a->base_addr);
	*(volatile uint64_t *)a->reg_addr = 1;
	*(volatile uint64_t *)b->reg_addr = 1;
	mlx5dv_devx_free_uar(a);
	mlx5dv_devx_free_uar(b);
	t_why_begin();
	EXPECT(!mlx5dv_devx_alloc_uar(env->ctx, 1 << 10) && errno == EOPNOTSUPP, "unknown flags");
	T_WHY("attr_mask", 0);
}

static void mkeys(const void *arg)
{
	static const struct {
		uint32_t flags;
		bool good;
	} rows[] = {
		{ MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, true },
		{ MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG |
			  MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE,
		  true },
		{ 0, false },
		{ MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, false },
		{ MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO, false },
		{ MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | 1 << 20, false },
	};

	(void)arg;
	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct mlx5dv_mkey_init_attr attr = { .pd = env->pd,
						      .create_flags = rows[i].flags,
						      .max_entries = 5 };
		struct mlx5dv_mkey *mkey;

		t_why_begin();
		errno = 0;
		mkey = mlx5dv_create_mkey(&attr);
		EXPECT(!mkey == !rows[i].good, "flags 0x%x: %s", rows[i].flags, mkey ? "granted" : strerror(errno));
		if (!mkey) {
			EXPECT_EQ(errno, EOPNOTSUPP, "errno");
			T_WHY("mkey_flags", 0);
			continue;
		}
		EXPECT_EQ(attr.max_entries, 8, "entries granted");
		EXPECT(mkey->lkey == mkey->rkey && !(mkey->lkey & 0xff), "keys 0x%x 0x%x", mkey->lkey, mkey->rkey);
		EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0, "mlx5dv_destroy_mkey");
	}
}

static void cqs(const void *arg)
{
	static const struct {
		struct mlx5dv_cq_init_attr dv;
		int want;
		const char *check;
	} rows[] = {
		{ { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = 64 }, 0, NULL },
		{ { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = 128 }, 0, NULL },
		{ { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE | MLX5DV_CQ_INIT_ATTR_MASK_FLAGS,
		    .cqe_size = 128,
		    .flags = MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD },
		  0,
		  NULL },
		{ { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_FLAGS, .flags = MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD },
		  EINVAL,
		  "cq_dv_attr" },
		{ { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = 100 }, EINVAL, "cq_dv_attr" },
		{ { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
		    .cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH },
		  0,
		  NULL },
		{ { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
		    .cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM },
		  EINVAL,
		  "cq_dv_attr" },
		{ { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE, .cqe_comp_res_format = 1 << 6 },
		  EINVAL,
		  "cq_dv_attr" },
		{ { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_FLAGS, .flags = 1 << 9 }, EINVAL, "cq_dv_attr" },
		{ { .comp_mask = 1 << 9 }, EOPNOTSUPP, "attr_mask" },
	};

	(void)arg;
	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct mlx5dv_cq_init_attr dv = rows[i].dv;
		struct ibv_cq_init_attr_ex attr = { .cqe = 10 };
		struct ibv_cq_ex *cq;

		t_why_begin();
		errno = 0;
		cq = mlx5dv_create_cq(env->ctx, &attr, &dv);
		EXPECT(!cq == !!rows[i].want, "row %u: %s", i, cq ? "granted" : strerror(errno));
		if (cq) {
			EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0, "ibv_destroy_cq");
		} else {
			EXPECT_EQ(errno, rows[i].want, "errno");
			T_WHY(rows[i].check, 0);
		}
	}
}

static void not_offered(const void *arg)
{
	struct mlx5dv_context_attr devx = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct ibv_device **list = ibv_get_device_list(NULL);
	uint8_t in[16] = { 0 }, out[16];
	uint32_t qpn = 0;

	(void)arg;
	MUST(list && list[0], "ibv_get_device_list");
	t_why_begin();
	EXPECT(!mlx5dv_open_device(list[0], &devx) && errno == EOPNOTSUPP, "DEVX context");
	T_WHY("devx", 0);
	ibv_free_device_list(list);
	EXPECT_EQ(mlx5dv_devx_general_cmd(env->ctx, in, sizeof(in), out, sizeof(out)), EOPNOTSUPP, "general_cmd");
	errno = 0;
	EXPECT(!mlx5dv_dr_domain_create(env->ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX) && errno == EOPNOTSUPP,
	       "dr_domain_create");
	errno = 0;
	EXPECT(!mlx5dv_alloc_var(env->ctx, 0) && errno == EOPNOTSUPP, "alloc_var");
	errno = 0;
	EXPECT(mlx5dv_devx_get_event(NULL, NULL, 0) == -1 && errno == EOPNOTSUPP, "devx_get_event");
	EXPECT_EQ(mlx5dv_reserved_qpn_alloc(env->ctx, &qpn), 0, "reserved_qpn_alloc");
	EXPECT(qpn > 0 && qpn < 1 << 24, "reserved number 0x%x", qpn);
	EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(env->ctx, qpn), 0, "reserved_qpn_dealloc");
	EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(env->ctx, qpn), EINVAL,
		  "reserved_qpn_dealloc of a number that is not reserved");
}

static void ports_and_streams(const void *arg)
{
	struct t_spec s = { 0 };
	struct t_pair p = t_pair(env, &s);
	struct t_qp fresh = t_qp(env, &s),
		    dci = t_dci(env, (struct t_spec){ .streams = true, .log_streams = 2, .log_errored = 2 });

	(void)arg;
	EXPECT_EQ(mlx5dv_modify_qp_udp_sport(p.a.qp, 55555), 0, "UDP source port in RTS");
	t_why_begin();
	EXPECT_EQ(mlx5dv_modify_qp_udp_sport(fresh.qp, 55555), EOPNOTSUPP, "in RESET");
	T_WHY("qp_feature_state", fresh.qp->qp_num);
	EXPECT_EQ(mlx5dv_dci_stream_id_reset(p.a.qp, 1), EINVAL, "stream of an RC");
	t_why_begin();
	EXPECT(mlx5dv_dci_stream_id_reset(dci.qp, 1) != 0, "a stream that is not in error was reset");
	EXPECT(mlx5dv_qp_cancel_posted_send_wrs(dci.dv, 1) == -EOPNOTSUPP, "cancel_posted_send_wrs");
	T_WHY("not_offered", dci.qp->qp_num);
	t_qp_free(&dci);
	t_qp_free(&fresh);
	t_pair_free(&p);
}

static int allocs, frees;

static void *own_alloc(size_t size, void *priv)
{
	(void)priv;
	allocs++;
	return aligned_alloc(4096, (size + 4095) & ~(size_t)4095);
}

static void own_free(void *p, void *priv)
{
	(void)priv;
	frees++;
	free(p);
}

static void allocator(const void *arg)
{
	struct mlx5dv_ctx_allocators a = { .alloc = own_alloc, .free = own_free }, none = { 0 };
	struct t_spec s = { 0 };
	struct ibv_srq *srq;
	struct t_qp q;

	(void)arg;
	EXPECT_EQ(mlx5dv_set_context_attr(env->ctx, MLX5DV_CTX_ATTR_BUF_ALLOCATORS, &a), 0, "set_context_attr");
	q = t_qp(env, &s);
	srq = t_srq(env, 8);
	EXPECT_EQ(allocs, 4, "allocations for a QP, two CQs and an SRQ");
	EXPECT_EQ(ibv_resize_cq(q.scq, 3000), 0, "ibv_resize_cq");
	EXPECT(allocs == 5 && frees == 1, "after the resize there were %d allocations, %d frees", allocs, frees);
	EXPECT_EQ(mlx5dv_set_context_attr(env->ctx, MLX5DV_CTX_ATTR_BUF_ALLOCATORS, &none), 0, "unset");
	t_qp_free(&q);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
	EXPECT_EQ(frees, 5, "frees");
	EXPECT_EQ(mlx5dv_set_context_attr(env->ctx, 9, &a), EOPNOTSUPP, "unknown type");
}

int main(void)
{
	env = t_open();
	t_case("a program writes WQEs and reads CQEs itself", by_hand, NULL);
	t_case("mlx5dv_init_obj@MLX5_1.0 gives the address of the register's pointer", version_1_0, NULL);
	t_case("SRQ, AH, PD and device memory", objects, NULL);
	t_case("mlx5dv_query_device answers what is asked", capabilities, NULL);
	t_case("clock and port", clock_and_port, NULL);
	t_case("doorbell pages", uars, NULL);
	t_case("mkey flags", mkeys, NULL);
	t_case("CQ attributes", cqs, NULL);
	t_case("what is not offered says so", not_offered, NULL);
	t_case("UDP source port and stream reset need the right queue pair", ports_and_streams, NULL);
	t_case("queues in memory of the program's allocator", allocator, NULL);
	return t_close(env);
}
