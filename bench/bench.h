/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the benchmarks have in common. Whatever goes wrong ends them. */
#ifndef BENCH_H
#define BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <infiniband/verbs.h>

__attribute__((noreturn)) static inline void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Seconds. */
static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* From RESET on; a target, dct, stays in RTR. peer: of a queue pair that is connected. */
static inline void to_rts(struct ibv_qp *qp, uint32_t peer, union ibv_gid gid, int dci, int dct)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (dci ? 0 : IBV_QP_ACCESS_FLAGS);

	if (ibv_modify_qp(qp, &a, mask))
		die("INIT");
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_4096;
	a.dest_qp_num = peer;
	a.max_dest_rd_atomic = 16;
	a.min_rnr_timer = 12;
	a.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 64 } };
	mask = IBV_QP_STATE | IBV_QP_PATH_MTU;
	if (dct)
		mask |= IBV_QP_AV | IBV_QP_MIN_RNR_TIMER;
	else if (!dci)
		mask |= IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (ibv_modify_qp(qp, &a, mask))
		die("RTR");
	if (dct)
		return;
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	a.max_rd_atomic = 16;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

#endif
