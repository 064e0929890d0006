/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The matching list of a tag matching SRQ.
 *
 * Entries are matched in the order they were appended. An unexpected message makes the list cautious: an
 * entry that is appended while the program has not said that it has seen all unexpected ones could
 * overtake one of them, so it does not match until the program has. Both sides count modulo 65536. */
#ifndef SMX_OBJ_TAG_LIST_H
#define SMX_OBJ_TAG_LIST_H

#include "obj/qp.h"

enum { SMX_TAG_NONE = 0xffff };

struct smx_tag {
	uint64_t tag, mask;
	struct smx_sge sge;	/* length 0: an empty buffer */
	bool used, ready;
	uint16_t next, prev;	/* of the list, SMX_TAG_NONE at its ends */
};

struct smx_tag_list {
	uint32_t count;		/* entries, a power of two */
	uint16_t append_at;	/* which entry the next append takes */
	uint16_t head, tail;
	uint16_t unexpected;	/* messages with a tag that met no entry */
	uint16_t told;		/* of those, how many the program said it has seen */
	struct smx_tag entry[];
};

struct smx_tag_list *smx_tag_list_create(uint32_t count);

/* Takes out the first entry that the tag of a message matches. RETURN its index, or SMX_TAG_NONE. */
uint16_t smx_tag_match(struct smx_tag_list *list, uint64_t tag);

/* Carries out a list operation that was posted to qp, and completes it in the SRQ's queue if it asks for that. */
smx_outcome smx_tag_execute(struct smx_dev *dev, struct smx_qp *qp, const struct smx_tag_op *op,
			    const struct smx_where *where);

#endif
