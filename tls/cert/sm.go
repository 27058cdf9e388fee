package cert

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"fmt"
	"os"
	"slices"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/tlcp"
	"sslo/tls/tls13sm"
)

// SMPair is an SM2 certificate to sign with and, for TLCP, one to be encrypted to, with their keys.
type SMPair struct {
	Name string
	*tlcp.Certificate
}

// SMFiles are the PEM files of a pair. The encryption certificate may stand behind the signing one; without
// its key the pair is good for TLS 1.3 alone.
type SMFiles struct {
	Cert, Key       string
	EncCert, EncKey string
	Password        []byte // of encrypted keys
}

// LoadSM reads a pair from PEM files and checks all that a peer would refuse.
func LoadSM(name string, f SMFiles) (SMPair, error) {
	var pem [4][]byte
	for i, file := range []string{f.Cert, f.Key, f.EncCert, f.EncKey} {
		if file == "" {
			continue
		}
		var err error
		if pem[i], err = os.ReadFile(file); err != nil {
			return SMPair{}, err
		}
	}
	return ParseSM(name, pem[0], pem[1], pem[2], pem[3], f.Password)
}

// ParseSM reads a pair from PEM blocks.
func ParseSM(name string, cert, key, encCert, encKey, password []byte) (SMPair, error) {
	c, err := tlcp.X509KeyPair(cert, key, encCert, encKey, password)
	if err != nil {
		return SMPair{}, fmt.Errorf("certificate %s: %w", name, err)
	}
	return SMPair{name, c}, nil
}

// Dual tells that the pair is good for TLCP servers.
func (p SMPair) Dual() bool { return p.Enc != nil }

// TLS13 is the pair as TLS 1.3 sends it: without the encryption certificate.
func (p SMPair) TLS13() tls13sm.Certificate {
	c := tls13sm.Certificate{Certificate: [][]byte{p.Sign.Raw}, PrivateKey: p.SignKey, Leaf: p.Sign}
	for _, ca := range p.CAs {
		c.Certificate = append(c.Certificate, ca.Raw)
	}
	return c
}

// Equal tells whether two pairs have the same certificates.
func (p *SMPair) Equal(o *SMPair) bool {
	return sameList(p.List(), o.List())
}

// List is the certificates: to sign, to be encrypted to (nil: none), those of CAs.
func (p SMPair) List() []*smx509.Certificate {
	return append([]*smx509.Certificate{p.Sign, p.Enc}, p.CAs...)
}

func sameList(a, b []*smx509.Certificate) bool {
	return slices.EqualFunc(a, b, func(x, y *smx509.Certificate) bool { return x == y || x != nil && y != nil && x.Equal(y) })
}

// KeyName is a public key in words: "RSA 2048", "ECDSA P-256", "SM2".
func KeyName(pub any) string {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case *ecdsa.PublicKey:
		if sm2.IsSM2PublicKey(k) {
			return "SM2"
		}
		return "ECDSA " + k.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return fmt.Sprintf("%T", pub)
}
