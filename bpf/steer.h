/* SPDX-License-Identifier: GPL-2.0 */
/* steer.h - the walk: from a packet's key to its egress link, around devices that are out of service. */
#ifndef SSLO_STEER_H
#define SSLO_STEER_H

#include "control.h"
#include "reserved.h"
#include "table.h"

#define TRIP_LOOK_NS 10000000ULL /* do not even look at the settings before this */

/* Not yet taken around a device: the packet did come in on its key's link. */
static __always_inline int at_ingress(const struct packet *p)
{
	return p->key.link == p->ingress;
}

/* While no daemon probes, a device that swallows everything is taken out of service here. */
static __always_inline void trip(struct packet *p, struct device_runtime *rt, __u64 silent, __u32 device, __u32 dir)
{
	struct settings *set = ARRAY(settings, 0);

	if (!set || !set->trip_ms || silent < set->trip_ms * 1000000ULL)
		return;
	if (p->now < set->heartbeat_ns + HEARTBEAT_STALE_NS || rt->tripped_ns > set->heartbeat_ns)
		return;
	rt->tripped_ns = p->now;
	emit(p, 0, EVENT_TRIPPED, 0, device, BYPASS_TRIPPED, dir);
}

/* A frame goes to a device, or comes from it: evidence that it forwards. */
static __always_inline void sent_to(struct packet *p, __u32 device, __u32 dir)
{
	struct device_runtime *rt = ARRAY(device_runtime, device);
	struct device_stats *stats = ARRAY(device_stats, device);
	struct device_flow *flow;

	if (!stats || !rt)
		return;
	count(&stats->sent[dir & 1], p->bytes);
	flow = &rt->flow[dir & 1];
	if (!flow->pending_ns)
		flow->pending_ns = p->now;
	else if (p->now > flow->pending_ns + TRIP_LOOK_NS)
		trip(p, rt, p->now - flow->pending_ns, device, dir);
}

static __always_inline void received_from(struct packet *p, __u32 device, __u32 dir)
{
	struct device_runtime *rt = ARRAY(device_runtime, device);
	struct device_stats *stats = ARRAY(device_stats, device);
	struct device_flow *flow;

	if (!stats || !rt)
		return;
	count(&stats->received[dir & 1], p->bytes);
	flow = &rt->flow[dir & 1];
	if (flow->pending_ns) {
		flow->pending_ns = 0;
		flow->received_ns = p->now;
	}
}

/* Whatever becomes of the packet, it shows that the device it came through forwards. */
static __always_inline void heard(struct packet *p, const struct session *s, __u32 dir)
{
	__u32 device = dir == DIR_ORIG ? s->in_device : s->device;

	if (device && at_ingress(p))
		received_from(p, device, dir);
}

static __always_inline void track_fin(struct session *s, __u32 dir)
{
	s->flags |= dir == DIR_ORIG ? FLAG_FIN_ORIG : FLAG_FIN_REPLY;
	if ((s->flags & (FLAG_FIN_ORIG | FLAG_FIN_REPLY)) == (FLAG_FIN_ORIG | FLAG_FIN_REPLY))
		s->state = STATE_CLOSING;
	else
		s->state = STATE_HALF_CLOSED;
}

static __always_inline void track_syn_ack(struct packet *p, struct session *s)
{
	struct session *child = s->child ? bpf_map_lookup_elem(&sessions, &s->child) : 0;

	s->state = STATE_SYN_RECEIVED;
	s->synack_seq = p->seq;
	if (child && child->synack_seq != p->seq)
		mark_rewriter(p, s);
}

/* Never back: a reset with the number of a retransmission would be ignored by the peer. */
static __always_inline void advance(const struct packet *p, struct traffic *t)
{
	__u32 next = p->seq + p->payload + !!(p->tcp_flags & TCP_SYN) + !!(p->tcp_flags & TCP_FIN);

	if ((p->tcp_flags & TCP_SYN) || (__s32)(next - t->next_seq) > 0)
		t->next_seq = next;
}

/* What the other side need not send again. */
static __always_inline void acknowledge(const struct packet *p, struct traffic *t)
{
	if ((p->tcp_flags & TCP_ACK) && (!t->acked || (__s32)(p->ack - t->acked) > 0))
		t->acked = p->ack;
}

/* The state of a TCP session by what passes (RFC 9293, 3.3.2, seen from the middle). */
static __always_inline void track(struct packet *p, struct session *s, __u32 dir)
{
	__u8 flags = p->tcp_flags, before = s->state;

	advance(p, &s->traffic[dir & 1]);
	acknowledge(p, &s->traffic[dir & 1]);
	if (before == STATE_CLOSED)
		return;
	if (flags & TCP_RST)
		s->state = STATE_CLOSED;
	else if (flags & TCP_FIN)
		track_fin(s, dir);
	else if (before == STATE_SYN_SENT && dir == DIR_REPLY && (flags & TCP_SYN) && (flags & TCP_ACK))
		track_syn_ack(p, s);
	else if (before == STATE_SYN_RECEIVED && dir == DIR_ORIG && (flags & TCP_ACK))
		s->state = STATE_ESTABLISHED;
	if (!s->parent && before < STATE_CLOSING && s->state >= STATE_CLOSING)
		emit(p, s, EVENT_CLOSED, s->pool, s->device, s->bypass, dir);
}

static __always_inline void account(struct packet *p, struct session *s, __u32 dir)
{
	struct traffic *t = &s->traffic[dir & 1];
	__u64 skipped;

	t->seen_ns = p->now;
	__sync_fetch_and_add(&t->packets, 1);
	__sync_fetch_and_add(&t->bytes, p->bytes);
	__builtin_memcpy(&skipped, s->skipped, sizeof(skipped));
	if (skipped)
		skip_ledger(s, 0, 1);
	if (p->icmp)
		s->flags |= FLAG_ICMP_SEEN;
	else if (p->key.proto == IPPROTO_TCP)
		track(p, s, dir);
	else if (dir == DIR_REPLY && s->state == STATE_NEW)
		s->state = STATE_ESTABLISHED;
}

/* Whose MAC the frame gets: that of the device's other link, or a routed device's own. */
static __always_inline void address_to(struct packet *p, struct device *d, __u32 id, __u32 dir)
{
	if (d->routed) {
		p->next_hop = id;
		p->next_dir = dir;
	} else {
		p->mac_link = dir == DIR_ORIG ? d->out_link : d->in_link;
	}
}

/* To the device of owner (orig) or back through it (reply). */
static __always_inline int to_device(struct packet *p, struct session *owner, struct device *d, __u32 id, __u32 dir)
{
	p->egress = dir == DIR_ORIG ? d->in_link : d->out_link;
	if (dir == DIR_ORIG && !owner->child && !p->icmp)
		expect(p, owner, d->out_link);
	address_to(p, d, id, dir);
	sent_to(p, id, dir);
	return STEP_FORWARD;
}

/* Around the device: the packet takes the link it would have come out of. */
static __always_inline int around_device(struct packet *p, struct session *owner, struct device *d, __u32 dir)
{
	struct ledger_key key = {
		.pool = owner->pool, .device = owner->device, .reason = owner->bypass, .chain = owner->chain};

	ledger_add(p, &key, 0, 1);
	__sync_fetch_and_add(&owner->traffic[dir & 1].skipped_bytes, p->bytes);
	if (dir == DIR_ORIG && !owner->child && !p->icmp)
		expect(p, owner, d->out_link);
	p->key.link = dir == DIR_ORIG ? d->out_link : d->in_link;
	return STEP_AGAIN;
}

static __always_inline void start_bypass(struct packet *p, struct session *owner, struct session *child,
					 struct device *d, __u32 dir)
{
	struct ledger_key key;

	owner->bypass = reason_of(d, owner->device);
	owner->bypassed_ns = p->now;
	owner->flags |= FLAG_BYPASS_OUT;
	if (child)
		child->flags |= FLAG_BYPASS_IN;
	key = (struct ledger_key){
		.pool = owner->pool, .device = owner->device, .reason = owner->bypass, .chain = owner->chain};
	ledger_add(p, &key, 1, 0);
	emit(p, owner, EVENT_BYPASS, owner->pool, owner->device, owner->bypass, dir);
}

static __always_inline int reset(struct packet *p, struct session *owner, __u32 dir, __u8 reason)
{
	owner->flags |= FLAG_RESET;
	owner->state = STATE_CLOSED;
	emit(p, owner, EVENT_RESET, owner->pool, owner->device, BYPASS_DEVICE_DOWN, dir);
	return drop(p, reason);
}

/* return: immediate - the device is back, so the session goes through it again. */
static __always_inline int give_back(struct packet *p, struct session *owner, struct session *child,
				     struct device *d, __u32 dir)
{
	owner->flags &= ~FLAG_BYPASS_OUT;
	if (child)
		child->flags &= ~FLAG_BYPASS_IN;
	emit(p, owner, EVENT_RETURNED, owner->pool, owner->device, owner->bypass, dir);
	return to_device(p, owner, d, owner->device, dir);
}

/* The device of session id is out of service for it. What now? */
__noinline int detour(struct __sk_buff *skb, __u64 id, __u32 dir)
{
	struct packet *p = ARRAY(scratch, 0);
	struct session *owner = bpf_map_lookup_elem(&sessions, &id), *child;
	struct device *d;
	struct pool *pool;
	__u8 action;

	if (!skb || !p)
		return STEP_DROP;
	if (!owner)
		return drop(p, DROP_NO_SESSION);
	d = ARRAY(devices, owner->device);
	pool = ARRAY(pools, owner->pool);
	if (!d || !pool)
		return drop(p, DROP_NO_CHAIN);
	child = owner->child ? bpf_map_lookup_elem(&sessions, &owner->child) : 0;
	if (owner->flags & FLAG_RESET)
		return drop(p, DROP_RESET);
	if (owner->flags & FLAG_BYPASS_OUT) {
		if (pool->return_now && service_of(d, owner->device) == SERVICE_FULL)
			return give_back(p, owner, child, d, dir);
		return around_device(p, owner, d, dir);
	}
	if (owner->flags & FLAG_SEQ_REWRITTEN)
		return reset(p, owner, dir, DROP_SEQ_REWRITTEN);
	action = pool->established;
	if (pool->on_down != ACTION_BYPASS && !usable_count(owner->pool))
		action = pool->on_down;
	if (action == ACTION_RESET)
		return reset(p, owner, dir, DROP_RESET);
	if (action == ACTION_DROP)
		return drop(p, DROP_POOL_DOWN);
	start_bypass(p, owner, child, d, dir);
	return around_device(p, owner, d, dir);
}

/* Out of the box's own links: to front, back, a client or a server. */
static __always_inline int to_link(struct packet *p, __u16 link)
{
	p->egress = link;
	p->mac_link = link;
	return STEP_FORWARD;
}

static __always_inline int step_orig(struct __sk_buff *skb, struct packet *p, struct session *s)
{
	struct device *d;

	if (!s->device)
		return to_link(p, s->reply.link);
	d = ARRAY(devices, s->device);
	if (!d)
		return drop(p, DROP_NO_CHAIN);
	if (!(s->flags & FLAG_BYPASS_OUT) && service_of(d, s->device) >= SERVICE_ESTABLISHED)
		return to_device(p, s, d, s->device, DIR_ORIG);
	return detour(skb, s->id, DIR_ORIG);
}

static __always_inline int step_reply(struct __sk_buff *skb, struct packet *p, struct session *s)
{
	struct device *d;

	if (!s->parent)
		return to_link(p, s->orig.link);
	d = ARRAY(devices, s->in_device);
	if (!d)
		return drop(p, DROP_NO_CHAIN);
	if (!(s->flags & FLAG_BYPASS_IN) && service_of(d, s->in_device) >= SERVICE_ESTABLISHED)
		return to_device(p, s, d, s->in_device, DIR_REPLY);
	return detour(skb, s->parent, DIR_REPLY);
}

/* What the device of session parent returns opens the next leg, unless the rest of the chain refuses it. */
static __always_inline int step_child(struct __sk_buff *skb, struct packet *p, __u64 parent)
{
	struct session *s = bpf_map_lookup_elem(&sessions, &parent);
	int next;

	if (!s)
		return drop(p, DROP_NO_SESSION);
	p->parent = parent;
	next = make_child(skb);
	if (next != STEP_MADE && at_ingress(p))
		received_from(p, s->device, DIR_ORIG);
	return next;
}

/* No session has this key: an expectation, a new root session, or nothing. */
static __always_inline int step_miss(struct __sk_buff *skb, struct packet *p)
{
	struct expectation *e;

	if (!p->icmp) {
		e = bpf_map_lookup_elem(&expectations, &p->key);
		if (e && p->now <= e->created_ns + EXPECT_NS && (p->key.proto != IPPROTO_TCP || opens_tcp(p))) {
			return step_child(skb, p, e->session);
		}
		if (at_ingress(p) && p->role == ROLE_FRONT)
			return make_root(skb);
	}
	if (at_ingress(p) && (p->role == ROLE_CLIENT || p->role == ROLE_SERVER))
		return STEP_PASS;
	if (at_ingress(p) && is_probe(p) && !bpf_skb_change_type(skb, PACKET_OTHERHOST))
		return STEP_PASS;
	if (at_ingress(p) && p->role == ROLE_DEVICE && !p->icmp && controlled(skb))
		return STEP_PASS;
	return drop(p, DROP_NO_SESSION);
}

/* A SYN that is no retransmission means that the port is in use again: the old session is history. */
static __always_inline int replaces(struct packet *p, struct session *s, __u32 dir)
{
	if (p->role != ROLE_FRONT || !at_ingress(p) || dir != DIR_ORIG || p->icmp)
		return 0;
	if (p->key.proto != IPPROTO_TCP || !opens_tcp(p))
		return 0;
	return s->state > STATE_SYN_RECEIVED || s->syn_seq != p->seq;
}

/* The taps on this leg get a copy of what goes on from it. */
static __always_inline void note_taps(struct packet *p, const struct session *s)
{
	struct chain *chain = ARRAY(chains, s->chain);

	for (int i = 0; i < CHAIN_TAPS && chain; i++) {
		if (!(s->taps & (1 << i)) || p->tap_count >= PACKET_TAPS)
			continue;
		p->taps[p->tap_count++] = chain->taps[i].device;
	}
}

/* One lookup. */
__noinline int step(struct __sk_buff *skb)
{
	struct packet *p = ARRAY(scratch, 0);
	struct session *s;
	struct flow *f;

	if (!skb || !p)
		return STEP_DROP;
	f = bpf_map_lookup_elem(&flows, &p->key);
	s = f ? bpf_map_lookup_elem(&sessions, &f->session) : 0;
	if (!s)
		return step_miss(skb, p);
	if (replaces(p, s, f->dir)) {
		emit(p, s, EVENT_REPLACED, s->pool, s->device, 0, DIR_ORIG);
		delete_tree(s->id);
		return make_root(skb);
	}
	heard(p, s, f->dir);
	if (s->flags & FLAG_RESET)
		return drop(p, DROP_RESET);
	account(p, s, f->dir);
	if (s->taps)
		note_taps(p, s);
	return f->dir == DIR_ORIG ? step_orig(skb, p, s) : step_reply(skb, p, s);
}

#endif
