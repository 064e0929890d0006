/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a driver hands to the device when it creates an object: queue memory, numbers, limits.
 *
 * Part of the device's face (dev/dev.h includes it), so plain data only. Enum values such as access
 * flags, QP states and event types are those of <infiniband/verbs.h>. */
#ifndef SMX_OBJ_ATTR_H
#define SMX_OBJ_ATTR_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct smx_dev;
struct smx_pd;
struct smx_xrcd;
struct smx_mkey;
struct smx_cq;
struct smx_srq;
struct smx_qp;
struct smx_refusal_log;

/* How much of each there is: what a driver reports and the device holds to. */
enum {
	SMX_MAX_QP = 1 << 17,
	SMX_MAX_CQ = 1 << 20,
	SMX_MAX_CQE = (1 << 22) - 1,	/* a ring of 1 << 22; libmlx5 rounds up what is asked for, plus one */
	SMX_MAX_SRQ = 1 << 20,
	SMX_MAX_SRQ_WR = (1 << 15) - 1,	/* likewise; more could not be told apart by a 16-bit counter */
	SMX_MAX_MR = 1 << 22,
	SMX_MAX_MW = 1 << 22,
	SMX_MAX_MKEY = SMX_MAX_MR + SMX_MAX_MW + (1 << 22),	/* with indirect keys and the driver's own */
	SMX_MAX_PD = 1 << 20,
	SMX_MAX_RD_ATOMIC = 16,
	SMX_MAX_TAGS = 127,		/* of a tag matching SRQ; one entry of the list stays free */
};

/* What a pure machine cannot do itself. Callbacks run inside device calls and must not call back in. Visits, which may
 * be side by side, use now() and copy(). */
struct smx_dev_env {
	uint64_t (*now)(void *arg);				/* monotonic nanoseconds */
	void (*cq_event)(void *cq_cookie, void *arg);		/* an armed CQ got its completion */
	void (*async_event)(enum ibv_event_type type, void *obj_cookie, void *arg);
	bool (*copy)(void *dst, const void *src, size_t n, const void **fault);	/* smx_guard_copy */
	bool (*call)(void (*fn)(void *), void *fn_arg, const void **fault);	/* smx_guard_call */
	struct smx_refusal_log *refusals;
	void *arg;
};

struct smx_dev_attr {
	struct smx_dev_env env;
	uint64_t memcpy_max_bytes;	/* 1..2^31 */
	uint64_t turn_budget_bytes;	/* payload moved by one smx_dev_turn() before it returns */
	uint32_t mtu_bytes;		/* active MTU of the port */
	uint32_t key_seed;		/* first key tag, so that tests can repeat it */
	bool direct;		/* requests within the process need no frame: see xport/direct.h */
};

enum smx_mkey_kind {
	SMX_MKEY_DIRECT,	/* one run of host memory */
	SMX_MKEY_IMPLICIT,	/* the whole address space (implicit on-demand paging) */
	SMX_MKEY_NULL,		/* reads as zeros, writes vanish */
	SMX_MKEY_INDIRECT,	/* entries that a UMR writes; free until the first one */
	SMX_MKEY_WINDOW,	/* memory window; free until bound */
};

struct smx_mkey_attr {
	enum smx_mkey_kind kind;
	struct smx_pd *pd;
	uint32_t access;	/* enum ibv_access_flags */
	uint64_t start;		/* first address in the key's own space; 0 for zero-based */
	uint64_t length;	/* bytes; 2^64-1 for implicit */
	void *host;		/* DIRECT: where start lies in this process */
	bool shared;		/* DIRECT: other processes may map it (base/share.h), at host */
	uint32_t max_entries;	/* INDIRECT: translation entries, in 16-byte units */
	bool update_tag;	/* INDIRECT: a UMR may change key bits [7:0] */
	bool remote_invalidate;	/* INDIRECT: SEND_WITH_INV may free it */
	enum ibv_mw_type mw_type;	/* WINDOW */
	void *cookie;		/* named in refusals' text when not NULL: "region of 0x... bytes" */
};

struct smx_cq_attr {
	void *buf;		/* cqe_count entries, owner bytes initialised by the driver (0xf1: invalid, hw-owned) */
	uint32_t cqe_count;	/* power of two */
	uint32_t cqe_bytes;	/* 64 or 128 */
	void *dbrec;		/* two 32-bit words: consumer index, arm */
	bool ignore_overrun;
	void *cookie;
};

struct smx_srq_attr {
	void *buf;		/* wqe_count entries of stride_bytes, linked by next_wqe_index from entry 0 */
	uint32_t wqe_count;	/* power of two */
	uint32_t stride_bytes;	/* power of two, at least 32 */
	void *dbrec;		/* one 32-bit word: number of entries ever posted, low 16 bits */
	struct smx_pd *pd;
	struct smx_xrcd *xrcd;	/* XRC SRQ, with cq */
	struct smx_cq *cq;	/* where its receives complete; NULL: in that of each queue pair */
	uint32_t tag_count;	/* tag matching SRQ, with cq: entries of its list, a power of two; 0: it is none */
	uint32_t limit;
	void *cookie;
};

enum smx_qp_type { SMX_QP_RC, SMX_QP_UC, SMX_QP_UD, SMX_QP_XRC_INI, SMX_QP_XRC_TGT, SMX_QP_DCI, SMX_QP_DCT };

struct smx_qp_attr {
	enum smx_qp_type type;
	uint8_t req_scatter_bytes;	/* READ and atomic responses up to this size go into the CQE: 0, 32, 64 */
	uint8_t resp_scatter_bytes;	/* likewise received messages */
	bool wq_signature;	/* byte 8 of each WQE is checked */
	struct smx_pd *pd;
	struct smx_cq *send_cq, *recv_cq;
	struct smx_srq *srq;
	struct smx_xrcd *xrcd;
	void *sq_buf;		/* sq_bb_count blocks of 64 bytes */
	uint32_t sq_bb_count;	/* power of two, or 0: no send queue */
	void *rq_buf;
	uint32_t rq_wqe_count;	/* power of two, or 0 */
	uint32_t rq_stride_bytes;
	void *dbrec;		/* two 32-bit words: SMX_DBREC_RCV, SMX_DBREC_SND */
	uint64_t dc_key;	/* DCT */
	uint8_t log_streams;	/* DCI: 1 << log_streams concurrent streams */
	uint8_t log_errored;	/* DCI: 1 << log_errored streams in error move the DCI to ERR; only with streams */
	bool block_self_mcast;	/* UD: multicast that it sends does not come back to itself */
	uint32_t user_index;	/* goes into srqn_uidx of its CQEs; the QP number by default */
	uint32_t reserved_qpn;	/* take this number (from smx_cmd_reserve_qpn), or 0 */
	void *cookie;
};

/* A path, as the device needs it after the driver resolved the GID index. */
struct smx_path {
	uint8_t sgid[16], dgid[16];
	uint8_t sgid_index, hop_limit, traffic_class, sl;
	uint32_t flow_label;
	uint16_t udp_sport;
};

#endif
