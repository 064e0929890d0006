/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every SOFTMLX5_* environment variable: settings.def names it, its meaning, its default and bounds.
 * The library reads settings here and nowhere else; `softmlx5 config` prints the same table. */
#ifndef SMX_SETTINGS_H
#define SMX_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

enum smx_setting {
#define SMX_SETTING_NUM(id, env, def, min, max, meaning) SMX_SET_##id,
#define SMX_SETTING_POW2(id, env, def, min, max, meaning) SMX_SET_##id,
#define SMX_SETTING_STR(id, env, def, choices, meaning) SMX_SET_##id,
#include "base/settings.def"
#undef SMX_SETTING_NUM
#undef SMX_SETTING_POW2
#undef SMX_SETTING_STR
	SMX_SET_COUNT
};

struct smx_setting_info {
	const char *env;	/* "SOFTMLX5_LOG" */
	const char *meaning;	/* one sentence */
	const char *def;	/* default, as text */
	const char *choices;	/* "off|warn|info|debug", or NULL: any text, or a number in min..max */
	uint64_t min, max;	/* numbers only */
	int is_number;
	int is_pow2;		/* a number that must be a power of two */
};

const struct smx_setting_info *smx_setting_info(enum smx_setting which);

/* A number accepts the suffixes K, M and G (powers of 1024). A value that does not parse or lies
 * outside its bounds is reported once on stderr and the default is used. */
uint64_t smx_setting_number(enum smx_setting which);
const char *smx_setting_text(enum smx_setting which);

/* The value in force, as text; *from_env says whether the environment set it. For `softmlx5 config`. */
void smx_setting_print(enum smx_setting which, char *buf, size_t len, int *from_env);

#endif
