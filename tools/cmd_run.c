/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* softmlx5 run: starts a program with the library path set. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"

enum { KEY_ENV = 0x100 };

struct run {
	char **program;		/* and its arguments, NULL at the end */
	const char *log;
	int env_only;
};

static const struct argp_option options[] = {
	{ "log", 'l', "LEVEL", 0, "Set SOFTMLX5_LOG for the program: off, warn, info or debug", 0 },
	{ "env", KEY_ENV, NULL, 0, "Start nothing; print the variable to set, for a shell or a debugger", 0 },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct run *run = state->input;

	switch (key) {
	case 'l':
		run->log = arg;
		return 0;
	case KEY_ENV:
		run->env_only = 1;
		return 0;
	case ARGP_KEY_ARG:
		run->program = &state->argv[state->next - 1];
		state->next = state->argc;	/* options behind the program's name are its own */
		return 0;
	case ARGP_KEY_END:
		if (!run->program && !run->env_only)
			argp_error(state, "no program is named");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[--] PROGRAM [ARG...]",
	.doc = "Start PROGRAM on softmlx5: LD_LIBRARY_PATH gets the folder of softmlx5's libibverbs.so.1 and "
	       "libmlx5.so.1 in front. Nothing else changes.\v"
	       "Exit status: the program's; 127 if it is not found, 126 if it cannot be started, 1 if the "
	       "libraries are missing, 2 for a wrong command line.",
};

int cmd_run(int argc, char **argv)
{
	struct run run = { NULL, NULL, 0 };
	char dir[PATH_MAX], path[2 * PATH_MAX];
	const char *old = getenv("LD_LIBRARY_PATH");
	int err;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &run);
	if (cmd_library_dir(dir, sizeof(dir)))
		return CMD_FAILED;
	if (snprintf(path, sizeof(path), "%s%s%s", dir, old && *old ? ":" : "", old && *old ? old : "") >=
	    (int)sizeof(path)) {
		fprintf(stderr, "softmlx5 run: LD_LIBRARY_PATH is longer than %zu bytes\n", sizeof(path) - 1);
		return CMD_FAILED;
	}
	if (run.env_only) {
		printf("LD_LIBRARY_PATH=%s\n", path);
		return CMD_OK;
	}
	if (setenv("LD_LIBRARY_PATH", path, 1) || (run.log && setenv("SOFTMLX5_LOG", run.log, 1))) {
		fprintf(stderr, "softmlx5 run: setenv: %s\n", strerror(errno));
		return CMD_FAILED;
	}
	execvp(run.program[0], run.program);
	err = errno;
	fprintf(stderr, "softmlx5 run: %s: %s\n", run.program[0], strerror(err));
	return err == ENOENT || err == ENOTDIR ? CMD_NOT_FOUND : CMD_CANNOT_EXECUTE;
}
