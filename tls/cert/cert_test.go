package cert

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"sslo/tls/cert/certtest"
)

func pairs(t *testing.T, ca *certtest.CA, specs ...[]string) (out []Pair) {
	for _, s := range specs {
		kind := certtest.ECDSA
		if s[0] == "rsa" {
			kind = certtest.RSA
		}
		out = append(out, Pair{Name: s[1], Certificate: ca.Issue(t, kind, s[1:]...)})
	}
	return out
}

// leaf is what a client with that configuration is shown.
func leaf(t *testing.T, s *Store, cfg *tls.Config) *x509.Certificate {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		defer b.Close()
		tls.Server(b, &tls.Config{GetCertificate: s.Get}).Handshake()
	}()
	cfg.InsecureSkipVerify = true
	c := tls.Client(a, cfg)
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState().PeerCertificates[0]
}

func TestChoice(t *testing.T) {
	ca := certtest.NewCA(t)
	s := NewStore(pairs(t, ca,
		[]string{"rsa", "www.test"}, []string{"ecdsa", "www.test"}, []string{"rsa", "only-rsa.test"}, []string{"ecdsa", "*.wild.test"}))
	rsaOnly := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	cases := []struct {
		name, sni string
		suites    []uint16
		want      string
		kind      x509.PublicKeyAlgorithm
	}{
		{"by name", "only-rsa.test", nil, "only-rsa.test", x509.RSA},
		{"ECDSA first", "www.test", nil, "www.test", x509.ECDSA},
		{"client knows RSA only", "www.test", rsaOnly, "www.test", x509.RSA},
		{"case and dot", "WWW.Test.", nil, "www.test", x509.ECDSA},
		{"wildcard", "a.wild.test", nil, "*.wild.test", x509.ECDSA},
		{"wildcard is one label", "a.b.wild.test", nil, "www.test", x509.ECDSA},
		{"no name", "", nil, "www.test", x509.ECDSA},
		{"no name, RSA only", "", rsaOnly, "www.test", x509.RSA},
		{"named one can not be used", "x.wild.test", rsaOnly, "www.test", x509.RSA},
	}
	for _, c := range cases {
		cfg := &tls.Config{ServerName: c.sni, CipherSuites: c.suites}
		if c.suites != nil {
			cfg.MaxVersion = tls.VersionTLS12
		}
		got := leaf(t, s, cfg)
		if got.DNSNames[0] != c.want || got.PublicKeyAlgorithm != c.kind {
			t.Errorf("%s: %s %v, want %s %v", c.name, got.DNSNames[0], got.PublicKeyAlgorithm, c.want, c.kind)
		}
	}
}

func TestSwap(t *testing.T) {
	ca := certtest.NewCA(t)
	s := NewStore(pairs(t, ca, []string{"ecdsa", "a.test"}))
	s.Set(pairs(t, ca, []string{"ecdsa", "b.test"}))
	if got := leaf(t, s, &tls.Config{ServerName: "a.test"}).DNSNames[0]; got != "b.test" {
		t.Error(got)
	}
	if _, err := new(Store).Get(&tls.ClientHelloInfo{}); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	ca := certtest.NewCA(t)
	c1, k1 := ca.IssuePEM(t, certtest.ECDSA, "a.test")
	c2, k2 := ca.IssuePEM(t, certtest.ECDSA, "a.test")
	_, krsa := ca.IssuePEM(t, certtest.RSA, "a.test")
	if p, err := Parse("a", c1, k1); err != nil || p.Leaf.DNSNames[0] != "a.test" {
		t.Error(p, err)
	}
	for _, key := range [][]byte{k2, krsa} {
		if _, err := Parse("a", c1, key); !errors.Is(err, ErrMismatch) {
			t.Error(err)
		}
	}
	if _, err := Parse("a", c2, []byte("no pem")); err == nil {
		t.Error("no key and no error")
	}
}

// A key that today's clients refuse is refused at configuration time.
func TestWeakKey(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0")
	k, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"weak.test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	enc := func(typ string, b []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: b}) }
	_, err = Parse("weak", enc("CERTIFICATE", der), enc("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k)))
	if !errors.Is(err, ErrWeakKey) {
		t.Error(err)
	}
}
