// Package pki owns the lab's certificates: a throw-away CA and the leaves that tests need,
// made in memory and written as PEM. It knows nothing of the lab's topology.
package pki

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
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// KeyType of a leaf.
type KeyType int

const (
	ECDSA KeyType = iota // P-256
	RSA                  // 2048 bits
)

// Authority signs leaves.
type Authority struct {
	Cert *x509.Certificate
	PEM  []byte
	key  crypto.Signer
}

// Leaf is a certificate with its key.
type Leaf struct {
	CertPEM, KeyPEM []byte // the chain, leaf first; the key as PKCS #8
	TLS             tls.Certificate
}

// New makes a certificate authority that is valid for a day.
func New(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template(name)
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make CA %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{cert, pemBlock("CERTIFICATE", der), key}, nil
}

// Issue signs a leaf for names and addresses; the first name is its subject.
func (a *Authority) Issue(kind KeyType, names ...string) (*Leaf, error) {
	key, err := newKey(kind)
	if err != nil {
		return nil, err
	}
	t := template(names[0])
	t.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.Cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("issue %v: %w", names, err)
	}
	return newLeaf(der, key)
}

// Pool trusts this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Cert)
	return p
}

// Write stores NAME.pem and NAME.key in dir.
func (l *Leaf) Write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".pem"), l.CertPEM, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), l.KeyPEM, 0o600)
}

func newLeaf(der []byte, key crypto.Signer) (*Leaf, error) {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	l := &Leaf{CertPEM: pemBlock("CERTIFICATE", der), KeyPEM: pemBlock("PRIVATE KEY", pkcs8)}
	l.TLS, err = tls.X509KeyPair(l.CertPEM, l.KeyPEM)
	return l, err
}

func newKey(kind KeyType) (crypto.Signer, error) {
	if kind == RSA {
		return rsa.GenerateKey(rand.Reader, 2048)
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand does not fail
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
