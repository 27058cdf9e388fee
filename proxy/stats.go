package proxy

import (
	"net/netip"
	"time"

	"sslo/policy/script"
	"sslo/proxy/pool"
	"sslo/session"
	"sslo/tls/term"
)

// Stats is a snapshot of the proxy plane.
type Stats struct {
	VirtualServers []VirtualServerStats
	ServerPools    []pool.Stats
	Uninspected    []LedgerEntry // connections that skipped their chain inside the process
	BackUnknown    uint64        // connections at back that no front made
	Descriptors    DescriptorStats
	BufferBytes    int64 // in large relay buffers now
}

// DescriptorStats tells how near the descriptor limit is.
type DescriptorStats struct{ Limit, Reserved int }

// VirtualServerStats counts one virtual server since the start of the process.
type VirtualServerStats struct {
	Name       string
	Open       int64
	Total      uint64
	Ended      map[string]uint64 // by Reason
	Handshakes []term.Made       // with clients
	Failures   []term.Failed     // of handshakes with clients
	BytesUp    uint64            // plaintext from clients
	BytesDown  uint64
	Script     script.Stats // of its script, since it was last changed
}

// LedgerEntry counts the connections of a chain that passed uninspected inside the process.
type LedgerEntry struct {
	Chain, Reason string
	Sessions      uint64
	Bytes         uint64
}

// Conn describes a live connection.
type Conn struct {
	Tuple         session.Tuple // of the inner connection; empty while the ClientHello is awaited
	Client        netip.AddrPort
	VirtualServer string
	Link          string
	Listen        netip.AddrPort // address the client connected to
	Chain         string
	Collapsed     bool // no inner connection
	Bypass        bool // TLS bypass, ciphertext relayed
	ServerPool    string
	Member        string
	ServerName    string // SNI
	ALPN          string
	ToClient      term.State // TLS with the client
	ToServer      term.State // and with the server
	Rule          string     // the rule that decided, if any
	Stage         string     // hello, handshake, connecting, open, half-closed, dropped; ended, for watchers only
	Uninspected   string     // why it is collapsed
	Ended         Reason     // and Cause, for watchers: how it ended
	Cause         error
	Started       time.Time
	BytesUp       uint64
	BytesDown     uint64
}
