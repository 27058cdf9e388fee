// Package rulebook owns the rules of the session plane as examples: rows of packets with what
// must become of each. The tests of the model and of the eBPF programs play the same rows. It
// knows neither of them from inside.
package rulebook

import (
	"fmt"
	"slices"

	"sslo/chain"
	"sslo/session"
	"sslo/session/model"
)

// The links of the lab.
const (
	Front session.LinkID = iota + 1
	Back
	A1
	A2
	B1
	B2
	C1
	C2
	Ext
	Int
)

var linkNames = [...]string{"none", "front", "back", "a1", "a2", "b1", "b2", "c1", "c2", "ext", "int"}

// LinkName is the name of a link of the lab.
func LinkName(id session.LinkID) string { return linkNames[id] }

// The devices, each between the links of its letter.
const (
	DevA session.DeviceID = iota + 1
	DevB
	DevC
)

// The pools, named after their devices.
const (
	PoolA session.PoolID = iota + 1
	PoolB
	PoolAC
)

// The chains, named after their pools.
const (
	ChainAB session.ChainID = iota + 1
	ChainACB
	ChainEmpty
)

// Lab is a box with three devices, all in full service.
func Lab() model.Topology {
	t := model.Topology{
		Front: Front, Back: Back,
		Links: map[session.LinkID]model.Link{
			Front: {Role: model.Front}, Back: {Role: model.Back}, Ext: {Role: model.Client}, Int: {Role: model.Server},
		},
		Devices: map[session.DeviceID]model.Device{
			DevA: {In: A1, Out: A2}, DevB: {In: B1, Out: B2}, DevC: {In: C1, Out: C2},
		},
		Pools: map[session.PoolID]model.Pool{
			PoolA:  {Members: []model.Member{{Device: DevA}}},
			PoolB:  {Members: []model.Member{{Device: DevB}}},
			PoolAC: {Members: []model.Member{{Device: DevA}, {Device: DevC}}},
		},
		Chains: map[session.ChainID][]session.PoolID{
			ChainAB: {PoolA, PoolB}, ChainACB: {PoolAC, PoolB}, ChainEmpty: {},
		},
		Taps: map[session.ChainID][]model.Tap{},
	}
	for id, d := range t.Devices {
		t.Links[d.In], t.Links[d.Out] = model.Link{Role: model.DeviceLink}, model.Link{Role: model.DeviceLink}
		Restore(id)(&t)
	}
	for id, l := range t.Links {
		l.Ifindex = int(id) + 100
		t.Links[id] = l
	}
	return t
}

// Change is something that happens to the box between two packets.
type Change func(*model.Topology)

// Serve sets what a device may get.
func Serve(id session.DeviceID, service chain.Service, reason session.BypassReason) Change {
	return func(t *model.Topology) {
		d := t.Devices[id]
		d.DeviceStatus = chain.DeviceStatus{Service: service, Reason: reason}
		t.Devices[id] = d
	}
}

// Fail takes a device out of service.
func Fail(id session.DeviceID) Change { return Serve(id, chain.Out, session.DeviceDown) }

// Restore gives it full service.
func Restore(id session.DeviceID) Change { return Serve(id, chain.Full, session.NotBypassed) }

// Drain leaves it what it has.
func Drain(id session.DeviceID) Change { return Serve(id, chain.EstablishedOnly, session.Disabled) }

// Route makes a device a routed one.
func Route(id session.DeviceID) Change {
	return func(t *model.Topology) {
		d := t.Devices[id]
		d.Routed = true
		t.Devices[id] = d
	}
}

// OneArm leaves a device its in link only.
func OneArm(id session.DeviceID) Change {
	return func(t *model.Topology) {
		d := t.Devices[id]
		d.Out = d.In
		t.Devices[id] = d
	}
}

// Tap gives a device a copy before the pool of that index in a chain.
func Tap(c session.ChainID, before int, id session.DeviceID) Change {
	return func(t *model.Topology) {
		t.Taps[c] = append(slices.Clone(t.Taps[c]), model.Tap{Before: before, Device: id})
	}
}

// Control gives a link a rule.
func Control(link session.LinkID, c model.Control) Change {
	return func(t *model.Topology) {
		l := t.Links[link]
		l.Controls = append(slices.Clone(l.Controls), c)
		t.Links[link] = l
	}
}

// Tag puts a link on the NIC of another one, with a VLAN.
func Tag(link, nic session.LinkID, vlan int) Change {
	return func(t *model.Topology) {
		l := t.Links[link]
		l.Ifindex, l.VLAN = t.Links[nic].Ifindex, vlan
		t.Links[link] = l
	}
}

// Configure changes a pool.
func Configure(id session.PoolID, change func(*model.Pool)) Change {
	return func(t *model.Topology) {
		p := t.Pools[id]
		change(&p)
		t.Pools[id] = p
	}
}

// Name says an outcome as the rows do: "to a1", "drop no-session", "pass".
func Name(o model.Outcome) string {
	switch o.Verdict {
	case model.Pass:
		return "pass"
	case model.Forward:
		text := fmt.Sprintf("to %s", LinkName(o.Out))
		for id := Front; id <= Int; id++ {
			if o.Copies&(1<<id) != 0 {
				text += ", copy to " + LinkName(id)
			}
		}
		return text
	}
	return fmt.Sprintf("drop %v", o.Reason)
}
