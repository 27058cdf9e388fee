package tls13sm

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// Errors of a configuration.
var (
	ErrNoCertificate = errors.New("no certificate for this client")
	ErrNoServerName  = errors.New("either ServerName or InsecureSkipVerify must be set")
)

// Certificate is a chain, leaf first, with the leaf's key.
type Certificate struct {
	Certificate [][]byte
	PrivateKey  crypto.Signer
	Leaf        *smx509.Certificate // nil: parsed when needed
}

// X509KeyPair makes a Certificate of PEM blocks with an SM2 key. The chain may hold an encryption
// certificate of TLCP too: what does not sign the leaf or its signers is left out.
func X509KeyPair(chainPEM, keyPEM, password []byte) (Certificate, error) {
	chain, err := sm.ParseChainPEM(chainPEM)
	if err != nil {
		return Certificate{}, err
	}
	key, err := sm.ParseKeyPEM(keyPEM, password)
	if err != nil {
		return Certificate{}, err
	}
	return NewCertificate(chain, key)
}

// NewCertificate makes a Certificate of a chain with an SM2 key.
func NewCertificate(chain []*smx509.Certificate, key *sm2.PrivateKey) (Certificate, error) {
	pub, err := sm.PublicKey(chain[0])
	if err != nil {
		return Certificate{}, err
	}
	if !pub.Equal(&key.PublicKey) {
		return Certificate{}, errors.New("certificate and key do not match")
	}
	if !sm.CanSign(chain[0]) {
		return Certificate{}, fmt.Errorf("certificate of %s: its key usage does not let it sign", chain[0].Subject)
	}
	c := Certificate{Certificate: [][]byte{chain[0].Raw}, PrivateKey: key, Leaf: chain[0]}
	for _, x := range chain[1:] {
		if x.IsCA {
			c.Certificate = append(c.Certificate, x.Raw)
		}
	}
	return c, nil
}

func (c *Certificate) leaf() (*smx509.Certificate, error) {
	if c.Leaf != nil {
		return c.Leaf, nil
	}
	if len(c.Certificate) == 0 {
		return nil, ErrNoCertificate
	}
	return sm.ParseCertificate(c.Certificate[0])
}

// Config configures both ends, like crypto/tls's. It must not be changed while in use.
type Config struct {
	Time func() time.Time // nil: time.Now

	Certificates         []Certificate // the first that the peer can verify is used
	GetCertificate       func(*ClientHelloInfo) (*Certificate, error)
	GetClientCertificate func(*CertificateRequestInfo) (*Certificate, error) // an empty one: none is sent

	RootCAs            *smx509.CertPool // nil: the system's
	ClientCAs          *smx509.CertPool
	ClientAuth         tls.ClientAuthType
	ServerName         string // of the client: sent and verified
	VerifyName         string // of the client: verified, when it is not the one that is sent
	InsecureSkipVerify bool
	Revoked            func(cert, issuer *smx509.Certificate) error // an error: it is
	VerifyConnection   func(ConnectionState) error

	NextProtos       []string
	CipherSuites     []uint16  // in order of preference; nil: GCM, CCM
	CurvePreferences []CurveID // in order of preference; strict mode takes curveSM2 alone
	KeyShares        []CurveID // of the client's first flight; nil: the most preferred, empty: none

	// Tolerant takes other groups and certificates than those of SM2 with an SM suite, as some stacks do.
	Tolerant bool

	SessionTicketsDisabled bool
	ClientSessionCache     ClientSessionCache // nil: the client does not resume
	KeyLogWriter           io.Writer

	tickets   ticketKeys
	verifiers struct {
		sync.Once
		servers, clients *sm.Verifier
	}
	recordsPerKey int64 // 0: the limit
}

// ClientHelloInfo is what a certificate is chosen by.
type ClientHelloInfo struct {
	ServerName       string
	CipherSuites     []uint16
	SupportedCurves  []CurveID
	SignatureSchemes []SignatureScheme
	SupportedProtos  []string
	Conn             net.Conn
	Context          context.Context
}

// CertificateRequestInfo is what a client certificate is chosen by.
type CertificateRequestInfo struct {
	AcceptableCAs    [][]byte // raw subjects; empty: any
	SignatureSchemes []SignatureScheme
	Context          context.Context
}

// ConnectionState says what was negotiated.
type ConnectionState struct {
	Version            uint16
	HandshakeComplete  bool
	DidResume          bool
	HelloRetryRequest  bool
	CipherSuite        uint16
	CurveID            CurveID
	NegotiatedProtocol string
	ServerName         string
	PeerCertificates   []*smx509.Certificate
	VerifiedChains     [][]*smx509.Certificate

	exporter secret
}

// ExportKeyingMaterial is the exporter of RFC 8446 7.5.
func (s *ConnectionState) ExportKeyingMaterial(label string, context []byte, length int) ([]byte, error) {
	if length < 0 || length > 255*secretSize || len(label) > 249 {
		return nil, errors.New("impossible length of keying material")
	}
	return exporter(s.exporter, label, context, length), nil
}

func (c *Config) now() time.Time {
	if c.Time != nil {
		return c.Time()
	}
	return time.Now()
}

// verifyName is the name that the server's certificate must have.
func (c *Config) verifyName() string {
	if c.VerifyName != "" {
		return c.VerifyName
	}
	return c.ServerName
}

func (c *Config) suites() []uint16 {
	if c.CipherSuites != nil {
		return c.CipherSuites
	}
	return []uint16{TLS_SM4_GCM_SM3, TLS_SM4_CCM_SM3}
}

func (c *Config) groups() []CurveID {
	switch {
	case !c.Tolerant:
		return []CurveID{CurveSM2}
	case c.CurvePreferences != nil:
		return c.CurvePreferences
	}
	return []CurveID{CurveSM2, tls.X25519, tls.CurveP256, tls.CurveP384}
}

func (c *Config) keyShares() []CurveID {
	if c.KeyShares != nil {
		return c.KeyShares
	}
	return c.groups()[:1]
}

// signatures are the schemes that we accept.
func (c *Config) signatures() []uint16 {
	if !c.Tolerant {
		return []uint16{uint16(SM2SigSM3)}
	}
	return toU16s(slices.Concat([]SignatureScheme{SM2SigSM3}, otherSchemes, chainSchemes))
}

// verifier is the cached verifier of the peers of that role.
func (c *Config) verifier(ofServers bool) *sm.Verifier {
	v := &c.verifiers
	v.Do(func() {
		v.servers = sm.NewVerifier(c.RootCAs, smx509.ExtKeyUsageServerAuth, c.Revoked)
		clients := c.ClientCAs
		if clients == nil {
			clients = smx509.NewCertPool()
		}
		v.clients = sm.NewVerifier(clients, smx509.ExtKeyUsageClientAuth, c.Revoked)
	})
	if ofServers {
		return v.servers
	}
	return v.clients
}

func (c *Config) log(label string, random, s []byte) error {
	if c.KeyLogWriter == nil {
		return nil
	}
	keyLogMu.Lock()
	defer keyLogMu.Unlock()
	_, err := fmt.Fprintf(c.KeyLogWriter, "%s %x %x\n", label, random, s)
	return err
}

var keyLogMu sync.Mutex

func toU16s[T ~uint16](list []T) []uint16 {
	out := make([]uint16, len(list))
	for i, v := range list {
		out[i] = uint16(v)
	}
	return out
}

func fromU16s[T ~uint16](list []uint16) []T {
	out := make([]T, len(list))
	for i, v := range list {
		out[i] = T(v)
	}
	return out
}
