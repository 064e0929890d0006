/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: every field of a WQE and a CQE is printed under its name, at its offset, with its value; bytes of
 * no meaning are shown; a WQE that is cut short or claims too much is said to be so.
 * Method: WQEs built field by field, looked for line by line; then every length of every WQE, in a buffer
 * of exactly that length, for a sanitizer to watch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bits.h"
#include "base/prng.h"
#include "hw/cqe.h"
#include "hw/hw_opcode.h"
#include "hw/hw_print.h"
#include "hw/tag.h"
#include "hw/wqe.h"

static char out[65536];

static struct smx_wqe_ctrl ctrl(uint8_t op, uint8_t ds, uint8_t opmod, uint32_t imm)
{
	return (struct smx_wqe_ctrl){
		.opmod_idx_opcode = to_be32(bits_put(opmod, 31, 24) | bits_put(0x0102, 23, 8) | op),
		.qpn_ds = to_be32(bits_put(0x123456, 31, 8) | ds),
		.signature = 0x5a,
		.dci_stream = to_be16(7),
		.fm_ce_se = SMX_CTRL_FENCE | SMX_CTRL_CQ_UPDATE | SMX_CTRL_SOLICITED,
		.imm = to_be32(imm),
	};
}

static void print_send(const void *wqe, size_t len, enum smx_wqe_kind kind)
{
	struct smx_text t = smx_text_in(out, sizeof(out));

	smx_print_send_wqe(&t, wqe, len, kind);
	assert_false(t.cut);
}

/* Fails unless there is a line "    off  name value", blanks between them not counted. */
static void has_field(unsigned int off, const char *name, const char *value)
{
	char want[200];

	snprintf(want, sizeof(want), "    %03x  %-18s %s", off, name, value);
	if (!strstr(out, want))
		fail_msg("no line `%s' in\n%s", want, out);
}

static void control_fields_are_all_there(void **state)
{
	struct smx_wqe_ctrl c = ctrl(SMX_OP_SEND_IMM, 1, 3, 0xcafe);

	(void)state;
	print_send(&c, sizeof(c), SMX_WQE_AUTO);
	has_field(0x0, "opmod", "0x03\n");
	has_field(0x1, "wqe_index", "258\n");
	has_field(0x3, "opcode", "0x0b  SEND_IMM\n");
	has_field(0x4, "qpn", "0x123456\n");
	has_field(0x7, "ds", "1  segments");
	has_field(0x8, "signature", "0x5a\n");
	has_field(0x9, "dci_stream", "7\n");
	has_field(0xb, "fm_ce_se", "0x8a  CQE always, fence: waits for RDMA reads and atomics before, solicited\n");
	has_field(0xc, "imm", "0x0000cafe  immediate data\n");
}

static void rdma_write_on_rc(void **state)
{
	struct { struct smx_wqe_ctrl c; struct smx_wqe_raddr r; struct smx_wqe_data d[2]; } w = {
		ctrl(SMX_OP_RDMA_WRITE, 4, 0, 0), { to_be64(0x7f0011223344), to_be32(0x99aa), to_be32(0) },
		{ { to_be32(4096), to_be32(0x11), to_be64(0x1000) }, { to_be32(1), to_be32(0x22), to_be64(0x2000) } },
	};

	(void)state;
	print_send(&w, sizeof(w), SMX_WQE_AUTO);
	has_field(0xc, "imm", "0x00000000  not used by this operation\n");
	has_field(0x10, "remote_va", "0x00007f0011223344\n");
	has_field(0x18, "rkey", "0x000099aa\n");
	has_field(0x20, "byte_count", "4096\n");
	has_field(0x24, "lkey", "0x00000011\n");
	has_field(0x30, "byte_count", "1\n");
	has_field(0x38, "va", "0x0000000000002000\n");
	assert_null(strstr(out, "address vector"));
}

static struct smx_wqe_av some_av(void)
{
	return (struct smx_wqe_av){
		.dqp_dct = to_be32(SMX_AV_EXTENDED | 0xabcdef),
		.stat_rate_sl = 0x53,
		.fl_mlid = 1,
		.rlid = to_be16(49152),
		.rmac = { 2, 0x42, 0, 0x11, 0x22, 0x33 },
		.tclass = 9,
		.hop_limit = 64,
		.grh_gid_fl = to_be32(bits_put(1, 30, 30) | bits_put(5, 27, 20) | 0x12345),
		.rgid = { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1 },
	};
}

static void address_vectors_of_dc_and_ud(void **state)
{
	struct { struct smx_wqe_ctrl c; struct smx_wqe_av av; struct smx_wqe_raddr r; } dc = {
		ctrl(SMX_OP_RDMA_READ, 5, 0, 0), some_av(), { to_be64(1), to_be32(2), to_be32(0) } };
	struct { struct smx_wqe_ctrl c; struct smx_wqe_av av; struct smx_wqe_data d; } ud = {
		ctrl(SMX_OP_SEND, 5, 0, 0), some_av(), { to_be32(8), to_be32(3), to_be64(4) } };

	(void)state;
	dc.av.dc_key = to_be64(0x1122334455667788);
	print_send(&dc, sizeof(dc), SMX_WQE_AUTO);
	assert_non_null(strstr(out, "taken for DC"));
	has_field(0x10, "dc_key", "0x1122334455667788\n");
	has_field(0x18, "dctn", "0xabcdef  extended\n");
	has_field(0x1c, "static_rate", "5\n");
	has_field(0x1c, "sl", "3\n");
	has_field(0x1e, "rlid_udp_sport", "49152\n");
	has_field(0x24, "rmac", "02:42:00:11:22:33\n");
	has_field(0x2a, "traffic_class", "9\n");
	has_field(0x2b, "hop_limit", "64\n");
	has_field(0x2c, "sgid_index", "5\n");
	has_field(0x2d, "flow_label", "0x12345\n");
	has_field(0x30, "rgid", "00 00 00 00 00 00 00 00 00 00 ff ff 0a 00 00 01\n");
	has_field(0x40, "remote_va", "0x0000000000000001\n");

	ud.av.qkey = to_be32(0x11111111);
	print_send(&ud, sizeof(ud), SMX_WQE_AUTO);
	assert_non_null(strstr(out, "taken for UD"));
	has_field(0x10, "qkey", "0x11111111\n");
	has_field(0x18, "remote_qpn", "0xabcdef  extended\n");
	has_field(0x40, "byte_count", "8\n");
	/* What was asked for beats what the bytes look like. */
	print_send(&ud, sizeof(ud), SMX_WQE_RC);
	assert_null(strstr(out, "address vector"));
	print_send(&ud, sizeof(ud), SMX_WQE_XRC);
	has_field(0x10, "srqn", "0x11111111\n");
}

static void atomics(void **state)
{
	struct { struct smx_wqe_ctrl c; struct smx_wqe_raddr r; struct smx_wqe_atomic a; struct smx_wqe_data d; } cs = {
		ctrl(SMX_OP_ATOMIC_CS, 4, 0, 0), { to_be64(8), to_be32(2), to_be32(0) },
		{ to_be64(0x55), to_be64(0x66) }, { to_be32(8), to_be32(3), to_be64(4) } };

	(void)state;
	print_send(&cs, sizeof(cs), SMX_WQE_AUTO);
	has_field(0x20, "swap", "0x0000000000000055\n");
	has_field(0x28, "compare", "0x0000000000000066\n");
	has_field(0x30, "byte_count", "8\n");
	cs.c = ctrl(SMX_OP_ATOMIC_FA, 4, 0, 0);
	print_send(&cs, sizeof(cs), SMX_WQE_AUTO);
	has_field(0x20, "add", "0x0000000000000055\n");
	has_field(0x28, "compare", "0x0000000000000066  not used by this operation\n");
	cs.c = ctrl(SMX_OP_ATOMIC_MASKED_FA, 4, 8, 0);
	print_send(&cs, sizeof(cs), SMX_WQE_AUTO);
	has_field(0x28, "field_boundary", "0x0000000000000066\n");
	cs.c = ctrl(SMX_OP_ATOMIC_MASKED_CS, 4, 8, 0);
	print_send(&cs, sizeof(cs), SMX_WQE_AUTO);
	has_field(0x30, "swap_mask", "0x0000000800000003\n");
}

static void inline_data_and_inline_that_claims_too_much(void **state)
{
	struct { struct smx_wqe_ctrl c; uint8_t seg[32]; } w = { ctrl(SMX_OP_SEND, 3, 0, 0), { 0x80, 0, 0, 18 } };

	(void)state;
	memcpy(w.seg + 4, "abcdefghijklmnopqr", 18);
	print_send(&w, sizeof(w), SMX_WQE_AUTO);
	has_field(0x10, "byte_count", "18  bit 31 set");
	assert_non_null(strstr(out, "00: 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70\n"));
	assert_non_null(strstr(out, "10: 71 72\n"));
	w.seg[3] = 29;
	print_send(&w, sizeof(w), SMX_WQE_AUTO);
	has_field(0x14, "too long", "only 28 bytes are left\n");
}

struct umr {
	struct smx_wqe_ctrl c;
	struct smx_wqe_umr_ctrl u;
	struct smx_wqe_mkey_ctx m;
	union {
		struct smx_wqe_klm klm[4];
		struct { struct smx_wqe_repeat_block b; struct smx_wqe_repeat_ent e[3]; } r;
	};
};
SMX_SIZE(struct umr, 192);

static struct umr some_umr(void)
{
	return (struct umr){
		.c = ctrl(SMX_OP_UMR, 12, 0, 0x4200),
		.u = { .flags = SMX_UMR_INLINE | SMX_UMR_CHECK_FREE, .klm_octowords = to_be16(4),
		       .mkey_mask = to_be64(SMX_UMR_MASK_LEN | SMX_UMR_MASK_FREE | 1ull << 40) },
		.m = { .free = 0, .access = SMX_MKC_LOCAL_WRITE | SMX_MKC_REMOTE_READ,
		       .qpn_mkey = to_be32(0xffffff42), .start_addr = to_be64(0x10), .len = to_be64(5000000000) },
	};
}

static void umr_with_a_list(void **state)
{
	struct umr w = some_umr();

	(void)state;
	w.klm[0] = (struct smx_wqe_klm){ to_be32(100), to_be32(0x77), to_be64(0x1000) };
	print_send(&w, sizeof(w), SMX_WQE_AUTO);
	has_field(0x0c, "imm", "0x00004200  mkey to change\n");
	has_field(0x10, "flags", "0xa0  INLINE  CHECK_FREE\n");
	has_field(0x14, "klm_octowords", "4\n");
	has_field(0x18, "mkey_mask", "0x0000010020000001  LEN  FREE  unknown bits 0x10000000000\n");
	has_field(0x42, "access", "0x18  LOCAL_WRITE  REMOTE_READ\n");
	has_field(0x44, "qpn", "0xffffff  any queue pair\n");
	has_field(0x47, "mkey_tag", "0x42\n");
	has_field(0x58, "len", "5000000000\n");
	has_field(0x80, "byte_count", "100\n");
	has_field(0x84, "mkey", "0x00000077\n");
	assert_non_null(strstr(out, "  090  48 bytes of padding, all zero\n"));
}

static void umr_with_a_strided_layout(void **state)
{
	struct umr w = some_umr();

	(void)state;
	w.r.b = (struct smx_wqe_repeat_block){ to_be32(120), to_be32(SMX_REPEAT_OP), to_be32(10), to_be16(0),
					       to_be16(2) };
	w.r.e[0] = (struct smx_wqe_repeat_ent){ to_be16(256), to_be16(64), to_be32(0x77), to_be64(0x1000) };
	w.r.e[1] = (struct smx_wqe_repeat_ent){ to_be16(300), to_be16(56), to_be32(0x78), to_be64(0x2000) };
	print_send(&w, sizeof(w), SMX_WQE_AUTO);
	has_field(0x88, "repeat_count", "10\n");
	has_field(0x8e, "num_ent", "2\n");
	has_field(0x90, "stride", "256\n");
	has_field(0xa2, "byte_count", "56\n");
	has_field(0xa4, "mkey", "0x00000078\n");
	/* A header that announces more than the WQE holds. */
	w.r.b.num_ent = to_be16(4);
	w.r.e[2] = w.r.e[1];
	print_send(&w, sizeof(w), SMX_WQE_AUTO);
	assert_non_null(strstr(out, "1 more strided entries are announced than follow"));
	w.u.klm_octowords = to_be16(8);
	print_send(&w, sizeof(w), SMX_WQE_AUTO);
	assert_non_null(strstr(out, "4 more translation entries are announced, the WQE ends"));
}

static void memcpy_names_source_and_destination(void **state)
{
	struct { struct smx_wqe_ctrl c; struct smx_wqe_mmo_meta m; struct smx_wqe_data d[2]; } w = {
		ctrl(SMX_OP_MMO, 4, SMX_MMO_OPMOD_DMA, 0), { to_be32(0), to_be32(0x55), to_be64(0x40) },
		{ { to_be32(0), to_be32(1), to_be64(2) }, { to_be32(0), to_be32(3), to_be64(4) } } };

	(void)state;
	print_send(&w, sizeof(w), SMX_WQE_AUTO);
	has_field(0x14, "local_key", "0x00000055\n");
	assert_non_null(strstr(out, "  020  source\n"));
	assert_non_null(strstr(out, "  030  destination\n"));
	has_field(0x20, "byte_count", "0  means 2147483648\n");
}

static void tag_lists_and_their_completions(void **state)
{
	struct { struct smx_wqe_ctrl c; struct smx_wqe_tag t; struct smx_wqe_data d; } w = {
		ctrl(SMX_OP_TAG_MATCHING, 4, 0, 0),
		{ .op = SMX_TAG_OP_APPEND << 4, .flags = SMX_TAG_CQE, .index = to_be16(12), .sw_count = to_be16(3),
		  .tag = to_be64(0x77), .mask = to_be64(0xff) },
		{ to_be32(64), to_be32(0x100), to_be64(4) } };
	struct smx_cqe64 cqe = { .app = SMX_CQE_APP_TAG, .app_op = SMX_CQE_TAG_REMOVE,
				 .op_own = SMX_CQE_NO_PACKET << 4 };
	const struct smx_tag_cqe done = { .success = to_be32(SMX_TAG_SUCCESS), .hw_count = to_be16(9) };
	const struct smx_tmh tmh = { .op = SMX_TMH_EAGER, .tag = to_be64(0x77) };
	struct smx_text t = smx_text_in(out, sizeof(out));

	(void)state;
	print_send(&w, sizeof(w), SMX_WQE_AUTO);
	has_field(0x10, "opcode", "0x10  APPEND\n");
	has_field(0x12, "index", "12  of the next append\n");
	has_field(0x20, "append_tag", "0x0000000000000077\n");
	has_field(0x30, "byte_count", "64\n");
	memcpy(&cqe, &done, sizeof(done));
	smx_print_cqe(&t, &cqe);
	has_field(0x00, "success", "0x80000000\n");
	has_field(0x04, "hw_phase_cnt", "9\n");
	has_field(0x29, "app_op", "0x06  REMOVE is done\n");
	memcpy(&cqe, &tmh, sizeof(tmh));
	cqe.app_op = SMX_CQE_TAG_CONSUMED_MSG;
	t = smx_text_in(out, sizeof(out));
	smx_print_cqe(&t, &cqe);
	has_field(0x08, "tmh.tag", "0x0000000000000077\n");
}

static void unknown_bytes_are_shown_not_guessed(void **state)
{
	struct { struct smx_wqe_ctrl c; uint8_t rest[16]; } w = { ctrl(0x3f, 2, 0, 0), "\x01\x02\x03" };

	(void)state;
	print_send(&w, sizeof(w), SMX_WQE_AUTO);
	has_field(0x3, "opcode", "0x3f  of no public meaning\n");
	assert_non_null(strstr(out, "bytes that are not decoded, 16 bytes"));
	assert_non_null(strstr(out, "00: 01 02 03 00"));
}

static void a_wqe_that_is_cut_short_is_said_to_be(void **state)
{
	struct smx_wqe_ctrl c = ctrl(SMX_OP_RDMA_WRITE, 3, 0, 0);

	(void)state;
	print_send(&c, sizeof(c), SMX_WQE_AUTO);
	assert_non_null(strstr(out, "ds claims 48 bytes, only 16 are here"));
	assert_non_null(strstr(out, "remote address: needs 16 bytes, 0 are left"));
	print_send(&c, 15, SMX_WQE_AUTO);
	assert_non_null(strstr(out, "at least 16 bytes, there are 15"));
	c = ctrl(SMX_OP_RDMA_WRITE, 0, 0, 0);
	print_send(&c, sizeof(c), SMX_WQE_AUTO);
	assert_non_null(strstr(out, "ds is 0"));
}

static void receives_end_at_the_mark(void **state)
{
	struct { struct smx_wqe_srq_next n; struct smx_wqe_data d[3]; } w = {
		{ .next_wqe_index = to_be16(513) },
		{ { to_be32(64), to_be32(5), to_be64(6) }, { to_be32(0), to_be32(SMX_LKEY_END), to_be64(0) },
		  { to_be32(7), to_be32(7), to_be64(7) } } };
	struct smx_text t = smx_text_in(out, sizeof(out));

	(void)state;
	smx_print_recv_wqe(&t, &w, sizeof(w), 1);
	has_field(0x2, "next_wqe_index", "513\n");
	has_field(0x10, "byte_count", "64\n");
	has_field(0x24, "lkey", "0x00000100  ends the list\n");
	assert_non_null(strstr(out, "bytes behind the end of the list, 16 bytes"));
	t = smx_text_in(out, sizeof(out));
	smx_print_recv_wqe(&t, &w.d, sizeof(w.d), 0);
	has_field(0x0, "byte_count", "64\n");
}

static void print_one_cqe(const void *cqe)
{
	struct smx_text t = smx_text_in(out, sizeof(out));

	smx_print_cqe(&t, cqe);
	assert_false(t.cut);
}

static void error_cqe_fields_are_all_there(void **state)
{
	struct smx_err_cqe c = {
		.srqn = to_be32(0x2a), .hw_err_synd = 0x93, .hw_synd_type = 4, .vendor_err_synd = 0x52, .syndrome = 4,
		.s_wqe_opcode_qpn = to_be32(0x0a001b07), .wqe_counter = to_be16(17), .signature = 0x9c,
		.op_own = 0xd1,
	};

	(void)state;
	print_one_cqe(&c);
	has_field(0x00, "reserved", "32 bytes, all zero\n");
	has_field(0x20, "srqn_uidx", "0x0000002a");
	has_field(0x34, "hw_err_synd", "0x93\n");
	has_field(0x35, "hw_synd_type", "0x04\n");
	has_field(0x36, "vendor_err_synd", "0x52\n");
	has_field(0x37, "syndrome", "0x04  local protection error\n");
	has_field(0x38, "wqe_opcode", "0x0a  SEND\n");
	has_field(0x39, "qpn", "0x001b07\n");
	has_field(0x3c, "wqe_counter", "17\n");
	has_field(0x3e, "signature", "0x9c\n");
	has_field(0x3f, "op_own", "0xd1  REQ_ERR: a send work request failed, owner 1\n");
	c.rsvd0[1] = 's';
	c.op_own = 0xe0;
	print_one_cqe(&c);
	has_field(0x00, "reserved", "00 73 00");
	has_field(0x38, "wqe_opcode", "0x0a  no opcode on a receive\n");
}

static void good_cqe_fields_are_all_there(void **state)
{
	struct smx_cqe64 c = {
		.wqe_id = to_be16(3), .ml_path = 1, .slid = to_be16(2), .flags_rqpn = to_be32(0x13abcdef),
		.vlan_info = to_be16(0x64), .srqn_uidx = to_be32(9), .imm_inval_pkey = to_be32(0xfeed),
		.app = 1, .app_op = 2, .app_info = to_be16(3), .byte_cnt = to_be32(1000), .timestamp = to_be64(77),
		.sop_drop_qpn = to_be32(0x08000456), .wqe_counter = to_be16(65535), .op_own = 0x31,
	};

	(void)state;
	print_one_cqe(&c);
	has_field(0x18, "flags_rqpn", "0x13abcdef  source qpn 0xabcdef, sl or packet type 3, GRH in data\n");
	has_field(0x24, "imm_inval_pkey", "0x0000feed  immediate data\n");
	has_field(0x2c, "byte_cnt", "1000\n");
	has_field(0x30, "timestamp", "0x000000000000004d\n");
	has_field(0x39, "qpn", "0x000456\n");
	has_field(0x3c, "wqe_counter", "65535\n");
	has_field(0x3f, "op_own", "0x31  RESP_SEND_IMM: a send with immediate came in, owner 1\n");
	c.op_own = 0x00;
	print_one_cqe(&c);
	has_field(0x38, "wqe_opcode", "0x08  RDMA_WRITE\n");
	c.op_own = 0x26;
	print_one_cqe(&c);
	has_field(0x3f, "op_own", "0x26  RESP_SEND: a send came in, inline data in bytes 0..31, solicited, owner 0\n");
	has_field(0x00, "inline_data", "00 00 00 03");
	c.op_own = 0xc0;
	print_one_cqe(&c);
	has_field(0x24, "mkey", "0x0000feed\n");
	c.op_own = 0x90;
	print_one_cqe(&c);
	has_field(0x3f, "op_own", "0x90  of no public meaning, owner 0\n");
}

/* Every opcode, every length, bytes of all kinds; the sanitizer sees a read behind the end. */
static void no_wqe_is_read_behind_its_end(void **state)
{
	struct smx_prng rng = { 11 };

	(void)state;
	for (int round = 0; round < 3000; round++) {
		size_t len = (size_t)smx_prng_below(&rng, 260);
		uint8_t *p = malloc(len ? len : 1);

		assert_non_null(p);
		for (size_t i = 0; i < len; i++)
			p[i] = smx_prng_below(&rng, 3) ? 0 : (uint8_t)smx_prng_next(&rng);
		if (len > 7) {
			p[3] = (uint8_t)(round % 0x30);
			p[7] = (uint8_t)smx_prng_below(&rng, 20);
		}
		print_send(p, len, (enum smx_wqe_kind)(round % (SMX_WQE_ETH + 1)));
		free(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(control_fields_are_all_there),
		cmocka_unit_test(rdma_write_on_rc),
		cmocka_unit_test(address_vectors_of_dc_and_ud),
		cmocka_unit_test(atomics),
		cmocka_unit_test(inline_data_and_inline_that_claims_too_much),
		cmocka_unit_test(umr_with_a_list),
		cmocka_unit_test(umr_with_a_strided_layout),
		cmocka_unit_test(memcpy_names_source_and_destination),
		cmocka_unit_test(tag_lists_and_their_completions),
		cmocka_unit_test(unknown_bytes_are_shown_not_guessed),
		cmocka_unit_test(a_wqe_that_is_cut_short_is_said_to_be),
		cmocka_unit_test(receives_end_at_the_mark),
		cmocka_unit_test(error_cqe_fields_are_all_there),
		cmocka_unit_test(good_cqe_fields_are_all_there),
		cmocka_unit_test(no_wqe_is_read_behind_its_end),
	};

	return cmocka_run_group_tests_name("hw/hw_print", tests, NULL, NULL);
}
