/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: whoever waits for room in a lane is told of it, whatever others send meanwhile; a payload travels in the lane
 * or is read where it lies, as its length, its memory and its transport say.
 * Method: two ports of one registry in one process; one fills its lane, the other empties it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "net/net_host.h"

enum { LONG = 12000 };

struct end {
	struct smx_port *port;
	uint32_t qpn, got, rooms;
	bool stayed;	/* the payload that came last */
	uint32_t came, lost;	/* numbers of those that stayed: a bit each */
	uint8_t last[16 << 10];
};

static struct end a, b;
static char dir[32];

/* What the walk of a frame is here. */
struct memory {
	const uint8_t *bytes;
	bool shared;
	uint32_t runs;
};

static void deliver(void *arg, struct smx_frame *f)
{
	struct end *e = arg;
	uint32_t number = (f->op == SMX_FRAME_READ_RESPONSE ? f->msn : f->imm) & 31;
	uint64_t done;

	e->got++;
	e->stayed = f->pull;
	assert_true(f->length <= sizeof(e->last));
	if (f->pull && f->pull->fetch(f->pull, e->last, f->length, &done) == SMX_PULLED) {
		e->came |= 1u << number;
	} else if (f->pull) {
		assert_true(f->pull->gone);
		e->lost |= 1u << number;
	} else if (f->length)
		memcpy(e->last, f->flat, f->length);
}

static bool flatten(void *walk, void *to, uint64_t n, uint16_t *check, const char **text)
{
	(void)check;
	(void)text;
	memcpy(to, ((const struct memory *)walk)->bytes, n);
	return true;
}

static bool find_runs(void *walk, uint64_t n, struct smx_host_run *runs, uint32_t *count)
{
	const struct memory *m = walk;

	*count = m->runs;
	for (uint32_t i = 0; i < m->runs; i++)
		runs[i] = (struct smx_host_run){ m->bytes + i * (n / m->runs), n / m->runs, m->shared };
	return true;
}

static void room(void *arg)
{
	struct end *e = arg;

	e->rooms++;
}

static void make_end(struct end *e, bool by_value)
{
	const struct smx_net_host_attr attr = {
		.dir = dir, .by_value = by_value, .flatten = flatten, .runs = find_runs,
	};

	memset(e, 0, sizeof(*e));
	e->port = smx_net_host_create(&attr);
	assert_non_null(e->port);
	e->port->deliver = deliver;
	e->port->room = room;
	e->port->deliver_arg = e;
	assert_true(e->port->ops->numbers(e->port, &e->qpn));
}

static int make_two(bool by_value)
{
	memcpy(dir, "/tmp/net-host-XXXXXX", sizeof("/tmp/net-host-XXXXXX"));
	if (!mkdtemp(dir))
		return -1;
	make_end(&a, by_value);
	make_end(&b, by_value);
	return 0;
}

static int make_both(void **state)
{
	(void)state;
	return make_two(true);
}

static int make_readers(void **state)
{
	(void)state;
	return make_two(false);
}

static int free_both(void **state)
{
	(void)state;
	a.port->ops->destroy(a.port);
	b.port->ops->destroy(b.port);
	rmdir(dir);
	return 0;
}

static struct smx_frame frame(enum smx_transport transport, uint32_t len)
{
	static uint8_t bytes[4096];

	return (struct smx_frame){ .transport = (uint8_t)transport,
				   .op = SMX_FRAME_SEND,
				   .first = true,
				   .last = true,
				   .src_qpn = a.qpn,
				   .dst_qpn = b.qpn,
				   .psn_count = 1,
				   .mtu_bytes = 4096,
				   .length = len,
				   .flat = len ? bytes : NULL };
}

static bool offer(enum smx_transport transport, uint32_t len)
{
	struct smx_frame f = frame(transport, len);
	uint64_t most;

	if (!a.port->ops->admit(a.port, &f, &most))
		return false;
	a.port->ops->send(a.port, &f);
	return true;
}

static void others_do_not_take_the_room_that_one_waits_for(void **state)
{
	uint32_t sent = 0;

	(void)state;
	while (offer(SMX_TP_UD, 4096))
		sent++;
	assert_int_equal(a.rooms, 0);
	while (b.port->ops->poll(b.port, 0) == 0)
		;
	assert_int_equal(b.got, sent);
	/* Another queue pair is the first to find it. */
	assert_true(offer(SMX_TP_RC, 64));
	a.port->ops->poll(a.port, 0);
	assert_int_equal(a.rooms, 1);
}

static void a_little_room_is_not_the_last_word(void **state)
{
	uint32_t sent = 0;

	(void)state;
	while (offer(SMX_TP_UD, 4096))
		sent++;
	for (int i = 0; i < 3; i++) {
		/* Filled again before it looks, as often as there is room. */
		while (b.port->ops->poll(b.port, 0) == 0)
			;
		while (offer(SMX_TP_RC, 4096))
			sent++;
		a.port->ops->poll(a.port, 0);
		assert_int_equal(a.rooms, 0);
	}
	while (b.port->ops->poll(b.port, 0) == 0)
		;
	a.port->ops->poll(a.port, 0);
	assert_int_equal(a.rooms, 1);
	assert_int_equal(b.got, sent);
}

/* They are tried once, and that is all that happens until somebody makes room. */
static void a_stalled_lane_is_no_reason_to_try_for_ever(void **state)
{
	(void)state;
	while (offer(SMX_TP_RC, 4096))
		;
	assert_false(offer(SMX_TP_UD, 4096));
	usleep(250000);
	for (int i = 0; i < 3; i++)
		a.port->ops->poll(a.port, 0);
	assert_int_equal(a.rooms, 1);
	assert_true(offer(SMX_TP_UD, 4096)); /* and vanishes */
	assert_false(offer(SMX_TP_RC, 4096));
}

static bool stays(enum smx_transport transport, uint32_t len, struct memory m)
{
	static uint8_t bytes[16 << 10];
	struct smx_frame f = frame(transport, len);
	uint64_t most;

	for (uint32_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(i * 7 + len);
	m.bytes = bytes;
	f.flat = NULL;
	f.walk = &m;
	b.got = 0;
	memset(b.last, 0, sizeof(b.last));
	assert_true(a.port->ops->admit(a.port, &f, &most));
	a.port->ops->send(a.port, &f);
	while (b.port->ops->poll(b.port, 0) == 0)
		;
	assert_int_equal(b.got, 1);
	assert_int_equal(b.lost, 0);
	assert_memory_equal(b.last, bytes, len);
	return b.stayed;
}

static void shared_memory_is_read_where_it_lies_from_a_few_lines_on(void **state)
{
	const struct memory shared = { .shared = true, .runs = 1 }, private = { .runs = 1 };
	const struct memory pieces = { .shared = true, .runs = 8 };

	(void)state;
	/* The first one makes the link, whose other end then says whether it can read. */
	assert_false(stays(SMX_TP_RC, 4096, shared));
	assert_true(stays(SMX_TP_RC, 4096, shared));
	assert_true(stays(SMX_TP_RC, 512, shared));
	assert_false(stays(SMX_TP_RC, 256, shared));
	assert_false(stays(SMX_TP_RC, 4096, private));
	assert_true(stays(SMX_TP_RC, 16 << 10, private));
	/* Each piece costs as much as the only one. */
	assert_true(stays(SMX_TP_RC, 4096, pieces));
	assert_false(stays(SMX_TP_RC, 2048, pieces));
	/* Nobody answers these, so nothing says how long the memory has to stay. */
	assert_false(stays(SMX_TP_UD, 4096, shared));
	assert_false(stays(SMX_TP_UC, 4096, shared));
}

/* Frames of three streams, and an answer, each with a payload of its own that stays. */
enum { FRAMES = 4 };
static uint8_t lent[FRAMES][LONG];

static void lend_all(void)
{
	for (uint32_t i = 0; i < FRAMES; i++) {
		struct smx_frame f = frame(i ? SMX_TP_DC : SMX_TP_RC, LONG);

		f.op = i == 3 ? SMX_FRAME_READ_RESPONSE : SMX_FRAME_SEND;
		f.src_qpn = a.qpn + (i > 0);
		f.dc_stream = (uint16_t)i;
		f.flat = lent[i];
		f.imm = i;
		f.msn = i;
		memset(lent[i], (int)(10 + i), LONG);
		a.port->ops->send(a.port, &f);
	}
}

static void take(void)
{
	b.came = b.lost = 0;
	while (b.port->ops->poll(b.port, 0) == 0)
		;
}

/* Once it was said which, whatever was not read is not read; and all the rest is. */
static void only_what_is_recalled_is_lost(void **state)
{
	static const struct { struct smx_recall what; uint32_t lost; } rows[] = {
		{ { .qpn = 0 }, 1 << 0 },
		{ { .qpn = 1, .stream = 1 }, 1 << 1 },
		{ { .qpn = 1, .stream = 2 }, 1 << 2 },
		{ { .qpn = 1, .all_streams = true }, 1 << 1 | 1 << 2 },
		{ { .qpn = 5, .all_streams = true }, 0 },
		{ { .start = (uintptr_t)lent[1] + LONG - 1, .length = 1 }, 1 << 1 },
		{ { .start = (uintptr_t)lent[1] + LONG - 1, .length = 2 }, 1 << 1 | 1 << 2 },
		{ { .start = (uintptr_t)lent[0] - 1, .length = 1 }, 0 },
		{ { .start = (uintptr_t)lent[0] - 1, .length = 2 }, 1 << 0 },
		{ { .start = (uintptr_t)lent[2] + 100, .length = 100 }, 1 << 2 },
		{ { .start = (uintptr_t)lent[3], .length = LONG }, 1 << 3 },
	};

	(void)state;
	assert_true(offer(SMX_TP_RC, 64));
	take();	/* b says that it can read */
	a.port->ops->poll(a.port, 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct smx_recall what = rows[i].what;

		what.qpn += a.qpn;
		lend_all();
		assert_true(a.port->lent);
		a.port->ops->recall(a.port, &what);
		take();
		assert_int_equal(b.lost, rows[i].lost);
		assert_int_equal(b.came, ((1 << FRAMES) - 1) & ~rows[i].lost);
		a.port->ops->recall(a.port, &what);
		lend_all();
		take();
		assert_int_equal(b.lost, 0);
	}
}

static void send_ack(void)
{
	struct smx_frame f = frame(SMX_TP_RC, 0);

	f.op = SMX_FRAME_ACK;
	f.syndrome = SMX_AETH_ACK | 0x1f;
	a.port->ops->send(a.port, &f);
}

static void an_acknowledgement_waits_for_others_unless_it_is_to_be_prompt(void **state)
{
	(void)state;
	assert_true(offer(SMX_TP_RC, 64));
	take();
	a.port->ops->poll(a.port, 0);
	b.got = 0;
	send_ack();
	send_ack();
	take();
	assert_int_equal(b.got, 0);
	a.port->ops->poll(a.port, 0);	/* the end of the turn */
	take();
	assert_int_equal(b.got, 1);
	a.port->prompt = true;
	for (uint32_t i = 2; i < 4; i++) {
		send_ack();
		take();
		assert_int_equal(b.got, i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_acknowledgement_waits_for_others_unless_it_is_to_be_prompt,
						make_both, free_both),
		cmocka_unit_test_setup_teardown(others_do_not_take_the_room_that_one_waits_for,
						make_both, free_both),
		cmocka_unit_test_setup_teardown(a_stalled_lane_is_no_reason_to_try_for_ever,
						make_both, free_both),
		cmocka_unit_test_setup_teardown(shared_memory_is_read_where_it_lies_from_a_few_lines_on,
						make_readers, free_both),
		cmocka_unit_test_setup_teardown(a_little_room_is_not_the_last_word, make_both,
						free_both),
		cmocka_unit_test_setup_teardown(only_what_is_recalled_is_lost, make_readers, free_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
