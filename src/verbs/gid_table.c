/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Port 1's GIDs. The addresses are read once: an index means the same for the whole run. */
#include "verbs/gid_table.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>

#include "verbs/ibv_device.h"

static struct smx_gid table[SMX_GID_TABLE_LEN];
static uint32_t table_count;

static void map_ipv4(union ibv_gid *gid, uint32_t be_addr)
{
	memset(gid->raw, 0, 10);
	memset(gid->raw + 10, 0xff, 2);
	memcpy(gid->raw + 12, &be_addr, 4);
}

static void add(const union ibv_gid *gid, uint32_t ifindex)
{
	for (uint32_t i = 0; i < table_count; i++) {
		if (!memcmp(&table[i].gid, gid, sizeof(*gid)))
			return;
	}
	if (table_count < SMX_GID_TABLE_LEN)
		table[table_count++] = (struct smx_gid){ .gid = *gid, .ifindex = ifindex };
}

/* RETURN whether the address makes a GID. ::1 does not: it names no network. */
static bool to_gid(const struct ifaddrs *ifa, union ibv_gid *gid)
{
	if (!ifa->ifa_addr || !(ifa->ifa_flags & IFF_UP))
		return false;
	if (ifa->ifa_addr->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)ifa->ifa_addr;

		map_ipv4(gid, in->sin_addr.s_addr);
		return true;
	}
	if (ifa->ifa_addr->sa_family == AF_INET6 && !(ifa->ifa_flags & IFF_LOOPBACK)) {
		const struct sockaddr_in6 *in6 = (const void *)ifa->ifa_addr;

		memcpy(gid->raw, &in6->sin6_addr, sizeof(gid->raw));
		return true;
	}
	return false;
}

/* Interfaces to other machines first, IPv4 before IPv6: index 0 is what most programs want. */
static void fill(void)
{
	struct ifaddrs *list = NULL;
	union ibv_gid gid;

	if (!getifaddrs(&list)) {
		for (unsigned int pass = 0; pass < 3; pass++) {
			for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
				bool loop = ifa->ifa_flags & IFF_LOOPBACK;
				bool v4 = ifa->ifa_addr && ifa->ifa_addr->sa_family == AF_INET;

				if (to_gid(ifa, &gid) && pass == (loop ? 2u : v4 ? 0u : 1u))
					add(&gid, if_nametoindex(ifa->ifa_name));
			}
		}
		freeifaddrs(list);
	}
	if (!table_count) {
		map_ipv4(&gid, htonl(INADDR_LOOPBACK));
		add(&gid, 0);
	}
}

uint32_t smx_gid_count(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fill);
	return table_count;
}

const struct smx_gid *smx_gid_at(uint32_t index)
{
	return index < smx_gid_count() ? &table[index] : NULL;
}

void smx_gid_mac(const union ibv_gid *gid, uint8_t mac[6])
{
	static const uint8_t v4_prefix[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *r = gid->raw;
	bool v4 = !memcmp(r, v4_prefix, sizeof(v4_prefix));

	if (v4 && (r[12] & 0xf0) == 0xe0) {		/* RFC 1112 */
		memcpy(mac, (uint8_t[6]){ 0x01, 0x00, 0x5e, r[13] & 0x7f, r[14], r[15] }, 6);
	} else if (r[0] == 0xff) {			/* RFC 2464 */
		memcpy(mac, (uint8_t[6]){ 0x33, 0x33, r[12], r[13], r[14], r[15] }, 6);
	} else if (r[0] == 0xfe && (r[1] & 0xc0) == 0x80 && r[11] == 0xff && r[12] == 0xfe) {
		memcpy(mac, (uint8_t[6]){ r[8] ^ 2, r[9], r[10], r[13], r[14], r[15] }, 6);
	} else {
		memcpy(mac, (uint8_t[6]){ 0x02, v4 ? 0 : r[11], r[12], r[13], r[14], r[15] }, 6);
	}
}
