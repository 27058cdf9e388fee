package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"sslo/policy"
	"sslo/policy/script"
	"sslo/proxy/pool"
	"sslo/tls/cert"
	"sslo/tls/term"
)

// Type of a virtual server. Both terminate TLS and relay bytes; they differ in their defaults
// (an https one answers ALPN, and will parse HTTP when a rule asks for it).
type Type uint8

const (
	HTTPS Type = iota
	TLS
)

func (t Type) String() string {
	if t == TLS {
		return "tls"
	}
	return "https"
}

// Config is the desired state of the proxy plane, a value: Reload makes the proxy match it.
type Config struct {
	VirtualServers []VirtualServer
	ServerPools    []pool.Config

	// Descriptors is how many files the process may have open; 0: the hard limit of the process,
	// to which the soft one is raised. New connections that would exceed it are refused.
	Descriptors int
	// BufferMemory bounds the bytes in large relay buffers; beyond it connections get small ones.
	// 0: 256 MiB.
	BufferMemory int64
	// Handshakes of clients in progress at one time, ClientHello included: in all, and of one address.
	// 0 is no limit.
	Handshakes, HandshakesPerClient int
}

// Link is a client link as the kernel knows it.
type Link struct {
	Name string // as configured, what rules and logs say
	NIC  string // interface that listeners are bound to; "": any (only for tests without the box's plumbing)
}

// VirtualServer is what clients connect to.
type VirtualServer struct {
	Name          string
	Type          Type
	Links         []Link
	Listen        []netip.AddrPort
	PlaintextPort uint16      // destination port of the inner connection; 0: 80 for 443, else the same
	Certificates  []cert.Pair // the first is the default
	TLS           term.ServerOptions
	Chain         string // "": none
	ServerPool    string
	Rules         []policy.Rule
	Script        *script.Script // nil: none
	ScriptRejects bool           // a connection that the script fails for is refused; else the script is left out
	Limits        Limits
	Timeouts      Timeouts
}

// Limits of one virtual server; 0 is no limit.
type Limits struct {
	Connections          int
	ConnectionsPerClient int
}

// Timeouts of one virtual server; 0 takes the default.
type Timeouts struct {
	ClientHello time.Duration // until the whole ClientHello is there; 10 s
	Handshake   time.Duration // the TLS handshake after it, and the one with a server; 10 s
	Idle        time.Duration // no byte in either direction; 10 min
	Connect     time.Duration // TCP connect, of the inner connection and to one member; 5 s
	Drop        time.Duration // how long a dropped connection is held in silence; 30 s
}

// Config errors.
var (
	ErrNoServerPool  = errors.New("no such server pool")
	ErrOverlap       = errors.New("two virtual servers would share an inner address and port")
	ErrNoCertificate = errors.New("virtual server without certificate")
)

func (t Timeouts) orDefaults() Timeouts {
	or := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	or(&t.ClientHello, 10*time.Second)
	or(&t.Handshake, 10*time.Second)
	or(&t.Connect, 5*time.Second)
	or(&t.Idle, 10*time.Minute)
	or(&t.Drop, 30*time.Second)
	return t
}

// PortToInner is the destination port of the inner connection for a listen port.
func (v *VirtualServer) PortToInner(port uint16) uint16 {
	switch {
	case v.PlaintextPort != 0:
		return v.PlaintextPort
	case port == 443:
		return 80
	}
	return port
}

// Validate reports every fault that would keep the proxy from running this configuration.
func (c *Config) Validate() error {
	pools := map[string]bool{}
	for i := range c.ServerPools {
		pools[c.ServerPools[i].Name] = true
	}
	var errs []error
	taken := map[netip.AddrPort]string{}
	for i := range c.VirtualServers {
		errs = append(errs, c.VirtualServers[i].validate(pools, taken)...)
	}
	return errors.Join(errs...)
}

func (v *VirtualServer) validate(pools map[string]bool, taken map[netip.AddrPort]string) (errs []error) {
	fail := func(err error, what string) {
		errs = append(errs, fmt.Errorf("virtual server %s: %w: %s", v.Name, err, what))
	}
	if !pools[v.ServerPool] {
		fail(ErrNoServerPool, v.ServerPool)
	}
	for i := range v.Rules {
		if p := v.Rules[i].ServerPool; p != "" && !pools[p] {
			fail(ErrNoServerPool, p)
		}
	}
	if len(v.Certificates) == 0 && (v.TLS.SM == nil || len(v.TLS.SM.Certificates) == 0) {
		fail(ErrNoCertificate, "give at least one")
	}
	for _, a := range v.Listen {
		inner := netip.AddrPortFrom(a.Addr().Unmap(), v.PortToInner(a.Port()))
		if other, ok := taken[inner]; ok && other != v.Name {
			fail(ErrOverlap, fmt.Sprintf("%s with %s", inner, other))
		}
		taken[inner] = v.Name
	}
	return errs
}
