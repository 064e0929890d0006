/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* softmlx5 ps and softmlx5 clean: look at the host's registry, and take back what the dead left in it. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>

#include "base/host_registry.h"
#include "cmd.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
	if (key == ARGP_KEY_ARG)
		argp_error(state, "`%s' is one argument too many", arg);
	return ARGP_ERR_UNKNOWN;
}

static const struct argp ps_argp = {
	.parser = parse,
	.doc = "List your processes in this network namespace that have a device: how many blocks of queue-pair "
	       "numbers each owns, its queue pairs, and, as of when its device last slept, those that wait for an "
	       "answer (ANSWER), for a receive at the peer (RECEIVE), and for room in a lane (ROOM), and how many of "
	       "its requests it has carried out itself in memory that others share (DIRECT).\v"
	       "Exit status: 0; 1 if the registry cannot be read; 2 for a wrong command line.",
};

static const struct argp clean_argp = {
	.parser = parse,
	.doc = "Remove what no living process of yours owns: slots, queue-pair numbers and lanes of processes that "
	       "were killed. Others' work is not touched.\v"
	       "Exit status: 0; 1 if the registry cannot be changed; 2 for a wrong command line.",
};

/* RETURN 0; 1 when there is none, which is well; -1 after a message. */
static int open_registry(struct smx_host *host, const char *title)
{
	char why[256];
	int err = smx_host_open(host, NULL, false, why, sizeof(why));

	if (err && err != ENOENT)
		fprintf(stderr, "%s: %s\n", title, why);
	return err == ENOENT ? 1 : err ? -1 : 0;
}

static unsigned int blocks_of(const struct smx_host *host, uint32_t slot)
{
	unsigned int n = 0;

	for (uint32_t i = 0; i < SMX_HOST_BLOCKS; i++)
		n += (host->file->block[i] & 0xffff) == slot + 1;
	return n;
}

static void print_name(const char *name)
{
	for (unsigned int i = 0; i < SMX_HOST_NAME_BYTES && name[i]; i++)
		putchar(name[i] >= ' ' && name[i] <= '~' ? name[i] : '?');
	putchar('\n');
}

int cmd_ps(int argc, char **argv)
{
	struct smx_host host;
	int found;

	argp_parse(&ps_argp, argc, argv, 0, NULL, NULL);
	found = open_registry(&host, argv[0]);
	if (found < 0)
		return CMD_FAILED;
	printf("%8s %-6s %7s %5s %7s %8s %5s %8s  %s\n", "PID", "STATE", "BLOCKS", "QPS", "ANSWER", "RECEIVE",
	       "ROOM", "DIRECT", "PROGRAM");
	for (uint32_t i = 0; !found && i < SMX_HOST_SLOTS; i++) {
		const struct smx_host_slot *s = &host.file->slot[i];

		if (s->state != SMX_HOST_USED)
			continue;
		printf("%8d %-6s %7u %5u %7u %8u %5u %8llu  ", s->pid, smx_host_is_alive(s) ? "alive" : "dead",
		       blocks_of(&host, i), s->qps, s->waiting, s->rnr_waiting, s->blocked,
		       (unsigned long long)s->direct);
		print_name(s->name);
	}
	if (!found)
		smx_host_close(&host);
	return CMD_OK;
}

int cmd_clean(int argc, char **argv)
{
	struct smx_host host;
	unsigned int dead = 0;
	int found;

	argp_parse(&clean_argp, argc, argv, 0, NULL, NULL);
	found = open_registry(&host, argv[0]);
	if (found < 0)
		return CMD_FAILED;
	if (!found) {
		dead = smx_host_reclaim(&host);
		smx_host_close(&host);
	}
	printf("%u dead processes\n", dead);
	return CMD_OK;
}
