/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: records arrive whole and in order through every wrap, a full lane says so and says when it is not,
 * and no word in the file makes either end leave it.
 * Method: both ends of one link in one process; records of seeded lengths; then the words spoilt one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/prng.h"
#include "net/net_shm.h"
#include "net/shm_record.h"

static char dir[] = "/tmp/lanes-XXXXXX";
static char why[256];
static int dir_fd;

static int make_dir(void **state)
{
	(void)state;
	memcpy(dir, "/tmp/lanes-XXXXXX", sizeof(dir));
	if (!mkdtemp(dir))
		return -1;
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY);
	return dir_fd < 0 ? -1 : 0;
}

static int remove_dir(void **state)
{
	(void)state;
	close(dir_fd);
	return rmdir(dir);
}

struct both { struct smx_link out, in; };

static struct both open_both(void)
{
	struct both b;

	assert_int_equal(smx_link_make(&b.out, dir_fd, 3, 1, 4, 2), 0);
	assert_int_equal(smx_link_open(&b.in, dir_fd, 3, 1, 4, 2, why, sizeof(why)), 0);
	return b;
}

static void close_both(struct both *b)
{
	smx_link_close(&b->out);
	smx_link_close(&b->in);
}

static bool put(struct smx_lane *lane, uint32_t size, uint32_t seed)
{
	uint32_t *rec = smx_lane_reserve(lane, size);

	if (!rec)
		return false;
	for (uint32_t i = 1; i < size / 4; i++)
		rec[i] = seed + i;	/* anything, also what looks like sizes */
	smx_lane_publish(lane, rec, size);
	return true;
}

static void take(struct smx_lane *lane, uint32_t want, uint32_t seed)
{
	int32_t size;
	const uint32_t *rec = smx_lane_peek(lane, &size);

	assert_non_null(rec);
	assert_int_equal(size, want);
	for (uint32_t i = 1; i < want / 4; i++)
		assert_int_equal(rec[i], seed + i);
	smx_lane_consume(lane, want);
}

static void records_arrive_in_order_through_every_wrap(void **state)
{
	struct both b = open_both();
	struct smx_lane *out = &b.out.lane[0], *in = &b.in.lane[0];
	struct smx_prng prng = { .state = 7 };
	uint32_t sizes[8192], put_count = 0, taken = 0;

	(void)state;
	while (taken < 20000) {
		uint32_t size = 64 * (1 + (uint32_t)smx_prng_below(&prng, smx_prng_below(&prng, 4) ? 4 : 500));
		int32_t seen;

		if (put_count - taken < 8000 && smx_prng_below(&prng, 3) && put(out, size, 64 * put_count)) {
			sizes[put_count++ % 8192] = size;
			continue;
		}
		if (put_count == taken) {
			assert_null(smx_lane_peek(in, &seen));
			assert_int_equal(seen, 0);
			continue;
		}
		take(in, sizes[taken % 8192], 64 * taken);
		taken++;
	}
	close_both(&b);
}

static void a_full_lane_asks_for_room_and_hears_of_it(void **state)
{
	struct both b = open_both();
	struct smx_lane *out = &b.out.lane[1], *in = &b.in.lane[1];
	uint32_t n = 0;

	(void)state;
	while (put(out, 1024, n))
		n++;
	assert_int_equal(n, SMX_LANE_BYTES / 1024 - 1);	/* and the 0 behind the last */
	assert_false(smx_lane_has_room(out, 64 * 16));
	assert_false(smx_lane_take_want(in));
	assert_true(smx_lane_want_room(out, 1024));
	for (uint32_t i = 0; i < SMX_LANE_WANT_BYTES / 1024; i++) {
		assert_false(smx_lane_take_want(in));
		take(in, 1024, i);
	}
	assert_true(smx_lane_take_want(in));
	assert_false(smx_lane_take_want(in));
	assert_true(smx_lane_has_room(out, 1024));
	assert_false(smx_lane_want_room(out, 1024));
	close_both(&b);
}

/* A payload that could not be read leaves its bytes behind: they are no records, in whatever round. */
static void what_was_abandoned_is_not_seen(void **state)
{
	struct both b = open_both();
	struct smx_lane *out = &b.out.lane[0], *in = &b.in.lane[0];
	int32_t size;

	(void)state;
	for (uint32_t i = 0; i < 5000; i++) {
		uint32_t bytes = 64 * (2 + i % 100), *rec = smx_lane_reserve(out, bytes);

		assert_non_null(rec);
		for (uint32_t j = 1; j < bytes / 4; j++)
			rec[j] = 64;
		smx_lane_abandon(out);
		assert_null(smx_lane_peek(in, &size));
		assert_true(put(out, 64, i));
		take(in, 64, i);
		assert_null(smx_lane_peek(in, &size));
		assert_int_equal(size, 0);
		smx_lane_release(in);
	}
	close_both(&b);
}

static void sizes_that_cannot_be_break_the_lane(void **state)
{
	static const uint32_t bad[] = {
		1, 63, 65, SMX_LANE_BYTES + 64, SMX_LANE_BYTES / 2 + 64, UINT32_MAX, 0x80000000u,
		1 << 30, (1 << 30) | 64, (1 << 30) | SMX_LANE_BYTES,
	};

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(bad); i++) {
		struct both b = open_both();
		int32_t size;

		*(uint32_t *)(void *)b.out.file->data[0] = bad[i];
		assert_null(smx_lane_peek(&b.in.lane[0], &size));
		assert_int_equal(size, -1);
		close_both(&b);
	}
}

static void a_head_that_was_not_reached_gives_no_room(void **state)
{
	static const uint64_t bad[] = { 1 << 20, UINT64_MAX, 1ull << 63, 2 * SMX_LANE_BYTES };

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(bad); i++) {
		struct both b = open_both();
		struct smx_lane *out = &b.out.lane[0];

		while (put(out, 4096, 0))
			;
		out->ctl->head = bad[i];
		assert_false(smx_lane_has_room(out, 4096));
		close_both(&b);
	}
}

static void a_link_that_is_not_what_its_name_says_is_refused(void **state)
{
	struct smx_link out, in;
	char path[64];

	(void)state;
	for (int i = 0; i < 6; i++) {
		assert_int_equal(smx_link_make(&out, dir_fd, 3, 1, 4, 2), 0);
		snprintf(path, sizeof(path), "%s/lane-3.1-4.2", dir);
		switch (i) {
		case 0: out.file->magic++; break;
		case 1: out.file->version++; break;
		case 2: out.file->from_gen++; break;
		case 3: out.file->to++; break;
		case 4: assert_int_equal(truncate(path, 4096), 0); break;
		case 5: unlink(path); assert_int_equal(mkfifo(path, 0600), 0); break;
		}
		assert_int_not_equal(smx_link_open(&in, dir_fd, 3, 1, 4, 2, why, sizeof(why)), 0);
		assert_non_null(strstr(why, "lane-3.1-4.2"));
		smx_link_close(&out);
	}
	assert_int_equal(smx_link_open(&in, dir_fd, 3, 1, 4, 2, why, sizeof(why)), ENOENT);
}

static struct smx_frame full_frame(void)
{
	return (struct smx_frame){
		.transport = SMX_TP_DC, .op = SMX_FRAME_WRITE, .first = true, .has_imm = true, .ack_request = true,
		.dc_connect = true, .src_qpn = 0x123456, .dst_qpn = 0xfedcba, .psn = 0xffffff, .psn_count = 3,
		.imm = 5, .va = 0x1122334455667788, .rkey = 9, .dma_length = 1 << 30, .syndrome = 0x62, .msn = 7,
		.check = 11, .dc_stream = 13, .xrc_srqn = 15, .qkey = 17, .dc_key = 19, .dc_nonce = 21,
		.mtu_bytes = 2048, .sgid = { 1, 2 }, .dgid = { 3, 4 }, .sgid_index = 5, .hop_limit = 6,
		.traffic_class = 7, .sl = 8, .flow_label = 0xfffff, .udp_sport = 0xc000, .text = "why",
	};
}

static void a_frame_survives_its_record(void **state)
{
	uint8_t bytes[512] __attribute__((aligned(64))) = { 0 };
	struct smx_frame f = full_frame();
	struct smx_arrived a;
	uint8_t *at;

	(void)state;
	f.length = 5;
	at = smx_rec_write((struct smx_rec *)(void *)bytes, &f, 0);
	assert_int_equal(at - bytes, smx_rec_head_bytes(&f));
	memcpy(at, "hello", 5);
	assert_true(smx_rec_read(bytes, 192, &a));
	assert_memory_equal(a.frame.flat, "hello", 5);
	assert_string_equal(a.frame.text, "why");
	assert_int_equal(a.frame.psn, f.psn);
	assert_int_equal(a.frame.psn_count, 3);
	assert_int_equal(a.frame.va, f.va);
	assert_int_equal(a.frame.dma_length, f.dma_length);
	assert_int_equal(a.frame.mtu_bytes, 2048);
	assert_int_equal(a.frame.dc_key, 19);
	assert_int_equal(a.frame.dc_nonce, 21);
	assert_int_equal(a.frame.dc_stream, 13);
	assert_memory_equal(a.frame.sgid, f.sgid, 16);
	assert_memory_equal(a.frame.dgid, f.dgid, 16);
	assert_true(a.frame.first && !a.frame.last && a.frame.has_imm && a.frame.dc_connect);
	assert_int_equal(a.frame.flow_label, 0xfffff);
	/* A record that is too short for what its head says. */
	assert_false(smx_rec_read(bytes, 128, &a));
}

static void each_flag_travels_as_itself(void **state)
{
	uint8_t bytes[192] __attribute__((aligned(64))) = { 0 };
	const struct smx_frame mark = { .carries_ack = true };

	(void)state;
	assert_int_equal(mark.flags, SMX_REC_CARRIES_ACK);
	for (uint32_t i = 0; i < 8; i++) {
		struct smx_frame f = { .transport = SMX_TP_DC, .op = SMX_FRAME_SEND, .mtu_bytes = 256 };
		struct smx_arrived a;
		bool frames_own = 1u << i != SMX_REC_CARRIES_ACK;

		f.flags = (uint8_t)(1u << i);
		smx_rec_write((struct smx_rec *)(void *)bytes, &f, 0);
		/* A message of DC takes no ACK along. */
		assert_int_equal(smx_rec_read(bytes, sizeof(bytes), &a), frames_own);
		if (frames_own)
			assert_int_equal(a.frame.flags, f.flags);
	}
}

/* Random bytes either give a frame whose parts lie in the record, or none. */
static void random_records_stay_in_their_bytes(void **state)
{
	struct smx_prng prng = { .state = 3 };
	uint64_t taken = 0;

	(void)state;
	for (int round = 0; round < 300000; round++) {
		uint32_t size = 64 * (1 + (uint32_t)smx_prng_below(&prng, 8));
		uint8_t *rec = malloc(size);	/* the sanitizer sees its end */
		struct smx_rec *r = (struct smx_rec *)(void *)rec;
		struct smx_arrived a;

		for (uint32_t i = 0; i < size; i++)
			rec[i] = (uint8_t)smx_prng_below(&prng, 256);
		if (round & 1) {
			r->transport %= 5;
			r->op %= 8;
			r->log_mtu = 12;
			r->length %= 512;
			r->src_runs = smx_rec_word(r->src_runs, r->src_runs >> 24 & 3);
			r->psn_text = smx_rec_word(r->psn_text, r->psn_text >> 24 & 63);
		}
		if (smx_rec_read(rec, size, &a)) {
			taken++;
			assert_true(!a.frame.flat || ((const uint8_t *)a.frame.flat >= rec + sizeof(*r) &&
				    (const uint8_t *)a.frame.flat + a.frame.length <= rec + size));
			assert_true(a.run_count <= SMX_HOST_RUNS);
			assert_true(!a.frame.text || strlen(a.frame.text) <= SMX_REC_TEXT_MAX);
		}
		free(rec);
	}
	assert_true(taken > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_arrive_in_order_through_every_wrap),
		cmocka_unit_test(a_full_lane_asks_for_room_and_hears_of_it),
		cmocka_unit_test(what_was_abandoned_is_not_seen),
		cmocka_unit_test(sizes_that_cannot_be_break_the_lane),
		cmocka_unit_test(a_head_that_was_not_reached_gives_no_room),
		cmocka_unit_test(a_link_that_is_not_what_its_name_says_is_refused),
		cmocka_unit_test(a_frame_survives_its_record),
		cmocka_unit_test(each_flag_travels_as_itself),
		cmocka_unit_test(random_records_stay_in_their_bytes),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
