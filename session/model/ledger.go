package model

import "sslo/session"

// LedgerKey names traffic that skipped a device, or a whole pool when Device is 0.
type LedgerKey struct {
	Chain  session.ChainID
	Pool   session.PoolID
	Device session.DeviceID
	Reason session.BypassReason
}

// LedgerEntry counts it.
type LedgerEntry struct {
	Sessions, Packets, Bytes uint64
}

func (m *Model) count(k LedgerKey, add LedgerEntry) {
	e := m.Ledger[k]
	e.Sessions += add.Sessions
	e.Packets += add.Packets
	e.Bytes += add.Bytes
	m.Ledger[k] = e
}

// EventType is what userspace is told; the numbers are those of bpf/types.h, enum event_type.
type EventType uint8

const (
	Opened EventType = iota + 1
	Ended
	Bypassed
	ResetWanted
	Replaced
	SeqRewritten
	Trip
	Returned
)

// Event is something userspace is told.
type Event struct {
	Type    EventType
	Session session.ID // 0: of a connection that was refused
	Key     session.Key
	Device  session.DeviceID
	Reason  session.BypassReason
}
