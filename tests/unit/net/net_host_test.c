/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: whoever waits for room in a lane is told of it, whatever others send meanwhile.
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

enum { LONG = 100000 };

struct end {
	struct smx_port *port;
	uint32_t qpn, got, rooms;
	uint32_t pulled, lost;	/* payloads that were still at their sender */
};

static uint8_t memory[LONG], copied[LONG];

static struct end a, b;
static char dir[32];

static void deliver(void *arg, struct smx_frame *f)
{
	struct end *e = arg;

	e->got++;
	if (f->pull) {
		uint64_t done;
		bool good = f->pull->fetch(f->pull, copied, f->length, &done) == SMX_PULLED;

		assert_true(good || f->pull->gone);
		e->pulled += good;
		e->lost += !good;
	}
}

static void room(void *arg)
{
	struct end *e = arg;

	e->rooms++;
}

static void make_end(struct end *e, bool by_value)
{
	const struct smx_net_host_attr attr = { .dir = dir, .by_value = by_value };

	memset(e, 0, sizeof(*e));
	e->port = smx_net_host_create(&attr);
	assert_non_null(e->port);
	e->port->deliver = deliver;
	e->port->room = room;
	e->port->deliver_arg = e;
	assert_true(e->port->ops->numbers(e->port, &e->qpn));
}

static int make(bool by_value)
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
	return make(true);
}

static int make_both_that_lend(void **state)
{
	(void)state;
	return make(false);
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

static bool lend(enum smx_frame_op op)
{
	struct smx_frame f = frame(SMX_TP_RC, LONG);

	f.op = (uint8_t)op;
	f.flat = memory;
	a.port->ops->send(a.port, &f);
	return a.port->lent;
}

/* Reads later what is said to lie at a's. */
static void take(void)
{
	while (b.port->ops->poll(b.port, 0) == 0)
		;
}

/* Frames and answers that were left where they are; a recall takes back those that were not read, and no other. */
static void what_was_recalled_is_lost(void **state)
{
	static const enum smx_frame_op op[] = { SMX_FRAME_SEND, SMX_FRAME_READ_RESPONSE };
	uint32_t pulled = 0, lost = 0;

	(void)state;
	assert_true(offer(SMX_TP_RC, 64));
	take();	/* b has seen that it may read a's memory */
	for (int i = 0; i < 2; i++) {
		memset(memory, 1, LONG);
		assert_true(lend(op[i]));
		take();
		assert_int_equal(b.pulled, ++pulled);
		assert_int_equal(copied[LONG - 1], 1);
		a.port->ops->recall(a.port);
		assert_false(a.port->lent);
		assert_true(lend(op[i]));
		take();
		assert_int_equal(b.pulled, ++pulled);
		assert_true(lend(op[i]));
		a.port->ops->recall(a.port);
		assert_true(lend(op[i]));
		take();
		assert_int_equal(b.pulled, ++pulled);
		assert_int_equal(b.lost, ++lost);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(others_do_not_take_the_room_that_one_waits_for,
						make_both, free_both),
		cmocka_unit_test_setup_teardown(a_stalled_lane_is_no_reason_to_try_for_ever,
						make_both, free_both),
		cmocka_unit_test_setup_teardown(a_little_room_is_not_the_last_word, make_both,
						free_both),
		cmocka_unit_test_setup_teardown(what_was_recalled_is_lost, make_both_that_lend, free_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
