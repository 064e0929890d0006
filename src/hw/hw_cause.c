/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the codes of an error CQE mean, and what is known to cause them.
 *
 * Sources: rdma-core's headers and history, fault injection on ConnectX-5 and -6, statements of the vendor
 * and of maintainers, public reports. Each row says by its grade which. */
#include "hw/hw_cause.h"

#include "base/bits.h"
#include "hw/cqe.h"

#define ANY SMX_CODE_UNKNOWN

static const struct smx_status statuses[] = {
	{ true, SMX_SYND_LOCAL_LENGTH, 1, "IBV_WC_LOC_LEN_ERR", "local length error" },
	{ true, SMX_SYND_LOCAL_QP_OP, 2, "IBV_WC_LOC_QP_OP_ERR", "local queue pair operation error" },
	{ true, SMX_SYND_LOCAL_PROT, 4, "IBV_WC_LOC_PROT_ERR", "local protection error" },
	{ true, SMX_SYND_WR_FLUSH, 5, "IBV_WC_WR_FLUSH_ERR", "work request flushed" },
	{ true, SMX_SYND_MW_BIND, 6, "IBV_WC_MW_BIND_ERR", "memory window bind error (UMR too)" },
	{ true, SMX_SYND_BAD_RESP, 7, "IBV_WC_BAD_RESP_ERR", "bad response" },
	{ true, SMX_SYND_LOCAL_ACCESS, 8, "IBV_WC_LOC_ACCESS_ERR", "local access error" },
	{ true, SMX_SYND_REMOTE_INVAL_REQ, 9, "IBV_WC_REM_INV_REQ_ERR", "remote invalid request" },
	{ true, SMX_SYND_REMOTE_ACCESS, 10, "IBV_WC_REM_ACCESS_ERR", "remote access error" },
	{ true, SMX_SYND_REMOTE_OP, 11, "IBV_WC_REM_OP_ERR", "remote operation error" },
	{ true, SMX_SYND_TRANSPORT_RETRY, 12, "IBV_WC_RETRY_EXC_ERR", "transport retries exceeded" },
	{ true, SMX_SYND_RNR_RETRY, 13, "IBV_WC_RNR_RETRY_EXC_ERR", "receiver-not-ready retries exceeded" },
	{ true, SMX_SYND_REMOTE_ABORTED, 16, "IBV_WC_REM_ABORT_ERR", "remote aborted" },
};
static const struct smx_status unknown_status = { false, 0, 21, "IBV_WC_GENERAL_ERR", "general error" };

/* Where several causes share all codes, the better supported stands first. */
static const struct smx_cause causes[] = {
	/* Local length */
	{ 0x01, 0x68, 0x60, SMX_SIDE_REQ, 'S',
	  "Ethernet send: too little of the packet's header is inlined in the WQE.",
	  "inline_hdr_sz against the inline mode that the port asks for" },
	{ 0x01, ANY, ANY, SMX_SIDE_RESP, 'I', "The message is longer than the receive that it met.",
	  "the sum of the receive's data segments; a UD receive also needs 40 bytes for the GRH" },
	{ 0x01, ANY, ANY, SMX_SIDE_REQ, 'I',
	  "The message is longer than the port or the path allows, or an atomic's "
	  "local buffer is not 8 bytes.", "the sum of the WQE's byte counts; on UD, the path MTU" },
	/* The WQE */
	{ 0x02, 0x68, 0x01, SMX_SIDE_REQ, 'O',
	  "The WQE index in the control segment is not the producer index of its slot.",
	  "threads that post without a lock; a 32-bit counter put into the 16-bit field; a "
	  "doorbell that runs "
	  "ahead of the WQEs; a ring that was not zeroed or restarted together with its index" },
	{ 0x02, 0x68, 0x86, SMX_SIDE_REQ, 'S',
	  "UMR: the number of translation octowords is not a multiple of 4 (64 bytes).",
	  "klm_octowords" },
	{ 0x02, 0x00, 0xb2, SMX_SIDE_REQ, 'O', "The device does not know the WQE's opcode.",
	  "byte 3 of the control segment; a control segment in host byte order" },
	{ 0x02, 0x68, ANY, SMX_SIDE_REQ, 'I',
	  "The WQE cannot be parsed; the hw byte would say why, but this one is not public.",
	  "ds against the segments, qpn, opcode, index" },
	{ 0x02, ANY, ANY, SMX_SIDE_ANY, 'I',
	  "The work request is not one that this queue pair can execute.",
	  "opcode against the queue pair's type and state, ds, the order of segments" },
	/* Local memory */
	{ 0x04, 0x51, 0x02, SMX_SIDE_REQ, 'O', "Reading local data failed at the bus.",
	  "memory of another device (GPU): peer-to-peer routing, IOMMU and ACS settings; memory "
	  "that is gone" },
	{ 0x04, 0x52, 0x93, SMX_SIDE_REQ, 'M',
	  "A data segment's lkey names no memory key, or one of another protection domain.",
	  "lkey of each data segment: deregistered too early, in host byte order, of another PD; "
	  "an mkey that is "
	  "invalidated or whose UMR has not executed" },
	{ 0x04, 0x53, 0x9d, SMX_SIDE_REQ, 'M',
	  "A data segment reaches past the end of its memory region.",
	  "va and byte_count of each data segment against the region; byte_count in host byte "
	  "order" },
	{ 0x04, 0x56, 0xa9, SMX_SIDE_RESP, 'O', "A bus or IOMMU fault during the access.",
	  "memory under the region that was unmapped; IOMMU messages in the kernel log" },
	{ 0x04, 0x32, 0x92, SMX_SIDE_RESP, 'O', "A receive's lkey names no memory key.",
	  "lkey of the receive's data segments: deregistered while still posted" },
	{ 0x04, 0x32, 0x93, SMX_SIDE_RESP, 'O',
	  "A receive's memory key is of another protection domain, or its memory is unmapped.",
	  "the PD of the receive's region and of the queue pair or SRQ" },
	{ 0x04, 0x33, 0x9d, SMX_SIDE_REQ, 'M',
	  "The response to an RDMA read or atomic may not be written to local memory.",
	  "the region has IBV_ACCESS_LOCAL_WRITE; va and byte_count against the region" },
	{ 0x04, 0x33, ANY, SMX_SIDE_RESP, 'I',
	  "A receive reaches outside its memory region, or the region has no local write.",
	  "the region of the receive: range and IBV_ACCESS_LOCAL_WRITE" },
	{ 0x04, 0x32, ANY, SMX_SIDE_ANY, 'I',
	  "The device wanted to write local memory and the key did not let it.",
	  "lkey and PD of the receive, or of the data segment that takes a response" },
	{ 0x04, ANY, ANY, SMX_SIDE_ANY, 'O',
	  "lkey or length of a data segment in host byte order, which other code reads as "
	  "big-endian.",
	  "code that writes WQEs itself" },
	/* Flush */
	{ 0x05, 0xf5, ANY, SMX_SIDE_REQ, 'M',
	  "This request was executing when the queue pair was moved to ERR; the hw byte repeats "
	  "the root's.",
	  "the failure before it, or who called ibv_modify_qp()" },
	{ 0x05, 0xf9, ANY, SMX_SIDE_ANY, 'M',
	  "This request was queued behind one that failed; the hw byte repeats the root's.",
	  "the first failed completion of this queue pair: it has the cause" },
	{ 0x05, ANY, ANY, SMX_SIDE_ANY, 'I',
	  "The queue pair was in ERR.", "the first failed completion of this queue pair" },
	/* UMR and bind */
	{ 0x06, 0x78, 0x08, SMX_SIDE_REQ, 'S', "UMR: the memory key that it changes is not there.",
	  "an mkey destroyed before its UMR executed; imm of the control segment" },
	{ 0x06, 0x78, 0x0f, SMX_SIDE_REQ, 'S',
	  "UMR: the layout is larger than the memory key was created for.",
	  "max_entries of mlx5dv_create_mkey(); a strided layout needs one entry more than it "
	  "names" },
	{ 0x06, ANY, ANY, SMX_SIDE_REQ, 'I', "A UMR, bind or invalidate was refused.",
	  "the key's state (free or not), its PD and queue pair; rights of the region under a "
	  "window" },
	/* The peer refuses */
	{ 0x12, 0x8a, ANY, SMX_SIDE_REQ, 'M',
	  "The responder's queue pair does not allow this operation.",
	  "qp_access_flags of the peer, given at RESET to INIT" },
	{ 0x12, 0x8a, ANY, SMX_SIDE_REQ, 'S',
	  "The two queue pairs have different path MTUs.", "path_mtu on both sides" },
	{ 0x12, 0x8a, ANY, SMX_SIDE_REQ, 'S',
	  "The message is longer than the receive that it met.", "receive size at the peer" },
	{ 0x12, 0x8a, ANY, SMX_SIDE_REQ, 'O',
	  "The DCT refuses the request.", "DC access key, access flags and path MTU of the DCT" },
	{ 0x12, ANY, ANY, SMX_SIDE_REQ, 'I', "The responder took the request for malformed.",
	  "max_rd_atomic against the peer's max_dest_rd_atomic; alignment of atomics" },
	{ 0x13, 0x88, ANY, SMX_SIDE_REQ, 'M',
	  "The rkey is unknown at the responder, deregistered, or the range is outside its region.",
	  "rkey and remote_va against the region at the peer, at the time of the access" },
	{ 0x13, 0x88, ANY, SMX_SIDE_REQ, 'I',
	  "The remote region does not have the right that the operation needs.",
	  "IBV_ACCESS_REMOTE_WRITE, _READ or _ATOMIC of the region at the peer" },
	{ 0x13, ANY, ANY, SMX_SIDE_REQ, 'I',
	  "The remote memory may not be accessed this way.", "rkey, range and rights at the peer" },
	{ 0x14, 0x89, ANY, SMX_SIDE_REQ, 'O', "The responder could not complete the operation.",
	  "the peer's own completions and kernel log: it had the error" },
	{ 0x14, ANY, ANY, SMX_SIDE_REQ, 'I',
	  "The responder could not complete the operation.", "the peer's own completions" },
	/* Nobody answers */
	{ 0x15, 0x81, ANY, SMX_SIDE_REQ, 'M',
	  "No answer after all retries: dead link or peer, or the peer's queue pair in ERR.",
	  "the peer's queue pair state and its completions: the error may have happened there; "
	  "dest_qp_num" },
	{ 0x15, ANY, ANY, SMX_SIDE_REQ, 'O', "RoCE without a GRH, or with the wrong one.",
	  "ah_attr.is_global, grh.sgid_index (RoCE version and address family), grh.dgid, "
	  "grh.hop_limit" },
	{ 0x15, ANY, ANY, SMX_SIDE_REQ, 'O', "Packets of this size do not get through.",
	  "path_mtu is not above active_mtu of either port, and switches pass it" },
	{ 0x15, ANY, ANY, SMX_SIDE_REQ, 'O', "An address attribute that was never set.",
	  "ah_attr.static_rate and the rest of ah_attr: zero the structure first" },
	{ 0x15, ANY, ANY, SMX_SIDE_REQ, 'O',
	  "Retries end too early.", "timeout (0..31) and retry_cnt: it is 0..7" },
	{ 0x16, 0x87, ANY, SMX_SIDE_REQ, 'M', "The peer had no receive posted.",
	  "receives posted before the peer says that it is ready; rnr_retry is 0..7, and 7 means "
	  "for ever" },
	{ 0x16, ANY, ANY, SMX_SIDE_REQ, 'O',
	  "DC: the SRQ has fewer receives than the initiators use.",
	  "SRQ size against the number of DCIs that send to it" },
	/* Rare */
	{ 0x22, 0x93, ANY, SMX_SIDE_ANY, 'S',
	  "A page fault of on-demand paging (the name in rdma-core's header).", NULL },
};

const struct smx_status *smx_status_of(uint8_t syndrome)
{
	for (size_t i = 0; i < SMX_COUNT(statuses); i++)
		if (statuses[i].syndrome == syndrome)
			return &statuses[i];
	return &unknown_status;
}

const struct smx_status *smx_status_by_number(uint32_t status)
{
	for (size_t i = 0; i < SMX_COUNT(statuses); i++)
		if (statuses[i].status == status)
			return &statuses[i];
	return NULL;
}

struct smx_codes smx_codes_of_cqe(const void *err_cqe)
{
	const struct smx_err_cqe *c = err_cqe;

	return (struct smx_codes){
		.syndrome = c->syndrome,
		.vendor = c->vendor_err_synd,
		.hw = c->hw_err_synd,
		.side = c->op_own >> 4 == SMX_CQE_RESP_ERR ? SMX_SIDE_RESP : SMX_SIDE_REQ,
	};
}

/* 3: all codes; 2: syndrome and vendor; 1: the syndrome; 0: does not fit. A code that is not known fits
 * every value but does not make the match better. */
static int fit(const struct smx_cause *c, const struct smx_codes *codes)
{
	if (c->syndrome != codes->syndrome || !(c->side & codes->side))
		return 0;
	if (c->vendor == ANY)
		return 1;
	if (codes->vendor == ANY)
		return c->hw == ANY || codes->hw == ANY || c->hw == codes->hw ? 1 : 0;
	if (c->vendor != codes->vendor)
		return 0;
	if (c->hw == ANY || codes->hw == ANY)
		return 2;
	return c->hw == codes->hw ? 3 : 0;
}

size_t smx_cause_find(const struct smx_codes *codes, const struct smx_cause **out, size_t max, size_t *exact)
{
	size_t n = 0;

	*exact = 0;
	for (int level = 3; level > 0; level--) {
		for (size_t i = 0; i < SMX_COUNT(causes) && n < max; i++) {
			/* What is only inferred for the syndrome adds nothing where the vendor code is known. */
			if (level == 1 && *exact && causes[i].grade == 'I')
				continue;
			if (fit(&causes[i], codes) == level)
				out[n++] = &causes[i];
		}
		if (level == 2)
			*exact = n;
	}
	return n;
}

const char *smx_vendor_meaning(uint8_t vendor)
{
	static const struct { uint8_t vendor; const char *text; } known[] = {
		{ 0x51, "device reads local memory: the fetch failed" },
		{ 0x52, "device reads local memory: key or protection domain" },
		{ 0x53, "device reads local memory: bounds or right" },
		{ 0x56, "device reads local memory: bus" },
		{ 0x31, "device writes local memory: the fetch failed" },
		{ 0x32, "device writes local memory: key or protection domain" },
		{ 0x33, "device writes local memory: bounds or right" },
		{ 0x36, "device writes local memory: bus" },
		{ 0x68, "the WQE cannot be parsed; the hw byte says why" },
		{ 0x78, "UMR refused; the hw byte says why" },
		{ 0x81, "transport: retries exceeded" },
		{ 0x87, "transport: receiver not ready" },
		{ 0x88, "transport: the responder refused the access" },
		{ 0x89, "transport: the responder could not complete" },
		{ 0x8a, "transport: the responder refused the request" },
		{ 0x93, "on-demand paging, with syndrome 0x22" },
		{ 0xf5, "flush: the request was executing" },
		{ 0xf9, "flush: the request was queued behind" },
	};

	for (size_t i = 0; i < SMX_COUNT(known); i++)
		if (known[i].vendor == vendor)
			return known[i].text;
	switch (vendor >> 4) {
	case 3:
		return "device writes local memory";
	case 5:
		return "device reads local memory";
	case 8:
		return "transport";
	case 15:
		return "flush";
	}
	return NULL;
}

static const char *grade_name(char grade)
{
	switch (grade) {
	case 'M':
		return "measured";
	case 'S':
		return "stated";
	case 'O':
		return "observed";
	}
	return "inferred";
}

void smx_print_codes(struct smx_text *t, const struct smx_codes *codes)
{
	const struct smx_status *s = smx_status_of(codes->syndrome);
	const struct smx_cause *found[16];
	const char *meaning;
	size_t exact, n = smx_cause_find(codes, found, SMX_COUNT(found), &exact);

	smx_text_add(t, "What the codes mean\n");
	smx_text_add(t, "    syndrome 0x%02x  %s; the program sees %s (%u)\n", codes->syndrome,
		     s->known ? s->text : "no public meaning", s->name, s->status);
	if (codes->vendor != ANY) {
		meaning = smx_vendor_meaning((uint8_t)codes->vendor);
		smx_text_add(t, "    vendor   0x%02x  %s; the program sees vendor_err %d\n",
			     (unsigned int)codes->vendor, meaning ? meaning : "no public meaning", codes->vendor);
	}
	if (codes->hw != ANY)
		smx_text_add(t, "    hw       0x%02x  %s\n", (unsigned int)codes->hw,
			     codes->syndrome == SMX_SYND_WR_FLUSH ? "on a flush, a copy of the root's" :
			     n && found[0]->hw == codes->hw ? "as in the first cause below" :
			     codes->hw ? "no public meaning with these codes" : "nothing more");
	if (!n) {
		smx_text_add(t, "Likely causes\n    Nothing is publicly known to cause these codes.\n");
		return;
	}
	smx_text_add(t, "Likely causes\n");
	if (codes->vendor != ANY && !exact)
		smx_text_add(t, "    (nothing public names this vendor code with this syndrome; "
			     "for the syndrome alone:)\n");
	for (size_t i = 0; i < n; i++) {
		smx_text_add(t, "    [%c %s] %s\n", found[i]->grade, grade_name(found[i]->grade), found[i]->text);
		if (found[i]->look_at)
			smx_text_add(t, "        look at: %s\n", found[i]->look_at);
	}
	smx_text_add(t, "On a failed completion only wr_id, status, qp_num and vendor_err mean anything; opcode and "
		     "byte_len do not.\n");
}
