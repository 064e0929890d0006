/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What softmlx5 says on stderr, one line a message. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"

static enum smx_log_level level_by_name(const char *name)
{
	if (!strcmp(name, "off"))
		return SMX_LOG_OFF;
	if (!strcmp(name, "info"))
		return SMX_LOG_INFO;
	if (!strcmp(name, "debug"))
		return SMX_LOG_DEBUG;
	return SMX_LOG_WARN;
}

bool smx_log_on(enum smx_log_level level)
{
	static int known = -1;
	int max = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (max < 0) {
		max = (int)level_by_name(smx_setting_text(SMX_SET_LOG));
		__atomic_store_n(&known, max, __ATOMIC_RELAXED);
	}
	return level != SMX_LOG_OFF && (int)level <= max;
}

void smx_log(enum smx_log_level level, const char *fmt, ...)
{
	static const char prefix[] = "softmlx5: ";
	char line[1024];
	size_t len = sizeof(prefix) - 1;
	int saved_errno = errno;
	va_list args;
	int n;

	if (!smx_log_on(level))
		return;
	memcpy(line, prefix, len);
	va_start(args, fmt);
	n = vsnprintf(line + len, sizeof(line) - len - 1, fmt, args);
	va_end(args);
	if (n < 0)
		n = 0;
	len += (size_t)n < sizeof(line) - len - 1 ? (size_t)n : sizeof(line) - len - 2;
	line[len++] = '\n';
	/* Nobody to tell where stderr is gone. */
	if (write(STDERR_FILENO, line, len) < 0)
		len = 0;
	errno = saved_errno;
}
