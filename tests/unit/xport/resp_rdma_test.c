/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: WRITE, READ and atomics do to memory exactly what hardware does, packet by packet.
 * Method: one row for each place where a message may leave its key; memory is compared byte for byte. */
#include "unit/xport/resp_rig.h"

#include <sys/mman.h>

/* A 4 KiB message at the start of keys of several lengths. */
static const struct range_row {
	const char *name;
	uint64_t key_bytes, va_off, length;
	uint64_t written;
	uint32_t nak_packet;
	bool ok;
} ranges[] = {
	{ "all inside", 4096, 0, 4096, 4096, 0, true },
	{ "crosses after two packets", 2048, 0, 4096, 2048, 2, false },
	{ "crosses inside the third packet", 2049, 0, 4096, 2048, 2, false },
	{ "crosses inside the last packet", 4095, 0, 4096, 3072, 3, false },
	{ "one packet crosses", 512, 0, 1024, 0, 0, false },
	{ "one packet, one byte too long", 1023, 0, 1024, 0, 0, false },
	{ "begins at the end", 512, 512, 8, 0, 0, false },
	{ "begins before the key", 512, UINT64_MAX, 8, 0, 0, false },
	{ "last byte", 512, 511, 1, 1, 0, true },
};

static void writes_whole_packets_before_the_end(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		const struct range_row *row = &ranges[i];
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, row->length);

		print_message("%s\n", row->name);
		f.rkey = rig_key(r, r->pd, RIG_ALL, 1024, row->key_bytes);
		f.va = (uintptr_t)r->mem + 1024 + row->va_off;
		rig_deliver(r, f);
		assert_int_equal(r->answers, 1);
		if (row->ok)
			rig_expect_ack(r, RIG_PSN + (row->length - 1) / RIG_MTU);
		else
			rig_expect_nak(r, SMX_AETH_NAK_ACCESS, RIG_PSN + row->nak_packet,
				       SMX_CHECK_REMOTE_RANGE);
		rig_expect_written(r, 1024 + row->va_off, row->written);
		rig_close(r);
	}
}

/* An address near 2^64 must not wrap into the key. */
static void does_not_wrap_addresses(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 0x800);
	struct smx_mkey_attr attr = { .kind = SMX_MKEY_DIRECT, .pd = r->pd, .access = RIG_ALL, .start = 0,
				      .length = 4096, .host = r->mem };
	struct smx_mkey *mkey;

	(void)state;
	assert_int_equal(smx_cmd_create_mkey(r->dev, &attr, &mkey, &f.rkey), 0);
	f.va = 0xfffffffffffffc00ull;
	rig_deliver(r, f);
	rig_expect_nak(r, SMX_AETH_NAK_ACCESS, RIG_PSN, SMX_CHECK_REMOTE_RANGE);
	rig_expect_written(r, 0, 0);
	rig_close(r);
}

static const struct right_row {
	const char *name;
	enum smx_frame_op op;
	uint32_t access;
	bool other_pd;
	enum smx_check want;
} rights[] = {
	{ "write", SMX_FRAME_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, false,
	  SMX_CHECK_REMOTE_RIGHT },
	{ "read", SMX_FRAME_READ_REQUEST, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, false,
	  SMX_CHECK_REMOTE_RIGHT },
	{ "atomic", SMX_FRAME_ATOMIC_REQUEST, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, false,
	  SMX_CHECK_REMOTE_RIGHT },
	{ "write, other domain", SMX_FRAME_WRITE, RIG_ALL, true, SMX_CHECK_REMOTE_PD },
	{ "read, other domain", SMX_FRAME_READ_REQUEST, RIG_ALL, true, SMX_CHECK_REMOTE_PD },
};

static void refuses_keys_without_the_right(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++) {
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_frame f = rig_frame(r, rights[i].op, 8);

		print_message("%s\n", rights[i].name);
		f.rkey = rig_key(r, rights[i].other_pd ? r->other_pd : r->pd, rights[i].access, 0, 64);
		rig_deliver(r, f);
		rig_expect_nak(r, SMX_AETH_NAK_ACCESS, RIG_PSN, rights[i].want);
		rig_expect_written(r, 0, 0);
		rig_close(r);
	}
}

static void checks_no_key_for_length_0(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 0);

	(void)state;
	f.rkey = 0xbad00;
	f.va = 1;
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN);
	f = rig_frame(r, SMX_FRAME_READ_REQUEST, 0);
	f.psn = RIG_PSN + 1;
	f.rkey = 0xbad00;
	rig_deliver(r, f);
	assert_int_equal(rig_last(r)->f.op, SMX_FRAME_READ_RESPONSE);
	assert_int_equal(rig_last(r)->f.length, 0);
	assert_true(rig_last(r)->f.first && rig_last(r)->f.last);
	assert_int_equal(smx_qp_state(r->qp), IBV_QPS_RTS);
	rig_close(r);
}

/* A message may come in several frames, each of several packets. */
static void writes_messages_in_parts(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 5000);
	const uint8_t *payload = f.flat;

	(void)state;
	f.length = 2048;
	f.last = false;
	rig_deliver(r, f);
	f.first = false;
	f.psn += 2;
	f.va = 0;	/* only the first packet's header counts */
	f.rkey = 0;
	f.flat = payload + 2048;
	rig_deliver(r, f);
	f.psn += 2;
	f.flat = payload + 4096;
	f.length = 5000 - 4096;
	f.last = true;
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN + 4);
	assert_int_equal(rig_last(r)->f.msn, 1);
	rig_expect_written(r, 0, 5000);
	rig_close(r);
}

static void reads_in_frames_of_the_medium(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_READ_REQUEST, 10000);
	uint64_t off = 0;

	(void)state;
	for (int i = 0; i < RIG_MEM; i++)
		r->mem[i] = (uint8_t)(i * 7 + i / 256);
	rig_deliver(r, f);
	assert_int_equal(r->answers, 3);
	for (uint32_t i = 0; i < r->answers; i++) {
		const struct rig_answer *a = &r->answer[i];

		assert_int_equal(a->f.op, SMX_FRAME_READ_RESPONSE);
		assert_int_equal(a->f.psn, RIG_PSN + 4 * i);
		assert_int_equal(a->f.psn_count, i < 2 ? 4 : 2);
		assert_int_equal(a->f.first, i == 0);
		assert_int_equal(a->f.last, i == 2);
		assert_int_equal(a->f.length, i < 2 ? 4096 : 10000 - 8192);
		assert_memory_equal(a->bytes, r->mem + off, a->f.length);
		off += a->f.length;
	}
	/* The request took as many sequence numbers as its answer. */
	f = rig_frame(r, SMX_FRAME_WRITE, 0);
	f.psn = RIG_PSN + 10;
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN + 10);
	assert_int_equal(rig_last(r)->f.msn, 2);
	rig_close(r);
}

/* The medium carries 4 KiB a frame. */
static void reads_whole_packets_before_the_end(void **state)
{
	static const struct { uint64_t key_bytes, length, frames, read; } rows[] = {
		{ 2500, 4096, 1, 2048 },
		{ 7000, 10000, 2, 6144 },
		{ 8192, 10000, 2, 8192 },
		{ 1000, 10000, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_frame f = rig_frame(r, SMX_FRAME_READ_REQUEST, rows[i].length);
		uint64_t read = 0;

		f.rkey = rig_key(r, r->pd, RIG_ALL, 0, rows[i].key_bytes);
		rig_deliver(r, f);
		assert_int_equal(r->answers, rows[i].frames + 1);
		for (uint64_t k = 0; k < rows[i].frames; k++) {
			assert_int_equal(r->answer[k].f.op, SMX_FRAME_READ_RESPONSE);
			assert_false(r->answer[k].f.last);
			read += r->answer[k].f.length;
		}
		assert_int_equal(read, rows[i].read);
		rig_expect_nak(r, SMX_AETH_NAK_ACCESS, RIG_PSN + read / RIG_MTU, SMX_CHECK_REMOTE_RANGE);
		assert_int_equal(smx_qp_state(r->qp), IBV_QPS_ERR);
		rig_close(r);
	}
}

static void reads_again_from_the_middle(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_READ_REQUEST, 4096);

	(void)state;
	rig_deliver(r, f);
	memset(r->mem, 0x5a, RIG_MEM);
	f.psn += 2;
	f.va += 2048;
	f.dma_length = 2048;
	rig_deliver(r, f);
	assert_int_equal(r->answers, 2);
	assert_int_equal(rig_last(r)->f.op, SMX_FRAME_READ_RESPONSE);
	assert_int_equal(rig_last(r)->f.psn, RIG_PSN + 2);
	assert_int_equal(rig_last(r)->bytes[2047], 0x5a);
	/* Beyond what was asked, or not asked at all: silence. */
	f.dma_length = 4096;
	rig_deliver(r, f);
	f.psn = RIG_PSN - 10;
	rig_deliver(r, f);
	assert_int_equal(r->answers, 2);
	rig_close(r);
}

static void refuses_more_than_a_message_can_be(void **state)
{
	static const enum smx_frame_op ops[] = { SMX_FRAME_WRITE, SMX_FRAME_READ_REQUEST };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_frame f = rig_frame(r, ops[i], 1024);

		f.last = ops[i] == SMX_FRAME_READ_REQUEST;
		f.dma_length = (1ull << 31) + 1;
		rig_deliver(r, f);
		rig_expect_nak(r, SMX_AETH_NAK_INVALID, RIG_PSN, SMX_CHECK_REMOTE_LENGTH);
		rig_expect_written(r, 0, 0);
		rig_close(r);
	}
}

static uint64_t value_at(const struct rig *r, uint64_t off)
{
	uint64_t v;

	memcpy(&v, r->mem + off, sizeof(v));
	return v;
}

static void atomics_change_memory_once(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_ATOMIC_REQUEST, 0);

	(void)state;
	memcpy(r->mem, &(uint64_t){ 40 }, 8);
	f.atomic_op = SMX_ATOMIC_FA;
	f.atomic[0] = 2;
	rig_deliver(r, f);
	assert_int_equal(rig_last(r)->f.op, SMX_FRAME_ATOMIC_RESPONSE);
	assert_int_equal(rig_last(r)->f.atomic[0], 40);
	assert_int_equal(value_at(r, 0), 42);
	/* Asked again: the same answer, nothing done. */
	rig_deliver(r, f);
	assert_int_equal(r->answers, 2);
	assert_int_equal(rig_last(r)->f.atomic[0], 40);
	assert_int_equal(rig_last(r)->f.psn, RIG_PSN);
	assert_int_equal(value_at(r, 0), 42);

	f.psn++;
	f.atomic_op = SMX_ATOMIC_CS;
	f.atomic[0] = 7;
	f.atomic[1] = 41;
	rig_deliver(r, f);
	assert_int_equal(rig_last(r)->f.atomic[0], 42);
	assert_int_equal(value_at(r, 0), 42);
	f.psn++;
	f.atomic[1] = 42;
	rig_deliver(r, f);
	assert_int_equal(rig_last(r)->f.atomic[0], 42);
	assert_int_equal(value_at(r, 0), 7);

	f.psn++;
	f.atomic_op = 9;
	rig_deliver(r, f);
	rig_expect_nak(r, SMX_AETH_NAK_INVALID, RIG_PSN + 3, SMX_CHECK_REMOTE_OPCODE);
	rig_close(r);
}

/* The ring remembers as many answers as may be outstanding, and no more. */
static void forgets_old_answers(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_ATOMIC_REQUEST, 0);

	(void)state;
	f.atomic_op = SMX_ATOMIC_FA;
	f.atomic[0] = 1;
	for (uint32_t i = 0; i <= SMX_RESP_REPLAYS; i++, f.psn++)
		rig_deliver(r, f);
	r->answers = 0;
	f.psn = RIG_PSN;
	rig_deliver(r, f);
	assert_int_equal(r->answers, 0);
	f.psn = RIG_PSN + 1;
	rig_deliver(r, f);
	assert_int_equal(r->answers, 1);
	assert_int_equal(rig_last(r)->f.atomic[0], 1);
	rig_close(r);
}

/* Memory that went away under a valid key is the responder's failure, and no crash. */
static void reports_unmapped_memory(void **state)
{
	static const enum smx_frame_op ops[] = { SMX_FRAME_WRITE, SMX_FRAME_READ_REQUEST,
						 SMX_FRAME_ATOMIC_REQUEST };

	(void)state;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
		struct smx_frame f = rig_frame(r, ops[i], 8);
		void *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct smx_mkey_attr attr = { .kind = SMX_MKEY_DIRECT, .pd = r->pd, .access = RIG_ALL,
					      .start = (uintptr_t)gone, .length = 4096, .host = gone };
		struct smx_mkey *mkey;

		assert_int_equal(smx_cmd_create_mkey(r->dev, &attr, &mkey, &f.rkey), 0);
		f.va = (uintptr_t)gone;
		munmap(gone, 4096);
		rig_deliver(r, f);
		rig_expect_nak(r, SMX_AETH_NAK_OPERATION, RIG_PSN, SMX_CHECK_REMOTE_FAULT);
		assert_int_equal(smx_qp_state(r->qp), IBV_QPS_ERR);
		rig_close(r);
	}
}

/* The sender's own memory cannot be read: it hears so in the frame, and the responder is as before. */
static void blames_the_sender_for_his_memory(void **state)
{
	struct rig *r = rig_open(SMX_QP_RC, RIG_ALL);
	struct smx_frame f = rig_frame(r, SMX_FRAME_WRITE, 4096);
	struct smx_walk walk;

	(void)state;
	smx_walk_range(&walk, r->dev, r->pd, 1, SMX_DMA_GATHER, 0xdead00, 0, 4096);
	f.flat = NULL;
	f.walk = &walk;
	smx_xport_deliver(r->dev, &f);
	assert_int_equal(f.gather_check, SMX_CHECK_GATHER_KEY);
	assert_non_null(f.gather_text);
	assert_int_equal(r->answers, 0);
	assert_int_equal(smx_qp_state(r->qp), IBV_QPS_RTS);
	f = rig_frame(r, SMX_FRAME_WRITE, 8);
	rig_deliver(r, f);
	rig_expect_ack(r, RIG_PSN);
	rig_close(r);
}

/* An XRC target has no protection domain: whose memory it is, the frame's receive queue says; also when the answer
 * was lost. One that names no queue is given nothing. */
static void reads_again_for_an_xrc_target(void **state)
{
	struct rig *r = rig_new();
	struct smx_xrcd *xrcd;
	struct smx_frame f;

	(void)state;
	assert_int_equal(smx_cmd_alloc_xrcd(r->dev, &xrcd), 0);
	rig_add_srq(r, xrcd);
	r->qp = rig_add_qp(r, &(struct smx_qp_attr){ .type = SMX_QP_XRC_TGT, .xrcd = xrcd });
	rig_bring_up(r, r->qp, RIG_ALL, true);
	f = rig_frame(r, SMX_FRAME_READ_REQUEST, 4096);
	f.xrc_srqn = r->srq->srqn;
	rig_deliver(r, f);
	assert_int_equal(rig_last(r)->f.op, SMX_FRAME_READ_RESPONSE);
	r->answers = 0;
	rig_deliver(r, f);
	assert_int_equal(rig_last(r)->f.op, SMX_FRAME_READ_RESPONSE);
	r->answers = 0;
	f.xrc_srqn ^= 0x5555;
	rig_deliver(r, f);
	assert_int_equal(r->answers, 0);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_whole_packets_before_the_end),
		cmocka_unit_test(does_not_wrap_addresses),
		cmocka_unit_test(refuses_keys_without_the_right),
		cmocka_unit_test(checks_no_key_for_length_0),
		cmocka_unit_test(writes_messages_in_parts),
		cmocka_unit_test(reads_in_frames_of_the_medium),
		cmocka_unit_test(reads_whole_packets_before_the_end),
		cmocka_unit_test(reads_again_from_the_middle),
		cmocka_unit_test(refuses_more_than_a_message_can_be),
		cmocka_unit_test(atomics_change_memory_once),
		cmocka_unit_test(reads_again_for_an_xrc_target),
		cmocka_unit_test(forgets_old_answers),
		cmocka_unit_test(reports_unmapped_memory),
		cmocka_unit_test(blames_the_sender_for_his_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
