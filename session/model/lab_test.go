package model

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"sslo/chain"
	"sslo/session"
)

// The links, devices, pools and chains of the tests.
const (
	front session.LinkID = iota + 1
	back
	a1
	a2
	b1
	b2
	c1
	c2
	ext
	internal
	gone
)

var linkNames = [...]string{"none", "front", "back", "a1", "a2", "b1", "b2", "c1", "c2", "ext", "int", "gone"}

const (
	devA session.DeviceID = iota + 1
	devB
	devC
)

const (
	poolA session.PoolID = iota + 1
	poolB
	poolAC
)

const (
	chainAB session.ChainID = iota + 1
	chainACB
	chainEmpty
)

func inService() chain.DeviceStatus { return chain.DeviceStatus{Service: chain.Full} }

// lab is two pools of one device and one of two, all in service.
func lab() Topology {
	t := Topology{
		Front: front, Back: back,
		Links: map[session.LinkID]Link{
			front: {Role: Front}, back: {Role: Back}, ext: {Role: Client}, internal: {Role: Server},
			a1: {Role: DeviceLink}, a2: {Role: DeviceLink}, b1: {Role: DeviceLink}, b2: {Role: DeviceLink},
			c1: {Role: DeviceLink}, c2: {Role: DeviceLink},
		},
		Devices: map[session.DeviceID]Device{
			devA: {In: a1, Out: a2, DeviceStatus: inService()},
			devB: {In: b1, Out: b2, DeviceStatus: inService()},
			devC: {In: c1, Out: c2, DeviceStatus: inService()},
		},
		Pools: map[session.PoolID]Pool{
			poolA:  {Members: []Member{{Device: devA}}},
			poolB:  {Members: []Member{{Device: devB}}},
			poolAC: {Members: []Member{{Device: devA}, {Device: devC}}},
		},
		Chains: map[session.ChainID][]session.PoolID{
			chainAB: {poolA, poolB}, chainACB: {poolAC, poolB}, chainEmpty: {},
		},
	}
	for id, l := range t.Links {
		l.Ifindex = int(id) + 100
		t.Links[id] = l
	}
	return t
}

func (m *Model) set(d session.DeviceID, service chain.Service, reason session.BypassReason) {
	dev := m.Devices[d]
	dev.DeviceStatus = chain.DeviceStatus{Service: service, Reason: reason}
	m.Devices[d] = dev
}

func fail(d session.DeviceID) func(*Model) {
	return func(m *Model) { m.set(d, chain.Out, session.DeviceDown) }
}

func restore(d session.DeviceID) func(*Model) {
	return func(m *Model) { m.set(d, chain.Full, session.NotBypassed) }
}

func pool(id session.PoolID, change func(*Pool)) func(*Model) {
	return func(m *Model) {
		p := m.Pools[id]
		change(&p)
		m.Pools[id] = p
	}
}

func wait(d time.Duration) func(*Model) { return func(m *Model) { testClock[m] += d } }

// testClock is each model's time, which only wait moves.
var testClock = map[*Model]time.Duration{}

const (
	clientSeq = 1000
	serverSeq = 9000
)

var tuple = session.Tuple{
	Proto: session.TCP,
	Src:   netip.MustParseAddrPort("192.0.2.1:12345"),
	Dst:   netip.MustParseAddrPort("198.51.100.1:80"),
}

func tcp(link session.LinkID, dir session.Direction, flags session.TCPFlags, seq uint32) Packet {
	p := Packet{Link: link, Chain: chainAB, Tuple: tuple, Bytes: 100}
	p.TCP = session.Segment{Flags: flags, Seq: seq, Payload: 60}
	if flags.Has(session.SYN) {
		p.TCP.Payload = 0
	}
	if dir == session.Reply {
		p.Tuple = tuple.Reverse()
	}
	return p
}

func syn(link session.LinkID) Packet { return tcp(link, session.Orig, session.SYN, clientSeq) }
func synAck(link session.LinkID) Packet {
	return tcp(link, session.Reply, session.SYN|session.ACK, serverSeq)
}
func ack(link session.LinkID) Packet {
	return tcp(link, session.Orig, session.ACK, clientSeq+1)
}
func answer(link session.LinkID) Packet {
	return tcp(link, session.Reply, session.ACK, serverSeq+1)
}
func fin(link session.LinkID, dir session.Direction) Packet {
	return tcp(link, dir, session.FIN|session.ACK, clientSeq+61)
}
func rst(link session.LinkID, dir session.Direction) Packet {
	return tcp(link, dir, session.RST, clientSeq+1)
}
func (p Packet) on(c session.ChainID) Packet { p.Chain = c; return p }
func (p Packet) seq(n uint32) Packet         { p.TCP.Seq = n; return p }
func (p Packet) udp() Packet {
	p.TCP, p.Tuple.Proto = session.Segment{}, session.UDP
	return p
}
func (p Packet) icmp() Packet { p.TCP, p.Error = session.Segment{}, true; return p }
func (p Packet) from(src string) Packet {
	p.Tuple.Src = netip.MustParseAddrPort(src)
	return p
}

// step is a packet and what must become of it, or a change of the world.
type step struct {
	packet Packet
	want   string
	change func(*Model)
}

func at(p Packet, want string) step { return step{packet: p, want: want} }
func do(change func(*Model)) step   { return step{change: change} }
func steps(lists ...[]step) (all []step) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// opened is a connection through A and B, established.
func opened() []step {
	return []step{
		at(syn(front), "to a1"), at(syn(a2), "to b1"), at(syn(b2), "to back"),
		at(synAck(back), "to b2"), at(synAck(b1), "to a2"), at(synAck(a1), "to front"),
		at(ack(front), "to a1"), at(ack(a2), "to b1"), at(ack(b2), "to back"),
	}
}

func (o Outcome) String() string {
	switch o.Verdict {
	case Pass:
		return "pass"
	case Forward:
		return "to " + linkNames[o.Out]
	}
	return "drop " + o.Reason.String()
}

// play runs the steps and gives the model and its events in order.
func play(t *testing.T, list []step) (*Model, []Event) {
	t.Helper()
	m := New(lab())
	defer delete(testClock, m)
	var events []Event
	for i, s := range list {
		if s.change != nil {
			s.change(m)
			continue
		}
		got := m.Handle(testClock[m], s.packet)
		events = append(events, m.Events...)
		if got.String() != s.want {
			t.Fatalf("step %d, %v on %s: %v, want %s", i, s.packet.Tuple, linkNames[s.packet.Link], got, s.want)
		}
		if err := m.Check(testClock[m]); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	return m, events
}

func types(events []Event) string {
	out := []EventType{}
	for _, e := range events {
		out = append(out, e.Type)
	}
	return fmt.Sprint(out)
}
