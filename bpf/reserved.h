/* SPDX-License-Identifier: GPL-2.0 */
/*
 * reserved.h - the box's own connections through a device, which monitors make.
 *
 * Both addresses are of the networks reserved for tests of devices (RFC 2544: 198.18.0.0/15; RFC 5180: 2001:2::/48),
 * which no client and no server has. On a device link such packets reach the monitor's packet socket and nobody
 * else: they make no session, and the kernel takes them for somebody else's.
 */
#ifndef SSLO_RESERVED_H
#define SSLO_RESERVED_H

#include "maps.h"

#define PACKET_OTHERHOST 3 /* linux/if_packet.h */

static __always_inline int reserved(const __u8 *addr)
{
	const __u32 *w = (const __u32 *)addr;

	if (w[0] == 0 && w[1] == 0 && w[2] == bpf_htonl(0xffff))
		return (w[3] & bpf_htonl(0xfffe0000)) == bpf_htonl(0xc6120000);
	return w[0] == bpf_htonl(0x20010002) && !(w[1] & bpf_htonl(0xffff0000));
}

static __always_inline int is_probe(const struct packet *p)
{
	return p->role == ROLE_DEVICE && reserved(p->key.src) && reserved(p->key.dst);
}

#endif
