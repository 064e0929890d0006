/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the exported verbs hand out: each begins with the structure that rdma-core's header shows the
 * program, then the driver's part (dv), then the device's object and bookkeeping. */
#ifndef SMX_VERBS_OBJECTS_H
#define SMX_VERBS_OBJECTS_H

#include <pthread.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "base/fast_clock.h"
#include "base/list.h"
#include "dv/dv_cq.h"
#include "dv/dv_qp.h"
#include "dv/dv_srq.h"
#include "dv/dv_tag.h"
#include "dv/dv_table.h"
#include "verbs/engine.h"
#include "verbs/event_queue.h"
#include "verbs/queue_mem.h"

struct smx_ctx {
	struct verbs_context v;		/* v.context is the program's ibv_context */
	uint32_t refs;			/* objects in it, by smx_ctx_hold(); once closed it goes with the last */
	struct smx_uar_page own_uar; /* what the driver rings: BlueFlame registers and CQ arm doorbell;
					ordinary memory */
	struct smx_uar_page given_uar;	/* what programs are given: looked at, and protected at times */
	uint32_t bf_count;		/* registers that queue pairs were given, ever */
	struct smx_pd *opaque_pd;	/* the device-owned 64 bytes that memcpy WQEs name */
	struct smx_mkey *opaque_mkey;
	uint32_t opaque_lkey;
	uint8_t opaque[64];
	struct smx_event_queue *async;	/* read through context.async_fd */
	bool devx;			/* opened by mlx5dv_open_device(DEVX) */
	uint64_t refusals_from;		/* refusal count when it was opened */
	struct smx_list_link open;	/* among all of the process; ibv_import_device finds by cmd_fd */
	bool imported;
	bool closed;			/* by the program, while objects were left in it */
	bool device_off;		/* SOFTMLX5_DEVICE=off: queues are written and nothing follows a doorbell */
	bool single_threaded;		/* MLX5_SINGLE_THREADED=1: no queue is locked */
	struct mlx5dv_ctx_allocators allocators;	/* mlx5dv_set_context_attr: queue memory; alloc NULL: none */
	uint64_t id[2];			/* device and inode of cmd_fd; an imported context has the same */
};

/* A BlueFlame register for another queue pair: they have one after the other, lest threads that post to queue pairs of
 * their own store to the same lines. */
struct smx_dv_bf smx_ctx_next_bf(struct smx_ctx *ctx);

static inline struct smx_ctx *smx_ctx_of(struct ibv_context *context)
{
	return (struct smx_ctx *)(void *)((char *)context - offsetof(struct smx_ctx, v.context));
}

/* A protection domain, or a parent domain over one (then base is set and the callbacks may be). */
struct smx_vpd {
	struct ibv_pd ibv;
	struct smx_pd *dev;
	uint32_t pdn;
	struct smx_vpd *base;		/* of a parent domain */
	struct ibv_td *td;
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment, uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type);
	void *pd_context;
	uint32_t users;			/* parent domains over it, and objects: smx_vpd_hold() */
	bool imported;
};

struct smx_vtd { struct ibv_td ibv; uint32_t users; };

static inline struct smx_vpd *smx_vpd_of(struct ibv_pd *pd)
{
	return (struct smx_vpd *)(void *)pd;
}

/* An object was made in a context, or is gone. */
void smx_ctx_hold(struct ibv_context *context);
void smx_ctx_drop(struct ibv_context *context);
/* An object that was made with this domain, parent or plain, keeps it from being deallocated (EBUSY). NULL is
 * allowed. */
void smx_vpd_hold(struct smx_vpd *pd);
void smx_vpd_drop(struct smx_vpd *pd);
/* Whether the queues of an object in this domain (or NULL) need a lock: not with a thread domain, nor under
 * MLX5_SINGLE_THREADED=1. */
bool smx_lock_needed(struct ibv_context *context, struct smx_vpd *pd);

struct smx_vmr {
	struct ibv_mr ibv;
	struct smx_mkey *dev;
	uint32_t access;
	uint32_t pdn;
	uint64_t start;			/* first address in the key's own space */
	void *host;			/* the program's memory that others may be given, or NULL */
	size_t host_length;
	bool shared;			/* it is */
	struct smx_vmr *next, **prev;	/* regions with host; under the engine's lock */
	struct smx_vdm *dm;
	bool imported;
};

struct smx_vmw { struct ibv_mw ibv; struct smx_mkey *dev; };

struct smx_vmkey {
	struct smx_dv_mkey dv;		/* dv.dv is the program's mlx5dv_mkey */
	struct smx_mkey *dev;
	struct smx_vpd *pd;
	struct ibv_context *context;
};

struct smx_vdm {
	struct ibv_dm ibv;
	uint8_t *mem;
	uint64_t length;
	uint32_t users;			/* regions registered over it */
	bool imported;
};

struct smx_vcq {
	struct smx_dv_cq dv;
	struct smx_cq *dev;
	struct smx_ring ring;		/* arming */
	struct smx_queue_mem ring_mem, dbrec_mem;
	struct smx_vpd *parent;		/* parent domain its memory came from, or NULL */
	struct smx_events comp_events, async_events;	/* for get_cq_event, get_async_event */
	struct smx_vcq *raised_next;	/* whose events are told at the end of the turn; see engine.c */
	uint32_t raised;		/* how many */
	uint32_t cqe_bytes;
	bool basic;			/* of ibv_create_cq: it has no extended poll */
	bool dv_owned;			/* mlx5dv_init_obj gave it away: the program consumes, dv.ci is stale */
	bool watched;			/* and may arm it: smx_engine_watch_cq */
};

struct smx_vsrq {
	struct smx_dv_srq dv;
	struct smx_srq *dev;
	struct smx_ring ring;
	struct smx_queue_mem ring_mem, dbrec_mem;
	struct smx_vpd *pd;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	enum ibv_srq_type type;
	struct smx_events async_events;
	struct ibv_srq_attr attr;	/* as granted */
	uint32_t tag_count;		/* of the device's matching list; 0: none */
	struct ibv_qp *cmd;		/* tag matching: what ibv_post_srq_ops posts to */
};

struct smx_vxrcd {
	struct ibv_xrcd ibv;
	struct smx_xrcd *dev;
	int fd;
	struct smx_xrcd_file *file;	/* whoever else opened it by the same file; see ibv_xrcd.c */
};

struct smx_vqp {
	struct smx_dv_qp dv;
	struct smx_qp *dev;
	be32 own_dbrec[2] __attribute__((aligned(8)));	/* where no allocator of a parent domain gives one */
	struct smx_ring ring_sq, ring_rq;
	struct smx_queue_mem ring_mem, dbrec_mem;
	struct smx_vpd *pd;
	struct ibv_qp_init_attr init;	/* as granted */
	enum smx_qp_type dev_type;
	struct smx_events async_events;
	uint64_t failures;		/* failed work requests of this queue pair; the first is a line on stderr */
	uint64_t flushes;		/* those flushed behind a failure; counted, not printed */
	bool fork_copy;
	bool watched;			/* mlx5dv_init_obj gave its queues away: smx_engine_watch_qp */
	struct smx_xrc_tgt *tgt;	/* XRC_RECV: what ibv_open_qp shares; see ibv_qp_xrc.c */
};

/* Resolves an address: GID index to GID, destination to a MAC on RoCE. RETURN 0 or an errno after a refusal. */
struct smx_path;
int smx_path_resolve(struct ibv_context *context, const struct ibv_ah_attr *attr, struct smx_path *path,
		     uint8_t dmac[6]);
/* The GID at an index of port 1. RETURN 0, or ENODATA for an empty one. */
int smx_gid_get(struct ibv_context *context, uint32_t index, union ibv_gid *gid, uint32_t *type, uint32_t *ifindex);

/* One way to make a queue pair, for ibv_create_qp, _ex and mlx5dv_create_qp. */
struct ibv_qp *smx_vqp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
			      struct mlx5dv_qp_init_attr *mlx5_attr);

/* Says once, on the log, that a function is not offered; sets errno. RETURN EOPNOTSUPP. */
int smx_not_offered(const char *function);

/* Event delivery, called by the device's environment. */
void smx_event_cq(void *vcq);
void smx_event_async(enum ibv_event_type type, void *obj);
/* Destroying an object, after the device forgot it: unread asynchronous events that name it vanish; then
 * waits until the program acknowledged those that it read. events: the object's async_events; completed: the
 * public counter under mutex. */
void smx_event_async_end(struct ibv_context *context, struct smx_events *events, pthread_mutex_t *mutex,
			 pthread_cond_t *cond, uint32_t *completed);

/* ibv_create_cq, _ex and mlx5dv_create_cq. cqe_bytes: 0 for the default (MLX5_CQE_SIZE or 64), 64 or 128. */
struct ibv_cq_ex *smx_vcq_create(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr, uint32_t cqe_bytes);
/* ibv_alloc_dm and mlx5dv_alloc_dm. */
struct ibv_dm *smx_vdm_create(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
/* A context of the device, for ibv_open_device and mlx5dv_open_device. */
struct ibv_context *smx_ctx_open(struct ibv_device *device);

/* Fills the operations of a new context (ibv_context_ops and verbs_context). Each file offers its own. */
void smx_ops_pd(struct verbs_context *v);	/* ibv_pd.c: pd, parent domain, thread domain */
void smx_ops_mr(struct verbs_context *v);	/* ibv_mr.c: regions, windows; and ibv_dm.c: */
void smx_ops_dm(struct verbs_context *v);	/* device memory */
void smx_ops_cq(struct verbs_context *v);	/* ibv_cq.c */
void smx_ops_srq(struct verbs_context *v);	/* ibv_srq.c: srq; and ibv_xrcd.c: */
void smx_ops_xrcd(struct verbs_context *v);
void smx_ops_qp(struct verbs_context *v);	/* ibv_qp.c */

#endif
