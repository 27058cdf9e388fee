package config

import (
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	"github.com/emmansun/gmsm/pkcs8"
	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
)

// smIssuer makes files of SM2 certificates.
type smIssuer struct {
	cert *smx509.Certificate
	key  *sm2.PrivateKey
}

const (
	signs    = smx509.KeyUsageDigitalSignature
	encrypts = smx509.KeyUsageKeyEncipherment | smx509.KeyUsageKeyAgreement
)

func newSMKey() *sm2.PrivateKey {
	k, err := sm2.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

func newSMIssuer(name string, now time.Time) *smIssuer {
	a := &smIssuer{key: newSMKey()}
	tpl := &smx509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: smx509.KeyUsageCertSign | smx509.KeyUsageCRLSign, NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(1, 0, 0)}
	a.cert = a.sign(tpl, tpl, a.key)
	return a
}

func (a *smIssuer) sign(tpl, parent *smx509.Certificate, key *sm2.PrivateKey) *smx509.Certificate {
	der, err := smx509.CreateCertificate(rand.Reader, tpl, parent, &key.PublicKey, a.key)
	if err != nil {
		panic(err)
	}
	c, err := smx509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return c
}

func (a *smIssuer) leaf(key *sm2.PrivateKey, usage smx509.KeyUsage, subject string, until time.Time, dns ...string) []byte {
	n, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	tpl := &smx509.Certificate{SerialNumber: n, Subject: pkix.Name{CommonName: subject}, KeyUsage: usage,
		NotBefore: a.cert.NotBefore, NotAfter: until, DNSNames: dns}
	return smPEM(a.sign(tpl, a.cert, key))
}

// list revokes nothing.
func (a *smIssuer) list(until time.Time) []byte {
	der, err := smx509.CreateRevocationList(rand.Reader, &smx509.RevocationList{Number: big.NewInt(1), ThisUpdate: a.cert.NotBefore, NextUpdate: until}, a.cert, a.key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

func smPEM(c *smx509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func smKeyPEM(key any, password []byte) []byte {
	kind := "PRIVATE KEY"
	if password != nil {
		kind = "ENCRYPTED PRIVATE KEY"
	}
	der, err := pkcs8.MarshalPrivateKey(key, password, nil)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// addSMFiles makes a good pair "sm", and what can be wrong with one.
func addSMFiles(files map[string][]byte) {
	ca, other := newSMIssuer("SM CA", testNow), newSMIssuer("Other SM CA", testNow)
	sign, enc, year := newSMKey(), newSMKey(), testNow.AddDate(1, 0, 0)
	secret := []byte("secret")
	for name, data := range map[string][]byte{
		"sm-ca.pem":   smPEM(ca.cert),
		"sm-ca.crl":   ca.list(year),
		"old.crl":     ca.list(testNow.Add(-time.Hour)),
		"strange.crl": other.list(year),
		"sm.pem":      ca.leaf(sign, signs, "www", year, "www.test"), "sm.key": smKeyPEM(sign, nil), "sm-locked.key": smKeyPEM(sign, secret),
		"sm-enc.pem": ca.leaf(enc, encrypts, "www", year, "www.test"), "sm-enc.key": smKeyPEM(enc, nil), "sm-enc-locked.key": smKeyPEM(enc, secret),
		"sm-alone.pem":   ca.leaf(sign, 0, "www", year, "alone.test"),
		"sm-subject.pem": ca.leaf(enc, encrypts, "somebody", year, "www.test"),
		"sm-issuer.pem":  other.leaf(enc, encrypts, "www", year, "www.test"),
		"sm-names.pem":   ca.leaf(enc, encrypts, "www", year, "enc.test"),
		"sm-samekey.pem": ca.leaf(sign, encrypts, "www", year, "www.test"),
		"sm-expired.pem": ca.leaf(enc, encrypts, "www", testNow.Add(-time.Hour), "www.test"),
		"password":       []byte("secret\n"),
		"wrong-password": []byte("wrong\r\n"),
		"empty-password": []byte("\n"),
	} {
		files[name] = data
	}
	key := newECDSA()
	files["locked.pem"], _ = makeCert(key, testNow.AddDate(-1, 0, 0), year, []string{"locked.test"})
	files["locked.key"] = smKeyPEM(key, secret)
	files["sm-both.pem"] = append(append([]byte{}, files["sm.pem"]...), files["sm-enc.pem"]...)
	files["all-ca.pem"] = append(append([]byte{}, files["sm-ca.pem"]...), files["ca.pem"]...)
}
