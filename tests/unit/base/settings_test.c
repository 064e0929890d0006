/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goal: a setting takes the environment's value where it is good; a bad one is reported once and the
 * default stands; the log obeys SOFTMLX5_LOG and writes whole lines.
 * Method: settings are read once in a process, so each row runs in a child whose stderr is a pipe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/settings.h"

/* Runs fn(arg) in a child. RETURN its exit status; what it wrote to stderr is in text. */
static int in_child(int (*fn)(const void *arg), const void *arg, char *text, size_t len)
{
	int fds[2], status;
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		_exit(fn(arg));
	}
	close(fds[1]);
	while (n < len - 1 && (got = read(fds[0], text + n, len - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static size_t lines_in(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static const struct row {
	const char *name, *env;
	enum smx_setting which;
	const char *value;	/* NULL: not set */
	uint64_t want;
	int refused;
} rows[] = {
	{ "not set", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, NULL, 16 << 20, 0 },
	{ "empty is not set", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "", 16 << 20, 0 },
	{ "plain", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "65537", 65537, 0 },
	{ "K", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "3K", 3072, 0 },
	{ "small m", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "2m", 2 << 20, 0 },
	{ "at its largest", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "2G", 2147483648u, 0 },
	{ "one above", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "2147483649", 16 << 20, 1 },
	{ "at its smallest", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "1", 1, 0 },
	{ "one below", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "0", 16 << 20, 1 },
	{ "negative", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "-1", 16 << 20, 1 },
	{ "blank in front", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, " 1", 16 << 20, 1 },
	{ "two suffixes", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "1KK", 16 << 20, 1 },
	{ "suffix alone", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "K", 16 << 20, 1 },
	{ "words", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "lots", 16 << 20, 1 },
	{ "overflow", "SOFTMLX5_MEMCPY_MAX", SMX_SET_MEMCPY_MAX, "18446744073709551617", 16 << 20, 1 },
	{ "overflow by suffix", "SOFTMLX5_INLINE_BUDGET", SMX_SET_INLINE_BUDGET, "17179869185G", 4 << 20, 1 },
	{ "power of two", "SOFTMLX5_MTU", SMX_SET_MTU, "1024", 1024, 0 },
	{ "no power of two", "SOFTMLX5_MTU", SMX_SET_MTU, "1500", 4096, 1 },
};

static int check_row(const void *arg)
{
	const struct row *r = arg;
	int from_env = -1;
	char text[64], want[64];

	if (r->value)
		setenv(r->env, r->value, 1);
	else
		unsetenv(r->env);
	for (int i = 0; i < 3; i++)
		if (smx_setting_number(r->which) != r->want)
			return 1;
	setenv(r->env, "77", 1);	/* too late */
	smx_setting_print(r->which, text, sizeof(text), &from_env);
	snprintf(want, sizeof(want), "%llu", (unsigned long long)r->want);
	if (strcmp(text, want))
		return 2;
	return from_env == (r->value && *r->value && !r->refused) ? 0 : 3;
}

static void a_good_number_is_taken_a_bad_one_reported_once(void **state)
{
	char text[4096];

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(rows); i++) {
		int rc = in_child(check_row, &rows[i], text, sizeof(text));

		if (rc || lines_in(text) != (size_t)rows[i].refused ||
		    (rows[i].refused && (!strstr(text, rows[i].env) || !strstr(text, rows[i].value))))
			fail_msg("%s: exit %d, stderr `%s'", rows[i].name, rc, text);
	}
}

struct log_row { const char *value; int warn, info, debug, complaint; };

static int check_log(const void *arg)
{
	const struct log_row *r = arg;
	char longest[2000];

	setenv("SOFTMLX5_LOG", r->value, 1);
	setenv("SOFTMLX5_MTU", "bad", 1);
	smx_log(SMX_LOG_WARN, "w %d", 1);
	smx_log(SMX_LOG_INFO, "i");
	smx_log(SMX_LOG_DEBUG, "d");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	smx_log(SMX_LOG_DEBUG, "%s", longest);
	return smx_log_on(SMX_LOG_WARN) == r->warn && smx_log_on(SMX_LOG_INFO) == r->info &&
	       smx_log_on(SMX_LOG_DEBUG) == r->debug && !smx_log_on(SMX_LOG_OFF) ? 0 : 1;
}

static void the_log_obeys_its_level(void **state)
{
	static const struct log_row levels[] = {
		{ "off", 0, 0, 0, 0 }, { "warn", 1, 0, 0, 1 }, { "info", 1, 1, 0, 1 }, { "debug", 1, 1, 1, 1 },
		{ "loud", 1, 0, 0, 2 },	/* not a level: warn, after one more complaint */
		{ "war", 1, 0, 0, 2 },
	};
	char text[8192];

	(void)state;
	for (size_t i = 0; i < SMX_COUNT(levels); i++) {
		const struct log_row *r = &levels[i];

		assert_int_equal(in_child(check_log, r, text, sizeof(text)), 0);
		assert_int_equal(lines_in(text), r->complaint + r->warn + r->info + 2 * r->debug);
		assert_int_equal(strstr(text, "softmlx5: w 1\n") != NULL, r->warn);
		assert_int_equal(strstr(text, "softmlx5: d\n") != NULL, r->debug);
		if (*text)
			assert_int_equal(text[strlen(text) - 1], '\n');
	}
}

static void every_default_is_a_value_that_would_be_taken(void **state)
{
	(void)state;
	for (int i = 0; i < SMX_SET_COUNT; i++) {
		const struct smx_setting_info *info = smx_setting_info((enum smx_setting)i);
		char text[128];
		int from_env;

		unsetenv(info->env);
		assert_true(info->meaning[0] && strncmp(info->env, "SOFTMLX5_", 9) == 0);
		smx_setting_print((enum smx_setting)i, text, sizeof(text), &from_env);
		assert_false(from_env);
		if (info->is_number)
			assert_in_range(smx_setting_number((enum smx_setting)i), info->min, info->max);
		else
			assert_string_equal(text, info->def);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_number_is_taken_a_bad_one_reported_once),
		cmocka_unit_test(the_log_obeys_its_level),
		cmocka_unit_test(every_default_is_a_value_that_would_be_taken),
	};

	return cmocka_run_group_tests_name("base/settings", tests, NULL, NULL);
}
