package config

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"testing"
	"time"
)

var testNow = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

// testFiles are the files that the configurations in testdata name.
func testFiles(t testing.TB) map[string][]byte {
	t.Helper()
	return makeTestFiles()
}

var makeTestFiles = sync.OnceValue(func() map[string][]byte {
	files := map[string][]byte{"text.txt": []byte("this is no PEM\n"),
		"good.lua":  []byte("function on_connect(conn)\n  conn:chain('light') conn:server_pool(\"asked\")\nend\n"),
		"bad.lua":   []byte("function on_connect(conn)\n  if conn.client then\nend\n"),
		"chain.lua": []byte("local home = tables.nets\nlocal away = tables.away\nfunction on_connect(conn) end\n"),
		"empty.lua": nil,
		"nets.txt":  []byte("# nets\n10.0.0.0/8 inside\n192.0.2.0/24\toutside # tab\n\n10.0.0.0/8 again\nlone\n")}
	year := 365 * 24 * time.Hour
	add := func(name string, key crypto.Signer, from, to time.Duration, dns ...string) {
		cert, pkcs8 := makeCert(key, testNow.Add(from), testNow.Add(to), dns)
		files[name+".pem"], files[name+".key"] = cert, pkcs8
	}
	add("www", newECDSA(), -year, year, "www.test", "shop.test")
	add("www2", newECDSA(), -year, year, "other.test", "WWW.test")
	add("ca", newECDSA(), -year, year, "ca.test")
	add("rsa", newRSA(2048), -year, year, "www.test")
	add("weak", newRSA(1024), -year, year, "weak.test")
	add("expired", newECDSA(), -2*year, -time.Hour, "expired.test")
	add("future", newECDSA(), time.Hour, year, "future.test")
	add("soon", newECDSA(), -year, 48*time.Hour, "soon.test")
	add("no-san", newECDSA(), -year, year)
	addSMFiles(files)
	return files
})

func newECDSA() crypto.Signer { k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader); return k }

func newRSA(bits int) crypto.Signer {
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return k
}

func makeCert(key crypto.Signer, from, to time.Time, dns []string) (certPEM, keyPEM []byte) {
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: from, NotAfter: to, DNSNames: dns}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		panic(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
