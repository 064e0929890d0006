/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Objects of one context in another (import), parent and thread domains, protection between domains of several
 * contexts. */
#include <sys/wait.h>

#include "t_why.h"

static struct t_env *env;
static struct t_buf src;

static void set_up(const void *arg)
{
	(void)arg;
	src = t_buf(env, 4096, T_ALL);
}

static void import(const void *arg)
{
	struct ibv_context *ctx = ibv_import_device(dup(env->ctx->cmd_fd));
	struct t_env other = *env;
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_buf mem = t_buf(env, 4096, T_ALL);
	struct ibv_mr *mr;
	struct t_pair p;
	struct t_op o;

	(void)arg;
	MUST(ctx, "ibv_import_device");
	other.ctx = ctx;
	other.pd = ibv_import_pd(ctx, env->pd->handle);
	MUST(other.pd, "ibv_import_pd");
	mr = ibv_import_mr(other.pd, mem.mr->handle);
	MUST(mr, "ibv_import_mr");
	EXPECT(mr->lkey == mem.mr->lkey && mr->rkey == mem.mr->rkey, "keys of the imported region");

	/* A queue pair of the imported context and domain uses regions of the first. */
	p.a = t_qp(&other, &s);
	p.b = t_qp(env, &s);
	t_connect(env, &p.a, &p.b);
	t_fill(src.p, 64, 1);
	o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 64), mr->rkey, mem.va);
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	EXPECT(t_is(mem.p, 64, 1), "data");
	t_pair_free(&p);
	ibv_unimport_mr(mr);
	ibv_unimport_pd(other.pd);
	EXPECT_EQ(ibv_close_device(ctx), 0, "closing the imported context");

	/* The originals live on. */
	p = t_pair(env, &s);
	o.wr_id = 2;
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE");
	T_DONE(p.a.scq, 2, IBV_WC_RDMA_WRITE);
	t_pair_free(&p);
	t_buf_free(&mem);
}

static void import_wrong(const void *arg)
{
	(void)arg;
	errno = 0;
	EXPECT(!ibv_import_device(-1) && errno, "a descriptor that is none: errno %d", errno);
	errno = 0;
	EXPECT(!ibv_import_pd(env->ctx, 0x7fffff00) && errno, "a handle that is none: errno %d", errno);
	errno = 0;
	EXPECT(!ibv_import_mr(env->pd, 0x7fffff00) && errno, "a handle that is none: errno %d", errno);
}

struct alloc_log { int allocs, frees; };

static void *my_alloc(struct ibv_pd *pd, void *ctx, size_t size, size_t align, uint64_t type)
{
	void *mem;

	(void)pd;
	if (type == MLX5DV_RES_TYPE_DBR)
		return IBV_ALLOCATOR_USE_DEFAULT;
	((struct alloc_log *)ctx)->allocs++;
	return posix_memalign(&mem, align < 4096 ? 4096 : align, size) ? NULL : mem;
}

static void my_free(struct ibv_pd *pd, void *ctx, void *ptr, uint64_t type)
{
	(void)pd;
	(void)type;
	((struct alloc_log *)ctx)->frees++;
	free(ptr);
}

/* Queues in memory of the program's own; regions and keys are those of the domain below. */
static void parent_domain(const void *arg)
{
	struct alloc_log log = { 0 };
	struct ibv_td_init_attr ta = { 0 };
	struct ibv_td *td = ibv_alloc_td(env->ctx, &ta);
	struct ibv_parent_domain_init_attr pa = { .pd = env->pd,
						  .td = td,
						  .alloc = my_alloc,
						  .free = my_free,
						  .pd_context = &log,
						  .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
							       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT };
	struct ibv_pd *parent;
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p;
	struct t_op o = t_rdma(IBV_WR_RDMA_READ, 1, t_sge(&src, 0, 64), src.key, src.va + 1024);

	(void)arg;
	MUST(td, "ibv_alloc_td");
	parent = ibv_alloc_parent_domain(env->ctx, &pa);
	MUST(parent, "ibv_alloc_parent_domain");
	s.pd = parent;
	p = t_pair(env, &s);
	EXPECT(log.allocs >= 2, "the allocator was called %d times", log.allocs);
	EXPECT_EQ(t_post(&p.a, &o), 0, "READ with a key of the domain below");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_READ);
	EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY, "a parent domain in use");
	EXPECT_EQ(ibv_dealloc_td(td), EBUSY, "a thread domain in use");
	t_pair_free(&p);
	EXPECT_EQ(log.frees, log.allocs, "frees");
	EXPECT_EQ(ibv_dealloc_pd(parent), 0, "ibv_dealloc_pd");
	EXPECT_EQ(ibv_dealloc_td(td), 0, "ibv_dealloc_td");
}

static void *refuse(struct ibv_pd *pd, void *ctx, size_t size, size_t align, uint64_t type)
{
	(void)pd;
	(void)ctx;
	(void)size;
	(void)align;
	(void)type;
	return NULL;
}

static void allocator_that_fails(const void *arg)
{
	struct ibv_parent_domain_init_attr pa = { .pd = env->pd, .alloc = refuse, .free = my_free,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS };
	struct ibv_pd *parent = ibv_alloc_parent_domain(env->ctx, &pa);
	struct ibv_cq *cq = ibv_create_cq(env->ctx, 8, NULL, NULL, 0);
	struct t_spec s = { .pd = parent };
	struct ibv_qp *qp;

	(void)arg;
	MUST(parent && cq, "domain and CQ");
	errno = 0;
	qp = t_create_qp(env, &s, cq, cq);
	EXPECT(!qp && errno, "a queue pair without memory: %p, errno %d", (void *)qp, errno);
	EXPECT_EQ(ibv_destroy_cq(cq), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_dealloc_pd(parent), 0, "ibv_dealloc_pd");
}

/* Two contexts are two programs as far as rights go: a key of one does not serve a queue pair of the other. */
static void two_contexts(const void *arg)
{
	struct t_env *other = t_open();
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_buf mem = t_buf(other, 4096, T_ALL);
	struct t_pair p = { .a = t_qp(env, &s), .b = t_qp(other, &s) };
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 64), mem.key, mem.va);

	(void)arg;
	t_connect(env, &p.a, &p.b);
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE to the other context's memory");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	o.sge[0].lkey = mem.key;
	o.sge[0].addr = mem.va;
	t_why_begin();
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE from the other context's memory");
	T_FAILED(p.a.scq, 1, T_GATHER_KEY);
	t_pair_free(&p);
	t_buf_free(&mem);
	EXPECT_EQ(ibv_dealloc_pd(other->pd), 0, "ibv_dealloc_pd");
	EXPECT_EQ(ibv_close_device(other->ctx), 0, "ibv_close_device");
	free(other);
}

/* A forked child has a copy of everything; what it makes and does works there, and does not show here. */
static void forked(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS };
	struct t_pair p;
	struct t_op o = t_rdma(IBV_WR_RDMA_WRITE, 1, t_sge(&src, 0, 64), src.key, src.va + 1024);
	int status;
	pid_t child;

	(void)arg;
#if defined(__SANITIZE_THREAD__)
	t_skip("ThreadSanitizer does not follow a fork of several threads");
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
	t_skip("ThreadSanitizer does not follow a fork of several threads");
#endif
#endif
	p = t_pair(env, &s);
	t_fill(src.p, 64, 1);
	memset(src.p + 1024, 0, 64);
	fflush(stdout);
	child = fork();
	MUST(child >= 0, "fork");
	if (!child) {
		struct t_pair own;

		t_state.failures = 0;
		if (setjmp(t_state.out))
			_exit(2);
		own = t_pair(env, &s);
		if (t_post(&own.a, &o) || t_poll(own.a.scq).wc.status != IBV_WC_SUCCESS || !t_is(src.p + 1024, 64, 1))
			_exit(3);
		t_pair_free(&own);
		_exit(t_state.failures ? 4 : 0);
	}
	MUST(waitpid(child, &status, 0) == child, "waitpid");
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's status is 0x%x", status);
	EXPECT(t_all(src.p + 1024, 64, 0), "the child wrote to the parent's memory");
	EXPECT_EQ(t_post(&p.a, &o), 0, "WRITE in the parent");
	T_DONE(p.a.scq, 1, IBV_WC_RDMA_WRITE);
	EXPECT(t_is(src.p + 1024, 64, 1), "data");
	t_pair_free(&p);
}

static void tear_down(const void *arg)
{
	(void)arg;
	t_buf_free(&src);
}

int main(void)
{
	env = t_open();
	t_case("set up", set_up, NULL);
	t_case("import of device, domain and region", import, NULL);
	t_case("import of what is not there", import_wrong, NULL);
	t_case("parent domain with an allocator", parent_domain, NULL);
	t_case("an allocator that fails", allocator_that_fails, NULL);
	t_case("two contexts", two_contexts, NULL);
	t_case("a forked child", forked, NULL);
	t_case("tear down", tear_down, NULL);
	return t_close(env);
}
