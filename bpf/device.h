/* SPDX-License-Identifier: GPL-2.0 */
/* device.h - what is in service, and the choice of a device inside a pool. */
#ifndef SSLO_DEVICE_H
#define SSLO_DEVICE_H

#include "maps.h"

#define HEARTBEAT_STALE_NS (5ULL * 1000000000ULL)
#define SPREAD 7919 /* a prime above any sum of weights in use: spreads weighted turns */

/* The program's own trip counts only while it is younger than the daemon's last heartbeat. */
static __always_inline int tripped(__u32 device)
{
	struct device_runtime *rt = ARRAY(device_runtime, device);
	struct settings *set;

	if (!rt || !rt->tripped_ns)
		return 0;
	set = ARRAY(settings, 0);
	return set && rt->tripped_ns > set->heartbeat_ns;
}

static __always_inline int service_of(const struct device *d, __u32 device)
{
	return tripped(device) ? SERVICE_OUT : d->service;
}

/* Why traffic skips a device that is not in full service. */
static __always_inline __u8 reason_of(const struct device *d, __u32 device)
{
	if (tripped(device))
		return BYPASS_TRIPPED;
	return d->service != SERVICE_FULL && d->reason ? d->reason : BYPASS_DEVICE_DOWN;
}

/* The functions that are not inlined here are verified once, not for every pool and place that calls them. */
__noinline int usable_device(__u32 device)
{
	struct device *d = ARRAY(devices, device);

	return d && service_of(d, device) == SERVICE_FULL;
}

/* Number of devices of the pool that take new sessions, 0 when fewer than min_active. */
__noinline int usable_count(__u32 id)
{
	struct pool *pool = ARRAY(pools, id);
	__u32 n = 0;

	for (int i = 0; pool && i < POOL_DEVICES && i < pool->count; i++)
		if (usable_device(pool->devices[i].device))
			n++;
	return pool && n >= pool->min_active ? n : 0;
}

/* FNV-1a over the client's address and the device id, finished like murmur3's fmix32. */
static __always_inline __u32 rendezvous(const __u8 *addr, __u16 device)
{
	__u32 h = 2166136261u;

	for (int i = 0; i < 16; i++)
		h = (h ^ addr[i]) * 16777619u;
	h = (h ^ (device & 0xff)) * 16777619u;
	h = (h ^ (device >> 8)) * 16777619u;
	h = (h ^ (h >> 16)) * 0x85ebca6bu;
	h = (h ^ (h >> 13)) * 0xc2b2ae35u;
	return h ^ (h >> 16);
}

static __always_inline __u64 active_sessions(__u32 device)
{
	struct device_runtime *rt = ARRAY(device_runtime, device);
	__u64 *closed = ARRAY(device_closed, device);

	return rt && closed ? rt->opened - rt->closed - *closed : ~0ULL;
}

static __always_inline __u32 weight_of(const struct pool *pool, int i)
{
	__u32 w = pool->method == METHOD_WEIGHTED ? pool->devices[i].weight : 1;

	return w ? w : 1;
}

/* The next device by turn: round-robin and weighted. */
static __always_inline __u16 choose_by_turn(__u32 id, const struct pool *pool)
{
	__u32 *cursor = ARRAY(pool_cursor, id), sum = 0, turn;

	for (int i = 0; i < POOL_DEVICES && i < pool->count; i++)
		if (usable_device(pool->devices[i].device))
			sum += weight_of(pool, i);
	if (!cursor || !sum)
		return 0;
	turn = __sync_fetch_and_add(cursor, 1);
	turn = (pool->method == METHOD_WEIGHTED ? turn * SPREAD : turn) % sum;
	for (int i = 0; i < POOL_DEVICES && i < pool->count; i++) {
		__u32 w;

		if (!usable_device(pool->devices[i].device))
			continue;
		w = weight_of(pool, i);
		if (turn < w)
			return pool->devices[i].device;
		turn -= w;
	}
	return 0;
}

/* The best device by score: source-hash, least-sessions, active-standby. The first wins a tie. */
static __always_inline __u16 choose_by_score(const struct pool *pool, const __u8 *addr)
{
	__u64 best = 0;
	__u16 chosen = 0;

	for (int i = 0; i < POOL_DEVICES && i < pool->count; i++) {
		__u16 device = pool->devices[i].device;
		__u64 score = 1;

		if (!usable_device(device))
			continue;
		if (pool->method == METHOD_SOURCE_HASH)
			score = rendezvous(addr, device);
		else if (pool->method == METHOD_LEAST_SESSIONS)
			score = ~active_sessions(device);
		if (!chosen || score > best) {
			chosen = device;
			best = score;
		}
	}
	return chosen;
}

/* A device of the pool for packet->fresh, 0 if none is usable. */
__noinline int choose_device(__u32 id)
{
	struct packet *p = ARRAY(scratch, 0);
	struct pool *pool = ARRAY(pools, id);

	if (!p || !pool)
		return 0;
	if (pool->method == METHOD_ROUND_ROBIN || pool->method == METHOD_WEIGHTED)
		return choose_by_turn(id, pool);
	return choose_by_score(pool, p->fresh.orig.src);
}

#endif
