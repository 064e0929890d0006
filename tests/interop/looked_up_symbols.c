/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A program that is linked to neither library: it opens them by name and looks up each function with its version, as
 * NCCL does. Two processes connect an RC queue pair; the child WRITEs, FETCH_ADDs and sends, and the parent checks. */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

enum { BYTES = 3 << 20, BATCH = 16 };

/* X(library, version, name): every function that NCCL asks for. */
#define FUNCTIONS(X) \
	X(verbs, "IBVERBS_1.1", ibv_get_device_list) X(verbs, "IBVERBS_1.1", ibv_free_device_list) \
	X(verbs, "IBVERBS_1.1", ibv_get_device_name) X(verbs, "IBVERBS_1.1", ibv_open_device) \
	X(verbs, "IBVERBS_1.1", ibv_close_device) X(verbs, "IBVERBS_1.1", ibv_get_async_event) \
	X(verbs, "IBVERBS_1.1", ibv_ack_async_event) X(verbs, "IBVERBS_1.1", ibv_query_device) \
	X(verbs, "IBVERBS_1.1", ibv_query_port) X(verbs, "IBVERBS_1.1", ibv_query_gid) \
	X(verbs, "IBVERBS_1.1", ibv_query_qp) X(verbs, "IBVERBS_1.1", ibv_alloc_pd) \
	X(verbs, "IBVERBS_1.1", ibv_dealloc_pd) X(verbs, "IBVERBS_1.1", ibv_reg_mr) \
	X(verbs, "IBVERBS_1.8", ibv_reg_mr_iova2) X(verbs, "IBVERBS_1.12", ibv_reg_dmabuf_mr) \
	X(verbs, "IBVERBS_1.1", ibv_dereg_mr) X(verbs, "IBVERBS_1.1", ibv_create_cq) \
	X(verbs, "IBVERBS_1.1", ibv_destroy_cq) X(verbs, "IBVERBS_1.1", ibv_create_qp) \
	X(verbs, "IBVERBS_1.1", ibv_modify_qp) X(verbs, "IBVERBS_1.1", ibv_destroy_qp) \
	X(verbs, "IBVERBS_1.1", ibv_fork_init) X(verbs, "IBVERBS_1.1", ibv_event_type_str) \
	X(verbs, "IBVERBS_1.10", ibv_query_ece) X(verbs, "IBVERBS_1.10", ibv_set_ece) \
	X(mlx5, "MLX5_1.8", mlx5dv_is_supported)

static struct {
#define MEMBER(library, version, name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
} v;

static const char *who;

#define MUST(cond, ...) do { \
	if (!(cond)) { \
		printf("not ok - looked up symbols, %s: ", who); \
		printf(__VA_ARGS__); \
		printf(" (line %d, errno %d)\n", __LINE__, errno); \
		exit(1); \
	} \
} while (0)

struct end {
	uint32_t qpn, rkey;
	uint64_t addr;
	union ibv_gid gid;
	struct ibv_ece ece;
};

struct side {
	struct ibv_device **list;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem;
	uint64_t iova;
	enum ibv_mtu mtu;
	struct end own, peer;
};

static void load(void)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL), *mlx5;

	MUST(verbs, "dlopen: %s", dlerror());
	mlx5 = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
	MUST(mlx5, "dlopen: %s", dlerror());
#define LOOK_UP(library, version, name) \
	v.name = (__typeof__(v.name))dlvsym(library, #name, version); \
	MUST(v.name, "%s@%s is not there", #name, version);
	FUNCTIONS(LOOK_UP)
	MUST(!dlvsym(verbs, "ibv_reg_mr_iova2", "IBVERBS_1.1"), "a version that the function does not have is found");
}

static void open_side(struct side *s)
{
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2 * BATCH, .max_recv_wr = BATCH, .max_send_sge = 1, .max_recv_sge = 1 } };
	int n = 0;

	MUST(v.ibv_fork_init() == 0, "ibv_fork_init");
	s->list = v.ibv_get_device_list(&n);
	MUST(s->list && n == 1 && !strcmp(v.ibv_get_device_name(s->list[0]), "mlx5_0"), "%d devices", n);
	MUST(v.mlx5dv_is_supported(s->list[0]), "no mlx5 device");
	s->ctx = v.ibv_open_device(s->list[0]);
	MUST(s->ctx, "ibv_open_device");
	MUST(!v.ibv_query_device(s->ctx, &dev) && dev.max_qp > 1, "ibv_query_device");
	/* The function, older than the inline one of verbs.h, knows only the first part of the structure. */
	memset(&port, 0, sizeof(port));
	MUST(!v.ibv_query_port(s->ctx, 1, (void *)&port) && port.state == IBV_PORT_ACTIVE, "ibv_query_port");
	MUST(port.link_layer == IBV_LINK_LAYER_ETHERNET, "link layer %u", port.link_layer);
	s->mtu = port.active_mtu;
	s->pd = v.ibv_alloc_pd(s->ctx);
	MUST(s->pd, "ibv_alloc_pd");
	MUST(!v.ibv_reg_dmabuf_mr(s->pd, 0, 4096, 0, -1, 0), "a dma-buf of no file was registered");
	s->mem = aligned_alloc(4096, BYTES);
	s->iova = 0x10000;
	s->mr = v.ibv_reg_mr_iova2(s->pd, s->mem, BYTES, s->iova, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING);
	MUST(s->mr, "ibv_reg_mr_iova2");
	s->cq = v.ibv_create_cq(s->ctx, 4 * BATCH, NULL, NULL, 0);
	MUST(s->cq, "ibv_create_cq");
	init.send_cq = init.recv_cq = s->cq;
	s->qp = v.ibv_create_qp(s->pd, &init);
	MUST(s->qp, "ibv_create_qp");
	s->own = (struct end){ .qpn = s->qp->qp_num, .rkey = s->mr->rkey, .addr = s->iova };
	MUST(!v.ibv_query_gid(s->ctx, 1, 0, &s->own.gid), "ibv_query_gid");
	MUST(!v.ibv_query_ece(s->qp, &s->own.ece), "ibv_query_ece");
}

static void connect_side(struct side *s, int fd)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	struct ibv_qp_init_attr init;

	MUST(write(fd, &s->own, sizeof(s->own)) == sizeof(s->own), "write");
	MUST(read(fd, &s->peer, sizeof(s->peer)) == sizeof(s->peer), "the other process is gone");
	MUST(!v.ibv_set_ece(s->qp, &s->peer.ece), "ibv_set_ece");
	MUST(!v.ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "INIT");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = s->mtu, .dest_qp_num = s->peer.qpn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = s->peer.gid, .hop_limit = 255 } } };
	MUST(!v.ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1 };
	MUST(!v.ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
	MUST(!v.ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS, "ibv_query_qp");
}

static void wait_for(struct side *s, enum ibv_wc_opcode opcode, uint64_t wr_id)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(s->cq, 1, &wc);
	while (!n);
	MUST(n == 1 && wc.status == IBV_WC_SUCCESS, "completion %d: status %u vendor 0x%x", n, wc.status,
	     wc.vendor_err);
	MUST(wc.opcode == opcode && wc.wr_id == wr_id, "opcode %u wr_id %lu", wc.opcode, (unsigned long)wc.wr_id);
}

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 7 + (i >> 12));
}

static void receiver(struct side *s, int fd)
{
	struct ibv_sge sge = { .addr = s->iova + BYTES - 64, .length = 64, .lkey = s->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 };
	char go = 1;

	memset(s->mem, 0, BYTES);
	MUST(!ibv_post_recv(s->qp, &wr, &bad), "ibv_post_recv");
	MUST(write(fd, &go, 1) == 1, "write");
	wait_for(s, IBV_WC_RECV_RDMA_WITH_IMM, 7);
	for (size_t i = 0; i < BYTES - 4096; i++)
		MUST(s->mem[i] == byte_at(i), "byte %zu is 0x%02x", i, s->mem[i]);
	MUST(read(fd, &go, 1) == 1, "the other process is gone");
	MUST(*(uint64_t *)(void *)(s->mem + BYTES - 4096) == 5 * BATCH, "the counter is %lu",
	     (unsigned long)*(uint64_t *)(void *)(s->mem + BYTES - 4096));
}

static void sender(struct side *s, int fd)
{
	struct ibv_sge sge = { .addr = s->iova, .length = BYTES - 4096, .lkey = s->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { s->peer.addr, s->peer.rkey } };
	char go;

	for (size_t i = 0; i < BYTES; i++)
		s->mem[i] = byte_at(i);
	MUST(read(fd, &go, 1) == 1, "the other process is gone");
	MUST(!ibv_post_send(s->qp, &wr, &bad), "ibv_post_send");
	wait_for(s, IBV_WC_RDMA_WRITE, 1);
	sge = (struct ibv_sge){ .addr = s->iova + BYTES - 8, .length = 8, .lkey = s->mr->lkey };
	wr = (struct ibv_send_wr){ .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = { .remote_addr = s->peer.addr + BYTES - 4096, .compare_add = 5, .rkey = s->peer.rkey } };
	for (wr.wr_id = 0; wr.wr_id < BATCH; wr.wr_id++)
		MUST(!ibv_post_send(s->qp, &wr, &bad), "ibv_post_send");
	for (uint64_t i = 0; i < BATCH; i++)
		wait_for(s, IBV_WC_FETCH_ADD, i);
	MUST(*(uint64_t *)(void *)(s->mem + BYTES - 8) == 5 * (BATCH - 1), "the last value fetched");
	MUST(write(fd, &go, 1) == 1, "write");
}

static void close_side(struct side *s)
{
	MUST(!v.ibv_destroy_qp(s->qp) && !v.ibv_destroy_cq(s->cq) && !v.ibv_dereg_mr(s->mr) &&
	     !v.ibv_dealloc_pd(s->pd) && !v.ibv_close_device(s->ctx), "closing");
	v.ibv_free_device_list(s->list);
	free(s->mem);
}

int main(void)
{
	struct side s = { .list = NULL };
	int fd[2], status = 0;
	pid_t child;

	setvbuf(stdout, NULL, _IOLBF, 0);
	who = "before fork";
	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd), "socketpair");
	child = fork();
	MUST(child >= 0, "fork");
	close(fd[!child]);
	who = child ? "receiver" : "sender";
	load();
	open_side(&s);
	connect_side(&s, fd[!!child]);
	(child ? receiver : sender)(&s, fd[!!child]);
	close_side(&s);
	close(fd[!!child]);
	if (child) {
		waitpid(child, &status, 0);
		if (!status)
			printf("ok - RC, WRITE and FETCH_ADD between two processes by looked up symbols\n");
	}
	return status ? 1 : 0;
}
