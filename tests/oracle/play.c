/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* usage: oracle_play ours|libmlx5 SEED COUNT [KEEP]
 *
 * Runs COUNT programs from SEED on, each on rings of either fill, and writes to stdout what came of every step
 * (trace.h). KEEP leaves out all but the named requests: "3.0,3.2,7" keeps two requests of step 3 and all of
 * step 7. */
#include "play.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_ALL = 0xffffffff };

bool ours;
static uint32_t keep[STEPS_MAX];	/* requests of each step, as bits */
static uint8_t before[64 << 15];

void emit(enum tag tag, uint32_t a, uint32_t b, const void *blob, size_t n)
{
	struct record r = { .tag = tag, .a = a, .b = b, .n = (uint32_t)n };

	if (fwrite(&r, sizeof(r), 1, stdout) != 1 || (n && fwrite(blob, n, 1, stdout) != 1))
		exit(1);	/* nobody reads on */
}

/* ---- the send ring ---- */

static size_t ring_bytes(const struct world *w)
{
	return (size_t)w->dvqp.sq.wqe_cnt * 64;
}

void *sq_seg(const struct world *w, uint32_t pi, uint32_t ds)
{
	return (uint8_t *)w->dvqp.sq.buf + (((size_t)pi * 64 + (size_t)ds * 16) & (ring_bytes(w) - 1));
}

static bool is_free(const struct world *w, uint32_t block, uint32_t from, uint32_t to)
{
	uint32_t count = w->dvqp.sq.wqe_cnt;

	return ((block - from) & (count - 1)) < to - from;
}

static void prepare(struct world *w)
{
	uint32_t end = w->tail_pi + w->dvqp.sq.wqe_cnt;

	for (uint32_t i = w->pi; i != end; i++)
		memset(sq_seg(w, i, 0), w->fill, 64);
	memcpy(before, w->dvqp.sq.buf, ring_bytes(w));
	memset(w->dvqp.bf.reg, w->fill ^ UAR_FILL_XOR, UAR_SEEN);
}

/* Bytes that changed in outstanding WQEs, and in free blocks behind the new producer index. */
static void note_kept(const struct world *w, uint32_t old_pi, bool posted)
{
	uint32_t count = w->dvqp.sq.wqe_cnt, live = 0, beyond = 0;
	const uint8_t *ring = w->dvqp.sq.buf;

	for (uint32_t block = 0; block < count; block++) {
		bool is_old = old_pi != w->tail_pi && is_free(w, block, w->tail_pi, old_pi);
		bool is_new = is_free(w, block, old_pi, w->pi);

		if (!memcmp(ring + block * 64, before + block * 64, 64))
			continue;
		if (is_old)
			live++;
		else if (!is_new && posted)
			beyond++;
	}
	emit(TAG_KEPT, live, beyond, NULL, 0);
}

/* Whether a CQE may carry data for this WQE: its data segments must be such, and point into the arena. */
static bool scatters(const struct world *w, uint32_t pi, uint8_t op, uint32_t ds)
{
	uint32_t at = op == 0x10 ? 2 : op == 0x11 || op == 0x12 ? 3 : ds + 1;

	for (uint32_t i = at; i < ds; i++) {
		const struct mlx5_wqe_data_seg *seg = sq_seg(w, pi, i);
		uint64_t addr = be64toh(seg->addr), low = (uintptr_t)w->arena;

		if (be32toh(seg->byte_count) >> 31 || addr < low || addr >= low + ARENA_BYTES / 2)
			return false;
	}
	return at <= ds;
}

/* The key and address that all memcpy WQEs of a domain name are its driver's own: they are replaced by fixed
 * bytes where they are the same as in the first. */
static void hide_opaque(struct world *w, uint8_t *wqe)
{
	static const uint8_t shown[sizeof(w->opaque)] = "key,address";
	uint8_t *at = wqe + 20;

	if (wqe[3] != 0x2f || wqe[0] != 1)
		return;
	if (!w->opaque_known)
		memcpy(w->opaque, at, sizeof(w->opaque));
	w->opaque_known = true;
	if (memcmp(at, w->opaque, sizeof(w->opaque)))
		return;
	for (unsigned int i = 0; w->cfg.wq_sig && i < sizeof(w->opaque); i++)
		wqe[8] ^= at[i] ^ shown[i];		/* the signature covers them */
	memcpy(at, shown, sizeof(w->opaque));
}

static bool was_rung(const struct world *w)
{
	const uint8_t *reg = w->dvqp.bf.reg;

	for (uint32_t i = 0; i < UAR_SEEN; i++) {
		if (reg[i] != (w->fill ^ UAR_FILL_XOR))
			return true;
	}
	return false;
}

/* What was stored to the register. Its two halves are used in turn, also for what only one side accepted. */
static void note_uar(struct world *w)
{
	const uint8_t *reg = w->dvqp.bf.reg;
	uint8_t halves[UAR_SEEN];

	memcpy(halves, reg + (w->uar_flip ? UAR_SEEN / 2 : 0), UAR_SEEN / 2);
	memcpy(halves + UAR_SEEN / 2, reg + (w->uar_flip ? 0 : UAR_SEEN / 2), UAR_SEEN / 2);
	hide_opaque(w, halves);
	hide_opaque(w, halves + UAR_SEEN / 2);
	emit(TAG_UAR, 0, 0, halves, UAR_SEEN);
	w->uar_second ^= was_rung(w);
}

static uint32_t blocks_of(uint32_t ds)
{
	return (ds + 3) / 4;
}

/* One WQE: to the trace, and to the list of outstanding ones. RETURN its blocks. */
static uint32_t note_wqe(struct world *w, uint64_t wr_id, bool raw)
{
	const struct mlx5_wqe_ctrl_seg *ctrl = sq_seg(w, w->pi, 0);
	uint32_t ds = be32toh(ctrl->qpn_ds) & 0x3f, bb = blocks_of(ds);
	uint8_t op = (uint8_t)be32toh(ctrl->opmod_idx_opcode), wqe[1024];

	for (uint32_t i = 0; i < bb * 4; i++)
		memcpy(wqe + i * 16, sq_seg(w, w->pi, i), 16);
	if (!raw)
		hide_opaque(w, wqe);
	emit(TAG_WQE, w->pi, ds, wqe, bb * 64);
	w->out[w->out_head++ % RING_WR_MAX] = (struct posted){
		.wr_id = wr_id, .pi = w->pi, .bb = bb, .op = op, .scatters = scatters(w, w->pi, op, ds) };
	w->pi += bb;
	return bb;
}

/* What the step put into the ring, up to the doorbell record. */
static void note_posted(struct world *w, const struct step *s)
{
	uint32_t end = be32toh(w->dvqp.dbrec[MLX5_SND_DBR]), old = w->pi;

	for (uint32_t i = 0; i < s->n && ((end - w->pi) & 0xffff); i++) {
		if (!note_wqe(w, s->wr[i].wr_id, s->wr[i].op == OP_RAW))
			break;
	}
	emit(TAG_DB, end, be32toh(w->dvqp.dbrec[MLX5_RCV_DBR]), NULL, 0);
	note_uar(w);
	note_kept(w, old, w->pi != old);
}

/* ---- steps ---- */

/* Blocks that a request of this kind takes at most. */
static uint32_t most_blocks(const struct world *w, const struct wr *wr)
{
	uint32_t bb = wr->op == OP_RAW && !wr->row ? blocks_of(wr->raw[7] & 0x3f) : w->wqe_bb;

	return bb > w->wqe_bb ? bb : w->wqe_bb;
}

static enum row row_of(const struct world *w, const struct step *s, uint32_t *at)
{
	*at = 0;
	for (uint32_t i = 0; i < s->n; i++) {
		const struct wr *wr = &s->wr[i];

		*at = i;
		if (wr->row)
			return wr->row;
		/* Refused after its WQE was begun. */
		if (s->kind == STEP_POST_SEND && wr->faulty && wr->op != OP_BAD &&
		    (wr->op == OP_BIND || wr->n <= w->cap.max_send_sge)) {
			if (i)
				return ROW_OWN_DOORBELL;
			if (w->fence || wr->op == OP_BIND)
				return ROW_OWN_FENCE;
		}
	}
	return ROW_NONE;
}

static bool leaves_fence(const struct wr *wr)
{
	return wr->op == OP_BIND || wr->op == OP_LINV || wr->op == OP_LIST || wr->op == OP_INTERLEAVED ||
	       wr->op == OP_CONFIGURE;
}

static const struct { enum { RUN, SAME, OWN, SKIP } run; } rows[ROW_COUNT] = {
#define ROW(id, err, how, why) [ROW_##id] = { how },
#include "rows.def"
#undef ROW
};

static void describe(const struct world *w, const struct step *s)
{
	static const char *const kinds[] = { "ibv_wr_start .. complete:", "ibv_wr_start .. abort:", "ibv_post_send:",
					     "a completion", "RESET to RTS", "ibv_req_notify_cq", "receives",
					     "a completion of a receive" };
	char text[512];
	size_t n = (size_t)snprintf(text, sizeof(text), "%s", kinds[s->kind]);

	for (uint32_t i = 0; i < s->n && n < sizeof(text) - 40; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, " %s%s", op_name(s->wr[i].op),
				      s->wr[i].flags & IBV_SEND_FENCE ? "+fence" : "");
	emit(TAG_STEP, s->index, s->n, text, n);
	(void)w;
}

/* Whether a batch has surely no room, however short its requests turn out. */
static bool lacks_room(const struct world *w, const struct step *s)
{
	uint32_t used = w->pi - w->tail_pi;

	for (uint32_t i = 0; i < s->n; i++) {
		bool raw = s->wr[i].op == OP_RAW;

		if (w->out_head - w->out_tail + i >= w->max_post)
			return true;
		if (used + (raw ? most_blocks(w, &s->wr[i]) : w->wqe_bb) > w->dvqp.sq.wqe_cnt)
			return true;
		used += raw ? blocks_of(s->wr[i].raw[7] & 0x3f) : 1;
	}
	return false;
}

/* Sees to room, mostly. RETURN whether the step is to be made. */
static bool room_for(struct world *w, struct step *s, struct prng *p, enum row *row)
{
	uint32_t blocks = 0;
	bool tight = one_in(p, 6) && !w->cfg.streams && s->kind != STEP_ABORT, faulty = *row != ROW_NONE;

	for (uint32_t i = 0; i < s->n; i++) {
		blocks += most_blocks(w, &s->wr[i]);
		faulty |= s->wr[i].faulty;
	}
	if (!tight || faulty || blocks > w->wqe_bb * w->max_post) {
		while (!complete_until_room(w, p, s->n, blocks)) {
			s->n--;		/* it would not fit an empty queue */
			blocks -= most_blocks(w, &s->wr[s->n]);
		}
		return s->n;
	}
	if (s->kind == STEP_WR && lacks_room(w, s))
		*row = ROW_NO_ROOM;
	else if (w->pi - w->tail_pi + blocks > w->wqe_bb * w->max_post)
		return complete_until_room(w, p, 0, blocks);
	return true;
}

static void post(struct world *w, struct step *s, struct prng *p)
{
	uint32_t row_at;
	enum row row = row_of(w, s, &row_at);
	struct outcome out;
	bool skip;

	if (w->cfg.wq_sig && w->pi + s->n * 16 > w->wqe_bb * w->max_post)
		world_renew(w);
	if (!s->n || !w->max_post || !room_for(w, s, p, &row))
		return;
	if (row != ROW_NO_ROOM)
		row = row_of(w, s, &row_at);	/* requests may have gone, or the fence */
	emit(TAG_ROW, row, row_at, NULL, 0);
	prepare(w);
	skip = row != ROW_NONE && rows[row].run == SKIP && !ours;
	out = skip ? (struct outcome){ 0, -1 } : post_step(w, s);
	emit(TAG_RC, (uint32_t)out.rc, (uint32_t)out.bad, NULL, 0);
	if (row != ROW_NONE && rows[row].run != SAME) {
		emit(TAG_DB, be32toh(w->dvqp.dbrec[MLX5_SND_DBR]), w->pi & 0xffff, NULL, 0);
		w->uar_flip ^= was_rung(w);
		w->uar_second ^= was_rung(w);
		world_renew(w);
		return;
	}
	if (out.bad > 0)
		w->fence = leaves_fence(&s->wr[out.bad - 1]);
	else if (!out.rc && s->kind != STEP_ABORT)
		w->fence = leaves_fence(&s->wr[s->n - 1]);
	note_posted(w, s);
	if (row != ROW_NONE)
		world_renew(w);
}

/* Nothing can be posted before RTS. */
static void post_too_early(struct world *w, uint32_t index)
{
	static struct step s;
	struct outcome out;
	uint32_t row_at;

	gen_step(w, &s, index + STEPS_MAX);
	if (s.kind > STEP_POST_SEND || row_of(w, &s, &row_at) != ROW_NONE)
		return;
	prepare(w);
	out = post_step(w, &s);
	emit(TAG_RC, (uint32_t)out.rc, (uint32_t)out.bad, NULL, 0);
	note_uar(w);
}

static void reset(struct world *w, uint32_t index)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	if (ibv_modify_qp(w->qp, &attr, IBV_QP_STATE))
		die("to RESET");
	w->pi = w->tail_pi = 0;
	w->out_head = w->out_tail = 0;
	if (!w->srq)
		w->recv_head = w->recv_tail = 0;
	post_too_early(w, index);
	to_rts(w);
	emit(TAG_DB, be32toh(w->dvqp.dbrec[MLX5_SND_DBR]), be32toh(w->dvqp.dbrec[MLX5_RCV_DBR]), NULL, 0);
}

static void cut(struct step *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		if (keep[s->index] & 1u << i)
			s->wr[n++] = s->wr[i];
	}
	s->n = n;
}

static void run_step(struct world *w, uint32_t index)
{
	static struct step s;
	struct prng p = prng_at(w->seed, 500000 + index);

	gen_step(w, &s, index);
	cut(&s);
	describe(w, &s);
	switch (s.kind) {
	case STEP_WR:
	case STEP_ABORT:
	case STEP_POST_SEND:
		post(w, &s, &p);
		break;
	case STEP_COMPLETE:
		complete_some(w, &p);
		break;
	case STEP_RESET:
		reset(w, index);
		break;
	case STEP_ARM:
		arm_cq(w, &p);
		break;
	case STEP_RECV:
		recv_step(w, &p);
		break;
	case STEP_RECV_DONE:
		recv_done_step(w, &p);
		break;
	}
}

static void run_program(uint64_t seed, uint32_t fill_index)
{
	static const char *const kinds[T_KINDS] = { "RC", "UC", "UD", "XRC", "DCI" };
	static struct world w;
	struct config cfg;
	char text[256];

	gen_config(&cfg, seed);
	snprintf(text, sizeof(text), "%s%s max_send_wr %u, max_send_sge %u, max_inline_data %u, CQE %u%s%s%s%s%s%s%s",
		 kinds[cfg.kind], cfg.streams ? " with streams" : "", cfg.cap.max_send_wr, cfg.cap.max_send_sge,
		 cfg.cap.max_inline_data, cfg.cqe_bytes, cfg.ex ? "" : ", no builders",
		 cfg.sig_all ? ", sq_sig_all" : "", cfg.wq_sig ? ", signed WQEs" : "",
		 cfg.prefer_bf ? "" : ", PREFER_BF=0", cfg.shut_up_bf ? ", SHUT_UP_BF" : "", cfg.srq ? ", SRQ" : "",
		 cfg.far ? ", near block 65536" : "");
	emit(TAG_PROGRAM, (uint32_t)seed, fill_index, NULL, 0);
	emit(TAG_CONFIG, cfg.kind, cfg.wq_sig, text, strlen(text));
	world_open(&w, seed, fill_index ? FILL_B : FILL_A);
	if (w.qp && w.cfg.far)
		go_far(&w);
	for (uint32_t i = 0; w.qp && i < w.cfg.steps; i++) {
		if (keep[i])
			run_step(&w, i);
	}
	world_close(&w);
	emit(TAG_END, 0, 0, NULL, 0);
}

static void read_keep(const char *text)
{
	memset(keep, 0, sizeof(keep));
	while (*text) {
		char *end;
		unsigned long step = strtoul(text, &end, 10);

		if (end == text || step >= STEPS_MAX)
			exit(2);
		text = end;
		if (*text == '.') {
			keep[step] |= 1u << (strtoul(text + 1, &end, 10) & 31);
			text = end;
		} else {
			keep[step] = KEEP_ALL;
		}
		text += *text == ',';
	}
}

int main(int argc, char **argv)
{
	uint64_t seed, count;

	if (argc < 4) {
		fprintf(stderr, "usage: oracle_play ours|libmlx5 SEED COUNT [KEEP]\n");
		return 2;
	}
	ours = !strcmp(argv[1], "ours");
	seed = strtoull(argv[2], NULL, 10);
	count = strtoull(argv[3], NULL, 10);
	memset(keep, 0xff, sizeof(keep));
	if (argc > 4)
		read_keep(argv[4]);
	for (uint64_t i = 0; i < count; i++) {
		for (uint32_t fill = 0; fill < FILLS; fill++)
			run_program(seed + i, fill);
	}
	return fflush(stdout) ? 1 : 0;
}
