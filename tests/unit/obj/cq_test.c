/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: a completion queue does what a driver of the real device relies on: ownership by round,
 * overflow, events once for each arm and never lost, error entries, inline data, moving to another
 * ring. Method: a small consumer in the test reads the ring as drivers do. */
#include "obj_world.h"

#include <errno.h>

#include "base/bits.h"
#include "obj/cq.h"

struct ring {
	struct world *w;
	struct smx_cq *cq;
	uint8_t *buf;
	uint32_t count, bytes, ci;
	_Alignas(64) uint32_t dbrec[2];
};

static uint8_t *ring_buf(uint32_t count, uint32_t bytes)
{
	uint8_t *buf = aligned_alloc(4096, align_up((uint64_t)count * bytes, 4096));

	assert_non_null(buf);
	memset(buf, 0, (size_t)count * bytes);
	for (uint32_t i = 0; i < count; i++)
		buf[(i + 1) * bytes - 1] = SMX_CQE_INVALID << 4 | SMX_CQE_OWNER;
	return buf;
}

static struct ring *ring_new(uint32_t count, uint32_t bytes, bool ignore_overrun)
{
	struct ring *r = aligned_alloc(64, sizeof(*r));

	assert_non_null(r);
	memset(r, 0, sizeof(*r));
	r->w = world_new();
	r->w->now_ns = 1000;
	r->count = count;
	r->bytes = bytes;
	r->buf = ring_buf(count, bytes);
	assert_int_equal(smx_cq_create(&r->w->dev, &(struct smx_cq_attr){
		.buf = r->buf, .cqe_count = count, .cqe_bytes = bytes, .dbrec = r->dbrec,
		.ignore_overrun = ignore_overrun, .cookie = r }, &r->cq), 0);
	return r;
}

static void ring_free(struct ring *r)
{
	assert_int_equal(smx_cq_destroy(&r->w->dev, r->cq), 0);
	world_free(r->w);
	free(r->buf);
	free(r);
}

static bool put(struct ring *r, uint32_t number, uint8_t op_own)
{
	struct smx_cqe64 cqe = { .byte_cnt = to_be32(number), .op_own = op_own };

	return smx_cq_put(&r->w->dev, r->cq, &cqe, NULL);
}

/* The next CQE, or NULL. The index is published only when publish is set. */
static struct smx_cqe64 *take(struct ring *r, bool publish)
{
	uint8_t *end = r->buf + ((r->ci & (r->count - 1)) + 1) * r->bytes;
	struct smx_cqe64 *cqe = (struct smx_cqe64 *)(void *)(end - 64);

	if (cqe->op_own >> 4 == SMX_CQE_INVALID || (cqe->op_own & 1) != !!(r->ci & r->count))
		return NULL;
	r->ci++;
	if (publish)
		be32_store_release(&r->dbrec[SMX_CQ_DBREC_CI], r->ci & 0xffffff);
	return cqe;
}

static void arm(struct ring *r, uint32_t sn, bool solicited_only)
{
	smx_cq_arm(&r->w->dev, r->cq,
		   sn % 4 << 28 | (solicited_only ? SMX_CQ_ARM_SOLICITED : 0) | (r->ci & 0xffffff));
}

static void ownership_over_many_rounds(void **state)
{
	(void)state;
	for (uint32_t bytes = 64; bytes <= 128; bytes += 64) {
		struct ring *r = ring_new(8, bytes, false);
		uint32_t next = 0, expect = 0;

		assert_null(take(r, true));
		/* Up to full and down again, in steps that do not divide the ring, past 2^24 for
		 * the index. */
		for (uint32_t round = 0; round < 1000; round++) {
			uint32_t n = round % 9;

			for (uint32_t i = 0; i < n; i++)
				assert_true(put(r, next++, SMX_CQE_REQ << 4));
			for (uint32_t i = 0; i < n; i++) {
				struct smx_cqe64 *cqe = take(r, true);

				assert_non_null(cqe);
				assert_int_equal(from_be32(cqe->byte_cnt), expect++);
				assert_int_equal(from_be64(cqe->timestamp), 1000);
				assert_int_equal(cqe->signature, 0);
			}
			assert_null(take(r, true));
			if (round == 500) {	/* as if 2^32 - 6 CQEs had gone by */
				memset(r->buf, 0xf1, 8 * bytes);
				r->ci = r->cq->pi = UINT32_MAX - 7;
				r->cq->room = 0;
				be32_store_release(r->dbrec, r->ci & 0xffffff);
				for (uint32_t i = 0; i < 8; i++)	/* the round before */
					r->buf[(i + 1) * bytes - 1] = 0;
			}
		}
		assert_int_equal(r->w->async_events, 0);
		ring_free(r);
	}
}

static void overflow_is_an_error_once(void **state)
{
	struct ring *r = ring_new(4, 64, false);
	(void)state;

	for (uint32_t i = 0; i < 4; i++)
		assert_true(put(r, i, 0));
	take(r, false);	/* read, but the device is not told */
	arm(r, 0, false);
	assert_int_equal(r->w->cq_events, 1);
	assert_false(put(r, 4, 0));
	assert_int_equal(r->w->async_events, 1);
	assert_int_equal(r->w->async_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(r->w->async_cookie, r);
	world_refused(r->w, SMX_CHECK_CQ_OVERRUN,
		      "has 4 entries, consumer index 0, 4 completions written");
	be32_store_release(r->dbrec, 4);	/* too late */
	assert_false(put(r, 5, 0));
	assert_int_equal(r->w->async_events, 1);
	assert_int_equal(r->w->cq_events, 1);
	r->ci = 0;
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(from_be32(take(r, false)->byte_cnt), i);
	ring_free(r);
}

static void consumer_index_in_time_avoids_overflow(void **state)
{
	struct ring *r = ring_new(4, 64, false);
	(void)state;

	for (uint32_t i = 0; i < 4; i++)
		assert_true(put(r, i, 0));
	take(r, true);
	assert_true(put(r, 4, 0));
	assert_false(put(r, 5, 0));
	/* An index that cannot be true is not room. */
	ring_free(r);
	r = ring_new(4, 64, false);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(put(r, i, 0));
	be32_store_release(r->dbrec, 100);
	assert_false(put(r, 4, 0));
	ring_free(r);
}

static void the_room_of_a_ring_is_not_that_of_the_next(void **state)
{
	struct ring *r = ring_new(8, 64, false);
	uint8_t *small = ring_buf(4, 64);
	(void)state;

	assert_true(put(r, 0, 0));	/* there is room for 7 more */
	assert_int_equal(smx_cq_resize(&r->w->dev, r->cq, small, 4), 0);
	for (uint32_t i = 1; i < 4; i++)
		assert_true(put(r, i, 0));
	assert_false(put(r, 4, 0));
	/* One that lost a completion is not moved, and writes no more. */
	be32_store_release(r->dbrec, 4);
	assert_int_equal(smx_cq_resize(&r->w->dev, r->cq, r->buf, 8), EINVAL);
	assert_false(put(r, 5, 0));
	free(small);
	ring_free(r);
}

static void ignore_overrun_never_looks_at_the_index(void **state)
{
	struct ring *r = ring_new(4, 64, true);
	(void)state;

	for (uint32_t i = 0; i < 1000; i++) {
		assert_true(put(r, i, 0));
		assert_int_equal(from_be32(take(r, false)->byte_cnt), i);
	}
	assert_int_equal(r->w->async_events, 0);
	ring_free(r);
}

/* A script: P put, S put solicited, E put an error, T take, any 0..3 arm with that number, s the
 * same for solicited only with the last number + 1; events = how many there must be in all after
 * it. */
static void events(void **state)
{
	static const struct row { const char *name, *script; unsigned int events; } rows[] = {
		{ "not armed", "PSE", 0 },
		{ "armed, one completion", "0P", 1 },
		{ "armed once, two completions", "0PP", 1 },
		{ "armed after it came", "P0", 1 },
		{ "armed after it was taken", "PT0", 0 },
		{ "armed, then taken, then the next", "PT0P", 1 },
		{ "arm before poll: no second event for the one that raised the first", "0P1T", 1 },
		{ "and the next does", "0P1TP", 2 },
		{ "one came between event and arm", "0PP1", 2 },
		{ "an event raised at once is for the oldest unread one", "P01", 1 },
		{ "so the younger one has its own", "PP01", 2 },
		{ "an old arm repeated does nothing", "0P0TP", 1 },
		{ "a program that takes one for each event gets all", "PPP0T1T2T3", 3 },
		{ "four events, numbers round", "0PT1PT2PT3PT0PT", 5 },
		{ "solicited only: plain ones do not count", "sP", 0 },
		{ "solicited only: solicited", "sPS", 1 },
		{ "solicited only: error", "sPE", 1 },
		{ "solicited only, came before", "Ss", 1 },
		{ "solicited only, plain came before", "Ps", 0 },
		{ "solicited only, taken before", "STPs", 0 },
		{ "solicited before plain, both unread", "SPs", 1 },
		{ "any, then solicited only: any stands", "0sP", 1 },
		{ "solicited only, then any", "s1P", 1 },
	};
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(rows); i++) {
		struct ring *r = ring_new(16, 64, false);
		uint32_t last_sn = 3;

		for (const char *c = rows[i].script; *c; c++) {
			switch (*c) {
			case 'P': put(r, 0, 0); break;
			case 'S': put(r, 0, SMX_CQE_RESP_SEND << 4 | SMX_CQE_SOLICITED); break;
			case 'E': put(r, 0, SMX_CQE_RESP_ERR << 4); break;
			case 'T': assert_non_null(take(r, true)); break;
			case 's': arm(r, ++last_sn, true); break;
			default: arm(r, last_sn = (uint32_t)(*c - '0'), false);
			}
		}
		if (r->w->cq_events != rows[i].events)
			fail_msg("%s: %u events, not %u", rows[i].name, r->w->cq_events,
				 rows[i].events);
		if (rows[i].events)
			assert_ptr_equal(r->w->cq_cookie, r);
		ring_free(r);
	}
}

static void error_entries(void **state)
{
	struct ring *r = ring_new(8, 64, false);
	struct smx_where send = { .qpn = 0xabcdef,
				  .wqe_index = 0xfffe,
				  .opcode = SMX_OP_RDMA_WRITE };
	struct smx_where recv = { .qpn = 0x11, .wqe_index = 3, .is_recv = 1 };
	const struct smx_err_cqe *e;
	(void)state;

	assert_true(smx_cq_put_error(&r->w->dev, r->cq, SMX_CHECK_REMOTE_RANGE, &send, 0x77));
	e = (void *)take(r, true);
	assert_int_equal(e->op_own >> 4, SMX_CQE_REQ_ERR);
	assert_int_equal(e->syndrome, 0x13);
	assert_int_equal(e->vendor_err_synd, 0x88);
	assert_int_equal(e->hw_err_synd, 0);
	assert_int_equal(from_be32(e->s_wqe_opcode_qpn), 0x08abcdef);
	assert_int_equal(from_be16(e->wqe_counter), 0xfffe);
	assert_int_equal(from_be32(e->srqn), 0x77);
	assert_true(smx_cq_put_error(&r->w->dev, r->cq, SMX_CHECK_RECV_KEY, &recv, 0));
	e = (void *)take(r, true);
	assert_int_equal(e->op_own >> 4, SMX_CQE_RESP_ERR);
	assert_int_equal(e->syndrome, 0x04);
	assert_int_equal(e->vendor_err_synd, 0x32);
	assert_int_equal(e->hw_err_synd, 0x92);
	assert_int_equal(from_be32(e->s_wqe_opcode_qpn), 0x11);
	assert_true(smx_cq_put_flush(&r->w->dev, r->cq, SMX_CHECK_FLUSH_BEHIND,
				     SMX_CHECK_GATHER_RANGE, &send, 0));
	e = (void *)take(r, true);
	assert_int_equal(e->syndrome, 0x05);
	assert_int_equal(e->vendor_err_synd, 0xf9);
	assert_int_equal(e->hw_err_synd, 0x9d);
	assert_int_equal(r->w->clock_reads, 0);
	ring_free(r);
}

static void inline_data_lies_where_drivers_look(void **state)
{
	uint8_t data[64];
	struct smx_cqe64 cqe = { .op_own = SMX_CQE_RESP_SEND << 4 | SMX_CQE_INLINE_32,
				 .srqn_uidx = to_be32(5) },
			 *got;
	struct ring *r = ring_new(4, 64, false);
	(void)state;

	for (int i = 0; i < 64; i++)
		data[i] = (uint8_t)(i + 1);
	assert_true(smx_cq_put(&r->w->dev, r->cq, &cqe, data));
	got = take(r, true);
	assert_memory_equal(got, data, 32);
	assert_int_equal(from_be32(got->srqn_uidx), 5);
	assert_int_equal(got->op_own, SMX_CQE_RESP_SEND << 4 | SMX_CQE_INLINE_32);
	ring_free(r);

	r = ring_new(4, 128, false);
	put(r, 0, 0);
	take(r, true);
	cqe.op_own = SMX_CQE_RESP_SEND << 4 | SMX_CQE_INLINE_64;
	assert_true(smx_cq_put(&r->w->dev, r->cq, &cqe, data));
	got = take(r, true);
	assert_memory_equal(got - 1, data, 64);
	for (int i = 0; i < 32; i++)
		assert_int_equal(((uint8_t *)got)[i], 0);
	ring_free(r);
}

static void one_clock_reading_a_turn(void **state)
{
	struct ring *r = ring_new(8, 64, false);
	(void)state;

	put(r, 0, 0);
	put(r, 0, 0);
	assert_int_equal(r->w->clock_reads, 1);
	r->w->dev.now_known = false;
	r->w->now_ns = 2000;
	put(r, 0, 0);
	assert_int_equal(r->w->clock_reads, 2);
	take(r, true);
	take(r, true);
	assert_int_equal(from_be64(take(r, true)->timestamp), 2000);
	ring_free(r);
}

static void resize_moves_what_was_not_consumed(void **state)
{
	static const uint32_t sizes[] = { 2, 4, 8, 16, 64 };
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(sizes) * 20 * 2; i++) {
		uint32_t bytes = i % 2 ? 64 : 128, to = sizes[i / 2 % SMX_COUNT(sizes)],
			 taken = i / 10, left = i % 9;
		struct ring *r = ring_new(8, bytes, false);
		uint8_t *buf = ring_buf(to, bytes);
		uint32_t next = 0;
		int err;

		for (; next < taken; next++) {
			put(r, next, 0);
			assert_non_null(take(r, true));
		}
		for (uint32_t k = 0; k < left; k++, next++)
			put(r, next, 0);
		err = smx_cq_resize(&r->w->dev, r->cq, buf, to);
		assert_int_equal(err, left > to ? EINVAL : 0);
		if (err) {
			world_refused(r->w, SMX_CHECK_CQ_ATTR, "the new ring");
			free(buf);
		} else {
			free(r->buf);
			r->buf = buf;
			r->count = to;
			for (uint32_t k = 0; k < to - left; k++, next++)
				assert_true(put(r, next, 0));
		}
		for (uint32_t expect = taken; expect < next; expect++)
			assert_int_equal(from_be32(take(r, true)->byte_cnt), expect);
		assert_null(take(r, true));
		ring_free(r);
	}
}

/* Without a consumer index, what the old ring can still hold is moved. */
static void resize_without_a_consumer_index(void **state)
{
	(void)state;
	for (uint32_t written = 0; written <= 40; written++) {
		struct ring *r = ring_new(8, 64, true);
		uint8_t *buf = ring_buf(16, 64);

		for (uint32_t i = 0; i < written; i++)
			put(r, i, 0);
		assert_int_equal(smx_cq_resize(&r->w->dev, r->cq, buf, 16), 0);
		free(r->buf);
		r->buf = buf;
		r->count = 16;
		r->ci = written < 8 ? 0 : written - 8;
		for (uint32_t i = r->ci; i < written; i++)
			assert_int_equal(from_be32(take(r, false)->byte_cnt), i);
		ring_free(r);
	}
}

static void creation_and_destruction_are_checked(void **state)
{
	struct world *w = world_new();
	_Alignas(64) static uint8_t buf[1024];
	static uint32_t dbrec[3];
	const struct smx_cq_attr good = {
		.buf = buf, .cqe_count = 4, .cqe_bytes = 64, .dbrec = dbrec
	};
	struct smx_cq_attr bad[7];
	struct smx_cq *cq = NULL;
	(void)state;

	for (unsigned int i = 0; i < SMX_COUNT(bad); i++)
		bad[i] = good;
	bad[0].buf = NULL;
	bad[1].buf = buf + 8;
	bad[2].cqe_count = 3;
	bad[3].cqe_count = 1 << 23;
	bad[4].cqe_bytes = 100;
	bad[5].dbrec = NULL;
	bad[6].dbrec = (uint8_t *)dbrec + 2;
	for (unsigned int i = 0; i < SMX_COUNT(bad); i++) {
		assert_int_equal(smx_cq_create(&w->dev, &bad[i], &cq), EINVAL);
		world_refused(w, SMX_CHECK_CQ_ATTR, NULL);
		assert_null(cq);
	}
	assert_int_equal(smx_cq_create(&w->dev, &good, &cq), 0);
	assert_ptr_equal(smx_idmap_get(&w->dev.cqs, cq->cqn), cq);
	cq->users = 1;
	assert_int_equal(smx_cq_destroy(&w->dev, cq), EBUSY);
	cq->users = 0;
	assert_int_equal(smx_cq_destroy(&w->dev, cq), 0);
	assert_int_equal(w->dev.cqs.used, 0);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ownership_over_many_rounds),
		cmocka_unit_test(overflow_is_an_error_once),
		cmocka_unit_test(consumer_index_in_time_avoids_overflow),
		cmocka_unit_test(the_room_of_a_ring_is_not_that_of_the_next),
		cmocka_unit_test(ignore_overrun_never_looks_at_the_index),
		cmocka_unit_test(events),
		cmocka_unit_test(error_entries),
		cmocka_unit_test(inline_data_lies_where_drivers_look),
		cmocka_unit_test(one_clock_reading_a_turn),
		cmocka_unit_test(resize_without_a_consumer_index),
		cmocka_unit_test(resize_moves_what_was_not_consumed),
		cmocka_unit_test(creation_and_destruction_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
