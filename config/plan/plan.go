// Package plan owns what `sslo check` prints of a good configuration: who listens where, which
// way a connection takes hop by hop, how failures are noticed and what happens then. It is pure:
// it reads a config.Config and refuses to know whether anything of it runs.
package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sslo/chain"
	"sslo/config"
)

// Plan is the consequence of a configuration, in words. The JSON form is for tools.
type Plan struct {
	File           string          `json:"file"`
	Links          []Link          `json:"links"`
	VirtualServers []VirtualServer `json:"virtual_servers"`
	Chains         []Chain         `json:"chains"`
	Monitors       []Monitor       `json:"monitors"`
	ServerPools    []ServerPool    `json:"server_pools"`
	Warnings       []string        `json:"warnings"`
}

// Link is a NIC and its use.
type Link struct {
	Name string `json:"name"`
	NIC  string `json:"nic"`
	Role string `json:"role"`
}

// VirtualServer is what clients connect to.
type VirtualServer struct {
	Name         string        `json:"name"`
	Type         string        `json:"type"`
	Links        []string      `json:"links"`
	Announce     bool          `json:"announce"`
	Listeners    []Listener    `json:"listeners"`
	Certificates []Certificate `json:"certificates"`
	TLS          string        `json:"tls"`
	Clients      string        `json:"client_certificates"`
	ALPN         []string      `json:"alpn"`
	Rules        []Rule        `json:"rules"`
	Script       string        `json:"script,omitempty"`
	Chain        string        `json:"chain"`
	ServerPool   string        `json:"server_pool"`
}

// Listener is an address outside and the one of its inner connections.
type Listener struct {
	Address netip.AddrPort `json:"address"`
	Inner   netip.AddrPort `json:"inner"`
}

// Certificate is what a client may get.
type Certificate struct {
	Name      string    `json:"name"`
	Algorithm string    `json:"algorithm"`
	DNSNames  []string  `json:"dns_names"`
	NotAfter  time.Time `json:"not_after"`
	Default   bool      `json:"default"`
}

// Rule is a pre-policy in words.
type Rule struct {
	Name      string `json:"name"`
	When      string `json:"when"`
	Then      string `json:"then"`
	OnFailure string `json:"on_failure,omitempty"`
}

// Chain is the way of a connection.
type Chain struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Hops    []Hop  `json:"hops"`
	AllDown string `json:"all_down"`
}

// Hop is a device pool at its place in a chain.
type Hop struct {
	Pool       string   `json:"pool"`
	Method     string   `json:"method"`
	MinActive  int      `json:"min_active"`
	Devices    []Device `json:"devices"`
	PoolDown   string   `json:"pool_down"`
	DeviceDown string   `json:"device_down"`
	DeviceBack string   `json:"device_back"`
}

// Device is a device of a pool.
type Device struct {
	Name     string   `json:"name"`
	In       string   `json:"in"`
	InNIC    string   `json:"in_nic"`
	Out      string   `json:"out"`
	OutNIC   string   `json:"out_nic"`
	Weight   int      `json:"weight"`
	Offload  bool     `json:"offload"`
	Monitors []string `json:"monitors"`
}

// Monitor is a monitor with the timing it has for its targets.
type Monitor struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Address  string   `json:"address,omitempty"`
	Timing   string   `json:"timing,omitempty"`
	Devices  []string `json:"devices,omitempty"`
	Servers  []string `json:"server_pools,omitempty"`
	Detected string   `json:"detected_after,omitempty"`
}

// ServerPool is where connections end.
type ServerPool struct {
	Name     string   `json:"name"`
	Method   string   `json:"method"`
	Members  []string `json:"members"`
	Monitors []string `json:"monitors"`
	TLS      string   `json:"tls"`
}

// New derives the plan of a configuration that config.Load returned.
func New(c *config.Config) Plan {
	p := Plan{File: c.File, Links: []Link{}, VirtualServers: []VirtualServer{}, Chains: []Chain{}, Monitors: monitors(c),
		ServerPools: []ServerPool{}, Warnings: []string{}}
	for _, l := range c.Links {
		p.Links = append(p.Links, Link{l.Name, l.NIC, config.Word(l.Role)})
	}
	for _, v := range c.VirtualServers {
		p.VirtualServers = append(p.VirtualServers, virtualServer(c, v))
	}
	for _, ch := range c.Chains {
		p.Chains = append(p.Chains, newChain(c, ch))
	}
	for _, s := range c.ServerPools {
		p.ServerPools = append(p.ServerPools, serverPool(s))
	}
	for _, w := range c.Warnings {
		p.Warnings = append(p.Warnings, w.Error())
	}
	return p
}

// WriteJSON writes the plan for tools.
func (p Plan) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(p)
}

func virtualServer(c *config.Config, v *config.VirtualServer) VirtualServer {
	out := VirtualServer{Name: v.Name, Type: config.Word(v.Type), Links: v.Links, Announce: v.Announce,
		ALPN: append([]string{}, v.ALPN...), Rules: []Rule{}, Chain: v.Chain, ServerPool: v.ServerPool}
	for _, l := range v.Listen {
		out.Listeners = append(out.Listeners, Listener{l, netip.AddrPortFrom(l.Addr(), v.PortOf(l))})
	}
	defaults := map[bool]bool{}
	for _, name := range v.Certificates {
		crt := c.Certificate(name)
		leaf, isSM := crt.Leaf(), crt.SM.Certificate != nil
		out.Certificates = append(out.Certificates, Certificate{name, crt.Algorithm(), leaf.DNSNames, leaf.NotAfter, !defaults[isSM]})
		defaults[isSM] = true
	}
	out.TLS, out.Clients = clientTLS(&v.TLS), clientCertificates(&v.TLS)
	if v.Script.Program != nil {
		out.Script = fmt.Sprintf("%s (%s); when it fails: %s", v.Script.Program.Name(),
			strings.Join(v.Script.Program.Hooks(), ", "), config.Word(v.Script.OnError))
	}
	for i := range v.Rules {
		out.Rules = append(out.Rules, newRule(&v.Rules[i], v))
	}
	return out
}

func newChain(c *config.Config, ch *config.Chain) Chain {
	out := Chain{Name: ch.Name, AllDown: "relayed inside the process, uninspected, and counted in the ledger"}
	path := []string{"client ─▶ front"}
	bypassed := true
	for _, name := range ch.Pools {
		p := c.DevicePool(name)
		hop := newHop(c, p)
		out.Hops = append(out.Hops, hop)
		path = append(path, hop.drawing())
		if bypassed && p.OnDown != chain.Bypass {
			out.AllDown, bypassed = onDown(p.OnDown)+", as pool "+name+" says", false
		}
	}
	out.Path = strings.Join(append(path, "back ─▶ server"), " ═ ")
	return out
}

func newHop(c *config.Config, p *config.DevicePool) Hop {
	hop := Hop{Pool: p.Name, Method: config.Word(p.Method), MinActive: p.MinActive,
		PoolDown: poolDown(p), DeviceDown: deviceDown(p), DeviceBack: deviceBack(p.Return)}
	for _, m := range p.Devices {
		d := c.Device(m.Device)
		hop.Devices = append(hop.Devices, Device{Name: d.Name, In: d.In, InNIC: c.Link(d.In).NIC, Out: d.Out,
			OutNIC: c.Link(d.Out).NIC, Weight: m.Weight, Offload: d.Offload, Monitors: append([]string{"link"}, monitorNames(&d.Monitor, d.Monitors)...)})
	}
	return hop
}

// drawing is the hop as a1[ips1]a2, with all devices of the pool.
func (h Hop) drawing() string {
	var devices []string
	for _, d := range h.Devices {
		devices = append(devices, d.In+"["+d.Name+"]"+d.Out)
	}
	if len(devices) == 1 {
		return devices[0]
	}
	return "{ " + strings.Join(devices, " | ") + " }"
}

func serverPool(s *config.ServerPool) ServerPool {
	out := ServerPool{Name: s.Name, Method: serverMethod(s), Monitors: monitorNames(&s.Monitor, s.Monitors), TLS: serverTLS(&s.TLS)}
	for _, m := range s.Members {
		name := m.Address.String()
		if s.Method != chain.RoundRobin {
			name += fmt.Sprintf(" (weight %d)", m.Weight)
		}
		out.Members = append(out.Members, name)
	}
	return out
}

func serverMethod(s *config.ServerPool) string {
	if s.SlowStart == 0 {
		return config.Word(s.Method)
	}
	return config.Word(s.Method) + ", slow start " + s.SlowStart.String()
}

// monitors lists each monitor once for devices and once for servers: the timing differs.
func monitors(c *config.Config) []Monitor {
	link := Monitor{Name: "link", Type: "link"}
	list := []Monitor{}
	note := func(m *config.Monitor, device, pool string) {
		row := Monitor{Name: m.Name, Type: config.Word(m.Type), Address: probed(m), Timing: timing(m), Detected: detected(m, device != "")}
		same := func(o Monitor) bool { return o.Name == row.Name && (o.Devices != nil) == (device != "") }
		i := slices.IndexFunc(list, same)
		if i < 0 {
			i, list = len(list), append(list, row)
		}
		if device != "" {
			list[i].Devices = append(list[i].Devices, device)
		} else {
			list[i].Servers = append(list[i].Servers, pool)
		}
	}
	for _, d := range c.Devices {
		link.Devices = append(link.Devices, d.Name)
		for i := range d.Monitors {
			note(&d.Monitors[i], d.Name, "")
		}
	}
	for _, s := range c.ServerPools {
		for i := range s.Monitors {
			note(&s.Monitors[i], "", s.Name)
		}
	}
	if link.Devices == nil {
		return list
	}
	return append([]Monitor{link}, list...)
}
