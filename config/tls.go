package config

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/cert"
)

// Certificate is a certificate with its key, in PEM files. RSA and ECDSA certificates are for TLS, SM2 certificates for TLCP
// and for TLS 1.3 with SM suites; TLCP needs two, one to sign and one to be encrypted to.
type Certificate struct {
	Name string `yaml:",name"`
	// File with the certificate, followed by its intermediates. Relative to the configuration file. Of a pair for TLCP, the one that signs.
	Cert string `yaml:"cert" required:"true"`
	// File with the private key (PKCS #8, PKCS #1 or SEC 1). RSA needs 2048 bits or more.
	Key string `yaml:"key" required:"true"`
	// For SM2: file with the certificate that the other side encrypts to, with its intermediates if they are others; not needed when
	// it stands in the file of `cert`. Its subject is that of `cert`.
	EncCert string `yaml:"enc_cert"`
	// For SM2: file with the key of the encryption certificate. Without it the certificate is for TLS 1.3 alone, and for
	// clients of TLCP servers with ECC suites.
	EncKey string `yaml:"enc_key"`
	// File whose first line is the password of encrypted keys (PKCS #8).
	PasswordFile string `yaml:"password_file"`

	// TLS is what the files hold, SM the same of SM2; the other one is empty.
	TLS tls.Certificate `yaml:"-"`
	SM  cert.SMPair     `yaml:"-"`
}

// SNI is which name is sent to a server.
type SNI uint8

// The choices of SNI.
const (
	SNIOriginal SNI = iota // what the client sent, else server_name
	SNIConfigured
)

// ServerTLS is the encryption towards the servers of a pool.
type ServerTLS struct {
	// Encrypt. `false` sends plaintext to the servers.
	Enabled bool `yaml:"enabled" default:"true"`
	// What is spoken: `tls` (TLS 1.2, 1.3 with RSA and ECDSA), `tls13-sm` (TLS 1.3 with SM suites, RFC 8998), `tlcp` (GB/T 38636), or
	// `auto`, which tries them in this order, each on a connection of its own, and remembers what each server speaks.
	Protocol ServerProtocol `yaml:"protocol" default:"tls"`
	// Names of the certificates that are shown to servers that ask for one, at most one of each kind.
	Certificates []string `yaml:"certificates"`
	// Verify the server's certificate and name.
	Verify bool `yaml:"verify" default:"true"`
	// File with the CA certificates that servers are verified by; without it those of the system. Relative to the configuration file.
	CA string `yaml:"ca"`
	// File with certificate revocation lists, signed by CAs of the file of `ca`. A list that is out of date still counts. Relative to the
	// configuration file.
	CRL string `yaml:"crl"`
	// The name that is verified, and sent with `sni: configured` and for clients that send none.
	ServerName string `yaml:"server_name"`
	// The oldest TLS version that is spoken with servers. It does not concern `tlcp` and `tls13-sm`.
	MinVersion TLSVersion `yaml:"min_version" default:"1.2"`
	// The name sent to the server: `original` is the client's own (and that is the one verified),
	// `configured` is `server_name`.
	SNI SNI `yaml:"sni" default:"original"`
	// How `tlcp` and `tls13-sm` are spoken with servers.
	SM ServerSM `yaml:"sm"`

	// Trust is what CA and CRL hold; nil for the system's CAs.
	Trust *Trust `yaml:"-"`
}

// ServerProtocol is what is spoken with servers.
type ServerProtocol uint8

// ServerAuto finds out; the other choices are those of Protocol, with the same numbers.
const ServerAuto ServerProtocol = 0

// Protocol is a family of protocols, with cipher suites and certificates of its own.
type Protocol uint8

// The families.
const (
	ProtocolTLS Protocol = iota + 1
	ProtocolTLCP
	ProtocolTLS13SM
)

// SMMode is how strictly RFC 8998 is taken.
type SMMode uint8

// The choices of SMMode.
const (
	SMStrict SMMode = iota
	SMTolerant
)

// SMSuite is a cipher suite with SM4 and SM3 as on the wire.
type SMSuite uint16

// ClientSM is how the SM protocols are spoken with clients.
type ClientSM struct {
	// `strict`: in TLS 1.3 an SM suite comes with curveSM2 and SM2 certificates, as RFC 8998 says; `tolerant`: with other curves
	// and certificates too, as some implementations do.
	Mode SMMode `yaml:"mode" default:"strict"`
	// Cipher suites in order of preference; without it all. `ECDHE` suites need certificates of clients.
	Suites []SMSuite `yaml:"suites"`
}

// ServerSM is how the SM protocols are spoken with servers.
type ServerSM struct {
	// As of clients.
	Mode SMMode `yaml:"mode" default:"strict"`
	// Cipher suites in order of preference; without it all. `ECDHE` suites need a pair in `certificates`.
	Suites []SMSuite `yaml:"suites"`
	// For `tlcp` with ECDHE: send the key exchange with the length that the standard's text has (71 bytes). GmSSL wants that; most others
	// want the 69 bytes without.
	LongKeyExchange bool `yaml:"long_key_exchange" default:"off"`
	// For `tlcp` with a client certificate: sign the handshake's messages themselves instead of their hash. GmSSL since 3.2 wants that.
	SignRawMessages bool `yaml:"sign_raw_messages" default:"off"`
	// For `tlcp` with ECC and a client certificate: send the one that signs only. GmSSL wants that; most others want both.
	OmitEncCertificate bool `yaml:"omit_enc_certificate" default:"off"`
}

// Trust is a file of CA certificates, with revocation lists.
type Trust struct {
	TLS  *x509.CertPool   // without what only SM2 can verify
	SM   *smx509.CertPool // all
	PEM  string
	CRLs *cert.CRLs
	CRL  string // as it is

	std, all int // in the pools
}

// ClientCertificates is whether clients need a certificate.
type ClientCertificates uint8

// The choices of ClientCertificates.
const (
	ClientCertNone ClientCertificates = iota
	ClientCertOptional
	ClientCertRequired
)

// TLSVersion is a protocol version as on the wire.
type TLSVersion uint16

// ClientTLS is TLS with the clients of a virtual server.
type ClientTLS struct {
	// What is spoken, in order of preference for clients that offer several: `tls`, `tlcp` (GB/T 38636), `tls13-sm` (TLS 1.3 with SM
	// suites, RFC 8998). By default all that there are certificates for.
	Protocols []Protocol `yaml:"protocols" doc:"tlcp, tls13-sm, tls"`
	// The oldest version of `tls` that is spoken with clients. The versions do not concern `tlcp` and `tls13-sm`.
	MinVersion TLSVersion `yaml:"min_version" default:"1.2"`
	// The newest version of `tls`.
	MaxVersion TLSVersion `yaml:"max_version" default:"1.3"`
	// Certificates of clients, in all protocols: `none` are asked for, `optional` (one that is given must be good) or `required`. The
	// ECDHE suites of `tlcp` can not do without one: with `none` they take any, with `optional` they require one.
	ClientCertificates ClientCertificates `yaml:"client_certificates" default:"none"`
	// File with the CA certificates that clients are verified by, of all kinds. Relative to the configuration file.
	ClientCA string `yaml:"client_ca"`
	// File with certificate revocation lists, signed by CAs of the file of `client_ca`. A list that is out of date still counts. Relative to
	// the configuration file.
	ClientCRL string `yaml:"client_crl"`
	// How `tlcp` and `tls13-sm` are spoken with clients.
	SM ClientSM `yaml:"sm"`

	// Trust is what ClientCA and ClientCRL hold.
	Trust *Trust `yaml:"-"`
}
