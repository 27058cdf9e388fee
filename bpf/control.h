/* SPDX-License-Identifier: GPL-2.0 */
/* control.h - what on a routed device's link is the device's and the box's own talk, not a session's. */
#ifndef SSLO_CONTROL_H
#define SSLO_CONTROL_H

#include "parse.h"

#define ICMP4_ECHO_REPLY 0
#define ICMP6_ECHO_REPLY 129
#define ND_FIRST 133 /* router solicitation */
#define ND_LAST 137  /* redirect */

static __always_inline int in_prefix(const __u8 *addr, const __u8 *prefix, __u32 bits)
{
	const __u32 *a = (const __u32 *)addr, *b = (const __u32 *)prefix;

	for (int i = 0; i < 4; i++, bits -= 32) {
		if (!bits)
			return 1;
		if (bits < 32)
			return !((a[i] ^ b[i]) & bpf_htonl(~0U << (32 - bits)));
		if (a[i] != b[i])
			return 0;
	}
	return 1;
}

static __always_inline int in_ports(const struct control *c, __be16 port)
{
	__u16 n = bpf_ntohs(port);

	return c->port_from <= n && n <= c->port_to;
}

static __always_inline int allows(const struct control *c, const struct flow_key *key)
{
	if (c->proto && c->proto != key->proto)
		return 0;
	if (c->port_to && !in_ports(c, key->sport) && !in_ports(c, key->dport))
		return 0;
	return in_prefix(key->src, c->src, c->src_bits) && in_prefix(key->dst, c->dst, c->dst_bits);
}

/* A rule of the link allows the packet. */
__noinline int controlled(struct __sk_buff *skb)
{
	struct packet *p = ARRAY(scratch, 0);
	struct controls *list;
	struct link *link;

	if (!skb || !p)
		return 0;
	link = ARRAY(links, p->ingress);
	list = ARRAY(link_controls, p->ingress);
	if (!link || !list || !link->controls)
		return 0;
	for (int i = 0; i < LINK_CONTROLS && i < link->controls; i++)
		if (allows(&list->rules[i], &p->key))
			return 1;
	return 0;
}

/* Without these the box and its neighbour could not find each other, and no monitor could ask it. */
static __always_inline int neighbourly(struct __sk_buff *skb, struct packet *p)
{
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return 1;
	if (p->reason != DROP_PROTOCOL)
		return 0;
	if (p->key.proto == IPPROTO_ICMP)
		return p->icmp_type == ICMP4_ECHO_REPLY;
	return p->key.proto == IPPROTO_ICMPV6 &&
	       (p->icmp_type == ICMP6_ECHO_REPLY || (p->icmp_type >= ND_FIRST && p->icmp_type <= ND_LAST));
}

/* What was not for the session plane, but is for the box. */
static __always_inline int own_talk(struct __sk_buff *skb, struct packet *p, const struct link *link)
{
	if (!link->routed)
		return 0;
	return neighbourly(skb, p) || (p->reason == DROP_PROTOCOL && controlled(skb));
}

#endif
