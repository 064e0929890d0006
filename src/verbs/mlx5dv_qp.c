/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* mlx5 direct verbs of queue pairs and address handles. */
#include <errno.h>

#include "base/bits.h"
#include "trace/state_name.h"
#include "verbs/ibv_qp_plan.h"

struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				struct mlx5dv_qp_init_attr *mlx5_attr)
{
	return smx_vqp_create(context, attr, mlx5_attr);
}

struct mlx5dv_qp_ex *mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *qp)
{
	return &smx_dv_qp_of(&qp->qp_base)->dv;
}

/* A hint for congestion control, of which there is none: nothing differs by it, so it can always be
 * granted. */
int mlx5dv_map_ah_to_qp(struct ibv_ah *ah, uint32_t qp_num)
{
	if (!ah || qp_num > 0xffffff)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
					  "mlx5dv_map_ah_to_qp: queue pair number 0x%x,"
					  " address handle %p",
					  qp_num, (void *)ah);
	return 0;
}

int mlx5dv_modify_qp_udp_sport(struct ibv_qp *qp, uint16_t udp_sport)
{
	struct smx_vqp *vqp = smx_vqp_of(qp);
	struct smx_where at = { .qpn = vqp->dv.qpn };
	int rc;

	if ((qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC) || qp->state != IBV_QPS_RTS)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_QP_FEATURE_STATE, &at,
					  "mlx5dv_modify_qp_udp_sport needs RC or UC"
					  " in RTS; qp_type %d, state %s",
					  (int)qp->qp_type, smx_state_name(qp->state));
	smx_engine_lock();
	rc = smx_cmd_set_udp_sport(smx_engine_dev(), vqp->dev, udp_sport);
	smx_engine_unlock();
	return rc ? errno = rc : 0;
}

int mlx5dv_dci_stream_id_reset(struct ibv_qp *qp, uint16_t stream_id)
{
	struct smx_vqp *vqp = smx_vqp_of(qp);
	struct smx_where at = { .qpn = vqp->dv.qpn };
	int rc;

	if (qp->state != IBV_QPS_RTS)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_QP_FEATURE_STATE, &at,
					  "mlx5dv_dci_stream_id_reset needs RTS,"
					  " the state is %s",
					  smx_state_name(qp->state));
	if (vqp->dev_type != SMX_QP_DCI)
		return errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, &at,
					  "mlx5dv_dci_stream_id_reset needs a DCI, qp_type is"
					  " %d",
					  (int)qp->qp_type);
	smx_engine_lock();
	rc = smx_cmd_reset_stream(smx_engine_dev(), vqp->dev, stream_id);
	smx_engine_unlock();
	return rc ? errno = rc : 0;
}

/* RETURN a negative errno, as this one function does. */
int mlx5dv_qp_cancel_posted_send_wrs(struct mlx5dv_qp_ex *mqp, uint64_t wr_id)
{
	struct smx_dv_qp *dv = container_of(mqp, struct smx_dv_qp, dv);
	struct smx_where at = { .qpn = dv->qpn };

	return -smx_refuse(smx_refusals(), SMX_CHECK_NOT_OFFERED, &at,
			   "mlx5dv_qp_cancel_posted_send_wrs, wr_id 0x%llx: it belongs to"
			   " signature pipelining",
			   (unsigned long long)wr_id);
}
