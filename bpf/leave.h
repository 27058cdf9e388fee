/* SPDX-License-Identifier: GPL-2.0 */
/* leave.h - how a frame leaves: tags, addresses, copies, redirect. */
#ifndef SSLO_LEAVE_H
#define SSLO_LEAVE_H

#include "device.h"
#include "stats.h"

#define AF_INET 2
#define AF_INET6 10

/* The tag that a frame came in with is off, and the one it leaves with is on. */
static __always_inline int retag(struct __sk_buff *skb, __u16 vlan)
{
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return -1;
	return vlan ? bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), vlan) : 0;
}

/* A tap that is not there, does not keep up or has no room is its own problem. */
static __always_inline void copy_to(struct __sk_buff *skb, struct packet *p, __u16 device)
{
	struct device_stats *stats = ARRAY(device_stats, device);
	struct device *d = ARRAY(devices, device);
	struct link *link = d ? ARRAY(links, d->in_link) : 0;

	if (!d || !stats || !link || !link->ifindex || service_of(d, device) == SERVICE_OUT)
		return;
	if (link->vlan && retag(skb, link->vlan))
		return;
	if (!bpf_clone_redirect(skb, link->ifindex, 0))
		count(&stats->sent[0], p->bytes);
	skb->cb[2] |= 1 << (d->in_link & 31); /* see report */
	if (link->vlan)
		retag(skb, 0);
}

static __always_inline void copy_to_taps(struct __sk_buff *skb, struct packet *p)
{
	for (int i = 0; i < PACKET_TAPS && i < p->tap_count; i++)
		copy_to(skb, p, p->taps[i]);
}

/* The kernel resolves the neighbour. */
static __always_inline int redirect_routed(struct __sk_buff *skb, const struct packet *p, const struct link *out)
{
	struct device *d = ARRAY(devices, p->next_hop);
	struct bpf_redir_neigh to = {};
	const struct next_hop *hop;

	if (!d)
		return -1;
	hop = &d->next[p->next_dir & 1];
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		to.nh_family = AF_INET;
		__builtin_memcpy(&to.ipv4_nh, hop->v4, 4);
		if (!to.ipv4_nh)
			return -1;
	} else {
		to.nh_family = AF_INET6;
		__builtin_memcpy(to.ipv6_nh, hop->v6, 16);
		if (!to.ipv6_nh[0])
			return -1;
	}
	return bpf_redirect_neigh(out->ifindex, &to, sizeof(to), 0);
}

static __always_inline int set_addresses(struct __sk_buff *skb, const struct link *to, const struct link *from)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (data + ETH_HLEN > end)
		return -1;
	__builtin_memcpy(data, to->mac, 6);
	__builtin_memcpy(data + 6, from->mac, 6);
	return 0;
}

#endif
