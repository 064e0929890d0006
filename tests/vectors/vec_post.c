/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "vec_post.h"

#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

enum { SGE_MAX = 64, BYTES_MAX = 2048 };

/* The arguments of one request; what it points to lives here until the call is made. */
struct args {
	struct ibv_sge sge[SGE_MAX];
	struct ibv_data_buf buf[SGE_MAX];
	uint8_t bytes[BYTES_MAX];
	size_t n;
	struct smx_dv_ah ah;
	struct ibv_mw mw;
	struct ibv_mr mr;
	struct ibv_mw_bind_info bind;
};

static size_t read_sge(const json_t *list, struct ibv_sge *sge)
{
	size_t i;
	json_t *e;

	json_array_foreach(list, i, e) {
		if (i == SGE_MAX)
			vec_die("too many", "sge");
		sge[i] = (struct ibv_sge){ .addr = vec_int(json_array_get(e, 0)),
					   .length = (uint32_t)vec_int(json_array_get(e, 1)),
					   .lkey = (uint32_t)vec_int(json_array_get(e, 2)) };
	}
	return json_array_size(list);
}

static void read_data(const json_t *wr, struct args *a)
{
	const json_t *inl = vec_get(wr, "inl");
	size_t i, used = 0;
	json_t *e;

	if (!inl) {
		a->n = read_sge(vec_get(wr, "sge"), a->sge);
		return;
	}
	a->n = json_array_size(inl);
	json_array_foreach(inl, i, e) {
		size_t n;

		if (i == SGE_MAX)
			vec_die("too many", "inl");
		n = vec_hex(json_string_value(e), a->bytes + used, sizeof(a->bytes) - used);
		a->buf[i] = (struct ibv_data_buf){ .addr = a->bytes + used, .length = n };
		a->sge[i] = (struct ibv_sge){ .addr = (uintptr_t)(a->bytes + used), .length = (uint32_t)n };
		used += n;
	}
}

static void read_bind(const json_t *wr, struct args *a)
{
	a->mw = (struct ibv_mw){ .rkey = (uint32_t)vec_num(wr, "mw_rkey"),
				 .type = vec_num(wr, "mw_type") == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2 };
	a->mr = (struct ibv_mr){ .lkey = (uint32_t)vec_num(wr, "mr_lkey") };
	a->bind = (struct ibv_mw_bind_info){ .mr = &a->mr, .addr = vec_num(wr, "addr"),
					     .length = vec_num(wr, "length"),
					     .mw_access_flags = (unsigned int)vec_num(wr, "access") };
}

static void read_ah(const json_t *addr, struct args *a)
{
	if (vec_hex(vec_str(addr, "av"), (uint8_t *)&a->ah.av, sizeof(a->ah.av)) != sizeof(a->ah.av))
		vec_die("not 48 bytes", "av");
}

static __be32 read_imm(const json_t *wr)
{
	__be32 imm;

	vec_hex(vec_str(wr, "imm"), (uint8_t *)&imm, sizeof(imm));
	return imm;
}

static void set_data(struct ibv_qp_ex *ex, const json_t *wr, struct args *a)
{
	read_data(wr, a);
	if (vec_is(wr, "set", "sge"))
		ibv_wr_set_sge(ex, a->sge[0].lkey, a->sge[0].addr, a->sge[0].length);
	else if (vec_is(wr, "set", "sge_list"))
		ibv_wr_set_sge_list(ex, a->n, a->sge);
	else if (vec_is(wr, "set", "inline"))
		ibv_wr_set_inline_data(ex, a->buf[0].addr, a->buf[0].length);
	else
		ibv_wr_set_inline_data_list(ex, a->n, a->buf);
}

static void set_addr(struct vec_world *w, const json_t *addr, struct args *a)
{
	struct ibv_ah *ah = &a->ah.ibv;

	read_ah(addr, a);
	if (vec_is(addr, "k", "ud"))
		ibv_wr_set_ud_addr(&w->qp.ex, ah, (uint32_t)vec_num(addr, "qpn"), (uint32_t)vec_num(addr, "qkey"));
	else if (vec_is(addr, "k", "dc"))
		mlx5dv_wr_set_dc_addr(&w->qp.dv, ah, (uint32_t)vec_num(addr, "dctn"), vec_num(addr, "dckey"));
	else
		mlx5dv_wr_set_dc_addr_stream(&w->qp.dv, ah, (uint32_t)vec_num(addr, "dctn"),
					     vec_num(addr, "dckey"), (uint16_t)vec_num(addr, "stream"));
}

static size_t read_interleaved(const json_t *list, struct mlx5dv_mr_interleaved *out)
{
	size_t i;
	json_t *e;

	json_array_foreach(list, i, e) {
		if (i == SGE_MAX)
			vec_die("too many", "ent");
		out[i] = (struct mlx5dv_mr_interleaved){ .addr = vec_int(json_array_get(e, 0)),
							 .bytes_count = (uint32_t)vec_int(json_array_get(e, 1)),
							 .bytes_skip = (uint32_t)vec_int(json_array_get(e, 2)),
							 .lkey = (uint32_t)vec_int(json_array_get(e, 3)) };
	}
	return json_array_size(list);
}

static void mkey_setters(struct mlx5dv_qp_ex *dv, const json_t *setters)
{
	struct mlx5dv_mr_interleaved ent[SGE_MAX];
	struct ibv_sge sge[SGE_MAX];
	size_t i, n;
	json_t *s;

	json_array_foreach(setters, i, s) {
		if (vec_is(s, "k", "access")) {
			mlx5dv_wr_set_mkey_access_flags(dv, (uint32_t)vec_num(s, "access"));
		} else if (vec_is(s, "k", "list")) {
			n = read_sge(vec_need(s, "sge"), sge);
			mlx5dv_wr_set_mkey_layout_list(dv, (uint16_t)n, sge);
		} else {
			n = read_interleaved(vec_need(s, "ent"), ent);
			mlx5dv_wr_set_mkey_layout_interleaved(dv, (uint32_t)vec_num(s, "repeat"), (uint16_t)n, ent);
		}
	}
}

static void post_mkey(struct vec_world *w, const json_t *wr)
{
	struct smx_dv_mkey mkey = { .dv.lkey = (uint32_t)vec_num(wr, "mkey_lkey"),
				    .dv.rkey = (uint32_t)vec_num(wr, "mkey_lkey"),
				    .max_entries = (uint32_t)vec_num(wr, "mkey_max_entries") };
	struct mlx5dv_mr_interleaved ent[SGE_MAX];
	struct ibv_sge sge[SGE_MAX];
	size_t n;

	if (vec_is(wr, "op", "mr_list")) {
		n = read_sge(vec_need(wr, "sge"), sge);
		mlx5dv_wr_mr_list(&w->qp.dv, &mkey.dv, (uint32_t)vec_num(wr, "access"), (uint16_t)n, sge);
	} else if (vec_is(wr, "op", "mr_interleaved")) {
		n = read_interleaved(vec_need(wr, "ent"), ent);
		mlx5dv_wr_mr_interleaved(&w->qp.dv, &mkey.dv, (uint32_t)vec_num(wr, "access"),
					 (uint32_t)vec_num(wr, "repeat"), (uint16_t)n, ent);
	} else {
		struct mlx5dv_mkey_conf_attr attr = { .conf_flags = (uint32_t)vec_num(wr, "conf_flags"),
						      .comp_mask = vec_num(wr, "comp_mask") };

		mlx5dv_wr_mkey_configure(&w->qp.dv, &mkey.dv, (uint8_t)vec_num(wr, "num_setters"), &attr);
		mkey_setters(&w->qp.dv, vec_need(wr, "setters"));
	}
}

/* A builder of data transfer. RETURN false for other operations. */
static bool build_transfer(struct ibv_qp_ex *ex, const json_t *wr)
{
	uint32_t rkey = (uint32_t)vec_num_or(wr, "rkey", 0);
	uint64_t raddr = vec_num_or(wr, "raddr", 0);

	if (vec_is(wr, "op", "send"))
		ibv_wr_send(ex);
	else if (vec_is(wr, "op", "send_imm"))
		ibv_wr_send_imm(ex, read_imm(wr));
	else if (vec_is(wr, "op", "send_inv"))
		ibv_wr_send_inv(ex, (uint32_t)vec_num(wr, "inv_rkey"));
	else if (vec_is(wr, "op", "rdma_write"))
		ibv_wr_rdma_write(ex, rkey, raddr);
	else if (vec_is(wr, "op", "rdma_write_imm"))
		ibv_wr_rdma_write_imm(ex, rkey, raddr, read_imm(wr));
	else if (vec_is(wr, "op", "rdma_read"))
		ibv_wr_rdma_read(ex, rkey, raddr);
	else if (vec_is(wr, "op", "atomic_cmp_swp"))
		ibv_wr_atomic_cmp_swp(ex, rkey, raddr, vec_num(wr, "compare"), vec_num(wr, "swap"));
	else if (vec_is(wr, "op", "atomic_fetch_add"))
		ibv_wr_atomic_fetch_add(ex, rkey, raddr, vec_num(wr, "add"));
	else
		return false;
	return true;
}

static void build(struct vec_world *w, const json_t *wr, struct args *a)
{
	struct ibv_qp_ex *ex = &w->qp.ex;
	const json_t *addr = json_is_object(vec_get(wr, "addr")) ? vec_get(wr, "addr") : NULL;

	ex->wr_id = vec_num(wr, "wr_id");
	ex->wr_flags = (unsigned int)vec_num(wr, "flags");
	if (build_transfer(ex, wr)) {
		if (addr && vec_num(addr, "first"))
			set_addr(w, addr, a);
		set_data(ex, wr, a);
		if (addr && !vec_num(addr, "first"))
			set_addr(w, addr, a);
	} else if (vec_is(wr, "op", "bind_mw")) {
		read_bind(wr, a);
		ibv_wr_bind_mw(ex, &a->mw, (uint32_t)vec_num(wr, "rkey"), &a->bind);
	} else if (vec_is(wr, "op", "local_inv")) {
		ibv_wr_local_inv(ex, (uint32_t)vec_num(wr, "inv_rkey"));
	} else if (vec_is(wr, "op", "raw_wqe")) {
		const char *hex = vec_str(wr, "raw");
		uint8_t *raw = malloc(strlen(hex) / 2);	/* exactly: reading further is seen */

		vec_hex(hex, raw, strlen(hex) / 2);
		mlx5dv_wr_raw_wqe(&w->qp.dv, raw);
		free(raw);
	} else if (vec_is(wr, "op", "memcpy")) {
		mlx5dv_wr_memcpy(&w->qp.dv, (uint32_t)vec_num(wr, "dest_lkey"), vec_num(wr, "dest_addr"),
				 (uint32_t)vec_num(wr, "src_lkey"), vec_num(wr, "src_addr"), vec_num(wr, "length"));
	} else {
		post_mkey(w, wr);
	}
}

static const struct { const char *op; enum ibv_wr_opcode opcode; } send_opcodes[] = {
	{ "send", IBV_WR_SEND }, { "send_imm", IBV_WR_SEND_WITH_IMM }, { "send_inv", IBV_WR_SEND_WITH_INV },
	{ "rdma_write", IBV_WR_RDMA_WRITE }, { "rdma_write_imm", IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "rdma_read", IBV_WR_RDMA_READ }, { "atomic_cmp_swp", IBV_WR_ATOMIC_CMP_AND_SWP },
	{ "atomic_fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD }, { "bind_mw", IBV_WR_BIND_MW },
	{ "local_inv", IBV_WR_LOCAL_INV },
};

static enum ibv_wr_opcode send_opcode(const json_t *wr)
{
	for (size_t i = 0; i < SMX_COUNT(send_opcodes); i++) {
		if (vec_is(wr, "op", send_opcodes[i].op))
			return send_opcodes[i].opcode;
	}
	return (enum ibv_wr_opcode)vec_num(wr, "ibv_opcode");
}

static void fill_send_wr(const json_t *wr, struct ibv_send_wr *s, struct args *a)
{
	const json_t *addr = json_is_object(vec_get(wr, "addr")) ? vec_get(wr, "addr") : NULL;

	s->wr_id = vec_num(wr, "wr_id");
	s->send_flags = (unsigned int)vec_num(wr, "flags");
	s->opcode = send_opcode(wr);
	if (vec_get(wr, "imm"))
		s->imm_data = read_imm(wr);
	if (vec_get(wr, "inv_rkey"))
		s->invalidate_rkey = (uint32_t)vec_num(wr, "inv_rkey");
	read_data(wr, a);
	s->sg_list = a->sge;
	s->num_sge = (int)a->n;
	switch (s->opcode) {
	case IBV_WR_RDMA_READ:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		s->wr.rdma.remote_addr = vec_num(wr, "raddr");
		s->wr.rdma.rkey = (uint32_t)vec_num(wr, "rkey");
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		s->wr.atomic.remote_addr = vec_num(wr, "raddr");
		s->wr.atomic.rkey = (uint32_t)vec_num(wr, "rkey");
		s->wr.atomic.compare_add = s->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? vec_num(wr, "compare") :
					   vec_num(wr, "add");
		s->wr.atomic.swap = vec_num_or(wr, "swap", 0);
		break;
	case IBV_WR_BIND_MW:
		read_bind(wr, a);
		s->bind_mw.mw = &a->mw;
		s->bind_mw.rkey = (uint32_t)vec_num(wr, "rkey");
		s->bind_mw.bind_info = a->bind;
		break;
	default:
		break;
	}
	if (addr) {
		read_ah(addr, a);
		s->wr.ud.ah = &a->ah.ibv;
		s->wr.ud.remote_qpn = (uint32_t)vec_num(addr, "qpn");
		s->wr.ud.remote_qkey = (uint32_t)vec_num(addr, "qkey");
	}
}

static int post_send(struct vec_world *w, const json_t *list, int *bad_wr)
{
	size_t n = json_array_size(list), i;
	struct ibv_send_wr *s = calloc(n + 1, sizeof(*s)), *bad = NULL;
	struct args *a = calloc(n + 1, sizeof(*a));
	json_t *wr;
	int rc;

	json_array_foreach(list, i, wr) {
		fill_send_wr(wr, &s[i], &a[i]);
		s[i].next = i + 1 < n ? &s[i + 1] : NULL;
	}
	rc = smx_dv_post_send(&w->qp.ex.qp_base, n ? s : NULL, &bad);
	if (bad)
		*bad_wr = (int)(bad - s);
	free(s);
	free(a);
	return rc;
}

int vec_post_step(struct vec_world *w, const json_t *step, int *bad_wr)
{
	const json_t *list = vec_need(step, "wr");
	struct args *a;
	size_t i;
	json_t *wr;

	*bad_wr = -1;
	if (vec_is(step, "api", "post_send"))
		return post_send(w, list, bad_wr);
	a = calloc(1, sizeof(*a));
	ibv_wr_start(&w->qp.ex);
	json_array_foreach(list, i, wr)
		build(w, wr, a);
	free(a);
	if (vec_is(step, "api", "wr"))
		return ibv_wr_complete(&w->qp.ex);
	ibv_wr_abort(&w->qp.ex);
	return 0;
}
