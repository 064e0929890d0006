/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is posted: requests of all kinds, and now and then one that is wrong on purpose. */
#include "soak.h"

/* ---- lengths and places ---- */

static uint32_t some_length(uint32_t most)
{
	uint32_t how = rnd(8);

	if (!how)
		return 0;
	return 1 + rnd(how < 6 && most > 300 ? 300 : most);
}

static uint8_t *slot_of(const struct conn *c, uint32_t slot)
{
	return c->local + (size_t)slot * c->size;
}

static uint64_t key_space(const struct conn *c)
{
	return c->size - WORDS_BYTES;
}

static bool overlaps(const struct op *a, const struct op *b)
{
	uint32_t end_a = a->at + (a->what == W_FETCH_ADD || a->what == W_CMP_SWAP ? 8 : a->len);

	if (a->via_key || b->via_key)
		return true;
	return a->at < b->at + b->len && b->at < end_a;
}

/* A READ may be executed late, or again: what changes what it reads has to wait for it. */
static bool needs_fence(const struct conn *c, const struct op *o, bool invalidates)
{
	for (uint32_t i = c->head; i != c->tail; i++) {
		const struct op *before = &c->ring[i % WINDOW];

		if (before->what == W_READ &&
		    (invalidates || (o->effect && o->what != W_READ && overlaps(o, before))))
			return true;
	}
	return false;
}

/* ---- one good request ---- */

/* The end of the slice in up to three pieces. */
static void set_sges(struct t_op *t, const uint8_t *p, uint32_t len)
{
	uint32_t n = len > 8 && !rnd(3) ? 2 + rnd(2) : 1, at = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t part = i == n - 1 ? len - at : (len - at) / (1 + rnd(3) + (n - i));

		t->sge[i] = (struct ibv_sge){ (uintptr_t)(p + at), part, w.local.key };
		at += part;
	}
	t->nsge = (int)n;
	t->set = n > 1 ? T_SGE_LIST : T_SGE;
}

static void through_key(struct conn *c, struct op *o, struct t_op *t)
{
	struct end *e = their_end(c);
	uint32_t gen = get(&e->key_gen);

	if (c->kind != RC || get(&e->key_epoch) != c->epoch || gen == c->used_gen || !rnd(2))
		return;
	o->via_key = true;
	o->layout = gen & 1;
	if (o->len > key_space(c))
		o->len = (uint32_t)key_space(c);
	o->at = rnd((uint32_t)key_space(c) - o->len + 1);
	t->rkey = e->key;
	t->raddr = o->at;
}

static void make_rdma(struct conn *c, struct op *o, struct t_op *t, bool read)
{
	uint32_t low = read ? 0 : WORDS_BYTES;

	o->what = read ? W_READ : W_WRITE;
	o->len = some_length(c->size - low);
	o->at = low + rnd(c->size - low - o->len + 1);
	o->effect = true;
	t->op = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	t->rkey = w.theirs->rkey[c->arena];
	t->raddr = w.theirs->arena[c->arena] + c->at + o->at;
	through_key(c, o, t);
}

static void make_atomic(struct conn *c, struct op *o, struct t_op *t)
{
	uint64_t now;

	o->what = rnd(2) ? W_FETCH_ADD : W_CMP_SWAP;
	o->at = 8 * rnd(WORDS_BYTES / 8);
	o->len = 8;
	o->effect = true;
	memcpy(&now, c->shadow + o->at, 8);
	o->compare = now + !rnd(3);
	o->swap = mix(w.rng + o->wr_id);
	t->op = o->what == W_FETCH_ADD ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
	t->compare_add = o->what == W_FETCH_ADD ? o->swap : o->compare;
	t->swap = o->swap;
	t->rkey = w.theirs->rkey[c->arena];
	t->raddr = w.theirs->arena[c->arena] + c->at + o->at;
}

static void make_message(struct conn *c, struct op *o, struct t_op *t)
{
	struct message m = message_of(c, w.me, c->epoch, c->send_seq);
	struct end *e = their_end(c);
	uint32_t gen = get(&e->key_gen);

	o->seed = m.seed;
	o->len = m.len;
	o->receives = true;
	t->imm = m.imm;
	if (m.is_write) {
		o->what = W_WRITE_IMM;
		o->effect = true;
		o->at = WORDS_BYTES + rnd(c->size - WORDS_BYTES - o->len + 1);
		t->op = IBV_WR_RDMA_WRITE_WITH_IMM;
		t->rkey = w.theirs->rkey[c->arena];
		t->raddr = w.theirs->arena[c->arena] + c->at + o->at;
	} else {
		o->what = W_SEND;
		t->op = m.has_imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
		if (c->kind == RC && !m.has_imm && get(&e->key_epoch) == c->epoch &&
		    gen != c->used_gen && !rnd(4)) {
			t->op = IBV_WR_SEND_WITH_INV;
			t->inv = e->key;
			c->used_gen = gen;
		}
	}
	if (c->kind == UD || c->kind == DC) {
		t->ah = w.ah;
		t->dest = get(&e->qpn);
		t->qkey = T_QKEY;
	}
}

static void fill(struct conn *c, const struct op *o)
{
	uint32_t header[4] = { c->id, c->epoch, c->send_seq, o->len };
	uint8_t *p = slot_of(c, o->slot);

	if (o->what == W_READ) {
		memset(p, 0xee, o->len + GUARD_BYTES < c->size ? o->len + GUARD_BYTES : c->size);
		return;
	}
	pattern(p, o->len, o->seed);
	if (o->what == W_SEND && o->len >= sizeof(header))
		memcpy(p, header, sizeof(header));
}

/* ---- wrong on purpose ---- */

enum {
	LOCAL_KEY,
	LOCAL_RANGE,
	LOCAL_HOLE,
	REMOTE_KEY,
	REMOTE_RANGE,
	REMOTE_HOLE,
	REMOTE_RIGHT,
	UNALIGNED,
	LOCAL_VICTIM,
	REMOTE_VICTIM,
	WRONG
};

static bool is_local(uint32_t how)
{
	return how <= LOCAL_HOLE || how == LOCAL_VICTIM;
}

/* RETURN false where this request cannot be wrong in that way. */
static bool make_local_wrong(struct conn *c, struct op *o, struct t_op *t, uint32_t how)
{
	struct ibv_sge *last = &t->sge[t->nsge - 1];
	struct victim *v = &w.victim[rnd(VICTIMS)];

	if (!last->length || (t->set != T_SGE && t->set != T_SGE_LIST))
		return false;
	o->allow = OK(IBV_WC_LOC_PROT_ERR);
	if (how == LOCAL_KEY) {
		last->lkey ^= 0x155500;
		o->name = "a bad lkey";
	} else if (how == LOCAL_RANGE) {
		last->addr = w.local.va + w.local.len;
		o->name = "a segment beyond its region";
	} else if (how == LOCAL_HOLE) {
		if (last->length > HOLE_BYTES)
			return false;
		*last = (struct ibv_sge){ (uintptr_t)w.hole->addr, last->length, w.hole->lkey };
		o->name = "local memory that is not mapped";
		/* One that is dropped for want of room is not read. */
		if (c->kind == UD || c->kind == UC)
			o->allow |= OK(IBV_WC_SUCCESS);
	} else {
		if (last->length > VICTIM_BYTES || o->what == W_SEND || o->what == W_WRITE_IMM)
			return false;
		*last = (struct ibv_sge){ (uintptr_t)v->p, last->length, v->mr->lkey };
		o->allow |= OK(IBV_WC_SUCCESS);
		o->what = W_JUNK;
		o->effect = false;
		t->rkey = w.theirs->junk_rkey;
		t->raddr = w.theirs->junk;
		o->via_key = false;
		o->name = "local memory that is deregistered under way";
	}
	/* What was gathered before the bad segment may have been written, or come back. */
	if (t->op == IBV_WR_RDMA_READ)
		o->effect = false;
	return c->kind != UC || how != LOCAL_VICTIM;
}

static bool make_remote_wrong(struct conn *c, struct op *o, struct t_op *t, uint32_t how)
{
	bool atomic = o->what == W_FETCH_ADD || o->what == W_CMP_SWAP;
	const struct victim_face *v = &w.theirs->victim[rnd(VICTIMS)];

	if (c->kind == UC || c->kind == UD || !o->len || o->what == W_SEND ||
	    o->what == W_WRITE_IMM)
		return false;
	o->allow = OK(IBV_WC_REM_ACCESS_ERR);
	o->via_key = o->effect = false;
	switch (how) {
	case REMOTE_KEY:
		t->rkey = w.theirs->rkey[c->arena] ^ 0x2aaa00;
		t->raddr = w.theirs->arena[c->arena];
		o->name = "a bad rkey";
		return true;
	case REMOTE_RANGE:
		t->rkey = w.theirs->junk_rkey;
		t->raddr = w.theirs->junk + JUNK_BYTES - (atomic ? 0 : o->len / 2);
		o->name = "a target beyond its region";
		return true;
	case REMOTE_HOLE:
		t->rkey = w.theirs->hole_rkey;
		t->raddr = w.theirs->hole;
		/* Pages that are shared between the processes outlive the mapping, as pinned ones
		 * do. */
		o->allow = OK(IBV_WC_REM_OP_ERR) | OK(IBV_WC_SUCCESS);
		o->name = "a target that is not mapped";
		return o->len <= HOLE_BYTES;
	case REMOTE_RIGHT:
		t->rkey = w.theirs->readonly_rkey;
		t->raddr = w.theirs->junk;
		o->name = "a target that may only be read";
		return o->what != W_READ && o->len <= JUNK_BYTES;
	case UNALIGNED:
		t->raddr += 3;
		o->allow = OK(IBV_WC_REM_INV_REQ_ERR);
		o->name = "an atomic that is not aligned";
		return atomic;
	default:
		o->what = W_JUNK;
		t->rkey = get(&v->rkey);
		t->raddr = __atomic_load_n(&v->va, __ATOMIC_SEQ_CST);
		o->allow |= OK(IBV_WC_SUCCESS) | OK(IBV_WC_REM_OP_ERR);
		o->name = "a target that is deregistered under way";
		return o->len <= VICTIM_BYTES;
	}
}

static void make_wrong(struct conn *c, struct op *o, struct t_op *t)
{
	uint32_t how = rnd(WRONG);
	struct op good = *o;
	struct t_op good_t = *t;

	if (is_local(how) ? make_local_wrong(c, o, t, how) : make_remote_wrong(c, o, t, how)) {
		put(&my_end(c)->loose, c->epoch);
		return;
	}
	*o = good;
	*t = good_t;
}

/* Of the connection itself. */
static void hurt(struct conn *c)
{
	uint32_t how = rnd(4);
	struct ibv_qp_attr attr = { 0 };

	put(&my_end(c)->loose, c->epoch);
	if (how == 0 && c->kind != UD && c->kind != DC) {
		conn_break(c, true);
	} else if (how == 1 && c->kind != DC && c->kind != XRC) {
		c->bad_recvs = 1 + rnd(2);
	} else if (how == 2) {
		/* The peer is not told for a while. */
		if (t_modify(c->q.qp, &attr, IBV_QPS_ERR, IBV_QP_STATE))
			wrong("%s: to ERR: %s", conn_name(c), strerror(errno));
		c->broken = true;
		c->hold_until = t_now_ms() + rnd(300);
		if (c->group)
			c->group->err = true;
	} else if (c->kind != DC) {
		conn_break(c, false);
	}
}

/* ---- posting ---- */

static struct op *next_op(struct conn *c, struct t_op *t, bool signaled)
{
	struct op *o = &c->ring[c->tail % WINDOW];

	*o = (struct op){ .slot = c->tail % WINDOW,
			  .signaled = signaled,
			  .allow = OK(IBV_WC_SUCCESS),
			  .wr_id = (uint64_t)c->id << 48 | (uint64_t)(c->epoch & 0xffff) << 32 |
				   c->posted++ };
	o->seed = mix(w.common->seed ^ o->wr_id << 1 ^ (uint32_t)w.me);
	*t = (struct t_op){ .wr_id = o->wr_id,
			    .flags = signaled ? IBV_SEND_SIGNALED : 0,
			    .set = T_SGE,
			    .stream = -1 };
	if (c->kind == DC) {
		t->ah = w.ah;
		t->dest = w.theirs->dctn;
		t->dc_key = KEY;
		t->stream = c->stream;
	}
	return o;
}

static void make_good(struct conn *c, struct op *o, struct t_op *t)
{
	uint32_t what = rnd(100);
	bool reliable = c->kind != UC && c->kind != UD;

	if (c->kind == UD || what < 30)
		make_message(c, o, t);
	else if (what < 65 || !reliable)
		make_rdma(c, o, t, false);
	else if (what < 88)
		make_rdma(c, o, t, true);
	else
		make_atomic(c, o, t);
	if (c->kind == DC) {
		t->dest = w.theirs->dctn;
		t->dc_key = KEY;
	}
	fill(c, o);
	set_sges(t, slot_of(c, o->slot), o->len);
	if (o->len && o->len <= 64 && (o->what <= W_WRITE_IMM || o->what == W_SEND) && rnd(2)) {
		t->set = t->nsge > 1 ? T_INLINE_LIST : T_INLINE;
		t->flags |= IBV_SEND_INLINE;
	}
	if (o->receives)
		c->send_seq++;
}

static int post_batch(struct conn *c, struct t_op *t, uint32_t n)
{
	bool old = (c->kind == RC || c->kind == UC || c->kind == UD) && rnd(2);

	for (uint32_t i = 0; i < n; i++)
		if (t[i].set == T_SGE || t[i].set == T_SGE_LIST)
			t[i].flags &= ~(unsigned int)IBV_SEND_INLINE;
	if (old) {
		for (uint32_t i = 0; i < n; i++) {
			int rc = t_post_old(&c->q, &t[i]);

			if (rc)
				return rc;
		}
		return 0;
	}
	ibv_wr_start(c->q.ex);
	for (uint32_t i = 0; i < n; i++) {
		t[i].flags &= ~(unsigned int)IBV_SEND_INLINE;
		t_build(&c->q, &t[i]);
		if (c->kind == XRC)
			ibv_wr_set_xrc_srqn(c->q.ex, w.theirs->srqn);
	}
	return ibv_wr_complete(c->q.ex);
}

static void post_some(struct conn *c)
{
	uint32_t room = WINDOW - (c->tail - c->head), n = 1 + rnd(room < 4 ? room : 4);
	uint32_t tail = c->tail, seq = c->send_seq, gen = c->used_gen;
	bool victim = false;
	struct t_op t[4];
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		struct op *o = next_op(c, &t[i], i == n - 1 || rnd(2));

		make_good(c, o, &t[i]);
		if (!w.common->calm && !rnd(60))
			make_wrong(c, o, &t[i]);
		victim |= o->what == W_JUNK;
		if (needs_fence(c, o, t[i].op == IBV_WR_SEND_WITH_INV))
			t[i].flags |= IBV_SEND_FENCE;
		c->tail++;
	}
	c->since = t_now_ms();
	rc = post_batch(c, t, n);
	if (rc == ENOMEM && c->stream >= 0) {
		/* Other streams have filled the queue that this one shares. */
		c->tail = tail;
		c->send_seq = seq;
		c->used_gen = gen;
		return;
	}
	if (rc)
		wrong("%s, epoch %u: posting %u requests was refused: %s", conn_name(c), c->epoch,
		      n, strerror(rc));
	if (victim && rnd(2))
		victims_step();
}

void conn_umr(struct conn *c)
{
	struct t_op t;
	struct op *o = next_op(c, &t, true);
	uint64_t body = w.arena[c->arena].va + c->at + WORDS_BYTES, quarter = key_space(c) / 4;
	struct mlx5dv_mr_interleaved il[2] = { { body + 64, 64, 64, w.arena[c->arena].key },
					       { body, 64, 64, w.arena[c->arena].key } };
	struct ibv_sge list[4];
	int rc;

	o->what = W_UMR;
	o->layout = c->layout = !c->layout;
	for (uint32_t i = 0; i < 4; i++)
		list[i] = (struct ibv_sge){ body + (3 - i) * quarter, (uint32_t)quarter,
					    w.arena[c->arena].key };
	c->tail++;
	c->umr_wanted = false;
	ibv_wr_start(c->q.ex);
	c->q.ex->wr_id = o->wr_id;
	c->q.ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	if (o->layout)
		mlx5dv_wr_mr_interleaved(c->q.dv, c->mkey, T_ALL, (uint32_t)(key_space(c) / 128), 2,
					 il);
	else
		mlx5dv_wr_mr_list(c->q.dv, c->mkey, T_ALL, 4, list);
	rc = ibv_wr_complete(c->q.ex);
	if (rc)
		wrong("%s: posting a UMR was refused: %s", conn_name(c), strerror(rc));
}

static void post_memcpy(struct conn *c)
{
	struct t_op t;
	struct op *o = next_op(c, &t, true);
	uint8_t *p = slot_of(c, o->slot);
	int rc;

	o->what = W_MEMCPY;
	o->len = c->size / 2 < w.env->dv.max_wr_memcpy_length
			 ? c->size / 2
			 : (uint32_t)w.env->dv.max_wr_memcpy_length;
	o->len = 1 + rnd(o->len);
	pattern(p, o->len, o->seed);
	c->tail++;
	ibv_wr_start(c->q.ex);
	c->q.ex->wr_id = o->wr_id;
	c->q.ex->wr_flags = IBV_SEND_SIGNALED;
	mlx5dv_wr_memcpy(c->q.dv, w.local.key, (uintptr_t)p + c->size / 2, w.local.key,
			 (uintptr_t)p, o->len);
	rc = ibv_wr_complete(c->q.ex);
	if (rc)
		wrong("%s: posting a memcpy of %u bytes was refused: %s", conn_name(c), o->len,
		      strerror(rc));
}

/* Nothing of it is written; but when it is answered, all that was sent before it has been executed
 * or dropped. */
void conn_sync(struct conn *c)
{
	struct t_op t;
	struct op *o = next_op(c, &t, true);
	int rc;

	o->what = W_SYNC;
	t.op = IBV_WR_RDMA_WRITE;
	t.rkey = w.theirs->junk_rkey;
	t.raddr = w.theirs->junk;
	rc = post_batch(c, &t, 1);
	if (rc == ENOMEM && c->stream >= 0)
		return; /* other streams have filled the queue: later */
	if (rc)
		wrong("%s: posting a WRITE of 0 bytes was refused: %s", conn_name(c), strerror(rc));
	c->tail++;
	c->syncing = true;
	c->since = t_now_ms();
}

static void post_too_early(struct conn *c)
{
	struct t_op t;
	struct op *o = next_op(c, &t, true);

	make_rdma(c, o, &t, false);
	if (!post_batch(c, &t, 1))
		wrong("%s: a request was taken before the queue pair is in RTS", conn_name(c));
}

void conn_step(struct conn *c)
{
	if (c->phase == READY && !rnd(20) && !w.common->calm)
		post_too_early(c);
	if (c->phase != RUN || c->broken || c->syncing ||
	    (c->group && (c->group->err || c->failed_count)))
		return;
	if (c->kind == UC && c->failed_count + 2 * WINDOW > LOG_MAX) {
		if (c->head == c->tail)
			conn_look_loss(c, t_now_ms() - c->since < 4000);
		return;
	}
	if (c->tail - c->head == WINDOW)
		return;
	if (!w.common->calm && !rnd(150)) {
		hurt(c);
		return;
	}
	if (c->umr_wanted && !get(&my_end(c)->key_epoch))
		conn_umr(c);
	else if ((c->mkey || (c->kind == DC && c->stream < 0)) && !rnd(20))
		post_memcpy(c);
	else
		post_some(c);
}

/* ---- memory that comes and goes ---- */

static void victim_new(uint32_t i)
{
	struct victim *v = &w.victim[i];
	struct victim_face *f = &w.mine->victim[i];

	v->p = mmap(NULL, VICTIM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (v->p == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	v->mr = ibv_reg_mr(w.env->pd, v->p, VICTIM_BYTES, T_ALL);
	if (!v->mr)
		wrong("ibv_reg_mr: %s", strerror(errno));
	put(&f->rkey, v->mr->rkey);
	__atomic_store_n(&f->va, (uintptr_t)v->p, __ATOMIC_SEQ_CST);
}

void victims_make(void)
{
	for (uint32_t i = 0; i < VICTIMS; i++)
		victim_new(i);
}

static void bury(struct victim *v)
{
	for (uint32_t i = 0; v->grave && i < VICTIM_BYTES; i++)
		if (v->grave[i] != 0xa5)
			wrong("byte %u of a region was written after ibv_dereg_mr had returned", i);
	if (v->grave)
		munmap(v->grave, VICTIM_BYTES);
	v->grave = NULL;
}

/* One of them goes: deregistered, then looked at for a while; or unmapped first. */
void victims_step(void)
{
	uint32_t i = rnd(VICTIMS);
	struct victim *v = &w.victim[i];
	bool unmap = rnd(2);

	if (v->grave && t_now_ms() < v->grave_until)
		return;
	bury(v);
	if (unmap && mmap(v->p, VICTIM_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			  -1, 0) != v->p)
		wrong("mmap: %s", strerror(errno));
	if (ibv_dereg_mr(v->mr))
		wrong("ibv_dereg_mr: %s", strerror(errno));
	if (unmap) {
		munmap(v->p, VICTIM_BYTES);
	} else {
		memset(v->p, 0xa5, VICTIM_BYTES);
		v->grave = v->p;
		v->grave_until = t_now_ms() + 50;
	}
	victim_new(i);
}

void victims_free(void)
{
	for (uint32_t i = 0; i < VICTIMS; i++) {
		bury(&w.victim[i]);
		if (ibv_dereg_mr(w.victim[i].mr))
			wrong("ibv_dereg_mr: %s", strerror(errno));
		munmap(w.victim[i].p, VICTIM_BYTES);
	}
}
