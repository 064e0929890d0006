/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5dv_wr_set_dc_addr_stream(): order within a stream, independence between streams, streams in
 * error, the threshold that moves the DCI to ERR, and mlx5dv_dci_stream_id_reset(). */
#include "t_why.h"

enum { KEY = 0x77, LOG_STREAMS = 3, LOG_ERRORED = 1, LEN = 32 };

static struct t_env *env;
static struct ibv_srq *quick_srq, *slow_srq;
static struct t_qp quick, slow;		/* DCTs; slow has no receives but where a case posts them */
static struct t_buf src, dst;
static struct ibv_ah *ah;

static struct t_qp new_dci(void)
{
	return t_dci(env, (struct t_spec){ .streams = true,
					   .log_streams = LOG_STREAMS,
					   .log_errored = LOG_ERRORED,
					   .sq = 64 });
}

static struct t_op to(struct t_qp *dct, enum ibv_wr_opcode op, uint64_t wr_id, int stream, size_t at)
{
	struct t_op o = t_rdma(op, wr_id, t_sge(&src, at, LEN), dst.key, dst.va + at);

	o.ah = ah;
	o.dest = dct->qp->qp_num;
	o.dc_key = KEY;
	o.stream = stream;
	return o;
}

static void post(struct t_qp *dci, struct t_op o)
{
	EXPECT_EQ(t_post(dci, &o), 0, "ibv_wr_complete");
}

static struct t_op bad_lkey(uint64_t wr_id, int stream)
{
	struct t_op o = to(&quick, IBV_WR_RDMA_WRITE, wr_id, stream, 0);

	o.sge[0].lkey ^= 0xabcd00;
	return o;
}

static void set_up(const void *arg)
{
	(void)arg;
	MUST(env->dv.dci_streams_caps.max_log_num_concurent >= LOG_STREAMS &&
	     env->dv.dci_streams_caps.max_log_num_errored >= LOG_STREAMS, "the device has DCI streams");
	quick_srq = t_srq(env, 64);
	slow_srq = t_srq(env, 64);
	quick = t_dct(env, quick_srq, KEY);
	slow = t_dct(env, slow_srq, KEY);
	src = t_buf(env, 8192, T_ALL);
	dst = t_buf(env, 8192, T_ALL);
	t_fill(src.p, src.len, 1);
	ah = t_ah(env);
}

/* Any id may be used: a stream is chosen by it, there need not be as many. Upstream's tests use ids up to two
 * beyond the number of streams. */
static void every_id(const void *arg)
{
	static const int ids[] = { 0, 1, 7, 8, 9, 10, 1000, 65535 };
	struct t_qp dci = new_dci();

	(void)arg;
	memset(dst.p, 0, dst.len);
	for (int i = 0; i < 8; i++) {
		post(&dci, to(&quick, IBV_WR_RDMA_WRITE, i, ids[i], i * LEN));
		T_DONE(dci.scq, i, IBV_WC_RDMA_WRITE);
	}
	EXPECT(!memcmp(dst.p, src.p, 8 * LEN) && t_all(dst.p + 8 * LEN, 100, 0), "data");
	t_qp_free(&dci);
}

static void stream_0_without_streams(const void *arg)
{
	struct t_qp dci = t_dci(env, (struct t_spec) { 0 });

	(void)arg;
	memset(dst.p, 0, dst.len);
	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 1, 0, 0));
	T_DONE(dci.scq, 1, IBV_WC_RDMA_WRITE);
	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 2, -1, LEN));
	T_DONE(dci.scq, 2, IBV_WC_RDMA_WRITE);
	EXPECT(!memcmp(dst.p, src.p, 2 * LEN), "data");
	t_qp_free(&dci);
}

/* A send that waits for a receive holds what is behind it in its stream, and nothing else. */
static void stuck_stream(const void *arg)
{
	struct t_qp dci = new_dci();

	(void)arg;
	memset(dst.p, 0, dst.len);
	post(&dci, to(&slow, IBV_WR_SEND, 10, 1, 0));
	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 11, 1, 1000));	/* the same stream, another target */
	post(&dci, to(&slow, IBV_WR_SEND, 20, 2, 0));
	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 30, 3, 3000));
	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 31, 3, 3100));
	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 40, 0, 4000));
	T_DONE(dci.scq, 30, IBV_WC_RDMA_WRITE);
	T_DONE(dci.scq, 31, IBV_WC_RDMA_WRITE);
	T_DONE(dci.scq, 40, IBV_WC_RDMA_WRITE);
	T_QUIET(dci.scq);
	EXPECT(t_all(dst.p + 1000, LEN, 0), "a request overtook the one before it in its stream");
	EXPECT(!memcmp(dst.p + 3000, src.p + 3000, LEN) && !memcmp(dst.p + 4000, src.p + 4000, LEN),
	       "data of streams 3 and 0");

	t_srq_recv(slow_srq, 1, t_sge(&dst, 5000, LEN));
	t_srq_recv(slow_srq, 2, t_sge(&dst, 5100, LEN));
	bool seen[3] = { false };

	for (int i = 0; i < 3; i++) {
		struct t_wc wc = t_poll(dci.scq);

		EXPECT_EQ(wc.wc.status, IBV_WC_SUCCESS, "status");
		EXPECT(wc.wc.wr_id == 10 || wc.wc.wr_id == 20 || wc.wc.wr_id == 11, "wr_id %" PRIu64, wc.wc.wr_id);
		EXPECT(wc.wc.wr_id != 11 || seen[0], "11 completed before 10");
		seen[wc.wc.wr_id == 10 ? 0 : wc.wc.wr_id == 11 ? 1 : 2] = true;
	}
	EXPECT(seen[0] && seen[1] && seen[2], "not each completed once");
	T_DONE(slow.rcq, 1, IBV_WC_RECV);
	T_DONE(slow.rcq, 2, IBV_WC_RECV);
	EXPECT(!memcmp(dst.p + 1000, src.p + 1000, LEN), "data of the request that waited");
	t_qp_free(&dci);
}

/* Completions of streams out of posting order must not lose or free slots: the ring wraps many times while one
 * stream is stuck for a while. */
static void wrap_beside_stuck(const void *arg)
{
	struct t_qp dci = new_dci();

	(void)arg;
	for (int round = 0; round < 20; round++) {
		post(&dci, to(&slow, IBV_WR_SEND, 999, 1, 0));
		for (int i = 0; i < 20; i++) {
			post(&dci, to(&quick, IBV_WR_RDMA_WRITE, i, 2 + i % 5, 0));
			T_DONE(dci.scq, i, IBV_WC_RDMA_WRITE);
		}
		t_srq_recv(slow_srq, round, t_sge(&dst, 0, LEN));
		T_DONE(dci.scq, 999, IBV_WC_SEND);
		T_DONE(slow.rcq, round, IBV_WC_RECV);
	}
	t_qp_free(&dci);
}

/* An error puts its stream in error: what is behind it there is flushed, other streams go on, a reset
 * brings it back. */
static void error_and_reset(const void *arg)
{
	struct t_qp dci = new_dci();

	(void)arg;
	memset(dst.p, 0, dst.len);
	t_why_begin();
	post(&dci, bad_lkey(1, 3));
	T_FAILED(dci.scq, 1, T_GATHER_KEY);
	T_WHY("GATHER_KEY", dci.qp->qp_num);
	EXPECT_EQ(t_qp_state(dci.qp), IBV_QPS_RTS, "state after one stream in error");

	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 2, 4, 100));
	T_DONE(dci.scq, 2, IBV_WC_RDMA_WRITE);
	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 3, 3, 200));
	T_FAILED(dci.scq, 3, t_behind(T_GATHER_KEY, false));
	EXPECT(t_all(dst.p + 200, LEN, 0), "a stream in error executed a request");

	EXPECT(mlx5dv_dci_stream_id_reset(dci.qp, 4) != 0, "a stream that is not in error was reset");
	EXPECT_EQ(mlx5dv_dci_stream_id_reset(dci.qp, 3), 0, "mlx5dv_dci_stream_id_reset");
	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 4, 3, 300));
	T_DONE(dci.scq, 4, IBV_WC_RDMA_WRITE);
	EXPECT(!memcmp(dst.p + 300, src.p + 300, LEN), "data after the reset");

	/* With a reset after each, any number of errors keeps the DCI alive. */
	for (int i = 0; i < 10; i++) {
		post(&dci, bad_lkey(50 + i, 5));
		T_FAILED(dci.scq, 50 + i, T_GATHER_KEY);
		EXPECT_EQ(mlx5dv_dci_stream_id_reset(dci.qp, 5), 0, "mlx5dv_dci_stream_id_reset");
	}
	EXPECT_EQ(t_qp_state(dci.qp), IBV_QPS_RTS, "state");
	t_qp_free(&dci);
}

/* What was posted behind the error, before it was seen, is flushed too: in its stream only. */
static void error_in_a_batch(const void *arg)
{
	struct t_qp dci = new_dci();
	struct t_op o[4] = {
		bad_lkey(1, 3), to(&quick, IBV_WR_RDMA_WRITE, 2, 3, 200), to(&quick, IBV_WR_RDMA_WRITE, 3, 4, 300),
		to(&quick, IBV_WR_RDMA_WRITE, 4, 3, 400),
	};
	bool seen[5] = { false };

	(void)arg;
	memset(dst.p, 0, dst.len);
	EXPECT_EQ(t_post_n(&dci, o, 4), 0, "ibv_wr_complete");
	for (int i = 0; i < 4; i++) {
		struct t_wc wc = t_poll(dci.scq);
		static const enum ibv_wc_status want[] = { 0, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR,
							   IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR };

		MUST(wc.wc.wr_id >= 1 && wc.wc.wr_id <= 4, "wr_id");
		EXPECT(!seen[wc.wc.wr_id], "wr_id %" PRIu64 " twice", wc.wc.wr_id);
		seen[wc.wc.wr_id] = true;
		EXPECT(wc.wc.status == want[wc.wc.wr_id], "wr_id %" PRIu64 ": %s", wc.wc.wr_id,
		       ibv_wc_status_str(wc.wc.status));
	}
	EXPECT(t_all(dst.p + 200, LEN, 0) && t_all(dst.p + 400, LEN, 0), "flushed requests were executed");
	EXPECT(!memcmp(dst.p + 300, src.p + 300, LEN), "data of the other stream");
	EXPECT_EQ(t_qp_state(dci.qp), IBV_QPS_RTS, "state");
	t_qp_free(&dci);
}

/* 1 << LOG_ERRORED streams in error move the DCI to ERR; RESET brings it and its streams back. */
static void threshold(const void *arg)
{
	struct t_qp dci = new_dci();
	struct ibv_qp_attr attr = t_attr(env, 0);
	uint64_t end = t_now_ms() + 10000;

	(void)arg;
	for (int i = 0; i < 1 << LOG_ERRORED; i++) {
		EXPECT_EQ(t_qp_state(dci.qp), IBV_QPS_RTS, "state below the threshold");
		post(&dci, bad_lkey(i, 1 + i));
		T_FAILED(dci.scq, i, T_GATHER_KEY);
	}
	while (t_qp_state(dci.qp) != IBV_QPS_ERR && t_now_ms() < end)
		usleep(1000);
	EXPECT_EQ(t_qp_state(dci.qp), IBV_QPS_ERR, "state at the threshold");
	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 9, 6, 0));
	EXPECT_EQ(t_poll(dci.scq).wc.status, IBV_WC_WR_FLUSH_ERR, "a stream that was well, in ERR");

	t_reset(dci.qp);
	t_dci_rts(dci.qp, &attr);
	memset(dst.p, 0, 1000);
	post(&dci, to(&quick, IBV_WR_RDMA_WRITE, 10, 1, 0));
	T_DONE(dci.scq, 10, IBV_WC_RDMA_WRITE);
	EXPECT(!memcmp(dst.p, src.p, LEN), "data after RESET");
	EXPECT(mlx5dv_dci_stream_id_reset(dci.qp, 1) != 0, "RESET did not reset the streams");
	t_qp_free(&dci);
}

static void without_streams_one_error_is_all(const void *arg)
{
	struct t_qp dci = t_dci(env, (struct t_spec) { 0 });

	(void)arg;
	post(&dci, bad_lkey(1, -1));
	T_FAILED(dci.scq, 1, T_GATHER_KEY);
	EXPECT_EQ(t_qp_state(dci.qp), IBV_QPS_ERR, "state");
	EXPECT(mlx5dv_dci_stream_id_reset(dci.qp, 0) != 0, "a stream was reset on a DCI without streams");
	t_qp_free(&dci);
}

static void reset_needs_a_dci(const void *arg)
{
	struct t_spec spec = { 0 };
	struct t_pair p = t_pair(env, &spec);
	struct softmlx5_refusal r;

	(void)arg;
	EXPECT(mlx5dv_dci_stream_id_reset(p.a.qp, 0) != 0, "a stream was reset on RC");
	EXPECT(mlx5dv_dci_stream_id_reset(quick.qp, 0) != 0, "a stream was reset on a DCT");
	MUST(softmlx5_last_refusal(NULL, 0, &r) == 0, "softmlx5_last_refusal");
	EXPECT(strstr(r.values, "the state is RTR"), "the sentence names no state: %s", r.values);
	t_pair_free(&p);
}

static void too_many(const void *arg)
{
	struct t_spec s = { .dc = T_DCI, .ops = T_RC_OPS, .streams = true };
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp;

	(void)arg;
	s.log_streams = env->dv.dci_streams_caps.max_log_num_concurent + 1;
	qp = t_create_qp(env, &s, cq, cq);
	EXPECT(!qp && errno == EINVAL, "more streams than the device has: %p, %s", (void *)qp, strerror(errno));
	s.log_streams = 1;
	s.log_errored = env->dv.dci_streams_caps.max_log_num_errored + 1;
	qp = t_create_qp(env, &s, cq, cq);
	EXPECT(!qp && errno == EINVAL, "a higher threshold than the device has: %p, %s", (void *)qp, strerror(errno));
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

static void tear_down(const void *arg)
{
	(void)arg;
	EXPECT_EQ(ibv_destroy_ah(ah), 0, "ibv_destroy_ah");
	t_qp_free(&quick);
	t_qp_free(&slow);
	EXPECT_EQ(ibv_destroy_srq(quick_srq), 0, "ibv_destroy_srq");
	EXPECT_EQ(ibv_destroy_srq(slow_srq), 0, "ibv_destroy_srq");
	t_buf_free(&src);
	t_buf_free(&dst);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("every stream id, beyond the number of streams too", every_id, NULL);
	t_case("stream 0 on a DCI without streams", stream_0_without_streams, NULL);
	t_case("a stuck stream holds only itself", stuck_stream, NULL);
	t_case("ring wraps beside a stuck stream", wrap_beside_stuck, NULL);
	t_case("error, flush and reset of one stream", error_and_reset, NULL);
	t_case("error in a batch over two streams", error_in_a_batch, NULL);
	t_case("threshold of streams in error", threshold, NULL);
	t_case("without streams one error moves the DCI to ERR", without_streams_one_error_is_all, NULL);
	t_case("stream reset needs a DCI", reset_needs_a_dci, NULL);
	t_case("more streams than the device has", too_many, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
