/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Helpers of the programs in tests/api and tests/regress: cases and expectations, device and queue
 * pairs, and by t_ops.h one request by either posting API and completions with their raw bytes. Public headers
 * only.
 *
 * A program is a list of cases. Each prints one line:  ok - NAME, not ok - NAME: WHY, or skip - NAME # REASON.
 * EXPECT() notes a failure and goes on; MUST() and a poll that times out end the case. Exit code: 0 all
 * right, 1 something failed, 77 everything was skipped. */
#ifndef T_H
#define T_H

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

/* ---- cases ---- */

struct t_state {
	const char *name;
	int failures;		/* of the present case */
	char why[400];
	int passed, failed, skipped;
	jmp_buf out;
};

static struct t_state t_state;

__attribute__((format(printf, 3, 4), unused))
static void t_fail(const char *file, int line, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (t_state.failures++ == 0)
		snprintf(t_state.why, sizeof(t_state.why), "%s (%s:%d)", text,
			 strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line);
	else if (t_state.failures < 6)
		printf("# %s: also: %s (line %d)\n", t_state.name, text, line);
}

__attribute__((noreturn, unused)) static void t_leave(void)
{
	longjmp(t_state.out, 1);
}

__attribute__((noreturn, unused)) static void t_skip(const char *reason)
{
	printf("skip - %s # %s\n", t_state.name, reason);
	longjmp(t_state.out, 2);
}

/* Does cond hold? If not, the case has failed; the rest is a printf that says what was there instead. */
#define EXPECT(cond, ...) ((cond) ? true : (t_fail(__FILE__, __LINE__, __VA_ARGS__), false))
#define EXPECT_EQ(got, want, what) t_expect_eq((uint64_t)(got), (uint64_t)(want), (what), __FILE__, __LINE__)
/* Without this the case makes no sense. */
#define MUST(cond, what) t_must((cond) ? true : false, (what), __FILE__, __LINE__)

static inline bool t_expect_eq(uint64_t got, uint64_t want, const char *what, const char *file, int line)
{
	if (got == want)
		return true;
	t_fail(file, line, "%s is %" PRIu64 " (0x%" PRIx64 "), want %" PRIu64 " (0x%" PRIx64 ")", what, got,
	       got, want, want);
	return false;
}

static inline void t_must(bool good, const char *what, const char *file, int line)
{
	if (good)
		return;
	t_fail(file, line, "%s: %s", what, strerror(errno));
	t_leave();
}

static inline void t_hang(int sig)
{
	static const char text[] = "\nnot ok - the case above this line: still running after two minutes\n";

	(void)sig;
	if (write(1, t_state.name, strlen(t_state.name)) < 0 || write(1, text, sizeof(text) - 1) < 0)
		_exit(2);
	_exit(1);
}

static inline void t_case(const char *name, void (*fn)(const void *arg), const void *arg)
{
	t_state.name = name;
	t_state.failures = 0;
	signal(SIGALRM, t_hang);
	alarm(120);
	if (setjmp(t_state.out) == 2) {
		alarm(0);
		t_state.skipped++;
		fflush(stdout);
		return;
	}
	if (t_state.failures == 0)
		fn(arg);
	/* Reached again by longjmp with failures set. */
	alarm(0);
	if (t_state.failures) {
		printf("not ok - %s: %s\n", name, t_state.why);
		t_state.failed++;
	} else {
		printf("ok - %s\n", name);
		t_state.passed++;
	}
	fflush(stdout);
}

static inline int t_done(void)
{
	if (t_state.failed)
		return 1;
	return t_state.passed ? 0 : 77;
}

/* ---- device ---- */

enum { T_ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

struct t_env {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct mlx5dv_context dv;
	struct ibv_device_attr attr;
	union ibv_gid gid;
	int gid_index;
	enum ibv_mtu mtu;
};

static bool t_quiet_log = true;	/* failures are what most tests are about: they are not said on stderr */

/* Opens the first mlx5 device; ends the program with 77 where there is none. */
static inline struct t_env *t_open(void)
{
	struct t_env *env = calloc(1, sizeof(*env));
	struct mlx5dv_context_attr open_attr = { 0 };
	struct ibv_device **list;
	struct ibv_gid_entry gid;
	struct ibv_port_attr port;

	if (t_quiet_log)
		setenv("SOFTMLX5_LOG", "off", 0);
	list = ibv_get_device_list(NULL);
	for (int i = 0; list && list[i] && !env->ctx; i++)
		if (mlx5dv_is_supported(list[i]))
			env->ctx = mlx5dv_open_device(list[i], &open_attr);
	if (list)
		ibv_free_device_list(list);
	if (!env->ctx) {
		printf("skip - all # no mlx5 device\n");
		exit(77);
	}
	env->dv.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS | MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH |
			    MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE | MLX5DV_CONTEXT_MASK_DC_ODP_CAPS;
	env->pd = ibv_alloc_pd(env->ctx);
	if (!env->pd || ibv_query_port(env->ctx, 1, &port) || mlx5dv_query_device(env->ctx, &env->dv) ||
	    ibv_query_device(env->ctx, &env->attr)) {
		printf("not ok - set-up: the device cannot be queried: %s\n", strerror(errno));
		exit(1);
	}
	env->mtu = port.active_mtu;
	for (env->gid_index = 0; env->gid_index < port.gid_tbl_len; env->gid_index++)
		if (!ibv_query_gid_ex(env->ctx, 1, env->gid_index, &gid, 0) && gid.gid_type == IBV_GID_TYPE_ROCE_V2)
			break;
	if (env->gid_index == port.gid_tbl_len) {
		printf("not ok - set-up: no RoCE v2 GID on port 1\n");
		exit(1);
	}
	env->gid = gid.gid;
	return env;
}

/* The program's last act: everything was given back, so nothing is busy. RETURN its exit code. */
static inline int t_close(struct t_env *env)
{
	if (!t_state.failed && (ibv_dealloc_pd(env->pd) || ibv_close_device(env->ctx))) {
		printf("not ok - close: something is still in use: %s\n", strerror(errno));
		return 1;
	}
	free(env);
	return t_done();
}

/* ---- memory ---- */

struct t_buf {
	uint8_t *p;
	size_t len;
	struct ibv_mr *mr;
	uint32_t key;
	uint64_t va;
};

static inline struct t_buf t_buf_pd(struct ibv_pd *pd, size_t len, int access)
{
	struct t_buf b = { .len = len };

	b.p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(b.p != MAP_FAILED, "mmap");
	b.mr = ibv_reg_mr(pd, b.p, len, access);
	MUST(b.mr, "ibv_reg_mr");
	b.key = b.mr->lkey;
	b.va = (uintptr_t)b.p;
	return b;
}

static inline struct t_buf t_buf(struct t_env *env, size_t len, int access)
{
	return t_buf_pd(env->pd, len, access);
}

static inline void t_buf_free(struct t_buf *b)
{
	if (b->mr)
		EXPECT_EQ(ibv_dereg_mr(b->mr), 0, "ibv_dereg_mr");
	munmap(b->p, b->len);
}

/* Repeatable random numbers (xorshift64*): the state for a seed, and a number of 0 to below - 1. */
static inline uint64_t t_rng(uint64_t seed)
{
	return seed * 0x9e3779b97f4a7c15ull + 1;
}

static inline uint32_t t_rnd(uint64_t *rng, uint32_t below)
{
	*rng ^= *rng << 13;
	*rng ^= *rng >> 7;
	*rng ^= *rng << 17;
	return (uint32_t)((*rng * 0x2545f4914f6cdd1dull >> 33) % below);
}

static inline uint8_t t_byte(uint32_t seed, size_t i)
{
	return (uint8_t)((seed + 1) * 37 + i * 11 + (i >> 8) * 7 + (i >> 16));
}

static inline void t_fill(void *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)p)[i] = t_byte(seed, i);
}

static inline bool t_is(const void *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		if (((const uint8_t *)p)[i] != t_byte(seed, i))
			return false;
	return true;
}

/* Are all len bytes equal to byte? */
static inline bool t_all(const void *p, size_t len, uint8_t byte)
{
	for (size_t i = 0; i < len; i++)
		if (((const uint8_t *)p)[i] != byte)
			return false;
	return true;
}

/* ---- queue pairs ---- */

enum t_dc { T_NOT_DC, T_DCI, T_DCT };

#define T_RC_OPS (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
		  IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
		  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | \
		  IBV_QP_EX_WITH_SEND_WITH_INV)
#define T_UD_OPS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define T_UC_OPS (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
		  IBV_QP_EX_WITH_SEND_WITH_IMM)
#define T_DV_OPS (MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | \
		  MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY)
#define T_DCI_DV_OPS (MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY)

/* What a queue pair is to be; what is 0 takes a default. */
struct t_spec {
	enum ibv_qp_type type;		/* RC */
	enum t_dc dc;
	uint64_t ops, dv_ops;		/* none: no ibv_qp_ex */
	uint32_t create_flags;		/* MLX5DV_QP_CREATE_*; none: DISABLE_SCATTER_TO_CQE */
	uint32_t sq, rq, sge, rsge, inl;	/* 32, 32, 4, 4, 0 */
	int sig_all;
	struct ibv_srq *srq;
	struct ibv_xrcd *xrcd;
	struct ibv_pd *pd;		/* the environment's */
	struct ibv_cq *scq, *rcq;	/* own ones */
	uint32_t cqe;			/* their size: 256 */
	uint64_t dc_key;
	uint8_t log_streams, log_errored;
	bool streams;
};

struct t_qp {
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	struct mlx5dv_qp_ex *dv;
	struct ibv_cq *scq, *rcq;
	bool own_scq, own_rcq;
	uint64_t dc_key;
};

static inline struct ibv_qp *t_create_qp(struct t_env *env, const struct t_spec *s, struct ibv_cq *scq,
					 struct ibv_cq *rcq)
{
	struct ibv_pd *pd = s->pd ? s->pd : env->pd;
	bool has_rq = !s->srq && s->dc == T_NOT_DC && s->type != IBV_QPT_XRC_SEND && s->type != IBV_QPT_XRC_RECV;
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = s->dc ? IBV_QPT_DRIVER : s->type ? s->type : IBV_QPT_RC, .sq_sig_all = s->sig_all,
		.send_cq = scq, .recv_cq = rcq, .srq = s->srq, .pd = pd, .xrcd = s->xrcd,
		.cap = { .max_send_wr = s->sq ? s->sq : 32, .max_recv_wr = has_rq ? (s->rq ? s->rq : 32) : 0,
			 .max_send_sge = s->sge ? s->sge : 4, .max_recv_sge = has_rq ? (s->rsge ? s->rsge : 4) : 0,
			 .max_inline_data = s->inl },
		.comp_mask = s->xrcd ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD, .send_ops_flags = s->ops,
	};
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = s->create_flags ? s->create_flags : MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE };

	if (s->type == IBV_QPT_XRC_RECV || s->dc == T_DCT)
		attr.cap = (struct ibv_qp_cap) { 0 };
	if (s->type == IBV_QPT_XRC_RECV)
		return ibv_create_qp_ex(env->ctx, &attr);
	if (s->ops || s->dv_ops)
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if (s->dv_ops) {
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
		dv.send_ops_flags = s->dv_ops;
	}
	if (s->dc) {
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv.dc_init_attr.dc_type = s->dc == T_DCI ? MLX5DV_DCTYPE_DCI : MLX5DV_DCTYPE_DCT;
		if (s->dc == T_DCT)
			dv.dc_init_attr.dct_access_key = s->dc_key;
		if (s->streams) {
			dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
			dv.dc_init_attr.dci_streams.log_num_concurent = s->log_streams;
			dv.dc_init_attr.dci_streams.log_num_errored = s->log_errored;
		}
	}
	return mlx5dv_create_qp(env->ctx, &attr, &dv);
}

static inline struct t_qp t_qp(struct t_env *env, const struct t_spec *s)
{
	struct t_qp q = { .scq = s->scq, .rcq = s->rcq, .dc_key = s->dc_key };

	if (!q.scq) {
		q.own_scq = true;
		q.scq = ibv_create_cq(env->ctx, s->cqe ? s->cqe : 256, NULL, NULL, 0);
		MUST(q.scq, "ibv_create_cq");
	}
	if (!q.rcq) {
		q.own_rcq = true;
		q.rcq = ibv_create_cq(env->ctx, s->cqe ? s->cqe : 256, NULL, NULL, 0);
		MUST(q.rcq, "ibv_create_cq");
	}
	q.qp = t_create_qp(env, s, q.scq, q.rcq);
	MUST(q.qp, "create the queue pair");
	if (s->ops || s->dv_ops) {
		q.ex = ibv_qp_to_qp_ex(q.qp);
		MUST(q.ex, "ibv_qp_to_qp_ex");
		q.dv = mlx5dv_qp_ex_from_ibv_qp_ex(q.ex);
	}
	return q;
}

static inline void t_qp_free(struct t_qp *q)
{
	if (q->qp)
		EXPECT_EQ(ibv_destroy_qp(q->qp), 0, "ibv_destroy_qp");
	if (q->own_scq)
		EXPECT_EQ(ibv_destroy_cq(q->scq), 0, "ibv_destroy_cq");
	if (q->own_rcq)
		EXPECT_EQ(ibv_destroy_cq(q->rcq), 0, "ibv_destroy_cq");
}

/* ---- states ---- */

enum {
	T_INIT_MASK = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	T_RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	T_RTS_MASK = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		     IBV_QP_MAX_QP_RD_ATOMIC,
	T_UC_RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	T_UD_INIT_MASK = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
	T_DCI_INIT_MASK = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT,
	T_DCI_RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU,
	T_DCT_RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER,
};

enum { T_QKEY = 0x11111111 };

/* Attributes for any of the transitions; failures show quickly: short timeouts, few retries. */
static inline struct ibv_qp_attr t_attr(struct t_env *env, uint32_t dest)
{
	struct ibv_qp_attr attr = {
		.port_num = 1,
		.path_mtu = env->mtu,
		.dest_qp_num = dest,
		.qkey = T_QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
		.max_rd_atomic = 8,
		.max_dest_rd_atomic = 8,
		.min_rnr_timer = 1,
		.timeout = 8,
		.retry_cnt = 2,
		.rnr_retry = 7,
		.rq_psn = 0x123,
		.sq_psn = 0x123,
		.ah_attr = { .port_num = 1,
			     .is_global = 1,
			     .grh = { .dgid = env->gid, .sgid_index = env->gid_index, .hop_limit = 64 } },
	};

	return attr;
}

static inline int t_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	return ibv_modify_qp(qp, attr, mask);
}

/* RESET to RTS for RC, UC and XRC, each with the attributes that its kind takes. */
static inline void t_to_rts(struct ibv_qp *qp, struct ibv_qp_attr *attr)
{
	int rtr = T_RTR_MASK, rts = T_RTS_MASK;

	if (qp->qp_type == IBV_QPT_UC || qp->qp_type == IBV_QPT_XRC_SEND)
		rtr = T_UC_RTR_MASK;
	if (qp->qp_type == IBV_QPT_UC)
		rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_XRC_RECV)
		rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
	errno = t_modify(qp, attr, IBV_QPS_INIT, T_INIT_MASK);
	MUST(!errno, "to INIT");
	errno = t_modify(qp, attr, IBV_QPS_RTR, rtr);
	MUST(!errno, "to RTR");
	errno = t_modify(qp, attr, IBV_QPS_RTS, rts);
	MUST(!errno, "to RTS");
}

static inline void t_connect(struct t_env *env, struct t_qp *a, struct t_qp *b)
{
	struct ibv_qp_attr attr = t_attr(env, b->qp->qp_num);

	t_to_rts(a->qp, &attr);
	attr = t_attr(env, a->qp->qp_num);
	t_to_rts(b->qp, &attr);
}

struct t_pair { struct t_qp a, b; };

/* Two connected queue pairs of one kind. */
static inline struct t_pair t_pair(struct t_env *env, const struct t_spec *s)
{
	struct t_pair p = { .a = t_qp(env, s), .b = t_qp(env, s) };

	t_connect(env, &p.a, &p.b);
	return p;
}

static inline void t_pair_free(struct t_pair *p)
{
	t_qp_free(&p->a);
	t_qp_free(&p->b);
}

static inline void t_reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { 0 };

	errno = t_modify(qp, &attr, IBV_QPS_RESET, IBV_QP_STATE);
	MUST(!errno, "to RESET");
}

/* Both sides through RESET to RTS again: after an error. */
static inline void t_reconnect(struct t_env *env, struct t_pair *p)
{
	t_reset(p->a.qp);
	t_reset(p->b.qp);
	t_connect(env, &p->a, &p->b);
}

static inline void t_ud_rts(struct t_env *env, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = t_attr(env, 0);

	MUST(!t_modify(qp, &attr, IBV_QPS_INIT, T_UD_INIT_MASK), "UD to INIT");
	MUST(!t_modify(qp, &attr, IBV_QPS_RTR, IBV_QP_STATE), "UD to RTR");
	MUST(!t_modify(qp, &attr, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN), "UD to RTS");
}

static inline void t_dci_rts(struct ibv_qp *qp, struct ibv_qp_attr *attr)
{
	errno = t_modify(qp, attr, IBV_QPS_INIT, T_DCI_INIT_MASK);
	MUST(!errno, "DCI to INIT");
	errno = t_modify(qp, attr, IBV_QPS_RTR, T_DCI_RTR_MASK);
	MUST(!errno, "DCI to RTR");
	errno = t_modify(qp, attr, IBV_QPS_RTS, T_RTS_MASK);
	MUST(!errno, "DCI to RTS");
}

static inline struct t_qp t_dci(struct t_env *env, struct t_spec s)
{
	struct ibv_qp_attr attr = t_attr(env, 0);
	struct t_qp q;

	s.dc = T_DCI;
	if (!s.ops)
		s.ops = T_RC_OPS;
	q = t_qp(env, &s);
	t_dci_rts(q.qp, &attr);
	return q;
}

static inline void t_dct_rtr(struct t_env *env, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = t_attr(env, 0);

	errno = t_modify(qp, &attr, IBV_QPS_INIT, T_INIT_MASK);
	MUST(!errno, "DCT to INIT");
	errno = t_modify(qp, &attr, IBV_QPS_RTR, T_DCT_RTR_MASK);
	MUST(!errno, "DCT to RTR");
}

static inline struct t_qp t_dct(struct t_env *env, struct ibv_srq *srq, uint64_t key)
{
	struct t_spec s = { .dc = T_DCT, .srq = srq, .dc_key = key };
	struct t_qp q = t_qp(env, &s);

	t_dct_rtr(env, q.qp);
	return q;
}

static inline struct ibv_srq *t_srq(struct t_env *env, uint32_t max_wr)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = max_wr, .max_sge = 4 } };
	struct ibv_srq *srq = ibv_create_srq(env->pd, &attr);

	MUST(srq, "ibv_create_srq");
	return srq;
}

static inline struct ibv_ah *t_ah(struct t_env *env)
{
	struct ibv_qp_attr attr = t_attr(env, 0);
	struct ibv_ah *ah = ibv_create_ah(env->pd, &attr.ah_attr);

	MUST(ah, "ibv_create_ah");
	return ah;
}

/* The state as the device sees it. */
static inline enum ibv_qp_state t_qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { 0 };
	struct ibv_qp_init_attr init;

	return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) ? IBV_QPS_UNKNOWN : attr.qp_state;
}

#include "t_ops.h"

#endif
