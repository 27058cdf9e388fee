// Package pool owns server pools: their members, which of them a new connection gets, how a member is
// reached (TCP, TLS) and what each one did. It is told which members are healthy and probes nothing.
package pool

import (
	"net/netip"
	"time"

	"sslo/chain"
	"sslo/tls/term"
)

// Config of a server pool.
type Config struct {
	Name    string
	Members []Member
	TLS     *TLS // nil: servers speak plaintext

	Method    chain.Method  // round-robin, weighted, source-hash or least-sessions
	SlowStart time.Duration // over which the weight of a member that came into service grows; 0: at once
}

// Member of a server pool.
type Member struct {
	Name    string // "": its address
	Address netip.AddrPort
	Weight  int // 1 if 0
}

// TLS to the servers of a pool.
type TLS struct {
	term.ClientOptions
	SNI SNI
}

// SNI says which server name the servers of a pool are sent.
type SNI uint8

const (
	SNIOriginal   SNI = iota // the client's; the configured one when it sent none
	SNIConfigured            // ClientOptions.ServerName always
)

// Stats of a server pool.
type Stats struct {
	Name    string
	Members []MemberStats
}

// MemberStats counts one member since the start of the process.
type MemberStats struct {
	Name            string
	Address         netip.AddrPort
	Healthy         bool
	Open            int64
	Total           uint64 // connections that were given to it
	ConnectFailed   uint64
	HandshakeFailed uint64
	Resumed         uint64 // TLS handshakes that resumed a session
	Handshakes      []term.Made
	Failures        []term.Failed // of handshakes
	LastError       string
	LastErrorAt     time.Time
}
