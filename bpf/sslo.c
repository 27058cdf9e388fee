//go:build ignore

// SPDX-License-Identifier: GPL-2.0
/* sslo.c - the programs of the session plane. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "leave.h"
#include "steer.h"

#define TCX_NEXT (-1)
#define TCX_DROP 2
#define VLAN_ID 0xfff

/* What was decided, for tests and traces that run the program: skb->cb survives in the test's context. */
static __always_inline void report(struct __sk_buff *skb, __u32 verdict, __u32 reason, __u32 link)
{
	skb->cb[0] = verdict | reason << 8;
	skb->cb[1] = link;
}

static __always_inline int drop_frame(struct __sk_buff *skb, struct packet *p)
{
	report(skb, VERDICT_DROP, p->reason, 0);
	count_drop(p, skb->len);
	return TCX_DROP;
}

static __always_inline int refuse_frame(struct __sk_buff *skb, struct packet *p, __u8 reason)
{
	p->reason = reason;
	return drop_frame(skb, p);
}

static __always_inline int forward_frame(struct __sk_buff *skb, struct packet *p)
{
	struct link *out = ARRAY(links, p->egress), *mac = ARRAY(links, p->mac_link);
	int next;

	if (!out || !mac || !out->ifindex)
		return refuse_frame(skb, p, DROP_LINK);
	if (out->ifindex == skb->ifindex && out->vlan == p->vlan)
		return refuse_frame(skb, p, DROP_HAIRPIN);
	if (retag(skb, 0))
		return refuse_frame(skb, p, DROP_TRUNCATED);
	if (p->mac_link && set_addresses(skb, mac, out))
		return refuse_frame(skb, p, DROP_TRUNCATED);
	skb->mark = 0;
	if (p->tap_count)
		copy_to_taps(skb, p);
	if (out->vlan && retag(skb, out->vlan))
		return refuse_frame(skb, p, DROP_TRUNCATED);
	report(skb, VERDICT_FORWARD, 0, p->egress);
	next = p->next_hop ? redirect_routed(skb, p, out) : bpf_redirect(out->ifindex, out->ingress ? BPF_F_INGRESS : 0);
	if (next < 0)
		return refuse_frame(skb, p, DROP_LINK);
	count_sent(p);
	return next;
}

/* Frames that are not for the session plane: the box's own business, except on device links. */
static __always_inline int other_frame(struct __sk_buff *skb, struct packet *p, const struct link *link)
{
	if (p->role == ROLE_CLIENT || p->role == ROLE_SERVER || own_talk(skb, p, link)) {
		report(skb, VERDICT_PASS, 0, 0);
		return TCX_NEXT;
	}
	return drop_frame(skb, p);
}

static __always_inline int walk(struct __sk_buff *skb, struct packet *p)
{
	int next = STEP_AGAIN, skipped = 0;

	/* A session that is made costs a step more, but a device is skipped no oftener than the chain is long. */
	for (int i = 0; i < 2 * CHAIN_POOLS + 2; i++) {
		next = step(skb);
		if (next == STEP_AGAIN && ++skipped <= CHAIN_POOLS)
			continue;
		if (next != STEP_MADE)
			break;
	}
	if (next == STEP_FORWARD)
		return forward_frame(skb, p);
	if (next == STEP_PASS) {
		report(skb, VERDICT_PASS, 0, 0);
		return TCX_NEXT;
	}
	if (next == STEP_AGAIN || next == STEP_MADE)
		p->reason = DROP_LOOP;
	return drop_frame(skb, p);
}

/*
 * The link that a frame came in on. A tag that is no link's own is another network's: such a frame is the
 * untagged link's to judge, if the NIC is one.
 */
static __always_inline __u16 *find_link(struct __sk_buff *skb, struct packet *p)
{
	struct link_key key = {.ifindex = skb->ifindex};
	__u16 *id;

	if (!skb->vlan_present)
		return bpf_map_lookup_elem(&link_ids, &key);
	p->vlan = skb->vlan_tci & VLAN_ID;
	if (skb->vlan_proto == bpf_htons(ETH_P_8021Q)) {
		key.vlan = p->vlan;
		id = bpf_map_lookup_elem(&link_ids, &key);
		if (id)
			return id;
	}
	p->reason = DROP_NOT_IP;
	key.vlan = 0;
	return bpf_map_lookup_elem(&link_ids, &key);
}

/* On the way in of every NIC, and on the way out of front0 and back0: what our own sockets send. One program for
 * both, as the kernel takes most of a second to verify it. */
SEC("tc")
int steer_frame(struct __sk_buff *skb)
{
	struct packet *p = ARRAY(scratch, 0);
	struct link *link;
	__u16 *id;

	if (!p)
		return TCX_NEXT;
	__builtin_memset(p, 0, offsetof(struct packet, fresh));
	id = find_link(skb, p);
	link = id ? ARRAY(links, *id) : 0;
	if (!link)
		return TCX_NEXT;
	p->now = bpf_ktime_get_coarse_ns(); /* a tick is fine enough; the exact clock costs a tenth of the program */
	p->mark = skb->mark;
	p->ingress = *id;
	p->role = link->role;
	p->key.link = *id;
	count_received(p, skb->len);
	if (p->reason)
		return other_frame(skb, p, link);
	switch (parse(skb, p)) {
	case PARSED:
		return walk(skb, p);
	case PARSED_PROBE:
		report(skb, VERDICT_PASS, 0, 0);
		return TCX_NEXT;
	}
	return other_frame(skb, p, link);
}

/* Whatever comes in on back0 goes to back's listener, any address and port. */
SEC("sk_lookup")
int back_lookup(struct bpf_sk_lookup *ctx)
{
	struct settings *set = ARRAY(settings, 0);
	struct link *back = set ? ARRAY(links, set->back) : 0;
	__u32 family = ctx->family == AF_INET ? 0 : 1;
	struct bpf_sock *sk;

	if (!back || !back->ifindex || ctx->ingress_ifindex != back->ifindex)
		return SK_PASS;
	sk = bpf_map_lookup_elem(&back_listeners, &family);
	if (!sk)
		return SK_PASS;
	bpf_sk_assign(ctx, sk, 0);
	bpf_sk_release(sk);
	return SK_PASS;
}

char _license[] SEC("license") = "GPL";
