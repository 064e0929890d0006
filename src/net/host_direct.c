/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "net/host_direct.h"

#include "base/log.h"
#include "base/share.h"
#include "net/host_port.h"

/* ------------------------------------------------------------------ what others may do here */

void smx_host_name_tables(struct host *h)
{
	if (!h->tables.file || !h->reg.joined)
		return;
	h->tables.file->slot = h->reg.slot;
	h->tables.file->gen = h->reg.gen;
	__atomic_store_n(&own_slot(h)->tables_fd, h->tables.fd + 1, __ATOMIC_RELEASE);
}

void smx_host_forget_tables(struct host *h)
{
	smx_tables_close(&h->tables);
	h->watch.known = false;
}

static bool is_sharing(const struct host *h)
{
	return h->tables.file && __atomic_load_n(&h->tables.file->sharing, __ATOMIC_RELAXED);
}

/* Somebody whom nobody can wait for is in our memory. */
static void end_sharing(struct host *h, uint32_t stuck)
{
	smx_log(SMX_LOG_WARN, "process %d was stopped in this process's memory, which is not shared any more",
		h->reg.file->slot[stuck].pid);
	__atomic_store_n(&h->tables.file->sharing, 0, __ATOMIC_SEQ_CST);
	smx_share_stop(0);
}

/* What was taken back is used by nobody from now on. */
static void settle(struct host *h)
{
	uint32_t stuck;

	if (!h->reg.joined || !is_sharing(h))
		return;
	stuck = smx_host_await_idle(&h->reg, &h->watch);
	if (stuck != SMX_HOST_SLOTS)
		end_sharing(h, stuck);
}

static bool has_tables(struct host *h)
{
	if (h->tables.file)
		return is_sharing(h);
	if (h->attr.by_value || !smx_tables_make(&h->tables))
		return false;
	smx_host_name_tables(h);
	return true;
}

void smx_host_withdraw_key(struct smx_port *port, uint32_t key)
{
	struct host *h = (struct host *)port;

	if (h->tables.file && smx_tables_withdraw_key(&h->tables, key))
		settle(h);
}

void smx_host_publish_key(struct smx_port *port, const struct smx_port_key *key)
{
	struct host *h = (struct host *)port;

	if (!has_tables(h))
		return;
	h->tables.file->share_fd = smx_share_fd();
	if (!key->rights)
		return;
	smx_host_withdraw_key(port, key->key);
	smx_tables_put_key(&h->tables, key);
}

void smx_host_publish_qp(struct smx_port *port, const struct smx_port_qp *qp)
{
	struct host *h = (struct host *)port;

	if (qp->rights ? !has_tables(h) || smx_tables_has_qp(&h->tables, qp) : !h->tables.file)
		return;
	if (smx_tables_withdraw_qp(&h->tables, qp->qpn))
		settle(h);
	if (qp->rights)
		smx_tables_put_qp(&h->tables, qp);
}

/* ------------------------------------------------------------------ reaching */

/* What the process of that slot publishes. RETURN whether it can be had. */
static __attribute__((noinline)) bool open_far(struct host *h, struct peer *p, uint32_t to, uint32_t gen)
{
	struct smx_host_slot *slot = &h->reg.file->slot[to];
	int fd = __atomic_load_n(&slot->tables_fd, __ATOMIC_ACQUIRE);
	char why[256];

	if (fd <= 0 || h->attr.by_value || slot->pid_ns != own_slot(h)->pid_ns)
		return false;
	smx_far_close(&p->far);
	p->far_gen = gen;
	if (!smx_far_open(&p->far, slot->pid, fd - 1, to, gen, why, sizeof(why)))
		smx_log(SMX_LOG_INFO, "the memory of process %d is not reached: %s", slot->pid, why);
	return p->far.file;
}

struct smx_far *smx_host_far(struct host *h, uint32_t slot, uint32_t gen)
{
	struct peer *p = peer_at(h, slot);

	if (!p || (p->far_gen == gen ? !p->far.file : !open_far(h, p, slot, gen)))
		return NULL;
	return &p->far;
}

void *smx_host_reach(struct smx_port *port, const struct smx_port_request *r, uint64_t off, uint64_t *length)
{
	struct host *h = (struct host *)port;
	struct smx_far *far;
	uint16_t gen16;
	uint32_t to, gen;
	void *at;

	if (!h->reg.joined)
		return NULL;
	to = smx_host_owner(&h->reg, r->dst_qpn, &gen16);
	if (to == SMX_HOST_SLOTS || to == h->reg.slot)
		return NULL;
	gen = __atomic_load_n(&h->reg.file->slot[to].gen, __ATOMIC_RELAXED);
	far = (uint16_t)gen == gen16 ? smx_host_far(h, to, gen) : NULL;
	if (!far || !smx_far_lives(far, port->turns))
		return NULL;
	smx_host_enter(&h->reg, to);
	at = smx_far_at(far, r, off, length);
	if (!at) {
		smx_host_exit(&h->reg);
		return NULL;
	}
	h->reached = far;
	return at;
}

bool smx_host_reached(struct smx_port *port)
{
	struct host *h = (struct host *)port;
	bool held = smx_far_held(h->reached);

	smx_host_exit(&h->reg);
	return held;
}
