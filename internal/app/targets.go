package app

import (
	"net/netip"

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
		t := probe.Target{Kind: "device", Name: d.Name, Links: []string{d.In, d.Out}, ReturnNever: never[d.Name], Require: int(d.Monitor.Require)}
		for i := range d.Monitors {
			m := &d.Monitors[i]
			t.Monitors = append(t.Monitors, probe.Monitor{Name: m.Name, Config: timing(m), Degrades: m.Negative,
				Probe: deviceProbe(m, d.Name, pathSpec(c, d))})
		}
		targets = append(targets, t)
	}
	return targets
}

func pathSpec(c *config.Config, d *config.Device) probe.PathSpec {
	in, out := c.Link(d.In), c.Link(d.Out)
	return probe.PathSpec{In: in.NIC, Out: out.NIC, InVLAN: in.VLAN, OutVLAN: out.VLAN}
}

func deviceProbe(m *config.Monitor, device string, path probe.PathSpec) probe.Spec {
	switch {
	case m.Type == config.MonitorPath:
		return path
	case m.Through:
		return throughProbe(m, path)
	}
	return addressProbe(m, device, m.Target, ownTLS(&m.TLS))
}

var throughKinds = map[config.MonitorType]probe.ThroughKind{config.MonitorTCP: probe.ThroughTCP,
	config.MonitorHTTP: probe.ThroughHTTP, config.MonitorUDP: probe.ThroughUDP}

func throughProbe(m *config.Monitor, path probe.PathSpec) probe.Spec {
	return probe.ThroughSpec{PathSpec: path, Kind: throughKinds[m.Type], Client: m.Client, Server: m.Server,
		Request: request(m), Negative: m.Negative}
}

func request(m *config.Monitor) probe.HTTPRequest {
	r := probe.HTTPRequest{Method: m.Method, Path: m.Path, Host: m.Host, Headers: m.Headers, Body: m.Body}
	for _, s := range m.Status {
		r.Status = append(r.Status, probe.StatusRange(s))
	}
	return r
}

// serverTargets are the members of the server pools that have monitors.
func serverTargets(c *config.Config) []probe.Target {
	var targets []probe.Target
	certs := certificates(c)
	for _, p := range c.ServerPools {
		if len(p.Monitors) == 0 {
			continue
		}
		for _, member := range p.Members {
			t := probe.Target{Kind: "server", Name: memberName(p.Name, member.Address.String()), Require: int(p.Monitor.Require)}
			for i := range p.Monitors {
				m := &p.Monitors[i]
				t.Monitors = append(t.Monitors, probe.Monitor{Name: m.Name, Config: timing(m), Probe: serverProbe(m, p, t.Name, member, certs)})
			}
			targets = append(targets, t)
		}
	}
	return targets
}

func serverProbe(m *config.Monitor, p *config.ServerPool, name string, member config.Member, certs map[string]*config.Certificate) probe.Spec {
	address := member.Address
	if m.Target.IsValid() {
		address = m.Target
	}
	return addressProbe(m, name, address, poolTLS(m, p, certs))
}

// poolTLS is the TLS of a monitor, or that of the pool that it is for when it says nothing itself.
func poolTLS(m *config.Monitor, p *config.ServerPool, certs map[string]*config.Certificate) *probe.TLSSpec {
	if m.TLS != (config.MonitorTLS{Verify: true, Protocol: protocolTLS}) || !p.TLS.Enabled {
		return ownTLS(&m.TLS)
	}
	return probeTLS(&p.TLS, certs)
}

const protocolTLS = config.ServerProtocol(config.ProtocolTLS)

// ownTLS is the TLS of a monitor that says how.
func ownTLS(t *config.MonitorTLS) *probe.TLSSpec {
	return probeTLS(&config.ServerTLS{Protocol: t.Protocol, Verify: t.Verify, ServerName: t.ServerName, Trust: t.Trust}, nil)
}

// addressProbe is a probe that goes to an address. An address that is not valid is only possible with exec.
func addressProbe(m *config.Monitor, name string, to netip.AddrPort, tls *probe.TLSSpec) probe.Spec {
	switch m.Type {
	case config.MonitorICMP:
		return probe.ICMPSpec{Address: to.Addr()}
	case config.MonitorHTTP:
		return probe.HTTPSpec{Address: to, Request: request(m)}
	case config.MonitorHTTPS:
		return probe.HTTPSpec{Address: to, TLS: tls, Request: request(m)}
	case config.MonitorUDP:
		return probe.UDPSpec{Address: to, Send: m.Send, Expect: m.Expect}
	case config.MonitorDNS:
		return probe.DNSSpec{Address: to, Name: m.Query, Type: probe.DNSType(m.Record), Expect: m.Expect}
	case config.MonitorExec:
		return probe.NewExecSpec(m.Command, name, to)
	}
	return probe.TCPSpec{Address: to}
}

// memberName names a server among all: the same address may be in two pools.
func memberName(pool, member string) string { return pool + "/" + member }

func timing(m *config.Monitor) monitor.Config {
	return monitor.Config{Interval: m.Interval, Timeout: m.Timeout, Fall: m.Fall, Rise: m.Rise, HoldDown: m.HoldDown,
		FlapWindow: m.FlapWindow, FlapMax: m.FlapMax, FlapHold: m.FlapHold, Verify: m.Verify}
}
