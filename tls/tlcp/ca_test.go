package tlcp

import (
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"testing"
	"time"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
)

// authority is a CA for pairs that the vectors do not have.
type authority struct {
	cert *smx509.Certificate
	key  *sm2.PrivateKey
}

func key(t testing.TB) *sm2.PrivateKey {
	t.Helper()
	k, err := sm2.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var serial int64 = 1000

func template(cn string) *smx509.Certificate {
	serial++
	return &smx509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: cn},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
}

func (a *authority) issue(t testing.TB, tmpl *smx509.Certificate, pub any) *smx509.Certificate {
	t.Helper()
	parent := a.cert
	if parent == nil {
		parent = tmpl
	}
	der, err := smx509.CreateCertificate(rand.Reader, tmpl, parent, pub, a.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := smx509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: key(t)}
	tmpl := template("test root")
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, smx509.KeyUsageCertSign|smx509.KeyUsageCRLSign
	a.cert = a.issue(t, tmpl, &a.key.PublicKey)
	return a
}

func (a *authority) pool() *smx509.CertPool {
	p := smx509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// pair issues a pair; change may alter the templates before they are signed.
func (a *authority) pair(t testing.TB, change func(sign, enc *smx509.Certificate)) *Certificate {
	t.Helper()
	sign, enc := template("localhost"), template("localhost")
	sign.KeyUsage, enc.KeyUsage = smx509.KeyUsageDigitalSignature, smx509.KeyUsageKeyEncipherment
	sign.DNSNames, enc.DNSNames = []string{"localhost"}, []string{"localhost"}
	if change != nil {
		change(sign, enc)
	}
	signKey, encKey := key(t), key(t)
	c, err := NewCertificate(a.issue(t, sign, &signKey.PublicKey), a.issue(t, enc, &encKey.PublicKey), nil, signKey, encKey)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// emptyBasicConstraints is the extension as an empty SEQUENCE, critical: not a CA, said in the shortest way.
var emptyBasicConstraints = pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0}}
