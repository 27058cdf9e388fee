// Package issue owns certificates for labs and tests as files: authorities, leaves of RSA, ECDSA and SM2, pairs
// of the latter for TLCP, and revocation lists. It keeps no books and is no authority for anything real.
package issue

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/emmansun/gmsm/pkcs8"
	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
)

// Kind of a key.
type Kind string

// The kinds.
const (
	ECDSA Kind = "ecdsa" // P-256
	RSA   Kind = "rsa"   // 2048 bits
	SM2   Kind = "sm2"
)

// ErrKind is given for any other.
var ErrKind = errors.New("the kind of a key is ecdsa, rsa or sm2")

// Authority signs certificates.
type Authority struct {
	Chain []*smx509.Certificate // its own, then those above it without the root
	key   crypto.Signer
}

// Request is what is wanted.
type Request struct {
	Kind     Kind
	Subject  string   // common name; "": the first of Names
	Names    []string // host names and addresses
	Lifetime time.Duration
}

// Usages of a leaf's key.
const (
	signs    = smx509.KeyUsageDigitalSignature
	encrypts = smx509.KeyUsageKeyEncipherment | smx509.KeyUsageDataEncipherment | smx509.KeyUsageKeyAgreement
)

// Leaf is a certificate with its key. A pair is two.
type Leaf struct {
	Chain []*smx509.Certificate // leaf first, without the root
	Key   crypto.Signer
}

// NewAuthority makes a root, or an authority below parent.
func NewAuthority(r Request, parent *Authority) (*Authority, error) {
	key, err := newKey(r.Kind)
	if err != nil {
		return nil, err
	}
	a := &Authority{key: key}
	t := r.template()
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = smx509.KeyUsageCertSign | smx509.KeyUsageCRLSign
	t.DNSNames, t.IPAddresses = nil, nil
	if parent == nil {
		c, err := create(t, t, key.Public(), key)
		a.Chain = []*smx509.Certificate{c}
		return a, err
	}
	c, err := parent.sign(t, key.Public(), r.Kind)
	a.Chain = append([]*smx509.Certificate{c}, parent.below()...)
	return a, err
}

// LoadAuthority reads what an authority's PEM says.
func LoadAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	a := &Authority{}
	for {
		var block *pem.Block
		if block, certPEM = pem.Decode(certPEM); block == nil {
			break
		}
		c, err := smx509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		a.Chain = append(a.Chain, c)
	}
	block, _ := pem.Decode(keyPEM)
	if len(a.Chain) == 0 || block == nil {
		return nil, errors.New("no certificate, or no key")
	}
	if !a.Chain[0].IsCA {
		return nil, fmt.Errorf("%s is no authority", a.Chain[0].Subject)
	}
	key, err := smx509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	a.key = key.(crypto.Signer) // all kinds of keys are
	return a, nil
}

// below is what goes into the chains of those that it signs: itself and all above, but not the root.
func (a *Authority) below() []*smx509.Certificate {
	var out []*smx509.Certificate
	for _, c := range a.Chain {
		if string(c.RawSubject) != string(c.RawIssuer) {
			out = append(out, c)
		}
	}
	return out
}

// Issue makes a certificate that signs. Of RSA, it can be encrypted to as well.
func (a *Authority) Issue(r Request) (*Leaf, error) {
	usage := signs
	if r.Kind == RSA {
		usage |= smx509.KeyUsageKeyEncipherment
	}
	return a.issue(r, usage)
}

// IssuePair makes the two certificates of TLCP.
func (a *Authority) IssuePair(r Request) (sign, enc *Leaf, err error) {
	if r.Kind != SM2 {
		return nil, nil, errors.New("only SM2 certificates come in pairs")
	}
	if sign, err = a.issue(r, signs); err != nil {
		return nil, nil, err
	}
	enc, err = a.issue(r, encrypts)
	return sign, enc, err
}

func (a *Authority) issue(r Request, usage smx509.KeyUsage) (*Leaf, error) {
	key, err := newKey(r.Kind)
	if err != nil {
		return nil, err
	}
	t := r.template()
	t.KeyUsage = usage
	t.ExtKeyUsage = []smx509.ExtKeyUsage{smx509.ExtKeyUsageServerAuth, smx509.ExtKeyUsageClientAuth}
	c, err := a.sign(t, key.Public(), r.Kind)
	if err != nil {
		return nil, err
	}
	return &Leaf{append([]*smx509.Certificate{c}, a.below()...), key}, nil
}

// sign refuses what a strict peer would: SM2 and other kinds do not mix in a chain.
func (a *Authority) sign(t *smx509.Certificate, pub crypto.PublicKey, kind Kind) (*smx509.Certificate, error) {
	if _, ofSM2 := a.key.(*sm2.PrivateKey); ofSM2 != (kind == SM2) {
		return nil, fmt.Errorf("an authority of another kind than %s can not issue this", kind)
	}
	return create(t, a.Chain[0], pub, a.key)
}

func create(t, parent *smx509.Certificate, pub crypto.PublicKey, key crypto.Signer) (*smx509.Certificate, error) {
	der, err := smx509.CreateCertificate(rand.Reader, t, parent, pub, key)
	if err != nil {
		return nil, err
	}
	return smx509.ParseCertificate(der)
}

// Revoke makes a revocation list in PEM.
func (a *Authority) Revoke(certs []*smx509.Certificate, lifetime time.Duration) ([]byte, error) {
	now := time.Now()
	list := &smx509.RevocationList{Number: big.NewInt(now.Unix()), ThisUpdate: now.Add(-time.Minute), NextUpdate: now.Add(lifetime)}
	for _, c := range certs {
		if string(c.RawIssuer) != string(a.Chain[0].RawSubject) {
			return nil, fmt.Errorf("%s was not issued by %s", c.Subject, a.Chain[0].Subject)
		}
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			smx509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: now.Add(-time.Minute)})
	}
	der, err := smx509.CreateRevocationList(rand.Reader, list, a.Chain[0], a.key)
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), err
}

func newKey(kind Kind) (crypto.Signer, error) {
	switch kind {
	case ECDSA:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case RSA:
		return rsa.GenerateKey(rand.Reader, 2048)
	case SM2:
		return sm2.GenerateKey(rand.Reader)
	}
	return nil, fmt.Errorf("%w, not %q", ErrKind, kind)
}

func (r *Request) template() *smx509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	now := time.Now()
	t := &smx509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: r.Subject},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(r.Lifetime)}
	for _, n := range r.Names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	if r.Subject == "" && len(r.Names) > 0 {
		t.Subject.CommonName = r.Names[0]
	}
	return t
}

// PEM is a chain as a file.
func PEM(chain []*smx509.Certificate) (out []byte) {
	for _, c := range chain {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}

// KeyPEM is a key as a file (PKCS #8), encrypted when there is a password.
func KeyPEM(key crypto.Signer, password []byte) ([]byte, error) {
	kind := "PRIVATE KEY"
	if len(password) > 0 {
		kind = "ENCRYPTED PRIVATE KEY"
	}
	der, err := pkcs8.MarshalPrivateKey(key, password, nil)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), nil
}

// KeyPEM is the authority's key as a file.
func (a *Authority) KeyPEM() ([]byte, error) { return KeyPEM(a.key, nil) }
