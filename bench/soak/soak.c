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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

enum { RESIDENT_SLACK = 24 << 20 };

struct footprint {
	uint64_t resident, fds, files;
};

static struct common *common;
static pid_t child[2];

static uint64_t entries(const char *path)
{
	DIR *dir = opendir(path);
	uint64_t n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* A network namespace of our own has a registry of its own, so that what lies there is ours. */
static bool own_registry;

static void write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd >= 0 && write(fd, text, strlen(text)) < 0)
		perror(path);
	if (fd >= 0)
		close(fd);
}

static void leave_others_alone(void)
{
	unsigned int uid = getuid(), gid = getgid();
	char text[64];

	own_registry = true;
	if (!unshare(CLONE_NEWNET))
		return;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		printf("# no namespace of its own (%s): files in /dev/shm are not counted\n",
		       strerror(errno));
		own_registry = false;
		return;
	}
	write_to("/proc/self/setgroups", "deny");
	snprintf(text, sizeof(text), "%u %u 1", uid, uid);
	write_to("/proc/self/uid_map", text);
	snprintf(text, sizeof(text), "%u %u 1", gid, gid);
	write_to("/proc/self/gid_map", text);
}

static bool registry_path(char *path, size_t len)
{
	struct stat net;

	if (!own_registry || stat("/proc/self/ns/net", &net))
		return false;
	snprintf(path, len, "/dev/shm/softmlx5-%u-%lu", geteuid(), (unsigned long)net.st_ino);
	return true;
}

/* The registry's folder, with what lies in it. */
static uint64_t shared_files(void)
{
	char path[64];

	return registry_path(path, sizeof(path)) ? entries(path) : 0;
}

/* What lies in a new namespace's folder was left by processes that were killed in an old one with
 * its number; and what lies there after a failure, by ours. */
static void remove_registry(void)
{
	char path[64], name[400];
	struct dirent *e;
	DIR *dir;

	if (!registry_path(path, sizeof(path)) || !(dir = opendir(path)))
		return;
	while ((e = readdir(dir))) {
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		unlink(name);
	}
	closedir(dir);
	rmdir(path);
}

static struct footprint footprint_of(pid_t pid)
{
	struct footprint f = { .files = shared_files() };
	unsigned long long anonymous;
	char path[64], line[200];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	f.fds = entries(path);
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "r");
	/* What the process shares with the other comes and goes as it is used. */
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %llu kB", &anonymous) == 1)
			f.resident = anonymous << 10;
	if (file)
		fclose(file);
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

static void compare(int side, const struct footprint *before, const struct footprint *now)
{
#ifndef SANITIZED
	if (now->resident > before->resident + before->resident / 20 + RESIDENT_SLACK)
		fail("process %c grew from %" PRIu64 " to %" PRIu64 " MB", 'A' + side,
		     before->resident >> 20, now->resident >> 20);
#endif
	if (now->fds > before->fds)
		fail("process %c has %" PRIu64 " open files, at first it had %" PRIu64, 'A' + side,
		     now->fds, before->fds);
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
	struct footprint before[2] = { { 0 } }, now;
	uint64_t end, settled;

	while ((!get(&common->side[0].ready) || !get(&common->side[1].ready)) && !ended())
		usleep(10000);
	end = t_now_ms() + 1000ull * seconds;
	settled = end - 750ull * seconds;
	while (t_now_ms() < end && !ended()) {
		usleep(50000);
		if (t_now_ms() < settled)
			continue;
		for (int i = 0; i < 2 && !before[i].resident; i++)
			before[i] = footprint_of(child[i]);
		if (pauses && !rnd(40))
			pause_one();
	}
	for (int i = 0; i < 2 && !common->failed && before[i].resident; i++) {
		now = footprint_of(child[i]);
		compare(i, &before[i], &now);
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

	if (shared_files())
		fail("%" PRIu64 " entries are left in /dev/shm", shared_files());
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
		remove_registry();
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
	leave_others_alone();
	remove_registry();
	fflush(stdout);
	start("/proc/self/exe", fd);
	watch(o.seconds, o.pauses);
	finish();
	return say();
}
