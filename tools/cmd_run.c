/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* softmlx5 run: starts a program with the library path set, and shows it the device's files. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"

enum { KEY_ENV = 0x100, KEY_NO_FILES };

struct run {
	char **program;		/* and its arguments, NULL at the end */
	const char *log;
	bool env_only, no_files;
};

static const struct argp_option options[] = {
	{ "log", 'l', "LEVEL", 0, "Set SOFTMLX5_LOG for the program: off, warn, info or debug", 0 },
	{ "env", KEY_ENV, NULL, 0, "Start nothing; print the variables to set, for a shell or a debugger", 0 },
	{ "no-files", KEY_NO_FILES, NULL, 0, "Do not show the device's files: preload nothing", 0 },
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
		run->env_only = true;
		return 0;
	case KEY_NO_FILES:
		run->no_files = true;
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
	       "libmlx5.so.1 in front, LD_PRELOAD a library at its end that shows /dev/infiniband and "
	       "/sys/class/infiniband as they are where the device exists. Nothing else changes.\v"
	       "Exit status: the program's; 127 if it is not found, 126 if it cannot be started, 1 if the "
	       "libraries are missing, 2 for a wrong command line.",
};

/* Sets the variable to the parts that are not empty with sep between them, or prints that. RETURN 0, or -1
 * after a message. */
static int set_list(const struct run *run, const char *name, const char *first, const char *sep, const char *second)
{
	char value[2 * PATH_MAX];
	bool both = first && *first && second && *second;

	if (snprintf(value, sizeof(value), "%s%s%s", first ? first : "", both ? sep : "", second ? second : "") >=
	    (int)sizeof(value)) {
		fprintf(stderr, "softmlx5 run: %s is longer than %zu bytes\n", name, sizeof(value) - 1);
		return -1;
	}
	if (run->env_only) {
		printf("%s=%s\n", name, value);
	} else if (setenv(name, value, 1)) {
		fprintf(stderr, "softmlx5 run: %s: %s\n", name, strerror(errno));
		return -1;
	}
	return 0;
}

/* The preloaded library stands last, and programs with AddressSanitizer are told to bear one at all. */
static int show_files(const struct run *run, const char *dir)
{
	char library[PATH_MAX];

	if (snprintf(library, sizeof(library), "%s/libsoftmlx5-files.so", dir) >= (int)sizeof(library) ||
	    access(library, R_OK)) {
		fprintf(stderr, "softmlx5 run: %s/libsoftmlx5-files.so: %s\n", dir, strerror(errno));
		return -1;
	}
	if (strpbrk(library, " :")) {	/* ld.so would take it for several */
		fprintf(stderr, "softmlx5 run: the device's files are not shown: %s has a blank or a colon in its "
			"name\n", library);
		return 0;
	}
	return set_list(run, "LD_PRELOAD", getenv("LD_PRELOAD"), ":", library) ||
	       set_list(run, "ASAN_OPTIONS", getenv("ASAN_OPTIONS"), ":", "verify_asan_link_order=0");
}

int cmd_run(int argc, char **argv)
{
	struct run run = { .program = NULL };
	char dir[PATH_MAX];
	int err;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &run);
	if (cmd_library_dir(dir, sizeof(dir)))
		return CMD_FAILED;
	if (set_list(&run, "LD_LIBRARY_PATH", dir, ":", getenv("LD_LIBRARY_PATH")) ||
	    (!run.no_files && show_files(&run, dir)) || (run.log && set_list(&run, "SOFTMLX5_LOG", run.log, "", NULL)))
		return CMD_FAILED;
	if (run.env_only)
		return CMD_OK;
	execvp(run.program[0], run.program);
	err = errno;
	fprintf(stderr, "softmlx5 run: %s: %s\n", run.program[0], strerror(err));
	return err == ENOENT || err == ENOTDIR ? CMD_NOT_FOUND : CMD_CANNOT_EXECUTE;
}
