/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every example needs and none is about: open the device, make and connect queue pairs, wait
 * for a completion, and show a work queue entry (WQE) as it lies in the send queue. Stock headers only.
 *
 * Everything exits with a message when it fails, so that an example reads straight through. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

static inline void die(const char *what)
{
	fprintf(stderr, "FAILED: %s: %s\n", what, errno ? strerror(errno) : "no reason given");
	exit(1);
}

static inline void *need(void *object, const char *what)
{
	if (!object)
		die(what);
	return object;
}

/* For calls that return 0 or an errno. */
static inline void need_0(int err, const char *what)
{
	if (err) {
		errno = err > 0 ? err : errno;
		die(what);
	}
}

/* ---- device ---- */

struct device {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;		/* completions of what is sent */
	struct ibv_cq *recv_cq;		/* and of what is received */
	uint8_t gid_index;
	union ibv_gid gid;
	enum ibv_mtu mtu;
};

static inline void open_device(struct device *dev)
{
	struct mlx5dv_context_attr attr = { 0 };
	struct ibv_device **list = ibv_get_device_list(NULL), *mlx5 = NULL;
	struct ibv_gid_entry gid;
	struct ibv_port_attr port;

	for (int i = 0; list && list[i] && !mlx5; i++)
		if (mlx5dv_is_supported(list[i]))
			mlx5 = list[i];
	if (!mlx5) {
		fprintf(stderr, "FAILED: no mlx5 device; run this with: softmlx5 run PROGRAM\n");
		exit(1);
	}
	dev->ctx = need(mlx5dv_open_device(mlx5, &attr), "mlx5dv_open_device");
	ibv_free_device_list(list);
	dev->pd = need(ibv_alloc_pd(dev->ctx), "ibv_alloc_pd");
	dev->cq = need(ibv_create_cq(dev->ctx, 64, NULL, NULL, 0), "ibv_create_cq");
	dev->recv_cq = need(ibv_create_cq(dev->ctx, 64, NULL, NULL, 0), "ibv_create_cq");
	need_0(ibv_query_port(dev->ctx, 1, &port), "ibv_query_port");
	dev->mtu = port.active_mtu;
	for (dev->gid_index = 0;; dev->gid_index++) {
		need_0(ibv_query_gid_ex(dev->ctx, 1, dev->gid_index, &gid, 0), "ibv_query_gid_ex");
		if (gid.gid_type == IBV_GID_TYPE_ROCE_V2)
			break;
	}
	dev->gid = gid.gid;
}

static inline void close_device(struct device *dev)
{
	need_0(ibv_destroy_cq(dev->cq), "ibv_destroy_cq");
	need_0(ibv_destroy_cq(dev->recv_cq), "ibv_destroy_cq");
	need_0(ibv_dealloc_pd(dev->pd), "ibv_dealloc_pd");
	need_0(ibv_close_device(dev->ctx), "ibv_close_device");
}

enum {
	ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_ATOMIC,
};

static inline struct ibv_mr *register_memory(struct device *dev, void *mem, size_t bytes)
{
	return need(ibv_reg_mr(dev->pd, mem, bytes, ALL_ACCESS), "ibv_reg_mr");
}

/* ---- queue pairs ---- */

static inline struct ibv_qp_attr path_attr(const struct device *dev, enum ibv_qp_state state, uint32_t peer_qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = state, .port_num = 1, .path_mtu = dev->mtu, .dest_qp_num = peer_qpn,
		.qp_access_flags = ALL_ACCESS, .max_rd_atomic = 4, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .port_num = 1, .is_global = 1,
			     .grh = { .dgid = dev->gid, .sgid_index = dev->gid_index, .hop_limit = 64 } },
	};

	return attr;
}

/* An RC queue pair in RESET. ops: IBV_QP_EX_WITH_*, dv_ops: MLX5DV_QP_EX_WITH_*. max_inline also sets how
 * many entries a UMR may have. */
static inline struct ibv_qp *create_rc(struct device *dev, uint64_t ops, uint64_t dv_ops, uint32_t max_inline)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = dev->cq,
		.recv_cq = dev->recv_cq,
		.pd = dev->pd,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = max_inline },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = ops,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE, .send_ops_flags = dv_ops,
	};

	return need(mlx5dv_create_qp(dev->ctx, &attr, &dv), "mlx5dv_create_qp (RC)");
}

static inline void connect_rc(struct device *dev, struct ibv_qp *qp, uint32_t peer_qpn)
{
	struct ibv_qp_attr attr = path_attr(dev, IBV_QPS_INIT, peer_qpn);

	need_0(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	       "RC to INIT");
	attr.qp_state = IBV_QPS_RTR;
	need_0(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RC to RTR");
	attr.qp_state = IBV_QPS_RTS;
	need_0(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RC to RTS");
}

/* A DC initiator, ready to send. streams: 0, or the log2 of how many DCI streams it has. */
static inline struct ibv_qp *create_dci(struct device *dev, uint64_t ops, uint8_t streams)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_DRIVER, .send_cq = dev->cq, .recv_cq = dev->recv_cq, .pd = dev->pd,
		.cap = { .max_send_wr = 16, .max_send_sge = 2, .max_inline_data = 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = ops,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI,
	};
	struct ibv_qp_attr to = path_attr(dev, IBV_QPS_INIT, 0);
	struct ibv_qp *dci;

	if (streams) {
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
		dv.dc_init_attr.dci_streams.log_num_concurent = streams;
		dv.dc_init_attr.dci_streams.log_num_errored = streams;
	}
	dci = need(mlx5dv_create_qp(dev->ctx, &attr, &dv), "mlx5dv_create_qp (DCI)");
	need_0(ibv_modify_qp(dci, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), "DCI to INIT");
	to.qp_state = IBV_QPS_RTR;
	need_0(ibv_modify_qp(dci, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU), "DCI to RTR");
	to.qp_state = IBV_QPS_RTS;
	need_0(ibv_modify_qp(dci, &to, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "DCI to RTS");
	return dci;
}

/* A DC target, ready to receive. Its number is known only from RTR on. */
static inline struct ibv_qp *create_dct(struct device *dev, struct ibv_srq *srq, uint64_t key)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_DRIVER, .send_cq = dev->recv_cq, .recv_cq = dev->recv_cq, .srq = srq, .pd = dev->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = key },
	};
	struct ibv_qp_attr to = path_attr(dev, IBV_QPS_INIT, 0);
	struct ibv_qp *dct = need(mlx5dv_create_qp(dev->ctx, &attr, &dv), "mlx5dv_create_qp (DCT)");

	need_0(ibv_modify_qp(dct, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	       "DCT to INIT");
	to.qp_state = IBV_QPS_RTR;
	need_0(ibv_modify_qp(dct, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER),
	       "DCT to RTR");
	return dct;
}

static inline struct ibv_srq *create_srq(struct device *dev)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 16, .max_sge = 1 } };

	return need(ibv_create_srq(dev->pd, &attr), "ibv_create_srq");
}

static inline struct ibv_ah *create_ah(struct device *dev)
{
	struct ibv_qp_attr attr = path_attr(dev, IBV_QPS_RTS, 0);

	return need(ibv_create_ah(dev->pd, &attr.ah_attr), "ibv_create_ah");
}

/* ---- completions ---- */

static inline const char *wc_name(enum ibv_wc_opcode opcode)
{
	switch ((int)opcode) {
	case IBV_WC_SEND: return "IBV_WC_SEND";
	case IBV_WC_RDMA_WRITE: return "IBV_WC_RDMA_WRITE";
	case IBV_WC_RDMA_READ: return "IBV_WC_RDMA_READ";
	case IBV_WC_LOCAL_INV: return "IBV_WC_LOCAL_INV";
	case IBV_WC_RECV: return "IBV_WC_RECV";
	case MLX5DV_WC_UMR: return "MLX5DV_WC_UMR";
	case MLX5DV_WC_RAW_WQE: return "MLX5DV_WC_RAW_WQE (IBV_WC_DRIVER2)";
	case MLX5DV_WC_MEMCPY: return "MLX5DV_WC_MEMCPY";
	default: return "another opcode";
	}
}

/* Waits up to ten seconds for one completion, whatever its status. */
static inline struct ibv_wc wait_any(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + 10;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		if (time(NULL) > end) {
			fprintf(stderr, "FAILED: no completion within ten seconds\n");
			exit(1);
		}
	if (n < 0)
		die("ibv_poll_cq");
	return wc;
}

/* Waits for the completion of wr_id, which must be a success, and says what came. */
static inline struct ibv_wc wait_for(struct ibv_cq *cq, uint64_t wr_id)
{
	struct ibv_wc wc = wait_any(cq);

	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != wr_id) {
		fprintf(stderr, "FAILED: waiting for wr_id %" PRIu64 ", got wr_id %" PRIu64 ": %s, vendor_err 0x%02x\n",
			wr_id, wc.wr_id, ibv_wc_status_str(wc.status), wc.vendor_err);
		exit(1);
	}
	printf("  completion: wr_id %" PRIu64 "  success  %s\n", wr_id, wc_name(wc.opcode));
	return wc;
}

/* The last line of an example. RETURN its exit code. */
static inline int verdict(int right, const char *what)
{
	printf("%s %s\n", right ? "RIGHT:" : "WRONG:", what);
	return right ? 0 : 1;
}

/* ---- showing a WQE ---- */

static inline uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t get64(const uint8_t *p)
{
	return (uint64_t)get32(p) << 32 | get32(p + 4);
}

static inline void show_row(const uint8_t *seg, const char *name)
{
	printf("    %08x %08x %08x %08x%s%-*s", get32(seg), get32(seg + 4), get32(seg + 8), get32(seg + 12),
	       *name ? "  " : "", *name ? 9 : 0, name);
}

static inline const char *opcode_name(uint8_t opcode)
{
	switch (opcode) {
	case MLX5_OPCODE_RDMA_WRITE: return "RDMA_WRITE";
	case MLX5_OPCODE_SEND: return "SEND";
	case MLX5_OPCODE_RDMA_READ: return "RDMA_READ";
	case MLX5_OPCODE_UMR: return "UMR";
	case MLX5_OPCODE_MMO: return "MMO (DMA copy)";
	default: return "opcode";
	}
}

/* Names what stands in each 16-byte segment. Enough for the examples; the tool `softmlx5 decode` names every
 * field. */
static inline void show_segment(const uint8_t *wqe, uint32_t i, int is_dc)
{
	const uint8_t *s = wqe + i * 16;
	uint8_t op = wqe[3];
	uint32_t at = is_dc && op != MLX5_OPCODE_MMO ? i - 3 : i;	/* as if there were no address */
	int has_raddr = op == MLX5_OPCODE_RDMA_WRITE || op == MLX5_OPCODE_RDMA_READ;

	if (i == 0) {
		show_row(s, "control");
		printf("%s, block %u, qp 0x%x, %u segments%s%s", opcode_name(op), get32(s) >> 8 & 0xffff,
		       get32(s + 4) >> 8, s[7] & 0x3f, s[11] & MLX5_WQE_CTRL_CQ_UPDATE ? ", CQE" : "",
		       s[11] & MLX5_WQE_CTRL_FENCE ? ", FENCE" : "");
	} else if (is_dc && op != MLX5_OPCODE_MMO && i <= 3) {
		show_row(s, i == 1 ? "address" : "");
		if (i == 1)
			printf("DC key 0x%" PRIx64 ", DCT 0x%x", get64(s), get32(s + 8) & 0xffffff);
		else if (i == 3)
			printf("  %-9sGID of the target", "");
	} else if (op == MLX5_OPCODE_UMR && i < 4) {
		show_row(s, i == 1 ? "umr" : "");
		if (i == 1)
			printf("%u translation octowords, mask 0x%" PRIx64, get32(s + 4) >> 16, get64(s + 8));
	} else if (op == MLX5_OPCODE_UMR && i < 8) {
		show_row(s, i == 4 ? "mkey" : "");
		if (i == 4)
			printf("access 0x%02x", s[2]);
		if (i == 5)
			printf("  %-9sstart 0x%" PRIx64 ", length %" PRIu64, "", get64(s), get64(s + 8));
	} else if (op == MLX5_OPCODE_UMR && !get64(s) && !get64(s + 8)) {
		show_row(s, "padding");
	} else if (op == MLX5_OPCODE_UMR && i == 8 && get32(s + 4) == 0x400) {
		show_row(s, "repeat");
		printf("%u turns of %u bytes in %u blocks", get32(s + 8), get32(s), get32(s + 12) & 0xffff);
	} else if (op == MLX5_OPCODE_UMR && i > 8 && get32(wqe + 132) == 0x400) {
		show_row(s, "block");
		printf("%u bytes every %u, key 0x%x, at 0x%" PRIx64, get32(s) & 0xffff, get32(s) >> 16,
		       get32(s + 4), get64(s + 8));
	} else if (has_raddr && at == 1) {
		show_row(s, "remote");
		printf("va 0x%" PRIx64 ", rkey 0x%x", get64(s), get32(s + 8));
	} else if (op == MLX5_OPCODE_MMO && i == 1) {
		show_row(s, "mmo");
		printf("key 0x%x of the driver's own 64 bytes", get32(s + 4));
	} else {
		const char *name = op == MLX5_OPCODE_UMR ? "entry" : "data";

		if (op == MLX5_OPCODE_MMO)
			name = i == 2 ? "source" : "dest";
		show_row(s, name);
		printf("%u bytes, key 0x%x, at 0x%" PRIx64, get32(s), get32(s + 4), get64(s + 8));
	}
	printf("\n");
}

/* Shows the WQE that starts at a block (64 bytes) of qp's send queue. */
static inline void show_wqe(struct ibv_qp *qp, uint32_t block, int is_dc)
{
	struct mlx5dv_qp out = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = qp, .out = &out } };
	uint8_t wqe[1024];
	int zeros = 0;

	need_0(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
	for (uint32_t i = 0; i < 16; i++)	/* a WQE may wrap round the end of the ring */
		memcpy(wqe + i * 64, (uint8_t *)out.sq.buf + (block + i) % out.sq.wqe_cnt * 64, 64);
	printf("  WQE, as it lies in the send queue:\n");
	for (uint32_t i = 0; i < (wqe[7] & 0x3fu); i++) {
		zeros = get64(wqe + i * 16) == 0 && get64(wqe + i * 16 + 8) == 0 ? zeros + 1 : 0;
		if (zeros == 2)
			printf("    ...\n");
		if (zeros < 2)
			show_segment(wqe, i, is_dc);
	}
}

#endif
