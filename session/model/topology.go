package model

import (
	"net/netip"

	"sslo/chain"
	"sslo/session"
)

// Role is what a link is for; the numbers are those of bpf/types.h, enum link_role.
type Role uint8

const (
	Front Role = iota + 1
	Back
	Client
	Server
	DeviceLink
)

// Link is where frames come in and go out. Two links may be the same interface with different VLANs.
type Link struct {
	Ifindex  int // 0: not there
	VLAN     int // 0: untagged
	Role     Role
	Controls []Control // what a routed device may say to the box
}

// Control is a rule for traffic of a routed device's own.
type Control struct {
	Source, Destination netip.Prefix
	Protocol            session.Protocol // 0: any
	From, To            uint16           // port of either side; 0: any
}

func (c Control) allows(t session.Tuple) bool {
	port := func(p uint16) bool { return c.From <= p && p <= c.To }
	return (c.Protocol == 0 || c.Protocol == t.Proto) && (c.To == 0 || port(t.Src.Port()) || port(t.Dst.Port())) &&
		c.Source.Contains(t.Src.Addr()) && c.Destination.Contains(t.Dst.Addr())
}

// Tap is a place in a chain where a device gets a copy of what passes.
type Tap struct {
	Before int // index of the pool after it
	Device session.DeviceID
}

// Device is what the rules know of a device: its two links and which traffic it may get.
type Device struct {
	In, Out session.LinkID // towards the client, towards the server; the same for a one-arm device
	Routed  bool           // packets are sent to its address, and it may talk with the box
	chain.DeviceStatus
}

// Pool is a device pool by ids.
type Pool struct {
	Method      chain.Method
	OnDown      chain.Action
	Established chain.Action
	ReturnNow   bool // return: immediate
	MinActive   int
	Members     []Member
}

// Member is a device in a pool.
type Member struct {
	Device session.DeviceID
	Weight int
}

// Topology is what the rules are applied to. A test may change it between two packets.
type Topology struct {
	Front, Back session.LinkID
	Links       map[session.LinkID]Link
	Devices     map[session.DeviceID]Device
	Pools       map[session.PoolID]Pool
	Chains      map[session.ChainID][]session.PoolID
	Taps        map[session.ChainID][]Tap
}

func (t *Topology) role(id session.LinkID) Role { return t.Links[id].Role }
