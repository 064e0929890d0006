/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Addresses that requests carry themselves: what UD and DC have in common, and UD's own part.
 *
 * A datagram is one frame; nothing answers it. */
#include "xport/requester.h"

#include <inttypes.h>
#include <string.h>

/* The device knows the port's GIDs only where it was told; without that, an address on this host
 * is taken to come from itself. RETURN NULL for an index that has no GID. */
static const uint8_t *source_gid(const struct smx_dev *dev, uint32_t index, const uint8_t *fallback)
{
	static const uint8_t none[16];

	if (!dev->gid_count)
		return fallback;
	if (index >= dev->gid_count || !memcmp(dev->gid[index], none, sizeof(none)))
		return NULL;
	return dev->gid[index];
}

const uint8_t *smx_av_source(const struct smx_dev *dev, const struct smx_wqe_av *av)
{
	return source_gid(dev, bits_get(from_be32(av->grh_gid_fl), 27, 20), av->rgid);
}

smx_outcome smx_av_to_path(struct smx_dev *dev, struct smx_qp *qp, const struct smx_send_req *req,
			   struct smx_frame *f)
{
	const struct smx_wqe_av *av = req->av;
	uint32_t grh = from_be32(av->grh_gid_fl), index = bits_get(grh, 27, 20);
	const uint8_t *sgid = smx_av_source(dev, av);
	struct smx_where where = {
		.qpn = qp->qpn,
		.wqe_index = req->index,
		.opcode = req->opcode,
		.cookie = qp->attr.cookie,
	};

	if (!sgid) {
		smx_refuse(dev->attr.env.refusals, SMX_CHECK_WQE_AH, &where,
			   "source GID index %" PRIu32, index);
		return SMX_CHECK_WQE_AH;
	}
	memcpy(f->sgid, sgid, sizeof(f->sgid));
	memcpy(f->dgid, av->rgid, sizeof(f->dgid));
	f->sgid_index = (uint8_t)index;
	f->hop_limit = av->hop_limit;
	f->traffic_class = av->tclass;
	f->sl = av->stat_rate_sl & 0xf;
	f->flow_label = bits_get(grh, 19, 0);
	f->udp_sport = from_be16(av->rlid);
	f->dst_qpn = from_be32(av->dqp_dct) & 0xffffff;
	return SMX_CHECK_NONE;
}

smx_outcome smx_ud_address(struct smx_dev *dev, struct smx_qp *qp, const struct smx_send_req *req,
			   struct smx_frame *f)
{
	f->qkey = from_be32(req->av->qkey);
	/* IBA 10.2.5: a controlled Q_Key cannot be named in a request; the queue pair's own
	 * stands in. */
	if (f->qkey & 0x80000000u)
		f->qkey = qp->cur.qkey;
	return smx_av_to_path(dev, qp, req, f);
}
