// Package session owns the vocabulary of the session plane: tuples, keys, sessions,
// expectations, the parent/child tree and the state of a TCP session. It is pure: no kernel,
// no clock, no I/O. Package model has the rules in their plainest form; they run as
// eBPF in package bpf.
package session

import (
	"fmt"
	"net/netip"
	"time"
)

// Protocol is an IP protocol number (RFC 791, 3.1).
type Protocol uint8

// The protocols that have sessions.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("proto-%d", uint8(p))
}

// Small ids given by the datapath; 0 means none.
type (
	ID       uint64 // a session
	LinkID   uint16
	DeviceID uint16
	PoolID   uint16
	ChainID  uint16
)

// Tuple is a five-tuple in the direction of the packet. IPv4 addresses are plain 4-byte ones.
type Tuple struct {
	Proto    Protocol
	Src, Dst netip.AddrPort
}

// Reverse is the tuple of the answer.
func (t Tuple) Reverse() Tuple { return Tuple{t.Proto, t.Dst, t.Src} }

func (t Tuple) String() string { return fmt.Sprintf("%s %s → %s", t.Proto, t.Src, t.Dst) }

// Key identifies one direction of a session: the same tuple on another link is another session.
type Key struct {
	Tuple
	Link LinkID // ingress link
}

// Direction of a packet relative to its session.
type Direction uint8

const (
	Orig  Direction = iota // from the client
	Reply                  // towards the client
)

func (d Direction) String() string {
	if d == Reply {
		return "reply"
	}
	return "orig"
}

// State is the state of a session; the numbers are those of bpf/types.h, enum tcp_state.
type State uint8

const (
	New State = iota
	SynSent
	SynReceived
	Established
	HalfClosed
	Closing
	Closed
)

var stateNames = [...]string{"new", "syn-sent", "syn-received", "established", "half-closed", "closing", "closed"}

func (s State) String() string { return name(stateNames[:], uint8(s)) }

// BypassReason says why traffic skipped a device (bpf/types.h, enum bypass_reason).
type BypassReason uint8

const (
	NotBypassed BypassReason = iota
	DeviceDown
	Forced
	Disabled
	NotProbed
	Tripped
)

var bypassNames = [...]string{"none", "device-down", "forced", "disabled", "not-probed", "tripped"}

func (r BypassReason) String() string { return name(bypassNames[:], uint8(r)) }

// DropReason says why a packet was dropped (bpf/types.h, enum drop_reason).
type DropReason uint8

const (
	NotDropped DropReason = iota
	NoSession
	NotSyn
	NotIP
	BadProtocol
	Truncated
	Fragment
	Extension
	NoChain
	PoolDown
	Reset
	Loop
	Hairpin
	Conflict
	TableFull
	NoLink
	SeqRewritten
)

var dropNames = [...]string{"none", "no-session", "not-syn", "not-ip", "protocol", "truncated", "fragment",
	"extension-headers", "no-chain", "pool-down", "reset", "loop", "hairpin", "conflict", "table-full", "no-link",
	"sequence-rewritten"}

func (r DropReason) String() string { return name(dropNames[:], uint8(r)) }

// DropReasons is the number of drop reasons, NotDropped included.
const DropReasons = int(SeqRewritten) + 1

func name(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown-%d", i)
}

// Flags of a session (bpf/types.h, enum session_flag).
type Flags uint8

const (
	BypassOut   Flags = 1 << iota // its own device is skipped, sticky
	BypassIn                      // the device it came through is skipped, sticky
	FinOrig                       // FIN seen from the client
	FinReply                      // FIN seen towards the client
	RewritesSeq                   // its device rewrites TCP sequence numbers
	WasReset                      // reset by policy, nothing passes any more
	SawICMP
)

// Session is one leg of a connection: from an ingress link to a device, or to the last leg.
type Session struct {
	ID, Parent, Child, Root ID
	Orig, Reply             Key // Reply.Link is the egress link, where answers come in
	Chain                   ChainID
	Pool                    PoolID
	Device                  DeviceID // the next device; 0 on the last leg
	InDevice                DeviceID // the device it came through; 0 for a root session
	Position                int      // index of Pool in the chain; the chain's length on the last leg
	First                   int      // first pool that was considered
	State                   State
	Flags                   Flags
	Bypass                  BypassReason   // why Device is skipped, with BypassOut
	Taps                    uint8          // of its chain's taps, those that get a copy on this leg: a bit each
	Skipped                 []BypassReason // by pool index: pools skipped when the session was made
	Created, Seen           time.Duration  // CLOCK_MONOTONIC
	BypassedAt              time.Duration
	Packets, Bytes          [2]uint64 // by Direction
	SkippedBytes            uint64    // bytes that passed here without Device
	SynSeq, SynAckSeq       uint32
	NextSeq                 [2]uint32 // by Direction: after the last byte sent
	Acked                   [2]uint32 // by Direction: the highest number acknowledged; 0: none
}

// Expectation lets what a device returns create the child session.
type Expectation struct {
	Session ID // the parent
	Created time.Duration
}
