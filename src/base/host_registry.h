/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who is on this host: the processes of one user and network namespace that have a device, and the
 * queue-pair numbers of each.
 *
 * A directory under /dev/shm, readable by its user alone, holds one file that all of them map. Who
 * changes it holds a lock that ends with the process; who looks a number up takes none. Nobody has
 * to start or clean up anything: what a killed process left is found and taken back by whoever comes or
 * leaves next, and the last one to leave removes all. */
#ifndef SMX_HOST_REGISTRY_H
#define SMX_HOST_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	SMX_HOST_SLOTS = 256,		/* processes at a time */
	SMX_HOST_BLOCKS = 1 << 14,	/* of the 24-bit number space */
	SMX_HOST_BLOCK_BITS = 10,	/* numbers of a block */
	SMX_HOST_NAME_BYTES = 32,
	SMX_HOST_VERSION = 2,	/* of all that processes share; the directory has it in its name */
};
#define SMX_HOST_MAGIC 0x736d78356c6f6361ull

enum smx_host_state { SMX_HOST_FREE, SMX_HOST_USED };

/* One process. All of it may be read by others at any time; a peer's words are never believed. */
struct smx_host_slot {
	/* Written by others */
	uint32_t bell;			/* futex: counts what others did for this process */
	uint32_t sleeping;		/* a bit for each lane that nobody looks at: ring the bell */
	uint32_t lanes_seq;		/* counts lanes made for this process */
	uint32_t pad0[13];
	uint64_t lanes_from[SMX_HOST_SLOTS / 64];	/* who made one since this process looked */
	uint64_t pad1[4];
	/* Written by the owner */
	uint32_t state;			/* enum smx_host_state */
	uint32_t gen;			/* one more with each owner of this slot */
	int32_t pid;
	int32_t tables_fd;		/* one more than its file of net/host_tables.h; 0: none */
	uint64_t start_ticks;		/* field 22 of /proc/PID/stat: a pid alone may be another's by now */
	uint64_t start_stack;		/* field 28: changes when the process becomes another program */
	uint64_t pid_ns;		/* inode of its pid namespace: elsewhere the pid says nothing */
	uint64_t probe_addr;		/* a word of its memory that holds probe_value */
	uint64_t probe_value;
	char name[SMX_HOST_NAME_BYTES];
	/* What its queue pairs wait for, when it last went to sleep */
	uint32_t qps, waiting, rnr_waiting, blocked;
	uint64_t direct;
	uint64_t pad2[2];
	uint32_t busy;			/* it is in the memory of this slot's process, less one; 0: in nobody's */
	uint32_t pad3[15];
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct smx_host_slot) == 320, "slots are five cache lines");

struct smx_host_file {
	uint64_t magic;
	uint32_t version, bytes;
	uint32_t epoch;		/* counts processes that came or went */
	uint32_t next_block;	/* where the search for a free block starts */
	uint32_t pad[10];
	struct smx_host_slot slot[SMX_HOST_SLOTS];
	/* gen << 16 | slot + 1; 0: nobody's */
	uint32_t block[SMX_HOST_BLOCKS];
};

struct smx_host {
	struct smx_host_file *file;
	int dir_fd, fd;
	uint32_t slot, gen;		/* our own, once joined */
	bool joined;
	char dir[64];
};

/* Maps the registry, making it if there is none. dir: NULL for the user's own. RETURN 0, or an errno with
 * a sentence in why. */
int smx_host_open(struct smx_host *h, const char *dir, bool make, char *why, size_t why_len);
/* Takes a slot, after taking back those of the dead. */
int smx_host_join(struct smx_host *h, char *why, size_t why_len);
/* Gives back what is ours, and removes everything if nobody is left. */
void smx_host_leave(struct smx_host *h);
/* The same, but all stays mapped. */
void smx_host_give_back(struct smx_host *h);
/* Forgets the mapping without giving anything back: in the child of a fork, and after a look. */
void smx_host_close(struct smx_host *h);

/* Another block of numbers. RETURN false when all are taken. */
bool smx_host_take_block(struct smx_host *h, uint32_t *first_qpn);

/* Takes back what no living process owns. RETURN how many processes were found dead. */
unsigned int smx_host_reclaim(struct smx_host *h);
bool smx_host_is_alive(const struct smx_host_slot *slot);
bool smx_host_is_stopped(const struct smx_host_slot *slot);	/* by a signal, or a debugger */

/* The name of the file that holds the lanes from one process to another. */
void smx_host_lane_name(char *buf, size_t len, uint32_t from, uint32_t from_gen, uint32_t to, uint32_t to_gen);

/* RETURN the slot that owns the number, with its generation's low 16 bits, or SMX_HOST_SLOTS. */
static inline uint32_t smx_host_owner(const struct smx_host *h, uint32_t qpn, uint16_t *gen)
{
	uint32_t word = __atomic_load_n(&h->file->block[(qpn >> SMX_HOST_BLOCK_BITS) & (SMX_HOST_BLOCKS - 1)],
					__ATOMIC_ACQUIRE);
	uint32_t slot = (word & 0xffff) - 1;

	*gen = (uint16_t)(word >> 16);
	return slot < SMX_HOST_SLOTS ? slot : SMX_HOST_SLOTS;
}

#endif
