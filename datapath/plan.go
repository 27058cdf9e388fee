// Package datapath is the kernel edge: the only package that imports cilium/ebpf, netlink and
// package bpf. It makes the kernel match a Plan (programs, maps, virtual links, rules, routes,
// addresses, sysctls), reports what the kernel sees (sessions, counters, events, carrier) and
// cleans up. It knows nothing of TLS, HTTP, monitors or configuration files.
package datapath

import (
	"net/netip"
	"time"

	"sslo/chain"
)

// Role of a link.
type Role uint8

const (
	RoleClient Role = iota + 1
	RoleServer
	RoleDevice
)

// Link is a NIC that the box uses, or one VLAN on it.
type Link struct {
	Name     string
	NIC      string // interface name
	VLAN     int    // 0: untagged
	Role     Role
	Routed   bool           // the link of a routed device: the box itself talks on it
	Prefixes []netip.Prefix // the box's own addresses on it
	Controls []Control      // what routed devices may say to the box
	Gateway  netip.Addr     // next hop for replies that leave by this link, if any (also Gateway6)
	Gateway6 netip.Addr
}

// Control is a rule for the own traffic of a routed device. Empty prefixes mean everything.
type Control struct {
	Source, Destination netip.Prefix
	Protocol            uint8  // IP protocol number; 0: any
	From, To            uint16 // port of either side; 0 to 0: any
}

// quiet says that the box itself must not talk on the link.
func (l *Link) quiet() bool { return l.Role == RoleDevice && !l.Routed && l.VLAN == 0 }

// Address is a virtual server's address on a client link.
type Address struct {
	Link     string
	Prefix   netip.Prefix // made local for packets that come in on Link
	Announce bool         // add the address to the link (ARP/ND answered, gratuitous announcement)
}

// Timeouts after which an idle session is removed, by state.
type Timeouts struct {
	Syn, Established, HalfClosed, Closing, Closed, UDP time.Duration
}

// Plan is the desired state, a value. Apply makes the kernel match it.
type Plan struct {
	Links     []Link
	Devices   []chain.Device
	Pools     []chain.Pool
	Chains    []chain.Chain
	Addresses []Address
	Timeouts  Timeouts

	MaxSessions  int           // size of the session table
	TablesFrom   int           // first of four routing tables
	RulePriority int           // first of the rule priorities used
	ChainShift   uint          // the chain's place in the socket mark
	TripAfter    time.Duration // passive trip while no daemon probes; 0: never
	MTU          int           // of the inner connections; 0: the least of the device links
}
