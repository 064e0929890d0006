/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Queue pairs: their attributes, their send ring as the device sees it, their state. */
#ifndef SMX_OBJ_QP_H
#define SMX_OBJ_QP_H

#include "hw/tag.h"
#include "obj/cq.h"
#include "obj/dma.h"
#include "obj/srq.h"

struct smx_requester;	/* xport/requester.h */
struct smx_responder;	/* xport/responder.h */
struct smx_rndv;	/* xport/resp_tag.c */

/* An operation on the list of a tag matching SRQ. */
struct smx_tag_op {
	uint8_t op;			/* enum smx_tag_op_code */
	uint8_t flags;			/* SMX_TAG_* */
	uint16_t index, sw_count;
	uint64_t tag, mask;
	struct smx_sge sge;		/* append: its buffer, length 0 for none */
};

/* A send WQE, decoded and validated as far as its format goes. */
struct smx_send_req {
	uint16_t index;			/* BB index of its first block, modulo 65536, as CQEs carry it */
	uint8_t bb_count;
	uint8_t opcode, opmod, fm_ce_se;
	uint16_t stream;
	uint32_t imm;			/* control segment's last four bytes as they lie in memory */
	const struct smx_wqe_av *av;	/* UD, DCI: in the ring (48 bytes never wrap inside a DS; copied if they do) */
	struct smx_wqe_av av_copy;
	uint32_t xrc_srqn;
	uint64_t raddr;
	uint32_t rkey;
	struct smx_atomic atomic;
	struct smx_umr umr;
	struct smx_tag_op tag_op;
	struct smx_wqe_klm umr_entry[SMX_WQE_DS_MAX];
	uint64_t length;		/* bytes that sge names together */
	uint32_t sge_count;
	struct smx_sge sge[SMX_WQE_DS_MAX + 1];	/* inline data: is_host, split where the ring wraps */
};

enum smx_slot_state { SMX_SLOT_EMPTY, SMX_SLOT_WAITING, SMX_SLOT_SENT, SMX_SLOT_DONE };

/* What the device remembers of each WQE from fetch to completion; one slot for each block, used at the
 * WQE's first. */
struct smx_sq_slot {
	uint32_t psn, psn_count;	/* once sent */
	uint32_t next;			/* block counter of the stream's next WQE, valid when next_known */
	uint16_t stream;
	uint8_t bb_count, opcode, fm_ce_se;
	uint8_t state;			/* enum smx_slot_state */
	bool next_known;
	uint32_t bytes;			/* length of the message, once sent */
};

enum smx_sqd { SMX_SQD_NONE, SMX_SQD_DRAINING, SMX_SQD_DRAINED };

struct smx_sq {
	uint8_t *buf;
	uint32_t bb_count;		/* power of two; 0: no send queue */
	uint32_t visited;		/* by a visitor that is not alone, or not to be: others keep off */
	void *dbrec;
	uint32_t pi, fetched, ci;	/* block counters that never wrap: rung, assigned to streams, completed */
	struct smx_sq_slot *slot;	/* bb_count of them */
};

/* In the order of use: a request of one queue pair among many waits for each cache line that it needs, so what all
 * requests need comes first, in lines of its own (queue pairs lie at multiples of SMX_QP_ALIGN). */
struct smx_qp {
	uint32_t qpn;
	enum ibv_qp_state state;
	struct smx_sq sq;
	struct smx_requester *req;	/* 1 << attr.log_streams of them; NULL for XRC_TGT and DCT */

	struct smx_responder *resp;	/* NULL for XRC_INI and DCI */
	struct smx_requester *active, **active_tail;	/* streams with something to send */
	struct smx_qp *ready_next;	/* dev->ready list */
	struct smx_list_link blocked;	/* on dev's list of this name */
	bool ready;
	bool sq_halted;			/* its doorbell record cannot be believed any more; until RESET */
	uint8_t sqd;			/* enum smx_sqd */
	uint8_t plain_ds;		/* segments before the data of plain requests (dev/sq_plain.h); 0: none is */
	bool errored;			/* a request of this QP failed; root names it */
	bool completion_lost;		/* a CQE of it did not fit its queue */
	struct smx_rndv *rndv;		/* it fetches the payload of rendezvous by itself; see xport/resp_tag.c */

	struct smx_qp_attr attr;	/* as created */
	uint32_t rnr_streams;		/* streams that wait for the peer's receive */
	uint32_t dc_nonce;		/* DCI: of its connections since RESET */

	struct ibv_qp_attr cur;		/* as modified; cur.ah_attr with the path in: */
	struct smx_path path;
	struct smx_rq rq;		/* wqe_count 0 where there is an SRQ or none */
	struct smx_list_link timer;
	uint64_t deadline_ns;		/* UINT64_MAX: none; kept by xport/timer.c */
	smx_outcome root;
	uint32_t errored_streams;	/* DCI: streams in error */
	uint64_t flushed;		/* send WQEs completed as FLUSH_BEHIND, ever */
	uint32_t users;			/* multicast attachments */
	struct smx_list_link watched, rnr;	/* on dev's lists of these names */
	struct smx_list_link *dc_contexts;	/* DCI: what targets of this device keep of it, xport/resp_dc.c */
	struct smx_dev *dev;
};
enum { SMX_QP_ALIGN = 64 };
_Static_assert(offsetof(struct smx_qp, resp) == 64 && offsetof(struct smx_qp, attr) == 128 &&
	       offsetof(struct smx_qp, cur) == 256, "lines of their own");

static inline struct smx_qp *smx_qp_find(const struct smx_dev *dev, uint32_t qpn)
{
	struct smx_qp *qp = smx_idmap_get(&dev->qps, qpn);

	return (void *)qp == (void *)&dev->reserved_qp ? NULL : qp;
}

/* May a queue pair of this type go from one state to another with these attributes? The table follows the
 * kernel's (ib_modify_qp_is_ok) with mlx5's rows for DCI and DCT. RETURN 0 or an errno after a refusal. */
int smx_qp_check_modify(struct smx_dev *dev, const struct smx_qp *qp, enum ibv_qp_state to,
			const struct ibv_qp_attr *attr, int mask);

/* Whether the work request operation can be posted on this type of queue pair at all. */
bool smx_qp_type_executes(enum smx_qp_type type, uint8_t opcode);

#endif
