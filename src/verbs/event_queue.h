/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Events for a program: a list in memory, and a file descriptor that is readable while the list is
 * not empty, for poll(2), epoll and O_NONBLOCK. Events of an object that goes away can be taken
 * back. */
#ifndef SMX_EVENT_QUEUE_H
#define SMX_EVENT_QUEUE_H

#include <pthread.h>
#include <stdint.h>

#include "base/list.h"

/* An object's events, of one queue. */
struct smx_events {
	uint32_t delivered;		/* read, ever */
	struct smx_list_link *waiting;	/* not read */
};

struct smx_event {
	void *obj;
	uint32_t type;
	struct smx_events *events;	/* the object's */
};

struct smx_event_queue {
	pthread_mutex_t lock;
	int read_fd, write_fd;		/* one byte for each waiting event, at most TOKENS_MAX */
	struct smx_event_node *first, **last;
	uint32_t count;
	uint32_t tokens;
	struct smx_list_link open;	/* among all of the process */
};

/* RETURN 0 or an errno. */
int smx_event_queue_init(struct smx_event_queue *q);
void smx_event_queue_fini(struct smx_event_queue *q);

/* Never blocks; an event that finds no memory is lost, with a line on the log. */
void smx_event_queue_push(struct smx_event_queue *q, const struct smx_event *event);

/* Waits for an event, unless read_fd is O_NONBLOCK. RETURN 0, or -1 with errno EAGAIN or EINTR. */
int smx_event_queue_pop(struct smx_event_queue *q, struct smx_event *out);

/* Takes back an object's events that were not read. RETURN how many were read. */
uint32_t smx_event_queue_forget(struct smx_event_queue *q, struct smx_events *events);

/* In a forked child: the same descriptor numbers now lead to queues of its own. */
void smx_event_queues_fork_child(void);

#endif
