package probe

import (
	"context"
	"net/netip"
	"reflect"
	"slices"

	"sslo/monitor"
)

// Prober sends one probe and waits for its answer until the context ends. Several calls may
// overlap.
type Prober interface {
	Probe(ctx context.Context) monitor.Result
	Close() error
}

// Spec describes a Prober as a value that reflect.DeepEqual compares, so that a reload can tell what changed.
type Spec interface {
	Open() (Prober, error)
	String() string
}

// PathSpec: frames through a device, between two NICs of the box, both directions. With a VLAN a
// NIC's frames are tagged.
type PathSpec struct {
	In, Out         string
	InVLAN, OutVLAN int
}

// ICMPSpec: an echo request, by the NIC if one is named.
type ICMPSpec struct {
	Address netip.Addr
	NIC     string
}

// TCPSpec: a connection, by the NIC if one is named.
type TCPSpec struct {
	Address netip.AddrPort
	NIC     string
}

// Monitor is a named Spec with its timing.
type Monitor struct {
	Name   string
	Config monitor.Config
	Probe  Spec

	Degrades bool // see monitor.Monitor
}

// Target is a device or a server with its monitors.
type Target struct {
	Kind        string // log key: "device" or "server"
	Name        string
	Monitors    []Monitor
	Require     int      // see monitor.Target
	Links       []string // link names whose carrier counts
	ReturnNever bool
}

// same compares two targets. What opens a protocol is a function, which has no equal, so its key is compared.
func (t Target) same(o Target) bool {
	t.Monitors, o.Monitors = keyed(t.Monitors), keyed(o.Monitors)
	return reflect.DeepEqual(t, o)
}

func keyed(list []Monitor) []Monitor {
	out := slices.Clone(list)
	for i, m := range out {
		if h, ok := m.Probe.(HTTPSpec); ok && h.TLS != nil && h.TLS.Other != nil {
			tls := *h.TLS
			tls.Other = &OtherTLS{Key: tls.Other.Key}
			h.TLS = &tls
			out[i].Probe = h
		}
	}
	return out
}

func (t Target) machine() monitor.Target {
	m := monitor.Target{Name: t.Name, Require: t.Require, Links: t.Links, ReturnNever: t.ReturnNever}
	for _, mon := range t.Monitors {
		m.Monitors = append(m.Monitors, monitor.Monitor{Name: mon.Name, Config: mon.Config, Degrades: mon.Degrades})
	}
	return m
}
