/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Completions against what was posted, and bytes against what they should be. */
#include "soak.h"

#include <sys/uio.h>

static const char *const what_name[WHATS] = {
	"WRITE",
	"WRITE with immediate",
	"READ",
	"fetch-and-add",
	"compare-and-swap",
	"SEND",
	"memcpy",
	"UMR",
	"WRITE of 0 bytes",
	"request of uncertain outcome",
};

/* ---- messages ---- */

struct message message_of(const struct conn *c, int sender, uint32_t epoch, uint32_t seq)
{
	uint64_t h = mix(w.common->seed ^ mix((uint64_t)c->id << 1 | (uint32_t)sender) ^
			 mix((uint64_t)epoch << 32 | seq));
	uint32_t most = c->kind == UD ? 4096 : c->recv_bytes;
	struct message m = { .seed = h,
			     .has_imm = h & 1,
			     .is_write = (h & 6) == 6 && c->kind != UD };

	m.imm = c->id << 20 | (epoch & 0xff) << 12 | (seq & 0xfff);
	h = mix(h);
	m.len = 16 + (uint32_t)(h >> 8) % ((h & 3) ? 200 : most - 16);
	/* Only where the receiver knows by itself which one it is. */
	if (c->kind == RC && (h & 0x70) == 0x70)
		m.len = (uint32_t)(h >> 40) % 16;
	if (m.is_write)
		m.has_imm = true;
	return m;
}

struct header {
	uint32_t id, epoch, seq, len;
};

static void check_message(struct conn *c, const struct ibv_wc *wc, const uint8_t *p, uint32_t epoch,
			  uint32_t seq)
{
	struct message m = message_of(c, !w.me, epoch, seq);
	uint32_t grh = c->kind == UD ? GRH_BYTES : 0;
	struct header h = { c->id, epoch, seq, m.len };

	w.mine->messages++;
	if (m.is_write != (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM))
		wrong("%s: message %u of epoch %u arrived as opcode %d", conn_name(c), seq, epoch,
		      wc->opcode);
	if (wc->byte_len != m.len + grh)
		wrong("%s: message %u of epoch %u has %u bytes, sent were %u", conn_name(c), seq,
		      epoch, wc->byte_len, m.len + grh);
	if (m.has_imm != !!(wc->wc_flags & IBV_WC_WITH_IMM) ||
	    (m.has_imm && be32toh(wc->imm_data) != m.imm))
		wrong("%s: message %u of epoch %u has immediate data 0x%x (flags 0x%x), want 0x%x",
		      conn_name(c), seq, epoch, be32toh(wc->imm_data), wc->wc_flags,
		      m.has_imm ? m.imm : 0);
	if (m.is_write)
		return;
	pattern(w.scratch, m.len, m.seed);
	if (m.len >= sizeof(h))
		memcpy(w.scratch, &h, sizeof(h));
	w.mine->checked_bytes += m.len;
	for (uint32_t i = 0; i < m.len; i++)
		if (p[grh + i] != w.scratch[i])
			wrong("%s: byte %u of the %u of message %u of epoch %u is 0x%02x, sent was "
			      "0x%02x",
			      conn_name(c), i, m.len, seq, epoch, p[grh + i], w.scratch[i]);
}

/* Which message is it? Reliable ones come without gaps; the others may be lost, but do not come
 * twice. */
static void take_message(struct conn *c, const struct ibv_wc *wc, const uint8_t *p)
{
	uint32_t grh = c->kind == UD ? GRH_BYTES : 0, epoch = c->recv_epoch, seq = c->recv_seq;
	bool reliable = c->kind != UC && c->kind != UD;
	struct header h;

	if (c->kind == RC) {
		epoch = c->epoch;
		if (epoch != c->recv_epoch)
			seq = 0;
	} else if (wc->wc_flags & IBV_WC_WITH_IMM) {
		uint32_t imm = be32toh(wc->imm_data), low = imm & 0xfff;

		epoch += ((imm >> 12 & 0xff) - epoch) & 0xff;
		seq = epoch == c->recv_epoch ? seq : 0;
		seq += (low - seq) & 0xfff;
	} else {
		memcpy(&h, p + grh, sizeof(h));
		if (wc->byte_len < grh + sizeof(h) || h.id != c->id)
			wrong("%s: a message of %u bytes that names connection %u", conn_name(c),
			      wc->byte_len, h.id);
		epoch = h.epoch;
		seq = h.seq;
	}
	if (epoch != c->recv_epoch) {
		if (epoch < c->recv_epoch)
			wrong("%s: a message of epoch %u after one of epoch %u", conn_name(c),
			      epoch, c->recv_epoch);
		c->recv_epoch = epoch;
		c->recv_seq = 0;
	}
	if (seq < c->recv_seq || (reliable && seq != c->recv_seq))
		wrong("%s: message %u of epoch %u came, the next is %u", conn_name(c), seq, epoch,
		      c->recv_seq);
	w.mine->lost += seq - c->recv_seq;
	c->recv_seq = seq + 1;
	check_message(c, wc, p, epoch, seq);
}

/* ---- receives ---- */

static bool peer_is_loose(const struct conn *c)
{
	return get(&their_end(c)->loose) == c->epoch || their_state(c) > state_of(c->epoch, RUN);
}

/* May this end of the connection be in error without a request of its own having failed? */
static bool may_be_down(const struct conn *c)
{
	return c->broken || c->phase != RUN || get(&my_end(c)->loose) == c->epoch ||
	       peer_is_loose(c) || (c->group && c->group->err);
}

static void recv_failed(struct conn *c, const struct ibv_wc *wc, bool bad)
{
	bool good = wc->status == IBV_WC_WR_FLUSH_ERR ? may_be_down(c)
		    : wc->status == IBV_WC_LOC_PROT_ERR || wc->status == IBV_WC_LOC_LEN_ERR
			    ? bad
			    : wc->status == IBV_WC_REM_ABORT_ERR && peer_is_loose(c);

	if (!good)
		wrong("%s, epoch %u: a receive failed: %s, vendor 0x%x; nothing was done to bring "
		      "that about",
		      conn_name(c), c->epoch, ibv_wc_status_str(wc->status), wc->vendor_err);
	c->broken = true;
}

static void take_shared(const struct ibv_wc *wc)
{
	uint32_t which = wc->wr_id >> 16 & 1, slot = wc->wr_id & 0xffff, id;
	uint8_t *p = w.shared_recv.p + (size_t)(which * SRQ_RECVS + slot) * SHARED_RECV_BYTES;

	if (slot >= SRQ_RECVS || !w.srq_busy[which][slot])
		wrong("a receive of a shared queue completed that is not posted: wr_id 0x%" PRIx64,
		      wc->wr_id);
	w.srq_busy[which][slot] = false;
	if (wc->status == IBV_WC_SUCCESS) {
		memcpy(&id, p, sizeof(id));
		if (wc->wc_flags & IBV_WC_WITH_IMM)
			id = be32toh(wc->imm_data) >> 20;
		if (id >= w.common->conns || w.conn[id].kind != (which ? DC : XRC))
			wrong("a message of %u bytes in a shared queue names connection %u",
			      wc->byte_len, id);
		take_message(&w.conn[id], wc, p);
	} else if (wc->status != IBV_WC_REM_ABORT_ERR && wc->status != IBV_WC_WR_FLUSH_ERR) {
		wrong("a receive of a shared queue failed: %s, vendor 0x%x",
		      ibv_wc_status_str(wc->status), wc->vendor_err);
	}
	srq_post((int)which, slot);
}

static void take_recv(const struct ibv_wc *wc)
{
	uint32_t id = wc->wr_id >> 48 & 0x7fff, epoch = wc->wr_id >> 32 & 0xffff, at;
	struct conn *c;

	if (id == SHARED_ID) {
		take_shared(wc);
		return;
	}
	c = &w.conn[id];
	if (id >= w.common->conns || epoch != (c->epoch & 0xffff) || !c->recv_out)
		wrong("%s: a receive of epoch %u completed in epoch %u, with %u posted",
		      conn_name(c), epoch, c->epoch, c->recv_out);
	at = c->recv_head++ % RECVS;
	if ((uint32_t)wc->wr_id != c->recv_wr[at])
		wrong("%s: receive %u completed, the oldest is %u", conn_name(c),
		      (uint32_t)wc->wr_id, c->recv_wr[at]);
	c->recv_out--;
	c->since = t_now_ms();
	if (wc->status != IBV_WC_SUCCESS) {
		recv_failed(c, wc, c->recv_bad[at]);
		return;
	}
	if (wc->wc_flags & IBV_WC_WITH_INV) {
		if (!c->mkey || wc->invalidated_rkey != c->mkey->rkey)
			wrong("%s: a message invalidated key 0x%x", conn_name(c),
			      wc->invalidated_rkey);
		put(&my_end(c)->key_epoch, 0);
		c->umr_wanted = true;
	}
	take_message(c, wc, c->recv + (size_t)at * c->recv_bytes);
}

/* ---- the peer's slice ---- */

/* Where byte i of an operation lies in the slice. */
uint32_t slice_at(const struct conn *c, const struct op *o, uint32_t i)
{
	uint32_t at = o->at + i, body = c->size - WORDS_BYTES, quarter = body / 4;

	if (!o->via_key)
		return at;
	if (o->layout)
		return WORDS_BYTES + (at ^ 64);
	return WORDS_BYTES + (3 - at / quarter) * quarter + at % quarter;
}

void op_apply(const struct conn *c, const struct op *o, uint8_t *slice)
{
	uint64_t word;

	if (!o->effect)
		return;
	if (o->what == W_WRITE || o->what == W_WRITE_IMM) {
		uint8_t *bytes = w.scratch2;

		pattern(bytes, o->len, o->seed);
		if (!o->via_key)
			memcpy(slice + o->at, bytes, o->len);
		for (uint32_t i = 0; o->via_key && i < o->len; i++)
			slice[slice_at(c, o, i)] = bytes[i];
	} else if (o->what == W_FETCH_ADD || o->what == W_CMP_SWAP) {
		memcpy(&word, slice + o->at, 8);
		if (o->what == W_FETCH_ADD)
			word += o->swap;
		else if (word == o->compare)
			word = o->swap;
		memcpy(slice + o->at, &word, 8);
	}
}

static bool look(const struct conn *c, uint8_t *to)
{
	struct iovec local = { to, c->size },
		     remote = { (void *)(uintptr_t)(w.theirs->arena[c->arena] + c->at), c->size };

	if (!w.can_look)
		return false;
	if (process_vm_readv(w.theirs->pid, &local, 1, &remote, 1, 0) != (ssize_t)c->size)
		wrong("the other process's memory could not be looked at: %s", strerror(errno));
	w.mine->checked_bytes += c->size;
	return true;
}

/* Is each byte of it one of a's or b's? RETURN the first that is not, or the size. */
static uint32_t between(const uint8_t *is, const uint8_t *a, const uint8_t *b, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && (is[i] == a[i] || is[i] == b[i]))
		i++;
	return i;
}

/* What failed may have happened up to any point, but in order: some requests wholly, one in part,
 * the rest not. */
void conn_look(struct conn *c)
{
	uint8_t *is = w.scratch, *next = c->base;
	uint32_t at = 0, best = 0;

	if (c->kind == UC || c->kind == UD || !look(c, is)) {
		c->failed_count = 0;
		return;
	}
	memcpy(next, c->shadow, c->size);
	for (uint32_t i = 0; i <= c->failed_count; i++) {
		if (i < c->failed_count)
			op_apply(c, &c->failed[i], next);
		at = between(is, c->shadow, next, c->size);
		if (at == c->size)
			break;
		best = at > best ? at : best;
		memcpy(c->shadow, next, c->size);
	}
	if (at != c->size)
		wrong("%s, epoch %u: the peer's memory holds 0x%02x at byte %u of %u, which no "
		      "prefix of what was posted "
		      "leaves there (0x%02x with all of it); %u requests failed, the first: %s of "
		      "%u bytes at %u%s%s",
		      conn_name(c), c->epoch, is[best], best, c->size, next[best], c->failed_count,
		      c->failed_count ? what_name[c->failed[0].what] : "none", c->failed[0].len,
		      c->failed[0].at, c->failed[0].name ? ", on purpose: " : "",
		      c->failed[0].name ? c->failed[0].name : "");
	memcpy(c->shadow, is, c->size);
	c->failed_count = 0;
}

bool conn_look_loss(struct conn *c, bool wait)
{
	uint8_t *is = w.scratch, *seen = w.scratch2;
	uint32_t i;

	if (!look(c, is) || !memcmp(is, c->shadow, c->size)) {
		memcpy(c->base, c->shadow, c->size);
		c->failed_count = 0;
		return true;
	}
	if (wait)
		return false;
	seen += c->size;
	for (i = 0; i < c->size; i++)
		seen[i] = is[i] == c->base[i];
	for (uint32_t k = 0; k < c->failed_count; k++) {
		const struct op *o = &c->failed[k];

		pattern(w.scratch2, o->len, o->seed);
		for (i = 0; i < o->len; i++)
			seen[o->at + i] |= is[o->at + i] == w.scratch2[i];
	}
	for (i = 0; i < c->size; i++)
		if (!seen[i])
			wrong("%s, epoch %u: the peer's memory holds 0x%02x at byte %u of %u, "
			      "which nothing that was "
			      "written since the last look leaves there",
			      conn_name(c), c->epoch, is[i], i, c->size);
	w.mine->lost++;
	memcpy(c->shadow, is, c->size);
	memcpy(c->base, is, c->size);
	c->failed_count = 0;
	return true;
}

/* ---- requests ---- */

static void check_read(struct conn *c, const struct op *o)
{
	const uint8_t *p = c->local + (size_t)o->slot * c->size;

	w.mine->checked_bytes += o->len;
	for (uint32_t i = 0; i < o->len; i++)
		if (p[i] != c->shadow[slice_at(c, o, i)])
			wrong("%s, epoch %u: byte %u of a READ of %u bytes at %u%s is 0x%02x, the "
			      "peer's memory has 0x%02x",
			      conn_name(c), c->epoch, i, o->len, o->at,
			      o->via_key ? " through a UMR key" : "", p[i],
			      c->shadow[slice_at(c, o, i)]);
	for (uint32_t i = o->len; i < o->len + GUARD_BYTES && i < c->size; i++)
		if (p[i] != 0xee)
			wrong("%s: a READ of %u bytes wrote behind its buffer", conn_name(c),
			      o->len);
}

static void check_atomic(struct conn *c, const struct op *o)
{
	uint64_t got, want;

	memcpy(&got, c->local + (size_t)o->slot * c->size, 8);
	memcpy(&want, c->shadow + o->at, 8);
	if (got != want)
		wrong("%s, epoch %u: a %s returned 0x%" PRIx64 ", the word was 0x%" PRIx64,
		      conn_name(c), c->epoch, what_name[o->what], got, want);
}

static void check_memcpy(struct conn *c, const struct op *o)
{
	const uint8_t *p = c->local + (size_t)o->slot * c->size;

	pattern(w.scratch, o->len, o->seed);
	if (memcmp(p + c->size / 2, w.scratch, o->len))
		wrong("%s: a memcpy of %u bytes put something else there", conn_name(c), o->len);
}

static void log_failed(struct conn *c, const struct op *o)
{
	if (c->failed_count < LOG_MAX)
		c->failed[c->failed_count++] = *o;
}

static void succeeded(struct conn *c, const struct op *o)
{
	if (!(o->allow & OK(IBV_WC_SUCCESS)))
		wrong("%s, epoch %u: a %s succeeded though it was wrong on purpose: %s",
		      conn_name(c), c->epoch, what_name[o->what], o->name);
	if (o->effect && c->kind == UC)
		log_failed(c, o);
	if (o->what == W_READ && o->effect)
		check_read(c, o);
	else if ((o->what == W_FETCH_ADD || o->what == W_CMP_SWAP) && o->effect)
		check_atomic(c, o);
	else if (o->what == W_MEMCPY)
		check_memcpy(c, o);
	op_apply(c, o, c->shadow);
	if (o->what == W_UMR) {
		my_end(c)->key = c->mkey->rkey;
		my_end(c)->key_gen = (my_end(c)->key_gen & ~1u) + 2 + o->layout;
		put(&my_end(c)->key_epoch, c->epoch);
	} else if (o->what == W_SYNC) {
		c->syncing = false;
		conn_look(c);
	}
}

static bool may_fail(const struct conn *c, const struct op *o, const struct ibv_wc *wc)
{
	bool loose = peer_is_loose(c) || c->quick;

	if (o->allow & OK(wc->status))
		return true;
	switch (wc->status) {
	case IBV_WC_WR_FLUSH_ERR:
		return may_be_down(c);
	case IBV_WC_RETRY_EXC_ERR:
		return loose || get(&my_end(c)->loose) == c->epoch;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return c->quick && o->receives;
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		return o->receives && loose;
	default:
		return false;
	}
}

static void failed(struct conn *c, const struct op *o, const struct ibv_wc *wc)
{
	w.mine->failures++;
	if (!may_fail(c, o, wc))
		wrong("%s, epoch %u: a %s of %u bytes failed: %s, vendor 0x%x; %s%s (ours 0x%x, "
		      "broken %d; theirs 0x%x, loose "
		      "%u)",
		      conn_name(c), c->epoch, what_name[o->what], o->len,
		      ibv_wc_status_str(wc->status), wc->vendor_err,
		      o->name ? "wrong on purpose was: " : "nothing was wrong with it",
		      o->name ? o->name : "", state_of(c->epoch, c->phase), c->broken,
		      their_state(c), get(&their_end(c)->loose));
	if (wc->status != IBV_WC_WR_FLUSH_ERR && c->send_failed)
		wrong("%s, epoch %u: %s behind a request that failed already", conn_name(c),
		      c->epoch, ibv_wc_status_str(wc->status));
	/* What the responder refused has not happened. */
	if (o->effect &&
	    !((OK(IBV_WC_REM_ACCESS_ERR) & o->allow) && wc->status == IBV_WC_REM_ACCESS_ERR))
		log_failed(c, o);
	if (o->what == W_SYNC)
		c->syncing = false;
	c->broken = c->send_failed = true;
}

static void take_send(const struct ibv_wc *wc)
{
	uint32_t id = wc->wr_id >> 48 & 0x7fff, at;
	struct conn *c = &w.conn[id];

	if (id >= w.common->conns)
		wrong("a completion with wr_id 0x%" PRIx64 ", which was never used", wc->wr_id);
	for (at = c->head; at != c->tail && c->ring[at % WINDOW].wr_id != wc->wr_id; at++)
		;
	if (at == c->tail)
		wrong("%s, epoch %u: wr_id 0x%" PRIx64
		      " completed (%s), which is not outstanding: %u are, from 0x%" PRIx64,
		      conn_name(c), c->epoch, wc->wr_id, ibv_wc_status_str(wc->status),
		      c->tail - c->head, c->head == c->tail ? 0 : c->ring[c->head % WINDOW].wr_id);
	while (c->head != at) {
		const struct op *o = &c->ring[c->head % WINDOW];

		if (o->signaled || c->send_failed)
			wrong("%s, epoch %u: wr_id 0x%" PRIx64 " completed (%s) before 0x%" PRIx64
			      ", which %s",
			      conn_name(c), c->epoch, wc->wr_id, ibv_wc_status_str(wc->status),
			      o->wr_id,
			      o->signaled ? "was posted earlier" : "should have been flushed");
		succeeded(c, o);
		c->head++;
	}
	if (wc->status == IBV_WC_SUCCESS && (c->send_failed || !c->ring[at % WINDOW].signaled))
		wrong("%s, epoch %u: wr_id 0x%" PRIx64 " succeeded %s", conn_name(c), c->epoch,
		      wc->wr_id,
		      c->send_failed ? "behind a failed one" : "and says so, though unsignaled");
	if (wc->status == IBV_WC_SUCCESS)
		succeeded(c, &c->ring[at % WINDOW]);
	else
		failed(c, &c->ring[at % WINDOW], wc);
	c->head = at + 1;
	c->since = t_now_ms();
}

int poll_all(void)
{
	struct ibv_wc wc[16];
	int total = 0;

	for (int i = 0; i < 2 * CQS; i++) {
		struct ibv_cq *cq = i < CQS ? w.scq[i] : w.rcq[i - CQS];
		int n = ibv_poll_cq(cq, 16, wc);

		if (n < 0)
			wrong("ibv_poll_cq returned %d", n);
		for (int j = 0; j < n; j++) {
			w.mine->completions++;
			w.mine->status[wc[j].status & 31]++;
			if (wc[j].wr_id >> 63)
				take_recv(&wc[j]);
			else
				take_send(&wc[j]);
		}
		total += n;
	}
	return total;
}
