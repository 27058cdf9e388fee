package term

import (
	"crypto/tls"
	"net"
)

// Conn is a connection whose handshake is done, whatever stack did it.
//
// Read must treat an error of the transport that is a net.Error with Temporary() true as "not yet": it
// returns it and can be called again. The relay depends on this to hold no buffer for an idle connection.
type Conn interface {
	net.Conn
	CloseWrite() error // sends close_notify; the transport is shut down by its owner
	State() State
}

// State is the outcome of a handshake.
type State struct {
	Family     Family
	Version    string // "TLS 1.3"
	Suite      string
	ALPN       string
	ServerName string
	Resumed    bool
}

// String is for logs.
func (s State) String() string {
	if s.Suite == "" {
		return s.Family.String()
	}
	text := s.Family.String() + " " + s.Version + " " + s.Suite
	if s.Resumed {
		text += " resumed"
	}
	return text
}

type stdConn struct{ *tls.Conn }

func (c stdConn) State() State {
	s := c.ConnectionState()
	return State{Family: TLS, Version: tls.VersionName(s.Version), Suite: suiteName(s.CipherSuite),
		ALPN: s.NegotiatedProtocol, ServerName: s.ServerName, Resumed: s.DidResume}
}

// suiteNames spares the list of all suites that tls.CipherSuiteName makes for each call.
var suiteNames = func() map[uint16]string {
	names := map[uint16]string{}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		names[s.ID] = s.Name
	}
	return names
}()

func suiteName(id uint16) string {
	if name := suiteNames[id]; name != "" {
		return name
	}
	return tls.CipherSuiteName(id)
}
