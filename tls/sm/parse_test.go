package sm

import (
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/emmansun/gmsm/smx509"
)

func vector(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../testdata/vectors/certs", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A key is the same key in each of the forms in which it comes.
func TestKeyForms(t *testing.T) {
	want, err := ParseKeyPEM(vector(t, "server_sign.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := smx509.MarshalSM2PrivateKey(want)
	if err != nil {
		t.Fatal(err)
	}
	cert := vector(t, "server_sign.crt")
	for name, b := range map[string][]byte{
		"encrypted PKCS#8":      vector(t, "server_sign.enckey.pem"),
		"SEC 1":                 pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}),
		"behind a certificate":  append(cert, vector(t, "server_sign.key")...),
		"behind EC PARAMETERS":  append(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{5, 0}}), vector(t, "server_sign.key")...),
		"plain with a password": vector(t, "server_sign.key"),
	} {
		if k, err := ParseKeyPEM(b, []byte("P@ssw0rd")); err != nil || !k.Equal(want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{"nothing": nil, "certificate": vector(t, "server_sign.crt")} {
		if _, err := ParseKeyPEM(b, nil); !errors.Is(err, ErrNoKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, password := range []string{"", "wrong"} {
		if _, err := ParseKeyPEM(vector(t, "server_sign.enckey.pem"), []byte(password)); err == nil {
			t.Errorf("opens with the password %q", password)
		}
	}
}

func TestParsedCertificatesAreBounded(t *testing.T) {
	chain, err := ParseChainPEM(vector(t, "chain.crt"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := ParseCertificate(chain[0].Raw)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := ParseCertificate(append([]byte(nil), chain[0].Raw...)); a != b {
		t.Error("the same certificate is parsed twice")
	}
	m := map[int]int{}
	for i := range 100 {
		evict(m, 10)
		m[i] = i
	}
	if len(m) != 10 || m[99] != 99 {
		t.Errorf("%d entries in a cache of 10", len(m))
	}
	if _, err := ParseCertificate([]byte("no certificate")); err == nil {
		t.Error("garbage is a certificate")
	}
}
