/* SPDX-License-Identifier: GPL-2.0 */
/* parse.h - from frame to flow key. Nothing above L4 is read. */
#ifndef SSLO_PARSE_H
#define SSLO_PARSE_H

#include "maps.h"

#define HEADERS 128 /* bytes made linear when the headers are not */
#define EXTENSIONS 6

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define IP_FRAGMENT 0x3fff /* more-fragments bit and offset */
#define IP_OFFSET 0x1fff

/* The fixed part of ICMP and ICMPv6 (RFC 792; RFC 4443, 2.1); linux/icmp.h drags in libc. */
struct icmp_header {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 rest;
};
#define ICMP4_UNREACHABLE 3
#define ICMP4_TIME_EXCEEDED 11
#define ICMP4_PARAMETER_PROBLEM 12
#define ICMP6_FIRST_ERROR 1
#define ICMP6_LAST_ERROR 4

enum parsed {
	PARSED = 0,
	PARSED_PROBE, /* our own path probe */
	PARSED_OTHER, /* not for the session plane, packet->reason says why */
};

static __always_inline int refuse(struct packet *p, __u8 reason)
{
	p->reason = reason;
	return PARSED_OTHER;
}

static __always_inline void put_v4(__u8 *to, __be32 addr)
{
	__u32 *w = (__u32 *)to;

	w[0] = 0;
	w[1] = 0;
	w[2] = bpf_htonl(0xffff);
	w[3] = addr;
}

static __always_inline void put_v6(__u8 *to, const struct in6_addr *addr)
{
	__builtin_memcpy(to, addr, 16);
}

/* The error quotes a packet of the session: the error travels against it. */
static __always_inline int parse_quoted_ports(struct __sk_buff *skb, struct packet *p, __u32 off, __u8 proto)
{
	__be16 ports[2];

	if (proto != IPPROTO_TCP && proto != IPPROTO_UDP)
		return refuse(p, DROP_PROTOCOL);
	if (bpf_skb_load_bytes(skb, off, ports, sizeof(ports)))
		return refuse(p, DROP_TRUNCATED);
	p->key.proto = proto;
	p->key.sport = ports[1];
	p->key.dport = ports[0];
	p->icmp = 1;
	return PARSED;
}

static __always_inline int parse_icmp4(struct __sk_buff *skb, struct packet *p, __u32 off)
{
	struct icmp_header icmp;
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, off, &icmp, sizeof(icmp)))
		return refuse(p, DROP_TRUNCATED);
	p->icmp_type = icmp.type;
	if (icmp.type != ICMP4_UNREACHABLE && icmp.type != ICMP4_TIME_EXCEEDED && icmp.type != ICMP4_PARAMETER_PROBLEM)
		return refuse(p, DROP_PROTOCOL);
	off += sizeof(icmp);
	if (bpf_skb_load_bytes(skb, off, &ip, sizeof(ip)) || ip.ihl < 5)
		return refuse(p, DROP_TRUNCATED);
	if (ip.frag_off & bpf_htons(IP_OFFSET)) /* no ports in there */
		return refuse(p, DROP_FRAGMENT);
	put_v4(p->key.src, ip.daddr);
	put_v4(p->key.dst, ip.saddr);
	return parse_quoted_ports(skb, p, off + ip.ihl * 4, ip.protocol);
}

static __always_inline int parse_icmp6(struct __sk_buff *skb, struct packet *p, __u32 off)
{
	struct icmp_header icmp;
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, off, &icmp, sizeof(icmp)))
		return refuse(p, DROP_TRUNCATED);
	p->icmp_type = icmp.type;
	if (icmp.type < ICMP6_FIRST_ERROR || icmp.type > ICMP6_LAST_ERROR)
		return refuse(p, DROP_PROTOCOL);
	off += sizeof(icmp);
	if (bpf_skb_load_bytes(skb, off, &ip, sizeof(ip)))
		return refuse(p, DROP_TRUNCATED);
	put_v6(p->key.src, &ip.daddr);
	put_v6(p->key.dst, &ip.saddr);
	return parse_quoted_ports(skb, p, off + sizeof(ip), ip.nexthdr);
}

static __always_inline int parse_tcp(struct __sk_buff *skb, struct packet *p, __u32 off, __u32 length)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = data + off;
	__u32 header;

	if ((void *)(tcp + 1) > end || length < sizeof(*tcp))
		return refuse(p, DROP_TRUNCATED);
	header = tcp->doff * 4;
	if (header < sizeof(*tcp) || header > length)
		return refuse(p, DROP_TRUNCATED);
	p->key.sport = tcp->source;
	p->key.dport = tcp->dest;
	p->seq = bpf_ntohl(tcp->seq);
	p->ack = bpf_ntohl(tcp->ack_seq);
	p->tcp_flags = ((__u8 *)tcp)[13];
	p->payload = length - header;
	return PARSED;
}

static __always_inline int parse_udp(struct __sk_buff *skb, struct packet *p, __u32 off, __u32 length)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct udphdr *udp = data + off;

	if ((void *)(udp + 1) > end || length < sizeof(*udp))
		return refuse(p, DROP_TRUNCATED);
	p->key.sport = udp->source;
	p->key.dport = udp->dest;
	p->payload = length - sizeof(*udp);
	return PARSED;
}

/* off: of the L4 header; length: of L4 header and payload by the IP header. */
static __always_inline int parse_l4(struct __sk_buff *skb, struct packet *p, __u32 off, __u32 length)
{
	if (off > HEADERS)
		return refuse(p, DROP_EXTENSION);
	if (p->key.proto == IPPROTO_TCP)
		return parse_tcp(skb, p, off, length);
	if (p->key.proto == IPPROTO_UDP)
		return parse_udp(skb, p, off, length);
	if (p->key.proto == IPPROTO_ICMP)
		return parse_icmp4(skb, p, off);
	if (p->key.proto == IPPROTO_ICMPV6)
		return parse_icmp6(skb, p, off);
	return refuse(p, DROP_PROTOCOL);
}

static __always_inline int parse_ip4(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 header, total;

	if ((void *)(ip + 1) > end || ip->version != 4)
		return refuse(p, DROP_TRUNCATED);
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (!total) /* longer than 64 kB: the kernel's own big segments */
		total = skb->len - ETH_HLEN;
	if (header < sizeof(*ip) || total < header || total > skb->len - ETH_HLEN)
		return refuse(p, DROP_TRUNCATED);
	if (ip->frag_off & bpf_htons(IP_FRAGMENT))
		return refuse(p, DROP_FRAGMENT);
	put_v4(p->key.src, ip->saddr);
	put_v4(p->key.dst, ip->daddr);
	p->key.proto = ip->protocol;
	p->bytes = total;
	return parse_l4(skb, p, ETH_HLEN + header, total - header);
}

/* Walks hop-by-hop, routing and destination options (RFC 8200, 4). Returns the L4 offset, 0 if there is none. */
static __noinline __u32 skip_extensions(struct __sk_buff *skb, struct packet *p)
{
	__u32 off = ETH_HLEN + sizeof(struct ipv6hdr);
	__u8 head[2];

	if (!p)
		return 0;
	for (int i = 0; i < EXTENSIONS; i++) {
		__u8 next = p->key.proto;

		if (next == IPPROTO_FRAGMENT) {
			p->reason = DROP_FRAGMENT;
			return 0;
		}
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS)
			return off;
		if (bpf_skb_load_bytes(skb, off, head, sizeof(head))) {
			p->reason = DROP_TRUNCATED;
			return 0;
		}
		p->key.proto = head[0];
		off += (head[1] + 1) * 8;
	}
	p->reason = DROP_EXTENSION;
	return 0;
}

static __always_inline int parse_ip6(struct __sk_buff *skb, struct packet *p)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip = data + ETH_HLEN;
	__u32 off = ETH_HLEN + sizeof(*ip), total;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return refuse(p, DROP_TRUNCATED);
	total = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (total == sizeof(*ip)) /* see parse_ip4 */
		total = skb->len - ETH_HLEN;
	if (total > skb->len - ETH_HLEN)
		return refuse(p, DROP_TRUNCATED);
	put_v6(p->key.src, &ip->saddr);
	put_v6(p->key.dst, &ip->daddr);
	p->key.proto = ip->nexthdr;
	p->bytes = total;
	if (p->key.proto != IPPROTO_TCP) {
		off = skip_extensions(skb, p);
		if (!off)
			return PARSED_OTHER;
		if (off > ETH_HLEN + total)
			return refuse(p, DROP_TRUNCATED);
	}
	return parse_l4(skb, p, off, ETH_HLEN + total - off);
}

/* Headers may lie in fragments of the buffer: make the first bytes linear. */
static __always_inline void linearise(struct __sk_buff *skb)
{
	__u32 linear = skb->data_end - skb->data;

	if (linear < HEADERS && linear < skb->len)
		bpf_skb_pull_data(skb, skb->len < HEADERS ? skb->len : HEADERS);
}

static __always_inline int parse(struct __sk_buff *skb, struct packet *p)
{
	linearise(skb);
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return parse_ip4(skb, p);
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		return parse_ip6(skb, p);
	if (skb->protocol == bpf_htons(PROBE_ETHERTYPE))
		return PARSED_PROBE;
	return refuse(p, DROP_NOT_IP);
}

#endif
