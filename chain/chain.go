// Package chain owns devices, device pools and chains as values: their methods, what is in
// service, and what happens when nothing is. It is pure and knows no link state, no probe and
// no kernel; numbers are those of bpf/types.h.
package chain

import (
	"net/netip"

	"sslo/session"
)

// Service says which traffic a device may get (bpf/types.h, enum service).
type Service uint8

const (
	Out             Service = iota // none: established sessions are bypassed
	EstablishedOnly                // what it has already (draining)
	Full                           // new and established sessions
)

// Method chooses a device inside a pool (bpf/types.h, enum method).
type Method uint8

const (
	RoundRobin Method = iota
	Weighted
	SourceHash
	LeastSessions
	ActiveStandby
)

// Action is taken when a device or a whole pool is down (bpf/types.h, enum action).
type Action uint8

const (
	Bypass Action = iota
	Reset
	Drop
)

// Return says when a recovered device gets traffic again.
type Return uint8

const (
	ReturnNewSessions       Return = iota // new sessions only; the default
	ReturnNever                           // not before an operator enables it
	ReturnAtRequestBoundary               // front opens a fresh inner connection for the next HTTP request
	ReturnImmediate                       // established sessions too
)

// DeviceType is how a device is cabled and addressed.
type DeviceType uint8

const (
	L2     DeviceType = iota // transparent, between two links
	L3                       // routed, between two links: it has an address on each
	OneArm                   // routed, on one link
	Tap                      // gets copies on one link and returns nothing
)

// Routed says that packets are sent to the device's address.
func (t DeviceType) Routed() bool { return t == L3 || t == OneArm }

// NextHops are a routed device's addresses on one link, as far as it has them.
type NextHops struct{ V4, V6 netip.Addr }

// Device is a security device of the box.
type Device struct {
	Name    string
	Type    DeviceType
	In, Out string // link names: towards the client, towards the server; the same for OneArm and Tap
	Offload bool   // false: segmentation and checksum offload are off on its links
	InHops  NextHops
	OutHops NextHops
}

// PoolMember is a device in a pool.
type PoolMember struct {
	Device string
	Weight int // 1 if 0
}

// Pool is a set of equal devices, of which a session takes one.
type Pool struct {
	Name        string
	Devices     []PoolMember
	Method      Method
	OnDown      Action // the whole pool is down
	Established Action // the session's device is down (Drop is not allowed)
	Return      Return
	MinActive   int // fewer devices in service than this and the pool counts as down; 1 if 0
}

// Chain is an ordered list of pools.
type Chain struct {
	Name  string
	Pools []string
}

// Limits of one chain and one pool (bpf/types.h).
const (
	MaxPools   = 8
	MaxTaps    = 8
	MaxDevices = 16
)

// DeviceStatus is what the session plane is told about a device.
type DeviceStatus struct {
	Service Service
	Reason  session.BypassReason // while Service is not Full
}
