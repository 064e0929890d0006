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

/* Each new event adds a byte up to here, so that an edge-triggered waiter sees an edge. */
enum { TOKENS_MAX = 64 };

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct smx_event_queue *all;

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
	pthread_mutex_init(&q->lock, NULL);
	pthread_mutex_lock(&all_lock);
	q->next = all;
	all = q;
	pthread_mutex_unlock(&all_lock);
	return 0;
}

void smx_event_queue_fini(struct smx_event_queue *q)
{
	pthread_mutex_lock(&all_lock);
	for (struct smx_event_queue **link = &all; *link; link = &(*link)->next) {
		if (*link == q) {
			*link = q->next;
			break;
		}
	}
	pthread_mutex_unlock(&all_lock);
	close(q->read_fd);
	close(q->write_fd);
	free(q->ring);
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

static bool grow(struct smx_event_queue *q)
{
	uint32_t capacity = q->capacity ? 2 * q->capacity : 16;
	struct smx_event *ring = malloc(capacity * sizeof(*ring));

	if (!ring)
		return false;
	for (uint32_t i = 0; i < q->count; i++)
		ring[i] = q->ring[(q->head + i) % q->capacity];
	free(q->ring);
	q->ring = ring;
	q->capacity = capacity;
	q->head = 0;
	return true;
}

void smx_event_queue_push(struct smx_event_queue *q, const struct smx_event *event)
{
	int saved_errno = errno;
	char byte = 0;

	pthread_mutex_lock(&q->lock);
	if (q->count == q->capacity && !grow(q)) {
		pthread_mutex_unlock(&q->lock);
		smx_log(SMX_LOG_WARN, "an event was lost: no memory");
		return;
	}
	q->ring[(q->head + q->count++) % q->capacity] = *event;
	if (q->tokens < TOKENS_MAX && send(q->write_fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		q->tokens++;
	pthread_mutex_unlock(&q->lock);
	errno = saved_errno;
}

static bool take(struct smx_event_queue *q, struct smx_event *out)
{
	bool taken = false;

	pthread_mutex_lock(&q->lock);
	if (q->count) {
		*out = q->ring[q->head];
		q->head = (q->head + 1) % q->capacity;
		q->count--;
		if (out->delivered)
			++*out->delivered;
		taken = true;
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

uint32_t smx_event_queue_forget(struct smx_event_queue *q, const void *obj,
				const uint32_t *delivered)
{
	uint32_t kept = 0, read;

	pthread_mutex_lock(&q->lock);
	for (uint32_t i = 0; i < q->count; i++) {
		struct smx_event event = q->ring[(q->head + i) % q->capacity];

		if (event.obj != obj)
			q->ring[(q->head + kept++) % q->capacity] = event;
	}
	q->count = kept;
	settle(q);
	read = *delivered;
	pthread_mutex_unlock(&q->lock);
	return read;
}

void smx_event_queues_fork_child(void)
{
	pthread_mutex_init(&all_lock, NULL);
	for (struct smx_event_queue *q = all; q; q = q->next) {
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
