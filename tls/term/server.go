package term

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"

	"sslo/tls/cert"
	"sslo/tls/hello"
	"sslo/tls/tlcp"
	"sslo/tls/tls13sm"
)

// Why clients are refused before any handshake.
var (
	ErrTLCP      = errors.New("client speaks TLCP, which this virtual server does not")
	ErrNotSpoken = errors.New("client offers no protocol that this virtual server speaks")
)

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
	wantCertificates(cfg, &o)
	s := &Server{std: cfg, sm: newSMServer(&o), families: o.Families}
	if s.families == nil {
		s.families = allFamilies
	}
	s.takeTickets(tickets, scope, o.Trust)
	return s
}

// wantCertificates asks clients for theirs. Revocation is asked for resumed sessions too.
func wantCertificates(cfg *tls.Config, o *ServerOptions) {
	if cfg.ClientAuth = o.ClientAuth; cfg.ClientAuth == tls.NoClientCert {
		return
	}
	if cfg.ClientCAs = o.ClientCAs; cfg.ClientCAs == nil {
		cfg.ClientCAs = x509.NewCertPool() // nobody, where nil would be everybody whom the system trusts
	}
	cfg.VerifyConnection = func(s tls.ConnectionState) error { return unrevoked(o.CRLs, s.VerifiedChains) }
}

// unrevoked wants one chain without a revoked certificate.
func unrevoked(c *cert.CRLs, chains [][]*x509.Certificate) (err error) {
	for _, chain := range chains {
		if err = chainUnrevoked(c, chain); err == nil {
			return nil
		}
	}
	return err
}

func chainUnrevoked(c *cert.CRLs, chain []*x509.Certificate) error {
	for _, x := range chain {
		if err := c.CheckStd(x); err != nil {
			return err
		}
	}
	return nil
}

// Handshake runs the handshake with the stack that the ClientHello asks for; c still holds the ClientHello.
// The caller sets the deadline.
func (s *Server) Handshake(c net.Conn, h *hello.Hello) (Conn, error) {
	switch s.choose(h) {
	case 0:
		return nil, s.refuse(c, h)
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
func (s *Server) takeTickets(t *Tickets, scope, trust string) {
	if trust != "" {
		trust = " from clients of " + trust
	}
	users := []ticketUser{{trust, s.std}}
	if s.sm.tlcp != nil {
		users = append(users, ticketUser{" by TLCP" + trust, s.sm.tlcp})
	}
	if s.sm.tls13 != nil {
		users = append(users, ticketUser{" by TLS 1.3 with SM" + trust, s.sm.tls13})
	}
	t.attach(scope, users)
}

func or(v, def uint16) uint16 {
	if v == 0 {
		return def
	}
	return v
}
