/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Mistakes in setting up: each call answers with its errno and a sentence, and leaves the object as it was. */
#include "t_why.h"

static struct t_env *env;

/* ---- state changes ---- */

enum type { RC, UC, UD, DCI, DCT };
enum state {
	RESET = IBV_QPS_RESET, INIT = IBV_QPS_INIT, RTR = IBV_QPS_RTR, RTS = IBV_QPS_RTS,
	SQD = IBV_QPS_SQD, ERR = IBV_QPS_ERR
};

static struct t_qp make(enum type type, struct ibv_srq *srq)
{
	static const enum ibv_qp_type ibv[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, 0, 0 };
	struct t_spec s = { .type = ibv[type], .dc = type == DCI ? T_DCI : type == DCT ? T_DCT : T_NOT_DC,
			    .srq = type == DCT ? srq : NULL, .ops = type == DCI ? T_RC_OPS : 0 };

	return t_qp(env, &s);
}

/* The mask of the way to a state, all that must be there and nothing more. */
static int full_mask(enum type type, enum state to)
{
	static const int mask[5][3] = {
		[RC] = { T_INIT_MASK, T_RTR_MASK, T_RTS_MASK },
		[UC] = { T_INIT_MASK, T_UC_RTR_MASK, IBV_QP_STATE | IBV_QP_SQ_PSN },
		[UD] = { T_UD_INIT_MASK, IBV_QP_STATE, IBV_QP_STATE | IBV_QP_SQ_PSN },
		[DCI] = { T_DCI_INIT_MASK, T_DCI_RTR_MASK, T_RTS_MASK },
		[DCT] = { T_INIT_MASK, T_DCT_RTR_MASK, 0 },
	};

	return mask[type][to - INIT];
}

static void walk_to(enum type type, struct ibv_qp *qp, enum state to)
{
	struct ibv_qp_attr attr = t_attr(env, 0x77);

	for (enum state s = INIT; s <= to && s <= RTS; s++) {
		errno = t_modify(qp, &attr, (enum ibv_qp_state)s, full_mask(type, s));
		MUST(!errno, "walking to a state");
	}
	if (to == SQD || to == ERR)
		MUST(!t_modify(qp, &attr, (enum ibv_qp_state)to, IBV_QP_STATE), "walking to SQD or ERR");
}

static const struct missing { const char *name; enum type type; enum state to; int lacks; } missings[] = {
	{ "RC to INIT without the port",	RC, INIT, IBV_QP_PORT },
	{ "RC to INIT without the pkey index",	RC, INIT, IBV_QP_PKEY_INDEX },
	{ "RC to INIT without access flags",	RC, INIT, IBV_QP_ACCESS_FLAGS },
	{ "UD to INIT without the qkey",	UD, INIT, IBV_QP_QKEY },
	{ "RC to RTR without the path",		RC, RTR, IBV_QP_AV },
	{ "RC to RTR without the MTU",		RC, RTR, IBV_QP_PATH_MTU },
	{ "RC to RTR without the destination",	RC, RTR, IBV_QP_DEST_QPN },
	{ "RC to RTR without the rq_psn",	RC, RTR, IBV_QP_RQ_PSN },
	{ "RC to RTR without max_dest_rd_atomic", RC, RTR, IBV_QP_MAX_DEST_RD_ATOMIC },
	{ "RC to RTR without min_rnr_timer",	RC, RTR, IBV_QP_MIN_RNR_TIMER },
	{ "UC to RTR without the destination",	UC, RTR, IBV_QP_DEST_QPN },
	{ "RC to RTS without the timeout",	RC, RTS, IBV_QP_TIMEOUT },
	{ "RC to RTS without retry_cnt",	RC, RTS, IBV_QP_RETRY_CNT },
	{ "RC to RTS without rnr_retry",	RC, RTS, IBV_QP_RNR_RETRY },
	{ "RC to RTS without sq_psn",		RC, RTS, IBV_QP_SQ_PSN },
	{ "RC to RTS without max_rd_atomic",	RC, RTS, IBV_QP_MAX_QP_RD_ATOMIC },
	{ "UD to RTS without sq_psn",		UD, RTS, IBV_QP_SQ_PSN },
	{ "DCI to RTR without the MTU",		DCI, RTR, IBV_QP_PATH_MTU },
	{ "DCT to RTR without the path",	DCT, RTR, IBV_QP_AV },
	{ "DCT to RTR without min_rnr_timer",	DCT, RTR, IBV_QP_MIN_RNR_TIMER },
};

static void missing(const void *arg)
{
	const struct missing *m = arg;
	struct ibv_srq *srq = t_srq(env, 4);
	struct t_qp q = make(m->type, srq);
	struct ibv_qp_attr attr = t_attr(env, 0x77);

	walk_to(m->type, q.qp, (enum state)(m->to - 1));
	t_why_begin();
	EXPECT_EQ(t_modify(q.qp, &attr, (enum ibv_qp_state)m->to, full_mask(m->type, m->to) & ~m->lacks),
		  EINVAL, "ibv_modify_qp");
	T_WHY("QP_ATTR_MISSING", q.qp->qp_num);
	EXPECT_EQ(t_qp_state(q.qp), m->to - 1, "state");
	EXPECT_EQ(t_modify(q.qp, &attr, (enum ibv_qp_state)m->to, full_mask(m->type, m->to)), 0, "with all attributes");
	t_qp_free(&q);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

static const struct extra { const char *name; enum type type; enum state to; int has; } extras[] = {
	{ "RC to INIT with a path",		RC, INIT, IBV_QP_AV },
	{ "RC to INIT with a qkey",		RC, INIT, IBV_QP_QKEY },
	{ "UD to INIT with access flags",	UD, INIT, IBV_QP_ACCESS_FLAGS },
	{ "RC to RTR with a timeout",		RC, RTR, IBV_QP_TIMEOUT },
	{ "UC to RTR with min_rnr_timer",	UC, RTR, IBV_QP_MIN_RNR_TIMER },
	{ "RC to RTS with the destination",	RC, RTS, IBV_QP_DEST_QPN },
	{ "DCI to INIT with access flags",	DCI, INIT, IBV_QP_ACCESS_FLAGS },
};

static void extra(const void *arg)
{
	const struct extra *x = arg;
	struct t_qp q = make(x->type, NULL);
	struct ibv_qp_attr attr = t_attr(env, 0x77);

	walk_to(x->type, q.qp, (enum state)(x->to - 1));
	t_why_begin();
	EXPECT_EQ(t_modify(q.qp, &attr, (enum ibv_qp_state)x->to, full_mask(x->type, x->to) | x->has), EINVAL,
		  "ibv_modify_qp");
	T_WHY("QP_ATTR_EXTRA", q.qp->qp_num);
	EXPECT_EQ(t_qp_state(q.qp), x->to - 1, "state");
	t_qp_free(&q);
}

static const struct jump { const char *name; enum type type; enum state from, to; bool good; } jumps[] = {
	{ "RESET to RTR",	RC, RESET, RTR, false },
	{ "RESET to RTS",	RC, RESET, RTS, false },
	{ "INIT to RTS",	RC, INIT, RTS, false },
	{ "RTS to RTR",		RC, RTS, RTR, false },
	{ "RTS to INIT",	RC, RTS, INIT, false },
	{ "ERR to RTS",		RC, ERR, RTS, false },
	{ "ERR to INIT",	RC, ERR, INIT, false },
	{ "RTS to ERR",		RC, RTS, ERR, true },
	{ "RTS to RESET",	RC, RTS, RESET, true },
	{ "ERR to RESET",	RC, ERR, RESET, true },
	{ "RESET to RESET",	RC, RESET, RESET, true },
	{ "RESET to ERR",	RC, RESET, ERR, false },
	{ "RTS to SQD",		RC, RTS, SQD, true },
	{ "SQD to RTS",		RC, SQD, RTS, true },
	{ "UD RESET to RTS",	UD, RESET, RTS, false },
	{ "UD RTS to ERR",	UD, RTS, ERR, true },
	{ "DCT RTR to RTS",	DCT, RTR, RTS, false },
	{ "DCI RTS to ERR",	DCI, RTS, ERR, true },
};

static void jump(const void *arg)
{
	const struct jump *j = arg;
	struct ibv_srq *srq = t_srq(env, 4);
	struct t_qp q = make(j->type, srq);
	struct ibv_qp_attr attr = t_attr(env, 0x77);
	int mask = j->good || j->to > RTS || j->to == RESET ? IBV_QP_STATE : full_mask(j->type, j->to), rc;

	walk_to(j->type, q.qp, j->from);
	t_why_begin();
	rc = t_modify(q.qp, &attr, (enum ibv_qp_state)j->to, mask);
	if (j->good) {
		EXPECT_EQ(rc, 0, "ibv_modify_qp");
	} else if (j->type == DCT) {
		EXPECT(rc == EINVAL || rc == EOPNOTSUPP, "ibv_modify_qp is %d", rc);
	} else {
		EXPECT_EQ(rc, EINVAL, "ibv_modify_qp");
		T_WHY("QP_STATE", q.qp->qp_num);
	}
	EXPECT_EQ(t_qp_state(q.qp), j->good ? j->to : j->from, "state");
	EXPECT_EQ(q.qp->state, j->good ? j->to : j->from, "ibv_qp.state");
	t_qp_free(&q);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
}

/* ---- values ---- */

static const struct value { const char *name, *check; enum state to; int what; } values[] = {
	{ "retry_cnt 8",		"QP_ATTR_VALUE", RTS, 0 },
	{ "rnr_retry 8",		"QP_ATTR_VALUE", RTS, 1 },
	{ "path_mtu above active_mtu",	"QP_ATTR_VALUE", RTR, 2 },
	{ "no GRH on RoCE",		"AH_NO_GRH", RTR, 3 },
	{ "GID index out of the table",	"QP_ATTR_VALUE", RTR, 4 },
	{ "port 2",			"QP_ATTR_VALUE", INIT, 5 },
	{ "pkey index 5000",		"QP_ATTR_VALUE", INIT, 6 },
	{ "max_dest_rd_atomic over the device's", "QP_ATTR_VALUE", RTR, 7 },
	{ "max_rd_atomic over the device's", "QP_ATTR_VALUE", RTS, 8 },
	{ "min_rnr_timer 32",		"QP_ATTR_VALUE", RTR, 9 },
	{ "timeout 32",			"QP_ATTR_VALUE", RTS, 10 },
	{ "path_mtu 0",			"QP_ATTR_VALUE", RTR, 11 },
	{ "path_mtu 9",			"QP_ATTR_VALUE", RTR, 12 },
	{ "static_rate that is no rate", "QP_ATTR_VALUE", RTR, 13 },
};

static void value(const void *arg)
{
	const struct value *v = arg;
	struct t_qp q = make(RC, NULL);
	struct ibv_qp_attr attr = t_attr(env, 0x77), good = attr;

	switch (v->what) {
	case 0: attr.retry_cnt = 8; break;
	case 1: attr.rnr_retry = 8; break;
	case 2: attr.path_mtu = env->mtu + 1; break;
	case 3: attr.ah_attr.is_global = 0; break;
	case 4: attr.ah_attr.grh.sgid_index = 255; break;
	case 5: attr.port_num = 2; break;
	case 6: attr.pkey_index = 5000; break;
	case 7: attr.max_dest_rd_atomic = 255; break;
	case 8: attr.max_rd_atomic = 255; break;
	case 9: attr.min_rnr_timer = 32; break;
	case 10: attr.timeout = 32; break;
	case 11: attr.path_mtu = 0; break;
	case 12: attr.path_mtu = 9; break;
	case 13: attr.ah_attr.static_rate = 199; break;
	}
	walk_to(RC, q.qp, (enum state)(v->to - 1));
	t_why_begin();
	EXPECT_EQ(t_modify(q.qp, &attr, (enum ibv_qp_state)v->to, full_mask(RC, v->to)), EINVAL, "ibv_modify_qp");
	T_WHY(v->check, 0);
	EXPECT_EQ(t_qp_state(q.qp), v->to - 1, "state");
	EXPECT_EQ(t_modify(q.qp, &good, (enum ibv_qp_state)v->to, full_mask(RC, v->to)), 0, "with a good value");
	t_qp_free(&q);
}

static void ah_without_grh(const void *arg)
{
	struct ibv_qp_attr attr = t_attr(env, 0);

	(void)arg;
	attr.ah_attr.is_global = 0;
	t_why_begin();
	errno = 0;
	EXPECT(!ibv_create_ah(env->pd, &attr.ah_attr) && errno == EINVAL, "ibv_create_ah: errno %d", errno);
	T_WHY("AH_NO_GRH", 0);
}

static void dct_without_srq(const void *arg)
{
	struct t_spec s = { .dc = T_DCT, .dc_key = 1 };
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 4, NULL, NULL, 0);

	(void)arg;
	errno = 0;
	EXPECT(!t_create_qp(env, &s, cq, cq) && errno == EINVAL, "a DCT without SRQ: errno %d", errno);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
}

/* ---- objects in use ---- */

static void busy(const void *arg)
{
	struct ibv_pd *pd = ibv_alloc_pd(env->ctx);
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 4, NULL, NULL, 0);
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &sa);
	struct t_buf b = t_buf_pd(pd, 4096, T_ALL);
	struct ibv_qp_init_attr qa = { .send_cq = cq,
				       .recv_cq = cq,
				       .srq = srq,
				       .qp_type = IBV_QPT_RC,
				       .cap = { .max_send_wr = 4, .max_send_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &qa);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(env->ctx);
	struct ibv_cq *cq2 = ibv_create_cq(env->ctx, 4, NULL, ch, 0);

	(void)arg;
	MUST(qp && ch && cq2, "create");
	t_why_begin();
	EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY, "PD with a queue pair, an SRQ and a region");
	T_WHY("OBJECT_BUSY", 0);
	EXPECT_EQ(ibv_destroy_cq(cq), EBUSY, "CQ of a queue pair");
	EXPECT_EQ(ibv_destroy_srq(srq), EBUSY, "SRQ of a queue pair");
	EXPECT_EQ(ibv_destroy_comp_channel(ch), EBUSY, "channel of a CQ");
	EXPECT_EQ(ibv_destroy_qp(qp), 0, "ibv_destroy_qp");
	EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY, "PD with an SRQ and a region");
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
	EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY, "PD with a region");
	t_buf_free(&b);
	EXPECT_EQ(ibv_dealloc_pd(pd), 0, "ibv_dealloc_pd");
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_destroy_cq(cq2), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_destroy_comp_channel(ch), 0, "ibv_destroy_comp_channel");
}

static void bad_regions(const void *arg)
{
	static const int flags[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC, 1 << 15 };
	void *mem = aligned_alloc(4096, 4096);

	(void)arg;
	for (int i = 0; i < 3; i++) {
		t_why_begin();
		errno = 0;
		EXPECT(!ibv_reg_mr(env->pd, mem, 4096, flags[i]), "ibv_reg_mr with flags 0x%x", flags[i]);
		EXPECT(errno == EINVAL || (i == 2 && errno == EOPNOTSUPP), "errno %d", errno);
		T_WHY("MR_ACCESS", 0);
	}
	/* Memory that is not there cannot be registered: the kernel pins it. */
	errno = 0;
	EXPECT(!ibv_reg_mr(env->pd, (void *)0x1000, 4096, T_ALL) && errno == EFAULT,
	       "unmapped memory: errno %d", errno);
	free(mem);
}

static void bad_cqs(const void *arg)
{
	(void)arg;
	errno = 0;
	EXPECT(!ibv_create_cq(env->ctx, 0, NULL, NULL, 0) && errno == EINVAL, "0 entries: errno %d", errno);
	errno = 0;
	EXPECT(!ibv_create_cq(env->ctx, env->attr.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL,
	       "too many entries: errno %d", errno);
	errno = 0;
	EXPECT(!ibv_create_cq(env->ctx, 4, NULL, NULL, env->ctx->num_comp_vectors) && errno == EINVAL,
	       "comp_vector: errno %d", errno);
}

#define EACH(rows, fn) \
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) \
		t_case(rows[i].name, fn, &rows[i])

int main(void)
{
	env = t_open();
	EACH(missings, missing);
	EACH(extras, extra);
	EACH(jumps, jump);
	EACH(values, value);
	t_case("address handle without GRH", ah_without_grh, NULL);
	t_case("DCT without SRQ", dct_without_srq, NULL);
	t_case("objects in use", busy, NULL);
	t_case("regions", bad_regions, NULL);
	t_case("completion queues", bad_cqs, NULL);
	return t_close(env);
}
