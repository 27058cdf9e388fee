package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
)

const examples = "../packaging/examples"

// The examples are good, and say nothing that needs a warning, once their certificates exist.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(examples + "/*.yml")
	if err != nil || len(files) < 4 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			c, err := Loader{Host: fakeHost{}}.Load(withCertificates(t, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range c.Warnings {
				if filepath.Base(name) != "commented.yml" {
					t.Error(w)
				}
			}
		})
	}
}

// withCertificates copies an example next to the files that it names.
func withCertificates(t *testing.T, example string) string {
	t.Helper()
	dir := t.TempDir()
	now := time.Now()
	ecdsa, ecdsaKey := makeCert(newECDSA(), now.Add(-time.Hour), now.Add(365*24*time.Hour), []string{"www.example.test"})
	rsa, rsaKey := makeCert(newRSA(2048), now.Add(-time.Hour), now.Add(365*24*time.Hour), []string{"www.example.test"})
	smCA, sign, enc := newSMIssuer("Example SM CA", now), newSMKey(), newSMKey()
	smCert := func(key *sm2.PrivateKey, usage smx509.KeyUsage) []byte {
		return smCA.leaf(key, usage, "www", now.AddDate(1, 0, 0), "www.example.test")
	}
	data, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	others := map[string][]byte{}
	for _, name := range []string{"shop.lua", "blocked.txt"} {
		if others[name], err = os.ReadFile(examples + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string][]byte{"shop.lua": others["shop.lua"], "blocked.txt": others["blocked.txt"], "example.yml": data, "certs/ca.pem": append(smPEM(smCA.cert), ecdsa...), "certs/ca.crl": smCA.list(now.AddDate(1, 0, 0)),
		"certs/www-sm.pem": smCert(sign, signs), "certs/www-sm.key": smKeyPEM(sign, nil), "certs/www-sm-enc.pem": smCert(enc, encrypts),
		"certs/www-sm-enc.key": smKeyPEM(enc, nil), "certs/www-sm.password": []byte("secret\n"),
		"certs/www.pem": ecdsa, "certs/www.key": ecdsaKey, "certs/www-rsa.pem": rsa, "certs/www-rsa.key": rsaKey} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "example.yml")
}

// The commented example leaves no key out.
func TestCommentedExampleIsComplete(t *testing.T) {
	data, err := os.ReadFile(examples + "/commented.yml")
	if err != nil {
		t.Fatal(err)
	}
	for key := range allKeys(reflect.TypeFor[Config]()) {
		if !regexp.MustCompile(`\b` + key + `:`).Match(data) {
			t.Errorf("commented.yml does not have %s", key)
		}
	}
}

func allKeys(t reflect.Type) map[string]bool {
	keys := map[string]bool{}
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || isScalar(t) {
		return keys
	}
	for _, f := range fieldsOf(t) {
		keys[f.key] = true
		for k := range allKeys(t.Field(f.index).Type) {
			keys[k] = true
		}
	}
	return keys
}
