/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Address handles, and how an address resolves on RoCE: the source GID by its index, the
 * destination MAC from the destination GID. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "verbs/gid_table.h"
#include "verbs/objects.h"

enum {
	UDP_SPORT_MIN = 0xc000,		/* RoCE v2 source ports are 0xc000..0xffff */
	GRH_IPV4_AT = 20,		/* an IPv4 header lies in the last 20 of a GRH's 40 bytes */
	RATE_LAST = 24,			/* the last of enum ibv_rate */
};

/* The device's own rate codes, nearest above; what is faster than 120 Gb/s is unlimited. */
static uint8_t device_rate(uint8_t rate)
{
	static const uint8_t codes[] = {
		[IBV_RATE_2_5_GBPS] = 7,  [IBV_RATE_10_GBPS] = 8,   [IBV_RATE_30_GBPS] = 9,
		[IBV_RATE_5_GBPS] = 10,	  [IBV_RATE_20_GBPS] = 11,  [IBV_RATE_40_GBPS] = 12,
		[IBV_RATE_60_GBPS] = 13,  [IBV_RATE_80_GBPS] = 14,  [IBV_RATE_120_GBPS] = 15,
		[IBV_RATE_14_GBPS] = 11,  [IBV_RATE_56_GBPS] = 13,  [IBV_RATE_112_GBPS] = 15,
		[IBV_RATE_25_GBPS] = 9,	  [IBV_RATE_100_GBPS] = 15, [IBV_RATE_28_GBPS] = 9,
		[IBV_RATE_50_GBPS] = 13,
	};

	return rate < SMX_COUNT(codes) ? codes[rate] : 0;
}

/* A flow label spreads over the ports as every RoCE v2 sender does it, so that a flow keeps its
 * port. */
static uint16_t udp_sport(const struct ibv_ah_attr *attr)
{
	uint32_t fl = attr->grh.flow_label & 0xfffff;
	uint32_t seed = 0;

	if (fl)
		return (uint16_t)(UDP_SPORT_MIN | ((fl & 0x3fff) ^ (fl >> 14)));
	for (unsigned int i = 0; i < 16; i++)
		seed = seed * 31 + attr->grh.dgid.raw[i];
	return (uint16_t)(UDP_SPORT_MIN | (seed & 0x3fff));
}

int smx_path_resolve(struct ibv_context *context, const struct ibv_ah_attr *attr,
		     struct smx_path *path, uint8_t dmac[6])
{
	union ibv_gid sgid;

	if (attr->port_num != 1)
		return smx_refuse(smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
				  "ah_attr.port_num %u, there is only port 1", attr->port_num);
	if (!attr->is_global)
		return smx_refuse(smx_refusals(), SMX_CHECK_AH_NO_GRH, NULL,
				  "is_global is 0, dlid 0x%x", attr->dlid);
	if (attr->static_rate > RATE_LAST)
		return smx_refuse(
			smx_refusals(), SMX_CHECK_QP_ATTR_VALUE, NULL,
			"ah_attr.static_rate %u is no enum ibv_rate; was the structure zeroed?",
			attr->static_rate);
	if (smx_gid_get(context, attr->grh.sgid_index, &sgid, NULL, NULL))
		return smx_refuse(smx_refusals(), SMX_CHECK_QP_ATTR_VALUE, NULL,
				  "ah_attr.grh.sgid_index %u is empty, GIDs are at 0 to %u",
				  attr->grh.sgid_index, smx_gid_count() - 1);
	*path = (struct smx_path){
		.sgid_index = attr->grh.sgid_index,
		.hop_limit = attr->grh.hop_limit,
		.traffic_class = attr->grh.traffic_class,
		.sl = attr->sl,
		.flow_label = attr->grh.flow_label & 0xfffff,
		.udp_sport = udp_sport(attr),
	};
	memcpy(path->sgid, sgid.raw, sizeof(path->sgid));
	memcpy(path->dgid, attr->grh.dgid.raw, sizeof(path->dgid));
	smx_gid_mac(&attr->grh.dgid, dmac);
	return 0;
}

static void fill_av(struct smx_wqe_av *av, const struct ibv_ah_attr *attr,
		    const struct smx_path *path, const uint8_t dmac[6])
{
	*av = (struct smx_wqe_av){
		.stat_rate_sl =
			(uint8_t)(device_rate(attr->static_rate) << 4 | (attr->sl & 7) << 1),
		.rlid = to_be16(path->udp_sport),
		.tclass = path->traffic_class,
		.hop_limit = path->hop_limit,
		.grh_gid_fl = to_be32(bits_put(path->sgid_index, 27, 20) |
				      bits_put(path->flow_label, 19, 0)),
	};
	memcpy(av->rmac, dmac, sizeof(av->rmac));
	memcpy(av->rgid, path->dgid, sizeof(av->rgid));
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct smx_dv_ah *ah;
	struct smx_path path;
	uint8_t dmac[6];
	int err = smx_path_resolve(pd->context, attr, &path, dmac);

	if (err) {
		errno = err;
		return NULL;
	}
	ah = calloc(1, sizeof(*ah));
	if (!ah) {
		errno = ENOMEM;
		return NULL;
	}
	ah->ibv = (struct ibv_ah){ .context = pd->context, .pd = pd };
	fill_av(&ah->av, attr, &path, dmac);
	smx_vpd_hold(smx_vpd_of(pd));
	smx_ctx_hold(pd->context);
	return &ah->ibv;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct ibv_context *context = ah->context;

	smx_vpd_drop(smx_vpd_of(ah->pd));
	free(ah);
	smx_ctx_drop(context);
	return 0;
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t eth_mac[6], uint16_t *vid)
{
	struct smx_path path;
	int err = smx_path_resolve(context, attr, &path, eth_mac);

	if (!err && vid)
		*vid = 0xffff;	/* no VLAN */
	return err ? -err : 0;
}

/* ---- answering a message ---- */

/* RFC 1071, over a header whose own checksum field takes part: 0 when it is right. */
static uint16_t ipv4_checksum(const struct iphdr *ip)
{
	const uint8_t *bytes = (const uint8_t *)ip;
	uint32_t sum = 0;

	for (unsigned int i = 0; i < sizeof(*ip); i += 2)
		sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* The 40 bytes hold an IPv6 header, or 20 bytes of anything and an IPv4 header, whose checksum
 * tells. */
static int header_version(const struct ibv_grh *grh, struct iphdr *ip)
{
	memcpy(ip, (const char *)grh + GRH_IPV4_AT, sizeof(*ip));
	if (be32toh(grh->version_tclass_flow) >> 28 != 6)
		return ip->version == 4 ? 4 : 0;
	return ip->ihl == 5 && ip->version == 4 && !ipv4_checksum(ip) ? 4 : 6;
}

static int find_gid(const union ibv_gid *gid)
{
	for (uint32_t i = 0; i < smx_gid_count(); i++) {
		if (!memcmp(&smx_gid_at(i)->gid, gid, sizeof(*gid)))
			return (int)i;
	}
	return -1;
}

static void map_ipv4(union ibv_gid *gid, uint32_t be_addr)
{
	*gid = (union ibv_gid){ .raw = { [10] = 0xff, [11] = 0xff } };
	memcpy(gid->raw + 12, &be_addr, sizeof(be_addr));
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	union ibv_gid own;
	struct iphdr ip;
	uint32_t word;
	int version, index;

	(void)context;
	*attr = (struct ibv_ah_attr){
		.dlid = wc->slid,
		.sl = wc->sl,
		.src_path_bits = wc->dlid_path_bits,
		.port_num = port_num,
	};
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	word = be32toh(grh->version_tclass_flow);
	version = header_version(grh, &ip);
	if (version == 4) {
		map_ipv4(&own, ip.daddr);
		map_ipv4(&attr->grh.dgid, ip.saddr);
		attr->grh.hop_limit = ip.ttl;
		attr->grh.traffic_class = ip.tos;
	} else if (version == 6) {
		own = grh->dgid;
		attr->grh.dgid = grh->sgid;
		attr->grh.hop_limit = grh->hop_limit;
		attr->grh.traffic_class = (uint8_t)bits_get(word, 27, 20);
		attr->grh.flow_label = bits_get(word, 19, 0);
	} else {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	index = find_gid(&own);
	if (index < 0) {
		errno = smx_refuse(
			smx_refusals(), SMX_CHECK_OBJECT_ARG, NULL,
			"the message was sent to a GID that port %u does not have (a group's?)",
			port_num);
		return -1;
	}
	attr->grh.sgid_index = (uint8_t)index;
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port_num)
{
	struct ibv_ah_attr attr;

	return ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr)
		       ? NULL
		       : ibv_create_ah(pd, &attr);
}
