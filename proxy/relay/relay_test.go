package relay

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sslo/tls/cert"
	"sslo/tls/cert/certtest"
	"sslo/tls/hello"
	"sslo/tls/term"
)

// tcpPair is a connection over loopback.
func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	a, b = c.(*net.TCPConn), d.(*net.TCPConn)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

type kit struct {
	bufs   *Buffers
	server *term.Server
	client *tls.Config
}

func newKit(t testing.TB, o term.ServerOptions) *kit {
	ca := certtest.NewCA(t)
	store := cert.NewStore([]cert.Pair{{Certificate: ca.Issue(t, certtest.ECDSA, "a.test")}})
	return &kit{NewBuffers(0), term.NewServer(o, store, term.NewTickets(time.Now()), "x"),
		&tls.Config{RootCAs: ca.Pool(), ServerName: "a.test", MaxVersion: o.MaxVersion}}
}

// tlsStream is our stream with a client of crypto/tls at the other end.
func (k *kit) tlsStream(t testing.TB) (*TLS, *tls.Conn, *net.TCPConn) {
	t.Helper()
	ours, theirs := tcpPair(t)
	w, err := NewWire(ours, k.bufs)
	if err != nil {
		t.Fatal(err)
	}
	client := tls.Client(theirs, k.client)
	failed := make(chan error, 1)
	go func() { failed <- client.Handshake() }()
	h, err := hello.Read(w)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := k.server.Handshake(w, h)
	if err != nil {
		t.Fatal(err)
	}
	ts := NewTLS(w, conn)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	return ts, client, theirs
}

func (k *kit) plainStream(t testing.TB) (*Plain, *net.TCPConn) {
	ours, theirs := tcpPair(t)
	p, err := NewPlain(ours, k.bufs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p, theirs
}

func TestBytesSurvive(t *testing.T) {
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, memory := range []int64{0, 1} { // 1: small buffers only
			k := newKit(t, term.ServerOptions{MaxVersion: v})
			k.bufs.SetLimit(memory)
			ts, client, _ := k.tlsStream(t)
			ps, peer := k.plainStream(t)
			var up, down atomic.Uint64
			ends := make(chan End, 2)
			go func() { e := Pump(ps, ts, k.bufs, &up); ps.CloseWrite(true); ends <- e }()
			go func() { e := Pump(ts, ps, k.bufs, &down); ts.CloseWrite(true); ends <- e }()
			const size = 5<<20 + 123
			var wg sync.WaitGroup
			both := func(w io.Writer, closeWrite func() error, r io.Reader) {
				data := make([]byte, size)
				rand.Read(data)
				sum := sha256.Sum256(data)
				wg.Add(2)
				go func() {
					defer wg.Done()
					for n := 1; len(data) > 0; n = n*3 + 1 { // all sizes of writes
						n = min(n, len(data))
						w.Write(data[:n])
						data = data[n:]
					}
					closeWrite()
				}()
				go func() {
					defer wg.Done()
					h := sha256.New()
					if n, err := io.Copy(h, r); err != nil || n != size || !bytes.Equal(h.Sum(nil), sum[:]) {
						t.Errorf("got %d bytes, %v", n, err)
					}
				}()
			}
			both(client, client.CloseWrite, peer)
			both(peer, peer.CloseWrite, client)
			wg.Wait()
			for range 2 {
				if e := <-ends; e.Err != nil {
					t.Error(e)
				}
			}
			if up.Load() != size || down.Load() != size || k.bufs.InUse() != 0 {
				t.Errorf("up %d, down %d, %d bytes of buffers kept", up.Load(), down.Load(), k.bufs.InUse())
			}
		}
	}
}

// An idle TLS stream holds no buffer, also after tickets and with half a record received.
func TestIdleHoldsNoBuffer(t *testing.T) {
	k := newKit(t, term.ServerOptions{})
	ts, client, raw := k.tlsStream(t)
	got := make(chan int, 10)
	go func() {
		for {
			b, err := ts.Read()
			if err != nil {
				close(got)
				return
			}
			got <- b.N
			k.bufs.Release(b)
		}
	}()
	client.Write([]byte("hello"))
	if n := <-got; n != 5 {
		t.Fatal(n)
	}
	raw.Write([]byte{23, 3, 3, 0x10}) // a header that does not go on
	time.Sleep(20 * time.Millisecond)
	if n := k.bufs.InUse(); n != 0 {
		t.Errorf("%d bytes held while idle", n)
	}
	raw.Close()
	<-got
}

// How a TLS peer ended is told apart.
func TestEnds(t *testing.T) {
	record := []byte{23, 3, 3, 0, 30, 1, 2, 3}
	for name, c := range map[string]struct {
		end  func(*tls.Conn, *net.TCPConn)
		want func(error) bool
	}{
		"close_notify":           {func(c *tls.Conn, _ *net.TCPConn) { c.CloseWrite() }, func(e error) bool { return e == io.EOF }},
		"close_notify and FIN":   {func(c *tls.Conn, _ *net.TCPConn) { c.Close() }, func(e error) bool { return e == io.EOF }},
		"FIN without":            {func(_ *tls.Conn, r *net.TCPConn) { r.CloseWrite() }, func(e error) bool { return e == ErrTruncated }},
		"FIN inside a record":    {func(_ *tls.Conn, r *net.TCPConn) { r.Write(record); r.CloseWrite() }, func(e error) bool { return e == io.ErrUnexpectedEOF }},
		"FIN inside a header":    {func(_ *tls.Conn, r *net.TCPConn) { r.Write(record[:3]); r.CloseWrite() }, func(e error) bool { return e == io.ErrUnexpectedEOF }},
		"RST":                    {func(_ *tls.Conn, r *net.TCPConn) { r.SetLinger(0); r.Close() }, isReset},
		"garbage":                {func(_ *tls.Conn, r *net.TCPConn) { r.Write(bytes.Repeat([]byte("x"), 99)) }, func(e error) bool { return e != nil && e != io.EOF && e != ErrTruncated }},
		"record that is no TLS":  {func(_ *tls.Conn, r *net.TCPConn) { r.Write([]byte{23, 3, 3, 0xff, 0xff}) }, func(e error) bool { return e != nil && e != io.EOF && e != ErrTruncated }},
		"a record of wrong bits": {func(_ *tls.Conn, r *net.TCPConn) { r.Write(append(record, make([]byte, 27)...)) }, func(e error) bool { return e != nil && e != io.EOF && e != ErrTruncated }},
	} {
		k := newKit(t, term.ServerOptions{})
		ts, client, raw := k.tlsStream(t)
		client.Write([]byte("data before"))
		b, err := ts.Read()
		if err != nil || string(b.B[:b.N]) != "data before" {
			t.Fatal(err)
		}
		k.bufs.Release(b)
		c.end(client, raw)
		if _, err := ts.Read(); !c.want(err) {
			t.Errorf("%s: %v", name, err)
		}
		ts.StopReading()
		if k.bufs.InUse() != 0 {
			t.Errorf("%s: buffer kept", name)
		}
	}
}

func isReset(e error) bool {
	var op *net.OpError
	return errors.As(e, &op)
}

// A reset whose error the writer got is no orderly end for the reader.
func TestResetSeenByWriterFirst(t *testing.T) {
	k := newKit(t, term.ServerOptions{})
	p, peer := k.plainStream(t)
	peer.SetLinger(0)
	peer.Close()
	time.Sleep(10 * time.Millisecond)
	if err := p.Write([]byte("x")); err == nil {
		t.Fatal("the write took the error in the kernel this test was written for")
	}
	if _, err := p.Read(); err == nil || err == io.EOF {
		t.Errorf("%v", err)
	}
}

// Handshakes and data arrive in any segments.
func TestTinySegments(t *testing.T) {
	k := newKit(t, term.ServerOptions{})
	ours, theirs := tcpPair(t)
	w, _ := NewWire(ours, k.bufs)
	client := tls.Client(slow{theirs}, k.client)
	go func() { client.Write([]byte("in pieces")); client.Close() }()
	h, err := hello.Read(w)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Buffered()) < h.Size {
		t.Error("the ClientHello was consumed")
	}
	conn, err := k.server.Handshake(w, h)
	if err != nil {
		t.Fatal(err)
	}
	ts := NewTLS(w, conn)
	var got []byte
	for err == nil {
		var b *Buffer
		if b, err = ts.Read(); b != nil {
			got = append(got, b.B[:b.N]...)
		}
	}
	if err != io.EOF || string(got) != "in pieces" {
		t.Errorf("%q, %v", got, err)
	}
}

type slow struct{ *net.TCPConn }

func (s slow) Write(p []byte) (int, error) {
	s.SetNoDelay(true)
	for i := range p {
		if _, err := s.TCPConn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}
