/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "base/host_registry.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAVE_TRIES = 500 };	/* a millisecond apart */

static const char file_name[] = "registry";
static const char lane_prefix[] = "lane-";

static int refuse(char *why, size_t len, int err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

static int refuse(char *why, size_t len, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, len, fmt, args);
	va_end(args);
	return err;
}

/* ------------------------------------------------------------------ the lock */

/* Of the process, so it ends with the process; threads of ours take turns by themselves. */
static void lock(const struct smx_host *h, short type)
{
	struct flock fl = { .l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };

	while (fcntl(h->fd, F_SETLKW, &fl) && errno == EINTR)
		;
}

/* RETURN false when another holds it for too long: it may have been stopped. */
static bool lock_soon(const struct smx_host *h)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };

	for (int tries = 0; fcntl(h->fd, F_SETLK, &fl); tries++) {
		if (tries == LEAVE_TRIES || (errno != EAGAIN && errno != EACCES && errno != EINTR))
			return false;
		usleep(1000);
	}
	return true;
}

/* ------------------------------------------------------------------ who lives */

struct identity {
	uint64_t start_ticks, start_stack;
	char state;
};

static uint64_t ns_inode(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : (uint64_t)st.st_ino;
}

/* RETURN false when there is no such process. */
static bool identify(int32_t pid, struct identity *id)
{
	char path[32], text[1024], *at;
	ssize_t n;
	int fd;

	*id = (struct identity){ 0, 0, 0 };
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	at = strrchr(text, ')');	/* the name may hold anything */
	if (!at || !at[1] || at[2] == 'Z' || at[2] == 'X')
		return false;
	at += 2;
	id->state = *at;
	/* Field 3 stands here; each blank leads to the next. */
	for (int field = 3; at && field < 28; field++) {
		at = strchr(at, ' ');
		if (!at)
			break;
		at++;
		if (field + 1 == 22)
			id->start_ticks = strtoull(at, NULL, 10);
		if (field + 1 == 28)
			id->start_stack = strtoull(at, NULL, 10);
	}
	return true;
}

bool smx_host_is_alive(const struct smx_host_slot *slot)
{
	struct identity id;

	if (slot->pid_ns != ns_inode("/proc/self/ns/pid"))
		return true;	/* another's pids say nothing here */
	if (slot->pid <= 0 || !identify(slot->pid, &id) || id.start_ticks != slot->start_ticks)
		return false;
	/* Hidden where the process does not let itself be looked at. */
	return !id.start_stack || !slot->start_stack || id.start_stack == slot->start_stack;
}

bool smx_host_is_stopped(const struct smx_host_slot *slot)
{
	struct identity id;

	return identify(slot->pid, &id) && (id.state == 'T' || id.state == 't');
}

/* ------------------------------------------------------------------ opening */

static int check_owner(int fd, bool dir, const char *what, char *why, size_t len, struct stat *st)
{
	if (fstat(fd, st))
		return refuse(why, len, errno, "%s: %s", what, strerror(errno));
	if (dir ? !S_ISDIR(st->st_mode) : !S_ISREG(st->st_mode))
		return refuse(why, len, EPERM, "%s is not a %s", what, dir ? "directory" : "regular file");
	if (st->st_uid != geteuid())
		return refuse(why, len, EPERM, "%s belongs to user %u, not %u", what, st->st_uid, geteuid());
	if (st->st_mode & 077)
		return refuse(why, len, EPERM, "%s has mode 0%o: others may use it", what, st->st_mode & 07777);
	return 0;
}

/* Under the lock, an empty file is a new one: whoever was making it is gone. */
static int make_file(struct smx_host *h, char *why, size_t len)
{
	struct smx_host_file head = {
		.magic = SMX_HOST_MAGIC, .version = SMX_HOST_VERSION, .bytes = sizeof(struct smx_host_file),
	};
	int err = posix_fallocate(h->fd, 0, sizeof(head));

	if (err)
		return refuse(why, len, err, "%s: no room for the registry: %s", h->dir, strerror(err));
	if (pwrite(h->fd, &head, offsetof(struct smx_host_file, slot), 0) < 0)
		return refuse(why, len, errno, "%s: %s", h->dir, strerror(errno));
	return 0;
}

static int check_file(struct smx_host *h, bool make, char *why, size_t len)
{
	struct { uint64_t magic; uint32_t version, bytes; } head = { 0, 0, 0 };
	struct stat st;
	int err = check_owner(h->fd, false, "the registry", why, len, &st);

	if (err)
		return err;
	if (!st.st_nlink)
		return EAGAIN;	/* removed by the last who left */
	if (pread(h->fd, &head, sizeof(head), 0) < 0)
		return refuse(why, len, errno, "%s: %s", h->dir, strerror(errno));
	if (make && !head.magic && (!st.st_size || st.st_size == sizeof(struct smx_host_file)))
		return make_file(h, why, len);
	if (st.st_size != sizeof(struct smx_host_file))
		return refuse(why, len, EPROTO, "%s/%s has %lld bytes, not %zu", h->dir, file_name,
			      (long long)st.st_size, sizeof(struct smx_host_file));
	if (head.magic != SMX_HOST_MAGIC)
		return refuse(why, len, EPROTO, "%s/%s is no registry: magic 0x%llx", h->dir, file_name,
			      (unsigned long long)head.magic);
	if (head.version != SMX_HOST_VERSION || head.bytes != sizeof(struct smx_host_file))
		return refuse(why, len, EPROTO, "%s/%s has version %u and %u bytes, this library's is %u and %zu",
			      h->dir, file_name, head.version, head.bytes, SMX_HOST_VERSION,
			      sizeof(struct smx_host_file));
	return 0;
}

static int open_dir(struct smx_host *h, bool make, char *why, size_t len)
{
	struct stat st;
	int err;

	if (make && mkdir(h->dir, 0700) && errno != EEXIST)
		return refuse(why, len, errno, "%s cannot be made: %s", h->dir, strerror(errno));
	h->dir_fd = open(h->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (h->dir_fd < 0)
		return errno == ENOENT ? ENOENT :
		       refuse(why, len, errno, "%s cannot be opened: %s", h->dir, strerror(errno));
	err = check_owner(h->dir_fd, true, h->dir, why, len, &st);
	if (err)
		close(h->dir_fd);
	return err;
}

/* RETURN EAGAIN when it vanished meanwhile. On success the lock is held. */
static int try_open(struct smx_host *h, bool make, char *why, size_t len)
{
	int err = open_dir(h, make, why, len);
	void *map;

	if (err)
		return err == ENOENT && make ? EAGAIN : err;
	h->fd = openat(h->dir_fd, file_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (make ? O_CREAT : 0),
		       0600);
	if (h->fd < 0) {
		err = errno == ENOENT && make ? EAGAIN :
		      refuse(why, len, errno, "%s/%s cannot be opened: %s", h->dir, file_name, strerror(errno));
		close(h->dir_fd);
		return err;
	}
	lock(h, F_WRLCK);
	err = check_file(h, make, why, len);
	if (!err) {
		map = mmap(NULL, sizeof(*h->file), PROT_READ | PROT_WRITE, MAP_SHARED, h->fd, 0);
		if (map != MAP_FAILED) {
			h->file = map;
			return 0;
		}
		err = refuse(why, len, errno, "%s/%s cannot be mapped: %s", h->dir, file_name, strerror(errno));
	}
	close(h->fd);	/* and the lock is gone */
	close(h->dir_fd);
	return err;
}

int smx_host_open(struct smx_host *h, const char *dir, bool make, char *why, size_t why_len)
{
	int err;

	*h = (struct smx_host){ .fd = -1, .dir_fd = -1 };
	why[0] = '\0';
	if (dir)
		snprintf(h->dir, sizeof(h->dir), "%s", dir);
	else
		snprintf(h->dir, sizeof(h->dir), "/dev/shm/softmlx5-%u-%llu.%u", geteuid(),
			 (unsigned long long)ns_inode("/proc/self/ns/net"), SMX_HOST_VERSION);
	for (int tries = 0; tries < 1000; tries++) {
		err = try_open(h, make, why, why_len);
		if (err != EAGAIN)
			break;
	}
	if (err && !why[0])
		snprintf(why, why_len, "%s: %s", h->dir, strerror(err));
	if (!err)
		lock(h, F_UNLCK);
	return err;
}

void smx_host_close(struct smx_host *h)
{
	if (!h->file)
		return;
	munmap(h->file, sizeof(*h->file));
	close(h->fd);
	close(h->dir_fd);
	h->file = NULL;
	h->joined = false;
}

/* ------------------------------------------------------------------ taking back */

void smx_host_lane_name(char *buf, size_t len, uint32_t from, uint32_t from_gen, uint32_t to, uint32_t to_gen)
{
	snprintf(buf, len, "%s%u.%u-%u.%u", lane_prefix, from, from_gen, to, to_gen);
}

static bool is_current(const struct smx_host *h, uint32_t slot, uint32_t gen)
{
	return slot < SMX_HOST_SLOTS && h->file->slot[slot].state == SMX_HOST_USED &&
	       h->file->slot[slot].gen == gen;
}

/* Files of lanes to those who are gone; all of them when nobody is left. What somebody sent before he went
 * is still to be received. */
static void remove_files(struct smx_host *h, bool all)
{
	int fd = openat(h->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(dir))) {
		unsigned int from, from_gen, to, to_gen;

		if (strncmp(e->d_name, lane_prefix, sizeof(lane_prefix) - 1))
			continue;
		if (!all && sscanf(e->d_name, "lane-%u.%u-%u.%u", &from, &from_gen, &to, &to_gen) == 4 &&
		    is_current(h, to, to_gen))
			continue;
		unlinkat(h->dir_fd, e->d_name, 0);
	}
	closedir(dir);
}

/* Numbers first: a slot that is free owns none. */
static void free_slot(struct smx_host *h, uint32_t slot)
{
	struct smx_host_file *f = h->file;

	for (uint32_t i = 0; i < SMX_HOST_BLOCKS; i++) {
		if ((f->block[i] & 0xffff) == slot + 1)
			__atomic_store_n(&f->block[i], 0, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&f->slot[slot].state, SMX_HOST_FREE, __ATOMIC_RELEASE);
	__atomic_fetch_add(&f->epoch, 1, __ATOMIC_ACQ_REL);
}

static unsigned int reclaim(struct smx_host *h)
{
	unsigned int dead = 0;

	for (uint32_t i = 0; i < SMX_HOST_SLOTS; i++) {
		if (h->file->slot[i].state != SMX_HOST_USED || (h->joined && i == h->slot) ||
		    smx_host_is_alive(&h->file->slot[i]))
			continue;
		free_slot(h, i);
		dead++;
	}
	if (dead)
		remove_files(h, false);
	return dead;
}

/* Under the lock. */
static void remove_if_empty(struct smx_host *h)
{
	for (uint32_t i = 0; i < SMX_HOST_SLOTS; i++) {
		if (h->file->slot[i].state == SMX_HOST_USED)
			return;
	}
	remove_files(h, true);
	unlinkat(h->dir_fd, file_name, 0);
	rmdir(h->dir);
}

unsigned int smx_host_reclaim(struct smx_host *h)
{
	unsigned int dead;

	lock(h, F_WRLCK);
	dead = reclaim(h);
	if (!h->joined)
		remove_if_empty(h);
	lock(h, F_UNLCK);
	return dead;
}

/* ------------------------------------------------------------------ coming and going */

static void own_name(char name[SMX_HOST_NAME_BYTES])
{
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, name, SMX_HOST_NAME_BYTES - 1);

	if (fd >= 0)
		close(fd);
	name[n > 0 ? n : 0] = '\0';
	name[strcspn(name, "\n")] = '\0';
}

static void fill_slot(struct smx_host *h, struct smx_host_slot *s)
{
	struct identity id;

	identify(getpid(), &id);
	s->pid = getpid();
	s->start_ticks = id.start_ticks;
	s->start_stack = id.start_stack;
	s->pid_ns = ns_inode("/proc/self/ns/pid");
	s->probe_addr = s->probe_value = 0;
	s->tables_fd = 0;
	s->busy = 0;
	s->qps = s->waiting = s->rnr_waiting = s->blocked = 0;
	s->direct = 0;
	s->sleeping = 0;
	memset(s->lanes_from, 0, sizeof(s->lanes_from));
	own_name(s->name);
	s->gen++;
	h->gen = s->gen;
	__atomic_store_n(&s->state, SMX_HOST_USED, __ATOMIC_RELEASE);
	__atomic_fetch_add(&h->file->epoch, 1, __ATOMIC_ACQ_REL);
}

int smx_host_join(struct smx_host *h, char *why, size_t why_len)
{
	struct stat st;
	int err = ENOSPC;

	assert(h->file && !h->joined);
	lock(h, F_WRLCK);
	if (fstat(h->fd, &st) || !st.st_nlink) {	/* the last one left since we opened it */
		char dir[sizeof(h->dir)];

		memcpy(dir, h->dir, sizeof(dir));
		smx_host_close(h);
		err = smx_host_open(h, dir, true, why, why_len);
		return err ? err : smx_host_join(h, why, why_len);
	}
	reclaim(h);
	for (uint32_t i = 0; i < SMX_HOST_SLOTS; i++) {
		if (h->file->slot[i].state != SMX_HOST_FREE)
			continue;
		h->slot = i;
		fill_slot(h, &h->file->slot[i]);
		h->joined = true;
		err = 0;
		break;
	}
	lock(h, F_UNLCK);
	return err ? refuse(why, why_len, err, "%s: %d processes have a device already", h->dir, SMX_HOST_SLOTS) : 0;
}

/* In a child that was made without our knowledge the slot is the parent's. Where the lock cannot be had, whoever comes
 * or leaves after the process has ended takes back what is left. */
void smx_host_give_back(struct smx_host *h)
{
	bool joined = h->joined;

	h->joined = false;
	if (!h->file || !joined || h->file->slot[h->slot].pid != getpid() || !lock_soon(h))
		return;
	if (is_current(h, h->slot, h->gen))
		free_slot(h, h->slot);
	reclaim(h);
	remove_files(h, false);
	remove_if_empty(h);
	lock(h, F_UNLCK);
}

void smx_host_leave(struct smx_host *h)
{
	smx_host_give_back(h);
	smx_host_close(h);
}

bool smx_host_take_block(struct smx_host *h, uint32_t *first_qpn)
{
	struct smx_host_file *f = h->file;
	bool found = false;

	assert(h->joined);
	lock(h, F_WRLCK);
	for (uint32_t i = 0; i < SMX_HOST_BLOCKS && !found; i++) {
		uint32_t at = (f->next_block + i) % SMX_HOST_BLOCKS;

		/* The first holds management's numbers, the last the one that means multicast. */
		if (!at || at == SMX_HOST_BLOCKS - 1 || f->block[at])
			continue;
		__atomic_store_n(&f->block[at], h->gen << 16 | (h->slot + 1), __ATOMIC_RELEASE);
		f->next_block = at + 1;
		*first_qpn = at << SMX_HOST_BLOCK_BITS;
		found = true;
	}
	lock(h, F_UNLCK);
	return found;
}
