/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What it costs to post: builders and doorbell, with nothing that executes them. Public headers only: the same
 * binary measures ours (SOFTMLX5_DEVICE=off) and libmlx5 (tests/oracle/with_libmlx5.sh).
 *
 * usage: posting_bench                               reads "BUILDER BATCH LOCK REQUESTS" lines, answers with ns
 *        posting_bench --list                        names of builders, a line each
 *        posting_bench BUILDER BATCH LOCK REQUESTS   once, for callgrind with --collect-atstart=no
 * BUILDER is a line's number in the list. LOCK 0: in a thread domain, where queues need no locks; LOCK 2: with a queue
 * pair that does nothing, for what the benchmark's own loop and its calls take. */
#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <valgrind/callgrind.h>

enum { RING_WR = 256, BATCH_MAX = 32 };
enum { NOTHING = 2 };	/* a LOCK */

enum kind { RC, DCI, UD, XRC, SHARED, KINDS };	/* of a queue pair; SHARED: RC that receives from an SRQ */

struct queue {
	struct ibv_qp *qp;
	struct ibv_qp_ex *x;
	struct mlx5dv_qp_ex *dv;
	struct mlx5dv_qp at;
	uint32_t room, posted;
	uint32_t received;	/* completions of receives */
	uint32_t srqn;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd[2];		/* [0] of a thread domain */
static struct ibv_cq *cq;
static struct mlx5dv_cq cq_at;
static uint32_t cq_ci;
static struct ibv_ah *ah;
static struct mlx5dv_mkey *mkey;
static uint8_t inline_data[64];

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "posting_bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *need(void *p, const char *what)
{
	if (!p)
		die(what);
	return p;
}

/* ---- builders ---- */

static void rc_write(struct queue *q)
{
	ibv_wr_rdma_write(q->x, 0x1100, 0x7000000);
	ibv_wr_set_sge(q->x, 0x2200, 0x8000000, 64);
}

static void dc_write(struct queue *q)
{
	rc_write(q);
	mlx5dv_wr_set_dc_addr_stream(q->dv, ah, 0x99, 0x1234, 3);
}

static void dc_write_plain(struct queue *q)
{
	rc_write(q);
	mlx5dv_wr_set_dc_addr(q->dv, ah, 0x99, 0x1234);
}

static void ud_send(struct queue *q)
{
	ibv_wr_send(q->x);
	ibv_wr_set_ud_addr(q->x, ah, 0x99, 0x1234);
	ibv_wr_set_sge(q->x, 0x2200, 0x8000000, 64);
}

static void xrc_write(struct queue *q)
{
	rc_write(q);
	ibv_wr_set_xrc_srqn(q->x, 0x99);
}

static void write_inline(struct queue *q)
{
	ibv_wr_rdma_write(q->x, 0x1100, 0x7000000);
	ibv_wr_set_inline_data(q->x, inline_data, sizeof(inline_data));
}

static void list4(struct queue *q)
{
	static struct ibv_sge sge[4] = { { 0x1000, 64, 1 }, { 0x2000, 64, 1 }, { 0x3000, 64, 1 }, { 0x4000, 64, 1 } };

	q->x->wr_flags = IBV_SEND_INLINE;
	mlx5dv_wr_mr_list(q->dv, mkey, IBV_ACCESS_LOCAL_WRITE, 4, sge);
}

static void interleaved3(struct queue *q)
{
	static struct mlx5dv_mr_interleaved il[3] = { { 0x1000, 64, 64, 1 }, { 0x2000, 64, 64, 1 },
						      { 0x3000, 64, 64, 1 } };

	q->x->wr_flags = IBV_SEND_INLINE;
	mlx5dv_wr_mr_interleaved(q->dv, mkey, IBV_ACCESS_LOCAL_WRITE, 8, 3, il);
}

static void configure(struct queue *q)
{
	static struct ibv_sge sge[4] = { { 0x1000, 64, 1 }, { 0x2000, 64, 1 }, { 0x3000, 64, 1 }, { 0x4000, 64, 1 } };
	struct mlx5dv_mkey_conf_attr attr = { 0 };

	q->x->wr_flags = IBV_SEND_INLINE;
	mlx5dv_wr_mkey_configure(q->dv, mkey, 2, &attr);
	mlx5dv_wr_set_mkey_access_flags(q->dv, IBV_ACCESS_LOCAL_WRITE);
	mlx5dv_wr_set_mkey_layout_list(q->dv, 4, sge);
}

static void raw64(struct queue *q)
{
	static const uint8_t wqe[64] = { [3] = 0x08, [7] = 4 };

	mlx5dv_wr_raw_wqe(q->dv, wqe);
}

static void dma_memcpy(struct queue *q)
{
	mlx5dv_wr_memcpy(q->dv, 0x1100, 0x1000, 0x2200, 0x2000, 4096);
}

static void fetch_add(struct queue *q)
{
	ibv_wr_atomic_fetch_add(q->x, 0x1100, 0x7000000, 1);
	ibv_wr_set_sge(q->x, 0x2200, 0x8000000, 8);
}

static void invalidate(struct queue *q)
{
	ibv_wr_local_inv(q->x, 0x1100);
}

/* ---- lists ---- */

static struct ibv_sge sge = { 0x8000000, 64, 0x2200 };

static int send_list(struct queue *q, int n)
{
	static struct ibv_send_wr wr[BATCH_MAX];
	struct ibv_send_wr *bad;

	for (int i = 0; i < n; i++)
		wr[i] = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
					      .wr = { .rdma = { 0x7000000, 0x1100 } },
					      .next = i + 1 < n ? &wr[i + 1] : NULL };
	return ibv_post_send(q->qp, wr, &bad);
}

static struct ibv_recv_wr *recv_wr(int n)
{
	static struct ibv_recv_wr wr[BATCH_MAX];

	for (int i = 0; i < n; i++)
		wr[i] = (struct ibv_recv_wr){ .sg_list = &sge, .num_sge = 1, .next = i + 1 < n ? &wr[i + 1] : NULL };
	return wr;
}

static int recv_list(struct queue *q, int n)
{
	struct ibv_recv_wr *bad;

	return ibv_post_recv(q->qp, recv_wr(n), &bad);
}

static int srq_list(struct queue *q, int n)
{
	struct ibv_recv_wr *bad;

	return ibv_post_srq_recv(q->qp->srq, recv_wr(n), &bad);
}

static const struct row {
	const char *name;
	enum kind kind;
	void (*build)(struct queue *q);		/* one request of a batch, or NULL */
	int (*list)(struct queue *q, int n);
	int receives;
} rows[] = {
	{ "RC write + sge", RC, rc_write, NULL, 0 },
	{ "DCI write + stream + sge", DCI, dc_write, NULL, 0 },
	{ "RC write inline 64 B", RC, write_inline, NULL, 0 },
	{ "fetch_add", RC, fetch_add, NULL, 0 },
	{ "local_inv", RC, invalidate, NULL, 0 },
	{ "mr_list(4)", RC, list4, NULL, 0 },
	{ "mr_interleaved(3)", RC, interleaved3, NULL, 0 },
	{ "mkey_configure, list(4)", RC, configure, NULL, 0 },
	{ "raw 64 B", RC, raw64, NULL, 0 },
	{ "memcpy", RC, dma_memcpy, NULL, 0 },
	{ "ibv_post_send WRITE", RC, NULL, send_list, 0 },
	{ "DCI write + sge", DCI, dc_write_plain, NULL, 0 },
	{ "UD send + sge", UD, ud_send, NULL, 0 },
	{ "XRC write + sge", XRC, xrc_write, NULL, 0 },
	{ "ibv_post_recv", RC, NULL, recv_list, 1 },
	{ "ibv_post_srq_recv", SHARED, NULL, srq_list, 1 },
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* ---- queues ---- */

static void to_rts(struct ibv_qp *qp, enum kind kind)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11, .path_mtu = IBV_MTU_1024, .dest_qp_num = 1,
		.max_dest_rd_atomic = 1, .max_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
	};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, rtr = IBV_QP_STATE;
	int rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	a.ah_attr.grh.dgid.raw[0] = 0xfe;
	a.ah_attr.grh.dgid.raw[1] = 0x80;
	if (kind == UD) {
		init |= IBV_QP_QKEY;
	} else {
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	if (kind == RC || kind == SHARED || kind == XRC) {
		init |= IBV_QP_ACCESS_FLAGS;
		rtr |= IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (kind == RC || kind == SHARED)
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	errno = ibv_modify_qp(qp, &a, init);
	a.qp_state = IBV_QPS_RTR;
	errno = errno ? errno : ibv_modify_qp(qp, &a, rtr);
	a.qp_state = IBV_QPS_RTS;
	errno = errno ? errno : ibv_modify_qp(qp, &a, rts);
	if (errno)
		die("to RTS");
}

static struct queue *make(enum kind kind, int lock)
{
	static const enum ibv_qp_type type[KINDS] = { IBV_QPT_RC, IBV_QPT_DRIVER, IBV_QPT_UD, IBV_QPT_XRC_SEND,
						      IBV_QPT_RC };
	struct queue *q = need(calloc(1, sizeof(*q)), "memory");
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type[kind], .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = RING_WR, .max_send_sge = 4, .max_inline_data = 300 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd[lock],
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS };
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = RING_WR - 1, .max_sge = 3 } };
	struct mlx5dv_srq srq_at = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_obj obj = { 0 };

	q->room = RING_WR;
	if (kind == SHARED) {
		attr.srq = need(ibv_create_srq(pd[lock], &shared), "shared receive queue");
		q->room = RING_WR - 1;
	} else if (kind == RC) {
		attr.cap.max_recv_wr = RING_WR;
		attr.cap.max_recv_sge = 4;
	}
	if (kind != UD)
		attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV;
	if (kind == RC || kind == DCI)
		dv.send_ops_flags |= MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY;
	if (kind == DCI) {
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
		dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		dv.dc_init_attr.dci_streams.log_num_concurent = 3;
	} else if (kind == RC) {
		dv.send_ops_flags |= MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST |
				     MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
	}
	q->qp = need(mlx5dv_create_qp(ctx, &attr, &dv), "queue pair");
	q->x = ibv_qp_to_qp_ex(q->qp);
	q->dv = mlx5dv_qp_ex_from_ibv_qp_ex(q->x);
	obj.qp.in = q->qp;
	obj.qp.out = &q->at;
	obj.srq.in = attr.srq;
	obj.srq.out = &srq_at;
	if (mlx5dv_init_obj(&obj, kind == SHARED ? MLX5DV_OBJ_QP | MLX5DV_OBJ_SRQ : MLX5DV_OBJ_QP))
		die("mlx5dv_init_obj");
	q->srqn = srq_at.srqn;
	to_rts(q->qp, kind);
	return q;
}

static int nothing(void)
{
	return 0;
}

/* A queue pair whose functions all return at once. They are called with arguments that nobody takes. */
static struct queue *make_nothing(void)
{
	static struct { struct verbs_context verbs; struct ibv_qp_ex x; struct mlx5dv_qp_ex dv; uint32_t dbrec[2]; } o;
	static struct ibv_srq srq = { .context = &o.verbs.context };
	static struct queue q = { .qp = &o.x.qp_base, .x = &o.x, .dv = &o.dv, .room = RING_WR, .at.dbrec = o.dbrec };
	int (*function)(void) = nothing;

	for (char *p = (char *)&o.x.wr_atomic_cmp_swp; p < (char *)(&o.x + 1); p += sizeof(function))
		memcpy(p, &function, sizeof(function));
	for (char *p = (char *)&o.dv.wr_set_dc_addr; p < (char *)(&o.dv + 1); p += sizeof(function))
		memcpy(p, &function, sizeof(function));
	memcpy(&o.verbs.context.ops.post_send, &function, sizeof(function));
	memcpy(&o.verbs.context.ops.post_recv, &function, sizeof(function));
	memcpy(&o.verbs.context.ops.post_srq_recv, &function, sizeof(function));
	o.x.qp_base.context = &o.verbs.context;
	o.x.qp_base.srq = &srq;
	return &q;
}

static void open_device(void)
{
	struct ibv_device **list = need(ibv_get_device_list(NULL), "devices");
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1,
				    .grh = { .flow_label = 1, .dgid.raw = { 0xfe, 0x80, [15] = 1 } } };
	struct mlx5dv_mkey_init_attr key = { .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 16 };
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr parent = { 0 };
	struct mlx5dv_obj obj = { 0 };

	ctx = need(list[0] ? ibv_open_device(list[0]) : NULL, "device");
	pd[1] = need(ibv_alloc_pd(ctx), "domain");
	parent.pd = pd[1];
	parent.td = need(ibv_alloc_td(ctx, &td), "thread domain");
	pd[0] = need(ibv_alloc_parent_domain(ctx, &parent), "parent domain");
	cq = need(ibv_create_cq(ctx, 255, NULL, NULL, 0), "completion queue");
	obj.cq.in = cq;
	obj.cq.out = &cq_at;
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ))
		die("mlx5dv_init_obj");
	ah = need(ibv_create_ah(pd[1], &attr), "address handle");
	key.pd = pd[1];
	mkey = need(mlx5dv_create_mkey(&key), "mkey");
}

/* ---- posting ---- */

static void post(struct queue *q, const struct row *row, int batch)
{
	int err;

	if (row->build) {
		ibv_wr_start(q->x);
		for (int i = 0; i < batch; i++) {
			q->x->wr_id = (uint64_t)i;
			q->x->wr_flags = 0;
			row->build(q);
		}
		err = ibv_wr_complete(q->x);
	} else {
		err = row->list(q, batch);
	}
	if (err) {
		errno = err;
		die(row->name);
	}
}

static void complete(struct queue *q, uint8_t opcode, uint32_t index)
{
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)cq_at.buf + (cq_ci & (cq_at.cqe_cnt - 1));
	struct ibv_wc wc;

	cqe->wqe_counter = htobe16((uint16_t)index);
	cqe->sop_drop_qpn = htobe32(0x08000000u | q->qp->qp_num);
	cqe->srqn_uidx = htobe32(q->srqn);
	__atomic_store_n(&cqe->op_own, (uint8_t)(opcode << 4 | (cq_ci & cq_at.cqe_cnt ? 1 : 0)), __ATOMIC_RELEASE);
	cq_ci++;
	if (ibv_poll_cq(cq, 1, &wc) != 1)
		die("completion");
}

/* Plays the device: the last WQE completes, and all before it. A ring of a power of two holds whole batches, so the
 * last one begins where its own blocks end at the record. */
static void complete_all(struct queue *q, uint32_t blocks, const struct row *row)
{
	uint32_t index = be32toh(q->at.dbrec[MLX5_SND_DBR]);
	/* a DCI with streams frees in the order of completion */
	uint32_t n = row->receives || row->kind == DCI ? q->posted : 1;

	while (n-- > 0) {
		if (row->receives)	/* entries of a shared queue come round in order, too */
			complete(q, MLX5_CQE_RESP_SEND, q->received++ % RING_WR);
		else
			complete(q, MLX5_CQE_REQ, index - blocks * (n + 1));
	}
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Only posting is timed. */
static double once(const struct row *row, int batch, int lock, uint32_t requests)
{
	static struct queue *queues[KINDS][3];
	struct queue **at = &queues[row->kind][lock], *q;
	uint32_t before, blocks, done = 0;
	uint64_t ns = 0;

	if (!*at)
		*at = lock == NOTHING ? make_nothing() : make(row->kind, lock);
	q = *at;
	before = be32toh(q->at.dbrec[MLX5_SND_DBR]);
	post(q, row, 1);
	blocks = (be32toh(q->at.dbrec[MLX5_SND_DBR]) - before) & 0xffff;
	q->posted = 1;
	if (lock != NOTHING)
		complete_all(q, blocks, row);
	while (done < requests) {
		uint64_t began = now_ns();

		q->posted = 0;
		CALLGRIND_TOGGLE_COLLECT;
		for (; q->posted + (uint32_t)batch <= q->room && done < requests; q->posted += (uint32_t)batch) {
			post(q, row, batch);
			done += (uint32_t)batch;
		}
		CALLGRIND_TOGGLE_COLLECT;
		ns += now_ns() - began;
		if (lock != NOTHING)
			complete_all(q, blocks, row);
	}
	return (double)ns / done;
}

static double asked(const char *builder, const char *batch, const char *lock, const char *requests)
{
	unsigned long row = strtoul(builder, NULL, 10), n = strtoul(batch, NULL, 10);

	if (row >= ROWS || !n || n > BATCH_MAX || *lock < '0' || *lock > '2') {
		fprintf(stderr, "posting_bench: builder %s of %d, batch %s of 1 to %d, lock %s of 0 to 2\n", builder,
			ROWS, batch, BATCH_MAX, lock);
		exit(2);
	}
	return once(&rows[row], (int)n, *lock - '0', (uint32_t)strtoul(requests, NULL, 10));
}

int main(int argc, char **argv)
{
	char word[4][16];

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (int i = 0; i < ROWS; i++)
			printf("%s\n", rows[i].name);
		return 0;
	}
	open_device();
	if (argc == 5) {
		asked(argv[1], argv[2], argv[3], argv[4]);
		return 0;
	}
	while (scanf("%15s %15s %15s %15s", word[0], word[1], word[2], word[3]) == 4) {
		printf("%.3f\n", asked(word[0], word[1], word[2], word[3]));
		fflush(stdout);
	}
	return 0;
}
