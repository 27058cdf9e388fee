package relay

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"sslo/tls/cert"
	"sslo/tls/cert/certtest"
	"sslo/tls/hello"
	"sslo/tls/term"
)

// smKit has a server and a client of every family.
type smKit struct {
	bufs   *Buffers
	server *term.Server
	client func(term.Family) *term.Client
}

func newSMKit(t testing.TB) *smKit {
	ca, smCA := certtest.NewCA(t), certtest.NewSMCA(t)
	store := cert.NewStore([]cert.Pair{{Certificate: ca.Issue(t, certtest.ECDSA, "a.test")}})
	o := term.ServerOptions{SM: &term.SMServer{Certificates: []cert.SMPair{{Certificate: smCA.Issue(t, "a.test")}}}}
	return &smKit{NewBuffers(0), term.NewServer(o, store, term.NewTickets(time.Now()), "x"), func(f term.Family) *term.Client {
		return term.NewClient(term.ClientOptions{CA: ca.Pool(), Families: []term.Family{f}, SM: &term.SMClient{CA: smCA.Pool()}})
	}}
}

// streams are our stream from a client of one family, and our stream to a server of another, with their
// other ends.
func (k *smKit) accept(t *testing.T, f term.Family) (*TLS, term.Conn) {
	ours, theirs := tcpPair(t)
	w, err := NewWire(ours, k.bufs)
	if err != nil {
		t.Fatal(err)
	}
	far := make(chan term.Conn, 1)
	go func() {
		c, err := k.client(f).Handshake(theirs, "a.test", "")
		if err != nil {
			t.Error(err)
		}
		far <- c
	}()
	h, err := hello.Read(w)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := k.server.Handshake(w, h)
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.State().Family; got != f {
		t.Fatalf("client speaks %v, got %v", f, got)
	}
	ts := NewTLS(w, conn)
	return ts, <-far
}

func (k *smKit) dial(t *testing.T, client *term.Client) (*TLS, term.Conn) {
	ours, theirs := tcpPair(t)
	w, err := NewWire(ours, k.bufs)
	if err != nil {
		t.Fatal(err)
	}
	far := make(chan term.Conn, 1)
	go func() {
		peek := &peeked{TCPConn: theirs}
		c, err := k.server.Handshake(peek, peek.hello(t))
		if err != nil {
			t.Error(err)
		}
		far <- c
	}()
	conn, err := client.Handshake(w, "a.test", "")
	if err != nil {
		t.Fatal(err)
	}
	ts := NewTLSToServer(w, conn)
	go func() { ts.Write([]byte("hello")) }() // the last flight waits for it
	c := <-far
	if b := make([]byte, 5); c != nil {
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
			t.Fatal(err)
		}
	}
	return ts, c
}

type peeked struct {
	*net.TCPConn
	first []byte
}

func (p *peeked) hello(t *testing.T) *hello.Hello {
	for {
		b := make([]byte, 4096)
		n, err := p.TCPConn.Read(b)
		if err != nil {
			t.Error(err)
			return &hello.Hello{}
		}
		p.first = append(p.first, b[:n]...)
		if h, err := hello.Parse(p.first); err == nil {
			return h
		}
	}
}

func (p *peeked) Read(b []byte) (int, error) {
	if len(p.first) == 0 {
		return p.TCPConn.Read(b)
	}
	n := copy(b, p.first)
	p.first = p.first[n:]
	return n, nil
}

// Every family of clients reaches every family of servers, with all bytes and both ends in order.
func TestCrossings(t *testing.T) {
	families := []term.Family{term.TLS, term.TLCP, term.TLS13SM}
	for _, from := range families {
		for _, to := range families {
			t.Run(fmt.Sprintf("%v to %v", from, to), func(t *testing.T) { testCrossing(t, from, to) })
		}
	}
}

func testCrossing(t *testing.T, from, to term.Family) {
	k := newSMKit(t)
	in, client := k.accept(t, from)
	dialer := k.client(to)
	out, server := k.dial(t, dialer)
	ends := make(chan End, 2)
	go func() { e := Pump(out, in, k.bufs, new(atomic.Uint64)); out.CloseWrite(true); ends <- e }()
	go func() { e := Pump(in, out, k.bufs, new(atomic.Uint64)); in.CloseWrite(true); ends <- e }()
	for _, x := range [][2]term.Conn{{client, server}, {server, client}} {
		data := make([]byte, 1<<20+7)
		rand.Read(data)
		go func() { x[0].Write(data); x[0].CloseWrite() }()
		if got, err := io.ReadAll(x[1]); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	for range 2 {
		if e := <-ends; e.Err != nil {
			t.Error(e.Err)
		}
	}
	if k.bufs.InUse() != 0 {
		t.Errorf("%d bytes of buffers kept", k.bufs.InUse())
	}
}
