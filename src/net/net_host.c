/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Loopback and lanes.
 *
 * A link to a process is made when something is first sent to it, and found by it when its bell rings.
 * Nobody else's lane is read by two, and nobody waits here: a full lane makes the requester wait, and a
 * request is only taken when its answer is sure to find room. */
#include "net/net_host.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fast_clock.h"
#include "base/log.h"
#include "net/host_bell.h"
#include "net/host_direct.h"
#include "net/host_port.h"
#include "net/host_pull.h"
#include "net/shm_ack.h"

_Static_assert(SMX_LISTEN_REQUESTS == 1 << SMX_LANE_REQUESTS && SMX_LISTEN_ANSWERS == 1 << SMX_LANE_ANSWERS,
	       "a bit for each lane");

enum {
	LOCAL_PAYLOAD_BYTES = 1 << 20,
	PULL_FROM_BYTES = 8 << 10,	/* shorter payloads are copied twice rather than fetched by the kernel */
	NEAR_FROM_BYTES = 512,		/* runs of requests that are shorter, rather than read where they are shared */
	READ_PART_BYTES = 96 << 10,
	ANSWER_ROOM_BYTES = 1 << 10,	/* what an answer takes besides its payload, twice */
	/* Of requests taken at once: what goes on gets its ACK at last. A byte in the lane counts as several, for short
	 * messages are many. */
	ACK_EVERY_BYTES = 16 << 10,
	LANE_BYTE_COUNTS = 8,
	RECORDS_A_POLL = 512,
	STALLED_NS = 200000000,		/* a lane that stays full this long is not waited for by datagrams */
};

_Static_assert(offsetof(struct smx_host_slot, blocked) - offsetof(struct smx_host_slot, qps) ==
	       offsetof(struct smx_port_public, blocked) &&
	       offsetof(struct smx_host_slot, direct) - offsetof(struct smx_host_slot, qps) ==
	       offsetof(struct smx_port_public, direct), "a slot's tail is what a port makes public");

/* ------------------------------------------------------------------ joining */

static bool join(struct host *h)
{
	if (h->reg.joined)
		return true;
	if (h->tried)
		return false;
	h->tried = true;
	if (smx_host_open(&h->reg, h->attr.dir, true, h->why, sizeof(h->why)) ||
	    smx_host_join(&h->reg, h->why, sizeof(h->why))) {
		smx_host_close(&h->reg);
		smx_log(SMX_LOG_INFO, "no other process will be reached: %s", h->why);
		return false;
	}
	memcpy(h->own, h->inherited, sizeof(h->own));
	h->probe = smx_clock_ns() ^ (uint64_t)getpid() << 32 ^ (uintptr_t)h;
	own_slot(h)->probe_value = h->probe;
	__atomic_store_n(&own_slot(h)->probe_addr, (uintptr_t)&h->probe, __ATOMIC_RELEASE);
	h->epoch_seen = __atomic_load_n(&h->reg.file->epoch, __ATOMIC_ACQUIRE);
	h->lanes_seen = __atomic_load_n(&own_slot(h)->lanes_seq, __ATOMIC_ACQUIRE);
	smx_host_name_tables(h);
	h->port.bell = &own_slot(h)->bell;
	h->port.changes++;
	h->port.public = (struct smx_port_public *)&own_slot(h)->qps;
	return true;
}

static bool host_numbers(struct smx_port *port, uint32_t *first)
{
	struct host *h = (struct host *)port;
	uint32_t block;

	if (!join(h) || !smx_host_take_block(&h->reg, first))
		return false;
	block = *first >> SMX_HOST_BLOCK_BITS;
	h->own[block / 8] |= (uint8_t)(1u << (block % 8));
	return true;
}

static void host_sought(struct smx_port *port, uint32_t qpn)
{
	struct host *h = (struct host *)port;

	if (h->why[0])
		smx_log(SMX_LOG_WARN, "queue pair 0x%06x is not in this process, and no other can be reached: %s",
			qpn, h->why);
	h->why[0] = '\0';
}

/* ------------------------------------------------------------------ news */

static void mark_dirty(struct host *h, uint32_t to, uint32_t lanes)
{
	struct peer *p = h->peer[to];

	if (!p->dirty)
		h->dirty[h->dirty_count++] = to;
	p->dirty |= lanes;
}

static void publish_ack(struct peer *p)
{
	smx_shm_ack_publish(&p->ack, &p->out.lane[SMX_LANE_ANSWERS]);
}

/* What was put in lanes is visible before the sleeper's flag is read; the sleeper does the reverse. */
static void ring_dirty(struct host *h)
{
	if (!h->dirty_count)
		return;
	for (uint32_t i = 0; i < h->dirty_count; i++)
		publish_ack(h->peer[h->dirty[i]]);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < h->dirty_count; i++) {
		struct peer *p = h->peer[h->dirty[i]];

		smx_ring_if_asleep(&h->reg.file->slot[h->dirty[i]], p->dirty);
		p->dirty = 0;
	}
	h->dirty_count = 0;
}

/* ------------------------------------------------------------------ links out */

static void unblock(struct host *h, struct peer *p)
{
	if (!p->blocked)
		return;
	p->blocked = false;
	for (uint32_t i = 0; i < h->blocked_count; i++) {
		if (h->peer[h->blocked[i]] == p)
			h->blocked[i] = h->blocked[--h->blocked_count];
	}
}

static void close_out(struct host *h, struct peer *p)
{
	smx_link_close(&p->out);
	p->ack.waits = false;
	p->failed = false;
	if (p->blocked) {
		unblock(h, p);
		h->port.room(h->port.deliver_arg);
	}
}

static void announce(struct host *h, uint32_t to)
{
	struct smx_host_slot *slot = &h->reg.file->slot[to];

	__atomic_fetch_or(&slot->lanes_from[h->reg.slot / 64], 1ull << (h->reg.slot % 64), __ATOMIC_ACQ_REL);
	__atomic_fetch_add(&slot->lanes_seq, 1, __ATOMIC_ACQ_REL);
	/* One that has no link yet looks at nothing else. */
	__atomic_fetch_add(&slot->bell, 1, __ATOMIC_ACQ_REL);
	h->port.immediate = false;
	mark_dirty(h, to, SMX_LISTEN_REQUESTS | SMX_LISTEN_ANSWERS);
}

static __attribute__((noinline)) struct peer *find_link(struct host *h, uint32_t qpn, uint32_t *to)
{
	struct smx_host_slot *slot;
	struct peer *p;
	uint32_t gen;
	uint16_t gen16;
	int err;

	*to = smx_host_owner(&h->reg, qpn, &gen16);
	if (*to == SMX_HOST_SLOTS || *to == h->reg.slot)
		return NULL;
	slot = &h->reg.file->slot[*to];
	gen = __atomic_load_n(&slot->gen, __ATOMIC_RELAXED);
	if ((uint16_t)gen != gen16)
		return NULL;
	p = peer_at(h, *to);
	if (!p)
		return NULL;
	if (p->out.file && p->out_gen == gen)
		return p;
	if (p->failed && p->out_gen == gen)
		return NULL;
	close_out(h, p);
	p->out_gen = gen;
	err = smx_link_make(&p->out, h->reg.dir_fd, h->reg.slot, h->reg.gen, *to, gen);
	if (err) {
		smx_log(SMX_LOG_WARN, "process %d will not be reached: %s: %s", slot->pid, h->reg.dir,
			strerror(err));
		p->failed = true;
		return NULL;
	}
	announce(h, *to);
	return p;
}

/* The link to the process that owns the number, made if need be. RETURN NULL where there is none. */
static inline struct peer *link_to(struct host *h, uint32_t qpn, uint32_t *to)
{
	uint16_t gen16;
	struct peer *p;

	*to = smx_host_owner(&h->reg, qpn, &gen16);
	p = *to < SMX_HOST_SLOTS ? h->peer[*to] : NULL;
	if (p && p->out.file && (uint16_t)p->out_gen == gen16 &&
	    p->out_gen == __atomic_load_n(&h->reg.file->slot[*to].gen, __ATOMIC_RELAXED))
		return p;
	return find_link(h, qpn, to);
}

/* ------------------------------------------------------------------ sending */

static bool may_stay(const struct host *h, const struct peer *p, const struct smx_frame *f)
{
	return !h->attr.by_value && f->transport != SMX_TP_UC && f->transport != SMX_TP_UD &&
	       __atomic_load_n(&p->out.file->can, __ATOMIC_RELAXED) == SMX_CAN_PULL;
}

/* Datagrams and UC do not wait for one that does not look. */
static bool is_stalled(struct host *h, struct peer *p, uint32_t to, const struct smx_frame *f)
{
	uint64_t now = smx_clock_ns();

	if (!p->blocked) {
		p->blocked = true;
		h->blocked[h->blocked_count++] = to;
		p->full_since_ns = now;
		p->given_up = false;
	}
	return (f->transport == SMX_TP_UC || f->transport == SMX_TP_UD) && now - p->full_since_ns >= STALLED_NS;
}

static bool host_admit(struct smx_port *port, const struct smx_frame *f, uint64_t *most)
{
	struct host *h = (struct host *)port;
	struct smx_lane *lane;
	struct peer *p;
	uint32_t to, bytes;

	*most = LOCAL_PAYLOAD_BYTES;
	p = link_to(h, f->dst_qpn, &to);
	if (!p)
		return true;	/* it will vanish */
	if (f->op == SMX_FRAME_READ_REQUEST)
		*most = READ_PART_BYTES;
	else if (!f->plain || !may_stay(h, p, f))
		*most = SMX_REC_VALUE_MAX;
	lane = &p->out.lane[SMX_LANE_REQUESTS];
	bytes = f->length < SMX_REC_VALUE_MAX ? (uint32_t)f->length : SMX_REC_VALUE_MAX;
	bytes = smx_rec_lane_bytes(bytes + 2 * sizeof(struct smx_rec) + sizeof(struct smx_rec_atomic) +
			     SMX_HOST_RUNS * sizeof(struct smx_rec_run));
	if (!smx_lane_has_room(lane, bytes)) {
		if (is_stalled(h, p, to, f))
			return true;
		if (smx_lane_want_room(lane, bytes))
			return false;
	}
	/* Others may wait still: poll() tells them. */
	if (p->blocked) {
		p->full_since_ns = smx_clock_ns();
		p->given_up = false;
	}
	return true;
}

static uint32_t make_runs(struct host *h, struct smx_frame *f, struct smx_rec_run *out, bool *shared)
{
	struct smx_host_run runs[SMX_HOST_RUNS];
	uint32_t count = 0;

	*shared = !f->flat;
	if (f->flat) {
		out[0] = (struct smx_rec_run){ (uintptr_t)f->flat, f->length };
		return 1;
	}
	if (!h->attr.runs(f->walk, f->length, runs, &count))
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		out[i] = (struct smx_rec_run){ (uintptr_t)runs[i].ptr, runs[i].length };
		*shared = *shared && runs[i].shared;
	}
	return count;
}

/* The runs of a payload that stays where it is. RETURN how many, or 0 when it travels in the lane. */
static uint32_t find_runs(struct host *h, const struct peer *p, struct smx_frame *f, struct smx_rec_run *out,
			  bool *shared)
{
	bool is_long = f->length > PULL_FROM_BYTES;
	uint32_t count;

	if (!is_long && (f->length < NEAR_FROM_BYTES || f->flat || smx_frame_is_answer(f->op)))
		return 0;
	if (!may_stay(h, p, f))
		return 0;
	count = make_runs(h, f, out, shared);
	return is_long || (*shared && f->length >= (uint64_t)count * NEAR_FROM_BYTES) ? count : 0;
}

/* RETURN false when there is no room, or the payload cannot be read. */
static bool put_value(struct host *h, struct peer *p, struct smx_lane *lane, struct smx_frame *f)
{
	uint32_t size = smx_rec_lane_bytes(smx_rec_head_bytes(f) + f->length);
	struct smx_rec *rec = smx_lane_reserve(lane, size);
	uint8_t *at;

	if (!rec)
		return false;
	at = smx_rec_write(rec, f, 0);
	if (f->length && f->flat)
		memcpy(at, f->flat, f->length);
	else if (f->length &&
		 !h->attr.flatten(f->walk, at, f->length, &f->gather_check, &f->gather_text)) {
		smx_lane_abandon(lane);
		return false;
	}
	smx_shm_ack_carry(&p->ack, rec, f);
	smx_lane_publish(lane, rec, size);
	return true;
}

/* An answer that is too long for one record, packet by packet into several. */
static bool put_pieces(struct host *h, struct peer *p, struct smx_lane *lane, struct smx_frame *f)
{
	uint32_t mtu = f->mtu_bytes ? f->mtu_bytes : 4096;
	uint64_t left = f->length;
	struct smx_frame part = *f;
	bool last = f->last;

	while (left) {
		uint64_t n = left < SMX_REC_VALUE_MAX ? left : SMX_REC_VALUE_MAX;

		part.length = n;
		part.last = last && n == left;
		part.psn_count = (uint32_t)((n - 1) / mtu) + 1;
		if (!put_value(h, p, lane, &part)) {
			f->gather_check = part.gather_check;
			f->gather_text = part.gather_text;
			return false;
		}
		part.psn = (part.psn + part.psn_count) & 0xffffff;
		part.first = false;
		if (part.flat)
			part.flat = (const uint8_t *)part.flat + n;
		left -= n;
	}
	return true;
}

static bool put_runs(struct peer *p, struct smx_lane *lane, const struct smx_frame *f,
		     const struct smx_rec_run *runs, uint32_t count, bool shared)
{
	uint32_t size = smx_rec_lane_bytes(smx_rec_head_bytes(f) + count * sizeof(*runs));
	struct smx_rec *rec = smx_lane_reserve(lane, size);

	if (!rec)
		return false;
	memcpy(smx_rec_write(rec, f, (uint8_t)(shared ? SMX_REC_SHARED | count : count)), runs, count * sizeof(*runs));
	smx_shm_ack_carry(&p->ack, rec, f);
	smx_lane_publish(lane, rec, size);
	lane->lent = lane->pos;
	return true;
}

static void send_to(struct host *h, struct peer *p, uint32_t to, struct smx_frame *f)
{
	enum smx_lane_kind kind = smx_frame_is_answer(f->op) ? SMX_LANE_ANSWERS : SMX_LANE_REQUESTS;
	struct smx_lane *lane = &p->out.lane[kind];
	struct smx_rec_run runs[SMX_HOST_RUNS];
	uint32_t count;
	bool put, shared;

	if (kind == SMX_LANE_ANSWERS)
		publish_ack(p);
	count = find_runs(h, p, f, runs, &shared);
	if (count) {
		put = put_runs(p, lane, f, runs, count, shared);
		h->port.lent = true;
	} else if (f->length <= SMX_REC_VALUE_MAX) {
		put = put_value(h, p, lane, f);
	} else {
		put = f->op == SMX_FRAME_READ_RESPONSE && put_pieces(h, p, lane, f);
	}
	if (put)
		mark_dirty(h, to, 1u << kind);
}

/* A datagram to a group goes to everybody; each has a copy of its own. */
static void send_multicast(struct host *h, struct smx_frame *f)
{
	uint8_t bytes[4096];
	struct smx_frame copy = *f;

	if (f->length > sizeof(bytes))
		return;
	if (f->length && f->walk) {
		if (!h->attr.flatten(f->walk, bytes, f->length, &f->gather_check, &f->gather_text))
			return;
		copy.walk = NULL;
		copy.flat = bytes;
	}
	h->port.deliver(h->port.deliver_arg, &copy);
	for (uint32_t i = 1; h->reg.joined && i < SMX_HOST_BLOCKS; i++) {
		uint32_t word = __atomic_load_n(&h->reg.file->block[i], __ATOMIC_RELAXED);
		struct peer *p;
		uint32_t to;

		/* Once for each process: at the first of its blocks. */
		if (!word || smx_port_is_own(&h->port, i << SMX_HOST_BLOCK_BITS))
			continue;
		for (uint32_t j = 1; j <= i; j++) {
			if (j == i) {
				p = link_to(h, i << SMX_HOST_BLOCK_BITS, &to);
				if (p)
					send_to(h, p, to, &copy);
			} else if (__atomic_load_n(&h->reg.file->block[j], __ATOMIC_RELAXED) == word) {
				break;
			}
		}
	}
}

static void host_send(struct smx_port *port, struct smx_frame *f)
{
	struct host *h = (struct host *)port;
	struct peer *p;
	uint32_t to;

	if (f->dst_qpn == 0xffffff) {
		send_multicast(h, f);
		return;
	}
	p = link_to(h, f->dst_qpn, &to);
	if (!p)
		return;
	if (!smx_shm_is_ack(f)) {
		send_to(h, p, to, f);
		return;
	}
	if (smx_shm_ack_put(&p->ack, &p->out.lane[SMX_LANE_ANSWERS], f))
		mark_dirty(h, to, SMX_LISTEN_ANSWERS);
	if (port->prompt)
		publish_ack(p);
}

/* May we read that process's memory? Its slot says what we should find. */
static bool can_pull(const struct host *h, const struct smx_host_slot *slot)
{
	return !h->attr.by_value && slot->pid_ns == own_slot(h)->pid_ns &&
	       smx_host_can_pull(slot->pid, __atomic_load_n(&slot->probe_addr, __ATOMIC_ACQUIRE),
				 slot->probe_value);
}

/* ------------------------------------------------------------------ links in */

static void close_in(struct host *h, struct peer *p, uint32_t from)
{
	smx_link_close(&p->in);
	p->listed = false;
	for (uint32_t i = 0; i < h->inbound_count; i++) {
		if (h->inbound[i] == from)
			h->inbound[i--] = h->inbound[--h->inbound_count];
	}
}

static void open_in(struct host *h, uint32_t from)
{
	struct smx_host_slot *slot = &h->reg.file->slot[from];
	struct peer *p = peer_at(h, from);
	uint32_t gen = __atomic_load_n(&slot->gen, __ATOMIC_ACQUIRE);
	char why[256];

	if (!p || from == h->reg.slot)
		return;
	if (p->in.file)
		close_in(h, p, from);
	if (smx_link_open(&p->in, h->reg.dir_fd, from, gen, h->reg.slot, h->reg.gen, why, sizeof(why))) {
		smx_log(SMX_LOG_WARN, "process %d will not be heard: %s", slot->pid, why);
		return;
	}
	p->in_gen = gen;
	p->pid = slot->pid;
	p->held = false;
	__atomic_store_n(&p->in.file->can, can_pull(h, slot) ? SMX_CAN_PULL : SMX_CANNOT_PULL, __ATOMIC_RELEASE);
	p->listed = true;
	h->inbound[h->inbound_count++] = from;
	h->port.linked = true;
	h->port.changes++;
	h->port.immediate = false;
}

static void find_links(struct host *h)
{
	struct smx_host_slot *own = own_slot(h);

	h->lanes_seen = __atomic_load_n(&own->lanes_seq, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < SMX_HOST_SLOTS / 64; i++) {
		uint64_t bits = __atomic_exchange_n(&own->lanes_from[i], 0, __ATOMIC_ACQ_REL);

		while (bits) {
			open_in(h, i * 64 + (uint32_t)__builtin_ctzll(bits));
			bits &= bits - 1;
		}
	}
}

/* ------------------------------------------------------------------ receiving */

/* The sender's memory could not be read: it is told, if it is there. */
static void report_source_fault(struct host *h, const struct smx_frame *f)
{
	struct smx_frame r = {
		.transport = f->transport,
		.op = SMX_FRAME_SOURCE_FAULT,
		.first = true,
		.last = true,
		.src_qpn = f->dst_qpn,
		.dst_qpn = f->src_qpn,
		.psn = f->psn,
		.psn_count = 1,
		.dc_stream = f->dc_stream,
		.dc_nonce = f->dc_nonce,
		.check = h->attr.source_check,
		.text = f->gather_text,
	};

	host_send(&h->port, &r);
}

static void deliver(struct host *h, struct peer *p, uint32_t from, const struct smx_rec *rec)
{
	struct smx_frame *f = &h->arrived.frame;
	struct smx_host_pull hp;
	uint32_t owner;
	uint16_t gen16;

	/* Nobody speaks for another's queue pairs, and nobody is made to speak for a third. Nobody's
	 * numbers are those of one who has left. */
	owner = smx_host_owner(&h->reg, f->src_qpn, &gen16);
	if (owner != SMX_HOST_SLOTS && (owner != from || gen16 != (uint16_t)p->in_gen))
		return;
	if (f->dst_qpn != 0xffffff && !smx_port_is_own(&h->port, f->dst_qpn))
		return;
	if (h->arrived.carries_ack) {
		smx_shm_ack_carried(&h->arrived, &h->carried);
		h->port.answers++;
		h->port.deliver(h->port.deliver_arg, &h->carried);
	}
	if (h->arrived.run_count) {
		hp = (struct smx_host_pull){
			.from = &h->arrived, .rec = rec, .pid = p->pid,
			.far = h->arrived.shared ? smx_host_far(h, from, p->in_gen) : NULL,
		};
		smx_host_pull(&hp);
		f->pull = &hp.pull;
	}
	if (smx_frame_is_answer(f->op))
		h->port.answers++;
	else
		h->port.requests++;
	h->port.deliver(h->port.deliver_arg, f);
	if (f->gather_check && !(f->pull && hp.pull.gone) && !smx_frame_is_answer(f->op))
		report_source_fault(h, f);
}

/* RETURN whether the record is to wait: its answer would find no room. */
static bool must_wait(struct host *h, struct peer *p, const struct smx_rec *rec, uint32_t from)
{
	uint64_t bytes = ANSWER_ROOM_BYTES;
	uint32_t to;

	if (rec->transport == SMX_TP_UC || rec->transport == SMX_TP_UD)
		return false;
	/* Who speaks for others gets no answer. */
	if (!p->out.file || p->out_gen != p->in_gen) {
		p = link_to(h, smx_rec_number(rec->src_runs), &to);
		if (!p || to != from)
			return false;
	}
	if (rec->op == SMX_FRAME_READ_REQUEST) {
		uint64_t n = ((const struct smx_rec_remote *)(rec + 1))->dma_length;

		n = n < READ_PART_BYTES ? n : READ_PART_BYTES;
		/* In pieces, one of which may not fit the lane's end. */
		bytes += n + (n > PULL_FROM_BYTES ? SMX_REC_VALUE_MAX + ANSWER_ROOM_BYTES : 0);
	}
	bytes = smx_rec_lane_bytes(bytes);
	return !smx_lane_has_room(&p->out.lane[SMX_LANE_ANSWERS], (uint32_t)bytes) &&
	       smx_lane_want_room(&p->out.lane[SMX_LANE_ANSWERS], (uint32_t)bytes);
}

/* RETURN whether there is more. */
static bool take_lane(struct host *h, struct peer *p, uint32_t from, enum smx_lane_kind kind)
{
	struct smx_lane *lane = &p->in.lane[kind];
	bool took = false, more = true;
	uint64_t unanswered = 0;

	for (unsigned int i = 0; i < RECORDS_A_POLL; i++) {
		int32_t size;
		const void *rec = smx_lane_peek(lane, &size);

		if (size < 0) {
			smx_log(SMX_LOG_WARN, "process %d will not be heard any more: its lane is broken", p->pid);
			close_in(h, p, from);
			return false;
		}
		more = rec != NULL;
		if (!rec)
			break;
		if (kind == SMX_LANE_REQUESTS) {
			p->held = must_wait(h, p, rec, from);
			if (p->held) {
				more = false;
				break;
			}
		}
		if (smx_rec_read(rec, (uint32_t)size, &h->arrived) &&
		    smx_frame_is_answer(h->arrived.frame.op) == (kind == SMX_LANE_ANSWERS))
			deliver(h, p, from, rec);
		if (!p->in.file)
			return false;
		smx_lane_consume(lane, (uint32_t)size);
		took = true;
		unanswered += LANE_BYTE_COUNTS * (uint32_t)size + h->arrived.frame.length;
		if (unanswered >= ACK_EVERY_BYTES) {
			publish_ack(p);
			unanswered = 0;
		}
	}
	if (!took)
		return more;
	smx_lane_release(lane);
	if (smx_lane_take_want(lane))
		smx_ring_for_room(&h->reg.file->slot[from]);
	return more;
}

/* Somebody came or went: what belonged to those who went is let go. */
static void drop_gone(struct host *h)
{
	bool alone = true;

	h->epoch_seen = __atomic_load_n(&h->reg.file->epoch, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < SMX_HOST_SLOTS; i++) {
		struct smx_host_slot *slot = &h->reg.file->slot[i];
		struct peer *p = h->peer[i];
		bool used;

		if (!p)
			continue;
		used = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == SMX_HOST_USED;
		if (p->in.file && (!used || slot->gen != p->in_gen)) {
			/* What it sent before it went has been sent. */
			for (unsigned int kind = SMX_LANES; kind-- && p->in.file;)
				while (take_lane(h, p, i, kind))
					;
			if (p->in.file)
				close_in(h, p, i);
		}
		if (p->out.file && (!used || slot->gen != p->out_gen))
			close_out(h, p);
		if (p->far.file && (!used || slot->gen != p->far_gen))
			smx_far_close(&p->far);
		alone = alone && !p->in.file && !p->out.file;
	}
	h->port.immediate = alone;
	if (alone && h->port.linked) {
		h->port.linked = false;
		h->port.changes++;
	}
}

/* Requesters that wait: is there room again, or has it taken too long? RETURN when to look again. */
static uint64_t look_for_room(struct host *h)
{
	bool room = false;
	uint64_t now = smx_clock_ns();

	for (uint32_t i = h->blocked_count; i--;) {
		struct peer *p = h->peer[h->blocked[i]];

		/* It is asked for anew: the receiver tells once, of whatever room there is by then. */
		if (!smx_lane_want_room(&p->out.lane[SMX_LANE_REQUESTS], SMX_LANE_BYTES / 4)) {
			unblock(h, p);
			room = true;
		} else if (!p->given_up && now - p->full_since_ns >= STALLED_NS) {
			/* Once: all others would come back to wait at once. */
			room = p->given_up = true;
		}
	}
	if (room)
		h->port.room(h->port.deliver_arg);
	return h->blocked_count ? now + STALLED_NS : UINT64_MAX;
}

static uint64_t host_poll(struct smx_port *port, uint64_t now)
{
	struct host *h = (struct host *)port;
	uint64_t again = UINT64_MAX;
	bool more = false;

	(void)now;
	if (!h->reg.joined)
		return UINT64_MAX;
	port->bell_seen = __atomic_load_n(port->bell, __ATOMIC_ACQUIRE);
	ring_dirty(h);
	if (__atomic_load_n(&own_slot(h)->lanes_seq, __ATOMIC_ACQUIRE) != h->lanes_seen)
		find_links(h);
	if (__atomic_load_n(&h->reg.file->epoch, __ATOMIC_RELAXED) != h->epoch_seen)
		drop_gone(h);
	for (uint32_t i = 0; i < h->inbound_count; i++) {
		uint32_t from = h->inbound[i];
		struct peer *p = h->peer[from];

		for (unsigned int kind = SMX_LANES; kind-- && p->in.file;)
			if (smx_lane_has_news(&p->in.lane[kind]))
				more |= take_lane(h, p, from, kind);
		if (!p->listed)
			i--;
	}
	if (h->blocked_count)
		again = look_for_room(h);
	if (!port->polled)
		ring_dirty(h);
	return more ? 0 : again;
}

/* ------------------------------------------------------------------ sleeping */

static bool host_has_news(const struct smx_port *port)
{
	const struct host *h = (const struct host *)port;

	if (!h->reg.joined)
		return false;
	if (__atomic_load_n(port->bell, __ATOMIC_ACQUIRE) != port->bell_seen || h->dirty_count || h->blocked_count ||
	    __atomic_load_n(&h->reg.file->epoch, __ATOMIC_RELAXED) != h->epoch_seen)
		return true;
	for (uint32_t i = 0; i < h->inbound_count; i++) {
		const struct peer *p = h->peer[h->inbound[i]];

		if (smx_lane_has_news(&p->in.lane[SMX_LANE_REQUESTS]) ||
		    smx_lane_has_news(&p->in.lane[SMX_LANE_ANSWERS]))
			return true;
	}
	return false;
}

static bool something_arrived(const struct host *h, uint32_t listen)
{
	if (__atomic_load_n(&own_slot(h)->lanes_seq, __ATOMIC_ACQUIRE) != h->lanes_seen)
		return true;
	for (uint32_t i = 0; i < h->inbound_count; i++) {
		struct peer *p = h->peer[h->inbound[i]];
		uint32_t look = p->held ? listen & ~(uint32_t)SMX_LISTEN_REQUESTS : listen;
		int32_t size;

		for (unsigned int kind = 0; kind < SMX_LANES; kind++)
			if ((look >> kind & 1) && (smx_lane_peek(&p->in.lane[kind], &size) || size < 0))
				return true;
	}
	return false;
}

static bool host_doze(struct smx_port *port, uint32_t listen)
{
	struct host *h = (struct host *)port;

	if (!h->reg.joined)
		return true;
	__atomic_store_n(&own_slot(h)->sleeping, listen, __ATOMIC_RELAXED);
	if (!listen)
		return true;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!something_arrived(h, listen) && !h->dirty_count)
		return true;
	__atomic_store_n(&own_slot(h)->sleeping, 0, __ATOMIC_RELAXED);
	return false;
}

/* ------------------------------------------------------------------ the end */

static const struct smx_recall all_memory = { .length = UINTPTR_MAX };

static void drop_links(struct host *h)
{
	for (uint32_t i = 0; i < SMX_HOST_SLOTS; i++) {
		if (!h->peer[i])
			continue;
		smx_link_close(&h->peer[i]->in);
		smx_link_close(&h->peer[i]->out);
		smx_far_close(&h->peer[i]->far);
		free(h->peer[i]);
		h->peer[i] = NULL;
	}
	h->inbound_count = h->dirty_count = h->blocked_count = 0;
	h->port.linked = false;
	h->port.immediate = true;
	h->port.polled = false;
	h->port.bell = NULL;
	h->port.public = NULL;
	h->port.changes++;
	memset(h->own, 0xff, sizeof(h->own));
}

static void host_forked(struct smx_port *port)
{
	struct host *h = (struct host *)port;

	if (h->reg.joined)
		memcpy(h->inherited, h->own, sizeof(h->inherited));
	drop_links(h);
	smx_host_forget_tables(h);
	smx_host_close(&h->reg);
	h->tried = false;
	port->room(port->deliver_arg);
}

/* The bell stays mapped: threads of ours may be about to ring it or to sleep on it. */
static void host_leave(struct smx_port *port)
{
	struct host *h = (struct host *)port;

	smx_port_recall(port, &all_memory);
	drop_links(h);
	smx_host_forget_tables(h);
	smx_host_give_back(&h->reg);
	h->tried = true;
	port->room(port->deliver_arg);
}

static void host_destroy(struct smx_port *port)
{
	struct host *h = (struct host *)port;

	smx_port_recall(port, &all_memory);
	drop_links(h);
	smx_host_forget_tables(h);
	smx_host_leave(&h->reg);
	free(h);
}

static const struct smx_port_ops host_ops = {
	.send = host_send,
	.poll = host_poll,
	.has_news = host_has_news,
	.destroy = host_destroy,
	.admit = host_admit,
	.numbers = host_numbers,
	.doze = host_doze,
	.forked = host_forked,
	.leave = host_leave,
	.sought = host_sought,
	.publish_key = smx_host_publish_key,
	.withdraw_key = smx_host_withdraw_key,
	.publish_qp = smx_host_publish_qp,
	.reach = smx_host_reach,
	.reached = smx_host_reached,
	.recall = smx_host_recall,
};

struct smx_port *smx_net_host_create(const struct smx_net_host_attr *attr)
{
	struct host *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->attr = *attr;
	h->port.ops = &host_ops;
	h->port.max_payload_bytes = LOCAL_PAYLOAD_BYTES;
	h->port.untimed = true;
	h->port.immediate = true;
	memset(h->own, 0xff, sizeof(h->own));
	h->port.own = h->own;
	return &h->port;
}
