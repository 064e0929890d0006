/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Loopback: both ends in this device. A frame is delivered inside send(). */
#ifndef SMX_NET_LOOP_H
#define SMX_NET_LOOP_H

#include "net/port.h"

struct smx_port *smx_net_loop_create(void);

#endif
