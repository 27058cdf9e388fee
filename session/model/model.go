// Package model owns the rules of the session plane in their plainest form: what becomes of a
// packet, given the sessions and expectations there are and the devices in service. It is slow
// and pure, and it is the oracle of the eBPF programs: both are driven with the same packets and
// must agree. It refuses to know frames, parsing above the tuple, maps, and the clock.
package model

import (
	"time"

	"sslo/chain"
	"sslo/session"
)

// MaxLookups bounds the walk of one packet: once, and again for every hop that is bypassed.
const MaxLookups = chain.MaxPools + 1

// ExpectationLife is how long an unused expectation lives.
const ExpectationLife = 30 * time.Second

// Packet is a parsed packet.
type Packet struct {
	Link  session.LinkID  // ingress
	Chain session.ChainID // by the socket's mark; front only
	Tuple session.Tuple
	TCP   session.Segment // with Tuple.Proto TCP
	Error bool            // an ICMP error: Tuple is the reverse of the tuple inside it
	Bytes uint64          // from the IP header on
}

func (p Packet) opens() bool {
	return !p.Error && (p.Tuple.Proto == session.UDP || p.TCP.Flags.Opens())
}

// Verdict on a packet; the numbers are those of bpf/types.h, enum verdict.
type Verdict uint8

const (
	Pass Verdict = iota // to the kernel's own stack
	Forward
	Drop
)

// Outcome is what becomes of a packet.
type Outcome struct {
	Verdict Verdict
	Reason  session.DropReason // with Drop
	Out     session.LinkID     // with Forward
	Copies  uint32             // links of taps that got a copy: a bit each
	Lookups int
}

// Flow is one direction of a session.
type Flow struct {
	Session session.ID
	Dir     session.Direction
}

// Model is the state of the session plane.
type Model struct {
	Topology
	Sessions     map[session.ID]*session.Session
	Flows        map[session.Key]Flow
	Expectations map[session.Key]session.Expectation
	Ledger       map[LedgerKey]LedgerEntry
	Events       []Event // since the last packet
	Active       map[session.DeviceID]uint64
	cursors      map[session.PoolID]uint32
	last         session.ID
}

// New is a model without sessions.
func New(t Topology) *Model {
	return &Model{
		Topology:     t,
		Sessions:     map[session.ID]*session.Session{},
		Flows:        map[session.Key]Flow{},
		Expectations: map[session.Key]session.Expectation{},
		Ledger:       map[LedgerKey]LedgerEntry{},
		Active:       map[session.DeviceID]uint64{},
		cursors:      map[session.PoolID]uint32{},
	}
}

// Handle says what becomes of a packet and moves the state.
func (m *Model) Handle(now time.Duration, p Packet) Outcome {
	m.Events = nil
	w := walk{Model: m, now: now, packet: p, key: session.Key{Tuple: p.Tuple, Link: p.Link}}
	return w.run()
}

// RemoveTree forgets a connection: every session of the tree, their flows and expectations.
func (m *Model) RemoveTree(root session.ID) {
	for id := root; id != 0; {
		s := m.Sessions[id]
		delete(m.Sessions, id)
		delete(m.Flows, s.Orig)
		delete(m.Flows, s.Reply)
		delete(m.Expectations, m.expected(s))
		m.release(s)
		id = s.Child
	}
}

func (m *Model) release(s *session.Session) {
	if s.Device != 0 {
		m.Active[s.Device]--
	}
}

// expected is the key on which the child of s is expected: the same tuple where its device
// returns it.
func (m *Model) expected(s *session.Session) session.Key {
	return session.Key{Tuple: s.Orig.Tuple, Link: m.Devices[s.Device].Out}
}

func (m *Model) arm(s *session.Session, now time.Duration) {
	m.Expectations[m.expected(s)] = session.Expectation{Session: s.ID, Created: now}
}
