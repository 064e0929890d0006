/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Events for a program. The list decides; the bytes in the socket only make the descriptor
 * readable. */
#include "verbs/event_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

/* On the queue's list, in order, and on the object's. */
struct smx_event_node {
	struct smx_event event;
	struct smx_event_node *next, **at;
	struct smx_list_link of_object;
};

/* Each new event adds a byte up to here, so that an edge-triggered waiter sees an edge. */
enum { TOKENS_MAX = 64 };

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct smx_list_link *all;

static int open_fds(int fds[2])
{
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) ? errno : 0;
}

int smx_event_queue_init(struct smx_event_queue *q)
{
	int fds[2], err = open_fds(fds);

	if (err)
		return err;
	*q = (struct smx_event_queue){ .read_fd = fds[0], .write_fd = fds[1] };
	q->last = &q->first;
	pthread_mutex_init(&q->lock, NULL);
	pthread_mutex_lock(&all_lock);
	smx_list_add(&all, &q->open);
	pthread_mutex_unlock(&all_lock);
	return 0;
}

static void append(struct smx_event_queue *q, struct smx_event_node *n)
{
	n->next = NULL;
	n->at = q->last;
	*n->at = n;
	q->last = &n->next;
	q->count++;
	smx_list_add(&n->event.events->waiting, &n->of_object);
}

static void take_out(struct smx_event_queue *q, struct smx_event_node *n)
{
	*n->at = n->next;
	if (n->next)
		n->next->at = n->at;
	else
		q->last = n->at;
	q->count--;
	smx_list_remove(&n->of_object);
	free(n);
}

void smx_event_queue_fini(struct smx_event_queue *q)
{
	pthread_mutex_lock(&all_lock);
	smx_list_remove(&q->open);
	pthread_mutex_unlock(&all_lock);
	close(q->read_fd);
	close(q->write_fd);
	while (q->first)
		take_out(q, q->first);
	pthread_mutex_destroy(&q->lock);
}

/* Makes the descriptor say what the list says. Under the lock. */
static void settle(struct smx_event_queue *q)
{
	char byte = 0;

	while (q->tokens > q->count) {
		if (recv(q->read_fd, &byte, 1, MSG_DONTWAIT) != 1) {
			q->tokens = 0;	/* the program read the descriptor itself */
			break;
		}
		q->tokens--;
	}
	if (q->count && !q->tokens && send(q->write_fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		q->tokens++;
}

void smx_event_queue_push(struct smx_event_queue *q, const struct smx_event *event)
{
	int saved_errno = errno;
	struct smx_event_node *n = malloc(sizeof(*n));
	char byte = 0;

	if (!n) {
		smx_log(SMX_LOG_WARN, "an event was lost: no memory");
		return;
	}
	n->event = *event;
	pthread_mutex_lock(&q->lock);
	append(q, n);
	if (q->tokens < TOKENS_MAX && send(q->write_fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		q->tokens++;
	pthread_mutex_unlock(&q->lock);
	errno = saved_errno;
}

static bool take(struct smx_event_queue *q, struct smx_event *out)
{
	bool taken;

	pthread_mutex_lock(&q->lock);
	taken = q->first;
	if (taken) {
		*out = q->first->event;
		out->events->delivered++;
		take_out(q, q->first);
	}
	settle(q);
	pthread_mutex_unlock(&q->lock);
	return taken;
}

int smx_event_queue_pop(struct smx_event_queue *q, struct smx_event *out)
{
	char byte;

	while (!take(q, out)) {
		/* Blocks or not as the program set the descriptor; takes nothing away. */
		if (recv(q->read_fd, &byte, 1, MSG_PEEK) < 0)
			return -1;
	}
	return 0;
}

uint32_t smx_event_queue_forget(struct smx_event_queue *q, struct smx_events *events)
{
	uint32_t read;

	pthread_mutex_lock(&q->lock);
	while (events->waiting)
		take_out(q, container_of(events->waiting, struct smx_event_node, of_object));
	settle(q);
	read = events->delivered;
	pthread_mutex_unlock(&q->lock);
	return read;
}

void smx_event_queues_fork_child(void)
{
	pthread_mutex_init(&all_lock, NULL);
	for (struct smx_list_link *l = all; l; l = l->next) {
		struct smx_event_queue *q = container_of(l, struct smx_event_queue, open);
		int flags = fcntl(q->read_fd, F_GETFL);
		int fds[2];

		pthread_mutex_init(&q->lock, NULL);
		q->tokens = 0;
		if (open_fds(fds))
			continue;
		dup3(fds[0], q->read_fd, O_CLOEXEC);
		dup3(fds[1], q->write_fd, O_CLOEXEC);
		close(fds[0]);
		close(fds[1]);
		if (flags >= 0)
			fcntl(q->read_fd, F_SETFL, flags);
		settle(q);
	}
}
