/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Contexts: opening, importing and closing the device; their asynchronous events. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"
#include "base/settings.h"
#include "verbs/event_queue.h"
#include "verbs/ibv_device.h"
#include "verbs/objects.h"

enum {
	UAR_BLUEFLAME = 0x800,		/* where the first BlueFlame register lies in a page */
	UAR_BLUEFLAMES = 4,		/* of two halves, in a page */
	/* Nobody looks at the driver's own registers, but whoever posts stores there. */
	OWN_UAR_PAGES = 16,
	BLUEFLAME_BYTES = 256,		/* of one half */
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct smx_list_link *all;

static void list_add(struct smx_ctx *ctx)
{
	pthread_mutex_lock(&all_lock);
	smx_list_add(&all, &ctx->open);
	pthread_mutex_unlock(&all_lock);
}

static void list_remove(struct smx_ctx *ctx)
{
	pthread_mutex_lock(&all_lock);
	smx_list_remove(&ctx->open);
	pthread_mutex_unlock(&all_lock);
}

/* The descriptor's identity is all that is used of it; a copy made by dup(2) has the same. */
static int identify(int fd, uint64_t id[2])
{
	struct stat st;

	if (fstat(fd, &st))
		return errno;
	id[0] = st.st_dev;
	id[1] = st.st_ino;
	return 0;
}

/* The 64 bytes that memcpy WQEs name, with their key. */
static int make_opaque(struct smx_ctx *ctx)
{
	struct smx_mkey_attr attr = {
		.kind = SMX_MKEY_DIRECT,
		.access = IBV_ACCESS_LOCAL_WRITE,
		.start = (uintptr_t)ctx->opaque,
		.length = sizeof(ctx->opaque),
		.host = ctx->opaque,
	};
	uint32_t pdn;
	int err;

	smx_engine_lock();
	err = smx_cmd_alloc_pd(smx_engine_dev(), &ctx->opaque_pd, &pdn);
	if (!err) {
		attr.pd = ctx->opaque_pd;
		err = smx_cmd_create_mkey(smx_engine_dev(), &attr, &ctx->opaque_mkey,
					  &ctx->opaque_lkey);
	}
	smx_engine_unlock();
	return err;
}

static int make_uar(struct smx_ctx *ctx)
{
	int err = smx_uar_page_map(&ctx->own_uar, OWN_UAR_PAGES, false);

	return err ? err : smx_uar_page_map(&ctx->given_uar, 1, true);
}

struct smx_dv_bf smx_ctx_next_bf(struct smx_ctx *ctx)
{
	uint32_t n = __atomic_fetch_add(&ctx->bf_count, 1, __ATOMIC_RELAXED);
	size_t page = n / UAR_BLUEFLAMES % OWN_UAR_PAGES, page_bytes = ctx->own_uar.bytes / OWN_UAR_PAGES;

	return (struct smx_dv_bf){
		.reg = ctx->own_uar.base + page * page_bytes + UAR_BLUEFLAME +
		       n % UAR_BLUEFLAMES * 2 * BLUEFLAME_BYTES,
		.uuarn = 1,
		.buf_bytes = BLUEFLAME_BYTES,
	};
}

static int make_events(struct smx_ctx *ctx)
{
	int err;

	ctx->async = malloc(sizeof(*ctx->async));
	if (!ctx->async)
		return ENOMEM;
	err = smx_event_queue_init(ctx->async);
	if (err) {
		free(ctx->async);
		ctx->async = NULL;
		return err;
	}
	ctx->v.context.async_fd = ctx->async->read_fd;
	return 0;
}

static void fill_ops(struct smx_ctx *ctx)
{
	struct verbs_context *v = &ctx->v;

	v->sz = sizeof(*v);
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->context.num_comp_vectors = SMX_COMP_VECTORS;
	smx_ops_not_offered(v);
	smx_ops_query(v);
	smx_ops_pd(v);
	smx_ops_mr(v);
	smx_ops_cq(v);
	smx_ops_srq(v);
	smx_ops_qp(v);
}

/* Undoes whatever of a context was made. The device is this context's until the end. */
static void unmake(struct smx_ctx *ctx)
{
	smx_engine_lock();
	if (ctx->opaque_mkey)
		smx_cmd_destroy_mkey(smx_engine_dev(), ctx->opaque_mkey);
	if (ctx->opaque_pd)
		smx_cmd_dealloc_pd(smx_engine_dev(), ctx->opaque_pd);
	smx_engine_unlock();
	smx_engine_uar_gone(&ctx->given_uar);
	smx_engine_put();
	if (ctx->async)
		smx_event_queue_fini(ctx->async);
	free(ctx->async);
	if (ctx->v.context.cmd_fd >= 0)
		close(ctx->v.context.cmd_fd);
	smx_uar_page_unmap(&ctx->own_uar);
	smx_uar_page_unmap(&ctx->given_uar);
	pthread_mutex_destroy(&ctx->v.context.mutex);
	free(ctx);
}

/* Takes over cmd_fd. RETURN the context, or NULL with errno set; cmd_fd is the caller's then. */
static struct ibv_context *open_context(struct ibv_device *device, int cmd_fd, bool imported)
{
	struct smx_ctx *ctx = calloc(1, sizeof(*ctx));
	const char *single = getenv("MLX5_SINGLE_THREADED");
	int err;

	if (!ctx) {
		errno = ENOMEM;
		return NULL;
	}
	err = smx_engine_get();
	if (err) {
		free(ctx);
		errno = err;
		return NULL;
	}
	ctx->v.context.device = device;
	ctx->v.context.cmd_fd = -1;
	ctx->v.context.async_fd = -1;
	ctx->imported = imported;
	ctx->device_off = !strcmp(smx_setting_text(SMX_SET_DEVICE), "off");
	ctx->single_threaded = single && !strcmp(single, "1");
	pthread_mutex_init(&ctx->v.context.mutex, NULL);
	err = identify(cmd_fd, ctx->id);
	if (!err)
		err = make_uar(ctx);
	if (!err)
		err = make_events(ctx);
	if (!err)
		err = make_opaque(ctx);
	if (err) {
		unmake(ctx);
		errno = err;
		return NULL;
	}
	ctx->v.context.cmd_fd = cmd_fd;
	ctx->refusals_from = __atomic_load_n(&smx_refusals()->count, __ATOMIC_RELAXED);
	fill_ops(ctx);
	list_add(ctx);
	return &ctx->v.context;
}

struct ibv_context *smx_ctx_open(struct ibv_device *device)
{
	struct ibv_context *context;
	int fd = memfd_create("softmlx5", MFD_CLOEXEC);

	if (fd < 0)
		return NULL;
	context = open_context(device, fd, false);
	if (!context) {
		int err = errno;

		close(fd);
		errno = err;
	}
	return context;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return smx_ctx_open(device);
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	bool found = false;
	uint64_t id[2];
	int err = identify(cmd_fd, id);

	if (err) {
		errno = err;
		return NULL;
	}
	pthread_mutex_lock(&all_lock);
	for (struct smx_list_link *l = all; l && !found; l = l->next) {
		const struct smx_ctx *ctx = container_of(l, struct smx_ctx, open);

		found = ctx->id[0] == id[0] && ctx->id[1] == id[1];
	}
	pthread_mutex_unlock(&all_lock);
	if (!found) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				   "descriptor %d is no context of this process", cmd_fd);
		return NULL;
	}
	return open_context(smx_device(), cmd_fd, true);
}

void smx_ctx_hold(struct ibv_context *context)
{
	__atomic_fetch_add(&smx_ctx_of(context)->refs, 1, __ATOMIC_RELAXED);
}

void smx_ctx_drop(struct ibv_context *context)
{
	struct smx_ctx *ctx = smx_ctx_of(context);

	if (!__atomic_sub_fetch(&ctx->refs, 1, __ATOMIC_ACQ_REL) &&
	    __atomic_load_n(&ctx->closed, __ATOMIC_ACQUIRE))
		unmake(ctx);
}

/* Objects that the program left behind keep their context alive until they are destroyed, so that a
 * late ibv_destroy_* or ibv_dereg_mr does not touch freed memory. */
int ibv_close_device(struct ibv_context *context)
{
	struct smx_ctx *ctx = smx_ctx_of(context);
	uint32_t left;

	list_remove(ctx);
	smx_ctx_hold(context);
	__atomic_store_n(&ctx->closed, true, __ATOMIC_RELEASE);
	left = __atomic_load_n(&ctx->refs, __ATOMIC_RELAXED) - 1;
	if (left)
		smx_log(SMX_LOG_INFO,
			"a context was closed with %u objects left in it; it stays until they go",
			left);
	smx_ctx_drop(context);
	return 0;
}

/* ---- asynchronous events ---- */

/* RETURN NULL where the type is not about an object. */
static struct smx_events *events_of(enum ibv_event_type type, void *obj)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return &((struct smx_vcq *)obj)->async_events;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &((struct smx_vsrq *)obj)->async_events;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &((struct smx_vqp *)obj)->async_events;
	default:
		return NULL;
	}
}

void smx_event_async(enum ibv_event_type type, void *obj)
{
	struct smx_events *events = events_of(type, obj);
	struct ibv_context *context;

	/* Every object begins with its context; the device itself raises nothing else. */
	if (!obj || !events)
		return;
	context = *(struct ibv_context **)obj;
	smx_event_queue_push(
		smx_ctx_of(context)->async,
		&(struct smx_event){ .obj = obj, .type = type, .events = events });
}

void smx_event_async_end(struct ibv_context *context, struct smx_events *events,
			 pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	uint32_t read = smx_event_queue_forget(smx_ctx_of(context)->async, events);

	pthread_mutex_lock(mutex);
	while (*completed != read)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct smx_event e;

	if (smx_event_queue_pop(smx_ctx_of(context)->async, &e))
		return -1;
	event->event_type = e.type;
	event->element.qp = e.obj;	/* a union of pointers */
	return 0;
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_cq *cq = event->element.cq;
	struct ibv_srq *srq = event->element.srq;
	struct ibv_qp *qp = event->element.qp;

	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	default:
		if (events_of(event->event_type, qp))
			acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	}
}
