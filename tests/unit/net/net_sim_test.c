/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: the simulated medium keeps, loses, doubles and reorders frames as told, the same way for the same seed.
 * Method: numbered frames; what arrives, and when, is written down and compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/net_sim.h"

enum { FRAMES = 2000 };

struct log {
	uint32_t psn[2 * FRAMES];
	uint64_t at[2 * FRAMES];
	uint32_t count;
	uint64_t now;
	bool bad_payload, bad_text;
};

static void deliver(void *arg, struct smx_frame *f)
{
	struct log *log = arg;
	const uint8_t *bytes = f->flat;

	log->psn[log->count] = f->psn;
	log->at[log->count++] = log->now;
	for (uint64_t i = 0; i < f->length; i++)
		log->bad_payload |= bytes[i] != (uint8_t)(f->psn + i);
	log->bad_text |= f->text && strcmp(f->text, "sentence") != 0;
	log->bad_payload |= f->walk != NULL;
}

struct pattern { uint8_t start; bool fault; };

static bool flatten(void *walk, void *to, uint64_t n, uint16_t *check)
{
	struct pattern *p = walk;

	if (p->fault) {
		*check = 42;
		return false;
	}
	for (uint64_t i = 0; i < n; i++)
		((uint8_t *)to)[i] = (uint8_t)(p->start + i);
	return true;
}

/* Sends FRAMES frames, one a microsecond, and takes all that arrive. */
static void run(const struct smx_net_sim_attr *attr, struct log *log)
{
	struct smx_port *port = smx_net_sim_create(attr);
	uint64_t next;

	memset(log, 0, sizeof(*log));
	port->deliver = deliver;
	port->deliver_arg = log;
	for (uint32_t i = 0; i < FRAMES; i++) {
		struct pattern walk = { .start = (uint8_t)i };
		uint8_t flat[8];
		char text[] = "sentence";
		struct smx_frame f = { .psn = i, .length = i % 9, .text = i % 3 ? NULL : text };

		for (int k = 0; k < 8; k++)
			flat[k] = (uint8_t)(i + (uint32_t)k);
		if (i % 2)
			f.walk = &walk;
		else
			f.flat = flat;
		log->now = 1000ull * i;
		port->ops->poll(port, log->now);
		port->ops->send(port, &f);
		memset(flat, 0, sizeof(flat));	/* the medium has its own copy */
		memset(text, 'x', 8);
	}
	while ((next = port->ops->poll(port, log->now)) != UINT64_MAX)
		log->now = next;
	port->ops->destroy(port);
	assert_false(log->bad_payload);
	assert_false(log->bad_text);
}

static struct log a, b;

static void keeps_order_and_delays(void **state)
{
	struct smx_net_sim_attr attr = { .seed = 1, .delay_ns_min = 3000, .delay_ns_max = 9000,
					 .flatten = flatten };

	(void)state;
	run(&attr, &a);
	assert_int_equal(a.count, FRAMES);
	for (uint32_t i = 0; i < FRAMES; i++) {
		assert_int_equal(a.psn[i], i);
		assert_true(a.at[i] >= 1000ull * i + 3000);
		assert_true(a.at[i] <= 1000ull * i + 9000 + 1000);
	}
}

static void repeats_by_seed(void **state)
{
	struct smx_net_sim_attr attr = { .seed = 5, .drop_ppm = 100000, .dup_ppm = 100000,
					 .reorder_ppm = 100000, .delay_ns_min = 0, .delay_ns_max = 5000,
					 .flatten = flatten };

	(void)state;
	run(&attr, &a);
	run(&attr, &b);
	assert_int_equal(a.count, b.count);
	assert_memory_equal(a.psn, b.psn, sizeof(a.psn));
	assert_memory_equal(a.at, b.at, sizeof(a.at));
	attr.seed = 6;
	run(&attr, &b);
	assert_memory_not_equal(a.psn, b.psn, sizeof(a.psn));
}

static const struct chance_row {
	const char *name;
	uint32_t drop, dup, reorder;
	uint32_t count_min, count_max;
	bool in_order;
} chances[] = {
	{ "loses all", 1000000, 0, 0, 0, 0, true },
	{ "loses a tenth", 100000, 0, 0, 1700, 1900, true },
	{ "doubles all", 0, 1000000, 0, 2 * FRAMES, 2 * FRAMES, true },
	{ "reorders some", 0, 0, 200000, FRAMES, FRAMES, false },
};

static void follows_its_chances(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(chances) / sizeof(chances[0]); i++) {
		const struct chance_row *row = &chances[i];
		struct smx_net_sim_attr attr = { .seed = 9, .drop_ppm = row->drop, .dup_ppm = row->dup,
						 .reorder_ppm = row->reorder, .delay_ns_min = 10,
						 .delay_ns_max = 4000, .flatten = flatten };
		bool in_order = true;

		print_message("%s\n", row->name);
		run(&attr, &a);
		assert_in_range(a.count, row->count_min, row->count_max);
		for (uint32_t k = 1; k < a.count; k++)
			in_order &= a.psn[k] >= a.psn[k - 1];
		assert_int_equal(in_order, row->in_order);
	}
}

static void tells_the_sender_of_his_fault(void **state)
{
	struct smx_net_sim_attr attr = { .flatten = flatten };
	struct smx_port *port = smx_net_sim_create(&attr);
	struct pattern walk = { .fault = true };
	struct smx_frame f = { .length = 4, .walk = &walk };
	struct log log = { 0 };

	(void)state;
	port->deliver = deliver;
	port->deliver_arg = &log;
	port->ops->send(port, &f);
	assert_int_equal(f.gather_check, 42);
	assert_int_equal(port->ops->poll(port, UINT64_MAX), UINT64_MAX);
	assert_int_equal(log.count, 0);
	/* What was not polled for is freed with the medium. */
	walk.fault = false;
	port->ops->send(port, &f);
	port->ops->destroy(port);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_order_and_delays),
		cmocka_unit_test(repeats_by_seed),
		cmocka_unit_test(follows_its_chances),
		cmocka_unit_test(tells_the_sender_of_his_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
