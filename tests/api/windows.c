/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory windows of both types: bind, use, bind again, invalidate locally and by the peer, and who may use them.
 * Device memory beside them: copies in and out, regions over it. */
#include "t_why.h"

enum { LEN = 4096 };

static struct t_env *env;
static struct t_buf mem, flat;

static void set_up(const void *arg)
{
	(void)arg;
	mem = t_buf(env, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);	/* no remote right of its own */
	flat = t_buf(env, LEN, T_ALL);
}

static struct t_pair new_pair(void)
{
	struct t_spec s = { .ops = T_RC_OPS };

	return t_pair(env, &s);
}

static struct ibv_mw_bind_info info(size_t at, size_t len, unsigned int access)
{
	return (struct ibv_mw_bind_info){
		.mr = mem.mr, .addr = mem.va + at, .length = len, .mw_access_flags = access
	};
}

/* WRITE of 16 bytes to rkey at va. RETURN the status. */
static enum ibv_wc_status write16(struct t_qp *q, uint32_t rkey, uint64_t va)
{
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 9, t_sge(&flat, 0, 16), rkey, va);

	EXPECT_EQ(t_post(q, &o), 0, "WRITE");
	return t_poll(q->scq).wc.status;
}

static void bind_1(struct t_qp *q, struct ibv_mw *mw, struct ibv_mw_bind_info i)
{
	struct ibv_mw_bind b = { .wr_id = 3, .send_flags = IBV_SEND_SIGNALED, .bind_info = i };

	EXPECT_EQ(ibv_bind_mw(q->qp, mw, &b), 0, "ibv_bind_mw");
	T_DONE(q->scq, 3, IBV_WC_BIND_MW);
}

static void type_1(const void *arg)
{
	struct t_pair p = new_pair();
	struct ibv_mw *mw = ibv_alloc_mw(env->pd, IBV_MW_TYPE_1);
	uint32_t first;

	(void)arg;
	MUST(mw, "ibv_alloc_mw");
	t_fill(flat.p, 16, 1);
	memset(mem.p, 0, LEN);
	bind_1(&p.b, mw, info(100, 200, IBV_ACCESS_REMOTE_WRITE));
	EXPECT_EQ(write16(&p.a, mw->rkey, mem.va + 284), IBV_WC_SUCCESS, "the last bytes of the window");
	EXPECT(t_is(mem.p + 284, 16, 1), "data");
	first = mw->rkey;

	bind_1(&p.b, mw, info(1000, 16, IBV_ACCESS_REMOTE_WRITE));
	EXPECT(mw->rkey != first, "the key did not change with the second bind");
	EXPECT_EQ(write16(&p.a, mw->rkey, mem.va + 1000), IBV_WC_SUCCESS, "the new window");
	EXPECT_EQ(write16(&p.a, first, mem.va + 284), IBV_WC_REM_ACCESS_ERR, "the old key");
	t_reconnect(env, &p);
	EXPECT_EQ(write16(&p.a, mw->rkey, mem.va + 1001), IBV_WC_REM_ACCESS_ERR, "past the window");
	t_reconnect(env, &p);

	/* A type 1 window belongs to its PD: any queue pair of it may use it. Length 0 unbinds. */
	struct t_pair other = new_pair();

	EXPECT_EQ(write16(&other.a, mw->rkey, mem.va + 1000), IBV_WC_SUCCESS, "through another queue pair");
	t_pair_free(&other);
	first = mw->rkey;
	bind_1(&p.b, mw, info(1000, 0, 0));
	EXPECT_EQ(write16(&p.a, first, mem.va + 1000), IBV_WC_REM_ACCESS_ERR, "after it was unbound");
	t_pair_free(&p);
	EXPECT_EQ(ibv_dealloc_mw(mw), 0, "ibv_dealloc_mw");
}

static int bind_2(struct t_qp *q, struct ibv_mw *mw, uint32_t rkey, struct ibv_mw_bind_info i, bool old)
{
	struct t_op o = { .op = IBV_WR_BIND_MW,
			  .wr_id = 4,
			  .flags = IBV_SEND_SIGNALED,
			  .mw = mw,
			  .rkey = rkey,
			  .bind = i };

	EXPECT_EQ(old ? t_post_old(q, &o) : t_post(q, &o), 0, "posting the bind");
	return t_poll(q->scq).wc.status;
}

static void type_2(const void *arg)
{
	const bool *old = arg;
	struct t_pair p = new_pair(), other = new_pair();
	struct ibv_mw *mw = ibv_alloc_mw(env->pd, IBV_MW_TYPE_2);
	struct t_op inv = { .op = IBV_WR_LOCAL_INV, .wr_id = 5, .flags = IBV_SEND_SIGNALED };
	uint32_t key;

	MUST(mw, "ibv_alloc_mw");
	t_fill(flat.p, 16, 2);
	memset(mem.p, 0, LEN);
	key = ibv_inc_rkey(mw->rkey);
	EXPECT_EQ(
		bind_2(&p.b, mw, key, info(100, 200, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ), *old),
		IBV_WC_SUCCESS, "bind");
	mw->rkey = key;
	EXPECT_EQ(write16(&p.a, key, mem.va + 100), IBV_WC_SUCCESS, "WRITE");
	EXPECT(t_is(mem.p + 100, 16, 2), "data");

	/* A type 2 window belongs to the queue pair that bound it. */
	t_why_begin();
	EXPECT_EQ(write16(&other.a, key, mem.va + 100), IBV_WC_REM_ACCESS_ERR, "through another queue pair");
	T_WHY("REMOTE_QP", other.a.qp->qp_num);
	t_reconnect(env, &other);

	/* Invalidated locally: gone; bound again: there. */
	inv.inv = key;
	EXPECT_EQ(*old ? t_post_old(&p.b, &inv) : t_post(&p.b, &inv), 0, "LOCAL_INV");
	T_DONE(p.b.scq, 5, IBV_WC_LOCAL_INV);
	EXPECT_EQ(write16(&p.a, key, mem.va + 100), IBV_WC_REM_ACCESS_ERR, "after LOCAL_INV");
	t_reconnect(env, &p);
	key = ibv_inc_rkey(mw->rkey);
	EXPECT_EQ(bind_2(&p.b, mw, key, info(500, 16, IBV_ACCESS_REMOTE_WRITE), *old), IBV_WC_SUCCESS, "bind again");
	mw->rkey = key;
	EXPECT_EQ(write16(&p.a, key, mem.va + 500), IBV_WC_SUCCESS, "the new window");

	/* Invalidated by the peer's SEND. */
	struct t_op send = t_op(IBV_WR_SEND_WITH_INV, 6, t_sge(&flat, 0, 4));
	struct t_wc wc;

	send.inv = key;
	t_recv(&p.b, 7, t_sge(&flat, 100, 16));
	EXPECT_EQ(*old ? t_post_old(&p.a, &send) : t_post(&p.a, &send), 0, "SEND_WITH_INV");
	T_DONE(p.a.scq, 6, IBV_WC_SEND);
	wc = T_DONE(p.b.rcq, 7, IBV_WC_RECV);
	EXPECT(wc.wc.wc_flags & IBV_WC_WITH_INV && wc.wc.invalidated_rkey == key, "what was invalidated");
	EXPECT_EQ(write16(&p.a, key, mem.va + 500), IBV_WC_REM_ACCESS_ERR, "after SEND_WITH_INV");
	t_pair_free(&p);
	t_pair_free(&other);
	EXPECT_EQ(ibv_dealloc_mw(mw), 0, "ibv_dealloc_mw");
}

static void rights(const void *arg)
{
	struct t_pair p = new_pair();
	struct ibv_mw *mw = ibv_alloc_mw(env->pd, IBV_MW_TYPE_2);
	uint32_t key;

	(void)arg;
	MUST(mw, "ibv_alloc_mw");
	key = ibv_inc_rkey(mw->rkey);
	memset(mem.p, 0x42, LEN);
	EXPECT_EQ(bind_2(&p.b, mw, key, info(0, 100, IBV_ACCESS_REMOTE_READ), false), IBV_WC_SUCCESS, "bind");
	EXPECT_EQ(write16(&p.a, key, mem.va), IBV_WC_REM_ACCESS_ERR, "WRITE to a window for reading");
	EXPECT(t_all(mem.p, LEN, 0x42), "memory was written");
	t_pair_free(&p);
	EXPECT_EQ(ibv_dealloc_mw(mw), 0, "ibv_dealloc_mw");
}

static void zero_based_window(const void *arg)
{
	struct t_pair p = new_pair();
	struct ibv_mw *mw = ibv_alloc_mw(env->pd, IBV_MW_TYPE_2);
	uint32_t key;

	(void)arg;
	MUST(mw, "ibv_alloc_mw");
	key = ibv_inc_rkey(mw->rkey);
	memset(mem.p, 0, LEN);
	EXPECT_EQ(
		bind_2(&p.b, mw, key, info(300, 100, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED), false),
		IBV_WC_SUCCESS, "bind");
	t_fill(flat.p, 16, 3);
	EXPECT_EQ(write16(&p.a, key, 84), IBV_WC_SUCCESS, "WRITE");
	EXPECT(t_is(mem.p + 384, 16, 3), "data");
	t_pair_free(&p);
	EXPECT_EQ(ibv_dealloc_mw(mw), 0, "ibv_dealloc_mw");
}

/* A region under a window either cannot go, or takes the window's access with it. */
static void bound_region_goes(const void *arg)
{
	struct t_pair p = new_pair();
	struct t_buf own = t_buf(env, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(env->pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info i = { own.mr, own.va, LEN, IBV_ACCESS_REMOTE_WRITE };
	uint32_t key;
	int rc;

	(void)arg;
	MUST(mw, "ibv_alloc_mw");
	key = ibv_inc_rkey(mw->rkey);
	EXPECT_EQ(bind_2(&p.b, mw, key, i, false), IBV_WC_SUCCESS, "bind");
	rc = ibv_dereg_mr(own.mr);
	EXPECT(rc == 0 || rc == EBUSY, "ibv_dereg_mr under a window is %d", rc);
	if (rc == 0) {
		own.mr = NULL;
		EXPECT_EQ(write16(&p.a, key, own.va), IBV_WC_REM_ACCESS_ERR, "through the window");
		EXPECT(t_all(own.p, 16, 0), "memory was written");
	}
	EXPECT_EQ(ibv_dealloc_mw(mw), 0, "ibv_dealloc_mw");
	t_buf_free(&own);
	t_pair_free(&p);
}

/* ---- device memory ---- */

static void device_memory(const void *arg)
{
	struct ibv_device_attr_ex attr;
	struct ibv_alloc_dm_attr alloc = { .length = 4096 };
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct t_pair p;
	struct t_op o;
	uint8_t back[4096];

	(void)arg;
	MUST(!ibv_query_device_ex(env->ctx, NULL, &attr), "ibv_query_device_ex");
	if (!attr.max_dm_size)
		t_skip("the device has no memory of its own");
	dm = ibv_alloc_dm(env->ctx, &alloc);
	MUST(dm, "ibv_alloc_dm");
	t_fill(flat.p, 4096, 4);
	EXPECT_EQ(ibv_memcpy_to_dm(dm, 0, flat.p, 4096), 0, "ibv_memcpy_to_dm");
	memset(back, 0, sizeof(back));
	EXPECT_EQ(ibv_memcpy_from_dm(back, dm, 64, 1000), 0, "ibv_memcpy_from_dm");
	EXPECT(!memcmp(back, flat.p + 64, 1000), "data");
	EXPECT(ibv_memcpy_to_dm(dm, 4096, flat.p, 4) != 0, "past the end");
	EXPECT(ibv_memcpy_from_dm(back, dm, 4092, 8) != 0, "over the end");

	mr = ibv_reg_dm_mr(env->pd, dm, 1024, 2048, T_ALL | IBV_ACCESS_ZERO_BASED);
	MUST(mr, "ibv_reg_dm_mr");
	EXPECT_EQ(ibv_free_dm(dm), EBUSY, "device memory under a region");
	p = new_pair();
	t_fill(flat.p, 64, 5);
	o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&flat, 0, 64), mr->rkey, 100);
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	EXPECT_EQ(ibv_memcpy_from_dm(back, dm, 1024 + 100, 64), 0, "ibv_memcpy_from_dm");
	EXPECT(t_is(back, 64, 5), "data of the WRITE");
	o = t_rdma(IBV_WR_RDMA_WRITE, 2, (struct ibv_sge) { 100, 64, mr->lkey }, flat.key, flat.va + 1000);
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE from it");
	T_DONE(p.a.scq, 2, IBV_WC_RDMA_WRITE);
	EXPECT(t_is(flat.p + 1000, 64, 5), "data");
	o = t_rdma(IBV_WR_RDMA_WRITE, 3, t_sge(&flat, 0, 64), mr->rkey, 2000);
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE past its region");
	T_FAILED(p.a.scq, 3, T_REM_ACCESS);
	t_pair_free(&p);
	EXPECT_EQ(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
	EXPECT_EQ(ibv_free_dm(dm), 0, "ibv_free_dm");
	alloc.length = attr.max_dm_size + 1;
	errno = 0;
	EXPECT(!ibv_alloc_dm(env->ctx, &alloc) && errno, "more than the device has: errno %d", errno);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&mem);
	t_buf_free(&flat);
}

int main(void)
{
	static const bool by_builder = false, by_post_send = true;

	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("type 1", type_1, NULL);
	t_case("type 2 by ibv_wr_bind_mw", type_2, &by_builder);
	t_case("type 2 by ibv_post_send", type_2, &by_post_send);
	t_case("rights of a window", rights, NULL);
	t_case("zero-based window", zero_based_window, NULL);
	t_case("a region under a window", bound_region_goes, NULL);
	t_case("device memory", device_memory, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
