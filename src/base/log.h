/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What softmlx5 says on stderr, one line a message. Level by SOFTMLX5_LOG. */
#ifndef SMX_LOG_H
#define SMX_LOG_H

#include <stdbool.h>

enum smx_log_level {
	SMX_LOG_OFF,	/* "off": nothing at all */
	SMX_LOG_WARN,	/* "warn", the default: the first failure of a queue pair, a setup mistake once */
	SMX_LOG_INFO,	/* "info": every refusal */
	SMX_LOG_DEBUG,	/* "debug": state changes and commands too */
};

bool smx_log_on(enum smx_log_level level);

/* Writes "softmlx5: " and the message and a newline with one write(2), so lines of threads stay whole. */
void smx_log(enum smx_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
