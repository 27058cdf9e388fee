// Package api owns what goes over the admin socket: the JSON types of /v1, session ids as text
// and problem documents. It knows neither server nor client.
package api

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"sslo/session"
)

// ID is a session id. On the wire and on screens it is hexadecimal text: a JSON number would lose
// the low bits of a large id in most readers.
type ID session.ID

func (id ID) String() string { return strconv.FormatUint(uint64(id), 16) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(id), 16), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	n, err := ParseID(string(text))
	*id = n
	return err
}

// ParseID reads an id as String writes it.
func ParseID(text string) (ID, error) {
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a session id (hexadecimal, as `sslo show sessions` prints it)", text)
	}
	return ID(n), nil
}

// Session is one leg of a connection: from the link it comes in on to the next device or the last leg.
type Session struct {
	ID           ID             `json:"id"`
	Root         ID             `json:"root"`
	Parent       ID             `json:"parent,omitempty"`
	Child        ID             `json:"child,omitempty"`
	Protocol     string         `json:"protocol"`
	Client       netip.AddrPort `json:"client"`
	Server       netip.AddrPort `json:"server"`
	Link         string         `json:"link"`             // the client's packets come in here
	NextLink     string         `json:"next_link"`        // and leave here
	Chain        string         `json:"chain"`            //
	Position     int            `json:"position"`         // index of Pool in the chain; its length on the last leg
	Pool         string         `json:"pool,omitempty"`   // of Device
	Device       string         `json:"device,omitempty"` // the next device; empty on the last leg
	From         string         `json:"from,omitempty"`   // the device it came through; empty for a root session
	State        string         `json:"state"`
	Bypass       string         `json:"bypass,omitempty"`        // why Device is skipped
	BypassFor    float64        `json:"bypass_for,omitempty"`    // seconds since Device is skipped
	FromBypassed bool           `json:"from_bypassed,omitempty"` // From is skipped
	RewritesSeq  bool           `json:"rewrites_seq,omitempty"`  // Device rewrites sequence numbers: it can not be bypassed in mid-stream
	SkippedBytes uint64         `json:"skipped_bytes,omitempty"` // passed here without Device
	Skipped      []Skipped      `json:"skipped,omitempty"`       // pools that were skipped when the session was made
	Packets      [2]uint64      `json:"packets"`                 // from the client, towards the client
	Bytes        [2]uint64      `json:"bytes"`
	Age          float64        `json:"age"`  // seconds
	Idle         float64        `json:"idle"` // seconds
}

// Skipped is a pool that a new session went past.
type Skipped struct {
	Pool   string `json:"pool"`
	Reason string `json:"reason"`
}

// SessionList answers GET /v1/sessions, and GET /v1/sessions/{id} with the whole connection, root first.
// It is streamed: Error says that it broke off.
type SessionList struct {
	Sessions  []Session `json:"sessions"`
	Count     int       `json:"count"`
	Truncated bool      `json:"truncated,omitempty"` // limit was reached
	Error     string    `json:"error,omitempty"`

	Connection *Connection `json:"connection,omitempty"` // of {id}, when it is one of the proxies'
}

// Connection is a live connection as the proxies see it, also one that has no session because its chain
// had no device in service.
type Connection struct {
	Client        netip.AddrPort `json:"client"`
	Listen        netip.AddrPort `json:"listen"`          // what the client connected to
	Server        netip.AddrPort `json:"server,omitzero"` // of the inner, plaintext connection
	VirtualServer string         `json:"virtual_server"`
	Link          string         `json:"link"`
	Stage         string         `json:"stage"`
	Mode          string         `json:"mode"` // inspected, in-process (past its chain), bypass (ciphertext)
	Rule          string         `json:"rule,omitempty"`
	Chain         string         `json:"chain,omitempty"`
	ServerPool    string         `json:"server_pool,omitempty"`
	Member        string         `json:"member,omitempty"`
	ServerName    string         `json:"server_name,omitempty"`
	ALPN          string         `json:"alpn,omitempty"`
	TLS           *TLS           `json:"tls,omitempty"`        // with the client
	ServerTLS     *TLS           `json:"server_tls,omitempty"` // with the server
	Age           float64        `json:"age"`                  // seconds
	Bytes         [2]uint64      `json:"bytes"`
}

// TLS is what was agreed on with one side.
type TLS struct {
	Family  string `json:"family"`  // tls, tlcp, tls13-sm
	Version string `json:"version"` // TLS 1.3, TLCP 1.1
	Suite   string `json:"suite"`
	Resumed bool   `json:"resumed,omitempty"`
}

// ConnectionList answers GET /v1/connections.
type ConnectionList struct {
	Connections []Connection `json:"connections"`
	Total       int          `json:"total"` // that match, listed or not
}

// Counter counts packets and bytes.
type Counter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Device is a device with its state, and why.
type Device struct {
	Name     string     `json:"name"`
	In       string     `json:"in"`
	Out      string     `json:"out"`
	Pools    []string   `json:"pools"`
	State    string     `json:"state"`
	Since    time.Time  `json:"since"`
	Reason   string     `json:"reason,omitempty"`
	Service  string     `json:"service"` // what the kernel gives it: full, established, none
	Bypass   string     `json:"bypass,omitempty"`
	Operator *Decision  `json:"operator,omitempty"`
	Monitors []Monitor  `json:"monitors,omitempty"`
	Sessions int64      `json:"sessions"` // open now
	Opened   uint64     `json:"opened"`
	Sent     [2]Counter `json:"sent"`     // to the device: from the client, towards the client
	Received [2]Counter `json:"received"` // back from it
}

// Decision is what an operator wants of a device, whatever its monitors say.
type Decision struct {
	Action string    `json:"action"` // disable, bypass
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// Monitor is one monitor of a device or a server, as of its last probe.
type Monitor struct {
	Name   string    `json:"name"`
	Type   string    `json:"type"`
	State  string    `json:"state"` // up, down, unknown: not probed yet
	Reason string    `json:"reason,omitempty"`
	Probed time.Time `json:"probed,omitzero"`
}

// Chain is a chain, hop by hop.
type Chain struct {
	Name      string `json:"name"`
	InService bool   `json:"in_service"` // at least one device takes new sessions
	Pools     []Pool `json:"pools"`
}

// Pool is a device pool in a chain.
type Pool struct {
	Name      string       `json:"name"`
	Method    string       `json:"method"`
	OnDown    string       `json:"on_down"`
	InService bool         `json:"in_service"`
	MinActive int          `json:"min_active"`
	Devices   []PoolDevice `json:"devices"`
}

// PoolDevice is a device in a pool.
type PoolDevice struct {
	Name    string `json:"name"`
	Weight  int    `json:"weight"`
	State   string `json:"state"`
	Service string `json:"service"`
}

// Link is a link and what went over it.
type Link struct {
	Name    string  `json:"name"`
	NIC     string  `json:"nic"`
	Role    string  `json:"role"`
	Up      bool    `json:"up"`
	Index   int     `json:"ifindex,omitempty"`
	MAC     string  `json:"mac,omitempty"`
	MTU     int     `json:"mtu,omitempty"`
	RX      Counter `json:"rx"`
	TX      Counter `json:"tx"`
	Dropped Counter `json:"dropped"` // came in here
}

// Drop counts frames that came in on a link and were dropped for one reason.
type Drop struct {
	Link   string `json:"link"`
	Reason string `json:"reason"`
	Counter
}

// Counters are all counts that belong to no single object.
type Counters struct {
	Sessions       uint64                       `json:"sessions"` // in the table
	MaxSessions    uint64                       `json:"max_sessions,omitempty"`
	Drops          []Drop                       `json:"drops"`
	Events         map[string]uint64            `json:"events"`
	Proxy          map[string]uint64            `json:"proxy"`
	VirtualServers map[string]map[string]uint64 `json:"virtual_servers,omitempty"`
	ServerPools    map[string]map[string]uint64 `json:"server_pools,omitempty"` // by member/what
}

// LedgerEntry counts traffic that was not inspected by a pool or a device, and why.
type LedgerEntry struct {
	Chain    string `json:"chain"`
	Pool     string `json:"pool,omitempty"`
	Device   string `json:"device,omitempty"` // empty: the whole pool
	Reason   string `json:"reason"`
	Source   string `json:"source"` // kernel, proxy (the whole chain was skipped inside the process)
	Sessions uint64 `json:"sessions"`
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`
}

// Event is something that happened, in order of Seq.
type Event struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Message string    `json:"message"`
	Device  string    `json:"device,omitempty"`
	Link    string    `json:"link,omitempty"`
	Chain   string    `json:"chain,omitempty"`
	Session ID        `json:"session,omitempty"`
	From    string    `json:"from,omitempty"` // states, when one changed
	To      string    `json:"to,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// ServerPool is a server pool with its members.
type ServerPool struct {
	Name    string   `json:"name"`
	Members []Member `json:"members"`
}

// Member is a server.
type Member struct {
	Address  string    `json:"address"`
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Reason   string    `json:"reason,omitempty"`
	Monitors []Monitor `json:"monitors,omitempty"`
}

// VirtualServer is a virtual server and what it did.
type VirtualServer struct {
	Name          string            `json:"name"`
	Type          string            `json:"type"`
	Listen        []string          `json:"listen"`
	Links         []string          `json:"links"`
	PlaintextPort int               `json:"plaintext_port"`
	Chain         string            `json:"chain,omitempty"`
	ServerPool    string            `json:"server_pool,omitempty"`
	Counters      map[string]uint64 `json:"counters,omitempty"`
}

// Status describes the daemon.
type Status struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Config  string    `json:"config"`
	Loaded  time.Time `json:"loaded"`  // the configuration in force
	Adopted bool      `json:"adopted"` // kernel state of an earlier daemon was taken over
}

// Reload is what a reload changed.
type Reload struct {
	Changes []string `json:"changes"` // empty: nothing
}
