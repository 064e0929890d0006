/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All of the page's calls mixed: in batches with every ibv_wr_* call, with ibv_post_send() on the same queue pair, with
 * ibv_wr_abort(), fences, a full queue, and through the wraps of ring and index. */
#include "t_why.h"
#include "umr.h"

static struct t_env *env;
static struct t_buf src, dst;

static struct t_pair new_pair(uint32_t sq, uint32_t inl)
{
	struct t_spec s = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .sq = sq, .rq = 256, .inl = inl };

	return t_pair(env, &s);
}

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 65536, T_ALL);
	dst = t_buf(env, 65536, T_ALL | IBV_ACCESS_MW_BIND);
}

/* Register, write through the key, copy, fetch-add, read back fenced, send, invalidate: one batch, one doorbell. */
static void mixed_batch(const void *arg)
{
	struct t_pair p = new_pair(32, 64);
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct mlx5dv_mr_interleaved block = { dst.va, 4, 12, dst.key };
	struct ibv_qp_ex *ex = p.a.ex;

	(void)arg;
	for (int round = 0; round < 40; round++) {
		uint64_t counter = round, now;

		t_fill(src.p, 1024, round);
		memset(src.p + 4096, 0, 1024);
		memset(dst.p, 0, 8192);
		memcpy(dst.p + 4096, &counter, 8);
		t_recv(&p.b, 50, t_sge(&dst, 6000, 64));
		ibv_wr_start(ex);
		ex->wr_id = 1;
		ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		mlx5dv_wr_mr_interleaved(p.a.dv, mkey, T_ALL, 16, 1, &block);
		ex->wr_id = 2;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(ex, mkey->rkey, 0);
		ibv_wr_set_sge(ex, src.key, src.va, 64);
		ex->wr_id = 3;
		mlx5dv_wr_memcpy(p.a.dv, src.key, src.va + 4096, src.key, src.va, 100);
		ex->wr_id = 4;
		ibv_wr_atomic_fetch_add(ex, dst.key, dst.va + 4096, 5);
		ibv_wr_set_sge(ex, src.key, src.va + 2048, 8);
		ex->wr_id = 5;
		ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
		ibv_wr_rdma_read(ex, mkey->rkey, 0);
		ibv_wr_set_sge(ex, src.key, src.va + 4096 + 512, 64);
		ex->wr_id = 6;
		ibv_wr_send_imm(ex, htobe32(round));
		ibv_wr_set_inline_data(ex, src.p, 33);
		ex->wr_id = 7;
		ibv_wr_local_inv(ex, mkey->lkey);
		EXPECT_EQ(ibv_wr_complete(ex), 0, "ibv_wr_complete");
		static const int want[] = { MLX5DV_WC_UMR,    IBV_WC_RDMA_WRITE, MLX5DV_WC_MEMCPY,
					    IBV_WC_FETCH_ADD, IBV_WC_RDMA_READ,  IBV_WC_SEND,
					    IBV_WC_LOCAL_INV };
		for (int i = 0; i < 7; i++)
			T_DONE(p.a.scq, i + 1, want[i]);
		EXPECT_EQ(be32toh(T_DONE(p.b.rcq, 50, IBV_WC_RECV).wc.imm_data), round, "immediate data");
		for (int i = 0; i < 16; i++)
			EXPECT(!memcmp(dst.p + i * 16, src.p + i * 4, 4) && t_all(dst.p + i * 16 + 4, 12, 0),
			       "block %d", i);
		EXPECT(t_is(src.p + 4096, 100, round), "the copy");
		EXPECT(!memcmp(src.p + 4096 + 512, src.p, 64), "the fenced READ");
		EXPECT(t_is(dst.p + 6000, 33, round), "the SEND");
		memcpy(&now, dst.p + 4096, 8);
		EXPECT_EQ(now, round + 5, "the counter");
	}
	umr_free(mkey);
	t_pair_free(&p);
}

/* Both posting APIs in turn on one queue pair; completions in posting order. */
static void both_apis(const void *arg)
{
	struct t_pair p = new_pair(16, 64);

	(void)arg;
	for (int i = 0; i < 500; i++) {
		struct t_op o = t_rdma(i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, i, t_sge(&src, 0, 40),
				       dst.key, dst.va);

		if (i % 3 == 1)
			o.set = T_INLINE;
		if (i % 4 == 3)
			o.flags |= IBV_SEND_FENCE;
		EXPECT_EQ(i & 1 ? t_post_old(&p.a, &o) : t_post(&p.a, &o), 0, "posting");
		if (i % 8 == 7)
			for (int k = i - 7; k <= i; k++)
				T_DONE(p.a.scq, k, k % 3 ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ);
	}
	t_pair_free(&p);
}

static void list_of_post_send(const void *arg)
{
	struct t_pair p = new_pair(16, 0);
	struct ibv_sge sge[8];
	struct ibv_send_wr wr[8], *bad;

	(void)arg;
	memset(wr, 0, sizeof(wr));
	memset(dst.p, 0, 4096);
	t_fill(src.p, 4096, 6);
	for (int i = 0; i < 8; i++) {
		sge[i] = t_sge(&src, i * 100, 100);
		wr[i] = (struct ibv_send_wr){ .wr_id = i,
					      .next = i < 7 ? &wr[i + 1] : NULL,
					      .sg_list = &sge[i],
					      .num_sge = 1,
					      .opcode = IBV_WR_RDMA_WRITE,
					      .send_flags = i == 7 ? IBV_SEND_SIGNALED : 0,
					      .wr.rdma = { dst.va + i * 100, dst.key } };
	}
	EXPECT_EQ(ibv_post_send(p.a.qp, wr, &bad), 0, "ibv_post_send");
	T_DONE(p.a.scq, 7, IBV_WC_RDMA_WRITE);
	EXPECT(!memcmp(dst.p, src.p, 800), "data");

	/* A bad one in the middle: those before it are posted, it and what follows are not. */
	memset(dst.p, 0, 4096);
	wr[2].send_flags = IBV_SEND_SIGNALED;
	wr[3].num_sge = 99;
	EXPECT_EQ(ibv_post_send(p.a.qp, wr, &bad), ENOMEM, "ibv_post_send with too many SGEs");
	EXPECT(bad == &wr[3], "bad_wr names another request");
	T_DONE(p.a.scq, 2, IBV_WC_RDMA_WRITE);
	EXPECT(!memcmp(dst.p, src.p, 300) && t_all(dst.p + 300, 500, 0), "data");
	T_QUIET(p.a.scq);
	t_pair_free(&p);
}

/* An aborted batch never was: no doorbell, no slot, no fence that lingers. */
static void aborted(const void *arg)
{
	struct t_pair p = new_pair(8, 64);
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct ibv_sge piece = t_sge(&dst, 0, 64);
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 5, t_sge(&src, 0, 8), dst.key, dst.va + 100);

	(void)arg;
	memset(dst.p, 0, 4096);
	t_fill(src.p, 64, 1);
	for (int i = 0; i < 100; i++) {
		ibv_wr_start(p.a.ex);
		p.a.ex->wr_id = 1;
		p.a.ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		mlx5dv_wr_mr_list(p.a.dv, mkey, T_ALL, 1, &piece);
		for (int k = 0; k < i % 6; k++) {
			ibv_wr_rdma_write(p.a.ex, dst.key, dst.va);
			ibv_wr_set_sge(p.a.ex, src.key, src.va, 64);
		}
		ibv_wr_abort(p.a.ex);
		if (i % 3 == 0) {
			EXPECT_EQ(t_post(&p.a, &o), 0, "the batch after an abort");
			T_DONE(p.a.scq, 5, IBV_WC_RDMA_WRITE);
		}
	}
	EXPECT(t_all(dst.p, 64, 0), "an aborted WRITE was executed");
	EXPECT(!memcmp(dst.p + 100, src.p, 8), "data");
	T_QUIET(p.a.scq);
	umr_free(mkey);
	t_pair_free(&p);
}

/* As many requests as were granted fit, one more does not; a completion makes room. */
static void full_queue(const void *arg)
{
	struct t_pair p = new_pair(8, 0);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 8), dst.key, dst.va);
	int n = 0, rc;

	(void)arg;
	MUST(!ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init), "ibv_query_qp");
	EXPECT(init.cap.max_send_wr >= 8, "granted %u requests", init.cap.max_send_wr);
	for (int round = 0; round < 3; round++) {
		t_why_begin();
		o.flags = 0;
		for (n = 0; n < 4096 && !(rc = round & 1 ? t_post_old(&p.a, &o) : t_post(&p.a, &o)); n++)
			;
		EXPECT_EQ(rc, ENOMEM, "posting to a full queue");
		T_WHY("POST_SQ_FULL", 0);
		EXPECT((uint32_t)n >= 8, "only %d fit", n);
		/* They were unsignaled, so nothing frees them but a queue reset. */
		T_QUIET(p.a.scq);
		t_reconnect(env, &p);
	}
	o.flags = IBV_SEND_SIGNALED;
	for (int i = 0; i < n; i++)
		EXPECT_EQ(t_post(&p.a, &o), 0, "posting after RESET");
	EXPECT_EQ(t_post(&p.a, &o), ENOMEM, "one more");
	T_DONE(p.a.scq, 1, -1);
	EXPECT_EQ(t_post(&p.a, &o), 0, "after one completion");
	for (int i = 0; i < n; i++)
		T_DONE(p.a.scq, 1, -1);
	t_pair_free(&p);
}

/* A batch that does not fit as a whole is dropped as a whole. */
static void full_in_a_batch(const void *arg)
{
	struct t_pair p = new_pair(4, 0);
	int n = 0;

	(void)arg;
	memset(dst.p, 0, 64);
	ibv_wr_start(p.a.ex);
	for (; n < 200; n++) {
		p.a.ex->wr_id = n;
		p.a.ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(p.a.ex, dst.key, dst.va);
		ibv_wr_set_sge(p.a.ex, src.key, src.va, 8);
	}
	EXPECT_EQ(ibv_wr_complete(p.a.ex), ENOMEM, "ibv_wr_complete of 200 requests");
	T_QUIET(p.a.scq);
	EXPECT(t_all(dst.p, 64, 0), "some were executed");
	t_pair_free(&p);
}

/* 70,000 WQEs of one to five blocks: ring and 16-bit index wrap many times; sizes and kinds follow a fixed pattern. */
static void index_wraps(const void *arg)
{
	struct t_pair p = new_pair(16, 200);
	struct mlx5dv_mkey *mkey = umr_mkey(env->pd, 4, 0);
	struct ibv_sge piece = t_sge(&dst, 0, 4096);
	uint64_t sum = 0, now;

	(void)arg;
	memset(dst.p, 0, 65536);
	t_fill(src.p, 4096, 3);
	for (int i = 0; i < 70000 && !t_state.failures; i++) {
		ibv_wr_start(p.a.ex);
		p.a.ex->wr_id = i;
		p.a.ex->wr_flags = i % 5 == 4 ? IBV_SEND_SIGNALED : 0;
		switch (i % 7) {
		case 0:
			p.a.ex->wr_flags |= IBV_SEND_INLINE;
			mlx5dv_wr_mr_list(p.a.dv, mkey, T_ALL, 1, &piece);
			break;
		case 1:
			ibv_wr_rdma_write(p.a.ex, mkey->rkey, 1000);
			ibv_wr_set_inline_data(p.a.ex, src.p + i % 1000, i % 190);
			break;
		case 2:
			mlx5dv_wr_memcpy(p.a.dv, dst.key, dst.va + 8192, src.key, src.va, 64);
			break;
		case 3:
			ibv_wr_atomic_fetch_add(p.a.ex, dst.key, dst.va + 16384, i);
			ibv_wr_set_sge(p.a.ex, src.key, src.va + 8192, 8);
			sum += i;
			break;
		default:
			ibv_wr_rdma_write(p.a.ex, dst.key, dst.va + 20000);
			ibv_wr_set_sge(p.a.ex, src.key, src.va + i % 2000, 100);
		}
		EXPECT_EQ(ibv_wr_complete(p.a.ex), 0, "ibv_wr_complete");
		if (i % 5 == 4)
			T_DONE(p.a.scq, i, -1);
	}
	memcpy(&now, dst.p + 16384, 8);
	EXPECT_EQ(now, sum, "sum of all fetch-adds");
	EXPECT(!memcmp(dst.p + 20000, src.p + 69999 % 2000, 100) || !memcmp(dst.p + 20000, src.p + 69998 % 2000, 100) ||
	       !memcmp(dst.p + 20000, src.p + 69997 % 2000, 100), "the last plain WRITE");
	T_QUIET(p.a.scq);
	umr_free(mkey);
	t_pair_free(&p);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("seven kinds in one batch", mixed_batch, NULL);
	t_case("both posting APIs in turn", both_apis, NULL);
	t_case("a list by ibv_post_send", list_of_post_send, NULL);
	t_case("aborted batches", aborted, NULL);
	t_case("a full queue", full_queue, NULL);
	t_case("a batch that does not fit", full_in_a_batch, NULL);
	t_case("70,000 requests through ring and index wraps", index_wraps, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
