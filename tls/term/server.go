package term

import (
	"crypto/tls"
	"errors"
	"net"

	"sslo/tls/cert"
	"sslo/tls/hello"
	"sslo/tls/tlcp"
	"sslo/tls/tls13sm"
)

// ErrTLCP is given to clients that speak TLCP to a server that does not.
var ErrTLCP = errors.New("client speaks TLCP, which this virtual server does not")

// Server terminates clients' TLS with one set of options.
type Server struct {
	std      *tls.Config
	sm       *smServer
	families []Family
}

// allFamilies is the default order: who speaks TLS 1.3 with SM suites wants them.
var allFamilies = []Family{TLCP, TLS13SM, TLS}

// NewServer makes a server. Session tickets are good for one scope only, so that a session of one
// virtual server can not be resumed at another.
func NewServer(o ServerOptions, certs *cert.Store, tickets *Tickets, scope string) *Server {
	cfg := &tls.Config{
		GetCertificate: certs.Get,
		MinVersion:     or(o.MinVersion, tls.VersionTLS12),
		MaxVersion:     or(o.MaxVersion, tls.VersionTLS13),
		NextProtos:     o.ALPN,
		CipherSuites:   o.Suites,
		// Small first records cost CPU and gain nothing behind a proxy that writes bursts.
		DynamicRecordSizingDisabled: true,
	}
	s := &Server{std: cfg, sm: newSMServer(o.SM, o.ALPN), families: o.Families}
	if s.families == nil {
		s.families = allFamilies
	}
	s.takeTickets(tickets, scope)
	return s
}

// Handshake runs the handshake with the stack that the ClientHello asks for; c still holds the ClientHello.
// The caller sets the deadline.
func (s *Server) Handshake(c net.Conn, h *hello.Hello) (Conn, error) {
	switch s.choose(h) {
	case 0:
		return nil, refuseTLCP(c)
	case TLCP:
		t := tlcp.Server(c, s.sm.tlcp)
		return done(tlcpConn{t}, t.Handshake())
	case TLS13SM:
		t := tls13sm.Server(c, s.sm.tls13)
		return done(tls13smConn{t}, t.Handshake())
	}
	t := tls.Server(c, s.std)
	if err := t.Handshake(); err != nil {
		return nil, err
	}
	return stdConn{t}, nil
}

// done is a connection, if its handshake went well.
func done(c Conn, err error) (Conn, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// takeTickets has the keys of all stacks' tickets rotated, each with its own.
func (s *Server) takeTickets(t *Tickets, scope string) {
	users := []ticketUser{{"", s.std}}
	if s.sm.tlcp != nil {
		users = append(users, ticketUser{" by TLCP", s.sm.tlcp})
	}
	if s.sm.tls13 != nil {
		users = append(users, ticketUser{" by TLS 1.3 with SM", s.sm.tls13})
	}
	t.attach(scope, users)
}

func or(v, def uint16) uint16 {
	if v == 0 {
		return def
	}
	return v
}
