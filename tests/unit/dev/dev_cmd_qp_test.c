/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: queue pairs are created, numbered, moved through their states, asked and destroyed as the commands say. */
#include "unit/xport/resp_rig.h"

#include <errno.h>

static enum smx_check last_check(struct rig *r)
{
	struct smx_refusal refusal;

	return smx_refusal_get(&r->log, 0, &refusal) ? refusal.check : SMX_CHECK_NONE;
}

static const struct create_row {
	const char *name;
	enum smx_qp_type type;
	bool no_pd, no_send_cq, no_recv_cq;
	uint32_t sq_bbs, rq_wqes;
	uint8_t log_streams, log_errored;
	int want;
} creates[] = {
	{ "RC", SMX_QP_RC, false, false, false, 16, 8, 0, 0, 0 },
	{ "RC without queues", SMX_QP_RC, false, false, false, 0, 0, 0, 0, 0 },
	{ "RC without domain", SMX_QP_RC, true, false, false, 16, 8, 0, 0, EINVAL },
	{ "RC without send CQ", SMX_QP_RC, false, true, false, 16, 8, 0, 0, EINVAL },
	{ "RC without receive CQ", SMX_QP_RC, false, false, true, 16, 8, 0, 0, EINVAL },
	{ "DCI without receive CQ", SMX_QP_DCI, false, false, true, 16, 0, 2, 1, 0 },
	{ "DCI with too many streams", SMX_QP_DCI, false, false, true, 16, 0, 20, 1, EINVAL },
	{ "DCT without SRQ", SMX_QP_DCT, false, true, false, 0, 0, 0, 0, EINVAL },
	{ "XRC target without domain", SMX_QP_XRC_TGT, true, true, true, 0, 0, 0, 0, EINVAL },
	{ "ring of 12 blocks", SMX_QP_RC, false, false, false, 12, 8, 0, 0, EINVAL },
	{ "7 receives", SMX_QP_RC, false, false, false, 16, 7, 0, 0, EINVAL },
	{ "unknown type", (enum smx_qp_type)9, false, false, false, 16, 8, 0, 0, EINVAL },
};

static void creates_what_is_complete(void **state)
{
	struct rig *r = rig_new();

	(void)state;
	for (size_t i = 0; i < sizeof(creates) / sizeof(creates[0]); i++) {
		const struct create_row *row = &creates[i];
		struct smx_qp_attr attr = {
			.type = row->type, .pd = row->no_pd ? NULL : r->pd,
			.send_cq = row->no_send_cq ? NULL : r->cq, .recv_cq = row->no_recv_cq ? NULL : r->cq,
			.sq_buf = r->sq, .sq_bb_count = row->sq_bbs, .rq_buf = r->rq,
			.rq_wqe_count = row->rq_wqes, .rq_stride_bytes = 64, .dbrec = r->dbrec,
			.log_streams = row->log_streams, .log_errored = row->log_errored,
		};
		uint32_t users = r->cq->users, pd_users = r->pd->users, qpn;
		struct smx_qp *qp;

		print_message("%s\n", row->name);
		assert_int_equal(smx_cmd_create_qp(r->dev, &attr, &qp, &qpn), row->want);
		if (row->want) {
			assert_int_equal(last_check(r), SMX_CHECK_OBJECT_ARG);
		} else {
			assert_int_equal(smx_qp_state(qp), IBV_QPS_RESET);
			assert_true(qpn > 1 && qpn < 0x1000000);
			assert_ptr_equal(smx_qp_find(r->dev, qpn), qp);
			assert_int_equal(qp->attr.user_index, qpn);
			assert_int_equal(r->pd->users, pd_users + 1);
			assert_int_equal(smx_cmd_destroy_qp(r->dev, qp), 0);
			assert_null(smx_qp_find(r->dev, qpn));
		}
		assert_int_equal(r->cq->users, users);
		assert_int_equal(r->pd->users, pd_users);
	}
	rig_close(r);
}

static void gives_back_what_was_set(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, IBV_ACCESS_REMOTE_READ);
	struct ibv_qp_attr a, sqd = { .qp_state = IBV_QPS_SQD };

	(void)state;
	assert_int_equal(smx_cmd_query_qp(r->dev, r->qp, &a), 0);
	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	assert_int_equal(a.cur_qp_state, IBV_QPS_RTS);
	assert_int_equal(a.path_mtu, IBV_MTU_1024);
	assert_int_equal(a.path_mig_state, IBV_MIG_MIGRATED);
	assert_int_equal(a.rq_psn, RIG_PSN);
	assert_int_equal(a.dest_qp_num, RIG_PEER);
	assert_int_equal(a.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(a.max_rd_atomic, 4);
	assert_int_equal(a.max_dest_rd_atomic, 4);
	assert_int_equal(a.min_rnr_timer, 12);
	assert_int_equal(a.timeout, 14);
	assert_int_equal(a.retry_cnt, 7);
	assert_int_equal(a.rnr_retry, 7);
	assert_int_equal(a.port_num, 1);
	assert_int_equal(a.ah_attr.is_global, 1);
	assert_int_equal(a.sq_draining, 0);
	rig_modify(r, r->qp, &sqd, IBV_QP_STATE);
	assert_int_equal(smx_cmd_query_qp(r->dev, r->qp, &a), 0);
	assert_int_equal(a.qp_state, IBV_QPS_SQD);
	assert_int_equal(a.sq_draining, 1);
	smx_dev_turn(r->dev);
	assert_int_equal(smx_cmd_query_qp(r->dev, r->qp, &a), 0);
	assert_int_equal(a.sq_draining, 0);
	rig_close(r);
}

/* A refused modification changes nothing, the state included. */
static void changes_nothing_when_refused(void **state)
{
	struct rig *r = rig_new();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = 5,
				    .qp_access_flags = 0xf }, got;
	struct smx_qp *qp;

	(void)state;
	qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_RC });
	assert_int_equal(smx_cmd_modify_qp(r->dev, qp, &attr, 0x39, NULL), EINVAL);
	assert_int_equal(smx_cmd_query_qp(r->dev, qp, &got), 0);
	assert_int_equal(got.qp_state, IBV_QPS_RESET);
	assert_int_equal(got.qp_access_flags, 0);
	assert_int_equal(got.port_num, 0);
	/* A path must come resolved. */
	attr.pkey_index = 0;
	rig_modify(r, qp, &attr, 0x39);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };
	attr.ah_attr.is_global = 1;
	assert_int_equal(smx_cmd_modify_qp(r->dev, qp, &attr, 0x129181, NULL), EINVAL);
	assert_int_equal(last_check(r), SMX_CHECK_OBJECT_ARG);
	assert_int_equal(smx_qp_state(qp), IBV_QPS_INIT);
	rig_close(r);
}

static void to_err_flushes_before_it_returns(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)state;
	for (int i = 0; i < 3; i++)
		rig_post_recv(r, r->key, 0, 64);
	rig_modify(r, r->qp, &attr, IBV_QP_STATE);
	for (int i = 0; i < 3; i++)
		rig_expect_error_cqe(r, SMX_CHECK_FLUSH_BEHIND);
	assert_null(rig_cqe(r));
	rig_modify(r, r->qp, &attr, IBV_QP_STATE);
	assert_null(rig_cqe(r));
	/* After RESET its rings start at 0. */
	attr.qp_state = IBV_QPS_RESET;
	rig_modify(r, r->qp, &attr, IBV_QP_STATE);
	r->rq_posted = 0;
	r->dbrec[0] = 0;
	rig_bring_up(r, r->qp, RIG_ALL, true);
	rig_post_recv(r, r->key, 0, 64);
	rig_deliver(r, rig_frame(r, SMX_FRAME_SEND, 8));
	assert_int_equal(from_be16(rig_cqe(r)->wqe_counter), 0);
	rig_close(r);
}

static void reserves_numbers(void **state)
{
	struct rig *r = rig_new();
	struct smx_qp_attr attr = { .type = SMX_QP_RC };
	struct smx_qp *qp;
	uint32_t qpn;

	(void)state;
	assert_int_equal(smx_cmd_reserve_qpn(r->dev, &qpn), 0);
	assert_null(smx_qp_find(r->dev, qpn));
	qp = rig_add_qp(r, &attr);
	assert_int_not_equal(qp->qpn, qpn);
	attr.reserved_qpn = qpn;
	qp = rig_add_qp(r, &attr);
	assert_int_equal(qp->qpn, qpn);
	assert_ptr_equal(smx_qp_find(r->dev, qpn), qp);
	assert_int_equal(smx_cmd_unreserve_qpn(r->dev, qpn), EBUSY);
	assert_int_equal(smx_cmd_destroy_qp(r->dev, qp), 0);
	assert_null(smx_qp_find(r->dev, qpn));
	assert_int_equal(smx_cmd_unreserve_qpn(r->dev, qpn), 0);
	assert_int_equal(smx_cmd_unreserve_qpn(r->dev, qpn), EINVAL);
	attr.pd = r->pd;
	attr.send_cq = attr.recv_cq = r->cq;
	assert_int_equal(smx_cmd_create_qp(r->dev, &attr, &qp, &qpn), EINVAL);
	rig_close(r);
}

static void groups_hold_their_members(void **state)
{
	static const uint8_t group[16] = { 0xff, 1 }, unicast[16] = { 0xfe, 0x80 };
	struct rig *r = rig_new();
	struct smx_qp *ud = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_UD });
	struct smx_qp *rc = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_RC });

	(void)state;
	assert_int_equal(smx_cmd_attach_mcast(r->dev, rc, group), EINVAL);
	assert_int_equal(smx_cmd_attach_mcast(r->dev, ud, unicast), EINVAL);
	assert_int_equal(smx_cmd_detach_mcast(r->dev, ud, group), EINVAL);
	assert_int_equal(smx_cmd_attach_mcast(r->dev, ud, group), 0);
	assert_int_equal(smx_cmd_attach_mcast(r->dev, ud, group), 0);
	assert_int_equal(smx_cmd_destroy_qp(r->dev, ud), EBUSY);
	assert_int_equal(smx_cmd_detach_mcast(r->dev, ud, group), 0);
	assert_int_equal(smx_cmd_detach_mcast(r->dev, ud, group), EINVAL);
	assert_int_equal(smx_cmd_destroy_qp(r->dev, ud), 0);
	/* A device that goes takes members along. */
	ud = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_UD });
	assert_int_equal(smx_cmd_attach_mcast(r->dev, ud, group), 0);
	rig_close(r);
}

static void sets_the_source_port_in_rts(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)state;
	assert_int_equal(smx_cmd_set_udp_sport(r->dev, r->qp, 55555), 0);
	rig_deliver(r, rig_frame(r, SMX_FRAME_WRITE, 8));
	assert_int_equal(rig_last(r)->f.udp_sport, 55555);
	rig_modify(r, r->qp, &attr, IBV_QP_STATE);
	assert_int_equal(smx_cmd_set_udp_sport(r->dev, r->qp, 1), EOPNOTSUPP);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(creates_what_is_complete),
		cmocka_unit_test(gives_back_what_was_set),
		cmocka_unit_test(changes_nothing_when_refused),
		cmocka_unit_test(to_err_flushes_before_it_returns),
		cmocka_unit_test(reserves_numbers),
		cmocka_unit_test(groups_hold_their_members),
		cmocka_unit_test(sets_the_source_port_in_rts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
