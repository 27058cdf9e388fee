package certtest

import (
	"crypto/rand"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/tlcp"
)

// SMCA issues pairs of SM2 certificates that last a day.
type SMCA struct {
	Cert *smx509.Certificate
	key  *sm2.PrivateKey
}

// NewSMCA makes an authority.
func NewSMCA(t testing.TB) *SMCA {
	t.Helper()
	ca := &SMCA{key: newSM2(t)}
	tpl := smTemplate("Test SM CA")
	tpl.IsCA, tpl.BasicConstraintsValid, tpl.KeyUsage = true, true, smx509.KeyUsageCertSign|smx509.KeyUsageCRLSign
	ca.Cert = ca.sign(t, tpl, tpl, ca.key)
	return ca
}

// Pool holds the authority alone.
func (ca *SMCA) Pool() *smx509.CertPool {
	p := smx509.NewCertPool()
	p.AddCert(ca.Cert)
	return p
}

// Issue makes a pair for names and addresses.
func (ca *SMCA) Issue(t testing.TB, names ...string) *tlcp.Certificate {
	t.Helper()
	tpl := smTemplate(names[0])
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			tpl.IPAddresses = append(tpl.IPAddresses, ip)
		} else {
			tpl.DNSNames = append(tpl.DNSNames, n)
		}
	}
	signKey, encKey := newSM2(t), newSM2(t)
	tpl.KeyUsage = smx509.KeyUsageDigitalSignature
	sign := ca.sign(t, tpl, ca.Cert, signKey)
	tpl.KeyUsage = smx509.KeyUsageKeyEncipherment | smx509.KeyUsageDataEncipherment | smx509.KeyUsageKeyAgreement
	tpl.SerialNumber = smTemplate("").SerialNumber
	c, err := tlcp.NewCertificate(sign, ca.sign(t, tpl, ca.Cert, encKey), nil, signKey, encKey)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newSM2(t testing.TB) *sm2.PrivateKey {
	t.Helper()
	k, err := sm2.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func smTemplate(name string) *smx509.Certificate {
	n, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // never fails
	return &smx509.Certificate{SerialNumber: n, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
}

func (ca *SMCA) sign(t testing.TB, tpl, parent *smx509.Certificate, key *sm2.PrivateKey) *smx509.Certificate {
	t.Helper()
	der, err := smx509.CreateCertificate(rand.Reader, tpl, parent, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := smx509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
