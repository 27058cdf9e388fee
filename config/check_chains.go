package config

import (
	"slices"

	"sslo/chain"
	"sslo/policy"
)

func (c *checker) checkPools() {
	for _, p := range c.DevicePools {
		path := join("device_pools", p.Name)
		c.checkPoolDevices(p, join(path, "devices"))
		if n := len(p.Devices); n > 0 && p.MinActive > n && c.ok(path) {
			c.errorf(join(path, "min_active"), "is %d, but the pool has %d: it would always be down", p.MinActive, n)
		}
		if p.SlowStart > 0 && p.Method != chain.RoundRobin && p.Method != chain.Weighted {
			c.warnf(join(path, "slow_start"), "has no effect with method %s", Word(p.Method))
		}
	}
}

func (c *checker) checkPoolDevices(p *DevicePool, path string) {
	switch n := len(p.Devices); {
	case n == 0 && c.given(path) && c.ok(path):
		c.errorf(path, "a pool needs at least one device")
	case n > chain.MaxDevices:
		c.errorf(path, "a pool has at most %d devices, this one %d", chain.MaxDevices, n)
	}
	names := make([]string, len(p.Devices))
	for i, d := range p.Devices {
		at := index(path, i)
		reference(c, "devices", "device", d.Device, at, c.Devices)
		if w := join(at, "weight"); c.given(w) && p.Method != chain.Weighted {
			c.warnf(w, "has no effect with method %s", Word(p.Method))
		}
		names[i] = d.Device
	}
	c.duplicates(path, names)
	c.checkTaps(p, path)
}

// isTap: the pool's devices get copies.
func (c *Config) isTap(p *DevicePool) bool {
	return slices.ContainsFunc(p.Devices, func(d PoolDevice) bool { v := c.Device(d.Device); return v != nil && v.Type == chain.Tap })
}

func (c *checker) checkTaps(p *DevicePool, path string) {
	if !c.isTap(p) {
		return
	}
	for i, d := range p.Devices {
		if v := c.Device(d.Device); v != nil && v.Type != chain.Tap {
			c.errorf(index(path, i), "device %q is no tap: a pool has either taps or none", d.Device)
		}
	}
	if p.OnDown != chain.Bypass {
		c.errorf(join(parentPath(path), "on_down"), "a tap that is down stops nothing; only bypass is possible")
	}
}

func (c *checker) checkChains() {
	for _, ch := range c.Chains {
		path := join("chains", ch.Name)
		if ch.Name == policy.NoChain {
			c.errorf(path, "the name %q means no chain; choose another", policy.NoChain)
		}
		path = join(path, "pools")
		switch n := len(ch.Pools); {
		case n == 0 && c.given(path) && c.ok(path):
			c.errorf(path, "a chain needs at least one device pool")
		case n > chain.MaxPools:
			c.errorf(path, "a chain has at most %d device pools, this one %d", chain.MaxPools, n)
		}
		c.duplicates(path, ch.Pools)
		c.checkHops(ch, path)
		c.countTaps(ch, path)
	}
}

func (c *checker) countTaps(ch *Chain, path string) {
	n := 0
	for _, name := range ch.Pools {
		if p := c.DevicePool(name); p != nil && c.isTap(p) {
			n += len(p.Devices)
		}
	}
	if n > chain.MaxTaps {
		c.errorf(path, "a chain has at most %d taps, this one %d", chain.MaxTaps, n)
	}
}

// checkHops finds devices that a session would meet twice: the session plane tells hops apart by
// the link that a packet comes from.
func (c *checker) checkHops(ch *Chain, path string) {
	users := map[string]string{} // device → pool
	for i, name := range ch.Pools {
		at := index(path, i)
		p := reference(c, "device_pools", "device pool", name, at, c.DevicePools)
		if p == nil {
			continue
		}
		for _, d := range p.Devices {
			if other, twice := users[d.Device]; twice && other != p.Name {
				c.errorf(at, "device %q is in the pools %q and %q: no two hops of a chain may share a link", d.Device, other, p.Name)
			}
			users[d.Device] = p.Name
		}
	}
}
