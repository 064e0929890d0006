/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: frames reach the queue pair they are for, in the states in which it listens, and groups. */
#include "unit/xport/resp_rig.h"

static void listens_from_rtr_on(void **state)
{
	static const struct { enum ibv_qp_state state; bool answers; } rows[] = {
		{ IBV_QPS_RESET, false }, { IBV_QPS_INIT, false }, { IBV_QPS_RTR, true }, { IBV_QPS_RTS, true },
		{ IBV_QPS_SQD, true }, { IBV_QPS_ERR, false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);

		r->qp->state = rows[i].state;
		rig_deliver(r, rig_frame(r, SMX_FRAME_WRITE, 8));
		assert_int_equal(r->answers, rows[i].answers);
		rig_expect_written(r, 0, rows[i].answers ? 8 : 0);
		rig_close(r);
	}
}

static void ignores_frames_for_nobody(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 8);
	uint32_t reserved;

	(void)state;
	assert_int_equal(smx_cmd_reserve_qpn(r->dev, &reserved), 0);
	f.dst_qpn = reserved;
	rig_deliver(r, f);
	f.dst_qpn = 0;
	rig_deliver(r, f);
	f.dst_qpn = 0xffffff;
	rig_deliver(r, f);
	f.dst_qpn = r->qpn;
	f.transport = SMX_TP_UC;
	rig_deliver(r, f);
	f.transport = SMX_TP_RC;
	f.op = 200;
	rig_deliver(r, f);
	assert_int_equal(r->answers, 0);
	rig_expect_written(r, 0, 0);
	rig_close(r);
}

static const uint8_t group[16] = { 0xff, 0x0e, [15] = 1 };

static void groups_get_a_copy_each(void **state)
{
	struct rig *r = rig_open(SMX_QP_UD, 0);
	struct smx_qp_attr attr = { .type = SMX_QP_UD, .block_self_mcast = true };
	struct smx_qp *second;
	struct smx_frame f;
	uint8_t rq2[RIG_RQ_WQES * RIG_RQ_STRIDE];
	uint32_t dbrec2[2] = { 0 };

	(void)state;
	second = rig_add_qp(r, &attr);
	rig_bring_up(r, second, 0, true);
	second->rq.buf = rq2;
	second->rq.dbrec = dbrec2;
	rig_put_sge(rq2, r->key, r->mem + 4096, 64);
	rig_put_sge(rq2 + 16, SMX_LKEY_END, NULL, 0);
	be32_store_release(dbrec2, 1);
	rig_post_recv(r, r->key, 0, 64);

	f = rig_frame(r, SMX_FRAME_SEND, 8);
	f.dst_qpn = 0xffffff;
	memcpy(f.dgid, group, 16);
	rig_deliver(r, f);
	assert_null(rig_cqe(r));
	assert_int_equal(smx_cmd_attach_mcast(r->dev, r->qp, group), 0);
	assert_int_equal(smx_cmd_attach_mcast(r->dev, second, group), 0);
	/* The second asked not to hear itself. */
	f.src_qpn = second->qpn;
	rig_deliver(r, f);
	assert_int_equal(from_be32(rig_cqe(r)->sop_drop_qpn), r->qpn);
	assert_null(rig_cqe(r));
	assert_int_equal(r->mem[40], 1);
	/* The first hears itself; its own queue is empty now. */
	rig_post_recv(r, r->key, 0, 64);
	f.src_qpn = r->qpn;
	rig_deliver(r, f);
	assert_int_equal(from_be32(rig_cqe(r)->sop_drop_qpn), r->qpn);
	assert_int_equal(from_be32(rig_cqe(r)->sop_drop_qpn), second->qpn);
	assert_int_equal(r->mem[4096 + 40], 1);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(listens_from_rtr_on),
		cmocka_unit_test(ignores_frames_for_nobody),
		cmocka_unit_test(groups_get_a_copy_each),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
