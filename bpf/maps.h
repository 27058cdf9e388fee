/* SPDX-License-Identifier: GPL-2.0 */
/* maps.h - every map. Sizes of the session tables are set by the loader. */
#ifndef SSLO_MAPS_H
#define SSLO_MAPS_H

#include "types.h"

#define DEFINE_MAP(_name, _type, _key, _value, _size) \
	struct {                                      \
		__uint(type, _type);                  \
		__uint(max_entries, _size);           \
		__type(key, _key);                    \
		__type(value, _value);                \
	} _name SEC(".maps")

/* The session table. */
DEFINE_MAP(flows, BPF_MAP_TYPE_HASH, struct flow_key, struct flow, 1024);
DEFINE_MAP(sessions, BPF_MAP_TYPE_HASH, __u64, struct session, 512);
DEFINE_MAP(expectations, BPF_MAP_TYPE_HASH, struct flow_key, struct expectation, 512);
DEFINE_MAP(ids, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1); /* the last session id given */

/* What the daemon says: written by userspace only. */
DEFINE_MAP(settings, BPF_MAP_TYPE_ARRAY, __u32, struct settings, 1);
DEFINE_MAP(link_ids, BPF_MAP_TYPE_HASH, struct link_key, __u16, MAX_LINKS);
DEFINE_MAP(links, BPF_MAP_TYPE_ARRAY, __u32, struct link, MAX_LINKS);
DEFINE_MAP(link_controls, BPF_MAP_TYPE_ARRAY, __u32, struct controls, MAX_LINKS);
DEFINE_MAP(devices, BPF_MAP_TYPE_ARRAY, __u32, struct device, MAX_DEVICES);
DEFINE_MAP(pools, BPF_MAP_TYPE_ARRAY, __u32, struct pool, MAX_POOLS);
DEFINE_MAP(chains, BPF_MAP_TYPE_ARRAY, __u32, struct chain, MAX_CHAINS);
DEFINE_MAP(device_closed, BPF_MAP_TYPE_ARRAY, __u32, __u64, MAX_DEVICES); /* sessions ended by userspace */
DEFINE_MAP(back_listeners, BPF_MAP_TYPE_SOCKMAP, __u32, __u64, 2);	  /* 0: IPv4, 1: IPv6 */

/* What the programs say. */
DEFINE_MAP(pool_cursor, BPF_MAP_TYPE_ARRAY, __u32, __u32, MAX_POOLS);
DEFINE_MAP(device_runtime, BPF_MAP_TYPE_ARRAY, __u32, struct device_runtime, MAX_DEVICES);
DEFINE_MAP(link_stats, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct link_stats, MAX_LINKS);
DEFINE_MAP(device_stats, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct device_stats, MAX_DEVICES);
DEFINE_MAP(ledger, BPF_MAP_TYPE_PERCPU_HASH, struct ledger_key, struct ledger_entry, 4096);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* Puts the enums into the type information, from where Go takes them. */
union shared_enums {
	enum link_role link_role;
	enum direction direction;
	enum service service;
	enum method method;
	enum action action;
	enum tcp_state tcp_state;
	enum bypass_reason bypass_reason;
	enum drop_reason drop_reason;
	enum verdict verdict;
	enum event_type event_type;
	enum session_flag session_flag;
	struct event event;
};

#define PACKET_TAPS 8 /* more taps than that on its way and the rest gets no copy */

/* One packet's working memory: the stack is too small for it. */
struct packet {
	struct flow_key key; /* of the lookup under way: its link changes on a bypass */
	__u64 now;
	__u32 bytes; /* from the IP header on */
	__u32 payload;
	__u32 seq;
	__u32 ack;
	__u32 mark;
	__u16 ingress; /* the link it came in on */
	__u16 egress;
	__u16 mac_link; /* whose MAC is the destination; 0: next_hop's */
	__u16 vlan;	/* of the frame as it came in */
	__u16 next_hop; /* the routed device it is sent to */
	__u8 role;	/* of ingress */
	__u8 tcp_flags;
	__u8 icmp; /* an ICMP error, key is that of its session */
	__u8 icmp_type;
	__u8 reason;
	__u8 next_dir; /* enum direction, with next_hop */
	__u8 tap_count;
	__u8 pad[3];
	/* the session being made, and what chose its hop */
	struct session fresh;
	__u64 parent;
	__u16 taps[PACKET_TAPS]; /* devices that get a copy: the first tap_count */
	union shared_enums enums[0];
};
DEFINE_MAP(scratch, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct packet, 1);

/* Lookup in an array map by a small id. */
#define ARRAY(_map, _id)                          \
	({                                        \
		__u32 __id = (_id);               \
		bpf_map_lookup_elem(&_map, &__id); \
	})

#endif
