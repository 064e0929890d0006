/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* softmlx5 info: the device in words, asked as any program would ask, through the libraries' public calls. */
#include <argp.h>
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "base/bits.h"
#include "cmd.h"

/* Looked up at run time: this command must not need a libibverbs to start. */
struct api {
	struct ibv_device **(*get_device_list)(int *count);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *device);
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	ssize_t (*query_gid_table)(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
				   uint32_t flags, size_t entry_size);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe, void *cookie,
				    struct ibv_comp_channel *channel, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*destroy_qp)(struct ibv_qp *qp);
	const char *(*port_state_str)(enum ibv_port_state state);
	int (*dv_query_device)(struct ibv_context *context, struct mlx5dv_context *out);
	struct ibv_qp *(*dv_create_qp)(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				       struct mlx5dv_qp_init_attr *dv_attr);
};

static const struct symbol {
	const char *name;
	size_t at;
	bool dv;	/* of libmlx5 */
} symbols[] = {
	{ "ibv_get_device_list", offsetof(struct api, get_device_list), false },
	{ "ibv_free_device_list", offsetof(struct api, free_device_list), false },
	{ "ibv_get_device_name", offsetof(struct api, get_device_name), false },
	{ "ibv_open_device", offsetof(struct api, open_device), false },
	{ "ibv_close_device", offsetof(struct api, close_device), false },
	{ "_ibv_query_gid_table", offsetof(struct api, query_gid_table), false },
	{ "ibv_alloc_pd", offsetof(struct api, alloc_pd), false },
	{ "ibv_dealloc_pd", offsetof(struct api, dealloc_pd), false },
	{ "ibv_create_cq", offsetof(struct api, create_cq), false },
	{ "ibv_destroy_cq", offsetof(struct api, destroy_cq), false },
	{ "ibv_destroy_qp", offsetof(struct api, destroy_qp), false },
	{ "ibv_port_state_str", offsetof(struct api, port_state_str), false },
	{ "mlx5dv_query_device", offsetof(struct api, dv_query_device), true },
	{ "mlx5dv_create_qp", offsetof(struct api, dv_create_qp), true },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	if (key == ARGP_KEY_ARG)
		argp_error(state, "`%s' is one argument too many", arg);
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
	.parser = parse,
	.doc = "Say what the device is: name, port, addresses, limits, and which operations each type of queue pair "
	       "can be created with. Asks softmlx5's libraries through their public calls.\v"
	       "Exit status: 0; 1 if the libraries or the device cannot be opened; 2 for a wrong command line.",
};

static void *open_library(const char *dir, const char *name)
{
	char path[PATH_MAX + 64];
	void *handle;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		fprintf(stderr, "softmlx5 info: %s\n", dlerror());
	return handle;
}

static bool load(struct api *api)
{
	char dir[PATH_MAX];
	void *verbs, *dv;

	if (cmd_library_dir(dir, sizeof(dir)))
		return false;
	verbs = open_library(dir, "libibverbs.so.1");
	dv = verbs ? open_library(dir, "libmlx5.so.1") : NULL;
	if (!dv)
		return false;
	for (size_t i = 0; i < SMX_COUNT(symbols); i++) {
		void *fn = dlsym(symbols[i].dv ? dv : verbs, symbols[i].name);

		if (!fn) {
			fprintf(stderr, "softmlx5 info: %s has no %s\n", dir, symbols[i].name);
			return false;
		}
		memcpy((char *)api + symbols[i].at, &fn, sizeof(fn));
	}
	return true;
}

static bool print_device(const struct api *api, struct ibv_context *ctx)
{
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, query_device_ex);
	struct ibv_device_attr_ex ex = { .comp_mask = 0 };
	const struct ibv_device_attr *a = &ex.orig_attr;
	int rc = vctx ? vctx->query_device_ex(ctx, NULL, &ex, sizeof(ex)) : EOPNOTSUPP;

	if (rc) {
		fprintf(stderr, "softmlx5 info: ibv_query_device_ex: %s\n", strerror(rc));
		return false;
	}
	printf("Device %s: vendor 0x%04x, part %u, firmware %s\n", api->get_device_name(ctx->device), a->vendor_id,
	       a->vendor_part_id, a->fw_ver);
	printf("  node GUID                 %016" PRIx64 "\n", be64toh(a->node_guid));
	printf("  ports                     %u\n", a->phys_port_cnt);
	printf("Limits\n");
	printf("  queue pairs               %d, %d work requests each, %d SGEs\n", a->max_qp, a->max_qp_wr, a->max_sge);
	printf("  completion queues         %d, %d entries each\n", a->max_cq, a->max_cqe);
	printf("  shared receive queues     %d, %d receives each, %d SGEs\n", a->max_srq, a->max_srq_wr,
	       a->max_srq_sge);
	printf("  memory regions            %d, %" PRIu64 " bytes each\n", a->max_mr, a->max_mr_size);
	printf("  memory windows            %d\n", a->max_mw);
	printf("  protection domains        %d\n", a->max_pd);
	printf("  address handles           %d\n", a->max_ah);
	printf("  reads and atomics         %d outstanding a queue pair as responder, %d as initiator\n",
	       a->max_qp_rd_atom, a->max_qp_init_rd_atom);
	printf("  atomics                   %s\n", a->atomic_cap == IBV_ATOMIC_NONE ? "none" :
	       a->atomic_cap == IBV_ATOMIC_HCA ? "among work requests of this device" : "with the processor too");
	printf("  device memory             %" PRIu64 " bytes\n", ex.max_dm_size);
	printf("  tag matching              %" PRIu32 " tags, %" PRIu32 " list operations outstanding\n",
	       ex.tm_caps.max_num_tags, ex.tm_caps.max_ops);
	return true;
}

static void print_dv(const struct api *api, struct ibv_context *ctx)
{
	struct mlx5dv_context dv = { .comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS |
						  MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH };

	if (api->dv_query_device(ctx, &dv))
		return;
	printf("Direct verbs\n");
	printf("  CQE version               %s\n", dv.flags & MLX5DV_CONTEXT_FLAGS_CQE_V1 ? "1" : "0");
	if (dv.comp_mask & MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH)
		printf("  mlx5dv_wr_memcpy          up to %zu bytes\n", dv.max_wr_memcpy_length);
	if (dv.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS)
		printf("  DCI streams               2^%u at most, DCI in error from 2^%u streams in error\n",
		       dv.dci_streams_caps.max_log_num_concurent, dv.dci_streams_caps.max_log_num_errored);
}

static bool print_port(const struct api *api, struct ibv_context *ctx)
{
	static const int mtu[] = { 0, 256, 512, 1024, 2048, 4096 };
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, query_port);
	struct ibv_port_attr p = { .state = IBV_PORT_NOP };
	int rc = vctx ? vctx->query_port(ctx, 1, &p, sizeof(p)) : EOPNOTSUPP;

	if (rc) {
		fprintf(stderr, "softmlx5 info: ibv_query_port: %s\n", strerror(rc));
		return false;
	}
	printf("Port 1\n");
	printf("  state                     %s\n", api->port_state_str(p.state));
	printf("  link layer                %s\n", p.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	printf("  path MTU                  %d active, %d at most\n",
	       (unsigned int)p.active_mtu < SMX_COUNT(mtu) ? mtu[p.active_mtu] : 0,
	       (unsigned int)p.max_mtu < SMX_COUNT(mtu) ? mtu[p.max_mtu] : 0);
	printf("  longest message           %u bytes\n", p.max_msg_sz);
	printf("  GID table                 %d entries\n", p.gid_tbl_len);
	return true;
}

static void print_gids(const struct api *api, struct ibv_context *ctx)
{
	static const char *const type[] = { "InfiniBand", "RoCE v1", "RoCE v2" };
	struct ibv_gid_entry gids[64];
	ssize_t n = api->query_gid_table(ctx, gids, SMX_COUNT(gids), 0, sizeof(gids[0]));

	if (n < 0)
		printf("  GIDs                      %s\n", strerror((int)-n));
	for (ssize_t i = 0; i < n; i++) {
		char text[INET6_ADDRSTRLEN];

		inet_ntop(AF_INET6, gids[i].gid.raw, text, sizeof(text));
		printf("  GID %-3u                   %s  %s\n", gids[i].gid_index, text,
		       gids[i].gid_type < SMX_COUNT(type) ? type[gids[i].gid_type] : "?");
	}
}

struct op_name { uint64_t flag; const char *name; };

static const struct op_name send_ops[] = {
	{ IBV_QP_EX_WITH_SEND, "send" },
	{ IBV_QP_EX_WITH_SEND_WITH_IMM, "send_imm" },
	{ IBV_QP_EX_WITH_SEND_WITH_INV, "send_inv" },
	{ IBV_QP_EX_WITH_RDMA_WRITE, "rdma_write" },
	{ IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, "rdma_write_imm" },
	{ IBV_QP_EX_WITH_RDMA_READ, "rdma_read" },
	{ IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, "atomic_cmp_swp" },
	{ IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, "atomic_fetch_add" },
	{ IBV_QP_EX_WITH_LOCAL_INV, "local_inv" },
	{ IBV_QP_EX_WITH_BIND_MW, "bind_mw" },
	{ IBV_QP_EX_WITH_TSO, "send_tso" },
};
static const struct op_name dv_ops[] = {
	{ MLX5DV_QP_EX_WITH_MR_INTERLEAVED, "mr_interleaved" },
	{ MLX5DV_QP_EX_WITH_MR_LIST, "mr_list" },
	{ MLX5DV_QP_EX_WITH_MKEY_CONFIGURE, "mkey_configure" },
	{ MLX5DV_QP_EX_WITH_RAW_WQE, "raw_wqe" },
	{ MLX5DV_QP_EX_WITH_MEMCPY, "memcpy" },
};

static const struct qp_kind {
	const char *name;
	enum ibv_qp_type type;
	bool dci;
} qp_kinds[] = {
	{ "RC", IBV_QPT_RC, false },	    { "UC", IBV_QPT_UC, false },   { "UD", IBV_QPT_UD, false },
	{ "XRC", IBV_QPT_XRC_SEND, false }, { "DCI", IBV_QPT_DRIVER, true },
};

struct probe {
	const struct api *api;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

/* Whether a queue pair of this kind can be created with this operation. */
static bool can(const struct probe *p, const struct qp_kind *kind, uint64_t op, uint64_t dv_op)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = p->cq,
		.recv_cq = kind->type == IBV_QPT_XRC_SEND ? NULL : p->cq,
		.cap = { .max_send_wr = 1, .max_send_sge = 1,
			 .max_recv_wr = kind->type <= IBV_QPT_UD, .max_recv_sge = kind->type <= IBV_QPT_UD },
		.qp_type = kind->type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = p->pd,
		.send_ops_flags = op,
	};
	struct mlx5dv_qp_init_attr dv_attr = { .comp_mask = 0 };
	struct ibv_qp *qp;

	if (kind->dci) {
		dv_attr.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv_attr.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	}
	if (dv_op) {
		dv_attr.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
		dv_attr.send_ops_flags = dv_op;
	}
	qp = p->api->dv_create_qp(p->ctx, &attr, &dv_attr);
	if (!qp)
		return false;
	p->api->destroy_qp(qp);
	return true;
}

/* Names, wrapped behind the column of values. */
static void print_word(size_t *column, const char *word)
{
	if (*column + strlen(word) + 1 > 78) {
		printf("\n%27s", "");
		*column = 27;
	}
	*column += strlen(word) + 1;
	printf(" %s", word);
}

static void print_kind(const struct probe *p, const struct qp_kind *kind)
{
	size_t column = 27, count = 0;

	printf("  %-25s", kind->name);
	for (size_t i = 0; i < SMX_COUNT(send_ops); i++)
		if (can(p, kind, send_ops[i].flag, 0)) {
			print_word(&column, send_ops[i].name);
			count++;
		}
	for (size_t i = 0; i < SMX_COUNT(dv_ops); i++)
		if (can(p, kind, 0, dv_ops[i].flag)) {
			print_word(&column, dv_ops[i].name);
			count++;
		}
	printf("%s\n", count ? "" : " none");
}

static void print_operations(const struct api *api, struct ibv_context *ctx)
{
	struct probe p = { .api = api, .ctx = ctx };

	p.pd = api->alloc_pd(ctx);
	p.cq = p.pd ? api->create_cq(ctx, 1, NULL, NULL, 0) : NULL;
	if (p.cq) {
		printf("Operations (ibv_wr_* and mlx5dv_wr_*) by type of queue pair\n");
		for (size_t i = 0; i < SMX_COUNT(qp_kinds); i++)
			print_kind(&p, &qp_kinds[i]);
		api->destroy_cq(p.cq);
	} else {
		printf("Operations: no queue can be created: %s\n", strerror(errno));
	}
	if (p.pd)
		api->dealloc_pd(p.pd);
}

int cmd_info(int argc, char **argv)
{
	struct ibv_device **list;
	struct ibv_context *ctx;
	struct api api;
	bool good;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	/* Operations that the device lacks are asked for below; nobody needs to read that each was refused. */
	setenv("SOFTMLX5_LOG", "off", 1);
	if (!load(&api))
		return CMD_FAILED;
	list = api.get_device_list(NULL);
	if (!list || !list[0]) {
		fprintf(stderr, "softmlx5 info: no device: %s\n", list ? "the list is empty" : strerror(errno));
		return CMD_FAILED;
	}
	ctx = api.open_device(list[0]);
	if (!ctx) {
		fprintf(stderr, "softmlx5 info: %s cannot be opened: %s\n", api.get_device_name(list[0]),
			strerror(errno));
		return CMD_FAILED;
	}
	good = print_device(&api, ctx);
	print_dv(&api, ctx);
	if (print_port(&api, ctx))
		print_gids(&api, ctx);
	else
		good = false;
	print_operations(&api, ctx);
	api.close_device(ctx);
	api.free_device_list(list);
	return good ? CMD_OK : CMD_FAILED;
}
