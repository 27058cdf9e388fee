package term

import (
	"fmt"
	"net"
	"slices"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/cert"
	"sslo/tls/hello"
	"sslo/tls/sm"
	"sslo/tls/tlcp"
	"sslo/tls/tls13sm"
)

// SMServer says how the SM suites are spoken with clients. It stands apart from the versions of TLS.
type SMServer struct {
	Certificates []cert.SMPair // the first is the default
	Suites       []uint16      // of both families, in order of preference; empty: all
	Tolerant     bool          // TLS 1.3: an SM suite with other groups and certificates too
	ClientCAs    *smx509.CertPool
}

// sessions by ID that a TLCP server keeps.
const serverSessions = 10000

// smServer has what the options give certificates for; the rest is nil.
type smServer struct {
	tlcp     *tlcp.Config
	tls13    *tls13sm.Config
	tolerant bool
}

func newSMServer(all *ServerOptions) *smServer {
	o, alpn := all.SM, all.ALPN
	if o == nil || len(o.Certificates) == 0 {
		return &smServer{}
	}
	s := &smServer{tolerant: o.Tolerant}
	s.tls13 = &tls13sm.Config{NextProtos: alpn, Tolerant: o.Tolerant, ClientAuth: all.ClientAuth, ClientCAs: o.ClientCAs,
		Revoked: revoked(all.CRLs), CipherSuites: only(o.Suites, tls13sm.TLS_SM4_GCM_SM3, tls13sm.TLS_SM4_CCM_SM3)}
	dual := &tlcp.Config{NextProtos: alpn, ClientAuth: tlcp.ClientAuthType(all.ClientAuth), ClientCAs: o.ClientCAs,
		Revoked: revoked(all.CRLs), CipherSuites: only(o.Suites, tlcp.CipherSuites()...), SessionCache: tlcp.NewLRUServerSessionCache(serverSessions)}
	for _, p := range tls13Order(o.Certificates) {
		s.tls13.Certificates = append(s.tls13.Certificates, p.TLS13())
	}
	for _, p := range o.Certificates {
		if p.Dual() {
			dual.Certificates = append(dual.Certificates, p.Certificate)
		}
	}
	if len(dual.Certificates) > 0 {
		s.tlcp = dual
	}
	return s
}

// tls13Order has certificates that are made for TLS 1.3 before pairs for the same names.
func tls13Order(list []cert.SMPair) (out []cert.SMPair) {
	for _, p := range list {
		at := len(out)
		if !p.Dual() {
			at = slices.IndexFunc(out, func(o cert.SMPair) bool { return o.Dual() && sharesName(o, p) })
			if at < 0 {
				at = len(out)
			}
		}
		out = slices.Insert(out, at, p)
	}
	return out
}

func sharesName(a, b cert.SMPair) bool {
	return slices.ContainsFunc(a.Sign.DNSNames, func(n string) bool { return slices.Contains(b.Sign.DNSNames, n) })
}

// revoked is the question that the SM stacks ask of each certificate; nil when there are no lists.
func revoked(c *cert.CRLs) func(cert, issuer *smx509.Certificate) error {
	if c == nil {
		return nil
	}
	return c.Check
}

// only leaves the suites of one family; nil when none was asked for.
func only(asked []uint16, family ...uint16) (list []uint16) {
	for _, id := range asked {
		for _, f := range family {
			if id == f {
				list = append(list, id)
			}
		}
	}
	return list
}

// choose picks the family for a client: the first of the preferred ones that both can speak. When there is
// none, crypto/tls refuses with the alert that says why, if TLS is spoken at all; 0 else.
func (s *Server) choose(h *hello.Hello) Family {
	for _, f := range s.families {
		if s.speaks(f) && offers(h, f, s.sm.tolerant) {
			return f
		}
	}
	if h.TLCP() || !slices.Contains(s.families, TLS) {
		return 0
	}
	return TLS
}

// Family is what would be spoken with a client; 0: nothing.
func (s *Server) Family(h *hello.Hello) Family { return s.choose(h) }

func (s *Server) speaks(f Family) bool {
	switch f {
	case TLCP:
		return s.sm.tlcp != nil
	case TLS13SM:
		return s.sm.tls13 != nil
	}
	return true
}

// refuse tells a client that the family it speaks is not spoken here.
func (s *Server) refuse(c net.Conn, h *hello.Hello) error {
	version, alert, err := uint16(hello.TLCP11), sm.AlertProtocolVersion, ErrTLCP
	if !h.TLCP() {
		version, alert, err = hello.TLS12, sm.AlertHandshakeFailure, fmt.Errorf("%w: only %v", ErrNotSpoken, s.families)
	}
	_, _ = c.Write(append(sm.AppendHeader(nil, sm.RecordAlert, version, 2), 2, byte(alert)))
	return err
}

type tlcpConn struct{ *tlcp.Conn }

func (c tlcpConn) State() State {
	s := c.ConnectionState()
	return State{Family: TLCP, Version: "TLCP 1.1", Suite: tlcp.CipherSuiteName(s.CipherSuite), ALPN: s.NegotiatedProtocol,
		ServerName: s.ServerName, Resumed: s.DidResume}
}

type tls13smConn struct{ *tls13sm.Conn }

func (c tls13smConn) State() State {
	s := c.ConnectionState()
	return State{Family: TLS13SM, Version: "TLS 1.3", Suite: tls13sm.CipherSuiteName(s.CipherSuite), ALPN: s.NegotiatedProtocol,
		ServerName: s.ServerName, Resumed: s.DidResume}
}
