/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: over a path that loses, doubles and reorders frames, every request is carried out exactly once and
 * in order, its data is right, and it completes exactly once.
 * Method: requester and responder of one device over the simulated medium, seeded. WRITEs leave a stamp of their own;
 * fetch-and-adds see how often they ran; SENDs are numbered; READs read what nobody changes. Receives are
 * posted late, so there are RNR waits too. A failing run is repeated by its printed seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/guard.h"
#include "base/prng.h"
#include "dev/dev.h"
#include "net/net_sim.h"
#include "xport/requester.h"

enum {
	BLOCKS = 64, CQES = 4096, RECVS = 16, RECV_BYTES = 4096, OPS = 400, SLOT = 8192,
	/* the responder's memory */
	WRITE_AT = 0, READ_AT = BLOCKS * SLOT, COUNTER_AT = READ_AT + SLOT, RECV_AT = COUNTER_AT + 64,
	REMOTE_BYTES = RECV_AT + RECVS * RECV_BYTES,
	LOCAL_BYTES = BLOCKS * SLOT,
};

struct op { uint8_t opcode; uint32_t length; uint64_t number; };

struct world {
	struct smx_dev *dev;
	struct smx_refusal_log log;
	struct smx_prng prng;
	uint64_t now;
	struct smx_pd *pd;
	struct smx_cq *send_cq, *recv_cq;
	uint8_t *send_cq_buf, *recv_cq_buf, *ring, *rq_ring, *local, *remote;
	uint32_t send_ci[2], recv_ci[2], dbrec[2], peer_dbrec[2];
	uint32_t local_key, remote_key, qpn, peer_qpn;
	struct smx_qp *qp, *peer;
	uint32_t pi, posted, completed, recv_posted, received;
	uint64_t adds, adds_done, sends, writes;
	struct op op[OPS];
	uint16_t at[OPS];
	uint64_t last_write[BLOCKS];
	uint32_t last_write_bytes[BLOCKS];
};

static uint64_t now_of(void *arg)
{
	return ((struct world *)arg)->now;
}

static void no_cq_event(void *cookie, void *arg)
{
	(void)cookie;
	(void)arg;
}

static void no_async_event(enum ibv_event_type type, void *cookie, void *arg)
{
	(void)type;
	(void)cookie;
	(void)arg;
}

static bool flatten(void *walk, void *to, uint64_t n, uint16_t *check)
{
	struct smx_dma_fault fault;
	uint64_t done = 0;

	*check = (uint16_t)smx_dma_read(walk, to, n, &done, &fault);
	return !*check && done == n;
}

static struct smx_cq *make_cq(struct world *w, uint8_t **buf, uint32_t *dbrec)
{
	struct smx_cq_attr attr = { .cqe_count = CQES, .cqe_bytes = 64, .dbrec = dbrec };
	struct smx_cq *cq;
	uint32_t cqn;

	*buf = aligned_alloc(64, CQES * 64);
	assert_non_null(*buf);
	memset(*buf, 0xff, CQES * 64);
	attr.buf = *buf;
	assert_int_equal(smx_cmd_create_cq(w->dev, &attr, &cq, &cqn), 0);
	return cq;
}

static uint32_t make_key(struct world *w, uint8_t **mem, uint64_t bytes)
{
	struct smx_mkey_attr attr = {
		.kind = SMX_MKEY_DIRECT, .pd = w->pd, .length = bytes,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct smx_mkey *mkey;
	uint32_t key;

	*mem = aligned_alloc(64, bytes);
	assert_non_null(*mem);
	memset(*mem, 0, bytes);
	attr.start = (uintptr_t)*mem;
	attr.host = *mem;
	assert_int_equal(smx_cmd_create_mkey(w->dev, &attr, &mkey, &key), 0);
	return key;
}

static void connect_qp(struct world *w, struct smx_qp *qp, uint32_t to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = to,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.rq_psn = 0xfffff0, .sq_psn = 0xfffff0, .max_rd_atomic = 4, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 12, .timeout = 10, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	struct smx_path path = { .hop_limit = 1 };

	assert_int_equal(smx_cmd_modify_qp(w->dev, qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS, NULL), 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(smx_cmd_modify_qp(w->dev, qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER, &path), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(smx_cmd_modify_qp(w->dev, qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, NULL), 0);
}

static struct world *make_world(const struct smx_net_sim_attr *net)
{
	struct world *w = calloc(1, sizeof(*w));
	struct smx_dev_attr attr = {
		.env = {
			.now = now_of, .cq_event = no_cq_event, .async_event = no_async_event,
			.copy = smx_guard_copy, .call = smx_guard_call, .arg = w,
		},
		.memcpy_max_bytes = 1 << 24, .turn_budget_bytes = 1 << 20, .mtu_bytes = 1024,
	};
	struct smx_qp_attr qp = { .type = SMX_QP_RC, .rq_stride_bytes = 16 };
	uint32_t pdn;

	assert_non_null(w);
	smx_guard_install();
	attr.env.refusals = &w->log;
	w->prng.state = net->seed;
	assert_int_equal(smx_dev_create(&attr, &w->dev), 0);
	smx_dev_set_port(w->dev, smx_net_sim_create(net));
	assert_int_equal(smx_cmd_alloc_pd(w->dev, &w->pd, &pdn), 0);
	w->send_cq = make_cq(w, &w->send_cq_buf, w->send_ci);
	w->recv_cq = make_cq(w, &w->recv_cq_buf, w->recv_ci);
	w->local_key = make_key(w, &w->local, LOCAL_BYTES);
	w->remote_key = make_key(w, &w->remote, REMOTE_BYTES);
	for (uint32_t i = 0; i < SLOT; i++)
		w->remote[READ_AT + i] = (uint8_t)(i * 13);
	w->ring = aligned_alloc(64, BLOCKS * 64);
	w->rq_ring = aligned_alloc(64, RECVS * 16);
	assert_true(w->ring && w->rq_ring);
	memset(w->ring, 0, BLOCKS * 64);

	qp.pd = w->pd;
	qp.send_cq = w->send_cq;
	qp.recv_cq = w->recv_cq;
	qp.sq_buf = w->ring;
	qp.sq_bb_count = BLOCKS;
	qp.dbrec = w->dbrec;
	assert_int_equal(smx_cmd_create_qp(w->dev, &qp, &w->qp, &w->qpn), 0);
	qp.sq_bb_count = 0;
	qp.rq_buf = w->rq_ring;
	qp.rq_wqe_count = RECVS;
	qp.dbrec = w->peer_dbrec;
	assert_int_equal(smx_cmd_create_qp(w->dev, &qp, &w->peer, &w->peer_qpn), 0);
	connect_qp(w, w->qp, w->peer_qpn);
	connect_qp(w, w->peer, w->qpn);
	return w;
}

static void free_world(struct world *w)
{
	smx_dev_destroy(w->dev);
	free(w->send_cq_buf);
	free(w->recv_cq_buf);
	free(w->ring);
	free(w->rq_ring);
	free(w->local);
	free(w->remote);
	free(w);
}

static void post_receives(struct world *w, uint32_t n)
{
	while (n-- && w->recv_posted - w->received < RECVS) {
		uint32_t i = w->recv_posted++ % RECVS;
		struct smx_wqe_data seg = {
			.byte_count = to_be32(RECV_BYTES), .lkey = to_be32(w->remote_key),
			.va = to_be64((uintptr_t)w->remote + RECV_AT + i * RECV_BYTES),
		};

		memcpy(w->rq_ring + i * 16, &seg, sizeof(seg));
	}
	be32_store_release(&w->peer_dbrec[SMX_DBREC_RCV], w->recv_posted & 0xffff);
	smx_dev_ring_rq(w->dev, w->peer);
}

static uint32_t random_length(struct world *w, uint32_t most)
{
	return 8 + (uint32_t)smx_prng_below(&w->prng, smx_prng_below(&w->prng, 3) ? 64 : most - 8);
}

/* Every request has the ring slot's 8 KiB of local memory to itself, and a WRITE as much of the remote's. */
static void post_one(struct world *w)
{
	static const uint8_t kinds[] = { SMX_OP_RDMA_WRITE, SMX_OP_RDMA_READ, SMX_OP_ATOMIC_FA, SMX_OP_SEND };
	struct op *op = &w->op[w->posted];
	uint32_t block = w->pi % BLOCKS, ds = 1;
	uint8_t *wqe = w->ring + block * 64, *local = w->local + block * SLOT;
	struct smx_wqe_ctrl *ctrl = (void *)wqe;
	struct smx_wqe_raddr raddr = { .rkey = to_be32(w->remote_key) };
	struct smx_wqe_data seg = { .lkey = to_be32(w->local_key), .va = to_be64((uintptr_t)local) };
	uint64_t remote = (uintptr_t)w->remote;

	op->opcode = kinds[smx_prng_below(&w->prng, SMX_COUNT(kinds))];
	op->length = op->opcode == SMX_OP_ATOMIC_FA ? 8 : random_length(w, RECV_BYTES);
	switch (op->opcode) {
	case SMX_OP_RDMA_WRITE:
		op->number = ++w->writes;
		remote += WRITE_AT + block * SLOT;
		memset(local, (int)(op->number & 0xff), op->length);
		memcpy(local, &op->number, 8);
		w->last_write[block] = op->number;
		w->last_write_bytes[block] = op->length;
		break;
	case SMX_OP_RDMA_READ:
		remote += READ_AT;
		memset(local, 0, op->length);
		break;
	case SMX_OP_ATOMIC_FA:
		op->number = w->adds++;
		remote += COUNTER_AT;
		break;
	default:
		op->number = w->sends++;
		memset(local, (int)(op->number & 0xff), op->length);
		memcpy(local, &op->number, 8);
		break;
	}
	if (op->opcode != SMX_OP_SEND) {
		raddr.va = to_be64(remote);
		memcpy(wqe + 16 * ds++, &raddr, 16);
	}
	if (op->opcode == SMX_OP_ATOMIC_FA) {
		struct smx_wqe_atomic one = { .swap_add = to_be64(1) };

		memcpy(wqe + 16 * ds++, &one, 16);
	}
	seg.byte_count = to_be32(op->length);
	memcpy(wqe + 16 * ds++, &seg, 16);
	*ctrl = (struct smx_wqe_ctrl){
		.opmod_idx_opcode = to_be32((w->pi & 0xffff) << 8 | op->opcode),
		.qpn_ds = to_be32(w->qpn << 8 | ds), .fm_ce_se = SMX_CTRL_CQ_UPDATE,
	};
	w->at[w->posted++] = (uint16_t)w->pi++;
	be32_store_release(&w->dbrec[SMX_DBREC_SND], w->pi & 0xffff);
	smx_dev_ring_sq(w->dev, w->qp);
}

static const struct smx_cqe64 *next_cqe(const uint8_t *buf, uint32_t ci)
{
	const struct smx_cqe64 *cqe = (const void *)(buf + ci % CQES * 64);

	if (cqe->op_own >> 4 == SMX_CQE_INVALID || (cqe->op_own & 1) != !!(ci & CQES))
		return NULL;
	return cqe;
}

static void tell(struct world *w)
{
	struct smx_refusal r;

	for (unsigned int i = 0; i < 5 && smx_refusal_get(&w->log, i, &r); i++)
		print_message("%s at %u: %s\n", smx_check_info(r.check)->name, r.where.wqe_index, r.text);
}

static void take_completions(struct world *w)
{
	const struct smx_cqe64 *cqe;

	while ((cqe = next_cqe(w->send_cq_buf, w->completed))) {
		const struct op *op = &w->op[w->completed];
		uint16_t at = w->at[w->completed];
		const uint8_t *local = w->local + at % BLOCKS * SLOT;
		uint64_t old;

		if (cqe->op_own >> 4 != SMX_CQE_REQ)
			tell(w);
		assert_int_equal(cqe->op_own >> 4, SMX_CQE_REQ);
		assert_int_equal(from_be16(cqe->wqe_counter), at);
		if (op->opcode == SMX_OP_RDMA_READ)
			assert_memory_equal(local, w->remote + READ_AT, op->length);
		if (op->opcode == SMX_OP_ATOMIC_FA) {
			memcpy(&old, local, 8);
			assert_int_equal(old, op->number);
		}
		w->completed++;
		be32_store_release(w->send_ci, w->completed);
	}
	while ((cqe = next_cqe(w->recv_cq_buf, w->received))) {
		const uint8_t *msg = w->remote + RECV_AT + w->received % RECVS * RECV_BYTES;
		uint32_t bytes = from_be32(cqe->byte_cnt);
		uint64_t number;

		assert_int_equal(cqe->op_own >> 4, SMX_CQE_RESP_SEND);
		assert_in_range(bytes, 8, RECV_BYTES);
		if (!(cqe->op_own & (SMX_CQE_INLINE_32 | SMX_CQE_INLINE_64))) {
			memcpy(&number, msg, 8);
			assert_int_equal(number, w->received);
			for (uint32_t i = 8; i < bytes; i++)
				assert_int_equal(msg[i], number & 0xff);
		}
		w->received++;
		be32_store_release(w->recv_ci, w->received);
	}
}

static void run_seed(uint64_t seed, uint64_t payload, uint32_t loss_ppm)
{
	struct smx_net_sim_attr net = {
		.seed = seed, .drop_ppm = loss_ppm, .dup_ppm = loss_ppm, .reorder_ppm = loss_ppm, .delay_ns_min = 1000,
		.delay_ns_max = 20000, .max_payload_bytes = payload, .flatten = flatten,
	};
	struct world *w = make_world(&net);
	uint64_t counter;

	print_message("seed %llu payload %llu loss %u\n", (unsigned long long)seed, (unsigned long long)payload,
		      loss_ppm);
	for (uint64_t steps = 0; w->completed < OPS; steps++) {
		uint64_t next;

		assert_true(steps < 2000000);
		while (w->posted < OPS && w->posted - w->completed < BLOCKS && smx_prng_below(&w->prng, 8))
			post_one(w);
		if (!smx_prng_below(&w->prng, 10))
			post_receives(w, 4);
		next = smx_dev_turn(w->dev);
		take_completions(w);
		if (next == UINT64_MAX || next > w->now + 1000000)
			next = w->now + 1000000;
		if (next > w->now)
			w->now = next;
	}
	assert_int_equal(w->received, w->sends);
	memcpy(&counter, w->remote + COUNTER_AT, 8);
	assert_int_equal(counter, w->adds);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const uint8_t *at = w->remote + WRITE_AT + i * SLOT;

		if (!w->last_write[i])
			continue;
		assert_memory_equal(at, &w->last_write[i], 8);
		for (uint32_t k = 8; k < w->last_write_bytes[i]; k++)
			assert_int_equal(at[k], w->last_write[i] & 0xff);
	}
	assert_int_equal(w->log.count, 0);
	assert_int_equal(smx_qp_state(w->qp), IBV_QPS_RTS);
	free_world(w);
}

static void nothing_is_lost_or_done_twice_packet_by_packet(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++)
		run_seed(seed, 0, 20000);
}

static void nothing_is_lost_or_done_twice_with_long_frames(void **state)
{
	(void)state;
	for (uint64_t seed = 101; seed <= 112; seed++)
		run_seed(seed, 2048, 50000);
}

static void a_path_without_loss_needs_no_luck(void **state)
{
	(void)state;
	run_seed(7, 0, 0);
	run_seed(8, 1 << 20, 0);
}

/* The peer has all of them and says so by some other way, so the program moves its queue pair to ERR before anybody has
 * looked at the answers. */
static void an_answer_that_has_come_counts_when_the_queue_pair_goes_to_err(void **state)
{
	const struct smx_net_sim_attr net = {
		.seed = 9, .delay_ns_min = 1000, .delay_ns_max = 1000, .max_payload_bytes = 1 << 20, .flatten = flatten,
	};
	struct world *w = make_world(&net);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)state;
	post_receives(w, RECVS);
	for (int i = 0; i < 8; i++)
		post_one(w);
	smx_dev_turn(w->dev);
	w->now += 1000;
	smx_dev_turn(w->dev);		/* the requests arrive */
	assert_int_equal(w->completed, 0);
	w->now += 1000;
	assert_int_equal(smx_cmd_modify_qp(w->dev, w->qp, &attr, IBV_QP_STATE, NULL), 0);
	take_completions(w);
	assert_int_equal(w->completed, 8);
	assert_int_equal(w->received, w->sends);
	free_world(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_that_has_come_counts_when_the_queue_pair_goes_to_err),
		cmocka_unit_test(a_path_without_loss_needs_no_luck),
		cmocka_unit_test(nothing_is_lost_or_done_twice_packet_by_packet),
		cmocka_unit_test(nothing_is_lost_or_done_twice_with_long_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
