/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "net/host_pull.h"

#include <errno.h>
#include <sys/uio.h>

#include "base/guard.h"
#include "net/host_port.h"

/* What could not be fetched: is the other process gone, its memory not to be read, or ours not to be written? */
static enum smx_pulled blame(struct smx_host_pull *hp, uint64_t addr)
{
	uint8_t byte;
	struct iovec local = { &byte, 1 }, remote = { (void *)(uintptr_t)addr, 1 };

	if (process_vm_readv(hp->pid, &local, 1, &remote, 1, 0) == 1)
		return SMX_PULL_TARGET;
	hp->pull.gone = errno == ESRCH;
	return SMX_PULL_SOURCE;
}

/* From memory that the sender shares. RETURN whether all n bytes were there; if not, they are asked for otherwise. */
static bool fetch_shared(const struct smx_host_pull *hp, uint8_t *to, uint64_t n)
{
	const struct smx_arrived *a = hp->from;
	uint64_t skip = hp->pull.off, done = 0, length;
	const void *fault;

	for (uint32_t i = 0; i < a->run_count && done < n; i++) {
		while (skip < a->run[i].length && done < n) {
			uint64_t left = a->run[i].length - skip;
			const void *at;

			length = left < n - done ? left : n - done;
			at = smx_far_memory(hp->far, a->run[i].addr + skip, &length);
			if (!at || !length || !smx_guard_copy(to + done, at, length, &fault))
				return false;
			done += length;
			skip += length;
		}
		skip -= a->run[i].length;
	}
	return done == n && smx_far_held(hp->far);
}

static enum smx_pulled fetch_runs(struct smx_host_pull *hp, void *to, uint64_t n, uint64_t *done)
{
	struct smx_pull *pull = &hp->pull;
	const struct smx_arrived *a = hp->from;
	uint64_t skip = pull->off;
	uint32_t i = 0;

	if (hp->far && fetch_shared(hp, to, n)) {
		*done = n;
		pull->off += n;
		return SMX_PULLED;
	}
	while (i < a->run_count && skip >= a->run[i].length)
		skip -= a->run[i++].length;
	while (*done < n) {
		struct iovec local = { (uint8_t *)to + *done, n - *done }, remote[SMX_HOST_RUNS];
		unsigned int count = 0;
		ssize_t got;

		for (uint32_t j = i; j < a->run_count; j++) {
			uint64_t off = j == i ? skip : 0;

			remote[count++] = (struct iovec){ (void *)(uintptr_t)(a->run[j].addr + off),
							  a->run[j].length - off };
		}
		if (!count)
			return SMX_PULL_SOURCE;
		got = process_vm_readv(hp->pid, &local, 1, remote, count, 0);
		if (got <= 0)
			return blame(hp, (uintptr_t)remote[0].iov_base);
		*done += (uint64_t)got;
		pull->off += (uint64_t)got;
		skip += (uint64_t)got;
		while (i < a->run_count && skip >= a->run[i].length)
			skip -= a->run[i++].length;
	}
	return SMX_PULLED;
}

static enum smx_pulled fetch(struct smx_pull *pull, void *to, uint64_t n, uint64_t *done)
{
	struct smx_host_pull *hp = (struct smx_host_pull *)pull;
	enum smx_pulled pulled;

	*done = 0;
	pulled = fetch_runs(hp, to, n, done);
	if (!smx_rec_is_recalled(hp->rec))
		return pulled;
	pull->gone = true;
	return SMX_PULL_SOURCE;
}

void smx_host_pull(struct smx_host_pull *hp)
{
	hp->pull = (struct smx_pull){ .fetch = fetch };
}

static bool is_meant(const struct smx_recall *what, const struct smx_arrived *a)
{
	if (!what->length)
		return a->frame.src_qpn == what->qpn && !smx_frame_is_answer(a->frame.op) &&
		       (what->all_streams || a->frame.dc_stream == what->stream);
	for (uint32_t i = 0; i < a->run_count; i++)
		if (a->run[i].addr - what->start < what->length || what->start - a->run[i].addr < a->run[i].length)
			return true;
	return false;
}

static void recall_lane(const struct smx_lane *lane, const struct smx_recall *what)
{
	struct smx_arrived a;
	uint64_t pos = 0;
	uint32_t size;
	void *rec;

	if (lane->lent <= __atomic_load_n(&lane->ctl->head, __ATOMIC_RELAXED))
		return;
	while ((rec = smx_lane_unread(lane, &pos, &size)))
		if (smx_rec_read(rec, size, &a) && a.run_count && is_meant(what, &a))
			smx_rec_recall(rec);
}

void smx_host_recall(struct smx_port *port, const struct smx_recall *what)
{
	struct host *h = (struct host *)port;

	for (uint32_t i = 0; i < SMX_HOST_SLOTS; i++)
		for (int kind = 0; h->peer[i] && h->peer[i]->out.file && kind < SMX_LANES; kind++)
			recall_lane(&h->peer[i]->out.lane[kind], what);
}

bool smx_host_can_pull(int32_t pid, uint64_t addr, uint64_t value)
{
	uint64_t word = 0;
	struct iovec local = { &word, sizeof(word) }, remote = { (void *)(uintptr_t)addr, sizeof(word) };

	return process_vm_readv(pid, &local, 1, &remote, 1, 0) == sizeof(word) && word == value;
}
