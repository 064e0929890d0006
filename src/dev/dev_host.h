/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Queue-pair numbers, and what a medium of several processes needs of the device. */
#ifndef SMX_DEV_HOST_H
#define SMX_DEV_HOST_H

#include "obj/qp.h"

/* A free number for obj: of a block that the port gave, or of all where the port gives none. RETURN 0 or
 * ENOMEM. */
int smx_dev_number(struct smx_dev *dev, void *obj, uint32_t *id);
void smx_dev_number_free(struct smx_dev *dev, uint32_t id);

/* Others may send to qp from now on: notes whether those can be other processes. */
void smx_dev_note_reachable(struct smx_dev *dev, const struct smx_qp *qp);

/* What others may do with a key from now on; and that they may do nothing any more, when it returns. */
void smx_dev_publish_key(struct smx_dev *dev, const struct smx_mkey *mkey);
void smx_dev_withdraw_key(struct smx_dev *dev, const struct smx_mkey *mkey);

#endif
