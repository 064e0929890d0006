/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Random work against a simple model. Lanes (an RC pair, a stream of a DCI) do mixed requests on slices of
 * memory of their own; the model applies each to a shadow copy when it is posted, in order. Errors are
 * injected and recovered from. At the end memory equals the shadow, and every request completed as
 * foretold, once, in its lane's order.
 *
 *   random_model [SEED [STEPS]]	without arguments: a fixed set of seeds */
#include "t_why.h"
#include "umr.h"

enum {
	RC_LANES = 6, DCIS = 2, STREAMS = 4, DC_LANES = DCIS * STREAMS, LANES = RC_LANES + DC_LANES, UDS = 2,
	SLICE = 8192,			/* local, and remote, of each lane */
	RECV = 256,			/* bytes of a receive */
	WINDOW = 24,			/* requests of a lane that may be outstanding */
	SLOTS = 64, SLOT = 512,		/* receives of the SRQ and of each UD queue pair */
	KEY = 0x4d4f44454c,
	STEPS = 6000,
};

struct want { uint64_t wr_id; int opcode; enum ibv_wc_status status; };

struct lane {
	int id;
	struct t_qp *q, *peer;		/* peer: RC only */
	int stream;
	size_t local, remote;		/* offsets in the arena */
	struct want fifo[512];		/* completions that are to come, in order */
	uint32_t head, tail;
	uint32_t seq;			/* requests posted */
	uint32_t in_flight;		/* requests whose completion was not yet seen or implied */
	bool fence;			/* the next request must wait for reads, atomics or a copy */
	uint32_t recv_planned, recv_posted, recv_done;	/* RC */
	uint32_t recv_len[1024];	/* byte_len foretold, by receive */
	struct mlx5dv_mkey *mkey;
	struct umr_map map;		/* of the key, in the arena; len 0: not registered */
	bool failing;			/* an error was injected: receives may be flushed */
};

/* A message whose receive is not known beforehand (SRQ, UD): found by its immediate data. */
struct letter { uint32_t len, hash; bool arrived; int lane; };

static struct t_env *env;
static struct t_buf arena;
static uint8_t *shadow;
static struct t_pair rc[RC_LANES];
static struct t_qp dci[DCIS], dct, ud[UDS];
static struct ibv_srq *srq;
static struct ibv_cq *scq, *rcq;
static struct ibv_ah *ah;
static struct lane lanes[LANES];
static struct t_buf slots[1 + UDS];	/* of the SRQ, of each UD queue pair */
static struct letter letters[1 << 16];
static uint32_t letter_count, letters_open, dc_last[LANES];
static uint64_t rng;

static uint32_t rnd(uint32_t below)
{
	return t_rnd(&rng, below);
}

static uint32_t hash(const uint8_t *p, size_t n)
{
	uint32_t h = 2166136261u;

	while (n--)
		h = (h ^ *p++) * 16777619u;
	return h;
}

static uint8_t *at(size_t off)
{
	return shadow + off;
}

static struct ibv_sge sge_of(size_t off, uint32_t len)
{
	return t_sge(&arena, off, len);
}

/* ---- completions ---- */

static void foretell(struct lane *l, const struct want *w)
{
	l->fifo[l->head++ % 512] = *w;
}

static void saw_send(const struct ibv_wc *wc)
{
	uint32_t id = wc->wr_id >> 32;
	struct lane *l;
	struct want *w;

	if (id >= LANES) {		/* UD */
		EXPECT_EQ(wc->status, IBV_WC_SUCCESS, "status of a datagram");
		return;
	}
	l = &lanes[id];
	w = &l->fifo[l->tail % 512];
	if (!EXPECT(l->head != l->tail, "lane %u: completion of %" PRIx64 " that nobody awaits: %s", id,
		    wc->wr_id, ibv_wc_status_str(wc->status)))
		return;
	l->tail++;
	EXPECT(w->wr_id == wc->wr_id, "lane %u: completion of %" PRIx64 ", want %" PRIx64, id, wc->wr_id, w->wr_id);
	EXPECT(w->status == wc->status, "lane %u %" PRIx64 ": %s, want %s", id, wc->wr_id,
	       ibv_wc_status_str(wc->status), ibv_wc_status_str(w->status));
	if (wc->status == IBV_WC_SUCCESS)
		EXPECT((int)wc->opcode == w->opcode, "lane %u %" PRIx64 ": opcode %d, want %d", id, wc->wr_id,
		       wc->opcode, w->opcode);
	l->in_flight = l->seq - (uint32_t)wc->wr_id;
}

static void post_slot(int which, uint32_t slot)
{
	struct ibv_sge sge = t_sge(&slots[which], slot * SLOT, SLOT);

	if (which == 0)
		t_srq_recv(srq, (uint64_t)(LANES + UDS) << 32 | slot, sge);
	else
		t_recv(&ud[which - 1], (uint64_t)(LANES + UDS + which) << 32 | slot, sge);
}

static void saw_letter(const struct ibv_wc *wc, int which)
{
	uint32_t slot = (uint32_t)wc->wr_id, id = be32toh(wc->imm_data), grh = which ? 40 : 0;
	struct letter *m = &letters[id & 0xffff];

	EXPECT_EQ(wc->status, IBV_WC_SUCCESS, "status of a receive");
	if (!EXPECT(id < letter_count && slot < SLOTS, "letter %u of %u in slot %u", id, letter_count, slot))
		return;
	EXPECT(!m->arrived, "letter %u arrived twice", id);
	m->arrived = true;
	letters_open--;
	EXPECT(wc->byte_len == m->len + grh, "letter %u: %u bytes, want %u", id, wc->byte_len, m->len + grh);
	EXPECT(hash(slots[which].p + slot * SLOT + grh, m->len) == m->hash, "letter %u: data", id);
	if (which == 0) {
		EXPECT(id >= dc_last[m->lane], "letter %u overtook another of its stream", id);
		dc_last[m->lane] = id;
	}
	post_slot(which, slot);
}

static void saw_recv(const struct ibv_wc *wc)
{
	uint32_t id = wc->wr_id >> 32;
	struct lane *l;

	if (id >= LANES + UDS) {
		saw_letter(wc, id - LANES - UDS);
		return;
	}
	l = &lanes[id];
	if (l->failing && wc->status == IBV_WC_WR_FLUSH_ERR)
		return;
	EXPECT(wc->status == IBV_WC_SUCCESS, "lane %u: receive: %s", id, ibv_wc_status_str(wc->status));
	EXPECT((uint32_t)wc->wr_id == l->recv_done, "lane %u: receive %u, want %u", id, (uint32_t)wc->wr_id,
	       l->recv_done);
	EXPECT(wc->byte_len == l->recv_len[l->recv_done % 1024], "lane %u: receive %u: byte_len %u, want %u",
	       id, l->recv_done, wc->byte_len, l->recv_len[l->recv_done % 1024]);
	l->recv_done++;
}

static bool poll_some(void)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(scq, 16, wc), m;

	for (int i = 0; i < n; i++)
		saw_send(&wc[i]);
	m = ibv_poll_cq(rcq, 16, wc);
	for (int i = 0; i < m; i++)
		saw_recv(&wc[i]);
	return n > 0 || m > 0;
}

static void wait_while(bool (*busy)(const struct lane *), const struct lane *l, const char *what)
{
	uint64_t end = t_now_ms() + 20000;

	while (busy(l) && !t_state.failures) {
		if (!poll_some() && t_now_ms() > end) {
			t_fail(__FILE__, __LINE__, "lane %d: waited in vain: %s", l ? l->id : -1, what);
			t_leave();
		}
	}
}

static bool sends_open(const struct lane *l)
{
	return l->head != l->tail;
}

static bool recvs_open(const struct lane *l)
{
	return l->recv_done != l->recv_planned;
}

static bool letters_are_open(const struct lane *l)
{
	(void)l;
	return letters_open > 0;
}

/* ---- receives of RC lanes: where the k-th lies is fixed beforehand, so that the model knows ---- */

static size_t recv_off(const struct lane *l, uint32_t k)
{
	return l->remote + SLICE / 2 + (k * 2654435761u >> 8) % (SLICE / 2 - RECV);
}

static void post_receives(struct lane *l)
{
	while (l->recv_posted != l->recv_planned) {
		t_recv(l->peer, (uint64_t)l->id << 32 | l->recv_posted, sge_of(recv_off(l, l->recv_posted), RECV));
		l->recv_posted++;
	}
}

/* ---- requests ---- */

/* Remote place of a transfer: the slice itself, or the key over it. RETURN rkey; byte i of it is *(*map)[i]. */
static uint32_t remote_place(struct lane *l, uint32_t len, uint64_t *va, uint8_t **byte)
{
	bool through_key = l->map.len >= len && len && rnd(2);
	uint64_t off = through_key ? rnd(l->map.len - len + 1) : rnd(SLICE - len + 1);

	for (uint32_t i = 0; i < len; i++)
		byte[i] = through_key ? at(l->map.byte[off + i] - arena.p) : at(l->remote + off + i);
	*va = through_key ? off : arena.va + l->remote + off;
	return through_key ? l->mkey->rkey : arena.key;
}

static struct t_op start(struct lane *l, enum ibv_wr_opcode op)
{
	struct t_op o = { .op = op, .wr_id = (uint64_t)l->id << 32 | ++l->seq, .stream = -1 };

	if (rnd(3) == 0 || l->in_flight > WINDOW - 4)
		o.flags |= IBV_SEND_SIGNALED;
	if (l->fence)
		o.flags |= IBV_SEND_FENCE;
	l->fence = false;
	l->in_flight++;
	if (l->stream >= 0) {
		o.ah = ah;
		o.dest = dct.qp->qp_num;
		o.dc_key = KEY;
		o.stream = l->stream;
	}
	return o;
}

static void post(struct lane *l, struct t_op *o, int opcode)
{
	if (o->flags & IBV_SEND_SIGNALED)
		foretell(l, &(struct want) { o->wr_id, opcode, IBV_WC_SUCCESS });
	EXPECT_EQ(l->stream < 0 && rnd(3) == 0 ? t_post_old(l->q, o) : t_post(l->q, o), 0, "posting");
}

/* Local entries of len bytes together, one to four of them, which may not overlap where they are written. */
static void local_entries(struct lane *l, struct t_op *o, uint32_t len, uint8_t **byte)
{
	int n = 1 + rnd(4);
	uint32_t done = 0;

	o->nsge = n;
	o->set = n > 1 || rnd(2) ? T_SGE_LIST : T_SGE;
	for (int i = 0; i < n; i++) {
		uint32_t part = i == n - 1 ? len - done : (len - done ? rnd(len - done + 1) : 0);
		size_t off = l->local + i * (SLICE / 4) + rnd(SLICE / 4 - (part > SLICE / 4 ? SLICE / 4 : part) + 1);

		o->sge[i] = sge_of(off, part);
		for (uint32_t b = 0; b < part; b++)
			byte[done++] = at(off + b);
	}
}

static uint32_t some_length(uint32_t most)
{
	static const uint32_t edge[] = { 0, 1, 4, 8, 31, 32, 33, 63, 64, 65, 255, 256, 1024, 2048 };
	uint32_t len = rnd(2) ? edge[rnd(14)] : rnd(most + 1);

	return len > most ? most : len;
}

static void do_rdma(struct lane *l, bool read)
{
	uint8_t *local[SLICE], *remote[SLICE];
	uint32_t len = some_length(SLICE / 4);
	struct t_op o = start(l, read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE);

	o.rkey = remote_place(l, len, &o.raddr, remote);
	local_entries(l, &o, len, local);
	if (!read && len <= 60 && rnd(2)) {
		o.set = T_INLINE_LIST;
		/* Inline data is taken from memory while posting: wait until reads before have written it. */
		if (l->stream < 0)
			post_receives(l);
		wait_while(sends_open, l, "reads before inline data");
		if (l->in_flight > 1)
			o.set = T_SGE_LIST;
	}
	if (o.set == T_INLINE_LIST)
		for (int i = 0; i < o.nsge; i++)	/* what is posted is what the memory says now */
			EXPECT(!memcmp((void *)(uintptr_t)o.sge[i].addr, at(o.sge[i].addr - arena.va), o.sge[i].length),
			       "memory before inline data");
	for (uint32_t i = 0; i < len; i++)
		*(read ? local : remote)[i] = *(read ? remote : local)[i];
	post(l, &o, read ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
	l->fence = read;
}

static void do_atomic(struct lane *l)
{
	bool add = rnd(2);
	struct t_op o = start(l, add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP);
	size_t there = l->remote + rnd(SLICE / 8) * 8, here = l->local + rnd(SLICE - 8);
	uint64_t old, new;

	memcpy(&old, at(there), 8);
	o.rkey = arena.key;
	o.raddr = arena.va + there;
	o.nsge = 1;
	o.sge[0] = sge_of(here, 8);
	o.compare_add = add || rnd(2) ? rnd(1000) : old;
	o.swap = (uint64_t)rnd(1u << 30) << 20;
	new = add ? old + o.compare_add : old == o.compare_add ? o.swap : old;
	memcpy(at(there), &new, 8);
	memcpy(at(here), &old, 8);
	post(l, &o, add ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP);
	l->fence = true;
}

static void new_letter(struct lane *l, struct t_op *o, uint8_t **byte, uint32_t len)
{
	uint8_t text[SLOT];

	for (uint32_t i = 0; i < len; i++)
		text[i] = *byte[i];
	o->imm = letter_count;
	letters[letter_count++] = (struct letter) { .len = len, .hash = hash(text, len), .lane = l ? l->id : -1 };
	letters_open++;
}

static void do_send(struct lane *l)
{
	uint8_t *local[SLICE];
	uint32_t len = some_length(RECV);
	struct t_op o = start(l, IBV_WR_SEND_WITH_IMM);

	local_entries(l, &o, len, local);
	if (l->stream >= 0) {
		new_letter(l, &o, local, len);
	} else {
		size_t to = recv_off(l, l->recv_planned);

		for (uint32_t i = 0; i < len; i++)
			*at(to + i) = *local[i];
		l->recv_len[l->recv_planned++ % 1024] = len;
		if (rnd(2))
			post_receives(l);	/* before; or later: the sender waits (RNR) */
	}
	post(l, &o, IBV_WC_SEND);
	if (l->stream < 0 && rnd(2))
		post_receives(l);
}

/* A copy by the device, inside the lane's own memory. */
static void do_memcpy(struct lane *l)
{
	struct t_op o = start(l, IBV_WR_SEND);
	uint32_t len = 1 + rnd(SLICE / 2);
	size_t from = l->local + rnd(SLICE - len), to = l->remote + rnd(SLICE / 2);

	if (len > SLICE / 2)
		len = SLICE / 2;
	memmove(at(to), at(from), len);
	if (o.flags & IBV_SEND_SIGNALED)
		foretell(l, &(struct want) { o.wr_id, MLX5DV_WC_MEMCPY, IBV_WC_SUCCESS });
	ibv_wr_start(l->q->ex);
	l->q->ex->wr_id = o.wr_id;
	l->q->ex->wr_flags = o.flags;
	mlx5dv_wr_memcpy(l->q->dv, arena.key, arena.va + to, arena.key, arena.va + from, len);
	EXPECT_EQ(ibv_wr_complete(l->q->ex), 0, "posting a memcpy");
	l->fence = true;
}

/* A random list or pattern over the remote slice whose bytes are all different; or the key is freed. */
static void do_umr(struct lane *l)
{
	struct umr_layout u = { .interleaved = rnd(2), .n = 1 + rnd(3) };
	struct t_op o = start(l, IBV_WR_LOCAL_INV);
	uint32_t part = SLICE / u.n;

	free(l->map.byte);
	l->map = (struct umr_map) { 0 };
	if (rnd(4) == 0) {
		o.inv = l->mkey->lkey;
		post(l, &o, IBV_WC_LOCAL_INV);
		return;
	}
	u.repeat = 1 + rnd(20);
	for (int i = 0; i < u.n; i++) {
		uint32_t stride = part / u.repeat, count = 1 + rnd(stride);
		uint64_t base = arena.va + l->remote + (u.n - 1 - i) * part;

		u.il[i] = (struct mlx5dv_mr_interleaved) { base, count, stride - count, arena.key };
		u.list[i] = (struct ibv_sge) { base + rnd(part / 2), rnd(part / 2), arena.key };
	}
	l->map = umr_map(&u);
	if (o.flags & IBV_SEND_SIGNALED)
		foretell(l, &(struct want) { o.wr_id, MLX5DV_WC_UMR, IBV_WC_SUCCESS });
	ibv_wr_start(l->q->ex);
	l->q->ex->wr_id = o.wr_id;
	l->q->ex->wr_flags = o.flags | IBV_SEND_INLINE;
	if (u.interleaved)
		mlx5dv_wr_mr_interleaved(l->q->dv, l->mkey, T_ALL, u.repeat, u.n, u.il);
	else
		mlx5dv_wr_mr_list(l->q->dv, l->mkey, T_ALL, u.n, u.list);
	EXPECT_EQ(ibv_wr_complete(l->q->ex), 0, "posting a UMR");
}

static void do_datagram(void)
{
	int from = rnd(UDS), to = rnd(UDS);
	uint8_t *byte[SLOT], text[SLOT];
	uint32_t len = some_length(SLOT - 40);
	struct t_op o = { .op = IBV_WR_SEND_WITH_IMM,
			  .wr_id = (uint64_t)LANES << 32,
			  .flags = IBV_SEND_SIGNALED,
			  .set = T_SGE,
			  .nsge = 1,
			  .ah = ah,
			  .dest = ud[to].qp->qp_num,
			  .qkey = T_QKEY,
			  .stream = -1 };

	/* From the quiet first bytes of the slots' own buffer of letters: constant memory behind the lanes. */
	size_t off = (size_t)LANES * 2 * SLICE + rnd(SLICE - SLOT);

	for (uint32_t i = 0; i < len; i++) {
		text[i] = *at(off + i);
		byte[i] = &text[i];
	}
	new_letter(NULL, &o, byte, len);
	o.sge[0] = sge_of(off, len);
	EXPECT_EQ(rnd(2) ? t_post_old(&ud[from], &o) : t_post(&ud[from], &o), 0, "posting a datagram");
}

/* ---- settling and errors ---- */

/* All that was posted is done: a signaled request as the last, and its completion. */
static void settle(struct lane *l)
{
	struct t_op o;

	if (l->stream < 0)
		post_receives(l);
	o = start(l, IBV_WR_RDMA_WRITE);
	o.flags |= IBV_SEND_SIGNALED | IBV_SEND_FENCE;
	o.rkey = arena.key;
	o.raddr = arena.va + l->remote;
	post(l, &o, IBV_WC_RDMA_WRITE);
	wait_while(sends_open, l, "settling");
	wait_while(recvs_open, l, "receives while settling");
}

/* A request that fails in one of several ways, with others behind it; then the lane is brought back. */
static void do_error(struct lane *l)
{
	static const enum ibv_wc_status status[] = { IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR,
						     IBV_WC_REM_ACCESS_ERR };
	int how = l->stream >= 0 ? 0 : rnd(3), behind = rnd(4);
	struct t_op o;

	settle(l);
	for (int i = 0; i <= behind; i++) {
		o = start(l, rnd(2) ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ);
		o.nsge = 1;
		o.sge[0] = sge_of(l->local, 64);
		o.rkey = arena.key;
		o.raddr = arena.va + l->remote;
		if (i == 0 && how == 0)
			o.sge[0].lkey ^= 0xabc00;
		if (i == 0 && how == 1)
			o.rkey ^= 0xabc00;
		if (i == 0 && how == 2)
			o.raddr = arena.va + arena.len - 63;
		foretell(l, &(struct want) { o.wr_id, 0, i ? IBV_WC_WR_FLUSH_ERR : status[how] });
		EXPECT_EQ(t_post(l->q, &o), 0, "posting into an error");
	}
	l->failing = true;
	wait_while(sends_open, l, "completions of an error");
	if (l->stream >= 0) {
		EXPECT_EQ(mlx5dv_dci_stream_id_reset(l->q->qp, l->stream), 0, "mlx5dv_dci_stream_id_reset");
	} else {
		EXPECT_EQ(t_qp_state(l->q->qp), IBV_QPS_ERR, "state after an error");
		t_reset(l->q->qp);
		t_reset(l->peer->qp);
		t_connect(env, l->q, l->peer);
		l->recv_done = l->recv_posted = l->recv_planned;
	}
	l->failing = false;
	l->in_flight = 0;
	l->fence = false;
}

static void step(void)
{
	struct lane *l = &lanes[rnd(LANES)];
	uint32_t what = rnd(100);

	if (l->in_flight >= WINDOW || l->recv_planned - l->recv_done > 20)
		settle(l);
	if (letters_open > SLOTS / 2)
		wait_while(letters_are_open, NULL, "letters");
	if (what < 30)
		do_rdma(l, false);
	else if (what < 50)
		do_rdma(l, true);
	else if (what < 65)
		do_send(l);
	else if (what < 75)
		do_atomic(l);
	else if (what < 89) {
		settle(l);	/* both act at once, not when what is under way has arrived */
		if (what < 82)
			do_memcpy(l);
		else if (l->mkey)
			do_umr(l);
	}
	else if (what < 97)
		do_datagram();
	else if (what < 98)
		do_error(l);
	if (rnd(3) == 0)
		poll_some();
}

/* ---- set-up ---- */

static void make_lanes(void)
{
	for (int i = 0; i < LANES; i++) {
		struct lane *l = &lanes[i];

		*l = (struct lane){ .id = i,
				    .stream = -1,
				    .local = (size_t)i * 2 * SLICE,
				    .remote = (size_t)i * 2 * SLICE + SLICE };
		if (i < RC_LANES) {
			l->q = &rc[i].a;
			l->peer = &rc[i].b;
			l->mkey = umr_mkey(env->pd, 4, 0);
		} else {
			l->q = &dci[(i - RC_LANES) / STREAMS];
			l->stream = (i - RC_LANES) % STREAMS;
		}
		dc_last[i] = 0;
	}
}

static void make_objects(void)
{
	struct t_spec r = { .ops = T_RC_OPS, .dv_ops = T_DV_OPS, .sq = 64, .rq = 64, .inl = 60 },
		      u = { .type = IBV_QPT_UD, .ops = T_UD_OPS, .sq = 256, .rq = SLOTS };

	scq = ibv_create_cq(env->ctx, 4096, NULL, NULL, 0);
	rcq = ibv_create_cq(env->ctx, 4096, NULL, NULL, 0);
	MUST(scq && rcq, "ibv_create_cq");
	r.scq = u.scq = scq;
	r.rcq = u.rcq = rcq;
	arena = t_buf(env, (size_t)(LANES * 2 + 1) * SLICE, T_ALL);
	for (size_t i = 0; i < arena.len; i++)
		arena.p[i] = rnd(256);
	shadow = malloc(arena.len);
	memcpy(shadow, arena.p, arena.len);
	for (int i = 0; i < RC_LANES; i++)
		rc[i] = t_pair(env, &r);
	for (int i = 0; i < DCIS; i++)
		dci[i] = t_dci(env, (struct t_spec){ .dv_ops = T_DCI_DV_OPS,
						     .streams = true,
						     .log_streams = 2,
						     .log_errored = 2,
						     .sq = 256,
						     .inl = 60,
						     .scq = scq,
						     .rcq = rcq });
	srq = t_srq(env, SLOTS);
	dct = t_qp(env, &(struct t_spec) { .dc = T_DCT, .srq = srq, .dc_key = KEY, .scq = scq, .rcq = rcq });
	t_dct_rtr(env, dct.qp);
	ah = t_ah(env);
	for (int i = 0; i < UDS; i++) {
		ud[i] = t_qp(env, &u);
		t_ud_rts(env, ud[i].qp);
	}
	for (int i = 0; i <= UDS; i++) {
		slots[i] = t_buf(env, SLOTS * SLOT, T_ALL);
		for (uint32_t s = 0; s < SLOTS; s++)
			post_slot(i, s);
	}
	letter_count = letters_open = 0;
	make_lanes();
}

static void free_objects(void)
{
	for (int i = 0; i < LANES; i++) {
		if (lanes[i].mkey)
			umr_free(lanes[i].mkey);
		free(lanes[i].map.byte);
	}
	EXPECT_EQ(ibv_destroy_ah(ah), 0, "ibv_destroy_ah");
	for (int i = 0; i < RC_LANES; i++)
		t_pair_free(&rc[i]);
	for (int i = 0; i < DCIS; i++)
		t_qp_free(&dci[i]);
	for (int i = 0; i < UDS; i++)
		t_qp_free(&ud[i]);
	t_qp_free(&dct);
	EXPECT_EQ(ibv_destroy_srq(srq), 0, "ibv_destroy_srq");
	EXPECT_EQ(ibv_destroy_cq(scq), 0, "ibv_destroy_cq");
	EXPECT_EQ(ibv_destroy_cq(rcq), 0, "ibv_destroy_cq");
	for (int i = 0; i <= UDS; i++)
		t_buf_free(&slots[i]);
	t_buf_free(&arena);
	free(shadow);
}

struct seed { uint64_t seed; uint32_t steps; };

static void run(const void *arg)
{
	const struct seed *s = arg;
	uint32_t at_step = 0;

	printf("# SEED %" PRIu64 " STEPS %u\n", s->seed, s->steps);
	fflush(stdout);
	rng = t_rng(s->seed);
	make_objects();
	for (; at_step < s->steps && letter_count < 65000 && !t_state.failures; at_step++)
		step();
	if (t_state.failures)
		printf("# failed in step %u\n", at_step);
	for (int i = 0; i < LANES && !t_state.failures; i++)
		settle(&lanes[i]);
	wait_while(letters_are_open, NULL, "the last letters");
	for (size_t i = 0; i < arena.len && !t_state.failures; i++)
		EXPECT(arena.p[i] == shadow[i],
		       "byte %zu of lane %zu, %s slice, is 0x%02x, the model says 0x%02x", i % SLICE,
		       i / SLICE / 2, i / SLICE % 2 ? "remote" : "local", arena.p[i], shadow[i]);
	if (!t_state.failures) {
		T_QUIET(scq);
		T_QUIET(rcq);
	}
	if (!t_state.failures)
		free_objects();
}

int main(int argc, char **argv)
{
	static const uint64_t fixed[] = { 1, 2, 3, 4, 5, 42, 20240229, 0xdeadbeef };
	struct seed s = { .steps = argc > 2 ? strtoul(argv[2], NULL, 0) : STEPS };
	char name[64];

	env = t_open();
	for (size_t i = 0; i < (argc > 1 ? 1 : sizeof(fixed) / sizeof(fixed[0])); i++) {
		s.seed = argc > 1 ? strtoull(argv[1], NULL, 0) : fixed[i];
		snprintf(name, sizeof(name), "seed %" PRIu64 ", %u steps", s.seed, s.steps);
		t_case(name, run, &s);
		if (t_state.failed)
			break;		/* what a failed run left behind would disturb the next */
	}
	return t_close(env);
}
