/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The simulated medium: a list of copied frames, sorted by the virtual time at which each arrives.
 *
 * Time is what poll() was last told. Frames keep their order, as on a real path, unless chance says
 * that one is reordered: then it arrives later than frames sent after it. The same seed and the
 * same sequence of calls give the same losses. */
#include "net/net_sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"

struct flight { /* a frame on its way */
	struct flight *next;
	uint64_t arrives_ns;
	struct smx_frame frame; /* flat and text point into bytes */
	uint8_t bytes[];
};

struct sim {
	struct smx_port port;
	struct smx_net_sim_attr attr;
	struct smx_prng prng;
	uint64_t now_ns;
	uint64_t last_arrival_ns; /* of the frames that keep their order */
	struct flight *head;
};

static bool chance(struct sim *sim, uint32_t ppm)
{
	/* Always drawn, so that one rate does not shift what the others see. */
	return smx_prng_below(&sim->prng, 1000000) < ppm;
}

static uint64_t delay(struct sim *sim)
{
	uint64_t span = sim->attr.delay_ns_max - sim->attr.delay_ns_min;

	return sim->attr.delay_ns_min + smx_prng_below(&sim->prng, span + 1);
}

/* After all that arrive no later. */
static void insert(struct sim *sim, struct flight *fl)
{
	struct flight **at = &sim->head;

	while (*at && (*at)->arrives_ns <= fl->arrives_ns)
		at = &(*at)->next;
	fl->next = *at;
	*at = fl;
}

static void launch(struct sim *sim, struct flight *fl, bool reorder)
{
	uint64_t at = sim->now_ns + delay(sim);

	if (at < sim->last_arrival_ns)
		at = sim->last_arrival_ns;
	if (reorder)
		at += 1 + smx_prng_below(&sim->prng, 4 * (sim->attr.delay_ns_max + 1));
	else
		sim->last_arrival_ns = at;
	fl->arrives_ns = at;
	insert(sim, fl);
}

/* RETURN a copy that owns its payload and text; NULL when the sender's memory cannot be read. */
static struct flight *copy_frame(struct sim *sim, struct smx_frame *f)
{
	size_t text_len = f->text ? strlen(f->text) + 1 : 0;
	struct flight *fl = malloc(sizeof(*fl) + f->length + text_len);

	if (!fl)
		return NULL;
	fl->next = NULL;
	fl->arrives_ns = 0;
	fl->frame = *f;
	fl->frame.walk = NULL;
	fl->frame.flat = f->length ? fl->bytes : NULL;
	if (f->length && f->walk) {
		assert(sim->attr.flatten);
		if (!sim->attr.flatten(f->walk, fl->bytes, f->length, &f->gather_check)) {
			free(fl);
			return NULL;
		}
	} else if (f->length) {
		memcpy(fl->bytes, f->flat, f->length);
	}
	if (f->text) {
		memcpy(fl->bytes + f->length, f->text, text_len);
		fl->frame.text = (const char *)fl->bytes + f->length;
	}
	return fl;
}

static void sim_send(struct smx_port *port, struct smx_frame *f)
{
	struct sim *sim = (struct sim *)port;
	bool drop = chance(sim, sim->attr.drop_ppm);
	bool dup = chance(sim, sim->attr.dup_ppm);
	bool reorder = chance(sim, sim->attr.reorder_ppm);
	struct flight *fl, *twin;

	/* The payload is read even when the frame is lost: a sender finds out about its memory
	 * either way. A walk can be read once only, so the second of a pair is made from the first.
	 */
	fl = copy_frame(sim, f);
	if (!fl)
		return;
	if (drop) {
		free(fl);
		return;
	}
	twin = dup ? copy_frame(sim, &fl->frame) : NULL;
	launch(sim, fl, reorder);
	if (twin)
		launch(sim, twin, false);
}

static uint64_t sim_poll(struct smx_port *port, uint64_t now_ns)
{
	struct sim *sim = (struct sim *)port;

	assert(port->deliver);
	if (now_ns > sim->now_ns)
		sim->now_ns = now_ns;
	while (sim->head && sim->head->arrives_ns <= sim->now_ns) {
		struct flight *fl = sim->head;

		sim->head = fl->next;
		port->deliver(port->deliver_arg, &fl->frame);
		free(fl);
	}
	return sim->head ? sim->head->arrives_ns : UINT64_MAX;
}

static void sim_destroy(struct smx_port *port)
{
	struct sim *sim = (struct sim *)port;

	while (sim->head) {
		struct flight *fl = sim->head;

		sim->head = fl->next;
		free(fl);
	}
	free(sim);
}

static const struct smx_port_ops sim_ops = {
	.send = sim_send,
	.poll = sim_poll,
	.destroy = sim_destroy,
};

struct smx_port *smx_net_sim_create(const struct smx_net_sim_attr *attr)
{
	struct sim *sim;

	assert(attr->delay_ns_min <= attr->delay_ns_max);
	sim = calloc(1, sizeof(*sim));
	if (!sim)
		return NULL;
	sim->attr = *attr;
	sim->prng.state = attr->seed;
	sim->port.ops = &sim_ops;
	sim->port.max_payload_bytes = attr->max_payload_bytes;
	return &sim->port;
}
