/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Messages within the process need no frame, and nobody can tell: random programs of sends, receives, writes and
 * errors run twice, once with SOFTMLX5_HOST=copy, where everything is a frame, and leave the same trace: completions,
 * memory, states, events and refusals after each step.
 *
 *   messages_within [SEED]	one program instead of the fixed ones
 *   messages_within run SEED	its trace
 * The program starts itself again for each run. */
#include <fcntl.h>
#include <unistd.h>

#include "t_why.h"

enum {
	LANES = 6, STEPS = 250, ARENA = 1 << 16, SRC = 0, DST = 1 << 15, KEY = 0x11aa, BATCH = 4, INLINE = 64,
	SEEDS = 12,
};

/* A way from one queue pair to another. */
struct lane {
	struct t_qp from, to;
	bool dc, self;
	struct ibv_srq *srq;		/* where its receives come from */
};

static struct t_env *env;
static struct t_buf arena;
static struct ibv_mr *readonly;
static struct ibv_cq *common;
static struct ibv_comp_channel *channel;
static struct ibv_srq *srq;
static struct ibv_ah *ah;
static struct lane lanes[LANES];
static uint32_t next_id, step;
static uint64_t rng;

static uint32_t rnd(uint32_t below)
{
	return t_rnd(&rng, below);
}

/* ---- the trace ---- */

/* Queue pairs by their place, since numbers differ from run to run. */
static int name_of(uint32_t qpn)
{
	for (int i = 0; i < LANES; i++) {
		if (lanes[i].from.qp->qp_num == qpn)
			return 2 * i;
		if (lanes[i].to.qp->qp_num == qpn)
			return 2 * i + 1;
	}
	return -1;
}

static void tell_completions(struct ibv_cq *cq, int lane, char which)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		bool ok = !wc.status;

		printf("%u %d%c id %u qp %d status %d vendor 0x%x", step, lane, which, (uint32_t)wc.wr_id,
		       name_of(wc.qp_num), wc.status, wc.vendor_err);
		if (ok)
			printf(" opcode %d flags 0x%x", wc.opcode, wc.wc_flags);
		if (ok && wc.opcode & IBV_WC_RECV)
			printf(" bytes %u from %d slid %u imm 0x%x", wc.byte_len, wc.src_qp ? name_of(wc.src_qp) : -2,
			       wc.slid, wc.wc_flags & IBV_WC_WITH_IMM ? be32toh(wc.imm_data) : 0);
		printf("\n");
	}
}

static void tell_events(void)
{
	struct ibv_async_event ev;
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_async_event(env->ctx, &ev)) {
		printf("%u event %d\n", step, ev.event_type);
		ibv_ack_async_event(&ev);
	}
	while (!ibv_get_cq_event(channel, &cq, &context)) {
		printf("%u completion event\n", step);
		ibv_ack_cq_events(cq, 1);
	}
}

static void tell_refusals(void)
{
	static uint64_t told;
	uint64_t count = softmlx5_refusal_count(NULL);
	struct softmlx5_refusal r;

	for (uint64_t n = count - told; n-- > 0;)
		if (!softmlx5_last_refusal(NULL, (unsigned int)n, &r))
			printf("%u refusal %s of %d, peer %d\n", step, r.name, name_of(r.qp_num),
			       name_of(r.peer_qp_num));
	told = count;
}

static void tell(void)
{
	uint64_t sum = 0;

	/* What was rung while the device's own thread was inside is left to it; a command comes after that. */
	t_qp_state(lanes[0].from.qp);
	tell_completions(common, 0, 'c');
	for (int i = 0; i < LANES; i++) {
		tell_completions(lanes[i].from.scq, i, 's');
		tell_completions(lanes[i].to.rcq, i, 'r');
	}
	tell_events();
	tell_refusals();
	for (size_t i = 0; i < ARENA; i++)
		sum = sum * 0x100000001b3ull ^ arena.p[i];
	printf("%u memory %016" PRIx64 " states", step, sum);
	for (int i = 0; i < LANES; i++)
		printf(" %d%d", t_qp_state(lanes[i].from.qp), t_qp_state(lanes[i].to.qp));
	printf("\n");
}

/* ---- what there is ---- */

/* Who waits for a receive does so for longer than a program runs: posting one ends the wait. */
static struct ibv_qp_attr attr_to(uint32_t qpn)
{
	struct ibv_qp_attr attr = t_attr(env, qpn);

	attr.min_rnr_timer = 0;
	return attr;
}

static void connect_lane(struct lane *l)
{
	struct ibv_qp_attr attr = attr_to(l->to.qp->qp_num);

	if (l->dc) {
		t_dci_rts(l->from.qp, &attr);
		return;
	}
	t_to_rts(l->from.qp, &attr);
	attr = attr_to(l->from.qp->qp_num);
	if (!l->self)
		t_to_rts(l->to.qp, &attr);
}

static struct t_qp open_dct(void)
{
	const struct t_spec spec = { .dc = T_DCT, .srq = srq, .dc_key = KEY };
	struct ibv_qp_attr attr = attr_to(0);
	struct t_qp q = t_qp(env, &spec);

	MUST(!t_modify(q.qp, &attr, IBV_QPS_INIT, T_INIT_MASK), "DCT to INIT");
	MUST(!t_modify(q.qp, &attr, IBV_QPS_RTR, T_DCT_RTR_MASK), "DCT to RTR");
	return q;
}

static void open_lanes(void)
{
	/* All in one queue; a queue for each; from an SRQ; small ones in the completion; to itself; DC. */
	struct t_spec spec[LANES] = {
		{ .scq = common, .rcq = common }, { 0 }, { .srq = srq },
		{ .create_flags = MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE }, { .scq = common }, { .srq = srq },
	};

	for (int i = 0; i < LANES; i++) {
		struct lane *l = &lanes[i];

		spec[i].ops = T_RC_OPS;
		spec[i].inl = INLINE;
		l->srq = spec[i].srq;
		l->self = i == 4;
		l->dc = i == 5;
		if (l->dc) {
			spec[i].srq = NULL;
			l->from = t_dci(env, spec[i]);
			l->to = open_dct();
			continue;
		}
		l->from = t_qp(env, &spec[i]);
		l->to = l->self ? l->from : t_qp(env, &spec[i]);
		connect_lane(l);
	}
}

static void do_not_block(int fd)
{
	MUST(!fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), "fcntl");
}

static void open_all(void)
{
	env = t_open();
	do_not_block(env->ctx->async_fd);
	channel = ibv_create_comp_channel(env->ctx);
	MUST(channel, "ibv_create_comp_channel");
	do_not_block(channel->fd);
	common = ibv_create_cq(env->ctx, 1024, NULL, channel, 0);
	MUST(common, "ibv_create_cq");
	arena = t_buf(env, ARENA, T_ALL);
	t_fill(arena.p, ARENA, 1);
	readonly = ibv_reg_mr(env->pd, arena.p, ARENA, 0);
	MUST(readonly, "ibv_reg_mr");
	srq = t_srq(env, 64);
	ah = t_ah(env);
	open_lanes();
}

/* ---- what is done ---- */

static uint32_t some_length(void)
{
	switch (rnd(6)) {
	case 0: return 1 + rnd(32);
	case 1: return 2000 + rnd(5000);
	default: return 1 + rnd(300);
	}
}

/* Seldom with a key that is refused. */
static struct ibv_sge some_sge(size_t base, uint32_t bad_key)
{
	uint32_t len = some_length();
	struct ibv_sge sge = t_sge(&arena, base + rnd(ARENA / 2 - len), len);

	if (!rnd(250))
		sge.lkey = bad_key;
	return sge;
}

static void receive(struct lane *l)
{
	struct ibv_sge sge[3];
	struct ibv_recv_wr *bad, wr = { .wr_id = next_id++, .sg_list = sge, .num_sge = (int)rnd(4) };

	/* Sometimes into what is sent. */
	for (int i = 0; i < wr.num_sge; i++)
		sge[i] = some_sge(rnd(8) ? DST : SRC, rnd(2) ? readonly->lkey : 0x7777);
	printf("%u receive %u by %d: %d\n", step, (uint32_t)wr.wr_id, (int)(l - lanes),
	       l->srq ? ibv_post_srq_recv(l->srq, &wr, &bad) : ibv_post_recv(l->to.qp, &wr, &bad));
}

static struct t_op some_op(const struct lane *l)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};
	enum ibv_wr_opcode op = rnd(300) ? ops[rnd(sizeof(ops) / sizeof(ops[0]))] : IBV_WR_SEND_WITH_INV;
	struct t_op o = t_op(op, next_id++, some_sge(SRC, 0x7777));

	o.flags = (rnd(3) ? IBV_SEND_SIGNALED : 0) | (rnd(4) ? 0 : IBV_SEND_SOLICITED);
	o.imm = o.inv = 0x1000 + (uint32_t)o.wr_id;
	o.rkey = rnd(250) ? arena.key : readonly->rkey;
	o.set = T_SGE_LIST;
	o.nsge = (int)rnd(4);
	for (int i = 1; i < o.nsge; i++)
		o.sge[i] = some_sge(SRC, 0x7777);
	if (op == IBV_WR_RDMA_READ) {
		o.nsge = 1;
		o.sge[0] = some_sge(SRC, readonly->lkey);
	}
	/* Where the remote memory is depends on nothing but the request: all of it fits. */
	o.raddr = arena.va + DST + rnd(1000);
	if (op != IBV_WR_RDMA_READ && o.nsge == 1 && !rnd(4)) {
		o.set = T_INLINE;
		o.sge[0].length = 1 + rnd(INLINE);
	}
	if (l->dc) {
		o.ah = ah;
		o.dest = l->to.qp->qp_num;
		o.dc_key = rnd(250) ? KEY : KEY + 1;
	}
	return o;
}

static void send(struct lane *l)
{
	int n = 1 + (int)rnd(BATCH);
	struct t_op ops[BATCH];

	for (int i = 0; i < n; i++)
		ops[i] = some_op(l);
	ops[n - 1].flags |= IBV_SEND_SIGNALED;
	printf("%u send %u.. by %d: %d\n", step, (uint32_t)ops[0].wr_id, (int)(l - lanes), t_post_n(&l->from, ops, n));
}

/* What is in error begins again, and so do receives. */
static void recover(struct lane *l)
{
	enum ibv_qp_state from = t_qp_state(l->from.qp), to = t_qp_state(l->to.qp);

	if (from != IBV_QPS_ERR && (l->dc || to != IBV_QPS_ERR))
		return;
	printf("%u recover %d\n", step, (int)(l - lanes));
	t_reset(l->from.qp);
	if (!l->dc && !l->self)
		t_reset(l->to.qp);
	connect_lane(l);
}

static void one_step(void)
{
	struct lane *l = &lanes[rnd(LANES)];

	switch (rnd(5)) {
	case 0:
		ibv_req_notify_cq(common, (int)rnd(2));
		break;
	case 1:
	case 2:
		for (uint32_t n = 1 + rnd(4); n > 0; n--)
			receive(l);
		break;
	default:
		send(l);
		break;
	}
	tell();
	recover(l);
}

static int run(uint64_t seed)
{
	rng = t_rng(seed);
	open_all();
	for (step = 0; step < STEPS && !t_state.failures; step++)
		one_step();
	fflush(stdout);
	_exit(t_state.failures ? 1 : 0);
}

/* ---- comparing ---- */

static FILE *start(const char *host, uint64_t seed)
{
	char command[256], exe[200] = "";
	FILE *out;

	MUST(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0, "readlink");
	snprintf(command, sizeof(command), "SOFTMLX5_HOST=%s '%s' run %" PRIu64, host, exe, seed);
	out = popen(command, "r");
	MUST(out, "popen");
	return out;
}

static void same_trace(const void *arg)
{
	uint64_t seed = *(const uint64_t *)arg;
	FILE *frames = start("copy", seed), *here = start("on", seed);
	char want[300], got[300];
	uint32_t lines = 0, received = 0;

	for (;; lines++) {
		bool more = fgets(want, sizeof(want), frames);

		if (!EXPECT(more == !!fgets(got, sizeof(got), here), "line %u: one run ends before the other", lines) ||
		    !more)
			break;
		received += strstr(got, " bytes ") != NULL;
		if (!EXPECT(!strcmp(want, got), "line %u: %.*s, with frames %.*s", lines, (int)strcspn(got, "\n"), got,
			    (int)strcspn(want, "\n"), want))
			break;
	}
	EXPECT(pclose(frames) == 0, "the run with frames fails");
	EXPECT(pclose(here) == 0, "the run without fails");
	EXPECT(received > 20, "only %u messages were received", received);
}

int main(int argc, char **argv)
{
	char name[64];

	if (argc == 3 && !strcmp(argv[1], "run"))
		return run(strtoull(argv[2], NULL, 0));
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		uint64_t chosen = argc > 1 ? strtoull(argv[1], NULL, 0) : seed;

		snprintf(name, sizeof(name), "messages end as frames do, seed %" PRIu64, chosen);
		t_case(name, same_trace, &chosen);
		if (argc > 1)
			break;
	}
	return t_done();
}
