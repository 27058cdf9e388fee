package term

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/cert"
	"sslo/tls/sm"
	"sslo/tls/tlcp"
	"sslo/tls/tls13sm"
)

// ErrOtherFamily is given, beside the reason, when a server does not speak the family that was tried and
// there is another: the next connection tries that one.
var ErrOtherFamily = errors.New("server does not speak this protocol, another one is next")

// SMClient says how the SM suites are spoken with servers.
type SMClient struct {
	CA          *smx509.CertPool // nil: the system's
	Certificate *cert.SMPair     // for servers that ask for one
	Suites      []uint16         // of both families; empty: all
	Tolerant    bool

	// What servers of TLCP differ in; see tlcp.Config.
	LongKeyExchange, SignRawMessages, OmitEncCertificate bool
}

// smClient makes the configurations, one for each name, because each remembers the chains that it verified.
type smClient struct {
	o *ClientOptions
	x SMClient

	tlcpSessions  tlcp.ClientSessionCache
	tls13Sessions tls13sm.ClientSessionCache

	mu    sync.Mutex
	tlcp  map[target]*tlcp.Config
	tls13 map[target]*tls13sm.Config
}

// target is what a configuration is for.
type target struct{ sni, name, alpn string }

// targets bounds the configurations that are kept: clients choose the names.
const targets = 64

func newSMClient(o *ClientOptions) *smClient {
	c := &smClient{o: o, tlcp: map[target]*tlcp.Config{}, tls13: map[target]*tls13sm.Config{}}
	if o.SM != nil {
		c.x = *o.SM
	}
	if !o.NoResume {
		c.tlcpSessions = tlcp.NewLRUClientSessionCache(sessions)
		c.tls13Sessions = tls13sm.NewLRUClientSessionCache(sessions)
	}
	return c
}

// handshake speaks an SM family. name is verified, sni is sent.
func (c *smClient) handshake(nc net.Conn, f Family, sni, name, alpn string) (Conn, error) {
	if f == TLCP {
		if implied(alpn) {
			alpn = "" // some servers refuse all that they did not expect
		}
		t := tlcp.Client(nc, kept(&c.mu, c.tlcp, target{sni, name, alpn}, c.newTLCP))
		return done(tlcpConn{t}, t.Handshake())
	}
	t := tls13sm.Client(nc, kept(&c.mu, c.tls13, target{sni, name, alpn}, c.newTLS13))
	return done(tls13smConn{t}, t.Handshake())
}

// kept is the configuration for a target, made when there is none.
func kept[C any](mu *sync.Mutex, m map[target]C, t target, fresh func(target) C) C {
	mu.Lock()
	defer mu.Unlock()
	if c, ok := m[t]; ok {
		return c
	}
	if len(m) >= targets {
		clear(m)
	}
	m[t] = fresh(t)
	return m[t]
}

func (t target) protocols() []string {
	if t.alpn == "" {
		return nil
	}
	return []string{t.alpn}
}

func (c *smClient) newTLCP(t target) *tlcp.Config {
	cfg := &tlcp.Config{RootCAs: c.x.CA, InsecureSkipVerify: c.o.SkipVerify, ServerName: t.sni, VerifyName: t.name, NextProtos: t.protocols(),
		CipherSuites: only(c.x.Suites, tlcp.CipherSuites()...), ClientSessionCache: c.tlcpSessions, Revoked: revoked(c.o.CRLs),
		LongKeyExchange: c.x.LongKeyExchange, SignRawMessages: c.x.SignRawMessages, OmitEncCertificate: c.x.OmitEncCertificate}
	if c.x.Certificate != nil {
		cfg.Certificates = []*tlcp.Certificate{c.x.Certificate.Certificate}
	}
	return cfg
}

func (c *smClient) newTLS13(t target) *tls13sm.Config {
	cfg := &tls13sm.Config{RootCAs: c.x.CA, InsecureSkipVerify: c.o.SkipVerify, ServerName: t.sni, VerifyName: t.name, NextProtos: t.protocols(),
		CipherSuites: only(c.x.Suites, tls13sm.TLS_SM4_GCM_SM3, tls13sm.TLS_SM4_CCM_SM3), Tolerant: c.x.Tolerant, ClientSessionCache: c.tls13Sessions, Revoked: revoked(c.o.CRLs)}
	if c.x.Certificate != nil {
		cfg.Certificates = []tls13sm.Certificate{c.x.Certificate.TLS13()}
	}
	return cfg
}

// family is what the next connection tries.
func (c *Client) family() Family { return c.families[int(c.turn.Load())%len(c.families)] }

// next goes to another family when the failure says that the server does not speak this one.
func (c *Client) next(f Family, err error) error {
	if f == TLS && refused(err) && c.narrow.CompareAndSwap(true, false) && len(c.families) == 1 {
		return fmt.Errorf("%v: %w: %w", f, ErrOtherFamily, err)
	}
	if len(c.families) < 2 || !unspoken(err) {
		return err
	}
	turn := c.turn.Load()
	if c.families[int(turn)%len(c.families)] == f {
		c.turn.CompareAndSwap(turn, turn+1)
	}
	return fmt.Errorf("%v: %w: %w", f, ErrOtherFamily, err)
}

// unspoken tells the failures of a server that does not know the family: it refuses with an alert about what
// was offered, or it closes. Certificates that do not verify are not among them.
func unspoken(err error) bool {
	var notTLS tls.RecordHeaderError
	if errors.As(err, &notTLS) || errors.Is(err, sm.ErrNotTLS) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return true
	}
	var peer *sm.PeerAlert
	if errors.As(err, &peer) {
		return slices.Contains(refusals, peer.Alert)
	}
	if refused(err) {
		return true
	}
	a, ours := sm.AlertOf(err) // the server answered something else than what we speak
	return ours && (a == sm.AlertProtocolVersion || a == sm.AlertUnexpectedMessage)
}

// refused tells an alert of the server about what crypto/tls offered.
func refused(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return false
	}
	// crypto/tls does not export its alerts, but their texts are the same.
	return slices.ContainsFunc(refusals, func(a sm.Alert) bool { return a.Error() == op.Err.Error() })
}

var refusals = []sm.Alert{sm.AlertHandshakeFailure, sm.AlertProtocolVersion, sm.AlertUnexpectedMessage, sm.AlertIllegalParameter,
	sm.AlertDecodeError, sm.AlertInsufficientSecurity, sm.AlertMissingExtension, sm.AlertInternalError}
