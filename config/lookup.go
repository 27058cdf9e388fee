package config

import (
	"net/netip"

	"sslo/chain"
)

// named is what every object with a name in the file has.
type named interface{ name() string }

func (l *Link) name() string          { return l.Name }
func (d *Device) name() string        { return d.Name }
func (p *DevicePool) name() string    { return p.Name }
func (c *Chain) name() string         { return c.Name }
func (m *Monitor) name() string       { return m.Name }
func (c *Certificate) name() string   { return c.Name }
func (p *ServerPool) name() string    { return p.Name }
func (v *VirtualServer) name() string { return v.Name }
func (t *Table) name() string         { return t.Name }

func find[T any](all []*T, name string) *T {
	for _, o := range all {
		if any(o).(named).name() == name {
			return o
		}
	}
	return nil
}

func namesOf[T any](all []*T) []string {
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = any(o).(named).name()
	}
	return names
}

// Link returns the link of that name, or nil.
func (c *Config) Link(name string) *Link { return find(c.Links, name) }

// Device returns the device of that name, or nil.
func (c *Config) Device(name string) *Device { return find(c.Devices, name) }

// DevicePool returns the device pool of that name, or nil.
func (c *Config) DevicePool(name string) *DevicePool { return find(c.DevicePools, name) }

// Chain returns the chain of that name, or nil.
func (c *Config) Chain(name string) *Chain { return find(c.Chains, name) }

// Certificate returns the certificate of that name, or nil.
func (c *Config) Certificate(name string) *Certificate { return find(c.Certificates, name) }

// ServerPool returns the server pool of that name, or nil.
func (c *Config) ServerPool(name string) *ServerPool { return find(c.ServerPools, name) }

// Domain is the device as the session plane sees it.
func (d *Device) Domain() chain.Device {
	out := chain.Device{Name: d.Name, Type: d.Type, In: d.In, Out: d.Out, Offload: d.Offload && d.Type != chain.Tap,
		InHops: nextHops(d.Address), OutHops: nextHops(d.OutAddress)}
	if d.Type == chain.OneArm {
		out.OutHops = out.InHops
	}
	return out
}

func nextHops(list []netip.Addr) (h chain.NextHops) {
	for _, a := range list {
		if a.Is4() {
			h.V4 = a
		} else {
			h.V6 = a
		}
	}
	return h
}

// Domain is the pool as the session plane sees it.
func (p *DevicePool) Domain() chain.Pool {
	out := chain.Pool{Name: p.Name, Method: p.Method, OnDown: p.OnDown, Established: p.Established,
		Return: p.Return, MinActive: p.MinActive}
	for _, d := range p.Devices {
		out.Devices = append(out.Devices, chain.PoolMember{Device: d.Device, Weight: d.Weight})
	}
	return out
}

// Domain is the chain as the session plane sees it.
func (c *Chain) Domain() chain.Chain { return chain.Chain{Name: c.Name, Pools: c.Pools} }
