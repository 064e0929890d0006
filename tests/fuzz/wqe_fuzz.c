/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Any bytes in a send ring: the device must neither crash nor touch memory outside what it was given,
 * and must come to rest.
 *
 * Input: byte 0 picks the queue pair's type, byte 1 how helpful the fuzzer is; then blocks of the ring.
 * A helpful run repairs index, queue pair number and keys, so that mutations reach deep into execution;
 * an unhelpful one leaves every byte as it came. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "dev/dev.h"
#include "hw/cqe.h"
#include "hw/wqe.h"
#include "trace/refusal.h"

enum { RING_BB = 64, RECVS = 16, CQES = 256, MEM = 8192, TURNS = 10000 };

static struct {
	struct smx_dev *dev;
	uint64_t now_ns;
	struct smx_refusal_log log;
	_Alignas(4096) uint8_t mem[3 * MEM];	/* the middle third is registered, the others must not change */
	_Alignas(64) uint8_t sq[2][RING_BB * 64];
	_Alignas(64) uint8_t rq[2][RECVS * 64];
	_Alignas(64) uint8_t srq[RECVS * 64];
	_Alignas(64) uint8_t cq[CQES * 64];
	_Alignas(8) uint32_t dbrec[2][2], cq_dbrec[2], srq_dbrec[2];
} w;

static uint64_t fake_now(void *arg)
{
	(void)arg;
	return w.now_ns;
}

static void ignore_cq_event(void *cookie, void *arg)
{
	(void)cookie, (void)arg;
}

static void ignore_async(enum ibv_event_type type, void *cookie, void *arg)
{
	(void)type, (void)cookie, (void)arg;
}

static void must(int rc)
{
	if (rc) {
		fprintf(stderr, "set-up failed: %s\n", strerror(rc));
		abort();
	}
}

struct world {
	struct smx_pd *pd;
	struct smx_cq *cq;
	struct smx_srq *srq;
	struct smx_qp *qp[2];
	uint32_t qpn[2], key, mkey;
};

static void post_receives(uint8_t *buf, uint32_t off, uint32_t key)
{
	for (uint32_t i = 0; i < RECVS; i++) {
		struct smx_wqe_data seg[2] = {
			{ to_be32(512), to_be32(key), to_be64((uintptr_t)w.mem + MEM + i * 256) },
			{ to_be32(0), to_be32(SMX_LKEY_END), to_be64(0) },
		};
		struct smx_wqe_srq_next next = { .next_wqe_index = to_be16((i + 1) % RECVS) };

		if (off)
			memcpy(buf + i * 64, &next, sizeof(next));
		memcpy(buf + i * 64 + off, seg, sizeof(seg));
	}
}

static void connect_qp(struct world *o, int i, enum smx_qp_type type)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11, .dest_qp_num = o->qpn[!i],
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IBV_MTU_256, .max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 1,
		.retry_cnt = 1, .rnr_retry = 1,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	struct smx_path path = { .hop_limit = 64 };
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, rtr = IBV_QP_STATE,
	    rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (type == SMX_QP_UD) {
		init |= IBV_QP_QKEY;
	} else if (type == SMX_QP_DCI) {
		rtr |= IBV_QP_PATH_MTU;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	} else if (type == SMX_QP_DCT) {
		init |= IBV_QP_ACCESS_FLAGS;
		rtr |= IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_MIN_RNR_TIMER;
	} else {
		init |= IBV_QP_ACCESS_FLAGS;
		rtr |= IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		if (type == SMX_QP_RC) {
			rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
			rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		}
	}
	must(smx_cmd_modify_qp(w.dev, o->qp[i], &a, init, &path));
	a.qp_state = IBV_QPS_RTR;
	must(smx_cmd_modify_qp(w.dev, o->qp[i], &a, rtr, &path));
	a.qp_state = IBV_QPS_RTS;
	if (type != SMX_QP_DCT)
		must(smx_cmd_modify_qp(w.dev, o->qp[i], &a, rts, &path));
}

static void build_world(struct world *o, enum smx_qp_type type)
{
	struct smx_mkey_attr mr = {
		.kind = SMX_MKEY_DIRECT,
		.start = (uintptr_t)w.mem + MEM,
		.length = MEM,
		.host = w.mem + MEM,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct smx_mkey_attr indirect = { .kind = SMX_MKEY_INDIRECT, .max_entries = 8 };
	struct smx_cq_attr cq = { .buf = w.cq,
				  .cqe_count = CQES,
				  .cqe_bytes = 64,
				  .dbrec = w.cq_dbrec,
				  .ignore_overrun = true };
	struct smx_srq_attr srq = { .buf = w.srq, .wqe_count = RECVS, .stride_bytes = 64, .dbrec = w.srq_dbrec };
	struct smx_mkey *mk;
	uint32_t num;

	must(smx_cmd_alloc_pd(w.dev, &o->pd, &num));
	mr.pd = indirect.pd = srq.pd = o->pd;
	must(smx_cmd_create_mkey(w.dev, &mr, &mk, &o->key));
	must(smx_cmd_create_mkey(w.dev, &indirect, &mk, &o->mkey));
	memset(w.cq, 0xf1, sizeof(w.cq));
	must(smx_cmd_create_cq(w.dev, &cq, &o->cq, &num));
	post_receives(w.srq, sizeof(struct smx_wqe_srq_next), o->key);
	w.srq_dbrec[0] = htobe32(RECVS - 1);
	must(smx_cmd_create_srq(w.dev, &srq, &o->srq, &num));
	for (int i = 0; i < 2; i++) {
		struct smx_qp_attr a = {
			.type = type == SMX_QP_DCI && i ? SMX_QP_DCT : type,
			.pd = o->pd,
			.send_cq = o->cq,
			.recv_cq = o->cq,
			.srq = type == SMX_QP_DCI && i ? o->srq : NULL,
			.sq_buf = w.sq[i],
			.sq_bb_count = RING_BB,
			.rq_buf = w.rq[i],
			.rq_wqe_count = RECVS,
			.rq_stride_bytes = 64,
			.dbrec = w.dbrec[i],
			.dc_key = 0x77,
			.log_streams = 1,
			.log_errored = 0,
		};

		if (type == SMX_QP_DCI)
			a.rq_wqe_count = 0;
		if (a.type == SMX_QP_DCT)
			a.sq_bb_count = 0;
		post_receives(w.rq[i], 0, o->key);
		w.dbrec[i][0] = w.dbrec[i][1] = 0;
		must(smx_cmd_create_qp(w.dev, &a, &o->qp[i], &o->qpn[i]));
	}
	for (int i = 0; i < 2; i++)
		connect_qp(o, i, type == SMX_QP_DCI && i ? SMX_QP_DCT : type);
	for (int i = 0; i < 2; i++)
		w.dbrec[i][0] = htobe32(RECVS);
}

/* Walks the blocks as WQEs and puts right what would only be refused. RETURN blocks used. */
static uint32_t repair(const struct world *o, uint32_t blocks)
{
	uint32_t bb = 0;

	while (bb < blocks) {
		struct smx_wqe_ctrl *ctrl = (void *)(w.sq[0] + bb * 64);
		uint32_t op = from_be32(ctrl->opmod_idx_opcode), ds = (from_be32(ctrl->qpn_ds) & 0x3f) % 24;

		ds = ds < 2 ? 2 : ds;
		ctrl->opmod_idx_opcode = to_be32((op & 0xff0000ff) | (bb & 0xffff) << 8);
		ctrl->qpn_ds = to_be32(o->qpn[0] << 8 | ds);
		if ((op & 0xff) == SMX_OP_UMR)
			ctrl->imm = to_be32(o->mkey);
		for (uint32_t seg = 1; seg < ds && bb * 4 + seg < RING_BB * 4; seg++) {
			struct smx_wqe_data *d = (void *)(w.sq[0] + bb * 64 + seg * 16);
			uint8_t hint = d->lkey.b[0];

			if (hint & 1) {
				d->lkey = to_be32(hint & 2 ? o->mkey : o->key);
				d->va = to_be64(hint & 4 ? from_be64(d->va) % MEM
							 : (uintptr_t)w.mem + MEM +
								   from_be64(d->va) % MEM);
			} else if (hint & 2) {		/* as a remote address */
				struct smx_wqe_raddr *r = (void *)d;

				r->va = to_be64((uintptr_t)w.mem + MEM + (from_be64(r->va) % MEM & ~7ull));
				r->rkey = to_be32(o->key);
			} else if (hint & 8) {		/* as an address vector */
				struct smx_wqe_av *av = (void *)d;

				if (bb * 4 + seg + 3 <= RING_BB * 4) {
					av->dc_key = to_be64(0x77);
					av->dqp_dct = to_be32(SMX_AV_EXTENDED | o->qpn[1]);
				}
			}
		}
		bb += (ds + 3) / 4;
	}
	return bb < RING_BB ? bb : RING_BB;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum smx_qp_type types[] = { SMX_QP_RC, SMX_QP_DCI, SMX_QP_UD, SMX_QP_UC };
	struct smx_dev_attr attr = {
		.env = { .now = fake_now,
			 .cq_event = ignore_cq_event,
			 .async_event = ignore_async,
			 .copy = smx_guard_copy,
			 .call = smx_guard_call,
			 .refusals = &w.log },
		.memcpy_max_bytes = 1 << 20,
		.turn_budget_bytes = 1 << 20,
		.mtu_bytes = 4096,
	};
	struct world o = { 0 };
	uint32_t blocks;

	if (size < 3)
		return 0;
	smx_guard_install();
	memset(w.mem, 0xa5, sizeof(w.mem));
	must(smx_dev_create(&attr, &w.dev));
	build_world(&o, types[data[0] % 4]);

	blocks = (uint32_t)(size - 2 + 63) / 64;
	blocks = blocks > RING_BB ? RING_BB : blocks;
	memset(w.sq[0], 0, sizeof(w.sq[0]));
	memcpy(w.sq[0], data + 2, size - 2 < sizeof(w.sq[0]) ? size - 2 : sizeof(w.sq[0]));
	if (data[1] & 1)
		blocks = repair(&o, blocks);
	w.dbrec[0][1] = htobe32(data[1] & 2 ? blocks * 7 : blocks);
	smx_dev_ring_sq(w.dev, o.qp[0]);
	for (int turn = 0; turn < TURNS; turn++) {
		uint64_t next = smx_dev_turn(w.dev);

		if (next == UINT64_MAX)
			break;
		assert(turn < TURNS - 1);	/* the device comes to rest */
		w.now_ns = next > w.now_ns ? next : w.now_ns + 1;
	}
	for (size_t i = 0; i < MEM; i++)
		assert(w.mem[i] == 0xa5 && w.mem[2 * MEM + i] == 0xa5);
	smx_dev_destroy(w.dev);
	return 0;
}
