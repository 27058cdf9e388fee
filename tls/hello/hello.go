// Package hello owns the ClientHello: reading it from a connection without consuming it, however it is
// split, and saying what it offers. It is pure apart from the reader, which sees the connection only
// through an interface. It judges nothing: what is acceptable is the business of others.
package hello

import "errors"

// Errors of a first flight that is no usable ClientHello.
var (
	ErrIncomplete = errors.New("ClientHello is incomplete")
	ErrGarbage    = errors.New("not a TLS ClientHello")
	ErrTooLarge   = errors.New("ClientHello is too large")
)

// Limits of the first flight.
const (
	MaxHandshake = 64 << 10  // bytes of the ClientHello itself
	MaxRaw       = 128 << 10 // bytes with the headers of the records it is split into
)

// Versions on the wire.
const (
	TLCP11 = 0x0101 // GB/T 38636
	TLS10  = 0x0301
	TLS11  = 0x0302
	TLS12  = 0x0303
	TLS13  = 0x0304
)

// Hello is what a ClientHello offers.
type Hello struct {
	Version    uint16 // legacy_version; TLCP11 means the client speaks TLCP
	ServerName string // as sent; "" when there is none
	ALPN       []string
	Versions   []uint16 // supported_versions, or Version when the extension is absent
	Suites     []uint16
	Groups     []uint16 // supported_groups
	KeyShares  []uint16 // groups that a share is sent for
	Signatures []uint16 // signature_algorithms
	Ticket     bool     // session_ticket with a ticket, or pre_shared_key
	EarlyData  bool
	Encrypted  bool // encrypted_client_hello is offered
	Size       int  // bytes of the handshake message
}

// TLCP reports whether the client speaks TLCP 1.1.
func (h *Hello) TLCP() bool { return h.Version == TLCP11 }

// Extension numbers.
const (
	extServerName        = 0
	extSupportedGroups   = 10
	extSignatures        = 13
	extALPN              = 16
	extSessionTicket     = 35
	extPreSharedKey      = 41
	extEarlyData         = 42
	extSupportedVersions = 43
	extKeyShare          = 51
	extECH               = 0xfe0d
)
