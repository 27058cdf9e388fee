package app

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sslo/admin/api"
	"sslo/chain"
	"sslo/config"
	"sslo/datapath"
	"sslo/monitor"
	"sslo/proxy"
	"sslo/tls/term"
)

// state shows everything but sessions to the admin API.
type state struct{ *App }

func (s state) config() *config.Config { return s.current.Load().config }

// Status implements admin.State.
func (s state) Status() api.Status {
	return api.Status{Version: s.opts.Version, PID: os.Getpid(), Started: s.started, Config: s.opts.File,
		Loaded: s.current.Load().loaded, Adopted: s.adopted}
}

// Devices implements admin.State.
func (s state) Devices() []api.Device {
	stats := map[string]datapath.DeviceStats{}
	all, err := s.dp.DeviceStats()
	if err != nil {
		s.log.Warn("device counters", "err", err)
	}
	for _, one := range all {
		stats[one.Name] = one
	}
	list := []api.Device{}
	for _, d := range s.config().Devices {
		list = append(list, s.device(d, stats[d.Name]))
	}
	return list
}

func (s state) device(d *config.Device, stats datapath.DeviceStats) api.Device {
	out := api.Device{Name: d.Name, In: d.In, Out: d.Out, Pools: poolsOf(s.config(), d.Name),
		Operator: s.store.decision(d.Name), Sessions: int64(stats.Active), Opened: stats.Opened,
		Sent: counters(stats.Sent), Received: counters(stats.Received)}
	if status, ok := s.devices.Get(d.Name); ok {
		out.State, out.Since, out.Reason = status.State.String(), status.Since, why(status)
		out.Monitors = monitors(status, d.Monitors)
	}
	if given, ok := s.dp.DeviceStatus(d.Name); ok {
		out.Service, out.Bypass = serviceNames[given.Service], bypassName(given)
	}
	return out
}

// why adds to the reason what keeps the target from coming back.
func why(s monitor.Status) string {
	text := s.Why
	if s.Flapping {
		text += ", flapping"
	}
	if s.Health == monitor.Down && time.Until(s.Hold) > 0 {
		text += ", held until " + s.Hold.Local().Format("15:04:05")
	}
	return text
}

func poolsOf(c *config.Config, device string) []string {
	pools := []string{}
	for _, p := range c.DevicePools {
		if slices.ContainsFunc(p.Devices, func(d config.PoolDevice) bool { return d.Device == device }) {
			pools = append(pools, p.Name)
		}
	}
	return pools
}

func counter(c datapath.Counter) api.Counter { return api.Counter(c) }

func counters(pair [2]datapath.Counter) [2]api.Counter {
	return [2]api.Counter{counter(pair[0]), counter(pair[1])}
}

// monitors shows the last probe of each monitor.
func monitors(s monitor.Status, configured []config.Monitor) []api.Monitor {
	var list []api.Monitor
	for i, c := range s.Checks {
		m := api.Monitor{Name: c.Monitor, State: "unknown", Reason: c.Reason, Probed: c.Probed}
		if i < len(configured) {
			m.Type = config.Word(configured[i].Type)
		}
		switch {
		case c.Probed.IsZero():
		case c.OK:
			m.State, m.Reason = "up", nameOr(c.Reason, fmt.Sprintf("answered in %s", c.Latency.Round(time.Microsecond)))
		default:
			m.State, m.Reason = "down", fmt.Sprintf("%s (%d in a row)", c.Reason, c.Bads)
		}
		list = append(list, m)
	}
	return list
}

// Chains implements admin.State.
func (s state) Chains() []api.Chain {
	plan := s.current.Load().plan
	pools := map[string]api.Pool{}
	for _, p := range plan.Pools {
		pools[p.Name] = s.pool(p)
	}
	list := []api.Chain{}
	for _, c := range plan.Chains {
		out := api.Chain{Name: c.Name, InService: s.routes.Outlook(c.Name).InService}
		for _, name := range c.Pools {
			out.Pools = append(out.Pools, pools[name])
		}
		list = append(list, out)
	}
	return list
}

func (s state) pool(p chain.Pool) api.Pool {
	out := api.Pool{Name: p.Name, Method: config.Word(p.Method), OnDown: config.Word(p.OnDown), MinActive: max(p.MinActive, 1),
		InService: s.routes.poolInService(p.Name)}
	for _, d := range p.Devices {
		device := api.PoolDevice{Name: d.Device, Weight: max(d.Weight, 1)}
		if status, ok := s.devices.Get(d.Device); ok {
			device.State = status.State.String()
		}
		if given, ok := s.dp.DeviceStatus(d.Device); ok {
			device.Service = serviceNames[given.Service]
		}
		out.Devices = append(out.Devices, device)
	}
	return out
}

var roleNames = map[datapath.Role]string{datapath.RoleClient: "client", datapath.RoleServer: "server", datapath.RoleDevice: "device"}

// Links implements admin.State.
func (s state) Links() []api.Link {
	links, err := s.dp.Links()
	if err != nil {
		s.log.Warn("links", "err", err)
	}
	list := []api.Link{}
	for _, l := range links {
		out := api.Link{Name: l.Name, NIC: l.NIC, Role: nameOr(roleNames[l.Role], "internal"), Up: l.Up && l.Carrier, Index: l.Index,
			MAC: l.MAC, MTU: l.MTU, RX: counter(l.Rx), TX: counter(l.Tx)}
		for _, drop := range l.Drops {
			out.Dropped.Packets += drop.Packets
			out.Dropped.Bytes += drop.Bytes
		}
		list = append(list, out)
	}
	return list
}

// Counters implements admin.State.
func (s state) Counters() api.Counters {
	c := api.Counters{Drops: []api.Drop{}, Events: s.events.counters(), Proxy: map[string]uint64{},
		VirtualServers: map[string]map[string]uint64{}, ServerPools: map[string]map[string]uint64{}, MaxSessions: uint64(s.current.Load().plan.MaxSessions)}
	drops, err := s.dp.Drops()
	if err != nil {
		s.log.Warn("drop counters", "err", err)
	}
	for _, d := range drops {
		c.Drops = append(c.Drops, api.Drop{Link: d.Link, Reason: d.Reason.String(), Counter: counter(d.Counter)})
	}
	if list, err := s.dp.Sessions(datapath.Filter{}, 1); err == nil {
		c.Sessions = uint64(list.Total)
	}
	stats := s.proxy.Stats()
	c.Proxy["back-unknown"] = stats.BackUnknown
	c.Proxy["descriptors-reserved"] = uint64(stats.Descriptors.Reserved)
	c.Proxy["descriptors-limit"] = uint64(stats.Descriptors.Limit)
	c.Proxy["buffer-bytes"] = uint64(stats.BufferBytes)
	for _, v := range stats.VirtualServers {
		c.VirtualServers[v.Name] = serverCounters(v)
	}
	for _, p := range stats.ServerPools {
		c.ServerPools[p.Name] = poolCounters(p)
	}
	return c
}

// Ledger implements admin.State: what the session plane steered past devices, and what never left the process.
func (s state) Ledger() ([]api.LedgerEntry, error) {
	entries, err := s.dp.Ledger()
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	list := []api.LedgerEntry{}
	for _, e := range entries {
		list = append(list, api.LedgerEntry{Chain: e.Chain, Pool: e.Pool, Device: e.Device, Reason: e.Reason.String(),
			Source: "kernel", Sessions: e.Sessions, Packets: e.Packets, Bytes: e.Bytes})
	}
	for _, e := range s.proxy.Stats().Uninspected {
		list = append(list, api.LedgerEntry{Chain: e.Chain, Reason: e.Reason, Source: "proxy", Sessions: e.Sessions, Bytes: e.Bytes})
	}
	slices.SortFunc(list, func(a, b api.LedgerEntry) int {
		return cmp.Or(strings.Compare(a.Chain, b.Chain), strings.Compare(a.Pool, b.Pool), strings.Compare(a.Device, b.Device),
			strings.Compare(a.Reason, b.Reason), strings.Compare(a.Source, b.Source))
	})
	return list, nil
}

// Connections implements admin.State.
func (s state) Connections() []api.Connection {
	live := s.proxy.List(0)
	list := make([]api.Connection, len(live))
	for i := range live {
		list[i] = connection(&live[i])
	}
	return list
}

func connection(c *proxy.Conn) api.Connection {
	out := api.Connection{Client: c.Client, Listen: c.Listen, Server: c.Tuple.Dst, VirtualServer: c.VirtualServer, Link: c.Link,
		Stage: c.Stage, Mode: "inspected", Rule: c.Rule, Chain: c.Chain, ServerPool: c.ServerPool, Member: c.Member,
		ServerName: c.ServerName, ALPN: c.ALPN, TLS: spoken(c.ToClient), ServerTLS: spoken(c.ToServer),
		Age: time.Since(c.Started).Seconds(), Bytes: [2]uint64{c.BytesUp, c.BytesDown}}
	switch {
	case c.Bypass:
		out.Mode = "bypass"
	case c.Collapsed:
		out.Mode = "in-process"
	}
	return out
}

// spoken is one side's TLS; nil before its handshake, and with plaintext.
func spoken(s term.State) *api.TLS {
	if s.Suite == "" {
		return nil
	}
	return &api.TLS{Family: s.Family.String(), Version: s.Version, Suite: s.Suite, Resumed: s.Resumed}
}

// Events implements admin.State.
func (s state) Events(after uint64, limit int) []api.Event { return s.events.list(after, limit) }

// ServerPools implements admin.State.
func (s state) ServerPools() []api.ServerPool {
	list := []api.ServerPool{}
	for _, p := range s.config().ServerPools {
		out := api.ServerPool{Name: p.Name, Members: []api.Member{}}
		for _, m := range p.Members {
			out.Members = append(out.Members, s.member(p, m.Address.String()))
		}
		list = append(list, out)
	}
	return list
}

func (s state) member(p *config.ServerPool, address string) api.Member {
	status, ok := s.servers.Get(memberName(p.Name, address))
	if !ok {
		return api.Member{Address: address, State: monitor.Up.String(), Reason: "not monitored"}
	}
	return api.Member{Address: address, State: status.State.String(), Since: status.Since, Reason: why(status),
		Monitors: monitors(status, p.Monitors)}
}

// VirtualServers implements admin.State.
func (s state) VirtualServers() []api.VirtualServer {
	counts := map[string]map[string]uint64{}
	for _, v := range s.proxy.Stats().VirtualServers {
		counts[v.Name] = serverCounters(v)
	}
	list := []api.VirtualServer{}
	for _, v := range s.config().VirtualServers {
		out := api.VirtualServer{Name: v.Name, Type: config.Word(v.Type), Links: v.Links, PlaintextPort: v.PlaintextPort,
			Chain: v.Chain, ServerPool: v.ServerPool, Counters: counts[v.Name], Listen: []string{}}
		for _, listen := range v.Listen {
			out.Listen = append(out.Listen, listen.String())
		}
		list = append(list, out)
	}
	return list
}
