/* SPDX-License-Identifier: GPL-2.0 */
/* stats.h - counters, the uninspected ledger and events. */
#ifndef SSLO_STATS_H
#define SSLO_STATS_H

#include "maps.h"

static __always_inline void count(struct counter *c, __u32 bytes)
{
	c->packets++;
	c->bytes += bytes;
}

static __always_inline void count_received(struct packet *p, __u32 bytes)
{
	struct link_stats *s = ARRAY(link_stats, p->ingress);

	if (s)
		count(&s->rx, bytes);
}

static __always_inline void count_sent(struct packet *p)
{
	struct link_stats *s = ARRAY(link_stats, p->egress);

	if (s)
		count(&s->tx, p->bytes);
}

static __always_inline void count_drop(struct packet *p, __u32 bytes)
{
	struct link_stats *s = ARRAY(link_stats, p->ingress);

	if (s && p->reason < DROP_REASONS)
		count(&s->drops[p->reason], bytes);
}

static __always_inline void ledger_add(struct packet *p, struct ledger_key *key, __u64 sessions, __u64 packets)
{
	struct ledger_entry zero = {}, *e = bpf_map_lookup_elem(&ledger, key);

	if (!e) {
		bpf_map_update_elem(&ledger, key, &zero, BPF_NOEXIST);
		e = bpf_map_lookup_elem(&ledger, key);
		if (!e)
			return;
	}
	e->sessions += sessions;
	e->packets += packets;
	if (packets)
		e->bytes += p->bytes;
}

/* An event about session s, or about the packet alone when s is null. */
static __always_inline void emit(struct packet *p, const struct session *s, __u32 type, __u16 pool, __u16 device,
				 __u8 reason, __u8 dir)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e)
		return;
	__builtin_memset(e, 0, sizeof(*e));
	e->time_ns = bpf_ktime_get_ns();
	e->key = p->key;
	e->type = type;
	e->seq = p->seq;
	e->ack = p->ack;
	e->tcp_flags = p->tcp_flags;
	e->link = p->ingress;
	e->pool = pool;
	e->device = device;
	e->reason = reason;
	e->dir = dir;
	if (s) {
		e->session = s->id;
		e->root = s->root;
		e->chain = s->chain;
	}
	bpf_ringbuf_submit(e, 0);
}

#endif
