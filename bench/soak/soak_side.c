/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One of the two processes: makes everything, works until told to stop, looks a last time, gives
 * everything back. */
#include "soak.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>

struct world w;

void wrong(const char *fmt, ...)
{
	va_list ap;

	if (!__atomic_exchange_n(&w.common->failed, 1, __ATOMIC_SEQ_CST)) {
		int n = snprintf(w.common->why, sizeof(w.common->why), "process %c: ", 'A' + w.me);

		va_start(ap, fmt);
		vsnprintf(w.common->why + n, sizeof(w.common->why) - (size_t)n, fmt, ap);
		va_end(ap);
	}
	if (getenv("SOAK_ABORT"))
		abort();
	_exit(1);
}

static struct ibv_srq *xrc_srq(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = SRQ_RECVS, .max_sge = 1 },
		.srq_type = IBV_SRQT_XRC,
		.xrcd = w.xrcd,
		.pd = w.env->pd,
		.cq = w.rcq[0],
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(w.env->ctx, &attr);

	if (!srq || ibv_get_srq_num(srq, &w.mine->srqn))
		wrong("an XRC shared receive queue: %s", strerror(errno));
	return srq;
}

static void make_shared(void)
{
	struct ibv_xrcd_init_attr xrcd = { .fd = -1,
					   .oflags = O_CREAT,
					   .comp_mask = IBV_XRCD_INIT_ATTR_FD |
							IBV_XRCD_INIT_ATTR_OFLAGS };

	w.channel = ibv_create_comp_channel(w.env->ctx);
	for (int i = 0; i < CQS; i++) {
		w.scq[i] = ibv_create_cq(w.env->ctx, 16383, NULL, i ? NULL : w.channel, 0);
		w.rcq[i] = ibv_create_cq(w.env->ctx, 16383, NULL, i ? NULL : w.channel, 0);
		if (!w.scq[i] || !w.rcq[i])
			wrong("ibv_create_cq: %s", strerror(errno));
	}
	w.shared_recv = t_buf(w.env, (size_t)2 * SRQ_RECVS * SHARED_RECV_BYTES, T_ALL);
	memset(w.shared_recv.p, 1, w.shared_recv.len);
	w.xrcd = ibv_open_xrcd(w.env->ctx, &xrcd);
	if (!w.xrcd || !w.channel)
		wrong("ibv_open_xrcd: %s", strerror(errno));
	w.xrc_srq = xrc_srq();
	w.dc_srq = t_srq(w.env, SRQ_RECVS);
	w.dct = t_qp(w.env, &(struct t_spec){ .dc = T_DCT,
					      .srq = w.dc_srq,
					      .dc_key = KEY,
					      .scq = w.scq[1],
					      .rcq = w.rcq[1] });
	t_dct_rtr(w.env, w.dct.qp);
	for (uint32_t i = 0; i < SRQ_RECVS; i++) {
		srq_post(0, i);
		srq_post(1, i);
	}
	w.ah = t_ah(w.env);
}

static void make_targets(void)
{
	void *hole =
		mmap(NULL, HOLE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	w.junk = t_buf(w.env, JUNK_BYTES, T_ALL);
	memset(w.junk.p, 1, JUNK_BYTES);
	w.readonly = ibv_reg_mr(w.env->pd, w.junk.p, JUNK_BYTES, IBV_ACCESS_REMOTE_READ);
	w.hole = hole == MAP_FAILED ? NULL : ibv_reg_mr(w.env->pd, hole, HOLE_BYTES, T_ALL);
	if (!w.readonly || !w.hole)
		wrong("ibv_reg_mr: %s", strerror(errno));
	if (mmap(hole, HOLE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	    hole)
		wrong("mmap: %s", strerror(errno));
	w.mine->junk = w.junk.va;
	w.mine->junk_rkey = w.junk.mr->rkey;
	w.mine->readonly_rkey = w.readonly->rkey;
	w.mine->hole = (uintptr_t)hole;
	w.mine->hole_rkey = w.hole->rkey;
	w.mine->dctn = w.dct.qp->qp_num;
	for (int i = 0; i < ARENAS; i++) {
		w.mine->arena[i] = w.arena[i].va;
		w.mine->rkey[i] = w.arena[i].mr->rkey;
	}
}

static void meet(uint32_t *mine, const uint32_t *theirs, uint32_t n)
{
	put(mine, n);
	while (get(theirs) < n) {
		if (w.common->failed || getppid() == 1)
			_exit(1);
		usleep(1000);
	}
}

static void try_to_look(void)
{
	uint8_t byte;
	struct iovec local = { &byte, 1 }, remote = { (void *)(uintptr_t)w.theirs->junk, 1 };

	w.can_look = process_vm_readv(w.theirs->pid, &local, 1, &remote, 1, 0) == 1;
}

/* Sleeps until there is a completion in the first queues, at most ms. */
static void doze(int ms)
{
	struct pollfd pfd = { .fd = w.channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *arg;

	if (ibv_req_notify_cq(w.scq[0], 0) || ibv_req_notify_cq(w.rcq[0], 0))
		wrong("ibv_req_notify_cq: %s", strerror(errno));
	poll(&pfd, 1, ms);
	while (poll(&pfd, 1, 0) > 0) {
		if (ibv_get_cq_event(w.channel, &cq, &arg))
			wrong("ibv_get_cq_event: %s", strerror(errno));
		ibv_ack_cq_events(cq, 1);
	}
}

static void take_events(void)
{
	struct pollfd pfd = { .fd = w.env->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	while (poll(&pfd, 1, 0) > 0 && !ibv_get_async_event(w.env->ctx, &event)) {
		if (event.event_type == IBV_EVENT_CQ_ERR || event.event_type == IBV_EVENT_SRQ_ERR ||
		    event.event_type == IBV_EVENT_DEVICE_FATAL)
			wrong("asynchronous event: %s", ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
}

static void check_orphan(void)
{
	if (w.common->failed || getppid() == 1)
		_exit(1);
}

static void work(void)
{
	uint32_t next = 0;

	for (uint64_t turn = 0; !w.common->stop; turn++) {
		uint32_t from = rnd(w.common->conns), n = 1 + rnd(40);

		for (uint32_t i = 0; i < n; i++)
			conn_step(&w.conn[rnd(3) ? (from + rnd(8)) % w.common->conns
						 : rnd(w.common->conns)]);
		poll_all();
		for (uint32_t i = 0; i < 200; i++)
			conn_progress(&w.conn[next++ % w.common->conns]);
		if (!w.common->calm && turn % 64 == 0)
			victims_step();
		if (turn % 256 == 0)
			take_events();
		if (!rnd(400))
			doze(1 + (int)rnd(5));
		check_orphan();
	}
}

/* Nothing new; what is under way ends, what is broken is brought back. */
static void settle(void)
{
	uint64_t end = t_now_ms() + STALL_MS + 30000;

	for (;;) {
		bool quiet = true;

		while (poll_all())
			;
		for (uint32_t i = 0; i < w.common->conns; i++) {
			conn_progress(&w.conn[i]);
			quiet = quiet && conn_is_quiet(&w.conn[i]);
		}
		put(&w.mine->quiet, quiet);
		if (quiet && get(&w.theirs->quiet))
			break;
		if (t_now_ms() > end)
			wrong("the connections do not come to rest");
		check_orphan();
		usleep(200);
	}
}

static void last_look(void)
{
	uint64_t end = t_now_ms() + 4000;

	for (uint32_t i = 0; i < w.common->conns; i++) {
		struct conn *c = &w.conn[i];

		while (c->kind == UC && !conn_look_loss(c, t_now_ms() < end))
			usleep(1000);
		if (c->kind != UC)
			conn_look(c);
	}
	while (poll_all())
		;
}

static void give_back(void)
{
	conns_free();
	victims_free();
	t_qp_free(&w.dct);
	if (ibv_destroy_ah(w.ah) || ibv_destroy_srq(w.xrc_srq) || ibv_destroy_srq(w.dc_srq) ||
	    ibv_close_xrcd(w.xrcd) || ibv_dereg_mr(w.readonly) || ibv_dereg_mr(w.hole))
		wrong("giving back: %s", strerror(errno));
	for (int i = 0; i < CQS; i++)
		if (ibv_destroy_cq(w.scq[i]) || ibv_destroy_cq(w.rcq[i]))
			wrong("ibv_destroy_cq: %s", strerror(errno));
	if (ibv_destroy_comp_channel(w.channel))
		wrong("ibv_destroy_comp_channel: %s", strerror(errno));
	t_buf_free(&w.junk);
	t_buf_free(&w.shared_recv);
	if (ibv_dealloc_pd(w.env->pd) || ibv_close_device(w.env->ctx))
		wrong("closing: %s", strerror(errno));
	free(w.env);
}

static void run(void)
{
	w.env = t_open();
	make_shared();
	conns_make();
	make_targets();
	victims_make();
	w.mine->pid = getpid();
	meet(&w.mine->ready, &w.theirs->ready, 1);
	try_to_look();
	work();
	settle();
	meet(&w.mine->ready, &w.theirs->ready, 2);
	last_look();
	meet(&w.mine->ready, &w.theirs->ready, 3);
	give_back();
}

void side_run(struct common *common, int me)
{
	w.common = common;
	w.me = me;
	w.mine = &common->side[me];
	w.theirs = &common->side[!me];
	w.rng = mix(common->seed + 77 * (unsigned int)me) | 1;
	if (!setjmp(t_state.out))
		run();
	if (t_state.failures)
		wrong("%s", t_state.why);
	exit(0);
}
