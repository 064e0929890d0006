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

struct end {
	struct smx_port *port;
	uint32_t qpn, got, rooms;
};

static struct end a, b;
static char dir[32];

static void deliver(void *arg, struct smx_frame *f)
{
	struct end *e = arg;

	(void)f;
	e->got++;
}

static void room(void *arg)
{
	struct end *e = arg;

	e->rooms++;
}

static void make_end(struct end *e)
{
	const struct smx_net_host_attr attr = { .dir = dir, .by_value = true };

	memset(e, 0, sizeof(*e));
	e->port = smx_net_host_create(&attr);
	assert_non_null(e->port);
	e->port->deliver = deliver;
	e->port->room = room;
	e->port->deliver_arg = e;
	assert_true(e->port->ops->numbers(e->port, &e->qpn));
}

static int make_both(void **state)
{
	(void)state;
	memcpy(dir, "/tmp/net-host-XXXXXX", sizeof("/tmp/net-host-XXXXXX"));
	if (!mkdtemp(dir))
		return -1;
	make_end(&a);
	make_end(&b);
	return 0;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(others_do_not_take_the_room_that_one_waits_for,
						make_both, free_both),
		cmocka_unit_test_setup_teardown(a_stalled_lane_is_no_reason_to_try_for_ever,
						make_both, free_both),
		cmocka_unit_test_setup_teardown(a_little_room_is_not_the_last_word, make_both,
						free_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
