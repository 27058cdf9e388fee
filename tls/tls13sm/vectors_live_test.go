package tls13sm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
	"sslo/tls/sm/smtest"
)

func readVector(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../testdata/vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func recordedChain(t testing.TB) []*smx509.Certificate {
	t.Helper()
	chain, err := sm.ParseChainPEM(readVector(t, "certs/chain.crt"))
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// TestRecordedClientHellos gives the first flights of other stacks to our server, which must answer with a
// whole flight.
func TestRecordedClientHellos(t *testing.T) {
	cert, err := X509KeyPair(append(readVector(t, "certs/server_sign.crt"), readVector(t, "certs/chain.crt")...), readVector(t, "certs/server_sign.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("../testdata/vectors/tls13_*.pcap")
	for _, file := range files {
		sessions, err := smtest.ReadCapture(file)
		if err != nil {
			t.Fatal(err)
		}
		a, b := tcp(t)
		server := Server(b, &Config{Certificates: []Certificate{cert}})
		done := make(chan error, 1)
		go func() { done <- server.Handshake() }()
		first := sessions[0].Records[0]
		a.Write(append(sm.AppendHeader(nil, sm.RecordType(first.Type), first.Version, len(first.Body)), first.Body...))
		a.SetReadDeadline(time.Now().Add(5 * time.Second))
		buf := make([]byte, 4096)
		n, err := a.Read(buf)
		a.Close()
		if err != nil || n < 90 || buf[0] != byte(sm.RecordHandshake) || buf[5] != typeServerHello {
			t.Errorf("%s: %x, %v, server: %v", file, buf[:min(n, 10)], err, <-done)
			continue
		}
		if err := <-done; ownAlert(err) >= 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
}
