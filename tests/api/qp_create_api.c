/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Creating queue pairs by all three calls: what is granted, and that every mask, flag and combination
 * that cannot be honoured is refused by name. */
#include <fcntl.h>

#include "t_why.h"

static struct t_env *env;
static struct ibv_cq *cq;
static struct ibv_srq *srq;

#define PD	IBV_QP_INIT_ATTR_PD
#define OPS	IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
#define FLAGS	MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS
#define DC	MLX5DV_QP_INIT_ATTR_MASK_DC
#define DV_OPS	MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS
#define STREAMS MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS
#define DISABLE MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE
#define ALLOW	MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE

/* want 0: it is created; else the errno, with the name of the check. */
static const struct row {
	const char *name;
	int want;
	const char *check;
	enum ibv_qp_type type;
	uint32_t mask, create_flags;
	uint64_t ops;
	uint64_t dv_mask;
	uint32_t dv_flags;
	uint64_t dv_ops;
	enum mlx5dv_dc_type dc;
	uint8_t log_streams, log_errored;
	bool srq, recv, no_cq;
} rows[] = {
	{ "RC", .type = IBV_QPT_RC, .mask = PD, .recv = true },
	{ "UC with all its operations", .type = IBV_QPT_UC, .mask = PD | OPS, .ops = T_UC_OPS, .recv = true },
	{ "UD that does not hear itself", .type = IBV_QPT_UD, .mask = PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
	  .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB },
	{ "XRC_SEND", .type = IBV_QPT_XRC_SEND, .mask = PD | OPS, .ops = T_RC_OPS },
	{ "RC on an SRQ", .type = IBV_QPT_RC, .mask = PD, .srq = true },
	{ "RC, every mlx5 operation", .type = IBV_QPT_RC, .mask = PD | OPS, .dv_mask = DV_OPS, .dv_ops = T_DV_OPS },
	{ "RC, scatter to CQE disabled", .type = IBV_QPT_RC, .mask = PD, .dv_mask = FLAGS, .dv_flags = DISABLE },
	{ "RC, scatter to CQE allowed", .type = IBV_QPT_RC, .mask = PD, .dv_mask = FLAGS, .dv_flags = ALLOW },
	{ "DCI", .type = IBV_QPT_DRIVER, .mask = PD | OPS, .ops = T_RC_OPS, .dv_mask = DC, .dc = MLX5DV_DCTYPE_DCI },
	{ "DCI, streams", .type = IBV_QPT_DRIVER, .mask = PD | OPS, .ops = T_RC_OPS, .dv_mask = DC | STREAMS,
	  .dc = MLX5DV_DCTYPE_DCI, .log_streams = 3, .log_errored = 2 },
	{ "DCI, bytes of streams without their mask are not looked at", .type = IBV_QPT_DRIVER, .mask = PD,
	  .dv_mask = DC, .dc = MLX5DV_DCTYPE_DCI, .log_streams = 0xff, .log_errored = 0xff },
	{ "DCT", .type = IBV_QPT_DRIVER, .mask = PD, .dv_mask = DC, .dc = MLX5DV_DCTYPE_DCT, .srq = true },

	{ "no PD", EINVAL, "object_arg", IBV_QPT_RC, .mask = 0 },
	{ "no CQ", EINVAL, "object_arg", IBV_QPT_RC, .mask = PD, .no_cq = true },
	{ "unknown mask", EOPNOTSUPP, "attr_mask", IBV_QPT_RC, .mask = PD | 1 << 20 },
	{ "unknown mlx5 mask", EOPNOTSUPP, "attr_mask", IBV_QPT_RC, .mask = PD, .dv_mask = 1 << 20 },
	{ "unknown mlx5 flag", EOPNOTSUPP, "attr_mask", IBV_QPT_RC, .mask = PD, .dv_mask = FLAGS,
	  .dv_flags = 1 << 20 },
	{ "raw packet", EOPNOTSUPP, "qp_type", IBV_QPT_RAW_PACKET, .mask = PD },
	{ "TSO header", EOPNOTSUPP, "qp_type", IBV_QPT_RC, .mask = PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER },
	{ "VLAN stripping", EOPNOTSUPP, "qp_create_flag", IBV_QPT_RC, .mask = PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
	  .create_flags = IBV_QP_CREATE_CVLAN_STRIPPING },
	{ "UD source QPN", EOPNOTSUPP, "qp_create_flag", IBV_QPT_UD, .mask = PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
	  .create_flags = IBV_QP_CREATE_SOURCE_QPN },
	{ "scatter to CQE disabled and allowed", EINVAL, "qp_scatter_flags", IBV_QPT_RC, .mask = PD, .dv_mask = FLAGS,
	  .dv_flags = DISABLE | ALLOW },
	{ "tunnel offloads", EOPNOTSUPP, "qp_create_flag", IBV_QPT_RC, .mask = PD, .dv_mask = FLAGS,
	  .dv_flags = MLX5DV_QP_CREATE_TUNNEL_OFFLOADS },
	{ "self loopback, unicast", EOPNOTSUPP, "qp_create_flag", IBV_QPT_RC, .mask = PD, .dv_mask = FLAGS,
	  .dv_flags = MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC },
	{ "self loopback, multicast", EOPNOTSUPP, "qp_create_flag", IBV_QPT_RC, .mask = PD, .dv_mask = FLAGS,
	  .dv_flags = MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC },
	{ "packet credits", EOPNOTSUPP, "qp_create_flag", IBV_QPT_RC, .mask = PD, .dv_mask = FLAGS,
	  .dv_flags = MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE },
	{ "signature pipelining", EOPNOTSUPP, "qp_create_flag", IBV_QPT_RC, .mask = PD, .dv_mask = FLAGS,
	  .dv_flags = MLX5DV_QP_CREATE_SIG_PIPELINING },
	{ "UD with RDMA write", EOPNOTSUPP, "send_ops", IBV_QPT_UD, .mask = PD | OPS,
	  .ops = IBV_QP_EX_WITH_RDMA_WRITE },
	{ "UC with RDMA read", EOPNOTSUPP, "send_ops", IBV_QPT_UC, .mask = PD | OPS,
	  .ops = IBV_QP_EX_WITH_RDMA_READ },
	{ "RC with TSO", EOPNOTSUPP, "send_ops", IBV_QPT_RC, .mask = PD | OPS, .ops = IBV_QP_EX_WITH_TSO },
	{ "UD with memcpy", EOPNOTSUPP, "send_ops", IBV_QPT_UD, .mask = PD | OPS, .dv_mask = DV_OPS,
	  .dv_ops = MLX5DV_QP_EX_WITH_MEMCPY },
	{ "DCI with UMR", EOPNOTSUPP, "send_ops", IBV_QPT_DRIVER, .mask = PD | OPS, .dv_mask = DC | DV_OPS,
	  .dv_ops = MLX5DV_QP_EX_WITH_MR_LIST, .dc = MLX5DV_DCTYPE_DCI },
	{ "unknown mlx5 operation", EOPNOTSUPP, "send_ops", IBV_QPT_RC, .mask = PD | OPS, .dv_mask = DV_OPS,
	  .dv_ops = 1 << 20 },
	{ "driver type without DC", EINVAL, "qp_dc_attr", IBV_QPT_DRIVER, .mask = PD, .dv_mask = FLAGS,
	  .dv_flags = DISABLE },
	{ "RC with DC", EINVAL, "qp_dc_attr", IBV_QPT_RC, .mask = PD, .dv_mask = DC, .dc = MLX5DV_DCTYPE_DCI },
	{ "DC of no type", EINVAL, "qp_dc_attr", IBV_QPT_DRIVER, .mask = PD, .dv_mask = DC },
	{ "DCI with a receive queue", EINVAL, "qp_dc_attr", IBV_QPT_DRIVER, .mask = PD, .dv_mask = DC,
	  .dc = MLX5DV_DCTYPE_DCI, .recv = true },
	{ "DCT without SRQ", EINVAL, "qp_dc_attr", IBV_QPT_DRIVER, .mask = PD, .dv_mask = DC,
	  .dc = MLX5DV_DCTYPE_DCT },
	{ "DCT that sends", EINVAL, "qp_dc_attr", IBV_QPT_DRIVER, .mask = PD | OPS, .ops = IBV_QP_EX_WITH_SEND,
	  .dv_mask = DC, .dc = MLX5DV_DCTYPE_DCT, .srq = true },
	{ "DCT with streams", EINVAL, "qp_dc_attr", IBV_QPT_DRIVER, .mask = PD, .dv_mask = DC | STREAMS,
	  .dc = MLX5DV_DCTYPE_DCT, .srq = true },
	{ "DCT that allows requester scatter", EINVAL, "qp_scatter_flags", IBV_QPT_DRIVER, .mask = PD,
	  .dv_mask = DC | FLAGS, .dv_flags = ALLOW, .dc = MLX5DV_DCTYPE_DCT, .srq = true },
	{ "too many streams", EINVAL, "qp_streams", IBV_QPT_DRIVER, .mask = PD, .dv_mask = DC | STREAMS,
	  .dc = MLX5DV_DCTYPE_DCI, .log_streams = 9, .log_errored = 2 },
	{ "too many errored streams", EINVAL, "qp_streams", IBV_QPT_DRIVER, .mask = PD, .dv_mask = DC | STREAMS,
	  .dc = MLX5DV_DCTYPE_DCI, .log_streams = 3, .log_errored = 6 },
};

static void creates(const void *arg)
{
	const struct row *r = arg;
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = r->type,
		.send_cq = r->no_cq ? NULL : cq,
		.recv_cq = r->no_cq ? NULL : cq,
		.srq = r->srq ? srq : NULL,
		.pd = env->pd,
		.comp_mask = r->mask,
		.create_flags = r->create_flags,
		.send_ops_flags = r->ops,
		.cap = { .max_send_wr = 8,
			 .max_send_sge = 2,
			 .max_recv_wr = r->recv ? 8 : 0,
			 .max_recv_sge = r->recv ? 2 : 0 },
	};
	struct mlx5dv_qp_init_attr dv = { .comp_mask = r->dv_mask,
					  .create_flags = r->dv_flags,
					  .send_ops_flags = r->dv_ops };
	struct ibv_qp *qp;

	dv.dc_init_attr.dc_type = r->dc;
	if (r->dc == MLX5DV_DCTYPE_DCT) {
		dv.dc_init_attr.dct_access_key = 5;
	} else {
		dv.dc_init_attr.dci_streams.log_num_concurent = r->log_streams;
		dv.dc_init_attr.dci_streams.log_num_errored = r->log_errored;
	}
	t_why_begin();
	errno = 0;
	qp = r->dv_mask ? mlx5dv_create_qp(env->ctx, &attr, &dv) : ibv_create_qp_ex(env->ctx, &attr);
	if (r->want) {
		EXPECT(!qp, "it was created");
		EXPECT_EQ(errno, r->want, "errno");
		T_WHY(r->check, 0);
	} else if (EXPECT(qp, "not created: %s", strerror(errno))) {
		EXPECT(qp->qp_num != 0 && qp->state == IBV_QPS_RESET, "number 0x%x, state %d", qp->qp_num, qp->state);
		EXPECT(!!ibv_qp_to_qp_ex(qp) == !!(r->mask & OPS), "ibv_qp_to_qp_ex");
		EXPECT(attr.cap.max_recv_wr >= (r->recv ? 8u : 0u), "max_recv_wr %u", attr.cap.max_recv_wr);
	}
	if (qp)
		EXPECT_EQ(ibv_destroy_qp(qp), 0, "ibv_destroy_qp");
}

static void limits(const void *arg)
{
	const struct ibv_qp_cap caps[] = {
		{ .max_send_wr = env->attr.max_qp_wr + 1, .max_send_sge = 1 },
		{ .max_recv_wr = env->attr.max_qp_wr + 1, .max_recv_sge = 1 },
		{ .max_send_wr = 1, .max_send_sge = env->attr.max_sge + 1 },
		{ .max_recv_wr = 1, .max_recv_sge = env->attr.max_sge + 1 },
		{ .max_send_wr = UINT32_MAX, .max_send_sge = 1 },
	};
	struct ibv_qp_init_attr good = { .qp_type = IBV_QPT_RC,
					 .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { .max_send_wr = 1,
						  .max_recv_wr = env->attr.max_qp_wr,
						  .max_send_sge = env->attr.max_sge,
						  .max_recv_sge = env->attr.max_sge } };
	struct ibv_qp *qp;

	(void)arg;
	for (unsigned int i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
		struct ibv_qp_init_attr attr = {
			.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = caps[i]
		};

		t_why_begin();
		errno = 0;
		EXPECT(!ibv_create_qp(env->pd, &attr), "caps %u were granted", i);
		EXPECT_EQ(errno, EINVAL, "errno");
		T_WHY("qp_cap", 0);
	}
	qp = ibv_create_qp(env->pd, &good);
	if (EXPECT(qp, "the reported limits are refused: %s", strerror(errno)))
		EXPECT_EQ(ibv_destroy_qp(qp), 0, "ibv_destroy_qp");
}

static void query(const void *arg)
{
	struct t_spec s = { .sq = 5, .rq = 7, .sge = 3, .rsge = 2, .inl = 60, .sig_all = 1 };
	struct t_qp q = t_qp(env, &s);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	(void)arg;
	EXPECT_EQ(ibv_query_qp(q.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), 0, "ibv_query_qp");
	EXPECT(init.cap.max_send_wr >= 5 && init.cap.max_recv_wr >= 7 && init.cap.max_send_sge >= 3 &&
		       init.cap.max_recv_sge >= 2 && init.cap.max_inline_data >= 60,
	       "capacities below what was asked for");
	EXPECT(!memcmp(&attr.cap, &init.cap, sizeof(attr.cap)), "the two capacities differ");
	EXPECT(init.send_cq == q.scq && init.recv_cq == q.rcq && init.qp_type == IBV_QPT_RC && init.sq_sig_all == 1,
	       "the attributes are not those of creation");
	EXPECT_EQ(attr.qp_state, IBV_QPS_RESET, "state");
	t_why_begin();
	EXPECT_EQ(ibv_query_qp(q.qp, &attr, 1 << 26, &init), EOPNOTSUPP, "unknown mask");
	T_WHY("attr_mask", q.qp->qp_num);
	t_qp_free(&q);
}

static void states(const void *arg)
{
	struct t_spec s = { .ops = IBV_QP_EX_WITH_SEND };
	struct t_qp q = t_qp(env, &s);
	struct t_buf b = t_buf(env, 4096, T_ALL);
	struct ibv_sge sge = t_sge(&b, 0, 8);
	struct ibv_recv_wr *bad = NULL, wr = { .sg_list = &sge, .num_sge = 1 };
	struct t_op op = t_op(IBV_WR_SEND, 1, sge);
	struct ibv_qp_attr attr = t_attr(env, q.qp->qp_num);

	(void)arg;
	t_why_begin();
	EXPECT_EQ(ibv_post_recv(q.qp, &wr, &bad), EINVAL, "receive in RESET");
	EXPECT(bad == &wr, "bad_wr");
	T_WHY("post_recv_state", q.qp->qp_num);
	MUST(!t_modify(q.qp, &attr, IBV_QPS_INIT, T_INIT_MASK), "to INIT");
	EXPECT_EQ(ibv_post_recv(q.qp, &wr, &bad), 0, "receive in INIT");
	EXPECT_EQ(t_post(&q, &op), EINVAL, "send in INIT");
	T_WHY("post_state", 0);
	MUST(!t_modify(q.qp, &attr, IBV_QPS_ERR, IBV_QP_STATE), "to ERR");
	EXPECT_EQ(t_post(&q, &op), 0, "send in ERR");
	EXPECT_EQ(t_poll(q.scq).wc.status, IBV_WC_WR_FLUSH_ERR, "status of the send");
	t_reset(q.qp);
	T_QUIET(q.rcq);
	EXPECT_EQ(t_modify(q.qp, &attr, IBV_QPS_INIT, T_INIT_MASK | IBV_QP_RATE_LIMIT), EOPNOTSUPP, "rate limit");
	t_buf_free(&b);
	t_qp_free(&q);
}

static void xrc_open(const void *arg)
{
	struct ibv_xrcd_init_attr xa = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					 .fd = -1,
					 .oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(env->ctx, &xa);
	struct t_spec s = { .type = IBV_QPT_XRC_RECV, .xrcd = xrcd };
	struct ibv_qp_open_attr oa = { .comp_mask =
					       IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
				       .xrcd = xrcd,
				       .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_qp_attr attr = t_attr(env, 0);
	struct ibv_qp *again;
	struct t_qp q;

	(void)arg;
	MUST(xrcd, "ibv_open_xrcd");
	q = t_qp(env, &s);
	oa.qp_num = q.qp->qp_num;
	again = ibv_open_qp(env->ctx, &oa);
	MUST(again, "ibv_open_qp");
	MUST(!t_modify(again, &attr, IBV_QPS_INIT, T_INIT_MASK), "to INIT by the second handle");
	EXPECT_EQ(t_qp_state(q.qp), IBV_QPS_INIT, "state by the first");
	oa.qp_num ^= 0x800000;
	t_why_begin();
	EXPECT(!ibv_open_qp(env->ctx, &oa), "a number that names nothing was opened");
	T_WHY("object_arg", 0);
	t_qp_free(&q);
	EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY, "close of the domain");
	EXPECT_EQ(t_qp_state(again), IBV_QPS_INIT, "state after the creator is gone");
	EXPECT_EQ(ibv_destroy_qp(again), 0, "ibv_destroy_qp of the last handle");
	EXPECT_EQ(ibv_close_xrcd(xrcd), 0, "ibv_close_xrcd");
}

static void busy(const void *arg)
{
	struct t_spec s = { .type = IBV_QPT_UD };
	struct t_qp q = t_qp(env, &s);
	union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 1 } };

	(void)arg;
	EXPECT_EQ(ibv_destroy_cq(q.scq), EBUSY, "destroy of its CQ");
	EXPECT_EQ(ibv_attach_mcast(q.qp, &group, 0), 0, "attach");
	EXPECT_EQ(ibv_destroy_qp(q.qp), EBUSY, "destroy while attached");
	EXPECT_EQ(ibv_detach_mcast(q.qp, &group, 0), 0, "detach");
	EXPECT_EQ(ibv_attach_mcast(q.qp, &env->gid, 0), EINVAL, "attach to a unicast GID");
	t_qp_free(&q);
}

static void ece(const void *arg)
{
	struct t_spec s = { 0 };
	struct t_qp q = t_qp(env, &s);
	struct ibv_ece e = { 0 };

	(void)arg;
	EXPECT_EQ(ibv_query_ece(q.qp, &e), 0, "query");
	EXPECT(e.vendor_id == 0x15b3 && !e.options, "vendor 0x%x options 0x%x", e.vendor_id, e.options);
	EXPECT_EQ(ibv_set_ece(q.qp, &e), 0, "set to what was read");
	e.options = 1;
	EXPECT_EQ(ibv_set_ece(q.qp, &e), EOPNOTSUPP, "an option");
	e.vendor_id = 1;
	EXPECT_EQ(ibv_set_ece(q.qp, &e), EINVAL, "another vendor");
	t_qp_free(&q);
}

int main(void)
{
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 8, .max_sge = 1 } };

	env = t_open();
	cq = ibv_create_cq(env->ctx, 64, NULL, NULL, 0);
	srq = ibv_create_srq(env->pd, &sa);
	if (!cq || !srq) {
		printf("not ok - set-up: %s\n", strerror(errno));
		return 1;
	}
	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		t_case(rows[i].name, creates, &rows[i]);
	t_case("capacities above the reported limits are refused, the limits are not", limits, NULL);
	t_case("ibv_query_qp tells what was granted", query, NULL);
	t_case("what can be posted follows the state", states, NULL);
	t_case("an XRC target lives until its last handle is closed", xrc_open, NULL);
	t_case("what is in use is not destroyed", busy, NULL);
	t_case("ECE", ece, NULL);
	if (ibv_destroy_srq(srq) || ibv_destroy_cq(cq))
		printf("not ok - tear-down: %s\n", strerror(errno));
	return t_close(env);
}
