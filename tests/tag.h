/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tag matching for tests: an SRQ with a matching list, operations on it, its completions. */
#ifndef TAG_H
#define TAG_H

#include <infiniband/tm_types.h>

#include "t.h"

enum { TAG_MAX = 127, TAG_OPS = 16 };

static inline struct ibv_cq_ex *tag_cq(struct t_env *env)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 1024, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(env->ctx, &attr);

	MUST(cq, "ibv_create_cq_ex");
	return cq;
}

static inline struct ibv_srq_init_attr_ex tag_srq_attr(struct t_env *env, struct ibv_cq_ex *cq)
{
	return (struct ibv_srq_init_attr_ex){
		.attr = { .max_wr = 64, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = env->pd,
		.cq = ibv_cq_ex_to_cq(cq),
		.tm_cap = { .max_num_tags = TAG_MAX, .max_ops = TAG_OPS },
	};
}

/* Without a send queue of its own (max_send_wr 0) the device fetches the payload of rendezvous. */
static inline struct ibv_qp *tag_qp(struct t_env *env, struct ibv_srq *srq, struct ibv_cq_ex *cq, uint32_t max_send_wr)
{
	struct ibv_qp_init_attr init = {
		.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .srq = srq,
		.cap = { .max_send_wr = max_send_wr, .max_send_sge = !!max_send_wr }, .qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(env->pd, &init);
}

struct tag_op {
	enum ibv_ops_wr_opcode opcode;
	uint64_t wr_id;
	int flags;
	uint32_t seen;		/* unexpected messages */
	uint64_t tag, mask;
	const struct ibv_sge *sge;
};

/* A tag's receive has the operation's wr_id + 1000. *handle is given to the operation and taken back. */
static inline int tag_post(struct ibv_srq *srq, struct tag_op o, uint32_t *handle)
{
	struct ibv_ops_wr *bad = NULL, wr = { .wr_id = o.wr_id, .opcode = o.opcode, .flags = o.flags };
	struct ibv_sge at = o.sge ? *o.sge : (struct ibv_sge){ 0 };
	int err;

	wr.tm.unexpected_cnt = o.seen;
	wr.tm.handle = handle ? *handle : 0;
	wr.tm.add.recv_wr_id = o.wr_id + 1000;
	wr.tm.add.tag = o.tag;
	wr.tm.add.mask = o.mask;
	wr.tm.add.sg_list = &at;
	wr.tm.add.num_sge = !!o.sge;
	err = ibv_post_srq_ops(srq, &wr, &bad);
	EXPECT(!err == !bad, "error %d and bad_wr %p", err, (void *)bad);
	if (handle)
		*handle = wr.tm.handle;
	return err;
}

struct tag_got {
	enum ibv_wc_status status;
	uint64_t wr_id, tag;
	uint32_t priv, bytes, imm;
	unsigned int opcode, flags;
};

static inline bool tag_look(struct ibv_cq_ex *cq, struct tag_got *g)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc_tm_info info;

	if (ibv_start_poll(cq, &attr))
		return false;
	ibv_wc_read_tm_info(cq, &info);
	*g = (struct tag_got){
		.status = cq->status, .wr_id = cq->wr_id, .tag = info.tag, .priv = info.priv,
		.bytes = ibv_wc_read_byte_len(cq), .opcode = ibv_wc_read_opcode(cq),
		.flags = ibv_wc_read_wc_flags(cq), .imm = be32toh(ibv_wc_read_imm_data(cq)),
	};
	ibv_end_poll(cq);
	return true;
}

/* The next completion; one of opcode 0 when none comes. */
static inline struct tag_got tag_take(struct ibv_cq_ex *cq)
{
	uint64_t end = t_now_ms() + 20000;
	struct tag_got g = { 0 };

	while (!tag_look(cq, &g) && t_now_ms() < end)
		;
	return g;
}

#define TAG_TAKE(cq, op_, id, flags_) tag_take_is((cq), (op_), (id), (flags_), __LINE__)
static inline struct tag_got tag_take_is(struct ibv_cq_ex *cq, unsigned int opcode, uint64_t wr_id, unsigned int flags,
					 int line)
{
	struct tag_got g = tag_take(cq);

	EXPECT(g.status == IBV_WC_SUCCESS && g.opcode == opcode && g.wr_id == wr_id && g.flags == flags,
	       "line %d: status %d opcode %u wr_id %llu flags 0x%x, want success %u %llu 0x%x", line, g.status,
	       g.opcode, (unsigned long long)g.wr_id, g.flags, opcode, (unsigned long long)wr_id, flags);
	return g;
}

static inline struct ibv_tmh tag_tmh(uint8_t opcode, uint64_t tag)
{
	return (struct ibv_tmh){ .opcode = opcode, .app_ctx = htobe32(0x1234), .tag = htobe64(tag) };
}

#endif
