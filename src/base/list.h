/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lists that an object joins and leaves at once, however many are on them: the link lies in the object, which
 * container_of() finds again. A link that is all zero is on no list, and a list is a pointer to its first link. */
#ifndef SMX_LIST_H
#define SMX_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bits.h"

struct smx_list_link { struct smx_list_link *next, **at; };	/* at: what points here */

static inline bool smx_is_listed(const struct smx_list_link *l)
{
	return l->at != NULL;
}

/* At the front. */
static inline void smx_list_add(struct smx_list_link **list, struct smx_list_link *l)
{
	l->next = *list;
	l->at = list;
	if (l->next)
		l->next->at = &l->next;
	*list = l;
}

static inline void smx_list_remove(struct smx_list_link *l)
{
	*l->at = l->next;
	if (l->next)
		l->next->at = l->at;
	*l = (struct smx_list_link){ NULL, NULL };
}

#endif
