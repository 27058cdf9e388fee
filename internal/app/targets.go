package app

import (
	"sslo/chain"
	"sslo/config"
	"sslo/monitor"
	"sslo/monitor/probe"
)

// deviceTargets are the devices with their monitors.
func deviceTargets(c *config.Config) []probe.Target {
	never := map[string]bool{}
	for _, p := range c.DevicePools {
		for _, d := range p.Devices {
			never[d.Device] = never[d.Device] || p.Return == chain.ReturnNever
		}
	}
	var targets []probe.Target
	for _, d := range c.Devices {
		t := probe.Target{Kind: "device", Name: d.Name, Links: []string{d.In, d.Out}, ReturnNever: never[d.Name]}
		for i := range d.Monitors {
			m := &d.Monitors[i]
			t.Monitors = append(t.Monitors, probe.Monitor{Name: m.Name, Config: timing(m),
				Probe: deviceProbe(m, pathSpec(c, d))})
		}
		targets = append(targets, t)
	}
	return targets
}

func pathSpec(c *config.Config, d *config.Device) probe.PathSpec {
	in, out := c.Link(d.In), c.Link(d.Out)
	return probe.PathSpec{In: in.NIC, Out: out.NIC, InVLAN: in.VLAN, OutVLAN: out.VLAN}
}

func deviceProbe(m *config.Monitor, path probe.PathSpec) probe.Spec {
	switch m.Type {
	case config.MonitorICMP:
		return probe.ICMPSpec{Address: m.Target.Addr()}
	case config.MonitorTCP:
		return probe.TCPSpec{Address: m.Target}
	}
	return path
}

// serverTargets are the members of the server pools that have monitors.
func serverTargets(c *config.Config) []probe.Target {
	var targets []probe.Target
	for _, p := range c.ServerPools {
		if len(p.Monitors) == 0 {
			continue
		}
		for _, member := range p.Members {
			t := probe.Target{Kind: "server", Name: memberName(p.Name, member.Address.String())}
			for i := range p.Monitors {
				m := &p.Monitors[i]
				t.Monitors = append(t.Monitors, probe.Monitor{Name: m.Name, Config: timing(m), Probe: serverProbe(m, member)})
			}
			targets = append(targets, t)
		}
	}
	return targets
}

func serverProbe(m *config.Monitor, member config.Member) probe.Spec {
	address := member.Address
	if m.Target.IsValid() {
		address = m.Target
	}
	if m.Type == config.MonitorICMP {
		return probe.ICMPSpec{Address: address.Addr()}
	}
	return probe.TCPSpec{Address: address}
}

// memberName names a server among all: the same address may be in two pools.
func memberName(pool, member string) string { return pool + "/" + member }

func timing(m *config.Monitor) monitor.Config {
	return monitor.Config{Interval: m.Interval, Timeout: m.Timeout, Fall: m.Fall, Rise: m.Rise, HoldDown: m.HoldDown,
		FlapWindow: m.FlapWindow, FlapMax: m.FlapMax, FlapHold: m.FlapHold, Verify: m.Verify}
}
