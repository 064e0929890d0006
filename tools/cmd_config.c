/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* softmlx5 config: every setting, from the table that the library reads. */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "cmd.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
	if (key == ARGP_KEY_ARG)
		argp_error(state, "`%s' is one argument too many", arg);
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
	.parser = parse,
	.doc = "List every setting: what it means, what it may be, its default, its value now and where that came "
	       "from. Settings are environment variables; the library reads them when a process first uses it.\v"
	       "Exit status: 0; 1 if a variable has a value that is refused (the default is used then); 2 for a "
	       "wrong command line.",
};

/* 16777216 as "16M", where it is a round number. */
static void print_number(uint64_t v)
{
	static const char suffix[] = { 'G', 'M', 'K' };

	for (int i = 0; i < 3; i++) {
		unsigned int shift = 30 - 10 * (unsigned int)i;

		if (v >> shift && !(v & ((1ull << shift) - 1))) {
			printf("%" PRIu64 "%c (%" PRIu64 ")", v >> shift, suffix[i], v);
			return;
		}
	}
	printf("%" PRIu64, v);
}

static void print_bounds(const struct smx_setting_info *info)
{
	if (info->is_number) {
		printf("%s from ", info->is_pow2 ? "a power of two" : "a number");
		print_number(info->min);
		printf(" to ");
		print_number(info->max);
		return;
	}
	for (const char *p = info->choices ? info->choices : "any text"; *p; p++)
		printf(*p == '|' ? ", " : "%c", *p);
}

/* RETURN whether the environment's value was refused. */
static int print_setting(enum smx_setting which)
{
	const struct smx_setting_info *info = smx_setting_info(which);
	const char *env = getenv(info->env);
	char value[256];
	int from_env, refused;

	smx_setting_print(which, value, sizeof(value), &from_env);
	refused = env && *env && !from_env;
	printf("%s\n    %s.\n    may be   ", info->env, info->meaning);
	print_bounds(info);
	printf("\n    default  %s\n    value    ", info->def);
	if (info->is_number)
		print_number(smx_setting_number(which));
	else
		printf("%s", value);
	if (from_env)
		printf("  from the environment\n");
	else if (refused)
		printf("  the default, because `%s' is refused\n", env);
	else
		printf("  the default\n");
	return refused;
}

int cmd_config(int argc, char **argv)
{
	int refused = 0;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	for (int i = 0; i < SMX_SET_COUNT; i++) {
		if (i)
			printf("\n");
		refused |= print_setting((enum smx_setting)i);
	}
	return refused ? CMD_FAILED : CMD_OK;
}
