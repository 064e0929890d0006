/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Subcommands of softmlx5: one file each. */
#ifndef SMX_TOOLS_CMD_H
#define SMX_TOOLS_CMD_H

#include <stddef.h>

/* Exit statuses of every subcommand; those of `run` are the program's, or what a shell would give. */
enum {
	CMD_OK = 0,
	CMD_FAILED = 1,
	CMD_USAGE = 2,
	CMD_CANNOT_EXECUTE = 126,
	CMD_NOT_FOUND = 127,
};

/* argv[0] is "softmlx5 run" and so on. RETURN the exit status. */
int cmd_run(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_decode(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_clean(int argc, char **argv);

/* Where softmlx5's own libibverbs.so.1 and libmlx5.so.1 are, relative to this executable. RETURN 0, or -1
 * after a message. */
int cmd_library_dir(char *buf, size_t len);

#endif
