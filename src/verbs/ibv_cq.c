/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Completion queues and the channels that announce completions. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/bits.h"
#include "verbs/event_queue.h"
#include "verbs/handles.h"
#include "verbs/ibv_device.h"
#include "verbs/objects.h"

struct channel {
	struct ibv_comp_channel ibv;
	struct smx_event_queue events;
};

static struct smx_vcq *vcq_of(struct ibv_cq *cq)
{
	return (struct smx_vcq *)(void *)cq;
}

/* ---- channels ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *ch = calloc(1, sizeof(*ch));
	int err = ch ? smx_event_queue_init(&ch->events) : ENOMEM;

	if (err) {
		free(ch);
		errno = err;
		return NULL;
	}
	ch->ibv = (struct ibv_comp_channel){ .context = context, .fd = ch->events.read_fd };
	smx_ctx_hold(context);
	return &ch->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct channel *ch = (struct channel *)(void *)channel;
	struct ibv_context *context = channel->context;
	int users;

	pthread_mutex_lock(&context->mutex);
	users = channel->refcnt;
	pthread_mutex_unlock(&context->mutex);
	if (users)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_BUSY, NULL,
				  "completion channel of descriptor %d has %d completion queues",
				  channel->fd, users);
	smx_event_queue_fini(&ch->events);
	free(ch);
	smx_ctx_drop(context);
	return 0;
}

static void channel_use(struct ibv_cq *cq, int change)
{
	if (!cq->channel)
		return;
	pthread_mutex_lock(&cq->context->mutex);
	cq->channel->refcnt += change;
	pthread_mutex_unlock(&cq->context->mutex);
}

void smx_event_cq(void *cookie)
{
	struct smx_vcq *vcq = cookie;
	struct channel *ch = (struct channel *)(void *)vcq->dv.ex.channel;

	if (ch)
		smx_event_queue_push(
			&ch->events,
			&(struct smx_event){ .obj = vcq, .events = &vcq->comp_events });
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct channel *ch = (struct channel *)(void *)channel;
	struct smx_event e;

	if (smx_event_queue_pop(&ch->events, &e))
		return -1;
	*cq = e.obj;
	*cq_context = (*cq)->cq_context;
	/* The next arming is a new one: the device ignores repetitions of one that was answered. */
	__atomic_fetch_add(&vcq_of(*cq)->dv.arm_sn, 1, __ATOMIC_RELAXED);
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* ---- hooks of the driver's part ---- */

static bool idle(struct smx_dv_cq *dv)
{
	(void)dv;
	return smx_engine_poll();
}

static void arm(struct smx_dv_cq *dv, uint32_t arm_word)
{
	struct smx_vcq *vcq = container_of(dv, struct smx_vcq, dv);

	__atomic_store_n(&vcq->ring.arm_word, arm_word, __ATOMIC_RELAXED);
	smx_engine_ring(&vcq->ring);
}

/* Device time is CLOCK_MONOTONIC; the wall clock runs beside it at an offset that may change. */
static uint64_t wallclock_ns(struct smx_dv_cq *dv, uint64_t device_ts)
{
	struct timespec ts;

	(void)dv;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec - smx_clock_ns() +
	       device_ts;
}

/* ---- creation ---- */

static int cqe_bytes_default(uint32_t asked)
{
	const char *env = getenv("MLX5_CQE_SIZE");

	return asked ? (int)asked : env ? (int)strtol(env, NULL, 10) : 64;
}

static int check_attr(const struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr,
		      int cqe_bytes)
{
	const uint32_t masks = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	const uint32_t flags =
		IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

	if (!attr->cqe || attr->cqe > SMX_MAX_CQE)
		return smx_refuse(smx_refusals(), SMX_CHECK_CQ_ATTR, NULL,
				  "%u entries, max_cqe is %d", attr->cqe, SMX_MAX_CQE);
	if (attr->comp_vector >= (uint32_t)context->num_comp_vectors)
		return smx_refuse(smx_refusals(), SMX_CHECK_CQ_ATTR, NULL,
				  "comp_vector %u, there are %d", attr->comp_vector,
				  context->num_comp_vectors);
	if (attr->comp_mask & ~masks)
		return smx_refuse(smx_refusals(), SMX_CHECK_CQ_ATTR, NULL, "comp_mask 0x%x",
				  attr->comp_mask);
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & ~flags))
		return smx_refuse(smx_refusals(), SMX_CHECK_CQ_ATTR, NULL, "flags 0x%x",
				  attr->flags);
	if (attr->wc_flags & ~(uint64_t)IBV_CREATE_CQ_SUP_WC_FLAGS)
		return smx_refuse(smx_refusals(), SMX_CHECK_ATTR_MASK, NULL, "wc_flags 0x%llx",
				  (unsigned long long)attr->wc_flags);
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) &&
	    !(attr->parent_domain && smx_vpd_of(attr->parent_domain)->base))
		return smx_refuse(smx_refusals(), SMX_CHECK_CQ_ATTR, NULL,
				  "parent_domain %p is no parent domain",
				  (void *)attr->parent_domain);
	if (cqe_bytes != 64 && cqe_bytes != 128)
		return smx_refuse(smx_refusals(), SMX_CHECK_CQ_ATTR, NULL,
				  "entries of %d bytes, 64 or 128 can be had", cqe_bytes);
	return 0;
}

static void fill_public(struct smx_vcq *vcq, struct ibv_context *context,
			const struct ibv_cq_init_attr_ex *attr, uint32_t cqe_count)
{
	struct ibv_cq_ex *ex = &vcq->dv.ex;

	ex->context = context;
	ex->channel = attr->channel;
	ex->cq_context = attr->cq_context;
	ex->cqe = (int)cqe_count - 1;
	pthread_mutex_init(&ex->mutex, NULL);
	pthread_cond_init(&ex->cond, NULL);
}

static void fill_driver(struct smx_vcq *vcq, struct ibv_context *context,
			const struct ibv_cq_init_attr_ex *attr)
{
	struct smx_ctx *ctx = smx_ctx_of(context);
	bool single = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
		      (attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);

	vcq->dv.uar = ctx->own_uar.base;
	vcq->dv.wc_flags = attr->wc_flags;
	vcq->dv.qps = &smx_qp_table;
	vcq->dv.srqs = &smx_srq_table;
	vcq->dv.lock.needed = !single && !ctx->single_threaded && !(vcq->parent && vcq->parent->td);
	vcq->dv.wallclock_ns = wallclock_ns;
	vcq->dv.idle = ctx->device_off ? NULL : idle;
	vcq->dv.arm = ctx->device_off ? NULL : arm;
}

static int make_memory(struct smx_vcq *vcq, uint32_t cqe_count)
{
	struct ibv_context *context = vcq->dv.ex.context;

	if (!smx_queue_mem_get(&vcq->ring_mem, context, vcq->parent, (size_t)cqe_count * vcq->cqe_bytes,
			       MLX5DV_RES_TYPE_CQ) ||
	    !smx_queue_mem_get(&vcq->dbrec_mem, context, vcq->parent, 8, MLX5DV_RES_TYPE_DBR))
		return ENOMEM;
	smx_dv_cq_init_buf(vcq->ring_mem.at, cqe_count, vcq->cqe_bytes);
	vcq->dv.buf = vcq->ring_mem.at;
	vcq->dv.cqe_count = cqe_count;
	vcq->dv.cqe_bytes = vcq->cqe_bytes;
	vcq->dv.dbrec = vcq->dbrec_mem.at;
	return 0;
}

static void release(struct smx_vcq *vcq)
{
	smx_queue_mem_put(&vcq->ring_mem);
	smx_queue_mem_put(&vcq->dbrec_mem);
	free(vcq);
}

static int make_device_cq(struct smx_vcq *vcq, const struct ibv_cq_init_attr_ex *attr,
			  uint32_t cqe_count)
{
	const struct smx_cq_attr dev_attr = {
		.buf = vcq->ring_mem.at,
		.cqe_count = cqe_count,
		.cqe_bytes = vcq->cqe_bytes,
		.dbrec = vcq->dbrec_mem.at,
		.ignore_overrun = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
				  (attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN),
		.cookie = vcq,
	};
	int err;

	smx_engine_lock();
	err = smx_cmd_create_cq(smx_engine_dev(), &dev_attr, &vcq->dev, &vcq->dv.cqn);
	smx_engine_unlock();
	vcq->ring = (struct smx_ring){ .kind = SMX_RING_CQ, .obj = vcq->dev };
	return err;
}

struct ibv_cq_ex *smx_vcq_create(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
				 uint32_t cqe_bytes)
{
	int bytes = cqe_bytes_default(cqe_bytes);
	int err = check_attr(context, attr, bytes);
	struct smx_vcq *vcq;
	uint32_t cqe_count;

	if (err) {
		errno = err;
		return NULL;
	}
	vcq = calloc(1, sizeof(*vcq));
	if (!vcq) {
		errno = ENOMEM;
		return NULL;
	}
	cqe_count = (uint32_t)pow2_ceil((uint64_t)attr->cqe + 1);
	vcq->cqe_bytes = (uint32_t)bytes;
	vcq->dv.ex.context = context;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		vcq->parent = smx_vpd_of(attr->parent_domain);
	err = make_memory(vcq, cqe_count);
	if (!err) {
		fill_driver(vcq, context, attr);
		err = smx_dv_cq_fill_ops(&vcq->dv);
	}
	if (!err)
		err = make_device_cq(vcq, attr, cqe_count);
	if (err) {
		release(vcq);
		errno = err;
		return NULL;
	}
	fill_public(vcq, context, attr, cqe_count);
	vcq->dv.ex.handle = vcq->dv.cqn;
	channel_use(ibv_cq_ex_to_cq(&vcq->dv.ex), 1);
	smx_vpd_hold(vcq->parent);
	smx_ctx_hold(context);
	return &vcq->dv.ex;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	return smx_vcq_create(context, attr, 0);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe < 0 ? 0 : (uint32_t)cqe,
		.cq_context = cq_context,
		.channel = channel,
		.comp_vector = (uint32_t)comp_vector,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};
	struct ibv_cq_ex *ex = smx_vcq_create(context, &attr, 0);

	if (!ex)
		return NULL;
	vcq_of(ibv_cq_ex_to_cq(ex))->basic = true;
	return ibv_cq_ex_to_cq(ex);
}

/* ---- changing, destroying ---- */

static int resize_locked(struct smx_vcq *vcq, uint32_t cqe_count)
{
	struct smx_queue_mem mem;
	int err;

	if (!smx_queue_mem_get(&mem, vcq->dv.ex.context, vcq->parent, (size_t)cqe_count * vcq->cqe_bytes,
			       MLX5DV_RES_TYPE_CQ))
		return ENOMEM;
	smx_dv_cq_init_buf(mem.at, cqe_count, vcq->cqe_bytes);
	smx_engine_lock();
	err = smx_cmd_resize_cq(smx_engine_dev(), vcq->dev, mem.at, cqe_count);
	if (!err)
		smx_dv_cq_moved(&vcq->dv, mem.at, cqe_count);
	smx_engine_unlock();
	if (err) {
		smx_queue_mem_put(&mem);
		return err;
	}
	smx_queue_mem_put(&vcq->ring_mem);
	vcq->ring_mem = mem;
	vcq->dv.ex.cqe = (int)cqe_count - 1;
	return 0;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct smx_vcq *vcq = vcq_of(cq);
	uint32_t cqe_count;
	int err = 0;

	if (cqe <= 0 || cqe > SMX_MAX_CQE) {
		errno = smx_refuse(smx_refusals(), SMX_CHECK_CQ_ATTR, NULL,
				   "resize to %d entries, max_cqe is %d", cqe, SMX_MAX_CQE);
		return errno;
	}
	cqe_count = (uint32_t)pow2_ceil((uint64_t)cqe + 1);
	smx_dv_lock(&vcq->dv.lock);
	if (cqe_count != vcq->dv.cqe_count)
		err = resize_locked(vcq, cqe_count);
	smx_dv_unlock(&vcq->dv.lock);
	if (err)
		errno = err;
	return err;
}

/* Moderation gathers events to spare interrupts. There are none here: an event is raised with the
 * completion that an armed queue waits for, which moderation allows. */
static int modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	(void)cq;
	if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return smx_refuse(smx_refusals(), SMX_CHECK_CQ_ATTR, NULL,
				  "attr_mask 0x%x of modify_cq", attr->attr_mask);
	return 0;
}

/* Waits until every event that the program read is acknowledged. */
static void end_events(struct smx_vcq *vcq)
{
	struct ibv_cq *cq = ibv_cq_ex_to_cq(&vcq->dv.ex);
	struct channel *ch = (struct channel *)(void *)cq->channel;
	uint32_t read;

	if (ch) {
		read = smx_event_queue_forget(&ch->events, &vcq->comp_events);
		pthread_mutex_lock(&cq->mutex);
		while (cq->comp_events_completed != read)
			pthread_cond_wait(&cq->cond, &cq->mutex);
		pthread_mutex_unlock(&cq->mutex);
	}
	smx_event_async_end(cq->context, &vcq->async_events, &cq->mutex, &cq->cond,
			    &cq->async_events_completed);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct smx_vcq *vcq = vcq_of(cq);
	struct ibv_context *context = cq->context;
	int err;

	smx_engine_ring_drain(&vcq->ring);
	smx_engine_lock();
	err = smx_cmd_destroy_cq(smx_engine_dev(), vcq->dev);
	smx_engine_unlock();
	if (err)
		return err;
	if (vcq->watched)
		smx_engine_watch_end();
	end_events(vcq);
	channel_use(cq, -1);
	smx_vpd_drop(vcq->parent);
	pthread_mutex_destroy(&cq->mutex);
	pthread_cond_destroy(&cq->cond);
	release(vcq);
	smx_ctx_drop(context);
	return 0;
}

void smx_ops_cq(struct verbs_context *v)
{
	v->create_cq_ex = create_cq_ex;
	v->modify_cq = modify_cq;
	v->context.ops.poll_cq = smx_dv_poll_cq;
	v->context.ops.req_notify_cq = smx_dv_req_notify_cq;
}
