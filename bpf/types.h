/* SPDX-License-Identifier: GPL-2.0 */
/*
 * types.h - every type, enum and limit that the programs share with Go.
 * bpf2go turns them into Go types (package bpf), so nothing here is written twice.
 * Addresses are 16 bytes, IPv4 as ::ffff:a.b.c.d; ports are in network order; times are
 * nanoseconds of CLOCK_MONOTONIC; ids are 0 for "none".
 */
#ifndef SSLO_TYPES_H
#define SSLO_TYPES_H

#define LAYOUT_VERSION 2 /* raise when a pinned map's layout changes */

#define MAX_LINKS 512
#define MAX_DEVICES 256
#define MAX_POOLS 128
#define MAX_CHAINS 1024
#define POOL_DEVICES 16
#define CHAIN_POOLS 8
#define CHAIN_TAPS 8 /* bits of session.taps */
#define LINK_CONTROLS 16
#define EXPECT_NS (30ULL * 1000000000ULL) /* an unused expectation dies after this */
#define PROBE_ETHERTYPE 0x88B5	  /* IEEE 802 local experimental: path probes */

/* What a link is for. Only front and client links may create a root session. */
enum link_role {
	ROLE_NONE = 0,
	ROLE_FRONT = 1,
	ROLE_BACK = 2,
	ROLE_CLIENT = 3,
	ROLE_SERVER = 4,
	ROLE_DEVICE = 5,
};

enum direction {
	DIR_ORIG = 0,
	DIR_REPLY = 1,
};

/* Which traffic a device may get. */
enum service {
	SERVICE_OUT = 0,	 /* none: established sessions are bypassed */
	SERVICE_ESTABLISHED = 1, /* what it has already (draining) */
	SERVICE_FULL = 2,	 /* new and established sessions */
};

enum method {
	METHOD_ROUND_ROBIN = 0,
	METHOD_WEIGHTED = 1,
	METHOD_SOURCE_HASH = 2,
	METHOD_LEAST_SESSIONS = 3,
	METHOD_ACTIVE_STANDBY = 4,
};

enum action {
	ACTION_BYPASS = 0,
	ACTION_RESET = 1,
	ACTION_DROP = 2,
};

enum tcp_state {
	STATE_NEW = 0, /* first packet of a connectionless flow */
	STATE_SYN_SENT = 1,
	STATE_SYN_RECEIVED = 2,
	STATE_ESTABLISHED = 3,
	STATE_HALF_CLOSED = 4, /* one FIN seen */
	STATE_CLOSING = 5,     /* both FINs seen */
	STATE_CLOSED = 6,      /* RST seen, or the session was reset */
};

/* Why traffic skipped a device: the ledger's reasons. */
enum bypass_reason {
	BYPASS_NONE = 0,
	BYPASS_DEVICE_DOWN = 1,
	BYPASS_FORCED = 2,   /* an operator's forced bypass */
	BYPASS_DISABLED = 3, /* disabled (drained) by an operator */
	BYPASS_UNKNOWN = 4,  /* not yet probed */
	BYPASS_TRIPPED = 5,  /* by the program itself while no daemon probes */
	BYPASS_REASONS,
};

enum drop_reason {
	DROP_NONE = 0,
	DROP_NO_SESSION = 1,	 /* no session and no expectation for this tuple and link */
	DROP_NOT_SYN = 2,	 /* a TCP session begins with a SYN */
	DROP_NOT_IP = 3,	 /* neither IPv4 nor IPv6 */
	DROP_PROTOCOL = 4,	 /* not TCP, UDP or an ICMP error of a session */
	DROP_TRUNCATED = 5,
	DROP_FRAGMENT = 6,
	DROP_EXTENSION = 7,	 /* more IPv6 extension headers than we walk */
	DROP_NO_CHAIN = 8,	 /* the mark names no chain */
	DROP_POOL_DOWN = 9,	 /* on_down: drop */
	DROP_RESET = 10,	 /* on_down/established: reset, or a packet of a session already reset */
	DROP_LOOP = 11,		 /* looked up again more often than the chain is long */
	DROP_HAIRPIN = 12,	 /* would leave by the link it came in on */
	DROP_CONFLICT = 13,	 /* another session owns that tuple on that link */
	DROP_TABLE_FULL = 14,
	DROP_LINK = 15,		 /* the egress link is not there */
	DROP_SEQ_REWRITTEN = 16, /* can not bypass a device that rewrites sequence numbers */
	DROP_REASONS,
};

enum verdict {
	VERDICT_PASS = 0, /* to the kernel's own stack */
	VERDICT_FORWARD = 1,
	VERDICT_DROP = 2,
};

enum event_type {
	EVENT_OPEN = 1,	    /* a root session was created */
	EVENT_CLOSED = 2,   /* a root session saw its end (FINs or RST) */
	EVENT_BYPASS = 3,   /* an established session skips a device from now on */
	EVENT_RESET = 4,    /* userspace is to reset this session (or this tuple, when session is 0) */
	EVENT_REPLACED = 5, /* a SYN replaced a session */
	EVENT_SEQ_REWRITTEN = 6,
	EVENT_TRIPPED = 7,
	EVENT_RETURNED = 8, /* return: immediate, the device gets the session back */
};

enum session_flag {
	FLAG_BYPASS_OUT = 1, /* this session's own device is skipped, sticky */
	FLAG_BYPASS_IN = 2,  /* the device it came through (its parent's) is skipped, sticky */
	FLAG_FIN_ORIG = 4,
	FLAG_FIN_REPLY = 8,
	FLAG_SEQ_REWRITTEN = 16, /* this session's device rewrites sequence numbers */
	FLAG_RESET = 32,	 /* reset by policy: nothing passes any more */
	FLAG_ICMP_SEEN = 64,
};

struct flow_key {
	__u8 src[16];
	__u8 dst[16];
	__be16 sport;
	__be16 dport;
	__u16 link; /* ingress link */
	__u8 proto;
	__u8 pad;
};

/* flows: flow_key -> flow */
struct flow {
	__u64 session;
	__u32 dir; /* enum direction */
	__u32 pad;
};

/* What passed one way. A cache line each: the two directions run on different CPUs. */
struct traffic {
	__u64 packets; /* GSO packets count once */
	__u64 bytes;   /* from the IP header on */
	__u64 seen_ns;
	__u64 skipped_bytes; /* of bytes, those that passed without this session's device */
	__u32 next_seq;	     /* TCP sequence number after the last byte sent */
	__u32 acked;	     /* the highest number acknowledged; 0: none */
	__u32 pad[6];
};

/* sessions: id -> session */
struct session {
	__u64 id;
	__u64 parent;
	__u64 child;
	__u64 root;
	struct flow_key orig;  /* link: the ingress link */
	struct flow_key reply; /* link: the egress link, where replies come in */
	__u16 chain;
	__u16 pool;	 /* of device */
	__u16 device;	 /* the next device; 0: last leg */
	__u16 in_device; /* the device it came through; 0: root */
	__u8 position;	 /* index of pool in the chain (the chain's length on the last leg) */
	__u8 state;	 /* enum tcp_state */
	__u8 flags;	 /* enum session_flag */
	__u8 bypass;	 /* enum bypass_reason of FLAG_BYPASS_OUT */
	__u8 first;	 /* index of the first pool looked at: parent's position + 1 */
	__u8 taps;	 /* of its chain's taps, those that get a copy on this leg: a bit each */
	__u8 pad[2];
	__u8 skipped[CHAIN_POOLS]; /* enum bypass_reason of each pool skipped at creation */
	__u64 created_ns;
	__u64 bypassed_ns; /* when FLAG_BYPASS_OUT was set */
	__u32 syn_seq;
	__u32 synack_seq;
	struct traffic traffic[2]; /* by enum direction */
};

/* expectations: flow_key -> expectation */
struct expectation {
	__u64 session; /* parent */
	__u64 created_ns;
};

/* link_ids: link_key -> link id. Several links may share a NIC, each with a VLAN of its own. */
struct link_key {
	__u32 ifindex;
	__u32 vlan; /* 802.1Q VLAN id; 0: untagged */
};

/* links: link id -> link */
struct link {
	__u32 ifindex; /* where frames for this link are sent; 0: not there */
	__u8 mac[6];   /* the box's own address on it */
	__u8 role;     /* enum link_role */
	__u8 ingress;  /* 1: deliver to the interface's receive path (front, back) */
	__u16 vlan;    /* frames leave with this tag; 0: untagged */
	__u8 routed;   /* 1: the link of a routed device: ARP, neighbour discovery and echo replies are the box's own */
	__u8 controls; /* rules in link_controls */
};

/* A rule for a routed device's own traffic with the box. Prefixes are of the 16 byte form. */
struct control {
	__u8 src[16];
	__u8 dst[16];
	__u8 src_bits;
	__u8 dst_bits;
	__u8 proto; /* 0: any */
	__u8 pad;
	__u16 port_from; /* of either side, in host order; 0 to 0: any */
	__u16 port_to;
};

/* link_controls: link id -> the first link.controls are in use */
struct controls {
	struct control rules[LINK_CONTROLS];
};

/* The address to which packets are sent on one side of a routed device; zeros: none of that family. */
struct next_hop {
	__u8 v4[4];
	__u8 v6[16];
};

/*
 * devices: device id -> device. A transparent device: frames leave by in_link for the MAC of out_link, and
 * reverse. A routed one: they leave for a next hop, which is next[0] on in_link and next[1] on out_link.
 * A one-arm device has one link for both. A tap gets copies on in_link.
 */
struct device {
	__u16 in_link;
	__u16 out_link;
	__u8 service; /* enum service */
	__u8 reason;  /* enum bypass_reason while service is not full */
	__u8 routed;
	__u8 pad;
	struct next_hop next[2]; /* by enum direction of what is sent */
};

/* Evidence that a device forwards one way. A cache line each, see struct traffic. */
struct device_flow {
	__u64 pending_ns;  /* first frame sent since the last one came out; 0: none */
	__u64 received_ns; /* when the last pending frame came out */
	__u64 pad[6];
};

/* device_runtime: device id -> written by the programs only */
struct device_runtime {
	struct device_flow flow[2]; /* by enum direction */
	__u64 opened;		    /* sessions that chose it */
	__u64 closed;		    /* of those, ended by the programs; userspace counts its own in device_closed */
	__u64 tripped_ns;
	__u64 pad[5];
};

struct pool_device {
	__u16 device;
	__u16 weight; /* 0 counts as 1 */
};

/* pools: pool id -> pool */
struct pool {
	__u8 method;
	__u8 on_down;	  /* enum action, whole pool down */
	__u8 established; /* enum action, one device down */
	__u8 return_now;  /* 1: return: immediate */
	__u16 count;
	__u16 min_active;
	struct pool_device devices[POOL_DEVICES];
};

/* A tap gets a copy of what passes between the pools before and after its place. */
struct chain_tap {
	__u16 before; /* index of the pool after it; the number of pools: after the last */
	__u16 device;
};

/* chains: chain id -> chain */
struct chain {
	__u16 count;
	__u16 pools[CHAIN_POOLS];
	__u16 tap_count;
	__u16 pad[2];
	struct chain_tap taps[CHAIN_TAPS];
};

/* settings: one entry */
struct settings {
	__u64 heartbeat_ns; /* written by the daemon every second */
	__u32 layout;	    /* LAYOUT_VERSION */
	__u32 chain_shift;  /* chain id = (mark >> shift) & mask */
	__u32 chain_mask;
	__u32 trip_ms;	    /* 0: never trip */
	__u16 front;	    /* link ids */
	__u16 back;
	__u32 pad;
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

/* link_stats (per CPU): link id -> */
struct link_stats {
	struct counter rx;
	struct counter tx;
	struct counter drops[DROP_REASONS]; /* frames that came in on this link */
};

/* device_stats (per CPU): device id -> frames by direction */
struct device_stats {
	struct counter sent[2];
	struct counter received[2];
};

/* ledger (per CPU hash) */
struct ledger_key {
	__u16 pool;
	__u16 device; /* 0: the whole pool was skipped */
	__u16 reason; /* enum bypass_reason */
	__u16 chain;
};
struct ledger_entry {
	__u64 sessions;
	__u64 packets;
	__u64 bytes;
};

/* events: ring buffer */
struct event {
	__u64 time_ns;
	__u64 session;
	__u64 root;
	struct flow_key key; /* the packet's */
	__u32 type;	     /* enum event_type */
	__u32 seq;	     /* of the packet, with EVENT_RESET */
	__u32 ack;
	__u16 chain;
	__u16 pool;
	__u16 device;
	__u16 link;
	__u8 reason; /* enum bypass_reason */
	__u8 dir;
	__u8 tcp_flags;
	__u8 pad;
};

#endif
