/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a process lets others do in its memory without asking: keys and queue pairs, published.
 *
 * Each process has one file, a memfd that its slot in the registry names, sparse and as long as all numbers need.
 * Its owner alone writes it. An entry holds when its first word is the number itself; that word is written last, and
 * taken back first. Whoever reads says so first, in its slot's word busy, and says when it is done: so an owner that
 * has taken an entry back and finds nobody busy with it knows that nobody will use the entry. Nothing that is read
 * is believed further than the reader's own memory reaches. */
#ifndef SMX_HOST_TABLES_H
#define SMX_HOST_TABLES_H

#include "base/host_registry.h"
#include "base/peer_memory.h"
#include "net/port.h"

struct smx_key_entry {
	uint32_t key;		/* 0: nothing is published here */
	uint32_t rights, pdn, pad;	/* rights: enum smx_port_right */
	uint64_t start, length, host;
	uint64_t pad2[3];
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct smx_key_entry) == 64, "one cache line");

struct smx_qp_entry {
	uint32_t qpn;		/* 0: nothing is published here */
	uint32_t peer;		/* RC: who is connected */
	uint32_t psn;		/* RC: that it expected when this was published */
	uint32_t pdn;
	uint64_t dc_key;	/* DCT */
	uint16_t mtu_bytes;
	uint8_t transport, rights;
	uint32_t pad;
} __attribute__((aligned(32)));
_Static_assert(sizeof(struct smx_qp_entry) == 32, "half a cache line");

enum { SMX_TABLES_VERSION = 2, SMX_TABLES_NUMBERS = 1 << 24 };
#define SMX_TABLES_MAGIC 0x736d783570756273ull

struct smx_tables_file {
	uint64_t magic;
	uint32_t version;
	uint32_t slot, gen;	/* of the owner */
	int32_t share_fd;	/* its memfd of base/share.h */
	uint32_t sharing;	/* 0: never again; what is found in that memfd is not its memory any more */
	uint8_t pad[4096 - 28];
	struct smx_qp_entry qp[SMX_TABLES_NUMBERS];
	struct smx_key_entry key[SMX_TABLES_NUMBERS];	/* by key >> 8 */
};

/* The owner's end. */
struct smx_tables {
	struct smx_tables_file *file;	/* NULL: none */
	int fd;
	bool tried;
};

/* RETURN false when this system has no such files; it is asked once. */
bool smx_tables_make(struct smx_tables *t);
void smx_tables_close(struct smx_tables *t);

/* RETURN whether the entry says the same already. */
bool smx_tables_has_qp(const struct smx_tables *t, const struct smx_port_qp *qp);
/* Takes back what is published under the number. RETURN whether something was: then nobody may be busy
 * with it before anything else is put there. */
bool smx_tables_withdraw_key(struct smx_tables *t, uint32_t key);
bool smx_tables_withdraw_qp(struct smx_tables *t, uint32_t qpn);
void smx_tables_put_key(struct smx_tables *t, const struct smx_port_key *key);
void smx_tables_put_qp(struct smx_tables *t, const struct smx_port_qp *qp);

/* Another process's. */
struct smx_far {
	const struct smx_tables_file *file;	/* NULL: none */
	struct smx_peer_memory *memory;		/* opened when a key is first found */
	bool no_memory;				/* it could not be */
	pid_t pid;
	uint64_t device, inode;			/* of the file */
	uint64_t looked_at;			/* when it was last seen to be there */
	uint32_t turn;				/* in which it was last seen to live */
	char path[40];
};

/* fd: of pid. RETURN false, with a sentence in why, when it is not slot's of that generation, or may not be read. */
bool smx_far_open(struct smx_far *far, pid_t pid, int fd, uint32_t slot, uint32_t gen, char *why, size_t why_len);
void smx_far_close(struct smx_far *far);
/* Does the process live, as the program that it was? Looks once a while; cheap in between, and free within a turn. */
bool smx_far_lives(struct smx_far *far, uint32_t turn);
/* Where byte off of the memory that the request names is here; *length: how much lies together. RETURN NULL unless
 * the tables say that the whole request would be carried out. The caller is marked as busy. */
void *smx_far_at(struct smx_far *far, const struct smx_port_request *r, uint64_t off, uint64_t *length);
/* Where the process's own address addr is here, likewise, if it is shared. */
void *smx_far_memory(struct smx_far *far, uint64_t addr, uint64_t *length);
/* Was what the caller did in that memory done in the process's memory? Asked before the mark is taken away. */
static inline bool smx_far_held(const struct smx_far *far)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&far->file->sharing, __ATOMIC_ACQUIRE);
}

#endif
