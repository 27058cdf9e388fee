package term

import (
	"crypto/tls"
	"crypto/x509"

	"sslo/tls/cert"
)

// ServerOptions say how TLS with clients is spoken.
type ServerOptions struct {
	MinVersion uint16   // crypto/tls's numbers; 0: TLS 1.2
	MaxVersion uint16   // 0: TLS 1.3
	ALPN       []string // in order of preference; empty: ALPN is not answered
	Suites     []uint16 // of TLS 1.2; empty: crypto/tls's own choice

	// What is wanted of clients' certificates, in all families. Trust names it: a session that was made under
	// another name is not resumed.
	ClientAuth tls.ClientAuthType
	ClientCAs  *x509.CertPool // of TLS
	CRLs       *cert.CRLs
	Trust      string

	// Families that are spoken, in order of preference. nil: TLCP, TLS 1.3 with SM, TLS. The SM families need
	// certificates in SM.
	Families []Family
	SM       *SMServer
}

// ClientOptions say how TLS with servers is spoken.
type ClientOptions struct {
	MinVersion   uint16            // 0: TLS 1.2
	MaxVersion   uint16            // 0: TLS 1.3
	CA           *x509.CertPool    // nil: the system's
	CRLs         *cert.CRLs        // of all families
	Certificates []tls.Certificate // for servers that ask for one
	SkipVerify   bool              // the default verifies
	ServerName   string            // name to verify, and to send as SNI when the client sent none or SNI is configured
	PostQuantum  bool              // offer X25519MLKEM768 too: 45 µs a full handshake
	NoResume     bool

	// Families that servers are tried with, in that order, each on a connection of its own, until one does.
	// nil: TLS.
	Families []Family
	SM       *SMClient
}
