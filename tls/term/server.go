package term

import (
	"crypto/tls"
	"errors"
	"net"

	"sslo/tls/cert"
	"sslo/tls/hello"
)

// ErrTLCP is given to clients that speak TLCP to a server that does not.
var ErrTLCP = errors.New("client speaks TLCP, which this virtual server does not")

// Server terminates clients' TLS with one set of options.
type Server struct{ std *tls.Config }

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
	tickets.attach(scope, cfg)
	return &Server{cfg}
}

// Handshake runs the handshake with the stack that the ClientHello asks for; c still holds the ClientHello.
// The caller sets the deadline.
func (s *Server) Handshake(c net.Conn, h *hello.Hello) (Conn, error) {
	if h.TLCP() {
		return nil, ErrTLCP
	}
	t := tls.Server(c, s.std)
	if err := t.Handshake(); err != nil {
		return nil, err
	}
	return stdConn{t}, nil
}

func or(v, def uint16) uint16 {
	if v == 0 {
		return def
	}
	return v
}
