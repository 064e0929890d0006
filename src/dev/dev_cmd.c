/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Commands on protection domains, keys, completion queues and shared receive queues.
 *
 * The rules of each object are in obj; here is who uses whom. */
#include "dev/dev.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "dev/dev_host.h"
#include "obj/cq.h"
#include "obj/mkey.h"
#include "obj/srq.h"

/* Protection domains and XRC domains */

int smx_cmd_alloc_pd(struct smx_dev *dev, struct smx_pd **out, uint32_t *pdn)
{
	struct smx_pd *pd = calloc(1, sizeof(*pd));

	if (!pd || smx_idmap_add(&dev->pds, pd, &pd->pdn)) {
		free(pd);
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_NO_RESOURCES, NULL,
				  "protection domains in use %" PRIu32 " of %" PRIu32,
				  dev->pds.used, dev->pds.max);
	}
	*out = pd;
	*pdn = pd->pdn;
	return 0;
}

int smx_cmd_dealloc_pd(struct smx_dev *dev, struct smx_pd *pd)
{
	void *was;

	if (pd->users)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_OBJECT_BUSY, NULL,
				  "pd 0x%" PRIx32 " is used by %" PRIu32 " objects", pd->pdn,
				  pd->users);
	was = smx_idmap_remove(&dev->pds, pd->pdn);
	assert(was == pd);
	(void)was;
	free(pd);
	return 0;
}

int smx_cmd_alloc_xrcd(struct smx_dev *dev, struct smx_xrcd **out)
{
	struct smx_xrcd *xrcd = calloc(1, sizeof(*xrcd));

	if (!xrcd || smx_idmap_add(&dev->xrcds, xrcd, &xrcd->xrcdn)) {
		free(xrcd);
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_NO_RESOURCES, NULL,
				  "XRC domains in use %" PRIu32 " of %" PRIu32, dev->xrcds.used,
				  dev->xrcds.max);
	}
	*out = xrcd;
	return 0;
}

int smx_cmd_dealloc_xrcd(struct smx_dev *dev, struct smx_xrcd *xrcd)
{
	void *was;

	if (xrcd->users)
		return smx_refuse(dev->attr.env.refusals, SMX_CHECK_OBJECT_BUSY, NULL,
				  "xrcd 0x%" PRIx32 " is used by %" PRIu32 " objects", xrcd->xrcdn,
				  xrcd->users);
	was = smx_idmap_remove(&dev->xrcds, xrcd->xrcdn);
	assert(was == xrcd);
	(void)was;
	free(xrcd);
	return 0;
}

/* Memory keys. A region under a bound window, or under an indirect key, may go: the next access
 * through those finds no key. */

int smx_cmd_create_mkey(struct smx_dev *dev, const struct smx_mkey_attr *attr,
			struct smx_mkey **mkey, uint32_t *key)
{
	int err = smx_mkey_create(dev, attr, mkey);

	if (!err) {
		*key = (*mkey)->key;
		smx_dev_publish_key(dev, *mkey);
	}
	return err;
}

void smx_cmd_share_mkey(struct smx_dev *dev, struct smx_mkey *mkey)
{
	mkey->attr.shared = true;
	smx_dev_publish_key(dev, mkey);
}

int smx_cmd_modify_mkey(struct smx_dev *dev, struct smx_mkey *mkey, int which,
			const struct smx_mkey_attr *attr)
{
	int err;

	smx_dev_withdraw_key(dev, mkey);
	err = smx_mkey_modify(dev, mkey, which, attr);
	smx_dev_publish_key(dev, mkey);
	return err;
}

int smx_cmd_destroy_mkey(struct smx_dev *dev, struct smx_mkey *mkey)
{
	smx_dev_withdraw_key(dev, mkey);
	return smx_mkey_destroy(dev, mkey);
}

uint32_t smx_mkey_key(const struct smx_mkey *mkey)
{
	return mkey->key;
}

/* Completion queues */

int smx_cmd_create_cq(struct smx_dev *dev, const struct smx_cq_attr *attr, struct smx_cq **cq,
		      uint32_t *cqn)
{
	int err = smx_cq_create(dev, attr, cq);

	if (!err)
		*cqn = (*cq)->cqn;
	return err;
}

int smx_cmd_resize_cq(struct smx_dev *dev, struct smx_cq *cq, void *buf, uint32_t cqe_count)
{
	return smx_cq_resize(dev, cq, buf, cqe_count);
}

int smx_cmd_destroy_cq(struct smx_dev *dev, struct smx_cq *cq)
{
	if (!cq->users)
		smx_dev_watch_cq(dev, cq, false);
	return smx_cq_destroy(dev, cq);
}

/* Shared receive queues */

int smx_cmd_create_srq(struct smx_dev *dev, const struct smx_srq_attr *attr, struct smx_srq **srq,
		       uint32_t *srqn)
{
	int err = smx_srq_create(dev, attr, srq);

	if (!err)
		*srqn = (*srq)->srqn;
	return err;
}

int smx_cmd_arm_srq(struct smx_dev *dev, struct smx_srq *srq, uint32_t limit)
{
	return smx_srq_arm(dev, srq, limit);
}

int smx_cmd_query_srq(struct smx_dev *dev, struct smx_srq *srq, uint32_t *limit)
{
	(void)dev;
	*limit = srq->limit_armed ? srq->attr.limit : 0;
	return 0;
}

uint32_t smx_srq_users(const struct smx_srq *srq)
{
	return srq->users;
}

int smx_cmd_destroy_srq(struct smx_dev *dev, struct smx_srq *srq)
{
	return smx_srq_destroy(dev, srq);
}
