/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A simulated medium between devices: frames are copied, queued in virtual time, and lost, doubled,
 * delayed and reordered by seeded chance. For tests of retransmission. */
#ifndef SMX_NET_SIM_H
#define SMX_NET_SIM_H

#include "net/port.h"

struct smx_net_sim_attr {
	uint64_t seed;
	uint32_t drop_ppm, dup_ppm, reorder_ppm;	/* chances in millionths */
	uint64_t delay_ns_min, delay_ns_max;
	uint64_t max_payload_bytes;	/* 0: one path MTU */
	/* Reads n bytes of a frame's walk into to; obj's, as net may not include it. RETURN false on a fault. */
	bool (*flatten)(void *walk, void *to, uint64_t n, uint16_t *check);
};

struct smx_port *smx_net_sim_create(const struct smx_net_sim_attr *attr);

#endif
