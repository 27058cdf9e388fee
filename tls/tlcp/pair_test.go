package tlcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

const vectorDir = "../testdata/vectors"

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(vectorDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pairOf reads the server's or the client's pair of the vectors, with the CA between.
func pairOf(t testing.TB, who string) *Certificate {
	t.Helper()
	sign := append(file(t, "certs/"+who+"_sign.crt"), file(t, "certs/sub.crt")...)
	c, err := X509KeyPair(sign, file(t, "certs/"+who+"_sign.key"), file(t, "certs/"+who+"_enc.crt"), file(t, "certs/"+who+"_enc.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func roots(t testing.TB) *smx509.CertPool {
	t.Helper()
	p := smx509.NewCertPool()
	if !p.AppendCertsFromPEM(file(t, "certs/root.crt")) {
		t.Fatal("no root")
	}
	return p
}

func configs(t testing.TB) (client, server *Config) {
	client = &Config{RootCAs: roots(t), ServerName: "localhost", Certificates: []*Certificate{pairOf(t, "client")}}
	server = &Config{Certificates: []*Certificate{pairOf(t, "server")}, ClientCAs: roots(t)}
	return client, server
}

// tcpPair is a connection over the loopback.
func tcpPair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { client.Close(); server.Close() })
	deadline := time.Now().Add(20 * time.Second)
	client.SetDeadline(deadline)
	server.SetDeadline(deadline)
	return client, server
}

// result is how both ends of a handshake ended.
type result struct {
	client, server       *Conn
	clientErr, serverErr error
}

// shake runs a handshake over two transports.
func shake(c, s net.Conn, client, server *Config) result {
	r := result{client: Client(c, client), server: Server(s, server)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if r.serverErr = r.server.Handshake(); r.serverErr != nil {
			s.Close()
		}
	}()
	if r.clientErr = r.client.Handshake(); r.clientErr != nil {
		linger(c)
	}
	<-done
	return r
}

// linger closes without a reset, so that the alert arrives.
func linger(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		w.CloseWrite()
		return
	}
	c.Close()
}

func mustShake(t testing.TB, c, s net.Conn, client, server *Config) result {
	t.Helper()
	r := shake(c, s, client, server)
	if r.clientErr != nil || r.serverErr != nil {
		t.Fatalf("client: %v; server: %v", r.clientErr, r.serverErr)
	}
	return r
}

// echo sends data both ways, and the end.
func echo(t testing.TB, r result, size int) {
	t.Helper()
	data := bytes.Repeat([]byte("0123456789abcdef!"), size/17+1)[:size]
	errs := make(chan error, 1)
	go func() {
		b, err := io.ReadAll(r.server)
		if err == nil && !bytes.Equal(b, data) {
			err = errors.New("the server got other data")
		}
		if err == nil {
			_, err = r.server.Write(b)
		}
		if err == nil {
			err = r.server.Close()
		}
		errs <- err
	}()
	if _, err := r.client.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := r.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.client)
	if err != nil || !bytes.Equal(b, data) {
		t.Fatalf("client got %d of %d bytes: %v", len(b), size, err)
	}
	if err := <-errs; err != nil {
		t.Fatal("server:", err)
	}
}

func TestEverySuite(t *testing.T) {
	for _, s := range suites {
		for _, auth := range []ClientAuthType{NoClientCert, RequireAndVerifyClientCert} {
			t.Run(fmt.Sprintf("%s/%d", s.name, auth), func(t *testing.T) {
				client, server := configs(t)
				client.CipherSuites, server.ClientAuth = []uint16{s.id}, auth
				c, sc := tcpPair(t)
				r := mustShake(t, c, sc, client, server)
				if got := r.server.ConnectionState(); got.CipherSuite != s.id || got.ServerName != "localhost" {
					t.Errorf("state %+v", got)
				}
				if n := len(r.server.ConnectionState().PeerCertificates); (auth != NoClientCert || s.ecdhe) != (n > 0) {
					t.Errorf("%d client certificates", n)
				}
				echo(t, r, 100_000)
			})
		}
	}
}

func alertIn(err error) (sm.Alert, bool) {
	var p *sm.PeerAlert
	if errors.As(err, &p) {
		return p.Alert, true
	}
	return sm.AlertOf(err)
}
