/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: an object that others use is not destroyed, and is when they are gone.
 * Method: each kind of user is made, the used object's destruction tried, the user destroyed, tried again. */
#include "unit/xport/resp_rig.h"

#include <errno.h>

static enum smx_check last_check(struct rig *r)
{
	struct smx_refusal refusal;

	return smx_refusal_get(&r->log, 0, &refusal) ? refusal.check : SMX_CHECK_NONE;
}

static void domains_are_held_by_their_objects(void **state)
{
	struct rig *r = rig_new();
	struct smx_mkey_attr attr = { .kind = SMX_MKEY_DIRECT, .length = 64, .host = r->mem };
	struct smx_mkey *mkey;
	struct smx_pd *pd;
	uint32_t pdn, key;

	(void)state;
	assert_int_equal(smx_cmd_alloc_pd(r->dev, &pd, &pdn), 0);
	assert_int_equal(pdn, pd->pdn);
	attr.pd = pd;
	assert_int_equal(smx_cmd_create_mkey(r->dev, &attr, &mkey, &key), 0);
	assert_int_equal(smx_mkey_key(mkey), key);
	assert_int_equal(smx_cmd_dealloc_pd(r->dev, pd), EBUSY);
	assert_int_equal(last_check(r), SMX_CHECK_OBJECT_BUSY);
	/* Moved to another domain, it holds that one. */
	attr.pd = r->other_pd;
	assert_int_equal(smx_cmd_modify_mkey(r->dev, mkey, IBV_REREG_MR_CHANGE_PD, &attr), 0);
	assert_int_equal(smx_mkey_key(mkey), key);
	assert_int_equal(smx_cmd_dealloc_pd(r->dev, pd), 0);
	assert_int_equal(smx_cmd_dealloc_pd(r->dev, r->other_pd), EBUSY);
	assert_int_equal(smx_cmd_destroy_mkey(r->dev, mkey), 0);
	assert_int_equal(smx_cmd_dealloc_pd(r->dev, r->other_pd), 0);
	rig_close(r);
}

static void queues_hold_what_they_use(void **state)
{
	struct rig *r = rig_new();
	struct smx_xrcd *xrcd;
	struct smx_qp *qp;
	uint32_t limit;

	(void)state;
	assert_int_equal(smx_cmd_alloc_xrcd(r->dev, &xrcd), 0);
	rig_add_srq(r, xrcd);
	assert_int_equal(smx_cmd_dealloc_xrcd(r->dev, xrcd), EBUSY);
	assert_int_equal(smx_cmd_destroy_cq(r->dev, r->cq), EBUSY);
	assert_int_equal(smx_cmd_query_srq(r->dev, r->srq, &limit), 0);
	assert_int_equal(limit, 0);
	assert_int_equal(smx_cmd_arm_srq(r->dev, r->srq, 3), 0);
	assert_int_equal(smx_cmd_query_srq(r->dev, r->srq, &limit), 0);
	assert_int_equal(limit, 3);
	assert_int_equal(smx_cmd_destroy_srq(r->dev, r->srq), 0);

	qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_XRC_TGT, .xrcd = xrcd });
	assert_int_equal(smx_cmd_dealloc_xrcd(r->dev, xrcd), EBUSY);
	assert_int_equal(smx_cmd_destroy_qp(r->dev, qp), 0);
	assert_int_equal(smx_cmd_dealloc_xrcd(r->dev, xrcd), 0);

	rig_add_srq(r, NULL);
	qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_RC, .srq = r->srq });
	assert_int_equal(smx_cmd_destroy_srq(r->dev, r->srq), EBUSY);
	assert_int_equal(smx_cmd_destroy_cq(r->dev, r->cq), EBUSY);
	assert_int_equal(smx_cmd_destroy_qp(r->dev, qp), 0);
	assert_int_equal(smx_cmd_destroy_srq(r->dev, r->srq), 0);
	assert_int_equal(smx_cmd_destroy_cq(r->dev, r->cq), 0);
	rig_close(r);
}

/* A region may go while a window or an indirect key still names it: later use finds no key. */
static void regions_go_under_their_windows(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_mkey *mr = smx_mkey_find(r->dev, r->key);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 8);

	(void)state;
	assert_int_equal(smx_cmd_destroy_mkey(r->dev, mr), 0);
	rig_deliver(r, f);
	rig_expect_nak(r, SMX_AETH_NAK_ACCESS, RIG_PSN, SMX_CHECK_REMOTE_KEY);
	rig_expect_written(r, 0, 0);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(domains_are_held_by_their_objects),
		cmocka_unit_test(queues_hold_what_they_use),
		cmocka_unit_test(regions_go_under_their_windows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
