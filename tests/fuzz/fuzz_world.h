/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A device with two queue pairs, their queues and keys of every kind, for wqe_fuzz.c.
 *
 * Each queue is a variable of its own, so that AddressSanitizer sees a step beyond it. Registered memory has
 * unmapped pages on both sides: a copy that leaves it faults, and a fault there is a failure. The device is made once;
 * objects are made and destroyed with each input, and their numbers start anew. */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/guard.h"
#include "dev/dev.h"
#include "hw/cqe.h"
#include "hw/wqe.h"
#include "net/net_loop.h"
#include "net/net_sim.h"
#include "obj/cq.h"
#include "obj/dma.h"
#include "obj/qp.h"
#include "xport/requester.h"
#include "xport/responder.h"

enum {
	RING_BB = 64, RECVS = 16, RECV_STRIDE = 64, CQES = 1024, CQES_FEW = 8, MEM = 16384, PAGE = 4096,
	MTU = 256, DC_KEY = 0x77, QKEY = 0x11, STREAMS_LOG = 2,
};

/* Options: byte 1 of an input. */
enum {
	WITH_LOSS = 1,
	WITHOUT_PEER = 2 /* UD: a multicast group */,
	WITH_SIGNATURES = 4,
	WITHOUT_RECEIVES = 8,
	WITH_INLINE_CQES = 16,
	WITH_SMALL_CQ = 32,
	WITH_SRQ = 64,
	WITH_SMALL_TURNS = 128,
};

/* The kinds of keys. NULL, GONE and FOREIGN are not for UMRs to change. */
enum { KEY_REGION, KEY_READ_ONLY, KEY_LIST, KEY_TAGGED, KEY_INNER, KEY_WINDOW, KEY_NULL, KEY_FOREIGN, KEYS };

static struct fuzz_world {
	struct smx_dev *dev;
	uint64_t now_ns;
	uint8_t *mem;			/* MEM bytes, registered */
	struct smx_refusal_log log;
	struct smx_pd *pd, *other_pd;
	struct smx_xrcd *xrcd;
	struct smx_cq *cq;
	struct smx_srq *srq;
	struct smx_qp *qp[2];		/* NULL: destroyed */
	uint32_t qpn[2], srqn;
	struct smx_mkey *key[KEYS];	/* NULL: destroyed */
	uint32_t key_num[KEYS];
	enum smx_qp_type type;
	bool tags;			/* RC: both feed from a tag matching SRQ, the second fetches rendezvous */
	uint8_t options, seed;
	bool bad_fault;
	bool no_room;			/* the port refused a frame */
	uint32_t admitted;
} w;

_Alignas(64) static uint8_t sq_buf[2][RING_BB * SMX_WQE_BB];
_Alignas(64) static uint8_t rq_buf[2][RECVS * RECV_STRIDE];
_Alignas(64) static uint8_t srq_buf[RECVS * RECV_STRIDE];
_Alignas(64) static uint8_t cq_buf[CQES * 128];
_Alignas(64) static uint8_t cq_buf_moved[CQES * 128];
static uint32_t dbrec[2][2], cq_dbrec[2], srq_dbrec[1];

static inline uint64_t fuzz_now(void *arg)
{
	(void)arg;
	return w.now_ns;
}

static inline void ignore_cq_event(void *cookie, void *arg)
{
	(void)cookie;
	(void)arg;
}

static inline void ignore_async(enum ibv_event_type type, void *cookie, void *arg)
{
	(void)type;
	(void)cookie;
	(void)arg;
}

static inline bool is_fault(uint32_t check)
{
	return check == SMX_CHECK_GATHER_FAULT || check == SMX_CHECK_SCATTER_FAULT ||
	       check == SMX_CHECK_RECV_FAULT || check == SMX_CHECK_REMOTE_FAULT;
}

/* All registered memory is there and can be written. */
static inline void look_for_faults(struct smx_refusal *r, void *arg)
{
	(void)arg;
	if (is_fault(r->check)) {
		fprintf(stderr, "the device left registered memory: %s\n", r->text);
		w.bad_fault = true;
	}
}

static inline bool fuzz_flatten(void *walk, void *to, uint64_t n, uint16_t *check)
{
	struct smx_dma_fault fault;
	uint64_t done = 0;

	*check = (uint16_t)smx_dma_read(walk, to, n, &done, &fault);
	return !*check && done == n;
}

static inline void must(int rc)
{
	if (rc) {
		fprintf(stderr, "set-up failed: %s\n", strerror(rc));
		abort();
	}
}

static const uint8_t group_gid[16] = { 0xff, 0x0e, [15] = 1 };

static inline bool is_multicast(void)
{
	return w.type == SMX_QP_UD && w.options & WITHOUT_PEER;
}

static inline uint64_t mem_va(void)
{
	return (uintptr_t)w.mem;
}

/* Once a process. */
static inline void make_device(void)
{
	struct smx_dev_attr attr = {
		.env = { .now = fuzz_now, .cq_event = ignore_cq_event, .async_event = ignore_async,
			 .copy = smx_guard_copy, .call = smx_guard_call, .refusals = &w.log },
		.memcpy_max_bytes = 1 << 20, .mtu_bytes = MTU, .turn_budget_bytes = 1,
	};
	uint8_t *p;

	if (w.dev)
		return;
	/* At the same address each time, so that an input of one run means the same in another. */
	p = mmap((void *)0x200000000000, MEM + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
		 -1, 0);
	if (p == MAP_FAILED || mprotect(p + PAGE, MEM, PROT_READ | PROT_WRITE))
		abort();
	w.mem = p + PAGE;
	w.log.sink = look_for_faults;
	smx_guard_install();
	must(smx_dev_create(&attr, &w.dev));
}

static inline void make_keys(void)
{
	enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND };
	struct smx_mkey_attr region = { .kind = SMX_MKEY_DIRECT, .pd = w.pd, .start = mem_va(), .length = MEM,
					.host = w.mem, .access = ALL };
	struct smx_mkey_attr list = { .kind = SMX_MKEY_INDIRECT, .pd = w.pd, .max_entries = 16,
				      .remote_invalidate = true };
	struct smx_mkey_attr attr[KEYS] = {
		[KEY_REGION] = region, [KEY_READ_ONLY] = region, [KEY_LIST] = list, [KEY_TAGGED] = list,
		[KEY_INNER] = list, [KEY_FOREIGN] = region,
		[KEY_WINDOW] = { .kind = SMX_MKEY_WINDOW, .pd = w.pd, .mw_type = IBV_MW_TYPE_2 },
		[KEY_NULL] = { .kind = SMX_MKEY_NULL, .pd = w.pd, .access = IBV_ACCESS_LOCAL_WRITE },
	};

	attr[KEY_READ_ONLY].access = 0;
	attr[KEY_TAGGED].update_tag = true;
	attr[KEY_FOREIGN].pd = w.other_pd;
	for (int i = 0; i < KEYS; i++)
		must(smx_cmd_create_mkey(w.dev, &attr[i], &w.key[i], &w.key_num[i]));
}

/* Receives of 512 bytes; the last of them through a list that a UMR may have filled. */
static inline void write_receives(uint8_t *buf, uint32_t off)
{
	for (uint32_t i = 0; i < RECVS; i++) {
		struct smx_wqe_data seg[2] = {
			{ to_be32(512), to_be32(w.key_num[KEY_REGION]), to_be64(mem_va() + i * 512) },
			{ to_be32(0), to_be32(SMX_LKEY_END), to_be64(0) },
		};
		struct smx_wqe_srq_next next = { .next_wqe_index = to_be16((i + 1) % RECVS) };

		if (i % 4 == 3)
			seg[0] = (struct smx_wqe_data){ to_be32(64), to_be32(w.key_num[KEY_LIST]), to_be64(0) };
		if (off)
			memcpy(buf + i * RECV_STRIDE, &next, sizeof(next));
		memcpy(buf + i * RECV_STRIDE + off, seg, sizeof(seg));
	}
}

static inline enum smx_qp_type type_of(int i)
{
	if (i && w.type == SMX_QP_DCI)
		return SMX_QP_DCT;
	return i && w.type == SMX_QP_XRC_INI ? SMX_QP_XRC_TGT : w.type;
}

static inline void connect_one(int i)
{
	enum smx_qp_type type = type_of(i);
	bool peer = i || !(w.options & WITHOUT_PEER);
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .dest_qp_num = peer ? w.qpn[!i] : 0x3333,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IBV_MTU_256, .max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 1,
		.retry_cnt = 2, .rnr_retry = 2, .sq_psn = 0xfffffe, .rq_psn = 0xfffffe,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	struct smx_path path = { .hop_limit = 64 };
	bool connected = type != SMX_QP_UD && type != SMX_QP_DCI && type != SMX_QP_DCT;
	bool answers = type == SMX_QP_RC || type == SMX_QP_XRC_TGT;
	bool retries = type == SMX_QP_RC || type == SMX_QP_XRC_INI || type == SMX_QP_DCI;
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, rtr = IBV_QP_STATE,
	    rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	init |= type == SMX_QP_UD ? IBV_QP_QKEY : type == SMX_QP_DCI ? 0 : IBV_QP_ACCESS_FLAGS;
	rtr |= connected ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0;
	rtr |= answers ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
	rtr |= type == SMX_QP_DCT ? IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_MIN_RNR_TIMER : 0;
	rtr |= type == SMX_QP_DCI ? IBV_QP_PATH_MTU : 0;
	rts |= retries ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;
	rts |= type == SMX_QP_XRC_TGT ? IBV_QP_TIMEOUT : 0;
	must(smx_cmd_modify_qp(w.dev, w.qp[i], &a, init, &path));
	a.qp_state = IBV_QPS_RTR;
	must(smx_cmd_modify_qp(w.dev, w.qp[i], &a, rtr, &path));
	a.qp_state = IBV_QPS_RTS;
	if (type != SMX_QP_DCT)
		must(smx_cmd_modify_qp(w.dev, w.qp[i], &a, rts, &path));
}

static inline void make_qp(int i)
{
	enum smx_qp_type type = type_of(i);
	bool receives = type == SMX_QP_RC || type == SMX_QP_UC || type == SMX_QP_UD;
	bool srq = type == SMX_QP_DCT || (receives && (w.options & WITH_SRQ || w.tags));
	bool sends = type != SMX_QP_DCT && type != SMX_QP_XRC_TGT && !(w.tags && i);
	struct smx_qp_attr a = {
		.type = type, .pd = w.pd, .send_cq = w.cq, .recv_cq = w.cq, .srq = srq ? w.srq : NULL,
		.xrcd = type == SMX_QP_XRC_TGT ? w.xrcd : NULL,
		.sq_buf = sq_buf[i], .sq_bb_count = sends ? RING_BB : 0,
		.rq_buf = rq_buf[i], .rq_wqe_count = receives && !srq ? RECVS : 0, .rq_stride_bytes = RECV_STRIDE,
		.dbrec = dbrec[i], .dc_key = DC_KEY, .log_streams = STREAMS_LOG, .log_errored = 1,
		.req_scatter_bytes = w.options & WITH_INLINE_CQES ? 64 : 0,
		.resp_scatter_bytes = w.options & WITH_INLINE_CQES ? 64 : 0,
		.wq_signature = w.options & WITH_SIGNATURES,
	};

	must(smx_cmd_create_qp(w.dev, &a, &w.qp[i], &w.qpn[i]));
	if (is_multicast())
		must(smx_cmd_attach_mcast(w.dev, w.qp[i], group_gid));
}

static inline void end_qp(int i)
{
	if (!w.qp[i])
		return;
	if (is_multicast())
		must(smx_cmd_detach_mcast(w.dev, w.qp[i], group_gid));
	must(smx_cmd_destroy_qp(w.dev, w.qp[i]));
	w.qp[i] = NULL;
}

static inline void make_queues(void)
{
	bool few = w.options & WITH_SMALL_CQ;
	struct smx_cq_attr cq = { .buf = cq_buf, .cqe_count = few ? CQES_FEW : CQES, .cqe_bytes = 128,
				  .dbrec = cq_dbrec, .ignore_overrun = !few };
	struct smx_srq_attr srq = { .buf = srq_buf, .wqe_count = RECVS, .stride_bytes = RECV_STRIDE,
				    .dbrec = srq_dbrec, .pd = w.pd };
	uint32_t num;

	for (uint32_t i = 0; i < CQES; i++)
		cq_buf[i * 128 + 127] = cq_buf_moved[i * 128 + 127] = SMX_CQE_INVALID << 4 | SMX_CQE_OWNER;
	memset(dbrec, 0, sizeof(dbrec));
	memset(cq_dbrec, 0, sizeof(cq_dbrec));
	memset(srq_dbrec, 0, sizeof(srq_dbrec));
	must(smx_cmd_create_cq(w.dev, &cq, &w.cq, &num));
	if (w.type == SMX_QP_XRC_INI) {
		srq.xrcd = w.xrcd;
		srq.cq = w.cq;
	}
	if (w.tags) {
		srq.tag_count = 16;
		srq.cq = w.cq;
	}
	must(smx_cmd_create_srq(w.dev, &srq, &w.srq, &w.srqn));
	for (int i = 0; i < 2; i++) {
		memset(sq_buf[i], 0, sizeof(sq_buf[i]));
		write_receives(rq_buf[i], w.options & WITH_SIGNATURES ? SMX_WQE_DS : 0);
		make_qp(i);
	}
	write_receives(srq_buf, sizeof(struct smx_wqe_srq_next));
	if (!(w.options & WITHOUT_RECEIVES)) {
		dbrec[0][SMX_DBREC_RCV] = dbrec[1][SMX_DBREC_RCV] = htobe32(RECVS);
		srq_dbrec[0] = htobe32(RECVS - 1);
	}
}

/* A port that is full now and then, and takes short frames only. */
static inline bool fuzz_admit(struct smx_port *port, const struct smx_frame *f, uint64_t *most)
{
	(void)port;
	(void)f;
	*most = w.seed & 64 ? 700 : 1 << 20;
	if (!(w.seed & 32) || ++w.admitted % 3)
		return true;
	w.no_room = true;
	return false;
}

/* Loopback, or a path that loses, doubles and reorders. */
static inline void make_port(uint32_t seed)
{
	static struct smx_port_ops full_ops[2];		/* of each medium */
	struct smx_net_sim_attr sim = { .seed = seed, .drop_ppm = (seed & 7) * 30000, .dup_ppm = 50000,
					.reorder_ppm = (seed & 8) ? 100000 : 0, .delay_ns_min = 100,
					.delay_ns_max = 2000, .max_payload_bytes = seed & 16 ? 0 : 2048,
					.flatten = fuzz_flatten };
	struct smx_port *port = w.options & WITH_LOSS ? smx_net_sim_create(&sim) : smx_net_loop_create();

	if (!port)
		abort();
	if (seed & 0x60) {
		struct smx_port_ops *ops = &full_ops[w.options & WITH_LOSS ? 1 : 0];

		*ops = *port->ops;
		ops->admit = fuzz_admit;
		port->ops = ops;
	}
	smx_dev_set_port(w.dev, port);
}

static inline void make_world(enum smx_qp_type type, uint8_t options, uint8_t seed)
{
	uint32_t num;

	make_device();
	w.type = type;
	w.options = options;
	w.seed = seed;
	w.no_room = false;
	w.admitted = 0;
	w.dev->attr.turn_budget_bytes = options & WITH_SMALL_TURNS ? 300 : 1 << 16;
	memset(w.mem, 0xa5, MEM);
	make_port(seed);
	must(smx_cmd_alloc_pd(w.dev, &w.pd, &num));
	must(smx_cmd_alloc_pd(w.dev, &w.other_pd, &num));
	must(smx_cmd_alloc_xrcd(w.dev, &w.xrcd));
	make_keys();
	make_queues();
	for (int i = 0; i < 2; i++)
		connect_one(i);
}

/* Nothing may be in use that nobody uses any more. */
static inline void end_world(void)
{
	for (int i = 0; i < 2; i++)
		end_qp(i);
	must(smx_cmd_destroy_srq(w.dev, w.srq));
	must(smx_cmd_destroy_cq(w.dev, w.cq));
	for (int i = 0; i < KEYS; i++) {
		if (w.key[i])
			must(smx_cmd_destroy_mkey(w.dev, w.key[i]));
		w.key[i] = NULL;
	}
	must(smx_cmd_dealloc_xrcd(w.dev, w.xrcd));
	must(smx_cmd_dealloc_pd(w.dev, w.other_pd));
	must(smx_cmd_dealloc_pd(w.dev, w.pd));
	assert(!w.dev->ready_head && !w.dev->timers && !w.dev->rnr_waiting && !w.dev->watched);
	w.dev->qps.next = w.dev->mkeys.next = w.dev->cqs.next = w.dev->srqs.next = w.dev->pds.next = 0;
	w.dev->xrcds.next = 0;
	w.dev->next_tag = 0;
	w.now_ns = 1;
}

#endif
