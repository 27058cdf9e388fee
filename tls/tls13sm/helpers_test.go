package tls13sm

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"

	"sslo/tls/sm"
)

// authority issues certificates of any kind.
type authority struct {
	cert *smx509.Certificate
	key  crypto.Signer
}

func newSM2(t testing.TB) *sm2.PrivateKey {
	t.Helper()
	k, err := sm2.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newAuthority(t testing.TB, key crypto.Signer) *authority {
	t.Helper()
	tpl := certTemplate("Root")
	tpl.IsCA, tpl.BasicConstraintsValid, tpl.KeyUsage = true, true, smx509.KeyUsageCertSign
	return &authority{signCert(t, tpl, tpl, key.Public(), key), key}
}

func certTemplate(name string) *smx509.Certificate {
	n, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &smx509.Certificate{SerialNumber: n, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
}

func signCert(t testing.TB, tpl, parent *smx509.Certificate, pub crypto.PublicKey, by crypto.Signer) *smx509.Certificate {
	t.Helper()
	der, err := smx509.CreateCertificate(rand.Reader, tpl, parent, pub, by)
	if err != nil {
		t.Fatal(err)
	}
	c, err := smx509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (a *authority) issue(t testing.TB, key crypto.Signer, name string, change ...func(*smx509.Certificate)) Certificate {
	t.Helper()
	tpl := certTemplate(name)
	tpl.DNSNames = []string{name}
	tpl.KeyUsage = smx509.KeyUsageDigitalSignature
	for _, f := range change {
		f(tpl)
	}
	c := signCert(t, tpl, a.cert, key.Public(), a.key)
	return Certificate{Certificate: [][]byte{c.Raw, a.cert.Raw}, PrivateKey: key, Leaf: c}
}

func (a *authority) pool() *smx509.CertPool {
	p := smx509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func newRSA(t testing.TB) crypto.Signer {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newECDSA(t testing.TB) crypto.Signer {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// world is what most tests need once.
type world struct {
	ca             *authority
	server, client Certificate
}

var theWorld = struct {
	sync.Once
	*world
}{}

func testWorld(t testing.TB) *world {
	theWorld.Do(func() {
		ca := newAuthority(t, newSM2(t))
		theWorld.world = &world{ca, ca.issue(t, newSM2(t), "server.test"), ca.issue(t, newSM2(t), "client.test")}
	})
	return theWorld.world
}

// configs are a server's and a client's that go together.
func (w *world) configs() (server, client *Config) {
	return &Config{Certificates: []Certificate{w.server}, ClientCAs: w.ca.pool()},
		&Config{RootCAs: w.ca.pool(), ServerName: "server.test"}
}

// tcp makes two ends of a connection over loopback.
func tcp(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr)); err != nil {
		t.Fatal(err)
	}
	if b, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	for _, c := range []net.Conn{a, b} {
		c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return a, b
}

// trickle is a transport that gives one byte at a time.
type trickle struct{ net.Conn }

func (t trickle) Read(b []byte) (int, error) { return t.Conn.Read(b[:min(1, len(b))]) }

// both runs the two handshakes.
func both(server, client *Conn) (se, ce error) {
	done := make(chan error, 1)
	go func() {
		err := server.Handshake()
		if err != nil {
			server.NetConn().(interface{ CloseWrite() error }).CloseWrite()
		}
		done <- err
	}()
	ce = client.Handshake()
	if ce != nil {
		client.NetConn().(interface{ CloseWrite() error }).CloseWrite()
	}
	return <-done, ce
}

func (t trickle) CloseWrite() error { return t.Conn.(*net.TCPConn).CloseWrite() }

// connect makes a connection that works.
func connect(t testing.TB, sc, cc *Config) (server, client *Conn) {
	t.Helper()
	a, b := tcp(t)
	server, client = Server(b, sc), Client(a, cc)
	if se, ce := both(server, client); se != nil || ce != nil {
		t.Fatalf("server: %v, client: %v", se, ce)
	}
	return server, client
}

// echo sends data both ways.
func echo(t testing.TB, server, client *Conn) {
	t.Helper()
	for _, x := range [][2]*Conn{{client, server}, {server, client}} {
		data := make([]byte, 50000)
		rand.Read(data)
		go x[0].Write(data)
		got := make([]byte, len(data))
		if _, err := io.ReadFull(x[1], got); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("echo: %v", err)
		}
	}
}

// alertIs tells which alert an end gave up with, or was given.
func ownAlert(err error) int {
	if a, ok := sm.AlertOf(err); ok {
		return int(a)
	}
	return -1
}

func peerAlert(err error) int {
	var p *sm.PeerAlert
	if errors.As(err, &p) {
		return int(p.Alert)
	}
	return -1
}
