/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: the responder's order of checks, its sequence numbers, and what becomes of its queue pair.
 * Method: scripted frames against one queue pair; every answer is caught and compared. */
#include "unit/xport/resp_rig.h"

/* One broken rule at a time, then two: the earlier one wins (fault injection on ConnectX-5/6). */
static const struct refusal_row {
	const char *name;
	int access;			/* the queue pair's */
	enum smx_frame_op op;
	bool bad_key, bad_range, read_limit_0, misaligned;
	uint8_t syndrome;
	enum smx_check want;
} refusals[] = {
	{ "write without right", 0, SMX_FRAME_WRITE, .syndrome = SMX_AETH_NAK_INVALID,
	  .want = SMX_CHECK_REMOTE_QP_ACCESS },
	{ "read without right", IBV_ACCESS_REMOTE_WRITE, SMX_FRAME_READ_REQUEST,
	  .syndrome = SMX_AETH_NAK_INVALID, .want = SMX_CHECK_REMOTE_QP_ACCESS },
	{ "atomic without right", IBV_ACCESS_REMOTE_READ, SMX_FRAME_ATOMIC_REQUEST,
	  .syndrome = SMX_AETH_NAK_INVALID, .want = SMX_CHECK_REMOTE_QP_ACCESS },
	{ "right before key", 0, SMX_FRAME_WRITE, .bad_key = true, .syndrome = SMX_AETH_NAK_INVALID,
	  .want = SMX_CHECK_REMOTE_QP_ACCESS },
	{ "right before read limit", 0, SMX_FRAME_READ_REQUEST, .read_limit_0 = true,
	  .syndrome = SMX_AETH_NAK_INVALID, .want = SMX_CHECK_REMOTE_QP_ACCESS },
	{ "read limit before key", RIG_ALL, SMX_FRAME_READ_REQUEST, .read_limit_0 = true, .bad_key = true,
	  .syndrome = SMX_AETH_NAK_INVALID, .want = SMX_CHECK_REMOTE_READS },
	{ "atomic read limit", RIG_ALL, SMX_FRAME_ATOMIC_REQUEST, .read_limit_0 = true,
	  .syndrome = SMX_AETH_NAK_INVALID, .want = SMX_CHECK_REMOTE_READS },
	{ "write key", RIG_ALL, SMX_FRAME_WRITE, .bad_key = true, .syndrome = SMX_AETH_NAK_ACCESS,
	  .want = SMX_CHECK_REMOTE_KEY },
	{ "write key before range", RIG_ALL, SMX_FRAME_WRITE, .bad_key = true, .bad_range = true,
	  .syndrome = SMX_AETH_NAK_ACCESS, .want = SMX_CHECK_REMOTE_KEY },
	{ "write range", RIG_ALL, SMX_FRAME_WRITE, .bad_range = true, .syndrome = SMX_AETH_NAK_ACCESS,
	  .want = SMX_CHECK_REMOTE_RANGE },
	{ "read range", RIG_ALL, SMX_FRAME_READ_REQUEST, .bad_range = true, .syndrome = SMX_AETH_NAK_ACCESS,
	  .want = SMX_CHECK_REMOTE_RANGE },
	{ "atomic key", RIG_ALL, SMX_FRAME_ATOMIC_REQUEST, .bad_key = true,
	  .syndrome = SMX_AETH_NAK_ACCESS, .want = SMX_CHECK_REMOTE_KEY },
	{ "atomic key before alignment", RIG_ALL, SMX_FRAME_ATOMIC_REQUEST, .bad_key = true,
	  .misaligned = true, .syndrome = SMX_AETH_NAK_ACCESS, .want = SMX_CHECK_REMOTE_KEY },
	{ "atomic alignment", RIG_ALL, SMX_FRAME_ATOMIC_REQUEST, .misaligned = true,
	  .syndrome = SMX_AETH_NAK_INVALID, .want = SMX_CHECK_REMOTE_ALIGN },
};

static void refuse_one(const struct refusal_row *row)
{
	struct rig *r = rig_open(SMX_QP_RC, (uint32_t)row->access);
	struct smx_frame f = rig_frame(r, row->op, 64);

	print_message("%s\n", row->name);
	if (row->bad_key)
		f.rkey ^= 1;
	if (row->bad_range)
		f.va = (uintptr_t)r->mem + RIG_MEM - 32;
	if (row->misaligned)
		f.va += 4;
	if (row->read_limit_0)
		r->qp->cur.max_dest_rd_atomic = 0;
	rig_post_recv(r, r->key, 0, 64);
	rig_deliver(r, f);
	assert_int_equal(r->answers, 1);
	rig_expect_nak(r, row->syndrome, RIG_PSN, row->want);
	rig_expect_written(r, 0, 0);
	assert_int_equal(smx_qp_state(r->qp), IBV_QPS_ERR);
	rig_expect_error_cqe(r, SMX_CHECK_FLUSH_BEHIND);
	assert_null(rig_cqe(r));
	/* In ERR it is silent. */
	f.rkey = r->key;
	f.va = (uintptr_t)r->mem;
	rig_deliver(r, f);
	assert_int_equal(r->answers, 1);
	rig_close(r);
}

static void refuses_in_order_and_goes_to_err(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		refuse_one(&refusals[i]);
}

static void acknowledges_in_order(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 2500);	/* three packets */

	(void)state;
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN + 2);
	assert_int_equal(rig_last(r)->f.msn, 1);
	f.psn = RIG_PSN + 3;
	f.ack_request = false;
	rig_deliver(r, f);
	assert_int_equal(r->answers, 1);
	f.psn = RIG_PSN + 6;
	f.ack_request = true;
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN + 8);
	assert_int_equal(rig_last(r)->f.msn, 3);
	rig_close(r);
}

static void wraps_psn(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 2048);

	(void)state;
	r->qp->resp->one->epsn = 0xffffff;
	f.psn = 0xffffff;
	rig_deliver(r, f);
	rig_expect_ack(r, 0);
	rig_close(r);
}

static void says_once_what_is_missing(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 8);

	(void)state;
	f.psn = RIG_PSN + 1;
	rig_deliver(r, f);
	rig_expect_nak(r, SMX_AETH_NAK_SEQUENCE, RIG_PSN, SMX_CHECK_NONE);
	f.psn = RIG_PSN + 2;
	rig_deliver(r, f);
	assert_int_equal(r->answers, 1);
	rig_expect_written(r, 0, 0);
	assert_int_equal(smx_qp_state(r->qp), IBV_QPS_RTS);
	/* After what was expected has come, a new gap is said again. */
	f.psn = RIG_PSN;
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN);
	f.psn = RIG_PSN + 2;
	rig_deliver(r, f);
	rig_expect_nak(r, SMX_AETH_NAK_SEQUENCE, RIG_PSN + 1, SMX_CHECK_NONE);
	rig_close(r);
}

static void answers_duplicates_without_executing(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 8);

	(void)state;
	rig_deliver(r, f);
	memset(r->mem, 0, 8);
	rig_deliver(r, f);
	assert_int_equal(r->answers, 2);
	rig_expect_ack(r, RIG_PSN);
	rig_expect_written(r, 0, 0);
	assert_int_equal(rig_last(r)->f.msn, 1);
	rig_close(r);
}

/* A retransmission may be cut in other places than the first time: only its new packets are executed. */
static void executes_the_new_part_of_an_overlap(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 4096);

	(void)state;
	f.length = 2048;
	f.last = false;
	rig_deliver(r, f);
	memset(r->mem, 0, 2048);
	f.length = 4096;
	f.last = true;
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN + 3);
	for (int i = 0; i < 2048; i++)
		assert_int_equal(r->mem[i], 0);
	for (int i = 2048; i < 4096; i++)
		assert_int_equal(r->mem[i], i % 251 + 1);
	rig_close(r);
}

static const struct sequence_row {
	const char *name;
	bool begin;		/* a WRITE of two packets is begun first */
	enum smx_frame_op op;
	bool first, last;
	uint64_t length;
	enum smx_check want;
} sequences[] = {
	{ "continues nothing", false, SMX_FRAME_WRITE, false, true, 8, SMX_CHECK_REMOTE_SEQUENCE },
	{ "begins inside", true, SMX_FRAME_WRITE, true, true, 8, SMX_CHECK_REMOTE_SEQUENCE },
	{ "continues as another", true, SMX_FRAME_SEND, false, true, 8, SMX_CHECK_REMOTE_SEQUENCE },
	{ "reads inside", true, SMX_FRAME_READ_REQUEST, true, true, 0, SMX_CHECK_REMOTE_SEQUENCE },
	{ "middle not full", true, SMX_FRAME_WRITE, false, false, 1000, SMX_CHECK_REMOTE_LENGTH },
	{ "longer than announced", true, SMX_FRAME_WRITE, false, true, 1025, SMX_CHECK_REMOTE_LENGTH },
	{ "shorter than announced", true, SMX_FRAME_WRITE, false, true, 1023, SMX_CHECK_REMOTE_LENGTH },
};

static void refuses_what_does_not_continue(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++) {
		const struct sequence_row *row = &sequences[i];
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 2048);

		print_message("%s\n", row->name);
		if (row->begin) {
			f.length = 1024;
			f.last = false;
			rig_deliver(r, f);
		}
		f = rig_frame(r, row->op, row->length);
		f.psn = RIG_PSN + row->begin;
		f.first = row->first;
		f.last = row->last;
		rig_deliver(r, f);
		rig_expect_nak(r, SMX_AETH_NAK_INVALID, RIG_PSN + row->begin, row->want);
		assert_int_equal(smx_qp_state(r->qp), IBV_QPS_ERR);
		rig_close(r);
	}
}

static const struct mtu_row {
	const char *name;
	enum smx_frame_op op;
	uint32_t mtu;
	uint64_t length;
	enum smx_check want;
} mtus[] = {
	{ "one packet that fits both", SMX_FRAME_WRITE, 4096, 1024, SMX_CHECK_NONE },
	{ "one packet too long for the responder", SMX_FRAME_WRITE, 4096, 1025, SMX_CHECK_REMOTE_MTU },
	{ "two packets of the smaller MTU", SMX_FRAME_WRITE, 256, 257, SMX_CHECK_REMOTE_MTU },
	{ "read of one packet", SMX_FRAME_READ_REQUEST, 256, 256, SMX_CHECK_NONE },
	{ "read of two packets", SMX_FRAME_READ_REQUEST, 256, 257, SMX_CHECK_REMOTE_MTU },
};

static void refuses_another_path_mtu(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(mtus) / sizeof(mtus[0]); i++) {
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_frame f = rig_frame(r, mtus[i].op, mtus[i].length);

		print_message("%s\n", mtus[i].name);
		f.mtu_bytes = mtus[i].mtu;
		rig_deliver(r, f);
		if (mtus[i].want)
			rig_expect_nak(r, SMX_AETH_NAK_INVALID, RIG_PSN, mtus[i].want);
		else
			assert_int_equal(rig_last(r)->f.syndrome & 0x60, SMX_AETH_ACK);
		rig_close(r);
	}
}

static void uc_never_answers_and_drops_cut_messages(void **state)
{
	struct rig *r = rig_open(SMX_QP_UC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 4096);

	(void)state;
	/* A lost middle: the rest of the message is dropped. */
	f.length = 1024;
	f.last = false;
	rig_deliver(r, f);
	f.first = false;
	f.psn += 2;
	rig_deliver(r, f);
	f.psn += 1;
	f.last = true;
	rig_deliver(r, f);
	rig_expect_written(r, 0, 1024);
	/* The next message is taken whatever its PSN. */
	f = rig_frame(r, SMX_FRAME_WRITE, 2048);
	f.psn = RIG_PSN + 77;
	rig_deliver(r, f);
	rig_expect_written(r, 0, 2048);
	/* What is refused is dropped, and the queue pair lives on. */
	f.psn++;
	f.rkey ^= 1;
	rig_deliver(r, f);
	f = rig_frame(r, SMX_FRAME_READ_REQUEST, 8);
	rig_deliver(r, f);
	assert_int_equal(r->answers, 0);
	assert_int_equal(smx_qp_state(r->qp), IBV_QPS_RTS);
	rig_close(r);
}

static void raises_established_once(void **state)
{
	struct rig *r = rig_new();
	struct smx_frame f;

	(void)state;
	r->qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_RC });
	rig_bring_up(r, r->qp, RIG_ALL, false);
	f = rig_frame(r, SMX_FRAME_WRITE, 8);
	rig_deliver(r, f);
	f.psn++;
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN + 1);
	assert_int_equal(r->event_count, 1);
	assert_int_equal(r->events[0], IBV_EVENT_COMM_EST);
	rig_close(r);
}

static void reset_forgets_everything(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 2048);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	(void)state;
	f.length = 1024;
	f.last = false;
	rig_deliver(r, f);
	rig_modify(r, r->qp, &attr, IBV_QP_STATE);
	rig_deliver(r, f);
	rig_bring_up(r, r->qp, RIG_ALL, true);
	f = rig_frame(r, SMX_FRAME_WRITE, 8);
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN);
	assert_int_equal(rig_last(r)->f.msn, 1);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_in_order_and_goes_to_err),
		cmocka_unit_test(acknowledges_in_order),
		cmocka_unit_test(wraps_psn),
		cmocka_unit_test(says_once_what_is_missing),
		cmocka_unit_test(answers_duplicates_without_executing),
		cmocka_unit_test(executes_the_new_part_of_an_overlap),
		cmocka_unit_test(refuses_what_does_not_continue),
		cmocka_unit_test(refuses_another_path_mtu),
		cmocka_unit_test(uc_never_answers_and_drops_cut_messages),
		cmocka_unit_test(raises_established_once),
		cmocka_unit_test(reset_forgets_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
