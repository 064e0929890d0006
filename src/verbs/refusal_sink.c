/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The line on stderr. By default the first failed work request of each queue pair is one, with
 * everything that is known about it, and each rule that a call broke is one, once.
 * SOFTMLX5_LOG=info prints every refusal. */
#include "verbs/refusal_sink.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "hw/cqe.h"
#include "hw/hw_opcode.h"
#include "verbs/objects.h"

enum { NOT_OFFERED_KEPT = 64 };

enum ibv_wc_status smx_wc_status(uint8_t syndrome)
{
	switch (syndrome) {
	case SMX_SYND_NONE:
		return IBV_WC_SUCCESS;
	case SMX_SYND_LOCAL_LENGTH:
		return IBV_WC_LOC_LEN_ERR;
	case SMX_SYND_LOCAL_QP_OP:
		return IBV_WC_LOC_QP_OP_ERR;
	case SMX_SYND_LOCAL_PROT:
		return IBV_WC_LOC_PROT_ERR;
	case SMX_SYND_WR_FLUSH:
		return IBV_WC_WR_FLUSH_ERR;
	case SMX_SYND_MW_BIND:
		return IBV_WC_MW_BIND_ERR;
	case SMX_SYND_BAD_RESP:
		return IBV_WC_BAD_RESP_ERR;
	case SMX_SYND_LOCAL_ACCESS:
		return IBV_WC_LOC_ACCESS_ERR;
	case SMX_SYND_REMOTE_INVAL_REQ:
		return IBV_WC_REM_INV_REQ_ERR;
	case SMX_SYND_REMOTE_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	case SMX_SYND_REMOTE_OP:
		return IBV_WC_REM_OP_ERR;
	case SMX_SYND_TRANSPORT_RETRY:
		return IBV_WC_RETRY_EXC_ERR;
	case SMX_SYND_RNR_RETRY:
		return IBV_WC_RNR_RETRY_EXC_ERR;
	case SMX_SYND_REMOTE_ABORTED:
		return IBV_WC_REM_ABORT_ERR;
	default:
		return IBV_WC_GENERAL_ERR;
	}
}

static const char *type_name(const struct smx_vqp *vqp)
{
	static const char *const names[] = {
		[SMX_DV_RC] = "RC",
		[SMX_DV_UC] = "UC",
		[SMX_DV_UD] = "UD",
		[SMX_DV_XRC_INI] = "XRC send",
		[SMX_DV_XRC_TGT] = "XRC receive",
		[SMX_DV_DCI] = "DCI",
		[SMX_DV_DCT] = "DCT",
	};

	return vqp ? names[vqp->dv.kind] : "unknown type";
}

/* wr_id of the request, where the driver remembers it: not of queues that a program runs. */
static bool find_wr_id(const struct smx_vqp *vqp, const struct smx_where *where, uint64_t *wr_id)
{
	const struct smx_dv_qp *dv = &vqp->dv;
	const struct smx_dv_srq *srq = dv->srq;

	if (!where->is_recv && dv->sq.slot)
		*wr_id = dv->sq.slot[where->wqe_index & (dv->sq.bb_count - 1)].wr_id;
	else if (where->is_recv && srq && where->wqe_index < srq->wqe_count)
		*wr_id = srq->wr_id[where->wqe_index];
	else if (where->is_recv && !srq && dv->rq.wr_id)
		*wr_id = dv->rq.wr_id[where->wqe_index & (dv->rq.wqe_count - 1)];
	else
		return false;
	return true;
}

/* "RDMA_WRITE to qp 0x000048", "receive" */
static void describe_op(const struct smx_where *where, char *buf, size_t len)
{
	char number[16];
	int n = snprintf(buf, len, "%s",
			 where->is_recv ? "receive" : smx_op_name(where->opcode, number));

	if (where->peer_qpn)
		snprintf(buf + n, len - (size_t)n, " %s qp 0x%06x", where->is_recv ? "from" : "to",
			 where->peer_qpn);
}

/* The values, without a full stop: the line gives its own. */
static int text_len(const struct smx_refusal *r)
{
	size_t len = strlen(r->text);

	return (int)(len && r->text[len - 1] == '.' ? len - 1 : len);
}

static void print_failure(enum smx_log_level level, const struct smx_refusal *r,
			  const struct smx_vqp *vqp, bool has_wr_id)
{
	const struct smx_check_info *info = smx_check_info(r->check);
	char op[64], wr_id[32] = "", hw[16] = "";

	describe_op(&r->where, op, sizeof(op));
	if (has_wr_id)
		snprintf(wr_id, sizeof(wr_id), " wr_id 0x%llx", (unsigned long long)r->wr_id);
	if (info->hw)
		snprintf(hw, sizeof(hw), " hw 0x%02x", info->hw);
	smx_log(level,
		"qp 0x%06x (%s) WQE %u%s %s failed: %s (syndrome 0x%02x vendor 0x%02x%s): %.*s. %s",
		r->where.qpn, type_name(vqp), r->where.wqe_index, wr_id, op,
		ibv_wc_status_str(smx_wc_status(info->syndrome)), info->syndrome, info->vendor, hw,
		text_len(r), r->text, info->text);
}

static void failed_request(struct smx_refusal *r)
{
	struct smx_vqp *vqp = r->where.cookie;
	bool flush = r->check == SMX_CHECK_FLUSH_CURRENT || r->check == SMX_CHECK_FLUSH_BEHIND;
	bool has_wr_id = vqp && find_wr_id(vqp, &r->where, &r->wr_id);
	bool first = !vqp;

	if (vqp && flush)
		__atomic_fetch_add(&vqp->flushes, 1, __ATOMIC_RELAXED);
	else if (vqp)
		first = !__atomic_fetch_add(&vqp->failures, 1, __ATOMIC_RELAXED);
	print_failure(first && !flush ? SMX_LOG_WARN : SMX_LOG_INFO, r, vqp, has_wr_id);
}

/* RETURN whether this rule is broken for the first time; of what is not offered, this thing. */
static bool first_time(const struct smx_refusal *r)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static char not_offered[NOT_OFFERED_KEPT][sizeof(r->text)];
	static unsigned int not_offered_count;
	static bool seen[SMX_CHECK_COUNT];
	bool first;

	pthread_mutex_lock(&lock);
	if (r->check == SMX_CHECK_NOT_OFFERED) {
		first = not_offered_count < NOT_OFFERED_KEPT;
		for (unsigned int i = 0; first && i < not_offered_count; i++)
			first = strcmp(not_offered[i], r->text) != 0;
		if (first)
			memcpy(not_offered[not_offered_count++], r->text, sizeof(r->text));
	} else {
		first = !seen[r->check];
		seen[r->check] = true;
	}
	pthread_mutex_unlock(&lock);
	return first;
}

static void refused_call(const struct smx_refusal *r)
{
	const struct smx_check_info *info = smx_check_info(r->check);
	/* Opening with DevX is how programs ask whether there is any; most do without. */
	bool fault = r->check != SMX_CHECK_DEVX && first_time(r);
	enum smx_log_level level = fault ? SMX_LOG_WARN : SMX_LOG_INFO;
	const char *err = strerrorname_np(info->err);
	char qp[32] = "";

	if (!smx_log_on(level))
		return;
	if (r->where.qpn)
		snprintf(qp, sizeof(qp), "qp 0x%06x: ", r->where.qpn);
	if (r->check == SMX_CHECK_NOT_OFFERED)
		smx_log(level, "%snot offered (%s): %s", qp, err, r->text);
	else
		smx_log(level, "%srefused (%s): %.*s. %s", qp, err, text_len(r), r->text,
			info->text);
}

void smx_refusal_sink(struct smx_refusal *r, void *arg)
{
	int saved_errno = errno;

	(void)arg;
	if (smx_check_info(r->check)->err)
		refused_call(r);
	else
		failed_request(r);
	errno = saved_errno;
}
