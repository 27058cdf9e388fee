// Package tlcp owns TLCP 1.1 (GB/T 38636-2020), as server and as client: its messages, key agreement, key
// schedule and resumption, over the records and certificates of package sm. It accepts what implementations
// in the field send, and sends what the standard says. It knows no listener, no virtual server and no TLS.
package tlcp

import (
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// ClientAuthType is what a server wants of clients' certificates. The ECDHE suites need a client's
// certificate in any case: with them a server that wants none takes any, and one that would take none or any
// wants one.
type ClientAuthType int

// What a server can want, as in crypto/tls.
const (
	NoClientCert ClientAuthType = iota
	RequestClientCert
	RequireAnyClientCert
	VerifyClientCertIfGiven
	RequireAndVerifyClientCert
)

func (t ClientAuthType) required() bool {
	return t == RequireAnyClientCert || t == RequireAndVerifyClientCert
}
func (t ClientAuthType) verified() bool { return t >= VerifyClientCertIfGiven }

// with makes what is wanted fit the suite.
func (t ClientAuthType) with(s *suite) ClientAuthType {
	switch {
	case !s.ecdhe:
		return t
	case t.verified():
		return RequireAndVerifyClientCert
	}
	return RequireAnyClientCert
}

// Config is how TLCP is spoken. Once in use it must not be changed, but by SetSessionTicketKeys.
type Config struct {
	Time func() time.Time // nil: time.Now

	// Certificates of this end. A server chooses by server name, with the first as the default; a client by
	// the CAs that the server names.
	Certificates         []*Certificate
	GetCertificate       func(*ClientHelloInfo) (*Certificate, error)        // nil, nil: choose of Certificates
	GetClientCertificate func(*CertificateRequestInfo) (*Certificate, error) // nil, nil: send none
	GetConfigForClient   func(*ClientHelloInfo) (*Config, error)             // nil, nil: this one
	VerifyConnection     func(ConnectionState) error                         // after all other checks, resumed too
	Revoked              func(cert, issuer *smx509.Certificate) error        // of each certificate of a chain
	RootCAs              *smx509.CertPool                                    // for servers; nil: the system's
	ClientCAs            *smx509.CertPool                                    // for clients, and named to them
	InsecureSkipVerify   bool                                                // client: takes any certificate
	ServerName           string                                              // client: to verify, and to send
	VerifyName           string                                              // client: to verify, when it is not the one to send
	ClientAuth           ClientAuthType                                      // server
	NextProtos           []string                                            // in order of preference
	CipherSuites         []uint16                                            // in order of preference; nil: all

	// Resumption. A server takes sessions by id when it has a SessionCache, and gives tickets to clients that
	// offer to take them. A client resumes when it has a ClientSessionCache; it offers tickets only with
	// OfferTickets, because some servers drop clients that do.
	SessionCache           ServerSessionCache
	SessionTicketsDisabled bool
	ClientSessionCache     ClientSessionCache
	OfferTickets           bool
	SessionLifetime        time.Duration // 0: two hours

	// What peers differ in. Both forms are always accepted.
	LongKeyExchange    bool // ECDHE: send the 71 bytes of the standard's text (GmSSL) and not the usual 69
	SignRawMessages    bool // CertificateVerify over the messages (GmSSL since 3.2), not over their hash
	OmitEncCertificate bool // ECC: a client sends its signing certificate only (GmSSL)
	KeyLogWriter       io.Writer

	mu        sync.Mutex
	keys      []ticketKey
	auto      bool // keys were made here
	verifiers map[smx509.ExtKeyUsage]*sm.Verifier
}

const defaultLifetime = 2 * time.Hour

func (c *Config) time() time.Time {
	if c.Time != nil {
		return c.Time()
	}
	return time.Now()
}

// verifyName is the name that the server's certificates must have.
func (c *Config) verifyName() string {
	if c.VerifyName != "" {
		return c.VerifyName
	}
	return c.ServerName
}

func (c *Config) lifetime() time.Duration {
	if c.SessionLifetime > 0 {
		return c.SessionLifetime
	}
	return defaultLifetime
}

func (c *Config) cipherSuites() []uint16 {
	if c.CipherSuites != nil {
		return c.CipherSuites
	}
	return CipherSuites()
}

// verifier is made once, since it remembers chains.
func (c *Config) verifier(usage smx509.ExtKeyUsage) *sm.Verifier {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.verifiers[usage]; v != nil {
		return v
	}
	roots := c.RootCAs
	if usage == smx509.ExtKeyUsageClientAuth {
		if roots = c.ClientCAs; roots == nil {
			roots = smx509.NewCertPool() // nobody is trusted, where the system's roots would trust too many
		}
	}
	v := sm.NewVerifier(roots, usage, c.Revoked)
	if c.verifiers == nil {
		c.verifiers = map[smx509.ExtKeyUsage]*sm.Verifier{}
	}
	c.verifiers[usage] = v
	return v
}

// verify checks both certificates of a peer.
func (c *Config) verify(p peerPair, usage smx509.ExtKeyUsage) (sign, enc [][]*smx509.Certificate, err error) {
	v := c.verifier(usage)
	if sign, err = v.Verify(p.sign, p.cas, c.time()); err != nil || p.enc == nil {
		return sign, nil, err
	}
	enc, err = v.Verify(p.enc, p.cas, c.time())
	return sign, enc, err
}

// Clone gives a copy with the same ticket keys and nothing remembered.
func (c *Config) Clone() *Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Config{
		Time: c.Time, Certificates: slices.Clone(c.Certificates), GetCertificate: c.GetCertificate,
		GetClientCertificate: c.GetClientCertificate, GetConfigForClient: c.GetConfigForClient,
		VerifyConnection: c.VerifyConnection, Revoked: c.Revoked, RootCAs: c.RootCAs, ClientCAs: c.ClientCAs,
		InsecureSkipVerify: c.InsecureSkipVerify, ServerName: c.ServerName, VerifyName: c.VerifyName, ClientAuth: c.ClientAuth,
		NextProtos: slices.Clone(c.NextProtos), CipherSuites: slices.Clone(c.CipherSuites),
		SessionCache: c.SessionCache, SessionTicketsDisabled: c.SessionTicketsDisabled,
		ClientSessionCache: c.ClientSessionCache, OfferTickets: c.OfferTickets, SessionLifetime: c.SessionLifetime,
		LongKeyExchange: c.LongKeyExchange, SignRawMessages: c.SignRawMessages, OmitEncCertificate: c.OmitEncCertificate,
		KeyLogWriter: c.KeyLogWriter, keys: slices.Clone(c.keys), auto: c.auto,
	}
}

// ConnectionState is the outcome of a handshake.
type ConnectionState struct {
	Version            uint16
	HandshakeComplete  bool
	DidResume          bool
	CipherSuite        uint16
	NegotiatedProtocol string
	ServerName         string                  // asked for by the client
	PeerCertificates   []*smx509.Certificate   // as sent: the signing one first
	VerifiedChains     [][]*smx509.Certificate // of the signing certificate
	VerifiedEncChains  [][]*smx509.Certificate // of the encryption certificate
}

// ClientHelloInfo is what a server knows of a client when it chooses.
type ClientHelloInfo struct {
	CipherSuites    []uint16
	ServerName      string
	SupportedProtos []string
	Extensions      []uint16
	Conn            net.Conn
}

// CertificateRequestInfo is what a client knows of a server that asks for its certificate.
type CertificateRequestInfo struct {
	AcceptableCAs [][]byte // distinguished names, DER
	CipherSuite   uint16
	NeedsEnc      bool // the suite needs an encryption certificate
}
