/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The device among other processes' devices.
 *
 * A number is used again only after many others, so that one that is remembered too long rarely names
 * somebody new: a process takes several blocks before it goes round in them, and more when half of its numbers are in
 * use, so that a free one is never far. */
#include "dev/dev_host.h"

#include <errno.h>
#include <stdlib.h>

#include "dev/dev.h"
#include "net/net_host.h"
#include "xport/direct.h"

enum {
	FRESH_BLOCKS = 8,
	NUMBERS_MAX = 8 * SMX_MAX_QP,	/* so that one process leaves numbers to others */
};

/* ------------------------------------------------------------------ numbers */

static bool take_block(struct smx_dev *dev)
{
	uint32_t *grown, first;

	if (!dev->port->ops->numbers || dev->qpn_blocks >= NUMBERS_MAX / SMX_PORT_NUMBERS)
		return false;
	grown = realloc(dev->qpn_block, (dev->qpn_blocks + 1) * sizeof(*grown));
	if (!grown)
		return false;
	dev->qpn_block = grown;
	if (!dev->port->ops->numbers(dev->port, &first))
		return false;
	dev->qpn_block[dev->qpn_blocks++] = first;
	return true;
}

static int take_number(struct smx_dev *dev, void *obj, uint32_t *id)
{
	uint32_t tried = 0;

	if (dev->qps.used >= dev->qps.max)
		return ENOMEM;
	for (;;) {
		uint32_t total = dev->qpn_blocks * SMX_PORT_NUMBERS, at = dev->qpn_next;

		if (at < total) {
			*id = dev->qpn_block[at / SMX_PORT_NUMBERS] + at % SMX_PORT_NUMBERS;
			dev->qpn_next++;
			tried++;
			if (!smx_idmap_add_at(&dev->qps, *id, obj))
				return 0;
		} else if ((dev->qpn_blocks < FRESH_BLOCKS || dev->qps.used >= total / 2) && take_block(dev)) {
			continue;
		} else if (!dev->qpn_blocks) {
			return smx_idmap_add(&dev->qps, obj, id);
		} else if (tried >= 2 * total) {
			return ENOMEM;
		} else {
			dev->qpn_next = 0;
		}
	}
}

static void publish_count(struct smx_dev *dev)
{
	if (dev->port->public)
		dev->port->public->qps = dev->qps.used;
}

int smx_dev_number(struct smx_dev *dev, void *obj, uint32_t *id)
{
	int err = take_number(dev, obj, id);

	publish_count(dev);
	return err;
}

void smx_dev_number_free(struct smx_dev *dev, uint32_t id)
{
	smx_idmap_remove(&dev->qps, id);
	publish_count(dev);
}

void smx_dev_note_reachable(struct smx_dev *dev, const struct smx_qp *qp)
{
	bool connected = qp->attr.type == SMX_QP_RC || qp->attr.type == SMX_QP_UC;

	if (connected && smx_qp_find(dev, qp->cur.dest_qp_num))
		return;
	if (!dev->port->bell) {
		if (connected && dev->port->ops->sought)
			dev->port->ops->sought(dev->port, qp->cur.dest_qp_num);
		return;
	}
	dev->reachable = true;
	dev->port->changes++;
}

/* ------------------------------------------------------------------ keys */

static bool is_public(const struct smx_mkey *mkey)
{
	return mkey->attr.kind == SMX_MKEY_DIRECT && mkey->attr.shared;
}

void smx_dev_publish_key(struct smx_dev *dev, const struct smx_mkey *mkey)
{
	const struct smx_port_key key = {
		.key = mkey->key,
		.pdn = mkey->attr.pd->pdn,
		.rights = smx_direct_rights(mkey->attr.access),
		.start = mkey->attr.start,
		.length = mkey->attr.length,
		.host = (uintptr_t)mkey->attr.host,
	};

	if (dev->port->ops->publish_key && is_public(mkey))
		dev->port->ops->publish_key(dev->port, &key);
}

void smx_dev_withdraw_key(struct smx_dev *dev, const struct smx_mkey *mkey)
{
	const struct smx_recall memory = { .start = (uintptr_t)mkey->attr.host, .length = mkey->attr.length };

	if (mkey->attr.kind == SMX_MKEY_DIRECT)
		smx_port_recall(dev->port, &memory);
	if (dev->port->ops->withdraw_key && is_public(mkey) && smx_direct_rights(mkey->attr.access))
		dev->port->ops->withdraw_key(dev->port, mkey->key);
}

/* ------------------------------------------------------------------ the port */

static bool flatten(void *walk, void *to, uint64_t n, uint16_t *check, const char **text)
{
	struct smx_walk *w = walk;
	struct smx_dma_fault fault;
	uint64_t done;

	if (!smx_dma_read(w, to, n, &done, &fault) && done == n)
		return true;
	*check = (uint16_t)fault.check;
	*text = smx_walk_fault_text(w->dev, &fault, w->dev->frame_text, sizeof(w->dev->frame_text));
	return false;
}

/* What is shared stays so when the program unmaps it; the peer who reads it could not tell. */
static bool is_there(const struct smx_dev *dev, const uint8_t *ptr, uint64_t length)
{
	uint8_t byte;
	const void *fault;

	return dev->attr.env.copy(&byte, ptr, 1, &fault) && dev->attr.env.copy(&byte, ptr + length - 1, 1, &fault);
}

static bool runs(void *walk, uint64_t n, struct smx_host_run *out, uint32_t *count)
{
	const struct smx_mkey *mkey;
	struct smx_dma_fault fault;
	struct smx_walk w;
	uint8_t *ptr;

	mkey = smx_walk_together(walk, n, &ptr);
	if (mkey) {
		const struct smx_dev *dev = ((struct smx_walk *)walk)->dev;

		*out = (struct smx_host_run){ ptr, n, mkey->attr.shared && is_there(dev, ptr, n) };
		*count = 1;
		return true;
	}
	w = *(struct smx_walk *)walk;
	for (*count = 0; n && *count < SMX_HOST_RUNS; (*count)++) {
		struct smx_run run;

		if (smx_walk_next(&w, n, &run, &fault) || !run.length || !run.ptr)
			return false;
		out[*count] = (struct smx_host_run){
			.ptr = run.ptr,
			.length = run.length,
			.shared = w.leaf && w.leaf->attr.shared && is_there(w.dev, run.ptr, run.length),
		};
		n -= run.length;
	}
	return !n;
}

int smx_dev_open_host(struct smx_dev *dev, bool by_value)
{
	const struct smx_net_host_attr attr = {
		.flatten = flatten,
		.runs = runs,
		.source_check = SMX_CHECK_GATHER_FAULT,
		.by_value = by_value,
	};
	struct smx_port *port = smx_net_host_create(&attr);

	if (!port)
		return ENOMEM;
	smx_dev_set_port(dev, port);
	return 0;
}

const uint32_t *smx_dev_host_changes(const struct smx_dev *dev)
{
	return &dev->port->changes;
}

uint32_t *smx_dev_bell(const struct smx_dev *dev)
{
	return dev->port->bell;
}

bool smx_dev_is_reachable(const struct smx_dev *dev)
{
	return dev->reachable;
}

bool smx_dev_is_linked(const struct smx_dev *dev)
{
	return dev->port->linked;
}

struct smx_dev_arrivals smx_dev_arrivals(const struct smx_dev *dev)
{
	return (struct smx_dev_arrivals){ dev->port->requests, dev->port->answers };
}

static void publish(struct smx_dev *dev)
{
	struct smx_port_public *public = dev->port->public;

	public->waiting = dev->timers;
	public->rnr_waiting = dev->rnr_waiting;
	public->blocked = dev->blocked_count;
	public->direct = dev->port->direct;
}

bool smx_dev_doze(struct smx_dev *dev, bool requests, bool answers)
{
	if (dev->port->public)
		publish(dev);
	return !dev->port->ops->doze ||
	       dev->port->ops->doze(dev->port, (requests ? SMX_LISTEN_REQUESTS : 0) |
						       (answers ? SMX_LISTEN_ANSWERS : 0));
}

void smx_dev_leave_host(struct smx_dev *dev)
{
	if (dev->port->ops->leave)
		dev->port->ops->leave(dev->port);
}

/* The child's memory is its own. */
static void make_private(void *obj, void *arg)
{
	(void)arg;
	((struct smx_mkey *)obj)->attr.shared = false;
}

void smx_dev_forked(struct smx_dev *dev)
{
	if (dev->port->ops->forked)
		dev->port->ops->forked(dev->port);
	smx_idmap_each(&dev->mkeys, make_private, NULL);
	dev->qpn_blocks = dev->qpn_next = 0;
	dev->reachable = false;
	dev->next_nonce ^= 0x5bd1e995;	/* the parent goes on counting */
}
