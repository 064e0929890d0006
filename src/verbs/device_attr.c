/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the device says about itself and its port. A limit that is reported can be used; what is not
 * offered is reported as absent. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/settings.h"
#include "verbs/gid_table.h"
#include "verbs/ibv_device.h"
#include "verbs/objects.h"

#undef ibv_query_port

enum {
	PORT_PHYS_LINK_UP = 5,
	PORT_WIDTH_4X = 2,
	PORT_SPEED_NDR = 128,		/* 100 Gb/s a lane */
	MAX_QP_WR = 32768,
	MAX_RNDV_BYTES = 64,		/* of a rendezvous message with its headers */
	HCA_CLOCK_KHZ = 1000000,	/* the device counts nanoseconds */
};

static void fill_basic(struct ibv_device_attr *a)
{
	*a = (struct ibv_device_attr){
		.fw_ver = "28.39.1002",
		.node_guid = htobe64(smx_device_guid()),
		.sys_image_guid = htobe64(smx_device_guid()),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = ~(uint64_t)0xfff,
		.vendor_id = SMX_VENDOR_ID,
		.vendor_part_id = SMX_PART_ID,
		.max_qp = SMX_MAX_QP,
		.max_qp_wr = MAX_QP_WR,
		.device_cap_flags = IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW |
				    IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS,
		.max_sge = 30,
		.max_sge_rd = 30,
		.max_cq = SMX_MAX_CQ,
		.max_cqe = SMX_MAX_CQE,
		.max_mr = SMX_MAX_MR,
		.max_pd = SMX_MAX_PD,
		.max_qp_rd_atom = SMX_MAX_RD_ATOMIC,
		.max_res_rd_atom = SMX_MAX_RD_ATOMIC * SMX_MAX_QP,
		.max_qp_init_rd_atom = SMX_MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mw = SMX_MAX_MW,
		.max_mcast_grp = 8192,
		.max_mcast_qp_attach = 240,
		.max_total_mcast_qp_attach = 8192 * 240,
		.max_ah = INT_MAX,
		.max_srq = SMX_MAX_SRQ,
		.max_srq_wr = SMX_MAX_SRQ_WR,
		.max_srq_sge = SMX_MAX_SRQ_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = 16,
		.phys_port_cnt = 1,
	};
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t attr_size)
{
	const uint32_t rc_odp = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
				IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
				IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
	struct ibv_device_attr_ex a = {
		.odp_caps = {
			.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
			.per_transport_caps = {
				.rc_odp_caps = rc_odp,
				.uc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
					       IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SRQ_RECV,
				.ud_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
					       IBV_ODP_SUPPORT_SRQ_RECV,
			},
		},
		.tm_caps = {
			.max_rndv_hdr_size = MAX_RNDV_BYTES,
			.max_num_tags = SMX_MAX_TAGS,
			.flags = IBV_TM_CAP_RC,
			.max_ops = MAX_QP_WR,
			.max_sge = 1,
		},
		.completion_timestamp_mask = UINT64_MAX >> 1,
		.hca_core_clock = HCA_CLOCK_KHZ,
		.cq_mod_caps = { .max_cq_count = UINT16_MAX, .max_cq_period = 4095 },
		.max_dm_size = SMX_MAX_DM_BYTES,
		.xrc_odp_caps = rc_odp,
		.phys_port_cnt_ex = 1,
	};

	(void)context;
	if (input && input->comp_mask)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "comp_mask 0x%x of query_device_ex", input->comp_mask);
	if (attr_size < offsetof(struct ibv_device_attr_ex, comp_mask))
		return EINVAL;
	fill_basic(&a.orig_attr);
	a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
	/* A program built against a newer header passes a longer structure. */
	if (attr_size > sizeof(a))
		memset((char *)attr + sizeof(a), 0, attr_size - sizeof(a));
	memcpy(attr, &a, attr_size < sizeof(a) ? attr_size : sizeof(a));
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	fill_basic(attr);
	return 0;
}

static enum ibv_mtu mtu_code(uint64_t bytes)
{
	return bytes >= 4096   ? IBV_MTU_4096
	       : bytes >= 2048 ? IBV_MTU_2048
	       : bytes >= 1024 ? IBV_MTU_1024
	       : bytes >= 512  ? IBV_MTU_512
			       : IBV_MTU_256;
}

static int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
		      size_t attr_size)
{
	const struct ibv_port_attr a = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = mtu_code(smx_setting_number(SMX_SET_MTU)),
		.gid_tbl_len = SMX_GID_TABLE_LEN,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = 1u << 30,
		.pkey_tbl_len = 1,
		.active_width = PORT_WIDTH_4X,
		.active_speed = PORT_SPEED_NDR,
		.phys_state = PORT_PHYS_LINK_UP,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = IBV_QPF_GRH_REQUIRED,
	};

	(void)context;
	if (port_num != 1)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "port %u, there is only port 1", port_num);
	if (attr_size > sizeof(a))
		memset((char *)attr + sizeof(a), 0, attr_size - sizeof(a));
	memcpy(attr, &a, attr_size < sizeof(a) ? attr_size : sizeof(a));
	return 0;
}

/* What programs built before rdma-core 16 call: their structure ends before port_cap_flags2. */
int ibv_query_port(struct ibv_context *context, uint8_t port_num,
		   struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port_num, (struct ibv_port_attr *)(void *)attr,
			  offsetof(struct ibv_port_attr, flags) + sizeof(uint8_t));
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	(void)context;
	if (port_num != 1 || index != 0) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				   "P_Key index %d of port %u, there is only index 0 of port 1",
				   index, port_num);
		return -1;
	}
	*pkey = htobe16(0xffff);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	(void)context;
	if (port_num == 1 && pkey == htobe16(0xffff))
		return 0;
	errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
			   "P_Key 0x%04x of port %u; port 1 has 0xffff", be16toh(pkey), port_num);
	return -1;
}

/* ---- GIDs ---- */

static int gid_index_check(uint32_t port_num, uint32_t index)
{
	if (port_num == 1 && index < SMX_GID_TABLE_LEN)
		return 0;
	return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
			  "GID index %u of port %u; port 1 has %u", index, port_num,
			  SMX_GID_TABLE_LEN);
}

int smx_gid_get(struct ibv_context *context, uint32_t index, union ibv_gid *gid, uint32_t *type,
		uint32_t *ifindex)
{
	const struct smx_gid *g = smx_gid_at(index);

	(void)context;
	if (!g)
		return ENODATA;
	*gid = g->gid;
	if (type)
		*type = IBV_GID_TYPE_ROCE_V2;
	if (ifindex)
		*ifindex = g->ifindex;
	return 0;
}

/* An empty entry is the zero GID here. */
int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	int err = gid_index_check(port_num, (uint32_t)index);

	if (err) {
		errno = err;
		return -1;
	}
	if (smx_gid_get(context, (uint32_t)index, gid, NULL, NULL))
		memset(gid, 0, sizeof(*gid));
	return 0;
}

static void copy_entry(void *to, uint32_t index, size_t size)
{
	const struct smx_gid *g = smx_gid_at(index);
	const struct ibv_gid_entry e = {
		.gid = g->gid,
		.gid_index = index,
		.port_num = 1,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
		.ndev_ifindex = g->ifindex,
	};

	memset(to, 0, size);
	memcpy(to, &e, size < sizeof(e) ? size : sizeof(e));
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	int err = gid_index_check(port_num, gid_index);

	(void)context;
	if (err)
		return err;
	if (flags)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "flags 0x%x of query_gid_ex", flags);
	if (!smx_gid_at(gid_index))
		return ENODATA;
	copy_entry(entry, gid_index, entry_size);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			     size_t max_entries, uint32_t flags, size_t entry_size)
{
	uint32_t count = smx_gid_count();

	(void)context;
	if (flags || max_entries < count)
		return -smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				   "query_gid_table with flags 0x%x and room for %zu of %u entries",
				   flags, max_entries, count);
	for (uint32_t i = 0; i < count; i++)
		copy_entry((char *)entries + i * entry_size, i, entry_size);
	return count;
}

/* ---- clock ---- */

/* The raw clock is in cycles, of a nanosecond each, whole in tv_nsec as libmlx5 gives it. */
static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	(void)context;
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "comp_mask 0x%x of query_rt_values", values->comp_mask);
	if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)
		values->raw_clock = (struct timespec){ .tv_nsec = (long)smx_clock_ns() };
	return 0;
}

void smx_ops_query(struct verbs_context *v)
{
	v->query_device_ex = query_device_ex;
	v->query_port = query_port;
	v->query_rt_values = query_rt_values;
	v->context.ops._compat_query_device = ibv_query_device;
	v->context.ops._compat_query_port = ibv_query_port;
}
