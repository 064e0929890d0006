/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SOFTMLX5_* environment variables: read once, at the first question. */
#include "base/settings.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"

static const struct smx_setting_info infos[SMX_SET_COUNT] = {
#define SMX_SETTING_NUM(id, env_, def_, min_, max_, meaning_) [SMX_SET_##id] = { \
	.env = env_, .meaning = meaning_, .def = def_, .min = min_, .max = max_, .is_number = 1 },
#define SMX_SETTING_POW2(id, env_, def_, min_, max_, meaning_) [SMX_SET_##id] = { \
	.env = env_, .meaning = meaning_, .def = def_, .min = min_, .max = max_, .is_number = 1, .is_pow2 = 1 },
#define SMX_SETTING_STR(id, env_, def_, choices_, meaning_) [SMX_SET_##id] = { \
	.env = env_, .meaning = meaning_, .def = def_, .choices = choices_ },
#include "base/settings.def"
#undef SMX_SETTING_NUM
#undef SMX_SETTING_POW2
#undef SMX_SETTING_STR
};

static struct value {
	const char *text;
	uint64_t number;
	int from_env;
} values[SMX_SET_COUNT];
static pthread_once_t values_once = PTHREAD_ONCE_INIT;

/* Digits, then at most one of K, M, G. strtoull() alone would take signs and spaces. */
static bool parse_number(const char *text, uint64_t *out)
{
	unsigned int shift = 0;
	uint64_t v = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (unsigned int)(*p - '0'), &v))
			return false;
	if (p == text)
		return false;
	if (*p == 'K' || *p == 'k')
		shift = 10;
	else if (*p == 'M' || *p == 'm')
		shift = 20;
	else if (*p == 'G' || *p == 'g')
		shift = 30;
	if (p[shift ? 1 : 0] || v > UINT64_MAX >> shift)
		return false;
	*out = v << shift;
	return true;
}

static bool is_choice(const char *choices, const char *text)
{
	size_t len = strlen(text);

	for (const char *p = choices; *p; p += strcspn(p, "|"), p += *p == '|')
		if (strcspn(p, "|") == len && !memcmp(p, text, len))
			return true;
	return false;
}

static bool accept(const struct smx_setting_info *info, const char *text, struct value *out)
{
	out->text = text;
	if (!info->is_number)
		return !info->choices || is_choice(info->choices, text);
	return parse_number(text, &out->number) && out->number >= info->min && out->number <= info->max &&
	       (!info->is_pow2 || is_pow2(out->number));
}

/* smx_log() cannot be used yet: it asks for a setting. */
static void complain(const struct smx_setting_info *info, const char *text)
{
	char line[512];
	int n;

	if (info->is_number)
		n = snprintf(line, sizeof(line), "softmlx5: %s=%.80s is not %s from %llu to %llu; %s is used\n",
			     info->env, text, info->is_pow2 ? "a power of two" : "a number",
			     (unsigned long long)info->min, (unsigned long long)info->max, info->def);
	else
		n = snprintf(line, sizeof(line), "softmlx5: %s=%.80s is none of %s; %s is used\n", info->env,
			     text, info->choices, info->def);
	if (n > 0 && write(STDERR_FILENO, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1) < 0)
		return;
}

static void read_all(void)
{
	const char *refused[SMX_SET_COUNT] = { NULL };

	for (int i = 0; i < SMX_SET_COUNT; i++) {
		const char *text = getenv(infos[i].env);

		if (text && *text) {
			/* The program may change its environment later. */
			text = strdup(text);
			values[i].from_env = text && accept(&infos[i], text, &values[i]);
			if (!values[i].from_env)
				refused[i] = text;
		}
		if (!values[i].from_env)
			accept(&infos[i], infos[i].def, &values[i]);
	}
	for (int i = 0; i < SMX_SET_COUNT; i++) {
		if (refused[i] && strcmp(values[SMX_SET_LOG].text, "off"))
			complain(&infos[i], refused[i]);
		free((char *)refused[i]);
	}
}

const struct smx_setting_info *smx_setting_info(enum smx_setting which)
{
	return &infos[which];
}

uint64_t smx_setting_number(enum smx_setting which)
{
	pthread_once(&values_once, read_all);
	return values[which].number;
}

const char *smx_setting_text(enum smx_setting which)
{
	pthread_once(&values_once, read_all);
	return values[which].text;
}

void smx_setting_print(enum smx_setting which, char *buf, size_t len, int *from_env)
{
	pthread_once(&values_once, read_all);
	if (infos[which].is_number)
		snprintf(buf, len, "%llu", (unsigned long long)values[which].number);
	else
		snprintf(buf, len, "%s", values[which].text);
	*from_env = values[which].from_env;
}
