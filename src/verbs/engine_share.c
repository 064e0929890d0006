/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "verbs/engine_share.h"

#include <string.h>

#include "base/settings.h"
#include "base/share.h"
#include "verbs/engine.h"
#include "verbs/engine_pages.h"

bool smx_engine_share(const void *addr, size_t length)
{
	/* "copy" means that nobody touches another's memory. A UAR page that is moved is no longer watched. */
	return !strcmp(smx_setting_text(SMX_SET_HOST), "on") && !smx_uar_pages_touch(addr, length) &&
	       smx_share(addr, length, smx_engine_threads());
}

void smx_engine_unshare(const void *addr, size_t length)
{
	smx_unshare(addr, length, smx_engine_threads());
}
