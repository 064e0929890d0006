/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: of a run of ACKs the last arrives and no other; none is lost to another queue pair's, or to a lane without
 * room; one that leaves with a request arrives with it, and with no other.
 * Method: both ends of one link in one process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "net/shm_ack.h"

static char dir[] = "/tmp/acks-XXXXXX";
static int dir_fd;
static struct smx_link out, in;
static struct smx_lane *answers, *arriving;

static int open_link(void **state)
{
	char why[256];

	(void)state;
	memcpy(dir, "/tmp/acks-XXXXXX", sizeof(dir));
	if (!mkdtemp(dir))
		return -1;
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY);
	if (smx_link_make(&out, dir_fd, 3, 1, 4, 2) || smx_link_open(&in, dir_fd, 3, 1, 4, 2, why, sizeof(why)))
		return -1;
	answers = &out.lane[SMX_LANE_ANSWERS];
	arriving = &in.lane[SMX_LANE_ANSWERS];
	return 0;
}

static int close_link(void **state)
{
	(void)state;
	smx_link_close(&out);
	smx_link_close(&in);
	close(dir_fd);
	return rmdir(dir);
}

static struct smx_frame ack_frame(uint32_t src, uint32_t dst, uint32_t psn)
{
	return (struct smx_frame){
		.transport = SMX_TP_RC, .op = SMX_FRAME_ACK, .first = true, .last = true, .src_qpn = src,
		.dst_qpn = dst, .psn = psn, .psn_count = 1, .msn = psn + 1000, .syndrome = SMX_AETH_ACK | 0x1f,
		.mtu_bytes = 4096,
	};
}

static void put(struct smx_shm_ack *a, uint32_t src, uint32_t dst, uint32_t psn)
{
	struct smx_frame f = ack_frame(src, dst, psn);

	assert_true(smx_shm_is_ack(&f));
	assert_true(smx_shm_ack_put(a, answers, &f));
}

static void expect(uint32_t dst, uint32_t psn)
{
	struct smx_arrived a;
	int32_t size;
	const void *rec = smx_lane_peek(arriving, &size);

	assert_non_null(rec);
	assert_true(smx_rec_read(rec, (uint32_t)size, &a));
	assert_int_equal(a.frame.op, SMX_FRAME_ACK);
	assert_int_equal(a.frame.dst_qpn, dst);
	assert_int_equal(a.frame.psn, psn);
	assert_int_equal(a.frame.msn, psn + 1000);
	assert_false(a.carries_ack);
	smx_lane_consume(arriving, (uint32_t)size);
	smx_lane_release(arriving);
}

static void the_last_of_a_run_arrives(void **state)
{
	struct smx_shm_ack a = { 0 };

	(void)state;
	for (uint32_t psn = 7; psn < 10; psn++) {
		put(&a, 1, 2, psn);
		assert_false(smx_lane_has_news(arriving));
	}
	smx_shm_ack_publish(&a, answers);
	smx_shm_ack_publish(&a, answers);
	expect(2, 9);
	assert_false(smx_lane_has_news(arriving));
}

static void one_for_another_does_not_take_its_place(void **state)
{
	struct smx_shm_ack a = { 0 };
	struct smx_frame f;

	(void)state;
	put(&a, 1, 2, 10);
	put(&a, 1, 3, 20);
	put(&a, 4, 3, 30);
	f = ack_frame(4, 3, 40);
	f.dc_stream = 1;
	assert_true(smx_shm_ack_put(&a, answers, &f));
	smx_shm_ack_publish(&a, answers);
	expect(2, 10);
	expect(3, 20);
	expect(3, 30);
	expect(3, 40);
}

static void what_is_more_than_an_ack_is_none(void **state)
{
	struct smx_frame f = ack_frame(1, 2, 3);

	(void)state;
	f.syndrome = SMX_AETH_RNR;
	assert_false(smx_shm_is_ack(&f));
	f.syndrome = SMX_AETH_NAK_SEQUENCE;
	assert_false(smx_shm_is_ack(&f));
	f = ack_frame(1, 2, 3);
	f.op = SMX_FRAME_READ_RESPONSE;
	assert_false(smx_shm_is_ack(&f));
}

/* Sends f the other way with what waits in a. RETURN whether it took an ACK along; *psn is that's. */
static bool send(struct smx_shm_ack *a, const struct smx_frame *f, uint32_t *psn)
{
	struct smx_lane *requests = &out.lane[SMX_LANE_REQUESTS], *coming = &in.lane[SMX_LANE_REQUESTS];
	uint32_t bytes = smx_rec_lane_bytes(smx_rec_head_bytes(f));
	struct smx_rec *rec = smx_lane_reserve(requests, bytes);
	struct smx_arrived got;
	int32_t size;

	smx_rec_write(rec, f, 0);
	smx_shm_ack_carry(a, rec, f);
	smx_lane_publish(requests, rec, bytes);
	assert_true(smx_rec_read(smx_lane_peek(coming, &size), bytes, &got));
	smx_lane_consume(coming, bytes);
	assert_int_equal(got.frame.psn, f->psn);
	assert_int_equal(got.frame.check, 0);
	*psn = got.ack_psn;
	return got.carries_ack;
}

static void a_request_takes_it_along(void **state)
{
	struct smx_shm_ack a = { 0 };
	struct smx_frame f = ack_frame(1, 2, 77);
	uint32_t psn;

	(void)state;
	f.op = SMX_FRAME_SEND;
	f.syndrome = 0;
	assert_false(send(&a, &f, &psn));
	put(&a, 1, 2, 0xabcdef);
	f.dst_qpn = 3;
	assert_false(send(&a, &f, &psn));
	f.dst_qpn = 2;
	f.op = SMX_FRAME_READ_REQUEST;
	assert_false(send(&a, &f, &psn));
	f.op = SMX_FRAME_SEND;
	f.transport = SMX_TP_UC;
	assert_false(send(&a, &f, &psn));
	f.transport = SMX_TP_RC;
	assert_true(send(&a, &f, &psn));
	assert_int_equal(psn, 0xabcdef);
	assert_false(send(&a, &f, &psn));
	smx_shm_ack_publish(&a, answers);
	assert_false(smx_lane_has_news(arriving));
	/* Its place is as good as new. */
	put(&a, 5, 6, 11);
	smx_shm_ack_publish(&a, answers);
	expect(6, 11);
}

static void a_record_that_cannot_carry_one_is_refused(void **state)
{
	uint8_t bytes[64] __attribute__((aligned(64))) = { 0 };
	struct smx_frame f = ack_frame(1, 2, 3);
	struct smx_arrived a;

	(void)state;
	smx_rec_write((struct smx_rec *)(void *)bytes, &f, 0);
	assert_true(smx_rec_read(bytes, sizeof(bytes), &a));
	((struct smx_rec *)(void *)bytes)->flags |= SMX_REC_CARRIES_ACK;
	assert_false(smx_rec_read(bytes, sizeof(bytes), &a));
}

static void a_lane_without_room_says_so(void **state)
{
	struct smx_shm_ack a = { 0 };
	struct smx_frame f = ack_frame(1, 2, 3);
	void *rec;

	(void)state;
	while ((rec = smx_lane_reserve(answers, 1024)))
		smx_lane_publish(answers, rec, 1024);
	while ((rec = smx_lane_reserve(answers, 64)))
		smx_lane_publish(answers, rec, 64);
	assert_false(smx_shm_ack_put(&a, answers, &f));
	assert_false(a.waits);
	smx_shm_ack_publish(&a, answers);
}

static void room_that_is_taken_back_costs_the_ack_alone(void **state)
{
	struct smx_shm_ack a = { 0 };
	void *rec;

	(void)state;
	smx_lane_consume(arriving, (uint32_t)(answers->pos - arriving->pos));
	smx_lane_release(arriving);
	put(&a, 1, 2, 10);
	/* A consumer that does not keep to the rules, just when somebody looks. */
	__atomic_store_n(&answers->ctl->head, answers->pos - SMX_LANE_BYTES, __ATOMIC_RELAXED);
	while (smx_lane_has_room(answers, 1024)) {
		rec = smx_lane_reserve(answers, 1024);
		smx_lane_publish(answers, rec, 1024);
	}
	smx_shm_ack_publish(&a, answers);
	assert_false(a.waits);
}

static void what_changed_is_in_the_next_one(void **state)
{
	struct smx_shm_ack a = { 0 };
	struct smx_frame f = ack_frame(1, 2, 10);
	struct smx_arrived got;
	int32_t size;

	(void)state;
	put(&a, 1, 2, 10);
	smx_shm_ack_publish(&a, answers);
	put(&a, 1, 2, 11);
	put(&a, 1, 2, 12);
	smx_shm_ack_publish(&a, answers);
	expect(2, 10);
	expect(2, 12);
	f.transport = SMX_TP_DC;
	for (uint8_t i = 1; i < 4; i++) {
		f.dgid[0] = i;
		f.mtu_bytes = 512u << i;
		f.dc_nonce = i;
		assert_true(smx_shm_ack_put(&a, answers, &f));
		smx_shm_ack_publish(&a, answers);
		assert_true(smx_rec_read(smx_lane_peek(arriving, &size), 128, &got));
		assert_int_equal(size, 128);
		assert_int_equal(got.frame.dgid[0], i);
		assert_int_equal(got.frame.mtu_bytes, f.mtu_bytes);
		assert_int_equal(got.frame.dc_nonce, i);
		smx_lane_consume(arriving, 128);
	}
	smx_lane_release(arriving);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_of_a_run_arrives),
		cmocka_unit_test(one_for_another_does_not_take_its_place),
		cmocka_unit_test(what_is_more_than_an_ack_is_none),
		cmocka_unit_test(a_request_takes_it_along),
		cmocka_unit_test(a_record_that_cannot_carry_one_is_refused),
		cmocka_unit_test(what_changed_is_in_the_next_one),
		cmocka_unit_test(a_lane_without_room_says_so),
		cmocka_unit_test(room_that_is_taken_back_costs_the_ack_alone),
	};

	return cmocka_run_group_tests(tests, open_link, close_link);
}
