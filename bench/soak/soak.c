/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Two processes and their many connections: everything that can be posted, and everything that can
 * go wrong.
 *
 * usage: soak [--seconds N] [--seed N] [--conns N] [--calm] [--no-dc] [--no-pauses]
 *
 * Starts both processes, stops one of them for a moment now and then, watches that neither grows,
 * and ends with one line: ok - ..., or not ok - ... with the seed and the first thing that was
 * wrong. */
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "soak.h"
#include "t_registry.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

enum { GROWTH_SLACK = 24 << 20, MEMFDS = 8 };

/* Of both processes. */
struct footprint {
	uint64_t bytes, fds[2], files;
	ino_t shared[MEMFDS];
};

static struct common *common;
static pid_t child[2];

/* Memory that others reach lies in a file of its owner, and comes back out of it when they may reach it no longer:
 * it counts either way. Both may have it open. */
static void count_shared(const char *name, struct footprint *f)
{
	char target[64] = "";
	struct stat st;

	if (readlink(name, target, sizeof(target) - 1) < 0 || strcmp(target, "/memfd:softmlx5 (deleted)") ||
	    stat(name, &st))
		return;
	for (int i = 0; i < MEMFDS; i++) {
		if (f->shared[i] == st.st_ino)
			return;
		if (!f->shared[i]) {
			f->shared[i] = st.st_ino;
			f->bytes += (uint64_t)st.st_blocks * 512;
			return;
		}
	}
}

static void look_at_files(int side, struct footprint *f)
{
	char path[64], name[400];
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", child[side]);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		count_shared(name, f);
		f->fds[side]++;
	}
	if (dir)
		closedir(dir);
}

static void look_at_memory(int side, struct footprint *f)
{
	unsigned long long anonymous;
	char path[64], line[200];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", child[side]);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %llu kB", &anonymous) == 1)
			f->bytes += anonymous << 10;
	if (file)
		fclose(file);
}

static struct footprint look(void)
{
	struct footprint f = { .files = t_registry_entries(false, NULL, 0) };

	for (int i = 0; i < 2; i++) {
		look_at_files(i, &f);
		look_at_memory(i, &f);
	}
	return f;
}

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *fmt, ...)
{
	va_list ap;

	if (__atomic_exchange_n(&common->failed, 1, __ATOMIC_SEQ_CST))
		return;
	va_start(ap, fmt);
	vsnprintf(common->why, sizeof(common->why), fmt, ap);
	va_end(ap);
}

static void compare(const struct footprint *before, const struct footprint *now)
{
	printf("# memory: %" PRIu64 " MB after a quarter of the time, %" PRIu64 " MB at the end\n",
	       before->bytes >> 20, now->bytes >> 20);
#ifndef SANITIZED
	if (now->bytes > before->bytes + before->bytes / 20 + GROWTH_SLACK)
		fail("the processes grew from %" PRIu64 " to %" PRIu64 " MB", before->bytes >> 20,
		     now->bytes >> 20);
#endif
	for (int i = 0; i < 2; i++)
		if (now->fds[i] > before->fds[i])
			fail("process %c has %" PRIu64 " open files, at first it had %" PRIu64, 'A' + i,
			     now->fds[i], before->fds[i]);
	if (now->files > before->files)
		fail("there are %" PRIu64 " files in /dev/shm, at first there were %" PRIu64,
		     now->files, before->files);
}

static void start(const char *program, int fd)
{
	char text[16], side[2] = "0";

	snprintf(text, sizeof(text), "%d", fd);
	for (int i = 0; i < 2; i++) {
		side[0] = (char)('0' + i);
		child[i] = fork();
		if (!child[i]) {
			execl(program, "soak", "--side", side, "--fd", text, (char *)NULL);
			_exit(127);
		}
	}
}

/* RETURN whether one of them ended; then it has failed. */
static bool ended(void)
{
	for (int i = 0; i < 2; i++) {
		int status;

		if (!child[i] || waitpid(child[i], &status, WNOHANG) != child[i])
			continue;
		child[i] = 0;
		printf("# process %c ended with status 0x%x\n", 'A' + i, status);
		usleep(200000); /* one that says why writes that first */
		fail("process %c ended by itself, %s %d", 'A' + i,
		     WIFSIGNALED(status) ? "signal" : "exit code",
		     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		return true;
	}
	return common->failed;
}

static void pause_one(void)
{
	pid_t pid = child[rnd(2)];

	kill(pid, SIGSTOP);
	usleep(1000 * (1 + rnd(60)));
	kill(pid, SIGCONT);
}

static void watch(uint32_t seconds, bool pauses)
{
	struct footprint before = { 0 }, now;
	uint64_t end, settled;

	while ((!get(&common->side[0].ready) || !get(&common->side[1].ready)) && !ended())
		usleep(10000);
	end = t_now_ms() + 1000ull * seconds;
	settled = end - 750ull * seconds;
	while (t_now_ms() < end && !ended()) {
		usleep(50000);
		if (t_now_ms() < settled)
			continue;
		if (!before.bytes)
			before = look();
		if (pauses && !rnd(40))
			pause_one();
	}
	if (!common->failed && before.bytes) {
		now = look();
		compare(&before, &now);
	}
	common->stop = 1;
}

static void finish(void)
{
	uint64_t end = t_now_ms() + STALL_MS + 60000;

	for (int i = 0; i < 2; i++) {
		int status = 0;

		while (child[i] && !waitpid(child[i], &status, WNOHANG)) {
			if (t_now_ms() > end)
				fail("process %c does not end", 'A' + i);
			if (common->failed) {
				usleep(300000);
				kill(child[i], SIGKILL);
				waitpid(child[i], &status, 0);
				break;
			}
			usleep(10000);
		}
		if (status)
			fail("process %c ended with status 0x%x", 'A' + i, status);
	}
}

static int say(void)
{
	const struct side *a = &common->side[0], *b = &common->side[1];
	char left[256];

	if (t_registry_entries(false, left, sizeof(left)))
		fail("%s is left in /dev/shm", left);
	printf("# seed %" PRIu64 ": %" PRIu64 " completions, %" PRIu64 " requests failed, %" PRIu64
	       " recoveries, %" PRIu64 " messages (%" PRIu64 " datagrams and UC lost), %" PRIu64
	       " MB compared\n",
	       common->seed, a->completions + b->completions, a->failures + b->failures,
	       a->recoveries + b->recoveries, a->messages + b->messages, a->lost + b->lost,
	       (a->checked_bytes + b->checked_bytes) >> 20);
	for (int i = 0; i < 32; i++)
		if (a->status[i] + b->status[i])
			printf("#   %-36s %" PRIu64 "\n", ibv_wc_status_str((enum ibv_wc_status)i),
			       a->status[i] + b->status[i]);
	if (common->failed) {
		t_registry_entries(true, NULL, 0);
		printf("not ok - soak, --seed %" PRIu64 ": %s\n", common->seed, common->why);
		return 1;
	}
	printf("ok - soak: %u connections between two processes\n", common->conns);
	return 0;
}

struct options {
	uint32_t seconds, conns;
	uint64_t seed;
	bool calm, no_dc, pauses;
	int side, fd;
};

static struct options parse(int argc, char **argv)
{
	struct options o = { .seconds = 600,
			     .conns = 900,
			     .seed = (uint64_t)time(NULL),
			     .pauses = true,
			     .side = -1 };
	static const struct option names[] = {
		{ "seconds", 1, NULL, 's' },
		{ "seed", 1, NULL, 'S' },
		{ "conns", 1, NULL, 'c' },
		{ "calm", 0, NULL, 'q' },
		{ "no-dc", 0, NULL, 'd' },
		{ "no-pauses", 0, NULL, 'p' },
		{ "side", 1, NULL, 'i' },
		{ "fd", 1, NULL, 'f' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (c) {
		case 's':
			o.seconds = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'S':
			o.seed = strtoull(optarg, NULL, 0);
			break;
		case 'c':
			o.conns = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'd':
			o.no_dc = true;
			break;
		case 'q':
			o.calm = true;
			break;
		case 'p':
			o.pauses = false;
			break;
		case 'i':
			o.side = (int)strtol(optarg, NULL, 10);
			break;
		case 'f':
			o.fd = (int)strtol(optarg, NULL, 10);
			break;
		default:
			fprintf(stderr, "usage: soak [--seconds N] [--seed N] [--conns N] [--calm] "
					"[--no-pauses]\n");
			exit(2);
		}
	}
	if (!o.conns || o.conns > CONNS_MAX) {
		fprintf(stderr, "soak: --conns is 1 to %d\n", CONNS_MAX);
		exit(2);
	}
	return o;
}

int main(int argc, char **argv)
{
	struct options o = parse(argc, argv);
	int fd = o.side < 0 ? (int)syscall(SYS_memfd_create, "soak", 0) : o.fd;

	if (fd < 0 || (o.side < 0 && ftruncate(fd, sizeof(*common)))) {
		perror("soak: memfd_create");
		return 2;
	}
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (common == MAP_FAILED) {
		perror("soak: mmap");
		return 2;
	}
	if (o.side >= 0) {
		close(fd);
		side_run(common, o.side);
	}
	common->seed = o.seed;
	common->conns = o.conns;
	common->calm = o.calm;
	common->no_dc = o.no_dc;
	w.rng = o.seed | 1;
	printf("# soak --seed %" PRIu64 " --seconds %u --conns %u\n", o.seed, o.seconds, o.conns);
	t_own_network();
	fflush(stdout);
	start("/proc/self/exe", fd);
	watch(o.seconds, o.pauses);
	finish();
	return say();
}
