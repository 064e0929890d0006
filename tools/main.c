/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The softmlx5 command: finds the subcommand and hands it its arguments. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "cmd.h"

const char *argp_program_version = "softmlx5 " SMX_VERSION;

static const struct command {
	const char *name, *title;	/* title: argv[0] of the subcommand, for its messages */
	int (*fn)(int argc, char **argv);
} commands[] = {
	{ "run", "softmlx5 run", cmd_run },
	{ "info", "softmlx5 info", cmd_info },
	{ "config", "softmlx5 config", cmd_config },
	{ "decode", "softmlx5 decode", cmd_decode },
	{ "ps", "softmlx5 ps", cmd_ps },
	{ "clean", "softmlx5 clean", cmd_clean },
};

struct chosen {
	const struct command *command;
	int at;		/* index of its name in argv */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct chosen *chosen = state->input;

	if (key == ARGP_KEY_ARG) {
		for (size_t i = 0; i < SMX_COUNT(commands); i++)
			if (!strcmp(arg, commands[i].name))
				chosen->command = &commands[i];
		if (!chosen->command)
			argp_error(state, "no command `%s'", arg);
		chosen->at = state->next - 1;
		state->next = state->argc;	/* the rest is the subcommand's */
		return 0;
	}
	if (key == ARGP_KEY_NO_ARGS)
		argp_state_help(state, stderr, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK);
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
	.parser = parse,
	.args_doc = "COMMAND [ARG...]",
	.doc = "A ConnectX (mlx5) in software.\v"
	       "Commands:\n"
	       "  run       start a program on softmlx5's libibverbs and libmlx5\n"
	       "  info      say what the device is and can do\n"
	       "  config    list every setting with its meaning, default and value\n"
	       "  decode    explain a dumped WQE or CQE, or the codes of a failed completion\n"
	       "  ps        list the processes of this host that have a device, and what they wait for\n"
	       "  clean     remove what no living process of yours owns\n"
	       "\n"
	       "`softmlx5 COMMAND --help' says more. Exit status: 0, 1 if it could not be done, 2 for a "
	       "wrong command line.",
};

int main(int argc, char **argv)
{
	struct chosen chosen = { NULL, 0 };

	argp_err_exit_status = CMD_USAGE;
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &chosen) || !chosen.command)
		return CMD_USAGE;
	argv[chosen.at] = (char *)chosen.command->title;
	return chosen.command->fn(argc - chosen.at, argv + chosen.at);
}
