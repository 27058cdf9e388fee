package model

import (
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

// Link is where frames come in and go out. Two links may be the same interface.
type Link struct {
	Ifindex int // 0: not there
	Role    Role
}

// Device is what the rules know of a device: its two links and which traffic it may get.
type Device struct {
	In, Out session.LinkID // towards the client, towards the server
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
}

func (t *Topology) role(id session.LinkID) Role { return t.Links[id].Role }
