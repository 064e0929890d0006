/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ACKs in a lane. One says that all before it arrived, so of a run the last is enough: it waits outside the lane until
 * another queue pair's comes, a request leaves the other way and takes it along, or its sender publishes it. The
 * record that the last one was written to stays: the next of the same queue pair differs from it in few words. */
#ifndef SMX_SHM_ACK_H
#define SMX_SHM_ACK_H

#include "net/net_shm.h"
#include "net/shm_record.h"

struct smx_shm_ack {
	bool waits;
	uint8_t transport;
	uint16_t stream;
	uint32_t size;		/* in the lane; 0: there was none yet */
	uint32_t src_qpn, dst_qpn, psn, mtu_bytes, dc_nonce;
	/* As it will lie in the lane */
	struct {
		struct smx_rec head;
		struct smx_rec_more more;
	} rec;
};

static inline uint32_t smx_rec_lane_bytes(uint64_t bytes)
{
	return (uint32_t)((bytes + SMX_LANE_ALIGN - 1) & ~(uint64_t)(SMX_LANE_ALIGN - 1));
}

static inline bool smx_shm_is_ack(const struct smx_frame *f)
{
	return f->op == SMX_FRAME_ACK && (f->syndrome & 0x60) == SMX_AETH_ACK && !f->text;
}

/* Before anything else goes into the lane. */
void smx_shm_ack_publish(struct smx_shm_ack *a, struct smx_lane *answers);
/* f, which smx_shm_is_ack(), waits from now on. RETURN false when there is no room for it. */
bool smx_shm_ack_put(struct smx_shm_ack *a, struct smx_lane *answers, const struct smx_frame *f);
/* rec, which f was written to, is about to be published: the ACK that waits goes with it if it is the other
 * direction's. */
void smx_shm_ack_carry(struct smx_shm_ack *a, struct smx_rec *rec, const struct smx_frame *f);
/* The ACK that came with a request. out: zeroes, or one made before. */
void smx_shm_ack_carried(const struct smx_arrived *a, struct smx_frame *out);

#endif
