/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What libibverbs has and this device does not offer: each fails and says its name. */
#include <errno.h>

#include "verbs/ibv_device.h"
#include "verbs/objects.h"

/* Of newer headers than the installed one. */
struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_dmah;

int smx_not_offered(const char *function)
{
	errno = smx_refuse(smx_refusals(), SMX_CHECK_NOT_OFFERED, NULL, "%s", function);
	return EOPNOTSUPP;
}

static void *no_object(const char *function)
{
	smx_not_offered(function);
	return NULL;
}

/* ---- operations of a context ---- */

static struct ibv_flow *create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	(void)qp, (void)attr;
	return no_object("ibv_create_flow");
}

static int destroy_flow(struct ibv_flow *flow)
{
	(void)flow;
	return smx_not_offered("ibv_destroy_flow");
}

static struct ibv_flow_action *create_flow_action_esp(struct ibv_context *context,
						      struct ibv_flow_action_esp_attr *attr)
{
	(void)context, (void)attr;
	return no_object("ibv_create_flow_action_esp");
}

static int modify_flow_action_esp(struct ibv_flow_action *action,
				  struct ibv_flow_action_esp_attr *attr)
{
	(void)action, (void)attr;
	return smx_not_offered("ibv_modify_flow_action_esp");
}

static int destroy_flow_action(struct ibv_flow_action *action)
{
	(void)action;
	return smx_not_offered("ibv_destroy_flow_action");
}

static struct ibv_counters *create_counters(struct ibv_context *context,
					    struct ibv_counters_init_attr *attr)
{
	(void)context, (void)attr;
	return no_object("ibv_create_counters");
}

static int destroy_counters(struct ibv_counters *counters)
{
	(void)counters;
	return smx_not_offered("ibv_destroy_counters");
}

static int attach_counters_point_flow(struct ibv_counters *counters,
				      struct ibv_counter_attach_attr *attr, struct ibv_flow *flow)
{
	(void)counters, (void)attr, (void)flow;
	return smx_not_offered("ibv_attach_counters_point_flow");
}

static int read_counters(struct ibv_counters *counters, uint64_t *value, uint32_t count,
			 uint32_t flags)
{
	(void)counters, (void)value, (void)count, (void)flags;
	return smx_not_offered("ibv_read_counters");
}

static struct ibv_wq *create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	(void)context, (void)attr;
	return no_object("ibv_create_wq");
}

static int modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr)
{
	(void)wq, (void)attr;
	return smx_not_offered("ibv_modify_wq");
}

static int destroy_wq(struct ibv_wq *wq)
{
	(void)wq;
	return smx_not_offered("ibv_destroy_wq");
}

static struct ibv_rwq_ind_table *create_rwq_ind_table(struct ibv_context *context,
						      struct ibv_rwq_ind_table_init_attr *attr)
{
	(void)context, (void)attr;
	return no_object("ibv_create_rwq_ind_table");
}

static int destroy_rwq_ind_table(struct ibv_rwq_ind_table *table)
{
	(void)table;
	return smx_not_offered("ibv_destroy_rwq_ind_table");
}

void smx_ops_not_offered(struct verbs_context *v)
{
	v->ibv_create_flow = create_flow;
	v->ibv_destroy_flow = destroy_flow;
	v->create_flow_action_esp = create_flow_action_esp;
	v->modify_flow_action_esp = modify_flow_action_esp;
	v->destroy_flow_action = destroy_flow_action;
	v->create_counters = create_counters;
	v->destroy_counters = destroy_counters;
	v->attach_counters_point_flow = attach_counters_point_flow;
	v->read_counters = read_counters;
	v->create_wq = create_wq;
	v->modify_wq = modify_wq;
	v->destroy_wq = destroy_wq;
	v->create_rwq_ind_table = create_rwq_ind_table;
	v->destroy_rwq_ind_table = destroy_rwq_ind_table;
}

/* ---- exported functions, rdma-core 57 to 65 ---- */

struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, void *attr)
{
	(void)context, (void)attr;
	return no_object("ibv_alloc_dmah");
}

int ibv_dealloc_dmah(struct ibv_dmah *dmah)
{
	(void)dmah;
	return smx_not_offered("ibv_dealloc_dmah");
}

struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, void *attr)
{
	(void)pd, (void)attr;
	return no_object("ibv_reg_mr_ex");
}

/* RETURN a descriptor, or -1. */
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
	(void)dm;
	smx_not_offered("ibv_dm_export_dmabuf_fd");
	return -1;
}

int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *speed)
{
	(void)context, (void)port_num, (void)speed;
	return smx_not_offered("ibv_query_port_speed");
}

void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf)
{
	(void)pd, (void)size, (void)buf;
	return no_object("ibv_alloc_buf");
}

void ibv_free_buf(struct ibv_buf *buf)
{
	(void)buf;
	smx_not_offered("ibv_free_buf");
}

struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access)
{
	(void)pd, (void)buf, (void)addr, (void)length, (void)access;
	return no_object("ibv_reg_buf_mr");
}

int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
	(void)buf;
	smx_not_offered("ibv_export_buf_dmabuf_fd");
	return -1;
}

int _ibv_query_comp_cntr_caps(struct ibv_context *context, void *caps, size_t caps_len)
{
	(void)context, (void)caps, (void)caps_len;
	return smx_not_offered("ibv_query_comp_cntr_caps");
}

struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, void *attr)
{
	(void)context, (void)attr;
	return no_object("ibv_create_comp_cntr");
}

int ibv_destroy_comp_cntr(struct ibv_comp_cntr *cntr)
{
	(void)cntr;
	return smx_not_offered("ibv_destroy_comp_cntr");
}

int ibv_set_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t value)
{
	(void)cntr, (void)value;
	return smx_not_offered("ibv_set_comp_cntr");
}

int ibv_set_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t value)
{
	(void)cntr, (void)value;
	return smx_not_offered("ibv_set_err_comp_cntr");
}

int ibv_inc_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t amount)
{
	(void)cntr, (void)amount;
	return smx_not_offered("ibv_inc_comp_cntr");
}

int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t amount)
{
	(void)cntr, (void)amount;
	return smx_not_offered("ibv_inc_err_comp_cntr");
}

int ibv_read_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t *value)
{
	(void)cntr, (void)value;
	return smx_not_offered("ibv_read_comp_cntr");
}

int ibv_read_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t *value)
{
	(void)cntr, (void)value;
	return smx_not_offered("ibv_read_err_comp_cntr");
}

int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *cntr, void *attr)
{
	(void)qp, (void)cntr, (void)attr;
	return smx_not_offered("ibv_qp_attach_comp_cntr");
}

/* ---- exported functions that have had nothing to do for long ---- */

/* Drivers loaded from outside; there is one device and it is in here. */
void ibv_register_driver(const char *name, void *init_func)
{
	(void)name, (void)init_func;
}

int ibv_dontfork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}
