package datapath

import (
	"net/netip"
	"time"

	"sslo/session"
)

// Filter selects sessions. Zero fields select everything.
type Filter struct {
	Client   netip.Prefix // the client's address (source of the original direction)
	Server   netip.Prefix // the virtual server's address
	Link     string       // ingress or egress link
	Device   string       // the device a leg goes to or came through
	Chain    string
	States   []session.State
	Roots    bool // root sessions only
	Bypassed bool // sessions that skip or skipped a device
}

// SessionList is the answer to Sessions.
type SessionList struct {
	Sessions []session.Session // at most the limit asked for
	Matched  int               // all that match the filter
	Total    int               // all sessions there are
}

// Counter counts frames and bytes.
type Counter struct{ Packets, Bytes uint64 }

// LinkStatus is a link as the kernel has it now.
type LinkStatus struct {
	Name, NIC string
	ID        session.LinkID
	Role      Role
	Index     int // interface index; 0: not there
	Up        bool
	Carrier   bool
	MTU       int
	MAC       string
	Rx, Tx    Counter
	Drops     [session.DropReasons]Counter // frames that came in on this link
}

// DeviceStats are the counters of one device. Index of the pairs: session.Orig, session.Reply.
type DeviceStats struct {
	Name     string
	ID       session.DeviceID
	Sent     [2]Counter
	Received [2]Counter
	Opened   uint64           // sessions that chose it since the table began
	Active   uint64           // of those, still there
	Pending  [2]time.Duration // how long a frame has been waiting to come out; 0: nothing waits
	Tripped  time.Duration    // when the programs tripped it by themselves (CLOCK_MONOTONIC); 0: not
}

// LedgerEntry counts traffic that skipped a device, or a whole pool when Device is empty.
type LedgerEntry struct {
	Chain, Pool, Device string
	Reason              session.BypassReason
	Sessions            uint64
	Packets, Bytes      uint64
}

// Drop counts the frames of one link that were dropped for one reason.
type Drop struct {
	Link   string
	Reason session.DropReason
	Counter
}

// EventType is what happened to a session (bpf/types.h, enum event_type).
type EventType uint8

const (
	EventOpen EventType = iota + 1
	EventClosed
	EventBypass
	EventReset
	EventReplaced
	EventSeqRewritten
	EventTripped
	EventReturned
)

var eventNames = [...]string{"unknown", "open", "closed", "bypass", "reset", "replaced", "sequence-rewritten", "tripped", "returned"}

func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return eventNames[0]
}

// Event is one report of the session plane.
type Event struct {
	Type                EventType
	Time                time.Duration // CLOCK_MONOTONIC
	Session, Root       session.ID
	Key                 session.Key // of the packet that caused it
	Chain, Pool, Device string
	Link                string
	Reason              session.BypassReason
	Direction           session.Direction

	link     uint16 // where the packet came in
	seq, ack uint32
	tcpFlags uint8
}

// LinkChange says that a link went up or down, or came or went.
type LinkChange struct {
	Link    string
	Up      bool // administratively up, with carrier, and there
	Carrier bool
	At      time.Time
}

// Suspicion is a device that was sent frames and returned none.
type Suspicion struct {
	Device    string
	Direction session.Direction
	Waiting   time.Duration
}

// GCStats is what one garbage collection did.
type GCStats struct {
	Sessions, Removed            int // sessions looked at; removed
	Expectations, ExpectationsRm int
	Took                         time.Duration
}
