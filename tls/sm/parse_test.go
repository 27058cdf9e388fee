package sm

import (
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/emmansun/gmsm/pkcs"
	"github.com/emmansun/gmsm/pkcs8"
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

// sm2OID is the form of PKCS#8 whose algorithm is SM2 itself and not EC with the curve of SM2.
func sm2OID(t *testing.T, sec1 []byte, parameters ...asn1.ObjectIdentifier) []byte {
	t.Helper()
	oid := asn1.ObjectIdentifier{1, 2, 156, 10197, 1, 301}
	der, err := asn1.Marshal(struct {
		Version   int
		Algorithm []asn1.ObjectIdentifier
		Key       []byte
	}{0, append([]asn1.ObjectIdentifier{oid}, parameters...), sec1})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestKeysUnderTheSM2OID(t *testing.T) {
	want, err := ParseKeyPEM(vector(t, "server_sign.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := smx509.MarshalSM2PrivateKey(want)
	if err != nil {
		t.Fatal(err)
	}
	curve := asn1.ObjectIdentifier{1, 2, 156, 10197, 1, 301}
	for name, b := range map[string][]byte{"alone": sm2OID(t, sec1), "with the curve": sm2OID(t, sec1, curve)} {
		if k, err := ParseKeyPEM(b, nil); err != nil || !k.Equal(want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Keys are encrypted with what OpenSSL, Tongsuo and GmSSL encrypt with.
func TestEncryptedKeys(t *testing.T) {
	want, err := ParseKeyPEM(vector(t, "server_sign.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	kdf := func(h pkcs.Hash) pkcs.KDFOpts {
		return pkcs.PBKDF2Opts{SaltSize: 8, IterationCount: 2048, HMACHash: h}
	}
	for name, x := range map[string]pkcs.PBES2Opts{
		"AES-256-CBC, SHA-256": {Cipher: pkcs.AES256CBC, KDFOpts: kdf(pkcs.SHA256)},
		"AES-128-CBC, SHA-1":   {Cipher: pkcs.AES128CBC, KDFOpts: kdf(pkcs.SHA1)},
		"SM4-CBC, SM3":         {Cipher: pkcs.SM4CBC, KDFOpts: kdf(pkcs.SM3)},
		"SM4-GCM, SM3":         {Cipher: pkcs.SM4GCM, KDFOpts: kdf(pkcs.SM3)},
		"AES-256-CBC, scrypt":  {Cipher: pkcs.AES256CBC, KDFOpts: pkcs.ScryptOpts{SaltSize: 8, CostParameter: 1024, BlockSize: 8, ParallelizationParameter: 1}},
	} {
		der, err := pkcs8.MarshalPrivateKey(want, []byte("secret"), &x)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: der})
		if k, err := ParseKeyPEM(b, []byte("secret")); err != nil || !k.Equal(want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ParseKeyPEM(b, []byte("wrong")); err == nil {
			t.Errorf("%s: opens with a wrong password", name)
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
