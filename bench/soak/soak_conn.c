/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections: made, brought up by both ends, broken, emptied, and brought up again in the next
 * epoch. */
#include "soak.h"

static const char *const kind_name[KINDS] = { "RC", "UC", "XRC", "UD", "DC" };

const char *conn_name(const struct conn *c)
{
	static char text[2][64];
	static int turn;

	turn = !turn;
	snprintf(text[turn], sizeof(text[turn]), "connection %u (%s, slice of %u)", c->id,
		 kind_name[c->kind], c->size);
	return text[turn];
}

static void publish(struct conn *c, enum phase phase)
{
	c->phase = phase;
	c->since = t_now_ms();
	put(&my_end(c)->state, state_of(c->epoch, phase));
}

/* ---- receives ---- */

void srq_post(int which, uint32_t slot)
{
	uint8_t *p = w.shared_recv.p + (size_t)(which * SRQ_RECVS + (int)slot) * SHARED_RECV_BYTES;
	struct ibv_sge sge = { (uintptr_t)p, SHARED_RECV_BYTES, w.shared_recv.key };

	w.srq_busy[which][slot] = true;
	memset(p, 0, 16);
	t_srq_recv(which ? w.dc_srq : w.xrc_srq,
		   1ull << 63 | (uint64_t)SHARED_ID << 48 | (uint64_t)(which << 16) | slot, sge);
}

static void post_recv(struct conn *c)
{
	uint32_t at = c->recv_tail++ % RECVS, half = c->recv_bytes / 2, full = c->recv_bytes;
	uint8_t *p = c->recv + (size_t)at * full;
	struct ibv_sge sge[2] = { { (uintptr_t)p, half, w.recv.key },
				  { (uintptr_t)p + half, full - half, w.recv.key } };
	struct ibv_recv_wr *bad, wr = { .sg_list = sge, .num_sge = 2 };
	int rc;

	c->recv_bad[at] = 0;
	if (c->bad_recvs && c->recv_out) {
		c->bad_recvs--;
		c->recv_bad[at] = 1;
		if (rnd(2))
			sge[0].lkey ^= 0x155500;
		else
			sge[0].length = sge[1].length = 0;
	}
	c->recv_wr[at] = c->posted++;
	wr.wr_id = 1ull << 63 | (uint64_t)c->id << 48 | (uint64_t)(c->epoch & 0xffff) << 32 |
		   c->recv_wr[at];
	rc = ibv_post_recv(c->q.qp, &wr, &bad);
	if (rc)
		wrong("%s: posting a receive was refused: %s", conn_name(c), strerror(rc));
	c->recv_out++;
}

void conn_post_recvs(struct conn *c)
{
	if (c->kind == XRC || c->kind == DC)
		return;
	while (c->recv_out < RECVS)
		post_recv(c);
}

/* ---- states ---- */

static void modify(struct conn *c, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		   enum ibv_qp_state state, int mask)
{
	int rc = t_modify(qp, attr, state, mask);

	if (rc)
		wrong("%s, epoch %u: to state %d: %s", conn_name(c), c->epoch, state, strerror(rc));
}

static void make_qp(struct conn *c)
{
	struct t_spec s = { .ops = T_RC_OPS,
			    .sq = 2 * WINDOW,
			    .rq = RECVS,
			    .inl = 64,
			    .scq = w.scq[c->id % CQS],
			    .rcq = w.rcq[c->id % CQS] };

	if (c->kind == RC && c->id % 3 == 0)
		s.dv_ops = T_DV_OPS;
	if (c->kind == UC) {
		s.type = IBV_QPT_UC;
		s.ops = T_UC_OPS;
	} else if (c->kind == UD) {
		s.type = IBV_QPT_UD;
		s.ops = T_UD_OPS;
	} else if (c->kind == XRC) {
		s.type = IBV_QPT_XRC_SEND;
		s.ops &= ~(uint64_t)(IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
				     IBV_QP_EX_WITH_SEND_WITH_INV);
		c->rq = t_create_qp(w.env,
				    &(struct t_spec){ .type = IBV_QPT_XRC_RECV, .xrcd = w.xrcd },
				    NULL, NULL);
		if (!c->rq)
			wrong("%s: no XRC_RECV queue pair: %s", conn_name(c), strerror(errno));
		my_end(c)->recv_qpn = c->rq->qp_num;
	}
	c->q = t_qp(w.env, &s);
	put(&my_end(c)->qpn, c->q.qp->qp_num);
}

/* Into INIT, with receives; the peer may know our numbers. */
static void make_ready(struct conn *c)
{
	struct ibv_qp_attr attr = t_attr(w.env, 0);

	modify(c, c->q.qp, &attr, IBV_QPS_INIT, T_INIT_MASK);
	if (c->rq)
		modify(c, c->rq, &attr, IBV_QPS_INIT, T_INIT_MASK);
	c->broken = c->send_failed = false;
	c->bad_recvs = 0;
	c->send_seq = 0;
	c->hold_until = 0;
	c->quick = !w.common->calm && !rnd(6);
	if (c->quick)
		put(&my_end(c)->loose, c->epoch);
	c->umr_wanted = c->mkey != NULL;
	my_end(c)->psn = rnd(1 << 24);
	conn_post_recvs(c);
	publish(c, MADE);
}

static struct ibv_qp_attr connect_attr(struct conn *c)
{
	struct ibv_qp_attr attr = t_attr(w.env, get(&their_end(c)->qpn));

	attr.rq_psn = get(&their_end(c)->psn);
	attr.sq_psn = my_end(c)->psn;
	attr.timeout = c->quick ? 8 : 18;
	attr.retry_cnt = c->quick ? 1 : 7;
	attr.rnr_retry = c->quick ? 1 + rnd(3) : 7;
	return attr;
}

static void to_rtr(struct conn *c)
{
	struct ibv_qp_attr attr = connect_attr(c);
	bool short_mask = c->kind == UC || c->kind == XRC;

	if (c->kind == XRC) {
		modify(c, c->rq, &attr, IBV_QPS_RTR, T_RTR_MASK);
		attr.dest_qp_num = get(&their_end(c)->recv_qpn);
	}
	modify(c, c->q.qp, &attr, IBV_QPS_RTR, short_mask ? T_UC_RTR_MASK : T_RTR_MASK);
	publish(c, READY);
}

static void to_rts(struct conn *c)
{
	struct ibv_qp_attr attr = connect_attr(c);

	int rc = t_modify(c->q.qp, &attr, IBV_QPS_RTS,
			  c->kind == UC ? IBV_QP_STATE | IBV_QP_SQ_PSN : T_RTS_MASK);

	if (!rc && c->rq)
		rc = t_modify(c->rq, &attr, IBV_QPS_RTS,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN);
	/* The peer may be ahead, and have done it harm already. */
	if (rc && get(&their_end(c)->loose) == c->epoch &&
	    (t_qp_state(c->q.qp) == IBV_QPS_ERR || (c->rq && t_qp_state(c->rq) == IBV_QPS_ERR)))
		c->broken = true;
	else if (rc)
		wrong("%s, epoch %u: to RTS: %s; the queue pair is in state %d", conn_name(c),
		      c->epoch, strerror(rc), t_qp_state(c->q.qp));
	publish(c, RUN);
}

static void ring_to_failed(struct conn *c)
{
	for (; c->head != c->tail; c->head++)
		if (c->ring[c->head % WINDOW].effect && c->failed_count < LOG_MAX)
			c->failed[c->failed_count++] = c->ring[c->head % WINDOW];
}

/* In ERR, to be emptied; or in RESET at once, which takes back what was posted. */
void conn_break(struct conn *c, bool reset)
{
	enum ibv_qp_state state = reset ? IBV_QPS_RESET : IBV_QPS_ERR;
	struct ibv_qp_attr attr = { 0 };

	c->broken = true;
	put(&my_end(c)->key_epoch, 0);
	modify(c, c->q.qp, &attr, state, IBV_QP_STATE);
	if (c->rq)
		modify(c, c->rq, &attr, state, IBV_QP_STATE);
	if (reset) {
		ring_to_failed(c);
		c->recv_out = 0;
		c->recv_head = c->recv_tail;
	}
	if (c->kind != UD && c->kind != DC)
		publish(c, reset ? DRAINED : BREAK);
}

static void next_epoch(struct conn *c)
{
	struct ibv_qp_attr attr = { 0 };

	if (c->kind == UC)
		conn_look_loss(c, false);
	else
		conn_look(c);
	if (!rnd(5) && c->kind != XRC) {
		t_qp_free(&c->q);
		make_qp(c);
	} else {
		modify(c, c->q.qp, &attr, IBV_QPS_RESET, IBV_QP_STATE);
		if (c->rq)
			modify(c, c->rq, &attr, IBV_QPS_RESET, IBV_QP_STATE);
	}
	c->epoch++;
	w.mine->recoveries++;
	make_ready(c);
}

/* ---- those that recover by themselves ---- */

static void progress_ud(struct conn *c)
{
	struct ibv_qp_attr attr = { 0 };

	if (!c->broken) {
		conn_post_recvs(c);
		return;
	}
	if (c->head != c->tail || t_now_ms() < c->hold_until)
		return;
	if (t_qp_state(c->q.qp) == IBV_QPS_SQE) {
		modify(c, c->q.qp, &attr, IBV_QPS_RTS, IBV_QP_STATE);
	} else {
		if (t_qp_state(c->q.qp) != IBV_QPS_ERR)
			conn_break(c, false);
		if (c->recv_out)
			return;
		modify(c, c->q.qp, &attr, IBV_QPS_RESET, IBV_QP_STATE);
		t_ud_rts(w.env, c->q.qp);
		c->epoch++;
		c->send_seq = 0;
		c->bad_recvs = 0;
		conn_post_recvs(c);
	}
	c->broken = c->send_failed = false;
	c->since = t_now_ms();
	w.mine->recoveries++;
}

static void dci_up(struct group *g)
{
	struct ibv_qp_attr attr = t_attr(w.env, 0);

	attr.timeout = 18;
	attr.retry_cnt = 7;
	t_dci_rts(g->q.qp, &attr);
}

static void new_stream_epoch(struct conn *c)
{
	c->epoch++;
	c->send_seq = 0;
	c->broken = c->send_failed = false;
	c->since = t_now_ms();
	w.mine->recoveries++;
	put(&my_end(c)->state, state_of(c->epoch, RUN));
}

static void progress_dc(struct conn *c)
{
	struct group *g = c->group;
	int rc;

	if (!g->err && !c->broken) {
		if (c->failed_count && !c->syncing)
			conn_sync(c);
		return;
	}
	if (c->head != c->tail)
		return;
	if (!g->err && g->streams) {
		rc = mlx5dv_dci_stream_id_reset(g->q.qp, (uint16_t)c->stream);
		if (rc)
			wrong("%s: mlx5dv_dci_stream_id_reset(%d): %s", conn_name(c), c->stream,
			      strerror(rc));
		new_stream_epoch(c);
		return;
	}
	g->err = true;
	for (int i = 0; i < g->members; i++)
		if (g->member[i]->head != g->member[i]->tail ||
		    t_now_ms() < g->member[i]->hold_until)
			return;
	t_reset(g->q.qp);
	dci_up(g);
	for (int i = 0; i < g->members; i++)
		new_stream_epoch(g->member[i]);
	g->err = false;
}

/* ---- all ---- */

static void repair_sqe(struct conn *c)
{
	struct ibv_qp_attr attr = { 0 };

	modify(c, c->q.qp, &attr, IBV_QPS_RTS, IBV_QP_STATE);
	c->broken = c->send_failed = false;
	w.mine->recoveries++;
}

static void progress_run(struct conn *c)
{
	bool theirs = their_state(c) > state_of(c->epoch, RUN);

	if (!c->broken && !theirs) {
		conn_post_recvs(c);
		return;
	}
	if (t_now_ms() < c->hold_until)
		return;
	if (c->kind == UC && !theirs && c->head == c->tail && t_qp_state(c->q.qp) == IBV_QPS_SQE) {
		repair_sqe(c);
		return;
	}
	conn_break(c, !rnd(4));
}

void conn_progress(struct conn *c)
{
	uint32_t theirs = their_state(c);

	if (t_now_ms() - c->since > STALL_MS &&
	    (c->phase != RUN || c->head != c->tail || c->broken))
		wrong("%s, epoch %u: nothing has happened for %d s: state 0x%x, theirs 0x%x, %u "
		      "requests from 0x%" PRIx64
		      " and %u receives outstanding, queue pair 0x%x in state %d",
		      conn_name(c), c->epoch, STALL_MS / 1000, state_of(c->epoch, c->phase), theirs,
		      c->tail - c->head, c->ring[c->head % WINDOW].wr_id, c->recv_out,
		      c->q.qp->qp_num, t_qp_state(c->q.qp));
	if (c->kind == UD) {
		progress_ud(c);
		return;
	}
	if (c->kind == DC) {
		progress_dc(c);
		return;
	}
	switch (c->phase) {
	case MADE:
		if (theirs >= state_of(c->epoch, MADE))
			to_rtr(c);
		break;
	case READY:
		if (theirs >= state_of(c->epoch, READY))
			to_rts(c);
		break;
	case RUN:
		progress_run(c);
		break;
	case BREAK:
		if (c->head == c->tail && !c->recv_out)
			publish(c, DRAINED);
		break;
	default:
		if (theirs >= state_of(c->epoch, DRAINED))
			next_epoch(c);
	}
}

bool conn_is_quiet(const struct conn *c)
{
	if (c->head != c->tail || c->broken || c->syncing)
		return false;
	if (c->kind == UD)
		return true;
	if (c->kind == DC)
		return !c->group->err && !c->failed_count;
	return c->phase == RUN && their_state(c) == state_of(c->epoch, RUN);
}

/* ---- making ---- */

static const enum kind kinds[20] = { RC, RC, UC, RC, XRC, RC, UD, RC, DC, RC,
				     DC, RC, UC, RC, XRC, RC, DC, RC, UD, DC };

static void size_up(struct conn *c)
{
	uint64_t h = mix(w.common->seed ^ mix(c->id + 0x7000));
	uint32_t part = h % 100;

	c->kind = kinds[c->id % 20];
	if (c->kind == DC && w.common->no_dc)
		c->kind = RC;
	c->size = WORDS_BYTES + (part < 60   ? 2048
				 : part < 87 ? 16384
				 : part < 98 ? 160 << 10
					     : 1536 << 10);
	c->recv_bytes = c->kind == XRC || c->kind == DC ? SHARED_RECV_BYTES
			: c->kind == UD                 ? 4096 + GRH_BYTES
			: part < 60                     ? 2048
			: part < 87                     ? 16384
							: 160 << 10;
	/* A WRITE with immediate is as long as a message may be. */
	if (c->size - WORDS_BYTES < c->recv_bytes)
		c->size = c->recv_bytes + WORDS_BYTES;
	if (c->kind == UD)
		c->size = 4096 + WORDS_BYTES;
	c->arena = h >> 32 & 1;
}

static struct t_buf shared_buf(size_t len)
{
	struct t_buf b = { .len = len };
	int fd = (int)syscall(SYS_memfd_create, "soak", 0);

	if (fd < 0 || ftruncate(fd, (off_t)len))
		wrong("memfd_create: %s", strerror(errno));
	b.p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	b.mr = b.p == MAP_FAILED ? NULL : ibv_reg_mr(w.env->pd, b.p, len, T_ALL);
	if (!b.mr)
		wrong("memory of %zu bytes: %s", len, strerror(errno));
	b.key = b.mr->lkey;
	b.va = (uintptr_t)b.p;
	return b;
}

static void make_memory(void)
{
	uint64_t arena[ARENAS] = { 0 }, local = 0, recv = 0;
	uint32_t most = 0;

	for (uint32_t i = 0; i < w.common->conns; i++) {
		struct conn *c = &w.conn[i];

		c->id = i;
		size_up(c);
		c->at = arena[c->arena];
		arena[c->arena] += c->size;
		local += (uint64_t)c->size * WINDOW;
		recv += (uint64_t)c->recv_bytes * RECVS;
		most = c->size > most ? c->size : most;
	}
	w.arena[0] = t_buf(w.env, arena[0] + 4096, T_ALL);
	w.arena[1] = shared_buf(arena[1] + 4096);
	w.local = t_buf(w.env, local + 4096, T_ALL);
	w.recv = t_buf(w.env, recv + 4096, T_ALL);
	w.scratch = calloc(2, most + 4096);
	w.scratch2 = calloc(2, most + 4096);
	local = recv = 0;
	for (uint32_t i = 0; i < w.common->conns; i++) {
		struct conn *c = &w.conn[i];

		c->slice = w.arena[c->arena].p + c->at;
		c->local = w.local.p + local;
		c->recv = w.recv.p + recv;
		local += (uint64_t)c->size * WINDOW;
		recv += (uint64_t)c->recv_bytes * RECVS;
		c->shadow = calloc(1, c->size);
		c->base = calloc(1, c->size);
	}
	/* All of it is there from the start, so that what grows later is a leak. */
	for (int i = 0; i < ARENAS; i++)
		memset(w.arena[i].p, 0, w.arena[i].len);
	memset(w.local.p, 1, w.local.len);
	memset(w.recv.p, 1, w.recv.len);
}

static void make_dc(struct conn *c)
{
	struct group *g = w.groups ? &w.group[w.groups - 1] : NULL;

	if (!g || !g->streams || g->members == STREAMS) {
		struct t_spec s = { .dc = T_DCI,
				    .ops = T_RC_OPS,
				    .dv_ops = T_DCI_DV_OPS,
				    .sq = 2 * WINDOW * STREAMS,
				    .inl = 64,
				    .scq = w.scq[c->id % CQS],
				    .rcq = w.rcq[c->id % CQS] };

		g = &w.group[w.groups++];
		g->streams = w.groups % 2;
		if (g->streams) {
			s.streams = true;
			s.log_streams = s.log_errored = 3;
		}
		g->q = t_qp(w.env, &s);
		dci_up(g);
	}
	c->group = g;
	c->stream = g->streams ? g->members : -1;
	g->member[g->members++] = c;
	c->q = g->q;
	c->phase = RUN;
	put(&my_end(c)->qpn, c->q.qp->qp_num);
	put(&my_end(c)->state, state_of(1, RUN));
}

void conns_make(void)
{
	make_memory();
	for (uint32_t i = 0; i < w.common->conns; i++) {
		struct conn *c = &w.conn[i];

		c->epoch = 1;
		c->stream = -1;
		c->since = t_now_ms();
		if (c->kind == DC) {
			make_dc(c);
			continue;
		}
		make_qp(c);
		if (c->kind == UD) {
			t_ud_rts(w.env, c->q.qp);
			conn_post_recvs(c);
			c->phase = RUN;
			put(&my_end(c)->state, state_of(1, RUN));
			continue;
		}
		if (c->kind == RC && c->id % 3 == 0) {
			struct mlx5dv_mkey_init_attr init = {
				.pd = w.env->pd,
				.max_entries = 4,
				.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
						MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE
			};

			c->mkey = mlx5dv_create_mkey(&init);
			if (!c->mkey)
				wrong("mlx5dv_create_mkey: %s", strerror(errno));
		}
		make_ready(c);
	}
}

void conns_free(void)
{
	for (uint32_t i = 0; i < w.common->conns; i++) {
		struct conn *c = &w.conn[i];

		if (c->mkey && mlx5dv_destroy_mkey(c->mkey))
			wrong("mlx5dv_destroy_mkey: %s", strerror(errno));
		if (!c->group)
			t_qp_free(&c->q);
		if (c->rq && ibv_destroy_qp(c->rq))
			wrong("%s: ibv_destroy_qp: %s", conn_name(c), strerror(errno));
		free(c->shadow);
		free(c->base);
	}
	for (int i = 0; i < w.groups; i++)
		t_qp_free(&w.group[i].q);
	for (int i = 0; i < ARENAS; i++)
		t_buf_free(&w.arena[i]);
	t_buf_free(&w.local);
	t_buf_free(&w.recv);
	free(w.scratch);
	free(w.scratch2);
}
