package certtest

import (
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"testing"
	"time"

	"github.com/emmansun/gmsm/smx509"
)

// Revoke is a list of revoked serial numbers in PEM.
func (ca *CA) Revoke(t testing.TB, serials ...*big.Int) []byte {
	t.Helper()
	tpl := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range serials {
		tpl.RevokedCertificateEntries = append(tpl.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: n, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, tpl, ca.Cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return block("X509 CRL", der)
}

// Revoke is a list of revoked serial numbers in PEM.
func (ca *SMCA) Revoke(t testing.TB, serials ...*big.Int) []byte {
	t.Helper()
	tpl := &smx509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range serials {
		tpl.RevokedCertificateEntries = append(tpl.RevokedCertificateEntries, smx509.RevocationListEntry{SerialNumber: n, RevocationTime: time.Now()})
	}
	der, err := smx509.CreateRevocationList(rand.Reader, tpl, ca.Cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return block("X509 CRL", der)
}
