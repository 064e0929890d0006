/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs with a driver of their own: they write WQEs, doorbell records and UAR registers, arm completion
 * queues and read CQEs by themselves after mlx5dv_init_obj, and call nothing. The device notices when it is
 * awake and when it has gone to sleep, and an idle process uses no CPU.
 *
 * All of it runs with both values of SOFTMLX5_DOORBELLS, and a part where userfaultfd(2) is refused, each in a
 * process of its own. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "t_idle.h"
#include "two.h"

enum { LONG_US = 50000 };	/* the device is asleep after this */

static struct t_env *env;
static struct t_buf src, dst;
static const char *setting;

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 1 << 20, T_ALL);
	dst = t_buf(env, 1 << 20, T_ALL);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&src);
	t_buf_free(&dst);
}

/* ---- a small driver ---- */

struct own {
	struct t_qp q;
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
	uint32_t pi, ci, sn;
	uint32_t rq_pi;
	uint32_t bf_at;		/* half of the BlueFlame register */
	uint8_t *last;		/* WQE */
	struct mlx5_wqe_av av;	/* DC: the target */
	bool dc;
};

static struct own own(struct t_qp q, struct ibv_cq *cq)
{
	struct own o = { .q = q };
	struct mlx5dv_obj obj = { .qp = { q.qp, &o.qp }, .cq = { cq, &o.cq } };

	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	return o;
}

static uint8_t *block(struct own *o, uint32_t at)
{
	return (uint8_t *)o->qp.sq.buf + (size_t)(at & (o->qp.sq.wqe_cnt - 1)) * 64;
}

/* Data and remote address of a WRITE; a SEND has no remote address. */
static void put(struct own *o, uint8_t opcode, struct ibv_sge from, const struct t_buf *to, uint64_t at)
{
	uint8_t ds = o->dc ? 4 : 1;
	struct mlx5_wqe_raddr_seg raddr = { 0 };
	struct mlx5_wqe_data_seg data;
	uint8_t wqe[128] = { 0 };

	o->last = block(o, o->pi);
	if (o->dc)
		memcpy(wqe + 16, &o->av, sizeof(o->av));
	if (opcode == MLX5_OPCODE_RDMA_WRITE) {
		raddr.raddr = htobe64(to->va + at);
		raddr.rkey = htobe32(to->key);
		memcpy(wqe + ds++ * 16, &raddr, 16);
	}
	mlx5dv_set_data_seg(&data, from.length, from.lkey, from.addr);
	memcpy(wqe + ds++ * 16, &data, 16);
	mlx5dv_set_ctrl_seg((void *)wqe, (uint16_t)o->pi, opcode, 0, o->q.qp->qp_num, MLX5_WQE_CTRL_CQ_UPDATE,
			    ds, 0, 0);
	memcpy(o->last, wqe, 64);
	o->pi++;
	if (ds > 4)
		memcpy(block(o, o->pi++), wqe + 64, 64);
}

static void put_write(struct own *o, size_t at, uint32_t len)
{
	put(o, MLX5_OPCODE_RDMA_WRITE, t_sge(&src, at, len), &dst, at);
}

/* The doorbell: record, then register. */
static void ring_at(struct own *o, void *reg)
{
	uint64_t first;

	memcpy(&first, o->last, 8);
	__atomic_store_n(&o->qp.dbrec[MLX5_SND_DBR], htobe32(o->pi & 0xffff), __ATOMIC_RELEASE);
	__atomic_store_n((uint64_t *)reg, first, __ATOMIC_RELEASE);
}

static void ring(struct own *o)
{
	ring_at(o, (uint8_t *)o->qp.bf.reg + o->bf_at);
	o->bf_at ^= o->qp.bf.size;
}

/* RETURN the next CQE, or NULL after ten seconds. */
static struct mlx5_cqe64 *next_cqe(struct mlx5dv_cq *cq, uint32_t *ci)
{
	uint64_t end = t_now_ms() + 10000;
	uint8_t *cqe = (uint8_t *)cq->buf + (size_t)(*ci & (cq->cqe_cnt - 1)) * cq->cqe_size + cq->cqe_size - 64;

	do {
		uint8_t own = __atomic_load_n(&cqe[63], __ATOMIC_ACQUIRE);

		if (own >> 4 != MLX5_CQE_INVALID && (own & 1) == !!(*ci & cq->cqe_cnt)) {
			++*ci;
			__atomic_store_n(&cq->dbrec[0], htobe32(*ci & 0xffffff), __ATOMIC_RELEASE);
			return (struct mlx5_cqe64 *)(void *)cqe;
		}
	} while (t_now_ms() < end);
	return NULL;
}

static bool done(struct own *o, uint8_t opcode)
{
	struct mlx5_cqe64 *cqe = next_cqe(&o->cq, &o->ci);

	return EXPECT(cqe, "no completion") && EXPECT_EQ(mlx5dv_get_cqe_opcode(cqe), opcode, "CQE opcode");
}

static bool done_req(struct own *o)
{
	return done(o, MLX5_CQE_REQ);
}

/* One WRITE from posting to its data. */
static bool one_write(struct own *o, uint32_t seed)
{
	size_t at = seed % 64 * 1024;

	t_fill(src.p + at, 200, seed);
	put_write(o, at, 200);
	ring(o);
	return done_req(o) && EXPECT(t_is(dst.p + at, 200, seed), "data of write %u", seed);
}

/* ---- what rings ---- */

struct world {
	struct t_pair rc;
	struct ibv_srq *srq;
	struct t_qp dci, dct;
	struct ibv_ah *ah;
};

static struct own dc_own(struct world *w)
{
	struct own o;
	struct mlx5dv_ah dv = { 0 };
	struct mlx5dv_obj obj;

	w->srq = t_srq(env, 16);
	w->dct = t_dct(env, w->srq, 77);
	w->dci = t_dci(env, (struct t_spec){ .sq = 32 });
	w->ah = t_ah(env);
	obj = (struct mlx5dv_obj){ .ah = { w->ah, &dv } };
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH), "mlx5dv_init_obj");
	o = own(w->dci, w->dci.scq);
	o.dc = true;
	o.av = *dv.av;
	o.av.key.dc_key = htobe64(77);
	o.av.dqp_dct = htobe32(w->dct.qp->qp_num | 0x80000000u);
	return o;
}

static struct own world(struct world *w, bool dc)
{
	struct t_spec s = { .sq = 64 };

	*w = (struct world){ .srq = NULL };
	if (dc)
		return dc_own(w);
	w->rc = t_pair(env, &s);
	return own(w->rc.a, w->rc.a.scq);
}

static void world_free(struct world *w)
{
	if (!w->srq) {
		t_pair_free(&w->rc);
		return;
	}
	t_qp_free(&w->dci);
	t_qp_free(&w->dct);
	EXPECT_EQ(ibv_destroy_ah(w->ah), 0, "ibv_destroy_ah");
	EXPECT_EQ(ibv_destroy_srq(w->srq), 0, "ibv_destroy_srq");
}

static const bool rc = false, dc = true;

static void pauses(const void *arg)
{
	static const unsigned int us[] = { LONG_US, 0, LONG_US, 100, LONG_US, 1000, LONG_US, 5000 };
	struct world w;
	struct own o = world(&w, *(const bool *)arg);

	for (uint32_t i = 0; i < 24; i++) {
		usleep(us[i % 8]);
		if (!one_write(&o, i))
			break;
	}
	world_free(&w);
}

static void bursts(const void *arg)
{
	struct world w;
	struct own o = world(&w, *(const bool *)arg);
	const uint32_t n = o.qp.sq.wqe_cnt / (o.dc ? 2 : 1);

	for (uint32_t round = 0; round < 12; round++) {
		bool ok = true;

		usleep(round % 3 == 0 ? LONG_US : 0);
		t_fill(src.p, n * 64, round);
		for (uint32_t i = 0; i < n; i++) {
			put_write(&o, i * 64, 64);
			if (round & 1 || i == n - 1)	/* each rung, or all at once */
				ring(&o);
		}
		for (uint32_t i = 0; i < n && ok; i++)
			ok = done_req(&o);
		if (!ok || !EXPECT(t_is(dst.p, n * 64, round), "data of round %u", round))
			break;
	}
	world_free(&w);
}

/* BlueFlame: the WQE itself is copied into the register. */
static void blueflame(const void *arg)
{
	struct world w;
	struct own o = world(&w, false);

	(void)arg;
	if (!o.qp.bf.size) {
		world_free(&w);
		t_skip("no BlueFlame");
	}
	for (uint32_t i = 0; i < 6; i++) {
		usleep(i & 1 ? LONG_US : 0);
		t_fill(src.p, 100, i);
		put_write(&o, 0, 100);
		__atomic_store_n(&o.qp.dbrec[MLX5_SND_DBR], htobe32(o.pi & 0xffff), __ATOMIC_RELEASE);
		for (int j = 0; j < 8; j++)
			__atomic_store_n((uint64_t *)(void *)((uint8_t *)o.qp.bf.reg + o.bf_at + j * 8),
					 ((uint64_t *)(void *)o.last)[j], __ATOMIC_RELEASE);
		o.bf_at ^= o.qp.bf.size;
		if (!done_req(&o) || !EXPECT(t_is(dst.p, 100, i), "data of write %u", i))
			break;
	}
	world_free(&w);
}

static void devx_page(const void *arg)
{
	struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(env->ctx, MLX5DV_UAR_ALLOC_TYPE_NC);
	struct world w;
	struct own o = world(&w, false);

	(void)arg;
	MUST(uar, "mlx5dv_devx_alloc_uar");
	for (uint32_t i = 0; i < 4; i++) {
		usleep(LONG_US);
		t_fill(src.p, 100, i);
		put_write(&o, 0, 100);
		ring_at(&o, uar->reg_addr);
		if (!done_req(&o) || !EXPECT(t_is(dst.p, 100, i), "data of write %u", i))
			break;
	}
	usleep(LONG_US);
	mlx5dv_devx_free_uar(uar);	/* while the device sleeps */
	EXPECT(one_write(&o, 9), "by the context's own page");
	world_free(&w);
}

/* Many queues, each rung once while the device sleeps. */
static void many(const void *arg)
{
	enum { N = 100 };
	static struct t_pair p[N];
	static struct own o[N];
	struct t_spec s = { .sq = 4, .rq = 1, .cqe = 4 };

	(void)arg;
	for (int i = 0; i < N; i++) {
		p[i] = t_pair(env, &s);
		o[i] = own(p[i].a, p[i].a.scq);
	}
	usleep(LONG_US);
	t_fill(src.p, N * 64, 3);
	for (int i = 0; i < N; i++) {
		put_write(&o[i], (size_t)i * 64, 64);
		ring(&o[i]);
	}
	for (int i = 0; i < N; i++) {
		if (!done_req(&o[i]))
			break;
	}
	EXPECT(t_is(dst.p, N * 64, 3), "data");
	for (int i = 0; i < N; i++)
		t_pair_free(&p[i]);
}

/* ---- arming ---- */

static void arm(struct own *o)
{
	uint32_t word = (o->sn & 3) << 28 | (o->ci & 0xffffff);

	__atomic_store_n(&o->cq.dbrec[1], htobe32(word), __ATOMIC_RELEASE);
	__atomic_store_n((uint64_t *)(void *)((uint8_t *)o->cq.cq_uar + 0x20),
			 htobe64((uint64_t)word << 32 | o->cq.cqn), __ATOMIC_RELEASE);
}

static void armed(const void *arg)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(env->ctx);
	struct pollfd fd = { .events = POLLIN };
	struct t_spec s = { 0 };
	struct t_pair p;
	struct own o;
	void *context;
	struct ibv_cq *cq;

	(void)arg;
	MUST(ch, "ibv_create_comp_channel");
	fd.fd = ch->fd;
	s.scq = s.rcq = ibv_create_cq(env->ctx, 64, NULL, ch, 0);
	MUST(s.scq, "ibv_create_cq");
	p = t_pair(env, &s);
	o = own(p.a, s.scq);
	EXPECT(one_write(&o, 1), "without arming");
	EXPECT_EQ(poll(&fd, 1, 20), 0, "events without arming");
	t_qp_free(&p.a);
	t_qp_free(&p.b);
	EXPECT_EQ(ibv_destroy_cq(s.scq), 0, "ibv_destroy_cq");

	/* A fresh queue: its first arm word is 0, as the record's is from the start. */
	s.scq = s.rcq = ibv_create_cq(env->ctx, 64, NULL, ch, 0);
	MUST(s.scq, "ibv_create_cq");
	p = t_pair(env, &s);
	o = own(p.a, s.scq);
	for (uint32_t i = 0; i < 6; i++) {
		usleep(i % 3 == 1 ? 0 : LONG_US);
		arm(&o);
		usleep(i % 3 == 2 ? 0 : LONG_US);
		t_fill(src.p, 64, i);
		put_write(&o, 0, 64);
		ring(&o);
		if (!EXPECT_EQ(poll(&fd, 1, 10000), 1, "an event"))
			break;
		MUST(!ibv_get_cq_event(ch, &cq, &context), "ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
		o.sn++;
		EXPECT(cq == s.scq && done_req(&o), "the completion");
		EXPECT_EQ(poll(&fd, 1, 0), 0, "a second event");
	}
	/* Armed after the completion came: the event comes at once. */
	put_write(&o, 0, 64);
	ring(&o);
	usleep(LONG_US);
	arm(&o);
	EXPECT_EQ(poll(&fd, 1, 10000), 1, "an event for what came before");
	t_qp_free(&p.a);
	t_qp_free(&p.b);
	EXPECT_EQ(ibv_destroy_cq(s.scq), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_destroy_comp_channel(ch), 0, "ibv_destroy_comp_channel");
}

/* ---- receives: a doorbell record and no register ---- */

static void put_recv(struct own *o, uint32_t at, uint32_t len)
{
	uint8_t *wqe = (uint8_t *)o->qp.rq.buf +
		       (size_t)(o->rq_pi & (o->qp.rq.wqe_cnt - 1)) * o->qp.rq.stride;

	mlx5dv_set_data_seg((void *)wqe, len, dst.key, dst.va + at);
	if (o->qp.rq.stride > 16)
		mlx5dv_set_data_seg((void *)(wqe + 16), 0, MLX5_INVALID_LKEY, 0);
	o->rq_pi++;
	__atomic_store_n(&o->qp.dbrec[MLX5_RCV_DBR], htobe32(o->rq_pi & 0xffff), __ATOMIC_RELEASE);
}

/* The sender rings first and waits for a receive; its timer finds the receive that was posted. */
static void receives(const void *arg)
{
	struct t_spec s = { 0 };
	struct t_pair p = t_pair(env, &s);
	struct own a = own(p.a, p.a.scq), b = own(p.b, p.b.rcq);

	(void)arg;
	for (uint32_t i = 0; i < 6; i++) {
		bool first = i & 1;

		usleep(LONG_US);
		t_fill(src.p, 300, i);
		memset(dst.p, 0, 300);
		if (first)
			put_recv(&b, 0, 1024);
		put(&a, MLX5_OPCODE_SEND, t_sge(&src, 0, 300), NULL, 0);
		ring(&a);
		if (!first) {
			usleep(LONG_US);
			EXPECT(t_all(dst.p, 300, 0), "data without a receive");
			put_recv(&b, 0, 1024);
		}
		if (!done(&b, MLX5_CQE_RESP_SEND) || !done_req(&a) ||
		    !EXPECT(t_is(dst.p, 300, i), "data of send %u", i))
			break;
	}
	t_pair_free(&p);
}

/* Likewise with a shared receive queue. */
static void shared_receives(const void *arg)
{
	struct ibv_srq *srq = t_srq(env, 15);
	struct mlx5dv_srq dv = { 0 };
	struct mlx5dv_obj obj = { .srq = { srq, &dv } };
	struct t_spec plain = { 0 }, shared = { .srq = srq };
	struct t_pair p = { .a = t_qp(env, &plain), .b = t_qp(env, &shared) };
	struct own a = own(p.a, p.a.scq), b = own(p.b, p.b.rcq);
	uint16_t counter = 0;

	(void)arg;
	t_connect(env, &p.a, &p.b);
	MUST(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ), "mlx5dv_init_obj");
	for (uint32_t i = 0; i < 4; i++) {
		uint8_t *wqe = (uint8_t *)dv.buf + (size_t)dv.head * dv.stride;
		struct mlx5_wqe_srq_next_seg *next = (void *)wqe;

		t_fill(src.p, 300, i);
		put(&a, MLX5_OPCODE_SEND, t_sge(&src, 0, 300), NULL, 0);
		ring(&a);
		usleep(LONG_US);
		mlx5dv_set_data_seg((void *)(wqe + 16), 1024, dst.key, dst.va);
		mlx5dv_set_data_seg((void *)(wqe + 32), 0, MLX5_INVALID_LKEY, 0);
		dv.head = be16toh(next->next_wqe_index);
		__atomic_store_n(dv.dbrec, htobe32(++counter), __ATOMIC_RELEASE);
		if (!done(&b, MLX5_CQE_RESP_SEND) || !done_req(&a) ||
		    !EXPECT(t_is(dst.p, 300, i), "data of send %u", i))
			break;
	}
	t_pair_free(&p);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

/* In ERR, requests and receives that the program posts complete as flushed. */
static void flushed(const void *arg)
{
	struct t_spec s = { 0 };
	struct t_pair p = t_pair(env, &s);
	struct own a = own(p.a, p.a.scq), b = own(p.a, p.a.rcq);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)arg;
	MUST(!ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), "to ERR");
	usleep(LONG_US);
	put_write(&a, 0, 64);
	ring(&a);
	done(&a, MLX5_CQE_REQ_ERR);
	usleep(LONG_US);
	put_recv(&b, 0, 64);
	done(&b, MLX5_CQE_RESP_ERR);
	t_pair_free(&p);
}

/* ---- beside the driver's own doorbells ---- */

/* Our driver rings while the device sleeps for the program's stores; on the same context, and through the
 * wrap of both. */
static void mixed(const void *arg)
{
	struct world w;
	struct own o = world(&w, false);
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p = t_pair(env, &s);

	(void)arg;
	for (uint32_t i = 0; i < 30; i++) {
		struct t_op op = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&src, 0, 64), dst.key, dst.va);

		usleep(i % 5 == 0 ? LONG_US : 0);
		t_fill(src.p, 64, i);
		EXPECT_EQ(i & 1 ? t_post(&p.a, &op) : t_post_old(&p.a, &op), 0, "post");
		T_DONE(p.a.scq, i, IBV_WC_RDMA_WRITE);
		EXPECT(t_is(dst.p, 64, i), "data of the driver's write %u", i);
		usleep(i % 7 == 0 ? LONG_US : 0);
		if (!one_write(&o, i))
			break;
	}
	t_pair_free(&p);
	world_free(&w);
}

/* A register may be written by a request, too: whoever executes it is stopped by the page, and goes on. */
static void rung_by_a_request(const void *arg)
{
	struct world w, chained;
	struct own o = world(&w, false), by = world(&chained, false);
	uint8_t *page = (uint8_t *)((uintptr_t)o.qp.bf.reg & ~(uintptr_t)4095);
	struct t_buf reg = { .p = page, .mr = ibv_reg_mr(env->pd, page, 4096, T_ALL), .va = (uintptr_t)o.qp.bf.reg };

	(void)arg;
	MUST(reg.mr, "ibv_reg_mr of a UAR page");
	reg.key = reg.mr->rkey;
	for (uint32_t i = 0; i < 6; i++) {
		struct t_op op = t_rdma(IBV_WR_RDMA_WRITE, i, t_sge(&src, 4096, 8), reg.key, reg.va);

		t_fill(src.p, 64, i);
		put_write(&o, 0, 64);
		memcpy(src.p + 4096, o.last, 8);
		__atomic_store_n(&o.qp.dbrec[MLX5_SND_DBR], htobe32(o.pi & 0xffff), __ATOMIC_RELEASE);
		usleep(LONG_US);
		if (i & 1) {	/* the device's thread executes it */
			put(&by, MLX5_OPCODE_RDMA_WRITE, op.sge[0], &reg, 0);
			ring(&by);
			done_req(&by);
		} else {	/* we do */
			EXPECT_EQ(t_post_old(&w.rc.b, &op), 0, "post");
			T_DONE(w.rc.b.scq, i, IBV_WC_RDMA_WRITE);
		}
		if (!done_req(&o) || !EXPECT(t_is(dst.p, 64, i), "data of write %u", i))
			break;
	}
	EXPECT_EQ(ibv_dereg_mr(reg.mr), 0, "ibv_dereg_mr");
	world_free(&chained);
	world_free(&w);
}

/* Another context comes and goes while pages are protected. */
static void contexts(const void *arg)
{
	struct world w;
	struct own o = world(&w, false);

	(void)arg;
	for (uint32_t i = 0; i < 3; i++) {
		struct ibv_context *ctx = ibv_open_device(env->ctx->device);
		struct ibv_cq *cq = ctx ? ibv_create_cq(ctx, 4, NULL, NULL, 0) : NULL;
		struct mlx5dv_cq dv = { 0 };
		struct mlx5dv_obj obj = { .cq = { cq, &dv } };

		MUST(cq && !mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "a second context");
		usleep(LONG_US);
		*(volatile uint64_t *)((uint8_t *)dv.cq_uar + 0x20) = 1;
		usleep(i == 1 ? 0 : LONG_US);
		EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
		EXPECT_EQ(ibv_close_device(ctx), 0, "ibv_close_device");
		if (!one_write(&o, i))
			break;
	}
	world_free(&w);
}

enum { THREADS = 4, THREAD_WRITES = 60 };

struct thread {
	pthread_t id;
	struct world w;
	struct own o;
	uint32_t n;
	bool ok;
};

static void *work(void *arg)
{
	struct thread *t = arg;
	size_t at = 65536 + (size_t)t->n * 4096;

	for (uint32_t i = 0; i < THREAD_WRITES; i++) {
		struct mlx5_cqe64 *cqe;

		usleep(i % 10 == t->n ? LONG_US / 5 : i % 3 * 70);
		t_fill(src.p + at, 64, i);
		put_write(&t->o, at, 64);
		ring(&t->o);
		cqe = next_cqe(&t->o.cq, &t->o.ci);
		t->ok = cqe && mlx5dv_get_cqe_opcode(cqe) == MLX5_CQE_REQ && t_is(dst.p + at, 64, i);
		if (!t->ok)
			break;
	}
	return NULL;
}

static void threads(const void *arg)
{
	static struct thread t[THREADS];

	(void)arg;
	for (uint32_t i = 0; i < THREADS; i++) {
		t[i] = (struct thread){ .n = i };
		t[i].o = world(&t[i].w, i & 1);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		MUST(!pthread_create(&t[i].id, NULL, work, &t[i]), "pthread_create");
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(t[i].id, NULL);
		EXPECT(t[i].ok, "thread %u", i);
		world_free(&t[i].w);
	}
}

/* A child's stores neither stop it nor ring its parent's device. */
static void forked(const void *arg)
{
	struct world w;
	struct own o = world(&w, false);
	int status = -1;
	pid_t pid;

	(void)arg;
	for (uint32_t i = 0; i < 3; i++) {
		usleep(LONG_US);
		pid = fork();
		MUST(pid >= 0, "fork");
		if (!pid) {
			alarm(20);
			*(volatile uint64_t *)o.qp.bf.reg = 1;
			_exit(3);
		}
		MUST(waitpid(pid, &status, 0) == pid, "waitpid");
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 3, "the child ended with 0x%x",
		       (unsigned int)status);
		if (!one_write(&o, i))
			break;
	}
	world_free(&w);
}

/* ---- idling ---- */

static bool has_userfaultfd(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	int fd = (int)syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
	bool has = fd >= 0 && !ioctl(fd, UFFDIO_API, &api);

	if (fd >= 0)
		close(fd);
	return has;
}

static bool sleeps(void)
{
	return !strcmp(setting, "auto") && has_userfaultfd();
}

static void idle(const void *arg)
{
	struct world w;
	struct own o = world(&w, *(const bool *)arg);
	struct t_work before;

	EXPECT(one_write(&o, 1), "before");
	usleep(LONG_US);
	before = t_work(getpid());
	usleep(2000000);
	if (sleeps())
		t_expect_idle(before, getpid(), "the process");
	else
		EXPECT(t_work(getpid()).ticks - before.ticks <= (uint64_t)sysconf(_SC_CLK_TCK),
		       "it looks all the time");
	EXPECT(one_write(&o, 2), "after");
	world_free(&w);
}

/* ---- another process ---- */

static bool is_there(const volatile uint8_t *p, uint32_t len, uint32_t seed)
{
	uint64_t end = t_now_ms() + 10000;

	while (!t_is((const uint8_t *)p, len, seed)) {
		if (t_now_ms() > end)
			return false;
		usleep(100);
	}
	return true;
}

/* Both sides sleep for the program's stores and for each other. Here the program rings by itself; there it
 * makes no call, and is written to. */
static void other_process(const void *arg)
{
	struct two two = two_start(env);
	struct t_work here, there;
	struct t_buf far;
	struct own o;

	(void)arg;
	two.page->rings = 1;
	two_connect(env, &two, 14, 7);
	two.page->quiet = TWO_ASLEEP;
	far = (struct t_buf){ .va = two.page->va + TWO_TARGET, .key = two.page->rkey };
	o = own(two.q[TWO_RC], two.q[TWO_RC].scq);
	for (uint32_t i = 0; i < 12; i++) {
		uint32_t len = i & 1 ? 20000 : 200;

		usleep(i % 3 ? LONG_US : 0);
		t_fill(src.p, len, i);
		put(&o, MLX5_OPCODE_RDMA_WRITE, t_sge(&src, 0, len), &far, 0);
		ring(&o);
		if (!EXPECT(is_there(two.mem + TWO_TARGET, len, i), "data of write %u", i) || !done_req(&o))
			break;
	}
	usleep(LONG_US);
	here = t_work(getpid());
	there = t_work(two.pid);
	usleep(2000000);
	if (sleeps()) {
		t_expect_idle(here, getpid(), "this process");
		t_expect_idle(there, two.pid, "the other process");
	}
	t_fill(src.p, 64, 99);
	put(&o, MLX5_OPCODE_RDMA_WRITE, t_sge(&src, 0, 64), &far, 0);
	ring(&o);
	EXPECT(is_there(two.mem + TWO_TARGET, 64, 99), "data after idling");
	done_req(&o);
	kill(two.pid, SIGKILL);
	two_end(&two);
}

/* ---- */

/* From now on userfaultfd(2) fails, as in many containers. RETURN whether that could be arranged. */
static bool refuse_userfaultfd(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static void cases(bool refused)
{
	static const struct {
		const char *name;
		void (*fn)(const void *arg);
		const void *arg;
		bool refused;	/* also there */
	} all[] = {
		{ "set up", set_up, NULL, true },
		{ "RC, with pauses", pauses, &rc, true },
		{ "RC, in bursts", bursts, &rc, false },
		{ "DC, with pauses", pauses, &dc, false },
		{ "DC, in bursts", bursts, &dc, false },
		{ "BlueFlame", blueflame, NULL, false },
		{ "a page of mlx5dv_devx_alloc_uar", devx_page, NULL, false },
		{ "a hundred queue pairs", many, NULL, false },
		{ "arming a completion queue", armed, NULL, true },
		{ "receives, by record alone", receives, NULL, false },
		{ "receives of an SRQ, by record alone", shared_receives, NULL, false },
		{ "requests and receives in ERR", flushed, NULL, false },
		{ "beside the driver's doorbells", mixed, NULL, false },
		{ "a request rings", rung_by_a_request, NULL, false },
		{ "contexts come and go", contexts, NULL, false },
		{ "threads", threads, NULL, false },
		{ "a forked child", forked, NULL, false },
		{ "an idle process", idle, &rc, true },
		{ "an idle process that others may send to", idle, &dc, false },
		{ "another process", other_process, NULL, true },
		{ "tear down", tear_down, NULL, true },
	};
	static char names[sizeof(all) / sizeof(all[0])][80];

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (refused && !all[i].refused)
			continue;
		snprintf(names[i], sizeof(names[i]), "%s%s: %s", setting, refused ? " refused" : "",
			 all[i].name);
		t_case(names[i], all[i].fn, all[i].arg);
	}
}

/* RETURN the exit code of this process and those before together. */
static int again(const char *value, const char *refused, int before)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		setenv("SOFTMLX5_DOORBELLS", value, 1);
		execl("/proc/self/exe", "own_doorbell", refused, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) {
		printf("not ok - %s: the process ended with 0x%x\n", value, (unsigned int)status);
		return 1;
	}
	status = WEXITSTATUS(status);
	return before && before != 77 ? before : status == 77 ? before : status;
}

int main(int argc, char **argv)
{
	bool refused = argc > 1 && !strcmp(argv[1], "refused");

	two_main(argc, argv);
	setting = getenv("SOFTMLX5_DOORBELLS");
	if (!setting)
		return again("auto", "refused", again("poll", NULL, again("auto", NULL, 77)));
	if (refused && !refuse_userfaultfd()) {
		printf("skip - %s refused: all # no seccomp filters\n", setting);
		return 77;
	}
	env = t_open();
	cases(refused);
	return t_close(env);
}
