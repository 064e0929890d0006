/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* CQEs in words. */
#include <inttypes.h>

#include "base/bits.h"
#include "hw/cqe.h"
#include "hw/hw_cause.h"
#include "hw/hw_field.h"
#include "hw/hw_opcode.h"
#include "hw/hw_print.h"
#include "hw/tag.h"

const char *smx_cqe_op_name(uint8_t op)
{
	switch (op) {
	case SMX_CQE_REQ:
		return "REQ: a send work request is done";
	case SMX_CQE_RESP_WR_IMM:
		return "RESP_WR_IMM: an RDMA write with immediate came in";
	case SMX_CQE_RESP_SEND:
		return "RESP_SEND: a send came in";
	case SMX_CQE_RESP_SEND_IMM:
		return "RESP_SEND_IMM: a send with immediate came in";
	case SMX_CQE_RESP_SEND_INV:
		return "RESP_SEND_INV: a send with invalidate came in";
	case SMX_CQE_RESIZE_CQ:
		return "RESIZE_CQ: the queue goes on in its new buffer";
	case SMX_CQE_NO_PACKET:
		return "NO_PACKET";
	case SMX_CQE_SIG_ERR:
		return "SIG_ERR: a signature did not match";
	case SMX_CQE_REQ_ERR:
		return "REQ_ERR: a send work request failed";
	case SMX_CQE_RESP_ERR:
		return "RESP_ERR: a receive failed";
	case SMX_CQE_INVALID:
		return "INVALID: not written yet";
	}
	return NULL;
}

static void print_op_own(struct smx_text *t, uint8_t v)
{
	static const char *const format[4] = { "", ", inline data in bytes 0..31", ", inline data before the CQE",
					       ", compressed" };
	const char *name = smx_cqe_op_name(v >> 4);

	smx_field(t, 0x3f, "op_own", "0x%02x  %s%s%s, owner %u", v, name ? name : "of no public meaning",
		  format[bits_get(v, 3, 2)], v & SMX_CQE_SOLICITED ? ", solicited" : "", v & SMX_CQE_OWNER);
}

static void print_wqe_opcode(struct smx_text *t, size_t off, uint8_t opcode)
{
	const struct smx_op_info *op = smx_op_info(opcode);

	smx_field(t, off, "wqe_opcode", "0x%02x  %s", opcode, op ? op->name : "of no public meaning");
}

static void print_err_cqe(struct smx_text *t, const struct smx_err_cqe *c, uint8_t op)
{
	uint32_t opcode_qpn = from_be32(c->s_wqe_opcode_qpn);
	const struct smx_status *status = smx_status_of(c->syndrome);

	smx_field_bytes(t, 0x00, "reserved", c->rsvd0, sizeof(c->rsvd0));
	smx_field(t, 0x20, "srqn_uidx", "0x%08" PRIx32 "  SRQ number, or user index", from_be32(c->srqn));
	smx_field_bytes(t, 0x24, "reserved", c->rsvd1, sizeof(c->rsvd1));
	smx_field(t, 0x34, "hw_err_synd", "0x%02x", c->hw_err_synd);
	smx_field(t, 0x35, "hw_synd_type", "0x%02x", c->hw_synd_type);
	smx_field(t, 0x36, "vendor_err_synd", "0x%02x", c->vendor_err_synd);
	smx_field(t, 0x37, "syndrome", "0x%02x  %s", c->syndrome,
		  status->known ? status->text : "of no public meaning");
	if (op == SMX_CQE_REQ_ERR)
		print_wqe_opcode(t, 0x38, (uint8_t)(opcode_qpn >> 24));
	else
		smx_field(t, 0x38, "wqe_opcode", "0x%02" PRIx32 "  no opcode on a receive", opcode_qpn >> 24);
	smx_field(t, 0x39, "qpn", "0x%06" PRIx32, opcode_qpn & 0xffffff);
	smx_field(t, 0x3c, "wqe_counter", "%u", from_be16(c->wqe_counter));
	smx_field(t, 0x3e, "signature", "0x%02x", c->signature);
	print_op_own(t, c->op_own);
}

static void print_sig_err_cqe(struct smx_text *t, const uint8_t *c)
{
	static const char *const names[] = { "expected_trans_sig", "actual_trans_sig", "expected_ref_tag",
					     "actual_ref_tag" };

	smx_field_bytes(t, 0x00, "reserved", c, 16);
	for (size_t i = 0; i < SMX_COUNT(names); i++)
		smx_field(t, 0x10 + i * 4, names[i], "0x%08" PRIx32, from_be32(*(const be32 *)(c + 16 + i * 4)));
	smx_field(t, 0x20, "syndrome", "0x%04x", from_be16(*(const be16 *)(c + 32)));
	smx_field(t, 0x22, "sig_type", "0x%02x", c[34]);
	smx_field(t, 0x23, "domain", "0x%02x", c[35]);
	smx_field(t, 0x24, "mkey", "0x%08" PRIx32, from_be32(*(const be32 *)(c + 36)));
	smx_field(t, 0x28, "sig_err_offset", "%" PRIu64, from_be64(*(const be64 *)(c + 40)));
	smx_field_bytes(t, 0x30, "reserved", c + 48, 14);
	smx_field(t, 0x3e, "signature", "0x%02x", c[62]);
	print_op_own(t, c[63]);
}

static void print_imm(struct smx_text *t, uint8_t op, uint32_t v)
{
	const char *what = "";

	if (op == SMX_CQE_RESP_WR_IMM || op == SMX_CQE_RESP_SEND_IMM)
		what = "  immediate data";
	else if (op == SMX_CQE_RESP_SEND_INV)
		what = "  key that was invalidated";
	smx_field(t, 0x24, "imm_inval_pkey", "0x%08" PRIx32 "%s", v, what);
}

static const char *tag_op_name(uint8_t app_op)
{
	static const char *const names[] = {
		[SMX_CQE_TAG_CONSUMED] = "CONSUMED: a tag matched, its data comes later",
		[SMX_CQE_TAG_EXPECTED] = "EXPECTED: the data of a match has come",
		[SMX_CQE_TAG_UNEXPECTED] = "UNEXPECTED: a tag that matched nothing",
		[SMX_CQE_TAG_NO_TAG] = "NO_TAG",
		[SMX_CQE_TAG_APPEND] = "APPEND is done",
		[SMX_CQE_TAG_REMOVE] = "REMOVE is done",
		[SMX_CQE_TAG_NOP] = "NOP is done",
		[SMX_CQE_TAG_CONSUMED_SW_RNDV] = "CONSUMED_SW_RNDV: the headers come later",
		[SMX_CQE_TAG_CONSUMED_MSG] = "CONSUMED_MSG: a tag matched, its data has come",
		[SMX_CQE_TAG_CONSUMED_MSG_SW_RNDV] = "CONSUMED_MSG_SW_RNDV: software has to fetch the payload",
		[SMX_CQE_TAG_CANCELED] = "MSG_COMPLETION_CANCELED: the data of a match will not come",
	};

	return app_op < SMX_COUNT(names) && names[app_op] ? names[app_op] : "of no public meaning";
}

/* Tag matching puts the message's header, or the result of a list operation, before the rest. */
static void print_tag_head(struct smx_text *t, const struct smx_cqe64 *c)
{
	const struct smx_tag_cqe *done = (const void *)c;
	const struct smx_tmh *tmh = (const void *)c;

	if (c->app_op >= SMX_CQE_TAG_APPEND && c->app_op <= SMX_CQE_TAG_NOP) {
		smx_field(t, 0x00, "success", "0x%08" PRIx32, from_be32(done->success));
		smx_field(t, 0x04, "hw_phase_cnt", "%u", from_be16(done->hw_count));
		smx_field_bytes(t, 0x06, "reserved", done->rsvd, sizeof(done->rsvd));
		return;
	}
	smx_field(t, 0x00, "tmh.opcode", "0x%02x", tmh->op);
	smx_field_bytes(t, 0x01, "reserved", tmh->rsvd, sizeof(tmh->rsvd));
	smx_field(t, 0x04, "tmh.app_ctx", "0x%08" PRIx32, from_be32(tmh->app_ctx));
	smx_field(t, 0x08, "tmh.tag", "0x%016" PRIx64, from_be64(tmh->tag));
}

static void print_good_cqe(struct smx_text *t, const struct smx_cqe64 *c, uint8_t op)
{
	uint32_t rqpn = from_be32(c->flags_rqpn), sop = from_be32(c->sop_drop_qpn);
	bool tag = c->app == SMX_CQE_APP_TAG;

	if ((c->op_own & 0x0c) == SMX_CQE_INLINE_32) {
		smx_field_bytes(t, 0x00, "inline_data", c, 32);
	} else {
		if (tag) {
			print_tag_head(t, c);
		} else {
			smx_field_bytes(t, 0x00, "reserved", c->rsvd0, sizeof(c->rsvd0));
			smx_field(t, 0x02, "wqe_id", "%u", from_be16(c->wqe_id));
			smx_field_bytes(t, 0x04, "reserved", c->rsvd4, sizeof(c->rsvd4));
		}
		smx_field(t, 0x11, "ml_path", "0x%02x", c->ml_path);
		smx_field_bytes(t, 0x12, "reserved", c->rsvd18, sizeof(c->rsvd18));
		smx_field(t, 0x16, "slid", "%u", from_be16(c->slid));
		smx_field(t, 0x18, "flags_rqpn", "0x%08" PRIx32 "  source qpn 0x%06" PRIx32
			  ", sl or packet type %" PRIu32 "%s%s", rqpn, rqpn & 0xffffff, bits_get(rqpn, 27, 24),
			  rqpn & (1u << 28) ? ", GRH in data" : "", rqpn & (1u << 29) ? ", GRH in CQE" : "");
		smx_field(t, 0x1c, "hds_ip_ext", "0x%02x", c->hds_ip_ext);
		smx_field(t, 0x1d, "l4_hdr_type_etc", "0x%02x", c->l4_hdr_type_etc);
		smx_field(t, 0x1e, "vlan_info", "0x%04x", from_be16(c->vlan_info));
	}
	smx_field(t, 0x20, "srqn_uidx", "0x%08" PRIx32 "  SRQ number, or user index", from_be32(c->srqn_uidx));
	print_imm(t, op, from_be32(c->imm_inval_pkey));
	smx_field(t, 0x28, "app", "0x%02x%s", c->app, tag ? "  tag matching" : "");
	smx_field(t, 0x29, "app_op", "0x%02x%s%s", c->app_op, tag ? "  " : "", tag ? tag_op_name(c->app_op) : "");
	smx_field(t, 0x2a, "app_info", "0x%04x", from_be16(c->app_info));
	smx_field(t, 0x2c, "byte_cnt", "%" PRIu32, from_be32(c->byte_cnt));
	smx_field(t, 0x30, "timestamp", "0x%016" PRIx64, from_be64(c->timestamp));
	if (op == SMX_CQE_REQ)
		print_wqe_opcode(t, 0x38, (uint8_t)(sop >> 24));
	else
		smx_field(t, 0x38, "sop_drop", "0x%02" PRIx32, sop >> 24);
	smx_field(t, 0x39, "qpn", "0x%06" PRIx32, sop & 0xffffff);
	smx_field(t, 0x3c, "wqe_counter", "%u", from_be16(c->wqe_counter));
	smx_field(t, 0x3e, "signature", "0x%02x", c->signature);
	print_op_own(t, c->op_own);
}

void smx_print_cqe(struct smx_text *t, const void *cqe)
{
	const struct smx_cqe64 *c = cqe;
	uint8_t op = c->op_own >> 4;

	if (op == SMX_CQE_REQ_ERR || op == SMX_CQE_RESP_ERR)
		print_err_cqe(t, cqe, op);
	else if (op == SMX_CQE_SIG_ERR)
		print_sig_err_cqe(t, cqe);
	else
		print_good_cqe(t, c, op);
}
