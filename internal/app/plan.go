package app

import (
	"net/netip"

	"sslo/chain"
	"sslo/config"
	"sslo/datapath"
)

// plan is what a configuration means to the session plane.
func plan(c *config.Config) datapath.Plan {
	p := datapath.Plan{
		Addresses: addresses(c),
		Timeouts:  datapath.Timeouts(c.System.Timeouts),

		MaxSessions:  c.System.Sessions,
		TablesFrom:   c.System.RoutingTable,
		RulePriority: c.System.RulePriority,
		ChainShift:   uint(c.System.MarkShift),
		TripAfter:    c.System.TripAfter,
		MTU:          c.System.MTU,
	}
	for _, l := range c.Links {
		p.Links = append(p.Links, link(c, l))
	}
	for _, d := range c.Devices {
		p.Devices = append(p.Devices, d.Domain())
	}
	for _, pool := range c.DevicePools {
		p.Pools = append(p.Pools, devicePool(pool))
	}
	for _, ch := range c.Chains {
		p.Chains = append(p.Chains, chain.Chain{Name: ch.Name, Pools: ch.Pools})
	}
	return p
}

func link(c *config.Config, l *config.Link) datapath.Link {
	out := datapath.Link{Name: l.Name, NIC: l.NIC, VLAN: l.VLAN, Role: roles[l.Role], Gateway: l.Gateway, Gateway6: l.Gateway6}
	for _, a := range l.Addresses {
		out.Prefixes = append(out.Prefixes, a.Prefix)
	}
	for _, d := range c.Devices {
		if d.Type.Routed() && (d.In == l.Name || d.Out == l.Name) {
			out.Routed, out.Controls = true, controls(d.Control)
		}
	}
	return out
}

var protocols = map[string]uint8{"any": 0, "icmp": 1, "tcp": 6, "udp": 17}

// controls are the rules; ICMP is another protocol in IPv6.
func controls(rules []config.Control) []datapath.Control {
	var out []datapath.Control
	for _, r := range rules {
		one := datapath.Control{Source: r.Source, Destination: r.Destination, Protocol: protocols[config.Word(r.Protocol)], From: r.Port.From, To: r.Port.To}
		out = append(out, one)
		if one.Protocol == 1 {
			one.Protocol = 58
			out = append(out, one)
		}
	}
	return out
}

var roles = map[config.Role]datapath.Role{
	config.RoleServer: datapath.RoleServer,
	config.RoleClient: datapath.RoleClient,
	config.RoleDevice: datapath.RoleDevice,
}

func devicePool(c *config.DevicePool) chain.Pool {
	p := chain.Pool{Name: c.Name, Method: c.Method, OnDown: c.OnDown, Established: c.Established,
		Return: c.Return, MinActive: c.MinActive}
	for _, d := range c.Devices {
		p.Devices = append(p.Devices, chain.PoolMember{Device: d.Device, Weight: d.Weight})
	}
	return p
}

// addresses are those of the virtual servers on each of their links, once each: two virtual servers
// may share an address, and it is announced if one of them says so.
func addresses(c *config.Config) []datapath.Address {
	type key struct {
		link string
		addr netip.Addr
	}
	var list []datapath.Address
	at := map[key]int{}
	for _, v := range c.VirtualServers {
		for _, link := range v.Links {
			for _, listen := range v.Listen {
				addr := listen.Addr().Unmap()
				if addr.IsUnspecified() {
					continue // the box's own addresses are local already
				}
				k := key{link, addr}
				if i, ok := at[k]; ok {
					list[i].Announce = list[i].Announce || v.Announce
					continue
				}
				at[k] = len(list)
				list = append(list, datapath.Address{Link: link, Prefix: netip.PrefixFrom(addr, addr.BitLen()), Announce: v.Announce})
			}
		}
	}
	return list
}
