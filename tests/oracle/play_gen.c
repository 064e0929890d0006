/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Random programs. A step's requests follow from the seed, the step's and the request's number and the queue
 * pair's capacities, so that leaving out a step or a request leaves the others as they are. */
#include "play.h"

#include <string.h>

static const char *const op_names[OP_COUNT] = {
	"send", "send_imm", "send_inv", "rdma_write", "rdma_write_imm", "rdma_read", "cmp_swp", "fetch_add", "bind_mw",
	"local_inv", "mr_list", "mr_interleaved", "mkey_configure", "raw_wqe", "memcpy", "bad_opcode",
};

static const uint64_t op_flag[] = {
	[OP_SEND] = IBV_QP_EX_WITH_SEND,
	[OP_SEND_IMM] = IBV_QP_EX_WITH_SEND_WITH_IMM,
	[OP_SEND_INV] = IBV_QP_EX_WITH_SEND_WITH_INV,
	[OP_WRITE] = IBV_QP_EX_WITH_RDMA_WRITE,
	[OP_WRITE_IMM] = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	[OP_READ] = IBV_QP_EX_WITH_RDMA_READ,
	[OP_CAS] = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
	[OP_FAA] = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	[OP_BIND] = IBV_QP_EX_WITH_BIND_MW,
	[OP_LINV] = IBV_QP_EX_WITH_LOCAL_INV,
	[OP_LIST] = MLX5DV_QP_EX_WITH_MR_LIST,
	[OP_INTERLEAVED] = MLX5DV_QP_EX_WITH_MR_INTERLEAVED,
	[OP_CONFIGURE] = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE,
	[OP_RAW] = MLX5DV_QP_EX_WITH_RAW_WQE,
	[OP_MEMCPY] = MLX5DV_QP_EX_WITH_MEMCPY,
};

#define BIT(op) (1u << (op))
#define OPS_MESSAGE (BIT(OP_SEND) | BIT(OP_SEND_IMM))
#define OPS_UNRELIABLE (OPS_MESSAGE | BIT(OP_SEND_INV) | BIT(OP_WRITE) | BIT(OP_WRITE_IMM) | BIT(OP_BIND) | \
			BIT(OP_LINV))
#define OPS_RELIABLE (OPS_UNRELIABLE | BIT(OP_READ) | BIT(OP_CAS) | BIT(OP_FAA))
#define OPS_UMR (BIT(OP_LIST) | BIT(OP_INTERLEAVED) | BIT(OP_CONFIGURE))

/* What each transport has: by builders of verbs, of mlx5dv, and by ibv_post_send. */
static const struct { uint32_t wr, dv, post; } kind_ops[T_KINDS] = {
	[T_RC] = { OPS_RELIABLE, OPS_UMR | BIT(OP_RAW) | BIT(OP_MEMCPY), OPS_RELIABLE },
	[T_UC] = { OPS_UNRELIABLE, BIT(OP_RAW), OPS_UNRELIABLE },
	[T_UD] = { OPS_MESSAGE, BIT(OP_RAW), OPS_MESSAGE },
	[T_XRC] = { OPS_RELIABLE, BIT(OP_RAW), OPS_RELIABLE },
	[T_DCI] = { OPS_RELIABLE, BIT(OP_RAW) | BIT(OP_MEMCPY), 0 },
};

const char *op_name(enum op op)
{
	return op_names[op];
}

static uint64_t flags_of(uint32_t ops)
{
	uint64_t flags = 0;

	for (unsigned int op = 0; op < COUNT(op_flag); op++)
		flags |= ops & BIT(op) ? op_flag[op] : 0;
	return flags;
}

static uint64_t some_of(struct prng *p, uint64_t flags)
{
	return one_in(p, 3) ? flags & rnd64(p) : flags;
}

void gen_config(struct config *cfg, uint64_t seed)
{
	static const enum transport kinds[] = { T_RC, T_RC, T_RC, T_RC, T_DCI, T_DCI, T_UD, T_UC, T_XRC };
	static const uint32_t wrs[] = { 1, 2, 4, 5, 8, 16, 24, 40 }, sges[] = { 1, 1, 2, 4, 4, 7, 13, 16 };
	struct prng p = prng_at(seed, 1);

	memset(cfg, 0, sizeof(*cfg));
	cfg->kind = kinds[rnd(&p, COUNT(kinds))];
	cfg->streams = cfg->kind == T_DCI && one_in(&p, 2);
	cfg->sig_all = one_in(&p, 4);
	cfg->wq_sig = one_in(&p, 10);
	cfg->prefer_bf = rnd(&p, 2);
	cfg->shut_up_bf = one_in(&p, 6);
	cfg->scatter = cfg->kind == T_RC;
	cfg->ex = !one_in(&p, 8) || cfg->kind == T_DCI;
	if (cfg->ex) {
		cfg->send_ops = some_of(&p, flags_of(kind_ops[cfg->kind].wr));
		cfg->dv_ops = some_of(&p, flags_of(kind_ops[cfg->kind].dv));
		cfg->dv = true;
		/* rdma-core 44 sizes WQEs as if an mkey's configuration alone were no UMR, and writes behind them. */
		if (cfg->dv_ops & MLX5DV_QP_EX_WITH_MKEY_CONFIGURE)
			cfg->dv_ops |= MLX5DV_QP_EX_WITH_MR_LIST;
	}
	cfg->cap.max_send_wr = wrs[rnd(&p, COUNT(wrs))];
	cfg->cap.max_send_sge = sges[rnd(&p, COUNT(sges))];
	cfg->cap.max_inline_data = one_in(&p, 4) ? 0 : 1 + rnd(&p, one_in(&p, 3) ? 700 : 200);
	if (cfg->wq_sig)
		cfg->cap.max_send_wr = 64;	/* see world_renew(): such queues must not wrap */
	cfg->srq = (cfg->kind == T_RC || cfg->kind == T_UD) && one_in(&p, 3);
	if (cfg->kind != T_DCI && cfg->kind != T_XRC && !cfg->srq) {
		cfg->cap.max_recv_wr = one_in(&p, 4) ? 0 : 1 + rnd(&p, 20);
		cfg->cap.max_recv_sge = 1 + rnd(&p, 6);
	}
	cfg->far = cfg->kind != T_DCI && !cfg->wq_sig && cfg->cap.max_send_wr >= 8 && one_in(&p, 40);
	cfg->srq_wr = 1 + rnd(&p, 40);
	cfg->srq_sge = 1 + rnd(&p, 8);
	cfg->cqe_bytes = one_in(&p, 3) ? 128 : 64;
	for (unsigned int i = 0; i < MKEY_COUNT; i++)
		cfg->mkey_entries[i] = 1 + rnd(&p, i ? 40 : 6);
	cfg->steps = 8 + rnd(&p, STEPS_MAX - 8);
}

/* ---- data ---- */

static uint64_t an_address(struct prng *p, const struct world *w)
{
	return (uintptr_t)w->arena + rnd(p, ARENA_BYTES / 2);
}

static uint32_t a_length(struct prng *p)
{
	switch (rnd(p, 8)) {
	case 0:
		return 0;
	case 1:
		return (uint32_t)rnd64(p) & 0x7fffffff;
	case 2:
		return 1 + rnd(p, 8);
	default:
		return 1 + rnd(p, 8192);
	}
}

static void some_sges(struct prng *p, const struct world *w, struct ibv_sge *sge, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		sge[i] = (struct ibv_sge){ an_address(p, w), a_length(p), (uint32_t)rnd64(p) };
}

/* Buffers of total bytes, some empty. */
static uint32_t split(struct prng *p, const struct world *w, struct ibv_sge *sge, uint32_t max, uint32_t total)
{
	uint32_t n = 1 + rnd(p, max < 6 ? max : 6);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t part = i + 1 == n ? total : rnd(p, total + 1);

		if (one_in(p, 8) && i + 1 < n)
			part = 0;
		sge[i] = (struct ibv_sge){ an_address(p, w), part, 0 };
		total -= part;
	}
	return n;
}

static void gen_inline(struct prng *p, const struct world *w, struct wr *wr, uint32_t max_n, bool fail)
{
	uint32_t max = w->cap.max_inline_data, total = one_in(p, 4) ? max : rnd(p, max + 1);

	if (one_in(p, 10))
		total = 0;
	if (fail)
		total = max + 1 + rnd(p, 40);
	wr->n = wr->setter == BY_INLINE ? 1 : !total && rnd(p, 2) ? 0 : split(p, w, wr->sge, max_n, total);
	if (wr->setter == BY_INLINE)
		wr->sge[0] = (struct ibv_sge){ an_address(p, w), total, 0 };
	wr->faulty |= fail;
}

static void gen_data(struct prng *p, const struct world *w, struct wr *wr, bool fail, bool row)
{
	uint32_t max_gs = w->cap.max_send_sge;

	wr->setter = (enum data_setter)rnd(p, 4);
	if (wr->setter >= BY_INLINE) {
		gen_inline(p, w, wr, 8, fail);
	} else if (wr->setter == BY_SGE) {
		wr->n = 1;
		some_sges(p, w, wr->sge, 1);
	} else {
		wr->n = fail ? max_gs + 1 + rnd(p, 3) : one_in(p, 3) ? max_gs : rnd(p, max_gs + 1);
		wr->faulty |= fail;
		some_sges(p, w, wr->sge, wr->n);
	}
	if (!row)
		return;
	if (wr->setter < BY_INLINE && wr->n && !wr->faulty && rnd(p, 2)) {
		wr->row = ROW_SGE_LENGTH;
		wr->sge[rnd(p, wr->n)].length |= 0x80000000u;
	} else if (w->cfg.kind != T_RC && w->cfg.kind != T_UC && rnd(p, 2)) {
		wr->row = ROW_NO_ADDRESS;
		wr->no_addr = true;
	} else {
		wr->row = ROW_NO_DATA;
		wr->no_data = true;
	}
	wr->faulty = false;
}

/* ---- memory keys ---- */

static uint32_t layout_room(const struct world *w, const struct wr *wr, bool strided)
{
	uint32_t room = (w->cap.max_inline_data + 4) / 16, mine = (w->cfg.mkey_entries[wr->mkey] + 3) / 4 * 4;

	if (strided) {
		room = room ? room - 1 : 0;
		mine--;
	}
	if (room > SGE_MAX - 3)
		room = SGE_MAX - 3;
	return room < mine ? room : mine;
}

static void gen_interleaved(struct prng *p, const struct world *w, struct wr *wr, uint32_t n)
{
	wr->repeat = one_in(p, 4) ? (uint32_t)rnd64(p) : rnd(p, 1000);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t count = rnd(p, one_in(p, 4) ? 0x10000 : 512), skip = rnd(p, 0x10000 - count);

		wr->il[i] = (struct mlx5dv_mr_interleaved){ an_address(p, w), count, one_in(p, 3) ? 0 : skip,
							    (uint32_t)rnd64(p) };
	}
}

/* One layout of at most what there is room for; fail: of more. */
static void gen_layout(struct prng *p, const struct world *w, struct wr *wr, unsigned int k, bool fail)
{
	bool strided = wr->setters[k] == SET_INTERLEAVED;
	uint32_t room = layout_room(w, wr, strided);
	uint32_t most = (w->cap.max_inline_data + 4) / 16;

	if (strided && !most)
		fail = true;		/* not even the header fits */
	wr->set_n[k] = fail ? room + (strided ? 2 : 1) + rnd(p, 2) : one_in(p, 3) ? room : rnd(p, room + 1);
	wr->faulty |= fail;
	if (strided)
		gen_interleaved(p, w, wr, wr->set_n[k]);
	else
		some_sges(p, w, wr->sge, wr->set_n[k]);
	for (uint32_t i = 0; !strided && wr->set_n[k] > 1 && i < wr->set_n[k]; i++)
		wr->sge[i].length &= 0xffffff;		/* together below 2 GiB, see ROW_LIST_SUM */
}

static void mkey_row(struct prng *p, const struct world *w, struct wr *wr)
{
	uint32_t mine = (w->cfg.mkey_entries[wr->mkey] + 3) / 4 * 4, most = (w->cap.max_inline_data + 4) / 16;
	unsigned int k = 0;

	while (k < wr->n_setters && wr->setters[k] == SET_ACCESS)
		k++;
	if (k < wr->n_setters && wr->setters[k] == SET_LIST && wr->set_n[k] > 1 && rnd(p, 2)) {
		wr->row = ROW_LIST_SUM;
		wr->sge[0].length = wr->sge[1].length = 0x7fffffff;
		return;
	}
	if (k < wr->n_setters && wr->setters[k] == SET_LIST)
		k = wr->n_setters;
	switch (rnd(p, 5)) {
	case 0:
		if (k < wr->n_setters && wr->set_n[k]) {
			wr->row = ROW_STRIDE;
			wr->il[rnd(p, wr->set_n[k])].bytes_skip = 0x10000 + rnd(p, 10);
		}
		break;
	case 1:
		if (k < wr->n_setters && mine + 1 <= most && mine < SGE_MAX) {
			wr->row = ROW_HEADER_ENTRY;
			wr->set_n[k] = mine;
			gen_interleaved(p, w, wr, mine);
		}
		break;
	case 2:
		if (wr->op == OP_CONFIGURE) {
			wr->row = ROW_FEW_SETTERS;
			wr->declared = wr->n_setters + 1;
		}
		break;
	case 3:
		if (wr->op == OP_CONFIGURE) {
			wr->row = ROW_BARE_SETTER;
			wr->bare = true;
		}
		break;
	default:
		if (wr->op == OP_CONFIGURE && layout_room(w, wr, false)) {
			wr->row = ROW_LAYOUT_TWICE;
			wr->n_setters = wr->declared = 2;
			wr->setters[0] = wr->setters[1] = SET_LIST;
			wr->set_n[0] = 0;
			wr->set_n[1] = 1;
			some_sges(p, w, wr->sge, 1);
		}
	}
}

static void mkey_fault(struct prng *p, struct wr *wr)
{
	wr->faulty = true;
	switch (rnd(p, wr->op == OP_CONFIGURE ? 6 : 2)) {
	case 0:
		wr->flags &= ~(unsigned int)IBV_SEND_INLINE;
		break;
	case 1:
		wr->access |= 16u << rnd(p, 8);
		break;
	case 2:
		wr->conf_flags = 2;
		break;
	case 3:
		wr->conf_mask = 1 + rnd(p, 3);
		break;
	case 4:		/* access twice */
		wr->setters[wr->n_setters] = SET_ACCESS;
		wr->setters[(wr->n_setters + 1) & 3] = SET_ACCESS;
		wr->n_setters = wr->n_setters + 2 < 4 ? wr->n_setters + 2 : 4;
		wr->declared = wr->n_setters;
		break;
	default:	/* one more than declared */
		wr->setters[wr->n_setters++] = SET_ACCESS;
	}
}

static void gen_mkey(struct prng *p, const struct world *w, struct wr *wr, bool fail, bool row)
{
	enum mkey_setter layout = wr->op == OP_LIST ? SET_LIST : wr->op == OP_INTERLEAVED ? SET_INTERLEAVED :
				  SET_LIST + (enum mkey_setter)rnd(p, 2);
	uint32_t what = wr->op == OP_CONFIGURE ? rnd(p, 4) : 3;
	bool too_long = fail && rnd(p, 2);

	wr->flags |= IBV_SEND_INLINE;
	wr->mkey = rnd(p, MKEY_COUNT);
	wr->mkey_lkey = one_in(p, 3) ? (uint32_t)rnd64(p) : (uint32_t)rnd64(p) & ~0xffu;
	wr->access = rnd(p, 16);
	wr->conf_flags = one_in(p, 5);
	if (what & 1)
		wr->setters[wr->n_setters++] = SET_ACCESS;
	if (what & 2)
		wr->setters[wr->n_setters++] = layout;
	if (wr->op == OP_CONFIGURE && wr->n_setters == 2 && rnd(p, 2)) {
		wr->setters[0] = layout;
		wr->setters[1] = SET_ACCESS;
	}
	wr->declared = wr->n_setters;
	for (unsigned int k = 0; k < wr->n_setters; k++) {
		if (wr->setters[k] != SET_ACCESS)
			gen_layout(p, w, wr, k, too_long);
	}
	if (row && !wr->faulty)
		mkey_row(p, w, wr);
	else if (fail && !too_long)
		mkey_fault(p, wr);
}

/* ---- the rest ---- */

static void gen_bind(struct prng *p, const struct world *w, struct wr *wr, bool fail)
{
	wr->mw_type = one_in(p, 3) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
	wr->mw_rkey = (uint32_t)rnd64(p);
	wr->mr_lkey = (uint32_t)rnd64(p);
	wr->bind_addr = an_address(p, w);
	wr->bind_length = one_in(p, 5) ? 0 : one_in(p, 5) ? 1ull << 31 : 1 + rnd(p, 100000);
	wr->access = rnd(p, 64) & ~16u;
	if (fail) {
		wr->bind_length = (1ull << 31) + 1 + rnd(p, 1000);
		wr->faulty = true;
	}
}

static void gen_raw(struct prng *p, const struct world *w, struct wr *wr, bool row)
{
	uint32_t limit = w->wqe_bb * w->max_post * 4, ds = 1 + rnd(p, one_in(p, 4) ? 63 : 16);

	if (row && (limit >= 63 || w->cfg.streams || rnd(p, 2))) {
		ds = 0;
		wr->row = ROW_RAW_EMPTY;
	} else if (row) {
		ds = limit + 1;
		wr->row = ROW_RAW_TOO_LONG;
	} else if (ds > limit) {
		ds = limit;
	}
	for (uint32_t i = 0; i < RAW_MAX; i += 8) {
		uint64_t bytes = rnd64(p);

		memcpy(wr->raw + i, &bytes, 8);
	}
	wr->raw[7] = (uint8_t)((wr->raw[7] & 0xc0) | ds);
}

static void gen_memcpy(struct prng *p, const struct world *w, struct wr *wr, bool fail)
{
	wr->dst_lkey = (uint32_t)rnd64(p);
	wr->src_lkey = (uint32_t)rnd64(p);
	wr->dst = an_address(p, w);
	wr->src = an_address(p, w);
	wr->length = one_in(p, 6) ? 1u << 31 : 1 + rnd(p, 1u << 30);
	if (fail) {
		wr->length = rnd(p, 2) ? 0 : (1ull << 31) + 1 + rnd(p, 5);
		wr->faulty = true;
	}
}

static void gen_common(struct prng *p, const struct world *w, struct wr *wr)
{
	(void)w;
	wr->wr_id = rnd64(p);
	wr->flags = (one_in(p, 5) ? IBV_SEND_FENCE : 0) | (rnd(p, 2) ? IBV_SEND_SIGNALED : 0) |
		    (one_in(p, 5) ? IBV_SEND_SOLICITED : 0);
	wr->imm = (uint32_t)rnd64(p);
	wr->rkey = (uint32_t)rnd64(p);
	wr->raddr = rnd64(p);
	wr->compare = rnd64(p);
	wr->swap = rnd64(p);
	wr->ah = rnd(p, AH_COUNT);
	wr->dctn = (uint32_t)rnd64(p) & 0xffffff;
	wr->qkey = (uint32_t)rnd64(p);
	wr->dckey = rnd64(p);
	wr->addr_first = rnd(p, 2);
	wr->stream_given = rnd(p, 2);
	wr->stream = w->cfg.streams ? (uint16_t)rnd(p, 8) : (uint16_t)rnd64(p);
}

/* Fills in a request of an operation that was chosen. */
static void gen_args(struct prng *p, const struct world *w, struct wr *wr, bool fail, bool row)
{
	switch (wr->op) {
	case OP_BIND:
		gen_bind(p, w, wr, fail);
		break;
	case OP_LINV:
		break;
	case OP_LIST:
	case OP_INTERLEAVED:
	case OP_CONFIGURE:
		gen_mkey(p, w, wr, fail, row);
		break;
	case OP_RAW:
		gen_raw(p, w, wr, row);
		break;
	case OP_MEMCPY:
		gen_memcpy(p, w, wr, fail);
		break;
	default:
		gen_data(p, w, wr, fail, row);
	}
}

static uint32_t nth_bit(uint32_t bits, uint32_t n)
{
	for (uint32_t i = 0;; i++) {
		if (bits & BIT(i) && !n--)
			return i;
	}
}

static uint32_t any_bit(struct prng *p, uint32_t bits)
{
	return nth_bit(bits, rnd(p, (uint32_t)__builtin_popcount(bits)));
}

/* Operations that the queue pair was created for. */
static uint32_t ops_asked(const struct config *cfg)
{
	uint32_t ops = 0;

	for (unsigned int op = 0; op < COUNT(op_flag); op++) {
		if (op < OP_LIST ? cfg->send_ops & op_flag[op] : cfg->dv_ops & op_flag[op])
			ops |= BIT(op);
	}
	return ops;
}

static void gen_wr(struct prng *p, const struct world *w, struct wr *wr, bool fail, bool row)
{
	uint32_t asked = ops_asked(&w->cfg), others = kind_ops[w->cfg.kind].wr & ~asked;

	/* SEND alone brings SEND_WITH_INV with it. */
	if (w->cfg.send_ops & IBV_QP_EX_WITH_SEND)
		others &= ~BIT(OP_SEND_INV);
	gen_common(p, w, wr);
	if (row && others && rnd(p, 2)) {
		wr->op = any_bit(p, others);
		gen_args(p, w, wr, false, false);
		wr->row = ROW_OPS_FLAGS;
		wr->n = wr->setter >= BY_INLINE ? 0 : wr->n < 1 ? wr->n : 1;
		return;
	}
	wr->op = any_bit(p, row && asked & OPS_UMR && rnd(p, 2) ? asked & OPS_UMR : asked);
	gen_args(p, w, wr, fail, row);
}

static void gen_post(struct prng *p, const struct world *w, struct wr *wr, bool fail, bool row)
{
	uint32_t ops = kind_ops[w->cfg.kind].post, others = OPS_RELIABLE & ~ops;

	if (w->cfg.ex)		/* WQEs are sized for no others */
		ops &= ops_asked(&w->cfg);
	gen_common(p, w, wr);
	if ((fail && one_in(p, 4)) || (!ops && w->cfg.kind != T_DCI)) {
		wr->op = OP_BAD;
		wr->bad_opcode = 12 + (int)rnd(p, 100);
		wr->faulty = true;
		return;
	}
	if (row && one_in(p, 4)) {
		wr->op = OP_BAD;
		wr->bad_opcode = 10 + (int)rnd(p, 2);
		wr->row = ROW_POST_DRIVER;
		return;
	}
	if ((row && others) || !ops) {
		wr->op = any_bit(p, others);
		wr->row = w->cfg.kind != T_DCI ? ROW_POST_KIND :
			  wr->op == OP_BIND || wr->op == OP_LINV ? ROW_POST_DCI_UMR : ROW_POST_DCI;
		fail = false;
	} else {
		wr->op = any_bit(p, ops);
	}
	if (wr->op == OP_BIND || wr->op == OP_LINV) {
		gen_args(p, w, wr, fail, false);
		return;
	}
	wr->setter = rnd(p, 2) ? BY_SGE_LIST : BY_INLINE_LIST;
	/* There is no inline atomic; where its data would begin at the ring's end, libmlx5 writes behind it. */
	if (w->cfg.kind == T_XRC && (wr->op == OP_CAS || wr->op == OP_FAA))
		wr->setter = BY_SGE_LIST;
	if (wr->setter == BY_INLINE_LIST)
		gen_inline(p, w, wr, w->cap.max_send_sge < 8 ? w->cap.max_send_sge : 8, fail);
	else
		wr->n = rnd(p, w->cap.max_send_sge + 1);
	if (wr->setter == BY_SGE_LIST && fail) {
		wr->n = w->cap.max_send_sge + 1 + rnd(p, 2);
		wr->faulty = true;
	}
	if (wr->setter == BY_SGE_LIST)
		some_sges(p, w, wr->sge, wr->n);
	if (wr->setter == BY_INLINE_LIST)
		wr->flags |= IBV_SEND_INLINE;
	if (row && !wr->row && !wr->faulty && wr->setter == BY_SGE_LIST && wr->n) {
		wr->row = ROW_SGE_LENGTH;
		wr->sge[rnd(p, wr->n)].length |= 0x80000000u;
	}
}

static enum step_kind gen_kind(struct prng *p, const struct world *w)
{
	bool builders = w->qpx && ops_asked(&w->cfg);

	switch (rnd(p, 20)) {
	case 0:
		return STEP_ARM;
	case 1:
	case 2:
		return STEP_COMPLETE;
	case 3:
		return one_in(p, 4) ? STEP_RESET : STEP_COMPLETE;
	case 4:
	case 5:
		return STEP_RECV;
	case 6:
		return STEP_RECV_DONE;
	case 7:
		return builders ? STEP_ABORT : STEP_POST_SEND;
	case 8:
	case 9:
	case 10:
	case 11:
		return w->cfg.kind == T_DCI && builders && rnd(p, 8) ? STEP_WR : STEP_POST_SEND;
	default:
		return builders ? STEP_WR : STEP_POST_SEND;
	}
}

void gen_step(struct world *w, struct step *s, uint32_t index)
{
	struct prng p = prng_at(w->seed, 1000 + index * 64);
	uint32_t row_at, fail_at;

	memset(s, 0, sizeof(*s));
	s->index = index;
	s->kind = gen_kind(&p, w);
	if (s->kind > STEP_POST_SEND)
		return;
	s->n = one_in(&p, 3) ? 1 : one_in(&p, 3) ? 1 + rnd(&p, BATCH_MAX) : 1 + rnd(&p, 4);
	if (s->n > w->max_post)
		s->n = w->max_post;
	if (s->kind == STEP_POST_SEND && !kind_ops[w->cfg.kind].post)
		s->n = 1;
	/* At most one request that is answered otherwise, and then none that both refuse. */
	row_at = s->kind != STEP_ABORT && one_in(&p, 10) ? rnd(&p, s->n) : UINT32_MAX;
	fail_at = row_at == UINT32_MAX && one_in(&p, 6) ? rnd(&p, s->n) : UINT32_MAX;
	for (uint32_t k = 0; k < s->n; k++) {
		struct prng q = prng_at(w->seed, 1000 + index * 64 + 1 + k);

		if (s->kind == STEP_POST_SEND)
			gen_post(&q, w, &s->wr[k], k == fail_at, k == row_at);
		else
			gen_wr(&q, w, &s->wr[k], k == fail_at, k == row_at);
	}
}
