/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The states of a queue pair, for sentences. By number, as enum ibv_qp_state has them. */
#ifndef SMX_STATE_NAME_H
#define SMX_STATE_NAME_H

static inline const char *smx_state_name(unsigned int state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "an unknown state";
}

#endif
