package term

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// ErrNoName is given when a certificate is to be verified and no name is known to verify it by.
var ErrNoName = errors.New("no server name to verify: the client sent none and none is configured")

// sessions kept for one client; one for each server name.
const sessions = 256

// Client speaks TLS to one server.
type Client struct {
	o        ClientOptions
	base     *tls.Config
	narrow   atomic.Bool // no X25519 is offered
	sm       *smClient   // nil: not spoken
	families []Family
	turn     atomic.Uint32 // of the families
}

// Groups that are offered. crypto/tls sends a key share of the first by an order of its own, where X25519 is
// before P-256, whose key pair costs it a fifth of the time. Every server has P-256 to support (RFC 8446 9.1);
// one that refuses is offered the others from then on.
var (
	classical = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384}
	cheap     = classical[1:]
)

// NewClient makes a client; use one for each server, because sessions resume only where they were made.
func NewClient(o ClientOptions) *Client {
	cfg := &tls.Config{
		MinVersion:                  or(o.MinVersion, tls.VersionTLS12),
		MaxVersion:                  or(o.MaxVersion, tls.VersionTLS13),
		RootCAs:                     o.CA,
		Certificates:                o.Certificates,
		InsecureSkipVerify:          o.SkipVerify,
		DynamicRecordSizingDisabled: true,
	}
	if o.CRLs != nil && !o.SkipVerify {
		cfg.VerifyConnection = func(s tls.ConnectionState) error { return unrevoked(o.CRLs, s.VerifiedChains) }
	}
	if !o.PostQuantum {
		cfg.CurvePreferences = classical
	}
	if !o.NoResume {
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(sessions)
	}
	c := &Client{o: o, base: cfg, families: o.Families}
	c.narrow.Store(!o.PostQuantum)
	if c.families == nil {
		c.families = []Family{TLS}
	}
	if len(c.families) > 1 || c.families[0] != TLS {
		c.sm = newSMClient(&o)
	}
	return c
}

// Handshake runs a handshake that sends sni and offers alpn ("": none). The certificate is verified by the
// configured name, else by sni. The caller sets the deadline.
func (c *Client) Handshake(nc net.Conn, sni, alpn string) (Conn, error) {
	f := c.family()
	conn, err := c.speak(nc, f, sni, alpn)
	if err != nil {
		return nil, &TryError{f, c.next(f, err)}
	}
	if got := conn.State().ALPN; got != alpn && (got != "" || !implied(alpn)) {
		return nil, fmt.Errorf("server chose ALPN %q, the client was promised %q", got, alpn)
	}
	return conn, nil
}

// TryError is the failure of a handshake, with what was spoken.
type TryError struct {
	Family Family
	err    error
}

// Error implements error; the family is told where there is a choice.
func (e *TryError) Error() string { return e.err.Error() }

// Unwrap gives the failure.
func (e *TryError) Unwrap() error { return e.err }

func (c *Client) speak(nc net.Conn, f Family, sni, alpn string) (Conn, error) {
	if f == TLS {
		return c.std(nc, sni, alpn)
	}
	name := c.name(sni)
	if name == "" && !c.o.SkipVerify {
		return nil, ErrNoName
	}
	if sni == "" {
		sni = name
	}
	return c.sm.handshake(nc, f, sni, name, alpn)
}

// name is what the server's certificate must be for.
func (c *Client) name(sni string) string {
	if c.o.ServerName != "" {
		return c.o.ServerName
	}
	return sni
}

func (c *Client) std(nc net.Conn, sni, alpn string) (Conn, error) {
	cfg, err := c.config(sni, alpn)
	if err != nil {
		return nil, err
	}
	t := tls.Client(nc, cfg)
	if err := t.Handshake(); err != nil {
		return nil, explain(err)
	}
	if t.ConnectionState().DidResume {
		// The session at hand is good until it expires; each new ticket would cost a key derivation and a
		// copy of the session, twice a connection. cfg is this connection's own, and nobody reads yet.
		cfg.ClientSessionCache = nil
	}
	return stdConn{t}, nil
}

// implied protocols are what a server speaks that does not answer ALPN.
func implied(alpn string) bool { return alpn == "" || alpn == "http/1.1" || alpn == "http/1.0" }

func (c *Client) config(sni, alpn string) (*tls.Config, error) {
	name := c.name(sni)
	if name == "" && !c.o.SkipVerify {
		return nil, ErrNoName
	}
	cfg := c.base.Clone()
	if c.narrow.Load() {
		cfg.CurvePreferences = cheap
	}
	if cfg.ServerName = sni; sni == "" {
		cfg.ServerName = name
	}
	if alpn != "" {
		cfg.NextProtos = []string{alpn}
	}
	if cfg.ServerName != name && !c.o.SkipVerify {
		// crypto/tls verifies by the name that it sends; these two differ.
		cfg.InsecureSkipVerify = true
		cfg.VerifyConnection = func(s tls.ConnectionState) error { return c.verify(s, name) }
	}
	return cfg, nil
}

// verify does what crypto/tls would do with another name. A resumed session comes from our own cache,
// where it got after it was verified, so its chain is not built again.
func (c *Client) verify(s tls.ConnectionState, name string) error {
	leaf := s.PeerCertificates[0]
	if s.DidResume && time.Now().Before(leaf.NotAfter) && chainUnrevoked(c.o.CRLs, s.PeerCertificates) == nil {
		return leaf.VerifyHostname(name)
	}
	opts := x509.VerifyOptions{Roots: c.o.CA, DNSName: name, Intermediates: x509.NewCertPool()}
	for _, ic := range s.PeerCertificates[1:] {
		opts.Intermediates.AddCert(ic)
	}
	chains, err := leaf.Verify(opts)
	if err == nil {
		err = unrevoked(c.o.CRLs, chains)
	}
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// explain names the issuer that is missing: "unknown authority" alone helps nobody.
func explain(err error) error {
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		return err
	}
	last := unknown.Cert
	var v *tls.CertificateVerificationError
	if errors.As(err, &v) && len(v.UnverifiedCertificates) > 0 {
		last = v.UnverifiedCertificates[len(v.UnverifiedCertificates)-1]
	}
	if last == nil {
		return err
	}
	return fmt.Errorf("%w (neither the server sent nor the CA file has the issuer %q)", err, last.Issuer.String())
}
