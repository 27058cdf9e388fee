package plan_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sslo/config"
	"sslo/config/plan"
)

var update = flag.Bool("update", false, "write the expected plans anew")

var now = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

// present is a machine that has every interface.
type present struct{}

func (present) NIC(string) (config.NIC, bool) { return config.NIC{MTU: 1500}, true }

func load(t *testing.T, name string) *config.Config {
	t.Helper()
	cert, key := certificate(t)
	l := config.Loader{Host: present{}, Now: func() time.Time { return now }, ReadFile: func(name string) ([]byte, error) {
		switch filepath.Ext(name) {
		case ".pem":
			return cert, nil
		case ".key":
			return key, nil
		}
		return os.ReadFile(name)
	}}
	c, err := l.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.AddDate(1, 0, 0), DNSNames: []string{"www.test"}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func TestText(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test files", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			var got bytes.Buffer
			if err := plan.New(load(t, name)).WriteText(&got); err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(name, "yml") + "txt"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
			}
		})
	}
}

// Tools get lists, never null, and the same facts.
func TestJSON(t *testing.T) {
	for _, name := range []string{"testdata/all.yml", "testdata/nothing.yml"} {
		var out bytes.Buffer
		p := plan.New(load(t, name))
		if err := p.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "null") {
			t.Errorf("%s has a null: %s", name, out.String())
		}
		var back plan.Plan
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back.Chains) != len(p.Chains) {
			t.Errorf("%s read back: %v, %+v", name, err, back)
		}
	}
}
