/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: loopback hands the very frame over, inside send(). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/net_loop.h"

static struct smx_frame *seen;

static void deliver(void *arg, struct smx_frame *f)
{
	++*(int *)arg;
	seen = f;
	f->gather_check = 7;
}

static void delivers_inside_send(void **state)
{
	struct smx_port *port = smx_net_loop_create();
	struct smx_frame f = { .psn = 1 };
	int count = 0;

	(void)state;
	assert_non_null(port);
	assert_true(port->immediate);
	assert_int_equal(port->max_payload_bytes, 1 << 20);
	port->deliver = deliver;
	port->deliver_arg = &count;
	port->ops->send(port, &f);
	assert_int_equal(count, 1);
	assert_ptr_equal(seen, &f);
	assert_int_equal(f.gather_check, 7);
	assert_int_equal(port->ops->poll(port, 5), UINT64_MAX);
	assert_int_equal(count, 1);
	port->ops->destroy(port);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(delivers_inside_send) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
