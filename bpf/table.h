/* SPDX-License-Identifier: GPL-2.0 */
/* table.h - making, finding and removing sessions and expectations. */
#ifndef SSLO_TABLE_H
#define SSLO_TABLE_H

#include "device.h"
#include "parse.h"
#include "stats.h"

/* What one step of the walk says. */
enum step {
	STEP_FORWARD = 0,
	STEP_DROP,
	STEP_PASS,
	STEP_AGAIN, /* look up again: packet->key has changed */
	STEP_MADE,  /* look up again: the session is there now */
};

static __always_inline int drop(struct packet *p, __u8 reason)
{
	p->reason = reason;
	return STEP_DROP;
}

static __always_inline int opens_tcp(const struct packet *p)
{
	return (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

static __always_inline void reverse(struct flow_key *to, const struct flow_key *from, __u16 link)
{
	__builtin_memcpy(to->src, from->dst, 16);
	__builtin_memcpy(to->dst, from->src, 16);
	to->sport = from->dport;
	to->dport = from->sport;
	to->proto = from->proto;
	to->link = link;
	to->pad = 0;
}

/* What the device returns on its far link may make the child. */
static __always_inline void expect(struct packet *p, const struct session *s, __u16 link)
{
	struct expectation e = {.session = s->id, .created_ns = p->now};
	struct flow_key key = p->key;

	key.link = link;
	bpf_map_update_elem(&expectations, &key, &e, BPF_ANY);
}

static __always_inline void count_closed(__u32 device)
{
	struct device_runtime *rt = ARRAY(device_runtime, device);

	if (device && rt)
		__sync_fetch_and_add(&rt->closed, 1);
}

static __always_inline void delete_expectation(const struct session *s)
{
	struct device *d = ARRAY(devices, s->device);
	struct flow_key key = s->orig;

	if (!s->device || !d)
		return;
	key.link = d->out_link;
	bpf_map_delete_elem(&expectations, &key);
}

/* Removes a session, its descendants and what they expect. */
__noinline int delete_tree(__u64 id)
{
	for (int i = 0; i <= CHAIN_POOLS && id; i++) {
		struct session *s = bpf_map_lookup_elem(&sessions, &id);
		__u64 child;

		if (!s)
			break;
		child = s->child;
		if (!child)
			delete_expectation(s);
		bpf_map_delete_elem(&flows, &s->orig);
		bpf_map_delete_elem(&flows, &s->reply);
		count_closed(s->device);
		bpf_map_delete_elem(&sessions, &id);
		id = child;
	}
	return 0;
}

/*
 * The next hop of packet->fresh: the first pool from fresh.first on that has a device. Fills
 * pool, device, position and skipped; device stays 0 on the last leg. Returns an enum step.
 */
__noinline int choose_hop(struct __sk_buff *skb)
{
	struct packet *p = ARRAY(scratch, 0);
	struct chain *chain;

	if (!skb || !p)
		return STEP_DROP;
	chain = ARRAY(chains, p->fresh.chain);
	if (!chain)
		return drop(p, DROP_NO_CHAIN);
	for (__u32 i = 0; i < CHAIN_POOLS; i++) {
		struct pool *pool;
		struct device *d;

		if (i < p->fresh.first)
			continue;
		if (i >= chain->count)
			break;
		pool = ARRAY(pools, chain->pools[i]);
		if (!pool)
			return drop(p, DROP_NO_CHAIN);
		if (usable_count(chain->pools[i])) {
			p->fresh.position = i;
			p->fresh.pool = chain->pools[i];
			p->fresh.device = choose_device(chain->pools[i]);
			if (p->fresh.device)
				return STEP_FORWARD;
		}
		if (pool->on_down == ACTION_DROP)
			return drop(p, DROP_POOL_DOWN);
		if (pool->on_down == ACTION_RESET) {
			emit(p, 0, EVENT_RESET, chain->pools[i], 0, BYPASS_DEVICE_DOWN, DIR_ORIG);
			return drop(p, DROP_RESET);
		}
		d = ARRAY(devices, pool->devices[0].device);
		p->fresh.skipped[i] = d ? reason_of(d, pool->devices[0].device) : BYPASS_DEVICE_DOWN;
	}
	p->fresh.pool = 0;
	p->fresh.device = 0;
	p->fresh.position = chain->count;
	return STEP_FORWARD;
}

/* Claims a key for a session. A flow whose session is gone is a leftover and is taken over. */
static __always_inline int claim(struct packet *p, const struct flow_key *key, __u32 dir)
{
	struct flow flow = {.session = p->fresh.id, .dir = dir}, *old;

	if (!bpf_map_update_elem(&flows, key, &flow, BPF_NOEXIST))
		return 0;
	old = bpf_map_lookup_elem(&flows, key);
	if (!old)
		return DROP_TABLE_FULL;
	if (bpf_map_lookup_elem(&sessions, &old->session))
		return DROP_CONFLICT;
	return bpf_map_update_elem(&flows, key, &flow, BPF_ANY) ? DROP_TABLE_FULL : 0;
}

static __always_inline __u64 next_id(void)
{
	__u64 *last = ARRAY(ids, 0);

	return last ? __sync_fetch_and_add(last, 1) + 1 : 0;
}

/* Puts packet->fresh into the maps, or leaves nothing behind and says why not. */
static __always_inline int insert(struct packet *p)
{
	struct session *s = &p->fresh;
	int why;

	s->id = next_id();
	if (!s->root)
		s->root = s->id;
	if (bpf_map_update_elem(&sessions, &s->id, s, BPF_NOEXIST))
		return DROP_TABLE_FULL;
	why = claim(p, &s->reply, DIR_REPLY);
	if (!why) {
		why = claim(p, &s->orig, DIR_ORIG);
		if (why)
			bpf_map_delete_elem(&flows, &s->reply);
	}
	if (why)
		bpf_map_delete_elem(&sessions, &s->id);
	return why;
}

static __always_inline void prepare(struct packet *p, __u16 chain)
{
	struct session *s = &p->fresh;

	__builtin_memset(s, 0, sizeof(*s));
	s->orig = p->key;
	s->chain = chain;
	s->created_ns = p->now;
	s->traffic[DIR_ORIG].seen_ns = p->now;
	s->syn_seq = p->seq;
	s->state = p->key.proto == IPPROTO_TCP ? STATE_SYN_SENT : STATE_NEW;
}

/* Where the session's answers come in: the device's near link, or the last leg. */
static __always_inline int set_reply(struct packet *p)
{
	struct session *s = &p->fresh;
	struct settings *set = ARRAY(settings, 0);
	struct device *d = ARRAY(devices, s->device);

	if (!set || !d)
		return -1;
	reverse(&s->reply, &s->orig, s->device ? d->in_link : set->back);
	return 0;
}

__noinline int skip_ledger(const struct session *s, __u64 sessions, __u64 packets)
{
	struct packet *p = ARRAY(scratch, 0);
	struct chain *chain = s ? ARRAY(chains, s->chain) : 0;

	if (!p || !chain)
		return 0;
	for (int i = 0; i < CHAIN_POOLS; i++) {
		struct ledger_key key = {.pool = chain->pools[i], .reason = s->skipped[i], .chain = s->chain};

		if (s->skipped[i])
			ledger_add(p, &key, sessions, packets);
	}
	return 0;
}

/* The taps between the device it came through and its next hop. */
static __always_inline void set_taps(struct packet *p)
{
	struct session *s = &p->fresh;
	struct chain *chain = ARRAY(chains, s->chain);

	for (int i = 0; i < CHAIN_TAPS && chain; i++) {
		if (i >= chain->tap_count)
			break;
		if (chain->taps[i].before >= s->first && chain->taps[i].before <= s->position)
			s->taps |= 1 << i;
	}
}

/* Chooses the hop of packet->fresh and puts it into the table. */
static __always_inline int make(struct __sk_buff *skb, struct packet *p)
{
	struct device_runtime *rt;
	int step = choose_hop(skb);

	if (step != STEP_FORWARD)
		return step;
	if (set_reply(p))
		return drop(p, DROP_LINK);
	set_taps(p);
	step = insert(p);
	if (step)
		return drop(p, step);
	rt = ARRAY(device_runtime, p->fresh.device);
	if (rt && p->fresh.device)
		__sync_fetch_and_add(&rt->opened, 1);
	skip_ledger(&p->fresh, 1, 0);
	return STEP_MADE;
}

/* A root session; its chain comes with the socket's mark. */
__noinline int make_root(struct __sk_buff *skb)
{
	struct packet *p = ARRAY(scratch, 0);
	struct settings *set = ARRAY(settings, 0);
	struct chain *chain;
	__u32 id;
	int step;

	if (!skb || !p || !set)
		return STEP_DROP;
	if (p->key.proto == IPPROTO_TCP && !opens_tcp(p))
		return drop(p, DROP_NOT_SYN);
	id = (p->mark >> (set->chain_shift & 31)) & set->chain_mask;
	chain = ARRAY(chains, id);
	if (!id || !chain || !(chain->count + chain->tap_count))
		return drop(p, DROP_NO_CHAIN);
	prepare(p, id);
	step = make(skb, p);
	if (step == STEP_MADE)
		emit(p, &p->fresh, EVENT_OPEN, p->fresh.pool, p->fresh.device, 0, DIR_ORIG);
	return step;
}

/* A device that changes the sequence numbers can not be taken out of a stream. */
static __always_inline void mark_rewriter(struct packet *p, struct session *s)
{
	if (s->flags & FLAG_SEQ_REWRITTEN)
		return;
	s->flags |= FLAG_SEQ_REWRITTEN;
	emit(p, s, EVENT_SEQ_REWRITTEN, s->pool, s->device, 0, DIR_ORIG);
}

/* The child of packet->parent, which expects this packet. */
__noinline int make_child(struct __sk_buff *skb)
{
	struct packet *p = ARRAY(scratch, 0);
	struct session *parent;
	int step;

	if (!skb || !p)
		return STEP_DROP;
	parent = bpf_map_lookup_elem(&sessions, &p->parent);
	if (!parent)
		return drop(p, DROP_NO_SESSION);
	prepare(p, parent->chain);
	p->fresh.parent = parent->id;
	p->fresh.root = parent->root;
	p->fresh.in_device = parent->device;
	p->fresh.first = parent->position + 1;
	if (parent->flags & FLAG_BYPASS_OUT)
		p->fresh.flags |= FLAG_BYPASS_IN;
	step = make(skb, p);
	if (step != STEP_MADE)
		return step;
	parent->child = p->fresh.id;
	bpf_map_delete_elem(&expectations, &p->key);
	if (p->key.proto == IPPROTO_TCP && p->fresh.syn_seq != parent->syn_seq)
		mark_rewriter(p, parent);
	return STEP_MADE;
}

#endif
