/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers to the commands that opening a context and making its objects takes.
 *
 * Commands of the newer form are said not to be there, except those that have no older form; libibverbs then
 * sends the older ones, each a structure of <rdma/ib_user_verbs.h> with the driver's own behind it, inside
 * UVERBS_METHOD_INVOKE_WRITE. Objects are numbers. A command that is not in the tables fails: nothing
 * succeeds by not being known. */
#include "standin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/if_ether.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

enum {
	LINK_ETHERNET = 2,
	PORT_ACTIVE = 4,
	MTU_4096 = 5,
	ATOMIC_HCA = 1,
	GID_ROCE_V2 = 2,
	BFREG = 1,			/* every queue pair rings here; number 0 takes no block copies */
	QPN_FIRST = 0x400, SRQN_FIRST = 1, MKEY_FIRST = 0x1000,
};

struct span { uint8_t *p; size_t n; };

struct cmd { struct span in, out, drv_in, drv_out; };

static uint32_t next_handle = 1, next_qpn, next_srqn = SRQN_FIRST, next_mkey = MKEY_FIRST;

static void answer(struct span to, const void *from, size_t n)
{
	memcpy(to.p, from, n < to.n ? n : to.n);
}

#define ANSWER(to, ...) answer((to), &(__VA_ARGS__), sizeof(__VA_ARGS__))

static void take(struct span from, void *to, size_t n)
{
	memset(to, 0, n);
	if (from.n)
		memcpy(to, from.p, n < from.n ? n : from.n);
}

/* ---- the device ---- */

static int get_context(struct cmd *c)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return errno;
	ANSWER(c->out, (struct ib_uverbs_get_context_resp){ .async_fd = (uint32_t)fd, .num_comp_vectors = 1 });
	ANSWER(c->drv_out, (struct mlx5_ib_alloc_ucontext_resp){
		.qp_tab_size = 1 << 18,
		.bf_reg_size = 512,
		.tot_bfregs = 16,
		.cache_line_size = 64,
		.max_sq_desc_sz = 1024,
		.max_rq_desc_sz = 512,
		.max_send_wqebb = 32768,
		.max_recv_wr = 32768,
		.max_srq_recv_wr = 32767,
		.num_ports = 1,
		.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG,
		.response_length = sizeof(struct mlx5_ib_alloc_ucontext_resp),
		.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.eth_min_inline = MLX5_USER_INLINE_MODE_NONE,
		.log_uar_size = 12,
		.num_uars_per_page = 1,
		.num_dyn_bfregs = 1024,
	});
	return 0;
}

static int query_device(struct cmd *c)
{
	ANSWER(c->out, (struct ib_uverbs_ex_query_device_resp){
		.base = { .vendor_id = 0x02c9, .vendor_part_id = 4129, .max_qp = 1 << 18, .max_qp_wr = 32768,
			  .max_sge = 30, .max_sge_rd = 30, .max_cq = 1 << 24, .max_cqe = (1 << 22) - 1,
			  .max_mr = 1 << 24, .max_pd = 1 << 23, .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16,
			  .atomic_cap = ATOMIC_HCA, .max_mw = 1 << 24, .max_srq = 1 << 23, .max_srq_wr = 32767,
			  .max_srq_sge = 31, .max_pkeys = 128, .phys_port_cnt = 1, .max_mr_size = UINT64_MAX },
		.response_length = sizeof(struct ib_uverbs_ex_query_device_resp),
		.timestamp_mask = UINT64_MAX,
		.hca_core_clock = 1000000,
	});
	ANSWER(c->drv_out, (struct mlx5_ib_query_device_resp){
		.response_length = sizeof(struct mlx5_ib_query_device_resp),
		.dci_streams_caps = { .max_log_num_concurent = 15, .max_log_num_errored = 15 },
	});
	return 0;
}

static int query_port(struct cmd *c)
{
	ANSWER(c->out, (struct ib_uverbs_query_port_resp){
		.max_msg_sz = 1u << 30, .gid_tbl_len = 255, .pkey_tbl_len = 1, .state = PORT_ACTIVE,
		.max_mtu = MTU_4096, .active_mtu = MTU_4096, .link_layer = LINK_ETHERNET,
	});
	return 0;
}

/* ---- objects ---- */

static int only_handle(struct cmd *c)
{
	ANSWER(c->out, next_handle);
	next_handle++;
	return 0;
}

static int alloc_pd(struct cmd *c)
{
	ANSWER(c->drv_out, (struct mlx5_ib_alloc_pd_resp){ .pdn = next_handle });
	return only_handle(c);
}

static int reg_mr(struct cmd *c)
{
	uint32_t key = next_mkey++ << 8;

	ANSWER(c->out, (struct ib_uverbs_reg_mr_resp){ .mr_handle = next_handle++, .lkey = key, .rkey = key });
	return 0;
}

static int alloc_mw(struct cmd *c)
{
	ANSWER(c->out, (struct ib_uverbs_alloc_mw_resp){ .mw_handle = next_handle++, .rkey = next_mkey++ << 8 });
	return 0;
}

static int give_cq(struct cmd *c, uint32_t cqe)
{
	ANSWER(c->out, (struct ib_uverbs_ex_create_cq_resp){
		.base = { .cq_handle = next_handle, .cqe = cqe },
		.response_length = sizeof(struct ib_uverbs_ex_create_cq_resp) });
	ANSWER(c->drv_out, (struct mlx5_ib_create_cq_resp){ .cqn = next_handle });
	next_handle++;
	return 0;
}

static int create_cq(struct cmd *c)
{
	struct ib_uverbs_create_cq in;

	take(c->in, &in, sizeof(in));
	return give_cq(c, in.cqe);
}

static int create_cq_ex(struct cmd *c)
{
	struct ib_uverbs_ex_create_cq in;

	take(c->in, &in, sizeof(in));
	return give_cq(c, in.cqe);
}

static int create_qp(struct cmd *c)
{
	struct ib_uverbs_create_qp in;

	take(c->in, &in, sizeof(in));
	ANSWER(c->out, (struct ib_uverbs_create_qp_resp){
		.qp_handle = next_handle++, .qpn = QPN_FIRST + next_qpn++, .max_send_wr = in.max_send_wr,
		.max_recv_wr = in.max_recv_wr, .max_send_sge = in.max_send_sge, .max_recv_sge = in.max_recv_sge,
		.max_inline_data = in.max_inline_data });
	ANSWER(c->drv_out, (struct mlx5_ib_create_qp_resp){ .bfreg_index = BFREG });
	return 0;
}

static int create_srq(struct cmd *c)
{
	struct ib_uverbs_create_srq in;

	take(c->in, &in, sizeof(in));
	ANSWER(c->out, (struct ib_uverbs_create_srq_resp){ .srq_handle = next_handle++, .max_wr = in.max_wr,
							   .max_sge = in.max_sge, .srqn = next_srqn });
	ANSWER(c->drv_out, (struct mlx5_ib_create_srq_resp){ .srqn = next_srqn });
	next_srqn++;
	return 0;
}

static int create_xsrq(struct cmd *c)
{
	struct ib_uverbs_create_xsrq in;

	take(c->in, &in, sizeof(in));
	ANSWER(c->out, (struct ib_uverbs_create_srq_resp){ .srq_handle = next_handle++, .max_wr = in.max_wr,
							   .max_sge = in.max_sge, .srqn = next_srqn });
	ANSWER(c->drv_out, (struct mlx5_ib_create_srq_resp){ .srqn = next_srqn });
	next_srqn++;
	return 0;
}

/* A link-local GID holds its interface's address, which is all that can be known here; RFC 4291. */
static int create_ah(struct cmd *c)
{
	struct mlx5_ib_create_ah_resp drv = { .response_length = sizeof(drv) };
	struct ib_uverbs_create_ah in;
	const uint8_t *gid = in.attr.grh.dgid;

	take(c->in, &in, sizeof(in));
	memcpy(drv.dmac, (uint8_t[ETH_ALEN]){ gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15] }, ETH_ALEN);
	ANSWER(c->drv_out, drv);
	return only_handle(c);
}

static int nothing(struct cmd *c)
{
	(void)c;
	return 0;
}

#define EX IB_USER_VERBS_CMD_FLAG_EXTENDED

static const struct { uint32_t number; int (*run)(struct cmd *c); } commands[] = {
	{ IB_USER_VERBS_CMD_GET_CONTEXT, get_context },
	{ IB_USER_VERBS_CMD_QUERY_DEVICE, query_device },
	{ EX | IB_USER_VERBS_EX_CMD_QUERY_DEVICE, query_device },
	{ IB_USER_VERBS_CMD_QUERY_PORT, query_port },
	{ IB_USER_VERBS_CMD_ALLOC_PD, alloc_pd },
	{ IB_USER_VERBS_CMD_DEALLOC_PD, nothing },
	{ IB_USER_VERBS_CMD_CREATE_AH, create_ah },
	{ IB_USER_VERBS_CMD_DESTROY_AH, nothing },
	{ IB_USER_VERBS_CMD_REG_MR, reg_mr },
	{ IB_USER_VERBS_CMD_DEREG_MR, nothing },
	{ IB_USER_VERBS_CMD_ALLOC_MW, alloc_mw },
	{ IB_USER_VERBS_CMD_DEALLOC_MW, nothing },
	{ IB_USER_VERBS_CMD_CREATE_CQ, create_cq },
	{ EX | IB_USER_VERBS_EX_CMD_CREATE_CQ, create_cq_ex },
	{ IB_USER_VERBS_CMD_DESTROY_CQ, nothing },
	{ IB_USER_VERBS_CMD_CREATE_QP, create_qp },
	{ IB_USER_VERBS_CMD_MODIFY_QP, nothing },
	{ EX | IB_USER_VERBS_EX_CMD_MODIFY_QP, nothing },
	{ IB_USER_VERBS_CMD_DESTROY_QP, nothing },
	{ IB_USER_VERBS_CMD_CREATE_SRQ, create_srq },
	{ IB_USER_VERBS_CMD_CREATE_XSRQ, create_xsrq },
	{ IB_USER_VERBS_CMD_DESTROY_SRQ, nothing },
	{ IB_USER_VERBS_CMD_OPEN_XRCD, only_handle },
	{ IB_USER_VERBS_CMD_CLOSE_XRCD, nothing },
};

/* ---- ioctl ---- */

static struct ib_uverbs_attr *find(struct ib_uverbs_ioctl_hdr *hdr, uint16_t id)
{
	for (unsigned int i = 0; i < hdr->num_attrs; i++) {
		if (hdr->attrs[i].attr_id == id)
			return &hdr->attrs[i];
	}
	return NULL;
}

/* Where an attribute's bytes are; inputs of up to 8 bytes are in the attribute itself. */
static struct span bytes_of(struct ib_uverbs_attr *attr, bool input)
{
	if (!attr)
		return (struct span){ NULL, 0 };
	if (input && attr->len <= sizeof(attr->data))
		return (struct span){ (uint8_t *)&attr->data, attr->len };
	return (struct span){ (uint8_t *)(uintptr_t)attr->data, attr->len };
}

static struct span input(struct ib_uverbs_ioctl_hdr *hdr, uint16_t id)
{
	return bytes_of(find(hdr, id), true);
}

static struct span output(struct ib_uverbs_ioctl_hdr *hdr, uint16_t id)
{
	struct ib_uverbs_attr *attr = find(hdr, id);
	struct span out = bytes_of(attr, false);

	if (attr) {
		memset(out.p, 0, out.n);
		attr->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	}
	return out;
}

static int invoke_write(struct ib_uverbs_ioctl_hdr *hdr)
{
	struct cmd c = { .in = input(hdr, UVERBS_ATTR_CORE_IN), .drv_in = input(hdr, UVERBS_ATTR_UHW_IN) };
	uint32_t number;

	take(input(hdr, UVERBS_ATTR_WRITE_CMD), &number, sizeof(number));
	if (!c.in.n && !find(hdr, UVERBS_ATTR_CORE_OUT))
		return ENOSPC;	/* libibverbs asks like this whether the method is there */
	c.out = output(hdr, UVERBS_ATTR_CORE_OUT);
	c.drv_out = output(hdr, UVERBS_ATTR_UHW_OUT);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (commands[i].number == number)
			return commands[i].run(&c);
	}
	return EOPNOTSUPP;
}

static int query_gid(struct ib_uverbs_ioctl_hdr *hdr)
{
	ANSWER(output(hdr, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY),
	       (struct ib_uverbs_gid_entry){ .gid = { 0x80fe, 1 }, .port_num = 1, .gid_type = GID_ROCE_V2 });
	return 0;
}

/* Bits of the general capabilities, counted from the first byte's highest, as the device numbers them. */
static void set_cap(struct span out, size_t bit, unsigned int value)
{
	enum { CAPS_AT = 128 };

	bit += CAPS_AT;
	if (bit / 8 < out.n)
		out.p[bit / 8] |= (uint8_t)(value << (7 - bit % 8));
}

static int devx_general(struct ib_uverbs_ioctl_hdr *hdr)
{
	enum { QUERY_HCA_CAP = 0x100, GENERAL = 1, QPC_EXTENSION = 290, DMA_MMO_QP = 1864 };
	struct span in = input(hdr, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN);
	struct span out = output(hdr, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT);

	/* [0..1] opcode, [6..7] capability type, twice, plus 1 for the present value */
	if (in.n < 8 || (in.p[0] << 8 | in.p[1]) != QUERY_HCA_CAP || (in.p[6] << 8 | in.p[7]) != GENERAL)
		return EOPNOTSUPP;
	set_cap(out, QPC_EXTENSION, 1);
	set_cap(out, DMA_MMO_QP, 1);
	return 0;
}

static int devx_create(struct ib_uverbs_ioctl_hdr *hdr)
{
	enum { CREATE_MKEY = 0x200, INDEX_AT = 9 };
	struct span in = input(hdr, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN);
	struct span out = output(hdr, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT);

	if (in.n < 2 || (in.p[0] << 8 | in.p[1]) != CREATE_MKEY || out.n < INDEX_AT + 3)
		return EOPNOTSUPP;
	out.p[INDEX_AT] = (uint8_t)(next_mkey >> 16);
	out.p[INDEX_AT + 1] = (uint8_t)(next_mkey >> 8);
	out.p[INDEX_AT + 2] = (uint8_t)next_mkey;
	next_mkey++;
	find(hdr, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)->data = next_handle++;
	return 0;
}

static int devx_modify(struct ib_uverbs_ioctl_hdr *hdr)
{
	output(hdr, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT);
	return 0;
}

static int done(struct ib_uverbs_ioctl_hdr *hdr)
{
	(void)hdr;
	return 0;
}

static const struct { uint16_t object, method; int (*run)(struct ib_uverbs_ioctl_hdr *hdr); } methods[] = {
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, invoke_write },
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, query_gid },
	{ MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, devx_general },
	{ MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, devx_create },
	{ MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, devx_modify },
	{ MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, done },
};

int standin_command(struct ib_uverbs_ioctl_hdr *hdr)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (methods[i].object == hdr->object_id && methods[i].method == hdr->method_id)
			return methods[i].run(hdr);
	}
	return EPROTONOSUPPORT;
}
