package api

import (
	"net/netip"
	"time"
)

// TraceKeys are the parameters of GET /v1/trace, which are the filters of `sslo trace`.
var TraceKeys = []string{"src", "dst", "sni", "link"}

// What a TraceEvent tells.
const (
	TraceBegin    = "begin"    // the trace runs; connections that begin from now on are seen
	TraceOpen     = "open"     // a client connected
	TraceTLS      = "tls"      // its handshake succeeded
	TraceRoute    = "route"    // its chain and server pool were decided
	TraceSkip     = "skip"     // a pool was stepped over by a new session
	TraceHop      = "hop"      // a session was made: to Device, or the last leg, without one
	TraceBypass   = "bypass"   // the connection goes past Device from now on
	TraceReturned = "returned" // Device gets it back
	TraceReset    = "reset"    // the session plane ends it
	TraceReplaced = "replaced" // the client used its addresses and ports for a new one
	TraceRewrites = "rewrites" // Device rewrites sequence numbers: it can not be bypassed in mid-stream
	TraceServer   = "server"   // a member of the server pool took it
	TraceClose    = "close"    // it ended, for Reason
	TraceLost     = "lost"     // Lost pieces of news found no room: the reader was slow
)

// TraceEvent is one line of the answer to GET /v1/trace.
type TraceEvent struct {
	Connection    uint64         `json:"connection,omitempty"` // number in this trace, from 1
	Time          time.Time      `json:"time"`
	Offset        float64        `json:"offset"` // seconds since the client connected
	Kind          string         `json:"kind"`
	VirtualServer string         `json:"virtual_server,omitempty"`
	Client        netip.AddrPort `json:"client,omitzero"`
	Server        netip.AddrPort `json:"server,omitzero"` // what the client connected to; in the chain, what devices see
	Link          string         `json:"link,omitempty"`
	NextLink      string         `json:"next_link,omitempty"`
	ServerName    string         `json:"server_name,omitempty"`
	ALPN          string         `json:"alpn,omitempty"`
	TLS           *TLS           `json:"tls,omitempty"`
	Rule          string         `json:"rule,omitempty"`
	Chain         string         `json:"chain,omitempty"`
	Mode          string         `json:"mode,omitempty"` // as in Connection
	ServerPool    string         `json:"server_pool,omitempty"`
	Member        string         `json:"member,omitempty"`
	Session       ID             `json:"session,omitempty"`
	Pool          string         `json:"pool,omitempty"`
	Device        string         `json:"device,omitempty"`
	Reason        string         `json:"reason,omitempty"`
	Error         string         `json:"error,omitempty"`
	Bytes         *[2]uint64     `json:"bytes,omitempty"`         // from the client, towards the client
	SkippedBytes  uint64         `json:"skipped_bytes,omitempty"` // went past a device
	Lost          uint64         `json:"lost,omitempty"`
}
