/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One-sided requests within a process are done by what holds when they are rung: a key, a right, a connection or a
 * target that was good for the request before is not good for the next one once it has changed. And they move bytes
 * that overlap as memmove() does. */
#include "t_why.h"

enum { LEN = 4096, BEFORE = 40, DC_KEY = 0x4711 };

static struct t_env *env;
static struct t_buf src, dst;

enum change {
	TARGET_KEY, OWN_KEY, KEY_RIGHT, KEY_RANGE, QP_RIGHT, TARGET_ERR, TARGET_RESET, TARGET_GONE, OTHER_TARGET,
	DC_ACCESS
};

static const struct row {
	const char *name;
	enum change change;
	bool dc;
	struct t_codes codes;
} rows[] = {
	{ "RC: the target's key is deregistered", TARGET_KEY, false, C_REM_ACCESS },
	{ "RC: the requester's key is deregistered", OWN_KEY, false, C_GATHER_KEY },
	{ "RC: the target's key loses remote write", KEY_RIGHT, false, C_REM_ACCESS },
	{ "RC: the target's key becomes shorter", KEY_RANGE, false, C_REM_ACCESS },
	{ "RC: the target's queue pair loses remote write", QP_RIGHT, false, C_REM_INV },
	{ "RC: the target goes to ERR", TARGET_ERR, false, C_RETRY },
	{ "RC: the target is reset", TARGET_RESET, false, C_RETRY },
	{ "RC: the target is destroyed", TARGET_GONE, false, C_RETRY },
	{ "RC: connected anew, to one without remote write", OTHER_TARGET, false, C_REM_INV },
	{ "DC: the target's key is deregistered", TARGET_KEY, true, C_REM_ACCESS },
	{ "DC: the requester's key is deregistered", OWN_KEY, true, C_GATHER_KEY },
	{ "DC: the target's key loses remote write", KEY_RIGHT, true, C_REM_ACCESS },
	{ "DC: the target is destroyed", TARGET_GONE, true, C_RETRY },
	{ "DC: another access key", DC_ACCESS, true, C_REM_ACCESS },
};

/* The two ends; b is a DCT when the row says so. */
struct ends {
	struct t_qp a, b, other;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct t_op op;
};

static void make(struct ends *e, bool dc)
{
	struct t_spec s = { .ops = T_RC_OPS };

	*e = (struct ends){ .op = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 64), dst.key, dst.va) };
	if (!dc) {
		struct t_pair p = t_pair(env, &s);

		e->a = p.a;
		e->b = p.b;
		return;
	}
	e->srq = t_srq(env, 4);
	e->b = t_dct(env, e->srq, DC_KEY);
	e->a = t_dci(env, s);
	e->ah = t_ah(env);
	e->op.ah = e->ah;
	e->op.dest = e->b.qp->qp_num;
	e->op.dc_key = DC_KEY;
}

static void unmake(struct ends *e)
{
	t_qp_free(&e->a);
	if (e->b.qp)
		t_qp_free(&e->b);
	if (e->other.qp)
		t_qp_free(&e->other);
	if (e->srq)
		EXPECT_EQ(ibv_destroy_srq(e->srq), 0, "ibv_destroy_srq");
	if (e->ah)
		EXPECT_EQ(ibv_destroy_ah(e->ah), 0, "ibv_destroy_ah");
}

static void connect_elsewhere(struct ends *e)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct ibv_qp_attr attr;

	e->other = t_qp(env, &s);
	t_reset(e->a.qp);
	attr = t_attr(env, e->other.qp->qp_num);
	t_to_rts(e->a.qp, &attr);
	attr = t_attr(env, e->a.qp->qp_num);
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	t_to_rts(e->other.qp, &attr);
}

static void apply(struct ends *e, enum change change)
{
	struct ibv_qp_attr attr = { .qp_access_flags = IBV_ACCESS_REMOTE_READ };

	switch (change) {
	case TARGET_KEY:
		EXPECT_EQ(ibv_dereg_mr(dst.mr), 0, "ibv_dereg_mr");
		dst.mr = NULL;
		break;
	case OWN_KEY:
		EXPECT_EQ(ibv_dereg_mr(src.mr), 0, "ibv_dereg_mr");
		src.mr = NULL;
		break;
	case KEY_RIGHT:
		EXPECT_EQ(ibv_rereg_mr(dst.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ), 0, "ibv_rereg_mr");
		break;
	case KEY_RANGE:
		EXPECT_EQ(ibv_rereg_mr(dst.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, dst.p, 63, 0), 0, "ibv_rereg_mr");
		break;
	case QP_RIGHT:
		EXPECT_EQ(ibv_modify_qp(e->b.qp, &attr, IBV_QP_ACCESS_FLAGS), 0, "ibv_modify_qp");
		break;
	case TARGET_ERR:
		EXPECT_EQ(t_modify(e->b.qp, &attr, IBV_QPS_ERR, IBV_QP_STATE), 0, "to ERR");
		break;
	case TARGET_RESET:
		t_reset(e->b.qp);
		break;
	case TARGET_GONE:
		t_qp_free(&e->b);
		e->b.qp = NULL;
		break;
	case OTHER_TARGET:
		connect_elsewhere(e);
		break;
	case DC_ACCESS:
		e->op.dc_key++;
		break;
	}
}

/* WRITEs until every cache that there might be is warm, the change, and one more. */
static void changed(const void *arg)
{
	const struct row *row = arg;
	struct ends e;

	src = t_buf(env, LEN, T_ALL);
	dst = t_buf(env, LEN, T_ALL);
	make(&e, row->dc);
	for (uint32_t i = 0; i < BEFORE; i++) {
		t_fill(src.p, 64, i);
		EXPECT_EQ(t_post(&e.a, &e.op), 0, "WRITE");
		T_DONE(e.a.scq, 1, IBV_WC_RDMA_WRITE);
		EXPECT(t_is(dst.p, 64, i), "WRITE %u did not arrive", i);
	}
	apply(&e, row->change);
	memset(src.p, 0xa5, 64);
	EXPECT_EQ(t_post(&e.a, &e.op), 0, "WRITE");
	T_FAILED(e.a.scq, 1, row->codes);
	EXPECT(t_is(dst.p, 64, BEFORE - 1), "bytes were written");
	unmake(&e);
	if (src.mr)
		EXPECT_EQ(ibv_dereg_mr(src.mr), 0, "ibv_dereg_mr");
	if (dst.mr)
		EXPECT_EQ(ibv_dereg_mr(dst.mr), 0, "ibv_dereg_mr");
	munmap(src.p, src.len);
	munmap(dst.p, dst.len);
}

/* A batch that mixes what needs an answer and what does not. */
static void batches(const void *arg)
{
	struct ends e;

	(void)arg;
	src = t_buf(env, LEN, T_ALL);
	dst = t_buf(env, LEN, T_ALL);
	make(&e, false);
	for (uint32_t i = 0; i < 300; i++) {
		struct t_op op[8];

		for (uint32_t k = 0; k < 8; k++) {
			bool read = (i >> k) & 1;

			op[k] = t_rdma(read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, k,
				       t_sge(&src, 64 * k, 1 + (i + k) % 64), dst.key, dst.va + 64 * k);
			op[k].flags = k == 7 ? IBV_SEND_SIGNALED : 0;
		}
		if (i % 3 == 0) {
			op[i % 7] = t_op(IBV_WR_SEND, i % 7, t_sge(&src, 0, 8));
			op[i % 7].flags = 0;
			t_recv(&e.b, i, t_sge(&dst, 2048, 64));
		}
		t_fill(src.p, 512, i);
		t_fill(dst.p, 512, i + 1000);
		EXPECT_EQ(t_post_n(&e.a, op, 8), 0, "ibv_wr_complete");
		T_DONE(e.a.scq, 7, op[7].op == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
		if (i % 3 == 0)
			T_DONE(e.b.rcq, i, IBV_WC_RECV);
		for (uint32_t k = 0; k < 8; k++)
			if (op[k].op != IBV_WR_SEND)
				EXPECT(!memcmp(src.p + 64 * k, dst.p + 64 * k, op[k].sge[0].length),
				       "request %u of batch %u", k, i);
		T_QUIET(e.a.scq);
	}
	unmake(&e);
	t_buf_free(&src);
	t_buf_free(&dst);
}

static void overlaps(const void *arg)
{
	static const uint32_t lengths[] = { 8, 63, 64, 200, 513, 3000, 70000, 1 << 20 };
	static const uint32_t shifts[] = { 0, 1, 7, 16, 60, 100 };
	enum { BYTES = 2 << 20 };
	uint8_t *want = malloc(BYTES);
	struct ends e;

	(void)arg;
	src = dst = t_buf(env, BYTES, T_ALL);
	make(&e, false);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (size_t k = 0; k < sizeof(shifts) / sizeof(shifts[0]) * 2; k++) {
			uint32_t from = k % 2 ? shifts[k / 2] : 0, to = k % 2 ? 0 : shifts[k / 2];
			struct t_op op = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, from, lengths[i]), src.key,
						src.va + to);

			t_fill(src.p, BYTES, (uint32_t)(i * 100 + k));
			memcpy(want, src.p, BYTES);
			memmove(want + to, want + from, lengths[i]);
			EXPECT_EQ(t_post(&e.a, &op), 0, "WRITE");
			T_DONE(e.a.scq, 1, IBV_WC_RDMA_WRITE);
			EXPECT(!memcmp(want, src.p, BYTES), "%u bytes from %u to %u", lengths[i], from, to);
		}
	}
	unmake(&e);
	t_buf_free(&src);
	free(want);
}

int main(void)
{
	env = t_open();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, changed, &rows[i]);
	t_case("READs, WRITEs and SENDs of one doorbell", batches, NULL);
	t_case("WRITE within one buffer", overlaps, NULL);
	return t_close(env);
}
