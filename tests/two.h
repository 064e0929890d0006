/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Two processes: this program starts itself again as the target, which has one of each kind of queue pair
 * and memory that both processes map, so that the tester sees what was written without asking.
 *
 * The target makes no verbs call but to take receives, and none at all once it was told to be quiet. */
#ifndef TWO_H
#define TWO_H

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "t.h"

enum two_kind { TWO_RC, TWO_UC, TWO_UD, TWO_XRC, TWO_DC, TWO_KINDS };

enum {
	TWO_MEM = 24 << 20, TWO_TARGET = 1 << 20, TWO_RECV = 12 << 20, TWO_AREA = 8 << 20, TWO_DC_KEY = 0x77,
	TWO_ASLEEP = 2,		/* quiet: not even a loop */
};

struct two_got { uint32_t status, opcode, bytes, imm, has_imm; };

/* The first page of the common memory. */
struct two_page {
	volatile uint32_t ready, connected, quiet, stop;
	volatile uint32_t rings;	/* before it connects: the target rings its RC queue pair by itself */
	volatile uint32_t receives[TWO_KINDS];	/* how many the tester wants posted, ever */
	volatile uint32_t posted[TWO_KINDS];
	volatile uint32_t got_count;
	struct two_got got[64];
	uint32_t qpn[TWO_KINDS], tester_qpn[TWO_KINDS];
	uint32_t srqn, rkey, readonly_rkey;
	uint64_t va;
};

struct two {
	struct two_page *page;
	uint8_t *mem;
	pid_t pid;
	struct t_qp q[TWO_KINDS];
	struct ibv_ah *ah;
	uint32_t got_seen;
};

/* ---- the target ---- */

struct two_target {
	struct two_page *page;
	struct t_buf mem;
	struct ibv_mr *readonly;
	struct t_qp q[TWO_KINDS];
	struct ibv_srq *srq[TWO_KINDS];
	struct ibv_xrcd *xrcd;
};

static inline struct ibv_srq *two_xrc_srq(struct t_env *env, struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 16, .max_sge = 4 }, .srq_type = IBV_SRQT_XRC, .xrcd = xrcd, .pd = env->pd,
		.cq = cq, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
				       IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(env->ctx, &attr);

	MUST(srq, "ibv_create_srq_ex");
	return srq;
}

static inline struct ibv_xrcd *two_xrcd(struct t_env *env)
{
	struct ibv_xrcd_init_attr attr = { .fd = -1, .oflags = O_CREAT,
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(env->ctx, &attr);

	MUST(xrcd, "ibv_open_xrcd");
	return xrcd;
}

static inline void two_target_make(struct t_env *env, struct two_target *t)
{
	struct two_page *page = t->page;
	struct t_spec rc = { .ops = T_RC_OPS }, uc = { .type = IBV_QPT_UC, .ops = T_UC_OPS },
		      ud = { .type = IBV_QPT_UD, .ops = T_UD_OPS };

	t->mem = (struct t_buf) { .p = (void *)page, .len = TWO_MEM, .va = (uintptr_t)page };
	t->mem.mr = ibv_reg_mr(env->pd, page, TWO_MEM, T_ALL);
	MUST(t->mem.mr, "ibv_reg_mr");
	t->mem.key = t->mem.mr->lkey;
	t->readonly = ibv_reg_mr(env->pd, page, TWO_MEM, IBV_ACCESS_REMOTE_READ);
	MUST(t->readonly, "ibv_reg_mr");
	t->q[TWO_RC] = t_qp(env, &rc);
	t->q[TWO_UC] = t_qp(env, &uc);
	t->q[TWO_UD] = t_qp(env, &ud);
	t_ud_rts(env, t->q[TWO_UD].qp);
	t->xrcd = two_xrcd(env);
	t->q[TWO_XRC] = t_qp(env, &(struct t_spec) { .type = IBV_QPT_XRC_RECV, .xrcd = t->xrcd });
	t->srq[TWO_XRC] = two_xrc_srq(env, t->xrcd, t->q[TWO_XRC].rcq);
	MUST(!ibv_get_srq_num(t->srq[TWO_XRC], &page->srqn), "ibv_get_srq_num");
	t->srq[TWO_DC] = t_srq(env, 16);
	t->q[TWO_DC] = t_dct(env, t->srq[TWO_DC], TWO_DC_KEY);
	for (int k = 0; k < TWO_KINDS; k++)
		page->qpn[k] = t->q[k].qp->qp_num;
	page->va = t->mem.va;
	page->rkey = t->mem.mr->rkey;
	page->readonly_rkey = t->readonly->rkey;
}

static inline void two_target_serve(struct two_target *t)
{
	struct two_page *page = t->page;

	for (int k = 0; k < TWO_KINDS; k++) {
		struct ibv_wc wc;

		while (page->posted[k] != page->receives[k]) {
			if (t->srq[k])
				t_srq_recv(t->srq[k], k, t_sge(&t->mem, TWO_RECV, TWO_AREA));
			else
				t_recv(&t->q[k], k, t_sge(&t->mem, TWO_RECV, TWO_AREA));
			__atomic_fetch_add(&page->posted[k], 1, __ATOMIC_SEQ_CST);
		}
		if (ibv_poll_cq(t->q[k].rcq, 1, &wc) > 0) {
			page->got[page->got_count % 64] = (struct two_got) { wc.status, wc.opcode, wc.byte_len,
				be32toh(wc.imm_data), wc.wc_flags & IBV_WC_WITH_IMM };
			__atomic_fetch_add(&page->got_count, 1, __ATOMIC_SEQ_CST);
		}
	}
}

static inline void two_target_case(const void *arg)
{
	struct two_target *t = (void *)(uintptr_t)arg;
	struct two_page *page = t->page;
	struct t_env *env = t_open();
	struct ibv_qp_attr attr;
	struct mlx5dv_qp dv_qp = { 0 };
	struct mlx5dv_cq dv_cq = { 0 };
	struct mlx5dv_obj rc;

	alarm(0);
	two_target_make(env, t);
	rc = (struct mlx5dv_obj) { .qp = { t->q[TWO_RC].qp, &dv_qp }, .cq = { t->q[TWO_RC].scq, &dv_cq } };
	page->ready = 1;
	while (!page->connected && getppid() != 1)
		usleep(100);
	if (page->rings)
		MUST(!mlx5dv_init_obj(&rc, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	for (int k = 0; k < TWO_KINDS; k++) {
		if (k == TWO_UD || k == TWO_DC)
			continue;
		attr = t_attr(env, page->tester_qpn[k]);
		t_to_rts(t->q[k].qp, &attr);
	}
	page->ready = 2;
	while (!page->stop && getppid() != 1) {
		if (!page->quiet)
			two_target_serve(t);
		if (page->quiet == TWO_ASLEEP)
			pause();
		usleep(page->quiet ? 1000 : 50);
	}
	/* It leaves without destroying anything. */
	_exit(0);
}

/* To be called first in main(): RETURN unless this is the target. */
static inline void two_main(int argc, char **argv)
{
	struct two_target t = { 0 };

	if (argc < 3 || strcmp(argv[1], "target"))
		return;
	t.page = mmap(NULL, TWO_MEM, PROT_READ | PROT_WRITE, MAP_SHARED, (int)strtol(argv[2], NULL, 10), 0);
	if (t.page == MAP_FAILED)
		exit(1);
	t_case("target", two_target_case, &t);
	exit(1);
}

/* ---- the tester ---- */

static inline void two_wait(volatile uint32_t *word, uint32_t want, const char *what)
{
	for (int i = 0; i < 200000 && *word != want; i++)
		usleep(50);
	MUST(*word == want, what);
}

static inline struct two two_start(struct t_env *env)
{
	struct two two = { 0 };
	int fd = (int)syscall(SYS_memfd_create, "two", 0);
	char text[16];

	MUST(fd >= 0 && !ftruncate(fd, TWO_MEM), "memfd_create");
	two.page = mmap(NULL, TWO_MEM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(two.page != MAP_FAILED, "mmap");
	two.mem = (uint8_t *)two.page;
	snprintf(text, sizeof(text), "%d", fd);
	fflush(stdout);
	two.pid = fork();
	if (!two.pid) {
		execl("/proc/self/exe", "target", "target", text, (char *)NULL);
		_exit(127);
	}
	close(fd);
	two_wait(&two.page->ready, 1, "the target starts");
	two.ah = t_ah(env);
	return two;
}

/* The tester's side of every kind, with short timeouts. */
static inline void two_connect(struct t_env *env, struct two *two, uint8_t timeout, uint8_t retries)
{
	struct two_page *page = two->page;
	static const struct t_spec spec[TWO_KINDS] = {
		[TWO_RC] = { .ops = T_RC_OPS }, [TWO_UC] = { .type = IBV_QPT_UC, .ops = T_UC_OPS },
		[TWO_UD] = { .type = IBV_QPT_UD, .ops = T_UD_OPS },
		[TWO_XRC] = { .type = IBV_QPT_XRC_SEND, .ops = T_RC_OPS & ~(uint64_t)(IBV_QP_EX_WITH_LOCAL_INV |
				IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV) },
		[TWO_DC] = { .dc = T_DCI, .ops = T_RC_OPS },
	};

	for (int k = 0; k < TWO_KINDS; k++) {
		struct ibv_qp_attr attr = t_attr(env, page->qpn[k]);

		attr.timeout = timeout;
		attr.retry_cnt = retries;
		two->q[k] = t_qp(env, &spec[k]);
		page->tester_qpn[k] = two->q[k].qp->qp_num;
		if (k == TWO_UD)
			t_ud_rts(env, two->q[k].qp);
		else if (k == TWO_DC)
			t_dci_rts(two->q[k].qp, &attr);
		else
			t_to_rts(two->q[k].qp, &attr);
	}
	page->connected = 1;
	two_wait(&page->ready, 2, "the target connects");
}

static inline void two_end(struct two *two)
{
	int status;

	two->page->stop = 1;
	kill(two->pid, SIGCONT);
	for (int k = 0; k < TWO_KINDS; k++)
		t_qp_free(&two->q[k]);
	ibv_destroy_ah(two->ah);
	waitpid(two->pid, &status, 0);
	munmap(two->page, TWO_MEM);
}

/* Addresses a request to the target's queue pair of that kind, where the request has to. */
static inline void two_address(struct two *two, enum two_kind k, struct t_op *o)
{
	o->ah = k == TWO_UD || k == TWO_DC ? two->ah : NULL;
	o->dest = two->page->qpn[k];
	o->qkey = T_QKEY;
	o->dc_key = TWO_DC_KEY;
}

static inline int two_post(struct two *two, enum two_kind k, struct t_op *o)
{
	struct t_qp *q = &two->q[k];

	two_address(two, k, o);
	ibv_wr_start(q->ex);
	t_build(q, o);
	if (k == TWO_XRC)
		ibv_wr_set_xrc_srqn(q->ex, two->page->srqn);
	return ibv_wr_complete(q->ex);
}

static inline void two_want_receives(struct two *two, enum two_kind k, uint32_t n)
{
	two->page->receives[k] += n;
	two_wait(&two->page->posted[k], two->page->receives[k], "the target posts receives");
}

static inline struct two_got two_take(struct two *two)
{
	for (int i = 0; i < 200000 && two->page->got_count == two->got_seen; i++)
		usleep(50);
	MUST(two->page->got_count != two->got_seen, "the target receives");
	return two->page->got[two->got_seen++ % 64];
}

#endif
