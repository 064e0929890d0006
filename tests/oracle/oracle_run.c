/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "oracle.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLAYER_SECONDS = 1200 };	/* against hanging */

const char *side_name(enum side side)
{
	return side == OURS ? "softmlx5" : "libmlx5";
}

/* Theirs: rdma-core's libraries by the ordinary path, with the stand-in for the kernel. Ours: by library path,
 * with nothing that follows a doorbell, and libmlx5's limit of memcpy. */
static void environment(enum side side)
{
	if (side == THEIRS) {
		unsetenv("LD_LIBRARY_PATH");
		setenv("LD_PRELOAD", ORACLE_PARTS "/standin.so", 1);
		setenv("SYSFS_PATH", ORACLE_PARTS "/sys", 1);
		return;
	}
	setenv("LD_LIBRARY_PATH", ORACLE_OUR_LIBRARIES, 1);
	setenv("SOFTMLX5_DEVICE", "off", 1);
	setenv("SOFTMLX5_HOST", "off", 1);
	setenv("SOFTMLX5_LOG", "off", 1);
	setenv("SOFTMLX5_MEMCPY_MAX", "2147483648", 1);
}

struct player player_start(enum side side, uint64_t seed, uint64_t count, const char *keep)
{
	char seed_text[24], count_text[24];
	struct player p;
	int fd[2];

	snprintf(seed_text, sizeof(seed_text), "%llu", (unsigned long long)seed);
	snprintf(count_text, sizeof(count_text), "%llu", (unsigned long long)count);
	fflush(stdout);
	if (pipe2(fd, O_CLOEXEC) || (p.pid = fork()) < 0) {
		perror("oracle");
		exit(1);
	}
	if (!p.pid) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(fd[1], STDOUT_FILENO);
		if (!getenv("ORACLE_STDERR") && side == THEIRS)	/* it dumps every error completion */
			dup2(null, STDERR_FILENO);
		environment(side);
		alarm(PLAYER_SECONDS);
		execl(ORACLE_PARTS "/oracle_play", "oracle_play", side == OURS ? "ours" : "libmlx5", seed_text,
		      count_text, keep, NULL);
		_exit(127);
	}
	close(fd[1]);
	p.from = fdopen(fd[0], "r");
	setvbuf(p.from, NULL, _IOFBF, 1 << 16);
	return p;
}

void player_stop(struct player *p)
{
	fclose(p->from);
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
}

static void make_room(struct log *log, size_t more)
{
	if (log->used + more > log->room) {
		log->room = (log->used + more) * 2;
		log->data = realloc(log->data, log->room);
	}
	if (log->count == log->at_room) {
		log->at_room = log->at_room * 2 + 64;
		log->at = realloc(log->at, log->at_room * sizeof(*log->at));
	}
	if (!log->data || !log->at) {
		perror("oracle");
		exit(1);
	}
}

bool log_read(struct log *log, FILE *from)
{
	struct record r;

	log->used = log->count = 0;
	log->ended = false;
	while (fread(&r, sizeof(r), 1, from) == 1) {
		size_t padded = (r.n + 7u) & ~7u;	/* records stay aligned */

		make_room(log, sizeof(r) + padded);
		log->at[log->count] = log->used;
		memcpy(log->data + log->used, &r, sizeof(r));
		if (r.n && fread(log->data + log->used + sizeof(r), r.n, 1, from) != 1)
			break;
		log->used += sizeof(r) + padded;
		log->count++;
		if (r.tag == TAG_END) {
			log->ended = true;
			break;
		}
	}
	return log->count;
}

const struct record *log_record(const struct log *log, uint32_t i)
{
	return i < log->count ? (const struct record *)(const void *)(log->data + log->at[i]) : NULL;
}
