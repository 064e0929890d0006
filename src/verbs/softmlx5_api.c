/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* include/softmlx5.h: reading the last refusals. */
#include "softmlx5.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "verbs/objects.h"
#include "verbs/refusal_sink.h"

static uint64_t first_seq(struct ibv_context *context)
{
	return context ? smx_ctx_of(context)->refusals_from + 1 : 1;
}

int softmlx5_last_refusal(struct ibv_context *context, unsigned int nth,
			  struct softmlx5_refusal *out)
{
	const struct smx_check_info *info;
	struct smx_refusal r;

	if (!smx_refusal_get(smx_refusals(), nth, &r) || r.seq < first_seq(context))
		return ENOENT;
	info = smx_check_info(r.check);
	*out = (struct softmlx5_refusal){
		.seq = r.seq,
		.check = r.check,
		.err = info->err,
		.status = info->err ? 0 : smx_wc_status(info->syndrome),
		.syndrome = info->syndrome,
		.vendor_err = info->vendor,
		.hw_err = info->hw,
		.is_recv = r.where.is_recv,
		.qp_num = r.where.qpn,
		.peer_qp_num = r.where.peer_qpn,
		.wqe_index = r.where.wqe_index,
		.opcode = r.where.opcode,
		.wr_id = r.wr_id,
		.name = info->name,
		.rule = info->text,
	};
	_Static_assert(sizeof(out->values) >= sizeof(r.text), "values hold a refusal's text");
	memcpy(out->values, r.text, sizeof(r.text));
	return 0;
}

uint64_t softmlx5_refusal_count(struct ibv_context *context)
{
	return __atomic_load_n(&smx_refusals()->count, __ATOMIC_RELAXED) - (first_seq(context) - 1);
}

const char *softmlx5_check_name(uint32_t check)
{
	return check < SMX_CHECK_COUNT ? smx_check_info(check)->name : NULL;
}
