/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What broke: calls that return an error left errno as it was, so that programs which print it (UCX and many
 * others do: `returned 16: Cannot allocate memory') told their users something else.
 * Method: errno is another number before each call that is refused. */
#include <errno.h>

#include "t.h"

static struct t_env *env;

static void expect(const char *what, int got, int want)
{
	int err = errno;

	EXPECT_EQ(got, want, what);
	EXPECT_EQ(err, want, what);
	errno = ENOANO;
}

static void calls(const void *arg)
{
	struct t_spec s = { .ops = T_RC_OPS, .srq = t_srq(env, 16) };
	struct t_qp q = t_qp(env, &s);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_srq_attr limit = { .srq_limit = 1 << 20 };

	(void)arg;
	errno = ENOANO;
	expect("ibv_destroy_srq while it is used", ibv_destroy_srq(s.srq), EBUSY);
	expect("ibv_destroy_cq while it is used", ibv_destroy_cq(q.scq), EBUSY);
	expect("ibv_modify_qp from RESET to RTS", ibv_modify_qp(q.qp, &attr, IBV_QP_STATE), EINVAL);
	expect("ibv_modify_srq to a limit above its size", ibv_modify_srq(s.srq, &limit, IBV_SRQ_LIMIT), EINVAL);
	expect("ibv_dealloc_pd while it is used", ibv_dealloc_pd(env->pd), EBUSY);
	t_qp_free(&q);
	EXPECT_EQ(ibv_destroy_srq(s.srq), 0, "ibv_destroy_srq");
}

int main(void)
{
	env = t_open();
	t_case("a call that returns an error leaves the same in errno", calls, NULL);
	return t_close(env);
}
