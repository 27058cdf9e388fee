// Package certtest owns throw-away certificate authorities for tests.
package certtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Kind of key.
type Kind uint8

const (
	ECDSA Kind = iota
	RSA
)

// CA issues certificates that last a day.
type CA struct {
	Cert *x509.Certificate
	key  crypto.Signer
}

// NewCA makes an authority.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key := newKey(t, ECDSA)
	tpl := template("Test CA")
	tpl.IsCA, tpl.BasicConstraintsValid, tpl.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	return &CA{sign(t, tpl, tpl, key.Public(), key), key}
}

// Pool holds the authority alone.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.Cert)
	return p
}

// PEM is the authority's certificate.
func (ca *CA) PEM() []byte { return block("CERTIFICATE", ca.Cert.Raw) }

// Issue makes a certificate for names and addresses.
func (ca *CA) Issue(t testing.TB, kind Kind, names ...string) tls.Certificate {
	t.Helper()
	key := newKey(t, kind)
	tpl := template(names[0])
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			tpl.IPAddresses = append(tpl.IPAddresses, ip)
			continue
		}
		tpl.DNSNames = append(tpl.DNSNames, n)
	}
	leaf := sign(t, tpl, ca.Cert, key.Public(), ca.key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// IssuePEM is Issue as files would hold it.
func (ca *CA) IssuePEM(t testing.TB, kind Kind, names ...string) (cert, key []byte) {
	t.Helper()
	c := ca.Issue(t, kind, names...)
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return block("CERTIFICATE", c.Certificate[0]), block("PRIVATE KEY", der)
}

func newKey(t testing.TB, kind Kind) crypto.Signer {
	var key crypto.Signer
	var err error
	if kind == RSA {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func template(cn string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: cn},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
}

func sign(t testing.TB, tpl, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, tpl, parent, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func block(typ string, b []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: b})
}
