/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "net/host_tables.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fast_clock.h"
#include "base/log.h"

/* Neither a child's nor a core file's business. */
static void keep_to_ourselves(const struct smx_tables_file *file)
{
	madvise((void *)(uintptr_t)file, sizeof(*file), MADV_DONTFORK);
	madvise((void *)(uintptr_t)file, sizeof(*file), MADV_DONTDUMP);
}

/* ------------------------------------------------------------------ the owner */

/* A file longer than the limit would be a signal instead of an error. */
static bool may_be_that_long(void)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_FSIZE, &limit) &&
	       (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= sizeof(struct smx_tables_file));
}

bool smx_tables_make(struct smx_tables *t)
{
	void *map = MAP_FAILED;

	if (t->file || t->tried)
		return t->file != NULL;
	t->tried = true;
	if (!may_be_that_long())
		return false;
	t->fd = memfd_create("softmlx5-tables", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (t->fd < 0)
		return false;
	if (!ftruncate(t->fd, sizeof(*t->file)) &&
	    !fcntl(t->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		map = mmap(NULL, sizeof(*t->file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, t->fd, 0);
	if (map == MAP_FAILED) {
		close(t->fd);
		return false;
	}
	keep_to_ourselves(map);
	t->file = map;
	t->file->version = SMX_TABLES_VERSION;
	t->file->share_fd = -1;
	t->file->sharing = 1;
	__atomic_store_n(&t->file->magic, SMX_TABLES_MAGIC, __ATOMIC_RELEASE);
	return true;
}

void smx_tables_close(struct smx_tables *t)
{
	if (t->file) {
		munmap(t->file, sizeof(*t->file));
		close(t->fd);
	}
	*t = (struct smx_tables){ .fd = -1 };
}

static struct smx_key_entry *key_at(const struct smx_tables *t, uint32_t key)
{
	return &t->file->key[key >> 8];
}

static struct smx_qp_entry *qp_at(const struct smx_tables *t, uint32_t qpn)
{
	return &t->file->qp[qpn & (SMX_TABLES_NUMBERS - 1)];
}

bool smx_tables_has_qp(const struct smx_tables *t, const struct smx_port_qp *qp)
{
	const struct smx_qp_entry *e = qp_at(t, qp->qpn);

	return e->qpn == qp->qpn && e->peer == qp->peer && e->pdn == qp->pdn && e->rights == qp->rights &&
	       e->dc_key == qp->dc_key && e->mtu_bytes == qp->mtu_bytes && e->transport == qp->transport;
}

bool smx_tables_withdraw_key(struct smx_tables *t, uint32_t key)
{
	return __atomic_exchange_n(&key_at(t, key)->key, 0, __ATOMIC_SEQ_CST) != 0;
}

bool smx_tables_withdraw_qp(struct smx_tables *t, uint32_t qpn)
{
	return __atomic_exchange_n(&qp_at(t, qpn)->qpn, 0, __ATOMIC_SEQ_CST) != 0;
}

void smx_tables_put_key(struct smx_tables *t, const struct smx_port_key *key)
{
	struct smx_key_entry *e = key_at(t, key->key);

	assert(!e->key && key->key);
	e->rights = key->rights;
	e->pdn = key->pdn;
	e->start = key->start;
	e->length = key->length;
	e->host = key->host;
	__atomic_store_n(&e->key, key->key, __ATOMIC_RELEASE);
}

void smx_tables_put_qp(struct smx_tables *t, const struct smx_port_qp *qp)
{
	struct smx_qp_entry *e = qp_at(t, qp->qpn);

	assert(!e->qpn && qp->qpn);
	e->peer = qp->peer;
	e->psn = qp->psn;
	e->pdn = qp->pdn;
	e->rights = (uint8_t)qp->rights;
	e->dc_key = qp->dc_key;
	e->mtu_bytes = qp->mtu_bytes;
	e->transport = qp->transport;
	__atomic_store_n(&e->qpn, qp->qpn, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ the others */

static void map_far(struct smx_far *far, int fd, uint32_t slot, uint32_t gen, char *why, size_t why_len)
{
	const struct smx_tables_file *file;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_size != sizeof(*file) ||
	    seals < 0 || !(seals & F_SEAL_SHRINK)) {
		snprintf(why, why_len, "%s is no file of tables of user %u", far->path, geteuid());
		return;
	}
	file = mmap(NULL, sizeof(*file), PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (file == MAP_FAILED) {
		snprintf(why, why_len, "%s cannot be mapped: %s", far->path, strerror(errno));
		return;
	}
	keep_to_ourselves(file);
	if (__atomic_load_n(&file->magic, __ATOMIC_ACQUIRE) != SMX_TABLES_MAGIC ||
	    file->version != SMX_TABLES_VERSION || file->slot != slot || file->gen != gen) {
		snprintf(why, why_len, "%s: magic, version or owner are not those of slot %u generation %u", far->path,
			 slot, gen);
		munmap((void *)(uintptr_t)file, sizeof(*file));
		return;
	}
	far->file = file;
	far->device = st.st_dev;
	far->inode = st.st_ino;
}

bool smx_far_open(struct smx_far *far, pid_t pid, int fd, uint32_t slot, uint32_t gen, char *why, size_t why_len)
{
	int own;

	*far = (struct smx_far){ .pid = pid };
	snprintf(far->path, sizeof(far->path), "/proc/%d/fd/%d", pid, fd);
	own = open(far->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (own < 0) {
		snprintf(why, why_len, "%s cannot be opened: %s", far->path, strerror(errno));
		return false;
	}
	map_far(far, own, slot, gen, why, why_len);
	close(own);
	return far->file != NULL;
}

/* When the owner shares something, its memfd is there. */
static __attribute__((noinline)) bool open_memory(struct smx_far *far)
{
	char why[256];

	if (far->no_memory || far->file->share_fd < 0)
		return false;
	far->memory = smx_peer_memory_open(far->pid, far->file->share_fd, why, sizeof(why));
	far->no_memory = !far->memory;
	if (far->no_memory)
		smx_log(SMX_LOG_INFO, "the memory of process %d is not reached: %s", far->pid, why);
	return far->memory;
}

void smx_far_close(struct smx_far *far)
{
	if (far->memory)
		smx_peer_memory_close(far->memory);
	if (far->file)
		munmap((void *)(uintptr_t)far->file, sizeof(*far->file));
	*far = (struct smx_far){ .file = NULL };
}

/* Some hundred microseconds of whatever clock is cheapest. */
static uint64_t coarse_time(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc() >> 20;
#else
	return smx_clock_ns() >> 19;
#endif
}

/* Files are closed when a process dies, and this one too when it becomes another program. */
static __attribute__((noinline)) bool is_open_there(const struct smx_far *far)
{
	int saved_errno = errno;
	struct stat st;
	bool there = !stat(far->path, &st) && st.st_dev == far->device && st.st_ino == far->inode;

	errno = saved_errno;
	return there;
}

bool smx_far_lives(struct smx_far *far, uint32_t turn)
{
	uint64_t now;

	if (turn == far->turn)
		return true;
	now = coarse_time();
	if (__builtin_expect(now != far->looked_at, 0) && !is_open_there(far))
		return false;
	far->looked_at = now;
	far->turn = turn;
	return true;
}

/* What is mapped of it costs memory that nobody sees. */
static __attribute__((noinline)) void *let_go(struct smx_far *far)
{
	if (far->memory)
		smx_peer_memory_close(far->memory);
	far->memory = NULL;
	far->no_memory = true;
	return NULL;
}

void *smx_far_memory(struct smx_far *far, uint64_t addr, uint64_t *length)
{
	if (!smx_far_held(far))
		return let_go(far);
	if (!far->memory && !open_memory(far))
		return NULL;
	return smx_peer_memory_at(far->memory, addr, length);
}

static bool serves(const struct smx_qp_entry *qp, const struct smx_port_request *r)
{
	if (__atomic_load_n(&qp->qpn, __ATOMIC_ACQUIRE) != r->dst_qpn || qp->transport != r->transport ||
	    r->right & ~qp->rights || qp->mtu_bytes != r->mtu_bytes)
		return false;
	if (r->transport == SMX_TP_DC)
		return qp->dc_key == r->dc_key;
	return qp->peer == r->src_qpn && (r->agreed || qp->psn == r->psn);
}

void *smx_far_at(struct smx_far *far, const struct smx_port_request *r, uint64_t off, uint64_t *length)
{
	const struct smx_qp_entry *qp = &far->file->qp[r->dst_qpn & (SMX_TABLES_NUMBERS - 1)];
	const struct smx_key_entry *key = &far->file->key[r->rkey >> 8];
	uint64_t at, covers, host;

	if (!r->length || off >= r->length || !serves(qp, r))
		return NULL;
	if (__atomic_load_n(&key->key, __ATOMIC_ACQUIRE) != r->rkey || r->right & ~key->rights || key->pdn != qp->pdn)
		return NULL;
	/* Read once: an owner that does not keep to the rules may change them. */
	covers = __atomic_load_n(&key->length, __ATOMIC_RELAXED);
	host = __atomic_load_n(&key->host, __ATOMIC_RELAXED);
	at = r->va - __atomic_load_n(&key->start, __ATOMIC_RELAXED);
	if (at > covers || covers - at < r->length || host + covers < host)
		return NULL;
	if (r->right == SMX_MAY_ATOMIC && (r->va | (host + at)) & 7)
		return NULL;
	*length = r->length - off;
	return smx_far_memory(far, host + at + off, length);
}
